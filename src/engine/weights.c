/*
 * weights.c: how one weight is stored: finds its tensors in the model's files, and makes a HymtTensor of them.
 *
 * Runs in the engine program, while a model is loaded. Owns nothing; what it fills in points into the mapped files.
 * The files are untrusted: types, shapes, alignment and group numbers are checked here, so that kernels need not.
 */
#include "model_parts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "gguf.h"

#define NAME_BYTES 160

/* The weight that is being looked for. */
typedef struct Search
{
	const HymtModel *model;
	HymtTensor *tensor;			/* rows and columns are known */
	const char *name;			/* as safetensors files call it */
	bool		vector;
	HymtError  *error;
} Search;

static const HymtStoredTensor *
find(const Search *search, const char *name)
{
	char		other[NAME_BYTES];

	if (hymt_stored_gguf(search->model->files) != NULL)
	{
		if (!hymt_gguf_tensor_name(other, sizeof other, name))
			return NULL;
		name = other;
	}
	return hymt_stored_find(search->model->files, name);
}

/* Finds a tensor that belongs to the weight: its name with `suffix` in place of its last `cut` letters. */
static const HymtStoredTensor *
find_part(const Search *search, int cut, const char *suffix)
{
	char		name[NAME_BYTES];

	snprintf(name, sizeof name, "%.*s%s", (int) strlen(search->name) - cut, search->name, suffix);
	return find(search, name);
}

static const char *
path_of(const Search *search, const HymtStoredTensor *stored)
{
	return hymt_stored_path(search->model->files, stored);
}

static bool
fail(const Search *search, HymtFailure failure, const HymtStoredTensor *stored, const char *what)
{
	return hymt_fail(search->error, failure, "%s: tensor \"%.100s\" %s", path_of(search, stored), stored->name, what);
}

static bool
missing(const Search *search, const char *suffix)
{
	char		other[NAME_BYTES];
	const char *name = search->name;

	if (hymt_stored_gguf(search->model->files) != NULL && hymt_gguf_tensor_name(other, sizeof other, name))
		name = other;
	return hymt_fail(search->error, HYMT_FAILURE_MODEL_BROKEN, "%s: tensor \"%s%s\" is missing", path_of(search, NULL),
					 name, suffix);
}

static void
print_shape(char *text, size_t size, const int64_t *shape, int dimensions)
{
	text[0] = '\0';
	for (int i = 0; i < dimensions; i++)
		snprintf(text + strlen(text), size - strlen(text), "%s%" PRId64, i > 0 ? ", " : "", shape[i]);
}

static bool
check_shape(const Search *search, const HymtStoredTensor *stored, int dimensions, int64_t first, int64_t second)
{
	const int64_t wanted[2] = {first, second};
	char		found_text[HYMT_STORED_MAX_DIMENSIONS * 24];
	char		wanted_text[64];

	if (stored->dimensions == dimensions && stored->shape[0] == first &&
		(dimensions == 1 || stored->shape[1] == second))
		return true;
	print_shape(found_text, sizeof found_text, stored->shape, stored->dimensions);
	print_shape(wanted_text, sizeof wanted_text, wanted, dimensions);
	return hymt_fail(search->error, HYMT_FAILURE_MODEL_BROKEN,
					 "%s: tensor \"%.100s\" has shape [%s], but %s [%s]", path_of(search, stored), stored->name,
					 found_text, search->model->gguf == NULL ? "config.json demands" : "its metadata demand",
					 wanted_text);
}

/* Old writers did not pad the header. Weights are never copied, so such a file has to be written anew. */
static bool
check_alignment(const Search *search, const HymtStoredTensor *stored, size_t align)
{
	return (uintptr_t) stored->data % align == 0 ||
		fail(search, HYMT_FAILURE_MODEL_UNSUPPORTED, stored,
			 "is not aligned to its elements; save it again with a current safetensors");
}

static bool
find_dtype(const HymtStoredTensor *stored, HymtDtype *dtype)
{
	for (int i = 0; i < HYMT_DTYPE_COUNT; i++)
		if (strcmp(stored->dtype, hymt_dtype_name((HymtDtype) i)) == 0)
		{
			*dtype = (HymtDtype) i;
			return true;
		}
	return false;
}

static bool
read_dtype(const Search *search, const HymtStoredTensor *stored)
{
	if (!find_dtype(stored, &search->tensor->dtype))
		return hymt_fail(search->error, HYMT_FAILURE_MODEL_UNSUPPORTED,
						 "%s: tensor \"%.100s\" is stored as %s; supported: F32, F16, BF16, F8_E4M3, and in GGUF files "
						 "Q8_0, Q4_0, Q4_K, Q6_K", path_of(search, stored), stored->name, stored->dtype);
	if (search->vector && !hymt_dtype_plain(search->tensor->dtype))
		return fail(search, HYMT_FAILURE_MODEL_UNSUPPORTED, stored, "is a vector, but quantised");
	if (search->tensor->columns % hymt_dtype_block(search->tensor->dtype) != 0)
		return fail(search, HYMT_FAILURE_MODEL_BROKEN, stored, "has rows that are no whole blocks");
	return check_alignment(search, stored, hymt_dtype_align(search->tensor->dtype));
}

/* A tensor of scales: plain numbers. */
static bool
read_scales(const Search *search, const HymtStoredTensor *stored)
{
	HymtScales *scales = &search->tensor->scales;

	if (!find_dtype(stored, &scales->dtype) || !hymt_dtype_plain(scales->dtype))
		return fail(search, HYMT_FAILURE_MODEL_UNSUPPORTED, stored, "holds scales, but no F32, F16 or BF16");
	scales->data = stored->data;
	scales->count = 1;
	for (int i = 0; i < stored->dimensions; i++)
		scales->count *= stored->shape[i];
	return check_alignment(search, stored, hymt_dtype_align(scales->dtype));
}

/* --- F8 ----------------------------------------------------------------------------------------------------------- */

static bool
is_finite(const HymtScales *scales, int64_t index)
{
	const uint16_t *halves = scales->data;

	if (scales->dtype == HYMT_DTYPE_F32)
		return isfinite(((const float *) scales->data)[index]);
	return scales->dtype == HYMT_DTYPE_F16 ? (halves[index] & 0x7c00) != 0x7c00 : (halves[index] & 0x7f80) != 0x7f80;
}

/* NAME.weight_scale: one number for all, or one for each row, [rows] or [rows, 1]. */
static bool
read_f8(const Search *search)
{
	const HymtStoredTensor *stored = find_part(search, 0, "_scale");
	HymtScales *scales = &search->tensor->scales;

	if (stored == NULL)
		return missing(search, "_scale");
	if (!read_scales(search, stored))
		return false;
	for (int i = 1; i < stored->dimensions; i++)
		if (stored->shape[i] != 1)
			return fail(search, HYMT_FAILURE_MODEL_UNSUPPORTED, stored, "has scales along more than one dimension");
	if (scales->count != 1 && scales->count != search->tensor->rows)
		return fail(search, HYMT_FAILURE_MODEL_BROKEN, stored, "has neither one scale nor one for each row");
	for (int64_t i = 0; i < scales->count; i++)
		if (!is_finite(scales, i))
			return fail(search, HYMT_FAILURE_MODEL_BROKEN, stored, "has a scale that is not finite");
	return true;
}

/* --- GPTQ --------------------------------------------------------------------------------------------------------- */

#define WEIGHT_LETTERS 6		/* of ".weight" without its dot */

/* A tensor of 32-bit integers that belongs to the weight. */
static const HymtStoredTensor *
find_integers(const Search *search, const char *suffix, int dimensions, int64_t first, int64_t second)
{
	const HymtStoredTensor *stored = find_part(search, WEIGHT_LETTERS, suffix);

	if (stored == NULL)
	{
		hymt_fail(search->error, HYMT_FAILURE_MODEL_BROKEN, "%s: tensor \"%.*s%s\" is missing", path_of(search, NULL),
				  (int) strlen(search->name) - WEIGHT_LETTERS, search->name, suffix);
		return NULL;
	}
	if (strcmp(stored->dtype, "I32") != 0)
	{
		fail(search, HYMT_FAILURE_MODEL_UNSUPPORTED, stored, "is not stored as I32");
		return NULL;
	}
	return check_shape(search, stored, dimensions, first, second) &&
		check_alignment(search, stored, sizeof(int32_t)) ? stored : NULL;
}

/* g_idx: the group of each input. Only when it is another than the order gives does it have to be looked at later. */
static bool
read_group_of(const Search *search, int64_t groups)
{
	HymtScales *scales = &search->tensor->scales;
	const HymtStoredTensor *stored;
	const int32_t *group_of;
	bool		in_order = true;

	if (find_part(search, WEIGHT_LETTERS, "g_idx") == NULL)
		return true;
	stored = find_integers(search, "g_idx", 1, search->tensor->columns, 0);
	if (stored == NULL)
		return false;
	group_of = (const int32_t *) stored->data;
	for (int64_t i = 0; i < search->tensor->columns; i++)
	{
		if (group_of[i] < 0 || group_of[i] >= groups)
			return fail(search, HYMT_FAILURE_MODEL_BROKEN, stored, "names a group that does not exist");
		in_order = in_order && group_of[i] == i / scales->group;
	}
	if (!in_order)
		scales->group_of = group_of;
	return true;
}

static bool
read_gptq(const Search *search, const char **stored_name)
{
	const HymtQuantization *quantization = &search->model->config.quantization;
	HymtTensor *tensor = search->tensor;
	HymtScales *scales = &tensor->scales;
	const HymtStoredTensor *values;
	const HymtStoredTensor *zeros;
	const HymtStoredTensor *stored;
	int64_t		groups;

	if (tensor->rows % 8 != 0 || tensor->columns % 8 != 0)
		return hymt_fail(search->error, HYMT_FAILURE_MODEL_BROKEN,
						 "%s: tensor \"%s\" has a shape that cannot be stored in words of 8 values",
						 path_of(search, NULL), search->name);
	scales->group = quantization->group == 0 ? tensor->columns : quantization->group;
	groups = (tensor->columns + scales->group - 1) / scales->group;
	values = find_integers(search, "qweight", 2, tensor->columns / 8, tensor->rows);
	zeros = values == NULL ? NULL : find_integers(search, "qzeros", 2, groups, tensor->rows / 8);
	if (zeros == NULL)
		return false;
	stored = find_part(search, WEIGHT_LETTERS, "scales");
	if (stored == NULL)
		return hymt_fail(search->error, HYMT_FAILURE_MODEL_BROKEN, "%s: tensor \"%.*sscales\" is missing",
						 path_of(search, NULL), (int) strlen(search->name) - WEIGHT_LETTERS, search->name);
	if (!check_shape(search, stored, 2, groups, tensor->rows) || !read_scales(search, stored) ||
		!read_group_of(search, groups))
		return false;
	tensor->dtype = HYMT_DTYPE_GPTQ_INT4;
	tensor->data = values->data;
	scales->zeros = (const uint32_t *) zeros->data;
	scales->zero_offset = quantization->zero_offset;
	*stored_name = values->name;
	return true;
}

/* --- any weight --------------------------------------------------------------------------------------------------- */

bool
hymt_weight_read(const HymtModel *model, HymtTensor *tensor, const char *name, bool vector, const char **stored_name,
				 HymtError *error)
{
	Search		search = {model, tensor, name, vector, error};
	const HymtStoredTensor *stored = find(&search, name);

	memset(&tensor->scales, 0, sizeof tensor->scales);
	if (stored == NULL && !vector && model->config.quantization.gptq &&
		find_part(&search, WEIGHT_LETTERS, "qweight") != NULL)
		return read_gptq(&search, stored_name);
	if (stored == NULL)
		return missing(&search, "");
	*stored_name = stored->name;
	tensor->data = stored->data;
	if (!check_shape(&search, stored, vector ? 1 : 2, vector ? tensor->columns : tensor->rows, tensor->columns) ||
		!read_dtype(&search, stored))
		return false;
	return tensor->dtype != HYMT_DTYPE_F8_E4M3 || read_f8(&search);
}
