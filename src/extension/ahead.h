/*
 * ahead.h: reading ahead: a plan node below a projection reads rows before the projection asks for them, and has the
 * texts translated that the projection will want. Included by nothing that runs in a worker process of hymt.
 *
 *      ahead_plan.c        puts the node into plans
 *      ahead_expr.c        which calls and arguments may be evaluated ahead
 *      ahead_exec.c        the node: a window of rows
 *      ahead_answers.c     what was asked ahead, where a call finds its answer
 */
#ifndef HYMT_AHEAD_H
#define HYMT_AHEAD_H

#include "session.h"

#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

extern void hymt_ahead_init(void);	/* from _PG_init, while preloading */

/* --- ahead_expr.c ------------------------------------------------------------------------------------------------- */

/* Whether there is any call of a translating function in it, at whatever place. */
extern bool hymt_mentions_call(Node *node);

/*
 * The calls that an expression certainly makes and whose arguments can be evaluated ahead, appended to *calls unless an
 * equal one is there. `given` are expressions that are not evaluated any more, because the input has their values.
 */
extern void hymt_find_calls(Node *node, List *given, List **calls);

/* What an expression needs of its input, added to the target. */
extern void hymt_find_leaves(Node *node, List *given, PathTarget *leaves);

/*
 * The expression made of what is given, which are the same columns even where they are of another side of an outer
 * join; NULL when something else is needed.
 */
extern Node *hymt_in_terms_of(Node *node, List *given);

/* Whether evaluating an expression of a planned query may have effects; whether reading more of a query's rows may. */
extern bool hymt_is_unsafe_expression(PlannerInfo *root, Node *node);
extern bool hymt_is_unsafe_source(PlannerInfo *root);

/* --- ahead_exec.c ------------------------------------------------------------------------------------------------- */

extern void hymt_ahead_register(void);	/* in every process that runs plans */
extern const CustomPathMethods hymt_ahead_path_methods;

/*
 * custom_private of a path: the calls, expressions whose sum is how many rows will be wanted (NIL: unknown), and whether
 * all rows will be.
 */
extern List *hymt_ahead_path_private(List *calls, List *limit, bool all_rows);

/* --- ahead_answers.c ---------------------------------------------------------------------------------------------- */

/* What EXPLAIN ANALYZE shows of a node. */
typedef struct HymtAheadCounts
{
	int64		batches;		/* times that rows were read ahead */
	int64		rows;
	int64		texts;			/* that were asked ahead */
	int64		memory_hits;	/* others, that were found in the cache, by level */
	int64		table_hits;
	int64		input_tokens;
	int64		output_tokens;
	int64		waited;			/* microseconds in which a call waited for its answer */
} HymtAheadCounts;

typedef struct HymtAheadAnswers HymtAheadAnswers;	/* of one node */
typedef struct HymtAheadEntry HymtAheadEntry;	/* one text and what becomes of it */

/* Lives in a child of the memory context and vanishes with it. */
extern HymtAheadAnswers *hymt_ahead_begin(MemoryContext parent, HymtAheadCounts *counts);

/* Texts and translations that are held. */
extern Size hymt_ahead_bytes(const HymtAheadAnswers *answers);

/*
 * Has a text translated, for one row, unless the cache has it. NULL when there is no room in the queue now; then *missed
 * says that the cache need not be looked into the next time. An entry counts its rows and is forgotten when the last one
 * was dropped.
 */
extern HymtAheadEntry *hymt_ahead_ask(HymtAheadAnswers *answers, const HymtOrder *order, const char *utf8, Size length,
									  bool *missed);
extern void hymt_ahead_drop(HymtAheadEntry *entry);

/* Asks once more for an answer that was lost. False when there is no room for that now. */
extern bool hymt_ahead_ask_again(HymtAheadEntry *entry);

/* Takes an answer that is there out of the queue, so that its slot is free. False when there is none yet, or it was lost. */
extern bool hymt_ahead_settle(HymtAheadEntry *entry);

/*
 * For a call: its outcome, if exactly that was asked ahead. Waits for it, and may raise as hymt_request_wait() does.
 * False when nothing was asked, or nothing useful came of it: then the call asks itself.
 */
extern bool hymt_ahead_take(const HymtOrder *order, const char *utf8, Size length, HymtOutcome *outcome);

#endif							/* HYMT_AHEAD_H */
