/* test_ssh_control_process.c - the process of a command over SSH: what it has, how it ends, its
 * terminal */
#include "base/file.h"
#include "ssh_control_fixture.h"
#include "sys/fdpass.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

/* ---- the process ---------------------------------------------------------------------------- */

struct seen {
	pid_t pid[8];
	size_t count;
	char *status;
};

static char *read_proc(const char *pid, const char *file)
{
	_cleanup_free_ char *path = xasprintf("/proc/%s/%s", pid, file);
	char *text = NULL;

	file_read(AT_FDCWD, path, 65536, &text, NULL, NULL);
	return text ? text : xstrdup("");
}

/* Control processes of parent, and what they made; others may run on the machine. */
static bool is_ours(const char *status, pid_t parent, const struct seen *seen)
{
	const char *line = strstr(status, "\nPPid:\t");
	pid_t its = line ? (pid_t)atoi(line + strlen("\nPPid:\t")) : 0;

	if (!strstr(status, "\nUid:\t10736"))
		return false;
	for (size_t i = 0; i < seen->count; i++)
		if (seen->pid[i] == its)
			return true;
	return its == parent;
}

static void look_below(struct seen *seen, pid_t parent)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;

	free(seen->status);
	*seen = (struct seen){ .count = 0 };
	while (dir && (entry = readdir(dir))) {
		_cleanup_free_ char *status = NULL;

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		status = read_proc(entry->d_name, "status");
		if (!is_ours(status, parent, seen) || seen->count == ARRAY_LEN(seen->pid))
			continue;
		seen->pid[seen->count++] = (pid_t)atoi(entry->d_name);
		free(seen->status);
		seen->status = steal_ptr(&status);
	}
	if (dir)
		closedir(dir);
}

static void look(struct seen *seen)
{
	look_below(seen, getpid());
}

static bool is_empty_root(pid_t pid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/root", (int)pid);
	DIR *dir = opendir(path);
	size_t count = 0;

	if (!dir)
		fail_msg("%s: %s", path, strerror(errno));
	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count == 2;
}

static void test_the_process_has_nothing(void **state)
{
	struct principal ann = login("create", "");
	struct seen seen = { 0 };
	_cleanup_free_ char *net = NULL;
	char pid[16];
	struct run run;

	(void)state;
	start(&run, &ann, "events -f", false);
	for (int i = 0; i < 400 && seen.count < 2; i++) {
		step(&run);
		look(&seen);
	}
	assert_int_equal(seen.count, 2); /* control and the command */
	assert_non_null(
		strstr(seen.status, "\nUid:\t1073610752\t1073610752\t1073610752\t1073610752"));
	assert_non_null(strstr(seen.status, "\nCapEff:\t0000000000000000\n"));
	assert_non_null(strstr(seen.status, "\nCapPrm:\t0000000000000000\n"));
	assert_non_null(strstr(seen.status, "\nCapBnd:\t0000000000000000\n"));
	assert_non_null(strstr(seen.status, "\nNoNewPrivs:\t1\n"));
	assert_non_null(strstr(seen.status, "\nSeccomp:\t2\n"));
	for (size_t i = 0; i < seen.count; i++)
		assert_true(is_empty_root(seen.pid[i]));
	snprintf(pid, sizeof pid, "%d", (int)seen.pid[0]);
	net = read_proc(pid, "net/dev");
	assert_non_null(strstr(net, "lo:"));
	assert_null(strstr(net, "eth"));
	/* The connection ends: so do the two. */
	control_hang_up(run.control);
	for (int i = 0; i < 800 && seen.count; i++) {
		step(&run);
		look(&seen);
	}
	assert_int_equal(seen.count, 0);
	assert_false(run.over);
	free(seen.status);
	run_done(&run);
}

static void test_signals_end_a_command(void **state)
{
	struct principal ann = login("create", "");
	struct run run;

	(void)state;
	/* Also one that comes before the command has begun. */
	for (int steps = 0; steps <= 40; steps += 40) {
		start(&run, &ann, "events -f", false);
		for (int i = 0; i < steps; i++)
			step(&run);
		control_signal(run.control, "WINCH"); /* of no use */
		control_signal(run.control, "TERM");
		wait_for_end(&run);
		assert_int_equal(run.code, 128 + SIGTERM);
		run_done(&run);
	}
}

static void test_too_many_commands_are_refused(void **state)
{
	struct principal ann = login("create", "");
	struct run runs[CONTROLS_OF_LOGIN_MAX + 1];
	struct err err = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < CONTROLS_OF_LOGIN_MAX; i++)
		start(&runs[i], &ann, "events -f", false);
	assert_int_equal(try_start(&runs[CONTROLS_OF_LOGIN_MAX], &ann, "ls", false, &err), -1);
	assert_int_equal(err.kind, ERR_LIMIT);
	for (size_t i = 0; i < CONTROLS_OF_LOGIN_MAX; i++) {
		control_signal(runs[i].control, "KILL");
		wait_for_end(&runs[i]);
		assert_int_equal(runs[i].signal, SIGKILL);
		run_done(&runs[i]);
	}
}

/* Plays a daemon that is killed: the other end of a command's stdin is somebody else's, so that its
 * end is not what ends the command. */
static _Noreturn void be_daemon(int sock)
{
	const char *const words[] = { "policy", "check", "-", NULL };
	const struct principal nobody = { .kind = PRINCIPAL_NOBODY };
	const struct control_spec spec = { .principal = &nobody, .words = words, .on_end = on_end };
	struct controls *all = controls_new(loop_new(), NULL, getenv("BOX_TEST_PROGRAM"));
	struct control_ends ends;
	struct control *control;

	if (control_start(all, &spec, &control, &ends, NULL) < 0 ||
		fdpass_send(sock, "x", 1, &ends.data, 1, 0) != 1)
		_exit(1);
	for (;;)
		pause();
}

static bool any_lives(const struct seen *seen)
{
	for (size_t i = 0; i < seen->count; i++)
		if (kill(seen->pid[i], 0) == 0)
			return true;
	return false;
}

static void test_a_command_ends_with_the_daemon(void **state)
{
	struct seen seen = { 0 };
	struct fdpass pass;
	int pair[2], data = -1;
	char byte;
	pid_t daemon;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	daemon = fork();
	if (daemon == 0)
		be_daemon(pair[1]);
	assert_int_equal(fdpass_receive(pair[0], &byte, 1, &data, 1, 0, &pass), 1);
	for (int i = 0; i < 400 && seen.count < 2; i++) {
		usleep(10000);
		look_below(&seen, daemon);
	}
	assert_int_equal(seen.count, 2);
	kill(daemon, SIGKILL);
	waitpid(daemon, NULL, 0);
	for (int i = 0; i < 400 && any_lives(&seen); i++)
		usleep(10000);
	assert_false(any_lives(&seen));
	free(seen.status);
	close(data);
	close(pair[0]);
	close(pair[1]);
}

static void test_nobody_else_starts_it(void **state)
{
	_cleanup_free_ char *line = xasprintf(
		"%s control --uid 65534 -- ls >/dev/null 2>&1", getenv("BOX_TEST_PROGRAM"));

	(void)state;
	assert_int_not_equal(system(line), 0); /* NOLINT: our own words */
}

/* ---- a terminal ----------------------------------------------------------------------------- */

static void wait_for_text(struct run *run, const char *text)
{
	for (int ms = 0; ms < PATIENCE_MS && !run->over; ms += 5) {
		step(run);
		if (strstr(buf_str(&run->out), text))
			return;
	}
	fail_msg("no '%s' in '%s' '%s'", text, buf_str(&run->out), buf_str(&run->errors));
}

static void type(struct run *run, const char *text)
{
	assert_int_equal(write(run->ends.data, text, strlen(text)), strlen(text));
}

static void test_a_terminal_gets_a_menu(void **state)
{
	struct principal ann = login("create", "");
	struct run run;

	(void)state;
	start(&run, &ann, NULL, true);
	assert_int_equal(run.ends.errors, -1);
	wait_for_text(&run, "box> ");
	type(&run, "new ada\r");
	wait_for_text(&run, "ada\r\n\r\033[Kbox> ");
	type(&run, "ls 'x\r");
	wait_for_text(&run, "not closed");
	type(&run, "\x03show 'ada' --json\r");
	wait_for_text(&run, "\"owner\":\"ann\"");
	type(&run, "show eve\r");
	wait_for_text(&run, "no box 'eve'");
	type(&run, "exit\r");
	wait_for_end(&run);
	assert_int_equal(run.code, 66); /* of the last command */
	run_done(&run);
}

static void forget(struct run *run)
{
	step(run);
	run->out.len = 0;
}

static void test_the_menu_completes_and_edits(void **state)
{
	static const struct {
		const char *keys, *line;
	} cases[] = {
		{ "snap\t", "snapshot " },
		{ "wor\tl\t", "workspace ls " },
		{ "policy ex\t", "policy explain " },
		{ "show a\t", "show ada " },
		{ "show ada --js\t", "show ada --json " },
		{ "new --image de\t", "new --image debian " },
		{ "new --pull m\t", "new --pull missing " },
		{ "cp - a\t", "cp - ada:" },
		{ "help time\t", "help timeline " },
		{ "s\t", "stats  snapshot\r\n" }, /* several: all are shown */
		{ "ser\tx", "serx" },		  /* not over ssh */
		{ "exec ada -- l\tx", "exec ada -- lx" },
		{ "a\xc3\xa4\x7f", "\033[Kbox> a" },
		{ "show ada\x17", "\033[Kbox> show " },
		{ "\x1b[A", "\033[Kbox> ls --names" },
		{ "\x1b[A\x1b[A\x1b[B", "\033[Kbox> ls --names" },
	};
	struct principal ann = login("create", "");
	struct run run;

	(void)state;
	expect(&ann, "new ada", NULL, 0, "ada");
	start(&run, &ann, NULL, true);
	wait_for_text(&run, "box> ");
	type(&run, "version\rls --names\r");
	wait_for_text(&run, "\r\nada\r\n");
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		forget(&run);
		type(&run, cases[i].keys);
		wait_for_text(&run, cases[i].line);
		forget(&run);
		type(&run, "\x15"); /* the line goes */
		wait_for_text(&run, "box> ");
	}
	type(&run, "\x04");
	wait_for_end(&run);
	assert_int_equal(run.code, 0);
	run_done(&run);
}

static void test_the_menu_ends_with_its_connection(void **state)
{
	struct principal ann = login("create", "");
	struct seen seen = { .count = 1 };
	struct run run;

	(void)state;
	start(&run, &ann, NULL, true);
	wait_for_text(&run, "box> ");
	control_hang_up(run.control); /* the other copy of the terminal's master stays */
	for (int i = 0; i < 400 && seen.count; i++) {
		step(&run);
		look(&seen);
	}
	assert_int_equal(seen.count, 0);
	free(seen.status);
	run_done(&run);
}

static void test_a_terminal_that_hangs_up_ends_all(void **state)
{
	struct principal ann = login("create", "");
	struct seen seen = { 0 };
	struct run run;

	(void)state;
	start(&run, &ann, "events -f", true);
	for (int i = 0; i < 400 && seen.count < 2; i++) {
		step(&run);
		look(&seen);
	}
	control_resize(run.control, 50, 100);
	control_hang_up(run.control);
	close(run.ends.data);
	run.ends.data = -1;
	for (int i = 0; i < 800 && seen.count; i++) {
		step(&run);
		look(&seen);
	}
	assert_int_equal(seen.count, 0);
	free(seen.status);
	run_done(&run);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CONTROL_TEST(test_the_process_has_nothing),
		CONTROL_TEST(test_signals_end_a_command),
		CONTROL_TEST(test_too_many_commands_are_refused),
		cmocka_unit_test(test_a_command_ends_with_the_daemon),
		cmocka_unit_test(test_nobody_else_starts_it),
		CONTROL_TEST(test_a_terminal_gets_a_menu),
		CONTROL_TEST(test_the_menu_completes_and_edits),
		CONTROL_TEST(test_the_menu_ends_with_its_connection),
		CONTROL_TEST(test_a_terminal_that_hangs_up_ends_all),
	};
	int code;

	if (yard_is_gate(argc, argv, &code))
		return code;
	return cmocka_run_group_tests(tests, yard_group_setup, yard_group_teardown);
}
