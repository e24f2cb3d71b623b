/*
 * adapter_list.h: the value of hymt.adapters, which the extension checks and the engine obeys: "de=/path, zh>ja=/path,
 * @legal=/path".
 */
#ifndef HYMT_ADAPTER_LIST_H
#define HYMT_ADAPTER_LIST_H

#include "frames.h"
#include "languages.h"

/*
 * Every translation into a language, or only those from one certain other, use the adapter in a directory; or those
 * whose callers name it.
 */
typedef struct HymtAdapterItem
{
	char		name[HYMT_ADAPTER_NAME_MAX];	/* without its "@"; empty: for languages */
	const HymtLanguage *source; /* NULL: any */
	const HymtLanguage *target; /* NULL with a name */
	const char *path;			/* in the list; not NUL-terminated */
	size_t		path_length;
} HymtAdapterItem;

/* Letters, digits, "_", "-" and ".", at least one, and fewer than HYMT_ADAPTER_NAME_MAX. */
extern bool hymt_adapter_name_ok(const char *name, size_t length);

/* Whether two items have the same key. */
extern bool hymt_adapter_same_key(const HymtAdapterItem *one, const HymtAdapterItem *other);

/* "de", "zh>ja" or "@legal". */
#define HYMT_ADAPTER_KEY_MAX (2 * HYMT_LANG_MAX + HYMT_ADAPTER_NAME_MAX)
extern void hymt_adapter_key_text(const HymtAdapterItem *item, char text[HYMT_ADAPTER_KEY_MAX]);

/*
 * "de", "zh>ja" or "@legal", languages in any spelling of hymt_language_find(). False: what is wrong, in words, in
 * *fault.
 */
extern bool hymt_adapter_key(const char *key, size_t length, HymtAdapterItem *item, const char **fault);

typedef enum HymtAdapterListStatus
{
	HYMT_ADAPTER_LIST_ITEM,		/* *item is set */
	HYMT_ADAPTER_LIST_END,
	HYMT_ADAPTER_LIST_BAD		/* *fault says why */
} HymtAdapterListStatus;

/* The next item at *at, which is moved behind it. Items are separated by commas, with blanks where people put them. */
extern HymtAdapterListStatus hymt_adapter_list_next(const char **at, HymtAdapterItem *item, const char **fault);

#endif							/* HYMT_ADAPTER_LIST_H */
