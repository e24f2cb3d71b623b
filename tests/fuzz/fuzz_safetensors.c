/*
 * fuzz_safetensors.c: a model.safetensors, or an index with shards. Whatever opens is read to the last byte.
 */
#include <jansson.h>
#include <string.h>

#include "safetensors.h"
#include "support.h"

static FuzzFile files[] = {
	{"model.safetensors", NULL, 0},
	{"model.safetensors.index.json", NULL, 0},
	{"one.safetensors", NULL, 0},
	{"two.safetensors", NULL, 0},
	{NULL, NULL, 0},
};

static unsigned
read_tensor(const HymtSafetensors *tensors, const char *name)
{
	const HymtStoredTensor *tensor = hymt_safetensors_find(tensors, name);
	unsigned	sum = 0;

	for (uint64_t i = 0; tensor != NULL && i < tensor->bytes; i++)
		sum += tensor->data[i];
	fuzz_require(hymt_safetensors_path(tensors, tensor) != NULL, "every tensor has a path");
	return sum;
}

/* The names are taken from the headers once more, since the container gives no list. */
static void
read_tensors(const HymtSafetensors *tensors, const FuzzFile *file)
{
	json_t	   *header = NULL;
	const char *name;
	json_t	   *entry;
	uint64_t	length = 0;

	if (file->data != NULL && file->length > 8)
	{
		memcpy(&length, file->data, 8);
		if (length <= file->length - 8)
			header = json_loadb((const char *) file->data + 8, (size_t) length, 0, NULL);
	}
	json_object_foreach(header, name, entry)
		read_tensor(tensors, name);
	json_decref(header);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	HymtSafetensors *tensors;
	HymtError	error = {HYMT_FAILURE_NONE, ""};

	fuzz_cut(files, data, size);
	fuzz_write_files(files);
	tensors = hymt_safetensors_open(fuzz_directory(), &error);
	if (tensors == NULL)
	{
		fuzz_check_error(&error, files);
		return 0;
	}
	fuzz_require(hymt_safetensors_file_count(tensors) >= 0, "files are counted");
	for (const FuzzFile *file = files; file->name != NULL; file++)
		read_tensors(tensors, file);
	read_tensor(tensors, "");
	hymt_safetensors_close(tensors);
	return 0;
}
