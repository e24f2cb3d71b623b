/*
 * adapter.h: a LoRA adapter as PEFT saves it: for some of a model's matrices a low-rank matrix that is added to it.
 *
 * A directory with adapter_config.json and adapter_model.safetensors. As with models, weights are mapped and never
 * copied, and when hymt_adapter_open() has returned true everything has been checked against the base model.
 */
#ifndef HYMT_ADAPTER_H
#define HYMT_ADAPTER_H

#include "error.h"
#include "model.h"

/* The matrices that may have one; in this order where they stand in a table. */
typedef enum HymtLinear
{
	HYMT_LINEAR_Q,
	HYMT_LINEAR_K,
	HYMT_LINEAR_V,
	HYMT_LINEAR_O,
	HYMT_LINEAR_GATE,
	HYMT_LINEAR_UP,
	HYMT_LINEAR_DOWN,
	HYMT_LINEARS
} HymtLinear;

#define HYMT_MAX_RANK 1024

/* W x becomes W x + b (scale * (a x)). */
typedef struct HymtLowRankPair
{
	HymtTensor	a;				/* [rank][inputs of W]; data NULL: W has none */
	HymtTensor	b;				/* [outputs of W][rank] */
	float		scale;
} HymtLowRankPair;

/* What tells a file from the one that takes its place; all zero where there is none. */
typedef struct HymtFileIdentity
{
	uint64_t	device;
	uint64_t	inode;
	int64_t		size;
	int64_t		changed;		/* nanoseconds */
} HymtFileIdentity;

typedef struct HymtAdapter
{
	char	   *directory;
	HymtFileIdentity identity[2];	/* of its two files, before they were read */
	char		fingerprint[65];	/* of its files; see fingerprint.c */
	HymtLowRankPair (*layer)[HYMT_LINEARS];	/* [layers of the model] */
	uint64_t	stored_bytes;
	struct HymtSafetensors *files;	/* owns the mapping */
} HymtAdapter;

/*
 * Map and check the adapter in `directory`. Fails with ADAPTER (whatever is wrong with its files, with the path of the
 * file and the fault) or NO_MEMORY. On success *adapter, caller's memory, must be given to hymt_adapter_close().
 */
extern bool hymt_adapter_open(HymtAdapter *adapter, const HymtModel *model, const char *directory, HymtError *error);

/* False when other files have come in the place of those that were opened. While there are none nothing has come. */
extern bool hymt_adapter_is_current(const HymtAdapter *adapter);

/*
 * Lets the kernel read the weights in the background: for an adapter that is needed in the next steps, because a step
 * that waits for the disk keeps all other sequences waiting.
 */
extern void hymt_adapter_read_ahead(const HymtAdapter *adapter);

extern void hymt_adapter_close(HymtAdapter *adapter);

#endif							/* HYMT_ADAPTER_H */
