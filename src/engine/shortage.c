/*
 * shortage.c: malloc() and its kin, with a reserve, and with failures on demand.
 *
 * Engine process, any thread. Owns the reserve and the number of allocations. The linker sends the calls of malloc() in
 * the engine's objects to __wrap_malloc() and so on, and __real_malloc() to the library; where a program is linked
 * without that, nothing of this takes part.
 */
#include "shortage.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE_BYTES ((size_t) 16 << 20)	/* more than any request needs at a time; it is never touched */

extern void *__real_malloc(size_t bytes) __attribute__((weak));
extern void *__real_calloc(size_t count, size_t bytes) __attribute__((weak));
extern void *__real_realloc(void *memory, size_t bytes) __attribute__((weak));

extern void *__wrap_malloc(size_t bytes);
extern void *__wrap_calloc(size_t count, size_t bytes);
extern void *__wrap_realloc(void *memory, size_t bytes);
extern char *__wrap_strdup(const char *text);

static _Atomic(void *) reserve;
static atomic_bool was_short;
static atomic_ullong allocations;
static unsigned long long fail_at;	/* 0: none */
static bool fail_after;				/* all later ones, too */

static void *
take_reserve(void)
{
	return __real_malloc != NULL ? __real_malloc(RESERVE_BYTES) : NULL;
}

void
hymt_shortage_start(void)
{
	const char *text = getenv("HYMT_FAIL_ALLOC");
	char	   *end;

	atomic_store(&reserve, take_reserve());
	if (text == NULL)
		return;
	fail_at = strtoull(text, &end, 10);
	fail_after = *end == '+';
}

bool
hymt_shortage_fails(void)
{
	unsigned long long number;

	if (fail_at == 0)
		return false;
	number = atomic_fetch_add(&allocations, 1) + 1;
	return number == fail_at || (fail_after && number > fail_at);
}

/* Whether it makes sense to try once more. */
static bool
give_up_reserve(size_t bytes)
{
	void	   *memory = bytes <= RESERVE_BYTES ? atomic_exchange(&reserve, NULL) : NULL;

	if (memory == NULL)
		return false;
	free(memory);
	atomic_store(&was_short, true);
	return true;
}

bool
hymt_shortage_now(void)
{
	bool		now = atomic_exchange(&was_short, false);
	void	   *memory;

	if (!now)
		return false;
	memory = hymt_shortage_fails() ? NULL : take_reserve();
	if (memory == NULL)
		atomic_store(&was_short, true);
	else
		atomic_store(&reserve, memory);
	return true;
}

/* --- what the linker puts in the library's place ------------------------------------------------------------------ */

void *
__wrap_malloc(size_t bytes)
{
	void	   *memory = hymt_shortage_fails() ? NULL : __real_malloc(bytes);

	if (memory == NULL && give_up_reserve(bytes))
		memory = hymt_shortage_fails() ? NULL : __real_malloc(bytes);
	return memory;
}

void *
__wrap_calloc(size_t count, size_t bytes)
{
	size_t		total;
	void	   *memory = hymt_shortage_fails() ? NULL : __real_calloc(count, bytes);

	if (memory == NULL && !__builtin_mul_overflow(count, bytes, &total) && give_up_reserve(total))
		memory = hymt_shortage_fails() ? NULL : __real_calloc(count, bytes);
	return memory;
}

void *
__wrap_realloc(void *old, size_t bytes)
{
	void	   *memory = hymt_shortage_fails() ? NULL : __real_realloc(old, bytes);

	if (memory == NULL && give_up_reserve(bytes))
		memory = hymt_shortage_fails() ? NULL : __real_realloc(old, bytes);
	return memory;
}

/* The library's own would call malloc() past the linker. */
char *
__wrap_strdup(const char *text)
{
	size_t		bytes = strlen(text) + 1;
	char	   *copy = __wrap_malloc(bytes);

	return copy != NULL ? memcpy(copy, text, bytes) : NULL;
}
