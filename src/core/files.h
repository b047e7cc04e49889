/* files.h - files of a box by name
 *
 * One verb, one task (task.h), which may be given up at any time. Paths are absolute and hold no
 * "..": links are followed inside the box, whatever they say. Of a box that is stopped, what can be
 * told from its disk alone is told from there (stat, list, read, tar out; without volumes and
 * folders of the host). A box that sleeps is woken. */
#pragma once
#include "core/task.h"
#include <stdint.h>

struct box;

enum file_verb {
	FILE_STAT,    /* path, follow: on_info */
	FILE_LIST,    /* path: on_info for each entry, on_data for some of them together */
	FILE_READ,    /* path, offset, length: on_info, then on_data */
	FILE_WRITE,   /* path, mode, parents: task_write; on_info when all is safely there. The new
		       * file takes the place of the old one in one step */
	FILE_MKDIR,   /* path, mode, parents */
	FILE_REMOVE,  /* path, recursive */
	FILE_RENAME,  /* path, to */
	FILE_CHMOD,   /* path, mode */
	FILE_TAR_OUT, /* path: on_data, a tar whose top is the last name of path */
	FILE_TAR_IN,  /* path, a folder: task_write, a tar; on_unpacked */
	FILE_VERB_COUNT
};

struct file_spec {
	enum file_verb verb;
	const char *path; /* borrowed for the call, as `to` is */
	const char *to;
	bool follow;	/* a link at its end */
	bool parents;	/* folders that are missing are made */
	bool recursive; /* a folder with all that is in it */
	uint32_t mode;	/* permission bits; FILE_WRITE: 0 keeps those of the old file, else 0644 */
	uint64_t offset, length; /* length 0: to the end */
};

/* Borrowed for the call it is told in. Names may be any bytes. */
struct file_info {
	const char *name; /* the last component (FILE_LIST), or the path that was asked for */
	uint32_t mode;	  /* type and permission bits, as in st_mode */
	uint32_t uid, gid;
	uint64_t size, mtime_us;
	const char *target; /* of a symlink, else "" */
};

struct file_ops {
	void (*on_info)(const struct file_info *info, void *arg);
	/* Give the bytes back with task_consumed(). FILE_LIST: data is NULL, and the entries since
	 * the last call count as len bytes. */
	void (*on_data)(const void *data, size_t len, void *arg);
	void (*on_unpacked)(uint64_t files, uint64_t bytes, void *arg);
	void (*on_writable)(void *arg); /* task_write() takes more again */
	task_done on_done;
};

enum { FILE_PATH_MAX = 4095 };
/* ERR_INVALID, which calls it `what`; NULL is refused. */
int file_path_check(const char *what, const char *path, struct err *err);

/* ops needs what its verb names, and on_done. -1: ERR_INVALID for a path that cannot be, ERR_STATE
 * when the box neither runs nor wakes; what the box says (ERR_NOT_FOUND …) comes by on_done. */
int file_start(struct box *box, const struct file_spec *spec, const struct file_ops *ops, void *arg,
	struct task **ret, struct err *err);
