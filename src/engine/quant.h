/*
 * quant.h: the types that weights are stored in, and how those that are quantised are laid out.
 *
 * What number a stored value stands for, operation by operation, is doc/numerics.md. Only kernels turn values into
 * numbers; everybody else needs names and sizes.
 */
#ifndef HYMT_QUANT_H
#define HYMT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum HymtDtype
{
	HYMT_DTYPE_F32,
	HYMT_DTYPE_F16,
	HYMT_DTYPE_BF16,
	HYMT_DTYPE_F8_E4M3,			/* with HymtScales: one for all, or one for each row */
	HYMT_DTYPE_Q8_0,			/* blocks of GGUF, which hold their scales */
	HYMT_DTYPE_Q4_0,
	HYMT_DTYPE_Q4_K,
	HYMT_DTYPE_Q6_K,
	HYMT_DTYPE_GPTQ_INT4		/* with HymtScales; stored by column, see below */
} HymtDtype;

#define HYMT_DTYPE_COUNT (HYMT_DTYPE_GPTQ_INT4 + 1)

/* What some types store apart from their values; all zero for the others. */
typedef struct HymtScales
{
	const void *data;			/* F8: [1] or [rows]; GPTQ: [groups][rows] */
	HymtDtype	dtype;			/* F32, F16 or BF16 */
	int64_t		count;			/* of elements */
	const uint32_t *zeros;		/* GPTQ: [groups][rows / 8], 4 bits for each row, the first one lowest */
	int			zero_offset;	/* GPTQ: to be added to each of them, modulo 16 */
	int64_t		group;			/* GPTQ: consecutive columns that have a scale and a zero in common */
	const int32_t *group_of;	/* GPTQ: the group of each column; NULL: column / group */
} HymtScales;

/*
 * Row-major [rows][columns]; a vector has rows 1. Not necessarily aligned beyond its elements, which for blocks are 16
 * bits. A type with blocks has whole blocks in each row. GPTQ_INT4 is [columns / 8][rows] words of 32 bits with 8
 * consecutive columns of one row each, the first one lowest; its rows are a multiple of 8.
 */
typedef struct HymtTensor
{
	const void *data;
	HymtDtype	dtype;
	int64_t		rows;
	int64_t		columns;
	HymtScales	scales;
} HymtTensor;

/* --- blocks of GGUF ----------------------------------------------------------------------------------------------- */

#define HYMT_Q_BLOCK 32			/* columns of a small block */
#define HYMT_K_BLOCK 256		/* of a large one */

typedef struct HymtBlockQ8_0
{
	uint16_t	scale;			/* F16 */
	int8_t		values[HYMT_Q_BLOCK];
} HymtBlockQ8_0;

typedef struct HymtBlockQ4_0
{
	uint16_t	scale;			/* F16 */
	uint8_t		values[HYMT_Q_BLOCK / 2];	/* columns 0 … 15 in the low halves, 16 … 31 in the high ones */
} HymtBlockQ4_0;

/* Eight parts of 32 columns, each with a scale and a minimum of 6 bits. */
typedef struct HymtBlockQ4_K
{
	uint16_t	scale;			/* F16, of the scales */
	uint16_t	minimum;		/* F16, of the minima */
	uint8_t		parts[12];		/* 16 numbers of 6 bits, see hymt_q4_k_part() */
	uint8_t		values[HYMT_K_BLOCK / 2];	/* 32 bytes hold a part in the low halves, the next in the high ones */
} HymtBlockQ4_K;

/* Sixteen parts of 16 columns, each with a scale of 8 bits. Values are 6 bits: 4 in `low`, 2 in `high`. */
typedef struct HymtBlockQ6_K
{
	uint8_t		low[HYMT_K_BLOCK / 2];
	uint8_t		high[HYMT_K_BLOCK / 4];
	int8_t		scales[HYMT_K_BLOCK / 16];
	uint16_t	scale;			/* F16, of the scales */
} HymtBlockQ6_K;

_Static_assert(sizeof(HymtBlockQ8_0) == 34 && sizeof(HymtBlockQ4_0) == 18 && sizeof(HymtBlockQ4_K) == 144 &&
			   sizeof(HymtBlockQ6_K) == 210, "blocks are as files have them");

/* Scale and minimum of one of the eight parts. */
static inline void
hymt_q4_k_part(const HymtBlockQ4_K *block, int part, int *scale, int *minimum)
{
	const uint8_t *p = block->parts;

	if (part < 4)
	{
		*scale = p[part] & 63;
		*minimum = p[part + 4] & 63;
	}
	else
	{
		*scale = (p[part + 4] & 15) | (p[part - 4] >> 6) << 4;
		*minimum = p[part + 4] >> 4 | (p[part] >> 6) << 4;
	}
}

/* --- names and sizes ---------------------------------------------------------------------------------------------- */

extern const char *hymt_dtype_name(HymtDtype dtype);	/* as files spell it: "BF16", "Q4_K" */
extern bool hymt_dtype_plain(HymtDtype dtype);	/* F32, F16, BF16: each element is a number of its own */
extern size_t hymt_dtype_size(HymtDtype dtype); /* bytes of an element, or of a block */
extern size_t hymt_dtype_align(HymtDtype dtype);	/* of the elements or blocks in memory */
extern int	hymt_dtype_block(HymtDtype dtype);	/* columns of a block; 1 for those without */

/* Bytes of `columns` values, which are whole blocks. */
extern uint64_t hymt_dtype_bytes(HymtDtype dtype, int64_t columns);

/* Bytes at tensor->data. */
extern uint64_t hymt_tensor_bytes(const HymtTensor *tensor);

/* A piece of memory that belongs to a tensor: its values, scales, zeros, groups. */
typedef struct HymtTensorPart
{
	const void *data;
	uint64_t	bytes;
} HymtTensorPart;

#define HYMT_TENSOR_PARTS 4

/* The parts that a tensor has, values first; returns how many. */
extern int	hymt_tensor_parts(const HymtTensor *tensor, HymtTensorPart parts[HYMT_TENSOR_PARTS]);

#endif							/* HYMT_QUANT_H */
