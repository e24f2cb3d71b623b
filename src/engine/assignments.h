/*
 * assignments.h: which languages have an adapter: by hymt.json of the model, and by the setting hymt.adapters.
 */
#ifndef HYMT_ASSIGNMENTS_H
#define HYMT_ASSIGNMENTS_H

#include <jansson.h>

#include "../protocol/languages.h"
#include "error.h"

typedef struct HymtAssignment
{
	const HymtLanguage *source; /* NULL: any */
	const HymtLanguage *target;
	char	   *directory;
} HymtAssignment;

/* A zeroed struct is an empty one. */
typedef struct HymtAssignments
{
	HymtAssignment *list;
	int			count;
} HymtAssignments;

/* Add those of a list as adapter_list.h describes it. Fails with BAD_REQUEST, NO_MEMORY. */
extern bool hymt_assignments_add_list(HymtAssignments *assignments, const char *list, HymtError *error);

/*
 * Add those of an object {"de": "folder"} from hymt.json of `directory`. The folders lie there, too, and may not lead
 * out of it. Fails with MODEL_BROKEN, NO_MEMORY.
 */
extern bool hymt_assignments_add_json(HymtAssignments *assignments, const json_t *object, const char *directory,
									  HymtError *error);

/* The directory for a pair: its own before that of its target language. NULL: none. */
extern const char *hymt_assignments_find(const HymtAssignments *assignments, const HymtLanguage *source,
										 const HymtLanguage *target);

extern void hymt_assignments_free(HymtAssignments *assignments);

#endif							/* HYMT_ASSIGNMENTS_H */
