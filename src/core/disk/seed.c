/* seed.c - the disk of a box whose image was saved from another box
 *
 * An empty disk above the saved layer would do, but for inode numbers: every subvolume of a btrfs
 * counts its own from the same start, and overlayfs passes them on as they are. Two files of a box,
 * one in the saved layer and one in its own, would look like one: `cat a > b` refuses, tar finds
 * hard links. btrfs gives a new file a number above all that are in the subvolume. So the disk
 * begins as a snapshot of the saved layer's whole subvolume, in which `upper` is renamed to
 * `below-ID` and not used again; the driver makes a new `upper` beside it. What else the layer has
 * from the saved box (nested containers, its size) is not part of the image and is put aside too.
 *
 * A snapshot waits for a commit of the file system, so a helper makes it under a name with a dot;
 * the daemon then renames it. */
#include "core/core_internal.h"
#include "base/log.h"
#include "helper/helper.h"
#include "image/image.h"
#include "pool/pool.h"
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

struct seeding {
	struct box *box;
	struct helper *helper;
	char *layer;	/* id in the pool */
	char *snapshot; /* id of a snapshot, which is copied as it is, instead */
	char *disk;	/* its temporary name with a dot */
	struct err err;
};

/* The layer's id, yours, or NULL: an empty disk is enough. */
static char *seed_of(const struct yard *yard, const struct image *image)
{
	_cleanup_free_ char *place = xasprintf("%s/layers/", pool_get_path(yard->pool));
	const char *top = image->layers[0];
	size_t len = strlen(place);

	if (pool_get_kind(yard->pool) == POOL_FOLDER || strncmp(top, place, len))
		return NULL;
	return xstrndup(top + len, strcspn(top + len, "/"));
}

static int make(const struct seeding *seeding, struct err *err)
{
	struct pool *pool = seeding->box->yard->pool;
	_cleanup_free_ char *path = pool_disk_path(pool, BOX_DISKS, seeding->disk);
	_cleanup_free_ char *upper = xasprintf("%s/upper", path);
	_cleanup_free_ char *below = xasprintf("%s/below-%s", path, seeding->box->row.id);
	_cleanup_free_ char *containers = xasprintf("%s/containers", path);
	_cleanup_free_ char *aside = xasprintf("%s-containers", below);
	_cleanup_free_ char *size = xasprintf("%s/layer.json", path);

	if (seeding->snapshot)
		return pool_disk_copy(pool, SNAPSHOT_DISKS, seeding->snapshot, BOX_DISKS,
			seeding->disk, NULL, POOL_BUDGET_OWN, err);
	if (pool_disk_copy(pool, "layers", seeding->layer, BOX_DISKS, seeding->disk, NULL,
		    POOL_BUDGET_OWN, err) < 0)
		return -1;
	if (rename(upper, below) < 0)
		return err_sys(err, errno, "put the layer of the image aside");
	if ((rename(containers, aside) < 0 && errno != ENOENT) ||
		(unlink(size) < 0 && errno != ENOENT))
		return err_sys(err, errno, "put aside what is not of the image");
	return 0;
}

static int run(int sock, void *arg)
{
	struct err err = ERR_INIT;

	if (make(arg, &err) == 0)
		return 0;
	send(sock, &err, sizeof err, MSG_NOSIGNAL);
	return 1;
}

static void on_message(const void *message, size_t len, void *arg)
{
	struct seeding *seeding = arg;

	if (len == sizeof seeding->err)
		memcpy(&seeding->err, message, len);
}

static void seeding_free(struct seeding *seeding)
{
	seeding->box->seeding = NULL;
	free(seeding->layer);
	free(seeding->snapshot);
	free(seeding->disk);
	free(seeding);
}

static int move_in(const struct seeding *seeding, struct err *err)
{
	struct box *box = seeding->box;
	struct pool *pool = box->yard->pool;

	if (pool_disk_rename(pool, BOX_DISKS, seeding->disk, box->row.id, err) < 0)
		return -1;
	return box_limit_disk(box, box->row.disk_bytes, err);
}

static void on_exit_seed(int code, void *arg)
{
	struct seeding *seeding = arg;
	struct box *box = seeding->box;
	struct err err = seeding->err;

	if (code && !err.kind)
		err_set(&err, ERR_SYSTEM, "the helper ended with code %d", code);
	if (!code && box->remove_wanted)
		err_set(&err, ERR_CANCELLED, "box '%s' was removed meanwhile", box->row.name);
	if (err.kind || move_in(seeding, &err) < 0) {
		pool_disk_discard(box->yard->pool, BOX_DISKS, seeding->disk, NULL);
		err_wrap(&err, "make the disk of box '%s'", box->row.name);
	}
	seeding_free(seeding);
	if (err.kind || box_launch(box, &err) < 0)
		box_launch_failed(box, &err);
}

/* Takes layer and snapshot. */
static int start(struct box *box, char *layer, char *snapshot, struct err *err)
{
	static const struct helper_ops ops = {
		.run = run, .on_message = on_message, .on_exit = on_exit_seed, .light = true
	};
	struct seeding *seeding = xnew(struct seeding);

	seeding->box = box;
	seeding->layer = layer;
	seeding->snapshot = snapshot;
	seeding->disk = xasprintf(".seed-%s", box->row.id);
	box->seeding = seeding;
	if (helper_start(box->yard->loop, &ops, seeding, NULL, 0, &seeding->helper, err) < 0) {
		seeding_free(seeding);
		return -1;
	}
	return 0;
}

int seed_start(struct box *box, const struct image *image, bool *ret, struct err *err)
{
	char *layer = seed_of(box->yard, image);

	*ret = layer != NULL;
	return layer ? start(box, layer, NULL, err) : 0;
}

int seed_copy(struct box *box, const char *snapshot, struct err *err)
{
	return start(box, NULL, xstrdup(snapshot), err);
}

void seed_cancel(struct box *box)
{
	struct seeding *seeding = box->seeding;

	if (!seeding)
		return;
	helper_free(seeding->helper);
	pool_disk_discard(box->yard->pool, BOX_DISKS, seeding->disk, NULL);
	seeding_free(seeding);
}
