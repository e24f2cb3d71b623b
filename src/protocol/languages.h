/*
 * languages.h: the languages of the Hunyuan-MT family, one table for the extension and the engine.
 *
 * Source: the language table of the publishers' READMEs (identical in the three model families).
 */
#ifndef HYMT_LANGUAGES_H
#define HYMT_LANGUAGES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct HymtLanguage
{
	const char *code;			/* the models' own code, canonical here: "zh", "zh-Hant", "yue", "tl" … */
	const char *english_name;	/* as prompts name it: "Chinese" */
	const char *chinese_name;	/* UTF-8, as prompts name it: "中文" */
	bool		chinese;		/* zh, zh-Hant and yue: prompts are worded in Chinese */
	int			answer_ratio;	/* cap on new tokens per source token: 8, or 16 where tokenizers split finely */
} HymtLanguage;

extern const HymtLanguage hymt_languages[];
extern const int hymt_language_count;

/*
 * Find a language by its code, or by a BCP-47 spelling people type: any case, "_" for "-", region or script subtags
 * ("zh-CN", "zh_TW", "en-US", "pt-BR", "sr-…" is unknown), deprecated and sibling codes ("iw", "in", "fil", "cmn").
 * zh-TW, zh-HK, zh-MO and zh-Hant-* are Traditional Chinese; zh-CN, zh-SG and zh-Hans-* are Chinese. Returns NULL when
 * the code is unknown. `code` need not be NUL-terminated.
 */
extern const HymtLanguage *hymt_language_find(const char *code, size_t length);

#endif							/* HYMT_LANGUAGES_H */
