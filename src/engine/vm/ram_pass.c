/* ram_pass.c - a capture of memory as the daemon sees it: registered, copied, ended
 *
 *   registering   the library write-protects; if it cannot, the last pass copies everything
 *   copying       the helper's passes while the guest runs
 *   ready         the driver stops the guest and calls ram_pass_last
 *   last          the helper's last pass; then the layer exists
 *
 * A pass that was freed early lives until its helper has ended; its files are removed then. */
#include "base/strv.h"
#include "base/text.h"
#include "engine/vm/ram_internal.h"
#include "helper/helper.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>

struct ram_pass {
	struct ram_store *store;
	const struct ram_pass_ops *ops;
	void *arg;
	struct ram_link *link; /* NULL: no longer */
	char id[RAM_ID_LEN + 1];
	char **stack; /* old and, at the end, new; held */
	struct ram_copy_job job;
	struct helper *helper;
	struct ram_copy_report report;
	bool ended; /* on_done was called, or would have been */
	bool freed; /* by its owner */
};

static void let_layers_go(struct ram_pass *pass)
{
	if (!pass->stack)
		return;
	ram_store_release(pass->store, (const char *const[]){ pass->id, NULL });
	ram_store_release(pass->store, (const char *const *)pass->stack);
	strv_free(pass->stack);
	pass->stack = NULL;
}

static void release(struct ram_pass *pass)
{
	ram_store_remove_pass(pass->store, pass);
	let_layers_go(pass);
	if (pass->job.disk >= 0)
		close(pass->job.disk);
	if (pass->job.pidfd >= 0)
		close(pass->job.pidfd);
	free(pass);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void end_well(struct ram_pass *pass)
{
	const struct ram_copy_report *report = &pass->report;
	struct ram_pass_result result = { .bytes = report->bytes,
		.last_bytes = report->last_bytes,
		.extents = report->extents,
		.live_us = report->live_us,
		.last_us = report->last_us,
		.precopy = report->precopy };

	if (!report->empty) {
		ram_store_hold(pass->store, (const char *const[]){ pass->id, NULL });
		strv_add(&pass->stack, pass->id);
		result.layer = pass->id;
	}
	result.stack = (const char *const *)pass->stack;
	ram_store_hold(pass->store, result.stack); /* the caller's */
	pass->ops->on_done(pass, &result, NULL, pass->arg);
}

/* Its owner may free it in between. */
static void end(struct ram_pass *pass, const struct err *err)
{
	pass->ended = true;
	if (err || pass->freed)
		ram_layer_remove(ram_store_dir(pass->store), pass->id);
	if (pass->freed)
		return;
	if (err)
		pass->ops->on_done(pass, NULL, err, pass->arg);
	else
		end_well(pass);
}

/* ---- the helper ------------------------------------------------------------------------------ */

static int run(int sock, void *arg)
{
	struct ram_pass *pass = arg;

	return ram_copy_run(sock, &pass->job);
}

static void on_message(const void *message, size_t len, void *arg)
{
	struct ram_pass *pass = arg;

	if (len != sizeof pass->report)
		return;
	memcpy(&pass->report, message, len);
	if (!pass->report.ready) /* the guest does not wait for the helper to end */
		end(pass, pass->report.err.kind ? &pass->report.err : NULL);
	else if (!pass->freed)
		pass->ops->on_ready(pass, pass->arg);
}

static void on_ended(int code, void *arg)
{
	struct ram_pass *pass = arg;
	struct err err = ERR_INIT;
	bool freed = pass->freed;

	pass->helper = NULL;
	if (!pass->ended) {
		err_set(&err, ERR_SYSTEM, "the helper for layers of memory ended with %d", code);
		end(pass, &err);
	}
	if (freed)
		release(pass);
}

static const struct helper_ops helper_ops = {
	.run = run, .on_message = on_message, .on_exit = on_ended, .light = true
};

static int start_helper(struct ram_pass *pass, struct err *err)
{
	int keep[3] = { pass->job.dir, pass->job.pidfd, pass->job.disk };

	return helper_start(ram_store_loop(pass->store), &helper_ops, pass, keep,
		pass->job.disk < 0 ? 2 : 3, &pass->helper, err);
}

static void on_registered(const struct err *err, void *arg)
{
	struct ram_pass *pass = arg;
	struct err why = ERR_INIT;

	pass->job.base = ram_link_base(pass->link);
	pass->job.precopy = !err && !pass->job.whole;
	if (pass->job.base && start_helper(pass, &why) == 0)
		return;
	if (!pass->job.base)
		err_set(&why, ERR_UNAVAILABLE, "%s",
			err ? err->message : "QEMU's library does not tell where its RAM is");
	end(pass, &why);
}

/* ---- the public side ------------------------------------------------------------------------- */

static int dup_fd(int fd, int *ret, struct err *err)
{
	*ret = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (fd >= 0 && *ret < 0)
		return err_sys(err, errno, "begin a pass over memory");
	return 0;
}

int ram_pass_start(struct ram_store *store, const struct ram_pass_spec *spec,
	const struct ram_pass_ops *ops, void *arg, struct ram_pass **ret, struct err *err)
{
	static const char *const none[] = { NULL };
	struct ram_pass *pass = xnew(struct ram_pass);

	*pass = (struct ram_pass){ .store = store, .ops = ops, .arg = arg, .link = spec->link };
	pass->stack = strv_copy(spec->stack ? spec->stack : none);
	random_id(pass->id, RAM_ID_LEN);
	pass->job = (struct ram_copy_job){ .dir = ram_store_dir(store),
		.id = pass->id,
		.pid = ram_link_pid(spec->link),
		.ram_bytes = ram_link_bytes(spec->link),
		.whole = spec->whole,
		.pidfd = -1,
		.disk = -1 };
	ram_store_hold(store, spec->stack);
	ram_store_hold(store, (const char *const[]){ pass->id, NULL }); /* before it exists */
	ram_store_add_pass(store, pass);
	if (dup_fd(spec->pidfd, &pass->job.pidfd, err) < 0 ||
		dup_fd(spec->disk, &pass->job.disk, err) < 0) {
		release(pass);
		return -1;
	}
	if (spec->whole)
		ram_link_locate(spec->link, on_registered, pass);
	else
		ram_link_register(spec->link, on_registered, pass);
	*ret = pass;
	return 0;
}

void ram_pass_last(struct ram_pass *pass)
{
	if (pass->helper)
		helper_send(pass->helper, "l", 1); /* on failure its end follows */
}

/* Pages stay write-protected, and mappings without fault-around, until they are unregistered. */
static void let_go(struct ram_pass *pass)
{
	if (!pass->link)
		return;
	ram_link_forget(pass->link, pass);
	ram_link_unregister(pass->link);
	pass->link = NULL;
}

void ram_pass_free(struct ram_pass *pass)
{
	if (!pass)
		return;
	let_go(pass);
	pass->freed = true;
	if (!pass->helper)
		release(pass);
	else if (pass->ended)
		let_layers_go(pass); /* not to wait for the end of the helper */
	else
		helper_kill(pass->helper); /* on_ended does the rest */
}

void ram_pass_end(struct ram_pass *pass)
{
	if (pass->helper) {
		helper_free(pass->helper);
		pass->helper = NULL;
		if (!pass->ended)
			ram_layer_remove(ram_store_dir(pass->store), pass->id);
	}
	release(pass);
}
