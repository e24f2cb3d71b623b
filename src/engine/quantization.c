/*
 * quantization.c: what config.json's quantization_config says about how weights are stored.
 *
 * Runs in the engine program. Owns nothing. The file is untrusted. Weights of 8 bits tell by their dtype and their
 * scales what they are, so of their configuration only that is looked at which would give them another meaning. How
 * activations should be quantised is of no interest here: they stay float32.
 */
#include "model_parts.h"

#include <string.h>

#define MAX_GROUP (1 << 20)

typedef struct Source
{
	const json_t *json;
	const char *directory;
	const char *file;
	HymtError  *error;
} Source;

static bool
refuse(const Source *source, HymtFailure failure, const char *what)
{
	return hymt_fail(source->error, failure, "%s/%s: quantization_config: %s", source->directory, source->file, what);
}

static bool
unsupported(const Source *source, const char *key, const char *found)
{
	return hymt_fail(source->error, HYMT_FAILURE_MODEL_UNSUPPORTED,
					 "%s/%s: quantization_config: %s \"%.40s\" is not supported", source->directory, source->file, key,
					 found == NULL ? "" : found);
}

/* Whether a string member is absent, null or one of a NULL-terminated list. */
static bool
check_word(const Source *source, const json_t *object, const char *key, const char *const *allowed)
{
	const json_t *value = json_object_get(object, key);
	const char *word = json_string_value(value);

	if (value == NULL || json_is_null(value))
		return true;
	for (; word != NULL && *allowed != NULL; allowed++)
		if (strcmp(word, *allowed) == 0)
			return true;
	return unsupported(source, key, word);
}

static bool
check_integer(const Source *source, const json_t *object, const char *key, json_int_t wanted)
{
	const json_t *value = json_object_get(object, key);

	if (json_is_integer(value) && json_integer_value(value) == wanted)
		return true;
	return hymt_fail(source->error, HYMT_FAILURE_MODEL_UNSUPPORTED,
					 "%s/%s: quantization_config: %s other than %" JSON_INTEGER_FORMAT " is not supported",
					 source->directory, source->file, key, wanted);
}

/* --- FP8 ---------------------------------------------------------------------------------------------------------- */

static bool
read_fp8(const Source *source)
{
	static const char *const formats[] = {"e4m3", NULL};
	const json_t *block = json_object_get(source->json, "weight_block_size");

	if (block != NULL && !json_is_null(block))
		return refuse(source, HYMT_FAILURE_MODEL_UNSUPPORTED,
					  "scales for blocks (weight_block_size) are not supported");
	return check_word(source, source->json, "fmt", formats);
}

/* One group of config_groups: what its weights are. */
static bool
check_group(const Source *source, const json_t *group)
{
	static const char *const types[] = {"float", NULL};
	static const char *const strategies[] = {"tensor", "channel", NULL};
	const json_t *weights = json_object_get(group, "weights");

	if (!json_is_object(weights))
		return refuse(source, HYMT_FAILURE_MODEL_BROKEN, "a group of config_groups has no weights");
	if (json_is_false(json_object_get(weights, "symmetric")))
		return refuse(source, HYMT_FAILURE_MODEL_UNSUPPORTED, "asymmetric weights are not supported");
	return check_word(source, weights, "type", types) &&
		check_integer(source, weights, "num_bits", 8) &&
		check_word(source, weights, "strategy", strategies);
}

static bool
read_compressed_tensors(const Source *source)
{
	static const char *const formats[] = {"naive-quantized", "float-quantized", NULL};
	const json_t *groups = json_object_get(source->json, "config_groups");
	const char *name;
	json_t	   *group;

	if (!check_word(source, source->json, "format", formats))
		return false;
	if (!json_is_object(groups))
		return refuse(source, HYMT_FAILURE_MODEL_BROKEN, "config_groups is missing");
	json_object_foreach((json_t *) groups, name, group)
		if (!check_group(source, group))
			return false;
	return true;
}

/* --- GPTQ --------------------------------------------------------------------------------------------------------- */

static bool
read_group_size(HymtQuantization *quantization, const Source *source)
{
	const json_t *size = json_object_get(source->json, "group_size");
	json_int_t	number = json_integer_value(size);

	if (!json_is_integer(size) || (number != -1 && (number < 1 || number > MAX_GROUP)))
		return refuse(source, HYMT_FAILURE_MODEL_BROKEN, "group_size must be a positive integer, or -1");
	quantization->group = number == -1 ? 0 : number;
	return true;
}

static bool
read_gptq(HymtQuantization *quantization, const Source *source)
{
	static const char *const formats[] = {"gptq", "gptq_v2", NULL};
	static const char *const words[] = {"int32", NULL};
	const char *format = json_string_value(json_object_get(source->json, "checkpoint_format"));

	quantization->gptq = true;
	/* the first version of the format stores one less than is meant */
	quantization->zero_offset = format != NULL && strcmp(format, "gptq_v2") == 0 ? 0 : 1;
	return check_integer(source, source->json, "bits", 4) &&
		check_word(source, source->json, "checkpoint_format", formats) &&
		check_word(source, source->json, "pack_dtype", words) &&
		read_group_size(quantization, source);
}

bool
hymt_quantization_read(HymtQuantization *quantization, const json_t *json, const char *directory, const char *file,
					   HymtError *error)
{
	Source		source = {json, directory, file, error};
	const char *method = json_string_value(json_object_get(json, "quant_method"));

	memset(quantization, 0, sizeof *quantization);
	if (json == NULL)
		return true;
	if (!json_is_object(json))
		return refuse(&source, HYMT_FAILURE_MODEL_BROKEN, "must be an object");
	if (method == NULL)
		return refuse(&source, HYMT_FAILURE_MODEL_BROKEN, "names no quant_method");
	if (strcmp(method, "fp8") == 0)
		return read_fp8(&source);
	if (strcmp(method, "compressed-tensors") == 0)
		return read_compressed_tensors(&source);
	if (strcmp(method, "gptq") == 0)
		return read_gptq(quantization, &source);
	return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED,
					 "%s/%s: weights quantized by the method \"%.40s\" are not supported; supported: fp8, "
					 "compressed-tensors (8 bits, float), gptq (4 bits)", directory, file, method);
}
