/* ssh_control_fixture.h - a yard with an API, a login by key, and a door's side of commands
 *
 * The commands are run by the real program, whose path is in BOX_TEST_PROGRAM. */
#pragma once
#include "api/api.h"
#include "auth/keys.h"
#include "base/strv.h"
#include "base/text.h"
#include "core/login_name.h"
#include "ssh/control.h"
#include "sshkey/sshkey.h"
#include "sshkey_samples.h"
#include "yard_fixture.h"
#include <fcntl.h>
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
