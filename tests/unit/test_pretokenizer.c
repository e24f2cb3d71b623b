/*
 * test_pretokenizer.c: how texts are cut into pieces, what is made of regular expressions, and normalisation.
 *
 * The expected pieces of the three-step chain were published with other ports of the models that use it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <utf8proc.h>

#include "../../src/engine/normalize.h"
#include "../../src/engine/pretokenizer.h"
#include "../../src/engine/regex_dialect.h"

static const char *const three_steps[] = {
	"\\p{N}{1,3}",
	"[一-龥぀-ゟ゠-ヿ]+",
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
	" ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
	NULL
};

static const char *const one_step[] = {
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
	"\\s+(?!\\S)|\\s+",
	NULL
};

static HymtPretokenizer *
create(const char *const *patterns)
{
	HymtPretokenizer *pretokenizer = hymt_pretokenizer_create();
	HymtError	error;

	assert_non_null(pretokenizer);
	for (; *patterns != NULL; patterns++)
		if (!hymt_pretokenizer_add_regex(pretokenizer, *patterns, strlen(*patterns), &error))
			fail_msg("%s", error.message);
	return pretokenizer;
}

/* Cut a text and join the pieces with "/", which the texts do not contain. */
static void
assert_pieces(const HymtPretokenizer *pretokenizer, const char *text, const char *expected)
{
	char		joined[1024];
	HymtPieces	pieces = {0};
	HymtError	error;
	size_t		used = 0;
	size_t		next = 0;

	if (!hymt_pretokenizer_split(pretokenizer, text, strlen(text), SIZE_MAX, &pieces, &error))
		fail_msg("%s", error.message);
	for (size_t i = 0; i < pieces.count; i++)
	{
		assert_int_equal(pieces.pieces[i].start, next);
		assert_true(pieces.pieces[i].length > 0);
		next += pieces.pieces[i].length;
		if (i > 0)
			joined[used++] = '/';
		memcpy(joined + used, text + pieces.pieces[i].start, pieces.pieces[i].length);
		used += pieces.pieces[i].length;
	}
	joined[used] = '\0';
	assert_int_equal(next, strlen(text));
	assert_string_equal(joined, expected);
	hymt_pieces_free(&pieces);
}

static void
test_three_steps(void **state)
{
	static const char *const cases[][2] = {
		{"", ""},
		{"foo1234567中文ABC中文", "foo/123/456/7/中文/ABC/中文"},
		{"١٢٣٤٥٦٧", "١٢٣/٤٥٦/٧"},
		{"１２３４", "１２３/４"},
		{":\n\n", ":\n\n"}, {".\n\n", ".\n\n"}, {"!\r\n", "!\r\n"}, {" \t\r\n", " \t\r\n"},
		{"e\xcc\x81🙂", "e\xcc\x81/🙂"},
		{"$+±€©🙂♥\xef\xb8\x8f", "$+±€©🙂♥/\xef\xb8\x8f"},
		{"あア一Z", "あア一/Z"},
		{"\xe9\xbe\xa5\xe9\xbe\xa6", "\xe9\xbe\xa5/\xe9\xbe\xa6"},
		{"ab_CD", "ab/_CD"}, {"@abc", "@abc"},
		{"  A", " / A"},
		{" \t\n  A", " \t\n/ / A"},
		{" abc12345中文テスト!hello 🙂\n", " abc/123/45/中文テスト/!hello/ 🙂\n"},
	};
	HymtPretokenizer *pretokenizer = create(three_steps);

	(void) state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_pieces(pretokenizer, cases[i][0], cases[i][1]);
	hymt_pretokenizer_free(pretokenizer);
}

/*
 * U+180E stands inside Mongolian words and is no white space; PCRE2's own \s says it is. The others here are: a
 * no-break space, NEL, an ideographic space. U+017F folds to s.
 */
static void
test_one_step(void **state)
{
	static const char *const cases[][2] = {
		{"it's IT'S we'll'd", "it/'s/ IT/'S/ we/'ll/'d"},
		{"it'\xc5\xbf", "it/'\xc5\xbf"},
		{"12 3", "1/2/ /3"},
		{"a\xe1\xa0\x8e" "b", "a/\xe1\xa0\x8e" "b"},
		{"1\xe1\xa0\x8e" "1", "1/\xe1\xa0\x8e/1"},
		{"1\xe1\xa0\x8e\xe1\xa0\x8e\n1", "1/\xe1\xa0\x8e\xe1\xa0\x8e\n/1"},
		{"1\xc2\xa0\xc2\xa0" "1", "1/\xc2\xa0/\xc2\xa0/1"},
		{"1\xc2\x85\n1", "1/\xc2\x85\n/1"},
		{"1\xe3\x80\x80 1", "1/\xe3\x80\x80/ /1"},
		{"!?\r\n\r\na", "!?\r\n\r\n/a"},
	};
	HymtPretokenizer *pretokenizer = create(one_step);

	(void) state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_pieces(pretokenizer, cases[i][0], cases[i][1]);
	hymt_pretokenizer_free(pretokenizer);
}

static void
test_byte_level_and_literals(void **state)
{
	HymtPretokenizer *pretokenizer = hymt_pretokenizer_create();
	HymtError	error;

	(void) state;
	assert_true(hymt_pretokenizer_add_byte_level(pretokenizer, &error));
	assert_pieces(pretokenizer, "I'll go  12 km!", "I/'ll/ go/ / 12/ km/!");
	hymt_pretokenizer_free(pretokenizer);

	pretokenizer = hymt_pretokenizer_create();
	assert_true(hymt_pretokenizer_add_literal(pretokenizer, "a.", 2, &error));
	assert_pieces(pretokenizer, "aba.a.cab", "ab/a./a./cab");
	assert_false(hymt_pretokenizer_add_literal(pretokenizer, "", 0, &error));
	hymt_pretokenizer_free(pretokenizer);
}

/* An empty match is a border, but not right behind another match. */
static void
test_empty_matches(void **state)
{
	static const char *const stars[] = {"b*", NULL};
	static const char *const behind[] = {"(?<=é)", NULL};
	HymtPretokenizer *pretokenizer = create(stars);

	(void) state;
	assert_pieces(pretokenizer, "abba", "a/bb/a");
	assert_pieces(pretokenizer, "éé", "é/é");
	hymt_pretokenizer_free(pretokenizer);
	pretokenizer = create(behind);
	assert_pieces(pretokenizer, "aééa", "aé/é/a");
	hymt_pretokenizer_free(pretokenizer);
}

/* A pattern that takes for ever is stopped, and said to be the cause. */
/* Cutting stops, in whichever step, soon after there are more pieces than wanted. */
static void
test_stops_early(void **state)
{
	static const char *const steps[] = {" ", "[a-z]", NULL};
	HymtPretokenizer *pretokenizer = create(steps);
	static char text[100000];
	HymtError	error;

	(void) state;
	memset(text, 'a', sizeof(text));
	text[50000] = ' ';
	for (size_t most = 0; most < 6; most++)
	{
		HymtPieces	pieces = {0};

		assert_true(hymt_pretokenizer_split(pretokenizer, text, sizeof(text), most, &pieces, &error));
		assert_true(pieces.count > most && pieces.count < most + 8);
		assert_int_equal(pieces.pieces[0].start, 0);
		hymt_pieces_free(&pieces);
	}
	hymt_pretokenizer_free(pretokenizer);
}

static void
test_endless_patterns(void **state)
{
	static const char *const slow[] = {"(?:(?:a|a)+)+[!?]", NULL};
	HymtPretokenizer *pretokenizer = create(slow);
	HymtPieces	pieces = {0};
	HymtError	error;
	char		text[200];

	(void) state;
	memset(text, 'a', sizeof(text));
	assert_false(hymt_pretokenizer_split(pretokenizer, text, sizeof(text), SIZE_MAX, &pieces, &error));
	assert_int_equal(error.failure, HYMT_FAILURE_INTERNAL);
	assert_null(pieces.pieces);
	hymt_pretokenizer_free(pretokenizer);
}

/* Long runs, over which the patterns look several times. */
static void
test_long_runs(void **state)
{
	static const char *const runs[] = {" ", "a", "!", "\n", "1", "中", " \n", "'"};
	size_t		length = 300000;
	char	   *text = malloc(length + 4);
	HymtError	error;

	(void) state;
	for (int chain = 0; chain < 2; chain++)
	{
		HymtPretokenizer *pretokenizer = create(chain == 0 ? three_steps : one_step);

		for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		{
			size_t		unit = strlen(runs[i]);
			size_t		used = 0;
			HymtPieces	pieces = {0};

			for (; used < length; used += unit)
				memcpy(text + used, runs[i], unit);
			text[used++] = 'x';
			if (!hymt_pretokenizer_split(pretokenizer, text, used, SIZE_MAX, &pieces, &error))
				fail_msg("%s", error.message);
			hymt_pieces_free(&pieces);
		}
		hymt_pretokenizer_free(pretokenizer);
	}
	free(text);
}

static void
test_translation(void **state)
{
	static const char *const same[] = {
		"", "a|b", "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+", "\\p{N}{1,3}", "(?i:'s)", "(?!\\d)", "(?<=a)(?<!b)(?>c)(?=d)",
		"a{2,}b{3}",
		"[a-z-]", "[-a]", "\\x41\\x{1F600}", "a?+b*+c++d??e*?f+?", ".", "[\\]\\[]", "\\\\", "]", "}",
	};
	static const char *const refused[] = {
		"\\w", "\\W", "\\b", "\\h", "\\R", "\\X", "\\A", "\\z", "\\G", "\\1", "\\k<a>", "\\v", "\\e", "\\pL",
		"\\p{Han}",
		"\\p{^L}", "\\p{L", "\\x4", "\\u12", "^a", "a$", "[[:alpha:]]", "[a[b]]", "[a&&b]", "[]a]", "[^]a]", "[\\s-z]",
		"[a-\\s]", "[a", "(*UTF8)a", "(?m:a)", "(?x)a", "(?<n>a)", "(?P<n>a)", "(?#a)", "(?~a)", "(?i)a", "(?-i:a)",
		"a{,3}",
		"a{1,2}?", "a{1,2}+", "a{1,2}{3}", "a{x}", "{", "\\",
	};
	HymtError	error;
	size_t		length;
	char	   *translated;

	(void) state;
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
	{
		translated = hymt_regex_translate(same[i], strlen(same[i]), &length, &error);
		if (translated == NULL)
			fail_msg("%s: %s", same[i], error.message);
		assert_string_equal(translated, same[i]);
		assert_int_equal(length, strlen(same[i]));
		free(translated);
	}
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
	{
		translated = hymt_regex_translate(refused[i], strlen(refused[i]), &length, &error);
		if (translated != NULL)
			fail_msg("%s became %s", refused[i], translated);
		assert_int_equal(error.failure, HYMT_FAILURE_MODEL_UNSUPPORTED);
	}
	translated = hymt_regex_translate("\\u4e00", 6, &length, &error);
	assert_string_equal(translated, "\\x{4e00}");
	free(translated);
}

/* \s and \S cut the code points in two halves, the first of which are the 25 of Unicode's White_Space. */
static void
test_white_space(void **state)
{
	static const char *const spaces[] = {"\\s", NULL};
	static const char *const others[] = {"[\\S]+", NULL};
	HymtPretokenizer *space = create(spaces);
	HymtPretokenizer *other = create(others);
	int			count = 0;

	(void) state;
	for (utf8proc_int32_t point = 0; point < 0x3100; point++)
	{
		utf8proc_uint8_t text[8] = "x";
		size_t		length = 1 + (size_t) utf8proc_encode_char(point, text + 1);
		HymtPieces	pieces = {0};
		HymtError	error;
		bool		is_space;

		/* \s cuts it off the x; otherwise they stay together */
		assert_true(hymt_pretokenizer_split(space, (const char *) text, length, SIZE_MAX, &pieces, &error));
		is_space = pieces.count == 2;
		count += is_space;
		hymt_pieces_free(&pieces);
		/* \S+ takes both, or only the x */
		assert_true(hymt_pretokenizer_split(other, (const char *) text, length, SIZE_MAX, &pieces, &error));
		assert_int_equal(pieces.count, is_space ? 2 : 1);
		hymt_pieces_free(&pieces);
	}
	assert_int_equal(count, 25);
	hymt_pretokenizer_free(space);
	hymt_pretokenizer_free(other);
}

/* --- normalisation ------------------------------------------------------------------------------------------- */

static void
assert_normal(const char *text, const char *expected)
{
	char	   *result;
	size_t		length;

	assert_true(hymt_normalize_nfc(text, strlen(text), &result, &length));
	if (result == NULL)
	{
		assert_string_equal(text, expected);
		return;
	}
	assert_int_equal(length, strlen(expected));
	assert_memory_equal(result, expected, length);
	free(result);
}

static void
test_normalisation(void **state)
{
	(void) state;
	assert_normal("", "");
	assert_normal("plain é", "plain é");
	assert_normal("e\xcc\x81", "é");
	/* marks in the wrong order: dot below, then circumflex */
	assert_normal("e\xcc\x82\xcc\xa3", "ệ");
	assert_normal("e\xcc\xa3\xcc\x82", "ệ");
	/* Hangul, a singleton, an exclusion */
	assert_normal("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "한");
	assert_normal("\xe2\x84\xab", "Å");
	assert_normal("\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc");
}

/* The library's own normalisation agrees, on texts that are short enough for it. */
static void
test_normalisation_against_library(void **state)
{
	static const utf8proc_int32_t points[] = {
		'a', 'e', 0x300, 0x301, 0x302, 0x323, 0x327, 0x345, 0x334, 0x3b1, 0x390, 0x1f82, 0x1100, 0x1161, 0x11a8, 0xac00,
		0x915, 0x93c, 0x94d, 0x958, 0xe33, 0xe38, 0x5b0, 0x5bc, 0xfb2a, 0x1d15e, 0x1d165, 0x4e00, 0xf900, ' ',
	};
	unsigned	seed = 3;

	(void) state;
	for (int round = 0; round < 5000; round++)
	{
		char		text[256];
		int			count = 1 + (int) (rand_r(&seed) % 20);
		size_t		used = 0;
		utf8proc_uint8_t *expected;

		for (int i = 0; i < count; i++)
			used += (size_t) utf8proc_encode_char(points[rand_r(&seed) % (sizeof(points) / sizeof(points[0]))],
												  (utf8proc_uint8_t *) text + used);
		text[used] = '\0';
		expected = utf8proc_NFC((utf8proc_uint8_t *) text);
		assert_normal(text, (const char *) expected);
		free(expected);
	}
}

static void
test_normalisation_of_many_marks(void **state)
{
	size_t		pairs = 200000;
	char	   *text = malloc(pairs * 4 + 1);
	char	   *result;
	size_t		length;

	(void) state;
	text[0] = 'q';
	for (size_t i = 0; i < pairs; i++)
		memcpy(text + 1 + 4 * i, "\xcc\x81\xcc\xa3", 4);
	assert_true(hymt_normalize_nfc(text, 1 + 4 * pairs, &result, &length));
	assert_int_equal(length, 1 + 4 * pairs);
	assert_memory_equal(result, "q\xcc\xa3\xcc\xa3", 5);
	assert_memory_equal(result + length - 4, "\xcc\x81\xcc\x81", 4);
	free(result);
	free(text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_three_steps),
		cmocka_unit_test(test_one_step),
		cmocka_unit_test(test_byte_level_and_literals),
		cmocka_unit_test(test_empty_matches),
		cmocka_unit_test(test_stops_early),
		cmocka_unit_test(test_endless_patterns),
		cmocka_unit_test(test_long_runs),
		cmocka_unit_test(test_translation),
		cmocka_unit_test(test_white_space),
		cmocka_unit_test(test_normalisation),
		cmocka_unit_test(test_normalisation_against_library),
		cmocka_unit_test(test_normalisation_of_many_marks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
