/* ssh_way.c - see ssh_config.h */
#include "base/alloc.h"
#include "base/file.h"
#include "base/special.h"
#include "base/strv.h"
#include "base/text.h"
#include "cli/ssh_config.h"
#include "client/remote.h"
#include "ssh/proxy.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>

enum { KNOWN_MAX = 1024 * 1024 };

void ssh_way_done(struct ssh_way *way)
{
	free(way->program);
	free(way->socket);
	free(way->host);
	free(way->user);
	free(way->alias);
	free(way->known);
	free(way->known_path);
	json_decref(way->boxes);
	*way = (struct ssh_way){ 0 };
}

int ssh_known_path(char **ret, struct err *err)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	if (config && *config == '/')
		*ret = xasprintf("%s/boxyard/known_hosts", config);
	else if (home && *home == '/')
		*ret = xasprintf("%s/.config/boxyard/known_hosts", home);
	else
		return err_set(err, ERR_INVALID, "HOME is not set");
	return 0;
}

/* ---- finding it ------------------------------------------------------------------------------ */

/* /run/boxyard/box.sock -> /run/boxyard/ssh.sock; yours. */
static char *sibling(const char *socket)
{
	const char *slash = strrchr(socket, '/');

	return xasprintf("%.*s/ssh.sock", slash ? (int)(slash - socket) : 0, socket);
}

static int find_tcp(struct ssh_way *way, const struct remote_place *place, json_t *ssh,
	struct cli *cli, struct err *err)
{
	const char *listen = json_str(ssh, "listen"), *colon = strrchr(listen, ':');
	_cleanup_free_ char *address = NULL;
	uint64_t port = 0;

	if (!colon || parse_u64("port", colon + 1, 1, 65535, &port, NULL) < 0) {
		err_set(err, ERR_UNAVAILABLE, "the daemon at %s does not listen for SSH",
			place->host);
		return err_hint(err, "its setting ssh_listen says where");
	}
	address = *listen == '[' ? xstrndup(listen + 1, (size_t)(colon - listen) - 2)
				 : xstrndup(listen, (size_t)(colon - listen));
	if (host_is_loopback(address) && !host_is_loopback(place->host)) {
		err_set(err, ERR_UNAVAILABLE, "SSH of the daemon at %s is for that machine alone",
			place->host);
		return err_hint(err, "set ssh_listen there to an address that is reachable");
	}
	way->kind = SSH_WAY_TCP;
	way->host = xstrdup(place->host);
	way->port = (unsigned)port;
	way->alias = xasprintf("boxyard.%s", place->host);
	return cli_list_boxes(cli, &way->boxes, err);
}

static int find_place(struct ssh_way *way, struct cli *cli, json_t *info, struct err *err)
{
	struct remote_place place = { 0 };

	if (!remote_is(cli->target)) {
		way->kind = SSH_WAY_SOCKET;
		way->socket = sibling(cli->target);
		way->alias = xstrdup(json_str(info, "name"));
		return 0;
	}
	if (remote_split(cli->target, &place, err) < 0)
		return -1;
	if (!place.is_ssh)
		return find_tcp(way, &place, json_object_get(info, "ssh"), cli, err);
	way->kind = SSH_WAY_HOP;
	way->host = xstrdup(place.host);
	way->user = xstrdup(place.user);
	way->port = place.port;
	way->socket = *place.path ? sibling(place.path) : NULL;
	way->alias = xasprintf("%s.%s", json_str(info, "name"), place.host);
	return 0;
}

/* The lines of the daemon's keys, under its alias. */
static char *known_lines(const char *alias, json_t *keys)
{
	struct buf text = BUF_INIT;
	json_t *key;
	char *lines;
	size_t i;

	json_array_foreach (keys, i, key)
		if (json_string_value(key))
			buf_addf(&text, "%s %s\n", alias, json_string_value(key));
	lines = xstrdup(buf_str(&text));
	buf_done(&text);
	return lines;
}

/* Quoted for ssh_config and a shell, where it is written: nothing else can be in it. */
static int check_path(const char *path, struct err *err)
{
	if (path[strcspn(path, "\"'\\\n%$`")] == '\0')
		return 0;
	return err_set(err, ERR_INVALID, "'%s' has characters that ssh would take apart", path);
}

int ssh_way_find(struct cli *cli, struct ssh_way *ret, struct err *err)
{
	_cleanup_json_ json_t *info = NULL;
	struct ssh_way way = { 0 };
	json_t *keys;

	if (client_get(cli->client, "/v1/info", &info, err) < 0)
		return -1;
	keys = json_object_get(json_object_get(info, "ssh"), "keys");
	if (!json_array_size(keys))
		return err_set(err, ERR_UNSUPPORTED, "this daemon has no SSH");
	way.program = realpath("/proc/self/exe", NULL);
	if (!way.program)
		way.program = xstrdup("box");
	if (find_place(&way, cli, info, err) < 0 || ssh_known_path(&way.known_path, err) < 0 ||
		check_path(way.program, err) < 0 || check_path(way.known_path, err) < 0 ||
		(way.socket && check_path(way.socket, err) < 0)) {
		ssh_way_done(&way);
		return -1;
	}
	way.known = known_lines(way.alias, keys);
	*ret = way;
	return 0;
}

int ssh_way_keep_keys(const struct ssh_way *way, struct err *err)
{
	_cleanup_free_ char *folder = xstrndup(
		way->known_path, (size_t)(strrchr(way->known_path, '/') - way->known_path));
	_cleanup_free_ char *before = NULL;
	struct buf text = BUF_INIT;
	size_t alias = strlen(way->alias);
	int result = 0;

	if (file_read(AT_FDCWD, way->known_path, KNOWN_MAX, &before, NULL, err) < 0) {
		if (err->errno_value != ENOENT)
			return -1;
		err_clear(err);
	}
	for (char *rest = before, *line; rest && (line = strsep(&rest, "\n"));)
		if (*line && (strncmp(line, way->alias, alias) || line[alias] != ' '))
			buf_addf(&text, "%s\n", line);
	buf_add_str(&text, way->known);
	if (dir_make_all(folder, 0700, err) < 0 || file_write_atomic(AT_FDCWD, way->known_path,
							   buf_str(&text), text.len, 0600, err) < 0)
		result = -1;
	buf_done(&text);
	return result;
}

/* ---- as text --------------------------------------------------------------------------------- */

/* The command that carries the connection; NULL: ssh connects itself. %n is quoted, for the shell
 * of the other machine too: it may come from the address of a git repository. */
static char *proxy_command(const struct ssh_way *way)
{
	_cleanup_free_ char *socket = way->socket ? xasprintf(" %s", way->socket) : xstrdup("");
	_cleanup_free_ char *port = way->port ? xasprintf("-p %u ", way->port) : xstrdup("");

	if (way->kind == SSH_WAY_SOCKET)
		return xasprintf("'%s' ssh-proxy '%%n' '%s'", way->program, way->socket);
	if (way->kind == SSH_WAY_HOP)
		return xasprintf("ssh -T %s%s%s%s box ssh-proxy \\''%%n'\\'%s", port, way->user,
			*way->user ? "@" : "", way->host, socket);
	return NULL;
}

char **ssh_way_options(const struct ssh_way *way)
{
	_cleanup_free_ char *command = proxy_command(way);
	char **list = NULL;

	if (command) {
		strv_addf(&list, "ProxyCommand %s", command);
		strv_addf(&list, "User %s", PROXY_USER);
	} else {
		strv_addf(&list, "HostName %s", way->host);
		strv_addf(&list, "Port %u", way->port);
	}
	strv_addf(&list, "HostKeyAlias %s", way->alias);
	strv_addf(&list, "UserKnownHostsFile \"%s\"", way->known_path);
	strv_add(&list, "GlobalKnownHostsFile /dev/null");
	strv_add(&list, "StrictHostKeyChecking yes");
	strv_add(&list, "UpdateHostKeys yes");
	strv_add(&list, "CheckHostIP no");
	return list;
}

char *ssh_way_block(const struct ssh_way *way)
{
	_cleanup_strv_ char **options = ssh_way_options(way);
	struct buf text = BUF_INIT;
	json_t *box;
	char *block;
	size_t i;

	buf_add_str(&text,
		"# Boxes of Boxyard, by 'box ssh-config'; 'box ssh-config --remove' takes "
		"it away again.\n");
	/* The user is the box. It cannot be made from the name of the host before OpenSSH 10. */
	json_array_foreach (way->boxes, i, box)
		buf_addf(&text, "Host %s" PROXY_SUFFIX "\n\tUser %s\n", json_str(box, "name"),
			json_str(box, "name"));
	buf_add_str(&text, "Host *" PROXY_SUFFIX "\n");
	for (i = 0; options[i]; i++)
		buf_addf(&text, "\t%s\n", options[i]);
	block = xstrdup(buf_str(&text));
	buf_done(&text);
	return block;
}
