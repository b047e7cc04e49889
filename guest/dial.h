/* dial.h - a channel to a TCP port inside the box */
#pragma once
#include "wire/wire.h"

struct channel;

int dial_open(struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err);
