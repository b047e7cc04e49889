/* audit_open.c - continues where the last daemon ended
 *
 *   the end        the last whole line; what follows it was torn by a crash and is cut off
 *   head           at the last line, or before it when the daemon was killed between the two
 *                  writes. After it: the newest lines are gone, by a power cut or by somebody
 *   tail           right before the first line, or before a later file when the daemon was killed
 *                  while it removed the oldest
 *
 * Whatever is found, the log continues after its last line: a daemon that does not start would be
 * worse. A line of type "audit" reports what is wrong, with what the mark said, and audit_verify
 * points at these lines. */
#include "audit/audit_internal.h"
#include "base/file.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

enum { BLOCK = 64 * 1024, NUMBER_TRIES = 100 };

static void note(json_t *notes, const char *reason, const char *key, uint64_t value)
{
	log_warn("audit log", kv_str("reason", reason), kv_int(key, value));
	json_array_append_new(
		notes, json_pack("{s:s,s:I}", "reason", reason, key, (json_int_t)value));
}

int audit_begin_file(struct audit *audit, struct err *err)
{
	uint64_t number =
		audit->files.count ? audit->files.list[audit->files.count - 1].number + 1 : 1;
	char name[AUDIT_NAME_MAX];
	int fd = -1;

	for (int i = 0; fd < 0 && i < NUMBER_TRIES; i++, number++) {
		fd = openat(audit->dir, audit_file_name(number, name),
			O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0 && errno != EEXIST)
			break;
	}
	if (fd < 0)
		return err_sys(err, errno, "create '%s'", name);
	cleanup_closep(&audit->fd);
	audit->fd = fd;
	xgrow(audit->files.list, audit->files.count + 1);
	audit->files.list[audit->files.count++] = (struct audit_file){ .number = number - 1 };
	return 0;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Where the line that ends before `end` begins: after a newline, or at 0. */
static int line_start(int fd, uint64_t end, uint64_t *ret, struct err *err)
{
	_cleanup_free_ char *block = xcalloc(1, BLOCK);

	while (end) {
		size_t len = MIN(end, BLOCK);
		char *found;

		if (audit_pread(fd, block, len, end - len) != (ssize_t)len)
			return err_sys(err, errno, "read the audit log");
		found = memrchr(block, '\n', len);
		if (found) {
			*ret = end - len + (uint64_t)(found - block) + 1;
			return 0;
		}
		end -= len;
	}
	*ret = 0;
	return 0;
}

static int cut_torn(struct audit *audit, struct audit_file *file, json_t *notes, struct err *err)
{
	uint64_t whole;

	if (line_start(audit->fd, file->bytes, &whole, err) < 0)
		return -1;
	if (whole == file->bytes)
		return 0;
	note(notes, "a torn line was cut off", "bytes", file->bytes - whole);
	if (ftruncate(audit->fd, (off_t)whole) < 0)
		return err_sys(err, errno, "cut off a torn line");
	file->bytes = whole;
	if (!whole)
		file->first = 0;
	return 0;
}

/* The last line of a file that ends with a newline; *ret_read false: it is not a line of ours. */
static int last_line(struct audit *audit, int fd, uint64_t bytes, struct audit_point *ret,
	bool *ret_read, struct err *err)
{
	_cleanup_free_ char *line = xcalloc(1, AUDIT_LINE_MAX);
	uint64_t start, len;

	*ret_read = false;
	if (line_start(fd, bytes - 1, &start, err) < 0)
		return -1;
	len = bytes - 1 - start;
	if (len > AUDIT_LINE_MAX)
		return 0;
	if (audit_pread(fd, line, len, start) != (ssize_t)len)
		return err_sys(err, errno, "read the audit log");
	*ret_read = audit_line_parse(line, len, &ret->seq, NULL);
	sha256_hex(line, len, ret->hash);
	return 0;
}

/* Opens the newest file and finds the last line, which is in the one before when the newest is
 * empty. */
static int find_end(struct audit *audit, bool *ret_found, json_t *notes, struct err *err)
{
	bool readable = false;

	*ret_found = false;
	for (size_t i = audit->files.count; i-- && !*ret_found;) {
		struct audit_file *file = &audit->files.list[i];
		bool newest = i + 1 == audit->files.count;
		char name[AUDIT_NAME_MAX];
		_cleanup_close_ int fd = openat(audit->dir, audit_file_name(file->number, name),
			(newest ? O_RDWR | O_APPEND : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);

		if (fd < 0)
			return err_sys(err, errno, "open '%s'", name);
		if (newest) {
			audit->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
			if (audit->fd < 0 || cut_torn(audit, file, notes, err) < 0)
				return err_wrap(err, "'%s'", name);
		}
		if (!file->bytes)
			continue;
		*ret_found = true;
		if (last_line(audit, fd, file->bytes, &audit->written, &readable, err) < 0)
			return err_wrap(err, "'%s'", name);
	}
	if (*ret_found && !readable) {
		audit->written.seq = 0;
		note(notes, "the last line cannot be read", "file",
			audit->files.list[audit->files.count - 1].number);
	}
	return 0;
}

/* ---- the marks ------------------------------------------------------------------------------ */

static bool read_mark(
	struct audit *audit, const char *name, struct audit_point *ret, bool wanted, json_t *notes)
{
	struct err err = ERR_INIT;
	bool there = false;

	if (audit_mark_read(audit->dir, name, ret, &there, &err) == 0 && (there || !wanted))
		return there;
	note(notes, there ? "a mark cannot be read" : "a mark is missing", name, 0);
	return false;
}

static void tell_mark(
	json_t *notes, const char *reason, const struct audit_point *mark, uint64_t found)
{
	log_warn("audit log", kv_str("reason", reason), kv_int("expected", mark->seq),
		kv_int("found", found));
	json_array_append_new(notes,
		json_pack("{s:s,s:I,s:s,s:I}", "reason", reason, "expected", (json_int_t)mark->seq,
			"expected_hash", mark->hash, "found", (json_int_t)found));
}

static void settle_head(struct audit *audit, bool found, json_t *notes)
{
	struct audit_point head = audit_point_zero();
	bool there = read_mark(audit, "head", &head, found, notes);

	if (there && !found) {
		if (head.seq)
			tell_mark(notes, "all lines are missing", &head, 0);
		audit->written = head;
	} else if (found &&
		   !audit->written.seq) { /* not readable: numbers continue above all that are
					   * known */
		for (size_t i = 0; i < audit->files.count; i++)
			head.seq = MAX(head.seq, audit->files.list[i].first);
		audit->written.seq = head.seq;
	} else if (there && head.seq > audit->written.seq) {
		tell_mark(notes, "the newest lines are missing", &head, audit->written.seq);
	} else if (there && head.seq == audit->written.seq &&
		   strcmp(head.hash, audit->written.hash)) {
		tell_mark(notes, "the last line was changed", &head, audit->written.seq);
	}
}

/* Finishes a removal of old files that was interrupted. */
static bool finish_removal(struct audit *audit, const struct audit_point *tail)
{
	char name[AUDIT_NAME_MAX];
	size_t at = 1;

	while (at < audit->files.count && audit->files.list[at].first != tail->seq + 1)
		at++;
	if (at >= audit->files.count)
		return false;
	for (size_t i = 0; i < at; i++)
		unlinkat(audit->dir, audit_file_name(audit->files.list[i].number, name), 0);
	audit->files.count -= at;
	memmove(audit->files.list, audit->files.list + at,
		audit->files.count * sizeof *audit->files.list);
	return true;
}

static void settle_tail(struct audit *audit, bool found, json_t *notes)
{
	struct audit_point tail = audit_point_zero(), first = audit_point_zero();
	bool there = read_mark(audit, "tail", &tail, found, notes);
	char name[AUDIT_NAME_MAX];
	_cleanup_close_ int fd = -1;

	audit->oldest = tail;
	if (!found) {
		audit->oldest = audit->written;
		return;
	}
	fd = openat(audit->dir, audit_file_name(audit->files.list[0].number, name),
		O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || !audit_first_line(fd, &first.seq, first.hash)) {
		note(notes, "the oldest line cannot be read", "file", audit->files.list[0].number);
		return;
	}
	first.seq--;
	if (audit_point_equal(&tail, &first) || (there && finish_removal(audit, &tail)))
		return;
	if (there)
		tell_mark(notes, "the oldest lines are missing or changed", &tail, first.seq);
	audit->oldest = first;
}

/* ---- opening -------------------------------------------------------------------------------- */

int audit_open_folder(struct audit *audit, struct err *err)
{
	const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;

	cleanup_closep(&audit->dir);
	cleanup_closep(&audit->head);
	cleanup_closep(&audit->tail);
	audit->dir = audit->head = audit->tail = -1;
	if (dir_make_all(audit->folder, 0700, err) < 0)
		return -1;
	audit->dir = open(audit->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (audit->dir < 0)
		return err_sys(err, errno, "open '%s'", audit->folder);
	audit->head = openat(audit->dir, "head", flags, 0600);
	audit->tail = openat(audit->dir, "tail", flags, 0600);
	if (audit->head < 0 || audit->tail < 0)
		return err_sys(err, errno, "open the marks in '%s'", audit->folder);
	return 0;
}

static int pick_up(struct audit *audit, json_t *notes, struct err *err)
{
	bool found;

	if (find_end(audit, &found, notes, err) < 0)
		return -1;
	settle_head(audit, found, notes);
	settle_tail(audit, found, notes);
	audit->last = audit->written;
	if (!audit->files.count && audit_begin_file(audit, err) < 0)
		return -1;
	if (audit_mark_write(audit->head, &audit->written, err) < 0 ||
		audit_mark_write(audit->tail, &audit->oldest, err) < 0)
		return -1;
	audit_drop_oldest(audit);
	return 0;
}

int audit_open(struct loop *loop, const char *folder, const struct audit_options *options,
	struct audit **ret, struct err *err)
{
	_cleanup_(audit_closep) struct audit *audit = audit_new(loop, folder, options);
	_cleanup_json_ json_t *notes = json_array();
	json_t *one;
	size_t i;

	if (audit_open_folder(audit, err) < 0 ||
		audit_files_list(audit->dir, &audit->files, err) < 0 ||
		pick_up(audit, notes, err) < 0)
		return err_wrap(err, "open the audit log");
	json_array_foreach (notes, i, one)
		audit_add_note(audit, json_incref(one));
	audit_flush(audit, NULL);
	*ret = steal_ptr(&audit);
	return 0;
}
