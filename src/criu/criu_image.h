/* criu_image.h - what a dump is restored as: another range of users, another name
 *
 * An image says ids as the box sees them; which ids those are outside stands in one small file, and the host name in
 * another. Each is replaced whole by a new file under its name: images that are hard links into several directories, one a child,
 * stay as they are elsewhere. */
#pragma once
#include "base/err.h"
#include <stdint.h>

/* Users and groups 0 to count - 1 of the dumped tree become those from base on. ERR_NOT_FOUND when it has no user namespace. */
int criu_image_set_users(int images, uint32_t base, uint32_t count, struct err *err);
int criu_image_set_hostname(int images, const char *hostname, struct err *err);
