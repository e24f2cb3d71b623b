/*
 * family.c: what a model is called, which languages it knows, and which family of prompts it was trained on.
 *
 * Runs in the engine program. Owns nothing. The weights do not tell the family (HY-MT1.5 and Hy-MT2 have the same
 * shapes and tokenizer), and the wrong prompts give worse answers without any sign of it. So it is taken from, in this
 * order: hymt.json; the caller's wish (a setting); a GGUF file's general.name; the README's base_model, then its title;
 * the names of the GGUF file and the folder. What decided is kept in words, to be logged and shown.
 */
#define _GNU_SOURCE				/* strcasestr */

#include "model_parts.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "../protocol/languages.h"
#include "gguf.h"
#include "options.h"
#include "prompts.h"
#include "utf8.h"

#define README_LIMIT (1024 * 1024)
#define MAX_NAME 100			/* bytes of a model's name */
#define LINE_BYTES 256

static const char *const family_names[] = {
	[HYMT_FAMILY_UNKNOWN] = "unknown",
	[HYMT_FAMILY_HUNYUAN_MT] = "hunyuan-mt",
	[HYMT_FAMILY_HY_MT15] = "hy-mt1.5",
	[HYMT_FAMILY_HY_MT2] = "hy-mt2",
	[HYMT_FAMILY_ALMA] = "alma",
	[HYMT_FAMILY_TOWER] = "tower-instruct",
	[HYMT_FAMILY_TEMPLATES] = "templates",
};

#define FAMILY_COUNT ((int) (sizeof family_names / sizeof family_names[0]))

const char *
hymt_family_name(HymtFamily family)
{
	return (unsigned) family < (unsigned) FAMILY_COUNT ? family_names[family] : family_names[HYMT_FAMILY_UNKNOWN];
}

HymtFamily
hymt_family_find(const char *name)
{
	for (int i = HYMT_FAMILY_UNKNOWN + 1; i < HYMT_FAMILY_TEMPLATES; i++)
		if (strcasecmp(name, family_names[i]) == 0)
			return (HymtFamily) i;
	return HYMT_FAMILY_UNKNOWN;
}

/* --- a family's name inside free text ----------------------------------------------------------------------------- */

static bool
is_separator(char c)
{
	return c == '-' || c == '_' || c == ' ' || c == '.';
}

/* Skips `word`, in any case, and one separator after it. NULL when it does not stand there. */
static const char *
skip_word(const char *text, const char *word)
{
	size_t		length = strlen(word);

	if (strncasecmp(text, word, length) != 0)
		return NULL;
	return text + length + (is_separator(text[length]) ? 1 : 0);
}

/* Whether `version` stands there as a whole: "2-7B" is version 2, "2B" and "27" are not. */
static bool
has_version(const char *text, const char *version)
{
	size_t		length = strlen(version);

	return strncmp(text, version, length) == 0 && !isalnum((unsigned char) text[length]) &&
		!(text[length] == '.' && isdigit((unsigned char) text[length + 1]));
}

/* Families of Llama models. X-ALMA, and what ALMA was made of, have other prompts or none. */
static HymtFamily
llama_family_at(const char *text, const char *start)
{
	const char *rest = skip_word(text, "alma");
	bool		other = text - start >= 2 && tolower((unsigned char) text[-2]) == 'x' && is_separator(text[-1]);

	if (rest != NULL && (!isalnum((unsigned char) text[4]) || isdigit((unsigned char) text[4])))
		return other || strcasestr(rest, "pretrain") != NULL ? HYMT_FAMILY_UNKNOWN : HYMT_FAMILY_ALMA;
	rest = skip_word(text, "tower");
	return rest != NULL && skip_word(rest, "instruct") != NULL ? HYMT_FAMILY_TOWER : HYMT_FAMILY_UNKNOWN;
}

/* The family of Hunyuan's models whose name begins exactly at `text`. */
static HymtFamily
family_at(const char *text)
{
	const char *rest = skip_word(text, "hunyuan");
	bool		long_name = rest != NULL;

	if (rest == NULL)
		rest = skip_word(text, "hy");
	if (rest != NULL)
		rest = skip_word(rest, "mt");
	if (rest == NULL)
		return HYMT_FAMILY_UNKNOWN;
	if (has_version(rest, "2") || has_version(rest, "2.0"))
		return HYMT_FAMILY_HY_MT2;
	if (has_version(rest, "1.5") || has_version(rest, "1_5") || has_version(rest, "15"))
		return HYMT_FAMILY_HY_MT15;
	/* The first models bear no version, and only the long name. Chimera merges translations: other prompts. */
	if (!long_name || (isalnum((unsigned char) *rest) && !is_separator(rest[-1])) ||
		strncasecmp(rest, "chimera", 7) == 0)
		return HYMT_FAMILY_UNKNOWN;
	return HYMT_FAMILY_HUNYUAN_MT;
}

/* The one family of this architecture that a text names; UNKNOWN when it names none or several. */
static HymtFamily
family_in(const char *text, HymtArchitecture architecture)
{
	HymtFamily	found = HYMT_FAMILY_UNKNOWN;

	for (const char *at = text; *at != '\0'; at++)
	{
		HymtFamily	family = HYMT_FAMILY_UNKNOWN;

		if (at == text || !isalnum((unsigned char) at[-1]))
			family = architecture == HYMT_ARCHITECTURE_LLAMA ? llama_family_at(at, text) : family_at(at);
		if (family == HYMT_FAMILY_UNKNOWN)
			continue;
		if (found != HYMT_FAMILY_UNKNOWN && found != family)
			return HYMT_FAMILY_UNKNOWN;
		found = family;
	}
	return found;
}

/* --- README.md ---------------------------------------------------------------------------------------------------- */

/* What a README tells: the values of its front matter's base_model, and its first heading. Empty when absent. */
typedef struct Readme
{
	char		base_model[LINE_BYTES];
	char		title[LINE_BYTES];
} Readme;

/* Copy the next line of *text without surrounding blanks, cut to the buffer; false at the end. */
static bool
next_line(const char **text, char line[LINE_BYTES])
{
	size_t		length = strcspn(*text, "\n");
	const char *start = *text;
	const char *end = start + length;

	if (*start == '\0')
		return false;
	*text = *end == '\0' ? end : end + 1;
	while (start < end && isspace((unsigned char) *start))
		start++;
	while (end > start && isspace((unsigned char) end[-1]))
		end--;
	snprintf(line, LINE_BYTES, "%.*s", (int) (end - start < LINE_BYTES ? end - start : LINE_BYTES - 1), start);
	return true;
}

/* The lines between the two "---": "base_model: X", or "base_model:" and lines "- X", of which the last one counts. */
static void
read_front_matter(Readme *readme, const char **text)
{
	char		line[LINE_BYTES];
	const char *after = *text;
	bool		inside_list = false;

	if (!next_line(&after, line) || strcmp(line, "---") != 0)
		return;
	while (next_line(&after, line) && strcmp(line, "---") != 0)
	{
		if (strncmp(line, "base_model:", 11) == 0)
		{
			const char *value = line + 11 + strspn(line + 11, " \t");

			inside_list = *value == '\0';
			snprintf(readme->base_model, LINE_BYTES, "%s", value);
		}
		else if (inside_list && line[0] == '-')
			snprintf(readme->base_model, LINE_BYTES, "%s", line + 1 + strspn(line + 1, " \t"));
		else
			inside_list = false;
	}
	*text = after;
}

/* A README that cannot be read tells nothing: it is only a hint. */
static void
read_readme(Readme *readme, const char *directory)
{
	HymtFileBytes bytes;
	HymtError	ignored;
	char		line[LINE_BYTES];
	const char *text;

	memset(readme, 0, sizeof *readme);
	if (!hymt_file_read(&bytes, directory, "README.md", README_LIMIT, true, &ignored) || bytes.data == NULL)
		return;
	text = bytes.data;
	read_front_matter(readme, &text);
	while (readme->title[0] == '\0' && next_line(&text, line))
		if (strncmp(line, "# ", 2) == 0)
			snprintf(readme->title, LINE_BYTES, "%s", line + 2 + strspn(line + 2, " "));
	hymt_file_free(&bytes);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

/* A name is shown in views and logs: printable, valid UTF-8, not long. */
static bool
presentable(const char *name)
{
	size_t		length = strlen(name);
	json_t	   *string;

	if (length == 0 || length > MAX_NAME)
		return false;
	for (size_t i = 0; i < length; i++)
		if (hymt_utf8_control(name + i) > 0)
			return false;
	string = json_stringn(name, length);	/* fails when it is not valid UTF-8 */
	json_decref(string);
	return string != NULL;
}

/*
 * The folder's own name. In a Hugging Face cache the folder is named after a revision, and the model's name stands two
 * levels higher: models--ORGANISATION--NAME/snapshots/REVISION.
 */
static void
folder_name(char name[LINE_BYTES], const char *directory)
{
	char	   *path = realpath(directory, NULL);
	char	   *slash = path == NULL ? NULL : strrchr(path, '/');
	char	   *last;

	name[0] = '\0';
	if (slash != NULL)
	{
		snprintf(name, LINE_BYTES, "%s", slash + 1);
		*slash = '\0';
		slash = strrchr(path, '/');
		if (slash != NULL && strcmp(slash + 1, "snapshots") == 0)
		{
			*slash = '\0';
			last = strrchr(path, '/') == NULL ? path : strrchr(path, '/') + 1;
			for (char *dashes = last; (dashes = strstr(dashes, "--")) != NULL;)
				last = dashes += 2;
			snprintf(name, LINE_BYTES, "%s", last);
		}
	}
	free(path);
}

/* All names that a model's files have. Empty when absent. */
typedef struct Names
{
	char		gguf_name[LINE_BYTES];	/* general.name */
	Readme		readme;
	char		file[LINE_BYTES];	/* of the GGUF file */
	char		folder[LINE_BYTES];
} Names;

static void
read_names(Names *names, const HymtModel *model)
{
	const HymtGgufValue *value = NULL;
	HymtJsonText text = {"", 0};

	memset(names, 0, sizeof *names);
	read_readme(&names->readme, model->directory);
	folder_name(names->folder, model->directory);
	if (model->gguf == NULL)
		return;
	snprintf(names->file, sizeof names->file, "%s", hymt_path_last(model->gguf));
	value = hymt_gguf_value(hymt_stored_gguf(model->files), "general.name");
	if (value != NULL && hymt_gguf_text(value, &text))
		snprintf(names->gguf_name, sizeof names->gguf_name, "%.*s",
				 (int) (text.length < LINE_BYTES ? text.length : LINE_BYTES - 1), text.data);
}

/* Replace a malloc'ed string. */
static bool
set_string(char **string, const char *value, HymtError *error)
{
	free(*string);
	*string = strdup(value);
	return *string != NULL || hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
}

static bool
set_family(HymtModel *model, HymtFamily family, const char *what, const char *detail, HymtError *error)
{
	char		reason[2 * LINE_BYTES];

	model->family = family;
	snprintf(reason, sizeof reason, "%s%s", what, presentable(detail) ? detail : "");
	return set_string(&model->family_reason, reason, error);
}

/* --- hymt.json ---------------------------------------------------------------------------------------------------- */

static bool
broken(HymtError *error, const HymtModel *model, const char *what)
{
	return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s/hymt.json: %s", model->directory, what);
}

/* Append a code to the model's list, which has room for it, unless it is there already. */
static void
append_language(char *list, const char *code)
{
	size_t		length = strlen(code);

	for (const char *at = list; (at = strstr(at, code)) != NULL; at += length)
		if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
			return;
	if (list[0] != '\0')
		strcat(list, " ");
	strcat(list, code);
}

static bool
read_languages(HymtModel *model, const json_t *codes, HymtError *error)
{
	size_t		size = 1;

	for (int i = 0; i < hymt_language_count; i++)
		size += strlen(hymt_languages[i].code) + 1;
	if (!json_is_array(codes) || json_array_size(codes) == 0)
		return broken(error, model, "languages must be a list of language codes");
	model->languages = calloc(size, 1);
	if (model->languages == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	for (size_t i = 0; i < json_array_size(codes); i++)
	{
		const json_t *code = json_array_get(codes, i);
		const HymtLanguage *language;

		if (!json_is_string(code))
			return broken(error, model, "languages must be a list of language codes");
		language = hymt_language_find(json_string_value(code), json_string_length(code));
		if (language == NULL)
			return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s/hymt.json: unknown language code \"%.40s\"",
							 model->directory, json_string_value(code));
		append_language(model->languages, language->code);
	}
	return true;
}

static bool
read_prompts(HymtModel *model, const json_t *prompts, HymtError *error)
{
	const char *name = json_string_value(prompts);
	HymtFamily	family;

	if (name == NULL)
		return broken(error, model, "prompts must be the name of a prompt family");
	family = hymt_family_find(name);
	if (family == HYMT_FAMILY_UNKNOWN)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN,
						 "%s/hymt.json: unknown prompt family \"%.40s\" (known: " HYMT_FAMILY_NAMES ")",
						 model->directory, name);
	return set_family(model, family, "hymt.json", "", error);
}

static bool
add_template(HymtModel *model, const char *form, const json_t *value, HymtError *error)
{
	HymtTemplate *template = &model->templates[model->template_count];
	const char *text = json_string_value(value);
	char		problem[HYMT_TEMPLATE_PROBLEM];

	if (text == NULL || strlen(text) < json_string_length(value))
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s/hymt.json: the template \"%.40s\" must be a string",
						 model->directory, form);
	if (!hymt_template_check(form, text, problem))
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s/hymt.json: the template \"%.40s\" %s",
						 model->directory, form, problem);
	template->form = strdup(form);
	template->text = strdup(text);
	model->template_count++;
	return (template->form != NULL && template->text != NULL) ||
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
}

/* Texts by form. They complete or replace those of a family; when none is named, they are all there is. */
static bool
read_templates(HymtModel *model, json_t *templates, HymtError *error)
{
	const char *form;
	json_t	   *text;
	bool		plain = false;

	if (!json_is_object(templates) || json_object_size(templates) == 0)
		return broken(error, model, "templates must be an object of texts");
	model->templates = calloc(json_object_size(templates), sizeof *model->templates);
	if (model->templates == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	json_object_foreach(templates, form, text)
	{
		if (!add_template(model, form, text, error))
			return false;
		plain = plain || strncmp(form, "plain", 5) == 0;
	}
	return !plain || model->family != HYMT_FAMILY_UNKNOWN ||
		set_family(model, HYMT_FAMILY_TEMPLATES, "hymt.json", "", error);
}

static bool
read_settings(HymtModel *model, const json_t *settings, HymtError *error)
{
	const json_t *prompts = json_object_get(settings, "prompts");
	const json_t *languages = json_object_get(settings, "languages");
	const json_t *name = json_object_get(settings, "name");
	json_t	   *templates = json_object_get(settings, "templates");
	const json_t *adapters = json_object_get(settings, "adapters");

	if (prompts != NULL && !read_prompts(model, prompts, error))
		return false;
	if (templates != NULL && !read_templates(model, templates, error))
		return false;
	if (languages != NULL && !read_languages(model, languages, error))
		return false;
	if (adapters != NULL && !hymt_assignments_add_json(&model->adapters, adapters, model->directory, error))
		return false;
	if (name == NULL)
		return true;
	if (!json_is_string(name) || !presentable(json_string_value(name)))
		return broken(error, model, "name must be a printable string of 1 to 100 bytes");
	return set_string(&model->name, json_string_value(name), error);
}

static bool
read_hymt_json(HymtModel *model, const HymtFileBytes *bytes, HymtError *error)
{
	char	   *path = hymt_path_join(model->directory, "hymt.json");
	json_t	   *settings;
	bool		ok;

	if (path == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	settings = hymt_json_object(bytes->data, bytes->length, path, error);
	free(path);
	if (settings == NULL)
		return false;
	ok = read_settings(model, settings, error);
	json_decref(settings);
	return ok;
}

/* --- all together ------------------------------------------------------------------------------------------------- */

static bool
guess_family(HymtModel *model, const Names *names, HymtError *error)
{
	const struct
	{
		const char *what;
		const char *name;
	}			hints[] = {
		{"general.name: ", names->gguf_name},
		{"README.md: base_model: ", names->readme.base_model},
		{"README.md: title: ", names->readme.title},
		{"file name: ", names->file},
		{"folder name: ", names->folder},
	};

	for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
	{
		HymtFamily	family = family_in(hints[i].name, model->config.architecture);

		if (family != HYMT_FAMILY_UNKNOWN)
			return set_family(model, family, hints[i].what, hints[i].name, error);
	}
	return set_family(model, HYMT_FAMILY_UNKNOWN, "neither hymt.json, a setting, README.md nor the folder's name tells",
					  "", error);
}

bool
hymt_family_detect(HymtModel *model, const HymtModelTexts *texts, HymtFamily wish, HymtError *error)
{
	Names		names;
	const char *name;

	if (texts->hymt.data != NULL && !read_hymt_json(model, &texts->hymt, error))
		return false;
	read_names(&names, model);
	/* whoever asked for a family should know why another one's prompts are used */
	if (model->family != HYMT_FAMILY_UNKNOWN && wish != HYMT_FAMILY_UNKNOWN && wish != model->family)
		hymt_complain("the prompt family that was asked for, %s, is ignored: the model's hymt.json says %s",
					  hymt_family_name(wish), hymt_family_name(model->family));
	if (model->family == HYMT_FAMILY_UNKNOWN && wish != HYMT_FAMILY_UNKNOWN &&
		!set_family(model, wish, "setting", "", error))
		return false;
	if (model->family == HYMT_FAMILY_UNKNOWN && !guess_family(model, &names, error))
		return false;
	if (model->name != NULL)
		return true;
	name = presentable(names.gguf_name) ? names.gguf_name : presentable(names.readme.title) ? names.readme.title :
		presentable(names.file) ? names.file : presentable(names.folder) ? names.folder : "model";
	return set_string(&model->name, name, error);
}
