/*
 * engine.h: a loaded model that translates: model, tokenizer, prompts, device and scheduler in one.
 *
 * Used by `hymt-engine translate` and `hymt-engine serve`. One thread.
 */
#ifndef HYMT_ENGINE_H
#define HYMT_ENGINE_H

#include "budget.h"
#include "device.h"
#include "model.h"
#include "prompts.h"
#include "scheduler.h"
#include "tokenizer.h"

typedef struct HymtEngineOptions
{
	const char *model_directory;
	HymtFamily	family;			/* UNKNOWN: the model's own */
	HymtDeviceOptions device;
	int64_t		memory;			/* bytes that it may use; 0: what the machine has */
	FILE	   *trace;
	bool		beside;			/* another engine serves: fail with NO_MEMORY unless there is room for both */
	int64_t		others_bytes;	/* of weights that the other one has mapped and this one does not share */
	HymtProgress progress;
	void	   *progress_context;
} HymtEngineOptions;

typedef struct HymtEngine
{
	HymtModel	model;
	HymtBudget	budget;
	HymtTokenizer *tokenizer;
	HymtChatTemplate chat;
	const HymtDeviceOps *ops;
	HymtDevice *device;
	HymtScheduler *scheduler;
	int			stop_ids[HYMT_MAX_STOP_IDS];	/* those of the model that are control tokens */
	int			stop_count;
} HymtEngine;

extern bool hymt_engine_open(HymtEngine *engine, const HymtEngineOptions *options, HymtError *error);
extern void hymt_engine_close(HymtEngine *engine);

/*
 * The language of a code in any spelling that hymt_language_find() takes, when the model knows it; else NULL with
 * LANGUAGE and a message that lists the known ones.
 */
extern const HymtLanguage *hymt_engine_language(const HymtEngine *engine, const char *code, HymtError *error);

/*
 * Start a translation. `id` comes back in the answer; the codes must be canonical. Fails with LANGUAGE, TOO_LONG (never
 * a cut), BAD_TEXT, NO_MEMORY, MODEL_UNSUPPORTED (no prompt for its family), INTERNAL (a pattern of the tokenizer gave
 * up on the text).
 * sampling: NULL for the likeliest token each time.
 * max_new 0: max(64, ratio of the target language × tokens of the text), at most what the context leaves, which must be
 * at least 16.
 */
extern bool hymt_engine_submit(HymtEngine *engine, uint64_t id, const char *source_lang, const char *target_lang,
							   const char *text, size_t length, int max_new, const HymtSampling *sampling,
							   HymtError *error);

typedef struct HymtTranslation
{
	uint64_t	id;
	HymtFailure failure;		/* NONE, UNFINISHED (then text holds what there is), NUMERIC, NO_MEMORY */
	HymtFinish	finish;
	char	   *text;			/* UTF-8, malloc'ed: the caller frees it; NULL on failures without text */
	size_t		length;
	int32_t		input_tokens;
	int32_t		output_tokens;
} HymtTranslation;

/* Take a finished translation; false when there is none. Run steps with hymt_scheduler_run(engine->scheduler, …). */
extern bool hymt_engine_answer(HymtEngine *engine, HymtTranslation *translation);

#endif							/* HYMT_ENGINE_H */
