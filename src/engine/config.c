/*
 * config.c: hyper-parameters from config.json and generation_config.json.
 *
 * Runs in the engine program. Owns nothing. The files are untrusted: each number has bounds, chosen far above any known
 * model and so low that no product of the engine's (elements, bytes, KV sizes) can leave 64 bits, nor a row count 31.
 * Unknown keys are ignored, since published files are full of them; known keys that would change the arithmetic in a
 * way this engine lacks are refused, because ignoring them would give fluent nonsense.
 */
#include "model_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const architecture_names[] = {
	[HYMT_ARCHITECTURE_HUNYUAN] = "HunYuanDenseV1ForCausalLM",
	[HYMT_ARCHITECTURE_LLAMA] = "LlamaForCausalLM",
};

#define ARCHITECTURES ((int) (sizeof architecture_names / sizeof architecture_names[0]))
#define SUPPORTED "HunYuanDenseV1ForCausalLM, LlamaForCausalLM"

#define MAX_HIDDEN (1 << 17)
#define MAX_LAYERS 1024
#define MAX_HEADS 4096
#define MAX_HEAD_DIM 1024
#define MAX_INTERMEDIATE (1 << 20)
#define MAX_VOCAB (1 << 22)
#define MAX_POSITION (1 << 24)
#define MAX_FACTOR 1e6
/* Beyond these the logits of repeated tokens are no longer compared but decided. */
#define MIN_PENALTY 0.1f
#define MAX_PENALTY 10.0f

/* A JSON object with the path of its file, for messages. */
typedef struct Source
{
	const json_t *json;
	const char *directory;
	const char *file;
} Source;

static bool
broken(HymtError *error, const Source *source, const char *key, const char *what)
{
	return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s/%s: %s %s", source->directory, source->file, key, what);
}

static bool
unsupported(HymtError *error, const Source *source, const char *key, const char *what)
{
	return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED, "%s/%s: %s %s", source->directory, source->file, key, what);
}

/* A key's value; NULL when it is absent or null, which published files use alike. */
static const json_t *
lookup(const Source *source, const char *key)
{
	const json_t *value = json_object_get(source->json, key);

	return json_is_null(value) ? NULL : value;
}

/* --- single values ------------------------------------------------------------------------------------------------ */

/* An integer in 1 … maximum. A missing one leaves *number alone when it is optional. */
static bool
read_count(int *number, const Source *source, const char *key, int maximum, bool optional, HymtError *error)
{
	const json_t *value = lookup(source, key);
	json_int_t	integer = json_integer_value(value);

	if (value == NULL && optional)
		return true;
	if (value == NULL)
		return broken(error, source, key, "is missing");
	if (!json_is_integer(value))
		return broken(error, source, key, "must be an integer");
	if (integer < 1 || integer > maximum)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s/%s: %s is %" JSON_INTEGER_FORMAT ", outside 1 to %d",
						 source->directory, source->file, key, integer, maximum);
	*number = (int) integer;
	return true;
}

/* A number in (0, maximum]; a missing one leaves *number alone. */
static bool
read_positive(double *number, const Source *source, const char *key, double maximum, HymtError *error)
{
	const json_t *value = lookup(source, key);
	double		real = json_number_value(value);

	if (value == NULL)
		return true;
	if (!json_is_number(value))
		return broken(error, source, key, "must be a number");
	if (!(real > 0 && real <= maximum))
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s/%s: %s is %g, outside 0 to %g",
						 source->directory, source->file, key, real, maximum);
	*number = real;
	return true;
}

/* A missing one leaves *flag alone. */
static bool
read_flag(bool *flag, const Source *source, const char *key, HymtError *error)
{
	const json_t *value = lookup(source, key);

	if (value == NULL)
		return true;
	if (!json_is_boolean(value))
		return broken(error, source, key, "must be true or false");
	*flag = json_is_true(value);
	return true;
}

/* --- what kind of model it is ------------------------------------------------------------------------------------- */

const char *
hymt_architecture_name(HymtArchitecture architecture)
{
	return architecture_names[architecture];
}

static bool
read_architecture(HymtConfig *config, const Source *source, HymtError *error)
{
	const json_t *list = lookup(source, "architectures");
	const char *found = NULL;

	for (size_t i = 0; i < json_array_size(list); i++)
	{
		found = json_string_value(json_array_get(list, i));
		for (int known = 0; found != NULL && known < ARCHITECTURES; known++)
			if (strcmp(found, architecture_names[known]) == 0)
			{
				config->architecture = (HymtArchitecture) known;
				return true;
			}
	}
	if (found == NULL)
		return unsupported(error, source, "architectures", "names no architecture; supported: " SUPPORTED);
	return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED,
					 "%s/%s: the architecture %.100s is not supported; supported: " SUPPORTED,
					 source->directory, source->file, found);
}

/* A flag that must have one certain value, which is also its default. */
static bool
require_flag(const Source *source, const char *key, bool required, HymtError *error)
{
	bool		flag = required;

	if (!read_flag(&flag, source, key, error))
		return false;
	if (flag != required)
		return unsupported(error, source, key, required ? "false is not supported" : "true is not supported");
	return true;
}

/* A number that must be 1, which is also its default. */
static bool
require_one(const Source *source, const char *key, HymtError *error)
{
	double		number = 1;

	if (!read_positive(&number, source, key, 1e9, error))
		return false;
	return number == 1 || unsupported(error, source, key, "other than 1 is not supported");
}

/* What one architecture has and the other has not. */
static bool
read_parts(HymtConfig *config, const Source *source, HymtError *error)
{
	if (!read_flag(&config->attention_bias, source, "attention_bias", error))
		return false;
	if (config->architecture == HYMT_ARCHITECTURE_LLAMA)
		return read_flag(&config->mlp_bias, source, "mlp_bias", error);
	/* implementations do not agree on what a model without QK-norm or with mlp_bias is, and none is published */
	config->qk_norm = true;
	return require_flag(source, "mlp_bias", false, error) &&
		require_flag(source, "use_qk_norm", true, error) &&
		require_flag(source, "use_cla", false, error);
}

static bool
read_kind(HymtConfig *config, const Source *source, HymtError *error)
{
	const json_t *activation = lookup(source, "hidden_act");
	const char *name = json_string_value(activation);

	if (!read_architecture(config, source, error) ||
		!read_parts(config, source, error) ||
		!require_one(source, "partial_rotary_factor", error))
		return false;
	if (activation != NULL && (name == NULL || strcmp(name, "silu") != 0))
		return unsupported(error, source, "hidden_act", "other than silu is not supported");
	return true;
}

/* --- sizes -------------------------------------------------------------------------------------------------------- */

/* head_dim stands in the file under one of two names, or follows from the others. */
static bool
read_head_dim(HymtConfig *config, const Source *source, HymtError *error)
{
	config->head_dim = 0;
	if (!read_count(&config->head_dim, source, "attention_head_dim", MAX_HEAD_DIM, true, error) ||
		!read_count(&config->head_dim, source, "head_dim", MAX_HEAD_DIM, true, error))
		return false;
	if (config->head_dim == 0)
	{
		if (config->hidden % config->heads != 0 || config->hidden / config->heads > MAX_HEAD_DIM)
			return broken(error, source, "head_dim", "is missing, and num_attention_heads does not divide hidden_size");
		config->head_dim = config->hidden / config->heads;
	}
	if (config->head_dim % 2 != 0)
		return broken(error, source, "head_dim", "must be even");
	return true;
}

static bool
read_sizes(HymtConfig *config, const Source *source, HymtError *error)
{
	if (!read_count(&config->hidden, source, "hidden_size", MAX_HIDDEN, false, error) ||
		!read_count(&config->layers, source, "num_hidden_layers", MAX_LAYERS, false, error) ||
		!read_count(&config->heads, source, "num_attention_heads", MAX_HEADS, false, error) ||
		!read_count(&config->intermediate, source, "intermediate_size", MAX_INTERMEDIATE, false, error) ||
		!read_count(&config->vocab, source, "vocab_size", MAX_VOCAB, false, error) ||
		!read_count(&config->max_position, source, "max_position_embeddings", MAX_POSITION, false, error))
		return false;
	config->kv_heads = config->heads;
	if (!read_count(&config->kv_heads, source, "num_key_value_heads", MAX_HEADS, true, error))
		return false;
	if (config->heads % config->kv_heads != 0)
		return broken(error, source, "num_key_value_heads", "must divide num_attention_heads");
	return read_head_dim(config, source, error);
}

/* --- RoPE --------------------------------------------------------------------------------------------------------- */

/* A number that must be there. */
static bool
read_required(double *number, const Source *source, const char *key, double maximum, HymtError *error)
{
	if (lookup(source, key) == NULL)
		return broken(error, source, key, "is missing");
	return read_positive(number, source, key, maximum, error);
}

static bool
read_llama3(HymtConfig *config, const Source *scaling, HymtError *error)
{
	config->rope_scaling = HYMT_ROPE_LLAMA3;
	if (!read_required(&config->rope_factor, scaling, "factor", MAX_FACTOR, error) ||
		!read_required(&config->rope_low, scaling, "low_freq_factor", MAX_FACTOR, error) ||
		!read_required(&config->rope_high, scaling, "high_freq_factor", MAX_FACTOR, error) ||
		!read_count(&config->rope_context, scaling, "original_max_position_embeddings", MAX_POSITION, false, error))
		return false;
	return config->rope_high > config->rope_low ||
		broken(error, scaling, "high_freq_factor", "must be larger than low_freq_factor");
}

/*
 * "dynamic" has a meaning in Hunyuan's models, with alpha, which raises the base at every position. Else "dynamic", like
 * "default", changes nothing within max_position_embeddings. Kinds that are not known here would change the angles.
 */
static bool
read_scaling(HymtConfig *config, double *alpha, const Source *scaling, HymtError *error)
{
	const json_t *type = lookup(scaling, "rope_type");
	const char *name;

	if (type == NULL)
		type = lookup(scaling, "type");
	name = json_string_value(type);
	if (type == NULL)
		return true;
	if (name == NULL)
		return broken(error, scaling, "the type of rope scaling", "must be a string");
	if (strcmp(name, "default") == 0)
		return true;
	if (strcmp(name, "dynamic") == 0)
		return config->architecture != HYMT_ARCHITECTURE_HUNYUAN ||
			read_positive(alpha, scaling, "alpha", 1e12, error);
	if (strcmp(name, "llama3") == 0)
		return read_llama3(config, scaling, error);
	if (strcmp(name, "linear") != 0)
		return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED,
						 "%s/%s: rope scaling of type \"%.40s\" is not supported; supported: default, linear, dynamic, "
						 "llama3", scaling->directory, scaling->file, name);
	config->rope_scaling = HYMT_ROPE_LINEAR;
	return read_required(&config->rope_factor, scaling, "factor", MAX_FACTOR, error);
}

static bool
read_rope(HymtConfig *config, const Source *source, HymtError *error)
{
	const char *key = lookup(source, "rope_scaling") != NULL ? "rope_scaling" : "rope_parameters";
	Source		scaling = {lookup(source, key), source->directory, source->file};
	double		theta = 10000;
	double		alpha = 0;

	if (scaling.json != NULL && !json_is_object(scaling.json))
		return broken(error, source, key, "must be an object");
	/* transformers 5 moved rope_theta into rope_parameters */
	if (scaling.json != NULL && !read_positive(&theta, &scaling, "rope_theta", 1e15, error))
		return false;
	if (!read_positive(&theta, source, "rope_theta", 1e15, error))
		return false;
	if (scaling.json != NULL &&
		(!read_scaling(config, &alpha, &scaling, error) || !require_one(&scaling, "partial_rotary_factor", error)))
		return false;
	config->rope_base = theta;
	/* a head_dim of 2 makes the exponent infinite, which the check below refuses */
	if (alpha > 0)
		config->rope_base = theta * pow(alpha, (double) config->head_dim / (config->head_dim - 2));
	if (!isfinite(config->rope_base) || config->rope_base < 1)
		return broken(error, source, key, "gives an impossible rotation base");
	return true;
}

double
hymt_rope_frequency(const HymtConfig *config, int index)
{
	double		frequency = pow(config->rope_base, -2.0 * index / config->head_dim);
	double		turns;
	double		share;

	if (config->rope_scaling == HYMT_ROPE_PLAIN)
		return frequency;
	if (config->rope_scaling == HYMT_ROPE_LINEAR)
		return frequency / config->rope_factor;
	turns = config->rope_context * frequency / (2 * M_PI);
	share = (turns - config->rope_low) / (config->rope_high - config->rope_low);
	share = share < 0 ? 0 : share > 1 ? 1 : share;
	return (1 - share) * frequency / config->rope_factor + share * frequency;
}

/* --- stop ids ----------------------------------------------------------------------------------------------------- */

static bool
add_stop_id(HymtConfig *config, const Source *source, const json_t *value, HymtError *error)
{
	json_int_t	id = json_integer_value(value);

	if (!json_is_integer(value) || id < 0 || id >= config->vocab)
		return broken(error, source, "eos_token_id", "must be token ids below vocab_size");
	for (int i = 0; i < config->stop_count; i++)
		if (config->stop_ids[i] == id)
			return true;
	if (config->stop_count == HYMT_MAX_STOP_IDS)
		return broken(error, source, "eos_token_id", "lists too many ids");
	config->stop_ids[config->stop_count++] = (int) id;
	return true;
}

/* eos_token_id, one id or a list, replaces what was known before; a missing one leaves that alone. */
static bool
read_stop_ids(HymtConfig *config, const Source *source, HymtError *error)
{
	const json_t *value = lookup(source, "eos_token_id");

	if (value == NULL)
		return true;
	config->stop_count = 0;
	if (!json_is_array(value))
		return add_stop_id(config, source, value, error);
	for (size_t i = 0; i < json_array_size(value); i++)
		if (!add_stop_id(config, source, json_array_get(value, i), error))
			return false;
	return true;
}

/* --- the two files ------------------------------------------------------------------------------------------------ */

static bool
read_config(HymtConfig *config, const Source *source, HymtError *error)
{
	double		eps;

	if (!read_kind(config, source, error))
		return false;
	eps = config->architecture == HYMT_ARCHITECTURE_LLAMA ? 1e-6 : 1e-5;
	if (!hymt_quantization_read(&config->quantization, lookup(source, "quantization_config"), source->directory,
								source->file, error) ||
		!read_sizes(config, source, error) ||
		!read_rope(config, source, error) ||
		!read_positive(&eps, source, "rms_norm_eps", 1, error) ||
		!read_flag(&config->tied, source, "tie_word_embeddings", error) ||
		!read_stop_ids(config, source, error))
		return false;
	config->norm_eps = (float) eps;
	return config->norm_eps > 0 || broken(error, source, "rms_norm_eps", "is 0 in single precision");
}

/* do_sample and its parameters are ignored: answers are always greedy, so that equal texts get equal translations. */
static bool
read_generation(HymtConfig *config, const Source *source, HymtError *error)
{
	double		penalty = 1;

	if (!read_stop_ids(config, source, error) ||
		!read_positive(&penalty, source, "repetition_penalty", 1e9, error))
		return false;
	config->repetition_penalty = (float) penalty;
	if (!(config->repetition_penalty >= MIN_PENALTY && config->repetition_penalty <= MAX_PENALTY))
		return broken(error, source, "repetition_penalty", "must be from 0.1 to 10");
	return true;
}

typedef bool (*Reader) (HymtConfig *config, const Source *source, HymtError *error);

static bool
read_text(HymtConfig *config, Reader reader, const char *directory, const char *file, const HymtFileBytes *bytes,
		  HymtError *error)
{
	char	   *path = hymt_path_join(directory, file);
	json_t	   *json = NULL;
	bool		ok = false;

	if (path == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", file);
	json = hymt_json_object(bytes->data, bytes->length, path, error);
	free(path);
	if (json != NULL)
	{
		Source		source = {json, directory, file};

		ok = reader(config, &source, error);
		json_decref(json);
	}
	return ok;
}

bool
hymt_config_read(HymtConfig *config, const char *directory, const HymtModelTexts *texts, HymtError *error)
{
	memset(config, 0, sizeof *config);
	config->repetition_penalty = 1;
	if (!read_text(config, read_config, directory, texts->config_name, &texts->config, error))
		return false;
	return texts->generation.data == NULL ||
		read_text(config, read_generation, directory, texts->generation_name, &texts->generation, error);
}
