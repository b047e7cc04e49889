/* audit_verify.c - checks the whole chain, from outside
 *
 * The daemon may be writing meanwhile. So the marks are read first, then all files are opened; if
 * `tail` has moved by then, it begins again: once a file is open, its removal does no harm. The
 * files must reach `head` as it was at the beginning; they may continue after it, and the very last
 * line may be incomplete. After head a file can even be cut and written again (a full disk): a
 * fault found there counts only when it is found twice.
 *
 *   tail ── file ── file ── file ── (head as it was) ── what was written since
 *
 * A fault is reported at the line where it shows. A changed line shows in the next one, whose
 * "prev" is not its hash: then the changed line is reported. */
#include "audit/audit_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum {
	BLOCK = 1024 * 1024,
	OPEN_TRIES = 100,
	BELIEVE_TRIES = 3,
	NOTES_MAX = 20,
};

#define NOTE_WORD "\"type\":\"audit\""

struct verify {
	int dir;
	struct audit_files files;
	int *fds;
	struct audit_point tail, head;
	bool has_head, has_tail;
	struct audit_point at; /* the last line that was right */
	size_t at_file;	       /* the file it was in */
	uint64_t at_line;
	bool head_seen;
	uint64_t lines, first, bytes;
	json_t *notes;
	char problem[256]; /* "": none */
	char file[AUDIT_NAME_MAX];
	uint64_t line; /* 0: the file as a whole */
};

static void verify_done(struct verify *verify)
{
	for (size_t i = 0; verify->fds && i < verify->files.count; i++)
		cleanup_closep(&verify->fds[i]);
	free(verify->fds);
	audit_files_done(&verify->files);
	json_decref(verify->notes);
}

/* Keeps the first fault; returns false always. */
static __attribute__((format(printf, 4, 5))) bool fault(
	struct verify *verify, const char *file, uint64_t line, const char *fmt, ...)
{
	va_list ap;

	if (verify->problem[0])
		return false;
	va_start(ap, fmt);
	vsnprintf(verify->problem, sizeof verify->problem, fmt, ap);
	va_end(ap);
	snprintf(verify->file, sizeof verify->file, "%s", file);
	verify->line = line;
	return false;
}

static const char *name_of(const struct verify *verify, size_t file, char name[AUDIT_NAME_MAX])
{
	return audit_file_name(verify->files.list[file].number, name);
}

/* ---- opening -------------------------------------------------------------------------------- */

/* A mark with invalid contents is a fault, not an error. */
static int read_mark(struct verify *verify, const char *name, struct audit_point *ret,
	bool *ret_there, struct err *err)
{
	struct err why = ERR_INIT;

	if (audit_mark_read(verify->dir, name, ret, ret_there, &why) == 0)
		return 0;
	if (why.kind != ERR_PROTOCOL)
		return err_set(err, why.kind, "%s", why.message);
	*ret_there = false;
	fault(verify, name, 1, "%s", why.message);
	return 0;
}

static int open_files(struct verify *verify, bool *ret_all, struct err *err)
{
	struct audit_point tail = audit_point_zero();
	bool has_tail;
	char name[AUDIT_NAME_MAX];

	if (audit_files_list(verify->dir, &verify->files, err) < 0)
		return -1;
	verify->fds = xnewn(int, verify->files.count + 1);
	*ret_all = true;
	for (size_t i = 0; i < verify->files.count; i++) {
		verify->fds[i] = openat(verify->dir, name_of(verify, i, name),
			O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (verify->fds[i] < 0 && errno != ENOENT)
			return err_sys(err, errno, "open '%s'", name);
		*ret_all = *ret_all && verify->fds[i] >= 0;
	}
	if (read_mark(verify, "tail", &tail, &has_tail, err) < 0)
		return -1;
	*ret_all =
		*ret_all && has_tail == verify->has_tail && audit_point_equal(&tail, &verify->tail);
	return 0;
}

static int open_all(struct verify *verify, struct err *err)
{
	int dir = verify->dir;
	bool all = false;

	for (int i = 0; i < OPEN_TRIES && !all; i++) {
		verify_done(verify);
		*verify = (struct verify){ .dir = dir,
			.notes = json_array(),
			.tail = audit_point_zero(),
			.head = audit_point_zero() };
		if (read_mark(verify, "head", &verify->head, &verify->has_head, err) < 0 ||
			read_mark(verify, "tail", &verify->tail, &verify->has_tail, err) < 0 ||
			open_files(verify, &all, err) < 0)
			return -1;
	}
	if (all && !verify->files.count && !verify->has_head && !verify->has_tail &&
		!verify->problem[0])
		return err_set(err, ERR_NOT_FOUND, "there is no audit log in this folder");
	if (!all)
		return err_set(
			err, ERR_UNAVAILABLE, "the files change faster than they can be opened");
	return 0;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void take_note(struct verify *verify, const char *line, size_t len, uint64_t seq)
{
	_cleanup_json_ json_t *value = NULL;
	const char *type;

	if (json_array_size(verify->notes) == NOTES_MAX ||
		!memmem(line, len, NOTE_WORD, strlen(NOTE_WORD)))
		return;
	value = json_parse(line, len, NULL);
	type = json_string_value(json_object_get(value, "type"));
	if (type && !strcmp(type, "audit"))
		json_array_append_new(verify->notes, json_integer((json_int_t)seq));
}

static bool check_head(struct verify *verify)
{
	char name[AUDIT_NAME_MAX];

	if (verify->at.seq != verify->head.seq || !verify->has_head)
		return true;
	verify->head_seen = true;
	if (!strcmp(verify->at.hash, verify->head.hash))
		return true;
	return fault(verify, name_of(verify, verify->at_file, name), verify->at_line,
		"line %" PRIu64 " is not the one that head knows", verify->at.seq);
}

static bool check_line(
	struct verify *verify, size_t file, uint64_t number, const char *line, size_t len)
{
	char prev[SHA256_HEX + 1], name[AUDIT_NAME_MAX];
	uint64_t seq, wanted = verify->at.seq + 1;

	name_of(verify, file, name);
	if (!audit_line_parse(line, len, &seq, prev))
		return fault(verify, name, number,
			"this is not a line of the log; number %" PRIu64 " should be here", wanted);
	if (seq != wanted)
		return fault(verify, name, number,
			"number %" PRIu64 " should be here, not %" PRIu64
			": lines were removed, put in or moved",
			wanted, seq);
	if (strcmp(prev, verify->at.hash)) {
		if (!verify->lines)
			return fault(verify, name, number,
				"the first line does not follow what tail says");
		name_of(verify, verify->at_file, name);
		return fault(verify, name, verify->at_line,
			"number %" PRIu64 " was changed, or what the next one says of it",
			verify->at.seq);
	}
	sha256_hex(line, len, verify->at.hash);
	verify->at.seq = seq;
	verify->at_file = file;
	verify->at_line = number;
	verify->first = verify->first ? verify->first : seq;
	verify->lines++;
	verify->bytes += len + 1;
	take_note(verify, line, len, seq);
	return check_head(verify);
}

/* False: there is a fault, or reading failed (err->kind is set). */
static bool check_file(struct verify *verify, size_t file, char *block, struct err *err)
{
	bool newest = file + 1 == verify->files.count;
	char name[AUDIT_NAME_MAX], *end;
	uint64_t number = 0;
	size_t kept = 0;

	for (uint64_t offset = 0;;) {
		ssize_t got = audit_pread(verify->fds[file], block + kept, BLOCK - kept, offset);
		char *at = block;

		if (got < 0) {
			err_sys(err, errno, "read '%s'", name_of(verify, file, name));
			return false;
		}
		offset += (uint64_t)got;
		kept += (size_t)got;
		while ((end = memchr(at, '\n', (size_t)(block + kept - at)))) {
			if (!check_line(verify, file, ++number, at, (size_t)(end - at)))
				return false;
			at = end + 1;
		}
		kept -= (size_t)(at - block);
		memmove(block, at, kept);
		if (got == 0 || kept > AUDIT_LINE_MAX)
			break;
	}
	/* An incomplete line is allowed where the daemon is writing, or was when it died. */
	if (kept && (!newest || kept > AUDIT_LINE_MAX))
		return fault(
			verify, name_of(verify, file, name), number + 1, "this line has no end");
	return true;
}

/* ---- the chain ------------------------------------------------------------------------------ */

/* Files before the one that tail points at were about to be removed. */
static size_t first_file(const struct verify *verify)
{
	for (size_t i = 1; i < verify->files.count; i++)
		if (verify->files.list[i].first == verify->tail.seq + 1)
			return i;
	return 0;
}

static bool check_chain(struct verify *verify, struct err *err)
{
	_cleanup_free_ char *block = xcalloc(1, BLOCK);
	char name[AUDIT_NAME_MAX];

	if (verify->problem[0])
		return false;
	if (verify->files.count && (!verify->has_head || !verify->has_tail))
		return fault(verify, verify->has_head ? "tail" : "head", 0, "the mark is missing");
	verify->at = verify->tail;
	check_head(verify);
	for (size_t i = first_file(verify); i < verify->files.count; i++) {
		uint64_t number = verify->files.list[i].number;

		if (verify->lines && number != verify->files.list[i - 1].number + 1)
			return fault(verify, audit_file_name(number - 1, name), 0,
				"the file is missing");
		if (!check_file(verify, i, block, err))
			return false;
	}
	if (verify->has_head && !verify->head_seen)
		return fault(verify,
			verify->files.count ? name_of(verify, verify->files.count - 1, name)
					    : "head",
			verify->files.count ? verify->at_line + 1 : 0,
			"the newest lines are missing: head is at number %" PRIu64
			", the last line is number %" PRIu64,
			verify->head.seq, verify->at.seq);
	return true;
}

static json_t *result_json(const struct verify *verify)
{
	bool bad = verify->problem[0];
	json_t *result = json_pack("{s:b,s:I,s:I,s:I,s:s,s:I,s:O,s:s?,s:s?}", "ok", !bad, "lines",
		(json_int_t)verify->lines, "first", (json_int_t)verify->first, "last",
		(json_int_t)verify->at.seq, "hash", verify->at.hash, "bytes",
		(json_int_t)verify->bytes, "notes", verify->notes, "problem",
		bad ? verify->problem : NULL, "file", bad ? verify->file : NULL);

	json_object_set_new(result, "line",
		bad && verify->line ? json_integer((json_int_t)verify->line) : json_null());
	return result;
}

json_t *audit_verify(const char *folder, struct err *err)
{
	_cleanup_close_ int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct verify verify = { .dir = dir };
	struct err why = ERR_INIT;
	json_t *result = NULL;
	bool again = dir >= 0;

	if (dir < 0)
		err_sys(&why, errno, "open '%s'", folder);
	for (int i = 0; again && i < BELIEVE_TRIES; i++) {
		if (open_all(&verify, &why) < 0)
			break;
		check_chain(&verify, &why);
		again = verify.problem[0] && !why.kind && verify.head_seen;
	}
	if (why.kind)
		err_set(err, why.kind, "check the audit log: %s", why.message);
	else
		result = result_json(&verify);
	verify_done(&verify);
	return result;
}
