/* attach_points.h - --volume and --mount: what a new box gets besides its own disk */
#pragma once
#include "base/err.h"
#include "base/json.h"

struct cli;

/* NAME:/path[:ro] */
int volume_parse(const char *text, json_t **ret, struct err *err);
/* HOST:/path[:ro][:uid=N[,gid=N]]; a relative HOST is taken from here. */
int mount_parse(const char *text, json_t **ret, struct err *err);

/* All that were given, into body. */
int volumes_read(struct cli *cli, json_t *body, struct err *err);
int mounts_read(struct cli *cli, json_t *body, struct err *err);
/* The daemon tells nobody but root whether a folder that it refuses is there. Who asks can look
 * himself: changes err if that is the reason. */
void mounts_explain(struct cli *cli, json_t *body, struct err *err);
