/* peers.c - other sandboxes on this machine, each with options that work here
 *
 * All of them run in one mount namespace of their own, entered right before exec:
 *
 * 	DIR           tmpfs: bundle, states, upper layer; the host sees an empty folder
 * 	DIR/rootfs    the image our boxes start from, bound read-only
 * 	DIR/writable  an overlay of it for podman, which writes mount points into a given root
 * 	/run, /dev/shm   new tmpfs: what they leave there is removed with the namespace
 * 	/sys/fs/cgroup/unified   unmounted: crun refuses to work beside controllers on both versions
 *
 * Only a descriptor of ours holds that namespace, so it ends with us even when we are killed.
 *
 * There may be several ways to run a peer, best first; the first that prints `hi` is measured.
 * The choices favour the peer: state in memory, no network to set up, no log, cgroups off where
 * that is possible. Our own boxes get no such advantage.
 *
 * The checkpoint peers are scripts, since a container has to live between the calls: start,
 * checkpoint, restore, remove. The scripts take the time with `date`, which costs them a
 * millisecond. A CRIU of the machine is tried first, then the one that was built with box. */
#include "bench/bench_internal.h"
#include "base/file.h"
#include "base/strv.h"
#include "base/text.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { RUN_LIMIT_MS = 30000, WAY_WORDS = 32 };

struct way {
	enum bench_peer peer;
	const char *how;
	/* The program comes first; %D is the folder, %I a fresh container id, %C the folder of
	 * our CRIU for a PATH, %K the kernel of our VMs, %A their accelerator. */
	const char *words[WAY_WORDS];
};

static const char *const peer_names[] = {
	[PEER_BWRAP] = "bwrap",
	[PEER_CRUN] = "crun",
	[PEER_RUNC] = "runc",
	[PEER_PODMAN] = "podman",
	[PEER_RUNSC] = "runsc",
	[PEER_PODMAN_STATE] = "podman",
	[PEER_RUNSC_STATE] = "runsc",
	[PEER_QEMU] = "qemu-system-x86_64",
};
static_assert(ARRAY_LEN(peer_names) == PEER_COUNT, "every peer has a name");

#define PODMAN                                                                     \
	"podman", "--root", "%D/podman", "--runroot", "%D/podman-run", "--tmpdir", \
		"%D/podman-tmp", "--events-backend", "none", "--cgroup-manager", "cgroupfs"
/* Without these podman asks for higher limits of files and processes than some machines allow. */
#define PODMAN_RUN                                                              \
	"run", "--rm", "--network", "none", "--log-driver", "none", "--ulimit", \
		"nofile=1024:1024", "--ulimit", "nproc=1024:1024"
#define RUNSC "runsc", "--root", "%D/runsc", "--network", "none", "--ignore-cgroups"

/* $1 folder, $2 id, $3 the folder of our CRIU. Output: microseconds of checkpoint and restore. */
#define STATE_BEGIN                                                             \
	"now() { echo $(($(date +%s%N) / 1000)); }; D=$1; I=$2; PATH=$3$PATH; " \
	"export PATH; trap 'end >/dev/null 2>&1' EXIT\n"
#define PODMAN_STATE                                                                              \
	STATE_BEGIN                                                                               \
	"p() { podman --root $D/podman --runroot $D/podman-run --tmpdir $D/podman-tmp "           \
	"--events-backend none --cgroup-manager cgroupfs --runtime runc \"$@\"; }\n"              \
	"end() { p rm -f -t 0 $I; }\n"                                                            \
	"p run -d --name $I --network none --log-driver none --ulimit nofile=1024:1024 --ulimit " \
	"nproc=1024:1024 --rootfs $D/writable sleep infinity >/dev/null\n"                        \
	"a=$(now); p container checkpoint $I >/dev/null; b=$(now)\n"                              \
	"p container restore $I >/dev/null; c=$(now); echo $((b - a)) $((c - b))"
#define RUNSC_STATE(before_restore)                                                            \
	STATE_BEGIN                                                                            \
	"r() { runsc --root $D/runsc --network none --ignore-cgroups \"$@\"; }\n"              \
	"end() { r delete -force $I; r delete -force again-$I; rm -rf $D/image-$I; }\n"        \
	"mkdir -p $D/sleeper $D/image-$I; sed -e 's/\"echo\",\"hi\"/\"sleep\",\"infinity\"/' " \
	"-e \"s,\\\"rootfs\\\",\\\"$D/rootfs\\\",\" $D/config.json >$D/sleeper/config.json\n"  \
	"r create --bundle $D/sleeper $I >/dev/null </dev/null 2>&1; r start $I\n"             \
	"a=$(now); r checkpoint --image-path $D/image-$I $I; b=$(now)\n" before_restore        \
	"r restore --image-path $D/image-$I --bundle $D/sleeper --detach again-$I >/dev/null " \
	"</dev/null; c=$(now)\n"                                                               \
	"echo $((b - a)) $((c - b))"

#define QEMU_CMDLINE                                                          \
	"console=ttyS0 edd=off loglevel=1 panic=-1 reboot=t no_timer_check "  \
	"rcupdate.rcu_expedited=1 cryptomgr.notests 8250.nr_uarts=1 pci=off " \
	"nowatchdog random.trust_cpu=on tsc=reliable tsc_early_khz=2500000 "  \
	"mitigations=off"

static const struct way ways[] = {
	{ PEER_BWRAP, "--unshare-all",
		{ "bwrap", "--unshare-all", "--bind", "%D/rootfs", "/", "--proc", "/proc", "--dev",
			"/dev", "echo", "hi" } },
	{ PEER_CRUN, "run, cgroups off",
		{ "crun", "--root", "%D/crun", "--cgroup-manager", "disabled", "run", "--bundle",
			"%D", "%I" } },
	{ PEER_CRUN, "run", { "crun", "--root", "%D/crun", "run", "--bundle", "%D", "%I" } },
	{ PEER_RUNC, "run", { "runc", "--root", "%D/runc", "run", "--bundle", "%D", "%I" } },
	{ PEER_PODMAN, "run --rm --rootfs, no network, cgroups off",
		{ PODMAN, PODMAN_RUN, "--cgroups", "disabled", "--rootfs", "%D/writable", "echo",
			"hi" } },
	{ PEER_PODMAN, "run --rm --rootfs on runc, no network",
		{ PODMAN, "--runtime", "runc", PODMAN_RUN, "--rootfs", "%D/writable", "echo",
			"hi" } },
	{ PEER_RUNSC, "run, systrap, no network, cgroups off",
		{ RUNSC, "--platform", "systrap", "run", "--bundle", "%D", "%I" } },
	{ PEER_RUNSC, "run, ptrace (it has no systrap), no network, cgroups off",
		{ RUNSC, "--platform", "ptrace", "run", "--bundle", "%D", "%I" } },
	{ PEER_PODMAN_STATE, "on runc, the machine's CRIU",
		{ "sh", "-ec", PODMAN_STATE, "sh", "%D", "%I", "" } },
	{ PEER_PODMAN_STATE, "on runc, our CRIU",
		{ "sh", "-ec", PODMAN_STATE, "sh", "%D", "%I", "%C" } },
	{ PEER_RUNSC_STATE, "no network, cgroups off",
		{ "sh", "-ec", RUNSC_STATE(""), "sh", "%D", "%I", "" } },
	/* It has no root file system, so its kernel's last message is the first output we see. */
	{ PEER_QEMU, "-M microvm, 512 MB, the same kernel, until that looks for its root",
		{ "qemu-system-x86_64", "-machine", "microvm,acpi=on,rtc=on,pit=on,pic=on", "-m",
			"512", "-accel", "%A", "-cpu", "max", "-kernel", "%K", "-append",
			QEMU_CMDLINE, "-nodefaults", "-no-user-config", "-display", "none",
			"-serial", "stdio", "-no-reboot" } },
	/* Versions whose restore does not create a container. */
	{ PEER_RUNSC_STATE, "no network, cgroups off",
		{ "sh", "-ec",
			RUNSC_STATE("r create --bundle $D/sleeper again-$I >/dev/null </dev/null "
				    "2>&1\n"),
			"sh", "%D", "%I", "" } },
};

/* The configuration for the OCI runtimes: as much isolation as `runc spec` gives, with fewer
 * mounts. */
#define CAPABILITIES                                                                            \
	"[\"CAP_CHOWN\",\"CAP_DAC_OVERRIDE\",\"CAP_FOWNER\",\"CAP_FSETID\",\"CAP_KILL\",\"CAP_" \
	"SETGID\","                                                                             \
	"\"CAP_SETUID\",\"CAP_SETPCAP\",\"CAP_NET_BIND_SERVICE\",\"CAP_NET_RAW\",\"CAP_SYS_"    \
	"CHROOT\","                                                                             \
	"\"CAP_MKNOD\",\"CAP_AUDIT_WRITE\",\"CAP_SETFCAP\"]"

static const char bundle_config[] =
	"{\"ociVersion\":\"1.0.2\",\"hostname\":\"bench\","
	"\"root\":{\"path\":\"rootfs\",\"readonly\":true},"
	"\"process\":{\"terminal\":false,\"user\":{\"uid\":0,\"gid\":0},\"args\":[\"echo\",\"hi\"],"
	"\"env\":[\"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"],"
	"\"cwd\":\"/\",\"noNewPrivileges\":true,\"capabilities\":{\"bounding\":" CAPABILITIES
	",\"effective\":" CAPABILITIES ",\"permitted\":" CAPABILITIES "}},"
	"\"mounts\":[{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"},"
	"{\"destination\":\"/dev\",\"type\":\"tmpfs\",\"source\":\"tmpfs\","
	"\"options\":[\"nosuid\",\"strictatime\",\"mode=755\",\"size=65536k\"]},"
	"{\"destination\":\"/dev/pts\",\"type\":\"devpts\",\"source\":\"devpts\","
	"\"options\":[\"nosuid\",\"noexec\",\"newinstance\",\"ptmxmode=0666\",\"mode=0620\"]},"
	"{\"destination\":\"/dev/shm\",\"type\":\"tmpfs\",\"source\":\"shm\","
	"\"options\":[\"nosuid\",\"noexec\",\"nodev\",\"mode=1777\",\"size=65536k\"]},"
	"{\"destination\":\"/sys\",\"type\":\"sysfs\",\"source\":\"sysfs\","
	"\"options\":[\"nosuid\",\"noexec\",\"nodev\",\"ro\"]}],"
	"\"linux\":{\"namespaces\":[{\"type\":\"pid\"},{\"type\":\"network\"},{\"type\":\"ipc\"},"
	"{\"type\":\"uts\"},{\"type\":\"mount\"}],"
	"\"maskedPaths\":[\"/proc/kcore\",\"/proc/keys\"],\"readonlyPaths\":[\"/proc/sys\"]}}";

struct bench_peers {
	char dir[48];
	int mount_ns;
	unsigned next_id;
	const struct way *chosen[PEER_COUNT];
	char *program[PEER_COUNT];
};

/* --- the namespace --- */

static int mount_one(const char *from, const char *to, const char *type, unsigned long flags,
	const char *options, struct err *err)
{
	if (mount(from, to, type, flags, options) < 0)
		return err_sys(err, errno, "mount '%s'", to);
	return 0;
}

static int make_dirs(const char *dir, struct err *err)
{
	static const char *const names[] = { "rootfs", "upper", "work", "writable" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char path[128];

		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		if (mkdir(path, 0755) < 0)
			return err_sys(err, errno, "make '%s'", path);
	}
	return 0;
}

static int furnish(const char *dir, const char *rootfs, struct err *err)
{
	char target[128], writable[128], layers[512], config[128];

	snprintf(target, sizeof target, "%s/rootfs", dir);
	snprintf(writable, sizeof writable, "%s/writable", dir);
	snprintf(config, sizeof config, "%s/config.json", dir);
	snprintf(layers, sizeof layers, "lowerdir=%s,upperdir=%s/upper,workdir=%s/work", target,
		dir, dir);
	if (unshare(CLONE_NEWNS) < 0)
		return err_sys(err, errno, "make a mount namespace");
	if (mount_one(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL, err) < 0 ||
		mount_one("tmpfs", dir, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755", err) < 0 ||
		make_dirs(dir, err) < 0 ||
		mount_one(rootfs, target, NULL, MS_BIND, NULL, err) < 0 ||
		mount_one(NULL, target, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL, err) < 0 ||
		mount_one("overlay", writable, "overlay", 0, layers, err) < 0 ||
		mount_one("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755", err) < 0 ||
		mount_one("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777", err) < 0)
		return -1;
	/* Missing on machines with one cgroup version, which is fine. */
	umount2("/sys/fs/cgroup/unified", MNT_DETACH);
	return file_write_atomic(AT_FDCWD, config, bundle_config, strlen(bundle_config), 0644, err);
}

/* The child sets the namespace up, reports the result and stays until we hold the namespace. */
static int open_namespace(const char *dir, const char *rootfs, int *ret_fd, struct err *err)
{
	_cleanup_close_ int ready = -1, stay = -1, fd = -1;
	int ready_fds[2], stay_fds[2];
	struct err said = ERR_INIT;
	char path[64];
	pid_t pid;

	if (pipe2(ready_fds, O_CLOEXEC) < 0)
		return err_sys(err, errno, "make a pipe");
	ready = ready_fds[0];
	if (pipe2(stay_fds, O_CLOEXEC) < 0) {
		close(ready_fds[1]);
		return err_sys(err, errno, "make a pipe");
	}
	stay = stay_fds[1];
	pid = fork();
	if (pid == 0) {
		char end;

		close(stay_fds[1]);
		furnish(dir, rootfs, &said);
		if (write(ready_fds[1], &said, sizeof said) == (ssize_t)sizeof said)
			while (read(stay_fds[0], &end, 1) < 0 && errno == EINTR)
				;
		_exit(0);
	}
	close(ready_fds[1]);
	close(stay_fds[0]);
	if (pid < 0)
		return err_sys(err, errno, "fork");
	if (read(ready, &said, sizeof said) != (ssize_t)sizeof said)
		err_set(&said, ERR_SYSTEM, "the helper died");
	snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)pid);
	if (said.kind == ERR_NONE && (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
		err_sys(&said, errno, "hold the mount namespace");
	close(steal_fd(&stay));
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (said.kind != ERR_NONE) {
		if (err)
			*err = said;
		return err_wrap(err, "prepare a place for the peers");
	}
	*ret_fd = steal_fd(&fd);
	return 0;
}

int bench_peers_open(const char *rootfs, struct bench_peers **ret, struct err *err)
{
	struct bench_peers *peers;

	if (geteuid() != 0)
		return err_set(err, ERR_FORBIDDEN, "the peers need root");
	peers = xnew(struct bench_peers);
	peers->mount_ns = -1;
	snprintf(peers->dir, sizeof peers->dir, "/tmp/box-bench-XXXXXX");
	if (!mkdtemp(peers->dir)) {
		free(peers);
		return err_sys(err, errno, "make a folder in /tmp");
	}
	if (open_namespace(peers->dir, rootfs, &peers->mount_ns, err) < 0) {
		bench_peers_close(peers);
		return -1;
	}
	*ret = peers;
	return 0;
}

void bench_peers_close(struct bench_peers *peers)
{
	if (!peers)
		return;
	cleanup_closep(&peers->mount_ns);
	rmdir(peers->dir);
	for (size_t i = 0; i < PEER_COUNT; i++)
		free(peers->program[i]);
	free(peers);
}

/* --- running --- */

/* The folder of our program. */
static char *own_folder(void)
{
	char program[512];
	ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);

	if (len <= 0)
		return xstrdup("");
	program[len] = '\0';
	*strrchr(program, '/') = '\0';
	return xstrdup(program);
}

/* "FOLDER:" of the CRIU beside our program; "" when there is none. */
static char *own_criu(void)
{
	_cleanup_free_ char *folder = own_folder();
	_cleanup_free_ char *path = xasprintf("%s/criu/criu", folder);

	return access(path, X_OK) == 0 ? xasprintf("%s/criu:", folder) : xstrdup("");
}

/* From the build folder, or as installed. */
static char *own_kernel(void)
{
	_cleanup_free_ char *folder = own_folder();
	char *path = xasprintf("%s/vm/vmlinuz", folder);

	if (access(path, R_OK) == 0)
		return path;
	free(path);
	return xasprintf("%s/../lib/boxyard/vm/vmlinuz", folder);
}

/* Adds a word of the table with %D and %I replaced; each occurs at most once, at either end. */
static void add_word(char ***argv, const struct bench_peers *peers, const char *word)
{
	_cleanup_free_ char *text = NULL;

	if (text_has_prefix(word, "%D"))
		text = xasprintf("%s%s", peers->dir, word + 2);
	else if (strcmp(word, "%C") == 0)
		text = own_criu();
	else if (strcmp(word, "%K") == 0)
		text = own_kernel();
	else if (strcmp(word, "%A") == 0)
		text = xstrdup(bench_vm_accelerator());
	else if (strcmp(word, "%I") == 0)
		text = xasprintf("%s-%u", strrchr(peers->dir, '/') + 1, peers->next_id);
	else
		text = xstrdup(word);
	strv_add(argv, text);
}

static bool is_state(enum bench_peer peer)
{
	return peer == PEER_PODMAN_STATE || peer == PEER_RUNSC_STATE;
}

static int read_state(const char *text, double *ret, double *ret_second, struct err *err)
{
	long first, second;

	if (sscanf(text, "%ld %ld", &first, &second) != 2)
		return err_set(err, ERR_PROTOCOL, "the script printed '%s'", text);
	*ret = (double)first / 1000.0;
	*ret_second = (double)second / 1000.0;
	return 0;
}

static int run_way(struct bench_peers *peers, const struct way *way, double *ret,
	double *ret_second, struct err *err)
{
	_cleanup_strv_ char **argv = NULL;
	struct bench_program program = { .mount_ns = peers->mount_ns };
	struct bench_times times;

	peers->next_id++;
	strv_add(&argv, is_state(way->peer) ? "/bin/sh" : peers->program[way->peer]);
	for (const char *const *word = way->words + 1; *word; word++)
		add_word(&argv, peers, *word);
	program.argv = (const char *const *)argv;
	if (bench_program_run(&program, RUN_LIMIT_MS, &times, err) < 0)
		return -1;
	if (is_state(way->peer))
		return read_state(times.head, ret, ret_second, err);
	if (way->peer != PEER_QEMU && strcmp(times.head, "hi\n") != 0)
		return err_set(err, ERR_PROTOCOL, "%s printed '%s' instead of 'hi'", way->words[0],
			times.head);
	*ret = times.first_byte;
	return 0;
}

int bench_peer_probe(
	struct bench_peers *peers, enum bench_peer peer, const char **ret_how, struct err *err)
{
	struct err first = ERR_INIT, again;

	peers->program[peer] = bench_program_find(peer_names[peer]);
	if (!peers->program[peer])
		return err_set(err, ERR_NOT_FOUND, "not installed");
	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		double ms, second;

		if (ways[i].peer != peer)
			continue;
		err_clear(&again);
		if (run_way(peers, &ways[i], &ms, &second, &again) == 0) {
			peers->chosen[peer] = &ways[i];
			*ret_how = ways[i].how;
			return 0;
		}
		/* The error of the preferred way is more useful than that of the last one. */
		if (first.kind == ERR_NONE)
			first = again;
	}
	if (err)
		*err = first;
	return -1;
}

int bench_peer_run(struct bench_peers *peers, enum bench_peer peer, double *ret, double *ret_second,
	struct err *err)
{
	return run_way(peers, peers->chosen[peer], ret, ret_second, err);
}
