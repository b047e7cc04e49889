/* control.c - see control.h
 *
 * Requests wait in a list in the order of the calls, and are sent when the VM was told; answers
 * find them by their number. After a reconnection, requests without an answer are sent again:
 * repeating them does no harm.
 *
 * Time is counted in ticks of a running guest, so that a stopped guest is never late. */
#include "engine/vm/control.h"
#include "base/clock.h"
#include "base/text.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
	TICK_MS = 20,
	/* A running guest answers within this time, or did not notice the connection. On a busy
	 * machine it may need longer: each further try gets twice as much. */
	HELLO_MS = 100,
	HELLO_MAX_MS = 800,
	READ_BYTES = 8192,
	SKIPPED_MAX = 1024 * 1024, /* leftovers of older connections, skipped in one */
	QUESTIONS_MAX = 256,
};

enum state {
	STATE_APART,   /* connects at the next tick */
	STATE_HELLO,   /* has sent a hello */
	STATE_TELLING, /* was greeted, and tells */
	STATE_READY,
	STATE_OVER, /* failed; nothing more happens */
};

struct question {
	enum control_type type;
	uint32_t number;
	struct buf payload;
	unsigned waited_ms, limit_ms; /* counted while the guest runs */
	union {
		control_done done;
		control_stats_fn stats;
		control_timer_fn timer;
		control_who_fn who;
	};
	void *arg;
	struct err failed; /* kind set: reported from the loop */
	struct question *next;
};

struct control {
	struct loop *loop;
	const struct control_ops *ops;
	void *arg;
	char *path, *hostname;
	struct control_tell tell;
	int fd;
	struct loop_fd *watch;
	struct loop_timer *ticks;
	enum state state;
	bool paused;
	uint8_t nonce[CONTROL_NONCE];
	struct buf in, out;
	uint32_t number, tell_number;
	uint64_t skipped;
	unsigned silent_ms;	    /* since the hello */
	unsigned hello_ms;	    /* time-out of an answer to the hello */
	unsigned patience_ms;	    /* time until the guest is given up */
	unsigned waiting_ms;	    /* since it was ready last */
	struct question *questions; /* oldest first */
	unsigned question_count;
	struct err why; /* of STATE_OVER */
	unsigned busy;	/* callbacks are running */
	bool freed;
};

static void on_fd(void *arg, unsigned ready);

/* ---- callbacks that may free the control ---------------------------------------------------- */

static void control_destroy(struct control *control);

static void enter(struct control *control)
{
	control->busy++;
}

/* False: the control was freed. */
static bool leave(struct control *control)
{
	if (--control->busy || !control->freed)
		return true;
	control_destroy(control);
	return false;
}

static void question_free(struct question *question)
{
	buf_done(&question->payload);
	free(question);
}

static void tell_failure(struct question *question, const struct err *err)
{
	if (question->type == CONTROL_STATS)
		question->stats(NULL, err, question->arg);
	else if (question->type == CONTROL_TIMERS)
		question->timer(NULL, err, question->arg);
	else if (question->type == CONTROL_WHO)
		question->who(NULL, err, question->arg);
	else if (question->done)
		question->done(err, question->arg);
}

static struct question *take_question(struct control *control, uint32_t number)
{
	for (struct question **at = &control->questions; *at; at = &(*at)->next)
		if ((*at)->number == number) {
			struct question *found = *at;

			*at = found->next;
			control->question_count--;
			return found;
		}
	return NULL;
}

static void hang_up(struct control *control)
{
	loop_fd_free(steal_ptr(&control->watch));
	if (control->fd >= 0)
		close(steal_fd(&control->fd));
	buf_done(&control->in);
	buf_done(&control->out);
	control->silent_ms = 0;
	if (control->state != STATE_OVER)
		control->state = STATE_APART;
}

/* All pending requests get the error, the owner last. */
static void fail(struct control *control, const struct err *why)
{
	if (control->state == STATE_OVER)
		return;
	control->why = *why;
	control->state = STATE_OVER;
	hang_up(control);
	loop_timer_stop(control->ticks);
	enter(control);
	while (control->questions && !control->freed) {
		struct question *question = take_question(control, control->questions->number);

		tell_failure(question, why);
		question_free(question);
	}
	if (!control->freed)
		control->ops->on_failed(control, &control->why, control->arg);
	leave(control);
}

/* ---- sending -------------------------------------------------------------------------------- */

static void flush(struct control *control)
{
	while (control->out.len) {
		ssize_t put = send(control->fd, buf_head(&control->out), control->out.len,
			MSG_NOSIGNAL | MSG_DONTWAIT);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			break; /* an error shows as end of file */
		buf_eat(&control->out, (size_t)put);
	}
	loop_fd_set(control->watch, LOOP_READ | (control->out.len ? LOOP_WRITE : 0));
}

static void send_question(struct control *control, const struct question *question)
{
	size_t mark = control_begin(&control->out, question->type, question->number);

	if (question->type == CONTROL_CLOCK)
		wire_put_u64(&control->out, (uint64_t)clock_wall_us());
	buf_add(&control->out, buf_head(&question->payload), question->payload.len);
	control_end(&control->out, mark);
	flush(control);
}

static void say_hello(struct control *control)
{
	struct control_hello hello = { .version = CONTROL_VERSION };
	size_t mark;

	random_bytes(control->nonce, sizeof control->nonce);
	memcpy(hello.nonce, control->nonce, sizeof hello.nonce);
	memcpy(hello.generation, control->tell.generation, sizeof hello.generation);
	mark = control_begin(&control->out, CONTROL_HELLO, 0);
	control_put_hello(&control->out, &hello);
	control_end(&control->out, mark);
	control->state = STATE_HELLO;
	control->silent_ms = 0;
	control->skipped = 0;
	flush(control);
}

static void say_who(struct control *control)
{
	struct control_tell *tell = &control->tell;
	size_t mark;

	random_bytes(tell->seed, sizeof tell->seed);
	tell->wall_us = (uint64_t)clock_wall_us();
	tell->hostname = control->hostname;
	control->tell_number = ++control->number;
	mark = control_begin(&control->out, CONTROL_TELL, control->tell_number);
	control_put_tell(&control->out, tell);
	control_end(&control->out, mark);
	control->state = STATE_TELLING;
	flush(control);
}

/* ---- connecting ----------------------------------------------------------------------------- */

static int connect_to(const char *path, int *ret, struct err *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	_cleanup_close_ int place = open(path, O_PATH | O_CLOEXEC);
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (place < 0 || fd < 0)
		return err_sys(err, errno, "open '%s'", path);
	/* The path itself may be longer than an address. */
	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d", place);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		return err_sys(err, errno, "connect to '%s'", path);
	*ret = steal_fd(&fd);
	return 0;
}

/* QEMU may not be ready yet, or have ended: the owner will know. */
static void try_connect(struct control *control)
{
	if (connect_to(control->path, &control->fd, NULL) < 0)
		return;
	control->watch = loop_fd_new(control->loop, control->fd, LOOP_READ, on_fd, control);
	say_hello(control);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void become_ready(struct control *control)
{
	control->state = STATE_READY;
	control->waiting_ms = 0;
	control->hello_ms = HELLO_MS;
	for (struct question *question = control->questions; question; question = question->next)
		send_question(control, question);
	control->ops->on_ready(control, control->arg);
}

static int on_greeting(struct control *control, const struct control_frame *frame, struct err *err)
{
	struct wire_reader reader = WIRE_READER(frame);
	struct control_greeting greeting;

	control_get_greeting(&reader, &greeting);
	if (wire_get_done(&reader, err) < 0)
		return -1;
	if (control->state != STATE_HELLO)
		return err_set(err, ERR_PROTOCOL, "a second hello of box-init");
	if (greeting.version != CONTROL_VERSION)
		return err_set(err, ERR_UNSUPPORTED,
			"box-init of the VM speaks version %u, this daemon %d", greeting.version,
			CONTROL_VERSION);
	if (!memcmp(greeting.generation, control->tell.generation, CONTROL_GENERATION))
		become_ready(control);
	else
		say_who(control);
	return 0;
}

/* The text is for users: control characters are replaced. */
static void make_printable(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
}

static void give_answer(struct question *question, struct wire_reader *in)
{
	char text[2][CONTROL_PATH_MAX + 1];
	struct control_stats stats;
	struct control_timer timer;
	struct control_who who;
	struct err err = ERR_INIT;

	switch (question->type) {
	case CONTROL_STATS:
		control_get_stats(in, &stats);
		break;
	case CONTROL_TIMERS:
		control_get_timer(in, &timer);
		break;
	case CONTROL_WHO:
		control_get_who(in, &who);
		break;
	default:
		break;
	}
	if (wire_get_done(in, &err) < 0) {
		tell_failure(question, &err);
	} else if (question->type == CONTROL_STATS) {
		question->stats(&stats, NULL, question->arg);
	} else if (question->type == CONTROL_TIMERS) {
		snprintf(text[0], sizeof text[0], "%s", timer.call);
		snprintf(text[1], sizeof text[1], "%s", timer.comm);
		make_printable(text[0]);
		make_printable(text[1]);
		timer.call = text[0];
		timer.comm = text[1];
		question->timer(&timer, NULL, question->arg);
	} else if (question->type == CONTROL_WHO) {
		snprintf(text[0], sizeof text[0], "%s", who.comm);
		snprintf(text[1], sizeof text[1], "%s", who.command);
		make_printable(text[0]);
		make_printable(text[1]);
		who.comm = text[0];
		who.command = text[1];
		question->who(&who, NULL, question->arg);
	} else if (question->done) {
		question->done(NULL, question->arg);
	}
}

/* The box ran into one of its limits. */
static int on_limit(struct control *control, struct wire_reader *in, struct err *err)
{
	struct control_stats stats;

	control_get_stats(in, &stats);
	if (wire_get_done(in, err) < 0)
		return -1;
	if (control->ops->on_limit)
		control->ops->on_limit(control, &stats, control->arg);
	return 0;
}

static int on_answer(struct control *control, const struct control_frame *frame, struct err *err)
{
	struct wire_reader reader = WIRE_READER(frame);
	struct question *question;
	struct err told = ERR_INIT;

	if (control->state == STATE_HELLO)
		return err_set(err, ERR_PROTOCOL, "an answer before the hello");
	if (frame->type == CONTROL_ERROR) {
		wire_get_error(&reader, &told);
		if (wire_get_done(&reader, err) < 0)
			return -1;
	}
	if (frame->number == control->tell_number && control->state == STATE_TELLING) {
		if (told.kind) {
			err_wrap(&told, "the VM could not be told who it is");
			fail(control, &told);
		} else {
			become_ready(control);
		}
		return 0;
	}
	if (frame->type == CONTROL_STATS && frame->number == 0 && control->state == STATE_READY)
		return on_limit(control, &reader, err);
	question = take_question(control, frame->number);
	/* Its time-out has passed. */
	if (!question)
		return 0;
	if (told.kind) {
		tell_failure(question, &told);
	} else if (frame->type != question->type) {
		err_set(err, ERR_PROTOCOL, "an answer to another request");
		tell_failure(question, err);
		question_free(question);
		return -1;
	} else {
		give_answer(question, &reader);
	}
	question_free(question);
	return 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* False: more bytes are needed. */
static bool find_greeting(struct control *control, struct err *err)
{
	size_t before = control->in.len;
	bool found = control_find_hello(&control->in, control->nonce);

	control->skipped += before - control->in.len;
	if (!found && control->skipped > SKIPPED_MAX)
		err_set(err, ERR_PROTOCOL, "no hello of box-init in %d bytes", SKIPPED_MAX);
	return found;
}

static int take_frames(struct control *control, struct err *err)
{
	struct control_frame frame;
	int got;

	if (control->state == STATE_HELLO && !find_greeting(control, err))
		return err->kind ? -1 : 0;
	while (control->fd >= 0 && !control->freed &&
		(got = control_frame_parse(&control->in, &frame, err)) != 0) {
		if (got < 0)
			return -1;
		if ((frame.type == CONTROL_HELLO ? on_greeting : on_answer)(control, &frame, err) <
			0)
			return -1;
		if (control->fd >= 0 && !control->freed)
			buf_eat(&control->in, CONTROL_HEADER + frame.len);
	}
	return 0;
}

static void on_fd(void *arg, unsigned ready)
{
	struct control *control = arg;
	struct err err = ERR_INIT;
	ssize_t got;

	enter(control);
	if (ready & LOOP_WRITE)
		flush(control);
	if (ready & LOOP_READ) {
		got = read(control->fd, buf_room(&control->in, READ_BYTES), READ_BYTES);
		if (got > 0) {
			buf_grew(&control->in, (size_t)got);
			/* A guest that sends malformed data is asked again, until its time-out. */
			if (take_frames(control, &err) < 0 && !control->freed)
				hang_up(control);
		} else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
			hang_up(control);
		}
	}
	leave(control);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void end_late(struct control *control)
{
	struct err err = ERR_INIT;
	struct question *late = NULL;

	for (struct question *one = control->questions; one; one = one->next) {
		one->waited_ms += TICK_MS;
		if (!late && (one->failed.kind || one->waited_ms >= one->limit_ms))
			late = one;
	}
	if (!late)
		return;
	late = take_question(control, late->number);
	if (!late->failed.kind)
		err_set(&late->failed, ERR_TIMEOUT, "the VM did not answer within %u ms",
			late->limit_ms);
	err = late->failed;
	tell_failure(late, &err);
	question_free(late);
}

static void on_tick(void *arg)
{
	struct control *control = arg;
	struct err err = ERR_INIT;

	if (control->state != STATE_READY || control->questions)
		loop_timer_start(control->ticks, TICK_MS);
	if (control->paused)
		return;
	enter(control);
	end_late(control);
	if (!control->freed && control->state != STATE_READY) {
		control->waiting_ms += TICK_MS;
		if (control->state == STATE_APART)
			try_connect(control);
		else if (control->state == STATE_HELLO &&
			 (control->silent_ms += TICK_MS) >= control->hello_ms) {
			control->hello_ms = MIN(control->hello_ms * 2, HELLO_MAX_MS);
			hang_up(control);
		}
		if (control->waiting_ms >= control->patience_ms) {
			err_set(&err, ERR_TIMEOUT, "box-init of the VM did not answer within %u s",
				control->patience_ms / 1000);
			fail(control, &err);
		}
	}
	leave(control);
}

static void keep_time(struct control *control)
{
	loop_timer_start(control->ticks, TICK_MS);
}

/* ---- the public side ------------------------------------------------------------------------ */

struct control *control_new(struct loop *loop, const struct control_spec *spec,
	const struct control_ops *ops, void *arg)
{
	struct control *control = xnew(struct control);

	*control = (struct control){
		.loop = loop,
		.ops = ops,
		.arg = arg,
		.path = xstrdup(spec->path),
		.hostname = xstrdup(spec->tell.hostname),
		.tell = spec->tell,
		.hello_ms = HELLO_MS,
		.patience_ms = spec->boots ? CONTROL_BOOT_MS : CONTROL_PATIENCE_MS,
		.fd = -1,
	};
	control->ticks = loop_timer_new(loop, on_tick, control);
	loop_timer_start(control->ticks, 0);
	return control;
}

static void control_destroy(struct control *control)
{
	hang_up(control);
	loop_timer_free(control->ticks);
	while (control->questions)
		question_free(take_question(control, control->questions->number));
	free(control->path);
	free(control->hostname);
	free(control);
}

void control_free(struct control *control)
{
	if (!control || control->freed)
		return;
	control->freed = true;
	enter(control);
	leave(control);
}

bool control_is_ready(const struct control *control)
{
	return control->state == STATE_READY;
}

void control_pause(struct control *control, bool paused)
{
	control->paused = paused;
}

static struct question *ask(struct control *control, enum control_type type, void *arg)
{
	struct question *question = xnew(struct question), **end = &control->questions;

	*question = (struct question){ .type = type,
		.number = ++control->number,
		.limit_ms = type == CONTROL_SYNC || type == CONTROL_GROW ? CONTROL_PATIENCE_MS
									 : CONTROL_ASK_MS,
		.arg = arg };
	while (*end)
		end = &(*end)->next;
	*end = question;
	if (control->question_count++ >= QUESTIONS_MAX)
		err_set(&question->failed, ERR_LIMIT, "too many requests wait for the VM");
	if (control->state == STATE_OVER)
		question->failed = control->why;
	keep_time(control);
	return question;
}

static void put_question(struct control *control, struct question *question)
{
	if (control->state == STATE_READY && !question->failed.kind)
		send_question(control, question);
}

void control_stats(struct control *control, control_stats_fn done, void *arg)
{
	struct question *question = ask(control, CONTROL_STATS, arg);

	question->stats = done;
	put_question(control, question);
}

void control_timers(struct control *control, control_timer_fn done, void *arg)
{
	struct question *question = ask(control, CONTROL_TIMERS, arg);

	question->timer = done;
	put_question(control, question);
}

void control_who(
	struct control *control, const struct control_flow *flow, control_who_fn done, void *arg)
{
	struct question *question = ask(control, CONTROL_WHO, arg);

	question->who = done;
	control_put_flow(&question->payload, flow);
	put_question(control, question);
}

void control_sync(struct control *control, control_done done, void *arg)
{
	struct question *question = ask(control, CONTROL_SYNC, arg);

	question->done = done;
	put_question(control, question);
}

void control_hold(struct control *control, bool hold, control_done done, void *arg)
{
	struct question *question = ask(control, CONTROL_HOLD, arg);

	question->done = done;
	wire_put_u8(&question->payload, hold);
	put_question(control, question);
}

void control_grow(struct control *control, uint64_t disk_bytes, control_done done, void *arg)
{
	struct question *question = ask(control, CONTROL_GROW, arg);

	question->done = done;
	wire_put_u64(&question->payload, disk_bytes);
	put_question(control, question);
}

void control_limit(struct control *control, uint64_t pids, control_done done, void *arg)
{
	struct question *question = ask(control, CONTROL_LIMIT, arg);

	question->done = done;
	wire_put_u64(&question->payload, pids);
	put_question(control, question);
}

void control_set_hostname(
	struct control *control, const char *hostname, control_done done, void *arg)
{
	struct question *question = ask(control, CONTROL_NAME, arg);

	free(control->hostname);
	control->hostname = xstrdup(hostname);
	question->done = done;
	wire_put_str(&question->payload, hostname);
	put_question(control, question);
}

void control_set_clock(struct control *control, control_done done, void *arg)
{
	struct question *question = ask(control, CONTROL_CLOCK, arg);

	question->done = done;
	put_question(control, question);
}
