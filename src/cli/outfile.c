/* outfile.c - see outfile.h
 *
 * A path typed by the user is opened with RESOLVE_NO_SYMLINKS. Only when that meets a symlink the
 * path is walked by hand, to tell symlinks of the machine (root's, in a folder that only root can
 * write) from others, and to say which one is meant. For root itself every symlink may have been
 * planted by an earlier copy, so only those right below / count as the machine's. */
#include "cli/outfile.h"
#include "base/alloc.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/syscall.h>

enum { LINKS_MAX = 40, TEMP_TRIES = 16 };

static int open_without_links(int dir, const char *path, int flags, uint64_t resolve)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC),
		.resolve = resolve | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

int outdir_open_beneath(int dir, const char *path, int flags)
{
	return open_without_links(dir, *path ? path : ".", flags, RESOLVE_BENEATH);
}

/* ---- links of the machine ------------------------------------------------------------------- */

static bool is_root_folder(int dir)
{
	struct stat here, root;

	return fstat(dir, &here) == 0 && stat("/", &root) == 0 && here.st_dev == root.st_dev &&
	       here.st_ino == root.st_ino;
}

static bool is_of_the_machine(int dir, const struct stat *link)
{
	struct stat folder;

	if (link->st_uid != 0 || fstat(dir, &folder) < 0 || folder.st_uid != 0 ||
		(folder.st_mode & 0022))
		return false;
	return geteuid() != 0 || is_root_folder(dir);
}

static int refuse_link(
	int dir, const char *name, const char *path, const char *rest, struct err *err)
{
	char target[256];
	ssize_t len = readlinkat(dir, name, target, sizeof target - 1);

	target[MAX(len, 0)] = '\0';
	err_set(err, ERR_FORBIDDEN,
		"'%.200s' is a symlink; what comes out of a box is not written through links",
		path);
	return err_hint(err, "it points to '%.100s%s%.60s': give that path", target,
		*rest ? "/" : "", rest);
}

/* The target of a symlink, followed by the components of path that are not resolved yet. */
static char *join_link(const char *target, const char *rest)
{
	return *rest ? xasprintf("%s/%s", target, rest) : xstrdup(target);
}

/* Resolves one component after the other; *dir is the folder so far. Only called when a symlink is
 * in the way. */
static int walk(const char *typed, int *dir, struct err *err)
{
	_cleanup_free_ char *path = xstrdup(typed);
	char *at = path;
	int links = 0;

	*dir = open(*at == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (at += strspn(at, "/"); *dir >= 0 && *at;) {
		size_t len = strcspn(at, "/");
		_cleanup_free_ char *name = xstrndup(at, len);
		const char *rest = at + len + strspn(at + len, "/");
		struct stat st;
		int next;

		if (fstatat(*dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode)) {
			_cleanup_free_ char *target = xnewn(char, PATH_MAX);
			char *longer;

			if (!is_of_the_machine(*dir, &st) || links++ == LINKS_MAX)
				return refuse_link(*dir, name, typed, rest, err);
			if (readlinkat(*dir, name, target, PATH_MAX - 1) < 0)
				return err_sys(err, errno, "'%s'", typed);
			longer = join_link(target, rest);
			free(path);
			path = longer;
			at = path + strspn(path, "/");
			if (*path != '/')
				continue;
			next = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		} else {
			next = openat(*dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
			at += rest - at;
		}
		if (next < 0)
			return err_sys(err, errno, "open '%s'", typed);
		close(*dir);
		*dir = next;
	}
	return *dir < 0 ? err_sys(err, errno, "open '%s'", typed) : 0;
}

int outdir_open(const char *path, int flags, int *ret, struct err *err)
{
	_cleanup_close_ int dir = -1;
	int fd = open_without_links(AT_FDCWD, path, flags | O_DIRECTORY, 0);

	if (fd < 0 && errno != ELOOP)
		return err_sys(err, errno, "open '%s'", path);
	if (fd < 0) {
		if (walk(path, &dir, err) < 0)
			return -1;
		fd = open_without_links(dir, ".", flags | O_DIRECTORY, 0);
		if (fd < 0)
			return err_sys(err, errno, "open '%s'", path);
	}
	*ret = fd;
	return 0;
}

/* ---- Ctrl-C --------------------------------------------------------------------------------- */

/* For the signal handler: the file being written. There is at most one at a time. */
static struct {
	volatile int dir;
	char temp[OUTFILE_TEMP_SIZE];
} unfinished = { .dir = -1 };

/* Removes the unfinished file; then the signal ends the program as usual. */
static void on_stop(int number)
{
	if (unfinished.dir >= 0)
		unlinkat(unfinished.dir, unfinished.temp, 0);
	signal(number, SIG_DFL);
	raise(number);
}

static void remove_when_stopped(int dir, const char *temp)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	static bool ready;
	struct sigaction action = { .sa_handler = on_stop }, old;

	for (size_t i = 0; i < ARRAY_LEN(numbers) && !ready; i++)
		/* Ignored signals (nohup) stay ignored, and a command's own handler stays. */
		if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
			sigaction(numbers[i], &action, NULL);
	ready = true;
	strcpy(unfinished.temp, temp);
	unfinished.dir = dir;
}

/* ---- files ---------------------------------------------------------------------------------- */

void outfile_temp_name(char ret[OUTFILE_TEMP_SIZE])
{
	uint64_t number = 0;

	if (getrandom(&number, sizeof number, 0) < 0)
		number = (uint64_t)getpid();
	snprintf(ret, OUTFILE_TEMP_SIZE, ".box-%016llx", (unsigned long long)number);
}

int outfile_create(int dir, const char *name, struct outfile *ret, struct err *err)
{
	struct outfile file = OUTFILE_INIT;

	for (int tries = 0; file.fd < 0 && tries < TEMP_TRIES; tries++) {
		outfile_temp_name(file.temp);
		file.fd = openat(
			dir, file.temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (file.fd < 0 && errno != EEXIST)
			break;
	}
	if (file.fd < 0)
		return err_sys(err, errno, "create '%.200s'", name);
	file.dir = fcntl(dir, F_DUPFD_CLOEXEC, 0);
	if (file.dir < 0) {
		err_sys(err, errno, "create '%.200s'", name);
		unlinkat(dir, file.temp, 0);
		close(file.fd);
		return -1;
	}
	file.name = xstrdup(name);
	remove_when_stopped(file.dir, file.temp);
	*ret = file;
	return 0;
}

/* "/dev/stdout" and the like are symlinks that mean an open fd. -1: path is none of them. */
static int named_fd(const char *path)
{
	int fd = -1, end = 0;

	if (!strcmp(path, "/dev/stdout"))
		return STDOUT_FILENO;
	if (!strcmp(path, "/dev/stderr"))
		return STDERR_FILENO;
	if ((sscanf(path, "/dev/fd/%9d%n", &fd, &end) == 1 ||
		    sscanf(path, "/proc/self/fd/%9d%n", &fd, &end) == 1) &&
		!path[end])
		return fd;
	return -1;
}

static int open_in_place(struct outfile *ret, int fd, const char *path, struct err *err)
{
	if (fd < 0)
		return err_sys(err, errno, "open '%s'", path);
	*ret = (struct outfile){ .fd = fd, .dir = -1 };
	return 0;
}

int outfile_create_at(const char *path, struct outfile *ret, struct err *err)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	_cleanup_free_ char *folder = !slash	      ? xstrdup(".")
				      : slash == path ? xstrdup("/")
						      : xstrndup(path, (size_t)(slash - path));
	_cleanup_close_ int dir = -1;
	struct stat st;

	if (named_fd(path) >= 0)
		return open_in_place(ret, fcntl(named_fd(path), F_DUPFD_CLOEXEC, 3), path, err);
	if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
		return err_set(
			err, ERR_INVALID, "'%s' is a folder; give the new file a name", path);
	if (outdir_open(folder, O_PATH, &dir, err) < 0)
		return -1;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return outfile_create(dir, name, ret, err);
	if (S_ISLNK(st.st_mode))
		return refuse_link(dir, name, path, "", err);
	if (S_ISDIR(st.st_mode))
		return err_set(err, ERR_EXISTS, "'%s' is a folder", path);
	if (!S_ISREG(st.st_mode))
		return open_in_place(ret,
			openat(dir, name, O_WRONLY | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC), path, err);
	return outfile_create(dir, name, ret, err);
}

/* As when a file is overwritten: its mode and, as root, its owner stay. */
static mode_t keep_old(const struct outfile *file, mode_t mode)
{
	struct stat st;

	if (fstatat(file->dir, file->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return mode;
	if (geteuid() == 0 && fchown(file->fd, st.st_uid, st.st_gid) < 0)
		return mode;
	return st.st_mode;
}

int outfile_rename(int dir, const char *temp, const char *name, struct err *err)
{
	int why = renameat(dir, temp, dir, name) < 0 ? errno : 0;

	/* Both are names of one file: rename then does nothing. */
	unlinkat(dir, temp, 0);
	if (why == EISDIR || why == ENOTEMPTY || why == EEXIST)
		return err_set(err, ERR_EXISTS, "'%.200s' exists and is a folder", name);
	return why ? err_sys(err, why, "rename to '%.200s'", name) : 0;
}

int outfile_finish(struct outfile *file, mode_t mode, bool replace_mode, struct err *err)
{
	int ret = 0;

	if (!file->name) {
		/* A full device reports it now. */
		if (close(steal_fd(&file->fd)) < 0)
			ret = err_sys(err, errno, "write");
		return ret;
	}
	if (!replace_mode)
		mode = keep_old(file, mode);
	if (fchmod(file->fd, mode & 0777) < 0)
		ret = err_sys(err, errno, "chmod '%.200s'", file->name);
	if (close(steal_fd(&file->fd)) < 0 && ret == 0)
		ret = err_sys(err, errno, "write '%.200s'", file->name);
	if (ret == 0) {
		ret = outfile_rename(file->dir, file->temp, file->name, err);
		free(steal_ptr(&file->name));
	}
	outfile_drop(file);
	return ret;
}

void outfile_drop(struct outfile *file)
{
	if (file->fd >= 0)
		close(steal_fd(&file->fd));
	if (file->name)
		unlinkat(file->dir, file->temp, 0);
	unfinished.dir = -1;
	if (file->dir >= 0)
		close(steal_fd(&file->dir));
	free(steal_ptr(&file->name));
}
