/*
 * pace.c: adapting the size of steps to the time they take.
 *
 * Runs in the engine, in the scheduler's thread; a function of what it is told.
 */
#include "pace.h"

/* What a step that grows aims at, so that a busy moment of the machine does not lead over the limit. */
#define SECONDS_AIM 0.2
#define ROWS_START 32			/* of prompts, until the first steps have told how fast the device is */

static int32_t
bounded(double rows, int32_t most)
{
	int32_t		least = most < HYMT_PACE_ROWS_MIN ? most : HYMT_PACE_ROWS_MIN;

	return rows < least ? least : rows > most ? most : (int32_t) rows;
}

void
hymt_pace_init(HymtPace *pace, int32_t max_rows)
{
	pace->max_rows = max_rows;
	pace->prompt_rows = max_rows < ROWS_START ? max_rows : ROWS_START;
	pace->decode_rows = max_rows;
}

static void
slow_down(HymtPace *pace, const HymtPaceStep *step)
{
	if (step->prompt_rows > HYMT_PACE_ROWS_MIN)
		pace->prompt_rows = bounded(step->prompt_rows / 2, pace->max_rows);
	else if (step->decode_rows > HYMT_PACE_ROWS_MIN)
		pace->decode_rows = bounded(step->decode_rows / 2, pace->max_rows);
}

/*
 * A quick step raises the limit to what its own rate promises, which is safe because a row costs no more among many than
 * among few; one that was limited doubles it at least.
 */
static void
speed_up(HymtPace *pace, const HymtPaceStep *step, double seconds)
{
	double		promised = (step->prompt_rows + step->decode_rows) * SECONDS_AIM / (seconds > 1e-6 ? seconds : 1e-6);
	double		rows = pace->prompt_rows;

	if (step->decodes_limited)
		pace->decode_rows = bounded(2.0 * pace->decode_rows, pace->max_rows);
	if (step->prompts_limited)
		rows *= 2;
	if (rows < promised - step->decode_rows)
		rows = promised - step->decode_rows;
	pace->prompt_rows = bounded(rows, pace->max_rows);
}

void
hymt_pace_adapt(HymtPace *pace, const HymtPaceStep *step, double seconds)
{
	if (seconds > HYMT_PACE_SECONDS)
		slow_down(pace, step);
	else if (seconds < HYMT_PACE_SECONDS / 2)
		speed_up(pace, step, seconds);
}
