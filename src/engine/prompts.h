/*
 * prompts.h: the texts the models were trained to answer, and how a prompt becomes token ids.
 *
 * All prompt bytes stand in one table in prompts.c.
 */
#ifndef HYMT_PROMPTS_H
#define HYMT_PROMPTS_H

#include "../protocol/languages.h"
#include "error.h"
#include "model.h"
#include "tokenizer.h"

/*
 * An entry of the table of prompt texts: a form ("plain_zh", "terms_en", …; see prompts.c) of a family, with its slots
 * as "{text}", "{tgt_zh}" and so on; NULL when the family documents none. Chat templates are "7b" and "1.8b".
 */
extern const char *hymt_prompt_text(HymtFamily family, const char *form);
extern const char *hymt_chat_text(const char *name, bool with_system);

/*
 * The chat template of a tokenizer: which control tokens stand around a prompt. Found by looking which of the known
 * templates' tokens the tokenizer has; fails when it has none of them.
 */
typedef struct HymtChatTemplate
{
	const char *name;			/* "7b" or "1.8b" */
	int32_t		before[4];		/* ids before the user's turn */
	int			before_count;
	int32_t		after[4];
	int			after_count;
} HymtChatTemplate;

extern bool hymt_chat_template_find(HymtChatTemplate *chat, const HymtTokenizer *tokenizer, HymtError *error);

/*
 * The instruction around a text: `head` stands before the text, `tail` after it. Chinese wording when either side is
 * Chinese, English otherwise. Static memory except that language names are filled in: both are malloc'ed, the caller
 * frees them.
 */
extern bool hymt_prompt_plain(HymtFamily family, const HymtLanguage *source, const HymtLanguage *target, char **head,
							  char **tail, HymtError *error);

/*
 * The whole prompt of one translation as ids: template, instruction, text, template. The user's turn is tokenized as
 * one text (so that ids equal those of the reference), with no added token matched in it.
 * *text_tokens is the number of tokens of the text alone, from which the cap on the answer is derived.
 * Fails with TOO_LONG when the user's turn has more than `limit` tokens, and then has not looked at much more than so
 * many: however long a text is, refusing it takes little time.
 */
extern bool hymt_prompt_encode(HymtFamily family, const HymtChatTemplate *chat, const HymtTokenizer *tokenizer,
							   const HymtLanguage *source, const HymtLanguage *target, const char *text, size_t length,
							   size_t limit, HymtIds *ids, size_t *text_tokens, HymtError *error);

#endif							/* HYMT_PROMPTS_H */
