/* fork.c - boxes from the state that a box has now, or had at a snapshot
 *
 *   rows of the children with intent "fork" ─► parent captured, its disk copied ─► parent goes on
 *                                             └► each child: disk ─► restored ─► told who it is ─►
 *                                             running
 *
 * One capture serves all of them. The copy of the disk that was made while the parent stood still
 * becomes the disk of the child that is launched last; the others get copies of it, made by a
 * helper one after the other, and begin as soon as theirs is there. Few are restored at once: more
 * would only get in each other's way.
 *
 * A child is a box of its own from the first moment: nothing of it depends on the parent. What
 * fails takes one child with it, and is told with its name. */
#include "core/core_internal.h"
#include "core/lineage.h"
#include "core/boxnet/network_internal.h"
#include "core/time/timeline.h"
#include "core/tree_internal.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "helper/helper.h"
#include "image/image.h"
#include "pool/pool.h"
#include "checkpoint/checkpoints.h"
#include <sys/socket.h>

enum { AT_ONCE = 4 };

struct child {
	struct forking *forking;
	struct box *box; /* NULL: failed, or not launched yet */
	char *id, *name;
	bool has_disk, launched, over;
	struct err err;
};

struct forking {
	struct operation op;
	struct yard *yard;
	struct forking *next;
	char *parent, *parent_name; /* id and name */
	struct box *box;	    /* the parent, while it is captured; else NULL */
	char *snapshot;		    /* id, or NULL: the present */
	/* the state they are restored from; NULL: a fresh start from the disk */
	char *state;
	bool own_state; /* made for this fork, and discarded afterwards */
	/* the state of a hibernated parent, held because it may wake meanwhile */
	bool pinned;
	bool used; /* the snapshot is held meanwhile */
	json_t *names, *env, *labels, *policy;
	bool disk_only, remove_on_exit, from_inside;
	unsigned count;
	struct child *children;
	char *image, *image_name;
	struct helper *helper; /* copies disks */
	const char *from_place;
	char *from_disk; /* the disk that is copied */
	struct box_capture_result result;
	int64_t started_us;
	json_done done;
	void *arg;
	bool stepping;
};

static void forking_free(struct forking *forking)
{
	struct forking **at = &forking->yard->forkings;

	while (*at && *at != forking)
		at = &(*at)->next;
	if (*at)
		*at = forking->next;
	helper_free(forking->helper);
	if (forking->own_state && forking->state)
		checkpoints_discard(forking->yard->checkpoints, forking->state, NULL);
	if (forking->pinned)
		checkpoints_unpin(forking->yard->checkpoints, forking->state);
	if (forking->used)
		snapshot_unuse(forking->yard, forking->snapshot);
	for (unsigned i = 0; i < forking->count && forking->children; i++) {
		free(forking->children[i].id);
		free(forking->children[i].name);
	}
	free(forking->children);
	free(forking->parent);
	free(forking->parent_name);
	free(forking->snapshot);
	free(forking->state);
	free(forking->image);
	free(forking->image_name);
	free(forking->from_disk);
	json_decref(forking->names);
	json_decref(forking->env);
	json_decref(forking->labels);
	json_decref(forking->policy);
	free(forking);
}

/* ---- the answer ----------------------------------------------------------------------------- */

static json_t *failure_json(const struct child *child)
{
	return json_pack("{s:s,s:I,s:{s:s,s:s,s:s}}", "name", child->name ? child->name : "",
		"index", (json_int_t)(child - child->forking->children), "error", "code",
		err_kind_code(child->err.kind), "message", child->err.message, "hint",
		child->err.hint);
}

static void answer(struct forking *forking)
{
	json_t *children = json_array(), *failed = json_array();
	_cleanup_json_ json_t *result = NULL;
	struct err err = ERR_INIT;

	for (unsigned i = 0; i < forking->count; i++) {
		struct child *child = &forking->children[i];
		struct box *box =
			child->err.kind ? NULL : box_find(forking->yard, child->id, &child->err);

		if (box)
			json_array_append_new(children, box_json(box));
		else
			json_array_append_new(failed, failure_json(child));
		if (child->err.kind && !err.kind)
			err = child->err;
	}
	if (json_array_size(children))
		err_clear(&err);
	result = json_pack("{s:o,s:o,s:I,s:I}", "children", children, "failed", failed, "paused_us",
		(json_int_t)forking->result.paused_us, "took_us",
		(json_int_t)(clock_mono_us() - forking->started_us));
	if (forking->done)
		forking->done(result, err.kind ? &err : NULL, forking->arg);
	forking_free(forking);
}

static void step(struct forking *forking);

static void child_over(struct child *child, const struct err *err)
{
	child->over = true;
	if (err)
		child->err = *err;
}

static void on_child(struct box *box, const struct err *err, void *arg)
{
	struct child *child = arg;

	child->box = box;
	child_over(child, err);
	step(child->forking);
}

/* Fails all children with one reason, except those already launched, which end by themselves. */
static void fail_all(struct forking *forking, const struct err *why)
{
	helper_free(steal_ptr(&forking->helper)); /* it would make disks for nobody */
	for (unsigned i = 0; i < forking->count; i++) {
		struct child *child = &forking->children[i];

		if (child->over || child->launched)
			continue;
		child_over(child, why);
		if (child->box) {
			struct box *box = steal_ptr(&child->box);

			box_remove_now(box);
		}
	}
}

/* ---- children ------------------------------------------------------------------------------- */

static char *merged(const char *text, json_t *more)
{
	_cleanup_json_ json_t *all = *text ? json_loads(text, 0, NULL) : NULL;

	if (!all)
		all = json_object();
	if (more)
		json_object_update(all, more);
	return json_text(all);
}

static int fill_row(struct forking *forking, const struct box *parent, struct child *child,
	struct box_row *row, struct err *err)
{
	struct yard *yard = forking->yard;
	char id[BOX_ID_LEN + 1];

	if (yard->box_count >= yard->conf->max_boxes) {
		err_set(err, ERR_LIMIT, "there are %zu boxes already, the most allowed",
			yard->box_count);
		return err_hint(err, "remove some, or raise max_boxes in boxyard.conf");
	}
	*row = box_row_copy(&parent->row);
	if (box_pick_slot(yard, &row->uid_slot, err) < 0)
		return -1;
	do
		random_id(id, BOX_ID_LEN);
	while (box_lookup(yard, id));
	text_replace(&row->id, id);
	text_replace(&row->name, child->name);
	text_replace(&row->state, "creating");
	text_replace(&row->intent, intent_name(INTENT_FORK));
	text_replace(&row->target, "");
	text_replace(&row->sleep_failure, "");
	text_replace(&row->idempotency, "");
	text_replace(&row->end_reason, "");
	text_replace(&row->end_detail, "");
	text_replace(&row->origin_box, parent->row.id);
	text_replace(&row->origin_snapshot, forking->snapshot ? forking->snapshot : "");
	text_replace(&row->origin_position,
		forking->snapshot ? forking->snapshot : parent->row.position);
	text_replace(&row->position, "");
	text_replace(&row->state_id, "");
	text_replace(&row->asleep_for, "");
	text_replace(&row->boot, yard->boot);
	text_replace(&row->image, forking->image);
	text_replace(&row->image_name, forking->image_name);
	free(row->env);
	row->env = merged(parent->row.env, forking->env);
	free(row->labels);
	row->labels = merged(parent->row.labels, forking->labels);
	row->remove_on_exit = forking->remove_on_exit;
	row->created_us = clock_wall_us();
	row->started_us = row->ended_us = row->pid = row->wake_us = 0;
	row->start_time = 0;
	text_replace(&row->tree, forking->from_inside ? box_get_tree(parent) : "");
	row->generation =
		forking->from_inside ? parent->row.generation + 1 : parent->row.generation;
	return 0;
}

static int make_child(
	struct forking *forking, const struct box *parent, struct child *child, struct err *err)
{
	struct yard *yard = forking->yard;
	struct box_row row = { 0 };
	struct network *net = NULL;

	if (box_refuse_taken(yard, child->name, err) < 0 ||
		fill_row(forking, parent, child, &row, err) < 0 ||
		network_fork(parent, forking->policy, &net, err) < 0) {
		box_row_done(&row);
		return -1;
	}
	if (forking->from_inside)
		network_spend_fork(parent, net);
	if (box_insert(yard, &row, net, STORE_KEPT, err) < 0) {
		network_discard(net);
		box_row_done(&row);
		return -1;
	}
	child->id = xstrdup(row.id);
	child->box = box_new(yard, &row);
	child->box->net = net;
	memcpy(child->box->asked_by, parent->asked_by, sizeof parent->asked_by);
	child->box->restore.dir = -1;
	ports_box_added(child->box);
	return 0;
}

static void make_children(struct forking *forking, const struct box *parent)
{
	for (unsigned i = 0; i < forking->count; i++) {
		struct child *child = &forking->children[i];
		struct err err = ERR_INIT;

		if (!child->over && make_child(forking, parent, child, &err) < 0)
			child_over(child, &err);
	}
}

static struct child *last_child(struct forking *forking)
{
	for (unsigned i = forking->count; i-- > 0;)
		if (!forking->children[i].over)
			return &forking->children[i];
	return NULL;
}

static void launch(struct child *child)
{
	struct forking *forking = child->forking;
	struct box *box = child->box;
	struct err err = ERR_INIT;

	child->launched = true;
	box_wait(box, on_child, child);
	if (forking->state) {
		box_restore_from(box, forking->state, RESTORE_FORK);
		box->restore.parent = xstrdup(forking->parent_name);
		box->restore.index = (unsigned)(child - forking->children);
	}
	if (box_limit_disk(box, box->row.disk_bytes, &err) < 0 || box_launch(box, &err) < 0)
		box_launch_failed(box, &err);
}

/* ---- disks ---------------------------------------------------------------------------------- */

/* Runs in the helper: makes one copy for each child without a disk and reports each. */
static int run_copies(int sock, void *arg)
{
	struct forking *forking = arg;

	for (unsigned i = 0; i < forking->count; i++) {
		struct child *child = &forking->children[i];
		struct {
			unsigned index;
			struct err err;
		} word = { .index = i };

		if (child->over || child->has_disk)
			continue;
		(void)pool_disk_copy(forking->yard->pool, forking->from_place, forking->from_disk,
			BOX_DISKS, child->id, NULL,
			forking->from_inside ? POOL_BUDGET_SAME : POOL_BUDGET_OWN, &word.err);
		send(sock, &word, sizeof word, MSG_NOSIGNAL);
	}
	return 0;
}

static void on_copied(const void *message, size_t len, void *arg)
{
	struct forking *forking = arg;
	struct {
		unsigned index;
		struct err err;
	} word;
	struct child *child;

	if (len != sizeof word)
		return;
	memcpy(&word, message, len);
	if (word.index >= forking->count || forking->children[word.index].over)
		return;
	child = &forking->children[word.index];
	if (word.err.kind) {
		child_over(child, &word.err);
		box_remove_now(steal_ptr(&child->box));
	} else {
		child->has_disk = true;
	}
	step(forking);
}

static void on_copies_done(int code, void *arg)
{
	struct forking *forking = arg;
	struct err err = ERR_INIT;
	struct child *last = last_child(forking);

	forking->helper = NULL;
	for (unsigned i = 0; i < forking->count; i++) {
		struct child *child = &forking->children[i];

		if (child->over || child->has_disk || child->launched)
			continue;
		/* The copy made while the parent was frozen is the disk of the last child. */
		if (child == last && !strcmp(forking->from_place, BOX_DISKS) &&
			!strcmp(forking->from_disk, child->id)) {
			child->has_disk = true;
			continue;
		}
		err_set(&err, ERR_SYSTEM, "the helper that copies disks ended with code %d", code);
		child_over(child, &err);
		box_remove_now(steal_ptr(&child->box));
	}
	step(forking);
}

static void copy_disks(struct forking *forking)
{
	static const struct helper_ops ops = {
		.run = run_copies, .on_message = on_copied, .on_exit = on_copies_done, .light = true
	};
	unsigned wanted = 0;
	struct err err = ERR_INIT;
	struct child *last = last_child(forking);

	if (last && !strcmp(forking->from_place, BOX_DISKS) &&
		!strcmp(forking->from_disk, last->id))
		/* no copy needed; launched after the others' copies are made */
		last->has_disk = true;
	for (unsigned i = 0; i < forking->count; i++)
		wanted += !forking->children[i].over && !forking->children[i].has_disk;
	if (!wanted) {
		step(forking);
		return;
	}
	if (helper_start(forking->yard->loop, &ops, forking, NULL, 0, &forking->helper, &err) < 0) {
		fail_all(forking, &err);
		step(forking);
	}
}

/* ---- going on ------------------------------------------------------------------------------- */

/* Launches the children that are ready; answers when all have ended. May free forking. */
static void step(struct forking *forking)
{
	unsigned running = 0, over = 0;

	if (forking->stepping)
		return;
	forking->stepping = true; /* a launch may fail at once and call step again */
	for (unsigned i = 0; i < forking->count; i++)
		running += forking->children[i].launched && !forking->children[i].over;
	for (unsigned i = 0; i < forking->count && running < AT_ONCE; i++) {
		struct child *child = &forking->children[i];
		bool is_source = child->id && !strcmp(forking->from_place, BOX_DISKS) &&
				 !strcmp(forking->from_disk, child->id);

		if (child->over || child->launched || !child->has_disk ||
			(is_source && forking->helper))
			continue;
		launch(child);
		running += !child->over;
	}
	forking->stepping = false;
	for (unsigned i = 0; i < forking->count; i++)
		over += forking->children[i].over;
	/* The parent's capture may still be finishing. */
	if (over == forking->count && !forking->helper && !forking->box)
		answer(forking);
}

static void on_taken(struct box *box, const struct box_capture_result *result, void *arg)
{
	struct forking *forking = arg;

	(void)box;
	forking->result = *result;
	copy_disks(forking);
}

static void on_take_done(
	struct box *box, const struct box_capture_result *result, const struct err *err, void *arg)
{
	struct forking *forking = arg;
	struct err why = ERR_INIT;

	forking->result.paused_us = result->paused_us;
	forking->box = NULL;
	if (err) {
		why = *err;
		if (!forking->from_inside)
			box_capture_hint(&why, "'box fork --disk-only %s' copies its disk alone",
				box->row.name);
		fail_all(forking, &why);
	}
	operation_end(box);
	step(forking);
}

static void take(struct forking *forking, struct box *box)
{
	static const struct box_capture_ops ops = { .on_taken = on_taken, .on_done = on_take_done };
	struct child *last = last_child(forking);

	if (!last) {
		forking->box = NULL;
		operation_end(box);
		step(forking);
		return;
	}
	forking->from_place = BOX_DISKS;
	forking->from_disk = xstrdup(last->id);
	if (!forking->disk_only && box->instance) {
		forking->state = state_id_new(forking->yard);
		forking->own_state = true;
	}
	box_capture(box,
		&(struct box_capture_spec){ .state = forking->own_state ? forking->state : NULL,
			.disk_place = BOX_DISKS,
			.disk = last->id,
			.disk_apart = !forking->from_inside,
			.quick = true },
		&ops, forking);
}

/* A snapshot or a hibernated state needs no capture. */
static void use_snapshot(struct forking *forking, const struct snapshot *snapshot)
{
	forking->from_place = SNAPSHOT_DISKS;
	forking->from_disk = xstrdup(snapshot->row.id);
	if (!strcmp(snapshot->row.kind, "full") && !forking->disk_only)
		forking->state = xstrdup(snapshot->row.id);
	copy_disks(forking);
}

static int check(struct box *box, struct forking *forking, struct err *err)
{
	struct snapshot *snapshot = NULL;

	/* Checked again: several requests may have been accepted at once, each with the room that
	 * was left. */
	if (forking->from_inside && lineage_check_fork(box, forking->count, err) < 0)
		return -1;

	if (forking->snapshot) {
		snapshot = snapshot_find(box, forking->snapshot, err);
		if (!snapshot)
			return -1;
		text_replace(&forking->snapshot, snapshot->row.id);
	} else if (box_is_busy(box)) {
		return box_refuse_busy(box, err);
	}
	if (!images_get(box->yard->images, snapshot ? snapshot->row.image : box->row.image, err))
		return -1;
	if (strcmp(box->row.volumes, "[]") || strcmp(box->row.mounts, "[]")) {
		_cleanup_json_ json_t *volumes = json_loads(box->row.volumes, 0, NULL);
		json_t *item;
		size_t i;

		json_array_foreach (volumes, i, item)
			if (!json_is_true(json_object_get(item, "read_only"))) {
				err_set(err, ERR_STATE,
					"box '%s' writes to volume '%s', and only one box can",
					box->row.name, json_get_text(item, "volume"));
				return err_hint(err, "fork a box that has it read-only, or copy "
						     "what it needs to its own disk");
			}
	}
	if (forking->from_inside &&
		(snapshot ? tree_begin(box, err) : tree_check_fork(box, forking->count, err)) < 0)
		return -1;
	forking->image = xstrdup(snapshot ? snapshot->row.image : box->row.image);
	forking->image_name = xstrdup(snapshot ? snapshot->row.image_name : box->row.image_name);
	return 0;
}

/* Whether the policy of another tree names a box that does not exist. It means a box that somebody
 * makes from outside: a fork from inside that took the name would be reached, and let in, in its
 * place. */
static bool is_meant(const struct forking *forking, const char *name)
{
	const struct yard *yard = forking->yard;
	const struct box *parent = box_find(forking->yard, forking->parent, NULL);

	for (size_t i = 0; i < yard->box_count; i++)
		if (yard->boxes[i]->net && !(parent && box_is_akin(parent, yard->boxes[i])) &&
			network_names_peer(yard->boxes[i], name))
			return true;
	return false;
}

static int name_children(struct forking *forking, struct err *err)
{
	forking->children = xnewn(struct child, forking->count);
	for (unsigned i = 0; i < forking->count; i++) {
		struct child *child = &forking->children[i];
		const char *name = json_string_value(json_array_get(forking->names, i));

		child->forking = forking;
		if (name && name_check("box name", name, err) < 0)
			return -1;
		if (name && forking->from_inside && is_meant(forking, name)) {
			err_set(err, ERR_EXISTS, "the name '%s' is reserved for another box", name);
			return err_hint(err, "choose another");
		}
		for (unsigned tries = i + 1; !name && !child->name; tries++) {
			_cleanup_free_ char *made =
				xasprintf("%.40s-%u", forking->parent_name, tries);
			bool taken = box_lookup(forking->yard, made) || is_meant(forking, made);

			for (unsigned j = 0; j < i; j++)
				taken = taken || !strcmp(forking->children[j].name, made);
			if (!taken)
				child->name = steal_ptr(&made);
		}
		if (name)
			child->name = xstrdup(name);
	}
	return 0;
}

static void refuse(struct forking *forking, const struct err *err)
{
	if (forking->done)
		forking->done(NULL, err, forking->arg);
	forking_free(forking);
}

static void begin(struct operation *op, struct box *box, const struct err *gone)
{
	struct forking *forking = (struct forking *)op;
	struct snapshot *snapshot;
	struct err err = ERR_INIT;

	if (!box) {
		refuse(forking, gone);
		return;
	}
	if (check(box, forking, &err) < 0 || name_children(forking, &err) < 0) {
		operation_end(box);
		refuse(forking, &err);
		return;
	}
	make_children(forking, box);
	yard_event(forking->yard, "box.forking", box,
		json_pack("{s:I}", "count", (json_int_t)forking->count));
	snapshot = forking->snapshot ? snapshot_by_id(forking->yard, forking->snapshot) : NULL;
	if (snapshot) {
		forking->used = snapshot_use(forking->yard, forking->snapshot);
		operation_end(box);
		use_snapshot(forking, snapshot);
		return;
	}
	/* The processes of a hibernated box are already captured. */
	if (box->state == BOX_HIBERNATED && !forking->disk_only) {
		forking->state = xstrdup(box->row.state_id);
		forking->pinned = checkpoints_pin(forking->yard->checkpoints, forking->state);
	}
	forking->box = box;
	take(forking, box);
}

static const struct operation_ops fork_ops = { .name = "fork", .begin = begin };

void box_fork(struct box *box, const struct fork_spec *spec, json_done done, void *arg)
{
	struct forking *forking;
	size_t named = json_array_size(spec->names);
	unsigned count = spec->count ? spec->count : MAX((unsigned)named, 1u);
	struct err err = ERR_INIT;

	if (count > FORKS_MAX || named > count) {
		err_set(&err, ERR_INVALID,
			"a fork makes 1 to %d boxes, and has no more names than that", FORKS_MAX);
		done(NULL, &err, arg);
		return;
	}
	forking = xnew(struct forking);
	*forking = (struct forking){ .op = { .ops = &fork_ops },
		.yard = box->yard,
		.next = box->yard->forkings,
		.parent = xstrdup(box->row.id),
		.parent_name = xstrdup(box->row.name),
		.snapshot = xstrdup(spec->snapshot),
		.names = json_incref(spec->names),
		.env = json_incref(spec->env),
		.labels = json_incref(spec->labels),
		.policy = json_incref(spec->policy),
		.disk_only = spec->disk_only,
		.remove_on_exit = spec->remove_on_exit,
		.from_inside = spec->from_inside,
		.count = count,
		.from_place = "",
		.started_us = clock_mono_us(),
		.done = done,
		.arg = arg };
	box->yard->forkings = forking;
	operation_queue(box, &forking->op);
}

/* The boxes still exist: children that are launched, captured or queued end when the boxes are
 * closed, and call back here. The others end now. A child that was not launched has the intent
 * "fork" in its row, and the next daemon removes it. */
void forks_close(struct yard *yard)
{
	struct err err = ERR_INIT;
	struct forking *forking, *next;

	err_set(&err, ERR_UNAVAILABLE, "the daemon is shutting down");
	for (forking = yard->forkings; forking; forking = next) {
		unsigned left = 0;

		next = forking->next;
		if (forking->done)
			forking->done(NULL, &err, forking->arg);
		forking->done = NULL;
		helper_free(steal_ptr(&forking->helper));
		for (unsigned i = 0; forking->children && i < forking->count; i++) {
			if (!forking->children[i].launched)
				child_over(&forking->children[i], &err);
			left += !forking->children[i].over;
		}
		if (forking->children && !left && !forking->box)
			forking_free(forking);
	}
}
