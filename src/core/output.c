/* output.c - what the programs of a box wrote last, kept when the box stops
 *
 * Output lives in box-init and would end with it. So a box that is stopped is first asked which
 * programs it has, then each of them is followed like a log while the box ends: what a program says
 * on its way out is kept as well. box-init's own frames are kept as they came, the oldest dropped
 * when there are too many, and written to a file when the instance is gone; output_read.c plays
 * them back. A box that dies by itself is not asked, and nothing is kept of it.
 *
 * The file is not synced: after a power cut it may be missing or torn, and is then not believed. */
#include "core/output_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "loop/loop.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum {
	EXEC_MAX = 256 * 1024, /* bytes of frames of one program */
	PIECE_MAX = 8 * 1024,
	BOX_MAX = 1024 * 1024,	     /* and of all programs of a box */
	YARD_MAX = 64 * 1024 * 1024, /* in memory, for all boxes being stopped */
	KILL_WAIT_MS = 500,	     /* how long a kill may wait for output */
};

struct kept {
	struct saving *saving;
	struct chan *chan; /* NULL: closed, or never opened */
	struct buf info;   /* wire_exec_info as it was when asked for */
	struct buf frames; /* GAP, TIME and DATA */
	struct buf time;   /* the last TIME that was dropped */
	struct wire_exit exit;
	bool has_exit;
	/* Copied from info. */
	char id[WIRE_EXEC_ID_MAX + 1];
	bool running;
	uint64_t oldest, newest;
	unsigned index; /* in the order of their starts */
};

struct saving {
	struct box *box;
	struct chan *list;
	bool kill; /* kill when all output has come; else box-init is asked to shut down at once */
	uint64_t grace_ms;
	bool listed;	   /* box-init has listed its programs */
	struct kept *kept; /* most important first */
	size_t count;
	size_t bytes; /* of all frames */
	unsigned open;
};

static size_t yard_bytes;

char *output_path(const struct box *box)
{
	return xasprintf("%s/" OUTPUT_DIR "/%s", box->yard->conf->home, box->row.id);
}

/* ---- bounds --------------------------------------------------------------------------------- */

static void count_bytes(struct saving *saving, size_t more, size_t less)
{
	saving->bytes += more - less;
	yard_bytes += more - less;
}

static void drop_first(struct kept *kept)
{
	struct wire_frame frame = { 0 };
	size_t len = kept->frames.len;

	/* We wrote these frames ourselves. */
	if (wire_frame_parse(&kept->frames, &frame, NULL) > 0)
		len = WIRE_HEADER + frame.len;
	if (frame.type == WIRE_TIME) {
		kept->time.len = kept->time.head = 0;
		buf_add(&kept->time, buf_head(&kept->frames), len);
	}
	count_bytes(kept->saving, 0, len);
	buf_eat(&kept->frames, len);
}

/* Drops frames of the least important program. */
static bool drop_of_box(struct saving *saving)
{
	for (size_t i = saving->count; i-- > 0;)
		if (saving->kept[i].frames.len) {
			drop_first(&saving->kept[i]);
			return true;
		}
	return false;
}

static void added(struct kept *kept, size_t before)
{
	struct saving *saving = kept->saving;

	count_bytes(saving, kept->frames.len, before);
	while (kept->frames.len > EXEC_MAX)
		drop_first(kept);
	while ((saving->bytes > BOX_MAX || yard_bytes > YARD_MAX) && drop_of_box(saving))
		continue;
}

/* ---- what comes ----------------------------------------------------------------------------- */

static void go_on(struct saving *saving)
{
	struct box *box = saving->box;

	if (saving->kill && !saving->list && !saving->open && box->instance)
		box_kill(box);
}

static void on_data(struct chan *chan, enum wire_stream stream, uint64_t offset, const void *data,
	size_t len, void *arg)
{
	struct kept *kept = arg;
	size_t before = kept->frames.len;

	/* Split into small frames, because frames are dropped whole. */
	for (size_t at = 0; at < len; at += PIECE_MAX)
		wire_add_data(&kept->frames, 1, stream, offset + at, (const char *)data + at,
			MIN(len - at, (size_t)PIECE_MAX));
	added(kept, before);
	chan_consumed(chan, len);
}

static void on_gap(struct chan *chan, uint64_t offset, uint64_t lost, void *arg)
{
	struct kept *kept = arg;
	size_t before = kept->frames.len, mark = wire_begin(&kept->frames, WIRE_GAP, 1);

	(void)chan;
	wire_put_u64(&kept->frames, offset);
	wire_put_u64(&kept->frames, lost);
	wire_end(&kept->frames, mark);
	added(kept, before);
}

static void on_time(struct chan *chan, uint64_t time_us, void *arg)
{
	struct kept *kept = arg;
	size_t before = kept->frames.len, mark = wire_begin(&kept->frames, WIRE_TIME, 1);

	(void)chan;
	wire_put_u64(&kept->frames, time_us);
	wire_end(&kept->frames, mark);
	added(kept, before);
}

static void on_exited(struct chan *chan, const struct wire_exit *exit, void *arg)
{
	struct kept *kept = arg;

	(void)chan;
	kept->exit = *exit;
	kept->has_exit = exit->reason != WIRE_EXIT_RUNNING;
}

static void on_closed(struct chan *chan, void *arg)
{
	struct kept *kept = arg;

	(void)chan;
	kept->chan = NULL;
	kept->saving->open--;
	go_on(kept->saving);
}

static void on_error(struct chan *chan, const struct err *err, void *arg)
{
	(void)err;
	on_closed(chan, arg);
}

/* ---- whose ---------------------------------------------------------------------------------- */

static int rank(const struct kept *kept)
{
	return !strcmp(kept->id, "main") ? 2 : kept->running;
}

static int by_rank(const void *a, const void *b)
{
	const struct kept *one = a, *two = b;

	if (rank(one) != rank(two))
		return rank(two) - rank(one);
	return one->index < two->index ? 1 : -1;
}

static void take_info(struct saving *saving, const struct wire_exec_info *info)
{
	struct kept *kept;

	xgrow(saving->kept, saving->count + 1);
	kept = &saving->kept[saving->count];
	*kept = (struct kept){
		.saving = saving,
		.running = info->reason == WIRE_EXIT_RUNNING,
		.oldest = info->oldest,
		.newest = info->newest,
		.index = (unsigned)saving->count,
	};
	snprintf(kept->id, sizeof kept->id, "%s", info->id);
	wire_put_exec_info(&kept->info, info);
	saving->count++;
}

/* An ended program sends what is kept; a running one is followed to its end. */
static void follow(struct kept *kept, size_t *room)
{
	static const struct chan_ops ops = {
		.on_data = on_data,
		.on_time = on_time,
		.on_gap = on_gap,
		.on_exit = on_exited,
		.on_error = on_error,
		.on_closed = on_closed,
	};
	struct saving *saving = kept->saving;
	uint64_t has = kept->newest > kept->oldest ? kept->newest - kept->oldest : 0;
	size_t part = (size_t)MIN(has, (uint64_t)EXEC_MAX);
	struct wire_attach_spec spec = {
		.id = kept->id,
		.offset = kept->newest - part,
		.follow = kept->running && !saving->kill,
	};
	struct buf request = BUF_INIT;

	if (!part && !kept->running)
		return;
	if (!kept->running && part > *room)
		return;
	*room -= MIN(part, *room);
	wire_put_attach_spec(&request, &spec);
	kept->chan = chan_open(saving->box->link, WIRE_OP_EXEC_ATTACH, &request, &ops, kept, NULL);
	if (kept->chan) {
		chan_set_background(kept->chan);
		saving->open++;
	}
	buf_done(&request);
}

static void on_list(struct chan *chan, struct wire_reader *reply, void *arg)
{
	struct saving *saving = arg;
	uint32_t count = wire_get_u32(reply);
	size_t room = BOX_MAX;

	(void)chan;
	for (uint32_t i = 0; i < count && !reply->bad; i++) {
		struct wire_exec_info info;

		wire_get_exec_info(reply, &info);
		if (!reply->bad)
			take_info(saving, &info);
		free((void *)info.argv);
	}
	saving->listed = wire_get_done(reply, NULL) == 0;
	if (saving->count)
		qsort(saving->kept, saving->count, sizeof *saving->kept, by_rank);
	while (saving->count > OUTPUT_EXECS_MAX) {
		saving->count--;
		buf_done(&saving->kept[saving->count].info);
	}
	for (size_t i = 0; i < saving->count; i++)
		follow(&saving->kept[i], &room);
}

static void on_list_closed(struct chan *chan, void *arg)
{
	struct saving *saving = arg;

	(void)chan;
	saving->list = NULL;
	if (saving->kill)
		go_on(saving);
	else if (saving->box->instance)
		box_ask_shutdown(saving->box, saving->grace_ms);
}

static void on_list_error(struct chan *chan, const struct err *err, void *arg)
{
	(void)err;
	on_list_closed(chan, arg);
}

bool output_save(struct box *box, uint64_t grace_ms)
{
	static const struct chan_ops ops = {
		.on_reply = on_list, .on_error = on_list_error, .on_closed = on_list_closed
	};
	struct saving *saving;

	if (!box->link || !box->link_ready || box->saving || box->row.remove_on_exit)
		return false;
	saving = xnew(struct saving);
	saving->box = box;
	saving->grace_ms = grace_ms;
	saving->kill = !grace_ms;
	saving->list = chan_open(box->link, WIRE_OP_EXEC_LIST, NULL, &ops, saving, NULL);
	if (!saving->list) {
		free(saving);
		return false;
	}
	box->saving = saving;
	box_timer_start(box, grace_ms ? grace_ms + 1500 : KILL_WAIT_MS);
	return true;
}

void output_forget(struct box *box)
{
	struct saving *saving = steal_ptr(&box->saving);

	if (!saving)
		return;
	if (saving->list)
		chan_close(saving->list);
	for (size_t i = 0; i < saving->count; i++) {
		struct kept *kept = &saving->kept[i];

		if (kept->chan)
			chan_close(kept->chan);
		count_bytes(saving, 0, kept->frames.len);
		buf_done(&kept->info);
		buf_done(&kept->frames);
		buf_done(&kept->time);
	}
	free(saving->kept);
	free(saving);
}

/* ---- the file ------------------------------------------------------------------------------- */

/* Offset of the first byte still kept; newest when there is none. */
static uint64_t first_offset(const struct kept *kept, uint64_t newest)
{
	struct buf rest = kept->frames;
	struct wire_frame frame;

	while (wire_frame_parse(&rest, &frame, NULL) > 0) {
		struct wire_reader in = WIRE_READER(&frame);

		if (frame.type == WIRE_DATA) {
			wire_get_u8(&in);
			return wire_get_u64(&in);
		}
		rest.head += WIRE_HEADER + frame.len;
		rest.len -= WIRE_HEADER + frame.len;
	}
	return newest;
}

static void put_kept(struct buf *out, const struct kept *kept)
{
	struct wire_reader in = { buf_head(&kept->info), buf_head(&kept->info) + kept->info.len,
		false };
	struct wire_exec_info info;
	size_t mark;

	wire_get_exec_info(&in, &info);
	if (kept->has_exit) {
		info.reason = kept->exit.reason;
		info.code = kept->exit.code;
		info.signal = kept->exit.signal;
		info.cpu_us = kept->exit.cpu_us;
		info.newest = kept->exit.newest;
		if (!info.ended_us)
			info.ended_us = info.started_us + kept->exit.duration_us;
	}
	info.oldest = first_offset(kept, info.newest);
	mark = wire_begin(out, WIRE_REPLY, 1);
	wire_put_exec_info(out, &info);
	wire_end(out, mark);
	free((void *)info.argv);
	if (kept->time.len)
		buf_add(out, buf_head(&kept->time), kept->time.len);
	buf_add(out, buf_head(&kept->frames), kept->frames.len);
	if (kept->has_exit) {
		mark = wire_begin(out, WIRE_EXIT, 1);
		wire_put_exit(out, &kept->exit);
		wire_end(out, mark);
	}
	mark = wire_begin(out, WIRE_CLOSE, 1);
	wire_end(out, mark);
}

static int write_file(const char *path, const struct buf *data, struct err *err)
{
	_cleanup_free_ char *beside = xasprintf("%s.new", path);
	_cleanup_close_ int fd =
		open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return err_sys(err, errno, "create '%s'", beside);
	if (fd_write_all(fd, buf_head(data), data->len, err) < 0) {
		unlink(beside);
		return -1;
	}
	if (rename(beside, path) < 0)
		return err_sys(err, errno, "rename '%s'", beside);
	return 0;
}

void output_write(struct box *box)
{
	struct saving *saving = box->saving;
	_cleanup_free_ char *dir = xasprintf("%s/" OUTPUT_DIR, box->yard->conf->home);
	_cleanup_free_ char *path = output_path(box);
	struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	size_t mark;

	/* The end of the instance may be known before the last output is read from the socket. */
	if (saving && box->link)
		link_drain(box->link);
	if (!saving || !saving->listed || box->remove_wanted) {
		output_forget(box);
		return;
	}
	/* In the order they were started, as box-init lists them. */
	for (unsigned index = 0, put = 0; put < saving->count; index++)
		for (size_t i = 0; i < saving->count; i++)
			if (saving->kept[i].index == index) {
				put_kept(&out, &saving->kept[i]);
				put++;
			}
	mark = wire_begin(&out, WIRE_END, 0);
	wire_end(&out, mark);
	if (dir_make_all(dir, 0700, &err) < 0 || write_file(path, &out, &err) < 0)
		log_warn("the output of a box cannot be kept", kv_str("box", box->row.id),
			kv_err(&err));
	buf_done(&out);
	output_forget(box);
}

void output_remove(struct box *box)
{
	_cleanup_free_ char *path = output_path(box);

	output_forget(box);
	unlink(path);
}

void output_sweep(struct yard *yard)
{
	_cleanup_free_ char *path = xasprintf("%s/" OUTPUT_DIR, yard->conf->home);
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		bool known = entry->d_name[0] == '.';

		for (size_t i = 0; i < yard->box_count && !known; i++)
			known = !strcmp(yard->boxes[i]->row.id, entry->d_name);
		if (!known)
			unlinkat(dirfd(dir), entry->d_name, 0);
	}
	if (dir)
		closedir(dir);
}
