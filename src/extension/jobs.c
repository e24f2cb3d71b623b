/*
 * jobs.c: hymt_submit(), hymt_result(), hymt_wait(), hymt_cancel().
 *
 * Runs in backends. A job is a row that the caller's transaction inserts: it is there for others when that commits, and
 * gone when it is rolled back. What the functions tell of a job is its latest committed state, not that of the
 * statement's snapshot: an answer comes while the transaction that waits for it is open.
 *
 * A job is its owner's, who is the role that submitted it. Of a job that is somebody else's nobody learns even that it
 * is there; superusers may do everything.
 */
#include "hymt.h"
#include "cache_table.h"
#include "jobs.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(hymt_submit);
PG_FUNCTION_INFO_V1(hymt_result);
PG_FUNCTION_INFO_V1(hymt_wait);
PG_FUNCTION_INFO_V1(hymt_cancel);
PG_FUNCTION_INFO_V1(hymt_job_stays);

/* Positions of hymt_submit()'s arguments that are stored. */
enum
{
	ARG_TEXT = 0,
	ARG_CONTEXT = 3,
	ARG_ON_ERROR = 6,
	ARG_OPTIONS = 7
};

static void
connect(Oid table, HymtAsOwner *former)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	hymt_as_owner_begin(table, former);
}

static void
disconnect(const HymtAsOwner *former)
{
	hymt_as_owner_end(former);
	SPI_finish();
}

/*
 * A statement about the table, planned once in a session. When what a plan is of changes PostgreSQL makes it anew, and
 * looks the table up by the name in the text: so that is made anew here when the table, or its schema, has another name.
 */
typedef struct Statement
{
	const char *text;			/* with %s for the table */
	char	   *table;			/* as it is named in the plan; in TopMemoryContext */
	SPIPlanPtr	plan;
} Statement;

static SPIPlanPtr
plan_of(Statement *statement, Oid table, int count, Oid *types)
{
	const char *name = hymt_quoted_table(table);
	SPIPlanPtr	plan;

	if (statement->plan != NULL && strcmp(statement->table, name) == 0)
		return statement->plan;
	if (statement->plan != NULL)
	{
		(void) SPI_freeplan(statement->plan);
		pfree(statement->table);
	}
	statement->plan = NULL;
	statement->table = NULL;
	plan = SPI_prepare(psprintf(statement->text, name), count, types);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	statement->table = MemoryContextStrdup(TopMemoryContext, name);
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "SPI_keepplan failed: %s", SPI_result_code_string(SPI_result));
	statement->plan = plan;
	return plan;
}

static void
execute(SPIPlanPtr plan, Datum *values, const char *nulls, bool read_only, int expected)
{
	int			result = SPI_execute_plan(plan, values, nulls, read_only, 0);

	if (result != expected)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(result));
}

/* --- submitting --------------------------------------------------------------------------------------------------- */

/* As a call of hymt_translate() would, but for what only an engine can know. */
void
hymt_job_check_text(text *source, const HymtOrder *order)
{
	const char *given = VARDATA_ANY(source);
	Size		length;
	const char *utf8 = hymt_server_to_utf8(given, VARSIZE_ANY_EXHDR(source), &length);
	HymtRequestSpec spec = hymt_request_spec(order, utf8, length);

	hymt_request_check_length(&spec);
	if (utf8 != given)
		pfree(unconstify(char *, utf8));
}

/* The id of the row that the last statement has inserted, of which the worker is told when the transaction commits. */
static int64
take_inserted(void)
{
	bool		isnull;
	int64		id;

	if (SPI_processed != 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobs cannot be submitted while session_replication_role is \"replica\"")));
	id = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	hymt_job_submitted(id);
	return id;
}

static int64
insert_job(FunctionCallInfo fcinfo, const HymtOrder *order)
{
	static Statement statement = {
		"INSERT INTO %s (owner, priority, source_lang, target_lang, context, on_error, options, source)"
		" VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id"
	};
	Oid			types[] = {REGROLEOID, INT2OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, JSONBOID, TEXTOID};
	Datum		values[] = {
		ObjectIdGetDatum(GetUserId()), Int16GetDatum(order->bulk ? 1 : 0), CStringGetTextDatum(order->source->code),
		CStringGetTextDatum(order->target->code), PG_GETARG_DATUM(ARG_CONTEXT), PG_GETARG_DATUM(ARG_ON_ERROR),
		PG_GETARG_DATUM(ARG_OPTIONS), PG_GETARG_DATUM(ARG_TEXT)
	};
	char		nulls[] = {
		' ', ' ', ' ', ' ', PG_ARGISNULL(ARG_CONTEXT) ? 'n' : ' ', ' ', PG_ARGISNULL(ARG_OPTIONS) ? 'n' : ' ', ' '
	};
	Oid			table = hymt_job_table_or_raise();
	HymtAsOwner former;
	int64		id;

	connect(table, &former);
	execute(plan_of(&statement, table, lengthof(types), types), values, nulls, false, SPI_OK_INSERT_RETURNING);
	id = take_inserted();
	disconnect(&former);
	return id;
}

Datum
hymt_submit(PG_FUNCTION_ARGS)
{
	HymtOrder	order;
	int64		id;

	if (PG_ARGISNULL(ARG_TEXT))
		PG_RETURN_NULL();
	hymt_check_preloaded();
	hymt_read_order(fcinfo, &order);
	hymt_job_check_text(PG_GETARG_TEXT_PP(ARG_TEXT), &order);
	id = insert_job(fcinfo, &order);
	PG_RETURN_INT64(id);
}

static Datum
key_columns_of(const HymtJobColumn *column)
{
	Datum		numbers[INDEX_MAX_KEYS];

	for (int i = 0; i < column->key_count; i++)
		numbers[i] = Int16GetDatum(column->key_column[i]);
	return PointerGetDatum(construct_array(numbers, column->key_count, INT2OID, sizeof(int16), true, TYPALIGN_SHORT));
}

static Datum
key_of(const HymtJobColumn *column)
{
	Datum		values[INDEX_MAX_KEYS];

	for (int i = 0; i < column->key_count; i++)
		values[i] = CStringGetTextDatum(column->key[i]);
	return PointerGetDatum(construct_array(values, column->key_count, TEXTOID, -1, false, TYPALIGN_INT));
}

void
hymt_job_submit_column(const HymtJobColumn *column, const HymtOrder *order, const char *on_error, text *source)
{
	static Statement statement = {
		"INSERT INTO %s (owner, source_lang, target_lang, on_error, source, rel, trigger, key_columns, key, former)"
		" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id"
	};
	Oid			types[] = {
		REGROLEOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, REGCLASSOID, TEXTOID, INT2ARRAYOID, TEXTARRAYOID, TEXTOID
	};
	Datum		values[] = {
		ObjectIdGetDatum(column->owner), CStringGetTextDatum(order->source->code),
		CStringGetTextDatum(order->target->code), CStringGetTextDatum(on_error), PointerGetDatum(source),
		ObjectIdGetDatum(column->relation), CStringGetTextDatum(column->trigger), key_columns_of(column), key_of(column),
		PointerGetDatum(column->former)
	};
	char		nulls[] = {
		' ', ' ', ' ', ' ', source == NULL ? 'n' : ' ', ' ', ' ', ' ', ' ', column->former == NULL ? 'n' : ' '
	};
	Oid			table = hymt_job_table_or_raise();
	HymtAsOwner former;

	connect(table, &former);
	execute(plan_of(&statement, table, lengthof(types), types), values, nulls, false, SPI_OK_INSERT_RETURNING);
	(void) take_inserted();
	disconnect(&former);
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

typedef struct Look
{
	char	   *state;
	bool		own_insertion;	/* by this transaction */
	text	   *translation;	/* NULL: null */
	char	   *sqlstate;		/* NULL: no error */
	char	   *message;
} Look;

static void
raise_unknown(int64 id)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("job " INT64_FORMAT " does not exist", id),
			 errhint("A job is there for others when its transaction has committed, for its owner only, and until hymt.job_retention has passed after its end.")));
}

/* Fills *look from the row that SPI has found. */
static void
take_look(Look *look)
{
	HeapTuple	row = SPI_tuptable->vals[0];
	TupleDesc	descriptor = SPI_tuptable->tupdesc;
	bool		isnull;
	Datum		translation;

	look->state = SPI_getvalue(row, descriptor, 1);
	translation = SPI_getbinval(row, descriptor, 2, &isnull);
	look->translation = isnull ? NULL : DatumGetTextPCopy(translation);
	look->sqlstate = SPI_getvalue(row, descriptor, 3);
	look->message = SPI_getvalue(row, descriptor, 4);
	look->own_insertion =
		TransactionIdIsCurrentTransactionId(DatumGetTransactionId(SPI_getbinval(row, descriptor, 5, &isnull)));
}

/* The job as it is now, in the current memory context. Raises when there is none that the caller may see. */
static void
look_at_job(int64 id, Look *look)
{
	static Statement statement = {
		"SELECT state, translation, sqlstate, message, xmin FROM %s WHERE id = $1 AND ($2 OR owner = $3)"
	};
	Oid			types[] = {INT8OID, BOOLOID, REGROLEOID};
	Datum		values[] = {Int64GetDatum(id), BoolGetDatum(superuser()), ObjectIdGetDatum(GetUserId())};
	Oid			table = hymt_job_table_or_raise();
	MemoryContext caller = CurrentMemoryContext;
	HymtAsOwner former;

	connect(table, &former);
	PushActiveSnapshot(GetLatestSnapshot());
	execute(plan_of(&statement, table, lengthof(types), types), values, NULL, true, SPI_OK_SELECT);
	PopActiveSnapshot();
	if (SPI_processed == 0)
		raise_unknown(id);
	MemoryContextSwitchTo(caller);
	take_look(look);
	disconnect(&former);
}

static bool
has_ended(const Look *look)
{
	return strcmp(look->state, "queued") != 0 && strcmp(look->state, "running") != 0;
}

static void
raise_failed(const Look *look)
{
	const char *code = look->sqlstate;

	ereport(ERROR,
			(errcode(MAKE_SQLSTATE(code[0], code[1], code[2], code[3], code[4])),
			 errmsg_internal("%s", look->message != NULL ? look->message : "the job has failed")));
}

/* Of a job that has ended. NULL: null. */
static text *
result_of(int64 id, const Look *look)
{
	if (strcmp(look->state, "cancelled") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("job " INT64_FORMAT " was cancelled", id)));
	if (strcmp(look->state, "done") != 0 && look->sqlstate != NULL && strlen(look->sqlstate) == 5)
		raise_failed(look);
	return look->translation;
}

Datum
hymt_result(PG_FUNCTION_ARGS)
{
	Look		look;
	text	   *result;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	look_at_job(PG_GETARG_INT64(0), &look);
	result = has_ended(&look) ? result_of(PG_GETARG_INT64(0), &look) : NULL;
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(result);
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

static void
check_waiting(void)
{
	hymt_check_preloaded();
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot wait for a job during recovery"),
				 errhint("Wait for it on the primary; hymt_result() tells here what has come from there.")));
}

static void
check_own(int64 id, const Look *look)
{
	if (look->own_insertion && !has_ended(look))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("job " INT64_FORMAT " will not begin before this transaction ends", id),
				 errhint("Commit the transaction that submitted it, then wait.")));
}

/* When a wait ends; DT_NOEND: never. */
static TimestampTz
end_of_wait(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(1))
		return DT_NOEND;
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												   TimestampTzGetDatum(GetCurrentTimestamp()), PG_GETARG_DATUM(1)));
}

/* Milliseconds to the end; -1: for ever. */
static long
time_left(TimestampTz end)
{
	if (TIMESTAMP_IS_NOEND(end))
		return -1;
	return Min(TimestampDifferenceMilliseconds(GetCurrentTimestamp(), end) + 1, INT_MAX);
}

/* False when the time has passed. An error on the way leaves a note that costs a wake-up in vain. */
static bool
wait_for_end(int64 id, TimestampTz end, Look *look)
{
	static uint32 event = 0;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "hymt wait", ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	bool		ended;

	hymt_job_await(id);
	for (;;)
	{
		MemoryContextReset(context);
		look_at_job(id, look);
		ended = has_ended(look);
		check_own(id, look);
		if (ended || end <= GetCurrentTimestamp())
			break;
		hymt_sleep(time_left(end), hymt_wait_event(&event, "HymtJob"));
	}
	hymt_job_await(0);
	MemoryContextSwitchTo(caller);
	return ended;
}

Datum
hymt_wait(PG_FUNCTION_ARGS)
{
	Look		look;
	text	   *result;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	check_waiting();
	if (!wait_for_end(PG_GETARG_INT64(0), end_of_wait(fcinfo), &look))
		PG_RETURN_NULL();
	result = result_of(PG_GETARG_INT64(0), &look);
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(result);
}

/* --- cancelling --------------------------------------------------------------------------------------------------- */

/* False when it had ended. */
static bool
cancel_job(int64 id)
{
	static Statement statement = {
		"UPDATE %s SET state = 'cancelled', finished = clock_timestamp(), token = NULL, lease_until = NULL,"
		" next_attempt = NULL WHERE id = $1 AND state IN ('queued', 'running')"
	};
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(id)};
	Oid			table = hymt_job_table_or_raise();
	HymtAsOwner former;
	bool		cancelled;

	connect(table, &former);
	execute(plan_of(&statement, table, lengthof(types), types), values, NULL, false, SPI_OK_UPDATE);
	cancelled = SPI_processed > 0;
	disconnect(&former);
	return cancelled;
}

Datum
hymt_cancel(PG_FUNCTION_ARGS)
{
	int64		id;
	Look		look;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	hymt_check_preloaded();
	id = PG_GETARG_INT64(0);
	look_at_job(id, &look);
	if (has_ended(&look))
		PG_RETURN_BOOL(false);
	hymt_job_cancelled(id);
	PG_RETURN_BOOL(cancel_job(id));
}

/* --- logical replication ------------------------------------------------------------------------------------------ */

/*
 * Trigger of the table hymt_job that fires only where rows are applied that another server has: jobs are made by the
 * server that they were submitted to, and their numbers are that server's.
 */
Datum
hymt_job_stays(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("hymt_job_stays: not called by a trigger")));
	return PointerGetDatum(NULL);
}
