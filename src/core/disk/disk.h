/* disk.h - work on the disk of a box: an image of it, differences, keeping its workspace
 *
 * Slow parts run in helpers; the daemon goes on. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "image/image.h"
#include <stdbool.h>
#include <stdint.h>

struct box;
struct flow_ops;
struct yard;

/* ---- box save ------------------------------------------------------------------------------- */

struct box_save_spec {
	const char *name;      /* NULL or "": none */
	const char *cache_key; /* of a build step; or NULL */
	bool learn_hosts;      /* learn package hosts also from what the box wrote */
	/* Keys that differ from the box's image ("cmd", "env", …); or NULL; borrowed. */
	json_t *config;
};
/* Makes an image of the box's disk as it is now; the box, stopped or running, goes on. Fails with
 * ERR_STATE while it is created or removed. Cancel with image_job_cancel(). */
int box_save_image(struct box *box, const struct box_save_spec *spec,
	const struct image_job_ops *ops, void *arg, struct image_job **ret, struct err *err);

/* ---- streams: bytes made by a helper (helper/flow.h) ---------------------------------------- */

/* A stream holds what it needs (a snapshot of the disk) until disk_stream_free(). */
struct disk_stream;
struct disk_stream_ops {
	void (*on_readable)(struct disk_stream *stream, void *arg);
	/* Called once, after the last byte was read. err NULL: the stream is complete. */
	void (*on_done)(struct disk_stream *stream, const struct err *err, void *arg);
};
size_t disk_stream_read(struct disk_stream *stream, void *data, size_t len); /* 0: none now */
void disk_stream_pause(struct disk_stream *stream, bool paused);
void disk_stream_free(struct disk_stream *stream); /* accepts NULL; no callback afterwards */

/* Lists what changed from another state to the box's disk now. other: NULL: the box's image; else
 * the name or id of a box or an image. tar: an archive with .wh. entries; else NDJSON lines
 * {"change":"added|changed|removed", "path","type","size","mode"} ("path_b64" as well when it is
 * not UTF-8), last {"type":"end","changes":N}. */
int box_diff_start(struct box *box, const char *other, bool tar, const struct disk_stream_ops *ops,
	void *arg, struct disk_stream **ret, struct err *err);
/* image_export of image.h as a stream. */
int image_export_start(struct yard *yard, const char *image, enum image_format format,
	const struct disk_stream_ops *ops, void *arg, struct disk_stream **ret, struct err *err);

/* ---- /workspace after the box --------------------------------------------------------------- */

/* [{"id","box","box_id","kept_at","size_bytes","files"}], newest first; new reference. */
json_t *workspaces_json(struct yard *yard);
/* The kept tar of /workspace, by id or by the name of its box (the newest). */
int workspace_get_start(struct yard *yard, const char *id, const struct disk_stream_ops *ops,
	void *arg, struct disk_stream **ret, struct err *err);
/* NDJSON lines {"path","type","size","mode","mtime"}, last {"type":"end","entries":N}. */
int workspace_list_start(struct yard *yard, const char *id, const struct disk_stream_ops *ops,
	void *arg, struct disk_stream **ret, struct err *err);
int workspace_remove(struct yard *yard, const char *id, struct err *err);
