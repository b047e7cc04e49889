/* neighbours.h - ARP and NDP entries, of which the machine has one table for all networks */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct ns_engine;
struct ns_instance;

/* Counts the entries in every network that these processes are in, have a socket or a descriptor
 * of, or have mounted (`ip netns add`); only in networks that belong to a box. When there are more
 * than most, all are removed: a process that needs one asks for it again. UINT_MAX: too many to
 * examine. For a process that may block, and that may be left in another network. */
unsigned neighbours_walk(const pid_t *pids, size_t count, unsigned most);
/* Whether emptied networks are kept, to be emptied again by neighbours_finish: entries may be added
 * until their processes were killed. */
bool neighbours_has_kept(void);
void neighbours_finish(void);

/* Called in the daemon, some times a second: when a table is half full, asks which box has the
 * most. */
void neighbours_look(struct ns_engine *engine);
/* Handles the answer. A box that has too many repeatedly loses its processes, at last box-init. */
void neighbours_judge(struct ns_engine *engine, struct ns_instance *instance, unsigned number);
