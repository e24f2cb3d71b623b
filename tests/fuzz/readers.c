/*
 * readers.c: looking at models and tokenizers that a fuzz target has opened. Test programs only.
 */
#include "readers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "sentencepiece_file.h"
#include "support.h"
#include "tokenizer_parts.h"
#include "utf8.h"

#define IDS 2000				/* of a larger vocabulary the first ones */

/* --- models ------------------------------------------------------------------------------------------------------- */

static void
read_bytes(const unsigned char *data, uint64_t bytes)
{
	volatile unsigned char sum = 0;

	for (uint64_t i = 0; i < bytes; i++)
		sum = (unsigned char) (sum + data[i]);
}

void
fuzz_read_tensor(const HymtTensor *tensor)
{
	HymtTensorPart parts[HYMT_TENSOR_PARTS];
	int			count = hymt_tensor_parts(tensor, parts);
	float	   *row = malloc((size_t) tensor->columns * sizeof *row);

	fuzz_require(tensor->rows >= 1 && tensor->columns >= 1 && row != NULL, "a tensor has a shape");
	for (int i = 0; i < count; i++)
		read_bytes(parts[i].data, parts[i].bytes);
	for (int64_t i = 0; i < tensor->rows; i++)
		hymt_kernels_scalar()->widen(row, tensor, i);
	free(row);
}

static void
read_layer(const HymtLayer *layer)
{
	const HymtTensor *tensors = (const HymtTensor *) layer;

	for (size_t i = 0; i < sizeof *layer / sizeof *tensors; i++)
		if (tensors[i].data != NULL)
			fuzz_read_tensor(&tensors[i]);
}

void
fuzz_read_model(const HymtModel *model)
{
	const HymtConfig *config = &model->config;

	fuzz_require(config->head_dim >= 2 && config->head_dim % 2 == 0, "the head size is even");
	fuzz_require(config->kv_heads >= 1 && config->heads % config->kv_heads == 0, "KV heads divide heads");
	fuzz_require(isfinite(config->rope_base) && config->rope_base >= 1, "there is a rotation base");
	fuzz_require(config->norm_eps > 0 && config->norm_eps <= 1, "there is an epsilon");
	fuzz_require(config->repetition_penalty > 0 && isfinite(config->repetition_penalty), "there is a penalty");
	for (int i = 0; i < config->stop_count; i++)
		fuzz_require(config->stop_ids[i] >= 0 && config->stop_ids[i] < config->vocab, "stop ids are ids");
	for (int i = 0; i < config->head_dim / 2; i++)
		fuzz_require(isfinite(hymt_rope_frequency(config, i)), "the rotation's angles are numbers");
	fuzz_require(model->name != NULL && model->name[0] != '\0', "it has a name");
	fuzz_require(strlen(model->fingerprint) == 64, "it has a fingerprint");
	fuzz_read_tensor(&model->embedding);
	fuzz_read_tensor(&model->head);
	fuzz_read_tensor(&model->final_norm);
	for (int i = 0; i < config->layers; i++)
		read_layer(&model->layer[i]);
}

static const struct
{
	const char *name;
	int			rows;			/* 0: a vector */
	int			columns;
}			weights[] = {
	{"lm_head.weight", 10, 8},
	{"model.embed_tokens.weight", 10, 8},
	{"model.layers.0.input_layernorm.weight", 0, 8},
	{"model.layers.0.mlp.down_proj.weight", 8, 6},
	{"model.layers.0.mlp.gate_proj.weight", 6, 8},
	{"model.layers.0.mlp.up_proj.weight", 6, 8},
	{"model.layers.0.post_attention_layernorm.weight", 0, 8},
	{"model.layers.0.self_attn.k_proj.weight", 4, 8},
	{"model.layers.0.self_attn.key_layernorm.weight", 0, 4},
	{"model.layers.0.self_attn.o_proj.weight", 8, 8},
	{"model.layers.0.self_attn.q_proj.weight", 8, 8},
	{"model.layers.0.self_attn.query_layernorm.weight", 0, 4},
	{"model.layers.0.self_attn.v_proj.weight", 4, 8},
	{"model.norm.weight", 0, 8},
};

void
fuzz_write_weights(void)
{
	char		text[8192];
	size_t		length = 0;
	size_t		at = 0;

	for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
	{
		int			rows = weights[i].rows == 0 ? 1 : weights[i].rows;
		size_t		end = at + (size_t) rows * (size_t) weights[i].columns * 2;
		char		shape[32];

		snprintf(shape, sizeof shape, weights[i].rows == 0 ? "%.0d%d" : "%d,%d", weights[i].rows, weights[i].columns);
		length += (size_t) snprintf(text + 8 + length, sizeof text - 8 - length,
									"%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
									i == 0 ? '{' : ',', weights[i].name, shape, at, end);
		at = end;
	}
	text[8 + length++] = '}';
	while (length % 8 != 0)
		text[8 + length++] = ' ';
	for (int i = 0; i < 8; i++)
		text[i] = (char) (length >> (8 * i) & 0xff);
	length += 8;
	fuzz_require(length + at <= sizeof text, "the weights fit");
	memset(text + length, 0x3f, at);
	fuzz_write("model.safetensors", text, length + at);
}

/* --- tokenizers --------------------------------------------------------------------------------------------------- */

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

/* What a text may give: ordinary tokens, and of a SentencePiece model its unknown piece. */
static bool
is_text(const HymtTokenizer *tokenizer, int32_t id)
{
	const HymtSpmPiece *piece = tokenizer->sentencepiece == NULL ? NULL : hymt_sentencepiece_piece(tokenizer, id);

	return (piece != NULL && piece->type == HYMT_SPM_UNKNOWN) || !hymt_tokenizer_is_special(tokenizer, id);
}

static void
encode(const HymtTokenizer *tokenizer, const char *text, bool behind)
{
	HymtIds		ids = {0};
	HymtError	error = {HYMT_FAILURE_NONE, ""};

	if (hymt_tokenizer_encode_part(tokenizer, text, strlen(text), behind, SIZE_MAX, &ids, &error))
	{
		for (size_t i = 0; i < ids.count; i++)
		{
			fuzz_require(ids.ids[i] >= 0 && ids.ids[i] < hymt_tokenizer_text_size(tokenizer), "ids are below the size");
			fuzz_require(is_text(tokenizer, ids.ids[i]), "no text gives a control token");
		}
		decode(tokenizer, ids.ids, ids.count);
	}
	else
		fuzz_require(error.failure == HYMT_FAILURE_INTERNAL, "only a pattern or the library can give up on a text");
	hymt_ids_free(&ids);
}

void
fuzz_use_tokenizer(const HymtTokenizer *tokenizer)
{
	int32_t		ids[IDS];
	int			counts[3];
	size_t		length;

	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
	{
		encode(tokenizer, texts[i], false);
		if (tokenizer->sentencepiece != NULL)
			encode(tokenizer, texts[i], true);
	}
	for (int i = 0; i < IDS; i++)
		ids[i] = i - 1;			/* one that is none, and what lies behind the last one */
	decode(tokenizer, ids, IDS);
	hymt_tokenizer_counts(tokenizer, &counts[0], &counts[1], &counts[2]);
	fuzz_require(hymt_tokenizer_bos(tokenizer) < hymt_tokenizer_size(tokenizer), "a first token is a token");
	(void) hymt_tokenizer_added_id(tokenizer, "<s>");
	(void) hymt_tokenizer_added_at(tokenizer, "<s>", &length);
}
