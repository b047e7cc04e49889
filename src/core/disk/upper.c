/* upper.c - what a box with a kernel of its own has over its image, as an archive
 *
 *   box-init ── channel TAR_UPPER ──► upper ── frames (image.h) ──► a helper that unpacks it
 *
 * The file system of such a box is its own kernel's: the host never mounts it. box-init packs it.
 * A box that sleeps is woken. For one that is stopped, or a snapshot, a reader is started: an
 * instance upon a copy of that disk, without a network and without programs, of which nothing
 * stays.
 *
 * An upper belongs to itself. It ends when all was sent, or when nobody reads any more: the helper
 * is told in the frames why there is nothing. */
#include "core/disk/upper.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "core/core_internal.h"
#include "core/stream_internal.h"
#include "helper/helper.h"
#include "image/image.h"
#include "link/link.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include <errno.h>
#include <sys/socket.h>

enum { READER_MS = 120 * 1000, FRAME_MAX = IMAGE_FEED_MAX };

struct reader {
	char id[BOX_ID_LEN + 1];  /* of the instance, and of its disk in VIEWS */
	char *box, *place, *disk; /* whose disk is copied */
	struct limits limits;
	struct helper *helper; /* copies it */
	struct err err;
	struct instance *instance;
	struct link *link;
	struct loop_timer *timer;
};

struct upper {
	struct upper *next;
	struct yard *yard;
	struct chan *chan;
	struct reader *reader; /* NULL: the box itself is asked */
	int out;
	struct loop_fd *watch;
	struct buf pending; /* frames not written yet */
	size_t owed;	    /* bytes of the box that are in them */
	bool over;	    /* the last frame is among them */
	bool dead;	    /* is freed from the loop: callbacks may still be at work with it */
};

/* ---- frames --------------------------------------------------------------------------------- */

static void upper_free(void *arg);

/* Nothing more is to be done. */
static void upper_end(struct upper *upper)
{
	struct chan *chan = steal_ptr(&upper->chan);

	if (upper->dead)
		return;
	upper->dead = true;
	if (chan)
		chan_close(chan);
	loop_fd_set(upper->watch, 0);
	loop_defer(upper->yard->loop, upper_free, upper);
}

static void flush(struct upper *upper)
{
	while (upper->pending.len && !upper->dead) {
		ssize_t put = send(upper->out, buf_head(&upper->pending), upper->pending.len,
			MSG_NOSIGNAL | MSG_DONTWAIT);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0 && errno == EAGAIN) {
			loop_fd_set(upper->watch, LOOP_WRITE);
			return;
		}
		if (put < 0) /* nobody reads it any more */
			upper->over = true;
		buf_eat(&upper->pending, put < 0 ? upper->pending.len : (size_t)put);
	}
	if (upper->over) {
		upper_end(upper);
		return;
	}
	loop_fd_set(upper->watch, LOOP_HANGUP);
	if (upper->chan)
		chan_consumed(upper->chan, upper->owed);
	upper->owed = 0;
}

static void on_socket(void *arg, unsigned ready)
{
	if (ready & LOOP_HANGUP)
		upper_end(arg);
	else
		flush(arg);
}

static void finish(struct upper *upper, const struct err *err)
{
	if (upper->over || upper->dead)
		return;
	upper->over = true;
	image_feed_end(&upper->pending, err);
	flush(upper);
}

/* ---- the channel ---------------------------------------------------------------------------- */

static void on_data(struct chan *chan, enum wire_stream stream, uint64_t offset, const void *data,
	size_t len, void *arg)
{
	struct upper *upper = arg;
	const uint8_t *at = data;

	(void)chan;
	(void)stream;
	(void)offset;
	if (upper->over)
		return;
	upper->owed += len;
	for (size_t left = len; left;) {
		size_t part = MIN(left, (size_t)FRAME_MAX);

		image_feed_put(&upper->pending, at, part);
		at += part;
		left -= part;
	}
	flush(upper);
}

/* The channel closes itself afterwards. */
static void on_end(struct chan *chan, void *arg)
{
	struct upper *upper = arg;

	upper->chan = NULL;
	chan_close(chan);
	finish(upper, NULL);
}

static void on_error(struct chan *chan, const struct err *err, void *arg)
{
	struct upper *upper = arg;

	(void)chan;
	upper->chan = NULL;
	finish(upper, err);
}

static void on_closed(struct chan *chan, void *arg)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_PROTOCOL, "box-init ended the work early");
	on_error(chan, &err, arg);
}

static const struct chan_ops chan_ops = {
	.on_data = on_data, .on_end = on_end, .on_error = on_error, .on_closed = on_closed
};

/* ---- a reader ------------------------------------------------------------------------------- */

static void reader_failed(struct upper *upper, const struct err *why)
{
	struct err err = *why;

	err_wrap(&err, "read the disk of a box that does not run");
	if (!*err.hint)
		err_hint(&err, "start the box first");
	finish(upper, &err);
}

static void on_link_ready(struct link *link, void *arg)
{
	struct upper *upper = arg;
	struct buf nothing = BUF_INIT;
	struct err err = ERR_INIT;

	upper->chan = chan_open(link, WIRE_OP_TAR_UPPER, &nothing, &chan_ops, upper, &err);
	if (!upper->chan)
		reader_failed(upper, &err);
}

static void on_link_event(
	struct link *link, enum wire_event event, const struct wire_exec_info *info, void *arg)
{
	(void)link;
	(void)event;
	(void)info;
	(void)arg;
}

static void on_link_request(struct link *link, const struct wire_request *request, void *arg)
{
	(void)link;
	(void)request;
	(void)arg;
}

static void on_link_lost(struct link *link, const struct err *err, void *arg)
{
	struct upper *upper = arg;

	upper->reader->link = NULL;
	link_free(link);
	reader_failed(upper, err);
}

static void on_ready(struct instance *instance, void *arg)
{
	static const struct link_ops ops = { .on_ready = on_link_ready,
		.on_event = on_link_event,
		.on_request = on_link_request,
		.on_lost = on_link_lost };
	struct upper *upper = arg;
	struct err err = ERR_INIT;

	upper->reader->link = link_new(upper->yard->loop, -1, &ops, upper);
	if (link_attach_instance(upper->reader->link, instance, &err) < 0)
		reader_failed(upper, &err);
}

static void on_failed(struct instance *instance, const struct err *err, void *arg)
{
	struct upper *upper = arg;

	instance_free(instance);
	upper->reader->instance = NULL;
	reader_failed(upper, err);
}

static void on_ended(
	struct instance *instance, enum instance_end end, const char *detail, void *arg)
{
	struct upper *upper = arg;
	struct err err = ERR_INIT;

	(void)end;
	err_set(&err, ERR_SYSTEM, "its reader ended: %.200s", detail);
	instance_free(instance);
	upper->reader->instance = NULL;
	reader_failed(upper, &err);
}

static void on_oom(struct instance *instance, uint64_t kills, void *arg)
{
	(void)instance;
	(void)kills;
	(void)arg;
}

static const struct instance_ops reader_ops = {
	.on_ready = on_ready, .on_failed = on_failed, .on_ended = on_ended, .on_oom = on_oom
};

static int start_instance(struct upper *upper, struct err *err)
{
	struct reader *reader = upper->reader;
	struct box *box = box_lookup(upper->yard, reader->box);
	const struct image *image =
		box ? images_get(upper->yard->images, box->row.image, err) : NULL;
	_cleanup_free_ char *disk = pool_disk_path(upper->yard->pool, VIEWS, reader->id);
	struct instance_spec spec = {
		.id = reader->id, .hostname = "reader", .disk = disk, .limits = reader->limits
	};
	struct engine *engine;
	int status;

	if (!box)
		return err_set(err, ERR_NOT_FOUND, "the box is gone");
	if (!image || box_engine(box, &engine, err) < 0 ||
		image_file_spec(box, image, &spec.vm, err) < 0)
		return -1;
	status = engine_start(engine, &spec, &reader_ops, upper, &reader->instance, err);
	image_file_done(&spec.vm);
	return status;
}

static int run_copy(int sock, void *arg)
{
	const struct upper *upper = arg;
	const struct reader *reader = upper->reader;
	struct err err = ERR_INIT;

	if (pool_disk_copy(upper->yard->pool, reader->place, reader->disk, VIEWS, reader->id, NULL,
		    POOL_BUDGET_NONE, &err) == 0)
		return 0;
	send(sock, &err, sizeof err, MSG_NOSIGNAL);
	return 1;
}

static void on_copy_message(const void *message, size_t len, void *arg)
{
	struct upper *upper = arg;

	if (len == sizeof upper->reader->err)
		memcpy(&upper->reader->err, message, len);
}

static void on_copied(int code, void *arg)
{
	struct upper *upper = arg;
	struct err err = upper->reader->err;

	upper->reader->helper = NULL;
	if (code && !err.kind)
		err_set(&err, ERR_SYSTEM, "the helper ended with code %d", code);
	if (err.kind || start_instance(upper, &err) < 0)
		reader_failed(upper, &err);
}

static void on_late(void *arg)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_TIMEOUT, "nothing came for %d s", READER_MS / 1000);
	reader_failed(arg, &err);
}

static void reader_free(struct upper *upper, struct reader *reader)
{
	struct err err = ERR_INIT;

	helper_free(reader->helper);
	link_free(steal_ptr(&reader->link));
	if (reader->instance)
		instance_kill(reader->instance, NULL);
	instance_free(reader->instance);
	loop_timer_free(reader->timer);
	if (drivers_sweep(upper->yard->drivers, reader->id, &err) < 0)
		log_warn("parts of a reader were not removed", kv_str("reader", reader->id),
			kv_err(&err));
	pool_disk_discard(upper->yard->pool, VIEWS, reader->id, NULL);
	free(reader->box);
	free(reader->place);
	free(reader->disk);
	free(reader);
}

static int reader_start(
	struct upper *upper, struct box *box, const char *place, const char *disk, struct err *err)
{
	static const struct helper_ops ops = {
		.run = run_copy, .on_message = on_copy_message, .on_exit = on_copied, .light = true
	};
	struct reader *reader = xnew(struct reader);

	upper->reader = reader;
	random_id(reader->id, BOX_ID_LEN);
	reader->box = xstrdup(box->row.id);
	reader->place = xstrdup(place);
	reader->disk = xstrdup(disk);
	reader->limits = (struct limits){ box->row.cpu_milli, box->row.memory_bytes,
		box->row.disk_bytes, box->row.pids };
	reader->timer = loop_timer_new(upper->yard->loop, on_late, upper);
	loop_timer_start(reader->timer, READER_MS);
	return helper_start(upper->yard->loop, &ops, upper, NULL, 0, &reader->helper, err);
}

/* ---- one of them ---------------------------------------------------------------------------- */

static void upper_free(void *arg)
{
	struct upper *upper = arg, **at = &upper->yard->uppers;
	struct chan *chan = steal_ptr(&upper->chan);
	struct reader *reader = steal_ptr(&upper->reader);

	while (*at && *at != upper)
		at = &(*at)->next;
	if (*at)
		*at = upper->next;
	loop_undefer(upper->yard->loop, upper_free, upper);
	if (chan)
		chan_close(chan);
	if (reader)
		reader_free(upper, reader);
	loop_fd_free(upper->watch);
	cleanup_closep(&upper->out);
	buf_done(&upper->pending);
	free(upper);
}

void uppers_close(struct yard *yard)
{
	while (yard->uppers)
		upper_free(yard->uppers);
}

bool box_has_own_kernel(const struct box *box)
{
	struct engine *engine;

	return box_engine(box, &engine, NULL) == 0 && engine_can(engine, ENGINE_OWN_KERNEL);
}

uint64_t upper_bytes_max(const struct box *box)
{
	return box->row.disk_bytes ? box->row.disk_bytes : ENGINE_DISK_DEFAULT;
}

static struct upper *upper_new(struct yard *yard, int out)
{
	struct upper *upper = xnew(struct upper);

	upper->yard = yard;
	upper->out = out;
	upper->watch = loop_fd_new(yard->loop, out, LOOP_HANGUP, on_socket, upper);
	upper->next = yard->uppers;
	yard->uppers = upper;
	return upper;
}

static bool is_awake_or_sleeps(const struct box *box)
{
	return box->state == BOX_RUNNING || box->state == BOX_SUSPENDED ||
	       box->state == BOX_HIBERNATED;
}

int upper_open(struct box *box, const char *place, const char *disk, int *ret, struct err *err)
{
	struct buf nothing = BUF_INIT;
	struct upper *upper;
	int line[2], status;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) < 0)
		return err_sys(err, errno, "make a socket pair");
	upper = upper_new(box->yard, line[1]);
	if (!disk && is_awake_or_sleeps(box))
		status = box_chan_open(
			box, WIRE_OP_TAR_UPPER, &nothing, &chan_ops, upper, &upper->chan, err);
	else
		status = reader_start(
			upper, box, disk ? place : BOX_DISKS, disk ? disk : box->row.id, err);
	if (status < 0) {
		close(line[0]);
		upper_free(upper);
		return err_wrap(err, "read the files of box '%s'", box->row.name);
	}
	*ret = line[0];
	return 0;
}
