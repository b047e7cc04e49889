/* copy_stdio.c - see copy_stdio.h */
#include "cli/copy_stdio.h"
#include "base/file.h"
#include "cli/cli.h"
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>

enum { CHUNK = 64 * 1024 };

static void copy_all(int from, int to)
{
	static char data[CHUNK];
	ssize_t got;

	while ((got = read(from, data, sizeof data)) > 0 || (got < 0 && errno == EINTR))
		if (got > 0 && fd_write_all(to, data, (size_t)got, NULL) < 0)
			return;
}

/* One process per direction: neither waits for the other. */
int copy_stdio(struct cli *cli, int fd)
{
	struct err err = ERR_INIT;
	pid_t child;

	signal(SIGPIPE, SIG_IGN);
	child = fork();
	if (child < 0) {
		err_sys(&err, errno, "fork");
		close(fd);
		return cli_fail(cli, &err);
	}
	if (child == 0) {
		copy_all(STDIN_FILENO, fd);
		/* The caller has disconnected: the daemon notices at once, and the other process
		 * ends. */
		shutdown(fd, SHUT_RDWR);
		_exit(0);
	}
	copy_all(fd, STDOUT_FILENO);
	kill(child, SIGKILL);
	close(fd);
	return 0;
}
