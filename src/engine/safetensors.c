/*
 * safetensors.c: reading the safetensors container.
 *
 * Runs in the engine program. Owns the read-only mappings of the files. A file is: the length of a header (8 bytes,
 * little endian), the header (a JSON object: name -> dtype, shape, data_offsets), then the tensors' bytes without gaps.
 *
 * The files are untrusted. Nothing in a header is believed until it has been compared with the size of the file: after
 * opening, every tensor lies inside its file and has exactly the bytes its dtype and shape need, and no two overlap.
 * What cannot be checked is that nobody truncates a file while it is mapped: that would end the engine with SIGBUS,
 * which its parent process survives.
 */
#include "safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"

#define LENGTH_BYTES 8
#define MAX_HEADER (100u * 1000 * 1000)	/* the format's own limit */
#define MAX_INDEX (100u * 1000 * 1000)
#define MAX_FILES 4096
#define SINGLE_FILE "model.safetensors"
#define INDEX_FILE "model.safetensors.index.json"

typedef struct MappedFile
{
	char	   *path;
	const unsigned char *map;
	size_t		size;
	HymtStoredTensor *tensors;	/* in the order of their data */
	size_t		count;
} MappedFile;

struct HymtSafetensors
{
	MappedFile *files;
	int			file_count;
	char	   *index_path;		/* NULL: a single file */
	HymtStoredTensor **by_name; /* sorted; point into the files' tensors */
	size_t		count;
};

/* The dtypes of the format, with the bits of one element. */
static const struct
{
	const char *name;
	unsigned	bits;
}			dtypes[] = {
	{"BF16", 16}, {"F16", 16}, {"F32", 32}, {"F64", 64},
	{"BOOL", 8}, {"U8", 8}, {"I8", 8}, {"U16", 16}, {"I16", 16}, {"U32", 32}, {"I32", 32}, {"U64", 64}, {"I64", 64},
	{"C64", 64},
	{"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
	{"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
};

/* --- one tensor of a header --------------------------------------------------------------------------------------- */

static bool
broken(HymtError *error, const MappedFile *file, const char *name, const char *what)
{
	return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: tensor \"%.100s\": %s", file->path, name, what);
}

static bool
read_dtype(HymtStoredTensor *tensor, unsigned *bits, const json_t *entry, const MappedFile *file, HymtError *error)
{
	const char *name = json_string_value(json_object_get(entry, "dtype"));

	if (name == NULL)
		return broken(error, file, tensor->name, "has no dtype");
	for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
		if (strcmp(name, dtypes[i].name) == 0)
		{
			tensor->dtype = dtypes[i].name;
			*bits = dtypes[i].bits;
			return true;
		}
	return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED, "%s: tensor \"%.100s\" has the unknown dtype \"%.40s\"",
					 file->path, tensor->name, name);
}

/* Fills in the shape; *elements is the product of its dimensions. */
static bool
read_shape(HymtStoredTensor *tensor, uint64_t *elements, const json_t *entry, const MappedFile *file, HymtError *error)
{
	const json_t *shape = json_object_get(entry, "shape");
	size_t		dimensions = json_array_size(shape);

	if (!json_is_array(shape))
		return broken(error, file, tensor->name, "has no shape");
	if (dimensions > HYMT_STORED_MAX_DIMENSIONS)
		return broken(error, file, tensor->name, "has too many dimensions");
	*elements = 1;
	for (size_t i = 0; i < dimensions; i++)
	{
		const json_t *dimension = json_array_get(shape, i);
		json_int_t	value = json_integer_value(dimension);

		if (!json_is_integer(dimension) || value < 0)
			return broken(error, file, tensor->name, "has a dimension that is no natural number");
		if (__builtin_mul_overflow(*elements, (uint64_t) value, elements))
			return broken(error, file, tensor->name, "has a shape beyond any memory");
		tensor->shape[i] = value;
	}
	tensor->dimensions = (int) dimensions;
	return true;
}

/* data_offsets: begin and end, relative to the first byte after the header, of which `available` bytes exist. */
static bool
read_offsets(uint64_t *begin, uint64_t *end, uint64_t available, const json_t *entry, const MappedFile *file,
			 const char *name, HymtError *error)
{
	const json_t *offsets = json_object_get(entry, "data_offsets");
	const json_t *first = json_array_get(offsets, 0);
	const json_t *second = json_array_get(offsets, 1);

	if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second))
		return broken(error, file, name, "data_offsets must be two integers");
	if (json_integer_value(first) < 0 || json_integer_value(second) < json_integer_value(first))
		return broken(error, file, name, "data_offsets are negative or in the wrong order");
	*begin = (uint64_t) json_integer_value(first);
	*end = (uint64_t) json_integer_value(second);
	if (*end > available)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN,
						 "%s: tensor \"%.100s\" ends at byte %" PRIu64 " of the data, which has only %" PRIu64
						 " (is the file truncated?)", file->path, name, *end, available);
	return true;
}

static bool
read_tensor(HymtStoredTensor *tensor, const char *name, const json_t *entry, const MappedFile *file,
			uint64_t data_start, HymtError *error)
{
	unsigned	bits = 0;
	uint64_t	elements = 0;
	uint64_t	total_bits;
	uint64_t	begin = 0;
	uint64_t	end = 0;

	tensor->name = strdup(name);
	if (tensor->name == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", file->path);
	if (!json_is_object(entry))
		return broken(error, file, name, "is not described by an object");
	if (!read_dtype(tensor, &bits, entry, file, error) ||
		!read_shape(tensor, &elements, entry, file, error) ||
		!read_offsets(&begin, &end, file->size - data_start, entry, file, name, error))
		return false;
	if (__builtin_mul_overflow(elements, (uint64_t) bits, &total_bits) || total_bits % 8 != 0)
		return broken(error, file, name, "has a shape that its dtype cannot store");
	if (end - begin != total_bits / 8)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN,
						 "%s: tensor \"%.100s\" needs %" PRIu64 " bytes by dtype and shape, but has %" PRIu64,
						 file->path, name, total_bits / 8, end - begin);
	tensor->data = file->map + data_start + begin;
	tensor->bytes = end - begin;
	return true;
}

/* --- one file ----------------------------------------------------------------------------------------------------- */

static int
compare_data(const void *left, const void *right)
{
	const HymtStoredTensor *a = left;
	const HymtStoredTensor *b = right;

	if (a->data != b->data)
		return a->data < b->data ? -1 : 1;
	return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

/* The format demands that the tensors cover the data completely, each byte once. */
static bool
check_coverage(const MappedFile *file, uint64_t data_start, HymtError *error)
{
	const unsigned char *expected = file->map + data_start;

	for (size_t i = 0; i < file->count; i++)
	{
		const HymtStoredTensor *tensor = &file->tensors[i];

		if (tensor->data < expected)
			return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: tensors \"%.100s\" and \"%.100s\" overlap",
							 file->path, file->tensors[i - 1].name, tensor->name);
		if (tensor->data > expected)
			return broken(error, file, tensor->name, "unused bytes stand before it");
		expected = tensor->data + tensor->bytes;
	}
	if (expected != file->map + file->size)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: bytes after the last tensor belong to none",
						 file->path);
	return true;
}

static bool
check_metadata(const json_t *metadata, const MappedFile *file, HymtError *error)
{
	const char *key;
	json_t	   *value;

	if (!json_is_object(metadata))
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: __metadata__ must be an object", file->path);
	json_object_foreach((json_t *) metadata, key, value)
		if (!json_is_string(value))
			return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: __metadata__ must hold only strings", file->path);
	return true;
}

static bool
read_header(MappedFile *file, int number, const json_t *header, uint64_t data_start, HymtError *error)
{
	const char *name;
	json_t	   *entry;

	file->tensors = calloc(json_object_size(header) + 1, sizeof *file->tensors);
	if (file->tensors == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", file->path);
	json_object_foreach((json_t *) header, name, entry)
	{
		if (strcmp(name, "__metadata__") == 0)
		{
			if (!check_metadata(entry, file, error))
				return false;
			continue;
		}
		file->tensors[file->count].file = number;
		if (!read_tensor(&file->tensors[file->count++], name, entry, file, data_start, error))
			return false;
	}
	qsort(file->tensors, file->count, sizeof *file->tensors, compare_data);
	return check_coverage(file, data_start, error);
}

/* The header's length from the first 8 bytes, checked against the file. */
static bool
read_header_length(const MappedFile *file, uint64_t *length, HymtError *error)
{
	*length = 0;
	for (int i = LENGTH_BYTES - 1; i >= 0; i--)
		*length = *length << 8 | file->map[i];
	if (*length > MAX_HEADER)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN,
						 "%s: a header of %" PRIu64 " bytes is beyond the format's limit",
						 file->path, *length);
	if (*length > file->size - LENGTH_BYTES)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN,
						 "%s: the header should have %" PRIu64 " bytes, but the file ends before (is it truncated?)",
						 file->path, *length);
	if (*length < 2 || file->map[LENGTH_BYTES] != '{')
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: has no header: this is no safetensors file",
						 file->path);
	return true;
}

static bool
map_file(MappedFile *file, HymtError *error)
{
	uint64_t	size = 0;

	file->map = hymt_file_map(file->path, LENGTH_BYTES, "safetensors", &size, error);
	file->size = (size_t) size;
	return file->map != NULL;
}

static bool
open_file(MappedFile *file, int number, HymtError *error)
{
	uint64_t	length = 0;
	json_t	   *header;
	bool		ok;

	if (!map_file(file, error) || !read_header_length(file, &length, error))
		return false;
	header = hymt_json_object((const char *) file->map + LENGTH_BYTES, (size_t) length, file->path, error);
	if (header == NULL)
		return false;
	ok = read_header(file, number, header, LENGTH_BYTES + length, error);
	json_decref(header);
	return ok;
}

/* --- all files of a model ----------------------------------------------------------------------------------------- */

static int
compare_names(const void *left, const void *right)
{
	const HymtStoredTensor *const *a = left;
	const HymtStoredTensor *const *b = right;

	return strcmp((*a)->name, (*b)->name);
}

static int
compare_name_to(const void *name, const void *element)
{
	const HymtStoredTensor *const *tensor = element;

	return strcmp(name, (*tensor)->name);
}

static void
sort_by_name(HymtSafetensors *files)
{
	qsort(files->by_name, files->count, sizeof *files->by_name, compare_names);
}

static bool
open_single(HymtSafetensors *files, const char *directory, const char *name, HymtError *error)
{
	MappedFile *file;

	files->files = calloc(1, sizeof *files->files);
	if (files->files == NULL || (files->files[0].path = hymt_path_join(directory, name)) == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", name);
	files->file_count = 1;
	file = &files->files[0];
	if (!open_file(file, 0, error))
		return false;
	files->by_name = calloc(file->count + 1, sizeof *files->by_name);
	if (files->by_name == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", file->path);
	for (size_t i = 0; i < file->count; i++)
		files->by_name[files->count++] = &file->tensors[i];
	sort_by_name(files);
	return true;
}

/* A shard's name must stay inside the directory: an index must not make the engine read other files. */
static bool
plain_file_name(const char *name)
{
	return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL && strlen(name) <= 255;
}

/*
 * The distinct file names of a weight map, as an object name -> null: a set that the JSON library searches by hash.
 * NULL on failure.
 */
static json_t *
shard_names(const HymtSafetensors *files, const json_t *weight_map, HymtError *error)
{
	json_t	   *names = json_object();
	const char *tensor;
	json_t	   *value;

	if (names == NULL)
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", files->index_path);
	json_object_foreach((json_t *) weight_map, tensor, value)
	{
		const char *name = json_string_value(value);

		if (names == NULL)
			break;
		if (name == NULL || !plain_file_name(name))
			hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: tensor \"%.100s\": \"%.100s\" is no plain file name",
					  files->index_path, tensor, name == NULL ? "" : name);
		else if (json_object_set_new(names, name, json_null()) != 0)
			hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", files->index_path);
		else if (json_object_size(names) > MAX_FILES)
			hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: lists more than %d files", files->index_path, MAX_FILES);
		else
			continue;
		json_decref(names);
		names = NULL;
	}
	return names;
}

/* Open one shard, and take of its tensors those that the weight map says are in it. */
static bool
open_shard(HymtSafetensors *files, const char *directory, const char *name, const json_t *weight_map,
		   HymtError *error)
{
	int			number = files->file_count++;
	MappedFile *file = &files->files[number];

	file->path = hymt_path_join(directory, name);
	if (file->path == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", files->index_path);
	if (!open_file(file, number, error))
		return false;
	for (size_t i = 0; i < file->count; i++)
	{
		const char *shard = json_string_value(json_object_get(weight_map, file->tensors[i].name));

		if (shard != NULL && strcmp(shard, name) == 0)
			files->by_name[files->count++] = &file->tensors[i];
	}
	return true;
}

/* Every tensor of the weight map must have been found in its shard. by_name is sorted already. */
static bool
check_weight_map(const HymtSafetensors *files, const json_t *weight_map, HymtError *error)
{
	const char *name;
	json_t	   *shard;

	json_object_foreach((json_t *) weight_map, name, shard)
		if (hymt_safetensors_find(files, name) == NULL)
			return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: tensor \"%.100s\" is not in %.100s",
							 files->index_path, name, json_string_value(shard));
	return true;
}

static bool
open_shards(HymtSafetensors *files, const char *directory, const json_t *weight_map, HymtError *error)
{
	json_t	   *names = shard_names(files, weight_map, error);
	const char *name;
	json_t	   *nothing;
	bool		ok = names != NULL;

	if (!ok)
		return false;
	files->files = calloc(json_object_size(names) + 1, sizeof *files->files);
	files->by_name = calloc(json_object_size(weight_map) + 1, sizeof *files->by_name);
	if (files->files == NULL || files->by_name == NULL)
		ok = hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", files->index_path);
	json_object_foreach(names, name, nothing)
		ok = ok && open_shard(files, directory, name, weight_map, error);
	json_decref(names);
	if (!ok)
		return false;
	sort_by_name(files);
	return check_weight_map(files, weight_map, error);
}

static bool
open_index(HymtSafetensors *files, const char *directory, HymtError *error)
{
	HymtFileBytes bytes;
	json_t	   *index;
	json_t	   *weight_map;
	bool		ok = false;

	files->index_path = hymt_path_join(directory, INDEX_FILE);
	if (files->index_path == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", INDEX_FILE);
	if (!hymt_file_read(&bytes, directory, INDEX_FILE, MAX_INDEX, true, error))
		return false;
	if (bytes.data == NULL)
		return hymt_fail(error, HYMT_FAILURE_MODEL_MISSING, "%s: has neither %s nor %s", directory, SINGLE_FILE,
						 INDEX_FILE);
	index = hymt_json_object(bytes.data, bytes.length, files->index_path, error);
	hymt_file_free(&bytes);
	if (index == NULL)
		return false;
	weight_map = json_object_get(index, "weight_map");
	if (!json_is_object(weight_map))
		hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: has no weight_map", files->index_path);
	else
		ok = open_shards(files, directory, weight_map, error);
	json_decref(index);
	return ok;
}

/* Whether there is something called model.safetensors; unless it is certain that there is not, opening it will tell. */
static bool
single_file_exists(const char *directory)
{
	char	   *path = hymt_path_join(directory, SINGLE_FILE);
	struct stat status;
	bool		exists = path == NULL || lstat(path, &status) == 0 || errno != ENOENT;

	free(path);
	return exists;
}

HymtSafetensors *
hymt_safetensors_open_file(const char *directory, const char *file, HymtError *error)
{
	HymtSafetensors *files = calloc(1, sizeof *files);
	bool		ok;

	if (files == NULL)
	{
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", directory);
		return NULL;
	}
	ok = file != NULL ? open_single(files, directory, file, error) : open_index(files, directory, error);
	if (!ok)
	{
		hymt_safetensors_close(files);
		return NULL;
	}
	return files;
}

HymtSafetensors *
hymt_safetensors_open(const char *directory, HymtError *error)
{
	return hymt_safetensors_open_file(directory, single_file_exists(directory) ? SINGLE_FILE : NULL, error);
}

void
hymt_safetensors_close(HymtSafetensors *files)
{
	if (files == NULL)
		return;
	for (int i = 0; i < files->file_count; i++)
	{
		MappedFile *file = &files->files[i];

		for (size_t t = 0; t < file->count; t++)
			free(file->tensors[t].name);
		free(file->tensors);
		if (file->map != NULL)
			munmap((void *) file->map, file->size);
		free(file->path);
	}
	free(files->files);
	free(files->by_name);
	free(files->index_path);
	free(files);
}

const HymtStoredTensor *
hymt_safetensors_find(const HymtSafetensors *files, const char *name)
{
	HymtStoredTensor *const *found = bsearch(name, files->by_name, files->count, sizeof *files->by_name,
											  compare_name_to);

	return found == NULL ? NULL : *found;
}

const char *
hymt_safetensors_path(const HymtSafetensors *files, const HymtStoredTensor *tensor)
{
	if (tensor != NULL)
		return files->files[tensor->file].path;
	return files->index_path != NULL ? files->index_path : files->files[0].path;
}

size_t
hymt_safetensors_count(const HymtSafetensors *files)
{
	return files->count;
}

const HymtStoredTensor *
hymt_safetensors_at(const HymtSafetensors *files, size_t index)
{
	return files->by_name[index];
}

int
hymt_safetensors_file_count(const HymtSafetensors *files)
{
	return files->file_count;
}
