/*
 * prompts_parts.h: what prompts.c and prompt_encode.c share. Everybody else includes prompts.h.
 */
#ifndef HYMT_PROMPTS_PARTS_H
#define HYMT_PROMPTS_PARTS_H

#include "prompts.h"

/* What a slot of a template stands for. */
typedef enum HymtSlot
{
	HYMT_SLOT_NONE,
	HYMT_SLOT_PROMPT,
	HYMT_SLOT_TEXT,
	HYMT_SLOT_CONTEXT,
	HYMT_SLOT_TERMS,
	HYMT_SLOT_SOURCE_TERM,
	HYMT_SLOT_TARGET_TERM,
	HYMT_SLOT_STYLE,
	HYMT_SLOT_SOURCE_ENGLISH,
	HYMT_SLOT_TARGET_ENGLISH,
	HYMT_SLOT_SOURCE_CHINESE,
	HYMT_SLOT_TARGET_CHINESE,
	HYMT_SLOT_SOURCE_CODE,
	HYMT_SLOT_TARGET_CODE
} HymtSlot;

/* The slot that begins at `text`, with its braces, and its length; NONE when there is none. */
extern HymtSlot hymt_slot_at(const char *text, size_t *length);

/* A prompt text and where it is from. */
typedef struct HymtWording
{
	const char *text;			/* NULL: there is none */
	const char *suffix;			/* of its form: "_zh", "_en" or "" */
	bool		own;			/* from hymt.json, where added tokens may be spelled */
} HymtWording;

/* A form in the language of choice, else in the other one. */
extern HymtWording hymt_prompts_find(const HymtPrompts *prompts, const char *form, bool chinese);

/* The form that a request needs; NULL when it asks for several things at once. */
extern const char *hymt_prompts_form(const HymtPromptRequest *request);

#endif							/* HYMT_PROMPTS_PARTS_H */
