/*
 * row.h: a row of a SQL function's result under construction.
 *
 * For backends. Columns are set by number, or added from the left; what is not set is null.
 */
#ifndef HYMT_ROW_H
#define HYMT_ROW_H

#include "postgres.h"

#define HYMT_ROW_COLUMNS 48		/* the most that any function has */

typedef struct HymtRow
{
	Datum		value[HYMT_ROW_COLUMNS];
	bool		null[HYMT_ROW_COLUMNS];
	int			next;			/* column to be added */
} HymtRow;

static inline void
hymt_row_begin(HymtRow *row)
{
	memset(row->value, 0, sizeof(row->value));
	memset(row->null, true, sizeof(row->null));
	row->next = 0;
}

static inline void
hymt_row_set(HymtRow *row, int column, Datum value)
{
	Assert(column < HYMT_ROW_COLUMNS);
	row->value[column] = value;
	row->null[column] = false;
}

static inline void
hymt_row_add(HymtRow *row, Datum value)
{
	hymt_row_set(row, row->next++, value);
}

static inline void
hymt_row_add_null(HymtRow *row)
{
	row->next++;
}

#endif							/* HYMT_ROW_H */
