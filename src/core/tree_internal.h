/* tree_internal.h - trees as the files of core see them; see tree.h and tree.c */
#pragma once
#include "core/core_internal.h"
#include "core/tree.h"

struct tree {
	struct tree *next;
	struct tree_row row;
	bool recorded; /* it has limits of its own, and a row; else those of its only box hold */
	size_t users;  /* boxes, also those that are gone for everybody but us */
	int64_t event_tokens; /* see box_event_allowed */
	int64_t event_refill_us;
	uint64_t pids_refused; /* as far as told */
};

/* A box belongs to one from when it is listed until it is freed. */
void box_join_tree(struct box *box);
void box_leave_tree(struct box *box); /* accepts one of none */
bool tree_is_head(const struct box *box);
const struct box *tree_get_head(const struct tree *tree, const struct yard *yard); /* or NULL */
/* Its head if that runs, else any that does; NULL: none. */
struct box *tree_get_any(const struct tree *tree, const struct yard *yard);
/* Adds to the data of an event whose limit of "memory" or "pids" a box has reached: scope, limit,
 * tree, detail. */
void tree_scope_json(
	const struct box *box, enum instance_scope scope, const char *what, json_t *data);
size_t tree_count(const struct tree *tree, const struct yard *yard);

struct limits tree_limits(const struct tree *tree); /* zeros when it has none of its own */
/* What a box is given of its own limits, within its tree. */
struct limits tree_bound(const struct box *box, const struct limits *own);
/* What its tree has when a box gets these limits; BOX_LIMIT_DEFAULT in a field: it does not
 * change. */
struct limits tree_followed(const struct box *box, const struct limits *wanted);
/* ERR_INVALID when a box wants more than its tree has. BOX_LIMIT_DEFAULT in a field: it does
 * not. */
int tree_check_own(const struct box *box, const struct limits *wanted, struct err *err);
/* In the kernel and in the row, which is not stored yet. */
int tree_apply(struct yard *yard, struct tree *tree, const struct limits *limits, struct err *err);
int tree_record(struct yard *yard, struct tree *tree, enum store_grade grade, struct err *err);

struct limits yard_limits(const struct yard *yard); /* yard.c: of all boxes together */

/* Before the first fork from inside: the tree has the limits of its only box from now on. */
int tree_begin(struct box *box, struct err *err);
/* Would so many forks of a box as it is now find room? ERR_LIMIT: no. Without it the kernel would
 * make room by killing whoever is largest in the tree. */
int tree_check_fork(struct box *box, unsigned count, struct err *err);
int tree_check_memory(struct box *box, uint64_t more, struct err *err);
int tree_check_state(struct box *box, int state, struct err *err); /* a plain one, as a folder */

void tree_box_removed(struct box *box);
int tree_promoted(struct box *parent, struct box *child, struct err *err);

int trees_load(struct yard *yard, struct err *err); /* before the boxes are */
void trees_loaded(struct yard *yard);		    /* when they are, and before they are adopted */
void trees_close(struct yard *yard);
