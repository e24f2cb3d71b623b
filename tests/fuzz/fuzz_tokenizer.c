/*
 * fuzz_tokenizer.c: a tokenizer.json. What opens encodes some texts and decodes all of its ids.
 */
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tokenizer.h"
#include "utf8.h"

#define IDS 2000				/* of a larger vocabulary the first ones */

static FuzzFile files[] = {{"tokenizer.json", NULL, 0}, {NULL, NULL, 0}};

static const char *const texts[] = {
	"", " ", "a", "ab abc  abc\n\n x's 12345", "e\xCC\x81\xE4\xB8\xAD\xE6\x96\x87\xE3\x81\x8B", "<s></s><|eos|>",
	"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x94\xA7\x00\x7F", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
};

static void
decode(const HymtTokenizer *tokenizer, const int32_t *ids, size_t count)
{
	char	   *text;
	size_t		length;

	fuzz_require(hymt_tokenizer_decode(tokenizer, ids, count, &text, &length), "ids can be decoded");
	fuzz_require(hymt_utf8_valid(text, length) == length && text[length] == '\0', "decoded text is UTF-8");
	free(text);
}

static void
encode(const HymtTokenizer *tokenizer, const char *text)
{
	HymtIds		ids = {0};
	HymtError	error = {HYMT_FAILURE_NONE, ""};

	if (hymt_tokenizer_encode(tokenizer, text, strlen(text), &ids, &error))
	{
		for (size_t i = 0; i < ids.count; i++)
		{
			fuzz_require(ids.ids[i] >= 0 && ids.ids[i] < hymt_tokenizer_size(tokenizer), "ids are below the size");
			fuzz_require(!hymt_tokenizer_is_special(tokenizer, ids.ids[i]), "no text gives a control token");
		}
		decode(tokenizer, ids.ids, ids.count);
	}
	else
		fuzz_require(error.failure == HYMT_FAILURE_INTERNAL, "only a pattern can give up on a text");
	hymt_ids_free(&ids);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	HymtTokenizer *tokenizer;
	HymtError	error = {HYMT_FAILURE_NONE, ""};
	int32_t		ids[IDS];
	int			counts[3];

	fuzz_cut(files, data, size);
	fuzz_write_files(files);
	if (!hymt_tokenizer_open_model(&tokenizer, fuzz_directory(), &error))
	{
		fuzz_require(tokenizer == NULL, "what cannot be opened is NULL");
		fuzz_check_error(&error, files);
		return 0;
	}
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		encode(tokenizer, texts[i]);
	for (int i = 0; i < IDS; i++)
		ids[i] = i - 1;			/* one that is none, and what lies behind the last one */
	decode(tokenizer, ids, IDS);
	hymt_tokenizer_counts(tokenizer, &counts[0], &counts[1], &counts[2]);
	(void) hymt_tokenizer_added_id(tokenizer, "<s>");
	hymt_tokenizer_close(tokenizer);
	return 0;
}
