/*
 * locate.c: which files the path of a model means.
 *
 * Runs in the engine program. Owns nothing. The path comes from a setting or the command line; what it leads to is
 * untrusted, so names are only compared, never interpreted.
 */
#include "locate.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "files.h"

#define LISTED 3				/* files that a message names */

static bool
out_of_memory(const char *path, HymtError *error)
{
	return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "%s: out of memory", path);
}

/* Unless it is certain that there is no such entry, opening it will tell. */
static bool
exists(const char *directory, const char *name)
{
	char	   *path = hymt_path_join(directory, name);
	struct stat status;
	bool		found = path == NULL || lstat(path, &status) == 0 || errno != ENOENT;

	free(path);
	return found;
}

static bool
is_gguf_name(const char *name)
{
	size_t		length = strlen(name);

	return length > 5 && name[0] != '.' && strcasecmp(name + length - 5, ".gguf") == 0;
}

/* The GGUF files of a directory: how many, the path of one of them, some names for a message. */
static bool
list_gguf(const char *directory, int *count, char **path, char *names, size_t size, HymtError *error)
{
	DIR		   *stream = opendir(directory);
	struct dirent *entry;

	*count = 0;
	*path = NULL;
	names[0] = '\0';
	/* the first file that is opened in it will say why it cannot be read */
	if (stream == NULL)
		return true;
	while ((entry = readdir(stream)) != NULL)
	{
		if (!is_gguf_name(entry->d_name))
			continue;
		if (*path == NULL && (*path = hymt_path_join(directory, entry->d_name)) == NULL)
		{
			closedir(stream);
			return out_of_memory(directory, error);
		}
		if (*count < LISTED)
			snprintf(names + strlen(names), size - strlen(names), "%s%.60s", *count > 0 ? ", " : "", entry->d_name);
		++*count;
	}
	closedir(stream);
	return true;
}

static bool
locate_in_directory(HymtLocation *location, const char *directory, HymtError *error)
{
	char		names[LISTED * 64];
	int			count;

	location->directory = strdup(directory);
	if (location->directory == NULL)
		return out_of_memory(directory, error);
	if (exists(directory, "model.safetensors") || exists(directory, "model.safetensors.index.json"))
		return true;
	if (!list_gguf(directory, &count, &location->gguf, names, sizeof names, error))
		return false;
	if (count > 1)
		return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED, "%s: holds several GGUF files (%s%s): name one of them",
						 directory, names, count > LISTED ? ", ..." : "");
	return true;
}

static bool
locate_file(HymtLocation *location, const char *path, HymtError *error)
{
	const char *slash = strrchr(path, '/');

	location->gguf = strdup(path);
	location->directory = slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t) (slash - path));
	return (location->gguf != NULL && location->directory != NULL) || out_of_memory(path, error);
}

bool
hymt_model_locate(HymtLocation *location, const char *path, HymtError *error)
{
	struct stat status;
	bool		ok;

	memset(location, 0, sizeof *location);
	if (stat(path, &status) != 0 && errno != ENOENT && errno != ENOTDIR)
		return hymt_fail_errno(error, errno, path);
	if (stat(path, &status) != 0 || (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)))
		return hymt_fail(error, HYMT_FAILURE_MODEL_MISSING, "%s: there is no such model directory or GGUF file", path);
	ok = S_ISDIR(status.st_mode) ? locate_in_directory(location, path, error) : locate_file(location, path, error);
	if (!ok)
		hymt_location_free(location);
	return ok;
}

void
hymt_location_free(HymtLocation *location)
{
	free(location->directory);
	free(location->gguf);
	memset(location, 0, sizeof *location);
}
