/*
 * test_gguf.c: GGUF files: the container, the configuration and the tokenizer in it, and that every lie is refused.
 */
#define _GNU_SOURCE				/* nftw */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "gguf.h"
#include "locate.h"
#include "model.h"
#include "model_parts.h"
#include "tokenizer.h"

#include "model_files.h"
#include "gguf_files.h"

#define FILE_NAME "small.gguf"
#define BROKEN HYMT_FAILURE_MODEL_BROKEN
#define UNSUPPORTED HYMT_FAILURE_MODEL_UNSUPPORTED

#define A "hunyuan-dense."

/* --- a small model ------------------------------------------------------------------------------------------------ */

/* What may be left out or replaced: a key, which is then written by `instead`, or not at all. */
typedef struct Change
{
	const char *key;
	void		(*instead) (GgufFile *file);
} Change;

static bool
changed(GgufFile *file, const Change *change, const char *key)
{
	if (change == NULL || strcmp(change->key, key) != 0)
		return false;
	if (change->instead != NULL)
		change->instead(file);
	return true;
}

static const struct
{
	const char *key;
	uint32_t	number;
}			numbers[] = {
	{A "block_count", 1}, {A "context_length", 64}, {A "embedding_length", 8}, {A "feed_forward_length", 6},
	{A "attention.head_count", 2}, {A "attention.head_count_kv", 1}, {A "attention.key_length", 4},
	{A "attention.value_length", 4}, {A "rope.dimension_count", 4}, {A "vocab_size", 10},
	{"tokenizer.ggml.eos_token_id", 8}, {"general.alignment", 32},
};

static const char *const token_texts[] = {"a", "b", "\u0120", "1", "ab", "\u0120a", "<|user|>", "[PAD7]", "<|end|>",
	"[PAD9]"};
static const int32_t token_types[] = {1, 1, 1, 1, 1, 1, 4, 5, 3, 5};
static const char *const merge_texts[] = {"a b", "\u0120 a"};

#define TOKENS 10

static void
put_values(GgufFile *file, const Change *change)
{
	if (!changed(file, change, "general.architecture"))
		put_text(file, "general.architecture", "hunyuan-dense");
	if (!changed(file, change, "general.name"))
		put_text(file, "general.name", "Some Model");
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		if (!changed(file, change, numbers[i].key))
			put_u32(file, numbers[i].key, numbers[i].number);
	if (!changed(file, change, A "attention.layer_norm_rms_epsilon"))
		put_f32(file, A "attention.layer_norm_rms_epsilon", 1e-5f);
	if (!changed(file, change, A "rope.freq_base"))
		put_f32(file, A "rope.freq_base", 25000000);
	if (!changed(file, change, "tokenizer.ggml.model"))
		put_text(file, "tokenizer.ggml.model", "gpt2");
	if (!changed(file, change, "tokenizer.ggml.pre"))
		put_text(file, "tokenizer.ggml.pre", "hunyuan-dense");
	if (!changed(file, change, "tokenizer.ggml.tokens"))
		put_texts(file, "tokenizer.ggml.tokens", token_texts, TOKENS);
	if (!changed(file, change, "tokenizer.ggml.token_type"))
		put_integers(file, "tokenizer.ggml.token_type", token_types, TOKENS);
	if (!changed(file, change, "tokenizer.ggml.merges"))
		put_texts(file, "tokenizer.ggml.merges", merge_texts, 2);
	changed(file, change, "more");
}

#define L "blk.0."

static const struct
{
	const char *name;
	uint64_t	columns;
	uint64_t	rows;
}			tensors[] = {
	{"token_embd.weight", 8, 10}, {"output_norm.weight", 8, 0}, {L "attn_norm.weight", 8, 0},
	{L "attn_q.weight", 8, 8}, {L "attn_k.weight", 8, 4}, {L "attn_v.weight", 8, 4}, {L "attn_output.weight", 8, 8},
	{L "attn_q_norm.weight", 4, 0}, {L "attn_k_norm.weight", 4, 0}, {L "ffn_norm.weight", 8, 0},
	{L "ffn_gate.weight", 8, 6}, {L "ffn_up.weight", 8, 6}, {L "ffn_down.weight", 6, 8},
};

#define TENSORS (sizeof tensors / sizeof tensors[0])

static void
build(GgufFile *file, const Change *change)
{
	gguf_start(file);
	set_mark(file, "first key");
	put_values(file, change);
	for (size_t i = 0; i < TENSORS; i++)
	{
		if (i == 3)
			set_mark(file, "fourth tensor");
		put_tensor(file, tensors[i].name, tensors[i].columns, tensors[i].rows, 0,
				   4 * tensors[i].columns * (tensors[i].rows == 0 ? 1 : tensors[i].rows));
	}
	if (change != NULL && strcmp(change->key, "tensors") == 0)
		change->instead(file);
	gguf_finish(file);
}

static const char *
write_gguf(const GgufFile *file)
{
	static char path[PATH_BYTES + 64];
	const char *directory = test_directory("gguf");

	write_file(directory, FILE_NAME, file->bytes, file->length);
	snprintf(path, sizeof path, "%s/" FILE_NAME, directory);
	return path;
}

static void
expect_model_failure(const char *label, const char *path, HymtFailure failure, const char *words)
{
	int			before = open_descriptors();
	HymtError	error = {HYMT_FAILURE_NONE, ""};
	HymtModel	model;
	bool		ok = hymt_model_open(&model, path, NULL, &error);

	if (ok || error.failure != failure || strstr(error.message, words) == NULL)
		fail_msg("%s: expected failure %d with \"%s\", got %s, %d, \"%s\"", label, failure, words,
				 ok ? "success" : "failure", error.failure, error.message);
	assert_non_null(strstr(error.message, FILE_NAME));
	assert_int_equal(open_descriptors(), before);
}

static void
open_model(HymtModel *model, const char *path)
{
	HymtError	error = {HYMT_FAILURE_NONE, ""};

	if (!hymt_model_open(model, path, NULL, &error))
		fail_msg("%s: %s", path, error.message);
}

/* --- what is read ------------------------------------------------------------------------------------------------- */

static void
test_reads_a_model(void **state)
{
	static GgufFile file;
	HymtModel	model;
	const float *data;

	(void) state;
	build(&file, NULL);
	open_model(&model, write_gguf(&file));
	assert_string_equal(model.name, "Some Model");
	assert_int_equal(model.config.hidden, 8);
	assert_int_equal(model.config.layers, 1);
	assert_int_equal(model.config.heads, 2);
	assert_int_equal(model.config.kv_heads, 1);
	assert_int_equal(model.config.head_dim, 4);
	assert_int_equal(model.config.intermediate, 6);
	assert_int_equal(model.config.vocab, 10);
	assert_int_equal(model.config.max_position, 64);
	assert_true(model.config.rope_base == 25000000);
	assert_true(model.config.norm_eps == 1e-5f);
	assert_true(model.config.tied);
	assert_true(model.config.repetition_penalty == 1);
	assert_int_equal(model.config.stop_count, 1);
	assert_int_equal(model.config.stop_ids[0], 8);
	assert_int_equal(model.layer[0].down.rows, 8);
	assert_int_equal(model.layer[0].down.columns, 6);
	assert_int_equal(model.layer[0].k.rows, 4);
	/* the first tensor begins where the data do */
	data = model.embedding.data;
	assert_memory_equal(data, file.bytes + mark_at(&file, "data"), 4 * 80);
	assert_int_equal(model.parameters, 10 * 8 + 3 * 8 + 64 + 32 + 32 + 64 + 4 + 4 + 48 + 48 + 48);
	assert_int_equal(model.stored_bytes, 4 * model.parameters);
	assert_int_equal(hymt_stored_file_count(model.files), 1);
	hymt_model_close(&model);
}

static void
put_untied(GgufFile *file)
{
	put_tensor(file, "output.weight", 8, 10, 0, 320);
}

static void
put_sampling(GgufFile *file)
{
	put_f32(file, "general.sampling.penalty_repeat", 1.05f);
	put_u32(file, "general.sampling.top_k", 20);
	put_u32(file, "tokenizer.ggml.eot_token_id", 3);
	put_text(file, A "rope.scaling.type", "none");
}

static void
test_optional_parts(void **state)
{
	static GgufFile file;
	Change		untied = {"tensors", put_untied};
	Change		sampling = {"more", put_sampling};
	static const char *const optional[] = {A "vocab_size", A "attention.key_length", A "attention.value_length",
		A "rope.dimension_count", "general.name", "general.alignment", "tokenizer.ggml.pre"};
	HymtModel	model;

	(void) state;
	build(&file, &untied);
	open_model(&model, write_gguf(&file));
	assert_false(model.config.tied);
	assert_ptr_not_equal(model.head.data, model.embedding.data);
	hymt_model_close(&model);

	build(&file, &sampling);
	open_model(&model, write_gguf(&file));
	assert_true(model.config.repetition_penalty == 1.05f);
	assert_int_equal(model.config.stop_count, 2);
	assert_int_equal(model.config.stop_ids[1], 3);
	hymt_model_close(&model);

	for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
	{
		Change		without = {optional[i], NULL};

		build(&file, &without);
		open_model(&model, write_gguf(&file));
		assert_int_equal(model.config.vocab, 10);
		assert_int_equal(model.config.head_dim, 4);
		hymt_model_close(&model);
	}
}

/* A directory with one GGUF file is that file; safetensors go first; several are a question. */
static void
test_directories(void **state)
{
	static GgufFile file;
	HymtError	error;
	HymtLocation location;
	const char *directory;
	HymtModel	model;

	(void) state;
	build(&file, NULL);
	write_gguf(&file);
	directory = test_directory("located");
	assert_true(hymt_model_locate(&location, directory, &error));
	assert_null(location.gguf);
	hymt_location_free(&location);
	write_file(directory, FILE_NAME, file.bytes, file.length);
	write_text(directory, "hymt.json", "{\"name\": \"Called so\", \"prompts\": \"hy-mt2\"}");
	open_model(&model, directory);
	assert_string_equal(model.name, "Called so");
	assert_int_equal(model.family, HYMT_FAMILY_HY_MT2);
	assert_string_equal(model.directory, directory);
	assert_non_null(strstr(model.gguf, "/" FILE_NAME));
	hymt_model_close(&model);
	write_file(directory, "other.GGUF", file.bytes, file.length);
	assert_false(hymt_model_open(&model, directory, NULL, &error));
	assert_int_equal(error.failure, UNSUPPORTED);
	assert_non_null(strstr(error.message, "other.GGUF"));
	write_text(directory, "model.safetensors", "");
	assert_true(hymt_model_locate(&location, directory, &error));
	assert_null(location.gguf);
	hymt_location_free(&location);
	assert_false(hymt_model_locate(&location, "/dev/null", &error));
	assert_int_equal(error.failure, HYMT_FAILURE_MODEL_MISSING);
}

static void
put_family(GgufFile *file)
{
	put_text(file, "general.name", "HY MT1.5 1.8B");
}

/* The name inside the file tells more than those around it. */
static void
test_family(void **state)
{
	static GgufFile file;
	Change		name = {"general.name", put_family};
	Change		nameless = {"general.name", NULL};
	HymtModel	model;
	char		path[PATH_BYTES + 64];
	const char *directory;

	(void) state;
	build(&file, &name);
	directory = test_directory("Hunyuan-MT-7B-GGUF");
	write_file(directory, "Hy-MT2-7B-Q4_K_M.gguf", file.bytes, file.length);
	open_model(&model, directory);
	assert_int_equal(model.family, HYMT_FAMILY_HY_MT15);
	assert_non_null(strstr(model.family_reason, "general.name"));
	hymt_model_close(&model);
	build(&file, &nameless);
	write_file(directory, "Hy-MT2-7B-Q4_K_M.gguf", file.bytes, file.length);
	snprintf(path, sizeof path, "%s/Hy-MT2-7B-Q4_K_M.gguf", directory);
	open_model(&model, path);
	assert_int_equal(model.family, HYMT_FAMILY_HY_MT2);
	assert_non_null(strstr(model.family_reason, "file name"));
	assert_string_equal(model.name, "Hy-MT2-7B-Q4_K_M.gguf");
	hymt_model_close(&model);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

/* Offsets from a mark to fields behind it: of the first key ("general.architecture", a string), of the fourth tensor. */
#define FIRST_TYPE (8 + 20)
#define FIRST_LENGTH (FIRST_TYPE + 4)
#define TENSOR_DIMENSIONS (8 + 19)	/* behind "blk.0.attn_q.weight" */
#define TENSOR_COLUMNS (TENSOR_DIMENSIONS + 4)
#define TENSOR_ROWS (TENSOR_COLUMNS + 8)
#define TENSOR_TYPE (TENSOR_ROWS + 8)
#define TENSOR_OFFSET (TENSOR_TYPE + 4)

static const struct
{
	const char *label;
	const char *mark;
	int			offset;
	uint64_t	number;
	size_t		size;
	HymtFailure failure;
	const char *words;
}			lies[] = {
	{"magic", "magic", 0, 0x46554746, 4, BROKEN, "no GGUF"},
	{"version 2", "version", 0, 2, 4, UNSUPPORTED, "version 2"},
	{"big endian", "version", 0, 0x03000000, 4, UNSUPPORTED, "byte order"},
	{"no tensors", "tensor count", 0, 0, 8, BROKEN, "token_embd"},
	{"more tensors than there are", "tensor count", 0, TENSORS + 1, 8, BROKEN, FILE_NAME},
	{"tensors without end", "tensor count", 0, UINT64_MAX, 8, BROKEN, "more keys or tensors"},
	{"keys without end", "value count", 0, UINT64_MAX, 8, BROKEN, "more keys or tensors"},
	{"many keys", "value count", 0, 200, 8, BROKEN, "truncated"},
	{"a key too many", "value count", 0, 40, 8, BROKEN, FILE_NAME},
	{"a key without end", "first key", 0, UINT64_MAX, 8, BROKEN, "truncated"},
	{"an empty key", "first key", 0, 0, 8, BROKEN, "empty"},
	{"a zero byte in a key", "first key", 9, 0, 1, BROKEN, "zero byte"},
	{"a type that does not exist", "first key", FIRST_TYPE, 13, 4, BROKEN, "type that does not exist"},
	{"a string without end", "first key", FIRST_LENGTH, UINT64_MAX - 4, 8, BROKEN, "truncated"},
	{"no string", "first key", FIRST_TYPE, 11, 4, BROKEN, FILE_NAME},
	{"a name without end", "fourth tensor", 0, UINT64_MAX, 8, BROKEN, "truncated"},
	{"a long name", "fourth tensor", 0, 256, 8, BROKEN, "too long"},
	{"no name", "fourth tensor", 0, 0, 8, BROKEN, "empty"},
	{"no dimension", "fourth tensor", TENSOR_DIMENSIONS, 0, 4, BROKEN, "dimension"},
	{"five dimensions", "fourth tensor", TENSOR_DIMENSIONS, 5, 4, BROKEN, "dimension"},
	{"an empty dimension", "fourth tensor", TENSOR_COLUMNS, 0, 8, BROKEN, "empty dimension"},
	{"a huge dimension", "fourth tensor", TENSOR_ROWS, UINT64_MAX, 8, BROKEN, "beyond any memory"},
	{"a huge shape", "fourth tensor", TENSOR_ROWS, UINT64_C(1) << 61, 8, BROKEN, "beyond any memory"},
	{"a large shape", "fourth tensor", TENSOR_ROWS, UINT64_C(1) << 58, 8, BROKEN, "of the data, which has only"},
	{"other rows", "fourth tensor", TENSOR_ROWS, 7, 8, BROKEN, "blk.0.attn_q.weight\" has shape [7, 8]"},
	{"no whole blocks", "fourth tensor", TENSOR_TYPE, 8, 4, BROKEN, "whole blocks"},
	{"unknown type", "fourth tensor", TENSOR_TYPE, 4, 4, UNSUPPORTED, "unknown type 4"},
	{"unknown large type", "fourth tensor", TENSOR_TYPE, UINT32_MAX, 4, UNSUPPORTED, "unknown type"},
	{"unusable type", "fourth tensor", TENSOR_TYPE, 24, 4, UNSUPPORTED, "stored as I8"},
	{"misaligned", "fourth tensor", TENSOR_OFFSET, 4, 8, BROKEN, "aligned"},
	{"behind the end", "fourth tensor", TENSOR_OFFSET, 1 << 20, 8, BROKEN, "truncated"},
	{"far behind the end", "fourth tensor", TENSOR_OFFSET, UINT64_MAX - 31, 8, BROKEN, "truncated"},
	{"overlapping", "fourth tensor", TENSOR_OFFSET, 0, 8, BROKEN, "overlap"},
};

static void
test_refuses_lies(void **state)
{
	static GgufFile file;

	(void) state;
	for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++)
	{
		build(&file, NULL);
		file.marks[file.mark_count++] = (Mark) {"lie", mark_at(&file, lies[i].mark) + (size_t) lies[i].offset};
		overwrite(&file, "lie", lies[i].number, lies[i].size);
		expect_model_failure(lies[i].label, write_gguf(&file), lies[i].failure, lies[i].words);
	}
}

/* A file that ends anywhere is refused, and so is one of any bytes. */
static void
test_truncated(void **state)
{
	static GgufFile file;
	size_t		whole;

	(void) state;
	build(&file, NULL);
	whole = file.length;
	for (size_t length = 1; length < whole; length += length < 200 ? 1 : 97)
	{
		file.length = length;
		expect_model_failure("truncated", write_gguf(&file), BROKEN, FILE_NAME);
	}
}

#define VALUE(name, put) static void name(GgufFile *file) { put; }

VALUE(put_twice, put_text(file, "general.architecture", "hunyuan-dense"))
VALUE(put_llama, put_text(file, "general.architecture", "llama"))
VALUE(put_split, put_u32(file, "split.count", 2))
VALUE(put_yarn, put_text(file, A "rope.scaling.type", "yarn"))
VALUE(put_alignment_7, put_u32(file, "general.alignment", 7))
VALUE(put_alignment_24, put_u32(file, "general.alignment", 24))
VALUE(put_alignment_0, put_u32(file, "general.alignment", 0))
VALUE(put_alignment_text, put_text(file, "general.alignment", "32"))
VALUE(put_layers_text, put_text(file, A "block_count", "1"))
VALUE(put_layers_0, put_u32(file, A "block_count", 0))
VALUE(put_layers_2, put_u32(file, A "block_count", 2))
VALUE(put_huge_hidden, put_u32(file, A "embedding_length", 4000000000))
VALUE(put_heads_0, put_u32(file, A "attention.head_count", 0))
VALUE(put_heads_3, put_u32(file, A "attention.head_count_kv", 3))
VALUE(put_partial, put_u32(file, A "rope.dimension_count", 2))
VALUE(put_long_values, put_u32(file, A "attention.value_length", 8))
VALUE(put_vocab_9, put_u32(file, A "vocab_size", 9))
VALUE(put_nan_eps, put_f32(file, A "attention.layer_norm_rms_epsilon", NAN))
VALUE(put_zero_eps, put_f32(file, A "attention.layer_norm_rms_epsilon", 0))
VALUE(put_text_base, put_text(file, A "rope.freq_base", "x"))
VALUE(put_infinite_base, put_f32(file, A "rope.freq_base", INFINITY))
VALUE(put_eos_99, put_u32(file, "tokenizer.ggml.eos_token_id", 99))
VALUE(put_eos_text, put_text(file, "tokenizer.ggml.eos_token_id", "x"))
VALUE(put_penalty, put_f32(file, "general.sampling.penalty_repeat", 0))
VALUE(put_nested, put_key(file, "x.y", 9); put_number(file, 9, 4); put_number(file, 0, 8))
VALUE(put_long_array, put_key(file, "x.y", 9); put_number(file, 10, 4); put_number(file, UINT64_MAX / 4, 8))
VALUE(put_bias, put_tensor(file, L "attn_q.bias", 8, 0, 0, 32))
VALUE(put_same_tensor, put_tensor(file, "token_embd.weight", 8, 10, 0, 320))

static const struct
{
	Change		change;
	HymtFailure failure;
	const char *words;
}			bad_values[] = {
	{{"general.architecture", NULL}, BROKEN, "general.architecture"},
	{{"general.architecture", put_llama}, UNSUPPORTED, "architecture llama"},
	{{"more", put_twice}, BROKEN, "is there twice"},
	{{"tensors", put_same_tensor}, BROKEN, "is there twice"},
	{{"tensors", put_bias}, UNSUPPORTED, "attn_q.bias\" is none of this architecture"},
	{{"more", put_split}, UNSUPPORTED, "split.count"},
	{{"more", put_yarn}, UNSUPPORTED, "rope.scaling.type"},
	{{"more", put_nested}, BROKEN, "array of arrays"},
	{{"more", put_long_array}, BROKEN, "truncated"},
	{{"general.alignment", put_alignment_7}, BROKEN, "general.alignment"},
	{{"general.alignment", put_alignment_24}, BROKEN, "general.alignment"},
	{{"general.alignment", put_alignment_0}, BROKEN, "general.alignment"},
	{{"general.alignment", put_alignment_text}, BROKEN, "general.alignment"},
	{{A "block_count", NULL}, BROKEN, A "block_count is missing"},
	{{A "block_count", put_layers_text}, BROKEN, A "block_count must be an integer"},
	{{A "block_count", put_layers_0}, BROKEN, "outside 1 to"},
	{{A "block_count", put_layers_2}, BROKEN, "\"blk.1.attn_norm.weight\" is missing"},
	{{A "embedding_length", put_huge_hidden}, BROKEN, FILE_NAME},
	{{A "attention.head_count", put_heads_0}, BROKEN, "outside 1 to"},
	{{A "attention.head_count_kv", put_heads_3}, BROKEN, "must divide"},
	{{A "rope.dimension_count", put_partial}, UNSUPPORTED, "rope.dimension_count"},
	{{A "attention.value_length", put_long_values}, UNSUPPORTED, "value_length"},
	{{A "vocab_size", put_vocab_9}, BROKEN, "vocab_size"},
	{{A "attention.layer_norm_rms_epsilon", NULL}, BROKEN, "layer_norm_rms_epsilon is missing"},
	{{A "attention.layer_norm_rms_epsilon", put_nan_eps}, BROKEN, "not finite"},
	{{A "attention.layer_norm_rms_epsilon", put_zero_eps}, BROKEN, "rms_norm_eps"},
	{{A "rope.freq_base", put_text_base}, BROKEN, "must be a number"},
	{{A "rope.freq_base", put_infinite_base}, BROKEN, "not finite"},
	{{"tokenizer.ggml.eos_token_id", put_eos_99}, BROKEN, "eos_token_id"},
	{{"tokenizer.ggml.eos_token_id", put_eos_text}, BROKEN, "eos_token_id"},
};

static void
test_refuses_values(void **state)
{
	static GgufFile file;
	Change		penalty = {"more", put_penalty};
	HymtError	error;
	HymtModel	model;

	(void) state;
	for (size_t i = 0; i < sizeof bad_values / sizeof bad_values[0]; i++)
	{
		build(&file, &bad_values[i].change);
		expect_model_failure(bad_values[i].change.key, write_gguf(&file), bad_values[i].failure, bad_values[i].words);
	}
	build(&file, &penalty);
	assert_false(hymt_model_open(&model, write_gguf(&file), NULL, &error));
	assert_non_null(strstr(error.message, "repetition_penalty"));
}

/* Whatever is broken in a file, opening it ends, and what is opened can be looked at. */
static void
test_survives_random_damage(void **state)
{
	static GgufFile file;
	static GgufFile damaged;
	uint32_t	random = 12345;
	int			opened = 0;

	(void) state;
	build(&file, NULL);
	for (int round = 0; round < 3000; round++)
	{
		int			places = 1 + round % 4;
		HymtError	error;
		HymtModel	model;
		HymtTokenizer *tokenizer;
		const char *path;

		memcpy(&damaged, &file, sizeof file);
		for (int i = 0; i < places; i++)
		{
			random = random * 1664525 + 1013904223;
			damaged.bytes[(random >> 8) % mark_at(&file, "data")] ^= (unsigned char) (1 << (random >> 29));
		}
		path = write_gguf(&damaged);
		if (hymt_model_open(&model, path, NULL, &error))
		{
			opened++;
			hymt_model_close(&model);
		}
		if (hymt_tokenizer_open_model(&tokenizer, path, &error))
			hymt_tokenizer_close(tokenizer);
	}
	assert_true(opened > 0 && opened < 3000);
}

/* --- the fingerprint ---------------------------------------------------------------------------------------------- */

static void
test_fingerprint(void **state)
{
	static GgufFile file;
	Change		name = {"general.name", put_family};
	char		first[65];
	HymtModel	model;

	(void) state;
	build(&file, NULL);
	open_model(&model, write_gguf(&file));
	strcpy(first, model.fingerprint);
	hymt_model_close(&model);
	file.bytes[file.length - 40] ^= 1;	/* in the last tensor */
	open_model(&model, write_gguf(&file));
	assert_string_not_equal(model.fingerprint, first);
	hymt_model_close(&model);
	build(&file, &name);
	open_model(&model, write_gguf(&file));
	assert_string_not_equal(model.fingerprint, first);
	hymt_model_close(&model);
}

/* --- the tokenizer ------------------------------------------------------------------------------------------------ */

static void
check_ids(const HymtTokenizer *tokenizer, const char *text, const int32_t *expected, size_t count)
{
	HymtIds		ids = {0};
	HymtError	error;

	assert_true(hymt_tokenizer_encode(tokenizer, text, strlen(text), &ids, &error));
	assert_int_equal(ids.count, count);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(ids.ids[i], expected[i]);
	hymt_ids_free(&ids);
}

static void
test_tokenizer(void **state)
{
	static GgufFile file;
	HymtTokenizer *tokenizer;
	HymtError	error;
	char	   *content;
	int			vocabulary;
	int			merges;
	int			added;

	(void) state;
	build(&file, NULL);
	assert_true(hymt_tokenizer_open_model(&tokenizer, write_gguf(&file), &error));
	hymt_tokenizer_counts(tokenizer, &vocabulary, &merges, &added);
	assert_int_equal(vocabulary, 6);
	assert_int_equal(merges, 2);
	assert_int_equal(added, 2);
	assert_int_equal(hymt_tokenizer_size(tokenizer), 9);	/* the last id has no token */
	assert_true(hymt_tokenizer_is_special(tokenizer, 8));
	assert_false(hymt_tokenizer_is_special(tokenizer, 6));
	assert_int_equal(hymt_tokenizer_added_id(tokenizer, "<|end|>"), 8);
	assert_int_equal(hymt_tokenizer_added_id(tokenizer, "[PAD7]"), -1);
	content = hymt_tokenizer_added_spelling(tokenizer, 8);
	assert_string_equal(content, "<|end|>");
	free(content);
	assert_null(hymt_tokenizer_added_spelling(tokenizer, 4));
	check_ids(tokenizer, "ab a1", (const int32_t[]) {4, 5, 3}, 3);
	/* added tokens are never found in text; what the vocabulary lacks is left out */
	check_ids(tokenizer, "<|end|>", NULL, 0);
	hymt_tokenizer_close(tokenizer);
}

VALUE(put_spm, put_text(file, "tokenizer.ggml.model", "llama"))
VALUE(put_pre, put_text(file, "tokenizer.ggml.pre", "qwen9"))
VALUE(put_tokens_integers, put_integers(file, "tokenizer.ggml.tokens", token_types, TOKENS))
VALUE(put_types_short, put_integers(file, "tokenizer.ggml.token_type", token_types, TOKENS - 1))
VALUE(put_types_texts, put_texts(file, "tokenizer.ggml.token_type", token_texts, TOKENS))
VALUE(put_types_wrong, put_integers(file, "tokenizer.ggml.token_type",
	(const int32_t[]) {1, 1, 1, 1, 6, 1, 4, 5, 3, 5}, 10))
VALUE(put_types_unused, put_integers(file, "tokenizer.ggml.token_type",
	(const int32_t[]) {5, 5, 5, 5, 5, 5, 5, 5, 5, 5}, 10))
VALUE(put_token_twice, put_texts(file, "tokenizer.ggml.tokens",
	(const char *const[]) {"a", "a", "\u0120", "1", "ab", "\u0120a", "<|user|>", "[PAD7]", "<|end|>", "[PAD9]"}, 10))
VALUE(put_merge_one, put_texts(file, "tokenizer.ggml.merges", (const char *const[]) {"ab"}, 1))
VALUE(put_merge_three, put_texts(file, "tokenizer.ggml.merges", (const char *const[]) {"a b 1"}, 1))
VALUE(put_merge_unknown, put_texts(file, "tokenizer.ggml.merges", (const char *const[]) {"a z"}, 1))

static const struct
{
	Change		change;
	HymtFailure failure;
	const char *words;
}			bad_tokenizers[] = {
	{{"tokenizer.ggml.model", NULL}, BROKEN, "tokenizer.ggml.model"},
	{{"tokenizer.ggml.model", put_spm}, UNSUPPORTED, "\"llama\""},
	{{"tokenizer.ggml.pre", NULL}, BROKEN, "tokenizer.ggml.pre"},
	{{"tokenizer.ggml.pre", put_pre}, UNSUPPORTED, "qwen9"},
	{{"tokenizer.ggml.tokens", NULL}, BROKEN, "tokenizer.ggml.tokens"},
	{{"tokenizer.ggml.tokens", put_tokens_integers}, BROKEN, "tokenizer.ggml.tokens"},
	{{"tokenizer.ggml.tokens", put_token_twice}, BROKEN, FILE_NAME},
	{{"tokenizer.ggml.token_type", NULL}, BROKEN, "tokenizer.ggml.token_type"},
	{{"tokenizer.ggml.token_type", put_types_short}, BROKEN, "one type for each token"},
	{{"tokenizer.ggml.token_type", put_types_texts}, BROKEN, "tokenizer.ggml.token_type"},
	{{"tokenizer.ggml.token_type", put_types_wrong}, UNSUPPORTED, "token 4 has the type 6"},
	{{"tokenizer.ggml.token_type", put_types_unused}, BROKEN, FILE_NAME},
	{{"tokenizer.ggml.merges", NULL}, BROKEN, "tokenizer.ggml.merges"},
	{{"tokenizer.ggml.merges", put_merge_one}, BROKEN, "blank"},
	{{"tokenizer.ggml.merges", put_merge_three}, BROKEN, "blank"},
	{{"tokenizer.ggml.merges", put_merge_unknown}, BROKEN, FILE_NAME},
};

static void
test_refuses_tokenizers(void **state)
{
	static GgufFile file;

	(void) state;
	for (size_t i = 0; i < sizeof bad_tokenizers / sizeof bad_tokenizers[0]; i++)
	{
		HymtTokenizer *tokenizer;
		HymtError	error = {HYMT_FAILURE_NONE, ""};
		bool		ok;

		build(&file, &bad_tokenizers[i].change);
		ok = hymt_tokenizer_open_model(&tokenizer, write_gguf(&file), &error);
		if (ok || error.failure != bad_tokenizers[i].failure ||
			strstr(error.message, bad_tokenizers[i].words) == NULL || strstr(error.message, FILE_NAME) == NULL)
			fail_msg("%s (%zu): expected \"%s\", got \"%s\"", bad_tokenizers[i].change.key, i, bad_tokenizers[i].words,
					 ok ? "success" : error.message);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads_a_model),
		cmocka_unit_test(test_optional_parts),
		cmocka_unit_test(test_directories),
		cmocka_unit_test(test_family),
		cmocka_unit_test(test_refuses_lies),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_refuses_values),
		cmocka_unit_test(test_survives_random_damage),
		cmocka_unit_test(test_fingerprint),
		cmocka_unit_test(test_tokenizer),
		cmocka_unit_test(test_refuses_tokenizers),
	};

	return cmocka_run_group_tests_name("gguf", tests, test_set_up, test_tear_down);
}
