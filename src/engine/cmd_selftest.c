/*
 * cmd_selftest.c: hymt-engine selftest: whether a model and this machine do what they should, as a report for people.
 *
 * Runs in the engine program. Needs nothing but the model: no network, no reference files. Everything goes to the
 * standard output, line by line, so that a report of a run that ends badly still shows how far it came.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd.h"
#include "engine.h"
#include "machine.h"
#include "selftest.h"
#include "utf8.h"

#define NEW_TOKENS 8			/* of each text's answer, when instances are compared */
#define KNOWN_TOKENS 64
#define CONTEXT 1024			/* of the instances that are compared with the first */
#define DEFAULT_SECONDS 60
#define MEGABYTE (1024 * 1024)
/* Anonymous memory of a process that maps its weights: room for keys and values in use, tokenizer, activations. */
#define ANONYMOUS_MOST (300 * MEGABYTE)

static const char usage[] =
"hymt-engine selftest --model DIR [--seconds N] [OPTIONS]\n"
"\n"
"Tests a model on this machine: that it opens, tokenizer, chat template, stop ids, answers that are known from other\n"
"implementations (for the models that have such), and that its answers to 50 texts are the same, bit for bit, in a\n"
"batch and alone, with one thread and with several, and with every instruction set of this machine. Measures memory\n"
"and speed. The output is a report to attach to a bug; it ends with \"verdict: PASS\" or \"verdict: FAIL\", and so does\n"
"the exit code (0 or 1). It holds no texts but those of the selftest.\n"
"\n"
"  --seconds N           for each comparison, which then covers fewer than 50 texts (default: 60)\n";

/* What a model answered to a text. */
typedef struct Outcome
{
	bool		done;
	HymtFailure failure;
	int32_t		tokens[NEW_TOKENS];
	int32_t		token_count;
	uint64_t	logits;			/* a hash of all bits of the logits at the prompt's end */
} Outcome;

/* A device with a scheduler of its own, on the one model. */
typedef struct Instance
{
	const HymtDeviceOps *ops;
	HymtDevice *device;
	HymtScheduler *scheduler;
} Instance;

typedef struct Selftest
{
	HymtEngine	engine;
	HymtDeviceOptions device_options;
	long		seconds;		/* for each comparison */
	HymtIds		prompts[HYMT_SELFTEST_TEXTS];
	Outcome		reference[HYMT_SELFTEST_TEXTS];
	int			failures;
	int			passed;
} Selftest;

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double) time.tv_sec + (double) time.tv_nsec * 1e-9;
}

/* --- the report --------------------------------------------------------------------------------------------------- */

static bool check(Selftest *test, bool good, const char *name, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static bool
check(Selftest *test, bool good, const char *name, const char *format, ...)
{
	va_list		arguments;

	printf("%s %s: ", good ? "ok     " : "FAILED ", name);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	fflush(stdout);
	if (good)
		test->passed++;
	else
		test->failures++;
	return good;
}

static bool
fail_with(Selftest *test, const char *name, const HymtError *error)
{
	return check(test, false, name, "%s", error->message);
}

/* A text on one line. */
static void
print_text(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
	{
		if (text[i] == '\n')
			printf("\\n");
		else if (hymt_utf8_control(text + i) > 0)
			printf("?");
		else
			printf("%c", text[i]);
	}
}

/* The value of a key in a file of /proc, without the blanks before it; empty when there is none. */
static void
read_proc(const char *path, const char *key, char *value, size_t size)
{
	FILE	   *file = fopen(path, "re");
	char		line[256];

	value[0] = '\0';
	while (file != NULL && value[0] == '\0' && fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, key, strlen(key)) == 0 && strchr(line, ':') != NULL)
		{
			const char *after = strchr(line, ':') + 1;

			after += strspn(after, " \t");
			snprintf(value, size, "%.*s", (int) strcspn(after, "\n"), after);
		}
	if (file != NULL)
		fclose(file);
}

static int64_t
kilobytes_of(const char *key)
{
	char		value[64];

	read_proc("/proc/self/status", key, value, sizeof(value));
	return strtoll(value, NULL, 10);
}

static void
report_machine(void)
{
	static const HymtIsa sets[] = {HYMT_ISA_SCALAR, HYMT_ISA_AVX2, HYMT_ISA_AVX512};
	char		processor[128];

	read_proc("/proc/cpuinfo", "model name", processor, sizeof(processor));
	printf("hymt-engine: %s\n", HYMT_VERSION);
	printf("processor: %s, %d to be used\n", processor[0] != '\0' ? processor : "unknown", hymt_machine_processors());
	printf("instruction sets:");
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
		if (hymt_isa_supported(sets[i]))
			printf(" %s", hymt_isa_name(sets[i]));
	printf("\nmemory available: %" PRId64 " MB\n", hymt_machine_memory() / MEGABYTE);
}

static void
report_model(const HymtEngine *engine)
{
	const HymtModel *model = &engine->model;
	const HymtConfig *config = &model->config;
	const HymtDeviceInfo *info = engine->ops->info(engine->device);

	printf("model: %s\n", model->name);
	printf("directory: %s\n", model->directory);
	printf("family: %s (%s)\n", hymt_family_name(model->family), model->family_reason);
	printf("shape: %d layers, hidden %d, %d heads, %d KV heads of %d, feed-forward %d, %d vocabulary rows\n",
		   config->layers, config->hidden, config->heads, config->kv_heads, config->head_dim, config->intermediate,
		   config->vocab);
	printf("weights: %" PRIu64 " parameters, %" PRIu64 " bytes\n", model->parameters, model->stored_bytes);
	printf("fingerprint: %s\n", model->fingerprint);
	printf("device: %s, precision %s, %d threads, context of %d tokens\n", info->name, info->precision, info->threads,
		   (int) info->max_context);
	fflush(stdout);
}

/* --- tokenizer, template, stop ids -------------------------------------------------------------------------------- */

/* "" when a text comes back from its ids, else what is wrong. */
static const char *
round_trip(const HymtTokenizer *tokenizer, const char *text, size_t *count)
{
	HymtIds		ids = {0};
	HymtError	error;
	char	   *back = NULL;
	size_t		length = 0;
	const char *problem = "";

	if (!hymt_tokenizer_encode(tokenizer, text, strlen(text), &ids, &error))
		problem = "cannot be encoded";
	else if (!hymt_tokenizer_decode(tokenizer, ids.ids, ids.count, &back, &length))
		problem = "cannot be decoded";
	else if (length != strlen(text) || memcmp(back, text, length) != 0)
		problem = "comes back as another text";
	for (size_t i = 0; i < ids.count; i++)
		if (hymt_tokenizer_is_special(tokenizer, ids.ids[i]))
			problem = "gives a control token";
	*count += ids.count;
	free(back);
	hymt_ids_free(&ids);
	return problem;
}

static void
check_tokenizer(Selftest *test)
{
	const HymtTokenizer *tokenizer = test->engine.tokenizer;
	double		start = now();
	size_t		tokens = 0;
	size_t		bytes = 0;
	int			wrong = 0;

	for (int i = 0; i < HYMT_SELFTEST_TEXTS; i++)
	{
		const char *text = hymt_selftest_texts[i].text;
		const char *problem = round_trip(tokenizer, text, &tokens);

		bytes += strlen(text);
		if (problem[0] != '\0' && wrong++ == 0)
			printf("        the text \"%s\" %s\n", text, problem);
	}
	check(test, wrong == 0, "tokenizer round trips", "%d of %d texts come back, %zu bytes in %zu tokens, %.3f ms a text",
		  HYMT_SELFTEST_TEXTS - wrong, HYMT_SELFTEST_TEXTS, bytes, tokens, (now() - start) * 1000 / HYMT_SELFTEST_TEXTS);
}

static HymtPromptRequest
request_of(const HymtSelftestText *text)
{
	const char *target = strcmp(text->language, "en") == 0 ? "zh" : "en";

	return (HymtPromptRequest) {
		.source = hymt_language_find(text->language, strlen(text->language)),
		.target = hymt_language_find(target, strlen(target)),
		.text = {text->text, strlen(text->text)}
	};
}

/* Prompts of all texts: into English, or into Chinese where they are English. */
static bool
make_prompts(Selftest *test, HymtError *error)
{
	HymtEngine *engine = &test->engine;
	size_t		tokens;

	for (int i = 0; i < HYMT_SELFTEST_TEXTS; i++)
	{
		HymtPromptRequest request = request_of(&hymt_selftest_texts[i]);

		if (!hymt_prompt_encode(&engine->prompts, engine->tokenizer, &request, CONTEXT / 2, &test->prompts[i], &tokens,
								error))
			return false;
	}
	return true;
}

/* What a prompt says, its control tokens left out, is the instruction with the text in it. */
static void
check_template(Selftest *test)
{
	const HymtEngine *engine = &test->engine;
	HymtPromptRequest request = request_of(&hymt_selftest_texts[0]);
	const HymtIds *prompt = &test->prompts[0];
	HymtError	error;
	char	   *wording = hymt_prompt_wording(&engine->prompts, &request, &error);
	char	   *text = NULL;
	size_t		length = 0;
	int			control = 0;
	bool		good;

	for (size_t i = 0; i < prompt->count; i++)
		control += hymt_tokenizer_is_special(engine->tokenizer, prompt->ids[i]);
	good = wording != NULL && hymt_tokenizer_decode(engine->tokenizer, prompt->ids, prompt->count, &text, &length) &&
		strstr(text, wording) != NULL && strlen(wording) > strlen(hymt_selftest_texts[0].text);
	check(test, good, "template", "\"%s\", %d control tokens", engine->prompts.chat_name, control);
	if (text != NULL)
	{
		printf("        prompt: ");
		print_text(text, length);
		printf("\n");
	}
	free(text);
	free(wording);
}

/* The token with which models of this template were trained to end; -1: not known. */
static int32_t
trained_stop(const HymtEngine *engine)
{
	const char *name = engine->prompts.chat_name;

	if (strcmp(name, "7b") != 0 && strcmp(name, "1.8b") != 0)
		return -1;
	return hymt_tokenizer_added_id(engine->tokenizer, strcmp(name, "7b") == 0 ? "<|eos|>" : "<｜hy_place▁holder▁no▁2｜>");
}

static void
check_stop_ids(Selftest *test)
{
	const HymtEngine *engine = &test->engine;
	int32_t		trained = trained_stop(engine);
	bool		found = trained < 0 && engine->stop_count > 0;
	char		list[256] = "";

	for (int i = 0; i < engine->stop_count; i++)
	{
		found = found || engine->stop_ids[i] == trained;
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%d", i > 0 ? ", " : "", engine->stop_ids[i]);
	}
	check(test, found, "stop ids", "%s; %d of the model's %d are control tokens; models of this template end with %d", list,
		  engine->stop_count, engine->model.config.stop_count, (int) trained);
}

/* --- known answers ------------------------------------------------------------------------------------------------ */

/* Run all that is submitted; the first answer's text, malloc'ed, or NULL with *error set. */
static char *
answer_of(HymtEngine *engine, HymtIds *prompt, float penalty, int max_new, HymtFinish *finish, HymtError *error)
{
	HymtSequenceRequest request = {
		.prompt = prompt->ids,
		.prompt_count = (int32_t) prompt->count,
		.max_new = max_new,
		.repetition_penalty = penalty,
		.stop_ids = engine->stop_ids,
		.stop_count = engine->stop_count
	};
	HymtSequenceAnswer answer;
	char	   *text = NULL;
	size_t		length;

	if (!hymt_scheduler_submit(engine->scheduler, &request, error))
		return NULL;
	while (hymt_scheduler_run(engine->scheduler, true))
		;
	if (!hymt_scheduler_answer(engine->scheduler, &answer) || answer.failure != HYMT_FAILURE_NONE)
		hymt_fail(error, HYMT_FAILURE_NUMERIC, "the model computed a value that is not a number");
	else
	{
		*finish = answer.finish;
		if (!hymt_tokenizer_decode(engine->tokenizer, answer.tokens, (size_t) answer.token_count, &text, &length))
			hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	}
	return text;
}

static char *
answer_to_turn(HymtEngine *engine, const char *turn, HymtError *error)
{
	/* The template's own instruction is the turn as it is. */
	static char form[] = "plain";
	static char slot[] = "{text}";
	const HymtTemplate plain = {.form = form, .text = slot};
	const HymtLanguage *english = hymt_language_find("en", 2);
	HymtPromptRequest request = {.source = english, .target = english, .text = {turn, strlen(turn)}};
	HymtPrompts prompts = engine->prompts;
	HymtIds		prompt = {0};
	HymtFinish	finish;
	size_t		tokens;
	char	   *text = NULL;
	bool		good;

	prompts.templates = &plain;
	prompts.template_count = 1;
	good = hymt_prompt_encode(&prompts, engine->tokenizer, &request, CONTEXT / 2, &prompt, &tokens, error);
	if (good)
		text = answer_of(engine, &prompt, 1.0f, KNOWN_TOKENS, &finish, error);
	else
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "the prompt cannot be made");
	hymt_ids_free(&prompt);
	return text;
}

static bool
is_known_model(const HymtModel *model, const HymtKnownAnswer *known)
{
	return model->family == known->family && model->config.hidden == known->hidden &&
		model->config.layers == known->layers && (known->name == NULL || strcmp(model->name, known->name) == 0);
}

static bool
answer_matches(const HymtKnownAnswer *known, const char *answer)
{
	if (known->answer != NULL)
		return strcmp(known->answer, answer) == 0;
	for (int i = 0; known->words[i] != NULL; i++)
		if (strstr(answer, known->words[i]) != NULL)
			return true;
	return false;
}

static void
check_known_answers(Selftest *test)
{
	int			found = 0;

	for (int i = 0; i < hymt_known_answer_count; i++)
	{
		const HymtKnownAnswer *known = &hymt_known_answers[i];
		HymtError	error;
		char	   *answer;

		if (!is_known_model(&test->engine.model, known))
			continue;
		found++;
		answer = answer_to_turn(&test->engine, known->prompt, &error);
		if (answer == NULL)
			fail_with(test, "known answer", &error);
		else if (known->answer != NULL)
			check(test, answer_matches(known, answer), "known answer", "\"%s\", wanted of %s: \"%s\"", answer, known->model,
				  known->answer);
		else
			check(test, answer_matches(known, answer), "known answer", "\"%s\", wanted of %s: with \"%s\" or the like", answer,
				  known->model, known->words[0]);
		free(answer);
	}
	if (found == 0)
		printf("skipped known answers: none are known of this model\n");
}

/* --- samples ------------------------------------------------------------------------------------------------------ */

/* Some translations, for people to judge. Answers that never end are the sign of a wrong template or stop id. */
static void
check_samples(Selftest *test)
{
	static const int samples[] = {0, 8, 9, 17};
	int			count = sizeof(samples) / sizeof(samples[0]);
	int			ended = 0;
	double		start = now();

	for (int i = 0; i < count; i++)
	{
		HymtError	error;
		HymtFinish	finish = HYMT_FINISH_NONE;
		char	   *text = answer_of(&test->engine, &test->prompts[samples[i]], test->engine.model.config.repetition_penalty,
									 KNOWN_TOKENS, &finish, &error);

		if (text == NULL)
		{
			fail_with(test, "sample", &error);
			continue;
		}
		printf("        %s -> ", hymt_selftest_texts[samples[i]].text);
		print_text(text, strlen(text));
		printf("%s\n", finish == HYMT_FINISH_STOP ? "" : " (not ended)");
		ended += finish == HYMT_FINISH_STOP;
		free(text);
	}
	check(test, ended > 0, "answers end", "%d of %d samples within %d tokens, %.1f s", ended, count, KNOWN_TOKENS,
		  now() - start);
}

/* --- comparing instances ------------------------------------------------------------------------------------------ */

static uint64_t
hash_of(const float *values, int count)
{
	uint64_t	hash = 14695981039346656037u;	/* FNV-1a over the bits */

	for (int i = 0; i < count; i++)
	{
		uint32_t	bits;

		memcpy(&bits, &values[i], sizeof(bits));
		hash = (hash ^ bits) * 1099511628211u;
	}
	return hash;
}

static bool
submit_text(Selftest *test, HymtScheduler *scheduler, int number, HymtError *error)
{
	HymtSequenceRequest request = {
		.id = (uint64_t) number,
		.prompt = test->prompts[number].ids,
		.prompt_count = (int32_t) test->prompts[number].count,
		.max_new = NEW_TOKENS,
		.repetition_penalty = test->engine.model.config.repetition_penalty,
		.stop_ids = test->engine.stop_ids,
		.stop_count = test->engine.stop_count,
		.want_last_logits = true
	};

	return hymt_scheduler_submit(scheduler, &request, error);
}

static void
take_answers(const Selftest *test, HymtScheduler *scheduler, Outcome *outcomes)
{
	HymtSequenceAnswer answer;

	while (hymt_scheduler_answer(scheduler, &answer))
	{
		Outcome    *outcome = &outcomes[answer.id];

		outcome->done = true;
		outcome->failure = answer.failure;
		outcome->token_count = answer.token_count < NEW_TOKENS ? answer.token_count : NEW_TOKENS;
		memcpy(outcome->tokens, answer.tokens, sizeof(int32_t) * (size_t) outcome->token_count);
		outcome->logits = answer.last_logits != NULL ? hash_of(answer.last_logits, test->engine.model.config.vocab) : 0;
	}
}

/* Answers to texts, `together` at a time, until `seconds` are over. Returns how many there are, or -1. */
static int
run_texts(Selftest *test, HymtScheduler *scheduler, int together, double seconds, Outcome *outcomes, HymtError *error)
{
	double		end = now() + seconds;
	int			next = 0;

	memset(outcomes, 0, sizeof(Outcome) * HYMT_SELFTEST_TEXTS);
	while (next < HYMT_SELFTEST_TEXTS && (next == 0 || now() < end))
	{
		for (int i = 0; i < together && next < HYMT_SELFTEST_TEXTS; i++)
			if (!submit_text(test, scheduler, next++, error))
				return -1;
		while (hymt_scheduler_run(scheduler, true))
			take_answers(test, scheduler, outcomes);
		take_answers(test, scheduler, outcomes);
	}
	return next;
}

static bool
same_outcome(const Outcome *a, const Outcome *b)
{
	return a->failure == b->failure && a->logits == b->logits && a->token_count == b->token_count &&
		memcmp(a->tokens, b->tokens, sizeof(int32_t) * (size_t) a->token_count) == 0;
}

static int
count_same(const Selftest *test, const Outcome *outcomes, int count)
{
	int			same = 0;

	for (int i = 0; i < count; i++)
		same += outcomes[i].done && same_outcome(&outcomes[i], &test->reference[i]);
	return same;
}

static void
close_instance(Instance *instance)
{
	hymt_scheduler_close(instance->scheduler);
	if (instance->device != NULL)
		instance->ops->close(instance->device);
}

static bool
open_instance(Instance *instance, const Selftest *test, const HymtDeviceOptions *wanted, HymtError *error)
{
	const HymtEngine *engine = &test->engine;
	HymtDeviceOptions options = *wanted;

	options.token_limit = hymt_tokenizer_size(engine->tokenizer);
	options.max_context = CONTEXT;
	instance->ops = engine->ops;
	instance->scheduler = NULL;
	instance->device = engine->ops->open(&engine->model, &options, error);
	if (instance->device != NULL)
		instance->scheduler = hymt_scheduler_open(engine->ops, instance->device, engine->model.config.vocab, NULL, error);
	if (instance->scheduler != NULL)
		return true;
	close_instance(instance);
	return false;
}

/* All texts in one batch: what the others are compared with. */
static bool
check_batch(Selftest *test)
{
	HymtSchedulerStats before;
	HymtSchedulerStats after;
	HymtError	error;
	double		start = now();
	double		seconds;
	int			numbers = 0;

	hymt_scheduler_stats(test->engine.scheduler, &before);
	if (run_texts(test, test->engine.scheduler, HYMT_SELFTEST_TEXTS, 0, test->reference, &error) < 0)
		return fail_with(test, "texts in a batch", &error);
	seconds = now() - start;
	hymt_scheduler_stats(test->engine.scheduler, &after);
	for (int i = 0; i < HYMT_SELFTEST_TEXTS; i++)
		numbers += test->reference[i].done && test->reference[i].failure == HYMT_FAILURE_NONE;
	return check(test, numbers == HYMT_SELFTEST_TEXTS, "texts in a batch",
				 "%d of %d have finite logits; %.1f s, %.1f tokens/s of prompts and answers", numbers, HYMT_SELFTEST_TEXTS,
				 seconds, (double) (after.input_tokens - before.input_tokens + after.output_tokens - before.output_tokens) /
				 seconds);
}

static void
compare_instance(Selftest *test, const char *name, const HymtDeviceOptions *options, int together)
{
	Outcome		outcomes[HYMT_SELFTEST_TEXTS];
	Instance	instance;
	HymtError	error;
	char		label[96];
	double		start;
	int			count;
	int			same;

	snprintf(label, sizeof(label), "same bits %s", name);
	if (!open_instance(&instance, test, options, &error))
	{
		fail_with(test, label, &error);
		return;
	}
	start = now();
	count = run_texts(test, instance.scheduler, together, (double) test->seconds, outcomes, &error);
	if (count < 0)
		fail_with(test, label, &error);
	else
	{
		same = count_same(test, outcomes, count);
		check(test, same == count, label, "%d of %d texts%s, %.1f s", same, count,
			  count < HYMT_SELFTEST_TEXTS ? " (not all 50: --seconds)" : "", now() - start);
	}
	close_instance(&instance);
}

static void
compare_instances(Selftest *test)
{
	static const HymtIsa sets[] = {HYMT_ISA_SCALAR, HYMT_ISA_AVX2, HYMT_ISA_AVX512};
	const HymtDeviceInfo *info = test->engine.ops->info(test->engine.device);
	int			threads = info->threads;
	HymtDeviceOptions options = test->device_options;

	printf("precisions: this version has one, exact; compared are ways to compute it, with the batch, bit for bit\n");
	compare_instance(test, "alone, one text after the other", &options, 1);
	options.threads = threads == 1 ? 2 : 1;
	compare_instance(test, threads == 1 ? "with two threads" : "with one thread", &options, 8);
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
	{
		char		name[64];

		/* the device's name ends with its own */
		if (!hymt_isa_supported(sets[i]) || strstr(info->name, hymt_isa_name(sets[i])) != NULL)
			continue;
		options = test->device_options;
		options.isa = sets[i];
		/* few at a time where it is slow, so that time is looked at often enough */
		snprintf(name, sizeof(name), "with %s", hymt_isa_name(sets[i]));
		compare_instance(test, name, &options, sets[i] == HYMT_ISA_SCALAR ? 1 : 8);
	}
}

/* --- memory and speed --------------------------------------------------------------------------------------------- */

/* Before other instances are opened beside the engine's own. */
static void
check_memory(Selftest *test)
{
	const HymtDeviceInfo *info = test->engine.ops->info(test->engine.device);
	int64_t		anonymous = kilobytes_of("RssAnon") * 1024;

	check(test, anonymous < ANONYMOUS_MOST, "memory",
		  "%" PRId64 " MB of its own, %" PRId64 " MB of mapped files in memory, peak %" PRId64 " MB; weights %" PRIu64
		  " MB; keys and values of at most %" PRId64 " MB", anonymous / MEGABYTE, kilobytes_of("RssFile") / 1024,
		  kilobytes_of("VmHWM") / 1024, test->engine.model.stored_bytes / MEGABYTE,
		  (int64_t) info->page_count * info->page_bytes / MEGABYTE);
}

/* Tokens a second of `rows` answers at a time, without the steps that compute prompts. */
static double
decode_speed(Selftest *test, int rows, double seconds, HymtError *error)
{
	HymtScheduler *scheduler = test->engine.scheduler;
	HymtSequenceRequest request = {.max_new = 32, .repetition_penalty = 1.0f};
	HymtSequenceAnswer answer;
	HymtSchedulerStats before;
	HymtSchedulerStats after;
	uint64_t	output;
	double		start;
	bool		more;

	hymt_scheduler_stats(scheduler, &before);
	output = before.output_tokens;
	for (int i = 0; i < rows; i++)
	{
		request.id = (uint64_t) i;
		request.prompt = test->prompts[i].ids;
		request.prompt_count = (int32_t) test->prompts[i].count;
		if (!hymt_scheduler_submit(scheduler, &request, error))
			return -1;
	}
	/* once there are so many tokens, all prompts are computed */
	do
	{
		more = hymt_scheduler_run(scheduler, true);
		hymt_scheduler_stats(scheduler, &before);
	} while (more && before.output_tokens - output < (uint64_t) rows);
	start = now();
	while (hymt_scheduler_run(scheduler, true) && now() - start < seconds)
		;
	hymt_scheduler_stats(scheduler, &after);
	seconds = now() - start;
	for (int i = 0; i < rows; i++)
		hymt_scheduler_cancel(scheduler, (uint64_t) i);
	while (hymt_scheduler_run(scheduler, true))
		;
	while (hymt_scheduler_answer(scheduler, &answer))
		;
	return (double) (after.output_tokens - before.output_tokens) / seconds;
}

static void
report_speed(Selftest *test)
{
	static const int rows[] = {1, 16};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		HymtError	error;
		double		speed = decode_speed(test, rows[i], (double) test->seconds / 4, &error);

		if (speed < 0)
			fail_with(test, "speed", &error);
		else
			printf("speed: %.1f tokens/s of %d answer%s at a time\n", speed, rows[i], rows[i] == 1 ? "" : "s");
	}
	fflush(stdout);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static void
run_checks(Selftest *test)
{
	HymtError	error;

	check_tokenizer(test);
	if (!make_prompts(test, &error))
	{
		fail_with(test, "template", &error);
		return;
	}
	check_template(test);
	check_stop_ids(test);
	check_known_answers(test);
	check_samples(test);
	/* where a model computes no numbers, there is nothing to compare */
	if (!check_batch(test))
		return;
	check_memory(test);
	compare_instances(test);
	report_speed(test);
}

static bool
selftest(Selftest *test, const HymtOptions *options)
{
	HymtEngineOptions engine_options = {
		.model_directory = options->model,
		.family = options->family,
		.device = options->device,
		.trace = options->trace
	};
	HymtError	error;
	double		start = now();

	report_machine();
	if (hymt_engine_open(&test->engine, &engine_options, &error))
	{
		double		seconds = now() - start;

		report_model(&test->engine);
		check(test, true, "model opens", "in %.2f s", seconds);
		run_checks(test);
		for (int i = 0; i < HYMT_SELFTEST_TEXTS; i++)
			hymt_ids_free(&test->prompts[i]);
		hymt_engine_close(&test->engine);
	}
	else
	{
		printf("directory: %s\n", options->model);
		fail_with(test, "model opens", &error);
	}
	printf("%d checks passed, %d failed\n", test->passed, test->failures);
	printf("verdict: %s\n", test->failures == 0 ? "PASS" : "FAIL");
	return test->failures == 0;
}

int
hymt_cmd_selftest(int argc, char **argv)
{
	HymtOptions options;
	static Selftest test;		/* large, and there is one */
	const char *seconds = NULL;
	const HymtOwnOption own[] = {{"seconds", &seconds}, {NULL, NULL}};
	int			code;
	bool		passed;

	if (!hymt_options_parse(&options, argc, argv, usage, own, &code))
		return code;
	test.seconds = DEFAULT_SECONDS;
	if (seconds != NULL && !hymt_option_number("seconds", seconds, 1, 86400, &test.seconds))
	{
		hymt_options_close(&options);
		return 2;
	}
	test.device_options = options.device;
	passed = selftest(&test, &options);
	passed = hymt_options_close(&options) && passed;
	return passed ? 0 : 1;
}
