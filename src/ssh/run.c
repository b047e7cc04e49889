/* run.c - what a request for a shell, a command or a subsystem means, by the login's user name
 *
 *   ada         a shell, a command or sftp in the box; "attach" joins a program whose line dropped
 *   box, new, fork+ada, try+ada    commands of the command line (control.h)
 *
 * A request that cannot be served is answered as a program would: text on stderr and an exit code,
 * because clients show nothing of a request that is refused. */
#include "ssh/sshd_internal.h"
#include "base/alloc.h"
#include "base/strv.h"
#include "base/text.h"
#include <stdio.h>

enum {
	NAMES_SHOWN = 20,
	TAIL = 16 * 1024, /* of a terminal's output, shown again to who joins it */
	CODE_REFUSED = 255,
	CELLS_MAX = 10000,
	ID_RANDOM = 10,
};
#define ID_PREFIX   "ssh"
#define BOX_ADDRESS "198.18.0.2" /* of every box, as it sees itself */

const char *run_env(const struct run *run, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; run->env[i]; i++)
		if (!strncmp(run->env[i], name, len) && run->env[i][len] == '=')
			return run->env[i] + len + 1;
	return NULL;
}

static void tell(struct peer *peer, const struct run *run, const char *text, const char *hint)
{
	struct buf out = BUF_INIT;

	buf_addf(&out, "box: %s%s", text, run->tty ? "\r\n" : "\n");
	if (hint && *hint)
		buf_addf(&out, "     %s%s", hint, run->tty ? "\r\n" : "\n");
	program_tell(peer, run, CODE_REFUSED, buf_str(&out));
	buf_done(&out);
}

static void tell_err(struct peer *peer, const struct run *run, const struct err *err)
{
	tell(peer, run, err->message, err->hint);
}

/* ---- a box ---------------------------------------------------------------------------------- */

struct names {
	struct buf text;
	unsigned count;
};

static bool add_name(struct box *box, void *arg)
{
	struct names *names = arg;

	if (names->count++ < NAMES_SHOWN)
		buf_addf(&names->text, "%s%s",
			names->count > 1 ? ", " : "there are: ", box_get_name(box));
	return true;
}

/* No guessing: who mistyped a name sees what there is. */
static void tell_missing(struct peer *peer, const struct run *run, const struct err *err)
{
	struct names names = { BUF_INIT, 0 };

	box_each(peer->sshd->yard, add_name, &names);
	if (names.count > NAMES_SHOWN)
		buf_addf(&names.text, " and %u more", names.count - NAMES_SHOWN);
	if (!names.count)
		buf_add_str(&names.text, "there is no box yet: 'ssh new@HOST' makes one");
	tell(peer, run, err->message, buf_str(&names.text));
	buf_done(&names.text);
}

/* The variables for a program: those of the client that are well-formed, and what sshd sets. */
static char **environment(const struct peer *peer, const struct run *run)
{
	char text[PEER_ADDRESS_SIZE + 64];
	char **env = NULL;

	for (size_t i = 0; run->env[i]; i++)
		if (env_check("variable", run->env[i], NULL) == 0 &&
			!text_has_prefix(run->env[i], "BOX_"))
			strv_add(&env, run->env[i]);
	if (run->tty && *run->term) {
		snprintf(text, sizeof text, "TERM=%s", run->term);
		strv_add(&env, text);
	}
	if (peer->local)
		return env;
	snprintf(text, sizeof text, "SSH_CLIENT=%s %u 22", peer->address, peer->port);
	strv_add(&env, text);
	snprintf(text, sizeof text, "SSH_CONNECTION=%s %u " BOX_ADDRESS " 22", peer->address,
		peer->port);
	strv_add(&env, text);
	return env;
}

static void start(struct peer *peer, struct box *box, const struct run *run)
{
	/* A login begins in the user's home, as everywhere; scp and rsync rely on it. SHELL comes
	 * from the box's passwd; an image may name one it does not have. */
	static const char shell[] =
		"cd; [ -x \"$SHELL\" ] || SHELL=$(command -v bash || echo /bin/sh); exec \"$SHELL\" -l";
	static const char command[] =
		"cd; [ -x \"$SHELL\" ] || SHELL=/bin/sh; exec \"$SHELL\" -c \"$1\"";
	const char *const shell_argv[] = { "/bin/sh", "-c", shell, NULL };
	const char *const command_argv[] = { "/bin/sh", "-c", command, "sh", run->command, NULL };
	char id[sizeof ID_PREFIX + ID_RANDOM] = ID_PREFIX;
	char **env = environment(peer, run);
	struct exec_spec spec = {
		.id = id,
		.builtin = run->what == SSHM_RUN_SUBSYSTEM ? EXEC_SFTP : EXEC_NO_BUILTIN,
		.argv = run->what == SSHM_RUN_SHELL ? shell_argv : command_argv,
		.env = (const char *const *)env,
		.user = peer->login.user,
		.tty = run->tty,
		.rows = MIN(run->rows, CELLS_MAX),
		.cols = MIN(run->cols, CELLS_MAX),
		.input = true,
	};

	random_id(id + sizeof ID_PREFIX - 1, ID_RANDOM);
	program_start(peer, box, run, &spec);
	strv_free(env);
}

/* ---- joining a program ---------------------------------------------------------------------- */

/* "attach" or "attach ID" as the command, or BOX_REATTACH=1 or =ID in the environment. Returns
 * false when neither is there; *ret_id is NULL for the newest. */
static bool wants_attach(const struct run *run, const char **ret_id)
{
	const char *again = run_env(run, "BOX_REATTACH");

	*ret_id = NULL;
	if (run->what == SSHM_RUN_COMMAND && !strcmp(run->command, "attach"))
		return true;
	if (run->what == SSHM_RUN_COMMAND && text_has_prefix(run->command, "attach " ID_PREFIX)) {
		*ret_id = run->command + strlen("attach ");
		return true;
	}
	if (!again || !*again || !strcmp(again, "0") || run->what == SSHM_RUN_SUBSYSTEM)
		return false;
	if (strcmp(again, "1"))
		*ret_id = again;
	return true;
}

static bool attach(struct peer *peer, struct box *box, const struct run *run, const char *id)
{
	char exec[EXEC_ID_MAX + 1];
	struct exec_attach_spec spec = { .id = exec, .follow = true, .input = true };
	const char *from = run_env(run, "BOX_OFFSET");
	bool tty;

	if (!linger_take(peer->sshd, box_get_id(box), peer->principal.asker.owner, id, exec,
		    &spec.offset, &tty))
		return false;
	if (tty)
		spec.offset = spec.offset > TAIL ? spec.offset - TAIL : 0;
	if (from && parse_u64("BOX_OFFSET", from, 0, UINT64_MAX - 1, &spec.offset, NULL) < 0) {
		tell(peer, run, "BOX_OFFSET must be a number of bytes", NULL);
		return true;
	}
	spec.lossless = !tty;
	program_attach(peer, box, run, &spec, tty);
	return true;
}

static void in_box(struct peer *peer, const struct run *run)
{
	struct err err = ERR_INIT;
	struct box *box = box_find(peer->sshd->yard, peer->login.box, &err);
	const char *id;

	if (!box) {
		tell_missing(peer, run, &err);
		return;
	}
	if (principal_check_scope(&peer->principal, SCOPE_EXEC, &err) < 0) {
		tell_err(peer, run, &err);
		return;
	}
	if (run->what == SSHM_RUN_SUBSYSTEM && strcmp(run->command, "sftp")) {
		tell(peer, run, "there is no such subsystem: use sftp", NULL);
		return;
	}
	if (!wants_attach(run, &id)) {
		start(peer, box, run);
	} else if (!attach(peer, box, run, id)) {
		if (run->what == SSHM_RUN_SHELL && !id)
			start(peer, box, run); /* BOX_REATTACH=1 in a settings file */
		else
			tell(peer, run, "there is no program to join",
				"'box ps BOX' lists programs");
	}
}

/* ---- taking it ------------------------------------------------------------------------------ */

static void run_for(struct peer *peer, const struct run *run)
{
	const struct asker *before;
	struct err err = ERR_INIT;

	if (peer->login_problem.kind) {
		tell_err(peer, run, &peer->login_problem);
		return;
	}
	if (peer_enter(peer, &before, &err) < 0) {
		tell_err(peer, run, &err);
		return;
	}
	if (peer->login.kind == LOGIN_BOX)
		in_box(peer, run);
	else if (run->what == SSHM_RUN_SUBSYSTEM)
		tell(peer, run, "files are in a box: log in to one", NULL);
	else if (command_start(peer, run, &err) < 0)
		tell_err(peer, run, &err);
	auth_leave(peer->sshd->auth, before);
}

int run_take(struct peer *peer, struct wire_reader *in, struct err *err)
{
	struct run run = { .channel = wire_get_u32(in) };
	size_t len;
	int done;

	run.what = (enum sshm_run_what)wire_get_u8(in);
	run.command = wire_get_str(in, SSHM_COMMAND_MAX);
	run.tty = wire_get_u8(in) != 0;
	run.term = wire_get_str(in, 64);
	run.rows = wire_get_u16(in);
	run.cols = wire_get_u16(in);
	sshm_get_blob(in, SSHM_BLOB_MAX, &len); /* modes of the terminal */
	run.env = wire_get_strv(in, SSHM_ENV_MAX);
	done = wire_get_done(in, err);
	if (done == 0 && (run.what < SSHM_RUN_SHELL || run.what > SSHM_RUN_SUBSYSTEM))
		done = err_set(err, ERR_PROTOCOL, "an unknown kind of program");
	if (done == 0)
		run_for(peer, &run);
	free((void *)run.env);
	return done;
}
