/* sftp_handle.c - files and folders that a client has open
 *
 * A handle is the number of its place in the table. Bytes that are read go from the kernel into the
 * answer, and bytes that are written from the request into the kernel, without a copy between.
 *
 * Files are opened so that nothing waits: a client that opens a FIFO hears that it cannot be read,
 * instead of never hearing anything again. */
#include "guest/sftp_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/statvfs.h>

enum {
	WANT_READ = 1,
	WANT_WRITE = 2,
	WANT_APPEND = 4,
	WANT_CREATE = 8,
	WANT_TRUNCATE = 16,
	WANT_NEW = 32,

	HANDLE_SIZE = 4,
	DATA_HEADER = 13, /* length, type, id, length of the bytes */
	COPY_CHUNK = 8 * 1024 * 1024,
	COPY_BUFFER = 128 * 1024,
};

/* ---- handles -------------------------------------------------------------------------------- */

struct sftp_handle *sftp_get_handle(struct sftp *sftp, struct sftp_request *request)
{
	size_t len;
	const uint8_t *at = sftp_get_bytes(request, &len);
	uint32_t number = SFTP_HANDLES_MAX;

	if (!at)
		return NULL;
	if (len == HANDLE_SIZE) {
		struct sftp_request field = { .at = at, .end = at + len };

		number = sftp_get_u32(&field);
	}
	if (number < SFTP_HANDLES_MAX && sftp->handles[number].fd >= 0)
		return &sftp->handles[number];
	return NULL;
}

/* As above, when the rest of the request was read too. A file is wanted, unless any. */
static bool check_handle(struct sftp_request *request, const struct sftp_handle *handle, bool any)
{
	if (request->bad)
		return false;
	if (handle && (any || !handle->dir))
		return true;
	sftp_answer_code(request, SFTP_FAILURE);
	return false;
}

static struct sftp_handle *find_free(struct sftp *sftp)
{
	for (size_t i = 0; i < SFTP_HANDLES_MAX; i++)
		if (sftp->handles[i].fd < 0)
			return &sftp->handles[i];
	return NULL;
}

static void answer_handle(
	struct sftp *sftp, struct sftp_request *request, const struct sftp_handle *handle)
{
	size_t mark = sftp_begin(request, SFTP_HANDLE);

	sftp_put_u32(request->out, HANDLE_SIZE);
	sftp_put_u32(request->out, (uint32_t)(handle - sftp->handles));
	sftp_end(request, mark);
}

static int open_flags(uint32_t wants)
{
	int flags = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

	if ((wants & WANT_READ) && (wants & WANT_WRITE))
		flags |= O_RDWR;
	else if (wants & WANT_WRITE)
		flags |= O_WRONLY;
	flags |= wants & WANT_APPEND ? O_APPEND : 0;
	flags |= wants & WANT_CREATE ? O_CREAT : 0;
	flags |= wants & WANT_TRUNCATE ? O_TRUNC : 0;
	flags |= wants & WANT_NEW ? O_EXCL : 0;
	return flags;
}

void sftp_open(struct sftp *sftp, struct sftp_request *request)
{
	struct sftp_handle *handle = find_free(sftp);
	char path[SFTP_PATH_MAX + 1];
	struct sftp_attrs attrs;
	uint32_t wants;

	sftp_get_text(request, path, sizeof path);
	wants = sftp_get_u32(request);
	sftp_get_attrs(request, &attrs);
	if (request->bad)
		return;
	if (!handle) {
		sftp_answer_errno(request, EMFILE);
		return;
	}
	handle->fd = open(
		path, open_flags(wants), attrs.flags & SFTP_ATTR_MODE ? attrs.mode : (mode_t)0666);
	if (handle->fd < 0)
		sftp_answer_errno(request, errno);
	else
		answer_handle(sftp, request, handle);
}

void sftp_opendir(struct sftp *sftp, struct sftp_request *request)
{
	struct sftp_handle *handle = find_free(sftp);
	char path[SFTP_PATH_MAX + 1];

	sftp_get_text(request, path, sizeof path);
	if (request->bad)
		return;
	if (!handle) {
		sftp_answer_errno(request, EMFILE);
		return;
	}
	handle->dir = opendir(path);
	if (!handle->dir) {
		sftp_answer_errno(request, errno);
		return;
	}
	handle->fd = dirfd(handle->dir);
	answer_handle(sftp, request, handle);
}

void sftp_close(struct sftp *sftp, struct sftp_request *request)
{
	struct sftp_handle *handle = sftp_get_handle(sftp, request);
	int result;

	if (!check_handle(request, handle, true))
		return;
	result = handle->dir ? closedir(handle->dir) : close(handle->fd);
	*handle = (struct sftp_handle){ .fd = -1 };
	sftp_answer_result(request, result);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

void sftp_read(struct sftp *sftp, struct sftp_request *request)
{
	struct sftp_handle *handle = sftp_get_handle(sftp, request);
	uint64_t offset = sftp_get_u64(request);
	size_t len = sftp_get_u32(request);
	struct buf *out = request->out;
	uint8_t *at;
	ssize_t got;

	if (!check_handle(request, handle, false))
		return;
	len = MIN(len, (size_t)SFTP_DATA_MAX);
	at = buf_room(out, DATA_HEADER + len);
	do
		got = pread(handle->fd, at + DATA_HEADER, len, (off_t)offset);
	while (got < 0 && errno == EINTR);
	if (got < 0) {
		sftp_answer_errno(request, errno);
	} else if (!got && len) {
		sftp_answer_code(request, SFTP_EOF);
	} else {
		sftp_store_u32(at, (uint32_t)(DATA_HEADER - 4 + got));
		at[4] = SFTP_DATA;
		sftp_store_u32(at + 5, request->id);
		sftp_store_u32(at + 9, (uint32_t)got);
		buf_grew(out, DATA_HEADER + (size_t)got);
	}
}

static int write_all(int fd, const uint8_t *data, size_t len, uint64_t offset)
{
	while (len) {
		ssize_t put = pwrite(fd, data, len, (off_t)offset);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -1;
		data += put;
		len -= (size_t)put;
		offset += (uint64_t)put;
	}
	return 0;
}

void sftp_write(struct sftp *sftp, struct sftp_request *request)
{
	struct sftp_handle *handle = sftp_get_handle(sftp, request);
	uint64_t offset = sftp_get_u64(request);
	size_t len;
	const uint8_t *data = sftp_get_bytes(request, &len);

	/* A file opened to append takes them at its end, wherever they are meant for. */
	if (check_handle(request, handle, false))
		sftp_answer_result(request, write_all(handle->fd, data, len, offset));
}

/* ---- attributes ----------------------------------------------------------------------------- */

void sftp_fstat(struct sftp *sftp, struct sftp_request *request)
{
	struct sftp_handle *handle = sftp_get_handle(sftp, request);
	struct stat st;

	if (check_handle(request, handle, true))
		sftp_answer_stat(request, fstat(handle->fd, &st), &st);
}

void sftp_fsetstat(struct sftp *sftp, struct sftp_request *request)
{
	struct sftp_handle *handle = sftp_get_handle(sftp, request);
	struct sftp_attrs attrs;

	sftp_get_attrs(request, &attrs);
	if (check_handle(request, handle, true))
		sftp_set_attrs(request, handle->fd, NULL, 0, &attrs);
}

void sftp_fsync(struct sftp *sftp, struct sftp_request *request)
{
	struct sftp_handle *handle = sftp_get_handle(sftp, request);

	if (check_handle(request, handle, true))
		sftp_answer_result(request, fsync(handle->fd));
}

void sftp_fstatvfs(struct sftp *sftp, struct sftp_request *request)
{
	struct sftp_handle *handle = sftp_get_handle(sftp, request);
	struct statvfs st;

	if (check_handle(request, handle, true))
		sftp_answer_statvfs(request, fstatvfs(handle->fd, &st), &st);
}

/* ---- copies inside the box ------------------------------------------------------------------ */

static bool client_is_gone(void)
{
	struct pollfd in = { .fd = 0 };

	return poll(&in, 1, 0) > 0 && (in.revents & (POLLHUP | POLLERR));
}

/* File systems that cannot share or copy by themselves. */
static ssize_t copy_by_hand(int from, off_t *from_at, int to, off_t *to_at, size_t len)
{
	static uint8_t bytes[COPY_BUFFER];
	ssize_t got = pread(from, bytes, MIN(len, sizeof bytes), *from_at);

	if (got <= 0)
		return got;
	if (write_all(to, bytes, (size_t)got, (uint64_t)*to_at) < 0)
		return -1;
	*from_at += got;
	*to_at += got;
	return got;
}

/* len 0: to the end of the file. */
static enum sftp_code copy(
	int from, off_t from_at, int to, off_t to_at, uint64_t len, int *ret_errno)
{
	bool to_end = !len, by_hand = false;

	*ret_errno = 0;
	while (to_end || len) {
		size_t part = to_end ? COPY_CHUNK : (size_t)MIN(len, (uint64_t)COPY_CHUNK);
		ssize_t got = by_hand ? copy_by_hand(from, &from_at, to, &to_at, part)
				      : copy_file_range(from, &from_at, to, &to_at, part, 0);

		/* The kernel cannot copy between all files, and sees nothing in those of /proc. */
		if (got <= 0 && !by_hand) {
			by_hand = true;
			continue;
		}
		if (got < 0 || client_is_gone()) {
			*ret_errno = got < 0 ? errno : EPIPE;
			return SFTP_FAILURE;
		}
		if (!got)
			return to_end ? SFTP_OK : SFTP_EOF;
		len -= to_end ? 0 : (uint64_t)got;
	}
	return SFTP_OK;
}

static bool is_same_file(int one, int other)
{
	struct stat a, b;

	return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

void sftp_copy_data(struct sftp *sftp, struct sftp_request *request)
{
	struct sftp_handle *from = sftp_get_handle(sftp, request), *to;
	uint64_t from_at = sftp_get_u64(request), len = sftp_get_u64(request), to_at;
	enum sftp_code code;
	int why;

	to = sftp_get_handle(sftp, request);
	to_at = sftp_get_u64(request);
	if (!check_handle(request, from, false) || !check_handle(request, to, false))
		return;
	if (is_same_file(from->fd, to->fd)) {
		sftp_answer_code(request, SFTP_FAILURE);
		return;
	}
	code = copy(from->fd, (off_t)from_at, to->fd, (off_t)to_at, len, &why);
	if (why)
		sftp_answer_errno(request, why);
	else
		sftp_answer_code(request, code);
}
