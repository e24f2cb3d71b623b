/*
 * job_row.c: from the row of a job to what it asks for, and from an answer to what becomes of the row.
 *
 * Runs in database workers, in a transaction. Whatever an order or a text raises is the end of its job and of nothing
 * else; it is read, looked up and converted with the rights of the job's owner, in a subtransaction.
 */
#include "hymt.h"
#include "cache.h"
#include "job_internal.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* --- endings ------------------------------------------------------------------------------------------------------ */

/* The engines are not to be had, whatever the text. */
bool
hymt_job_is_of_service(const HymtOutcome *outcome)
{
	switch (outcome->failure)
	{
		case HYMT_FAILURE_NONE:
			return false;
		case HYMT_FAILURE_MODEL_MISSING:
		case HYMT_FAILURE_MODEL_UNREADABLE:
		case HYMT_FAILURE_MODEL_BROKEN:
		case HYMT_FAILURE_MODEL_UNSUPPORTED:
			return true;
		default:
			return outcome->service_failed;
	}
}

/* Another attempt may do better. */
static bool
is_transient(int sqlstate)
{
	switch (ERRCODE_TO_CATEGORY(sqlstate))
	{
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE:
		case ERRCODE_OPERATOR_INTERVENTION:
		case ERRCODE_SYSTEM_ERROR:
		case ERRCODE_TRANSACTION_ROLLBACK:
		case ERRCODE_INTERNAL_ERROR:
			return true;
		default:
			return sqlstate == ERRCODE_HYMT_ENGINE_FAILED || sqlstate == ERRCODE_HYMT_ADAPTER ||
				sqlstate == ERRCODE_HYMT_QUEUE_TIMEOUT || sqlstate == ERRCODE_HYMT_VERSION_SKEW;
	}
}

void
hymt_job_wait_for_service(HymtJob *job)
{
	memset(&job->ending, 0, sizeof(job->ending));
	job->ending.state = "queued";
	job->ending.uncounted = true;
}

void
hymt_job_try_again(HymtJob *job)
{
	job->ending.state = "queued";
	job->ending.next_attempt = hymt_retry_time(job->attempts, GetCurrentTimestamp());
}

/* The end of a job that failed, by on_error. */
static void
fail(HymtJob *job, const char *state)
{
	job->ending.state = job->order.on_error == HYMT_ON_ERROR_RAISE ? state : "done";
	if (job->order.on_error == HYMT_ON_ERROR_SOURCE)
		job->ending.translation = job->source;
}

/* After an error, of which ending.sqlstate and message have been noted. */
static void
end_with_error(HymtJob *job, int sqlstate)
{
	if (sqlstate == ERRCODE_HYMT_ENGINE_CRASHED)
		fail(job, "dead");
	else if (!is_transient(sqlstate))
		fail(job, "failed");
	else if (job->attempts < hymt_job_attempts)
		hymt_job_try_again(job);
	else
		fail(job, "dead");
}

int
hymt_job_note_error(HymtJob *job)
{
	MemoryContext caller = MemoryContextSwitchTo(job->context);
	ErrorData  *error = CopyErrorData();

	FlushErrorState();
	memset(&job->ending, 0, sizeof(job->ending));
	strlcpy(job->ending.sqlstate, unpack_sql_state(error->sqlerrcode), sizeof(job->ending.sqlstate));
	job->ending.message = error->detail == NULL ? error->message : psprintf("%s: %s", error->message, error->detail);
	MemoryContextSwitchTo(caller);
	return error->sqlerrcode;
}

/*
 * Calls a function for a job, with the rights of its owner, in a subtransaction and in the memory context of the job. An
 * error that it raises is the job's end.
 */
static void
try_job(HymtJob *job, void (*function) (HymtJob *job))
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile int sqlstate = 0;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		Oid			user;
		int			security;

		GetUserIdAndSecContext(&user, &security);
		SetUserIdAndSecContext(job->owner, security | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
		MemoryContextSwitchTo(job->context);
		function(job);
		SetUserIdAndSecContext(user, security);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		sqlstate = hymt_job_note_error(job);
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;
	if (sqlstate != 0)
	{
		job->stage = HYMT_JOB_DECIDED;
		end_with_error(job, sqlstate);
	}
}

static void
take_translation(HymtJob *job)
{
	HymtOrder	order = job->order;
	HymtReport	report;

	/* What on_error makes of a failure is decided when it is known to be the last one. */
	order.on_error = HYMT_ON_ERROR_RAISE;
	memset(&report, 0, sizeof(report));
	job->ending.translation = hymt_text_of_outcome(job->source, &order, job->utf8, job->length, &job->outcome, &report);
	job->ending.state = "done";
}

void
hymt_job_decide(HymtJob *job)
{
	memset(&job->ending, 0, sizeof(job->ending));
	job->stage = HYMT_JOB_DECIDED;
	try_job(job, take_translation);
	/* Its message is that of the device, which is to be seen there. */
	if (hymt_job_is_of_service(&job->outcome))
		hymt_job_wait_for_service(job);
}

/* --- what was claimed --------------------------------------------------------------------------------------------- */

static text *
text_of(int row, int column)
{
	char	   *string = hymt_job_string(row, column);

	return string != NULL ? cstring_to_text(string) : NULL;
}

/* The arguments of hymt_submit() as they were given, for hymt_read_order(). */
typedef struct Arguments
{
	text	   *source_lang;
	text	   *target_lang;
	text	   *context;		/* NULL: null */
	text	   *on_error;
	Jsonb	   *options;		/* NULL: null */
} Arguments;

static Arguments arguments;		/* of the job that is being prepared */

static void
read_order(HymtJob *job)
{
	LOCAL_FCINFO(fcinfo, 8);
	Datum		values[] = {
		PointerGetDatum(job->source), PointerGetDatum(arguments.source_lang), PointerGetDatum(arguments.target_lang),
		PointerGetDatum(arguments.context), (Datum) 0, CStringGetTextDatum("text"), PointerGetDatum(arguments.on_error),
		PointerGetDatum(arguments.options)
	};

	InitFunctionCallInfoData(*fcinfo, NULL, lengthof(values), InvalidOid, NULL, NULL);
	for (int i = 0; i < lengthof(values); i++)
	{
		fcinfo->args[i].value = values[i];
		fcinfo->args[i].isnull = values[i] == (Datum) 0;
	}
	hymt_read_order(fcinfo, &job->order);
	job->order.bulk = true;
}

/* The answer, where it is known without the engine: by the same doors as in hymt_translate_text(). */
static void
prepare(HymtJob *job)
{
	HymtRequestSpec spec;
	text	   *human;

	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(job->owner)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the role that submitted the job does not exist any more")));
	read_order(job);
	if (job->source == NULL)
	{
		job->ending.state = "done";
		job->stage = HYMT_JOB_DECIDED;
		return;
	}
	job->utf8 = hymt_server_to_utf8(VARDATA_ANY(job->source), VARSIZE_ANY_EXHDR(job->source), &job->length);
	spec = hymt_request_spec(&job->order, job->utf8, job->length);
	hymt_request_check_length(&spec);
	human = hymt_human_find(&job->order, VARDATA_ANY(job->source), VARSIZE_ANY_EXHDR(job->source));
	if (human != NULL || !hymt_needs_model(&job->order, job->utf8, job->length))
	{
		job->ending.state = "done";
		job->ending.translation = human != NULL ? human : job->source;
		job->stage = HYMT_JOB_DECIDED;
	}
	else if (hymt_cache_find(&job->order, job->utf8, job->length, &job->outcome) != HYMT_CACHE_MISS)
		job->stage = HYMT_JOB_ANSWERED;
}

/* Columns of the statement that claims. */
enum
{
	ROW_ID = 1,
	ROW_OWNER,
	ROW_ATTEMPTS,
	ROW_SOURCE_LANG,
	ROW_TARGET_LANG,
	ROW_CONTEXT,
	ROW_ON_ERROR,
	ROW_OPTIONS,
	ROW_SOURCE,
	ROW_RELATION,
	ROW_TRIGGER,
	ROW_KEY_COLUMNS,
	ROW_KEY,
	ROW_FORMER
};

static Datum
row_value(int row, int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, isnull);
}

static text *
copied_text(int row, int column)
{
	bool		isnull;
	Datum		value = row_value(row, column, &isnull);

	return isnull ? NULL : DatumGetTextPCopy(value);
}

/* What a job for a column has beyond others. */
static void
read_column(HymtJob *job, int row)
{
	bool		isnull;
	Datum		relation = row_value(row, ROW_RELATION, &isnull);

	if (isnull)
		return;
	job->relation = DatumGetObjectId(relation);
	namestrcpy(&job->trigger, NameStr(*DatumGetName(row_value(row, ROW_TRIGGER, &isnull))));
	job->key_columns = DatumGetArrayTypePCopy(row_value(row, ROW_KEY_COLUMNS, &isnull));
	job->key = DatumGetArrayTypePCopy(row_value(row, ROW_KEY, &isnull));
	job->former = copied_text(row, ROW_FORMER);
}

void
hymt_job_read(HymtJob *job, int row)
{
	MemoryContext caller = MemoryContextSwitchTo(job->context);
	bool		isnull;
	Datum		options;

	job->id = DatumGetInt64(row_value(row, ROW_ID, &isnull));
	job->owner = DatumGetObjectId(row_value(row, ROW_OWNER, &isnull));
	job->attempts = DatumGetInt32(row_value(row, ROW_ATTEMPTS, &isnull));
	job->source = copied_text(row, ROW_SOURCE);
	read_column(job, row);
	arguments.source_lang = text_of(row, ROW_SOURCE_LANG);
	arguments.target_lang = text_of(row, ROW_TARGET_LANG);
	arguments.context = text_of(row, ROW_CONTEXT);
	arguments.on_error = text_of(row, ROW_ON_ERROR);
	options = row_value(row, ROW_OPTIONS, &isnull);
	arguments.options = isnull ? NULL : DatumGetJsonbPCopy(options);
	MemoryContextSwitchTo(caller);
	/* Of an order that cannot be read any more, whatever on_error was is not known. */
	job->order.on_error = HYMT_ON_ERROR_RAISE;
	try_job(job, prepare);
}
