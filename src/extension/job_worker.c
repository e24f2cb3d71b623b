/*
 * job_worker.c: the database worker's task of making jobs.
 *
 * Runs in database workers. Owns the jobs that the process has claimed, each with its text and, once it is asked for, its
 * request in the queue. They are claimed and their results are stored in short transactions, some hundred at a time; the
 * requests belong to no transaction, and no transaction is open while the engine works.
 *
 * A turn: in a transaction, store the results that there are and claim more; after its commit, tell those who wait; with
 * no transaction, ask for what was claimed and take the answers that have come. What a transaction that failed has done
 * here is undone by the next turn.
 *
 * What keeps all texts from being translated, a missing model or an engine that keeps failing, is no failure of a job:
 * they wait. What is of a text itself ends its job. Anything else is tried again after a while, hymt.job_attempts times.
 */
#include "hymt.h"
#include "cache_table.h"
#include "job_internal.h"

#include "catalog/namespace.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

/* When rows or the table are locked, ms. */
#define LOCKED_MS 1000
/* How long a transaction may go on writing tables of others, ms. */
#define LONGEST_WRITES_MS 500
/* When the queue has no room, and nothing of ours that would make some, ms. */
#define FULL_QUEUE_MS 100
/* So many answers are worth a transaction, or those that have come in a time, ms. */
#define ENOUGH_ANSWERS 32
#define ANSWER_PATIENCE_MS 10
/* So many that find no room in the queue are enough to see that there is none. */
#define ENOUGH_REFUSALS 8

#define PRIORITIES 2

/* Those that are STORED are on their way out while as many others are claimed. */
static HymtJob *jobs[2 * HYMT_MOST_JOBS];
static int	job_count = 0;

/* Where claims have come to, by priority; and where they will have, when the transaction that is open commits. */
static int64 above[PRIORITIES];
static int64 above_next[PRIORITIES];
static bool more_ready = false; /* beyond that */

static bool begun = false;		/* what former workers left was taken back */
static bool begins = false;		/* … by the transaction that is open */
static bool wake_all = false;	/* some have ended that are not in `jobs` */
static TimestampTz next_retry = DT_NOBEGIN; /* when a job is to be tried again; DT_NOEND: none is */
static TimestampTz next_deletion = DT_NOBEGIN;
static TimestampTz deleted_up_to = DT_NOBEGIN;
static int	retention_seen = 0;	/* the setting by which next_deletion is */
static TimestampTz leases_seen = 0; /* those that ended before were looked at */
static int	service_failures = 0;	/* in a row */
static TimestampTz paused_until = 0;
static TimestampTz patience_ends = 0;	/* of the first answer that waits for others; 0: none does */
static bool held_up = false;	/* the last turn did not come to its end */
static bool worked = false;		/* it had the table */
static bool leaving = false;
static bool leaving_at_once = false;

/* --- jobs --------------------------------------------------------------------------------------------------------- */

static void
free_job(HymtJob *job)
{
	if (job->request != NULL)
		hymt_request_release(job->request);
	MemoryContextDelete(job->context);
}

/* Those of a stage; returns how many. */
static int
select_jobs(HymtJobStage stage, HymtJob **selected)
{
	int			count = 0;

	for (int i = 0; i < job_count; i++)
	{
		if (jobs[i]->stage == stage)
			selected[count++] = jobs[i];
	}
	return count;
}

static bool
has_stage(HymtJobStage stage)
{
	HymtJob    *selected[HYMT_MOST_JOBS];

	return select_jobs(stage, selected) > 0;
}

/* Forgets all of a stage. */
static void
forget_jobs(HymtJobStage stage)
{
	int			kept = 0;

	for (int i = 0; i < job_count; i++)
	{
		if (jobs[i]->stage == stage)
			free_job(jobs[i]);
		else
			jobs[kept++] = jobs[i];
	}
	job_count = kept;
}

static void
forget_job(HymtJob *job)
{
	for (int i = 0; i < job_count; i++)
	{
		if (jobs[i] != job)
			continue;
		jobs[i] = jobs[--job_count];
		free_job(job);
		return;
	}
}

/* How many more may be claimed. */
static int
room(void)
{
	Size		bytes = 0;
	int			count = 0;

	for (int i = 0; i < job_count; i++)
	{
		if (jobs[i]->stage == HYMT_JOB_STORED)
			continue;
		bytes += jobs[i]->length + jobs[i]->order.context_length;
		count++;
	}
	return bytes < HYMT_MOST_JOB_BYTES ? HYMT_MOST_JOBS - count : 0;
}

static void
decide_answered(void)
{
	HymtJob    *answered[HYMT_MOST_JOBS];
	int			count = select_jobs(HYMT_JOB_ANSWERED, answered);

	for (int i = 0; i < count; i++)
		hymt_job_decide(answered[i]);
}

static HymtJob *
new_job(void)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "hymt job", ALLOCSET_SMALL_SIZES);
	HymtJob    *job = MemoryContextAllocZero(context, sizeof(HymtJob));

	job->context = context;
	job->stage = HYMT_JOB_CLAIMED;
	jobs[job_count++] = job;
	return job;
}

static void
read_row(int64 token, TimestampTz lease_until, int row)
{
	HymtJob    *job = new_job();

	job->token = token;
	job->lease_until = lease_until;
	hymt_job_read(job, row);
}

/* --- claiming ----------------------------------------------------------------------------------------------------- */

/* Never the same twice. */
static int64
new_token(void)
{
	static int64 last = 0;

	if (last == 0 && !pg_strong_random(&last, sizeof(last)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random number")));
	return ++last;
}

/* Jobs that sessions have submitted, or that came back, since the last time: where they begin. 0: none. */
static int64
take_news(bool *cancelled)
{
	HymtDatabases *databases = &hymt_shared->databases;
	HymtDatabase *entry;
	int64		from;

	LWLockAcquire(databases->lock, LW_EXCLUSIVE);
	entry = hymt_database_find(MyDatabaseId, false);
	from = entry->jobs_from;
	*cancelled = entry->jobs_cancelled;
	entry->jobs_from = 0;
	entry->jobs_cancelled = false;
	LWLockRelease(databases->lock);
	return from;
}

static void
go_back_to(int64 id)
{
	for (int i = 0; i < PRIORITIES && id != 0; i++)
		above[i] = Min(above[i], id - 1);
}

/* Many requests fail for one reason. */
static void
pause_claims(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (paused_until > now)
		return;
	service_failures++;
	paused_until = hymt_retry_time(service_failures, now);
}

/* Whether requests would be refused. */
static bool
is_refused(void)
{
	bool		refused;

	LWLockAcquire(hymt_shared->lock, LW_SHARED);
	refused = hymt_best_device()->phase == HYMT_DEVICE_REFUSED;
	LWLockRelease(hymt_shared->lock);
	return refused;
}

/* Whether a claim makes sense now; else *due is when it will. */
static bool
may_claim(TimestampTz *due)
{
	TimestampTz now = GetCurrentTimestamp();

	if (leaving)
		return false;
	if (paused_until <= now && is_refused())
		pause_claims();
	if (paused_until <= now)
		return true;
	*due = *due == 0 ? paused_until : Min(*due, paused_until);
	return false;
}

static void
claim_due(const HymtJobStore *store, int64 token, TimestampTz *due)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next;
	bool		full;

	if (next_retry <= now)
	{
		(void) hymt_job_store_claim_due(store, room(), HYMT_MOST_JOB_BYTES, token, read_row, &full);
		more_ready = more_ready || full;
		next = hymt_job_store_next_attempt(store);
		/* One that is late is locked, or had no room. */
		next_retry = next == 0 ? DT_NOEND : Max(next, TimestampTzPlusMilliseconds(now, LOCKED_MS));
	}
	if (!TIMESTAMP_IS_NOEND(next_retry))
		*due = *due == 0 ? next_retry : Min(*due, next_retry);
}

static void
claim(const HymtJobStore *store, TimestampTz *due)
{
	int64		token = new_token();

	more_ready = false;
	memcpy(above_next, above, sizeof(above));
	if (!may_claim(due))
		return;
	for (int i = 0; i < PRIORITIES && room() > 0 && !more_ready; i++)
		(void) hymt_job_store_claim(store, i, above[i], room(), HYMT_MOST_JOB_BYTES, token, read_row, &above_next[i],
									&more_ready);
	if (room() > 0)
		claim_due(store, token, due);
}

/* --- storing ------------------------------------------------------------------------------------------------------ */

/* The time of writes to tables of others is limited: what is left is for the next transaction. */
static int
write_columns(HymtJob **decided, int count)
{
	TimestampTz begin = GetCurrentTimestamp();

	for (int i = 0; i < count; i++)
	{
		HymtJob    *job = decided[i];

		if (!OidIsValid(job->relation) || strcmp(job->ending.state, "done") != 0)
			continue;
		if (TimestampDifferenceExceeds(begin, GetCurrentTimestamp(), LONGEST_WRITES_MS))
			return i;
		hymt_job_write_column(job);
	}
	return count;
}

/* Those of which rows are not known to be locked. */
static int
select_decided(HymtJob **decided, TimestampTz *due)
{
	TimestampTz now = GetCurrentTimestamp();
	int			count = select_jobs(HYMT_JOB_DECIDED, decided);
	int			kept = 0;

	for (int i = 0; i < count; i++)
	{
		if (decided[i]->not_before <= now)
			decided[kept++] = decided[i];
		else
			*due = *due == 0 ? decided[i]->not_before : Min(*due, decided[i]->not_before);
	}
	return kept;
}

static void
store_decided(const HymtJobStore *store, TimestampTz *due)
{
	HymtJob    *decided[HYMT_MOST_JOBS];
	bool		gone[HYMT_MOST_JOBS];
	bool		locked[HYMT_MOST_JOBS];
	int			count = select_decided(decided, due);
	int			storable = 0;

	if (count == 0)
		return;
	hymt_job_store_look(store, decided, count, true, gone, locked);
	for (int i = 0; i < count; i++)
	{
		if (gone[i])
			forget_job(decided[i]);
		else if (locked[i])
		{
			decided[i]->not_before = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), LOCKED_MS);
			hymt_be_due(due, LOCKED_MS);
		}
		else
			decided[storable++] = decided[i];
	}
	storable = write_columns(decided, storable);
	hymt_job_store_endings(store, decided, storable);
	for (int i = 0; i < storable; i++)
	{
		decided[i]->stage = HYMT_JOB_STORED;
		if (decided[i]->ending.next_attempt != 0)
			next_retry = Min(next_retry, decided[i]->ending.next_attempt);
	}
}

/* Jobs that were cancelled, or whose rows are no more: the engine need not go on with them. */
static void
drop_cancelled(const HymtJobStore *store)
{
	HymtJob    *asked[HYMT_MOST_JOBS];
	bool		gone[HYMT_MOST_JOBS];
	bool		locked[HYMT_MOST_JOBS];
	int			count = job_count;

	if (count == 0)
		return;
	/* None is STORED yet in this turn. */
	Assert(count <= HYMT_MOST_JOBS);
	memcpy(asked, jobs, count * sizeof(HymtJob *));
	hymt_job_store_look(store, asked, count, false, gone, locked);
	for (int i = 0; i < count; i++)
	{
		if (gone[i])
			forget_job(asked[i]);
	}
}

/* Those that will not be asked for soon are others' to claim. */
static void
give_back(HymtJobStage stage)
{
	HymtJob    *given[HYMT_MOST_JOBS];
	int			count = select_jobs(stage, given);

	for (int i = 0; i < count; i++)
	{
		if (given[i]->request != NULL)
			hymt_request_release(given[i]->request);
		given[i]->request = NULL;
		given[i]->stage = HYMT_JOB_DECIDED;
		hymt_job_wait_for_service(given[i]);
	}
}

static void
take_back_interrupted(const HymtJobStore *store, TimestampTz *due)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		lowest = 0;
	bool		dead = false;

	begins = false;
	if (!begun)
	{
		begins = hymt_job_store_take_back(store, true, 0, 0, &lowest, &dead);
		if (!begins)
			hymt_be_due(due, LOCKED_MS);
		leases_seen = now;
	}
	else if (TimestampDifferenceExceeds(leases_seen, now, HYMT_JOB_LEASE_MS / 4))
	{
		if (job_count > 0)
			hymt_job_store_prolong(store, jobs, job_count, TimestampTzPlusMilliseconds(now, HYMT_JOB_LEASE_MS));
		(void) hymt_job_store_take_back(store, false, leases_seen, now, &lowest, &dead);
		leases_seen = now;
	}
	wake_all = wake_all || dead;
	go_back_to(lowest);
}

/* True when there is more to be deleted. */
static bool
delete_old(const HymtJobStore *store, TimestampTz *due)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz oldest;
	bool		more = false;

	if (hymt_job_retention != retention_seen)
		next_deletion = DT_NOBEGIN;
	retention_seen = hymt_job_retention;
	if (hymt_job_retention == 0)
		return false;
	if (next_deletion <= now)
	{
		more = hymt_job_store_delete(store, TimestampTzPlusMilliseconds(now, -1000 * (int64) hymt_job_retention), &deleted_up_to, &oldest);
		next_deletion = oldest == 0 ? DT_NOEND :
			Max(TimestampTzPlusMilliseconds(oldest, 1000 * (int64) hymt_job_retention), TimestampTzPlusMilliseconds(now, LOCKED_MS));
		if (more)
			next_deletion = now;
	}
	/* The first one of this process to end will be the oldest. */
	if (TIMESTAMP_IS_NOEND(next_deletion) && has_stage(HYMT_JOB_STORED))
		next_deletion = TimestampTzPlusMilliseconds(now, 1000 * (int64) hymt_job_retention);
	if (!TIMESTAMP_IS_NOEND(next_deletion))
		*due = *due == 0 ? next_deletion : Min(*due, next_deletion);
	return more;
}

/* --- the task ----------------------------------------------------------------------------------------------------- */

/* Whatever is known of them already, such as an answer of the cache: the table does not know of these claims. */
static void
forget_uncommitted(void)
{
	int			kept = 0;

	for (int i = 0; i < job_count; i++)
	{
		if (jobs[i]->committed)
			jobs[kept++] = jobs[i];
		else
			free_job(jobs[i]);
	}
	job_count = kept;
}

/* The last turn did not come to its end: its transaction was rolled back, if it has left something here. */
static void
undo_turn(void)
{
	next_retry = DT_NOBEGIN;
	next_deletion = DT_NOBEGIN;
	deleted_up_to = DT_NOBEGIN;
	forget_uncommitted();
	for (int i = 0; i < job_count; i++)
	{
		if (jobs[i]->stage == HYMT_JOB_STORED)
			jobs[i]->stage = HYMT_JOB_DECIDED;
	}
}

/* Statements are to use the indexes whatever statistics there are. */
static void
use_indexes(void)
{
	static const char *const settings[] = {"enable_seqscan", "enable_bitmapscan", "enable_sort"};

	for (int i = 0; i < lengthof(settings); i++)
		(void) set_config_option(settings[i], "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

static bool
work_on_table(const HymtJobStore *store, TimestampTz *due)
{
	bool		cancelled;
	bool		more;

	go_back_to(take_news(&cancelled));
	take_back_interrupted(store, due);
	if (cancelled)
		drop_cancelled(store);
	if (leaving_at_once)
		give_back(HYMT_JOB_ASKED);
	if (leaving_at_once || paused_until > GetCurrentTimestamp())
		give_back(HYMT_JOB_TO_ASK);
	store_decided(store, due);
	more = delete_old(store, due);
	claim(store, due);
	return more;
}

/* The setting: what is not on disk yet when the server crashes is done again, and nobody keeps a result that is not. */
static void
commit_asynchronously(void)
{
	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE, GUC_ACTION_LOCAL, true, 0, false);
}

bool
hymt_jobs_work(const HymtWorkplace *place, TimestampTz *due)
{
	Oid			table = get_relname_relid("hymt_job", place->schema);
	HymtJobStore store;
	HymtAsOwner former;
	bool		more;

	if (held_up)
		undo_turn();
	held_up = true;
	worked = false;
	if (!OidIsValid(table))
		return false;
	if (!ConditionalLockRelationOid(table, RowExclusiveLock))
	{
		hymt_be_due(due, LOCKED_MS);
		return false;
	}
	decide_answered();
	commit_asynchronously();
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	hymt_as_owner_begin(table, &former);
	use_indexes();
	store.table = hymt_quoted_table(table);
	more = work_on_table(&store, due);
	hymt_as_owner_end(&former);
	SPI_finish();
	worked = true;
	return more;
}

static bool
has_storable(void)
{
	HymtJob    *decided[HYMT_MOST_JOBS];
	TimestampTz due = 0;

	return select_decided(decided, &due) > 0;
}

/* It is among those that are claimed by their number, behind where claims have come to. */
static bool
is_ready_again(const HymtJob *job)
{
	return strcmp(job->ending.state, "queued") == 0 && job->ending.next_attempt == 0;
}

bool
hymt_jobs_committed(void)
{
	int64		ended[HYMT_MOST_JOBS];
	int			count = 0;
	int64		lowest = 0;
	bool		more;

	if (!worked)
		return false;
	begun = begun || begins;
	for (int i = 0; i < job_count; i++)
	{
		jobs[i]->committed = true;
		if (jobs[i]->stage == HYMT_JOB_STORED)
		{
			ended[count++] = jobs[i]->id;
			if (is_ready_again(jobs[i]) && (lowest == 0 || jobs[i]->id < lowest))
				lowest = jobs[i]->id;
		}
		else if (jobs[i]->stage == HYMT_JOB_CLAIMED)
			jobs[i]->stage = HYMT_JOB_TO_ASK;
	}
	hymt_jobs_ended(ended, count);
	if (wake_all)
		hymt_jobs_wake_all();
	wake_all = false;
	more = more_ready && memcmp(above, above_next, sizeof(above)) != 0;
	memcpy(above, above_next, sizeof(above));
	go_back_to(lowest);
	forget_jobs(HYMT_JOB_STORED);
	return (more && room() > 0) || has_stage(HYMT_JOB_ANSWERED) || has_storable();
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

/* False when there is no room now. */
static bool
ask(HymtJob *job, bool holds)
{
	HymtRequestSpec spec = hymt_request_spec(&job->order, job->utf8, job->length);

	spec.role = job->owner;
	job->request = hymt_request_offer(&spec, holds);
	if (job->request == NULL)
		return false;
	job->stage = HYMT_JOB_ASKED;
	return true;
}

static void
ask_for_claimed(TimestampTz *due)
{
	HymtJob    *waiting[HYMT_MOST_JOBS];
	int			count = select_jobs(HYMT_JOB_TO_ASK, waiting);
	bool		holds = has_stage(HYMT_JOB_ASKED);
	int			refusals = 0;

	for (int i = 0; i < count && refusals < ENOUGH_REFUSALS; i++)
	{
		if (ask(waiting[i], holds))
			holds = true;
		else
			refusals++;
	}
	/* Mostly an answer comes and makes room, but others may make some before. */
	if (refusals > 0)
		hymt_be_due(due, holds ? LOCKED_MS : FULL_QUEUE_MS);
}

static void
take_answer(HymtJob *job)
{
	HymtRequestHandle *request = job->request;
	MemoryContext caller = MemoryContextSwitchTo(job->context);

	/* Released in every case. */
	job->request = NULL;
	job->stage = HYMT_JOB_ANSWERED;
	(void) hymt_request_collect(request, true, &job->outcome);
	MemoryContextSwitchTo(caller);
	if (hymt_job_is_of_service(&job->outcome))
		pause_claims();
	else
		service_failures = 0;
}

/* Those that were asked for, and which of them are answered. Returns how many are. */
static int
find_answered(HymtJob **asked, bool *answered, int *count)
{
	HymtRequestHandle *requests[HYMT_MOST_JOBS] = {NULL};

	*count = select_jobs(HYMT_JOB_ASKED, asked);
	for (int i = 0; i < *count; i++)
		requests[i] = asked[i]->request;
	return hymt_requests_answered(requests, *count, answered);
}

static bool
take_answers(void)
{
	HymtJob    *asked[HYMT_MOST_JOBS];
	bool		answered[HYMT_MOST_JOBS];
	int			count;
	int			total = find_answered(asked, answered, &count);

	for (int i = 0; i < count; i++)
	{
		if (answered[i])
			take_answer(asked[i]);
	}
	return total > 0;
}

bool
hymt_jobs_ask(TimestampTz *due)
{
	bool		more;

	if (has_stage(HYMT_JOB_TO_ASK) && is_refused())
		pause_claims();
	if (paused_until <= GetCurrentTimestamp())
		ask_for_claimed(due);
	more = take_answers();
	patience_ends = 0;
	/* Those that were to be asked for go back to the table. */
	more = more || (paused_until > GetCurrentTimestamp() && has_stage(HYMT_JOB_TO_ASK));
	held_up = false;
	return more;
}

/*
 * While the engine has others to go on with, answers are stored some at a time: a transaction costs as much for one as for
 * many.
 */
bool
hymt_jobs_called(TimestampTz *due)
{
	HymtJob    *asked[HYMT_MOST_JOBS];
	bool		answered[HYMT_MOST_JOBS];
	int			count;
	int			total = held_up ? 0 : find_answered(asked, answered, &count);
	TimestampTz now;

	if (total == 0)
		return false;
	if (total == count || total >= ENOUGH_ANSWERS)
		return true;
	now = GetCurrentTimestamp();
	if (patience_ends == 0)
		patience_ends = TimestampTzPlusMilliseconds(now, ANSWER_PATIENCE_MS);
	*due = *due == 0 ? patience_ends : Min(*due, patience_ends);
	return patience_ends <= now;
}

bool
hymt_jobs_busy(void)
{
	return job_count > 0;
}

void
hymt_jobs_leave(bool at_once)
{
	leaving = true;
	leaving_at_once = at_once;
}

void
hymt_jobs_give_up(void)
{
	while (job_count > 0)
		forget_job(jobs[job_count - 1]);
}
