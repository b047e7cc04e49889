/* inside_verbs.c - what can be asked from inside a box; see inside.h
 *
 * A box sees itself and the boxes below it. To everything else the answer is the one for a box that
 * is not there, so that nobody learns names by asking. */
#include "core/inside_internal.h"
#include "core/tree_internal.h"
#include "core/time/timeline.h"
#include "base/strv.h"
#include "base/text.h"
#include <stdio.h>

enum { EVENT_WORDS = 16, EVENT_WORD_BYTES = 200 };

/* ---- words ---------------------------------------------------------------------------------- */

struct args {
	bool json, disk_only, quiet;
	uint64_t count;	  /* -n; 0: not given */
	const char *from; /* --from; NULL: not given */
	char **rest;	  /* borrowed from the words, in an array of our own */
	size_t rest_count;
};

enum arg_flag {
	ARG_JSON = 1,
	ARG_DISK_ONLY = 2,
	ARG_COUNT = 4,
	ARG_FROM = 8,
	ARG_QUIET = 16,
	ARG_PROGRAM = 32, /* words from the second plain one on are not ours */
};

static void args_done(struct args *args)
{
	free(args->rest);
}

static int read_option(
	char **words, size_t *at, unsigned allowed, struct args *ret, struct err *err)
{
	const char *word = words[*at], *value = words[*at + 1];

	if ((allowed & ARG_JSON) && !strcmp(word, "--json")) {
		ret->json = true;
	} else if ((allowed & ARG_DISK_ONLY) && !strcmp(word, "--disk-only")) {
		ret->disk_only = true;
	} else if ((allowed & ARG_QUIET) && !strcmp(word, "-q")) {
		ret->quiet = true;
	} else if ((allowed & ARG_COUNT) && !strcmp(word, "-n") && value) {
		(*at)++;
		return parse_u64("-n", value, 1, FORKS_MAX, &ret->count, err);
	} else if ((allowed & ARG_FROM) && !strcmp(word, "--from") && value) {
		(*at)++;
		ret->from = value;
	} else {
		bool needs = ((allowed & ARG_COUNT) && !strcmp(word, "-n")) ||
			     ((allowed & ARG_FROM) && !strcmp(word, "--from"));

		err_set(err, ERR_INVALID,
			needs ? "'box %s' needs a value after '%.60s'"
			      : "'box %s' does not take '%.60s'",
			words[0], word);
		return err_hint(err, "see 'box help %s'", words[0]);
	}
	return 0;
}

static int args_read(char **words, unsigned allowed, size_t least, size_t most, struct args *ret,
	struct err *err)
{
	bool ours = true;

	*ret = (struct args){ .rest = xnewn(char *, strv_len((const char *const *)words) + 1) };
	for (size_t i = 1; words[i]; i++) {
		if (ours && !strcmp(words[i], "--")) {
			ours = false;
			continue;
		}
		if (ours && words[i][0] == '-' && words[i][1]) {
			if (read_option(words, &i, allowed, ret, err) < 0)
				return -1;
			continue;
		}
		ret->rest[ret->rest_count++] = words[i];
		if ((allowed & ARG_PROGRAM) && ret->rest_count == 2)
			ours = false;
	}
	if (ret->rest_count >= least && ret->rest_count <= most)
		return 0;
	err_set(err, ERR_INVALID, "'box %s' with too %s words", words[0],
		ret->rest_count < least ? "few" : "many");
	return err_hint(err, "see 'box help %s'", words[0]);
}

static struct box *find_child(struct ask *ask, const char *name, struct err *err)
{
	struct box *child = box_find(ask->box->yard, name, NULL);

	/* The name it was asked for by: forks get ours before theirs. */
	if (!child) {
		_cleanup_free_ char *whole = xasprintf("%s-%s", ask->box->row.name, name);

		child = box_find(ask->box->yard, whole, NULL);
	}
	if (child && lineage_is_below(child, ask->box))
		return child;
	err_set(err, ERR_NOT_FOUND, "this box has no fork '%.80s'", name);
	err_hint(err, "'box ls' lists them");
	return NULL;
}

static json_t *text_or_null(const char *text)
{
	return *text ? json_string(text) : json_null();
}

/* ---- info, ls, timeline --------------------------------------------------------------------- */

static json_t *children_json(const struct box *box)
{
	struct yard *yard = box->yard;
	_cleanup_json_ json_t *below = lineage_below(box);
	json_t *list = json_array();

	for (size_t i = 0; i < yard->box_count; i++) {
		const struct box *child = yard->boxes[i];

		if (!json_object_get(below, child->row.id))
			continue;
		json_array_append_new(
			list, json_pack("{s:s,s:s,s:s,s:b}", "id", child->row.id, "name",
				      child->row.name, "state", box_state_name(child->state),
				      "direct", !strcmp(child->row.origin_box, box->row.id)));
	}
	return list;
}

/* What it may know of itself: nothing of the host, and nothing of other boxes but the name of its
 * origin. */
static void do_info(struct ask *ask, const struct args *args)
{
	const struct box *box = ask->box;
	const struct box_row *row = &box->row;
	const struct box *parent = box_find(box->yard, row->origin_box, NULL);
	struct limits all = tree_limits(box->tree);
	_cleanup_json_ json_t *info = json_pack(
		"{s:s,s:s,s:s,s:s,s:s,s:s,s:{s:I,s:I,s:I,s:I},s:o,s:I,s:o,s:o,s:o}", "id", row->id,
		"name", row->name, "state", box_state_name(box->state), "image", row->image_name,
		"driver", row->driver, "profile", row->profile, "limits", "cpu_milli",
		(json_int_t)row->cpu_milli, "memory", (json_int_t)row->memory_bytes, "disk",
		(json_int_t)row->disk_bytes, "pids", (json_int_t)row->pids, "parent",
		text_or_null(parent ? parent->row.name : ""), "generation",
		(json_int_t)row->generation, "position", text_or_null(row->position), "inside",
		box_inside_json(box), "children", children_json(box));

	/* What it and all that came out of one box with it may use together. */
	if (box->tree->recorded)
		json_object_set_new(info, "tree",
			json_pack("{s:I,s:I,s:I,s:I}", "boxes",
				(json_int_t)tree_count(box->tree, box->yard), "cpu_milli",
				(json_int_t)all.cpu_milli, "memory", (json_int_t)all.memory_bytes,
				"pids", (json_int_t)all.pids));
	(void)args;
	ask_json(ask, info);
	ask_done(ask, 0);
}

static void do_ls(struct ask *ask, const struct args *args)
{
	_cleanup_json_ json_t *children = children_json(ask->box);
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

static void do_timeline(struct ask *ask, const struct args *args)
{
	_cleanup_json_ json_t *line = box_timeline_json(ask->box);
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
	const char *own = ask->box->row.name;
	size_t len = strlen(own);

	for (size_t i = 0; i < args->rest_count; i++) {
		const char *given = args->rest[i];
		bool whole = !strncmp(given, own, len) && given[len] == '-';
		_cleanup_free_ char *name = whole ? xstrdup(given) : xasprintf("%s-%s", own, given);

		if (name_check("box name", name, err) < 0)
			return -1;
		if (box_lookup(ask->box->yard, name))
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

static void do_fork(struct ask *ask, const struct args *args)
{
	_cleanup_json_ json_t *names = json_array();
	unsigned count = (unsigned)MAX(MAX(args->count, (uint64_t)args->rest_count), 1u);
	struct err err = ERR_INIT;
	struct errand *errand;

	if (yard_check_stays(ask->box->yard, &err) < 0 || child_names(ask, args, names, &err) < 0 ||
		lineage_check_fork(ask->box, count, &err) < 0 ||
		lineage_charge(ask->box, count, &err) < 0) {
		ask_fail(ask, &err);
		return;
	}
	errand = errand_new(ask);
	errand->json = args->json;
	box_fork(ask->box,
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

static void do_snapshot(struct ask *ask, const struct args *args)
{
	struct err err = ERR_INIT;
	struct errand *errand;

	if (args->rest_count && snapshot_name_check(args->rest[0], &err) < 0)
		return ask_fail(ask, &err);
	if (lineage_charge(ask->box, 1, &err) < 0)
		return ask_fail(ask, &err);
	errand = errand_new(ask);
	errand->json = args->json;
	box_snapshot(ask->box,
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

static void do_rollback(struct ask *ask, const struct args *args)
{
	struct err err = ERR_INIT;

	if (yard_check_stays(ask->box->yard, &err) < 0 || lineage_charge(ask->box, 1, &err) < 0)
		return ask_fail(ask, &err);
	box_rollback(ask->box,
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
	ask->exec = NULL;
	if (end)
		ask_done(ask, (int)end->exit_code);
	else
		ask_fail_outer(ask, err);
}

static void start_exec(struct ask *ask, struct box *child, const char *const *argv)
{
	static const struct exec_ops ops = { .on_output = on_exec_output, .on_done = on_exec_done };
	struct err err = ERR_INIT;

	if (exec_start(child, &(struct exec_spec){ .argv = argv, .no_snapshot = true }, &ops, ask,
		    &ask->exec, &err) < 0)
		ask_fail_outer(ask, &err);
}

/* The words of the program: behind the child's name, and a -- if there is one. */
static const char *const *program_of(struct ask *ask)
{
	char **at = ask->words + 1;

	at += strcmp(*at, "--") ? 1 : 2;
	return (const char *const *)(*at && !strcmp(*at, "--") ? at + 1 : at);
}

static void do_exec(struct ask *ask, const struct args *args)
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

	json_object_set_new(ids, top->row.id, json_true());
	json_object_update(ids, below);
}

/* With all that was forked from them: a box that nobody's chain leads to any more would count for
 * nobody. */
static void do_rm(struct ask *ask, const struct args *args)
{
	struct yard *yard = ask->box->yard;
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

/* ---- the table ------------------------------------------------------------------------------ */

static const struct verb {
	const char *name;
	void (*run)(struct ask *ask, const struct args *args);
	unsigned allowed; /* enum arg_flag */
	size_t least, most;
	bool harmless; /* may be done twice */
} verbs[] = {
	{ "info", do_info, ARG_JSON, 0, 0, true },
	{ "ls", do_ls, ARG_JSON | ARG_QUIET, 0, 0, true },
	{ "timeline", do_timeline, ARG_JSON, 0, 0, true },
	{ "fork", do_fork, ARG_JSON | ARG_COUNT | ARG_FROM, 0, FORKS_MAX, false },
	{ "snapshot", do_snapshot, ARG_JSON | ARG_DISK_ONLY, 0, 1, false },
	{ "rollback", do_rollback, ARG_DISK_ONLY, 0, 1, false },
	{ "exec", do_exec, ARG_PROGRAM, 2, ASK_WORDS_MAX, false },
	{ "rm", do_rm, 0, 1, FORKS_MAX, false },
};

static const struct verb *verb_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (!strcmp(verbs[i].name, name))
			return &verbs[i];
	return NULL;
}

static int check(const struct ask *ask, const struct verb *verb, bool again, struct args *args,
	struct err *err)
{
	const struct box *forbidding;

	if (!verb) {
		err_set(err, ERR_INVALID, "'%.40s' cannot be asked for from inside a box",
			text_is_utf8(ask->words[0], strlen(ask->words[0])) ? ask->words[0] : "?");
		return err_hint(err, "see 'box help'");
	}
	forbidding = lineage_forbidden_by(ask->box);
	if (forbidding) {
		err_set(err, ERR_FORBIDDEN, "this box may ask for nothing");
		return err_hint(err, "from outside, 'box set %s --inside on' allows it",
			forbidding->row.name);
	}
	if (again && !verb->harmless) {
		err_set(err, ERR_UNAVAILABLE,
			"the daemon was restarted before it answered; whether it did what was "
			"asked "
			"is not known");
		return err_hint(err, "'box ls' and 'box timeline' tell");
	}
	return args_read(ask->words, verb->allowed, verb->least, verb->most, args, err);
}

/* The words as they may be shown; those of a program are its own business. */
static json_t *words_json(const struct ask *ask)
{
	json_t *list = json_array();
	size_t most = !strcmp(ask->words[0], "exec") ? 4 : EVENT_WORDS;

	for (size_t i = 1; ask->words[i] && i < most; i++) {
		const char *word = ask->words[i];
		bool fits = strlen(word) <= EVENT_WORD_BYTES && text_is_utf8(word, strlen(word));

		json_array_append_new(list, json_string(fits ? word : "(…)"));
	}
	return list;
}

static void tell_event(struct ask *ask, const struct verb *verb, const struct err *refused)
{
	_cleanup_free_ char *type = xasprintf("inside.%s", verb ? verb->name : "unknown");
	json_t *data;

	if (!box_event_allowed(ask->box))
		return;
	data = json_pack("{s:o}", "args", words_json(ask));
	if (refused)
		json_object_set_new(data, "refused", json_string(refused->message));
	yard_event(ask->box->yard, type, ask->box, data);
}

void inside_do(struct ask *ask, bool again)
{
	_cleanup_(args_done) struct args args = { 0 };
	const struct verb *verb = verb_find(ask->words[0]);
	struct err err = ERR_INIT;

	if (check(ask, verb, again, &args, &err) < 0) {
		tell_event(ask, verb, &err);
		ask_fail(ask, &err);
		return;
	}
	tell_event(ask, verb, NULL);
	verb->run(ask, &args);
}
