/* ops.h - what a channel can be opened for */
#pragma once
#include "wire/wire.h"

struct channel;

/* Serves the request for channel: 0, and the channel has an owner or was freed; or -1, and the
 * channel is still the caller's. ERR_PROTOCOL: the request was malformed. */
int ops_open(struct channel *channel, const struct wire_frame *frame, struct err *err);
