/*
 * adapter_list.h: the value of hymt.adapters, which the extension checks and the engine obeys: "de=/path, zh>ja=/path".
 */
#ifndef HYMT_ADAPTER_LIST_H
#define HYMT_ADAPTER_LIST_H

#include "languages.h"

/* Every translation into a language, or only those from one certain other, use the adapter in a directory. */
typedef struct HymtAdapterItem
{
	const HymtLanguage *source; /* NULL: any */
	const HymtLanguage *target;
	const char *path;			/* in the list; not NUL-terminated */
	size_t		path_length;
} HymtAdapterItem;

/* "de" or "zh>ja", in any spelling of hymt_language_find(). False: what is wrong, in words, in *fault. */
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
