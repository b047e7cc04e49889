/* package_hosts.h - the hosts that the package managers of an image are configured to use
 *
 * They are found from the image alone: from the configuration files of the package managers in
 * it, and where these name no source, from the default in the manager's own files. Only the
 * places to look at are built in, no host names. */
#pragma once
#include "base/err.h"
#include "base/json.h"

enum { PACKAGE_HOSTS_MAX = 256 };

/* NAME:PORT of each host once, in the order of the managers; yours (strv_free). layers are
 * read-only folders, topmost first; env is the image's environment (array of "KEY=VALUE") or
 * NULL. An image may be hostile: work and result are bounded, nothing outside of the layers is
 * read, and files that cannot be parsed are skipped. Blocks for a millisecond or two. NULL with
 * err when the layers cannot be opened. */
char **package_hosts_find(const char *const *layers, const json_t *env, struct err *err);
