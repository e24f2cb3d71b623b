/*
 * main.c: the program hymt-engine: sees to the standard descriptors, finds the command and runs it.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "shortage.h"

typedef struct Command
{
	const char *name;
	int			(*run) (int argc, char **argv);
	const char *summary;
} Command;

static const Command commands[] = {
	{"translate", hymt_cmd_translate, "--from CODE --to CODE: lines in, lines out"},
	{"tokenize", hymt_cmd_tokenize, "{\"text\": ...} to {\"ids\": [...]} and back, JSON lines"},
	{"eval", hymt_cmd_eval, "logits and greedy ids for prompts of ids, JSON lines"},
	{"inspect", hymt_cmd_inspect, "what a model directory holds"},
	{"bench", hymt_cmd_bench, "--rows 1,4,16: tokens per second"},
	{"selftest", hymt_cmd_selftest, "a report on model and machine with a verdict"},
	{"serve", hymt_cmd_serve, "--fd N: the child of a database worker"},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static void
print_usage(FILE *stream)
{
	fprintf(stream, "hymt-engine %s: translation with Hunyuan-MT models\n\n", HYMT_VERSION);
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		fprintf(stream, "  hymt-engine %-10s --model DIR %s\n", commands[i].name, commands[i].summary);
	fprintf(stream, "\nhymt-engine COMMAND --help tells more.\n"
			"Exit code: 0 success, 1 something failed, 2 wrong usage.\n");
}

static int
dispatch(int argc, char **argv)
{
	if (argc < 2)
	{
		print_usage(stderr);
		return 2;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)
	{
		print_usage(stdout);
		return 0;
	}
	if (strcmp(argv[1], "--version") == 0)
	{
		printf("hymt-engine %s\n", HYMT_VERSION);
		return 0;
	}
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	hymt_complain("unknown command \"%s\"; see hymt-engine --help", argv[1]);
	return 2;
}

/*
 * A descriptor from 0 to 2 that is closed would become that of a model's file or of the trace, and then messages would
 * be written there. So it is opened, but in the direction that nobody uses: who reads from a missing input or prints to
 * a missing output is told so. Messages to a missing stderr are lost.
 */
static bool
fill_descriptors(void)
{
	static const int flags[] = {O_WRONLY, O_RDONLY, O_RDWR};

	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", flags[fd]) != fd)
			return false;
	return true;
}

int
main(int argc, char **argv)
{
	int			code;

	hymt_shortage_start();
	json_set_alloc_funcs(malloc, free);	/* counted like the engine's own */
	if (!fill_descriptors())
		return 1;				/* there may be no place to say so */
	/* A reader that went away is an error like any other, to be said and returned. */
	signal(SIGPIPE, SIG_IGN);
	code = dispatch(argc, argv);
	if (fflush(stdout) != 0 || ferror(stdout))
	{
		hymt_complain("cannot write to the standard output: %s", strerror(errno));
		return 1;
	}
	return code;
}
