/* layers.c - the layers of a root file system, stacked as this kernel wants it
 *
 * Detached: the id-mapped mounts are given to the overlay by fd, never visible to anybody. Linux 6.15 is
 * the first to take such layers. Older kernels take only mounts of the caller's own mount namespace, and
 * before 6.7 all lowers in one option. There the layers are attached for the moment in which the overlay
 * is made, each on a directory of a small tmpfs (the holder), and taken off again; the overlay keeps copies
 * of its own. Even so they are named by fd: no path of the host's has to be escaped.
 *
 * What is attached must not be left behind by a daemon that is killed in between. So the spawner does it,
 * in a mount namespace of its own that ends with it, and it ends with the daemon. The daemon itself stays
 * in the host's: for files it has open already, those of a new namespace would be on other mounts, and
 * nothing could be renamed between the two. The host's mounts come and go in the spawner's namespace as
 * they do on the host (slave), nothing goes the other way. The spawner does one thing at a time, so no box
 * is ever cloned while layers are attached. */
#include "engine/ns/ns_internal.h"
#include "base/log.h"
#include "sys/mountfd.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>

enum { SPOTS = 4 }; /* layers of one overlay, its disk included */

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

/* A whole overlay of detached layers, for nothing but to see whether it comes up. */
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

/* BOX_NS_LAYERS is for tests: the way of older kernels works on newer ones too. */
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

int layers_stack(
	struct ns_engine *engine, const struct overlay_spec *spec, int *ret, struct err *err)
{
	if (engine->layers == LAYERS_DETACHED)
		return overlay_new(spec, ret, err);
	return spawner_stack(engine, spec, ret, err);
}

/* ---- in the spawner, where layers are attached ----------------------------------------------------------- */

static int make_spots(int holder, struct err *err)
{
	char name[16];

	for (unsigned i = 0; i < SPOTS; i++) {
		snprintf(name, sizeof name, "%u", i);
		if (mkdirat(holder, name, 0700) < 0)
			return err_sys(err, errno, "make a mount point");
	}
	return 0;
}

/* Over the driver's home, where nobody looks in this namespace: a place that is always there. */
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

int layers_stack_on(int holder, const struct overlay_spec *spec, int *ret, struct err *err)
{
	struct overlay_spec overlay = *spec;

	if (overlay.lower_count + 1 > SPOTS)
		return err_set(err, ERR_LIMIT, "too many layers: %zu", overlay.lower_count);
	for (unsigned i = 0; i < overlay.lower_count; i++)
		if (attach(holder, i, overlay.lowers[i], err) < 0)
			return err_wrap(err, "attach layer %u", i);
	if (attach(holder, SPOTS - 1, overlay.disk, err) < 0)
		return err_wrap(err, "attach the disk");
	overlay.one_list = true;
	return overlay_new(&overlay, ret, err);
}

void layers_take_off(const struct overlay_spec *spec)
{
	for (size_t i = 0; i < spec->lower_count; i++)
		mount_take_off(spec->lowers[i]);
	mount_take_off(spec->disk);
}
