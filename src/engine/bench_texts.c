/*
 * bench_texts.c: hymt-engine bench --texts: how fast a model translates given texts.
 *
 * Runs in the engine program. Does with each text what the engine does with it for the database, from its encoding to the
 * decoded answer, with nothing in between: all texts are there at once, and answers are thrown away. So it is the
 * measure of what is lost on the way through the database.
 */
#include "bench_texts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "engine.h"
#include "files.h"

/* Texts submitted and not yet answered: more than any step computes. */
#define WINDOW 1024
#define FILE_MAX ((size_t) 256 * 1024 * 1024)

typedef struct Run
{
	HymtEngine	engine;
	const HymtBenchTexts *texts;
	const HymtLanguage *from;
	const HymtLanguage *to;
	HymtFileBytes file;
	size_t		at;				/* of the file, not submitted yet */
	uint64_t	submitted;
	uint64_t	answered;
	uint64_t	unfinished;		/* of them, those that did not end by themselves */
} Run;

double
hymt_bench_clock(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double) time.tv_sec + (double) time.tv_nsec * 1e-9;
}

/* That all threads have computed, in seconds. */
static double
processor_time(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		(double) (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* The next line that is not empty; false at the end. */
static bool
next_text(Run *run, HymtText *text)
{
	while (run->at < run->file.length)
	{
		const char *line = run->file.data + run->at;
		const char *end = memchr(line, '\n', run->file.length - run->at);
		size_t		length = end != NULL ? (size_t) (end - line) : run->file.length - run->at;

		run->at += length + 1;
		if (length > 0)
		{
			*text = (HymtText) {line, length};
			return true;
		}
	}
	return false;
}

static bool
submit(Run *run, HymtText text, HymtError *error)
{
	HymtTranslationRequest request = {
		.id = run->submitted + 1,
		.source_lang = run->from->code,
		.target_lang = run->to->code,
		.text = text,
		.max_new = (int) run->texts->max_new
	};

	if (!hymt_engine_submit(&run->engine, &request, error))
		return false;
	run->submitted++;
	return true;
}

static bool
take_answers(Run *run, HymtError *error)
{
	HymtTranslation translation;

	while (hymt_engine_answer(&run->engine, &translation))
	{
		free(translation.text);
		run->answered++;
		if (translation.failure == HYMT_FAILURE_UNFINISHED)
			run->unfinished++;
		else if (translation.failure != HYMT_FAILURE_NONE)
			return hymt_fail(error, translation.failure, "text %llu could not be translated",
							 (unsigned long long) translation.id);
	}
	return true;
}

/* Computes what was submitted, and with `more` also the rest of the file. */
static bool
compute(Run *run, bool more, HymtError *error)
{
	do
	{
		HymtText	text;

		while (more && run->submitted - run->answered < WINDOW)
		{
			more = next_text(run, &text);
			if (more && !submit(run, text, error))
				return false;
		}
		hymt_adapters_run(run->engine.loaded, true);
		if (!take_answers(run, error))
			return false;
	} while (more || run->answered < run->submitted);
	return true;
}

/* What the first one finds elsewhere would be counted as computing: weights, and the beginning of all prompts. */
static bool
warm_up(Run *run, HymtError *error)
{
	HymtText	text = {run->from->code, strlen(run->from->code)};

	if (!submit(run, text, error) || !compute(run, false, error))
		return false;
	run->submitted = 0;
	run->answered = 0;
	run->unfinished = 0;
	return true;
}

static bool
measure(Run *run, HymtError *error)
{
	const HymtDeviceInfo *info = run->engine.ops->info(run->engine.device);
	HymtSchedulerStats before;
	HymtSchedulerStats after;
	double		seconds;
	double		computed;

	if (!warm_up(run, error))
		return false;
	hymt_adapters_stats(run->engine.loaded, &before);
	computed = processor_time();
	seconds = hymt_bench_clock();
	if (!compute(run, true, error))
		return false;
	seconds = hymt_bench_clock() - seconds;
	computed = processor_time() - computed;
	if (run->answered == 0)
		return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "\"%s\" has no texts", run->texts->file);
	hymt_adapters_stats(run->engine.loaded, &after);
	printf("model %s, %llu parameters, device %s, precision %s, threads %d\n", run->engine.model.name,
		   (unsigned long long) run->engine.model.parameters, info->name, info->precision, info->threads);
	printf("%llu texts, %llu tokens of prompts, %llu of answers, %llu answers did not end by themselves, %.3f s, "
		   "%.3f s of processors\n\n",
		   (unsigned long long) run->answered, (unsigned long long) (after.input_tokens - before.input_tokens),
		   (unsigned long long) (after.output_tokens - before.output_tokens), (unsigned long long) run->unfinished, seconds,
		   computed);
	printf("%12s %18s %18s %10s %10s\n", "texts/s", "prompt tokens/s", "answer tokens/s", "steps", "rows/step");
	printf("%12.2f %18.1f %18.1f %10llu %10.1f\n", (double) run->answered / seconds,
		   (double) (after.input_tokens - before.input_tokens) / seconds,
		   (double) (after.output_tokens - before.output_tokens) / seconds,
		   (unsigned long long) (after.steps - before.steps),
		   (double) (after.rows - before.rows) / (double) (after.steps - before.steps));
	return true;
}

static bool
read_texts(Run *run, HymtError *error)
{
	const char *name = hymt_path_last(run->texts->file);
	char	   *directory = strndup(run->texts->file, (size_t) (name - run->texts->file));
	bool		done;

	if (directory == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	done = hymt_file_read(&run->file, directory[0] == '\0' ? "." : directory, name, FILE_MAX, false, error);
	free(directory);
	return done;
}

bool
hymt_bench_texts(const HymtBenchTexts *texts, const HymtOptions *options)
{
	static Run	run;			/* large, and there is one */
	HymtEngineOptions engine_options = {
		.model_directory = options->model,
		.family = options->family,
		.device = options->device,
		.memory = options->memory,
		.trace = options->trace
	};
	HymtError	error;
	bool		done = false;

	run.texts = texts;
	if (read_texts(&run, &error) && hymt_engine_open(&run.engine, &engine_options, &error))
	{
		run.from = hymt_engine_language(&run.engine, texts->from, &error);
		if (run.from != NULL)
			run.to = hymt_engine_language(&run.engine, texts->to, &error);
		done = run.to != NULL && measure(&run, &error);
		hymt_engine_close(&run.engine);
	}
	hymt_file_free(&run.file);
	if (!done)
		hymt_complain("%s", error.message);
	return done;
}
