/*
 * lines.h: commands that answer each line of the standard input with one line, in order, computing many lines at once.
 */
#ifndef HYMT_LINES_H
#define HYMT_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "../protocol/frames.h"
#include "adapters.h"

/* A line of more bytes, its newline not counted, is not even stored. */
#define HYMT_LINE_MAX ((size_t) 16 * 1024 * 1024)

typedef struct HymtLineWork
{
	void	   *context;
	HymtAdapters *adapters;		/* what computes; NULL when start() answers every line; collect() is not called then */
	int			event_fd;		/* the device's */
	int			window;			/* lines read and not yet answered, at most: what bounds the memory */

	/*
	 * Begin with a line (without its newline; NULL when it was longer than HYMT_LINE_MAX). `number` counts from 1.
	 * Returns true when the answer will come through collect(), false when *output is the answer already.
	 */
	bool		(*start) (void *context, uint64_t number, const char *line, size_t length, HymtBytes *output);
	/* The next answer that has become ready, in any order; false when there is none. */
	bool		(*collect) (void *context, uint64_t *number, HymtBytes *output);
} HymtLineWork;

/* Answers all lines. False: reading or writing failed, which has been said. */
extern bool hymt_lines_run(const HymtLineWork *work);

#endif							/* HYMT_LINES_H */
