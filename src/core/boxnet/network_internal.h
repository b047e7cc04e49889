/* network_internal.h - what the files of core/boxnet share
 *
 *   network.c        the network of a box: made, stored, attached to its instance, released
 *   gatekeeper.c     the gate's process, its reports and requests; the host's own network
 *   network_names.c  addresses of names, across captures and crashes of the gate and the daemon
 *   network_aims.c   which traffic is led to the gate
 *   network_owners.c audit lines of connections, with the process that made them
 *   meters.c         figures over time
 *   policy.c         the policy of a box: read, changed, explained, watched
 *   port.c           connections into a box
 *   tunnel.c         connections of front doors into a box
 *   inlet.c          ports of a box that front doors listen on */
#pragma once
#include "core/boxnet/network.h"
#include "net/doors.h"
#include "store/store.h"

struct box;
struct yard;
struct box_spec;
struct gate;
struct loop_timer;
struct meters;

enum { NAMES_RESERVED = 2048 }; /* addresses at a time */

/* Every box has one, stopped or running, except spares. */
struct network {
	struct policy *policy; /* owned; as written, with the preset not expanded */
	uint64_t version;
	int64_t changed_us;
	char **package_hosts; /* owned; from the image, when the box was made */
	bool recording;
	int64_t recording_since_us; /* clock_mono_us of this daemon */
	json_t *names, *spent;	    /* owned or NULL; as last reported by the gate */
	uint64_t given; /* how many addresses may have been given to names; see network_names.c */
	uint64_t reserved; /* stored before the gate may give out so many */
	/* Owned or NULL; the maximum that any box forked from inside it has spent. */
	json_t *spent_below;
	struct meters *meters;
	json_t *ports;			 /* array, owned; see port.c */
	struct port_listener *listeners; /* owned by port.c */
	struct port_login *logins;	 /* owned by port_login.c */
	struct port_dial *dials;	 /* port_dial.c's */
	unsigned dial_count;
	struct inlet *inlets; /* inlet.c's */
	int netns;	      /* of the running instance; -1: none */
	bool served;	      /* the gate serves it */
	/* The gate has released it, and its last figures are still to come: see network_left. */
	bool leaving;
	bool adopted; /* the instance was started by an earlier daemon */
	/* a new instance waits until the old one's figures have come */
	bool waited_for;
	bool names_changed, spent_changed; /* since they were stored */
	/* Why it could not be attached, for those who wait for the box; .kind 0: it is attached. */
	struct err problem;
};

/* ---- network.c ------------------------------------------------------------------------------ */

/* For a new box from image (id), with the policy of the spec or the default. Nothing is stored. */
int network_new(struct yard *yard, const struct box_spec *spec, const char *image,
	struct network **ret, struct err *err);
/* For a fork: the parent's network, or another policy. Names keep their addresses, which programs
 * may remember. */
int network_fork(const struct box *parent, json_t *policy, struct network **ret, struct err *err);
void network_discard(struct network *net); /* a network without a box; accepts NULL */
/* Loads it from the store; a box from before boxes had networks gets the preset none. */
int network_load(struct box *box, struct err *err);
/* Stores the whole row with the box's; also after a change of policy or ports. */
int network_store(struct box *box, enum store_grade grade, struct err *err);
int network_store_as(struct yard *yard, const char *id, struct network *net, enum store_grade grade,
	struct err *err);
/* Stores what the gate has reported since the last time. */
void network_keep(struct box *box);
/* Stores the part that must not be lost: names with addresses, and budgets if the policy has
 * any. */
void network_keep_soon(struct box *box);
/* Stores names and their reservation now; when this fails, the addresses must not be used. */
int network_keep_names(struct box *box, struct err *err);
/* A budget is used up (data as the gate reported): stored at once, so that it survives any
 * crash. */
void network_spent_all(struct box *box, json_t *data);
/* Passes on what a fork from inside has spent: budgets are shared with later forks, also after its
 * removal. */
void network_spent_told(struct box *box);
void network_spend_fork(const struct box *parent, struct network *net);
/* The forks of the parent become the child's, and so does what they have spent. */
void network_promoted(const struct box *parent, struct box *child);
void network_free(struct box *box); /* closes listeners, tells the gate, closes the netns */
/* Opens sockets in the instance's namespace and hands them to the gate. When this fails the box
 * must not be used. */
int network_attach(struct box *box, struct err *err);
void network_detach(struct box *box); /* the instance has ended */
void network_lost(struct box *box);   /* the gate has died: attach again */
/* The gate has sent its last report about a detached box. Only then may it be attached again:
 * earlier figures would be lost. */
void network_left(struct box *box);
void network_adopt(struct box *box); /* an instance that ran before this daemon; to be attached */
/* Tells the gate and the namespace the new policy in box->net. Nothing is stored. */
int network_apply_policy(struct box *box, struct err *err);
void network_renamed(struct box *box);
/* The box fell asleep or woke: while it sleeps, the gate reports at once when data comes for it. */
void network_asleep(struct box *box);
/* Addresses of this host as the gate has them; for policy_world. NULL-terminated, borrowed. */
const char *const *networks_host_ranges(struct yard *yard);

/* ---- inlet.c --------------------------------------------------------------------------------- */

void inlets_lose(struct network *net); /* the instance has ended: closes all of them */

/* ---- network_names.c ------------------------------------------------------------------------ */

/* The text for the store, yours; and back, into net. */
char *network_names_text(const struct network *net);
void network_names_load(struct network *net, const char *text);
/* The JSON for a capture. exact: the gate's answer, or NULL when it could not be asked. New
 * reference. */
json_t *network_names_json(const struct network *net, json_t *exact);
/* The gate or the daemon has died: names may have got addresses that are not known here. Those are
 * not given to other names. */
void network_names_lost(struct network *net);
void network_names_left(struct network *net); /* the gate has reported all of them */
/* Prepares the names of a box about to be attached: takes over those of the state it is restored
 * from, and reserves enough addresses. */
int network_names_attach(struct box *box, struct err *err);
/* The gate needs more addresses. */
void network_names_reserve(struct box *box);

/* ---- network_aims.c ------------------------------------------------------------------------- */

int network_set_aims(struct network *net, struct err *err);
bool network_has_aims(const struct network *net); /* needs more than a new namespace has */

/* ---- network_owners.c ----------------------------------------------------------------------- */

struct owners;
struct owners *owners_new(struct yard *yard);
void owners_free(struct owners *owners); /* after all boxes are; accepts NULL */
/* Writes the line of a connection into the log of the box; takes line. With the process that made
 * the connection, where that is known. The line of a box with a kernel of its own is written a
 * little later: the box is asked. */
void owners_tell(struct owners *owners, struct box *box, json_t *line);
void owners_settle(struct owners *owners); /* writes the lines that wait; accepts NULL */

/* ---- gatekeeper.c --------------------------------------------------------------------------- */

int networks_open(struct yard *yard, struct err *err);
/* Ends the gate after its last reports; call it before the boxes are released. */
void networks_stop(struct yard *yard);
void networks_close(struct yard *yard);
/* Whether the policy of box lets a box called name in. */
bool network_names_peer(const struct box *box, const char *name);
/* A box that others connect to has woken; err: it will not wake. */
void networks_box_woken(struct box *box, const struct err *err);
struct gate *yard_gate(struct yard *yard);     /* NULL while there is none */
char *yard_box_resolv_conf(struct yard *yard); /* for the driver; yours to free */
/* {"ok","detail"} for info and doctor; new reference. */
json_t *networks_json(struct yard *yard);

/* ---- policy.c ------------------------------------------------------------------------------- */

/* The policy a new box gets: given (JSON, borrowed) or, when NULL, the daemon's default. */
int policy_for_new(struct yard *yard, json_t *given, struct policy **ret, struct err *err);
/* Called now and then: watch mode ends after an hour. */
void policy_record_check(struct box *box);
/* The hosts of an image's package managers; cached for each image. Yours to free (strv). */
char **package_hosts_of(struct yard *yard, const char *image);

/* ---- port.c --------------------------------------------------------------------------------- */

/* A box was loaded or created, or is removed: its listeners on the host follow. */
void ports_box_added(struct box *box);
void ports_box_removed(struct box *box);
