/* audit_internal.h - what the files of audit share: the form of a line, the marks, the list of
 * files */
#pragma once
#include "audit/audit.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/sha256.h"
#include <sys/types.h>

enum {
	AUDIT_NAME_MAX = 32,
	AUDIT_LOOK_MAX = 4 * 1024 * 1024, /* how many bytes one call of a reader reads */
};

/* ---- audit_chain.c -------------------------------------------------------------------------- */

/* A place in the chain: a line's number and the hash of its bytes. Before the first line: 0 and
 * zeros. */
struct audit_point {
	uint64_t seq;
	char hash[SHA256_HEX + 1];
};
struct audit_point audit_point_zero(void);
bool audit_point_equal(const struct audit_point *a, const struct audit_point *b);

/* Writes how each line begins, {"seq":N,"prev":"…"; with at (may be NULL) also ,"at":"…". Returns
 * the length. */
enum { AUDIT_BEGIN_MAX = 192 };
size_t audit_line_begin(char *out, const struct audit_point *before, const char *at);
/* Parses exactly what audit_line_begin writes, of a line that may be incomplete; ret_prev may be
 * NULL. */
bool audit_begin_parse(
	const char *line, size_t len, uint64_t *ret_seq, char ret_prev[SHA256_HEX + 1]);
/* Parses the beginning of a whole line. */
bool audit_line_parse(
	const char *line, size_t len, uint64_t *ret_seq, char ret_prev[SHA256_HEX + 1]);

/* Marks are the files head and tail. They are overwritten in place: that works on a full disk, and
 * after a power cut one sector is either new or old. */
int audit_mark_write(int fd, const struct audit_point *point, struct err *err);
/* *ret_there false: the file is missing or empty. Fails with ERR_PROTOCOL when it holds something
 * else. */
int audit_mark_read(
	int dir, const char *name, struct audit_point *ret, bool *ret_there, struct err *err);

struct audit_file {
	uint64_t number;
	uint64_t first; /* seq of its first line; 0: it has none, or it cannot be read */
	uint64_t bytes; /* when it was listed; without a torn line once this daemon writes it */
};
struct audit_files {
	struct audit_file *list; /* by number */
	size_t count;
};
char *audit_file_name(uint64_t number, char out[AUDIT_NAME_MAX]); /* returns out */
int audit_files_list(int dir, struct audit_files *ret, struct err *err);
void audit_files_done(struct audit_files *files);
/* The first line of a file, as far as it is there: its number and the hash before it. */
bool audit_first_line(int fd, uint64_t *ret_seq, char ret_prev[SHA256_HEX + 1]);
ssize_t audit_pread(
	int fd, void *data, size_t len, uint64_t offset); /* all there is; -1 with errno */

/* ---- audit.c -------------------------------------------------------------------------------- */

struct audit_feed {
	struct audit *audit;
	void (*fn)(void *arg, json_t *event);
	void *arg;
	struct audit_feed *next;
	bool dead; /* freed while lines were being handed out */
};

struct audit {
	struct loop *loop;
	struct loop_timer *timer; /* the next write */
	char *folder;
	int dir, head, tail;
	int fd; /* the newest file */
	uint64_t file_bytes;
	unsigned files_kept;
	struct audit_files files;   /* the last one is the newest */
	struct audit_point oldest;  /* the point before the oldest line kept: what tail holds */
	struct audit_point written; /* the last line in a file: what head holds */
	struct audit_point last;    /* the last line made */
	struct buf waiting;	    /* whole lines */
	json_t *told;		    /* the same lines for followers; empty when nobody follows */
	uint64_t lost;		    /* lines lost since the log was opened */
	uint64_t lost_untold;
	char trouble[256]; /* "": none */
	bool rotation_failed;
	struct audit_feed *feeds;
	unsigned feeding;
};

/* Nothing is open yet; audit_close frees it. */
struct audit *audit_new(struct loop *loop, const char *folder, const struct audit_options *options);
DEFINE_CLEANUP(audit_close, struct audit)
void audit_add_note(
	struct audit *audit, json_t *note); /* a line of type "audit"; takes the reference */
/* Removes the oldest files until as many are left as are kept. */
void audit_drop_oldest(struct audit *audit);
/* audit_open.c: opens the folder and its marks, and makes what is missing. */
int audit_open_folder(struct audit *audit, struct err *err);
/* Makes a new, empty file, which becomes the newest. */
int audit_begin_file(struct audit *audit, struct err *err);
