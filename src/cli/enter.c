/* enter.c - `box enter`: a box is made or forked, and a shell or a command runs in it
 *
 * For the logins new@HOST and fork+BOX@HOST (ssh/control.h): words of the command line that are not
 * there for people, who have 'new', 'fork', 'shell' and 'exec'. */
#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/exec_internal.h"
#include "cli/session.h"

static int make(struct cli *cli, const char *parent, json_t **ret, struct err *err)
{
	_cleanup_free_ char *path =
		parent ? client_path("/v1/boxes/%s/fork", parent) : xstrdup("/v1/boxes");
	_cleanup_json_ json_t *answer = NULL;
	json_t *failed, *box;

	if (client_call(cli->client, "POST", path, json_object(), &answer, err) < 0)
		return -1;
	if (!parent) {
		*ret = steal_ptr(&answer);
		return 0;
	}
	failed = json_array_get(json_object_get(answer, "failed"), 0);
	box = json_array_get(json_object_get(answer, "children"), 0);
	if (failed) {
		_cleanup_free_ char *text = json_text(failed);

		return client_api_error(500, text, strlen(text), err);
	}
	if (!box)
		return err_set(err, ERR_PROTOCOL, "the daemon forked nothing");
	*ret = json_incref(box);
	return 0;
}

int cmd_enter(struct cli *cli, int argc, char **argv)
{
	bool forks = !strcmp(argv[0], "fork");
	int names = 1 + forks;
	_cleanup_json_ json_t *box = NULL, *body = NULL;
	struct session_spec spec = { .input = true, .tty = isatty(STDIN_FILENO) };
	struct err err = ERR_INIT;

	if ((!forks && strcmp(argv[0], "new") != 0) || argc < names || argc > names + 1)
		return cli_usage(cli, "'new' or 'fork BOX', and a command");
	if (make(cli, forks ? argv[1] : NULL, &box, &err) < 0)
		return cli_fail(cli, &err);
	cli_note(cli, "%s '%s'", forks ? "forked" : "box", json_str(box, "name"));
	spec.box = json_str(box, "name");
	if (exec_shell_body(cli, argc > names ? argv[names] : NULL, spec.tty, &body, &err) < 0)
		return cli_fail(cli, &err);
	spec.body = body;
	return session_run(cli, &spec);
}
