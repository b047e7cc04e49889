/* hosts.c - see hosts.h
 *
 * The driver has set the host name; programs look for it in files (sudo complains without). Other
 * lines of /etc/hosts stay; a line is added when the name is missing. /etc/hostname has the
 * previous name, and so tells which line we wrote for it. */
#include "guest/hosts.h"
#include "base/buf.h"
#include "base/file.h"
#include "guest/conn.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

enum { HOSTS_MAX = 1024 * 1024, HOSTNAME_BYTES = 256, RENAMES_FOLLOWED = 10 };

static const char localhost_lines[] =
	"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";

/* "" when the file is missing or not readable text. *ret_writable: writing it loses nothing. */
static char *read_text(const char *path, bool *ret_writable)
{
	struct stat st;
	char *text = NULL;
	size_t len = 0;

	*ret_writable = stat(path, &st) == 0 ? S_ISREG(st.st_mode) : errno == ENOENT;
	if (*ret_writable && file_read(AT_FDCWD, path, HOSTS_MAX, &text, &len, NULL) < 0)
		*ret_writable = access(path, F_OK) < 0 && errno == ENOENT;
	if (text && strlen(text) != len)
		*ret_writable = false;
	return text ? text : xstrdup("");
}

/* Written in place: the file may be a mount or a link, and its owner and mode stay. A reader never
 * finds it empty. */
static void write_text(const char *path, const char *text)
{
	_cleanup_close_ int fd =
		open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);

	if (fd >= 0 && fd_write_all(fd, text, strlen(text), NULL) == 0)
		(void)!ftruncate(fd, (off_t)strlen(text));
}

static bool has_name(const char *hosts, const char *name)
{
	_cleanup_free_ char *text = xstrdup(hosts);
	char *rest = text, *line, *word;

	while ((line = strsep(&rest, "\n"))) {
		line[strcspn(line, "#")] = '\0';
		while ((word = strsep(&line, " \t\r")))
			if (!strcmp(word, name))
				return true;
	}
	return false;
}

char *hosts_with_name(const char *hosts, const char *old, const char *name)
{
	_cleanup_free_ char *ours = xasprintf("127.0.1.1\t%s", name);
	_cleanup_free_ char *before = xasprintf("127.0.1.1\t%s", old);
	bool there = has_name(hosts, name), renamed = *old && strcmp(old, name) != 0;
	struct buf out = BUF_INIT;
	char *text;

	if (!*hosts)
		hosts = localhost_lines;
	for (const char *line = hosts, *end; *line; line = *end ? end + 1 : end) {
		size_t len = strcspn(line, "\n");
		bool is_old = renamed && len == strlen(before) && !memcmp(line, before, len);

		end = line + len;
		if (!is_old)
			buf_add(&out, line, len + (*end ? 1 : 0));
		else if (!there)
			buf_addf(&out, "%s\n", ours);
		there = there || is_old;
	}
	if (!there)
		buf_addf(&out, "%s%s\n", hosts[strlen(hosts) - 1] == '\n' ? "" : "\n", ours);
	text = xstrdup(buf_str(&out));
	buf_done(&out);
	return text;
}

static void write_name(const char *name)
{
	bool writable, hosts_writable;
	_cleanup_free_ char *hostname = read_text("/etc/hostname", &writable);
	_cleanup_free_ char *line = xasprintf("%s\n", name);
	_cleanup_free_ char *hosts = NULL, *wanted = NULL;

	hostname[strcspn(hostname, "\n")] = '\0';
	hosts = read_text("/etc/hosts", &hosts_writable);
	wanted = hosts_with_name(hosts, hostname, name);
	if (hosts_writable && strcmp(hosts, wanted) != 0)
		write_text("/etc/hosts", wanted);
	if (writable && strcmp(hostname, name) != 0)
		write_text("/etc/hostname", line);
}

void hosts_follow_name(void)
{
	char name[HOSTNAME_BYTES] = "", now[HOSTNAME_BYTES] = "";

	/* Another process of ours may do the same for a newer name: the last writer must write the
	 * last name. */
	for (int i = 0; i < RENAMES_FOLLOWED; i++) {
		if (gethostname(now, sizeof now - 1) < 0 || !*now || !strcmp(now, name))
			return;
		strcpy(name, now);
		write_name(name);
	}
}

void hosts_write_name(void)
{
	sigset_t none;

	if (fork() != 0)
		return;
	close_range(3, ~0u, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	umask(022);
	hosts_follow_name();
	_exit(0);
}

int hosts_open(struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err)
{
	(void)op;
	if (wire_get_done(in, err) < 0)
		return -1;
	hosts_write_name();
	channel_begin(channel, WIRE_REPLY);
	channel_end(channel);
	channel_close(channel);
	return 0;
}
