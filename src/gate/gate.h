/* gate.h - the process between the boxes and the outside, as the daemon sees it
 *
 * What boxes send is read by a separate process without any privilege: it answers their DNS
 * questions, accepts their connections, applies the policy, connects by name and relays (`box
 * gate`, gate_main). The daemon gives it sockets, and it reports what happened. If it dies,
 * everything is closed until the daemon has started another; if the daemon dies, it ends.
 *
 *   gate.c      the daemon's end: start, messages, callbacks; orders.c sends orders
 *   reports.c   checks the gate's reports: it may be under the control of a box
 *   message.c   JSON with fds over a SEQPACKET socket; large texts go in a memfd
 *   process.c   the gate's main: drops privileges (privileges.c), loop, messages in
 *   tenant.c    a box as the gate knows it: policy, doors, figures
 *   names.c     its questions (dns_server), tcp.c its connections, udp.c its datagrams, flow.c what
 *               both have in common, refused.c what its own rules refused
 *   allot.c     limits of rules and what is spent of them, tally.c figures by destination, event.c
 *               lines for the log
 *   tree.c      what boxes of one tree share: connections at once, lines, a rate
 *   record.c    watch mode: what a box would need */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "net/doors.h"
#include <stdbool.h>
#include <stdint.h>

struct gate;
struct loop;
struct policy_rule;

/* Called from the loop; they must not free the gate. box is the id given with gate_add. */
struct gate_ops {
	/* An event for the audit log; borrowed.
	 * {"at","box","type","verdict","name","address","port","protocol","rule", "reason",…}, see
	 * docs/audit.md. Connections of a box have "from":"ADDRESS:PORT", its own end, and "to",
	 * the other as it sees it. */
	void (*event)(void *arg, const char *box, json_t *event);
	/* Once a second for each box where something changed: figures since it was added.
	 * {"bytes_out","bytes_in","connections",
	 * "connections_now","refused","questions","destinations":[{"name","address","port","protocol","bytes_out","bytes_in",
	 * "connections","connections_now","refused","last_at"}], "spent":{…}}; spent goes back in
	 * with gate_add. */
	void (*meters)(void *arg, const char *box, json_t *meters);
	/* A limit of the policy was reached.
	 * {"limit":"bytes|connections|rate","scope":"box|rule","rule","name","on_limit"}. At most
	 * once a second for each box and limit. */
	void (*limit)(void *arg, const char *box, json_t *data);
	/* The names with addresses have changed; pass saved to gate_add again. At most every two
	 * seconds. */
	void (*names)(void *arg, const char *box, json_t *saved);
	/* Few of the addresses reserved for names are left (gate_box.reserved). Store a higher
	 * number, then pass it to gate_reserve; until then new names may get no address. */
	void (*reserve)(void *arg, const char *box);
	/* Data was just given to a sleeping box (gate_asleep): on a connection of its own, or
	 * (from_peer) by another box connected to it. Called once for each; gate_asleep enables it
	 * again. */
	void (*traffic)(void *arg, const char *box, bool from_peer);
	/* A box wants to reach a port of another (its policy says so). Answer with gate_dialled. */
	void (*dial_box)(
		void *arg, const char *box, const char *name, uint16_t port, uint64_t ticket);
	/* A UDP flow needs its socket, see doors_open_udp. Answer with gate_dialled. */
	void (*open_udp)(void *arg, const char *box, const struct doors_endpoint *aim,
		const struct doors_endpoint *client, uint64_t ticket);
	/* The gate has released a dropped box: nothing more comes for it. May be NULL. */
	void (*left)(void *arg, const char *box);
	/* The process has ended; the gate cannot be used any more. */
	void (*down)(void *arg, const struct err *err);
};

struct gate_settings {
	const char *resolv_conf; /* text of the host's */
	const char *proxy,
		*no_proxy; /* HTTPS_PROXY, NO_PROXY of the daemon's environment; NULL: none */
	const char *const *host_ranges; /* addresses of this host: no box may reach them */
};

/* Starts the process (this program again, as `box gate`). */
int gate_open(struct loop *loop, const struct gate_settings *settings, const struct gate_ops *ops,
	void *arg, struct gate **ret, struct err *err);
/* Ends the process and waits for it, a second at most; last events, meters and names still come to
 * ops, and pending requests get ERR_CANCELLED. Accepts NULL. */
void gate_close(struct gate *gate);
pid_t gate_get_pid(const struct gate *gate);
/* Replaces the settings. */
void gate_set(struct gate *gate, const struct gate_settings *settings);

struct gate_box {
	const char *id;
	const char *name; /* for `boxes:` of others, and in messages */
	const char *tree; /* boxes of one tree share what the gate has; NULL: on its own */
	json_t *policy;	  /* in its normal form; borrowed */
	uint64_t version; /* of the policy */
	const char *const *package_hosts; /* of the image; NULL: none */
	json_t *names;			  /* as saved, or NULL; borrowed */
	uint64_t given;	   /* addresses that may have been given out, see synthetic_skip */
	uint64_t reserved; /* and those that may be from now on, see synthetic_reserve */
	json_t *spent;	   /* as reported, or NULL; borrowed */
	bool recording;
	unsigned asleep; /* enum gate_asleep, as for gate_asleep() */
};

/* What is told by ops->traffic. */
enum gate_asleep { GATE_TELL_OWN = 1, GATE_TELL_PEERS = 2 };

/* Serves the box. doors are handed over (closed here), also on failure. Messages are sent at once
 * or queued, never lost: an error means that the gate is gone or the policy is invalid. */
int gate_add(struct gate *gate, const struct gate_box *box, int doors[DOOR_COUNT], struct err *err);
/* Closes its connections. Its last events, meters and names may still come after this; its sockets
 * close soon, not at once. */
void gate_drop(struct gate *gate, const char *id);
/* Replaces the policy: connections that it forbids are closed; an event "policy" says how many. */
int gate_set_policy(struct gate *gate, const struct gate_box *box, struct err *err);
void gate_rename(struct gate *gate, const char *id, const char *name);
/* The box sleeps, and traffic of these kinds is to be reported; 0: it is awake. */
void gate_asleep(struct gate *gate, const char *id, unsigned what);
/* Watch mode: every name and public address is allowed and counted. */
void gate_record(struct gate *gate, const char *id, bool on);
/* What was seen in watch mode:
 * {"since","destinations":[{"name","address","port","protocol","connections","questions","bytes_out","bytes_in"}],
 * "private":[…what was refused all the same]}. done is called once from the loop; err set when the
 * gate is gone. */
void gate_recorded(struct gate *gate, const char *id,
	void (*done)(void *arg, json_t *seen, const struct err *err), void *arg);
/* More addresses may be given to names. */
void gate_reserve(struct gate *gate, const char *id, uint64_t reserved);
/* The names that have addresses now, as in ops->names, including everything answered to the box
 * before this call. NULL value: the box is not served. */
void gate_names(struct gate *gate, const char *id,
	void (*done)(void *arg, json_t *saved, const struct err *err), void *arg);
/* Its connections now:
 * [{"name","address","port","protocol","from","rule","bytes_out","bytes_in","since"}], at most
 * 1000. */
void gate_connections(struct gate *gate, const char *id,
	void (*done)(void *arg, json_t *list, const struct err *err), void *arg);
/* The text by which reports name a rule, in "spent" too; long ones are cut and distinguished by a
 * hash. To be freed. */
char *gate_rule_text(const struct policy_rule *rule);
/* fd is handed over; -1 with err. */
void gate_dialled(struct gate *gate, uint64_t ticket, int fd, const struct err *err);

/* The process itself: main of `box gate`, with the daemon's socket as fd 3. Returns the exit
 * code. */
int gate_main(void);
