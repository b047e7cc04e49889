/* fork.c - fork: copies of a box, and a program in each of them
 */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/exec_internal.h"
#include "cli/fork_run.h"
#include "cli/guard.h"
#include "cli/policy_text.h"
#include "cli/timeline_tree.h"
#include <stdio.h>

enum { FORKS_MAX = 100 };

static int read_names(int argc, char **argv, json_t *body, struct err *err)
{
	json_t *names = json_array();

	json_object_set_new(body, "names", names);
	for (int i = 0; i < argc; i++) {
		if (name_check("name", argv[i], err) < 0)
			return -1;
		json_array_append_new(names, json_string(argv[i]));
	}
	return 0;
}

static int fork_body(struct cli *cli, int argc, char **argv, json_t **ret, struct err *err)
{
	_cleanup_json_ json_t *body = json_object(), *env = json_object(), *labels = json_object();
	const char *count = cli_get(cli, "count");
	uint64_t number;

	if (count && parse_u64("--count", count, 1, FORKS_MAX, &number, err) < 0)
		return -1;
	if (count && number < (uint64_t)(argc - 1))
		return err_set(
			err, ERR_INVALID, "--count %s, but there are %d names", count, argc - 1);
	if (count)
		json_object_set_new(body, "count", json_integer((json_int_t)number));
	if (read_names(argc - 1, argv + 1, body, err) < 0 || exec_read_env(cli, env, err) < 0 ||
		labels_read(cli, labels, err) < 0 || policy_read_fork(cli, argv[0], body, err) < 0)
		return -1;
	if (cli_get(cli, "from"))
		json_object_set_new(body, "snapshot", json_string(cli_get(cli, "from")));
	json_object_set(body, "env", env);
	json_object_set(body, "labels", labels);
	json_object_set_new(body, "disk_only", json_boolean(cli_has(cli, "disk-only")));
	json_object_set_new(body, "remove_on_exit", json_boolean(cli_has(cli, "rm")));
	*ret = steal_ptr(&body);
	return 0;
}

static bool is_failed(json_t *failed, int64_t index)
{
	json_t *one;
	size_t i;

	json_array_foreach (failed, i, one)
		if (json_num(one, "index") == index)
			return true;
	return false;
}

/* The variables that tell a program its identity in a fork; see docs/inside.md. */
static void add_identity(json_t *body, json_t *child, const char *parent, int64_t index)
{
	json_t *env = json_object_get(body, "env");
	char number[24];

	snprintf(number, sizeof number, "%lld", (long long)index);
	if (!env) {
		env = json_object();
		json_object_set_new(body, "env", env);
	}
	json_object_set_new(env, "BOX_FORK_INDEX", json_string(number));
	json_object_set_new(env, "BOX_NAME", json_string(json_str(child, "name")));
	json_object_set_new(env, "BOX_ID", json_string(json_str(child, "id")));
	json_object_set_new(env, "BOX_PARENT", json_string(parent));
}

/* Returns the exit code of the first program that fails; forks that were not made have failed. */
static int run_in(struct cli *cli, const char *parent, json_t *result, json_t *body, int failed,
	struct guard *guard)
{
	json_t *children = json_object_get(result, "children"), *child;
	size_t count = json_array_size(children), i;
	struct fork_program *programs = xcalloc(count + 1, sizeof *programs);
	int64_t index = 0;
	bool gone = true;
	int code;

	json_array_foreach (children, i, child) {
		while (is_failed(json_object_get(result, "failed"), index))
			index++;
		programs[i].box = json_str(child, "name");
		programs[i].body = json_deep_copy(body);
		add_identity(programs[i].body, child, parent, index++);
		cli_note(cli, "forked '%s'", programs[i].box);
	}
	code = fork_run(cli, programs, count,
		count + json_array_size(json_object_get(result, "failed")) > 1, guard);
	for (i = 0; i < count; i++) {
		if (cli_has(cli, "rm"))
			gone = fork_remove(cli, programs[i].box) && gone;
		json_decref(programs[i].body);
	}
	if (gone)
		guard_tell_nothing(guard);
	free(programs);
	return failed ? failed : code;
}

/* The guard removes the forks when we are killed. */
static int make_forks(struct cli *cli, const char *parent, json_t *body, bool runs,
	struct guard *guard, json_t **ret, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/fork", parent);

	if (runs && cli_has(cli, "rm") && guard_start_run(guard, cli->target, body, err) < 0)
		return -1;
	if (timeline_post(cli, path, json_incref(body), parent, ret, err) == 0)
		return 0;
	if (err->kind != ERR_UNAVAILABLE) /* then it is unknown what has been made */
		guard_tell_nothing(guard);
	return -1;
}

int cmd_fork(struct cli *cli, int argc, char **argv)
{
	_cleanup_json_ json_t *body = NULL, *program = NULL, *result = NULL;
	int names = cli->flags.dash_at >= 0 ? cli->flags.dash_at : argc;
	bool runs = cli->flags.dash_at >= 0;
	struct guard guard = GUARD_INIT;
	struct err err = ERR_INIT;
	json_t *child;
	int code;
	size_t i;

	if (runs && (names < 1 || names == argc))
		return cli_usage(cli, names < 1 ? "which box is forked stands before '--'"
						: "a program follows '--'");
	if (!runs && (cli_get(cli, "workdir") || cli_get(cli, "user") || cli_get(cli, "timeout")))
		return cli_usage(
			cli, "--workdir, --user and --timeout are for a program after '--'");
	if (fork_body(cli, names, argv, &body, &err) < 0 ||
		(runs && exec_body(cli, argc - names, argv + names, false, &program, &err) < 0) ||
		make_forks(cli, argv[0], body, runs, &guard, &result, &err) < 0) {
		guard_end(&guard);
		return cli_fail(cli, &err);
	}
	code = cli_fail_each(cli, json_object_get(result, "failed"), "fork");
	if (cli->json)
		cli_print_json(json_incref(result));
	else if (!runs)
		json_array_foreach (json_object_get(result, "children"), i, child)
			puts(json_str(child, "name"));
	if (runs)
		code = run_in(cli, argv[0], result, program, code, &guard);
	guard_end(&guard);
	return code;
}
