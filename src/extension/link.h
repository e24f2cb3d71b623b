/*
 * link.h: one conversation of a worker with one engine: bytes in and out of a non-blocking socket, and frames.
 *
 * Knows the order in which an engine may speak and that its texts must be UTF-8; does not know the queue. What a frame
 * means for requests is worker.c's concern.
 */
#ifndef HYMT_LINK_H
#define HYMT_LINK_H

#include "postgres.h"

#include "../protocol/frames.h"
#include "queue.h"

typedef struct HymtLink
{
	HymtBytes	in;
	HymtBytes	out;
	bool		hello;			/* received */
	bool		ready;			/* received */
	bool		ended;			/* nothing more will come */
} HymtLink;

/* A frame of the engine, decoded. Parts point into the link and are valid until the next call on it. */
typedef struct HymtMessage
{
	HymtFrame	frame;
	union
	{
		HymtHello	hello;
		HymtLoading loading;
		HymtReady	ready;
		HymtRefused refused;
		HymtResult	result;
		HymtFailureFrame failure;
		HymtHeartbeat heartbeat;
		HymtPieceFrame piece;
	}			as;
	HymtPart	text;			/* version, phase, message, translation or a piece of one */
	HymtReadyParts ready_parts;
} HymtMessage;

typedef enum HymtLinkStatus
{
	HYMT_LINK_NOTHING,			/* no complete frame yet */
	HYMT_LINK_MESSAGE,			/* call hymt_link_done() when done with it */
	HYMT_LINK_SKEW,				/* the engine speaks another version of the protocol */
	HYMT_LINK_BROKEN			/* garbage, a frame out of order, or a text that is not UTF-8 */
} HymtLinkStatus;

/* Forget the last conversation. */
extern void hymt_link_reset(HymtLink *link);

/* Take what has arrived, up to some bound. Sets link->ended at end of file or error. False when memory is out. */
extern bool hymt_link_read(HymtLink *link, int socket);
extern HymtLinkStatus hymt_link_next(HymtLink *link, HymtMessage *message);
extern void hymt_link_done(HymtLink *link, const HymtMessage *message);

/* Queue a frame for sending; false when memory is out. */
extern bool hymt_link_request(HymtLink *link, const HymtClaim *claim);
extern bool hymt_link_cancel(HymtLink *link, int slot, uint64 generation);

/* Send what the socket takes. Never blocks; an engine that is gone shows at the next read. */
extern void hymt_link_write(HymtLink *link, int socket);
static inline Size
hymt_link_unsent(const HymtLink *link)
{
	return hymt_bytes_length(&link->out);
}

#endif							/* HYMT_LINK_H */
