/*
 * stored.h: the tensors of a model's files, whatever container they are in.
 */
#ifndef HYMT_STORED_H
#define HYMT_STORED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

#define HYMT_STORED_MAX_DIMENSIONS 8

/* A tensor as a file describes it. data .. data + bytes lies inside the mapping; bytes agrees with dtype and shape. */
typedef struct HymtStoredTensor
{
	char	   *name;
	const char *dtype;			/* as the container spells it: "BF16"; static memory */
	int			dimensions;
	int64_t		shape[HYMT_STORED_MAX_DIMENSIONS];	/* the last dimension's elements are neighbours in memory */
	const unsigned char *data;
	uint64_t	bytes;
	int			file;			/* which of the files */
} HymtStoredTensor;

typedef struct HymtStored HymtStored;

/* Map the safetensors files of a directory, or a GGUF file. NULL on failure, see safetensors.h and gguf.h. */
extern HymtStored *hymt_stored_open_safetensors(const char *directory, HymtError *error);
extern HymtStored *hymt_stored_open_gguf(const char *path, HymtError *error);
extern void hymt_stored_close(HymtStored *stored);

/* The tensor of that name, or NULL. */
extern const HymtStoredTensor *hymt_stored_find(const HymtStored *stored, const char *name);

/* The path of the file that holds a tensor, or, for NULL, of the file that would have to hold a missing one. */
extern const char *hymt_stored_path(const HymtStored *stored, const HymtStoredTensor *tensor);

extern int	hymt_stored_file_count(const HymtStored *stored);

/* The GGUF file, for its metadata; NULL when it is another container. */
extern const struct HymtGguf *hymt_stored_gguf(const HymtStored *stored);

#endif							/* HYMT_STORED_H */
