/* package_hosts.h - the hosts that the package managers of an image are configured to use
 *
 * Found out from the image alone: the configuration files of the managers in it, and where these
 * name no other source, the default that stands in the manager's own files. Nothing is known
 * beforehand but where to look. */
#pragma once
#include "base/err.h"
#include "base/json.h"

enum { PACKAGE_HOSTS_MAX = 256 };

/* NAME:PORT of each host once, in the order of the managers; yours (strv_free). layers are
 * read-only folders, topmost first; env is the image's environment (array of "KEY=VALUE") or NULL.
 * An image is hostile: work and answer are bounded, nothing outside of the layers is read, files
 * that make no sense are passed over. Blocks for a millisecond or two. NULL with err when the
 * layers cannot be opened. */
char **package_hosts_find(const char *const *layers, const json_t *env, struct err *err);
