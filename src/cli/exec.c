/* exec.c - exec, shell: starting programs in boxes */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/exec_internal.h"
#include "cli/session.h"
#include "cli/terminal.h"

#define DAYS_MS(n) ((uint64_t)(n)*86400000)

int exec_read_env(struct cli *cli, json_t *env, struct err *err)
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

json_t *exec_words(int count, char **words, struct err *err)
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

int exec_body(struct cli *cli, int argc, char **argv, bool tty, json_t **ret, struct err *err)
{
	_cleanup_json_ json_t *body = json_object(), *env = json_object();
	json_t *words = exec_words(argc, argv, err);
	uint64_t timeout_ms;

	if (!words)
		return -1;
	json_object_set_new(body, "argv", words);
	if (exec_read_env(cli, env, err) < 0)
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

void exec_warn_without_input(struct cli *cli, const struct session_spec *spec)
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
	exec_warn_without_input(cli, &spec);
	spec.body = body;
	return session_run(cli, &spec);
}

/* SHELL comes from the box's passwd; an image may name one it does not have. */
#define FIND_SHELL "[ -x \"$SHELL\" ] || SHELL=$(command -v bash || echo /bin/sh); exec \"$SHELL\" "

int exec_shell_body(struct cli *cli, const char *command, bool tty, json_t **ret, struct err *err)
{
	const char *const program[] = { "/bin/sh", "-c",
		command ? FIND_SHELL "-c \"$1\"" : FIND_SHELL "-l", "sh", command };

	return exec_body(cli, command ? 5 : 3, (char **)program, tty, ret, err);
}

int cmd_shell(struct cli *cli, int argc, char **argv)
{
	_cleanup_json_ json_t *body = NULL;
	struct session_spec spec = { .box = argv[0], .input = true, .tty = isatty(STDIN_FILENO) };
	struct err err = ERR_INIT;

	(void)argc;
	if (exec_shell_body(cli, NULL, spec.tty, &body, &err) < 0)
		return cli_fail(cli, &err);
	spec.body = body;
	return session_run(cli, &spec);
}
