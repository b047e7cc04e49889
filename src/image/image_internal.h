/* image_internal.h - what the files of this folder share */
#pragma once
#include "base/alloc.h"
#include "base/err.h"
#include "base/strv.h"
#include "image/image.h"
#include <assert.h>

struct loop;

/* ---- helper.c: a process of our own for slow work ------------------------------------------- */

struct helper;

struct helper_ops {
	/* Runs in the helper; what it returns is the exit code. Messages go to sock, one send() each. */
	int (*run)(int sock, void *arg);
	/* In the daemon: one message, at most HELPER_MESSAGE_MAX bytes. May be NULL. */
	void (*on_message)(const void *message, size_t len, void *arg);
	/* In the daemon: the helper and everything it started is gone, its messages are all delivered; it has
	 * been freed. code is the exit code, -1 when it was killed. */
	void (*on_exit)(int code, void *arg);
};

enum { HELPER_MESSAGE_MAX = 2048 };

/* keep is an fd the helper keeps besides its socket, or -1; all others are closed in it. */
int helper_start(struct loop *loop, const struct helper_ops *ops, void *arg, int keep,
	struct helper **ret, struct err *err);
void helper_kill(struct helper *helper); /* on_exit follows from the loop */
void helper_free(struct helper *helper); /* kills, waits, calls nothing; accepts NULL */

/* ---- images.c ------------------------------------------------------------------------------- */

struct images {
	struct loop *loop;
	char *path; /* BOX_HOME/images */
	int dir;
	struct image **list; /* newest first */
	size_t count;
	struct image **gone; /* not listed any more, but somebody may still hold them */
	size_t gone_count;
	int64_t scanned_us; /* wall clock; 0: never */
	int64_t changed_ns; /* mtime of dir then */
	struct image_build *builds;
	struct removal *removals;
};

#define IMAGE_BUILD_PREFIX ".build-"
#define IMAGE_TRASH_PREFIX ".trash-"

/* Files below images->dir/name go in the background; name is one of ours that nobody uses any more. */
void images_discard(struct images *images, const char *name);
void images_forget_scan(struct images *images); /* read the folder again next time */
/* image.json of a finished build, as images.c reads it. */
int image_write_json(int dir, const struct image *image, struct err *err);
void image_builds_end(struct images *images); /* build.c; for images_close */

/* ---- recipe.c: the build itself, in the helper ----------------------------------------------- */

struct recipe {
	char *dir; /* absolute; rootfs/ and image.json are made in it */
	char *id;
	char *name;
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

/* What the helper tells the daemon; a plain value. */
struct build_message {
	enum { BUILD_PROGRESS, BUILD_FINISHED, BUILD_FAILED } type;
	enum build_stage stage;
	unsigned done, total;
	char detail[96];
	struct err err; /* BUILD_FAILED */
};
static_assert(sizeof(struct build_message) <= HELPER_MESSAGE_MAX, "a message fits");

/* Runs in the helper; build_messages go to sock, the last one FINISHED or FAILED. Returns an exit code. */
int recipe_run(int sock, const struct recipe *recipe);
/* Looks a program up in PATH; NULL when it is not there. Yours. */
char *program_find(const char *name);

/* ---- sources.c: the machine's own package sources -------------------------------------------- */

/* VERSION_CODENAME of os-release text. */
int suite_from_os_release(const char *text, char **ret, struct err *err);
/* Drops comments, deb-src and cdrom lines of a one-line style list; yours, "" when nothing is left. */
char *sources_clean_list(const char *text);
/* Files mmdebstrap can be given: what etc_apt (normally /etc/apt) has, copied into dir. */
int sources_collect(const char *etc_apt, const char *dir, char ***ret, struct err *err);

/* ---- progress.c: what mmdebstrap, apt and dpkg say ------------------------------------------- */

struct progress {
	enum build_stage stage;
	unsigned done, total;
	char detail[96];
	unsigned round; /* packages of the present apt run; 0: not known */
	unsigned fetched, unpacked, configured;
	enum err_kind kind; /* of the failure, as far as the words tell */
	char blame[320];    /* last line that names a cause */
	char last[320];	    /* last line at all */
};

/* Takes in one line without its newline; true when stage, done, total or detail changed. */
bool progress_feed(struct progress *progress, const char *line);
/* Fills err from what was read, after mmdebstrap ended with that exit code (-1: killed). */
void progress_explain(const struct progress *progress, int code, struct err *err);
