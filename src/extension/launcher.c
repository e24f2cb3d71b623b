/*
 * launcher.c: starts a database worker wherever there is work.
 *
 * Runs in a process of its own, started when the server begins to accept writes: at its start, and at promotion. It is
 * connected to no database and reads only the shared catalog of them. It sleeps until somebody wakes it, or until the
 * next attempt or due time of a database that has no worker. When more databases want one than there may be, they take
 * turns.
 *
 * At its start it does not know where former processes have left work, nor whether others have been there: it has a
 * worker look into each database of hymt.databases, or else into all that take connections and are no templates, one
 * at a time, so that thousands of them need no more than one process. One without the extension is left at once.
 */
#include "hymt.h"
#include "cache_table.h"
#include "databases.h"
#include "queue_internal.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

/* When no background worker is to be had, ms. */
#define NO_PROCESS_DELAY_MS 10000

/* What pg_database has for a limit of connections then; headers of older releases have no name for it. */
#define INVALID_DATABASE (-2)

/* Workers that were asked for and have not come up; by entry of the table. */
static BackgroundWorkerHandle *handles[HYMT_MAX_DATABASES];
static List *to_be_probed = NIL;	/* OIDs; in TopMemoryContext */
static Oid	probed = InvalidOid;	/* at present */
static bool no_process_told = false;
static int	last_chosen = 0;	/* each gets its turn when there are more than workers */

/* --- which databases there are ------------------------------------------------------------------------------------ */

static void
add_to_be_probed(Oid database)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);

	to_be_probed = lappend_oid(to_be_probed, database);
	MemoryContextSwitchTo(caller);
}

/* Calls `see` for each database. The catalog is read without an index: a process without database cannot open any. */
typedef void (*DatabaseVisitor) (Form_pg_database database, void *argument);

static void
visit_databases(DatabaseVisitor see, void *argument)
{
	Relation	catalog;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	catalog = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(catalog, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
		see((Form_pg_database) GETSTRUCT(tuple), argument);
	table_endscan(scan);
	table_close(catalog, AccessShareLock);
	CommitTransactionCommand();
}

/* What hymt.databases names; its check has seen to it that it is a list. */
static List *
named_databases(void)
{
	List	   *list = NIL;

	(void) SplitIdentifierString(pstrdup(hymt_databases), ',', &list);
	return list;
}

static bool
is_named(const List *names, const char *name)
{
	ListCell   *cell;

	foreach(cell, names)
	{
		if (strcmp(lfirst(cell), name) == 0)
			return true;
	}
	return false;
}

/* DROP DATABASE that was interrupted leaves one that is in the catalog, and to which nobody can connect. */
static bool
takes_connections(Form_pg_database database)
{
	return database->datallowconn && database->datconnlimit != INVALID_DATABASE;
}

/* argument: the names, if there are any. */
static void
list_database(Form_pg_database database, void *argument)
{
	const List *names = argument;

	if (takes_connections(database) && (names != NIL ? is_named(names, NameStr(database->datname)) : !database->datistemplate))
		add_to_be_probed(database->oid);
}

/* A name without a database says nothing: it may come yet, and its sessions will call for a worker. */
static void
list_databases(void)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "hymt databases", ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	List	   *names = named_databases();

	visit_databases(list_database, names);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

typedef struct Openness
{
	Oid			database;
	bool		open;
} Openness;

static void
see_openness(Form_pg_database database, void *argument)
{
	Openness   *openness = argument;

	if (database->oid == openness->database)
		openness->open = takes_connections(database);
}

/* Whether a database is there, and takes connections. */
static bool
is_open(Oid database)
{
	Openness	openness = {.database = database};

	visit_databases(see_openness, &openness);
	return openness.open;
}

/* --- workers ------------------------------------------------------------------------------------------------------ */

/* There will be no worker after all. Under the lock, exclusively. */
static HymtDatabase *
take_back(int number)
{
	HymtDatabases *databases = &hymt_shared->databases;
	HymtDatabase *entry = &databases->entry[number];

	entry->starting = false;
	databases->running--;
	return entry;
}

/* Workers that the postmaster gave up before they came so far as to say so themselves. */
static void
find_stillborn(TimestampTz now)
{
	HymtDatabases *databases = &hymt_shared->databases;
	pid_t		pid;

	for (int i = 0; i < HYMT_MAX_DATABASES; i++)
	{
		if (handles[i] == NULL || GetBackgroundWorkerPid(handles[i], &pid) != BGWH_STOPPED)
			continue;
		pfree(handles[i]);
		handles[i] = NULL;
		LWLockAcquire(databases->lock, LW_EXCLUSIVE);
		if (databases->entry[i].starting)
			hymt_database_failed(take_back(i), now);
		LWLockRelease(databases->lock);
		ConditionVariableBroadcast(&databases->left);
	}
}

/* Under the lock. Whether an entry wants a worker now; else *next is made earlier where it will. */
static bool
wants_worker(const HymtDatabase *entry, TimestampTz now, TimestampTz *next)
{
	TimestampTz from = entry->not_before;

	if (!OidIsValid(entry->database) || entry->starting || entry->worker_pid != 0 || entry->bars > 0)
		return false;
	if (!entry->wanted)
	{
		if (entry->due == 0)
			return false;
		from = Max(from, entry->due);
	}
	if (from <= now)
		return true;
	*next = *next == 0 ? from : Min(*next, from);
	return false;
}

/* The next entry that wants a worker; -1: none does now. Under the lock. */
static int
next_entry(TimestampTz now, TimestampTz *next)
{
	*next = 0;
	for (int i = 1; i <= HYMT_MAX_DATABASES; i++)
	{
		int			number = (last_chosen + i) % HYMT_MAX_DATABASES;

		if (wants_worker(&hymt_shared->databases.entry[number], now, next))
			return number;
	}
	return -1;
}

/* The next entry to have a worker, marked as starting; -1: none, or there are as many as there may be. */
static int
choose_entry(TimestampTz now, TimestampTz *next)
{
	HymtDatabases *databases = &hymt_shared->databases;
	int			chosen;

	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	chosen = next_entry(now, next);
	databases->crowded = to_be_probed != NIL;
	if (chosen >= 0 && databases->running >= hymt_max_database_workers)
	{
		databases->crowded = true;
		chosen = -1;
	}
	if (chosen >= 0)
	{
		last_chosen = chosen;
		databases->entry[chosen].starting = true;
		databases->running++;
	}
	LWLockRelease(databases->lock);
	return chosen;
}

/* Those that have nothing to do then leave. */
static void
tell_crowded(void)
{
	HymtDatabases *databases = &hymt_shared->databases;
	int			procnos[HYMT_MAX_DATABASES];
	int			count = 0;

	LWLockAcquire(databases->lock, LW_SHARED);
	for (int i = 0; i < HYMT_MAX_DATABASES && databases->crowded; i++)
	{
		if (databases->entry[i].worker_pid != 0)
			procnos[count++] = databases->entry[i].worker_procno;
	}
	LWLockRelease(databases->lock);
	for (int i = 0; i < count; i++)
		hymt_wake(procnos[i]);
}

static bool
register_worker(int number)
{
	Oid			database = hymt_shared->databases.entry[number].database;
	BackgroundWorker registration = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_main_arg = ObjectIdGetDatum(database),
		.bgw_notify_pid = MyProcPid
	};
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	bool		registered;

	strlcpy(registration.bgw_library_name, "hymt", sizeof(registration.bgw_library_name));
	strlcpy(registration.bgw_function_name, "hymt_database_worker_main", sizeof(registration.bgw_function_name));
	snprintf(registration.bgw_name, sizeof(registration.bgw_name), "hymt database worker %u", database);
	strlcpy(registration.bgw_type, "hymt database worker", sizeof(registration.bgw_type));
	if (handles[number] != NULL)
		pfree(handles[number]);
	handles[number] = NULL;
	registered = RegisterDynamicBackgroundWorker(&registration, &handles[number]);
	MemoryContextSwitchTo(caller);
	return registered;
}

/* All of max_worker_processes are taken. */
static void
put_off(int number, TimestampTz now)
{
	HymtDatabases *databases = &hymt_shared->databases;

	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	take_back(number)->not_before = TimestampTzPlusMilliseconds(now, NO_PROCESS_DELAY_MS);
	LWLockRelease(databases->lock);
	ConditionVariableBroadcast(&databases->left);
	if (!no_process_told)
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("hymt: no background worker is left for work in a database"),
				 errhint("Raise max_worker_processes and restart PostgreSQL.")));
	no_process_told = true;
}

/* The database is gone, or nobody may connect to it: whatever there was to do in it is no more. */
static void
give_up(int number)
{
	HymtDatabases *databases = &hymt_shared->databases;
	HymtDatabase *entry;
	Oid			database;

	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	entry = take_back(number);
	database = entry->database;
	entry->wanted = false;
	entry->due = 0;
	hymt_database_settle(entry);
	LWLockRelease(databases->lock);
	ConditionVariableBroadcast(&databases->left);
	hymt_cache_list_drop_all(database);
}

static void
start_worker(int number, TimestampTz now)
{
	Oid			database = hymt_shared->databases.entry[number].database;

	if (!is_open(database))
		give_up(number);
	else if (register_worker(number))
		no_process_told = false;
	else
		put_off(number, now);
}

/* As many as there may be. Returns when the next one will be wanted; 0: not before somebody says so. */
static TimestampTz
start_workers(void)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next;
	int			number;

	find_stillborn(now);
	while ((number = choose_entry(now, &next)) >= 0)
		start_worker(number, now);
	tell_crowded();
	return next;
}

/* --- looking into databases --------------------------------------------------------------------------------------- */

/* Whether the database that is being looked into is still that. */
static bool
is_being_probed(void)
{
	HymtDatabases *databases = &hymt_shared->databases;
	HymtDatabase *entry;
	bool		busy;

	if (!OidIsValid(probed))
		return false;
	LWLockAcquire(databases->lock, LW_SHARED);
	entry = hymt_database_find(probed, false);
	/* One that fails again and again must not keep back the others. */
	busy = entry != NULL && entry->wanted && entry->failures == 0 && entry->bars == 0;
	busy = busy || (entry != NULL && entry->starting);
	LWLockRelease(databases->lock);
	return busy;
}

static bool
take_all_wanted(void)
{
	HymtDatabases *databases = &hymt_shared->databases;
	bool		wanted;

	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	wanted = databases->all_wanted;
	databases->all_wanted = false;
	LWLockRelease(databases->lock);
	return wanted;
}

/* False when the table of databases is full. */
static bool
probe(Oid database)
{
	HymtDatabases *databases = &hymt_shared->databases;
	HymtDatabase *entry;

	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	entry = hymt_database_find(database, true);
	if (entry != NULL)
		entry->wanted = true;
	LWLockRelease(databases->lock);
	return entry != NULL;
}

/* One after the other. When there is no room, a worker that leaves makes some, and wakes this process. */
static void
probe_next(void)
{
	if (to_be_probed == NIL && take_all_wanted())
		list_databases();
	while (to_be_probed != NIL && !is_being_probed() && probe(linitial_oid(to_be_probed)))
	{
		probed = linitial_oid(to_be_probed);
		to_be_probed = list_delete_first(to_be_probed);
	}
}

/* --- the process -------------------------------------------------------------------------------------------------- */

static void
launcher_exits(int code, Datum argument)
{
	HymtDatabases *databases = &hymt_shared->databases;

	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	databases->launcher_procno = -1;
	LWLockRelease(databases->lock);
}

/*
 * A former launcher may have asked for workers that came up, will come up, or never will, and nobody can tell: all of
 * them count as never. Who comes up finds an entry all the same, or another worker there, and leaves.
 */
static void
forget_starting(HymtDatabases *databases)
{
	for (int i = 0; i < HYMT_MAX_DATABASES; i++)
	{
		HymtDatabase *entry = &databases->entry[i];

		if (!entry->starting)
			continue;
		entry->starting = false;
		databases->running--;
	}
}

static void
begin(void)
{
	HymtDatabases *databases = &hymt_shared->databases;

	before_shmem_exit(launcher_exits, (Datum) 0);
	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	databases->launcher_procno = HYMT_MY_PROCNO;
	forget_starting(databases);
	databases->all_wanted = true;
	LWLockRelease(databases->lock);
}

static void
sleep_until(TimestampTz next)
{
	static uint32 event = 0;
	int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;
	long		timeout = -1;

	if (next != 0)
	{
		events |= WL_TIMEOUT;
		timeout = Min(TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next) + 1, 3600 * 1000L);
	}
	(void) WaitLatch(MyLatch, events, timeout, hymt_wait_event(&event, "HymtLauncherIdle"));
	ResetLatch(MyLatch);
}

void
hymt_launcher_main(Datum argument)
{
	pqsignal(SIGTERM, die);
	pqsignal(SIGINT, SIG_IGN);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname("hymt launcher");
	hymt_check_preloaded();
	begin();
	for (;;)
	{
		TimestampTz next;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		hymt_catch_up_with_invalidations();
		probe_next();
		next = start_workers();
		/* One that has found nothing there is done before the next one is looked into. */
		sleep_until(next);
	}
}

void
hymt_register_launcher(void)
{
	BackgroundWorker registration = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = 5
	};

	strlcpy(registration.bgw_library_name, "hymt", sizeof(registration.bgw_library_name));
	strlcpy(registration.bgw_function_name, "hymt_launcher_main", sizeof(registration.bgw_function_name));
	strlcpy(registration.bgw_name, "hymt launcher", sizeof(registration.bgw_name));
	strlcpy(registration.bgw_type, "hymt launcher", sizeof(registration.bgw_type));
	RegisterBackgroundWorker(&registration);
}
