/* sources.c - the package sources of this machine
 *
 * The image is built from the same sources: /etc/apt/sources.list and sources.list.d, in both
 * styles. deb822 files (.sources) go to mmdebstrap unchanged; from one-line files (.list) the
 * lines are removed that do not work (cdrom) or are not needed (deb-src). */
#include "image/image_internal.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/text.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum { SOURCES_MAX = 1024 * 1024 };

int suite_from_os_release(const char *text, char **ret, struct err *err)
{
	static const char key[] = "VERSION_CODENAME=";
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const char *value = line + strlen(key);
		size_t len;

		if (!text_has_prefix(line, key))
			continue;
		value += *value == '"' || *value == '\'';
		len = strspn(value, allowed);
		if (len && len < 64 && value[0] != '-' && strchr("\"'\n", value[len])) {
			*ret = xstrndup(value, len);
			return 0;
		}
	}
	err_set(err, ERR_UNSUPPORTED, "/etc/os-release names no release of Debian");
	return err_hint(err, "images are built on Debian 12 or later; VERSION_CODENAME is missing");
}

char *sources_clean_list(const char *text)
{
	struct buf out = BUF_INIT;
	char *copy;

	for (const char *line = text; *line;) {
		size_t len = strcspn(line, "\n"), skip = strspn(line, " \t");

		if (text_has_prefix(line + skip, "deb") && isblank((unsigned char)line[skip + 3]) &&
			!memmem(line, len, "cdrom:", 6)) {
			buf_add(&out, line + skip, len - skip);
			buf_add_str(&out, "\n");
		}
		line += len + (line[len] == '\n');
	}
	copy = xstrdup(buf_str(&out));
	buf_done(&out);
	return copy;
}

static bool has_suffix(const char *text, const char *suffix)
{
	size_t a = strlen(text), b = strlen(suffix);

	return a > b && !strcmp(text + a - b, suffix);
}

/* Adds the cleaned lines of a one-line file; a missing file adds nothing. */
static int add_list(int dir, const char *name, struct buf *out, struct err *err)
{
	_cleanup_free_ char *text = NULL, *clean = NULL;
	struct err why = ERR_INIT;

	if (file_read(dir, name, SOURCES_MAX, &text, NULL, &why) < 0) {
		if (why.kind == ERR_NOT_FOUND)
			return 0;
		if (err)
			*err = why;
		return -1;
	}
	clean = sources_clean_list(text);
	buf_add_str(out, clean);
	return 0;
}

static int only_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

int sources_collect(const char *etc_apt, const char *dir, char ***ret, struct err *err)
{
	_cleanup_free_ char *list = xasprintf("%s/sources.list", etc_apt);
	_cleanup_free_ char *parts = xasprintf("%s/sources.list.d", etc_apt);
	_cleanup_free_ char *merged = xasprintf("%s/debian.list", dir);
	_cleanup_strv_ char **found = NULL;
	struct dirent **entries = NULL;
	struct buf lines = BUF_INIT;
	int count, status;

	status = add_list(AT_FDCWD, list, &lines, err);
	count = scandir(parts, &entries, only_visible, alphasort);
	for (int i = 0; i < count; i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", parts, entries[i]->d_name);

		if (status == 0 && has_suffix(path, ".sources"))
			strv_add(&found, path);
		else if (status == 0 && has_suffix(path, ".list"))
			status = add_list(AT_FDCWD, path, &lines, err);
		free(entries[i]);
	}
	free(entries);
	if (status == 0 && lines.len) {
		status =
			file_write_atomic(AT_FDCWD, merged, buf_head(&lines), lines.len, 0644, err);
		strv_add(&found, merged);
	}
	buf_done(&lines);
	if (status < 0)
		return err_wrap(err, "read the package sources");
	if (!found) {
		err_set(err, ERR_UNSUPPORTED, "'%s' has no package sources", etc_apt);
		return err_hint(
			err, "add Debian's to /etc/apt/sources.list.d, see sources.list(5)");
	}
	*ret = steal_ptr(&found);
	return 0;
}
