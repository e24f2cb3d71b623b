/*
 * cmd_inspect.c: `hymt-engine inspect --model PATH`: what a model's files hold and what the engine makes of it.
 *
 * Runs in the engine program, without a database. Prints "key: value" lines for people; computes nothing.
 */
#include "adapter.h"
#include "cmd.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "model.h"
#include "model_parts.h"
#include "prompts.h"
#include "tokenizer.h"
#include "utf8.h"

/* --- the model ---------------------------------------------------------------------------------------------------- */

static void
print_architecture(const HymtModel *model)
{
	const HymtConfig *config = &model->config;

	printf("model: %s\n", model->name);
	if (model->gguf != NULL)
		printf("file: %s\n", model->gguf);
	else
		printf("directory: %s\n", model->directory);
	printf("family: %s (%s)\n", hymt_family_name(model->family), model->family_reason);
	for (size_t i = 0; i < model->template_count; i++)
		printf("prompt from hymt.json: %s\n", model->templates[i].form);
	printf("languages: %s\n", model->languages == NULL ? "all that hymt knows" : model->languages);
	printf("architecture: %s\n", hymt_architecture_name(config->architecture));
	printf("layers: %d\n", config->layers);
	printf("hidden: %d\n", config->hidden);
	printf("heads: %d query, %d key-value, of %d\n", config->heads, config->kv_heads, config->head_dim);
	printf("feed-forward: %d\n", config->intermediate);
	printf("vocabulary rows: %d\n", config->vocab);
	printf("output head: %s\n", config->tied ? "the embedding (tied)" : "its own");
	printf("context: %d tokens\n", config->max_position);
	printf("rotation base: %.17g\n", config->rope_base);
	if (config->rope_scaling == HYMT_ROPE_LINEAR)
		printf("rotation scaling: linear, by %g\n", config->rope_factor);
	if (config->rope_scaling == HYMT_ROPE_LLAMA3)
		printf("rotation scaling: llama3, by %g, from %g to %g turns in %d tokens\n", config->rope_factor,
			   config->rope_low, config->rope_high, config->rope_context);
	printf("norm epsilon: %g\n", (double) config->norm_eps);
	printf("repetition penalty: %g\n", (double) config->repetition_penalty);
}

/* How often each dtype occurs among some tensors, with the bytes they take. */
typedef struct Dtypes
{
	size_t		count[HYMT_DTYPE_COUNT];
	uint64_t	bytes[HYMT_DTYPE_COUNT];
} Dtypes;

static void
count_dtype(Dtypes *dtypes, const HymtTensor *tensor)
{
	HymtTensorPart parts[HYMT_TENSOR_PARTS];
	int			count = hymt_tensor_parts(tensor, parts);

	dtypes->count[tensor->dtype]++;
	for (int i = 0; i < count; i++)
		dtypes->bytes[tensor->dtype] += parts[i].bytes;
}

static void
print_dtypes(const HymtModel *model)
{
	Dtypes		dtypes = {0};
	const char *comma = "";

	for (size_t i = 0; i < model->weight_count; i++)
		count_dtype(&dtypes, model->weights[i].tensor);
	printf("dtypes: ");
	for (int i = 0; i < HYMT_DTYPE_COUNT; i++)
		if (dtypes.count[i] > 0)
		{
			printf("%s%zu %s (%" PRIu64 " bytes)", comma, dtypes.count[i], hymt_dtype_name((HymtDtype) i),
				   dtypes.bytes[i]);
			comma = ", ";
		}
	printf("\n");
}

/* The dtypes of one kind of tensor: one name, or each with how many layers have it. */
static void
print_kind(const Dtypes *dtypes, size_t of)
{
	const char *comma = "";
	uint64_t	bytes = 0;

	for (int i = 0; i < HYMT_DTYPE_COUNT; i++)
	{
		bytes += dtypes->bytes[i];
		if (dtypes->count[i] == 0)
			continue;
		printf("%s%s", comma, hymt_dtype_name((HymtDtype) i));
		if (dtypes->count[i] < of)
			printf(" in %zu", dtypes->count[i]);
		comma = ", ";
	}
	printf(", %" PRIu64 " bytes\n", bytes);
}

/* The layer that a tensor belongs to, or -1. */
static int
layer_of(const HymtModel *model, const HymtTensor *tensor)
{
	uintptr_t	offset = (uintptr_t) tensor - (uintptr_t) model->layer;	/* huge when it stands before */

	return offset < sizeof(HymtLayer) * (size_t) model->config.layers ? (int) (offset / sizeof(HymtLayer)) : -1;
}

static void
print_name(const char *name, int layers)
{
	const char *number = strstr(name, ".0.");

	if (number == NULL)
		printf("tensor: %s ", name);
	else
		printf("tensor: %.*s.{0..%d}%s ", (int) (number - name), name, layers - 1, number + 2);
}

/* The layers have the same shapes, so the first one stands for all; their dtypes may differ. */
static void
print_weight(const HymtModel *model, const HymtWeight *weight)
{
	const HymtTensor *tensor = weight->tensor;
	int			layer = layer_of(model, tensor);
	int			count = layer < 0 ? 1 : model->config.layers;
	Dtypes		dtypes = {0};

	if (layer > 0)
		return;
	for (int i = 0; i < count; i++)
		count_dtype(&dtypes, (const HymtTensor *) ((const char *) tensor + sizeof(HymtLayer) * (size_t) i));
	print_name(weight->name, count);
	if (weight->vector)
		printf("[%" PRId64 "] ", tensor->columns);
	else
		printf("[%" PRId64 ", %" PRId64 "] ", tensor->rows, tensor->columns);
	print_kind(&dtypes, (size_t) count);
}

static void
print_weights(const HymtModel *model)
{
	int			files = hymt_stored_file_count(model->files);

	printf("format: %s\n", model->gguf != NULL ? "GGUF" : "safetensors");
	printf("tensors: %zu in %d file%s\n", model->weight_count, files, files == 1 ? "" : "s");
	print_dtypes(model);
	printf("parameters: %" PRIu64 "\n", model->parameters);
	printf("bytes: %" PRIu64 "\n", model->stored_bytes);
	for (size_t i = 0; i < model->weight_count; i++)
		print_weight(model, &model->weights[i]);
}

/* --- the tokenizer ------------------------------------------------------------------------------------------------ */

static void
print_tokenizer(const HymtTokenizer *tokenizer, const HymtModel *model)
{
	HymtPrompts prompts;
	HymtError	error;
	int			vocabulary;
	int			merges;
	int			added;

	if (tokenizer == NULL)
	{
		printf("tokenizer: none\n");
		return;
	}
	hymt_tokenizer_counts(tokenizer, &vocabulary, &merges, &added);
	printf("tokenizer: %s, %d tokens, %d merges, %d added tokens, ids below %d\n", hymt_tokenizer_source(tokenizer),
		   vocabulary, merges, added, hymt_tokenizer_size(tokenizer));
	if (hymt_tokenizer_bos(tokenizer) >= 0)
		printf("begin of prompts: id %d\n", hymt_tokenizer_bos(tokenizer));
	if (hymt_tokenizer_text_size(tokenizer) > model->config.vocab)
		printf("warning: the tokenizer has ids beyond the vocabulary rows\n");
	if (hymt_prompts_open(&prompts, model, tokenizer, &error))
		printf("chat template: %s\n", prompts.chat_name);
	else
		printf("chat template: none (%s)\n", error.message);
}

/* A token as the file spells it. The file is untrusted, and control characters would steer a terminal. */
static void
print_quoted(const char *text)
{
	int			escaped = 0;

	putchar('"');
	for (; *text != '\0'; text++)
	{
		if (escaped == 0)
			escaped = hymt_utf8_control(text);
		if (escaped > 0)
		{
			printf("\\x%02x", (unsigned char) *text);
			escaped--;
		}
		else
			putchar(*text);
	}
	putchar('"');
}

static void
print_stop_id(int32_t id, const HymtTokenizer *tokenizer)
{
	char	   *content;
	size_t		length = 0;

	if (tokenizer == NULL)
	{
		printf("stop id: %d\n", id);
		return;
	}
	content = hymt_tokenizer_added_spelling(tokenizer, id);
	if (content == NULL && !hymt_tokenizer_decode(tokenizer, &id, 1, &content, &length))
		content = NULL;
	printf("stop id: %d ", id);
	print_quoted(content == NULL ? "" : content);
	printf(", %s\n", hymt_tokenizer_is_special(tokenizer, id) ? "a control token" : "no control token: ignored");
	free(content);
}

static void
print_stop_ids(const HymtModel *model, const HymtTokenizer *tokenizer)
{
	for (int i = 0; i < model->config.stop_count; i++)
		print_stop_id(model->config.stop_ids[i], tokenizer);
	if (model->config.stop_count == 0)
		printf("stop id: none\n");
}

/* Those that hymt.json assigns to languages, and whether they can be used. */
static void
print_adapters(const HymtModel *model)
{
	for (int i = 0; i < model->adapters.count; i++)
	{
		const HymtAssignment *assignment = &model->adapters.list[i];
		char		key[HYMT_ADAPTER_KEY_MAX];
		HymtAdapter adapter;
		HymtError	error;

		hymt_adapter_key_text(&assignment->key, key);
		printf("adapter for %s: ", key);
		if (hymt_adapter_open(&adapter, model, assignment->directory, &error))
		{
			printf("%llu bytes, fingerprint %s\n", (unsigned long long) adapter.stored_bytes, adapter.fingerprint);
			hymt_adapter_close(&adapter);
		}
		else
			printf("cannot be used: %s\n", error.message);
	}
}

/* A model without a tokenizer is complete enough to compute with; *tokenizer is then NULL. */
static bool
open_tokenizer(HymtTokenizer **tokenizer, const char *path, HymtError *error)
{
	return hymt_tokenizer_open_model(tokenizer, path, error) || error->failure == HYMT_FAILURE_MODEL_MISSING;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int
fail(const char *message)
{
	hymt_complain("%s", message);
	return 1;
}

/* How the engine would divide memory on this machine; a model that does not fit can be looked at all the same. */
static void
print_budget(const HymtModel *model, const HymtOptions *options)
{
	HymtBudget	budget = {.memory = options->memory, .device = options->device};
	HymtError	error;
	char		text[512];

	if (!hymt_budget_decide(&budget, model, &error))
	{
		printf("memory: %s\n", error.message);
		return;
	}
	hymt_budget_describe(&budget, text, sizeof(text));
	printf("memory: %s\n", text);
	printf("keys and values: %" PRId64 " bytes, %d tokens\n", budget.pages, (int) budget.page_tokens);
	printf("memory in all: %" PRId64 " bytes\n",
		   budget.weights + budget.tokenizer + budget.computing + budget.pages);
}

static int
inspect(const HymtOptions *common)
{
	HymtModelOptions options = {.family = common->family};
	const char *path = common->model;
	HymtModel	model;
	HymtTokenizer *tokenizer;
	HymtError	error;

	if (!hymt_model_open(&model, path, &options, &error))
		return fail(error.message);
	if (!open_tokenizer(&tokenizer, path, &error))
	{
		hymt_model_close(&model);
		return fail(error.message);
	}
	print_architecture(&model);
	print_weights(&model);
	print_tokenizer(tokenizer, &model);
	print_stop_ids(&model, tokenizer);
	print_adapters(&model);
	print_budget(&model, common);
	printf("fingerprint: %s\n", model.fingerprint);
	if (tokenizer != NULL)
		hymt_tokenizer_close(tokenizer);
	hymt_model_close(&model);
	return 0;					/* main() sees to the output */
}

int
hymt_cmd_inspect(int argc, char **argv)
{
	static const char usage[] =
		"usage: hymt-engine inspect --model PATH\n"
		"Shows what a model's files hold: prompt family and why, shapes, sizes, tokenizer, stop ids, adapters for languages,\n"
		"fingerprint of the model without them; and how the engine would divide this machine's memory for it.\n";
	HymtOptions options;
	int			exit_code;

	if (!hymt_options_parse(&options, argc, argv, usage, NULL, &exit_code))
		return exit_code;
	exit_code = inspect(&options);
	return hymt_options_close(&options) ? exit_code : 1;
}
