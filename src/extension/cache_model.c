/*
 * cache_model.c: whose answers are looked up.
 *
 * Workers say what their engines are, under the queue lock; sessions read the result. It is the fingerprint on which all
 * engines that are ready agree. While several differ, as during a change of the model on several devices, nothing is
 * looked up, as nobody can tell which of them would answer. While none is ready, it is the last one that there was: an
 * engine that crashed comes back as the same. It is forgotten as soon as one is started that may be another, so that
 * answers of the former model are given only for as long as it may still answer.
 *
 * What is stored is stored under the fingerprint of the engine that answered, whatever is looked up by then.
 */
#include "cache.h"

#include "storage/lwlock.h"

void
hymt_cache_shared_init(HymtCacheShared *cache)
{
	pg_atomic_init_u32(&cache->changes, 1);
	for (int i = 0; i < HYMT_CACHE_STRIPES; i++)
	{
		for (int what = 0; what < HYMT_CACHE_COUNTS; what++)
			pg_atomic_init_u64(&cache->stripe[i].count[what], 0);
	}
}

/* --- workers ------------------------------------------------------------------------------------------------------ */

bool
hymt_cache_is_fingerprint(const char *text)
{
	return strlen(text) == HYMT_FINGERPRINT_DIGITS &&
		strspn(text, "0123456789abcdef") == HYMT_FINGERPRINT_DIGITS;
}

void
hymt_cache_engine_ready(HymtDeviceState *device, uint64 settings)
{
	device->answers_known = hymt_cache_is_fingerprint(device->fingerprint);
	device->answers_settings = settings;
}

void
hymt_cache_engine_starts(HymtDeviceState *device, uint64 settings)
{
	if (device->answers_settings != settings)
		device->answers_known = false;
}

/* The fingerprint on which the devices agree, or NULL. */
static const char *
common_fingerprint(bool ready_only)
{
	const char *common = NULL;

	for (int i = 0; i < hymt_shared->device_count; i++)
	{
		const HymtDeviceState *device = &hymt_shared->device[i];

		if (ready_only && device->phase != HYMT_DEVICE_READY)
			continue;
		if (!device->answers_known || (common != NULL && strcmp(common, device->fingerprint) != 0))
			return NULL;
		common = device->fingerprint;
	}
	return common;
}

static bool
any_is_ready(void)
{
	for (int i = 0; i < hymt_shared->device_count; i++)
	{
		if (hymt_shared->device[i].phase == HYMT_DEVICE_READY)
			return true;
	}
	return false;
}

void
hymt_cache_devices_changed(void)
{
	HymtCacheShared *cache = &hymt_shared->cache;
	const char *common = common_fingerprint(any_is_ready());

	if (strcmp(cache->fingerprint, common != NULL ? common : "") == 0)
		return;
	strlcpy(cache->fingerprint, common != NULL ? common : "", sizeof(cache->fingerprint));
	pg_atomic_fetch_add_u32(&cache->changes, 1);
}

/* --- sessions ----------------------------------------------------------------------------------------------------- */

bool
hymt_cache_fingerprint(char fingerprint[HYMT_FINGERPRINT_DIGITS + 1])
{
	static uint32 seen = 0;		/* as of this number of changes: */
	static char known[HYMT_FINGERPRINT_DIGITS + 1];
	HymtCacheShared *cache = &hymt_shared->cache;

	if (seen != pg_atomic_read_u32(&cache->changes))
	{
		LWLockAcquire(hymt_shared->lock, LW_SHARED);
		seen = pg_atomic_read_u32(&cache->changes);
		memcpy(known, cache->fingerprint, sizeof(known));
		LWLockRelease(hymt_shared->lock);
	}
	memcpy(fingerprint, known, sizeof(known));
	return known[0] != '\0';
}
