/*
 * machine.c: reads the limits that the system sets to this process. Engine process, any thread; keeps no state.
 *
 * A limit that cannot be read is no limit. Control groups, version 2 and version 1 (a mixed system has both), limit a
 * process through its own group and every group above it, so each way up to the root is walked.
 */
#define _GNU_SOURCE				/* sched_getaffinity */

#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "machine.h"
#include "shortage.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

/* Called with the directory of each group that this process is in. */
typedef void (*VisitGroup) (const char *directory, bool version2, void *context);

/* Reads a small file as text; false when there is none. */
static bool
read_file(const char *directory, const char *name, char *text, size_t size)
{
	char		path[PATH_MAX];
	FILE	   *file;
	size_t		length;

	if ((size_t) snprintf(path, sizeof(path), "%s/%s", directory, name) >= sizeof(path))
		return false;
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	length = fread(text, 1, size - 1, file);
	fclose(file);
	text[length] = '\0';
	return length > 0;
}

/* A file that holds one number; false also for "max". */
static bool
read_number(const char *directory, const char *name, int64_t *number)
{
	char		text[64];

	return read_file(directory, name, text, sizeof(text)) && sscanf(text, "%" SCNd64, number) == 1;
}

/* Visits a group and those above it. Inside a container the path may not exist below the mount; its root then does. */
static void
visit_upwards(const char *mount, const char *group, bool version2, VisitGroup visit, void *context)
{
	char		directory[PATH_MAX];
	size_t		root = strlen(mount);

	if ((size_t) snprintf(directory, sizeof(directory), "%s%s", mount, group) >= sizeof(directory))
		return;
	for (;;)
	{
		char	   *slash;

		visit(directory, version2, context);
		slash = strrchr(directory, '/');
		if (slash == NULL || (size_t) (slash - directory) < root)
			return;
		*slash = '\0';
	}
}

static bool
list_has(char *list, const char *item)
{
	char	   *state;

	for (char *entry = strtok_r(list, ",", &state); entry != NULL; entry = strtok_r(NULL, ",", &state))
	{
		if (strcmp(entry, item) == 0)
			return true;
	}
	return false;
}

/* controller: its name in version 1. */
static void
visit_groups(const char *controller, VisitGroup visit, void *context)
{
	FILE	   *file = fopen("/proc/self/cgroup", "re");
	char		line[PATH_MAX];

	if (file == NULL)
		return;
	while (fgets(line, sizeof(line), file) != NULL)
	{
		/* number:controllers:path; version 2 is "0::path" */
		char	   *controllers = strchr(line, ':');
		char	   *path = controllers ? strchr(controllers + 1, ':') : NULL;

		if (path == NULL)
			continue;
		*controllers++ = '\0';
		*path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		if (*controllers == '\0')
		{
			visit_upwards(CGROUP_ROOT, path, true, visit, context);
			visit_upwards(CGROUP_ROOT "/unified", path, true, visit, context);
		}
		else if (list_has(controllers, controller))
		{
			char		mount[64];

			snprintf(mount, sizeof(mount), CGROUP_ROOT "/%s", controller);
			visit_upwards(mount, path, false, visit, context);
		}
	}
	fclose(file);
}

static void
limit_processors(const char *directory, bool version2, void *context)
{
	int		   *processors = context;
	int64_t		quota = 0;
	int64_t		period = 0;

	if (version2)
	{
		char		text[64];

		if (!read_file(directory, "cpu.max", text, sizeof(text)) ||
			sscanf(text, "%" SCNd64 " %" SCNd64, &quota, &period) != 2)
			return;
	}
	else if (!read_number(directory, "cpu.cfs_quota_us", &quota) ||
			 !read_number(directory, "cpu.cfs_period_us", &period))
		return;
	if (quota <= 0 || period <= 0)
		return;
	/* Two and a half processors' worth of time keep three threads busy most of the time. */
	if ((quota - 1) / period + 1 < *processors)
		*processors = (int) ((quota - 1) / period + 1);
}

int
hymt_machine_processors(void)
{
	cpu_set_t	mask;
	int			processors = 0;

	if (sched_getaffinity(0, sizeof(mask), &mask) == 0)
		processors = CPU_COUNT(&mask);
	if (processors < 1)			/* more processors than the mask has bits */
		processors = (int) sysconf(_SC_NPROCESSORS_ONLN);
	if (processors < 1)
		processors = 1;
	visit_groups("cpu", limit_processors, &processors);
	return processors;
}

/* Cached files (a mapped model among them) count as used memory of a group, but make room when it is wanted. */
static int64_t
cached_files(const char *directory, bool version2)
{
	static const char *const names[2][2] = {
		{"total_active_file", "total_inactive_file"},
		{"active_file", "inactive_file"},
	};
	char		text[8192];
	char	   *state;
	int64_t		cached = 0;

	if (!read_file(directory, "memory.stat", text, sizeof(text)))
		return 0;
	for (char *line = strtok_r(text, "\n", &state); line != NULL; line = strtok_r(NULL, "\n", &state))
	{
		char		name[64];
		int64_t		bytes;

		if (sscanf(line, "%63s %" SCNd64, name, &bytes) == 2 &&
			(strcmp(name, names[version2][0]) == 0 || strcmp(name, names[version2][1]) == 0))
			cached += bytes;
	}
	return cached;
}

static void
limit_memory(const char *directory, bool version2, void *context)
{
	int64_t    *available = context;
	int64_t		limit;
	int64_t		used;

	if (!read_number(directory, version2 ? "memory.max" : "memory.limit_in_bytes", &limit) ||
		!read_number(directory, version2 ? "memory.current" : "memory.usage_in_bytes", &used))
		return;
	used -= cached_files(directory, version2);
	if (limit - used < *available)
		*available = limit > used ? limit - used : 0;
}

int64_t
hymt_machine_memory(void)
{
	FILE	   *file = fopen("/proc/meminfo", "re");
	int64_t		available = INT64_MAX;
	char		line[256];

	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
	{
		int64_t		kilobytes;

		if (sscanf(line, "MemAvailable: %" SCNd64, &kilobytes) == 1)
			available = kilobytes * 1024;
	}
	if (file != NULL)
		fclose(file);
	visit_groups("memory", limit_memory, &available);
	return available;
}

void *
hymt_lazy_alloc(size_t bytes)
{
	void	   *memory;

	if (hymt_shortage_fails())
		return NULL;
	memory = mmap(NULL, bytes > 0 ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
				  0);
	return memory == MAP_FAILED ? NULL : memory;
}

void
hymt_lazy_free(void *memory, size_t bytes)
{
	if (memory != NULL)
		munmap(memory, bytes > 0 ? bytes : 1);
}
