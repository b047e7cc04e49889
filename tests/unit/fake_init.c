/* fake_init.c - the box-init of a fake instance: hello, then an answer to each op
 *
 * It knows the ops that core itself asks for. A frozen one reads nothing; what was sent waits. */
#include "engine_fake_internal.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "loop/loop.h"
#include "wire/wire.h"
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

struct conn {
	struct conn *next;
	struct fake_process *process;
	int fd;
	struct loop_fd *watch;
	struct buf in;
	bool over; /* nothing is answered any more */
	struct loop *loop;
	bool port;   /* of a VM: it speaks first */
	bool greets; /* and has not yet */
};
static struct conn *conns;
static void greet_soon(void *arg);

static void conn_free(struct conn *conn)
{
	struct conn **at = &conns;

	while (*at != conn)
		at = &(*at)->next;
	*at = conn->next;
	loop_undefer(conn->loop, greet_soon, conn);
	loop_fd_free(conn->watch);
	close(conn->fd);
	buf_done(&conn->in);
	free(conn);
}

static void send_all(struct conn *conn, struct buf *out)
{
	(void)!send(conn->fd, buf_head(out), out->len, MSG_NOSIGNAL | MSG_DONTWAIT);
	buf_done(out);
}

/* REPLY with body, or ERROR; then CLOSE. */
static void answer(struct conn *conn, const struct wire_frame *frame, enum fake_how how,
	const struct buf *body)
{
	struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	size_t mark;

	if (how == FAKE_NEVER)
		return;
	mark = wire_begin(&out, how == FAKE_OK ? WIRE_REPLY : WIRE_ERROR, frame->channel);
	err_set(&err, ERR_SYSTEM, "the fake box-init was told to fail");
	if (how == FAKE_FAIL)
		wire_put_error(&out, &err);
	else if (body)
		wire_put_bytes(&out, buf_head(body), body->len);
	wire_end(&out, mark);
	wire_end(&out, wire_begin(&out, WIRE_CLOSE, frame->channel));
	send_all(conn, &out);
}

static void on_hello(struct conn *conn)
{
	const struct wire_hello hello = { .magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.version_min = WIRE_VERSION_MIN,
		.boot_id = 1 };
	enum fake_how how = fake_reach(FAKE_HELLO);
	struct buf out = BUF_INIT;
	size_t mark;

	conn->over = how != FAKE_OK;
	if (how == FAKE_FAIL)
		shutdown(conn->fd, SHUT_RDWR);
	if (how != FAKE_OK)
		return;
	mark = wire_begin(&out, WIRE_HELLO, 0);
	wire_put_hello(&out, &hello);
	wire_end(&out, mark);
	send_all(conn, &out);
}

static void on_exec(struct conn *conn, const struct wire_frame *frame, struct wire_reader *in)
{
	static const char *const sftp[] = { "sftp-server", NULL };
	struct wire_exec_spec spec;
	struct wire_exec_info info = { .pid = 2, .started_us = 1 };
	struct buf body = BUF_INIT;

	wire_get_exec_spec(in, &spec);
	info.id = spec.id;
	info.argv = spec.builtin == WIRE_BUILTIN_SFTP ? sftp : spec.argv;
	wire_put_exec_info(&body, &info);
	answer(conn, frame, fake_reach(FAKE_EXEC), &body);
	buf_done(&body);
	free((void *)spec.argv);
	free((void *)spec.env);
}

static void on_told(struct conn *conn, const struct wire_frame *frame)
{
	const struct wire_told told = { .failure = "" };
	struct buf body = BUF_INIT;

	wire_put_told(&body, &told);
	answer(conn, frame, fake_reach(FAKE_TOLD), &body);
	buf_done(&body);
}

static void on_list(struct conn *conn, const struct wire_frame *frame)
{
	struct buf body = BUF_INIT;

	wire_put_u32(&body, 0);
	answer(conn, frame, fake_reach(FAKE_LIST), &body);
	buf_done(&body);
}

/* A server that sends back what it gets; nobody listens on FAKE_CLOSED_PORT. */
static void on_dial(struct conn *conn, const struct wire_frame *frame, struct wire_reader *in)
{
	struct buf out = BUF_INIT;

	if (wire_get_u16(in) == FAKE_CLOSED_PORT) {
		answer(conn, frame, FAKE_FAIL, NULL);
		return;
	}
	wire_end(&out, wire_begin(&out, WIRE_REPLY, frame->channel));
	send_all(conn, &out);
}

static void on_dialled_data(struct conn *conn, const struct wire_frame *frame)
{
	struct wire_reader in = WIRE_READER(frame);
	struct buf out = BUF_INIT;
	size_t mark;

	(void)wire_get_u8(&in);
	(void)wire_get_u64(&in);
	wire_add_data(&out, frame->channel, WIRE_STREAM_MAIN, 0, in.at, (size_t)(in.end - in.at));
	mark = wire_begin(&out, WIRE_WINDOW_ADD, frame->channel);
	wire_put_u32(&out, (uint32_t)(in.end - in.at));
	wire_end(&out, mark);
	send_all(conn, &out);
}

static void on_dialled_end(struct conn *conn, const struct wire_frame *frame)
{
	struct buf out = BUF_INIT;

	wire_end(&out, wire_begin(&out, WIRE_END, frame->channel));
	wire_end(&out, wire_begin(&out, WIRE_CLOSE, frame->channel));
	send_all(conn, &out);
}

struct buf fake_upper = BUF_INIT;
bool fake_upper_breaks;

/* REPLY, DATA, and then END or, when it breaks, ERROR; then CLOSE. */
static void on_upper(struct conn *conn, const struct wire_frame *frame)
{
	struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	size_t mark;

	wire_end(&out, wire_begin(&out, WIRE_REPLY, frame->channel));
	for (size_t at = 0; at < fake_upper.len; at += WIRE_DATA_MAX)
		wire_add_data(&out, frame->channel, WIRE_STREAM_MAIN, 0, buf_head(&fake_upper) + at,
			MIN(fake_upper.len - at, (size_t)WIRE_DATA_MAX));
	mark = wire_begin(&out, fake_upper_breaks ? WIRE_ERROR : WIRE_END, frame->channel);
	err_set(&err, ERR_UNSUPPORTED, "the fake box-init was told to break off");
	if (fake_upper_breaks)
		wire_put_error(&out, &err);
	wire_end(&out, mark);
	wire_end(&out, wire_begin(&out, WIRE_CLOSE, frame->channel));
	send_all(conn, &out);
}

static void on_open(struct conn *conn, const struct wire_frame *frame)
{
	struct wire_reader in = WIRE_READER(frame);
	enum wire_op op = wire_get_u8(&in);
	enum fake_how how;

	switch (op) {
	case WIRE_OP_EXEC_START:
		on_exec(conn, frame, &in);
		return;
	case WIRE_OP_EXEC_LIST:
		on_list(conn, frame);
		return;
	case WIRE_OP_IDENTITY:
	case WIRE_OP_RESTORED:
		on_told(conn, frame);
		return;
	case WIRE_OP_SHUTDOWN:
		how = fake_reach(FAKE_SHUTDOWN);
		answer(conn, frame, how, NULL);
		if (how == FAKE_OK)
			fake_shut_down(conn->process);
		return;
	case WIRE_OP_DIAL:
		on_dial(conn, frame, &in);
		return;
	case WIRE_OP_TAR_UPPER:
		on_upper(conn, frame);
		return;
	case WIRE_OP_NAME:
	case WIRE_OP_ANSWER:
		answer(conn, frame, FAKE_OK, NULL);
		return;
	default:
		answer(conn, frame, FAKE_FAIL, NULL);
	}
}

static void on_ready(void *arg, unsigned ready)
{
	struct conn *conn = arg;
	char data[65536];
	ssize_t len = recv(conn->fd, data, sizeof data, MSG_DONTWAIT);
	struct wire_frame frame;
	struct err err = ERR_INIT;

	(void)ready;
	if (len < 0 && errno == EAGAIN)
		return;
	if (len <= 0) {
		conn_free(conn);
		return;
	}
	buf_add(&conn->in, data, (size_t)len);
	while (!conn->over && wire_frame_parse(&conn->in, &frame, &err) > 0) {
		if (frame.type == WIRE_HELLO && !conn->port)
			on_hello(conn);
		else if (frame.type == WIRE_OPEN)
			on_open(conn, &frame);
		else if (frame.type == WIRE_DATA)
			on_dialled_data(conn, &frame);
		else if (frame.type == WIRE_END)
			on_dialled_end(conn, &frame);
		buf_eat(&conn->in, WIRE_HEADER + frame.len);
	}
}

/* Over a port of a VM box-init speaks first, as soon as it runs. */
static void greet(struct conn *conn)
{
	if (!conn->greets || conn->process->frozen)
		return;
	conn->greets = false;
	on_hello(conn);
}

static void greet_soon(void *arg)
{
	greet(arg);
}

int fake_init_connect(
	struct loop *loop, struct fake_process *process, bool port, int *ret_fd, struct err *err)
{
	struct conn *conn;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return err_sys(err, errno, "socketpair");
	conn = xnew(struct conn);
	*conn = (struct conn){ .next = conns, .process = process, .fd = pair[0] };
	conn->in = (struct buf)BUF_INIT;
	conn->loop = loop;
	conn->port = conn->greets = port;
	if (port)
		loop_defer(loop, greet_soon, conn);
	conn->watch = loop_fd_new(
		loop, conn->fd, process->frozen ? 0 : (unsigned)LOOP_READ, on_ready, conn);
	conns = conn;
	*ret_fd = pair[1];
	return 0;
}

void fake_init_settle(struct fake_process *process)
{
	for (struct conn *conn = conns; conn; conn = conn->next)
		if (conn->process == process) {
			loop_fd_set(conn->watch, process->frozen ? 0 : (unsigned)LOOP_READ);
			greet(conn);
		}
}

void fake_init_hang_up(struct fake_process *process)
{
	for (struct conn *conn = conns, *next; conn; conn = next) {
		next = conn->next;
		if (conn->process == process)
			conn_free(conn);
	}
}
