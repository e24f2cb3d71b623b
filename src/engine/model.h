/*
 * model.h: a model as its files describe it: hyper-parameters, and typed views of the stored weights.
 *
 * Weights are mapped read-only and never copied: a HymtTensor (quant.h) points into the mapping of a safetensors or
 * GGUF file and is valid until hymt_model_close(). Everything read from the files is untrusted and has been checked
 * when hymt_model_open() returns true: dtypes, shapes, offsets, the relations between hyper-parameters. Code that runs
 * after loading need not check again.
 */
#ifndef HYMT_MODEL_H
#define HYMT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "assignments.h"
#include "error.h"
#include "quant.h"

typedef struct HymtLayer
{
	HymtTensor	input_norm;		/* [hidden] */
	HymtTensor	q;				/* [heads * head_dim][hidden] */
	HymtTensor	k;				/* [kv_heads * head_dim][hidden] */
	HymtTensor	v;				/* the same */
	HymtTensor	o;				/* [hidden][heads * head_dim] */
	HymtTensor	q_norm;			/* [head_dim], applied after RoPE; data NULL in models without QK-norm */
	HymtTensor	k_norm;			/* the same */
	HymtTensor	post_norm;		/* [hidden] */
	HymtTensor	gate;			/* [intermediate][hidden] */
	HymtTensor	up;				/* [intermediate][hidden] */
	HymtTensor	down;			/* [hidden][intermediate] */

	/* Vectors with as many elements as the matrix has rows; data NULL in models without them. */
	HymtTensor	q_bias;
	HymtTensor	k_bias;
	HymtTensor	v_bias;
	HymtTensor	o_bias;
	HymtTensor	gate_bias;
	HymtTensor	up_bias;
	HymtTensor	down_bias;
} HymtLayer;

#define HYMT_MAX_STOP_IDS 16

typedef enum HymtFamily
{
	HYMT_FAMILY_UNKNOWN,
	HYMT_FAMILY_HUNYUAN_MT,		/* Hunyuan-MT-7B */
	HYMT_FAMILY_HY_MT15,		/* HY-MT1.5 */
	HYMT_FAMILY_HY_MT2,			/* Hy-MT2 */
	HYMT_FAMILY_ALMA,			/* ALMA and ALMA-R */
	HYMT_FAMILY_TOWER,			/* TowerInstruct */
	HYMT_FAMILY_TEMPLATES		/* hymt.json has all of the wording */
} HymtFamily;

/* What config.json says about stored weights that are quantised; GGUF files say it tensor by tensor. */
typedef struct HymtQuantization
{
	bool		gptq;			/* linears may be stored as qweight, qzeros, scales, g_idx */
	int64_t		group;			/* GPTQ: inputs that share a scale; 0: all of them */
	int			zero_offset;	/* GPTQ: what is stored is the zero minus this */
} HymtQuantization;

typedef enum HymtArchitecture
{
	HYMT_ARCHITECTURE_HUNYUAN,	/* HunYuanDenseV1ForCausalLM */
	HYMT_ARCHITECTURE_LLAMA		/* LlamaForCausalLM */
} HymtArchitecture;

extern const char *hymt_architecture_name(HymtArchitecture architecture);	/* as config.json spells it */

/* How the rotation's frequencies are lowered, besides a base that has been raised. */
typedef enum HymtRopeScaling
{
	HYMT_ROPE_PLAIN,			/* not at all */
	HYMT_ROPE_LINEAR,			/* all of them, by a factor */
	HYMT_ROPE_LLAMA3			/* the low ones by a factor, the high ones not at all, with a ramp between */
} HymtRopeScaling;

typedef struct HymtConfig
{
	HymtArchitecture architecture;
	int			hidden;
	int			layers;
	int			heads;
	int			kv_heads;		/* divides heads */
	int			head_dim;		/* even */
	int			intermediate;
	int			vocab;			/* rows of the embedding; ids >= token_limit have no token */
	int			max_position;	/* max_position_embeddings */
	double		rope_base;		/* theta, with alpha already applied: theta * alpha^(head_dim / (head_dim - 2)) */
	HymtRopeScaling rope_scaling;
	double		rope_factor;	/* of LINEAR and LLAMA3 */
	double		rope_low;		/* of LLAMA3: below so many turns in rope_context positions a frequency is low, */
	double		rope_high;		/* above so many it is high; larger than rope_low */
	int			rope_context;	/* of LLAMA3: positions the model had before it was extended */
	bool		qk_norm;		/* q and k of each head are normed, after the rotation */
	bool		attention_bias; /* q, k, v and o have a bias */
	bool		mlp_bias;		/* gate, up and down have one */
	float		norm_eps;
	bool		tied;			/* logits come from the embedding matrix */
	float		repetition_penalty; /* generation_config.json; 1 when absent */
	int			stop_ids[HYMT_MAX_STOP_IDS];	/* generation_config.json, else config.json */
	int			stop_count;
	HymtQuantization quantization;
} HymtConfig;

/* A prompt text from hymt.json; see prompts.h. */
typedef struct HymtTemplate
{
	char	   *form;
	char	   *text;
} HymtTemplate;

typedef struct HymtModel
{
	HymtConfig	config;
	HymtTensor	embedding;		/* [vocab][hidden] */
	HymtTensor	head;			/* [vocab][hidden]; the embedding itself when tied */
	HymtTensor	final_norm;		/* [hidden] */
	HymtLayer  *layer;			/* [config.layers] */

	char	   *path;			/* as given: a directory or a GGUF file */
	char	   *directory;		/* where hymt.json and the like are */
	char	   *gguf;			/* path of the GGUF file; NULL when there is none */
	char	   *name;			/* hymt.json, else the README's title or the folder's name */
	HymtFamily	family;			/* of prompts; UNKNOWN when nothing tells */
	char	   *family_reason;	/* which file or name told, for inspect and the log */
	HymtTemplate *templates;	/* hymt.json's; they go before the family's own */
	size_t		template_count;
	char	   *languages;		/* hymt.json's list, canonical codes separated by one space; NULL: all */
	HymtAssignments adapters;	/* of hymt.json */
	char		fingerprint[65];	/* see fingerprint.c */
	uint64_t	parameters;		/* weights in use; a tied model's stored head is not counted */
	uint64_t	stored_bytes;	/* their bytes in the files */
	struct HymtStored *files;	/* owns the mappings */
	struct HymtWeight *weights; /* all weights in use, sorted by name; see model_parts.h */
	size_t		weight_count;
} HymtModel;

/* Called with the part of the work done, in percent, and the name of the phase; may be NULL. */
typedef void (*HymtProgress) (void *context, int percent, const char *phase);

/* What the caller knows better than the files; zero for nothing. */
typedef struct HymtModelOptions
{
	HymtFamily	family;			/* overrides what the files say, unless hymt.json says it */
	HymtProgress progress;		/* when set, the weights are also read from disk while opening */
	void	   *progress_context;
	/* Called when everything but the weights has been read; false, with the error set, ends the opening. May be NULL. */
	bool		(*check) (void *context, const HymtModel *model, HymtError *error);
	void	   *check_context;
} HymtModelOptions;

/*
 * Open the model at `path`: a directory with config.json, generation_config.json, hymt.json and model.safetensors (or
 * model.safetensors.index.json and its shards); a GGUF file; a directory without safetensors that holds exactly one
 * GGUF file. Maps and checks the weights. Neither a tokenizer nor a known prompt family is needed.
 * *model is caller's memory; on success it must be given to hymt_model_close().
 */
extern bool hymt_model_open(HymtModel *model, const char *path, const HymtModelOptions *options, HymtError *error);
extern void hymt_model_close(HymtModel *model);

/*
 * By how much the pair (index, index + head_dim / 2) of a head turns from one position to the next, in radians.
 */
extern double hymt_rope_frequency(const HymtConfig *config, int index);

extern const char *hymt_family_name(HymtFamily family);	/* "hunyuan-mt", …, "unknown" */
extern HymtFamily hymt_family_find(const char *name);	/* UNKNOWN when it is none that has a wording of its own */

/* The names that hymt_family_find() knows, for messages. */
#define HYMT_FAMILY_NAMES "hunyuan-mt, hy-mt1.5, hy-mt2, alma, tower-instruct"

#endif							/* HYMT_MODEL_H */
