/*
 * test_model.c: opening model directories: what the reference models give, and that broken directories are refused.
 */
#define _GNU_SOURCE				/* nftw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "model.h"
#include "model_files.h"
#include "model_parts.h"

#define VECTORS "tests/vectors/models/"
#define DEMO "models/demo"
#define CONFIG "config.json"
#define GENERATION "generation_config.json"
#define SINGLE "model.safetensors"

/* --- the reference models ----------------------------------------------------------------------------------------- */

static const struct
{
	const char *directory;
	int			hidden,
				layers,
				heads,
				kv_heads,
				head_dim,
				intermediate,
				vocab,
				max_position;
	double		rope_base;
	bool		tied;
	HymtDtype	dtype;
	int			stop_count;
	int			stop_ids[2];
	uint64_t	parameters;
	int			files;
	HymtArchitecture architecture;
	float		norm_eps;		/* 0: 1e-5 */
}			references[] = {
	{VECTORS "hunyuan_gqa_f32", 64, 2, 4, 2, 16, 160, 320, 4096, 26826957.952797,
		true, HYMT_DTYPE_F32, 1, {2, 0}, 106880, 1, HYMT_ARCHITECTURE_HUNYUAN, 0},
	{VECTORS "hunyuan_head128_bf16", 128, 2, 4, 1, 128, 256, 512, 4096, 11158839.92508,
		true, HYMT_DTYPE_BF16, 1, {2, 0}, 590976, 1, HYMT_ARCHITECTURE_HUNYUAN, 0},
	{VECTORS "hunyuan_no_scaling_f16", 64, 2, 2, 1, 32, 128, 256, 4096, 10000,
		true, HYMT_DTYPE_F16, 1, {2, 0}, 90560, 1, HYMT_ARCHITECTURE_HUNYUAN, 0},
	{VECTORS "hunyuan_tied_with_stored_head_bf16", 64, 2, 2, 2, 32, 128, 288, 4096, 15848931.92461,
		true, HYMT_DTYPE_BF16, 2, {7, 11}, 100800, 1, HYMT_ARCHITECTURE_HUNYUAN, 0},
	{VECTORS "hunyuan_untied_sharded_bf16", 48, 2, 3, 3, 16, 80, 300, 4096, 26826957.952797,
		false, HYMT_DTYPE_BF16, 1, {2, 0}, 70576, 3, HYMT_ARCHITECTURE_HUNYUAN, 0},
	{VECTORS "hunyuan_wide_heads_bf16", 64, 3, 6, 1, 32, 96, 261, 4096, 2154434690.03188,
		true, HYMT_DTYPE_BF16, 1, {2, 0}, 158656, 1, HYMT_ARCHITECTURE_HUNYUAN, 0},
	{DEMO, 256, 5, 4, 2, 64, 768, 8064, 2048, 12496091.41292,
		true, HYMT_DTYPE_BF16, 1, {8020, 0}, 6000000, 1, HYMT_ARCHITECTURE_HUNYUAN, 0},
	{VECTORS "llama_gqa_f32", 64, 2, 4, 2, 16, 176, 320, 2048, 10000,
		false, HYMT_DTYPE_F32, 1, {2, 0}, 133440, 1, HYMT_ARCHITECTURE_LLAMA, 1e-6f},
	{VECTORS "llama_tied_theta_bf16", 64, 2, 2, 2, 32, 128, 300, 2048, 500000,
		true, HYMT_DTYPE_BF16, 1, {2, 0}, 101440, 1, HYMT_ARCHITECTURE_LLAMA, 0},
};

static void
check_tensor(const HymtTensor *tensor, HymtDtype dtype, int rows, int columns)
{
	assert_non_null(tensor->data);
	assert_int_equal(tensor->dtype, dtype);
	assert_int_equal(tensor->rows, rows);
	assert_int_equal(tensor->columns, columns);
}

static void
check_layer(const HymtLayer *layer, const HymtConfig *c, HymtDtype dtype)
{
	check_tensor(&layer->input_norm, dtype, 1, c->hidden);
	check_tensor(&layer->q, dtype, c->heads * c->head_dim, c->hidden);
	check_tensor(&layer->k, dtype, c->kv_heads * c->head_dim, c->hidden);
	check_tensor(&layer->v, dtype, c->kv_heads * c->head_dim, c->hidden);
	check_tensor(&layer->o, dtype, c->hidden, c->heads * c->head_dim);
	if (c->qk_norm)
	{
		check_tensor(&layer->q_norm, dtype, 1, c->head_dim);
		check_tensor(&layer->k_norm, dtype, 1, c->head_dim);
	}
	else
		assert_true(layer->q_norm.data == NULL && layer->k_norm.data == NULL);
	check_tensor(&layer->post_norm, dtype, 1, c->hidden);
	check_tensor(&layer->gate, dtype, c->intermediate, c->hidden);
	check_tensor(&layer->up, dtype, c->intermediate, c->hidden);
	check_tensor(&layer->down, dtype, c->hidden, c->intermediate);
}

static void
open_model(HymtModel *model, const char *directory, const HymtModelOptions *options)
{
	HymtError	error = {HYMT_FAILURE_NONE, ""};

	if (!hymt_model_open(model, directory, options, &error))
		fail_msg("%s: %d, %s", directory, error.failure, error.message);
}

static void
test_reference_models(void **state)
{
	(void) state;
	for (size_t i = 0; i < sizeof references / sizeof references[0]; i++)
	{
		int			before = open_descriptors();
		HymtModel	model;
		HymtConfig *c = &model.config;

		open_model(&model, references[i].directory, NULL);
		assert_int_equal(open_descriptors(), before);
		assert_int_equal(c->hidden, references[i].hidden);
		assert_int_equal(c->layers, references[i].layers);
		assert_int_equal(c->heads, references[i].heads);
		assert_int_equal(c->kv_heads, references[i].kv_heads);
		assert_int_equal(c->head_dim, references[i].head_dim);
		assert_int_equal(c->intermediate, references[i].intermediate);
		assert_int_equal(c->vocab, references[i].vocab);
		assert_int_equal(c->max_position, references[i].max_position);
		assert_true(fabs(c->rope_base / references[i].rope_base - 1) < 1e-12 ||
					fabs(c->rope_base - references[i].rope_base) < 1e-5);
		assert_true(c->norm_eps == (references[i].norm_eps == 0 ? 1e-5f : references[i].norm_eps));
		assert_int_equal(c->architecture, references[i].architecture);
		assert_true(c->qk_norm == (c->architecture == HYMT_ARCHITECTURE_HUNYUAN));
		assert_true(c->tied == references[i].tied);
		assert_true(c->repetition_penalty == 1);
		assert_int_equal(c->stop_count, references[i].stop_count);
		for (int s = 0; s < c->stop_count; s++)
			assert_int_equal(c->stop_ids[s], references[i].stop_ids[s]);
		check_tensor(&model.embedding, references[i].dtype, c->vocab, c->hidden);
		check_tensor(&model.head, references[i].dtype, c->vocab, c->hidden);
		check_tensor(&model.final_norm, references[i].dtype, 1, c->hidden);
		assert_true((model.head.data == model.embedding.data) == c->tied);
		for (int layer = 0; layer < c->layers; layer++)
			check_layer(&model.layer[layer], c, references[i].dtype);
		assert_int_equal(model.parameters, references[i].parameters);
		assert_int_equal(model.stored_bytes, references[i].parameters * hymt_dtype_size(references[i].dtype));
		assert_int_equal(hymt_stored_file_count(model.files), references[i].files);
		assert_int_equal(strspn(model.fingerprint, "0123456789abcdef"), 64);
		assert_int_equal(strlen(model.fingerprint), 64);
		hymt_model_close(&model);
	}
}

static void
test_demo_settings(void **state)
{
	HymtModelOptions options = {.family = HYMT_FAMILY_HY_MT2};
	HymtModel	model;

	(void) state;
	open_model(&model, DEMO, &options);
	assert_string_equal(model.name, "hymt-demo");
	assert_int_equal(model.family, HYMT_FAMILY_HY_MT15);	/* hymt.json outranks the caller */
	assert_string_equal(model.family_reason, "hymt.json");
	assert_string_equal(model.languages, "en zh de fr es ja");
	hymt_model_close(&model);
}

/* --- a small model to vary ---------------------------------------------------------------------------------------- */

static const char base_config[] =
	"{\"architectures\": [\"HunYuanDenseV1ForCausalLM\"], \"attention_bias\": false, \"mlp_bias\": false, "
	"\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, \"tie_word_embeddings\": true, "
	"\"use_qk_norm\": true, \"eos_token_id\": 2, \"max_position_embeddings\": 64, \"hidden_size\": 8, "
	"\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 4, "
	"\"intermediate_size\": 6, \"vocab_size\": 10, \"rope_scaling\": {\"alpha\": 50.0, \"type\": \"dynamic\"}}";

#define L "model.layers.0."

static const TensorSpec base_tensors[] = {
	{"model.embed_tokens.weight", "F32", 10, 8, NULL},
	{"model.norm.weight", "F32", 0, 8, NULL},
	{L "input_layernorm.weight", "F32", 0, 8, NULL},
	{L "self_attn.q_proj.weight", "F32", 8, 8, NULL},
	{L "self_attn.k_proj.weight", "F32", 4, 8, NULL},
	{L "self_attn.v_proj.weight", "F32", 4, 8, NULL},
	{L "self_attn.o_proj.weight", "F32", 8, 8, NULL},
	{L "self_attn.query_layernorm.weight", "F32", 0, 4, NULL},
	{L "self_attn.key_layernorm.weight", "F32", 0, 4, NULL},
	{L "post_attention_layernorm.weight", "F32", 0, 8, NULL},
	{L "mlp.gate_proj.weight", "F32", 6, 8, NULL},
	{L "mlp.up_proj.weight", "F32", 6, 8, NULL},
	{L "mlp.down_proj.weight", "F32", 8, 6, NULL},
	{L "self_attn.rotary_emb.inv_freq", "F32", 0, 2, NULL},	/* some exporters leave it */
};

#define BASE_TENSORS ((int) (sizeof base_tensors / sizeof base_tensors[0]))

static const char *
small_model(const char *name)
{
	const char *directory = test_directory(name);

	write_text(directory, CONFIG, base_config);
	write_tensors(directory, SINGLE, base_tensors, BASE_TENSORS, 1);
	return directory;
}

/* base_config with the first `from` replaced by `to`; the caller frees it. */
static char *
edited_config(const char *from, const char *to)
{
	const char *at = strstr(base_config, from);
	size_t		size = sizeof base_config + strlen(to);
	char	   *text = malloc(size);

	assert_non_null(at);
	assert_non_null(text);
	snprintf(text, size, "%.*s%s%s", (int) (at - base_config), base_config, to, at + strlen(from));
	return text;
}

static void
expect_failure(const char *label, const char *directory, HymtFailure failure, const char *words)
{
	int			before = open_descriptors();
	HymtError	error = {HYMT_FAILURE_NONE, ""};
	HymtModel	model;
	bool		ok = hymt_model_open(&model, directory, NULL, &error);

	if (ok || error.failure != failure || strstr(error.message, words) == NULL)
		fail_msg("%s: expected failure %d with \"%s\", got %s, %d, \"%s\"", label, failure, words,
				 ok ? "success" : "failure", error.failure, error.message);
	assert_int_equal(open_descriptors(), before);
}

/* --- config.json -------------------------------------------------------------------------------------------------- */

#define BROKEN HYMT_FAILURE_MODEL_BROKEN
#define UNSUPPORTED HYMT_FAILURE_MODEL_UNSUPPORTED

static const struct
{
	const char *from;
	const char *to;
	HymtFailure failure;
	const char *words;
}			bad_configs[] = {
	{"HunYuanDenseV1ForCausalLM", "MistralForCausalLM", UNSUPPORTED,
		"the architecture MistralForCausalLM is not supported; supported: HunYuanDenseV1ForCausalLM, LlamaForCausalLM"},
	{"\"architectures\": [\"HunYuanDenseV1ForCausalLM\"], ", "", UNSUPPORTED, "names no architecture"},
	{"[\"HunYuanDenseV1ForCausalLM\"]", "7", UNSUPPORTED, "names no architecture"},
	{"\"attention_bias\": false", "\"attention_bias\": true", BROKEN, "self_attn.q_proj.bias\" is missing"},
	{"\"attention_bias\": false", "\"attention_bias\": \"no\"", BROKEN, "attention_bias"},
	{"\"mlp_bias\": false", "\"mlp_bias\": true", UNSUPPORTED, "mlp_bias"},
	{"\"use_qk_norm\": true", "\"use_qk_norm\": false", UNSUPPORTED, "use_qk_norm"},
	{"\"use_qk_norm\": true", "\"use_cla\": true", UNSUPPORTED, "use_cla"},
	{"\"silu\"", "\"gelu\"", UNSUPPORTED, "hidden_act"},
	{"\"silu\"", "1", UNSUPPORTED, "hidden_act"},
	{"{\"arch", "{\"quantization_config\": 1, \"arch", BROKEN, "quantization_config: must be an object"},
	{"{\"arch", "{\"quantization_config\": {}, \"arch", BROKEN, "quant_method"},
	{"{\"arch", "{\"quantization_config\": {\"quant_method\": \"awq\"}, \"arch", UNSUPPORTED, "awq"},
	{"{\"arch", "{\"vocab_size\": 10, \"arch", BROKEN, "duplicate"},
	{"{\"arch", "{arch", BROKEN, "config.json: line 1"},
	{"\"hidden_size\": 8, ", "", BROKEN, "hidden_size is missing"},
	{"\"hidden_size\": 8", "\"hidden_size\": null", BROKEN, "hidden_size is missing"},
	{"\"hidden_size\": 8", "\"hidden_size\": 0", BROKEN, "hidden_size"},
	{"\"hidden_size\": 8", "\"hidden_size\": -8", BROKEN, "hidden_size"},
	{"\"hidden_size\": 8", "\"hidden_size\": 8.0", BROKEN, "integer"},
	{"\"hidden_size\": 8", "\"hidden_size\": \"8\"", BROKEN, "integer"},
	{"\"hidden_size\": 8", "\"hidden_size\": 4294967304", BROKEN, "hidden_size"},	/* 8 in 32 bits */
	{"\"hidden_size\": 8", "\"hidden_size\": 9223372036854775807", BROKEN, "hidden_size"},
	{"\"hidden_size\": 8", "\"hidden_size\": 9223372036854775808", BROKEN, "integer"},
	{"\"hidden_size\": 8", "\"hidden_size\": 16", BROKEN, "shape"},
	{"\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2", BROKEN,
		"model.layers.1.input_layernorm.weight\" is missing"},
	{"\"num_hidden_layers\": 1", "\"num_hidden_layers\": 1000000000", BROKEN, "num_hidden_layers"},
	{"\"num_attention_heads\": 2", "\"num_attention_heads\": 2147483648", BROKEN, "num_attention_heads"},
	{"\"num_key_value_heads\": 1", "\"num_key_value_heads\": 0", BROKEN, "num_key_value_heads"},
	{"\"num_attention_heads\": 2, \"num_key_value_heads\": 1", "\"num_attention_heads\": 3, \"num_key_value_heads\": 2",
		BROKEN, "must divide"},
	{"\"head_dim\": 4", "\"head_dim\": 3", BROKEN, "even"},
	{"\"head_dim\": 4", "\"head_dim\": 2", BROKEN, "rotation base"},
	{"\"head_dim\": 4", "\"head_dim\": 65536", BROKEN, "head_dim"},
	{"\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 4", "\"num_attention_heads\": 3", BROKEN,
		"head_dim is missing"},
	{"\"intermediate_size\": 6", "\"intermediate_size\": 1000000000000", BROKEN, "intermediate_size"},
	{"\"intermediate_size\": 6", "\"intermediate_size\": 5", BROKEN, "shape"},
	{"\"vocab_size\": 10", "\"vocab_size\": 2000000000", BROKEN, "vocab_size"},
	{"\"vocab_size\": 10", "\"vocab_size\": 11", BROKEN, "has shape [10, 8], but config.json demands [11, 8]"},
	{"\"max_position_embeddings\": 64", "\"max_position_embeddings\": 4294967296", BROKEN, "max_position_embeddings"},
	{"1e-05", "0", BROKEN, "rms_norm_eps"},
	{"1e-05", "-1e-05", BROKEN, "rms_norm_eps"},
	{"1e-05", "\"small\"", BROKEN, "rms_norm_eps"},
	{"1e-05", "1e-50", BROKEN, "rms_norm_eps is 0"},
	{"\"rope_theta\": 10000.0", "\"rope_theta\": 0", BROKEN, "rope_theta"},
	{"\"rope_theta\": 10000.0", "\"rope_theta\": 1e400", BROKEN, "real number"},
	{"\"rope_theta\": 10000.0", "\"rope_theta\": NaN", BROKEN, "line"},
	{"50.0", "-50.0", BROKEN, "alpha"},
	{"50.0", "1e300", BROKEN, "alpha"},
	{"50.0", "1e-30", BROKEN, "rotation base"},
	{"\"dynamic\"", "\"yarn\"", UNSUPPORTED, "yarn"},
	{"\"dynamic\"", "\"longrope\"", UNSUPPORTED, "supported: default, linear, dynamic, llama3"},
	{"\"dynamic\"", "17", BROKEN, "rope scaling"},
	{"\"dynamic\"", "\"linear\"", BROKEN, "factor is missing"},
	{"\"dynamic\"", "\"linear\", \"factor\": 0", BROKEN, "factor"},
	{"\"dynamic\"", "\"linear\", \"factor\": 1e9", BROKEN, "factor"},
	{"\"dynamic\"", "\"llama3\"", BROKEN, "factor is missing"},
	{"\"dynamic\"", "\"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4", BROKEN,
		"original_max_position_embeddings is missing"},
	{"\"dynamic\"", "\"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": 4, "
		"\"original_max_position_embeddings\": 64", BROKEN, "high_freq_factor"},
	{"\"dynamic\"", "\"dynamic\", \"partial_rotary_factor\": 0.5", UNSUPPORTED, "partial_rotary_factor"},
	{"{\"arch", "{\"partial_rotary_factor\": 0.5, \"arch", UNSUPPORTED, "partial_rotary_factor"},
	{"{\"alpha\": 50.0, \"type\": \"dynamic\"}", "3", BROKEN, "rope_scaling must be an object"},
	{"\"eos_token_id\": 2", "\"eos_token_id\": -1", BROKEN, "eos_token_id"},
	{"\"eos_token_id\": 2", "\"eos_token_id\": 10", BROKEN, "eos_token_id"},
	{"\"eos_token_id\": 2", "\"eos_token_id\": [2, \"3\"]", BROKEN, "eos_token_id"},
	{"\"eos_token_id\": 2", "\"eos_token_id\": [4294967298]", BROKEN, "eos_token_id"},
	{"\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 1", BROKEN, "tie_word_embeddings"},
	{"\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", BROKEN, "\"lm_head.weight\" is missing"},
};

static void
test_refuses_configs(void **state)
{
	const char *directory = small_model("config");

	(void) state;
	for (size_t i = 0; i < sizeof bad_configs / sizeof bad_configs[0]; i++)
	{
		char	   *text = edited_config(bad_configs[i].from, bad_configs[i].to);

		write_text(directory, CONFIG, text);
		expect_failure(bad_configs[i].to, directory, bad_configs[i].failure, bad_configs[i].words);
		free(text);
	}
	write_text(directory, CONFIG, "");
	expect_failure("empty config", directory, BROKEN, CONFIG);
	write_text(directory, CONFIG, "[]");
	expect_failure("config is a list", directory, BROKEN, "object");
}

static void
open_with_config(HymtModel *model, const char *directory, const char *from, const char *to)
{
	char	   *text = edited_config(from, to);

	write_text(directory, CONFIG, text);
	free(text);
	open_model(model, directory, NULL);
}

/* The spellings that published files use for the same thing, and the defaults. */
static void
test_config_spellings(void **state)
{
	static const struct
	{
		const char *from;
		const char *to;
		double		rope_base;
	}			spellings[] = {
		{"head_dim", "attention_head_dim", 25000000},	/* 10000 * 50^(4/2) */
		{"\"head_dim\": 4, ", "", 25000000},
		{"use_qk_norm", "some_unknown_key", 25000000},
		{"rope_scaling", "rope_parameters", 25000000},
		{"\"type\"", "\"rope_type\"", 25000000},
		{"\"rope_theta\": 10000.0, ", "", 25000000},
		{"\"alpha\": 50.0, ", "\"alpha\": null, ", 10000},
		{"\"alpha\": 50.0, ", "", 10000},
		{"\"dynamic\"", "\"default\"", 10000},
		{"{\"alpha\": 50.0, \"type\": \"dynamic\"}", "null", 10000},
		{"\"rope_scaling\": {\"alpha\": 50.0", "\"rope_parameters\": {\"rope_theta\": 500, \"alpha\": 50", 25000000},
		{"\"rope_theta\": 10000.0, ", "\"rope_theta\": 500, ", 1250000},
	};
	const char *directory = small_model("spelling");

	(void) state;
	for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++)
	{
		HymtModel	model;

		open_with_config(&model, directory, spellings[i].from, spellings[i].to);
		assert_int_equal(model.config.head_dim, 4);
		assert_true(fabs(model.config.rope_base / spellings[i].rope_base - 1) < 1e-12);
		hymt_model_close(&model);
	}
}

static void
check_stop_ids(const char *directory, int count, int first, int second, float penalty)
{
	HymtModel	model;

	open_model(&model, directory, NULL);
	assert_int_equal(model.config.stop_count, count);
	if (count > 0)
		assert_int_equal(model.config.stop_ids[0], first);
	if (count > 1)
		assert_int_equal(model.config.stop_ids[1], second);
	assert_true(model.config.repetition_penalty == penalty);
	hymt_model_close(&model);
}

static void
test_generation_config(void **state)
{
	const char *directory = small_model("generation");

	(void) state;
	check_stop_ids(directory, 1, 2, 0, 1);
	write_text(directory, GENERATION, "{\"do_sample\": true, \"top_k\": 20, \"repetition_penalty\": 1.05}");
	check_stop_ids(directory, 1, 2, 0, 1.05f);
	write_text(directory, GENERATION, "{\"eos_token_id\": [5, 7, 5], \"repetition_penalty\": null}");
	check_stop_ids(directory, 2, 5, 7, 1);
	write_text(directory, GENERATION, "{\"eos_token_id\": 9}");
	check_stop_ids(directory, 1, 9, 0, 1);
	write_text(directory, GENERATION, "{\"eos_token_id\": 99}");
	expect_failure("stop id", directory, BROKEN, GENERATION);
	write_text(directory, GENERATION, "{\"repetition_penalty\": 0}");
	expect_failure("penalty", directory, BROKEN, "repetition_penalty");
	write_text(directory, GENERATION, "{\"repetition_penalty\": 1e-50}");
	expect_failure("penalty that is 0 in single precision", directory, BROKEN, "repetition_penalty");
	write_text(directory, GENERATION, "{\"repetition_penalty\": 10.5}");
	expect_failure("penalty", directory, BROKEN, "repetition_penalty");
	write_text(directory, GENERATION, "{\"repetition_penalty\": 10}");
	check_stop_ids(directory, 1, 2, 0, 10);
	write_text(directory, GENERATION, "{\"repetition_penalty\": ");
	expect_failure("broken JSON", directory, BROKEN, GENERATION);
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

static void
test_refuses_weights(void **state)
{
	TensorSpec	specs[BASE_TENSORS + 1];
	const char *directory = small_model("weights");

	(void) state;
	/* Each tensor in turn is missing (the last one is not needed), of a wrong shape, of an unusable dtype. */
	for (int i = 0; i < BASE_TENSORS - 1; i++)
	{
		char		words[160];

		snprintf(words, sizeof words, "\"%s\"", base_tensors[i].name);
		memcpy(specs, base_tensors, sizeof base_tensors);
		specs[i].name = "something.else";
		write_tensors(directory, SINGLE, specs, BASE_TENSORS, 1);
		expect_failure("missing", directory, BROKEN, words);
		memcpy(specs, base_tensors, sizeof base_tensors);
		specs[i].columns++;
		write_tensors(directory, SINGLE, specs, BASE_TENSORS, 1);
		expect_failure("wrong columns", directory, BROKEN, words);
		memcpy(specs, base_tensors, sizeof base_tensors);
		specs[i].rows = specs[i].rows == 0 ? 1 : 0;
		write_tensors(directory, SINGLE, specs, BASE_TENSORS, 1);
		expect_failure("wrong dimensions", directory, BROKEN, words);
		memcpy(specs, base_tensors, sizeof base_tensors);
		specs[i].dtype = "F64";
		write_tensors(directory, SINGLE, specs, BASE_TENSORS, 1);
		expect_failure("wrong dtype", directory, UNSUPPORTED, words);
	}
}

/* A header whose length is odd puts every element at an odd address. */
static void
test_refuses_misaligned_weights(void **state)
{
	const char *directory = small_model("misaligned");
	size_t		length;
	char	   *file = read_whole(directory, SINGLE, &length);
	uint64_t	header_length;
	char	   *header;

	(void) state;
	memcpy(&header_length, file, 8);
	header = malloc(header_length + 2);
	assert_non_null(header);
	snprintf(header, header_length + 2, "%.*s ", (int) header_length, file + 8);
	write_container(directory, SINGLE, header_length + 1, header, file + 8 + header_length, length - 8 - header_length);
	expect_failure("misaligned", directory, UNSUPPORTED, "aligned");
	free(header);
	free(file);
}

static void
test_ignores_a_tied_models_head(void **state)
{
	TensorSpec	specs[BASE_TENSORS + 1];
	const char *directory = small_model("head");
	char		fingerprint[65];
	HymtModel	model;

	(void) state;
	open_model(&model, directory, NULL);
	strcpy(fingerprint, model.fingerprint);
	assert_int_equal(model.stored_bytes, 4 * model.parameters);
	hymt_model_close(&model);
	memcpy(specs, base_tensors, sizeof base_tensors);
	specs[BASE_TENSORS] = (TensorSpec) {"lm_head.weight", "F32", 10, 8, NULL};
	write_tensors(directory, SINGLE, specs, BASE_TENSORS + 1, 1);
	open_model(&model, directory, NULL);
	assert_ptr_equal(model.head.data, model.embedding.data);
	assert_int_equal(model.stored_bytes, 4 * model.parameters);
	assert_string_equal(model.fingerprint, fingerprint);
	hymt_model_close(&model);
	/* untied, the same file has a head of its own */
	open_with_config(&model, directory, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
	assert_ptr_not_equal(model.head.data, model.embedding.data);
	hymt_model_close(&model);
}

/* --- what is missing or unreadable -------------------------------------------------------------------------------- */

static void
test_missing_files(void **state)
{
	char		path[PATH_BYTES + 64];
	const char *directory;

	(void) state;
	expect_failure("no directory", "/nonexistent/model", HYMT_FAILURE_MODEL_MISSING, "/nonexistent/model");
	expect_failure("a file", "README.md/model", HYMT_FAILURE_MODEL_MISSING, "README.md/model");
	expect_failure("no path", "", HYMT_FAILURE_MODEL_MISSING, "directory");
	directory = test_directory("missing");
	expect_failure("no config", directory, HYMT_FAILURE_MODEL_MISSING, CONFIG);
	write_text(directory, CONFIG, base_config);
	expect_failure("no weights", directory, HYMT_FAILURE_MODEL_MISSING, SINGLE);
	snprintf(path, sizeof path, "%s/" CONFIG, directory);
	assert_int_equal(remove(path), 0);
	assert_int_equal(mkdir(path, 0755), 0);
	expect_failure("config is a directory", directory, HYMT_FAILURE_MODEL_UNREADABLE, CONFIG);
}

/* A link that leads nowhere is not the absence of a file. */
static void
test_dangling_links(void **state)
{
	static const char *const names[] = {CONFIG, GENERATION, "hymt.json", "tokenizer.json", SINGLE,
		"model.safetensors.index.json"};

	(void) state;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
	{
		const char *directory = small_model("links");
		char		path[PATH_BYTES + 64];

		if (i == 5)
		{
			snprintf(path, sizeof path, "%s/" SINGLE, directory);
			assert_int_equal(remove(path), 0);
		}
		snprintf(path, sizeof path, "%s/%s", directory, names[i]);
		remove(path);
		assert_int_equal(symlink("../blobs/none", path), 0);
		expect_failure(names[i], directory, HYMT_FAILURE_MODEL_UNREADABLE, names[i]);
	}
}

static void
test_unreadable_files(void **state)
{
	static const char *const names[] = {"", "/" CONFIG, "/" SINGLE};
	bool		root = geteuid() == 0;

	(void) state;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
	{
		const char *directory = small_model("unreadable");
		char		path[PATH_BYTES + 64];

		snprintf(path, sizeof path, "%s%s", directory, names[i]);
		assert_int_equal(chmod(path, 0), 0);
		if (root)
			assert_int_equal(seteuid(65534), 0);	/* root may read everything */
		expect_failure(path, directory, HYMT_FAILURE_MODEL_UNREADABLE, "Permission denied");
		if (root)
			assert_int_equal(seteuid(0), 0);
		assert_int_equal(chmod(path, 0755), 0);
	}
}

/* --- family, name, languages -------------------------------------------------------------------------------------- */

static void
expect_family(const char *directory, HymtFamily wish, HymtFamily family, const char *reason)
{
	HymtModelOptions options = {.family = wish};
	HymtModel	model;

	open_model(&model, directory, &options);
	if (model.family != family || strstr(model.family_reason, reason) == NULL)
		fail_msg("%s: expected %s because of \"%s\", got %s because of \"%s\"", directory,
				 hymt_family_name(family), reason, hymt_family_name(model.family), model.family_reason);
	hymt_model_close(&model);
}

static void
test_family_from_folder(void **state)
{
	static const struct
	{
		const char *folder;
		HymtFamily	family;
	}			folders[] = {
		{"Hunyuan-MT-7B", HYMT_FAMILY_HUNYUAN_MT},
		{"hunyuan_mt", HYMT_FAMILY_HUNYUAN_MT},
		{"Hunyuan-MT-7B-fp8", HYMT_FAMILY_HUNYUAN_MT},
		{"Hunyuan-MT-Chimera-7B", HYMT_FAMILY_UNKNOWN},
		{"HY-MT1.5-1.8B", HYMT_FAMILY_HY_MT15},
		{"HY-MT1.5-7B", HYMT_FAMILY_HY_MT15},
		{"tencent-hy-mt1.5", HYMT_FAMILY_HY_MT15},
		{"hy_mt_1.5_7b", HYMT_FAMILY_HY_MT15},
		{"Hunyuan-MT1.5-7B", HYMT_FAMILY_HY_MT15},
		{"Hy-MT2-7B", HYMT_FAMILY_HY_MT2},
		{"hy-mt2", HYMT_FAMILY_HY_MT2},
		{"HyMT2_1.8B", HYMT_FAMILY_HY_MT2},
		{"hy-mt-2b", HYMT_FAMILY_UNKNOWN},	/* a size, not a version */
		{"why-mt2", HYMT_FAMILY_UNKNOWN},
		{"hy-mt25", HYMT_FAMILY_UNKNOWN},
		{"hy-mt2-from-hy-mt1.5", HYMT_FAMILY_UNKNOWN},	/* names two */
		{"hunyuan_gqa", HYMT_FAMILY_UNKNOWN},
		{"translator", HYMT_FAMILY_UNKNOWN},
	};

	(void) state;
	for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
		expect_family(small_model(folders[i].folder), HYMT_FAMILY_UNKNOWN, folders[i].family,
					  folders[i].family == HYMT_FAMILY_UNKNOWN ? "neither" : "folder name");
}

/* Names of Llama models tell only of Llama models. */
static void
test_family_of_llama_models(void **state)
{
	static const struct
	{
		const char *folder;
		HymtFamily	family;
	}			folders[] = {
		{"ALMA-7B", HYMT_FAMILY_ALMA},
		{"haoranxu_alma-13b-r", HYMT_FAMILY_ALMA},
		{"ALMA-7B-Pretrain", HYMT_FAMILY_UNKNOWN},	/* not yet trained on any prompt */
		{"X-ALMA-13B-Group1", HYMT_FAMILY_UNKNOWN},
		{"almanac", HYMT_FAMILY_UNKNOWN},
		{"TowerInstruct-7B-v0.2", HYMT_FAMILY_TOWER},
		{"tower-instruct", HYMT_FAMILY_TOWER},
		{"TowerBase-7B-v0.1", HYMT_FAMILY_UNKNOWN},
		{"HY-MT1.5-7B", HYMT_FAMILY_UNKNOWN},
	};
	char	   *llama = edited_config("HunYuanDenseV1ForCausalLM", "LlamaForCausalLM");

	(void) state;
	for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
	{
		const char *directory = small_model(folders[i].folder);

		if (folders[i].family != HYMT_FAMILY_UNKNOWN)
			expect_family(directory, HYMT_FAMILY_UNKNOWN, HYMT_FAMILY_UNKNOWN, "neither");
		write_text(directory, CONFIG, llama);
		expect_family(directory, HYMT_FAMILY_UNKNOWN, folders[i].family,
					  folders[i].family == HYMT_FAMILY_UNKNOWN ? "neither" : "folder name");
		expect_family(directory, HYMT_FAMILY_ALMA, HYMT_FAMILY_ALMA, "setting");
	}
	free(llama);
}

/* hymt.json: a whole wording of its own, or one that completes a family's. */
static void
test_templates(void **state)
{
	const char *directory = small_model("Hy-MT2-7B-templates");
	HymtModel	model;

	(void) state;
	write_text(directory, "hymt.json", "{\"templates\": {\"plain\": \"{text}\", \"chat\": \"<{prompt}>\"}}");
	expect_family(directory, HYMT_FAMILY_UNKNOWN, HYMT_FAMILY_TEMPLATES, "hymt.json");
	expect_family(directory, HYMT_FAMILY_HY_MT2, HYMT_FAMILY_TEMPLATES, "hymt.json");
	open_model(&model, directory, NULL);
	assert_int_equal(model.template_count, 2);
	assert_string_equal(model.templates[1].form, "chat");
	assert_string_equal(model.templates[1].text, "<{prompt}>");
	assert_string_equal(hymt_family_name(model.family), "templates");
	hymt_model_close(&model);
	write_text(directory, "hymt.json", "{\"templates\": {\"style_en\": \"{text} {style}\"}}");
	expect_family(directory, HYMT_FAMILY_UNKNOWN, HYMT_FAMILY_HY_MT2, "folder name");
	write_text(directory, "hymt.json", "{\"prompts\": \"alma\", \"templates\": {\"plain\": \"{text}\"}}");
	expect_family(directory, HYMT_FAMILY_UNKNOWN, HYMT_FAMILY_ALMA, "hymt.json");
	assert_int_equal(hymt_family_find("templates"), HYMT_FAMILY_UNKNOWN);
}

/* Each source of the family outranks those after it. */
static void
test_family_order(void **state)
{
	const char *directory = small_model("Hunyuan-MT-7B-order");

	(void) state;
	expect_family(directory, HYMT_FAMILY_UNKNOWN, HYMT_FAMILY_HUNYUAN_MT, "folder name");
	write_text(directory, "README.md", "---\nlanguage:\n- zh\n---\n\n<p>x</p>\n# Hy-MT2 translation\n# HY-MT1.5\n");
	expect_family(directory, HYMT_FAMILY_UNKNOWN, HYMT_FAMILY_HY_MT2, "title: Hy-MT2 translation");
	write_text(directory, "README.md", "---\nbase_model: tencent/HY-MT1.5-7B\n---\n# Hy-MT2\n");
	expect_family(directory, HYMT_FAMILY_UNKNOWN, HYMT_FAMILY_HY_MT15, "base_model: tencent/HY-MT1.5-7B");
	write_text(directory, "README.md", "---\r\nbase_model:\r\n  - tencent/HY-MT1.5-7B\r\nx: y\r\n---\r\n# Hy-MT2\r\n");
	expect_family(directory, HYMT_FAMILY_UNKNOWN, HYMT_FAMILY_HY_MT15, "base_model");
	expect_family(directory, HYMT_FAMILY_HUNYUAN_MT, HYMT_FAMILY_HUNYUAN_MT, "setting");
	write_text(directory, "hymt.json", "{\"prompts\": \"hy-mt2\"}");
	expect_family(directory, HYMT_FAMILY_HUNYUAN_MT, HYMT_FAMILY_HY_MT2, "hymt.json");
}

static void
expect_name(const char *directory, const char *name)
{
	HymtModel	model;

	open_model(&model, directory, NULL);
	assert_string_equal(model.name, name);
	hymt_model_close(&model);
}

static void
test_name(void **state)
{
	const char *directory = small_model("folder");

	(void) state;
	expect_name(directory, "folder");
	write_text(directory, "README.md", "no front matter\n\n#  Title of it  \n");
	expect_name(directory, "Title of it");
	write_text(directory, "README.md", "# broken \xFF text\n");
	expect_name(directory, "folder");
	write_text(directory, "README.md", "---\nnever closed: 1\n");
	expect_name(directory, "folder");
	write_text(directory, "hymt.json", "{\"name\": \"Übersetzer\"}");
	expect_name(directory, "Übersetzer");
}

static void
test_hymt_json(void **state)
{
	static const struct
	{
		const char *text;
		const char *words;
	}			bad[] = {
		{"{", "line"},
		{"3", "line"},
		{"[]", "object"},
		{"{\"prompts\": 1}", "prompts"},
		{"{\"prompts\": \"hy-mt3\"}", "hy-mt3"},
		{"{\"prompts\": \"unknown\"}", "unknown"},
		{"{\"languages\": \"en\"}", "languages"},
		{"{\"languages\": []}", "languages"},
		{"{\"languages\": [\"en\", 1]}", "languages"},
		{"{\"languages\": [\"en\", \"tlh\"]}", "tlh"},
		{"{\"name\": 1}", "name"},
		{"{\"name\": \"\"}", "name"},
		{"{\"name\": \"two\\nlines\"}", "name"},
		{"{\"name\": \"two\\u2028lines\"}", "name"},
		{"{\"name\": \"\\u009b1m\"}", "name"},
		{"{\"prompts\": \"hy-mt2\", \"prompts\": \"hy-mt1.5\"}", "duplicate"},
		{"{\"templates\": {}}", "templates"},
		{"{\"templates\": \"{text}\"}", "templates"},
		{"{\"templates\": {\"plain\": 1}}", "must be a string"},
		{"{\"templates\": {\"plain\": \"{text}\\u0000\"}}", "hymt.json"},
		{"{\"templates\": {\"plain\": \"x\"}}", "\"plain\" must have the slot {text}"},
		{"{\"templates\": {\"chat\": \"x{prompt}\", \"plaine\": \"{text}\"}}", "\"plaine\" is no form"},
	};
	const char *directory = small_model("settings");
	HymtModel	model;

	(void) state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
	{
		write_text(directory, "hymt.json", bad[i].text);
		expect_failure(bad[i].text, directory, BROKEN, bad[i].words);
		expect_failure(bad[i].text, directory, BROKEN, "hymt.json");
	}
	write_text(directory, "hymt.json", "{\"languages\": [\"EN\", \"zh-CN\", \"zh-TW\", \"en-US\"], \"more\": 1}");
	open_model(&model, directory, NULL);
	assert_string_equal(model.languages, "en zh zh-Hant");
	hymt_model_close(&model);
}

/* --- fingerprint -------------------------------------------------------------------------------------------------- */

static void
take_fingerprint(char fingerprint[65], const char *directory, HymtFamily wish)
{
	HymtModelOptions options = {.family = wish};
	HymtModel	model;

	open_model(&model, directory, &options);
	strcpy(fingerprint, model.fingerprint);
	hymt_model_close(&model);
}

/* The sharded reference model, written as one file, in another folder. */
static void
test_fingerprint_ignores_sharding(void **state)
{
	static const char source[] = VECTORS "hunyuan_untied_sharded_bf16";
	TensorSpec	specs[64];
	char		sharded[65];
	char		single[65];
	HymtModel	model;
	const char *directory = test_directory("single");

	(void) state;
	open_model(&model, source, NULL);
	assert_true(model.weight_count <= 64);
	for (size_t i = 0; i < model.weight_count; i++)
	{
		/* in another order than by name */
		const HymtWeight *weight = &model.weights[model.weight_count - 1 - i];

		specs[i] = (TensorSpec) {
			weight->name, hymt_dtype_name(weight->tensor->dtype),
			weight->vector ? 0 : (int) weight->tensor->rows, (int) weight->tensor->columns, weight->tensor->data
		};
	}
	write_tensors(directory, SINGLE, specs, (int) model.weight_count, 1);
	copy_file(source, directory, CONFIG);
	hymt_model_close(&model);
	take_fingerprint(sharded, source, HYMT_FAMILY_UNKNOWN);
	take_fingerprint(single, directory, HYMT_FAMILY_UNKNOWN);
	assert_string_equal(sharded, single);
}

/* Everything an answer depends on. */
static void
test_fingerprint_sees_changes(void **state)
{
	char		seen[11][65];
	int			count = 0;
	size_t		length;
	char	   *file;
	const char *directory = small_model("changes");

	(void) state;
	take_fingerprint(seen[count++], directory, HYMT_FAMILY_UNKNOWN);
	take_fingerprint(seen[count++], directory, HYMT_FAMILY_HY_MT2);
	write_text(directory, "tokenizer.json", "{}");
	take_fingerprint(seen[count++], directory, HYMT_FAMILY_UNKNOWN);
	write_text(directory, "tokenizer.json", "{} ");
	take_fingerprint(seen[count++], directory, HYMT_FAMILY_UNKNOWN);
	write_text(directory, "hymt.json", "{}");
	take_fingerprint(seen[count++], directory, HYMT_FAMILY_UNKNOWN);
	write_text(directory, GENERATION, "{}");
	take_fingerprint(seen[count++], directory, HYMT_FAMILY_UNKNOWN);
	write_text(directory, GENERATION, "{\"repetition_penalty\": 1.05}");
	take_fingerprint(seen[count++], directory, HYMT_FAMILY_UNKNOWN);
	file = read_whole(directory, SINGLE, &length);
	file[length - 100] ^= 1;
	write_file(directory, SINGLE, file, length);
	free(file);
	take_fingerprint(seen[count++], directory, HYMT_FAMILY_UNKNOWN);
	file = edited_config("1e-05", "1e-06");
	write_text(directory, CONFIG, file);
	free(file);
	take_fingerprint(seen[count++], directory, HYMT_FAMILY_UNKNOWN);
	write_text(directory, "added_tokens.json", "{}");	/* counts beside a tokenizer.model */
	write_text(directory, "tokenizer.model", "x");
	take_fingerprint(seen[count++], directory, HYMT_FAMILY_UNKNOWN);
	write_text(directory, "added_tokens.json", "{\"<x>\": 9}");
	take_fingerprint(seen[count++], directory, HYMT_FAMILY_UNKNOWN);
	assert_int_equal(count, 11);
	for (int i = 0; i < count; i++)
		for (int j = 0; j < i; j++)
			assert_string_not_equal(seen[i], seen[j]);
}

/* --- progress ----------------------------------------------------------------------------------------------------- */

typedef struct Progress
{
	int			last;
	bool		reading;		/* of weights was told */
} Progress;

static void
note_progress(void *context, int percent, const char *phase)
{
	Progress   *progress = context;

	assert_true(percent >= progress->last && percent <= 100);
	assert_true(phase != NULL && phase[0] != '\0');
	progress->last = percent;
	progress->reading = progress->reading || strcmp(phase, "reading weights") == 0;
}

static void
test_progress(void **state)
{
	Progress	progress = {0};
	HymtModelOptions options = {.progress = note_progress, .progress_context = &progress};
	HymtModel	model;

	(void) state;
	open_model(&model, DEMO, &options);
	hymt_model_close(&model);
	assert_true(progress.reading);
	assert_int_equal(progress.last, 100);
}

/* --- random damage ------------------------------------------------------------------------------------------------ */

static uint64_t random_state = 88172645463325252u;

static uint32_t
next_random(uint32_t bound)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t) (random_state >> 33) % bound;
}

/* Damaged small files: each is refused with a message, or opens a model whose numbers are in bounds. */
static void
test_survives_random_damage(void **state)
{
	static const char *const names[] = {CONFIG, GENERATION, "hymt.json", "README.md"};
	static const char likely[] = "0123456789-.eE{}[]\",:\\ untf";
	const char *directory = small_model("damage");
	int			before = open_descriptors();
	int			accepted = 0;

	(void) state;
	write_text(directory, GENERATION, "{\"eos_token_id\": [5, 7], \"repetition_penalty\": 1.05}");
	write_text(directory, "hymt.json", "{\"prompts\": \"hy-mt2\", \"languages\": [\"en\", \"zh\"], \"name\": \"x\"}");
	write_text(directory, "README.md", "---\nbase_model:\n- tencent/HY-MT1.5-7B\n---\n# Hy-MT2\n");
	for (int round = 0; round < 1500; round++)
	{
		const char *name = names[next_random(sizeof names / sizeof names[0])];
		size_t		length;
		char	   *original = read_whole(directory, name, &length);
		char	   *damaged = malloc(length + 1);
		HymtError	error = {HYMT_FAILURE_NONE, ""};
		HymtModel	model;

		assert_non_null(damaged);
		memcpy(damaged, original, length);
		for (uint32_t n = 1 + next_random(3); n > 0; n--)
			damaged[next_random((uint32_t) length)] = next_random(4) == 0 ? (char) next_random(256)
				: likely[next_random(sizeof likely - 1)];
		write_file(directory, name, damaged, next_random(8) == 0 ? next_random((uint32_t) length) : length);
		if (hymt_model_open(&model, directory, NULL, &error))
		{
			accepted++;
			assert_true(model.config.rope_base >= 1 && isfinite(model.config.rope_base));
			assert_true(model.config.head_dim % 2 == 0 && model.config.heads % model.config.kv_heads == 0);
			for (int i = 0; i < model.config.stop_count; i++)
				assert_true(model.config.stop_ids[i] >= 0 && model.config.stop_ids[i] < model.config.vocab);
			hymt_model_close(&model);
		}
		else
			assert_true(error.failure != HYMT_FAILURE_NONE && error.message[0] != '\0');
		write_file(directory, name, original, length);
		free(original);
		free(damaged);
	}
	assert_true(accepted > 0 && accepted < 1500);
	assert_int_equal(open_descriptors(), before);
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

/* A message is cut between characters, is one line of valid UTF-8, and may quote the error it replaces. */
static void
test_long_messages(void **state)
{
	char		text[1024];
	HymtError	error;

	(void) state;
	for (size_t i = 0; i + 3 < sizeof text; i += 3)
		memcpy(text + i, "中", 4);
	for (int lead = 0; lead < 3; lead++)
	{
		assert_false(hymt_fail(&error, HYMT_FAILURE_INTERNAL, "%.*s%s", lead, "xx", text));
		assert_int_equal((strlen(error.message) - (size_t) lead) % 3, 0);
		assert_true(strlen(error.message) >= sizeof error.message - 3);
	}
	hymt_fail(&error, HYMT_FAILURE_INTERNAL, "a\nb\x1B[1m \xFF %.2s%.1s|\xE4\xB8", "中", "ü");
	assert_string_equal(error.message, "a?b?[1m ? ??|?");
	hymt_fail(&error, HYMT_FAILURE_INTERNAL, "\x7F|\xC2\x9B|\xC2\x85|\u00A0|\u2028|\u2029|\u202F|\xC2");
	assert_string_equal(error.message, "?|?|?|\u00A0|?|?|\u202F|?");
	hymt_fail(&error, HYMT_FAILURE_INTERNAL, "inner");
	hymt_fail(&error, HYMT_FAILURE_NUMERIC, "outer: %s", error.message);
	assert_string_equal(error.message, "outer: inner");
	assert_int_equal(error.failure, HYMT_FAILURE_NUMERIC);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reference_models),
		cmocka_unit_test(test_demo_settings),
		cmocka_unit_test(test_refuses_configs),
		cmocka_unit_test(test_config_spellings),
		cmocka_unit_test(test_generation_config),
		cmocka_unit_test(test_refuses_weights),
		cmocka_unit_test(test_refuses_misaligned_weights),
		cmocka_unit_test(test_ignores_a_tied_models_head),
		cmocka_unit_test(test_missing_files),
		cmocka_unit_test(test_dangling_links),
		cmocka_unit_test(test_unreadable_files),
		cmocka_unit_test(test_family_from_folder),
		cmocka_unit_test(test_family_of_llama_models),
		cmocka_unit_test(test_templates),
		cmocka_unit_test(test_family_order),
		cmocka_unit_test(test_name),
		cmocka_unit_test(test_hymt_json),
		cmocka_unit_test(test_fingerprint_ignores_sharding),
		cmocka_unit_test(test_fingerprint_sees_changes),
		cmocka_unit_test(test_progress),
		cmocka_unit_test(test_survives_random_damage),
		cmocka_unit_test(test_long_messages),
	};

	return cmocka_run_group_tests_name("model", tests, test_set_up, test_tear_down);
}
