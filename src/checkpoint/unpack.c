/* unpack.c - unpacks a checkpoint into files; runs in a helper
 *
 * The input may be damaged in any way, or made by an attacker: every size is known before the
 * bytes come, no frame may give one byte more or less than announced, and zstd's window is
 * limited. A changed byte is found by zstd's checksum of its frame, which tells the file; a byte
 * that zstd ignores (there are some in frame headers) is found by the SHA-256 at the end. */
#include "checkpoint/checkpoints_internal.h"
#include "base/sha256.h"
#include <errno.h>
#include <fcntl.h>
#include <zstd.h>

enum {
	IN_SIZE = 256 * 1024,
	OUT_SIZE = 128 * 1024,
	WINDOW_LOG_MAX = 23, /* 8 MiB; the packer's level needs half a MiB */
};

struct unpacker {
	const struct checkpoint_source *source;
	ZSTD_DCtx *zstd;
	struct sha256 *sha; /* of all bytes read */
	uint8_t *in, *out;
	size_t at, have; /* in in */
	uint64_t taken;
	bool at_end;	   /* of the source */
	const char *where; /* the file whose frame is being read; NULL: the list or the trailer */
};

static int damaged(const struct unpacker *unpacker, const char *why, struct err *err)
{
	if (unpacker->where)
		return err_set(err, ERR_PROTOCOL, "'%s' is damaged at '%s': %s", PACKED_NAME,
			unpacker->where, why);
	return err_set(err, ERR_PROTOCOL, "'%s' is damaged: %s", PACKED_NAME, why);
}

static int fill(struct unpacker *unpacker, struct err *err)
{
	ssize_t got;

	if (unpacker->at_end || unpacker->at < unpacker->have)
		return 0;
	got = unpacker->source->read(unpacker->source->arg, unpacker->in, IN_SIZE, err);
	if (got < 0)
		return -1;
	unpacker->at = 0;
	unpacker->have = (size_t)got;
	unpacker->at_end = got == 0;
	return 0;
}

static void take(struct unpacker *unpacker, size_t len)
{
	sha256_add(unpacker->sha, unpacker->in + unpacker->at, len);
	unpacker->at += len;
	unpacker->taken += len;
}

/* Reads up to len bytes of the current frame; fewer only at its end, which *ret_end reports. */
static ssize_t frame_read(
	struct unpacker *unpacker, void *data, size_t len, bool *ret_end, struct err *err)
{
	ZSTD_outBuffer out = { data, len, 0 };

	*ret_end = false;
	for (;;) {
		size_t before = out.pos, code;
		ZSTD_inBuffer in;

		if (fill(unpacker, err) < 0)
			return -1;
		in = (ZSTD_inBuffer){ unpacker->in, unpacker->have, unpacker->at };
		code = ZSTD_decompressStream(unpacker->zstd, &out, &in);
		if (ZSTD_isError(code))
			return damaged(unpacker, ZSTD_getErrorName(code), err);
		take(unpacker, in.pos - unpacker->at);
		if (code == 0) {
			*ret_end = true;
			return (ssize_t)out.pos;
		}
		if (out.pos == len)
			return (ssize_t)out.pos;
		if (unpacker->at_end && out.pos == before)
			return damaged(unpacker, "it ends too early", err);
	}
}

/* All announced bytes have come: the frame must end here. */
static int frame_end(struct unpacker *unpacker, bool ended, struct err *err)
{
	uint8_t more;

	if (ended)
		return 0;
	switch (frame_read(unpacker, &more, 1, &ended, err)) {
	case -1:
		return -1;
	case 0:
		return 0;
	default:
		return damaged(unpacker, "more bytes than announced", err);
	}
}

/* ---- the parts ------------------------------------------------------------------------------ */

static int read_list(
	struct unpacker *unpacker, const char *id, struct checkpoint_list *ret, struct err *err)
{
	_cleanup_free_ uint8_t *bytes = malloc(CHECKPOINT_LIST_BYTES_MAX);
	const char *why;
	bool ended;
	ssize_t len;

	if (!bytes)
		return err_set(err, ERR_LIMIT, "no memory for unpacking");
	len = frame_read(unpacker, bytes, CHECKPOINT_LIST_BYTES_MAX, &ended, err);
	if (len < 0 || frame_end(unpacker, ended, err) < 0)
		return -1; /* NOLINT(clang-analyzer-unix.Malloc): bytes frees itself */
	if (checkpoint_list_get(bytes, (size_t)len, id, ret, &why) < 0)
		return damaged(unpacker, why, err);
	return 0;
}

static bool is_zero(const uint8_t *data, size_t len)
{
	return !data[0] && !memcmp(data, data + 1, len - 1);
}

/* Leaves out zeros: memory has many, and a hole reads as zeros. */
static int put(int fd, const uint8_t *data, size_t len, uint64_t at, struct err *err)
{
	while (len && !is_zero(data, len)) {
		ssize_t n = pwrite(fd, data, len, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(err, errno, "write");
		data += n;
		at += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int read_content(struct unpacker *unpacker, uint64_t size, int fd, struct err *err)
{
	bool ended = false;
	uint64_t at = 0;

	while (at < size) {
		size_t want = MIN(size - at, OUT_SIZE);
		ssize_t got = frame_read(unpacker, unpacker->out, want, &ended, err);

		if (got < 0)
			return -1;
		if ((size_t)got < want)
			return damaged(unpacker, "fewer bytes than announced", err);
		if (fd >= 0 && put(fd, unpacker->out, want, at, err) < 0)
			return err_wrap(err, "'%s'", unpacker->where);
		at += want;
		if (ended && at < size)
			return damaged(unpacker, "fewer bytes than announced", err);
	}
	if (frame_end(unpacker, ended, err) < 0)
		return -1;
	if (fd >= 0 && size && ftruncate(fd, (off_t)size) < 0)
		return err_sys(err, errno, "set the size of '%s'", unpacker->where);
	return 0;
}

static int read_file(
	struct unpacker *unpacker, const struct checkpoint_file *file, int dir, struct err *err)
{
	_cleanup_close_ int fd = -1;

	unpacker->where = file->name;
	if (dir >= 0) {
		fd = openat(dir, file->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
			0644);
		if (fd < 0)
			return err_sys(err, errno, "make '%s'", file->name);
	}
	return read_content(unpacker, file->size, fd, err);
}

static int read_trailer(struct unpacker *unpacker, struct err *err)
{
	uint8_t found[CHECKPOINT_TRAILER_SIZE], want[CHECKPOINT_TRAILER_SIZE];
	char digest[DIGEST_SIZE];
	size_t have = 0;

	unpacker->where = NULL;
	sha256_end(steal_ptr(&unpacker->sha), digest);
	checkpoint_trailer_put(want, unpacker->taken, digest);
	while (have < sizeof found) {
		size_t part;

		if (fill(unpacker, err) < 0)
			return -1;
		if (unpacker->at_end)
			return damaged(unpacker, "it ends too early", err);
		part = MIN(sizeof found - have, unpacker->have - unpacker->at);
		memcpy(found + have, unpacker->in + unpacker->at, part);
		unpacker->at += part;
		have += part;
	}
	if (memcmp(found, want, sizeof want))
		return damaged(unpacker, "its SHA-256 is not the one that was written", err);
	if (fill(unpacker, err) < 0)
		return -1;
	return unpacker->at_end ? 0 : damaged(unpacker, "something follows its end", err);
}

static int unpack_all(struct unpacker *unpacker, const char *id,
	const struct checkpoint_place *place, struct err *err)
{
	struct checkpoint_list list;
	int dir = -1, ret = 0;

	if (read_list(unpacker, id, &list, err) < 0)
		return -1;
	if (place) {
		dir = place->open(place->arg, list.total, err);
		ret = dir < 0 ? -1 : 0;
	}
	for (size_t i = 0; i < list.count && ret == 0; i++)
		ret = read_file(unpacker, &list.files[i], dir, err);
	checkpoint_list_done(&list);
	return ret == 0 ? read_trailer(unpacker, err) : -1;
}

int checkpoint_unpack(const struct checkpoint_source *source, const char *id,
	const struct checkpoint_place *place, struct err *err)
{
	struct unpacker unpacker = {
		.source = source, .zstd = ZSTD_createDCtx(), .sha = sha256_new()
	};
	int ret = -1;

	unpacker.in = malloc(IN_SIZE);
	unpacker.out = malloc(OUT_SIZE);
	if (!unpacker.zstd || !unpacker.in || !unpacker.out) {
		err_set(err, ERR_LIMIT, "no memory for unpacking");
	} else {
		ZSTD_DCtx_setParameter(unpacker.zstd, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
		ret = unpack_all(&unpacker, id, place, err);
	}
	ZSTD_freeDCtx(unpacker.zstd);
	sha256_free(unpacker.sha);
	free(unpacker.in);
	free(unpacker.out);
	return ret;
}
