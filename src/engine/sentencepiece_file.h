/*
 * sentencepiece_file.h: what a SentencePiece model file says, read and checked without the library.
 */
#ifndef HYMT_SENTENCEPIECE_FILE_H
#define HYMT_SENTENCEPIECE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "files.h"

/* As the file numbers them. */
typedef enum HymtSpmType
{
	HYMT_SPM_NORMAL = 1,
	HYMT_SPM_UNKNOWN = 2,
	HYMT_SPM_CONTROL = 3,		/* never found in a text, decodes to nothing */
	HYMT_SPM_USER_DEFINED = 4,	/* found in texts as a whole, before anything else */
	HYMT_SPM_UNUSED = 5,
	HYMT_SPM_BYTE = 6			/* "<0xE4>" */
} HymtSpmType;

typedef struct HymtSpmPiece
{
	const char *spelling;		/* in the file's bytes; valid UTF-8, not empty */
	uint32_t	length;
	unsigned char type;
	unsigned char byte;			/* of a BYTE piece */
	size_t		type_at;		/* where the type stands in the bytes; 0: nowhere, it is NORMAL */
} HymtSpmPiece;

typedef struct HymtSpmFile
{
	HymtFileBytes bytes;		/* the whole file */
	HymtSpmPiece *pieces;		/* by id */
	size_t		count;
	size_t		capacity;
	size_t		longest;		/* bytes of the longest spelling */
	int			model_type;
	bool		normalizes;		/* texts are changed by a table of characters */
	bool		dummy_prefix;	/* a blank is put before a text */
	bool		remove_blanks;	/* blanks at the ends, and several in a row, are removed */
	bool		denormalizes;
	bool		blank_behind;	/* a blank belongs to the word before it */
	HymtFileBytes unknown;		/* what an unknown piece is decoded to, malloc'ed */
	HymtFileBytes charsmap;		/* points into bytes */
} HymtSpmFile;

/*
 * Take over the bytes of a file and read them into a zeroed *file. Fails with MODEL_BROKEN or MODEL_UNSUPPORTED and a
 * message without path. The holder calls hymt_spm_file_free() in either case.
 */
extern bool hymt_spm_file_read(HymtSpmFile *file, HymtFileBytes *bytes, HymtError *error);
extern void hymt_spm_file_free(HymtSpmFile *file);

/* Make a USER_DEFINED piece a CONTROL one, in the bytes as well: the library will then not find it in texts. */
extern void hymt_spm_file_hide(HymtSpmFile *file, size_t id);

/* Bytes that, put behind a serialized model, turn its dummy prefix off. */
#define HYMT_SPM_NO_PREFIX "\x1A\x02\x18\x00"
#define HYMT_SPM_NO_PREFIX_BYTES 4

#endif							/* HYMT_SENTENCEPIECE_FILE_H */
