/* hosts.c - see hosts.h
 *
 * The driver has set the host name; programs look for it in files (sudo complains without). What is in
 * /etc/hosts stays; a line is added when the name stands nowhere in it. */
#include "guest/hosts.h"
#include "base/buf.h"
#include "base/file.h"
#include "guest/conn.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

enum { HOSTS_MAX = 1024 * 1024, HOSTNAME_BYTES = 256 };

static const char localhost_lines[] =
	"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";

/* "" when it is not there or no regular file. *ret_writable: we may write it. */
static char *read_text(const char *path, bool *ret_writable)
{
	struct stat st;
	char *text = NULL;

	*ret_writable = stat(path, &st) == 0 ? S_ISREG(st.st_mode) : errno == ENOENT;
	if (!*ret_writable || file_read(AT_FDCWD, path, HOSTS_MAX, &text, NULL, NULL) < 0)
		return xstrdup("");
	return text;
}

/* In place: the file may be bound or linked from elsewhere, and its owner and mode stay. */
static void write_text(const char *path, const char *text, int flags)
{
	_cleanup_close_ int fd =
		open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags, 0644);

	if (fd >= 0)
		fd_write_all(fd, text, strlen(text), NULL);
}

static bool has_name(char *hosts, const char *name)
{
	char *line, *word;

	while ((line = strsep(&hosts, "\n"))) {
		line[strcspn(line, "#")] = '\0';
		while ((word = strsep(&line, " \t\r")))
			if (!strcmp(word, name))
				return true;
	}
	return false;
}

void hosts_follow_name(void)
{
	char name[HOSTNAME_BYTES] = "";
	bool writable;
	_cleanup_free_ char *hosts = NULL;
	_cleanup_free_ char *hostname = NULL;
	struct buf added = BUF_INIT;

	if (gethostname(name, sizeof name - 1) < 0 || !*name)
		return;
	hostname = read_text("/etc/hostname", &writable);
	hostname[strcspn(hostname, "\n")] = '\0';
	if (writable && strcmp(hostname, name) != 0) {
		buf_addf(&added, "%s\n", name);
		write_text("/etc/hostname", buf_str(&added), O_TRUNC);
		buf_done(&added);
	}
	hosts = read_text("/etc/hosts", &writable);
	if (!*hosts)
		buf_add_str(&added, localhost_lines);
	else if (hosts[strlen(hosts) - 1] != '\n')
		buf_add_str(&added, "\n");
	buf_addf(&added, "127.0.1.1\t%s\n", name);
	if (writable && !has_name(hosts, name))
		write_text("/etc/hosts", buf_str(&added), O_APPEND);
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
