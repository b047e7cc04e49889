/* boxes.c - ls, show, stop, start, suspend, resume, rename, rm */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "cli/waiting.h"

enum { STOP_TIMEOUT_MS = 10000, HOUR_MS = 3600000 };

/* "memory 512M, pids 100", or "-". */
static void format_limits(json_t *limits, char *out, size_t size)
{
	double cpu = json_number_value(json_object_get(limits, "cpu"));
	char memory[16] = "", disk[16] = "", cpus[16] = "";

	if (cpu > 0)
		snprintf(cpus, sizeof cpus, "%g", cpu);
	if (json_num(limits, "memory"))
		format_size((uint64_t)json_num(limits, "memory"), memory);
	if (json_num(limits, "disk"))
		format_size((uint64_t)json_num(limits, "disk"), disk);
	snprintf(out, size, "%s/%s/%s", *cpus ? cpus : "-", *memory ? memory : "-",
		*disk ? disk : "-");
}

static enum paint state_paint(const char *state)
{
	return !strcmp(state, "running")				   ? PAINT_GOOD
	       : !strcmp(state, "stopped") || !strcmp(state, "hibernated") ? PAINT_DIM
									   : PAINT_WARN;
}

static void add_map(struct buf *out, json_t *map)
{
	const char *key;
	json_t *value;

	json_object_foreach (map, key, value)
		buf_addf(out, "%s%s=%s", out->len ? " " : "", key,
			json_string_value(value) ? json_string_value(value) : "(hidden)");
}

static bool is_held(json_t *box)
{
	return json_is_true(json_object_get(box, "held"));
}

static void add_box_row(struct table *table, json_t *box)
{
	_cleanup_free_ char *state =
		xasprintf("%s%s", json_str(box, "state"), is_held(box) ? " (held)" : "");
	const char *accelerator = json_str(box, "accelerator");
	_cleanup_free_ char *driver = xasprintf("%s%s%s%s", json_str(box, "driver"),
		*accelerator ? " (" : "", accelerator, *accelerator ? ")" : "");
	struct buf labels = BUF_INIT;
	char limits[64], age[16];

	add_map(&labels, json_object_get(box, "labels"));
	format_limits(json_object_get(box, "limits"), limits, sizeof limits);
	table_add(table, json_str(box, "name"));
	table_add(table, json_str(box, "owner"));
	table_add(table, state);
	table_paint(table, is_held(box) ? PAINT_BAD : state_paint(json_str(box, "state")));
	table_add(table, json_str(box, "image"));
	table_add(table, driver);
	table_add(table, limits);
	table_add(table, age_since(json_str(box, "created_at"), age));
	table_add(table, json_str(box, "id"));
	table_add(table, buf_str(&labels));
	buf_done(&labels);
}

bool cli_has_owners(json_t *list)
{
	const char *first = json_str(json_array_get(list, 0), "owner");
	json_t *item;
	size_t i;

	json_array_foreach (list, i, item)
		if (strcmp(json_str(item, "owner"), first))
			return true;
	return false;
}

int cli_list_boxes(struct cli *cli, json_t **ret, struct err *err)
{
	_cleanup_json_ json_t *all = json_array();
	_cleanup_free_ char *after = NULL;

	for (;;) {
		_cleanup_free_ char *filter = NULL;
		_cleanup_json_ json_t *page = NULL;
		struct buf path = BUF_INIT;
		int result;

		buf_add_str(&path, "/v1/boxes?limit=1000");
		for (size_t i = 0; cli_nth(cli, "label", i); i++) {
			_cleanup_free_ char *part =
				client_path("&label=%s", cli_nth(cli, "label", i));

			buf_add_str(&path, part);
		}
		if (cli_get(cli, "state")) {
			_cleanup_free_ char *part = client_path("&state=%s", cli_get(cli, "state"));

			buf_add_str(&path, part);
		}
		if (after) {
			filter = client_path("&after=%s", after);
			buf_add_str(&path, filter);
		}
		result = client_get(cli->client, buf_str(&path), &page, err);
		buf_done(&path);
		if (result < 0)
			return -1;
		json_array_extend(all, json_object_get(page, "boxes"));
		free(after);
		after = xstrdup(json_string_value(json_object_get(page, "next")));
		if (!after)
			break;
	}
	*ret = steal_ptr(&all);
	return 0;
}

int cmd_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const heads[] = { "NAME", "OWNER", "STATE", "IMAGE", "DRIVER",
		"CPU/MEM/DISK", ">AGE", "ID", "LABELS", NULL };
	const char *format = cli_get(cli, "output");
	_cleanup_json_ json_t *boxes = NULL;
	struct table *table;
	struct err err = ERR_INIT;
	json_t *box;
	size_t i;

	(void)argc;
	(void)argv;
	if (format && strcmp(format, "wide"))
		return cli_usage(cli, "--output is wide; --json prints everything");
	if (cli_list_boxes(cli, &boxes, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&boxes));
	if (cli_has(cli, "names") || cli->quiet) {
		json_array_foreach (boxes, i, box)
			puts(json_str(box, "name"));
		return 0;
	}
	if (!json_array_size(boxes)) {
		cli_note(cli, "no boxes%s",
			cli->flags.count ? " like that" : " yet; 'box new' makes one");
		return 0;
	}
	table = table_new(heads);
	table_hide(table, format || cli_has_owners(boxes) ? -1 : 1);
	json_array_foreach (boxes, i, box)
		add_box_row(table, box);
	return table_print(table);
}

/* ---- show ------------------------------------------------------------------------------------ */

static void show_line(const char *key, const char *value)
{
	_cleanup_free_ char *safe = text_printable(value);

	if (*safe)
		printf("%-12s %s\n", key, safe);
}

static void show_map(const char *key, json_t *map)
{
	struct buf text = BUF_INIT;

	add_map(&text, map);
	show_line(key, buf_str(&text));
	buf_done(&text);
}

static void show_limit(const char *key, uint64_t value, bool is_size)
{
	char text[32];

	if (!value)
		strcpy(text, "none");
	else if (is_size)
		format_size(value, text);
	else
		snprintf(text, sizeof text, "%llu", (unsigned long long)value);
	printf("%-12s %s\n", key, text);
}

/* "cache:/cache ro": volumes and folders of the host. */
static void show_attached(const char *key, const char *from, json_t *list)
{
	json_t *item;
	size_t i;

	json_array_foreach (list, i, item) {
		_cleanup_free_ char *text = xasprintf("%s:%s%s", json_str(item, from),
			json_str(item, "path"),
			json_is_true(json_object_get(item, "read_only")) ? " (read only)" : "");

		show_line(key, text);
	}
}

static void show_inside(json_t *inside)
{
	char text[96];

	snprintf(text, sizeof text, "forks %llu deep, %llu at once, %llu calls a minute",
		(unsigned long long)json_num(inside, "depth"),
		(unsigned long long)json_num(inside, "count"),
		(unsigned long long)json_num(inside, "rate"));
	show_line(
		"from inside", json_is_true(json_object_get(inside, "enabled")) ? text : "nothing");
}

/* Not shown for a box that is alone in its tree. */
static void show_tree(json_t *tree)
{
	json_t *limits = json_object_get(tree, "limits");
	const char *head = json_str(tree, "head");
	uint64_t memory = (uint64_t)json_num(limits, "memory"),
		 pids = (uint64_t)json_num(limits, "pids");
	double cpu = json_number_value(json_object_get(limits, "cpu"));
	char size[16], count[24], cpus[24], text[192];

	if (json_num(tree, "boxes") < 2)
		return;
	snprintf(count, sizeof count, "%llu", (unsigned long long)pids);
	snprintf(cpus, sizeof cpus, "%g", cpu);
	snprintf(text, sizeof text, "%lld boxes%s%.64s; together memory %s, cpu %s, processes %s",
		(long long)json_num(tree, "boxes"), *head ? " from " : "", head,
		memory ? format_size(memory, size) : "unlimited", cpu > 0 ? cpus : "unlimited",
		pids ? count : "unlimited");
	show_line("tree", text);
}

static void show_disk(json_t *box)
{
	json_t *disk = json_object_get(box, "disk"), *limits = json_object_get(box, "limits");
	char used[16];

	show_limit("disk", (uint64_t)json_num(limits, "disk"), true);
	if (json_is_integer(json_object_get(disk, "used_bytes")))
		show_line("disk used", format_size((uint64_t)json_num(disk, "used_bytes"), used));
	show_line("on limit", json_str(box, "on_limit"));
	show_inside(json_object_get(box, "inside"));
	show_tree(json_object_get(box, "tree"));
	show_attached("volume", "volume", json_object_get(box, "volumes"));
	show_attached("mount", "source", json_object_get(box, "mounts"));
}

static void show_json(const char *key, json_t *list)
{
	_cleanup_free_ char *text = json_array_size(list) ? json_text(list) : NULL;

	if (text)
		show_line(key, text);
}

/* Shows its position on the time line, and its origin. */
static void show_place(json_t *box)
{
	json_t *origin = json_object_get(box, "origin");
	const char *from = json_str(origin, "box"), *snapshot = json_str(origin, "snapshot");
	const char *when = json_str(box, "auto_snapshot");

	if (*from)
		printf("%-12s %s%s%s\n", "forked from", from, *snapshot ? " at " : "", snapshot);
	show_line("position", json_str(box, "position"));
	show_line("asleep for", json_str(box, "asleep_for"));
	show_line("limit", json_str(box, "limit_reached"));
	if (strcmp(when, "off"))
		show_line("snapshots", when);
}

/* "for 12s; suspends in 18s", "busy: uses 3% cpu", "asleep since 5m; a timer wakes it at …". */
static void show_idle(json_t *box)
{
	json_t *idle = json_object_get(box, "idle"), *timer = json_object_get(idle, "next_timer");
	uint64_t idle_ms = (uint64_t)json_num(idle, "for_ms");
	uint64_t suspend_ms = (uint64_t)json_num(idle, "suspend_ms");
	const char *busy = json_string_value(json_object_get(idle, "busy"));
	const char *asleep = json_string_value(json_object_get(idle, "asleep_for"));
	_cleanup_free_ char *text = NULL;
	char since[16], left[16];

	if (!json_is_integer(json_object_get(idle, "for_ms")) && !asleep)
		return;
	format_age(idle_ms, since);
	format_age(suspend_ms > idle_ms ? suspend_ms - idle_ms : 0, left);
	if (asleep && json_is_object(timer))
		text = xasprintf(
			"asleep (%s); a timer wakes it at %s", asleep, json_str(timer, "at"));
	else if (asleep)
		text = xasprintf("asleep (%s); %s", asleep,
			!strcmp(asleep, "limit") ? "wakes by 'box resume'"
						 : "wakes when it is used");
	else if (busy)
		text = xasprintf("busy: %s", busy);
	else if (!suspend_ms)
		text = xasprintf("for %s; is never suspended", since);
	else
		text = xasprintf("for %s; suspends in %s", since, left);
	show_line("idle", text);
}

static void show_box(json_t *box)
{
	static const char *const keys[] = { "name", "id", "owner", "state", "image", "image_id",
		"driver", "accelerator", "profile", "created_at", "started_at", "ended_at" };
	json_t *limits = json_object_get(box, "limits"), *end = json_object_get(box, "end"), *item;
	double cpu = json_number_value(json_object_get(limits, "cpu"));
	size_t i;

	for (i = 0; i < ARRAY_LEN(keys); i++)
		show_line(keys[i], json_str(box, keys[i]));
	show_line("end",
		*json_str(end, "detail") ? json_str(end, "detail") : json_str(end, "reason"));
	if (cpu > 0)
		printf("%-12s %g\n", "cpu", cpu);
	else
		show_limit("cpu", 0, false);
	show_limit("memory", (uint64_t)json_num(limits, "memory"), true);
	show_limit("pids", (uint64_t)json_num(limits, "pids"), false);
	show_disk(box);
	show_idle(box);
	show_map("env", json_object_get(box, "env"));
	show_map("labels", json_object_get(box, "labels"));
	show_json("command", json_object_get(box, "command"));
	show_json("ports", json_object_get(box, "ports"));
	show_place(box);
	if (is_held(box))
		show_line("held", "its files may not be whole yet, and its command has not begun; "
				  "'box start' lets it go, 'box rm -f' removes it");
	if (json_is_true(json_object_get(box, "remove_on_exit")))
		show_line("removed", "when it stops or its command ends");
	json_array_foreach (json_object_get(box, "warnings"), i, item)
		show_line("warning", json_string_value(item) ? json_string_value(item) : "");
}

int cmd_show(struct cli *cli, int argc, char **argv)
{
	int code = 0;

	for (int i = 0; i < argc; i++) {
		_cleanup_free_ char *path = client_path("/v1/boxes/%s", argv[i]);
		_cleanup_json_ json_t *box = NULL;
		struct err err = ERR_INIT;

		if (client_get(cli->client, path, &box, &err) < 0) {
			code = cli_fail(cli, &err);
			continue;
		}
		if (cli->json) {
			cli_print_json(steal_ptr(&box));
			continue;
		}
		if (i)
			putchar('\n');
		show_box(box);
	}
	return code;
}

/* ---- verbs over several boxes --------------------------------------------------------------- */

int cli_post_each(struct cli *cli, int argc, char **argv, const char *verb, json_t *body)
{
	int code = 0;

	for (int i = 0; i < argc; i++) {
		_cleanup_free_ char *path = client_path("/v1/boxes/%s/%s", argv[i], verb);
		_cleanup_json_ json_t *box = NULL;
		struct err err = ERR_INIT;

		if (client_call(cli->client, "POST", path, json_incref(body), &box, &err) < 0)
			code = cli_fail(cli, &err);
		else if (cli->json)
			cli_print_json(steal_ptr(&box));
		else if (!cli->quiet)
			puts(argv[i]);
	}
	json_decref(body);
	return code;
}

int cmd_stop(struct cli *cli, int argc, char **argv)
{
	uint64_t timeout_ms = STOP_TIMEOUT_MS;
	struct err err = ERR_INIT;

	if (cli_get(cli, "timeout") && parse_duration("--timeout", cli_get(cli, "timeout"), 0,
					       HOUR_MS, &timeout_ms, &err) < 0)
		return cli_fail(cli, &err);
	return cli_post_each(
		cli, argc, argv, "stop", json_pack("{s:I}", "timeout_ms", (json_int_t)timeout_ms));
}

int cmd_start(struct cli *cli, int argc, char **argv)
{
	pid_t waiting = waiting_begin(cli, argc == 1 ? argv[0] : NULL, false);
	int code = cli_post_each(cli, argc, argv, "start", NULL);

	waiting_end(waiting);
	return code;
}

int cmd_suspend(struct cli *cli, int argc, char **argv)
{
	return cli_post_each(cli, argc, argv, "suspend", NULL);
}

int cmd_resume(struct cli *cli, int argc, char **argv)
{
	return cli_post_each(cli, argc, argv, "resume", NULL);
}

int cmd_rename(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s", argv[0]);
	_cleanup_json_ json_t *box = NULL;
	struct err err = ERR_INIT;

	(void)argc;
	if (client_call(cli->client, "PATCH", path, json_pack("{s:s}", "name", argv[1]), &box,
		    &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&box));
	if (!cli->quiet)
		puts(argv[1]);
	return 0;
}

static int remove_one(struct cli *cli, const char *name, bool force, json_t *removed)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s?force=%s&keep_workspace=%s", name,
		force ? "true" : "false", cli_has(cli, "keep-workspace") ? "true" : "false");
	struct err err = ERR_INIT;

	if (client_call(cli->client, "DELETE", path, NULL, NULL, &err) < 0) {
		if (force && err.kind == ERR_NOT_FOUND)
			return 0;
		if (err.kind == ERR_STATE && !err.hint[0])
			err_hint(&err, "'box rm -f' removes it anyway");
		return cli_fail(cli, &err);
	}
	if (!cli->json && !cli->quiet)
		puts(name);
	json_array_append_new(removed, json_string(name));
	return 0;
}

int cmd_rm(struct cli *cli, int argc, char **argv)
{
	_cleanup_json_ json_t *boxes = NULL;
	json_t *removed = json_array(), *box;
	bool force = cli_has(cli, "force"), some = cli_has(cli, "all") || cli_has(cli, "label");
	struct err err = ERR_INIT;
	int code = 0, one;
	size_t at;

	if (some == (argc > 0) || (cli_has(cli, "all") && cli_has(cli, "label"))) {
		json_decref(removed);
		return cli_usage(cli, some ? "either names, --label or --all"
					   : "which box? give names, --label or --all");
	}
	/* An unset variable of a script must not select more boxes than a set one. */
	for (size_t i = 0; cli_nth(cli, "label", i); i++)
		if (!*cli_nth(cli, "label", i) || *cli_nth(cli, "label", i) == '=') {
			json_decref(removed);
			return cli_usage(cli, "a label is empty: --label KEY[=VALUE]");
		}
	if (some && cli_list_boxes(cli, &boxes, &err) < 0) {
		json_decref(removed);
		return cli_fail(cli, &err);
	}
	for (int i = 0; i < argc; i++)
		if ((one = remove_one(cli, argv[i], force, removed)))
			code = one;
	json_array_foreach (boxes, at, box)
		if ((one = remove_one(cli, json_str(box, "name"), force, removed)))
			code = one;
	if (cli->json)
		cli_print_json(json_pack("{s:O}", "removed", removed));
	json_decref(removed);
	return code;
}
