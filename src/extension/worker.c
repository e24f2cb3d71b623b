/*
 * worker.c: the background worker, one per device: it owns an engine and carries requests to it and answers back.
 *
 * Runs in the worker. Owns the engine process (engine_process.c), the conversation with it (link.c) and the table of
 * requests in flight; of shared memory it writes its own HymtDeviceState and the slots it has claimed.
 *
 * The one rule: never block. The worker sleeps in one wait event set and nowhere else, and every turn of the loop runs
 * CHECK_FOR_INTERRUPTS, because PostgreSQL waits for every process in DROP DATABASE and the like. It starts no thread,
 * maps no model and never dies by a signal of its own making: that would restart every session.
 */
#include "worker_internal.h"

#include <signal.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Longest sleep; nothing depends on it. */
#define IDLE_MS 10000

HymtWorker *hymt_worker = NULL;

/* --- the loop ---------------------------------------------------------------------------------------------------- */

static void
publish_in_flight(void)
{
	HymtDeviceState *device;

	/* Only this process writes the field, so it may read it without the lock. */
	if (hymt_shared->device[hymt_worker->device].in_flight == hymt_worker->in_flight)
		return;
	device = hymt_worker_lock_device();
	device->in_flight = hymt_worker->in_flight;
	hymt_worker_unlock_device(false);
}

static const char *
activity(void)
{
	static char text[64];

	switch (hymt_worker->phase)
	{
		case HYMT_DEVICE_READY:
			snprintf(text, sizeof(text), "hymt: requests in flight: %d", hymt_worker->in_flight);
			return text;
		case HYMT_DEVICE_LOADING:
			return "hymt: the model is loading";
		case HYMT_DEVICE_RESTARTING:
			return "hymt: the engine is being restarted";
		case HYMT_DEVICE_REFUSED:
			return "hymt: the model could not be loaded";
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
	bool		idle = hymt_worker->phase == HYMT_DEVICE_READY && hymt_worker->in_flight == 0;

	if (told_phase == hymt_worker->phase && told_in_flight == hymt_worker->in_flight)
		return;
	told_phase = hymt_worker->phase;
	told_in_flight = hymt_worker->in_flight;
	pgstat_report_activity(idle ? STATE_IDLE : STATE_RUNNING, activity());
}

/* Whether the engine owes progress: it is loading, or has something to do. */
static bool
owes_progress(void)
{
	return hymt_worker->conversing && (!hymt_worker->link.ready || hymt_worker->in_flight > 0);
}

static void
check_progress(void)
{
	if (owes_progress() &&
		TimestampDifferenceExceeds(hymt_worker->progress_at, GetCurrentTimestamp(), hymt_engine_timeout))
		hymt_worker_end_conversation(ENDING_HANG);
}

static void
reload_configuration(void)
{
	HymtEngineSettings former = hymt_worker->wanted;
	bool		refused = hymt_worker->phase == HYMT_DEVICE_REFUSED;

	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	hymt_engine_settings(&hymt_worker->wanted);
	if (hymt_engine_settings_equal(&former, &hymt_worker->wanted) && !refused)
		return;

	/* Somebody looked after it: the next attempt comes without delay, and callers wait for what it brings. */
	hymt_worker->failed_starts = 0;
	if (refused)
		hymt_worker->phase = HYMT_DEVICE_NO_WORKER;
	if (hymt_worker->conversing)
		hymt_worker->draining = !hymt_engine_settings_equal(&hymt_worker->used, &hymt_worker->wanted);
	else if (hymt_worker->process.pid != 0)
		hymt_worker->ending = ENDING_PLANNED;
	else
		hymt_worker_schedule_start(0);
	if (refused || !hymt_worker->conversing)
		hymt_worker_set_phase(HYMT_DEVICE_STARTING);
}

/* The descriptors in the set change with the engine, so it is dropped and built anew whenever they do. */
static void
build_wait_set(void)
{
	hymt_worker->wait_set = HYMT_CREATE_WAIT_EVENT_SET(4);
	AddWaitEventToSet(hymt_worker->wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(hymt_worker->wait_set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	hymt_worker->waits_for_write = false;
	hymt_worker->socket_position = -1;
	if (hymt_worker->process.socket >= 0)
		hymt_worker->socket_position = AddWaitEventToSet(hymt_worker->wait_set, WL_SOCKET_READABLE,
														 hymt_worker->process.socket, NULL, NULL);
	if (hymt_worker->process.log >= 0)
		AddWaitEventToSet(hymt_worker->wait_set, WL_SOCKET_READABLE, hymt_worker->process.log, NULL, NULL);
}

static void
drop_wait_set(void)
{
	if (hymt_worker->wait_set != NULL)
		FreeWaitEventSet(hymt_worker->wait_set);
	hymt_worker->wait_set = NULL;
}

/* One turn: everything that can be done without waiting. */
static void
turn(void)
{
	if (ConfigReloadPending)
		reload_configuration();
	if (hymt_worker->process.log >= 0)
		hymt_engine_forward_log(&hymt_worker->process);
	if (hymt_worker->conversing)
		hymt_worker_receive();
	check_progress();
	hymt_worker_release_abandoned();
	if (hymt_worker->conversing && hymt_worker->draining && hymt_worker->in_flight == 0)
		hymt_worker_end_conversation(ENDING_PLANNED);
	if (hymt_worker->process.pid != 0 && !hymt_worker->conversing)
		hymt_worker_reap_engine();
	if (hymt_worker->process.pid == 0 && GetCurrentTimestamp() >= hymt_worker->start_at)
	{
		/* Its descriptors may well have the numbers of the last one's, which the set has lost. */
		drop_wait_set();
		hymt_worker_start_engine();
	}
	if (hymt_worker->phase == HYMT_DEVICE_REFUSED)
		hymt_queue_fail_all(hymt_worker->failure, hymt_worker->sqlstate, hymt_worker->message);
	if (hymt_worker->conversing && hymt_worker->link.ready && !hymt_worker->draining)
		hymt_worker_claim_requests();
	if (hymt_worker->conversing)
		hymt_link_write(&hymt_worker->link, hymt_worker->process.socket);
	publish_in_flight();
	report_activity();
}

/* Milliseconds until the next thing that happens by itself. */
static long
sleep_ms(void)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until = TimestampTzPlusMilliseconds(now, IDLE_MS);

	if (hymt_worker->process.pid == 0)
		until = Min(until, hymt_worker->start_at);
	if (hymt_worker->process.kill_at != 0)
		until = Min(until, hymt_worker->process.kill_at);
	if (owes_progress())
		until = Min(until, TimestampTzPlusMilliseconds(hymt_worker->progress_at, hymt_engine_timeout));
	return Max(0, (long) ((until - now + 999) / 1000));
}

static void
wait_for_work(void)
{
	static uint32 idle_event = 0;
	static uint32 engine_event = 0;
	static int	socket = -1;
	static int	log = -1;
	bool		write = hymt_worker->conversing && hymt_link_unsent(&hymt_worker->link) > 0;
	bool		idle = hymt_worker->link.ready && hymt_worker->in_flight == 0;
	WaitEvent	event;

	if (hymt_worker->wait_set == NULL || socket != hymt_worker->process.socket || log != hymt_worker->process.log)
	{
		drop_wait_set();
		build_wait_set();
		socket = hymt_worker->process.socket;
		log = hymt_worker->process.log;
	}
	if (hymt_worker->socket_position >= 0 && write != hymt_worker->waits_for_write)
	{
		ModifyWaitEvent(hymt_worker->wait_set, hymt_worker->socket_position,
						WL_SOCKET_READABLE | (write ? WL_SOCKET_WRITEABLE : 0), NULL);
		hymt_worker->waits_for_write = write;
	}
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

/*
 * Runs at every orderly end, FATAL included. Requests in flight stay claimed; the next worker puts them back
 * (hymt_queue_recover), and callers who cannot wait that long leave by themselves.
 */
static void
worker_exit(int code, Datum argument)
{
	HymtDeviceState *device;
	int			status;

	if (LWLockHeldByMe(hymt_shared->lock))
		LWLockRelease(hymt_shared->lock);
	if (hymt_worker->process.pid != 0)
	{
		hymt_engine_kill(&hymt_worker->process);
		/* The server counts as stopped when we are gone, and then no engine should be left; but do not insist. */
		for (int i = 0; i < 50 && hymt_worker->process.pid != 0; i++)
		{
			if (!hymt_engine_reap(&hymt_worker->process, &status))
				pg_usleep(10 * 1000L);
		}
	}
	device = hymt_worker_lock_device();
	device->phase = HYMT_DEVICE_NO_WORKER;
	device->worker_pid = 0;
	device->worker_procno = -1;
	device->engine_pid = 0;
	device->in_flight = 0;
	hymt_worker_unlock_device(true);
}

static void
init_worker(int number)
{
	HymtDeviceState *device;

	hymt_worker = MemoryContextAllocZero(TopMemoryContext, sizeof(HymtWorker));
	hymt_worker->device = number;
	hymt_worker->flights = MemoryContextAllocHuge(TopMemoryContext, sizeof(HymtFlight) * hymt_shared->slot_count);
	hymt_engine_process_init(&hymt_worker->process);
	hymt_engine_settings(&hymt_worker->wanted);
	before_shmem_exit(worker_exit, (Datum) 0);

	device = hymt_worker_lock_device();
	device->worker_pid = MyProcPid;
	device->worker_procno = HYMT_MY_PROCNO;
	hymt_worker_unlock_device(false);
	/* A request that comes from now on sets our latch; one that came before is found by the first turn. */
	hymt_queue_recover(number);
	hymt_worker_set_phase(HYMT_DEVICE_STARTING);
}

/* An error in a turn costs that turn, not the worker and the engine that took minutes to load. */
static void
recover_from_error(void)
{
	static uint32 event = 0;

	error_context_stack = NULL;
	HOLD_INTERRUPTS();
	EmitErrorReport();
	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	pgstat_report_wait_end();
	FlushErrorState();
	RESUME_INTERRUPTS();
	/* An error that comes back at once must not fill the log. */
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1000,
					 hymt_wait_event(&event, "HymtWorkerError"));
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
		MemoryContextSwitchTo(turn_context);
		MemoryContextReset(turn_context);
		CHECK_FOR_INTERRUPTS();
		turn();
		wait_for_work();
	}
}

void
hymt_register_workers(void)
{
	BackgroundWorker registration = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_ConsistentState,
		.bgw_restart_time = 1,
		.bgw_main_arg = Int32GetDatum(0)
	};

	strlcpy(registration.bgw_library_name, "hymt", sizeof(registration.bgw_library_name));
	strlcpy(registration.bgw_function_name, "hymt_worker_main", sizeof(registration.bgw_function_name));
	strlcpy(registration.bgw_name, "hymt worker 0", sizeof(registration.bgw_name));
	strlcpy(registration.bgw_type, "hymt worker", sizeof(registration.bgw_type));
	RegisterBackgroundWorker(&registration);
}
