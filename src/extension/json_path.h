/*
 * json_path.h: the places in a document that hymt_translate_json() is to translate, and names of places.
 */
#ifndef HYMT_JSON_PATH_H
#define HYMT_JSON_PATH_H

#include "session.h"

#include "lib/stringinfo.h"
#include "utils/array.h"

typedef enum HymtStepKind
{
	HYMT_STEP_ANY,				/* star: any key, any element */
	HYMT_STEP_KEY,
	HYMT_STEP_NUMBER			/* an element, or a key of digits */
} HymtStepKind;

typedef struct HymtStep
{
	HymtStepKind kind;
	const char *key;			/* not terminated */
	int			length;
	int			number;			/* of STEP_NUMBER; negative: from the end, -1 is the last */
} HymtStep;

/* Without steps it leads to the document itself. */
typedef struct HymtPath
{
	HymtStep   *step;
	int			count;
} HymtPath;

/*
 * Reads argument "paths" into the current memory context; the paths point into the array. Raises 22004 for a null among
 * them, 22023 for one that is malformed, 2202E for an array of several dimensions.
 */
extern HymtPath *hymt_read_paths(ArrayType *array, int *count);

/* Whether a step leads to the value of a key, to an element of so many. */
extern bool hymt_step_is_key(const HymtStep *step, const char *key, int length);
extern bool hymt_step_is_element(const HymtStep *step, int number, int elements);

/* Appends a step to the name of a place, written as in a path. Long keys are cut. */
extern void hymt_append_key(StringInfo name, const char *key, int length);
extern void hymt_append_element(StringInfo name, int number);

#endif							/* HYMT_JSON_PATH_H */
