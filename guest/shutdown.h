/* shutdown.h - the end of the box: TERM to all, KILL after a grace, then box-init exits */
#pragma once
#include "wire/wire.h"

struct channel;

int shutdown_open(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err);
/* Call it after children were reaped. left: there are more. */
void shutdown_children(bool left);
/* Whether the loop may end. */
bool shutdown_is_done(void);
