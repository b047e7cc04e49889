/* context.c - daemons by name: `box context`, and which one a command talks to
 *
 * ~/.config/boxyard/contexts.json, readable by its owner alone since it holds tokens:
 *
 * 	{"current": "build", "contexts": {"build": {"host": "ssh://ada@build"}}}
 *
 * BOX_HOST comes first, then BOX_CONTEXT, then the context in use; but whoever sets BOX_HOME or
 * BOX_RUN means a daemon of this machine. "default" is this machine's daemon and needs no entry. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/over_ssh.h"
#include "cli/copy_stdio.h"
#include "client/remote.h"
#include "cli/table.h"
#include <errno.h>
#include <fcntl.h>

#define THIS_MACHINE "default"
enum { FILE_MAX = 1024 * 1024, TOKEN_MAX = 4096 };

/* ---- the file ------------------------------------------------------------------------------- */

static char *folder_path(struct err *err)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	if (config && config[0] == '/')
		return xasprintf("%s/boxyard", config);
	if (home && home[0] == '/')
		return xasprintf("%s/.config/boxyard", home);
	err_set(err, ERR_INVALID, "contexts are kept in your home, and HOME is not set");
	return NULL;
}

/* An object with an object "contexts", even when the file does not exist. */
static int load(json_t **ret, struct err *err)
{
	_cleanup_free_ char *folder = folder_path(err), *path = NULL, *text = NULL;
	_cleanup_json_ json_t *all = NULL;

	if (!folder)
		return -1;
	path = xasprintf("%s/contexts.json", folder);
	if (file_read(AT_FDCWD, path, FILE_MAX, &text, NULL, err) < 0) {
		if (err->errno_value != ENOENT)
			return -1;
		err_clear(err);
		*ret = json_pack("{s:{}}", "contexts");
		return 0;
	}
	all = json_loads(text, 0, NULL);
	if (!json_is_object(json_object_get(all, "contexts"))) {
		err_set(err, ERR_INVALID, "'%s' was not written by 'box context'", path);
		return err_hint(err, "remove it and add the contexts again");
	}
	*ret = steal_ptr(&all);
	return 0;
}

static int save(json_t *all, struct err *err)
{
	_cleanup_free_ char *folder = folder_path(err), *path = NULL, *text = NULL;

	if (!folder || dir_make_all(folder, 0700, err) < 0)
		return -1;
	path = xasprintf("%s/contexts.json", folder);
	text = json_dumps(all, JSON_INDENT(2) | JSON_SORT_KEYS);
	return file_write_atomic(AT_FDCWD, path, text, strlen(text), 0600, err);
}

static int no_context(const char *name, struct err *err)
{
	err_set(err, ERR_NOT_FOUND, "no context '%.60s'", name);
	return err_hint(err, "'box context ls' lists them");
}

static char *text_or_null(json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? xstrdup(text) : NULL;
}

int context_find(const char *name, char **ret_target, char **ret_token, char **ret_cacert,
	char **ret_name, struct err *err)
{
	_cleanup_json_ json_t *all = NULL;
	json_t *found;

	*ret_target = *ret_token = *ret_cacert = *ret_name = NULL;
	/* Without a home there are no contexts, which is an error only where one was asked for. */
	if (load(&all, err) < 0) {
		if (name || getenv("HOME"))
			return -1;
		err_clear(err);
		return 0;
	}
	if (!name)
		name = json_string_value(json_object_get(all, "current"));
	if (!name || !strcmp(name, THIS_MACHINE))
		return 0;
	found = json_object_get(json_object_get(all, "contexts"), name);
	if (!found)
		return no_context(name, err);
	if (remote_read(json_str(found, "host"), ret_target, err) < 0)
		return err_wrap(err, "context '%s'", name);
	*ret_token = text_or_null(found, "token");
	*ret_cacert = text_or_null(found, "cacert");
	*ret_name = xstrdup(name);
	return 0;
}

/* ---- the commands --------------------------------------------------------------------------- */

/* "-": reads a line of stdin, so that the token does not appear in the process list. */
static int read_token(struct cli *cli, char **ret, struct err *err)
{
	const char *given = cli_get(cli, "token");
	char line[TOKEN_MAX];

	if (!given)
		given = getenv("BOX_TOKEN");
	if (given && !strcmp(given, "-")) {
		if (!fgets(line, sizeof line, stdin))
			return err_set(err, ERR_INVALID, "no token on stdin");
		line[strcspn(line, "\r\n")] = '\0';
		given = line;
	}
	*ret = given && *given ? xstrdup(given) : NULL;
	for (const char *p = *ret ? *ret : ""; *p; p++)
		if (*p <= ' ' || *p > '~')
			return err_set(err, ERR_INVALID,
				"a token has no spaces and only printable ASCII characters");
	return 0;
}

int cmd_context_add(struct cli *cli, int argc, char **argv)
{
	_cleanup_json_ json_t *all = NULL, *entry = json_object();
	_cleanup_free_ char *target = NULL, *token = NULL, *cacert = NULL;
	struct err err = ERR_INIT;

	(void)argc;
	if (!strcmp(argv[0], THIS_MACHINE))
		return cli_usage(cli, "'" THIS_MACHINE "' is the daemon of this machine");
	if (name_check("context name", argv[0], &err) < 0 ||
		remote_read(argv[1], &target, &err) < 0 || read_token(cli, &token, &err) < 0 ||
		load(&all, &err) < 0)
		return cli_fail(cli, &err);
	json_object_set_new(entry, "host", json_string(argv[1]));
	if (token)
		json_object_set_new(entry, "token", json_string(token));
	if (cli_get(cli, "cacert")) {
		cacert = realpath(cli_get(cli, "cacert"), NULL);
		if (!cacert) {
			err_sys(&err, errno, "'%s'", cli_get(cli, "cacert"));
			return cli_fail(cli, &err);
		}
		json_object_set_new(entry, "cacert", json_string(cacert));
	}
	json_object_set(json_object_get(all, "contexts"), argv[0], entry);
	if (save(all, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(json_pack("{s:s,s:s}", "name", argv[0], "host", argv[1]));
	cli_note(cli, "'box context use %s' makes commands talk to it", argv[0]);
	return 0;
}

static void add_row(struct table *table, const char *name, const char *host, bool token, bool used)
{
	table_add(table, name);
	table_add(table, used ? "*" : "");
	table_add(table, host);
	table_add(table, token ? "yes" : "");
}

int cmd_context_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const heads[] = { "NAME", "IN USE", "HOST", "TOKEN", NULL };
	_cleanup_json_ json_t *all = NULL;
	json_t *list = json_array(), *entry;
	const char *current, *name;
	struct err err = ERR_INIT;
	struct table *table;

	(void)argc;
	(void)argv;
	if (load(&all, &err) < 0) {
		json_decref(list);
		return cli_fail(cli, &err);
	}
	current = json_string_value(json_object_get(all, "current"));
	current = current ? current : THIS_MACHINE;
	table = table_new(heads);
	add_row(table, THIS_MACHINE, "this machine", false, !strcmp(current, THIS_MACHINE));
	json_object_foreach (json_object_get(all, "contexts"), name, entry) {
		bool token = json_object_get(entry, "token");

		add_row(table, name, json_str(entry, "host"), token, !strcmp(current, name));
		json_array_append_new(list, json_pack("{s:s,s:s,s:b,s:b}", "name", name, "host",
						    json_str(entry, "host"), "token", token,
						    "current", !strcmp(current, name)));
	}
	if (cli->json) {
		table_free(table);
		return cli_print_json(list);
	}
	json_decref(list);
	return table_print(table);
}

int cmd_context_use(struct cli *cli, int argc, char **argv)
{
	_cleanup_json_ json_t *all = NULL;
	struct err err = ERR_INIT;

	(void)argc;
	if (load(&all, &err) < 0)
		return cli_fail(cli, &err);
	if (!strcmp(argv[0], THIS_MACHINE)) {
		json_object_del(all, "current");
	} else if (!json_object_get(json_object_get(all, "contexts"), argv[0])) {
		no_context(argv[0], &err);
		return cli_fail(cli, &err);
	} else {
		json_object_set_new(all, "current", json_string(argv[0]));
	}
	if (save(all, &err) < 0)
		return cli_fail(cli, &err);
	return cli->json ? cli_print_json(json_pack("{s:s}", "current", argv[0])) : 0;
}

int cmd_context_rm(struct cli *cli, int argc, char **argv)
{
	_cleanup_json_ json_t *all = NULL;
	struct err err = ERR_INIT;

	if (load(&all, &err) < 0)
		return cli_fail(cli, &err);
	for (int i = 0; i < argc; i++) {
		if (json_object_del(json_object_get(all, "contexts"), argv[i]) < 0) {
			no_context(argv[i], &err);
			return cli_fail(cli, &err);
		}
		if (!strcmp(json_str(all, "current"), argv[i]))
			json_object_del(all, "current");
	}
	if (save(all, &err) < 0)
		return cli_fail(cli, &err);
	return cli->json ? cli_print_json(json_pack("{s:i}", "removed", argc)) : 0;
}

/* ---- the other end of ssh:// ---------------------------------------------------------------- */

int cmd_dial_stdio(struct cli *cli, int argc, char **argv)
{
	const char *path = argc ? argv[0] : cli->target;
	struct err err = ERR_INIT;
	int daemon;

	if (argc && (path[0] != '/' || over_ssh()))
		return cli_usage(cli, "'%s' is no absolute path", path);
	if (client_dial(path, &daemon, &err) < 0)
		return cli_fail(cli, &err);
	return copy_stdio(cli, daemon);
}
