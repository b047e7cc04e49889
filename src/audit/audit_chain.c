/* audit_chain.c - the form of lines, marks and file names
 *
 * A line begins with {"seq":N,"prev":"64 hex digits", always in this order and without spaces, so
 * that its place in the chain is read without a JSON parser, and a file can be searched for a
 * number by bisection. */
#include "audit/audit_internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
	FILES_MAX = 65536, /* more are not files of this log */
	SEQ_DIGITS = 20,
	MARK_LEN = SEQ_DIGITS + 1 + SHA256_HEX + 1, /* "00000000000000000042 9f86…\n" */
	MARK_TRIES = 100,
};

#define FILE_PREFIX "audit-"
#define FILE_SUFFIX ".jsonl"
#define LINE_SEQ    "{\"seq\":"
#define LINE_PREV   ",\"prev\":\""

/* ---- points and lines ----------------------------------------------------------------------- */

struct audit_point audit_point_zero(void)
{
	struct audit_point point = { 0 };

	memset(point.hash, '0', SHA256_HEX);
	return point;
}

bool audit_point_equal(const struct audit_point *a, const struct audit_point *b)
{
	return a->seq == b->seq && !strcmp(a->hash, b->hash);
}

size_t audit_line_begin(char *out, const struct audit_point *before, const char *at)
{
	int len = snprintf(out, AUDIT_BEGIN_MAX, LINE_SEQ "%" PRIu64 LINE_PREV "%s\"%s%s%s",
		before->seq + 1, before->hash, at ? ",\"at\":\"" : "", at ? at : "",
		at ? "\"" : "");

	return (size_t)len;
}

/* Reads a decimal number without leading zeros; returns the end of it, NULL when there is none. */
static const char *read_number(const char *at, const char *end, uint64_t *ret)
{
	const char *start = at;
	uint64_t number = 0;

	for (; at < end && *at >= '0' && *at <= '9'; at++)
		if (__builtin_mul_overflow(number, 10, &number) ||
			__builtin_add_overflow(number, (uint64_t)(*at - '0'), &number))
			return NULL;
	if (at == start || (*start == '0' && at > start + 1))
		return NULL;
	*ret = number;
	return at;
}

static bool is_hash(const char *text)
{
	for (size_t i = 0; i < SHA256_HEX; i++)
		if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
			return false;
	return true;
}

bool audit_begin_parse(
	const char *line, size_t len, uint64_t *ret_seq, char ret_prev[SHA256_HEX + 1])
{
	const char *at = line + strlen(LINE_SEQ), *end = line + len;

	if (len < strlen(LINE_SEQ) || memcmp(line, LINE_SEQ, strlen(LINE_SEQ)))
		return false;
	at = read_number(at, end, ret_seq);
	if (!at || *ret_seq == 0 || (size_t)(end - at) < strlen(LINE_PREV) + SHA256_HEX + 2)
		return false;
	if (memcmp(at, LINE_PREV, strlen(LINE_PREV)))
		return false;
	at += strlen(LINE_PREV);
	if (!is_hash(at) || memcmp(at + SHA256_HEX, "\",", 2))
		return false;
	if (ret_prev) {
		memcpy(ret_prev, at, SHA256_HEX);
		ret_prev[SHA256_HEX] = '\0';
	}
	return true;
}

bool audit_line_parse(
	const char *line, size_t len, uint64_t *ret_seq, char ret_prev[SHA256_HEX + 1])
{
	return len && line[len - 1] == '}' && audit_begin_parse(line, len, ret_seq, ret_prev);
}

/* ---- marks ---------------------------------------------------------------------------------- */

int audit_mark_write(int fd, const struct audit_point *point, struct err *err)
{
	char text[MARK_LEN + 1];
	ssize_t put;

	snprintf(text, sizeof text, "%020" PRIu64 " %s\n", point->seq, point->hash);
	put = pwrite(fd, text, MARK_LEN, 0);
	if (put != MARK_LEN)
		return err_sys(err, put < 0 ? errno : ENOSPC, "write a mark");
	return 0;
}

static bool mark_parse(const char *text, ssize_t len, struct audit_point *ret)
{
	uint64_t seq = 0;

	if (len != MARK_LEN || text[SEQ_DIGITS] != ' ' || text[MARK_LEN - 1] != '\n' ||
		!is_hash(text + SEQ_DIGITS + 1))
		return false;
	for (int i = 0; i < SEQ_DIGITS; i++)
		if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(seq, 10, &seq) ||
			__builtin_add_overflow(seq, (uint64_t)(text[i] - '0'), &seq))
			return false;
	ret->seq = seq;
	memcpy(ret->hash, text + SEQ_DIGITS + 1, SHA256_HEX);
	ret->hash[SHA256_HEX] = '\0';
	return true;
}

int audit_mark_read(
	int dir, const char *name, struct audit_point *ret, bool *ret_there, struct err *err)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char text[MARK_LEN + 1], again[MARK_LEN + 1];
	ssize_t len = 0;

	if (fd < 0 && errno != ENOENT)
		return err_sys(err, errno, "open '%s'", name);
	/* A read may happen in the middle of a write of the daemon: a mark that is the same twice
	 * is complete. */
	for (int i = 0; fd >= 0 && i < MARK_TRIES; i++) {
		len = audit_pread(fd, text, sizeof text, 0);
		if (len < 0)
			return err_sys(err, errno, "read '%s'", name);
		if (audit_pread(fd, again, sizeof again, 0) == len &&
			!memcmp(text, again, (size_t)len))
			break;
	}
	*ret_there = fd >= 0 && len > 0;
	if (*ret_there && !mark_parse(text, len, ret))
		return err_set(err, ERR_PROTOCOL, "'%s' does not hold a number and a hash", name);
	return 0;
}

/* ---- files ---------------------------------------------------------------------------------- */

ssize_t audit_pread(int fd, void *data, size_t len, uint64_t offset)
{
	size_t got = 0;

	while (got < len) {
		ssize_t part = pread(fd, (char *)data + got, len - got, (off_t)(offset + got));

		if (part < 0 && errno == EINTR)
			continue;
		if (part < 0)
			return -1;
		if (part == 0)
			break;
		got += (size_t)part;
	}
	return (ssize_t)got;
}

char *audit_file_name(uint64_t number, char out[AUDIT_NAME_MAX])
{
	snprintf(out, AUDIT_NAME_MAX, FILE_PREFIX "%06" PRIu64 FILE_SUFFIX, number % 1000000000000);
	return out;
}

static bool number_of(const char *name, uint64_t *ret)
{
	char same[AUDIT_NAME_MAX];
	uint64_t number = 0;

	if (strncmp(name, FILE_PREFIX, strlen(FILE_PREFIX)))
		return false;
	for (const char *p = name + strlen(FILE_PREFIX); *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(number, 10, &number) ||
			__builtin_add_overflow(number, (uint64_t)(*p - '0'), &number))
			return false;
	*ret = number;
	return number && !strcmp(audit_file_name(number, same), name);
}

static int by_number(const void *a, const void *b)
{
	const struct audit_file *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

bool audit_first_line(int fd, uint64_t *ret_seq, char ret_prev[SHA256_HEX + 1])
{
	char text[AUDIT_BEGIN_MAX];
	ssize_t len = audit_pread(fd, text, sizeof text, 0);

	return len > 0 && audit_begin_parse(text, (size_t)len, ret_seq, ret_prev);
}

static void look_at(int dir, struct audit_file *file)
{
	char name[AUDIT_NAME_MAX];
	_cleanup_close_ int fd = openat(dir, audit_file_name(file->number, name),
		O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return;
	file->bytes = (uint64_t)st.st_size;
	if (!audit_first_line(fd, &file->first, NULL))
		file->first = 0;
}

int audit_files_list(int dir, struct audit_files *ret, struct err *err)
{
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = copy < 0 ? NULL : fdopendir(copy);
	struct audit_files files = { 0 };
	struct dirent *entry;
	uint64_t number;

	if (!entries) {
		err_sys(err, errno, "read the folder");
		cleanup_closep(&copy);
		return -1;
	}
	while ((entry = readdir(entries)) && files.count < FILES_MAX)
		if (number_of(entry->d_name, &number)) {
			xgrow(files.list, files.count + 1);
			files.list[files.count++] = (struct audit_file){ .number = number };
		}
	closedir(entries);
	if (files.count)
		qsort(files.list, files.count, sizeof *files.list, by_number);
	for (size_t i = 0; i < files.count; i++)
		look_at(dir, &files.list[i]);
	*ret = files;
	return 0;
}

void audit_files_done(struct audit_files *files)
{
	free(files->list);
	*files = (struct audit_files){ 0 };
}
