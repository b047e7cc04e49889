/* image.h - the root file systems boxes start from
 *
 * A layer is a folder in the format of overlayfs, never changed once it is there; an image is a
 * list of layers and what belongs to them: a name, its parent, the configuration of an OCI image.
 * Both appear whole (made under a name that starts with a dot, renamed):
 *
 *   pool/layers/ID/upper       what `box save` or a step of a build has added to the layers below
 *   BOX_HOME/layers/ID/files   what was unpacked or built: a layer of an OCI image (ID is its chain
 *                              id: shared by all images that have it), a root file system. For root
 *                              alone: there are set-user-id programs of images in it
 *   BOX_HOME/downloads         what is fetched or spooled, for the moment
 *   BOX_HOME/image-files       images as one file each, see image_file_start
 *   pool/images/ID/image.json
 *   BOX_HOME/images/ID       image.json and `rootfs`: an image that several homes share by links;
 *                            read only
 *
 * Names are as people know them: "debian", "python:3.11", "host:5000/team/tool:v2". "python" and
 * "python:latest" are one name. A name points at the newest image that carries it. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct image_file_wait;
struct image_job;
struct images;
struct loop;
struct pool;

enum { IMAGE_LAYERS_MAX = 100, IMAGE_NAME_MAX = 255 };

struct image {
	char *id;     /* 10 letters and digits */
	char *name;   /* "" when it has none: a step of a build, or a newer image took its name */
	char *origin; /* "mmdebstrap bookworm", "saved from ada", "pulled", "imported" */
	char *parent; /* id of the image it was made upon; "" */
	char *digest; /* "sha256:…" of its manifest, or "" */
	char *cache_key; /* of a step of a build, or "" */
	char *owner;	 /* whose it is */
	char **layers;	 /* absolute folders, topmost first; NULL at the end */
	/* How many layers, from the lowest up, came from outside or were vouched for: package hosts
	 * are learnt only from these, never from what a box wrote. */
	size_t host_layers;
	int64_t created_us;
	/* of all files in all layers, as they lie on disk; 0: not measured yet */
	uint64_t size_bytes;
	uint64_t files;
	json_t *packages; /* names asked for, an array of strings */
	/* {"entrypoint":[],"cmd":[],"env":["K=V"],"user":"","workdir":"","ports":["80/tcp"],"labels":{}};
	 * keys may be missing. Checked when the image was made: right types, bounded. */
	json_t *config;
};

/* Who uses an image: adds names for people to names ("box 'ada'", separated by ", "; some of many
 * are enough) and returns how many. */
/* names NULL: only those are counted that whoever asks may see. */
typedef unsigned (*image_users_fn)(const char *image_id, struct buf *names, void *arg);

/* Sweeps what unfinished work has left; that of another daemon in a shared BOX_HOME/images is left
 * alone. pool is borrowed. */
int images_open(struct loop *loop, struct pool *pool, const char *home, struct images **ret,
	struct err *err);
/* For whom the calls below work from now on; owner is borrowed. Names of images are each owner's
 * own: one means the owner's image of that name, else that of IMAGE_OWNER_SHARED, whose images
 * everybody may use. Without all, other owners' images are not there, and only one's own can be
 * named, removed and tidied up. With all, they are found by id. New images belong to owner. At
 * first: IMAGE_OWNER_SHARED, all. */
#define IMAGE_OWNER_SHARED "local"
void images_set_view(struct images *images, const char *owner, bool all);
void images_set_users(struct images *images, image_users_fn fn, void *arg);
/* Ends running jobs without a callback. */
void images_close(struct images *images);

/* "python", "python:3.11", "host:5000/a/b:tag", "name@sha256:…": lower case, bounded. */
int image_name_check(const char *name, struct err *err);
/* By name or id. ERR_NOT_FOUND with a hint that names `box image pull` and `build`. Borrowed, valid
 * until images_close even if the image is removed meanwhile. */
const struct image *images_find(struct images *images, const char *name_or_id, struct err *err);
/* By id alone, whoever asks: what a box stands on. ERR_NOT_FOUND: it is gone. */
const struct image *images_get(struct images *images, const char *id, struct err *err);
const struct image *images_find_cached(struct images *images, const char *cache_key); /* or NULL */
/* Newest first; new reference. all: those without a name too. */
json_t *images_json(struct images *images, bool all);
/* {"id","name","names":[…],"created_at","size_bytes","files","origin","parent","digest","cache_key","owner","packages","config",
 * "layers":[{"id","size_bytes","shared_by":N}],"own_bytes","shared_bytes","file_bytes","users":N};
 * new reference. A layer is shared_by the other images that have it; own_bytes would come back if
 * the image went, file_bytes are the part of it that image_file_start has made. users are boxes and
 * images made upon it. names begins with name; the others came by images_tag. */
json_t *image_json(struct images *images, const struct image *image);
/* ERR_STATE, naming them, while boxes or images made upon it use it. Removal returns at once;
 * layers nobody else has go in the background. */
int images_remove(struct images *images, const char *id, struct err *err);
/* Another name for it; whoever had that name loses it. */
int images_tag(struct images *images, const char *id, const char *name, struct err *err);
/* Whether name is one of several that the image has. */
bool images_can_untag(const struct images *images, const struct image *image, const char *name);
/* Takes a name off it; it keeps the others, whoever uses it. */
int images_untag(
	struct images *images, const struct image *image, const char *name, struct err *err);
/* Images without a name that nobody uses, layers and downloads nobody needs, files (see
 * image_file_start) of images that no box uses. dry: only tells. New
 * reference: {"images":[id…],"layers":N,"downloads":N,"files":N,"bytes":N}. */
json_t *images_gc(struct images *images, bool dry, struct err *err);

/* ---- making them: in helper processes ------------------------------------------------------- */

struct image_job_ops {
	/* 0 <= done <= total; a total of 0 means nobody knows yet. stage is one word: "download"
	 * "unpack" "configure" "clean" "measure" "copy". May be NULL. */
	void (*on_progress)(
		const char *stage, uint64_t done, uint64_t total, const char *detail, void *arg);
	/* Called once, from the loop; the job is gone afterwards. image is NULL on failure, err on
	 * success. */
	void (*on_done)(const struct image *image, const struct err *err, void *arg);
};
/* No callback afterwards; leaves nothing half-visible. Finished downloads stay for the next try. */
void image_job_cancel(struct image_job *job);

/* One job of a name at a time (ERR_STATE) for all of these. ERR_LIMIT when there is too little
 * room. */

struct image_build_spec {
	const char *name;	     /* NULL: "debian" */
	const char *const *packages; /* in addition to the standard set; may be NULL */
	bool minimal;		     /* without the standard set: a small base for tests */
};
/* Runs mmdebstrap. ERR_UNSUPPORTED with a hint when it is not installed. */
int image_build_start(struct images *images, const struct image_build_spec *spec,
	const struct image_job_ops *ops, void *arg, struct image_job **ret, struct err *err);

struct image_pull_spec {
	const char *reference; /* "python:3.11", also what it is named unless name is set */
	const char *name;      /* NULL: the reference */
	const char
		*registry; /* asked when the reference names none; NULL or "": skopeo's own way */
	const char *authfile; /* NULL: skopeo's own search */
	bool insecure;	      /* plain HTTP or an unknown certificate is fine */
};
/* Through skopeo; layers that are here already are not fetched again. Verifies every digest itself.
 * ERR_UNSUPPORTED without skopeo and for an image of another architecture. */
int image_pull_start(struct images *images, const struct image_pull_spec *spec,
	const struct image_job_ops *ops, void *arg, struct image_job **ret, struct err *err);

struct image_import_spec {
	const char *name;     /* NULL: the first the archive tells; ERR_INVALID if it tells none */
	const char *fallback; /* instead of that error; NULL: none */
	/* Read to its end in the helper; taken (closed) by a successful call. A docker-archive, an
	 * OCI layout or a root file system as tar; plain, gzip, zstd or xz. Told apart by what it
	 * begins with. */
	int input;
	uint64_t size; /* for the progress; 0: not known */
};
int image_import_start(struct images *images, const struct image_import_spec *spec,
	const struct image_job_ops *ops, void *arg, struct image_job **ret, struct err *err);

struct image_save_spec {
	const char *name;	    /* NULL or "": none */
	const struct image *parent; /* the image of the box */
	const char *place;	    /* of the disk in the pool; NULL: "boxes" */
	const char *disk;      /* id of the box in the pool: `upper` in it becomes the top layer */
	const char *origin;    /* "saved from ada" */
	json_t *config;	       /* NULL: the parent's; borrowed */
	const char *cache_key; /* NULL: none */
	bool learn_hosts;      /* package hosts are learnt from what the box wrote, too */
	const char *owner;     /* NULL: as images_set_view says */
	/* The top layer comes as an archive instead, see image_unpack_upper. Taken (closed) in any
	 * case. */
	bool from_archive;
	int archive;
	uint64_t archive_max; /* bytes */
};
/* Returns before the copy is made: on btrfs a matter of milliseconds. */
int image_save_start(struct images *images, const struct image_save_spec *spec,
	const struct image_job_ops *ops, void *arg, struct image_job **ret, struct err *err);

/* ---- an image as one file, for machines that have it as a disk ------------------------------ */

/* What such a file holds besides the image. */
struct image_extra {
	/* Letters and digits, at most 64: it stands for all of the below. Another key is another
	 * file. */
	const char *key;
	/* A folder of the host with the modules of a kernel, seen as /lib/modules/RELEASE; NULL:
	 * none. */
	const char *modules, *release;
	/* Paths without a leading slash that are folders in it, whatever the image has there; NULL
	 * at the end. May be NULL. */
	const char *const *folders;
};

struct image_file_ops {
	/* A sentence for people: "building the disk file of image 'debian': 120M". May be NULL. */
	void (*on_progress)(const char *text, void *arg);
	/* Once, from the loop. path is NULL on failure, err on success. */
	void (*on_done)(const char *path, const struct err *err, void *arg);
};
/* The file when it is there and whole; NULL: it must be made. Yours. */
char *image_file_find(
	struct images *images, const struct image *image, const struct image_extra *extra);
/* Makes it, a read-only erofs of all layers, in a helper; when it is being made already waits for
 * that. The same image and extra give the same bytes. ERR_UNSUPPORTED without mkfs.erofs, ERR_LIMIT
 * when there is too little room. */
int image_file_start(struct images *images, const struct image *image,
	const struct image_extra *extra, const struct image_file_ops *ops, void *arg,
	struct image_file_wait **ret, struct err *err);
/* No callback afterwards; the file is made all the same. */
void image_file_cancel(struct image_file_wait *wait);
/* So many of the lowest layers of an image lie on the file system of the disks of boxes but are no
 * snapshots of such disks: their files may have the same numbers as files of a disk. */
size_t image_layers_apart(const struct images *images, const struct image *image);

/* ---- for helper processes: blocks ----------------------------------------------------------- */

enum image_format { IMAGE_FORMAT_OCI, IMAGE_FORMAT_DOCKER, IMAGE_FORMAT_ROOTFS };
int image_format_from_name(
	const char *name, enum image_format *ret, struct err *err); /* "oci" "docker" "rootfs" */
/* Writes an archive that image_import_start, skopeo and others read. Space for the layers is taken
 * on the disk of BOX_HOME for the moment (not for a rootfs). */
int image_export(struct images *images, const struct image *image, enum image_format format,
	int out, struct err *err);
/* A new disk in the pool with the folder `upper`: what a box has over its image, whose layers these
 * are (topmost first). It comes from in, framed by image_feed_put, as a layer of an OCI image; from
 * a box, so nothing of it is trusted. ERR_LIMIT over max bytes. */
int image_unpack_upper(const struct pool *pool, const char *const *layers, int in, uint64_t max,
	const char *place, const char *id, struct err *err);
/* Frames of such an archive, for whoever sends it: bytes, then its end; or, in place of that, why
 * there will be none. */
enum { IMAGE_FEED_MAX = 128 * 1024 };
void image_feed_put(struct buf *out, const void *data, size_t len); /* at most IMAGE_FEED_MAX */
void image_feed_end(struct buf *out, const struct err *err);	    /* NULL: it was whole */
