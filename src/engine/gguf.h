/*
 * gguf.h: a GGUF file (version 3, little endian), mapped read-only: its tensors and its metadata.
 */
#ifndef HYMT_GGUF_H
#define HYMT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "files.h"
#include "json_stream.h"
#include "stored.h"

typedef struct HymtGguf HymtGguf;

/*
 * Map a file and check all of it that describes: afterwards every key, value and tensor lies inside the mapping, names
 * are unique, and each tensor has the bytes its type and shape need, none of them another's.
 * Failures: MODEL_MISSING, MODEL_UNREADABLE, MODEL_BROKEN, MODEL_UNSUPPORTED, NO_MEMORY; NULL is returned.
 */
extern HymtGguf *hymt_gguf_open(const char *path, HymtError *error);
extern void hymt_gguf_close(HymtGguf *gguf);

/* The tensor of that name, or NULL. Its shape has the rows first, as in safetensors. */
extern const HymtStoredTensor *hymt_gguf_find(const HymtGguf *gguf, const char *name);

/* All tensors, one by one, in the order of their names: NULL when there are no more. */
extern const HymtStoredTensor *hymt_gguf_tensor(const HymtGguf *gguf, size_t index);

extern const char *hymt_gguf_path(const HymtGguf *gguf);

/* Everything before the tensors' data. */
extern const unsigned char *hymt_gguf_header(const HymtGguf *gguf, size_t *length);

/* --- metadata ----------------------------------------------------------------------------------------------------- */

typedef enum HymtGgufType
{
	HYMT_GGUF_UINT8, HYMT_GGUF_INT8, HYMT_GGUF_UINT16, HYMT_GGUF_INT16, HYMT_GGUF_UINT32, HYMT_GGUF_INT32,
	HYMT_GGUF_FLOAT32, HYMT_GGUF_BOOL, HYMT_GGUF_STRING, HYMT_GGUF_ARRAY, HYMT_GGUF_UINT64, HYMT_GGUF_INT64,
	HYMT_GGUF_FLOAT64
} HymtGgufType;

typedef struct HymtGgufValue
{
	HymtJsonText key;			/* in the mapping, like all texts here */
	HymtGgufType type;
	HymtGgufType element;		/* of an array, which is none of arrays; else as `type` */
	uint64_t	count;			/* elements of an array; else 1 */
	const unsigned char *data;	/* of the first element */
} HymtGgufValue;

/* NULL when there is no such key. */
extern const HymtGgufValue *hymt_gguf_value(const HymtGguf *gguf, const char *key);

/* The value as one of these; false when it is of another type, or an array. Integers of any size are integers. */
extern bool hymt_gguf_integer(const HymtGgufValue *value, int64_t *integer);
extern bool hymt_gguf_number(const HymtGgufValue *value, double *number);
extern bool hymt_gguf_text(const HymtGgufValue *value, HymtJsonText *text);

/* Element `index` of an array of integers; false when it is no such array, or shorter. */
extern bool hymt_gguf_integer_at(const HymtGgufValue *value, uint64_t index, int64_t *integer);

/* The string at *at in an array of strings, to begin with at value->data; moves *at to the next one. */
extern HymtJsonText hymt_gguf_next_text(const unsigned char **at);

/* --- what a file of a model means --------------------------------------------------------------------------------- */

/*
 * gguf_config.c: the hyper-parameters as the text of a config.json, malloc'ed. Fails for architectures other than
 * hunyuan-dense.
 */
extern bool hymt_gguf_config(HymtFileBytes *json, const HymtGguf *gguf, HymtError *error);

/* gguf_config.c: the recommended sampling as the text of a generation_config.json; absent when there is none. */
extern bool hymt_gguf_generation(HymtFileBytes *json, const HymtGguf *gguf, HymtError *error);

/* gguf_config.c: the GGUF name of a tensor that safetensors files call `name`; false when it has none. */
extern bool hymt_gguf_tensor_name(char *to, size_t size, const char *name);

#endif							/* HYMT_GGUF_H */
