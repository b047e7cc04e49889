/* ssh_config.c - ssh-config: the block for ~/.ssh/config, printed, installed or removed
 *
 * Installed it is a file of its own, ~/.ssh/boxyard.conf, and one line at the top of ~/.ssh/config:
 * before any Host, where it holds for all of them. Removing takes that line out again, and nothing
 * else; a config that held nothing but it goes too. */
#include "cli/ssh_config.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#define INCLUDE "Include boxyard.conf\n"
enum { CONFIG_MAX = 1024 * 1024 };

/* HOME/.ssh; yours. */
static int ssh_folder(char **ret, struct err *err)
{
	const char *home = getenv("HOME");

	if (!home || *home != '/')
		return err_set(err, ERR_INVALID, "HOME is not set");
	*ret = xasprintf("%s/.ssh", home);
	return 0;
}

/* The file behind links, which stay; its text is "" when there is none. Both are yours. */
static int read_config(
	const char *folder, char **ret_path, char **ret_text, mode_t *ret_mode, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/config", folder);
	char *real = realpath(path, NULL);
	struct stat st;

	*ret_mode = 0600;
	*ret_path = real ? real : steal_ptr(&path);
	if (!real || stat(real, &st) < 0) {
		*ret_text = xstrdup("");
		return 0;
	}
	*ret_mode = st.st_mode & 07777;
	if (file_read(AT_FDCWD, real, CONFIG_MAX, ret_text, NULL, err) == 0)
		return 0;
	free(real);
	*ret_path = NULL;
	return -1;
}

/* Where the line stands in text, or NULL. */
static char *find_include(char *text)
{
	for (char *at = text; (at = strstr(at, INCLUDE)); at++)
		if (at == text || at[-1] == '\n')
			return at;
	return NULL;
}

static int install(const struct ssh_way *way, const char *folder, struct err *err)
{
	_cleanup_free_ char *own = xasprintf("%s/boxyard.conf", folder);
	_cleanup_free_ char *block = ssh_way_block(way), *path = NULL, *text = NULL, *whole = NULL;
	mode_t mode;

	if (dir_make_all(folder, 0700, err) < 0 || ssh_way_keep_keys(way, err) < 0 ||
		file_write_atomic(AT_FDCWD, own, block, strlen(block), 0600, err) < 0 ||
		read_config(folder, &path, &text, &mode, err) < 0)
		return -1;
	if (find_include(text))
		return 0;
	whole = xasprintf(INCLUDE "%s", text);
	return file_write_atomic(AT_FDCWD, path, whole, strlen(whole), mode, err);
}

static int remove_file(const char *path, struct err *err)
{
	return unlink(path) == 0 || errno == ENOENT ? 0 : err_sys(err, errno, "remove '%s'", path);
}

static int take_away(const char *folder, struct err *err)
{
	_cleanup_free_ char *own = xasprintf("%s/boxyard.conf", folder);
	_cleanup_free_ char *path = NULL, *text = NULL, *known = NULL;
	char *line;
	mode_t mode;

	if (read_config(folder, &path, &text, &mode, err) < 0)
		return -1;
	line = find_include(text);
	if (line) {
		memmove(line, line + strlen(INCLUDE), strlen(line + strlen(INCLUDE)) + 1);
		if ((*text ? file_write_atomic(AT_FDCWD, path, text, strlen(text), mode, err)
			   : remove_file(path, err)) < 0)
			return -1;
	}
	if (ssh_known_path(&known, err) < 0 || remove_file(own, err) < 0)
		return -1;
	return remove_file(known, err);
}

int cmd_ssh_config(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *folder = NULL, *block = NULL;
	struct ssh_way way = { 0 };
	struct err err = ERR_INIT;
	int result = 0;

	(void)argc;
	(void)argv;
	if (cli_has(cli, "install") + cli_has(cli, "remove") + cli_has(cli, "print") > 1)
		return cli_usage(cli, "choose one of --print, --install and --remove");
	if (ssh_folder(&folder, &err) < 0)
		return cli_fail(cli, &err);
	if (cli_has(cli, "remove"))
		return take_away(folder, &err) < 0 ? cli_fail(cli, &err) : 0;
	if (ssh_way_find(cli, &way, &err) < 0)
		return cli_fail(cli, &err);
	block = ssh_way_block(&way);
	if (cli_has(cli, "install"))
		result = install(&way, folder, &err);
	else if (cli->json)
		cli_print_json(json_pack("{s:s,s:s,s:s}", "config", block, "known_hosts", way.known,
			"known_hosts_file", way.known_path));
	else
		/* What is printed works: the file of host keys it names is there. */
		result = ssh_way_keep_keys(&way, &err);
	if (result == 0 && !cli->json && !cli_has(cli, "install"))
		fputs(block, stdout);
	if (result == 0 && cli_has(cli, "install"))
		cli_note(cli, "installed; try 'ssh NAME.box'");
	ssh_way_done(&way);
	return result < 0 ? cli_fail(cli, &err) : 0;
}
