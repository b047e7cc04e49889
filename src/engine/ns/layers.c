/* layers.c - the layers of a root file system, stacked as this kernel wants it
 *
 * An image has many layers, most of them side by side in one folder. Making and letting go of a
 * mount is what costs, so layers on the same mount share one id-mapped copy of the deepest folder
 * that holds them all; each is a directory on that copy, by fd. A layer that is alone on its mount
 * is a copy itself.
 *
 * Detached: the copies are attached nowhere, never visible to anybody. Linux 6.15 is the first to
 * take layers on such. Older kernels take only mounts of the caller's own mount namespace. There
 * the copies are attached for the moment in which the overlay is made, each on a directory of a
 * small tmpfs (the holder), and taken off again; the overlay keeps copies of its own.
 *
 * What is attached must not be left behind by a daemon that is killed in between. So the spawner
 * does it, in a mount namespace of its own that ends with it, and it ends with the daemon. The
 * daemon itself stays in the host's: for files it has open already, those of a new namespace would
 * be on other mounts, and nothing could be renamed between the two. The host's mounts come and go
 * in the spawner's namespace as they do on the host (slave), nothing goes the other way. The
 * spawner does one thing at a time, so no box is ever cloned while layers are attached.
 *
 * Files are told apart by device and number, and overlayfs passes on the numbers of its layers with
 * one device for all that are on one file system. Two subvolumes of a btrfs are one file system and
 * both number from 257. So layers in another subvolume than the disk would have files that look
 * like files of the disk: `cat a > b` refuses, tar finds hard links. An overlay is a file system of
 * its own, so these layers (apart) go into one, and the guest layer, which lies beside them, into
 * another, since it is on top of all:
 *
 *   disk/upper | overlay(guest, empty) | layers that share numbers with the disk | overlay(guest,
 *   apart...)
 *
 * Without an upper an overlay wants two layers; an empty folder is the second of the first one. The
 * guest layer in the other one hides the /dev of images also where its own overlay does not (before
 * Linux 6.7). The box's overlay sees only the numbers of an inner one, not its devices: if that has
 * layers of several file systems, the numbers carry a mark (xino). One overlay in another is as
 * deep as the kernel goes. */
#include "engine/ns/ns_internal.h"
#include "base/log.h"
#include "base/strv.h"
#include "sys/beneath.h"
#include "sys/idmap.h"
#include "sys/mountfd.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>

/* Names in the holder: one spot per mount, by number, and one per overlay. */
enum overlay_role { OVERLAY_GUEST, OVERLAY_APART, OVERLAY_ROOT };
static const char *const overlay_spots[] = {
	[OVERLAY_GUEST] = "guest",
	[OVERLAY_APART] = "apart",
	[OVERLAY_ROOT] = "root",
};

static const char *const way_names[] = {
	[LAYERS_DETACHED] = "detached",
	[LAYERS_ATTACHED] = "attached",
};

static int new_scratch(int *ret, struct err *err)
{
	static const struct mount_option options[] = { { "size", "64k" }, { "mode", "0700" },
		{ NULL, NULL } };

	return mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, ret, err);
}

/* Makes a whole overlay of detached layers, only to see whether that works. */
static int try_detached(struct err *err)
{
	_cleanup_close_ int first = -1, second = -1, disk = -1, root = -1;
	struct overlay_spec overlay = { .lower_count = 2 };
	int lowers[2];

	if (new_scratch(&first, err) < 0 || new_scratch(&second, err) < 0 ||
		new_scratch(&disk, err) < 0)
		return -1;
	if (mkdirat(disk, "upper", 0755) < 0 || mkdirat(disk, "work", 0755) < 0)
		return err_sys(err, errno, "make directories on a tmpfs");
	lowers[0] = first;
	lowers[1] = second;
	overlay.lowers = lowers;
	overlay.disk = disk;
	return overlay_new(&overlay, &root, err);
}

/* BOX_NS_LAYERS is for tests: the method of older kernels works on newer ones too. */
int layers_choose(enum layers_way *ret, struct err *err)
{
	const char *wish = getenv("BOX_NS_LAYERS");
	struct err why = ERR_INIT;

	for (size_t i = 0; wish && i < ARRAY_LEN(way_names); i++)
		if (!strcmp(wish, way_names[i])) {
			*ret = (enum layers_way)i;
			return 0;
		}
	if (wish && *wish)
		return err_set(err, ERR_INVALID,
			"BOX_NS_LAYERS is 'attached' or 'detached', not '%.40s'", wish);
	*ret = LAYERS_DETACHED;
	if (try_detached(&why) < 0) {
		*ret = LAYERS_ATTACHED;
		log_info("layers are attached in a mount namespace of their own",
			kv_str("because", why.message));
	}
	return 0;
}

/* ---- gathering layers ----------------------------------------------------------------------- */

/* 0 when it is unknown: the error appears when the path is used. */
static uint64_t mount_id(const char *path)
{
	struct statx st;

	if (statx(AT_FDCWD, path, 0, STATX_MNT_ID, &st) < 0)
		return 0;
	return st.stx_mask & STATX_MNT_ID ? st.stx_mnt_id : 0;
}

/* Length of the deepest folder that contains both path and other. */
static size_t shared_folder(const char *path, size_t len, const char *other)
{
	size_t same = 0;

	while (same < len && path[same] == other[same])
		same++;
	if (same == len && other[len] == '/')
		return len;
	while (same && path[same] != '/')
		same--;
	return same;
}

static void add(struct layers *layers, size_t at, int fd, bool is_mount)
{
	layers->fds[at] = fd;
	layers->is_mount[at] = is_mount;
}

static int add_copy(
	struct layers *layers, size_t at, int dirfd, const char *path, int userns, struct err *err)
{
	int fd = -1;

	if (idmap_clone_tree(dirfd, path, &(struct idmap_view){ .userns = userns }, &fd, err) < 0)
		return -1;
	add(layers, at, fd, true);
	return 0;
}

/* Adds the image's layers that are on one mount with the first of them, as directories on one copy.
 * A layer that cannot be opened that way (a symlink on the path) gets its own copy later. */
static int add_group(struct layers *layers, const char *const *paths, size_t first,
	const uint64_t *mounts, int userns, struct err *err)
{
	_cleanup_free_ char *folder = xstrdup(paths[first]);
	size_t len = (size_t)(strrchr(folder, '/') - folder), members = 1;
	int copy;

	for (size_t i = first + 1; paths[i]; i++)
		if (mounts[i] == mounts[first]) {
			len = shared_folder(folder, len, paths[i]);
			members++;
		}
	folder[len] = '\0';
	if (members < 2 || mount_id(len ? folder : "/") != mounts[first])
		return 0;
	if (add_copy(layers, layers->count, AT_FDCWD, len ? folder : "/", userns, err) < 0)
		return err_wrap(err, "image");
	copy = layers->fds[layers->count++];
	for (size_t i = first; paths[i]; i++) {
		int fd = -1;

		if (mounts[i] == mounts[first] && beneath_open(copy, paths[i] + len + 1,
							  O_PATH | O_DIRECTORY, &fd, NULL) == 0)
			add(layers, LAYER_IMAGE + i, fd, false);
	}
	return 0;
}

static int add_image(struct layers *layers, const char *const *paths, int userns, struct err *err)
{
	uint64_t mounts[INSTANCE_LAYERS_MAX] = { 0 };
	size_t count = strv_len(paths);

	for (size_t i = 0; count > 1 && i < count; i++)
		mounts[i] = mount_id(paths[i]);
	for (size_t i = 0; i < count; i++) {
		bool seen = !mounts[i];

		if (i > count - layers->apart && mounts[i] != mounts[i - 1])
			layers->mixed = true;
		for (size_t k = 0; k < i && !seen; k++)
			seen = mounts[k] == mounts[i];
		if (!seen && add_group(layers, paths, i, mounts, userns, err) < 0)
			return -1;
		if (layers->fds[LAYER_IMAGE + i] < 0 &&
			add_copy(layers, LAYER_IMAGE + i, AT_FDCWD, paths[i], userns, err) < 0)
			return err_wrap(err, "image");
	}
	return 0;
}

static int add_dir(struct layers *layers, size_t at, int copy, const char *path, struct err *err)
{
	int fd = -1;

	if (beneath_open(copy, path, O_PATH | O_DIRECTORY, &fd, err) < 0)
		return -1;
	add(layers, at, fd, false);
	return 0;
}

/* With apart, the guest layer is opened from a copy of the folder around it, where the empty folder
 * is too. */
static int add_guest(struct layers *layers, int guest, int userns, struct err *err)
{
	size_t copy;

	if (!layers->apart)
		return add_copy(layers, LAYER_GUEST, guest, "", userns, err);
	copy = layers->count++;
	layers->empty = layers->count++;
	if (add_copy(layers, copy, guest, "..", userns, err) < 0 ||
		add_dir(layers, LAYER_GUEST, layers->fds[copy], GUEST_LAYER, err) < 0)
		return -1;
	return add_dir(layers, layers->empty, layers->fds[copy], GUEST_BIN "/empty", err);
}

void layers_init(struct layers *layers)
{
	*layers = (struct layers){ 0 };
	memset(layers->fds, 0xff, sizeof layers->fds);
}

int layers_open(struct ns_engine *engine, const struct layers_spec *spec, struct layers *ret,
	struct err *err)
{
	size_t count = strv_len(spec->image);

	if (!count || count > INSTANCE_LAYERS_MAX)
		return err_set(err, ERR_INVALID, "an image has 1 to %d layers, not %zu",
			INSTANCE_LAYERS_MAX, count);
	for (size_t i = 0; i < count; i++)
		if (spec->image[i][0] != '/')
			return err_set(err, ERR_INVALID, "layer '%.80s' is not an absolute path",
				spec->image[i]);
	if (spec->apart > count)
		return err_set(err, ERR_INVALID, "%zu layers cannot have %zu separate ones", count,
			spec->apart);
	ret->lower_count = count + 1;
	ret->count = LAYER_IMAGE + count;
	ret->apart = spec->apart;
	if (add_copy(ret, LAYER_DISK, spec->disk, "", spec->userns, err) < 0)
		return err_wrap(err, "disk of the box");
	if (add_guest(ret, spec->guest, spec->userns, err) < 0)
		return err_wrap(err, "guest layer");
	return add_image(ret, spec->image, spec->userns, err);
}

void layers_close(struct ns_engine *engine, struct layers *layers)
{
	int mounts[LAYERS_FDS_MAX];
	size_t count = 0;

	for (size_t i = 0; i < layers->count; i++)
		if (layers->is_mount[i])
			mounts[count++] = layers->fds[i];
		else if (layers->fds[i] >= 0)
			close(layers->fds[i]);
	spawner_dispose(engine, mounts, count);
	layers_init(layers);
}

/* ---- stacking layers ------------------------------------------------------------------------ */

static void format_place(int holder, enum overlay_role role, char *out, size_t size)
{
	snprintf(out, size, "/proc/self/fd/%d/%s", holder, overlay_spots[role]);
}

/* holder -1: detached. */
static int make_overlay(int holder, enum overlay_role role, const struct overlay_spec *overlay,
	int *ret, struct err *err)
{
	char place[48];

	if (holder < 0)
		return overlay_new(overlay, ret, err);
	format_place(holder, role, place, sizeof place);
	if (overlay_attach(overlay, place, err) < 0)
		return -1;
	*ret = open(place, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return *ret < 0 ? err_sys(err, errno, "open '%s'", place) : 0;
}

/* Makes a read-only overlay of lowers, adds it to the layers and returns its fd. */
static int add_overlay(int holder, enum overlay_role role, const struct overlay_spec *overlay,
	struct layers *layers, int *ret, struct err *err)
{
	if (make_overlay(holder, role, overlay, ret, err) < 0)
		return -1;
	add(layers, layers->count++, *ret, holder < 0);
	return 0;
}

/* Replaces the lowers as the opening comment says. */
static int stack_apart(int holder, struct layers *layers, struct overlay_spec *overlay, int *lowers,
	struct err *err)
{
	const int *row = overlay->lowers, guest = row[0];
	size_t kept = overlay->lower_count - layers->apart;
	struct overlay_spec inner = { .lowers = lowers, .disk = -1, .uid = overlay->uid };
	int top, bottom;

	lowers[0] = guest;
	lowers[1] = layers->fds[layers->empty];
	inner.lower_count = 2;
	if (add_overlay(holder, OVERLAY_GUEST, &inner, layers, &top, err) < 0)
		return err_wrap(err, "guest layer");
	memcpy(lowers + 1, row + kept, sizeof *row * layers->apart);
	inner.lower_count = 1 + layers->apart;
	inner.mixed = layers->mixed;
	if (add_overlay(holder, OVERLAY_APART, &inner, layers, &bottom, err) < 0)
		return err_wrap(err, "layers that are apart");
	memcpy(lowers, row, sizeof *row * kept);
	lowers[0] = top;
	lowers[kept] = bottom;
	overlay->lowers = lowers;
	overlay->lower_count = kept + 1;
	return 0;
}

static int stack(int holder, struct layers *layers, uint32_t uid, int *ret, struct err *err)
{
	struct overlay_spec overlay = {
		.lowers = layers->fds + LAYER_GUEST,
		.lower_count = layers->lower_count,
		.disk = layers->fds[LAYER_DISK],
		/* One device number for all files: CRIU finds watched files by device and inode. */
		.mixed = true,
		.uid = uid,
	};
	int lowers[INSTANCE_LAYERS_MAX + 2];

	if (layers->apart && stack_apart(holder, layers, &overlay, lowers, err) < 0)
		return -1;
	return make_overlay(holder, OVERLAY_ROOT, &overlay, ret, err);
}

int layers_stack(
	struct ns_engine *engine, struct layers *layers, uint32_t uid, int *ret, struct err *err)
{
	if (engine->layers == LAYERS_DETACHED)
		return stack(-1, layers, uid, ret, err);
	return spawner_stack(engine, layers, uid, ret, err);
}

/* ---- in the spawner, where layers are attached ---------------------------------------------- */

static int make_spots(int holder, struct err *err)
{
	char name[16];

	for (size_t i = 0; i < ARRAY_LEN(overlay_spots); i++)
		if (mkdirat(holder, overlay_spots[i], 0700) < 0)
			return err_sys(err, errno, "make a mount point");
	for (unsigned i = 0; i < LAYERS_FDS_MAX; i++) {
		snprintf(name, sizeof name, "%u", i);
		if (mkdirat(holder, name, 0700) < 0)
			return err_sys(err, errno, "make a mount point");
	}
	return 0;
}

/* Mounted over the driver's home, which nobody uses in this namespace: a place that always
 * exists. */
int layers_open_holder(const struct ns_engine *engine, int *ret, struct err *err)
{
	_cleanup_close_ int holder = -1, place = -1;

	if (unshare(CLONE_NEWNS) < 0)
		return err_sys(err, errno, "enter a mount namespace for layers");
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return err_sys(err, errno, "make mounts slaves of the host's");
	place = open(engine->home, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (place < 0)
		return err_sys(err, errno, "open '%s'", engine->home);
	if (new_scratch(&holder, err) < 0 || make_spots(holder, err) < 0 ||
		mount_attach(holder, place, err) < 0)
		return err_wrap(err, "make a place for layers");
	*ret = steal_fd(&holder);
	return 0;
}

static int attach(int holder, unsigned spot, int mount, struct err *err)
{
	_cleanup_close_ int target = -1;
	char name[16];

	snprintf(name, sizeof name, "%u", spot);
	target = openat(holder, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (target < 0)
		return err_sys(err, errno, "open a mount point");
	return mount_attach(mount, target, err);
}

int layers_stack_on(int holder, struct layers *layers, uint32_t uid, int *ret, struct err *err)
{
	_cleanup_close_ int root = -1;
	size_t given = layers->count;
	int status;

	for (unsigned i = 0; i < given; i++)
		if (layers->is_mount[i] && attach(holder, i, layers->fds[i], err) < 0)
			return err_wrap(err, "attach layer %u", i);
	status = stack(holder, layers, uid, &root, err);
	while (layers->count > given)
		close(layers->fds[--layers->count]);
	return status < 0 ? -1 : mount_clone(root, "", ret, err);
}

/* The overlays first, then the mounts below them. */
void layers_take_off(int holder, const struct layers *layers)
{
	char place[48];

	for (size_t role = ARRAY_LEN(overlay_spots); role-- > 0;) {
		format_place(holder, (enum overlay_role)role, place, sizeof place);
		umount2(place, MNT_DETACH);
	}
	for (size_t i = 0; i < layers->count; i++)
		if (layers->is_mount[i])
			mount_take_off(layers->fds[i]);
}
