/* vm_root.c - the root of a box in a VM: an overlay of its disk, our layer and the image
 *
 * Our layer is a small file system in memory with what every box gets in addition to its image,
 * as in the ns driver (engine/ns/guest.c): mount points, resolv.conf, the machine's
 * certificates, the `box` command. It is made at each boot and does not count as a change of the
 * box.
 *
 * Containers in the box cannot stack their overlay on ours: their folders are plain ones of the
 * disk's file system, in outside/ beside upper. */
#include "guest/vm.h"
#include "base/alloc.h"
#include "base/file.h"
#include "guest/group.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define LAYER	"/layer"
#define ROOT	"/root"
#define PROGRAM ".boxyard"

enum { PROGRAM_MAX = 64 * 1024 * 1024 };

static const struct {
	const char *path;
	mode_t mode;
} dirs[] = {
	{ "proc", 0755 },
	{ "sys", 0755 },
	{ "dev", 0755 },
	{ "run", 0755 },
	{ "tmp", 01777 },
	{ "root", 0700 },
	{ "etc", 0755 },
	{ "usr", 0755 },
	{ "usr/local", 0755 },
	{ "usr/local/bin", 0755 },
	{ "usr/local/share", 0755 },
	{ "usr/local/share/ca-certificates", 0755 },
	{ "var", 0755 },
	{ "var/lib", 0755 },
	{ "var/lib/containers", 0755 },
	{ "var/lib/containerd", 0755 },
	{ "var/lib/docker", 0755 },
	{ "workspace", 0755 },
	{ PROGRAM, 0755 },
};

static const struct {
	const char *type, *target, *options;
	mode_t mode;
	unsigned long flags;
} mounts[] = {
	{ "devpts", "dev/pts", "gid=5,mode=620,ptmxmode=666", 0755, MS_NOSUID | MS_NOEXEC },
	{ "tmpfs", "dev/shm", "mode=1777", 01777, MS_NOSUID | MS_NODEV },
	{ "mqueue", "dev/mqueue", NULL, 01777, MS_NOSUID | MS_NODEV | MS_NOEXEC },
	{ "tmpfs", "run", "mode=0755", 0755, MS_NOSUID | MS_NODEV },
	{ "bpf", "sys/fs/bpf", "mode=700", 0, MS_NOSUID | MS_NODEV | MS_NOEXEC },
	{ "tracefs", "sys/kernel/tracing", NULL, 0, MS_NOSUID | MS_NODEV | MS_NOEXEC },
};

static const struct {
	const char *name; /* in dev/ */
	const char *target;
} links[] = {
	{ "fd", "/proc/self/fd" },
	{ "stdin", "/proc/self/fd/0" },
	{ "stdout", "/proc/self/fd/1" },
	{ "stderr", "/proc/self/fd/2" },
};

/* ---- our layer ------------------------------------------------------------------------------ */

/* Has the attributes of the image's folder, if there is one: where two layers have a folder,
 * those of the upper one are visible. */
static int make_dir(const char *path, mode_t mode, struct err *err)
{
	_cleanup_free_ char *ours = xasprintf(LAYER "/%s", path);
	_cleanup_free_ char *theirs = xasprintf("/image/%s", path);
	struct stat st = { .st_mode = S_IFDIR | mode };

	if (lstat(theirs, &st) == 0 && !S_ISDIR(st.st_mode))
		return 0; /* a link of the image: it stays */
	if (mkdir(ours, 0700) < 0)
		return errno == ENOENT ? 0 : err_sys(err, errno, "make '/%s'", path);
	if (chown(ours, st.st_uid, st.st_gid) < 0 || chmod(ours, st.st_mode & 07777) < 0)
		return err_sys(err, errno, "make '/%s'", path);
	if (!st.st_nlink)
		return 0;
	utimensat(AT_FDCWD, ours, (struct timespec[]){ st.st_atim, st.st_mtim }, 0);
	return 0;
}

/* If the image's folder is a link, the file is not made: nothing of ours is written elsewhere. */
static void copy_file(const char *name, const char *path)
{
	_cleanup_free_ char *from = xasprintf("/files/%s", name);
	_cleanup_free_ char *to = xasprintf(LAYER "/%s", path);
	_cleanup_free_ char *text = NULL;
	size_t len;

	if (file_read(AT_FDCWD, from, PROGRAM_MAX, &text, &len, NULL) == 0 &&
		file_write_atomic(AT_FDCWD, to, text, len, 0644, NULL) == 0)
		chmod(to, 0644);
}

static int make_layer(struct err *err)
{
	if (mkdir(LAYER, 0755) < 0 && errno != EEXIST)
		return err_sys(err, errno, "make " LAYER);
	if (mount("tmpfs", LAYER, "tmpfs", 0, "mode=0755,size=16m") < 0)
		return err_sys(err, errno, "mount " LAYER);
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (make_dir(dirs[i].path, dirs[i].mode, err) < 0)
			return -1;
	copy_file("resolv.conf", "etc/resolv.conf");
	copy_file("certificates", "usr/local/share/ca-certificates/boxyard-machine.crt");
	(void)!symlink("/" PROGRAM "/box", LAYER "/usr/local/bin/box");
	return mount(NULL, LAYER, NULL, MS_REMOUNT | MS_RDONLY, NULL) < 0
		       ? err_sys(err, errno, "protect " LAYER)
		       : 0;
}

/* box-init under the names that the box uses. Read-only: `rm -rf /` does not remove it. */
static int make_program(struct err *err)
{
	static const char *const names[] = { "box", "modprobe" };
	_cleanup_free_ char *bytes = NULL;
	size_t len;

	if (file_read(AT_FDCWD, "/init", PROGRAM_MAX, &bytes, &len, err) < 0)
		return -1;
	if (mount("tmpfs", ROOT "/" PROGRAM, "tmpfs", MS_NOSUID | MS_NODEV,
		    "mode=0755,size=64m,nr_inodes=16") < 0)
		return err_sys(err, errno, "mount /" PROGRAM);
	if (file_write_atomic(AT_FDCWD, ROOT "/" PROGRAM "/box-init", bytes, len, 0755, err) < 0 ||
		chmod(ROOT "/" PROGRAM "/box-init", 0755) < 0)
		return err_wrap(err, "copy box-init");
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		_cleanup_free_ char *path = xasprintf(ROOT "/" PROGRAM "/%s", names[i]);

		if (link(ROOT "/" PROGRAM "/box-init", path) < 0)
			return err_sys(err, errno, "link box-init");
	}
	if (mount(NULL, ROOT "/" PROGRAM, NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV,
		    NULL) < 0)
		return err_sys(err, errno, "protect /" PROGRAM);
	return 0;
}

/* ---- mounts --------------------------------------------------------------------------------- */

static int mount_overlay(struct err *err)
{
	static const char *const own[] = { "/disk/upper", "/disk/work", "/disk/outside" };

	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		if (mkdir(own[i], 0755) < 0 && errno != EEXIST)
			return err_sys(err, errno, "make '%s'", own[i]);
	if (mount("overlay", ROOT, "overlay", 0,
		    "lowerdir=" LAYER ":/image,upperdir=/disk/upper,workdir=/disk/work") < 0)
		return err_sys(err, errno, "mount the root");
	return 0;
}

static bool is_empty(const char *path)
{
	struct dirent **entries = NULL;
	int count = scandir(path, &entries, NULL, NULL);

	for (int i = 0; i < count; i++)
		free(entries[i]);
	free(entries);
	return count == 2;
}

/* A folder that the image or the box has filled stays as it is. */
static void bind_outside(const char *name)
{
	_cleanup_free_ char *own = xasprintf("/disk/outside/%s", name);
	_cleanup_free_ char *target = xasprintf(ROOT "/var/lib/%s", name);
	struct stat st;

	if (lstat(target, &st) < 0 || !S_ISDIR(st.st_mode) || !is_empty(target))
		return;
	if (mkdir(own, 0755) == 0 || errno == EEXIST)
		mount(own, target, NULL, MS_BIND, NULL);
}

static void move_devices(void)
{
	static const char *const moved[] = { "dev", "proc", "sys" };

	for (size_t i = 0; i < ARRAY_LEN(moved); i++) {
		_cleanup_free_ char *from = xasprintf("/%s", moved[i]);
		_cleanup_free_ char *to = xasprintf(ROOT "/%s", moved[i]);

		mount(from, to, NULL, MS_MOVE, NULL);
	}
}

static void mount_others(void)
{
	for (size_t i = 0; i < ARRAY_LEN(mounts); i++) {
		_cleanup_free_ char *target = xasprintf(ROOT "/%s", mounts[i].target);

		if (mounts[i].mode && mkdir(target, mounts[i].mode) == 0)
			chmod(target, mounts[i].mode);
		mount(mounts[i].type, target, mounts[i].type, mounts[i].flags, mounts[i].options);
	}
	for (size_t i = 0; i < ARRAY_LEN(links); i++) {
		_cleanup_free_ char *path = xasprintf(ROOT "/dev/%s", links[i].name);

		(void)!symlink(links[i].target, path);
	}
	mkdir(ROOT "/run/lock", 01777);
}

/* The modules are those of the image, which contains the tree of its kernel. A box without a
 * modprobe gets ours. */
static void offer_modprobe(void)
{
	static const char *const places[] = { "/sbin/modprobe", "/usr/sbin/modprobe" };

	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		if (access(places[i], X_OK) == 0)
			return;
	file_poke(AT_FDCWD, "/proc/sys/kernel/modprobe", "/" PROGRAM "/modprobe", NULL);
}

/* Frees the memory of the initramfs, except our own program while it runs. */
static void empty_initramfs(void)
{
	tree_remove(AT_FDCWD, "/modules", NULL);
	tree_remove(AT_FDCWD, "/files", NULL);
	unlink("/init");
}

int vm_root_enter(struct err *err)
{
	if (make_layer(err) < 0 || mount_overlay(err) < 0 || make_program(err) < 0)
		return -1;
	bind_outside("containers");
	bind_outside("containerd");
	bind_outside("docker");
	move_devices();
	mount_others();
	if (group_open(ROOT "/sys/fs/cgroup", err) < 0)
		return -1;
	empty_initramfs();
	/* The initramfs cannot be unmounted; the root is moved over it. */
	if (chdir(ROOT) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
		chdir("/") < 0)
		return err_sys(err, errno, "enter the root");
	/* As programs expect: mounts propagate into all namespaces below. */
	mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL);
	offer_modprobe();
	/* As in boxes that share a kernel: a program may reserve more memory than its box has. */
	file_poke(AT_FDCWD, "/proc/sys/vm/overcommit_memory", "1", NULL);
	return 0;
}
