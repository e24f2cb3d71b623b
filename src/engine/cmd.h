/*
 * cmd.h: the commands of hymt-engine.
 *
 * Each takes the arguments after the program's name (argv[0] is the command's own) and returns the exit code:
 * 0 success, 1 something failed (said on stderr, or in an answer line), 2 wrong usage.
 */
#ifndef HYMT_CMD_H
#define HYMT_CMD_H

#include "options.h"

extern int	hymt_cmd_translate(int argc, char **argv);
extern int	hymt_cmd_tokenize(int argc, char **argv);
extern int	hymt_cmd_eval(int argc, char **argv);
extern int	hymt_cmd_inspect(int argc, char **argv);
extern int	hymt_cmd_bench(int argc, char **argv);
extern int	hymt_cmd_selftest(int argc, char **argv);
extern int	hymt_cmd_serve(int argc, char **argv);

#endif							/* HYMT_CMD_H */
