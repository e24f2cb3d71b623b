/*
 * cache_memory.c: the first level of the cache: answers in shared memory, for all sessions.
 *
 * Runs in backends, parallel workers and database workers; laid out by the postmaster. Owns a segment of its own, of
 * hymt.cache_memory, which never grows, and in which nothing points into one process.
 *
 * The segment is divided into partitions by the hash of the question. Each has a lock, which is held only to find and
 * copy, or to put: hits share it. Under it nothing allocates, raises or waits. A partition is cut into chunks of one
 * size, so that there is no fragmentation whatever the mixture of lengths: an entry is a chain of them, with the
 * question and then the answer. What is needed for a new entry is taken from the oldest ones, but for those that were
 * used since they were last looked at: these get a second chance. For how many is limited, as is the share of a
 * partition that one entry may take; so the work under the lock is bounded.
 *
 * A question is compared whole, byte by byte: the hash only says where to look. Its seed is drawn at each start of the
 * server, so that nobody can make up texts that all come to lie in one place.
 */
#include "cache.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"

#define CHUNK_BYTES 128
#define PARTITION_BYTES (512 * 1024)
#define MOST_PARTITIONS 16384
/* With fewer chunks there would be no room for a text of ordinary length. */
#define FEWEST_CHUNKS 64
/* An entry may take one of so many parts of its partition. */
#define LARGEST_PART 4
/* So many entries are spared for one that is put. */
#define MOST_SPARED 32

/* The beginning of an entry; behind it, and in the chunks that follow: question, model, answer. */
typedef struct Entry
{
	int32		next_chunk;		/* of this entry; -1: none */
	int32		last_chunk;
	int32		chunks;			/* how many */
	int32		next_in_bucket; /* first chunks of entries; -1: none */
	int32		older;
	int32		newer;
	uint64		hash;
	pg_atomic_uint32 used;		/* since it was last looked at for eviction */
	Oid			database;
	Oid			role;			/* that alone may see it; invalid: all */
	int32		max_new_tokens;
	uint32		context_length;
	uint32		text_length;
	uint32		answer_length;
	int32		input_tokens;
	int32		output_tokens;
	bool		drawn;			/* the question has a HymtDraw, as tokens were not the likeliest ones */
	uint8		model_length;
	char		data[FLEXIBLE_ARRAY_MEMBER];
} Entry;

typedef union Chunk
{
	Entry		entry;			/* of the first one */
	struct
	{
		int32		next_chunk;	/* of an entry or in the free list; at the same place in both */
		char		data[CHUNK_BYTES - sizeof(int32)];
	}			further;
	char		bytes[CHUNK_BYTES];
} Chunk;

typedef struct Partition
{
	LWLock	   *lock;
	int32		free;			/* list of chunks that were used once; -1: empty */
	int32		fresh;			/* from this one on, none was ever used, nor touched */
	int32		available;		/* chunks of both kinds */
	int32		entries;
	int32		oldest;			/* entries in the order in which they will be looked at for eviction; -1: none */
	int32		newest;
} Partition;

struct HymtCacheMemory
{
	uint64		seed;
	uint32		partitions;
	int32		chunks;			/* of each partition */
	int32		buckets;		/* of each partition; a power of two */
	Size		first_chunk;	/* of a partition, from its start */
	Size		stride;			/* from a partition to the next */
};

/* --- layout ------------------------------------------------------------------------------------------------------- */

static Size
bytes_wanted(void)
{
	return (Size) hymt_cache_memory * 1024;
}

static uint32
partitions_wanted(void)
{
	return (uint32) Max(Min(bytes_wanted() / PARTITION_BYTES, MOST_PARTITIONS), 1);
}

static Size
buckets_offset(void)
{
	return CACHELINEALIGN(sizeof(Partition));
}

/* There are at least half as many buckets as chunks, and at most as many. */
static int32
buckets_for(int32 chunks)
{
	int32		buckets = 1;

	while (buckets * 2 <= chunks)
		buckets *= 2;
	return buckets;
}

static Size
chunks_offset(int32 chunks)
{
	return CACHELINEALIGN(buckets_offset() + buckets_for(chunks) * sizeof(int32));
}

static int32
chunks_wanted(void)
{
	Size		bytes = bytes_wanted() / partitions_wanted();
	Size		fixed = buckets_offset() + PG_CACHE_LINE_SIZE;

	return bytes <= fixed ? 0 : (int32) ((bytes - fixed) / (sizeof(Chunk) + sizeof(int32)));
}

static Size
stride_wanted(void)
{
	return CACHELINEALIGN(chunks_offset(chunks_wanted()) + chunks_wanted() * sizeof(Chunk));
}

Size
hymt_cache_memory_size(void)
{
	if (chunks_wanted() < FEWEST_CHUNKS)
		return 0;
	return add_size(CACHELINEALIGN(sizeof(HymtCacheMemory)), mul_size(partitions_wanted(), stride_wanted()));
}

int
hymt_cache_memory_locks(void)
{
	return hymt_cache_memory_size() == 0 ? 0 : (int) partitions_wanted();
}

static Partition *
partition_at(HymtCacheMemory *memory, uint32 number)
{
	return (Partition *) ((char *) memory + CACHELINEALIGN(sizeof(HymtCacheMemory)) + number * memory->stride);
}

static int32 *
buckets_of(Partition *partition)
{
	return (int32 *) ((char *) partition + buckets_offset());
}

static Chunk *
chunk_at(Partition *partition, int32 number)
{
	return (Chunk *) ((char *) partition + hymt_shared->cache.memory->first_chunk) + number;
}

static Entry *
entry_at(Partition *partition, int32 number)
{
	return &chunk_at(partition, number)->entry;
}

void
hymt_cache_memory_init(HymtCacheMemory *memory)
{
	LWLockPadded *locks = GetNamedLWLockTranche(HYMT_CACHE_LOCKS);

	memory->partitions = partitions_wanted();
	memory->chunks = chunks_wanted();
	memory->buckets = buckets_for(memory->chunks);
	memory->first_chunk = chunks_offset(memory->chunks);
	memory->stride = stride_wanted();
	/* Without a good one an attack is possible, but nothing is wrong. */
	if (!pg_strong_random(&memory->seed, sizeof(memory->seed)))
		memory->seed = 0;
	for (uint32 i = 0; i < memory->partitions; i++)
	{
		Partition  *partition = partition_at(memory, i);

		partition->lock = &locks[i].lock;
		partition->free = -1;
		partition->fresh = 0;
		partition->available = memory->chunks;
		partition->entries = 0;
		partition->oldest = -1;
		partition->newest = -1;
		memset(buckets_of(partition), -1, memory->buckets * sizeof(int32));
	}
}

/* For an entry with so many bytes of question, model and answer. */
static Size
chunks_for(Size bytes)
{
	Size		first = CHUNK_BYTES - offsetof(Entry, data);
	Size		further = CHUNK_BYTES - offsetof(Chunk, further.data);

	return bytes <= first ? 1 : 1 + (bytes - first + further - 1) / further;
}

/* That an entry may have. */
static Size
most_chunks(void)
{
	return (Size) hymt_shared->cache.memory->chunks / LARGEST_PART;
}

/* --- questions ---------------------------------------------------------------------------------------------------- */

typedef struct Part
{
	const void *data;
	Size		length;
} Part;

#define MOST_PARTS 7
#define FINGERPRINT_BYTES (HYMT_FINGERPRINT_DIGITS / 2)

/* A question as it is hashed, compared and put. Its numbers are in it as they are in an entry. */
typedef struct Needle
{
	uint64		hash;
	Oid			database;
	Oid			role;
	int32		max_new_tokens;
	uint32		context_length;
	uint32		text_length;
	bool		drawn;
	uint8		fingerprint[FINGERPRINT_BYTES];
	Part		part[MOST_PARTS];	/* strings end with their NUL, so that one after the other is one reading only */
	int			parts;
	Size		bytes;			/* of the parts */
} Needle;

static void
add_part(Needle *needle, const void *data, Size length)
{
	if (length == 0)
		return;
	Assert(needle->parts < MOST_PARTS);
	needle->part[needle->parts++] = (Part) {data, length};
	needle->bytes += length;
}

static void
add_string(Needle *needle, const char *string)
{
	add_part(needle, string, strlen(string) + 1);
}

static void
make_needle(const HymtCacheQuestion *question, Needle *needle)
{
	static const HymtDraw likeliest;
	const HymtOrder *order = question->order;

	memset(needle, 0, sizeof(Needle));
	needle->database = MyDatabaseId;
	needle->role = question->role;
	needle->max_new_tokens = order->max_new_tokens;
	needle->context_length = (uint32) order->context_length;
	needle->text_length = (uint32) question->length;
	needle->drawn = memcmp(&order->draw, &likeliest, sizeof(HymtDraw)) != 0;
	hex_decode(question->fingerprint, HYMT_FINGERPRINT_DIGITS, (char *) needle->fingerprint);
	add_part(needle, needle->fingerprint, FINGERPRINT_BYTES);
	add_string(needle, order->source->code);
	add_string(needle, order->target->code);
	add_string(needle, order->adapter);
	if (needle->drawn)
		add_part(needle, &order->draw, sizeof(HymtDraw));
	add_part(needle, order->context, order->context_length);
	add_part(needle, question->utf8, question->length);
}

static void
hash_needle(Needle *needle)
{
	const uint32 numbers[] = {needle->database, needle->role, (uint32) needle->max_new_tokens, needle->context_length};
	uint64		hash = hash_bytes_extended((const unsigned char *) numbers, sizeof(numbers),
										   hymt_shared->cache.memory->seed);

	for (int i = 0; i < needle->parts; i++)
		hash = hash_bytes_extended(needle->part[i].data, (int) needle->part[i].length, hash);
	needle->hash = hash;
}

static Partition *
partition_of(const Needle *needle)
{
	HymtCacheMemory *memory = hymt_shared->cache.memory;

	/* The upper half of the hash says which one, the lower half which bucket. */
	return partition_at(memory, (uint32) (((needle->hash >> 32) * memory->partitions) >> 32));
}

static int32 *
bucket_of(Partition *partition, uint64 hash)
{
	return &buckets_of(partition)[hash & (hymt_shared->cache.memory->buckets - 1)];
}

/* --- reading and writing entries; under the lock ------------------------------------------------------------------ */

/* A place in an entry. */
typedef struct Cursor
{
	Partition  *partition;
	int32		next_chunk;
	char	   *at;
	char	   *end;			/* of this chunk */
} Cursor;

static Cursor
beginning_of(Partition *partition, int32 number)
{
	Chunk	   *chunk = chunk_at(partition, number);

	return (Cursor) {partition, chunk->entry.next_chunk, chunk->entry.data, chunk->bytes + CHUNK_BYTES};
}

/* Steps over as many bytes of `most` as lie together, at least one; returns how many these are, and where. */
static Size
step(Cursor *cursor, Size most, char **at)
{
	Size		length;

	if (cursor->at == cursor->end)
	{
		Chunk	   *chunk = chunk_at(cursor->partition, cursor->next_chunk);

		cursor->next_chunk = chunk->further.next_chunk;
		cursor->at = chunk->further.data;
		cursor->end = chunk->bytes + CHUNK_BYTES;
	}
	length = Min(most, (Size) (cursor->end - cursor->at));
	*at = cursor->at;
	cursor->at += length;
	return length;
}

static bool
equals(Cursor *cursor, const char *data, Size length)
{
	while (length > 0)
	{
		char	   *at;
		Size		piece = step(cursor, length, &at);

		if (memcmp(at, data, piece) != 0)
			return false;
		data += piece;
		length -= piece;
	}
	return true;
}

static void
read_bytes(Cursor *cursor, char *data, Size length)
{
	while (length > 0)
	{
		char	   *at;
		Size		piece = step(cursor, length, &at);

		memcpy(data, at, piece);
		data += piece;
		length -= piece;
	}
}

static void
write_bytes(Cursor *cursor, const char *data, Size length)
{
	while (length > 0)
	{
		char	   *at;
		Size		piece = step(cursor, length, &at);

		memcpy(at, data, piece);
		data += piece;
		length -= piece;
	}
}

/* *behind: the place after the question. */
static bool
is_same(Partition *partition, int32 number, const Needle *needle, Cursor *behind)
{
	const Entry *entry = entry_at(partition, number);

	if (entry->hash != needle->hash || entry->database != needle->database || entry->role != needle->role ||
		entry->max_new_tokens != needle->max_new_tokens || entry->context_length != needle->context_length ||
		entry->text_length != needle->text_length || entry->drawn != needle->drawn)
		return false;
	*behind = beginning_of(partition, number);
	for (int i = 0; i < needle->parts; i++)
	{
		if (!equals(behind, needle->part[i].data, needle->part[i].length))
			return false;
	}
	return true;
}

/* NULL: there is none. */
static Entry *
find(Partition *partition, const Needle *needle, Cursor *behind)
{
	int32		number = *bucket_of(partition, needle->hash);

	for (; number >= 0; number = entry_at(partition, number)->next_in_bucket)
	{
		if (is_same(partition, number, needle, behind))
			return entry_at(partition, number);
	}
	return NULL;
}

static void
mark_used(Entry *entry)
{
	/* Written only once, so that hits of one entry share its cache line. */
	if (pg_atomic_read_u32(&entry->used) == 0)
		pg_atomic_write_u32(&entry->used, 1);
}

/* --- finding ------------------------------------------------------------------------------------------------------ */

typedef enum Finding
{
	NOT_FOUND,
	FOUND,
	TOO_LARGE					/* found, but answer->length bytes do not fit; nothing was copied but that */
} Finding;

/* Copies into answer->text, where there is room for so many bytes. */
static Finding
copy_answer(const Needle *needle, HymtCacheAnswer *answer, Size room)
{
	Partition  *partition = partition_of(needle);
	Finding		finding = NOT_FOUND;
	Cursor		cursor;
	Entry	   *entry;

	LWLockAcquire(partition->lock, LW_SHARED);
	entry = find(partition, needle, &cursor);
	if (entry != NULL)
	{
		finding = entry->answer_length < room ? FOUND : TOO_LARGE;
		answer->length = entry->answer_length;
		mark_used(entry);
	}
	if (finding == FOUND)
	{
		answer->input_tokens = entry->input_tokens;
		answer->output_tokens = entry->output_tokens;
		read_bytes(&cursor, answer->model, entry->model_length);
		answer->model[entry->model_length] = '\0';
		read_bytes(&cursor, answer->text, answer->length);
	}
	LWLockRelease(partition->lock);
	return finding;
}

bool
hymt_cache_memory_find(const HymtCacheQuestion *question, HymtCacheAnswer *answer)
{
	Needle		needle;
	Finding		finding;
	Size		room;

	if (hymt_shared->cache.memory == NULL)
		return false;
	make_needle(question, &needle);
	/* Else there is none, and hashing a huge text would take its time. */
	if (chunks_for(needle.bytes) > most_chunks())
		return false;
	hash_needle(&needle);
	/* Most answers are no longer; nothing can be allocated once the length is known. */
	room = 2 * question->length + 256;
	answer->text = palloc_extended(room, MCXT_ALLOC_HUGE);
	while ((finding = copy_answer(&needle, answer, room)) == TOO_LARGE)
	{
		room = answer->length + 1;
		pfree(answer->text);
		answer->text = palloc(room);
	}
	if (finding == NOT_FOUND)
	{
		pfree(answer->text);
		return false;
	}
	answer->text[answer->length] = '\0';
	answer->finish = HYMT_FINISH_STOP;
	return true;
}

/* --- putting ------------------------------------------------------------------------------------------------------ */

static void
enlist(Partition *partition, int32 number)
{
	Entry	   *entry = entry_at(partition, number);

	entry->newer = -1;
	entry->older = partition->newest;
	if (entry->older < 0)
		partition->oldest = number;
	else
		entry_at(partition, entry->older)->newer = number;
	partition->newest = number;
}

static void
delist(Partition *partition, int32 number)
{
	Entry	   *entry = entry_at(partition, number);

	if (entry->older < 0)
		partition->oldest = entry->newer;
	else
		entry_at(partition, entry->older)->newer = entry->newer;
	if (entry->newer < 0)
		partition->newest = entry->older;
	else
		entry_at(partition, entry->newer)->older = entry->older;
}

static void
forget(Partition *partition, int32 number)
{
	Entry	   *entry = entry_at(partition, number);
	int32	   *link = bucket_of(partition, entry->hash);

	while (*link != number)
		link = &entry_at(partition, *link)->next_in_bucket;
	*link = entry->next_in_bucket;
	delist(partition, number);
	partition->entries--;
	partition->available += entry->chunks;
	chunk_at(partition, entry->last_chunk)->further.next_chunk = partition->free;
	partition->free = number;
}

/* Returns how many entries that took. */
static int
make_room(Partition *partition, int32 chunks)
{
	int			spared = 0;
	int			evicted = 0;

	while (partition->available < chunks)
	{
		int32		number = partition->oldest;
		Entry	   *entry = entry_at(partition, number);

		if (spared < MOST_SPARED && pg_atomic_read_u32(&entry->used) != 0)
		{
			pg_atomic_write_u32(&entry->used, 0);
			delist(partition, number);
			enlist(partition, number);
			spared++;
			continue;
		}
		forget(partition, number);
		evicted++;
	}
	return evicted;
}

static int32
take_chunk(Partition *partition)
{
	int32		number = partition->free;

	if (number < 0)
		number = partition->fresh++;
	else
		partition->free = chunk_at(partition, number)->further.next_chunk;
	partition->available--;
	return number;
}

/* A chain of so many, linked and counted. Returns the first one. */
static int32
take_chunks(Partition *partition, int32 chunks)
{
	int32		first = take_chunk(partition);
	int32		last = first;

	for (int32 i = 1; i < chunks; i++)
	{
		int32		next = take_chunk(partition);

		chunk_at(partition, last)->further.next_chunk = next;
		last = next;
	}
	chunk_at(partition, last)->further.next_chunk = -1;
	entry_at(partition, first)->last_chunk = last;
	entry_at(partition, first)->chunks = chunks;
	return first;
}

static void
fill(Partition *partition, int32 number, const Needle *needle, const HymtCacheAnswer *answer)
{
	Entry	   *entry = entry_at(partition, number);
	int32	   *bucket = bucket_of(partition, needle->hash);
	Cursor		cursor = beginning_of(partition, number);

	entry->hash = needle->hash;
	pg_atomic_init_u32(&entry->used, 0);
	entry->database = needle->database;
	entry->role = needle->role;
	entry->max_new_tokens = needle->max_new_tokens;
	entry->context_length = needle->context_length;
	entry->text_length = needle->text_length;
	entry->drawn = needle->drawn;
	entry->model_length = (uint8) strlen(answer->model);
	entry->answer_length = (uint32) answer->length;
	entry->input_tokens = answer->input_tokens;
	entry->output_tokens = answer->output_tokens;
	for (int i = 0; i < needle->parts; i++)
		write_bytes(&cursor, needle->part[i].data, needle->part[i].length);
	write_bytes(&cursor, answer->model, entry->model_length);
	write_bytes(&cursor, answer->text, answer->length);
	entry->next_in_bucket = *bucket;
	*bucket = number;
	enlist(partition, number);
	partition->entries++;
}

bool
hymt_cache_memory_put(const HymtCacheQuestion *question, const HymtCacheAnswer *answer)
{
	Partition  *partition;
	Needle		needle;
	Cursor		cursor;
	Entry	   *present;
	Size		chunks;
	int			evicted = 0;

	if (hymt_shared->cache.memory == NULL)
		return true;
	make_needle(question, &needle);
	chunks = chunks_for(needle.bytes + strlen(answer->model) + answer->length);
	if (chunks > most_chunks())
		return true;
	hash_needle(&needle);
	partition = partition_of(&needle);

	LWLockAcquire(partition->lock, LW_EXCLUSIVE);
	present = find(partition, &needle, &cursor);
	if (present != NULL)
		mark_used(present);
	else
	{
		evicted = make_room(partition, (int32) chunks);
		fill(partition, take_chunks(partition, (int32) chunks), &needle, answer);
	}
	LWLockRelease(partition->lock);
	if (evicted > 0)
		hymt_cache_count(HYMT_CACHE_MEMORY_EVICTIONS, evicted);
	return present == NULL;
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

void
hymt_cache_memory_clear(Oid database)
{
	HymtCacheMemory *memory = hymt_shared->cache.memory;

	for (uint32 i = 0; memory != NULL && i < memory->partitions; i++)
	{
		Partition  *partition = partition_at(memory, i);

		CHECK_FOR_INTERRUPTS();
		LWLockAcquire(partition->lock, LW_EXCLUSIVE);
		for (int32 number = partition->oldest; number >= 0;)
		{
			const Entry *entry = entry_at(partition, number);
			int32		newer = entry->newer;

			if (entry->database == database)
				forget(partition, number);
			number = newer;
		}
		LWLockRelease(partition->lock);
	}
}

void
hymt_cache_memory_usage(uint64 *entries, uint64 *bytes)
{
	HymtCacheMemory *memory = hymt_shared->cache.memory;

	*entries = 0;
	*bytes = 0;
	for (uint32 i = 0; memory != NULL && i < memory->partitions; i++)
	{
		Partition  *partition = partition_at(memory, i);

		LWLockAcquire(partition->lock, LW_SHARED);
		*entries += partition->entries;
		*bytes += (uint64) (memory->chunks - partition->available) * CHUNK_BYTES;
		LWLockRelease(partition->lock);
	}
}
