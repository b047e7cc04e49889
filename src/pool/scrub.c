/* scrub.c - reads every block and verifies every checksum
 *
 * The ioctl returns when everything is read, so a helper waits in it, device after device (a
 * native pool may have several); the daemon asks the kernel for the progress. */
#include "pool/pool_internal.h"
#include "helper/helper.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { ASK_MS = 250 };

struct scrub_report { /* from the helper: a device is done, or it failed */
	uint64_t device;
	uint64_t done, errors; /* of all devices so far */
	struct err err;
};

struct pool_scrub {
	struct pool *pool;
	const struct pool_scrub_ops *ops;
	void *arg;
	struct helper *helper;
	struct loop_timer *timer;
	uint64_t total;
	struct scrub_report last;
};

static uint64_t errors_of(const struct btrfs_scrub_progress *p)
{
	return p->read_errors + p->csum_errors + p->verify_errors + p->super_errors;
}

static uint64_t bytes_of(const struct btrfs_scrub_progress *p)
{
	return p->data_bytes_scrubbed + p->tree_bytes_scrubbed;
}

/* ---- in the helper -------------------------------------------------------------------------- */

static int run_scrub(int sock, void *arg)
{
	const struct pool *pool = ((struct pool_scrub *)arg)->pool;
	int root = open(pool->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct btrfs_ioctl_fs_info_args info = { 0 };
	struct scrub_report report = { 0 };

	if (root < 0 || ioctl(root, BTRFS_IOC_FS_INFO, &info) < 0) {
		err_sys(&report.err, errno, "open '%s'", pool->path);
		send(sock, &report, sizeof report, 0);
		return 1;
	}
	for (uint64_t id = 1; id <= info.max_id; id++) {
		struct btrfs_ioctl_dev_info_args device = { .devid = id };
		struct btrfs_ioctl_scrub_args scrub = { .devid = id, .end = UINT64_MAX };

		if (ioctl(root, BTRFS_IOC_DEV_INFO, &device) < 0)
			continue; /* a removed device: ids have gaps */
		report.device = id;
		send(sock, &report, sizeof report, 0);
		if (ioctl(root, BTRFS_IOC_SCRUB, &scrub) < 0) {
			err_sys(&report.err, errno, "verify device %llu of the pool",
				(unsigned long long)id);
			send(sock, &report, sizeof report, 0);
			return 1;
		}
		report.done += bytes_of(&scrub.progress);
		report.errors += errors_of(&scrub.progress);
	}
	send(sock, &report, sizeof report, 0);
	return 0;
}

/* ---- in the daemon -------------------------------------------------------------------------- */

static void scrub_free(struct pool_scrub *scrub)
{
	scrub->pool->scrub = NULL;
	loop_timer_free(scrub->timer);
	free(scrub);
}

static void on_report(const void *message, size_t len, void *arg)
{
	struct pool_scrub *scrub = arg;

	if (len == sizeof scrub->last)
		memcpy(&scrub->last, message, len);
}

static void on_exit_scrub(int code, void *arg)
{
	struct pool_scrub *scrub = arg;
	const struct pool_scrub_ops *ops = scrub->ops;
	struct scrub_report last = scrub->last;
	uint64_t total = scrub->total;
	void *user = scrub->arg;

	scrub_free(scrub);
	if (code && !last.err.kind)
		err_set(&last.err, ERR_SYSTEM, "the helper that verifies the pool died");
	if (!code && ops->on_progress)
		ops->on_progress(last.done, MAX(total, last.done), last.errors, user);
	ops->on_done(last.errors, code ? &last.err : NULL, user);
}

static void ask(void *arg)
{
	struct pool_scrub *scrub = arg;
	struct btrfs_ioctl_scrub_args now = { .devid = scrub->last.device };
	uint64_t done = scrub->last.done, errors = scrub->last.errors;

	loop_timer_start(scrub->timer, ASK_MS);
	if (ioctl(scrub->pool->root, BTRFS_IOC_SCRUB_PROGRESS, &now) == 0) {
		done += bytes_of(&now.progress);
		errors += errors_of(&now.progress);
	}
	if (scrub->ops->on_progress)
		scrub->ops->on_progress(done, MAX(scrub->total, done), errors, scrub->arg);
}

int pool_scrub_start(
	struct pool *pool, const struct pool_scrub_ops *ops, void *arg, struct err *err)
{
	static const struct helper_ops helper_ops = {
		.run = run_scrub, .on_message = on_report, .on_exit = on_exit_scrub, .light = true
	};
	struct pool_scrub *scrub;
	struct pool_space space;

	if (pool->kind == POOL_FOLDER)
		return err_set(err, ERR_UNSUPPORTED, "a plain folder has no checksums");
	if (pool->scrub)
		return err_set(err, ERR_STATE, "the pool is being verified already");
	if (pool_space_read(pool, &space, err) < 0)
		return -1;
	scrub = xnew(struct pool_scrub);
	*scrub = (struct pool_scrub){ .pool = pool, .ops = ops, .arg = arg, .total = space.used };
	if (helper_start(pool->loop, &helper_ops, scrub, NULL, 0, &scrub->helper, err) < 0) {
		free(scrub);
		return -1;
	}
	pool->scrub = scrub;
	scrub->timer = loop_timer_new(pool->loop, ask, scrub);
	loop_timer_start(scrub->timer, ASK_MS);
	return 0;
}

void pool_scrub_cancel(struct pool *pool)
{
	struct pool_scrub *scrub = pool->scrub;

	if (!scrub)
		return;
	/* A killed helper stays in the ioctl until it returns; it must not start the next
	 * device. */
	helper_kill(scrub->helper);
	ioctl(pool->root, BTRFS_IOC_SCRUB_CANCEL, NULL);
	helper_free(scrub->helper);
	scrub_free(scrub);
}
