/*
 * worker_messages.c: what an engine says, and what follows from it.
 *
 * Runs in the worker. The link has checked form and order of each message; what it names may still be nonsense.
 */
#include "worker_internal.h"

#include "mb/pg_wchar.h"
#include "utils/timestamp.h"

static void
handle_loading(HymtEngine *engine, const HymtMessage *message)
{
	HymtDeviceState *device;

	hymt_worker_note_progress(engine);
	if (engine->role == ROLE_SERVING && hymt_worker->phase == HYMT_DEVICE_STARTING)
		hymt_worker_set_phase(HYMT_DEVICE_LOADING);
	device = hymt_worker_lock_device();
	device->loading_percent = (int) message->as.loading.percent;
	hymt_worker_copy_text(device->loading_phase, sizeof(device->loading_phase), message->text);
	hymt_worker_unlock_device();
}

static void
handle_ready(HymtEngine *engine, const HymtMessage *message)
{
	const HymtReady *ready = &message->as.ready;
	const HymtReadyParts *parts = &message->ready_parts;
	TimestampTz now = GetCurrentTimestamp();
	uint64		settings = hymt_engine_settings_hash(&engine->settings);
	HymtDeviceState *device;

	hymt_worker_note_progress(engine);
	engine->ready_at = now;
	engine->credits = (int) Min(ready->credits, (uint32) hymt_shared->slot_count);
	hymt_worker_copy_text(engine->fingerprint, sizeof(engine->fingerprint), parts->fingerprint);
	hymt_worker->proven = engine->settings;
	hymt_worker->has_proven = true;
	hymt_worker->failure = HYMT_FAILURE_NONE;
	hymt_worker->sqlstate = 0;
	if (engine->role == ROLE_CANDIDATE)
		hymt_worker_promote(engine);

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
	device->ready_since = now;
	device->failure = HYMT_FAILURE_NONE;
	device->sqlstate = 0;
	hymt_cache_engine_ready(device, settings);
	hymt_worker_unlock_device();
	hymt_worker_set_phase(HYMT_DEVICE_READY);
	ereport(LOG, (errmsg("hymt: engine (PID %d) is ready", (int) engine->process.pid)));
}

/*
 * No engine will come of this. Told at once, unless another one goes on serving or follows with settings that worked;
 * the process is reaped later.
 */
static void
give_up_start(HymtEngine *engine, HymtEnding ending, HymtFailure failure, int sqlstate)
{
	engine->refusal = failure;
	if (engine->role != ROLE_SERVING || hymt_worker_can_fall_back())
	{
		hymt_worker_end_conversation(engine, ending);
		return;
	}
	hymt_worker->failure = failure;
	hymt_worker->sqlstate = sqlstate;
	strlcpy(hymt_worker->message, engine->last_words, sizeof(hymt_worker->message));
	hymt_worker_publish_error();
	hymt_worker_end_conversation(engine, ending);
	hymt_worker_set_phase(HYMT_DEVICE_REFUSED);
}

/* The message is English of our own program, but the model's files have a say in it. */
static void
handle_refused(HymtEngine *engine, const HymtMessage *message)
{
	bool		known = hymt_worker->phase == HYMT_DEVICE_REFUSED;

	hymt_worker_copy_text(engine->last_words, sizeof(engine->last_words), message->text);
	give_up_start(engine, ENDING_REFUSED, (HymtFailure) message->as.refused.failure, 0);
	if (!known)
		ereport(LOG, (errmsg("hymt: engine (PID %d) refused model \"%s\": %s", (int) engine->process.pid,
							 engine->settings.model, engine->last_words)));
}

static void
handle_skew(HymtEngine *engine, const HymtMessage *message)
{
	snprintf(engine->last_words, sizeof(engine->last_words),
			 "the engine speaks version %u of the protocol, this server version %d: "
			 "restart PostgreSQL after replacing packages",
			 message->as.hello.protocol_version, HYMT_PROTOCOL_VERSION);
	give_up_start(engine, ENDING_SKEW, HYMT_FAILURE_INTERNAL, ERRCODE_HYMT_VERSION_SKEW);
}

/* Common to both kinds of answer; true when somebody may be waiting for it. */
static bool
accept_answer(HymtEngine *engine, uint32 slot, uint64 generation, bool failed)
{
	HymtDeviceState *device;

	switch (hymt_worker_land(engine, slot, generation, failed))
	{
		case HYMT_MATCH_NEVER:
			hymt_worker_end_conversation(engine, ENDING_GARBAGE);
			return false;
		case HYMT_MATCH_LATE:
			hymt_worker->dropped++;
			ereport(DEBUG1, (errmsg_internal("hymt: dropped a late or double answer, " UINT64_FORMAT " so far",
											 hymt_worker->dropped)));
			return false;
		case HYMT_MATCH_PROBE:
			return false;
		case HYMT_MATCH_IN_FLIGHT:
			break;
	}
	engine->has_answered = true;
	hymt_worker_note_progress(engine);
	device = hymt_worker_lock_device();
	device->requests++;
	device->proven = device->proven || engine->role == ROLE_SERVING;
	hymt_worker_unlock_device();
	return true;
}

/* Logs, and logging may raise: only after the answer has been handed over. */
static void
note_answered(const HymtEngine *engine)
{
	if (engine->role == ROLE_SERVING)
		hymt_worker_note_health();
}

static void
handle_result(HymtEngine *engine, const HymtMessage *message)
{
	const HymtResult *result = &message->as.result;

	if (!accept_answer(engine, result->slot, result->generation, false))
		return;
	hymt_queue_answer(hymt_worker->device, (int) result->slot, result->generation, message->text.data,
					  message->text.length, (HymtFinish) result->finish, (int) result->input_tokens,
					  (int) result->output_tokens,
					  result->fingerprint[0] != '\0' ? result->fingerprint : engine->fingerprint);
	note_answered(engine);
}

static void
handle_failure(HymtEngine *engine, const HymtMessage *message)
{
	const HymtFailureFrame *failure = &message->as.failure;

	if (!accept_answer(engine, failure->slot, failure->generation, true))
		return;
	hymt_queue_fail(hymt_worker->device, (int) failure->slot, failure->generation, (HymtFailure) failure->failure, 0,
					(HymtFinish) failure->finish, message->text.data, message->text.length);
	note_answered(engine);
}

static void
handle_piece(HymtEngine *engine, const HymtMessage *message)
{
	const HymtPieceFrame *piece = &message->as.piece;

	switch (hymt_worker_match_piece(engine, piece->slot, piece->generation))
	{
		case HYMT_MATCH_IN_FLIGHT:
			hymt_worker_note_progress(engine);
			hymt_queue_piece(hymt_worker->device, (int) piece->slot, piece->generation, message->text.data,
							 message->text.length);
			break;
		case HYMT_MATCH_LATE:
			break;				/* it was on its way when the request was cancelled */
		default:
			hymt_worker_end_conversation(engine, ENDING_GARBAGE);
			break;
	}
}

/* What a counter of the engine has grown by. */
static uint64
growth(uint64 now, uint64 before)
{
	return now - Min(now, before);
}

/* A heartbeat alone is no progress: a scheduler may hang while its process still talks. */
static void
handle_heartbeat(HymtEngine *engine, const HymtMessage *message)
{
	const HymtHeartbeat *beat = &message->as.heartbeat;
	const HymtHeartbeat *before = &engine->beat;
	const HymtStatSteps more = {
		.steps = growth(beat->steps, before->steps),
		.rows = growth(beat->sequence_steps, before->sequence_steps),
		.degraded_steps = growth(beat->degraded_steps, before->degraded_steps),
		.reused_tokens = growth(beat->reused_tokens, before->reused_tokens),
		.preemptions = growth(beat->preemptions, before->preemptions)
	};
	HymtDeviceState *device;

	if (beat->steps == before->steps)
		return;
	hymt_worker_note_progress(engine);
	device = hymt_worker_lock_device();
	device->steps += more.steps;
	device->sequence_steps += more.rows;
	hymt_stat_steps(&more, engine->progress_at);
	hymt_worker_unlock_device();
	engine->beat = *beat;
}

static void
handle_message(HymtEngine *engine, const HymtMessage *message)
{
	switch (message->frame.type)
	{
		case HYMT_FRAME_HELLO:
			hymt_worker_note_progress(engine);
			if (engine->role == ROLE_SERVING)
				hymt_worker_set_phase(HYMT_DEVICE_LOADING);
			break;
		case HYMT_FRAME_LOADING:
			handle_loading(engine, message);
			break;
		case HYMT_FRAME_READY:
			handle_ready(engine, message);
			break;
		case HYMT_FRAME_REFUSED:
			handle_refused(engine, message);
			break;
		case HYMT_FRAME_RESULT:
			handle_result(engine, message);
			break;
		case HYMT_FRAME_FAILURE:
			handle_failure(engine, message);
			break;
		case HYMT_FRAME_HEARTBEAT:
			handle_heartbeat(engine, message);
			break;
		case HYMT_FRAME_PIECE:
			handle_piece(engine, message);
			break;
		default:
			Assert(false);		/* the link lets nothing else through */
	}
}

void
hymt_worker_receive(HymtEngine *engine)
{
	HymtMessage message;

	if (!hymt_link_read(&engine->link, engine->process.socket))
	{
		hymt_worker_end_conversation(engine, ENDING_NO_MEMORY);
		return;
	}
	while (engine->conversing)
	{
		switch (hymt_link_next(&engine->link, &message))
		{
			case HYMT_LINK_NOTHING:
				if (engine->link.ended)
					hymt_worker_end_conversation(engine, ENDING_DEATH);
				return;
			case HYMT_LINK_SKEW:
				handle_skew(engine, &message);
				return;
			case HYMT_LINK_BROKEN:
				hymt_worker_end_conversation(engine, ENDING_GARBAGE);
				return;
			case HYMT_LINK_MESSAGE:
				handle_message(engine, &message);
				if (engine->conversing)
					hymt_link_done(&engine->link, &message);
				break;
		}
	}
}

