/* user.h - who a program runs as, looked up in the box's own /etc/passwd and /etc/group
 *
 * Runs in the forked child: nothing is allocated. A static program has no name service, and wants
 * none: it would load the box's libraries into box-init. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <sys/types.h>

enum { USER_GROUPS_MAX = 128 };

struct user {
	uid_t uid;
	gid_t gid;
	gid_t groups[USER_GROUPS_MAX]; /* supplementary, gid included */
	size_t group_count;
	char name[64];
	char home[1024]; /* "/" when unknown */
	char shell[256];
};

/* spec: "" (root), a name or a number, optionally ":group" (name or number). The texts are the two
 * files and are cut up. ERR_NOT_FOUND names the user or group that does not exist. */
int user_lookup(char *passwd, char *group, const char *spec, struct user *ret, struct err *err);
/* The same with the files of the box; missing ones are empty. */
int user_find(const char *spec, struct user *ret, struct err *err);
/* Names of numbers, cut to size, and the home of a user ("": who runs this); false: not in the
 * files. */
bool user_find_name(uid_t uid, char *ret, size_t size);
bool user_find_group_name(gid_t gid, char *ret, size_t size);
bool user_find_home(const char *name, char *ret, size_t size);
