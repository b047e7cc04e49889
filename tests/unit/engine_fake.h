/* engine_fake.h - a driver without a kernel: every step does what a test tells it to
 *
 * Its "processes" are entries of a list in this program. They outlive the daemon as real ones do:
 * a yard that is closed and opened again finds them (fake_find, adopt, leftovers). Behind each is
 * a box-init that speaks the wire protocol on a socketpair (fake_init.c). Their cgroups are real,
 * and empty; so are their network namespaces, in which core opens sockets.
 *
 * A driver promises to give up by itself what takes too long. So a start, a restore or a capture
 * that never answers fails with ERR_TIMEOUT after FAKE_LIMIT_MS; of box-init's answers and of the
 * end of a killed instance core has to think itself. */
#pragma once
#include "base/buf.h"
#include "engine/engine.h"

extern const struct engine_ops engine_fake; /* its name is "fake" */

enum { FAKE_LIMIT_MS = 120 * 1000 };
/* a closed port of the loopback that box-init dials; all others echo */
enum { FAKE_CLOSED_PORT = 9 };

enum fake_step {
	/* calls of the driver */
	FAKE_START,
	FAKE_ADOPT,
	FAKE_SWEEP,
	FAKE_CONNECT,
	FAKE_NETNS,
	FAKE_KILL, /* fails: the call fails and nothing ends; never: nothing ends */
	FAKE_FREEZE,
	FAKE_THAW,
	FAKE_LIMITS,
	FAKE_HOSTNAME,
	/* steps after a start; the first two also in a restore */
	FAKE_MARKED,
	FAKE_GOING,
	FAKE_READY,
	/* a capture, in this order */
	FAKE_CAPTURE,
	FAKE_REST,
	FAKE_COPY, /* capture_rest, in the helper */
	FAKE_TAKEN,
	FAKE_DONE,
	/* answers of box-init; fails: it closes the connection (hello), or answers with an error */
	FAKE_HELLO,
	FAKE_TOLD, /* the answer to its identity, or to a restore */
	FAKE_EXEC,
	FAKE_LIST, /* the list of its programs */
	FAKE_SHUTDOWN,
	FAKE_STEP_COUNT
};
const char *fake_step_name(enum fake_step step);

enum fake_how { FAKE_OK, FAKE_FAIL, FAKE_NEVER, FAKE_HOW_COUNT };
const char *fake_how_name(enum fake_how how);

/* Sets how the step goes the nth time from now that it is reached (1: the next); 0: every time. */
void fake_tell(enum fake_step step, unsigned nth, enum fake_how how);
void fake_tell_nothing(void); /* all steps succeed; resets the counters and the trace */
/* The steps reached since then, in order. */
size_t fake_trace(const enum fake_step **ret);
/* Sets a function that is called when a step is reached, before the step goes as set; NULL:
 * none. */
void fake_on_step(void (*fn)(size_t index, void *arg), void *arg);

extern bool fake_own_kernel;   /* drivers opened from now on have ENGINE_OWN_KERNEL */
extern struct buf fake_upper;  /* answer of boxes to WIRE_OP_TAR_UPPER */
extern bool fake_upper_breaks; /* that answer ends with an error */
extern char fake_image[256], fake_image_key[64]; /* instance_vm of the last start */
extern bool fake_states_unusual;		 /* captures made from now on need a trial */

/* ---- what a kernel would know --------------------------------------------------------------- */

struct fake_process {
	struct fake_process *next;
	char id[32], tree[32]; /* of the instance; "": none */
	struct instance_mark mark;
	bool frozen;
	bool listens; /* box-init is up */
	int netns;
	struct instance *instance; /* the instance that holds it; NULL: no daemon does */
};

struct fake_process *fake_find(const char *id); /* NULL: none */
size_t fake_count(void);			/* processes that run */
/* Ends a box from outside: nobody has asked for it. */
void fake_end(struct fake_process *process, enum instance_end end);
void fake_init_hang_up(struct fake_process *process); /* its box-init closes all connections */

/* Copies what runs, as it is at the moment a daemon dies. */
struct fake_process *fake_world_copy(void);
void fake_world_set(struct fake_process *copy); /* replaces what runs now; takes copy */
void fake_world_free(struct fake_process *list);
