/* image_file.c - a box waits for its image as one file
 *
 * A driver with a kernel of its own gives its boxes the image as a disk. The first box of an image
 * waits while that file is made (image/file.c), with all others that want it; who types the command
 * is told by the event box.waiting and by waits_for of the box. */
#include "core/core_internal.h"
#include "base/clock.h"
#include "image/image.h"

enum { TELL_EVERY_US = 1000 * 1000 };

#define NO_EXTRA "0" /* key of a file that holds the image alone */

void box_tell_wait(struct box *box, const char *what)
{
	if (what && box->waits_for && !strcmp(what, box->waits_for))
		return;
	free(box->waits_for);
	box->waits_for = what ? xstrdup(what) : NULL;
	if (what && !box->spare)
		yard_event(box->yard, "box.waiting", box, json_pack("{s:s}", "what", what));
}

static struct image_extra extra_of(const struct engine *engine)
{
	const struct engine_extra *extra = engine_get_extra(engine);

	return (struct image_extra){
		.key = extra->key ? extra->key : NO_EXTRA,
		.modules = extra->modules,
		.release = extra->release,
		.folders = extra->folders,
	};
}

static void on_progress(const char *text, void *arg)
{
	struct box *box = arg;
	int64_t now = clock_mono_us();

	if (box->waits_for && now - box->image_told_us < TELL_EVERY_US)
		return;
	box->image_told_us = now;
	box_tell_wait(box, text);
}

static void on_done(const char *path, const struct err *failed, void *arg)
{
	struct box *box = arg;
	struct err err = failed ? *failed : (struct err)ERR_INIT;

	(void)path;
	box->image_wait = NULL;
	box_tell_wait(box, NULL);
	if (!err.kind && box->remove_wanted)
		err_set(&err, ERR_CANCELLED, "box '%s' was removed meanwhile", box->row.name);
	if (err.kind)
		err_wrap(&err, "start box '%s'", box->row.name);
	if (err.kind || box_launch(box, &err) < 0)
		box_launch_failed(box, &err);
}

int image_file_need(struct box *box, const struct image *image, bool *ret_wait, struct err *err)
{
	static const struct image_file_ops ops = { .on_progress = on_progress, .on_done = on_done };
	_cleanup_free_ char *path = NULL;
	struct image_extra extra;
	struct engine *engine;

	if (box_engine(box, &engine, err) < 0)
		return -1;
	if (!engine_can(engine, ENGINE_OWN_KERNEL))
		return 0;
	extra = extra_of(engine);
	path = image_file_find(box->yard->images, image, &extra);
	if (path)
		return 0;
	*ret_wait = true;
	return image_file_start(box->yard->images, image, &extra, &ops, box, &box->image_wait, err);
}

int image_file_spec(
	struct box *box, const struct image *image, struct instance_vm *ret, struct err *err)
{
	struct image_extra extra;
	struct engine *engine;
	char *path;

	if (box_engine(box, &engine, err) < 0)
		return -1;
	if (!engine_can(engine, ENGINE_OWN_KERNEL))
		return 0;
	extra = extra_of(engine);
	path = image_file_find(box->yard->images, image, &extra);
	if (!path) {
		err_set(err, ERR_NOT_FOUND, "the disk file of image '%s' is not there",
			box->row.image_name);
		return err_hint(err, "the next start of a box of that image makes it");
	}
	ret->image = path;
	ret->image_key = xasprintf("%s-%s", image->id, extra.key);
	return 0;
}

void image_file_done(struct instance_vm *vm)
{
	free((char *)vm->image);
	free((char *)vm->image_key);
}

void image_file_leave(struct box *box)
{
	image_file_cancel(box->image_wait);
	box->image_wait = NULL;
}
