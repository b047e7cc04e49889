/* audit.h - the audit log checked while the daemon runs; the log itself is yard_get_audit
 * (network.h) */
#pragma once
#include "base/err.h"
#include "base/json.h"

struct audit_check;
struct yard;

/* Starts audit_verify in a helper. done is called once from the loop with the result (borrowed) or
 * an error, and frees *ret. Fails with ERR_LIMIT while too many checks run, and with
 * ERR_UNAVAILABLE when there is no log. */
/* log: id of a tree, or NULL. */
int audit_check_start(struct yard *yard, const char *log,
	void (*done)(void *arg, json_t *result, const struct err *err), void *arg,
	struct audit_check **ret, struct err *err);
void audit_check_free(struct audit_check *check); /* ends it without a callback; accepts NULL */
