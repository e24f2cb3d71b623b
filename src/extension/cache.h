/*
 * cache.h: answers that were given before.
 *
 *      cache.c             the one door for sessions
 *      cache_model.c       whose answers are looked up: the fingerprint of the engines that serve
 *      cache_counts.c      what is counted
 *      cache_memory.c      first level: in shared memory, for all sessions
 *      cache_key.c         a question as 32 bytes, for the second level
 *      cache_table.c       second level: the table hymt_cache, read by index
 *      cache_write.c       … and written behind, by the database worker
 *
 * An answer belongs to a question: to whatever has a part in it, the engine's fingerprint included. Whether an entry
 * answers a question is decided by comparing all of it, never by a hash alone. Only good answers are kept: neither
 * failures nor what on_error makes of them, nor what ran into a limit.
 *
 * For sessions; workers of devices have their part in cache_shared.h.
 */
#ifndef HYMT_CACHE_H
#define HYMT_CACHE_H

#include "session.h"

/* Everything that makes an answer, as bytes: equal keys are equal questions. */
typedef struct HymtCacheKey
{
	uint8		digest[32];		/* SHA-256 */
} HymtCacheKey;

typedef struct HymtCacheQuestion
{
	const HymtOrder *order;
	const char *utf8;
	Size		length;
	char		fingerprint[HYMT_FINGERPRINT_DIGITS + 1];
	Oid			role;			/* that alone may see the answer; invalid: everybody in the database */
	HymtCacheKey key;			/* only for the table: set by hymt_cache_make_key() */
} HymtCacheQuestion;

typedef struct HymtCacheAnswer
{
	char	   *text;			/* UTF-8, NUL-terminated; when found: palloc'ed in the current memory context */
	Size		length;
	char		model[HYMT_NAME_MAX];	/* that gave it; UTF-8 */
	HymtFinish	finish;
	int			input_tokens;
	int			output_tokens;
} HymtCacheAnswer;

/* --- cache.c ------------------------------------------------------------------------------------------------------ */

/* Looks a question up; found, *outcome is as if the engine had answered, but for `cached`. Counts. */
extern HymtCacheLevel hymt_cache_find(const HymtOrder *order, const char *utf8, Size length, HymtOutcome *outcome);

/*
 * The same for who may look again, because he has no room for a request now: a miss is counted only by the second, when
 * a request is made.
 */
extern HymtCacheLevel hymt_cache_look(const HymtOrder *order, const char *utf8, Size length, HymtOutcome *outcome);
extern bool hymt_cache_has(const HymtOrder *order, const char *utf8, Size length);	/* looks without counting */
extern void hymt_cache_missed(void);

/* Keeps the engine's answer, if it is one to be kept. */
extern void hymt_cache_store(const HymtOrder *order, const char *utf8, Size length, const HymtOutcome *outcome);

/* Whether hymt_cache_store() would keep it. */
extern bool hymt_cache_keeps(const HymtOutcome *outcome);

/* --- cache_model.c ------------------------------------------------------------------------------------------------ */

/* Whether a text is one: 64 hexadecimal digits. */
extern bool hymt_cache_is_fingerprint(const char *text);

/* Whose answers are looked up now; false: nobody's. */
extern bool hymt_cache_fingerprint(char fingerprint[HYMT_FINGERPRINT_DIGITS + 1]);

/* --- cache_key.c -------------------------------------------------------------------------------------------------- */

/* Sets key; false when the library for it fails. */
extern bool hymt_cache_make_key(HymtCacheQuestion *question);

/* --- cache_memory.c ----------------------------------------------------------------------------------------------- */

extern bool hymt_cache_memory_find(const HymtCacheQuestion *question, HymtCacheAnswer *answer);

/*
 * False when it was there already. So of several sessions that got one answer together, one at most is told true, who is
 * to write it to the table; where there is no memory for it, all are.
 */
extern bool hymt_cache_memory_put(const HymtCacheQuestion *question, const HymtCacheAnswer *answer);

/* Forgets all answers that a database's sessions can see. Interruptible. */
extern void hymt_cache_memory_clear(Oid database);

/* What there is: answers, and bytes that they occupy. */
extern void hymt_cache_memory_usage(uint64 *entries, uint64 *bytes);

/* --- cache_table.c ------------------------------------------------------------------------------------------------ */

/*
 * False also where there is no such table, or it cannot be read. Not *current: the caller's snapshot is older than the
 * deletion of what was found, so that nobody else is to be given it.
 */
extern bool hymt_cache_table_find(const HymtCacheQuestion *question, HymtCacheAnswer *answer, bool *current);

/* --- cache_write.c ------------------------------------------------------------------------------------------------ */

/* Never waits and never raises; drops it when there is no room. */
extern void hymt_cache_write_later(const HymtCacheQuestion *question, const HymtCacheAnswer *answer);

#endif							/* HYMT_CACHE_H */
