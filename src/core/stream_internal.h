/* stream_internal.h - what disk.c and workspace.c share: streams made by helpers */
#pragma once
#include "core/disk/disk.h"
#include "helper/flow.h"
#include "wire/wire.h"
#include <sys/types.h>

struct buf;

enum { STREAM_FLUSH = 64 * 1024 };

#define VIEWS "views" /* place of disks that are made for reading and thrown away */

/* A stack of layers to read. */
struct stream_side {
	char **layers; /* topmost first */
	char *box;     /* id, or NULL for an image */
	char *view;    /* the snapshot to make of it; NULL: not needed */
	/* The view is made from an archive of the box's instead, see upper.h. */
	bool from_archive;
	int archive;
	uint64_t archive_max;
};
/* The fds that a helper which opens these sides must keep: adds them to ret, returns how many. */
size_t stream_side_fds(const struct stream_side *sides, size_t count, int *ret);
void stream_side_done(struct yard *yard, struct stream_side *side);

/* Runs in the helper and writes everything to out. */
typedef int (*stream_make)(struct disk_stream *stream, int out, struct err *err);

struct disk_stream {
	struct disk_stream *next;
	struct yard *yard;
	const struct disk_stream_ops *ops; /* NULL: nobody reads it any more */
	void *arg;
	struct flow *flow;
	stream_make make;
	struct stream_side now, before;
	bool tar;
	const struct image *image;
	enum image_format format;
	char *file; /* path in a box or workspace */
	struct {    /* for look_internal.h */
		enum wire_op op;
		bool follow;
		uint64_t offset, length;
	} look;
	/* For a comparison: both sides, their names, and the maximum number of paths. */
	struct stream_side *sides;
	size_t side_count;
	char **names;
	size_t limit;
};

struct disk_stream *disk_stream_new(
	struct yard *yard, const struct disk_stream_ops *ops, void *arg, stream_make make);
/* Takes ownership of the stream, also when it fails. */
int disk_stream_start(struct disk_stream *stream, struct disk_stream **ret, struct err *err);
int stream_side_of_box(const struct box *box, struct stream_side *ret, struct err *err);
/* Runs in the helper, before the layers are read. */
int stream_side_open(const struct yard *yard, const struct stream_side *side, struct err *err);

/* Appends one line of NDJSON to text and writes text out from flush_at bytes on; takes the
 * reference. */
int stream_line(int out, struct buf *text, json_t *line, size_t flush_at, struct err *err);
const char *stream_type_name(mode_t mode); /* "file", "dir", … */
/* Sets "path", with a leading slash, and also "path_b64" where the path is not UTF-8. */
void json_set_path(json_t *object, const char *path);
