/*
 * stored.c: the tensors of a model's files, whatever container they are in.
 *
 * Runs in the engine program. Owns the open container; knows nothing of what tensors mean.
 */
#include "stored.h"

#include <stdlib.h>

#include "gguf.h"
#include "safetensors.h"

/* One of the two is NULL. */
struct HymtStored
{
	HymtSafetensors *safetensors;
	HymtGguf   *gguf;
};

static HymtStored *
create(const char *path, HymtError *error)
{
	HymtStored *stored = calloc(1, sizeof *stored);

	if (stored == NULL)
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", path);
	return stored;
}

/* The container when it has been opened; else releases it. */
static HymtStored *
opened(HymtStored *stored)
{
	if (stored->safetensors != NULL || stored->gguf != NULL)
		return stored;
	free(stored);
	return NULL;
}

HymtStored *
hymt_stored_open_safetensors(const char *directory, HymtError *error)
{
	HymtStored *stored = create(directory, error);

	if (stored == NULL)
		return NULL;
	stored->safetensors = hymt_safetensors_open(directory, error);
	return opened(stored);
}

HymtStored *
hymt_stored_open_gguf(const char *path, HymtError *error)
{
	HymtStored *stored = create(path, error);

	if (stored == NULL)
		return NULL;
	stored->gguf = hymt_gguf_open(path, error);
	return opened(stored);
}

void
hymt_stored_close(HymtStored *stored)
{
	if (stored == NULL)
		return;
	hymt_safetensors_close(stored->safetensors);
	hymt_gguf_close(stored->gguf);
	free(stored);
}

const HymtStoredTensor *
hymt_stored_find(const HymtStored *stored, const char *name)
{
	return stored->gguf != NULL ? hymt_gguf_find(stored->gguf, name) : hymt_safetensors_find(stored->safetensors, name);
}

const char *
hymt_stored_path(const HymtStored *stored, const HymtStoredTensor *tensor)
{
	return stored->gguf != NULL ? hymt_gguf_path(stored->gguf) : hymt_safetensors_path(stored->safetensors, tensor);
}

int
hymt_stored_file_count(const HymtStored *stored)
{
	return stored->gguf != NULL ? 1 : hymt_safetensors_file_count(stored->safetensors);
}

const HymtGguf *
hymt_stored_gguf(const HymtStored *stored)
{
	return stored->gguf;
}
