/* system.c - info and doctor: what the daemon is and what this machine can do */
#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/table.h"

static void print_value(const char *key, json_t *value, int depth)
{
	const char *inner_key;
	json_t *inner;
	_cleanup_free_ char *text = NULL, *safe = NULL;

	if (json_is_object(value)) {
		printf("%*s%s\n", depth * 2, "", key);
		json_object_foreach (value, inner_key, inner)
			print_value(inner_key, inner, depth + 1);
		return;
	}
	text = json_is_string(value) ? xstrdup(json_string_value(value)) : json_text(value);
	safe = text_printable(text);
	printf("%*s%-*s %s\n", depth * 2, "", 14 - depth * 2, key, safe);
}

int cmd_info(struct cli *cli, int argc, char **argv)
{
	_cleanup_json_ json_t *info = NULL;
	struct err err = ERR_INIT;
	const char *key;
	json_t *value;

	(void)argc;
	(void)argv;
	if (client_get(cli->client, "/v1/info", &info, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&info));
	json_object_foreach (info, key, value)
		print_value(key, value, 0);
	return 0;
}

int cmd_doctor(struct cli *cli, int argc, char **argv)
{
	static const char *const heads[] = { "", "CHECK", "DETAIL", "WHAT TO DO", NULL };
	_cleanup_json_ json_t *answer = NULL;
	struct table *table;
	struct err err = ERR_INIT;
	json_t *check;
	bool good;
	size_t i;

	(void)argc;
	(void)argv;
	if (client_get(cli->client, "/v1/doctor", &answer, &err) < 0)
		return cli_fail(cli, &err);
	good = json_is_true(json_object_get(answer, "ok"));
	if (cli->json) {
		cli_print_json(steal_ptr(&answer));
		return good ? 0 : err_kind_exit_code(ERR_UNSUPPORTED);
	}
	table = table_new(heads);
	json_array_foreach (json_object_get(answer, "checks"), i, check) {
		bool ok = json_is_true(json_object_get(check, "ok"));
		bool required = json_is_true(json_object_get(check, "required"));

		table_add(table, ok ? "ok" : required ? "missing" : "absent");
		table_paint(table, ok ? PAINT_GOOD : required ? PAINT_BAD : PAINT_WARN);
		table_add(table, json_str(check, "name"));
		table_add(table, json_str(check, "detail"));
		table_add(table, json_str(check, "hint"));
	}
	table_print(table);
	puts(good ? "boxes can run on this machine" : "boxes cannot run yet: see what is missing");
	return good ? 0 : err_kind_exit_code(ERR_UNSUPPORTED);
}
