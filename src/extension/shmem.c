/*
 * shmem.c: the shared memory segment of hymt: header, slots, roles, progress of statements, and the DSA area for texts
 * behind them.
 *
 * Laid out by the postmaster at start and again after a crash restart; attached by each process at its first use. Sizes
 * follow settings that only change at server start. Nothing in shared memory points into one process.
 */
#include "hymt.h"
#include "progress.h"
#include "jobs.h"
#include "queue_internal.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

HymtShared *hymt_shared = NULL;

static shmem_request_hook_type previous_shmem_request_hook = NULL;
static shmem_startup_hook_type previous_shmem_startup_hook = NULL;

static Size
slots_size(void)
{
	return MAXALIGN(add_size(offsetof(HymtShared, slot), mul_size(hymt_queue_slots, sizeof(HymtSlot))));
}

static Size
roles_size(void)
{
	return MAXALIGN(mul_size(hymt_role_table_size(hymt_queue_slots), sizeof(HymtRole)));
}

/*
 * Room for hymt.queue_memory of texts whatever the mixture of sizes: DSA keeps a partly filled superblock of 64 kB for
 * each size class (seven of them are used, see hymt_text_cost()), its own page maps, and loses some to fragmentation.
 */
static Size
area_size(void)
{
	Size		memory = (Size) hymt_queue_memory * 1024;

	return MAXALIGN(memory + memory / 4 + 1024 * 1024);
}

static Size
segment_size(void)
{
	return add_size(add_size(add_size(slots_size(), roles_size()), hymt_progress_size()), area_size());
}

static void
request_shmem(void)
{
	if (previous_shmem_request_hook)
		previous_shmem_request_hook();
	RequestAddinShmemSpace(segment_size());
	RequestAddinShmemSpace(hymt_cache_list_size());
	RequestAddinShmemSpace(hymt_job_calls_size());
	RequestNamedLWLockTranche("hymt", 4);
	if (hymt_cache_memory_size() > 0)
	{
		RequestAddinShmemSpace(hymt_cache_memory_size());
		RequestNamedLWLockTranche(HYMT_CACHE_LOCKS, hymt_cache_memory_locks());
	}
}

static char *
area_place(void)
{
	return (char *) hymt_shared->progress + MAXALIGN(hymt_shared->progress_count * sizeof(HymtProgress));
}

static void
init_device(HymtDeviceState *device)
{
	device->phase = HYMT_DEVICE_NO_WORKER;
	device->no_worker_since = GetCurrentTimestamp();
	device->worker_procno = -1;
}

static void
init_slots(HymtShared *shared)
{
	shared->slot_count = hymt_queue_slots;
	for (int i = 0; i < shared->slot_count; i++)
	{
		HymtSlot   *slot = &shared->slot[i];

		slot->state = HYMT_SLOT_FREE;
		slot->generation = 1;
		slot->next = i + 1 < shared->slot_count ? i + 1 : -1;
		slot->previous = -1;
		slot->owner_procno = -1;
		slot->text = InvalidDsaPointer;
		slot->result = InvalidDsaPointer;
		slot->charged_role = -1;
		slot->flight_bucket = -1;
		slot->leader = -1;
		hymt_list_init(&slot->followers);
	}
	for (int i = 0; i < lengthof(shared->abandoned); i++)
		hymt_list_init(&shared->abandoned[i]);
	shared->free_head = 0;
	shared->free_count = shared->slot_count;
	shared->role = (HymtRole *) ((char *) shared + slots_size());
	shared->role_count = hymt_role_table_size(shared->slot_count);
	hymt_policy_init(shared);
	hymt_lapse_init(shared);
}

/* Behind the roles, which were laid out before. */
static void
init_progress(HymtShared *shared)
{
	shared->progress = (HymtProgress *) ((char *) shared->role + roles_size());
	shared->progress_count = MaxBackends;
}

/* Creates the area in place, limited to what was asked for at start; the postmaster itself stays detached. */
static void
init_area(HymtShared *shared)
{
	dsa_area   *area;

	shared->area_size = area_size();
	shared->bytes_limit = (Size) hymt_queue_memory * 1024;
	area = dsa_create_in_place(area_place(), shared->area_size, shared->lock->tranche, NULL);
	dsa_pin(area);
	dsa_set_size_limit(area, shared->area_size);
	dsa_detach(area);
}

/* In a segment of its own, whose size pg_shmem_allocations shows. */
static void
init_cache_memory(HymtShared *shared)
{
	bool		found;

	if (hymt_cache_memory_size() == 0)
		return;
	shared->cache.memory = ShmemInitStruct("hymt cache", hymt_cache_memory_size(), &found);
	Assert(!found);
	hymt_cache_memory_init(shared->cache.memory);
}

/* Texts for the table; in a segment of its own as well. */
static void
init_cache_list(HymtShared *shared, LWLock *lock)
{
	bool		found;

	shared->cache.list = ShmemInitStruct("hymt cache list", hymt_cache_list_size(), &found);
	Assert(!found);
	hymt_cache_list_init(shared->cache.list, lock);
}

static void
init_job_calls(HymtShared *shared, LWLock *lock)
{
	bool		found;

	shared->job_calls = ShmemInitStruct("hymt job calls", hymt_job_calls_size(), &found);
	Assert(!found);
	hymt_job_calls_init(shared->job_calls, lock);
}

static void
startup_shmem(void)
{
	bool		found;

	if (previous_shmem_startup_hook)
		previous_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	hymt_shared = ShmemInitStruct("hymt", segment_size(), &found);
	if (!found)
	{
		LWLockPadded *locks = GetNamedLWLockTranche("hymt");

		memset(hymt_shared, 0, add_size(add_size(slots_size(), roles_size()), hymt_progress_size()));
		hymt_shared->magic = HYMT_LAYOUT_MAGIC;
		hymt_shared->layout_version = HYMT_LAYOUT_VERSION;
		hymt_shared->lock = &locks[0].lock;
		for (int i = 0; i < HYMT_CLASSES; i++)
			ConditionVariableInit(&hymt_shared->slot_freed[i]);
		hymt_shared->stat.since = GetCurrentTimestamp();
		hymt_shared->device_count = hymt_devices;
		for (int i = 0; i < HYMT_MAX_DEVICES; i++)
			init_device(&hymt_shared->device[i]);
		hymt_databases_init(&hymt_shared->databases, &locks[1].lock);
		hymt_cache_shared_init(&hymt_shared->cache);
		init_slots(hymt_shared);
		init_progress(hymt_shared);
		init_area(hymt_shared);
		init_cache_memory(hymt_shared);
		init_cache_list(hymt_shared, &locks[2].lock);
		init_job_calls(hymt_shared, &locks[3].lock);
	}
	LWLockRelease(AddinShmemInitLock);
}

void
hymt_shmem_init_hooks(void)
{
	previous_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	previous_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;
}

dsa_area *
hymt_area(void)
{
	static dsa_area *area = NULL;

	if (area == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);

		area = dsa_attach_in_place(area_place(), NULL);
		dsa_pin_mapping(area);
		/* Counts references only; runs after every before_shmem_exit callback, which may still free texts. */
		on_shmem_exit(dsa_on_shmem_exit_release_in_place, PointerGetDatum(area_place()));
		MemoryContextSwitchTo(caller);
	}
	return area;
}
