/*
 * cache_key.c: a question as 32 bytes, under which the table hymt_cache has its answer.
 *
 * Runs in backends and parallel workers. The key is the same on every machine and in every version of hymt that uses the
 * same SCHEME, because the table is replicated, restored and upgraded. So numbers have a fixed order of bytes, and each
 * variable part its length in front.
 */
#include "cache.h"

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "port/pg_bswap.h"

/* To be changed with whatever goes into the key. */
#define SCHEME "hymt cache key 1"

static bool
add(pg_cryptohash_ctx *hash, const void *data, Size length)
{
	return pg_cryptohash_update(hash, data, length) >= 0;
}

static bool
add_number(pg_cryptohash_ctx *hash, uint64 number)
{
	uint64		bytes = pg_hton64(number);

	return add(hash, &bytes, sizeof(bytes));
}

static bool
add_part(pg_cryptohash_ctx *hash, const char *data, Size length)
{
	return add_number(hash, length) && (length == 0 || add(hash, data, length));
}

static bool
add_string(pg_cryptohash_ctx *hash, const char *string)
{
	return add_part(hash, string, strlen(string));
}

static uint64
bits_of(float number)
{
	uint32		bits;

	memcpy(&bits, &number, sizeof(bits));
	return bits;
}

static bool
add_question(pg_cryptohash_ctx *hash, const HymtCacheQuestion *question)
{
	const HymtOrder *order = question->order;

	return add_string(hash, SCHEME) &&
		add_string(hash, question->fingerprint) &&
		add_number(hash, question->role) &&
		add_string(hash, order->source->code) &&
		add_string(hash, order->target->code) &&
		add_number(hash, (uint64) order->max_new_tokens) &&
		add_number(hash, order->draw.seed) &&
		add_number(hash, bits_of(order->draw.temperature)) &&
		add_number(hash, bits_of(order->draw.top_p)) &&
		add_number(hash, order->draw.top_k) &&
		add_string(hash, order->adapter) &&
		add_part(hash, order->context, order->context_length) &&
		add_part(hash, question->utf8, question->length);
}

bool
hymt_cache_make_key(HymtCacheQuestion *question)
{
	pg_cryptohash_ctx *hash = pg_cryptohash_create(PG_SHA256);
	bool		made;

	made = hash != NULL && pg_cryptohash_init(hash) >= 0 && add_question(hash, question) &&
		pg_cryptohash_final(hash, question->key.digest, sizeof(question->key.digest)) >= 0;
	pg_cryptohash_free(hash);
	return made;
}
