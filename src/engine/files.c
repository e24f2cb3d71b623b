/*
 * files.c: opening and reading the small files of a model directory.
 *
 * Runs in the engine program. Everything read is untrusted: sizes are bounded before memory is taken. A pipe or device
 * in place of a file is refused, never waited for.
 */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

char *
hymt_path_join(const char *directory, const char *file)
{
	size_t		length = strlen(directory);
	size_t		size = length + strlen(file) + 2;
	char	   *path = malloc(size);

	if (path != NULL)
		snprintf(path, size, "%s%s%s", directory, length > 0 && directory[length - 1] == '/' ? "" : "/", file);
	return path;
}

const char *
hymt_path_last(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

bool
hymt_fail_errno(HymtError *error, int number, const char *path)
{
	HymtFailure failure = HYMT_FAILURE_MODEL_UNREADABLE;

	if (number == ENOENT || number == ENOTDIR)
		failure = HYMT_FAILURE_MODEL_MISSING;
	else if (number == ENOMEM)
		failure = HYMT_FAILURE_NO_MEMORY;
	return hymt_fail(error, failure, "%s: %s", path, strerror(number));
}

/* A link that leads nowhere is no absent file: half a download must not count as a model without that file. */
static bool
fail_open(HymtError *error, int number, const char *path)
{
	struct stat status;

	if (number == ENOENT && lstat(path, &status) == 0)
		return hymt_fail(error, HYMT_FAILURE_MODEL_UNREADABLE, "%s: is a link to a file that does not exist", path);
	return hymt_fail_errno(error, number, path);
}

int
hymt_file_open(const char *path, uint64_t *size, HymtError *error)
{
	struct stat status;
	int			fd;

	/* O_NONBLOCK: opening a pipe that nobody writes to would wait for ever. It means nothing for regular files. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
	{
		fail_open(error, errno, path);
		return -1;
	}
	if (fstat(fd, &status) != 0)
		hymt_fail_errno(error, errno, path);
	else if (!S_ISREG(status.st_mode))
		hymt_fail(error, HYMT_FAILURE_MODEL_UNREADABLE, "%s: %s", path,
				  S_ISDIR(status.st_mode) ? "is a directory, not a file" : "is not a regular file");
	else
	{
		*size = (uint64_t) status.st_size;
		return fd;
	}
	close(fd);
	return -1;
}

const unsigned char *
hymt_file_map(const char *path, size_t minimum, const char *kind, uint64_t *size, HymtError *error)
{
	int			fd = hymt_file_open(path, size, error);
	void	   *map;
	int			number;

	if (fd < 0)
		return NULL;
	if (*size < minimum || *size > SIZE_MAX)
	{
		close(fd);
		hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: %llu bytes cannot be a %s file", path,
				  (unsigned long long) *size, kind);
		return NULL;
	}
	map = mmap(NULL, (size_t) *size, PROT_READ, MAP_SHARED, fd, 0);
	number = errno;
	close(fd);					/* the mapping stays */
	if (map == MAP_FAILED)
	{
		hymt_fail_errno(error, number, path);
		return NULL;
	}
	return map;
}

/* Read `length` bytes; a file that ends earlier has been truncated since its size was asked for. */
static bool
read_fully(int fd, char *data, size_t length, const char *path, HymtError *error)
{
	size_t		done = 0;

	while (done < length)
	{
		ssize_t		got = read(fd, data + done, length - done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return hymt_fail_errno(error, errno, path);
		if (got == 0)
			return hymt_fail(error, HYMT_FAILURE_MODEL_UNREADABLE, "%s: became shorter while it was read", path);
		done += (size_t) got;
	}
	return true;
}

static bool
read_path(HymtFileBytes *bytes, const char *path, size_t limit, HymtError *error)
{
	uint64_t	size = 0;
	int			fd = hymt_file_open(path, &size, error);
	bool		ok = false;

	if (fd < 0)
		return false;
	if (size > limit)
		hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: %llu bytes are more than the %zu that such a file may have",
				  path, (unsigned long long) size, limit);
	else if ((bytes->data = malloc(size + 1)) == NULL)
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", path);
	else
	{
		bytes->length = size;
		bytes->data[size] = '\0';
		ok = read_fully(fd, bytes->data, size, path, error);
		if (!ok)
			hymt_file_free(bytes);
	}
	close(fd);
	return ok;
}

bool
hymt_file_read(HymtFileBytes *bytes, const char *directory, const char *file, size_t limit, bool optional,
			   HymtError *error)
{
	char	   *path = hymt_path_join(directory, file);
	bool		ok;

	memset(bytes, 0, sizeof *bytes);
	if (path == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", file);
	ok = read_path(bytes, path, limit, error);
	free(path);
	return ok || (optional && error->failure == HYMT_FAILURE_MODEL_MISSING);
}

void
hymt_file_free(HymtFileBytes *bytes)
{
	free(bytes->data);
	memset(bytes, 0, sizeof *bytes);
}

json_t *
hymt_json_object(const char *data, size_t length, const char *label, HymtError *error)
{
	json_error_t problem;
	json_t	   *json = json_loadb(data, length, JSON_REJECT_DUPLICATES, &problem);

	if (json == NULL)
	{
		HymtFailure failure = json_error_code(&problem) == json_error_out_of_memory ? HYMT_FAILURE_NO_MEMORY
			: HYMT_FAILURE_MODEL_BROKEN;

		hymt_fail(error, failure, "%s: line %d: %s", label, problem.line, problem.text);
		return NULL;
	}
	if (!json_is_object(json))
	{
		json_decref(json);
		hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: must hold a JSON object", label);
		return NULL;
	}
	return json;
}
