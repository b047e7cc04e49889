/* audit.c - checks the audit log in a helper: it may hold a gigabyte */
#include "core/boxnet/audit.h"
#include "audit/audit.h"
#include "core/core_internal.h"
#include "core/boxnet/network.h"
#include "helper/helper.h"
#include <sys/socket.h>

enum { CHECKS_MAX = 2 }; /* at a time: each takes a core and the disk */

struct audit_check {
	struct helper *helper;
	char *folder;
	void (*done)(void *arg, json_t *result, const struct err *err);
	void *arg;
	json_t *result;
	struct err err;
};

static unsigned checks; /* checks running now, in this process */

static void check_release(struct audit_check *check)
{
	checks--;
	json_decref(check->result);
	free(check->folder);
	free(check);
}

/* Sends one message: the result as JSON, or the error. */
static int run(int sock, void *arg)
{
	const struct audit_check *check = arg;
	struct err err = ERR_INIT;
	json_t *result = audit_verify(check->folder, &err);
	char *text = result ? json_text(result) : NULL;

	if (text && strlen(text) > HELPER_MESSAGE_MAX)
		return 1;
	if (text)
		return send(sock, text, strlen(text), MSG_NOSIGNAL) < 0;
	return send(sock, &err, sizeof err, MSG_NOSIGNAL) < 0;
}

static void on_message(const void *message, size_t len, void *arg)
{
	struct audit_check *check = arg;

	if (len == sizeof check->err && *(const char *)message != '{')
		memcpy(&check->err, message, len);
	else if (!check->result)
		check->result = json_parse(message, len, &check->err);
}

static void on_exit_check(int code, void *arg)
{
	struct audit_check *check = arg;

	if (!check->result && !check->err.kind)
		err_set(&check->err, ERR_SYSTEM, "the check of the audit log ended with code %d",
			code);
	check->done(check->arg, check->result, check->result ? NULL : &check->err);
	check_release(check);
}

int audit_check_start(struct yard *yard, const char *log,
	void (*done)(void *arg, json_t *result, const struct err *err), void *arg,
	struct audit_check **ret, struct err *err)
{
	static const struct helper_ops ops = {
		.run = run, .on_message = on_message, .on_exit = on_exit_check, .light = true
	};
	struct audit *audit = yard_find_audit(yard, log, err);
	struct audit_check *check;

	if (!audit)
		return -1;
	if (checks == CHECKS_MAX)
		return err_set(err, ERR_LIMIT, "the audit log is being checked already");
	/* A failed write does not break the chain; audit_trouble reports it. */
	audit_flush(audit, NULL);
	check = xnew(struct audit_check);
	check->folder = xstrdup(audit_get_folder(audit));
	check->done = done;
	check->arg = arg;
	checks++;
	if (helper_start(yard->loop, &ops, check, NULL, 0, &check->helper, err) < 0) {
		check_release(check);
		return err_wrap(err, "check the audit log");
	}
	*ret = check;
	return 0;
}

void audit_check_free(struct audit_check *check)
{
	if (!check)
		return;
	helper_free(check->helper);
	check_release(check);
}
