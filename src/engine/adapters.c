/*
 * adapters.c: which adapters are loaded, and the requests that wait for one.
 *
 * Runs in the engine, in the scheduler's thread. Owns the loaded adapters and their ids. An adapter stays loaded while
 * any sequence that uses it may still be in a plan; of the others the one that was used longest ago makes room.
 *
 * An id stands for a directory and its contents, for as long as the engine lives: an adapter that was unloaded and comes
 * back unchanged has the id it had, one whose files changed has a new one. So keys and values that are kept by id fit.
 */
#include "adapters.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* What has an id. */
typedef struct Known
{
	struct Known *next;
	int32_t		id;
	char	   *directory;
	char		fingerprint[65];
} Known;

typedef struct Loaded
{
	int32_t		id;				/* 0: this place is free */
	HymtAdapter adapter;
	int			uses;			/* sequences that have not ended */
	uint64_t	last_used;
} Loaded;

/* A request that waits for an adapter to become free, or, later, one that will not be computed. */
typedef struct Deferred
{
	struct Deferred *next;
	HymtSequenceRequest request;
	int32_t    *prompt;
	char	   *directory;
	HymtError	error;
} Deferred;

typedef struct DeferredList
{
	Deferred   *first;
	Deferred  **end;
	int32_t		count;
} DeferredList;

struct HymtAdapters
{
	const HymtDeviceOps *ops;
	HymtDevice *device;
	const HymtModel *model;
	HymtScheduler *scheduler;
	int			max;
	Loaded		loaded[HYMT_DEVICE_ADAPTERS];
	Known	   *known;
	int32_t		last_id;
	uint64_t	clock;
	DeferredList waiting;
	DeferredList failed;
	Deferred   *handed;			/* the failure told last */
};

/* --- lists ------------------------------------------------------------------------------------------------------- */

static void
list_init(DeferredList *list)
{
	list->first = NULL;
	list->end = &list->first;
	list->count = 0;
}

static void
list_append(DeferredList *list, Deferred *deferred)
{
	deferred->next = NULL;
	*list->end = deferred;
	list->end = &deferred->next;
	list->count++;
}

static Deferred *
list_take(DeferredList *list, Deferred **at)
{
	Deferred   *deferred = *at;

	if (deferred == NULL)
		return NULL;
	*at = deferred->next;
	if (deferred->next == NULL)
		list->end = at;
	list->count--;
	return deferred;
}

static void
deferred_free(Deferred *deferred)
{
	if (deferred == NULL)
		return;
	free(deferred->prompt);
	free(deferred->directory);
	free(deferred);
}

static void
list_free(DeferredList *list)
{
	while (list->first != NULL)
		deferred_free(list_take(list, &list->first));
}

static bool
list_drop_id(DeferredList *list, uint64_t id)
{
	for (Deferred **at = &list->first; *at != NULL; at = &(*at)->next)
		if ((*at)->request.id == id)
		{
			deferred_free(list_take(list, at));
			return true;
		}
	return false;
}

/* --- opening and closing ----------------------------------------------------------------------------------------- */

HymtAdapters *
hymt_adapters_open(const HymtDeviceOps *ops, HymtDevice *device, const HymtModel *model, HymtScheduler *scheduler,
				   int max, HymtError *error)
{
	HymtAdapters *adapters = calloc(1, sizeof *adapters);

	assert(max >= 1 && max <= HYMT_DEVICE_ADAPTERS);
	if (adapters == NULL)
	{
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
		return NULL;
	}
	adapters->ops = ops;
	adapters->device = device;
	adapters->model = model;
	adapters->scheduler = scheduler;
	adapters->max = max;
	list_init(&adapters->waiting);
	list_init(&adapters->failed);
	return adapters;
}

static void
unload(HymtAdapters *adapters, Loaded *loaded)
{
	assert(loaded->uses == 0);
	adapters->ops->unload_adapter(adapters->device, loaded->id);
	hymt_adapter_close(&loaded->adapter);
	memset(loaded, 0, sizeof *loaded);
}

void
hymt_adapters_close(HymtAdapters *adapters)
{
	if (adapters == NULL)
		return;
	for (int i = 0; i < adapters->max; i++)
		if (adapters->loaded[i].id != 0)
			unload(adapters, &adapters->loaded[i]);
	while (adapters->known != NULL)
	{
		Known	   *known = adapters->known;

		adapters->known = known->next;
		free(known->directory);
		free(known);
	}
	list_free(&adapters->waiting);
	list_free(&adapters->failed);
	deferred_free(adapters->handed);
	free(adapters);
}

/* --- loading ----------------------------------------------------------------------------------------------------- */

/* The id of an adapter that has been opened; 0: out of memory, or all ids are used up. */
static int32_t
id_of(HymtAdapters *adapters, const HymtAdapter *adapter)
{
	Known	   *known;

	for (known = adapters->known; known != NULL; known = known->next)
		if (strcmp(known->fingerprint, adapter->fingerprint) == 0 && strcmp(known->directory, adapter->directory) == 0)
			return known->id;
	known = adapters->last_id < INT32_MAX ? calloc(1, sizeof *known) : NULL;
	if (known != NULL)
		known->directory = strdup(adapter->directory);
	if (known == NULL || known->directory == NULL)
	{
		free(known);
		return 0;
	}
	known->id = ++adapters->last_id;
	strcpy(known->fingerprint, adapter->fingerprint);
	known->next = adapters->known;
	adapters->known = known;
	return known->id;
}

/* One whose files have been replaced serves those that have it, and nobody else. */
static Loaded *
find_loaded(HymtAdapters *adapters, const char *directory)
{
	for (int i = 0; i < adapters->max; i++)
	{
		Loaded	   *loaded = &adapters->loaded[i];

		if (loaded->id != 0 && strcmp(loaded->adapter.directory, directory) == 0 &&
			hymt_adapter_is_current(&loaded->adapter))
			return loaded;
	}
	return NULL;
}

/* A free place, or that of the adapter that nobody uses since the longest time; NULL: all are in use. */
static Loaded *
find_place(HymtAdapters *adapters)
{
	Loaded	   *best = NULL;

	for (int i = 0; i < adapters->max; i++)
	{
		Loaded	   *loaded = &adapters->loaded[i];

		if (loaded->id == 0)
			return loaded;
		if (loaded->uses == 0 && (best == NULL || loaded->last_used < best->last_used))
			best = loaded;
	}
	return best;
}

static Loaded *
find_id(HymtAdapters *adapters, int32_t id)
{
	for (int i = 0; i < adapters->max; i++)
		if (adapters->loaded[i].id == id)
			return &adapters->loaded[i];
	return NULL;
}

/* Load into a place, which is made free only when the new adapter is in order. NULL: *error says why not. */
static Loaded *
load(HymtAdapters *adapters, Loaded *place, const char *directory, HymtError *error)
{
	HymtAdapter adapter;
	Loaded	   *twin;
	int32_t		id;

	if (!hymt_adapter_open(&adapter, adapters->model, directory, error))
		return NULL;
	id = id_of(adapters, &adapter);
	if (id == 0)
	{
		hymt_adapter_close(&adapter);
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
		return NULL;
	}
	/* Other files with the same contents: nothing has changed. */
	twin = find_id(adapters, id);
	if (twin != NULL)
	{
		memcpy(twin->adapter.identity, adapter.identity, sizeof adapter.identity);
		hymt_adapter_close(&adapter);
		return twin;
	}
	if (place->id != 0)
		unload(adapters, place);
	place->adapter = adapter;
	if (!adapters->ops->load_adapter(adapters->device, id, &place->adapter, error))
	{
		hymt_adapter_close(&place->adapter);
		return NULL;
	}
	hymt_adapter_read_ahead(&place->adapter);
	place->id = id;
	return place;
}

/* The scheduler's word that a sequence is in no plan any more. */
static void
release(void *context, int32_t id)
{
	HymtAdapters *adapters = context;
	Loaded	   *loaded = find_id(adapters, id);

	assert(loaded != NULL && loaded->uses > 0);
	loaded->uses--;
	loaded->last_used = ++adapters->clock;
}

/* Submit with a loaded adapter. */
static bool
submit_with(HymtAdapters *adapters, Loaded *loaded, const HymtSequenceRequest *request, HymtError *error)
{
	HymtSequenceRequest with = *request;

	with.adapter = loaded->id;
	with.release_adapter = release;
	with.release_context = adapters;
	loaded->uses++;
	loaded->last_used = ++adapters->clock;
	if (hymt_scheduler_submit(adapters->scheduler, &with, error))
		return true;
	loaded->uses--;
	return false;
}

/* --- requests ---------------------------------------------------------------------------------------------------- */

static bool
defer(HymtAdapters *adapters, const HymtSequenceRequest *request, const char *directory, HymtError *error)
{
	Deferred   *deferred = calloc(1, sizeof *deferred);
	size_t		count = request->prompt_count > 0 ? (size_t) request->prompt_count : 0;

	if (deferred != NULL)
	{
		deferred->request = *request;
		deferred->prompt = malloc(sizeof(int32_t) * (count + 1));
		deferred->directory = strdup(directory);
		deferred->request.prompt = deferred->prompt;
	}
	if (deferred == NULL || deferred->prompt == NULL || deferred->directory == NULL)
	{
		deferred_free(deferred);
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	}
	memcpy(deferred->prompt, request->prompt, sizeof(int32_t) * count);
	list_append(&adapters->waiting, deferred);
	return true;
}

bool
hymt_adapters_submit(HymtAdapters *adapters, const HymtSequenceRequest *request, const char *directory,
					 HymtError *error)
{
	Loaded	   *loaded;
	Loaded	   *place;

	if (directory == NULL)
		return hymt_scheduler_submit(adapters->scheduler, request, error);
	/* Nobody overtakes, or a busy adapter would keep another one out for ever. */
	if (adapters->waiting.first != NULL)
		return defer(adapters, request, directory, error);
	loaded = find_loaded(adapters, directory);
	if (loaded == NULL)
	{
		place = find_place(adapters);
		if (place == NULL)
			return defer(adapters, request, directory, error);
		loaded = load(adapters, place, directory, error);
	}
	return loaded != NULL && submit_with(adapters, loaded, request, error);
}

/* Submit those whose turn it is. */
static void
submit_waiting(HymtAdapters *adapters)
{
	while (adapters->waiting.first != NULL)
	{
		Deferred   *deferred = adapters->waiting.first;
		Loaded	   *loaded = find_loaded(adapters, deferred->directory);
		Loaded	   *place = loaded == NULL ? find_place(adapters) : NULL;
		bool		done;

		if (loaded == NULL && place == NULL)
			return;
		if (loaded == NULL)
			loaded = load(adapters, place, deferred->directory, &deferred->error);
		done = loaded != NULL && submit_with(adapters, loaded, &deferred->request, &deferred->error);
		list_take(&adapters->waiting, &adapters->waiting.first);
		if (done)
			deferred_free(deferred);
		else
			list_append(&adapters->failed, deferred);
	}
}

bool
hymt_adapters_run(HymtAdapters *adapters, bool wait)
{
	bool		busy;

	/* When the scheduler has nothing left, no adapter is in use, and those who wait for one can go on. */
	do
	{
		submit_waiting(adapters);
		busy = hymt_scheduler_run(adapters->scheduler, wait);
	} while (!busy && adapters->waiting.first != NULL);
	return busy;
}

void
hymt_adapters_cancel(HymtAdapters *adapters, uint64_t id)
{
	if (!list_drop_id(&adapters->waiting, id) && !list_drop_id(&adapters->failed, id))
		hymt_scheduler_cancel(adapters->scheduler, id);
}

bool
hymt_adapters_answer(HymtAdapters *adapters, HymtSequenceAnswer *answer, const char **message)
{
	deferred_free(adapters->handed);
	adapters->handed = list_take(&adapters->failed, &adapters->failed.first);
	*message = NULL;
	if (adapters->handed == NULL)
		return hymt_scheduler_answer(adapters->scheduler, answer);
	memset(answer, 0, sizeof *answer);
	answer->id = adapters->handed->request.id;
	answer->failure = adapters->handed->error.failure;
	answer->prompt_count = adapters->handed->request.prompt_count;
	*message = adapters->handed->error.message;
	return true;
}

void
hymt_adapters_stats(const HymtAdapters *adapters, HymtSchedulerStats *stats)
{
	hymt_scheduler_stats(adapters->scheduler, stats);
	stats->waiting += adapters->waiting.count;
}

HymtUsedAdapter
hymt_adapters_used(const HymtAdapters *adapters, int32_t id)
{
	const Known *known = adapters->known;

	while (known != NULL && known->id != id)
		known = known->next;
	assert(known != NULL);
	return (HymtUsedAdapter) {known->directory, known->fingerprint};
}
