/*
 * model_parts.h: what the files that load a model share among themselves. Everybody else includes model.h.
 */
#ifndef HYMT_MODEL_PARTS_H
#define HYMT_MODEL_PARTS_H

#include "files.h"
#include "model.h"
#include "safetensors.h"
#include "stored.h"

/* The model directory's small JSON files as read, so that what is hashed is what was parsed. */
typedef struct HymtModelTexts
{
	HymtFileBytes config;		/* config.json, or what a GGUF file's metadata say in its words */
	const char *config_name;	/* the file that it comes from, for messages */
	HymtFileBytes generation;	/* generation_config.json, or the same of a GGUF file; may be absent */
	const char *generation_name;
	HymtFileBytes hymt;			/* hymt.json; may be absent */
} HymtModelTexts;

/* A weight in use, by its name in the files. */
typedef struct HymtWeight
{
	const char *name;			/* the container's memory */
	const HymtTensor *tensor;	/* inside the HymtModel or its layers */
	bool		vector;			/* stored with one dimension */
} HymtWeight;

/* config.c: fill in *config from config.json and generation_config.json. Every number is checked. */
extern bool hymt_config_read(HymtConfig *config, const char *directory, const HymtModelTexts *texts, HymtError *error);

/*
 * quantization.c: fill in *quantization from config.json's quantization_config, NULL for none. Refuses what would need
 * other arithmetic than that of the formats in quant.h.
 */
extern bool hymt_quantization_read(HymtQuantization *quantization, const json_t *json, const char *directory,
								   const char *file, HymtError *error);

/*
 * weights.c: fill in a tensor, whose rows and columns are known, from the model's files: its type, values and scales.
 * `name` is that of safetensors files, ending with ".weight" for matrices. *stored_name is how the files call it.
 */
extern bool hymt_weight_read(const HymtModel *model, HymtTensor *tensor, const char *name, bool vector,
							 const char **stored_name, HymtError *error);

/* read_ahead.c: bring all weights into memory; progress goes from first_percent to 100. */
extern bool hymt_weights_read_ahead(const HymtModel *model, const HymtModelOptions *options, int first_percent,
									HymtError *error);

/*
 * family.c: fill in name, family, family_reason and languages of *model from hymt.json, the caller's wish, README.md
 * and the folder's name. On failure the caller frees what has been filled in.
 */
extern bool hymt_family_detect(HymtModel *model, const HymtModelTexts *texts, HymtFamily wish, HymtError *error);

/* fingerprint.c: fill in model->fingerprint. The weights must be sorted by name. */
extern bool hymt_fingerprint(HymtModel *model, const HymtModelTexts *texts, HymtError *error);

/* fingerprint.c: that of an adapter's files. */
extern void hymt_fingerprint_adapter(char fingerprint[65], const HymtFileBytes *config, const HymtSafetensors *files);

/* fingerprint.c: make of a fingerprint that of itself together with another one, which is there for some `use`. */
extern void hymt_fingerprint_combine(char fingerprint[65], const char *use, const char *other);

#endif							/* HYMT_MODEL_PARTS_H */
