/*
 * files.h: opening and reading the small files of a model directory.
 */
#ifndef HYMT_FILES_H
#define HYMT_FILES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

/* Bytes that a tokenizer.json may have; real ones have 10 to 20 MB. */
#define HYMT_TOKENIZER_FILE_MAX ((size_t) 512 * 1024 * 1024)

/* A file's bytes, malloc'ed; a zeroed struct is an absent file. */
typedef struct HymtFileBytes
{
	char	   *data;			/* NULL: the file does not exist */
	size_t		length;
} HymtFileBytes;

/* "directory/file", malloc'ed, the caller frees it; NULL when memory is out. */
extern char *hymt_path_join(const char *directory, const char *file);

/* What stands behind the last slash of a path. */
extern const char *hymt_path_last(const char *path);

/* Sets *error from an errno that came of opening or reading `path`; returns false. */
extern bool hymt_fail_errno(HymtError *error, int number, const char *path);

/*
 * Open a regular file for reading. Returns its descriptor (the caller closes it), or -1 with *error set:
 * MODEL_MISSING when there is no such file, MODEL_UNREADABLE for everything else, a directory or pipe included.
 */
extern int	hymt_file_open(const char *path, uint64_t *size, HymtError *error);

/*
 * Map a regular file read-only. It is MODEL_BROKEN when it has fewer than `minimum` bytes (more than 0); `kind` names
 * what it should be. The caller gives the address and *size to munmap(). NULL on failure.
 */
extern const unsigned char *hymt_file_map(const char *path, size_t minimum, const char *kind, uint64_t *size,
										  HymtError *error);

/*
 * Read a whole file of `directory`. A file larger than `limit` bytes is MODEL_BROKEN: no sane one comes near it.
 * When `optional`, a file that does not exist is success with bytes->data NULL.
 */
extern bool hymt_file_read(HymtFileBytes *bytes, const char *directory, const char *file, size_t limit, bool optional,
						   HymtError *error);
extern void hymt_file_free(HymtFileBytes *bytes);

/*
 * Parse bytes that must be one JSON object. Duplicate keys are refused: readers disagree about which of them counts,
 * so a file that has them means different things to different programs. The caller gives the result to json_decref().
 * `label` names the source in messages.
 */
extern json_t *hymt_json_object(const char *data, size_t length, const char *label, HymtError *error);

#endif							/* HYMT_FILES_H */
