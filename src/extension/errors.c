/*
 * errors.c: SQLSTATEs and the errors that several files raise.
 *
 * Runs in backends. Messages never contain a text that is being translated.
 */
#include "session.h"

#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "utils/acl.h"

int
hymt_failure_sqlstate(HymtFailure failure)
{
	switch (failure)
	{
		case HYMT_FAILURE_MODEL_MISSING:
			return ERRCODE_UNDEFINED_FILE;
		case HYMT_FAILURE_MODEL_UNREADABLE:
			return ERRCODE_INSUFFICIENT_PRIVILEGE;
		case HYMT_FAILURE_MODEL_BROKEN:
		case HYMT_FAILURE_MODEL_UNSUPPORTED:
			return ERRCODE_HYMT_MODEL_BROKEN;
		case HYMT_FAILURE_NO_MEMORY:
		case HYMT_FAILURE_OVER_LIMIT:
			return ERRCODE_OUT_OF_MEMORY;
		case HYMT_FAILURE_LANGUAGE:
			return ERRCODE_HYMT_MODEL_LANGUAGE;
		case HYMT_FAILURE_TOO_LONG:
			return ERRCODE_PROGRAM_LIMIT_EXCEEDED;
		case HYMT_FAILURE_BAD_TEXT:
			return ERRCODE_CHARACTER_NOT_IN_REPERTOIRE;
		case HYMT_FAILURE_UNFINISHED:
			return ERRCODE_HYMT_UNFINISHED;
		case HYMT_FAILURE_UNSUPPORTED:
			return ERRCODE_FEATURE_NOT_SUPPORTED;
		case HYMT_FAILURE_ADAPTER:
			return ERRCODE_HYMT_ADAPTER;
		case HYMT_FAILURE_NONE:
		case HYMT_FAILURE_BAD_REQUEST:
		case HYMT_FAILURE_NUMERIC:
		case HYMT_FAILURE_INTERNAL:
			break;
	}
	return ERRCODE_HYMT_ENGINE_FAILED;
}

static const char *
failure_description(const HymtOutcome *outcome)
{
	switch (outcome->failure)
	{
		case HYMT_FAILURE_LANGUAGE:
			return "the model does not know the language";
		case HYMT_FAILURE_TOO_LONG:
			return "the text is too long for the model";
		case HYMT_FAILURE_BAD_TEXT:
			return "the text is not valid UTF-8";
		case HYMT_FAILURE_UNFINISHED:
			return outcome->finish == HYMT_FINISH_LOOP ?
				"the translation repeated itself without end" : "the translation reached its length limit";
		case HYMT_FAILURE_NO_MEMORY:
			return "out of memory";
		case HYMT_FAILURE_OVER_LIMIT:
			return "the model does not fit into hymt.memory";
		case HYMT_FAILURE_UNSUPPORTED:
			return "the engine cannot do this";
		default:
			return "the engine failed";
	}
}

char *
hymt_visible_reason(const char *message)
{
	if (message[0] == '\0' || !has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_SETTINGS))
		return NULL;
	return hymt_text_to_server(message, strlen(message));
}

static char *
failure_detail(const HymtOutcome *outcome)
{
	switch (outcome->failure)
	{
		case HYMT_FAILURE_UNFINISHED:
			/* May be the beginning of the translation: texts do not go into messages. */
			return NULL;
		case HYMT_FAILURE_NO_MEMORY:
		case HYMT_FAILURE_OVER_LIMIT:
			/* May name the file that there was no memory for. */
			return hymt_visible_reason(outcome->text);
		default:
			return outcome->text_length > 0 ? hymt_text_to_server(outcome->text, outcome->text_length) : NULL;
	}
}

void
hymt_raise_outcome(const HymtOutcome *outcome)
{
	int			sqlstate = outcome->sqlstate != 0 ? outcome->sqlstate : hymt_failure_sqlstate(outcome->failure);
	char	   *detail = failure_detail(outcome);

	ereport(ERROR,
			(errcode(sqlstate),
			 errmsg("could not translate: %s",
					sqlstate == ERRCODE_HYMT_ENGINE_CRASHED ? "the engine died of this text" :
					failure_description(outcome)),
			 detail != NULL ? errdetail_internal("%s", detail) : 0));
}

bool
hymt_layout_fits(void)
{
	return hymt_shared->magic == HYMT_LAYOUT_MAGIC && hymt_shared->layout_version == HYMT_LAYOUT_VERSION;
}

void
hymt_check_preloaded(void)
{
	if (hymt_shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("hymt must be loaded when the server starts"),
				 errhint("Add hymt to shared_preload_libraries and restart PostgreSQL.")));
	if (!hymt_layout_fits())
		ereport(ERROR,
				(errcode(ERRCODE_HYMT_VERSION_SKEW),
				 errmsg("the library of hymt does not fit the running server"),
				 errdetail("The shared memory has layout %u, this library needs layout %d.",
						   hymt_shared->layout_version, HYMT_LAYOUT_VERSION),
				 errhint("hymt was replaced while the server ran: restart PostgreSQL.")));
}
