/*
 * database_worker.c: does the background work of one database.
 *
 * Runs in a process of its own, at most one for each database, started by the launcher when there is work and gone soon
 * after there is none. Connected as the bootstrap superuser, with settings of its own: those of the database and of the
 * roles are for their sessions. Writes only tables of the extension itself; whatever belongs to others is written by the
 * tasks as its owner.
 *
 * Each task does a bounded piece in a short transaction. No transaction is open while the process waits for anything.
 */
#include "hymt.h"
#include "databases.h"
#include "queue_internal.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
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
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* How long it stays when there is nothing to do, ms: less than a client takes that goes from statement to statement. */
#define LINGER_MS 1500
/* When the extension is being altered or dropped, ms. */
#define BUSY_EXTENSION_MS 1000

/* In this order in each turn. */
static const HymtTask tasks[] = {
	hymt_cache_write,
	hymt_cache_evict
};

static bool extension_found;	/* in the last turn */

/* --- the extension ------------------------------------------------------------------------------------------------ */

typedef enum Finding
{
	EXTENSION_FOUND,
	EXTENSION_MISSING,
	EXTENSION_OTHER,			/* a version that this library does not work for */
	EXTENSION_BUSY				/* is being altered or dropped */
} Finding;

/* Its schema, if its version is that of this library. There is no cache of these rows. */
static bool
read_extension(HymtWorkplace *place)
{
	Relation	catalog = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		fits = false;

	ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(place->extension));
	scan = systable_beginscan(catalog, ExtensionOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		version = heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(catalog), &isnull);

		place->schema = ((Form_pg_extension) GETSTRUCT(tuple))->extnamespace;
		fits = !isnull && strcmp(TextDatumGetCString(version), HYMT_VERSION) == 0;
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return fits;
}

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
	return read_extension(place) ? EXTENSION_FOUND : EXTENSION_OTHER;
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

static void
be_due(TimestampTz *due, int milliseconds)
{
	TimestampTz then = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), milliseconds);

	*due = *due == 0 ? then : Min(*due, then);
}

/* True when the task may have more to do at once. */
static bool
run_task(HymtTask task, TimestampTz *due)
{
	HymtWorkplace place;
	bool		more = false;
	Finding		finding;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	finding = find_extension(&place);
	extension_found = finding == EXTENSION_FOUND;
	if (finding == EXTENSION_FOUND)
		more = task(&place, due);
	else if (finding == EXTENSION_BUSY)
		be_due(due, BUSY_EXTENSION_MS);
	PopActiveSnapshot();
	CommitTransactionCommand();
	/* So that autovacuum hears of what was written. */
	pgstat_report_stat(true);
	return more;
}

/* All tasks once. */
static bool
turn(TimestampTz *due)
{
	bool		more = false;

	*due = 0;
	pgstat_report_activity(STATE_RUNNING, NULL);
	for (int i = 0; i < lengthof(tasks); i++)
	{
		CHECK_FOR_INTERRUPTS();
		more = run_task(tasks[i], due) || more;
	}
	pgstat_report_activity(STATE_IDLE, NULL);
	return more;
}

/* --- coming and going --------------------------------------------------------------------------------------------- */

/* Under the lock, by this process's end. */
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
	if (!barred)
	{
		entry->wanted = false;
		entry->due = 0;
	}
	LWLockRelease(databases->lock);
	return !barred;
}

/* Whether there is a reason for another turn, or to leave at once. */
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

/* So that the launcher starts a worker then. */
static void
leave_due(TimestampTz due)
{
	HymtDatabases *databases = &hymt_shared->databases;

	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	hymt_database_find(MyDatabaseId, false)->due = due;
	LWLockRelease(databases->lock);
}

/* Until it is called, `due`, or LINGER_MS have passed: then false. */
static bool
linger(TimestampTz due)
{
	static uint32 event = 0;
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), LINGER_MS);

	while (!is_called())
	{
		TimestampTz now = GetCurrentTimestamp();

		if (due != 0 && due <= now)
			return true;
		if (end <= now)
			return false;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 TimestampDifferenceMilliseconds(now, due != 0 ? Min(due, end) : end) + 1,
						 hymt_wait_event(&event, "HymtDatabaseIdle"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		hymt_catch_up_with_invalidations();
	}
	return true;
}

/* --- the process -------------------------------------------------------------------------------------------------- */

/* Whatever the database, a role or the configuration file has for sessions. */
static void
use_own_settings(void)
{
	static const char *const settings[][2] = {
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
		{"hymt.read_ahead", "off"}
	};

	for (int i = 0; i < lengthof(settings); i++)
	{
		/* Some versions lack some. */
		if (GetConfigOption(settings[i][0], true, false) != NULL)
			SetConfigOption(settings[i][0], settings[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	}
}

static void
work(void)
{
	TimestampTz due;

	while (begin_turn())
	{
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (turn(&due))
			continue;
		/* What there is not will not come in a moment. */
		if ((!extension_found && due == 0) || !linger(due))
		{
			leave_due(due);
			/* Called in the last moment: the launcher sees that as well. */
			return;
		}
	}
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
