/* attach_points.c - see attach_points.h */
#include "cli/attach_points.h"
#include "base/alloc.h"
#include "base/strv.h"
#include "base/text.h"
#include "cli/cli.h"
#include "client/remote.h"
#include <errno.h>

enum { ID_MAX = 2147483647 };

static char **split(const char *text, char separator)
{
	char **parts = NULL;

	for (;;) {
		const char *end = strchrnul(text, separator);
		_cleanup_free_ char *part = xstrndup(text, (size_t)(end - text));

		strv_add(&parts, part);
		if (!*end)
			return parts;
		text = end + 1;
	}
}

/* "ro", "uid=1000" and so on; uid, gid and root only where a folder has an owner. */
static int read_option(const char *word, bool with_owner, json_t *ret, struct err *err)
{
	const char *key = text_has_prefix(word, "uid=")	  ? "uid"
			  : text_has_prefix(word, "gid=") ? "gid"
							  : NULL;
	uint64_t id;

	if (!strcmp(word, "ro") || !strcmp(word, "rw")) {
		json_object_set_new(ret, "read_only", json_boolean(word[1] == 'o'));
		return 0;
	}
	if (!with_owner)
		return err_set(err, ERR_INVALID, "'%.60s' must be ro or rw", word);
	if (!strcmp(word, "root")) {
		json_object_set_new(ret, "root", json_true());
		return 0;
	}
	if (!key)
		return err_set(
			err, ERR_INVALID, "'%.60s' must be ro, rw, uid=N, gid=N or root", word);
	if (parse_u64(key, word + 4, 0, ID_MAX, &id, err) < 0)
		return -1;
	json_object_set_new(ret, key, json_integer((json_int_t)id));
	return 0;
}

/* Parses what follows SOURCE: the path in the box, then options, separated by commas or colons. */
static int read_target(char *const *parts, bool with_owner, json_t *ret, struct err *err)
{
	if (!*parts || (*parts)[0] != '/')
		return err_set(err, ERR_INVALID, "the path in the box is missing or not absolute");
	if (!text_is_utf8(*parts, strlen(*parts)))
		return err_set(err, ERR_INVALID, "the path must be UTF-8");
	json_object_set_new(ret, "path", json_string(*parts));
	for (parts++; *parts; parts++) {
		_cleanup_strv_ char **words = split(*parts, ',');

		for (char **word = words; *word; word++)
			if (read_option(*word, with_owner, ret, err) < 0)
				return -1;
	}
	return 0;
}

int volume_parse(const char *text, json_t **ret, struct err *err)
{
	_cleanup_strv_ char **parts = split(text, ':');
	_cleanup_json_ json_t *volume = json_object();

	if (name_check("volume", parts[0], err) < 0 ||
		read_target(parts + 1, false, volume, err) < 0) {
		err_wrap(err, "--volume '%.100s'", text);
		return err_hint(err, "write NAME:/path or NAME:/path:ro");
	}
	json_object_set_new(volume, "volume", json_string(parts[0]));
	*ret = steal_ptr(&volume);
	return 0;
}

int mount_parse(const char *text, json_t **ret, struct err *err)
{
	_cleanup_strv_ char **parts = split(text, ':');
	_cleanup_json_ json_t *mount = json_object();
	_cleanup_free_ char *source = NULL;

	if (read_target(parts + 1, true, mount, err) < 0) {
		err_wrap(err, "--mount '%.100s'", text);
		return err_hint(err, "write HOST:/path, optionally followed by :ro,uid=N,gid=N");
	}
	/* The daemon has another working directory, so a relative name is resolved here. */
	source = parts[0][0] == '/' ? xstrdup(parts[0]) : realpath(parts[0], NULL);
	if (!source)
		return err_sys(err, errno, "--mount '%s'", parts[0]);
	if (!text_is_utf8(source, strlen(source)))
		return err_set(err, ERR_INVALID, "--mount: the name of the folder must be UTF-8");
	json_object_set_new(mount, "source", json_string(source));
	*ret = steal_ptr(&mount);
	return 0;
}

static int read_all(struct cli *cli, const char *flag, const char *key,
	int (*parse)(const char *text, json_t **ret, struct err *err), json_t *body,
	struct err *err)
{
	_cleanup_json_ json_t *all = json_array();
	const char *given;

	for (size_t i = 0; (given = cli_nth(cli, flag, i)); i++) {
		json_t *one = NULL;

		if (parse(given, &one, err) < 0)
			return -1;
		json_array_append_new(all, one);
	}
	if (json_array_size(all))
		json_object_set(body, key, all);
	return 0;
}

int volumes_read(struct cli *cli, json_t *body, struct err *err)
{
	return read_all(cli, "volume", "volumes", volume_parse, body, err);
}

int mounts_read(struct cli *cli, json_t *body, struct err *err)
{
	return read_all(cli, "mount", "mounts", mount_parse, body, err);
}

void mounts_explain(struct cli *cli, json_t *body, struct err *err)
{
	json_t *mount;
	size_t i;

	if (err->kind != ERR_FORBIDDEN || remote_is(cli->target))
		return;
	json_array_foreach (json_object_get(body, "mounts"), i, mount)
		if (access(json_str(mount, "source"), F_OK) < 0 && errno == ENOENT) {
			err_clear(err);
			err_set(err, ERR_NOT_FOUND, "--mount: '%.200s' does not exist",
				json_str(mount, "source"));
			return;
		}
}
