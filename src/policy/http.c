/* http.c - methods and paths of plain HTTP
 *
 * A pattern is a whole path; '*' in it stands for anything within one segment, '**' for anything at
 * all, and a '/' at its end for everything below. Servers differ in how they read a path: some undo
 * escapes twice, join slashes, climb with '..', or cut off dots at the end of a name. A path that
 * could be read in two ways therefore fits no allow rule with paths, and every deny rule with
 * paths. Parameters ("/a;x=1/b") are common, and some servers leave them out: an allow rule must
 * fit both readings, a deny rule either. What a deny rule names it names in any case of letters,
 * and with or without a '/' at the end. */
#include "base/text.h"
#include "policy/policy_internal.h"
#include <strings.h>

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort_unique(char **strv)
{
	size_t count = strv_len((const char *const *)strv), kept = 0;

	if (!count)
		return;
	qsort(strv, count, sizeof *strv, compare);
	for (size_t i = 0; i < count; i++) {
		if (kept && !strcmp(strv[kept - 1], strv[i]))
			free(strv[i]);
		else
			strv[kept++] = strv[i];
	}
	strv[kept] = NULL;
}

void http_sort(struct policy_rule *rule)
{
	sort_unique(rule->methods);
	sort_unique(rule->paths);
}

static int add_bounded(char ***strv, const char *text, const char *what, struct err *err)
{
	if (strv_len((const char *const *)*strv) == POLICY_PATHS_MAX)
		return err_set(err, ERR_INVALID, "more than %d %s", POLICY_PATHS_MAX, what);
	strv_add(strv, text);
	return 0;
}

int http_add_method(const char *text, struct policy_rule *rule, struct err *err)
{
	char upper[24];
	size_t len = strlen(text);
	bool ok = len > 0 && len < sizeof upper;

	for (size_t i = 0; ok && i <= len; i++) {
		upper[i] = (char)(text[i] >= 'a' && text[i] <= 'z' ? text[i] - 32 : text[i]);
		ok = i == len || (upper[i] >= 'A' && upper[i] <= 'Z') || upper[i] == '-';
	}
	if (!ok)
		return err_set(err, ERR_INVALID, "'%.40s' is not a method of HTTP", text);
	return add_bounded(&rule->methods, upper, "methods", err);
}

/* ---- paths ---------------------------------------------------------------------------------- */

/* True for ".", "..", "", for those with a parameter ("..;x"), which some servers cut off before
 * they resolve "..", and for names that end with what some file systems ignore. */
static bool segment_is_odd(const char *segment, size_t len, bool last)
{
	const char *cut = memchr(segment, ';', len);
	size_t name = cut ? (size_t)(cut - segment) : len;

	if (!len)
		return !last;
	return !name || segment[name - 1] == '.' || segment[name - 1] == ' ';
}

static bool has_odd_segment(const char *path)
{
	for (const char *p = path + 1;; p++) {
		size_t len = strcspn(p, "/");

		if (segment_is_odd(p, len, !p[len]))
			return true;
		p += len;
		if (!*p)
			return false;
	}
}

bool http_path_normalise(const char *path, char *out)
{
	size_t len = 0;

	if (path[0] != '/')
		return false;
	for (; *path && *path != '?'; path++) {
		unsigned char c = (unsigned char)*path;

		if (c == '%') {
			int high = text_hex_digit(path[1]),
			    low = high < 0 ? -1 : text_hex_digit(path[2]);

			if (low < 0)
				return false;
			c = (unsigned char)(high << 4 | low);
			/* A decoded separator means something else to a server that decodes
			 * twice. */
			if (c == '/' || c == '%' || c == '?')
				return false;
			path += 2;
		}
		if (c < ' ' || c == 0x7f || c == '\\' || c == '#' || len == HTTP_PATH_SIZE - 1)
			return false;
		out[len++] = (char)c;
	}
	out[len] = '\0';
	/* Bytes that are not UTF-8 may be an overlong form of '/' or '.'. */
	return text_is_utf8(out, len) && !has_odd_segment(out);
}

int http_add_path(const char *text, struct policy_rule *rule, struct err *err)
{
	char normal[HTTP_PATH_SIZE];
	size_t len = strlen(text);

	if (len > POLICY_PATH_LEN_MAX)
		return err_set(err, ERR_INVALID, "path longer than %d bytes", POLICY_PATH_LEN_MAX);
	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] > '~' || text[i] == '?' || text[i] == '%')
			return err_set(err, ERR_INVALID,
				"path '%.80s': visible ASCII, escapes undone, no query", text);
	if (!http_path_normalise(text, normal)) {
		err_set(err, ERR_INVALID, "'%.80s' is not a path", text);
		return err_hint(err, "it begins with '/' and has no '//', '.' or '..' in it");
	}
	if (strstr(text, "***"))
		return err_set(err, ERR_INVALID, "path '%.80s': '***' has no meaning", text);
	return add_bounded(&rule->paths, text, "paths", err);
}

/* reach[i]: the pattern so far matches the first i bytes of text. There is one pass over text for
 * each part of the pattern, so no pattern takes more than length times length steps. */
static bool glob(const char *pattern, const char *text)
{
	bool reach[HTTP_PATH_SIZE] = { true };
	size_t len = strlen(text), low = 0;

	while (*pattern) {
		bool star = *pattern == '*', deep = star && pattern[1] == '*';
		size_t first = len + 1;

		if (star) {
			for (size_t i = low; i < len; i++)
				if (reach[i] && (deep || text[i] != '/'))
					reach[i + 1] = true;
			first = low;
		} else {
			for (size_t i = len; i > low; i--) {
				reach[i] = reach[i - 1] && text[i - 1] == *pattern;
				if (reach[i])
					first = i;
			}
			reach[low] = false;
			if (first > len)
				return false;
		}
		low = first;
		pattern += deep ? 2 : 1;
	}
	return reach[len];
}

static bool is_prefix(const char *pattern)
{
	size_t len = strlen(pattern);

	return len && pattern[len - 1] == '/';
}

static bool path_fits(const char *pattern, const char *path)
{
	char deep[POLICY_PATH_LEN_MAX + 3];
	size_t len = strlen(pattern);

	if (!strchr(pattern, '*'))
		return is_prefix(pattern) ? !strncmp(path, pattern, len) : !strcmp(path, pattern);
	memcpy(deep, pattern, len + 1);
	if (is_prefix(pattern))
		strcpy(deep + len, "**");
	return glob(deep, path);
}

bool http_has_method(const struct policy_rule *rule, const char *method)
{
	if (!rule->methods)
		return true;
	for (size_t i = 0; rule->methods[i]; i++)
		if (!strcasecmp(rule->methods[i], method))
			return true;
	return false;
}

/* Removes parameters: "/a;x=1/b" becomes "/a/b". */
static void leave_out_parameters(const char *path, char *out)
{
	for (bool in = false; *path; path++) {
		in = *path != '/' && (in || *path == ';');
		if (!in)
			*out++ = *path;
	}
	*out = '\0';
}

static void to_lower(char *text)
{
	for (; *text; text++)
		if (*text >= 'A' && *text <= 'Z')
			*text = (char)(*text | 32);
}

/* Adds a '/' at the end, or removes it. */
static void change_end(char *path)
{
	size_t len = strlen(path);

	if (len > 1 && path[len - 1] == '/')
		path[len - 1] = '\0';
	else if (len < HTTP_PATH_SIZE - 1)
		strcpy(path + len, "/");
}

static bool is_denied(const char *pattern, const char *path)
{
	char low_pattern[POLICY_PATH_LEN_MAX + 1], low_path[HTTP_PATH_SIZE];

	strcpy(low_pattern, pattern);
	strcpy(low_path, path);
	to_lower(low_pattern);
	to_lower(low_path);
	if (path_fits(low_pattern, low_path))
		return true;
	change_end(low_path);
	return path_fits(low_pattern, low_path);
}

static bool fits_one(const struct policy_rule *rule, const char *path)
{
	for (size_t i = 0; rule->paths[i]; i++)
		if (rule->deny ? is_denied(rule->paths[i], path) : path_fits(rule->paths[i], path))
			return true;
	return false;
}

bool http_has_path(const struct policy_rule *rule, const char *normal)
{
	char bare[HTTP_PATH_SIZE];

	if (!rule->paths)
		return true;
	leave_out_parameters(normal, bare);
	if (!strcmp(bare, normal))
		return fits_one(rule, normal);
	return rule->deny ? fits_one(rule, normal) || fits_one(rule, bare)
			  : fits_one(rule, normal) && fits_one(rule, bare);
}

bool http_path_covers(const char *wide, const char *narrow)
{
	size_t len = strlen(wide);

	if (!strcmp(wide, narrow) ||
		(!strchr(narrow, '*') && !is_prefix(narrow) && path_fits(wide, narrow)))
		return true;
	/* A plain prefix covers every pattern that begins with it. */
	return !strchr(wide, '*') && is_prefix(wide) && !strncmp(narrow, wide, len);
}
