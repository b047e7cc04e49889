/* cp_internal.h - what the parts of `box cp` share: cp.c (places, into a box), cp_out.c,
 * cp_between.c */
#pragma once
#include "cli/cli.h"
#include "cli/outfile.h"
#include "cli/progress.h"

/* One side of a copy. */
struct place {
	char *box;     /* NULL: on this machine */
	char *path;    /* "-": stdin or stdout; no slash at its end */
	bool contents; /* it ended in /. */
	bool slash;    /* it ended in / */
};

struct copy {
	struct cli *cli;
	struct progress bar;
	uint64_t done, total; /* bytes; total 0: not known */
	uint64_t all;	      /* bytes of all sources so far */
	int fd;		      /* the local file that is read, or stdout */
	const char *path;     /* its name */
	mode_t mode;	      /* for a new local file */
	struct outfile file;  /* the local file that is written */
	struct mktar *mktar;
	struct untar *untar;
	uint64_t files; /* that came out of the last archive */
};

bool place_is_stream(const struct place *place);
/* The last component of a path; "" when it has no name of its own, as in "/" and "..". */
const char *place_name(const struct place *place);
char *place_folder(const char *path);			/* what path lies in; yours to free */
char *place_join(const char *folder, const char *name); /* yours to free */
bool copy_preserves(const struct copy *copy);
void copy_count(struct copy *copy, size_t len);

/* The type ("file", "dir" ...) of a path in a box, symlinks followed; "" when it does not exist.
 * Fills copy's mode and total. */
int copy_box_type(
	struct copy *copy, const struct place *place, char *ret, size_t size, struct err *err);
/* The name of a folder below the target in a box, which has that type; "" when only its content
 * goes there. *ret_folder is where the archive is unpacked; yours to free. */
int copy_target_in_box(const struct place *from, const struct place *to, const char *type,
	const char **ret_top, char **ret_folder, struct err *err);
/* Fails unless to is a folder where it has to be one. */
int copy_check_target_in_box(
	const struct place *to, const char *type, bool from_folder, bool several, struct err *err);

int copy_out(struct copy *copy, const struct place *from, const struct place *to, bool several,
	struct err *err);
int copy_between(struct copy *copy, const struct place *from, const struct place *to, bool several,
	struct err *err);
