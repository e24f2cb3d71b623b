/*
 * prompts.h: the texts the models were trained to answer, and how a prompt becomes token ids.
 *
 * All prompt bytes stand in one table in prompts.c. A model's hymt.json may put templates of its own before them.
 */
#ifndef HYMT_PROMPTS_H
#define HYMT_PROMPTS_H

#include "../protocol/languages.h"
#include "error.h"
#include "model.h"
#include "tokenizer.h"

/*
 * An entry of the table of prompt texts: a form ("plain_zh", "terms_en", …; see prompts.c) of a family, with its slots
 * as "{text}", "{tgt_zh}" and so on; NULL when the family documents none. Chat templates are "7b" and "1.8b" of the
 * Hunyuan families, and one for each other family that has one, by its name.
 */
extern const char *hymt_prompt_text(HymtFamily family, const char *form);
extern const char *hymt_chat_text(const char *name, bool with_system);

/* Whether a template of hymt.json can be used: a form and slots that exist, its text in it. Else, why not. */
#define HYMT_TEMPLATE_PROBLEM 160
#define HYMT_TEMPLATE_BYTES 16384
extern bool hymt_template_check(const char *form, const char *text, char problem[HYMT_TEMPLATE_PROBLEM]);

/* What a model's prompts are made of. Points into the model, which must outlive it. */
typedef struct HymtPrompts
{
	HymtFamily	family;
	const HymtTemplate *templates;
	size_t		template_count;
	const char *chat;			/* what stands around a prompt, which is its slot {prompt} */
	const char *chat_name;		/* "7b", "1.8b", "hymt.json", a family's name, or "none" */
} HymtPrompts;

/*
 * Fails when nothing tells the wording, and when the tokenizer lacks control tokens of the chat template or the model
 * has no row for one.
 */
extern bool hymt_prompts_open(HymtPrompts *prompts, const HymtModel *model, const HymtTokenizer *tokenizer,
							  HymtError *error);

/* UTF-8, not NUL-terminated; data NULL when there is none. */
typedef struct HymtText
{
	const char *data;
	size_t		length;
} HymtText;

/* A term and how it is to be translated. */
typedef struct HymtTerm
{
	HymtText	source;
	HymtText	target;
} HymtTerm;

typedef enum HymtPromptFormat
{
	HYMT_FORMAT_TEXT,
	HYMT_FORMAT_TAGS,			/* the text has tags <s1>…</s1>, <s2>… that are to be kept; see hymt_prompt_unwrap() */
	HYMT_FORMAT_DELIMITERS		/* the text has delimiters that are to be kept */
} HymtPromptFormat;

/* What is to be translated, and how. At most one of context, terms, format and style: no model was trained on more. */
typedef struct HymtPromptRequest
{
	const HymtLanguage *source;
	const HymtLanguage *target;
	HymtText	text;
	HymtText	context;		/* not translated */
	const HymtTerm *terms;
	size_t		term_count;
	HymtPromptFormat format;
	HymtText	style;
} HymtPromptRequest;

/* Whether the model has a prompt for what the request asks besides a plain translation. Looks at no text. */
extern bool hymt_prompts_have(const HymtPrompts *prompts, const HymtPromptRequest *request);

/*
 * The whole prompt of one translation as ids: begin of prompt, chat template, instruction, text. Chinese wording when
 * either side is Chinese, English otherwise; the other one where a family has only that. What stands between control
 * tokens is tokenized as one text (so that ids equal those of the reference), with no added token matched in what the
 * request brought.
 * *text_tokens is the number of tokens of the text alone, from which the cap on the answer is derived.
 * Fails with TOO_LONG when all texts of the prompt have more than `limit` tokens, and then has not looked at much more
 * than so many: however long a text is, refusing it takes little time. Fails with UNSUPPORTED when the model has
 * no such prompt.
 */
extern bool hymt_prompt_encode(const HymtPrompts *prompts, const HymtTokenizer *tokenizer,
							   const HymtPromptRequest *request, size_t limit, HymtIds *ids, size_t *text_tokens,
							   HymtError *error);

/*
 * The prompt as text, malloc'ed, the caller frees it, without chat template: for people and tests. NULL with *error set
 * when there is none.
 */
extern char *hymt_prompt_wording(const HymtPrompts *prompts, const HymtPromptRequest *request, HymtError *error);

/*
 * Models answer a prompt of format TAGS in <target>…</target>. The part of an answer between them; all of it when they
 * are not there.
 */
extern HymtText hymt_prompt_unwrap(HymtText answer);

#endif							/* HYMT_PROMPTS_H */
