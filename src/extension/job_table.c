/*
 * job_table.c: which table hymt_job is, and statements over it.
 *
 * Runs in backends and database workers, in a transaction. Owns nothing. Nobody but the table's owner may write it, so
 * that statements run with his rights, see as_owner.c; whose job it is, the callers look after.
 */
#include "hymt.h"
#include "jobs.h"

#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "utils/lsyscache.h"

Oid
hymt_job_table(void)
{
	Oid			extension = get_extension_oid("hymt", true);
	Oid			schema;
	Oid			table;

	if (!OidIsValid(extension) || !hymt_read_extension(extension, &schema))
		return InvalidOid;
	table = get_relname_relid("hymt_job", schema);
	return OidIsValid(table) && getExtensionOfObject(RelationRelationId, table) == extension ? table : InvalidOid;
}

Oid
hymt_job_table_or_raise(void)
{
	Oid			table = hymt_job_table();

	if (!OidIsValid(table))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table hymt_job does not exist, or is of another version of extension hymt"),
				 errhint("Run ALTER EXTENSION hymt UPDATE.")));
	return table;
}

void
hymt_job_execute(const char *statement, int count, Oid *types, Datum *values, const char *nulls, bool read_only,
				 int expected)
{
	int			result = SPI_execute_with_args(statement, count, types, values, nulls, read_only, 0);

	if (result != expected)
		elog(ERROR, "SPI_execute_with_args failed: %s", SPI_result_code_string(result));
}

char *
hymt_job_string(int row, int column)
{
	return SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column);
}
