/* keys.c - key add, ls, rm: public keys of SSH logins
 *
 * Lines come from a file, from stdin, from the running ssh-agent or from the user's own ~/.ssh, and
 * go to the daemon one by one as they are; it reads them strictly. Only private keys are looked for
 * here already, so that none leaves this process. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/strv.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "sshkey/line.h"
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/wait.h>

enum { FILE_MAX = 1024 * 1024, LINES_MAX = 1000 };
#define LONGEST_MS ((uint64_t)3650 * 86400000)

/* ---- where lines come from ------------------------------------------------------------------- */

static int home_path(const char *name, char **ret, struct err *err)
{
	const char *home = getenv("HOME");

	if (!home || *home != '/')
		return err_set(err, ERR_INVALID, "HOME is not set");
	*ret = xasprintf("%s/.ssh/%s", home, name);
	return 0;
}

/* Reads fd to its end. */
static int read_all(int fd, const char *what, char **ret, struct err *err)
{
	struct buf text = BUF_INIT;
	ssize_t got;

	while ((got = read(fd, buf_room(&text, 65536), 65536)) > 0 || (got < 0 && errno == EINTR)) {
		if (got > 0)
			buf_grew(&text, (size_t)got);
		if (text.len > FILE_MAX) {
			buf_done(&text);
			return err_set(
				err, ERR_TOO_LARGE, "%s is larger than %d bytes", what, FILE_MAX);
		}
	}
	if (got < 0)
		err_sys(err, errno, "read %s", what);
	else
		*ret = xstrdup(buf_str(&text));
	buf_done(&text);
	return got < 0 ? -1 : 0;
}

/* What `ssh-add -L` prints. */
static int read_agent(char **ret, struct err *err)
{
	char *const words[] = { "ssh-add", "-L", NULL };
	_cleanup_free_ char *text = NULL;
	int ends[2], status = 0, result;
	pid_t child;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(err, errno, "pipe");
	child = fork();
	if (child == 0) {
		dup2(ends[1], STDOUT_FILENO);
		execvp(words[0], words);
		_exit(127);
	}
	close(ends[1]);
	if (child < 0) {
		close(ends[0]);
		return err_sys(err, errno, "fork");
	}
	result = read_all(ends[0], "the agent's list", &text, err);
	close(ends[0]);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (result < 0)
		return -1;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		*ret = steal_ptr(&text);
		return 0;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return err_set(err, ERR_UNSUPPORTED, "ssh-add is not installed");
	err_set(err, ERR_UNAVAILABLE, "the ssh-agent has no keys, or does not run");
	return err_hint(err, "'ssh-add' gives it yours; -f FILE takes a key from a file");
}

static int read_file(const char *path, char **ret, struct err *err)
{
	if (!strcmp(path, "-"))
		return read_all(STDIN_FILENO, "stdin", ret, err);
	return file_read(AT_FDCWD, path, FILE_MAX, ret, NULL, err);
}

/* The user's own public keys, ~/.ssh/id_*.pub, one after the other. *ret_names: to ask about. */
static int read_own(char **ret, char **ret_names, struct err *err)
{
	_cleanup_free_ char *pattern = NULL;
	struct buf text = BUF_INIT, names = BUF_INIT;
	glob_t found = { 0 };
	int result = 0;

	if (home_path("id_*.pub", &pattern, err) < 0)
		return -1;
	if (glob(pattern, 0, NULL, &found) == 0)
		for (size_t i = 0; result == 0 && i < found.gl_pathc; i++) {
			_cleanup_free_ char *one = NULL;

			if (strstr(found.gl_pathv[i], "-cert.pub"))
				continue;
			result = file_read(AT_FDCWD, found.gl_pathv[i], FILE_MAX, &one, NULL, err);
			if (result == 0) {
				buf_addf(&text, "%s\n", one);
				buf_addf(&names, "%s%s", names.len ? ", " : "", found.gl_pathv[i]);
			}
		}
	globfree(&found);
	if (result == 0 && !text.len) {
		result = err_set(err, ERR_NOT_FOUND, "there is no %s", pattern);
		err_hint(err, "'ssh-keygen -t ed25519' makes one; -f FILE takes another");
	}
	if (result == 0) {
		*ret = xstrdup(buf_str(&text));
		*ret_names = xstrdup(buf_str(&names));
	}
	buf_done(&text);
	buf_done(&names);
	return result == 0 ? 0 : -1;
}

static int ask_own(char **ret, struct err *err)
{
	_cleanup_free_ char *text = NULL, *names = NULL;
	char answer[16] = "";

	if (read_own(&text, &names, err) < 0)
		return -1;
	fprintf(stderr, "Add %s? [y/N] ", names);
	if (!fgets(answer, sizeof answer, stdin) || (answer[0] != 'y' && answer[0] != 'Y'))
		return err_set(err, ERR_CANCELLED, "no key was added");
	*ret = steal_ptr(&text);
	return 0;
}

static int read_source(struct cli *cli, char **ret, struct err *err)
{
	_cleanup_free_ char *path = NULL, *names = NULL;

	if ((cli_has(cli, "file") + cli_has(cli, "agent") + cli_has(cli, "mine") +
		    cli_has(cli, "authorized-keys")) > 1)
		return err_set(err, ERR_INVALID,
			"choose one of --file, --agent, --mine and --authorized-keys");
	if (cli_has(cli, "agent"))
		return read_agent(ret, err);
	if (cli_has(cli, "mine"))
		return read_own(ret, &names, err);
	if (cli_has(cli, "authorized-keys"))
		return home_path("authorized_keys", &path, err) < 0 ? -1
								    : read_file(path, ret, err);
	if (cli_has(cli, "file"))
		return read_file(cli_get(cli, "file"), ret, err);
	if (isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
		return ask_own(ret, err);
	return read_file("-", ret, err);
}

/* ---- key add --------------------------------------------------------------------------------- */

static json_t *body_of(const struct cli *cli, const char *line, const char *name)
{
	static const char *const options[] = { "owner", "role", "box", "from" };
	static const char *const all[] = { "pty", "port-forwarding", "agent-forwarding",
		"X11-forwarding" };
	const char *expires = cli_get(cli, "expires");
	json_t *body = json_pack("{s:s}", "key", line);

	if (!body) /* not UTF-8 */
		return NULL;
	if (name)
		json_object_set_new(body, "name", json_string(name));
	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		if (cli_get(cli, options[i]))
			json_object_set_new(
				body, options[i], json_string(cli_get(cli, options[i])));
	if (expires)
		json_object_set_new(
			body, strchr(expires, 'T') ? "expires_at" : "ttl", json_string(expires));
	if (cli_has(cli, "restrict")) {
		json_object_set_new(body, "restricted", json_array());
		for (size_t i = 0; i < ARRAY_LEN(all); i++)
			json_array_append_new(
				json_object_get(body, "restricted"), json_string(all[i]));
	}
	return body;
}

/* One of several lines that is there already is no failure: the command can be repeated. */
static int add_one(
	struct cli *cli, char *const *lines, size_t index, const char *name, json_t *added)
{
	json_t *body = body_of(cli, lines[index], name), *key = NULL;
	struct err err = ERR_INIT;

	if (!body) {
		err_set(&err, ERR_INVALID, "the line is not UTF-8");
		return cli_fail(cli, &err);
	}
	if (client_call(cli->client, "POST", "/v1/keys", body, &key, &err) < 0) {
		if (lines[1] && err.kind != ERR_UNAVAILABLE)
			err_wrap(&err, "key %zu", index + 1);
		if (!lines[1] || err.kind != ERR_EXISTS)
			return cli_fail(cli, &err);
		cli_note(cli, "%s", err.message);
		return 0;
	}
	if (!cli->json && !cli->quiet)
		puts(json_str(key, "name"));
	json_array_append_new(added, key);
	return 0;
}

static int split_lines(struct cli *cli, const char *text, char ***ret, struct err *err)
{
	const char *at = text;
	unsigned number = 0;
	size_t count = 0;

	for (;;) {
		_cleanup_free_ char *line = keyline_next(&at, &number);

		if (!line)
			break;
		/* An agent lists certificates beside their keys. */
		if (cli_has(cli, "agent") && strstr(line, "-cert-v01@openssh.com"))
			continue;
		if (count++ == LINES_MAX)
			return err_set(
				err, ERR_TOO_LARGE, "there are more than %d lines", LINES_MAX);
		strv_add(ret, line);
	}
	return count ? 0 : err_set(err, ERR_INVALID, "there is no key in it");
}

int cmd_key_add(struct cli *cli, int argc, char **argv)
{
	const char *expires = cli_get(cli, "expires"), *name = argc ? argv[0] : NULL;
	_cleanup_json_ json_t *added = json_array();
	_cleanup_free_ char *text = NULL;
	_cleanup_strv_ char **lines = NULL;
	struct err err = ERR_INIT;
	uint64_t ignored;
	int code = 0;

	/* Checked here, so that an error names the option. */
	if (expires && !strchr(expires, 'T') &&
		parse_duration("--expires", expires, 1000, LONGEST_MS, &ignored, &err) < 0) {
		err_hint(&err, "like 30d, or 2027-01-02T03:04:05Z");
		return cli_fail(cli, &err);
	}
	if ((name && name_check("name", name, &err) < 0) || read_source(cli, &text, &err) < 0)
		return cli_fail(cli, &err);
	if (keyline_check_private(text, &err) < 0) {
		explicit_bzero(text, strlen(text));
		return cli_fail(cli, &err);
	}
	if (split_lines(cli, text, &lines, &err) < 0)
		return cli_fail(cli, &err);
	if (name && lines[1])
		return cli_usage(cli, "there are several keys, and NAME is for one");
	for (size_t i = 0; lines[i]; i++) {
		int failed = add_one(cli, lines, i, name, added);

		code = failed ? failed : code;
	}
	if (cli->json && !lines[1] && json_array_size(added))
		cli_print_json(json_incref(json_array_get(added, 0)));
	else if (cli->json && lines[1])
		cli_print_json(steal_ptr(&added));
	return code;
}

/* ---- key ls, key rm -------------------------------------------------------------------------- */

int cmd_key_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const heads[] = { "NAME", "OWNER", "ROLE", "BOX", "TYPE", "FINGERPRINT",
		"EXPIRES", ">USED", NULL };
	static const char *const fields[] = { "name", "owner", "role", "box", "type",
		"fingerprint" };
	_cleanup_json_ json_t *answer = NULL;
	struct err err = ERR_INIT;
	struct table *table;
	json_t *keys, *key;
	size_t i;

	(void)argc;
	(void)argv;
	if (client_get(cli->client, "/v1/keys", &answer, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json_list(steal_ptr(&answer), "keys");
	keys = json_object_get(answer, "keys");
	if (cli_has(cli, "names")) {
		json_array_foreach (keys, i, key)
			puts(json_str(key, "name"));
		return 0;
	}
	if (!json_array_size(keys)) {
		cli_note(cli, "no keys yet; 'box key add' adds one");
		return 0;
	}
	table = table_new(heads);
	json_array_foreach (keys, i, key) {
		char used[16];

		for (size_t j = 0; j < ARRAY_LEN(fields); j++)
			table_add(table, json_str(key, fields[j]));
		table_add(table,
			*json_str(key, "expires_at") ? json_str(key, "expires_at") : "never");
		table_add(table, age_since(json_str(key, "last_used_at"), used));
	}
	return table_print(table);
}

int cmd_key_rm(struct cli *cli, int argc, char **argv)
{
	return cli_delete_each(cli, "keys", argc, argv);
}
