/*
 * json.c: hymt_translate_json(): strings of a document as one batch.
 *
 * Runs in backends and parallel workers. The document is walked twice, without recursion: first its strings under the
 * paths go into a batch, then a copy is built with what became of them. Between the walks a string is known by its
 * address in the document, and strings come in the order of their addresses.
 */
#include "batch.h"
#include "json_path.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(hymt_translate_json);

/* Positions of its own arguments; behind the paths are those of hymt_translate(). */
enum
{
	ARG_DOCUMENT,
	ARG_PATHS = 3,
	ARG_COUNT = 9
};

/* Where a value lies, seen from the paths. */
typedef enum Reach
{
	REACH_NOWHERE,
	REACH_FURTHER,				/* a path leads through it */
	REACH_HERE					/* a path leads to it, or to something that it is in */
} Reach;

/* An object or array that is being walked through. */
typedef struct Level
{
	bool		is_array;
	Reach		reach;
	int			elements;		/* of an array */
	int			number;			/* element of an array that was begun last; -1: none yet */
	const char *key;			/* of an object, the same */
	int			key_length;
} Level;

typedef struct Cursor
{
	JsonbIterator *iterator;
	Level	   *level;
	int			depth;			/* levels; 0 for a scalar that is the whole document, too */
	int			room;
} Cursor;

/* A string that is translated. */
typedef struct Place
{
	const char *string;
	int			number;			/* in the batch */
} Place;

typedef struct Document
{
	Jsonb	   *source;
	HymtPath   *path;
	int			path_count;
	int		   *matched;		/* of each path: steps that match the levels passed, and the value that is looked at */
	HymtBatch  *batch;
	Place	   *place;
	int			count;
	int			room;
} Document;

/* --- walking ------------------------------------------------------------------------------------------------------ */

static void
init_cursor(Cursor *cursor, Jsonb *document)
{
	cursor->iterator = JsonbIteratorInit(&document->root);
	cursor->depth = 0;
	cursor->room = 16;
	cursor->level = palloc(cursor->room * sizeof(Level));
}

static Level *
innermost(const Cursor *cursor)
{
	return cursor->depth == 0 ? NULL : &cursor->level[cursor->depth - 1];
}

static void
enter(Cursor *cursor, bool is_array, int elements)
{
	if (cursor->depth == cursor->room)
	{
		cursor->room *= 2;
		cursor->level = repalloc_huge(cursor->level, cursor->room * sizeof(Level));
	}
	cursor->level[cursor->depth++] = (Level) {.is_array = is_array, .elements = elements, .number = -1};
}

/* The next token; the levels are then those that its value lies in, or that it has just entered. */
static JsonbIteratorToken
advance(Cursor *cursor, JsonbValue *value, bool skip)
{
	JsonbIteratorToken token = JsonbIteratorNext(&cursor->iterator, value, skip);
	Level	   *level = innermost(cursor);

	if (level != NULL && level->is_array &&
		(token == WJB_ELEM || token == WJB_BEGIN_ARRAY || token == WJB_BEGIN_OBJECT))
		level->number++;
	switch (token)
	{
		case WJB_BEGIN_ARRAY:
			if (!value->val.array.rawScalar)
				enter(cursor, true, value->val.array.nElems);
			break;
		case WJB_BEGIN_OBJECT:
			enter(cursor, false, 0);
			break;
		case WJB_END_ARRAY:
		case WJB_END_OBJECT:
			if (cursor->depth > 0)
				cursor->depth--;
			break;
		case WJB_KEY:
			level->key = value->val.string.val;
			level->key_length = value->val.string.len;
			break;
		default:
			break;
	}
	return token;
}

/* A string that may have something to translate. Empty ones are none, and have the address of what follows them. */
static bool
is_string(JsonbIteratorToken token, const JsonbValue *value)
{
	return (token == WJB_VALUE || token == WJB_ELEM) && value->type == jbvString && value->val.string.len > 0;
}

/* --- names of places ---------------------------------------------------------------------------------------------- */

/* The place of a string in the document, as a path. */
static char *
name_of_place(Jsonb *document, const char *string)
{
	Cursor		cursor;
	JsonbIteratorToken token;
	JsonbValue	value;
	StringInfoData name;

	initStringInfo(&name);
	init_cursor(&cursor, document);
	while ((token = advance(&cursor, &value, false)) != WJB_DONE)
	{
		if (is_string(token, &value) && value.val.string.val == string)
			break;
	}
	for (int i = 0; i < cursor.depth; i++)
	{
		const Level *level = &cursor.level[i];

		if (level->is_array)
			hymt_append_element(&name, level->number);
		else
			hymt_append_key(&name, level->key, level->key_length);
	}
	return name.data;
}

/* For errors that are those of a string. */
static void
tell_place(void *argument)
{
	const Document *document = argument;
	const char *failing = hymt_batch_failing(document->batch);

	if (failing != NULL && JB_ROOT_IS_SCALAR(document->source))
		errcontext("JSON document");
	else if (failing != NULL)
		errcontext("JSON document, path %s", name_of_place(document->source, failing));
}

/* --- what is translated ------------------------------------------------------------------------------------------- */

/* Of the document itself. */
static Reach
reach_of_root(Document *document)
{
	for (int i = 0; i < document->path_count; i++)
	{
		if (document->path[i].count == 0)
			return REACH_HERE;
	}
	return document->path_count > 0 ? REACH_FURTHER : REACH_NOWHERE;
}

/*
 * Of the value that comes next in the innermost level. Only paths that led into this level have as many steps matched as
 * there are levels around it; of those the next step is looked at, and whatever was found for the former value, or inside
 * of it, is forgotten.
 */
static Reach
reach_of_next(Document *document, const Cursor *cursor)
{
	const Level *level = innermost(cursor);
	int			passed = cursor->depth - 1;
	Reach		reach = REACH_NOWHERE;

	if (level->reach == REACH_HERE)
		return REACH_HERE;
	for (int i = 0; i < document->path_count; i++)
	{
		const HymtPath *path = &document->path[i];
		const HymtStep *step;
		bool		matches;

		if (document->matched[i] < passed)
			continue;
		step = &path->step[passed];
		matches = level->is_array ? hymt_step_is_element(step, level->number + 1, level->elements) :
			hymt_step_is_key(step, level->key, level->key_length);
		document->matched[i] = passed + matches;
		if (matches)
			reach = Max(reach, path->count == passed + 1 ? REACH_HERE : REACH_FURTHER);
	}
	return reach;
}

static void
add_string(Document *document, const JsonbValue *value)
{
	int			number = hymt_batch_add(document->batch, value->val.string.val, value->val.string.len);

	if (number < 0)
		return;
	if (document->count == document->room)
	{
		/* A document has fewer than 2^28 bytes, and a string here at least one. */
		document->room *= 2;
		document->place = repalloc_huge(document->place, document->room * sizeof(Place));
	}
	document->place[document->count++] = (Place) {.string = value->val.string.val, .number = number};
}

/* Puts all strings that the paths lead to, and that need the model, into the batch. */
static void
collect_strings(Document *document)
{
	Reach		reach = reach_of_root(document);	/* of the value that comes next */
	Cursor		cursor;
	JsonbIteratorToken token;
	JsonbValue	value;
	Level	   *level;

	if (reach == REACH_NOWHERE)
		return;
	init_cursor(&cursor, document->source);
	while ((token = advance(&cursor, &value, reach == REACH_NOWHERE)) != WJB_DONE)
	{
		CHECK_FOR_INTERRUPTS();
		level = innermost(&cursor);
		if (token == WJB_BEGIN_OBJECT || (token == WJB_BEGIN_ARRAY && level != NULL))
			level->reach = reach;
		else if (is_string(token, &value) && reach == REACH_HERE)
			add_string(document, &value);
		/* Before a key there is nothing to skip. */
		if (level != NULL && (level->is_array || token == WJB_KEY))
			reach = reach_of_next(document, &cursor);
	}
}

/* --- the translated document -------------------------------------------------------------------------------------- */

static void
put_result(const HymtBatch *batch, int number, JsonbValue *value)
{
	text	   *translation;

	/* No conversion makes a translation longer than a string may be. */
	StaticAssertStmt((HYMT_FRAME_MAX_BODY - sizeof(HymtResult)) * MAX_CONVERSION_GROWTH <= JENTRY_OFFLENMASK,
					 "translations fit into JSON strings");
	switch (hymt_batch_result(batch, number, &translation))
	{
		case HYMT_FATE_TRANSLATED:
			value->val.string.val = VARDATA_ANY(translation);
			value->val.string.len = VARSIZE_ANY_EXHDR(translation);
			break;
		case HYMT_FATE_NULL:
			value->type = jbvNull;
			break;
		case HYMT_FATE_KEPT:
			break;
	}
}

/* The document with the results in their places, still as values. */
static JsonbValue *
rebuild(const Document *document)
{
	JsonbIterator *iterator = JsonbIteratorInit(&document->source->root);
	JsonbParseState *state = NULL;
	JsonbValue *built = NULL;
	const Place *place = document->place;
	const Place *end = place + document->count;
	JsonbIteratorToken token;
	JsonbValue	value;

	while ((token = JsonbIteratorNext(&iterator, &value, false)) != WJB_DONE)
	{
		bool		has_value = token == WJB_KEY || token == WJB_VALUE || token == WJB_ELEM ||
			(token == WJB_BEGIN_ARRAY && value.val.array.rawScalar);

		CHECK_FOR_INTERRUPTS();
		if (place < end && is_string(token, &value) && value.val.string.val == place->string)
		{
			put_result(document->batch, place->number, &value);
			place++;
		}
		built = pushJsonbValue(&state, token, has_value ? &value : NULL);
	}
	if (place != end)
		elog(ERROR, "strings of a JSON document do not come in the order of their addresses");
	return built;
}

/* A new document in the memory context `result`; the same when nothing needs the model. Works in the current one. */
static Jsonb *
translate_document(Document *document, MemoryContext result)
{
	ErrorContextCallback callback = {.previous = error_context_stack, .callback = tell_place, .arg = document};
	JsonbValue *built;

	document->matched = palloc0(document->path_count * sizeof(int));
	document->room = 16;
	document->place = palloc(document->room * sizeof(Place));
	error_context_stack = &callback;
	collect_strings(document);
	if (document->count > 0)
		hymt_batch_translate(document->batch);
	error_context_stack = callback.previous;
	if (document->count == 0)
		return document->source;
	built = rebuild(document);
	MemoryContextSwitchTo(result);
	return JsonbValueToJsonb(built);
}

/* --- the function ------------------------------------------------------------------------------------------------- */

/* Without the paths, the arguments are those of hymt_translate(). */
static void
read_order(FunctionCallInfo fcinfo, HymtOrder *order)
{
	LOCAL_FCINFO(others, ARG_COUNT - 1);

	InitFunctionCallInfoData(*others, fcinfo->flinfo, ARG_COUNT - 1, PG_GET_COLLATION(), NULL, NULL);
	memcpy(others->args, fcinfo->args, ARG_PATHS * sizeof(NullableDatum));
	memcpy(others->args + ARG_PATHS, fcinfo->args + ARG_PATHS + 1, (ARG_COUNT - ARG_PATHS - 1) * sizeof(NullableDatum));
	hymt_read_order(others, order);
}

Datum
hymt_translate_json(PG_FUNCTION_ARGS)
{
	Document	document = {0};
	HymtOrder	order;
	Jsonb	   *result;
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext work;

	if (PG_ARGISNULL(ARG_DOCUMENT))
		PG_RETURN_NULL();
	if (PG_ARGISNULL(ARG_PATHS))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"paths\" must not be null")));
	document.source = PG_GETARG_JSONB_P(ARG_DOCUMENT);
	work = AllocSetContextCreate(caller, "hymt JSON", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(work);
	document.path = hymt_read_paths(PG_GETARG_ARRAYTYPE_P(ARG_PATHS), &document.path_count);
	read_order(fcinfo, &order);
	document.batch = hymt_batch_create(&order);
	result = translate_document(&document, caller);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(work);
	if (result != document.source)
		PG_FREE_IF_COPY(document.source, ARG_DOCUMENT);
	PG_RETURN_JSONB_P(result);
}
