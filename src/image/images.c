/* images.c - the list of images, and their removal
 *
 * The folder is the truth: an image is there when its directory has been renamed to its id, and gone when it
 * has been renamed to .trash-ID. The list in memory is only a cache of it, read again when the folder's mtime
 * has moved. Other names in the folder:
 *
 *   .build-ID   a build in progress. Whoever builds holds a flock on it, and the helper inherits that, so a
 *               directory nobody has locked belongs to a build that died and is swept at the next open.
 *   .trash-ID   being removed by a helper process; what a dead daemon left is taken up at the next open. */
#include "image/image_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum {
	IMAGE_JSON_MAX = 1024 * 1024,
	/* File times tick coarsely: a folder changed this shortly before it was read may change again
	 * without its mtime showing it. */
	MTIME_SLACK_US = 50 * 1000,
};

struct removal {
	struct images *images;
	struct helper *helper;
	char *name;
	struct removal *next;
};

static void image_free(struct image *image)
{
	if (!image)
		return;
	free(image->id);
	free(image->name);
	free(image->rootfs);
	free(image->origin);
	json_decref(image->packages);
	free(image);
}
DEFINE_CLEANUP(image_free, struct image)

/* ---- reading the folder --------------------------------------------------------------------- */

static bool is_image_id(const char *name)
{
	return strlen(name) == 10 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") == 10;
}

static int image_read(struct images *images, const char *id, struct image **ret, struct err *err)
{
	_cleanup_(image_freep) struct image *image = xnew(struct image);
	_cleanup_free_ char *path = xasprintf("%s/image.json", id), *text = NULL;
	_cleanup_json_ json_t *json = NULL;
	const char *id_inside, *name, *origin;
	json_int_t created, size, files;
	json_t *packages;
	json_error_t why;
	size_t len;

	if (file_read(images->dir, path, IMAGE_JSON_MAX, &text, &len, err) < 0)
		return -1;
	json = json_parse(text, len, err);
	if (!json)
		return err_wrap(err, "'%s'", path);
	if (json_unpack_ex(json, &why, 0, "{s:s, s:s, s:s, s:I, s:I, s:I, s:o}", "id", &id_inside,
		    "name", &name, "origin", &origin, "created_us", &created, "size", &size,
		    "files", &files, "packages", &packages) < 0)
		return err_set(err, ERR_INVALID, "'%s': %s", path, why.text);
	if (strcmp(id, id_inside) || !json_is_array(packages) ||
		name_check("image", name, NULL) < 0)
		return err_set(err, ERR_INVALID, "'%s' describes another image", path);
	image->id = xstrdup(id);
	image->name = xstrdup(name);
	image->origin = xstrdup(origin);
	image->rootfs = xasprintf("%s/%s/rootfs", images->path, id);
	image->created_us = created;
	image->size_bytes = (uint64_t)size;
	image->files = (uint64_t)files;
	image->packages = json_incref(packages);
	*ret = steal_ptr(&image);
	return 0;
}

int image_write_json(int dir, const struct image *image, struct err *err)
{
	char created[CLOCK_RFC3339_MAX];
	_cleanup_json_ json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:O}", "id",
		image->id, "name", image->name, "origin", image->origin, "created_at",
		clock_rfc3339(image->created_us, created), "created_us",
		(json_int_t)image->created_us, "size", (json_int_t)image->size_bytes, "files",
		(json_int_t)image->files, "packages", image->packages);
	_cleanup_free_ char *text = json_text(json);

	return file_write_atomic(dir, "image.json", text, strlen(text), 0644, err);
}

static int newest_first(const void *a, const void *b)
{
	const struct image *x = *(struct image *const *)a, *y = *(struct image *const *)b;

	if (x->created_us != y->created_us)
		return x->created_us > y->created_us ? -1 : 1;
	return strcmp(x->id, y->id);
}

static struct image *take_by_id(struct image **list, size_t count, const char *id)
{
	for (size_t i = 0; i < count; i++)
		if (list[i] && !strcmp(list[i]->id, id))
			return steal_ptr(&list[i]);
	return NULL;
}

static void keep_gone(struct images *images, struct image *image)
{
	xgrow(images->gone, images->gone_count + 1);
	images->gone[images->gone_count++] = image;
}

static DIR *open_list(struct images *images)
{
	int fd = openat(images->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir && fd >= 0)
		close(fd);
	return dir;
}

/* Images never change, so one that is known already is not read again, and pointers stay good. */
static void scan(struct images *images)
{
	struct image **old = images->list;
	size_t old_count = images->count;
	DIR *dir = open_list(images);
	struct dirent *entry;

	images->list = NULL;
	images->count = 0;
	while (dir && (entry = readdir(dir))) {
		struct err err = ERR_INIT;
		struct image *image;

		if (!is_image_id(entry->d_name))
			continue;
		image = take_by_id(old, old_count, entry->d_name);
		if (!image && image_read(images, entry->d_name, &image, &err) < 0) {
			log_warn("image is not readable, leaving it out",
				kv_str("image", entry->d_name), kv_err(&err));
			continue;
		}
		xgrow(images->list, images->count + 1);
		images->list[images->count++] = image;
	}
	if (dir)
		closedir(dir);
	for (size_t i = 0; i < old_count; i++)
		if (old[i])
			keep_gone(images, old[i]);
	free(old);
	if (images->count)
		qsort(images->list, images->count, sizeof *images->list, newest_first);
}

static void refresh(struct images *images)
{
	struct stat st;
	int64_t changed_ns;

	if (fstat(images->dir, &st) < 0)
		return;
	changed_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
	if (images->scanned_us && changed_ns == images->changed_ns &&
		images->scanned_us - changed_ns / 1000 > MTIME_SLACK_US)
		return;
	images->scanned_us = clock_wall_us();
	images->changed_ns = changed_ns;
	scan(images);
}

void images_forget_scan(struct images *images)
{
	images->scanned_us = 0;
}

/* ---- removal -------------------------------------------------------------------------------- */

/* mountinfo writes blanks and backslashes as \ooo. */
static void unescape_octal(char *text)
{
	char *out = text;

	for (char *p = text; *p; out++) {
		if (p[0] == '\\' && p[1] >= '0' && p[1] <= '3' && p[2] >= '0' && p[2] <= '7' &&
			p[3] >= '0' && p[3] <= '7') {
			*out = (char)((p[1] - '0') << 6 | (p[2] - '0') << 3 | (p[3] - '0'));
			p += 4;
		} else {
			*out = *p++;
		}
	}
	*out = '\0';
}

/* Whatever is mounted below must not be walked into. We are in a mount namespace of our own: what is
 * detached here stays where it is on the host, and the kernel detaches it there when its directory goes. */
static void unmount_below(const char *path)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	_cleanup_strv_ char **found = NULL;
	char *line = NULL, *at = NULL;
	size_t room = 0, len = strlen(path);

	while (file && getline(&line, &room, file) > 0) {
		if (sscanf(line, "%*d %*d %*s %*s %ms", &at) == 1) {
			unescape_octal(at);
			if (!strncmp(at, path, len) && at[len] == '/')
				strv_add(&found, at);
		}
		free(at);
		at = NULL;
	}
	for (size_t i = found ? strv_len((const char *const *)found) : 0; i-- > 0;)
		umount2(found[i], MNT_DETACH | UMOUNT_NOFOLLOW);
	free(line);
	if (file)
		fclose(file);
}

static int removal_run(int sock, void *arg)
{
	struct removal *removal = arg;
	_cleanup_free_ char *path = xasprintf("%s/%s", removal->images->path, removal->name);
	struct err err = ERR_INIT;

	(void)sock;
	unmount_below(path);
	/* Another daemon on the same folder may be removing it too; then things vanish under our hands. */
	for (int i = 0; i < 3; i++)
		if (tree_remove(removal->images->dir, removal->name, &err) == 0)
			return 0;
	log_warn("cannot remove what is left of an image", kv_str("path", path), kv_err(&err));
	return 1;
}

static void removal_free(struct removal *removal)
{
	struct removal **at = &removal->images->removals;

	while (*at != removal)
		at = &(*at)->next;
	*at = removal->next;
	helper_free(removal->helper);
	free(removal->name);
	free(removal);
}

static void removal_exited(int code, void *arg)
{
	struct removal *removal = arg;

	(void)code;
	removal->helper = NULL;
	removal_free(removal);
}

void images_discard(struct images *images, const char *name)
{
	static const struct helper_ops ops = { .run = removal_run, .on_exit = removal_exited };
	struct removal *removal = xnew(struct removal);
	struct err err = ERR_INIT;

	removal->images = images;
	removal->name = xstrdup(name);
	removal->next = images->removals;
	images->removals = removal;
	if (helper_start(images->loop, &ops, removal, images->dir, &removal->helper, &err) < 0) {
		log_warn("cannot remove files now, the next start will", kv_str("path", name),
			kv_err(&err));
		removal_free(removal);
	}
}

static int move_to_trash(struct images *images, const char *name, const char *id, struct err *err)
{
	_cleanup_free_ char *trash = xasprintf(IMAGE_TRASH_PREFIX "%s", id);

	if (renameat(images->dir, name, images->dir, trash) < 0)
		return err_sys(err, errno, "rename '%s' to '%s'", name, trash);
	images_discard(images, trash);
	return 0;
}

int images_remove(struct images *images, const char *id, struct err *err)
{
	refresh(images);
	for (size_t i = 0; i < images->count; i++)
		if (!strcmp(images->list[i]->id, id)) {
			if (move_to_trash(images, id, id, err) < 0)
				return err_wrap(err, "remove image '%s'", id);
			images_forget_scan(images);
			log_info("image removed", kv_str("image", id));
			return 0;
		}
	return err_set(err, ERR_NOT_FOUND, "no image '%.80s'", id);
}

/* A build that nobody holds the lock of has died. */
static void sweep_build(struct images *images, const char *name)
{
	_cleanup_close_ int fd =
		openat(images->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct err err = ERR_INIT;

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return;
	if (move_to_trash(images, name, name + strlen(IMAGE_BUILD_PREFIX), &err) < 0)
		log_warn("cannot sweep an unfinished image", kv_err(&err));
	else
		log_info("sweeping an unfinished image", kv_str("path", name));
}

static void sweep(struct images *images)
{
	_cleanup_strv_ char **names = NULL;
	DIR *dir = open_list(images);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		strv_add(&names, entry->d_name);
	if (dir)
		closedir(dir);
	for (size_t i = 0; names && names[i]; i++)
		if (text_has_prefix(names[i], IMAGE_TRASH_PREFIX))
			images_discard(images, names[i]);
		else if (text_has_prefix(names[i], IMAGE_BUILD_PREFIX))
			sweep_build(images, names[i]);
}

/* ---- the list ------------------------------------------------------------------------------- */

int images_open(struct loop *loop, const char *home, struct images **ret, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/images", home);
	struct images *images;
	char *real;
	int dir;

	/* 0700: an image holds setuid programs that are nobody's business on the host. */
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(err, errno, "mkdir '%s'", path);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, errno, "open '%s'", path);
	real = realpath(path, NULL);
	if (!real) {
		err_sys(err, errno, "resolve '%s'", path);
		close(dir);
		return -1;
	}
	images = xnew(struct images);
	images->loop = loop;
	images->path = real;
	images->dir = dir;
	sweep(images);
	*ret = images;
	return 0;
}

void images_close(struct images *images)
{
	if (!images)
		return;
	image_builds_end(images);
	for (struct removal *removal = images->removals, *next; removal; removal = next) {
		next = removal->next;
		removal_free(removal);
	}
	for (size_t i = 0; i < images->count; i++)
		image_free(images->list[i]);
	for (size_t i = 0; i < images->gone_count; i++)
		image_free(images->gone[i]);
	free(images->list);
	free(images->gone);
	free(images->path);
	close(images->dir);
	free(images);
}

const struct image *images_find(struct images *images, const char *name_or_id, struct err *err)
{
	refresh(images);
	for (size_t i = 0; i < images->count; i++)
		if (!strcmp(images->list[i]->id, name_or_id))
			return images->list[i];
	for (size_t i = 0; i < images->count; i++)
		if (!strcmp(images->list[i]->name, name_or_id))
			return images->list[i];
	err_set(err, ERR_NOT_FOUND, "no image '%.80s'", name_or_id);
	if (images->count)
		err_hint(err, "'box image ls' lists them, 'box image build' makes one");
	else
		err_hint(err, "there is none yet: 'box image build' makes debian");
	return NULL;
}

json_t *images_json(struct images *images)
{
	json_t *list = json_array();

	refresh(images);
	for (size_t i = 0; i < images->count; i++)
		json_array_append_new(list, image_json(images->list[i]));
	return list;
}

json_t *image_json(const struct image *image)
{
	char created[CLOCK_RFC3339_MAX];

	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:s, s:O, s:s}", "id", image->id, "name",
		image->name, "created_at", clock_rfc3339(image->created_us, created), "size_bytes",
		(json_int_t)image->size_bytes, "files", (json_int_t)image->files, "origin",
		image->origin, "packages", image->packages, "rootfs", image->rootfs);
}
