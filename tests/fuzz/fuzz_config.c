/*
 * fuzz_config.c: the small files of a model directory: config.json, generation_config.json, hymt.json, README.md. Beside
 * them lie weights that fit the seeds, so that a model opens whose configuration is not damaged.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "support.h"

static FuzzFile files[] = {
	{"config.json", NULL, 0},
	{"generation_config.json", NULL, 0},
	{"hymt.json", NULL, 0},
	{"README.md", NULL, 0},
	{NULL, NULL, 0},
};

/* The weights of the seeds' configuration: hidden 8, 1 layer, 2 heads of 4, 1 KV head, feed-forward 6, 10 tokens. */
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

static void
write_weights(void)
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

static void
check_model(const HymtModel *model)
{
	const HymtConfig *config = &model->config;

	fuzz_require(config->head_dim >= 2 && config->head_dim % 2 == 0, "the head size is even");
	fuzz_require(config->kv_heads >= 1 && config->heads % config->kv_heads == 0, "KV heads divide heads");
	fuzz_require(isfinite(config->rope_base) && config->rope_base >= 1, "there is a rotation base");
	fuzz_require(config->norm_eps > 0 && config->norm_eps <= 1, "there is an epsilon");
	fuzz_require(config->repetition_penalty > 0 && isfinite(config->repetition_penalty), "there is a penalty");
	for (int i = 0; i < config->stop_count; i++)
		fuzz_require(config->stop_ids[i] >= 0 && config->stop_ids[i] < config->vocab, "stop ids are ids");
	fuzz_require(model->name != NULL && model->name[0] != '\0', "it has a name");
	fuzz_require(strlen(model->fingerprint) == 64, "it has a fingerprint");
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool written;
	HymtModel	model;
	HymtError	error = {HYMT_FAILURE_NONE, ""};

	if (!written)
		write_weights();
	written = true;
	fuzz_cut(files, data, size);
	fuzz_write_files(files);
	if (hymt_model_open(&model, fuzz_directory(), NULL, &error))
	{
		check_model(&model);
		hymt_model_close(&model);
	}
	else
		fuzz_check_error(&error, files);
	return 0;
}
