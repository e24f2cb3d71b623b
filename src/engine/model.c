/*
 * model.c: opening a model directory: reads the small files, maps the weights, and gives every weight its place.
 *
 * Runs in the engine program. Owns a HymtModel's memory and, through safetensors.c, the mappings. After
 * hymt_model_open() every weight has been checked against the hyper-parameters, so that code which computes need not.
 */
#include "model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model_parts.h"

#define SMALL_FILE_LIMIT (16 * 1024 * 1024)
#define READ_AHEAD_BYTES (64u * 1024 * 1024)

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22	/* Linux 5.14; older kernels answer EINVAL */
#endif

/* The place of each phase in the whole, percent. Reading the weights is nearly all of it. */
#define PERCENT_CONFIG 0
#define PERCENT_MAP 1
#define PERCENT_FINGERPRINT 3
#define PERCENT_WEIGHTS 5

size_t
hymt_dtype_size(HymtDtype dtype)
{
	return dtype == HYMT_DTYPE_F32 ? 4 : 2;
}

const char *
hymt_dtype_name(HymtDtype dtype)
{
	static const char *const names[] = {
		[HYMT_DTYPE_F32] = "F32", [HYMT_DTYPE_F16] = "F16", [HYMT_DTYPE_BF16] = "BF16"
	};

	return names[dtype];
}

/* --- the weights of the architecture ------------------------------------------------------------------------------ */

/* Sizes in terms of the hyper-parameters. */
typedef enum Extent
{
	ONE_ROW,					/* a vector */
	HIDDEN,
	QUERY,						/* heads * head_dim */
	KEY_VALUE,					/* kv_heads * head_dim */
	HEAD_DIM,
	INTERMEDIATE,
	VOCAB
} Extent;

static int64_t
extent(const HymtConfig *config, Extent what)
{
	switch (what)
	{
		case ONE_ROW:
			return 1;
		case HIDDEN:
			return config->hidden;
		case QUERY:
			return (int64_t) config->heads * config->head_dim;
		case KEY_VALUE:
			return (int64_t) config->kv_heads * config->head_dim;
		case HEAD_DIM:
			return config->head_dim;
		case INTERMEDIATE:
			return config->intermediate;
		case VOCAB:
			return config->vocab;
	}
	return 0;
}

/* A weight's name in the files, its place in the struct, its shape. */
typedef struct WeightPlace
{
	const char *name;
	size_t		offset;
	Extent		rows;
	Extent		columns;
} WeightPlace;

#define LAYER(suffix, member, rows, columns) {suffix ".weight", offsetof(HymtLayer, member), rows, columns}

static const WeightPlace layer_places[] = {
	LAYER("input_layernorm", input_norm, ONE_ROW, HIDDEN),
	LAYER("self_attn.q_proj", q, QUERY, HIDDEN),
	LAYER("self_attn.k_proj", k, KEY_VALUE, HIDDEN),
	LAYER("self_attn.v_proj", v, KEY_VALUE, HIDDEN),
	LAYER("self_attn.o_proj", o, HIDDEN, QUERY),
	LAYER("self_attn.query_layernorm", q_norm, ONE_ROW, HEAD_DIM),
	LAYER("self_attn.key_layernorm", k_norm, ONE_ROW, HEAD_DIM),
	LAYER("post_attention_layernorm", post_norm, ONE_ROW, HIDDEN),
	LAYER("mlp.gate_proj", gate, INTERMEDIATE, HIDDEN),
	LAYER("mlp.up_proj", up, INTERMEDIATE, HIDDEN),
	LAYER("mlp.down_proj", down, HIDDEN, INTERMEDIATE),
};

#define LAYER_PLACES (sizeof layer_places / sizeof layer_places[0])

static const WeightPlace embedding_place = {"model.embed_tokens.weight", offsetof(HymtModel, embedding), VOCAB, HIDDEN};
static const WeightPlace norm_place = {"model.norm.weight", offsetof(HymtModel, final_norm), ONE_ROW, HIDDEN};
static const WeightPlace head_place = {"lm_head.weight", offsetof(HymtModel, head), VOCAB, HIDDEN};

static bool
read_dtype(HymtDtype *dtype, const HymtStoredTensor *stored, const char *path, HymtError *error)
{
	static const HymtDtype known[] = {HYMT_DTYPE_F32, HYMT_DTYPE_F16, HYMT_DTYPE_BF16};

	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (strcmp(stored->dtype, hymt_dtype_name(known[i])) == 0)
		{
			*dtype = known[i];
			return true;
		}
	return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED,
					 "%s: tensor \"%.100s\" is stored as %s; supported: F32, F16, BF16",
					 path, stored->name, stored->dtype);
}

static bool
check_shape(const HymtStoredTensor *stored, int64_t rows, int64_t columns, bool vector, const char *path,
			HymtError *error)
{
	char		shape[HYMT_STORED_MAX_DIMENSIONS * 24] = "";
	char		wanted[64];

	if (vector && stored->dimensions == 1 && stored->shape[0] == columns)
		return true;
	if (!vector && stored->dimensions == 2 && stored->shape[0] == rows && stored->shape[1] == columns)
		return true;
	for (int i = 0; i < stored->dimensions; i++)
		snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%" PRId64, i > 0 ? ", " : "",
				 stored->shape[i]);
	if (vector)
		snprintf(wanted, sizeof wanted, "%" PRId64, columns);
	else
		snprintf(wanted, sizeof wanted, "%" PRId64 ", %" PRId64, rows, columns);
	return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN,
					 "%s: tensor \"%.100s\" has shape [%s], but config.json demands [%s]",
					 path, stored->name, shape, wanted);
}

static bool
place_weight(HymtModel *model, const WeightPlace *place, const char *name, void *base, HymtError *error)
{
	const HymtStoredTensor *stored = hymt_safetensors_find(model->files, name);
	const char *path = hymt_safetensors_path(model->files, stored);
	HymtTensor *tensor = (HymtTensor *) ((char *) base + place->offset);
	bool		vector = place->rows == ONE_ROW;

	if (stored == NULL)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: tensor \"%s\" is missing", path, name);
	tensor->rows = extent(&model->config, place->rows);
	tensor->columns = extent(&model->config, place->columns);
	tensor->data = stored->data;
	if (!check_shape(stored, tensor->rows, tensor->columns, vector, path, error) ||
		!read_dtype(&tensor->dtype, stored, path, error))
		return false;
	/* Old writers did not pad the header. Weights are never copied, so such a file has to be written anew. */
	if ((uintptr_t) stored->data % hymt_dtype_size(tensor->dtype) != 0)
		return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED,
						 "%s: tensor \"%s\" is not aligned to its elements; save it again with a current safetensors",
						 path, name);
	model->weights[model->weight_count++] = (HymtWeight) {stored->name, tensor, vector};
	model->parameters += (uint64_t) tensor->rows * (uint64_t) tensor->columns;
	model->stored_bytes += stored->bytes;
	return true;
}

static bool
place_layer(HymtModel *model, int layer, HymtError *error)
{
	char		name[128];

	for (size_t i = 0; i < LAYER_PLACES; i++)
	{
		snprintf(name, sizeof name, "model.layers.%d.%s", layer, layer_places[i].name);
		if (!place_weight(model, &layer_places[i], name, &model->layer[layer], error))
			return false;
	}
	return true;
}

static int
compare_weights(const void *left, const void *right)
{
	const HymtWeight *a = left;
	const HymtWeight *b = right;

	return strcmp(a->name, b->name);
}

/* Give every weight its place. A tied model's head may be stored too; it is a copy of the embedding, and ignored. */
static bool
place_weights(HymtModel *model, HymtError *error)
{
	int			layers = model->config.layers;

	model->weights = calloc((size_t) layers * LAYER_PLACES + 3, sizeof *model->weights);
	model->layer = calloc((size_t) layers, sizeof *model->layer);
	if (model->weights == NULL || model->layer == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", model->directory);
	if (!place_weight(model, &embedding_place, embedding_place.name, model, error) ||
		!place_weight(model, &norm_place, norm_place.name, model, error))
		return false;
	if (model->config.tied)
		model->head = model->embedding;
	else if (!place_weight(model, &head_place, head_place.name, model, error))
		return false;
	for (int i = 0; i < layers; i++)
		if (!place_layer(model, i, error))
			return false;
	qsort(model->weights, model->weight_count, sizeof *model->weights, compare_weights);
	return true;
}

/* --- reading ahead ------------------------------------------------------------------------------------------------ */

/* Bring a piece of a mapping into memory. */
static bool
read_piece(const HymtModel *model, const unsigned char *start, size_t length, HymtError *error)
{
	uintptr_t	page = (uintptr_t) sysconf(_SC_PAGESIZE);
	uintptr_t	begin = (uintptr_t) start / page * page;
	uintptr_t	end = (uintptr_t) start + length;
	int			result;

	do
		result = madvise((void *) begin, end - begin, MADV_POPULATE_READ);
	while (result != 0 && errno == EINTR);
	if (result == 0)
		return true;
	if (errno == EFAULT || errno == EHWPOISON)
		return hymt_fail(error, HYMT_FAILURE_MODEL_UNREADABLE, "%s: the weights cannot be read: I/O error",
						 model->directory);
	/* An older kernel: let it read in the background. Pages that are late come in when they are first used. */
	(void) madvise((void *) begin, end - begin, MADV_WILLNEED);
	return true;
}

/*
 * Bring all weights into memory, with progress. Otherwise the first steps would wait for the disk, unexplained and for
 * as long as a hung engine would.
 */
static bool
read_weights(const HymtModel *model, const HymtModelOptions *options, HymtError *error)
{
	uint64_t	done = 0;

	for (size_t i = 0; i < model->weight_count; i++)
	{
		const HymtTensor *tensor = model->weights[i].tensor;
		const unsigned char *data = tensor->data;
		size_t		left = (size_t) tensor->rows * (size_t) tensor->columns * hymt_dtype_size(tensor->dtype);

		while (left > 0)
		{
			size_t		piece = left < READ_AHEAD_BYTES ? left : READ_AHEAD_BYTES;
			uint64_t	part = done * (100 - PERCENT_WEIGHTS) / model->stored_bytes;

			options->progress(options->progress_context, PERCENT_WEIGHTS + (int) part, "reading weights");
			if (!read_piece(model, data, piece, error))
				return false;
			data += piece;
			left -= piece;
			done += piece;
		}
	}
	return true;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void
report(const HymtModelOptions *options, int percent, const char *phase)
{
	if (options->progress != NULL)
		options->progress(options->progress_context, percent, phase);
}

/* A message about the directory is clearer than one about the first file that is not in it. */
static bool
check_directory(const char *directory, HymtError *error)
{
	struct stat status;

	if (stat(directory, &status) != 0 && errno != ENOENT && errno != ENOTDIR)
		return hymt_fail_errno(error, errno, directory);
	if (stat(directory, &status) != 0 || !S_ISDIR(status.st_mode))
		return hymt_fail(error, HYMT_FAILURE_MODEL_MISSING, "%s: there is no such model directory", directory);
	return true;
}

static bool
read_texts(HymtModelTexts *texts, const char *directory, HymtError *error)
{
	return hymt_file_read(&texts->config, directory, "config.json", SMALL_FILE_LIMIT, false, error) &&
		hymt_file_read(&texts->generation, directory, "generation_config.json", SMALL_FILE_LIMIT, true, error) &&
		hymt_file_read(&texts->hymt, directory, "hymt.json", SMALL_FILE_LIMIT, true, error);
}

static void
free_texts(HymtModelTexts *texts)
{
	hymt_file_free(&texts->config);
	hymt_file_free(&texts->generation);
	hymt_file_free(&texts->hymt);
}

static bool
load(HymtModel *model, HymtModelTexts *texts, const HymtModelOptions *options, HymtError *error)
{
	report(options, PERCENT_CONFIG, "reading configuration");
	if (!check_directory(model->directory, error) ||
		!read_texts(texts, model->directory, error) ||
		!hymt_config_read(&model->config, model->directory, texts, error) ||
		!hymt_family_detect(model, texts, options->family, error))
		return false;
	report(options, PERCENT_MAP, "mapping weights");
	model->files = hymt_safetensors_open(model->directory, error);
	if (model->files == NULL || !place_weights(model, error))
		return false;
	report(options, PERCENT_FINGERPRINT, "computing fingerprint");
	if (!hymt_fingerprint(model, texts, error))
		return false;
	if (options->check != NULL && !options->check(options->check_context, model, error))
		return false;
	if (options->progress != NULL && !read_weights(model, options, error))
		return false;
	report(options, 100, "model loaded");
	return true;
}

bool
hymt_model_open(HymtModel *model, const char *directory, const HymtModelOptions *options, HymtError *error)
{
	static const HymtModelOptions no_options;
	HymtModelTexts texts;
	bool		ok;

	memset(model, 0, sizeof *model);
	memset(&texts, 0, sizeof texts);
	model->directory = strdup(directory);
	if (model->directory == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", directory);
	ok = load(model, &texts, options == NULL ? &no_options : options, error);
	free_texts(&texts);
	if (!ok)
		hymt_model_close(model);
	return ok;
}

void
hymt_model_close(HymtModel *model)
{
	hymt_safetensors_close(model->files);
	free(model->weights);
	free(model->layer);
	free(model->directory);
	free(model->name);
	free(model->family_reason);
	free(model->languages);
	memset(model, 0, sizeof *model);
}
