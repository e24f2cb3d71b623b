/*
 * options.h: the options that the commands of hymt-engine share.
 */
#ifndef HYMT_OPTIONS_H
#define HYMT_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

#include "device.h"
#include "model.h"

typedef struct HymtOptions
{
	const char *model;			/* --model, never NULL after parsing */
	HymtFamily	family;			/* --family, --prompt-family; UNKNOWN: what the model says */
	HymtDeviceOptions device;	/* --threads, --isa, --max-context */
	int64_t		memory;			/* --memory, in bytes; 0: what the machine has */
	FILE	   *trace;			/* --trace, or NULL */
} HymtOptions;

/* An option that only one command has. It takes a value, which stays argv's memory. */
typedef struct HymtOwnOption
{
	const char *name;			/* without dashes; NULL ends the list */
	const char **value;
} HymtOwnOption;

/*
 * Parse argv. `usage` is the command's help text, to which the help of the common options is added. Returns true when
 * the command should go on; false with *exit_code set when it should not (help was asked for: 0; wrong usage: 2; the trace
 * file cannot be written: 1), everything having been said.
 */
extern bool hymt_options_parse(HymtOptions *options, int argc, char **argv, const char *usage,
							   const HymtOwnOption *own, int *exit_code);
/* False: the trace could not be written completely, which has been said. */
extern bool hymt_options_close(HymtOptions *options);

/* Parse a decimal number within bounds. `name` is the option's, for the message on stderr. */
extern bool hymt_option_number(const char *name, const char *text, long minimum, long maximum, long *number);

/* Parse the value of --max-adapters, when there is one. */
extern bool hymt_option_adapters(int *max, const char *text);

/* "hymt-engine: message" on stderr. */
extern void hymt_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif							/* HYMT_OPTIONS_H */
