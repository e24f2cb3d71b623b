/*
 * support.c: files in memory for the fuzz targets, and what must hold of every error. Test programs only.
 */
#include "support.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PATH_BYTES 512
#define MAPPINGS 4096

void
fuzz_require(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "does not hold: %s\n", what);
	abort();
}

const char *
fuzz_directory(void)
{
	static char directory[PATH_BYTES];
	const char *base = getenv("TMPDIR");

	if (directory[0] == '\0')
	{
		snprintf(directory, sizeof directory, "%s/hymt-fuzz-XXXXXX", base == NULL ? "/tmp" : base);
		fuzz_require(mkdtemp(directory) != NULL, "a directory can be made");
	}
	return directory;
}

static void
path_of(char path[PATH_BYTES], const char *name)
{
	snprintf(path, PATH_BYTES, "%s/%s", fuzz_directory(), name);
}

void
fuzz_write(const char *name, const void *data, size_t length)
{
	char		path[PATH_BYTES];
	int			fd;

	path_of(path, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	fuzz_require(fd >= 0 && write(fd, data, length) == (ssize_t) length && close(fd) == 0, "a file can be written");
}

/* --- inputs of several files -------------------------------------------------------------------------------------- */

/* The file that a border line at `at` names, and where its content begins; NULL when there is no such line. */
static FuzzFile *
border_at(FuzzFile *files, const uint8_t *at, const uint8_t *end, const uint8_t **content)
{
	static const char mark[] = "#file ";
	const uint8_t *newline;

	if ((size_t) (end - at) < sizeof mark || memcmp(at, mark, sizeof mark - 1) != 0)
		return NULL;
	at += sizeof mark - 1;
	newline = memchr(at, '\n', (size_t) (end - at));
	for (FuzzFile *file = files; newline != NULL && file->name != NULL; file++)
		if (strlen(file->name) == (size_t) (newline - at) && memcmp(file->name, at, (size_t) (newline - at)) == 0)
		{
			*content = newline + 1;
			return file;
		}
	return NULL;
}

void
fuzz_cut(FuzzFile *files, const uint8_t *data, size_t size)
{
	const uint8_t *end = data + size;
	const uint8_t *start = data;
	FuzzFile   *current = files;

	for (FuzzFile *file = files; file->name != NULL; file++)
		file->data = NULL;
	for (const uint8_t *at = data; at <= end; at++)
	{
		const uint8_t *content = NULL;
		FuzzFile   *next = NULL;

		if (at < end && (at == data || at[-1] == '\n'))
			next = border_at(files, at, end, &content);
		if (next == NULL && at < end)
			continue;
		/* a border at the very beginning ends no file; the newline before any other belongs to the border */
		if (at > data)
		{
			current->data = start;
			current->length = (size_t) (at - start) - (next != NULL && at > start ? 1 : 0);
		}
		if (next == NULL)
			return;
		current = next;
		start = content;
		at = content - 1;
	}
}

void
fuzz_write_files(const FuzzFile *files)
{
	for (const FuzzFile *file = files; file->name != NULL; file++)
	{
		char		path[PATH_BYTES];

		path_of(path, file->name);
		if (file->data != NULL)
			fuzz_write(file->name, file->data, file->length);
		else
			unlink(path);
	}
}

void
fuzz_check_error(const HymtError *error, const FuzzFile *files)
{
	json_t	   *text = json_string(error->message); /* NULL when it is not valid UTF-8 */
	bool		named = strstr(error->message, fuzz_directory()) != NULL;

	for (const FuzzFile *file = files; file->name != NULL; file++)
		named = named || strstr(error->message, file->name) != NULL;
	fuzz_require(error->failure != HYMT_FAILURE_NONE && error->failure <= HYMT_FAILURE_LAST, "a failure is set");
	fuzz_require(error->failure != HYMT_FAILURE_NO_MEMORY, "a small file does not need much memory");
	fuzz_require(text != NULL && strpbrk(error->message, "\n\r\033") == NULL, "the message is a line of text");
	fuzz_require(named, "the message names the file");
	json_decref(text);
}

/* --- files in memory of their exact size -------------------------------------------------------------------------- */

static void *mappings[MAPPINGS];

void *
fuzz_mmap(void *address, size_t length, int protection, int flags, int fd, int64_t offset)
{
	if (fd < 0)
		return mmap(address, length, protection, flags, fd, offset);
	for (int i = 0; i < MAPPINGS; i++)
		if (mappings[i] == NULL)
		{
			mappings[i] = malloc(length);
			fuzz_require(pread(fd, mappings[i], length, offset) == (ssize_t) length, "a file can be read");
			return mappings[i];
		}
	abort();
}

int
fuzz_munmap(void *address, size_t length)
{
	for (int i = 0; i < MAPPINGS; i++)
		if (mappings[i] == address)
		{
			mappings[i] = NULL;
			free(address);
			return 0;
		}
	return munmap(address, length);
}
