/*
 * assignments.c: which languages have an adapter.
 *
 * Runs in the engine program. Owns the lists. Looks at no adapter: whether one can be used shows when it is opened.
 */
#include "assignments.h"

#include <stdlib.h>
#include <string.h>

#include "files.h"

static bool
add(HymtAssignments *assignments, const HymtAdapterItem *item, char *directory, HymtError *error)
{
	HymtAssignment *longer = directory == NULL ? NULL
		: realloc(assignments->list, sizeof *longer * ((size_t) assignments->count + 1));

	if (longer == NULL)
	{
		free(directory);
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	}
	assignments->list = longer;
	longer[assignments->count++] = (HymtAssignment) {*item, directory};
	return true;
}

static bool
has(const HymtAssignments *assignments, const HymtAdapterItem *item)
{
	for (int i = 0; i < assignments->count; i++)
		if (hymt_adapter_same_key(&assignments->list[i].key, item))
			return true;
	return false;
}

bool
hymt_assignments_add_list(HymtAssignments *assignments, const char *list, HymtError *error)
{
	const char *at = list;
	const char *fault = "";
	HymtAdapterItem item;
	HymtAdapterListStatus status;
	char		key[HYMT_ADAPTER_KEY_MAX];

	while ((status = hymt_adapter_list_next(&at, &item, &fault)) == HYMT_ADAPTER_LIST_ITEM)
	{
		hymt_adapter_key_text(&item, key);
		if (has(assignments, &item))
			return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "list of adapters: %s occurs twice", key);
		if (!add(assignments, &item, strndup(item.path, item.path_length), error))
			return false;
	}
	return status == HYMT_ADAPTER_LIST_END || hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "list of adapters: %s", fault);
}

/* Like the shards of a model, its adapters must be its own files. */
static bool
stays_inside(const char *folder)
{
	if (folder[0] == '\0' || folder[0] == '/' || strlen(folder) > 1024)
		return false;
	for (const char *part = folder; *part != '\0'; part += strcspn(part, "/"), part += *part == '/')
		if (strcspn(part, "/") == 2 && memcmp(part, "..", 2) == 0)
			return false;
	return true;
}

bool
hymt_assignments_add_json(HymtAssignments *assignments, const json_t *object, const char *directory, HymtError *error)
{
	const char *key;
	json_t	   *value;

	if (!json_is_object(object))
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s/hymt.json: adapters must be an object", directory);
	json_object_foreach((json_t *) object, key, value)
	{
		const char *folder = json_string_value(value);
		HymtAdapterItem item;
		const char *fault;

		/* Names are the administrator's to give, not the model's. */
		if (key[0] == '@')
			return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s/hymt.json: adapters: \"%.40s\" is no language",
							 directory, key);
		if (!hymt_adapter_key(key, strlen(key), &item, &fault))
			return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s/hymt.json: adapters: \"%.40s\": %s", directory, key,
							 fault);
		if (has(assignments, &item))
			return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s/hymt.json: adapters: \"%.40s\" occurs twice", directory,
							 key);
		if (folder == NULL || !stays_inside(folder))
			return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN,
							 "%s/hymt.json: adapters: \"%.40s\" must name a folder in that of the model", directory, key);
		if (!add(assignments, &item, hymt_path_join(directory, folder), error))
			return false;
	}
	return true;
}

const char *
hymt_assignments_find(const HymtAssignments *assignments, const HymtLanguage *source, const HymtLanguage *target)
{
	const char *found = NULL;

	for (int i = 0; i < assignments->count; i++)
	{
		const HymtAssignment *assignment = &assignments->list[i];

		if (assignment->key.target != target)
			continue;
		if (assignment->key.source == source)
			return assignment->directory;
		if (assignment->key.source == NULL)
			found = assignment->directory;
	}
	return found;
}

const char *
hymt_assignments_find_name(const HymtAssignments *assignments, const char *name)
{
	for (int i = 0; i < assignments->count; i++)
		if (strcmp(assignments->list[i].key.name, name) == 0)
			return assignments->list[i].directory;
	return NULL;
}

void
hymt_assignments_free(HymtAssignments *assignments)
{
	for (int i = 0; i < assignments->count; i++)
		free(assignments->list[i].directory);
	free(assignments->list);
	memset(assignments, 0, sizeof *assignments);
}
