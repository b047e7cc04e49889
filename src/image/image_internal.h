/* image_internal.h - what the files of this folder share */
#pragma once
#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/strv.h"
#include "helper/helper.h"
#include "image/image.h"
#include <assert.h>

struct loop;

/* ---- images.c: the list --------------------------------------------------------------------- */

struct file_build;
struct image_tag;
struct layer;
struct measuring;
struct naming;
struct removal;

struct images {
	struct loop *loop;
	struct pool *pool;
	const char *owner; /* see images_set_view */
	bool only_own;
	char *path;	      /* pool/images: images made here */
	char *layers_path;    /* pool/layers: layers saved from boxes, "ID/upper" */
	char *files_path;     /* BOX_HOME/layers: layers unpacked or built, "ID/files" */
	char *downloads_path; /* BOX_HOME/downloads: temporary */
	char *shared;	      /* BOX_HOME/images, which may be missing: read only */
	char *disks_path;     /* BOX_HOME/image-files: "ID-KEY.erofs" */
	struct image **list;  /* newest first */
	size_t count;
	struct image **by_id; /* the same images, sorted by id */
	struct image **gone;  /* no longer listed, but still referenced by somebody */
	size_t gone_count;
	int64_t scanned_us; /* when the shared folder was last read, wall clock; 0: never */
	int64_t changed_ns; /* mtime of the shared folder at that time */
	char **complained;  /* ids of images left out, so that each is logged once */
	image_users_fn users;
	void *users_arg;
	struct image_job *jobs;
	struct removal *removals;
	struct file_build *builds; /* file.c */

	struct image_tag **tags; /* names.c */
	size_t tag_count;
	struct naming *namings; /* which image a name belongs to; sorted by name */
	size_t naming_count;

	struct layer **layers; /* layers.c: all layers of listed images; sorted by path */
	size_t layer_count;
	struct measuring *measuring; /* at most one at a time */
	/* "ID/files", "ID/upper": deleted when the last job has ended */
	char **unused;

	char work_id[11]; /* in a helper: the id of its job, part of all temporary names */
};

/* A draft is images/.new-ID with image.json, written by a helper; the daemon publishes it by a
 * rename. */
#define IMAGE_DRAFT_PREFIX ".new-"
#define IMAGE_TRASH_PREFIX ".trash-"
int images_publish(
	struct images *images, const char *id, const struct image **ret, struct err *err);
void images_read_place(struct images *images, const char *path, bool shared);
void images_refresh(struct images *images);
/* it is no symbolic link to the folder of another home */
bool shared_is_ours(const struct images *images);
/* The listed image with this id, or NULL. */
struct image *images_by_id(const struct images *images, const char *id);
/* Removes an image from the list and from disk, even if it is in use; its layers stay. */
int images_unlist(struct images *images, struct image *image, struct err *err);
unsigned images_count_users(struct images *images, const struct image *image, struct buf *names);

/* ---- record.c: image.json ------------------------------------------------------------------- */

/* Fields of an image that only this folder uses. */
struct image_entry {
	struct image image;
	char *given;	     /* the name it was made with; image.name is the one it has now */
	bool shared;	     /* from BOX_HOME/images */
	unsigned children;   /* listed images built on it */
	uint64_t file_bytes; /* size of the image as one file, see file.c */
};
static inline struct image_entry *entry_of(const struct image *image)
{
	return (struct image_entry *)image; /* image comes first */
}
bool image_id_is_valid(const char *id);
/* Reads dir/folder/image.json. ERR_INVALID when it cannot be parsed, ERR_NOT_FOUND when a layer
 * is missing. */
int record_read(const struct images *images, const char *dir, const char *folder, const char *id,
	bool shared, struct image **ret, struct err *err);
void image_free(struct image *image);

/* ---- names.c -------------------------------------------------------------------------------- */

/* As image_name_check, for a name that a user gives: without a digest, which would be a claim
 * nobody verifies. */
int image_name_check_given(const char *name, struct err *err);
/* The name without ":latest": two names are the same when these are equal. Yours. */
char *image_name_normal(const char *name);
void tags_load(struct images *images);
void tags_free(struct images *images);
/* Recomputes, after each change of the list, which image has which name. */
void names_settle(struct images *images);
const struct image *names_find(const struct images *images, const char *owner, const char *normal);
bool images_may_see(const struct images *images, const struct image *image);
/* ERR_FORBIDDEN unless the caller may change the image. */
int images_check_own(const struct images *images, const struct image *image, struct err *err);
json_t *names_of(const struct images *images, const struct image *image); /* array; new reference */

/* ---- layers.c: which layers exist, which images have them, how large they are --------------- */

/* Each kind lies in a folder of its own, on a file system of its own: subvolumes of one pool use
 * the same inode numbers, and overlayfs tells files apart by file system (see docs/images.md). */
enum layer_kind {
	LAYER_FILES, /* BOX_HOME/layers/ID/files */
	LAYER_UPPER, /* pool/layers/ID/upper */
	LAYER_KIND_COUNT,
};
struct layer {
	char *path;	      /* absolute */
	char *id;	      /* its id, or that of the shared image; never NULL */
	bool ours;	      /* in one of our folders */
	enum layer_kind kind; /* if it is ours */
	unsigned images;      /* number of images that have it */
	uint64_t size_bytes, files;
	enum { LAYER_UNREAD, LAYER_WANTED, LAYER_MEASURED, LAYER_FAILED } state;
};
bool layer_id_is_valid(const char *id);
/* The folder that holds layers of that kind; borrowed. */
const char *layer_place(const struct images *images, enum layer_kind kind);
/* "ID/files" or "ID/upper" of a layer of ours, else the path itself; borrowed from path. */
const char *layer_short(const struct images *images, const char *path);
/* The inverse of layer_short; NULL when text has no such form. Yours. */
char *layer_resolve(const struct images *images, const char *text);
/* Renames the layer away at once and deletes its data in the background. A missing layer is no
 * error. */
int layer_discard(struct images *images, enum layer_kind kind, const char *id, struct err *err);
void layers_add(struct images *images, const struct image *image);
/* Removes layers from the disk that no image has any more. */
void layers_drop(struct images *images, const struct image *image, bool discard);
struct layer *layers_find(const struct images *images, const char *path);
bool layers_have(const struct images *images, enum layer_kind kind,
	const char *id); /* does a listed image have it? */
/* Reads layer.json if that was not done yet, and starts to measure the layer if it has no size. */
void layers_know(struct images *images, struct layer *layer);
/* called when no job runs: deletes the layers in unused */
void layers_settle(struct images *images);
/* Removes unfinished layers that no job fills any more, and what was spooled for them: those of
 * one job, or ("") of all. */
void layers_sweep(struct images *images, const char *work_id);
void layers_free(struct images *images);
/* {"size_bytes","files"} of layer_dir/layer.json, true when it is known. */
bool layer_read_size(const char *layer_dir, uint64_t *bytes, uint64_t *files);
int layer_write_size(const char *layer_dir, uint64_t bytes, uint64_t files, struct err *err);

/* measure.c: bytes as stored on disk and number of entries below name; blocks. A file with
 * several links counts once. */
int tree_measure(
	int dirfd, const char *name, uint64_t *ret_bytes, uint64_t *ret_files, struct err *err);

/* ---- discard.c: deletion in the background -------------------------------------------------- */

/* Deletes dir/name, which nobody uses any more; one after the other. */
void images_discard(struct images *images, const char *dir, const char *name);
void removals_end(struct images *images);
/* Names in a folder, "." and ".." left out; NULL when there are none. Yours. */
char **folder_list(const char *path);

/* ---- draft.c: an unfinished image, in the helper -------------------------------------------- */

struct image_draft {
	char id[11]; /* set by image_job_start */
	char *name;  /* the work may set it if the job had none */
	char *origin;
	char *parent;	 /* or NULL */
	char *digest;	 /* or NULL */
	char *cache_key; /* or NULL */
	char *owner;	 /* set by image_job_start */
	/* "ID/files" or "ID/upper", topmost first; or, below those, absolute folders of a shared
	 * image */
	char **layers;
	json_t *packages, *config; /* or NULL */
	/* host_layers is set; else all layers count that are no disk of a box */
	bool says_hosts;
	size_t host_layers; /* as in struct image */
	uint64_t size_bytes, files;
	bool written; /* draft_write_early was called */
};
int draft_write(const struct images *images, const struct image_draft *draft, struct err *err);
/* Writes the draft before the last layer exists and without a sync: the commit of the layer's
 * snapshot takes it to disk. */
int draft_write_early(const struct images *images, struct image_draft *draft, struct err *err);
/* Accepts only known keys of the right types, with at most 1024 strings of 32 KiB, 256 KiB in
 * all. */
int image_config_check(json_t *config, struct err *err);

/* Starts a layer: BOX_HOME/layers/.new-JOB-… with the folder `files`, which is *ret. Another job
 * may fill a layer of the same id at the same time. */
int layer_begin(
	const struct images *images, const char *id, char **ret_tmp, int *ret, struct err *err);
/* Publishes a complete layer: renames it to ID. If ID exists by now, that one is kept and this
 * one removed. size is recorded beside it (layer.json: {"size_bytes","files"}). */
int layer_publish(const struct images *images, const char *id, const char *tmp, uint64_t size_bytes,
	uint64_t files, struct err *err);
void layer_abandon(const struct images *images, const char *tmp);
bool layer_exists(const struct images *images, const char *id); /* layers of the kind LAYER_FILES */

/* ---- room.c: images must not fill the host's disk ------------------------------------------- */

/* bytes images may still use on the disk of BOX_HOME */
uint64_t room_left(const struct images *images);
/* ERR_LIMIT, with figures and a hint, when less than need bytes are left, or none at all. Cheap. */
int room_check(const struct images *images, uint64_t need, struct err *err);
/* Adds a hint to err if the disk was full; returns -1. */
int room_explain(struct err *err);
/* Checks the room from time to time while bytes are written. */
struct room {
	const struct images *images;
	uint64_t unchecked;
};
int room_take(struct room *room, uint64_t bytes, struct err *err);

/* ---- job.c: a helper process that makes an image -------------------------------------------- */

struct job_sink; /* the helper's channel for its progress */
/* Sent at most 20 times a second, and when the stage changes. */
void job_progress(struct job_sink *sink, const char *stage, uint64_t done, uint64_t total,
	const char *detail);

struct job_work {
	/* Runs in the helper: makes layers and fills draft (draft_write is called after it). */
	int (*run)(const struct images *images, struct job_sink *sink, struct image_draft *draft,
		void *arg, struct err *err);
	void (*free)(void *arg); /* in the daemon, when the job is over */
	/* the owner of the new image; NULL or returning NULL: whoever asks */
	const char *(*owner)(const void *arg);
	bool light;	  /* as in helper_ops */
	const char *verb; /* for messages: "build", "pull"; NULL: "make" */
};

/* name may be NULL (the work finds one, or there is none). keep: fds for the helper, -1: none.
 * Takes arg (free is called also when this fails). ERR_STATE when a job of that name runs. */
int image_job_start(struct images *images, const char *name, const struct job_work *work, void *arg,
	int keep, const struct image_job_ops *ops, void *user, struct image_job **ret,
	struct err *err);
void image_jobs_end(struct images *images); /* for images_close */

/* ---- file.c, file_make.c: an image as one file ---------------------------------------------- */

/* The input of the helper; owned by the daemon until then. */
struct file_work {
	char **layers; /* absolute, topmost first */
	size_t apart;  /* how many of the lowest ones; see image_layers_apart */
	char *id, *key, *release, *modules;
	char **folders;
	char *program; /* mkfs.erofs */
	char *path;    /* where the file is to be */
};
/* Runs in the helper, which has its own mount namespace. tick is called a few times a second
 * with the number of bytes written; -1 cancels. */
int file_make(const struct images *images, const struct file_work *work,
	int (*tick)(uint64_t bytes, void *arg, struct err *err), void *arg, struct err *err);
/* Checks size and superblock of an erofs file. */
int file_verify(const char *path, uint64_t *ret_bytes, struct err *err);
/* When images are opened: removes files of images that no longer exist and reads the sizes of
 * the others. */
void files_sweep(struct images *images);
/* called when the image is removed */
void files_drop(struct images *images, struct image *image);
/* true while one is being made */
bool files_are_made(const struct images *images, const struct image *image);
void files_end(struct images *images); /* for images_close */

/* ---- unpack.c: a layer as tar becomes a folder; in the helper ------------------------------- */

struct unpack_spec {
	int dir; /* empty folder */
	/* Folders of the layers below, absolute, topmost first; NULL: none. A name in the archive
	 * may lead through folders and links of theirs. */
	const char *const *lowers;
	/* Up to len bytes of the (decompressed) tar; 0 at the end, -1 on error. Read to its end. */
	ssize_t (*read)(void *arg, void *data, size_t len, struct err *err);
	void *arg;
	/* .wh. names become whiteouts of overlayfs; else they are ordinary names */
	bool whiteouts;
	uint64_t bytes_max; /* limits of contents and of files: a bomb ends here with ERR_LIMIT */
	uint64_t files_max;
};
struct unpack_totals {
	uint64_t bytes; /* as stored on disk: whole blocks */
	uint64_t files;
	uint64_t devices,
		/* left out: boxes get their devices elsewhere, and only few attributes are kept */
		xattrs;
};
int unpack_layer(const struct unpack_spec *spec, struct unpack_totals *ret, struct err *err);

/* ---- inflate.c: gzip, zstd, xz or plain, told by the first bytes ---------------------------- */

struct inflate; /* reads an fd, or any source */
typedef ssize_t (*read_fn)(void *arg, void *data, size_t len, struct err *err);
struct inflate *inflate_new(read_fn read, void *arg);
void inflate_free(struct inflate *inflate);
ssize_t inflate_read(void *inflate, void *data, size_t len, struct err *err); /* a read_fn itself */

/* ---- recipe.c: the build itself, in the helper ---------------------------------------------- */

struct recipe {
	char *suite;	 /* "bookworm" */
	char *program;	 /* mmdebstrap */
	char **packages; /* all of them */
	bool minimal;
};

enum build_stage {
	STAGE_DOWNLOAD,
	STAGE_UNPACK,
	STAGE_CONFIGURE,
	STAGE_CLEAN,
	STAGE_MEASURE,
	STAGE_COUNT
};

/* A job_work's run; arg is a struct recipe. */
int recipe_run(const struct images *images, struct job_sink *sink, struct image_draft *draft,
	void *arg, struct err *err);
/* Mounts the folder on itself in the helper's mount namespace so that programs in it can run,
 * whatever the flags of the mount below. Undo with folder_lock(). */
int folder_unlock(const char *path, struct err *err);
void folder_lock(const char *path);
/* Looks a program up in PATH; NULL when it is not there. Yours. */
char *program_find(const char *name);

/* ---- sources.c: the machine's own package sources ------------------------------------------- */

/* VERSION_CODENAME of os-release text. */
int suite_from_os_release(const char *text, char **ret, struct err *err);
/* Drops comments, deb-src and cdrom lines from a sources.list; yours, "" when nothing is left. */
char *sources_clean_list(const char *text);
/* Copies the sources of etc_apt (normally /etc/apt) into dir, as files that mmdebstrap accepts. */
int sources_collect(const char *etc_apt, const char *dir, char ***ret, struct err *err);

/* ---- progress.c: the output of mmdebstrap, apt and dpkg ------------------------------------- */

struct progress {
	enum build_stage stage;
	unsigned done, total;
	char detail[96];
	unsigned round; /* number of packages in the current apt run; 0: not known */
	unsigned fetched, unpacked, configured;
	enum err_kind kind;  /* of the failure, as far as the output tells */
	char blame[320];     /* last line that names a cause */
	char last[320];	     /* last line of the output */
	bool package_failed; /* blame names the first package that cannot be configured */
};

/* Reads one line without its newline; true when stage, done, total or detail changed. */
bool progress_feed(struct progress *progress, const char *line);
/* Fills err from what was read, after mmdebstrap ended with that exit code (-1: killed). */
void progress_explain(const struct progress *progress, int code, struct err *err);
