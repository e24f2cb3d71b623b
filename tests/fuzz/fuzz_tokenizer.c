/*
 * fuzz_tokenizer.c: a tokenizer.json. What opens encodes some texts and decodes all of its ids.
 */
#include "readers.h"
#include "support.h"

static FuzzFile files[] = {{"tokenizer.json", NULL, 0}, {NULL, NULL, 0}};

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
	hymt_tokenizer_close(tokenizer);
	return 0;
}
