/*
 * prompt_encode.c: a request as the token ids of a prompt.
 *
 * Runs in the engine program. Owns nothing beyond a call. Templates are the program's and the administrator's, texts
 * are anybody's: added tokens are looked for in the former only, whatever the latter spell.
 */
#include <stdlib.h>
#include <string.h>

#include "prompts_parts.h"
#include "utf8.h"

/* A prompt on its way into ids. Text is gathered until a control token or the end comes. */
typedef struct Rendering
{
	const HymtPrompts *prompts;
	const HymtTokenizer *tokenizer;	/* NULL: only the text is wanted */
	const HymtPromptRequest *request;
	HymtError  *error;

	char	   *text;
	size_t		length;
	size_t		capacity;
	const HymtTerm *term;		/* of the line under way */

	HymtIds    *ids;
	size_t		limit;			/* of ids that texts give, not control tokens */
	size_t		text_ids;
	bool		behind;			/* a control token of the template came before */
} Rendering;

static bool
out_of_memory(HymtError *error)
{
	return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "prompt: out of memory");
}

static bool
put(Rendering *rendering, const char *bytes, size_t length)
{
	size_t		needed = rendering->length + length + 1;

	if (needed > rendering->capacity)
	{
		size_t		capacity = needed + needed / 2 + 256;
		char	   *text = realloc(rendering->text, capacity);

		if (text == NULL)
			return out_of_memory(rendering->error);
		rendering->text = text;
		rendering->capacity = capacity;
	}
	if (length > 0)
		memcpy(rendering->text + rendering->length, bytes, length);
	rendering->length += length;
	rendering->text[rendering->length] = '\0';
	return true;
}

static bool
put_string(Rendering *rendering, const char *string)
{
	return put(rendering, string, strlen(string));
}

static bool
put_text(Rendering *rendering, HymtText text)
{
	return put(rendering, text.data, text.length);
}

/* Append the ids of the text that has been gathered: as one text, for tokens may span the borders of its parts. */
static bool
flush(Rendering *rendering)
{
	size_t		before = rendering->ids->count;

	if (!hymt_tokenizer_encode_part(rendering->tokenizer, rendering->text, rendering->length, rendering->behind,
									rendering->limit - rendering->text_ids, rendering->ids, rendering->error))
		return false;
	rendering->text_ids += rendering->ids->count - before;
	rendering->length = 0;
	return true;
}

static bool
put_token(Rendering *rendering, int32_t id)
{
	if (!flush(rendering))
		return false;
	rendering->behind = true;
	return hymt_ids_append(rendering->ids, id) || out_of_memory(rendering->error);
}

/* --- templates ------------------------------------------------------------------------------------------------ */

static bool render(Rendering *rendering, const char *template, bool tokens);

static bool
is_chinese(const HymtPromptRequest *request)
{
	return request->source->chinese || request->target->chinese;
}

/* The lines of terms, in the language of the form around them. */
static bool
render_terms(Rendering *rendering)
{
	const HymtPromptRequest *request = rendering->request;
	bool		chinese = is_chinese(request);
	HymtWording around = hymt_prompts_find(rendering->prompts, "terms", chinese);
	bool		line_chinese = around.suffix[0] == '\0' ? chinese : strcmp(around.suffix, "_zh") == 0;
	HymtWording line = hymt_prompts_find(rendering->prompts, "term_line", line_chinese);
	HymtWording joiner = hymt_prompts_find(rendering->prompts, "term_joiner", line_chinese);

	if (line.text == NULL)
		return hymt_fail(rendering->error, HYMT_FAILURE_UNSUPPORTED,
						 "the model's hymt.json has a template \"terms\" but no \"term_line\"");
	for (size_t i = 0; i < request->term_count; i++)
	{
		rendering->term = &request->terms[i];
		if (i > 0 && !render(rendering, joiner.text == NULL ? "\n" : joiner.text, joiner.own))
			return false;
		if (!render(rendering, line.text, line.own))
			return false;
	}
	return true;
}

static bool
render_prompt(Rendering *rendering)
{
	const char *form = hymt_prompts_form(rendering->request);
	HymtWording wording = hymt_prompts_find(rendering->prompts, form, is_chinese(rendering->request));

	return render(rendering, wording.text, wording.own);
}

static bool
render_slot(Rendering *rendering, HymtSlot slot)
{
	const HymtPromptRequest *request = rendering->request;

	switch (slot)
	{
		case HYMT_SLOT_PROMPT:
			return render_prompt(rendering);
		case HYMT_SLOT_TEXT:
			return put_text(rendering, request->text);
		case HYMT_SLOT_CONTEXT:
			return put_text(rendering, request->context);
		case HYMT_SLOT_TERMS:
			return render_terms(rendering);
		case HYMT_SLOT_SOURCE_TERM:
			return put_text(rendering, rendering->term->source);
		case HYMT_SLOT_TARGET_TERM:
			return put_text(rendering, rendering->term->target);
		case HYMT_SLOT_STYLE:
			return put_text(rendering, request->style);
		case HYMT_SLOT_SOURCE_ENGLISH:
			return put_string(rendering, request->source->english_name);
		case HYMT_SLOT_TARGET_ENGLISH:
			return put_string(rendering, request->target->english_name);
		case HYMT_SLOT_SOURCE_CHINESE:
			return put_string(rendering, request->source->chinese_name);
		case HYMT_SLOT_TARGET_CHINESE:
			return put_string(rendering, request->target->chinese_name);
		case HYMT_SLOT_SOURCE_CODE:
			return put_string(rendering, request->source->code);
		case HYMT_SLOT_TARGET_CODE:
			return put_string(rendering, request->target->code);
		case HYMT_SLOT_NONE:
			break;
	}
	return true;
}

/* Fill in a template. Where `tokens`, what it spells of added tokens is meant as such. */
static bool
render(Rendering *rendering, const char *template, bool tokens)
{
	while (*template != '\0')
	{
		size_t		length;
		HymtSlot	slot = hymt_slot_at(template, &length);
		int32_t		id = -1;
		bool		ok;

		if (slot == HYMT_SLOT_NONE && tokens && rendering->tokenizer != NULL)
			id = hymt_tokenizer_added_at(rendering->tokenizer, template, &length);
		if (slot == HYMT_SLOT_NONE && id < 0)
			length = 1;
		if (slot != HYMT_SLOT_NONE)
			ok = render_slot(rendering, slot);
		else if (id >= 0)
			ok = put_token(rendering, id);
		else
			ok = put(rendering, template, 1);
		if (!ok)
			return false;
		template += length;
	}
	return true;
}

/* --- requests --------------------------------------------------------------------------------------------------- */

/* What can be wrong with a text by itself: errors name its own bytes, not those of the turn. */
static bool
check_text(const char *what, HymtText text, HymtError *error)
{
	size_t		valid = hymt_utf8_valid(text.data, text.length);

	return valid == text.length ||
		hymt_fail(error, HYMT_FAILURE_BAD_TEXT, "%s is not valid UTF-8 at byte %zu", what, valid);
}

static bool
check_request(const HymtPrompts *prompts, const HymtPromptRequest *request, HymtError *error)
{
	const char *form = hymt_prompts_form(request);

	if (form == NULL)
		return hymt_fail(error, HYMT_FAILURE_UNSUPPORTED,
						 "context, terms, format and style cannot be combined in one prompt");
	if (!hymt_prompts_have(prompts, request))
		return hymt_fail(error, HYMT_FAILURE_UNSUPPORTED, "the model (prompts: %s) has no prompt of the form \"%s\"",
						 hymt_family_name(prompts->family), form);
	if (!check_text("text", request->text, error) || !check_text("context", request->context, error) ||
		!check_text("style", request->style, error))
		return false;
	for (size_t i = 0; i < request->term_count; i++)
		if (!check_text("a term", request->terms[i].source, error) ||
			!check_text("a term's translation", request->terms[i].target, error))
			return false;
	return true;
}

static bool
count_tokens(const HymtTokenizer *tokenizer, HymtText text, size_t *count, HymtError *error)
{
	HymtIds		ids = {0};
	bool		ok = hymt_tokenizer_encode(tokenizer, text.data, text.length, &ids, error);

	*count = ids.count;
	hymt_ids_free(&ids);
	return ok;
}

static bool
append_bos(HymtIds *ids, const HymtTokenizer *tokenizer, HymtError *error)
{
	int32_t		bos = hymt_tokenizer_bos(tokenizer);

	return bos < 0 || hymt_ids_append(ids, bos) || out_of_memory(error);
}

bool
hymt_prompt_encode(const HymtPrompts *prompts, const HymtTokenizer *tokenizer, const HymtPromptRequest *request,
				   size_t limit, HymtIds *ids, size_t *text_tokens, HymtError *error)
{
	size_t		before = ids->count;
	Rendering	rendering = {
		.prompts = prompts, .tokenizer = tokenizer, .request = request, .error = error, .ids = ids, .limit = limit,
	};
	bool		ok;

	/* the text alone is encoded only when the prompt has turned out to be short enough */
	ok = check_request(prompts, request, error) &&
		append_bos(ids, tokenizer, error) &&
		render(&rendering, prompts->chat, true) &&
		flush(&rendering) &&
		count_tokens(tokenizer, request->text, text_tokens, error);
	free(rendering.text);
	if (!ok)
		ids->count = before;
	return ok;
}

char *
hymt_prompt_wording(const HymtPrompts *prompts, const HymtPromptRequest *request, HymtError *error)
{
	Rendering	rendering = {.prompts = prompts, .request = request, .error = error};

	if (check_request(prompts, request, error) && put(&rendering, "", 0) && render_prompt(&rendering))
		return rendering.text;
	free(rendering.text);
	return NULL;
}
