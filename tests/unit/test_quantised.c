/*
 * test_quantised.c: quantised weights in safetensors files: which spellings are read, and what is refused.
 */
#define _GNU_SOURCE				/* nftw */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "model.h"
#include "model_parts.h"

#include "model_files.h"

#define SINGLE "model.safetensors"
#define BROKEN HYMT_FAILURE_MODEL_BROKEN
#define UNSUPPORTED HYMT_FAILURE_MODEL_UNSUPPORTED
#define MAX_SPECS 40

static const char config[] =
	"{\"architectures\": [\"HunYuanDenseV1ForCausalLM\"], \"tie_word_embeddings\": true, \"eos_token_id\": 2, "
	"\"max_position_embeddings\": 64, \"hidden_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
	"\"num_key_value_heads\": 1, \"head_dim\": 8, \"intermediate_size\": 24, \"vocab_size\": 10, "
	"\"quantization_config\": %s}";

static const char fp8[] =
	"{\"quant_method\": \"fp8\", \"activation_scheme\": \"static\", \"ignored_layers\": [\"lm_head\"]}";
static const char gptq[] = "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 8, \"desc_act\": false}";

#define L "model.layers.0."

static const TensorSpec plain_tensors[] = {
	{"model.embed_tokens.weight", "BF16", 10, 16, NULL},
	{"model.norm.weight", "BF16", 0, 16, NULL},
	{L "input_layernorm.weight", "BF16", 0, 16, NULL},
	{L "self_attn.query_layernorm.weight", "BF16", 0, 8, NULL},
	{L "self_attn.key_layernorm.weight", "BF16", 0, 8, NULL},
	{L "post_attention_layernorm.weight", "BF16", 0, 16, NULL},
};

/* Finite in any type. */
static const float numbers[24] = {1, 2, 3};

static const TensorSpec fp8_tensors[] = {
	{L "self_attn.q_proj.weight", "F8_E4M3", 16, 16, NULL}, {L "self_attn.q_proj.weight_scale", "F32", 0, 1, numbers},
	{L "self_attn.k_proj.weight", "F8_E4M3", 8, 16, NULL}, {L "self_attn.k_proj.weight_scale", "BF16", 8, 1, numbers},
	{L "self_attn.v_proj.weight", "F8_E4M3", 8, 16, NULL}, {L "self_attn.v_proj.weight_scale", "F16", 0, 8, numbers},
	{L "self_attn.o_proj.weight", "BF16", 16, 16, NULL},
	{L "mlp.gate_proj.weight", "F8_E4M3", 24, 16, NULL}, {L "mlp.gate_proj.weight_scale", "F32", 24, 1, numbers},
	{L "mlp.up_proj.weight", "F8_E4M3", 24, 16, NULL}, {L "mlp.up_proj.weight_scale", "F32", 1, 1, numbers},
	{L "mlp.down_proj.weight", "F8_E4M3", 16, 24, NULL}, {L "mlp.down_proj.weight_scale", "F32", 0, 1, numbers},
	{L "mlp.down_proj.input_scale", "F32", 0, 1, numbers},
};

#define GPTQ(name, in, out) \
	{L name ".qweight", "I32", in / 8, out, NULL}, {L name ".qzeros", "I32", in / 8, out / 8, NULL}, \
	{L name ".scales", "F16", in / 8, out, NULL}

static const int32_t in_order[24] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2};
static const int32_t reordered[24] = {2, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 0};
static const int32_t outside[24] = {0, 0, 0, 3};
static const int32_t negative[24] = {0, 0, -1};

static const TensorSpec gptq_tensors[] = {
	GPTQ("self_attn.q_proj", 16, 16), GPTQ("self_attn.k_proj", 16, 8), GPTQ("self_attn.v_proj", 16, 8),
	GPTQ("self_attn.o_proj", 16, 16), GPTQ("mlp.gate_proj", 16, 24), GPTQ("mlp.up_proj", 16, 24),
	GPTQ("mlp.down_proj", 24, 16), {L "mlp.down_proj.g_idx", "I32", 0, 24, in_order},
};

#define COUNT(array) ((int) (sizeof array / sizeof array[0]))

/* A model of the plain tensors and others, one of which is changed: another spec in place of the one of that name. */
static const char *
write_model(const char *quantization, const TensorSpec *others, int count, const char *name, const TensorSpec *instead)
{
	const char *directory = test_directory("quantised");
	TensorSpec	specs[MAX_SPECS];
	char		text[2048];

	memcpy(specs, plain_tensors, sizeof plain_tensors);
	memcpy(specs + COUNT(plain_tensors), others, (size_t) count * sizeof *others);
	count += COUNT(plain_tensors);
	if (name != NULL)
	{
		int			found = 0;

		for (int i = 0; i < count; i++)
			if (strcmp(specs[i].name, name) == 0)
			{
				specs[i] = *instead;
				found++;
			}
		assert_int_equal(found, 1);
	}
	write_tensors(directory, SINGLE, specs, count, 1);
	snprintf(text, sizeof text, config, quantization);
	write_text(directory, "config.json", text);
	return directory;
}

static void
open_model(HymtModel *model, const char *directory)
{
	HymtError	error = {HYMT_FAILURE_NONE, ""};

	if (!hymt_model_open(model, directory, NULL, &error))
		fail_msg("%s", error.message);
}

static void
expect_failure(const char *label, const char *directory, HymtFailure failure, const char *words)
{
	HymtError	error = {HYMT_FAILURE_NONE, ""};
	HymtModel	model;
	bool		ok = hymt_model_open(&model, directory, NULL, &error);

	if (ok || error.failure != failure || strstr(error.message, words) == NULL)
		fail_msg("%s: expected failure %d with \"%s\", got %s, %d, \"%s\"", label, failure, words,
				 ok ? "success" : "failure", error.failure, error.message);
}

/* --- FP8 ---------------------------------------------------------------------------------------------------------- */

static void
test_reads_fp8(void **state)
{
	HymtModel	model;
	const HymtLayer *layer;

	(void) state;
	open_model(&model, write_model(fp8, fp8_tensors, COUNT(fp8_tensors), NULL, NULL));
	layer = &model.layer[0];
	assert_int_equal(layer->q.dtype, HYMT_DTYPE_F8_E4M3);
	assert_int_equal(layer->q.scales.count, 1);
	assert_int_equal(layer->q.scales.dtype, HYMT_DTYPE_F32);
	assert_int_equal(layer->k.scales.count, 8);
	assert_int_equal(layer->k.scales.dtype, HYMT_DTYPE_BF16);
	assert_int_equal(layer->v.scales.count, 8);
	assert_int_equal(layer->v.scales.dtype, HYMT_DTYPE_F16);
	assert_int_equal(layer->o.dtype, HYMT_DTYPE_BF16);
	assert_null(layer->o.scales.data);
	assert_int_equal(layer->gate.scales.count, 24);
	assert_int_equal(layer->up.scales.count, 1);
	assert_int_equal(model.parameters, 10 * 16 + 3 * 16 + 2 * 8 + 2 * 256 + 2 * 128 + 3 * 384);
	/* scales count, those of activations do not */
	assert_int_equal(model.stored_bytes, 2 * (10 * 16 + 3 * 16 + 2 * 8 + 256) + 256 + 2 * 128 + 3 * 384 +
					 4 + 16 + 16 + 96 + 4 + 4);
	hymt_model_close(&model);
}

static const struct
{
	const char *name;
	TensorSpec	instead;
	HymtFailure failure;
	const char *words;
}			bad_fp8[] = {
	{L "mlp.down_proj.weight_scale", {"x", "F32", 0, 1, NULL}, BROKEN, "down_proj.weight_scale\" is missing"},
	{L "mlp.down_proj.weight_scale", {L "mlp.down_proj.weight_scale", "F32", 0, 15, numbers}, BROKEN,
		"one for each row"},
	{L "mlp.down_proj.weight_scale", {L "mlp.down_proj.weight_scale", "F32", 1, 16, NULL}, UNSUPPORTED,
		"more than one dimension"},
	{L "mlp.down_proj.weight_scale", {L "mlp.down_proj.weight_scale", "F32", 16, 24, NULL}, UNSUPPORTED,
		"more than one dimension"},
	{L "mlp.down_proj.weight_scale", {L "mlp.down_proj.weight_scale", "F64", 0, 1, NULL}, UNSUPPORTED, "no F32, F16"},
	{L "mlp.down_proj.weight_scale", {L "mlp.down_proj.weight_scale", "F8_E4M3", 0, 1, NULL}, UNSUPPORTED,
		"no F32, F16"},
	{L "mlp.down_proj.weight_scale", {L "mlp.down_proj.weight_scale", "F32", 0, 1, "\0\0\x80\x7f"}, BROKEN, "finite"},
	{L "mlp.down_proj.weight_scale", {L "mlp.down_proj.weight_scale", "F16", 0, 1, "\0\x7c"}, BROKEN, "finite"},
	{L "mlp.down_proj.weight_scale", {L "mlp.down_proj.weight_scale", "BF16", 0, 1, "\xff\x7f"}, BROKEN, "finite"},
	{L "mlp.down_proj.weight", {L "mlp.down_proj.weight", "F8_E4M3", 24, 16, NULL}, BROKEN, "has shape [24, 16]"},
	{L "input_layernorm.weight", {L "input_layernorm.weight", "F8_E4M3", 0, 16, NULL}, UNSUPPORTED, "vector"},
	{"model.embed_tokens.weight", {"model.embed_tokens.weight", "F8_E4M3", 10, 16, NULL}, BROKEN,
		"model.embed_tokens.weight_scale\" is missing"},
};

static void
test_refuses_fp8(void **state)
{
	(void) state;
	for (int i = 0; i < COUNT(bad_fp8); i++)
		expect_failure(bad_fp8[i].name, write_model(fp8, fp8_tensors, COUNT(fp8_tensors), bad_fp8[i].name,
													&bad_fp8[i].instead), bad_fp8[i].failure, bad_fp8[i].words);
}

#define GROUPS(weights) "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {" weights "}}}"
#define FLOAT8 "\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"channel\", \"symmetric\": true"

static void
test_fp8_configurations(void **state)
{
	static const char *const good[] = {
		"null",
		"{\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", \"ignore\": [\"lm_head\"]}",
		"{\"quant_method\": \"compressed-tensors\", \"format\": \"naive-quantized\", \"kv_cache_scheme\": null, "
		"\"ignored_layers\": [\"lm_head\"], " GROUPS(FLOAT8) "}",
		"{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", \"ignore\": [\"lm_head\"], "
		GROUPS("\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"tensor\"") "}",
	};
	static const struct
	{
		const char *text;
		HymtFailure failure;
		const char *words;
	}			bad[] = {
		{"{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}", UNSUPPORTED, "weight_block_size"},
		{"{\"quant_method\": \"fp8\", \"fmt\": \"e5m2\"}", UNSUPPORTED, "e5m2"},
		{"{\"quant_method\": \"compressed-tensors\"}", BROKEN, "config_groups"},
		{"{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"a\": 1}}", BROKEN, "config_groups"},
		{"{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", " GROUPS(FLOAT8) "}", UNSUPPORTED,
			"pack-quantized"},
		{"{\"quant_method\": \"compressed-tensors\", " GROUPS("\"num_bits\": 8, \"type\": \"int\"") "}", UNSUPPORTED,
			"\"int\""},
		{"{\"quant_method\": \"compressed-tensors\", " GROUPS("\"num_bits\": 4, \"type\": \"float\"") "}", UNSUPPORTED,
			"num_bits"},
		{"{\"quant_method\": \"compressed-tensors\", "
			GROUPS("\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"block\"") "}", UNSUPPORTED, "block"},
		{"{\"quant_method\": \"compressed-tensors\", "
			GROUPS("\"num_bits\": 8, \"type\": \"float\", \"symmetric\": false") "}", UNSUPPORTED, "asymmetric"},
	};

	(void) state;
	for (int i = 0; i < COUNT(good); i++)
	{
		HymtModel	model;

		open_model(&model, write_model(good[i], fp8_tensors, COUNT(fp8_tensors), NULL, NULL));
		assert_int_equal(model.layer[0].q.dtype, HYMT_DTYPE_F8_E4M3);
		hymt_model_close(&model);
	}
	for (int i = 0; i < COUNT(bad); i++)
		expect_failure(bad[i].text, write_model(bad[i].text, fp8_tensors, COUNT(fp8_tensors), NULL, NULL),
					   bad[i].failure, bad[i].words);
}

/* --- GPTQ --------------------------------------------------------------------------------------------------------- */

static void
test_reads_gptq(void **state)
{
	TensorSpec	other = {L "mlp.down_proj.g_idx", "I32", 0, 24, reordered};
	HymtModel	model;
	const HymtTensor *down;

	(void) state;
	open_model(&model, write_model(gptq, gptq_tensors, COUNT(gptq_tensors), NULL, NULL));
	down = &model.layer[0].down;
	assert_int_equal(down->dtype, HYMT_DTYPE_GPTQ_INT4);
	assert_int_equal(down->rows, 16);
	assert_int_equal(down->columns, 24);
	assert_int_equal(down->scales.group, 8);
	assert_int_equal(down->scales.count, 3 * 16);
	assert_int_equal(down->scales.zero_offset, 1);
	assert_null(down->scales.group_of);
	assert_int_equal(model.stored_bytes, 2 * (10 * 16 + 3 * 16 + 2 * 8) + (2 * 256 + 2 * 128 + 3 * 384) / 2 +
					 (2 * 256 + 2 * 128 + 3 * 384) / 8 * 2 + (2 * 256 + 2 * 128 + 3 * 384) / 8 / 2);
	hymt_model_close(&model);

	open_model(&model, write_model(gptq, gptq_tensors, COUNT(gptq_tensors), other.name, &other));
	assert_memory_equal(model.layer[0].down.scales.group_of, reordered, sizeof reordered);
	hymt_model_close(&model);

	open_model(&model, write_model("{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 8, "
								   "\"checkpoint_format\": \"gptq_v2\"}", gptq_tensors, COUNT(gptq_tensors), NULL,
								   NULL));
	assert_int_equal(model.layer[0].down.scales.zero_offset, 0);
	hymt_model_close(&model);
}

#define D L "mlp.down_proj."

static const struct
{
	const char *name;
	TensorSpec	instead;
	HymtFailure failure;
	const char *words;
}			bad_gptq[] = {
	{D "qweight", {"x", "I32", 0, 1, NULL}, BROKEN, "down_proj.weight\" is missing"},
	{D "qzeros", {"x", "I32", 0, 1, NULL}, BROKEN, "down_proj.qzeros\" is missing"},
	{D "scales", {"x", "I32", 0, 1, NULL}, BROKEN, "down_proj.scales\" is missing"},
	{D "qweight", {D "qweight", "F32", 3, 16, NULL}, UNSUPPORTED, "not stored as I32"},
	{D "qweight", {D "qweight", "I32", 16, 3, NULL}, BROKEN, "has shape [16, 3], but config.json demands [3, 16]"},
	{D "qzeros", {D "qzeros", "I32", 3, 1, NULL}, BROKEN, "demands [3, 2]"},
	{D "qzeros", {D "qzeros", "I32", 2, 2, NULL}, BROKEN, "demands [3, 2]"},
	{D "scales", {D "scales", "F16", 2, 16, NULL}, BROKEN, "demands [3, 16]"},
	{D "scales", {D "scales", "I32", 3, 16, NULL}, UNSUPPORTED, "no F32, F16"},
	{D "g_idx", {D "g_idx", "I32", 0, 23, in_order}, BROKEN, "demands [24]"},
	{D "g_idx", {D "g_idx", "F32", 0, 24, in_order}, UNSUPPORTED, "not stored as I32"},
	{D "g_idx", {D "g_idx", "I32", 0, 24, outside}, BROKEN, "group that does not exist"},
	{D "g_idx", {D "g_idx", "I32", 0, 24, negative}, BROKEN, "group that does not exist"},
};

static void
test_refuses_gptq(void **state)
{
	static const struct
	{
		const char *text;
		HymtFailure failure;
		const char *words;
	}			bad[] = {
		{"null", BROKEN, "q_proj.weight\" is missing"},
		{"{\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": 8}", UNSUPPORTED, "bits other than 4"},
		{"{\"quant_method\": \"gptq\", \"group_size\": 8}", UNSUPPORTED, "bits other than 4"},
		{"{\"quant_method\": \"gptq\", \"bits\": 4}", BROKEN, "group_size"},
		{"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 0}", BROKEN, "group_size"},
		{"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 9223372036854775807}", BROKEN, "group_size"},
		{"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 16}", BROKEN, "demands [1, 2]"},
		{"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": -1}", BROKEN, "demands [1, 2]"},
		{"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 8, \"checkpoint_format\": \"marlin\"}", UNSUPPORTED,
			"marlin"},
		{"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 8, \"pack_dtype\": \"int64\"}", UNSUPPORTED,
			"int64"},
	};

	(void) state;
	for (int i = 0; i < COUNT(bad_gptq); i++)
		expect_failure(bad_gptq[i].name, write_model(gptq, gptq_tensors, COUNT(gptq_tensors), bad_gptq[i].name,
													 &bad_gptq[i].instead), bad_gptq[i].failure, bad_gptq[i].words);
	for (int i = 0; i < COUNT(bad); i++)
		expect_failure(bad[i].text, write_model(bad[i].text, gptq_tensors, COUNT(gptq_tensors), NULL, NULL),
					   bad[i].failure, bad[i].words);
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

/* Whatever is broken in the header or the configuration, opening ends, and what is opened lies inside the file. */
static void
test_survives_random_damage(void **state)
{
	uint32_t	random = 99;
	int			opened = 0;

	(void) state;
	for (int round = 0; round < 2000; round++)
	{
		bool		is_gptq = round % 2 == 0;
		const char *directory = is_gptq ? write_model(gptq, gptq_tensors, COUNT(gptq_tensors), NULL, NULL)
			: write_model(fp8, fp8_tensors, COUNT(fp8_tensors), NULL, NULL);
		const char *name = round % 5 == 0 ? "config.json" : SINGLE;
		size_t		length;
		char	   *bytes = read_whole(directory, name, &length);
		size_t		first = round % 5 == 0 ? strstr(bytes, "quantization") - bytes : 8;
		size_t		range = round % 5 == 0 ? length - first : 2000;
		HymtError	error;
		HymtModel	model;

		for (int i = 0; i <= round % 3; i++)
		{
			random = random * 1664525 + 1013904223;
			bytes[first + (random >> 8) % range] ^= (char) (1 << (random >> 29));
		}
		write_file(directory, name, bytes, length);
		free(bytes);
		if (!hymt_model_open(&model, directory, NULL, &error))
			continue;
		opened++;				/* its fingerprint has read all that the weights point to */
		hymt_model_close(&model);
	}
	assert_true(opened > 0 && opened < 2000);
}

/* --- the fingerprint ---------------------------------------------------------------------------------------------- */

/* What stands beside the values is part of what a model computes. */
static void
test_fingerprint_covers_scales(void **state)
{
	static const uint32_t other[48] = {7};
	static const TensorSpec changes[] = {
		{D "scales", "F16", 3, 16, other}, {D "qzeros", "I32", 3, 2, other}, {D "qweight", "I32", 3, 16, other},
		{D "g_idx", "I32", 0, 24, reordered},
	};
	char		first[65];
	HymtModel	model;

	(void) state;
	open_model(&model, write_model(gptq, gptq_tensors, COUNT(gptq_tensors), NULL, NULL));
	strcpy(first, model.fingerprint);
	hymt_model_close(&model);
	for (int i = 0; i < COUNT(changes); i++)
	{
		open_model(&model, write_model(gptq, gptq_tensors, COUNT(gptq_tensors), changes[i].name, &changes[i]));
		assert_string_not_equal(model.fingerprint, first);
		hymt_model_close(&model);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads_fp8),
		cmocka_unit_test(test_refuses_fp8),
		cmocka_unit_test(test_fp8_configurations),
		cmocka_unit_test(test_reads_gptq),
		cmocka_unit_test(test_refuses_gptq),
		cmocka_unit_test(test_survives_random_damage),
		cmocka_unit_test(test_fingerprint_covers_scales),
	};

	return cmocka_run_group_tests_name("quantised", tests, test_set_up, test_tear_down);
}
