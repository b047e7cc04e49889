/* system.c - info and doctor: what the daemon is and what this machine can do */
#include "base/alloc.h"
#include "cli/cli.h"
#include "client/remote.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "daemon/serve.h"

enum { INFO_COLUMN = 17, CHECK_COLUMN = 16 };

/* ["cpu", "memory"] -> "cpu memory". Yours. */
static char *join_words(json_t *list)
{
	struct buf text = BUF_INIT;
	char *words;
	json_t *word;
	size_t i;

	json_array_foreach (list, i, word)
		buf_addf(&text, "%s%s", i ? " " : "",
			json_string_value(word) ? json_string_value(word) : "?");
	words = xstrdup(buf_str(&text));
	buf_done(&text);
	return words;
}

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
	text = json_is_array(value)    ? join_words(value)
	       : json_is_string(value) ? xstrdup(json_string_value(value))
	       : json_is_null(value)   ? xstrdup("-")
				       : json_text(value);
	safe = text_printable(text);
	printf("%*s%-*s %s\n", depth * 2, "", INFO_COLUMN - depth * 2, key, safe);
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

/* Not a table: a narrow terminal must not cut off what is missing. */
static void print_check(json_t *check)
{
	static const char *const paints[] = { "\033[32m", "\033[31m", "\033[33m" };
	static const char *const words[] = { "ok", "missing", "absent" };
	bool ok = json_is_true(json_object_get(check, "ok")),
	     required = json_is_true(json_object_get(check, "required")),
	     colour = terminal_has_colour(STDOUT_FILENO);
	_cleanup_free_ char *name = text_printable(json_str(check, "name")),
			    *detail = text_printable(json_str(check, "detail")),
			    *hint = text_printable(json_str(check, "hint"));
	int which = ok ? 0 : required ? 1 : 2;

	printf("%s%-7s%s  %-*s  %s\n", colour ? paints[which] : "", words[which],
		colour ? "\033[0m" : "", CHECK_COLUMN, name, detail);
	if (*hint)
		printf("%*s-> %s\n", 7 + 2 + CHECK_COLUMN + 2, "", hint);
}

int cmd_doctor(struct cli *cli, int argc, char **argv)
{
	_cleanup_json_ json_t *answer = NULL;
	struct err err = ERR_INIT;
	json_t *check;
	bool good;
	size_t i;

	(void)argc;
	(void)argv;
	if (client_get(cli->client, "/v1/doctor", &answer, &err) < 0) {
		if (err.kind != ERR_UNAVAILABLE || remote_is(cli->target))
			return cli_fail(cli, &err);
		err_clear(&err);
		if (serve_doctor(&cli->conf, &answer, &err) < 0)
			return cli_fail(cli, &err);
		cli_note(cli, "the daemon is not running; this is what can be seen without it");
	}
	good = json_is_true(json_object_get(answer, "ok"));
	if (cli->json) {
		cli_print_json(steal_ptr(&answer));
		return good ? 0 : err_kind_exit_code(ERR_UNSUPPORTED);
	}
	json_array_foreach (json_object_get(answer, "checks"), i, check)
		print_check(check);
	puts(good ? "boxes can run on this machine" : "boxes cannot run yet: see what is missing");
	return good ? 0 : err_kind_exit_code(ERR_UNSUPPORTED);
}
