/*
 * cmd_eval.c: hymt-engine eval: logits and greedy answers to prompts of ids.
 *
 * Runs in the engine program. Needs no tokenizer: it is how a model, a device or a precision is compared with a
 * reference. All requests are one continuous batch.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "cmd.h"
#include "files.h"
#include "lines.h"

/*
 * An answer holds the logits of the whole vocabulary, as numbers and then as text. The requests in the batch share this
 * much memory for that, within these bounds.
 */
#define WINDOW_BYTES (256 * 1024 * 1024)
#define BYTES_PER_LOGIT 20
#define WINDOW_MIN 16
#define WINDOW_MAX 1024

static const char usage[] =
"hymt-engine eval --model DIR [OPTIONS]\n"
"\n"
"Reads JSON lines {\"ids\": [1, 2], \"max_new\": 24, \"repetition_penalty\": 1.0}; max_new (default 0) is the most\n"
"tokens the answer may have. Writes one line for each, in the same order:\n"
"  {\"last_logits\": [...], \"argmax_per_position\": [...], \"greedy\": [...], \"finish\": \"stop\"}\n"
"last_logits are those at the last id of the prompt, before any penalty; greedy ends with the stop id that ended it;\n"
"\"adapter\": \"DIR\" in a request computes it with that LoRA adapter, null without any.\n"
"finish is \"stop\", \"length\" or \"loop\". A request that fails gives {\"error\": \"...\"}, and exit code 1 at the end.\n"
"Further members of a request:\n"
"  \"temperature\": 0.7, \"top_k\": 20, \"top_p\": 0.6, \"seed\": 7   draw tokens instead of taking the likeliest;\n"
"      defaults: 0 (do not draw), 0 (no limit), 1 (no limit), 0. The answer is in \"greedy\" all the same.\n"
"  \"stop_at_loop\": true    end an answer that repeats itself more often than anything in the prompt\n"
"  \"argmax_per_position\": false    leave that out; the beginning of the prompt may then come from an earlier request\n"
"\n"
"  --adapter DIR         LoRA adapter for requests that name none\n"
"  --max-adapters N      adapters loaded at a time (default: 3)\n";

typedef struct Eval
{
	HymtModel	model;
	HymtDevice *device;
	HymtScheduler *scheduler;
	HymtAdapters *adapters;
	const char *adapter;		/* of requests that name none, or NULL */
	int			max_adapters;
	bool		failed;
} Eval;

static const HymtDeviceOps *const ops = &hymt_device_cpu;

/* --- requests --------------------------------------------------------------------------------------------------- */

static bool
read_ids(const json_t *list, int32_t *ids, int vocab, HymtError *error)
{
	for (size_t i = 0; i < json_array_size(list); i++)
	{
		const json_t *item = json_array_get(list, i);

		if (!json_is_integer(item))
			return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "ids[%zu] is not an integer", i);
		if (json_integer_value(item) < 0 || json_integer_value(item) >= vocab)
			return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "ids[%zu] is not in 0 ... %d", i, vocab - 1);
		ids[i] = (int32_t) json_integer_value(item);
	}
	return true;
}

/* A member that may be missing; *value is then left as it is. */
static bool
read_bool(const json_t *object, const char *name, bool *value, HymtError *error)
{
	const json_t *member = json_object_get(object, name);

	if (member == NULL)
		return true;
	if (!json_is_boolean(member))
		return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "%s is neither true nor false", name);
	*value = json_is_true(member);
	return true;
}

static bool
read_number(const json_t *object, const char *name, float *value, HymtError *error)
{
	const json_t *member = json_object_get(object, name);

	if (member == NULL)
		return true;
	if (!json_is_number(member))
		return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "%s is not a number", name);
	*value = (float) json_number_value(member);
	return true;
}

/* What is out of bounds in other ways the scheduler tells. */
static bool
read_sampling(const json_t *object, HymtSampling *sampling, HymtError *error)
{
	const json_t *top_k = json_object_get(object, "top_k");
	const json_t *seed = json_object_get(object, "seed");

	if (!read_number(object, "temperature", &sampling->temperature, error) ||
		!read_number(object, "top_p", &sampling->top_p, error))
		return false;
	/* A zeroed struct has 0 for no limit, but a request that says 0 is mistaken. */
	if (json_object_get(object, "top_p") != NULL && !(sampling->top_p > 0))
		return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "top_p must be a number above 0 and up to 1");
	if (top_k != NULL)
	{
		if (!json_is_integer(top_k) || json_integer_value(top_k) < 0 || json_integer_value(top_k) > INT32_MAX)
			return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "top_k is not an integer from 0 to %d", INT32_MAX);
		sampling->top_k = (int32_t) json_integer_value(top_k);
	}
	if (seed != NULL)
	{
		if (!json_is_integer(seed))
			return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "seed is not an integer");
		sampling->seed = (uint64_t) json_integer_value(seed);
	}
	return true;
}

static bool
read_settings(const json_t *object, HymtSequenceRequest *request, HymtError *error)
{
	const json_t *max_new = json_object_get(object, "max_new");
	const json_t *penalty = json_object_get(object, "repetition_penalty");

	request->max_new = 0;
	request->repetition_penalty = 1;
	if (max_new != NULL)
	{
		if (!json_is_integer(max_new) || json_integer_value(max_new) < 0 || json_integer_value(max_new) > INT32_MAX)
			return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "max_new is not an integer from 0 to %d", INT32_MAX);
		request->max_new = (int32_t) json_integer_value(max_new);
	}
	if (penalty != NULL)
	{
		if (!json_is_number(penalty))
			return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "repetition_penalty is not a number");
		request->repetition_penalty = (float) json_number_value(penalty);
	}
	return read_bool(object, "stop_at_loop", &request->stop_at_loop, error) &&
		read_bool(object, "argmax_per_position", &request->want_argmax, error) &&
		read_sampling(object, &request->sampling, error);
}

static bool
read_adapter(const Eval *eval, const json_t *object, const char **adapter, HymtError *error)
{
	const json_t *value = json_object_get(object, "adapter");

	*adapter = value == NULL ? eval->adapter : json_string_value(value);
	if (value == NULL || json_is_null(value) || (json_is_string(value) && json_string_length(value) > 0))
		return true;
	return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "adapter is not the name of a directory");
}

static bool
submit_object(Eval *eval, uint64_t number, const json_t *object, HymtError *error)
{
	const json_t *list = json_object_get(object, "ids");
	HymtSequenceRequest request = {.id = number, .want_last_logits = true, .want_argmax = true};
	const char *adapter;
	int32_t    *ids;
	bool		done;

	if (!json_is_array(list))
		return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, list == NULL ? "ids is missing" : "ids is not an array");
	if (json_array_size(list) == 0)
		return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "ids is empty");
	/* Longer prompts fit in no context; the scheduler says so without their ids. */
	if (json_array_size(list) > INT32_MAX / 2)
		return hymt_fail(error, HYMT_FAILURE_TOO_LONG, "ids is too long");
	ids = malloc(sizeof(int32_t) * json_array_size(list));
	if (ids == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	request.prompt = ids;
	request.prompt_count = (int32_t) json_array_size(list);
	request.stop_ids = eval->model.config.stop_ids;
	request.stop_count = eval->model.config.stop_count;
	done = read_ids(list, ids, eval->model.config.vocab, error) &&
		read_settings(object, &request, error) &&
		read_adapter(eval, object, &adapter, error);
	request.source_repeats = done ? hymt_repeats_of_ids(ids, request.prompt_count) : 0;
	done = done && hymt_adapters_submit(eval->adapters, &request, adapter, error);
	free(ids);
	return done;
}

static void
answer_error(Eval *eval, const char *message, HymtBytes *output)
{
	json_t	   *object = json_pack("{s:s}", "error", message);
	char	   *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
	static const char plain[] = "{\"error\":\"out of memory\"}";

	eval->failed = true;
	hymt_bytes_free(output);
	if ((text == NULL || !hymt_bytes_append(output, text, strlen(text))) &&
		!hymt_bytes_append(output, plain, sizeof(plain) - 1))
		hymt_complain("out of memory, even to say so on the standard output");
	free(text);
	json_decref(object);
}

static bool
start_line(void *context, uint64_t number, const char *line, size_t length, HymtBytes *output)
{
	Eval	   *eval = context;
	HymtError	error;
	json_t	   *object;
	bool		done;

	if (line == NULL)
	{
		answer_error(eval, "the line is too long", output);
		return false;
	}
	object = hymt_json_object(line, length, "request", &error);
	done = object != NULL && submit_object(eval, number, object, &error);
	json_decref(object);
	if (!done)
		answer_error(eval, error.message, output);
	return done;
}

/* --- answers ---------------------------------------------------------------------------------------------------- */

static bool
append_ids(HymtBytes *output, const char *name, const int32_t *ids, int32_t count)
{
	char		text[64];

	if (!hymt_bytes_append(output, text, (size_t) snprintf(text, sizeof(text), ",\"%s\":[", name)))
		return false;
	for (int32_t i = 0; i < count; i++)
		if (!hymt_bytes_append(output, text,
							   (size_t) snprintf(text, sizeof(text), "%s%d", i > 0 ? "," : "", (int) ids[i])))
			return false;
	return hymt_bytes_append(output, "]", 1);
}

/* Nine significant digits give back every float exactly. */
static bool
append_logits(HymtBytes *output, const float *logits, int count)
{
	static const char name[] = "{\"last_logits\":[";
	char		text[64];

	if (!hymt_bytes_append(output, name, sizeof(name) - 1))
		return false;
	for (int i = 0; i < count; i++)
		if (!hymt_bytes_append(output, text, (size_t) snprintf(text, sizeof(text), "%s%.9g", i > 0 ? "," : "",
															   (double) logits[i])))
			return false;
	return hymt_bytes_append(output, "]", 1);
}

static bool
all_finite(const float *values, int count)
{
	for (int i = 0; i < count; i++)
		if (!isfinite(values[i]))
			return false;
	return true;
}

static bool
append_answer(HymtBytes *output, const HymtSequenceAnswer *answer, int vocab)
{
	char		text[32];
	const char *finish = answer->finish == HYMT_FINISH_STOP ? "stop" :
		answer->finish == HYMT_FINISH_LOOP ? "loop" : "length";

	return append_logits(output, answer->last_logits, vocab) &&
		(answer->argmax == NULL ||
		 append_ids(output, "argmax_per_position", answer->argmax, answer->prompt_count)) &&
		append_ids(output, "greedy", answer->tokens, answer->token_count) &&
		hymt_bytes_append(output, text, (size_t) snprintf(text, sizeof(text), ",\"finish\":\"%s\"}", finish));
}

static bool
collect_answer(void *context, uint64_t *number, HymtBytes *output)
{
	Eval	   *eval = context;
	HymtSequenceAnswer answer;
	const char *message;

	if (!hymt_adapters_answer(eval->adapters, &answer, &message))
		return false;
	*number = answer.id;
	if (message != NULL)
	{
		answer_error(eval, message, output);
		return true;
	}
	/* JSON has no way to write what is not finite. */
	if (answer.failure != HYMT_FAILURE_NONE || !all_finite(answer.last_logits, eval->model.config.vocab))
		answer_error(eval, "the model computed a logit that is not a finite number", output);
	else if (!append_answer(output, &answer, eval->model.config.vocab))
		answer_error(eval, "out of memory", output);
	return true;
}

/* --- command ---------------------------------------------------------------------------------------------------- */

static int
window_for(int vocab)
{
	int			window = WINDOW_BYTES / BYTES_PER_LOGIT / vocab;

	return window < WINDOW_MIN ? WINDOW_MIN : window > WINDOW_MAX ? WINDOW_MAX : window;
}

static bool
run(Eval *eval, const HymtOptions *options, HymtError *error)
{
	HymtLineWork work = {.context = eval, .start = start_line, .collect = collect_answer};
	HymtBudget	budget = {.memory = options->memory, .device = options->device};
	HymtModelOptions model_options = {.family = options->family, .check = hymt_budget_decide, .check_context = &budget};
	bool		done = false;

	if (!hymt_model_open(&eval->model, options->model, &model_options, error))
		return false;
	eval->device = hymt_budget_open_device(&budget, ops, &eval->model, error);
	if (eval->device != NULL)
		eval->scheduler = hymt_scheduler_open(ops, eval->device, eval->model.config.vocab, options->trace, error);
	if (eval->scheduler != NULL)
		eval->adapters = hymt_adapters_open(ops, eval->device, &eval->model, eval->scheduler, eval->max_adapters, error);
	if (eval->adapters != NULL)
	{
		work.adapters = eval->adapters;
		work.event_fd = ops->info(eval->device)->event_fd;
		work.window = window_for(eval->model.config.vocab);
		eval->failed = !hymt_lines_run(&work) || eval->failed;
		done = true;
	}
	hymt_scheduler_close(eval->scheduler);
	hymt_adapters_close(eval->adapters);
	if (eval->device != NULL)
		ops->close(eval->device);
	hymt_model_close(&eval->model);
	return done;
}

int
hymt_cmd_eval(int argc, char **argv)
{
	HymtOptions options;
	Eval		eval = {.max_adapters = HYMT_DEFAULT_ADAPTERS};
	const char *max_adapters = NULL;
	const HymtOwnOption own[] = {{"adapter", &eval.adapter}, {"max-adapters", &max_adapters}, {NULL, NULL}};
	HymtError	error;
	int			code;
	bool		done;

	if (!hymt_options_parse(&options, argc, argv, usage, own, &code))
		return code;
	if (!hymt_option_adapters(&eval.max_adapters, max_adapters))
	{
		hymt_options_close(&options);
		return 2;
	}
	done = run(&eval, &options, &error);
	if (!done)
		hymt_complain("%s", error.message);
	done = hymt_options_close(&options) && done;
	return done && !eval.failed ? 0 : 1;
}
