/* user.c - see user.h */
#include "guest/user.h"
#include "base/alloc.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

enum { FILE_MAX = 256 * 1024, FIELDS = 7 };

static bool parse_id(const char *text, uint32_t *ret)
{
	unsigned long value = 0;

	if (!*text || strlen(text) > 10)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		value = value * 10 + (unsigned long)(*text - '0');
	}
	/* (uid_t)-1 means "leave as it is" to the kernel. */
	if (value >= UINT32_MAX)
		return false;
	*ret = (uint32_t)value;
	return true;
}

/* Cuts the next line off text and into fields at ':'. The number of fields; 0 at the end. */
static size_t next_line(char **text, char *fields[FIELDS])
{
	while (**text) {
		char *line = strsep(text, "\n");
		size_t count = 0;

		while (line && count < FIELDS)
			fields[count++] = strsep(&line, ":");
		if (!*text)
			*text = fields[0] + strlen(fields[0]);
		if (*fields[0] && *fields[0] != '#')
			return count;
	}
	return 0;
}

static void fill(char *out, size_t size, const char *text, const char *otherwise)
{
	snprintf(out, size, "%s", *text && strlen(text) < size ? text : otherwise);
}

static bool find_passwd(char *passwd, const char *name, struct user *ret)
{
	uint32_t wanted, uid, gid;
	bool numeric = parse_id(name, &wanted);
	char *fields[FIELDS];
	size_t count;

	while ((count = next_line(&passwd, fields))) {
		if (count < FIELDS || !parse_id(fields[2], &uid) || !parse_id(fields[3], &gid))
			continue;
		if (numeric ? uid != wanted : strcmp(fields[0], name) != 0)
			continue;
		ret->uid = uid;
		ret->gid = gid;
		fill(ret->name, sizeof ret->name, fields[0], "?");
		fill(ret->home, sizeof ret->home, fields[5], "/");
		fill(ret->shell, sizeof ret->shell, fields[6], "/bin/sh");
		return true;
	}
	return false;
}

static bool member_of(char *members, const char *name)
{
	char *member;

	while ((member = strsep(&members, ",")))
		if (!strcmp(member, name))
			return true;
	return false;
}

static void add_group(struct user *user, gid_t gid)
{
	for (size_t i = 0; i < user->group_count; i++)
		if (user->groups[i] == gid)
			return;
	if (user->group_count < USER_GROUPS_MAX)
		user->groups[user->group_count++] = gid;
}

/* One pass finds the gid of the group asked for and the groups the user is a member of. */
static bool find_groups(char *group, const char *wanted, struct user *ret)
{
	bool found = false;
	uint32_t gid;
	char *fields[FIELDS];
	size_t count;

	if (wanted && parse_id(wanted, &gid)) {
		ret->gid = gid;
		found = true;
	}
	while ((count = next_line(&group, fields))) {
		if (count < 4 || !parse_id(fields[2], &gid))
			continue;
		if (wanted && !found && !strcmp(fields[0], wanted)) {
			ret->gid = gid;
			found = true;
		}
		if (member_of(fields[3], ret->name))
			add_group(ret, gid);
	}
	add_group(ret, ret->gid);
	return found || !wanted;
}

int user_lookup(char *passwd, char *group, const char *spec, struct user *ret, struct err *err)
{
	char name[129];
	char *colon;
	uint32_t uid;

	if (strlen(spec) >= sizeof name)
		return err_set(err, ERR_INVALID, "user name is too long");
	strcpy(name, *spec ? spec : "0");
	colon = strchr(name, ':');
	if (colon)
		*colon++ = '\0';
	*ret = (struct user){ .home = "/", .shell = "/bin/sh" };
	if (!find_passwd(passwd, name, ret)) {
		if (!parse_id(name, &uid))
			return err_set(err, ERR_NOT_FOUND, "no user '%s' in the box", name);
		ret->uid = uid;
		ret->gid = uid;
		fill(ret->name, sizeof ret->name, uid ? name : "root", "?");
		if (!uid)
			strcpy(ret->home, "/root");
	}
	if (!find_groups(group, colon, ret))
		return err_set(err, ERR_NOT_FOUND, "no group '%s' in the box", colon);
	return 0;
}

/* The box controls the file, so opening it must not block. */
static char *read_text(const char *path, char *out, size_t size)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	size_t len = 0;

	while (fd >= 0 && len < size - 1) {
		ssize_t got = read(fd, out + len, size - 1 - len);

		if (got <= 0)
			break;
		len += (size_t)got;
	}
	out[len] = '\0';
	/* strsep() and we stop at a NUL, as everything else does that reads these files. */
	return out;
}

static char *read_passwd(void)
{
	static char passwd[FILE_MAX];

	return read_text("/etc/passwd", passwd, sizeof passwd);
}

static char *read_group(void)
{
	static char group[FILE_MAX];

	return read_text("/etc/group", group, sizeof group);
}

int user_find(const char *spec, struct user *ret, struct err *err)
{
	return user_lookup(read_passwd(), read_group(), spec, ret, err);
}

bool user_find_name(uid_t uid, char *ret, size_t size)
{
	char number[16];
	struct user user;

	snprintf(number, sizeof number, "%u", uid);
	if (!find_passwd(read_passwd(), number, &user))
		return false;
	snprintf(ret, size, "%s", user.name);
	return true;
}

bool user_find_group_name(gid_t gid, char *ret, size_t size)
{
	char *group = read_group(), *fields[FIELDS];
	uint32_t number;
	size_t count;

	while ((count = next_line(&group, fields)))
		if (count >= 3 && parse_id(fields[2], &number) && number == gid) {
			snprintf(ret, size, "%s", fields[0]);
			return true;
		}
	return false;
}

bool user_find_home(const char *name, char *ret, size_t size)
{
	char number[16];
	struct user user;

	if (!*name) {
		snprintf(number, sizeof number, "%u", geteuid());
		name = number;
	}
	if (!find_passwd(read_passwd(), name, &user))
		return false;
	snprintf(ret, size, "%s", user.home);
	return true;
}
