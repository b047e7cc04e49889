/* ns_fixture.h - real instances of the ns driver for its tests; needs root, and BOX_TEST_INIT
 * naming stand_in_init
 *
 * Each test starts an instance on an empty root and asks the stand-in for box-init inside what it
 * sees and may do. Everything lives in a directory of the test's own and a cgroup tree of its
 * own. */
#pragma once
#include "engine/engine.h"
#include "engine/groups.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <cmocka.h>

enum { UID_BASE = 3000000, PATIENCE_MS = 15000 };

/* One test's instance and what it was told. */
struct seen {
	struct instance *instance;
	bool ready, failed, ended;
	struct err failure;
	enum instance_end end;
	char detail[256];
	uint64_t oom_kills;
};

static struct {
	char dir[64];
	struct loop *loop;
	struct engine *engine;
	struct engine_config config;
	char home[96], rootfs[96], disk[96];
	const char *layers[2]; /* the rootfs alone */
	bool timed_out;
} test;

static inline void on_ready(struct instance *instance, void *arg)
{
	(void)instance;
	((struct seen *)arg)->ready = true;
	loop_stop(test.loop);
}

static inline void on_failed(struct instance *instance, const struct err *err, void *arg)
{
	(void)instance;
	((struct seen *)arg)->failed = true;
	((struct seen *)arg)->failure = *err;
	loop_stop(test.loop);
}

static inline void on_ended(
	struct instance *instance, enum instance_end end, const char *detail, void *arg)
{
	struct seen *seen = arg;

	(void)instance;
	seen->ended = true;
	seen->end = end;
	snprintf(seen->detail, sizeof seen->detail, "%s", detail);
	loop_stop(test.loop);
}

static inline void on_oom(struct instance *instance, uint64_t kills, void *arg)
{
	(void)instance;
	((struct seen *)arg)->oom_kills += kills;
	loop_stop(test.loop);
}

static const struct instance_ops ops = {
	.on_ready = on_ready, .on_failed = on_failed, .on_ended = on_ended, .on_oom = on_oom
};

static inline void time_over(void *arg)
{
	(void)arg;
	test.timed_out = true;
	loop_stop(test.loop);
}

static inline void run_until_something(void)
{
	struct loop_timer *timer = loop_timer_new(test.loop, time_over, NULL);

	test.timed_out = false;
	loop_timer_start(timer, PATIENCE_MS);
	loop_run(test.loop);
	loop_timer_free(timer);
	assert_false(test.timed_out);
}

static inline struct instance_spec spec_of(enum profile profile)
{
	return (struct instance_spec){
		.id = "t1",
		.hostname = "first",
		.ns.layers = test.layers,
		.disk = test.disk,
		.ns.uid_base = UID_BASE,
		.ns.profile = profile,
	};
}

static inline void start_spec(const struct instance_spec *spec, struct seen *seen)
{
	struct err err = ERR_INIT;

	*seen = (struct seen){ 0 };
	if (engine_start(test.engine, spec, &ops, seen, &seen->instance, &err) < 0)
		fail_msg("start: %s", err.message);
	run_until_something();
	if (seen->failed)
		fail_msg("start: %s", seen->failure.message);
	assert_true(seen->ready);
}

static inline void start(enum profile profile, struct seen *seen)
{
	struct instance_spec spec = spec_of(profile);

	start_spec(&spec, seen);
}

/* One line to the stand-in and its answer, which stays valid until the next. */
static inline const char *ask(struct seen *seen, const char *line)
{
	static char answer[8192];
	_cleanup_close_ int fd = -1;
	struct err err = ERR_INIT;
	struct pollfd poller;
	size_t len = 0;

	if (instance_connect(seen->instance, &fd, &err) < 0)
		fail_msg("connect: %s", err.message);
	dprintf(fd, "%s\n", line);
	poller = (struct pollfd){ .fd = fd, .events = POLLIN };
	while (len < sizeof answer - 1 && poll(&poller, 1, PATIENCE_MS) > 0) {
		ssize_t got = read(fd, answer + len, sizeof answer - 1 - len);

		if (got <= 0)
			break;
		len += (size_t)got;
		if (answer[len - 1] == '\n')
			break;
	}
	answer[len] = '\0';
	answer[strcspn(answer, "\n")] = '\0';
	return answer;
}

static inline void expect(struct seen *seen, const char *line, const char *want)
{
	const char *got = ask(seen, line);

	if (strcmp(got, want) != 0)
		fail_msg("'%s' gave '%s', not '%s'", line, got, want);
}

static inline void expect_no_leftovers(void)
{
	json_t *left = groups_leftovers(test.config.groups);

	assert_int_equal(json_array_size(left), 0);
	json_decref(left);
}

static inline void stop(struct seen *seen)
{
	struct err err = ERR_INIT;

	assert_int_equal(instance_kill(seen->instance, &err), 0);
	while (!seen->ended)
		run_until_something();
	instance_free(seen->instance);
	seen->instance = NULL;
	expect_no_leftovers();
}

/* ---- set-up --------------------------------------------------------------------------------- */

/* A driver of its own for each test, so that one that failed cannot disturb the next. */
static inline int open_engine(void **state)
{
	static char name[64];
	struct err err = ERR_INIT;

	(void)state;
	tree_remove(AT_FDCWD, test.disk, NULL);
	if (mkdir(test.disk, 0755) < 0)
		return -1;
	snprintf(name, sizeof name, "boxyard-test-%d", (int)getpid());
	test.loop = loop_new();
	test.config =
		(struct engine_config){ .loop = test.loop, .home = test.home, .run = test.dir };
	if (groups_open(&(struct groups_config){ .name = name }, &test.config.groups, &err) < 0 ||
		engine_open(&engine_ns, &test.config, &test.engine, &err) < 0) {
		print_error("open: %s\n", err.message);
		return -1;
	}
	return 0;
}

static inline int close_engine(void **state)
{
	json_t *left = groups_leftovers(test.config.groups);
	size_t i;
	json_t *id;

	(void)state;
	json_array_foreach (left, i, id)
		engine_sweep(test.engine, json_string_value(id), NULL);
	json_decref(left);
	engine_close(test.engine);
	groups_close(test.config.groups);
	loop_free(test.loop);
	return 0;
}

static inline int open_attached(void **state)
{
	setenv("BOX_NS_LAYERS", "attached", 1);
	return open_engine(state);
}

static inline int open_detached(void **state)
{
	setenv("BOX_NS_LAYERS", "detached", 1);
	return open_engine(state);
}

static inline int close_either(void **state)
{
	unsetenv("BOX_NS_LAYERS");
	return close_engine(state);
}

static inline int make_home(void **state)
{
	static const char *const dirs[] = { "home", "rootfs", "rootfs/etc", "rootfs/var" };
	char path[160];
	const char *where = getenv("TMPDIR");

	(void)state;
	snprintf(test.dir, sizeof test.dir, "%s/box-test-ns-XXXXXX", where ? where : "/tmp");
	if (!mkdtemp(test.dir))
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		snprintf(path, sizeof path, "%s/%s", test.dir, dirs[i]);
		mkdir(path, 0755);
	}
	snprintf(test.home, sizeof test.home, "%s/home", test.dir);
	snprintf(test.rootfs, sizeof test.rootfs, "%s/rootfs", test.dir);
	snprintf(test.disk, sizeof test.disk, "%s/disk", test.dir);
	test.layers[0] = test.rootfs;
	return setenv("BOX_INIT", getenv("BOX_TEST_INIT"), 1);
}

static inline int remove_home(void **state)
{
	(void)state;
	return tree_remove(AT_FDCWD, test.dir, NULL);
}

#define NS_TEST(fn) cmocka_unit_test_setup_teardown(fn, open_engine, close_engine)
#define NS_TEST_BOTH_WAYS(fn)                                            \
	{ #fn " (attached)", fn, open_attached, close_either, NULL },    \
	{                                                                \
#fn " (detached)", fn, open_detached, close_either, NULL \
	}

static inline int run_ns_tests(const char *name, int (*run)(void))
{
	if (geteuid() == 0 && getenv("BOX_TEST_INIT"))
		return run();
	printf("%s: needs root and BOX_TEST_INIT: skipped\n", name);
	return 77;
}
