/* worker.h - work that may block, each piece in a process of its own
 *
 * box-init forwards frames between the channel and the worker, within the windows, and never
 * waits. */
#pragma once
#include "wire/wire.h"
#include <sys/types.h>

struct channel;

int worker_open(struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err);
bool worker_reaped(pid_t pid); /* true if it was one */
