/* mountfd.c - see mountfd.h
 *
 * Overlay keeps the credentials of the process that makes it and uses them for every access to its
 * layers. Host uid 0 is not mapped in an id-mapped upper: an overlay made by plain root is silently
 * read-only. So the file system user is set to the box's root while the mount is made; that drops
 * capabilities from the effective set, so they are raised again. */
#include "sys/mountfd.h"
#include "base/alloc.h"
#include "sys/caps.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/fsuid.h>

/* The kernel explains a refusal in lines "e overlay: text" on the fd of fsopen. */
static int fail(struct err *err, int fs, int errno_value, const char *type, const char *what)
{
	char why[200];
	ssize_t got = read(fs, why, sizeof why - 1);

	if (got <= 2)
		return err_sys(err, errno_value, "mount %s: %s", type, what);
	why[got] = '\0';
	why[strcspn(why, "\n")] = '\0';
	return err_sys(err, errno_value, "mount %s: %s: %s", type, what, why + 2);
}

int mount_new(const char *type, const struct mount_option *options, unsigned attr, int *ret,
	struct err *err)
{
	_cleanup_close_ int fs = fsopen(type, FSOPEN_CLOEXEC);
	int mount;

	if (fs < 0)
		return err_sys(err, errno, "fsopen %s", type);
	for (const struct mount_option *o = options; o && o->key; o++)
		if (fsconfig(fs, o->value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, o->key,
			    o->value, 0) < 0)
			return fail(err, fs, errno, type, o->key);
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return fail(err, fs, errno, type, "create");
	mount = fsmount(fs, FSMOUNT_CLOEXEC, attr);
	if (mount < 0)
		return fail(err, fs, errno, type, "fsmount");
	*ret = mount;
	return 0;
}

int mount_clone(int dirfd, const char *path, int *ret, struct err *err)
{
	int tree = open_tree(
		dirfd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (*path ? 0 : AT_EMPTY_PATH));

	if (tree < 0)
		return err_sys(err, errno, "open_tree '%s'", path);
	*ret = tree;
	return 0;
}

int mount_set(int mount, uint64_t attr, struct err *err)
{
	struct mount_attr change = { .attr_set = attr };

	if (mount_setattr(mount, "", AT_EMPTY_PATH, &change, sizeof change) < 0)
		return err_sys(err, errno, "mount_setattr");
	return 0;
}

int mount_attach(int mount, int target, struct err *err)
{
	if (move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) <
		0)
		return err_sys(err, errno, "move_mount");
	return 0;
}

void mount_take_off(int mount)
{
	char path[32];

	/* The link leads to the root of the mount itself, wherever it is attached. */
	snprintf(path, sizeof path, "/proc/self/fd/%d", mount);
	umount2(path, MNT_DETACH);
}

static int set_string(int fs, const char *key, const char *value, struct err *err)
{
	if (fsconfig(fs, FSCONFIG_SET_STRING, key, value, 0) < 0)
		return fail(err, fs, errno, "overlay", key);
	return 0;
}

static int set_layer(int fs, const char *key, int fd, const char *below, struct err *err)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/self/fd/%d%s", fd, below);
	return set_string(fs, key, path, err);
}

/* Sets the file system user of the calling process; all capabilities stay. */
static int act_as(uint32_t uid, struct err *err)
{
	setfsgid(uid);
	setfsuid(uid);
	return caps_raise_effective(err);
}

static int add_hint(int errno_value, struct err *err)
{
	if (errno_value == EINVAL)
		err_hint(err, "id-mapped layers need Linux 5.19, and the disk a file system that "
			      "is no overlay itself");
	return -1;
}

static int no_overlay(struct err *err)
{
	err_set(err, ERR_UNSUPPORTED, "the kernel has no overlay file system");
	return err_hint(err, "modprobe overlay");
}

static int set_layers(int fs, const struct overlay_spec *spec, struct err *err)
{
	for (size_t i = 0; i < spec->lower_count; i++)
		if (set_layer(fs, "lowerdir+", spec->lowers[i], "", err) < 0)
			return -1;
	if (spec->mixed && set_string(fs, "xino", "on", err) < 0)
		return -1;
	if (spec->disk < 0)
		return 0;
	if (set_layer(fs, "upperdir", spec->disk, "/upper", err) < 0)
		return -1;
	return set_layer(fs, "workdir", spec->disk, "/work", err);
}

int overlay_new(const struct overlay_spec *spec, int *ret, struct err *err)
{
	_cleanup_close_ int fs = fsopen("overlay", FSOPEN_CLOEXEC);
	int mount, status, failed = 0;

	if (fs < 0)
		return errno == ENODEV ? no_overlay(err) : err_sys(err, errno, "fsopen overlay");
	if (set_layers(fs, spec, err) < 0)
		return -1;
	status = act_as(spec->uid, err);
	if (status == 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		failed = errno;
	if (act_as(0, err) < 0 || status < 0)
		return -1;
	if (failed) {
		fail(err, fs, failed, "overlay", "create");
		return add_hint(failed, err);
	}
	mount = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	if (mount < 0)
		return fail(err, fs, errno, "overlay", "fsmount");
	*ret = mount;
	return 0;
}

/* Names by fd are short and hold no character that must be escaped. */
static int format_options(const struct overlay_spec *spec, char *out, size_t size, struct err *err)
{
	size_t len = (size_t)snprintf(out, size, "%s", spec->mixed ? "xino=on," : "");

	if (spec->disk >= 0)
		len += (size_t)snprintf(out + len, size - len,
			"upperdir=/proc/self/fd/%d/upper,workdir=/proc/self/fd/%d/work,",
			spec->disk, spec->disk);
	len += (size_t)snprintf(out + len, size - len, "lowerdir=");
	for (size_t i = 0; i < spec->lower_count && len < size; i++)
		len += (size_t)snprintf(
			out + len, size - len, "%s/proc/self/fd/%d", i ? ":" : "", spec->lowers[i]);
	if (len >= size)
		return err_set(err, ERR_LIMIT, "too many layers: %zu", spec->lower_count);
	return 0;
}

/* Uses mount(2), which takes a page of options: fsconfig takes 255 bytes for each, and before
 * lowerdir+ (6.7) all lower layers had to be in one of them. */
int overlay_attach(const struct overlay_spec *spec, const char *place, struct err *err)
{
	char options[4096];
	int status, failed = 0;

	if (format_options(spec, options, sizeof options, err) < 0)
		return -1;
	status = act_as(spec->uid, err);
	if (status == 0 && mount("overlay", place, "overlay", 0, options) < 0)
		failed = errno;
	if (act_as(0, err) < 0 || status < 0)
		return -1;
	if (failed == ENODEV)
		return no_overlay(err);
	if (failed) {
		err_sys(err, failed, "mount overlay of %zu layers", spec->lower_count);
		return add_hint(failed, err);
	}
	return 0;
}

int mount_freeze(int mount, struct err *err)
{
	int fd = fspick(mount, "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC);
	int status = 0;

	if (fd < 0)
		return err_sys(err, errno, "fspick");
	if (fsconfig(fd, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0 ||
		fsconfig(fd, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0)
		status = err_sys(err, errno, "make a file system read-only");
	close(fd);
	return status;
}
