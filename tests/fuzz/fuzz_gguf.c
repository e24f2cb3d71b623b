/*
 * fuzz_gguf.c: a GGUF file: its container, what it says of a model, its weights, its tokenizer.
 */
#include <stdlib.h>
#include <string.h>

#include "gguf.h"
#include "readers.h"
#include "support.h"

#define NAME "model.gguf"

static FuzzFile files[] = {{NAME, NULL, 0}, {NULL, NULL, 0}};

/* Every string and the last element of every list, in all ways in which they can be asked for. */
static void
read_value(const HymtGgufValue *value)
{
	const unsigned char *at = value->data;
	HymtJsonText text;
	double		number;
	int64_t		integer;

	if (hymt_gguf_text(value, &text))
		fuzz_require(text.length == 0 || memchr(text.data, text.data[text.length - 1], text.length) != NULL, "it is text");
	(void) hymt_gguf_integer(value, &integer);
	(void) hymt_gguf_number(value, &number);
	if (value->type != HYMT_GGUF_ARRAY)
		return;
	fuzz_require(!hymt_gguf_integer_at(value, value->count, &integer), "nothing lies behind a list");
	if (value->count > 0)
		(void) hymt_gguf_integer_at(value, value->count - 1, &integer);
	for (uint64_t i = 0; value->element == HYMT_GGUF_STRING && i < value->count; i++)
		(void) hymt_gguf_next_text(&at);
}

static void
read_container(const HymtGguf *gguf)
{
	static const char *const keys[] = {
		"general.architecture", "general.name", "general.alignment", "hunyuan-dense.block_count",
		"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges", "general.sampling.temp",
	};
	const HymtStoredTensor *tensor;
	size_t		length;
	const unsigned char *header = hymt_gguf_header(gguf, &length);
	volatile unsigned char sum = 0;

	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (hymt_gguf_value(gguf, keys[i]) != NULL)
			read_value(hymt_gguf_value(gguf, keys[i]));
	for (size_t i = 0; (tensor = hymt_gguf_tensor(gguf, i)) != NULL; i++)
	{
		fuzz_require(hymt_gguf_find(gguf, tensor->name) == tensor, "a tensor is found by its name");
		for (uint64_t b = 0; b < tensor->bytes; b++)
			sum = (unsigned char) (sum + tensor->data[b]);
	}
	for (size_t i = 0; i < length; i++)
		sum = (unsigned char) (sum + header[i]);
}

/* Both texts are JSON that can be read, or refused with the file's name. */
static void
read_texts(const HymtGguf *gguf)
{
	bool		(*readers[]) (HymtFileBytes *, const HymtGguf *, HymtError *) = {hymt_gguf_config, hymt_gguf_generation};

	for (size_t i = 0; i < 2; i++)
	{
		HymtFileBytes json;
		HymtError	error = {HYMT_FAILURE_NONE, ""};
		json_t	   *object;

		if (!readers[i] (&json, gguf, &error))
			fuzz_check_error(&error, files);
		else if (json.data != NULL)
		{
			object = hymt_json_object(json.data, json.length, NAME, &error);
			fuzz_require(object != NULL, "what is written can be read");
			json_decref(object);
		}
		hymt_file_free(&json);
	}
}

/* False when the file is no GGUF file. */
static bool
read_gguf(const char *path)
{
	HymtError	error = {HYMT_FAILURE_NONE, ""};
	HymtGguf   *gguf = hymt_gguf_open(path, &error);

	if (gguf == NULL)
	{
		fuzz_check_error(&error, files);
		return false;
	}
	read_container(gguf);
	read_texts(gguf);
	hymt_gguf_close(gguf);
	return true;
}

static void
read_as_model(const char *path)
{
	HymtModel	model;
	HymtTokenizer *tokenizer;
	HymtError	error = {HYMT_FAILURE_NONE, ""};

	if (hymt_model_open(&model, path, NULL, &error))
	{
		fuzz_read_model(&model);
		hymt_model_close(&model);
	}
	else
		fuzz_check_error(&error, files);
	if (hymt_tokenizer_open_model(&tokenizer, path, &error))
	{
		fuzz_use_tokenizer(tokenizer);
		hymt_tokenizer_close(tokenizer);
	}
	else
		fuzz_check_error(&error, files);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char		path[512];

	fuzz_cut(files, data, size);
	fuzz_write_files(files);
	snprintf(path, sizeof path, "%s/" NAME, fuzz_directory());
	if (files[0].data != NULL && read_gguf(path))
		read_as_model(path);
	return 0;
}
