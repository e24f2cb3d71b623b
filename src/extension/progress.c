/*
 * progress.c: how far this process's statement has come: counting, the NOTICEs of hymt.progress, and the view
 * hymt_stat_progress.
 *
 * Runs in backends and parallel workers; owns the entry of its process in the table in shared memory, which is there
 * from the first row or text of a statement to the statement's end. A statement is what runs at top level: a utility
 * command, or else one run of the executor, which for a cursor is one fetch. Whatever runs inside counts to it. The hooks
 * see its end in success and error alike; what no hook surrounds (deferred triggers, function calls without a
 * statement) ends with its transaction, and a process that ends clears its entry.
 */
#include "session.h"
#include "progress.h"
#include "row.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "commands/dbcommands.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/cmdtag.h"
#include "tcop/dest.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(hymt_stat_progress);

#define PROGRESS_COLUMNS 13

/* NOTICEs: the first one after so long, ms, and then as often. */
#define FIRST_NOTICE 2000
#define NEXT_NOTICE 5000
/* Rows that need no text do not wait, so the clock is looked at now and then only. */
#define ROWS_PER_LOOK 64

static ExecutorRun_hook_type previous_run = NULL;
static ExecutorFinish_hook_type previous_finish = NULL;
static ProcessUtility_hook_type previous_utility = NULL;

static bool inside = false;		/* a statement runs, whose end a hook will see */
static CommandTag command = CMDTAG_UNKNOWN; /* of it */
static const QueryDesc *query = NULL;	/* outermost one that the executor runs */

static HymtProgress *entry = NULL;	/* of this process; NULL: the statement has translated nothing yet */
static uint64 serial = 0;		/* number of that entry, among those of this process */
static TimestampTz statement;	/* when the client sent what the entry belongs to */
static TimestampTz next_notice;

/* --- the entry ---------------------------------------------------------------------------------------------------- */

Size
hymt_progress_size(void)
{
	return MAXALIGN(mul_size(MaxBackends, sizeof(HymtProgress)));
}

/* Nothing in between can raise, so the count cannot stay odd. */
static void
begin_write(HymtProgress *progress)
{
	progress->change_count++;
	pg_write_barrier();
}

static void
end_write(HymtProgress *progress)
{
	pg_write_barrier();
	progress->change_count++;
}

static void
end_entry(void)
{
	if (entry == NULL)
		return;
	begin_write(entry);
	entry->pid = 0;
	end_write(entry);
	entry = NULL;
}

static void
process_exits(int code, Datum arg)
{
	end_entry();
}

static void
fill_entry(HymtProgress *progress, TimestampTz now)
{
	PGPROC	   *leader = MyProc->lockGroupLeader;

	begin_write(progress);
	progress->pid = MyProcPid;
	progress->leader_pid = leader == NULL || leader == MyProc ? 0 : leader->pid;
	progress->database = MyDatabaseId;
	progress->role = GetSessionUserId();
	progress->command = command;
	progress->started = now;
	progress->updated = now;
	progress->has_rows = false;
	progress->rows_total = -1;
	progress->rows_done = 0;
	progress->texts = 0;
	progress->failed = 0;
	end_write(progress);
}

/* The entry of the statement that runs; NULL: there is none to be had. */
static HymtProgress *
get_entry(void)
{
	static bool exit_callback_registered = false;
	TimestampTz now;

	if (entry != NULL)
		return entry;
	if (hymt_shared == NULL || !hymt_layout_fits() || HYMT_MY_PROCNO >= hymt_shared->progress_count)
		return NULL;
	if (!exit_callback_registered)
	{
		before_shmem_exit(process_exits, (Datum) 0);
		exit_callback_registered = true;
	}
	now = GetCurrentTimestamp();
	entry = &hymt_shared->progress[HYMT_MY_PROCNO];
	serial++;
	statement = GetCurrentStatementStartTimestamp();
	next_notice = TimestampTzPlusMilliseconds(now, FIRST_NOTICE);
	fill_entry(entry, now);
	return entry;
}

/* --- statements --------------------------------------------------------------------------------------------------- */

/* True when that is a statement, and not inside of one. */
static bool
enter(CommandTag tag)
{
	if (inside)
		return false;
	inside = true;
	command = tag;
	if (entry == NULL)
		return true;
	/* The planner may have called a function already; or it is left from what no hook surrounded. */
	if (statement != GetCurrentStatementStartTimestamp())
		end_entry();
	else
	{
		begin_write(entry);
		entry->command = tag;
		end_write(entry);
	}
	return true;
}

static void
leave(void)
{
	inside = false;
	command = CMDTAG_UNKNOWN;
	end_entry();
}

static CommandTag
tag_of(const QueryDesc *descriptor)
{
	switch (descriptor->operation)
	{
		case CMD_SELECT:
			return CMDTAG_SELECT;
		case CMD_INSERT:
			return CMDTAG_INSERT;
		case CMD_UPDATE:
			return CMDTAG_UPDATE;
		case CMD_DELETE:
			return CMDTAG_DELETE;
		case CMD_MERGE:
			return CMDTAG_MERGE;
		default:
			return CMDTAG_UNKNOWN;
	}
}

static void
pass_run(QueryDesc *descriptor, HYMT_EXECUTOR_RUN_ARGS)
{
	if (previous_run)
		previous_run(descriptor, HYMT_EXECUTOR_RUN_PASS);
	else
		standard_ExecutorRun(descriptor, HYMT_EXECUTOR_RUN_PASS);
}

static void
run(QueryDesc *descriptor, HYMT_EXECUTOR_RUN_ARGS)
{
	bool		top;

	if (query != NULL)
	{
		pass_run(descriptor, HYMT_EXECUTOR_RUN_PASS);
		return;
	}
	top = enter(tag_of(descriptor));
	query = descriptor;
	PG_TRY();
	{
		pass_run(descriptor, HYMT_EXECUTOR_RUN_PASS);
	}
	PG_FINALLY();
	{
		query = NULL;
		if (top)
			leave();
	}
	PG_END_TRY();
}

static void
pass_finish(QueryDesc *descriptor)
{
	if (previous_finish)
		previous_finish(descriptor);
	else
		standard_ExecutorFinish(descriptor);
}

/* AFTER triggers run here. */
static void
finish(QueryDesc *descriptor)
{
	if (!enter(tag_of(descriptor)))
	{
		pass_finish(descriptor);
		return;
	}
	PG_TRY();
	{
		pass_finish(descriptor);
	}
	PG_FINALLY();
	{
		leave();
	}
	PG_END_TRY();
}

static void
pass_utility(PlannedStmt *planned, const char *source, bool read_only, ProcessUtilityContext context, ParamListInfo params,
			 QueryEnvironment *environment, DestReceiver *destination, QueryCompletion *completion)
{
	if (previous_utility)
		previous_utility(planned, source, read_only, context, params, environment, destination, completion);
	else
		standard_ProcessUtility(planned, source, read_only, context, params, environment, destination, completion);
}

static void
utility(PlannedStmt *planned, const char *source, bool read_only, ProcessUtilityContext context, ParamListInfo params,
		QueryEnvironment *environment, DestReceiver *destination, QueryCompletion *completion)
{
	if (inside || !enter(CreateCommandTag(planned->utilityStmt)))
	{
		pass_utility(planned, source, read_only, context, params, environment, destination, completion);
		return;
	}
	PG_TRY();
	{
		pass_utility(planned, source, read_only, context, params, environment, destination, completion);
	}
	PG_FINALLY();
	{
		leave();
	}
	PG_END_TRY();
}

/* A procedure that commits goes on with its statement. */
static void
transaction_ends(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PREPARE:
			if (!inside)
				end_entry();
			break;
		default:
			break;
	}
}

static void
subtransaction_ends(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && !inside)
		end_entry();
}

void
hymt_progress_init(void)
{
	previous_run = ExecutorRun_hook;
	ExecutorRun_hook = run;
	previous_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = finish;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = utility;
	RegisterXactCallback(transaction_ends, NULL);
	RegisterSubXactCallback(subtransaction_ends, NULL);
}

/* --- counting ----------------------------------------------------------------------------------------------------- */

void
hymt_progress_text(void)
{
	HymtProgress *mine = get_entry();
	TimestampTz now;

	if (mine == NULL)
		return;
	now = GetCurrentTimestamp();
	begin_write(mine);
	mine->texts++;
	mine->updated = now;
	end_write(mine);
}

void
hymt_progress_failed(void)
{
	HymtProgress *mine = get_entry();

	if (mine == NULL)
		return;
	begin_write(mine);
	mine->failed++;
	end_write(mine);
}

/* A second source of rows, that was not foreseen at the first, tells that there may be any number of them. */
static void
expect(int64 rows)
{
	begin_write(entry);
	entry->rows_total = entry->has_rows ? -1 : rows;
	entry->has_rows = true;
	end_write(entry);
}

/* All nodes of a plan together. One that is not in it belongs to a query inside, which may be run many times. */
static void
expect_plan(uint64 *seen)
{
	int64		rows = query == NULL ? -1 : hymt_ahead_expected(query->planstate, serial);

	if (*seen != serial)
		rows = -1;
	*seen = serial;
	expect(rows);
}

static void
count_row(void)
{
	bool		look = (entry->rows_done + 1) % ROWS_PER_LOOK == 0;
	TimestampTz now = look ? GetCurrentTimestamp() : entry->updated;

	begin_write(entry);
	entry->rows_done++;
	entry->updated = now;
	end_write(entry);
	if (look)
		hymt_progress_tick();
}

void
hymt_progress_rows(uint64 *seen, int rows)
{
	if (get_entry() == NULL)
		return;
	/* A row that was returned to a former fetch from a cursor does not count to this one. */
	if (*seen != serial)
		expect_plan(seen);
	else if (rows > 0)
		count_row();
}

void
hymt_progress_batch(int texts)
{
	if (get_entry() != NULL)
		expect(texts);
}

void
hymt_progress_batch_done(void)
{
	if (get_entry() != NULL)
		count_row();
}

/* --- derived numbers ---------------------------------------------------------------------------------------------- */

static double
seconds_since(const HymtProgress *progress, TimestampTz now)
{
	return (double) (now - progress->started) / USECS_PER_SEC;
}

/* 0: not known yet. */
static double
rate_of(int64 number, double seconds)
{
	return seconds > 0 ? (double) number / seconds : 0;
}

/* Microseconds; -1: unknown, or the estimate was too low. */
static double
time_left(const HymtProgress *progress, TimestampTz now)
{
	if (progress->rows_done == 0 || progress->rows_total < progress->rows_done || now <= progress->started)
		return -1;
	return (double) (now - progress->started) / progress->rows_done * (progress->rows_total - progress->rows_done);
}

/* --- NOTICEs ------------------------------------------------------------------------------------------------------ */

typedef struct Number
{
	char		digits[32];
} Number;

/* With a comma before each three digits; not negative. */
static const char *
grouped(Number *number, int64 value)
{
	char		plain[24];
	int			length = snprintf(plain, sizeof(plain), INT64_FORMAT, value);
	int			at = 0;

	for (int i = 0; i < length; i++)
	{
		if (i > 0 && (length - i) % 3 == 0)
			number->digits[at++] = ',';
		number->digits[at++] = plain[i];
	}
	number->digits[at] = '\0';
	return number->digits;
}

static const char *
rate_text(Number *number, double rate)
{
	if (rate >= 10)
		return grouped(number, (int64) rate);
	snprintf(number->digits, sizeof(number->digits), "%.1f", rate);
	return number->digits;
}

static const char *
plural(int64 value)
{
	return value == 1 ? "" : "s";
}

static void
send_notice(const HymtProgress *mine, TimestampTz now)
{
	double		left = time_left(mine, now);
	Number		done;
	Number		total;
	Number		rate;
	Number		texts;
	Number		rest;

	(void) rate_text(&rate, rate_of(mine->has_rows ? mine->rows_done : mine->texts, seconds_since(mine, now)));
	(void) grouped(&texts, mine->texts);
	(void) grouped(&done, mine->rows_done);
	if (!mine->has_rows)
		ereport(NOTICE,
				(errhidestmt(true),
				 errmsg("hymt: %s text%s, %s texts/s", texts.digits, plural(mine->texts), rate.digits)));
	else if (mine->rows_total < mine->rows_done)
		ereport(NOTICE,
				(errhidestmt(true),
				 errmsg("hymt: %s row%s, %s rows/s, %s text%s", done.digits, plural(mine->rows_done), rate.digits,
						texts.digits, plural(mine->texts))));
	else if (left < 0)
		ereport(NOTICE,
				(errhidestmt(true),
				 errmsg("hymt: %s of about %s rows, %s rows/s, %s text%s", done.digits, grouped(&total, mine->rows_total),
						rate.digits, texts.digits, plural(mine->texts))));
	else
		ereport(NOTICE,
				(errhidestmt(true),
				 errmsg("hymt: %s of about %s rows, %s rows/s, %s text%s; about %s s left", done.digits,
						grouped(&total, mine->rows_total), rate.digits, texts.digits, plural(mine->texts),
						grouped(&rest, (int64) Min((left + USECS_PER_SEC - 1) / USECS_PER_SEC, 1e15)))));
}

void
hymt_progress_tick(void)
{
	ErrorContextCallback *context = error_context_stack;
	TimestampTz now;

	if (!hymt_progress || entry == NULL || IsParallelWorker() || MyProcPort == NULL || whereToSendOutput != DestRemote)
		return;
	now = GetCurrentTimestamp();
	if (now < next_notice)
		return;
	next_notice = TimestampTzPlusMilliseconds(now, NEXT_NOTICE);
	/* Contexts have users' texts: the line that COPY reads, statements of functions. An error restores them, too. */
	error_context_stack = NULL;
	send_notice(entry, now);
	error_context_stack = context;
}

/* --- hymt_stat_progress ------------------------------------------------------------------------------------------- */

/* A consistent copy; false when there is nothing in it. */
static bool
copy_entry(const HymtProgress *progress, HymtProgress *copy)
{
	for (;;)
	{
		uint32		before = *(const volatile uint32 *) &progress->change_count;

		pg_read_barrier();
		*copy = *progress;
		pg_read_barrier();
		if (before % 2 == 0 && before == *(const volatile uint32 *) &progress->change_count)
			return copy->pid != 0;
		CHECK_FOR_INTERRUPTS();
	}
}

static void
add_name(HymtRow *row, const char *name)
{
	if (name == NULL)			/* dropped meanwhile */
		hymt_row_add_null(row);
	else
		hymt_row_add(row, DirectFunctionCall1(namein, CStringGetDatum(name)));
}

static void
add_rows(HymtRow *row, const HymtProgress *progress, TimestampTz now)
{
	if (progress->rows_total < 0)
		hymt_row_add_null(row);
	else
		hymt_row_add(row, Int64GetDatum(progress->rows_total));
	if (!progress->has_rows)
	{
		hymt_row_add_null(row);
		hymt_row_add_null(row);
		return;
	}
	hymt_row_add(row, Int64GetDatum(progress->rows_done));
	hymt_row_add(row, Float8GetDatum(rate_of(progress->rows_done, seconds_since(progress, now))));
}

static void
add_details(HymtRow *row, const HymtProgress *progress, TimestampTz now)
{
	double		left = time_left(progress, now);

	if (progress->leader_pid == 0)
		hymt_row_add_null(row);
	else
		hymt_row_add(row, Int32GetDatum(progress->leader_pid));
	add_name(row, get_database_name(progress->database));
	add_name(row, GetUserNameFromId(progress->role, true));
	if (progress->command == CMDTAG_UNKNOWN)
		hymt_row_add_null(row);
	else
		hymt_row_add(row, CStringGetTextDatum(GetCommandTagName(progress->command)));
	hymt_row_add(row, TimestampTzGetDatum(progress->started));
	hymt_row_add(row, TimestampTzGetDatum(progress->updated));
	add_rows(row, progress, now);
	hymt_row_add(row, Int64GetDatum(progress->texts));
	hymt_row_add(row, Int64GetDatum(progress->failed));
	if (left < 0 || left > (double) PG_INT64_MAX / 2)
		hymt_row_add_null(row);
	else
	{
		Interval   *remaining = palloc0(sizeof(Interval));

		remaining->time = (TimeOffset) left;
		hymt_row_add(row, IntervalPGetDatum(remaining));
	}
}

/* As in pg_stat_activity: of other roles' statements only that they are there. */
Datum
hymt_stat_progress(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		sees_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);

	hymt_check_preloaded();
	InitMaterializedSRF(fcinfo, 0);
	hymt_check_columns(result->setDesc, PROGRESS_COLUMNS);
	for (int i = 0; i < hymt_shared->progress_count; i++)
	{
		HymtProgress copy;
		HymtRow		row;

		if (!copy_entry(&hymt_shared->progress[i], &copy))
			continue;
		hymt_row_begin(&row);
		hymt_row_add(&row, Int32GetDatum(copy.pid));
		if (sees_all || has_privs_of_role(GetUserId(), copy.role))
			add_details(&row, &copy, GetCurrentTimestamp());
		tuplestore_putvalues(result->setResult, result->setDesc, row.value, row.null);
	}
	return (Datum) 0;
}
