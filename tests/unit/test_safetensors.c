/*
 * test_safetensors.c: the container: what is accepted, and that every lie in a file is refused.
 */
#define _GNU_SOURCE			/* nftw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>

#include "model_files.h"
#include "safetensors.h"

#define FILE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"

/* Opening `directory` must fail with that failure, and say these words; nothing may stay open. */
static void
expect_failure(const char *label, const char *directory, HymtFailure failure, const char *words)
{
	int			before = open_descriptors();
	HymtError	error = {HYMT_FAILURE_NONE, ""};
	HymtSafetensors *files = hymt_safetensors_open(directory, &error);

	if (files != NULL || error.failure != failure || strstr(error.message, words) == NULL)
		fail_msg("%s: expected failure %d with \"%s\", got %s, %d, \"%s\"", label, failure, words,
				 files == NULL ? "failure" : "success", error.failure, error.message);
	assert_int_equal(open_descriptors(), before);
}

/* --- what is accepted --------------------------------------------------------------------------------------------- */

static void
test_reads_tensors(void **state)
{
	static const float values[6] = {1, -2, 3.5f, 4, 5, -6};
	const TensorSpec specs[] = {
		{"b", "F32", 2, 3, values},
		{"a", "BF16", 0, 5, NULL},
		{"c", "F16", 3, 1, NULL},
	};
	const char *directory = test_directory("plain");
	int			before = open_descriptors();
	const HymtStoredTensor *tensor;
	HymtSafetensors *files;
	HymtError	error;

	(void) state;
	write_tensors(directory, FILE_NAME, specs, 3, 1);
	files = hymt_safetensors_open(directory, &error);
	assert_non_null(files);
	assert_int_equal(open_descriptors(), before);	/* mapped, not held open */
	tensor = hymt_safetensors_find(files, "b");
	assert_non_null(tensor);
	assert_string_equal(tensor->dtype, "F32");
	assert_int_equal(tensor->dimensions, 2);
	assert_int_equal(tensor->shape[0], 2);
	assert_int_equal(tensor->shape[1], 3);
	assert_int_equal(tensor->bytes, 24);
	assert_memory_equal(tensor->data, values, 24);
	tensor = hymt_safetensors_find(files, "a");
	assert_non_null(tensor);
	assert_int_equal(tensor->dimensions, 1);
	assert_int_equal(tensor->bytes, 10);
	assert_non_null(hymt_safetensors_find(files, "c"));
	assert_null(hymt_safetensors_find(files, "d"));
	assert_null(hymt_safetensors_find(files, ""));
	hymt_safetensors_close(files);
}

/* Metadata, empty tensors, scalars (no dimension) and element types that no weight has are all well formed. */
static void
test_reads_unusual_headers(void **state)
{
	static const char header[] =
		"{\"__metadata__\":{\"format\":\"pt\"},"
		"\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]},"
		"\"scalar\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
		"\"fp8\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[8,11]}}   ";
	const char *directory = test_directory("unusual");
	HymtSafetensors *files;
	HymtError	error;

	(void) state;
	write_container(directory, FILE_NAME, strlen(header), header, "12345678abc", 11);
	files = hymt_safetensors_open(directory, &error);
	assert_non_null(files);
	assert_null(hymt_safetensors_find(files, "__metadata__"));
	assert_int_equal(hymt_safetensors_find(files, "empty")->bytes, 0);
	assert_int_equal(hymt_safetensors_find(files, "scalar")->dimensions, 0);
	assert_memory_equal(hymt_safetensors_find(files, "fp8")->data, "abc", 3);
	hymt_safetensors_close(files);
}

static void
test_reads_shards(void **state)
{
	const TensorSpec first[] = {{"a", "F32", 0, 2, NULL}, {"unlisted", "F32", 0, 1, NULL}};
	const TensorSpec second[] = {{"b", "F32", 0, 3, NULL}};
	const char *directory = test_directory("shards");
	HymtSafetensors *files;
	HymtError	error;

	(void) state;
	write_tensors(directory, "one.safetensors", first, 2, 1);
	write_tensors(directory, "two.safetensors", second, 1, 1);
	write_text(directory, INDEX_NAME, "{\"weight_map\":{\"b\":\"two.safetensors\",\"a\":\"one.safetensors\"}}");
	files = hymt_safetensors_open(directory, &error);
	assert_non_null(files);
	assert_int_equal(hymt_safetensors_file_count(files), 2);
	assert_int_equal(hymt_safetensors_find(files, "a")->bytes, 8);
	assert_int_equal(hymt_safetensors_find(files, "b")->bytes, 12);
	assert_null(hymt_safetensors_find(files, "unlisted"));	/* the index decides */
	hymt_safetensors_close(files);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

#define ENTRY(dtype, shape, begin, end) \
	"{\"a\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}}"

/* A header with 16 bytes of data behind it. */
static const struct
{
	const char *label;
	const char *header;
	HymtFailure failure;
	const char *words;
}			headers[] = {
	{"no JSON", "hello world", HYMT_FAILURE_MODEL_BROKEN, "no safetensors"},
	{"broken JSON", "{\"a\":{\"dtype\":\"F32\"", HYMT_FAILURE_MODEL_BROKEN, "line"},
	{"array", "[]", HYMT_FAILURE_MODEL_BROKEN, "no safetensors"},
	{"blank before", " {}", HYMT_FAILURE_MODEL_BROKEN, "no safetensors"},
	{"garbage behind", "{}x", HYMT_FAILURE_MODEL_BROKEN, "line"},
	{"not UTF-8", "{\"\xFF\":1}", HYMT_FAILURE_MODEL_BROKEN, "line"},
	{"duplicate name",
		"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
		"\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}", HYMT_FAILURE_MODEL_BROKEN, "duplicate"},
	{"duplicate key", "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
		HYMT_FAILURE_MODEL_BROKEN, "duplicate"},
	{"tensor is a number", "{\"a\":1}", HYMT_FAILURE_MODEL_BROKEN, "object"},
	{"metadata is a list", "{\"__metadata__\":[]}", HYMT_FAILURE_MODEL_BROKEN, "metadata"},
	{"metadata holds a number", "{\"__metadata__\":{\"a\":1}}", HYMT_FAILURE_MODEL_BROKEN, "metadata"},
	{"no dtype", "{\"a\":{\"shape\":[4],\"data_offsets\":[0,16]}}", HYMT_FAILURE_MODEL_BROKEN, "dtype"},
	{"dtype is a number", ENTRY("7", "[4]", "0", "16"), HYMT_FAILURE_MODEL_BROKEN, "dtype"},
	{"unknown dtype", ENTRY("\"F33\"", "[4]", "0", "16"), HYMT_FAILURE_MODEL_UNSUPPORTED, "F33"},
	{"other dtype than the bytes", ENTRY("\"F16\"", "[4]", "0", "16"), HYMT_FAILURE_MODEL_BROKEN, "needs 8 bytes"},
	{"no shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}", HYMT_FAILURE_MODEL_BROKEN, "shape"},
	{"shape is a number", ENTRY("\"F32\"", "4", "0", "16"), HYMT_FAILURE_MODEL_BROKEN, "shape"},
	{"negative dimension", ENTRY("\"F32\"", "[-4]", "0", "16"), HYMT_FAILURE_MODEL_BROKEN, "natural"},
	{"two negative dimensions", ENTRY("\"F32\"", "[-2,-2]", "0", "16"), HYMT_FAILURE_MODEL_BROKEN, "natural"},
	{"real dimension", ENTRY("\"F32\"", "[4.0]", "0", "16"), HYMT_FAILURE_MODEL_BROKEN, "natural"},
	{"dimension is a string", ENTRY("\"F32\"", "[\"4\"]", "0", "16"), HYMT_FAILURE_MODEL_BROKEN, "natural"},
	{"wrong shape", ENTRY("\"F32\"", "[5]", "0", "16"), HYMT_FAILURE_MODEL_BROKEN, "needs 20 bytes"},
	{"nine dimensions", ENTRY("\"F32\"", "[1,1,1,1,1,1,1,1,4]", "0", "16"), HYMT_FAILURE_MODEL_BROKEN, "dimensions"},
	{"shape that wraps to 4", ENTRY("\"F32\"", "[4294967296,4294967296,4294967296]", "0", "16"),
		HYMT_FAILURE_MODEL_BROKEN, "beyond"},
	/* 2^62 + 4 elements of 4 bytes are 16 bytes modulo 2^64 */
	{"bytes that wrap to 16", ENTRY("\"F32\"", "[4611686018427387908]", "0", "16"), HYMT_FAILURE_MODEL_BROKEN, "store"},
	{"half a byte", ENTRY("\"F4\"", "[31]", "0", "16"), HYMT_FAILURE_MODEL_BROKEN, "store"},
	{"no offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}", HYMT_FAILURE_MODEL_BROKEN, "data_offsets"},
	{"three offsets", ENTRY("\"F32\"", "[4]", "0", "8,16"), HYMT_FAILURE_MODEL_BROKEN, "data_offsets"},
	{"negative offset", ENTRY("\"F32\"", "[4]", "-16", "0"), HYMT_FAILURE_MODEL_BROKEN, "negative"},
	{"real offset", ENTRY("\"F32\"", "[4]", "0.0", "16"), HYMT_FAILURE_MODEL_BROKEN, "integers"},
	{"exponent", ENTRY("\"F32\"", "[4]", "0", "1.6e1"), HYMT_FAILURE_MODEL_BROKEN, "integers"},
	{"wrong order", ENTRY("\"F32\"", "[4]", "16", "0"), HYMT_FAILURE_MODEL_BROKEN, "order"},
	{"beyond the file", ENTRY("\"F32\"", "[8]", "0", "32"), HYMT_FAILURE_MODEL_BROKEN, "truncated"},
	{"both beyond the file", ENTRY("\"F32\"", "[4]", "1048576", "1048592"), HYMT_FAILURE_MODEL_BROKEN, "truncated"},
	{"over 2^53", ENTRY("\"F32\"", "[4]", "9007199254740993", "9007199254741009"), HYMT_FAILURE_MODEL_BROKEN,
		"truncated"},
	{"2^63 - 1", ENTRY("\"F32\"", "[4]", "9223372036854775791", "9223372036854775807"), HYMT_FAILURE_MODEL_BROKEN,
		"truncated"},
	{"2^63", ENTRY("\"F32\"", "[4]", "9223372036854775808", "9223372036854775824"), HYMT_FAILURE_MODEL_BROKEN,
		"integer"},
	{"2^64", ENTRY("\"F32\"", "[4]", "0", "18446744073709551632"), HYMT_FAILURE_MODEL_BROKEN, "integer"},
	{"2^63 as a dimension", ENTRY("\"F32\"", "[9223372036854775808]", "0", "16"), HYMT_FAILURE_MODEL_BROKEN, "integer"},
	{"overlap",
		"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
		"\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}", HYMT_FAILURE_MODEL_BROKEN, "overlap"},
	{"same bytes twice",
		"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
		"\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", HYMT_FAILURE_MODEL_BROKEN, "overlap"},
	{"hole",
		"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
		"\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}", HYMT_FAILURE_MODEL_BROKEN, "unused bytes"},
	{"bytes left over", ENTRY("\"F32\"", "[2]", "0", "8"), HYMT_FAILURE_MODEL_BROKEN, "belong to none"},
};

static void
test_refuses_headers(void **state)
{
	(void) state;
	for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
	{
		const char *directory = test_directory("header");

		write_container(directory, FILE_NAME, strlen(headers[i].header), headers[i].header, "0123456789abcdef", 16);
		expect_failure(headers[i].label, directory, headers[i].failure, headers[i].words);
	}
}

static void
test_refuses_lying_lengths(void **state)
{
	static const char header[] = ENTRY("\"F32\"", "[4]", "0", "16");
	static const uint64_t lengths[] = {
		0, 1, sizeof header + 16, 1 << 20, 100 * 1000 * 1000, 100 * 1000 * 1000 + 1, (uint64_t) 1 << 32,
		(uint64_t) 1 << 63, UINT64_MAX, UINT64_MAX - 7
	};

	(void) state;
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
	{
		const char *directory = test_directory("length");

		write_container(directory, FILE_NAME, lengths[i], header, "0123456789abcdef", 16);
		expect_failure("lying header length", directory, HYMT_FAILURE_MODEL_BROKEN, "header");
	}
}

/* A valid file cut at every length. */
static void
test_refuses_truncated_files(void **state)
{
	const TensorSpec specs[] = {{"a", "F32", 2, 2, NULL}, {"b", "BF16", 0, 3, NULL}};
	const char *directory = test_directory("cut");
	size_t		length;
	char	   *data;

	(void) state;
	write_tensors(directory, FILE_NAME, specs, 2, 1);
	data = read_whole(directory, FILE_NAME, &length);
	for (size_t cut = 0; cut < length; cut++)
	{
		write_file(directory, FILE_NAME, data, cut);
		expect_failure("cut file", directory, HYMT_FAILURE_MODEL_BROKEN, FILE_NAME);
	}
	free(data);
}

static const struct
{
	const char *label;
	const char *index;
	HymtFailure failure;
	const char *words;
}			indexes[] = {
	{"broken JSON", "{\"weight_map\":", HYMT_FAILURE_MODEL_BROKEN, "line"},
	{"no map", "{}", HYMT_FAILURE_MODEL_BROKEN, "weight_map"},
	{"map is a list", "{\"weight_map\":[]}", HYMT_FAILURE_MODEL_BROKEN, "weight_map"},
	{"name is a number", "{\"weight_map\":{\"a\":1}}", HYMT_FAILURE_MODEL_BROKEN, "plain file name"},
	{"parent directory", "{\"weight_map\":{\"a\":\"../header/model.safetensors\"}}", HYMT_FAILURE_MODEL_BROKEN,
		"plain file name"},
	{"absolute", "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", HYMT_FAILURE_MODEL_BROKEN, "plain file name"},
	{"subdirectory", "{\"weight_map\":{\"a\":\"sub/one.safetensors\"}}", HYMT_FAILURE_MODEL_BROKEN, "plain file name"},
	{"dots", "{\"weight_map\":{\"a\":\"..\"}}", HYMT_FAILURE_MODEL_BROKEN, "plain file name"},
	{"empty", "{\"weight_map\":{\"a\":\"\"}}", HYMT_FAILURE_MODEL_BROKEN, "plain file name"},
	{"duplicate", "{\"weight_map\":{\"a\":\"one.safetensors\",\"a\":\"one.safetensors\"}}", HYMT_FAILURE_MODEL_BROKEN,
		"duplicate"},
	{"absent shard", "{\"weight_map\":{\"a\":\"two.safetensors\"}}", HYMT_FAILURE_MODEL_MISSING, "two.safetensors"},
	{"not in its shard", "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"one.safetensors\"}}",
		HYMT_FAILURE_MODEL_BROKEN, "\"b\" is not in one.safetensors"},
	{"shard is no container", "{\"weight_map\":{\"a\":\"" INDEX_NAME "\"}}", HYMT_FAILURE_MODEL_BROKEN, "header"},
};

static void
test_refuses_indexes(void **state)
{
	const TensorSpec specs[] = {{"a", "F32", 0, 2, NULL}};

	(void) state;
	for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++)
	{
		const char *directory = test_directory("index");

		write_tensors(directory, "one.safetensors", specs, 1, 1);
		write_text(directory, INDEX_NAME, indexes[i].index);
		expect_failure(indexes[i].label, directory, indexes[i].failure, indexes[i].words);
	}
}

static void
test_refuses_what_is_no_file(void **state)
{
	char		path[PATH_BYTES + 64];
	const char *directory = test_directory("nothing");

	(void) state;
	expect_failure("empty directory", directory, HYMT_FAILURE_MODEL_MISSING, INDEX_NAME);
	snprintf(path, sizeof path, "%s/" FILE_NAME, directory);
	assert_int_equal(mkdir(path, 0755), 0);
	expect_failure("directory", directory, HYMT_FAILURE_MODEL_UNREADABLE, "directory");
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(mkfifo(path, 0644), 0);
	expect_failure("pipe", directory, HYMT_FAILURE_MODEL_UNREADABLE, "regular file");
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

/* Read every byte that a tensor claims, so that a claim beyond the file ends the test. */
static unsigned
touch_tensors(const HymtSafetensors *files, const TensorSpec *specs, int count)
{
	unsigned	sum = 0;

	for (int i = 0; i < count; i++)
	{
		const HymtStoredTensor *tensor = hymt_safetensors_find(files, specs[i].name);

		for (uint64_t b = 0; tensor != NULL && b < tensor->bytes; b++)
			sum += tensor->data[b];
	}
	return sum;
}

/*
 * Replace some bytes of a valid header, mostly by bytes that headers are made of. Whatever comes of it is either
 * refused with a message or safe to use. The file ends at a page's end, so that reading past it is caught.
 */
static void
test_survives_random_damage(void **state)
{
	static const char likely[] = "0123456789-.eE{}[]\",:\\ uF";
	const TensorSpec specs[] = {{"a", "F32", 2, 2, NULL}, {"b", "BF16", 0, 3, NULL}, {"c", "F16", 1, 9, NULL}};
	const char *directory = test_directory("damage");
	int			before = open_descriptors();
	size_t		length;
	size_t		header_end;
	char	   *original;
	char	   *damaged;
	int			accepted = 0;

	(void) state;
	write_tensors(directory, FILE_NAME, specs, 3, 4096);
	original = read_whole(directory, FILE_NAME, &length);
	assert_int_equal(length % 4096, 0);
	header_end = (size_t) (strstr(original + 8, "}}") - original) + 2;
	damaged = malloc(length);
	assert_non_null(damaged);
	for (int round = 0; round < 1500; round++)
	{
		HymtError	error = {HYMT_FAILURE_NONE, ""};
		HymtSafetensors *files;

		memcpy(damaged, original, length);
		for (uint32_t n = 1 + next_random(3); n > 0; n--)
			damaged[next_random((uint32_t) header_end)] =
				next_random(4) == 0 ? (char) next_random(256) : likely[next_random(sizeof likely - 1)];
		write_file(directory, FILE_NAME, damaged, length);
		files = hymt_safetensors_open(directory, &error);
		if (files == NULL)
		{
			assert_int_not_equal(error.failure, HYMT_FAILURE_NONE);
			assert_true(error.message[0] != '\0');
			continue;
		}
		accepted++;
		touch_tensors(files, specs, 3);
		hymt_safetensors_close(files);
	}
	assert_true(accepted > 0 && accepted < 1500);
	assert_int_equal(open_descriptors(), before);
	free(original);
	free(damaged);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads_tensors),
		cmocka_unit_test(test_reads_unusual_headers),
		cmocka_unit_test(test_reads_shards),
		cmocka_unit_test(test_refuses_headers),
		cmocka_unit_test(test_refuses_lying_lengths),
		cmocka_unit_test(test_refuses_truncated_files),
		cmocka_unit_test(test_refuses_indexes),
		cmocka_unit_test(test_refuses_what_is_no_file),
		cmocka_unit_test(test_survives_random_damage),
	};

	return cmocka_run_group_tests_name("safetensors", tests, test_set_up, test_tear_down);
}
