/* hosts.h - the box's own name in its /etc/hostname and /etc/hosts */
#pragma once

/* Best effort, in a process of its own: file systems may be slow, and the first exec should not wait. */
void hosts_write_name(void);
