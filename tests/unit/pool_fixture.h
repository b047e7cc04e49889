/* pool_fixture.h - homes, pools and waiting for the tests of the pool
 *
 * All mounts are made in a mount namespace of the test program's own. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define MIB (UINT64_C(1) << 20)

static struct {
	char top[64];	/* everything of this program */
	char home[128]; /* of the present test */
	struct loop *loop;
	struct pool *pool;
	int homes;
	bool has_loop;
	/* what on_full was told */
	int host_full, pool_full;
	int told;
} test;

/* ---- helpers -------------------------------------------------------------------------------- */

static inline void stop_loop(void *arg)
{
	(void)arg;
	loop_stop(test.loop);
}

static inline void spin(unsigned ms)
{
	struct loop_timer *timer = loop_timer_new(test.loop, stop_loop, NULL);

	loop_timer_start(timer, ms);
	loop_run(test.loop);
	loop_timer_free(timer);
}

/* Runs the loop until the condition holds; fails after the given time. */
#define WAIT_FOR(cond, ms)                                                     \
	do {                                                                   \
		int64_t _end = clock_mono_us() + (int64_t)(ms)*1000;           \
		while (!(cond)) {                                              \
			if (clock_mono_us() > _end)                            \
				fail_msg("not within %d ms: %s", (ms), #cond); \
			spin(20);                                              \
		}                                                              \
	} while (0)

static inline void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline void shell(const char *fmt, ...)
{
	char line[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(line, sizeof line, fmt, args);
	va_end(args);
	if (system(line) != 0)
		fail_msg("failed: %s", line);
}

static inline void on_full(const char *what, bool full, const char *detail, void *arg)
{
	(void)arg;
	assert_true(*detail);
	test.told++;
	*(strcmp(what, "host") ? &test.pool_full : &test.host_full) = full;
}

static inline struct pool_config config_of(const char *mode)
{
	return (struct pool_config){ .loop = test.loop,
		.home = test.home,
		.mode = mode,
		.size = 512 * MIB,
		.on_full = on_full };
}

static inline void open_with(const struct pool_config *config)
{
	struct err err = ERR_INIT;

	if (pool_open(config, &test.pool, &err) < 0)
		fail_msg("pool_open: %s", err.message);
}

static inline void open_pool(const char *mode)
{
	struct pool_config config = config_of(mode);

	open_with(&config);
}

static inline void close_pool(void)
{
	pool_close(test.pool);
	test.pool = NULL;
}

static inline void new_home(void)
{
	snprintf(test.home, sizeof test.home, "%s/home%d", test.top, test.homes++);
	assert_int_equal(mkdir(test.home, 0700), 0);
}

#define OK(call)                                                \
	do {                                                    \
		struct err err = ERR_INIT;                      \
		if ((call) < 0)                                 \
			fail_msg("%s: %s", #call, err.message); \
	} while (0)
#define FAILS(want, call)                                                          \
	do {                                                                       \
		struct err err = ERR_INIT;                                         \
		assert_int_equal((call), -1);                                      \
		if (err.kind != (want))                                            \
			fail_msg("%s: kind %d: %s", #call, err.kind, err.message); \
	} while (0)

/* Appends len random bytes to a file of a disk; 0 or the errno. */
static inline int put(const char *place, const char *id, const char *name, size_t len)
{
	_cleanup_free_ char *disk = pool_disk_path(test.pool, place, id);
	_cleanup_free_ char *path = xasprintf("%s/%s", disk, name);
	static char random[1 << 20];
	int random_fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC), error = 0;
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

	assert_true(read(random_fd, random, sizeof random) == sizeof random);
	close(random_fd);
	if (fd < 0)
		return errno;
	while (len && !error) {
		ssize_t n = write(fd, random, MIN(len, sizeof random));

		if (n < 0)
			error = errno;
		else
			len -= (size_t)n;
	}
	if (!error && fsync(fd) < 0)
		error = errno;
	close(fd);
	return error;
}

static inline bool disk_has(const char *place, const char *id, const char *name)
{
	_cleanup_free_ char *disk = pool_disk_path(test.pool, place, id);
	_cleanup_free_ char *path = xasprintf("%s/%s", disk, name);
	struct stat st;

	return lstat(path, &st) == 0;
}

static inline uint64_t file_blocks(const char *name)
{
	char path[192];
	struct stat st;

	snprintf(path, sizeof path, "%s/%s", test.home, name);
	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* Loop devices bound to a file of this home. */
static inline int bound_devices(const char *name)
{
	char line[256], found[32] = "";
	FILE *pipe;

	snprintf(line, sizeof line,
		"cat /sys/block/loop*/loop/backing_file 2>/dev/null | grep -c '^%s/%s'", test.home,
		name);
	pipe = popen(line, "r");
	assert_non_null(fgets(found, sizeof found, pipe));
	pclose(pipe);
	return atoi(found);
}

static inline void wait_unbound(void)
{
	WAIT_FOR(bound_devices("pool.img") == 0, 5000);
}

static inline json_int_t json_number(const char *key)
{
	json_t *json = pool_json(test.pool);
	json_int_t value;

	assert_non_null(json);
	value = json_integer_value(json_object_get(json, key));
	json_decref(json);
	return value;
}

static inline void needs_loop(void)
{
	if (test.has_loop)
		return;
	print_message("skipped: no loop devices, btrfs or mkfs.btrfs here\n");
	skip();
}

static inline int teardown(void **state)
{
	(void)state;
	if (test.pool) {
		if (pool_destroy(test.pool, NULL) < 0)
			print_message("the pool of %s is left\n", test.home);
		test.pool = NULL;
	}
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	return 0;
}

static inline void unmount_host(void)
{
	assert_int_equal(umount2(test.home, 0), 0);
}

static int grown; /* 1: done, -1: failed */
static struct err grow_err;

static inline void on_grown(const struct err *err, void *arg)
{
	(void)arg;
	grown = err ? -1 : 1;
	if (err)
		grow_err = *err;
}

static inline void grow(uint64_t bytes)
{
	grown = 0;
	pool_grow(test.pool, bytes, on_grown, NULL);
	assert_int_equal(grown, 0); /* never from within the call */
	WAIT_FOR(grown, 5000);
}

static inline int group_setup(void **state)
{
	(void)state;
	log_open(STDERR_FILENO, LOG_LEVEL_ERROR);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	snprintf(test.top, sizeof test.top, "/tmp/test-pool-XXXXXX");
	if (!mkdtemp(test.top))
		return -1;
	test.loop = loop_new();
	test.has_loop = access("/dev/loop-control", W_OK) == 0 &&
			system("mkfs.btrfs --version >/dev/null 2>&1 && (grep -qw btrfs "
			       "/proc/filesystems || "
			       "modprobe btrfs 2>/dev/null)") == 0;
	return 0;
}

static inline int group_teardown(void **state)
{
	(void)state;
	loop_free(test.loop);
	return tree_remove(AT_FDCWD, test.top, NULL);
}

#define PROMISE(fn) cmocka_unit_test_teardown(fn, teardown)
