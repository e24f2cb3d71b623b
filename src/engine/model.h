/*
 * model.h: a model as its files describe it: hyper-parameters, and typed views of the stored weights.
 *
 * Weights are mapped read-only and never copied: a HymtTensor points into the mapping of a safetensors file and is
 * valid until hymt_model_close(). Everything read from the files is untrusted and has been checked when
 * hymt_model_open() returns true: dtypes, shapes, offsets, the relations between hyper-parameters. Code that runs after
 * loading need not check again.
 */
#ifndef HYMT_MODEL_H
#define HYMT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

typedef enum HymtDtype
{
	HYMT_DTYPE_F32,
	HYMT_DTYPE_F16,
	HYMT_DTYPE_BF16
} HymtDtype;

extern size_t hymt_dtype_size(HymtDtype dtype);
extern const char *hymt_dtype_name(HymtDtype dtype);

/* Row-major [rows][columns]; a vector has rows 1. Not necessarily aligned beyond its element size. */
typedef struct HymtTensor
{
	const void *data;
	HymtDtype	dtype;
	int64_t		rows;
	int64_t		columns;
} HymtTensor;

typedef struct HymtLayer
{
	HymtTensor	input_norm;		/* [hidden] */
	HymtTensor	q;				/* [heads * head_dim][hidden] */
	HymtTensor	k;				/* [kv_heads * head_dim][hidden] */
	HymtTensor	v;				/* the same */
	HymtTensor	o;				/* [hidden][heads * head_dim] */
	HymtTensor	q_norm;			/* [head_dim], applied after RoPE */
	HymtTensor	k_norm;			/* [head_dim], applied after RoPE */
	HymtTensor	post_norm;		/* [hidden] */
	HymtTensor	gate;			/* [intermediate][hidden] */
	HymtTensor	up;				/* [intermediate][hidden] */
	HymtTensor	down;			/* [hidden][intermediate] */
} HymtLayer;

#define HYMT_MAX_STOP_IDS 16

typedef enum HymtFamily
{
	HYMT_FAMILY_UNKNOWN,
	HYMT_FAMILY_HUNYUAN_MT,		/* Hunyuan-MT-7B */
	HYMT_FAMILY_HY_MT15,		/* HY-MT1.5 */
	HYMT_FAMILY_HY_MT2			/* Hy-MT2 */
} HymtFamily;

typedef struct HymtConfig
{
	int			hidden;
	int			layers;
	int			heads;
	int			kv_heads;		/* divides heads */
	int			head_dim;		/* even */
	int			intermediate;
	int			vocab;			/* rows of the embedding; ids >= token_limit have no token */
	int			max_position;	/* max_position_embeddings */
	double		rope_base;		/* theta, with alpha already applied: theta * alpha^(head_dim / (head_dim - 2)) */
	float		norm_eps;
	bool		tied;			/* logits come from the embedding matrix */
	float		repetition_penalty; /* generation_config.json; 1 when absent */
	int			stop_ids[HYMT_MAX_STOP_IDS];	/* generation_config.json, else config.json */
	int			stop_count;
} HymtConfig;

typedef struct HymtModel
{
	HymtConfig	config;
	HymtTensor	embedding;		/* [vocab][hidden] */
	HymtTensor	head;			/* [vocab][hidden]; the embedding itself when tied */
	HymtTensor	final_norm;		/* [hidden] */
	HymtLayer  *layer;			/* [config.layers] */

	char	   *directory;
	char	   *name;			/* hymt.json, else the README's title or the folder's name */
	HymtFamily	family;			/* of prompts; UNKNOWN when nothing tells */
	char	   *family_reason;	/* which file or name told, for inspect and the log */
	char	   *languages;		/* hymt.json's list, canonical codes separated by one space; NULL: all */
	char		fingerprint[65];	/* see fingerprint.c */
	uint64_t	parameters;		/* weights in use; a tied model's stored head is not counted */
	uint64_t	stored_bytes;	/* their bytes in the files */
	struct HymtSafetensors *files;	/* owns the mappings */
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
 * Read config.json, generation_config.json, hymt.json and model.safetensors (or model.safetensors.index.json and its
 * shards) of `directory`, map and check the weights. Neither tokenizer.json nor a known prompt family is needed.
 * *model is caller's memory; on success it must be given to hymt_model_close().
 */
extern bool hymt_model_open(HymtModel *model, const char *directory, const HymtModelOptions *options, HymtError *error);
extern void hymt_model_close(HymtModel *model);

extern const char *hymt_family_name(HymtFamily family);	/* "hunyuan-mt", "hy-mt1.5", "hy-mt2", "unknown" */
extern HymtFamily hymt_family_find(const char *name);	/* UNKNOWN when it is none of these */

#endif							/* HYMT_MODEL_H */
