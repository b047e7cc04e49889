/* yard_fixture.c - see yard_fixture.h; what must hold afterwards is in yard_check.c */
#include "yard_fixture.h"
#include "core/boxnet/network_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "gate/gate.h"
#include "pool/pool.h"
#include "sys/netns.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct yard_fixture test;

/* A test has failed: its answers are not there any more. */
static bool abandoned;

static char top[64];
static unsigned homes;

static const char conf_text[] = "pool = folder\nspares = 0\nspare_disks = 0\nlisten = off\n"
				"idle_suspend = off\nidle_hibernate = off\nca_certificates = none\n"
				"default_policy = dev\nyard_memory = off\nyard_pids = off\n";

/* ---- the clock ------------------------------------------------------------------------------ */

static int64_t skipped_ns;

/* Instead of the C library's: everything in this program sees the same time. */
int clock_gettime(clockid_t id, struct timespec *ret)
{
	int64_t ns;

	if (syscall(SYS_clock_gettime, id, ret) < 0)
		return -1;
	if (id != CLOCK_MONOTONIC && id != CLOCK_REALTIME && id != CLOCK_MONOTONIC_COARSE)
		return 0;
	ns = ret->tv_nsec + skipped_ns;
	ret->tv_sec += ns / 1000000000;
	ret->tv_nsec = ns % 1000000000;
	return 0;
}

static void stop_loop(void *arg)
{
	(void)arg;
	loop_stop(test.loop);
}

void yard_run(unsigned ms)
{
	struct loop_timer *timer = loop_timer_new(test.loop, stop_loop, NULL);

	loop_timer_start(timer, ms);
	loop_run(test.loop);
	loop_timer_free(timer);
}

void yard_skip(uint64_t ms)
{
	skipped_ns += (int64_t)ms * 1000000;
	yard_run(0);
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Helpers, and the gate. */
static size_t count_children(void)
{
	char path[64];
	_cleanup_free_ char *pids = NULL;
	size_t count = 0;

	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	if (file_read(AT_FDCWD, path, 65536, &pids, NULL, NULL) < 0)
		return 0;
	for (char *at = pids; (at = strchr(at, ' ')); at++)
		count++;
	return count;
}

/* It is a process of its own, whose time cannot be moved on. */
static bool gate_works(void)
{
	for (size_t i = 0; i < test.yard->box_count; i++)
		if (test.yard->boxes[i]->net && test.yard->boxes[i]->net->leaving)
			return true;
	return false;
}

static bool is_settled(void)
{
	const struct yard *yard = test.yard;

	if (count_children() > 1 || yard->packings || yard->forkings || yard->snapshot_wishes ||
		yard->uppers)
		return false;
	for (size_t i = 0; i < yard->box_count; i++) {
		const struct box *box = yard->boxes[i];

		if (box_is_busy(box) || operation_is_on(box) || box->waiters || box->removers ||
			(box->state == BOX_RUNNING && !box->link_ready))
			return false;
	}
	return !gate_works();
}

enum { PATIENCE_US = 60 * 1000 * 1000, QUIET_US = 60 * 1000, SKIP_MS = 3000, SKIPS_MAX = 300 };

/* Until the condition holds. Time is moved on when nothing but a time limit can help any more: no
 * helper works, or one has worked for too long. */
static bool run_until(bool (*holds)(const void *arg), const void *arg, bool skip)
{
	int64_t end = clock_mono_us() - skipped_ns / 1000 + PATIENCE_US, since = 0;
	unsigned skips = 0;

	while (!holds(arg)) {
		int64_t now = clock_mono_us() - skipped_ns / 1000;
		size_t children = count_children();

		if (now > end)
			return false;
		if (!since || gate_works())
			since = now;
		if (skip && skips < SKIPS_MAX &&
			now - since > (children > 1 ? QUIET_US : QUIET_US / 10)) {
			skips++;
			yard_skip(SKIP_MS);
			if (children <= 1)
				continue;
		}
		yard_run(1);
	}
	return true;
}

static bool settled_holds(const void *arg)
{
	(void)arg;
	return is_settled();
}

static const char *what_moves(char ret[256])
{
	const struct yard *yard = test.yard;
	int len = snprintf(ret, 256, "%zu children%s%s%s%s", count_children(),
		yard->packings ? ", packing" : "", yard->forkings ? ", forking" : "",
		yard->snapshot_wishes ? ", wishes" : "",
		pool_trash_is_empty(yard->pool) ? "" : ", trash");

	for (size_t i = 0; i < yard->box_count && len < 200; i++) {
		const struct box *box = yard->boxes[i];

		len += snprintf(ret + len, 256 - (size_t)len, ", '%s' is %s%s%s%s%s", box->row.name,
			box_state_name(box->state), operation_is_on(box) ? " in turn" : "",
			box->waiters ? " waited for" : "", box->removers ? " being removed" : "",
			box->net && box->net->leaving ? " leaving" : "");
	}
	return ret;
}

static void settle(bool skip)
{
	char what[256];

	if (!run_until(settled_holds, NULL, skip))
		fail_msg("%s: it does not come to rest: %s", test.context, what_moves(what));
}

void yard_settle(void)
{
	settle(false);
}

void yard_settle_late(void)
{
	settle(true);
}

void on_box(struct box *box, const struct err *err, void *arg)
{
	struct answer *answer = arg;

	if (abandoned)
		return;
	answer->calls++;
	answer->no_box = !box;
	if (err)
		answer->err = *err;
	loop_stop(test.loop);
}

void on_json(json_t *result, const struct err *err, void *arg)
{
	struct answer *answer = arg;

	on_box(NULL, err, arg);
	if (abandoned)
		return;
	json_decref(answer->result);
	answer->result = json_incref(result);
}

void answer_done(struct answer *answer)
{
	json_decref(answer->result);
	*answer = (struct answer)ANSWER_INIT;
}

static bool answer_holds(const void *arg)
{
	return ((const struct answer *)arg)->calls > 0;
}

static void run_to_answer(struct answer *answer, bool skip)
{
	char what[256];

	if (!run_until(answer_holds, answer, skip))
		fail_msg("%s: nobody answers: %s", test.context, what_moves(what));
}

void wait_for_answer(struct answer *answer)
{
	run_to_answer(answer, true);
}

void wait_for(struct answer *answer, bool skip)
{
	run_to_answer(answer, skip);
	settle(skip);
	if (answer->calls != 1)
		fail_msg("%s: answered %u times", test.context, answer->calls);
}

struct either {
	const struct answer *answer;
	const bool *over;
};

static bool either_holds(const void *arg)
{
	const struct either *either = arg;

	return either->answer->calls > 0 || *either->over;
}

void wait_until(struct answer *answer, const bool *over)
{
	const struct either either = { answer, over };
	char what[256];

	if (!run_until(either_holds, &either, false))
		fail_msg("%s: nobody answers: %s", test.context, what_moves(what));
}

void wait_ok(struct answer *answer)
{
	wait_for(answer, false);
	if (answer->err.kind)
		fail_msg("%s", answer->err.message);
}

void wait_err(struct answer *answer, enum err_kind kind)
{
	wait_for(answer, false);
	if (answer->err.kind != kind)
		fail_msg("kind %d, not %d: %s", (int)answer->err.kind, (int)kind,
			answer->err.message);
}

/* ---- shorthands ----------------------------------------------------------------------------- */

struct box *box_named(const char *name)
{
	struct box *box = box_find(test.yard, name, NULL);

	if (!box)
		fail_msg("there is no box '%s'", name);
	return box;
}

bool box_is_here(const char *name)
{
	return box_find(test.yard, name, NULL) != NULL;
}

struct fake_process *process_of(const struct box *box)
{
	_cleanup_free_ char *id = xasprintf("%s%s", box->row.id, box->second ? SECOND_SUFFIX : "");

	return fake_find(id);
}

void assert_state(const char *box, enum box_state state)
{
	if (box_named(box)->state != state)
		fail_msg("box '%s' is %s, not %s", box, box_state_name(box_named(box)->state),
			box_state_name(state));
}

struct box *make_box(const char *name)
{
	const struct box_spec spec = { .name = name, .driver = "fake" };
	struct answer answer = ANSWER_INIT;

	box_create(test.yard, &spec, on_box, &answer);
	wait_ok(&answer);
	assert_state(name, BOX_RUNNING);
	return box_named(name);
}

void take_snapshot(const char *box, const char *name)
{
	const struct snapshot_spec spec = { .name = name, .cause = "request" };
	struct answer answer = ANSWER_INIT;

	box_snapshot(box_named(box), &spec, on_json, &answer);
	wait_ok(&answer);
	answer_done(&answer);
}

void hibernate(const char *box)
{
	struct answer answer = ANSWER_INIT;

	box_hibernate(box_named(box), "request", on_box, &answer);
	wait_ok(&answer);
	assert_state(box, BOX_HIBERNATED);
}

/* ---- a home --------------------------------------------------------------------------------- */

static void put(const char *name, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", test.home, name), *parent = xstrdup(path);

	*strrchr(parent, '/') = '\0';
	assert_int_equal(dir_make_all(parent, 0755, NULL), 0);
	assert_int_equal(file_write_atomic(AT_FDCWD, path, text, strlen(text), 0644, NULL), 0);
}

size_t count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

void yard_start(void)
{
	static const struct engine_ops *const drivers[] = { &engine_fake, NULL };
	struct err err = ERR_INIT;

	assert_null(test.yard);
	setenv("BOX_HOME", test.home, 1);
	setenv("BOX_RUN", test.run, 1);
	if (conf_load(&test.conf, &err) < 0 ||
		yard_open_with(test.loop, &test.conf, drivers, &test.yard, &err) < 0)
		fail_msg("%s", err.message);
}

void yard_end(void)
{
	yard_close(steal_ptr(&test.yard));
	/* What empties the trash outlives the daemon. */
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		continue;
	conf_done(&test.conf);
	test.conf = (struct conf){ 0 };
}

/* What a test that failed has left must not fail the next. */
static void abandon(void)
{
	abandoned = true;
	if (test.yard)
		yard_end();
	abandoned = false;
	fake_world_set(NULL);
	fake_states_unusual = false;
	fake_own_kernel = false;
	fake_upper_breaks = false;
	fake_tell_nothing();
	fake_on_step(NULL, NULL);
	if (test.loop)
		loop_free(steal_ptr(&test.loop));
	test.context = NULL;
}

int yard_setup(void **state)
{
	(void)state;
	abandon();
	snprintf(test.home, sizeof test.home, "%s/home%u", top, ++homes);
	snprintf(test.run, sizeof test.run, "%s/run%u", top, homes);
	test.loop = loop_new();
	test.fds = count_fds();
	put("images/aaaaaaaaaa/rootfs/etc/hostname", "x");
	put("images/aaaaaaaaaa/image.json",
		"{\"id\":\"aaaaaaaaaa\",\"name\":\"debian\",\"origin\":\"test\","
		"\"created_us\":1,\"size\":1,\"files\":1,\"packages\":[]}");
	yard_start();
	return 0;
}

static bool trash_holds(const void *arg)
{
	(void)arg;
	return pool_trash_is_empty(test.yard->pool) && is_settled();
}

int yard_teardown(void **state)
{
	(void)state;
	fake_tell_nothing();
	fake_on_step(NULL, NULL);
	fake_states_unusual = false;
	fake_own_kernel = false;
	fake_upper_breaks = false;
	check_empty("at the end");
	if (!run_until(trash_holds, NULL, true))
		fail_msg("what was thrown away stays");
	yard_end();
	if (fake_count() || count_fds() != test.fds)
		fail_msg("%zu processes and %zu more fds are left", fake_count(),
			count_fds() - test.fds);
	loop_free(steal_ptr(&test.loop));
	return tree_remove(AT_FDCWD, test.home, NULL);
}

static int do_nothing(void *arg, struct err *err)
{
	(void)arg;
	(void)err;
	return 0;
}

/* What a program opens once and keeps is open before anything is counted. */
static int warm_up(void)
{
	_cleanup_close_ int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	return netns_call(own, do_nothing, NULL, NULL);
}

int yard_group_setup(void **state)
{
	_cleanup_free_ char *conf = NULL;

	(void)state;
	/* Failures are what these tests are about; BOX_TEST_LOG=1 shows what is said of them. */
	log_open(getenv("BOX_TEST_LOG") ? STDERR_FILENO : open("/dev/null", O_WRONLY | O_CLOEXEC),
		LOG_LEVEL_INFO);
	signal(SIGPIPE, SIG_IGN); /* as the daemon does */
	snprintf(top, sizeof top, "/tmp/test-yard-XXXXXX");
	if (!mkdtemp(top) || unshare(CLONE_NEWNS) < 0 ||
		mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("yard", top, "tmpfs", 0, "size=4g") < 0 || warm_up() < 0)
		return -1;
	conf = xasprintf("%s/conf", top);
	setenv("BOX_CONF", conf, 1);
	return file_write_atomic(AT_FDCWD, conf, conf_text, strlen(conf_text), 0644, NULL);
}

int yard_group_teardown(void **state)
{
	(void)state;
	umount2(top, MNT_DETACH);
	return rmdir(top);
}

bool yard_is_gate(int argc, char **argv, int *ret)
{
	if (argc != 2 || strcmp(argv[1], "gate") != 0)
		return false;
	*ret = gate_main();
	return true;
}
