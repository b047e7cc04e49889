/* oci_internal.h - shared by the files that read and write images of other programs
 *
 *   feed.c        a process that decompresses and hashes beside the one that unpacks
 *   layer_below.c what the layers below show, through whiteouts
 *   layer_tree.c  where a name of an archive lies, in a layer that is being filled, over the layers
 *                 below
 *   oci.c         manifests, indexes, configurations: JSON in, checked values out
 *   stack.c       the layers of an image, from blobs to folders
 *   skopeo.c      runs skopeo, which talks to registries, and explains its errors
 *   export_layer.c  a layer as a blob
 *   scratch.c     temporary folders */
#pragma once
#include "base/sha256.h"
#include "image/image_internal.h"
#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

/* ---- feed.c --------------------------------------------------------------------------------- */

struct feed;
struct feed_totals {
	uint64_t raw_bytes, bytes; /* compressed, and decompressed */
	char raw_digest[DIGEST_SIZE], digest[DIGEST_SIZE];
};
bool inflate_is_plain(const struct inflate *inflate); /* inflate.c; known after the first read */
/* Reads fd (borrowed) from its current position to its end, decompressed. */
int feed_start(int fd, struct feed **ret, struct err *err);
ssize_t feed_read(void *feed, void *data, size_t len, struct err *err); /* a read_fn */
uint64_t feed_raw_bytes(const struct feed *feed);			/* so far */
/* After feed_read has returned 0. */
const struct feed_totals *feed_get_totals(const struct feed *feed);
void feed_free(struct feed *feed); /* kills the process; accepts NULL */
DEFINE_CLEANUP(feed_free, struct feed)

/* ---- layer_below.c -------------------------------------------------------------------------- */

struct layer_stack {
	int root;    /* of the layer that is being filled */
	int *lowers; /* topmost first */
	size_t lower_count;
};
/* Finds what the layers below show at path: 1 with an O_PATH fd that is yours, 0: nothing. Of
 * the layer being filled, only whiteouts and opaque folders count. */
int layer_below_find(const struct layer_stack *stack, const char *path, int *ret,
	struct stat *ret_st, struct err *err);
bool layer_is_whiteout(const struct stat *st);
/* Makes the folder opaque: nothing of the layers below shows through it. */
int layer_set_opaque(int dir, struct err *err);

/* ---- layer_tree.c --------------------------------------------------------------------------- */

struct layer_tree;
struct place {
	int dir;		 /* of the folder it lies in; borrowed until the next call */
	char leaf[NAME_MAX + 1]; /* "" is the root itself, and dir the root */
	char path[PATH_MAX];	 /* of the folder, without links; "" is the root */
};

int layer_tree_new(int root, const char *const *lowers, struct layer_tree **ret, struct err *err);
void layer_tree_free(struct layer_tree *tree); /* accepts NULL */
DEFINE_CLEANUP(layer_tree_free, struct layer_tree)
/* Finds where name lies and makes missing folders on the way: like those of the layers below, or
 * 0755. Symbolic links on the way (of this layer and those below) are followed inside the root;
 * the last component is not. ERR_INVALID for "..", for names too long or too deep, and when
 * something on the way is no folder. */
int layer_tree_place(struct layer_tree *tree, const char *name, struct place *ret, struct err *err);
/* Must be called after the leaf of place was made, or removed with all below it. */
void layer_tree_changed(struct layer_tree *tree, bool removed);
bool layer_tree_has_lowers(const struct layer_tree *tree);
/* The root of a layer below, for reading: 1 and it is yours; 0 when index is past the last
 * layer. */
int layer_tree_lower_root(const struct layer_tree *tree, size_t index, DIR **ret, struct err *err);
/* Finds what the layers below show there: 1 with an O_PATH fd that is yours, 0: nothing. */
int layer_tree_below(struct layer_tree *tree, const struct place *place, int *ret,
	struct stat *ret_st, struct err *err);
/* Remembers the mtime of a folder; set at the end, because each new entry in the folder changes
 * it. */
int layer_tree_set_time(struct layer_tree *tree, const char *path, const char *leaf,
	const struct timespec *mtime, struct err *err);
int layer_tree_end(struct layer_tree *tree, struct err *err); /* sets those times */
/* number of folders that no entry asked for */
uint64_t layer_tree_made(const struct layer_tree *tree);
bool layer_xattr_is_kept(const char *name, mode_t type);

/* ---- oci.c ---------------------------------------------------------------------------------- */

enum { OCI_JSON_MAX = 4 * 1024 * 1024 };

/* A label of images that hold layers a box wrote. Its value is the diff id of the topmost layer
 * whose package hosts count, or OCI_NO_HOSTS. It is a label because labels are copied with an
 * image; it is a diff id because that names the layer whatever is put above it. It can only
 * narrow what counts, so it does not matter who wrote it. */
#define OCI_HOSTS_LABEL "io.boxyard.hosts-until"
#define OCI_NO_HOSTS	"none"

struct oci_blob {
	char digest[DIGEST_SIZE];
	uint64_t size;
};
struct oci_manifest {
	struct oci_blob config;
	struct oci_blob layers[IMAGE_LAYERS_MAX]; /* lowest first */
	size_t layer_count;
};
struct oci_config {
	json_t *config; /* as struct image has it; yours */
	char diff_ids[IMAGE_LAYERS_MAX][DIGEST_SIZE];
	size_t count;
	bool says_hosts; /* only the lowest host_layers count: see OCI_HOSTS_LABEL */
	size_t host_layers;
};

/* "sha256:" and 64 lower-case hex digits, nothing else. */
int digest_check(const char *text, struct err *err);
bool oci_is_index(json_t *json);
/* The manifest (or index) for this machine. ERR_UNSUPPORTED names the platforms there are
 * instead. *ret_entry is its descriptor, borrowed; may be NULL. */
int oci_index_pick(json_t *index, struct oci_blob *ret, json_t **ret_entry, struct err *err);
int oci_manifest_read(json_t *json, struct oci_manifest *ret, struct err *err);
int oci_config_read(json_t *json, struct oci_config *ret, struct err *err);
void oci_config_done(struct oci_config *config);
/* Turns our form of a configuration into that of OCI ("Entrypoint" …); hosts: value of
 * OCI_HOSTS_LABEL, or NULL. New reference. */
json_t *oci_config_export(const json_t *config, const char *hosts);
const char *oci_architecture(void); /* of this machine: "amd64" */

/* ---- stack.c -------------------------------------------------------------------------------- */

struct stack_spec {
	const struct oci_config *config;
	const struct oci_manifest *manifest; /* NULL: layers have only diff ids */
	int (*open_layer)(void *arg, size_t index, int *ret, struct err *err);
	void *arg;
};
/* The id of a layer together with all layers below it. */
enum { LAYER_ID_SIZE = 41 };
void stack_ids(const struct oci_config *config, char (*ret)[LAYER_ID_SIZE]);
/* Unpacks the layers that are missing; fills layers, config, size and files of draft. */
int stack_unpack(const struct images *images, struct job_sink *sink, const struct stack_spec *spec,
	struct image_draft *draft, struct err *err);
/* Unpacks a root file system: one layer, made of the bytes of the feed. */
int stack_unpack_rootfs(const struct images *images, struct job_sink *sink, struct feed *feed,
	read_fn read, void *arg, uint64_t size, struct image_draft *draft, struct err *err);

/* ---- export_layer.c ------------------------------------------------------------------------- */

struct exported {
	char diff_id[DIGEST_SIZE];
	struct oci_blob blob;
	int fd; /* the content; yours, also on failure; -1: none */
};
/* Exports what the layer at index (topmost first) changes in those below it. */
int export_layer(const struct images *images, const struct image *image, size_t index,
	bool compress, struct exported *ret, struct err *err);
int export_rootfs(
	const struct image *image, int out, struct err *err); /* a tar of the merged tree */

/* ---- scratch.c: temporary folders ----------------------------------------------------------- */

/* A folder in BOX_HOME/downloads that is locked (flock) while somebody works in it. */
struct scratch {
	char *path;
	int dir;
};
#define SCRATCH_INIT      \
	{                 \
		.dir = -1 \
	}
/* Makes a new folder ".KIND-JOB-XXXXXX", removed with its job; removes folders of this kind that
 * nobody has locked. */
int scratch_make(
	const struct images *images, const char *kind, struct scratch *ret, struct err *err);
/* Makes or finds the folder of that name; waits until nobody else works in it. */
int scratch_open(
	const struct images *images, const char *name, struct scratch *ret, struct err *err);
void scratch_close(struct scratch *scratch);   /* the contents stay */
void scratch_discard(struct scratch *scratch); /* and removes it */

/* ---- skopeo.c ------------------------------------------------------------------------------- */

struct skopeo_run {
	const char *program;
	char *const *argv;
	const char *dir; /* working directory, also for temporary files */
	/* Called ten times a second; -1 cancels. May be NULL. */
	int (*tick)(void *arg, struct err *err);
	void *arg;
};
/* Runs skopeo to its end; *ret (may be NULL) is its output, NUL-terminated and yours. */
int skopeo_run(const struct skopeo_run *run, char **ret, size_t *ret_len, struct err *err);
/* Sets the error from skopeo's output. */
void skopeo_explain(const char *said, struct err *err);
