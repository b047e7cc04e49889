/* limit.c - what happens when a box reaches a limit
 *
 * The limits themselves are the kernel's: a write or a fork that goes too far fails inside, a
 * process is killed for memory. Here it is noticed and told, and the box's policy is carried out.
 *
 *   memory     tells by itself (instance_ops.on_oom). A box whose policy is to pause holds there:
 *              what would be killed waits in the kernel instead (engine_ops.hold), so it is paused
 *              whole. What the kernel cannot let wait is noticed at the next look
 *   processes  tell by themselves after the first fork that was refused (on_pids), on v2; else the
 *              box is looked at. The kernel lets no fork wait
 *   disk       btrfs tells nobody when it refuses a write, so a disk counts as full when less than
 *              FULL_WITHIN of it is left; the event comes once, and again only after a tenth was
 *              freed in between. Disks are looked at by the kernel's figures of this moment, the
 *              more often the more happens; one whose box is to be paused is full a little earlier,
 *              so that no write has failed yet
 *
 * A box that goes on with the same limit of memory gets what the kernel does, for LET_KILL_US: else
 * it would stand still for ever. What is killed takes its time to give its memory back. */
#include "core/core_internal.h"
#include "core/limit.h"
#include "core/tree_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "loop/loop.h"
#include "pool/pool.h"

enum {
	LOOK_MS = 1000,
	FULL_WITHIN = 256 * 1024, /* a limit is hardly ever reached to the byte */
	/* Milliseconds between close looks at a box that pauses at its limit: while its disk is
	 * written to, and otherwise. Other boxes are checked less often. */
	NEAR_MS = 15,
	FAR_MS = 50,
	PAUSE_PART = 16, /* with less than this part of a disk left its box is paused */
	PAUSE_WITHIN_MAX = 64 * 1024 * 1024,
	LOOK_AGAIN_US = 1000 * 1000, /* how long after the last change of a disk */
	LET_KILL_US = 1000 * 1000,
};

static const struct limit_kind {
	const char *type; /* event type, also stored in asleep_for */
	const char *name;
	const char *word;    /* "its … limit" */
	const char *flag;    /* of 'box set' */
	const char *of_tree; /* of its --tree */
} kinds[] = {
	{ "limit.memory", "memory", "memory", "--memory SIZE", "memory=SIZE" },
	{ "limit.disk", "disk", "disk", "--disk SIZE", NULL },
	{ "limit.pids", "pids", "process", "--pids N", "pids=N" },
	{ "limit.network", "network", "network", NULL, NULL },
};

/* Suffix of the type in asleep_for that says whose limit it was; none for the box's own. */
static const char of_tree[] = ".tree", of_yard[] = ".yard";

static const struct limit_kind *kind_of(const char *asleep_for, const char **ret_whose)
{
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		if (!text_has_prefix(asleep_for, kinds[i].type))
			continue;
		*ret_whose = asleep_for + strlen(kinds[i].type);
		if (!**ret_whose || !strcmp(*ret_whose, of_tree) || !strcmp(*ret_whose, of_yard))
			return &kinds[i];
	}
	return NULL;
}

const char *box_limit_reached(const struct box *box)
{
	const char *whose;
	const struct limit_kind *kind = kind_of(box->row.asleep_for, &whose);

	return kind ? kind->name : NULL;
}

static int refuse_of_tree(const struct box *box, const struct limit_kind *kind, struct err *err)
{
	bool disk = !strcmp(kind->name, "disk");
	const struct box *head = disk ? budget_get_first(box) : tree_get_head(box->tree, box->yard);
	const char *name = box->row.name, *whose = head ? head->row.name : name;

	err_set(err, ERR_LIMIT,
		"box '%s' is paused: all boxes that came out of '%s' together reached their %s "
		"limit",
		name, whose, kind->word);
	/* The tree's disk limit is that of its first box. */
	if (disk)
		return err_hint(err, "'box set %s --disk SIZE; box resume %s'", whose, name);
	return err_hint(err, "'box set %s --tree %s; box resume %s'", whose, kind->of_tree, name);
}

int box_refuse_paused(const struct box *box, struct err *err)
{
	const char *name = box->row.name, *whose;
	const struct limit_kind *kind = kind_of(box->row.asleep_for, &whose);

	if (kind && !strcmp(whose, of_tree))
		return refuse_of_tree(box, kind, err);
	if (kind && !strcmp(whose, of_yard)) {
		err_set(err, ERR_LIMIT,
			"box '%s' is paused: all boxes together reached their %s limit", name,
			kind->word);
		return err_hint(err,
			"end what is not needed or raise yard_%s in the configuration; 'box resume "
			"%s' lets it go on",
			kind->name, name);
	}
	err_set(err, ERR_LIMIT, "box '%s' is paused: it reached %s%s limit", name,
		kind ? "its " : "a", kind ? kind->word : "");
	if (kind && kind->flag)
		return err_hint(err, "'box set %s %s; box resume %s'", name, kind->flag, name);
	return err_hint(err, "'box resume %s' lets it go on", name);
}

static enum on_limit policy_of(const struct box *box)
{
	enum on_limit policy = ON_LIMIT_NOTIFY;

	on_limit_from_name(box->row.on_limit, &policy, NULL);
	return policy;
}

/* ---- holding at the limit of memory --------------------------------------------------------- */

void limit_arm(struct box *box)
{
	bool hold = policy_of(box) == ON_LIMIT_PAUSE && !box->limits.let_kill_us;
	struct err err = ERR_INIT;

	if (!box->instance || (!hold && !box->limits.holds))
		return;
	if (instance_hold(box->instance, hold, &err) < 0)
		log_warn("a box at its limit of memory will lose a process",
			kv_str("box", box->row.id), kv_err(&err));
	box->limits.holds = hold;
}

void limit_resumed(struct box *box)
{
	if (!box->instance)
		return;
	/* Earlier refusals have been reported. */
	box->limits.pids_refused = instance_pids_refused(box->instance);
	if (box->limits.holds && instance_memory_full(box->instance)) {
		box->limits.let_kill_us = clock_mono_us();
		limit_arm(box);
	}
}

/* ---- what is done about it ------------------------------------------------------------------ */

static void save_paused(struct box *box, const char *type, const char *whose)
{
	_cleanup_free_ char *asleep_for = xasprintf("%s%s", type, whose);

	text_replace(&box->row.asleep_for, asleep_for);
	box_save(box, STORE_KEPT);
}

static void carry_out(struct box *box, const char *type, const char *whose, enum on_limit policy)
{
	struct err err = ERR_INIT;

	/* The box sleeps already; from now on it does not wake by itself. */
	if (policy == ON_LIMIT_PAUSE && box->state == BOX_SUSPENDED && !box_is_paused(box)) {
		save_paused(box, type, whose);
		idle_asleep(box);
	}
	if (policy == ON_LIMIT_NOTIFY || box->state != BOX_RUNNING)
		return;
	/* The stop is already queued. */
	if (policy == ON_LIMIT_STOP && box->limits.stops && operation_is_on(box))
		return;
	if (policy == ON_LIMIT_STOP) {
		box->limits.stops = type;
		box_stop(box, STOP_GRACE_MS, NULL, NULL);
	} else if (box_suspend(box, type, &err) < 0) {
		log_warn("a box at its limit cannot be paused", kv_str("box", box->row.id),
			kv_err(&err));
	} else {
		if (*whose)
			save_paused(box, type, whose);
		box_refuse_paused(box, &err);
		box_fail_channels(box, &err);
	}
}

void box_limit_hit_as(struct box *box, const char *type, json_t *data, enum on_limit policy)
{
	const char *scope = json_string_value(json_object_get(data, "scope"));
	const char *whose = !scope		     ? ""
			    : !strcmp(scope, "tree") ? of_tree
			    : !strcmp(scope, "yard") ? of_yard
						     : "";

	json_object_set_new(data, "policy", json_string(on_limit_name(policy)));
	yard_event(box->yard, type, box, data);
	carry_out(box, type, whose, policy);
}

void box_limit_hit(struct box *box, const char *type, json_t *data)
{
	box_limit_hit_as(box, type, data, policy_of(box));
}

void limit_memory(struct box *box, uint64_t kills)
{
	enum on_limit policy = policy_of(box);
	json_t *data;

	/* Nothing was killed, so there is nothing to report unless the box is about to be
	 * paused. */
	if (!kills &&
		(policy != ON_LIMIT_PAUSE || box->state != BOX_RUNNING || box->limits.let_kill_us))
		return;
	if (box->limits.let_kill_us)
		policy = ON_LIMIT_NOTIFY;
	data = json_pack("{s:I}", "kills", (json_int_t)kills);
	tree_scope_json(box,
		box->instance ? instance_memory_scope(box->instance) : INSTANCE_SCOPE_OWN, "memory",
		data);
	box_limit_hit_as(box, "limit.memory", data, policy);
}

/* All boxes sorted by id: each disk of the pool is looked up among them, every second. */
struct boxes_by_id {
	struct box **list;
	size_t count;
};

static int compare_ids(const void *a, const void *b)
{
	return strcmp((*(struct box *const *)a)->row.id, (*(struct box *const *)b)->row.id);
}

static int compare_id(const void *id, const void *box)
{
	return strcmp(id, (*(struct box *const *)box)->row.id);
}

static struct box *box_by_id(const struct boxes_by_id *all, const char *id)
{
	struct box **found =
		all->count ? bsearch(id, all->list, all->count, sizeof *all->list, compare_id)
			   : NULL;

	return found ? *found : NULL;
}

/* A tenth of a small disk is less than what is left of a large one when it counts as full. */
static uint64_t full_from(uint64_t limit)
{
	return limit - MIN((uint64_t)FULL_WITHIN, limit / 20);
}

static uint64_t pause_from(uint64_t limit)
{
	return MIN(full_from(limit), limit - MIN(limit / PAUSE_PART, (uint64_t)PAUSE_WITHIN_MAX));
}

static void judge_disk(struct box *box, uint64_t used, uint64_t limit, uint64_t from, bool of_all)
{
	bool failing = limit && used >= full_from(limit);
	bool others = of_all && box->tree->users > 1;

	if (!limit || used < limit - limit / 10)
		box->limits.disk_full = false;
	if (!limit || used < from || box->limits.disk_full)
		return;
	box->limits.disk_full = true;
	box_limit_hit(box, "limit.disk",
		json_pack("{s:I,s:I,s:s,s:s,s:s}", "used_bytes", (json_int_t)used, "limit_bytes",
			(json_int_t)limit, "scope", others ? "tree" : "box", "tree",
			box_get_tree(box), "detail",
			failing ? "the box has filled its disk: writes fail with 'Disk quota "
				  "exceeded'"
				: "the box has nearly filled its disk"));
}

static void look_at_disk(
	const char *place, const char *id, const struct pool_figures *figures, void *arg)
{
	struct box *box = strcmp(place, BOX_DISKS) ? NULL : box_by_id(arg, id);
	uint64_t used, limit;
	bool of_all;

	if (!box)
		return;
	box->limits.disk_used = figures->used;
	box->limits.tree_used = figures->budget_used;
	of_all = budget_nearest(figures, &used, &limit);
	if (limit && used > limit - limit / 10)
		budget_pressed(box);
	judge_disk(box, used, limit, full_from(MAX(limit, 1ULL)), of_all);
}

void limit_processes(struct box *box)
{
	uint64_t refused = instance_pids_refused(box->instance);
	uint64_t more = refused - box->limits.pids_refused;

	/* The kernel's counter starts from zero with each instance. */
	if (refused < box->limits.pids_refused)
		more = refused;
	box->limits.pids_refused = refused;
	if (more) {
		json_t *data = json_pack("{s:I}", "refused", (json_int_t)more);

		tree_scope_json(box, instance_pids_scope(box->instance), "pids", data);
		box_limit_hit(box, "limit.pids", data);
	}
}

/* cgroup v2 counts a refused fork where the limit is, not where the process is: for a tree's limit
 * only the tree is known, not the box. */
static void look_at_trees(struct yard *yard)
{
	for (struct tree *tree = yard->trees; tree; tree = tree->next) {
		uint64_t refused, more;
		struct box *box;
		json_t *data;

		if (!tree->recorded || !(box = tree_get_any(tree, yard)))
			continue;
		refused = groups_tree_pids_refused(yard->groups, tree->row.id);
		more = refused < tree->pids_refused ? refused : refused - tree->pids_refused;
		tree->pids_refused = refused;
		if (!more)
			continue;
		data = json_pack("{s:I}", "refused", (json_int_t)more);
		tree_scope_json(box, INSTANCE_SCOPE_TREE, "pids", data);
		box_limit_hit(box, "limit.pids", data);
	}
}

/* A box of a tree may have no disk limit of its own but share that of the tree's first box. */
static bool disk_is_limited(const struct box *box)
{
	return box->row.disk_bytes || (strcmp(box_get_tree(box), box->row.id) != 0 &&
					      budget_get_first(box)->row.disk_bytes);
}

/* Finds what on_oom does not report: system calls that failed for lack of memory. */
static void look_at_memory(struct box *box)
{
	if (box->limits.let_kill_us && clock_mono_us() - box->limits.let_kill_us > LET_KILL_US) {
		box->limits.let_kill_us = 0;
		limit_arm(box);
	} else if (box->limits.holds && instance_memory_full(box->instance)) {
		limit_memory(box, 0);
	}
}

/* Uses the kernel's current figures: they include data not yet written to the disk, and data
 * deleted a moment ago. */
static void look_closely(struct box *box, int64_t now)
{
	bool pauses = policy_of(box) == ON_LIMIT_PAUSE;
	uint64_t used, limit, again_ms;
	bool of_all = false;

	if (!disk_is_limited(box) || box_disk_nearest(box, &used, &limit, &of_all) < 0)
		used = limit = 0;
	if (used != box->limits.disk_seen)
		box->limits.disk_changed_us = now;
	box->limits.disk_seen = used;
	if (now - box->limits.disk_changed_us < LOOK_AGAIN_US)
		again_ms = pauses ? NEAR_MS : FAR_MS;
	else
		again_ms = pauses ? FAR_MS : LOOK_MS;
	box->limits.look_us = now + (int64_t)again_ms * 1000;
	if (pauses)
		limit_processes(box);
	if (pauses && box->state == BOX_RUNNING)
		look_at_memory(box);
	if (limit && box->state == BOX_RUNNING)
		judge_disk(box, used, limit, pauses ? pause_from(limit) : full_from(limit), of_all);
}

static void look_at_all_closely(void *arg)
{
	struct yard *yard = arg;
	int64_t now = clock_mono_us(), next = now + LOOK_MS * 1000;

	/* Stopping a box may remove others from the list; they are checked next time. */
	for (size_t i = 0; i < yard->box_count; i++) {
		struct box *box = yard->boxes[i];

		if (box->state != BOX_RUNNING || !box->instance || box_is_gone(box))
			continue;
		if (now >= box->limits.look_us)
			look_closely(box, now);
		next = MIN(next, box->limits.look_us);
	}
	loop_timer_start(yard->close_timer, (uint64_t)MAX((next - now) / 1000, 1));
}

static void look_at_disks(struct yard *yard)
{
	struct boxes_by_id all = { .count = yard->box_count };
	struct err err = ERR_INIT;

	if (!all.count)
		return;
	all.list = xmemdup(yard->boxes, all.count * sizeof *all.list);
	qsort(all.list, all.count, sizeof *all.list, compare_ids);
	if (pool_usage_each(yard->pool, look_at_disk, &all, &err) < 0)
		log_warn("cannot read the quotas", kv_err(&err));
	free(all.list);
}

static void look(void *arg)
{
	struct yard *yard = arg;

	look_at_disks(yard);
	look_at_trees(yard);
	for (size_t i = 0; i < yard->box_count; i++) {
		struct box *box = yard->boxes[i];

		if (box->state != BOX_RUNNING || !box->instance || box_is_gone(box))
			continue;
		limit_processes(box);
		if (box->state == BOX_RUNNING)
			look_at_memory(box);
	}
	auto_look(yard);
	loop_timer_start(yard->limit_timer, LOOK_MS);
}

void limits_open(struct yard *yard)
{
	yard->close_timer = loop_timer_new(yard->loop, look_at_all_closely, yard);
	yard->limit_timer = loop_timer_new(yard->loop, look, yard);
	loop_timer_start(yard->limit_timer, LOOK_MS);
	loop_timer_start(yard->close_timer, FAR_MS);
}

void limits_close(struct yard *yard)
{
	loop_timer_free(yard->limit_timer);
	loop_timer_free(yard->close_timer);
	yard->limit_timer = yard->close_timer = NULL;
}
