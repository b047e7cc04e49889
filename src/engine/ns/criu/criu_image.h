/* criu_image.h - what a dump is restored as: another range of users, another name
 *
 * An image says ids as the box sees them; which ids those are outside stands in one small file, and
 * the host name in another. Each is replaced whole by a new file under its name: images that are
 * hard links into several directories, one a child, stay as they are elsewhere. */
#pragma once
#include "base/err.h"
#include "sys/idmap.h"
#include <stddef.h>

/* Users and groups of the dumped tree become these outside. ERR_NOT_FOUND when it has no user
 * namespace. */
int criu_image_set_users(
	int images, const struct idmap_extent *extents, size_t count, struct err *err);
int criu_image_set_hostname(int images, const char *hostname, struct err *err);
