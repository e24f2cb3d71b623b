/*
 * worker_switch.c: new settings while an engine serves.
 *
 * Runs in the worker. Settings that change by reload (model, prompt family, adapters, threads, context, memory) need a
 * new engine. It is loaded beside the old one, which goes on serving; when the new one is ready it gets all further
 * requests and the old one ends with its last answer. Where there is no memory for both (the engine says so before it
 * loads anything), the old one finishes what it has and is replaced, and callers wait. In both cases settings that
 * cannot be used leave the old ones in force.
 *
 * While no engine is ready there is nothing to be careful with, and the new settings are simply used.
 *
 * Most reloads are about something else, and must cost nobody anything. They are a chance to try again what failed, as
 * long as that disturbs neither an engine that serves nor an attempt that is under way.
 */
#include "worker_internal.h"

#include "miscadmin.h"
#include "storage/latch.h"

static HymtEngine *
other_engine(void)
{
	return hymt_worker->serving == &hymt_worker->engine[0] ? &hymt_worker->engine[1] : &hymt_worker->engine[0];
}

static bool
serving_is_ready(void)
{
	return hymt_worker->serving->conversing && hymt_worker->serving->link.ready;
}

static bool
is_wanted(const HymtEngineSettings *settings)
{
	return hymt_engine_settings_equal(settings, &hymt_worker->wanted);
}

/* A reload while nobody is served, and about something else: no more than an earlier attempt at what is refused. */
static void
hasten_attempt(void)
{
	if (hymt_worker->phase != HYMT_DEVICE_REFUSED || hymt_worker->serving->process.pid != 0)
		return;
	hymt_worker->settings = hymt_worker->wanted;
	hymt_worker_schedule_start(0);
}

/* Nobody is served now: the new settings, at once, and callers wait for what they bring. */
static void
use_wanted_settings(void)
{
	HymtEngine *serving = hymt_worker->serving;

	if (is_wanted(&hymt_worker->settings) && hymt_worker->phase != HYMT_DEVICE_REFUSED)
		return;
	hymt_worker->settings = hymt_worker->wanted;
	hymt_worker_expect_engine();
	hymt_worker_reset_failures();
	hymt_worker->phase = HYMT_DEVICE_NO_WORKER;	/* leaves REFUSED */
	if (serving->conversing)
		hymt_worker_end_conversation(serving, ENDING_PLANNED);
	else if (serving->process.pid != 0)
		serving->superseded = true;	/* its end is its own, and counts as that */
	else
		hymt_worker_schedule_start(0);
	hymt_worker_set_phase(HYMT_DEVICE_STARTING);
}

void
hymt_worker_reloaded(bool settings_changed)
{
	HymtEngine *other = other_engine();

	hymt_worker->switch_failed = false;
	if (settings_changed)
		hymt_worker->replaced_in_vain = false;
	if (other->role == ROLE_CANDIDATE && other->conversing && !is_wanted(&other->settings))
		hymt_worker_end_conversation(other, ENDING_PLANNED);
	if (!serving_is_ready() && settings_changed)
		use_wanted_settings();
	else if (!serving_is_ready())
		hasten_attempt();
	else if (hymt_worker->serving->draining)
		hymt_worker->serving->draining = !is_wanted(&hymt_worker->serving->settings);
}

/* --- loading beside the serving engine --------------------------------------------------------------------------- */

/* The wanted settings cannot be used: said in hymt_status, and by log_failed_switch() when all else is done. */
static void
switch_failed(const HymtEngineSettings *settings, const char *what)
{
	hymt_worker->switch_failed = true;
	snprintf(hymt_worker->message, sizeof(hymt_worker->message), "new settings are not in force, model \"%s\": %s",
			 settings->model, what);
	hymt_worker->failure = HYMT_FAILURE_NONE;
	hymt_worker->sqlstate = 0;
	hymt_worker_publish_error();
}

static void
log_failed_switch(void)
{
	ereport(LOG, (errmsg("hymt: %s", hymt_worker->message)));
}

static void
clear_progress(void)
{
	HymtDeviceState *device = hymt_worker_lock_device();

	device->loading_percent = 0;
	device->loading_phase[0] = '\0';
	hymt_worker_unlock_device();
}

void
hymt_worker_start_candidate(void)
{
	HymtEngine *candidate = other_engine();
	HymtFailure failure;
	char		message[HYMT_MESSAGE_MAX];

	if (!serving_is_ready() || hymt_worker->serving->draining || hymt_worker->switch_failed ||
		is_wanted(&hymt_worker->serving->settings) || candidate->role != ROLE_NONE)
		return;
	candidate->role = ROLE_CANDIDATE;
	candidate->settings = hymt_worker->wanted;
	if (hymt_worker_launch(candidate, &failure, message, sizeof(message)))
		return;
	candidate->role = ROLE_NONE;
	switch_failed(&candidate->settings, message);
	log_failed_switch();
}

/* The candidate is ready. */
void
hymt_worker_promote(HymtEngine *candidate)
{
	HymtEngine *former = hymt_worker->serving;

	hymt_worker->serving = candidate;
	hymt_worker->settings = candidate->settings;
	candidate->role = ROLE_SERVING;
	former->role = former->process.pid != 0 ? ROLE_RETIRING : ROLE_NONE;
	former->draining = true;
	SetLatch(MyLatch);			/* it may have had its turn already */
	hymt_worker_reset_failures();
	ereport(LOG,
			(errmsg("hymt: engine (PID %d) replaces engine (PID %d); requests in flight there: %d",
					(int) candidate->process.pid, (int) former->process.pid, former->in_flight)));
}

/* It was refused or died while loading. */
void
hymt_worker_candidate_gone(HymtEngine *engine, const char *what)
{
	engine->role = ROLE_NONE;
	clear_progress();
	if (engine->ending == ENDING_PLANNED || !is_wanted(&engine->settings))
		return;					/* settings changed again meanwhile */
	if (!serving_is_ready())
	{
		/* The one that served died meanwhile and starts again, so there is nothing to replace without loss. */
		switch_failed(&engine->settings, what);
		log_failed_switch();
		return;
	}
	if (engine->ending == ENDING_REFUSED && engine->refusal == HYMT_FAILURE_NO_MEMORY &&
		!hymt_worker->replaced_in_vain)
	{
		hymt_worker->serving->draining = true;
		SetLatch(MyLatch);
		ereport(LOG,
				(errmsg("hymt: no memory to load model \"%s\" beside the one that serves; it is loaded in its place",
						engine->settings.model)));
		return;
	}
	/* A refusal is published with its own words when it comes. */
	switch_failed(&engine->settings, engine->ending == ENDING_REFUSED || engine->ending == ENDING_SKEW ?
				  engine->last_words : what);
	log_failed_switch();
}

/* --- loading in the place of the serving engine ------------------------------------------------------------------- */

bool
hymt_worker_can_fall_back(void)
{
	return hymt_worker->has_proven && !hymt_engine_settings_equal(&hymt_worker->proven, &hymt_worker->settings);
}

void
hymt_worker_fall_back(const char *what)
{
	char		reason[HYMT_MESSAGE_MAX];

	strlcpy(reason, what, sizeof(reason));
	hymt_worker->replaced_in_vain = true;
	switch_failed(&hymt_worker->settings, reason);
	hymt_worker->settings = hymt_worker->proven;
	hymt_worker_reset_failures();
	hymt_worker_schedule_start(0);
	hymt_worker_set_phase(HYMT_DEVICE_STARTING);
	log_failed_switch();
}
