/*
 * model_files.h: writing small model directories for tests, whole ones and broken ones.
 *
 * Everything is made below one temporary directory, which test_root_remove() deletes.
 */
#ifndef HYMT_TEST_MODEL_FILES_H
#define HYMT_TEST_MODEL_FILES_H

#include <dirent.h>
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 512

static char test_root[64];

static inline void
test_root_create(void)
{
	snprintf(test_root, sizeof test_root, "/tmp/hymt-test-XXXXXX");
	if (mkdtemp(test_root) == NULL || chmod(test_root, 0755) != 0)
		abort();
}

static inline int
remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void) status;
	(void) type;
	(void) walk;
	return remove(path);
}

static inline void
test_root_remove(void)
{
	nftw(test_root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* For cmocka_run_group_tests(). */
static inline int
test_set_up(void **state)
{
	(void) state;
	test_root_create();
	return 0;
}

static inline int
test_tear_down(void **state)
{
	(void) state;
	test_root_remove();
	return 0;
}

/* The path of a new, empty directory of that name; an existing one is emptied. */
static inline const char *
test_directory(const char *name)
{
	static char path[PATH_BYTES];

	snprintf(path, sizeof path, "%s/%s", test_root, name);
	nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	if (mkdir(path, 0755) != 0)
		abort();
	return path;
}

static inline void
write_file(const char *directory, const char *file, const void *data, size_t length)
{
	char		path[PATH_BYTES + 64];
	FILE	   *stream;

	snprintf(path, sizeof path, "%s/%s", directory, file);
	stream = fopen(path, "wb");
	if (stream == NULL || fwrite(data, 1, length, stream) != length || fclose(stream) != 0)
		abort();
}

static inline void
write_text(const char *directory, const char *file, const char *text)
{
	write_file(directory, file, text, strlen(text));
}

/* A whole file, malloc'ed, with a NUL behind it. */
static inline char *
read_whole(const char *directory, const char *file, size_t *length)
{
	char		path[PATH_BYTES + 64];
	FILE	   *stream;
	char	   *data;

	snprintf(path, sizeof path, "%s/%s", directory, file);
	stream = fopen(path, "rb");
	if (stream == NULL || fseek(stream, 0, SEEK_END) != 0)
		abort();
	*length = (size_t) ftell(stream);
	rewind(stream);
	data = malloc(*length + 1);
	if (data == NULL || fread(data, 1, *length, stream) != *length)
		abort();
	data[*length] = '\0';
	fclose(stream);
	return data;
}

static inline void
copy_file(const char *from, const char *to, const char *file)
{
	size_t		length;
	char	   *data = read_whole(from, file, &length);

	write_file(to, file, data, length);
	free(data);
}

/* A safetensors file: header length, header, and data. */
static inline void
write_container(const char *directory, const char *file, uint64_t header_length, const char *header,
				const void *data, size_t data_length)
{
	size_t		length = strlen(header);
	unsigned char *bytes = malloc(8 + length + data_length);

	if (bytes == NULL)
		abort();
	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char) (header_length >> (8 * i));
	memcpy(bytes + 8, header, length);
	if (data_length > 0)
		memcpy(bytes + 8 + length, data, data_length);
	write_file(directory, file, bytes, 8 + length + data_length);
	free(bytes);
}

/* One tensor of a file that a test writes. */
typedef struct TensorSpec
{
	const char *name;
	const char *dtype;
	int			rows;			/* 0: a vector */
	int			columns;
	const void *data;			/* NULL: a pattern */
} TensorSpec;

static inline size_t
spec_bytes(const TensorSpec *spec)
{
	size_t		size = strcmp(spec->dtype, "F32") == 0 || strcmp(spec->dtype, "I32") == 0 ? 4
		: strcmp(spec->dtype, "F64") == 0 ? 8 : strcmp(spec->dtype, "F8_E4M3") == 0 ? 1 : 2;

	return (spec->rows == 0 ? 1 : (size_t) spec->rows) * (size_t) spec->columns * size;
}

/* Write a well formed file of these tensors. `align`: the whole file's size becomes a multiple of it. */
static inline void
write_tensors(const char *directory, const char *file, const TensorSpec *specs, int count, size_t align)
{
	size_t		capacity = 256 * (size_t) count + 2 * align + 64;
	char	   *header = malloc(capacity);
	size_t		length = 0;
	size_t		total = 0;
	unsigned char *data;

	for (int i = 0; i < count; i++)
		total += spec_bytes(&specs[i]);
	data = malloc(total + 1);
	if (header == NULL || data == NULL)
		abort();
	total = 0;
	for (int i = 0; i < count; i++)
	{
		const TensorSpec *spec = &specs[i];
		size_t		bytes = spec_bytes(spec);
		char		rows[32] = "";

		if (spec->rows > 0)
			snprintf(rows, sizeof rows, "%d,", spec->rows);
		length += (size_t) snprintf(header + length, capacity - length,
									"%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s%d],\"data_offsets\":[%zu,%zu]}",
									i == 0 ? "{" : ",", spec->name, spec->dtype, rows, spec->columns, total,
									total + bytes);
		for (size_t b = 0; b < bytes; b++)
			data[total + b] = spec->data != NULL ? ((const unsigned char *) spec->data)[b]
				: (unsigned char) (b * 7 + (size_t) i * 13);
		total += bytes;
	}
	header[length++] = '}';
	while ((8 + length + total) % align != 0 || length % 8 != 0)
		header[length++] = ' ';
	header[length] = '\0';
	write_container(directory, file, length, header, data, total);
	free(header);
	free(data);
}

/* How many files this process has open. */
static inline int
open_descriptors(void)
{
	DIR		   *directory = opendir("/proc/self/fd");
	int			count = 0;

	if (directory == NULL)
		return 0;
	while (readdir(directory) != NULL)
		count++;
	closedir(directory);
	return count;
}

#endif							/* HYMT_TEST_MODEL_FILES_H */
