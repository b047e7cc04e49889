/* disk.c - see disk.h: images of disks, and streams of what is on them
 *
 * A stream is a flow whose helper reads a stack of layers. The disk of a running box is not read
 * while it changes: the helper makes a snapshot of it first, in the pool's "views", which is
 * deleted with the stream. Where the pool cannot make snapshots the disk is read as it is.
 *
 * A helper that is making a snapshot does not end before the kernel has written its dirty pages. So
 * a cancelled stream stays until its helper has ended; only a daemon that shuts down waits for
 * it. */
#include "core/disk/disk.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strv.h"
#include "base/text.h"
#include "core/core_internal.h"
#include "core/disk/upper.h"
#include "core/stream_internal.h"
#include "helper/helper.h"
#include "image/image.h"
#include "pool/pool.h"
#include "view/view.h"
#include <dirent.h>
#include <sys/stat.h>

enum { STREAMS_MAX = 16 }; /* each is a process, and perhaps a snapshot */

/* ---- box save ------------------------------------------------------------------------------- */

static json_t *merged_config(const struct image *image, json_t *changes)
{
	json_t *config = image->config ? json_deep_copy(image->config) : json_object();

	if (changes)
		json_object_update(config, changes);
	return config;
}

int box_save_image(struct box *box, const struct box_save_spec *spec,
	const struct image_job_ops *ops, void *arg, struct image_job **ret, struct err *err)
{
	const struct image *image = images_get(box->yard->images, box->row.image, err);
	_cleanup_free_ char *origin = xasprintf("saved from %s", box->row.name);
	_cleanup_json_ json_t *config = NULL;
	bool own = box_has_own_kernel(box);
	int archive = -1;

	if (!image)
		return -1;
	if (box_is_busy(box))
		return box_refuse_busy(box, err);
	if (own && upper_open(box, NULL, NULL, &archive, err) < 0)
		return -1;
	config = merged_config(image, spec->config);
	return image_save_start(box->yard->images,
		&(struct image_save_spec){
			.name = spec->name,
			.parent = image,
			.disk = box->row.id,
			.origin = origin,
			.config = config,
			.cache_key = spec->cache_key,
			.learn_hosts = spec->learn_hosts,
			.owner = box->row.owner,
			.from_archive = own,
			.archive = archive,
			.archive_max = upper_bytes_max(box),
		},
		ops, arg, ret, err);
}

/* ---- streams -------------------------------------------------------------------------------- */

static int run(int out, void *arg, struct err *err)
{
	struct disk_stream *stream = arg;

	return stream->make(stream, out, err);
}

static void on_readable(struct flow *flow, void *arg)
{
	struct disk_stream *stream = arg;

	(void)flow;
	stream->ops->on_readable(stream, stream->arg);
}

static void release(struct disk_stream *stream);

static void on_done(struct flow *flow, const struct err *err, void *arg)
{
	struct disk_stream *stream = arg;

	(void)flow;
	if (stream->ops)
		stream->ops->on_done(stream, err, stream->arg);
	else
		release(stream);
}

struct disk_stream *disk_stream_new(
	struct yard *yard, const struct disk_stream_ops *ops, void *arg, stream_make make)
{
	struct disk_stream *stream = xnew(struct disk_stream);

	stream->yard = yard;
	stream->ops = ops;
	stream->arg = arg;
	stream->make = make;
	stream->next = yard->streams;
	yard->streams = stream;
	return stream;
}

static int check_count(const struct yard *yard, struct err *err)
{
	unsigned count = 0;

	for (const struct disk_stream *one = yard->streams; one; one = one->next)
		count += one->flow != NULL;
	if (count < STREAMS_MAX)
		return 0;
	err_set(err, ERR_LIMIT, "%u disks and images are being read already, the most at once",
		count);
	return err_hint(err, "try again when one of them is done");
}

size_t stream_side_fds(const struct stream_side *sides, size_t count, int *ret)
{
	size_t found = 0;

	for (size_t i = 0; i < count; i++)
		if (sides[i].from_archive && sides[i].archive >= 0)
			ret[found++] = sides[i].archive;
	return found;
}

static void close_archive(struct stream_side *side)
{
	if (side->from_archive && side->archive >= 0)
		close(side->archive);
	side->archive = -1;
}

int disk_stream_start(struct disk_stream *stream, struct disk_stream **ret, struct err *err)
{
	static const struct flow_ops ops = {
		.run = run, .on_readable = on_readable, .on_done = on_done
	};

	int keep[HELPER_KEEP_MAX];
	size_t kept = stream_side_fds(&stream->now, 1, keep);

	kept += stream_side_fds(&stream->before, 1, keep + kept);
	kept += stream_side_fds(stream->sides, stream->side_count, keep + kept);
	if (check_count(stream->yard, err) < 0 ||
		flow_start(stream->yard->loop, &ops, stream, keep, kept, &stream->flow, err) < 0) {
		disk_stream_free(stream);
		return -1;
	}
	/* The helper has its own. */
	close_archive(&stream->now);
	close_archive(&stream->before);
	for (size_t i = 0; i < stream->side_count; i++)
		close_archive(&stream->sides[i]);
	*ret = stream;
	return 0;
}

size_t disk_stream_read(struct disk_stream *stream, void *data, size_t len)
{
	return flow_read(stream->flow, data, len);
}

void disk_stream_pause(struct disk_stream *stream, bool paused)
{
	flow_pause(stream->flow, paused);
}

void stream_side_done(struct yard *yard, struct stream_side *side)
{
	struct err err = ERR_INIT;

	if (side->view && pool_disk_discard(yard->pool, VIEWS, side->view, &err) < 0)
		log_warn("a snapshot for reading was not removed", kv_str("view", side->view),
			kv_err(&err));
	if (side->from_archive && side->archive >= 0)
		close(side->archive);
	free(side->view);
	free(side->box);
	strv_free(side->layers);
}

static void release(struct disk_stream *stream)
{
	struct disk_stream **at = &stream->yard->streams;

	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	flow_free(stream->flow);
	stream_side_done(stream->yard, &stream->now);
	stream_side_done(stream->yard, &stream->before);
	for (size_t i = 0; i < stream->side_count; i++)
		stream_side_done(stream->yard, &stream->sides[i]);
	free(stream->sides);
	strv_free(stream->names);
	free(stream->file);
	free(stream);
}

void disk_stream_free(struct disk_stream *stream)
{
	if (!stream)
		return;
	stream->ops = NULL;
	if (!stream->flow || !flow_cancel(stream->flow))
		release(stream);
}

void disk_streams_close(struct yard *yard)
{
	while (yard->streams)
		release(yard->streams);
}

void disk_sweep_views(struct yard *yard)
{
	_cleanup_free_ char *path = xasprintf("%s/" VIEWS, pool_get_path(yard->pool));
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			pool_disk_discard(yard->pool, VIEWS, entry->d_name, NULL);
	if (dir)
		closedir(dir);
}

/* ---- one side: a box or an image ------------------------------------------------------------ */

static void side_of_image(const struct image *image, struct stream_side *ret)
{
	for (size_t i = 0; image->layers[i]; i++)
		strv_add(&ret->layers, image->layers[i]);
}

/* The top layer is the disk itself, or the snapshot that the helper will make of it. */
int stream_side_of_box(const struct box *box, struct stream_side *ret, struct err *err)
{
	struct yard *yard = box->yard;
	const struct image *image = images_get(yard->images, box->row.image, err);
	bool own = box_has_own_kernel(box);
	bool live = own || (box->instance && pool_get_kind(yard->pool) != POOL_FOLDER);
	_cleanup_free_ char *disk = NULL, *upper = NULL;
	char id[17];

	if (!image)
		return -1;
	if (!box_has_disk(box))
		return err_set(err, ERR_NOT_FOUND, "box '%s' has no disk", box->row.name);
	if (own && upper_open((struct box *)box, NULL, NULL, &ret->archive, err) < 0)
		return -1;
	ret->from_archive = own;
	ret->archive_max = upper_bytes_max(box);
	random_id(id, 16);
	ret->box = xstrdup(box->row.id);
	ret->view = live ? xstrdup(id) : NULL;
	disk = live ? pool_disk_path(yard->pool, VIEWS, id)
		    : pool_disk_path(yard->pool, BOX_DISKS, box->row.id);
	upper = xasprintf("%s/upper", disk);
	strv_add(&ret->layers, upper);
	side_of_image(image, ret);
	return 0;
}

int stream_side_open(const struct yard *yard, const struct stream_side *side, struct err *err)
{
	if (!side->view)
		return 0;
	if (side->from_archive)
		return image_unpack_upper(yard->pool, (const char *const *)side->layers + 1,
			side->archive, side->archive_max, VIEWS, side->view, err);
	return pool_disk_copy(yard->pool, BOX_DISKS, side->box, VIEWS, side->view, "upper",
		POOL_BUDGET_NONE, err);
}

static int side_by_name(
	struct yard *yard, const char *name, struct stream_side *ret, struct err *err)
{
	const struct box *box = box_find(yard, name, NULL);
	const struct image *image = box ? NULL : images_find(yard->images, name, NULL);

	if (box)
		return stream_side_of_box(box, ret, err);
	if (!image) {
		err_set(err, ERR_NOT_FOUND, "no box and no image '%.80s'", name);
		return err_hint(err, "'box ls' and 'box image ls' list them");
	}
	side_of_image(image, ret);
	return 0;
}

/* ---- differences ---------------------------------------------------------------------------- */

struct lines {
	int out;
	struct buf text;
	uint64_t count;
};

const char *stream_type_name(mode_t mode)
{
	static const struct {
		mode_t type;
		const char *name;
	} names[] = {
		{ S_IFREG, "file" },
		{ S_IFDIR, "dir" },
		{ S_IFLNK, "symlink" },
		{ S_IFIFO, "fifo" },
		{ S_IFSOCK, "socket" },
		{ S_IFCHR, "char" },
		{ S_IFBLK, "block" },
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if ((mode & S_IFMT) == names[i].type)
			return names[i].name;
	return "other";
}

void json_set_path(json_t *object, const char *path)
{
	_cleanup_free_ char *absolute = xasprintf("/%s", path), *code = NULL;
	size_t len = strlen(absolute);

	if (text_is_utf8(absolute, len)) {
		json_object_set_new(object, "path", json_string(absolute));
		return;
	}
	code = base64_encode(absolute, len);
	json_object_set_new(object, "path_b64", json_string(code));
	for (char *p = absolute; *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	json_object_set_new(object, "path", json_string(absolute));
}

int stream_line(int out, struct buf *text, json_t *line, size_t flush_at, struct err *err)
{
	_cleanup_free_ char *one = json_text(line);

	buf_add_str(text, one);
	buf_add(text, "\n", 1);
	json_decref(line);
	if (text->len < flush_at)
		return 0;
	if (fd_write_all(out, buf_head(text), text->len, err) < 0)
		return -1;
	buf_eat(text, text->len);
	return 0;
}

static int print_change(enum view_change change, const char *path, const struct stat *st, void *arg,
	struct err *err)
{
	struct lines *lines = arg;
	json_t *line = json_pack("{s:s}", "change", view_change_name(change));
	char mode[8];

	snprintf(mode, sizeof mode, "%04o", st->st_mode & 07777);
	json_set_path(line, path);
	json_object_set_new(line, "type", json_string(stream_type_name(st->st_mode)));
	json_object_set_new(
		line, "size", json_integer(S_ISREG(st->st_mode) ? (json_int_t)st->st_size : 0));
	json_object_set_new(line, "mode", json_string(mode));
	lines->count++;
	return stream_line(lines->out, &lines->text, line, STREAM_FLUSH, err);
}

static int make_diff(struct disk_stream *stream, int out, struct err *err)
{
	const char *const *before = (const char *const *)stream->before.layers;
	const char *const *now = (const char *const *)stream->now.layers;
	struct lines lines = { .out = out };
	uint64_t too_deep;

	if (stream_side_open(stream->yard, &stream->before, err) < 0 ||
		stream_side_open(stream->yard, &stream->now, err) < 0)
		return -1;
	if (stream->tar)
		return view_diff_pack(before, now, out, NULL, err);
	if (view_diff(before, now, print_change, &lines, &too_deep, err) < 0)
		return -1;
	return stream_line(out, &lines.text,
		json_pack("{s:s,s:I,s:I}", "type", "end", "changes", (json_int_t)lines.count,
			"too_deep", (json_int_t)too_deep),
		0, err);
}

int box_diff_start(struct box *box, const char *other, bool tar, const struct disk_stream_ops *ops,
	void *arg, struct disk_stream **ret, struct err *err)
{
	struct disk_stream *stream = disk_stream_new(box->yard, ops, arg, make_diff);

	stream->tar = tar;
	if (stream_side_of_box(box, &stream->now, err) < 0 ||
		side_by_name(box->yard, other ? other : box->row.image, &stream->before, err) < 0) {
		disk_stream_free(stream);
		return -1;
	}
	return disk_stream_start(stream, ret, err);
}

/* ---- images --------------------------------------------------------------------------------- */

static int make_export(struct disk_stream *stream, int out, struct err *err)
{
	return image_export(stream->yard->images, stream->image, stream->format, out, err);
}

int image_export_start(struct yard *yard, const char *image, enum image_format format,
	const struct disk_stream_ops *ops, void *arg, struct disk_stream **ret, struct err *err)
{
	const struct image *found = images_find(yard->images, image, err);
	struct disk_stream *stream;

	if (!found)
		return -1;
	stream = disk_stream_new(yard, ops, arg, make_export);
	stream->image = found;
	stream->format = format;
	return disk_stream_start(stream, ret, err);
}
