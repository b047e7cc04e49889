/* progress.c - turns the output of mmdebstrap, apt and dpkg into a progress bar and into the
 * cause of a failure
 *
 * mmdebstrap --verbose passes on what apt and dpkg print. It runs apt twice: once for the
 * essential packages and once for the rest. Each run says "N newly installed" and then shows
 * each package three times: Get, Unpacking, Setting up. dpkg configures some packages before it
 * has unpacked all; the bar stays at "unpack" until all are unpacked, so that it does not jump
 * back and forth.
 *
 * When a build fails, the last lines are mmdebstrap's own ("E: apt-get ... failed") and do not
 * name the cause; the cause is the last error line before them. A package that cannot be
 * configured makes others fail too: the cause is the first of them, with the last line of its
 * script. */
#include "image/image_internal.h"
#include "base/text.h"
#include <ctype.h>
#include <stdio.h>

/* Copies the printable characters; maintainer scripts may print anything. */
static void keep_text(char *out, size_t size, const char *text, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len && n + 1 < size; i++)
		out[n++] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? ' ' : text[i];
	out[n] = '\0';
}

static void show(struct progress *progress, enum build_stage stage, unsigned done,
	const char *detail, size_t len)
{
	progress->stage = stage;
	progress->total = progress->round;
	progress->done = MIN(done, progress->total);
	keep_text(progress->detail, sizeof progress->detail, detail, len);
}

/* ---- causes --------------------------------------------------------------------------------- */

static const struct {
	const char *words;
	enum err_kind kind;
	const char *hint;
} causes[] = {
	{ "No space left on device", ERR_LIMIT, "free some space, or move BOX_HOME" },
	{ "You don't have enough free space", ERR_LIMIT, "free some space, or move BOX_HOME" },
	{ "Unable to locate package", ERR_NOT_FOUND, "'apt-cache search' finds package names" },
	{ "has no installation candidate", ERR_NOT_FOUND,
		"'apt-cache search' finds package names" },
	{ "Temporary failure resolving", ERR_UNAVAILABLE,
		"check the network and the package sources in /etc/apt" },
	{ "Could not resolve", ERR_UNAVAILABLE,
		"check the network and the package sources in /etc/apt" },
	{ "Could not connect", ERR_UNAVAILABLE,
		"check the network and the package sources in /etc/apt" },
	{ "Cannot initiate the connection", ERR_UNAVAILABLE,
		"check the network and the package sources in /etc/apt" },
	{ "Connection timed out", ERR_UNAVAILABLE,
		"check the network and the package sources in /etc/apt" },
	{ "Connection failed", ERR_UNAVAILABLE,
		"check the network and the package sources in /etc/apt" },
	{ "Network is unreachable", ERR_UNAVAILABLE,
		"check the network and the package sources in /etc/apt" },
	{ "Failed to fetch", ERR_UNAVAILABLE,
		"check the network and the package sources in /etc/apt" },
};

static const char *hint_of(enum err_kind kind)
{
	for (size_t i = 0; i < ARRAY_LEN(causes); i++)
		if (causes[i].kind == kind)
			return causes[i].hint;
	return NULL;
}

static bool is_complaint(const char *line)
{
	static const char *const starts[] = { "E: ", "Err:", "W: Failed", "dpkg: error",
		"dpkg-deb:", "tar: ", "mount: ", "cp: ", "chroot: ", "useradd: " };
	size_t len = strlen(line);

	if (len > 7 && !strcmp(line + len - 7, " failed")) /* "E: apt-get ... failed" */
		return false;
	if (text_has_prefix(line, "E: mmdebstrap failed") ||
		text_has_prefix(line, "E: run_chroot failed") ||
		text_has_prefix(line, "E: Sub-process ") ||
		text_has_prefix(line, "E: Some index files failed"))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(starts); i++)
		if (text_has_prefix(line, starts[i]))
			return true;
	return false;
}

/* "dpkg: error processing package NAME (--configure):", printed after the output of its script. */
static bool note_package(struct progress *progress, const char *line)
{
	static const char start[] = "dpkg: error processing package ";
	const char *name = line + strlen(start);
	char text[sizeof progress->last + 128];

	if (!text_has_prefix(line, start) || !strstr(name, " (--configure)"))
		return false;
	if (progress->package_failed)
		return true;
	progress->package_failed = true;
	snprintf(text, sizeof text, "package '%.*s' cannot be configured: %s",
		(int)MIN(strcspn(name, " "), 64u), name, progress->last);
	keep_text(progress->blame, sizeof progress->blame, text, strlen(text));
	return true;
}

static void note_trouble(struct progress *progress, const char *line)
{
	bool complaint = is_complaint(line);

	if (progress->kind != ERR_LIMIT && note_package(progress, line))
		return;
	if (progress->package_failed)
		complaint = false;
	for (size_t i = 0; i < ARRAY_LEN(causes); i++)
		if (strstr(line, causes[i].words)) {
			/* A full disk makes everything else fail too: it remains the cause. */
			if (progress->kind == ERR_LIMIT)
				return;
			progress->kind = causes[i].kind;
			complaint = true;
			break;
		}
	if (complaint && !(progress->kind == ERR_LIMIT && !strstr(line, "space")))
		keep_text(progress->blame, sizeof progress->blame, line, strlen(line));
}

void progress_explain(const struct progress *progress, int code, struct err *err)
{
	const char *line = progress->blame[0] ? progress->blame : progress->last;
	const char *hint = hint_of(progress->kind);

	if (text_has_prefix(line, "E: ") || text_has_prefix(line, "W: "))
		line += 3;
	if (!line[0] && code < 0)
		err_set(err, ERR_SYSTEM, "mmdebstrap was killed");
	else if (!line[0])
		err_set(err, ERR_SYSTEM, "mmdebstrap ended with exit code %d", code);
	else
		err_set(err, progress->kind ? progress->kind : ERR_SYSTEM, "%s", line);
	if (hint)
		err_hint(err, "%s", hint);
}

/* ---- the bar -------------------------------------------------------------------------------- */

/* "Get:12 URL suite/component arch PACKAGE arch version [size]": the fifth word. */
static bool feed_get(struct progress *progress, const char *line)
{
	const char *word = line;

	if (!progress->round) { /* package lists: their number is not known */
		show(progress, STAGE_DOWNLOAD, 0, "package lists", strlen("package lists"));
		return true;
	}
	for (int i = 0; i < 4 && *word; i++) {
		word += strcspn(word, " ");
		word += strspn(word, " ");
	}
	progress->fetched++;
	show(progress, STAGE_DOWNLOAD, progress->fetched, word, strcspn(word, " "));
	return true;
}

static bool feed_package(struct progress *progress, const char *line)
{
	const char *name = strchr(line, ' ') + 1;

	if (text_has_prefix(line, "Setting up ")) {
		name = line + strlen("Setting up ");
		progress->configured++;
		if (progress->unpacked < progress->round)
			return false;
		show(progress, STAGE_CONFIGURE, progress->configured, name, strcspn(name, " "));
		return true;
	}
	progress->unpacked++;
	show(progress, STAGE_UNPACK, progress->unpacked, name, strcspn(name, " "));
	return true;
}

/* "0 upgraded, 69 newly installed, 0 to remove and 0 not upgraded." begins an apt run. */
static bool feed_count(struct progress *progress, const char *line)
{
	unsigned upgraded, installed;

	if (sscanf(line, "%u upgraded, %u newly installed", &upgraded, &installed) != 2 ||
		installed > 100000)
		return false;
	progress->round = installed;
	progress->fetched = progress->unpacked = progress->configured = 0;
	return false;
}

bool progress_feed(struct progress *progress, const char *line)
{
	if (!*line)
		return false;
	note_trouble(progress, line);
	/* mmdebstrap's lines about its own end name no cause. */
	if (!text_has_prefix(line, "I: "))
		keep_text(progress->last, sizeof progress->last, line, strlen(line));
	if (text_has_prefix(line, "Get:"))
		return feed_get(progress, line);
	if (text_has_prefix(line, "Unpacking ") || text_has_prefix(line, "Setting up "))
		return feed_package(progress, line);
	if (isdigit((unsigned char)line[0]))
		return feed_count(progress, line);
	if (text_has_prefix(line, "I: cleaning package lists")) {
		progress->round = 1;
		show(progress, STAGE_CLEAN, 0, "", 0);
		return true;
	}
	return false;
}
