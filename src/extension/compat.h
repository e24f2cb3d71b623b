/*
 * compat.h: what differs between the PostgreSQL versions that hymt supports, 15 to 18. One block per major version,
 * each with the change of PostgreSQL in words. Elsewhere no file asks for PG_VERSION_NUM.
 */
#ifndef HYMT_COMPAT_H
#define HYMT_COMPAT_H

#include "postgres.h"

#include "fmgr.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000
#error "hymt needs PostgreSQL 15 or newer"
#endif

/*
 * All: libpq-be.h includes the headers of Kerberos where PostgreSQL was built with it, which are not there just because
 * PostgreSQL's are. The structs keep their layout without.
 */
#undef ENABLE_GSS

/*
 * 17: a process finds its number in MyProcNumber; before, in its PGPROC. Extensions can name their wait events. A wait
 * event set belongs to a resource owner (NULL: to nobody), no longer to a memory context.
 */
#if PG_VERSION_NUM >= 170000
#define HYMT_MY_PROCNO MyProcNumber
#define HYMT_NEW_WAIT_EVENT(name) WaitEventExtensionNew(name)
#define HYMT_CREATE_WAIT_EVENT_SET(nevents) CreateWaitEventSet(NULL, nevents)
#else
#define HYMT_MY_PROCNO (MyProc->pgprocno)
#define HYMT_NEW_WAIT_EVENT(name) ((uint32) PG_WAIT_EXTENSION)
#define HYMT_CREATE_WAIT_EVENT_SET(nevents) CreateWaitEventSet(TopMemoryContext, nevents)
#endif

/*
 * 16: expressions of a parent table become those of a child by their relations, not by sets of numbers. For files that
 * include appendinfo.h.
 */
#if PG_VERSION_NUM >= 160000
#define HYMT_ADJUST_TO_CHILD(root, node, child, parent) adjust_appendrel_attrs_multilevel(root, node, child, parent)
#else
#define HYMT_ADJUST_TO_CHILD(root, node, child, parent) \
	adjust_appendrel_attrs_multilevel(root, node, (child)->relids, (parent)->relids)
#endif

/* 16: one function tells who owns an object of any kind, another who may what with it. For files that include acl.h and the catalog's header. */
#if PG_VERSION_NUM >= 160000
#define HYMT_OWNS_DATABASE(database, role) object_ownercheck(DatabaseRelationId, database, role)
#define HYMT_MAY_EXECUTE(function, role) (object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE) == ACLCHECK_OK)
#else
#define HYMT_OWNS_DATABASE(database, role) pg_database_ownercheck(database, role)
#define HYMT_MAY_EXECUTE(function, role) (pg_proc_aclcheck(function, role, ACL_EXECUTE) == ACLCHECK_OK)
#endif

/* 17: MERGE has actions for rows of the target that no row of the source matches. */
#if PG_VERSION_NUM >= 170000
#define HYMT_MERGE_MATCHED(action) ((action)->matchKind == MERGE_WHEN_MATCHED)
#define HYMT_MERGE_WITHOUT_SOURCE(action) ((action)->matchKind == MERGE_WHEN_NOT_MATCHED_BY_SOURCE)
#else
#define HYMT_MERGE_MATCHED(action) ((action)->matched)
#define HYMT_MERGE_WITHOUT_SOURCE(action) false
#endif

/* 18: an index scan can count its searches. For files that include genam.h. */
#if PG_VERSION_NUM >= 180000
#define HYMT_INDEX_BEGINSCAN(table, index, snapshot, keys) index_beginscan(table, index, snapshot, NULL, keys, 0)
#else
#define HYMT_INDEX_BEGINSCAN(table, index, snapshot, keys) index_beginscan(table, index, snapshot, keys, 0)
#endif

/*
 * 18: wait event sets have a header of their own, as have the two halves of what EXPLAIN's callbacks need; modules carry name and version; what does not return is declared by a
 * keyword in front.
 */
#if PG_VERSION_NUM >= 180000
#include "storage/waiteventset.h"
#include "commands/explain_state.h"
#include "commands/explain_format.h"
#define HYMT_MODULE_MAGIC PG_MODULE_MAGIC_EXT(.name = "hymt", .version = HYMT_VERSION)
#define HYMT_NORETURN pg_noreturn
#else
#include "commands/explain.h"
#define HYMT_MODULE_MAGIC PG_MODULE_MAGIC
#define HYMT_NORETURN pg_attribute_noreturn()
#endif

/* 18: the executor is not told any more whether it runs once. */
#if PG_VERSION_NUM >= 180000
#define HYMT_EXECUTOR_RUN_ARGS ScanDirection direction, uint64 count
#define HYMT_EXECUTOR_RUN_PASS direction, count
#else
#define HYMT_EXECUTOR_RUN_ARGS ScanDirection direction, uint64 count, bool execute_once
#define HYMT_EXECUTOR_RUN_PASS direction, count, execute_once
#endif

/*
 * The number of a wait event, registered at first use and kept in *cached by the caller (a static): registration takes
 * a lock and looks the name up.
 */
static inline uint32
hymt_wait_event(uint32 *cached, const char *name)
{
	if (*cached == 0)
		*cached = HYMT_NEW_WAIT_EVENT(name);
	return *cached;
}

/* 18: the postmaster's list of background workers is doubly linked. For files that include bgworker_internals.h. */
#if PG_VERSION_NUM >= 180000
#define HYMT_REGISTERED_WORKER_ITER dlist_iter
#define HYMT_REGISTERED_WORKER_FOREACH(iter) dlist_foreach(iter, &BackgroundWorkerList)
#define HYMT_REGISTERED_WORKER(iter) (&dlist_container(RegisteredBgWorker, rw_lnode, iter.cur)->rw_worker)
#else
#define HYMT_REGISTERED_WORKER_ITER slist_iter
#define HYMT_REGISTERED_WORKER_FOREACH(iter) slist_foreach(iter, &BackgroundWorkerList)
#define HYMT_REGISTERED_WORKER(iter) (&slist_container(RegisteredBgWorker, rw_lnode, iter.cur)->rw_worker)
#endif

#endif							/* HYMT_COMPAT_H */
