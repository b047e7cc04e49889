/* ram_fixture.h - machines without QEMU: a stand-in with the real library in it */
#pragma once
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/strv.h"
#include "engine/vm/ram_internal.h"
#include "loop/loop.h"
#include "sys/procfd.h"
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
// clang-format on
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { MIB = 1 << 20, PAGES_PER_MIB = MIB / RAM_PAGE };

static struct {
	char dir[64];
	char *library;
	struct loop *loop;
	struct ram_store *store;
	bool done, ready;
	struct err err; /* of what was waited for */
	bool failed;
	char **stack; /* what a pass or a merge gave; held */
	struct ram_pass_result result;
} test;
static struct err err;

#define OK(call)                                     \
	do {                                         \
		if ((call) < 0)                      \
			fail_msg("%s", err.message); \
	} while (0)

struct machine {
	pid_t pid;
	int pidfd, control;
	uint64_t bytes;
	char path[96];
	struct ram_link *link;
	bool lost;
	char **stack;
};

static inline void wait_for(bool *flag)
{
	int64_t limit = clock_mono_us() + 60 * 1000000;

	while (!*flag && clock_mono_us() < limit)
		loop_run(test.loop);
	assert_true(*flag);
}

static inline void on_done(const struct err *why, void *arg)
{
	(void)arg;
	test.failed = why != NULL;
	if (why)
		test.err = *why;
	test.done = true;
	loop_stop(test.loop);
}

static inline void finish(void)
{
	wait_for(&test.done);
	test.done = false;
	if (test.failed)
		fail_msg("%s", test.err.message);
}

static inline void finish_badly(enum err_kind kind, const char *text)
{
	wait_for(&test.done);
	test.done = false;
	assert_true(test.failed);
	if (test.err.kind != kind || !strstr(test.err.message, text))
		fail_msg("%d: %s", test.err.kind, test.err.message);
}

/* ---- machines -------------------------------------------------------------------------------- */

static inline void on_lost(struct ram_link *link, const struct err *why, void *arg)
{
	struct machine *machine = arg;

	(void)link;
	test.err = *why;
	machine->lost = true;
	loop_stop(test.loop);
}

static inline uint64_t tell(const struct machine *machine, const char *text)
{
	uint64_t answer;

	assert_int_equal(send(machine->control, text, strlen(text), MSG_NOSIGNAL), strlen(text));
	assert_int_equal(recv(machine->control, &answer, sizeof answer, 0), sizeof answer);
	return answer;
}

#define tellf(machine, ...)                                 \
	({                                                  \
		char text_[128];                            \
		snprintf(text_, sizeof text_, __VA_ARGS__); \
		tell((machine), text_);                     \
	})

static inline void run_stand_in(
	const struct machine *machine, int listener, int control, int disk, const char *option)
{
	char preload[128], number[32], bytes[32];
	char *program = getenv("BOX_TEST_MACHINE");
	char *env[] = { preload, number, NULL };
	char *argv[] = { program, bytes, (char *)option, NULL };

	if (!program)
		_exit(127);
	/* High numbers first: 3 and 4 may be in use. */
	listener = fcntl(listener, F_DUPFD, 20);
	control = fcntl(control, F_DUPFD, 20);
	disk = disk < 0 ? -1 : fcntl(disk, F_DUPFD, 20);
	dup2(control, 3);
	if (disk >= 0)
		dup2(disk, 4);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(preload, sizeof preload, "LD_PRELOAD=%s", test.library);
	snprintf(number, sizeof number, RAM_LIBRARY_VARIABLE "=%d", listener);
	snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)machine->bytes);
	execve(program, argv, env);
	_exit(127);
}

static inline void machine_connect(struct machine *machine)
{
	int fd;

	OK(ram_connect(machine->path, &fd, &err));
	machine->link = ram_link_new(test.loop, fd, machine->pid, machine->bytes, on_lost, machine);
}

static inline void machine_start(
	struct machine *machine, uint64_t mib, int disk, const char *option)
{
	static unsigned number;
	int pair[2], listener;

	*machine = (struct machine){ .bytes = mib * MIB };
	snprintf(machine->path, sizeof machine->path, "%s/ram%u", test.dir, number++);
	OK(ram_listen(machine->path, &listener, &err));
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	machine->pid = fork();
	if (machine->pid == 0)
		run_stand_in(machine, listener, pair[1], disk, option);
	close(listener);
	close(pair[1]);
	machine->control = pair[0];
	OK(procfd_open(machine->pid, &machine->pidfd, &err));
	tell(machine, "ready");
	machine_connect(machine);
}

static inline void machine_map(struct machine *machine, char **stack)
{
	ram_link_map(machine->link, test.store, (const char *const *)stack, on_done, NULL);
	finish();
	ram_store_hold(test.store, (const char *const *)stack);
	machine->stack = stack ? strv_copy((const char *const *)stack) : xnewn(char *, 1);
}

static inline void machine_end(struct machine *machine)
{
	ram_link_free(machine->link);
	kill(machine->pid, SIGKILL);
	waitpid(machine->pid, NULL, 0);
	close(machine->pidfd);
	close(machine->control);
	if (machine->stack)
		ram_store_release(test.store, (const char *const *)machine->stack);
	strv_free(machine->stack);
}

/* A machine as it is before its first boot, or from a stack. */
static inline void machine_new(struct machine *machine, uint64_t mib, char **stack)
{
	machine_start(machine, mib, -1, NULL);
	machine_map(machine, stack);
}

/* ---- captures -------------------------------------------------------------------------------- */

static inline void on_pass_ready(struct ram_pass *pass, void *arg)
{
	(void)pass;
	(void)arg;
	test.ready = true;
	loop_stop(test.loop);
}

static inline void on_pass_done(struct ram_pass *pass, const struct ram_pass_result *result,
	const struct err *why, void *arg)
{
	(void)pass;
	if (result) {
		test.result = *result;
		test.stack = strv_copy(result->stack);
	}
	on_done(why, arg);
}

static const struct ram_pass_ops pass_ops = { on_pass_ready, on_pass_done };

static inline struct ram_pass *pass_begin(struct machine *machine, int disk)
{
	struct ram_pass_spec spec = { .link = machine->link,
		.pidfd = machine->pidfd,
		.stack = (const char *const *)machine->stack,
		.disk = disk };
	struct ram_pass *pass;

	test.ready = false;
	OK(ram_pass_start(test.store, &spec, &pass_ops, NULL, &pass, &err));
	return pass;
}

/* The hold that the result had becomes the machine's. */
static inline void take_stack(struct machine *machine)
{
	ram_store_release(test.store, (const char *const *)machine->stack);
	strv_free(machine->stack);
	machine->stack = steal_ptr(&test.stack);
}

/* The whole sequence of a capture; the hash of the machine as it stood still. */
static inline uint64_t machine_capture(struct machine *machine)
{
	struct ram_pass *pass = pass_begin(machine, -1);
	uint64_t hash;

	wait_for(&test.ready);
	tell(machine, "stop");
	hash = tell(machine, "hash");
	ram_pass_last(pass);
	finish();
	take_stack(machine);
	if (test.result.layer) {
		ram_link_add(machine->link, test.store, (const char *const *)machine->stack,
			on_done, NULL);
		finish();
	}
	assert_true(tell(machine, "hash") == hash);
	tell(machine, "go");
	ram_pass_free(pass);
	return hash;
}

static inline void check_clone(char **stack, uint64_t mib, uint64_t hash)
{
	struct machine clone;

	machine_new(&clone, mib, stack);
	assert_true(tell(&clone, "hash") == hash);
	machine_end(&clone);
}

static inline unsigned files_in_store(void)
{
	unsigned count = 0;
	char *command = xasprintf("ls -A %s/memory | wc -l", test.dir);
	FILE *out = popen(command, "r");

	assert_int_equal(fscanf(out, "%u", &count), 1);
	pclose(out);
	free(command);
	return count;
}

/* ---- the store ------------------------------------------------------------------------------- */

static inline int set_up(void **state)
{
	(void)state;
	memset(&test, 0, sizeof test);
	snprintf(test.dir, sizeof test.dir, "/var/tmp/box-ram-XXXXXX");
	if (!mkdtemp(test.dir))
		return -1;
	test.loop = loop_new();
	OK(ram_library_write(test.dir, &test.library, &err));
	OK(ram_store_open(test.loop, test.dir, &test.store, &err));
	return 0;
}

static inline int tear_down(void **state)
{
	(void)state;
	ram_store_close(test.store);
	loop_free(test.loop);
	strv_free(test.stack);
	free(test.library);
	return tree_remove(AT_FDCWD, test.dir, NULL);
}
