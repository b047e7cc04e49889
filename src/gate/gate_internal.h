/* gate_internal.h - messages between the daemon and the gate, and what the files of the gate share
 *
 * Messages are objects with "do". On the wire a box has a new key for each gate_add, so that a late
 * report about a dropped box is never taken for the next one with the same id.
 *
 *   to the gate     settings {servers, proxy, no_proxy, host_ranges}
 *                   add {box, name, tree, policy, version, package_hosts, names, given, reserved,
 *                        spent, recording, doors} + fds
 *                   drop {box}   rename {box, name}
 *                   policy {box, policy, version, package_hosts, name}
 *                   record {box, on}   recorded {box, request}
 *                   connections {box, request}   names {box, request}   asleep {box, what}
 *                   reserve {box, reserved}   dialled {ticket, error, kind} + fd   end {}
 *   to the daemon   event {box, event}   meters {box, meters}   limit {box, data}
 *                   names {box, saved}   reserve {box}   traffic {box, peer}   dropped {box}
 *                   dial_box {box, name, port, ticket}   open_udp {box, aim, client, ticket}
 *                   answer {request, value} */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "gate/gate.h"
#include "gate/relay/dial.h"
#include "gate/dns/server.h"
#include "net/name_table.h"
#include "gate/relay/quota.h"
#include "gate/relay/relay.h"
#include "net/synthetic.h"
#include "gate/dns/upstream.h"
#include "policy/policy.h"

struct loop;

/* ---- message.c: the socket between them ----------------------------------------------------- */

enum {
	CHANNEL_TEXT_MAX = 32 * 1024, /* longer texts go in a sealed memfd */
	CHANNEL_BLOB_MAX = 16 * 1024 * 1024,
	CHANNEL_FDS_MAX = DOOR_COUNT,
	CHANNEL_QUEUE_MAX = 64 * 1024 * 1024, /* bytes that wait for the other side */
};

struct channel;
struct channel_ops {
	/* Sets the fds that it takes to -1; the others are closed afterwards. Fewer may arrive than
	 * were sent when there is no room for them. */
	void (*message)(void *arg, json_t *message, int *fds, size_t count);
	/* The other side has closed, or sent a malformed message. Called once, from the loop. */
	void (*ended)(void *arg, const struct err *err);
};
/* fd is owned. fds_max: messages with more are malformed. */
struct channel *channel_new(
	struct loop *loop, int fd, size_t fds_max, const struct channel_ops *ops, void *arg);
void channel_free(struct channel *channel); /* not from within its callbacks; accepts NULL */
/* Takes the reference and the fds. Sends at once or later, in order; a failure is reported by
 * ended. */
void channel_send(struct channel *channel, json_t *message, const int *fds, size_t count);
/* No more callbacks, and nothing more is sent. */
void channel_stop(struct channel *channel);
size_t channel_queued(const struct channel *channel); /* bytes */
/* Sends and receives until nothing is queued (or, with until_ended, the other side has closed), ms
 * at most. */
void channel_drain(struct channel *channel, bool until_ended, unsigned ms);

/* ---- gate.c, orders.c, reports.c: the daemon's end ------------------------------------------- */

struct member {
	struct named node; /* by key */
	struct member *next, **at;
	char *key, *id;
	bool dropped;
};

/* A pending request to the gate. */
struct request {
	struct request *next;
	uint64_t number;
	void (*done)(void *arg, json_t *value, const struct err *err);
	void *arg;
};

struct gate {
	struct loop *loop;
	const struct gate_ops *ops;
	void *arg;
	struct channel *channel;
	pid_t pid;
	int pidfd;
	struct loop_fd *exit_watch;
	struct name_table members;
	struct member *first;
	struct request *requests;
	uint64_t serial, number;
	bool is_down, is_closing;
	struct err why;
	int64_t window; /* clock_mono_us, and how many messages came since */
	unsigned came;
};

/* Kills the gate and reports it by ops->down, once, from the loop. */
void gate_go_down(struct gate *gate, const struct err *err);
int gate_check_settings(const struct gate_settings *settings, struct err *err);
void gate_send_settings(struct gate *gate, const struct gate_settings *settings);
/* run: what the child does instead of exec, for tests; NULL: exec. */
int gate_open_as(struct loop *loop, const struct gate_settings *settings,
	const struct gate_ops *ops, void *arg, int (*run)(void), struct gate **ret,
	struct err *err);
/* Checks a report of the gate; fails with ERR_PROTOCOL. */
int report_check(json_t *message, struct err *err);

/* ---- privileges.c --------------------------------------------------------------------------- */

/* Gives up everything that is not needed for existing sockets and new ones to the outside. */
int privileges_drop(struct err *err);

/* ---- process.c ------------------------------------------------------------------------------ */

enum {
	FLOWS_MAX = 4096, /* of one tree, whatever its policies say */
	/* Of those, not connected yet: names of one tree must not delay those of others. */
	FLOWS_NEW_MAX = 512,
	FLOW_FDS = 4,	  /* descriptors of one flow, at most */
	FDS_APART = 64,	  /* for everything that does not belong to a box */
	NAMES_MAX = 8192, /* synthetic addresses of one box */
};

struct process {
	struct loop *loop;
	struct channel *channel;
	struct upstream *upstream;
	struct dns_server *dns;
	struct relay_hub *hub;
	struct dial_proxy proxy;
	struct dial_settings dial;
	char **host_ranges;
	struct name_table tenants; /* by key */
	struct name_table trees;   /* by id */
	struct loop_timer *second;
	struct flow *waiting; /* for an answer to a ticket */
	uint64_t ticket;
	size_t flow_count;
	size_t fds_max;
	unsigned asleep; /* tenants whose traffic must be reported */
	int exit_code;
};

/* ---- tally.c: figures for each destination -------------------------------------------------- */

struct tally_row {
	struct named node; /* the key is made of what follows */
	char *key;
	char name[DNS_HOST_MAX];
	struct address address; /* of a named destination the last one it led to */
	uint16_t port;
	const char *protocol; /* a literal */
	const char *reason;   /* a literal, or NULL */
	uint64_t bytes_out, bytes_in, connections, now, refused, questions;
	int64_t last_us; /* clock_wall_us */
};

struct tally {
	struct name_table rows;
	size_t max;
	struct tally_row other; /* sum of the rows that were dropped; without a name */
	bool full;		/* some rows were dropped */
};

void tally_init(struct tally *tally, size_t max);
void tally_done(struct tally *tally);
/* The row of a destination: by name, or by address when name is "". Borrowed; valid until the next
 * call, longer when its `now` is raised by tally_enter. Never NULL: the row `other` when there is
 * no room. */
struct tally_row *tally_get(struct tally *tally, const char *name, const struct address *address,
	uint16_t port, const char *protocol);
void tally_enter(struct tally *tally,
	struct tally_row *row); /* a connection begins: counted, and the row stays */
void tally_leave(struct tally *tally, struct tally_row *row);
json_t *tally_json(const struct tally *tally); /* new array */

/* ---- allot.c: what rules with limits have left ---------------------------------------------- */

struct tenant;
struct allotment {
	struct named node;
	char *rule, *destination, *key; /* owned */
	struct quota quota;
	unsigned users;
	uint64_t ticked; /* spent at the last tick */
};

enum { ALLOTMENTS_MAX = 8192 };

/* NULL when there is no room. Each has one allot_release. */
struct allotment *allot_take(
	struct tenant *tenant, const struct policy_rule *rule, const char *destination);
void allot_release(struct tenant *tenant, struct allotment *allotment);
void allot_limits(struct allotment *allotment, const struct policy_limits *limits);
void allot_free_all(struct tenant *tenant);
json_t *allot_save(
	const struct tenant *tenant); /* {"box","rules":[{"rule","destination","bytes"}]} */
void allot_load(struct tenant *tenant, json_t *saved);
void allot_tick(struct tenant *tenant); /* rates that were reached */

/* ---- tree.c: boxes that were made from inside each other ------------------------------------ */

/* Boxes of one tree share one part of the gate's capacity: otherwise forks would multiply it. */
struct tree {
	struct named node;
	char *id;
	unsigned tenants;
	size_t flow_count, new_count;
	struct quota quota; /* only its rate: the highest of its tenants', when all have one */
	struct upstream_share share;
	struct dns_rate questions;
	int64_t events_saved_us, events_filled_at;
};

/* Adds a tenant; the tree is made if it does not exist. */
struct tree *tree_join(struct process *process, const char *id);
void tree_leave(struct process *process, struct tree *tree); /* freed with the last; accepts NULL */
/* The rate of one of its tenants has changed, or one has left. */
void tree_set_rate(struct process *process, struct tree *tree);

/* ---- tenant.c: a box ------------------------------------------------------------------------- */

enum limit_kind { LIMIT_BYTES, LIMIT_CONNECTIONS, LIMIT_RATE, LIMIT_KIND_COUNT };

struct tenant {
	struct named node; /* by key */
	struct process *process;
	struct tree *tree;
	char *key, *name;
	struct policy *policy;
	/* Of the policy; in watch mode the same with everything public allowed. */
	struct policy_matcher *matcher;
	uint64_t version;
	char **package_hosts;
	bool recording;
	unsigned asleep; /* enum gate_asleep: to be reported */

	int doors[DOOR_COUNT];
	struct loop_fd *watches[DOOR_COUNT]; /* those that are not the resolver's */
	struct loop_timer *pause;	     /* after it all doors are watched again */
	struct dns_box *dns;
	struct synthetic *names;
	uint64_t names_told; /* version that was reported last */
	int64_t names_due;   /* when to report them; 0: nothing new */
	uint64_t reserved;   /* addresses reserved for them */
	bool reserve_asked;

	struct dial_settings dial; /* the process's, with the tree's share */
	struct flow *flows;
	size_t flow_count;
	struct quota quota;
	uint64_t ticked;
	struct name_table allotments;

	struct tally destinations;
	uint64_t bytes_out, bytes_in, connections, refused, questions;
	bool changed; /* since the last meters */
	int64_t meters_due;

	struct record *record; /* of the last watch, or NULL */

	struct name_table repeats;
	uint64_t events_dropped;
	int64_t limit_told[LIMIT_KIND_COUNT][2];
};

int tenant_add(struct process *process, json_t *message, int *fds, size_t count, struct err *err);
void tenant_free(struct tenant *tenant, const char *why); /* sends its last figures */
struct tenant *tenant_find(struct process *process, const char *key);
int tenant_set_policy(struct tenant *tenant, json_t *message, struct err *err);
void tenant_rename(struct tenant *tenant, const char *name);
void tenant_set_recording(struct tenant *tenant, bool on);
/* The host's addresses have changed. */
void tenant_recompile(struct tenant *tenant);
void tenant_tick(struct tenant *tenant, int64_t now);
void tenant_reserve(struct tenant *tenant, uint64_t reserved);
/* Asks for more addresses in time, after a name may have got one. */
void tenant_check_reserved(struct tenant *tenant);
void tenant_set_asleep(struct tenant *tenant, unsigned what);
/* Data was given to the box. */
void tenant_data_came(struct tenant *tenant, enum gate_asleep how);
/* {"do","box"}: a message to add to and send. */
json_t *tenant_message(const struct tenant *tenant, const char *what);
void tenant_limit_reached(
	struct tenant *tenant, enum limit_kind kind, const struct allotment *allotment);
/* Stops reading the door for ms. */
void tenant_pause_door(struct tenant *tenant, enum door door, unsigned ms);

/* ---- event.c: events for the log ------------------------------------------------------------ */

enum {
	EVENT_KEY_MAX = 512,
	EVENT_TEXT_MAX = 256,
	EVENT_RULE_MAX = 256, /* thousands of them fit in one message */
	EVENT_RULE_CUT = EVENT_RULE_MAX - 32,
};

/* Untrusted text as an event may have it: printable ASCII, EVENT_TEXT_MAX bytes. New reference. */
json_t *event_text(const char *text);
/* Takes the reference. Above the rate the event is dropped and counted. */
void event_send(struct tenant *tenant, json_t *event);
/* Whether the same event was sent within ten seconds; it is then only counted. */
bool event_is_repeated(struct tenant *tenant, const char *key);
/* Sends a new event, and remembers it for event_is_repeated. */
void event_send_first(struct tenant *tenant, const char *key, json_t *event);
void event_tick(struct tenant *tenant, int64_t now);
void event_forget_all(struct tenant *tenant); /* what was counted is sent */
void event_put_rule(json_t *event, const struct policy_rule *rule);
/* Why a flow is refused, one line; buffer of EVENT_TEXT_MAX. */
const char *event_reason(const struct policy_verdict *verdict, const char *seen, char *out);

/* ---- flow.c: a connection, or a flow of datagrams ------------------------------------------- */

struct udp_pending;

struct flow {
	struct tenant *tenant;
	struct flow *next, **at;
	bool udp, is_box, held, told;
	char name[DNS_HOST_MAX];     /* "": an address was dialled */
	struct address aim, address; /* as the box sees it; as it is, family 0: not known */
	uint16_t port;
	struct doors_endpoint from;
	enum relay_check check;
	struct relay *relay;
	struct udp_pending *pending;
	struct udp_relay *udp_relay;
	struct allotment *allotment;
	struct tally_row *destination, *recorded;
	char *rule, *place;
	char *host, *method, *path;  /* of the last HTTP request; or NULL */
	char reason[EVENT_TEXT_MAX]; /* why it was refused later; "" */
	int64_t since_us, since_wall;
	uint64_t counted_out, counted_in;
	uint64_t ticket; /* 0: none */
	struct flow *next_waiting, **at_waiting;
};

/* Checks the policy and the limits. NULL: refused, counted and logged. */
struct flow *flow_admit(struct tenant *tenant, bool udp, const struct doors_endpoint *aim,
	const struct doors_endpoint *from);
struct policy_flow flow_question(const struct flow *flow);
/* Whether the flow may go to that address; if not, the flow knows why. */
bool flow_may(struct flow *flow, const struct address *address);
void flow_refuse(struct flow *flow, const char *reason);
/* The flow is connected: logs it as allowed. */
void flow_connected(struct flow *flow, const struct address *address);
void flow_count(struct flow *flow, uint64_t out, uint64_t in); /* so far */
/* Logs, counts and frees the flow. */
void flow_end(struct flow *flow, const struct relay_report *report);
/* Resets both sides; flow_end comes later. */
void flow_cut(struct flow *flow, const char *why);
/* Ends the flow at once, for boxes that are dropped. */
void flow_break(struct flow *flow, const char *why);
void flow_figures(struct flow *flow);
void flow_moved(struct flow *flow, bool out); /* some bytes moved just now */
json_t *flow_json(struct flow *flow);
/* Registers a request to the daemon; the answer comes to flow_answered. */
void flow_wait(struct flow *flow);
void flow_answered(struct process *process, uint64_t ticket, int fd, const struct err *err);

/* ---- names.c, tcp.c, udp.c, refused.c, record.c --------------------------------------------- */

extern const struct dns_server_ops names_ops;
bool names_may_be_private(const struct tenant *tenant, const char *name);
void tcp_ready(void *tenant, unsigned ready); /* loop_fd_fn */
void tcp_answered(struct flow *flow, int fd, const struct err *err);
void udp_ready(void *tenant, unsigned ready);
void udp_answered(struct flow *flow, int fd, const struct err *err);
void udp_cut(struct flow *flow, const char *why);
void udp_pending_free(struct flow *flow);
void udp_tick(struct flow *flow, int64_t now);
void refused_ready(void *tenant, unsigned ready);

struct record {
	int64_t since;
	struct tally seen, closed;
};
void record_start(struct tenant *tenant);
void record_free(struct tenant *tenant);
void record_question(struct tenant *tenant, const char *name);
struct tally_row *record_connection(struct flow *flow);
void record_closed(struct tenant *tenant, const char *name, const struct address *address,
	uint16_t port, const char *protocol);
json_t *record_json(const struct tenant *tenant);
