/*
 * assignments.h: which languages have an adapter: by hymt.json of the model, and by the setting hymt.adapters.
 */
#ifndef HYMT_ASSIGNMENTS_H
#define HYMT_ASSIGNMENTS_H

#include <jansson.h>

#include "../protocol/adapter_list.h"
#include "error.h"

typedef struct HymtAssignment
{
	HymtAdapterItem key;		/* its path has no meaning here */
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

/* The directory of the adapter with that name. NULL: none. */
extern const char *hymt_assignments_find_name(const HymtAssignments *assignments, const char *name);

extern void hymt_assignments_free(HymtAssignments *assignments);

#endif							/* HYMT_ASSIGNMENTS_H */
