/* hosts.h - the box's own name in its /etc/hostname and /etc/hosts */
#pragma once
#include "wire/wire.h"

struct channel;

/* Best effort, in a process of its own: file systems may be slow, and the first exec should not
 * wait. */
void hosts_write_name(void);
void hosts_follow_name(void); /* in this process, which may block */
/* /etc/hosts as it should be: the line for the old name is that for the new one, or goes when the
 * new name has another; all others stay. old "": there was none. Yours. */
char *hosts_with_name(const char *hosts, const char *old, const char *name);
/* The same on request. */
int hosts_open(struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err);
