/*
 * stream.c: hymt_translate_stream(): a translation in pieces, as they are generated.
 *
 * Runs in backends and parallel workers. Each call waits for the next piece and gives it as a row. Between calls nothing of
 * ours is on the stack: the request belongs to the resource owner of the portal (or whatever else was current when it was
 * submitted), and its pointer here becomes NULL when that goes. The memory of the function's calls goes with the portal, at
 * a LIMIT, at a rescan or at the end, and takes the request along. Either may come first.
 *
 * A session may leave a stream alone for hours. So its request has the limits of what is read ahead, and where these leave no
 * room the call translates as hymt_translate() does and gives one piece: it never waits for a slot on account of others
 * that do not read on.
 *
 * Keeps what it gave. Engines may be replaced in the middle of an answer: the next one begins anew, what was given is then
 * skipped, and a translation that does not begin with it is an error. So what was given is always the beginning of one
 * translation.
 */
#include "cache.h"
#include "progress.h"
#include "session.h"

#include "funcapi.h"
#include "lib/stringinfo.h"
#include "libpq/libpq.h"
#include "tcop/dest.h"
#include "tcop/tcopprot.h"

PG_FUNCTION_INFO_V1(hymt_translate_stream);

typedef struct Stream
{
	MemoryContextCallback callback;
	HymtRequestHandle *request; /* NULL: it ended */
	HymtOrder	order;
	const char *utf8;			/* the text, of these bytes */
	Size		length;
	text	   *source;			/* only where on_error may want it */
	int			attempt;		/* to compute the answer, that the last piece was of */
	Size		position;		/* in that one; behind it comes the next piece */
	StringInfoData piece;		/* that came last */
	StringInfoData given;		/* UTF-8: all that came of the answer */
	bool		any;			/* rows were given */
	bool		ended;
} Stream;

static void
memory_goes(void *arg)
{
	Stream	   *stream = arg;

	if (stream->request != NULL)
		hymt_request_release(stream->request);
}

/* --- what arrives -------------------------------------------------------------------------------------------------- */

/*
 * Bytes of the answer at the position. False when they are others than those that were given. What is new of them, behind
 * those, is appended to them.
 */
static bool
accept_bytes(Stream *stream, const char *bytes, Size length)
{
	Size		known = Min(length, stream->given.len - stream->position);

	if (memcmp(stream->given.data + stream->position, bytes, known) != 0)
		return false;
	appendBinaryStringInfo(&stream->given, bytes + known, (int) (length - known));
	stream->position += length;
	return true;
}

static void
raise_changed(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_HYMT_STREAM_CHANGED),
			 errmsg("the translation was begun anew and is not what it was"),
			 errdetail("The engine was replaced after a part of the translation had been returned."),
			 errhint("Ask for it again.")));
}

/* How a stream that failed ends, where on_error says so: nobody shall take what came of it for the whole. */
static text *
end_failed(Stream *stream)
{
	if (stream->request != NULL)
		hymt_request_release(stream->request);
	stream->ended = true;
	hymt_progress_failed();
	return stream->order.on_error == HYMT_ON_ERROR_SOURCE && !stream->any ? stream->source : NULL;
}

static text *
end_changed(Stream *stream)
{
	if (stream->order.on_error == HYMT_ON_ERROR_RAISE)
		raise_changed();
	return end_failed(stream);
}

/* The row for what was given since. */
static text *
row_of(Stream *stream, int since)
{
	uint32		character;
	text	   *row = hymt_utf8_to_server(stream->given.data + since, stream->given.len - since, &character);

	if (row != NULL)
		return row;
	if (stream->order.on_error == HYMT_ON_ERROR_RAISE)
		hymt_raise_unconvertible(character);
	return end_failed(stream);
}

/* The answer is there: *row becomes what was not given of it yet. False: that is nothing. */
static bool
take_end(Stream *stream, text **row)
{
	int			since = stream->given.len;
	HymtOutcome outcome;
	bool		same;

	hymt_request_wait(stream->request, &outcome);
	stream->ended = true;
	if (outcome.failure != HYMT_FAILURE_NONE)
	{
		if (stream->order.on_error == HYMT_ON_ERROR_RAISE)
			hymt_raise_outcome(&outcome);
		pfree(outcome.text);
		*row = end_failed(stream);
		return true;
	}
	stream->position = 0;
	same = outcome.text_length >= (Size) since && accept_bytes(stream, outcome.text, outcome.text_length);
	if (same)
		hymt_cache_store(&stream->order, stream->utf8, stream->length, &outcome);
	pfree(outcome.text);
	if (!same)
		*row = end_changed(stream);
	else if (stream->given.len > since || !stream->any)
		*row = row_of(stream, since);
	else
		return false;
	return true;
}

/*
 * Rows of a statement that is not read through a cursor lie in this process until there are 8 kB of them. Those before this
 * one are complete, and a client that takes row by row shall have them now.
 */
static void
send_rows(void)
{
	if (whereToSendOutput == DestRemote)
		(void) pq_flush_if_writable();	/* a client that is gone shows while we wait */
}

/* The next row, which may be a null. False: there is none. */
static bool
next_row(Stream *stream, text **row)
{
	while (!stream->ended)
	{
		int			since = stream->given.len;
		int			attempt;

		if (stream->request == NULL)
			elog(ERROR, "the stream of a translation was closed");
		resetStringInfo(&stream->piece);
		send_rows();
		if (!hymt_request_wait_piece(stream->request, &stream->piece, &attempt))
			return take_end(stream, row);
		if (attempt != stream->attempt)
			stream->position = 0;
		stream->attempt = attempt;
		if (!accept_bytes(stream, stream->piece.data, stream->piece.len))
			*row = end_changed(stream);
		else if (stream->given.len > since)
			*row = row_of(stream, since);
		else
			continue;
		return true;
	}
	return false;
}

/* --- the function ------------------------------------------------------------------------------------------------- */

static char *
copy_bytes(const char *bytes, Size length)
{
	char	   *copy = palloc_extended(length, MCXT_ALLOC_HUGE);

	if (length > 0)
		memcpy(copy, bytes, length);
	return copy;
}

/* In the memory of all calls, which is the current one. */
static Stream *
new_stream(const HymtOrder *order, const text *source, const char *utf8, Size length)
{
	Stream	   *stream = palloc0(sizeof(Stream));

	stream->order = *order;
	stream->order.context = copy_bytes(order->context, order->context_length);
	stream->utf8 = copy_bytes(utf8, length);
	stream->length = length;
	if (order->on_error == HYMT_ON_ERROR_SOURCE)
	{
		stream->source = palloc(VARSIZE_ANY(source));
		memcpy(stream->source, source, VARSIZE_ANY(source));
	}
	initStringInfo(&stream->piece);
	initStringInfo(&stream->given);
	stream->callback.func = memory_goes;
	stream->callback.arg = stream;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &stream->callback);
	return stream;
}

/* NULL when the text is translated without: it needs no model or was translated before, or there is no room for a stream. */
static Stream *
begin(const HymtOrder *order, const text *source, MemoryContext memory)
{
	const char *given = VARDATA_ANY(source);
	Stream	   *stream = NULL;
	Size		length;
	const char *utf8 = hymt_server_to_utf8(given, VARSIZE_ANY_EXHDR(source), &length);

	if (hymt_needs_model(order, utf8, length) && !hymt_cache_has(order, utf8, length))
	{
		HymtRequestSpec spec = hymt_request_spec(order, utf8, length);
		MemoryContext caller = MemoryContextSwitchTo(memory);

		stream = new_stream(order, source, utf8, length);
		MemoryContextSwitchTo(caller);
		if (!hymt_request_submit_stream(&spec, &stream->request))
			stream = NULL;
	}
	if (utf8 != given)
		pfree(unconstify(char *, utf8));
	return stream;
}

/* *row is the first row. Without a stream it is the only one. */
static Stream *
first_row(FunctionCallInfo fcinfo, MemoryContext memory, text **row)
{
	HymtOrder	order;
	text	   *source;
	Stream	   *stream;

	*row = NULL;
	if (PG_ARGISNULL(0))
		return NULL;
	hymt_read_order(fcinfo, &order);
	source = PG_GETARG_TEXT_PP(0);
	*row = hymt_human_find(&order, VARDATA_ANY(source), VARSIZE_ANY_EXHDR(source));
	if (*row != NULL)
		return NULL;
	stream = begin(&order, source, memory);
	if (stream == NULL)
		*row = hymt_translate_text(source, &order, NULL);
	else
		(void) next_row(stream, row);
	return stream;
}

Datum
hymt_translate_stream(PG_FUNCTION_ARGS)
{
	FuncCallContext *calls;
	Stream	   *stream;
	text	   *row;
	bool		more = true;

	if (SRF_IS_FIRSTCALL())
	{
		calls = SRF_FIRSTCALL_INIT();
		stream = first_row(fcinfo, calls->multi_call_memory_ctx, &row);
		calls->user_fctx = stream;
	}
	else
	{
		calls = SRF_PERCALL_SETUP();
		stream = calls->user_fctx;
		more = stream != NULL && next_row(stream, &row);
	}
	if (!more)
		SRF_RETURN_DONE(calls);
	if (stream != NULL)
		stream->any = true;
	if (row == NULL)
		SRF_RETURN_NEXT_NULL(calls);
	SRF_RETURN_NEXT(calls, PointerGetDatum(row));
}
