/* program.c - a program of a box on an SSH channel
 *
 *     process <── data socket, socket of stderr ──> here <── core/exec.h ──> box-init
 *
 * Output that the process does not take yet waits here and is not returned to the box's window, so
 * a slow client slows the program; input is not read while the box does not take it. The program is
 * the box's: when the client or the connection goes, this lets go of it, and it lingers. */
#include "ssh/sshd_internal.h"
#include "base/alloc.h"
#include "base/file.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_SIZE = 64 * 1024, SOCKET_BUFFER = 512 * 1024, CODE_FAILED = 255 };

struct outlet {
	struct program *program;
	int fd; /* -1: there is none */
	struct loop_fd *watch;
	struct buf out; /* not taken yet */
};

struct program {
	struct peer *peer;
	struct program *prev, *next;
	uint32_t channel;
	char box[NAME_MAX_LEN + 1]; /* id */
	char id[EXEC_ID_MAX + 1];   /* "" until it is known */
	struct exec *exec;	    /* NULL: it has ended */
	struct outlet outlets[2];   /* data, stderr */
	uint64_t offset;	    /* behind the last byte that was given to the process */
	bool tty;
	bool input_ended, input_full;
	bool no_linger; /* a subsystem or a connection: nobody joins it */
	bool is_dial;	/* a connection made inside the box */
	bool dialling;	/* the process gets its socket when it stands */
	int theirs;	/* -1: given, or there is none */
	char refusal[256];
	bool over; /* code and signal are known */
	uint32_t code, signal;
};

static char scratch[READ_SIZE];

/* ---- the end -------------------------------------------------------------------------------- */

static void outlet_done(struct outlet *outlet)
{
	loop_fd_free(outlet->watch);
	if (outlet->fd >= 0)
		close(outlet->fd);
	buf_done(&outlet->out);
	outlet->watch = NULL;
	outlet->fd = -1;
}

static void program_free(struct program *program)
{
	exec_close(program->exec);
	for (size_t i = 0; i < 2; i++)
		outlet_done(&program->outlets[i]);
	if (program->theirs >= 0)
		close(program->theirs);
	if (program->prev)
		program->prev->next = program->next;
	else
		program->peer->programs = program->next;
	if (program->next)
		program->next->prev = program->prev;
	free(program);
}

/* Once the program has ended and all its output is with the process. */
static void settle(struct program *program)
{
	struct peer *peer = program->peer;
	struct buf *out;

	if (!program->over || program->outlets[0].out.len || program->outlets[1].out.len)
		return;
	if (program->dialling)
		forward_refuse(peer, program->channel, REASON_CONNECT_FAILED, program->refusal);
	if (program->is_dial) { /* the end of its socket is the end of the connection */
		program_free(program);
		return;
	}
	out = sshm_pipe_begin(peer->pipe, SSHM_EXIT);
	wire_put_u32(out, program->channel);
	wire_put_u32(out, program->code);
	wire_put_str(out, program->signal ? sigabbrev_np((int)program->signal) : NULL);
	sshm_pipe_send(peer->pipe, NULL, 0);
	program_free(program);
}

/* Lets go of the program. Without a terminal its input ends, as when a pipe breaks. */
static void detach(struct program *program)
{
	struct peer *peer = program->peer;

	if (program->exec && !program->tty)
		exec_write_end(program->exec);
	if (program->exec && *program->id && !program->no_linger)
		linger_add(peer->sshd, program->box, program->id, peer->principal.asker.owner,
			program->offset, program->tty);
	program_free(program);
}

/* ---- output --------------------------------------------------------------------------------- */

static void outlet_watch(struct outlet *outlet)
{
	struct program *program = outlet->program;
	unsigned want = outlet->out.len ? LOOP_WRITE : 0;

	if (outlet == &program->outlets[0] && !program->input_ended && !program->input_full &&
		!program->over)
		want |= LOOP_READ;
	if (outlet->watch)
		loop_fd_set(outlet->watch, want);
}

/* Returns how many bytes the process has taken; all of them when it does not listen any more. */
static size_t outlet_send(struct outlet *outlet, const void *data, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t sent = outlet->fd < 0 ? -1
					      : send(outlet->fd, (const char *)data + done,
							len - done, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent < 0 && outlet->fd >= 0 && errno == EINTR)
			continue;
		if (sent < 0 && outlet->fd >= 0 && errno == EAGAIN)
			return done;
		if (sent < 0)
			return len;
		done += (size_t)sent;
	}
	return done;
}

static void outlet_put(struct outlet *outlet, const void *data, size_t len)
{
	struct program *program = outlet->program;
	size_t sent = outlet->out.len ? 0 : outlet_send(outlet, data, len);

	if (sent && program->exec)
		exec_consumed(program->exec, sent);
	if (sent == len)
		return;
	buf_add(&outlet->out, (const char *)data + sent, len - sent);
	outlet_watch(outlet);
}

static void outlet_flush(struct outlet *outlet)
{
	size_t sent = outlet_send(outlet, buf_head(&outlet->out), outlet->out.len);

	buf_eat(&outlet->out, sent);
	if (sent && outlet->program->exec)
		exec_consumed(outlet->program->exec, sent);
	outlet_watch(outlet);
	settle(outlet->program);
}

static struct outlet *outlet_of(struct program *program, enum exec_stream stream)
{
	return &program->outlets[stream == EXEC_STDERR && program->outlets[1].fd >= 0];
}

static void on_started(struct exec *exec, const struct exec_info *info, void *arg)
{
	struct program *program = arg;

	(void)exec;
	snprintf(program->id, sizeof program->id, "%s", info->id);
}

/* The first byte of a connection says that it stands; a line on stderr why not. Returns how many
 * bytes of data were for us. */
static size_t dial_output(
	struct program *program, enum exec_stream stream, const char *data, size_t len)
{
	size_t have = strlen(program->refusal);

	if (stream == EXEC_STDERR) {
		for (size_t i = 0; i < len && have + 1 < sizeof program->refusal; i++)
			if (data[i] >= ' ' && data[i] <= '~')
				program->refusal[have++] = data[i];
		return len;
	}
	program->dialling = false;
	wire_put_u32(sshm_pipe_begin(program->peer->pipe, SSHM_DIALLED), program->channel);
	sshm_pipe_send(program->peer->pipe, &program->theirs, 1);
	close(program->theirs);
	program->theirs = -1;
	outlet_watch(&program->outlets[0]);
	return 1;
}

static void on_output(struct exec *exec, enum exec_stream stream, uint64_t offset, uint64_t time_us,
	const void *data, size_t len, void *arg)
{
	struct program *program = arg;

	(void)time_us;
	program->offset = offset + len;
	if (program->dialling) {
		size_t used = dial_output(program, stream, data, len);

		exec_consumed(exec, used);
		data = (const char *)data + used;
		len -= used;
	}
	if (len)
		outlet_put(outlet_of(program, stream), data, len);
}

static void say(struct program *program, const char *text)
{
	struct outlet *outlet = outlet_of(program, EXEC_STDERR);
	size_t sent = 0, len = strlen(text);

	if (!outlet->out.len)
		sent = outlet_send(outlet, text, len);
	buf_add(&outlet->out, text + sent, len - sent);
	outlet_watch(outlet);
}

static void on_gap(struct exec *exec, uint64_t offset, uint64_t lost, void *arg)
{
	char text[128];

	(void)exec;
	(void)offset;
	snprintf(text, sizeof text, "box: %llu bytes of output are no longer kept%s",
		(unsigned long long)lost, ((struct program *)arg)->tty ? "\r\n" : "\n");
	say(arg, text);
}

static void on_writable(struct exec *exec, void *arg)
{
	struct program *program = arg;

	(void)exec;
	program->input_full = false;
	outlet_watch(&program->outlets[0]);
}

static void fail(struct program *program, const struct err *err)
{
	const char *end = program->tty ? "\r\n" : "\n";
	char text[1024];

	snprintf(program->refusal, sizeof program->refusal, "%.200s", err->message);
	snprintf(text, sizeof text, "box: %s%s%s%s%s", err->message, *err->hint ? " (" : "",
		err->hint, *err->hint ? ")" : "", end);
	if (!program->dialling)
		say(program, text);
	program->over = true;
	program->code = err->kind == ERR_NOT_FOUND ? 127 : CODE_FAILED;
}

static void on_done(struct exec *exec, const struct exec_end *end, const struct err *err, void *arg)
{
	struct program *program = arg;

	(void)exec;
	program->exec = NULL;
	if (end) {
		program->over = true;
		program->code = end->exit_code;
		program->signal = end->signal;
	} else if (err) {
		fail(program, err);
	} else {
		program->over = true;
	}
	settle(program);
}

static const struct exec_ops exec_ops = {
	.on_started = on_started,
	.on_output = on_output,
	.on_gap = on_gap,
	.on_writable = on_writable,
	.on_done = on_done,
};

/* ---- input ---------------------------------------------------------------------------------- */

/* The process has closed the whole socket, or has died: the line dropped, which is not the end of
 * the client's input. */
static bool has_hung_up(const struct program *program)
{
	struct pollfd ready = { .fd = program->outlets[0].fd };

	return poll(&ready, 1, 0) > 0 && ready.revents & (POLLHUP | POLLERR);
}

static void read_input(struct program *program)
{
	ssize_t got = recv(program->outlets[0].fd, scratch, sizeof scratch, MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		bool dropped = has_hung_up(program);

		if (dropped && program->is_dial) {
			program_free(program); /* what it talks to is told by its end */
			return;
		}
		program->input_ended = true;
		if (program->exec && !dropped)
			exec_write_end(program->exec);
	} else if (program->exec && !exec_write(program->exec, scratch, (size_t)got)) {
		program->input_full = true;
	}
	outlet_watch(&program->outlets[0]);
}

static void on_ready(void *arg, unsigned ready)
{
	struct outlet *outlet = arg;

	if (ready & LOOP_WRITE)
		outlet_flush(outlet);
	else if (ready & LOOP_READ)
		read_input(outlet->program);
}

/* ---- starting ------------------------------------------------------------------------------- */

static int open_outlet(struct program *program, size_t index, int *ret_theirs)
{
	struct outlet *outlet = &program->outlets[index];
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -1;
	for (size_t i = 0; i < 2; i++)
		setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &(int){ SOCKET_BUFFER }, sizeof(int));
	outlet->fd = pair[0];
	outlet->watch = loop_fd_new(program->peer->sshd->loop, pair[0], 0, on_ready, outlet);
	*ret_theirs = pair[1];
	return 0;
}

static struct program *program_alloc(struct peer *peer, uint32_t channel)
{
	struct program *program = xnew(struct program);

	program->peer = peer;
	program->channel = channel;
	program->theirs = -1;
	for (size_t i = 0; i < 2; i++)
		program->outlets[i] = (struct outlet){ .program = program, .fd = -1 };
	program->next = peer->programs;
	if (program->next)
		program->next->prev = program;
	peer->programs = program;
	return program;
}

/* Makes the sockets and gives their other ends to the process. Without descriptors the client hears
 * nothing but that the channel has ended. */
static struct program *program_new(struct peer *peer, const struct run *run, bool tty)
{
	struct program *program = program_alloc(peer, run->channel);
	int theirs[2] = { -1, -1 };

	program->tty = tty;
	if (open_outlet(program, 0, &theirs[0]) == 0 &&
		(tty || open_outlet(program, 1, &theirs[1]) == 0)) {
		wire_put_u32(sshm_pipe_begin(peer->pipe, SSHM_RUNNING), run->channel);
		sshm_pipe_send(peer->pipe, theirs, tty ? 1 : 2);
	}
	for (size_t i = 0; i < 2; i++)
		if (theirs[i] >= 0)
			close(theirs[i]);
	return program;
}

static void begun(struct program *program, int started, const struct err *err)
{
	if (started < 0)
		fail(program, err);
	else if (!program->dialling)
		outlet_watch(&program->outlets[0]);
	settle(program);
}

void program_tell(struct peer *peer, const struct run *run, uint32_t code, const char *text)
{
	struct program *program = program_new(peer, run, run->tty);

	say(program, text);
	program->over = true;
	program->code = code;
	settle(program);
}

void program_start(
	struct peer *peer, struct box *box, const struct run *run, const struct exec_spec *spec)
{
	struct program *program = program_new(peer, run, spec->tty);
	struct err err = ERR_INIT;

	snprintf(program->box, sizeof program->box, "%s", box_get_id(box));
	program->no_linger = run->what == SSHM_RUN_SUBSYSTEM;
	begun(program, exec_start(box, spec, &exec_ops, program, &program->exec, &err), &err);
}

void program_attach(struct peer *peer, struct box *box, const struct run *run,
	const struct exec_attach_spec *spec, bool tty)
{
	struct program *program = program_new(peer, run, tty);
	struct err err = ERR_INIT;

	snprintf(program->box, sizeof program->box, "%s", box_get_id(box));
	snprintf(program->id, sizeof program->id, "%s", spec->id);
	program->offset = spec->offset;
	begun(program, exec_attach(box, spec, &exec_ops, program, &program->exec, &err), &err);
	if (tty)
		program_resize(peer, run->channel, run->rows, run->cols);
}

void program_connect(
	struct peer *peer, struct box *box, uint32_t channel, const char *host, uint16_t port)
{
	struct program *program = program_alloc(peer, channel);
	char number[8];
	const char *const argv[] = { "connect", host, *host == '/' ? NULL : number, NULL };
	const struct exec_spec spec = { .builtin = EXEC_CONNECT,
		.argv = argv,
		.user = peer->login.user,
		.input = true,
		.no_snapshot = true };
	struct err err = ERR_INIT;
	int started = -1;

	snprintf(number, sizeof number, "%u", port);
	snprintf(program->box, sizeof program->box, "%s", box_get_id(box));
	program->no_linger = program->is_dial = program->dialling = true;
	if (open_outlet(program, 0, &program->theirs) < 0)
		err_set(&err, ERR_LIMIT, "the daemon has no more descriptors");
	else
		started = exec_start(box, &spec, &exec_ops, program, &program->exec, &err);
	begun(program, started, &err);
}

/* ---- what else the client asks -------------------------------------------------------------- */

static struct program *find(struct peer *peer, uint32_t channel)
{
	struct program *program = peer->programs;

	while (program && program->channel != channel)
		program = program->next;
	return program;
}

bool program_signal(struct peer *peer, uint32_t channel, const char *name)
{
	struct program *program = find(peer, channel);

	for (int number = 1; program && program->exec && number < SIGRTMIN; number++)
		if (sigabbrev_np(number) && !strcmp(sigabbrev_np(number), name))
			exec_signal(program->exec, (uint32_t)number);
	return program;
}

bool program_resize(struct peer *peer, uint32_t channel, uint16_t rows, uint16_t cols)
{
	struct program *program = find(peer, channel);

	if (program && program->exec && rows && cols)
		exec_resize(program->exec, rows, cols);
	return program;
}

bool program_closed(struct peer *peer, uint32_t channel)
{
	struct program *program = find(peer, channel);

	if (program)
		detach(program);
	return program;
}

void programs_detach(struct peer *peer)
{
	for (struct program *program = peer->programs, *next; program; program = next) {
		next = program->next;
		detach(program);
	}
}
