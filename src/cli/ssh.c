/* ssh.c - ssh: the machine's SSH client, told how to reach a box; ssh-proxy: what it connects by */
#include "base/alloc.h"
#include "base/file.h"
#include "base/strv.h"
#include "base/text.h"
#include "cli/copy_stdio.h"
#include "cli/ssh_config.h"
#include "ssh/proxy.h"
#include <errno.h>

/* "ada", "ada+root" or "root@ada" -> box and user, which may be ""; both are yours. */
static int split_box(const char *word, char **ret_box, char **ret_user, struct err *err)
{
	const char *at = strchr(word, '@'), *plus = strchr(word, '+');
	_cleanup_free_ char *box = NULL, *user = NULL;
	size_t len, suffix = strlen(PROXY_SUFFIX);

	if (at && plus)
		return err_set(err, ERR_INVALID, "'%.60s' names a user twice", word);
	box = at ? xstrdup(at + 1) : plus ? xstrndup(word, (size_t)(plus - word)) : xstrdup(word);
	user = at ? xstrndup(word, (size_t)(at - word)) : xstrdup(plus ? plus + 1 : "");
	len = strlen(box);
	if (len > suffix && !strcmp(box + len - suffix, PROXY_SUFFIX))
		box[len - suffix] = '\0';
	if (name_check("box", box, err) < 0)
		return -1;
	if (((at || plus) && !*user) || *user == '-')
		return err_set(err, ERR_INVALID, "'%.60s' names no user", word);
	*ret_box = steal_ptr(&box);
	*ret_user = steal_ptr(&user);
	return 0;
}

static bool has_login_option(char **words)
{
	for (; *words; words++)
		if (text_has_prefix(*words, "-l"))
			return true;
	return false;
}

/* The words of the client's command line; yours (strv). */
static char **client_words(
	const struct ssh_way *way, const char *box, const char *user, char **more)
{
	_cleanup_strv_ char **options = ssh_way_options(way);
	char **words = NULL;

	strv_add(&words, "ssh");
	if (way->kind == SSH_WAY_TCP)
		strv_addf(&words, "-oUser=%s%s%s", box, *user ? "+" : "", user);
	else if (*user)
		strv_addf(&words, "-oUser=%s", user);
	for (size_t i = 0; options[i]; i++)
		/* -l behind the name of the box would come too late. */
		if (!text_has_prefix(options[i], "User ") || !has_login_option(more))
			strv_addf(&words, "-o%s", options[i]);
	strv_addf(&words, "%s" PROXY_SUFFIX, box);
	for (; *more; more++)
		strv_add(&words, *more);
	return words;
}

int cmd_ssh(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *box = NULL, *user = NULL;
	_cleanup_strv_ char **words = NULL;
	struct ssh_way way = { 0 };
	struct err err = ERR_INIT;

	(void)argc;
	if (split_box(argv[0], &box, &user, &err) < 0 || ssh_way_find(cli, &way, &err) < 0)
		return cli_fail(cli, &err);
	if (ssh_way_keep_keys(&way, &err) == 0) {
		words = client_words(&way, box, user, argv + 1);
		fflush(NULL);
		execvp(words[0], words);
		err_sys(&err, errno, "run the SSH client");
		if (errno == ENOENT) {
			err_set(&err, ERR_UNSUPPORTED, "there is no SSH client (ssh) here");
			err_hint(&err, "install openssh-client; 'box shell %s' needs none", box);
		}
	}
	ssh_way_done(&way);
	return cli_fail(cli, &err);
}

int cmd_ssh_proxy(struct cli *cli, int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : cli->conf.ssh_socket;
	_cleanup_free_ char *line = NULL;
	struct err err = ERR_INIT;
	int daemon;

	if (path[0] != '/')
		return cli_usage(cli, "'%s' is no absolute path", path);
	if (proxy_make_line(argv[0], &line, &err) < 0)
		return cli_fail(cli, &err);
	if (client_dial(path, &daemon, &err) < 0) {
		if (err.kind == ERR_UNAVAILABLE) {
			err_set(&err, ERR_UNAVAILABLE, "no SSH answers at '%s'", path);
			err_hint(&err, "'box up' starts the daemon");
		}
		return cli_fail(cli, &err);
	}
	if (fd_write_all(daemon, line, strlen(line), &err) < 0) {
		close(daemon);
		return cli_fail(cli, &err);
	}
	return copy_stdio(cli, daemon);
}
