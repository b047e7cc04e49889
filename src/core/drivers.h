/* drivers.h - the drivers of a yard: opened once, chosen by the row of a box
 *
 * A driver that does not open here, or is not allowed, stays in the table with the reason: whoever
 * asks for it is told why he cannot have it. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "engine/engine.h"

struct drivers;

/* list: of what there is, NULL at the end; the first that opened is the default. demanded: the
 * only one that boxes may have, "" any. ERR_UNSUPPORTED when none opens, or not the demanded. */
int drivers_open(const struct engine_ops *const *list, const struct engine_config *config,
	const char *demanded, struct drivers **ret, struct err *err);
void drivers_close(struct drivers *drivers); /* accepts NULL */

/* The driver of a new box; asked may be NULL. ERR_INVALID for one that does not exist or may not be
 * used, ERR_UNSUPPORTED with the reason for one that does not work here. */
int drivers_choose(
	const struct drivers *drivers, const char *asked, struct engine **ret, struct err *err);
/* Of a box that has it: also one that new boxes may not have any more. ERR_UNSUPPORTED. */
int drivers_find(
	const struct drivers *drivers, const char *name, struct engine **ret, struct err *err);

/* Removes whatever an instance left, by all drivers: of an orphan nobody knows which one it had. */
int drivers_sweep(const struct drivers *drivers, const char *id, struct err *err);

/* {"ns":{"available":true,"default":true,"can":["suspend",…],…}}: what each can do here, or why it
 * cannot. New reference. */
json_t *drivers_json(const struct drivers *drivers);
/* Open files that a running box takes, of the driver that takes the most. */
unsigned drivers_fds(const struct drivers *drivers);
/* What is wrong with captures, a literal; NULL: nothing. */
const char *drivers_capture_problem(const struct drivers *drivers);
/* Adds the checks of all. False: boxes cannot run. */
bool drivers_probe(const struct drivers *drivers, json_t *checks);
