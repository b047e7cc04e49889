/* audit_read.c - lines for readers
 *
 * Files are searched for a number by bisection; there is no index. Lines that cannot match are
 * skipped by searching the wanted words in their bytes, and only the others are parsed. One call
 * reads at most AUDIT_LOOK_MAX bytes, so that a reader with a narrow filter does not block the
 * loop: it calls again. Lines that somebody made unreadable are skipped here; audit_verify finds
 * them. */
#include "audit/audit_internal.h"
#include <errno.h>
#include <fcntl.h>

enum {
	BLOCK = 256 * 1024,
	BLOCK_MAX = AUDIT_LINE_MAX + 1, /* for lines that are longer */
	NEAR = 64 * 1024,		/* this close to a line, reading on is cheaper than
					 * bisection */
};
static_assert(BLOCK_MAX + AUDIT_BEGIN_MAX < AUDIT_LOOK_MAX, "a call gets past the longest line");

/* What to search for, and the words that matching lines must contain. */
struct filter {
	struct audit_filter wanted;
	char *box_word, *verdict_word, *owner_word;
};

static void filter_done(struct filter *filter)
{
	free(filter->box_word);
	free(filter->verdict_word);
	free(filter->owner_word);
}

/* As it is written in a line, with quotes and escapes. */
static char *word_of(const char *text)
{
	_cleanup_json_ json_t *value = text ? json_string(text) : NULL;

	return value ? json_text(value) : NULL;
}

static struct filter filter_of(const struct audit_filter *wanted)
{
	struct filter filter = { .wanted = wanted ? *wanted : (struct audit_filter){ 0 } };
	const char *owner = filter.wanted.owner;

	filter.box_word = word_of(filter.wanted.box);
	filter.verdict_word = word_of(filter.wanted.verdict);
	if (owner && strcmp(owner, AUDIT_OWNER_DEFAULT))
		filter.owner_word = word_of(owner);
	return filter;
}

static bool has_word(const char *line, size_t len, const char *word)
{
	return !word || memmem(line, len, word, strlen(word));
}

static bool is_text(const json_t *line, const char *key, const char *text)
{
	const char *value = json_string_value(json_object_get(line, key));

	return value && !strcmp(value, text);
}

static bool has_owner(const json_t *line, const char *owner)
{
	if (!json_object_get(line, "owner"))
		return !strcmp(owner, AUDIT_OWNER_DEFAULT);
	return is_text(line, "owner", owner);
}

bool audit_fits(const json_t *line, const struct audit_filter *filter)
{
	const char *box = filter->box;

	return (!box || is_text(line, "box", box) || is_text(line, "box_name", box)) &&
	       (!filter->verdict || is_text(line, "verdict", filter->verdict)) &&
	       (!filter->owner || has_owner(line, filter->owner));
}

/* New reference, or NULL: it does not match. */
static json_t *parse_if_fits(const struct filter *filter, const char *line, size_t len)
{
	json_t *value;

	if (!has_word(line, len, filter->box_word) || !has_word(line, len, filter->verdict_word) ||
		!has_word(line, len, filter->owner_word))
		return NULL;
	value = json_parse(line, len, NULL);
	if (value && audit_fits(value, &filter->wanted))
		return value;
	json_decref(value);
	return NULL;
}

static int open_file(const struct audit *audit, size_t at, struct err *err)
{
	char name[AUDIT_NAME_MAX];
	int fd = openat(audit->dir, audit_file_name(audit->files.list[at].number, name),
		O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0) {
		int why = errno;

		err_sys(err, why, "open '%s'", name);
		errno = why;
	}
	return fd;
}

/* ---- forwards ------------------------------------------------------------------------------- */

struct reading {
	const struct filter *filter;
	uint64_t next; /* the first line not read yet */
	size_t budget; /* bytes that may still be read */
	size_t max;
	json_t *lines;
};

/* The file that holds line seq, or would. */
static size_t file_with(const struct audit *audit, uint64_t seq)
{
	size_t at = 0;

	for (size_t i = 1; i < audit->files.count; i++)
		if (audit->files.list[i].first && audit->files.list[i].first <= seq)
			at = i;
	return at;
}

/* The next line that begins after offset: where it begins, and its number. */
static bool next_line(int fd, uint64_t offset, char *block, uint64_t *ret_start, uint64_t *ret_seq)
{
	static const size_t sizes[] = { 8 * 1024, BLOCK_MAX };

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		ssize_t got = audit_pread(fd, block, sizes[i], offset);
		char *newline = got > 0 ? memchr(block, '\n', (size_t)got) : NULL;
		size_t left = newline ? (size_t)(block + got - newline - 1) : 0;

		if (newline && (left >= AUDIT_BEGIN_MAX || (size_t)got < sizes[i])) {
			*ret_start = offset + (uint64_t)(newline + 1 - block);
			return audit_begin_parse(newline + 1, left, ret_seq, NULL);
		}
	}
	return false;
}

/* Where a line begins that is not after line seq, and close to it. */
static uint64_t search(int fd, uint64_t bytes, uint64_t seq, char *block)
{
	uint64_t low = 0, high = bytes;

	while (high - low > NEAR) {
		uint64_t middle = low + (high - low) / 2, start, found;

		if (!next_line(fd, middle, block, &start, &found) || start >= high || found > seq)
			high = middle;
		else
			low = start;
	}
	return low;
}

/* Whole lines of a block; returns how many bytes they are. */
static size_t take_lines(struct reading *reading, const char *block, size_t len)
{
	const char *at = block, *end;
	uint64_t seq;

	while (json_array_size(reading->lines) < reading->max &&
		(end = memchr(at, '\n', (size_t)(block + len - at)))) {
		size_t line = (size_t)(end - at);

		if (audit_line_parse(at, line, &seq, NULL) && seq >= reading->next) {
			json_t *value = parse_if_fits(reading->filter, at, line);

			if (value)
				json_array_append_new(reading->lines, value);
			reading->next = seq + 1;
		}
		at = end + 1;
	}
	return (size_t)(at - block);
}

/* *ret_end: the file has no more. */
static int read_file_lines(const struct audit *audit, size_t at, struct reading *reading,
	bool *ret_end, struct err *err)
{
	_cleanup_close_ int fd = open_file(audit, at, err);
	_cleanup_free_ char *block = xcalloc(1, BLOCK_MAX);
	uint64_t bytes = audit->files.list[at].bytes, offset;
	size_t size = BLOCK;

	*ret_end = true;
	if (fd < 0) /* a file that somebody removed is skipped */
		return errno == ENOENT ? 0 : -1;
	offset = search(fd, bytes, reading->next, block);
	while (offset < bytes && reading->budget &&
		json_array_size(reading->lines) < reading->max) {
		size_t want = MIN(size, bytes - offset);
		ssize_t got = audit_pread(fd, block, want, offset);
		size_t taken = got > 0 ? take_lines(reading, block, (size_t)got) : 0;

		if (got < 0)
			return err_sys(err, errno, "read the audit log");
		if (!taken && want == BLOCK && bytes - offset > BLOCK) {
			size = BLOCK_MAX; /* a long line */
			continue;
		}
		size = BLOCK;
		offset = taken ? offset + taken
			       : bytes; /* no line is longer: somebody changed the file */
		reading->budget -= MIN(reading->budget, taken);
	}
	*ret_end = offset >= bytes;
	return 0;
}

/* The number after the last line of a file: also after missing lines, or a reader would search for
 * them for ever. */
static uint64_t behind(const struct audit *audit, size_t at, uint64_t next)
{
	while (++at < audit->files.count)
		if (audit->files.list[at].first)
			return MAX(next, audit->files.list[at].first);
	return audit->written.seq + 1;
}

json_t *audit_read(struct audit *audit, uint64_t since, const struct audit_filter *wanted,
	unsigned max, uint64_t *ret_next, struct err *err)
{
	_cleanup_(filter_done) struct filter filter = filter_of(wanted);
	struct reading reading = {
		.filter = &filter, .budget = AUDIT_LOOK_MAX, .max = max, .lines = json_array()
	};

	audit_flush(audit, NULL);
	reading.next = MAX(since, audit->oldest.seq + 1);
	while (reading.next <= audit->written.seq && reading.budget &&
		json_array_size(reading.lines) < max) {
		size_t at = file_with(audit, reading.next);
		uint64_t before = reading.next;
		bool end;

		if (read_file_lines(audit, at, &reading, &end, err) < 0) {
			json_decref(reading.lines);
			return NULL;
		}
		if (end || reading.next == before)
			reading.next = behind(audit, at, reading.next);
	}
	*ret_next = MIN(reading.next, audit->written.seq + 1);
	return reading.lines;
}

/* ---- backwards ------------------------------------------------------------------------------ */

struct looking_back {
	const struct filter *filter;
	unsigned left;	/* lines still wanted */
	uint64_t first; /* the earliest line seen */
};

static void look_back(struct looking_back *looking, const char *text, size_t len)
{
	while (len && looking->left) {
		const char *newline = len > 1 ? memrchr(text, '\n', len - 1) : NULL;
		const char *line = newline ? newline + 1 : text;
		size_t line_len = (size_t)(text + len - 1 - line);
		json_t *value;
		uint64_t seq;

		if (audit_line_parse(line, line_len, &seq, NULL)) {
			looking->first = seq;
			value = parse_if_fits(looking->filter, line, line_len);
			looking->left -= value != NULL;
			json_decref(value);
		}
		len = (size_t)(line - text);
	}
}

uint64_t audit_recent(struct audit *audit, const struct audit_filter *wanted, unsigned count)
{
	_cleanup_(filter_done) struct filter filter = filter_of(wanted);
	struct looking_back looking = { .filter = &filter, .left = count };
	size_t budget = AUDIT_LOOK_MAX;

	audit_flush(audit, NULL);
	looking.first = audit->written.seq + 1;
	if (!filter.wanted.box && !filter.wanted.verdict && !filter.wanted.owner)
		return MAX(looking.first - MIN(count, looking.first), audit->oldest.seq + 1);
	for (size_t i = audit->files.count; i-- && looking.left && budget;) {
		const struct audit_file *file = &audit->files.list[i];
		size_t len = MIN(budget, file->bytes);
		_cleanup_close_ int fd = len ? open_file(audit, i, NULL) : -1;
		_cleanup_free_ char *text = len ? xcalloc(1, len) : NULL;

		if (fd >= 0 && audit_pread(fd, text, len, file->bytes - len) == (ssize_t)len)
			look_back(&looking, text, len);
		budget -= len;
	}
	return looking.first;
}

bool audit_knows(struct audit *audit, const struct audit_filter *filter, bool *ret_all)
{
	uint64_t next = 0, first = audit_recent(audit, filter, 1), all = 0;
	_cleanup_json_ json_t *lines = audit_read(audit, first, filter, 1, &next, NULL);

	for (size_t i = 0; i < audit->files.count; i++)
		all += audit->files.list[i].bytes;
	*ret_all = all <= AUDIT_LOOK_MAX;
	return json_array_size(lines);
}
