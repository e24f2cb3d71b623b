/*
 * model.c: opening a model: reads the small files, maps the weights, and gives every weight its place.
 *
 * Runs in the engine program. Owns a HymtModel's memory and, through stored.c, the mappings. After
 * hymt_model_open() every weight has been checked against the hyper-parameters, so that code which computes need not.
 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "gguf.h"
#include "locate.h"
#include "model_parts.h"

#define SMALL_FILE_LIMIT (16 * 1024 * 1024)

/* The place of each phase in the whole, percent. Reading the weights is nearly all of it. */
#define PERCENT_CONFIG 0
#define PERCENT_MAP 1
#define PERCENT_FINGERPRINT 3
#define PERCENT_WEIGHTS 5

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

/* Which models have a weight. */
typedef enum Condition
{
	ALWAYS,
	QK_NORM,
	ATTENTION_BIAS,
	MLP_BIAS
} Condition;

static bool
has_weight(const HymtConfig *config, Condition condition)
{
	switch (condition)
	{
		case ALWAYS:
			return true;
		case QK_NORM:
			return config->qk_norm;
		case ATTENTION_BIAS:
			return config->attention_bias;
		case MLP_BIAS:
			return config->mlp_bias;
	}
	return false;
}

/* A weight's name in the files, its place in the struct, its shape. */
typedef struct WeightPlace
{
	const char *name;
	size_t		offset;
	Extent		rows;
	Extent		columns;
	Condition	condition;
} WeightPlace;

#define LAYER(suffix, member, rows, columns, condition) \
	{suffix ".weight", offsetof(HymtLayer, member), rows, columns, condition}
#define BIAS(suffix, member, columns, condition) \
	{suffix ".bias", offsetof(HymtLayer, member), ONE_ROW, columns, condition}

static const WeightPlace layer_places[] = {
	LAYER("input_layernorm", input_norm, ONE_ROW, HIDDEN, ALWAYS),
	LAYER("self_attn.q_proj", q, QUERY, HIDDEN, ALWAYS),
	LAYER("self_attn.k_proj", k, KEY_VALUE, HIDDEN, ALWAYS),
	LAYER("self_attn.v_proj", v, KEY_VALUE, HIDDEN, ALWAYS),
	LAYER("self_attn.o_proj", o, HIDDEN, QUERY, ALWAYS),
	LAYER("self_attn.query_layernorm", q_norm, ONE_ROW, HEAD_DIM, QK_NORM),
	LAYER("self_attn.key_layernorm", k_norm, ONE_ROW, HEAD_DIM, QK_NORM),
	LAYER("post_attention_layernorm", post_norm, ONE_ROW, HIDDEN, ALWAYS),
	LAYER("mlp.gate_proj", gate, INTERMEDIATE, HIDDEN, ALWAYS),
	LAYER("mlp.up_proj", up, INTERMEDIATE, HIDDEN, ALWAYS),
	LAYER("mlp.down_proj", down, HIDDEN, INTERMEDIATE, ALWAYS),
	BIAS("self_attn.q_proj", q_bias, QUERY, ATTENTION_BIAS),
	BIAS("self_attn.k_proj", k_bias, KEY_VALUE, ATTENTION_BIAS),
	BIAS("self_attn.v_proj", v_bias, KEY_VALUE, ATTENTION_BIAS),
	BIAS("self_attn.o_proj", o_bias, HIDDEN, ATTENTION_BIAS),
	BIAS("mlp.gate_proj", gate_bias, INTERMEDIATE, MLP_BIAS),
	BIAS("mlp.up_proj", up_bias, INTERMEDIATE, MLP_BIAS),
	BIAS("mlp.down_proj", down_bias, HIDDEN, MLP_BIAS),
};

#define LAYER_PLACES (sizeof layer_places / sizeof layer_places[0])

static const WeightPlace embedding_place = {"model.embed_tokens.weight", offsetof(HymtModel, embedding), VOCAB, HIDDEN,
	ALWAYS};
static const WeightPlace norm_place = {"model.norm.weight", offsetof(HymtModel, final_norm), ONE_ROW, HIDDEN,
	ALWAYS};
static const WeightPlace head_place = {"lm_head.weight", offsetof(HymtModel, head), VOCAB, HIDDEN, ALWAYS};

static bool
place_weight(HymtModel *model, const WeightPlace *place, const char *name, void *base, HymtError *error)
{
	HymtTensor *tensor = (HymtTensor *) ((char *) base + place->offset);
	HymtTensorPart parts[HYMT_TENSOR_PARTS];
	HymtWeight	weight = {.tensor = tensor, .vector = place->rows == ONE_ROW};
	int			count;

	tensor->rows = extent(&model->config, place->rows);
	tensor->columns = extent(&model->config, place->columns);
	if (!hymt_weight_read(model, tensor, name, weight.vector, &weight.name, error))
		return false;
	model->weights[model->weight_count++] = weight;
	model->parameters += (uint64_t) tensor->rows * (uint64_t) tensor->columns;
	count = hymt_tensor_parts(tensor, parts);
	for (int i = 0; i < count; i++)
		model->stored_bytes += parts[i].bytes;
	return true;
}

static bool
place_layer(HymtModel *model, int layer, HymtError *error)
{
	char		name[128];

	for (size_t i = 0; i < LAYER_PLACES; i++)
	{
		if (!has_weight(&model->config, layer_places[i].condition))
			continue;
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

/*
 * A GGUF file says by its tensors alone what belongs to the model: a bias or a table of frequencies that nobody asked
 * for would be missing from the result.
 */
static bool
check_all_placed(const HymtModel *model, HymtError *error)
{
	const HymtGguf *gguf = hymt_stored_gguf(model->files);
	const HymtStoredTensor *tensor;

	for (size_t i = 0; gguf != NULL && (tensor = hymt_gguf_tensor(gguf, i)) != NULL; i++)
	{
		HymtWeight	weight = {.name = tensor->name};

		if (bsearch(&weight, model->weights, model->weight_count, sizeof weight, compare_weights) == NULL)
			return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED,
							 "%s: tensor \"%.100s\" is none of this architecture", model->gguf, tensor->name);
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

/* Which files the path means. A GGUF file is opened at once, since it takes the place of config.json, too. */
static bool
locate(HymtModel *model, HymtError *error)
{
	HymtLocation location;

	if (!hymt_model_locate(&location, model->path, error))
		return false;
	model->directory = location.directory;
	model->gguf = location.gguf;
	if (model->gguf == NULL)
		return true;
	model->files = hymt_stored_open_gguf(model->gguf, error);
	return model->files != NULL;
}

static bool
read_texts(HymtModelTexts *texts, const HymtModel *model, HymtError *error)
{
	const char *directory = model->directory;
	const HymtGguf *gguf = model->gguf == NULL ? NULL : hymt_stored_gguf(model->files);

	texts->config_name = gguf == NULL ? "config.json" : hymt_path_last(model->gguf);
	if (!(gguf == NULL ? hymt_file_read(&texts->config, directory, texts->config_name, SMALL_FILE_LIMIT, false, error)
		  : hymt_gguf_config(&texts->config, gguf, error)))
		return false;
	texts->generation_name = "generation_config.json";
	if (!hymt_file_read(&texts->generation, directory, texts->generation_name, SMALL_FILE_LIMIT, true, error))
		return false;
	if (texts->generation.data == NULL && gguf != NULL)
	{
		texts->generation_name = texts->config_name;
		if (!hymt_gguf_generation(&texts->generation, gguf, error))
			return false;
	}
	return hymt_file_read(&texts->hymt, directory, "hymt.json", SMALL_FILE_LIMIT, true, error);
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
	if (!locate(model, error) ||
		!read_texts(texts, model, error) ||
		!hymt_config_read(&model->config, model->directory, texts, error) ||
		!hymt_family_detect(model, texts, options->family, error))
		return false;
	report(options, PERCENT_MAP, "mapping weights");
	if (model->files == NULL)
		model->files = hymt_stored_open_safetensors(model->directory, error);
	if (model->files == NULL || !place_weights(model, error) || !check_all_placed(model, error))
		return false;
	report(options, PERCENT_FINGERPRINT, "computing fingerprint");
	if (!hymt_fingerprint(model, texts, error))
		return false;
	if (options->check != NULL && !options->check(options->check_context, model, error))
		return false;
	if (options->progress != NULL && !hymt_weights_read_ahead(model, options, PERCENT_WEIGHTS, error))
		return false;
	report(options, 100, "model loaded");
	return true;
}

bool
hymt_model_open(HymtModel *model, const char *path, const HymtModelOptions *options, HymtError *error)
{
	static const HymtModelOptions no_options;
	HymtModelTexts texts;
	bool		ok;

	memset(model, 0, sizeof *model);
	memset(&texts, 0, sizeof texts);
	model->path = strdup(path);
	if (model->path == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", path);
	ok = load(model, &texts, options == NULL ? &no_options : options, error);
	free_texts(&texts);
	if (!ok)
		hymt_model_close(model);
	return ok;
}

void
hymt_model_close(HymtModel *model)
{
	hymt_stored_close(model->files);
	free(model->weights);
	free(model->layer);
	free(model->path);
	free(model->directory);
	free(model->gguf);
	free(model->name);
	free(model->family_reason);
	free(model->languages);
	hymt_assignments_free(&model->adapters);
	for (size_t i = 0; i < model->template_count; i++)
	{
		free(model->templates[i].form);
		free(model->templates[i].text);
	}
	free(model->templates);
	memset(model, 0, sizeof *model);
}
