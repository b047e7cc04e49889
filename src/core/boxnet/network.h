/* network.h - the network of a box: its policy, its meters, the ways into it
 *
 * Every box has a policy, from its creation on; a box whose policy cannot be installed does not
 * start. Policies, budgets spent and the names that have addresses are kept with the box
 * (store_network_*), so they survive stop, start and the daemon. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "policy/policy.h"
#include <stdint.h>

struct box;
struct yard;
struct audit;

struct audit *yard_get_audit(struct yard *yard);
/* The common log, or (log not NULL) that of a tree which has one of its own, by its id. */
struct audit *yard_find_audit(struct yard *yard, const char *log, struct err *err);
json_t *yard_audit_logs(struct yard *yard); /* ids of the latter; new reference */

/* ---- policy (policy.c) ---------------------------------------------------------------------- */

/* A document in the policy language as JSON: {"preset","allow",…}; NULL: the daemon's default. The
 * report (may be NULL) gets warnings. A policy that does not say its preset has none. */
/* {"version","changed_at","preset","policy":{normal form},"effective":[{"rule","place"}] (with the
 * preset's rules),"package_hosts":[…],"recording"}; new reference. */
json_t *box_policy_json(struct box *box);
/* What a box gets that is made without one, in its normal form; new reference. NULL with err when
 * the file that default_policy names cannot be read. */
json_t *yard_default_policy(struct yard *yard, struct err *err);
/* Replaces it, at once, also of a running box; connections it forbids are cut. if_version 0:
 * whatever the version is now; else ERR_STATE when it is another. who is told in the audit log
 * ("root by the socket", a token's name). Answers what box_policy_json does. */
int box_policy_set(
	struct box *box, json_t *policy, uint64_t if_version, const char *who, struct err *err);
/* The same with what it has and the given one on top (policy_merge); the preset stays unless the
 * given one says another. What is allowed already is not added. */
int box_policy_add(
	struct box *box, json_t *policy, uint64_t if_version, const char *who, struct err *err);
/* {"allowed","text","reason","rule",…} (policy_explain_json, with "text"); new reference. */
json_t *box_policy_explain(struct box *box, const struct policy_flow *flow, struct err *err);
/* Watch mode on or off. Off is not needed before asking for the proposal. */
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

/* ---- ways in (port.c) ----------------------------------------------------------------------- */

enum port_access { PORT_PRIVATE, PORT_PUBLIC };

int port_access_from_name(const char *name, enum port_access *ret, struct err *err);

/* [{"port","access":"private|public","host_port":N|null,"default":bool,"problem"}]: what was set
 * for a box; ports that were not are private. problem is there when the host's port could not be
 * had. New reference. */
json_t *box_ports_json(struct box *box);
/* access NULL leaves it (a new one is private). host_port: -1 leaves it, 0 any free one, else that
 * port of 127.0.0.1; plain TCP to it is led to the port in the box. ERR_EXISTS when the host's port
 * is taken. Kept with the box; the listener is there while the daemon runs. */
int box_port_set(struct box *box, uint16_t port, const enum port_access *access, int host_port,
	struct err *err);
int box_port_remove(struct box *box, uint16_t port, struct err *err); /* ERR_NOT_FOUND */
enum port_access box_port_access(const struct box *box, uint16_t port);
/* The port that URLs without one mean: what `box port default` set, else the one port that is set,
 * else the first of the image's exposed ports, else 8080. */
uint16_t box_port_default(const struct box *box);
int box_port_set_default(struct box *box, uint16_t port, struct err *err);
/* Where people find a port of it: always the same place, whatever is the default one; port 0: where
 * the default one is found, whichever that is. door: the TCP port of the API, 0 when it is closed.
 * NULL: there is no way. Yours to free. */
char *box_port_url(const struct box *box, uint16_t port, uint16_t door);
enum { PORT_LOGIN_CODE_LEN = 32, PORT_LOGIN_TOKEN_MAX = 32, PORT_LOGIN_SECONDS = 300 };
/* In the place of a token's id: made by the unix socket, where there are none. */
#define PORT_LOGIN_SOCKET "socket"
/* A code that logs in once to this box under this host name (in lower case, no port); token: the id
 * of the one that asks, with which the login ends. */
int box_login_new(struct box *box, const char *host, const char *token,
	char ret_code[PORT_LOGIN_CODE_LEN + 1], struct err *err);
/* Whether it is one, and whose; it is used up then. */
bool box_login_take(
	struct box *box, const char *host, const char *code, char ret_token[PORT_LOGIN_TOKEN_MAX]);
/* A socket connecting to a port of a box, by its loopback; v6: by ::1. A box that sleeps is woken;
 * when that takes its time, *ret_fd is -1: ask again when a woken_watch hears of it.
 * ERR_STATE when it does not run, or sleeps because of a limit. */
int box_port_connect(struct box *box, uint16_t port, bool v6, int *ret_fd, struct err *err);
