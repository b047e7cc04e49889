/* disks.c - set, save, diff, df: the limits of a box and what is on its disk */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/download.h"
#include "cli/exec_internal.h"
#include "cli/table.h"

int cmd_set(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s", argv[0]);
	_cleanup_json_ json_t *body = json_object(), *box = NULL;
	const char *name = cli_get(cli, "name");
	struct err err = ERR_INIT;

	(void)argc;
	if (limits_read(cli, body, &err) < 0 || (name && name_check("--name", name, &err) < 0))
		return cli_fail(cli, &err);
	if (name)
		json_object_set_new(body, "name", json_string(name));
	if (!json_object_size(body))
		return cli_usage(cli, "nothing to change; give --memory or another option");
	if (client_call(cli->client, "PATCH", path, json_incref(body), &box, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&box));
	if (!cli->quiet)
		puts(json_str(box, "name"));
	return 0;
}

int cmd_save(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/save", argv[0]);
	_cleanup_json_ json_t *image = NULL;
	struct err err = ERR_INIT;
	int64_t start_us = clock_mono_us();

	(void)argc;
	if (client_call(cli->client, "POST", path,
		    json_pack("{s:s, s:b, s:b}", "name", argv[1], "full", cli_has(cli, "full"),
			    "learn_hosts", cli_has(cli, "learn-hosts")),
		    &image, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&image));
	if (!cli->quiet)
		printf("%s  %s  %.1f ms\n", json_str(image, "name"), json_str(image, "id"),
			(double)(clock_mono_us() - start_us) / 1000.0);
	return 0;
}

/* ---- diff ----------------------------------------------------------------------------------- */

struct diff {
	struct cli *cli;
	bool ended;
};

static int on_diff_line(json_t *line, const char *text, size_t len, void *arg, struct err *err)
{
	static const struct {
		const char *change;
		char letter;
	} letters[] = { { "added", 'A' }, { "changed", 'C' }, { "removed", 'D' } };
	const char *change = json_str(line, "change"), *path = json_str(line, "path");
	struct diff *diff = arg;
	_cleanup_free_ char *safe = text_printable(path);
	char letter = '?', size[16] = "-";

	diff->ended = diff->ended || !strcmp(json_str(line, "type"), "end");
	if (!strcmp(json_str(line, "type"), "error"))
		return client_api_error(500, text, len, err);
	if (diff->cli->json)
		printf("%.*s\n", (int)len, text);
	if (json_num(line, "too_deep"))
		cli_note(diff->cli, "left out %lld folders nested deeper than a path may be long",
			(long long)json_num(line, "too_deep"));
	if (diff->cli->json || !*change)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(letters); i++)
		if (!strcmp(change, letters[i].change))
			letter = letters[i].letter;
	if (!strcmp(json_str(line, "type"), "file"))
		format_size((uint64_t)json_num(line, "size"), size);
	printf("%c %7s %s%s%s\n", letter, size, *path == '/' ? "" : "/", safe,
		!strcmp(json_str(line, "type"), "dir") ? "/" : "");
	return 0;
}

static char *diff_path(const char *box, const char *other, bool tar)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/diff", box);
	_cleanup_free_ char *with = other ? client_path("other=%s", other) : NULL;

	return xasprintf("%s%s%s%s%s", path, with || tar ? "?" : "", with ? with : "",
		with && tar ? "&" : "", tar ? "format=tar" : "");
}

int cmd_diff(struct cli *cli, int argc, char **argv)
{
	const char *tar = cli_get(cli, "tar");
	_cleanup_free_ char *path = diff_path(argv[0], argc > 1 ? argv[1] : NULL, tar != NULL);
	struct diff diff = { .cli = cli };
	struct err err = ERR_INIT;
	uint64_t bytes;

	if (tar) {
		if (download(cli, argv[0], path, tar, &bytes, &err) < 0)
			return cli_fail(cli, &err);
		if (cli->json && strcmp(tar, "-"))
			return cli_print_json(
				json_pack("{s:s, s:I}", "file", tar, "bytes", (json_int_t)bytes));
		return 0;
	}
	if (client_lines(cli->client, "GET", path, NULL, on_diff_line, &diff, &err) == 0 &&
		!diff.ended)
		err_set(&err, ERR_PROTOCOL, "the list of changes is not complete");
	return err.kind ? cli_fail(cli, &err) : 0;
}

/* ---- df ------------------------------------------------------------------------------------- */

static void add_size(struct table *table, json_t *bytes)
{
	char text[16];

	table_add(table, json_is_integer(bytes)
				 ? format_size((uint64_t)json_integer_value(bytes), text)
				 : "-");
}

/* Nine tenths and more is highlighted. */
static void paint_full(struct table *table, uint64_t taken, uint64_t of)
{
	if (of && taken >= of - of / 10)
		table_paint(table, PAINT_WARN);
}

static void add_df_box(struct table *table, json_t *box, json_t *pool)
{
	json_t *disk = json_object_get(box, "disk");
	uint64_t limit = (uint64_t)json_num(disk, "limit_bytes");
	json_t *left = json_object_get(disk, "free_bytes");

	table_add(table, json_str(box, "name"));
	add_size(table, json_object_get(disk, "used_bytes"));
	add_size(table, json_object_get(disk, "tree_bytes"));
	add_size(table, json_object_get(disk, "states_bytes"));
	add_size(table, limit ? json_object_get(disk, "limit_bytes") : NULL);
	add_size(table, json_is_integer(left) ? left : json_object_get(pool, "free_bytes"));
	if (json_is_integer(left))
		paint_full(table, limit - MIN(limit, (uint64_t)json_integer_value(left)), limit);
}

/* Usage that belongs to no box, and of how much. */
static void add_df_other(struct table *table, const char *name, uint64_t used, json_t *pool)
{
	char text[16];

	table_add(table, name);
	table_add(table, format_size(used, text));
	table_add(table, "-");
	table_add(table, "-");
	add_size(table, json_object_get(pool, "total_bytes"));
	add_size(table, json_object_get(pool, "free_bytes"));
	paint_full(table, used, (uint64_t)json_num(pool, "total_bytes"));
}

static uint64_t sum_workspaces(json_t *workspaces)
{
	uint64_t sum = 0;
	json_t *one;
	size_t i;

	json_array_foreach (json_object_get(workspaces, "workspaces"), i, one)
		sum += (uint64_t)json_num(one, "size_bytes");
	return sum;
}

/* The named boxes, or all. */
static int find_boxes(struct cli *cli, int argc, char **argv, json_t **ret, struct err *err)
{
	_cleanup_json_ json_t *boxes = json_array();

	if (!argc)
		return cli_list_boxes(cli, ret, err);
	for (int i = 0; i < argc; i++) {
		_cleanup_free_ char *path = client_path("/v1/boxes/%s", argv[i]);
		json_t *box = NULL;

		if (client_get(cli->client, path, &box, err) < 0)
			return -1;
		json_array_append_new(boxes, box);
	}
	*ret = steal_ptr(&boxes);
	return 0;
}

int cmd_df(struct cli *cli, int argc, char **argv)
{
	static const char *const heads[] = { "NAME", ">USED", ">TREE", ">MEMORY", ">LIMIT", ">FREE",
		NULL };
	_cleanup_json_ json_t *boxes = NULL, *pool = NULL, *workspaces = NULL;
	struct err err = ERR_INIT;
	struct table *table;
	uint64_t kept;
	json_t *box;
	size_t i;

	if (find_boxes(cli, argc, argv, &boxes, &err) < 0 ||
		client_get(cli->client, "/v1/pool", &pool, &err) < 0 ||
		client_get(cli->client, "/v1/workspaces", &workspaces, &err) < 0)
		return cli_fail(cli, &err);
	kept = sum_workspaces(workspaces);
	if (cli->json)
		return cli_print_json(json_pack("{s:O, s:O, s:I}", "boxes", boxes, "pool", pool,
			"workspaces_bytes", (json_int_t)kept));
	table = table_new(heads);
	json_array_foreach (boxes, i, box)
		add_df_box(table, box, pool);
	if (kept && !argc)
		add_df_other(table, "(workspaces)", kept, NULL);
	add_df_other(table, "(pool)", (uint64_t)json_num(pool, "used_bytes"), pool);
	return table_print(table);
}
