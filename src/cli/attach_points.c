/* attach_points.c - see attach_points.h */
#include "cli/attach_points.h"
#include "base/alloc.h"
#include "base/strv.h"
#include "base/text.h"
#include "cli/cli.h"
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

/* "uid=1000,gid=1000" */
static int read_owner(const char *text, json_t *mount, struct err *err)
{
	_cleanup_strv_ char **parts = split(text, ',');

	for (char **part = parts; *part; part++) {
		const char *key = text_has_prefix(*part, "uid=")   ? "uid"
				  : text_has_prefix(*part, "gid=") ? "gid"
								   : NULL;
		uint64_t id;

		if (!key)
			return err_set(
				err, ERR_INVALID, "'%.60s' is neither ro, uid=N nor gid=N", *part);
		if (parse_u64(key, *part + 4, 0, ID_MAX, &id, err) < 0)
			return -1;
		json_object_set_new(mount, key, json_integer((json_int_t)id));
	}
	return 0;
}

/* What follows SOURCE: the path in the box, then options. */
static int read_target(char *const *parts, bool with_owner, json_t *ret, struct err *err)
{
	if (!*parts || (*parts)[0] != '/')
		return err_set(err, ERR_INVALID, "the path in the box is missing or not absolute");
	if (!text_is_utf8(*parts, strlen(*parts)))
		return err_set(err, ERR_INVALID, "the path must be UTF-8");
	json_object_set_new(ret, "path", json_string(*parts));
	for (parts++; *parts; parts++) {
		if (!strcmp(*parts, "ro"))
			json_object_set_new(ret, "read_only", json_true());
		else if (!strcmp(*parts, "rw"))
			json_object_set_new(ret, "read_only", json_false());
		else if (!with_owner)
			return err_set(err, ERR_INVALID, "'%.60s' is neither ro nor rw", *parts);
		else if (read_owner(*parts, ret, err) < 0)
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
		return err_hint(err, "it is NAME:/path or NAME:/path:ro");
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
		return err_hint(
			err, "it is HOST:/path, with :ro and :uid=N,gid=N after it if wanted");
	}
	/* The daemon works elsewhere: a name that is relative to us means nothing to it. */
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
