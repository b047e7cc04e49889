/* try.c - try: a snapshot, a program, and a rollback if it fails
 *
 * Everything uses the public API. Once the snapshot exists, nothing ends this command before the
 * decision: a signal goes to the program, and one that ends the session (a second Ctrl-C) rolls the
 * box back. Before that, a signal waits until the snapshot is made, which the daemon does in any
 * case: otherwise nobody would know its id, to remove it. */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/exec_internal.h"
#include "cli/session.h"
#include "cli/timeline_tree.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

struct trial {
	struct cli *cli;
	const char *box;
	json_t *snapshot;
	bool exited;   /* the program's end was seen */
	bool detached; /* by the detach keys */
};

static const char *snapshot_name(const struct trial *trial)
{
	const char *name = json_str(trial->snapshot, "name");

	return *name ? name : json_str(trial->snapshot, "id");
}

/* ---- before --------------------------------------------------------------------------------- */

static volatile sig_atomic_t stopped_by; /* a signal while the snapshot is made; 0: none */
static const char told_once[] =
	"\nbox: interrupted; the snapshot that is being made is waited for, to remove it\n";
static char told_twice[256];

static void on_stop(int number)
{
	const char *text = stopped_by ? told_twice : told_once;

	(void)!write(STDERR_FILENO, text, strlen(text));
	if (stopped_by) {
		signal(number, SIG_DFL);
		raise(number);
	}
	stopped_by = number;
}

static int take_snapshot(struct trial *trial, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/snapshots", trial->box);
	const char *name = cli_get(trial->cli, "name");
	json_t *body = json_pack(
		"{s:s, s:b}", "cause", "try", "disk_only", cli_has(trial->cli, "disk-only"));

	if (name)
		json_object_set_new(body, "name", json_string(name));
	return client_call(trial->cli->client, "POST", path, body, &trial->snapshot, err);
}

/* Removes a snapshot that is not needed. */
static int drop_snapshot(struct trial *trial)
{
	const char *id = json_str(trial->snapshot, "id");
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/snapshots/%s", trial->box, id);
	struct err err = ERR_INIT;

	if (client_call(trial->cli->client, "DELETE", path, NULL, NULL, &err) < 0) {
		err_wrap(&err, "nothing was run, but the snapshot '%.63s' was not removed",
			snapshot_name(trial));
		cli_fail(trial->cli, &err);
	} else {
		cli_note(trial->cli, "nothing was run, and the snapshot is removed");
	}
	return 128 + stopped_by;
}

/* Makes the snapshot; without it nothing is run. 0, or the exit code. */
static int prepare(struct trial *trial)
{
	static const int ending[] = { SIGINT, SIGTERM, SIGHUP };
	const struct sigaction waits = { .sa_handler = on_stop, .sa_flags = SA_RESTART };
	struct sigaction before[ARRAY_LEN(ending)];
	struct err err = ERR_INIT;
	int failed;

	snprintf(told_twice, sizeof told_twice,
		"\nbox: interrupted; nothing was run, but a snapshot is being made: see "
		"'box timeline %.100s'\n",
		trial->box);
	for (size_t i = 0; i < ARRAY_LEN(ending); i++) {
		sigaction(ending[i], NULL, &before[i]);
		if (before[i].sa_handler != SIG_IGN) /* nohup */
			sigaction(ending[i], &waits, NULL);
	}
	failed = take_snapshot(trial, &err);
	for (size_t i = 0; i < ARRAY_LEN(ending); i++)
		sigaction(ending[i], &before[i], NULL);
	if (failed < 0)
		return cli_fail(trial->cli, &err);
	return stopped_by ? drop_snapshot(trial) : 0;
}

/* ---- the program, and what judges it -------------------------------------------------------- */

/* A session leaves its signals blocked; the next one must get them again. Those that come in
 * between wait for it. */
static int run(struct trial *trial, json_t *body, bool input, bool tty)
{
	struct session_spec spec = {
		.box = trial->box,
		.body = body,
		.input = input,
		.tty = tty,
		.ret_exited = &trial->exited,
		.ret_detached = &trial->detached,
	};
	sigset_t before;
	int code;

	trial->exited = trial->detached = false;
	sigprocmask(SIG_SETMASK, NULL, &before);
	code = session_run(trial->cli, &spec);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return code;
}

static int run_check(struct trial *trial, const char *command)
{
	_cleanup_json_ json_t *body = json_pack("{s:[s,s,s]}", "argv", "/bin/sh", "-c", command);

	if (cli_get(trial->cli, "workdir"))
		json_object_set_new(body, "cwd", json_string(cli_get(trial->cli, "workdir")));
	if (cli_get(trial->cli, "user"))
		json_object_set_new(body, "user", json_string(cli_get(trial->cli, "user")));
	return run(trial, body, false, false);
}

/* Whether the program was ended by a signal that people or systems send to stop something. */
static bool is_interrupted(int code)
{
	return code == 128 + SIGINT || code == 128 + SIGTERM || code == 128 + SIGHUP ||
	       code == 128 + SIGQUIT;
}

/* ---- after ---------------------------------------------------------------------------------- */

static int print_result(struct trial *trial, bool kept, json_t *rollback, int code)
{
	json_t *left = json_object_get(rollback, "from");
	const char *from = json_str(left, "id");

	if (trial->cli->json) {
		cli_print_json(json_pack("{s:s, s:b, s:i, s:O, s:o}", "type", "try", "kept", kept,
			"exit_code", code, "snapshot", trial->snapshot, "rollback",
			rollback ? json_incref(rollback) : json_null()));
		return code;
	}
	if (kept)
		cli_note(trial->cli, "kept; undo: box rollback %s %s%s", trial->box,
			snapshot_name(trial), snapshot_extent(trial->snapshot));
	else if (*from)
		cli_note(trial->cli, "rolled back to %s; what failed: box rollback %s %s%s",
			snapshot_name(trial), trial->box, from, snapshot_extent(left));
	else
		cli_note(trial->cli, "rolled back to %s", snapshot_name(trial));
	return code;
}

static int roll_back(struct trial *trial, int code)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/rollback", trial->box);
	_cleanup_json_ json_t *result = NULL;
	struct err err = ERR_INIT;
	sigset_t ending, before;
	int failed;

	/* The daemon finishes a rollback anyway, but then nobody would report the result. */
	sigemptyset(&ending);
	sigaddset(&ending, SIGINT);
	sigaddset(&ending, SIGTERM);
	sigaddset(&ending, SIGHUP);
	sigprocmask(SIG_BLOCK, &ending, &before);
	failed = client_call(trial->cli->client, "POST", path,
		json_pack("{s:s, s:b, s:b}", "snapshot", json_str(trial->snapshot, "id"), "forget",
			!cli_has(trial->cli, "keep-failed"), "disk_only",
			cli_has(trial->cli, "disk-only")),
		&result, &err);
	if (failed < 0) {
		err_wrap(&err, "the box is as the program left it");
		if (!err.hint[0])
			err_hint(&err, "'box rollback %s %s' undoes it", trial->box,
				snapshot_name(trial));
		return cli_fail(trial->cli, &err);
	}
	return print_result(trial, false, result, code);
}

static int decide(struct trial *trial, int code)
{
	const char *check = cli_get(trial->cli, "check");
	int verdict = code;

	if (trial->detached) {
		cli_note(trial->cli, "nothing is decided; 'box rollback %s %s' undoes it",
			trial->box, snapshot_name(trial));
		return 0;
	}
	if (!trial->exited || is_interrupted(code))
		return roll_back(trial, code ? code : 1);
	if (check) {
		verdict = run_check(trial, check);
		if (!trial->exited)
			verdict = verdict ? verdict : 1;
		cli_note(trial->cli, "the check says %s", verdict ? "no" : "yes");
	}
	if (verdict)
		return roll_back(trial, code ? code : verdict);
	return print_result(trial, true, NULL, code);
}

int cmd_try(struct cli *cli, int argc, char **argv)
{
	bool input = cli_has(cli, "interactive"), tty = cli_has(cli, "tty");
	const char *name = cli_get(cli, "name"), *check = cli_get(cli, "check");
	struct trial trial = { .cli = cli, .box = argv[0] };
	_cleanup_json_ json_t *body = NULL;
	struct err err = ERR_INIT;
	int code;

	/* An unset variable in a script: nothing would be checked. */
	if (check && !check[strspn(check, " \t\n")])
		return cli_usage(cli, "--check is empty; it is a command that decides");
	if (check && !text_is_utf8(check, strlen(check)))
		err_set(&err, ERR_INVALID, "--check must be UTF-8");
	if (err.kind || (name && name_check("--name", name, &err) < 0) ||
		exec_body(cli, argc - 1, argv + 1, tty, &body, &err) < 0)
		return cli_fail(cli, &err);
	code = prepare(&trial);
	if (!code)
		code = decide(&trial, run(&trial, body, input, tty));
	json_decref(trial.snapshot);
	return code;
}
