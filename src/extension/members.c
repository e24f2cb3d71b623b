/*
 * members.c: finds tables of the extension.
 *
 * Runs in backends and database workers. Owns nothing.
 */
#include "session.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

static bool
is_table_of_name(Oid relation, const char *name)
{
	char	   *other = get_rel_name(relation);
	bool		same = other != NULL && strcmp(other, name) == 0 && get_rel_relkind(relation) == RELKIND_RELATION;

	if (other != NULL)
		pfree(other);
	return same;
}

/*
 * By membership and not by schema: a table of that name which somebody else made is never taken for the extension's, and
 * that one is found wherever it was moved.
 */
Oid
hymt_member_table(const char *name)
{
	Oid			extension = get_extension_oid("hymt", true);
	Oid			found = InvalidOid;
	Relation	catalog;
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!OidIsValid(extension))
		return InvalidOid;
	catalog = table_open(DependRelationId, AccessShareLock);
	ScanKeyInit(&key[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(ExtensionRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(extension));
	scan = systable_beginscan(catalog, DependReferenceIndexId, true, NULL, lengthof(key), key);
	while (!OidIsValid(found) && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend member = (Form_pg_depend) GETSTRUCT(tuple);

		if (member->deptype == DEPENDENCY_EXTENSION && member->classid == RelationRelationId &&
			member->objsubid == 0 && is_table_of_name(member->objid, name))
			found = member->objid;
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return found;
}
