/* verbs.c - what is done for a box that asks from inside; see inside.h
 *
 * A box sees itself and the boxes below it. To everything else the answer is the one for a box that
 * is not there, so that nobody learns names by asking. */
#include "inside/inside_internal.h"
#include "core/lineage.h"
#include "core/time/timeline.h"
#include "core/yard.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/text.h"
#include <stdarg.h>
#include <stdio.h>

static struct yard *yard_of(const struct ask *ask)
{
	return box_get_yard(ask_get_box(ask));
}

/* ---- answers -------------------------------------------------------------------------------- */

static void __attribute__((format(printf, 2, 3))) ask_outf(struct ask *ask, const char *fmt, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list args;

	va_start(args, fmt);
	if (vasprintf(&text, fmt, args) < 0)
		text = NULL;
	va_end(args);
	if (text)
		ask_out(ask, text, strlen(text));
}

static void ask_json(struct ask *ask, const json_t *value)
{
	_cleanup_free_ char *text = json_dumps(value, JSON_INDENT(2));

	if (text)
		ask_outf(ask, "%s\n", text);
}

/* A box does not name itself, and has few of the commands there are outside. */
static void advise(const struct box *box, struct err *err)
{
	static const char *const own[] = { "timeline", "snapshot" };
	_cleanup_free_ char *hint = xstrdup(err->hint);

	if (!strstr(hint, "'box ") || strstr(hint, "from outside"))
		return;
	for (size_t i = 0; i < ARRAY_LEN(own); i++) {
		_cleanup_free_ char *named = xasprintf("'box %s %s'", own[i], box_get_name(box));

		if (text_has_prefix(hint, named)) {
			err_hint(err, "'box %s'%s", own[i], hint + strlen(named));
			return;
		}
	}
	if (err->kind == ERR_EXISTS)
		err_hint(err, "choose another name");
	else
		err_hint(err, "from outside: %s", hint);
}

/* For an error whose hint was meant for people outside. */
static void ask_fail_outer(struct ask *ask, const struct err *err)
{
	struct err told = *err;

	advise(ask_get_box(ask), &told);
	ask_fail(ask, &told);
}

/* For a verb that goes on when its asker, or its box, is gone. */
struct errand {
	struct yard *yard;
	uint64_t serial; /* of the ask */
	bool json;
	unsigned left;	/* parts that are not over */
	struct err err; /* the first failure among them */
};

static struct errand *errand_new(struct ask *ask)
{
	struct errand *errand = xnew(struct errand);

	errand->yard = yard_of(ask);
	errand->serial = ask_get_serial(ask);
	return errand;
}

/* NULL: nobody waits any more. */
static struct ask *errand_find(const struct errand *errand)
{
	return ask_find(errand->yard, errand->serial);
}

static struct box *find_child(struct ask *ask, const char *name, struct err *err)
{
	struct box *child = box_find(yard_of(ask), name, NULL);

	/* The name it was asked for by: forks get ours before theirs. */
	if (!child) {
		_cleanup_free_ char *whole =
			xasprintf("%s-%s", box_get_name(ask_get_box(ask)), name);

		child = box_find(yard_of(ask), whole, NULL);
	}
	if (child && lineage_is_below(child, ask_get_box(ask)))
		return child;
	err_set(err, ERR_NOT_FOUND, "this box has no fork '%.80s'", name);
	err_hint(err, "'box ls' lists them");
	return NULL;
}

/* ---- info, ls, timeline --------------------------------------------------------------------- */

void inside_info(struct ask *ask, const struct args *args)
{
	_cleanup_json_ json_t *info = lineage_self_json(ask_get_box(ask));

	(void)args;
	ask_json(ask, info);
	ask_done(ask, 0);
}

void inside_ls(struct ask *ask, const struct args *args)
{
	_cleanup_json_ json_t *children = lineage_below_json(ask_get_box(ask));
	struct buf out = BUF_INIT;
	json_t *child;
	size_t i;

	if (args->json) {
		ask_json(ask, children);
	} else {
		json_array_foreach (children, i, child) {
			buf_add_str(&out, json_get_text(child, "name"));
			if (!args->quiet)
				buf_addf(&out, "\t%s", json_get_text(child, "state"));
			buf_add_str(&out, "\n");
		}
		ask_out(ask, buf_head(&out), out.len);
		buf_done(&out);
	}
	ask_done(ask, 0);
}

void inside_timeline(struct ask *ask, const struct args *args)
{
	_cleanup_json_ json_t *line = box_timeline_json(ask_get_box(ask));
	struct buf out = BUF_INIT;
	json_t *snapshot;
	size_t i;

	if (args->json) {
		ask_json(ask, line);
	} else {
		json_array_foreach (json_object_get(line, "snapshots"), i, snapshot)
			buf_addf(&out, "%s\t%s\t%s\t%s\t%s\n", json_get_text(snapshot, "id"),
				json_get_text(snapshot, "name"), json_get_text(snapshot, "kind"),
				json_get_text(snapshot, "created_at"),
				json_is_true(json_object_get(snapshot, "current")) ? "current"
										   : "");
		ask_out(ask, buf_head(&out), out.len);
		buf_done(&out);
	}
	ask_done(ask, 0);
}

/* ---- fork, snapshot, rollback --------------------------------------------------------------- */

/* Names of boxes are everybody's, and URLs follow them: a box gives only such as begin with its
 * own. */
static int child_names(struct ask *ask, const struct args *args, json_t *ret, struct err *err)
{
	const char *own = box_get_name(ask_get_box(ask));
	size_t len = strlen(own);

	for (size_t i = 0; i < args->rest_count; i++) {
		const char *given = args->rest[i];
		bool whole = !strncmp(given, own, len) && given[len] == '-';
		_cleanup_free_ char *name = whole ? xstrdup(given) : xasprintf("%s-%s", own, given);

		if (name_check("box name", name, err) < 0)
			return -1;
		if (box_name_is_taken(yard_of(ask), name))
			return err_set(err, ERR_EXISTS, "there is a box '%s' already", name);
		json_array_append_new(ret, json_string(name));
	}
	return 0;
}

static void fork_done(json_t *result, const struct err *err, void *arg)
{
	_cleanup_free_ struct errand *errand = arg;
	struct ask *ask = errand_find(errand);
	struct err failure = ERR_INIT;
	json_t *item;
	size_t i;

	if (!ask)
		return;
	if (err) {
		ask_fail_outer(ask, err);
		return;
	}
	if (errand->json) {
		_cleanup_json_ json_t *told = json_pack("{s:b,s:[],s:O*}", "child", 0, "children",
			"failed", json_object_get(result, "failed"));

		json_array_foreach (json_object_get(result, "children"), i, item)
			json_array_append_new(json_object_get(told, "children"),
				json_pack("{s:s,s:s}", "name", json_get_text(item, "name"), "id",
					json_get_text(item, "id")));
		ask_json(ask, told);
	} else {
		json_array_foreach (json_object_get(result, "children"), i, item)
			ask_outf(ask, "%s\n", json_get_text(item, "name"));
	}
	item = json_array_get(json_object_get(result, "failed"), 0);
	if (item) {
		json_t *why = json_object_get(item, "error");

		err_set(&failure, err_kind_from_code(json_get_text(why, "code")),
			"fork '%s' failed: %s", json_get_text(item, "name"),
			json_get_text(why, "message"));
		ask_fail(ask, &failure);
	} else {
		ask_done(ask, 0);
	}
}

void inside_fork(struct ask *ask, const struct args *args)
{
	_cleanup_json_ json_t *names = json_array();
	unsigned count = (unsigned)MAX(MAX(args->count, (uint64_t)args->rest_count), 1u);
	struct err err = ERR_INIT;
	struct errand *errand;

	if (yard_check_stays(yard_of(ask), &err) < 0 || child_names(ask, args, names, &err) < 0 ||
		lineage_check_fork(ask_get_box(ask), count, &err) < 0 ||
		lineage_charge(ask_get_box(ask), count, &err) < 0) {
		ask_fail(ask, &err);
		return;
	}
	errand = errand_new(ask);
	errand->json = args->json;
	box_fork(ask_get_box(ask),
		&(struct fork_spec){ .snapshot = args->from,
			.names = names,
			.count = count,
			.from_inside = true },
		fork_done, errand);
}

static void snapshot_done(json_t *result, const struct err *err, void *arg)
{
	_cleanup_free_ struct errand *errand = arg;
	struct ask *ask = errand_find(errand);

	if (!ask)
		return;
	if (err) {
		ask_fail_outer(ask, err);
		return;
	}
	if (errand->json)
		ask_json(ask, result);
	else
		ask_outf(ask, "%s\n", json_get_text(result, "id"));
	ask_done(ask, 0);
}

void inside_snapshot(struct ask *ask, const struct args *args)
{
	struct err err = ERR_INIT;
	struct errand *errand;

	if (args->rest_count && snapshot_name_check(args->rest[0], &err) < 0)
		return ask_fail(ask, &err);
	if (lineage_charge(ask_get_box(ask), 1, &err) < 0)
		return ask_fail(ask, &err);
	errand = errand_new(ask);
	errand->json = args->json;
	box_snapshot(ask_get_box(ask),
		&(struct snapshot_spec){
			.name = args->rest[0], .cause = "inside", .disk_only = args->disk_only },
		snapshot_done, errand);
}

/* When it works there is nobody left to tell: who asked is in the state that was left. */
static void rollback_done(json_t *result, const struct err *err, void *arg)
{
	_cleanup_free_ struct errand *errand = arg;
	struct ask *ask = errand_find(errand);

	(void)result;
	if (ask && err)
		ask_fail_outer(ask, err);
	else if (ask)
		ask_done(ask, 0);
}

void inside_rollback(struct ask *ask, const struct args *args)
{
	struct err err = ERR_INIT;

	if (yard_check_stays(yard_of(ask), &err) < 0 ||
		lineage_charge(ask_get_box(ask), 1, &err) < 0)
		return ask_fail(ask, &err);
	box_rollback(ask_get_box(ask),
		&(struct rollback_spec){ .snapshot = args->rest[0],
			.disk_only = args->disk_only,
			.from_inside = true },
		rollback_done, errand_new(ask));
}

/* ---- exec ----------------------------------------------------------------------------------- */

static void on_exec_output(struct exec *exec, enum exec_stream stream, uint64_t offset,
	uint64_t time_us, const void *data, size_t len, void *arg)
{
	(void)exec;
	(void)offset;
	(void)time_us;
	ask_relay(arg, stream, data, len);
}

static void on_exec_done(
	struct exec *exec, const struct exec_end *end, const struct err *err, void *arg)
{
	struct ask *ask = arg;

	(void)exec;
	ask_set_data(ask, NULL);
	if (end)
		ask_done(ask, (int)end->exit_code);
	else
		ask_fail_outer(ask, err);
}

static void start_exec(struct ask *ask, struct box *child, const char *const *argv)
{
	static const struct exec_ops ops = { .on_output = on_exec_output, .on_done = on_exec_done };
	struct exec *exec;
	struct err err = ERR_INIT;

	if (exec_start(child, &(struct exec_spec){ .argv = argv, .no_snapshot = true }, &ops, ask,
		    &exec, &err) < 0)
		ask_fail_outer(ask, &err);
	else
		ask_set_data(ask, exec);
}

/* The words of the program: behind the child's name, and a -- if there is one. */
static const char *const *program_of(struct ask *ask)
{
	char **at = ask_get_words(ask) + 1;

	at += strcmp(*at, "--") ? 1 : 2;
	return (const char *const *)(*at && !strcmp(*at, "--") ? at + 1 : at);
}

void inside_exec(struct ask *ask, const struct args *args)
{
	struct err err = ERR_INIT;
	struct box *child = find_child(ask, args->rest[0], &err);

	if (!child)
		return ask_fail(ask, &err);
	start_exec(ask, child, program_of(ask));
}

/* ---- rm ------------------------------------------------------------------------------------- */

static void one_removed(struct box *box, const struct err *err, void *arg)
{
	struct errand *errand = arg;
	struct ask *ask;

	(void)box;
	if (err && !errand->err.kind)
		errand->err = *err;
	if (--errand->left)
		return;
	ask = errand_find(errand);
	if (ask && errand->err.kind)
		ask_fail_outer(ask, &errand->err);
	else if (ask)
		ask_done(ask, 0);
	free(errand);
}

static void add_tree(json_t *ids, const struct box *top)
{
	_cleanup_json_ json_t *below = lineage_below(top);

	json_object_set_new(ids, box_get_id(top), json_true());
	json_object_update(ids, below);
}

/* With all that was forked from them: a box that nobody's chain leads to any more would count for
 * nobody. */
void inside_rm(struct ask *ask, const struct args *args)
{
	struct yard *yard = yard_of(ask);
	_cleanup_json_ json_t *ids = json_object();
	struct errand *errand;
	struct err err = ERR_INIT;
	const char *id;
	json_t *unused;

	for (size_t i = 0; i < args->rest_count; i++) {
		const struct box *child = find_child(ask, args->rest[i], &err);

		if (!child)
			return ask_fail(ask, &err);
		add_tree(ids, child);
	}
	errand = errand_new(ask);
	errand->left = 1;
	json_object_foreach (ids, id, unused) {
		struct box *box = box_find(yard, id, NULL);

		if (!box)
			continue;
		errand->left++;
		box_remove(box, true, one_removed, errand);
	}
	one_removed(NULL, NULL, errand);
}
