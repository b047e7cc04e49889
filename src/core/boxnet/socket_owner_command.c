/* socket_owner_command.c - reads the command line of a process without the risk of hanging
 *
 * A command line lies in the memory of its process, and reading it takes a lock of that memory. A
 * box can hold this lock for as long as it likes (a page fault in a file system of its own, and a
 * thread that waits behind it), and the reader waits as long: that must never be the daemon. So a
 * small process of ours reads it: it gets the opened file and answers with the text. When the
 * answer does not come in time, the name of the process, which needs no lock, is used instead.
 * While an answer is outstanding nothing else is asked, and after a second the reader is killed and
 * replaced. */
#include "core/boxnet/socket_owner.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "sys/fdpass.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { PATIENCE_US = 1000000 };

static struct reader {
	pid_t pid;    /* 0: none */
	pid_t ending; /* killed, not reaped yet; 0: none */
	int sock;
	bool owes;
	int64_t asked_us;
} reader = { .sock = -1 };

/* ---- the reader ----------------------------------------------------------------------------- */

static int receive_fd(int sock)
{
	struct fdpass came;
	int fd = -1;
	char byte;

	if (fdpass_receive(sock, &byte, 1, &fd, 1, 0, &came) <= 0)
		_exit(0); /* the daemon has ended */
	return fd;
}

static _Noreturn void reader_main(int sock)
{
	char text[SOCKET_OWNER_COMMAND_MAX];
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "box-who");
	setsid();
	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(sock, 3) < 0)
		_exit(1);
	close_range(4, ~0U, 0);
	for (;;) {
		int fd = receive_fd(3);
		ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof text);

		if (fd >= 0)
			close(fd);
		if (send(3, text, (size_t)MAX(len, 0), MSG_NOSIGNAL) < 0)
			_exit(0);
	}
}

/* ---- the daemon's end ----------------------------------------------------------------------- */

static bool reader_has_ended(void)
{
	if (reader.ending && waitpid(reader.ending, NULL, WNOHANG) != 0)
		reader.ending = 0;
	return !reader.ending;
}

static void reader_kill(void)
{
	if (!reader.pid)
		return;
	kill(reader.pid, SIGKILL); /* our child, not reaped: the pid is still its own */
	cleanup_closep(&reader.sock);
	reader.ending = reader.pid;
	reader.pid = 0;
	reader.sock = -1;
	reader_has_ended();
}

void socket_owner_close(void)
{
	reader_kill();
	while (reader.ending && waitpid(reader.ending, NULL, 0) < 0 && errno == EINTR)
		continue;
	reader.ending = 0;
}

static bool reader_start(void)
{
	int pair[2];

	/* A reader that even SIGKILL has not ended yet is not replaced. */
	if (!reader_has_ended() || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return false;
	reader.pid = fork();
	if (reader.pid == 0)
		reader_main(pair[1]);
	close(pair[1]);
	if (reader.pid < 0) {
		log_warn("cannot start the reader of command lines", kv_int("errno", errno));
		reader.pid = 0;
		close(pair[0]);
		return false;
	}
	reader.sock = pair[0];
	reader.owes = false;
	return true;
}

static bool send_fd(int fd)
{
	return fdpass_send(reader.sock, "", 1, &fd, 1, MSG_DONTWAIT) == 1;
}

/* The outstanding answer, if it comes before till; else -1. */
static ssize_t answer(int64_t till, char *text)
{
	struct pollfd ready = { .fd = reader.sock, .events = POLLIN };
	int64_t left = till - clock_mono_us();
	struct timespec wait = { .tv_nsec = MAX(left, 0) * 1000 };
	ssize_t len = -1;

	if (ppoll(&ready, 1, &wait, NULL) > 0) {
		len = recv(reader.sock, text, SOCKET_OWNER_COMMAND_MAX, MSG_DONTWAIT);
		reader.owes = false;
		if (ready.revents & (POLLHUP | POLLERR))
			reader_kill();
	} else if (clock_mono_us() - reader.asked_us > PATIENCE_US) {
		reader_kill();
	}
	return len;
}

/* Whether a request can be sent: a reader exists and has answered everything. */
static bool reader_is_free(void)
{
	char old[SOCKET_OWNER_COMMAND_MAX];

	if (reader.pid && reader.owes)
		answer(0, old);
	return reader.pid ? !reader.owes : reader_start();
}

static size_t ask(int cmdline, int64_t till, char text[SOCKET_OWNER_COMMAND_MAX])
{
	ssize_t len;

	if (!reader_is_free())
		return 0;
	if (!send_fd(cmdline)) {
		reader_kill();
		return 0;
	}
	reader.owes = true;
	reader.asked_us = clock_mono_us();
	len = answer(till, text);
	return len > 0 ? (size_t)len : 0;
}

/* ---- text ----------------------------------------------------------------------------------- */

static size_t rune_len(unsigned char first)
{
	return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

void socket_owner_line(const char *text, size_t len, char *out)
{
	while (len && !text[len - 1])
		len--;
	for (size_t i = 0; i < len;) {
		unsigned char first = (unsigned char)text[i];
		size_t rune = rune_len(first);

		if (first >= 0xc2 && i + rune > len)
			break;
		if (first == '\0') {
			*out++ = ' ';
			rune = 1;
		} else if (first < ' ' || first == 0x7f || !text_is_utf8(text + i, rune) ||
			   (first == 0xc2 && (unsigned char)text[i + 1] < 0xa0)) {
			*out++ = '?';
			rune = 1;
		} else {
			memcpy(out, text + i, rune);
			out += rune;
		}
		i += rune;
	}
	*out = '\0';
}

/* "[name]": the kernel's name of the process. */
static void name_in_brackets(int proc, char *out)
{
	_cleanup_close_ int fd = openat(proc, "comm", O_RDONLY | O_CLOEXEC);
	char name[16], line[sizeof name + 1] = "";
	ssize_t len = fd < 0 ? 0 : read(fd, name, sizeof name);

	if (len > 0)
		socket_owner_line(name, (size_t)len - (name[len - 1] == '\n'), line);
	snprintf(out, SOCKET_OWNER_COMMAND_MAX, "[%s]", line);
}

void socket_owner_command(int proc, int64_t till, char ret[SOCKET_OWNER_COMMAND_MAX + 1])
{
	_cleanup_close_ int cmdline = openat(proc, "cmdline", O_RDONLY | O_CLOEXEC);
	char text[SOCKET_OWNER_COMMAND_MAX];
	size_t len = cmdline < 0 ? 0 : ask(cmdline, till, text);

	if (len)
		socket_owner_line(text, len, ret);
	if (!len || !*ret)
		name_in_brackets(proc, ret);
}
