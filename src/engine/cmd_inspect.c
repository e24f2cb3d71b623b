/*
 * cmd_inspect.c: `hymt-engine inspect --model DIR`: what a model directory holds and what the engine makes of it.
 *
 * Runs in the engine program, without a database. Prints "key: value" lines for people; computes nothing.
 */
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

#define LAYER_PREFIX "model.layers."

/* --- the model ---------------------------------------------------------------------------------------------------- */

static void
print_architecture(const HymtModel *model)
{
	const HymtConfig *config = &model->config;

	printf("model: %s\n", model->name);
	printf("directory: %s\n", model->directory);
	printf("family: %s (%s)\n", hymt_family_name(model->family), model->family_reason);
	printf("languages: %s\n", model->languages == NULL ? "all that hymt knows" : model->languages);
	printf("architecture: HunYuanDenseV1ForCausalLM\n");
	printf("layers: %d\n", config->layers);
	printf("hidden: %d\n", config->hidden);
	printf("heads: %d query, %d key-value, of %d\n", config->heads, config->kv_heads, config->head_dim);
	printf("feed-forward: %d\n", config->intermediate);
	printf("vocabulary rows: %d\n", config->vocab);
	printf("output head: %s\n", config->tied ? "the embedding (tied)" : "its own");
	printf("context: %d tokens\n", config->max_position);
	printf("rotation base: %.17g\n", config->rope_base);
	printf("norm epsilon: %g\n", (double) config->norm_eps);
	printf("repetition penalty: %g\n", (double) config->repetition_penalty);
}

static void
print_dtypes(const HymtModel *model)
{
	size_t		count[HYMT_DTYPE_BF16 + 1] = {0};
	const char *comma = "";

	for (size_t i = 0; i < model->weight_count; i++)
		count[model->weights[i].tensor->dtype]++;
	printf("dtypes: ");
	for (int i = 0; i <= HYMT_DTYPE_BF16; i++)
		if (count[i] > 0)
		{
			printf("%s%zu %s", comma, count[i], hymt_dtype_name((HymtDtype) i));
			comma = ", ";
		}
	printf("\n");
}

static void
print_shape(const HymtWeight *weight)
{
	const HymtTensor *tensor = weight->tensor;

	if (weight->vector)
		printf("[%" PRId64 "] %s\n", tensor->columns, hymt_dtype_name(tensor->dtype));
	else
		printf("[%" PRId64 ", %" PRId64 "] %s\n", tensor->rows, tensor->columns, hymt_dtype_name(tensor->dtype));
}

/* The layers have the same shapes, so the first one stands for all. */
static void
print_weights(const HymtModel *model)
{
	static const char first[] = LAYER_PREFIX "0.";

	printf("tensors: %zu in %d file%s\n", model->weight_count, hymt_safetensors_file_count(model->files),
		   hymt_safetensors_file_count(model->files) == 1 ? "" : "s");
	print_dtypes(model);
	printf("parameters: %" PRIu64 "\n", model->parameters);
	printf("bytes: %" PRIu64 "\n", model->stored_bytes);
	for (size_t i = 0; i < model->weight_count; i++)
	{
		const HymtWeight *weight = &model->weights[i];

		if (strncmp(weight->name, first, strlen(first)) == 0)
			printf("tensor: " LAYER_PREFIX "{0..%d}.%s ", model->config.layers - 1, weight->name + strlen(first));
		else if (strncmp(weight->name, LAYER_PREFIX, strlen(LAYER_PREFIX)) != 0)
			printf("tensor: %s ", weight->name);
		else
			continue;
		print_shape(weight);
	}
}

/* --- the tokenizer ------------------------------------------------------------------------------------------------ */

static void
print_tokenizer(const HymtTokenizer *tokenizer, const HymtConfig *config)
{
	HymtChatTemplate chat;
	HymtError	error;
	int			vocabulary;
	int			merges;
	int			added;

	if (tokenizer == NULL)
	{
		printf("tokenizer: none (no tokenizer.json)\n");
		return;
	}
	hymt_tokenizer_counts(tokenizer, &vocabulary, &merges, &added);
	printf("tokenizer: %d tokens, %d merges, %d added tokens, ids below %d\n", vocabulary, merges, added,
		   hymt_tokenizer_size(tokenizer));
	if (hymt_tokenizer_size(tokenizer) > config->vocab)
		printf("warning: the tokenizer has ids beyond the vocabulary rows\n");
	if (hymt_chat_template_find(&chat, tokenizer, &error))
		printf("chat template: %s\n", chat.name);
	else
		printf("chat template: none (%s)\n", error.message);
}

/* The content of an added token; NULL when the file has none of that id. */
static const char *
added_content(const json_t *file, int id)
{
	const json_t *list = json_object_get(file, "added_tokens");

	for (size_t i = 0; i < json_array_size(list); i++)
	{
		const json_t *token = json_array_get(list, i);
		const json_t *number = json_object_get(token, "id");

		if (json_is_integer(number) && json_integer_value(number) == id)
			return json_string_value(json_object_get(token, "content"));
	}
	return NULL;
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
print_stop_id(int32_t id, const HymtTokenizer *tokenizer, const json_t *file)
{
	const char *content = added_content(file, id);
	char	   *decoded = NULL;
	size_t		length = 0;

	if (tokenizer == NULL)
	{
		printf("stop id: %d\n", id);
		return;
	}
	if (content == NULL && hymt_tokenizer_decode(tokenizer, &id, 1, &decoded, &length))
		content = decoded;
	printf("stop id: %d ", id);
	print_quoted(content == NULL ? "" : content);
	printf(", %s\n", hymt_tokenizer_is_special(tokenizer, id) ? "a control token" : "no control token: ignored");
	free(decoded);
}

/* tokenizer.json once more, as JSON, for the spelling of control tokens. NULL, which is no error, without one. */
static json_t *
read_tokenizer_file(const char *directory)
{
	HymtFileBytes bytes;
	HymtError	ignored;
	json_t	   *json;

	if (!hymt_file_read(&bytes, directory, "tokenizer.json", HYMT_TOKENIZER_FILE_MAX, true, &ignored) ||
		bytes.data == NULL)
		return NULL;
	json = hymt_json_object(bytes.data, bytes.length, "tokenizer.json", &ignored);
	hymt_file_free(&bytes);
	return json;
}

static void
print_stop_ids(const HymtModel *model, const HymtTokenizer *tokenizer)
{
	json_t	   *file = tokenizer == NULL ? NULL : read_tokenizer_file(model->directory);

	for (int i = 0; i < model->config.stop_count; i++)
		print_stop_id(model->config.stop_ids[i], tokenizer, file);
	if (model->config.stop_count == 0)
		printf("stop id: none\n");
	json_decref(file);
}

/* A model without a tokenizer is complete enough to compute with; *tokenizer is then NULL. */
static bool
open_tokenizer(HymtTokenizer **tokenizer, const char *directory, HymtError *error)
{
	return hymt_tokenizer_open_model(tokenizer, directory, error) || error->failure == HYMT_FAILURE_MODEL_MISSING;
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
	const char *directory = common->model;
	HymtModel	model;
	HymtTokenizer *tokenizer;
	HymtError	error;

	if (!hymt_model_open(&model, directory, &options, &error))
		return fail(error.message);
	if (!open_tokenizer(&tokenizer, directory, &error))
	{
		hymt_model_close(&model);
		return fail(error.message);
	}
	print_architecture(&model);
	print_weights(&model);
	print_tokenizer(tokenizer, &model.config);
	print_stop_ids(&model, tokenizer);
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
		"usage: hymt-engine inspect --model DIR\n"
		"Shows what a model directory holds: prompt family and why, shapes, sizes, tokenizer, stop ids, fingerprint; and how\n"
		"the engine would divide this machine's memory for it.\n";
	HymtOptions options;
	int			exit_code;

	if (!hymt_options_parse(&options, argc, argv, usage, NULL, &exit_code))
		return exit_code;
	exit_code = inspect(&options);
	return hymt_options_close(&options) ? exit_code : 1;
}
