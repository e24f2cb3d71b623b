/*
 * test_json_stream.c: the reader of large JSON texts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../src/engine/json_stream.h"

static char buffer[4096];

static void
start(HymtJson *json, const char *text)
{
	strcpy(buffer, text);
	hymt_json_start(json, buffer, strlen(buffer));
}

static void
test_strings(void **state)
{
	static const struct
	{
		const char *json;
		const char *text;
		size_t		length;
	}			cases[] = {
		{"\"\"", "", 0}, {"\"a\xc3\xa9\"", "a\xc3\xa9", 3},
		{"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8},
		{"\"\\u0041\\u00e9\\u20AC\\ud83d\\ude42\"", "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", 10},
		{"\"a\\u0000b\"", "a\0b", 3}, {"\"\\uffff\\uDBFF\\uDFFF\"", "\xef\xbf\xbf\xf4\x8f\xbf\xbf", 7},
		{"\"\x7f\"", "\x7f", 1},
	};
	HymtJson	json;
	HymtJsonText text;

	(void) state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		start(&json, cases[i].json);
		assert_true(hymt_json_string(&json, &text));
		assert_int_equal(text.length, cases[i].length);
		assert_memory_equal(text.data, cases[i].text, text.length);
		assert_true(hymt_json_finish(&json));
	}
}

static void
test_integers(void **state)
{
	HymtJson	json;
	int64_t		value;

	(void) state;
	start(&json, " -9223372036854775808 ");
	assert_true(hymt_json_integer(&json, &value) && hymt_json_finish(&json));
	assert_true(value == INT64_MIN);
	start(&json, "9223372036854775807");
	assert_true(hymt_json_integer(&json, &value));
	assert_true(value == INT64_MAX);
	start(&json, "-0");
	assert_true(hymt_json_integer(&json, &value));
	assert_int_equal(value, 0);
	start(&json, "9223372036854775808");
	assert_false(hymt_json_integer(&json, &value));
	start(&json, "-9223372036854775809");
	assert_false(hymt_json_integer(&json, &value));
	start(&json, "1.0");
	assert_false(hymt_json_integer(&json, &value));
}

static void
test_walk(void **state)
{
	static const char text[] = "{\"skip\\n\":[{\"x\":[]},{},[[1,2],\"\\\"]\"]],\"keep\":[true,false,null],\"n\":7}";
	HymtJson	json;
	HymtJsonText key;
	int64_t		number = 0;
	bool		first = false;
	bool		second = true;

	(void) state;
	start(&json, text);
	assert_true(hymt_json_enter(&json, '{'));
	assert_true(hymt_json_next(&json) && hymt_json_key(&json, &key) && hymt_json_text_is(&key, "skip\n"));
	assert_true(hymt_json_skip(&json));
	assert_true(hymt_json_next(&json) && hymt_json_key(&json, &key) && hymt_json_text_is(&key, "keep"));
	assert_true(hymt_json_enter(&json, '['));
	assert_true(hymt_json_next(&json) && hymt_json_boolean(&json, &first));
	assert_true(hymt_json_next(&json) && hymt_json_boolean(&json, &second));
	assert_true(hymt_json_next(&json) && hymt_json_null(&json));
	assert_false(hymt_json_next(&json));
	assert_true(hymt_json_next(&json) && hymt_json_key(&json, &key) && hymt_json_integer(&json, &number));
	assert_false(hymt_json_next(&json));
	assert_true(hymt_json_finish(&json));
	assert_true(first && !second && number == 7);
	assert_int_equal(json.depth, 0);
}

/* Skipping accepts what is JSON, and nothing else; it leaves the text as it was. */
static void
test_skip(void **state)
{
	static const char *const good[] = {
		"{}", "[]", " [ ] ", "{\"a\":{\"b\":[1,2.5,-3e+7,0,-0.0E1]},\"c\":\"\\u00e9\"}", "\"\"", "null", "true",
		"false", "0",
	};
	static const char *const bad[] = {
		"", "{", "}", "[", "]", "[1,]", "[,1]", "[1 2]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{1:1}", "[1}",
		"{\"a\":1]",
		"nul", "True", "+1", "01", "1.", ".5", "1e", "-", "\"", "\"\\\"", "\"\\", "\"\\u\"", "\"\\u12\"", "\"\\x\"",
		"\"\t\"",
		"\"\xc3\"", "\"\xed\xa0\x80\"", "\"\\ud83d\"", "\"\\ude42\"", "'a'", "//", "[1]]", "1 1", "NaN", "Infinity",
	};
	HymtJson	json;

	(void) state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
	{
		start(&json, good[i]);
		if (!hymt_json_skip(&json) || !hymt_json_finish(&json))
			fail_msg("%s: %s", good[i], json.problem);
		assert_string_equal(buffer, good[i]);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
	{
		start(&json, bad[i]);
		if (hymt_json_skip(&json) && hymt_json_finish(&json))
			fail_msg("%s was accepted", bad[i]);
		assert_non_null(json.problem);
		assert_true(json.offset <= strlen(bad[i]));
		/* errors stick */
		assert_false(hymt_json_next(&json));
		assert_false(hymt_json_skip(&json));
		assert_false(hymt_json_finish(&json));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_integers),
		cmocka_unit_test(test_walk),
		cmocka_unit_test(test_skip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
