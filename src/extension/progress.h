/*
 * progress.h: how far the statement that this process runs has come, for the view hymt_stat_progress and for NOTICEs.
 *
 * For backends and parallel workers; shmem.c lays the table out. None of the functions that count raises or waits.
 */
#ifndef HYMT_PROGRESS_H
#define HYMT_PROGRESS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "nodes/execnodes.h"

/*
 * One for each process that can run statements, by its proc number. Written by that process alone, so there is no lock:
 * change_count is odd while it writes, and who reads tries again when the number was odd or has changed.
 */
typedef struct HymtProgress
{
	uint32		change_count;
	int			pid;			/* 0: its statement translates nothing */
	int			leader_pid;		/* of a parallel worker; else 0 */
	Oid			database;
	Oid			role;			/* that logged in */
	int			command;		/* a CommandTag */
	TimestampTz started;		/* first row or text */
	TimestampTz updated;
	bool		has_rows;		/* rows are counted */
	int64		rows_total;		/* estimate; -1: unknown */
	int64		rows_done;
	int64		texts;			/* asked of the model */
	int64		failed;			/* translations in whose place on_error put something */
} HymtProgress;

extern Size hymt_progress_size(void);	/* of the table; MaxBackends must be known */
extern void hymt_progress_init(void);	/* from _PG_init, while preloading */

/* A text was asked of the model; on_error settled the failure of one. */
extern void hymt_progress_text(void);
extern void hymt_progress_failed(void);

/*
 * A plan node of reading ahead is about to return a row, and `rows` (0 or 1) that it returned before is done. *seen is
 * the node's; it remembers whether the node's estimate is part of this statement's.
 */
extern void hymt_progress_rows(uint64 *seen, int rows);

/* So many texts of one call are about to be asked for; one of them is done. */
extern void hymt_progress_batch(int texts);
extern void hymt_progress_batch_done(void);

/* At a place where an error leaks nothing: sends a NOTICE when hymt.progress is on and it is time for one. */
extern void hymt_progress_tick(void);

/* --- ahead_exec.c ------------------------------------------------------------------------------------------------- */

/* How many rows the nodes of a plan will yet return by the planner's estimate; each sets its *seen to `mark`. */
extern int64 hymt_ahead_expected(PlanState *plan, uint64 mark);

#endif							/* HYMT_PROGRESS_H */
