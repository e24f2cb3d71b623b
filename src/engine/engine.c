/*
 * engine.c: a loaded model that translates, put together from model, tokenizer, prompts, device and scheduler.
 *
 * Runs in the engine, in one thread. Owns all of its parts; knows texts and ids, but no files, frames or sockets.
 */
#include "engine.h"
#include "machine.h"
#include "model_parts.h"

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
	if (!hymt_tokenizer_open_model(&engine->tokenizer, engine->model.path, error))
		return false;
	/* An id without a row of the embedding could not be computed. */
	if (hymt_tokenizer_text_size(engine->tokenizer) > engine->model.config.vocab)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN,
						 "the tokenizer of \"%s\" has ids up to %d, but the model's vocab_size is %d",
						 engine->model.path, hymt_tokenizer_text_size(engine->tokenizer) - 1,
						 engine->model.config.vocab);
	return true;
}

static bool
open_prompts(HymtEngine *engine, HymtError *error)
{
	return hymt_prompts_open(&engine->prompts, &engine->model, engine->tokenizer, error) ||
		hymt_fail(error, error->failure, "%s: %s", engine->model.path, error->message);
}

/*
 * A GGUF file names one or two of the ids that a generation_config.json lists, and some name a wrong one (a Hy-MT2 file
 * ends at "$"): the control tokens that end answers in the known vocabularies are added.
 */
static void
add_known_ends(HymtEngine *engine)
{
	static const char *const contents[] = {
		"<|eos|>", "<|extra_5|>", "<|endoftext|>",
		"<｜hy_place▁holder▁no▁2｜>", "<｜hy_end▁of▁sentence｜>",
		"<｜hy_EOT｜>"
	};

	for (size_t i = 0; i < sizeof(contents) / sizeof(contents[0]); i++)
	{
		int32_t		id = hymt_tokenizer_added_id(engine->tokenizer, contents[i]);
		bool		known = id < 0 || !hymt_tokenizer_is_special(engine->tokenizer, id);

		for (int s = 0; s < engine->stop_count; s++)
			known = known || engine->stop_ids[s] == id;
		if (!known && engine->stop_count < HYMT_MAX_STOP_IDS)
			engine->stop_ids[engine->stop_count++] = id;
	}
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
	if (engine->model.gguf != NULL)
		add_known_ends(engine);
	if (engine->stop_count == 0)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN,
						 "none of the stop ids (eos_token_id) of \"%s\" is a control token of its tokenizer",
						 engine->model.path);
	return true;
}

static bool
open_device(HymtEngine *engine, HymtError *error)
{
	/* The embedding may have more rows than there are tokens; those must never be chosen. */
	engine->budget.device.token_limit = hymt_tokenizer_size(engine->tokenizer);
	if (engine->budget.device.token_limit > engine->model.config.vocab)
		engine->budget.device.token_limit = engine->model.config.vocab;
	engine->ops = &hymt_device_cpu;
	engine->device = hymt_budget_open_device(&engine->budget, engine->ops, &engine->model, error);
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

/* --- adapters --------------------------------------------------------------------------------------------------- */

/* Take one more adapter into the engine's fingerprint. One that cannot be used fails its requests, not the engine. */
static void
note_adapter(HymtEngine *engine, const char *use, const char *directory)
{
	HymtNotedAdapter *noted = &engine->noted[engine->noted_count++];
	HymtAdapter adapter;
	HymtError	error;

	noted->directory = directory;
	if (hymt_adapter_open(&adapter, &engine->model, directory, &error))
	{
		strcpy(noted->fingerprint, adapter.fingerprint);
		hymt_adapter_close(&adapter);
	}
	else
		fprintf(stderr, "hymt-engine: the adapter for %s cannot be used, translations with it will fail: %s\n", use,
				error.message);
	hymt_fingerprint_combine(engine->fingerprint, use, noted->fingerprint);
}

/* The one for all is there because somebody wants to see what it does: without it there is nothing to do. */
static bool
check_only_adapter(const HymtEngine *engine, HymtError *error)
{
	HymtAdapter adapter;

	if (engine->adapter == NULL)
		return true;
	if (!hymt_adapter_open(&adapter, &engine->model, engine->adapter, error))
		return false;
	hymt_adapter_close(&adapter);
	return true;
}

static void
note_assigned(HymtEngine *engine, const HymtAssignments *assignments)
{
	for (int i = 0; i < assignments->count; i++)
	{
		const HymtAssignment *assignment = &assignments->list[i];
		char		use[HYMT_ADAPTER_KEY_MAX];

		hymt_adapter_key_text(&assignment->key, use);
		note_adapter(engine, use, assignment->directory);
	}
}

/* Which adapters there are. They are loaded at first use; here only their files are checked, to tell in time. */
static bool
read_adapters(HymtEngine *engine, const HymtEngineOptions *options, HymtError *error)
{
	int			count;

	strcpy(engine->fingerprint, engine->model.fingerprint);
	if (options->adapters != NULL && !hymt_assignments_add_list(&engine->assigned, options->adapters, error))
		return false;
	count = engine->assigned.count + engine->model.adapters.count + 1;
	engine->noted = calloc((size_t) count, sizeof(*engine->noted));
	if (engine->noted == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	engine->adapter = options->adapter;
	if (!check_only_adapter(engine, error))
		return false;
	if (engine->adapter != NULL)
		note_adapter(engine, "all languages", engine->adapter);
	note_assigned(engine, &engine->assigned);
	note_assigned(engine, &engine->model.adapters);
	return true;
}

/* The directory of the adapter for a pair of languages, or NULL. What was set goes before what the model brings. */
static const char *
adapter_for(const HymtEngine *engine, const HymtLanguage *source, const HymtLanguage *target)
{
	const char *directory = engine->adapter;

	if (directory == NULL)
		directory = hymt_assignments_find(&engine->assigned, source, target);
	if (directory == NULL)
		directory = hymt_assignments_find(&engine->model.adapters, source, target);
	return directory;
}

/* The one that a caller names, else that of the languages. */
static bool
choose_adapter(const HymtEngine *engine, const char *name, const HymtLanguage *source, const HymtLanguage *target,
			   const char **directory, HymtError *error)
{
	if (name == NULL || name[0] == '\0')
	{
		*directory = adapter_for(engine, source, target);
		return true;
	}
	*directory = hymt_assignments_find_name(&engine->assigned, name);
	return *directory != NULL ||
		hymt_fail(error, HYMT_FAILURE_ADAPTER, "there is no adapter with the name \"%s\"", name);
}

/* Whether an adapter is what it was when it went into the engine's fingerprint, in every place where it did. */
static bool
is_as_noted(const HymtEngine *engine, const HymtUsedAdapter *used)
{
	for (int i = 0; i < engine->noted_count; i++)
		if (strcmp(engine->noted[i].directory, used->directory) == 0 &&
			strcmp(engine->noted[i].fingerprint, used->fingerprint) != 0)
			return false;
	return true;
}

/* See HymtTranslation.fingerprint. */
static void
tell_fingerprint(const HymtEngine *engine, char fingerprint[65], int32_t adapter)
{
	HymtUsedAdapter used;

	fingerprint[0] = '\0';
	if (adapter == 0)
		return;
	used = hymt_adapters_used(engine->loaded, adapter);
	if (is_as_noted(engine, &used))
		return;
	strcpy(fingerprint, engine->fingerprint);
	hymt_fingerprint_combine(fingerprint, "used", used.fingerprint);
}

/* --- opening and closing ---------------------------------------------------------------------------------------- */

typedef struct Opening
{
	HymtEngine *engine;
	const HymtEngineOptions *options;
} Opening;

/* Everything that can be told before the weights are read, which may take minutes; for HymtModelOptions.check. */
static bool
check_files(void *context, const HymtModel *model, HymtError *error)
{
	const Opening *opening = context;
	HymtEngine *engine = opening->engine;

	return hymt_budget_decide(&engine->budget, model, error) &&
		open_tokenizer(engine, error) &&
		open_prompts(engine, error) &&
		choose_stop_ids(engine, error) &&
		check_room(engine, opening->options, error) &&
		read_adapters(engine, opening->options, error);
}

static bool
open_parts(HymtEngine *engine, const HymtEngineOptions *options, HymtError *error)
{
	report(options, 95, "preparing device");
	if (!open_device(engine, error))
		return false;
	engine->scheduler = hymt_scheduler_open(engine->ops, engine->device, engine->model.config.vocab, options->trace,
											error);
	if (engine->scheduler == NULL)
		return false;
	if (engine->budget.short_of_memory)
		hymt_scheduler_note_shortage(engine->scheduler);
	engine->loaded = hymt_adapters_open(engine->ops, engine->device, &engine->model, engine->scheduler,
										options->max_adapters > 0 ? options->max_adapters : HYMT_DEFAULT_ADAPTERS,
										error);
	if (engine->loaded == NULL)
		return false;
	report(options, 100, "ready");
	return true;
}

bool
hymt_engine_open(HymtEngine *engine, const HymtEngineOptions *options, HymtError *error)
{
	Opening		opening = {engine, options};
	HymtModelOptions model_options = {
		.family = options->family,
		.progress = report_model,
		.progress_context = (void *) options,
		.check = check_files,
		.check_context = &opening
	};

	memset(engine, 0, sizeof(*engine));
	engine->budget.memory = options->memory;
	engine->budget.device = options->device;
	if (!hymt_model_open(&engine->model, options->model_directory, &model_options, error) ||
		!open_parts(engine, options, error))
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
	hymt_adapters_close(engine->loaded);
	hymt_assignments_free(&engine->assigned);
	free(engine->noted);
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
hymt_engine_submit(HymtEngine *engine, const HymtTranslationRequest *wanted, HymtError *error)
{
	const HymtLanguage *source = find_language(engine, wanted->source_lang, error);
	const HymtLanguage *target = source != NULL ? find_language(engine, wanted->target_lang, error) : NULL;
	HymtPromptRequest turn = {.source = source, .target = target, .text = wanted->text, .context = wanted->context};
	const char *directory = NULL;
	HymtIds		prompt = {0};
	size_t		text_tokens = 0;
	HymtSequenceRequest request = {0};
	bool		done;

	if (source == NULL || target == NULL)
		return false;
	done = choose_adapter(engine, wanted->adapter, source, target, &directory, error) &&
		hymt_prompt_encode(&engine->prompts, engine->tokenizer, &turn, (size_t) context_of(engine), &prompt,
						   &text_tokens, error) &&
		cap_answer(engine, target, prompt.count, text_tokens, wanted->max_new, &request.max_new, error);
	if (done)
	{
		request.id = wanted->id;
		request.prompt = prompt.ids;
		request.prompt_count = (int32_t) prompt.count;
		request.repetition_penalty = engine->model.config.repetition_penalty;
		request.stop_ids = engine->stop_ids;
		request.stop_count = engine->stop_count;
		request.sampling = wanted->sampling;
		request.stop_at_loop = true;
		request.source_repeats = hymt_repeats_of_text(wanted->text.data, wanted->text.length);
		request.token_taken = wanted->stream != NULL ? hymt_stream_add : NULL;
		request.token_context = wanted->stream;
		done = hymt_adapters_submit(engine->loaded, &request, directory, error);
	}
	hymt_ids_free(&prompt);
	return done;
}

bool
hymt_engine_answer(HymtEngine *engine, HymtTranslation *translation)
{
	HymtSequenceAnswer answer;
	const char *message;

	if (!hymt_adapters_answer(engine->loaded, &answer, &message))
		return false;
	memset(translation, 0, sizeof(*translation));
	translation->message = message;
	tell_fingerprint(engine, translation->fingerprint, answer.adapter);
	translation->id = answer.id;
	translation->failure = answer.failure;
	translation->finish = answer.finish;
	translation->input_tokens = answer.prompt_count;
	translation->output_tokens = answer.token_count;
	if (answer.failure != HYMT_FAILURE_NONE)
		return true;
	if (!hymt_tokenizer_decode_answer(engine->tokenizer, answer.tokens, (size_t) answer.token_count, &translation->text,
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
