/*
 * translate.c: hymt_translate() and hymt_translate_details(): arguments, passing through, one request, on_error.
 *
 * Runs in backends and parallel workers. Writes nothing to the database. Catches no error: a failed translation arrives
 * as an outcome, and only that is what on_error decides over.
 */
#include "ahead.h"
#include "session.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "portability/instr_time.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

PG_FUNCTION_INFO_V1(hymt_translate);
PG_FUNCTION_INFO_V1(hymt_translate_details);

/* Positions of the arguments that all translating functions share. */
enum
{
	ARG_TEXT,
	ARG_SOURCE,
	ARG_TARGET,
	ARG_CONTEXT,
	ARG_GLOSSARY,
	ARG_FORMAT,
	ARG_ON_ERROR,
	ARG_OPTIONS
};

#define LARGEST_MAX_TOKENS (1024 * 1024)

/* --- arguments ---------------------------------------------------------------------------------------------------- */

static void
raise_null(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("argument \"%s\" must not be null", name)));
}

static bool
text_is(const text *value, const char *word)
{
	return VARSIZE_ANY_EXHDR(value) == strlen(word) && memcmp(VARDATA_ANY(value), word, strlen(word)) == 0;
}

static char *
known_languages(void)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < hymt_language_count; i++)
		appendStringInfo(&list, "%s%s", i == 0 ? "" : ", ", hymt_languages[i].code);
	return list.data;
}

static const HymtLanguage *
find_language(const text *code)
{
	return hymt_language_find(VARDATA_ANY(code), VARSIZE_ANY_EXHDR(code));
}

const HymtLanguage *
hymt_order_language(const char *name, const text *code)
{
	const HymtLanguage *language = find_language(code);

	if (language == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown language \"%s\" in argument \"%s\"", text_to_cstring(code), name),
				 errdetail("Known languages are %s.", known_languages())));
	return language;
}

static bool
find_on_error(const text *value, HymtOnError *on_error)
{
	static const char *const names[] = {
		[HYMT_ON_ERROR_RAISE] = "error", [HYMT_ON_ERROR_NULL] = "null", [HYMT_ON_ERROR_SOURCE] = "source"
	};

	for (int i = 0; i < lengthof(names); i++)
	{
		if (text_is(value, names[i]))
		{
			*on_error = (HymtOnError) i;
			return true;
		}
	}
	return false;
}

HymtOnError
hymt_order_on_error(const text *value)
{
	HymtOnError on_error = HYMT_ON_ERROR_RAISE;

	if (!find_on_error(value, &on_error))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is no value of argument \"on_error\"", text_to_cstring(value)),
				 errdetail("Values are error, null and source.")));
	return on_error;
}

/* True for the formats that are translated as plain text today. */
static bool
check_format(const text *format)
{
	static const char *const known[] = {"text", "html", "markdown", "icu", "auto"};

	for (int i = 0; i < lengthof(known); i++)
	{
		if (text_is(format, known[i]))
			return i == 0;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("\"%s\" is no value of argument \"format\"", text_to_cstring(format)),
			 errdetail("Values are text, html, markdown, icu and auto.")));
	return false;				/* not reached */
}

static bool
string_is(const JsonbValue *value, const char *word)
{
	return value->type == jbvString && value->val.string.len == strlen(word) &&
		memcmp(value->val.string.val, word, strlen(word)) == 0;
}

typedef enum OptionFault
{
	OPTION_GOOD,
	OPTION_PLANNED,				/* known, but this version lacks it */
	OPTION_PRIORITY,			/* a wrong value */
	OPTION_MAX_TOKENS,			/* a wrong value */
	OPTION_UNKNOWN
} OptionFault;

static bool
max_tokens_option(const JsonbValue *value, int *max_new_tokens)
{
	bool		valid = value->type == jbvNumeric;

	if (valid)
	{
		Datum		number = NumericGetDatum(value->val.numeric);
		Datum		limit = DirectFunctionCall1(int8_numeric, Int64GetDatum(LARGEST_MAX_TOKENS));
		Datum		whole = DirectFunctionCall2(numeric_trunc, number, Int32GetDatum(0));

		/* Compared as numeric first: a conversion of 1e300, or of NaN, would raise its own error. */
		valid = DatumGetBool(DirectFunctionCall2(numeric_eq, number, whole)) &&
			DatumGetBool(DirectFunctionCall2(numeric_le, number, limit));
		if (valid)
		{
			Datum		one = DirectFunctionCall1(int8_numeric, Int64GetDatum(1));

			valid = DatumGetBool(DirectFunctionCall2(numeric_ge, number, one));
			if (valid)
				*max_new_tokens = (int) DatumGetInt64(DirectFunctionCall1(numeric_int8, number));
		}
	}
	return valid;
}

/* Known options that this version does not have. */
static bool
is_planned_option(const JsonbValue *key)
{
	static const char *const planned[] = {"max_chars", "sampling"};

	for (int i = 0; i < lengthof(planned); i++)
	{
		if (string_is(key, planned[i]))
			return true;
	}
	return false;
}

static OptionFault
read_option(const JsonbValue *key, const JsonbValue *value, HymtOrder *order)
{
	if (string_is(key, "max_tokens"))
		return max_tokens_option(value, &order->max_new_tokens) ? OPTION_GOOD : OPTION_MAX_TOKENS;
	if (string_is(key, "priority"))
	{
		order->bulk = string_is(value, "bulk");
		return order->bulk || string_is(value, "normal") ? OPTION_GOOD : OPTION_PRIORITY;
	}
	return is_planned_option(key) ? OPTION_PLANNED : OPTION_UNKNOWN;
}

static void
raise_option(OptionFault fault, const JsonbValue *key)
{
	if (fault == OPTION_PRIORITY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"priority\" must be \"normal\" or \"bulk\"")));
	if (fault == OPTION_MAX_TOKENS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"max_tokens\" must be an integer from 1 to %d", LARGEST_MAX_TOKENS)));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown option \"%s\"", pnstrdup(key->val.string.val, key->val.string.len)),
			 errdetail("Options are max_chars, max_tokens, priority and sampling.")));
}

/*
 * Reads the options of an object up to the first wrong one, which *key then is; else returns whether there is one that
 * this version lacks.
 */
static OptionFault
read_options(Jsonb *options, HymtOrder *order, JsonbValue *key)
{
	JsonbIterator *iterator = JsonbIteratorInit(&options->root);
	JsonbValue	value;
	OptionFault all = OPTION_GOOD;

	JsonbIteratorNext(&iterator, key, false);
	while (JsonbIteratorNext(&iterator, key, true) == WJB_KEY)
	{
		OptionFault fault;

		JsonbIteratorNext(&iterator, &value, true);
		fault = read_option(key, &value, order);
		if (fault == OPTION_PLANNED)
			all = OPTION_PLANNED;
		else if (fault != OPTION_GOOD)
			return fault;
	}
	return all;
}

/* Returns whether there is one that this version lacks. */
static bool
check_options(Jsonb *options, HymtOrder *order)
{
	JsonbValue	key;
	OptionFault fault;

	if (!JB_ROOT_IS_OBJECT(options))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"options\" must be a JSON object")));
	fault = read_options(options, order, &key);
	if (fault != OPTION_GOOD && fault != OPTION_PLANNED)
		raise_option(fault, &key);
	return fault == OPTION_PLANNED;
}

static void
raise_planned(const char *what, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("hymt %s does not support %s", HYMT_VERSION, what),
			 errhint("%s", hint)));
}

static bool
is_automatic(FunctionCallInfo fcinfo)
{
	return PG_ARGISNULL(ARG_SOURCE) || text_is(PG_GETARG_TEXT_PP(ARG_SOURCE), "auto");
}

/* Wrong values are reported first, then right ones that this version lacks. */
void
hymt_read_order(FunctionCallInfo fcinfo, HymtOrder *order)
{
	bool		automatic = is_automatic(fcinfo);
	bool		plain;
	bool		planned_options = false;

	memset(order, 0, sizeof(HymtOrder));
	if (PG_ARGISNULL(ARG_TARGET))
		raise_null("tgt");
	if (PG_ARGISNULL(ARG_FORMAT))
		raise_null("format");
	if (PG_ARGISNULL(ARG_ON_ERROR))
		raise_null("on_error");
	if (!automatic)
		order->source = hymt_order_language("src", PG_GETARG_TEXT_PP(ARG_SOURCE));
	order->target = hymt_order_language("tgt", PG_GETARG_TEXT_PP(ARG_TARGET));
	plain = check_format(PG_GETARG_TEXT_PP(ARG_FORMAT));
	order->on_error = hymt_order_on_error(PG_GETARG_TEXT_PP(ARG_ON_ERROR));
	if (!PG_ARGISNULL(ARG_OPTIONS))
		planned_options = check_options(PG_GETARG_JSONB_P(ARG_OPTIONS), order);

	if (automatic)
		raise_planned("language detection", "Name the source language in argument \"src\".");
	if (!PG_ARGISNULL(ARG_CONTEXT))
		raise_planned("a context", "Leave out argument \"context\".");
	if (!PG_ARGISNULL(ARG_GLOSSARY))
		raise_planned("glossaries", "Leave out argument \"glossary\".");
	if (!plain)
		raise_planned("formats other than text", "Use format => 'text'.");
	if (planned_options)
		raise_planned("options max_chars and sampling", "Leave them out.");
}

bool
hymt_read_order_quietly(FunctionCallInfo fcinfo, HymtOrder *order)
{
	JsonbValue	key;

	memset(order, 0, sizeof(HymtOrder));
	if (PG_ARGISNULL(ARG_TARGET) || PG_ARGISNULL(ARG_FORMAT) || PG_ARGISNULL(ARG_ON_ERROR) || is_automatic(fcinfo) ||
		!PG_ARGISNULL(ARG_CONTEXT) || !PG_ARGISNULL(ARG_GLOSSARY))
		return false;
	order->source = find_language(PG_GETARG_TEXT_PP(ARG_SOURCE));
	order->target = find_language(PG_GETARG_TEXT_PP(ARG_TARGET));
	if (order->source == NULL || order->target == NULL || !text_is(PG_GETARG_TEXT_PP(ARG_FORMAT), "text") ||
		!find_on_error(PG_GETARG_TEXT_PP(ARG_ON_ERROR), &order->on_error))
		return false;
	return PG_ARGISNULL(ARG_OPTIONS) ||
		(JB_ROOT_IS_OBJECT(PG_GETARG_JSONB_P(ARG_OPTIONS)) &&
		 read_options(PG_GETARG_JSONB_P(ARG_OPTIONS), order, &key) == OPTION_GOOD);
}

/* --- one translation ---------------------------------------------------------------------------------------------- */

/* What on_error makes of a failed translation, unless it is an error. */
static text *
fallback(text *source, HymtOnError on_error, HymtReport *report)
{
	report->status = "failed";
	return on_error == HYMT_ON_ERROR_SOURCE ? source : NULL;
}

static void
raise_unconvertible(uint32 character)
{
	if (character == 0)
		ereport(ERROR,
				(errcode(ERRCODE_HYMT_ENGINE_FAILED),
				 errmsg("the translation is not valid UTF-8")));
	ereport(ERROR,
			(errcode(ERRCODE_UNTRANSLATABLE_CHARACTER),
			 errmsg("the translation has character U+%04X, which encoding \"%s\" lacks",
					character, GetDatabaseEncodingName()),
			 errhint("Use a database with encoding UTF8.")));
}

text *
hymt_text_of_outcome(text *source, const HymtOutcome *outcome, HymtOnError on_error, HymtReport *report)
{
	uint32		character;
	text	   *result;

	report->finish = outcome->finish;
	report->input_tokens = outcome->input_tokens;
	report->output_tokens = outcome->output_tokens;
	memcpy(report->model, outcome->model, HYMT_NAME_MAX);
	if (outcome->failure != HYMT_FAILURE_NONE)
	{
		if (on_error == HYMT_ON_ERROR_RAISE)
			hymt_raise_outcome(outcome);
		return fallback(source, on_error, report);
	}
	result = hymt_utf8_to_server(outcome->text, outcome->text_length, &character);
	if (result == NULL)
	{
		if (on_error == HYMT_ON_ERROR_RAISE)
			raise_unconvertible(character);
		return fallback(source, on_error, report);
	}
	report->status = "translated";
	return result;
}

bool
hymt_needs_model(const HymtOrder *order, const char *utf8, Size length)
{
	return order->source != order->target && hymt_has_words(utf8, length);
}

HymtRequestSpec
hymt_request_spec(const HymtOrder *order, const char *utf8, Size length)
{
	HymtRequestSpec spec = {
		.source_lang = order->source->code,
		.target_lang = order->target->code,
		.max_new_tokens = order->max_new_tokens,
		.bulk = order->bulk,
		.text = utf8,
		.text_length = length
	};

	return spec;
}

text *
hymt_translate_text(text *source, const HymtOrder *order, HymtReport *report)
{
	HymtReport	unread;
	HymtOutcome outcome;
	HymtRequestSpec spec;
	const char *given = VARDATA_ANY(source);
	const char *utf8;
	Size		length;
	text	   *result;

	if (report == NULL)
		report = &unread;
	memset(report, 0, sizeof(HymtReport));
	utf8 = hymt_server_to_utf8(given, VARSIZE_ANY_EXHDR(source), &length);
	if (!hymt_needs_model(order, utf8, length))
	{
		report->status = "unchanged";
		result = source;
	}
	else
	{
		if (!hymt_ahead_take(order, utf8, length, &outcome))
		{
			spec = hymt_request_spec(order, utf8, length);
			hymt_request_wait(hymt_request_submit(&spec), &outcome);
		}
		result = hymt_text_of_outcome(source, &outcome, order->on_error, report);
		pfree(outcome.text);
	}
	if (utf8 != given)
		pfree(unconstify(char *, utf8));
	return result;
}

Datum
hymt_translate(PG_FUNCTION_ARGS)
{
	HymtOrder	order;
	text	   *source;
	text	   *result;

	if (PG_ARGISNULL(ARG_TEXT))
		PG_RETURN_NULL();
	hymt_read_order(fcinfo, &order);
	source = PG_GETARG_TEXT_PP(ARG_TEXT);
	result = hymt_translate_text(source, &order, NULL);
	if (result != source)
		PG_FREE_IF_COPY(source, ARG_TEXT);
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(result);
}

/* --- details ------------------------------------------------------------------------------------------------------ */

/* Columns of type hymt_translation. */
enum
{
	DETAIL_TRANSLATION,
	DETAIL_SOURCE_LANG,
	DETAIL_STATUS,
	DETAIL_FAILED_CHECKS,
	DETAIL_FINISH_REASON,
	DETAIL_CACHED,
	DETAIL_MODEL,
	DETAIL_INPUT_TOKENS,
	DETAIL_OUTPUT_TOKENS,
	DETAIL_MILLISECONDS,
	DETAIL_COUNT
};

static const char *
finish_name(HymtFinish finish)
{
	switch (finish)
	{
		case HYMT_FINISH_STOP:
			return "stop";
		case HYMT_FINISH_LENGTH:
			return "length";
		case HYMT_FINISH_LOOP:
			return "loop";
		case HYMT_FINISH_NONE:
			break;
	}
	return NULL;
}

/* The model that answered; NULL when none did. */
static char *
answering_model(const HymtReport *report)
{
	return report->model[0] == '\0' ? NULL : hymt_text_to_server(report->model, strlen(report->model));
}

static void
set_text(Datum *values, bool *nulls, int column, const char *value)
{
	nulls[column] = value == NULL;
	if (value != NULL)
		values[column] = CStringGetTextDatum(value);
}

static void
fill_details(Datum *values, bool *nulls, const HymtOrder *order, const HymtReport *report)
{
	set_text(values, nulls, DETAIL_SOURCE_LANG, order->source->code);
	set_text(values, nulls, DETAIL_STATUS, report->status);
	values[DETAIL_FAILED_CHECKS] = PointerGetDatum(construct_empty_array(TEXTOID));
	set_text(values, nulls, DETAIL_FINISH_REASON, finish_name(report->finish));
	values[DETAIL_CACHED] = BoolGetDatum(false);
	set_text(values, nulls, DETAIL_MODEL, answering_model(report));
	values[DETAIL_INPUT_TOKENS] = Int32GetDatum(report->input_tokens);
	values[DETAIL_OUTPUT_TOKENS] = Int32GetDatum(report->output_tokens);
}

Datum
hymt_translate_details(PG_FUNCTION_ARGS)
{
	HymtOrder	order;
	HymtReport	report;
	TupleDesc	descriptor;
	Datum		values[DETAIL_COUNT] = {0};
	bool		nulls[DETAIL_COUNT] = {0};
	instr_time	begin;
	instr_time	end;
	text	   *result;

	if (PG_ARGISNULL(ARG_TEXT))
		PG_RETURN_NULL();
	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE || descriptor->natts != DETAIL_COUNT)
		ereport(ERROR,
				(errcode(ERRCODE_HYMT_VERSION_SKEW),
				 errmsg("type hymt_translation does not fit the library of hymt"),
				 errhint("Run ALTER EXTENSION hymt UPDATE.")));
	hymt_read_order(fcinfo, &order);
	INSTR_TIME_SET_CURRENT(begin);
	result = hymt_translate_text(PG_GETARG_TEXT_PP(ARG_TEXT), &order, &report);
	INSTR_TIME_SET_CURRENT(end);
	INSTR_TIME_SUBTRACT(end, begin);

	nulls[DETAIL_TRANSLATION] = result == NULL;
	values[DETAIL_TRANSLATION] = PointerGetDatum(result);
	fill_details(values, nulls, &order, &report);
	values[DETAIL_MILLISECONDS] = Float8GetDatum(INSTR_TIME_GET_MILLISEC(end));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls)));
}
