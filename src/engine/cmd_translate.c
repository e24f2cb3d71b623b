/*
 * cmd_translate.c: hymt-engine translate: lines in, lines out.
 *
 * Runs in the engine program, without a database. All lines are one continuous batch.
 */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "cmd.h"
#include "engine.h"
#include "lines.h"

/* Lines in the batch at a time: enough to keep any device full, little enough to bound the memory. */
#define WINDOW 1024

static const char usage[] =
"hymt-engine translate --model DIR --from CODE --to CODE [OPTIONS]\n"
"\n"
"Translates each line of the standard input and writes one line for it, in the same order. Lines that are empty or\n"
"blank come back as they are. A carriage return at the end of a line stays there. A line break inside an answer\n"
"becomes a space. A line that cannot be translated gives an empty line, a message with its number on the standard\n"
"error, and exit code 1 at the end.\n"
"\n"
"  --from CODE           language of the lines: en, zh, zh-Hant, de ...\n"
"  --to CODE             language wanted\n"
"  --context TEXT        what the lines are about; not translated\n"
"  --adapter DIR         LoRA adapter to translate with (default: as --adapters and the model's hymt.json say)\n"
"  --adapters LIST       directories of adapters for languages: \"de=/path, zh>ja=/path\"\n";

typedef struct Translate
{
	HymtEngine	engine;
	const HymtLanguage *source;
	const HymtLanguage *target;
	HymtText	about;			/* --context */
	bool		returns[WINDOW];	/* line n ends with a carriage return: n % WINDOW */
	bool		failed;
} Translate;

/* Blanks of any script, and control characters, of which a line without anything else has nothing to translate. */
static bool
is_blank_character(utf8proc_int32_t character)
{
	switch (utf8proc_category(character))
	{
		case UTF8PROC_CATEGORY_ZS:
		case UTF8PROC_CATEGORY_ZL:
		case UTF8PROC_CATEGORY_ZP:
		case UTF8PROC_CATEGORY_CC:
			return true;
		default:
			return false;
	}
}

/* What is no UTF-8 is not blank, so that it gets its message. */
static bool
is_blank(const char *line, size_t length)
{
	for (size_t i = 0; i < length;)
	{
		utf8proc_int32_t character;
		utf8proc_ssize_t bytes = utf8proc_iterate((const utf8proc_uint8_t *) line + i, (utf8proc_ssize_t) (length - i),
												  &character);

		if (bytes < 1 || !is_blank_character(character))
			return false;
		i += (size_t) bytes;
	}
	return true;
}

static void
fail_line(Translate *translate, uint64_t number, const char *message)
{
	hymt_complain("line %llu: %s", (unsigned long long) number, message);
	translate->failed = true;
}

/* The carriage return that files with lines in the manner of Windows have at the end of each is no part of a text. */
static void
end_line(Translate *translate, uint64_t number, HymtBytes *output)
{
	if (translate->returns[number % WINDOW] && !hymt_bytes_append(output, "\r", 1))
		fail_line(translate, number, "out of memory");
}

static bool
start_line(void *context, uint64_t number, const char *line, size_t length, HymtBytes *output)
{
	Translate  *translate = context;
	HymtTranslationRequest request;
	HymtError	error;

	translate->returns[number % WINDOW] = false;
	if (line == NULL)
	{
		fail_line(translate, number, "the line is too long");
		return false;
	}
	if (is_blank(line, length))
	{
		if (!hymt_bytes_append(output, line, length))
			fail_line(translate, number, "out of memory");
		return false;
	}
	if (line[length - 1] == '\r')
	{
		translate->returns[number % WINDOW] = true;
		length--;
	}
	request = (HymtTranslationRequest) {
		.id = number,
		.source_lang = translate->source->code,
		.target_lang = translate->target->code,
		.text = {line, length},
		.context = translate->about
	};
	if (hymt_engine_submit(&translate->engine, &request, &error))
		return true;
	fail_line(translate, number, error.message);
	end_line(translate, number, output);
	return false;
}

static const char *
failure_message(HymtFailure failure, HymtFinish finish)
{
	switch (failure)
	{
		case HYMT_FAILURE_UNFINISHED:
			return finish == HYMT_FINISH_LOOP ? "the answer repeats itself without end" :
				"the answer did not end within its limit";
		case HYMT_FAILURE_NUMERIC:
			return "the model computed a value that is not a number";
		case HYMT_FAILURE_NO_MEMORY:
			return "out of memory";
		default:
			return "internal error";
	}
}

static bool
collect_answer(void *context, uint64_t *number, HymtBytes *output)
{
	Translate  *translate = context;
	HymtTranslation translation;

	if (!hymt_engine_answer(&translate->engine, &translation))
		return false;
	*number = translation.id;
	if (translation.failure != HYMT_FAILURE_NONE)
		fail_line(translate, translation.id, translation.message != NULL ? translation.message :
				  failure_message(translation.failure, translation.finish));
	else
	{
		for (size_t i = 0; i < translation.length; i++)
			if (translation.text[i] == '\n' || translation.text[i] == '\r')
				translation.text[i] = ' ';
		if (!hymt_bytes_append(output, translation.text, translation.length))
			fail_line(translate, translation.id, "out of memory");
	}
	end_line(translate, translation.id, output);
	free(translation.text);
	return true;
}

static bool
translate_lines(Translate *translate, const HymtOptions *options, const char *from, const char *to,
				const char *adapter, const char *adapters)
{
	HymtEngineOptions engine_options = {
		.model_directory = options->model,
		.family = options->family,
		.device = options->device,
		.memory = options->memory,
		.trace = options->trace,
		.adapter = adapter,
		.adapters = adapters
	};
	HymtLineWork work = {.context = translate, .window = WINDOW, .start = start_line, .collect = collect_answer};
	HymtError	error;
	bool		done;

	if (!hymt_engine_open(&translate->engine, &engine_options, &error))
	{
		hymt_complain("%s", error.message);
		return false;
	}
	translate->source = hymt_engine_language(&translate->engine, from, &error);
	if (translate->source != NULL)
		translate->target = hymt_engine_language(&translate->engine, to, &error);
	done = translate->source != NULL && translate->target != NULL;
	if (done)
	{
		work.adapters = translate->engine.loaded;
		work.event_fd = translate->engine.ops->info(translate->engine.device)->event_fd;
		done = hymt_lines_run(&work);
	}
	else
		hymt_complain("%s", error.message);
	hymt_engine_close(&translate->engine);
	return done;
}

int
hymt_cmd_translate(int argc, char **argv)
{
	HymtOptions options;
	static Translate translate; /* large, and there is one */
	const char *from = NULL;
	const char *to = NULL;
	const char *adapter = NULL;
	const char *adapters = NULL;
	const char *about = NULL;
	const HymtOwnOption own[] = {
		{"from", &from}, {"to", &to}, {"context", &about}, {"adapter", &adapter}, {"adapters", &adapters}, {NULL, NULL}
	};
	int			code;
	bool		done;

	if (!hymt_options_parse(&options, argc, argv, usage, own, &code))
		return code;
	if (from == NULL || to == NULL)
	{
		hymt_complain("translate: --from CODE and --to CODE are needed");
		hymt_options_close(&options);
		return 2;
	}
	if (about != NULL)
		translate.about = (HymtText) {about, strlen(about)};
	done = translate_lines(&translate, &options, from, to, adapter, adapters);
	done = hymt_options_close(&options) && done;
	return done && !translate.failed ? 0 : 1;
}
