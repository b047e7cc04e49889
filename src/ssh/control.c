/* control.c - see control.h
 *
 *   daemon  ── api socket (packets) ── box-control, PID 1 of its namespace
 *              data, errors, or a terminal: their other ends go to the process of the connection
 *
 * A process has a slot, which gives it a user id that no other process has at the same time. After
 * control_hang_up it stays in the list until it has ended: it still counts. */
#include "ssh/control.h"
#include "auth/inner.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strv.h"
#include "loop/loop.h"
#include "sys/clone.h"
#include "sys/fdpass.h"
#include "sys/procfd.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <termios.h>

enum {
	UID_FIRST = 0x3ffe0000, /* below those of boxes, above what /etc/subuid hands out */
	API_FD = 3,
	WORD_MAX = 128 * 1024 - 1, /* of the kernel: MAX_ARG_STRLEN */
	LINGER_MS = 45 * 1000,	   /* after the connection ended: cli/control.c takes less */
};

struct controls {
	struct loop *loop;
	struct auth *auth;
	char *program;
	struct control *slots[CONTROLS_MAX];
};

struct control {
	struct controls *controls;
	unsigned slot;
	struct principal principal;
	const void *login;
	void (*on_end)(int code, int signal, void *arg); /* NULL: nobody waits */
	void *arg;
	int pidfd, api, terminal; /* terminal: the master; -1: none */
	struct loop_fd *exit_watch, *api_watch;
	struct loop_timer *linger;
	int64_t second; /* in which asked counts */
	unsigned asked;
};

/* ---- the list ------------------------------------------------------------------------------- */

struct controls *controls_new(struct loop *loop, struct auth *auth, const char *program)
{
	struct controls *controls = xnew(struct controls);

	*controls = (struct controls){
		.loop = loop, .auth = auth, .program = xstrdup(program ? program : "/proc/self/exe")
	};
	return controls;
}

static void release(struct control *control)
{
	control->controls->slots[control->slot] = NULL;
	loop_fd_free(control->exit_watch);
	loop_fd_free(control->api_watch);
	loop_timer_free(control->linger);
	if (control->pidfd >= 0)
		close(control->pidfd);
	if (control->api >= 0)
		close(control->api);
	if (control->terminal >= 0)
		close(control->terminal);
	free(control);
}

void controls_free(struct controls *controls)
{
	if (!controls)
		return;
	for (size_t i = 0; i < CONTROLS_MAX; i++)
		if (controls->slots[i])
			procfd_kill(controls->slots[i]->pidfd, SIGKILL, NULL);
	for (size_t i = 0; i < CONTROLS_MAX; i++) {
		struct control *control = controls->slots[i];
		struct pollfd ended = { .fd = control ? control->pidfd : -1, .events = POLLIN };
		int value;

		if (!control)
			continue;
		while (poll(&ended, 1, -1) < 0 && errno == EINTR)
			;
		procfd_reap(control->pidfd, &value);
		release(control);
	}
	free(controls->program);
	free(controls);
}

/* The lowest free slot. */
static int find_slot(const struct controls *controls, const struct control_spec *spec,
	unsigned *ret, struct err *err)
{
	unsigned of_owner = 0, of_login = 0, slot = CONTROLS_MAX;

	for (unsigned i = CONTROLS_MAX; i-- > 0;) {
		const struct control *control = controls->slots[i];

		if (!control) {
			slot = i;
			continue;
		}
		of_owner += !strcmp(control->principal.asker.owner, spec->principal->asker.owner);
		of_login += control->login == spec->login;
	}
	if (of_login >= CONTROLS_OF_LOGIN_MAX)
		return err_set(
			err, ERR_LIMIT, "this connection runs %u commands already", of_login);
	if (of_owner >= CONTROLS_OF_OWNER_MAX || slot == CONTROLS_MAX)
		return err_set(err, ERR_LIMIT, "too many commands run over ssh at once");
	*ret = slot;
	return 0;
}

/* ---- connections to the API ----------------------------------------------------------------- */

static bool asks_too_often(struct control *control)
{
	int64_t now = clock_mono_us();

	if (now - control->second > 1000000) {
		control->second = now;
		control->asked = 0;
	}
	return ++control->asked > CONTROL_CONNECTIONS_MAX;
}

static void refuse(struct control *control, const struct err *err)
{
	char text[512];
	int len = snprintf(text, sizeof text, "-%.500s", err->message);

	send(control->api, text, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void give_connection(struct control *control)
{
	_cleanup_close_ int fd = -1;
	struct err err = ERR_INIT;

	if (asks_too_often(control)) {
		err_set(&err, ERR_LIMIT, "too many connections at once");
		refuse(control, &err);
	} else if (auth_open_inner(control->controls->auth, &control->principal, &fd, &err) < 0) {
		refuse(control, &err);
	} else {
		/* An asker that does not read its answers does not get one. */
		fdpass_send(control->api, "+", 1, &fd, 1, MSG_DONTWAIT);
	}
}

/* What comes is the process's: one byte, and nothing with it. */
static void on_ask(void *arg, unsigned ready)
{
	struct control *control = arg;
	char ask[2];
	ssize_t got = recv(control->api, ask, sizeof ask, MSG_DONTWAIT);

	(void)ready;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got == 1 && ask[0] == '?')
		return give_connection(control);
	if (got > 0)
		log_warn("a command over ssh sent something else than a question",
			kv_str("principal", control->principal.asker.who));
	loop_fd_set(control->api_watch, 0);
	shutdown(control->api, SHUT_RDWR);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void on_exit_of_process(void *arg, unsigned ready)
{
	struct control *control = arg;
	void (*on_end)(int code, int signal, void *arg) = control->on_end;
	void *end_arg = control->arg;
	int value = 0;
	enum procfd_status status = procfd_reap(control->pidfd, &value);

	(void)ready;
	if (status == PROCFD_RUNNING)
		return;
	release(control);
	if (on_end)
		on_end(status == PROCFD_EXITED ? value : 255, status == PROCFD_SIGNALED ? value : 0,
			end_arg);
}

static void on_linger(void *arg)
{
	struct control *control = arg;

	procfd_kill(control->pidfd, SIGKILL, NULL);
}

void control_hang_up(struct control *control)
{
	control->on_end = NULL;
	control->login = NULL;
	if (control->terminal >= 0)
		close(control->terminal);
	control->terminal = -1;
	procfd_kill(control->pidfd, SIGHUP, NULL);
	loop_timer_start(control->linger, LINGER_MS);
}

void control_resize(struct control *control, uint16_t rows, uint16_t cols)
{
	const struct winsize size = { .ws_row = rows, .ws_col = cols };

	if (control->terminal >= 0)
		ioctl(control->terminal, TIOCSWINSZ, &size);
}

/* Those that cli/control.c passes on. */
void control_signal(struct control *control, const char *name)
{
	static const struct {
		const char *name;
		int number;
	} known[] = { { "HUP", SIGHUP }, { "INT", SIGINT }, { "QUIT", SIGQUIT },
		{ "TERM", SIGTERM }, { "USR1", SIGUSR1 }, { "USR2", SIGUSR2 },
		{ "KILL", SIGKILL } };

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (!strcmp(known[i].name, name))
			procfd_kill(control->pidfd, known[i].number, NULL);
}

/* ---- the beginning -------------------------------------------------------------------------- */

struct start {
	const char *program;
	char **argv, **env;
	int api, in, errors; /* the child's; with tty in is the terminal and errors is -1 */
	int our_api, our_data, our_errors, terminal;
	bool tty;
};

#define START_INIT                                                                \
	{                                                                         \
		.api = -1, .in = -1, .errors = -1, .our_api = -1, .our_data = -1, \
		.our_errors = -1, .terminal = -1                                  \
	}

static void start_done(struct start *start)
{
	int *const fds[] = { &start->api, &start->in, &start->errors, &start->our_api,
		&start->our_data, &start->our_errors, &start->terminal };

	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		if (*fds[i] >= 0)
			close(*fds[i]);
	strv_free(start->argv);
	strv_free(start->env);
}

static bool may_pass(const char *variable)
{
	static const char *const names[] = { "LANG=", "LC_", "LANGUAGE=" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strncmp(variable, names[i], strlen(names[i])))
			return strchr(variable, '=') && strlen(variable) < 256;
	return false;
}

static void prepare_words(const struct control_spec *spec, unsigned slot, struct start *start)
{
	const char *term = spec->term && *spec->term ? spec->term : "dumb";
	_cleanup_free_ char *uid = xasprintf("%u", UID_FIRST + slot);
	_cleanup_free_ char *api = xasprintf("BOX_API_FD=%d", API_FD);
	const char *const first[] = { "box", "control", "--uid", uid, "--", NULL };

	start->argv = strv_copy(first);
	for (const char *const *word = spec->words; word && *word; word++)
		strv_add(&start->argv, *word);
	strv_add(&start->env, api);
	if (spec->tty) {
		_cleanup_free_ char *variable = xasprintf("TERM=%.64s", term);

		strv_add(&start->env, variable);
	}
	for (const char *const *variable = spec->env; variable && *variable; variable++)
		if (may_pass(*variable))
			strv_add(&start->env, *variable);
}

static int make_pair(int type, int *ret_ours, int *ret_theirs, struct err *err)
{
	int ends[2];

	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) < 0)
		return err_sys(err, errno, "socketpair");
	*ret_ours = ends[0];
	*ret_theirs = ends[1];
	return 0;
}

static int make_terminal(const struct control_spec *spec, struct start *start, struct err *err)
{
	const struct winsize size = { .ws_row = spec->rows, .ws_col = spec->cols };
	struct termios settings;

	start->terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (start->terminal < 0)
		return err_sys(err, errno, "open /dev/ptmx");
	if (ioctl(start->terminal, TIOCSPTLCK, &(int){ 0 }) < 0)
		return err_sys(err, errno, "unlock a terminal");
	start->in = ioctl(start->terminal, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	start->our_data = fcntl(start->terminal, F_DUPFD_CLOEXEC, 3);
	if (start->in < 0 || start->our_data < 0)
		return err_sys(err, errno, "open a terminal");
	if (tcgetattr(start->in, &settings) == 0) {
		settings.c_iflag |= IUTF8;
		tcsetattr(start->in, TCSANOW, &settings);
	}
	ioctl(start->terminal, TIOCSWINSZ, &size);
	return 0;
}

static int prepare(
	const struct control_spec *spec, unsigned slot, struct start *start, struct err *err)
{
	for (const char *const *word = spec->words; word && *word; word++)
		if (strlen(*word) >= WORD_MAX)
			return err_set(err, ERR_INVALID, "a word has more than %d bytes", WORD_MAX);
	prepare_words(spec, slot, start);
	start->tty = spec->tty;
	if (make_pair(SOCK_SEQPACKET, &start->our_api, &start->api, err) < 0)
		return -1;
	if (spec->tty)
		return make_terminal(spec, start, err);
	if (make_pair(SOCK_STREAM, &start->our_data, &start->in, err) < 0)
		return -1;
	return make_pair(SOCK_STREAM, &start->our_errors, &start->errors, err);
}

/* Between clone and exec: system calls only. None of the descriptors is one of those that are set
 * here (lift). */
static _Noreturn void become_control(const struct start *start)
{
	setsid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (start->tty && ioctl(start->in, TIOCSCTTY, 0) < 0)
		_exit(126);
	if (dup2(start->in, STDIN_FILENO) < 0 || dup2(start->in, STDOUT_FILENO) < 0 ||
		dup2(start->tty ? start->in : start->errors, STDERR_FILENO) < 0 ||
		dup2(start->api, API_FD) < 0)
		_exit(126);
	close_range(API_FD + 1, ~0U, 0);
	clone_hold_signals(); /* cli/control.c unblocks them */
	execve(start->program, start->argv, start->env);
	_exit(127);
}

/* Moves a descriptor out of the way of those that become_control sets. */
static int lift(int *fd, struct err *err)
{
	int lifted;

	if (*fd < 0 || *fd > API_FD)
		return 0;
	lifted = fcntl(*fd, F_DUPFD_CLOEXEC, API_FD + 1);
	if (lifted < 0)
		return err_sys(err, errno, "duplicate a descriptor");
	close(*fd);
	*fd = lifted;
	return 0;
}

static int clone_it(struct start *start, int *ret_pidfd, struct err *err)
{
	const struct clone_spec how = { .namespaces = CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC,
		.cgroup = -1 };
	pid_t pid;

	if (lift(&start->in, err) < 0 || lift(&start->errors, err) < 0 ||
		lift(&start->api, err) < 0)
		return -1;
	pid = clone_process(&how, ret_pidfd, err);
	if (pid == 0)
		become_control(start);
	return pid < 0 ? err_wrap(err, "start a command") : 0;
}

static struct control *control_new(struct controls *controls, const struct control_spec *spec,
	unsigned slot, struct start *start, int pidfd)
{
	struct control *control = xnew(struct control);

	*control = (struct control){
		.controls = controls,
		.slot = slot,
		.principal = *spec->principal,
		.login = spec->login,
		.on_end = spec->on_end,
		.arg = spec->arg,
		.pidfd = pidfd,
		.api = steal_fd(&start->our_api),
		.terminal = steal_fd(&start->terminal),
	};
	control->exit_watch =
		loop_fd_new(controls->loop, pidfd, LOOP_READ, on_exit_of_process, control);
	control->api_watch = loop_fd_new(controls->loop, control->api, LOOP_READ, on_ask, control);
	control->linger = loop_timer_new(controls->loop, on_linger, control);
	controls->slots[slot] = control;
	return control;
}

int control_start(struct controls *controls, const struct control_spec *spec, struct control **ret,
	struct control_ends *ret_ends, struct err *err)
{
	struct start start = START_INIT;
	unsigned slot;
	int pidfd, result = -1;

	start.program = controls->program;
	if (find_slot(controls, spec, &slot, err) == 0 && prepare(spec, slot, &start, err) == 0 &&
		clone_it(&start, &pidfd, err) == 0) {
		*ret = control_new(controls, spec, slot, &start, pidfd);
		*ret_ends = (struct control_ends){ .data = steal_fd(&start.our_data),
			.errors = steal_fd(&start.our_errors) };
		result = 0;
	}
	start_done(&start);
	return result;
}
