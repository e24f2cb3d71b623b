/*
 * fingerprint.c: a name for what a model computes, derived from the contents of its files.
 *
 * Runs in the engine program. Stored translations are keyed by it, so it must be the same for the same model on every
 * machine (no path, no time, no sharding in it) and differ as soon as an answer could differ. It is a SHA-256 over
 *
 *      a version line of this scheme
 *      config.json, generation_config.json, hymt.json, tokenizer.json: presence, length, bytes; where there is a
 *      tokenizer.model, the same of it and of the files that say more about it; of a GGUF file hymt.json, its
 *      metadata, and what they say in the words of the other files
 *      the prompt family, which may come from elsewhere than the files and changes every answer
 *      for each weight in use, by name: name, dtype, shape, and up to 16 blocks of 4 KiB spread evenly over its data;
 *      the same of the scales, zeros and groups that a quantised one has beside its data
 *
 * The weights are sampled because hashing 15 GB at each start would take longer than loading them. Another training
 * run, a fine-tune or a merged adapter changes nearly all elements of the matrices it touches, so the sample sees it;
 * that a few chosen elements were patched by hand, it need not see, since this is an identity and no protection. Small
 * tensors (up to 64 KiB: every norm of a real model) are hashed whole.
 *
 * An adapter's is made alike, over adapter_config.json and all of its tensors, but with two blocks of each: it is made
 * while others wait for a step. What an engine computes depends on its model and on the adapters that are assigned to
 * languages: hymt_fingerprint_combine() makes one fingerprint of several and of the words that say what each is for.
 */
#include "model_parts.h"

#include <sha2.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"

#define SCHEME "hymt fingerprint 1\n"
#define BLOCKS 16
#define BLOCK_BYTES 4096
#define ADAPTER_SCHEME "hymt adapter fingerprint 1\n"
#define ADAPTER_BLOCKS 2
#define COMBINED_SCHEME "hymt combined fingerprint 1\n"

static void
add(SHA2_CTX *hash, const void *data, size_t length)
{
	SHA256Update(hash, data, length);
}

/* Numbers enter as decimal text, so that byte order plays no role. */
static void
add_number(SHA2_CTX *hash, uint64_t number)
{
	char		text[32];

	add(hash, text, (size_t) snprintf(text, sizeof text, "%llu ", (unsigned long long) number));
}

/* Length first, so that no two different sequences of parts give the same bytes. */
static void
add_part(SHA2_CTX *hash, const void *data, size_t length)
{
	add_number(hash, length);
	add(hash, data, length);
}

static void
add_text(SHA2_CTX *hash, const HymtFileBytes *bytes)
{
	add_number(hash, bytes->data != NULL);
	if (bytes->data != NULL)
		add_part(hash, bytes->data, bytes->length);
}

/* Data longer than `blocks` blocks enter with so many, spread evenly. */
static void
add_sample(SHA2_CTX *hash, const unsigned char *data, uint64_t bytes, uint64_t blocks)
{
	if (bytes <= blocks * BLOCK_BYTES)
	{
		add(hash, data, bytes);
		return;
	}
	/* the first block begins with the tensor, the last one ends with it */
	for (uint64_t i = 0; i < blocks; i++)
		add(hash, data + (bytes - BLOCK_BYTES) * i / (blocks - 1), BLOCK_BYTES);
}

static void
add_weight(SHA2_CTX *hash, const HymtWeight *weight)
{
	const HymtTensor *tensor = weight->tensor;
	const char *dtype = hymt_dtype_name(tensor->dtype);
	HymtTensorPart parts[HYMT_TENSOR_PARTS];
	int			count = hymt_tensor_parts(tensor, parts);

	add_part(hash, weight->name, strlen(weight->name));
	add_part(hash, dtype, strlen(dtype));
	add_number(hash, weight->vector ? 1 : 2);
	add_number(hash, (uint64_t) tensor->rows);
	add_number(hash, (uint64_t) tensor->columns);
	add_sample(hash, parts[0].data, parts[0].bytes, BLOCKS);
	if (count > 1)
		add_part(hash, hymt_dtype_name(tensor->scales.dtype), strlen(hymt_dtype_name(tensor->scales.dtype)));
	for (int i = 1; i < count; i++)
	{
		add_number(hash, parts[i].bytes);
		add_sample(hash, parts[i].data, parts[i].bytes, BLOCKS);
	}
}

/* tokenizer.json, or what a GGUF file has in its place: all that it holds besides weights. */
static bool
add_tokenizer(SHA2_CTX *hash, const HymtModel *model, HymtError *error)
{
	HymtFileBytes tokenizer;
	size_t		length;
	const unsigned char *header;

	if (model->gguf != NULL)
	{
		header = hymt_gguf_header(hymt_stored_gguf(model->files), &length);
		add_part(hash, header, length);
		return true;
	}
	if (!hymt_file_read(&tokenizer, model->directory, "tokenizer.json", HYMT_TOKENIZER_FILE_MAX, true, error))
		return false;
	add_text(hash, &tokenizer);
	hymt_file_free(&tokenizer);
	return true;
}

static bool
add_file(SHA2_CTX *hash, const char *directory, const char *file, bool *present, HymtError *error)
{
	HymtFileBytes bytes;

	if (!hymt_file_read(&bytes, directory, file, HYMT_TOKENIZER_FILE_MAX, true, error))
		return false;
	*present = bytes.data != NULL;
	add_text(hash, &bytes);
	hymt_file_free(&bytes);
	return true;
}

/* A SentencePiece model and what stands beside it. Without one, nothing is added. */
static bool
add_sentencepiece(SHA2_CTX *hash, const char *directory, HymtError *error)
{
	static const char *const files[] = {"added_tokens.json", "special_tokens_map.json", "tokenizer_config.json"};
	SHA2_CTX	before = *hash;
	bool		present;

	if (!add_file(hash, directory, "tokenizer.model", &present, error))
		return false;
	if (!present)
	{
		*hash = before;
		return true;
	}
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
		if (!add_file(hash, directory, files[i], &present, error))
			return false;
	return true;
}

bool
hymt_fingerprint(HymtModel *model, const HymtModelTexts *texts, HymtError *error)
{
	const char *family = hymt_family_name(model->family);
	SHA2_CTX	hash;

	SHA256Init(&hash);
	add(&hash, SCHEME, strlen(SCHEME));
	add_text(&hash, &texts->config);
	add_text(&hash, &texts->generation);
	add_text(&hash, &texts->hymt);
	if (!add_tokenizer(&hash, model, error) ||
		(model->gguf == NULL && !add_sentencepiece(&hash, model->directory, error)))
		return false;
	add_part(&hash, family, strlen(family));
	add_number(&hash, model->weight_count);
	for (size_t i = 0; i < model->weight_count; i++)
		add_weight(&hash, &model->weights[i]);
	SHA256End(&hash, model->fingerprint);
	return true;
}

void
hymt_fingerprint_adapter(char fingerprint[65], const HymtFileBytes *config, const HymtSafetensors *files)
{
	SHA2_CTX	hash;

	SHA256Init(&hash);
	add(&hash, ADAPTER_SCHEME, strlen(ADAPTER_SCHEME));
	add_text(&hash, config);
	add_number(&hash, hymt_safetensors_count(files));
	for (size_t i = 0; i < hymt_safetensors_count(files); i++)
	{
		const HymtStoredTensor *tensor = hymt_safetensors_at(files, i);

		add_part(&hash, tensor->name, strlen(tensor->name));
		add_part(&hash, tensor->dtype, strlen(tensor->dtype));
		for (int d = 0; d < tensor->dimensions; d++)
			add_number(&hash, (uint64_t) tensor->shape[d]);
		add_sample(&hash, tensor->data, tensor->bytes, ADAPTER_BLOCKS);
	}
	SHA256End(&hash, fingerprint);
}

void
hymt_fingerprint_combine(char fingerprint[65], const char *use, const char *other)
{
	SHA2_CTX	hash;

	SHA256Init(&hash);
	add(&hash, COMBINED_SCHEME, strlen(COMBINED_SCHEME));
	add_part(&hash, fingerprint, strlen(fingerprint));
	add_part(&hash, use, strlen(use));
	add_part(&hash, other, strlen(other));
	SHA256End(&hash, fingerprint);
}
