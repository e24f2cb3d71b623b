/*
 * link.c: one conversation of a worker with one engine.
 *
 * Runs in the worker; owns the two byte queues (malloc'ed, because frames.c serves programs without PostgreSQL too). Every
 * byte from the engine is untrusted: the worker must survive an engine that has overwritten its own memory. Nothing here
 * blocks or raises.
 */
#include "postgres.h"

#include <errno.h>
#include <sys/socket.h>

#include "mb/pg_wchar.h"

#include "link.h"

/* Bytes read per call, so that a flood of frames does not keep the worker from its other duties. */
#define READ_PER_TURN (4 * 1024 * 1024)
#define READ_CHUNK (64 * 1024)

void
hymt_link_reset(HymtLink *link)
{
	hymt_bytes_free(&link->in);
	hymt_bytes_free(&link->out);
	memset(link, 0, sizeof(*link));
}

/* --- receiving --------------------------------------------------------------------------------------------------- */

bool
hymt_link_read(HymtLink *link, int socket)
{
	Size		total = 0;

	while (!link->ended && total < READ_PER_TURN)
	{
		char	   *room = hymt_bytes_reserve(&link->in, READ_CHUNK);
		ssize_t		got;

		if (room == NULL)
			return false;
		got = recv(socket, room, READ_CHUNK, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (got <= 0)
		{
			link->ended = true;
			break;
		}
		link->in.end += got;
		total += got;
	}
	return true;
}

static bool
is_utf8(HymtPart part)
{
	return pg_verify_mbstr(PG_UTF8, part.data, (int) part.length, true);
}

static bool
decode_ready(HymtMessage *message)
{
	HymtReadyParts *parts = &message->ready_parts;

	return hymt_decode_ready(&message->frame, &message->as.ready, parts) &&
		message->as.ready.credits > 0 &&
		is_utf8(parts->name) && is_utf8(parts->family) && is_utf8(parts->fingerprint) &&
		is_utf8(parts->precision) && is_utf8(parts->device) && is_utf8(parts->languages);
}

/* Whether the frame is well formed and may come at this point of the conversation. */
static bool
decode(HymtLink *link, HymtMessage *message)
{
	HymtFrame  *frame = &message->frame;

	message->text = (HymtPart) {"", 0};
	if (!link->hello)
		return hymt_decode_hello(frame, &message->as.hello, &message->text) && is_utf8(message->text);
	switch (frame->type)
	{
		case HYMT_FRAME_LOADING:
			return !link->ready && hymt_decode_loading(frame, &message->as.loading, &message->text) &&
				is_utf8(message->text);
		case HYMT_FRAME_READY:
			return !link->ready && decode_ready(message);
		case HYMT_FRAME_REFUSED:
			return !link->ready && hymt_decode_refused(frame, &message->as.refused, &message->text) &&
				is_utf8(message->text);
		case HYMT_FRAME_RESULT:
			return link->ready && hymt_decode_result(frame, &message->as.result, &message->text) &&
				is_utf8(message->text);
		case HYMT_FRAME_FAILURE:
			return link->ready && hymt_decode_failure(frame, &message->as.failure, &message->text) &&
				is_utf8(message->text);
		case HYMT_FRAME_PIECE:
			return link->ready && hymt_decode_piece(frame, &message->as.piece, &message->text) &&
				is_utf8(message->text);
		case HYMT_FRAME_HEARTBEAT:
			return hymt_decode_heartbeat(frame, &message->as.heartbeat);
		default:
			return false;
	}
}

HymtLinkStatus
hymt_link_next(HymtLink *link, HymtMessage *message)
{
	switch (hymt_frame_peek(&link->in, &message->frame))
	{
		case HYMT_FRAME_MORE:
			return HYMT_LINK_NOTHING;
		case HYMT_FRAME_GARBAGE:
			return HYMT_LINK_BROKEN;
		case HYMT_FRAME_OK:
			break;
	}
	if (!decode(link, message))
		return HYMT_LINK_BROKEN;
	if (message->frame.type == HYMT_FRAME_HELLO)
	{
		if (message->as.hello.protocol_version != HYMT_PROTOCOL_VERSION)
			return HYMT_LINK_SKEW;
		link->hello = true;
	}
	if (message->frame.type == HYMT_FRAME_READY)
		link->ready = true;
	return HYMT_LINK_MESSAGE;
}

void
hymt_link_done(HymtLink *link, const HymtMessage *message)
{
	hymt_frame_consume(&link->in, &message->frame);
}

/* --- sending ----------------------------------------------------------------------------------------------------- */

bool
hymt_link_request(HymtLink *link, const HymtClaim *claim)
{
	HymtRequest request = {
		.generation = claim->generation,
		.slot = (uint32_t) claim->slot,
		.max_new_tokens = (uint32_t) claim->max_new_tokens,
		.context_length = (uint32_t) claim->context_length,
		.draw = claim->draw,
		.text_length = (uint32_t) claim->text_length,
		.flags = claim->stream ? HYMT_REQUEST_STREAM : 0
	};
	HymtPart	parts[] = {{claim->context, claim->context_length}, {claim->text, claim->text_length}};

	strlcpy(request.source_lang, claim->source_lang, sizeof(request.source_lang));
	strlcpy(request.target_lang, claim->target_lang, sizeof(request.target_lang));
	strlcpy(request.adapter, claim->adapter, sizeof(request.adapter));
	return hymt_frame_append(&link->out, HYMT_FRAME_REQUEST, &request, sizeof(request), parts, 2);
}

bool
hymt_link_cancel(HymtLink *link, int slot, uint64 generation)
{
	HymtCancel	cancel = {.generation = generation, .slot = (uint32_t) slot};

	return hymt_frame_append(&link->out, HYMT_FRAME_CANCEL, &cancel, sizeof(cancel), NULL, 0);
}

void
hymt_link_write(HymtLink *link, int socket)
{
	while (hymt_link_unsent(link) > 0)
	{
		ssize_t		sent = send(socket, link->out.data + link->out.start, hymt_link_unsent(link),
								MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return;
		hymt_bytes_consume(&link->out, sent);
	}
}
