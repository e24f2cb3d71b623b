/*
 * engine_process.h: the engine as a child process of a worker: start, kill, reap, and its messages on stderr.
 *
 * What is said over the socket is link.h's concern.
 */
#ifndef HYMT_ENGINE_PROCESS_H
#define HYMT_ENGINE_PROCESS_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "hymt.h"

#define HYMT_LOG_LINE_MAX 1024

/* What an engine is started with. Two engines with equal settings need not be told apart. */
typedef struct HymtEngineSettings
{
	const char *unusable;		/* a constant: why no engine can be started with them; NULL: one can be tried */
	char		program[MAXPGPATH];
	char		model[MAXPGPATH];	/* directory */
	char		family[NAMEDATALEN];	/* "auto", or one of the families */
	char		adapters[HYMT_ADAPTERS_MAX];	/* as in the setting */
	int			max_adapters;
	int			threads;		/* 0 = automatic */
	int			max_context;	/* tokens */
	int			memory;			/* MB; 0 = automatic */
} HymtEngineSettings;

/* The circumstances of a start. */
typedef struct HymtEngineBeginning
{
	int			device;			/* number */
	int			device_count;	/* engines that share this machine */
	bool		beside;			/* another engine serves meanwhile: refuse if there is no memory for both */
	uint64		serving_bytes;	/* weights of that one that this one cannot share */
} HymtEngineBeginning;

typedef struct HymtEngineProcess
{
	pid_t		pid;			/* 0: none */
	int			socket;			/* our end, non-blocking; -1: closed */
	int			log;			/* read end of its stdout and stderr, non-blocking; -1: closed */
	TimestampTz started;
	bool		killed;			/* by us */
	TimestampTz kill_at;		/* when a process that ended the conversation is killed if it still lives; 0: not */

	/* the line of its stderr being put together (cut at the maximum), and the limit on lines */
	char		line[HYMT_LOG_LINE_MAX + 1];
	int			line_length;
	TimestampTz log_window;		/* start of the present period of the limit */
	int			log_lines;		/* in this period */
	int			log_dropped;	/* in this period */
} HymtEngineProcess;

/* From the server's settings. Relative paths stay so: worker and engine run in the data directory. */
extern void hymt_engine_settings(HymtEngineSettings *settings);
extern bool hymt_engine_settings_equal(const HymtEngineSettings *one, const HymtEngineSettings *other);

/* Equal for equal settings, in whatever process. */
extern uint64 hymt_engine_settings_hash(const HymtEngineSettings *settings);

/* No process. */
extern void hymt_engine_process_init(HymtEngineProcess *process);

/*
 * Fork and exec. On failure returns false with the reason in `failure` and `message` (HYMT_FAILURE_MODEL_MISSING when
 * the program is not there or the settings are unusable, HYMT_FAILURE_INTERNAL when the system had no process or descriptor to give, which may be
 * otherwise at the next attempt), and leaves no process and no descriptor.
 */
extern bool hymt_engine_start(HymtEngineProcess *process, const HymtEngineSettings *settings,
							  const HymtEngineBeginning *beginning, HymtFailure *failure, char *message,
							  Size message_size);

/* SIGKILL; the process is still to be reaped. */
extern void hymt_engine_kill(HymtEngineProcess *process);

/* True when the process is gone; *status as from waitpid(). Never blocks. Closes all descriptors then. */
extern bool hymt_engine_reap(HymtEngineProcess *process, int *status);

/* "was terminated by signal 11: Segmentation fault", "exited with exit code 3". */
extern void hymt_engine_status_text(int status, char *text, Size size);

extern void hymt_engine_close_socket(HymtEngineProcess *process);

/*
 * Re-emits what the engine wrote to its stderr as lines of the server log. Never blocks. Returns false at end of file;
 * the descriptor is closed then.
 */
extern bool hymt_engine_forward_log(HymtEngineProcess *process);

#endif							/* HYMT_ENGINE_PROCESS_H */
