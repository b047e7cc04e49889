/* audit.h - the audit log checked while the daemon runs; the log itself is yard_get_audit
 * (network.h) */
#pragma once
#include "base/err.h"
#include "base/json.h"

struct audit_check;
struct yard;

/* What audit_verify says of the log, read by a helper; done is called once from the loop with it
 * (borrowed) or with an error, and *ret is gone then. ERR_LIMIT while others are being made,
 * ERR_UNAVAILABLE when there is no log. */
/* log: of a tree, or NULL. */
int audit_check_start(struct yard *yard, const char *log,
	void (*done)(void *arg, json_t *result, const struct err *err), void *arg,
	struct audit_check **ret, struct err *err);
void audit_check_free(struct audit_check *check); /* ends it, calls nothing; accepts NULL */
