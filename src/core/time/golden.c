/* golden.c - golden images: images with processes, so that a box starts with everything running
 *
 * A golden image is an ordinary image of the disk, made from the copy taken while the box was
 * frozen, plus a snapshot (state and disk) that belongs to no box and names the image in its
 * detail. A box from it is made like a fork of that snapshot, upon the image that the saved box
 * used. The snapshot is deleted with the image. */
#include "core/core_internal.h"
#include "core/disk/upper.h"
#include "core/time/timeline.h"
#include "base/alloc.h"
#include "base/log.h"
#include "image/image.h"

struct saving {
	struct operation op;
	struct yard *yard;
	char *name, *snapshot, *box_name, *parent, *owner;
	struct image_job *job;
	json_done done;
	void *arg;
};

static void saving_free(struct saving *saving)
{
	free(saving->name);
	free(saving->snapshot);
	free(saving->box_name);
	free(saving->parent);
	free(saving->owner);
	free(saving);
}

static void fail(struct saving *saving, const struct err *err)
{
	struct snapshot *snapshot =
		saving->snapshot ? snapshot_by_id(saving->yard, saving->snapshot) : NULL;

	if (snapshot)
		snapshot_discard(saving->yard, snapshot);
	saving->done(NULL, err, saving->arg);
	saving_free(saving);
}

static void on_image(const struct image *image, const struct err *err, void *arg)
{
	struct saving *saving = arg;
	struct snapshot *snapshot = snapshot_by_id(saving->yard, saving->snapshot);
	_cleanup_json_ json_t *result = NULL;

	if (err || !snapshot) {
		struct err gone = ERR_INIT;

		err_set(&gone, ERR_NOT_FOUND, "its checkpoint was removed meanwhile");
		fail(saving, err ? err : &gone);
		return;
	}
	text_replace(&snapshot->row.detail, image->id);
	if (snapshot_record(saving->yard, snapshot, STORE_SAFE, NULL) < 0)
		log_error("cannot record the checkpoint of an image", kv_str("image", image->id));
	result = image_json(saving->yard->images, image);
	saving->done(result, NULL, saving->arg);
	saving_free(saving);
}

static void save_disk(struct saving *saving)
{
	static const struct image_job_ops ops = { .on_done = on_image };
	const struct image *parent = images_get(saving->yard->images, saving->parent, NULL);
	_cleanup_free_ char *origin =
		xasprintf("saved from %s, with its processes", saving->box_name);
	const struct snapshot *snapshot = snapshot_by_id(saving->yard, saving->snapshot);
	struct box *box = snapshot ? box_lookup(saving->yard, snapshot->row.box) : NULL;
	bool own = box && box_has_own_kernel(box);
	struct err err = ERR_INIT;
	int archive = -1;

	if (!parent) {
		err_set(&err, ERR_NOT_FOUND, "its image was removed meanwhile");
		fail(saving, &err);
		return;
	}
	if (own && upper_open(box, SNAPSHOT_DISKS, saving->snapshot, &archive, &err) < 0) {
		fail(saving, &err);
		return;
	}
	if (image_save_start(saving->yard->images,
		    &(struct image_save_spec){ .name = saving->name,
			    .parent = parent,
			    .place = SNAPSHOT_DISKS,
			    .disk = saving->snapshot,
			    .origin = origin,
			    .owner = saving->owner,
			    .from_archive = own,
			    .archive = archive,
			    .archive_max = own ? upper_bytes_max(box) : 0 },
		    &ops, saving, &saving->job, &err) < 0)
		fail(saving, &err);
}

/* The image is created only after its processes would survive a power cut. */
static void on_safe(const struct err *err, void *arg)
{
	struct saving *saving = arg;

	if (err)
		fail(saving, err);
	else
		save_disk(saving);
}

static void on_taken(
	struct box *box, const struct box_capture_result *result, const struct err *err, void *arg)
{
	struct saving *saving = arg;
	struct snapshot *snapshot = snapshot_by_id(saving->yard, saving->snapshot);

	if (!err && snapshot)
		snapshot_ready_of(saving->yard, snapshot, result);
	operation_end(box);
	if (err)
		fail(saving, err);
	else
		snapshot_make_safe(saving->yard, snapshot, on_safe, saving);
}

static void refuse_asleep(const struct box *box, struct err *err)
{
	err_set(err, ERR_STATE, "box '%s' is %s: its processes do not run", box->row.name,
		box_state_name(box->state));
	err_hint(err, "'box wake %s' first", box->row.name);
}

static void begin(struct operation *op, struct box *box, const struct err *gone)
{
	static const struct box_capture_ops ops = { .on_done = on_taken };
	struct saving *saving = (struct saving *)op;
	struct snapshot *snapshot;
	struct err err = ERR_INIT;

	if (!box) {
		fail(saving, gone);
		return;
	}
	if (box->state != BOX_RUNNING && box->state != BOX_SUSPENDED)
		refuse_asleep(box, &err);
	else if (strcmp(box->row.volumes, "[]") || strcmp(box->row.mounts, "[]"))
		err_set(&err, ERR_UNSUPPORTED,
			"box '%s' has volumes or folders of the host, which an image cannot have",
			box->row.name);
	if (err.kind) {
		operation_end(box);
		fail(saving, &err);
		return;
	}
	snapshot =
		snapshot_new(box, "image", "", "full"); /* gets the image's name when that exists */
	text_replace(&snapshot->row.box, "");
	text_replace(&snapshot->row.parent, "");
	saving->snapshot = xstrdup(snapshot->row.id);
	saving->parent = xstrdup(box->row.image);
	if (snapshot_record(saving->yard, snapshot, STORE_KEPT, &err) < 0) {
		operation_end(box);
		fail(saving, &err);
		return;
	}
	box_capture(box,
		&(struct box_capture_spec){ .state = saving->snapshot,
			.disk_place = SNAPSHOT_DISKS,
			.disk_apart = true,
			.disk = saving->snapshot,
			.quick = true },
		&ops, saving);
}

static const struct operation_ops save_ops = { .name = "save", .begin = begin };

void box_save_full(struct box *box, const char *name, json_done done, void *arg)
{
	struct saving *saving = xnew(struct saving);

	*saving = (struct saving){ .op = { .ops = &save_ops },
		.yard = box->yard,
		.name = xstrdup(name),
		.box_name = xstrdup(box->row.name),
		.owner = xstrdup(box->row.owner),
		.done = done,
		.arg = arg };
	operation_queue(box, &saving->op);
}

struct snapshot *golden_of(struct yard *yard, const struct image *image)
{
	for (size_t i = 0; i < yard->snapshot_count; i++) {
		struct snapshot *snapshot = yard->snapshots[i];

		if (!*snapshot->row.box && !strcmp(snapshot->row.detail, image->id))
			return snapshot;
	}
	return NULL;
}

char *golden_driver(const struct snapshot *golden)
{
	_cleanup_json_ json_t *config = json_loads(golden->row.config, 0, NULL);
	const char *driver = json_get_text(config, "driver");

	return xstrdup(*driver ? driver : "ns");
}

char *golden_profile(const struct snapshot *golden)
{
	_cleanup_json_ json_t *config = json_loads(golden->row.config, 0, NULL);
	const char *profile = json_get_text(config, "profile");

	return xstrdup(*profile ? profile : profile_name(PROFILE_STANDARD));
}

void golden_check(struct yard *yard)
{
	for (size_t i = yard->snapshot_count; i-- > 0;) {
		struct snapshot *snapshot = yard->snapshots[i];

		if (!*snapshot->row.box && *snapshot->row.detail && !snapshot->packing &&
			!images_get(yard->images, snapshot->row.detail, NULL))
			snapshot_discard(yard, snapshot);
	}
}
