/* criu_find.c - where CRIU is, and whether it is the one this program was made for
 *
 * CRIU is built from Debian's source with our changes (scripts/criu-changes), and this program
 * relies on them. The build puts a key beside it, made from those scripts; this program holds the
 * key of the scripts it was built with. A CRIU without a key is the operator's own: nothing is
 * known of it. */
#include "engine/ns/ns_internal.h"
#include "base/file.h"
#include <fcntl.h>
#include <unistd.h>

extern const char criu_key[]; /* meson.build puts it in */

enum { KEY_MAX = 128 };

char *criu_find(const char *wanted)
{
	static const char *const places[] = { "%.*s/criu/criu", "%.*s/../lib/boxyard/criu" };
	char self[4096];
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	char *slash;

	if (wanted && *wanted)
		return access(wanted, X_OK) == 0 ? xstrdup(wanted) : NULL;
	if (len <= 0)
		return NULL;
	self[len] = '\0';
	slash = strrchr(self, '/');
	for (size_t i = 0; slash && i < ARRAY_LEN(places); i++) {
		char *path = xasprintf(places[i], (int)(slash - self), self);

		if (access(path, X_OK) == 0)
			return path;
		free(path);
	}
	return NULL;
}

static bool key_differs(const char *path)
{
	_cleanup_free_ char *text = NULL;

	if (file_read(AT_FDCWD, path, KEY_MAX, &text, NULL, NULL) < 0)
		return false;
	text[strcspn(text, "\n")] = '\0';
	return strcmp(text, criu_key) != 0;
}

const char *criu_problem(const char *criu)
{
	const char *slash = criu ? strrchr(criu, '/') : NULL;
	_cleanup_free_ char *beside = NULL, *installed = NULL;

	if (!criu)
		return "there is no CRIU: boxes cannot be hibernated, forked or rolled back with "
		       "their processes";
	beside = xasprintf("%.*s/key", slash ? (int)(slash - criu) : 0, criu);
	installed = xasprintf("%s.key", criu);
	if (key_differs(beside) || key_differs(installed))
		return "CRIU was built for another version of this program: captured boxes may "
		       "not come back";
	return NULL;
}
