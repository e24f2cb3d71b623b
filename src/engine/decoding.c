/*
 * decoding.c: loops in an answer, and the random numbers of sampling.
 *
 * Runs in the engine, in any thread; keeps no state but its caller's. The generator is Philox4x32-10 (Salmon, Moraes,
 * Dror and Shaw, Parallel Random Numbers: As Easy as 1, 2, 3; 2011): its numbers are a function of a key and a counter,
 * so that none depends on how many were drawn before.
 */
#include "decoding.h"

/* Units of a text that are looked at, in bytes: those of 32 tokens are seldom longer. */
#define TEXT_UNIT_MAX 256
/* Longer texts are looked at as far as this: it takes some 20 ms, in which no step is prepared. */
#define TEXT_LOOKED_AT ((size_t) 64 * 1024)

#define PHILOX_ROUNDS 10
#define PHILOX_MULTIPLIER_0 0xD2511F53u
#define PHILOX_MULTIPLIER_1 0xCD9E8D57u
#define PHILOX_WEYL_0 0x9E3779B9u
#define PHILOX_WEYL_1 0xBB67AE85u

uint64_t
hymt_random_at(uint64_t seed, uint64_t position)
{
	uint32_t	counter[4] = {(uint32_t) position, (uint32_t) (position >> 32), 0, 0};
	uint32_t	key[2] = {(uint32_t) seed, (uint32_t) (seed >> 32)};

	for (int round = 0; round < PHILOX_ROUNDS; round++)
	{
		uint64_t	one = (uint64_t) PHILOX_MULTIPLIER_0 * counter[0];
		uint64_t	other = (uint64_t) PHILOX_MULTIPLIER_1 * counter[2];

		counter[0] = (uint32_t) (other >> 32) ^ counter[1] ^ key[0];
		counter[1] = (uint32_t) other;
		counter[2] = (uint32_t) (one >> 32) ^ counter[3] ^ key[1];
		counter[3] = (uint32_t) one;
		key[0] += PHILOX_WEYL_0;
		key[1] += PHILOX_WEYL_1;
	}
	return (uint64_t) counter[1] << 32 | counter[0];
}

bool
hymt_loop_watch(HymtLoopWatch *watch, const int32_t *tokens, int32_t count)
{
	bool		loop = false;

	for (int32_t unit = 1; unit <= HYMT_LOOP_UNIT_MAX && unit < count; unit++)
	{
		int32_t		repeats;

		watch->run[unit] = tokens[count - 1] == tokens[count - 1 - unit] ? watch->run[unit] + 1 : 0;
		repeats = watch->run[unit] / unit + 1;
		if (repeats >= HYMT_LOOP_REPEATS_MIN && repeats * unit >= HYMT_LOOP_TOKENS_MIN &&
			repeats > watch->source_repeats)
			loop = true;
	}
	return loop;
}

int32_t
hymt_repeats_of_ids(const int32_t *ids, int32_t count)
{
	int32_t		most = count > 0 ? 1 : 0;

	for (int32_t unit = 1; unit <= HYMT_LOOP_UNIT_MAX; unit++)
	{
		int32_t		run = 0;

		for (int32_t i = unit; i < count; i++)
		{
			run = ids[i] == ids[i - unit] ? run + 1 : 0;
			if (run / unit + 1 > most)
				most = run / unit + 1;
		}
	}
	return most;
}

int32_t
hymt_repeats_of_text(const char *text, size_t length)
{
	size_t		most = length > 0 ? 1 : 0;

	if (length > TEXT_LOOKED_AT)
		length = TEXT_LOOKED_AT;
	for (size_t unit = 1; unit <= TEXT_UNIT_MAX && unit * most < length; unit++)
	{
		size_t		run = 0;

		for (size_t i = unit; i < length; i++)
		{
			run = text[i] == text[i - unit] ? run + 1 : 0;
			/* Division only where the run is longer than those before. */
			if (run >= most * unit)
				most = run / unit + 1;
		}
	}
	return most < INT32_MAX ? (int32_t) most : INT32_MAX;
}
