/* cgroup_layout.c - which control group hierarchies this machine has
 *
 * A line of mountinfo:  41 31 0:38 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2
 *                       rw,nsdelegate
 * The part before " - " has a varying number of fields, the three after it are type, source and
 * options; a v1 mount names its controllers among the options. The first mount of each kind
 * counts. */
#include "sys/cgroup.h"
#include "base/alloc.h"
#include "base/file.h"
#include <fcntl.h>
#include <stdio.h>

static const char *const names[] = {
	[CGROUP_CPU] = "cpu",
	[CGROUP_MEMORY] = "memory",
	[CGROUP_PIDS] = "pids",
	[CGROUP_CPUACCT] = "cpuacct",
	[CGROUP_FREEZER] = "freezer",
};
_Static_assert(ARRAY_LEN(names) == CGROUP_CONTROLLER_COUNT, "every controller has a name");

enum { MOUNTINFO_MAX = 4 * 1024 * 1024 };

const char *cgroup_controller_name(enum cgroup_controller controller)
{
	return names[controller];
}

static unsigned bits_of_list(const char *list, size_t len, const char *separators)
{
	unsigned bits = 0;

	for (size_t at = 0; at < len;) {
		size_t word = strcspn(list + at, separators);

		if (word > len - at)
			word = len - at;
		for (unsigned i = 0; i < CGROUP_CONTROLLER_COUNT; i++)
			if (strlen(names[i]) == word && !memcmp(names[i], list + at, word))
				bits |= 1u << i;
		at += word + 1;
	}
	return bits;
}

unsigned cgroup_controllers_parse(const char *text)
{
	return bits_of_list(text, strlen(text), " \n");
}

/* Spaces, tabs, newlines and backslashes in a path are written as \ooo. */
static char *unescape(const char *text, size_t len)
{
	char *out = xcalloc(1, len + 1);
	char *end = out;

	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\\' && i + 3 < len) {
			*end++ = (char)((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
					(text[i + 3] - '0'));
			i += 3;
		} else {
			*end++ = text[i];
		}
	}
	return out;
}

struct field {
	const char *at;
	size_t len;
};

/* Field `number` (from 0) of fields that are separated by single spaces. */
static struct field field_at(const char *line, size_t len, unsigned number)
{
	struct field field = { line, 0 };
	const char *end = line + len;

	for (; number && field.at < end; number--) {
		const char *space = memchr(field.at, ' ', (size_t)(end - field.at));

		field.at = space ? space + 1 : end;
	}
	while (field.at + field.len < end && field.at[field.len] != ' ')
		field.len++;
	return field;
}

static bool field_is(struct field field, const char *text)
{
	return field.len == strlen(text) && !memcmp(field.at, text, field.len);
}

static void parse_line(const char *line, size_t len, struct cgroup_layout *layout)
{
	const char *dash = memmem(line, len, " - ", 3);
	struct field path, type, options;
	unsigned bits;

	if (!dash)
		return;
	path = field_at(line, (size_t)(dash - line), 4);
	type = field_at(dash + 3, len - (size_t)(dash + 3 - line), 0);
	options = field_at(dash + 3, len - (size_t)(dash + 3 - line), 2);
	if (!path.len)
		return;
	if (field_is(type, "cgroup2") && !layout->v2)
		layout->v2 = unescape(path.at, path.len);
	if (!field_is(type, "cgroup"))
		return;
	bits = bits_of_list(options.at, options.len, ",");
	for (unsigned i = 0; i < CGROUP_CONTROLLER_COUNT; i++)
		if ((bits >> i & 1) && !layout->v1[i])
			layout->v1[i] = unescape(path.at, path.len);
}

void cgroup_layout_parse(const char *mountinfo, struct cgroup_layout *ret)
{
	*ret = (struct cgroup_layout){ 0 };
	while (*mountinfo) {
		size_t len = strcspn(mountinfo, "\n");

		parse_line(mountinfo, len, ret);
		mountinfo += len + (mountinfo[len] == '\n');
	}
}

int cgroup_layout_read(struct cgroup_layout *ret, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_free_ char *path = NULL;
	_cleanup_free_ char *list = NULL;

	if (file_read(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX, &text, NULL, err) < 0)
		return -1;
	cgroup_layout_parse(text, ret);
	if (!ret->v2)
		return 0;
	path = xasprintf("%s/cgroup.controllers", ret->v2);
	if (file_read(AT_FDCWD, path, 4096, &list, NULL, err) < 0) {
		cgroup_layout_done(ret);
		return -1;
	}
	ret->v2_controllers = cgroup_controllers_parse(list);
	return 0;
}

void cgroup_layout_done(struct cgroup_layout *layout)
{
	free(layout->v2);
	for (unsigned i = 0; i < CGROUP_CONTROLLER_COUNT; i++)
		free(layout->v1[i]);
	*layout = (struct cgroup_layout){ 0 };
}

const char *cgroup_layout_name(const struct cgroup_layout *layout)
{
	bool v1 = false;

	for (unsigned i = 0; i < CGROUP_CONTROLLER_COUNT; i++)
		v1 = v1 || layout->v1[i];
	if (v1)
		return layout->v2 ? "v1+v2" : "v1";
	return layout->v2 ? "v2" : "none";
}

bool cgroup_layout_has(const struct cgroup_layout *layout, enum cgroup_controller controller)
{
	return (layout->v2_controllers >> controller & 1) || layout->v1[controller];
}
