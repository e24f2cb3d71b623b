/*
 * prompts.c: the texts the models were trained to answer, and how a prompt becomes token ids.
 *
 * Runs in the engine program. Owns constant data only. The texts are those of the publishers' READMEs and reports, to
 * the byte: a model that is asked in other words answers worse.
 */
#include "prompts.h"

#include <stdlib.h>
#include <string.h>

#include "utf8.h"

/*
 * All prompt texts, by family and form. Slots: {text} what is translated; {tgt_zh}, {tgt_en} the target language's name
 * in Chinese, in English; {terms} lines of term_line joined by term_joiner, {source_term}, {target_term} in each;
 * {context}, {style}. The form says the language of its wording; one that a family lacks is not documented for it.
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
};

/* Chat templates: control tokens, each ending with ">", around the slots {prompt} and {system}. */
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
};

#define CHAT_TEXTS (sizeof(chat_texts) / sizeof(chat_texts[0]))

static const char text_slot[] = "{text}";
static const char prompt_slot[] = "{prompt}";

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

static bool
out_of_memory(HymtError *error)
{
	return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "prompt: out of memory");
}

/* --- chat templates ------------------------------------------------------------------------------------------ */

/* The ids of the control tokens from `text` up to `end`. False when the tokenizer lacks one. */
static bool
control_ids(const HymtTokenizer *tokenizer, const char *text, const char *end, int32_t ids[4], int *count)
{
	*count = 0;
	while (text < end)
	{
		const char *closing = memchr(text, '>', (size_t) (end - text));
		char		token[64];
		size_t		length;

		if (closing == NULL || *count == 4)
			return false;
		length = (size_t) (closing + 1 - text);
		if (length >= sizeof(token))
			return false;
		memcpy(token, text, length);
		token[length] = '\0';
		ids[*count] = hymt_tokenizer_added_id(tokenizer, token);
		/* an added token that is no control token would be text in the eyes of whoever trained the model */
		if (!hymt_tokenizer_is_special(tokenizer, ids[*count]))
			return false;
		(*count)++;
		text += length;
	}
	return true;
}

bool
hymt_chat_template_find(HymtChatTemplate *chat, const HymtTokenizer *tokenizer, HymtError *error)
{
	for (size_t i = 0; i < CHAT_TEXTS; i++)
	{
		const char *text = chat_texts[i].text;
		const char *slot = strstr(text, prompt_slot);
		const char *behind = slot + sizeof(prompt_slot) - 1;

		memset(chat, 0, sizeof(*chat));
		chat->name = chat_texts[i].name;
		if (control_ids(tokenizer, text, slot, chat->before, &chat->before_count) &&
			control_ids(tokenizer, behind, behind + strlen(behind), chat->after, &chat->after_count))
			return true;
	}
	memset(chat, 0, sizeof(*chat));
	return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED,
					 "the tokenizer has the control tokens of no known chat template (neither %s nor %s)",
					 chat_texts[0].text, chat_texts[1].text);
}

/* --- plain prompts ------------------------------------------------------------------------------------------- */

/* The longest a pattern can become, its NUL included, when each slot is a language's name. */
static size_t
filled_size(size_t length, const HymtLanguage *target)
{
	return (length + 1) * (1 + strlen(target->chinese_name) + strlen(target->english_name));
}

/* A piece of a prompt text with the names of the target language put in, malloc'ed. NULL: out of memory. */
static char *
fill_names(const char *text, size_t length, const HymtLanguage *target)
{
	static const char zh[] = "{tgt_zh}";
	static const char en[] = "{tgt_en}";
	const char *end = text + length;
	char	   *filled = malloc(filled_size(length, target));
	char	   *to = filled;

	if (filled == NULL)
		return NULL;
	while (text < end)
	{
		size_t		left = (size_t) (end - text);

		if (left >= sizeof(zh) - 1 && memcmp(text, zh, sizeof(zh) - 1) == 0)
		{
			to = stpcpy(to, target->chinese_name);
			text += sizeof(zh) - 1;
		}
		else if (left >= sizeof(en) - 1 && memcmp(text, en, sizeof(en) - 1) == 0)
		{
			to = stpcpy(to, target->english_name);
			text += sizeof(en) - 1;
		}
		else
			*to++ = *text++;
	}
	*to = '\0';
	return filled;
}

bool
hymt_prompt_plain(HymtFamily family, const HymtLanguage *source, const HymtLanguage *target, char **head, char **tail,
				  HymtError *error)
{
	bool		chinese = source->chinese || target->chinese;
	const char *text = hymt_prompt_text(family, chinese ? "plain_zh" : "plain_en");
	const char *slot;
	const char *behind;

	*head = NULL;
	*tail = NULL;
	if (text == NULL)
		return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED,
						 "nothing tells which prompts the model was trained with: say it with \"prompts\" in its "
						 "hymt.json, with --family, or with the setting hymt.prompt_family "
						 "(hunyuan-mt, hy-mt1.5 or hy-mt2)");
	slot = strstr(text, text_slot);
	behind = slot + sizeof(text_slot) - 1;
	*head = fill_names(text, (size_t) (slot - text), target);
	*tail = fill_names(behind, strlen(behind), target);
	if (*head != NULL && *tail != NULL)
		return true;
	free(*head);
	free(*tail);
	*head = NULL;
	*tail = NULL;
	return out_of_memory(error);
}

static bool
append_ids(HymtIds *ids, const int32_t *more, int count, HymtError *error)
{
	for (int i = 0; i < count; i++)
		if (!hymt_ids_append(ids, more[i]))
			return out_of_memory(error);
	return true;
}

/* Append the ids of head, text and tail as one text: tokens may span their borders. */
static bool
encode_turn(const HymtTokenizer *tokenizer, const char *head, const char *text, size_t length, const char *tail,
			size_t limit, HymtIds *ids, HymtError *error)
{
	size_t		head_length = strlen(head);
	size_t		tail_length = strlen(tail);
	char	   *turn = malloc(head_length + length + tail_length + 1);
	bool		ok;

	if (turn == NULL)
		return out_of_memory(error);
	memcpy(turn, head, head_length);
	if (length > 0)
		memcpy(turn + head_length, text, length);
	memcpy(turn + head_length + length, tail, tail_length);
	ok = hymt_tokenizer_encode_limited(tokenizer, turn, head_length + length + tail_length, limit, ids, error);
	free(turn);
	return ok;
}

/* What can be wrong with a text by itself: errors name its own bytes, not those of the turn. */
static bool
check_text(const char *text, size_t length, HymtError *error)
{
	size_t		valid = hymt_utf8_valid(text, length);

	return valid == length ||
		hymt_fail(error, HYMT_FAILURE_BAD_TEXT, "text is not valid UTF-8 at byte %zu", valid);
}

static bool
count_tokens(const HymtTokenizer *tokenizer, const char *text, size_t length, size_t *count, HymtError *error)
{
	HymtIds		ids = {0};
	bool		ok = hymt_tokenizer_encode(tokenizer, text, length, &ids, error);

	*count = ids.count;
	hymt_ids_free(&ids);
	return ok;
}

bool
hymt_prompt_encode(HymtFamily family, const HymtChatTemplate *chat, const HymtTokenizer *tokenizer,
				   const HymtLanguage *source, const HymtLanguage *target, const char *text, size_t length,
				   size_t limit, HymtIds *ids, size_t *text_tokens, HymtError *error)
{
	size_t		before = ids->count;
	char	   *head;
	char	   *tail;
	bool		ok;

	if (!hymt_prompt_plain(family, source, target, &head, &tail, error))
		return false;
	/* the text alone is encoded only when the turn has turned out to be short enough */
	ok = check_text(text, length, error) &&
		append_ids(ids, chat->before, chat->before_count, error) &&
		encode_turn(tokenizer, head, text, length, tail, limit, ids, error) &&
		append_ids(ids, chat->after, chat->after_count, error) &&
		count_tokens(tokenizer, text, length, text_tokens, error);
	free(head);
	free(tail);
	if (!ok)
		ids->count = before;
	return ok;
}
