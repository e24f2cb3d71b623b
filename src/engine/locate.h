/*
 * locate.h: which files the path of a model means.
 */
#ifndef HYMT_LOCATE_H
#define HYMT_LOCATE_H

#include <stdbool.h>

#include "error.h"

/* Both malloc'ed. */
typedef struct HymtLocation
{
	char	   *directory;		/* where config.json, hymt.json and the like are */
	char	   *gguf;			/* the GGUF file; NULL: the directory has safetensors, or neither */
} HymtLocation;

/*
 * A path is that of a GGUF file or of a directory. A directory means its safetensors files, else its GGUF file, of
 * which there must not be several. Fails with MODEL_MISSING, MODEL_UNREADABLE, MODEL_UNSUPPORTED, NO_MEMORY.
 */
extern bool hymt_model_locate(HymtLocation *location, const char *path, HymtError *error);
extern void hymt_location_free(HymtLocation *location);

#endif							/* HYMT_LOCATE_H */
