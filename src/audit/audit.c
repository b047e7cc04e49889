/* audit.c - writes lines into files
 *
 * A line is made and chained at once and then waits with others for the next write: one write() for
 * all of them, then the mark `head`. Nothing is synced; a power cut may cost the last seconds, and
 * the next start sees and reports that by the marks.
 *
 * After a failed write the file is as it was before (what was written is cut off) and the lines go
 * on waiting: the chain has no gap, whatever the disk does. When too many lines wait, new events
 * are only counted, and a line tells how many as soon as lines can be written again. Old files are
 * not removed to make room: a box that fills the disk must not be able to erase its traces.
 *
 * When a file reaches its size another is begun. If there are too many, `tail` first moves past the
 * oldest file, then the file is removed: a crash in between leaves a file that the next start
 * removes. */
#include "audit/audit_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "loop/loop.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
	WRITE_MS = 50,
	RETRY_MS = 1000,
	WRITE_AT = 64 * 1024,	   /* with this many bytes waiting, they are written at once */
	WAITING_MAX = 1024 * 1024, /* with this many bytes waiting, events are only counted */
	CUT_TEXT_MAX = 256,
	FILES_DEFAULT = 16,
	FILE_BYTES_DEFAULT = 64 * 1024 * 1024,
};

/* ---- lines ---------------------------------------------------------------------------------- */

/* The main facts of an event that is too long: who, what and the result. New reference. */
static json_t *first_facts(json_t *event)
{
	static const char *const kept[] = { "at", "box", "box_name", "type", "verdict", "name",
		"address", "port", "protocol", "rule", "reason" };
	json_t *facts = json_object();

	for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
		json_t *value = json_object_get(event, kept[i]);

		if (json_is_integer(value) ||
			(json_is_string(value) && json_string_length(value) <= CUT_TEXT_MAX))
			json_object_set(facts, kept[i], value);
	}
	json_object_set_new(facts, "cut", json_true());
	return facts;
}

/* Writes the event after the beginning of a line, as ",key":…}"; returns the length, 0 when it does
 * not fit. */
static size_t put_rest(char *out, size_t room, const json_t *event)
{
	size_t len = json_dumpb(event, out, room, JSON_COMPACT);

	if (len < 2 || len > room)
		return 0;
	if (len == 2) { /* {} */
		out[0] = '}';
		return 1;
	}
	out[0] = ',';
	return len;
}

/* The event as it is in the file, for followers. New reference. */
static json_t *as_written(const struct audit_point *before, const char *at, json_t *event)
{
	json_t *line =
		json_pack("{s:I,s:s}", "seq", (json_int_t)before->seq + 1, "prev", before->hash);

	if (at)
		json_object_set_new(line, "at", json_string(at));
	json_object_update(line, event);
	return line;
}

static void make_line(struct audit *audit, json_t *event)
{
	_cleanup_json_ json_t *facts = NULL;
	char now[CLOCK_RFC3339_MAX], *at = NULL;
	char *line = (char *)buf_room(&audit->waiting, AUDIT_LINE_MAX + 1);
	struct audit_point before = audit->last;
	size_t begin, rest;

	if (!json_object_get(event, "at"))
		at = clock_rfc3339(clock_wall_us(), now);
	begin = audit_line_begin(line, &before, at);
	rest = put_rest(line + begin, AUDIT_LINE_MAX - begin, event);
	if (!rest) {
		facts = first_facts(event);
		event = facts;
		if (!at && !json_object_get(event, "at"))
			begin = audit_line_begin(
				line, &before, at = clock_rfc3339(clock_wall_us(), now));
		rest = put_rest(line + begin, AUDIT_LINE_MAX - begin, event);
	}
	sha256_hex(line, begin + rest, audit->last.hash);
	audit->last.seq++;
	line[begin + rest] = '\n';
	buf_grew(&audit->waiting, begin + rest + 1);
	if (audit->feeds)
		json_array_append_new(audit->told, as_written(&before, at, event));
}

size_t audit_add(struct audit *audit, json_t *event)
{
	_cleanup_json_ json_t *owned = event;
	size_t before = audit->waiting.len, len;
	bool first = !before;

	assert(json_is_object(event));
	if (audit->waiting.len >= WAITING_MAX) {
		audit->lost++;
		audit->lost_untold++;
		return 0;
	}
	if (json_object_get(event, "seq") || json_object_get(event, "prev")) {
		owned = json_copy(event);
		json_decref(event);
		json_object_del(owned, "seq");
		json_object_del(owned, "prev");
	}
	make_line(audit, owned);
	len = audit->waiting.len - before;
	if (audit->trouble[0])
		return len; /* the timer runs */
	if (audit->waiting.len >= MIN(WRITE_AT, audit->file_bytes))
		audit_flush(audit, NULL);
	else if (first)
		loop_timer_start(audit->timer, WRITE_MS);
	return len;
}

void audit_add_note(struct audit *audit, json_t *note)
{
	json_t *line = json_pack("{s:s}", "type", "audit");

	json_object_update(line, note);
	json_decref(note);
	audit_add(audit, line);
}

/* ---- files ---------------------------------------------------------------------------------- */

static struct audit_file *newest(const struct audit *audit)
{
	return &audit->files.list[audit->files.count - 1];
}

/* The point before the first line of the second file. */
static bool point_before_second(const struct audit *audit, struct audit_point *ret)
{
	char name[AUDIT_NAME_MAX];
	_cleanup_close_ int fd =
		openat(audit->dir, audit_file_name(audit->files.list[1].number, name),
			O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 || !audit_first_line(fd, &ret->seq, ret->hash))
		return false;
	ret->seq--;
	return true;
}

uint64_t audit_get_file(const struct audit *audit)
{
	return newest(audit)->number;
}

void audit_drop_oldest(struct audit *audit)
{
	struct err err = ERR_INIT;
	char name[AUDIT_NAME_MAX];

	while (audit->files.count > audit->files_kept) {
		struct audit_point point = audit->oldest;

		/* A file whose beginning cannot be read was damaged: the chain is broken there
		 * anyway. */
		if (point_before_second(audit, &point) &&
			audit_mark_write(audit->tail, &point, &err) < 0) {
			log_error("cannot remove an old file of the audit log", kv_err(&err));
			return;
		}
		audit->oldest = point;
		unlinkat(audit->dir, audit_file_name(audit->files.list[0].number, name), 0);
		memmove(audit->files.list, audit->files.list + 1,
			--audit->files.count * sizeof *audit->files.list);
	}
}

static bool newest_was_removed(const struct audit *audit)
{
	struct stat st;

	return fstat(audit->fd, &st) == 0 && st.st_nlink == 0;
}

/* Somebody removed the newest file, perhaps with all others and the folder. Nobody could read what
 * is written to it now, so a new one is begun. */
static int begin_anew(struct audit *audit, struct err *err)
{
	if (!audit->trouble[0])
		log_error("the newest file of the audit log was removed",
			kv_int("file", newest(audit)->number));
	if (audit_open_folder(audit, err) < 0 || audit_begin_file(audit, err) < 0)
		return -1;
	return audit_mark_write(audit->tail, &audit->oldest, err);
}

/* Begins another file when it is time; while that fails, the old one is used further. */
static void rotate(struct audit *audit)
{
	struct err err = ERR_INIT;

	if (newest(audit)->bytes < audit->file_bytes)
		return;
	if (audit_begin_file(audit, &err) < 0) {
		if (!audit->rotation_failed)
			log_error("cannot begin a new file of the audit log", kv_err(&err));
		audit->rotation_failed = true;
		return;
	}
	audit->rotation_failed = false;
	audit_drop_oldest(audit);
}

/* ---- writing -------------------------------------------------------------------------------- */

static int write_waiting(struct audit *audit, struct err *err)
{
	struct audit_file *file;

	if (newest_was_removed(audit)) {
		if (begin_anew(audit, err) < 0)
			return -1;
		audit_drop_oldest(audit);
	} else {
		rotate(audit);
	}
	file = newest(audit);
	/* What a failed write left must be removed first, or the next line would follow half of
	 * another. */
	if (audit->trouble[0] && ftruncate(audit->fd, (off_t)file->bytes) < 0)
		return err_sys(err, errno, "cut off half a line");
	if (fd_write_all(audit->fd, buf_head(&audit->waiting), audit->waiting.len, err) < 0) {
		if (ftruncate(audit->fd, (off_t)file->bytes) < 0)
			log_warn("half a line stays in the audit log for now");
		return -1;
	}
	if (!file->first && audit->waiting.len)
		file->first = audit->written.seq + 1;
	file->bytes += audit->waiting.len;
	audit->waiting.len = audit->waiting.head = 0;
	audit->written = audit->last;
	return audit_mark_write(audit->head, &audit->written, err);
}

static void hand_out(struct audit *audit)
{
	_cleanup_json_ json_t *told = audit->told;
	json_t *line;
	size_t i;

	audit->told = json_array();
	audit->feeding++;
	json_array_foreach (told, i, line)
		for (struct audit_feed *feed = audit->feeds; feed; feed = feed->next)
			if (!feed->dead)
				feed->fn(feed->arg, line);
	if (--audit->feeding)
		return;
	for (struct audit_feed **at = &audit->feeds; *at;) {
		struct audit_feed *feed = *at;

		if (feed->dead) {
			*at = feed->next;
			free(feed);
		} else {
			at = &feed->next;
		}
	}
}

static void set_trouble(struct audit *audit, const struct err *why)
{
	if (!audit->trouble[0])
		log_error("the audit log cannot be written", kv_str("folder", audit->folder),
			kv_err(why));
	snprintf(audit->trouble, sizeof audit->trouble, "%s", why->message);
	loop_timer_start(audit->timer, RETRY_MS);
}

static void end_trouble(struct audit *audit)
{
	uint64_t lost = audit->lost_untold;

	log_info("the audit log is written again", kv_int("lost", lost));
	audit->trouble[0] = '\0';
	audit->lost_untold = 0;
	if (lost)
		audit_add_note(audit, json_pack("{s:s,s:I}", "reason",
					      "events were lost: the log could not be written",
					      "lost", (json_int_t)lost));
}

int audit_flush(struct audit *audit, struct err *err)
{
	struct err why = ERR_INIT;

	/* While writing fails, there may be nothing but the mark left to write. */
	if (!audit->waiting.len && !audit->trouble[0])
		return 0;
	loop_timer_stop(audit->timer);
	if (write_waiting(audit, &why) < 0) {
		set_trouble(audit, &why);
		return err_set(err, why.kind, "write the audit log: %s", why.message);
	}
	hand_out(audit);
	if (!audit->trouble[0])
		return 0;
	end_trouble(audit);
	return audit_flush(audit, err);
}

static void on_timer(void *arg)
{
	audit_flush(arg, NULL);
}

const char *audit_trouble(const struct audit *audit)
{
	return audit->trouble[0] ? audit->trouble : NULL;
}

/* ---- the rest ------------------------------------------------------------------------------- */

struct audit *audit_new(struct loop *loop, const char *folder, const struct audit_options *options)
{
	struct audit *audit = xnew(struct audit);

	audit->loop = loop;
	audit->timer = loop_timer_new(loop, on_timer, audit);
	audit->folder = xstrdup(folder);
	audit->dir = audit->head = audit->tail = audit->fd = -1;
	audit->file_bytes =
		options && options->file_bytes ? options->file_bytes : FILE_BYTES_DEFAULT;
	audit->files_kept = MAX(2, options && options->files ? options->files : FILES_DEFAULT);
	audit->told = json_array();
	audit->oldest = audit->written = audit->last = audit_point_zero();
	return audit;
}

void audit_close(struct audit *audit)
{
	struct err err = ERR_INIT;

	if (!audit)
		return;
	if (audit_flush(audit, &err) < 0)
		log_error("the last lines of the audit log are lost", kv_err(&err));
	if (audit->fd >= 0)
		fdatasync(audit->fd);
	while (audit->feeds) {
		struct audit_feed *feed = audit->feeds;

		audit->feeds = feed->next;
		free(feed);
	}
	loop_timer_free(audit->timer);
	audit_files_done(&audit->files);
	buf_done(&audit->waiting);
	json_decref(audit->told);
	cleanup_closep(&audit->dir);
	cleanup_closep(&audit->head);
	cleanup_closep(&audit->tail);
	cleanup_closep(&audit->fd);
	free(audit->folder);
	free(audit);
}

json_t *audit_json(const struct audit *audit)
{
	uint64_t bytes = audit->waiting.len;

	for (size_t i = 0; i < audit->files.count; i++)
		bytes += audit->files.list[i].bytes;
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:s?}", "lines",
		(json_int_t)(audit->last.seq - audit->oldest.seq), "oldest",
		(json_int_t)audit->oldest.seq + 1, "next", (json_int_t)audit->last.seq + 1, "bytes",
		(json_int_t)bytes, "files", (json_int_t)audit->files.count, "lost",
		(json_int_t)audit->lost, "trouble", audit_trouble(audit));
}

const char *audit_get_folder(const struct audit *audit)
{
	return audit->folder;
}

uint64_t audit_get_oldest(const struct audit *audit)
{
	return audit->oldest.seq + 1;
}

uint64_t audit_get_next(const struct audit *audit)
{
	return audit->written.seq + 1;
}

struct audit_feed *audit_feed_new(
	struct audit *audit, void (*fn)(void *arg, json_t *event), void *arg)
{
	struct audit_feed *feed = xnew(struct audit_feed);

	/* Lines made while nobody followed are not kept for followers, so they must be in the file
	 * by now. */
	audit_flush(audit, NULL);
	*feed = (struct audit_feed){ .audit = audit, .fn = fn, .arg = arg, .next = audit->feeds };
	audit->feeds = feed;
	return feed;
}

void audit_feed_free(struct audit_feed *feed)
{
	if (!feed)
		return;
	if (feed->audit->feeding) {
		feed->dead = true;
		return;
	}
	for (struct audit_feed **at = &feed->audit->feeds; *at; at = &(*at)->next)
		if (*at == feed) {
			*at = feed->next;
			break;
		}
	free(feed);
}
