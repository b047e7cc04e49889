/* test_ssh_control.c - commands over SSH: our own command line as a process that can do nothing but
 * ask the API as its principal */
#include "api/api.h"
#include "auth/keys.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/strv.h"
#include "base/text.h"
#include "core/login_name.h"
#include "ssh/control.h"
#include "sshkey/sshkey.h"
#include "sshkey_samples.h"
#include "yard_fixture.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

enum { PATIENCE_MS = 20000 };

static struct auth *auth;
static struct api *api;
static struct controls *controls;

static void on_shutdown(bool purge, bool hibernate, void *arg)
{
	(void)purge;
	(void)hibernate;
	(void)arg;
}

static int set_up(void **state)
{
	struct err err = ERR_INIT;

	if (yard_setup(state) < 0)
		return -1;
	auth = auth_new(test.yard);
	if (api_open(test.yard, auth, on_shutdown, NULL, &api, &err) < 0)
		fail_msg("%s", err.message);
	controls = controls_new(test.loop, auth, getenv("BOX_TEST_PROGRAM"));
	return 0;
}

static int tear_down(void **state)
{
	controls_free(controls);
	api_close(api);
	auth_free(auth);
	return yard_teardown(state);
}

#define CONTROL_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

static struct principal login(const char *role, const char *box)
{
	char fingerprint[SSHKEY_FINGERPRINT_SIZE];
	_cleanup_free_ uint8_t *blob = NULL;
	_cleanup_json_ json_t *added = NULL;
	struct principal principal = { 0 };
	struct auth_ssh_ask ask = { .user = "box", .peer = "", .proven = true };
	struct key_row row = { .name = (char *)"laptop",
		.owner = (char *)"ann",
		.box = (char *)box,
		.key = (char *)SAMPLE_USER,
		.type = (char *)"ssh-ed25519",
		.fingerprint = fingerprint };
	struct err err = ERR_INIT;

	assert_int_equal(
		base64_decode(SAMPLE_USER, strlen(SAMPLE_USER), &blob, &ask.key_len, NULL), 0);
	ask.key = blob;
	sshkey_fingerprint(blob, ask.key_len, fingerprint);
	assert_int_equal(role_from_name(role, &row.scopes, NULL), 0);
	if (store_key_add(yard_get_store(test.yard), &row, &added, &err) < 0 ||
		auth_ssh_key(auth, &ask, &principal, &err) < 0)
		fail_msg("%s", err.message);
	return principal;
}

/* ---- a door's side of a command ------------------------------------------------------------- */

struct run {
	struct control *control;
	struct control_ends ends;
	bool over;
	int code, signal;
	struct buf out, errors;
};

static void on_end(int code, int number, void *arg)
{
	struct run *run = arg;

	run->over = true;
	run->control = NULL;
	run->code = code;
	run->signal = number;
}

static void drain(int fd, struct buf *out)
{
	char data[4096];
	ssize_t got;

	if (fd < 0)
		return;
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	while ((got = read(fd, data, sizeof data)) > 0)
		buf_add(out, data, (size_t)got);
}

static void step(struct run *run)
{
	yard_run(5);
	drain(run->ends.data, &run->out);
	drain(run->ends.errors, &run->errors);
}

static int try_start(struct run *run, const struct principal *principal, const char *line, bool tty,
	struct err *err)
{
	const struct login_name control = { .kind = LOGIN_CONTROL };
	_cleanup_strv_ char **words = NULL;
	struct control_spec spec = { .principal = principal,
		.login = &test,
		.tty = tty,
		.term = "xterm",
		.rows = 24,
		.cols = 80,
		.on_end = on_end,
		.arg = run };

	*run = (struct run){ .ends = { -1, -1 }, .out = BUF_INIT, .errors = BUF_INIT };
	assert_int_equal(control_words(&control, line, tty, &words, err), 0);
	spec.words = (const char *const *)words;
	return control_start(controls, &spec, &run->control, &run->ends, err);
}

static void start(struct run *run, const struct principal *principal, const char *line, bool tty)
{
	struct err err = ERR_INIT;

	if (try_start(run, principal, line, tty, &err) < 0)
		fail_msg("%s", err.message);
}

static void run_done(struct run *run)
{
	if (run->ends.data >= 0)
		close(run->ends.data);
	if (run->ends.errors >= 0)
		close(run->ends.errors);
	buf_done(&run->out);
	buf_done(&run->errors);
}

static void wait_for_end(struct run *run)
{
	for (int ms = 0; !run->over && ms < PATIENCE_MS; ms += 5)
		step(run);
	if (!run->over)
		fail_msg("does not end: %s%s", buf_str(&run->out), buf_str(&run->errors));
	step(run);
}

static void wait_for_text(struct run *run, const char *text)
{
	for (int ms = 0; ms < PATIENCE_MS && !run->over; ms += 5) {
		step(run);
		if (strstr(buf_str(&run->out), text))
			return;
	}
	fail_msg("no '%s' in '%s' '%s'", text, buf_str(&run->out), buf_str(&run->errors));
}

/* Runs the line to its end with input; what it printed must have text in it. */
static void expect(const struct principal *principal, const char *line, const char *input, int code,
	const char *text)
{
	struct run run;

	start(&run, principal, line, false);
	if (input)
		assert_int_equal(write(run.ends.data, input, strlen(input)), strlen(input));
	shutdown(run.ends.data, SHUT_WR);
	wait_for_end(&run);
	if (run.signal || run.code != code ||
		(!strstr(buf_str(&run.out), text) && !strstr(buf_str(&run.errors), text)))
		fail_msg("'%s' ended with %d (signal %d), not %d: '%s' '%s' has no '%s'", line,
			run.code, run.signal, code, buf_str(&run.out), buf_str(&run.errors), text);
	run_done(&run);
}

/* ---- words ---------------------------------------------------------------------------------- */

static void test_logins_are_words(void **state)
{
	static const struct {
		const char *login, *command;
		bool tty;
		const char *words[10];
	} cases[] = {
		{ "box", NULL, true, { NULL } },
		{ "box", "ls --json", false, { "ls", "--json" } },
		{ "box", "exec ada -- sh -c 'a b'", false,
			{ "exec", "ada", "--", "sh", "-c", "a b" } },
		{ "new", NULL, true, { "enter", "new" } },
		{ "new", "make 'x y'", false, { "enter", "new", "--", "make 'x y'" } },
		{ "fork+ada", NULL, true, { "enter", "fork", "ada" } },
		{ "fork+ada", "--json", false, { "enter", "fork", "ada", "--", "--json" } },
		{ "try+ada", "a; b", false, { "try", "-i", "ada", "--", "/bin/sh", "-c", "a; b" } },
		{ "try+ada", "a", true, { "try", "-it", "ada", "--", "/bin/sh", "-c", "a" } },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		_cleanup_strv_ char **words = NULL;
		struct login_name name;
		struct err err = ERR_INIT;

		assert_int_equal(
			login_name_parse(cases[i].login, strlen(cases[i].login), &name, &err), 0);
		assert_int_equal(
			control_words(&name, cases[i].command, cases[i].tty, &words, &err), 0);
		for (size_t j = 0; cases[i].words[j]; j++) {
			assert_non_null(words[j]);
			assert_string_equal(words[j], cases[i].words[j]);
		}
		assert_int_equal(strv_len((const char *const *)words),
			strv_len((const char *const *)cases[i].words));
	}
}

static void test_logins_without_meaning_are_refused(void **state)
{
	const struct login_name box = { .kind = LOGIN_BOX, .box = "ada" };
	const struct login_name try = { .kind = LOGIN_TRY, .box = "ada" };
	const struct login_name control = { .kind = LOGIN_CONTROL };
	char **words = NULL;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(control_words(&box, "ls", false, &words, &err), -1);
	assert_int_equal(control_words(&try, NULL, true, &words, &err), -1);
	assert_int_equal(control_words(&control, "ls 'a", false, &words, &err), -1);
	assert_null(words);
}

/* ---- commands ------------------------------------------------------------------------------- */

static void test_commands_work_as_the_principal(void **state)
{
	struct principal ann = login("create", "");

	(void)state;
	make_box("ours"); /* the daemon's own */
	expect(&ann, "ls --names", NULL, 0, "");
	expect(&ann, "new ada", NULL, 0, "ada");
	expect(&ann, "box ls --names", NULL, 0, "ada");
	expect(&ann, "show ours", NULL, 66, "no box 'ours'");
	expect(&ann, "show ada --json", NULL, 0, "\"owner\":\"ann\"");
	expect(&ann, "token create x", NULL, 77, "role");
	expect(&ann, "frok ada", NULL, 64, "did you mean 'fork'");
	expect(&ann, "rm -f ada", NULL, 0, "ada");
}

static void test_help_lists_what_works_over_ssh(void **state)
{
	struct principal ann = login("create", "");
	struct run run;

	(void)state;
	start(&run, &ann, NULL, false);
	shutdown(run.ends.data, SHUT_WR);
	wait_for_end(&run);
	assert_int_equal(run.code, 0);
	assert_non_null(strstr(buf_str(&run.out), "\n  snapshot "));
	assert_null(strstr(buf_str(&run.out), "\n  serve "));
	assert_null(strstr(buf_str(&run.out), "\n  context "));
	run_done(&run);
}

static void test_a_role_is_enforced(void **state)
{
	struct principal ann = login("read", "");

	(void)state;
	expect(&ann, "ls", NULL, 0, "");
	expect(&ann, "new ada", NULL, 77, "the role of the key laptop does not allow this");
}

static void test_a_bound_key_sees_its_box_alone(void **state)
{
	struct principal ann = login("create", ""), bound = ann;

	(void)state;
	expect(&ann, "new ada", NULL, 0, "ada");
	expect(&ann, "new bob", NULL, 0, "bob");
	{
		_cleanup_json_ json_t *removed = NULL;

		assert_int_equal(store_key_remove(yard_get_store(test.yard), SAMPLE_FINGERPRINT,
					 &removed, NULL),
			0);
	}
	/* A removed key opens nothing, whatever is still attached to it. */
	expect(&ann, "ls", NULL, 77, "not valid any more");
	bound = login("exec", "ada");
	expect(&bound, "ls --names", NULL, 0, "ada\n");
	expect(&bound, "show bob", NULL, 66, "no box 'bob'");
	expect(&bound, "new eve", NULL, 77, "role");
	expect(&bound, "rm -f ada", NULL, 77, "role");
}

static void test_files_come_by_stdin_and_others_are_refused(void **state)
{
	static const char *const refused[] = { "cp /etc/passwd ada:/x", "cp ada:/x .",
		"new --copy . eve", "new --mount /etc:/x eve", "image import /x.tar", "up", "down",
		"attack", "bench", "serve", "context ls", "policy edit ada",
		"policy check /etc/passwd", "policy set ada x.yaml", "workspace get ada",
		"image export debian -o x", "gate", "control", "audit --verify --folder /",
		"image build -f Boxfile" };
	struct principal ann = login("create", "");

	(void)state;
	expect(&ann, "new ada", NULL, 0, "ada");
	for (size_t i = 0; i < ARRAY_LEN(refused); i++)
		expect(&ann, refused[i], NULL, 69, "over ssh");
	expect(&ann, "policy check -", "version: 1\nallow: x\n", 64, "");
	expect(&ann, "policy set ada -", "preset: none\n", 0, "");
	expect(&ann, "policy show ada", NULL, 0, "none");
}

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

static void look(struct seen *seen)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;

	free(seen->status);
	*seen = (struct seen){ .count = 0 };
	while ((entry = readdir(dir))) {
		_cleanup_free_ char *status = NULL;

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		status = read_proc(entry->d_name, "status");
		/* users of control processes */
		if (!strstr(status, "\nUid:\t10736") || seen->count == ARRAY_LEN(seen->pid))
			continue;
		seen->pid[seen->count++] = (pid_t)atoi(entry->d_name);
		free(seen->status);
		seen->status = steal_ptr(&status);
	}
	closedir(dir);
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

static void test_nobody_else_starts_it(void **state)
{
	_cleanup_free_ char *line = xasprintf(
		"%s control --uid 65534 -- ls >/dev/null 2>&1", getenv("BOX_TEST_PROGRAM"));

	(void)state;
	assert_int_not_equal(system(line), 0); /* NOLINT: our own words */
}

/* ---- a terminal ----------------------------------------------------------------------------- */

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
		cmocka_unit_test(test_logins_are_words),
		cmocka_unit_test(test_logins_without_meaning_are_refused),
		CONTROL_TEST(test_commands_work_as_the_principal),
		CONTROL_TEST(test_help_lists_what_works_over_ssh),
		CONTROL_TEST(test_a_role_is_enforced),
		CONTROL_TEST(test_a_bound_key_sees_its_box_alone),
		CONTROL_TEST(test_files_come_by_stdin_and_others_are_refused),
		CONTROL_TEST(test_the_process_has_nothing),
		CONTROL_TEST(test_signals_end_a_command),
		CONTROL_TEST(test_too_many_commands_are_refused),
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
