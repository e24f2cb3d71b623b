/*
 * gguf_config.c: what the metadata of a GGUF file say about a model, in the words of a config.json.
 *
 * Runs in the engine program, while a model is loaded. The file is untrusted; the container has been checked (gguf.c).
 * Types are checked here, values by config.c, which reads the result: one place knows what this engine can compute.
 */
#include "gguf.h"

#include <stdlib.h>
#include <string.h>

#define ARCHITECTURE "hunyuan-dense"
#define HF_ARCHITECTURE "HunYuanDenseV1ForCausalLM"
#define KEY_BYTES 96

typedef struct Reader
{
	const HymtGguf *gguf;
	json_t	   *config;
	HymtError  *error;
} Reader;

/* --- names of tensors --------------------------------------------------------------------------------------------- */

static const struct
{
	const char *name;			/* in safetensors files, without ".weight" */
	const char *gguf;
}			layer_names[] = {
	{"input_layernorm", "attn_norm"},
	{"self_attn.q_proj", "attn_q"},
	{"self_attn.k_proj", "attn_k"},
	{"self_attn.v_proj", "attn_v"},
	{"self_attn.o_proj", "attn_output"},
	{"self_attn.query_layernorm", "attn_q_norm"},
	{"self_attn.key_layernorm", "attn_k_norm"},
	{"post_attention_layernorm", "ffn_norm"},
	{"mlp.gate_proj", "ffn_gate"},
	{"mlp.up_proj", "ffn_up"},
	{"mlp.down_proj", "ffn_down"},
};

static const char layer_prefix[] = "model.layers.";

static bool
layer_tensor_name(char *to, size_t size, const char *name)
{
	char	   *end;
	long		layer = strtol(name + sizeof layer_prefix - 1, &end, 10);
	const char *suffix = strrchr(end, '.');

	if (*end != '.' || suffix == end)
		return false;
	for (size_t i = 0; i < sizeof layer_names / sizeof layer_names[0]; i++)
		if (strlen(layer_names[i].name) == (size_t) (suffix - end - 1) &&
			strncmp(layer_names[i].name, end + 1, (size_t) (suffix - end - 1)) == 0)
		{
			snprintf(to, size, "blk.%ld.%s%s", layer, layer_names[i].gguf, suffix);
			return true;
		}
	return false;
}

bool
hymt_gguf_tensor_name(char *to, size_t size, const char *name)
{
	if (strncmp(name, layer_prefix, sizeof layer_prefix - 1) == 0)
		return layer_tensor_name(to, size, name);
	if (strcmp(name, "model.embed_tokens.weight") == 0)
		snprintf(to, size, "token_embd.weight");
	else if (strcmp(name, "model.norm.weight") == 0)
		snprintf(to, size, "output_norm.weight");
	else if (strcmp(name, "lm_head.weight") == 0)
		snprintf(to, size, "output.weight");
	else
		return false;
	return true;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static bool
broken(Reader *reader, const char *key, const char *what)
{
	return hymt_fail(reader->error, HYMT_FAILURE_MODEL_BROKEN, "%s: %s %s", hymt_gguf_path(reader->gguf), key, what);
}

static bool
unsupported(Reader *reader, const char *key, const char *what)
{
	return hymt_fail(reader->error, HYMT_FAILURE_MODEL_UNSUPPORTED, "%s: %s %s", hymt_gguf_path(reader->gguf), key,
					 what);
}

static bool
set(Reader *reader, const char *name, json_t *value)
{
	return json_object_set_new(reader->config, name, value) == 0 ||
		hymt_fail(reader->error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", hymt_gguf_path(reader->gguf));
}

/* The value of a key of the architecture; the whole key goes to `key`. */
static const HymtGgufValue *
find(const Reader *reader, char key[KEY_BYTES], const char *suffix)
{
	snprintf(key, KEY_BYTES, ARCHITECTURE ".%s", suffix);
	return hymt_gguf_value(reader->gguf, key);
}

/* A missing one leaves *integer alone when it is optional. */
static bool
read_integer(Reader *reader, const char *suffix, bool optional, int64_t *integer)
{
	char		key[KEY_BYTES];
	const HymtGgufValue *value = find(reader, key, suffix);

	if (value == NULL)
		return optional || broken(reader, key, "is missing");
	return hymt_gguf_integer(value, integer) || broken(reader, key, "must be an integer");
}

static bool
copy_integer(Reader *reader, const char *suffix, const char *name, bool optional)
{
	char		key[KEY_BYTES];
	int64_t		integer = 0;

	if (optional && find(reader, key, suffix) == NULL)
		return true;
	return read_integer(reader, suffix, false, &integer) && set(reader, name, json_integer(integer));
}

static bool
copy_number(Reader *reader, const char *key, const char *name, bool optional)
{
	const HymtGgufValue *value = hymt_gguf_value(reader->gguf, key);
	double		number;
	json_t	   *json;

	if (value == NULL)
		return optional || broken(reader, key, "is missing");
	if (!hymt_gguf_number(value, &number))
		return broken(reader, key, "must be a number");
	json = json_real(number);
	return json == NULL ? broken(reader, key, "is not finite") : set(reader, name, json);
}

static bool
copy_whole(Reader *reader, const char *key, const char *name)
{
	const HymtGgufValue *value = hymt_gguf_value(reader->gguf, key);
	int64_t		integer;

	if (value == NULL)
		return true;
	return hymt_gguf_integer(value, &integer) ? set(reader, name, json_integer(integer))
		: broken(reader, key, "must be an integer");
}

/* --- what the engine must know or cannot do ----------------------------------------------------------------------- */

static bool
check_architecture(Reader *reader)
{
	const HymtGgufValue *value = hymt_gguf_value(reader->gguf, "general.architecture");
	HymtJsonText name;
	int64_t		parts = 1;

	if (value == NULL || !hymt_gguf_text(value, &name))
		return broken(reader, "general.architecture", "is missing or no string");
	if (!hymt_json_text_is(&name, ARCHITECTURE))
		return hymt_fail(reader->error, HYMT_FAILURE_MODEL_UNSUPPORTED,
						 "%s: the architecture %.*s is not supported in GGUF files; supported: " ARCHITECTURE,
						 hymt_gguf_path(reader->gguf), (int) (name.length < 100 ? name.length : 100), name.data);
	value = hymt_gguf_value(reader->gguf, "split.count");
	if (value != NULL && (!hymt_gguf_integer(value, &parts) || parts > 1))
		return unsupported(reader, "split.count", "says that the model is spread over several files, which is not "
						   "supported: merge them first");
	return true;
}

/* The base is stored with all scaling applied. */
static bool
check_rope_scaling(Reader *reader)
{
	char		key[KEY_BYTES];
	const HymtGgufValue *value = find(reader, key, "rope.scaling.type");
	HymtJsonText type;

	if (value == NULL || (hymt_gguf_text(value, &type) && hymt_json_text_is(&type, "none")))
		return true;
	return unsupported(reader, key, "other than none is not supported");
}

/* Heads are rotated as a whole, and values are as long as keys. */
static bool
check_head_dim(Reader *reader)
{
	int64_t		hidden = 0;
	int64_t		heads = 1;
	int64_t		head_dim;
	int64_t		rotated;
	int64_t		value_dim;

	if (!read_integer(reader, "embedding_length", false, &hidden) ||
		!read_integer(reader, "attention.head_count", false, &heads))
		return false;
	head_dim = heads > 0 ? hidden / heads : 0;
	if (!read_integer(reader, "attention.key_length", true, &head_dim))
		return false;
	rotated = value_dim = head_dim;
	if (!read_integer(reader, "rope.dimension_count", true, &rotated) ||
		!read_integer(reader, "attention.value_length", true, &value_dim))
		return false;
	if (rotated != head_dim)
		return unsupported(reader, ARCHITECTURE ".rope.dimension_count", "other than the heads' size is not supported");
	if (value_dim != head_dim)
		return unsupported(reader, ARCHITECTURE ".attention.value_length",
						   "other than the heads' size is not supported");
	return true;
}

/* The rows of the embedding, whatever else the file says about their number. */
static bool
set_vocabulary(Reader *reader)
{
	const HymtStoredTensor *embedding = hymt_gguf_find(reader->gguf, "token_embd.weight");
	bool		tied = hymt_gguf_find(reader->gguf, "output.weight") == NULL;
	int64_t		rows;

	if (embedding == NULL)
		return broken(reader, "tensor \"token_embd.weight\"", "is missing");
	rows = embedding->dimensions == 2 ? embedding->shape[0] : 0;
	if (!read_integer(reader, "vocab_size", true, &rows))
		return false;
	if (embedding->dimensions != 2 || embedding->shape[0] != rows)
		return broken(reader, ARCHITECTURE ".vocab_size", "is not the number of rows of tensor \"token_embd.weight\"");
	return set(reader, "vocab_size", json_integer(rows)) &&
		set(reader, "tie_word_embeddings", json_boolean(tied));
}

/* Where generation ends: of the whole text, and of a turn. */
static bool
set_stop_ids(Reader *reader)
{
	static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
	json_t	   *list = json_array();

	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
	{
		const HymtGgufValue *value = hymt_gguf_value(reader->gguf, keys[i]);
		int64_t		id;

		if (value == NULL)
			continue;
		if (!hymt_gguf_integer(value, &id))
		{
			json_decref(list);
			return broken(reader, keys[i], "must be an integer");
		}
		if (json_array_append_new(list, json_integer(id)) != 0)
		{
			json_decref(list);
			list = NULL;		/* set() then says that memory is out */
			break;
		}
	}
	return set(reader, "eos_token_id", list);
}

static bool
fill(Reader *reader)
{
	return check_architecture(reader) &&
		check_rope_scaling(reader) &&
		check_head_dim(reader) &&
		set(reader, "architectures", json_pack("[s]", HF_ARCHITECTURE)) &&
		copy_integer(reader, "block_count", "num_hidden_layers", false) &&
		copy_integer(reader, "context_length", "max_position_embeddings", false) &&
		copy_integer(reader, "embedding_length", "hidden_size", false) &&
		copy_integer(reader, "feed_forward_length", "intermediate_size", false) &&
		copy_integer(reader, "attention.head_count", "num_attention_heads", false) &&
		copy_integer(reader, "attention.head_count_kv", "num_key_value_heads", true) &&
		copy_integer(reader, "attention.key_length", "head_dim", true) &&
		copy_number(reader, ARCHITECTURE ".attention.layer_norm_rms_epsilon", "rms_norm_eps", false) &&
		copy_number(reader, ARCHITECTURE ".rope.freq_base", "rope_theta", true) &&
		set_vocabulary(reader) &&
		set_stop_ids(reader);
}

/* The text of what has been read, unless that has failed; releases the reader. */
static bool
finish(Reader *reader, bool ok, HymtFileBytes *json)
{
	if (ok)
		json->data = json_dumps(reader->config, JSON_SORT_KEYS);
	if (json->data != NULL)
		json->length = strlen(json->data);
	else if (ok || reader->config == NULL)
		ok = hymt_fail(reader->error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", hymt_gguf_path(reader->gguf));
	json_decref(reader->config);
	return ok;
}

bool
hymt_gguf_config(HymtFileBytes *json, const HymtGguf *gguf, HymtError *error)
{
	Reader		reader = {gguf, json_object(), error};

	memset(json, 0, sizeof *json);
	return finish(&reader, reader.config != NULL && fill(&reader), json);
}

/* What generation_config.json would say; nothing when the file says nothing of it. */
bool
hymt_gguf_generation(HymtFileBytes *json, const HymtGguf *gguf, HymtError *error)
{
	Reader		reader = {gguf, json_object(), error};
	bool		ok;

	memset(json, 0, sizeof *json);
	ok = reader.config != NULL &&
		copy_number(&reader, "general.sampling.penalty_repeat", "repetition_penalty", true) &&
		copy_number(&reader, "general.sampling.temp", "temperature", true) &&
		copy_number(&reader, "general.sampling.top_p", "top_p", true) &&
		copy_whole(&reader, "general.sampling.top_k", "top_k");
	ok = finish(&reader, ok, json);
	if (ok && strcmp(json->data, "{}") == 0)
		hymt_file_free(json);
	return ok;
}
