/* sender.h - a buffer for bytes that a channel does not take at once
 *
 * What the channel does not take is kept; the writer is told to stop until it is gone. */
#pragma once
#include "link/link.h"

struct sender {
	struct chan *chan; /* NULL: not open yet, or closed */
	struct buf left;
	bool hold; /* keep all: the other end is not ready for it */
	bool eof, eof_sent;
};

bool sender_write(struct sender *sender, const void *data, size_t len); /* false: some waits */
void sender_write_end(struct sender *sender);
/* Call it when chan is open, no longer held, or takes more. False: some bytes still wait. */
bool sender_flush(struct sender *sender);
void sender_done(struct sender *sender); /* closes chan, too */
