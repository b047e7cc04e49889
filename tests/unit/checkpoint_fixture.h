/* checkpoint_fixture.h - homes, checkpoints with known content and waiting, for the tests of
 * checkpoints */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "loop/loop.h"
#include "checkpoint/checkpoints_internal.h"
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MIB (1 << 20)

static struct {
	char top[64]; /* everything of this program */
	char home[128], run[128];
	struct loop *loop;
	struct checkpoints *checkpoints;
	int homes;
	bool no_quick;
	int done, opened, count; /* calls */
	int dir;		 /* of the last that was opened */
	struct err err;		 /* of the last call */
} test;

/* ---- waiting -------------------------------------------------------------------------------- */

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

/* Callbacks end the spinning, so that nothing is waited for in vain. */
#define WAIT_FOR(cond, ms)                                                     \
	do {                                                                   \
		int64_t _end = clock_mono_us() + (int64_t)(ms)*1000;           \
		while (!(cond)) {                                              \
			if (clock_mono_us() > _end)                            \
				fail_msg("not within %d ms: %s", (ms), #cond); \
			spin(20);                                              \
		}                                                              \
	} while (0)

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

static inline void on_done(const struct err *err, void *arg)
{
	(void)arg;
	test.done++;
	test.err = err ? *err : (struct err)ERR_INIT;
	loop_stop(test.loop);
}

static inline void on_opened(int dir, const struct err *err, void *arg)
{
	(void)arg;
	test.opened++;
	if (test.opened > 1)
		close(test.dir);
	test.dir = dir;
	test.err = err ? *err : (struct err)ERR_INIT;
	assert_true((dir >= 0) == (err == NULL));
	loop_stop(test.loop);
}

static inline void on_opened_close(int dir, const struct err *err, void *arg)
{
	on_done(err, arg);
	test.opened++;
	if (dir >= 0)
		close(dir);
}

static inline void count_each(const char *id, void *arg)
{
	(void)id;
	(void)arg;
	test.count++;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static inline void open_checkpoints(void)
{
	struct err err = ERR_INIT;

	if (checkpoints_open(test.loop, test.home, test.no_quick ? NULL : test.run,
		    &test.checkpoints, &err) < 0)
		fail_msg("checkpoints_open: %s", err.message);
}

static inline void close_checkpoints(void)
{
	checkpoints_close(test.checkpoints);
	test.checkpoints = NULL;
}

static inline void wait_swept(void)
{
	WAIT_FOR(!test.checkpoints->sweeper, 5000);
}

static inline void put_bytes(int dir, const char *name, const void *data, size_t len)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	OK(fd_write_all(fd, data, len, &err));
	close(fd);
}

static inline void put_random(int dir, const char *name, size_t len)
{
	static uint8_t block[MIB];
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	for (; len; len -= MIN(len, MIB)) {
		uint64_t x = len | 1;

		for (size_t i = 0; i < MIB; i += 8) { /* xorshift: nothing to compress */
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			memcpy(block + i, &x, 8);
		}
		OK(fd_write_all(fd, block, MIN(len, MIB), &err));
	}
	close(fd);
}

static inline void put_zeros(int dir, const char *name, size_t len)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	close(fd);
}

/* Known bytes: text that shrinks, with something new all the time. */
static inline char *sample_bytes(size_t len)
{
	char *bytes = xnewn(char, len + 16);

	for (size_t i = 0; i < len; i += 8)
		snprintf(bytes + i, 9, "%08x", (unsigned)(i * 2654435761u) & 0xffff);
	return bytes;
}

enum { SAMPLE_PAGES = 700001, SAMPLE_BYTES = SAMPLE_PAGES + 5 + 0 + 4096 };

static inline void fill_sample(int dir)
{
	_cleanup_free_ char *pages = sample_bytes(SAMPLE_PAGES);
	static const char zeros[4096];

	put_bytes(dir, "pages-1.img", pages, SAMPLE_PAGES);
	put_bytes(dir, "core-1.img", "hello", 5);
	put_bytes(dir, "empty.log", "", 0);
	put_bytes(dir, "a_zero-page", zeros, sizeof zeros);
}

static inline unsigned entries(int dir)
{
	DIR *folder = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	unsigned count = 0;

	assert_non_null(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count - 2;
}

static inline void check_file(int dir, const char *name, const void *data, size_t len)
{
	_cleanup_free_ char *found = NULL;
	size_t found_len;

	OK(file_read(dir, name, 64 * MIB, &found, &found_len, &err));
	assert_int_equal(found_len, len);
	assert_memory_equal(found, data, len);
}

/* Closes dir. */
static inline void check_sample(int dir)
{
	_cleanup_free_ char *pages = sample_bytes(SAMPLE_PAGES);
	static const char zeros[4096];

	assert_int_equal(entries(dir), 4);
	check_file(dir, "pages-1.img", pages, SAMPLE_PAGES);
	check_file(dir, "core-1.img", "hello", 5);
	check_file(dir, "empty.log", "", 0);
	check_file(dir, "a_zero-page", zeros, sizeof zeros);
	close(dir);
}

static inline void make_checkpoint(const char *id, bool quick)
{
	int dir;

	OK(checkpoints_make(test.checkpoints, id, SAMPLE_BYTES, quick, &dir, &err));
	fill_sample(dir);
	close(dir);
}

/* For trying each byte. */
static inline void make_small_checkpoint(const char *id)
{
	_cleanup_free_ char *pages = sample_bytes(40000);
	int dir;

	OK(checkpoints_make(test.checkpoints, id, 0, false, &dir, &err));
	put_bytes(dir, "pages-1.img", pages, 40000);
	put_bytes(dir, "core-1.img", "hello", 5);
	put_bytes(dir, "empty.log", "", 0);
	close(dir);
}

/* What CRIU writes of a small box: some pages, and many small files. */
static inline void make_like_criu(const char *id)
{
	_cleanup_free_ char *pages = sample_bytes(1400000);
	int dir;

	OK(checkpoints_make(test.checkpoints, id, 1500000, false, &dir, &err));
	put_bytes(dir, "pages-1.img", pages, 1400000);
	for (int i = 0; i < 39; i++) {
		char name[32];

		snprintf(name, sizeof name, "core-%d.img", i);
		put_bytes(dir, name, pages + i * 1000, 2600);
	}
	close(dir);
}

static inline void pack(const char *id)
{
	test.done = 0;
	checkpoints_pack(test.checkpoints, id, on_done, NULL);
	assert_int_equal(test.done, 0); /* never from within the call */
	WAIT_FOR(test.done, 20000);
	if (test.err.kind)
		fail_msg("pack: %s", test.err.message);
}

static inline void check_err(enum err_kind kind, const char *text)
{
	if (test.err.kind != kind || !strstr(test.err.message, text))
		fail_msg("kind %d: %s", test.err.kind, test.err.message);
}

static inline void pack_fails(const char *id, enum err_kind kind, const char *text)
{
	test.done = 0;
	checkpoints_pack(test.checkpoints, id, on_done, NULL);
	WAIT_FOR(test.done, 20000);
	check_err(kind, text);
}

static inline void verify(const char *id)
{
	test.done = 0;
	checkpoints_verify(test.checkpoints, id, on_done, NULL);
	WAIT_FOR(test.done, 20000);
	if (test.err.kind)
		fail_msg("verify: %s", test.err.message);
}

static inline void verify_fails(const char *id, enum err_kind kind, const char *text)
{
	test.done = 0;
	checkpoints_verify(test.checkpoints, id, on_done, NULL);
	WAIT_FOR(test.done, 20000);
	check_err(kind, text);
}

static inline int plain_of(const char *id)
{
	test.opened = 0;
	checkpoints_plain(test.checkpoints, id, on_opened, NULL);
	WAIT_FOR(test.opened, 20000);
	if (test.dir < 0)
		fail_msg("plain: %s", test.err.message);
	return test.dir;
}

static inline void plain_fails(const char *id, enum err_kind kind, const char *text)
{
	test.opened = 0;
	checkpoints_plain(test.checkpoints, id, on_opened, NULL);
	WAIT_FOR(test.opened, 20000);
	assert_int_equal(test.dir, -1);
	check_err(kind, text);
}

/* Children of this program, which are helpers all. */
static inline void kill_helpers(void)
{
	char path[64], *at;
	_cleanup_free_ char *pids = NULL;

	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	OK(file_read(AT_FDCWD, path, 4096, &pids, NULL, &err));
	assert_true(*pids);
	for (char *pid = strtok_r(pids, " ", &at); pid; pid = strtok_r(NULL, " ", &at))
		kill((pid_t)atoi(pid), SIGKILL);
}

static inline uint64_t memory_available(void)
{
	_cleanup_free_ char *text = NULL;
	unsigned long long kib;

	OK(file_read(AT_FDCWD, "/proc/meminfo", 16384, &text, NULL, &err));
	assert_int_equal(sscanf(strstr(text, "MemAvailable:"), "MemAvailable: %llu", &kib), 1);
	return (uint64_t)kib << 10;
}

/* ---- files ---------------------------------------------------------------------------------- */

static inline char *packed_path(const char *id)
{
	return xasprintf("%s/states/%s/packed.zst", test.home, id);
}

static inline void flip(const char *path, off_t at)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	char byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static inline unsigned entries_at(const char *path)
{
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unsigned count;

	assert_true(dir >= 0);
	count = entries(dir);
	close(dir);
	return count;
}

static inline unsigned checkpoint_entries(const char *id)
{
	_cleanup_free_ char *path = xasprintf("%s/states/%s", test.home, id);

	return entries_at(path);
}

static inline unsigned entries_of_home(void)
{
	_cleanup_free_ char *path = xasprintf("%s/states", test.home);

	return entries_at(path);
}

struct bytes {
	const char *data;
	size_t left;
};

static inline ssize_t read_bytes(void *arg, void *data, size_t len, struct err *err)
{
	struct bytes *bytes = arg;

	(void)err;
	len = MIN(len, bytes->left);
	memcpy(data, bytes->data, len);
	bytes->data += len;
	bytes->left -= len;
	return (ssize_t)len;
}

static inline int unpack_bytes(const char *id, const char *data, size_t len, struct err *err)
{
	struct bytes bytes = { data, len };
	const struct checkpoint_source source = { read_bytes, &bytes };
	return checkpoint_unpack(&source, id, NULL, err);
}

/* ---- set-up --------------------------------------------------------------------------------- */

static inline int set_up(void **state)
{
	(void)state;
	snprintf(test.home, sizeof test.home, "%s/home%d", test.top, test.homes++);
	snprintf(test.run, sizeof test.run, "%s-run/states", test.home);
	if (mkdir(test.home, 0700) < 0)
		return -1;
	test.err = (struct err)ERR_INIT;
	test.no_quick = false;
	open_checkpoints();
	return 0;
}

static inline int tear_down(void **state)
{
	(void)state;
	close_checkpoints();
	umount2(test.home, MNT_DETACH);
	return tree_remove(AT_FDCWD, test.home, NULL);
}

static inline int group_setup(void **state)
{
	(void)state;
	log_open(STDERR_FILENO, LOG_LEVEL_WARN);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	snprintf(test.top, sizeof test.top, "/tmp/test-states-XXXXXX");
	if (!mkdtemp(test.top))
		return -1;
	test.loop = loop_new();
	return 0;
}

static inline int group_teardown(void **state)
{
	(void)state;
	loop_free(test.loop);
	return tree_remove(AT_FDCWD, test.top, NULL);
}

#define PROMISE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
