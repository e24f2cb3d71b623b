/*
 * prompts.c: the texts the models were trained to answer.
 *
 * Runs in the engine program. Owns constant data only. The texts are those of the publishers' READMEs and reports, to
 * the byte: a model that is asked in other words answers worse.
 */
#include "prompts.h"

#include <stdlib.h>
#include <string.h>

#include "prompts_parts.h"

/*
 * All prompt texts, by family and form. Slots: {text} what is translated; {tgt_zh}, {tgt_en} the target language's name
 * in Chinese, in English; {terms} lines of term_line joined by term_joiner, {source_term}, {target_term} in each;
 * {context}, {style}. The form says the language of its wording; one that a family lacks is not documented for it.
 * Templates of hymt.json have the same forms and slots, and plainer names for the languages; see hymt_slot_at().
 */
typedef struct PromptText
{
	HymtFamily	family;
	const char *form;
	const char *text;
} PromptText;

static const PromptText prompt_texts[] = {
	{HYMT_FAMILY_HUNYUAN_MT, "plain_zh", "把下面的文本翻译成{tgt_zh}，不要额外解释。\n\n{text}"},
	{HYMT_FAMILY_HUNYUAN_MT, "plain_en",
	"Translate the following segment into {tgt_en}, without additional explanation.\n\n{text}"},

	{HYMT_FAMILY_HY_MT15, "plain_zh", "将以下文本翻译为{tgt_zh}，注意只需要输出翻译后的结果，不要额外解释：\n\n{text}"},
	{HYMT_FAMILY_HY_MT15, "plain_en",
	"Translate the following segment into {tgt_en}, without additional explanation.\n\n{text}"},
	{HYMT_FAMILY_HY_MT15, "term_line_zh", "{source_term} 翻译成 {target_term}"},
	{HYMT_FAMILY_HY_MT15, "term_joiner", "\n"},
	{HYMT_FAMILY_HY_MT15, "terms_zh",
		"参考下面的翻译：\n{terms}\n\n将以下文本翻译为{tgt_zh}，注意只需要输出翻译后的结果，不要额外解释：\n{text}"},
	{HYMT_FAMILY_HY_MT15, "context_zh",
		"{context}\n参考上面的信息，把下面的文本翻译成{tgt_zh}，注意不需要翻译上文，也不要额外解释：\n{text}\n"},
	/* Tags in the text are <s1>…</s1>, <s2>…; the answer comes wrapped in <target>…</target>. */
	{HYMT_FAMILY_HY_MT15, "format_zh",
		"将以下<source></source>之间的文本翻译为{tgt_zh}，注意只需要输出翻译后的结果，不要额外解释，"
		"原文中的<sn></sn>标签表示标签内文本包含格式信息，需要在译文中相应的位置尽量保留该标签。"
		"输出格式为：<target>str</target>\n\n<source>{text}</source>"},

	{HYMT_FAMILY_HY_MT2, "plain_zh", "将以下文本翻译为{tgt_zh}，注意只需要输出翻译后的结果，不要额外解释：\n\n{text}"},
	{HYMT_FAMILY_HY_MT2, "plain_en",
		"Translate the following text into {tgt_en}. Note that you should only output the translated result without "
		"any additional explanation:\n\n{text}"},
	{HYMT_FAMILY_HY_MT2, "term_line_zh", "{source_term} 翻译成 {target_term}"},
	{HYMT_FAMILY_HY_MT2, "term_line_en", "{source_term} translates to {target_term}"},
	{HYMT_FAMILY_HY_MT2, "term_joiner", "\n"},
	{HYMT_FAMILY_HY_MT2, "terms_zh",
		"参考下面的翻译：\n{terms}\n将以下文本翻译为{tgt_zh}，注意只需要输出翻译后的结果，不要额外解释：\n\n{text}"},
	{HYMT_FAMILY_HY_MT2, "terms_en",
		"Reference the following translations:\n{terms}\n\nTranslate the following text into {tgt_en}. Note that you "
		"must ONLY output the translated result without any additional explanation:\n\n{text}"},
	{HYMT_FAMILY_HY_MT2, "context_zh",
		"【背景信息】\n{context}\n\n请结合背景信息将以下文本翻译为{tgt_zh}。\n\n【待翻译文本】\n{text}"},
	{HYMT_FAMILY_HY_MT2, "context_en",
		"[Background Information]\n{context}\n\nPlease translate the following text into {tgt_en}, taking the provided "
		"background information into consideration.\n\n[Source Text]\n{text}"},
	{HYMT_FAMILY_HY_MT2, "delimiters_zh",
		"请将以下文本准确翻译为{tgt_zh}。\n你必须在译文中保留等量的分隔符，绝对不可遗漏、转义或翻译该符号，"
		"并注意分隔符的位置。\n\n{text}"},
	{HYMT_FAMILY_HY_MT2, "delimiters_en",
		"Please accurately translate the following text into {tgt_en}.\nYou must retain the exact same number of "
		"delimiters in the translation. Strictly do not omit, escape, or translate these symbols, and pay close "
		"attention to their placement.\n\n{text}"},
	{HYMT_FAMILY_HY_MT2, "style_zh", "请将以下文本翻译为{tgt_zh}。\n注意翻译的风格要严格符合【{style}】\n\n{text}"},
	{HYMT_FAMILY_HY_MT2, "style_en",
		"Please translate the following text into {tgt_en}. Note that the translation style must strictly conform to "
		"[{style}]:\n\n{text}"},

	{HYMT_FAMILY_ALMA, "plain", "Translate this from {src_en} to {tgt_en}:\n{src_en}: {text}\n{tgt_en}:"},

	{HYMT_FAMILY_TOWER, "plain",
		"Translate the following text from {src_en} into {tgt_en}.\n{src_en}: {text}\n{tgt_en}:"},
};

/* Chat templates: control tokens, each from "<" to ">", and text around the slots {prompt} and {system}. */
typedef struct ChatText
{
	const char *name;
	const char *text;
	const char *text_with_system;
} ChatText;

static const ChatText chat_texts[] = {
	{"7b", "<|startoftext|>{prompt}<|extra_0|>", "<|startoftext|>{system}<|extra_4|>{prompt}<|extra_0|>"},
	{"1.8b", "<｜hy_begin▁of▁sentence｜><｜hy_User｜>{prompt}<｜hy_Assistant｜>",
	"<｜hy_begin▁of▁sentence｜>{system}<｜hy_place▁holder▁no▁3｜><｜hy_User｜>{prompt}<｜hy_Assistant｜>"},
	{"tower-instruct", "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n", NULL},
};

#define CHAT_TEXTS (sizeof(chat_texts) / sizeof(chat_texts[0]))
#define HUNYUAN_CHAT_TEXTS 2	/* the first ones: which of them it is, the tokenizer tells */

const char *
hymt_prompt_text(HymtFamily family, const char *form)
{
	for (size_t i = 0; i < sizeof(prompt_texts) / sizeof(prompt_texts[0]); i++)
		if (prompt_texts[i].family == family && strcmp(prompt_texts[i].form, form) == 0)
			return prompt_texts[i].text;
	return NULL;
}

const char *
hymt_chat_text(const char *name, bool with_system)
{
	for (size_t i = 0; i < CHAT_TEXTS; i++)
		if (strcmp(chat_texts[i].name, name) == 0)
			return with_system ? chat_texts[i].text_with_system : chat_texts[i].text;
	return NULL;
}

/* --- templates ----------------------------------------------------------------------------------------------- */

static const struct
{
	const char *name;
	HymtSlot	slot;
}			slots[] = {
	{"{prompt}", HYMT_SLOT_PROMPT},
	{"{text}", HYMT_SLOT_TEXT},
	{"{context}", HYMT_SLOT_CONTEXT},
	{"{terms}", HYMT_SLOT_TERMS},
	{"{source_term}", HYMT_SLOT_SOURCE_TERM},
	{"{target_term}", HYMT_SLOT_TARGET_TERM},
	{"{style}", HYMT_SLOT_STYLE},
	{"{src_en}", HYMT_SLOT_SOURCE_ENGLISH},
	{"{source_lang}", HYMT_SLOT_SOURCE_ENGLISH},
	{"{tgt_en}", HYMT_SLOT_TARGET_ENGLISH},
	{"{target_lang}", HYMT_SLOT_TARGET_ENGLISH},
	{"{src_zh}", HYMT_SLOT_SOURCE_CHINESE},
	{"{source_lang_zh}", HYMT_SLOT_SOURCE_CHINESE},
	{"{tgt_zh}", HYMT_SLOT_TARGET_CHINESE},
	{"{target_lang_zh}", HYMT_SLOT_TARGET_CHINESE},
	{"{source_code}", HYMT_SLOT_SOURCE_CODE},
	{"{target_code}", HYMT_SLOT_TARGET_CODE},
};

HymtSlot
hymt_slot_at(const char *text, size_t *length)
{
	for (size_t i = 0; text[0] == '{' && i < sizeof(slots) / sizeof(slots[0]); i++)
	{
		*length = strlen(slots[i].name);
		if (strncmp(text, slots[i].name, *length) == 0)
			return slots[i].slot;
	}
	return HYMT_SLOT_NONE;
}

/* Forms, each also with _zh and _en behind it, the slot each must have, and those it may have besides languages. */
static const struct
{
	const char *form;
	HymtSlot	required;
	HymtSlot	also[2];
}			forms[] = {
	{"plain", HYMT_SLOT_TEXT, {0}},
	{"terms", HYMT_SLOT_TEXT, {HYMT_SLOT_TERMS}},
	{"term_line", HYMT_SLOT_TARGET_TERM, {HYMT_SLOT_SOURCE_TERM}},
	{"term_joiner", HYMT_SLOT_NONE, {0}},
	{"context", HYMT_SLOT_TEXT, {HYMT_SLOT_CONTEXT}},
	{"format", HYMT_SLOT_TEXT, {0}},
	{"delimiters", HYMT_SLOT_TEXT, {0}},
	{"style", HYMT_SLOT_TEXT, {HYMT_SLOT_STYLE}},
	{"chat", HYMT_SLOT_PROMPT, {0}},
};

/* The number of a form in the list, whatever its language; -1: none. */
static int
find_form(const char *name)
{
	for (int i = 0; i < (int) (sizeof(forms) / sizeof(forms[0])); i++)
	{
		size_t		length = strlen(forms[i].form);

		if (strncmp(name, forms[i].form, length) == 0 &&
			(name[length] == '\0' || strcmp(name + length, "_zh") == 0 || strcmp(name + length, "_en") == 0))
			return i;
	}
	return -1;
}

static bool
slot_fits(int form, HymtSlot slot)
{
	return slot >= HYMT_SLOT_SOURCE_ENGLISH || slot == forms[form].required || slot == forms[form].also[0] ||
		slot == forms[form].also[1];
}

/* Whether "{name}" stands there: what was meant to be a slot and is none would be asked of the model. */
static size_t
name_in_braces(const char *text)
{
	size_t		length = text[0] == '{' ? strspn(text + 1, "abcdefghijklmnopqrstuvwxyz_") : 0;

	return length > 0 && text[length + 1] == '}' ? length + 2 : 0;
}

bool
hymt_template_check(const char *form, const char *text, char problem[HYMT_TEMPLATE_PROBLEM])
{
	int			number = find_form(form);
	int			required = 0;

	if (number < 0)
	{
		snprintf(problem, HYMT_TEMPLATE_PROBLEM, "is no form of prompt");
		return false;
	}
	if (strlen(text) > HYMT_TEMPLATE_BYTES)
	{
		snprintf(problem, HYMT_TEMPLATE_PROBLEM, "is longer than %d bytes", HYMT_TEMPLATE_BYTES);
		return false;
	}
	for (; *text != '\0'; text++)
	{
		size_t		length;
		HymtSlot	slot = hymt_slot_at(text, &length);

		if (name_in_braces(text) > 0 && (slot == HYMT_SLOT_NONE || !slot_fits(number, slot)))
		{
			snprintf(problem, HYMT_TEMPLATE_PROBLEM, "has the slot %.*s, which is not filled there",
					 (int) (name_in_braces(text) < 40 ? name_in_braces(text) : 40), text);
			return false;
		}
		required += slot != HYMT_SLOT_NONE && slot == forms[number].required;
	}
	if (forms[number].required == HYMT_SLOT_NONE || required == 1)
		return true;
	snprintf(problem, HYMT_TEMPLATE_PROBLEM, "must have the slot {%s} once",
			 forms[number].required == HYMT_SLOT_TEXT ? "text" :
			 forms[number].required == HYMT_SLOT_PROMPT ? "prompt" : "target_term");
	return false;
}

/* --- finding a wording --------------------------------------------------------------------------------------- */

static const char *
find_template(const HymtPrompts *prompts, const char *form)
{
	for (size_t i = 0; i < prompts->template_count; i++)
		if (strcmp(prompts->templates[i].form, form) == 0)
			return prompts->templates[i].text;
	return NULL;
}

/* A form with a suffix, from hymt.json or else, unless only that is asked, from the table. */
static bool
take_wording(HymtWording *wording, const HymtPrompts *prompts, const char *form, const char *suffix, bool own)
{
	char		name[32];

	snprintf(name, sizeof(name), "%s%s", form, suffix);
	wording->text = own ? find_template(prompts, name) : hymt_prompt_text(prompts->family, name);
	wording->suffix = suffix;
	wording->own = own;
	return wording->text != NULL;
}

HymtWording
hymt_prompts_find(const HymtPrompts *prompts, const char *form, bool chinese)
{
	const char *wanted = chinese ? "_zh" : "_en";
	HymtWording wording;

	if (take_wording(&wording, prompts, form, wanted, true) ||
		take_wording(&wording, prompts, form, "", true) ||
		take_wording(&wording, prompts, form, wanted, false) ||
		take_wording(&wording, prompts, form, "", false) ||
		take_wording(&wording, prompts, form, chinese ? "_en" : "_zh", true) ||
		take_wording(&wording, prompts, form, chinese ? "_en" : "_zh", false))
		return wording;
	return (HymtWording) {NULL, "", false};
}

const char *
hymt_prompts_form(const HymtPromptRequest *request)
{
	const char *form = "plain";
	int			wishes = 0;

	if (request->context.data != NULL)
		form = "context", wishes++;
	if (request->term_count > 0)
		form = "terms", wishes++;
	if (request->format != HYMT_FORMAT_TEXT)
		form = request->format == HYMT_FORMAT_TAGS ? "format" : "delimiters", wishes++;
	if (request->style.data != NULL)
		form = "style", wishes++;
	return wishes > 1 ? NULL : form;
}

bool
hymt_prompts_have(const HymtPrompts *prompts, const HymtPromptRequest *request)
{
	const char *form = hymt_prompts_form(request);
	bool		chinese = request->source->chinese || request->target->chinese;

	return form != NULL && hymt_prompts_find(prompts, form, chinese).text != NULL;
}

HymtText
hymt_prompt_unwrap(HymtText answer)
{
	static const char open[] = "<target>";
	static const char close[] = "</target>";
	const char *start = answer.data;
	const char *end = answer.data + answer.length;

	while (start < end && (*start == ' ' || *start == '\n'))
		start++;
	while (start < end && (end[-1] == ' ' || end[-1] == '\n'))
		end--;
	if ((size_t) (end - start) < sizeof(open) - 1 + sizeof(close) - 1 ||
		memcmp(start, open, sizeof(open) - 1) != 0 ||
		memcmp(end - (sizeof(close) - 1), close, sizeof(close) - 1) != 0)
		return answer;
	start += sizeof(open) - 1;
	end -= sizeof(close) - 1;
	return (HymtText) {start, (size_t) (end - start)};
}

/* --- a model's prompts --------------------------------------------------------------------------------------- */

/*
 * Whether the tokenizer has every control token that a chat text of the table spells, each from "<" to ">". A token that
 * only looks like one would be text in the eyes of whoever trained the model; `any` takes every added token.
 */
static bool
has_tokens(const HymtTokenizer *tokenizer, const char *text, bool any)
{
	while ((text = strchr(text, '<')) != NULL)
	{
		const char *end = strchr(text, '>');
		char		token[64];
		int32_t		id;

		if (end == NULL || (size_t) (end + 1 - text) >= sizeof(token))
			return false;
		memcpy(token, text, (size_t) (end + 1 - text));
		token[end + 1 - text] = '\0';
		id = hymt_tokenizer_added_id(tokenizer, token);
		if (id < 0 || (!any && !hymt_tokenizer_is_special(tokenizer, id)))
			return false;
		text = end;
	}
	return true;
}

static bool
choose_hunyuan_chat(HymtPrompts *prompts, const HymtTokenizer *tokenizer, HymtError *error)
{
	for (size_t i = 0; i < HUNYUAN_CHAT_TEXTS; i++)
		if (has_tokens(tokenizer, chat_texts[i].text, false))
		{
			prompts->chat = chat_texts[i].text;
			prompts->chat_name = chat_texts[i].name;
			return true;
		}
	return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED,
					 "the tokenizer has the control tokens of no known chat template (neither %s nor %s)",
					 chat_texts[0].text, chat_texts[1].text);
}

static bool
choose_chat(HymtPrompts *prompts, const HymtTokenizer *tokenizer, HymtError *error)
{
	prompts->chat = find_template(prompts, "chat");
	prompts->chat_name = "hymt.json";
	if (prompts->chat != NULL)
		return true;
	if (prompts->family == HYMT_FAMILY_HUNYUAN_MT || prompts->family == HYMT_FAMILY_HY_MT15 ||
		prompts->family == HYMT_FAMILY_HY_MT2)
		return choose_hunyuan_chat(prompts, tokenizer, error);
	prompts->chat_name = hymt_family_name(prompts->family);
	prompts->chat = hymt_chat_text(prompts->chat_name, false);
	if (prompts->chat == NULL)
	{
		prompts->chat_name = "none";
		prompts->chat = "{prompt}";
		return true;
	}
	return has_tokens(tokenizer, prompts->chat, true) ||
		hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED, "the tokenizer lacks control tokens of the chat template %s",
				  prompts->chat);
}

/* Every token that a prompt may have needs a row of the embedding. */
static bool
check_rows(const HymtPrompts *prompts, const HymtModel *model, const HymtTokenizer *tokenizer, HymtError *error)
{
	int32_t		last = hymt_tokenizer_bos(tokenizer);

	for (size_t t = 0; t <= prompts->template_count; t++)
	{
		const char *text = t < prompts->template_count ? prompts->templates[t].text : prompts->chat;

		for (; *text != '\0'; text++)
		{
			size_t		length;
			int32_t		id = hymt_tokenizer_added_at(tokenizer, text, &length);

			last = id > last ? id : last;
		}
	}
	return last < model->config.vocab ||
		hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "prompts need the token %d, but the model's vocab_size is %d", last,
				  model->config.vocab);
}

bool
hymt_prompts_open(HymtPrompts *prompts, const HymtModel *model, const HymtTokenizer *tokenizer, HymtError *error)
{
	memset(prompts, 0, sizeof(*prompts));
	prompts->family = model->family;
	prompts->templates = model->templates;
	prompts->template_count = model->template_count;
	if (hymt_prompts_find(prompts, "plain", false).text == NULL)
		return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED,
						 "nothing tells which prompts the model was trained with: say it with \"prompts\" or "
						 "\"templates\" in its hymt.json, with --family, or with the setting hymt.prompt_family ("
						 HYMT_FAMILY_NAMES ")");
	return choose_chat(prompts, tokenizer, error) && check_rows(prompts, model, tokenizer, error);
}
