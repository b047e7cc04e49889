/* cli.c - what every command uses: options by name, errors in one line, JSON on stdout */
#include "cli/cli.h"
#include "base/alloc.h"
#include "client/client.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include <stdarg.h>

enum { EXIT_USAGE = 64 };

bool cli_has(const struct cli *cli, const char *flag)
{
	return flags_has(&cli->flags, flag);
}

const char *cli_get(const struct cli *cli, const char *flag)
{
	return flags_get(&cli->flags, flag);
}

const char *cli_nth(const struct cli *cli, const char *flag, size_t index)
{
	return flags_nth(&cli->flags, flag, index);
}

/* Flushes stdout first, so that the message comes after earlier output. */
static void say(const char *message, const char *hint)
{
	_cleanup_free_ char *safe = text_printable(message), *safe_hint = text_printable(hint);
	bool colour = terminal_has_colour(STDERR_FILENO), raw = terminal_is_raw();

	fflush(stdout);
	/* In a raw terminal, lines need an explicit carriage return. */
	fprintf(stderr, "%s%sbox:%s %s%s%s%s%s\n", raw ? "\r\n" : "", colour ? "\033[1m" : "",
		colour ? "\033[0m" : "", safe, *safe_hint ? " (" : "", safe_hint,
		*safe_hint ? ")" : "", raw ? "\r" : "");
}

static bool json_wanted;

void cli_want_json(bool wanted)
{
	json_wanted = wanted;
}

/* Prints one object per line, on stderr like everything that is not the answer itself. */
static void say_json(json_t *line)
{
	_cleanup_free_ char *text = json_text(line);

	json_decref(line);
	fflush(stdout);
	fprintf(stderr, "%s\n", text);
}

static json_t *safe_text(const char *text)
{
	_cleanup_free_ char *safe = text_printable(text);

	return json_string(safe);
}

/* In the format of the API's errors. */
static void say_error(enum err_kind kind, const char *message, const char *hint)
{
	if (json_wanted)
		say_json(json_pack("{s:{s:s,s:o,s:o}}", "error", "code", err_kind_code(kind),
			"message", safe_text(message), "hint", safe_text(hint)));
	else
		say(message, hint);
}

int cli_fail(const struct cli *cli, const struct err *err)
{
	enum err_kind kind = err->kind == ERR_NONE ? ERR_SYSTEM : err->kind;

	(void)cli;
	say_error(kind, err->message[0] ? err->message : "it failed without saying why", err->hint);
	return err_kind_exit_code(kind);
}

int cli_fail_each(const struct cli *cli, json_t *errors, const char *verb)
{
	json_t *one;
	int code = 0;
	size_t i;

	json_array_foreach (errors, i, one) {
		_cleanup_free_ char *text = json_text(one);
		struct err err = ERR_INIT;

		client_api_error(500, text, strlen(text), &err);
		if (verb)
			err_wrap(&err, "%s '%.63s'", verb, json_str(one, "name"));
		code = cli_fail(cli, &err);
	}
	return code;
}

void cli_note(const struct cli *cli, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	if (cli->quiet)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (json_wanted)
		say_json(json_pack("{s:o}", "note", safe_text(text)));
	else
		say(text, "");
}

int cli_usage(const struct cli *cli, const char *fmt, ...)
{
	char text[1024], hint[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	snprintf(hint, sizeof hint, "see 'box help %s'", cli->command ? cli->command->name : "");
	say_error(ERR_INVALID, text, cli->command ? hint : "see 'box help'");
	return EXIT_USAGE;
}

const char *json_str(json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

int64_t json_num(json_t *object, const char *key)
{
	return (int64_t)json_integer_value(json_object_get(object, key));
}

int cli_print_json(json_t *value)
{
	_cleanup_free_ char *text = json_text(value);

	json_decref(value);
	puts(text);
	return 0;
}

int cli_print_json_list(json_t *answer, const char *key)
{
	json_t *list = json_object_get(answer, key);

	json_incref(list);
	json_decref(answer);
	return cli_print_json(list ? list : json_array());
}

int cli_delete_each(struct cli *cli, const char *what, int argc, char **argv)
{
	json_t *removed = json_array();
	int code = 0;

	for (int i = 0; i < argc; i++) {
		_cleanup_free_ char *path = client_path("/v1/%s/%s", what, argv[i]);
		struct err err = ERR_INIT;

		if (client_call(cli->client, "DELETE", path, NULL, NULL, &err) < 0) {
			code = cli_fail(cli, &err);
			continue;
		}
		json_array_append_new(removed, json_string(argv[i]));
		if (!cli->json && !cli->quiet)
			puts(argv[i]);
	}
	if (cli->json)
		cli_print_json(json_pack("{s:O}", "removed", removed));
	json_decref(removed);
	return code;
}
