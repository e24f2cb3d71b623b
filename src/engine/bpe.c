/*
 * bpe.c: a byte-level BPE vocabulary: tokens, merges, and the encoding of one piece of text.
 *
 * Runs in the engine program. A HymtBpe owns its tables and is not changed once it is finished, so that several threads
 * may encode with it, each with its own scratch memory. The calls that fill it take untrusted input.
 */
#include "bpe.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define NO_TOKEN (-1)
#define HIDDEN_TOKEN (-2)		/* in the tables, in place of the id of a token that no text may become */
#define ABSENT UINT32_MAX		/* length of a token that an id has not */
#define NO_PAIR UINT64_MAX		/* key of an empty slot of the merge table */
#define MAX_MERGES (1 << 26)

/* The byte alphabet's characters are U+0021 to U+0143. */
#define ALPHABET_END 0x144

typedef struct Token
{
	uint32_t	offset;			/* of its spelling in `spellings` */
	uint32_t	length;
} Token;

/* An entry of the table of spellings. The token is repeated in it to save a look at another place in memory. */
typedef struct TokenSlot
{
	uint32_t	hash;
	int32_t		id;				/* NO_TOKEN: empty */
	Token		token;
} TokenSlot;

typedef struct Merge
{
	uint64_t	pair;			/* left id << 32 | right id */
	uint32_t	rank;			/* lower is merged earlier */
	int32_t		id;				/* of the merged token */
} Merge;

struct HymtBpe
{
	char	   *spellings;
	size_t		spellings_length;
	size_t		spellings_capacity;

	Token	   *tokens;			/* by id */
	size_t		tokens_capacity;
	int			size;
	int			vocabulary;
	size_t		longest;		/* bytes that the longest token of the vocabulary stands for, at most */

	/* Hash tables with linear probing, at most half full; the masks are their sizes - 1. */
	TokenSlot  *slots;
	size_t		slots_mask;
	Merge	   *merges;
	size_t		merges_mask;
	size_t		merges_used;
	uint32_t	merge_count;	/* as listed, repeated ones included */
	uint64_t	seed;			/* so that no file can be made to collide */

	int32_t		last_merged;	/* id of the last merge that was added */
	char	   *joined;			/* room to join the two sides of a merge */
	size_t		joined_capacity;

	int32_t		byte_ids[256];	/* the token of a single byte, or NO_TOKEN */
	bool		ignore_merges;
};

/* One token of a piece while it is being merged; a doubly linked list in an array. */
typedef struct HymtBpeSymbol
{
	int32_t		id;				/* NO_TOKEN: merged into its left neighbour */
	int32_t		previous;		/* index, -1 at the start */
	int32_t		next;			/* index, -1 at the end */
} HymtBpeSymbol;

/* --- the byte alphabet --------------------------------------------------------------------------------------- */

/* Whether the alphabet spells a byte with the character of the same code. */
static bool
spells_itself(int byte)
{
	return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/* The character that spells a byte. Those that do not spell themselves are counted up from U+0100. */
static int
byte_character(int byte)
{
	if (spells_itself(byte))
		return byte;
	if (byte <= 0x20)
		return 0x100 + byte;
	return byte == 0xAD ? 0x143 : 0x121 + (byte - 0x7F);
}

/* The byte that a character spells, or -1. */
static int
character_byte(int character)
{
	if (character < 0x100)
		return spells_itself(character) ? character : -1;
	if (character < 0x121)
		return character - 0x100;
	if (character < 0x143)
		return 0x7F + (character - 0x121);
	return character == 0x143 ? 0xAD : -1;
}

/* Write the character of a byte as UTF-8; returns the number of bytes (1 or 2). */
static int
spell_byte(int byte, char *to)
{
	int			character = byte_character(byte);

	if (character < 0x80)
	{
		to[0] = (char) character;
		return 1;
	}
	to[0] = (char) (0xC0 | character >> 6);
	to[1] = (char) (0x80 | (character & 0x3F));
	return 2;
}

size_t
hymt_bpe_bytes(const HymtJsonText *spelling, char *to)
{
	size_t		count = 0;

	for (size_t i = 0; i < spelling->length; i++)
	{
		int			character = (unsigned char) spelling->data[i];
		int			byte;

		/* spellings are valid UTF-8: two bytes reach U+07FF, longer characters are none of the alphabet */
		if (character >= 0xC0 && character < 0xE0)
			character = (character & 0x1F) << 6 | (spelling->data[++i] & 0x3F);
		else if (character >= 0x80)
			character = ALPHABET_END;
		byte = character_byte(character);
		if (byte < 0)
		{
			/* not byte-level at all, such as an added token with a blank: it stands for itself */
			memcpy(to, spelling->data, spelling->length);
			return spelling->length;
		}
		to[count++] = (char) byte;
	}
	return count;
}

/* --- tables -------------------------------------------------------------------------------------------------- */

static uint64_t
mix(uint64_t x)
{
	x ^= x >> 32;
	x *= UINT64_C(0x9E3779B97F4A7C15);
	x ^= x >> 29;
	x *= UINT64_C(0xBF58476D1CE4E5B9);
	return x ^ x >> 32;
}

static uint32_t
hash_text(const HymtBpe *bpe, const char *text, size_t length)
{
	uint64_t	hash = bpe->seed ^ length;
	uint64_t	word;

	for (; length >= sizeof(word); text += sizeof(word), length -= sizeof(word))
	{
		memcpy(&word, text, sizeof(word));
		hash = mix(hash ^ word);
	}
	word = 0;
	memcpy(&word, text, length);
	return (uint32_t) mix(hash ^ word);
}

static size_t
pair_slot(const HymtBpe *bpe, uint64_t pair)
{
	return mix(bpe->seed ^ pair) & bpe->merges_mask;
}

static uint64_t
pair_key(int32_t left, int32_t right)
{
	return (uint64_t) (uint32_t) left << 32 | (uint32_t) right;
}

static int32_t
find_token(const HymtBpe *bpe, const char *text, size_t length)
{
	uint32_t	hash = hash_text(bpe, text, length);

	for (size_t i = hash & bpe->slots_mask;; i = (i + 1) & bpe->slots_mask)
	{
		const TokenSlot *slot = &bpe->slots[i];

		if (slot->id == NO_TOKEN)
			return NO_TOKEN;
		if (slot->hash == hash && slot->token.length == length &&
			memcmp(bpe->spellings + slot->token.offset, text, length) == 0)
			return slot->id;
	}
}

static const Merge *
find_merge(const HymtBpe *bpe, int32_t left, int32_t right)
{
	uint64_t	pair = pair_key(left, right);

	for (size_t i = pair_slot(bpe, pair);; i = (i + 1) & bpe->merges_mask)
	{
		if (bpe->merges[i].pair == pair)
			return bpe->merges[i].id != HIDDEN_TOKEN ? &bpe->merges[i] : NULL;
		if (bpe->merges[i].pair == NO_PAIR)
			return NULL;
	}
}

static bool
allocate_slots(HymtBpe *bpe, size_t count)
{
	TokenSlot  *slots = malloc(count * sizeof(*slots));

	if (slots == NULL)
		return false;
	for (size_t i = 0; i < count; i++)
		slots[i].id = NO_TOKEN;
	bpe->slots = slots;
	bpe->slots_mask = count - 1;
	return true;
}

static bool
allocate_merges(HymtBpe *bpe, size_t count)
{
	Merge	   *merges = malloc(count * sizeof(*merges));

	if (merges == NULL)
		return false;
	for (size_t i = 0; i < count; i++)
		merges[i].pair = NO_PAIR;
	bpe->merges = merges;
	bpe->merges_mask = count - 1;
	return true;
}

static void
put_slot(HymtBpe *bpe, uint32_t hash, int32_t id)
{
	size_t		i = hash & bpe->slots_mask;

	while (bpe->slots[i].id != NO_TOKEN)
		i = (i + 1) & bpe->slots_mask;
	bpe->slots[i].hash = hash;
	bpe->slots[i].id = id;
	bpe->slots[i].token = bpe->tokens[id];
}

/* A pair that is listed twice has the priority of its last mention, as in the reference. */
static void
put_merge(HymtBpe *bpe, const Merge *merge)
{
	size_t		i = pair_slot(bpe, merge->pair);

	while (bpe->merges[i].pair != NO_PAIR && bpe->merges[i].pair != merge->pair)
		i = (i + 1) & bpe->merges_mask;
	bpe->merges_used += bpe->merges[i].pair == NO_PAIR;
	bpe->merges[i] = *merge;
}

static bool
grow_slots(HymtBpe *bpe)
{
	TokenSlot  *old = bpe->slots;
	size_t		old_count = bpe->slots_mask + 1;

	if (!allocate_slots(bpe, old_count * 2))
		return false;
	for (size_t i = 0; i < old_count; i++)
		if (old[i].id != NO_TOKEN)
			put_slot(bpe, old[i].hash, old[i].id);
	free(old);
	return true;
}

static bool
grow_merges(HymtBpe *bpe)
{
	Merge	   *old = bpe->merges;
	size_t		old_count = bpe->merges_mask + 1;

	if (!allocate_merges(bpe, old_count * 2))
		return false;
	bpe->merges_used = 0;
	for (size_t i = 0; i < old_count; i++)
		if (old[i].pair != NO_PAIR)
			put_merge(bpe, &old[i]);
	free(old);
	return true;
}

HymtBpe *
hymt_bpe_create(size_t expected)
{
	HymtBpe    *bpe = calloc(1, sizeof(*bpe));
	size_t		slots = 1024;

	if (bpe == NULL)
		return NULL;
	while (slots < expected * 2 && slots < HYMT_BPE_MAX_ID)
		slots *= 2;
	/* without randomness the tables still work, they are only less robust against hostile files */
	if (getrandom(&bpe->seed, sizeof(bpe->seed), GRND_NONBLOCK) != sizeof(bpe->seed))
		bpe->seed = 0;
	bpe->spellings_capacity = 1 << 16;
	bpe->spellings = malloc(bpe->spellings_capacity);
	if (bpe->spellings == NULL || !allocate_slots(bpe, slots) || !allocate_merges(bpe, slots))
	{
		hymt_bpe_free(bpe);
		return NULL;
	}
	return bpe;
}

void
hymt_bpe_free(HymtBpe *bpe)
{
	if (bpe == NULL)
		return;
	free(bpe->spellings);
	free(bpe->tokens);
	free(bpe->slots);
	free(bpe->merges);
	free(bpe->joined);
	free(bpe);
}

static bool
out_of_memory(HymtError *error)
{
	return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "tokenizer: out of memory");
}

/* Room for `more` bytes of spellings. Offsets are 32 bits. */
static bool
reserve_spellings(HymtBpe *bpe, size_t more, HymtError *error)
{
	size_t		need = bpe->spellings_length + more;
	char	   *spellings;

	if (need >= UINT32_MAX)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "tokens of more than 4 GB");
	if (need <= bpe->spellings_capacity)
		return true;
	spellings = realloc(bpe->spellings, need * 2);
	if (spellings == NULL)
		return out_of_memory(error);
	bpe->spellings = spellings;
	bpe->spellings_capacity = need * 2;
	return true;
}

/* Entries for all ids up to `id`. */
static bool
reserve_tokens(HymtBpe *bpe, int id, HymtError *error)
{
	size_t		capacity = bpe->tokens_capacity;
	Token	   *tokens;

	if ((size_t) id < capacity)
		return true;
	while (capacity <= (size_t) id)
		capacity = capacity == 0 ? 4096 : capacity * 2;
	tokens = realloc(bpe->tokens, capacity * sizeof(*tokens));
	if (tokens == NULL)
		return out_of_memory(error);
	for (size_t i = bpe->tokens_capacity; i < capacity; i++)
		tokens[i].length = ABSENT;
	bpe->tokens = tokens;
	bpe->tokens_capacity = capacity;
	return true;
}

/* Give an id that has no token yet its spelling. */
static bool
store_token(HymtBpe *bpe, const HymtJsonText *spelling, int64_t id, HymtError *error)
{
	Token	   *token;

	if (id < 0 || id > HYMT_BPE_MAX_ID)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "token id %lld is out of range", (long long) id);
	if (!reserve_tokens(bpe, (int) id, error) || !reserve_spellings(bpe, spelling->length, error))
		return false;
	token = &bpe->tokens[id];
	if (token->length != ABSENT)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "two tokens have the id %lld", (long long) id);
	token->offset = (uint32_t) bpe->spellings_length;
	token->length = (uint32_t) spelling->length;
	memcpy(bpe->spellings + bpe->spellings_length, spelling->data, spelling->length);
	bpe->spellings_length += spelling->length;
	if (id >= bpe->size)
		bpe->size = (int) id + 1;
	return true;
}

/* One byte for each character: what a spelling in the byte alphabet stands for. No other spelling meets a text. */
static size_t
count_characters(const HymtJsonText *spelling)
{
	size_t		count = 0;

	for (size_t i = 0; i < spelling->length; i++)
		count += ((unsigned char) spelling->data[i] & 0xC0) != 0x80;
	return count;
}

bool
hymt_bpe_add_token(HymtBpe *bpe, const HymtJsonText *spelling, int64_t id, HymtError *error)
{
	if (find_token(bpe, spelling->data, spelling->length) != NO_TOKEN)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "the token of id %lld is listed twice", (long long) id);
	if (!store_token(bpe, spelling, id, error))
		return false;
	if ((size_t) ++bpe->vocabulary * 2 > bpe->slots_mask && !grow_slots(bpe))
		return out_of_memory(error);
	put_slot(bpe, hash_text(bpe, spelling->data, spelling->length), (int32_t) id);
	if (count_characters(spelling) > bpe->longest)
		bpe->longest = count_characters(spelling);
	return true;
}

bool
hymt_bpe_add_outside(HymtBpe *bpe, const HymtJsonText *spelling, int64_t id, HymtError *error)
{
	int32_t		known = find_token(bpe, spelling->data, spelling->length);

	if (known == NO_TOKEN)
		return store_token(bpe, spelling, id, error);
	if (known != id)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "an added token has the id %lld, but %d in the vocabulary",
						 (long long) id, known);
	return true;
}

/* Whether the spelling of an id is the two others joined. Only the vocabulary is there yet. */
static bool
is_joined(const HymtBpe *bpe, int32_t id, const HymtJsonText *left, const HymtJsonText *right)
{
	HymtJsonText spelling = hymt_bpe_spelling(bpe, id);

	return spelling.data != NULL && spelling.length == left->length + right->length &&
		memcmp(spelling.data, left->data, left->length) == 0 &&
		memcmp(spelling.data + left->length, right->data, right->length) == 0;
}

/* The token that two spellings make when joined. */
static bool
find_joined(HymtBpe *bpe, const HymtJsonText *left, const HymtJsonText *right, int32_t *id)
{
	size_t		length = left->length + right->length;

	/* most vocabularies are numbered in the order in which their merges were found */
	*id = bpe->last_merged + 1;
	if (is_joined(bpe, *id, left, right))
		return true;
	if (length > bpe->joined_capacity)
	{
		char	   *joined = realloc(bpe->joined, length * 2);

		if (joined == NULL)
			return false;
		bpe->joined = joined;
		bpe->joined_capacity = length * 2;
	}
	if (length == 0)
	{
		*id = NO_TOKEN;
		return true;
	}
	memcpy(bpe->joined, left->data, left->length);
	memcpy(bpe->joined + left->length, right->data, right->length);
	*id = find_token(bpe, bpe->joined, length);
	return true;
}

bool
hymt_bpe_add_merge(HymtBpe *bpe, const HymtJsonText *left, const HymtJsonText *right, HymtError *error)
{
	int32_t		left_id = find_token(bpe, left->data, left->length);
	int32_t		right_id = find_token(bpe, right->data, right->length);
	Merge		merge;

	if (!find_joined(bpe, left, right, &merge.id))
		return out_of_memory(error);
	if (left_id == NO_TOKEN || right_id == NO_TOKEN)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "merge %u: its %s side is not in the vocabulary",
						 bpe->merge_count, left_id == NO_TOKEN ? "left" : "right");
	if (merge.id == NO_TOKEN)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "merge %u: its result is not in the vocabulary",
						 bpe->merge_count);
	/* would let a piece be merged with nothing, for ever */
	if (left->length == 0 || right->length == 0)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "merge %u: one side is empty", bpe->merge_count);
	if (bpe->merge_count == MAX_MERGES)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "more than %d merges", MAX_MERGES);
	if ((bpe->merges_used + 1) * 2 > bpe->merges_mask && !grow_merges(bpe))
		return out_of_memory(error);
	bpe->last_merged = merge.id;
	merge.pair = pair_key(left_id, right_id);
	merge.rank = bpe->merge_count++;
	put_merge(bpe, &merge);
	return true;
}

void
hymt_bpe_finish(HymtBpe *bpe, bool ignore_merges)
{
	for (int byte = 0; byte < 256; byte++)
	{
		char		spelling[2];

		bpe->byte_ids[byte] = find_token(bpe, spelling, (size_t) spell_byte(byte, spelling));
	}
	bpe->ignore_merges = ignore_merges;
	free(bpe->joined);
	bpe->joined = NULL;
	bpe->joined_capacity = 0;
}

bool
hymt_bpe_hide(HymtBpe *bpe, const unsigned char *special, HymtError *error)
{
	for (int byte = 0; byte < 256; byte++)
		if (bpe->byte_ids[byte] >= 0 && special[bpe->byte_ids[byte]])
			return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED,
							 "the token of byte %d is marked as a control token (id %d)", byte, bpe->byte_ids[byte]);
	for (size_t i = 0; i <= bpe->slots_mask; i++)
		if (bpe->slots[i].id >= 0 && special[bpe->slots[i].id])
			bpe->slots[i].id = HIDDEN_TOKEN;
	for (size_t i = 0; i <= bpe->merges_mask; i++)
		if (bpe->merges[i].pair != NO_PAIR && special[bpe->merges[i].id])
			bpe->merges[i].id = HIDDEN_TOKEN;
	return true;
}

HymtJsonText
hymt_bpe_spelling(const HymtBpe *bpe, int64_t id)
{
	HymtJsonText spelling = {NULL, 0};

	if (id >= 0 && id < bpe->size && bpe->tokens[id].length != ABSENT)
	{
		spelling.data = bpe->spellings + bpe->tokens[id].offset;
		spelling.length = bpe->tokens[id].length;
	}
	return spelling;
}

int
hymt_bpe_size(const HymtBpe *bpe)
{
	return bpe->size;
}

int
hymt_bpe_vocabulary(const HymtBpe *bpe)
{
	return bpe->vocabulary;
}

int
hymt_bpe_merges(const HymtBpe *bpe)
{
	return (int) bpe->merge_count;
}

size_t
hymt_bpe_longest(const HymtBpe *bpe)
{
	return bpe->longest;
}

/* --- encoding ------------------------------------------------------------------------------------------------ */

void
hymt_bpe_scratch_free(HymtBpeScratch *scratch)
{
	free(scratch->symbols);
	free(scratch->heap);
	free(scratch->spelling);
	memset(scratch, 0, sizeof(*scratch));
}

/*
 * Room for a piece of `length` bytes. The heap never holds more than two candidates per byte: it starts with fewer than
 * one, and each merge takes at least one out, puts at most two in, and there are fewer merges than bytes.
 */
static bool
reserve_scratch(HymtBpeScratch *scratch, size_t length)
{
	size_t		capacity = length < 128 ? 256 : length * 2;

	if (length <= scratch->capacity)
		return true;
	hymt_bpe_scratch_free(scratch);
	scratch->symbols = malloc(capacity * sizeof(*scratch->symbols));
	scratch->heap = malloc(capacity * 2 * sizeof(*scratch->heap));
	scratch->spelling = malloc(capacity * 2);
	if (scratch->symbols == NULL || scratch->heap == NULL || scratch->spelling == NULL)
	{
		hymt_bpe_scratch_free(scratch);
		return false;
	}
	scratch->capacity = capacity;
	return true;
}

/* A binary heap of candidates, rank << 32 | position: the smallest is the lowest rank, and the leftmost of those. */
static void
heap_push(uint64_t *heap, size_t *count, uint64_t candidate)
{
	size_t		i = (*count)++;

	while (i > 0 && heap[(i - 1) / 2] > candidate)
	{
		heap[i] = heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap[i] = candidate;
}

static uint64_t
heap_pop(uint64_t *heap, size_t *count)
{
	uint64_t	top = heap[0];
	uint64_t	last = heap[--(*count)];
	size_t		i = 0;

	for (;;)
	{
		size_t		child = 2 * i + 1;

		if (child >= *count)
			break;
		if (child + 1 < *count && heap[child + 1] < heap[child])
			child++;
		if (heap[child] >= last)
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = last;
	return top;
}

/* The merge of the symbol at a position with its right neighbour, or NULL. */
static const Merge *
merge_at(const HymtBpe *bpe, const HymtBpeSymbol *symbols, int32_t position)
{
	const HymtBpeSymbol *symbol = &symbols[position];

	if (symbol->id == NO_TOKEN || symbol->next < 0)
		return NULL;
	return find_merge(bpe, symbol->id, symbols[symbol->next].id);
}

static void
push_candidate(const HymtBpe *bpe, HymtBpeScratch *scratch, size_t *count, int32_t position)
{
	const Merge *merge;

	if (position < 0)
		return;
	merge = merge_at(bpe, scratch->symbols, position);
	if (merge != NULL)
		heap_push(scratch->heap, count, (uint64_t) merge->rank << 32 | (uint32_t) position);
}

/* Merge all that can be merged among `count` symbols. */
static void
merge_symbols(const HymtBpe *bpe, HymtBpeScratch *scratch, int32_t count)
{
	HymtBpeSymbol *symbols = scratch->symbols;
	size_t		candidates = 0;

	for (int32_t i = 0; i < count; i++)
		push_candidate(bpe, scratch, &candidates, i);
	while (candidates > 0)
	{
		uint64_t	candidate = heap_pop(scratch->heap, &candidates);
		int32_t		position = (int32_t) (uint32_t) candidate;
		const Merge *merge = merge_at(bpe, symbols, position);
		HymtBpeSymbol *left = &symbols[position];
		HymtBpeSymbol *right;

		/* out of date when either side has changed since; every pair has a rank of its own */
		if (merge == NULL || merge->rank != candidate >> 32)
			continue;
		right = &symbols[left->next];
		left->id = merge->id;
		left->next = right->next;
		right->id = NO_TOKEN;
		if (left->next >= 0)
			symbols[left->next].previous = position;
		push_candidate(bpe, scratch, &candidates, left->previous);
		push_candidate(bpe, scratch, &candidates, position);
	}
}

/* The token that is exactly this piece; negative when there is none, or none that a text may become. */
static int32_t
find_piece(const HymtBpe *bpe, HymtBpeScratch *scratch, const char *piece, size_t length)
{
	size_t		spelled = 0;

	for (size_t i = 0; i < length; i++)
		spelled += (size_t) spell_byte((unsigned char) piece[i], scratch->spelling + spelled);
	return find_token(bpe, scratch->spelling, spelled);
}

bool
hymt_bpe_encode(const HymtBpe *bpe, HymtBpeScratch *scratch, const char *piece, size_t length, HymtIds *ids)
{
	int32_t		count = 0;

	if (!reserve_scratch(scratch, length))
		return false;
	if (bpe->ignore_merges)
	{
		int32_t		id = find_piece(bpe, scratch, piece, length);

		if (id >= 0)
			return hymt_ids_append(ids, id);
	}
	for (size_t i = 0; i < length; i++)
	{
		int32_t		id = bpe->byte_ids[(unsigned char) piece[i]];

		if (id == NO_TOKEN)
			continue;
		scratch->symbols[count].id = id;
		scratch->symbols[count].previous = count - 1;
		scratch->symbols[count].next = count + 1;
		count++;
	}
	if (count == 0)
		return true;
	scratch->symbols[count - 1].next = -1;
	merge_symbols(bpe, scratch, count);
	for (int32_t i = 0; i >= 0; i = scratch->symbols[i].next)
		if (!hymt_ids_append(ids, scratch->symbols[i].id))
			return false;
	return true;
}
