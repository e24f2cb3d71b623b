/*
 * cmd_tokenize.c: hymt-engine tokenize: text to ids and back, JSON lines.
 *
 * Runs in the engine program. Needs nothing of the model but its tokenizer: it is how the tokenizer is compared
 * with a reference. Each line is answered as soon as it is there.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "lines.h"
#include "tokenizer.h"

/* Lines answered at a time; they are not computed together, only written. */
#define WINDOW 16

static const char usage[] =
"hymt-engine tokenize --model DIR\n"
"\n"
"Reads JSON lines, writes one line for each, in the same order:\n"
"  {\"text\": \"...\"}   gives  {\"ids\": [...]}, without control tokens: none is added, none is found in the text\n"
"  {\"ids\": [...]}    gives  {\"text\": \"...\"}, control tokens left out\n"
"A request that fails gives {\"error\": \"...\"}, and exit code 1 at the end. Only the tokenizer is read.\n";

/* Each of the answering functions returns a new object, or NULL with *error set. */

static json_t *
out_of_memory(HymtError *error)
{
	hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	return NULL;
}

static json_t *
answer_text(const HymtTokenizer *tokenizer, const json_t *text, HymtError *error)
{
	HymtIds		ids = {0};
	json_t	   *list;

	if (!json_is_string(text))
	{
		hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "text is not a string");
		return NULL;
	}
	if (!hymt_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), &ids, error))
	{
		hymt_ids_free(&ids);
		return NULL;
	}
	list = json_array();
	for (size_t i = 0; list != NULL && i < ids.count; i++)
		if (json_array_append_new(list, json_integer(ids.ids[i])) != 0)
		{
			json_decref(list);
			list = NULL;
		}
	hymt_ids_free(&ids);
	return list != NULL ? json_pack("{s:o}", "ids", list) : out_of_memory(error);
}

static bool
read_ids(const json_t *list, HymtIds *ids, HymtError *error)
{
	for (size_t i = 0; i < json_array_size(list); i++)
	{
		const json_t *item = json_array_get(list, i);

		if (!json_is_integer(item) || json_integer_value(item) < 0 || json_integer_value(item) > INT32_MAX)
			return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "ids[%zu] is not an id", i);
		if (!hymt_ids_append(ids, (int32_t) json_integer_value(item)))
			return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	}
	return true;
}

static json_t *
answer_ids(const HymtTokenizer *tokenizer, const json_t *list, HymtError *error)
{
	HymtIds		ids = {0};
	json_t	   *answer = NULL;
	char	   *text = NULL;
	size_t		length;

	if (!json_is_array(list))
	{
		hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "ids is not an array");
		return NULL;
	}
	if (read_ids(list, &ids, error))
	{
		if (hymt_tokenizer_decode(tokenizer, ids.ids, ids.count, &text, &length))
			answer = json_pack("{s:s%}", "text", text, length);
		if (answer == NULL)
			out_of_memory(error);
	}
	free(text);
	hymt_ids_free(&ids);
	return answer;
}

static json_t *
answer_request(const HymtTokenizer *tokenizer, const json_t *request, HymtError *error)
{
	const json_t *text = json_object_get(request, "text");
	const json_t *ids = json_object_get(request, "ids");

	if ((text != NULL) == (ids != NULL))
	{
		hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "a request has either text or ids");
		return NULL;
	}
	return text != NULL ? answer_text(tokenizer, text, error) : answer_ids(tokenizer, ids, error);
}

static json_t *
answer_line(const HymtTokenizer *tokenizer, const char *line, size_t length, HymtError *error)
{
	json_error_t problem;
	json_t	   *request = json_loadb(line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
	json_t	   *answer = NULL;

	if (request == NULL)
		hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "request: column %d: %s", problem.column, problem.text);
	else if (!json_is_object(request))
		hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "request: must be a JSON object");
	else
		answer = answer_request(tokenizer, request, error);
	json_decref(request);
	return answer;
}

/* Append an answer, or the error when it is NULL; false for the latter. */
static bool
append_answer(json_t *answer, const HymtError *error, HymtBytes *output)
{
	static const char fallback[] = "{\"error\": \"out of memory\"}";
	bool		good = answer != NULL;
	char	   *text;

	if (!good)
		answer = json_pack("{s:s}", "error", error->message);
	/* messages are UTF-8, and so are texts: only memory can be lacking */
	text = answer != NULL ? json_dumps(answer, 0) : NULL;
	if (text == NULL || !hymt_bytes_append(output, text, strlen(text)))
	{
		good = false;
		(void) hymt_bytes_append(output, fallback, sizeof(fallback) - 1);
	}
	free(text);
	json_decref(answer);
	return good;
}

typedef struct Tokenize
{
	HymtTokenizer *tokenizer;
	bool		failed;
} Tokenize;

static bool
start_line(void *context, uint64_t number, const char *line, size_t length, HymtBytes *output)
{
	Tokenize   *tokenize = context;
	json_t	   *answer = NULL;
	HymtError	error;

	(void) number;
	if (line == NULL)
		hymt_fail(&error, HYMT_FAILURE_BAD_REQUEST, "request: longer than %zu bytes", HYMT_LINE_MAX);
	else
		answer = answer_line(tokenize->tokenizer, line, length, &error);
	if (!append_answer(answer, &error, output))
		tokenize->failed = true;
	return false;
}

int
hymt_cmd_tokenize(int argc, char **argv)
{
	HymtOptions options;
	Tokenize	tokenize = {0};
	HymtLineWork work = {.context = &tokenize, .event_fd = -1, .window = WINDOW, .start = start_line};
	HymtError	error;
	int			code;
	bool		done = false;

	if (!hymt_options_parse(&options, argc, argv, usage, NULL, &code))
		return code;
	if (!hymt_tokenizer_open_model(&tokenize.tokenizer, options.model, &error))
		hymt_complain("%s", error.message);
	else
		done = hymt_lines_run(&work);
	hymt_tokenizer_close(tokenize.tokenizer);
	done = hymt_options_close(&options) && done;
	return done && !tokenize.failed ? 0 : 1;
}
