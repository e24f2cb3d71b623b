/*
 * shortage.h: what the engine does when an allocation fails.
 *
 * All allocations of the engine's own code go through shortage.c (the linker sees to that: --wrap in the Makefile). A
 * block of memory is kept in reserve; when malloc() fails the reserve is given up and the allocation tried once more, so
 * that what is under way can be finished. The scheduler then makes steps smaller until the reserve is back. Allocations
 * larger than the reserve fail as usual: they happen while loading, where there is a smaller way or a refusal.
 *
 * HYMT_FAIL_ALLOC=n in the environment makes the n-th allocation fail, HYMT_FAIL_ALLOC=n+ that one and all after it. It is
 * compiled into every engine: what is tested is then what is installed, and the cost is a comparison for each
 * allocation, of which steps make none. Nobody can use it from a session, as engines are started with an environment of
 * their worker's making.
 */
#ifndef HYMT_SHORTAGE_H
#define HYMT_SHORTAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Take the reserve, and read HYMT_FAIL_ALLOC. Without it nothing is held in reserve. */
extern void hymt_shortage_start(void);

/* To be asked before memory is taken from the system in other ways than malloc(): whether this one is to fail. */
extern bool hymt_shortage_fails(void);

/*
 * Whether memory was short since the last call: the reserve was given up. Tries to get it back, so that the next call tells
 * whether the shortage goes on.
 */
extern bool hymt_shortage_now(void);

#endif							/* HYMT_SHORTAGE_H */
