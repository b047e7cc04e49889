/* sender.h - bytes for a channel that does not take them all at once
 *
 * What the channel does not take waits here; whoever writes is told to stop until it is gone. */
#pragma once
#include "link/link.h"

struct sender {
	struct chan *chan; /* NULL: not open yet, or over */
	struct buf left;
	bool hold; /* keep all: the other end is not ready for it */
	bool eof, eof_sent;
};

bool sender_write(struct sender *sender, const void *data, size_t len); /* false: some waits */
void sender_write_end(struct sender *sender);
/* To be called when chan is there, is held no longer, or takes more. False: some waits still. */
bool sender_flush(struct sender *sender);
void sender_done(struct sender *sender); /* closes chan, too */
