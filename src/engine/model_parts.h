/*
 * model_parts.h: what the files that load a model share among themselves. Everybody else includes model.h.
 */
#ifndef HYMT_MODEL_PARTS_H
#define HYMT_MODEL_PARTS_H

#include "files.h"
#include "model.h"
#include "safetensors.h"

/* The model directory's small JSON files as read, so that what is hashed is what was parsed. */
typedef struct HymtModelTexts
{
	HymtFileBytes config;		/* config.json */
	HymtFileBytes generation;	/* generation_config.json; may be absent */
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
