/* sftp_internal.h - the parts of the SFTP server: packets, open files, paths, names */
#pragma once
#include "guest/sftp.h"
#include <dirent.h>
#include <sys/stat.h>
#include <sys/types.h>

enum {
	SFTP_PACKET_MAX = 256 * 1024,		/* without its length; as OpenSSH's */
	SFTP_DATA_MAX = SFTP_PACKET_MAX - 1024, /* of one READ or WRITE */
	SFTP_PATH_MAX = 4095,
	SFTP_HANDLES_MAX = 1000, /* below the usual limit of descriptors */
	SFTP_NAME_MAX = 64,	 /* bytes of a user's or group's name, with its NUL */
};

enum sftp_type {
	SFTP_INIT = 1,
	SFTP_VERSION,
	SFTP_OPEN,
	SFTP_CLOSE,
	SFTP_READ,
	SFTP_WRITE,
	SFTP_LSTAT,
	SFTP_FSTAT,
	SFTP_SETSTAT,
	SFTP_FSETSTAT,
	SFTP_OPENDIR,
	SFTP_READDIR,
	SFTP_REMOVE,
	SFTP_MKDIR,
	SFTP_RMDIR,
	SFTP_REALPATH,
	SFTP_STAT,
	SFTP_RENAME,
	SFTP_READLINK,
	SFTP_SYMLINK,
	SFTP_STATUS = 101,
	SFTP_HANDLE,
	SFTP_DATA,
	SFTP_NAME,
	SFTP_ATTRS,
	SFTP_EXTENDED = 200,
	SFTP_EXTENDED_REPLY,
};

enum sftp_code {
	SFTP_OK,
	SFTP_EOF,
	SFTP_NO_SUCH_FILE,
	SFTP_PERMISSION_DENIED,
	SFTP_FAILURE,
	SFTP_BAD_MESSAGE,
	SFTP_UNSUPPORTED = 8,
};

enum {
	SFTP_ATTR_SIZE = 1,
	SFTP_ATTR_OWNER = 2,
	SFTP_ATTR_MODE = 4,
	SFTP_ATTR_TIMES = 8,
};
#define SFTP_ATTR_EXTENDED 0x80000000u

struct sftp_attrs {
	uint32_t flags; /* which of these there are */
	uint64_t size;
	uid_t uid;
	gid_t gid;
	mode_t mode;
	uint32_t atime, mtime;
};

/* An open file or folder. */
struct sftp_handle {
	int fd;	  /* -1: free. Of a folder: dir's */
	DIR *dir; /* NULL: a file */
};

/* One request being served. What a field says that is missing or malformed is zero, and bad is set:
 * who serves it looks there before he does anything, and then just returns. */
struct sftp_request {
	uint32_t id;
	const uint8_t *at, *end;
	bool bad;
	struct buf *out;
};

typedef void (*sftp_serve_fn)(struct sftp *sftp, struct sftp_request *request);

/* ---- sftp_packet.c: fields and answers ------------------------------------------------------ */

uint8_t sftp_get_u8(struct sftp_request *request);
uint32_t sftp_get_u32(struct sftp_request *request);
uint64_t sftp_get_u64(struct sftp_request *request);
/* Borrowed from the request. */
const uint8_t *sftp_get_bytes(struct sftp_request *request, size_t *ret_len);
/* Bad when it is longer or has a NUL in it. size: of ret. */
void sftp_get_text(struct sftp_request *request, char *ret, size_t size);
void sftp_get_attrs(struct sftp_request *request, struct sftp_attrs *ret);

/* An answer: put its fields between these two. */
size_t sftp_begin(struct sftp_request *request, enum sftp_type type);
void sftp_end(struct sftp_request *request, size_t mark);
void sftp_put_u8(struct buf *out, uint8_t value);
void sftp_put_u32(struct buf *out, uint32_t value);
void sftp_put_u64(struct buf *out, uint64_t value);
void sftp_put_bytes(struct buf *out, const void *data, size_t len);
void sftp_put_text(struct buf *out, const char *text);
void sftp_put_attrs(struct buf *out, const struct stat *st);
void sftp_store_u32(uint8_t *at, uint32_t value);

void sftp_answer_code(struct sftp_request *request, enum sftp_code code);
/* 0: it worked; else what errno says. */
void sftp_answer_errno(struct sftp_request *request, int errno_value);
/* As most system calls end: errno, if result is negative. */
void sftp_answer_result(struct sftp_request *request, int result);
void sftp_answer_stat(struct sftp_request *request, int result, const struct stat *st);
void sftp_answer_name(struct sftp_request *request, const char *name); /* one, without attributes */

/* ---- sftp_handle.c: open files -------------------------------------------------------------- */

void sftp_open(struct sftp *sftp, struct sftp_request *request);
void sftp_opendir(struct sftp *sftp, struct sftp_request *request);
void sftp_close(struct sftp *sftp, struct sftp_request *request);
void sftp_read(struct sftp *sftp, struct sftp_request *request);
void sftp_write(struct sftp *sftp, struct sftp_request *request);
void sftp_fstat(struct sftp *sftp, struct sftp_request *request);
void sftp_fsetstat(struct sftp *sftp, struct sftp_request *request);
void sftp_fsync(struct sftp *sftp, struct sftp_request *request);
void sftp_fstatvfs(struct sftp *sftp, struct sftp_request *request);
void sftp_copy_data(struct sftp *sftp, struct sftp_request *request);
/* The handle a request names; NULL: there is none, and that was answered, unless request is bad. */
struct sftp_handle *sftp_get_handle(struct sftp *sftp, struct sftp_request *request);

/* ---- sftp_path.c: requests about a path ----------------------------------------------------- */

void sftp_stat(struct sftp *sftp, struct sftp_request *request);
void sftp_lstat(struct sftp *sftp, struct sftp_request *request);
void sftp_setstat(struct sftp *sftp, struct sftp_request *request);
void sftp_lsetstat(struct sftp *sftp, struct sftp_request *request);
void sftp_remove(struct sftp *sftp, struct sftp_request *request);
void sftp_mkdir(struct sftp *sftp, struct sftp_request *request);
void sftp_rmdir(struct sftp *sftp, struct sftp_request *request);
void sftp_rename(struct sftp *sftp, struct sftp_request *request);
void sftp_posix_rename(struct sftp *sftp, struct sftp_request *request);
void sftp_hardlink(struct sftp *sftp, struct sftp_request *request);
void sftp_symlink(struct sftp *sftp, struct sftp_request *request);
void sftp_readlink(struct sftp *sftp, struct sftp_request *request);
void sftp_realpath(struct sftp *sftp, struct sftp_request *request);
void sftp_expand_path(struct sftp *sftp, struct sftp_request *request);
void sftp_home_directory(struct sftp *sftp, struct sftp_request *request);
void sftp_statvfs(struct sftp *sftp, struct sftp_request *request);
/* Sets what attrs has, of fd (path NULL) or of path; the first error is the answer. flags: 0 or
 * AT_SYMLINK_NOFOLLOW. */
void sftp_set_attrs(struct sftp_request *request, int fd, const char *path, int flags,
	const struct sftp_attrs *attrs);
struct statvfs;
void sftp_answer_statvfs(struct sftp_request *request, int result, const struct statvfs *st);

/* ---- sftp_list.c: folders and names --------------------------------------------------------- */

void sftp_readdir(struct sftp *sftp, struct sftp_request *request);
void sftp_users_groups(struct sftp *sftp, struct sftp_request *request);
/* A line as of `ls -l`. */
void sftp_long_name(char *ret, size_t size, const char *name, const struct stat *st);

/* ---- sftp.c --------------------------------------------------------------------------------- */

struct sftp {
	bool greeted;
	struct sftp_handle handles[SFTP_HANDLES_MAX];
};
