/*
 * safetensors.h: the tensors of one or several safetensors files, mapped read-only.
 */
#ifndef HYMT_SAFETENSORS_H
#define HYMT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "stored.h"

typedef struct HymtSafetensors HymtSafetensors;

/*
 * Map model.safetensors of `directory`, or, where there is none, the shards that model.safetensors.index.json lists.
 * Failures: MODEL_MISSING, MODEL_UNREADABLE, MODEL_BROKEN, MODEL_UNSUPPORTED, NO_MEMORY; NULL is returned.
 */
extern HymtSafetensors *hymt_safetensors_open(const char *directory, HymtError *error);
/* The same for one file of that name; file NULL: for the shards of the index. */
extern HymtSafetensors *hymt_safetensors_open_file(const char *directory, const char *file, HymtError *error);
extern void hymt_safetensors_close(HymtSafetensors *files);

/* The tensor of that name, or NULL. */
extern const HymtStoredTensor *hymt_safetensors_find(const HymtSafetensors *files, const char *name);

/* The path of the file that holds a tensor, or, for NULL, of the file that would have to hold a missing one. */
extern const char *hymt_safetensors_path(const HymtSafetensors *files, const HymtStoredTensor *tensor);

/* All tensors, in the order of their names. */
extern size_t hymt_safetensors_count(const HymtSafetensors *files);
extern const HymtStoredTensor *hymt_safetensors_at(const HymtSafetensors *files, size_t index);

extern int	hymt_safetensors_file_count(const HymtSafetensors *files);

#endif							/* HYMT_SAFETENSORS_H */
