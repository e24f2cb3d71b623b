/*
 * quant.c: names and sizes of the types that weights are stored in.
 *
 * Runs in the engine program. Owns nothing but constants.
 */
#include "quant.h"

typedef struct Format
{
	const char *name;
	int			block;			/* columns */
	size_t		size;			/* bytes of a block */
	size_t		align;
} Format;

static const Format formats[HYMT_DTYPE_COUNT] = {
	[HYMT_DTYPE_F32] = {"F32", 1, 4, 4},
	[HYMT_DTYPE_F16] = {"F16", 1, 2, 2},
	[HYMT_DTYPE_BF16] = {"BF16", 1, 2, 2},
	[HYMT_DTYPE_F8_E4M3] = {"F8_E4M3", 1, 1, 1},
	[HYMT_DTYPE_Q8_0] = {"Q8_0", HYMT_Q_BLOCK, sizeof(HymtBlockQ8_0), 2},
	[HYMT_DTYPE_Q4_0] = {"Q4_0", HYMT_Q_BLOCK, sizeof(HymtBlockQ4_0), 2},
	[HYMT_DTYPE_Q4_K] = {"Q4_K", HYMT_K_BLOCK, sizeof(HymtBlockQ4_K), 2},
	[HYMT_DTYPE_Q6_K] = {"Q6_K", HYMT_K_BLOCK, sizeof(HymtBlockQ6_K), 2},
	[HYMT_DTYPE_GPTQ_INT4] = {"GPTQ-Int4", 8, 4, 4},
};

const char *
hymt_dtype_name(HymtDtype dtype)
{
	return formats[dtype].name;
}

bool
hymt_dtype_plain(HymtDtype dtype)
{
	return dtype == HYMT_DTYPE_F32 || dtype == HYMT_DTYPE_F16 || dtype == HYMT_DTYPE_BF16;
}

size_t
hymt_dtype_size(HymtDtype dtype)
{
	return formats[dtype].size;
}

size_t
hymt_dtype_align(HymtDtype dtype)
{
	return formats[dtype].align;
}

int
hymt_dtype_block(HymtDtype dtype)
{
	return formats[dtype].block;
}

uint64_t
hymt_dtype_bytes(HymtDtype dtype, int64_t columns)
{
	return (uint64_t) (columns / formats[dtype].block) * formats[dtype].size;
}

uint64_t
hymt_tensor_bytes(const HymtTensor *tensor)
{
	return (uint64_t) tensor->rows * hymt_dtype_bytes(tensor->dtype, tensor->columns);
}

int
hymt_tensor_parts(const HymtTensor *tensor, HymtTensorPart parts[HYMT_TENSOR_PARTS])
{
	const HymtScales *scales = &tensor->scales;
	int			count = 0;

	parts[count++] = (HymtTensorPart) {tensor->data, hymt_tensor_bytes(tensor)};
	if (scales->data != NULL)
		parts[count++] = (HymtTensorPart) {scales->data, hymt_dtype_bytes(scales->dtype, scales->count)};
	if (scales->zeros != NULL)
		parts[count++] = (HymtTensorPart) {scales->zeros, (uint64_t) scales->count / 8 * sizeof(*scales->zeros)};
	if (scales->group_of != NULL)
		parts[count++] = (HymtTensorPart) {scales->group_of,
										   (uint64_t) tensor->columns * sizeof(*scales->group_of)};
	return count;
}
