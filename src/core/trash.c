/* trash.c - folders on their way out
 *
 * A folder is renamed into BOX_HOME/trash, which takes no time at any size, and removed from there by a
 * forked helper, one at a time. What a dead daemon left there is removed by the next one. */
#include "core/core_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <dirent.h>

enum {
	GATHER_MS = 200, /* one helper for many folders */
	ASK_MS = 1000,
};

struct trash {
	struct loop *loop;
	char *path;
	int dirfd;
	struct loop_timer *timer;
	pid_t helper; /* 0: none */
	int pidfd;
	struct loop_fd *watch;
	bool more; /* something came while the helper ran */
};

/* False: the helper still works. */
static bool reap_helper(struct trash *trash)
{
	int status = 0;

	if (waitpid(trash->helper, &status, WNOHANG) == 0)
		return false;
	loop_fd_free(steal_ptr(&trash->watch));
	cleanup_closep(&trash->pidfd);
	trash->pidfd = -1;
	trash->helper = 0;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		log_warn(
			"some removed folders are still in the trash", kv_str("path", trash->path));
	return true;
}

static void on_helper_end(void *arg, unsigned ready)
{
	struct trash *trash = arg;

	(void)ready;
	if (reap_helper(trash) && trash->more)
		loop_timer_start(trash->timer, GATHER_MS);
}

static int empty_all(int dirfd)
{
	DIR *dir = fdopendir(dup(dirfd));
	struct dirent *entry;
	int ret = 0;

	if (!dir)
		return 1;
	rewinddir(dir);
	while ((entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
			tree_remove(dirfd, entry->d_name, NULL) < 0)
			ret = 1;
	closedir(dir);
	return ret;
}

static void start_helper(void *arg)
{
	struct trash *trash = arg;

	if (trash->helper && !reap_helper(trash)) {
		trash->more = true;
		if (trash->pidfd < 0)
			loop_timer_start(trash->timer, ASK_MS);
		return;
	}
	trash->more = false;
	trash->helper = fork();
	if (trash->helper == 0) {
		/* It outlives the daemon on purpose: half-removed folders are of no use to anybody. */
		setpriority(PRIO_PROCESS, 0, 10);
		close_range(3, (unsigned)trash->dirfd - 1, 0);
		close_range((unsigned)trash->dirfd + 1, ~0U, 0);
		_exit(empty_all(trash->dirfd));
	}
	if (trash->helper < 0) {
		log_warn("cannot start the trash helper", kv_int("errno", errno));
		trash->helper = 0;
		loop_timer_start(trash->timer, ASK_MS);
		return;
	}
	trash->pidfd = (int)syscall(SYS_pidfd_open, trash->helper, 0);
	if (trash->pidfd < 0) {
		/* Out of descriptors: nothing tells of its end, so the timer asks. */
		loop_timer_start(trash->timer, ASK_MS);
		return;
	}
	trash->watch = loop_fd_new(trash->loop, trash->pidfd, LOOP_READ, on_helper_end, trash);
}

struct trash *trash_open(struct loop *loop, const char *home, struct err *err)
{
	struct trash *trash = xnew(struct trash);

	trash->loop = loop;
	trash->pidfd = -1;
	trash->path = xasprintf("%s/trash", home);
	if (mkdir(trash->path, 0700) < 0 && errno != EEXIST)
		err_sys(err, errno, "mkdir '%s'", trash->path);
	trash->dirfd = open(trash->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (trash->dirfd < 0) {
		err_sys(err, errno, "open '%s'", trash->path);
		free(trash->path);
		free(trash);
		return NULL;
	}
	trash->timer = loop_timer_new(loop, start_helper, trash);
	if (!trash_is_empty(trash))
		loop_timer_start(trash->timer, GATHER_MS);
	return trash;
}

void trash_close(struct trash *trash)
{
	if (!trash)
		return;
	loop_timer_free(trash->timer);
	loop_fd_free(trash->watch);
	if (trash->pidfd >= 0)
		close(trash->pidfd);
	close(trash->dirfd);
	free(trash->path);
	free(trash);
}

int trash_take(struct trash *trash, const char *path, struct err *err)
{
	char name[17];

	random_id(name, 16);
	if (renameat(AT_FDCWD, path, trash->dirfd, name) < 0 && errno != ENOENT)
		return err_sys(err, errno, "move '%s' to the trash", path);
	if (trash->helper)
		trash->more = true;
	else
		loop_timer_start(trash->timer, GATHER_MS);
	return 0;
}

bool trash_is_empty(struct trash *trash)
{
	DIR *dir = fdopendir(openat(trash->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct dirent *entry;
	bool empty = true;

	while (dir && empty && (entry = readdir(dir)))
		empty = entry->d_name[0] == '.';
	if (dir)
		closedir(dir);
	return empty;
}
