/* timeline.c - hibernate, wake, snapshot, timeline, forget, rollback, fork, promote: a box in time */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/exec_internal.h"
#include "cli/policy_text.h"
#include "cli/table.h"
#include "cli/timeline_tree.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { FORKS_MAX = 100 };

/* ---- what goes on without us --------------------------------------------------------------------------- */

static char going_on[256];

static void on_stop(int number)
{
	(void)!write(STDERR_FILENO, going_on, strlen(going_on));
	signal(number, SIG_DFL);
	raise(number);
}

/* POST. The daemon does what it was asked for also when nobody waits any more: Ctrl-C says so. body is consumed. */
static int post(struct cli *cli, const char *path, json_t *body, const char *box, json_t **ret,
	struct err *err)
{
	const struct sigaction tells = { .sa_handler = on_stop }, ends = { .sa_handler = SIG_DFL };
	int status;

	snprintf(going_on, sizeof going_on,
		"\nbox: interrupted; it is done all the same: see 'box ls' and 'box timeline "
		"%.100s'\n",
		box);
	sigaction(SIGINT, &tells, NULL);
	status = client_call(cli->client, "POST", path, body, ret, err);
	sigaction(SIGINT, &ends, NULL);
	return status;
}

int cmd_hibernate(struct cli *cli, int argc, char **argv)
{
	return cli_post_each(cli, argc, argv, "hibernate", NULL);
}

int cmd_wake(struct cli *cli, int argc, char **argv)
{
	return cli_post_each(cli, argc, argv, "wake", NULL);
}

static const char *name_or_id(json_t *snapshot)
{
	const char *name = json_str(snapshot, "name");

	return *name ? name : json_str(snapshot, "id");
}

/* ---- snapshots --------------------------------------------------------------------------------------- */

int cmd_snapshot(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/snapshots", argv[0]);
	json_t *body = json_pack("{s:b}", "disk_only", cli_has(cli, "disk-only"));
	_cleanup_json_ json_t *snapshot = NULL;
	struct err err = ERR_INIT;

	if (argc > 1 && name_check("snapshot name", argv[1], &err) < 0) {
		json_decref(body);
		return cli_fail(cli, &err);
	}
	if (argc > 1)
		json_object_set_new(body, "name", json_string(argv[1]));
	if (post(cli, path, body, argv[0], &snapshot, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&snapshot));
	puts(name_or_id(snapshot));
	if (json_num(snapshot, "took_us"))
		cli_note(cli, "%lld process%s, paused for %.1f ms, took %.1f ms",
			(long long)json_num(snapshot, "processes"),
			json_num(snapshot, "processes") == 1 ? "" : "es",
			(double)json_num(snapshot, "paused_us") / 1000.0,
			(double)json_num(snapshot, "took_us") / 1000.0);
	return 0;
}

int cmd_timeline(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/timeline", argv[0]);
	_cleanup_json_ json_t *timeline = NULL, *boxes = NULL;
	struct err err = ERR_INIT;

	(void)argc;
	if (client_get(cli->client, path, &timeline, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&timeline));
	if (cli_list_boxes(cli, &boxes, &err) < 0)
		return cli_fail(cli, &err);
	return table_print(timeline_tree(timeline, boxes));
}

int cmd_forget(struct cli *cli, int argc, char **argv)
{
	json_t *gone = json_array();
	int code = 0;

	for (int i = 1; i < argc; i++) {
		_cleanup_free_ char *path =
			client_path("/v1/boxes/%s/snapshots/%s", argv[0], argv[i]);
		struct err err = ERR_INIT;

		if (client_call(cli->client, "DELETE", path, NULL, NULL, &err) < 0) {
			code = cli_fail(cli, &err);
			continue;
		}
		json_array_append_new(gone, json_string(argv[i]));
		if (!cli->json && !cli->quiet)
			puts(argv[i]);
	}
	if (cli->json)
		cli_print_json(json_pack("{s:O}", "removed", gone));
	json_decref(gone);
	return code;
}

/* ---- rollback ------------------------------------------------------------------------------------------ */

static void print_rollback(struct cli *cli, json_t *result)
{
	json_t *to = json_object_get(result, "to"), *from = json_object_get(result, "from");
	const char *box = json_str(json_object_get(result, "box"), "name");
	bool whole = !strcmp(json_str(to, "kind"), "full") && !cli_has(cli, "disk-only");
	char age[16];

	if (cli->quiet)
		return;
	printf("%s is back at %s, %s ago (%s, %s)\n", box, name_or_id(to),
		age_since(json_str(to, "created_at"), age), json_str(to, "cause"),
		whole ? "with its processes" : "its disk alone");
	if (*name_or_id(from))
		printf("undo: box rollback %s %s%s\n", box, name_or_id(from),
			snapshot_extent(from));
	else
		printf("what it was before is forgotten\n");
}

int cmd_rollback(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/rollback", argv[0]);
	json_t *body = json_pack("{s:b, s:b}", "disk_only", cli_has(cli, "disk-only"), "forget",
		cli_has(cli, "forget"));
	_cleanup_json_ json_t *result = NULL;
	struct err err = ERR_INIT;

	if (argc > 1)
		json_object_set_new(body, "snapshot", json_string(argv[1]));
	if (post(cli, path, body, argv[0], &result, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&result));
	print_rollback(cli, result);
	return 0;
}

/* ---- forks --------------------------------------------------------------------------------------------- */

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

/* Tells of each child that is not there; the exit code of the last one. */
static int tell_failures(struct cli *cli, json_t *failed)
{
	json_t *one;
	int code = 0;
	size_t i;

	json_array_foreach (failed, i, one) {
		_cleanup_free_ char *text = json_text(one);
		struct err err = ERR_INIT;

		client_api_error(500, text, strlen(text), &err);
		err_wrap(&err, "fork '%.63s'", json_str(one, "name"));
		code = cli_fail(cli, &err);
	}
	return code;
}

int cmd_fork(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/fork", argv[0]);
	_cleanup_json_ json_t *body = NULL, *result = NULL;
	struct err err = ERR_INIT;
	json_t *child;
	int code;
	size_t i;

	if (fork_body(cli, argc, argv, &body, &err) < 0 ||
		post(cli, path, json_incref(body), argv[0], &result, &err) < 0)
		return cli_fail(cli, &err);
	code = tell_failures(cli, json_object_get(result, "failed"));
	if (cli->json) {
		cli_print_json(steal_ptr(&result));
		return code;
	}
	json_array_foreach (json_object_get(result, "children"), i, child)
		puts(json_str(child, "name"));
	return code;
}

int cmd_promote(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/promote", argv[0]);
	_cleanup_json_ json_t *result = NULL;
	const char *name;
	json_t *was;
	struct err err = ERR_INIT;

	(void)argc;
	if (post(cli, path, NULL, argv[0], &result, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&result));
	name = json_str(json_object_get(result, "box"), "name");
	was = json_object_get(result, "was");
	puts(name);
	if (*name_or_id(was))
		cli_note(cli, "what '%s' was before: box rollback %s %s%s", name, name,
			name_or_id(was), snapshot_extent(was));
	return 0;
}
