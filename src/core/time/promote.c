/* promote.c - a fork takes the place of the box it was forked from
 *
 * The parent becomes a snapshot on its own time line; the time line, the name, ports, URL, labels,
 * limits and the other forks of the parent go to the child; then the parent is removed. A fork's
 * own labels and limits belong to the attempt ("try=1", a tight limit): whoever removes all
 * attempts by their label does not mean the chosen one. A rollback to that snapshot undoes the
 * promotion. The child keeps its own policy, budgets and figures.
 *
 *   turn of the child ─► turn of the parent ─► parent's snapshot ─► time line, name and ports
 *   change hands in one transaction ─► the parent is removed
 *
 * Both turns are held to the end: nothing else begins with either box on the way. Promotions wait
 * for each other in one direction only, from a fork to its origin. */
#include "core/core_internal.h"
#include "core/boxnet/network_internal.h"
#include "core/time/timeline.h"
#include "core/tree_internal.h"
#include "base/alloc.h"
#include "base/log.h"
#include <stddef.h>

struct promotion {
	struct operation op;	    /* of the child */
	struct operation parent_op; /* and of the box it replaces, begun when it has the child */
	/* Whose turns it has; NULL: not yet, or not any more. */
	struct box *child_turn, *parent_turn;
	struct yard *yard;
	char *child, *parent; /* ids */
	json_t *was;	      /* the snapshot of the parent */
	bool adopted;	      /* the snapshot has taken over the state that the parent slept in */
	struct promote_spec spec;
	json_t *had;	    /* the child's own labels and limits */
	struct asker asker; /* who asked; an empty name: the daemon */
	json_done done;
	void *arg;
};

static void end_turn(struct box **turn)
{
	struct box *box = steal_ptr(turn);

	if (box)
		operation_end(box);
}

static void finish(struct promotion *promotion, const struct err *err)
{
	struct box *child = box_lookup(promotion->yard, promotion->child);
	_cleanup_json_ json_t *result = NULL;

	end_turn(&promotion->parent_turn);
	end_turn(&promotion->child_turn);
	if (!err && child)
		result = json_pack("{s:o,s:O,s:O}", "box", box_json(child), "was", promotion->was,
			"had", promotion->had);
	if (promotion->done)
		promotion->done(result, err, promotion->arg);
	free(promotion->child);
	free(promotion->parent);
	json_decref(promotion->was);
	json_decref(promotion->had);
	free(promotion);
}

/* ---- what changes hands ---------------------------------------------------------------------- */

/* Everything is stored in one transaction first, as rows that share their texts with those in
 * memory; memory changes once they are committed. So a failure leaves both as they were. */
struct handover {
	struct box *parent, *child;
	struct box_row parent_row, child_row; /* as they will be */
	char *aside;			      /* the parent's name until it is removed */
	char *fork_limits;		      /* of the child */
	const char *base; /* the parent's snapshot that the child was forked from, or "" */
};

static void handover_init(struct handover *handover, const struct promotion *promotion,
	struct box *parent, struct box *child)
{
	struct box_row *after = &handover->child_row;
	const struct box_row *row = &parent->row;
	const char *position = child->row.origin_position;

	*handover = (struct handover){
		.parent = parent,
		.child = child,
		.parent_row = *row,
		.child_row = child->row,
		.aside = xasprintf("was-%s", row->id),
		.fork_limits = lineage_promoted_limits(parent, child),
		/* It may have been deleted by a version that did not update the forks. */
		.base = snapshot_by_id(promotion->yard, position) ? position : "",
	};
	handover->parent_row.name = handover->aside;
	/* Without its state the parent is no longer hibernated, should a daemon find it. */
	if (promotion->adopted) {
		handover->parent_row.state_id = handover->parent_row.asleep_for = "";
		handover->parent_row.state = (char *)box_state_name(BOX_STOPPED);
		handover->parent_row.wake_us = 0;
	}
	after->name = row->name;
	if (!*after->position)
		after->position = (char *)handover->base;
	after->origin_box = row->origin_box;
	after->origin_snapshot = row->origin_snapshot;
	after->origin_position = row->origin_position;
	if (!promotion->spec.keep_labels)
		after->labels = row->labels;
	/* A promoted fork is removed on exit only if the parent was. */
	after->remove_on_exit = row->remove_on_exit;
	after->fork_limits = handover->fork_limits;
	after->generation = row->generation;
}

static void handover_done(struct handover *handover)
{
	free(handover->aside);
	free(handover->fork_limits);
}

/* The row of a snapshot on the joined time line. Those of the child without a parent are attached
 * to the snapshot that the child was forked from. False: it stays as it is. */
static bool moved(
	const struct handover *handover, const struct snapshot *snapshot, struct snapshot_row *ret)
{
	*ret = snapshot->row;
	if (!strcmp(ret->box, handover->child->row.id) && !*ret->parent)
		ret->parent = (char *)handover->base;
	else if (!strcmp(ret->box, handover->parent->row.id))
		ret->box = handover->child->row.id;
	else
		return false;
	return true;
}

/* Stores the network of a box with the ports of another. */
static int store_ports(struct box *box, const struct box *from, struct err *err)
{
	struct network net = *box->net;

	net.ports = from->net->ports;
	return network_store_as(box->yard, box->row.id, &net, STORE_KEPT, err);
}

static int store_rows(const struct handover *handover, struct err *err)
{
	struct box *parent = handover->parent, *child = handover->child;
	struct yard *yard = child->yard;
	struct snapshot_row row;

	for (size_t i = 0; i < yard->snapshot_count; i++)
		if (moved(handover, yard->snapshots[i], &row) &&
			store_snapshot_put(yard->store, &row, STORE_KEPT, err) < 0)
			return -1;
	if (store_ports(parent, child, err) < 0 || store_ports(child, parent, err) < 0 ||
		lineage_store_promotion(parent, child, err) < 0 ||
		tree_store_promotion(parent, child, err) < 0)
		return -1;
	/* Names are unique, so the parent gives its name up first. */
	if (store_box_update(yard->store, &handover->parent_row, STORE_KEPT, err) < 0)
		return -1;
	return store_box_update(yard->store, &handover->child_row, STORE_KEPT, err);
}

static void swap_ports(struct box *parent, struct box *child)
{
	json_t *ports = parent->net->ports;

	ports_box_removed(parent);
	ports_box_removed(child);
	parent->net->ports = child->net->ports;
	child->net->ports = ports;
}

static void change_hands(struct promotion *promotion, struct handover *handover)
{
	struct box *parent = handover->parent, *child = handover->child;
	const struct box_row *after = &handover->child_row;
	_cleanup_free_ char *name = xstrdup(after->name), *own_name = xstrdup(child->row.name);
	struct yard *yard = promotion->yard;
	struct snapshot_row row;

	for (size_t i = 0; i < yard->snapshot_count; i++)
		if (moved(handover, yard->snapshots[i], &row)) {
			text_replace(&yard->snapshots[i]->row.box, row.box);
			text_replace(&yard->snapshots[i]->row.parent, row.parent);
		}
	swap_ports(parent, child);
	lineage_promoted(parent, child);
	tree_promoted(parent, child);
	network_promoted(parent, child);
	/* The texts are those of the parent and of the child itself, so the base, which is one of
	 * the child's origins, comes first. */
	text_replace(&child->row.position, after->position);
	text_replace(&child->row.origin_box, after->origin_box);
	text_replace(&child->row.origin_snapshot, after->origin_snapshot);
	text_replace(&child->row.origin_position, after->origin_position);
	text_replace(&child->row.labels, after->labels);
	text_replace(&child->row.fork_limits, after->fork_limits);
	child->row.remove_on_exit = after->remove_on_exit;
	child->row.generation = after->generation;
	if (promotion->adopted) {
		text_replace(&parent->row.state_id, "");
		box_set_state(parent, BOX_STOPPED, INTENT_NONE);
	}
	text_replace(&parent->row.name, handover->aside);
	text_replace(&child->row.name, name);
	box_renamed(parent, name);
	box_renamed(child, own_name);
	ports_box_added(child);
}

/* One transaction, so that a crash leaves all or nothing. */
static int hand_over(
	struct promotion *promotion, struct box *parent, struct box *child, struct err *err)
{
	struct store *store = promotion->yard->store;
	struct handover handover;
	int status = -1;

	if (store_begin(store, err) < 0)
		return -1;
	handover_init(&handover, promotion, parent, child);
	if (store_rows(&handover, err) < 0)
		store_rollback(store);
	else
		status = store_commit(store, STORE_KEPT, err);
	if (status == 0) {
		change_hands(promotion, &handover);
		/* It is on the disk before the parent is removed. Not by the commit: if the disk
		 * failed there, the store would have what memory has not. */
		box_save(child, STORE_SAFE);
	}
	handover_done(&handover);
	return status;
}

/* The snapshot leaves its state to the hibernated parent again. */
static void give_back(struct promotion *promotion)
{
	struct snapshot *snapshot =
		snapshot_by_id(promotion->yard, json_get_text(promotion->was, "id"));

	if (promotion->adopted && snapshot)
		snapshot_forget_state(promotion->yard, snapshot);
}

/* Each limit by itself: one that the child already exceeds stays as it is. */
static void take_limits(struct box *parent, struct box *child)
{
	const uint64_t keep = BOX_LIMIT_DEFAULT;
	const struct box_row *row = &parent->row;
	const struct limits each[] = {
		{ row->cpu_milli, keep, keep, keep },
		{ keep, row->memory_bytes, keep, keep },
		{ keep, keep, row->disk_bytes, keep },
		{ keep, keep, keep, row->pids },
	};
	enum on_limit policy;
	struct err err = ERR_INIT;

	for (size_t i = 0; i < ARRAY_LEN(each); i++)
		if (box_set(child, &each[i], NULL, &err) < 0)
			log_warn("a promoted box keeps a limit of its own",
				kv_str("box", child->row.id), kv_err(&err));
	if (on_limit_from_name(row->on_limit, &policy, &err) == 0)
		box_set(child, &(struct limits){ keep, keep, keep, keep }, &policy, &err);
}

static void go_on(struct promotion *promotion, json_t *snapshot, const struct err *err)
{
	struct yard *yard = promotion->yard;
	struct box *parent, *child;
	struct err why = ERR_INIT;

	if (err) {
		finish(promotion, err);
		return;
	}
	promotion->was = json_incref(snapshot);
	parent = box_find(yard, promotion->parent, &why);
	child = parent ? box_find(yard, promotion->child, &why) : NULL;
	promotion->adopted = parent && !strcmp(parent->row.state_id, json_get_text(snapshot, "id"));
	/* Checked before anything changes hands. */
	if (child && box_is_busy(child))
		box_refuse_busy(child, &why);
	else if (child && box_is_busy(parent))
		box_refuse_busy(parent, &why);
	if (!child || why.kind || hand_over(promotion, parent, child, &why) < 0) {
		give_back(promotion);
		finish(promotion, &why);
		return;
	}
	if (!promotion->spec.keep_limits)
		take_limits(parent, child);
	yard_event(yard, "box.promoted", child,
		json_pack("{s:s,s:s}", "instead_of", promotion->parent, "was",
			json_get_text(snapshot, "id")));
	end_turn(&promotion->parent_turn);
	box_remove(parent, true, NULL, NULL);
	finish(promotion, NULL);
}

/* Continues in the name of who asked. */
static void on_snapshot(json_t *snapshot, const struct err *err, void *arg)
{
	struct promotion *promotion = arg;
	struct yard *yard = promotion->yard;
	const struct asker asker = promotion->asker; /* go_on() frees it */
	const struct asker *before = yard_set_asker(yard, *asker.who ? &asker : NULL);

	go_on(promotion, snapshot, err);
	yard_set_asker(yard, before);
}

static json_t *had_json(const struct box *child)
{
	_cleanup_json_ json_t *box = box_json(child);

	return json_pack("{s:O,s:O}", "labels", json_object_get(box, "labels"), "limits",
		json_object_get(box, "limits"));
}

/* ---- the turns ------------------------------------------------------------------------------ */

static struct promotion *of_parent(struct operation *op)
{
	return (struct promotion *)((char *)op - offsetof(struct promotion, parent_op));
}

static void begin_parent(struct operation *op, struct box *parent, const struct err *gone)
{
	struct promotion *promotion = of_parent(op);
	const struct box *child = box_lookup(promotion->yard, promotion->child);
	struct err err = ERR_INIT;

	if (!parent) {
		finish(promotion, gone);
		return;
	}
	promotion->parent_turn = parent;
	if (!child) {
		err_set(&err, ERR_STATE, "the fork of '%s' was removed meanwhile",
			parent->row.name);
		finish(promotion, &err);
		return;
	}
	snapshot_in_turn(parent,
		&(struct snapshot_spec){ .cause = "promote",
			.detail = child->row.name,
			.adopt = true,
			.wait_safe = true },
		on_snapshot, promotion);
}

static int check(struct box *child, struct box **ret_parent, struct err *err)
{
	struct box *parent =
		*child->row.origin_box ? box_find(child->yard, child->row.origin_box, NULL) : NULL;

	if (!*child->row.origin_box)
		return err_set(err, ERR_STATE, "box '%s' is not a fork", child->row.name);
	if (!parent)
		return err_set(err, ERR_STATE, "the box that '%s' was forked from is gone",
			child->row.name);
	if (box_is_busy(child)) {
		box_refuse_busy(child, err);
		return -1;
	}
	*ret_parent = parent;
	return 0;
}

static void begin_child(struct operation *op, struct box *child, const struct err *gone)
{
	struct promotion *promotion = (struct promotion *)op;
	struct box *parent;
	struct err err = ERR_INIT;

	if (!child) {
		finish(promotion, gone);
		return;
	}
	promotion->child_turn = child;
	if (check(child, &parent, &err) < 0) {
		finish(promotion, &err);
		return;
	}
	text_replace(&promotion->parent, parent->row.id);
	promotion->had = had_json(child);
	operation_queue(parent, &promotion->parent_op);
}

/* One of the boxes goes, or the daemon does. The snapshot fails then, or finds it gone. */
static void cancel_child(struct operation *op, struct box *box, const struct err *why)
{
	(void)box;
	(void)why;
	((struct promotion *)op)->child_turn = NULL;
}

static void cancel_parent(struct operation *op, struct box *box, const struct err *why)
{
	(void)box;
	(void)why;
	of_parent(op)->parent_turn = NULL;
}

static const struct operation_ops promotion_ops = {
	.name = "promotion",
	.begin = begin_child,
	.cancel = cancel_child,
};
static const struct operation_ops replaced_ops = {
	.name = "replacement by a fork",
	.begin = begin_parent,
	.cancel = cancel_parent,
};

void box_promote(struct box *child, const struct promote_spec *spec, json_done done, void *arg)
{
	struct yard *yard = child->yard;
	struct promotion *promotion;
	struct box *parent;
	struct err err = ERR_INIT;

	if (check(child, &parent, &err) < 0) {
		done(NULL, &err, arg);
		return;
	}
	promotion = xnew(struct promotion);
	*promotion = (struct promotion){ .op = { .ops = &promotion_ops },
		.parent_op = { .ops = &replaced_ops },
		.yard = yard,
		.child = xstrdup(child->row.id),
		.parent = xstrdup(parent->row.id),
		.spec = *spec,
		.done = done,
		.arg = arg };
	if (yard->asker)
		promotion->asker = *yard->asker;
	operation_queue(child, &promotion->op);
}
