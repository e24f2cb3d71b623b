/*
 * machine.h: how much of this machine the engine may use.
 */
#ifndef HYMT_MACHINE_H
#define HYMT_MACHINE_H

#include <stddef.h>
#include <stdint.h>

/* Processors this process may run on at a time: its affinity mask, cut by the CPU quotas of its cgroups; >= 1. */
extern int	hymt_machine_processors(void);

/* Bytes that may still be taken: what the system has available, cut by the memory limits of the cgroups. */
extern int64_t hymt_machine_memory(void);

/*
 * Zeroed memory, page aligned, that takes up real memory only where it is touched. NULL when the system refuses.
 * Released with the same size.
 */
extern void *hymt_lazy_alloc(size_t bytes);
extern void hymt_lazy_free(void *memory, size_t bytes);

#endif							/* HYMT_MACHINE_H */
