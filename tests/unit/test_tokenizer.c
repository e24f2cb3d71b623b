/*
 * test_tokenizer.c: the tokenizer against the reference's ids, on files that differ in one point, and on broken files.
 *
 * The large tokenizers are unpacked with xz, which the build machine has anyway.
 */
#define _GNU_SOURCE				/* memfd_create */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../src/engine/tokenizer.h"
#include "check_tokenizer.h"

/* --- helpers ------------------------------------------------------------------------------------------------- */

/* Open a tokenizer.json that is given as text, through a file in memory. */
static bool
open_text(HymtTokenizer **tokenizer, const char *text, size_t length, HymtError *error)
{
	int			fd = memfd_create("tokenizer.json", MFD_CLOEXEC);
	char		path[64];
	bool		ok;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, length), length);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ok = hymt_tokenizer_open(tokenizer, path, error);
	close(fd);
	return ok;
}

/* The ids of a text as "1 2 3". */
static char *
encode(const HymtTokenizer *tokenizer, const char *text, size_t length)
{
	static char result[4096];
	HymtIds		ids = {0};
	HymtError	error;
	size_t		used = 0;

	result[0] = '\0';
	if (!hymt_tokenizer_encode(tokenizer, text, length, &ids, &error))
		fail_msg("%s", error.message);
	for (size_t i = 0; i < ids.count && used < sizeof(result) - 16; i++)
		used += (size_t) sprintf(result + used, i > 0 ? " %d" : "%d", ids.ids[i]);
	hymt_ids_free(&ids);
	return result;
}

/*
 * A small tokenizer.json. The vocabulary: bytes a to f and blank, then what merges make of them. Each part can be
 * replaced; NULL takes the usual one.
 */
typedef struct Parts
{
	const char *normalizer;
	const char *pretokenizer;
	const char *decoder;
	const char *added;
	const char *type;
	const char *options;		/* further members of "model", with a comma behind each */
	const char *vocab;
	const char *merges;
	const char *behind;			/* after the last brace */
} Parts;

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}"

static char *
build(const Parts *parts)
{
	static char text[65536];
	const char *added = "[{\"id\":20,\"content\":\"<s>\",\"special\":true},"
		"{\"id\":21,\"content\":\"<t>\",\"special\":false}]";
	const char *vocab = "{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"e\":4,\"f\":5,\"\\u0120\":6,\"ab\":7,"
		"\"bc\":8,\"abc\":9,\"cd\":10,\"abcd\":11,\"aa\":12,\"aaa\":13,\"\\u0120a\":14}";
	const char *merges = "[\"b c\",\"a b\",\"a bc\",\"c d\",\"abc d\",[\"a\",\"a\"],\"aa a\"]";

	snprintf(text, sizeof(text),
			 "{\"version\":\"1.0\",\"truncation\":null,\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,"
			 "\"post_processor\":null,\"decoder\":%s,\"model\":{\"type\":%s,%s\"vocab\":%s,\"merges\":%s}}%s",
			 parts->added ? parts->added : added,
			 parts->normalizer ? parts->normalizer : "null",
			 parts->pretokenizer ? parts->pretokenizer : BYTE_LEVEL,
			 parts->decoder ? parts->decoder : "{\"type\":\"ByteLevel\"}",
			 parts->type ? parts->type : "\"BPE\"",
			 parts->options ? parts->options : "",
			 parts->vocab ? parts->vocab : vocab,
			 parts->merges ? parts->merges : merges,
			 parts->behind ? parts->behind : "");
	return text;
}

static HymtTokenizer *
open_parts(Parts parts)
{
	HymtTokenizer *tokenizer;
	HymtError	error;
	char	   *text = build(&parts);

	if (!open_text(&tokenizer, text, strlen(text), &error))
		fail_msg("%s", error.message);
	return tokenizer;
}

/* --- the reference's vectors --------------------------------------------------------------------------------- */

static void
check_file(const char *tokenizer_path, const char *vectors, int minimum)
{
	HymtTokenizer *tokenizer;
	HymtError	error;

	if (!hymt_tokenizer_open(&tokenizer, tokenizer_path, &error))
		fail_msg("%s", error.message);
	check_vectors(tokenizer, vectors, minimum);
	hymt_tokenizer_close(tokenizer);
}

static void
check_packed_vectors(const char *name, int minimum)
{
	char		path[] = "/tmp/hymt_test_tokenizer_XXXXXX";
	char		vectors[256];
	char		command[512];
	int			fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	snprintf(command, sizeof(command), "xz -dc tests/vectors/tokenizer/%s.tokenizer.json.xz >%s", name, path);
	snprintf(vectors, sizeof(vectors), "tests/vectors/tokenizer/%s.jsonl", name);
	assert_int_equal(system(command), 0);
	check_file(path, vectors, minimum);
	unlink(path);
}

static void
test_demo_vectors(void **state)
{
	(void) state;
	check_file("models/demo/tokenizer.json", "tests/vectors/tokenizer/demo.jsonl", 550);
}

static void
test_deepseek_vectors(void **state)
{
	(void) state;
	check_packed_vectors("deepseek_v3", 550);
}

static void
test_qwen_vectors(void **state)
{
	(void) state;
	check_packed_vectors("qwen3", 550);
}

/* --- encoding ------------------------------------------------------------------------------------------------ */

static void
test_merge_order(void **state)
{
	HymtTokenizer *tokenizer = open_parts((Parts){0});

	(void) state;
	/* the lowest rank first, wherever it stands */
	assert_string_equal(encode(tokenizer, "abcd", 4), "11");
	assert_string_equal(encode(tokenizer, "ab", 2), "7");
	assert_string_equal(encode(tokenizer, "cd", 2), "10");
	assert_string_equal(encode(tokenizer, "bcd", 3), "8 3");
	/* the leftmost of equal ranks */
	assert_string_equal(encode(tokenizer, "aaaaa", 5), "12 13");
	assert_string_equal(encode(tokenizer, "aaaa", 4), "12 12");
	/* no piece, no ids */
	assert_string_equal(encode(tokenizer, "", 0), "");
	/* bytes that are no token are left out, and their neighbours meet */
	assert_string_equal(encode(tokenizer, "aXb", 3), "7");
	assert_string_equal(encode(tokenizer, "X", 1), "");
	hymt_tokenizer_close(tokenizer);
}

static void
test_ignore_merges(void **state)
{
	HymtTokenizer *tokenizer = open_parts((Parts){.options = "\"ignore_merges\":true,", .merges = "[\"a b\"]"});

	(void) state;
	assert_string_equal(encode(tokenizer, "abcd", 4), "11");
	assert_string_equal(encode(tokenizer, "abcde", 5), "7 2 3 4");
	hymt_tokenizer_close(tokenizer);
	tokenizer = open_parts((Parts){.options = "\"ignore_merges\":false,", .merges = "[\"a b\"]"});
	assert_string_equal(encode(tokenizer, "abcd", 4), "7 2 3");
	hymt_tokenizer_close(tokenizer);
}

/*
 * A control token that is in the vocabulary as well, so that a piece of text, or merges, would give it: neither does,
 * and what it is made of stands in its place. Tokens that are made of it cannot be reached either.
 */
static void
test_control_tokens_in_the_vocabulary(void **state)
{
	static const char *const options[] = {"\"ignore_merges\":true,", "\"ignore_merges\":false,"};
	static const char *const added = "[{\"id\":9,\"content\":\"abc\",\"special\":true},"
		"{\"id\":12,\"content\":\"aa\",\"special\":false}]";

	(void) state;
	for (int i = 0; i < 2; i++)
	{
		HymtTokenizer *tokenizer = open_parts((Parts){.options = options[i], .added = added});
		int32_t		id = 9;

		assert_true(hymt_tokenizer_is_special(tokenizer, 9));
		assert_int_equal(hymt_tokenizer_added_id(tokenizer, "abc"), 9);
		assert_string_equal(encode(tokenizer, "abc", 3), "0 8");
		assert_string_equal(encode(tokenizer, "ab", 2), "7");
		assert_string_equal(encode(tokenizer, "aa", 2), "12");
		assert_string_equal(encode(tokenizer, "abcd", 4), i == 0 ? "11" : "0 8 3");
		assert_decodes(tokenizer, &id, 1, "", 0);
		hymt_tokenizer_close(tokenizer);
	}
}

static void
test_merge_lists(void **state)
{
	static const char merges_first[] = "{\"model\":{\"merges\":[[\"a\",\"b\"]],\"vocab\":{\"ab\":2,\"a\":0,\"b\":1}},"
		"\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":" BYTE_LEVEL ",\"added_tokens\":[]}";
	HymtTokenizer *tokenizer;
	HymtError	error;
	int			vocabulary;
	int			merges;
	int			added;

	(void) state;
	assert_true(open_text(&tokenizer, merges_first, strlen(merges_first), &error));
	assert_string_equal(encode(tokenizer, "abba", 4), "2 1 0");
	hymt_tokenizer_counts(tokenizer, &vocabulary, &merges, &added);
	assert_int_equal(vocabulary, 3);
	assert_int_equal(merges, 1);
	assert_int_equal(added, 0);
	assert_int_equal(hymt_tokenizer_size(tokenizer), 3);
	hymt_tokenizer_close(tokenizer);

	/* listed twice: the last mention is its rank */
	tokenizer = open_parts((Parts){.merges = "[\"#version: 0.2\",\"a b\",\"b c\",\"a b\"]"});
	assert_string_equal(encode(tokenizer, "abc", 3), "0 8");
	hymt_tokenizer_close(tokenizer);
}

/* Merging as it is defined, one lowest and leftmost pair after the other. */
static void
merge_slowly(const char merges[][2][8], int count, char tokens[][64], int *length)
{
	for (;;)
	{
		int			best = count;
		int			where = 0;

		for (int i = 0; i + 1 < *length; i++)
			for (int m = 0; m < best; m++)
				if (strcmp(tokens[i], merges[m][0]) == 0 && strcmp(tokens[i + 1], merges[m][1]) == 0)
				{
					best = m;
					where = i;
				}
		if (best == count)
			return;
		memcpy(tokens[where] + strlen(tokens[where]), tokens[where + 1], strlen(tokens[where + 1]) + 1);
		for (int i = where + 1; i + 1 < *length; i++)
			strcpy(tokens[i], tokens[i + 1]);
		(*length)--;
	}
}

static void
test_against_slow_merging(void **state)
{
	static const char merges[][2][8] = {
		{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"c", "d"}, {"abc", "d"}, {"a", "a"}, {"aa", "a"},
	};
	static const char *const names[] = {
		"a", "b", "c", "d", "e", "f", " ", "ab", "bc", "abc", "cd", "abcd", "aa", "aaa",
	};
	HymtTokenizer *tokenizer = open_parts((Parts){0});
	unsigned	seed = 1;

	(void) state;
	for (int round = 0; round < 2000; round++)
	{
		char		text[65];
		char		tokens[64][64];
		char		expected[1024] = "";
		int			length = 1 + (int) (rand_r(&seed) % 40);
		int			count = length;

		for (int i = 0; i < length; i++)
		{
			text[i] = (char) ('a' + rand_r(&seed) % (round % 2 ? 5 : 2));
			tokens[i][0] = text[i];
			tokens[i][1] = '\0';
		}
		merge_slowly(merges, 7, tokens, &count);
		for (int i = 0; i < count; i++)
			for (int id = 0; id < 14; id++)
				if (strcmp(tokens[i], names[id]) == 0)
					sprintf(expected + strlen(expected), i > 0 ? " %d" : "%d", id);
		assert_string_equal(encode(tokenizer, text, (size_t) length), expected);
	}
	hymt_tokenizer_close(tokenizer);
}

static void
test_long_words(void **state)
{
	size_t		length = 1 << 20;
	char	   *text = malloc(length);
	HymtTokenizer *tokenizer = open_parts((Parts){0});
	HymtIds		ids = {0};
	HymtError	error;

	(void) state;
	for (size_t i = 0; i < length; i++)
		text[i] = "abcd"[i % 4];
	assert_true(hymt_tokenizer_encode(tokenizer, text, length, &ids, &error));
	assert_int_equal(ids.count, length / 4);
	for (size_t i = 0; i < ids.count; i++)
		assert_int_equal(ids.ids[i], 11);
	hymt_ids_free(&ids);
	hymt_tokenizer_close(tokenizer);
	free(text);
}

static void
test_texts_that_are_no_utf8(void **state)
{
	static const struct
	{
		const char *text;
		const char *where;
	}			cases[] = {
		{"\xff", "byte 0"}, {"ab\x80", "byte 2"}, {"ab\xc3", "byte 2"}, {"\xc0\x80", "byte 0"},
		{"a\xed\xa0\x80", "byte 1"},
		{"\xf4\x90\x80\x80", "byte 0"}, {"0123456789\xe2\x82", "byte 10"}, {"\xf8\x88\x80\x80\x80", "byte 0"},
	};
	HymtTokenizer *tokenizer = open_parts((Parts){0});

	(void) state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		HymtIds		ids = {0};
		HymtError	error;

		assert_true(hymt_tokenizer_encode(tokenizer, "ab", 2, &ids, &error));
		assert_false(hymt_tokenizer_encode(tokenizer, cases[i].text, strlen(cases[i].text), &ids, &error));
		assert_int_equal(error.failure, HYMT_FAILURE_BAD_TEXT);
		assert_non_null(strstr(error.message, cases[i].where));
		assert_int_equal(ids.count, 1);
		hymt_ids_free(&ids);
	}
	hymt_tokenizer_close(tokenizer);
}

/* A text that spells an added token is a text. */
static void
test_added_tokens_are_not_found_in_text(void **state)
{
	HymtTokenizer *tokenizer;
	HymtIds		ids = {0};
	HymtError	error;
	static const char text[] = "<｜hy_User｜>ok</think>/think<｜hy_place▁holder▁no▁2｜>";

	(void) state;
	if (!hymt_tokenizer_open(&tokenizer, "models/demo/tokenizer.json", &error))
		fail_msg("%s", error.message);
	assert_true(hymt_tokenizer_encode(tokenizer, text, strlen(text), &ids, &error));
	for (size_t i = 0; i < ids.count; i++)
		assert_true(ids.ids[i] < 8000);
	assert_decodes(tokenizer, ids.ids, ids.count, text, strlen(text));
	assert_int_equal(hymt_tokenizer_added_id(tokenizer, "<｜hy_User｜>"), 8006);
	assert_int_equal(hymt_tokenizer_added_id(tokenizer, "</think>"), 8030);
	assert_int_equal(hymt_tokenizer_added_id(tokenizer, "<｜hy_User"), -1);
	assert_int_equal(hymt_tokenizer_added_id(tokenizer, "a"), -1);
	assert_true(hymt_tokenizer_is_special(tokenizer, 8006));
	assert_false(hymt_tokenizer_is_special(tokenizer, 8030));
	assert_false(hymt_tokenizer_is_special(tokenizer, 5));
	assert_false(hymt_tokenizer_is_special(tokenizer, -1));
	assert_false(hymt_tokenizer_is_special(tokenizer, 1 << 30));
	hymt_ids_free(&ids);
	hymt_tokenizer_close(tokenizer);
}

/* --- decoding ------------------------------------------------------------------------------------------------ */

static void
test_decoding(void **state)
{
	static const int32_t some[] = {0, 20, 6, 21, 1, 22, -5, INT32_MAX, 15, 7};
	HymtTokenizer *tokenizer = open_parts((Parts){0});

	(void) state;
	/* special ones and ids without a token are left out */
	assert_decodes(tokenizer, some, 10, "a <t>bab", 8);
	assert_decodes(tokenizer, some, 0, "", 0);
	hymt_tokenizer_close(tokenizer);

	/* spellings that are not of the byte alphabet stand for themselves; those that are, for bytes */
	tokenizer = open_parts((Parts){.added = "[{\"id\":30,\"content\":\"x y\"},"
		"{\"id\":31,\"content\":\"\\u0120\\u010a\"},"
		"{\"id\":32,\"content\":\"\\uff5c\\u0120\"},{\"id\":7,\"content\":\"ab\","
		"\"special\":true}]"});
	assert_decodes(tokenizer, (const int32_t[]){30, 31, 32, 7, 0}, 5, "x y \n\xef\xbd\x9c\xc4\xa0" "a", 11);
	hymt_tokenizer_close(tokenizer);
}

/* What a Rust program's from_utf8_lossy() makes of bytes: one U+FFFD for each longest start of a character. */
static void
test_decoding_of_broken_characters(void **state)
{
	/* the alphabet's spelling of the bytes C3, A9, E2, 82, AC, F0, 9F, ED, A0, 80, FF and 41, as ids 0 to 11 */
	static const char vocab[] = "{\"\\u00c3\":0,\"\\u00a9\":1,\"\\u00e2\":2,\"\\u0124\":3,"
		"\"\\u00ac\":4,\"\\u00f0\":5,\"\\u0141\":6,\"\\u00ed\":7,\"\\u0142\":8,\"\\u0122\":9,\"\\u00ff\":10,\"A\":11}";
	static const struct
	{
		int32_t		ids[6];
		size_t		count;
		const char *text;
	}			cases[] = {
		{{0, 1}, 2, "é"}, {{2, 3, 4}, 3, "€"},
		{{0, 11}, 2, "\xef\xbf\xbd" "A"}, {{1, 11}, 2, "\xef\xbf\xbd" "A"}, {{2, 3, 11}, 3, "\xef\xbf\xbd" "A"},
		{{2, 3}, 2, "\xef\xbf\xbd"}, {{5, 6, 3, 11}, 4, "\xef\xbf\xbd" "A"}, {{5, 6}, 2, "\xef\xbf\xbd"},
		{{7, 8, 9}, 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, {{10, 10}, 2, "\xef\xbf\xbd\xef\xbf\xbd"},
		{{5, 9, 9, 9}, 4, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
		{{2, 2, 3, 4, 2}, 5, "\xef\xbf\xbd€\xef\xbf\xbd"},
	};
	HymtTokenizer *tokenizer = open_parts((Parts){.vocab = vocab, .merges = "[]", .added = "[]"});

	(void) state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_decodes(tokenizer, cases[i].ids, cases[i].count, cases[i].text, strlen(cases[i].text));
	hymt_tokenizer_close(tokenizer);
}

/* --- files --------------------------------------------------------------------------------------------------- */

#define SPLIT(pattern) "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":" pattern \
	",\"behavior\":\"Isolated\",\"invert\":false}," BYTE_LEVEL "]}"

static void
test_files_that_are_understood(void **state)
{
	static const Parts cases[] = {
		{0},
		{.normalizer = "{\"type\":\"NFC\"}"},
		{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[]}"},
		{.normalizer = "{\"normalizers\":[{\"type\":\"NFC\"}],\"type\":\"Sequence\"}"},
		{.pretokenizer = SPLIT("{\"Regex\":\"\\\\p{N}\"}")},
		{.pretokenizer = SPLIT("{\"String\":\"a.b\"}")},
		{.pretokenizer = "{\"use_regex\":true,\"add_prefix_space\":false,\"type\":\"ByteLevel\"}"},
		{.decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteLevel\"}]}"},
		{.options = "\"dropout\":null,\"unk_token\":null,\"fuse_unk\":false,\"byte_fallback\":false,"
			"\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":null,\"later_invention\":[1,{\"a\":-1.5e3}],"},
		{.merges = "[]"},
		{.added = "[]"},
		{.behind = " \r\n\t"},
	};

	(void) state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		hymt_tokenizer_close(open_parts(cases[i]));
}

static void
assert_refused(const char *text, size_t length, HymtFailure failure, const char *word)
{
	HymtTokenizer *tokenizer;
	HymtError	error;

	assert_false(open_text(&tokenizer, text, length, &error));
	assert_null(tokenizer);
	if (error.failure != failure || strstr(error.message, word) == NULL)
		fail_msg("%d \"%s\" instead of %d and \"%s\"", error.failure, error.message, failure, word);
}

static void
test_files_of_another_kind(void **state)
{
	static const struct
	{
		Parts		parts;
		const char *word;
	}			cases[] = {
		{{.type = "\"Unigram\""}, "\"Unigram\""},
		{{.type = "\"WordPiece\""}, "\"WordPiece\""},
		{{.options = "\"byte_fallback\":true,"}, "byte_fallback"},
		{{.options = "\"fuse_unk\":true,"}, "fuse_unk"},
		{{.options = "\"unk_token\":\"<unk>\","}, "unk_token"},
		{{.options = "\"dropout\":0.1,"}, "dropout"},
		{{.options = "\"continuing_subword_prefix\":\"##\","}, "continuing_subword_prefix"},
		{{.options = "\"end_of_word_suffix\":\"</w>\","}, "end_of_word_suffix"},
		{{.normalizer = "{\"type\":\"NFKC\"}"}, "normalizer \"NFKC\""},
		{{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]}"},
			"Lowercase"},
		{{.pretokenizer = "null"}, "pre_tokenizer"},
		{{.pretokenizer = "{\"type\":\"Metaspace\",\"replacement\":\"_\"}"}, "pre_tokenizer \"Metaspace\""},
		{{.pretokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[]}"}, "without ByteLevel"},
		{{.pretokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"}, "add_prefix_space"},
		{{.pretokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL "," BYTE_LEVEL "]}"},
			"behind ByteLevel"},
		{{.pretokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
			"\"behavior\":\"Removed\",\"invert\":false}," BYTE_LEVEL "]}"}, "\"Removed\""},
		{{.pretokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
			"\"behavior\":\"Isolated\",\"invert\":true}," BYTE_LEVEL "]}"}, "inverted"},
		{{.pretokenizer = SPLIT("{\"Glob\":\"*\"}")}, "\"Glob\""},
		{{.pretokenizer = SPLIT("{\"String\":\"\"}")}, "empty"},
		{{.pretokenizer = SPLIT("{\"Regex\":\"\\\\w+\"}")}, "\\w"},
		{{.added = "[{\"id\":0,\"content\":\"a\",\"special\":true}]"}, "byte 97"},
		{{.decoder = "null"}, "decoder"},
		{{.decoder = "{\"type\":\"WordPiece\"}"}, "decoder \"WordPiece\""},
		{{.decoder = "{\"type\":\"Sequence\",\"decoders\":[]}"}, "decoder"},
	};

	(void) state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		char	   *text = build(&cases[i].parts);

		assert_refused(text, strlen(text), HYMT_FAILURE_MODEL_UNSUPPORTED, cases[i].word);
	}
}

static void
test_files_that_are_broken(void **state)
{
	static const struct
	{
		Parts		parts;
		const char *word;
	}			cases[] = {
		{{.behind = "x"}, "more text"},
		{{.behind = "{}"}, "more text"},
		{{.vocab = "{}", .merges = "[]", .added = "[]"}, "without vocab"},
		{{.vocab = "[]"}, "object was expected"},
		{{.vocab = "{\"a\":0,\"b\":0}"}, "id 0"},
		{{.vocab = "{\"a\":0,\"a\":1}"}, "twice"},
		{{.vocab = "{\"a\":-1}"}, "out of range"},
		{{.vocab = "{\"a\":4194304}"}, "out of range"},
		{{.vocab = "{\"a\":9223372036854775807}"}, "out of range"},
		{{.vocab = "{\"a\":99999999999999999999}"}, "out of range"},
		{{.vocab = "{\"a\":1.5}"}, "whole number"},
		{{.vocab = "{\"a\":\"1\"}"}, "number was expected"},
		{{.vocab = "{\"\\ud800\":1}"}, "surrogate"},
		{{.vocab = "{\"\\ud800\\u0041\":1}"}, "surrogate"},
		{{.vocab = "{\"\\udc00\":1}"}, "surrogate"},
		{{.vocab = "{\"\\u12g4\":1}"}, "escape"},
		{{.vocab = "{\"\\q\":1}"}, "escape"},
		{{.vocab = "{\"\xff\":1}"}, "UTF-8"},
		{{.vocab = "{\"\n\":1}"}, "control character"},
		{{.vocab = "{\"a\":1,}"}, "string was expected"},
		{{.vocab = "{\"a\" 1}"}, "\":\""},
		{{.merges = "{}"}, "array was expected"},
		{{.merges = "[\"a x\"]"}, "right side"},
		{{.merges = "[\"x a\"]"}, "left side"},
		{{.merges = "[\"b a\"]"}, "result"},
		{{.merges = "[\"ab\"]"}, "blank"},
		{{.merges = "[\"a  b\"]"}, "blank"},
		{{.merges = "[\"a b c\"]"}, "blank"},
		{{.merges = "[[\"a\"]]"}, "pair"},
		{{.merges = "[[\"a\",\"b\",\"c\"]]"}, "pair"},
		{{.merges = "[[]]"}, "pair"},
		{{.merges = "[[\"a\",1]]"}, "string was expected"},
		{{.merges = "[1]"}, "string was expected"},
		{{.merges = "[\"a b\" \"b c\"]"}, "expected"},
		{{.vocab = "{\"\":0,\"a\":1}", .merges = "[[\"\",\"a\"]]"}, "empty"},
		{{.options = "\"vocab\":{\"a\":1},"}, "twice"},
		{{.options = "\"merges\":[],"}, "twice"},
		{{.options = "\"type\":\"BPE\","}, "twice"},
		{{.options = "\"ignore_merges\":true,\"ignore_merges\":true,"}, "twice"},
		{{.normalizer = "null,\"added_tokens\":[]"}, "twice"},
		{{.options = "\"ignore_merges\":1,"}, "true or false"},
		{{.added = "[{\"id\":1,\"content\":\"<s>\"}]"}, "id 1"},
		{{.added = "[{\"id\":30,\"content\":\"ab\"}]"}, "id 30"},
		{{.added = "[{\"id\":30}]"}, "without id or content"},
		{{.added = "[{\"content\":\"<s>\"}]"}, "without id or content"},
		{{.added = "[{\"id\":30,\"content\":\"\"}]"}, "without id or content"},
		{{.added = "[{\"id\":1e1,\"content\":\"<s>\"}]"}, "whole number"},
		{{.added = "[3]"}, "object was expected"},
		{{.added = "{}"}, "array was expected"},
		{{.normalizer = "{}"}, "without a type"},
		{{.normalizer = "3"}, "object was expected"},
		{{.normalizer = "{\"type\":\"Sequence\"}"}, "without its parts"},
		{{.pretokenizer = SPLIT("null")}, "without a pattern"},
		{{.pretokenizer = SPLIT("{\"Regex\":\"(a\"}")}, "regular expression"},
		{{.decoder = "tru"}, "not a JSON value"},
		{{.decoder = "01"}, "malformed number"},
		{{.decoder = "-"}, "malformed number"},
	};

	(void) state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		Parts		parts = cases[i].parts;
		char	   *text;

		/* read where any value is taken */
		if (parts.decoder != NULL)
		{
			parts.added = parts.decoder;
			parts.decoder = NULL;
		}
		text = build(&parts);
		assert_refused(text, strlen(text), HYMT_FAILURE_MODEL_BROKEN, cases[i].word);
	}
	assert_refused("", 0, HYMT_FAILURE_MODEL_BROKEN, "expected");
	assert_refused("[]", 2, HYMT_FAILURE_MODEL_BROKEN, "object was expected");
	assert_refused("{}", 2, HYMT_FAILURE_MODEL_BROKEN, "\"model\"");
	assert_refused("{\0}", 3, HYMT_FAILURE_MODEL_BROKEN, "expected");
}

static void
test_depth(void **state)
{
	char		text[20000];
	size_t		depth = 9000;

	(void) state;
	memcpy(text, "{\"a\":", 5);
	memset(text + 5, '[', depth);
	memset(text + 5 + depth, ']', depth);
	text[5 + 2 * depth] = '}';
	assert_refused(text, 6 + 2 * depth, HYMT_FAILURE_MODEL_BROKEN, "too deeply");
}

static void
test_files_that_are_not_there(void **state)
{
	HymtTokenizer *tokenizer;
	HymtError	error;

	(void) state;
	assert_false(hymt_tokenizer_open(&tokenizer, "models/nothing/tokenizer.json", &error));
	assert_int_equal(error.failure, HYMT_FAILURE_MODEL_MISSING);
	assert_non_null(strstr(error.message, "models/nothing/tokenizer.json"));
	assert_false(hymt_tokenizer_open(&tokenizer, "models", &error));
	assert_int_equal(error.failure, HYMT_FAILURE_MODEL_UNREADABLE);
}

/* Every cut of a good file is refused. */
static void
test_truncated_files(void **state)
{
	const char *text = build(&(Parts){.normalizer = "{\"type\":\"NFC\"}"});
	size_t		length = strlen(text);

	(void) state;
	for (size_t cut = 0; cut < length; cut++)
	{
		HymtTokenizer *tokenizer;
		HymtError	error;

		assert_false(open_text(&tokenizer, text, cut, &error));
		assert_int_equal(error.failure, HYMT_FAILURE_MODEL_BROKEN);
	}
}

/* Damaged files are refused or read, and what is read can be used. */
static void
test_damaged_files(void **state)
{
	static const char marks[] = "\"\\{}[]:,0123456789-eE.u \xff\xc3\xa0(?*+|^$";
	static const Parts good = {
		.normalizer = "{\"type\":\"NFC\"}",
		.pretokenizer = SPLIT("{\"Regex\":"
			"\"(?i:'s|'t)|[^\\\\r\\\\n\\\\p{L}]?\\\\p{L}+|\\\\s+(?!\\\\S)|\\\\p{N}{1,3}\"}"),
	};
	char	   *text = build(&good);
	size_t		length = strlen(text);
	char	   *damaged = malloc(length);
	unsigned	seed = 7;

	(void) state;
	for (int round = 0; round < 20000; round++)
	{
		HymtTokenizer *tokenizer;
		HymtError	error;
		int			changes = 1 + (int) (rand_r(&seed) % 4);

		memcpy(damaged, text, length);
		for (int i = 0; i < changes; i++)
		{
			char		mark = marks[rand_r(&seed) % (sizeof(marks) - 1)];

			damaged[rand_r(&seed) % length] = rand_r(&seed) % 4 ? mark : (char) rand_r(&seed);
		}
		if (open_text(&tokenizer, damaged, length, &error))
		{
			HymtIds		ids = {0};
			char	   *decoded;
			size_t		decoded_length;

			hymt_tokenizer_encode(tokenizer, "abcd 's 12345 e\xcc\x81", 16, &ids, &error);
			hymt_ids_append(&ids, 21);
			assert_true(hymt_tokenizer_decode(tokenizer, ids.ids, ids.count, &decoded, &decoded_length));
			free(decoded);
			hymt_ids_free(&ids);
			hymt_tokenizer_close(tokenizer);
		}
		else
			assert_in_range(strlen(error.message), 1, sizeof(error.message) - 1);
	}
	free(damaged);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_demo_vectors),
		cmocka_unit_test(test_deepseek_vectors),
		cmocka_unit_test(test_qwen_vectors),
		cmocka_unit_test(test_merge_order),
		cmocka_unit_test(test_ignore_merges),
		cmocka_unit_test(test_control_tokens_in_the_vocabulary),
		cmocka_unit_test(test_merge_lists),
		cmocka_unit_test(test_against_slow_merging),
		cmocka_unit_test(test_long_words),
		cmocka_unit_test(test_texts_that_are_no_utf8),
		cmocka_unit_test(test_added_tokens_are_not_found_in_text),
		cmocka_unit_test(test_decoding),
		cmocka_unit_test(test_decoding_of_broken_characters),
		cmocka_unit_test(test_files_that_are_understood),
		cmocka_unit_test(test_files_of_another_kind),
		cmocka_unit_test(test_files_that_are_broken),
		cmocka_unit_test(test_depth),
		cmocka_unit_test(test_files_that_are_not_there),
		cmocka_unit_test(test_truncated_files),
		cmocka_unit_test(test_damaged_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
