/*
 * ahead_exec.c: the plan node that reads ahead: a window of rows between its input and the projection above it.
 *
 * Runs in backends and parallel workers. Passes on the rows of its input unchanged and in their order, each copied into
 * the window when it is read. Of rows in the window it evaluates the arguments of the calls above and has the texts
 * translated; the calls themselves find the answers when their row's turn comes, or ask as they always do.
 *
 * The window begins with one row and is doubled each time that it was used up, so that who stops early has caused little
 * work in vain. A larger one is refilled before it is empty, so that the engine never runs out of texts, and then has no
 * more rows than were returned before. Where all rows will be wanted it is as large as it may be from the beginning.
 *
 * A row of more than hymt.read_ahead_bytes is not copied: it is passed on when all before it were returned. So rows that
 * are too large for any tuple pass as well, as long as they are nowhere stored.
 *
 * Under EvalPlanQual, and while hymt.read_ahead is off, rows pass through one at a time. Backward scans pass through as
 * well, after the input has been led back over the window. The slot of the current row tells where the row is stored, for
 * WHERE CURRENT OF.
 *
 * In a parallel plan each process has a window of its own.
 */
#include "hymt.h"
#include "ahead.h"
#include "progress.h"

#include <math.h>

#include "access/parallel.h"
#include "access/relscan.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "executor/executor.h"
#include "executor/nodeSubplan.h"
#include "lib/ilist.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/spin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/expandeddatum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"

#define NODE_NAME "HymtReadAhead"
/* From so many rows on the window is refilled when a quarter of it was used. */
#define LARGE_WINDOW 8
#define MOST_ARGUMENTS 8

/* A call in the target list above. */
typedef struct AheadCall
{
	ExprState  *arguments[MOST_ARGUMENTS];
	int			argument_count;
	Bitmapset  *params;			/* PARAM_EXEC numbers in them */
	Oid			collation;
} AheadCall;

typedef struct AheadRow
{
	dlist_node	node;
	MinimalTuple tuple;
	ItemPointerData tid;
	Oid			table;
	int			next_call;		/* to be asked for; all of them: no more */
	bool		missed;			/* the next call's text is not in the cache */
	HymtAheadEntry *asked[FLEXIBLE_ARRAY_MEMBER];	/* by call; NULL: not asked for */
} AheadRow;

/* What workers have counted. */
typedef struct SharedCounts
{
	slock_t		lock;
	HymtAheadCounts counts;
} SharedCounts;

typedef struct AheadState
{
	CustomScanState css;
	PlanState  *input;
	ScanState  *table_scan;		/* of the one table whose rows these are; NULL: none such */
	int			call_count;
	AheadCall  *calls;
	HymtAheadAnswers *answers;
	HymtAheadCounts counts;

	MemoryContext window_context;
	dlist_head	window;			/* rows that were read and not returned, oldest first */
	int			count;			/* of them */
	Size		tuple_bytes;
	AheadRow   *current;		/* was returned last; its calls may still be made */
	AheadRow   *settling;		/* all rows before it have their answers; NULL: the first */
	TupleTableSlot *uncopied;	/* the input's, with one more row that is too large for the window; NULL: none */
	bool		all_rows;		/* will be wanted */
	int			size;			/* the window is to have */
	ExprState  *limit[2];		/* the sum of these is how many rows will be wanted; NULL: none */
	bool		bound_is_set;
	int64		bound;			/* that sum; 0: unknown */
	int64		returned;		/* number of the current row */
	bool		input_ended;
	bool		ended;			/* NULL was returned last */
	bool		row_is_out;		/* and not yet counted as done */
	uint64		progress_mark;	/* see hymt_progress_rows() */
	SharedCounts *shared;		/* with other processes of a parallel plan; NULL: none, or no more */
} AheadState;

/* --- the plan ----------------------------------------------------------------------------------------------------- */

static Node *create_state(CustomScan *scan);
static Plan *plan_path(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses, List *inputs);

const CustomPathMethods hymt_ahead_path_methods = {
	.CustomName = NODE_NAME,
	.PlanCustomPath = plan_path
};

static const CustomScanMethods scan_methods = {
	.CustomName = NODE_NAME,
	.CreateCustomScanState = create_state
};

List *
hymt_ahead_path_private(List *calls, List *limit, bool all_rows)
{
	return list_make3(calls, limit, makeInteger(all_rows));
}

/* `clauses` are those of the table below, which the input checks already. */
static Plan *
plan_path(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses, List *inputs)
{
	CustomScan *scan = makeNode(CustomScan);
	Plan	   *input = linitial(inputs);

	scan->scan.plan.targetlist = tlist;
	scan->scan.scanrelid = 0;
	scan->flags = ExecSupportsBackwardScan(input) ? CUSTOMPATH_SUPPORT_BACKWARD_SCAN : 0;
	scan->custom_plans = inputs;
	/* The columns of the input, some of which may have other names there (ahead_plan.c, without_identity). */
	Assert(list_length(tlist) == list_length(input->targetlist));
	scan->custom_scan_tlist = copyObject(tlist);
	/* The calls and then the limit; how many of them are calls, and whether all rows are wanted. */
	scan->custom_exprs = list_concat(copyObject((List *) linitial(path->custom_private)),
									 copyObject((List *) lsecond(path->custom_private)));
	scan->custom_private = list_make2(makeInteger(list_length(linitial(path->custom_private))),
									  lthird(path->custom_private));
	scan->methods = &scan_methods;
	return &scan->scan.plan;
}

void
hymt_ahead_register(void)
{
	RegisterCustomScanMethods(&scan_methods);
}

/* --- beginning ---------------------------------------------------------------------------------------------------- */

static bool
find_params(Node *node, void *context)
{
	Bitmapset **params = context;

	if (node == NULL)
		return false;
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXEC)
		*params = bms_add_member(*params, ((Param *) node)->paramid);
	return expression_tree_walker(node, find_params, context);
}

static void
begin_call(AheadState *state, AheadCall *call, FuncExpr *expression)
{
	ListCell   *cell;

	call->collation = expression->inputcollid;
	foreach(cell, expression->args)
	{
		if (call->argument_count == MOST_ARGUMENTS)
			elog(ERROR, "hymt: too many arguments of a call");
		call->arguments[call->argument_count++] = ExecInitExpr(lfirst(cell), &state->css.ss.ps);
	}
	(void) find_params((Node *) expression->args, &call->params);
}

/* The scan that core's search for a cursor's current row would find below this node. */
static ScanState *
find_table_scan(PlanState *input)
{
	for (;;)
	{
		switch (nodeTag(input))
		{
			case T_SeqScanState:
			case T_SampleScanState:
			case T_IndexScanState:
			case T_IndexOnlyScanState:
			case T_BitmapHeapScanState:
			case T_TidScanState:
			case T_TidRangeScanState:
			case T_ForeignScanState:
			case T_CustomScanState:
				return ((ScanState *) input)->ss_currentRelation != NULL ? (ScanState *) input : NULL;
			case T_SubqueryScanState:
				input = ((SubqueryScanState *) input)->subplan;
				break;
			case T_ResultState:
			case T_LimitState:
				input = outerPlanState(input);
				if (input == NULL)
					return NULL;
				break;
			default:
				return NULL;
		}
	}
}

static int
first_size(const AheadState *state)
{
	return state->all_rows ? hymt_read_ahead_rows : 1;
}

static void
begin_scan(CustomScanState *node, EState *estate, int eflags)
{
	AheadState *state = (AheadState *) node;
	CustomScan *scan = (CustomScan *) node->ss.ps.plan;
	ListCell   *cell;
	int			i = 0;

	state->call_count = intVal(linitial(scan->custom_private));
	state->all_rows = intVal(lsecond(scan->custom_private)) != 0;
	state->input = ExecInitNode(linitial(scan->custom_plans), estate, eflags);
	node->custom_ps = list_make1(state->input);
	state->table_scan = find_table_scan(state->input);
	if (state->table_scan != NULL)
		node->ss.ss_currentRelation = state->table_scan->ss_currentRelation;
	state->calls = palloc0(state->call_count * sizeof(AheadCall));
	foreach(cell, scan->custom_exprs)
	{
		if (i < state->call_count)
			begin_call(state, &state->calls[i], lfirst_node(FuncExpr, cell));
		else
			state->limit[i - state->call_count] = ExecInitExpr(lfirst(cell), &node->ss.ps);
		i++;
	}
	dlist_init(&state->window);
	state->size = first_size(state);
	/* What does not run asks for nothing. */
	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0)
		return;
	state->window_context = AllocSetContextCreate(estate->es_query_cxt, "hymt window", ALLOCSET_DEFAULT_SIZES);
	state->answers = hymt_ahead_begin(estate->es_query_cxt, &state->counts);
}

/*
 * Finds out how many rows the LIMIT above will ask for, and tells the input, as the LIMIT itself would have done: a sort
 * that knows keeps no more than that.
 */
static void
set_bound(AheadState *state)
{
	int64		bound = 0;

	state->bound_is_set = true;
	if (state->limit[0] == NULL)
		return;
	for (int i = 0; i < lengthof(state->limit) && state->limit[i] != NULL && bound >= 0; i++)
	{
		bool		isnull;
		int64		rows = DatumGetInt64(ExecEvalExpr(state->limit[i], state->css.ss.ps.ps_ExprContext, &isnull));

		/* LIMIT NULL is none, OFFSET NULL is 0. */
		if ((isnull && i == 0) || (!isnull && pg_add_s64_overflow(bound, rows, &bound)))
			bound = -1;
	}
	state->bound = Max(bound, 0);
	ExecSetTupleBound(bound, state->input);
}

/* --- the window --------------------------------------------------------------------------------------------------- */

static void
free_row(AheadState *state, AheadRow *row)
{
	for (int i = 0; i < state->call_count; i++)
	{
		if (row->asked[i] != NULL)
			hymt_ahead_drop(row->asked[i]);
	}
	state->tuple_bytes -= row->tuple->t_len;
	pfree(row->tuple);
	pfree(row);
}

static void
leave_current(AheadState *state)
{
	if (state->current != NULL)
		free_row(state, state->current);
	state->current = NULL;
}

static AheadRow *
take_first(AheadState *state)
{
	AheadRow   *row = dlist_container(AheadRow, node, dlist_pop_head_node(&state->window));

	state->count--;
	if (state->settling == row)
		state->settling = NULL;
	return row;
}

static void
empty_window(AheadState *state)
{
	leave_current(state);
	ExecClearTuple(state->css.ss.ss_ScanTupleSlot);
	while (state->count > 0)
		free_row(state, take_first(state));
	state->uncopied = NULL;
	state->size = first_size(state);
}

/* Where the current row of the table scan is stored. */
static void
note_place(AheadState *state, ItemPointer tid, Oid *table)
{
	ScanState  *scan = state->table_scan;

	ItemPointerSetInvalid(tid);
	*table = InvalidOid;
	if (scan == NULL || scan->ss_ScanTupleSlot == NULL)
		return;
	*table = RelationGetRelid(scan->ss_currentRelation);
	if (IsA(scan, IndexOnlyScanState))
	{
		/* There is no scan descriptor before the first row. */
		if (((IndexOnlyScanState *) scan)->ioss_ScanDesc != NULL)
			*tid = ((IndexOnlyScanState *) scan)->ioss_ScanDesc->xs_heaptid;
	}
	else
		*tid = scan->ss_ScanTupleSlot->tts_tid;
}

/* Bytes that a value of variable length adds to a tuple. */
static Size
bytes_of(Datum value)
{
	if (VARATT_IS_EXTERNAL_EXPANDED(DatumGetPointer(value)))
		return EOH_get_flat_size(DatumGetEOHP(value));
	return VARSIZE_ANY(DatumGetPointer(value));
}

/* Slots of other kinds have a tuple already. The function of the core for that raises when there can be none. */
static bool
is_too_large(TupleTableSlot *slot)
{
	TupleDesc	columns = slot->tts_tupleDescriptor;
	Size		bytes = 0;

	if (!TTS_IS_VIRTUAL(slot))
		return false;
	for (int i = 0; i < columns->natts; i++)
	{
		if (!slot->tts_isnull[i] && TupleDescAttr(columns, i)->attlen == -1)
			bytes += bytes_of(slot->tts_values[i]);
	}
	return bytes > Min((Size) hymt_read_ahead_bytes, MaxAllocSize / 2);
}

/* False at the end of the input, and when the row was not copied. */
static bool
read_row(AheadState *state)
{
	TupleTableSlot *slot = ExecProcNode(state->input);
	MemoryContext caller;
	AheadRow   *row;

	if (TupIsNull(slot))
	{
		state->input_ended = true;
		return false;
	}
	if (is_too_large(slot))
	{
		state->uncopied = slot;
		return false;
	}
	caller = MemoryContextSwitchTo(state->window_context);
	row = palloc0(offsetof(AheadRow, asked) + state->call_count * sizeof(HymtAheadEntry *));
	row->tuple = ExecCopySlotMinimalTuple(slot);
	MemoryContextSwitchTo(caller);
	note_place(state, &row->tid, &row->table);
	state->tuple_bytes += row->tuple->t_len;
	dlist_push_tail(&state->window, &row->node);
	state->count++;
	return true;
}

/* Makes a row the one of the scan slot. */
static TupleTableSlot *
show_row(AheadState *state, AheadRow *row)
{
	TupleTableSlot *slot = state->css.ss.ss_ScanTupleSlot;

	ExecForceStoreMinimalTuple(row->tuple, slot, false);
	slot->tts_tid = row->tid;
	slot->tts_tableOid = row->table;
	return slot;
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

/* Whether no subquery has to be run first for a parameter in the arguments. */
static bool
params_are_there(AheadState *state, const AheadCall *call)
{
	EState	   *estate = state->css.ss.ps.state;
	int			number = -1;

	while ((number = bms_next_member(call->params, number)) >= 0)
	{
		if (estate->es_param_exec_vals[number].execPlan != NULL)
			return false;
	}
	return true;
}

/* Asks for a call of the row in the scan slot. False when there is no room in the queue. Works in short-lived memory. */
static bool
ask_call(AheadState *state, const AheadCall *call, HymtAheadEntry **asked, bool *missed)
{
	LOCAL_FCINFO(fcinfo, MOST_ARGUMENTS);
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	HymtOrder	order;
	text	   *source;
	const char *utf8;
	Size		length;

	InitFunctionCallInfoData(*fcinfo, NULL, call->argument_count, call->collation, NULL, NULL);
	for (int i = 0; i < call->argument_count; i++)
		fcinfo->args[i].value = ExecEvalExpr(call->arguments[i], econtext, &fcinfo->args[i].isnull);
	if (fcinfo->args[0].isnull || !hymt_read_order_quietly(fcinfo, &order))
		return true;
	source = DatumGetTextPP(fcinfo->args[0].value);
	if (hymt_human_find(&order, VARDATA_ANY(source), VARSIZE_ANY_EXHDR(source)) != NULL)
		return true;
	utf8 = hymt_server_to_utf8_quietly(VARDATA_ANY(source), VARSIZE_ANY_EXHDR(source), &length);
	if (utf8 == NULL || !hymt_needs_model(&order, utf8, length))
		return true;
	*asked = hymt_ahead_ask(state->answers, &order, utf8, length, missed);
	return *asked != NULL;
}

/* Asks for all calls of a row. False when there is no room in the queue for the next one. */
static bool
ask_row(AheadState *state, AheadRow *row)
{
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	MemoryContext caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	bool		room = true;

	econtext->ecxt_scantuple = show_row(state, row);
	while (room && row->next_call < state->call_count)
	{
		const AheadCall *call = &state->calls[row->next_call];

		if (params_are_there(state, call))
			room = ask_call(state, call, &row->asked[row->next_call], &row->missed);
		if (room)
		{
			row->next_call++;
			row->missed = false;
		}
	}
	ExecClearTuple(econtext->ecxt_scantuple);
	MemoryContextSwitchTo(caller);
	ResetExprContext(econtext);
	return room;
}

static bool
is_settled(AheadState *state, AheadRow *row)
{
	for (int i = 0; i < row->next_call; i++)
	{
		if (row->asked[i] != NULL && !hymt_ahead_settle(row->asked[i]))
			return false;
	}
	return row->next_call == state->call_count;
}

static AheadRow *
row_after(AheadState *state, AheadRow *row)
{
	if (row == NULL)
		return dlist_is_empty(&state->window) ? NULL : dlist_head_element(AheadRow, node, &state->window);
	return dlist_has_next(&state->window, &row->node) ?
		dlist_container(AheadRow, node, dlist_next_node(&state->window, &row->node)) : NULL;
}

/* Takes the oldest answers out of the queue, which makes room for new requests. */
static void
settle_oldest(AheadState *state)
{
	AheadRow   *row;

	while ((row = row_after(state, state->settling)) != NULL && is_settled(state, row))
		state->settling = row;
}

/* In order, as many as there is room for. */
static void
ask_more(AheadState *state)
{
	for (AheadRow *row = row_after(state, state->settling); row != NULL; row = row_after(state, row))
	{
		CHECK_FOR_INTERRUPTS();
		if (row->next_call < state->call_count && !ask_row(state, row))
			return;
	}
}

/* --- reading ahead ------------------------------------------------------------------------------------------------ */

static bool
is_large(const AheadState *state)
{
	return state->tuple_bytes + hymt_ahead_bytes(state->answers) >= (Size) hymt_read_ahead_bytes;
}

static bool
wants_rows(const AheadState *state)
{
	if (state->count == 0)
		return true;
	return state->size >= LARGE_WINDOW && state->count <= state->size - state->size / 4;
}

/* At least one row, then up to the window's size, unless nobody will want that many. */
static void
read_rows(AheadState *state)
{
	int			before = state->count;

	while (!state->input_ended && (state->count == 0 || (state->count < state->size && !is_large(state))))
	{
		if (state->count > 0 && state->bound > 0 && state->returned + state->count >= state->bound)
			break;
		CHECK_FOR_INTERRUPTS();
		if (!read_row(state))
			break;
	}
	if (state->count > before)
	{
		state->counts.batches++;
		state->counts.rows += state->count - before;
	}
}

static int
next_size(const AheadState *state)
{
	int			size = Min(state->size * 2, hymt_read_ahead_rows);

	if (state->all_rows)
		return hymt_read_ahead_rows;
	return size <= LARGE_WINDOW ? size : (int) Min(size, Max(LARGE_WINDOW, state->returned));
}

static void
fill_window(AheadState *state)
{
	if (state->count > 0)
		settle_oldest(state);
	if (wants_rows(state) && !state->input_ended && state->uncopied == NULL)
	{
		state->size = Min(state->size, hymt_read_ahead_rows);
		read_rows(state);
		state->size = next_size(state);
		/* One row with one call will be asked for at once, by the call itself. */
		if (state->count == 1 && state->call_count == 1)
			return;
	}
	ask_more(state);
}

/* Copies no row; it is valid until the next one is read. */
static TupleTableSlot *
pass_on(AheadState *state, TupleTableSlot *row)
{
	TupleTableSlot *slot = state->css.ss.ss_ScanTupleSlot;

	ExecClearTuple(slot);
	state->returned++;
	slot_getallattrs(row);
	memcpy(slot->tts_values, row->tts_values, slot->tts_tupleDescriptor->natts * sizeof(Datum));
	memcpy(slot->tts_isnull, row->tts_isnull, slot->tts_tupleDescriptor->natts * sizeof(bool));
	ExecStoreVirtualTuple(slot);
	note_place(state, &slot->tts_tid, &slot->tts_tableOid);
	return slot;
}

static TupleTableSlot *
pass_through(AheadState *state)
{
	TupleTableSlot *row = ExecProcNode(state->input);

	state->input_ended = TupIsNull(row);
	state->ended = state->input_ended;
	return state->ended ? ExecClearTuple(state->css.ss.ss_ScanTupleSlot) : pass_on(state, row);
}

/* The input stands behind the window: leads it back to the row that was returned last, then one further. */
static TupleTableSlot *
step_back(AheadState *state)
{
	int			steps = state->count + (state->uncopied != NULL || (state->input_ended && !state->ended) ? 1 : 0);
	int64		position = state->ended ? state->returned : state->returned - 1;

	empty_window(state);
	while (steps-- > 0)
	{
		CHECK_FOR_INTERRUPTS();
		(void) ExecProcNode(state->input);
	}
	pass_through(state);
	state->returned = Max(position, 0);
	/* Before the first row is not behind the last one. */
	state->input_ended = false;
	state->ended = false;
	return state->css.ss.ss_ScanTupleSlot;
}

static TupleTableSlot *
next_row(AheadState *state)
{
	EState	   *estate = state->css.ss.ps.state;

	if (ScanDirectionIsBackward(estate->es_direction))
		return step_back(state);
	/* Most scans would begin again. */
	if (state->count == 0 && state->input_ended)
	{
		leave_current(state);
		state->ended = true;
		return ExecClearTuple(state->css.ss.ss_ScanTupleSlot);
	}
	if (estate->es_epq_active != NULL || (!hymt_read_ahead && state->count == 0 && state->uncopied == NULL))
	{
		leave_current(state);
		return pass_through(state);
	}
	if (hymt_read_ahead)
		fill_window(state);
	/* Only now, as rows that were just read may have the same texts. */
	leave_current(state);
	if (state->count == 0 && state->uncopied != NULL)
	{
		TupleTableSlot *row = state->uncopied;

		state->uncopied = NULL;
		return pass_on(state, row);
	}
	if (state->count == 0)
	{
		state->ended = true;
		return ExecClearTuple(state->css.ss.ss_ScanTupleSlot);
	}
	state->current = take_first(state);
	state->returned++;
	return show_row(state, state->current);
}

/* --- progress ----------------------------------------------------------------------------------------------------- */

/* The row that was returned last has all it wanted. Rows under EvalPlanQual were counted before. */
static void
count_row(AheadState *state)
{
	if (state->css.ss.ps.state->es_epq_active == NULL)
		hymt_progress_rows(&state->progress_mark, state->row_is_out);
	state->row_is_out = false;
}

static TupleTableSlot *exec_scan(CustomScanState *node);

typedef struct Expectation
{
	double		rows;
	uint64		mark;
} Expectation;

static bool
add_expected(PlanState *node, void *context)
{
	Expectation *expectation = context;

	if (IsA(node, CustomScanState) && ((CustomScanState *) node)->methods->ExecCustomScan == exec_scan)
	{
		AheadState *state = (AheadState *) node;
		double		rows = state->input->plan->plan_rows;

		if (state->bound > 0)
			rows = Min(rows, (double) state->bound);
		expectation->rows += Max(rows - state->returned, 0);
		state->progress_mark = expectation->mark;
	}
	return planstate_tree_walker(node, add_expected, context);
}

int64
hymt_ahead_expected(PlanState *plan, uint64 mark)
{
	Expectation expectation = {0, mark};

	(void) add_expected(plan, &expectation);
	return (int64) Min(rint(expectation.rows), 1e18);
}

/* --- the node's methods ------------------------------------------------------------------------------------------- */

static TupleTableSlot *
exec_scan(CustomScanState *node)
{
	ExprContext *econtext = node->ss.ps.ps_ExprContext;
	TupleTableSlot *slot;

	CHECK_FOR_INTERRUPTS();
	ResetExprContext(econtext);
	if (!((AheadState *) node)->bound_is_set)
		set_bound((AheadState *) node);
	count_row((AheadState *) node);
	slot = next_row((AheadState *) node);
	((AheadState *) node)->row_is_out = !TupIsNull(slot);
	if (node->ss.ps.ps_ProjInfo == NULL || TupIsNull(slot))
		return slot;
	econtext->ecxt_scantuple = slot;
	return ExecProject(node->ss.ps.ps_ProjInfo);
}

static void
rescan(CustomScanState *node)
{
	AheadState *state = (AheadState *) node;

	empty_window(state);
	state->returned = 0;
	state->input_ended = false;
	state->ended = false;
	if (node->ss.ps.chgParam != NULL)
		UpdateChangedParamSet(state->input, node->ss.ps.chgParam);
	/* Before the input is read anew: it decides then whether it can give its old rows again. */
	set_bound(state);
	if (state->input->chgParam == NULL)
		ExecReScan(state->input);
}

static void
end_scan(CustomScanState *node)
{
	AheadState *state = (AheadState *) node;

	empty_window(state);
	ExecEndNode(state->input);
}

/* --- parallel plans ----------------------------------------------------------------------------------------------- */

static void
add_counts(HymtAheadCounts *sum, const HymtAheadCounts *counts)
{
	sum->batches += counts->batches;
	sum->rows += counts->rows;
	sum->texts += counts->texts;
	sum->memory_hits += counts->memory_hits;
	sum->table_hits += counts->table_hits;
	sum->input_tokens += counts->input_tokens;
	sum->output_tokens += counts->output_tokens;
	sum->waited += counts->waited;
}

static Size
estimate_shared(CustomScanState *node, ParallelContext *pcxt)
{
	return sizeof(SharedCounts);
}

static void
begin_shared(CustomScanState *node, ParallelContext *pcxt, void *place)
{
	SharedCounts *shared = place;

	SpinLockInit(&shared->lock);
	memset(&shared->counts, 0, sizeof(shared->counts));
	((AheadState *) node)->shared = shared;
}

/* Workers are started again: what the former ones counted stays. */
static void
begin_shared_again(CustomScanState *node, ParallelContext *pcxt, void *place)
{
	((AheadState *) node)->shared = place;
}

static void
begin_worker(CustomScanState *node, shm_toc *toc, void *place)
{
	((AheadState *) node)->shared = place;
}

/* A worker leaves its counts; the leader, which comes after them, adds them to its own. */
static void
shut_down(CustomScanState *node)
{
	AheadState *state = (AheadState *) node;
	SharedCounts *shared = state->shared;
	HymtAheadCounts others;

	if (state->row_is_out)
		count_row(state);
	if (shared == NULL)
		return;
	SpinLockAcquire(&shared->lock);
	others = shared->counts;
	if (IsParallelWorker())
		add_counts(&shared->counts, &state->counts);
	else
		memset(&shared->counts, 0, sizeof(shared->counts));
	SpinLockRelease(&shared->lock);
	state->shared = NULL;
	if (!IsParallelWorker())
		add_counts(&state->counts, &others);
}

/* --- EXPLAIN ------------------------------------------------------------------------------------------------------ */

/* A null or a default of the functions. */
static bool
looks_left_out(const Const *argument)
{
	char	   *value;

	if (!IsA(argument, Const))
		return false;
	if (argument->constisnull)
		return true;
	if (argument->consttype != TEXTOID)
		return false;
	value = TextDatumGetCString(argument->constvalue);
	return strcmp(value, "text") == 0 || strcmp(value, "error") == 0;
}

/* As it is usually written: without arguments at the end that have their defaults. */
static char *
deparse_call(FuncExpr *call, List *context, bool prefix)
{
	StringInfoData text;
	const char *name = get_func_name(call->funcid);
	int			shown = list_length(call->args);

	while (shown > 3 && looks_left_out(list_nth(call->args, shown - 1)))
		shown--;
	initStringInfo(&text);
	/* auto_explain shows a plan when it has run, and somebody may have dropped the function meanwhile. */
	appendStringInfo(&text, "%s(", name == NULL ? "???" : quote_identifier(name));
	for (int i = 0; i < shown; i++)
		appendStringInfo(&text, "%s%s", i == 0 ? "" : ", ",
						 deparse_expression(list_nth(call->args, i), context, prefix, false));
	appendStringInfoChar(&text, ')');
	return text.data;
}

static void
explain_calls(CustomScan *scan, List *ancestors, ExplainState *es)
{
	List	   *context = set_deparse_context_plan(es->deparse_cxt, &scan->scan.plan, ancestors);
	bool		prefix = list_length(es->rtable) > 1 || es->verbose;
	int			count = intVal(linitial(scan->custom_private));
	List	   *calls = NIL;

	for (int i = 0; i < count; i++)
		calls = lappend(calls, deparse_call(list_nth(scan->custom_exprs, i), context, prefix));
	ExplainPropertyList("Calls", calls, es);
}

static void
explain_scan(CustomScanState *node, List *ancestors, ExplainState *es)
{
	AheadState *state = (AheadState *) node;

	explain_calls((CustomScan *) node->ss.ps.plan, ancestors, es);
	if (!es->analyze)
		return;
	ExplainPropertyInteger("Batches", NULL, state->counts.batches, es);
	ExplainPropertyInteger("Rows Read", NULL, state->counts.rows, es);
	ExplainPropertyInteger("Texts Asked Ahead", NULL, state->counts.texts, es);
	ExplainPropertyInteger("Memory Cache Hits", NULL, state->counts.memory_hits, es);
	ExplainPropertyInteger("Table Cache Hits", NULL, state->counts.table_hits, es);
	ExplainPropertyInteger("Input Tokens", NULL, state->counts.input_tokens, es);
	ExplainPropertyInteger("Output Tokens", NULL, state->counts.output_tokens, es);
	if (es->timing)
		ExplainPropertyFloat("Waited", "ms", state->counts.waited / 1000.0, 3, es);
}

static Node *
create_state(CustomScan *scan)
{
	static const CustomExecMethods methods = {
		.CustomName = NODE_NAME,
		.BeginCustomScan = begin_scan,
		.ExecCustomScan = exec_scan,
		.EndCustomScan = end_scan,
		.ReScanCustomScan = rescan,
		.EstimateDSMCustomScan = estimate_shared,
		.InitializeDSMCustomScan = begin_shared,
		.ReInitializeDSMCustomScan = begin_shared_again,
		.InitializeWorkerCustomScan = begin_worker,
		.ShutdownCustomScan = shut_down,
		.ExplainCustomScan = explain_scan
	};
	AheadState *state = palloc0(sizeof(AheadState));

	NodeSetTag(state, T_CustomScanState);
	state->css.methods = &methods;
	return (Node *) state;
}
