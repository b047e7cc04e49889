/* criu_check.c - whether the CRIU that was found is the one this program was made for
 *
 * CRIU is built from Debian's source with changes of ours (scripts/criu-changes), and this program
 * relies on them. What was built has a key beside it, made of those scripts; this program holds the
 * key of the scripts it was built with. A CRIU without a key is the operator's own: nothing is
 * known of it. */
#include "core/core_internal.h"
#include "base/file.h"
#include <fcntl.h>
#include <unistd.h>

extern const char criu_key[]; /* meson.build puts it in */

enum { KEY_MAX = 128 };

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
