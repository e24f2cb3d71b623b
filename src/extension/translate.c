/*
 * translate.c: hymt_translate() and hymt_translate_details(): arguments, passing through, one request, on_error.
 *
 * Runs in backends and parallel workers. Writes nothing to the database. Catches no error: a failed translation arrives
 * as an outcome, and only that is what on_error decides over.
 */
#include "ahead.h"
#include "progress.h"
#include "cache.h"
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

#include "../protocol/adapter_list.h"

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

/*
 * For a reader of arguments: ends it with false, or with an error unless it reads quietly. What is read ahead is read
 * quietly: its row may never come to its turn.
 */
#define REFUSE(quietly, ...) \
	do { \
		if (quietly) \
			return false; \
		ereport(ERROR, (__VA_ARGS__)); \
	} while (0)

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

static bool
read_language(const char *name, const text *code, bool quietly, const HymtLanguage **language)
{
	*language = hymt_language_find(VARDATA_ANY(code), VARSIZE_ANY_EXHDR(code));
	if (*language == NULL)
		REFUSE(quietly,
			   errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			   errmsg("unknown language \"%s\" in argument \"%s\"", text_to_cstring(code), name),
			   errdetail("Known languages are %s.", known_languages()));
	return true;
}

const HymtLanguage *
hymt_order_language(const char *name, const text *code)
{
	const HymtLanguage *language;

	(void) read_language(name, code, false, &language);
	return language;
}

static bool
read_on_error(const text *value, bool quietly, HymtOnError *on_error)
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
	REFUSE(quietly,
		   errcode(ERRCODE_INVALID_PARAMETER_VALUE),
		   errmsg("\"%s\" is no value of argument \"on_error\"", text_to_cstring(value)),
		   errdetail("Values are error, null and source."));
	return false;				/* not reached */
}

HymtOnError
hymt_order_on_error(const text *value)
{
	HymtOnError on_error = HYMT_ON_ERROR_RAISE;

	(void) read_on_error(value, false, &on_error);
	return on_error;
}

/* *plain: it is translated as plain text, as all formats are that this version knows. */
static bool
read_format(const text *format, bool quietly, bool *plain)
{
	static const char *const known[] = {"text", "html", "markdown", "icu", "auto"};

	for (int i = 0; i < lengthof(known); i++)
	{
		if (text_is(format, known[i]))
		{
			*plain = i == 0;
			return true;
		}
	}
	REFUSE(quietly,
		   errcode(ERRCODE_INVALID_PARAMETER_VALUE),
		   errmsg("\"%s\" is no value of argument \"format\"", text_to_cstring(format)),
		   errdetail("Values are text, html, markdown, icu and auto."));
	return false;				/* not reached */
}

static bool
string_is(const JsonbValue *value, const char *word)
{
	return value->type == jbvString && value->val.string.len == strlen(word) &&
		memcmp(value->val.string.val, word, strlen(word)) == 0;
}

static bool
priority_option(const JsonbValue *value, bool quietly, bool *bulk)
{
	*bulk = string_is(value, "bulk");
	if (!*bulk && !string_is(value, "normal"))
		REFUSE(quietly,
			   errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			   errmsg("option \"priority\" must be \"normal\" or \"bulk\""));
	return true;
}

/* The integer that a member is, if it is one within these bounds; else false. */
static bool
read_integer(const JsonbValue *value, int64 least, int64 most, int64 *number)
{
	Datum		numeric;

	if (value->type != jbvNumeric)
		return false;
	numeric = NumericGetDatum(value->val.numeric);
	/* Compared as numeric first: a conversion of 1e300, or of NaN, would raise its own error. */
	if (!DatumGetBool(DirectFunctionCall2(numeric_eq, numeric,
										  DirectFunctionCall2(numeric_trunc, numeric, Int32GetDatum(0)))) ||
		!DatumGetBool(DirectFunctionCall2(numeric_ge, numeric, DirectFunctionCall1(int8_numeric, Int64GetDatum(least)))) ||
		!DatumGetBool(DirectFunctionCall2(numeric_le, numeric, DirectFunctionCall1(int8_numeric, Int64GetDatum(most)))))
		return false;
	*number = DatumGetInt64(DirectFunctionCall1(numeric_int8, numeric));
	return true;
}

static bool
max_tokens_option(const JsonbValue *value, bool quietly, int *max_tokens)
{
	int64		tokens;

	if (!read_integer(value, 1, LARGEST_MAX_TOKENS, &tokens))
		REFUSE(quietly,
			   errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			   errmsg("option \"max_tokens\" must be an integer from 1 to %d", LARGEST_MAX_TOKENS));
	*max_tokens = (int) tokens;
	return true;
}

/* Whether hymt.adapters has an adapter with this name. */
static bool
adapter_is_known(const char *name, Size length)
{
	const char *at = hymt_adapters != NULL ? hymt_adapters : "";
	const char *fault;
	HymtAdapterItem item;

	while (hymt_adapter_list_next(&at, &item, &fault) == HYMT_ADAPTER_LIST_ITEM)
	{
		if (length > 0 && strlen(item.name) == length && memcmp(item.name, name, length) == 0)
			return true;
	}
	return false;
}

static bool
adapter_option(const JsonbValue *value, bool quietly, HymtOrder *order)
{
	if (value->type != jbvString)
		REFUSE(quietly,
			   errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			   errmsg("option \"adapter\" must be the name of an adapter"));
	if (!adapter_is_known(value->val.string.val, value->val.string.len))
		REFUSE(quietly,
			   errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			   errmsg("adapter \"%s\" does not exist", pnstrdup(value->val.string.val, value->val.string.len)),
			   errhint("The setting hymt.adapters gives names to adapters."));
	/* Known names fit. */
	memcpy(order->adapter, value->val.string.val, value->val.string.len);
	return true;
}

/* The number that a member is, if it is one from 0 to `most`; else false. */
static bool
read_fraction(const JsonbValue *value, float most, float *fraction)
{
	double		number;

	if (value->type != jbvNumeric)
		return false;
	number = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, NumericGetDatum(value->val.numeric)));
	/* Written so that a NaN is none. */
	if (!(number >= 0 && number <= most))
		return false;
	*fraction = (float) number;
	return true;
}

static bool
temperature_option(const JsonbValue *value, bool quietly, float *temperature)
{
	if (!read_fraction(value, HYMT_TEMPERATURE_MAX, temperature))
		REFUSE(quietly,
			   errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			   errmsg("sampling option \"temperature\" must be a number from 0 to %g", HYMT_TEMPERATURE_MAX));
	return true;
}

static bool
top_p_option(const JsonbValue *value, bool quietly, float *top_p)
{
	/* What is lost in the conversion to float must not make 0 of it. */
	if (!read_fraction(value, 1, top_p) || *top_p == 0)
		REFUSE(quietly,
			   errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			   errmsg("sampling option \"top_p\" must be a number greater than 0 and at most 1"));
	return true;
}

static bool
top_k_option(const JsonbValue *value, bool quietly, uint32 *top_k)
{
	int64		number;

	if (!read_integer(value, 0, PG_INT32_MAX, &number))
		REFUSE(quietly,
			   errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			   errmsg("sampling option \"top_k\" must be an integer from 0 to %d", PG_INT32_MAX));
	*top_k = (uint32) number;
	return true;
}

static bool
seed_option(const JsonbValue *value, bool quietly, uint64_t *seed)
{
	int64		number;

	if (!read_integer(value, PG_INT64_MIN, PG_INT64_MAX, &number))
		REFUSE(quietly,
			   errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			   errmsg("sampling option \"seed\" must be an integer of 64 bits"));
	*seed = (uint64_t) number;
	return true;
}

static bool
read_sampling_member(const JsonbValue *key, const JsonbValue *value, bool quietly, HymtDraw *draw)
{
	if (string_is(key, "temperature"))
		return temperature_option(value, quietly, &draw->temperature);
	if (string_is(key, "top_p"))
		return top_p_option(value, quietly, &draw->top_p);
	if (string_is(key, "top_k"))
		return top_k_option(value, quietly, &draw->top_k);
	if (string_is(key, "seed"))
		return seed_option(value, quietly, &draw->seed);
	REFUSE(quietly,
		   errcode(ERRCODE_INVALID_PARAMETER_VALUE),
		   errmsg("unknown sampling option \"%s\"", pnstrdup(key->val.string.val, key->val.string.len)),
		   errdetail("Options are temperature, top_p, top_k and seed."));
	return false;				/* not reached */
}

/*
 * How tokens are drawn. Everything has a default, the seed too: the same call gives the same answer, as a STABLE function
 * must.
 */
static bool
sampling_option(const JsonbValue *value, bool quietly, HymtDraw *result)
{
	HymtDraw	draw = {.temperature = 1, .top_p = 1};
	JsonbIterator *iterator;
	JsonbValue	key;
	JsonbValue	member;

	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
		REFUSE(quietly,
			   errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			   errmsg("option \"sampling\" must be a JSON object"));
	iterator = JsonbIteratorInit(value->val.binary.data);
	JsonbIteratorNext(&iterator, &key, false);
	while (JsonbIteratorNext(&iterator, &key, true) == WJB_KEY)
	{
		JsonbIteratorNext(&iterator, &member, true);
		if (!read_sampling_member(&key, &member, quietly, &draw))
			return false;
	}
	/* Requests that mean the same are the same. */
	if (draw.temperature == 0)
		memset(&draw, 0, sizeof(draw));
	*result = draw;
	return true;
}

/* *planned becomes true with an option that this version lacks. */
static bool
read_option(const JsonbValue *key, const JsonbValue *value, bool quietly, HymtOrder *order, bool *planned)
{
	if (string_is(key, "max_tokens"))
		return max_tokens_option(value, quietly, &order->max_new_tokens);
	if (string_is(key, "priority"))
		return priority_option(value, quietly, &order->bulk);
	if (string_is(key, "adapter"))
		return adapter_option(value, quietly, order);
	if (string_is(key, "sampling"))
		return sampling_option(value, quietly, &order->draw);
	if (!string_is(key, "max_chars"))
		REFUSE(quietly,
			   errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			   errmsg("unknown option \"%s\"", pnstrdup(key->val.string.val, key->val.string.len)),
			   errdetail("Options are adapter, max_chars, max_tokens, priority and sampling."));
	*planned = true;
	return true;
}

static bool
read_options(Jsonb *options, bool quietly, HymtOrder *order, bool *planned)
{
	JsonbIterator *iterator;
	JsonbValue	key;
	JsonbValue	value;

	if (!JB_ROOT_IS_OBJECT(options))
		REFUSE(quietly,
			   errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			   errmsg("argument \"options\" must be a JSON object"));
	iterator = JsonbIteratorInit(&options->root);
	JsonbIteratorNext(&iterator, &key, false);
	while (JsonbIteratorNext(&iterator, &key, true) == WJB_KEY)
	{
		JsonbIteratorNext(&iterator, &value, true);
		if (!read_option(&key, &value, quietly, order, planned))
			return false;
	}
	return true;
}

static bool
check_not_null(FunctionCallInfo fcinfo, int argument, const char *name, bool quietly)
{
	if (PG_ARGISNULL(argument))
		REFUSE(quietly,
			   errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			   errmsg("argument \"%s\" must not be null", name));
	return true;
}

static bool
check_absent(bool present, bool quietly, const char *what, const char *hint)
{
	if (present)
		REFUSE(quietly,
			   errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			   errmsg("hymt %s does not support %s", HYMT_VERSION, what),
			   errhint("%s", hint));
	return true;
}

static bool
is_automatic(FunctionCallInfo fcinfo)
{
	return PG_ARGISNULL(ARG_SOURCE) || text_is(PG_GETARG_TEXT_PP(ARG_SOURCE), "auto");
}

/* An empty context is none. It stays in the current memory context. */
static bool
read_context(text *context, bool quietly, HymtOrder *order)
{
	const char *given = VARDATA_ANY(context);
	Size		length = VARSIZE_ANY_EXHDR(context);

	order->context = quietly ? hymt_server_to_utf8_quietly(given, length, &order->context_length) :
		hymt_server_to_utf8(given, length, &order->context_length);
	return order->context != NULL;
}

/* Wrong values are reported first, then right ones that this version lacks. */
static bool
read_order(FunctionCallInfo fcinfo, bool quietly, HymtOrder *order)
{
	bool		automatic = is_automatic(fcinfo);
	bool		plain;
	bool		planned = false;

	memset(order, 0, sizeof(HymtOrder));
	return check_not_null(fcinfo, ARG_TARGET, "tgt", quietly) &&
		check_not_null(fcinfo, ARG_FORMAT, "format", quietly) &&
		check_not_null(fcinfo, ARG_ON_ERROR, "on_error", quietly) &&
		(automatic || read_language("src", PG_GETARG_TEXT_PP(ARG_SOURCE), quietly, &order->source)) &&
		read_language("tgt", PG_GETARG_TEXT_PP(ARG_TARGET), quietly, &order->target) &&
		read_format(PG_GETARG_TEXT_PP(ARG_FORMAT), quietly, &plain) &&
		read_on_error(PG_GETARG_TEXT_PP(ARG_ON_ERROR), quietly, &order->on_error) &&
		(PG_ARGISNULL(ARG_OPTIONS) || read_options(PG_GETARG_JSONB_P(ARG_OPTIONS), quietly, order, &planned)) &&
		check_absent(automatic, quietly, "language detection", "Name the source language in argument \"src\".") &&
		check_absent(!PG_ARGISNULL(ARG_GLOSSARY), quietly, "glossaries", "Leave out argument \"glossary\".") &&
		check_absent(!plain, quietly, "formats other than text", "Use format => 'text'.") &&
		check_absent(planned, quietly, "option max_chars", "Leave it out.") &&
		(PG_ARGISNULL(ARG_CONTEXT) || read_context(PG_GETARG_TEXT_PP(ARG_CONTEXT), quietly, order));
}

void
hymt_read_order(FunctionCallInfo fcinfo, HymtOrder *order)
{
	(void) read_order(fcinfo, false, order);
}

bool
hymt_read_order_quietly(FunctionCallInfo fcinfo, HymtOrder *order)
{
	return read_order(fcinfo, true, order);
}

/* --- one translation ---------------------------------------------------------------------------------------------- */

/* What on_error makes of a failed translation, unless it is an error. */
static text *
fallback(text *source, HymtOnError on_error, HymtReport *report)
{
	report->status = "failed";
	hymt_progress_failed();
	return on_error == HYMT_ON_ERROR_SOURCE ? source : NULL;
}

void
hymt_raise_unconvertible(uint32 character)
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
hymt_text_of_outcome(text *source, const HymtOrder *order, const char *utf8, Size length, const HymtOutcome *outcome,
					 HymtReport *report)
{
	HymtOnError on_error = order->on_error;
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
			hymt_raise_unconvertible(character);
		return fallback(source, on_error, report);
	}
	report->status = "translated";
	report->cached = outcome->cached != HYMT_CACHE_MISS;
	/* A translation that the server encoding lacks a character for is none, and not kept. */
	hymt_cache_store(order, utf8, length, outcome);
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
		.draw = order->draw,
		.bulk = order->bulk,
		.context = order->context,
		.context_length = order->context_length,
		.text = utf8,
		.text_length = length
	};

	memcpy(spec.adapter, order->adapter, sizeof(spec.adapter));
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
	result = hymt_human_find(order, given, VARSIZE_ANY_EXHDR(source));
	if (result != NULL)
	{
		report->status = "human";
		return result;
	}
	utf8 = hymt_server_to_utf8(given, VARSIZE_ANY_EXHDR(source), &length);
	if (!hymt_needs_model(order, utf8, length))
	{
		report->status = "unchanged";
		result = source;
	}
	else
	{
		if (!hymt_ahead_take(order, utf8, length, &outcome) &&
			hymt_cache_find(order, utf8, length, &outcome) == HYMT_CACHE_MISS)
		{
			spec = hymt_request_spec(order, utf8, length);
			hymt_request_wait(hymt_request_submit(&spec), &outcome);
		}
		result = hymt_text_of_outcome(source, order, utf8, length, &outcome, report);
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
	values[DETAIL_CACHED] = BoolGetDatum(report->cached);
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
