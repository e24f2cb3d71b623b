/*
 * adapter_list.c: reading the value of hymt.adapters.
 *
 * Runs in the postmaster, backends and the engine. Owns nothing; allocates nothing.
 */
#include "adapter_list.h"

#include <stdio.h>
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
hymt_adapter_name_ok(const char *name, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
			  (name[i] >= '0' && name[i] <= '9') || name[i] == '_' || name[i] == '-' || name[i] == '.'))
			return false;
	return length > 0 && length < HYMT_ADAPTER_NAME_MAX;
}

bool
hymt_adapter_same_key(const HymtAdapterItem *one, const HymtAdapterItem *other)
{
	return one->source == other->source && one->target == other->target && strcmp(one->name, other->name) == 0;
}

void
hymt_adapter_key_text(const HymtAdapterItem *item, char text[HYMT_ADAPTER_KEY_MAX])
{
	if (item->name[0] != '\0')
		snprintf(text, HYMT_ADAPTER_KEY_MAX, "@%s", item->name);
	else
		snprintf(text, HYMT_ADAPTER_KEY_MAX, "%s%s%s", item->source != NULL ? item->source->code : "",
				 item->source != NULL ? ">" : "", item->target->code);
}

/* "@" and a name. */
static bool
read_name(const char *key, size_t length, HymtAdapterItem *item, const char **fault)
{
	*fault = "a name after \"@\" has other characters than letters, digits, \"_\", \"-\" and \".\", or more than 31";
	trim(&key, &length);
	if (!hymt_adapter_name_ok(key + 1, length - 1))
		return false;
	memcpy(item->name, key + 1, length - 1);
	return true;
}

bool
hymt_adapter_key(const char *key, size_t length, HymtAdapterItem *item, const char **fault)
{
	const char *arrow = memchr(key, '>', length);
	const char *target = arrow != NULL ? arrow + 1 : key;

	memset(item, 0, sizeof(*item));
	if (length > 0 && key[0] == '@')
		return read_name(key, length, item, fault);
	*fault = "a key is no language such as \"de\", no pair of languages such as \"zh>de\", and no name such as \"@legal\"";
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
