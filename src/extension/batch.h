/*
 * batch.h: the texts of one call, translated together: by hymt_translate(text[]) and hymt_translate_json().
 */
#ifndef HYMT_BATCH_H
#define HYMT_BATCH_H

#include "session.h"

/* Lives in the memory context that is current when it is made, and all that belongs to it. */
typedef struct HymtBatch HymtBatch;

typedef enum HymtFate
{
	HYMT_FATE_TRANSLATED,
	HYMT_FATE_KEPT,				/* failed, and on_error says source */
	HYMT_FATE_NULL				/* failed, and on_error says null */
} HymtFate;

extern HymtBatch *hymt_batch_create(const HymtOrder *order);

/*
 * Adds a text in the server encoding, which has to stay where it is. Returns its number, that of an equal text if there
 * is one already; -1: it comes back as it is, without the model.
 */
extern int	hymt_batch_add(HymtBatch *batch, const char *source, int length);

/* Number of texts that have one. */
extern int	hymt_batch_count(const HymtBatch *batch);

/* Translates all of them. Once. */
extern void hymt_batch_translate(HymtBatch *batch);

/* What became of a text then; *translation is NULL unless it is HYMT_FATE_TRANSLATED. */
extern HymtFate hymt_batch_result(const HymtBatch *batch, int number, text **translation);

/* For error context callbacks: the text whose error is being raised; NULL when it is not the error of a text. */
extern const char *hymt_batch_failing(const HymtBatch *batch);

#endif							/* HYMT_BATCH_H */
