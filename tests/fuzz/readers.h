/*
 * readers.h: what several fuzz targets do with what they have opened.
 */
#ifndef HYMT_FUZZ_READERS_H
#define HYMT_FUZZ_READERS_H

#include "model.h"
#include "tokenizer.h"

/*
 * Read whatever belongs to a tensor, and turn each of its rows into numbers, as the scalar kernels do: what they read
 * must lie in the files.
 */
extern void fuzz_read_tensor(const HymtTensor *tensor);

/* All tensors of a model, and what must hold of its hyper-parameters. */
extern void fuzz_read_model(const HymtModel *model);

/* Encode some texts and decode many ids, and with them whatever the texts gave. */
extern void fuzz_use_tokenizer(const HymtTokenizer *tokenizer);

/*
 * Write model.safetensors of a small model: hidden 8, 1 layer, 2 heads of 4, 1 KV head, feed-forward 6, 10 tokens. The
 * configuration that fits it is the target's.
 */
extern void fuzz_write_weights(void);

#endif							/* HYMT_FUZZ_READERS_H */
