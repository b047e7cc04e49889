/* file.c - an image as one file: found, made once, waited for by many
 *
 * BOX_HOME/image-files/ID-KEY.erofs is made by a helper (file_make.c) and becomes visible
 * complete, by a rename. Several callers can wait for the same build; one that cancels does not
 * stop it, because the next caller will want the file too. The file can be made again from the
 * image at any time: a damaged one is replaced, and `gc` removes those of images that nobody
 * uses. Files with an older key stay as long as their image has users, because a running box may
 * have one open and be forked. */
#include "image/image_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "pool/pool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define FILE_SUFFIX ".erofs"
enum { KEY_MAX = 64, PROGRESS_EVERY_US = 300 * 1000 };

/* A message of the helper; a plain value. */
struct file_message {
	enum { FILE_PROGRESS, FILE_FINISHED, FILE_FAILED } type;
	uint64_t bytes;
	struct err err;
};
static_assert(sizeof(struct file_message) <= HELPER_MESSAGE_MAX, "a message fits");

struct image_file_wait {
	struct file_build *build;
	const struct image_file_ops *ops;
	void *arg;
	struct image_file_wait *next;
};

struct file_build {
	struct images *images;
	struct helper *helper;
	struct file_work work;
	char *name; /* name of the image, for messages */
	struct image_file_wait *waits;
	bool finished;
	struct err err;
	int64_t started_us;
	struct file_build *next;
};

/* ---- names and sizes ------------------------------------------------------------------------ */

static bool key_is_valid(const char *key)
{
	size_t len = strnlen(key, KEY_MAX + 1);

	return len && len <= KEY_MAX &&
	       strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == len;
}

/* The image id in "ID-KEY.erofs"; NULL for any other name. Yours. */
static char *id_of_file(const char *name)
{
	const char *dash = strchr(name, '-');
	const char *dot = strrchr(name, '.');
	_cleanup_free_ char *id = dash ? xstrndup(name, (size_t)(dash - name)) : NULL;

	return id && image_id_is_valid(id) && dot && !strcmp(dot, FILE_SUFFIX) ? steal_ptr(&id)
									       : NULL;
}

static char *path_of(const struct images *images, const struct image *image, const char *key)
{
	return xasprintf("%s/%s-%s" FILE_SUFFIX, images->disks_path, image->id, key);
}

/* Calls fn with each file of an image; id NULL: of all images. */
static void each_file(struct images *images, const char *id,
	void (*fn)(struct images *images, const char *id, const char *path))
{
	_cleanup_strv_ char **names = folder_list(images->disks_path);

	for (size_t i = 0; names && names[i]; i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", images->disks_path, names[i]);
		_cleanup_free_ char *of = id_of_file(names[i]);

		if (of && (!id || !strcmp(of, id)))
			fn(images, of, path);
	}
}

static void count_file(struct images *images, const char *id, const char *path)
{
	struct image *image = images_by_id(images, id);
	struct stat st;

	if (image && stat(path, &st) == 0)
		entry_of(image)->file_bytes += (uint64_t)st.st_blocks * 512;
}

static void count_files(struct images *images, struct image *image)
{
	entry_of(image)->file_bytes = 0;
	each_file(images, image->id, count_file);
}

static void remove_file(struct images *images, const char *id, const char *path)
{
	(void)images;
	if (unlink(path) < 0 && errno != ENOENT)
		log_warn("cannot remove the disk file of an image", kv_str("image", id),
			kv_str("path", path), kv_str("why", strerror(errno)));
}

static void sweep_file(struct images *images, const char *id, const char *path)
{
	if (images_by_id(images, id)) {
		count_file(images, id, path);
		return;
	}
	log_info("removing the disk file of an image that is gone", kv_str("image", id));
	remove_file(images, id, path);
}

void files_sweep(struct images *images)
{
	each_file(images, NULL, sweep_file);
}

void files_drop(struct images *images, struct image *image)
{
	each_file(images, image->id, remove_file);
	entry_of(image)->file_bytes = 0;
}

size_t image_layers_apart(const struct images *images, const struct image *image)
{
	_cleanup_free_ char *saved = xasprintf("%s/", images->layers_path);
	size_t count = 0;

	if (pool_get_kind(images->pool) != POOL_NATIVE)
		return 0;
	for (char **layer = image->layers; *layer; layer++)
		count = text_has_prefix(*layer, saved) ? 0 : count + 1;
	return count;
}

char *image_file_find(
	struct images *images, const struct image *image, const struct image_extra *extra)
{
	_cleanup_free_ char *path =
		key_is_valid(extra->key) ? path_of(images, image, extra->key) : NULL;
	struct err err = ERR_INIT;
	uint64_t bytes;

	if (!path || access(path, F_OK) < 0)
		return NULL;
	if (file_verify(path, &bytes, &err) == 0)
		return steal_ptr(&path);
	log_warn("the disk file of an image is made again", kv_str("image", image->id),
		kv_err(&err));
	remove_file(images, image->id, path);
	return NULL;
}

/* ---- in the helper -------------------------------------------------------------------------- */

struct telling {
	const struct images *images;
	int sock;
	int64_t told_us;
};

static int tell_progress(uint64_t bytes, void *arg, struct err *err)
{
	struct telling *telling = arg;
	struct file_message message = { .type = FILE_PROGRESS, .bytes = bytes };
	int64_t now = clock_mono_us();

	if (now - telling->told_us < PROGRESS_EVERY_US)
		return 0;
	telling->told_us = now;
	send(telling->sock, &message, sizeof message, MSG_NOSIGNAL);
	return room_check(telling->images, 0, err);
}

static int build_run(int sock, void *arg)
{
	struct file_build *build = arg;
	struct telling telling = { .images = build->images, .sock = sock };
	struct file_message end = { .type = FILE_FINISHED };

	umask(022);
	snprintf(build->images->work_id, sizeof build->images->work_id, "%.10s", build->work.id);
	if (file_make(build->images, &build->work, tell_progress, &telling, &end.err) < 0)
		end.type = FILE_FAILED;
	return send(sock, &end, sizeof end, MSG_NOSIGNAL) < 0 || end.type == FILE_FAILED;
}

/* ---- in the daemon -------------------------------------------------------------------------- */

static void build_free(struct file_build *build)
{
	struct file_build **at = &build->images->builds;

	while (*at && *at != build)
		at = &(*at)->next;
	if (*at)
		*at = build->next;
	helper_free(build->helper);
	strv_free(build->work.layers);
	strv_free(build->work.folders);
	free(build->work.id);
	free(build->work.key);
	free(build->work.release);
	free(build->work.modules);
	free(build->work.program);
	free(build->work.path);
	free(build->name);
	free(build);
}
DEFINE_CLEANUP(build_free, struct file_build)

static void describe(const struct file_build *build, uint64_t bytes, char *ret, size_t size)
{
	char text[16];
	int len = snprintf(ret, size, "building the disk file of image '%.80s'", build->name);

	if (bytes)
		snprintf(ret + len, size - (size_t)len, ": %s", format_size(bytes, text));
}

static void build_message(const void *data, size_t len, void *arg)
{
	struct file_build *build = arg;
	struct file_message message;
	char text[160];

	if (len != sizeof message)
		return;
	memcpy(&message, data, sizeof message);
	if (message.type == FILE_FINISHED)
		build->finished = true;
	else if (message.type == FILE_FAILED)
		build->err = message.err;
	if (message.type != FILE_PROGRESS)
		return;
	describe(build, message.bytes, text, sizeof text);
	for (struct image_file_wait *wait = build->waits, *next; wait; wait = next) {
		next = wait->next;
		if (wait->ops->on_progress)
			wait->ops->on_progress(text, wait->arg);
	}
}

/* Counts the new file as part of the image, if that still exists. */
static int settle(struct file_build *build, int code, struct err *err)
{
	struct images *images = build->images;
	struct image *image = images_by_id(images, build->work.id);

	*err = build->err;
	if (!build->finished && err->kind == ERR_NONE)
		err_set(err, ERR_SYSTEM,
			"the helper process failed without a message (exit code %d)", code);
	if (image)
		count_files(images, image);
	if (!build->finished)
		return -1;
	if (image)
		return 0;
	remove_file(images, build->work.id, build->work.path);
	return err_set(err, ERR_NOT_FOUND, "the image was removed meanwhile");
}

static void build_exited(int code, void *arg)
{
	struct file_build *build = arg;
	struct image_file_wait *wait;
	struct err err = ERR_INIT;
	bool whole;

	build->helper = NULL;
	whole = settle(build, code, &err) == 0;
	if (whole) {
		log_info("disk file of an image made", kv_str("image", build->work.id),
			kv_str("name", build->name),
			kv_ms("took", clock_mono_us() - build->started_us));
	} else {
		err_wrap(&err, "build the disk file of image '%s'", build->name);
		log_warn("cannot make the disk file of an image", kv_str("image", build->work.id),
			kv_err(&err));
	}
	/* Removed from the list first: a callback may start another build. */
	for (struct file_build **at = &build->images->builds; *at; at = &(*at)->next)
		if (*at == build) {
			*at = build->next;
			break;
		}
	while ((wait = build->waits)) {
		const struct image_file_ops *ops = wait->ops;
		void *user = wait->arg;

		build->waits = wait->next;
		free(wait);
		ops->on_done(whole ? build->work.path : NULL, whole ? NULL : &err, user);
	}
	build_free(build);
}

static int refuse_without_program(struct err *err)
{
	err_set(err, ERR_UNSUPPORTED, "mkfs.erofs is not installed");
	return err_hint(err, "apt-get install erofs-utils");
}

static int build_start(struct images *images, const struct image *image,
	const struct image_extra *extra, struct file_build **ret, struct err *err)
{
	static const struct helper_ops ops = {
		.run = build_run, .on_message = build_message, .on_exit = build_exited
	};
	_cleanup_(build_freep) struct file_build *build = xnew(struct file_build);
	struct file_work *work = &build->work;

	build->images = images;
	build->name = xstrdup(*image->name ? image->name : image->id);
	build->started_us = clock_mono_us();
	work->program = program_find("mkfs.erofs");
	if (!work->program)
		return refuse_without_program(err);
	/* The file is smaller than its contents; by how much is not known in advance. */
	if (room_check(images, image->size_bytes / 2, err) < 0)
		return -1;
	for (size_t i = 0; image->layers[i]; i++)
		strv_add(&work->layers, image->layers[i]);
	for (size_t i = 0; extra->folders && extra->folders[i]; i++)
		strv_add(&work->folders, extra->folders[i]);
	work->apart = image_layers_apart(images, image);
	work->id = xstrdup(image->id);
	work->key = xstrdup(extra->key);
	work->modules = extra->modules ? xstrdup(extra->modules) : NULL;
	work->release = extra->release ? xstrdup(extra->release) : NULL;
	work->path = path_of(images, image, extra->key);
	if (helper_start(images->loop, &ops, build, NULL, 0, &build->helper, err) < 0)
		return -1;
	build->next = images->builds;
	images->builds = build;
	log_info("making the disk file of an image", kv_str("image", image->id),
		kv_str("name", build->name));
	*ret = steal_ptr(&build);
	return 0;
}

static struct file_build *find_build(
	const struct images *images, const struct image *image, const char *key)
{
	for (struct file_build *build = images->builds; build; build = build->next)
		if (!strcmp(build->work.id, image->id) && !strcmp(build->work.key, key))
			return build;
	return NULL;
}

bool files_are_made(const struct images *images, const struct image *image)
{
	for (const struct file_build *build = images->builds; build; build = build->next)
		if (!strcmp(build->work.id, image->id))
			return true;
	return false;
}

int image_file_start(struct images *images, const struct image *image,
	const struct image_extra *extra, const struct image_file_ops *ops, void *arg,
	struct image_file_wait **ret, struct err *err)
{
	struct file_build *build = find_build(images, image, extra->key);
	struct image_file_wait *wait, **end;
	char text[160];

	assert(key_is_valid(extra->key));
	if (!build && build_start(images, image, extra, &build, err) < 0)
		return err_wrap(err, "build the disk file of image '%s'",
			*image->name ? image->name : image->id);
	wait = xnew(struct image_file_wait);
	wait->build = build;
	wait->ops = ops;
	wait->arg = arg;
	for (end = &build->waits; *end;)
		end = &(*end)->next;
	*end = wait;
	*ret = wait;
	describe(build, 0, text, sizeof text);
	if (ops->on_progress)
		ops->on_progress(text, arg);
	return 0;
}

void image_file_cancel(struct image_file_wait *wait)
{
	struct image_file_wait **at;

	if (!wait)
		return;
	at = &wait->build->waits;
	while (*at != wait)
		at = &(*at)->next;
	*at = wait->next;
	free(wait);
}

void files_end(struct images *images)
{
	struct file_build *build;

	while ((build = images->builds)) {
		helper_free(steal_ptr(&build->helper));
		while (build->waits)
			image_file_cancel(build->waits);
		build_free(build);
	}
}
