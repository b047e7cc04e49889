/* tree.c - see tree.h
 *
 * A tree is in memory as long as it has boxes, and in the store as soon as it has limits of its
 * own: when its first fork is made from inside, or they were given. Before that the limits of its
 * only box are enough.
 *
 * The kernel holds the limits (groups_set_tree_limits). One thing it wants arranged: on cgroup v1
 * no box may have a larger share of CPU time than its tree, so boxes are told the smaller of both,
 * before the tree's falls and after it has risen. */
#include "core/tree.h"
#include "core/core_internal.h"
#include "core/tree_internal.h"
#include "base/log.h"
#include "base/text.h"

/* ---- figures -------------------------------------------------------------------------------- */

/* 0 means unlimited. */
static bool is_more(uint64_t a, uint64_t b)
{
	return b && (!a || a > b);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return is_more(a, b) ? b : a;
}

static struct limits own_limits(const struct box *box)
{
	return (struct limits){ box->row.cpu_milli, box->row.memory_bytes, box->row.disk_bytes,
		box->row.pids };
}

struct limits tree_limits(const struct tree *tree)
{
	const struct tree_row *row = &tree->row;

	return tree->recorded ? (struct limits){ row->cpu_milli, row->memory_bytes, 0, row->pids }
			      : (struct limits){ 0 };
}

struct limits tree_bound(const struct box *box, const struct limits *own)
{
	struct limits bound = *own;

	if (box->tree && box->tree->recorded)
		bound.cpu_milli = smaller(own->cpu_milli, box->tree->row.cpu_milli);
	return bound;
}

/* ---- who is in it --------------------------------------------------------------------------- */

const char *box_get_tree(const struct box *box)
{
	return box->row.tree && *box->row.tree ? box->row.tree : box->row.id;
}

bool box_is_akin(const struct box *box, const struct box *other)
{
	return !strcmp(box_get_tree(box), box_get_tree(other));
}

static struct tree *find(struct yard *yard, const char *id)
{
	struct tree *tree = yard->trees;

	while (tree && strcmp(tree->row.id, id) != 0)
		tree = tree->next;
	return tree;
}

static struct tree *add(struct yard *yard, const char *id)
{
	struct tree *tree = xnew(struct tree);

	tree->row.id = xstrdup(id);
	tree->row.head = xstrdup(id);
	tree->next = yard->trees;
	yard->trees = tree;
	return tree;
}

static void drop(struct yard *yard, struct tree *tree)
{
	struct tree **at = &yard->trees;

	while (*at != tree)
		at = &(*at)->next;
	*at = tree->next;
	tree_row_done(&tree->row);
	free(tree);
}

void box_join_tree(struct box *box)
{
	const char *id = box_get_tree(box);

	box->tree = find(box->yard, id);
	if (!box->tree)
		box->tree = add(box->yard, id);
	box->tree->users++;
}

void box_leave_tree(struct box *box)
{
	struct tree *tree = steal_ptr(&box->tree);
	struct err err = ERR_INIT;

	if (!tree || --tree->users)
		return;
	/* While the daemon ends, boxes are released, not removed. */
	if (tree->recorded && !box->yard->closing &&
		store_tree_delete(box->yard->store, tree->row.id, &err) < 0)
		log_warn("the row of a tree was not removed", kv_str("tree", tree->row.id),
			kv_err(&err));
	drop(box->yard, tree);
}

bool tree_is_head(const struct box *box)
{
	return !strcmp(box->tree->row.head, box->row.id);
}

const struct box *tree_get_head(const struct tree *tree, const struct yard *yard)
{
	for (size_t i = 0; i < yard->box_count; i++)
		if (!box_is_gone(yard->boxes[i]) && yard->boxes[i]->tree == tree &&
			tree_is_head(yard->boxes[i]))
			return yard->boxes[i];
	return NULL;
}

struct box *tree_get_any(const struct tree *tree, const struct yard *yard)
{
	struct box *found = NULL;

	for (size_t i = 0; i < yard->box_count; i++) {
		struct box *box = yard->boxes[i];

		if (box->tree == tree && !box_is_gone(box) && box->instance &&
			(!found || tree_is_head(box)))
			found = box;
	}
	return found;
}

void tree_scope_json(
	const struct box *box, enum instance_scope scope, const char *what, json_t *data)
{
	static const char *const names[] = {
		[INSTANCE_SCOPE_OWN] = "box",
		[INSTANCE_SCOPE_TREE] = "tree",
		[INSTANCE_SCOPE_ALL] = "yard",
	};
	bool memory = !strcmp(what, "memory");
	struct limits limits = scope == INSTANCE_SCOPE_TREE  ? tree_limits(box->tree)
			       : scope == INSTANCE_SCOPE_ALL ? yard_limits(box->yard)
							     : own_limits(box);
	const struct box *head = tree_get_head(box->tree, box->yard);
	_cleanup_free_ char *who =
		scope == INSTANCE_SCOPE_TREE
			? xasprintf("all boxes that came out of '%s' together",
				  head ? head->row.name : box->row.name)
			: xstrdup(scope == INSTANCE_SCOPE_ALL ? "all boxes together" : "the box");
	const char *whose = scope == INSTANCE_SCOPE_OWN ? "its" : "their";
	_cleanup_free_ char *detail =
		!memory ? xasprintf("the box could not start a process because %s reached %s limit",
				  who, whose)
		: json_integer_value(json_object_get(data, "kills"))
			? xasprintf("the kernel killed a process because %s reached %s memory "
				    "limit",
				  who, whose)
			: xasprintf("%s reached %s memory limit; nothing was killed", who, whose);

	json_object_set_new(data, memory ? "limit_bytes" : "limit",
		json_integer((json_int_t)(memory ? limits.memory_bytes : limits.pids)));
	json_object_set_new(data, "scope", json_string(names[scope]));
	json_object_set_new(data, "tree", json_string(box_get_tree(box)));
	json_object_set_new(data, "detail", json_string(detail));
}

size_t tree_count(const struct tree *tree, const struct yard *yard)
{
	size_t count = 0;

	for (size_t i = 0; i < yard->box_count; i++)
		count += !box_is_gone(yard->boxes[i]) && yard->boxes[i]->tree == tree;
	return count;
}

json_t *box_tree_json(const struct box *box)
{
	const struct tree *tree = box->tree;
	bool alone = tree->users == 1; /* the usual case: no search is needed */
	const struct box *head = alone && tree_is_head(box) ? box : tree_get_head(tree, box->yard);
	struct limits limits = tree->recorded ? tree_limits(tree) : own_limits(box);
	json_t *cpu = limits.cpu_milli % 1000 ? json_real((double)limits.cpu_milli / 1000.0)
					      : json_integer((json_int_t)(limits.cpu_milli / 1000));

	return json_pack("{s:s,s:s?,s:I,s:{s:o,s:I,s:I}}", "id", tree->row.id, "head",
		head ? head->row.name : NULL, "boxes",
		(json_int_t)(alone ? 1 : tree_count(tree, box->yard)), "limits", "cpu", cpu,
		"memory", (json_int_t)limits.memory_bytes, "pids", (json_int_t)limits.pids);
}

/* ---- what it may use ------------------------------------------------------------------------ */

static void tell_boxes(struct yard *yard, const struct tree *tree)
{
	for (size_t i = 0; i < yard->box_count; i++) {
		struct box *box = yard->boxes[i];
		struct limits own = own_limits(box), bound;
		struct err err = ERR_INIT;

		if (box->tree != tree || !box->instance || box_is_gone(box))
			continue;
		bound = tree_bound(box, &own);
		/* A box that is starting or ending may refuse; a starting one gets the limits
		 * later. */
		if (instance_set_limits(box->instance, &bound, &err) < 0)
			log_debug("a box was not told the limits of its tree",
				kv_str("box", box->row.id), kv_err(&err));
	}
}

static void set_row(struct tree *tree, const struct limits *limits)
{
	tree->row.cpu_milli = limits->cpu_milli;
	tree->row.memory_bytes = limits->memory_bytes;
	tree->row.pids = limits->pids;
}

int tree_apply(struct yard *yard, struct tree *tree, const struct limits *limits, struct err *err)
{
	struct limits before = tree_limits(tree);
	bool falls = is_more(before.cpu_milli, limits->cpu_milli);

	set_row(tree, limits);
	if (falls)
		tell_boxes(yard, tree);
	if (groups_set_tree_limits(yard->groups, tree->row.id, limits, err) < 0) {
		set_row(tree, &before);
		if (falls)
			tell_boxes(yard, tree);
		return err_wrap(err, "all boxes of the tree together");
	}
	if (is_more(limits->cpu_milli, before.cpu_milli))
		tell_boxes(yard, tree);
	return 0;
}

int tree_record(struct yard *yard, struct tree *tree, enum store_grade grade, struct err *err)
{
	tree->recorded = true;
	return store_tree_put(yard->store, &tree->row, grade, err);
}

int tree_begin(struct box *box, struct err *err)
{
	struct limits limits = own_limits(box);
	struct tree *tree = box->tree;

	if (tree->recorded)
		return 0;
	text_replace(&tree->row.head, box->row.id);
	tree->row.given = 0;
	tree->recorded = true;
	if (tree_apply(box->yard, tree, &limits, err) < 0 ||
		tree_record(box->yard, tree, STORE_KEPT, err) < 0) {
		tree->recorded = false;
		return -1;
	}
	return 0;
}

struct limits tree_followed(const struct box *box, const struct limits *wanted)
{
	struct limits limits = tree_limits(box->tree);
	uint32_t given = box->tree->row.given;

	if (!box->tree->recorded || !tree_is_head(box))
		return limits;
	if (!(given & TREE_CPU) && wanted->cpu_milli != BOX_LIMIT_DEFAULT)
		limits.cpu_milli = wanted->cpu_milli;
	if (!(given & TREE_MEMORY) && wanted->memory_bytes != BOX_LIMIT_DEFAULT)
		limits.memory_bytes = wanted->memory_bytes;
	if (!(given & TREE_PIDS) && wanted->pids != BOX_LIMIT_DEFAULT)
		limits.pids = wanted->pids;
	return limits;
}

int tree_check_own(const struct box *box, const struct limits *wanted, struct err *err)
{
	struct limits all = tree_limits(box->tree);
	const struct box *head = tree_get_head(box->tree, box->yard);
	char size[16];

	if (!box->tree->recorded || tree_is_head(box))
		return 0;
	if (wanted->memory_bytes != BOX_LIMIT_DEFAULT && wanted->memory_bytes &&
		is_more(wanted->memory_bytes, all.memory_bytes))
		err_set(err, ERR_INVALID,
			"box '%s' is one of a tree that may have %s of memory together",
			box->row.name, format_size(all.memory_bytes, size));
	else if (wanted->cpu_milli != BOX_LIMIT_DEFAULT && wanted->cpu_milli &&
		 is_more(wanted->cpu_milli, all.cpu_milli))
		err_set(err, ERR_INVALID,
			"box '%s' is one of a tree that may have %g CPUs together", box->row.name,
			(double)all.cpu_milli / 1000.0);
	else if (wanted->pids != BOX_LIMIT_DEFAULT && wanted->pids &&
		 is_more(wanted->pids, all.pids))
		err_set(err, ERR_INVALID,
			"box '%s' is one of a tree that may have %llu processes together",
			box->row.name, (unsigned long long)all.pids);
	else
		return 0;
	return err_hint(err, "raise the tree's first: 'box set %s --tree memory=SIZE,cpu=N,pids=N'",
		head ? head->row.name : box->row.name);
}

static void give(uint64_t *field, uint64_t wanted, enum tree_given bit, struct tree_row *row)
{
	if (wanted == BOX_LIMIT_DEFAULT)
		return;
	*field = wanted;
	row->given |= bit;
}

int box_set_tree(struct box *box, const struct limits *given, struct err *err)
{
	struct tree *tree = box->tree;
	const struct box *head;
	struct limits before, after;
	uint32_t given_before;

	if (tree_begin(box, err) < 0)
		return -1;
	head = tree_get_head(tree, box->yard);
	before = after = tree_limits(tree);
	given_before = tree->row.given;
	if (!given && !head) {
		err_set(err, ERR_STATE, "the first box of the tree of '%s' is gone", box->row.name);
		return err_hint(err, "say what the tree may have: --tree memory=SIZE,cpu=N,pids=N");
	}
	if (given) {
		give(&after.cpu_milli, given->cpu_milli, TREE_CPU, &tree->row);
		give(&after.memory_bytes, given->memory_bytes, TREE_MEMORY, &tree->row);
		give(&after.pids, given->pids, TREE_PIDS, &tree->row);
	} else {
		after = own_limits(head);
		tree->row.given = 0;
	}
	if (tree_apply(box->yard, tree, &after, err) < 0) {
		tree->row.given = given_before;
		return -1;
	}
	if (tree_record(box->yard, tree, STORE_SAFE, err) < 0) {
		tree->row.given = given_before;
		tree_apply(box->yard, tree, &before, NULL);
		return -1;
	}
	yard_event(box->yard, "box.changed", box, json_pack("{s:o}", "tree", box_tree_json(box)));
	return 0;
}

/* ---- its head changes ----------------------------------------------------------------------- */

void tree_box_removed(struct box *box)
{
	struct tree *tree = box->tree;
	struct err err = ERR_INIT;

	if (!tree || !tree->recorded || !tree_is_head(box) || tree_count(tree, box->yard) < 2)
		return;
	text_replace(&tree->row.head, "");
	if (tree_record(box->yard, tree, STORE_KEPT, &err) < 0)
		log_warn("a tree keeps the id of a head that is gone", kv_str("tree", tree->row.id),
			kv_err(&err));
}

static bool loses_head(const struct box *parent, const struct box *child)
{
	return child->tree == parent->tree && child->tree->recorded && tree_is_head(parent);
}

int tree_store_promotion(const struct box *parent, const struct box *child, struct err *err)
{
	struct tree_row after = child->tree->row;

	if (!loses_head(parent, child))
		return 0;
	after.head = child->row.id;
	return store_tree_put(child->yard->store, &after, STORE_KEPT, err);
}

void tree_promoted(const struct box *parent, const struct box *child)
{
	if (loses_head(parent, child))
		text_replace(&child->tree->row.head, child->row.id);
}

/* ---- the daemon starts and ends ------------------------------------------------------------- */

static void load(struct tree_row *row, void *arg)
{
	struct tree *tree = add(arg, row->id);

	tree_row_done(&tree->row);
	tree->row = *row;
	*row = (struct tree_row){ 0 };
	tree->recorded = true;
}

int trees_load(struct yard *yard, struct err *err)
{
	return store_tree_each(yard->store, load, yard, err);
}

static bool is_alone(const struct yard *yard, const struct tree *tree, struct box **ret_first)
{
	bool alone = true;

	*ret_first = NULL;
	for (size_t i = 0; i < yard->box_count; i++) {
		struct box *box = yard->boxes[i];

		if (box->tree != tree)
			continue;
		alone = alone && !strcmp(box->row.id, tree->row.id);
		if (!*ret_first || tree_is_head(box))
			*ret_first = box;
	}
	return alone;
}

void trees_loaded(struct yard *yard)
{
	struct tree *tree, *next;
	struct err err = ERR_INIT;

	for (tree = yard->trees; tree; tree = next) {
		struct box *first;

		next = tree->next;
		if (!tree->users) {
			store_tree_delete(yard->store, tree->row.id, NULL);
			drop(yard, tree);
			continue;
		}
		/* The home is from a version in which trees had no limits. */
		if (!tree->recorded && !is_alone(yard, tree, &first) && first &&
			tree_begin(first, &err) < 0)
			log_warn(
				"a tree has no limits", kv_str("tree", tree->row.id), kv_err(&err));
	}
}

void trees_close(struct yard *yard)
{
	while (yard->trees)
		drop(yard, yard->trees);
}
