/*
 * as_owner.c: statements that run with the rights of a table's owner.
 *
 * Runs in database workers and backends. A table can have triggers, defaults and expressions that its owner has made.
 * They must not run with the rights of the process that writes, which are a superuser's in a database worker: what a
 * session gets by the owner's leave it gets, and no more. Subtransactions and transactions that end restore everything.
 */
#include "hymt.h"
#include "cache_table.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

static Oid
owner_of(Oid table)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", table);
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

void
hymt_as_owner_begin(Oid table, HymtAsOwner *former)
{
	GetUserIdAndSecContext(&former->user, &former->security);
	SetUserIdAndSecContext(owner_of(table),
						   former->security | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	former->settings = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
							 false);
}

void
hymt_as_owner_end(const HymtAsOwner *former)
{
	AtEOXact_GUC(false, former->settings);
	SetUserIdAndSecContext(former->user, former->security);
}

char *
hymt_quoted_table(Oid table)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), get_rel_name(table));
}
