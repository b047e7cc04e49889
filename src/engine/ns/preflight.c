/* preflight.c - what in a box cannot be captured, found before CRIU stops it
 *
 * Every process of the box's group, and of groups in it, is looked at through /proc: its parent,
 * its tracer, its namespaces, its open files. What is refused here is what CRIU refuses (a second
 * namespace, io_uring, sockets of families it does not know) and what it would lose in silence: a
 * process that came in from outside is no descendant of PID 1, and a thread with a namespace of its
 * own would come back without it. A mount namespace of a process's own is refused although CRIU
 * knows some: it finds out only at the restore that one of its mounts cannot be made again, and
 * then there is no box.
 *
 * What takes longer to find out (who is at the other end of a unix socket, what a mapping is) is
 * left to CRIU; see criu_explain.c. Everything in /proc is written by hostile processes in part,
 * and any of them may end while it is looked at. */
#include "engine/ns/ns_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

enum {
	PROCESSES_MAX = 4096, /* beyond these bounds CRIU reports */
	THREADS_MAX = 4096,
	FILES_MAX = 65536,
	LINK_MAX_LEN = 64, /* for the type of a file; the rest of a path does not matter */
	STATUS_MAX = 2048, /* up to the lines we need; a list of 65536 groups comes after them */
	STATUS_WHOLE_MAX = 1024 * 1024,
	SPARSE_MOST = 64,	     /* memory files that are counted */
	MAPS_MAX = 32 * 1024 * 1024, /* a list of mappings; 65530 with long names are less */
	MAPPED_MOST = 8192,	     /* pieces of shared memory; CRIU takes 0.25 ms for each */
	HOLD_US = 100 * 1000,	     /* for finding a good moment */
	HOLD_FREEZE_US = 10 * 1000,  /* how long the loop may block */
	/* The box runs this long between the first two attempts, twice as long each time. */
	HOLD_PAUSE_US = 100,
	HOLD_PAUSE_MAX_US = 1000,
};

#define HINT "'box snapshot --disk-only' takes the disk alone"

#define MEMORY_FILE "a memory file (memfd)"

/* CRIU walks a memory file page by page, holes too, while the box is frozen: half a second per
 * terabyte. */
#define SPARSE_FROM  (UINT64_C(1) << 30) /* smaller ones are not counted */
#define SPARSE_BYTES (UINT64_C(1) << 38) /* 256 GiB, more memory than a box normally has */

static const struct {
	const char *file;
	const char *link; /* the start of an open one's link */
	const char *words;
	bool of_threads; /* a thread may have another one than its process */
} namespaces[] = {
	{ "ns/user", "user:[", "user", false }, /* the first, see check_spaces */
	{ "ns/pid", "pid:[", "pid", false },
	{ "ns/net", "net:[", "network", true },
	{ "ns/mnt", "mnt:[", "mount", true },
	{ "ns/ipc", "ipc:[", "ipc", true },
	{ "ns/uts", "uts:[", "host name", true },
	{ "ns/cgroup", "cgroup:[", "cgroup", true },
	{ "ns/time", "time:[", "time", false },
};
enum { NAMESPACES = ARRAY_LEN(namespaces) };

struct look {
	const struct ns_engine *engine;
	const char *id;
	pid_t init;
	pid_t *pids; /* sorted */
	size_t count;
	char spaces[NAMESPACES][LINK_MAX_LEN]; /* of PID 1; "": the kernel has none */
	bool may_unshare;	   /* processes can have others without a user namespace */
	size_t threads, files;	   /* examined so far */
	ino_t sparse[SPARSE_MOST]; /* large memory files, each counted once */
	size_t sparse_count;
	size_t mapped;	       /* pieces of shared memory without a file */
	uint64_t sparse_bytes; /* their total size */
};

struct task {
	pid_t pid;
	int dir; /* /proc/PID */
	char status[STATUS_MAX];
};

/* ---- one process: name and number ----------------------------------------------------------- */

static int compare_pids(const void *a, const void *b)
{
	return (*(const pid_t *)a > *(const pid_t *)b) - (*(const pid_t *)a < *(const pid_t *)b);
}

static bool is_listed(const struct look *look, pid_t pid)
{
	return bsearch(&pid, look->pids, look->count, sizeof pid, compare_pids) != NULL;
}

/* False when the process has ended. */
static bool read_some(int dir, const char *path, char *out, size_t size)
{
	_cleanup_close_ int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, out, size - 1);

	out[MAX(got, 0)] = '\0';
	return got > 0;
}

static bool task_open(pid_t pid, struct task *task)
{
	char path[32];

	snprintf(path, sizeof path, "/proc/%d", (int)pid);
	task->pid = pid;
	task->dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (task->dir < 0)
		return false;
	if (read_some(task->dir, "status", task->status, sizeof task->status))
		return true;
	close(task->dir);
	return false;
}

/* key has a newline before it and a tab after it. The name of a process cannot contain a newline
 * there. */
static const char *status_find(const char *status, const char *key)
{
	const char *at = strstr(status, key);

	return at ? at + strlen(key) : "";
}

static long status_number(const char *status, const char *key)
{
	return strtol(status_find(status, key), NULL, 10);
}

static void task_name(const struct task *task, char *out, size_t size)
{
	const char *name = strncmp(task->status, "Name:\t", 6) ? "?" : task->status + 6;
	size_t n = 0;

	for (; n < size - 1 && name[n] && name[n] != '\n'; n++)
		out[n] = name[n] >= ' ' && name[n] < 0x7f ? name[n] : '?';
	out[n] = '\0';
}

/* The pid inside the box: the second number, where the first is ours. */
static long task_number(const struct task *task)
{
	_cleanup_free_ char *status = NULL;
	char *end;
	long outer, inner;

	if (file_read(task->dir, "status", STATUS_WHOLE_MAX, &status, NULL, NULL) < 0)
		return 0;
	outer = strtol(status_find(status, "\nNSpid:\t"), &end, 10);
	inner = *end == '\t' ? strtol(end, NULL, 10) : 0;
	return inner > 0 ? inner : outer;
}

/* "process 17 (node)". */
static void task_describe(const struct task *task, char *out, size_t size)
{
	char name[24];
	long number = task_number(task);

	task_name(task, name, sizeof name);
	if (number > 0)
		snprintf(out, size, "process %ld (%s)", number, name);
	else
		snprintf(out, size, "process '%s'", name);
}

static int refuse(const struct task *task, const char *why, struct err *err)
{
	char who[64];

	task_describe(task, who, sizeof who);
	err_set(err, ERR_STATE, "%s %s, which cannot be captured", who, why);
	return err_hint(err, HINT);
}

/* ---- who belongs to whom -------------------------------------------------------------------- */

static int check_parent(const struct look *look, const struct task *task, struct err *err)
{
	pid_t parent = (pid_t)status_number(task->status, "\nPPid:\t");

	if (task->pid == look->init || parent <= 0 || is_listed(look, parent) ||
		cgroup_holds(look->engine->cgroups, look->id, parent))
		return 0;
	return refuse(task, "was put into the box from outside", err);
}

static int check_tracer(
	const struct look *look, const struct task *task, const char *status, struct err *err)
{
	pid_t pid = (pid_t)status_number(status, "\nTracerPid:\t");
	struct task tracer;
	char why[96], who[64] = "a process outside the box";

	if (pid <= 0)
		return 0;
	if (is_listed(look, pid) && task_open(pid, &tracer)) {
		task_describe(&tracer, who, sizeof who);
		close(tracer.dir);
	}
	snprintf(why, sizeof why, "is traced by %s", who);
	return refuse(task, why, err);
}

/* False: there is none, or the process has ended. */
static bool read_space(int dir, size_t which, char out[LINK_MAX_LEN])
{
	ssize_t len = readlinkat(dir, namespaces[which].file, out, LINK_MAX_LEN - 1);

	out[MAX(len, 0)] = '\0';
	return len > 0;
}

/* Rootless podman keeps a process for its user, also when no container runs. */
#define PAUSE_HINT                                                                                \
	"'podman system migrate' first, as the user of podman: it stops the containers and ends " \
	"this process; " HINT

/* Programs that make namespaces for themselves, and how to turn that off. */
static const struct {
	const char *word; /* in the program's path or name */
	const char *hint;
} sandboxes[] = {
	{ "chrom", "start it with --no-sandbox: the box is the sandbox; " HINT },
	{ "electron", "start it with --no-sandbox: the box is the sandbox; " HINT },
	{ "headless_shell", "start it with --no-sandbox: the box is the sandbox; " HINT },
	{ "firefox", "start it with MOZ_DISABLE_CONTENT_SANDBOX=1 and "
		     "security.sandbox.content.level=0: the box is the "
		     "sandbox; " HINT },
	{ "bwrap", "run the program without bwrap: the box is the sandbox; " HINT },
	{ "podman pause", PAUSE_HINT },
	{ "catatonit", PAUSE_HINT },
	{ "conmon", "'podman stop -a' first: containers have namespaces of their own; " HINT },
	{ "podman", "'podman stop -a' first: containers have namespaces of their own; " HINT },
};

/* Electron programs have their own names, but --type= among their arguments as Chromium has. NULL:
 * it is none of these. */
static const char *sandbox_hint(const struct task *task)
{
	char program[256] = "", words[1024] = "", name[24];
	ssize_t got = readlinkat(task->dir, "exe", program, sizeof program - 1);
	_cleanup_close_ int fd = openat(task->dir, "cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? 0 : read(fd, words, sizeof words - 1);

	program[MAX(got, 0)] = '\0';
	task_name(task, name, sizeof name);
	for (size_t i = 0; i < ARRAY_LEN(sandboxes); i++)
		if (strstr(program, sandboxes[i].word) || strstr(name, sandboxes[i].word))
			return sandboxes[i].hint;
	if (len > 0 && (memmem(words, (size_t)len, "--type=zygote", 13) ||
			       memmem(words, (size_t)len, "--type=renderer", 15)))
		return sandboxes[0].hint;
	return NULL;
}

/* Another process may have made the namespace: for a container it is podman's, not the program in
 * it. */
static int hint_at_sandbox(const struct look *look, const struct task *task, struct err *err)
{
	const char *hint = sandbox_hint(task);

	for (size_t i = 0; i < look->count && !hint; i++) {
		struct task other;

		if (!task_open(look->pids[i], &other))
			continue;
		hint = sandbox_hint(&other);
		close(other.dir);
	}
	return hint ? err_hint(err, "%s", hint) : -1;
}

/* Where no process can have CAP_SYS_ADMIN, a process in the box's user namespace is in all the
 * others too: seven lookups less, a third of the time. */
static int check_spaces(
	const struct look *look, const struct task *task, int dir, bool thread, struct err *err)
{
	size_t count = look->may_unshare ? NAMESPACES : 1;
	char space[LINK_MAX_LEN], why[96];

	for (size_t i = 0; i < count; i++) {
		if (!look->spaces[i][0] || (thread && !namespaces[i].of_threads) ||
			!read_space(dir, i, space) || !strcmp(space, look->spaces[i]))
			continue;
		snprintf(why, sizeof why, "has %s %s namespace of its own",
			thread ? "a thread with a" : "a", namespaces[i].words);
		refuse(task, why, err);
		return hint_at_sandbox(look, task, err);
	}
	return 0;
}

/* A process that waits in vfork cannot be frozen before its child has called exec, and the child is
 * frozen. That lasts about a millisecond. */
static int check_vfork(const struct task *task, struct err *err)
{
	char text[64];
	long call;

	if (*status_find(task->status, "\nState:\t") != 'D' ||
		!read_some(task->dir, "syscall", text, sizeof text))
		return 0;
	call = strtol(text, NULL, 10);
	if (text[0] < '0' || text[0] > '9' ||
		(call != SYS_clone && call != SYS_clone3
#ifdef SYS_vfork
			&& call != SYS_vfork
#endif
			))
		return 0;
	refuse(task, "is about to start a program", err);
	err_hint(err, "try again in a moment; " HINT);
	if (err)
		err->errno_value = EAGAIN;
	return -1;
}

/* ---- open files ----------------------------------------------------------------------------- */

/* Kinds CRIU knows. */
static const char *const anon_known[] = { "[eventfd]", "[eventpoll]", "inotify", "[fanotify]",
	"[signalfd]", "[timerfd]", "[pidfd]", "bpf-map", NULL };

/* The others by their start, in words. */
static const struct {
	const char *kind;
	const char *why;
} anon_words[] = {
	{ "[io_uring]", "uses io_uring" },
	{ "[perf_event]", "uses performance counters" },
	{ "[userfaultfd]", "handles page faults of its own (userfaultfd)" },
	{ "kvm-", "runs a virtual machine (KVM)" },
	{ "[fscontext]", "is about to mount a file system" },
	{ "bpf", "uses BPF" },
	{ "[landlock-ruleset]", "has a set of Landlock rules open" },
	{ "seccomp notify", "answers system calls of others (seccomp)" },
};

/* Protocols CRIU knows, by the names the kernel gives them. */
static const char *const sockets_known[] = { "TCP", "TCPv6", "UDP", "UDPv6", "UDP-Lite",
	"UDPLITEv6", "UNIX", "UNIX-STREAM", "NETLINK", "PACKET", "RAW", "RAWv6", "PING", "PINGv6",
	NULL };

struct file {
	const struct task *task;
	int dir; /* of its fds */
	const char *number;
	const char *link;
};

static bool is_among(const char *const *list, const char *word)
{
	while (*list && strcmp(*list, word) != 0)
		list++;
	return *list != NULL;
}

static int check_pidfd(const struct file *file, struct err *err)
{
	char path[32], text[256];

	snprintf(path, sizeof path, "fdinfo/%.10s", file->number);
	if (!read_some(file->task->dir, path, text, sizeof text) ||
		!(strtol(status_find(text, "\nflags:\t"), NULL, 8) & O_EXCL)) /* PIDFD_THREAD */
		return 0;
	return refuse(file->task, "watches a single thread (pidfd)", err);
}

static int check_anon(const struct file *file, struct err *err)
{
	const char *kind = file->link + strlen("anon_inode:");
	char why[96];

	if (!strcmp(kind, "[pidfd]"))
		return check_pidfd(file, err);
	if (is_among(anon_known, kind))
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(anon_words); i++)
		if (!strncmp(kind, anon_words[i].kind, strlen(anon_words[i].kind)))
			return refuse(file->task, anon_words[i].why, err);
	snprintf(why, sizeof why, "has a file of the kind '%.40s' open", kind);
	return refuse(file->task, why, err);
}

/* By path: a socket's xattrs can be reached only through the link, and *xattrat came with Linux
 * 6.13. */
static int check_socket(const struct file *file, struct err *err)
{
	char path[48], name[33], why[96];
	ssize_t len;

	snprintf(path, sizeof path, "/proc/%d/fd/%.10s", (int)file->task->pid, file->number);
	len = getxattr(path, "system.sockprotoname", name, sizeof name - 1);
	if (len <= 0)
		return 0;
	name[len] = '\0';
	if (is_among(sockets_known, name))
		return 0;
	snprintf(why, sizeof why, "has a socket of the kind %s open", name);
	refuse(file->task, why, err);
	if (!strncmp(name, "MPTCP", 5))
		err_hint(err, "a Go program uses TCP with GODEBUG=multipathtcp=0; " HINT);
	return -1;
}

/* Every program has these; a box that gives other devices their names fools only itself. */
static const char *const devices_known[] = { "/dev/null", "/dev/zero", "/dev/tty", "/dev/urandom",
	"/dev/ptmx", NULL };

/* Terminals and memory devices can be captured; the others have a driver's state behind them. */
static int check_device(const struct file *file, struct err *err)
{
	enum {
		MEM = 1,
		TTY = 4,
		TTYAUX = 5,
		MISC = 10,
		PTY_FIRST = 128,
		PTY_LAST = 143,
		TUN = 200
	};
	struct stat st;
	char why[96];
	unsigned kind;

	if (is_among(devices_known, file->link) || !strncmp(file->link, "/dev/pts/", 9) ||
		fstatat(file->dir, file->number, &st, 0) < 0 ||
		!(S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode)))
		return 0;
	kind = major(st.st_rdev);
	if (S_ISCHR(st.st_mode) && (kind == MEM || kind == TTY || kind == TTYAUX ||
					   (kind >= PTY_FIRST && kind <= PTY_LAST) ||
					   (kind == MISC && minor(st.st_rdev) == TUN)))
		return 0;
	snprintf(why, sizeof why, "has the device %.40s open", file->link);
	return refuse(file->task, why, err);
}

static int check_space_file(const struct look *look, const struct file *file, struct err *err)
{
	char why[96];

	for (size_t i = 0; i < NAMESPACES; i++) {
		if (strncmp(file->link, namespaces[i].link, strlen(namespaces[i].link)) != 0 ||
			!look->spaces[i][0] || !strcmp(file->link, look->spaces[i]))
			continue;
		snprintf(why, sizeof why, "holds another %s namespace open", namespaces[i].words);
		return refuse(file->task, why, err);
	}
	return 0;
}

static int count_sparse(struct look *look, const struct task *task, const struct stat *st,
	const char *what, struct err *err)
{
	char why[96], size[16];

	if ((uint64_t)st->st_size < SPARSE_FROM)
		return 0;
	for (size_t i = 0; i < look->sparse_count; i++)
		if (look->sparse[i] == st->st_ino)
			return 0;
	look->sparse_bytes += MIN((uint64_t)st->st_size, SPARSE_BYTES * 2);
	if (look->sparse_count < SPARSE_MOST)
		look->sparse[look->sparse_count++] = st->st_ino;
	if (look->sparse_bytes <= SPARSE_BYTES)
		return 0;
	snprintf(why, sizeof why, "has %s of %s%s", what, format_size((uint64_t)st->st_size, size),
		look->sparse_count > 1 ? " beside others" : "");
	refuse(task, why, err);
	return err_hint(err, "together they may be 256G long, holes included; " HINT);
}

static int refuse_pieces(const struct task *task, struct err *err)
{
	char why[96];

	snprintf(why, sizeof why, "has, with others, more than %d pieces of shared memory",
		MAPPED_MOST);
	refuse(task, why, err);
	return err_hint(err, "the box would stand still for seconds; " HINT);
}

/* A mapping whose file was closed: "7f00-7f01 rw-s 00000000 00:01 17 /memfd:name (deleted)";
 * "/dev/zero" is shared memory without a name. */
static int look_at_mapped(struct look *look, const struct task *task, char *maps, const char *name,
	const char *what, struct err *err)
{
	int status = 0;

	for (char *at = maps; status == 0 && (at = strstr(at, name)); at++) {
		char *line = at, path[64];
		struct stat st;

		while (line > maps && line[-1] != '\n')
			line--;
		snprintf(path, sizeof path, "map_files/%.*s", (int)strcspn(line, " "), line);
		if (++look->mapped > MAPPED_MOST)
			return refuse_pieces(task, err);
		if (fstatat(task->dir, path, &st, 0) == 0)
			status = count_sparse(look, task, &st, what, err);
	}
	return status;
}

static int look_at_maps(struct look *look, const struct task *task, struct err *err)
{
	_cleanup_free_ char *maps = NULL;

	if (file_read(task->dir, "maps", MAPS_MAX, &maps, NULL, NULL) < 0)
		return 0;
	if (look_at_mapped(look, task, maps, " /memfd:", MEMORY_FILE, err) < 0)
		return -1;
	return look_at_mapped(look, task, maps, " /dev/zero (deleted)", "shared memory", err);
}

static int check_memfd(struct look *look, const struct file *file, struct err *err)
{
	struct stat st;

	return fstatat(file->dir, file->number, &st, 0) < 0
		       ? 0
		       : count_sparse(look, file->task, &st, MEMORY_FILE, err);
}

static int check_file(struct look *look, const struct file *file, struct err *err)
{
	const char *link = file->link;

	if (!strncmp(link, "anon_inode:", 11))
		return check_anon(file, err);
	if (!strncmp(link, "socket:", 7))
		return check_socket(file, err);
	if (!strncmp(link, "/dev/", 5))
		return check_device(file, err);
	if (!strncmp(link, "/memfd:", 7))
		return check_memfd(look, file, err);
	if (!strcmp(link, "/secretmem (deleted)"))
		return refuse(file->task, "has secret memory (memfd_secret)", err);
	return link[0] == '/' ? 0 : check_space_file(look, file, err);
}

/* ---- folders of /proc ----------------------------------------------------------------------- */

struct folder {
	struct look *look;
	const struct task *task;
	int dir;
};
typedef int (*entry_fn)(const struct folder *folder, const char *name, struct err *err);

/* Without opendir, which allocates: this runs for every process. */
static int each_entry(
	struct look *look, const struct task *task, const char *name, entry_fn fn, struct err *err)
{
	_cleanup_close_ int dir = openat(task->dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct folder folder = { look, task, dir };
	_Alignas(struct dirent64) char data[4096];
	ssize_t got;

	while (dir >= 0 && (got = getdents64(dir, data, sizeof data)) > 0)
		for (ssize_t at = 0; at < got;) {
			const struct dirent64 *entry = (const struct dirent64 *)(data + at);

			at += entry->d_reclen;
			if (entry->d_name[0] != '.' && fn(&folder, entry->d_name, err) < 0)
				return -1;
		}
	return 0;
}

/* A long link may be cut; nothing that matters is so long. */
static int look_at_file(const struct folder *folder, const char *name, struct err *err)
{
	char link[LINK_MAX_LEN];
	const struct file file = { folder->task, folder->dir, name, link };
	ssize_t len;

	if (++folder->look->files > FILES_MAX)
		return 0;
	len = readlinkat(folder->dir, name, link, sizeof link - 1);
	if (len <= 0)
		return 0;
	for (ssize_t i = 0; i < len; i++)
		if (link[i] < ' ' || link[i] >= 0x7f)
			link[i] = '?';
	link[len] = '\0';
	return check_file(folder->look, &file, err);
}

static int look_at_thread(const struct folder *folder, const char *name, struct err *err)
{
	_cleanup_close_ int dir = -1;
	char status[STATUS_MAX];

	if (strtol(name, NULL, 10) == folder->task->pid || ++folder->look->threads > THREADS_MAX)
		return 0;
	dir = openat(folder->dir, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || !read_some(dir, "status", status, sizeof status))
		return 0;
	if (check_tracer(folder->look, folder->task, status, err) < 0)
		return -1;
	return check_spaces(folder->look, folder->task, dir, true, err);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static int look_at(struct look *look, const struct task *task, struct err *err)
{
	char state = *status_find(task->status, "\nState:\t");
	const char *threads;

	if (state == 'Z' || state == 'X')
		return 0;
	if (check_tracer(look, task, task->status, err) < 0 ||
		check_spaces(look, task, task->dir, false, err) < 0 ||
		check_parent(look, task, err) < 0 || check_vfork(task, err) < 0 ||
		look_at_maps(look, task, err) < 0)
		return -1;
	threads = status_find(task->status, "\nThreads:\t"); /* "": after too many groups */
	if (look->threads < THREADS_MAX && (!*threads || strtol(threads, NULL, 10) > 1) &&
		each_entry(look, task, "task", look_at_thread, err) < 0)
		return -1;
	return look->files < FILES_MAX ? each_entry(look, task, "fd", look_at_file, err) : 0;
}

static bool read_init(struct look *look)
{
	_cleanup_free_ char *status = NULL;
	struct task init;

	if (!task_open(look->init, &init))
		return false;
	/* Assume they can, unless it is certain that they cannot. */
	look->may_unshare =
		file_read(init.dir, "status", STATUS_WHOLE_MAX, &status, NULL, NULL) < 0 ||
		!*status_find(status, "\nCapBnd:\t") ||
		(strtoull(status_find(status, "\nCapBnd:\t"), NULL, 16) >> CAP_SYS_ADMIN & 1);
	for (size_t i = 0; i < NAMESPACES; i++)
		read_space(init.dir, i, look->spaces[i]);
	close(init.dir);
	return true;
}

int ns_preflight(struct ns_engine *engine, pid_t init, const char *id, struct err *err)
{
	_cleanup_free_ pid_t *pids = xnewn(pid_t, PROCESSES_MAX);
	struct look look = { .engine = engine, .id = id, .init = init, .pids = pids };
	int status = 0;

	look.count = cgroup_pids_below(engine->cgroups, id, pids, PROCESSES_MAX);
	if (look.count > PROCESSES_MAX || !read_init(&look))
		return 0;
	qsort(pids, look.count, sizeof *pids, compare_pids);
	for (size_t i = 0; i < look.count && status == 0; i++) {
		struct task task;

		if (!task_open(pids[i], &task))
			continue;
		status = look_at(&look, &task, err);
		close(task.dir);
	}
	return status;
}

/* ---- the right moment ----------------------------------------------------------------------- */

int ns_hold(struct ns_engine *engine, pid_t init, const char *id, bool frozen, struct err *err)
{
	int64_t deadline = clock_mono_us() + HOLD_US;
	struct err why;

	for (unsigned pause = HOLD_PAUSE_US;; pause = MIN(pause * 2, HOLD_PAUSE_MAX_US)) {
		why = (struct err)ERR_INIT;
		if (cgroup_freeze_try(engine->cgroups, id, HOLD_FREEZE_US, &why) < 0)
			break;
		if (ns_preflight(engine, init, id, &why) == 0)
			return 0;
		if (why.errno_value != EAGAIN || clock_mono_us() > deadline)
			break;
		if (cgroup_freeze(engine->cgroups, id, false, err) < 0)
			return -1;
		usleep(pause);
	}
	/* As it was before; the last attempt may have been interrupted. */
	cgroup_freeze(engine->cgroups, id, frozen, NULL);
	if (err)
		*err = why;
	return -1;
}
