/* volumes.c - volume create, ls, show, set, rm */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/table.h"

static int read_size(struct cli *cli, json_t *body, struct err *err)
{
	const char *given = cli_get(cli, "size");
	uint64_t size;

	if (!given)
		return 0;
	if (parse_size("--size", given, 0, INT64_MAX, &size, err) < 0)
		return -1;
	json_object_set_new(body, "size", json_integer((json_int_t)size));
	return 0;
}

static int answer_volume(struct cli *cli, json_t *volume)
{
	if (cli->json)
		return cli_print_json(volume);
	if (!cli->quiet)
		puts(json_str(volume, "name"));
	json_decref(volume);
	return 0;
}

int cmd_volume_create(struct cli *cli, int argc, char **argv)
{
	_cleanup_json_ json_t *body = json_pack("{s:s}", "name", argv[0]);
	struct err err = ERR_INIT;
	json_t *volume = NULL;

	(void)argc;
	if (cli_get(cli, "owner"))
		json_object_set_new(body, "owner", json_string(cli_get(cli, "owner")));
	if (name_check("volume", argv[0], &err) < 0 || read_size(cli, body, &err) < 0 ||
		client_call(cli->client, "POST", "/v1/volumes", json_incref(body), &volume, &err) <
			0)
		return cli_fail(cli, &err);
	return answer_volume(cli, volume);
}

int cmd_volume_set(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/volumes/%s", argv[0]);
	_cleanup_json_ json_t *body = json_object();
	struct err err = ERR_INIT;
	json_t *volume = NULL;

	(void)argc;
	if (!cli_get(cli, "size"))
		return cli_usage(cli, "nothing to change; give --size");
	if (read_size(cli, body, &err) < 0 ||
		client_call(cli->client, "PATCH", path, json_incref(body), &volume, &err) < 0)
		return cli_fail(cli, &err);
	return answer_volume(cli, volume);
}

/* ---- ls, show ------------------------------------------------------------------------------- */

static void add_box_names(struct buf *out, json_t *boxes)
{
	json_t *box;
	size_t i;

	json_array_foreach (boxes, i, box)
		buf_addf(out, "%s%s:%s%s", i ? " " : "", json_str(box, "name"),
			json_str(box, "path"),
			json_is_true(json_object_get(box, "read_only")) ? ":ro" : "");
}

static void add_row(struct table *table, json_t *volume)
{
	json_t *used = json_object_get(volume, "used_bytes");
	uint64_t limit = (uint64_t)json_num(volume, "limit_bytes");
	struct buf boxes = BUF_INIT;
	char text[16];

	add_box_names(&boxes, json_object_get(volume, "boxes"));
	table_add(table, json_str(volume, "name"));
	table_add(table, json_str(volume, "owner"));
	table_add(table, json_is_integer(used)
				 ? format_size((uint64_t)json_integer_value(used), text)
				 : "-");
	table_add(table, limit ? format_size(limit, text) : "-");
	table_add(table, age_since(json_str(volume, "created_at"), text));
	table_add(table, buf_str(&boxes));
	buf_done(&boxes);
}

int cmd_volume_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const heads[] = { "NAME", "OWNER", ">USED", ">LIMIT", ">AGE", "BOXES",
		NULL };
	_cleanup_json_ json_t *answer = NULL;
	struct err err = ERR_INIT;
	json_t *volumes, *volume;
	struct table *table;
	size_t i;

	(void)argc;
	(void)argv;
	if (client_get(cli->client, "/v1/volumes", &answer, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json_list(steal_ptr(&answer), "volumes");
	volumes = json_object_get(answer, "volumes");
	if (!json_array_size(volumes) && !cli_has(cli, "names")) {
		cli_note(cli, "no volumes yet; 'box volume create' makes one");
		return 0;
	}
	table = table_new(heads);
	table_hide(table, cli_has_owners(volumes) ? -1 : 1);
	json_array_foreach (volumes, i, volume)
		if (cli_has(cli, "names"))
			puts(json_str(volume, "name"));
		else
			add_row(table, volume);
	if (!cli_has(cli, "names"))
		return table_print(table);
	table_free(table);
	return 0;
}

int cmd_volume_show(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/volumes/%s", argv[0]);
	_cleanup_json_ json_t *volume = NULL;
	struct err err = ERR_INIT;
	json_t *used, *box;
	char text[16];
	size_t i;

	(void)argc;
	if (client_get(cli->client, path, &volume, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&volume));
	used = json_object_get(volume, "used_bytes");
	printf("%-12s %s\n%-12s %s\n%-12s %s\n", "name", json_str(volume, "name"), "owner",
		json_str(volume, "owner"), "created_at", json_str(volume, "created_at"));
	if (json_is_integer(used))
		printf("%-12s %s\n", "used", format_size((uint64_t)json_integer_value(used), text));
	printf("%-12s %s\n", "limit",
		json_num(volume, "limit_bytes")
			? format_size((uint64_t)json_num(volume, "limit_bytes"), text)
			: "none");
	json_array_foreach (json_object_get(volume, "boxes"), i, box)
		printf("%-12s %s at %s%s\n", "box", json_str(box, "name"), json_str(box, "path"),
			json_is_true(json_object_get(box, "read_only")) ? ", read only" : "");
	return 0;
}

int cmd_volume_rm(struct cli *cli, int argc, char **argv)
{
	return cli_delete_each(cli, "volumes", argc, argv);
}
