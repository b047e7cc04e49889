/* test_sandbox.c - what a process of ours cannot do after sandbox_enter */
#include "sys/sandbox.h"
#include "base/alloc.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { SOMEBODY = 0x3ffe1234 };

/* Runs check in a process in the sandbox; 0, or the line that failed. */
static int inside(unsigned allow, int (*check)(void))
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		struct err err = ERR_INIT;

		if (sandbox_enter(SOMEBODY, allow, &err) < 0) {
			fprintf(stderr, "%s\n", err.message);
			_exit(255);
		}
		_exit(check());
	}
	assert_true(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 254;
}

#define FAIL_UNLESS(condition)                                             \
	do                                                                 \
		if (!(condition)) {                                        \
			fprintf(stderr, "%d: %s\n", __LINE__, #condition); \
			return 1;                                          \
		}                                                          \
	while (0)

static int check_nothing(void)
{
	char *const words[] = { (char *)"true", NULL };

	FAIL_UNLESS(getuid() == SOMEBODY && geteuid() == SOMEBODY && getgid() == SOMEBODY);
	FAIL_UNLESS(getgroups(0, NULL) == 0);
	FAIL_UNLESS(setuid(0) < 0);
	FAIL_UNLESS(open("/", O_RDONLY) < 0);
	FAIL_UNLESS(access("/etc", F_OK) < 0 && errno == ENOENT);
	FAIL_UNLESS(access("/proc", F_OK) < 0 && errno == ENOENT);
	FAIL_UNLESS(execv("/bin/true", words) < 0 && errno == EPERM);
	FAIL_UNLESS(unshare(CLONE_NEWUSER) < 0);
	FAIL_UNLESS(ptrace(PTRACE_TRACEME) < 0);
	FAIL_UNLESS(syscall(SYS_clone3, NULL, 0) < 0);
	return 0;
}

static int check_no_sockets(void)
{
	FAIL_UNLESS(check_nothing() == 0);
	for (int family = 0; family < AF_MAX; family++)
		FAIL_UNLESS(socket(family, SOCK_STREAM, 0) < 0);
	return 0;
}

static int check_no_processes(void)
{
	FAIL_UNLESS(check_no_sockets() == 0);
	FAIL_UNLESS(kill(getppid(), 0) < 0 && errno == EPERM);
	FAIL_UNLESS(fork() < 0);
	FAIL_UNLESS(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) < 0);
	return 0;
}

static int check_processes(void)
{
	int status = 0;
	pid_t pid = fork();

	FAIL_UNLESS(pid >= 0);
	if (pid == 0)
		_exit(check_no_sockets() == 0 ? 7 : 8);
	FAIL_UNLESS(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7);
	FAIL_UNLESS(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0) < 0);
	return check_no_sockets();
}

static int check_inet(void)
{
	FAIL_UNLESS(check_nothing() == 0);
	FAIL_UNLESS(socket(AF_INET, SOCK_STREAM, 0) >= 0);
	FAIL_UNLESS(socket(AF_UNIX, SOCK_STREAM, 0) < 0);
	FAIL_UNLESS(socket(AF_NETLINK, SOCK_RAW, 0) < 0);
	FAIL_UNLESS(fork() < 0);
	return 0;
}

static void test_a_process_in_the_sandbox_can_do_nothing(void **state)
{
	(void)state;
	assert_int_equal(inside(0, check_no_processes), 0);
}

static void test_what_is_allowed_is_all_there_is(void **state)
{
	(void)state;
	assert_int_equal(inside(SANDBOX_FORK, check_processes), 0);
	assert_int_equal(inside(SANDBOX_INET, check_inet), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_process_in_the_sandbox_can_do_nothing),
		cmocka_unit_test(test_what_is_allowed_is_all_there_is),
	};

	if (geteuid() != 0) {
		puts("SKIPPED: giving up privileges needs root");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
