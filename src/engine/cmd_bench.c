/*
 * cmd_bench.c: hymt-engine bench: how fast a model computes here.
 *
 * Runs in the engine program. Prompts are random ids, so it needs no tokenizer; times are those of whole steps, the
 * scheduler's own work included. Given texts are the business of bench_texts.c.
 */
#include <stdlib.h>
#include <string.h>

#include "bench_texts.h"
#include "budget.h"
#include "cmd.h"
#include "scheduler.h"

#define ROWS_MAX 64				/* entries of --rows */

static const char usage[] =
"hymt-engine bench --model DIR [--rows 1,4,16] [--prompt N] [--new N] [OPTIONS]\n"
"\n"
"Prints tokens per second, for each number of sequences at a time: of prompts (prefill) and of answers (decode).\n"
"\n"
"  --rows LIST           sequences at a time, separated by commas (default: 1,4,16)\n"
"  --prompt N            tokens of each prompt (default: 64)\n"
"  --new N               tokens of each answer (default: 32)\n"
"\n"
"hymt-engine bench --model DIR --texts FILE --from CODE --to CODE [--new N] [OPTIONS]\n"
"\n"
"Translates the lines of a file as one batch, throws the answers away and prints texts and tokens per second.\n"
"\n"
"  --new N               tokens of each answer, at most (default: as in a translation)\n";

typedef struct Bench
{
	HymtModel	model;
	HymtDevice *device;
	HymtScheduler *scheduler;
	long		rows[ROWS_MAX];
	int			row_counts;
	long		prompt;
	long		new_tokens;
	uint32_t	random;
} Bench;

/* What one run took: steps with prompt rows and steps without, apart. */
typedef struct Measure
{
	uint64_t	prefill_tokens;
	double		prefill_seconds;
	uint64_t	decode_tokens;
	double		decode_seconds;
} Measure;

static const HymtDeviceOps *const ops = &hymt_device_cpu;

static bool
parse_rows(Bench *bench, const char *list)
{
	char	   *copy = strdup(list);
	char	   *rest = copy;
	char	   *word;
	bool		good = copy != NULL;

	if (copy == NULL)
		hymt_complain("out of memory");
	while (good && (word = strsep(&rest, ",")) != NULL)
	{
		good = bench->row_counts < ROWS_MAX;
		if (!good)
			hymt_complain("--rows: more than %d numbers", ROWS_MAX);
		else
			good = hymt_option_number("rows", word, 1, 4096, &bench->rows[bench->row_counts]);
		bench->row_counts++;
	}
	free(copy);
	return good;
}

static bool
submit_sequences(Bench *bench, long count, HymtError *error)
{
	int32_t    *prompt = malloc(sizeof(int32_t) * (size_t) bench->prompt);
	HymtSequenceRequest request = {
		.prompt = prompt,
		.prompt_count = (int32_t) bench->prompt,
		.max_new = (int32_t) bench->new_tokens,
		.repetition_penalty = bench->model.config.repetition_penalty
	};
	bool		done = prompt != NULL;

	if (!done)
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	/* No stop ids: every answer has its full length. */
	for (long i = 0; i < count && done; i++)
	{
		for (long j = 0; j < bench->prompt; j++)
		{
			bench->random = bench->random * 1664525u + 1013904223u;
			prompt[j] = (int32_t) ((bench->random >> 4) % (uint32_t) bench->model.config.vocab);
		}
		request.id = (uint64_t) i;
		done = hymt_scheduler_submit(bench->scheduler, &request, error);
	}
	free(prompt);
	return done;
}

static bool
measure(Bench *bench, long count, Measure *result, HymtError *error)
{
	HymtSchedulerStats before;
	HymtSchedulerStats after;
	HymtSequenceAnswer answer;
	double		start;
	bool		more;

	memset(result, 0, sizeof(*result));
	if (!submit_sequences(bench, count, error))
		return false;
	more = hymt_scheduler_run(bench->scheduler, true);	/* only submits the first step */
	hymt_scheduler_stats(bench->scheduler, &before);
	start = hymt_bench_clock();
	while (more)
	{
		double		end;

		more = hymt_scheduler_run(bench->scheduler, true);
		end = hymt_bench_clock();
		hymt_scheduler_stats(bench->scheduler, &after);
		if (after.input_tokens > before.input_tokens)
		{
			result->prefill_tokens += after.input_tokens - before.input_tokens;
			result->prefill_seconds += end - start;
		}
		else
		{
			result->decode_tokens += after.output_tokens - before.output_tokens;
			result->decode_seconds += end - start;
		}
		before = after;
		start = end;
	}
	while (hymt_scheduler_answer(bench->scheduler, &answer))
		if (answer.failure != HYMT_FAILURE_NONE)
			return hymt_fail(error, answer.failure, "the model computed a value that is not a number");
	return true;
}

/* All sequences at once need this much room. */
static bool
check_room(const Bench *bench, long count, HymtError *error)
{
	const HymtDeviceInfo *info = ops->info(bench->device);
	int64_t		pages = (bench->prompt + bench->new_tokens + HYMT_PAGE_TOKENS - 1) / HYMT_PAGE_TOKENS;

	if (count > info->max_rows || count > info->max_samples)
		return hymt_fail(error, HYMT_FAILURE_UNSUPPORTED, "the device computes at most %d sequences at a time",
						 (int) (info->max_rows < info->max_samples ? info->max_rows : info->max_samples));
	if (pages * count > info->page_count)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY,
						 "%ld sequences of %ld tokens do not fit in the %lld tokens of the KV memory", count,
						 bench->prompt + bench->new_tokens, (long long) info->page_count * HYMT_PAGE_TOKENS);
	return true;
}

static double
per_second(uint64_t tokens, double seconds)
{
	return seconds > 0 ? (double) tokens / seconds : 0;
}

static bool
print_table(Bench *bench, HymtError *error)
{
	const HymtDeviceInfo *info = ops->info(bench->device);
	Measure		result;

	printf("model %s, %llu parameters, device %s, precision %s, threads %d\n", bench->model.name,
		   (unsigned long long) bench->model.parameters, info->name, info->precision, info->threads);
	printf("prompts of %ld random tokens, answers of %ld\n\n", bench->prompt, bench->new_tokens);
	printf("%8s %18s %18s\n", "rows", "prefill tokens/s", "decode tokens/s");
	/* The first run touches every weight once, which would be counted as computing. */
	if (!check_room(bench, 1, error) || !measure(bench, 1, &result, error))
		return false;
	for (int i = 0; i < bench->row_counts; i++)
	{
		if (!check_room(bench, bench->rows[i], error) || !measure(bench, bench->rows[i], &result, error))
			return false;
		printf("%8ld %18.1f %18.1f\n", bench->rows[i], per_second(result.prefill_tokens, result.prefill_seconds),
			   per_second(result.decode_tokens, result.decode_seconds));
		fflush(stdout);
	}
	return true;
}

static bool
run(Bench *bench, const HymtOptions *options, HymtError *error)
{
	HymtBudget	budget = {.memory = options->memory, .device = options->device};
	HymtModelOptions model_options = {.family = options->family, .check = hymt_budget_decide, .check_context = &budget};
	bool		done = false;

	for (int i = 0; i < bench->row_counts; i++)
		if (bench->rows[i] > HYMT_DEFAULT_ROWS && bench->rows[i] > budget.device.max_rows)
			budget.device.max_rows = (int32_t) bench->rows[i];
	if (!hymt_model_open(&bench->model, options->model, &model_options, error))
		return false;
	bench->device = ops->open(&bench->model, &budget.device, error);
	if (bench->device != NULL)
		bench->scheduler = hymt_scheduler_open(ops, bench->device, bench->model.config.vocab, options->trace, error);
	if (bench->scheduler != NULL)
		done = print_table(bench, error);
	hymt_scheduler_close(bench->scheduler);
	if (bench->device != NULL)
		ops->close(bench->device);
	hymt_model_close(&bench->model);
	return done;
}

/* Either kind of arguments has its own; both have --new. */
static bool
check_kind(const HymtBenchTexts *texts, const char *rows, const char *prompt)
{
	if (texts->file == NULL && (texts->from != NULL || texts->to != NULL))
		hymt_complain("bench: --from and --to are for --texts FILE");
	else if (texts->file != NULL && (texts->from == NULL || texts->to == NULL))
		hymt_complain("bench: --texts needs --from CODE and --to CODE");
	else if (texts->file != NULL && (rows != NULL || prompt != NULL))
		hymt_complain("bench: --rows and --prompt are not for --texts");
	else
		return true;
	return false;
}

int
hymt_cmd_bench(int argc, char **argv)
{
	HymtOptions options;
	Bench		bench = {.prompt = 64, .new_tokens = 32, .random = 1};
	HymtBenchTexts texts = {0};
	HymtError	error;
	const char *rows = NULL;
	const char *prompt = NULL;
	const char *new_tokens = NULL;
	const HymtOwnOption own[] = {
		{"rows", &rows}, {"prompt", &prompt}, {"new", &new_tokens}, {"texts", &texts.file}, {"from", &texts.from},
		{"to", &texts.to}, {NULL, NULL}
	};
	int			code;
	bool		done;

	if (!hymt_options_parse(&options, argc, argv, usage, own, &code))
		return code;
	if (!check_kind(&texts, rows, prompt) || !parse_rows(&bench, rows != NULL ? rows : "1,4,16") ||
		(prompt != NULL && !hymt_option_number("prompt", prompt, 1, 1000000, &bench.prompt)) ||
		(new_tokens != NULL && !hymt_option_number("new", new_tokens, 1, 1000000, &bench.new_tokens)))
	{
		hymt_options_close(&options);
		return 2;
	}
	if (texts.file != NULL)
	{
		texts.max_new = new_tokens != NULL ? bench.new_tokens : 0;
		done = hymt_bench_texts(&texts, &options);
	}
	else
	{
		done = run(&bench, &options, &error);
		if (!done)
			hymt_complain("%s", error.message);
	}
	done = hymt_options_close(&options) && done;
	return done ? 0 : 1;
}
