/*
 * test_adapters.c: which adapters are loaded while requests come, run, end and are cancelled; the list of the setting;
 * and rows of several adapters in one plan.
 *
 * The device is the real one behind a door that keeps count: it knows which adapters the plan under way uses, and fails
 * the test when one of them is unloaded, or when more are loaded than may be. What adapters compute is checked in
 * tests/engine/check_adapters.py.
 */
#define _GNU_SOURCE				/* model_files.h: nftw */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../src/protocol/adapter_list.h"
#include "adapters.h"
#include "assignments.h"
#include "model_files.h"

#define BASE "tests/vectors/models/hunyuan_gqa_f32"
#define GOLDEN "tests/vectors/adapters/lora_on_gqa_f32"

/* --- a door that keeps count --------------------------------------------------------------------------------------- */

static struct
{
	const HymtPlan *plan;		/* under way */
	int32_t		loaded[HYMT_DEVICE_ADAPTERS];
	int			count;
	int			most;			/* that may be loaded; 0: any number */
	int			loads;
	int32_t		last_id;
	int			mixed_plans;	/* with rows of several adapters */
}			door;

static void
counting_submit(HymtDevice *device, const HymtPlan *plan)
{
	assert_null(door.plan);
	door.plan = plan;
	for (int i = 1; i < plan->sequence_count; i++)
		if (plan->sequences[i].adapter != plan->sequences[0].adapter)
		{
			door.mixed_plans++;
			break;
		}
	hymt_device_cpu.submit(device, plan);
}

static bool
counting_poll(HymtDevice *device, bool wait, HymtStepResult *result)
{
	bool		done = hymt_device_cpu.poll(device, wait, result);

	if (done)
		door.plan = NULL;
	return done;
}

static bool
counting_load(HymtDevice *device, int32_t id, const HymtAdapter *adapter, HymtError *error)
{
	if (!hymt_device_cpu.load_adapter(device, id, adapter, error))
		return false;
	door.loaded[door.count++] = id;
	door.loads++;
	door.last_id = id;
	if (door.most > 0)
		assert_true(door.count <= door.most);
	return true;
}

static void
counting_unload(HymtDevice *device, int32_t id)
{
	int			i = 0;

	for (int s = 0; door.plan != NULL && s < door.plan->sequence_count; s++)
		assert_int_not_equal(door.plan->sequences[s].adapter, id);
	while (i < door.count && door.loaded[i] != id)
		i++;
	assert_true(i < door.count);
	door.loaded[i] = door.loaded[--door.count];
	hymt_device_cpu.unload_adapter(device, id);
}

static HymtDeviceOps ops;

/* --- an engine of its parts ---------------------------------------------------------------------------------------- */

typedef struct Parts
{
	HymtModel	model;
	HymtDevice *device;
	HymtScheduler *scheduler;
	HymtAdapters *adapters;
} Parts;

static void
open_parts(Parts *parts, int max, int32_t max_rows)
{
	HymtDeviceOptions options = {.threads = 1, .max_context = 128, .max_rows = max_rows};
	HymtError	error;

	memset(&door, 0, sizeof door);
	door.most = max;
	ops = hymt_device_cpu;
	ops.submit = counting_submit;
	ops.poll = counting_poll;
	ops.load_adapter = counting_load;
	ops.unload_adapter = counting_unload;
	assert_true(hymt_model_open(&parts->model, BASE, NULL, &error));
	parts->device = ops.open(&parts->model, &options, &error);
	assert_non_null(parts->device);
	parts->scheduler = hymt_scheduler_open(&ops, parts->device, parts->model.config.vocab, NULL, &error);
	assert_non_null(parts->scheduler);
	parts->adapters = hymt_adapters_open(&ops, parts->device, &parts->model, parts->scheduler, max, &error);
	assert_non_null(parts->adapters);
}

static void
close_parts(Parts *parts)
{
	hymt_scheduler_close(parts->scheduler);
	hymt_adapters_close(parts->adapters);
	assert_int_equal(door.count, 0);
	ops.close(parts->device);
	hymt_model_close(&parts->model);
}

static bool
submit(Parts *parts, uint64_t id, const char *directory, int max_new, HymtError *error)
{
	static const int32_t prompt[] = {9, 8, 7};
	HymtSequenceRequest request = {
		.id = id, .prompt = prompt, .prompt_count = 1 + (int32_t) (id % 3), .max_new = max_new,
		.repetition_penalty = 1
	};

	return hymt_adapters_submit(parts->adapters, &request, directory, error);
}

/* The reference adapter once more, in a directory of its own. */
static void
make_adapter(char path[PATH_BYTES], const char *name)
{
	snprintf(path, PATH_BYTES, "%s", test_directory(name));
	copy_file(GOLDEN, path, "adapter_config.json");
	copy_file(GOLDEN, path, "adapter_model.safetensors");
}

/* --- requests that come and go ------------------------------------------------------------------------------------- */

#define DIRECTORIES 5
#define REQUESTS 400

static void
test_come_and_go(void **state)
{
	char		path[DIRECTORIES][PATH_BYTES];
	uint8_t		owed[REQUESTS + 1] = {0};
	uint64_t	next = 1;
	uint32_t	dice = 12345;
	int			answered = 0;
	int			cancelled = 0;
	Parts		parts;
	HymtError	error;
	bool		busy = true;

	(void) state;
	for (int i = 0; i < DIRECTORIES; i++)
	{
		char		name[32];

		snprintf(name, sizeof name, "come%d", i);
		make_adapter(path[i], name);
	}
	open_parts(&parts, 2, 16);
	while (busy || next <= REQUESTS)
	{
		HymtSequenceAnswer answer;
		const char *message;

		for (int i = 0; i < 6 && next <= REQUESTS; i++, next++)
		{
			dice = dice * 1664525u + 1013904223u;
			assert_true(submit(&parts, next, (dice >> 20) % 6 == 5 ? NULL : path[(dice >> 20) % 6], (int) (dice >> 16) % 9,
							   &error));
			owed[next] = 1;
		}
		dice = dice * 1664525u + 1013904223u;
		/* Any that is owed: waiting here, waiting there, or part of the step under way. */
		if ((dice >> 18) % 3 == 0 && owed[1 + (dice >> 16) % (next - 1)])
		{
			hymt_adapters_cancel(parts.adapters, 1 + (dice >> 16) % (next - 1));
			owed[1 + (dice >> 16) % (next - 1)] = 0;
			cancelled++;
		}
		busy = hymt_adapters_run(parts.adapters, (dice >> 24) % 2 == 0);
		while (hymt_adapters_answer(parts.adapters, &answer, &message))
		{
			assert_null(message);
			assert_int_equal(answer.failure, HYMT_FAILURE_NONE);
			assert_int_equal(owed[answer.id], 1);
			owed[answer.id] = 0;
			answered++;
		}
	}
	assert_int_equal(answered + cancelled, REQUESTS);
	assert_true(cancelled > 20 && door.loads > DIRECTORIES && door.mixed_plans > 5);
	close_parts(&parts);
}

static void
test_close_amid_work(void **state)
{
	char		path[2][PATH_BYTES];
	Parts		parts;
	HymtError	error;

	(void) state;
	make_adapter(path[0], "amid0");
	make_adapter(path[1], "amid1");
	open_parts(&parts, 1, 4);
	for (uint64_t id = 1; id <= 20; id++)
		assert_true(submit(&parts, id, path[id % 2], 50, &error));
	assert_true(hymt_adapters_run(parts.adapters, true));
	assert_true(hymt_adapters_run(parts.adapters, true));
	close_parts(&parts);
}

/* Runs a request to its end; returns the id of its adapter, or 0 with the message. */
static int32_t
run_one(Parts *parts, const char *directory, HymtError *error)
{
	HymtSequenceAnswer answer;
	const char *message;
	int32_t		id;

	if (!submit(parts, 1, directory, 1, error))
		return 0;
	while (hymt_adapters_run(parts->adapters, true))
		;
	assert_true(hymt_adapters_answer(parts->adapters, &answer, &message));
	id = answer.adapter;
	assert_false(hymt_adapters_answer(parts->adapters, &answer, &message));
	return id;
}

/* What is kept by id must stay true: contents that come back have their id, others a new one. */
static void
test_ids(void **state)
{
	char		path[2][PATH_BYTES];
	char	   *config;
	size_t		length;
	int32_t		first;
	int32_t		second;
	Parts		parts;
	HymtError	error;
	HymtSequenceAnswer answer;
	const char *message;

	(void) state;
	make_adapter(path[0], "ids0");
	make_adapter(path[1], "ids1");
	open_parts(&parts, 1, 4);
	first = run_one(&parts, path[0], &error);
	second = run_one(&parts, path[1], &error);
	assert_true(first > 0 && second > 0 && first != second);
	assert_int_equal(run_one(&parts, path[0], &error), first);
	assert_int_equal(door.loads, 3);
	assert_int_equal(run_one(&parts, path[0], &error), first);
	assert_int_equal(door.loads, 3);

	/* The same contents in new files are the same adapter, also while it is in use. */
	assert_true(submit(&parts, 1, path[0], 5, &error));
	copy_file(GOLDEN, path[0], "adapter_model.safetensors");
	assert_true(submit(&parts, 2, path[0], 5, &error));
	while (hymt_adapters_run(parts.adapters, true))
		;
	while (hymt_adapters_answer(parts.adapters, &answer, &message))
		assert_int_equal(answer.adapter, first);
	assert_int_equal(door.loads, 3);

	/* A broken one must not cost the loaded one its place. */
	config = read_whole(path[1], "adapter_config.json", &length);
	write_text(path[1], "adapter_config.json", "{}");
	assert_int_equal(run_one(&parts, path[1], &error), 0);
	assert_int_equal(error.failure, HYMT_FAILURE_ADAPTER);
	assert_non_null(strstr(error.message, path[1]));
	assert_int_equal(door.count, 1);
	assert_int_equal(run_one(&parts, path[0], &error), first);
	assert_int_equal(door.loads, 3);

	config[length - 1] = ' ';
	strcpy(strstr(config, "\"base_model"), "\"x\": 1}");
	write_text(path[1], "adapter_config.json", config);
	free(config);
	assert_true(run_one(&parts, path[1], &error) > second);
	assert_string_equal(hymt_adapters_used(parts.adapters, second).directory, path[1]);
	assert_string_not_equal(hymt_adapters_used(parts.adapters, second).fingerprint,
							hymt_adapters_used(parts.adapters, door.last_id).fingerprint);
	close_parts(&parts);
}

/* A request that had to wait for its adapter, which cannot be used: told with its answer, and others go on. */
static void
test_late_failure(void **state)
{
	char		path[PATH_BYTES];
	bool		seen[4] = {false};
	Parts		parts;
	HymtError	error;
	HymtSequenceAnswer answer;
	const char *message;

	(void) state;
	make_adapter(path, "late");
	open_parts(&parts, 1, 4);
	assert_true(submit(&parts, 1, path, 5, &error));
	assert_true(submit(&parts, 2, "/no/such/adapter", 5, &error));
	assert_true(submit(&parts, 3, path, 200, &error));	/* waits behind it, and exceeds the context */
	while (hymt_adapters_run(parts.adapters, true))
		;
	while (hymt_adapters_answer(parts.adapters, &answer, &message))
	{
		assert_in_range(answer.id, 1, 3);
		assert_false(seen[answer.id]);
		seen[answer.id] = true;
		if (answer.id == 2)
		{
			assert_int_equal(answer.failure, HYMT_FAILURE_ADAPTER);
			assert_non_null(strstr(message, "/no/such/adapter"));
		}
		else if (answer.id == 3)
			assert_int_equal(answer.failure, HYMT_FAILURE_TOO_LONG);
		else
			assert_int_equal(answer.failure, HYMT_FAILURE_NONE);
	}
	assert_true(seen[1] && seen[2] && seen[3]);
	close_parts(&parts);
}

/* --- rows of several adapters in one plan -------------------------------------------------------------------------- */

#define STEPS 6
#define SEQUENCES 5

typedef struct Track
{
	int32_t		adapter;
	int32_t		pages[2];
	int32_t		tokens[STEPS];
	float		logits[320];	/* of the last step */
} Track;

/* Decodes STEPS tokens of some sequences at once, each token taken from the plan before where `ahead`. */
static void
decode(HymtDevice *device, Track *tracks, int count, bool ahead)
{
	static uint64_t number;
	HymtRow		rows[2][SEQUENCES];
	HymtPlanSequence sequences[2][SEQUENCES];
	HymtSample	samples[2][SEQUENCES];
	HymtPlan	plans[2];
	HymtStepResult result;

	for (int step = 0; step <= STEPS; step++)
	{
		int			now = step % 2;

		if (step < STEPS)
		{
			plans[now] = (HymtPlan) {
				.step = ++number, .rows = rows[now], .row_count = count, .sequences = sequences[now],
				.sequence_count = count, .samples = samples[now], .sample_count = count
			};
			for (int i = 0; i < count; i++)
			{
				int32_t		token = step == 0 ? 40 : ahead ? HYMT_TOKEN_FROM_PREVIOUS : tracks[i].tokens[step - 1];

				rows[now][i] = (HymtRow) {.token = token, .previous_row = i, .position = step, .sequence = i};
				sequences[now][i] = (HymtPlanSequence) {tracks[i].pages, 2, tracks[i].adapter};
				samples[now][i] = (HymtSample) {.row = i, .flags = HYMT_SAMPLE_TOKEN | HYMT_SAMPLE_LOGITS, .penalty = 1};
			}
			hymt_device_cpu.submit(device, &plans[now]);
		}
		if (step < STEPS && ahead && step == 0)
			continue;
		if (step == STEPS && !ahead)
			break;
		assert_true(hymt_device_cpu.poll(device, true, &result));
		for (int i = 0; i < count; i++)
		{
			tracks[i].tokens[ahead ? step - 1 : step] = result.tokens[i];
			memcpy(tracks[i].logits, result.logits + (size_t) i * 320, sizeof tracks[i].logits);
		}
	}
}

static void
test_mixed_plans(void **state)
{
	static const int32_t used[SEQUENCES] = {7, 0, 3, 7, 3};	/* the door's ids, in no order */
	HymtDeviceOptions options = {.threads = 2, .max_context = 32, .max_rows = 8};
	HymtAdapter golden;
	HymtAdapter other;
	HymtModel	model;
	HymtDevice *device;
	HymtError	error;
	Track		alone[SEQUENCES];
	char		path[PATH_BYTES];
	char	   *config;
	size_t		length;

	(void) state;
	make_adapter(path, "mixed");
	config = read_whole(path, "adapter_config.json", &length);
	*strstr(config, "8,") = '3';	/* lora_alpha */
	write_text(path, "adapter_config.json", config);
	free(config);
	assert_true(hymt_model_open(&model, BASE, NULL, &error));
	assert_true(hymt_adapter_open(&golden, &model, GOLDEN, &error));
	assert_true(hymt_adapter_open(&other, &model, path, &error));
	device = hymt_device_cpu.open(&model, &options, &error);
	assert_non_null(device);
	assert_true(hymt_device_cpu.load_adapter(device, 7, &golden, &error));
	assert_true(hymt_device_cpu.load_adapter(device, 3, &other, &error));
	memset(alone, 0, sizeof alone);
	for (int i = 0; i < SEQUENCES; i++)
	{
		alone[i].adapter = used[i];
		decode(device, &alone[i], 1, false);
	}
	assert_memory_equal(alone[0].logits, alone[3].logits, sizeof alone[0].logits);
	assert_memory_not_equal(alone[0].logits, alone[1].logits, sizeof alone[0].logits);
	assert_memory_not_equal(alone[0].logits, alone[2].logits, sizeof alone[0].logits);
	for (int ahead = 0; ahead < 2; ahead++)
	{
		Track		mixed[SEQUENCES];

		memset(mixed, 0, sizeof mixed);
		for (int i = 0; i < SEQUENCES; i++)
		{
			mixed[i].adapter = used[i];
			mixed[i].pages[0] = i;
		}
		decode(device, mixed, SEQUENCES, ahead == 1);
		for (int i = 0; i < SEQUENCES; i++)
		{
			assert_memory_equal(mixed[i].tokens, alone[i].tokens, sizeof alone[i].tokens);
			assert_memory_equal(mixed[i].logits, alone[i].logits, sizeof alone[i].logits);
		}
	}
	hymt_device_cpu.unload_adapter(device, 7);
	for (int i = 0; i < HYMT_DEVICE_ADAPTERS - 1; i++)
		assert_true(hymt_device_cpu.load_adapter(device, 100 + i, &golden, &error));
	assert_false(hymt_device_cpu.load_adapter(device, 7, &golden, &error));
	assert_int_equal(error.failure, HYMT_FAILURE_NO_MEMORY);
	hymt_device_cpu.close(device);
	hymt_adapter_close(&golden);
	hymt_adapter_close(&other);
	hymt_model_close(&model);
}

/* --- lists --------------------------------------------------------------------------------------------------------- */

static void
test_list(void **state)
{
	static const struct
	{
		const char *text;
		const char *items;		/* "source>target|path;" each; "!" where it goes wrong */
	}			cases[] = {
		{"", ""}, {" \t", ""}, {"de=/x", "de|/x;"}, {" de = /x y/z , ", "de|/x y/z;"},
		{"zh-CN>pt_BR=a=b,fil=c", "zh>pt|a=b;tl|c;"}, {"zh > de=/x", "zh>de|/x;"}, {"de=/x,,", "de|/x;!"},
		{"de", "!"}, {"=", "!"}, {"de=", "!"}, {"de= ,", "!"}, {">de=x", "!"}, {"de>=x", "!"}, {"a>b>c=x", "!"},
		{"fr=a,xx=b", "fr|a;!"}, {"@legal=/x,@A-1.b_ = y", "@legal|/x;@A-1.b_|y;"}, {"@=x", "!"}, {"@a b=x", "!"},
		{"@de>fr=x", "!"}, {"@1234567890123456789012345678901=x", "@1234567890123456789012345678901|x;"},
		{"@12345678901234567890123456789012=x", "!"}, {"@ü=x", "!"},
	};

	(void) state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
	{
		const char *at = cases[i].text;
		const char *fault = NULL;
		char		found[256] = "";
		HymtAdapterItem item;
		HymtAdapterListStatus status;

		while ((status = hymt_adapter_list_next(&at, &item, &fault)) == HYMT_ADAPTER_LIST_ITEM)
		{
			char		key[HYMT_ADAPTER_KEY_MAX];

			hymt_adapter_key_text(&item, key);
			snprintf(found + strlen(found), sizeof found - strlen(found), "%s|%.*s;", key, (int) item.path_length,
					 item.path);
		}
		if (status == HYMT_ADAPTER_LIST_BAD)
		{
			strcat(found, "!");
			assert_non_null(fault);
		}
		assert_string_equal(found, cases[i].items);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_come_and_go),
		cmocka_unit_test(test_close_amid_work),
		cmocka_unit_test(test_ids),
		cmocka_unit_test(test_late_failure),
		cmocka_unit_test(test_mixed_plans),
		cmocka_unit_test(test_list),
	};

	return cmocka_run_group_tests(tests, test_set_up, test_tear_down);
}
