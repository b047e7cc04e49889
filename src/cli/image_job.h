/* image_job.h - follows the daemon while it makes an image: build, pull, and commands that need
 * one */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>

struct cli;

/* POSTs body (consumed) to path and follows the stream: a bar on a terminal, else a line for each
 * stage. With echo each line of the stream is printed to stdout unchanged, for --json. *ret is the
 * image, a new reference. */
int image_job_run(struct cli *cli, const char *what, const char *path, json_t *body, bool echo,
	json_t **ret, struct err *err);

/* What to do about a missing image: "missing" pulls it, "never" does not, "always" asks the
 * registry in any case. */
enum image_pull { IMAGE_PULL_MISSING, IMAGE_PULL_NEVER, IMAGE_PULL_ALWAYS };
/* By the value of --pull; NULL is "missing". */
int image_pull_from_name(const char *name, enum image_pull *ret, struct err *err);
/* The image with that name or id, pulled if necessary; a new reference. */
int image_ensure(
	struct cli *cli, const char *name, enum image_pull policy, json_t **ret, struct err *err);
/* name  id  size */
void image_print_line(json_t *image);
