/* network.h - the network of a box: its policy, its meters, connections into it
 *
 * Every box has a policy from its creation on; a box whose policy cannot be installed does not
 * start. Policies, spent budgets and the names with addresses are stored with the box
 * (store_network_*), so they survive stop, start and a restart of the daemon. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "policy/policy.h"
#include <stdint.h>

struct box;
struct yard;
struct audit;

struct audit *yard_get_audit(struct yard *yard);
/* The common log or, with log not NULL, the log of the tree with that id. */
struct audit *yard_find_audit(struct yard *yard, const char *log, struct err *err);
/* ids of trees with a log of their own; new reference */
json_t *yard_audit_logs(struct yard *yard);

/* ---- policy (policy.c) ---------------------------------------------------------------------- */

/* A document in the policy language as JSON: {"preset","allow",…}; NULL: the daemon's default. The
 * report (may be NULL) gets warnings. A policy without "preset" has the preset none. */
/* {"version","changed_at","preset","policy":{normal form},"effective":[{"rule","place"}] (with the
 * preset's rules),"package_hosts":[…],"recording"}; new reference. */
json_t *box_policy_json(struct box *box);
/* The policy of a box made without one, in its normal form; new reference. NULL with err when the
 * file named by default_policy cannot be read. */
json_t *yard_default_policy(struct yard *yard, struct err *err);
/* Replaces the policy at once, also of a running box; connections it forbids are closed. if_version
 * 0: any version; else ERR_STATE unless it is the current one. who appears in the audit log ("root
 * by the socket", a token's name). Afterwards box_policy_json has the new one. */
int box_policy_set(
	struct box *box, json_t *policy, uint64_t if_version, const char *who, struct err *err);
/* The same with the given policy merged into the current one (policy_merge); the preset stays
 * unless the given one names another. Rules that already exist are not added. */
int box_policy_add(
	struct box *box, json_t *policy, uint64_t if_version, const char *who, struct err *err);
/* {"allowed","text","reason","rule",…} (policy_explain_json, with "text"); new reference. */
json_t *box_policy_explain(struct box *box, const struct policy_flow *flow, struct err *err);
/* Turns watch mode on or off. A proposal can be asked for while it is on. */
int box_policy_record(struct box *box, bool on, const char *who, struct err *err);
/* {"since","policy":{…minimal},"text":"YAML with a comment of counts behind each
 * rule","destinations":[…]}; done is called once. */
void box_policy_proposal(struct box *box,
	void (*done)(void *arg, json_t *proposal, const struct err *err), void *arg);

/* ---- meters (network.c) --------------------------------------------------------------------- */

/* {"bytes_out","bytes_in","connections","connections_now","refused","questions","limits":{…},"destinations":[…],"minutes":[{"at","bytes_out","bytes_in",
 * "connections","refused"}] (the last hour),"hours":[…] (the last week)}; new reference. */
json_t *box_net_json(struct box *box);
void box_connections(
	struct box *box, void (*done)(void *arg, json_t *list, const struct err *err), void *arg);

/* ---- connections into a box (port.c) -------------------------------------------------------- */

enum port_access { PORT_PRIVATE, PORT_PUBLIC };

int port_access_from_name(const char *name, enum port_access *ret, struct err *err);

/* [{"port","access":"private|public","host_port":N|null,"default":bool,"problem"}]: the ports that
 * were set; all others are private. problem exists when the host's port could not be opened. New
 * reference. */
json_t *box_ports_json(struct box *box);
/* Sets a port. access NULL leaves it (a new one is private). host_port: -1 leaves it, 0 any free
 * one, else that port of 127.0.0.1, which is forwarded as plain TCP. Fails with ERR_EXISTS when the
 * host's port is taken. Stored with the box; the listener exists while the daemon runs. */
int box_port_set(struct box *box, uint16_t port, const enum port_access *access, int host_port,
	struct err *err);
int box_port_remove(struct box *box, uint16_t port, struct err *err); /* ERR_NOT_FOUND */
enum port_access box_port_access(const struct box *box, uint16_t port);
/* The port of URLs without one: set by `box port default`, else the only port that is set, else the
 * first exposed port of the image, else 8080. */
uint16_t box_port_default(const struct box *box);
int box_port_set_default(struct box *box, uint16_t port, struct err *err);
/* The URL of a port, which does not depend on the default port; port 0: the URL of the default
 * port. door: the TCP port of the API, 0 when it is closed. NULL: there is no URL. Yours to
 * free. */
char *box_port_url(const struct box *box, uint16_t port, uint16_t door);
enum { PORT_LOGIN_CODE_LEN = 32, PORT_LOGIN_TOKEN_MAX = 32, PORT_LOGIN_SECONDS = 300 };
/* Used instead of a token's id for logins made over the Unix socket, which has no tokens. */
#define PORT_LOGIN_SOCKET "socket"
/* Makes a code for one login to this box under this host name (lower case, no port). token: id of
 * the token that asks; the login ends with that token. */
int box_login_new(struct box *box, const char *host, const char *token,
	char ret_code[PORT_LOGIN_CODE_LEN + 1], struct err *err);
/* Checks a code and returns its token; a code is used up by this. */
bool box_login_take(
	struct box *box, const char *host, const char *code, char ret_token[PORT_LOGIN_TOKEN_MAX]);
/* Opens a connecting socket to a port of the box. A server may be in one of two places, so there
 * are two tries: 127.0.0.1 and then (second) ::1. In a box with a kernel of its own: its address,
 * and then, through box-init, its loopback. A sleeping box is woken; while that takes time *ret_fd
 * is -1: ask again when a woken_watch is called. Fails with ERR_STATE when the box does not run, or
 * is paused at a limit. */
int box_port_connect(struct box *box, uint16_t port, bool second, int *ret_fd, struct err *err);

/* ---- from box to box (gatekeeper.c) ---------------------------------------------------------- */

/* Called when box from connects to port 22 of box to, both policies agree, and nothing listens
 * there: a front door answers in its place. *ret_fd is a stream socket. NULL: none does. */
typedef int (*box_login_fn)(
	struct box *from, struct box *to, int *ret_fd, void *arg, struct err *err);
void yard_set_box_login(struct yard *yard, box_login_fn fn, void *arg);
