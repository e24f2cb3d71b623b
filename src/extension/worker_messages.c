/*
 * worker_messages.c: what the engine says, and what follows from it.
 *
 * Runs in the worker. The link has checked form and order of each message; what it names may still be nonsense.
 */
#include "worker_internal.h"

#include "mb/pg_wchar.h"
#include "utils/timestamp.h"

static void
handle_loading(const HymtMessage *message)
{
	HymtDeviceState *device;

	hymt_worker_note_progress();
	if (hymt_worker->phase == HYMT_DEVICE_STARTING)
		hymt_worker_set_phase(HYMT_DEVICE_LOADING);
	device = hymt_worker_lock_device();
	device->loading_percent = (int) message->as.loading.percent;
	hymt_worker_copy_text(device->loading_phase, sizeof(device->loading_phase), message->text);
	hymt_worker_unlock_device(false);
}

static void
handle_ready(const HymtMessage *message)
{
	const HymtReady *ready = &message->as.ready;
	const HymtReadyParts *parts = &message->ready_parts;
	TimestampTz now = GetCurrentTimestamp();
	HymtDeviceState *device;

	hymt_worker_note_progress();
	hymt_worker->was_ready = true;
	hymt_worker->credits = (int) Min(ready->credits, (uint32) hymt_shared->slot_count);
	hymt_worker->failure = HYMT_FAILURE_NONE;
	hymt_worker->sqlstate = 0;

	device = hymt_worker_lock_device();
	device->loading_percent = 100;
	device->loading_phase[0] = '\0';
	hymt_worker_copy_text(device->model, sizeof(device->model), parts->name);
	hymt_worker_copy_text(device->family, sizeof(device->family), parts->family);
	hymt_worker_copy_text(device->fingerprint, sizeof(device->fingerprint), parts->fingerprint);
	hymt_worker_copy_text(device->precision, sizeof(device->precision), parts->precision);
	hymt_worker_copy_text(device->device, sizeof(device->device), parts->device);
	hymt_worker_copy_text(device->languages, sizeof(device->languages), parts->languages);
	device->parameters = ready->parameters;
	device->weight_bytes = ready->weight_bytes;
	device->threads = (int) ready->threads;
	device->max_context = (int) ready->max_context;
	device->credits = hymt_worker->credits;
	device->ready_since = now;
	device->failure = HYMT_FAILURE_NONE;
	device->sqlstate = 0;
	hymt_worker_unlock_device(false);
	hymt_worker_set_phase(HYMT_DEVICE_READY);
	ereport(LOG, (errmsg("hymt: engine (PID %d) is ready", (int) hymt_worker->process.pid)));
}

/*
 * The refusal is told at once, the process reaped later. Its message is English of our own program, but the model's
 * files have a say in it.
 */
static void
handle_refused(const HymtMessage *message)
{
	bool		first = hymt_worker->phase != HYMT_DEVICE_REFUSED;

	hymt_worker->failure = (HymtFailure) message->as.refused.failure;
	hymt_worker->sqlstate = 0;
	hymt_worker_copy_text(hymt_worker->message, sizeof(hymt_worker->message), message->text);
	if (first)
		ereport(LOG, (errmsg("hymt: engine (PID %d) refused model \"%s\": %s", (int) hymt_worker->process.pid,
							 hymt_worker->used.model, hymt_worker->message)));
	hymt_worker_publish_error();
	hymt_worker_end_conversation(ENDING_REFUSED);
	hymt_worker_set_phase(HYMT_DEVICE_REFUSED);
}

static void
handle_skew(const HymtMessage *message)
{
	hymt_worker->failure = HYMT_FAILURE_INTERNAL;
	hymt_worker->sqlstate = ERRCODE_HYMT_VERSION_SKEW;
	snprintf(hymt_worker->message, sizeof(hymt_worker->message),
			 "the engine speaks version %u of the protocol, this server version %d: "
			 "restart PostgreSQL after replacing packages",
			 message->as.hello.protocol_version, HYMT_PROTOCOL_VERSION);
	hymt_worker_publish_error();
	hymt_worker_end_conversation(ENDING_SKEW);
	hymt_worker_set_phase(HYMT_DEVICE_REFUSED);
}

/* Common to both kinds of answer; true when somebody may be waiting for it. */
static bool
accept_answer(uint32 slot, uint64 generation)
{
	HymtDeviceState *device;

	switch (hymt_worker_land(slot, generation))
	{
		case HYMT_MATCH_NEVER:
			hymt_worker_end_conversation(ENDING_GARBAGE);
			return false;
		case HYMT_MATCH_LATE:
			hymt_worker->dropped++;
			ereport(DEBUG1, (errmsg_internal("hymt: dropped a late or double answer, " UINT64_FORMAT " so far",
											 hymt_worker->dropped)));
			return false;
		case HYMT_MATCH_IN_FLIGHT:
			break;
	}
	hymt_worker->has_answered = true;
	hymt_worker->failed_starts = 0;
	hymt_worker_note_progress();
	device = hymt_worker_lock_device();
	device->requests++;
	hymt_worker_unlock_device(false);
	return true;
}

static void
handle_result(const HymtMessage *message)
{
	const HymtResult *result = &message->as.result;

	if (accept_answer(result->slot, result->generation))
		hymt_queue_answer(hymt_worker->device, (int) result->slot, result->generation, message->text.data,
						  message->text.length, (HymtFinish) result->finish, (int) result->input_tokens,
						  (int) result->output_tokens);
}

static void
handle_failure(const HymtMessage *message)
{
	const HymtFailureFrame *failure = &message->as.failure;

	if (accept_answer(failure->slot, failure->generation))
		hymt_queue_fail(hymt_worker->device, (int) failure->slot, failure->generation, (HymtFailure) failure->failure, 0,
						(HymtFinish) failure->finish, message->text.data, message->text.length);
}

/* A heartbeat alone is no progress: a scheduler may hang while its process still talks. */
static void
handle_heartbeat(const HymtMessage *message)
{
	const HymtHeartbeat *beat = &message->as.heartbeat;
	uint64		steps = beat->steps - Min(beat->steps, hymt_worker->steps);
	uint64		rows = beat->sequence_steps - Min(beat->sequence_steps, hymt_worker->sequence_steps);
	HymtDeviceState *device;

	if (beat->steps == hymt_worker->steps)
		return;
	hymt_worker_note_progress();
	device = hymt_worker_lock_device();
	device->steps += steps;
	device->sequence_steps += rows;
	hymt_stat_steps(steps, rows, hymt_worker->progress_at);
	hymt_worker_unlock_device(false);
	hymt_worker->steps = beat->steps;
	hymt_worker->sequence_steps = beat->sequence_steps;
}

static void
handle_message(const HymtMessage *message)
{
	switch (message->frame.type)
	{
		case HYMT_FRAME_HELLO:
			hymt_worker_note_progress();
			hymt_worker_set_phase(HYMT_DEVICE_LOADING);
			break;
		case HYMT_FRAME_LOADING:
			handle_loading(message);
			break;
		case HYMT_FRAME_READY:
			handle_ready(message);
			break;
		case HYMT_FRAME_REFUSED:
			handle_refused(message);
			break;
		case HYMT_FRAME_RESULT:
			handle_result(message);
			break;
		case HYMT_FRAME_FAILURE:
			handle_failure(message);
			break;
		case HYMT_FRAME_HEARTBEAT:
			handle_heartbeat(message);
			break;
		default:
			Assert(false);		/* the link lets nothing else through */
	}
}

void
hymt_worker_receive(void)
{
	HymtMessage message;

	if (!hymt_link_read(&hymt_worker->link, hymt_worker->process.socket))
	{
		hymt_worker_end_conversation(ENDING_NO_MEMORY);
		return;
	}
	while (hymt_worker->conversing)
	{
		switch (hymt_link_next(&hymt_worker->link, &message))
		{
			case HYMT_LINK_NOTHING:
				if (hymt_worker->link.ended)
					hymt_worker_end_conversation(ENDING_DEATH);
				return;
			case HYMT_LINK_SKEW:
				handle_skew(&message);
				return;
			case HYMT_LINK_BROKEN:
				hymt_worker_end_conversation(ENDING_GARBAGE);
				return;
			case HYMT_LINK_MESSAGE:
				handle_message(&message);
				if (hymt_worker->conversing)
					hymt_link_done(&hymt_worker->link, &message);
				break;
		}
	}
}

