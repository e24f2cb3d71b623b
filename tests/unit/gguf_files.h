/*
 * gguf_files.h: writing small GGUF files for tests, whole ones and broken ones.
 *
 * A file is put together in memory. Places in it can be remembered by name, to be overwritten with a lie.
 */
#ifndef HYMT_TEST_GGUF_FILES_H
#define HYMT_TEST_GGUF_FILES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MARKS 64

typedef struct Mark
{
	const char *name;
	size_t		at;
} Mark;

typedef struct GgufFile
{
	unsigned char bytes[65536];
	size_t		length;
	Mark		marks[MAX_MARKS];
	int			mark_count;
	uint64_t	value_count;
	uint64_t	tensor_count;
	uint64_t	data_length;	/* of the tensors described so far */
} GgufFile;

static inline void
put_bytes(GgufFile *file, const void *data, size_t length)
{
	if (file->length + length > sizeof file->bytes)
		abort();
	memcpy(file->bytes + file->length, data, length);
	file->length += length;
}

static inline void
put_number(GgufFile *file, uint64_t number, size_t size)
{
	for (size_t i = 0; i < size; i++)
	{
		unsigned char byte = (unsigned char) (number >> (8 * i));

		put_bytes(file, &byte, 1);
	}
}

static inline void
put_string(GgufFile *file, const char *text)
{
	put_number(file, strlen(text), 8);
	put_bytes(file, text, strlen(text));
}

static inline void
set_mark(GgufFile *file, const char *name)
{
	if (file->mark_count == MAX_MARKS)
		abort();
	file->marks[file->mark_count++] = (Mark) {name, file->length};
}

static inline size_t
mark_at(const GgufFile *file, const char *name)
{
	for (int i = 0; i < file->mark_count; i++)
		if (strcmp(file->marks[i].name, name) == 0)
			return file->marks[i].at;
	abort();
}

/* Writes over what stands at a mark. */
static inline void
overwrite(GgufFile *file, const char *mark, uint64_t number, size_t size)
{
	size_t		length = file->length;

	file->length = mark_at(file, mark);
	put_number(file, number, size);
	file->length = length;
}

static inline void
gguf_start(GgufFile *file)
{
	memset(file, 0, sizeof *file);
	set_mark(file, "magic");
	put_bytes(file, "GGUF", 4);
	set_mark(file, "version");
	put_number(file, 3, 4);
	set_mark(file, "tensor count");
	put_number(file, 0, 8);
	set_mark(file, "value count");
	put_number(file, 0, 8);
}

static inline void
put_key(GgufFile *file, const char *key, uint32_t type)
{
	put_string(file, key);
	put_number(file, type, 4);
	overwrite(file, "value count", ++file->value_count, 8);
}

static inline void
put_u32(GgufFile *file, const char *key, uint32_t number)
{
	put_key(file, key, 4);
	put_number(file, number, 4);
}

static inline void
put_f32(GgufFile *file, const char *key, float number)
{
	uint32_t	bits;

	memcpy(&bits, &number, sizeof bits);
	put_key(file, key, 6);
	put_number(file, bits, 4);
}

static inline void
put_text(GgufFile *file, const char *key, const char *text)
{
	put_key(file, key, 8);
	put_string(file, text);
}

static inline void
put_texts(GgufFile *file, const char *key, const char *const *texts, uint64_t count)
{
	put_key(file, key, 9);
	put_number(file, 8, 4);
	put_number(file, count, 8);
	for (uint64_t i = 0; i < count; i++)
		put_string(file, texts[i]);
}

static inline void
put_integers(GgufFile *file, const char *key, const int32_t *integers, uint64_t count)
{
	put_key(file, key, 9);
	put_number(file, 5, 4);
	put_number(file, count, 8);
	for (uint64_t i = 0; i < count; i++)
		put_number(file, (uint32_t) integers[i], 4);
}

/* Comes after all values. rows 0: a vector. `bytes` of data will be in the file. */
static inline void
put_tensor(GgufFile *file, const char *name, uint64_t columns, uint64_t rows, uint32_t type, uint64_t bytes)
{
	put_string(file, name);
	put_number(file, rows == 0 ? 1 : 2, 4);
	put_number(file, columns, 8);
	if (rows > 0)
		put_number(file, rows, 8);
	put_number(file, type, 4);
	put_number(file, file->data_length, 8);
	file->data_length = (file->data_length + bytes + 31) / 32 * 32;
	overwrite(file, "tensor count", ++file->tensor_count, 8);
}

/* The data: a pattern of small F32 numbers. */
static inline void
gguf_finish(GgufFile *file)
{
	while (file->length % 32 != 0)
		put_number(file, 0, 1);
	set_mark(file, "data");
	for (uint64_t i = 0; i < file->data_length / 4; i++)
		put_number(file, 0x3c000000 + (i * 7 % 64 << 18), 4);
}

#endif							/* HYMT_TEST_GGUF_FILES_H */
