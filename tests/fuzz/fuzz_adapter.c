/*
 * fuzz_adapter.c: a LoRA adapter of a small model, and a list that assigns adapters to languages.
 *
 * The list is a "file" of its own in an input: it comes from a setting.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "adapter.h"
#include "assignments.h"
#include "readers.h"
#include "support.h"

#define LIST 2					/* which of the files it is */

static FuzzFile files[] = {
	{"adapter_config.json", NULL, 0},
	{"adapter_model.safetensors", NULL, 0},
	{"hymt.adapters", NULL, 0},
	{NULL, NULL, 0},
};

static const char config[] =
"{\"architectures\":[\"HunYuanDenseV1ForCausalLM\"],\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
"\"num_key_value_heads\":1,\"head_dim\":4,\"intermediate_size\":6,\"vocab_size\":10,\"max_position_embeddings\":64,"
"\"tie_word_embeddings\":true,\"eos_token_id\":2}";

static const HymtModel *
base_model(void)
{
	static HymtModel model;
	HymtError	error;

	if (model.path == NULL)
	{
		fuzz_write_weights();
		fuzz_write("config.json", config, sizeof config - 1);
		fuzz_require(hymt_model_open(&model, fuzz_directory(), NULL, &error), "the base model opens");
	}
	return &model;
}

static void
read_adapter(const HymtAdapter *adapter)
{
	int			pairs = 0;

	for (int linear = 0; linear < HYMT_LINEARS; linear++)
	{
		const HymtLowRankPair *pair = &adapter->layer[0][linear];

		fuzz_require((pair->a.data == NULL) == (pair->b.data == NULL), "there are both parts or none");
		if (pair->a.data == NULL)
			continue;
		fuzz_require(pair->a.rows == pair->b.columns && pair->a.rows <= HYMT_MAX_RANK, "the parts have one rank");
		fuzz_require(isfinite(pair->scale) && pair->scale > 0, "there is a scale");
		fuzz_read_tensor(&pair->a);
		fuzz_read_tensor(&pair->b);
		pairs++;
	}
	fuzz_require(pairs > 0 && adapter->stored_bytes > 0, "it does something");
	fuzz_require(strlen(adapter->fingerprint) == 64, "it has a fingerprint");
	fuzz_require(hymt_adapter_is_current(adapter), "its files are those that were opened");
}

/* Each key is found again by what it is printed as. */
static void
check_assignment(const HymtAssignments *assignments, const HymtAssignment *assignment)
{
	char		text[HYMT_ADAPTER_KEY_MAX];
	HymtAdapterItem again;
	const char *fault;

	hymt_adapter_key_text(&assignment->key, text);
	fuzz_require(hymt_adapter_key(text, strlen(text), &again, &fault) && hymt_adapter_same_key(&again, &assignment->key),
				 "a printed key is the key");
	fuzz_require(assignment->directory[0] != '\0', "there is a directory");
	if (assignment->key.name[0] != '\0')
		fuzz_require(hymt_assignments_find_name(assignments, assignment->key.name) == assignment->directory,
					 "the name is found");
	else
		fuzz_require(hymt_assignments_find(assignments, assignment->key.source, assignment->key.target) ==
					 assignment->directory, "the languages are found");
}

static void
read_list(const FuzzFile *list)
{
	HymtAssignments assignments = {0};
	HymtError	error = {HYMT_FAILURE_NONE, ""};
	char	   *text = strndup(list->data == NULL ? "" : (const char *) list->data, list->length);

	if (hymt_assignments_add_list(&assignments, text, &error))
		for (int i = 0; i < assignments.count; i++)
			check_assignment(&assignments, &assignments.list[i]);
	else
		fuzz_require(error.failure == HYMT_FAILURE_BAD_REQUEST && error.message[0] != '\0', "a list is refused with words");
	hymt_assignments_free(&assignments);
	free(text);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	HymtAdapter adapter;
	HymtError	error = {HYMT_FAILURE_NONE, ""};
	const HymtModel *base = base_model();

	fuzz_cut(files, data, size);
	fuzz_write_files(files);
	read_list(&files[LIST]);
	if (hymt_adapter_open(&adapter, base, fuzz_directory(), &error))
	{
		read_adapter(&adapter);
		hymt_adapter_close(&adapter);
	}
	else
	{
		fuzz_require(error.failure == HYMT_FAILURE_ADAPTER, "the failure is that of an adapter");
		fuzz_check_error(&error, files);
	}
	return 0;
}
