/* images.c - the list of images, and their removal
 *
 * There are two folders. pool/images belongs to this daemon: it is read once, at open, and every
 * later change comes from here. BOX_HOME/images may be shared with other homes, so it is read
 * again when its mtime has changed; images there are only listed, or removed from the folder
 * when it is our own. */
#include "image/image_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* File times tick coarsely: a folder changed this shortly before it was read may change again
 * without its mtime showing it. */
enum { MTIME_SLACK_US = 50 * 1000 };

/* ---- the list ------------------------------------------------------------------------------- */

static int newest_first(const void *a, const void *b)
{
	const struct image *x = *(struct image *const *)a, *y = *(struct image *const *)b;

	if (x->created_us != y->created_us)
		return x->created_us > y->created_us ? -1 : 1;
	return strcmp(x->id, y->id);
}

static int compare_ids(const void *a, const void *b)
{
	return strcmp((*(struct image *const *)a)->id, (*(struct image *const *)b)->id);
}

static int compare_id(const void *id, const void *image)
{
	return strcmp(id, (*(struct image *const *)image)->id);
}

struct image *images_by_id(const struct images *images, const char *id)
{
	struct image **found = images->count ? bsearch(id, images->by_id, images->count,
						       sizeof *images->by_id, compare_id)
					     : NULL;

	return found ? *found : NULL;
}

static void count_all_children(struct images *images)
{
	for (size_t i = 0; i < images->count; i++)
		entry_of(images->list[i])->children = 0;
	for (size_t i = 0; i < images->count; i++) {
		const struct image *parent = images_by_id(images, images->list[i]->parent);

		if (parent)
			entry_of(parent)->children++;
	}
}

/* After a change of the list: rebuilds everything that is used for lookups. */
static void settle(struct images *images)
{
	if (images->count) {
		qsort(images->list, images->count, sizeof *images->list, newest_first);
		xgrow(images->by_id, images->count);
		memcpy(images->by_id, images->list, images->count * sizeof *images->list);
		qsort(images->by_id, images->count, sizeof *images->by_id, compare_ids);
	}
	count_all_children(images);
	names_settle(images);
}

static void add(struct images *images, struct image *image)
{
	xgrow(images->list, images->count + 1);
	images->list[images->count++] = image;
	layers_add(images, image);
}

/* Removes the image from the list; it may still be in use, so it is not freed. */
static void drop(struct images *images, struct image *image, bool discard_layers)
{
	size_t i = 0;

	while (images->list[i] != image)
		i++;
	memmove(images->list + i, images->list + i + 1,
		(--images->count - i) * sizeof *images->list);
	xgrow(images->gone, images->gone_count + 1);
	images->gone[images->gone_count++] = image;
	layers_drop(images, image, discard_layers);
}

/* ---- reading the folders -------------------------------------------------------------------- */

static void complain(struct images *images, const char *id, const struct err *err)
{
	if (images->complained && strv_has((const char *const *)images->complained, id))
		return;
	strv_add(&images->complained, id);
	log_warn("image is left out", kv_str("image", id), kv_err(err));
}

void images_read_place(struct images *images, const char *path, bool shared)
{
	_cleanup_strv_ char **names = folder_list(path);
	_cleanup_free_ struct image **found =
		xnewn(struct image *, strv_len((const char *const *)names) + 1);
	size_t count = 0;

	for (size_t i = 0; names && names[i]; i++) {
		struct err err = ERR_INIT;

		/* Images never change, so one that is known already is not read again. */
		if (!image_id_is_valid(names[i]) || images_by_id(images, names[i]))
			continue;
		if (record_read(images, path, names[i], names[i], shared, &found[count], &err) < 0)
			complain(images, names[i], &err);
		else
			count++;
	}
	for (size_t i = 0; i < count; i++)
		add(images, found[i]);
	settle(images);
}

static void forget_vanished(struct images *images)
{
	for (size_t i = images->count; i-- > 0;) {
		struct image *image = images->list[i];
		_cleanup_free_ char *path =
			xasprintf("%s/%s/image.json", images->shared, image->id);

		if (entry_of(image)->shared && access(path, F_OK) < 0)
			drop(images, image, false);
	}
	settle(images);
}

void images_refresh(struct images *images)
{
	struct stat st = { 0 };
	int64_t changed_ns;

	if (stat(images->shared, &st) < 0 && !images->scanned_us)
		return; /* the folder does not exist, and did not before */
	changed_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
	if (images->scanned_us && changed_ns == images->changed_ns &&
		images->scanned_us - changed_ns / 1000 > MTIME_SLACK_US)
		return;
	images->scanned_us = clock_wall_us();
	images->changed_ns = changed_ns;
	forget_vanished(images);
	images_read_place(images, images->shared, true);
}

/* ---- the owner ------------------------------------------------------------------------------ */

void images_set_view(struct images *images, const char *owner, bool all)
{
	images->owner = owner;
	images->only_own = !all;
}

static bool is_own(const struct images *images, const struct image *image)
{
	return !images->only_own || !strcmp(image->owner, images->owner);
}

bool images_may_see(const struct images *images, const struct image *image)
{
	return is_own(images, image) || !strcmp(image->owner, IMAGE_OWNER_SHARED);
}

int images_check_own(const struct images *images, const struct image *image, struct err *err)
{
	if (is_own(images, image))
		return 0;
	return err_set(err, ERR_FORBIDDEN,
		"image '%s' belongs to '%s': it can be used, not changed",
		*image->name ? image->name : image->id, image->owner);
}

/* ---- finding -------------------------------------------------------------------------------- */

/* "python:3.11@sha256:…": the image of that digest, if its name fits. */
static const struct image *find_by_digest(const struct images *images, const char *reference)
{
	const char *at = strchr(reference, '@');
	_cleanup_free_ char *name = at ? xstrndup(reference, (size_t)(at - reference)) : NULL;

	for (size_t i = 0; at && i < images->count; i++) {
		const struct image *image = images->list[i];
		const char *given = entry_of(image)->given;
		size_t len = strlen(name);

		if (images_may_see(images, image) && !strcmp(image->digest, at + 1) &&
			!strncmp(given, name, len) &&
			(!given[len] || given[len] == ':' || given[len] == '@'))
			return image;
	}
	return NULL;
}

const struct image *images_find(struct images *images, const char *name_or_id, struct err *err)
{
	_cleanup_free_ char *normal = NULL;
	/* Called for every box of a list: a known id needs no look at the folder. */
	const struct image *image = images_by_id(images, name_or_id);

	if (image && images_may_see(images, image))
		return image;
	images_refresh(images);
	normal = image_name_normal(name_or_id);
	image = images_by_id(images, name_or_id);
	if (image && !images_may_see(images, image))
		image = NULL;
	if (!image)
		image = names_find(images, images->owner, normal);
	if (!image)
		image = names_find(images, IMAGE_OWNER_SHARED, normal);
	if (!image)
		image = find_by_digest(images, name_or_id);
	if (image)
		return image;
	err_set(err, ERR_NOT_FOUND, "no image '%.80s'", name_or_id);
	if (images->count)
		err_hint(err, "'box image ls' lists them; 'box image pull' fetches one, 'box image "
			      "build' makes one");
	else
		err_hint(err, "there is none yet: 'box image build' makes debian, 'box image pull' "
			      "fetches one");
	return NULL;
}

const struct image *images_get(struct images *images, const char *id, struct err *err)
{
	const struct image *image = images_by_id(images, id);

	if (!image) {
		images_refresh(images);
		image = images_by_id(images, id);
	}
	if (!image)
		err_set(err, ERR_NOT_FOUND, "no image '%.80s'", id);
	return image;
}

const struct image *images_find_cached(struct images *images, const char *cache_key)
{
	for (size_t i = 0; *cache_key && i < images->count; i++)
		if (images_may_see(images, images->list[i]) &&
			!strcmp(images->list[i]->cache_key, cache_key))
			return images->list[i];
	return NULL;
}

/* ---- as JSON -------------------------------------------------------------------------------- */

struct sizes {
	uint64_t own, shared, files;
	bool known; /* of every layer */
};

static json_t *layers_json(struct images *images, const struct image *image, struct sizes *sizes)
{
	json_t *list = json_array();

	*sizes = (struct sizes){ .known = true };
	for (size_t i = 0; image->layers[i]; i++) {
		struct layer *layer = layers_find(images, image->layers[i]);

		if (!layer) /* the image is not listed any more */
			continue;
		layers_know(images, layer);
		if (layer->state != LAYER_MEASURED)
			sizes->known = false;
		*(layer->images > 1 ? &sizes->shared : &sizes->own) += layer->size_bytes;
		sizes->files += layer->files;
		json_array_append_new(list, json_pack("{s:s, s:I, s:i}", "id", layer->id,
						    "size_bytes", (json_int_t)layer->size_bytes,
						    "shared_by", (int)layer->images - 1));
	}
	return list;
}

unsigned images_count_users(struct images *images, const struct image *image, struct buf *names)
{
	struct buf scratch = BUF_INIT;
	unsigned count = images->users ? images->users(image->id, names ? names : &scratch,
						 images->users_arg)
				       : 0;

	buf_done(&scratch);
	return count;
}

/* Number of boxes, and of images built on it, that the caller may see. */
static unsigned users_seen(struct images *images, const struct image *image)
{
	unsigned count;

	if (!images->only_own)
		return images_count_users(images, image, NULL) + entry_of(image)->children;
	count = images->users ? images->users(image->id, NULL, images->users_arg) : 0;
	for (size_t i = 0; entry_of(image)->children && i < images->count; i++)
		count += !strcmp(images->list[i]->parent, image->id) &&
			 images_may_see(images, images->list[i]);
	return count;
}

json_t *image_json(struct images *images, const struct image *image)
{
	char created[CLOCK_RFC3339_MAX];
	struct sizes sizes;
	json_t *layers = layers_json(images, image, &sizes);

	if (sizes.known && images_by_id(images, image->id) == image) {
		struct image *ours = &entry_of(image)->image;

		ours->size_bytes = sizes.own + sizes.shared;
		ours->files = sizes.files;
	}
	return json_pack(
		"{s:s, s:s, s:s, s:o, s:s, s:I, s:I, s:s, s:s, s:s, s:s, s:O, s:O, s:o, s:I, s:I, "
		"s:I, s:i}",
		"id", image->id, "name", image->name, "owner", image->owner, "names",
		names_of(images, image), "created_at", clock_rfc3339(image->created_us, created),
		"size_bytes", (json_int_t)image->size_bytes, "files", (json_int_t)image->files,
		"origin", image->origin, "parent", image->parent, "digest", image->digest,
		"cache_key", image->cache_key, "packages", image->packages, "config", image->config,
		"layers", layers, "own_bytes",
		(json_int_t)sizes.own + (json_int_t)entry_of(image)->file_bytes, "shared_bytes",
		(json_int_t)sizes.shared, "file_bytes", (json_int_t)entry_of(image)->file_bytes,
		"users", (int)users_seen(images, image));
}

json_t *images_json(struct images *images, bool all)
{
	json_t *list = json_array();

	images_refresh(images);
	for (size_t i = 0; i < images->count; i++)
		if (images_may_see(images, images->list[i]) && (all || *images->list[i]->name))
			json_array_append_new(list, image_json(images, images->list[i]));
	return list;
}

/* ---- adding and removing -------------------------------------------------------------------- */

int images_publish(struct images *images, const char *id, const struct image **ret, struct err *err)
{
	_cleanup_free_ char *draft = xasprintf(IMAGE_DRAFT_PREFIX "%s", id);
	_cleanup_free_ char *from = xasprintf("%s/%s", images->path, draft);
	_cleanup_free_ char *to = xasprintf("%s/%s", images->path, id);
	struct image *image;

	if (record_read(images, images->path, draft, id, false, &image, err) < 0)
		return -1;
	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, 1 /* RENAME_NOREPLACE */) < 0) {
		image_free(image);
		return err_sys(err, errno, "rename '%s' to '%s'", from, to);
	}
	add(images, image);
	settle(images);
	*ret = image;
	return 0;
}

bool shared_is_ours(const struct images *images)
{
	struct stat st;

	return lstat(images->shared, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Removes a shared image from our folder; other homes keep it. */
static int unlist_shared(struct images *images, const struct image *image, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", images->shared, image->id);
	_cleanup_free_ char *name = xasprintf(IMAGE_TRASH_PREFIX "%s", image->id);
	_cleanup_free_ char *trash = xasprintf("%s/%s", images->shared, name);
	struct stat st;

	if (!shared_is_ours(images)) {
		err_set(err, ERR_STATE, "'%s' belongs to another home", images->shared);
		return err_hint(err, "remove it there");
	}
	if (lstat(path, &st) < 0)
		return err_sys(err, errno, "stat '%s'", path);
	if (S_ISLNK(st.st_mode))
		return unlink(path) < 0 ? err_sys(err, errno, "remove '%s'", path) : 0;
	if (rename(path, trash) < 0)
		return err_sys(err, errno, "rename '%s' to '%s'", path, trash);
	images_discard(images, images->shared, name);
	return 0;
}

/* Two small files: no work for a helper. */
static int unlist_own(struct images *images, const struct image *image, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", images->path, image->id);
	_cleanup_free_ char *trash =
		xasprintf("%s/" IMAGE_TRASH_PREFIX "%s", images->path, image->id);
	struct err ignored = ERR_INIT;

	if (rename(path, trash) < 0)
		return err_sys(err, errno, "rename '%s' to '%s'", path, trash);
	if (tree_remove(AT_FDCWD, trash, &ignored) < 0)
		log_warn("cannot remove what is left of an image, the next start will",
			kv_str("path", trash), kv_err(&ignored));
	return 0;
}

int images_unlist(struct images *images, struct image *image, struct err *err)
{
	if ((entry_of(image)->shared ? unlist_shared : unlist_own)(images, image, err) < 0)
		return err_wrap(err, "remove image '%s'", *image->name ? image->name : image->id);
	files_drop(images, image);
	drop(images, image, true);
	settle(images);
	log_info("image removed", kv_str("image", image->id), kv_str("name", image->name));
	return 0;
}

static void name_children(const struct images *images, const struct image *image, struct buf *names)
{
	enum { NAMED_MAX = 3 };
	unsigned count = 0;

	for (size_t i = 0; i < images->count; i++) {
		const struct image *child = images->list[i];

		if (strcmp(child->parent, image->id) || ++count > NAMED_MAX)
			continue;
		buf_addf(names, "%simage '%s'", count > 1 ? ", " : "",
			*child->name ? child->name : child->id);
	}
	if (count > NAMED_MAX)
		buf_addf(names, ", %u more images", count - NAMED_MAX);
}

static int check_unused(struct images *images, const struct image *image, struct err *err)
{
	struct buf boxes = BUF_INIT, children = BUF_INIT;
	unsigned box_count = images_count_users(images, image, &boxes);
	unsigned child_count = entry_of(image)->children;
	int ret = 0;

	name_children(images, image, &children);
	if (box_count || child_count) {
		ret = err_set(err, ERR_STATE, "image '%s' is used by %s%s%s",
			*image->name ? image->name : image->id, buf_str(&boxes),
			box_count && child_count ? " and " : "", buf_str(&children));
		err_hint(err, "remove %s first%s", box_count ? "those boxes" : "those images",
			child_count ? "; 'box image gc' removes images without a name" : "");
	}
	buf_done(&boxes);
	buf_done(&children);
	return ret;
}

int images_remove(struct images *images, const char *id, struct err *err)
{
	struct image *image;

	images_refresh(images);
	image = images_by_id(images, id);
	if (!image)
		return err_set(err, ERR_NOT_FOUND, "no image '%.80s'", id);
	if (images_check_own(images, image, err) < 0 || check_unused(images, image, err) < 0)
		return -1;
	return images_unlist(images, image, err);
}
