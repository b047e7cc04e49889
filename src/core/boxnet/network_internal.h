/* network_internal.h - what the files of core share about networks
 *
 *   network.c     the network of a box: made, kept, attached to its instance, let go
 *   gatekeeper.c  the gate's life, what it tells and asks; the host's own network
 *   network_names.c  addresses of names, across captures and deaths of the gate and the daemon
 *   network_aims.c  what of its traffic leads to the gate
 *   meters.c      figures over time
 *   policy.c    the policy of a box: read, changed, explained, watched
 *   port.c      ways in */
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

/* Of every box that is no spare, stopped or running. */
struct network {
	struct policy *policy; /* owned; as written, its preset not unfolded */
	uint64_t version;
	int64_t changed_us;
	char **package_hosts; /* owned; of the image when the box was made */
	bool recording;
	int64_t recording_since_us; /* clock_mono_us; of this daemon */
	json_t *names, *spent;	    /* owned or NULL; as the gate told last */
	uint64_t given; /* addresses of names that may have been given out; see network_names.c */
	uint64_t reserved; /* stored before the gate may give out so many */
	/* owned or NULL; the most that any box forked from inside it has spent */
	json_t *spent_below;
	struct meters *meters;
	json_t *ports;			 /* array, owned; see port.c */
	struct port_listener *listeners; /* port.c's */
	struct port_login *logins;	 /* port_login.c's */
	int netns;			 /* of the running instance; -1: none */
	bool served;			 /* the gate has it */
	/* the gate had it, and its last figures are still to come: see network_left */
	bool leaving;
	bool adopted;			   /* the instance is older than this daemon */
	bool waited_for;		   /* the instance is there, and goes on when it has left */
	bool names_changed, spent_changed; /* since they were stored */
	/* why it could not be attached, for who waits for the box; .kind 0: it is */
	struct err problem;
};

/* ---- network.c ------------------------------------------------------------------------------ */

/* For a box that is being made of image (id): policy from the spec or the default. Nothing is
 * stored. */
int network_new(struct yard *yard, const struct box_spec *spec, const char *image,
	struct network **ret, struct err *err);
/* For a fork: the parent's, or another policy; names keep their addresses, which programs in it may
 * know. */
int network_fork(const struct box *parent, json_t *policy, struct network **ret, struct err *err);
void network_discard(struct network *net); /* one that no box has; accepts NULL */
/* From the store; a box from before boxes had networks gets preset none. */
int network_load(struct box *box, struct err *err);
/* The whole row, with the box's; also after a change of policy or ports. */
int network_store(struct box *box, enum store_grade grade, struct err *err);
int network_store_as(struct yard *yard, const char *id, struct network *net, enum store_grade grade,
	struct err *err);
/* What the gate told lately, if it was anything. */
void network_keep(struct box *box);
/* Of that what must not be lost: names that have addresses, and budgets, if its policy has any. */
void network_keep_soon(struct box *box);
/* Names with their reservation, now; nothing may rest upon it when this fails. */
int network_keep_names(struct box *box, struct err *err);
/* A budget is used up (data as the gate told): kept at once, so that it stays so whoever dies
 * next. */
void network_spent_all(struct box *box, json_t *data);
/* Budgets of forks that a box makes of itself: what one has spent is not there for the next, also
 * when it was removed. */
void network_spent_told(struct box *box);
void network_spend_fork(const struct box *parent, struct network *net);
/* The forks of the parent are the child's from now on, and so is what they have spent. */
void network_promoted(const struct box *parent, struct box *child);
void network_free(struct box *box); /* listeners closed, the gate told, the netns let go */
/* The instance is there: sockets in its namespace, handed to the gate. The box must not be served
 * when this fails. */
int network_attach(struct box *box, struct err *err);
void network_detach(struct box *box); /* it has ended */
void network_lost(struct box *box);   /* the gate has: to be attached again */
/* The gate has told all it knew of a box that was detached. Only then it may be attached again:
 * what it spent before would be forgotten. */
void network_left(struct box *box);
void network_adopt(struct box *box); /* the instance ran before this daemon did; to be attached */
/* The policy in box->net is new: the gate and the namespace are told at once. Nothing is stored. */
int network_apply_policy(struct box *box, struct err *err);
void network_renamed(struct box *box);
/* It fell asleep, or is awake again: the gate tells at once when data comes for it. */
void network_asleep(struct box *box);
/* Addresses of this host, as the gate was told; for policy_world. NULL-terminated, borrowed. */
const char *const *networks_host_ranges(struct yard *yard);

/* ---- network_names.c ------------------------------------------------------------------------ */

/* As the store keeps them, to be freed; and back, into net. */
char *network_names_text(const struct network *net);
void network_names_load(struct network *net, const char *text);
/* As a capture keeps them: exact is what the gate answered, or NULL when it could not be asked. New
 * reference. */
json_t *network_names_json(const struct network *net, json_t *exact);
/* The gate or the daemon died: names may have got addresses that nobody here knows of. These are
 * not given to others. */
void network_names_lost(struct network *net);
void network_names_left(struct network *net); /* the gate has told all of them */
/* Of a box that is about to be attached: the names of the state it begins from are its own from now
 * on, and enough addresses are reserved. */
int network_names_attach(struct box *box, struct err *err);
/* The gate needs more of them. */
void network_names_reserve(struct box *box);

/* ---- network_aims.c ------------------------------------------------------------------------- */

int network_set_aims(struct network *net, struct err *err);
bool network_has_aims(const struct network *net); /* anything beside what a new namespace has */

/* ---- gatekeeper.c --------------------------------------------------------------------------- */

int networks_open(struct yard *yard, struct err *err);
/* The gate tells what it still knows, and ends; before the boxes are let go. */
void networks_stop(struct yard *yard);
void networks_close(struct yard *yard);
/* Does the policy of box let a box called name in? */
bool network_names_peer(const struct box *box, const char *name);
/* A box that others dialled is awake; err: it will not be. */
void networks_box_woken(struct box *box, const struct err *err);
struct gate *yard_gate(struct yard *yard);     /* NULL while there is none */
char *yard_box_resolv_conf(struct yard *yard); /* for the driver; yours to free */
/* {"ok","detail"} for info and doctor; new reference. */
json_t *networks_json(struct yard *yard);

/* ---- policy.c ------------------------------------------------------------------------------- */

/* The policy a new box gets: given (JSON, borrowed) or, when NULL, the daemon's default. */
int policy_for_new(struct yard *yard, json_t *given, struct policy **ret, struct err *err);
/* Now and then: watch mode ends after an hour. */
void policy_record_check(struct box *box);
/* The hosts of an image's package managers; kept in memory for each image. Yours to free (strv). */
char **package_hosts_of(struct yard *yard, const char *image);

/* ---- port.c --------------------------------------------------------------------------------- */

/* A box came (from the store, or new) or goes: its listeners on the host follow. */
void ports_box_added(struct box *box);
void ports_box_removed(struct box *box);
