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

/* Moves the time line. Snapshots of the child without a parent are attached to the parent's
 * snapshot that the child was forked from. */
static int move_time_line(struct yard *yard, struct box *parent, struct box *child, struct err *err)
{
	/* That snapshot may have been deleted by a version that did not update the forks. */
	const char *base =
		snapshot_by_id(yard, child->row.origin_position) ? child->row.origin_position : "";

	for (size_t i = 0; i < yard->snapshot_count; i++) {
		struct snapshot *snapshot = yard->snapshots[i];

		if (!strcmp(snapshot->row.box, child->row.id) && !*snapshot->row.parent)
			text_replace(&snapshot->row.parent, base);
		else if (!strcmp(snapshot->row.box, parent->row.id))
			text_replace(&snapshot->row.box, child->row.id);
		else
			continue;
		if (snapshot_record(yard, snapshot, STORE_KEPT, err) < 0)
			return -1;
	}
	if (!*child->row.position)
		text_replace(&child->row.position, base);
	return 0;
}

/* Gives a hibernated parent its state back. */
static void give_back(struct promotion *promotion, struct box *parent)
{
	const char *id = json_get_text(promotion->was, "id");
	struct snapshot *snapshot = snapshot_by_id(promotion->yard, id);

	if (!promotion->adopted)
		return;
	text_replace(&parent->row.state_id, id);
	if (parent->state == BOX_STOPPED)
		box_set_state(parent, BOX_HIBERNATED, INTENT_NONE);
	if (snapshot)
		snapshot_forget_state(promotion->yard, snapshot);
}

static int change_hands(
	struct promotion *promotion, struct box *parent, struct box *child, struct err *err)
{
	struct yard *yard = promotion->yard;
	_cleanup_free_ char *name = xstrdup(parent->row.name);
	_cleanup_free_ char *aside = xasprintf("was-%s", parent->row.id);
	json_t *ports = parent->net->ports;

	if (move_time_line(yard, parent, child, err) < 0)
		return -1;
	/* Without its state the parent is no longer hibernated, should a daemon find it; stored
	 * together with its name. */
	if (promotion->adopted) {
		text_replace(&parent->row.state_id, "");
		box_set_state(parent, BOX_STOPPED, INTENT_NONE);
	}
	/* Names are unique, so the parent gives its name up first. */
	ports_box_removed(parent);
	ports_box_removed(child);
	parent->net->ports = child->net->ports;
	child->net->ports = ports;
	if (box_rename(parent, aside, err) < 0 || box_rename(child, name, err) < 0)
		return -1;
	ports_box_added(child);
	if (lineage_promoted(parent, child, err) < 0 || tree_promoted(parent, child, err) < 0)
		return -1;
	network_promoted(parent, child);
	text_replace(&child->row.origin_box, parent->row.origin_box);
	text_replace(&child->row.origin_snapshot, parent->row.origin_snapshot);
	text_replace(&child->row.origin_position, parent->row.origin_position);
	if (!promotion->spec.keep_labels)
		text_replace(&child->row.labels, parent->row.labels);
	/* A promoted fork is removed on exit only if the parent was. */
	child->row.remove_on_exit = parent->row.remove_on_exit;
	if (network_store(child, STORE_KEPT, err) < 0 || network_store(parent, STORE_KEPT, err) < 0)
		return -1;
	return store_box_update(yard->store, &child->row, STORE_KEPT, err);
}

/* One transaction, so that a crash leaves all or nothing. */
static int hand_over(
	struct promotion *promotion, struct box *parent, struct box *child, struct err *err)
{
	struct yard *yard = promotion->yard;

	if (store_begin(yard->store, err) < 0)
		return -1;
	if (change_hands(promotion, parent, child, err) < 0) {
		store_rollback(yard->store);
		return -1;
	}
	return store_commit(yard->store, STORE_SAFE, err);
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
		give_back(promotion, parent);
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
		return err_set(err, ERR_STATE, "box '%s' is no fork", child->row.name);
	if (!parent)
		return err_set(err, ERR_STATE, "the box that '%s' was forked from is gone",
			child->row.name);
	if (box_is_busy(child))
		return box_refuse_busy(child, err);
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
