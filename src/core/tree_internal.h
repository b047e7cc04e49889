/* tree_internal.h - trees as the files of core see them; see tree.h and tree.c */
#pragma once
#include "core/core_internal.h"
#include "core/tree.h"

struct tree {
	struct tree *next;
	struct tree_row row;
	bool recorded; /* has limits of its own, and a row; else the limits of its only box apply */
	size_t users;  /* boxes, including those removed for everybody but us */
	int64_t event_tokens; /* see box_event_allowed */
	int64_t event_refill_us;
	uint64_t pids_refused; /* the part that was already reported */
};

/* A box belongs to a tree from when it is listed until it is freed. */
void box_join_tree(struct box *box);
void box_leave_tree(struct box *box); /* accepts a box without a tree */
bool tree_is_head(const struct box *box);
const struct box *tree_get_head(const struct tree *tree, const struct yard *yard); /* or NULL */
/* The head if it runs, else any running box of the tree; NULL: none. */
struct box *tree_get_any(const struct tree *tree, const struct yard *yard);
/* Adds to an event's data whose "memory" or "pids" limit was reached: scope, limit, tree,
 * detail. */
void tree_scope_json(
	const struct box *box, enum instance_scope scope, const char *what, json_t *data);
size_t tree_count(const struct tree *tree, const struct yard *yard);

struct limits tree_limits(const struct tree *tree); /* zeros when it has none of its own */
/* The effective limits of a box: its own, within those of its tree. */
struct limits tree_bound(const struct box *box, const struct limits *own);
/* The limits of the tree after a box gets these; BOX_LIMIT_DEFAULT in a field: no change. */
struct limits tree_followed(const struct box *box, const struct limits *wanted);
/* Fails with ERR_INVALID when a box asks for more than its tree has. BOX_LIMIT_DEFAULT in a field:
 * not asked for. */
int tree_check_own(const struct box *box, const struct limits *wanted, struct err *err);
/* Applies the limits in the kernel and in the row in memory, which is not stored yet. */
int tree_apply(struct yard *yard, struct tree *tree, const struct limits *limits, struct err *err);
int tree_record(struct yard *yard, struct tree *tree, enum store_grade grade, struct err *err);

struct limits yard_limits(const struct yard *yard); /* yard.c: of all boxes together */

/* Call it before the first fork from inside: the tree takes over the limits of its only box. */
int tree_begin(struct box *box, struct err *err);
/* Whether the tree has room for so many forks of the box as it is now; else ERR_LIMIT. Without this
 * check the kernel would make room by killing the largest process in the tree. */
int tree_check_fork(struct box *box, unsigned count, struct err *err);
int tree_check_memory(struct box *box, uint64_t more, struct err *err);
/* state: folder of an unpacked one */
int tree_check_state(struct box *box, int state, struct err *err);

void tree_box_removed(struct box *box);
/* child becomes the head where parent was: in the store; and, once that is committed, in memory. */
int tree_store_promotion(const struct box *parent, const struct box *child, struct err *err);
void tree_promoted(const struct box *parent, const struct box *child);

int trees_load(struct yard *yard, struct err *err); /* before the boxes are loaded */
/* when boxes are loaded, before they are adopted */
void trees_loaded(struct yard *yard);
void trees_close(struct yard *yard);
