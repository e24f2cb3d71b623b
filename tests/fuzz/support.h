/*
 * support.h: what the fuzz targets share. A target is one file fuzz_NAME.c with LLVMFuzzerTestOneInput(), and
 * seeds_NAME.py with what libFuzzer starts from.
 *
 * Readers of files get theirs in a directory in memory. An input that stands for several files has a line "#file NAME"
 * before each: the names stay readable for who looks at a finding, and the mutations reach all files at once.
 */
#ifndef HYMT_FUZZ_SUPPORT_H
#define HYMT_FUZZ_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

/* libFuzzer's entry. */
extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* This process's own directory, made at the first call, below $TMPDIR, whose owner removes it. */
extern const char *fuzz_directory(void);

extern void fuzz_write(const char *name, const void *data, size_t length);

/* A file of an input; points into it. data NULL: there is none. */
typedef struct FuzzFile
{
	const char *name;
	const uint8_t *data;
	size_t		length;
} FuzzFile;

/*
 * Cut an input into files. `files` is a list, ended by a NULL name, of those that may be in it; lines with other names
 * are no border. What stands before the first line belongs to the first file. The later of two of one name counts.
 */
extern void fuzz_cut(FuzzFile *files, const uint8_t *data, size_t size);

/* Write those that are there into the directory and remove the others. */
extern void fuzz_write_files(const FuzzFile *files);

/* Ends the program unless an error is whole: a failure, a printable message, and a file's name in it. */
extern void fuzz_check_error(const HymtError *error, const FuzzFile *files);

/* Ends the program with a message unless `good`; unlike assert() it does so in every build. */
extern void fuzz_require(bool good, const char *what);

/* What the engine's objects call in place of mmap() and munmap(): a file comes to lie in memory of its exact size. */
extern void *fuzz_mmap(void *address, size_t length, int protection, int flags, int fd, int64_t offset);
extern int	fuzz_munmap(void *address, size_t length);

#endif							/* HYMT_FUZZ_SUPPORT_H */
