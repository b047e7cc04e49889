/* untar_internal.h - what the parser (untar.c) and the maker of files (untar_make.c) share */
#pragma once
#include "base/buf.h"
#include "cli/untar.h"
#include <limits.h>
#include <sys/types.h>

enum state { AT_HEADER, AT_EXTENSION, AT_CONTENT, AT_FILL, AT_END };

struct entry {
	char type;
	char name[PATH_MAX], link[PATH_MAX];
	uint64_t size;
	mode_t mode;
	uint32_t uid, gid;
	int64_t mtime;
};

struct folder {
	char *name;
	mode_t mode;
	uint32_t uid, gid;
	int64_t mtime;
};

struct untar {
	struct untar_spec spec;
	enum state state;
	struct buf block; /* of the header or extension being collected */
	uint64_t left, fill;
	unsigned zero_blocks;
	char extension; /* 'x', 'L', 'K', 'g' */
	struct entry entry;
	char said_name[PATH_MAX], said_link[PATH_MAX]; /* by an extension, for the next entry */
	int64_t said_size;
	int fd; /* the file being written; -1: its bytes are dropped */
	struct folder *folders;
	size_t folder_count, folder_bytes;
	uint64_t files, skipped;
	mode_t umask;
};

/* Makes untar->entry; a file stays open as untar->fd for its bytes. */
int untar_make_entry(struct untar *untar, struct err *err);
/* Closes the file with its final mode and, if preserved, owner and time. */
int untar_end_file(struct untar *untar, struct err *err);
/* The same for all folders that were made. */
void untar_end_folders(struct untar *untar);
