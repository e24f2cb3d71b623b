/*
 * sequence.h: one request while the scheduler has it.
 *
 * Its tokens are known up to prompt_count + answer_count; `computed` of them have their keys and values in its pages.
 * One that is behind by more than the last token computes prompt rows, whether for the first time or again after it
 * lost its pages; one that is behind by that alone decodes.
 */
#ifndef HYMT_SEQUENCE_H
#define HYMT_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "decoding.h"
#include "scheduler.h"

typedef struct HymtSequence
{
	struct HymtSequence *next;
	uint64_t	id;
	int32_t		adapter;		/* 0: none */
	void		(*release_adapter) (void *context, int32_t adapter);	/* NULL: has been called, or there is none */
	void	   *release_context;
	void		(*token_taken) (void *context, int32_t token);	/* NULL: nobody wants to know */
	void	   *token_context;
	int32_t    *tokens;			/* [prompt_count + max_new]: the prompt, then the answer */
	int32_t		prompt_count;
	int32_t		max_new;
	int32_t		answer_count;
	int32_t		computed;
	int32_t		counted;		/* positions of the prompt that statistics have counted */

	int32_t    *pages;			/* [page_capacity] */
	int32_t		page_capacity;
	int32_t		page_count;		/* pages it has now */
	int32_t		known;			/* of the positions in its pages, those that the prefix cache knows */
	bool		begun;			/* has had rows since it was admitted */
	int32_t		copy_from;		/* page to copy the last of its computed positions from before it begins; -1: none */
	uint64_t	searched;		/* version of the prefix cache that it was last compared with */

	/* in the plan that is being built */
	int32_t		share;			/* prompt rows that it gets */
	bool		deferred;		/* waits for the step after, which will find more of its prompt computed */
	int32_t		passed_over;	/* plans in a row that had no row for it although it decodes */

	float		penalty;
	HymtSampling sampling;
	const int32_t *stop_ids;	/* caller's */
	int			stop_count;
	int32_t    *seen;			/* distinct ids so far, only with a penalty */
	int32_t		seen_count;
	uint8_t    *seen_bits;		/* one bit per id of the vocabulary */
	bool		watch_loops;
	HymtLoopWatch loops;

	float	   *last_logits;	/* [vocab], when wanted */
	bool		has_last_logits;
	int32_t    *argmax;			/* [prompt_count], when wanted */
	int32_t		argmax_count;	/* positions that have theirs */
	bool		cancelled;		/* part of the step under way; to be dropped when that ends */
	bool		finished;
	HymtFailure failure;
	HymtFinish	finish;
} HymtSequence;

/* A list in the order of arrival. Zeroed: empty. */
typedef struct HymtSequenceList
{
	HymtSequence *first;
	HymtSequence *last;
	int32_t		count;
} HymtSequenceList;

extern void hymt_sequences_append(HymtSequenceList *list, HymtSequence *sequence);
extern void hymt_sequences_prepend(HymtSequenceList *list, HymtSequence *sequence);
extern HymtSequence *hymt_sequences_take_first(HymtSequenceList *list);
extern HymtSequence *hymt_sequences_take_last(HymtSequenceList *list);
extern HymtSequence *hymt_sequences_take_id(HymtSequenceList *list, uint64_t id);	/* NULL: not there */
extern void hymt_sequences_free(HymtSequenceList *list);

/* Everything that it will ever need but pages is allocated here. NULL: out of memory. The request has been checked. */
extern HymtSequence *hymt_sequence_new(const HymtSequenceRequest *request, int vocab);
extern void hymt_sequence_free(HymtSequence *sequence);

/* The sequence is in no plan, and will not be: its adapter may go. */
extern void hymt_sequence_release_adapter(HymtSequence *sequence);

/* Its next token. May finish it. */
extern void hymt_sequence_take_token(HymtSequence *sequence, int32_t token);
extern void hymt_sequence_finish(HymtSequence *sequence, HymtFailure failure, HymtFinish reason);

static inline int32_t
hymt_sequence_token_count(const HymtSequence *sequence)
{
	return sequence->prompt_count + sequence->answer_count;
}

/* Positions to be computed, the last token's included. */
static inline int32_t
hymt_sequence_rows_left(const HymtSequence *sequence)
{
	return hymt_sequence_token_count(sequence) - sequence->computed;
}

static inline bool
hymt_sequence_is_decoding(const HymtSequence *sequence)
{
	return sequence->answer_count > 0 && hymt_sequence_rows_left(sequence) == 1;
}

/* How many of its first positions need not be computed if somebody else has. */
static inline int32_t
hymt_sequence_may_share(const HymtSequence *sequence)
{
	int32_t		all_but_last = hymt_sequence_token_count(sequence) - 1;

	return sequence->argmax != NULL && sequence->argmax_count < all_but_last ? sequence->argmax_count : all_but_last;
}

#endif							/* HYMT_SEQUENCE_H */
