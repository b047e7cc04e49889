/* oci_internal.h - what the files share that read and write images of others
 *
 *   sha256.c      the sums blobs and layers are named by
 *   feed.c        a process that decompresses and hashes beside the one that unpacks
 *   layer_below.c what the layers below show, through whiteouts
 *   layer_tree.c  where a name of an archive lies, in a layer that is being filled, over the layers
 *                 below
 *   oci.c         manifests, indexes, configurations: JSON in, checked values out
 *   stack.c       the layers of an image, from blobs to folders
 *   skopeo.c      the program that talks to registries, and what its complaints mean
 *   export_layer.c  a layer as a blob
 *   scratch.c     folders for the moment */
#pragma once
#include "base/sha256.h"
#include "image/image_internal.h"
#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

/* ---- feed.c --------------------------------------------------------------------------------- */

struct feed;
struct feed_totals {
	uint64_t raw_bytes, bytes; /* as they came, and decompressed */
	char raw_digest[DIGEST_SIZE], digest[DIGEST_SIZE];
};
bool inflate_is_plain(const struct inflate *inflate); /* inflate.c; known after the first read */
/* Reads fd (borrowed) from where it stands to its end, decompressed. */
int feed_start(int fd, struct feed **ret, struct err *err);
ssize_t feed_read(void *feed, void *data, size_t len, struct err *err); /* a read_fn */
uint64_t feed_raw_bytes(const struct feed *feed);			/* so far */
/* After feed_read has returned 0. */
const struct feed_totals *feed_get_totals(const struct feed *feed);
void feed_free(struct feed *feed); /* ends it; accepts NULL */
DEFINE_CLEANUP(feed_free, struct feed)

/* ---- layer_below.c -------------------------------------------------------------------------- */

struct layer_stack {
	int root;    /* of the layer that is being filled */
	int *lowers; /* topmost first */
	size_t lower_count;
};
/* Finds what the layers below show at path: 1 with an O_PATH fd that is yours, 0: nothing. Of the
 * layer being filled only what it hides counts. */
int layer_below_find(const struct layer_stack *stack, const char *path, int *ret,
	struct stat *ret_st, struct err *err);
bool layer_is_whiteout(const struct stat *st);
/* Nothing below the folder dir shows through it. */
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
/* Where name lies, folders on the way made: like those of the layers below, or 0755. Links on the
 * way (of this layer and those below) are followed inside the root, the last component is not.
 * ERR_INVALID for "..", for names too long or too deep, when something on the way is no folder. */
int layer_tree_place(struct layer_tree *tree, const char *name, struct place *ret, struct err *err);
/* The leaf of place was made, or removed with all below it. */
void layer_tree_changed(struct layer_tree *tree, bool removed);
bool layer_tree_has_lowers(const struct layer_tree *tree);
/* The root of a layer below, for reading: 1, it is yours; 0 when index is past the last. */
int layer_tree_lower_root(const struct layer_tree *tree, size_t index, DIR **ret, struct err *err);
/* Finds what the layers below show there: 1 with an O_PATH fd that is yours, 0: nothing. */
int layer_tree_below(struct layer_tree *tree, const struct place *place, int *ret,
	struct stat *ret_st, struct err *err);
/* When a folder was changed; kept until the end, since what is made in it changes that. */
int layer_tree_set_time(struct layer_tree *tree, const char *path, const char *leaf,
	const struct timespec *mtime, struct err *err);
int layer_tree_end(struct layer_tree *tree, struct err *err); /* sets those times */
uint64_t layer_tree_made(const struct layer_tree *tree);      /* folders no entry asked for */
bool layer_xattr_is_kept(const char *name, mode_t type);

/* ---- oci.c ---------------------------------------------------------------------------------- */

enum { OCI_JSON_MAX = 4 * 1024 * 1024 };

/* A label of images that hold layers a box wrote, with the diff id of the topmost layer whose
 * package hosts count, or OCI_NO_HOSTS. It is a label because those go with an image wherever it is
 * copied, and a diff id because that names the layer whatever is put above it or made of it. It can
 * only narrow what counts, so it does not matter who wrote it. */
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
/* The manifest (or index) for this machine. ERR_UNSUPPORTED that names what there is instead.
 * *ret_entry is its descriptor, borrowed; may be NULL. */
int oci_index_pick(json_t *index, struct oci_blob *ret, json_t **ret_entry, struct err *err);
int oci_manifest_read(json_t *json, struct oci_manifest *ret, struct err *err);
int oci_config_read(json_t *json, struct oci_config *ret, struct err *err);
void oci_config_done(struct oci_config *config);
/* Our form of a configuration as OCI has it ("Entrypoint" …); hosts: value of OCI_HOSTS_LABEL, or
 * NULL. New reference. */
json_t *oci_config_export(const json_t *config, const char *hosts);
const char *oci_architecture(void); /* of this machine: "amd64" */

/* ---- stack.c -------------------------------------------------------------------------------- */

struct stack_spec {
	const struct oci_config *config;
	const struct oci_manifest *manifest; /* NULL: layers have no digests but their diff ids */
	int (*open_layer)(void *arg, size_t index, int *ret, struct err *err);
	void *arg;
};
/* How a layer and all below it are called here. */
enum { LAYER_ID_SIZE = 41 };
void stack_ids(const struct oci_config *config, char (*ret)[LAYER_ID_SIZE]);
/* Unpacks what is not here yet; fills layers, config, size and files of draft. */
int stack_unpack(const struct images *images, struct job_sink *sink, const struct stack_spec *spec,
	struct image_draft *draft, struct err *err);
/* A root file system: one layer, of the bytes read() gives. */
int stack_unpack_rootfs(const struct images *images, struct job_sink *sink, struct feed *feed,
	read_fn read, void *arg, uint64_t size, struct image_draft *draft, struct err *err);

/* ---- export_layer.c ------------------------------------------------------------------------- */

struct exported {
	char diff_id[DIGEST_SIZE];
	struct oci_blob blob;
	int fd; /* its bytes; yours, also when it fails; -1: none */
};
/* Exports what the layer at index (topmost first) changes in those below it. */
int export_layer(const struct images *images, const struct image *image, size_t index,
	bool compress, struct exported *ret, struct err *err);
int export_rootfs(
	const struct image *image, int out, struct err *err); /* a tar of the merged tree */

/* ---- scratch.c ------------------------------------------------------------------------------ */

/* A folder in BOX_HOME/downloads that is locked (flock) as long as somebody works in it. */
struct scratch {
	char *path;
	int dir;
};
#define SCRATCH_INIT      \
	{                 \
		.dir = -1 \
	}
/* A new one, ".KIND-JOB-XXXXXX", which goes with the job; those of the kind that nobody works in
 * go. */
int scratch_make(
	const struct images *images, const char *kind, struct scratch *ret, struct err *err);
/* Makes or finds the scratch folder of that name; waits until nobody else works in it. */
int scratch_open(
	const struct images *images, const char *name, struct scratch *ret, struct err *err);
void scratch_close(struct scratch *scratch);   /* what is in it stays */
void scratch_discard(struct scratch *scratch); /* and goes */

/* ---- skopeo.c ------------------------------------------------------------------------------- */

struct skopeo_run {
	const char *program;
	char *const *argv;
	const char *dir; /* it runs there, and its temporary files are there */
	/* Called ten times a second; -1 ends it. May be NULL. */
	int (*tick)(void *arg, struct err *err);
	void *arg;
};
/* Runs it to its end; *ret (may be NULL) is what it wrote, NUL-terminated and yours. */
int skopeo_run(const struct skopeo_run *run, char **ret, size_t *ret_len, struct err *err);
/* Sets the error from skopeo's output. */
void skopeo_explain(const char *said, struct err *err);
