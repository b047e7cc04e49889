/* neighbours.h - addresses on a link (ARP, NDP), of which the machine has one table for all
 * networks */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct ns_engine;
struct ns_instance;

/* Counts those in every network that these processes are in, have a socket or a descriptor of, or
 * have mounted (`ip netns add`); only in networks that belong to a box. When there are more than
 * most, all are removed: who needs one asks for it again. UINT_MAX: too many to look at. For a
 * process that may wait, and that may be left in another network. */
unsigned neighbours_walk(const pid_t *pids, size_t count, unsigned most);
/* Whether networks were emptied and are kept, to be emptied again by neighbours_finish: what was
 * asked for until their processes were killed. */
bool neighbours_has_kept(void);
void neighbours_finish(void);

/* In the daemon, some times a second: when the table is half full, asks who has most of it. */
void neighbours_look(struct ns_engine *engine);
/* The answer. A box that has too many again and again loses its processes, at last box-init. */
void neighbours_judge(struct ns_engine *engine, struct ns_instance *instance, unsigned number);
