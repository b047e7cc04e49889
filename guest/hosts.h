/* hosts.h - the box's own name in its /etc/hostname and /etc/hosts */
#pragma once
#include "wire/wire.h"

struct channel;

/* Best effort, in its own process: file systems may be slow, and the first exec should not wait. */
void hosts_write_name(void);
void hosts_follow_name(void); /* in the calling process, which may block */
/* /etc/hosts with the new name: the line of the old name is changed, or removed when the new name
 * has a line already; all others stay. old "": there was none. Yours. */
char *hosts_with_name(const char *hosts, const char *old, const char *name);
/* The same on request. */
int hosts_open(struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err);
