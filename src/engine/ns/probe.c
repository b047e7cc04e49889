/* probe.c - what this machine can do, by trying it
 *
 * Each check does the real thing in a small way, in a child where it could leave traces: a version
 * number says little about kernels with options left out or rights taken away. Required checks
 * decide whether boxes can run; the others explain what is missing and what follows from it. */
#include "engine/ns/ns_internal.h"
#include "base/file.h"
#include "base/text.h"
#include "sys/caps.h"
#include "sys/clone.h"
#include "sys/idmap.h"
#include "sys/mountfd.h"
#include "sys/procfd.h"
#include "sys/seccomp.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { PROBE_UID = 1 << 30, CHECK_MS = 3000 };
static const struct idmap_extent probe_ids[] = NS_EXTENTS(PROBE_UID);

/* A process in new namespaces that waits until it is released. */
struct dummy {
	pid_t pid;
	int pidfd;
	int leash;
};

static int dummy_open(uint64_t namespaces, struct dummy *ret, struct err *err)
{
	struct clone_spec how = { .namespaces = namespaces, .cgroup = -1 };
	int pair[2];
	char byte;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, errno, "socketpair");
	ret->pid = clone_process(&how, &ret->pidfd, err);
	if (ret->pid == 0) {
		close(pair[0]);
		_exit(read(pair[1], &byte, 1) < 0);
	}
	close(pair[1]);
	ret->leash = pair[0];
	if (ret->pid < 0) {
		close(pair[0]);
		return -1;
	}
	return 0;
}

static void dummy_close(struct dummy *dummy)
{
	struct pollfd poller = { .fd = dummy->pidfd, .events = POLLIN };
	int ignored;

	close(dummy->leash);
	procfd_kill(dummy->pidfd, SIGKILL, NULL);
	poll(&poller, 1, CHECK_MS);
	procfd_reap(dummy->pidfd, &ignored);
	close(dummy->pidfd);
}

/* Runs fn in a child and returns its error. */
static int in_child(struct ns_engine *engine, int (*fn)(struct ns_engine *engine, struct err *err),
	struct err *err)
{
	struct clone_spec how = { .cgroup = -1 };
	struct pollfd poller = { .events = POLLIN };
	struct err story = ERR_INIT;
	int pair[2], pidfd = -1, ignored;
	pid_t pid;
	bool heard;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, errno, "socketpair");
	pid = clone_process(&how, &pidfd, err);
	if (pid == 0) {
		if (fn(engine, &story) == 0)
			err_clear(&story);
		_exit(send(pair[1], &story, sizeof story, MSG_NOSIGNAL) < 0);
	}
	close(pair[1]);
	poller.fd = pair[0];
	heard = pid > 0 && poll(&poller, 1, CHECK_MS) > 0 &&
		recv(pair[0], &story, sizeof story, MSG_DONTWAIT) > 0;
	close(pair[0]);
	if (pid < 0)
		return -1;
	procfd_kill(pidfd, SIGKILL, NULL);
	poller.fd = pidfd;
	poll(&poller, 1, CHECK_MS);
	procfd_reap(pidfd, &ignored);
	close(pidfd);
	if (!heard)
		return err_set(err, ERR_TIMEOUT, "the trial gave no answer");
	if (story.kind && err)
		*err = story;
	return story.kind ? -1 : 0;
}

/* ---- the checks: 0 and a detail, or -1 and why ---------------------------------------------- */

struct finding {
	char detail[256];
};

static int check_root(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	(void)engine;
	if (geteuid() != 0)
		return err_set(err, ERR_FORBIDDEN, "the daemon runs as user %d", (int)geteuid());
	if (!caps_have(CAP_SYS_ADMIN))
		return err_set(err, ERR_FORBIDDEN, "root has no CAP_SYS_ADMIN");
	snprintf(ret->detail, sizeof ret->detail, "root with CAP_SYS_ADMIN");
	return 0;
}

static int check_namespaces(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	struct dummy dummy;
	int status;

	(void)engine;
	if (dummy_open(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC |
			       CLONE_NEWNET | CLONE_NEWCGROUP,
		    &dummy, err) < 0)
		return -1;
	status = idmap_write(dummy.pid, probe_ids, NS_EXTENT_COUNT, err);
	dummy_close(&dummy);
	snprintf(ret->detail, sizeof ret->detail, "user pid mount uts ipc net cgroup, by clone3");
	return status;
}

static int try_time(struct ns_engine *engine, struct err *err)
{
	(void)engine;
	if (unshare(CLONE_NEWTIME) < 0)
		return err_sys(err, errno, "unshare the time");
	return 0;
}

static int check_time(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	struct dummy dummy;

	if (dummy_open(CLONE_NEWUSER | CLONE_NEWTIME, &dummy, NULL) == 0) {
		dummy_close(&dummy);
		snprintf(ret->detail, sizeof ret->detail, "by clone3");
		return 0;
	}
	snprintf(ret->detail, sizeof ret->detail, "by unshare, for all but box-init itself");
	return in_child(engine, try_time, err);
}

static int check_mount_api(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	int mount = -1;

	(void)engine;
	if (mount_new("tmpfs", NULL, 0, &mount, err) < 0)
		return -1;
	close(mount);
	snprintf(ret->detail, sizeof ret->detail, "fsopen, fsmount, open_tree");
	return 0;
}

static int try_idmap(struct ns_engine *engine, const struct dummy *dummy, struct err *err)
{
	_cleanup_close_ int userns = -1, tree = -1;

	if (idmap_write(dummy->pid, probe_ids, NS_EXTENT_COUNT, err) < 0 ||
		idmap_open(dummy->pid, &userns, err) < 0)
		return -1;
	return idmap_clone_tree(
		AT_FDCWD, engine->home, &(struct idmap_view){ .userns = userns }, &tree, err);
}

static int check_idmap(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	struct dummy dummy;
	int status;

	if (dummy_open(CLONE_NEWUSER, &dummy, err) < 0)
		return -1;
	status = try_idmap(engine, &dummy, err);
	dummy_close(&dummy);
	snprintf(ret->detail, sizeof ret->detail, "on the file system of '%.200s'", engine->home);
	return status;
}

/* Makes the overlay a box would get, with box-init's folder as the image, and writes to it, since
 * an overlay may come up read-only without an error. */
static int try_layers(struct ns_engine *engine, const struct dummy *dummy, int disk,
	struct layers *layers, struct err *err)
{
	_cleanup_close_ int userns = -1, root = -1;
	char bin[32];
	const char *image[] = { bin, NULL };
	struct layers_spec spec = { .image = image, .disk = disk, .guest = engine->guest.layer };

	if (idmap_write(dummy->pid, probe_ids, NS_EXTENT_COUNT, err) < 0 ||
		idmap_open(dummy->pid, &userns, err) < 0)
		return -1;
	snprintf(bin, sizeof bin, "/proc/self/fd/%d", engine->guest.bin);
	spec.userns = userns;
	if (layers_open(engine, &spec, layers, err) < 0 ||
		layers_stack(engine, layers, PROBE_UID, &root, err) < 0)
		return -1;
	if (faccessat(root, ".", W_OK, AT_EACCESS) < 0 && errno == EROFS)
		return err_set(err, ERR_UNSUPPORTED,
			"the overlay is read-only: id-mapped upper layers do not work");
	return 0;
}

static int try_overlay(
	struct ns_engine *engine, const struct dummy *dummy, int disk, struct err *err)
{
	struct layers layers;
	int status;

	layers_init(&layers);
	status = try_layers(engine, dummy, disk, &layers, err);
	layers_close(engine, &layers);
	return status;
}

static int check_overlay(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	char name[32] = ".probe-";
	_cleanup_close_ int home = open(engine->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
			    disk = -1;
	struct dummy dummy;
	int status = -1;

	random_id(name + 7, 12);
	if (home < 0 || mkdirat(home, name, 0700) < 0)
		return err_sys(err, errno, "make a directory in '%s'", engine->home);
	disk = openat(home, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (disk < 0 || mkdirat(disk, "upper", 0755) < 0 || mkdirat(disk, "work", 0755) < 0)
		err_sys(err, errno, "make directories in '%s'", engine->home);
	else if (dummy_open(CLONE_NEWUSER, &dummy, err) == 0) {
		status = try_overlay(engine, &dummy, disk, err);
		dummy_close(&dummy);
	}
	tree_remove(home, name, NULL);
	snprintf(ret->detail, sizeof ret->detail, "writable, of id-mapped layers that are %s",
		engine->layers == LAYERS_DETACHED
			? "detached (added by lowerdir+)"
			: "attached in a mount namespace of their own (one lowerdir list)");
	return status;
}

static int try_seccomp(struct ns_engine *engine, struct err *err)
{
	return seccomp_program_install(engine->filters[PROFILE_STANDARD], err);
}

static int check_seccomp(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	snprintf(ret->detail, sizeof ret->detail, "the standard filter loads");
	return in_child(engine, try_seccomp, err);
}

static int check_limit(struct ns_engine *engine, enum cgroup_controller controller,
	struct finding *ret, struct err *err)
{
	const char *name = cgroup_controller_name(controller);

	if (!cgroup_tree_has(engine->cgroups, controller))
		return err_set(err, ERR_UNSUPPORTED, "no usable cgroup controller '%s'", name);
	snprintf(ret->detail, sizeof ret->detail, "controller '%s' (layout %s)", name,
		cgroup_tree_layout(engine->cgroups));
	return 0;
}

static int check_cpu(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	return check_limit(engine, CGROUP_CPU, ret, err);
}

static int check_memory(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	return check_limit(engine, CGROUP_MEMORY, ret, err);
}

static int check_pids(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	return check_limit(engine, CGROUP_PIDS, ret, err);
}

static int check_whole(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	struct limits all = groups_get_limits(engine->groups);
	char size[16];
	if (!all.memory_bytes || !all.pids)
		return err_set(err, ERR_UNSUPPORTED, "%s of all boxes together %s no limit",
			!all.memory_bytes ? "memory" : "processes",
			!all.memory_bytes ? "has" : "have");
	snprintf(ret->detail, sizeof ret->detail, "%s of memory and %llu processes",
		format_size(all.memory_bytes, size), (unsigned long long)all.pids);
	return 0;
}

static int check_cgroup_v2(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	if (!cgroup_tree_has_v2(engine->cgroups))
		return err_set(err, ERR_UNSUPPORTED, "no cgroup2 is mounted");
	snprintf(ret->detail, sizeof ret->detail, "births, kills and nested groups use it");
	return 0;
}

static int check_resource(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	(void)engine;
	if (!caps_have(CAP_SYS_RESOURCE))
		return err_set(err, ERR_FORBIDDEN, "root has no CAP_SYS_RESOURCE");
	snprintf(ret->detail, sizeof ret->detail, "limits of the daemon can be raised");
	return 0;
}

static int check_network(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	if (!engine->doors) {
		*err = engine->doors_problem;
		return -1;
	}
	snprintf(ret->detail, sizeof ret->detail, "a namespace with its rules and sockets");
	return 0;
}

static int check_kvm(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	_cleanup_close_ int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	(void)engine;
	if (fd < 0)
		return err_sys(err, errno, "open '/dev/kvm'");
	snprintf(ret->detail, sizeof ret->detail, "usable, but not used by this driver");
	return 0;
}

/* CRIU itself reports whether the kernel has what it needs. */
static int check_criu(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	char *argv[] = { "criu", "--no-default-config", "check", NULL };
	char *envp[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	posix_spawn_file_actions_t actions;
	int status = -1;
	pid_t pid = -1;

	if (!engine->criu)
		return err_set(err, ERR_UNSUPPORTED, "there is no CRIU for the daemon to use");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	if (posix_spawn(&pid, engine->criu, &actions, NULL, argv, envp) == 0)
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			continue;
	posix_spawn_file_actions_destroy(&actions);
	if (status)
		return err_set(err, ERR_UNSUPPORTED, "'%.200s check' fails", engine->criu);
	snprintf(ret->detail, sizeof ret->detail,
		"works: boxes can be hibernated, forked and rolled "
		"back with their processes");
	return 0;
}

static int check_criu_build(struct ns_engine *engine, struct finding *ret, struct err *err)
{
	if (engine->base.capture_problem)
		return err_set(err, ERR_UNSUPPORTED, "%s", engine->base.capture_problem);
	snprintf(ret->detail, sizeof ret->detail, "made for this program, or the operator's own");
	return 0;
}

static const struct {
	const char *name;
	bool required;
	int (*check)(struct ns_engine *engine, struct finding *ret, struct err *err);
	const char *hint; /* used when the error has none of its own */
} list[] = {
	{ "root", true, check_root, "run the daemon as root" },
	{ "namespaces", true, check_namespaces,
		"sysctl user.max_user_namespaces must not be 0, and clone3 needs Linux 5.7" },
	{ "time namespaces", false, check_time,
		"boxes run without them; the kernel needs CONFIG_TIME_NS" },
	{ "mount API", true, check_mount_api, "needs Linux 5.12" },
	{ "id-mapped mounts", true, check_idmap, "put BOX_HOME on ext4, xfs or btrfs" },
	{ "overlay", true, check_overlay, "needs the overlay module and Linux 5.19" },
	{ "seccomp", true, check_seccomp, "the kernel needs CONFIG_SECCOMP_FILTER" },
	{ "network", true, check_network,
		"the kernel needs nf_tables with tproxy, reject, log and limit" },
	{ "cpu limit", false, check_cpu, "boxes run without --cpu" },
	{ "memory limit", false, check_memory,
		"boxes run without --memory; boot with cgroup_enable=memory" },
	{ "pids limit", false, check_pids, "boxes run without --pids" },
	{ "all boxes together", false, check_whole,
		"boxes may use up the machine; see yard_memory and yard_pids in docs/conf.md" },
	{ "cgroup v2", false, check_cgroup_v2, "mount -t cgroup2 none /sys/fs/cgroup/unified" },
	{ "criu", false, check_criu,
		"'make criu' builds it; without it boxes sleep in memory alone, and snapshots and "
		"forks are of disks" },
	{ "criu build", false, check_criu_build, "'make criu' builds it" },
	{ "CAP_SYS_RESOURCE", false, check_resource,
		"only the limit of open files stays as it is" },
	{ "kvm", false, check_kvm, "not needed for this driver" },
};

int ns_probe(struct engine *base, json_t *checks, struct err *err)
{
	struct ns_engine *engine = ns_engine_of(base);
	const char *missing = NULL;

	for (size_t i = 0; i < ARRAY_LEN(list); i++) {
		struct finding finding = { "" };
		struct err why = ERR_INIT;
		bool ok = list[i].check(engine, &finding, &why) == 0;

		json_array_append_new(
			checks, json_pack("{s:s, s:b, s:s, s:s, s:b}", "name", list[i].name, "ok",
					ok, "detail", ok ? finding.detail : why.message, "hint",
					ok	      ? ""
					: why.hint[0] ? why.hint
						      : list[i].hint,
					"required", list[i].required));
		if (!ok && list[i].required && !missing)
			missing = list[i].name;
	}
	if (missing) {
		err_set(err, ERR_UNSUPPORTED, "boxes cannot run here: %s", missing);
		return err_hint(err, "'box doctor' names the missing pieces");
	}
	return 0;
}
