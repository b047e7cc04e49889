/* control.c - see control.h and wire/control.h
 *
 * One who has not been told in the present generation answers HELLO and TELL alone, and its first
 * port greets nobody. What is quick and cannot be stopped by the box (entropy, clock, name, limits)
 * is done here, at once; files, which the box may have put anything in the place of, by a job. */
#include "guest/control.h"
#include "base/clock.h"
#include "base/log.h"
#include "guest/group.h"
#include "guest/hosts.h"
#include "guest/identity.h"
#include "guest/port.h"
#include "guest/self.h"
#include "guest/trust.h"
#include "guest/vm.h"
#include "guest/watch.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <sys/ioctl.h>
#include <sys/time.h>

enum { READ_BYTES = 4096, OUT_MAX = 256 * 1024, LIMIT_US = 50 * 1000 };

static struct watch port = WATCH_INIT;
static struct watch limits = WATCH_INIT; /* a program was killed for memory, a fork refused */
static struct buf in, out;
static uint32_t connection; /* counted: answers of a job to a question of another one are dropped */
static uint8_t told[CONTROL_GENERATION];
static uint8_t asked[CONTROL_GENERATION]; /* by the last hello */
static bool greeted, telling;
/* Programs are held, for a capture; and whether there were connections then. A copy need not look
 * again: there, each step into code that did not run yet takes time. */
static bool held, connected = true;
static int randomness = -1;

static bool is_told(void)
{
	static const uint8_t none[CONTROL_GENERATION];

	return greeted && !telling && memcmp(told, none, sizeof told) != 0 &&
	       !memcmp(told, asked, sizeof told);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void flush(void)
{
	while (out.len) {
		ssize_t put = write(port.fd, buf_head(&out), out.len);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			break;
		buf_eat(&out, (size_t)put);
	}
	/* Nobody reads: what is left belongs to nobody either. */
	if (out.len > OUT_MAX)
		buf_done(&out);
}

static void answer(enum control_type type, uint32_t number, const void *payload, size_t len)
{
	size_t mark = control_begin(&out, type, number);

	buf_add(&out, payload, len);
	control_end(&out, mark);
	flush();
}

static void answer_error(uint32_t number, const struct err *err)
{
	struct buf payload = BUF_INIT;

	wire_put_error(&payload, err);
	answer(CONTROL_ERROR, number, buf_head(&payload), payload.len);
	buf_done(&payload);
}

/* A job's tag: which question of which connection. */
static uint64_t tag_of(const struct control_frame *frame)
{
	return (uint64_t)connection << 40 | (uint64_t)frame->type << 32 | frame->number;
}

static void on_job(uint64_t tag, const struct err *err, const void *payload, size_t len)
{
	if (tag >> 40 != (connection & 0xffffff))
		return;
	if (err)
		answer_error((uint32_t)tag, err);
	else
		answer((enum control_type)(tag >> 32 & 0xff), (uint32_t)tag, payload, len);
}

/* ---- limits --------------------------------------------------------------------------------- */

static void send_stats(enum control_type type, uint32_t number)
{
	struct buf payload = BUF_INIT;
	struct control_stats stats;

	control_look_stats(&stats);
	control_put_stats(&payload, &stats);
	answer(type, number, buf_head(&payload), payload.len);
	buf_done(&payload);
}

/* Tells it unasked: a box may be paused at a limit, and its owner waits for the reason. Who runs
 * into one without end is looked at by the driver's own questions. */
static void on_limit(struct watch *watch, uint32_t ready)
{
	static int64_t last;
	int64_t moment = clock_mono_us();
	char events[READ_BYTES];

	(void)ready;
	while (read(watch->fd, events, sizeof events) > 0)
		continue;
	if (!is_told() || moment - last < LIMIT_US)
		return;
	last = moment;
	send_stats(CONTROL_STATS, 0);
}

static void watch_limits(void)
{
	if (limits.fd >= 0 || group_get_limits_watch() < 0)
		return;
	watch_open(&limits, fcntl(group_get_limits_watch(), F_DUPFD_CLOEXEC, 3), on_limit);
	watch_set(&limits, EPOLLIN);
}

/* ---- being told ----------------------------------------------------------------------------- */

static void stir(const uint8_t seed[CONTROL_SEED])
{
	struct {
		int bits, bytes;
		uint8_t data[CONTROL_SEED];
	} entropy = { CONTROL_SEED * 8, CONTROL_SEED, { 0 } };

	memcpy(entropy.data, seed, CONTROL_SEED);
	ioctl(randomness, RNDADDENTROPY, &entropy);
	ioctl(randomness, RNDRESEEDCRNG, 0);
}

static void set_clock(uint64_t wall_us)
{
	struct timeval now = { (time_t)(wall_us / 1000000), (suseconds_t)(wall_us % 1000000) };

	settimeofday(&now, NULL);
}

/* What a job has to do; its memory is a copy of ours. */
static struct {
	enum control_kind kind;
	uint64_t disk_bytes;
	uint8_t generation[CONTROL_GENERATION];
} now;

/* Everything that may wait for the box's file systems. */
static int settle_in(const void *arg, struct buf *payload, struct err *err)
{
	(void)arg;
	(void)payload;
	if (now.disk_bytes && vm_grow(now.disk_bytes, err) < 0)
		return -1;
	if (now.kind == CONTROL_NEW && identity_make(err) < 0)
		return -1;
	/* Of a copy, and of one that was woken, the daemon asks it over the wire (identity.h). */
	if (now.kind == CONTROL_NEW || now.kind == CONTROL_START)
		hosts_follow_name();
	return 0;
}

static void told_done(uint64_t tag, const struct err *err, const void *payload, size_t len)
{
	telling = false;
	if (!err) {
		memcpy(told, now.generation, sizeof told);
		watch_limits();
		group_thaw(NULL);
		held = false;
		port_serve(true);
	}
	on_job(tag, err, payload, len);
}

static int take_tell(const struct control_frame *frame, struct wire_reader *reader, struct err *err)
{
	struct control_tell tell;
	bool first = !vm_has_root();

	control_get_tell(reader, &tell);
	if (wire_get_done(reader, err) < 0)
		return -1;
	if (telling)
		return err_set(err, ERR_STATE, "it is being told already");
	stir(tell.seed);
	set_clock(tell.wall_us);
	if (sethostname(tell.hostname, strlen(tell.hostname)) < 0)
		return err_sys(err, errno, "set the host name");
	if (first && vm_make_root(err) < 0)
		return -1;
	if (first)
		trust_open();
	if (group_set_pids(tell.pids, err) < 0)
		return -1;
	now.kind = tell.kind;
	now.disk_bytes = tell.disk_bytes;
	memcpy(now.generation, tell.generation, sizeof now.generation);
	telling = true;
	if ((tell.kind == CONTROL_COPY || tell.kind == CONTROL_SAME) && (!held || connected))
		control_end_connections();
	/* No program has run yet in one that comes from a template: nothing can be in our way.
	 * Where no file is touched, nothing can either; a process more takes 60 ms in a copy. */
	if (tell.kind == CONTROL_NEW || tell.kind == CONTROL_START || !tell.disk_bytes) {
		int status = settle_in(NULL, NULL, err);

		told_done(tag_of(frame), status < 0 ? err : NULL, NULL, 0);
		return 0;
	}
	if (control_job_start(settle_in, NULL, tag_of(frame), told_done, err) == 0)
		return 0;
	telling = false;
	return -1;
}

/* ---- questions ------------------------------------------------------------------------------ */

static int do_sync(const void *arg, struct buf *payload, struct err *err)
{
	(void)arg;
	(void)payload;
	if (vm_get_disk() >= 0 && syncfs(vm_get_disk()) < 0)
		return err_sys(err, errno, "write everything to the disk");
	return 0;
}

static int do_freeze(const void *arg, struct buf *payload, struct err *err)
{
	(void)arg;
	(void)payload;
	return group_freeze(err);
}

static int do_grow(const void *arg, struct buf *payload, struct err *err)
{
	(void)payload;
	return vm_grow(*(const uint64_t *)arg, err);
}

static int do_who(const void *arg, struct buf *payload, struct err *err)
{
	struct control_socket_owner owner;

	if (control_find_owner(arg, &owner, err) < 0)
		return -1;
	control_put_who(payload, &owner.who);
	return 0;
}

static int start_job(const struct control_frame *frame, struct wire_reader *reader,
	control_job_fn fn, const void *arg, struct err *err)
{
	if (wire_get_done(reader, err) < 0)
		return -1;
	return control_job_start(fn, arg, tag_of(frame), on_job, err);
}

/* Most stand still at once; for those that take longer a process waits. */
static int hold_programs(
	const struct control_frame *frame, struct wire_reader *reader, struct err *err)
{
	bool hold = wire_get_u8(reader) != 0;

	if (wire_get_done(reader, err) < 0)
		return -1;
	held = hold;
	connected = true;
	if (hold ? !group_freeze_soon() : group_thaw(err) < 0)
		return hold ? start_job(frame, reader, do_freeze, NULL, err) : -1;
	connected = hold && control_has_connections();
	answer(frame->type, frame->number, NULL, 0);
	return 0;
}

static int answer_stats(
	const struct control_frame *frame, struct wire_reader *reader, struct err *err)
{
	struct buf payload = BUF_INIT;
	struct control_timer timer;

	if (wire_get_done(reader, err) < 0)
		return -1;
	if (frame->type == CONTROL_STATS) {
		send_stats(frame->type, frame->number);
		return 0;
	}
	control_look_timer(&timer);
	control_put_timer(&payload, &timer);
	answer(frame->type, frame->number, buf_head(&payload), payload.len);
	buf_done(&payload);
	return 0;
}

static int set_limit(const struct control_frame *frame, struct wire_reader *reader, struct err *err)
{
	uint64_t limit = wire_get_u64(reader);

	if (wire_get_done(reader, err) < 0 || group_set_pids(limit, err) < 0)
		return -1;
	answer(frame->type, frame->number, NULL, 0);
	return 0;
}

static int set_name(const struct control_frame *frame, struct wire_reader *reader, struct err *err)
{
	const char *name = wire_get_str(reader, CONTROL_NAME_MAX);

	if (wire_get_done(reader, err) < 0)
		return -1;
	if (sethostname(name, strlen(name)) < 0)
		return err_sys(err, errno, "set the host name");
	hosts_write_name();
	answer(frame->type, frame->number, NULL, 0);
	return 0;
}

static int correct_clock(
	const struct control_frame *frame, struct wire_reader *reader, struct err *err)
{
	uint64_t wall_us = wire_get_u64(reader);

	if (wire_get_done(reader, err) < 0)
		return -1;
	set_clock(wall_us);
	answer(frame->type, frame->number, NULL, 0);
	return 0;
}

static int take_question(const struct control_frame *frame, struct err *err)
{
	struct wire_reader reader = WIRE_READER(frame);
	struct control_flow flow;
	uint64_t bytes;

	if (frame->type == CONTROL_TELL)
		return take_tell(frame, &reader, err);
	if (!is_told())
		return err_set(err, ERR_STATE, "it was not told who it is");
	switch (frame->type) {
	case CONTROL_STATS:
	case CONTROL_TIMERS:
		return answer_stats(frame, &reader, err);
	case CONTROL_WHO:
		control_get_flow(&reader, &flow);
		return start_job(frame, &reader, do_who, &flow, err);
	case CONTROL_SYNC:
		return start_job(frame, &reader, do_sync, NULL, err);
	case CONTROL_HOLD:
		return hold_programs(frame, &reader, err);
	case CONTROL_GROW:
		bytes = wire_get_u64(&reader);
		return start_job(frame, &reader, do_grow, &bytes, err);
	case CONTROL_LIMIT:
		return set_limit(frame, &reader, err);
	case CONTROL_NAME:
		return set_name(frame, &reader, err);
	case CONTROL_CLOCK:
		return correct_clock(frame, &reader, err);
	default:
		return err_set(err, ERR_PROTOCOL, "unknown question %d", frame->type);
	}
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static void take_hello(const struct control_frame *frame)
{
	struct control_greeting greeting = { .version = CONTROL_VERSION };
	struct wire_reader reader = WIRE_READER(frame);
	struct control_hello hello;
	struct buf payload = BUF_INIT;

	control_get_hello(&reader, &hello);
	if (wire_get_done(&reader, NULL) < 0)
		return;
	connection = (connection + 1) & 0xffffff;
	buf_done(&out);
	memcpy(asked, hello.generation, sizeof asked);
	greeted = true;
	if (!is_told())
		port_serve(false);
	memcpy(greeting.nonce, hello.nonce, sizeof greeting.nonce);
	if (!telling)
		memcpy(greeting.generation, told, sizeof told);
	control_put_greeting(&payload, &greeting);
	answer(CONTROL_HELLO, frame->number, buf_head(&payload), payload.len);
	buf_done(&payload);
}

static void take_frames(void)
{
	struct control_frame frame;
	struct err err = ERR_INIT;
	int got;

	/* Half a frame of a connection that is gone may be before it. */
	if (control_has_hello(&in))
		control_find_hello(&in, NULL);
	while ((got = control_frame_parse(&in, &frame, &err)) > 0) {
		err_clear(&err);
		if (frame.type == CONTROL_HELLO)
			take_hello(&frame);
		else if (greeted && take_question(&frame, &err) < 0)
			answer_error(frame.number, &err);
		buf_eat(&in, CONTROL_HEADER + frame.len);
	}
	if (got < 0)
		control_find_hello(&in, NULL);
}

static void on_port(struct watch *watch, uint32_t ready)
{
	ssize_t got;

	(void)ready;
	do {
		got = read(watch->fd, buf_room(&in, READ_BYTES), READ_BYTES);
		if (got > 0) {
			buf_grew(&in, (size_t)got);
			take_frames();
		}
	} while (got > 0 || (got < 0 && errno == EINTR));
	flush();
}

void control_open(int fd)
{
	randomness = open("/dev/urandom", O_RDWR | O_CLOEXEC | O_NOCTTY);
	watch_open(&port, fd, on_port);
	watch_set(&port, EPOLLIN | EPOLLOUT | EPOLLET);
}
