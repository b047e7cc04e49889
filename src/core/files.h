/* files.h - files of a box by name
 *
 * One verb is one task (task.h), which may be cancelled at any time. Paths are absolute without
 * "..": symlinks are always resolved inside the box. For a stopped box, stat, list, read and tar
 * out work on its disk (without volumes and folders of the host). A sleeping box is woken. */
#pragma once
#include "core/task.h"
#include <stdint.h>

struct box;

enum file_verb {
	FILE_STAT, /* path, follow: on_info */
	FILE_LIST, /* path: on_info for each entry, on_data after some of them */
	FILE_READ, /* path, offset, length: on_info, then on_data */
	/* path, mode, parents: task_write; on_info when all is safely written. The new file
	 * replaces the old one in one step. */
	FILE_WRITE,
	FILE_MKDIR,   /* path, mode, parents */
	FILE_REMOVE,  /* path, recursive */
	FILE_RENAME,  /* path, to */
	FILE_CHMOD,   /* path, mode */
	FILE_TAR_OUT, /* path: on_data, a tar whose top entry is the last component of path */
	FILE_TAR_IN,  /* path, a folder: task_write, a tar; on_unpacked */
	FILE_VERB_COUNT
};

struct file_spec {
	enum file_verb verb;
	const char *path; /* borrowed for the call, as `to` is */
	const char *to;
	bool follow;	/* follow a symlink at the end of the path */
	bool parents;	/* create missing folders */
	bool recursive; /* a folder with all its content */
	uint32_t mode;	/* permission bits; FILE_WRITE: 0 keeps those of the old file, else 0644 */
	uint64_t offset, length; /* length 0: to the end */
};

/* Borrowed for the call. Names may hold any bytes. */
struct file_info {
	const char *name; /* the last component (FILE_LIST), or the path that was asked for */
	uint32_t mode;	  /* type and permission bits, as in st_mode */
	uint32_t uid, gid;
	uint64_t size, mtime_us;
	const char *target; /* of a symlink, else "" */
};

struct file_ops {
	void (*on_info)(const struct file_info *info, void *arg);
	/* Return the bytes with task_consumed(). FILE_LIST: data is NULL, and the entries since the
	 * last call count as len bytes. */
	void (*on_data)(const void *data, size_t len, void *arg);
	void (*on_unpacked)(uint64_t files, uint64_t bytes, void *arg);
	void (*on_writable)(void *arg); /* task_write() takes more again */
	task_done on_done;
};

enum { FILE_PATH_MAX = 4095 };
/* Fails with ERR_INVALID and names the path `what`; NULL is refused. */
int file_path_check(const char *what, const char *path, struct err *err);

/* Starts file work. ops needs the callbacks of its verb, and on_done. Fails with ERR_INVALID for an
 * invalid path, ERR_STATE when the box neither runs nor can be woken; box-init's errors
 * (ERR_NOT_FOUND …) come by on_done. */
int file_start(struct box *box, const struct file_spec *spec, const struct file_ops *ops, void *arg,
	struct task **ret, struct err *err);
