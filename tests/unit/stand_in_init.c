/* stand_in_init.c - a box-init that does what a test asks for, one line at a time
 *
 * Accepts on fd 3; each line is a verb and at most one argument, each answer one line. Verbs that
 * try something answer "ok" or the name of the errno. Static, since the test's box has an empty
 * root. Run with an argument it only tells by its exit code whether it is root. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char answer[8192];

static void result(int status)
{
	snprintf(answer, sizeof answer, "%s", status >= 0 ? "ok" : strerrorname_np(errno));
}

static void do_read(const char *path)
{
	int fd = open(path, O_RDONLY);
	ssize_t got;

	if (fd < 0) {
		result(-1);
		return;
	}
	got = read(fd, answer, sizeof answer - 1);
	answer[got < 0 ? 0 : got] = '\0';
	for (char *p = answer; *p; p++)
		if (*p == '\n')
			*p = ';';
	close(fd);
}

static void do_write(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0644);

	result(fd < 0 ? -1 : (int)write(fd, "x", 1));
	if (fd >= 0)
		close(fd);
}

static void do_link(const char *path)
{
	ssize_t got = readlink(path, answer, sizeof answer - 1);

	answer[got < 0 ? 0 : got] = '\0';
	if (got < 0)
		result(-1);
}

static void do_count(const char *path)
{
	DIR *dir = opendir(path);
	int count = 0;

	while (dir && readdir(dir))
		count++;
	snprintf(answer, sizeof answer, "%d", dir ? count - 2 : -1);
	if (dir)
		closedir(dir);
}

/* How a child that does this ends: "exit N" or "signal N". */
static void do_child(void (*fn)(const char *), const char *arg)
{
	pid_t pid = fork();
	int status = 0;

	if (pid < 0) {
		result(-1);
		return;
	}
	if (pid == 0) {
		fn(arg);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	snprintf(answer, sizeof answer, "%s %d", WIFSIGNALED(status) ? "signal" : "exit",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void eat(const char *arg)
{
	size_t bytes = strtoull(arg, NULL, 10) << 20;
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memset(p, 1, bytes);
}

static void forks(const char *arg)
{
	int left = atoi(arg);

	while (left--)
		if (fork() == 0)
			for (;;)
				pause();
		else if (errno == EAGAIN)
			_exit(11);
}

static void do_loopback(const char *arg)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(8080) };
	int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, arg, &address.sin_addr);
	bind(server, (struct sockaddr *)&address, sizeof address);
	listen(server, 1);
	result(connect(client, (struct sockaddr *)&address, sizeof address));
	close(server);
	close(client);
}

static void spin(const char *arg)
{
	for (volatile long i = atol(arg) * 1000000; i; i--)
		continue;
}

/* "dir 0:0 755", "file 65534:65534 600", "other ..." */
static void do_stat(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0) {
		result(-1);
		return;
	}
	snprintf(answer, sizeof answer, "%s %u:%u %o",
		S_ISDIR(st.st_mode)   ? "dir"
		: S_ISREG(st.st_mode) ? "file"
				      : "other",
		st.st_uid, st.st_gid, st.st_mode & 07777);
}

/* ---- files that cannot be told apart -------------------------------------------------------- */

enum { TWINS_MAX = 4096 };
static struct file {
	dev_t dev;
	ino_t ino;
	char path[96];
} files[TWINS_MAX];
static size_t file_count;

/* All below path but what is mounted there: folders have the device of their mount. */
static void gather(const char *path, dev_t mount)
{
	DIR *dir = opendir(*path ? path : "/");
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		struct file *file = &files[file_count];
		struct stat st;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(file->path, sizeof file->path, "%s/%s", path, entry->d_name);
		if (lstat(file->path, &st) < 0)
			continue;
		if (!S_ISDIR(st.st_mode) && st.st_nlink == 1 && file_count < TWINS_MAX - 1) {
			file->dev = st.st_dev;
			file->ino = st.st_ino;
			file_count++;
		}
		if (S_ISDIR(st.st_mode) && st.st_dev == mount)
			gather(strdup(file->path), mount);
	}
	if (dir)
		closedir(dir);
}

/* "none of 17", or two files of one device and number. */
static void do_twins(void)
{
	struct stat st;

	file_count = 0;
	lstat("/", &st);
	gather("", st.st_dev);
	snprintf(answer, sizeof answer, "none of %zu", file_count);
	for (size_t i = 0; i < file_count; i++)
		for (size_t k = 0; k < i; k++)
			if (files[i].dev == files[k].dev && files[i].ino == files[k].ino)
				snprintf(answer, sizeof answer, "%s is %s", files[k].path,
					files[i].path);
}

/* How many pages of a file are in memory. */
static void do_resident(const char *path)
{
	static unsigned char pages[4096];
	int fd = open(path, O_RDONLY), count = 0;
	struct stat st = { 0 };
	void *map;

	fstat(fd, &st);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED || mincore(map, (size_t)st.st_size, pages) < 0) {
		result(-1);
		return;
	}
	for (size_t i = 0; i < ((size_t)st.st_size + 4095) / 4096; i++)
		count += pages[i] & 1;
	snprintf(answer, sizeof answer, "%d", count);
	munmap(map, (size_t)st.st_size);
	close(fd);
}

/* A program that is executed by a plain user: "exit 10" when it is root nevertheless. */
static void run(const char *path)
{
	char *argv[] = { (char *)path, "who", NULL };

	if (setgid(1000) < 0 || setuid(1000) < 0)
		_exit(1);
	execv(path, argv);
	_exit(errno);
}

/* Left running, to be seen at work. */
static void do_busy(const char *arg)
{
	if (fork() == 0)
		for (volatile unsigned i = 0;; i++)
			continue;
	result(0);
}

/* Memory that stays in use. */
static void do_hold(const char *arg)
{
	if (fork() == 0) {
		eat(arg);
		for (;;)
			pause();
	}
	result(0);
}

/* Open files of a process of its own. */
static void do_files(const char *arg)
{
	int left = atoi(arg), ready[2];
	char byte;

	if (pipe(ready) < 0 || fork() == 0) {
		while (left-- > 0)
			dup(ready[1]);
		write(ready[1], "", 1);
		for (;;)
			pause();
	}
	read(ready[0], &byte, 1);
	close(ready[0]);
	close(ready[1]);
	result(0);
}

static void obey(const char *verb, const char *arg)
{
	errno = 0;
	if (!strcmp(verb, "read"))
		do_read(arg);
	else if (!strcmp(verb, "write"))
		do_write(arg);
	else if (!strcmp(verb, "link"))
		do_link(arg);
	else if (!strcmp(verb, "count"))
		do_count(arg);
	else if (!strcmp(verb, "unlink"))
		result(unlink(arg));
	else if (!strcmp(verb, "rmdir"))
		result(rmdir(arg));
	else if (!strcmp(verb, "mkdir"))
		result(mkdir(arg, 0755));
	else if (!strcmp(verb, "symlink"))
		result(symlink("/tmp", arg));
	else if (!strcmp(verb, "mknod"))
		result(mknod(arg, S_IFCHR | 0666, 0x103));
	else if (!strcmp(verb, "unshare"))
		result(unshare((int)strtol(arg, NULL, 16)));
	else if (!strcmp(verb, "clone"))
		result((int)syscall(SYS_clone, strtol(arg, NULL, 16) | SIGCHLD, 0, 0, 0, 0));
	else if (!strcmp(verb, "syscall"))
		result((int)syscall(strtol(arg, NULL, 10), -1, -1, -1, -1, -1, -1));
	else if (!strcmp(verb, "mount"))
		result(mount("t", arg, "tmpfs", 0, NULL));
	else if (!strcmp(verb, "remount"))
		result(mount(NULL, arg, NULL, MS_REMOUNT | MS_BIND, NULL));
	else if (!strcmp(verb, "stat"))
		do_stat(arg);
	else if (!strcmp(verb, "run"))
		do_child(run, arg);
	else if (!strcmp(verb, "busy"))
		do_busy(arg);
	else if (!strcmp(verb, "hold"))
		do_hold(arg);
	else if (!strcmp(verb, "files"))
		do_files(arg);
	else if (!strcmp(verb, "umount"))
		result(umount2(arg, MNT_DETACH));
	else if (!strcmp(verb, "eat"))
		do_child(eat, arg);
	else if (!strcmp(verb, "forks"))
		do_child(forks, arg);
	else if (!strcmp(verb, "spin"))
		do_child(spin, arg);
	else if (!strcmp(verb, "loopback"))
		do_loopback(arg);
	else if (!strcmp(verb, "twins"))
		do_twins();
	else if (!strcmp(verb, "resident"))
		do_resident(arg);
	else if (!strcmp(verb, "hostname"))
		gethostname(answer, sizeof answer);
	else if (!strcmp(verb, "exit"))
		_exit(atoi(arg));
	else if (!strcmp(verb, "eat-self"))
		eat(arg);
	else
		snprintf(answer, sizeof answer, "what?");
}

int main(int argc, char **argv)
{
	int flags = fcntl(3, F_GETFL);

	(void)argv;
	if (argc > 1)
		return geteuid() == 0 ? 10 : 20;
	fcntl(3, F_SETFL, flags & ~O_NONBLOCK);
	for (;;) {
		int fd = accept(3, NULL, NULL);
		FILE *stream = fd < 0 ? NULL : fdopen(fd, "r+");
		char line[512];

		if (fd < 0)
			continue;
		while (fgets(line, sizeof line, stream)) {
			char *arg = strchr(line, ' ');

			line[strcspn(line, "\n")] = '\0';
			if (arg)
				*arg++ = '\0';
			obey(line, arg ? arg : "");
			dprintf(fd, "%s\n", answer);
		}
		fclose(stream);
	}
}
