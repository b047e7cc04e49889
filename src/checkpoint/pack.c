/* pack.c - writes a plain form into one compressed stream; runs in a helper
 *
 * Level 1: memory of programs shrinks to a third or less at half a gigabyte a second, and the
 * next levels gain a few percent for twice the time. One thread: at most two checkpoints are
 * packed at a time, and boxes need the other cores. Each file is a frame of its own, so that an
 * error can name the damaged file. */
#include "checkpoint/checkpoints_internal.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/sha256.h"
#include <errno.h>
#include <fcntl.h>
#include <zstd.h>

enum {
	LEVEL = 1,
	IN_SIZE = 256 * 1024,
	OUT_SIZE = 512 * 1024,
	SMALL = 4 * 1024 * 1024,
	WRITE_BACK = 8 * 1024 *
		     1024, /* how often writeback is started, so that the final sync is short */
};

struct packer {
	int fd;
	ZSTD_CCtx *zstd;
	struct sha256 *sha;
	uint8_t *in, *out;
	size_t held;	  /* bytes in out */
	uint64_t written; /* to fd */
	uint64_t pushed;  /* of these, bytes whose writeback was started */
};

static int flush(struct packer *packer, struct err *err)
{
	sha256_add(packer->sha, packer->out, packer->held);
	/* Boxes use that disk too: packing a large box must not fill it. */
	if (packer->written >= SMALL && checkpoint_disk_room(packer->fd) < packer->held)
		return err_set(
			err, ERR_LIMIT, "the disk of BOX_HOME has no room for the checkpoint");
	if (fd_write_all(packer->fd, packer->out, packer->held, err) < 0)
		return err_wrap(err, "'%s'", PACKED_NAME);
	packer->written += packer->held;
	packer->held = 0;
	if (packer->written - packer->pushed >= WRITE_BACK) {
		sync_file_range(packer->fd, (off_t)packer->pushed,
			(off_t)(packer->written - packer->pushed), SYNC_FILE_RANGE_WRITE);
		packer->pushed = packer->written;
	}
	return 0;
}

static int begin_frame(struct packer *packer, uint64_t size, struct err *err)
{
	size_t code;

	ZSTD_CCtx_reset(packer->zstd, ZSTD_reset_session_only);
	code = ZSTD_CCtx_setPledgedSrcSize(packer->zstd, size);
	if (ZSTD_isError(code))
		return err_set(err, ERR_SYSTEM, "compress: %s", ZSTD_getErrorName(code));
	return 0;
}

/* Adds data to the current frame; last: ends the frame. */
static int add(struct packer *packer, const void *data, size_t len, bool last, struct err *err)
{
	ZSTD_inBuffer in = { data, len, 0 };
	size_t left;

	do {
		ZSTD_outBuffer out = { packer->out, OUT_SIZE, packer->held };

		left = ZSTD_compressStream2(
			packer->zstd, &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
		if (ZSTD_isError(left))
			return err_set(err, ERR_SYSTEM, "compress: %s", ZSTD_getErrorName(left));
		packer->held = out.pos;
		if (packer->held == OUT_SIZE && flush(packer, err) < 0)
			return -1;
	} while (last ? left != 0 : in.pos < in.size);
	return 0;
}

static int add_list(
	struct packer *packer, const char *id, const struct checkpoint_list *list, struct err *err)
{
	struct buf bytes = BUF_INIT;
	int ret;

	checkpoint_list_put(&bytes, id, list);
	ret = begin_frame(packer, bytes.len, err);
	if (ret == 0)
		ret = add(packer, buf_head(&bytes), bytes.len, true, err);
	buf_done(&bytes);
	return ret;
}

/* Adds as many bytes as the list says: what was appended since is left out. */
static int add_file(
	struct packer *packer, int plain, const struct checkpoint_file *file, struct err *err)
{
	_cleanup_close_ int fd = openat(
		plain, file->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	uint64_t left = file->size;

	if (fd < 0)
		return err_sys(err, errno, "open '%s'", file->name);
	if (begin_frame(packer, file->size, err) < 0)
		return -1;
	do {
		ssize_t got = read(fd, packer->in, MIN(left, IN_SIZE));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_sys(err, errno, "read '%s'", file->name);
		if (got == 0 && left)
			return err_set(err, ERR_STATE, "'%s' became shorter while it was packed",
				file->name);
		left -= (uint64_t)got;
		if (add(packer, packer->in, (size_t)got, !left, err) < 0)
			return -1;
	} while (left);
	return 0;
}

static int add_trailer(struct packer *packer, struct err *err)
{
	uint8_t trailer[CHECKPOINT_TRAILER_SIZE];
	char digest[DIGEST_SIZE];

	if (flush(packer, err) < 0)
		return -1;
	sha256_end(steal_ptr(&packer->sha), digest);
	checkpoint_trailer_put(trailer, packer->written, digest);
	packer->written += sizeof trailer;
	if (fd_write_all(packer->fd, trailer, sizeof trailer, err) < 0)
		return err_wrap(err, "'%s'", PACKED_NAME);
	return 0;
}

static int pack_all(struct packer *packer, int plain, const char *id, struct err *err)
{
	struct checkpoint_list list;
	int ret;

	if (checkpoint_list_scan(plain, &list, err) < 0)
		return -1;
	ret = add_list(packer, id, &list, err);
	for (size_t i = 0; i < list.count && ret == 0; i++)
		ret = add_file(packer, plain, &list.files[i], err);
	checkpoint_list_done(&list);
	return ret == 0 ? add_trailer(packer, err) : -1;
}

int checkpoint_pack(int plain, const char *id, int fd, uint64_t *ret_bytes, struct err *err)
{
	struct packer packer = { .fd = fd, .zstd = ZSTD_createCCtx(), .sha = sha256_new() };
	int ret = -1;

	packer.in = malloc(IN_SIZE); /* not zeroed: most checkpoints fill little of it */
	packer.out = malloc(OUT_SIZE);
	if (!packer.zstd || !packer.in || !packer.out) {
		err_set(err, ERR_LIMIT, "no memory for packing");
	} else {
		ZSTD_CCtx_setParameter(packer.zstd, ZSTD_c_compressionLevel, LEVEL);
		ZSTD_CCtx_setParameter(packer.zstd, ZSTD_c_checksumFlag, 1);
		ret = pack_all(&packer, plain, id, err);
	}
	ZSTD_freeCCtx(packer.zstd);
	sha256_free(packer.sha);
	free(packer.in);
	free(packer.out);
	if (ret == 0)
		*ret_bytes = packer.written;
	return ret;
}
