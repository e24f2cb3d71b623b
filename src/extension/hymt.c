/*
 * hymt.c: entry point of the library.
 *
 * Runs in the postmaster when hymt is preloaded, else in the backend that loads the library first. Owns nothing; only
 * wires the other files together. Must not touch shared memory: there is none yet.
 */
#include "hymt.h"
#include "ahead.h"
#include "progress.h"
#include "databases.h"
#include "jobs.h"

#include "miscadmin.h"

HYMT_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	/* pg_upgrade starts servers that must run no workers and see no change of behaviour. */
	if (IsBinaryUpgrade)
		return;

	hymt_define_settings();
	hymt_queue_register_callbacks();

	/*
	 * Loaded later, by the first call of a function: there is no shared memory and no worker. What needs them says so
	 * when it is called.
	 */
	if (!process_shared_preload_libraries_in_progress)
		return;

	hymt_shmem_init_hooks();
	hymt_register_workers();
	hymt_register_launcher();
	hymt_check_registered();
	hymt_databases_register_callbacks();
	hymt_job_calls_register();
	hymt_departure_init();
	hymt_ahead_init();
	hymt_progress_init();
}
