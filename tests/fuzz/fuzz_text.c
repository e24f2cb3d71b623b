/*
 * fuzz_text.c: a user's text, through the demo's tokenizer and into a prompt. Run from the repository root.
 */
#include <stdlib.h>
#include <string.h>

#include "prompts.h"
#include "support.h"
#include "utf8.h"

static HymtTokenizer *tokenizer;
static HymtPrompts prompts;

static void
open_demo(void)
{
	static HymtModel model;
	HymtError	error;

	if (tokenizer != NULL)
		return;
	fuzz_require(hymt_model_open(&model, "models/demo", NULL, &error), "the demo opens");
	fuzz_require(hymt_tokenizer_open_model(&tokenizer, "models/demo", &error), "the demo's tokenizer opens");
	fuzz_require(hymt_prompts_open(&prompts, &model, tokenizer, &error), "it has prompts");
}

/* Nothing of a text is lost, and no control token comes of it. */
static size_t
round_trip(const char *text, size_t length)
{
	HymtIds		ids = {0};
	HymtError	error = {HYMT_FAILURE_NONE, ""};
	char	   *back;
	size_t		back_length;
	size_t		count = 0;
	bool		valid = hymt_utf8_valid(text, length) == length;

	if (hymt_tokenizer_encode(tokenizer, text, length, &ids, &error))
	{
		fuzz_require(valid, "only UTF-8 is encoded");
		for (size_t i = 0; i < ids.count; i++)
			fuzz_require(!hymt_tokenizer_is_special(tokenizer, ids.ids[i]), "no text gives a control token");
		fuzz_require(hymt_tokenizer_decode(tokenizer, ids.ids, ids.count, &back, &back_length), "ids can be decoded");
		fuzz_require(back_length == length && memcmp(back, text, length) == 0, "the text comes back");
		count = ids.count;
		free(back);
	}
	else
		fuzz_require(!valid && error.failure == HYMT_FAILURE_BAD_TEXT, "UTF-8 is encoded");
	hymt_ids_free(&ids);
	return count;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *) data;
	HymtPromptRequest request = {
		.source = hymt_language_find("en", 2), .target = hymt_language_find("zh", 2), .text = {text, size},
	};
	HymtIds		prompt = {0};
	HymtError	error = {HYMT_FAILURE_NONE, ""};
	size_t		tokens;
	size_t		count;

	open_demo();
	count = round_trip(text, size);
	if (hymt_prompt_encode(&prompts, tokenizer, &request, 2000, &prompt, &tokens, &error))
		fuzz_require(tokens == count && prompt.count >= count, "the prompt holds the text");
	else
		fuzz_require(error.failure == HYMT_FAILURE_BAD_TEXT || error.failure == HYMT_FAILURE_TOO_LONG,
					 "a text is bad, long, or has a prompt");
	hymt_ids_free(&prompt);
	/* any bytes may come as a language code */
	(void) hymt_language_find(text, size < 64 ? size : 64);
	return 0;
}
