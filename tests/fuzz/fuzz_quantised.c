/*
 * fuzz_quantised.c: a model of quantised safetensors: FP8 with scales, GPTQ with zeros and groups. What opens is turned
 * into numbers, row by row.
 */
#include "readers.h"
#include "support.h"

static FuzzFile files[] = {{"model.safetensors", NULL, 0}, {"config.json", NULL, 0}, {NULL, NULL, 0}};

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	HymtModel	model;
	HymtError	error = {HYMT_FAILURE_NONE, ""};

	fuzz_cut(files, data, size);
	fuzz_write_files(files);
	if (!hymt_model_open(&model, fuzz_directory(), NULL, &error))
	{
		fuzz_check_error(&error, files);
		return 0;
	}
	fuzz_read_model(&model);
	hymt_model_close(&model);
	return 0;
}
