/* hosts.h - the box's own name in its /etc/hostname and /etc/hosts */
#pragma once
#include "wire/wire.h"

struct channel;

/* Best effort, in a process of its own: file systems may be slow, and the first exec should not wait. */
void hosts_write_name(void);
void hosts_follow_name(void); /* in this process, which may block */
/* The same on request. */
int hosts_open(struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err);
