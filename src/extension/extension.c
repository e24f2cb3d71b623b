/*
 * extension.c: the row of the extension in the catalog of a database.
 *
 * Runs in backends and database workers, in a transaction. Owns nothing: there is no cache of these rows, and whoever
 * keeps what it read has to see to it that it stays true.
 */
#include "hymt.h"
#include "databases.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_extension.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

bool
hymt_read_extension(Oid extension, Oid *schema)
{
	Relation	catalog = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		fits = false;

	*schema = InvalidOid;
	ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(extension));
	scan = systable_beginscan(catalog, ExtensionOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		version = heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(catalog), &isnull);

		*schema = ((Form_pg_extension) GETSTRUCT(tuple))->extnamespace;
		fits = !isnull && strcmp(TextDatumGetCString(version), HYMT_VERSION) == 0;
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return fits;
}
