/*
 * device.h: the door between the scheduler and whatever computes.
 *
 * One table of functions and one unit of work, the step plan. No tensor operation crosses it: a device turns rows of
 * tokens into next tokens and fuses as it likes. Devices: the CPU device (device_cpu.c) with kernels for scalar code,
 * AVX2 and AVX-512, all giving the same bits; the scalar one is the oracle for every other device.
 *
 * The door is asynchronous: submit() hands over a plan and returns, poll() fetches its result. Plans are executed in the
 * order submitted, at most info.run_ahead + 1 at a time. A row may take as its token the one that a row of the plan
 * before it produces, so that a device with run_ahead > 0 need not wait for the host.
 *
 * All functions are called from one thread, the scheduler's.
 */
#ifndef HYMT_DEVICE_H
#define HYMT_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "adapter.h"
#include "error.h"
#include "model.h"

/* Tokens per KV page. A page holds keys and values of all layers for that many consecutive positions. */
#define HYMT_PAGE_TOKENS 16

/* Adapters that a device may have loaded at a time. */
#define HYMT_DEVICE_ADAPTERS 64

/* HymtRow.token: take the token produced by row `previous_row` of the plan submitted before this one. */
#define HYMT_TOKEN_FROM_PREVIOUS (-1)

/* One token of one sequence to be computed. */
typedef struct HymtRow
{
	int32_t		token;			/* id, or HYMT_TOKEN_FROM_PREVIOUS */
	int32_t		previous_row;	/* row in the previous plan, for HYMT_TOKEN_FROM_PREVIOUS; it must have had a sample */
	int32_t		position;		/* absolute position in its sequence, 0-based */
	int32_t		sequence;		/* index into HymtPlan.sequences */
} HymtRow;

/*
 * The pages of one sequence: position p lives in pages[p / HYMT_PAGE_TOKENS]. Enough pages for every position of its rows.
 * Rows of one sequence are consecutive in the plan and their positions ascend by one; everything before the first of
 * them is already in the pages. Each row attends to all positions of its sequence up to and including its own.
 */
typedef struct HymtPlanSequence
{
	const int32_t *pages;
	int32_t		page_count;
	int32_t		adapter;		/* of a loaded adapter; 0: none */
} HymtPlanSequence;

/*
 * Keys and values of the first `count` positions of a page, to be copied into another one. Copies are made in their order,
 * before anything else of the plan. More than those positions may be copied.
 */
typedef struct HymtPageCopy
{
	int32_t		from;
	int32_t		to;
	int32_t		count;
} HymtPageCopy;

#define HYMT_SAMPLE_TOKEN  0x1	/* the next token: that with the largest logit (lowest id wins ties), or a drawn one */
#define HYMT_SAMPLE_LOGITS 0x2	/* all vocab logits, before the penalty */

/*
 * What is wanted of one row. Logits are computed for these rows only.
 *
 * Repetition penalty (CTRL, Keskar et al. 2019, as in generation_config.json): each id that occurred in prompt or answer
 * so far has its logit divided by the penalty when positive, multiplied when negative, once. `seen` lists those ids
 * without duplicates; the row's own token counts as seen whether listed or not.
 */
typedef struct HymtSample
{
	int32_t		row;			/* ascending over the plan's samples */
	uint32_t	flags;
	float		penalty;		/* 1: none */
	const int32_t *seen;		/* may be NULL when penalty is 1 */
	int32_t		seen_count;
	float		temperature;	/* 0: the largest logit after the penalty, and nothing below counts */
	int32_t		top_k;			/* 0: no limit */
	float		top_p;			/* 0 < top_p <= 1; 1: no limit */
	uint64_t	random;			/* what the token is drawn with (doc/numerics.md) */
} HymtSample;

/*
 * A step plan. The scheduler owns all memory, which stays untouched from submit() until the poll() that returns the
 * plan's result.
 */
typedef struct HymtPlan
{
	uint64_t	step;			/* counts plans, from 1 */
	HymtRow    *rows;
	int32_t		row_count;		/* 1 … info.max_rows */
	HymtPlanSequence *sequences;
	int32_t		sequence_count;
	HymtSample *samples;
	int32_t		sample_count;
	HymtPageCopy *copies;
	int32_t		copy_count;		/* at most one for each sequence */
} HymtPlan;

#define HYMT_TOKEN_NAN (-2)		/* sampled token when a logit was NaN: the request must fail */

/* Valid until the next poll(). Memory of the device. */
typedef struct HymtStepResult
{
	uint64_t	step;
	const int32_t *tokens;		/* [sample_count]; undefined without HYMT_SAMPLE_TOKEN */
	const float *logits;		/* rows of [vocab] for the samples with HYMT_SAMPLE_LOGITS, in order */
	int32_t		logit_rows;
	double		seconds;		/* the device's own time for the step */
} HymtStepResult;

typedef enum HymtIsa
{
	HYMT_ISA_AUTO,
	HYMT_ISA_SCALAR,
	HYMT_ISA_AVX2,
	HYMT_ISA_AVX512
} HymtIsa;

#define HYMT_DEFAULT_CONTEXT 8192
#define HYMT_DEFAULT_ROWS 256

typedef struct HymtDeviceOptions
{
	HymtIsa		isa;			/* AUTO: the best this machine has */
	int			threads;		/* 0: from the affinity mask and the cgroup's cpu.max */
	int			token_limit;	/* ids at or above it have no token: never chosen. 0: config.vocab */
	int32_t		max_context;	/* longest sequence, tokens; 0: the default; never more than config.max_position */
	int32_t		max_rows;		/* rows per plan; 0: the default */
	int32_t		max_samples;	/* samples per plan; 0: max_rows */
	int64_t		kv_bytes;		/* memory for pages; 0: the device's choice */
} HymtDeviceOptions;

typedef struct HymtDeviceInfo
{
	const char *name;			/* e.g. "cpu avx512" */
	const char *precision;		/* "exact" */
	int			threads;
	int32_t		run_ahead;		/* plans that may be submitted beyond the one being executed */
	int32_t		max_rows;
	int32_t		max_samples;
	int32_t		max_context;
	int32_t		page_count;
	int64_t		page_bytes;
	int			event_fd;		/* readable when a result waits, for poll(2); the device's; poll() drains it */
} HymtDeviceInfo;

typedef struct HymtDevice HymtDevice;

typedef struct HymtDeviceOps
{
	/* The model must outlive the device. */
	HymtDevice *(*open) (const HymtModel *model, const HymtDeviceOptions *options, HymtError *error);
	const HymtDeviceInfo *(*info) (const HymtDevice *device);
	/*
	 * Make an adapter available to plans under an id > 0, which the caller chooses and never gives to an adapter with
	 * other contents, so that whatever is kept by id stays true. *adapter must live until it is unloaded. Fails with
	 * NO_MEMORY; also when HYMT_DEVICE_ADAPTERS are loaded. Does not wait for steps, and no step waits for it.
	 */
	bool		(*load_adapter) (HymtDevice *device, int32_t id, const HymtAdapter *adapter, HymtError *error);
	/* No plan that is under way may use it. */
	void		(*unload_adapter) (HymtDevice *device, int32_t id);
	/* Hand over a plan. The plan is valid by construction; a violation is a bug and asserts. */
	void		(*submit) (HymtDevice *device, const HymtPlan *plan);
	/* The result of the oldest unfetched plan. wait: block until there is one; else returns false when it is not done. */
	bool		(*poll) (HymtDevice *device, bool wait, HymtStepResult *result);
	/* Waits for plans under way, then releases everything. */
	void		(*close) (HymtDevice *device);
} HymtDeviceOps;

extern const HymtDeviceOps hymt_device_cpu;

extern const char *hymt_isa_name(HymtIsa isa);
extern bool hymt_isa_parse(const char *name, HymtIsa *isa);	/* "scalar", "avx2", "avx512", "auto" */
extern bool hymt_isa_supported(HymtIsa isa);	/* by this machine and build */

#endif							/* HYMT_DEVICE_H */
