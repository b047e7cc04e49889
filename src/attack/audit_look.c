/* audit_look.c - the audit log, read from its files
 *
 * Lines reach the disk some 50 ms after the event; readers wait until the file no longer
 * changes. */
#include "attack/suite.h"
#include "base/alloc.h"
#include "base/file.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { SETTLE_MS = 130, LOG_MAX = 64 * 1024 * 1024 };

static int is_log(const struct dirent *entry)
{
	return !strncmp(entry->d_name, "audit-", 6);
}

static void add_file(const char *path, const char *box, struct buf *out)
{
	_cleanup_free_ char *text = NULL, *quoted = xasprintf("\"%s\"", box);
	char *rest, *line;

	if (file_read(AT_FDCWD, path, LOG_MAX, &text, NULL, NULL) < 0)
		return;
	rest = text;
	while ((line = strsep(&rest, "\n")))
		if (strstr(line, quoted))
			buf_addf(out, "%s\n", line);
}

char *audit_look(const struct rig *rig, const char *box)
{
	struct buf out = BUF_INIT;
	struct dirent **names = NULL;
	char *text;
	int count;

	usleep(SETTLE_MS * 1000);
	count = scandir(rig->audit, &names, is_log, alphasort);
	for (int i = 0; i < count; i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", rig->audit, names[i]->d_name);

		add_file(path, box, &out);
		free(names[i]);
	}
	free(names);
	text = xstrdup(buf_str(&out));
	buf_done(&out);
	return text;
}

bool audit_has(const char *lines, const char *word, bool any)
{
	_cleanup_free_ char *copy = xstrdup(lines);
	char *rest = copy, *line;

	while ((line = strsep(&rest, "\n")))
		if (*line && (any || !strstr(line, "\"verdict\":\"allowed\"")) &&
			strcasestr(line, word))
			return true;
	return false;
}
