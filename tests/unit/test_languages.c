/*
 * test_languages.c: the language table and the spellings of codes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../src/protocol/frames.h"
#include "../../src/protocol/languages.h"

static const char *
find(const char *code)
{
	const HymtLanguage *language = hymt_language_find(code, strlen(code));

	return language == NULL ? "none" : language->code;
}

static void
test_table(void **state)
{
	(void) state;
	assert_int_equal(hymt_language_count, 38);
	for (int i = 0; i < hymt_language_count; i++)
	{
		const HymtLanguage *language = &hymt_languages[i];
		bool		fine = strcmp(language->code, "my") == 0 || strcmp(language->code, "km") == 0 ||
			strcmp(language->code, "bo") == 0 || strcmp(language->code, "ug") == 0;

		assert_ptr_equal(hymt_language_find(language->code, strlen(language->code)), language);
		assert_true(strlen(language->code) < HYMT_LANG_MAX);
		assert_true(language->english_name[0] >= 'A' && language->english_name[0] <= 'Z');
		assert_true((unsigned char) language->chinese_name[0] >= 0xe4);
		assert_int_equal(language->answer_ratio, fine ? 16 : 8);
		for (int j = 0; j < i; j++)
		{
			assert_string_not_equal(language->code, hymt_languages[j].code);
			assert_string_not_equal(language->english_name, hymt_languages[j].english_name);
			assert_string_not_equal(language->chinese_name, hymt_languages[j].chinese_name);
		}
	}
}

static void
test_chinese_wording(void **state)
{
	int			count = 0;

	(void) state;
	for (int i = 0; i < hymt_language_count; i++)
		count += hymt_languages[i].chinese;
	assert_int_equal(count, 3);
	assert_true(hymt_language_find("zh", 2)->chinese);
	assert_true(hymt_language_find("zh-Hant", 7)->chinese);
	assert_true(hymt_language_find("yue", 3)->chinese);
	assert_false(hymt_language_find("ja", 2)->chinese);
}

static void
test_spellings(void **state)
{
	static const char *const cases[][2] = {
		{"zh-CN", "zh"}, {"zh_cn", "zh"}, {"zh-SG", "zh"}, {"zh-Hans", "zh"}, {"zh-Hans-CN", "zh"},
		{"ZH-HANS-TW", "zh"}, {"zh-cmn-Hans", "zh"}, {"cmn", "zh"}, {"cmn-Hant", "zh-Hant"},
		{"zh-TW", "zh-Hant"}, {"zh_TW", "zh-Hant"}, {"zh-HK", "zh-Hant"}, {"zh-MO", "zh-Hant"},
		{"zh-hant", "zh-Hant"}, {"ZH-HANT", "zh-Hant"}, {"zh-Hant-HK", "zh-Hant"}, {"zh-Hant-CN", "zh-Hant"},
		{"yue-Hant-HK", "yue"}, {"yue_HK", "yue"}, {"zh-yue", "yue"}, {"YUE", "yue"},
		{"EN", "en"}, {"en-US", "en"}, {"en_GB", "en"}, {"en-Latn-US", "en"}, {"pt-BR", "pt"}, {"es-419", "es"},
		{"de-1996", "de"}, {"de-CH-1901", "de"}, {"ca", "none"},
		{"iw", "he"}, {"iw-IL", "he"}, {"in", "id"}, {"fil", "tl"}, {"fil-PH", "tl"}, {"pes", "fa"},
		{"kk-Arab", "kk"}, {"mn-Mong", "mn"},
	};

	(void) state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(find(cases[i][0]), cases[i][1]);
}

static void
test_unknown(void **state)
{
	static const char *const cases[] = {
		"xx", "", "z", "zh-", "-zh", "zh--CN", "zh-C", "zh-CN-", "zh CN", "zh-CN ", " zh", "en-USA", "en-12", "sr-Latn",
		"sr", "auto", "Chinese", "chinese", "中文", "zh.UTF-8", "zh_CN.UTF-8", "_", "-", "zh-Hant-Hant", "en-US-GB",
		"zh-Hant-TW-xxxxx-xxxxx-xxxxx-xxxxx-xxxxx-xxxxx-xxxxx-xxxxx-xxxxx-xxxxx-xxxxx", "de-aaaaaaaaa", "zh\xff",
	};

	char		huge[5000];

	(void) state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(find(cases[i]), "none");
	memset(huge, 'z', sizeof(huge));
	assert_null(hymt_language_find(huge, sizeof(huge)));
	assert_null(hymt_language_find("zh\0", 3));
	/* only `length` bytes are the code */
	assert_string_equal(hymt_language_find("zhxx", 2)->code, "zh");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_chinese_wording),
		cmocka_unit_test(test_spellings),
		cmocka_unit_test(test_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
