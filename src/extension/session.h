/*
 * session.h: what the files that run SQL functions share. Included by nothing that runs in a worker.
 */
#ifndef HYMT_SESSION_H
#define HYMT_SESSION_H

#include "hymt.h"

#include "access/tupdesc.h"

/* --- status.c ----------------------------------------------------------------------------------------------------- */

/* Raises MT006 when a function is declared with other columns than this library has: by a script of another version. */
extern void hymt_check_columns(TupleDesc descriptor, int count);

/* --- encoding.c -------------------------------------------------------------------------------------------------- */

/*
 * Text in the server encoding as UTF-8. Points to `text` itself when there is nothing to convert, else palloc'ed.
 * Raises 22021 when a SQL_ASCII database holds bytes that are not UTF-8.
 */
extern const char *hymt_server_to_utf8(const char *text, Size length, Size *utf8_length);

/* The same without raising: NULL when that is impossible. */
extern const char *hymt_server_to_utf8_quietly(const char *text, Size length, Size *utf8_length);

/*
 * A translation in the server encoding, palloc'ed. Returns NULL when a character has no equivalent there, whose code
 * point is then in *character, or when the bytes are not UTF-8 (*character is then 0).
 */
extern text *hymt_utf8_to_server(const char *utf8, Size length, uint32 *character);

/* A message or name of the engine in the server encoding, palloc'ed, with "?" for what does not fit there. */
extern char *hymt_text_to_server(const char *utf8, Size length);

/* --- passthrough.c ------------------------------------------------------------------------------------------------ */

/* Whether a text has anything to translate; false: numbers, codes, addresses, punctuation, symbols only. UTF-8. */
extern bool hymt_has_words(const char *utf8, Size length);

/* --- translate.c -------------------------------------------------------------------------------------------------- */

typedef enum HymtOnError
{
	HYMT_ON_ERROR_RAISE,
	HYMT_ON_ERROR_NULL,
	HYMT_ON_ERROR_SOURCE
} HymtOnError;

/* The arguments of a translation apart from its text, checked. */
typedef struct HymtOrder
{
	const HymtLanguage *source;
	const HymtLanguage *target;
	HymtOnError on_error;
	int			max_new_tokens; /* 0: the engine's rule */
	char		adapter[HYMT_ADAPTER_NAME_MAX]; /* empty: that of the languages */
	HymtDraw	draw;
	bool		bulk;			/* priority */
	const char *context;		/* UTF-8, not translated */
	Size		context_length; /* 0: none */
} HymtOrder;

typedef struct HymtReport
{
	const char *status;			/* "translated", "unchanged", "failed" or "human" */
	HymtFinish	finish;
	int			input_tokens;
	int			output_tokens;
	char		model[HYMT_NAME_MAX];	/* UTF-8; empty: none was asked */
	bool		cached;			/* the answer to an earlier question */
} HymtReport;

/* Raises 22023 for what is no language, or no value of on_error. `name` is the argument's. */
extern const HymtLanguage *hymt_order_language(const char *name, const text *code);
extern HymtOnError hymt_order_on_error(const text *value);

/* Reads the arguments that all translating functions have behind their text. */
extern void hymt_read_order(FunctionCallInfo fcinfo, HymtOrder *order);

/* The same without raising: false for whatever would raise. */
extern bool hymt_read_order_quietly(FunctionCallInfo fcinfo, HymtOrder *order);

/* What is asked of the engine for a text in UTF-8, which stays the caller's. */
extern HymtRequestSpec hymt_request_spec(const HymtOrder *order, const char *utf8, Size length);

/* Whether a text needs the model. UTF-8. */
extern bool hymt_needs_model(const HymtOrder *order, const char *utf8, Size length);

/*
 * The result of a text that was asked for, as hymt_translate_text() returns it. The engine's answer goes to the cache if
 * it is a good one; that is what the text in UTF-8 is for. Does not look into `source`, which may be NULL.
 */
extern text *hymt_text_of_outcome(text *source, const HymtOrder *order, const char *utf8, Size length,
								  const HymtOutcome *outcome, HymtReport *report);

/* Raises for what hymt_utf8_to_server() could not convert. */
extern void hymt_raise_unconvertible(uint32 character);

/*
 * Translates one text in the server encoding. Returns NULL where on_error says so; `source` itself where it stays as it
 * is; else a new text in the current memory context. *report may be NULL.
 */
extern text *hymt_translate_text(text *source, const HymtOrder *order, HymtReport *report);

/* --- members.c ---------------------------------------------------------------------------------------------------- */

/* A table of the extension, whatever its schema. Invalid where there is no extension, or one without it. */
extern Oid	hymt_member_table(const char *name);

/* --- human.c ------------------------------------------------------------------------------------------------------ */

/*
 * The translation that a person has set for a text in the server encoding, also palloc'ed; NULL when nobody has. To be
 * asked before all else: it wins over the model and over whatever was kept of its answers. Asks neither for hymt to be
 * preloaded nor for an engine.
 */
extern text *hymt_human_find(const HymtOrder *order, const char *source, Size length);

#endif							/* HYMT_SESSION_H */
