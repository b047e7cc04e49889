/* untar_internal.h - what the stream (untar.c) and the maker of files (untar_make.c) share */
#pragma once
#include "cli/outfile.h"
#include "cli/untar.h"
#include "tar/tar.h"
#include <limits.h>

struct folder {
	char *name;
	mode_t mode;
	uint32_t uid, gid;
	int64_t mtime;
};

struct untar {
	struct untar_spec spec;
	struct tar_reader reader;
	const uint8_t *data; /* bytes that were fed and not yet read */
	size_t len;
	const struct tar_entry *entry; /* whose content follows; NULL: a header follows */
	bool ended;
	struct outfile file; /* being written; without fd: the bytes are dropped */
	char *asked;	     /* the first component of all names; NULL: none has come */
	struct made *made;   /* a table of the files made so far; see untar_make.c */
	size_t made_count, made_room;
	struct folder *folders;
	size_t folder_count, folder_bytes;
	uint64_t files, skipped;
	mode_t umask;
};

/* Makes untar->entry; a file stays open as untar->file for its bytes. */
int untar_make_entry(struct untar *untar, struct err *err);
/* Closes the file with its final mode and, if preserved, owner and time. */
int untar_end_file(struct untar *untar, struct err *err);
/* The same for all folders that were made. */
void untar_end_folders(struct untar *untar);
