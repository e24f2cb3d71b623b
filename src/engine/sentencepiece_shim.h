/*
 * sentencepiece_shim.h: the SentencePiece library behind a C interface.
 *
 * No C++ type, exception or status crosses it: functions return one of three results and, on FAILED, a message. A model
 * is immutable: several threads may encode with it at once. The library trusts its models more than an engine can:
 * hand it only bytes that sentencepiece_file.c has checked.
 */
#ifndef HYMT_SENTENCEPIECE_SHIM_H
#define HYMT_SENTENCEPIECE_SHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum HymtSpmResult
{
	HYMT_SPM_DONE,
	HYMT_SPM_NO_MEMORY,
	HYMT_SPM_FAILED
} HymtSpmResult;

#define HYMT_SPM_MESSAGE 256

typedef struct HymtSpm HymtSpm;

/* A serialized model, of which the library makes a copy of its own. */
extern HymtSpmResult hymt_spm_open(HymtSpm **spm, const char *bytes, size_t length, char message[HYMT_SPM_MESSAGE]);
extern void hymt_spm_close(HymtSpm *spm);

extern int	hymt_spm_size(const HymtSpm *spm);

/* The ids of a UTF-8 text: *ids is malloc'ed, the caller frees it. */
extern HymtSpmResult hymt_spm_encode(const HymtSpm *spm, const char *text, size_t length, int32_t **ids, size_t *count,
									 char message[HYMT_SPM_MESSAGE]);

/* The library's own decoder, for tests: the engine decodes id by id (tokenizer_decode.c). *text is malloc'ed. */
extern HymtSpmResult hymt_spm_decode(const HymtSpm *spm, const int32_t *ids, size_t count, char **text, size_t *length,
									 char message[HYMT_SPM_MESSAGE]);

#ifdef __cplusplus
}
#endif

#endif							/* HYMT_SENTENCEPIECE_SHIM_H */
