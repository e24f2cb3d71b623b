/*
 * job_store.c: the database worker's statements about the table hymt_job.
 *
 * Runs in database workers, in a short transaction, with the rights of the table's owner. Waits for no row: one that
 * somebody has locked, who is about to cancel the job, is passed over.
 *
 * Statements find rows by the partial indexes, from where the last one has come to. Rows that have changed since are not
 * in their way, though nothing can be removed from an index while somebody holds an old snapshot. So the effort for a job
 * does not grow with the number of those that were done.
 */
#include "hymt.h"
#include "job_internal.h"

#include "catalog/pg_type.h"
#include "commands/async.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#define CHANNEL "hymt_job"
/* In one transaction. */
#define MOST_DELETED 1000
/* How often a job's attempt may be cut off by the end of the server or the worker. */
#define MOST_INTERRUPTED 20

static bool
is_null(int row, int column)
{
	bool		isnull;

	(void) SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, &isnull);
	return isnull;
}

static Datum
value(int row, int column)
{
	bool		isnull;

	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, &isnull);
}

static Datum
array_of(const int64 *numbers, int count)
{
	Datum	   *elements = palloc(Max(count, 1) * sizeof(Datum));

	for (int i = 0; i < count; i++)
		elements[i] = Int64GetDatum(numbers[i]);
	return PointerGetDatum(construct_array(elements, count, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static Datum
ids_of(HymtJob *const *jobs, int count)
{
	int64	   *ids = palloc(Max(count, 1) * sizeof(int64));

	for (int i = 0; i < count; i++)
		ids[i] = jobs[i]->id;
	return array_of(ids, count);
}

static void
execute(const HymtJobStore *store, const char *statement, int count, Oid *types, Datum *values, int expected)
{
	hymt_job_execute(psprintf(statement, store->table), count, types, values, NULL, false, expected);
}

/* --- claiming ----------------------------------------------------------------------------------------------------- */

/*
 * Of the rows that the last statement has locked, (id, bytes), as many as may be claimed: at least one. The others are
 * claimed by the next one.
 */
static int
choose(int64 *ids, Size most_bytes)
{
	Size		bytes = 0;
	int			count = 0;

	for (; count < SPI_processed; count++)
	{
		bytes += DatumGetInt32(value(count, 2));
		if (count > 0 && bytes > most_bytes)
			break;
		ids[count] = DatumGetInt64(value(count, 1));
	}
	return count;
}

/* Claims what the last statement has locked. *last, *full: as hymt_job_store_claim() has them. */
static int
claim_locked(const HymtJobStore *store, int most, Size most_bytes, int64 token, HymtJobReader read, int64 *last, bool *full)
{
	int64		ids[HYMT_MOST_JOBS];
	int			count = choose(ids, most_bytes);
	TimestampTz lease_until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), HYMT_JOB_LEASE_MS);
	Oid			types[] = {INT8ARRAYOID, INT8OID, TIMESTAMPTZOID};
	Datum		values[] = {(Datum) 0, Int64GetDatum(token), TimestampTzGetDatum(lease_until)};

	*full = SPI_processed == most || count < SPI_processed;
	if (count == 0)
		return 0;
	*last = ids[count - 1];
	values[0] = array_of(ids, count);
	execute(store, "UPDATE %s SET state = 'running', attempts = attempts + 1, token = $2, lease_until = $3,"
			" started = clock_timestamp(), next_attempt = NULL WHERE id = ANY ($1)"
			" RETURNING id, owner, attempts, source_lang, target_lang, context, on_error, options, source,"
			" rel, trigger, key_columns, key, former",
			lengthof(types), types, values, SPI_OK_UPDATE_RETURNING);
	for (int i = 0; i < SPI_processed; i++)
		read(token, lease_until, i);
	return count;
}

int
hymt_job_store_claim(const HymtJobStore *store, int priority, int64 above, int most, Size most_bytes, int64 token,
					 HymtJobReader read, int64 *last, bool *full)
{
	Oid			types[] = {INT2OID, INT8OID, INT4OID};
	Datum		values[] = {Int16GetDatum(priority), Int64GetDatum(above), Int32GetDatum(most)};

	execute(store, "SELECT id, coalesce(octet_length(source), 0) + coalesce(octet_length(context), 0) FROM %s"
			" WHERE state = 'queued' AND next_attempt IS NULL AND priority = $1 AND id > $2"
			" ORDER BY priority, id LIMIT $3 FOR UPDATE SKIP LOCKED",
			lengthof(types), types, values, SPI_OK_SELECT);
	return claim_locked(store, most, most_bytes, token, read, last, full);
}

int
hymt_job_store_claim_due(const HymtJobStore *store, int most, Size most_bytes, int64 token, HymtJobReader read, bool *full)
{
	Oid			types[] = {INT4OID};
	Datum		values[] = {Int32GetDatum(most)};
	int64		last;

	execute(store, "SELECT id, coalesce(octet_length(source), 0) + coalesce(octet_length(context), 0) FROM %s"
			" WHERE state = 'queued' AND next_attempt <= clock_timestamp()"
			" ORDER BY next_attempt LIMIT $1 FOR UPDATE SKIP LOCKED",
			lengthof(types), types, values, SPI_OK_SELECT);
	return claim_locked(store, most, most_bytes, token, read, &last, full);
}

/* The time in the first row of the last statement; 0: there is none. */
static TimestampTz
first_time(void)
{
	return SPI_processed == 0 || is_null(0, 1) ? 0 : DatumGetTimestampTz(value(0, 1));
}

TimestampTz
hymt_job_store_next_attempt(const HymtJobStore *store)
{
	execute(store, "SELECT next_attempt FROM %s WHERE state = 'queued' AND next_attempt IS NOT NULL"
			" ORDER BY next_attempt LIMIT 1", 0, NULL, NULL, SPI_OK_SELECT);
	return first_time();
}

/* --- attempts that are over --------------------------------------------------------------------------------------- */

/* Locks rows of attempts that are over. True when those are all of them. */
static bool
lock_interrupted(const HymtJobStore *store, bool all, TimestampTz from, TimestampTz to, int64 **ids, int *count)
{
	Oid			types[] = {BOOLOID, TIMESTAMPTZOID, TIMESTAMPTZOID};
	Datum		values[] = {BoolGetDatum(all), TimestampTzGetDatum(from), TimestampTzGetDatum(to)};
	const char *condition = all ? "$1 OR lease_until BETWEEN $2 AND $3" : "NOT $1 AND lease_until BETWEEN $2 AND $3";
	int			locked;

	hymt_job_execute(psprintf("SELECT id FROM %s WHERE state = 'running' AND (%s) ORDER BY id FOR UPDATE SKIP LOCKED",
							  store->table, condition), lengthof(types), types, values, NULL, false, SPI_OK_SELECT);
	locked = (int) SPI_processed;
	*ids = palloc(Max(locked, 1) * sizeof(int64));
	for (int i = 0; i < locked; i++)
		(*ids)[i] = DatumGetInt64(value(i, 1));
	*count = locked;
	hymt_job_execute(psprintf("SELECT FROM %s WHERE state = 'running' AND (%s)", store->table, condition),
					 lengthof(types), types, values, NULL, false, SPI_OK_SELECT);
	return SPI_processed <= locked;
}

static void
tell_listeners(int64 id)
{
	Async_Notify(CHANNEL, psprintf(INT64_FORMAT, id));
}

/* Tells of those that the last statement, (id, state), has ended. True when there are any. */
static bool
tell_dead(void)
{
	bool		dead = false;

	for (int i = 0; i < SPI_processed; i++)
	{
		if (strcmp(hymt_job_string(i, 2), "dead") != 0)
			continue;
		tell_listeners(DatumGetInt64(value(i, 1)));
		dead = true;
	}
	return dead;
}

bool
hymt_job_store_take_back(const HymtJobStore *store, bool all, TimestampTz from, TimestampTz to, int64 *lowest, bool *dead)
{
	int64	   *ids;
	int			count;
	bool		complete = lock_interrupted(store, all, from, to, &ids, &count);
	Oid			types[] = {INT8ARRAYOID};
	Datum		values[] = {array_of(ids, count)};

	if (count == 0)
		return complete;
	execute(store, psprintf("UPDATE %%s SET state = CASE WHEN attempts < %d THEN 'queued' ELSE 'dead' END,"
							" finished = CASE WHEN attempts < %d THEN NULL ELSE clock_timestamp() END,"
							" sqlstate = CASE WHEN attempts < %d THEN sqlstate ELSE '58000' END,"
							" message = CASE WHEN attempts < %d THEN message ELSE 'the server or its worker ended in each attempt' END,"
							" token = NULL, lease_until = NULL, next_attempt = NULL WHERE id = ANY ($1) RETURNING id, state",
							MOST_INTERRUPTED, MOST_INTERRUPTED, MOST_INTERRUPTED, MOST_INTERRUPTED),
			lengthof(types), types, values, SPI_OK_UPDATE_RETURNING);
	*dead = tell_dead() || *dead;
	*lowest = *lowest == 0 ? ids[0] : Min(*lowest, ids[0]);
	return complete;
}

void
hymt_job_store_prolong(const HymtJobStore *store, HymtJob *const *jobs, int count, TimestampTz lease_until)
{
	Oid			types[] = {INT8ARRAYOID, TIMESTAMPTZOID};
	Datum		values[] = {ids_of(jobs, count), TimestampTzGetDatum(lease_until)};

	execute(store, "UPDATE %s SET lease_until = $2 WHERE id = ANY ($1)", lengthof(types), types, values, SPI_OK_UPDATE);
}

/* --- results ------------------------------------------------------------------------------------------------------ */

static int
position_of(HymtJob *const *jobs, int count, int64 id)
{
	for (int i = 0; i < count; i++)
	{
		if (jobs[i]->id == id)
			return i;
	}
	return -1;
}

/* Clears the flag of each job whose attempt is in the result of the last statement, (id, token). */
static void
clear_found(HymtJob *const *jobs, int count, bool *flags)
{
	for (int row = 0; row < SPI_processed; row++)
	{
		int			i = position_of(jobs, count, DatumGetInt64(value(row, 1)));

		if (i >= 0 && DatumGetInt64(value(row, 2)) == jobs[i]->token)
			flags[i] = false;
	}
}

void
hymt_job_store_look(const HymtJobStore *store, HymtJob *const *jobs, int count, bool lock, bool *gone, bool *locked)
{
	Oid			types[] = {INT8ARRAYOID};
	Datum		values[] = {ids_of(jobs, count)};

	memset(gone, true, count * sizeof(bool));
	memset(locked, lock, count * sizeof(bool));
	if (lock)
	{
		execute(store, "SELECT id, token FROM %s WHERE id = ANY ($1) AND state = 'running' FOR UPDATE SKIP LOCKED",
				lengthof(types), types, values, SPI_OK_SELECT);
		clear_found(jobs, count, locked);
		if (SPI_processed == count)
		{
			memcpy(gone, locked, count * sizeof(bool));
			return;
		}
	}
	execute(store, "SELECT id, token FROM %s WHERE id = ANY ($1) AND state = 'running'",
			lengthof(types), types, values, SPI_OK_SELECT);
	clear_found(jobs, count, gone);
}

static SPIPlanPtr
prepare_ending(const HymtJobStore *store)
{
	Oid			types[] = {INT8OID, INT8OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, INT4OID, BOOLOID};
	SPIPlanPtr	plan;

	plan = SPI_prepare(psprintf("UPDATE %s SET state = $3, translation = $4, sqlstate = $5, message = $6, next_attempt = $7,"
								" attempts = attempts - $8, finished = CASE WHEN $9 THEN clock_timestamp() END,"
								" token = NULL, lease_until = NULL"
								" WHERE id = $1 AND token = $2 AND state = 'running'", store->table),
					   lengthof(types), types);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	return plan;
}

static bool
has_ended(const HymtJob *job)
{
	return strcmp(job->ending.state, "queued") != 0;
}

static Datum
text_or_null(const char *string)
{
	return string != NULL ? CStringGetTextDatum(string) : (Datum) 0;
}

static void
store_ending(SPIPlanPtr plan, const HymtJob *job)
{
	const HymtJobEnding *ending = &job->ending;
	const char *sqlstate = ending->sqlstate[0] != '\0' ? ending->sqlstate : NULL;
	/* Otherwise the column has it. */
	bool		has_translation = ending->translation != NULL && !OidIsValid(job->relation);
	Datum		values[] = {
		Int64GetDatum(job->id), Int64GetDatum(job->token), CStringGetTextDatum(ending->state),
		has_translation ? PointerGetDatum(ending->translation) : (Datum) 0, text_or_null(sqlstate), text_or_null(ending->message),
		TimestampTzGetDatum(ending->next_attempt), Int32GetDatum(ending->uncounted ? 1 : 0), BoolGetDatum(has_ended(job))
	};
	char		nulls[] = {
		' ', ' ', ' ', has_translation ? ' ' : 'n', sqlstate == NULL ? 'n' : ' ',
		ending->message == NULL ? 'n' : ' ', ending->next_attempt == 0 ? 'n' : ' ', ' ', ' '
	};
	int			result = SPI_execute_plan(plan, values, nulls, false, 0);

	if (result != SPI_OK_UPDATE)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(result));
	if (SPI_processed > 0 && has_ended(job))
		tell_listeners(job->id);
}

void
hymt_job_store_endings(const HymtJobStore *store, HymtJob *const *jobs, int count)
{
	SPIPlanPtr	plan = prepare_ending(store);

	for (int i = 0; i < count; i++)
		store_ending(plan, jobs[i]);
	(void) SPI_freeplan(plan);
}

/* --- retention ---------------------------------------------------------------------------------------------------- */

bool
hymt_job_store_delete(const HymtJobStore *store, TimestampTz before, TimestampTz *from, TimestampTz *oldest)
{
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID};
	Datum		values[] = {TimestampTzGetDatum(*from), TimestampTzGetDatum(before), Int32GetDatum(MOST_DELETED)};
	int			deleted;

	hymt_job_execute(psprintf("WITH gone AS (DELETE FROM %s WHERE id = ANY (ARRAY(SELECT id FROM %s"
							  " WHERE finished >= $1 AND finished < $2 ORDER BY finished LIMIT $3 FOR UPDATE SKIP LOCKED))"
							  " RETURNING finished) SELECT count(*)::int, max(finished) FROM gone",
							  store->table, store->table), lengthof(types), types, values, NULL, false, SPI_OK_SELECT);
	deleted = DatumGetInt32(value(0, 1));
	if (deleted > 0)
		*from = DatumGetTimestampTz(value(0, 2));
	values[0] = TimestampTzGetDatum(*from);
	execute(store, "SELECT finished FROM %s WHERE finished >= $1 ORDER BY finished LIMIT 1", 1, types, values, SPI_OK_SELECT);
	*oldest = first_time();
	return deleted == MOST_DELETED;
}
