/* new.c - new: a box from an image, which is pulled first when it is missing
 *
 * A program after -- runs attached to us, so it is started by an exec and not as the box's own: the
 * image's entrypoint is put before it here, as the daemon does with -d. */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/attach_points.h"
#include "cli/cli.h"
#include "cli/cp.h"
#include "cli/exec_internal.h"
#include "cli/guard.h"
#include "cli/image_job.h"
#include "cli/policy_text.h"
#include "cli/session.h"
#include "cli/waiting.h"
#include <signal.h>

enum { PIDS_MAX = 4194304, INSIDE_MAX = 1000000 };

int labels_read(struct cli *cli, json_t *labels, struct err *err)
{
	const char *given;

	for (size_t i = 0; (given = cli_nth(cli, "label", i)); i++) {
		_cleanup_free_ char *key = NULL;

		if (label_check("--label", given, err) < 0)
			return -1;
		key = xstrndup(given, strcspn(given, "="));
		json_object_set_new(labels, key, json_string(given + strlen(key) + 1));
	}
	return 0;
}

static int read_on_limit(struct cli *cli, json_t *body, struct err *err)
{
	static const char *const policies[] = { "notify", "pause", "stop" };
	const char *given = cli_get(cli, "on-limit");

	for (size_t i = 0; given && i < ARRAY_LEN(policies); i++)
		if (!strcmp(given, policies[i])) {
			json_object_set_new(body, "on_limit", json_string(given));
			return 0;
		}
	return given ? err_set(err, ERR_INVALID, "--on-limit is notify, pause or stop, not '%.40s'",
			       given)
		     : 0;
}

static int read_inside_limit(json_t *limits, const char *part, struct err *err)
{
	static const char *const names[] = { "depth", "count", "rate" };
	size_t len = strcspn(part, "=");
	uint64_t value;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (len == strlen(names[i]) && !strncmp(part, names[i], len) && part[len]) {
			if (parse_u64("--inside", part + len + 1, 0, INSIDE_MAX, &value, err) < 0)
				return -1;
			json_object_set_new(limits, names[i], json_integer((json_int_t)value));
			return 0;
		}
	return err_set(err, ERR_INVALID,
		"--inside is on, off or some of depth=N,count=N,rate=N, not '%.40s'", part);
}

static int read_inside(struct cli *cli, json_t *body, struct err *err)
{
	const char *given = cli_get(cli, "inside");
	_cleanup_free_ char *text = given ? xstrdup(given) : NULL;
	_cleanup_json_ json_t *limits = json_object();
	char *rest = text, *part;

	if (!given)
		return 0;
	if (!strcmp(given, "on") || !strcmp(given, "off")) {
		json_object_set_new(body, "inside", json_boolean(!strcmp(given, "on")));
		return 0;
	}
	while ((part = strsep(&rest, ",")))
		if (read_inside_limit(limits, part, err) < 0)
			return -1;
	json_object_set(body, "inside", limits);
	return 0;
}

static int read_tree_limit(json_t *limits, const char *part, struct err *err)
{
	size_t len = strcspn(part, "=");
	const char *given = part[len] ? part + len + 1 : "";
	uint64_t value;

	if (len == 6 && !strncmp(part, "memory", len) && *given) {
		if (parse_size("--tree memory", given, 0, INT64_MAX, &value, err) < 0)
			return -1;
		json_object_set_new(limits, "memory", json_integer((json_int_t)value));
	} else if (len == 3 && !strncmp(part, "cpu", len) && *given) {
		if (parse_cpus("--tree cpu", given, &value, err) < 0)
			return -1;
		json_object_set_new(limits, "cpu", json_string(given));
	} else if (len == 4 && !strncmp(part, "pids", len) && *given) {
		if (parse_u64("--tree pids", given, 0, PIDS_MAX, &value, err) < 0)
			return -1;
		json_object_set_new(limits, "pids", json_integer((json_int_t)value));
	} else {
		return err_set(err, ERR_INVALID,
			"--tree is own or some of memory=SIZE,cpu=N,pids=N, not '%.40s'", part);
	}
	return 0;
}

static int read_tree(struct cli *cli, json_t *body, struct err *err)
{
	const char *given = cli_get(cli, "tree");
	_cleanup_free_ char *text = given ? xstrdup(given) : NULL;
	_cleanup_json_ json_t *limits = json_object();
	char *rest = text, *part;

	if (!given)
		return 0;
	if (!strcmp(given, "own")) {
		json_object_set_new(body, "tree", json_null());
		return 0;
	}
	while ((part = strsep(&rest, ",")))
		if (read_tree_limit(limits, part, err) < 0)
			return -1;
	json_object_set(body, "tree", limits);
	return 0;
}

static int read_idle(struct cli *cli, json_t *body, struct err *err)
{
	static const char *const flags[][2] = { { "idle", "suspend" },
		{ "hibernate-after", "hibernate" } };
	_cleanup_json_ json_t *idle = json_object();

	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		const char *given = cli_get(cli, flags[i][0]);
		char option[24];
		uint64_t ms;

		if (!given)
			continue;
		snprintf(option, sizeof option, "--%s", flags[i][0]);
		if (strcmp(given, "off") && strcmp(given, "default") &&
			parse_duration(
				option, given, 1000, UINT64_C(366) * 86400 * 1000, &ms, err) < 0)
			return err_hint(err, "a duration like 30s or 15m, off, or default");
		json_object_set_new(idle, flags[i][1], json_string(given));
	}
	if (json_object_size(idle))
		json_object_set(body, "idle", idle);
	return 0;
}

int limits_read(struct cli *cli, json_t *body, struct err *err)
{
	static const char *const sizes[] = { "memory", "disk" };
	const char *cpu = cli_get(cli, "cpu"), *pids = cli_get(cli, "pids");
	uint64_t value;

	if (cpu && parse_cpus("--cpu", cpu, &value, err) < 0)
		return -1;
	if (cpu)
		json_object_set_new(body, "cpu", json_string(cpu));
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		const char *given = cli_get(cli, sizes[i]);
		char option[16];

		snprintf(option, sizeof option, "--%s", sizes[i]);
		if (given && parse_size(option, given, 0, INT64_MAX, &value, err) < 0)
			return -1;
		if (given)
			json_object_set_new(body, sizes[i], json_integer((json_int_t)value));
	}
	if (pids && parse_u64("--pids", pids, 0, PIDS_MAX, &value, err) < 0)
		return -1;
	if (pids)
		json_object_set_new(body, "pids", json_integer((json_int_t)value));
	if (read_inside(cli, body, err) < 0 || read_tree(cli, body, err) < 0)
		return -1;
	/* The daemon checks the value. */
	if (cli_get(cli, "auto-snapshot"))
		json_object_set_new(
			body, "auto_snapshot", json_string(cli_get(cli, "auto-snapshot")));
	if (read_idle(cli, body, err) < 0)
		return -1;
	return read_on_limit(cli, body, err);
}

static int read_main(struct cli *cli, json_t *body, struct err *err)
{
	const char *entrypoint = cli_get(cli, "entrypoint");

	if (entrypoint && !text_is_utf8(entrypoint, strlen(entrypoint)))
		return err_set(err, ERR_INVALID, "--entrypoint must be UTF-8");
	if (entrypoint)
		json_object_set_new(body, "entrypoint",
			*entrypoint ? json_pack("[s]", entrypoint) : json_array());
	if (cli_has(cli, "no-main"))
		json_object_set_new(body, "no_main", json_true());
	return 0;
}

static int new_body(struct cli *cli, const char *name, json_t **ret, struct err *err)
{
	static const char *const texts[] = { "image", "profile", "driver", "owner" };
	_cleanup_json_ json_t *body = json_object(), *env = json_object(), *labels = json_object();

	if (name && name_check("name", name, err) < 0)
		return -1;
	if (name)
		json_object_set_new(body, "name", json_string(name));
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (cli_get(cli, texts[i]))
			json_object_set_new(body, texts[i], json_string(cli_get(cli, texts[i])));
	if (limits_read(cli, body, err) < 0 || exec_read_env(cli, env, err) < 0 ||
		labels_read(cli, labels, err) < 0 || read_main(cli, body, err) < 0 ||
		volumes_read(cli, body, err) < 0 || mounts_read(cli, body, err) < 0 ||
		policy_read_new(cli, body, err) < 0)
		return -1;
	if (json_object_size(env))
		json_object_set(body, "env", env);
	if (json_object_size(labels))
		json_object_set(body, "labels", labels);
	if (cli_has(cli, "rm"))
		json_object_set_new(body, "remove_on_exit", json_true());
	*ret = steal_ptr(&body);
	return 0;
}

/* ---- the box -------------------------------------------------------------------------------- */

static int post_box(struct cli *cli, json_t *body, json_t **ret, struct err *err)
{
	const char *driver = json_str(body, "driver");
	pid_t waiting = waiting_begin(
		cli, json_string_value(json_object_get(body, "name")), *driver != '\0');
	int status = client_call(cli->client, "POST", "/v1/boxes", json_incref(body), ret, err);

	waiting_end(waiting);
	return status;
}

/* Usually one request is enough; only a missing image costs more. */
static int make_box(struct cli *cli, json_t *body, json_t **ret, struct err *err)
{
	_cleanup_json_ json_t *image = NULL;
	const char *name = cli_get(cli, "image");
	_cleanup_free_ char *path = name ? client_path("/v1/images/%s", name) : NULL;
	enum image_pull policy;
	struct err missing = ERR_INIT;

	if (image_pull_from_name(cli_get(cli, "pull"), &policy, err) < 0)
		return -1;
	if (!name && policy == IMAGE_PULL_ALWAYS)
		return err_set(err, ERR_INVALID, "--pull always needs --image");
	if (policy != IMAGE_PULL_ALWAYS) {
		if (post_box(cli, body, ret, err) == 0)
			return 0;
		/* Not found may mean the image, or something else that was named. */
		if (!name || policy == IMAGE_PULL_NEVER || err->kind != ERR_NOT_FOUND ||
			client_get(cli->client, path, NULL, &missing) == 0 ||
			missing.kind != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
	}
	if (image_ensure(cli, name, policy, &image, err) < 0)
		return -1;
	return post_box(cli, body, ret, err);
}

/* Puts the image's entrypoint, or that of --entrypoint, before the words of the program. */
static int add_entrypoint(struct cli *cli, json_t *box, json_t *exec, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/images/%s", json_str(box, "image_id"));
	const char *given = cli_get(cli, "entrypoint");
	_cleanup_json_ json_t *image = NULL, *argv = json_array();

	if (given && *given) {
		json_array_append_new(argv, json_string(given));
	} else if (!given) {
		if (client_get(cli->client, path, &image, err) < 0)
			return -1;
		json_array_extend(
			argv, json_object_get(json_object_get(image, "config"), "entrypoint"));
	}
	json_array_extend(argv, json_object_get(exec, "argv"));
	json_object_set(exec, "argv", argv);
	return 0;
}

/* Runs the program attached in the new box; with --rm nothing is left of either. */
static int run_in_new(struct cli *cli, json_t *box, int argc, char **argv, struct guard *guard)
{
	const char *name = json_str(box, "name");
	_cleanup_free_ char *path = client_path("/v1/boxes/%s?force=true", name);
	_cleanup_json_ json_t *body = NULL;
	bool detached = false;
	struct session_spec spec = {
		.box = name,
		.input = cli_has(cli, "interactive"),
		.tty = cli_has(cli, "tty"),
		.ret_detached = &detached,
	};
	struct err err = ERR_INIT;
	int code;

	if (exec_body(cli, argc, argv, spec.tty, &body, &err) < 0 ||
		add_entrypoint(cli, box, body, &err) < 0) {
		code = cli_fail(cli, &err);
	} else {
		json_object_del(body, "env"); /* the box already has it */
		if (spec.tty && getenv("TERM"))
			json_object_set_new(
				body, "env", json_pack("{s:s}", "TERM", getenv("TERM")));
		exec_warn_without_input(cli, &spec);
		spec.body = body;
		code = session_run(cli, &spec);
	}
	if (cli_has(cli, "rm") && !detached &&
		client_call(cli->client, "DELETE", path, NULL, NULL, &err) < 0 &&
		err.kind != ERR_NOT_FOUND)
		cli_fail(cli, &err); /* the guard retries */
	else
		guard_tell_nothing(guard);
	return code;
}

/* ---- files to copy -------------------------------------------------------------------------- */

/* If this fails the guard retries. */
static void drop_box(struct cli *cli, const char *name, struct guard *guard)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s?force=true", name);
	struct err err = ERR_INIT;

	if (client_call(cli->client, "DELETE", path, NULL, NULL, &err) == 0 ||
		err.kind == ERR_NOT_FOUND)
		guard_tell_nothing(guard);
}

/* 0, or the exit code; then the box has been removed. */
static int copy_all(struct cli *cli, json_t **box, struct guard *guard)
{
	const char *name = json_str(*box, "name"), *word;
	_cleanup_free_ char *start = client_path("/v1/boxes/%s/start", name);
	json_t *started = NULL;
	struct err err = ERR_INIT;
	int status = 0, number;

	for (size_t i = 0; status == 0 && (word = cli_nth(cli, "copy", i)); i++)
		status = copy_into_new(cli, name, word, &err);
	/* Its command has waited for the files. */
	if (status == 0)
		status = client_call(cli->client, "POST", start, NULL, &started, &err);
	if (status < 0)
		drop_box(cli, name, guard);
	number = copy_catch_signals(false);
	if (status == 0) {
		json_decref(*box);
		*box = started;
		return 0;
	}
	if (number) {
		signal(number, SIG_DFL);
		raise(number);
	}
	return cli_fail(cli, &err);
}

static int check_copies(struct cli *cli, struct err *err)
{
	const char *word;

	for (size_t i = 0; (word = cli_nth(cli, "copy", i)); i++)
		if (copy_check_word(word, err) < 0)
			return -1;
	return 0;
}

/* ---- the command ---------------------------------------------------------------------------- */

/* 0, or the exit code of a usage error. before: words before --. */
static int check_words(struct cli *cli, int before, int argc, char **argv)
{
	bool detach = cli_has(cli, "detach");
	bool joined = cli_has(cli, "interactive") || cli_has(cli, "tty");

	if (before && cli_has(cli, "name"))
		return cli_usage(cli, "the name is given twice: '%.60s' and --name", argv[0]);
	if (before > 1)
		return cli_usage(cli,
			"'%.60s' is one word too many; a program to run comes after --", argv[1]);
	if (before == argc && cli->flags.dash_at >= 0)
		return cli_usage(cli, "no program after --");
	if (before == argc && (detach || joined))
		return cli_usage(cli, "-d, -i and -t need a program after --");
	if (detach && joined)
		return cli_usage(cli, "-d excludes -i and -t");
	if (detach && cli_has(cli, "no-main"))
		return cli_usage(cli, "--no-main excludes -d, whose program is the main one");
	return 0;
}

/* Makes the box with its files and ports. The guard removes it when we are killed before it is
 * complete, or before a program of --rm has ended. 0, or the exit code. */
static int make_whole(
	struct cli *cli, json_t *body, bool attached, struct guard *guard, json_t **ret)
{
	bool runs = attached && cli_has(cli, "rm"), copies = cli_has(cli, "copy");
	_cleanup_json_ json_t *box = NULL;
	struct err err = ERR_INIT;
	int failed = 0;

	if ((runs && guard_start_run(guard, cli->target, body, &err) < 0) ||
		(copies && !runs && guard_start(guard, cli->target, &err) < 0))
		return cli_fail(cli, &err);
	if (make_box(cli, body, &box, &err) < 0) {
		if (err.kind != ERR_UNAVAILABLE) /* then it is unknown what has been made */
			guard_tell_nothing(guard);
		mounts_explain(cli, body, &err);
		return cli_fail(cli, &err);
	}
	if (copies && !runs)
		guard_tell_box(guard, json_str(box, "id"));
	if (ports_publish(cli, json_str(box, "name"), &err) < 0) {
		drop_box(cli, json_str(box, "name"), guard);
		failed = cli_fail(cli, &err);
	} else if (copies) {
		failed = copy_all(cli, &box, guard);
	}
	if (!runs && !failed)
		guard_tell_nothing(guard);
	*ret = steal_ptr(&box);
	return failed;
}

static int make_and_run(
	struct cli *cli, json_t *body, int before, int argc, char **argv, struct guard *guard)
{
	bool attached = before < argc && !cli_has(cli, "detach");
	_cleanup_json_ json_t *box = NULL;
	int failed = make_whole(cli, body, attached, guard, &box);
	json_t *warning;
	size_t i;

	if (failed)
		return failed;
	json_array_foreach (json_object_get(box, "warnings"), i, warning)
		cli_note(cli, "warning: %s",
			json_string_value(warning) ? json_string_value(warning) : "");
	if (attached) {
		if (!before && !cli_has(cli, "rm"))
			cli_note(cli, "box '%s'", json_str(box, "name"));
		return run_in_new(cli, box, argc - before, argv + before, guard);
	}
	if (cli->json)
		return cli_print_json(steal_ptr(&box));
	puts(json_str(box, "name"));
	return 0;
}

int cmd_new(struct cli *cli, int argc, char **argv)
{
	int before = cli->flags.dash_at < 0 ? argc : cli->flags.dash_at;
	int wrong = check_words(cli, before, argc, argv);
	_cleanup_json_ json_t *body = NULL, *words = NULL;
	struct guard guard = GUARD_INIT;
	struct err err = ERR_INIT;
	int code;

	if (wrong)
		return wrong;
	words = exec_words(argc - before, argv + before, &err);
	if (!words || new_body(cli, before ? argv[0] : cli_get(cli, "name"), &body, &err) < 0 ||
		ports_check_publish(cli, &err) < 0 || check_copies(cli, &err) < 0)
		return cli_fail(cli, &err);
	if (cli_has(cli, "copy")) {
		json_object_set_new(body, "hold", json_true());
		copy_catch_signals(true);
	}
	if (before < argc && !cli_has(cli, "detach"))
		json_object_set_new(body, "no_main", json_true());
	else if (before < argc)
		json_object_set(body, "command", words);
	code = make_and_run(cli, body, before, argc, argv, &guard);
	guard_end(&guard);
	return code;
}
