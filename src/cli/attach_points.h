/* attach_points.h - --volume and --mount: what a new box gets besides its own disk */
#pragma once
#include "base/err.h"
#include "base/json.h"

struct cli;

/* NAME:/path[:ro] */
int volume_parse(const char *text, json_t **ret, struct err *err);
/* HOST:/path[:ro][:uid=N[,gid=N]]; a relative HOST is resolved here. */
int mount_parse(const char *text, json_t **ret, struct err *err);

/* Puts all that were given into body. */
int volumes_read(struct cli *cli, json_t *body, struct err *err);
int mounts_read(struct cli *cli, json_t *body, struct err *err);
/* The daemon tells only root whether a refused folder exists. The caller can look: changes err if
 * that is the reason. */
void mounts_explain(struct cli *cli, json_t *body, struct err *err);
