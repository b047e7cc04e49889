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
	char *name;   /* "" when it has none: the step of a build, or a newer image took the name */
	char *origin; /* "mmdebstrap bookworm", "saved from ada", "pulled", "imported" */
	char *parent; /* id of the image it was built on; "" */
	char *digest; /* "sha256:…" of its manifest, or "" */
	char *cache_key; /* of a step of a build, or "" */
	char *owner;	 /* whose it is */
	char **layers;	 /* absolute folders, topmost first; NULL at the end */
	/* How many layers, counted from the lowest, came from outside or were vouched for.
	 * Package hosts are learnt from these alone, never from what a box wrote. */
	size_t host_layers;
	int64_t created_us;
	/* of all files in all layers, as stored on disk; 0: not measured yet */
	uint64_t size_bytes;
	uint64_t files;
	json_t *packages; /* names asked for, an array of strings */
	/* {"entrypoint":[],"cmd":[],"env":["K=V"],"user":"","workdir":"","ports":["80/tcp"],"labels":{}};
	 * keys may be missing. Checked when the image was made: right types, bounded. */
	json_t *config;
};

/* Tells who uses an image: appends their names as people know them ("box 'ada'", with commas
 * between; a few of many are enough) and returns how many there are. With names NULL it counts only
 * the users that the caller may see. */
typedef unsigned (*image_users_fn)(const char *image_id, struct buf *names, void *arg);

/* Opens the list of images and removes what unfinished work has left, except that of another
 * daemon in a shared BOX_HOME/images. pool is borrowed. */
int images_open(struct loop *loop, struct pool *pool, const char *home, struct images **ret,
	struct err *err);
/* Sets for whom the calls below work from now on; owner is borrowed. Each owner has names of his
 * own: a name means the owner's image of that name, else the one of IMAGE_OWNER_SHARED, whose
 * images everybody may use. Without all, images of other owners are invisible, and the caller
 * can name, remove and prune only his own. With all, the images of others are found by id. New
 * images belong to owner. Initially: IMAGE_OWNER_SHARED, all. */
#define IMAGE_OWNER_SHARED "local"
void images_set_view(struct images *images, const char *owner, bool all);
void images_set_users(struct images *images, image_users_fn fn, void *arg);
/* Ends running jobs without a callback. */
void images_close(struct images *images);

/* "python", "python:3.11", "host:5000/a/b:tag", "name@sha256:…": lower case, bounded. */
int image_name_check(const char *name, struct err *err);
/* By name or id. Fails with ERR_NOT_FOUND and a hint that names `box image pull` and `build`.
 * The image is borrowed and valid until images_close, even if it is removed meanwhile. */
const struct image *images_find(struct images *images, const char *name_or_id, struct err *err);
/* By id alone, for any caller: the image that a box runs on. ERR_NOT_FOUND when it was removed. */
const struct image *images_get(struct images *images, const char *id, struct err *err);
const struct image *images_find_cached(struct images *images, const char *cache_key); /* or NULL */
/* Newest first; new reference. all: includes images without a name. */
json_t *images_json(struct images *images, bool all);
/*
 * {"id","name","names":[…],"created_at","size_bytes","files","origin","parent","digest","cache_key","owner","packages","config",
 * "layers":[{"id","size_bytes","shared_by":N}],"own_bytes","shared_bytes","file_bytes","users":N};
 * new reference. shared_by counts the other images that have the layer. own_bytes is what
 * removing the image would free; file_bytes is the part of it taken by the file of
 * image_file_start. users are boxes and images built on it. names begins with name; the others
 * were given by images_tag. */
json_t *image_json(struct images *images, const struct image *image);
/* Fails with ERR_STATE, naming the users, while boxes or images built on it use it. Returns at
 * once; layers that no other image has are deleted in the background. */
int images_remove(struct images *images, const char *id, struct err *err);
/* Gives the image another name; an image that had that name loses it. */
int images_tag(struct images *images, const char *id, const char *name, struct err *err);
/* True when name is one of several names of the image. */
bool images_can_untag(const struct images *images, const struct image *image, const char *name);
/* Takes a name off the image, which keeps its other names. Allowed while it is in use. */
int images_untag(
	struct images *images, const struct image *image, const char *name, struct err *err);
/* Removes images without a name that nobody uses, layers and downloads nobody needs, and files
 * (see image_file_start) of images that no box uses. dry: only reports. New reference:
 * {"images":[id…],"layers":N,"downloads":N,"files":N,"bytes":N}. */
json_t *images_gc(struct images *images, bool dry, struct err *err);

/* ---- making images, in helper processes ----------------------------------------------------- */

struct image_job_ops {
	/* 0 <= done <= total; a total of 0 means that it is not known yet. stage is one word:
	 * "download" "unpack" "configure" "clean" "measure" "copy". May be NULL. */
	void (*on_progress)(
		const char *stage, uint64_t done, uint64_t total, const char *detail, void *arg);
	/* Called once, from the loop; the job is gone afterwards. image is NULL on failure, err on
	 * success. */
	void (*on_done)(const struct image *image, const struct err *err, void *arg);
};
/* No callback afterwards; nothing half-made becomes visible. Finished downloads stay for the
 * next try. */
void image_job_cancel(struct image_job *job);

/* For all of these: one job of a name at a time (else ERR_STATE); ERR_LIMIT when there is too
 * little room. */

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
/* Pulls through skopeo; layers that are present are not downloaded again. Every digest is
 * verified here. ERR_UNSUPPORTED without skopeo and for an image of another architecture. */
int image_pull_start(struct images *images, const struct image_pull_spec *spec,
	const struct image_job_ops *ops, void *arg, struct image_job **ret, struct err *err);

struct image_import_spec {
	/* NULL: the first name in the archive; ERR_INVALID if there is none */
	const char *name;
	const char *fallback; /* used instead of that error; NULL: none */
	/* Read to its end in the helper; a successful call takes it over and closes it. A
	 * docker-archive, an OCI layout or the tar of a root file system, recognised by its
	 * beginning; plain, gzip, zstd or xz. */
	int input;
	uint64_t size; /* for the progress; 0: not known */
};
int image_import_start(struct images *images, const struct image_import_spec *spec,
	const struct image_job_ops *ops, void *arg, struct image_job **ret, struct err *err);

struct image_save_spec {
	const char *name;	    /* NULL or "": none */
	const struct image *parent; /* the image of the box */
	const char *place;	    /* place of the disk in the pool; NULL: "boxes" */
	const char *disk;      /* id of the box in the pool: `upper` in it becomes the top layer */
	const char *origin;    /* "saved from ada" */
	json_t *config;	       /* NULL: the parent's; borrowed */
	const char *cache_key; /* NULL: none */
	bool learn_hosts;      /* package hosts are also learnt from what the box wrote */
	const char *owner;     /* NULL: as images_set_view says */
	/* The top layer comes as an archive instead, see image_unpack_upper. Taken over and
	 * closed in any case. */
	bool from_archive;
	int archive;
	uint64_t archive_max; /* bytes */
};
/* Returns before the copy is made; on btrfs that takes milliseconds. */
int image_save_start(struct images *images, const struct image_save_spec *spec,
	const struct image_job_ops *ops, void *arg, struct image_job **ret, struct err *err);

/* ---- an image as one file: the disk of virtual machines ------------------------------------- */

/* What such a file holds in addition to the image. */
struct image_extra {
	/* Letters and digits, at most 64: identifies the contents of the fields below. Another
	 * key makes another file. */
	const char *key;
	/* A folder of the host with the modules of a kernel, which appears as
	 * /lib/modules/RELEASE; NULL: none. */
	const char *modules, *release;
	/* Paths without a leading slash. Each is a folder in the file, even if the image has
	 * something else there; NULL at the end. May be NULL. */
	const char *const *folders;
};

struct image_file_ops {
	/* A sentence for people: "building the disk file of image 'debian': 120M". May be NULL. */
	void (*on_progress)(const char *text, void *arg);
	/* Once, from the loop. path is NULL on failure, err on success. */
	void (*on_done)(const char *path, const struct err *err, void *arg);
};
/* The path of the file if it exists and is complete; NULL: it must be made. Yours. */
char *image_file_find(
	struct images *images, const struct image *image, const struct image_extra *extra);
/* Makes the file, a read-only erofs of all layers, in a helper, or joins a build that is already
 * running. The same image and extra give the same bytes. ERR_UNSUPPORTED without mkfs.erofs,
 * ERR_LIMIT when there is too little room. */
int image_file_start(struct images *images, const struct image *image,
	const struct image_extra *extra, const struct image_file_ops *ops, void *arg,
	struct image_file_wait **ret, struct err *err);
/* No callback afterwards; the build itself goes on. */
void image_file_cancel(struct image_file_wait *wait);
/* How many of the lowest layers of an image lie on the same file system as the disks of boxes
 * without being snapshots of such disks: their files may have the same inode numbers as files of
 * a disk. */
size_t image_layers_apart(const struct images *images, const struct image *image);

/* ---- for helper processes: blocks ----------------------------------------------------------- */

enum image_format { IMAGE_FORMAT_OCI, IMAGE_FORMAT_DOCKER, IMAGE_FORMAT_ROOTFS };
int image_format_from_name(
	const char *name, enum image_format *ret, struct err *err); /* "oci" "docker" "rootfs" */
/* Writes an archive that image_import_start, skopeo and others read. Needs temporary space for
 * the layers on the disk of BOX_HOME (not for a rootfs). */
int image_export(struct images *images, const struct image *image, enum image_format format,
	int out, struct err *err);
/* Makes a new disk in the pool with the folder `upper`: what a box has above its image, whose
 * layers these are (topmost first). The input is a layer of an OCI image in the frames of
 * image_feed_put; it comes from a box, so nothing in it is trusted. ERR_LIMIT over max bytes. */
int image_unpack_upper(const struct pool *pool, const char *const *layers, int in, uint64_t max,
	const char *place, const char *id, struct err *err);
/* Frames of such an archive, for the sender: the bytes, then the end, which says that all was
 * sent or why it was not. */
enum { IMAGE_FEED_MAX = 128 * 1024 };
void image_feed_put(struct buf *out, const void *data, size_t len); /* at most IMAGE_FEED_MAX */
void image_feed_end(struct buf *out, const struct err *err);	    /* NULL: all was sent */
