/* criu_image.h - changes a dump before its restore: another range of users, another host name
 *
 * Images contain ids as the box sees them; one small file maps them to the host, and another has
 * the host name. Each is replaced by a new file with its name: images that are hard links into
 * several directories, one per child, stay unchanged elsewhere. */
#pragma once
#include "base/err.h"
#include "sys/idmap.h"
#include <stddef.h>

/* Maps users and groups of the dumped tree to these on the host. Fails with ERR_NOT_FOUND when it
 * has no user namespace. */
int criu_image_set_users(
	int images, const struct idmap_extent *extents, size_t count, struct err *err);
int criu_image_set_hostname(int images, const char *hostname, struct err *err);
