/*
 * device_cpu.c: the CPU device. Engine process. Owns the conductor thread, the pool of helpers and the forward pass.
 *
 * The scheduler's thread hands plans over in a short queue; the conductor runs them in order and announces each result
 * through an eventfd. What the two share is under one lock. Results rotate through three slots: one that the scheduler
 * may still be reading (valid until its next poll), one waiting to be fetched, one being computed.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "budget.h"
#include "device.h"
#include "forward.h"
#include "kernels.h"
#include "machine.h"
#include "pool.h"

#define RUN_AHEAD 1
#define QUEUE_LENGTH (RUN_AHEAD + 1)
#define SLOTS (QUEUE_LENGTH + 1)

/* The result of one step. */
typedef struct Slot
{
	HymtForwardOutput output;
	int32_t    *rows;			/* [sample_count]: the rows that output.tokens belong to, for the plan that follows */
	int32_t		sample_count;
	uint64_t	step;
	double		seconds;
} Slot;

struct HymtDevice
{
	HymtDeviceInfo info;
	char		name[32];
	int			vocab;
	HymtPool   *pool;
	HymtForward *forward;
	Slot		slot[SLOTS];
	int32_t    *tokens;			/* [max_rows] of the step under way; the conductor's */

	pthread_mutex_t lock;
	pthread_cond_t submitted_or_stop;
	pthread_cond_t finished;
	pthread_t	conductor;
	bool		conductor_runs;

	/* Under the lock. Counters of plans; plan n is in queue[n % QUEUE_LENGTH], its result in slot[n % SLOTS]. */
	const HymtPlan *queue[QUEUE_LENGTH];
	uint64_t	submitted;
	uint64_t	done;
	uint64_t	fetched;
	bool		stop;
};

/* --- the conductor ----------------------------------------------------------------------------------------------- */

static double
seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec + 1e-9 * (double) now.tv_nsec;
}

/* The token that a row of the step before gave. Samples are in ascending order of rows. */
static int32_t
token_of_row(const Slot *previous, int32_t row)
{
	int32_t		low = 0;
	int32_t		high = previous->sample_count;

	while (low < high)
	{
		int32_t		middle = low + (high - low) / 2;

		if (previous->rows[middle] < row)
			low = middle + 1;
		else
			high = middle;
	}
	assert(low < previous->sample_count && previous->rows[low] == row);
	return previous->output.tokens[low];
}

static void
run_plan(HymtDevice *device, const HymtPlan *plan, Slot *slot, const Slot *previous)
{
	double		start = seconds_now();

	for (int i = 0; i < plan->row_count; i++)
	{
		const HymtRow *row = &plan->rows[i];

		device->tokens[i] = row->token == HYMT_TOKEN_FROM_PREVIOUS ? token_of_row(previous, row->previous_row)
			: row->token;
	}
	hymt_forward_run(device->forward, plan, device->tokens, &slot->output);
	slot->step = plan->step;
	slot->sample_count = plan->sample_count;
	for (int i = 0; i < plan->sample_count; i++)
		slot->rows[i] = plan->samples[i].row;
	slot->seconds = seconds_now() - start;
}

/* An eventfd counts up to 2^64 - 2, so a write of one does not block here. */
static void
announce(HymtDevice *device)
{
	uint64_t	one = 1;
	ssize_t		written;

	do
		written = write(device->info.event_fd, &one, sizeof(one));
	while (written < 0 && errno == EINTR);
}

static void *
conductor_main(void *argument)
{
	HymtDevice *device = argument;

	pthread_mutex_lock(&device->lock);
	for (;;)
	{
		uint64_t	n = device->done;
		const HymtPlan *plan;

		while (device->submitted == n && !device->stop)
			pthread_cond_wait(&device->submitted_or_stop, &device->lock);
		if (device->submitted == n)
			break;
		plan = device->queue[n % QUEUE_LENGTH];
		pthread_mutex_unlock(&device->lock);

		run_plan(device, plan, &device->slot[n % SLOTS], &device->slot[(n + SLOTS - 1) % SLOTS]);

		pthread_mutex_lock(&device->lock);
		device->done = n + 1;
		pthread_cond_signal(&device->finished);
		announce(device);
	}
	pthread_mutex_unlock(&device->lock);
	return NULL;
}

static bool
start_conductor(HymtDevice *device, HymtError *error)
{
	sigset_t	all;
	sigset_t	before;
	int			failure;

	/* Signals are the main thread's. A new thread inherits the mask. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	failure = pthread_create(&device->conductor, NULL, conductor_main, device);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failure != 0)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "could not start a thread: %s", strerror(failure));
	device->conductor_runs = true;
	return true;
}

/* --- the door ---------------------------------------------------------------------------------------------------- */

static const HymtDeviceInfo *
cpu_info(const HymtDevice *device)
{
	return &device->info;
}

/* Bugs of the scheduler show here, not as wrong memory in the middle of a step. */
static void
check_plan(const HymtDevice *device, const HymtPlan *plan)
{
#ifndef NDEBUG
	assert(plan->row_count >= 1 && plan->row_count <= device->info.max_rows);
	assert(plan->sample_count >= 0 && plan->sample_count <= device->info.max_samples);
	for (int i = 0; i < plan->row_count; i++)
	{
		const HymtRow *row = &plan->rows[i];
		const HymtRow *next = i + 1 < plan->row_count ? row + 1 : NULL;
		const HymtPlanSequence *sequence;
		int32_t		page;

		assert(row->sequence >= 0 && row->sequence < plan->sequence_count);
		sequence = &plan->sequences[row->sequence];
		assert(sequence->adapter == 0 || hymt_low_rank_has(hymt_forward_low_rank(device->forward), sequence->adapter));
		assert(row->position >= 0 && row->position < device->info.max_context);
		assert(row->position / HYMT_PAGE_TOKENS < sequence->page_count);
		page = sequence->pages[row->position / HYMT_PAGE_TOKENS];
		assert(page >= 0 && page < device->info.page_count);
		assert(row->token == HYMT_TOKEN_FROM_PREVIOUS || (row->token >= 0 && row->token < device->vocab));
		assert(next == NULL || next->sequence != row->sequence || next->position == row->position + 1);
	}
	for (int i = 0; i < plan->sample_count; i++)
	{
		const HymtSample *sample = &plan->samples[i];

		assert(sample->row >= (i > 0 ? plan->samples[i - 1].row + 1 : 0) && sample->row < plan->row_count);
		assert(sample->penalty > 0.0f);
		assert(sample->seen != NULL || sample->seen_count == 0);
		assert(sample->temperature >= 0.0f && sample->top_k >= 0);
		assert(!(sample->temperature > 0.0f) || (sample->top_p > 0.0f && sample->top_p <= 1.0f));
	}
	for (int i = 0; i < plan->copy_count; i++)
	{
		const HymtPageCopy *copy = &plan->copies[i];

		assert(copy->from >= 0 && copy->from < device->info.page_count);
		assert(copy->to >= 0 && copy->to < device->info.page_count && copy->to != copy->from);
		assert(copy->count >= 1 && copy->count <= HYMT_PAGE_TOKENS);
	}
#else
	(void) device;
	(void) plan;
#endif
}

static bool
cpu_load_adapter(HymtDevice *device, int32_t id, const HymtAdapter *adapter, HymtError *error)
{
	if (hymt_low_rank_load(hymt_forward_low_rank(device->forward), id, adapter))
		return true;
	return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "the device has no room for more than %d adapters",
					 HYMT_DEVICE_ADAPTERS);
}

static void
cpu_unload_adapter(HymtDevice *device, int32_t id)
{
	hymt_low_rank_unload(hymt_forward_low_rank(device->forward), id);
}

static void
cpu_submit(HymtDevice *device, const HymtPlan *plan)
{
	check_plan(device, plan);
	pthread_mutex_lock(&device->lock);
	assert(device->submitted - device->fetched < QUEUE_LENGTH);
	device->queue[device->submitted++ % QUEUE_LENGTH] = plan;
	pthread_cond_signal(&device->submitted_or_stop);
	pthread_mutex_unlock(&device->lock);
}

static bool
cpu_poll(HymtDevice *device, bool wait, HymtStepResult *result)
{
	const Slot *slot;
	uint64_t	one;
	ssize_t		got;

	pthread_mutex_lock(&device->lock);
	while (wait && device->done == device->fetched && device->submitted > device->fetched)
		pthread_cond_wait(&device->finished, &device->lock);
	if (device->done == device->fetched)
	{
		pthread_mutex_unlock(&device->lock);
		return false;
	}
	slot = &device->slot[device->fetched++ % SLOTS];
	/* Results are announced under the lock, so this one has been: the descriptor counts those that wait. */
	do
		got = read(device->info.event_fd, &one, sizeof(one));
	while (got < 0 && errno == EINTR);
	pthread_mutex_unlock(&device->lock);

	result->step = slot->step;
	result->tokens = slot->output.tokens;
	result->logits = slot->output.logits;
	result->logit_rows = slot->output.logit_rows;
	result->seconds = slot->seconds;
	return true;
}

static void
cpu_close(HymtDevice *device)
{
	if (device == NULL)
		return;
	if (device->conductor_runs)
	{
		pthread_mutex_lock(&device->lock);
		device->stop = true;
		pthread_cond_signal(&device->submitted_or_stop);
		pthread_mutex_unlock(&device->lock);
		pthread_join(device->conductor, NULL);
	}
	hymt_pool_close(device->pool);
	hymt_forward_close(device->forward);
	for (int i = 0; i < SLOTS; i++)
	{
		hymt_lazy_free(device->slot[i].output.logits,
					   (size_t) device->info.max_samples * (size_t) device->vocab * sizeof(float));
		free(device->slot[i].output.tokens);
		free(device->slot[i].rows);
	}
	free(device->tokens);
	if (device->info.event_fd >= 0)
		close(device->info.event_fd);
	pthread_cond_destroy(&device->finished);
	pthread_cond_destroy(&device->submitted_or_stop);
	pthread_mutex_destroy(&device->lock);
	free(device);
}

/* --- opening ----------------------------------------------------------------------------------------------------- */

/*
 * How many pages. (They take up memory only once they are used.) A size that is given is obeyed; when it holds no
 * sequence of full length, sequences must be shorter.
 */
static bool
choose_pages(HymtDeviceInfo *info, int64_t kv_bytes, HymtError *error)
{
	int64_t		pages;

	if (kv_bytes > 0)
	{
		pages = kv_bytes / info->page_bytes;
		if (pages < 1)
			return hymt_fail(error, HYMT_FAILURE_NO_MEMORY,
							 "%lld bytes of memory for keys and values do not hold one page of %lld bytes",
							 (long long) kv_bytes, (long long) info->page_bytes);
	}
	else
		pages = hymt_budget_usual_pages(info->page_bytes, info->max_context, hymt_machine_memory());
	if (pages > INT32_MAX / HYMT_PAGE_TOKENS)
		pages = INT32_MAX / HYMT_PAGE_TOKENS;
	info->page_count = (int32_t) pages;
	if (info->max_context > info->page_count * HYMT_PAGE_TOKENS)
		info->max_context = info->page_count * HYMT_PAGE_TOKENS;
	return true;
}

static bool
choose_limits(HymtDeviceInfo *info, const HymtConfig *config, const HymtDeviceOptions *options, HymtError *error)
{
	info->threads = options->threads > 0 ? options->threads : hymt_machine_processors();
	info->run_ahead = RUN_AHEAD;
	info->max_rows = options->max_rows > 0 ? options->max_rows : HYMT_DEFAULT_ROWS;
	info->max_samples = options->max_samples > 0 ? options->max_samples : info->max_rows;
	info->max_context = options->max_context > 0 ? options->max_context : HYMT_DEFAULT_CONTEXT;
	if (info->max_context > config->max_position)
		info->max_context = config->max_position;
	info->page_bytes = hymt_forward_page_bytes(config);
	return choose_pages(info, options->kv_bytes, error);
}

static bool
take_slots(HymtDevice *device, HymtError *error)
{
	size_t		samples = (size_t) device->info.max_samples;

	device->tokens = calloc((size_t) device->info.max_rows, sizeof(int32_t));
	if (device->tokens == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory for %d rows", (int) device->info.max_rows);
	for (int i = 0; i < SLOTS; i++)
	{
		Slot	   *slot = &device->slot[i];

		slot->output.tokens = calloc(samples, sizeof(int32_t));
		slot->output.logits = hymt_lazy_alloc(samples * (size_t) device->vocab * sizeof(float));
		slot->rows = calloc(samples, sizeof(int32_t));
		if (slot->output.tokens == NULL || slot->output.logits == NULL || slot->rows == NULL)
			return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory for the results of %d samples",
							 (int) device->info.max_samples);
	}
	return true;
}

static bool
open_parts(HymtDevice *device, const HymtModel *model, const HymtDeviceOptions *options, HymtError *error)
{
	const HymtKernels *kernels = hymt_kernels_find(options->isa);
	HymtDeviceInfo *info = &device->info;
	HymtForwardLimits limits;

	if (kernels == NULL)
		return hymt_fail(error, HYMT_FAILURE_UNSUPPORTED, "this machine or build has no %s",
						 hymt_isa_name(options->isa));
	snprintf(device->name, sizeof(device->name), "cpu %s", hymt_isa_name(kernels->isa));
	info->name = device->name;
	info->precision = "exact";
	if (!choose_limits(info, &model->config, options, error))
		return false;
	info->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	if (info->event_fd < 0)
		return hymt_fail(error, HYMT_FAILURE_INTERNAL, "could not make an eventfd: %s", strerror(errno));
	if (!take_slots(device, error))
		return false;
	device->pool = hymt_pool_open(info->threads, info->threads <= hymt_machine_processors(), error);
	if (device->pool == NULL)
		return false;
	limits = (HymtForwardLimits) {
		.threads = info->threads,
		.token_limit = options->token_limit > 0 && options->token_limit < device->vocab ? options->token_limit
			: device->vocab,
		.max_context = info->max_context,
		.max_rows = info->max_rows,
		.max_samples = info->max_samples,
		.page_count = info->page_count,
	};
	device->forward = hymt_forward_open(model, kernels, device->pool, &limits, error);
	return device->forward != NULL && start_conductor(device, error);
}

static HymtDevice *
cpu_open(const HymtModel *model, const HymtDeviceOptions *options, HymtError *error)
{
	HymtDevice *device = calloc(1, sizeof(*device));

	if (device == NULL)
	{
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
		return NULL;
	}
	device->vocab = model->config.vocab;
	device->info.event_fd = -1;
	pthread_mutex_init(&device->lock, NULL);
	pthread_cond_init(&device->submitted_or_stop, NULL);
	pthread_cond_init(&device->finished, NULL);
	if (!open_parts(device, model, options, error))
	{
		cpu_close(device);
		return NULL;
	}
	return device;
}

const HymtDeviceOps hymt_device_cpu = {
	.open = cpu_open,
	.info = cpu_info,
	.load_adapter = cpu_load_adapter,
	.unload_adapter = cpu_unload_adapter,
	.submit = cpu_submit,
	.poll = cpu_poll,
	.close = cpu_close,
};
