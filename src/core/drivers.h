/* drivers.h - the drivers of a yard: opened once, chosen by the row of a box
 *
 * A driver that does not open here, or is not allowed, stays in the table with the reason: whoever
 * asks for it is told why he cannot have it. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "engine/engine.h"

struct drivers;

/* Opens the drivers of list, which ends with NULL; the first that opens is the default. demanded:
 * the only driver that boxes may have, "" any. Fails with ERR_UNSUPPORTED when none opens, or the
 * demanded one does not. */
int drivers_open(const struct engine_ops *const *list, const struct engine_config *config,
	const char *demanded, struct drivers **ret, struct err *err);
void drivers_close(struct drivers *drivers); /* accepts NULL */

/* Chooses the driver of a new box; asked may be NULL. Fails with ERR_INVALID for a driver that does
 * not exist or may not be used, and with ERR_UNSUPPORTED and the reason for one that does not work
 * here. */
int drivers_choose(
	const struct drivers *drivers, const char *asked, struct engine **ret, struct err *err);
/* Finds the driver of an existing box, even if new boxes may no longer have it. Fails with
 * ERR_UNSUPPORTED. */
int drivers_find(
	const struct drivers *drivers, const char *name, struct engine **ret, struct err *err);

/* Removes whatever an instance left, with all drivers: the driver of an orphan is not known. */
int drivers_sweep(const struct drivers *drivers, const char *id, struct err *err);

/* {"ns":{"available":true,"default":true,"can":["suspend",…],…}}: what each can do here, or why it
 * cannot. New reference. */
json_t *drivers_json(const struct drivers *drivers);
/* File descriptors that a running box needs, with the driver that needs the most. */
unsigned drivers_fds(const struct drivers *drivers);
/* What is wrong with captures, a literal; NULL: nothing. */
const char *drivers_capture_problem(const struct drivers *drivers);
/* Adds the checks of all drivers. False: boxes cannot run. */
bool drivers_probe(const struct drivers *drivers, json_t *checks);
