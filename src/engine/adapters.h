/*
 * adapters.h: requests that need adapters: loads adapters at first use, keeps a few, and gives the scheduler requests
 * whose adapter is there. One thread, the scheduler's.
 *
 * Whoever uses it submits, runs, cancels and takes answers here, not at the scheduler.
 */
#ifndef HYMT_ADAPTERS_H
#define HYMT_ADAPTERS_H

#include "adapter.h"
#include "device.h"
#include "scheduler.h"

/* Adapters that are loaded at a time, when nobody says how many. */
#define HYMT_DEFAULT_ADAPTERS 3

typedef struct HymtAdapters HymtAdapters;

/* All of these must outlive it, the scheduler excepted, which has to be closed before. max: 1 … HYMT_DEVICE_ADAPTERS. */
extern HymtAdapters *hymt_adapters_open(const HymtDeviceOps *ops, HymtDevice *device, const HymtModel *model,
										HymtScheduler *scheduler, int max, HymtError *error);
extern void hymt_adapters_close(HymtAdapters *adapters);

/*
 * As hymt_scheduler_submit(), with the adapter in `directory`; NULL: none. request->adapter is set here. Fails also with
 * ADAPTER. When as many adapters as may be are loaded and all of them are in use, the request waits here for one to
 * become free, and those for adapters that come after it wait behind it; what is wrong with it is then told by its
 * answer.
 */
extern bool hymt_adapters_submit(HymtAdapters *adapters, const HymtSequenceRequest *request, const char *directory,
								 HymtError *error);

/* As the scheduler's functions of these names. */
extern bool hymt_adapters_run(HymtAdapters *adapters, bool wait);
extern void hymt_adapters_cancel(HymtAdapters *adapters, uint64_t id);

/* As hymt_scheduler_answer(). *message: what went wrong when only words can tell, else NULL; valid as the answer. */
extern bool hymt_adapters_answer(HymtAdapters *adapters, HymtSequenceAnswer *answer, const char **message);

extern void hymt_adapters_stats(const HymtAdapters *adapters, HymtSchedulerStats *stats);

/* What an id stands for, whether it is loaded or not any more. */
typedef struct HymtUsedAdapter
{
	const char *directory;
	const char *fingerprint;
} HymtUsedAdapter;

extern HymtUsedAdapter hymt_adapters_used(const HymtAdapters *adapters, int32_t id);

#endif							/* HYMT_ADAPTERS_H */
