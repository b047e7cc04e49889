/* exec.c - new, exec, shell: making boxes and starting programs in them */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/session.h"
#include "cli/terminal.h"

#define DAYS_MS(n) ((uint64_t)(n)*86400000)

/* "KEY=VALUE", or "KEY" that takes ours. A KEY that is not set here is left out, as with env and docker. */
static int read_env(struct cli *cli, json_t *env, struct err *err)
{
	const char *given;

	for (size_t i = 0; (given = cli_nth(cli, "env", i)); i++) {
		const char *equals = strchr(given, '=');
		_cleanup_free_ char *key =
			equals ? xstrndup(given, (size_t)(equals - given)) : xstrdup(given);
		_cleanup_free_ char *pair = equals ? NULL : xasprintf("%s=", given);
		const char *value = equals ? equals + 1 : getenv(given);

		if (env_check("--env", equals ? given : pair, err) < 0)
			return -1;
		if (!value)
			continue;
		if (!text_is_utf8(value, strlen(value)))
			return err_set(err, ERR_INVALID, "--env '%.60s' must be UTF-8", key);
		json_object_set_new(env, key, json_string(value));
	}
	return 0;
}

static json_t *strings_json(int count, char **words, struct err *err)
{
	json_t *list = json_array();

	for (int i = 0; i < count; i++) {
		if (!text_is_utf8(words[i], strlen(words[i]))) {
			json_decref(list);
			err_set(err, ERR_INVALID, "word %d of the program must be UTF-8", i + 1);
			return NULL;
		}
		json_array_append_new(list, json_string(words[i]));
	}
	return list;
}

static void add_terminal(json_t *body, json_t *env)
{
	const char *term = getenv("TERM");
	uint16_t rows, cols;

	json_object_set_new(body, "tty", json_true());
	if (terminal_size(STDOUT_FILENO, &rows, &cols) ||
		terminal_size(STDIN_FILENO, &rows, &cols)) {
		json_object_set_new(body, "rows", json_integer(rows));
		json_object_set_new(body, "cols", json_integer(cols));
	}
	if (term && *term && text_is_utf8(term, strlen(term)) && !json_object_get(env, "TERM"))
		json_object_set_new(env, "TERM", json_string(term));
}

/* The body of an exec, from the options and the words of the program. */
static int exec_body(
	struct cli *cli, int argc, char **argv, bool tty, json_t **ret, struct err *err)
{
	_cleanup_json_ json_t *body = json_object(), *env = json_object();
	json_t *words = strings_json(argc, argv, err);
	uint64_t timeout_ms;

	if (!words)
		return -1;
	json_object_set_new(body, "argv", words);
	if (read_env(cli, env, err) < 0)
		return -1;
	if (tty)
		add_terminal(body, env);
	if (json_object_size(env))
		json_object_set(body, "env", env);
	if (cli_get(cli, "workdir"))
		json_object_set_new(body, "cwd", json_string(cli_get(cli, "workdir")));
	if (cli_get(cli, "user"))
		json_object_set_new(body, "user", json_string(cli_get(cli, "user")));
	if (cli_get(cli, "timeout")) {
		if (parse_duration("--timeout", cli_get(cli, "timeout"), 1, DAYS_MS(365),
			    &timeout_ms, err) < 0)
			return -1;
		json_object_set_new(body, "timeout_ms", json_integer((json_int_t)timeout_ms));
	}
	*ret = steal_ptr(&body);
	return 0;
}

static int start_detached(struct cli *cli, const char *box, json_t *body)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/exec", box);
	_cleanup_json_ json_t *exec = NULL;
	struct err err = ERR_INIT;

	json_object_set_new(body, "detach", json_true());
	if (client_call(cli->client, "POST", path, json_incref(body), &exec, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&exec));
	puts(json_str(exec, "id"));
	return 0;
}

/* A shell that shows its prompt and hears nothing looks as if it hung. */
static void warn_without_input(struct cli *cli, const struct session_spec *spec)
{
	if (spec->tty && !spec->input && isatty(STDIN_FILENO))
		cli_note(cli, "keys are not passed on without -i; Ctrl-C twice leaves");
}

int cmd_exec(struct cli *cli, int argc, char **argv)
{
	_cleanup_json_ json_t *body = NULL;
	struct session_spec spec = {
		.box = argv[0],
		.input = cli_has(cli, "interactive"),
		.tty = cli_has(cli, "tty"),
	};
	struct err err = ERR_INIT;

	if (exec_body(cli, argc - 1, argv + 1, spec.tty, &body, &err) < 0)
		return cli_fail(cli, &err);
	if (cli_has(cli, "detach"))
		return spec.input ? cli_usage(cli, "--detach and --interactive exclude each other")
				  : start_detached(cli, argv[0], body);
	warn_without_input(cli, &spec);
	spec.body = body;
	return session_run(cli, &spec);
}

int cmd_shell(struct cli *cli, int argc, char **argv)
{
	/* SHELL comes from the box's passwd; an image may name one it does not have. */
	static char *const program[] = { "/bin/sh", "-c",
		"[ -x \"$SHELL\" ] || SHELL=$(command -v bash || echo /bin/sh); exec \"$SHELL\" -l",
		NULL };
	_cleanup_json_ json_t *body = NULL;
	struct session_spec spec = { .box = argv[0], .input = true, .tty = isatty(STDIN_FILENO) };
	struct err err = ERR_INIT;

	(void)argc;
	if (exec_body(cli, 3, (char **)program, spec.tty, &body, &err) < 0)
		return cli_fail(cli, &err);
	spec.body = body;
	return session_run(cli, &spec);
}

/* ---- new ------------------------------------------------------------------------------------- */

static int read_labels(struct cli *cli, json_t *labels, struct err *err)
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

/* Limits are checked here, so that a wrong one is reported with the name of its option. */
static int read_limits(struct cli *cli, json_t *body, struct err *err)
{
	uint64_t value;

	if (cli_get(cli, "cpu")) {
		if (parse_cpus("--cpu", cli_get(cli, "cpu"), &value, err) < 0)
			return -1;
		json_object_set_new(body, "cpu", json_string(cli_get(cli, "cpu")));
	}
	if (cli_get(cli, "memory")) {
		if (parse_size("--memory", cli_get(cli, "memory"), 0, INT64_MAX, &value, err) < 0)
			return -1;
		json_object_set_new(body, "memory", json_integer((json_int_t)value));
	}
	if (cli_get(cli, "disk")) {
		if (parse_size("--disk", cli_get(cli, "disk"), 0, INT64_MAX, &value, err) < 0)
			return -1;
		json_object_set_new(body, "disk", json_integer((json_int_t)value));
	}
	if (cli_get(cli, "pids")) {
		if (parse_u64("--pids", cli_get(cli, "pids"), 0, 4194304, &value, err) < 0)
			return -1;
		json_object_set_new(body, "pids", json_integer((json_int_t)value));
	}
	return 0;
}

static int new_body(struct cli *cli, const char *name, json_t **ret, struct err *err)
{
	static const char *const texts[] = { "image", "profile", "driver" };
	_cleanup_json_ json_t *body = json_object(), *env = json_object(), *labels = json_object();

	if (name && name_check("name", name, err) < 0)
		return -1;
	if (name)
		json_object_set_new(body, "name", json_string(name));
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (cli_get(cli, texts[i]))
			json_object_set_new(body, texts[i], json_string(cli_get(cli, texts[i])));
	if (read_limits(cli, body, err) < 0 || read_env(cli, env, err) < 0 ||
		read_labels(cli, labels, err) < 0)
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

/* The program runs attached to us in the box just made; with --rm nothing is left of either. */
static int run_in_new(struct cli *cli, const char *name, int argc, char **argv)
{
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

	if (exec_body(cli, argc, argv, spec.tty, &body, &err) < 0) {
		code = cli_fail(cli, &err);
	} else {
		json_object_del(body, "env"); /* it is the box's already */
		if (spec.tty && getenv("TERM"))
			json_object_set_new(
				body, "env", json_pack("{s:s}", "TERM", getenv("TERM")));
		warn_without_input(cli, &spec);
		spec.body = body;
		code = session_run(cli, &spec);
	}
	if (cli_has(cli, "rm") && !detached &&
		client_call(cli->client, "DELETE", path, NULL, NULL, &err) < 0 &&
		err.kind != ERR_NOT_FOUND)
		cli_fail(cli, &err);
	return code;
}

int cmd_new(struct cli *cli, int argc, char **argv)
{
	int before = cli->flags.dash_at < 0 ? argc : cli->flags.dash_at;
	bool detach = cli_has(cli, "detach");
	_cleanup_json_ json_t *body = NULL, *box = NULL;
	const char *name;
	json_t *words, *warning;
	struct err err = ERR_INIT;
	size_t i;

	if (before > 1)
		return cli_usage(cli,
			"'%.60s' is one word too many; a program to run comes after --", argv[1]);
	if (before == argc && cli->flags.dash_at >= 0)
		return cli_usage(cli, "no program after --");
	if (before == argc && (detach || cli_has(cli, "interactive") || cli_has(cli, "tty")))
		return cli_usage(cli, "-d, -i and -t need a program after --");
	if (detach && (cli_has(cli, "interactive") || cli_has(cli, "tty")))
		return cli_usage(cli, "-d excludes -i and -t");
	words = strings_json(argc - before, argv + before, &err);
	if (!words || new_body(cli, before ? argv[0] : NULL, &body, &err) < 0) {
		json_decref(words);
		return cli_fail(cli, &err);
	}
	if (detach)
		json_object_set(body, "command", words);
	json_decref(words);
	if (client_call(cli->client, "POST", "/v1/boxes", json_incref(body), &box, &err) < 0)
		return cli_fail(cli, &err);
	json_array_foreach (json_object_get(box, "warnings"), i, warning)
		cli_note(cli, "warning: %s",
			json_string_value(warning) ? json_string_value(warning) : "");
	name = json_str(box, "name");
	if (before < argc && !detach) {
		if (!before && !cli_has(cli, "rm"))
			cli_note(cli, "box '%s'", name);
		return run_in_new(cli, name, argc - before, argv + before);
	}
	if (cli->json)
		return cli_print_json(steal_ptr(&box));
	puts(name);
	return 0;
}
