/* criu-landlock.c - finds threads that Landlock restricts; a part of our CRIU, see criu-changes
 *
 * The kernel tells nobody which threads have a Landlock domain, nor what it allows: captured, such
 * a thread would come back free. But none of them may look at a process outside its domain. So a
 * process of the same user, without any capability, is put into the namespaces of the box while
 * everything in it stands still, and each thread that may have a domain is made to compare itself
 * with it (kcmp in the parasite): who may not is restricted. A domain needs no_new_privs, which is
 * never lost, or CAP_SYS_ADMIN, which boxes have only if their PID 1 has it: others are not asked.
 *
 * This is included by criu/parasite-syscall.c. */
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { LANDLOCK_CREATE_RULESET = 444, LANDLOCK_VERSION = 1 };
enum { OUTSIDE, INSIDE }; /* whose number of it is told */

static struct {
	pid_t pid;
	int number; /* in the box */
	unsigned int uid, gid;
} bystander;

static bool landlock_exists(void)
{
	static int exists = -1;

	if (exists < 0)
		exists = syscall(LANDLOCK_CREATE_RULESET, NULL, 0, LANDLOCK_VERSION) > 0;
	return exists;
}

static bool may_have_domain(const struct parasite_dump_creds *creds)
{
	static int any = -1; /* the first one is PID 1 */

	if (any < 0)
		any = (creds->cap_bnd[0] >> CAP_SYS_ADMIN) & 1;
	return any || creds->no_new_privs > 0;
}

static int open_namespace(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* One's own user namespace cannot be entered. */
static int join(int fd, const char *own, int kind)
{
	struct stat there, here;

	if (fstat(fd, &there) == 0 && stat(own, &here) == 0 && there.st_ino == here.st_ino)
		return 0;
	return setns(fd, kind);
}

/* Both are opened first: in the user namespace of a box that was restored nobody may look at its
 * processes from outside any more. */
static int enter(pid_t pid)
{
	int user = open_namespace(pid, "user"), numbers = open_namespace(pid, "pid");

	return user < 0 || numbers < 0 || join(user, "/proc/self/ns/user", CLONE_NEWUSER) < 0 ||
	       join(numbers, "/proc/self/ns/pid", CLONE_NEWPID) < 0;
}

static bool tell(int to, int which, int number)
{
	int said[2] = { which, number };

	return write(to, said, sizeof(said)) != sizeof(said); /* true: it failed */
}

/* Of no use to anybody who would trace it: it has no files and no capabilities. */
static void stand_by(int to)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = {};

	if (syscall(__NR_setresgid, bystander.gid, bystander.gid, bystander.gid) < 0 ||
	    syscall(__NR_setresuid, bystander.uid, bystander.uid, bystander.uid) < 0 ||
	    syscall(__NR_capset, &header, none) < 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || tell(to, INSIDE, getpid()))
		_exit(1);
	syscall(__NR_close_range, 0u, ~0u, 0u);
	for (;;)
		pause();
}

void landlock_done(void)
{
	if (bystander.pid > 0) {
		kill(bystander.pid, SIGKILL);
		waitpid(bystander.pid, NULL, __WALL);
	}
	bystander.pid = 0;
}

/* Two steps, because only children are in an entered pid namespace. No signal at the end of either:
 * CRIU takes any for the end of a parasite. */
static int bystander_start(pid_t pid)
{
	pid_t between;
	int ends[2], said[2], good;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	between = syscall(__NR_clone, 0, NULL, NULL, NULL, NULL);
	if (between == 0) {
		pid_t child;

		if (enter(pid))
			_exit(1);
		child = syscall(__NR_clone, CLONE_PARENT, NULL, NULL, NULL, NULL);
		if (child == 0)
			stand_by(ends[1]);
		_exit(child < 0 || tell(ends[1], OUTSIDE, child));
	}
	close(ends[1]);
	good = between > 0 && waitpid(between, NULL, __WALL) == between;
	for (int i = 0; i < 2 && good; i++) {
		good = read(ends[0], said, sizeof(said)) == sizeof(said);
		if (good)
			*(said[0] == OUTSIDE ? &bystander.pid : &bystander.number) = said[1];
	}
	close(ends[0]);
	return good ? 0 : -1;
}

/* The number in the box of a process to compare with; 0: there is no need to ask. */
static int landlock_bystander(const struct parasite_dump_creds *creds, pid_t pid)
{
	unsigned int uid = creds->uids[0], gid = creds->gids[0];

	if (!may_have_domain(creds) || !landlock_exists())
		return 0;
	if (bystander.pid && bystander.uid == uid && bystander.gid == gid)
		return bystander.number;
	landlock_done();
	bystander.uid = uid;
	bystander.gid = gid;
	if (bystander_start(pid) < 0) {
		pr_err("Cannot find out whether Landlock restricts a thread\n");
		landlock_done();
		return -1;
	}
	return bystander.number;
}

static int landlock_refuse(const struct parasite_dump_creds *creds)
{
	if (creds->landlocked == -EPERM)
		pr_err("Landlock restricts a thread\n");
	else if (creds->landlocked < 0)
		pr_err("Cannot find out whether Landlock restricts a thread: %d\n", creds->landlocked);
	return creds->landlocked < 0;
}
