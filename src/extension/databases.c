/*
 * databases.c: which databases have background work.
 *
 * Runs in backends, the launcher and database workers. Owns the table in shared memory that stands between them; touches
 * no table of any database. A database has an entry only as long as there is something to say of it, so that the table
 * needs no cleaning up when databases go.
 */
#include "hymt.h"
#include "databases.h"
#include "queue_internal.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#define SHORTEST_DELAY_MS 1000
#define LONGEST_DELAY_MS 60000

static bool wake_at_commit = false;

void
hymt_databases_init(HymtDatabases *databases, LWLock *lock)
{
	memset(databases, 0, sizeof(HymtDatabases));
	databases->lock = lock;
	databases->launcher_procno = -1;
	ConditionVariableInit(&databases->left);
	for (int i = 0; i < HYMT_MAX_DATABASES; i++)
		databases->entry[i].worker_procno = -1;
}

HymtDatabase *
hymt_database_find(Oid database, bool make)
{
	HymtDatabase *free = NULL;

	for (int i = 0; i < HYMT_MAX_DATABASES; i++)
	{
		HymtDatabase *entry = &hymt_shared->databases.entry[i];

		if (entry->database == database)
			return entry;
		if (free == NULL && !OidIsValid(entry->database))
			free = entry;
	}
	if (!make || free == NULL)
		return NULL;
	memset(free, 0, sizeof(HymtDatabase));
	free->database = database;
	free->worker_procno = -1;
	return free;
}

void
hymt_database_settle(HymtDatabase *entry)
{
	if (!entry->wanted && entry->due == 0 && !entry->starting && entry->worker_pid == 0 && entry->bars == 0)
		entry->database = InvalidOid;
}

TimestampTz
hymt_retry_time(int failures, TimestampTz now)
{
	int			delay = SHORTEST_DELAY_MS;

	for (int i = 1; i < failures && delay < LONGEST_DELAY_MS; i++)
		delay *= 2;
	return TimestampTzPlusMilliseconds(now, Min(delay, LONGEST_DELAY_MS));
}

void
hymt_database_failed(HymtDatabase *entry, TimestampTz now)
{
	entry->wanted = true;
	entry->failures++;
	entry->not_before = hymt_retry_time(entry->failures, now);
}

void
hymt_database_wake_for_jobs(Oid database, int64 from, bool cancelled)
{
	HymtDatabases *databases = &hymt_shared->databases;
	HymtDatabase *entry;
	int			procno;

	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	entry = hymt_database_find(database, true);
	if (entry == NULL)
		databases->all_wanted = true;
	else
	{
		entry->wanted = true;
		entry->jobs_cancelled = entry->jobs_cancelled || cancelled;
		if (from != 0 && (entry->jobs_from == 0 || from < entry->jobs_from))
			entry->jobs_from = from;
	}
	procno = entry != NULL && entry->worker_procno >= 0 ? entry->worker_procno : databases->launcher_procno;
	LWLockRelease(databases->lock);
	hymt_wake(procno);
}

void
hymt_database_wake(Oid database)
{
	hymt_database_wake_for_jobs(database, 0, false);
}

void
hymt_database_wake_at_commit(void)
{
	wake_at_commit = true;
}

/* Of a subtransaction that is rolled back the wish stays, which costs a look in vain. */
static void
transaction_ends(XactEvent event, void *arg)
{
	bool		wake = wake_at_commit;

	switch (event)
	{
		case XACT_EVENT_COMMIT:
			wake_at_commit = false;
			/* Raises nothing: the transaction is committed. */
			if (wake)
				hymt_database_wake(MyDatabaseId);
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:	/* COMMIT PREPARED wakes, see departure.c */
			wake_at_commit = false;
			break;
		default:
			break;
	}
}

void
hymt_databases_register_callbacks(void)
{
	RegisterXactCallback(transaction_ends, NULL);
}
