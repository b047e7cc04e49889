/* policy_edit.c - policy edit, record: interactive commands
 *
 * edit    opens the policy as text in $EDITOR; errors are shown with their lines and can be
 *         corrected at once. It replaces only the version that was read; the text is never lost.
 * record  turns on watch mode while a program runs in the box, or until Enter; then prints the
 *         proposal. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/exec_internal.h"
#include "cli/policy_text.h"
#include "cli/session.h"
#include "base/signals.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

/* ---- edit ----------------------------------------------------------------------------------- */

static char *make_file(const char *text, struct err *err)
{
	const char *folder = getenv("TMPDIR");
	_cleanup_free_ char *path =
		xasprintf("%s/box-policy-XXXXXX.yaml", folder && *folder ? folder : "/tmp");
	_cleanup_close_ int fd = mkostemps(path, 5, O_CLOEXEC);

	if (fd < 0) {
		err_sys(err, errno, "make '%s'", path);
		return NULL;
	}
	if (fd_write_all(fd, text, strlen(text), err) < 0) {
		unlink(path);
		return NULL;
	}
	return steal_ptr(&path);
}

/* EDITOR may contain options, so a shell splits it. */
static int run_editor(const char *path, struct err *err)
{
	const char *visual = getenv("VISUAL"), *given = getenv("EDITOR");
	const char *editor = visual && *visual ? visual : given && *given ? given : "vi";
	_cleanup_free_ char *script = xasprintf("%s \"$1\"", editor);
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return err_sys(err, errno, "fork");
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", script, "sh", path, (char *)NULL);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(err, errno, "wait for the editor");
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return err_set(err, ERR_CANCELLED, "the editor '%.60s' failed", editor);
	return 0;
}

static bool ask_again(void)
{
	char line[16];

	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
		return false;
	fputs("Edit again? [Y/n] ", stderr);
	return fgets(line, sizeof line, stdin) && line[0] != 'n' && line[0] != 'N';
}

/* Repeats until the policy is valid or the user gives up. *ret is NULL when the text was not
 * changed. */
static int edit_text(
	struct cli *cli, const char *path, const char *before, struct policy **ret, struct err *err)
{
	for (;;) {
		_cleanup_free_ char *text = NULL;

		err_clear(err);
		if (run_editor(path, err) < 0 || policy_read_text(path, &text, err) < 0)
			return -1;
		if (!strcmp(text, before)) {
			*ret = NULL;
			return 0;
		}
		if (policy_read(cli, path, text, ret, err) == 0)
			return 0;
		if (!ask_again())
			return -1;
	}
}

static int edit_policy(struct cli *cli, const char *box, const char *api, const char *path,
	const char *before, json_int_t version, struct err *err)
{
	_cleanup_(policy_freep) struct policy *policy = NULL;
	_cleanup_json_ json_t *answer = NULL;

	if (edit_text(cli, path, before, &policy, err) < 0)
		return -1;
	if (!policy) {
		cli_note(cli, "nothing was changed");
		return 0;
	}
	if (client_call(cli->client, "PUT", api,
		    json_pack("{s:o,s:I}", "policy", policy_json(policy), "if_version", version),
		    &answer, err) < 0)
		return -1;
	cli_note(cli, "%s has version %lld of its policy", box,
		(long long)json_num(answer, "version"));
	return 0;
}

int cmd_policy_edit(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *api = client_path("/v1/boxes/%s/policy", argv[0]);
	_cleanup_free_ char *normal = NULL, *text = NULL, *path = NULL;
	_cleanup_json_ json_t *answer = NULL;
	struct err err = ERR_INIT;

	(void)argc;
	if (client_get(cli->client, api, &answer, &err) < 0)
		return cli_fail(cli, &err);
	normal = policy_yaml(json_object_get(answer, "policy"));
	text = xasprintf("# What '%s' may reach. docs/policy.md tells the language; 'box policy "
			 "presets' the presets.\n%s",
		argv[0], normal);
	path = make_file(text, &err);
	if (!path)
		return cli_fail(cli, &err);
	if (edit_policy(cli, argv[0], api, path, text, json_num(answer, "version"), &err) < 0) {
		err_hint(&err, "your text is in %s", path);
		return cli_fail(cli, &err);
	}
	unlink(path);
	return 0;
}

/* ---- record --------------------------------------------------------------------------------- */

static void on_signal(int signal)
{
	(void)signal;
}

/* From before watch mode is on until it is off again, Ctrl-C ends only the waiting: otherwise
 * everything public would stay allowed. */
static void hold_signals(sigset_t *ret_outside)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	sigset_t held;

	sigemptyset(&held);
	signals_catch(signals, ARRAY_LEN(signals), on_signal, &held);
	sigprocmask(SIG_BLOCK, &held, ret_outside);
}

static void wait_for_enter(struct cli *cli, const sigset_t *outside)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
	char byte;

	cli_note(cli, "watching; do in the box what it is for, then press Enter");
	while (ppoll(&input, 1, NULL, outside) > 0 && read(STDIN_FILENO, &byte, 1) == 1 &&
		byte != '\n')
		;
}

static int run_program(struct cli *cli, const char *box, int argc, char **argv)
{
	_cleanup_json_ json_t *body = NULL;
	struct session_spec spec = {
		.box = box,
		.input = cli_has(cli, "interactive"),
		.tty = cli_has(cli, "tty"),
	};
	struct err err = ERR_INIT;

	if (exec_body(cli, argc, argv, spec.tty, &body, &err) < 0)
		return cli_fail(cli, &err);
	spec.body = body;
	return session_run(cli, &spec);
}

static int switch_recording(struct cli *cli, const char *box, bool on, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/policy/record", box);

	return client_call(cli->client, "POST", path, json_pack("{s:b}", "on", on), NULL, err);
}

static int print_proposal(struct cli *cli, const char *text, struct err *err)
{
	const char *file = cli_get(cli, "output");

	if (file)
		return file_write_atomic(AT_FDCWD, file, text, strlen(text), 0644, err);
	fputs(text, stdout);
	return 0;
}

/* The proposal is fetched before watch mode ends, which may drop what was seen. */
static int finish_recording(struct cli *cli, const char *box, struct err *err)
{
	_cleanup_free_ char *proposal = client_path("/v1/boxes/%s/policy/proposal", box);
	_cleanup_free_ char *policy = client_path("/v1/boxes/%s/policy", box);
	_cleanup_json_ json_t *answer = NULL, *seen = NULL, *now = NULL;
	struct err why = ERR_INIT;
	int status = client_get(cli->client, proposal, &answer, err);

	if (switch_recording(cli, box, false, &why) < 0) {
		if (status == 0)
			*err = why;
		return -1;
	}
	if (status < 0)
		return -1;
	if (cli->json)
		cli_print_json(json_incref(answer));
	else if (print_proposal(cli, json_str(answer, "text"), err) < 0)
		return -1;
	if (!cli_has(cli, "apply") && !cli_has(cli, "add"))
		return 0;
	/* Only rules are added; the preset stays. */
	seen = json_deep_copy(json_object_get(answer, "policy"));
	if (cli_has(cli, "add"))
		json_object_del(seen, "preset");
	if (client_call(cli->client, "PUT", policy,
		    json_pack("{s:O, s:b}", "policy", seen, "add", cli_has(cli, "add")), &now,
		    err) < 0)
		return -1;
	cli_note(
		cli, "%s has version %lld of its policy", box, (long long)json_num(now, "version"));
	return 0;
}

int cmd_policy_record(struct cli *cli, int argc, char **argv)
{
	struct err err = ERR_INIT;
	sigset_t outside;
	int code = 0;

	if (cli_has(cli, "off")) {
		if (switch_recording(cli, argv[0], false, &err) < 0)
			return cli_fail(cli, &err);
		return 0;
	}
	if (cli_has(cli, "apply") && cli_has(cli, "add"))
		return cli_usage(cli, "--apply replaces the policy, --add adds to it: give one");
	hold_signals(&outside);
	if (switch_recording(cli, argv[0], true, &err) < 0)
		return cli_fail(cli, &err);
	if (argc > 1) {
		/* The session passes signals to the program. */
		sigprocmask(SIG_SETMASK, &outside, NULL);
		code = run_program(cli, argv[0], argc - 1, argv + 1);
		hold_signals(&outside);
	} else {
		wait_for_enter(cli, &outside);
	}
	if (finish_recording(cli, argv[0], &err) < 0)
		return cli_fail(cli, &err);
	return code;
}
