/*
 * languages.c: the languages of the Hunyuan-MT family, and finding one by the code a person typed.
 *
 * Linked into the extension (inside PostgreSQL) and into the engine, so it may use nothing but the C library. It owns
 * constant data only. Nothing here depends on the locale: codes are ASCII.
 */
#include "languages.h"

#include <string.h>

#define MAX_CODE_LENGTH 35		/* what RFC 5646 recommends room for; longer codes name nothing known */
#define MAX_SUBTAGS 8

const HymtLanguage hymt_languages[] = {
	{"zh", "Chinese", "中文", true, 8},
	{"en", "English", "英语", false, 8},
	{"fr", "French", "法语", false, 8},
	{"pt", "Portuguese", "葡萄牙语", false, 8},
	{"es", "Spanish", "西班牙语", false, 8},
	{"ja", "Japanese", "日语", false, 8},
	{"tr", "Turkish", "土耳其语", false, 8},
	{"ru", "Russian", "俄语", false, 8},
	{"ar", "Arabic", "阿拉伯语", false, 8},
	{"ko", "Korean", "韩语", false, 8},
	{"th", "Thai", "泰语", false, 8},
	{"it", "Italian", "意大利语", false, 8},
	{"de", "German", "德语", false, 8},
	{"vi", "Vietnamese", "越南语", false, 8},
	{"ms", "Malay", "马来语", false, 8},
	{"id", "Indonesian", "印尼语", false, 8},
	{"tl", "Filipino", "菲律宾语", false, 8},
	{"hi", "Hindi", "印地语", false, 8},
	{"zh-Hant", "Traditional Chinese", "繁体中文", true, 8},
	{"pl", "Polish", "波兰语", false, 8},
	{"cs", "Czech", "捷克语", false, 8},
	{"nl", "Dutch", "荷兰语", false, 8},
	{"km", "Khmer", "高棉语", false, 16},
	{"my", "Burmese", "缅甸语", false, 16},
	{"fa", "Persian", "波斯语", false, 8},
	{"gu", "Gujarati", "古吉拉特语", false, 8},
	{"ur", "Urdu", "乌尔都语", false, 8},
	{"te", "Telugu", "泰卢固语", false, 8},
	{"mr", "Marathi", "马拉地语", false, 8},
	{"he", "Hebrew", "希伯来语", false, 8},
	{"bn", "Bengali", "孟加拉语", false, 8},
	{"ta", "Tamil", "泰米尔语", false, 8},
	{"uk", "Ukrainian", "乌克兰语", false, 8},
	{"bo", "Tibetan", "藏语", false, 16},
	{"kk", "Kazakh", "哈萨克语", false, 8},
	{"mn", "Mongolian", "蒙古语", false, 8},
	{"ug", "Uyghur", "维吾尔语", false, 16},
	{"yue", "Cantonese", "粤语", true, 8},
};
const int	hymt_language_count = sizeof(hymt_languages) / sizeof(hymt_languages[0]);

/* Codes that name a language of the table but are not its own code: withdrawn ones, and members of a macrolanguage. */
static const struct
{
	const char *alias;
	const char *code;
}			aliases[] = {
	{"iw", "he"},
	{"in", "id"},
	{"fil", "tl"},
	{"cmn", "zh"},
	{"zsm", "ms"},
	{"arb", "ar"},
	{"pes", "fa"},
};

/* A code taken apart. Subtags point into the lower-cased copy. */
typedef struct Subtags
{
	char		copy[MAX_CODE_LENGTH + 1];
	const char *tags[MAX_SUBTAGS];
	int			count;
} Subtags;

static bool
is_letter(char c)
{
	return c >= 'a' && c <= 'z';
}

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Lower-case, split at "-" or "_". False when there is an empty subtag, another character, or too much of anything. */
static bool
split(Subtags *subtags, const char *code, size_t length)
{
	bool		at_start = true;

	subtags->count = 0;
	if (length == 0 || length > MAX_CODE_LENGTH)
		return false;
	for (size_t i = 0; i < length; i++)
	{
		char		c = code[i];

		if (c >= 'A' && c <= 'Z')
			c = (char) (c - 'A' + 'a');
		if (c == '-' || c == '_')
		{
			if (at_start)
				return false;
			subtags->copy[i] = '\0';
			at_start = true;
			continue;
		}
		if (!is_letter(c) && !is_digit(c))
			return false;
		if (at_start)
		{
			if (subtags->count == MAX_SUBTAGS)
				return false;
			subtags->tags[subtags->count++] = &subtags->copy[i];
			at_start = false;
		}
		subtags->copy[i] = c;
	}
	subtags->copy[length] = '\0';
	return !at_start;
}

/* Letters only, of the given length. */
static bool
is_word(const char *tag, size_t length)
{
	if (strlen(tag) != length)
		return false;
	while (is_letter(*tag))
		tag++;
	return *tag == '\0';
}

static bool
is_region(const char *tag)
{
	return is_word(tag, 2) ||
		(strlen(tag) == 3 && is_digit(tag[0]) && is_digit(tag[1]) && is_digit(tag[2]));
}

static bool
is_variant(const char *tag)
{
	size_t		length = strlen(tag);

	return (length >= 5 && length <= 8) || (length == 4 && is_digit(tag[0]));
}

static const HymtLanguage *
find_canonical(const char *code)
{
	for (int i = 0; i < hymt_language_count; i++)
		if (strcmp(hymt_languages[i].code, code) == 0)
			return &hymt_languages[i];
	return NULL;
}

static bool
is_traditional(const char *script, const char *region)
{
	/* a script, when given, says more than a region */
	if (script != NULL)
		return strcmp(script, "hant") == 0;
	return region != NULL &&
		(strcmp(region, "tw") == 0 || strcmp(region, "hk") == 0 || strcmp(region, "mo") == 0);
}

const HymtLanguage *
hymt_language_find(const char *code, size_t length)
{
	Subtags		subtags;
	const char *primary;
	const char *script = NULL;
	const char *region = NULL;
	int			next = 1;

	if (!split(&subtags, code, length))
		return NULL;
	primary = subtags.tags[0];
	for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
		if (strcmp(primary, aliases[i].alias) == 0)
			primary = aliases[i].code;

	/* "zh-yue" and "zh-cmn" are the older spellings of "yue" and "cmn" */
	if (strcmp(primary, "zh") == 0 && next < subtags.count)
	{
		if (strcmp(subtags.tags[next], "yue") == 0)
		{
			primary = "yue";
			next++;
		}
		else if (strcmp(subtags.tags[next], "cmn") == 0)
			next++;
	}

	/*
	 * Scripts, regions and variants are accepted for any language and only matter for Chinese; what is none of them is
	 * taken for a mistake rather than ignored.
	 */
	if (next < subtags.count && is_word(subtags.tags[next], 4))
		script = subtags.tags[next++];
	if (next < subtags.count && is_region(subtags.tags[next]))
		region = subtags.tags[next++];
	while (next < subtags.count && is_variant(subtags.tags[next]))
		next++;
	if (next < subtags.count)
		return NULL;

	if (strcmp(primary, "zh") == 0 && is_traditional(script, region))
		primary = "zh-Hant";
	return find_canonical(primary);
}
