/* trust.c - see trust.h
 *
 * Most programs read one file, which differs between systems; each existing one gets the
 * certificates that it lacks. update-ca-certificates finds the added file by its name, so that an
 * upgrade in the box keeps them. Programs with their own list get variables (spawn.c): node takes
 * additional certificates, Python's requests and OpenSSL another file.
 *
 * This runs in PID 1 before anything else: nothing here may block, whatever the image holds. */
#include "guest/trust.h"
#include "base/alloc.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ADDED "/usr/local/share/ca-certificates/boxyard-machine.crt"
#define END   "-----END CERTIFICATE-----\n"

enum { ADDED_MAX = 1024 * 1024, LIST_MAX = 8 * 1024 * 1024 };

static const char *const lists[] = {
	"/etc/ssl/certs/ca-certificates.crt", /* Debian, Alpine, Arch */
	"/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora */
	"/etc/ssl/ca-bundle.pem",	      /* SUSE */
};
static const char *list, *added;

/* Reads a whole regular file, with a 0 after it; NULL: not possible. Yours. */
static char *read_all(int fd, size_t max)
{
	struct stat st;
	char *text;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size > max)
		return NULL;
	text = xcalloc(1, (size_t)st.st_size + 1);
	if (pread(fd, text, (size_t)st.st_size, 0) == st.st_size)
		return text;
	free(text);
	return NULL;
}

/* Compares PEM text, which is how we and update-ca-certificates copy it. */
static void add_missing(int fd, const char *known, const char *more)
{
	const char *end;

	if (*known && known[strlen(known) - 1] != '\n' && write(fd, "\n", 1) != 1)
		return;
	for (; (end = strstr(more, END)); more = end + strlen(END)) {
		size_t len = (size_t)(end + strlen(END) - more);
		_cleanup_free_ char *one = xstrndup(more, len);

		if (!strstr(known, one) && write(fd, one, len) != (ssize_t)len)
			return;
	}
}

static bool has_all(const char *known, const char *more)
{
	const char *end;

	for (; (end = strstr(more, END)); more = end + strlen(END)) {
		_cleanup_free_ char *one = xstrndup(more, (size_t)(end + strlen(END) - more));

		if (!strstr(known, one))
			return false;
	}
	return true;
}

static bool complete(const char *path, const char *more)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), out = -1;
	_cleanup_free_ char *known = read_all(fd, LIST_MAX), *now = NULL;

	if (!known)
		return false;
	if (has_all(known, more))
		return true;
	/* Only now, because opening it for writing copies it out of the image. */
	out = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (out >= 0)
		add_missing(out, known, more);
	cleanup_closep(&fd);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	now = read_all(fd, LIST_MAX + ADDED_MAX);
	return now && has_all(now, more);
}

void trust_open(void)
{
	_cleanup_close_ int fd = open(ADDED, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	_cleanup_free_ char *more = read_all(fd, ADDED_MAX);

	if (!more || !*more)
		return;
	added = ADDED;
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
		if (complete(lists[i], more) && !list)
			list = lists[i];
}

const char *trust_get_list(void)
{
	return list;
}

const char *trust_get_added(void)
{
	return added;
}
