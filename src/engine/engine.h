/*
 * engine.h: a loaded model that translates: model, tokenizer, prompts, device and scheduler in one.
 *
 * Used by `hymt-engine translate` and `hymt-engine serve`. One thread.
 */
#ifndef HYMT_ENGINE_H
#define HYMT_ENGINE_H

#include "adapters.h"
#include "budget.h"
#include "device.h"
#include "model.h"
#include "prompts.h"
#include "scheduler.h"
#include "stream.h"
#include "tokenizer.h"

typedef struct HymtEngineOptions
{
	const char *model_directory;
	HymtFamily	family;			/* UNKNOWN: the model's own */
	HymtDeviceOptions device;
	int64_t		memory;			/* bytes that it may use; 0: what the machine has */
	FILE	   *trace;
	const char *adapters;		/* list of adapter_list.h, which goes before that of hymt.json; NULL: none */
	const char *adapter;		/* directory of the one for all languages; NULL: as those lists say */
	int			max_adapters;	/* loaded at a time; 0: HYMT_DEFAULT_ADAPTERS */
	bool		beside;			/* another engine serves: fail with NO_MEMORY unless there is room for both */
	int64_t		others_bytes;	/* of weights that the other one has mapped and this one does not share */
	HymtProgress progress;
	void	   *progress_context;
} HymtEngineOptions;

/* An adapter as it was when the engine was opened. */
typedef struct HymtNotedAdapter
{
	const char *directory;
	char		fingerprint[65];	/* "": it could not be used */
} HymtNotedAdapter;

typedef struct HymtEngine
{
	HymtModel	model;
	HymtBudget	budget;
	HymtTokenizer *tokenizer;
	HymtPrompts prompts;
	const HymtDeviceOps *ops;
	HymtDevice *device;
	HymtScheduler *scheduler;
	HymtAdapters *loaded;		/* adapters; takes requests in the scheduler's place */
	HymtAssignments assigned;	/* by options.adapters */
	const char *adapter;		/* options.adapter */
	char		fingerprint[65];	/* of the model with its adapters as they were when it was opened */
	HymtNotedAdapter *noted;	/* those that went into it */
	int			noted_count;
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

/* A text to be translated. Everything in it is the caller's, and apart from the stream needed only during the call. */
typedef struct HymtTranslationRequest
{
	uint64_t	id;				/* comes back in the answer */
	const char *source_lang;	/* canonical codes */
	const char *target_lang;
	HymtText	text;
	HymtText	context;		/* not translated; data NULL: none */
	int			max_new;		/* 0: max(64, ratio of the target language × tokens of the text) */
	HymtSampling sampling;		/* zeroed: the likeliest token each time */
	const char *adapter;		/* name of one in options.adapters; NULL or empty: that of the languages */
	HymtStream *stream;			/* gets the answer as it comes, until it was taken or cancelled; NULL: not wanted */
} HymtTranslationRequest;

/*
 * Start a translation. Fails with LANGUAGE, TOO_LONG (never a cut), BAD_TEXT, NO_MEMORY, UNSUPPORTED (the model has no
 * prompt with a context), ADAPTER (that of the languages cannot be used), INTERNAL (a pattern of the tokenizer gave up on
 * the text). The answer has at most the tokens that the context leaves, which must be at least 16.
 */
extern bool hymt_engine_submit(HymtEngine *engine, const HymtTranslationRequest *wanted, HymtError *error);

typedef struct HymtTranslation
{
	uint64_t	id;
	HymtFailure failure;		/* NONE, UNFINISHED (then text holds what there is), NUMERIC, NO_MEMORY */
	HymtFinish	finish;
	char	   *text;			/* UTF-8, malloc'ed: the caller frees it; NULL on failures without text */
	size_t		length;
	int32_t		input_tokens;
	int32_t		output_tokens;
	const char *message;		/* on a failure that only words can tell, else NULL; valid until the next answer */
	/*
	 * What computed it, when that is not what engine->fingerprint stands for, because the adapter's files have changed
	 * since: empty otherwise. Stored translations belong to this fingerprint, so that no other is ever taken for them.
	 */
	char		fingerprint[65];
} HymtTranslation;

/* Take a finished translation; false when there is none. Run steps with hymt_adapters_run(engine->loaded, …). */
extern bool hymt_engine_answer(HymtEngine *engine, HymtTranslation *translation);

#endif							/* HYMT_ENGINE_H */
