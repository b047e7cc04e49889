/* compare.c - see compare.h
 *
 * In the helper each box is compared with the first one (view_diff), which gives the paths where
 * any of them differs. Then every path is looked up in the tree of every box: so a box in which a
 * whole folder is gone is seen as one without the file that another box has changed in that
 * folder. */
#include "core/disk/compare.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/strv.h"
#include "base/text.h"
#include "core/core_internal.h"
#include "core/stream_internal.h"
#include "pool/pool.h"
#include "view/view.h"
#include <sys/stat.h>

/* ---- figures -------------------------------------------------------------------------------- */

json_t *box_figures_json(struct box *box)
{
	_cleanup_json_ json_t *stats = box_stats_json(box, NULL);
	json_t *memory = json_object_get(stats, "memory_bytes");
	json_t *processes = json_object_get(stats, "processes");
	json_t *disk;

	box_refresh(box);
	disk = pool_has_quota(box->yard->pool) ? json_integer((json_int_t)box->limits.disk_used)
					       : json_null();
	return json_pack("{s:s,s:s,s:s,s:o,s:O?,s:O?,s:n}", "name", box->row.name, "id",
		box->row.id, "state", box_state_name(box->state), "disk_bytes", disk,
		"memory_bytes", memory, "processes", processes, "execs");
}

/* ---- in the helper -------------------------------------------------------------------------- */

/* paths: an object, path -> bits of the boxes where the path exists as in the first box, but
 * differs. Keys are bytes. */
struct gather {
	json_t *paths;
	size_t limit; /* maximum number of paths, for now */
	unsigned bit;
	bool truncated;
};

static int add_change(enum view_change change, const char *path, const struct stat *st, void *arg,
	struct err *err)
{
	struct gather *gather = arg;
	json_t *bits = json_object_get(gather->paths, path);
	json_int_t bit = change == VIEW_CHANGED ? (json_int_t)1 << gather->bit : 0;

	(void)st;
	(void)err;
	if (bits)
		json_integer_set(bits, json_integer_value(bits) | bit);
	else if (json_object_size(gather->paths) >= gather->limit)
		gather->truncated = true;
	else
		json_object_set_new_nocheck(gather->paths, path, json_integer(bit));
	return 0;
}

static int compare_texts(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Keys are borrowed from paths. */
static const char **sorted_paths(json_t *paths)
{
	const char **list = xnewn(const char *, json_object_size(paths) + 1), *path;
	size_t count = 0;
	json_t *bits;

	json_object_foreach (paths, path, bits)
		list[count++] = path;
	qsort(list, count, sizeof *list, compare_texts);
	return list;
}

static const char *change_name(bool before, bool now, bool changed)
{
	if (before != now)
		return now ? "added" : "removed";
	return now && changed ? "modified" : "same";
}

static json_t *size_of(const struct stat *st, bool there)
{
	if (!there)
		return json_null();
	return json_integer(S_ISREG(st->st_mode) ? (json_int_t)st->st_size : 0);
}

static json_t *path_json(
	const struct disk_stream *stream, const int *roots, const char *path, json_int_t bits)
{
	json_t *entry = json_object(), *change = json_object(), *size = json_object();
	struct stat first = { 0 }, now = { 0 };
	bool before = view_stat(roots[0], path, &first);

	json_set_path(entry, path);
	for (size_t i = 0; i < stream->side_count; i++) {
		bool there = view_stat(roots[i], path, &now);

		if (there && !before && !first.st_mode)
			first = now; /* for its type */
		json_object_set_new(change, stream->names[i],
			json_string(change_name(before, there, bits >> i & 1)));
		json_object_set_new(size, stream->names[i], size_of(&now, there));
	}
	json_object_set_new(entry, "type", json_string(stream_type_name(first.st_mode)));
	json_object_set_new(entry, "change", change);
	json_object_set_new(entry, "size", size);
	return entry;
}

static int write_files(const struct disk_stream *stream, const int *roots,
	const struct gather *gather, int out, struct err *err)
{
	_cleanup_free_ const char **paths = sorted_paths(gather->paths);
	struct buf text = BUF_INIT;
	int status;

	buf_add_str(&text, "\"files\":[");
	for (size_t i = 0; paths[i]; i++) {
		json_int_t bits = json_integer_value(json_object_get(gather->paths, paths[i]));

		if (i)
			buf_add_str(&text, ",");
		if (stream_line(out, &text, path_json(stream, roots, paths[i], bits), STREAM_FLUSH,
			    err) < 0)
			return -1;
	}
	buf_addf(&text, "],\"files_truncated\":%s}", gather->truncated ? "true" : "false");
	status = fd_write_all(out, buf_head(&text), text.len, err);
	buf_done(&text);
	return status;
}

static const char *const *layers_of(const struct stream_side *side)
{
	return (const char *const *)side->layers;
}

/* Fds and memory are freed by the end of the helper. */
static int make_compare(struct disk_stream *stream, int out, struct err *err)
{
	struct gather gather = { .paths = json_object() };
	int roots[COMPARE_BOXES_MAX] = { -1 };

	for (size_t i = 0; i < stream->side_count; i++)
		if (stream_side_open(stream->yard, &stream->sides[i], err) < 0 ||
			view_open(layers_of(&stream->sides[i]), &roots[i], err) < 0)
			return err_wrap(err, "box '%s'", stream->names[i]);
	for (size_t i = 1; i < stream->side_count; i++) {
		uint64_t too_deep;

		gather.bit = (unsigned)i;
		gather.limit = MAX(stream->limit * i / (stream->side_count - 1), 1);
		if (view_diff(layers_of(&stream->sides[0]), layers_of(&stream->sides[i]),
			    add_change, &gather, &too_deep, err) < 0)
			return err_wrap(err, "box '%s'", stream->names[i]);
		gather.truncated = gather.truncated || too_deep;
	}
	return write_files(stream, roots, &gather, out, err);
}

/* ---- in the daemon -------------------------------------------------------------------------- */

int boxes_compare_start(struct box *const *boxes, size_t count, size_t limit,
	const struct disk_stream_ops *ops, void *arg, struct disk_stream **ret, struct err *err)
{
	struct disk_stream *stream = disk_stream_new(boxes[0]->yard, ops, arg, make_compare);

	stream->limit = limit;
	stream->sides = xnewn(struct stream_side, count);
	for (size_t i = 0; i < count; i++) {
		stream->side_count = i + 1;
		strv_add(&stream->names, boxes[i]->row.name);
		if (stream_side_of_box(boxes[i], &stream->sides[i], err) < 0) {
			disk_stream_free(stream);
			return -1;
		}
	}
	return disk_stream_start(stream, ret, err);
}
