/*
 * hymt.h: what the files of the extension share: settings, errors, and the entry points that _PG_init wires together.
 */
#ifndef HYMT_H
#define HYMT_H

#include "postgres.h"

#include "compat.h"
#include "../protocol/frames.h"
#include "../protocol/languages.h"
#include "queue.h"

/* --- settings (guc.c) -------------------------------------------------------------------------------------------- */

extern char *hymt_model;		/* hymt.model: directory, GGUF file, or name of a shipped model; SIGHUP, superuser only */
extern char *hymt_engine_program;	/* hymt.engine: path of the engine; POSTMASTER, superuser only; '' = in pkglibdir */
extern char *hymt_prompt_family;	/* hymt.prompt_family: auto, or one of the families; SIGHUP */
extern char *hymt_adapters;		/* hymt.adapters: which languages have which adapter; SIGHUP, superuser only */
#define HYMT_ADAPTERS_MAX 8192	/* its longest value, with the NUL */
extern int	hymt_max_adapters;	/* hymt.max_adapters: loaded at a time; SIGHUP */
extern int	hymt_threads;		/* hymt.threads: 0 = automatic; SIGHUP */
extern int	hymt_max_context;	/* hymt.max_context, tokens; SIGHUP */
extern int	hymt_memory;		/* hymt.memory, MB; 0 = automatic; SIGHUP */
extern int	hymt_devices;		/* hymt.devices; POSTMASTER */
extern int	hymt_queue_slots;	/* hymt.queue_slots; POSTMASTER */
extern int	hymt_queue_memory;	/* hymt.queue_memory, kB; POSTMASTER */
extern int	hymt_bulk_share;	/* hymt.bulk_share, percent; SIGHUP */
extern int	hymt_max_requests_per_role; /* hymt.max_requests_per_role; 0 = no limit; SUSET */
extern int	hymt_queue_timeout; /* hymt.queue_timeout, ms; 0 = wait for ever; USERSET */
extern bool hymt_read_ahead;	/* hymt.read_ahead; USERSET */
extern int	hymt_read_ahead_rows;	/* hymt.read_ahead_rows; USERSET */
extern int	hymt_read_ahead_bytes;	/* hymt.read_ahead_bytes; USERSET */
extern bool hymt_progress;		/* hymt.progress: NOTICEs; USERSET */
extern char *hymt_databases;	/* hymt.databases: that are looked into at start; '' = all; SIGHUP */
extern int	hymt_max_database_workers;	/* hymt.max_database_workers; SIGHUP */
extern int	hymt_cache_mode;	/* hymt.cache: HymtCacheMode; USERSET */
extern int	hymt_cache_scope;	/* hymt.cache_scope: HymtCacheScope; SUSET */
extern int	hymt_cache_memory;	/* hymt.cache_memory, kB; 0 = no first level; POSTMASTER */
extern int	hymt_cache_max_age; /* hymt.cache_max_age, minutes; 0 = no limit; SIGHUP */
extern int	hymt_cache_max_size;	/* hymt.cache_max_size, MB; 0 = no limit; SIGHUP */
extern int	hymt_job_attempts;	/* hymt.job_attempts; SIGHUP */
extern int	hymt_job_retention; /* hymt.job_retention, seconds; 0 = no limit; SIGHUP */
extern int	hymt_engine_timeout;	/* hymt.engine_timeout, ms without progress before an engine counts as hung; SIGHUP */

typedef enum HymtCacheMode
{
	HYMT_CACHE_OFF,
	HYMT_CACHE_MEMORY_ONLY,
	HYMT_CACHE_ON
} HymtCacheMode;

typedef enum HymtCacheScope
{
	HYMT_CACHE_SCOPE_DATABASE,
	HYMT_CACHE_SCOPE_ROLE
} HymtCacheScope;

extern void hymt_define_settings(void);

/* --- errors (errors.c) ------------------------------------------------------------------------------------------- */

/* Class MT: what no standard SQLSTATE fits. README has the table. */
#define ERRCODE_HYMT_MODEL_BROKEN		MAKE_SQLSTATE('M','T','0','0','1')	/* model files malformed or unsupported */
#define ERRCODE_HYMT_ENGINE_CRASHED		MAKE_SQLSTATE('M','T','0','0','2')	/* this very text made the engine die */
#define ERRCODE_HYMT_ENGINE_FAILED		MAKE_SQLSTATE('M','T','0','0','3')	/* engine failed otherwise (internal, protocol, hang) */
#define ERRCODE_HYMT_UNFINISHED			MAKE_SQLSTATE('M','T','0','0','4')	/* answer ran into its length limit or a loop */
#define ERRCODE_HYMT_QUEUE_TIMEOUT		MAKE_SQLSTATE('M','T','0','0','5')	/* hymt.queue_timeout passed */
#define ERRCODE_HYMT_VERSION_SKEW		MAKE_SQLSTATE('M','T','0','0','6')	/* engine, library and shared memory differ: restart */
#define ERRCODE_HYMT_MODEL_LANGUAGE		MAKE_SQLSTATE('M','T','0','0','7')	/* the loaded model does not know the language */
#define ERRCODE_HYMT_ADAPTER			MAKE_SQLSTATE('M','T','0','0','8')	/* the adapter is missing, broken or does not fit */
#define ERRCODE_HYMT_STREAM_CHANGED		MAKE_SQLSTATE('M','T','0','0','9')	/* begun anew, an answer differs from what was given of it */

/*
 * Reasons name files of the server, as hymt.engine and hymt.model do: they are for those who may see such settings.
 * The message in the server encoding, palloc'ed; NULL for others, or when there is none. For backends.
 */
extern char *hymt_visible_reason(const char *message);

/* SQLSTATE for a failure that the engine reports of a model or a request. */
extern int	hymt_failure_sqlstate(HymtFailure failure);

/* Raises ERROR for an outcome that is a failure. */
HYMT_NORETURN extern void hymt_raise_outcome(const HymtOutcome *outcome);

/* Raises ERROR unless hymt is preloaded and layout versions agree. */
extern void hymt_check_preloaded(void);

/* Preloaded: whether shared memory was laid out by a library like this one. */
extern bool hymt_layout_fits(void);

/* --- worker (worker.c, engine_process.c) -------------------------------------------------------------------------- */

/* Reads the invalidations that others wait for; for processes that run no transactions for long. */
extern void hymt_catch_up_with_invalidations(void);

extern void hymt_register_workers(void);	/* from _PG_init, while preloading */

/* Warns when the postmaster has not taken all of ours; it tells nobody that it has no room for one. After all of them. */
extern void hymt_check_registered(void);
extern PGDLLEXPORT void hymt_worker_main(Datum argument);

#endif							/* HYMT_H */
