/*
 * gguf.c: reading the GGUF container.
 *
 * Runs in the engine program. Owns the read-only mapping of one file: magic, version, numbers of tensors and of
 * metadata; the metadata (key, type, value); the tensors' names, shapes, types and offsets; then, aligned, their data.
 *
 * The file is untrusted. Every length and count is compared with what is left of the file before it is used, and
 * nothing is allocated but tables of keys and tensors, which the file must have bytes for. What cannot be checked is
 * that nobody truncates a file while it is mapped: that would end the engine with SIGBUS, which its parent survives.
 */
#include "gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "quant.h"

#define MAGIC "GGUF"
#define VERSION 3
#define HEADER_BYTES 24
#define MAX_ENTRIES (1u << 20)	/* keys, and tensors; real files have hundreds */
#define MAX_DIMENSIONS 4
#define MAX_NAME 255			/* bytes of a tensor's name; the format allows 64 */
#define DEFAULT_ALIGNMENT 32
#define MAX_ALIGNMENT (1u << 20)

struct HymtGguf
{
	char	   *path;
	const unsigned char *map;
	size_t		size;
	size_t		data_start;
	uint64_t	alignment;
	HymtGgufValue *values;		/* sorted by key */
	size_t		value_count;
	HymtStoredTensor *tensors;	/* sorted by name */
	size_t		tensor_count;
};

/* Where reading is. */
typedef struct Reader
{
	const HymtGguf *gguf;
	size_t		at;
	HymtError  *error;
} Reader;

/* The types of tensors that the format knows, by number; block 0: none of that number. */
static const struct
{
	const char *name;
	uint32_t	block;			/* elements */
	uint32_t	size;			/* bytes of a block */
}			types[] = {
	[0] = {"F32", 1, 4}, [1] = {"F16", 1, 2}, [2] = {"Q4_0", 32, 18}, [3] = {"Q4_1", 32, 20},
	[6] = {"Q5_0", 32, 22}, [7] = {"Q5_1", 32, 24}, [8] = {"Q8_0", 32, 34}, [9] = {"Q8_1", 32, 36},
	[10] = {"Q2_K", 256, 84}, [11] = {"Q3_K", 256, 110}, [12] = {"Q4_K", 256, 144}, [13] = {"Q5_K", 256, 176},
	[14] = {"Q6_K", 256, 210}, [15] = {"Q8_K", 256, 292}, [16] = {"IQ2_XXS", 256, 66}, [17] = {"IQ2_XS", 256, 74},
	[18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50}, [20] = {"IQ4_NL", 32, 18}, [21] = {"IQ3_S", 256, 110},
	[22] = {"IQ2_S", 256, 82}, [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1}, [25] = {"I16", 1, 2},
	[26] = {"I32", 1, 4}, [27] = {"I64", 1, 8}, [28] = {"F64", 1, 8}, [29] = {"IQ1_M", 256, 56},
	[30] = {"BF16", 1, 2},
};

/* --- bytes -------------------------------------------------------------------------------------------------------- */

static bool
broken(Reader *reader, const char *what)
{
	return hymt_fail(reader->error, HYMT_FAILURE_MODEL_BROKEN, "%s: %s (at byte %zu)", reader->gguf->path, what,
					 reader->at);
}

static bool
truncated(Reader *reader)
{
	return broken(reader, "the file ends inside its header (is it truncated?)");
}

static uint64_t
little_endian(const unsigned char *data, size_t bytes)
{
	uint64_t	number = 0;

	for (size_t i = bytes; i > 0; i--)
		number = number << 8 | data[i - 1];
	return number;
}

static bool
read_number(Reader *reader, size_t bytes, uint64_t *number)
{
	*number = 0;
	if (reader->gguf->size - reader->at < bytes)
		return truncated(reader);
	*number = little_endian(reader->gguf->map + reader->at, bytes);
	reader->at += bytes;
	return true;
}

static bool
read_text(Reader *reader, HymtJsonText *text)
{
	uint64_t	length;

	if (!read_number(reader, 8, &length))
		return false;
	if (length > reader->gguf->size - reader->at)
		return truncated(reader);
	text->data = (const char *) reader->gguf->map + reader->at;
	text->length = (size_t) length;
	reader->at += (size_t) length;
	return true;
}

/* --- metadata ----------------------------------------------------------------------------------------------------- */

/* Bytes of a value of a type; 0 for strings, arrays and what is no type. */
static size_t
type_size(uint64_t type)
{
	static const unsigned char sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

	return type < sizeof sizes ? sizes[type] : 0;
}

static bool
read_elements(Reader *reader, HymtGgufValue *value)
{
	size_t		size = type_size(value->element);
	HymtJsonText ignored;

	value->data = reader->gguf->map + reader->at;
	if (value->element == HYMT_GGUF_STRING)
	{
		/* each takes 8 bytes at least, so this ends */
		for (uint64_t i = 0; i < value->count; i++)
			if (!read_text(reader, &ignored))
				return false;
		return true;
	}
	if (value->count > (reader->gguf->size - reader->at) / size)
		return truncated(reader);
	reader->at += (size_t) value->count * size;
	return true;
}

static bool
read_type(Reader *reader, HymtGgufType *type)
{
	uint64_t	number;

	if (!read_number(reader, 4, &number))
		return false;
	if (number > HYMT_GGUF_FLOAT64)
		return broken(reader, "a value of a type that does not exist");
	*type = (HymtGgufType) number;
	return true;
}

static bool
read_value(Reader *reader, HymtGgufValue *value)
{
	if (!read_text(reader, &value->key))
		return false;
	if (value->key.length == 0 || memchr(value->key.data, '\0', value->key.length) != NULL)
		return broken(reader, "a key that is empty or contains a zero byte");
	if (!read_type(reader, &value->type))
		return false;
	value->element = value->type;
	value->count = 1;
	if (value->type == HYMT_GGUF_ARRAY)
	{
		if (!read_type(reader, &value->element) || !read_number(reader, 8, &value->count))
			return false;
		if (value->element == HYMT_GGUF_ARRAY)
			return broken(reader, "an array of arrays, which is not supported");
	}
	return read_elements(reader, value);
}

static int
compare_texts(const HymtJsonText *a, const char *b, size_t b_length)
{
	size_t		shorter = a->length < b_length ? a->length : b_length;
	int			order = memcmp(a->data, b, shorter);

	return order != 0 ? order : a->length < b_length ? -1 : a->length > b_length;
}

static int
compare_values(const void *left, const void *right)
{
	const HymtGgufValue *a = left;
	const HymtGgufValue *b = right;

	return compare_texts(&a->key, b->key.data, b->key.length);
}

static bool
read_values(Reader *reader, HymtGguf *gguf, uint64_t count)
{
	gguf->values = calloc((size_t) count + 1, sizeof *gguf->values);
	if (gguf->values == NULL)
		return hymt_fail(reader->error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", gguf->path);
	for (uint64_t i = 0; i < count; i++)
		if (!read_value(reader, &gguf->values[gguf->value_count++]))
			return false;
	qsort(gguf->values, gguf->value_count, sizeof *gguf->values, compare_values);
	for (size_t i = 1; i < gguf->value_count; i++)
		if (compare_values(&gguf->values[i - 1], &gguf->values[i]) == 0)
			return hymt_fail(reader->error, HYMT_FAILURE_MODEL_BROKEN, "%s: the key \"%.*s\" is there twice",
							 gguf->path, (int) (gguf->values[i].key.length < 100 ? gguf->values[i].key.length : 100),
							 gguf->values[i].key.data);
	return true;
}

static bool
read_alignment(Reader *reader, HymtGguf *gguf)
{
	const HymtGgufValue *value = hymt_gguf_value(gguf, "general.alignment");
	int64_t		alignment = DEFAULT_ALIGNMENT;

	if (value != NULL && !hymt_gguf_integer(value, &alignment))
		return broken(reader, "general.alignment is no integer");
	if (alignment < 8 || alignment > MAX_ALIGNMENT || (alignment & (alignment - 1)) != 0)
		return broken(reader, "general.alignment is no power of two from 8 to 1048576");
	gguf->alignment = (uint64_t) alignment;
	return true;
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static bool
broken_tensor(Reader *reader, const HymtStoredTensor *tensor, const char *what)
{
	return hymt_fail(reader->error, HYMT_FAILURE_MODEL_BROKEN, "%s: tensor \"%.100s\": %s", reader->gguf->path,
					 tensor->name, what);
}

static bool
read_tensor_name(Reader *reader, HymtStoredTensor *tensor)
{
	HymtJsonText name;

	if (!read_text(reader, &name))
		return false;
	if (name.length == 0 || name.length > MAX_NAME || memchr(name.data, '\0', name.length) != NULL)
		return broken(reader, "a tensor's name is empty, too long or contains a zero byte");
	tensor->name = strndup(name.data, name.length);
	return tensor->name != NULL ||
		hymt_fail(reader->error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", reader->gguf->path);
}

/* The file has the dimension first whose elements are neighbours. *elements is the product of all. */
static bool
read_shape(Reader *reader, HymtStoredTensor *tensor, uint64_t *elements)
{
	uint64_t	dimensions;

	*elements = 1;
	if (!read_number(reader, 4, &dimensions))
		return false;
	if (dimensions < 1 || dimensions > MAX_DIMENSIONS)
		return broken_tensor(reader, tensor, "has no dimension or more than 4");
	tensor->dimensions = (int) dimensions;
	for (int i = tensor->dimensions - 1; i >= 0; i--)
	{
		uint64_t	size;

		if (!read_number(reader, 8, &size))
			return false;
		if (size < 1 || size > INT64_MAX || __builtin_mul_overflow(*elements, size, elements))
			return broken_tensor(reader, tensor, "has an empty dimension or a shape beyond any memory");
		tensor->shape[i] = (int64_t) size;
	}
	return true;
}

/* Fills in dtype and bytes. */
static bool
read_tensor_type(Reader *reader, HymtStoredTensor *tensor, uint64_t elements)
{
	uint64_t	type;

	if (!read_number(reader, 4, &type))
		return false;
	if (type >= sizeof types / sizeof types[0] || types[type].block == 0)
		return hymt_fail(reader->error, HYMT_FAILURE_MODEL_UNSUPPORTED,
						 "%s: tensor \"%.100s\" has the unknown type %" PRIu64, reader->gguf->path, tensor->name, type);
	tensor->dtype = types[type].name;
	if (tensor->shape[tensor->dimensions - 1] % types[type].block != 0)
		return broken_tensor(reader, tensor, "has rows that are no whole blocks of its type");
	if (__builtin_mul_overflow(elements / types[type].block, (uint64_t) types[type].size, &tensor->bytes))
		return broken_tensor(reader, tensor, "has a shape beyond any memory");
	return true;
}

/* The data of a tensor begin at data_start + offset, but data_start is known only when all tensors have been read. */
static bool
read_tensor(Reader *reader, HymtStoredTensor *tensor, uint64_t *offset)
{
	uint64_t	elements;

	if (!read_tensor_name(reader, tensor) ||
		!read_shape(reader, tensor, &elements) ||
		!read_tensor_type(reader, tensor, elements) ||
		!read_number(reader, 8, offset))
		return false;
	return *offset % reader->gguf->alignment == 0 || broken_tensor(reader, tensor, "its offset is not aligned");
}

static bool
place_tensor(Reader *reader, HymtStoredTensor *tensor, uint64_t offset)
{
	const HymtGguf *gguf = reader->gguf;
	uint64_t	available = gguf->size - gguf->data_start;

	if (offset > available || tensor->bytes > available - offset)
		return hymt_fail(reader->error, HYMT_FAILURE_MODEL_BROKEN,
						 "%s: tensor \"%.100s\" has %" PRIu64 " bytes from byte %" PRIu64 " of the data, which has only "
						 "%" PRIu64 " (is the file truncated?)", gguf->path, tensor->name, tensor->bytes, offset,
						 available);
	tensor->data = gguf->map + gguf->data_start + offset;
	return true;
}

static int
compare_data(const void *left, const void *right)
{
	const HymtStoredTensor *a = left;
	const HymtStoredTensor *b = right;

	return a->data < b->data ? -1 : a->data > b->data;
}

static int
compare_names(const void *left, const void *right)
{
	const HymtStoredTensor *a = left;
	const HymtStoredTensor *b = right;

	return strcmp(a->name, b->name);
}

/* No byte may belong to two tensors, no name either. Leaves them sorted by name. */
static bool
check_tensors(Reader *reader, HymtGguf *gguf)
{
	HymtStoredTensor *tensors = gguf->tensors;

	qsort(tensors, gguf->tensor_count, sizeof *tensors, compare_data);
	for (size_t i = 1; i < gguf->tensor_count; i++)
		if (tensors[i].data < tensors[i - 1].data + tensors[i - 1].bytes)
			return hymt_fail(reader->error, HYMT_FAILURE_MODEL_BROKEN, "%s: tensors \"%.100s\" and \"%.100s\" overlap",
							 gguf->path, tensors[i - 1].name, tensors[i].name);
	qsort(tensors, gguf->tensor_count, sizeof *tensors, compare_names);
	for (size_t i = 1; i < gguf->tensor_count; i++)
		if (strcmp(tensors[i - 1].name, tensors[i].name) == 0)
			return broken_tensor(reader, &tensors[i], "is there twice");
	return true;
}

static bool
read_tensors(Reader *reader, HymtGguf *gguf, uint64_t count)
{
	uint64_t   *offsets = calloc((size_t) count + 1, sizeof *offsets);
	size_t		padding;
	bool		ok = true;

	gguf->tensors = calloc((size_t) count + 1, sizeof *gguf->tensors);
	if (offsets == NULL || gguf->tensors == NULL)
		ok = hymt_fail(reader->error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", gguf->path);
	for (uint64_t i = 0; ok && i < count; i++)
	{
		gguf->tensor_count++;
		ok = read_tensor(reader, &gguf->tensors[i], &offsets[i]);
	}
	padding = (size_t) (gguf->alignment - reader->at % gguf->alignment) % gguf->alignment;
	/* a file without tensors, which has a tokenizer only, need not be padded */
	if (padding > gguf->size - reader->at)
	{
		ok = ok && (count == 0 || truncated(reader));
		padding = gguf->size - reader->at;
	}
	gguf->data_start = reader->at + padding;
	for (uint64_t i = 0; ok && i < count; i++)
		ok = place_tensor(reader, &gguf->tensors[i], offsets[i]);
	free(offsets);
	return ok && check_tensors(reader, gguf);
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

/* A count of things that take at least `least` bytes each. */
static bool
read_count(Reader *reader, uint64_t *count, uint64_t least)
{
	if (!read_number(reader, 8, count))
		return false;
	if (*count > MAX_ENTRIES || *count > reader->gguf->size / least)
		return broken(reader, "more keys or tensors than a file of this size can have");
	return true;
}

static bool
read_header(HymtGguf *gguf, HymtError *error)
{
	Reader		reader = {gguf, 4, error};
	uint64_t	version;
	uint64_t	tensors;
	uint64_t	values;

	if (memcmp(gguf->map, MAGIC, 4) != 0)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: is no GGUF file", gguf->path);
	if (!read_number(&reader, 4, &version))
		return false;
	if (version != VERSION)
		return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED,
						 "%s: version %" PRIu64 " of GGUF (or its byte order) is not supported; supported: 3, little "
						 "endian", gguf->path, version);
	/* the least bytes that a tensor and a key with its value take */
	return read_count(&reader, &tensors, 33) &&
		read_count(&reader, &values, 13) &&
		read_values(&reader, gguf, values) &&
		read_alignment(&reader, gguf) &&
		read_tensors(&reader, gguf, tensors);
}

HymtGguf *
hymt_gguf_open(const char *path, HymtError *error)
{
	HymtGguf   *gguf = calloc(1, sizeof *gguf);
	uint64_t	size = 0;

	if (gguf == NULL || (gguf->path = strdup(path)) == NULL)
	{
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", path);
		free(gguf);
		return NULL;
	}
	gguf->map = hymt_file_map(path, HEADER_BYTES, "GGUF", &size, error);
	gguf->size = (size_t) size;
	if (gguf->map == NULL || !read_header(gguf, error))
	{
		hymt_gguf_close(gguf);
		return NULL;
	}
	return gguf;
}

void
hymt_gguf_close(HymtGguf *gguf)
{
	if (gguf == NULL)
		return;
	for (size_t i = 0; i < gguf->tensor_count; i++)
		free(gguf->tensors[i].name);
	free(gguf->tensors);
	free(gguf->values);
	if (gguf->map != NULL)
		munmap((void *) gguf->map, gguf->size);
	free(gguf->path);
	free(gguf);
}

static int
compare_name_to(const void *name, const void *element)
{
	const HymtStoredTensor *tensor = element;

	return strcmp(name, tensor->name);
}

const HymtStoredTensor *
hymt_gguf_find(const HymtGguf *gguf, const char *name)
{
	return bsearch(name, gguf->tensors, gguf->tensor_count, sizeof *gguf->tensors, compare_name_to);
}

const HymtStoredTensor *
hymt_gguf_tensor(const HymtGguf *gguf, size_t index)
{
	return index < gguf->tensor_count ? &gguf->tensors[index] : NULL;
}

const char *
hymt_gguf_path(const HymtGguf *gguf)
{
	return gguf->path;
}

const unsigned char *
hymt_gguf_header(const HymtGguf *gguf, size_t *length)
{
	*length = gguf->data_start;
	return gguf->map;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static int
compare_key_to(const void *key, const void *element)
{
	const HymtGgufValue *value = element;

	return -compare_texts(&value->key, key, strlen(key));
}

const HymtGgufValue *
hymt_gguf_value(const HymtGguf *gguf, const char *key)
{
	return bsearch(key, gguf->values, gguf->value_count, sizeof *gguf->values, compare_key_to);
}

static bool
decode_integer(HymtGgufType type, const unsigned char *data, int64_t *integer)
{
	uint64_t	number = little_endian(data, type_size(type));

	switch (type)
	{
		case HYMT_GGUF_INT8:
			*integer = (int8_t) number;
			return true;
		case HYMT_GGUF_INT16:
			*integer = (int16_t) number;
			return true;
		case HYMT_GGUF_INT32:
			*integer = (int32_t) number;
			return true;
		case HYMT_GGUF_UINT8:
		case HYMT_GGUF_UINT16:
		case HYMT_GGUF_UINT32:
		case HYMT_GGUF_UINT64:
		case HYMT_GGUF_INT64:
			*integer = (int64_t) number;
			return type != HYMT_GGUF_UINT64 || number <= INT64_MAX;
		default:
			return false;
	}
}

bool
hymt_gguf_integer(const HymtGgufValue *value, int64_t *integer)
{
	return decode_integer(value->type, value->data, integer);
}

bool
hymt_gguf_integer_at(const HymtGgufValue *value, uint64_t index, int64_t *integer)
{
	return value->type == HYMT_GGUF_ARRAY && index < value->count &&
		decode_integer(value->element, value->data + index * type_size(value->element), integer);
}

bool
hymt_gguf_number(const HymtGgufValue *value, double *number)
{
	uint64_t	bits = little_endian(value->data, type_size(value->type));
	uint32_t	short_bits = (uint32_t) bits;
	float		single;
	int64_t		integer;

	if (value->type == HYMT_GGUF_FLOAT64)
		memcpy(number, &bits, sizeof *number);
	else if (value->type == HYMT_GGUF_FLOAT32)
	{
		memcpy(&single, &short_bits, sizeof single);
		*number = (double) single;
	}
	else
	{
		if (!hymt_gguf_integer(value, &integer))
			return false;
		*number = (double) integer;
	}
	return true;
}

HymtJsonText
hymt_gguf_next_text(const unsigned char **at)
{
	HymtJsonText text = {(const char *) *at + 8, (size_t) little_endian(*at, 8)};

	*at += 8 + text.length;
	return text;
}

bool
hymt_gguf_text(const HymtGgufValue *value, HymtJsonText *text)
{
	const unsigned char *at = value->data;

	if (value->type != HYMT_GGUF_STRING)
		return false;
	*text = hymt_gguf_next_text(&at);
	return true;
}
