/* identity_run.c - machine id, host name, randomness and hooks; see identity.h
 *
 * Runs in a process of its own with all signals blocked, and ends within HOOKS_MS unless a file
 * system hangs; then identity.c ends it. */
#include "guest/identity.h"
#include "guest/group.h"
#include "guest/hosts.h"
#include "guest/path.h"
#include "guest/vm.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MACHINE_ID	"/etc/machine-id"
#define MACHINE_ID_DBUS "/var/lib/dbus/machine-id"
#define SSH_FOLDER	"/etc/ssh"
#define FORK_HOOKS	"/etc/boxyard/fork.d"
#define RESTORE_HOOKS	"/etc/boxyard/restore.d"
#define HOOK_PATH	"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum { PATH_BYTES = 768 };

/* ---- files ---------------------------------------------------------------------------------- */

/* Written in place: owner and mode stay, and it may be a mount. An empty file stays empty. */
static int replace_machine_id(const struct identity_job *job, const char *path, const char *text,
	bool follow, struct err *err)
{
	char whole[PATH_BYTES];
	struct stat st;
	_cleanup_close_ int fd = -1;

	snprintf(whole, sizeof whole, "%s%s", job->root, path);
	if ((follow ? stat : lstat)(whole, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	fd = open(whole, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW));
	if (fd < 0)
		return err_sys(err, errno, "open '%s'", path);
	if (fd_write_all(fd, text, strlen(text), err) < 0)
		return err_wrap(err, "write '%s'", path);
	if (st.st_size != (off_t)strlen(text) && ftruncate(fd, (off_t)strlen(text)) < 0)
		return err_sys(err, errno, "write '%s'", path);
	return 0;
}

static int new_machine_id(const struct identity_job *job, struct err *err)
{
	uint8_t bytes[16];
	char text[34] = "";

	random_bytes(bytes, sizeof bytes);
	for (size_t i = 0; i < sizeof bytes; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	strcat(text, "\n");
	if (replace_machine_id(job, MACHINE_ID, text, true, err) < 0)
		return -1;
	return replace_machine_id(job, MACHINE_ID_DBUS, text, false, err);
}

static void stir_randomness(const struct identity_job *job)
{
	_cleanup_close_ int fd = open("/dev/urandom", O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	/* The kernel's pool belongs to the machine and was not copied: this does no harm. */
	if (fd >= 0)
		(void)!write(fd, job->seed, sizeof job->seed);
}

/* ---- hooks ---------------------------------------------------------------------------------- */

static void note_failure(struct identity_result *ret, const char *name, const char *how)
{
	if (!ret->failed++)
		snprintf(ret->failure, sizeof ret->failure, "%.100s: %.90s", name, how);
}

static _Noreturn void hook_main(const struct identity_job *job, const char *path)
{
	static char env[7][160];
	char *environment[] = { env[0], env[1], env[2], env[3], env[4], env[5], env[6], NULL };
	char *argv[] = { (char *)path, NULL };
	sigset_t none;

	setpgid(0, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	snprintf(env[0], sizeof env[0], "PATH=%s", HOOK_PATH);
	snprintf(env[1], sizeof env[1], "HOME=/root");
	snprintf(env[2], sizeof env[2], "BOX_EVENT=%s", job->event);
	if (job->fork) {
		snprintf(env[3], sizeof env[3], "BOX_NAME=%s", job->name);
		snprintf(env[4], sizeof env[4], "BOX_ID=%s", job->id);
		snprintf(env[5], sizeof env[5], "BOX_PARENT=%s", job->parent);
		snprintf(env[6], sizeof env[6], "BOX_FORK_INDEX=%u", job->index);
	} else {
		environment[3] = NULL;
	}
	if (chdir("/") == 0)
		execve(path, argv, environment);
	_exit(127);
}

/* Waits for pid at most ms; false: it still runs. SIGCHLD is blocked, so none is missed. */
static bool wait_for(pid_t pid, int64_t ms, int *ret_status)
{
	int64_t end = clock_mono_us() + ms * 1000;
	sigset_t children;

	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	for (;;) {
		int64_t left = end - clock_mono_us();
		struct timespec pause = { left / 1000000, left % 1000000 * 1000 };

		if (waitpid(pid, ret_status, WNOHANG) == pid)
			return true;
		if (left <= 0)
			return false;
		sigtimedwait(&children, NULL, &pause);
	}
}

static void run_hook(const struct identity_job *job, const char *dir, const char *name,
	struct identity_result *ret)
{
	char path[PATH_BYTES + 256], how[64];
	int status = 0;
	pid_t pid;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	ret->ran++;
	pid = fork();
	if (!pid)
		hook_main(job, path);
	if (pid < 0)
		return note_failure(ret, name, "cannot be started");
	setpgid(pid, pid);
	if (!wait_for(pid, HOOK_MS, &status)) {
		kill(-pid, SIGKILL);
		waitpid(pid, &status, 0);
		return note_failure(ret, name, "did not end in time");
	}
	if (WIFSIGNALED(status))
		snprintf(how, sizeof how, "killed by signal %d", WTERMSIG(status));
	else
		snprintf(how, sizeof how, "exit code %d", WEXITSTATUS(status));
	if (status)
		note_failure(ret, name, how);
}

static int is_hook(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return entry->d_name[0] != '.' && entry->d_name[len - 1] != '~';
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static bool is_program(const char *dir, const char *name)
{
	char path[PATH_BYTES + 256];
	struct stat st;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static void run_hooks(const struct identity_job *job, struct identity_result *ret)
{
	int64_t end = clock_mono_us() + (int64_t)HOOKS_MS * 1000;
	struct dirent **entries = NULL;
	char dir[PATH_BYTES];
	int count;

	snprintf(dir, sizeof dir, "%s%s", job->root, job->fork ? FORK_HOOKS : RESTORE_HOOKS);
	count = scandir(dir, &entries, is_hook, by_name);
	for (int i = 0; i < count; i++) {
		const char *name = entries[i]->d_name;

		if (is_program(dir, name)) {
			if (ret->ran == HOOKS_MAX ||
				clock_mono_us() > end - (int64_t)HOOK_MS * 1000)
				note_failure(ret, name, "not run: too many, or too slow together");
			else
				run_hook(job, dir, name, ret);
		}
		free(entries[i]);
	}
	free(entries);
}

/* ---- a VM ----------------------------------------------------------------------------------- */

static int is_host_key(const struct dirent *entry)
{
	return !strncmp(entry->d_name, "ssh_host_", 9);
}

/* True: there were some. */
static bool remove_host_keys(void)
{
	struct dirent **entries = NULL;
	int count = scandir(SSH_FOLDER, &entries, is_host_key, NULL);

	for (int i = 0; i < count; i++) {
		char path[PATH_BYTES];

		snprintf(path, sizeof path, SSH_FOLDER "/%s", entries[i]->d_name);
		unlink(path);
		free(entries[i]);
	}
	free(entries);
	return count > 0;
}

/* Not waited for: making an RSA key takes seconds on a slow machine. */
static void make_host_keys(void)
{
	static char *const argv[] = { "ssh-keygen", "-A", NULL };
	static char *const env[] = { "PATH=" HOOK_PATH, "HOME=/root", NULL };
	sigset_t none;

	if (fork() != 0)
		return;
	close_range(3, ~0u, 0);
	setsid();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	group_join();
	(void)file_poke(AT_FDCWD, "/proc/self/oom_score_adj", "200", NULL);
	dup2(0, 1);
	dup2(0, 2);
	execve("/usr/bin/ssh-keygen", argv, env);
	_exit(127);
}

static void new_host_keys(void)
{
	if (remove_host_keys())
		make_host_keys();
}

int identity_make(struct err *err)
{
	struct identity_job job = { 0 };

	umask(022);
	if (new_machine_id(&job, err) < 0)
		return -1;
	new_host_keys();
	return 0;
}

/* On the root file system itself, with no link on the way; or not there. */
static bool is_plain(const char *path, bool *ret_exists)
{
	_cleanup_close_ int fd = open_how(
		AT_FDCWD, path, O_PATH | O_NOFOLLOW, 0, RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS);

	*ret_exists = fd >= 0;
	return fd >= 0 || errno == ENOENT;
}

static bool has_host_keys(void)
{
	DIR *folder = opendir(SSH_FOLDER);
	struct dirent *entry;
	bool found = false;

	while (folder && !found && (entry = readdir(folder)))
		found = is_host_key(entry);
	if (folder)
		closedir(folder);
	return found;
}

bool identity_is_quick(const struct identity_job *job)
{
	static const char *const files[] = { MACHINE_ID, MACHINE_ID_DBUS, "/etc/hostname",
		"/etc/hosts" };
	bool exists;

	if (!vm_has_root() || *job->root)
		return false;
	if (!is_plain(job->fork ? FORK_HOOKS : RESTORE_HOOKS, &exists) || exists)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (!is_plain(files[i], &exists))
			return false;
	return !job->fork || (is_plain(SSH_FOLDER, &exists) && !(exists && has_host_keys()));
}

/* ---- all of it ------------------------------------------------------------------------------ */

void identity_run(const struct identity_job *job, struct identity_result *ret)
{
	/* A VM got it with TELL, and served nobody before. */
	if (!vm_has_root())
		stir_randomness(job);
	if (!strcmp(job->root, "-"))
		return;
	umask(022);
	if (job->fork && new_machine_id(job, &ret->err) < 0)
		return;
	/* It may have been renamed while it was hibernated, or since that snapshot. */
	if (!*job->root)
		hosts_follow_name();
	if (job->fork && vm_has_root())
		new_host_keys();
	run_hooks(job, ret);
}
