/* criu_log.c - what CRIU wrote down when it failed
 *
 * Its lines look like "(00.012345)     17: Error (criu/files-reg.c:1815): Can't lookup mount=..."
 *                                      and carry names of
 * files and programs of hostile processes: all but printable ASCII is replaced. */
#include "engine/ns/criu/criu_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static size_t read_end(int fd, char *out, size_t max, bool *ret_cut)
{
	struct stat st;
	off_t from = 0;
	size_t len = 0;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	if ((uint64_t)st.st_size > max)
		from = st.st_size - (off_t)max;
	*ret_cut = from > 0;
	while (len < max) {
		ssize_t got = pread(fd, out + len, max - len, from + (off_t)len);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		len += (size_t)got;
	}
	return len;
}

void criu_log_tail(int fd, const char *name, char *log)
{
	_cleanup_close_ int file = -1;
	char text[CRIU_LOG_MAX];
	size_t len, from = 0, n = 0;
	bool cut = false;

	log[0] = '\0';
	if (name)
		file = openat(fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (name && file < 0)
		return;
	len = read_end(name ? file : fd, text, sizeof text - 1, &cut);
	if (cut) {
		const char *end = memchr(text, '\n', len);

		from = end ? (size_t)(end - text) + 1 : 0;
	}
	for (; from < len; from++) {
		char c = text[from];

		log[n++] = c == '\n' || (c >= ' ' && c < 0x7f) ? c : c == '\t' ? ' ' : '?';
	}
	log[n] = '\0';
}

/* Every run without CAP_SYS_RESOURCE logs this, and continues. */
static bool is_harmless(const char *line, size_t len)
{
	static const char word[] = "RLIMIT_NOFILE";

	return memmem(line, len, word, sizeof word - 1) != NULL;
}

const char *criu_log_next_error(const char *log, const char **ret, size_t *ret_len)
{
	static const char mark[] = "Error (", after[] = "): ";
	size_t len;

	for (const char *line = log; *line; line += len + (line[len] == '\n')) {
		const char *found, *text;

		len = strcspn(line, "\n");
		found = memmem(line, len, mark, sizeof mark - 1);
		if (!found || is_harmless(line, len))
			continue;
		text = memmem(found, len - (size_t)(found - line), after, sizeof after - 1);
		*ret = text ? text + sizeof after - 1 : found;
		*ret_len = len - (size_t)(*ret - line);
		return line + len;
	}
	return NULL;
}

void criu_log_error(const char *log, char *out, size_t size)
{
	const char *text;
	size_t len;

	out[0] = '\0';
	if (criu_log_next_error(log, &text, &len))
		criu_text_clean(out, size, text, len);
}

/* The first "In process 17 (node)"; else the number before the first error, which in a restore is
 * the pid. */
bool criu_log_process(const char *log, char *out, size_t size)
{
	static const char mark[] = "In process ";
	const char *at = log, *text;
	size_t len;
	long number = 0;

	out[0] = '\0';
	while ((at = criu_log_next_error(at, &text, &len))) {
		const char *line = text;

		if (len > sizeof mark - 1 && memcmp(text, mark, sizeof mark - 1) == 0) {
			if (text[sizeof mark - 1] == '0') /* it has ended */
				continue;
			criu_text_clean(out, size, text + 3, len - 3);
			return true;
		}
		while (line > log && line[-1] != '\n')
			line--;
		if (*line == '(') /* the time */
			line += strcspn(line, ")\n");
		line += strspn(line, ") ");
		if (!number && *line >= '1' && *line <= '9')
			number = strtol(line, NULL, 10);
	}
	if (number > 0)
		snprintf(out, size, "process %ld", number);
	return number > 0;
}
