/*
 * database_worker.c: does the background work of one database.
 *
 * Runs in a process of its own, at most one for each database, started by the launcher when there is work and gone soon
 * after there is none. Connected as the bootstrap superuser, with settings of its own: those of the database and of the
 * roles are for their sessions. Writes only tables of the extension itself; whatever belongs to others is written by the
 * tasks as its owner.
 *
 * Each task does a bounded piece in a short transaction. No transaction is open while the process waits for anything but
 * for locks that are held for moments. A task that fails is put off, and the others go on.
 */
#include "hymt.h"
#include "cache_table.h"
#include "databases.h"
#include "jobs.h"
#include "queue_internal.h"

#include "access/xact.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* How long it stays when there is nothing to do, ms: less than a client takes that goes from statement to statement. */
#define LINGER_MS 1500
/* When the extension is being altered or dropped, ms. */
#define BUSY_EXTENSION_MS 1000

/* How long it may work without a pause while other databases wait for a worker, ms. */
#define CROWDED_MS 2000
/* … and then for how long it may end what it has begun, ms. */
#define DRAIN_MS 30000

typedef struct Task
{
	HymtTask	work;
	bool		(*committed) (void);	/* what it did is in the database: true when there is more; may be NULL, may not raise */
	bool		(*apart) (TimestampTz *due);	/* what it does without a transaction, afterwards; may be NULL; returns the same */
	void		(*give_up) (void);	/* there is no such extension here: nothing will be done; the same */
} Task;

/* In this order in each turn. */
static const Task tasks[] = {
	{hymt_cache_write, hymt_cache_written, NULL, hymt_cache_write_give_up},
	{hymt_cache_evict, NULL, NULL, NULL},
	{hymt_jobs_work, hymt_jobs_committed, hymt_jobs_ask, hymt_jobs_give_up}
};
#define JOBS 2

StaticAssertDecl(lengthof(tasks) <= HYMT_MAX_TASKS, "a task needs its place in HymtDatabase");

static TimestampTz begun;		/* its work */
static TimestampTz leave_by = 0;	/* it is making way; 0: it is not */
static bool extension_found;	/* or may be in a moment, in the last turn */

/* --- the extension ------------------------------------------------------------------------------------------------ */

typedef enum Finding
{
	EXTENSION_FOUND,
	EXTENSION_MISSING,
	EXTENSION_OTHER,			/* a version that this library does not work for */
	EXTENSION_BUSY				/* is being altered or dropped */
} Finding;

/* The lock keeps it where and as it is until the transaction ends. Does not wait: who has it is about to drop it. */
static Finding
find_extension(HymtWorkplace *place)
{
	place->extension = get_extension_oid("hymt", true);
	if (!OidIsValid(place->extension))
		return EXTENSION_MISSING;
	if (!ConditionalLockDatabaseObject(ExtensionRelationId, place->extension, 0, AccessShareLock))
		return EXTENSION_BUSY;
	/* It may be another one by now. */
	if (get_extension_oid("hymt", true) != place->extension)
		return EXTENSION_BUSY;
	return hymt_read_extension(place->extension, &place->schema) ? EXTENSION_FOUND : EXTENSION_OTHER;
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

void
hymt_be_due(TimestampTz *due, int milliseconds)
{
	TimestampTz then = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), milliseconds);

	*due = *due == 0 ? then : Min(*due, then);
}

/* True when the task may have more to do at once. */
static bool
run_task(const Task *task, TimestampTz *due)
{
	HymtWorkplace place;
	bool		more = false;
	Finding		finding;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	finding = find_extension(&place);
	extension_found = finding == EXTENSION_FOUND || finding == EXTENSION_BUSY;
	if (finding == EXTENSION_FOUND)
		more = task->work(&place, due);
	else if (finding == EXTENSION_BUSY)
		hymt_be_due(due, BUSY_EXTENSION_MS);
	PopActiveSnapshot();
	CommitTransactionCommand();
	if (finding == EXTENSION_FOUND && task->committed != NULL)
		more = task->committed() || more;
	if (finding == EXTENSION_FOUND && task->apart != NULL)
		more = task->apart(due) || more;
	if (!extension_found && task->give_up != NULL)
		task->give_up();
	/* So that autovacuum hears of what was written. */
	pgstat_report_stat(true);
	return more;
}

static void
recover_from_error(void)
{
	HOLD_INTERRUPTS();
	EmitErrorReport();
	/* Subtransactions, too. What no transaction was around is released here. */
	AbortOutOfAnyTransaction();
	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	pgstat_report_wait_end();
	MemoryContextSwitchTo(TopMemoryContext);
	FlushErrorState();
	RESUME_INTERRUPTS();
	pgstat_report_stat(true);
}

/* The same; false also when it failed, which is told in *failed. */
static bool
try_task(const Task *task, TimestampTz *due, bool *failed)
{
	volatile bool more = false;

	*failed = false;
	PG_TRY();
	{
		more = run_task(task, due);
	}
	PG_CATCH();
	{
		recover_from_error();
		*failed = true;
	}
	PG_END_TRY();
	return more;
}

/* Keeps in mind how a task ended; returns when it may be tried again, 0: at any time. */
static TimestampTz
note_end(int number, bool failed)
{
	HymtDatabases *databases = &hymt_shared->databases;
	TimestampTz now = GetCurrentTimestamp();
	HymtTaskRetry *retry;
	TimestampTz then;

	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	retry = &hymt_database_find(MyDatabaseId, false)->retry[number];
	retry->failures = failed ? retry->failures + 1 : 0;
	retry->not_before = failed ? hymt_retry_time(retry->failures, now) : 0;
	then = retry->not_before;
	LWLockRelease(databases->lock);
	return then;
}

/* 0: now. */
static TimestampTz
not_before(int number)
{
	HymtDatabases *databases = &hymt_shared->databases;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz then;

	LWLockAcquire(databases->lock, LW_SHARED);
	then = hymt_database_find(MyDatabaseId, false)->retry[number].not_before;
	LWLockRelease(databases->lock);
	return then > now ? then : 0;
}

/* All tasks once, apart from those that are put off. */
static bool
turn(TimestampTz *due)
{
	bool		more = false;

	*due = 0;
	pgstat_report_activity(STATE_RUNNING, NULL);
	for (int i = 0; i < lengthof(tasks); i++)
	{
		TimestampTz then = not_before(i);
		bool		failed;

		CHECK_FOR_INTERRUPTS();
		if (then == 0)
		{
			more = try_task(&tasks[i], due, &failed) || more;
			then = note_end(i, failed);
		}
		if (then != 0)
			*due = *due == 0 ? then : Min(*due, then);
	}
	pgstat_report_activity(STATE_IDLE, NULL);
	return more;
}

/* --- coming and going --------------------------------------------------------------------------------------------- */

/* By an error, a signal or because it has nothing to do. */
static void
worker_exits(int code, Datum argument)
{
	HymtDatabases *databases = &hymt_shared->databases;
	HymtDatabase *entry;
	int			launcher;

	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	entry = hymt_database_find(MyDatabaseId, false);
	if (entry != NULL && entry->worker_pid == MyProcPid)
	{
		entry->worker_pid = 0;
		entry->worker_procno = -1;
		databases->running--;
		if (code == 0)
		{
			entry->failures = 0;
			entry->not_before = 0;
		}
		else if (entry->bars > 0)
			entry->wanted = true;	/* it was told to leave in the middle of something */
		else
			hymt_database_failed(entry, GetCurrentTimestamp());
		hymt_database_settle(entry);
	}
	launcher = databases->launcher_procno;
	LWLockRelease(databases->lock);
	ConditionVariableBroadcast(&databases->left);
	hymt_wake(launcher);
}

/* Ends the process when there is a worker here already, or there must not be one. */
static void
attach(void)
{
	HymtDatabases *databases = &hymt_shared->databases;
	HymtDatabase *entry;
	bool		welcome;

	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	entry = hymt_database_find(MyDatabaseId, true);
	welcome = entry != NULL && entry->worker_pid == 0;
	if (welcome)
	{
		if (!entry->starting)
			databases->running++;
		entry->starting = false;
		entry->worker_pid = MyProcPid;
		entry->worker_procno = HYMT_MY_PROCNO;
	}
	LWLockRelease(databases->lock);
	if (!welcome)
		proc_exit(0);
	before_shmem_exit(worker_exits, (Datum) 0);
}

/* What comes from now on is new. False when the process is to leave at once. */
static bool
begin_turn(void)
{
	HymtDatabases *databases = &hymt_shared->databases;
	HymtDatabase *entry;
	bool		barred;

	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	entry = hymt_database_find(MyDatabaseId, false);
	barred = entry->bars > 0;
	/* When it is barred, somebody has to look for what there was to do if the database is there afterwards. */
	entry->wanted = barred;
	entry->due = 0;
	LWLockRelease(databases->lock);
	return !barred;
}

/* Whether there is a reason for another turn, or to leave because of a bar. */
static bool
is_called(void)
{
	HymtDatabases *databases = &hymt_shared->databases;
	HymtDatabase *entry;
	bool		called;

	LWLockAcquire(databases->lock, LW_SHARED);
	entry = hymt_database_find(MyDatabaseId, false);
	called = entry->wanted || entry->bars > 0;
	LWLockRelease(databases->lock);
	return called;
}

/* Whether another database wants this worker's place. */
static bool
is_crowded(void)
{
	HymtDatabases *databases = &hymt_shared->databases;
	bool		crowded;

	LWLockAcquire(databases->lock, LW_SHARED);
	crowded = databases->crowded;
	LWLockRelease(databases->lock);
	return crowded;
}

/*
 * The launcher starts another worker when it is due, or, if it is not `done`, when it is its turn. Called in the last
 * moment: it sees that as well.
 */
static void
leave(TimestampTz due, bool done)
{
	HymtDatabases *databases = &hymt_shared->databases;
	HymtDatabase *entry;

	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	entry = hymt_database_find(MyDatabaseId, false);
	entry->due = due;
	entry->wanted = entry->wanted || !done;
	LWLockRelease(databases->lock);
}

/* Others wait for its place: it begins nothing more, and ends what it has. */
static void
make_way(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (leave_by != 0 || !is_crowded() || !TimestampDifferenceExceeds(begun, now, CROWDED_MS))
		return;
	leave_by = TimestampTzPlusMilliseconds(now, DRAIN_MS);
	hymt_jobs_leave(false);
}

/* When it will do something without being called; 0: never. */
static TimestampTz
next_time(TimestampTz due, TimestampTz end)
{
	TimestampTz next = due;

	if (!hymt_jobs_busy())
		next = next == 0 ? end : Min(next, end);
	if (leave_by != 0)
		next = next == 0 ? leave_by : Min(next, leave_by);
	else if (is_crowded())
		next = Min(next == 0 ? DT_NOEND : next, TimestampTzPlusMilliseconds(begun, CROWDED_MS + 1));
	return next;
}

static long
sleep_time(TimestampTz next)
{
	if (next == 0)
		return -1;
	return Min(TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next) + 1, 3600 * 1000L);
}

/* Whether it goes although nobody calls for it. */
static bool
may_leave(TimestampTz now, TimestampTz end)
{
	if (hymt_jobs_busy())
		return leave_by != 0 && leave_by <= now;
	return end <= now || is_crowded();
}

/*
 * True when it is called, or it is `due`; false when it may go, as it idled for LINGER_MS or is wanted elsewhere. Who has
 * jobs does not idle.
 */
static bool
linger(TimestampTz due)
{
	static uint32 event = 0;
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), LINGER_MS);

	for (;;)
	{
		TimestampTz now = GetCurrentTimestamp();
		TimestampTz answers_due = due;

		if (is_called() || hymt_jobs_called(&answers_due))
			return true;
		if (due != 0 && due <= now)
			return true;
		if (may_leave(now, end))
			return false;
		make_way();
		hymt_sleep(sleep_time(next_time(answers_due, end)), hymt_wait_event(&event, "HymtDatabaseIdle"));
		hymt_catch_up_with_invalidations();
	}
}

/* --- the process -------------------------------------------------------------------------------------------------- */

/* Whatever the database, a role or the configuration file has for sessions. */
static void
use_own_settings(void)
{
	static const char *const settings[][2] = {
		{"role", "none"},
		{"search_path", "pg_catalog, pg_temp"},
		{"statement_timeout", "0"},
		{"lock_timeout", "0"},
		{"transaction_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"idle_session_timeout", "0"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
		{"session_replication_role", "origin"},
		{"row_security", "on"},
		{"client_min_messages", "error"},
		{"exit_on_error", "off"},
		{"hymt.read_ahead", "off"}
	};

	for (int i = 0; i < lengthof(settings); i++)
	{
		/* Some versions lack some. */
		if (GetConfigOption(settings[i][0], true, false) != NULL)
			SetConfigOption(settings[i][0], settings[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	}
}

/* Those that it has are not its any more. True when there were any. */
static bool
give_back_jobs(TimestampTz *due)
{
	bool		failed;

	if (!hymt_jobs_busy())
		return false;
	hymt_jobs_leave(true);
	(void) try_task(&tasks[JOBS], due, &failed);
	return true;
}

static void
work(void)
{
	TimestampTz due = 0;
	bool		more = false;

	begun = GetCurrentTimestamp();
	while (begin_turn())
	{
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		more = turn(&due);
		make_way();
		if (leave_by != 0 && (!hymt_jobs_busy() || leave_by <= GetCurrentTimestamp()))
			break;
		/* An extension that there is not will not come in a moment. */
		if (!more && (!extension_found || !linger(due)))
			break;
	}
	leave(due, !give_back_jobs(&due) && !more && leave_by == 0);
}

void
hymt_database_worker_main(Datum argument)
{
	pqsignal(SIGTERM, die);
	pqsignal(SIGINT, SIG_IGN);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(argument), InvalidOid, 0);
	hymt_check_preloaded();
	attach();
	pgstat_report_appname("hymt database worker");
	use_own_settings();
	/* An error ends the process; the launcher starts another after a while. */
	work();
	proc_exit(0);
}
