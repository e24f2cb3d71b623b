/*
 * departure.c: statements that need a database without other sessions, and COMMIT PREPARED.
 *
 * Runs in backends. DROP DATABASE and its like fail when anybody is connected. A database worker must not be the reason:
 * while such a statement is under way the database has a bar, which makes its worker leave and the launcher start none.
 * Bars are lifted when the transaction ends, in whatever way: before that nobody sees what the statement has done. Who may
 * not do such a thing to a database puts none.
 *
 * COMMIT PREPARED makes work visible that another session, perhaps before a restart, has left; ROLLBACK PREPARED gives
 * back jobs that the worker has passed over.
 */
#include "hymt.h"
#include "databases.h"
#include "jobs.h"
#include "queue_internal.h"

#include <signal.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/syscache.h"

/* How long a worker has to end what it is at; then it is terminated as by pg_terminate_backend(), ms. */
#define PATIENCE_MS 500

static ProcessUtility_hook_type previous_process_utility = NULL;
static Oid	barred = InvalidOid;	/* by the transaction under way in this process */

/* --- bars --------------------------------------------------------------------------------------------------------- */

static void
lift_bar(void)
{
	HymtDatabases *databases = &hymt_shared->databases;
	HymtDatabase *entry;
	int			launcher;

	if (!OidIsValid(barred))
		return;
	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	entry = hymt_database_find(barred, false);
	if (entry != NULL)
	{
		entry->bars--;
		hymt_database_settle(entry);
	}
	launcher = databases->launcher_procno;
	LWLockRelease(databases->lock);
	barred = InvalidOid;
	/* There may be work that nobody was started for meanwhile. */
	hymt_wake(launcher);
}

static void
process_exits(int code, Datum argument)
{
	lift_bar();
}

static void
transaction_ends(XactEvent event, void *argument)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		lift_bar();
}

/* No worker will be started there from now on. False when the table of databases is full; then none runs there either. */
static bool
put_bar(Oid database)
{
	static bool callbacks_registered = false;
	HymtDatabases *databases = &hymt_shared->databases;
	HymtDatabase *entry;

	if (!callbacks_registered)
	{
		RegisterXactCallback(transaction_ends, NULL);
		before_shmem_exit(process_exits, (Datum) 0);
		callbacks_registered = true;
	}
	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	entry = hymt_database_find(database, true);
	if (entry != NULL)
	{
		entry->bars++;
		barred = database;
	}
	LWLockRelease(databases->lock);
	return entry != NULL;
}

/* Whether there is, or will be in a moment, a worker in the database. `terminate` it instead of asking. */
static bool
urge_to_leave(Oid database, bool terminate)
{
	HymtDatabases *databases = &hymt_shared->databases;
	HymtDatabase *entry;
	int			procno = -1;
	bool		there = false;

	LWLockAcquire(databases->lock, LW_SHARED);
	entry = hymt_database_find(database, false);
	if (entry != NULL)
	{
		there = entry->starting || entry->worker_pid != 0;
		procno = entry->worker_procno;
		/* The worker takes the lock when it ends: as long as its number is here, it is its own. */
		if (terminate && entry->worker_pid != 0)
			kill(entry->worker_pid, SIGTERM);
	}
	LWLockRelease(databases->lock);
	hymt_wake(procno);
	return there;
}

/* Interruptible. */
static void
see_worker_off(Oid database)
{
	static uint32 event = 0;
	ConditionVariable *left = &hymt_shared->databases.left;
	bool		terminate = false;

	ConditionVariablePrepareToSleep(left);
	while (urge_to_leave(database, terminate))
		terminate = ConditionVariableTimedSleep(left, PATIENCE_MS, hymt_wait_event(&event, "HymtWorkerLeaves"));
	ConditionVariableCancelSleep();
}

/* --- statements --------------------------------------------------------------------------------------------------- */

/* The string that an option of a statement is; NULL when there is no such option, or no string. */
static const char *
option_value(const List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, name) == 0 && option->arg != NULL && IsA(option->arg, String))
			return strVal(option->arg);
	}
	return NULL;
}

/* The database that a statement wants for itself; NULL: none. */
static const char *
vacated_database(Node *statement)
{
	const char *template;

	switch (nodeTag(statement))
	{
		case T_DropdbStmt:
			return ((DropdbStmt *) statement)->dbname;
		case T_RenameStmt:
			return ((RenameStmt *) statement)->renameType == OBJECT_DATABASE ? ((RenameStmt *) statement)->subname : NULL;
		case T_CreatedbStmt:
			template = option_value(((CreatedbStmt *) statement)->options, "template");
			return template != NULL ? template : "template1";
		case T_AlterDatabaseStmt:
			return option_value(((AlterDatabaseStmt *) statement)->options, "tablespace") != NULL ?
				((AlterDatabaseStmt *) statement)->dbname : NULL;
		default:
			return NULL;
	}
}

static bool
may_create_databases(void)
{
	HeapTuple	tuple;
	bool		may;

	if (superuser())
		return true;
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	may = HeapTupleIsValid(tuple) && ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return may;
}

static bool
is_template(Oid database)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	bool		template = HeapTupleIsValid(tuple) && ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return template;
}

/* Who may not do such a thing to a database gets his error without disturbing its worker. */
static bool
may_vacate(Node *statement, Oid database)
{
	bool		owns = HYMT_OWNS_DATABASE(database, GetUserId());

	return IsA(statement, CreatedbStmt) ? may_create_databases() && (owns || is_template(database)) : owns;
}

/* The database whose worker has to leave for a statement; invalid: none. */
static Oid
database_to_vacate(Node *statement)
{
	const char *name = vacated_database(statement);
	Oid			database;

	if (name == NULL || OidIsValid(barred))
		return InvalidOid;
	/* One that does not exist is an error of the statement's own, unless it says IF EXISTS. */
	database = get_database_oid(name, true);
	return OidIsValid(database) && may_vacate(statement, database) ? database : InvalidOid;
}

/* Whatever a prepared transaction left is visible, or its locks are gone. */
static bool
ends_prepared(Node *statement)
{
	return IsA(statement, TransactionStmt) &&
		(((TransactionStmt *) statement)->kind == TRANS_STMT_COMMIT_PREPARED ||
		 ((TransactionStmt *) statement)->kind == TRANS_STMT_ROLLBACK_PREPARED);
}

static void
call_next(PlannedStmt *statement, const char *query, bool read_only, ProcessUtilityContext context,
		  ParamListInfo params, QueryEnvironment *environment, DestReceiver *receiver, QueryCompletion *completion)
{
	if (previous_process_utility != NULL)
		previous_process_utility(statement, query, read_only, context, params, environment, receiver, completion);
	else
		standard_ProcessUtility(statement, query, read_only, context, params, environment, receiver, completion);
}

static void
process_utility(PlannedStmt *statement, const char *query, bool read_only, ProcessUtilityContext context,
				ParamListInfo params, QueryEnvironment *environment, DestReceiver *receiver,
				QueryCompletion *completion)
{
	Oid			database = database_to_vacate(statement->utilityStmt);
	bool		wake = ends_prepared(statement->utilityStmt) && OidIsValid(get_extension_oid("hymt", true));

	if (OidIsValid(database) && put_bar(database))
		see_worker_off(database);
	call_next(statement, query, read_only, context, params, environment, receiver, completion);
	if (wake)
		hymt_jobs_prepared_ended();
}

void
hymt_departure_init(void)
{
	previous_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}
