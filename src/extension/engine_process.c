/*
 * engine_process.c: the engine as a child process of a worker.
 *
 * Runs in the worker; owns the child, its socket and its stderr pipe. The engine is a program of its own because any
 * abnormal end of a process that is attached to shared memory makes the postmaster restart every session. It shares the
 * worker's process group, so whatever ends the worker from outside (shutdown, immediate shutdown, pg_terminate_backend)
 * reaches it as well; PR_SET_PDEATHSIG and the end of the socket cover the rest. Nothing here may block or raise.
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "engine_process.h"
#include "hymt.h"

#define ENGINE_FD 3				/* the engine's end of the socket, in the engine */

/* What build_arguments() may need at most: the program's name, options, their values, and a NULL. */
#define ARGUMENTS_MAX 32
#define NUMBERS_MAX 12			/* of the values */
#define NUMBER_SIZE 24

/* A chatty engine may write this many lines per period into the server log. */
#define LOG_LINES_PER_PERIOD 200
#define LOG_PERIOD_MS 10000
/* Bytes read from the pipe per call, so that a flood of them does not keep the worker from its other duties. */
#define LOG_BYTES_PER_TURN 65536

/* --- settings ---------------------------------------------------------------------------------------------------- */

/* These give the length that the path has, like snprintf(): from MAXPGPATH on it was cut. */
static int
program_path(char *path)
{
	if (hymt_engine_program != NULL && hymt_engine_program[0] != '\0')
		return snprintf(path, MAXPGPATH, "%s", hymt_engine_program);
	return snprintf(path, MAXPGPATH, "%s/hymt-engine", pkglib_path);
}

static int
model_path(char *path)
{
	char		share[MAXPGPATH];

	if (strchr(hymt_model, '/') != NULL)
		return snprintf(path, MAXPGPATH, "%s", hymt_model);
	/* A bare name is one of the shipped models. */
	get_share_path(my_exec_path, share);
	return snprintf(path, MAXPGPATH, "%s/hymt/models/%s", share, hymt_model);
}

void
hymt_engine_settings(HymtEngineSettings *settings)
{
	memset(settings, 0, sizeof(*settings));
	if (program_path(settings->program) >= MAXPGPATH)
		settings->unusable = "hymt.engine is longer than a path may be";
	if (hymt_model == NULL || hymt_model[0] == '\0')
		settings->unusable = "hymt.model names no model";
	else if (model_path(settings->model) >= MAXPGPATH)
		settings->unusable = "hymt.model is longer than a path may be";
	strlcpy(settings->family, hymt_prompt_family != NULL ? hymt_prompt_family : "auto", sizeof(settings->family));
	strlcpy(settings->adapters, hymt_adapters != NULL ? hymt_adapters : "", sizeof(settings->adapters));
	settings->max_adapters = hymt_max_adapters;
	settings->threads = hymt_threads;
	settings->max_context = hymt_max_context;
	settings->memory = hymt_memory;
}

bool
hymt_engine_settings_equal(const HymtEngineSettings *one, const HymtEngineSettings *other)
{
	return one->unusable == other->unusable &&
		strcmp(one->program, other->program) == 0 &&
		strcmp(one->model, other->model) == 0 &&
		strcmp(one->family, other->family) == 0 &&
		strcmp(one->adapters, other->adapters) == 0 &&
		one->max_adapters == other->max_adapters &&
		one->threads == other->threads &&
		one->max_context == other->max_context &&
		one->memory == other->memory;
}

static uint64
hash_string(const char *string, uint64 hash)
{
	return hash_bytes_extended((const unsigned char *) string, (int) strlen(string), hash);
}

uint64
hymt_engine_settings_hash(const HymtEngineSettings *settings)
{
	const int	numbers[] = {settings->max_adapters, settings->threads, settings->max_context, settings->memory};
	uint64		hash = hash_bytes_extended((const unsigned char *) numbers, sizeof(numbers), 0);

	hash = hash_string(settings->program, hash);
	hash = hash_string(settings->model, hash);
	hash = hash_string(settings->family, hash);
	return hash_string(settings->adapters, hash);
}

/* --- start ------------------------------------------------------------------------------------------------------- */

static void
close_descriptor(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static bool
set_nonblocking(int fd)
{
	int			flags = fcntl(fd, F_GETFL);

	return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) >= 0;
}

void
hymt_engine_process_init(HymtEngineProcess *process)
{
	memset(process, 0, sizeof(*process));
	process->socket = -1;
	process->log = -1;
}

/* Says why the program cannot be executed, before a child has to die to tell. */
static bool
program_usable(const char *program, HymtFailure *failure, char *message, Size message_size)
{
	struct stat info;
	const char *reason;

	*failure = HYMT_FAILURE_MODEL_UNREADABLE;
	if (stat(program, &info) != 0)
	{
		if (errno == ENOENT || errno == ENOTDIR)
			*failure = HYMT_FAILURE_MODEL_MISSING;
		reason = strerror(errno);
	}
	else if (!S_ISREG(info.st_mode))
		reason = "it is not a regular file";
	else if (access(program, X_OK) != 0)
		reason = strerror(errno);
	else
		return true;
	snprintf(message, message_size, "cannot execute the engine program \"%s\": %s", program, reason);
	return false;
}

/* In the child only: async-signal-safe calls alone from here to exec. */
static void
child_close_descriptors(int from)
{
	struct rlimit limit;

#ifdef SYS_close_range
	if (syscall(SYS_close_range, from, ~0U, 0) == 0)
		return;
#endif
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		limit.rlim_cur = 65536;
	for (rlim_t fd = from; fd < limit.rlim_cur; fd++)
		close((int) fd);
}

static void
child_reset_signals(void)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigset_t	none;

	for (int number = 1; number < NSIG; number++)
		sigaction(number, &action, NULL);
	/* pg_cancel_backend() on the worker reaches the whole group, and is no reason to lose a loaded model. */
	action.sa_handler = SIG_IGN;
	sigaction(SIGINT, &action, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Makes the engine, not a session, the victim when memory runs out; raising one's own score needs no privilege. */
static void
child_raise_oom_score(void)
{
	int			fd = open("/proc/self/oom_score_adj", O_WRONLY);

	if (fd < 0)
		return;
	if (write(fd, "500", 3) != 3)
	{
		/* a kernel that refuses leaves the score as it is */
	}
	close(fd);
}

static void
child_run(pid_t worker, int socket, int log, char *const *arguments, char *const *environment)
{
	static const char complaint[] = "cannot execute the engine program\n";
	struct rlimit no_core = {0, 0};
	int			null;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != worker)
		_exit(1);				/* it died before we asked to be told */
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	setrlimit(RLIMIT_CORE, &no_core);

	/*
	 * Neither source may lie where a target goes. The postmaster's descriptors 0 to 2 are always open, so the pipe and
	 * the socket are >= 3, and only the socket's place can be taken: by the pipe, which is copied first.
	 */
	null = open("/dev/null", O_RDONLY);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
		_exit(126);
	if (socket != ENGINE_FD && dup2(socket, ENGINE_FD) < 0)
		_exit(126);
	if (socket == ENGINE_FD && fcntl(ENGINE_FD, F_SETFD, 0) < 0)
		_exit(126);
	child_close_descriptors(ENGINE_FD + 1);
	child_raise_oom_score();
	child_reset_signals();
	execve(arguments[0], arguments, environment);
	if (write(STDERR_FILENO, complaint, sizeof(complaint) - 1) < 0)
		_exit(126);
	_exit(127);
}

/* The command line. `numbers` is memory for those in it. */
static void
build_arguments(const char *arguments[ARGUMENTS_MAX], char numbers[NUMBERS_MAX][NUMBER_SIZE], const HymtEngineSettings *settings,
				const HymtEngineBeginning *beginning)
{
	int			n = 0;
	int			m = 0;

	arguments[n++] = settings->program;
	arguments[n++] = "serve";
	arguments[n++] = "--model";
	arguments[n++] = settings->model;
#define ADD_NUMBER(name, format, number) \
	(arguments[n++] = (name), snprintf(numbers[m], sizeof(numbers[m]), format, number), arguments[n++] = numbers[m++])
	ADD_NUMBER("--fd", "%d", ENGINE_FD);
	if (strcmp(settings->family, "auto") != 0)
	{
		arguments[n++] = "--prompt-family";
		arguments[n++] = settings->family;
	}
	if (settings->adapters[0] != '\0')
	{
		arguments[n++] = "--adapters";
		arguments[n++] = settings->adapters;
	}
	ADD_NUMBER("--max-adapters", "%d", settings->max_adapters);
	if (settings->threads > 0)
		ADD_NUMBER("--threads", "%d", settings->threads);
	if (settings->max_context > 0)
		ADD_NUMBER("--max-context", "%d", settings->max_context);
	if (settings->memory > 0)
		ADD_NUMBER("--memory", "%dM", settings->memory);
	if (beginning->device_count > 1)
	{
		ADD_NUMBER("--device-number", "%d", beginning->device);
		ADD_NUMBER("--device-count", "%d", beginning->device_count);
	}
	if (beginning->beside)
		ADD_NUMBER("--beside", UINT64_FORMAT, beginning->serving_bytes);
#undef ADD_NUMBER
	arguments[n] = NULL;
	Assert(n < ARGUMENTS_MAX && m <= NUMBERS_MAX);
}

bool
hymt_engine_start(HymtEngineProcess *process, const HymtEngineSettings *settings, const HymtEngineBeginning *beginning,
				  HymtFailure *failure, char *message, Size message_size)
{
	int			sockets[2] = {-1, -1};
	int			pipes[2] = {-1, -1};
	char		numbers[NUMBERS_MAX][NUMBER_SIZE];
	const char *arguments[ARGUMENTS_MAX];
	char	   *environment[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", NULL};
	sigset_t	all;
	sigset_t	former;
	pid_t		worker = getpid();
	pid_t		pid;

	Assert(process->pid == 0);
	hymt_engine_process_init(process);
	if (settings->unusable != NULL)
	{
		*failure = HYMT_FAILURE_MODEL_MISSING;
		strlcpy(message, settings->unusable, message_size);
		return false;
	}
	if (!program_usable(settings->program, failure, message, message_size))
		return false;

	build_arguments(arguments, numbers, settings, beginning);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0 || pipe2(pipes, O_CLOEXEC) != 0 ||
		!set_nonblocking(sockets[0]) || !set_nonblocking(pipes[0]))
		goto failed;

	/*
	 * With every signal blocked across the fork, none can run a PostgreSQL handler in the child before it has its own
	 * dispositions. PostgreSQL's buffers of stdio are empty or belong to nobody: the child never flushes them.
	 */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &former);
	pid = fork();
	if (pid == 0)
		child_run(worker, sockets[1], pipes[1], (char *const *) arguments, environment);
	sigprocmask(SIG_SETMASK, &former, NULL);
	if (pid < 0)
		goto failed;

	close_descriptor(&sockets[1]);
	close_descriptor(&pipes[1]);
	process->pid = pid;
	process->socket = sockets[0];
	process->log = pipes[0];
	process->started = GetCurrentTimestamp();
	return true;

failed:
	*failure = HYMT_FAILURE_INTERNAL;
	snprintf(message, message_size, "cannot start the engine program \"%s\": %s", settings->program, strerror(errno));
	close_descriptor(&sockets[0]);
	close_descriptor(&sockets[1]);
	close_descriptor(&pipes[0]);
	close_descriptor(&pipes[1]);
	return false;
}

/* --- end --------------------------------------------------------------------------------------------------------- */

void
hymt_engine_close_socket(HymtEngineProcess *process)
{
	close_descriptor(&process->socket);
}

void
hymt_engine_kill(HymtEngineProcess *process)
{
	process->kill_at = 0;
	if (process->pid == 0 || process->killed)
		return;
	/* Not reaped yet, so the number cannot belong to anybody else. */
	kill(process->pid, SIGKILL);
	process->killed = true;
}

bool
hymt_engine_reap(HymtEngineProcess *process, int *status)
{
	pid_t		pid = waitpid(process->pid, status, WNOHANG);

	if (pid == 0 || (pid < 0 && errno == EINTR))
		return false;
	if (pid < 0)
		*status = 0;			/* ECHILD: reaped by nobody we know of, but gone */
	/* Its last words; a pipe holds no more than a few turns' worth. */
	for (int turn = 0; turn < 4 && hymt_engine_forward_log(process); turn++)
		;
	close_descriptor(&process->log);
	close_descriptor(&process->socket);
	process->pid = 0;
	return true;
}

void
hymt_engine_status_text(int status, char *text, Size size)
{
	if (WIFSIGNALED(status))
		snprintf(text, size, "was terminated by signal %d: %s", WTERMSIG(status), pg_strsignal(WTERMSIG(status)));
	else
		snprintf(text, size, "exited with exit code %d", WEXITSTATUS(status));
}

/* --- its messages ------------------------------------------------------------------------------------------------ */

/* The line must not break the log's format, whatever the engine wrote. */
static void
sanitise_line(char *line, int length)
{
	bool		valid = pg_verify_mbstr(PG_UTF8, line, length, true);

	for (int i = 0; i < length; i++)
	{
		unsigned char byte = (unsigned char) line[i];

		if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !valid))
			line[i] = byte == '\t' ? ' ' : '?';
	}
}

static void
emit_line(HymtEngineProcess *process)
{
	TimestampTz now = GetCurrentTimestamp();
	int			length = process->line_length;

	process->line_length = 0;
	if (TimestampDifferenceExceeds(process->log_window, now, LOG_PERIOD_MS))
	{
		if (process->log_dropped > 0)
			ereport(LOG, (errmsg("hymt: engine (PID %d): %d more lines were not logged", (int) process->pid,
								 process->log_dropped)));
		process->log_window = now;
		process->log_lines = process->log_dropped = 0;
	}
	if (length == 0)
		return;
	if (process->log_lines >= LOG_LINES_PER_PERIOD)
	{
		process->log_dropped++;
		return;
	}
	process->log_lines++;
	length = pg_encoding_mbcliplen(PG_UTF8, process->line, length, HYMT_LOG_LINE_MAX);
	process->line[length] = '\0';
	sanitise_line(process->line, length);
	ereport(LOG, (errmsg("hymt: engine (PID %d): %s", (int) process->pid, process->line)));
}

bool
hymt_engine_forward_log(HymtEngineProcess *process)
{
	char		buffer[4096];
	int			budget = LOG_BYTES_PER_TURN;

	while (process->log >= 0 && budget > 0)
	{
		ssize_t		got = read(process->log, buffer, sizeof(buffer));

		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
			return true;
		if (got <= 0)
		{
			emit_line(process); /* an unfinished last line */
			close_descriptor(&process->log);
			return false;
		}
		budget -= (int) got;
		for (ssize_t i = 0; i < got; i++)
		{
			if (buffer[i] == '\n')
				emit_line(process);
			else if (process->line_length < HYMT_LOG_LINE_MAX)
				process->line[process->line_length++] = buffer[i];
		}
	}
	return process->log >= 0;
}
