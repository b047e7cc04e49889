/* net_internal.h - shared by the files that measure the network
 *
 * net.c       the process, its commands, networks made by hand
 * net_rig.c   the test network: two namespaces, servers, a daemon, boxes; programs run in a box
 *             and outside
 * net_load.c  load made by this process itself: HTTP requests and DNS queries */
#pragma once
#include "attack/rig.h"
#include "base/err.h"
#include "conf/conf.h"
#include <stdint.h>
#include <sys/types.h>

struct client;
struct doors_plan;

enum { NET_LOAD_PORT = 9000, NET_WEB_PORT = 8080 };

#define NET_BOX	   "load"
#define NET_DOMAIN "bench.test" /* boxes may reach all names below it */

struct net_rig {
	struct rig rig;
	struct conf conf;
	struct client *client;
	char *program;	/* box-attacker, for use outside of boxes */
	int world;	/* its network namespace */
	pid_t far;	/* the server in the world */
	pid_t near;	/* the server beside us, by loopback */
	pid_t inside;	/* `box exec` of the one in NET_BOX */
	int inside_out; /* and its output */
	unsigned made;	/* boxes */
	struct doors_plan *plan;
};

enum net_place { PLACE_BOX, PLACE_DIRECT, PLACE_LOOPBACK };

struct net_figures {
	double first, second;
};

int net_rig_open(struct net_rig *ret, struct err *err);
int net_rig_close(struct net_rig *rig, struct err *err);
/* Makes a box that may reach NET_DOMAIN only. */
int net_rig_add_box(struct net_rig *rig, const char *name, struct err *err);
int net_rig_remove_box(struct net_rig *rig, const char *name, struct err *err);
/* Runs `box-attacker load WHAT HOST PORT …`; the place gives host and port. fresh: another name
 * each time. */
int net_rig_load(struct net_rig *rig, enum net_place place, const char *what, bool fresh,
	const char *amount, const char *flows, struct net_figures *ret, struct err *err);
/* Network namespaces of boxes, at most max; the caller closes them. Returns how many. */
size_t net_rig_namespaces(const struct net_rig *rig, int *ret, size_t max);

/* Keeps conns connections busy for ms: requests per second, and requests per CPU second of the
 * daemon; or, with one connection, the median time of a request in us. */
int net_load_requests(struct net_rig *rig, bool direct, size_t conns, unsigned ms,
	struct net_figures *ret, struct err *err);
/* Sends DNS queries out of most boxes for ms, as fast as answers come: answers per second, and
 * per CPU second of the gate. */
int net_load_questions(
	struct net_rig *rig, size_t most, unsigned ms, struct net_figures *ret, struct err *err);
