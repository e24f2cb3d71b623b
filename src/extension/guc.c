/*
 * guc.c: the settings.
 *
 * Runs in the postmaster (preloaded) or in a backend (loaded late). Settings that name files or programs are for
 * superusers only: whoever may set them chooses what the server executes or reads.
 */
#include "hymt.h"

#include <limits.h>

#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "../protocol/adapter_list.h"

char	   *hymt_model;
char	   *hymt_engine_program;
char	   *hymt_prompt_family;
char	   *hymt_adapters;
int			hymt_max_adapters;
int			hymt_threads;
int			hymt_max_context;
int			hymt_memory;
int			hymt_devices;
int			hymt_queue_slots;
int			hymt_queue_memory;
int			hymt_bulk_share;
int			hymt_max_requests_per_role;
int			hymt_queue_timeout;
char	   *hymt_databases;
int			hymt_max_database_workers;
int			hymt_engine_timeout;
bool		hymt_read_ahead;
int			hymt_read_ahead_rows;
int			hymt_read_ahead_bytes;
bool		hymt_progress;
int			hymt_cache_mode;
int			hymt_cache_scope;
int			hymt_cache_memory;
int			hymt_cache_max_age;
int			hymt_cache_max_size;
int			hymt_job_attempts;
int			hymt_job_retention;

#define ADAPTERS_EXAMPLE "de=/srv/adapters/german, zh>ja=/srv/adapters/chinese-japanese, @legal=/srv/adapters/legal"

static const struct config_enum_entry cache_modes[] = {
	{"off", HYMT_CACHE_OFF, false},
	{"memory", HYMT_CACHE_MEMORY_ONLY, false},
	{"on", HYMT_CACHE_ON, false},
	/* as of a boolean */
	{"false", HYMT_CACHE_OFF, true},
	{"no", HYMT_CACHE_OFF, true},
	{"0", HYMT_CACHE_OFF, true},
	{"true", HYMT_CACHE_ON, true},
	{"yes", HYMT_CACHE_ON, true},
	{"1", HYMT_CACHE_ON, true},
	{NULL, 0, false}
};

static const struct config_enum_entry cache_scopes[] = {
	{"database", HYMT_CACHE_SCOPE_DATABASE, false},
	{"role", HYMT_CACHE_SCOPE_ROLE, false},
	{NULL, 0, false}
};

static const char *const prompt_families[] = {"auto", "hunyuan-mt", "hy-mt1.5", "hy-mt2", "alma", "tower-instruct"};

/*
 * A string and not an enum, because the value goes to the engine as it is and the list of families grows with the
 * engine.
 */
static bool
check_prompt_family(char **value, void **extra, GucSource source)
{
	for (int i = 0; i < lengthof(prompt_families); i++)
	{
		if (pg_strcasecmp(*value, prompt_families[i]) == 0)
		{
			/* The engine knows the spelling of this list only. */
			memcpy(*value, prompt_families[i], strlen(prompt_families[i]));
			return true;
		}
	}
	GUC_check_errdetail("Known prompt families are auto, hunyuan-mt, hy-mt1.5, hy-mt2, alma and tower-instruct.");
	return false;
}

/* Whether the directories hold adapters only the engine can tell; what is no list at all never gets there. */
static bool
check_adapters(char **value, void **extra, GucSource source)
{
	const char *at = *value;
	const char *fault = "";
	HymtAdapterItem item;
	HymtAdapterListStatus status;
	int			count = 0;

	if (strlen(*value) >= HYMT_ADAPTERS_MAX)
	{
		GUC_check_errdetail("The list is longer than %d bytes.", HYMT_ADAPTERS_MAX - 1);
		return false;
	}
	while ((status = hymt_adapter_list_next(&at, &item, &fault)) == HYMT_ADAPTER_LIST_ITEM)
	{
		char		key[HYMT_ADAPTER_KEY_MAX];
		HymtAdapterItem other;
		const char *again = *value;

		for (int i = 0; i < count; i++)
		{
			(void) hymt_adapter_list_next(&again, &other, &fault);
			if (!hymt_adapter_same_key(&other, &item))
				continue;
			hymt_adapter_key_text(&item, key);
			GUC_check_errdetail("\"%s\" has more than one adapter.", key);
			return false;
		}
		count++;
		if (item.path_length >= MAXPGPATH)
		{
			GUC_check_errdetail("A directory's path is longer than %d bytes.", MAXPGPATH - 1);
			return false;
		}
	}
	if (status == HYMT_ADAPTER_LIST_END)
		return true;
	GUC_check_errdetail("The list of adapters is not valid: %s.", fault);
	GUC_check_errhint("A list of adapters looks like \"%s\".", ADAPTERS_EXAMPLE);
	return false;
}

/* Names, not yet whether there are such databases. */
static bool
check_databases(char **value, void **extra, GucSource source)
{
	char	   *names = pstrdup(*value);
	List	   *list;
	bool		fits = SplitIdentifierString(names, ',', &list);

	if (!fits)
		GUC_check_errdetail("The list of databases is not valid.");
	list_free(list);
	pfree(names);
	return fits;
}

/* Less has no room for the longer of ordinary texts. */
#define LEAST_CACHE_MEMORY 128	/* kB */

static bool
check_cache_memory(int *value, void **extra, GucSource source)
{
	if (*value == 0 || *value >= LEAST_CACHE_MEMORY)
		return true;
	GUC_check_errdetail("The value must be 0, or at least %d kB.", LEAST_CACHE_MEMORY);
	return false;
}

static void
define_startup_settings(void)
{
	DefineCustomStringVariable("hymt.engine",
							   "Path of the engine program.",
							   "Empty: hymt-engine in PostgreSQL's library directory.",
							   &hymt_engine_program, "", PGC_POSTMASTER, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	DefineCustomIntVariable("hymt.devices",
							"Number of engines, each with a worker process of its own, that work on one queue.",
							"Each takes one of max_worker_processes.",
							&hymt_devices, 1, 1, HYMT_MAX_DEVICES, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("hymt.queue_slots",
							"Number of translations that all sessions together may have requested at one time.",
							NULL,
							&hymt_queue_slots, 1024, 8, 65536, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("hymt.queue_memory",
							"Shared memory for texts that wait to be translated and for their translations.",
							"One text may take half of it.",
							&hymt_queue_memory, 16 * 1024, 1024, 2 * 1024 * 1024, PGC_POSTMASTER, GUC_UNIT_KB,
							NULL, NULL, NULL);
	DefineCustomIntVariable("hymt.cache_memory",
							"Shared memory for translations that were made before.",
							"0: none is kept there.",
							&hymt_cache_memory, 32 * 1024, 0, 64 * 1024 * 1024, PGC_POSTMASTER, GUC_UNIT_KB,
							check_cache_memory, NULL, NULL);
}

static void
define_model_settings(void)
{
	DefineCustomStringVariable("hymt.model",
							   "Directory or GGUF file of the model.",
							   "A name without a slash is a model that is installed with hymt.",
							   &hymt_model, "demo", PGC_SIGHUP, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	DefineCustomStringVariable("hymt.prompt_family",
							   "The family of prompts that the model was trained on.",
							   "auto: as the files of the model tell. Otherwise hunyuan-mt, hy-mt1.5, hy-mt2, alma or tower-instruct.",
							   &hymt_prompt_family, "auto", PGC_SIGHUP, 0, check_prompt_family, NULL, NULL);
	DefineCustomStringVariable("hymt.adapters",
							   "LoRA adapters of the model for languages, or with names for callers.",
							   "A list like \"" ADAPTERS_EXAMPLE "\".",
							   &hymt_adapters, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, check_adapters, NULL, NULL);
	DefineCustomIntVariable("hymt.max_adapters",
							"Number of adapters that an engine has loaded at one time.",
							NULL,
							&hymt_max_adapters, 3, 1, 64, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("hymt.threads",
							"Number of threads of the engine.",
							"0: as many as there are processors, divided by hymt.devices.",
							&hymt_threads, 0, 0, 1024, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("hymt.max_context",
							"Largest number of tokens of a prompt and its translation together.",
							NULL,
							&hymt_max_context, 8192, 128, 1024 * 1024, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("hymt.memory",
							"Memory that each engine may use, the weights of its model included.",
							"0: what the system and the server's control group have available. A model that does not fit is refused.",
							&hymt_memory, 0, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("hymt.engine_timeout",
							"Time without progress after which the engine counts as hung and is started anew.",
							NULL,
							&hymt_engine_timeout, 60 * 1000, 100, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
}

static void
define_sharing_settings(void)
{
	DefineCustomIntVariable("hymt.bulk_share",
							"Percentage of the queue that bulk requests may occupy.",
							"Arrays are bulk requests. What is left is for single calls.",
							&hymt_bulk_share, 75, 1, 100, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("hymt.max_requests_per_role",
							"Number of translations that the sessions of one role together may have requested at one time.",
							"0: no limit but that of the queue. Further ones wait.",
							&hymt_max_requests_per_role, 0, 0, 65536, PGC_SUSET, 0, NULL, NULL, NULL);
}

static void
define_database_work(void)
{
	DefineCustomStringVariable("hymt.databases",
							   "Databases that are looked into for work when the server starts.",
							   "A list of names. Empty: all that take connections and are no templates.",
							   &hymt_databases, "", PGC_SIGHUP, 0, check_databases, NULL, NULL);
	DefineCustomIntVariable("hymt.max_database_workers",
							"Largest number of processes that work in databases at one time.",
							"Each takes one of max_worker_processes while it works.",
							&hymt_max_database_workers, 2, 1, 64, PGC_SIGHUP, 0, NULL, NULL, NULL);
}

static void
define_cache(void)
{
	DefineCustomEnumVariable("hymt.cache",
							 "Whether translations that were made before are used again, and new ones kept.",
							 "memory: only those in shared memory. on: those in the table hymt_cache as well.",
							 &hymt_cache_mode, HYMT_CACHE_ON, cache_modes, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("hymt.cache_scope",
							 "Whose translations are used again: those of all sessions of a database, or of each role its own.",
							 "With one scope for all, a quick answer tells that somebody had the text translated before.",
							 &hymt_cache_scope, HYMT_CACHE_SCOPE_DATABASE, cache_scopes, PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("hymt.cache_max_age",
							"Age at which translations are removed from the table hymt_cache.",
							"0: they are kept however old they are.",
							&hymt_cache_max_age, 0, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MIN, NULL, NULL, NULL);
	DefineCustomIntVariable("hymt.cache_max_size",
							"Size of the table hymt_cache in each database, above which the oldest translations are removed.",
							"0: there is no limit.",
							&hymt_cache_max_size, 1024, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
}

static void
define_jobs(void)
{
	DefineCustomIntVariable("hymt.job_attempts",
							"Number of attempts after which a job that fails for reasons beside its text is given up.",
							NULL,
							&hymt_job_attempts, 5, 1, 1000, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("hymt.job_retention",
							"Time after which jobs that have ended are removed from the table hymt_job.",
							"0: they are kept for ever.",
							&hymt_job_retention, 7 * 24 * 3600, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
}

static void
define_reading_ahead(void)
{
	DefineCustomBoolVariable("hymt.read_ahead",
							 "Whether statements read rows ahead, so that their texts are translated together.",
							 NULL,
							 &hymt_read_ahead, true, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("hymt.read_ahead_rows",
							"Largest number of rows that a plan node reads ahead.",
							NULL,
							&hymt_read_ahead_rows, 256, 1, 65536, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("hymt.read_ahead_bytes",
							"Memory for the rows that a plan node reads ahead, their texts and translations.",
							NULL,
							&hymt_read_ahead_bytes, 4 * 1024 * 1024, 64 * 1024, INT_MAX,
							PGC_USERSET, GUC_UNIT_BYTE, NULL, NULL, NULL);
}

void
hymt_define_settings(void)
{
	/* Settings of server start cannot be added to a running server: without preloading nothing reads them. */
	if (process_shared_preload_libraries_in_progress)
		define_startup_settings();
	define_model_settings();
	define_sharing_settings();
	define_database_work();
	define_reading_ahead();
	DefineCustomBoolVariable("hymt.progress",
							 "Whether statements that translate for more than 2 s tell how far they are, in NOTICEs.",
							 "The view hymt_stat_progress has it in any case.",
							 &hymt_progress, false, PGC_USERSET, 0, NULL, NULL, NULL);
	define_cache();
	define_jobs();
	DefineCustomIntVariable("hymt.queue_timeout",
							"Longest time that a translation may wait before the engine begins with it.",
							"0: for ever.",
							&hymt_queue_timeout, 0, 0, INT_MAX, PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	/* Loaded late it would remove the settings of server start, with a warning in every session. */
	if (process_shared_preload_libraries_in_progress)
		MarkGUCPrefixReserved("hymt");
}
