/*
 * error.h: how functions of the engine report failure.
 *
 * A function that can fail takes a HymtError * last and returns false (or NULL). On failure it has set the error, and
 * has released everything it had taken. The error is never NULL. Messages are English, name the file or field concerned,
 * and never contain a user's text.
 */
#ifndef HYMT_ERROR_H
#define HYMT_ERROR_H

#include <stdbool.h>
#include <stdio.h>

#include "../protocol/frames.h"

typedef struct HymtError
{
	HymtFailure failure;
	char		message[512];
} HymtError;

/* Sets *error and returns false, so that a caller can `return hymt_fail(…)`. Long messages are cut at a character. */
extern bool hymt_fail(HymtError *error, HymtFailure failure, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif							/* HYMT_ERROR_H */
