/*
 * options.c: parsing the options that the commands of hymt-engine share.
 *
 * Runs in the engine program, before anything is loaded. Owns the trace file.
 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char common_help[] =
"\n"
"Options of all commands that compute:\n"
"  --model PATH          the model: a directory (config.json, *.safetensors, tokenizer.json) or a GGUF file\n"
"  --family FAMILY       prompts the model was trained with: hunyuan-mt, hy-mt1.5, hy-mt2 (default: what its files\n"
"                        say); --prompt-family is the same\n"
"  --precision exact     stored weights, sums in single precision, the same bits on every machine (the default)\n"
"  --threads N           default: what the affinity mask and the cgroup allow\n"
"  --isa ISA             scalar, avx2, avx512 or auto (the default: the best this machine has)\n"
"  --max-context N       longest prompt and answer together, in tokens (default: 8192 or the model's own limit)\n"
"  --memory SIZE         bytes that the engine may use, weights included, or a number with k, M or G behind it\n"
"                        (default: what the system and the cgroup have available)\n"
"  --trace FILE          write one JSON line per step with the rows computed in it\n"
"  --help\n";

enum
{
	OPTION_MODEL = 256,
	OPTION_FAMILY,
	OPTION_PRECISION,
	OPTION_THREADS,
	OPTION_ISA,
	OPTION_MAX_CONTEXT,
	OPTION_MEMORY,
	OPTION_TRACE,
	OPTION_HELP,
	OPTION_OWN					/* + index into the command's own list */
};

static const struct option common_options[] = {
	{"model", required_argument, NULL, OPTION_MODEL},
	{"family", required_argument, NULL, OPTION_FAMILY},
	{"prompt-family", required_argument, NULL, OPTION_FAMILY},
	{"precision", required_argument, NULL, OPTION_PRECISION},
	{"threads", required_argument, NULL, OPTION_THREADS},
	{"isa", required_argument, NULL, OPTION_ISA},
	{"max-context", required_argument, NULL, OPTION_MAX_CONTEXT},
	{"memory", required_argument, NULL, OPTION_MEMORY},
	{"trace", required_argument, NULL, OPTION_TRACE},
	{"help", no_argument, NULL, OPTION_HELP},
};

#define COMMON_COUNT ((int) (sizeof(common_options) / sizeof(common_options[0])))
#define OWN_MAX 8

void
hymt_complain(const char *format, ...)
{
	va_list		arguments;

	fprintf(stderr, "hymt-engine: ");
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

bool
hymt_option_number(const char *name, const char *text, long minimum, long maximum, long *number)
{
	char	   *end;

	errno = 0;
	*number = strtol(text, &end, 10);
	if (end == text || *end != '\0' || errno != 0 || *number < minimum || *number > maximum)
	{
		hymt_complain("--%s: \"%s\" is no number from %ld to %ld", name, text, minimum, maximum);
		return false;
	}
	return true;
}

bool
hymt_option_adapters(int *max, const char *text)
{
	long		number;

	if (text == NULL)
		return true;
	if (!hymt_option_number("max-adapters", text, 1, HYMT_DEVICE_ADAPTERS, &number))
		return false;
	*max = (int) number;
	return true;
}

static bool
set_family(HymtOptions *options, const char *value)
{
	options->family = hymt_family_find(value);
	if (options->family != HYMT_FAMILY_UNKNOWN)
		return true;
	hymt_complain("--family: unknown family \"%s\"; known: " HYMT_FAMILY_NAMES, value);
	return false;
}

static bool
set_isa(HymtOptions *options, const char *value)
{
	if (!hymt_isa_parse(value, &options->device.isa))
	{
		hymt_complain("--isa: unknown instruction set \"%s\"; known: scalar, avx2, avx512, auto", value);
		return false;
	}
	if (!hymt_isa_supported(options->device.isa))
	{
		hymt_complain("--isa: this machine or build has no %s", value);
		return false;
	}
	return true;
}

/* A number of bytes, or of the units k, M, G (powers of 1024). */
static bool
set_memory(HymtOptions *options, const char *value)
{
	static const char units[] = "kMG";
	size_t		length = strlen(value);
	const char *unit = length > 1 ? strchr(units, value[length - 1]) : NULL;
	int			shift = unit != NULL ? 10 * (int) (unit - units + 1) : 0;
	char		digits[32];
	char	   *end;
	long long	number;

	if (unit != NULL)
		length--;
	if (length < sizeof(digits))
	{
		memcpy(digits, value, length);
		digits[length] = '\0';
		errno = 0;
		number = strtoll(digits, &end, 10);
		if (end != digits && *end == '\0' && errno == 0 && number >= 1 && number <= (INT64_MAX >> 8) >> shift)
		{
			options->memory = (int64_t) number << shift;
			return true;
		}
	}
	hymt_complain("--memory: \"%s\" is no size, such as 3000000000, 3000M or 3G", value);
	return false;
}

static bool
set_common(HymtOptions *options, int option, const char *value, const char **trace)
{
	long		number;

	switch (option)
	{
		case OPTION_MODEL:
			options->model = value;
			return true;
		case OPTION_FAMILY:
			return set_family(options, value);
		case OPTION_PRECISION:
			if (strcmp(value, "exact") == 0)
				return true;
			hymt_complain("--precision: this version computes in precision \"exact\" only, not \"%s\"", value);
			return false;
		case OPTION_THREADS:
			if (!hymt_option_number("threads", value, 1, 1024, &number))
				return false;
			options->device.threads = (int) number;
			return true;
		case OPTION_ISA:
			return set_isa(options, value);
		case OPTION_MAX_CONTEXT:
			if (!hymt_option_number("max-context", value, 1, 16 * 1024 * 1024, &number))
				return false;
			options->device.max_context = (int32_t) number;
			return true;
		case OPTION_MEMORY:
			return set_memory(options, value);
		case OPTION_TRACE:
			*trace = value;
			return true;
		default:
			return false;		/* getopt_long has complained */
	}
}

/* All options of argv; false with *exit_code set when the command should not go on. */
static bool
parse_all(HymtOptions *options, int argc, char **argv, const char *usage, const HymtOwnOption *own, const char **trace,
		  int *exit_code)
{
	struct option all[COMMON_COUNT + OWN_MAX + 1];
	int			count = COMMON_COUNT;
	int			option;

	memset(all, 0, sizeof(all));
	memcpy(all, common_options, sizeof(common_options));
	for (int i = 0; own != NULL && own[i].name != NULL && i < OWN_MAX; i++)
		all[count++] = (struct option) {own[i].name, required_argument, NULL, OPTION_OWN + i};

	optind = 1;
	while ((option = getopt_long(argc, argv, "", all, NULL)) != -1)
	{
		if (option == OPTION_HELP)
		{
			printf("%s%s", usage, common_help);
			*exit_code = 0;
			return false;
		}
		if (option >= OPTION_OWN)
			*own[option - OPTION_OWN].value = optarg;
		else if (!set_common(options, option, optarg, trace))
			return false;
	}
	if (optind < argc)
	{
		hymt_complain("%s: unexpected argument \"%s\"", argv[0], argv[optind]);
		return false;
	}
	return true;
}

bool
hymt_options_parse(HymtOptions *options, int argc, char **argv, const char *usage, const HymtOwnOption *own,
				   int *exit_code)
{
	const char *trace = NULL;

	memset(options, 0, sizeof(*options));
	*exit_code = 2;
	if (!parse_all(options, argc, argv, usage, own, &trace, exit_code))
		return false;
	if (options->model == NULL || options->model[0] == '\0')
	{
		hymt_complain("%s: --model DIR is %s", argv[0], options->model == NULL ? "missing" : "empty");
		return false;
	}
	if (trace != NULL)
	{
		options->trace = fopen(trace, "we");
		if (options->trace == NULL)
		{
			hymt_complain("cannot write \"%s\": %s", trace, strerror(errno));
			*exit_code = 1;
			return false;
		}
	}
	return true;
}

bool
hymt_options_close(HymtOptions *options)
{
	FILE	   *trace = options->trace;
	bool		failed;

	options->trace = NULL;
	if (trace == NULL)
		return true;
	failed = ferror(trace) != 0;
	failed = fclose(trace) != 0 || failed;
	if (failed)
		hymt_complain("the trace could not be written completely");
	return !failed;
}
