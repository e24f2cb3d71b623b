/*
 * engine.c: a loaded model that translates, put together from model, tokenizer, prompts, device and scheduler.
 *
 * Runs in the engine, in one thread. Owns all of its parts; knows texts and ids, but no files, frames or sockets.
 */
#include "engine.h"
#include "machine.h"

#include <stdlib.h>
#include <string.h>

/* An answer shorter than this is of no use: a text that leaves less room in the context is too long. */
#define MIN_NEW_TOKENS 16
/* Cap on the answer to a short text, whatever the ratio of its language. */
#define SHORT_ANSWER_TOKENS 64
/* One part in so many of the available memory is for KV pages and for everybody else. */
#define ROOM_RESERVE 8

static void
report(const HymtEngineOptions *options, int percent, const char *phase)
{
	if (options->progress != NULL)
		options->progress(options->progress_context, percent, phase);
}

/* The model's own report, 0 to 100, is the first nine tenths of ours. */
static void
report_model(void *context, int percent, const char *phase)
{
	report(context, percent * 9 / 10, phase);
}

static bool
open_tokenizer(HymtEngine *engine, HymtError *error)
{
	if (!hymt_tokenizer_open_model(&engine->tokenizer, engine->model.directory, error))
		return false;
	/* An id without a row of the embedding could not be computed. */
	if (hymt_tokenizer_size(engine->tokenizer) > engine->model.config.vocab)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN,
						 "%s/tokenizer.json has ids up to %d, but the model's vocab_size is %d",
						 engine->model.directory, hymt_tokenizer_size(engine->tokenizer) - 1,
						 engine->model.config.vocab);
	return true;
}

static bool
find_template(HymtEngine *engine, HymtError *error)
{
	return hymt_chat_template_find(&engine->chat, engine->tokenizer, error) ||
		hymt_fail(error, error->failure, "%s/tokenizer.json: %s", engine->model.directory, error->message);
}

/*
 * Published configurations name stop ids that are ordinary text in their own vocabulary (a GGUF of Hy-MT2 ends at "$"):
 * only control tokens can end an answer.
 */
static bool
choose_stop_ids(HymtEngine *engine, HymtError *error)
{
	const HymtConfig *config = &engine->model.config;

	engine->stop_count = 0;
	for (int i = 0; i < config->stop_count; i++)
	{
		if (hymt_tokenizer_is_special(engine->tokenizer, config->stop_ids[i]))
			engine->stop_ids[engine->stop_count++] = config->stop_ids[i];
		else
			fprintf(stderr, "hymt-engine: stop id %d of model \"%s\" is no control token of its tokenizer: ignored\n",
					config->stop_ids[i], engine->model.name);
	}
	if (engine->stop_count == 0)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN,
						 "none of the stop ids (eos_token_id) of \"%s\" is a control token of its tokenizer",
						 engine->model.directory);
	return true;
}

static bool
open_device(HymtEngine *engine, const HymtEngineOptions *options, HymtError *error)
{
	HymtDeviceOptions device = options->device;

	/* The embedding may have more rows than there are tokens; those must never be chosen. */
	device.token_limit = hymt_tokenizer_size(engine->tokenizer);
	engine->ops = &hymt_device_cpu;
	engine->device = engine->ops->open(&engine->model, &device, error);
	return engine->device != NULL;
}

/*
 * Beside another engine a model may only be loaded if the weights of both fit into memory: mapped files that do not are
 * read from disk again and again, and then the other one, too, comes to a stand. What the other has mapped counts as
 * available here, being cached files. This comes after everything that shows whether the files are in order, and before
 * weights are read.
 */
static bool
check_room(const HymtEngine *engine, const HymtEngineOptions *options, HymtError *error)
{
	int64_t		available = hymt_machine_memory();
	int64_t		needed = (int64_t) engine->model.stored_bytes + options->others_bytes;

	if (!options->beside || needed <= available - available / ROOM_RESERVE)
		return true;
	return hymt_fail(error, HYMT_FAILURE_NO_MEMORY,
					 "no memory to load \"%s\" beside the engine that serves: both need %lld MB, %lld MB are available",
					 engine->model.name, (long long) (needed >> 20), (long long) (available >> 20));
}

static bool
open_parts(HymtEngine *engine, const HymtEngineOptions *options, HymtError *error)
{
	if (engine->model.family == HYMT_FAMILY_UNKNOWN)
		return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED,
						 "nothing in \"%s\" tells which prompts the model was trained with; "
						 "name the family (%s, %s or %s)", engine->model.directory,
						 hymt_family_name(HYMT_FAMILY_HUNYUAN_MT), hymt_family_name(HYMT_FAMILY_HY_MT15),
						 hymt_family_name(HYMT_FAMILY_HY_MT2));
	report(options, 90, "reading tokenizer");
	if (!open_tokenizer(engine, error) ||
		!find_template(engine, error) ||
		!choose_stop_ids(engine, error) ||
		!check_room(engine, options, error))
		return false;
	report(options, 95, "preparing device");
	if (!open_device(engine, options, error))
		return false;
	engine->scheduler = hymt_scheduler_open(engine->ops, engine->device, engine->model.config.vocab, options->trace,
											error);
	if (engine->scheduler == NULL)
		return false;
	report(options, 100, "ready");
	return true;
}

bool
hymt_engine_open(HymtEngine *engine, const HymtEngineOptions *options, HymtError *error)
{
	HymtModelOptions model_options = {
		.family = options->family,
		.progress = report_model,
		.progress_context = (void *) options
	};

	memset(engine, 0, sizeof(*engine));
	if (!hymt_model_open(&engine->model, options->model_directory, &model_options, error))
		return false;
	if (!open_parts(engine, options, error))
	{
		hymt_engine_close(engine);
		return false;
	}
	return true;
}

void
hymt_engine_close(HymtEngine *engine)
{
	hymt_scheduler_close(engine->scheduler);
	if (engine->device != NULL)
		engine->ops->close(engine->device);
	if (engine->tokenizer != NULL)
		hymt_tokenizer_close(engine->tokenizer);
	hymt_model_close(&engine->model);
	memset(engine, 0, sizeof(*engine));
}

/* --- translating ------------------------------------------------------------------------------------------------ */

/* Whether `code` is a word of a list separated by single spaces. */
static bool
list_has(const char *list, const char *code)
{
	size_t		length = strlen(code);

	for (const char *word = list; *word != '\0'; word += strcspn(word, " "), word += strspn(word, " "))
		if (strcspn(word, " ") == length && memcmp(word, code, length) == 0)
			return true;
	return false;
}

static bool
fail_language(const HymtEngine *engine, const char *code, HymtError *error)
{
	char		list[384] = "";

	if (engine->model.languages != NULL)
		return hymt_fail(error, HYMT_FAILURE_LANGUAGE, "model \"%.64s\" does not know language \"%.15s\"; it knows: %s",
						 engine->model.name, code, engine->model.languages);
	for (int i = 0; i < hymt_language_count; i++)
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", i > 0 ? " " : "", hymt_languages[i].code);
	return hymt_fail(error, HYMT_FAILURE_LANGUAGE, "unknown language \"%.15s\"; known: %s", code, list);
}

const HymtLanguage *
hymt_engine_language(const HymtEngine *engine, const char *code, HymtError *error)
{
	const HymtLanguage *language = hymt_language_find(code, strlen(code));

	if (language == NULL || (engine->model.languages != NULL && !list_has(engine->model.languages, language->code)))
	{
		fail_language(engine, code, error);
		return NULL;
	}
	return language;
}

/* As above, but only by the canonical code: spellings are the affair of those who talk to people. */
static const HymtLanguage *
find_language(const HymtEngine *engine, const char *code, HymtError *error)
{
	const HymtLanguage *language = hymt_engine_language(engine, code, error);

	if (language != NULL && strcmp(language->code, code) != 0)
	{
		fail_language(engine, code, error);
		return NULL;
	}
	return language;
}

static int32_t
context_of(const HymtEngine *engine)
{
	return engine->ops->info(engine->device)->max_context;
}

/* How many tokens the answer may have: `max_new` or, when 0, the rule of engine.h; at most what the context leaves. */
static bool
cap_answer(const HymtEngine *engine, const HymtLanguage *target, size_t prompt_tokens, size_t text_tokens, int max_new,
		   int32_t *cap, HymtError *error)
{
	int64_t		context = context_of(engine);
	int64_t		left = context - (int64_t) prompt_tokens;
	int64_t		wanted = max_new;

	if (left < MIN_NEW_TOKENS)
		return hymt_fail(error, HYMT_FAILURE_TOO_LONG,
						 "the text makes a prompt of %zu tokens, which leaves no room for an answer in the context of "
						 "%lld tokens", prompt_tokens, (long long) context);
	if (wanted == 0)
	{
		wanted = (int64_t) text_tokens * target->answer_ratio;
		if (wanted < SHORT_ANSWER_TOKENS)
			wanted = SHORT_ANSWER_TOKENS;
	}
	*cap = (int32_t) (wanted < left ? wanted : left);
	return true;
}

bool
hymt_engine_submit(HymtEngine *engine, uint64_t id, const char *source_lang, const char *target_lang, const char *text,
				   size_t length, int max_new, HymtError *error)
{
	const HymtLanguage *source = find_language(engine, source_lang, error);
	const HymtLanguage *target = source != NULL ? find_language(engine, target_lang, error) : NULL;
	HymtIds		prompt = {0};
	size_t		text_tokens = 0;
	HymtSequenceRequest request = {0};
	bool		done;

	if (source == NULL || target == NULL)
		return false;
	done = hymt_prompt_encode(engine->model.family, &engine->chat, engine->tokenizer, source, target, text, length,
							  (size_t) context_of(engine), &prompt, &text_tokens, error) &&
		cap_answer(engine, target, prompt.count, text_tokens, max_new, &request.max_new, error);
	if (done)
	{
		request.id = id;
		request.prompt = prompt.ids;
		request.prompt_count = (int32_t) prompt.count;
		request.repetition_penalty = engine->model.config.repetition_penalty;
		request.stop_ids = engine->stop_ids;
		request.stop_count = engine->stop_count;
		done = hymt_scheduler_submit(engine->scheduler, &request, error);
	}
	hymt_ids_free(&prompt);
	return done;
}

bool
hymt_engine_answer(HymtEngine *engine, HymtTranslation *translation)
{
	HymtSequenceAnswer answer;

	if (!hymt_scheduler_answer(engine->scheduler, &answer))
		return false;
	memset(translation, 0, sizeof(*translation));
	translation->id = answer.id;
	translation->failure = answer.failure;
	translation->finish = answer.finish;
	translation->input_tokens = answer.prompt_count;
	translation->output_tokens = answer.token_count;
	if (answer.failure != HYMT_FAILURE_NONE)
		return true;
	if (!hymt_tokenizer_decode(engine->tokenizer, answer.tokens, (size_t) answer.token_count, &translation->text,
							   &translation->length))
	{
		translation->text = NULL;
		translation->length = 0;
		translation->failure = HYMT_FAILURE_NO_MEMORY;
	}
	else if (answer.finish != HYMT_FINISH_STOP)
		translation->failure = HYMT_FAILURE_UNFINISHED;
	return true;
}
