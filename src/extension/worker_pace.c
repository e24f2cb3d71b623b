/*
 * worker_pace.c: several devices: which of them takes a request.
 *
 * Runs in workers. Each worker takes requests from the one queue as its engine has room, which is right as long as all
 * devices are about equally fast. A slow one must not take what a fast one would have answered long before. So each
 * worker of several measures its device: it asks the engine a question of its own, the probe, whose answer takes one
 * step. It claims nothing before the first answer: an engine that is broken or hangs from the beginning never gets
 * anybody's request. Afterwards it leaves each request to others for as long as they would have been quicker: until the
 * request has been queued for the difference between this device's pace and the best one's. Then whoever is fast is
 * busy, and waiting longer would not pay any more. (It is the rule of renting skis: never worse than twice the best.)
 * A device that fails the question counts as the slowest.
 *
 * A single device is not measured.
 */
#include "worker_internal.h"

#include "utils/timestamp.h"

/* While there is work the pace is measured anew this often: it changes with the load. */
#define MEASURE_EVERY_MS 10000

/*
 * A device whose engine fails the question fails it at once, and must not pass for the fastest of all. It takes what
 * nobody else takes; where all fail, as with a broken adapter of the probe's languages, all are the same.
 */
#define FAILED_PROBE_PACE USECS_PER_HOUR

/* Steps are meant to take no more than a quarter of a second, and engines report them at least once a second. */
#define STANDSTILL_US (1500 * 1000)

/* Smaller differences come and go with the load; nobody waits for them. */
#define LEAST_HEAD_START_US (50 * 1000)

static bool
is_one_of_several(void)
{
	return hymt_shared->device_count > 1;
}

/* A probe that has not been answered for longer than the last one took tells more than that. */
static int64
pace_with_probe(int64 pace, TimestampTz probed_at, TimestampTz now)
{
	return probed_at != 0 ? Max(pace, now - probed_at) : pace;
}

/* Microseconds of the fastest other device; 0: there is none that is ready and measured. */
static int64
best_other_pace(TimestampTz now)
{
	int64		best = 0;

	LWLockAcquire(hymt_shared->lock, LW_SHARED);
	for (int i = 0; i < hymt_shared->device_count; i++)
	{
		const HymtDeviceState *device = &hymt_shared->device[i];
		int64		pace;

		if (i == hymt_worker->device || device->pace == 0)
			continue;
		pace = pace_with_probe(device->pace, device->probed_at, now);
		if (best == 0 || pace < best)
			best = pace;
	}
	LWLockRelease(hymt_shared->lock);
	return best;
}

bool
hymt_worker_knows_pace(const HymtEngine *engine)
{
	return !is_one_of_several() || engine->pace != 0;
}

/* An engine that stands still, for whatever reason, is as slow as it has stood. */
static int64
own_pace(const HymtEngine *engine, TimestampTz now)
{
	int64		pace = pace_with_probe(engine->pace, engine->probed_at, now);

	if (engine->in_flight > 0 && now - engine->progress_at > STANDSTILL_US)
		pace = Max(pace, now - engine->progress_at);
	return pace;
}

int64
hymt_worker_head_start(const HymtEngine *engine)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		own;
	int64		best;

	if (!is_one_of_several())
		return 0;
	own = own_pace(engine, now);
	best = best_other_pace(now);
	if (best == 0 || own < 2 * best || own - best < LEAST_HEAD_START_US)
		return 0;
	return own - best;
}

static void
publish(const HymtEngine *engine)
{
	HymtDeviceState *device = hymt_worker_lock_device();

	device->pace = engine->pace;
	device->probed_at = engine->probed_at;
	hymt_worker_unlock_device();
}

/* Languages that the model knows: an answer that it does not would come without a step. */
static void
choose_languages(HymtClaim *probe)
{
	/* Only this process writes the field, so it may read it without the lock. */
	const char *list = hymt_shared->device[hymt_worker->device].languages;
	const char *space = strchr(list, ' ');

	strlcpy(probe->source_lang, "zh", sizeof(probe->source_lang));
	strlcpy(probe->target_lang, "en", sizeof(probe->target_lang));
	if (space == NULL)
		return;
	strlcpy(probe->source_lang, list, Min(sizeof(probe->source_lang), (Size) (space - list) + 1));
	strlcpy(probe->target_lang, space + 1, Min(sizeof(probe->target_lang), strcspn(space + 1, " ") + 1));
}

void
hymt_worker_measure(HymtEngine *engine)
{
	TimestampTz now = GetCurrentTimestamp();
	HymtClaim	probe = {.slot = hymt_shared->slot_count, .max_new_tokens = 1, .text = "1 2 3"};

	if (!is_one_of_several() || !engine->conversing || !engine->link.ready || engine->draining || engine->alone ||
		engine->probed_at != 0)
		return;
	if (engine->pace != 0 &&
		((engine->in_flight == 0 && engine->claims_at == 0) ||
		 !TimestampDifferenceExceeds(engine->measured_at, now, MEASURE_EVERY_MS)))
		return;
	choose_languages(&probe);
	probe.text_length = strlen(probe.text);
	probe.generation = engine->probes + 1;
	/* Without memory for it: at the next turn. */
	if (!hymt_link_request(&engine->link, &probe))
		return;
	if (engine->in_flight == 0)
		hymt_worker_note_progress(engine);	/* an idle engine owed none */
	engine->probes++;
	engine->probed_at = now;
	publish(engine);
}

HymtMatch
hymt_worker_land_probe(HymtEngine *engine, uint64 generation, bool failed)
{
	TimestampTz now = GetCurrentTimestamp();

	if (generation == 0 || generation > engine->probes)
		return HYMT_MATCH_NEVER;
	if (generation != engine->probes || engine->probed_at == 0)
		return HYMT_MATCH_LATE;
	hymt_worker_note_progress(engine);
	engine->pace = failed ? FAILED_PROBE_PACE : Max(1, now - engine->probed_at);
	engine->measured_at = now;
	engine->probed_at = 0;
	if (engine->role == ROLE_SERVING)
		publish(engine);
	return HYMT_MATCH_PROBE;
}
