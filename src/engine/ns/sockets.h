/* sockets.h - what the files about memory behind sockets share
 *
 *   sockets.c         looks at all boxes, and takes back what is too much
 *   socket_tables.c   what the kernel's tables of a network namespace tell
 *   socket_walk.c     what the sockets hold that processes have open, by asking each of them
 *   socket_walker.c   the process that does so for the daemon */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ns_engine;
struct ns_instance;

/* Bytes. counted: in TCP and UDP sockets, which the kernel should charge and limit itself;
 * uncounted: in netlink, raw and ping sockets. */
struct held {
	uint64_t uncounted, counted;
};
#define HELD_TOO_MUCH (UINT64_MAX / 2)

/* ---- socket_tables.c ------------------------------------------------------------------------ */

/* Adds what the sockets in pid's network namespace hold, as far as tables tell; a number up to few,
 * which cannot hold much, is not examined. Returns how many more there are that no table tells
 * enough of: TCP sockets, and those that have left their table. */
unsigned socket_tables_add(pid_t pid, unsigned few, struct held *held);
/* Pure: the sum of a column (from 0) of one of the kernel's socket tables; hexadecimal columns are
 * two numbers with ':'. */
uint64_t socket_tables_sum(const char *table, unsigned column, bool hexadecimal);
/* Pure: how many of used sockets are neither unix sockets nor in the tables that
 * socket_tables_add reads, from the text of /proc/net/protocols. */
unsigned socket_tables_untold(const char *protocols, unsigned used);

/* ---- socket_walk.c -------------------------------------------------------------------------- */

enum { WALK_PIDS_MAX = 8192 };

/* What the sockets hold that these processes and their threads have open, each socket once, in any
 * network. Too many descriptors count as HELD_TOO_MUCH. It may block when it closes the last copy
 * of a socket: not for the daemon. */
struct held socket_walk(const pid_t *pids, size_t count);

/* ---- socket_walker.c ------------------------------------------------------------------------ */

/* neighbours: NULL when the request was about sockets. */
typedef void (*walker_fn)(struct ns_engine *engine, struct ns_instance *instance, struct held held,
	const unsigned *neighbours);
/* fn is called with each answer. Without the process nothing is answered; the next request starts
 * it. */
void walker_open(struct ns_engine *engine, walker_fn fn);
void walker_close(struct ns_engine *engine);
/* Asks for the sockets of the instance's processes, unless a request is outstanding; or, with
 * neighbours, for those, of which it may have so many (see neighbours_walk). A box that keeps the
 * walker waiting is answered HELD_TOO_MUCH. */
void walker_ask(struct ns_engine *engine, struct ns_instance *instance, unsigned neighbours);
