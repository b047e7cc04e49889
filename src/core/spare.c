/* spare.c - boxes started ahead of need
 *
 * Most of what a new box takes is the kernel making namespaces and mounts. A few boxes of the kind
 * that was asked for lately (image, driver and profile) are therefore started when the daemon has
 * nothing better to do. They have an id, a uid range and a folder, but no name, no row and no
 * owner; create.c takes one and gives it all three. The kind changes when another one was asked for
 * twice in a row.
 *
 * A spare with a kernel of its own runs a first program, which takes several times as long as the
 * next one, and then is frozen while it waits: that kernel has timers, and on an emulated processor
 * even doing nothing takes the host's time. Its size cannot change later, so it has the default
 * one.
 *
 * Nobody misses a spare: what is left of the spares of a dead daemon is swept as an orphan
 * (recover.c). */
#include "core/core_internal.h"
#include "base/strv.h"
#include "core/boxnet/network_internal.h"
#include "base/log.h"
#include "base/text.h"
#include "image/image.h"
#include "link/link.h"
#include "loop/loop.h"
#include "pool/pool.h"

enum {
	REFILL_MS = 10,	     /* a new box is probably used at once; do not compete with it */
	REFILL_VM_MS = 2000, /* a kernel more takes a processor for a while */
	RETRY_MS = 10000,
};

static bool kind_is(
	const struct spare_kind *kind, const char *image, const char *driver, const char *profile)
{
	return kind->image && !strcmp(kind->image, image) && !strcmp(kind->driver, driver) &&
	       !strcmp(kind->profile, profile);
}

static void kind_done(struct spare_kind *kind)
{
	free(kind->image);
	free(kind->driver);
	free(kind->profile);
	*kind = (struct spare_kind){ 0 };
}

static void kind_set(
	struct spare_kind *kind, const char *image, const char *driver, const char *profile)
{
	struct spare_kind old = *kind;

	*kind = (struct spare_kind){ xstrdup(image), xstrdup(driver), xstrdup(profile), 1 };
	kind_done(&old);
}

static bool is_ready(const struct box *box)
{
	return box->link_ready && !box->remove_wanted && !box->warming;
}

static bool has_own_kernel(const struct yard *yard, const char *driver)
{
	struct engine *engine;

	return drivers_find(yard->drivers, driver, &engine, NULL) == 0 &&
	       engine_can(engine, ENGINE_OWN_KERNEL);
}

/* Memory, processors and disk of a box with its own kernel are those it was started with. */
bool spare_fits(const struct yard *yard, const struct box_row *row)
{
	const struct conf *conf = yard->conf;

	return !has_own_kernel(yard, row->driver) ||
	       (row->memory_bytes == conf->default_memory &&
		       row->cpu_milli == conf->default_cpu_milli &&
		       row->disk_bytes == conf->default_disk);
}

static void drop(struct box *box)
{
	if (box->remove_wanted)
		return;
	box->remove_wanted = true;
	/* A spare whose disk is still being made ends after that. */
	if (box->instance)
		box_kill(box);
}

static void unlist(struct box *box)
{
	struct yard *yard = box->yard;

	for (size_t i = 0; i < yard->spares.count; i++)
		if (yard->spares.boxes[i] == box) {
			yard->spares.boxes[i] = yard->spares.boxes[--yard->spares.count];
			return;
		}
}

/* ---- making them ---------------------------------------------------------------------------- */

static void refill_in(struct yard *yard, uint64_t ms)
{
	if (!yard->closing && yard->spares.timer && yard->spares.count < yard->conf->spares)
		loop_timer_start(yard->spares.timer, ms);
}

static uint64_t refill_ms(const struct yard *yard)
{
	const struct spare_kind *kind = &yard->spares.kind;

	return kind->driver && has_own_kernel(yard, kind->driver) ? REFILL_VM_MS : REFILL_MS;
}

static void make_one(struct yard *yard, const struct image *image, const struct spare_kind *kind)
{
	struct box *box = xnew(struct box);
	char id[BOX_ID_LEN + 1];
	struct err err = ERR_INIT;

	/* fills the cache now, so that nobody waits for it later */
	strv_free(package_hosts_of(yard, image->id));
	random_id(id, BOX_ID_LEN);
	box->yard = yard;
	box->spare = true;
	box->state = BOX_CREATING;
	box->row.id = xstrdup(id);
	box->row.name = xstrdup("");
	box->row.image = xstrdup(image->id);
	box->row.driver = xstrdup(kind->driver);
	box->row.profile = xstrdup(kind->profile);
	box->row.volumes = xstrdup("[]");
	box->row.mounts = xstrdup("[]");
	box->row.state_id = xstrdup("");
	box->row.sleep_failure = xstrdup("");
	if (has_own_kernel(yard, kind->driver)) {
		box->row.memory_bytes = yard->conf->default_memory;
		box->row.cpu_milli = yard->conf->default_cpu_milli;
		box->row.disk_bytes = yard->conf->default_disk;
	}
	if (box_pick_slot(yard, &box->row.uid_slot, &err) < 0) {
		box_free(box);
		return;
	}
	yard->spares.boxes[yard->spares.count++] = box;
	if (box_launch(box, &err) < 0)
		spare_ended(box, &err);
	else
		refill_in(yard, REFILL_MS);
}

static void refill(void *arg)
{
	struct yard *yard = arg;
	const struct image *image;
	struct engine *engine;

	if (yard->closing || yard->spares.count >= yard->conf->spares)
		return;
	if (!yard->spares.kind.image) {
		image = images_find(yard->images, "debian", NULL);
		if (image && drivers_choose(yard->drivers, NULL, &engine, NULL) == 0)
			kind_set(&yard->spares.kind, image->id, engine_get_name(engine),
				profile_name(PROFILE_STANDARD));
	} else {
		image = images_get(yard->images, yard->spares.kind.image, NULL);
	}
	if (image)
		make_one(yard, image, &yard->spares.kind);
}

void spares_start(struct yard *yard)
{
	yard->spares.timer = loop_timer_new(yard->loop, refill, yard);
	refill_in(yard, REFILL_MS);
}

/* ---- using them ----------------------------------------------------------------------------- */

static void note_kind(struct yard *yard, const char *image, const char *driver, const char *profile)
{
	if (kind_is(&yard->spares.kind, image, driver, profile)) {
		yard->spares.other.times = 0;
		return;
	}
	if (!kind_is(&yard->spares.other, image, driver, profile))
		kind_set(&yard->spares.other, image, driver, profile);
	else
		yard->spares.other.times++;
	if (yard->spares.kind.image && yard->spares.other.times < 2)
		return;
	kind_set(&yard->spares.kind, image, driver, profile);
	spares_drop(yard);
}

static void rest(struct box *box)
{
	struct err err = ERR_INIT;

	if (!box->warming)
		return;
	box->warming = false;
	if (!box->remove_wanted && box->instance && instance_freeze(box->instance, true, &err) < 0)
		log_warn("a spare box cannot be suspended", kv_str("box", box->row.id),
			kv_err(&err));
}

static void on_warm_data(struct chan *chan, enum wire_stream stream, uint64_t offset,
	const void *data, size_t len, void *arg)
{
	(void)stream;
	(void)offset;
	(void)data;
	(void)arg;
	chan_consumed(chan, len);
}

static void on_warm_closed(struct chan *chan, void *arg)
{
	(void)chan;
	rest(arg);
}

/* Its image may have no shell: then it is as it is. */
static void on_warm_error(struct chan *chan, const struct err *err, void *arg)
{
	(void)chan;
	(void)err;
	rest(arg);
}

void spare_ready(struct box *box)
{
	static const struct chan_ops ops = {
		.on_data = on_warm_data, .on_closed = on_warm_closed, .on_error = on_warm_error
	};
	struct buf nothing = BUF_INIT;

	if (!has_own_kernel(box->yard, box->row.driver))
		return;
	box->warming = true;
	if (!chan_open(box->link, WIRE_OP_WARM_UP, &nothing, &ops, box, NULL))
		rest(box);
}

/* False: it cannot be used. */
static bool wake(struct box *box)
{
	struct err err = ERR_INIT;

	if (!has_own_kernel(box->yard, box->row.driver) ||
		instance_freeze(box->instance, false, &err) == 0)
		return true;
	log_warn("a spare box cannot be used", kv_str("box", box->row.id), kv_err(&err));
	drop(box);
	return false;
}

struct box *spare_take(
	struct yard *yard, const char *image, const char *driver, const char *profile)
{
	note_kind(yard, image, driver, profile);
	for (size_t i = 0; i < yard->spares.count; i++) {
		struct box *box = yard->spares.boxes[i];

		if (is_ready(box) && !strcmp(box->row.image, image) &&
			!strcmp(box->row.driver, driver) && !strcmp(box->row.profile, profile) &&
			wake(box)) {
			unlist(box);
			refill_in(yard, refill_ms(yard));
			return box;
		}
	}
	refill_in(yard, refill_ms(yard));
	return NULL;
}

/* ---- ending them ---------------------------------------------------------------------------- */

void spare_discard(struct box *box)
{
	box->yard->spares.boxes[box->yard->spares.count++] = box;
	drop(box);
}

void spare_ended(struct box *box, const struct err *why)
{
	struct yard *yard = box->yard;
	bool wanted = box->remove_wanted;
	struct err err = ERR_INIT;

	box->warming = false;
	if (!wanted && why)
		log_warn("a spare box ended", kv_str("box", box->row.id), kv_err(why));
	unlist(box);
	if (pool_disk_discard(yard->pool, BOX_DISKS, box->row.id, &err) < 0)
		log_warn("the disk of a spare box was not removed", kv_str("box", box->row.id),
			kv_err(&err));
	box_free(box);
	refill_in(yard, wanted ? REFILL_MS : RETRY_MS);
	yard_purge_step(yard);
}

void spares_drop(struct yard *yard)
{
	for (size_t i = 0; i < yard->spares.count; i++)
		drop(yard->spares.boxes[i]);
}

void spares_check(struct yard *yard)
{
	for (size_t i = 0; i < yard->spares.count; i++)
		if (!images_get(yard->images, yard->spares.boxes[i]->row.image, NULL))
			drop(yard->spares.boxes[i]);
	refill_in(yard, REFILL_MS);
}

size_t spares_ready(const struct yard *yard)
{
	size_t ready = 0;

	for (size_t i = 0; i < yard->spares.count; i++)
		ready += is_ready(yard->spares.boxes[i]);
	return ready;
}

/* The loop no longer runs: kill and wait here, so that an orderly shutdown leaves nothing. */
void spares_end(struct yard *yard)
{
	while (yard->spares.count) {
		struct box *box = yard->spares.boxes[--yard->spares.count];
		_cleanup_free_ char *id = xstrdup(box->row.id);
		struct err err = ERR_INIT;

		box->warming = false;
		box_free(box);
		if (drivers_sweep(yard->drivers, id, &err) < 0 ||
			pool_disk_discard(yard->pool, BOX_DISKS, id, &err) < 0)
			log_warn("parts of a spare box were not removed", kv_str("box", id),
				kv_err(&err));
	}
	loop_timer_free(yard->spares.timer);
	yard->spares.timer = NULL;
	kind_done(&yard->spares.kind);
	kind_done(&yard->spares.other);
}
