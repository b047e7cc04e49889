/* timeline.c - hibernate, wake, snapshot, timeline, forget, rollback, promote: a box in time */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/exec_internal.h"
#include "base/signals.h"
#include "cli/table.h"
#include "cli/timeline_tree.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* ---- requests that continue without us ------------------------------------------------------ */

static char going_on[256];

static void on_stop(int number)
{
	(void)!write(STDERR_FILENO, going_on, strlen(going_on));
	signal(number, SIG_DFL);
	raise(number);
}

int timeline_post(struct cli *cli, const char *path, json_t *body, const char *box, json_t **ret,
	struct err *err)
{
	static const int stop = SIGINT;
	int status;

	snprintf(going_on, sizeof going_on,
		"\nbox: interrupted; it is done all the same: see 'box ls' and 'box timeline "
		"%.100s'\n",
		box);
	signals_catch(&stop, 1, on_stop, NULL);
	status = client_call(cli->client, "POST", path, body, ret, err);
	signals_release(&stop, 1);
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

/* ---- snapshots ------------------------------------------------------------------------------ */

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
	if (timeline_post(cli, path, body, argv[0], &snapshot, &err) < 0)
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

/* ---- rollback ------------------------------------------------------------------------------- */

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
	if (timeline_post(cli, path, body, argv[0], &result, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&result));
	print_rollback(cli, result);
	return 0;
}

/* ---- promote -------------------------------------------------------------------------------- */

/* "try=1 team=a"; yours. */
static char *labels_text(json_t *labels)
{
	char *text = xstrdup("");
	const char *key;
	json_t *value;

	json_object_foreach (labels, key, value) {
		char *longer = xasprintf("%s%s%s=%s", text, *text ? " " : "", key,
			json_string_value(value) ? json_string_value(value) : "");

		free(text);
		text = longer;
	}
	return text;
}

/* "memory=300M pids=100": the limits that differ; yours. */
static char *limits_text(json_t *limits, json_t *others)
{
	char *text = xstrdup("");
	const char *key;
	json_t *value;

	json_object_foreach (limits, key, value) {
		bool bytes = !strcmp(key, "memory") || !strcmp(key, "disk");
		char size[16], number[32], *longer;

		if (json_equal(value, json_object_get(others, key)))
			continue;
		snprintf(number, sizeof number, "%g", json_number_value(value));
		if (bytes)
			format_size((uint64_t)json_integer_value(value), size);
		longer = xasprintf("%s%s%s=%s", text, *text ? " " : "", key,
			json_number_value(value) == 0 ? "none"
			: bytes			      ? size
						      : number);
		free(text);
		text = longer;
	}
	return text;
}

/* Prints the labels and limits it had as a fork and has no more. */
static void tell_had(struct cli *cli, json_t *result)
{
	json_t *had = json_object_get(result, "had"), *box = json_object_get(result, "box");
	json_t *labels = json_object_get(had, "labels"), *limits = json_object_get(had, "limits");
	_cleanup_free_ char *before = labels_text(labels);
	_cleanup_free_ char *limits_before = limits_text(limits, json_object_get(box, "limits"));
	const char *name = json_str(box, "name");

	if (labels && !json_equal(labels, json_object_get(box, "labels")))
		cli_note(cli, "labels are those '%s' had; the fork's were %s (--keep-labels)", name,
			*before ? before : "none");
	if (*limits_before)
		cli_note(cli, "limits are those '%s' had; the fork's were %s (--keep-limits)", name,
			limits_before);
}

int cmd_promote(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/promote", argv[0]);
	_cleanup_json_ json_t *result = NULL;
	const char *name;
	json_t *was;
	struct err err = ERR_INIT;

	(void)argc;
	if (timeline_post(cli, path,
		    json_pack("{s:b, s:b}", "keep_labels", cli_has(cli, "keep-labels"),
			    "keep_limits", cli_has(cli, "keep-limits")),
		    argv[0], &result, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&result));
	name = json_str(json_object_get(result, "box"), "name");
	was = json_object_get(result, "was");
	puts(name);
	if (*name_or_id(was))
		cli_note(cli, "what '%s' was before: box rollback %s %s%s", name, name,
			name_or_id(was), snapshot_extent(was));
	tell_had(cli, result);
	return 0;
}
