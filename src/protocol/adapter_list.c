/*
 * adapter_list.c: reading the value of hymt.adapters.
 *
 * Runs in the postmaster, backends and the engine. Owns nothing; allocates nothing.
 */
#include "adapter_list.h"

#include <string.h>

static bool
is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Cut blanks off both ends. */
static void
trim(const char **text, size_t *length)
{
	while (*length > 0 && is_blank(**text))
	{
		(*text)++;
		(*length)--;
	}
	while (*length > 0 && is_blank((*text)[*length - 1]))
		(*length)--;
}

static const HymtLanguage *
find_language(const char *code, size_t length)
{
	trim(&code, &length);
	return hymt_language_find(code, length);
}

bool
hymt_adapter_key(const char *key, size_t length, HymtAdapterItem *item, const char **fault)
{
	const char *arrow = memchr(key, '>', length);
	const char *target = arrow != NULL ? arrow + 1 : key;

	*fault = "a key is no language, such as \"de\", and no pair of languages, such as \"zh>de\"";
	item->source = NULL;
	item->target = find_language(target, length - (size_t) (target - key));
	if (item->target == NULL)
		return false;
	if (arrow == NULL)
		return true;
	item->source = find_language(key, (size_t) (arrow - key));
	return item->source != NULL;
}

HymtAdapterListStatus
hymt_adapter_list_next(const char **at, HymtAdapterItem *item, const char **fault)
{
	const char *text = *at;
	size_t		length = strcspn(text, ",");
	const char *equals;
	size_t		key_length;

	*at = text[length] == ',' ? text + length + 1 : text + length;
	if (text[length] == '\0')
	{
		trim(&text, &length);
		if (length == 0)
			return HYMT_ADAPTER_LIST_END;	/* also after a comma at the end */
	}
	trim(&text, &length);
	equals = memchr(text, '=', length);
	if (equals == NULL)
	{
		*fault = "an item has no \"=\" between language and directory";
		return HYMT_ADAPTER_LIST_BAD;
	}
	key_length = (size_t) (equals - text);
	if (!hymt_adapter_key(text, key_length, item, fault))
		return HYMT_ADAPTER_LIST_BAD;
	item->path = equals + 1;
	item->path_length = length - key_length - 1;
	trim(&item->path, &item->path_length);
	if (item->path_length > 0)
		return HYMT_ADAPTER_LIST_ITEM;
	*fault = "an item names no directory";
	return HYMT_ADAPTER_LIST_BAD;
}
