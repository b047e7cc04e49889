/* core_internal.h - what the files of core share: a box and a yard with their fields */
#pragma once
#include "base/alloc.h"
#include "conf/conf.h"
#include "core/box.h"
#include "core/yard.h"
#include "store/store.h"

enum {
	BOX_ID_LEN = 10,
	UID_RANGE = 131072,
	UID_FIRST = 0x40000000, /* far above what /etc/subuid hands out */
	UID_SLOTS = 16384,
	STOP_GRACE_MS = 10000,
	EVENTS_KEPT = 100000,
};

/* Somebody waiting for a box to reach the end of what is being done to it. */
struct waiter {
	box_done done;
	void *arg;
	struct waiter *next;
};

struct box {
	struct yard *yard;
	struct box_row row; /* what the store has, kept in step with it */
	enum box_state state;
	struct instance *instance; /* NULL unless it runs */
	struct link *link;	   /* NULL while box-init cannot be reached */
	struct loop_timer *timer;  /* see box_timer_start */
	unsigned reconnects;
	bool link_ready;
	bool spare;	     /* started ahead, nobody's yet; see spare.c */
	bool command_is_new; /* its command runs for the first time */
	bool catch_up;	     /* adopted: programs may have ended while nobody watched */
	bool remove_wanted;  /* removal goes on once it has stopped */
	unsigned removal_tries;
	uint64_t oom_kills; /* since this start */
	struct waiter *waiters;
	struct waiter *removers; /* those who wait for it to be gone */
	int64_t event_tokens;	 /* see box_on_event: a box cannot flood the event log */
	int64_t event_refill_us;
	uint64_t events_dropped;
};

struct event_feed {
	struct yard *yard;
	event_fn fn;
	void *arg;
	struct event_feed *next;
	bool dead; /* freed while events were being handed out */
};

struct image;
struct trash;

struct yard {
	struct loop *loop;
	const struct conf *conf;
	struct store *store;
	struct images *images;
	struct engine *engine; /* ns; a table of them when there is a second */
	struct trash *trash;
	struct box **boxes; /* oldest first */
	size_t box_count;
	struct box *spares[CONF_SPARES_MAX];
	size_t spare_count;
	struct loop_timer *spare_timer;
	struct spare_kind {
		char *image; /* id */
		char *profile;
		unsigned times;	  /* asked for in a row */
	} spare_kind, other_kind; /* what is kept, and what was asked for instead lately */
	struct event_feed *feeds;
	unsigned feeding;
	struct loop_timer *idle;
	char boot[40];
	int64_t started_us;
	char last_event_at[32]; /* of the daemon before this one; see work.c */
	bool closing;
	void (*purge_done)(const struct err *err, void *arg);
	void *purge_arg;
	struct err purge_err;
};

/* box.c */
struct box *box_new(struct yard *yard, const struct box_row *row); /* takes the row's strings */
void box_list(struct box *box);					   /* into the list of boxes */
void box_free(struct box *box); /* out of the list, handles let go */
void box_set_state(struct box *box, enum box_state state, const char *intent);
void box_save(struct box *box, enum store_grade grade); /* logs a failure: the daemon goes on */
bool box_is_busy(const struct box *box);
char *box_disk_path(const struct box *box); /* yours */

/* life.c */
void box_wait(struct box *box, box_done done, void *arg);
void box_tell(struct box *box, const struct err *err); /* answers all waiters */
void box_tell_without(
	struct box *box, const struct err *err); /* the same, as if there were no box */
void box_tell_everybody(struct box *box, const struct err *err); /* removers too */
void box_finish_removal(struct box *box);
void box_ended(struct box *box, const char *reason, const char *detail);
extern const struct instance_ops box_instance_ops;
void box_instance_spec(
	const struct box *box, const struct image *image, char *disk, struct instance_spec *ret);
/* One timer a box: reconnects a running one, ends the patience with a stopping one. */
void box_timer_start(struct box *box, uint64_t ms);
/* Goes on with a purge when a box has gone. */
void yard_purge_step(struct yard *yard);

/* A box that never ran leaves nothing; one that ran before is stopped again, with the reason. */
void box_launch_failed(struct box *box, const struct err *why);
/* Makes the instance of a box. A spare is not recorded. */
int box_launch(struct box *box, struct err *err);
/* create.c: a uid range nobody has */
int box_pick_slot(struct yard *yard, uint32_t *ret, struct err *err);

/* spare.c */
void spares_open(struct yard *yard);
void spares_close(struct yard *yard);
/* A spare of that image and profile, out of the pool and running; NULL when there is none. */
struct box *spare_take(struct yard *yard, const char *image, const char *profile);
void spare_discard(struct box *box);			  /* taken, but of no use */
void spare_ended(struct box *box, const struct err *why); /* why NULL: on request */
void spares_drop(struct yard *yard);			  /* all; for a purge */
void spares_check(struct yard *yard); /* now and then: is their image still there? */
size_t spares_ready(const struct yard *yard);

/* work.c */
void box_is_up(struct box *box, bool created); /* it runs: its command, those who wait, events */
void box_tell_name(struct box *box);	       /* files inside follow the host name */
int box_connect(struct box *box, struct err *err); /* starts a link to box-init */
void box_disconnect(struct box *box);
void box_reconnect(struct box *box);
bool box_run_command(struct box *box); /* false: there is none, or it is known not to start */

/* recover.c */
int yard_recover(struct yard *yard, struct err *err);

/* trash.c - folders on their way out: renamed away at once, removed by a helper process */
struct trash *trash_open(struct loop *loop, const char *home, struct err *err);
void trash_close(struct trash *trash);
int trash_take(struct trash *trash, const char *path, struct err *err); /* missing is fine */
bool trash_is_empty(struct trash *trash);

/* names.c - "quiet-otter": easy to say, easy to type */
char *name_make_up(void);
