/*
 * fuzz_sentencepiece.c: a SentencePiece model and the files beside it. What opens encodes some texts and decodes ids: as
 * the library itself does.
 */
#include <stdlib.h>
#include <string.h>

#include "readers.h"
#include "sentencepiece_file.h"
#include "sentencepiece_shim.h"
#include "support.h"
#include "tokenizer_parts.h"

#define IDS 64

static FuzzFile files[] = {
	{"tokenizer.model", NULL, 0},
	{"added_tokens.json", NULL, 0},
	{"tokenizer_config.json", NULL, 0},
	{"special_tokens_map.json", NULL, 0},
	{NULL, NULL, 0},
};

/* Pieces that are no control tokens, some of them twice, are decoded as the library does it. */
static void
compare_decoders(const HymtTokenizer *tokenizer)
{
	size_t		pieces = hymt_sentencepiece_file(tokenizer)->count;
	int32_t		ids[IDS];
	size_t		count = 0;
	char	   *ours;
	char	   *theirs;
	size_t		our_length;
	size_t		their_length;
	char		message[HYMT_SPM_MESSAGE];

	for (size_t i = 0; i < IDS; i++)
	{
		int32_t		id = (int32_t) (i * 7 % pieces);

		if (!hymt_tokenizer_is_special(tokenizer, id))
			ids[count++] = id;
	}
	fuzz_require(hymt_tokenizer_decode(tokenizer, ids, count, &ours, &our_length), "ids can be decoded");
	if (hymt_spm_decode(hymt_sentencepiece_model(tokenizer), ids, count, &theirs, &their_length, message) == HYMT_SPM_DONE)
	{
		fuzz_require(our_length == their_length && memcmp(ours, theirs, our_length) == 0, "both decode alike");
		free(theirs);
	}
	free(ours);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	HymtTokenizer *tokenizer;
	HymtError	error = {HYMT_FAILURE_NONE, ""};

	fuzz_cut(files, data, size);
	fuzz_write_files(files);
	if (!hymt_tokenizer_open_model(&tokenizer, fuzz_directory(), &error))
	{
		fuzz_require(tokenizer == NULL, "what cannot be opened is NULL");
		fuzz_check_error(&error, files);
		return 0;
	}
	fuzz_use_tokenizer(tokenizer);
	compare_decoders(tokenizer);
	hymt_tokenizer_close(tokenizer);
	return 0;
}
