/*
 * adapter.c: opening a LoRA adapter: reads its configuration, maps its weights, and checks them against the base model.
 *
 * Runs in the engine program. Owns a HymtAdapter's memory and, through safetensors.c, its mapping. The files are
 * untrusted as those of a model are. What PEFT can do beyond plain LoRA on the seven matrices of a layer changes the
 * arithmetic: each such key of adapter_config.json is refused by its name, because ignoring it would give fluent
 * nonsense.
 */
#include "adapter.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model_parts.h"

#define CONFIG_FILE "adapter_config.json"
#define WEIGHTS_FILE "adapter_model.safetensors"
#define CONFIG_LIMIT (1024 * 1024)
#define MAX_ALPHA 65536.0
/* What PEFT calls a module: its path in the base model. */
#define MODULE_BYTES 128

/* Sizes in terms of the hyper-parameters. */
typedef enum Width
{
	HIDDEN,
	QUERY,
	KEY_VALUE,
	INTERMEDIATE
} Width;

static const struct
{
	const char *name;			/* below model.layers.N */
	Width		outputs;
	Width		inputs;
}			linears[HYMT_LINEARS] = {
	[HYMT_LINEAR_Q] = {"self_attn.q_proj", QUERY, HIDDEN},
	[HYMT_LINEAR_K] = {"self_attn.k_proj", KEY_VALUE, HIDDEN},
	[HYMT_LINEAR_V] = {"self_attn.v_proj", KEY_VALUE, HIDDEN},
	[HYMT_LINEAR_O] = {"self_attn.o_proj", HIDDEN, QUERY},
	[HYMT_LINEAR_GATE] = {"mlp.gate_proj", INTERMEDIATE, HIDDEN},
	[HYMT_LINEAR_UP] = {"mlp.up_proj", INTERMEDIATE, HIDDEN},
	[HYMT_LINEAR_DOWN] = {"mlp.down_proj", HIDDEN, INTERMEDIATE},
};

/* An adapter being opened. */
typedef struct Opening
{
	HymtAdapter *adapter;
	const HymtConfig *base;
	const char *path;			/* of its configuration */
	const json_t *config;
	int			rank;			/* r, for modules without a pattern */
	double		alpha;
	bool		root_scale;		/* use_rslora */
	size_t		placed;			/* tensors with a place */
} Opening;

static int64_t
width_of(const HymtConfig *base, Width width)
{
	switch (width)
	{
		case HIDDEN:
			return base->hidden;
		case QUERY:
			return (int64_t) base->heads * base->head_dim;
		case KEY_VALUE:
			return (int64_t) base->kv_heads * base->head_dim;
		case INTERMEDIATE:
			return base->intermediate;
	}
	return 0;
}

static bool
bad(HymtError *error, const Opening *opening, const char *key, const char *what)
{
	return hymt_fail(error, HYMT_FAILURE_ADAPTER, "%s: %s %s", opening->path, key, what);
}

/* A key's value; NULL when it is absent or null, which published files use alike. */
static const json_t *
lookup(const Opening *opening, const char *key)
{
	const json_t *value = json_object_get(opening->config, key);

	return json_is_null(value) ? NULL : value;
}

/* --- keys that must not say anything ------------------------------------------------------------------------------- */

/* null, false, 0, "", [] and {}: what a writer puts where nothing is meant. */
static bool
is_nothing(const json_t *value)
{
	switch (value != NULL ? json_typeof(value) : JSON_NULL)
	{
		case JSON_NULL:
		case JSON_FALSE:
			return true;
		case JSON_INTEGER:
			return json_integer_value(value) == 0;
		case JSON_STRING:
			return json_string_length(value) == 0;
		case JSON_ARRAY:
			return json_array_size(value) == 0;
		case JSON_OBJECT:
			return json_object_size(value) == 0;
		default:
			return false;
	}
}

static bool
refuse_variants(const Opening *opening, HymtError *error)
{
	static const char *const keys[] = {
		"use_dora", "lora_bias", "use_qalora", "use_bdlora", "fan_in_fan_out", "modules_to_save",
		"trainable_token_indices", "target_parameters", "layer_replication", "alora_invocation_tokens", "arrow_config"
	};

	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (!is_nothing(lookup(opening, keys[i])))
			return bad(error, opening, keys[i], "is set, which is not supported: only plain LoRA is");
	return true;
}

/* A key that, if it is there at all, must have one of the values of a list that ends with NULL. */
static bool
check_word(const Opening *opening, const char *key, const char *const *allowed, HymtError *error)
{
	const json_t *value = lookup(opening, key);
	const char *word = json_string_value(value);

	if (value == NULL)
		return true;
	for (int i = 0; word != NULL && allowed[i] != NULL; i++)
		if (strcmp(word, allowed[i]) == 0)
			return true;
	return hymt_fail(error, HYMT_FAILURE_ADAPTER, "%s: %s is %s%.60s%s, supported is \"%s\"", opening->path, key,
					 word != NULL ? "\"" : "", word != NULL ? word : "no string", word != NULL ? "\"" : "", allowed[0]);
}

/* Some ways to begin a training change the base model's weights too, and then the adapter fits only those. */
static bool
check_beginning(const Opening *opening, HymtError *error)
{
	static const char *const harmless[] = {"gaussian", "eva", "orthogonal", NULL};

	if (json_is_boolean(lookup(opening, "init_lora_weights")))
		return true;
	return check_word(opening, "init_lora_weights", harmless, error);
}

/* --- rank and scale ------------------------------------------------------------------------------------------------ */

static bool
read_rank(int *rank, const Opening *opening, const char *key, const json_t *value, HymtError *error)
{
	if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > HYMT_MAX_RANK)
		return hymt_fail(error, HYMT_FAILURE_ADAPTER, "%s: %s must be an integer from 1 to %d", opening->path, key,
						 HYMT_MAX_RANK);
	*rank = (int) json_integer_value(value);
	return true;
}

static bool
read_alpha(double *alpha, const Opening *opening, const char *key, const json_t *value, HymtError *error)
{
	double		number = json_number_value(value);

	if (!json_is_number(value) || !(number > 0 && number <= MAX_ALPHA))
		return hymt_fail(error, HYMT_FAILURE_ADAPTER, "%s: %s must be a number above 0 and up to %g", opening->path,
						 key, MAX_ALPHA);
	*alpha = number;
	return true;
}

/* More names than a model has matrices name some twice, or are an attempt to keep us busy. */
static bool
check_length(const Opening *opening, const char *key, size_t length, HymtError *error)
{
	int			most = opening->base->layers * HYMT_LINEARS;

	if (length <= (size_t) most)
		return true;
	return hymt_fail(error, HYMT_FAILURE_ADAPTER, "%s: %s has %zu entries for a model of %d matrices", opening->path, key,
					 length, most);
}

/* A module is meant by its name or by the end of its name, from any dot on. */
static bool
names_module(const char *name, const char *module)
{
	size_t		length = strlen(name);
	size_t		whole = strlen(module);

	return length > 0 && length <= whole && strcmp(module + whole - length, name) == 0 &&
		(length == whole || module[whole - length - 1] == '.');
}

/* PEFT takes the keys of patterns for regular expressions. Those that are plain names mean the same in both readings. */
static bool
is_plain_name(const char *name)
{
	return name[0] != '\0' &&
		strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") == strlen(name);
}

static bool
check_pattern(const Opening *opening, const char *key, HymtError *error)
{
	const json_t *pattern = lookup(opening, key);
	const char *name;
	json_t	   *value;
	char		label[MODULE_BYTES + 64];
	int			rank;
	double		alpha;

	if (pattern == NULL)
		return true;
	if (!json_is_object(pattern))
		return bad(error, opening, key, "must be an object");
	if (!check_length(opening, key, json_object_size(pattern), error))
		return false;
	json_object_foreach((json_t *) pattern, name, value)
	{
		snprintf(label, sizeof label, "%s: \"%.100s\"", key, name);
		if (!is_plain_name(name))
			return bad(error, opening, label, "is no module's name; regular expressions are not supported here");
		if (strcmp(key, "rank_pattern") == 0 ? !read_rank(&rank, opening, label, value, error)
			: !read_alpha(&alpha, opening, label, value, error))
			return false;
	}
	return true;
}

/* The value that a pattern has for a module: of its first name that means it. NULL: none. */
static const json_t *
pattern_value(const Opening *opening, const char *key, const char *module)
{
	const char *name;
	json_t	   *value;

	json_object_foreach((json_t *) lookup(opening, key), name, value)
		if (names_module(name, module))
			return value;
	return NULL;
}

static int
rank_of(const Opening *opening, const char *module)
{
	const json_t *value = pattern_value(opening, "rank_pattern", module);

	return value != NULL ? (int) json_integer_value(value) : opening->rank;
}

static float
scale_of(const Opening *opening, const char *module, int rank)
{
	const json_t *value = pattern_value(opening, "alpha_pattern", module);
	double		alpha = value != NULL ? json_number_value(value) : opening->alpha;

	return (float) (opening->root_scale ? alpha / sqrt((double) rank) : alpha / rank);
}

/* --- which modules ------------------------------------------------------------------------------------------------- */

/* The path of a module in the base model, as PEFT matches it with names. */
static void
module_path(char module[MODULE_BYTES], int layer, int linear)
{
	snprintf(module, MODULE_BYTES, "model.layers.%d.%s", layer, linears[linear].name);
}

/* Every name of the list must be that of a matrix we know: those of other modules would be left out in silence. */
static bool
check_target(const Opening *opening, const char *name, HymtError *error)
{
	char		module[MODULE_BYTES];

	for (int layer = 0; layer < opening->base->layers; layer++)
		for (int linear = 0; linear < HYMT_LINEARS; linear++)
		{
			module_path(module, layer, linear);
			if (names_module(name, module))
				return true;
		}
	return hymt_fail(error, HYMT_FAILURE_ADAPTER,
					 "%s: target_modules: \"%.60s\" is none of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
					 "down_proj in %d layers", opening->path, name, opening->base->layers);
}

/* A list of names, or one string: "all-linear" or a regular expression. */
static bool
check_targets(const Opening *opening, HymtError *error)
{
	const json_t *targets = lookup(opening, "target_modules");

	if (json_is_string(targets) && json_string_length(targets) > 0)
		return true;
	if (!json_is_array(targets) || json_array_size(targets) == 0)
		return bad(error, opening, "target_modules", "must be a list of modules' names");
	if (!check_length(opening, "target_modules", json_array_size(targets), error))
		return false;
	for (size_t i = 0; i < json_array_size(targets); i++)
	{
		const char *name = json_string_value(json_array_get(targets, i));

		if (name == NULL)
			return bad(error, opening, "target_modules", "must be a list of modules' names");
		if (!check_target(opening, name, error))
			return false;
	}
	return true;
}

/* layers_to_transform: one layer's number or a list of them; absent: all layers. */
static bool
check_layers(const Opening *opening, HymtError *error)
{
	const json_t *layers = lookup(opening, "layers_to_transform");

	if (layers == NULL || json_is_integer(layers))
		return true;
	if (!json_is_array(layers))
		return bad(error, opening, "layers_to_transform", "must be a list of integers");
	if (!check_length(opening, "layers_to_transform", json_array_size(layers), error))
		return false;
	for (size_t i = 0; i < json_array_size(layers); i++)
		if (!json_is_integer(json_array_get(layers, i)))
			return bad(error, opening, "layers_to_transform", "must be a list of integers");
	return true;
}

static bool
transforms_layer(const Opening *opening, int layer)
{
	const json_t *layers = lookup(opening, "layers_to_transform");

	if (layers == NULL || (json_is_array(layers) && json_array_size(layers) == 0))
		return true;
	if (json_is_integer(layers))
		return json_integer_value(layers) == layer;
	for (size_t i = 0; i < json_array_size(layers); i++)
		if (json_integer_value(json_array_get(layers, i)) == layer)
			return true;
	return false;
}

typedef enum Target
{
	TARGET_NO,
	TARGET_MAYBE,				/* a regular expression decides: the file shows how */
	TARGET_YES
} Target;

static Target
is_target(const Opening *opening, const char *module, int layer)
{
	const json_t *targets = lookup(opening, "target_modules");

	if (json_is_string(targets) && strcmp(json_string_value(targets), "all-linear") != 0)
		return TARGET_MAYBE;
	if (!transforms_layer(opening, layer))
		return TARGET_NO;
	if (!is_nothing(lookup(opening, "exclude_modules")))
		return TARGET_MAYBE;
	if (json_is_string(targets))
		return TARGET_YES;
	for (size_t i = 0; i < json_array_size(targets); i++)
		if (names_module(json_string_value(json_array_get(targets, i)), module))
			return TARGET_YES;
	return TARGET_NO;
}

/* --- the configuration --------------------------------------------------------------------------------------------- */

static bool
read_config(Opening *opening, HymtError *error)
{
	static const char *const tasks[] = {"CAUSAL_LM", NULL};
	static const char *const types[] = {"LORA", NULL};
	static const char *const biases[] = {"none", NULL};
	const json_t *root_scale = lookup(opening, "use_rslora");

	if (lookup(opening, "peft_type") == NULL)
		return bad(error, opening, "peft_type", "is missing");
	if (!check_word(opening, "peft_type", types, error) ||
		!check_word(opening, "task_type", tasks, error) ||
		!check_word(opening, "bias", biases, error) ||
		!refuse_variants(opening, error) ||
		!check_beginning(opening, error) ||
		!read_rank(&opening->rank, opening, "r", lookup(opening, "r"), error) ||
		!read_alpha(&opening->alpha, opening, "lora_alpha", lookup(opening, "lora_alpha"), error))
		return false;
	if (root_scale != NULL && !json_is_boolean(root_scale))
		return bad(error, opening, "use_rslora", "must be true or false");
	opening->root_scale = json_is_true(root_scale);
	return check_pattern(opening, "rank_pattern", error) &&
		check_pattern(opening, "alpha_pattern", error) &&
		check_targets(opening, error) &&
		check_layers(opening, error);
}

/* --- weights ------------------------------------------------------------------------------------------------------- */

static bool
place_tensor(Opening *opening, HymtTensor *tensor, const HymtStoredTensor *stored, int64_t rows, int64_t columns,
			 const char *whence, HymtError *error)
{
	static const HymtDtype known[] = {HYMT_DTYPE_F32, HYMT_DTYPE_F16, HYMT_DTYPE_BF16};
	const char *path = hymt_safetensors_path(opening->adapter->files, stored);
	bool		found = false;

	if (stored->dimensions != 2)
		return hymt_fail(error, HYMT_FAILURE_ADAPTER, "%s: tensor \"%.100s\" has %d dimensions instead of 2", path,
						 stored->name, stored->dimensions);
	if (stored->shape[0] != rows || stored->shape[1] != columns)
		return hymt_fail(error, HYMT_FAILURE_ADAPTER,
						 "%s: tensor \"%.100s\" has shape [%" PRId64 ", %" PRId64 "], but %s [%" PRId64 ", %" PRId64
						 "]", path, stored->name, stored->shape[0], stored->shape[1], whence, rows, columns);
	for (size_t i = 0; i < sizeof known / sizeof known[0] && !found; i++)
	{
		found = strcmp(stored->dtype, hymt_dtype_name(known[i])) == 0;
		tensor->dtype = known[i];
	}
	if (!found)
		return hymt_fail(error, HYMT_FAILURE_ADAPTER,
						 "%s: tensor \"%.100s\" is stored as %s; supported: F32, F16, BF16", path, stored->name,
						 stored->dtype);
	if ((uintptr_t) stored->data % hymt_dtype_size(tensor->dtype) != 0)
		return hymt_fail(error, HYMT_FAILURE_ADAPTER,
						 "%s: tensor \"%.100s\" is not aligned to its elements; save it again with a current safetensors",
						 path, stored->name);
	tensor->rows = rows;
	tensor->columns = columns;
	tensor->data = stored->data;
	opening->adapter->stored_bytes += stored->bytes;
	opening->placed++;
	return true;
}

static const HymtStoredTensor *
find_part(const Opening *opening, const char *module, char part)
{
	char		name[MODULE_BYTES + 64];

	snprintf(name, sizeof name, "base_model.model.%s.lora_%c.weight", module, part);
	return hymt_safetensors_find(opening->adapter->files, name);
}

static bool
place_pair(Opening *opening, int layer, int linear, HymtError *error)
{
	HymtLowRankPair *pair = &opening->adapter->layer[layer][linear];
	const char *path = hymt_safetensors_path(opening->adapter->files, NULL);
	const HymtStoredTensor *a;
	const HymtStoredTensor *b;
	char		module[MODULE_BYTES];
	Target		target;
	int			rank;

	module_path(module, layer, linear);
	a = find_part(opening, module, 'A');
	b = find_part(opening, module, 'B');
	target = is_target(opening, module, layer);
	if (a == NULL && b == NULL && target != TARGET_YES)
		return true;
	if (a == NULL || b == NULL)
		return hymt_fail(error, HYMT_FAILURE_ADAPTER, "%s: tensor lora_%s of %s is missing", path,
						 a == NULL ? "A" : "B", module);
	if (target == TARGET_NO)
		return hymt_fail(error, HYMT_FAILURE_ADAPTER,
						 "%s: has weights of %s, which %s does not name", path, module, CONFIG_FILE);
	rank = rank_of(opening, module);
	pair->scale = scale_of(opening, module, rank);
	return place_tensor(opening, &pair->a, a, rank, width_of(opening->base, linears[linear].inputs),
						"the base model and " CONFIG_FILE " demand", error) &&
		place_tensor(opening, &pair->b, b, width_of(opening->base, linears[linear].outputs), rank,
					 "the base model and " CONFIG_FILE " demand", error);
}

/* Some tensor has no place. */
static bool
fail_stray(const Opening *opening, HymtError *error)
{
	const HymtSafetensors *files = opening->adapter->files;
	const char *stray = "";

	for (size_t i = 0; i < hymt_safetensors_count(files); i++)
	{
		const HymtStoredTensor *stored = hymt_safetensors_at(files, i);
		bool		placed = false;

		for (int n = 0; n < opening->base->layers * HYMT_LINEARS && !placed; n++)
		{
			const HymtLowRankPair *pair = &opening->adapter->layer[n / HYMT_LINEARS][n % HYMT_LINEARS];

			placed = stored->bytes > 0 && (pair->a.data == stored->data || pair->b.data == stored->data);
		}
		if (!placed)
		{
			stray = stored->name;
			break;
		}
	}
	return hymt_fail(error, HYMT_FAILURE_ADAPTER,
					 "%s: tensor \"%.200s\" belongs to no matrix that can have an adapter in this model of %d layers",
					 hymt_safetensors_path(files, NULL), stray, opening->base->layers);
}

static bool
place_weights(Opening *opening, HymtError *error)
{
	for (int layer = 0; layer < opening->base->layers; layer++)
		for (int linear = 0; linear < HYMT_LINEARS; linear++)
			if (!place_pair(opening, layer, linear, error))
				return false;
	if (opening->placed != hymt_safetensors_count(opening->adapter->files))
		return fail_stray(opening, error);
	if (opening->placed == 0)
		return hymt_fail(error, HYMT_FAILURE_ADAPTER, "%s: holds no weights",
						 hymt_safetensors_path(opening->adapter->files, NULL));
	return true;
}

/* --- identity ------------------------------------------------------------------------------------------------------ */

static HymtFileIdentity
identity_of(const char *directory, const char *file)
{
	HymtFileIdentity identity = {0};
	char	   *path = hymt_path_join(directory, file);
	struct stat status;

	if (path != NULL && stat(path, &status) == 0)
		identity = (HymtFileIdentity) {
			.device = (uint64_t) status.st_dev, .inode = (uint64_t) status.st_ino, .size = (int64_t) status.st_size,
			.changed = (int64_t) status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec
		};
	free(path);
	return identity;
}

static void
read_identity(HymtFileIdentity identity[2], const char *directory)
{
	identity[0] = identity_of(directory, CONFIG_FILE);
	identity[1] = identity_of(directory, WEIGHTS_FILE);
}

bool
hymt_adapter_is_current(const HymtAdapter *adapter)
{
	static const HymtFileIdentity none;
	HymtFileIdentity now[2];

	read_identity(now, adapter->directory);
	return memcmp(now, adapter->identity, sizeof now) == 0 ||
		memcmp(&now[0], &none, sizeof none) == 0 || memcmp(&now[1], &none, sizeof none) == 0;
}

/* --- opening ------------------------------------------------------------------------------------------------------- */

/* Only the pickle of older versions is there: say so, or people look for a file that was never written. */
static bool
explain_missing_weights(const char *directory, HymtError *error)
{
	char	   *path = hymt_path_join(directory, "adapter_model.bin");
	struct stat status;

	if (path != NULL && error->failure == HYMT_FAILURE_MODEL_MISSING && stat(path, &status) == 0)
		hymt_fail(error, HYMT_FAILURE_ADAPTER, "%s: is a pickle, which is not read; save the adapter as %s", path,
				  WEIGHTS_FILE);
	free(path);
	return false;
}

static bool
open_parts(HymtAdapter *adapter, const HymtModel *model, const HymtFileBytes *bytes, HymtError *error)
{
	Opening		opening = {.adapter = adapter, .base = &model->config};
	char	   *path = hymt_path_join(adapter->directory, CONFIG_FILE);
	json_t	   *config = path != NULL ? hymt_json_object(bytes->data, bytes->length, path, error) : NULL;
	bool		done = false;

	opening.path = path;
	opening.config = config;
	if (path == NULL)
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	else if (config != NULL && read_config(&opening, error))
	{
		adapter->files = hymt_safetensors_open_file(adapter->directory, WEIGHTS_FILE, error);
		if (adapter->files == NULL)
			explain_missing_weights(adapter->directory, error);
		else
			done = place_weights(&opening, error);
	}
	json_decref(config);
	free(path);
	return done;
}

static bool
load(HymtAdapter *adapter, const HymtModel *model, const char *directory, HymtError *error)
{
	HymtFileBytes config = {0};
	bool		done;

	adapter->directory = strdup(directory);
	adapter->layer = calloc((size_t) model->config.layers, sizeof *adapter->layer);
	if (adapter->directory == NULL || adapter->layer == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	read_identity(adapter->identity, directory);
	if (!hymt_file_read(&config, directory, CONFIG_FILE, CONFIG_LIMIT, false, error))
		return false;
	done = open_parts(adapter, model, &config, error);
	if (done)
		hymt_fingerprint_adapter(adapter->fingerprint, &config, adapter->files);
	hymt_file_free(&config);
	return done;
}

bool
hymt_adapter_open(HymtAdapter *adapter, const HymtModel *model, const char *directory, HymtError *error)
{
	memset(adapter, 0, sizeof *adapter);
	if (load(adapter, model, directory, error))
		return true;
	hymt_adapter_close(adapter);
	/* The files' readers speak of models; whose files they were is what the caller must know. */
	if (error->failure != HYMT_FAILURE_NO_MEMORY)
		error->failure = HYMT_FAILURE_ADAPTER;
	return false;
}

void
hymt_adapter_read_ahead(const HymtAdapter *adapter)
{
	uintptr_t	page = (uintptr_t) sysconf(_SC_PAGESIZE);

	for (size_t i = 0; i < hymt_safetensors_count(adapter->files); i++)
	{
		const HymtStoredTensor *stored = hymt_safetensors_at(adapter->files, i);
		uintptr_t	begin = (uintptr_t) stored->data / page * page;

		(void) madvise((void *) begin, (uintptr_t) stored->data + stored->bytes - begin, MADV_WILLNEED);
	}
}

void
hymt_adapter_close(HymtAdapter *adapter)
{
	hymt_safetensors_close(adapter->files);
	free(adapter->layer);
	free(adapter->directory);
	memset(adapter, 0, sizeof *adapter);
}
