/* inside_internal.h - a request from inside a box; shared by inside.c (its life), inside_verbs.c
 * (what is done), lineage.c (how much) and identity.c (who the box is) */
#pragma once
#include "core/core_internal.h"
#include "core/exec.h"
#include "core/lineage.h"

struct ask;
struct piece;
struct telling;

struct inside {
	struct ask *asks;
	unsigned count;
	uint64_t seen;	/* the highest number of a request */
	unsigned links; /* connections to its box-init this daemon had */
	int64_t tokens; /* thousandths of what may be done; see lineage.c */
	int64_t refill_us;
	struct telling *telling;
	struct loop_timer *retry;
};

struct ask {
	struct box *box;
	uint64_t id;	 /* box-init's */
	uint64_t serial; /* ours, for those who come back later */
	char **words;
	uint64_t number;      /* of the next answer */
	struct piece *pieces; /* answers that are not given yet */
	struct chan *answer;  /* the first of them is under way */
	bool over;	      /* the last piece is in the list */
	struct exec *exec;    /* a program in a child whose output goes to whoever asked */
	struct ask *next;
};

/* inside.c */
struct inside *box_inside(struct box *box); /* made when it is needed */
void ask_out(struct ask *ask, const void *data, size_t len);
void ask_outf(struct ask *ask, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ask_json(struct ask *ask, const json_t *value);
/* Output of ask->exec, which gets its window back when whoever asked has taken it. */
void ask_relay(struct ask *ask, enum exec_stream stream, const void *data, size_t len);
/* The end: nothing is added to it any more; it goes when all was taken. */
void ask_done(struct ask *ask, int code);
void ask_fail(struct ask *ask, const struct err *err);
/* The same for an error whose hint was meant for people outside. */
void ask_fail_outer(struct ask *ask, const struct err *err);

/* For a verb that goes on when its asker, or its box, is gone. */
struct errand {
	struct yard *yard;
	char box[BOX_ID_LEN + 1];
	uint64_t serial;
	bool json;
	unsigned left;	/* parts that are not over */
	struct err err; /* the first failure among them */
};
struct errand *errand_new(struct ask *ask);
struct ask *errand_find(const struct errand *errand); /* NULL: nobody waits any more */

enum { ASK_WORDS_MAX = WIRE_WORDS_MAX };

/* inside_verbs.c */
/* Does what was asked, or answers why not. */
void inside_do(struct ask *ask, bool again);

/* lineage.c */
bool lineage_is_below(const struct box *box, const struct box *ancestor);
json_t *lineage_below(
	const struct box *box); /* an object whose keys are their ids; new reference */
/* The box itself, or one it descends from, that may ask for nothing; NULL: it may. */
const struct box *lineage_forbidden_by(const struct box *box);
/* May so much more be done, and for fork, with so many new boxes? The first takes it from the rate
 * if so. */
int lineage_charge(struct box *box, unsigned count, struct err *err);
int lineage_check_fork(struct box *box, unsigned count, struct err *err);

/* identity.c */
void identity_drop(struct box *box); /* without a word */
