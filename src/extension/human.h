/*
 * human.h: translations that people set.
 *
 *      human.c             finds the one of a text, under the reader's snapshot
 *      human_write.c       the SQL functions and the trigger of the view that set and remove them
 *
 * Columns of hymt_human_translation: at least these, in this order.
 */
#ifndef HYMT_HUMAN_H
#define HYMT_HUMAN_H

#include "session.h"

#include "utils/rel.h"

enum
{
	HYMT_HUMAN_ID = 1,
	HYMT_HUMAN_SOURCE_LANG,
	HYMT_HUMAN_TARGET_LANG,
	HYMT_HUMAN_TEXT,
	HYMT_HUMAN_TRANSLATION,
	HYMT_HUMAN_SET_BY,
	HYMT_HUMAN_SET_AT,
	HYMT_HUMAN_COLUMNS = HYMT_HUMAN_SET_AT
};

/* The table; NULL where there is no extension, or an older one without it. Raises MT006 when it has other columns. */
extern Relation hymt_human_open(LOCKMODE lock);

#endif							/* HYMT_HUMAN_H */
