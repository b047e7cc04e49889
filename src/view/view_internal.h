/* view_internal.h - how the parts of view walk trees and write entries */
#pragma once
#include "base/buf.h"
#include "tar/tar.h"
#include "tar/xattrs.h"
#include "view/view.h"

/* ---- view.c --------------------------------------------------------------------------------- */

/* For kernels before 6.7; the caller has its own mount namespace. At least two layers. */
int view_open_by_mount(const char *const *layers, int *ret, struct err *err);

#define WHITEOUT ".wh." /* before a name, in a tar */

/* A whiteout of a layer. In an overlay of two or more layers it is invisible, in a single layer
 * not. */
static inline bool view_is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == 0;
}

/* ---- walk.c: several trees at once, by path ------------------------------------------------- */

/* One folder between the top and the current position. */
struct walk_frame {
	int *fds;	  /* the folder in each tree; see walk.c */
	bool open;	  /* else those that were open are WALK_CLOSED for now */
	struct buf names; /* names to visit, each with a zero byte */
	uint32_t *order;  /* where they begin, sorted */
	size_t count, next;
	size_t path_len;
	bool whole; /* used by the caller */
};

struct walk {
	size_t width;
	struct walk_frame *frames;
	size_t depth, room; /* frames in use, and allocated */
	struct buf path;    /* of the current item; its zero byte is not counted */
	const char *name;   /* its last component */
};

/* An entry of the trees, borrowed until the next call on the walk. */
struct walk_item {
	const char *path, *name;
	const int *dirs; /* the folder it lies in, one a tree; -1: not in that tree */
	bool whole;
};

void walk_init(struct walk *walk, size_t width);
void walk_done(struct walk *walk);
/* Enters the item returned last, or initially the roots. fds has one fd per tree or -1; the walk
 * owns them from now on, also on failure. Every name found in one of the trees from..to-1 is
 * visited. */
int walk_enter(
	struct walk *walk, const int *fds, size_t from, size_t to, bool whole, struct err *err);
/* Opens the folder name in dir; *ret is -1 when it was removed or is no folder. */
int walk_open_folder(int dir, const char *name, const char *path, int *ret, struct err *err);
/* Returns the next item, folders before their contents, sorted by name in each folder: 1. 0:
 * there are no more. */
int walk_next(struct walk *walk, struct walk_item *ret, struct err *err);

/* ---- links.c: files with several names ------------------------------------------------------ */

struct links {
	struct link **buckets;
	size_t room, count;
};
/* The first name of an inode, or NULL: then path is remembered as its first name. */
const char *links_seen(struct links *links, const struct stat *st, const char *path);
void links_done(struct links *links);

/* ---- pack.c --------------------------------------------------------------------------------- */

struct packer {
	int out;
	const char *top; /* before every name; NULL: none */
	bool as_layer;
	struct buf buf;
	struct links links;
	struct view_totals totals;
	view_progress progress;
	void *arg;
};
/* Adds one entry, called path in the archive. A folder is added without its contents. An entry
 * that was removed meanwhile, a socket or a whiteout is left out. */
int packer_put(struct packer *packer, int dir, const char *name, const char *path,
	const struct stat *st, struct err *err);
int packer_put_header(struct packer *packer, const struct tar_entry *entry, struct err *err);
/* Refuses a name that would mean a removed file in a layer. */
int packer_check_name(const char *name, const char *path, struct err *err);
/* ERR_TOO_LARGE for a path over VIEW_PATH_MAX. */
int packer_check_path(const char *path, struct err *err);
int packer_finish(struct packer *packer, struct err *err);
void packer_done(struct packer *packer);

/* ---- same.c: compares an entry of two trees ------------------------------------------------- */

/* One of the two sides of a comparison. */
struct side {
	int dir;
	const char *name;
	struct stat st;
};
/* 1: mode, owner, content and attributes are equal. 0: they differ. Both have the same type. */
int same_entry(const struct side *old, const struct side *new, const char *path, struct err *err);
