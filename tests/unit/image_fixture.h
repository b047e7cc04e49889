/* image_fixture.h - an image store on a pool of plain folders, in a home of its own
 *
 * Each test has its own home. Helpers make namespaces and keep owners, so this needs root. */
#pragma once
#include "image/image_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct fixture {
	char home[64];
	const char *mode; /* of the pool */
	struct loop *loop;
	struct pool *pool;
	struct images *images;
	/* what the last job said */
	bool done;
	const struct image *image;
	struct err err;
	unsigned progressed;
	char stage[32];
};

static inline void fixture_open(struct fixture *f)
{
	struct pool_config config = { .loop = f->loop, .home = f->home, .mode = f->mode };
	struct err err = ERR_INIT;

	if (pool_open(&config, &f->pool, &err) < 0 ||
		images_open(f->loop, f->pool, f->home, &f->images, &err) < 0)
		fail_msg("%s", err.message);
}

static inline void fixture_close(struct fixture *f)
{
	images_close(f->images);
	pool_close(f->pool);
	f->images = NULL;
	f->pool = NULL;
}

static inline void fixture_reopen(struct fixture *f)
{
	fixture_close(f);
	fixture_open(f);
}

static inline int fixture_set_up(void **state)
{
	struct fixture *f = xnew(struct fixture);

	strcpy(f->home, "/tmp/test-image-XXXXXX");
	f->mode = "folder";
	*state = f;
	if (!mkdtemp(f->home) || unshare(CLONE_NEWNS) < 0 ||
		mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	f->loop = loop_new();
	fixture_open(f);
	return 0;
}

static inline int fixture_tear_down(void **state)
{
	struct fixture *f = *state;

	images_close(f->images);
	if (f->pool)
		pool_destroy(f->pool, NULL);
	loop_free(f->loop);
	tree_remove(AT_FDCWD, f->home, NULL);
	free(f);
	return 0;
}

/* ---- files ---------------------------------------------------------------------------------- */

static inline void put(const struct fixture *f, const char *name, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", f->home, name), *parent = xstrdup(path);

	*strrchr(parent, '/') = '\0';
	assert_int_equal(dir_make_all(parent, 0755, NULL), 0);
	assert_int_equal(file_write_atomic(AT_FDCWD, path, text, strlen(text), 0644, NULL), 0);
}

static inline void put_dir(const struct fixture *f, const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", f->home, name);

	assert_int_equal(dir_make_all(path, 0755, NULL), 0);
}

static inline bool is_there(const struct fixture *f, const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", f->home, name);

	return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* image.json as homes before the pool have it; with layers (a JSON array) as it is now. folder is
 * below home. */
static inline void put_record(const struct fixture *f, const char *folder, const char *id,
	const char *name, int64_t created_us, const char *more)
{
	_cleanup_free_ char *path = xasprintf("%s/image.json", folder);
	_cleanup_free_ char *text = xasprintf("{\"id\":\"%s\",\"name\":\"%s\",\"origin\":\"test\","
					      "\"created_us\":%lld,\"size\":5000,\"files\":2,"
					      "\"packages\":[\"git\"]%s}",
		id, name, (long long)created_us, more);

	put(f, path, text);
}

static inline void put_shared(
	const struct fixture *f, const char *id, const char *name, int64_t created_us)
{
	_cleanup_free_ char *folder = xasprintf("images/%s", id);
	_cleanup_free_ char *file = xasprintf("%s/rootfs/etc/hostname", folder);

	put(f, file, "x");
	put_record(f, folder, id, name, created_us, "");
}

/* An image of ours upon layers that are made when they are not there. */
static inline void put_own(const struct fixture *f, const char *id, const char *name,
	int64_t created_us, const char *parent, const char *const *layers)
{
	_cleanup_free_ char *folder = xasprintf("pool/images/%s", id), *more = NULL;
	struct buf list = BUF_INIT;

	for (size_t i = 0; layers[i]; i++) {
		_cleanup_free_ char *dir = xasprintf("layers/%s/files", layers[i]);
		_cleanup_free_ char *size = xasprintf("layers/%s/layer.json", layers[i]);

		put_dir(f, dir);
		put(f, size, "{\"size_bytes\":1000,\"files\":10}");
		buf_addf(&list, "%s\"%s/files\"", i ? "," : "", layers[i]);
	}
	more = xasprintf(",\"parent\":\"%s\",\"layers\":[%s]", parent, buf_str(&list));
	put_record(f, folder, id, name, created_us, more);
	buf_done(&list);
}
#define LAYERS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* ---- the loop ------------------------------------------------------------------------------- */

static inline void fixture_stop(void *loop)
{
	loop_stop(loop);
}

static inline void run_for(struct fixture *f, uint64_t ms)
{
	struct loop_timer *timer = loop_timer_new(f->loop, fixture_stop, f->loop);

	loop_timer_start(timer, ms);
	loop_run(f->loop);
	loop_timer_free(timer);
}

static inline void on_job_progress(
	const char *stage, uint64_t done, uint64_t total, const char *detail, void *arg)
{
	struct fixture *f = arg;

	assert_true(!total || done <= total);
	assert_non_null(detail);
	f->progressed++;
	snprintf(f->stage, sizeof f->stage, "%s", stage);
}

static inline void on_job_done(const struct image *image, const struct err *err, void *arg)
{
	struct fixture *f = arg;

	assert_false(f->done);
	assert_true(!image == !!err);
	f->done = true;
	f->image = image;
	if (err)
		f->err = *err;
	loop_stop(f->loop);
}
static const struct image_job_ops job_ops = { on_job_progress, on_job_done };

/* Until the job is over. */
static inline const struct image *wait_for_job(struct fixture *f)
{
	struct loop_timer *timer = loop_timer_new(f->loop, fixture_stop, f->loop);

	loop_timer_start(timer, 20000);
	while (!f->done)
		loop_run(f->loop);
	loop_timer_free(timer);
	f->done = false;
	return f->image;
}
