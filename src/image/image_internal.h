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
	char *path;	      /* pool/images: made here, removed here */
	char *layers_path;    /* pool/layers: those saved, "ID/upper" */
	char *files_path;     /* BOX_HOME/layers: those unpacked or built, "ID/files" */
	char *downloads_path; /* BOX_HOME/downloads: for the moment */
	char *shared;	      /* BOX_HOME/images, which need not be there: read only */
	char *disks_path;     /* BOX_HOME/image-files: "ID-KEY.erofs" */
	struct image **list;  /* newest first */
	size_t count;
	struct image **by_id; /* the same, sorted */
	struct image **gone;  /* not listed any more, but somebody may still hold them */
	size_t gone_count;
	int64_t scanned_us; /* the shared folder; wall clock; 0: never */
	int64_t changed_ns; /* its mtime then */
	char **complained;  /* ids of images left out, so that each is told once */
	image_users_fn users;
	void *users_arg;
	struct image_job *jobs;
	struct removal *removals;
	struct file_build *builds; /* file.c */

	struct image_tag **tags; /* names.c */
	size_t tag_count;
	struct naming *namings; /* which image a name belongs to; sorted by name */
	size_t naming_count;

	struct layer **layers; /* layers.c: all that listed images have; sorted by path */
	size_t layer_count;
	struct measuring *measuring; /* at most one at a time */
	char **unused;		     /* "ID/files", "ID/upper": to go when no job runs any more */

	char work_id[11]; /* in a helper: the id of its job, part of all temporary names */
};

/* A draft is images/.new-ID with image.json, written by a helper; published by a rename in the
 * daemon. */
#define IMAGE_DRAFT_PREFIX ".new-"
#define IMAGE_TRASH_PREFIX ".trash-"
int images_publish(
	struct images *images, const char *id, const struct image **ret, struct err *err);
void images_read_place(struct images *images, const char *path, bool shared);
void images_refresh(struct images *images);
bool shared_is_ours(const struct images *images); /* no link to the folder of another home */
/* Listed, with this id; or NULL. */
struct image *images_by_id(const struct images *images, const char *id);
/* Out of the list and off the disk, whoever uses it; not its layers. */
int images_unlist(struct images *images, struct image *image, struct err *err);
unsigned images_count_users(struct images *images, const struct image *image, struct buf *names);

/* ---- record.c: image.json ------------------------------------------------------------------- */

/* Fields of an image that only this folder uses. */
struct image_entry {
	struct image image;
	char *given;	     /* the name it was made with; image.name is the one it has now */
	bool shared;	     /* from BOX_HOME/images */
	unsigned children;   /* listed images made upon it */
	uint64_t file_bytes; /* of it as one file, see file.c */
};
static inline struct image_entry *entry_of(const struct image *image)
{
	return (struct image_entry *)image; /* image comes first */
}
bool image_id_is_valid(const char *id);
/* dir/folder/image.json. ERR_INVALID for nonsense, ERR_NOT_FOUND when a layer is not there. */
int record_read(const struct images *images, const char *dir, const char *folder, const char *id,
	bool shared, struct image **ret, struct err *err);
void image_free(struct image *image);

/* ---- names.c -------------------------------------------------------------------------------- */

/* As image_name_check, for a name that somebody gives: without a digest, which would be a claim
 * nobody verifies. */
int image_name_check_given(const char *name, struct err *err);
/* Without ":latest": two names are one when these are equal. Yours. */
char *image_name_normal(const char *name);
void tags_load(struct images *images);
void tags_free(struct images *images);
/* After each change of the list: who has which name now. */
void names_settle(struct images *images);
const struct image *names_find(const struct images *images, const char *owner, const char *normal);
bool images_may_see(const struct images *images, const struct image *image);
/* ERR_FORBIDDEN unless it can be changed by whoever asks. */
int images_check_own(const struct images *images, const struct image *image, struct err *err);
json_t *names_of(const struct images *images, const struct image *image); /* array; new reference */

/* ---- layers.c: what layers there are, who has them, how large they are ---------------------- */

/* Each in a place of its own: a file system numbers its files, and subvolumes of a pool number them
 * alike; those of another file system are told apart (see docs/images.md). */
enum layer_kind {
	LAYER_FILES, /* BOX_HOME/layers/ID/files */
	LAYER_UPPER, /* pool/layers/ID/upper */
	LAYER_KIND_COUNT,
};
struct layer {
	char *path;	      /* absolute */
	char *id;	      /* in its place, or of the shared image; never NULL */
	bool ours;	      /* in one of our places */
	enum layer_kind kind; /* if it is ours */
	unsigned images;      /* that have it */
	uint64_t size_bytes, files;
	enum { LAYER_UNREAD, LAYER_WANTED, LAYER_MEASURED, LAYER_FAILED } state;
};
bool layer_id_is_valid(const char *id);
/* The folder layers of that kind lie in; borrowed. */
const char *layer_place(const struct images *images, enum layer_kind kind);
/* "ID/files" or "ID/upper" of a layer of ours, else the path itself; borrowed from path. */
const char *layer_short(const struct images *images, const char *path);
/* The other way; NULL when text is nothing of that form. Yours. */
char *layer_resolve(const struct images *images, const char *text);
/* Gone at once, its data in the background. One that is not there is no error. */
int layer_discard(struct images *images, enum layer_kind kind, const char *id, struct err *err);
void layers_add(struct images *images, const struct image *image);
/* Removes layers from the disk that no image has any more. */
void layers_drop(struct images *images, const struct image *image, bool discard);
struct layer *layers_find(const struct images *images, const char *path);
bool layers_have(const struct images *images, enum layer_kind kind,
	const char *id); /* is it of a listed image? */
/* Reads layer.json when that was not done yet, and has the layer measured when it says nothing. */
void layers_know(struct images *images, struct layer *layer);
void layers_settle(struct images *images); /* no job runs: what had to wait goes now */
/* Layers being filled that nobody fills any more, and what was spooled for them: of one job, or
 * ("") of all. */
void layers_sweep(struct images *images, const char *work_id);
void layers_free(struct images *images);
/* {"size_bytes","files"} of layer_dir/layer.json, true when it is known. */
bool layer_read_size(const char *layer_dir, uint64_t *bytes, uint64_t *files);
int layer_write_size(const char *layer_dir, uint64_t bytes, uint64_t files, struct err *err);

/* measure.c: bytes as they lie on disk and entries of any type below name; blocks. A file with many
 * links counts once. */
int tree_measure(
	int dirfd, const char *name, uint64_t *ret_bytes, uint64_t *ret_files, struct err *err);

/* ---- discard.c: files that go in the background --------------------------------------------- */

/* dir/name, which nobody uses any more; one after the other. */
void images_discard(struct images *images, const char *dir, const char *name);
void removals_end(struct images *images);
/* Names in a folder, "." and ".." left out; NULL when there are none. Yours. */
char **folder_list(const char *path);

/* ---- draft.c: an image on its way, in the helper -------------------------------------------- */

struct image_draft {
	char id[11]; /* set by image_job_start */
	char *name;  /* may be set by the work, if the job had none */
	char *origin;
	char *parent;	 /* or NULL */
	char *digest;	 /* or NULL */
	char *cache_key; /* or NULL */
	char *owner;	 /* set by image_job_start */
	/* "ID/files" or "ID/upper", topmost first; or, below those, absolute folders of a shared
	 * image */
	char **layers;
	json_t *packages, *config; /* or NULL */
	bool says_hosts;	   /* else all layers count that are no disk of a box */
	size_t host_layers;	   /* as in struct image */
	uint64_t size_bytes, files;
	bool written; /* draft_write_early was called */
};
int draft_write(const struct images *images, const struct image_draft *draft, struct err *err);
/* Before the last layer is there, and without waiting for the disk: the commit of a snapshot takes
 * it along. */
int draft_write_early(const struct images *images, struct image_draft *draft, struct err *err);
/* Only known keys, right types, bounded: at most 1024 strings of 32 KiB, 256 KiB in all. */
int image_config_check(json_t *config, struct err *err);

/* A layer being filled: BOX_HOME/layers/.new-JOB-… with the folder `files`; *ret is that folder.
 * Work for the same id by somebody else at the same time does not disturb it. */
int layer_begin(
	const struct images *images, const char *id, char **ret_tmp, int *ret, struct err *err);
/* Publishes a complete layer: renames it to ID. If ID exists meanwhile, that one is kept and this
 * one removed. size is recorded beside it (layer.json: {"size_bytes","files"}). */
int layer_publish(const struct images *images, const char *id, const char *tmp, uint64_t size_bytes,
	uint64_t files, struct err *err);
void layer_abandon(const struct images *images, const char *tmp);
bool layer_exists(const struct images *images, const char *id); /* of these */

/* ---- room.c: images must not fill the host's disk ------------------------------------------- */

uint64_t room_left(const struct images *images); /* for images, on the disk of BOX_HOME */
/* ERR_LIMIT, with figures and a hint, when there is less than need, or nothing at all. Cheap. */
int room_check(const struct images *images, uint64_t need, struct err *err);
/* If it was for lack of room, says what to do; returns -1. */
int room_explain(struct err *err);
/* Looks now and then while bytes are written. */
struct room {
	const struct images *images;
	uint64_t unchecked;
};
int room_take(struct room *room, uint64_t bytes, struct err *err);

/* ---- job.c: a helper process that makes an image -------------------------------------------- */

struct job_sink; /* the helper's way to tell of its progress */
/* Sent at most 20 times a second, and when the stage changes. */
void job_progress(struct job_sink *sink, const char *stage, uint64_t done, uint64_t total,
	const char *detail);

struct job_work {
	/* In the helper: makes layers, fills draft (draft_write is called after it). */
	int (*run)(const struct images *images, struct job_sink *sink, struct image_draft *draft,
		void *arg, struct err *err);
	void (*free)(void *arg); /* in the daemon, when the job is over */
	/* whose the image will be; NULL or answering NULL: of whoever asks */
	const char *(*owner)(const void *arg);
	bool light;	  /* as in helper_ops */
	const char *verb; /* for messages: "build", "pull"; NULL: "make" */
};

/* name: may be NULL (the work finds one, or there is none). keep: fds for the helper, -1: none.
 * Takes arg (free is called also when this fails). ERR_STATE when a job of that name runs. */
int image_job_start(struct images *images, const char *name, const struct job_work *work, void *arg,
	int keep, const struct image_job_ops *ops, void *user, struct image_job **ret,
	struct err *err);
void image_jobs_end(struct images *images); /* for images_close */

/* ---- file.c, file_make.c: an image as one file ---------------------------------------------- */

/* What the helper gets to know; the daemon's own until then. */
struct file_work {
	char **layers; /* absolute, topmost first */
	size_t apart;  /* of them, from the lowest up; see image_layers_apart */
	char *id, *key, *release, *modules;
	char **folders;
	char *program; /* mkfs.erofs */
	char *path;    /* where the file is to be */
};
/* In the helper, which has a mount namespace of its own. tick is called some times a second with
 * what has been written; -1 ends it. */
int file_make(const struct images *images, const struct file_work *work,
	int (*tick)(uint64_t bytes, void *arg, struct err *err), void *arg, struct err *err);
/* Whether it is a whole erofs file, as far as its size and its superblock tell. */
int file_verify(const char *path, uint64_t *ret_bytes, struct err *err);
/* At open: those of images that are not there go; the sizes of others are read. */
void files_sweep(struct images *images);
void files_drop(struct images *images, struct image *image);		     /* with the image */
bool files_are_made(const struct images *images, const struct image *image); /* just now */
void files_end(struct images *images);					     /* for images_close */

/* ---- unpack.c: a layer as tar becomes a folder; in the helper ------------------------------- */

struct unpack_spec {
	int dir; /* empty folder */
	/* Folders of the layers below, absolute, topmost first; NULL: none. A name in the archive
	 * may lead through folders and links of theirs. */
	const char *const *lowers;
	/* Up to len bytes of the (decompressed) tar; 0 at the end, -1 on error. Read to its end. */
	ssize_t (*read)(void *arg, void *data, size_t len, struct err *err);
	void *arg;
	bool whiteouts;	    /* .wh. names become those of overlayfs; else they are ordinary names */
	uint64_t bytes_max; /* of contents; and of files: a bomb ends here with ERR_LIMIT */
	uint64_t files_max;
};
struct unpack_totals {
	uint64_t bytes; /* as they lie on disk: whole blocks */
	uint64_t files;
	uint64_t devices,
		/* left out: boxes get their devices elsewhere, and few attributes are for images */
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
/* Programs can run in the folder, whatever the flags of the mount it lies on: a mount of its own,
 * in the helper's mount namespace. Give path back with folder_lock(). */
int folder_unlock(const char *path, struct err *err);
void folder_lock(const char *path);
/* Looks a program up in PATH; NULL when it is not there. Yours. */
char *program_find(const char *name);

/* ---- sources.c: the machine's own package sources ------------------------------------------- */

/* VERSION_CODENAME of os-release text. */
int suite_from_os_release(const char *text, char **ret, struct err *err);
/* Drops comments, deb-src and cdrom lines of a one-line style list; yours, "" when nothing is
 * left. */
char *sources_clean_list(const char *text);
/* Files mmdebstrap can be given: what etc_apt (normally /etc/apt) has, copied into dir. */
int sources_collect(const char *etc_apt, const char *dir, char ***ret, struct err *err);

/* ---- progress.c: what mmdebstrap, apt and dpkg say ------------------------------------------ */

struct progress {
	enum build_stage stage;
	unsigned done, total;
	char detail[96];
	unsigned round; /* packages of the present apt run; 0: not known */
	unsigned fetched, unpacked, configured;
	enum err_kind kind;  /* of the failure, as far as the words tell */
	char blame[320];     /* last line that names a cause */
	char last[320];	     /* last line at all */
	bool package_failed; /* blame names the first package that cannot be configured */
};

/* Takes in one line without its newline; true when stage, done, total or detail changed. */
bool progress_feed(struct progress *progress, const char *line);
/* Fills err from what was read, after mmdebstrap ended with that exit code (-1: killed). */
void progress_explain(const struct progress *progress, int code, struct err *err);
