/*
 * worker.c: the background worker, one per device: it owns an engine and carries requests to it and answers back.
 *
 * Runs in the worker. Owns the engine processes (engine_process.c), the conversations with them (link.c) and the tables
 * of requests in flight; of shared memory it writes its own HymtDeviceState and the slots it has claimed. It has one
 * engine, and a second one while settings change.
 *
 * The one rule: never block. The worker sleeps in one wait event set and nowhere else, and every turn of the loop runs
 * CHECK_FOR_INTERRUPTS, because PostgreSQL waits for every process in DROP DATABASE and the like. It starts no thread,
 * maps no model and never dies by a signal of its own making: that would restart every session.
 */
#include "worker_internal.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "postmaster/bgworker_internals.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "storage/sinval.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/*
 * Longest sleep. What is to be done comes with a latch, a descriptor or a time of its own; this bounds the damage should
 * one be missed.
 */
#define IDLE_MS 10000

/* After an error in a turn. */
#define ERROR_PAUSE_MS 1000

HymtWorker *hymt_worker = NULL;

/* --- the loop ---------------------------------------------------------------------------------------------------- */

static void
publish_in_flight(void)
{
	int			in_flight = hymt_worker_in_flight();
	HymtDeviceState *device;

	/* Only this process writes the field, so it may read it without the lock. */
	if (hymt_shared->device[hymt_worker->device].in_flight == in_flight)
		return;
	device = hymt_worker_lock_device();
	device->in_flight = in_flight;
	hymt_worker_unlock_device();
}

static const char *
activity(void)
{
	static char text[64];

	switch (hymt_worker->phase)
	{
		case HYMT_DEVICE_READY:
			snprintf(text, sizeof(text), "hymt: requests in flight: %d", hymt_worker_in_flight());
			return text;
		case HYMT_DEVICE_LOADING:
			return "hymt: the model is loading";
		case HYMT_DEVICE_RESTARTING:
			return "hymt: the engine is being restarted";
		case HYMT_DEVICE_REFUSED:
			return hymt_worker->tripped ? "hymt: the engine keeps failing" : "hymt: the model could not be loaded";
		default:
			return "hymt: the engine is starting";
	}
}

/* What pg_stat_activity shows of this process; told when it changes. */
static void
report_activity(void)
{
	static HymtDevicePhase told_phase = HYMT_DEVICE_NO_WORKER;
	static int	told_in_flight = -1;
	bool		idle = hymt_worker->phase == HYMT_DEVICE_READY && hymt_worker_in_flight() == 0;

	if (told_phase == hymt_worker->phase && told_in_flight == hymt_worker_in_flight())
		return;
	told_phase = hymt_worker->phase;
	told_in_flight = hymt_worker_in_flight();
	pgstat_report_activity(idle ? STATE_IDLE : STATE_RUNNING, activity());
}

/* Whether the engine owes progress: it is loading, or has something to do. */
static bool
owes_progress(const HymtEngine *engine)
{
	return engine->conversing && (!engine->link.ready || engine->in_flight > 0 || engine->probed_at != 0);
}

static void
check_progress(HymtEngine *engine)
{
	if (owes_progress(engine) &&
		TimestampDifferenceExceeds(engine->progress_at, GetCurrentTimestamp(), hymt_engine_timeout))
		hymt_worker_end_conversation(engine, ENDING_HANG);
}

static void
check_health(void)
{
	TimestampTz healthy_at = hymt_worker_healthy_at();

	if (healthy_at != 0 && GetCurrentTimestamp() >= healthy_at)
		hymt_worker_note_health();
}

static void
reload_configuration(void)
{
	HymtEngineSettings former = hymt_worker->wanted;

	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	hymt_engine_settings(&hymt_worker->wanted);
	hymt_worker_reloaded(!hymt_engine_settings_equal(&hymt_worker->wanted, &former));
}

/* The descriptors in the set change with the engines, so it is dropped and built anew whenever they do. */
void
hymt_worker_drop_wait_set(void)
{
	if (hymt_worker->wait_set != NULL)
		FreeWaitEventSet(hymt_worker->wait_set);
	hymt_worker->wait_set = NULL;
}

static void
build_wait_set(void)
{
	WaitEventSet *set = HYMT_CREATE_WAIT_EVENT_SET(2 + 2 * HYMT_ENGINES);

	/* At once, as adding may raise: recover_from_error() drops what is incomplete, which else is lost. */
	hymt_worker->wait_set = set;
	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	for (int i = 0; i < HYMT_ENGINES; i++)
	{
		HymtEngine *engine = &hymt_worker->engine[i];

		engine->waits_for_write = false;
		engine->socket_position = -1;
		if (engine->process.socket >= 0)
			engine->socket_position = AddWaitEventToSet(set, WL_SOCKET_READABLE, engine->process.socket, NULL, NULL);
		if (engine->process.log >= 0)
			AddWaitEventToSet(set, WL_SOCKET_READABLE, engine->process.log, NULL, NULL);
	}
}

/* Whether a descriptor was closed or opened since the last call. */
static bool
descriptors_changed(void)
{
	static int	known[2 * HYMT_ENGINES];
	bool		changed = false;

	for (int i = 0; i < HYMT_ENGINES; i++)
	{
		const HymtEngineProcess *process = &hymt_worker->engine[i].process;

		changed = changed || known[2 * i] != process->socket || known[2 * i + 1] != process->log;
		known[2 * i] = process->socket;
		known[2 * i + 1] = process->log;
	}
	return changed;
}

/* One engine's part of a turn. */
static void
tend_engine(HymtEngine *engine)
{
	if (engine->process.log >= 0)
		hymt_engine_forward_log(&engine->process);
	if (engine->conversing)
		hymt_worker_receive(engine);
	check_progress(engine);
	if (engine->conversing && engine->draining && engine->in_flight == 0)
		hymt_worker_end_conversation(engine, ENDING_PLANNED);
	if (engine->process.pid != 0 && !engine->conversing)
		hymt_worker_reap_engine(engine);
}

/* One turn: everything that can be done without waiting. */
static void
turn(void)
{
	if (ConfigReloadPending)
		reload_configuration();
	hymt_worker_release_abandoned();
	for (int i = 0; i < HYMT_ENGINES; i++)
		tend_engine(&hymt_worker->engine[i]);
	check_health();
	if (hymt_worker->serving->process.pid == 0 && GetCurrentTimestamp() >= hymt_worker->start_at)
		hymt_worker_start_serving();
	hymt_worker_start_candidate();
	if (hymt_worker->phase == HYMT_DEVICE_REFUSED && hymt_worker_is_last_hope())
		hymt_queue_fail_all(hymt_worker->failure, hymt_worker->sqlstate, hymt_worker->message);
	hymt_worker_measure(hymt_worker->serving);
	hymt_worker_claim_requests();
	for (int i = 0; i < HYMT_ENGINES; i++)
	{
		if (hymt_worker->engine[i].conversing)
			hymt_link_write(&hymt_worker->engine[i].link, hymt_worker->engine[i].process.socket);
	}
	publish_in_flight();
	report_activity();
}

/* Milliseconds until the next thing that happens by itself. */
static long
sleep_ms(void)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until = TimestampTzPlusMilliseconds(now, IDLE_MS);
	TimestampTz healthy_at = hymt_worker_healthy_at();

	if (hymt_worker->serving->process.pid == 0)
		until = Min(until, hymt_worker->start_at);
	if (healthy_at != 0)
		until = Min(until, healthy_at);
	if (hymt_worker->serving->claims_at != 0)
		until = Min(until, hymt_worker->serving->claims_at);
	for (int i = 0; i < HYMT_ENGINES; i++)
	{
		const HymtEngine *engine = &hymt_worker->engine[i];

		if (engine->process.kill_at != 0)
			until = Min(until, engine->process.kill_at);
		if (owes_progress(engine))
			until = Min(until, TimestampTzPlusMilliseconds(engine->progress_at, hymt_engine_timeout));
	}
	return Max(0, (long) ((until - now + 999) / 1000));
}

static void
watch_for_write(HymtEngine *engine)
{
	bool		write = engine->conversing && hymt_link_unsent(&engine->link) > 0;

	if (engine->socket_position < 0 || write == engine->waits_for_write)
		return;
	ModifyWaitEvent(hymt_worker->wait_set, engine->socket_position,
					WL_SOCKET_READABLE | (write ? WL_SOCKET_WRITEABLE : 0), NULL);
	engine->waits_for_write = write;
}

static void
wait_for_work(void)
{
	static uint32 idle_event = 0;
	static uint32 engine_event = 0;
	bool		idle = hymt_worker->phase == HYMT_DEVICE_READY && hymt_worker_in_flight() == 0;
	WaitEvent	event;

	if (descriptors_changed())
		hymt_worker_drop_wait_set();
	if (hymt_worker->wait_set == NULL)
		build_wait_set();
	for (int i = 0; i < HYMT_ENGINES; i++)
		watch_for_write(&hymt_worker->engine[i]);
	WaitEventSetWait(hymt_worker->wait_set, sleep_ms(), &event, 1,
					 idle ? hymt_wait_event(&idle_event, "HymtWorkerIdle") :
					 hymt_wait_event(&engine_event, "HymtEngine"));
	ResetLatch(MyLatch);
}

/* --- start and end of the worker --------------------------------------------------------------------------------- */

/* A child ended: look for it now. Nothing else may be done in a signal handler. */
static void
handle_sigchld(SIGNAL_ARGS)
{
	int			save_errno = errno;

	SetLatch(MyLatch);
	errno = save_errno;
}

/* The server counts as stopped when we are gone, and then no engine should be left; but do not insist. */
static void
end_engines(void)
{
	int			status;

	for (int i = 0; i < HYMT_ENGINES; i++)
	{
		if (hymt_worker->engine[i].process.pid != 0)
			hymt_engine_kill(&hymt_worker->engine[i].process);
	}
	for (int i = 0; i < HYMT_ENGINES; i++)
	{
		HymtEngineProcess *process = &hymt_worker->engine[i].process;

		for (int n = 0; n < 50 && process->pid != 0; n++)
		{
			if (!hymt_engine_reap(process, &status))
				pg_usleep(10 * 1000L);
		}
	}
}

/*
 * Runs at every orderly end, FATAL included. Requests in flight go back to the queue, for the next worker or those of
 * other devices; callers who cannot wait that long leave by themselves. (What an end that is not orderly leaves claimed
 * is not seen again: the postmaster lays out shared memory anew.)
 */
static void
worker_exit(int code, Datum argument)
{
	TimestampTz now;
	HymtDeviceState *device;

	if (LWLockHeldByMe(hymt_shared->lock))
		LWLockRelease(hymt_shared->lock);
	end_engines();
	now = GetCurrentTimestamp();
	device = hymt_worker_lock_device();
	device->phase = HYMT_DEVICE_NO_WORKER;
	device->no_worker_since = now;
	device->worker_pid = 0;
	device->worker_procno = -1;
	device->engine_pid = 0;
	device->in_flight = 0;
	device->proven = false;
	device->pace = 0;
	device->probed_at = 0;
	hymt_cache_devices_changed();
	hymt_worker_unlock_device();
	hymt_queue_recover(hymt_worker->device);
	hymt_worker_wake_others();
}

static void
init_worker(int number)
{
	HymtDeviceState *device;

	hymt_worker = MemoryContextAllocZero(TopMemoryContext, sizeof(HymtWorker));
	hymt_worker->device = number;
	for (int i = 0; i < HYMT_ENGINES; i++)
	{
		hymt_worker->engine[i].flights = MemoryContextAllocHuge(TopMemoryContext,
																sizeof(HymtFlight) * hymt_shared->slot_count);
		hymt_engine_process_init(&hymt_worker->engine[i].process);
	}
	hymt_worker->serving = &hymt_worker->engine[0];
	hymt_worker->serving->role = ROLE_SERVING;
	hymt_engine_settings(&hymt_worker->wanted);
	hymt_worker->settings = hymt_worker->wanted;
	before_shmem_exit(worker_exit, (Datum) 0);

	device = hymt_worker_lock_device();
	device->worker_pid = MyProcPid;
	device->worker_procno = HYMT_MY_PROCNO;
	hymt_worker_unlock_device();
	/* A request that comes from now on sets our latch; one that came before is found by the first turn. */
	hymt_queue_recover(number);
	hymt_worker_set_phase(HYMT_DEVICE_STARTING);
}

/*
 * An error that comes back at once must not fill the log, however often the latch is set meanwhile: only the end of the
 * worker makes the pause shorter.
 */
static void
pause_after_error(void)
{
	static uint32 event = 0;
	instr_time	begun;
	long		left = ERROR_PAUSE_MS;

	INSTR_TIME_SET_CURRENT(begun);
	while (left > 0)
	{
		instr_time	passed;

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, left,
						 hymt_wait_event(&event, "HymtWorkerError"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		INSTR_TIME_SET_CURRENT(passed);
		INSTR_TIME_SUBTRACT(passed, begun);
		left = ERROR_PAUSE_MS - (long) INSTR_TIME_GET_MILLISEC(passed);
	}
}

/* An error in a turn costs that turn, not the worker and the engine that took minutes to load. */
static void
recover_from_error(void)
{
	error_context_stack = NULL;
	HOLD_INTERRUPTS();
	EmitErrorReport();
	AbortCurrentTransaction();	/* hymt_catch_up_with_invalidations() makes one */
	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	pgstat_report_wait_end();
	hymt_worker_drop_wait_set();
	FlushErrorState();
	RESUME_INTERRUPTS();
	pause_after_error();
}

/*
 * Invalidations of catalog caches mean nothing to a process that reads none, but one that leaves them unread delays the
 * others: they are told of their own delay one after the other, each by the one before. Core's launchers do the same; it
 * is an empty transaction.
 */
void
hymt_catch_up_with_invalidations(void)
{
	if (catchupInterruptPending)
		ProcessCatchupInterrupt();
}

void
hymt_worker_main(Datum argument)
{
	sigjmp_buf	on_error;
	MemoryContext turn_context;

	/* Ours before unblocking: the default handlers of background workers report from within the handler. */
	pqsignal(SIGTERM, die);
	pqsignal(SIGINT, SIG_IGN);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGCHLD, handle_sigchld);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname("hymt worker");

	turn_context = AllocSetContextCreate(TopMemoryContext, "hymt worker turn", ALLOCSET_DEFAULT_SIZES);
	hymt_check_preloaded();
	init_worker(DatumGetInt32(argument));

	if (sigsetjmp(on_error, 1) != 0)
		recover_from_error();
	PG_exception_stack = &on_error;
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		hymt_catch_up_with_invalidations();
		MemoryContextSwitchTo(turn_context);
		MemoryContextReset(turn_context);
		turn();
		wait_for_work();
	}
}

/* How many of ours the postmaster has taken, the launcher of database workers among them. */
static int
registered_processes(void)
{
	int			count = 0;
	HYMT_REGISTERED_WORKER_ITER iter;

	HYMT_REGISTERED_WORKER_FOREACH(iter)
	{
		const BackgroundWorker *worker = HYMT_REGISTERED_WORKER(iter);

		if (strcmp(worker->bgw_library_name, "hymt") == 0)
			count++;
	}
	return count;
}

void
hymt_register_workers(void)
{
	for (int i = 0; i < hymt_devices; i++)
	{
		BackgroundWorker registration = {
			.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
			.bgw_start_time = BgWorkerStart_ConsistentState,
			.bgw_restart_time = 1,
			.bgw_main_arg = Int32GetDatum(i)
		};

		strlcpy(registration.bgw_library_name, "hymt", sizeof(registration.bgw_library_name));
		strlcpy(registration.bgw_function_name, "hymt_worker_main", sizeof(registration.bgw_function_name));
		snprintf(registration.bgw_name, sizeof(registration.bgw_name), "hymt worker %d", i);
		strlcpy(registration.bgw_type, "hymt worker", sizeof(registration.bgw_type));
		RegisterBackgroundWorker(&registration);
	}
}

void
hymt_check_registered(void)
{
	int			needed = hymt_devices + 1;
	int			registered = registered_processes();

	if (registered < needed)
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("hymt: %d of max_worker_processes are needed, %d were left", needed, registered),
				 errdetail("max_worker_processes is %d, and others take of it too.", max_worker_processes),
				 errhint("Raise max_worker_processes by at least %d and restart PostgreSQL.", needed - registered)));
}
