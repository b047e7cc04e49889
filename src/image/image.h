/* image.h - the root file systems boxes start from
 *
 * An image is a directory BOX_HOME/images/ID with `rootfs/` and `image.json`; it appears whole (built under
 * a temporary name, renamed) and is never changed afterwards. Names point at the newest image that carries
 * them. The list is read from disk, so that an images folder can be shared by several homes. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct images;
struct image_build;

struct image {
	char *id;     /* 10 letters and digits */
	char *name;   /* "debian" */
	char *rootfs; /* absolute path */
	char *origin; /* "mmdebstrap bookworm" */
	int64_t created_us;
	uint64_t size_bytes; /* of all files, as they lie on disk */
	uint64_t files;
	json_t *packages; /* names asked for, an array of strings */
};

/* Makes BOX_HOME/images if it is not there and sweeps what unfinished builds and removals have left; the
 * build of another daemon that shares the folder is left alone. */
int images_open(struct loop *loop, const char *home, struct images **ret, struct err *err);
/* Ends running builds without a callback. */
void images_close(struct images *images);
/* By name or id. ERR_NOT_FOUND with a hint that names `box image build`. Borrowed, valid until images_close
 * even if the image is removed meanwhile. */
const struct image *images_find(struct images *images, const char *name_or_id, struct err *err);
json_t *images_json(struct images *images); /* newest first; new reference */
/* {"id","name","created_at","size","files","origin","packages","rootfs"}; new reference. */
json_t *image_json(const struct image *image);
/* Removal returns at once; files go in the background (renamed away first). */
int images_remove(struct images *images, const char *id, struct err *err);

struct image_build_spec {
	const char *name;	     /* NULL: "debian" */
	const char *const *packages; /* in addition to the standard set; may be NULL */
	bool minimal;		     /* without the standard set: a small base for tests */
};

struct image_build_ops {
	/* 0 <= done <= total; a total of 0 means nobody knows yet. stage is one of "download" "unpack"
	 * "configure" "clean" "measure". */
	void (*on_progress)(
		const char *stage, unsigned done, unsigned total, const char *detail, void *arg);
	/* Called once; the build is gone afterwards. image is NULL on failure, err on success. */
	void (*on_done)(const struct image *image, const struct err *err, void *arg);
};

/* Runs mmdebstrap in a helper process. One build of a name at a time (ERR_STATE). ERR_UNSUPPORTED with a
 * hint when mmdebstrap is not installed; ERR_LIMIT when the disk has too little room. */
int image_build_start(struct images *images, const struct image_build_spec *spec,
	const struct image_build_ops *ops, void *arg, struct image_build **ret, struct err *err);
void image_build_cancel(struct image_build *build); /* no callback afterwards; leaves nothing */
