/* mounts.c - folders of the host and volumes, as the box sees them
 *
 * Each is a detached copy of one mount, without anything mounted below it, on which neither device
 * nodes nor set-user-id programs work. A volume holds the box's own ids and is seen through the
 * box's user namespace like its disk; a folder of the host is seen through one made for it, in
 * which its owner is one user of the box and everybody else is nobody. The box may have prepared
 * the targets: child.c attaches without following symlinks. Places that the box itself depends on
 * cannot be covered.
 *
 * Root of a nested box may remount what was attached in its mount namespace, and so make a
 * read-only folder writable. The kernel locks the flags of a mount only when a mount namespace is
 * copied into another user namespace. So for nested boxes a process attaches the mounts in a
 * namespace of its own, enters a new user and mount namespace, and takes copies there: their flags
 * are locked everywhere. */
#include "engine/ns/ns_internal.h"
#include "base/file.h"
#include "base/text.h"
#include "sys/beneath.h"
#include "sys/idmap.h"
#include "sys/mountfd.h"
#include "wire/wire.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>

enum { MOUNTINFO_MAX = 4 * 1024 * 1024 };

/* Nothing may be mounted on these, below them, or above them. */
static const char *const kept[] = { "/proc", "/sys", "/dev", WIRE_SOCKET_DIR, ("/" GUEST_MOUNT) };

/* ---- targets -------------------------------------------------------------------------------- */

static bool is_in(const char *path, const char *folder)
{
	size_t len = strlen(folder);

	return !strncmp(path, folder, len) && (path[len] == '/' || path[len] == '\0');
}

/* Whether path is absolute and every component a name. */
static bool is_plain(const char *path)
{
	if (*path != '/')
		return false;
	while (*path) {
		size_t len = strcspn(++path, "/");

		if (!len || (len == 1 && path[0] == '.') || (len == 2 && !memcmp(path, "..", 2)))
			return false;
		path += len;
	}
	return true;
}

static int check_target(const char *target, struct err *err)
{
	if (strlen(target) >= MOUNT_TARGET_MAX)
		return err_set(err, ERR_INVALID, "target '%.40s...' is longer than %d bytes",
			target, MOUNT_TARGET_MAX - 1);
	if (!is_plain(target))
		return err_set(err, ERR_INVALID,
			"target '%s' must be an absolute path without '.', '..' and empty parts",
			target);
	for (size_t i = 0; i < ARRAY_LEN(kept); i++)
		if (is_in(target, kept[i]) || is_in(kept[i], target))
			return err_set(err, ERR_INVALID,
				"target '%s' would cover '%s', which the box needs", target,
				kept[i]);
	return 0;
}

int mounts_check(const struct instance_spec *spec, struct err *err)
{
	if (spec->mount_count > INSTANCE_MOUNTS_MAX)
		return err_set(err, ERR_INVALID, "%zu mounts are more than %d", spec->mount_count,
			INSTANCE_MOUNTS_MAX);
	for (size_t i = 0; i < spec->mount_count; i++) {
		const struct instance_mount *mount = &spec->mounts[i];

		if (check_target(mount->target, err) < 0)
			return -1;
		if (mount->map_owner && (mount->box_uid >= NS_IDS || mount->box_gid >= NS_IDS))
			return err_set(
				err, ERR_INVALID, "a box has no user or group over %d", NS_IDS - 1);
	}
	return 0;
}

/* ---- sources -------------------------------------------------------------------------------- */

/* A folder of the host was checked before, but the owner of a parent folder may have put a symlink
 * there since: none is followed. Volumes are in the daemon's own folder. */
static int open_path(const struct instance_mount *mount, int *ret, struct err *err)
{
	_cleanup_close_ int top = -1;

	if (mount->map_owner && mount->source[0] == '/') {
		top = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (top < 0)
			return err_sys(err, errno, "open '/'");
		return beneath_open(top, mount->source + 1, O_PATH | O_NOFOLLOW, ret, err);
	}
	*ret = open(mount->source, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return *ret < 0 ? err_sys(err, errno, "open '%s'", mount->source) : 0;
}

static int open_source(const struct instance_mount *mount, int *ret, struct err *err)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (open_path(mount, &fd, err) < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "look at '%s'", mount->source);
	if (S_ISLNK(st.st_mode))
		return err_set(err, ERR_INVALID, "'%s' is a symbolic link", mount->source);
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return err_set(
			err, ERR_INVALID, "'%s' is neither a folder nor a file", mount->source);
	if (mount->map_owner && (st.st_uid != mount->owner_uid || st.st_gid != mount->owner_gid))
		return err_set(
			err, ERR_STATE, "the owner of '%s' changed meanwhile", mount->source);
	*ret = steal_fd(&fd);
	return 0;
}

/* The type of the file system fd lies on, as mountinfo tells: "36 35 98:0 / /srv rw - ext4
 * /dev/sda1 rw". */
static void describe_fs(int fd, char *out, size_t size)
{
	_cleanup_free_ char *text = NULL;
	struct statx st = { 0 };
	char id[32];

	snprintf(out, size, "a file system");
	if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0 ||
		file_read(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX, &text, NULL, NULL) < 0)
		return;
	snprintf(id, sizeof id, "%llu ", (unsigned long long)st.stx_mnt_id);
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const char *type = strstr(line, " - ");

		if (text_has_prefix(line, id) && type && type < line + strcspn(line, "\n"))
			snprintf(out, size, "%.*s", (int)strcspn(type + 3, " "), type + 3);
	}
}

/* Volumes may contain programs, see ns_make_containers; a folder of the host keeps the host's
 * flags. */
static int copy_source(const struct instance_mount *mount, int userns, int *ret, struct err *err)
{
	const struct idmap_view view = {
		.userns = userns,
		.set = MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID |
		       (mount->read_only ? MOUNT_ATTR_RDONLY : 0),
		.clear = mount->map_owner ? 0 : MOUNT_ATTR_NOEXEC,
	};
	_cleanup_close_ int source = -1;
	struct err why = ERR_INIT;
	char type[32];

	if (open_source(mount, &source, err) < 0)
		return -1;
	if (idmap_clone_tree(source, "", &view, ret, &why) == 0)
		return 0;
	if (err)
		*err = why;
	if (why.kind != ERR_UNSUPPORTED)
		return err_wrap(err, "'%s'", mount->source);
	describe_fs(source, type, sizeof type);
	err_set(err, ERR_UNSUPPORTED, "'%s' is on %s, which this kernel cannot id-map",
		mount->source, type);
	return err_hint(err, "%s", why.hint);
}

static bool same_owner(const struct instance_mount *one, const struct instance_mount *other)
{
	return one->owner_uid == other->owner_uid && one->owner_gid == other->owner_gid &&
	       one->box_uid == other->box_uid && one->box_gid == other->box_gid;
}

static int make_userns(struct ns_engine *engine, const struct instance_spec *spec,
	const struct instance_mount *mount, int *ret, struct err *err)
{
	const struct idmap_pair pair = {
		.disk_uid = mount->owner_uid,
		.uid = spec->ns.uid_base + mount->box_uid,
		.disk_gid = mount->owner_gid,
		.gid = spec->ns.uid_base + mount->box_gid,
	};

	if (spawner_idmap(engine, &pair, ret, err) < 0)
		return err_wrap(err, "map the owner of '%s'", mount->source);
	return 0;
}

int mounts_open(struct ns_engine *engine, const struct instance_spec *spec, int userns, int *ret,
	struct err *err)
{
	const struct instance_mount *last = NULL; /* whose user namespace we have */
	_cleanup_close_ int owners = -1;

	for (size_t i = 0; i < spec->mount_count; i++) {
		const struct instance_mount *mount = &spec->mounts[i];

		if (mount->map_owner && !(last && same_owner(last, mount))) {
			cleanup_closep(&owners);
			owners = -1;
			if (make_userns(engine, spec, mount, &owners, err) < 0)
				return -1;
			last = mount;
		}
		if (copy_source(mount, mount->map_owner ? owners : userns, &ret[i], err) < 0)
			return err_wrap(err, "mount on '%s'", mount->target);
	}
	if (spec->ns.profile != PROFILE_NESTED || !spec->mount_count)
		return 0;
	return spawner_lock(engine, ret, spec->mount_count, err);
}

/* ---- locked flags, in a process of its own -------------------------------------------------- */

static int attach_on_spot(int holder, unsigned number, int mount, struct err *err)
{
	_cleanup_close_ int spot = -1;
	struct stat st;
	char name[16];

	snprintf(name, sizeof name, "%u", number);
	if (fstat(mount, &st) < 0)
		return err_sys(err, errno, "look at mount %u", number);
	if ((S_ISDIR(st.st_mode) ? mkdirat(holder, name, 0700)
				 : mknodat(holder, name, S_IFREG | 0600, 0)) < 0)
		return err_sys(err, errno, "make a mount point");
	spot = openat(holder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (spot < 0)
		return err_sys(err, errno, "open a mount point");
	return mount_attach(mount, spot, err);
}

int mounts_lock(const char *place, const int *fds, size_t count, int *ret, struct err *err)
{
	static const struct mount_option options[] = { { "size", "64k" }, { "mode", "0700" },
		{ NULL, NULL } };
	_cleanup_close_ int holder = -1, under = open(place, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char name[16];

	if (under < 0)
		return err_sys(err, errno, "open '%s'", place);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_sys(err, errno, "make mounts private");
	if (mount_new("tmpfs", options, 0, &holder, err) < 0 ||
		mount_attach(holder, under, err) < 0)
		return -1;
	for (unsigned i = 0; i < count; i++)
		if (attach_on_spot(holder, i, fds[i], err) < 0)
			return -1;
	if (fchdir(holder) < 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return err_sys(err, errno, "unshare");
	/* The working directory has moved to the copy. */
	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof name, "%u", i);
		if (mount_clone(AT_FDCWD, name, &ret[i], err) < 0)
			return -1;
	}
	return 0;
}
