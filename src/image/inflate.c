/* inflate.c - gzip, zstd, xz or plain, detected from the first bytes
 *
 * All three may consist of several parts one after the other (members, frames, streams), as
 * parallel compressors and `cat` make them. A stream that ends inside a part is an error; zeros
 * after the last part of a gzip stream are padding from tapes and are skipped. The size of the
 * output is not limited here: feed.c checks the ratio, and the reader counts the bytes. Memory
 * is bounded: xz and zstd streams that need a larger window are refused. */
#include "image/oci_internal.h"
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

enum { IN_SIZE = 256 * 1024, MAGIC_MAX = 6 };
#define XZ_MEMORY_MAX (256ull << 20)

struct coder {
	const char *name;
	uint8_t magic[MAGIC_MAX];
	size_t magic_len;
	int (*open)(struct inflate *inflate, struct err *err);
	/* Decompresses input into up to len bytes of data. Returns how many; 0: more input is
	 * needed. */
	ssize_t (*step)(struct inflate *inflate, void *data, size_t len, struct err *err);
	void (*close)(struct inflate *inflate);
};

struct inflate {
	read_fn read;
	void *arg;
	const struct coder *coder; /* NULL: not known yet */
	uint8_t *in;
	size_t pos, have;
	bool at_end;  /* of the input */
	bool in_part; /* a member, frame or stream has begun and not ended */
	z_stream gzip;
	ZSTD_DStream *zstd;
	lzma_stream xz;
};

/* ---- plain ---------------------------------------------------------------------------------- */

static ssize_t plain_step(struct inflate *inflate, void *data, size_t len, struct err *err)
{
	size_t part = MIN(len, inflate->have - inflate->pos);

	(void)err;
	memcpy(data, inflate->in + inflate->pos, part);
	inflate->pos += part;
	return (ssize_t)part;
}

/* ---- gzip ----------------------------------------------------------------------------------- */

static int gzip_open(struct inflate *inflate, struct err *err)
{
	if (inflateInit2(&inflate->gzip, 15 + 16) != Z_OK)
		return err_set(err, ERR_SYSTEM, "cannot decompress gzip");
	return 0;
}

/* Between two members: either another one or nothing but zeros. */
static bool gzip_pass_zeros(struct inflate *inflate)
{
	while (inflate->pos < inflate->have && !inflate->in[inflate->pos])
		inflate->pos++;
	return inflate->pos == inflate->have;
}

static ssize_t gzip_step(struct inflate *from, void *data, size_t len, struct err *err)
{
	z_stream *stream = &from->gzip;
	int code;

	if (!from->in_part && gzip_pass_zeros(from))
		return 0;
	from->in_part = true;
	stream->next_in = from->in + from->pos;
	stream->avail_in = (unsigned)(from->have - from->pos);
	stream->next_out = data;
	stream->avail_out = (unsigned)MIN(len, (size_t)1 << 30);
	code = inflate(stream, Z_NO_FLUSH);
	from->pos = from->have - stream->avail_in;
	if (code == Z_STREAM_END) {
		from->in_part = false;
		inflateReset(stream);
	} else if (code != Z_OK && code != Z_BUF_ERROR) {
		return err_set(err, ERR_INVALID, "damaged gzip data");
	}
	return (ssize_t)(stream->next_out - (uint8_t *)data);
}

static void gzip_close(struct inflate *inflate)
{
	inflateEnd(&inflate->gzip);
}

/* ---- zstd ----------------------------------------------------------------------------------- */

static int zstd_open(struct inflate *inflate, struct err *err)
{
	inflate->zstd = ZSTD_createDStream();
	if (!inflate->zstd)
		return err_set(err, ERR_SYSTEM, "cannot decompress zstd");
	return 0;
}

static ssize_t zstd_step(struct inflate *inflate, void *data, size_t len, struct err *err)
{
	ZSTD_inBuffer in = { inflate->in, inflate->have, inflate->pos };
	ZSTD_outBuffer out = { data, len, 0 };
	size_t code;

	if (!inflate->in_part && in.pos == in.size)
		return 0; /* between frames; asking zstd now would start a new frame */
	code = ZSTD_decompressStream(inflate->zstd, &out, &in);
	if (ZSTD_isError(code))
		return err_set(err, ERR_INVALID, "damaged zstd data (%s)", ZSTD_getErrorName(code));
	inflate->pos = in.pos;
	inflate->in_part = code != 0;
	return (ssize_t)out.pos;
}

static void zstd_close(struct inflate *inflate)
{
	ZSTD_freeDStream(inflate->zstd);
}

/* ---- xz ------------------------------------------------------------------------------------- */

static int xz_open(struct inflate *inflate, struct err *err)
{
	inflate->xz = (lzma_stream)LZMA_STREAM_INIT;
	if (lzma_stream_decoder(&inflate->xz, XZ_MEMORY_MAX, LZMA_CONCATENATED) != LZMA_OK)
		return err_set(err, ERR_SYSTEM, "cannot decompress xz");
	inflate->in_part = true; /* until it has seen the end of the input */
	return 0;
}

static ssize_t xz_step(struct inflate *inflate, void *data, size_t len, struct err *err)
{
	lzma_stream *stream = &inflate->xz;
	lzma_ret code;

	if (!inflate->in_part)
		return 0;
	stream->next_in = inflate->in + inflate->pos;
	stream->avail_in = inflate->have - inflate->pos;
	stream->next_out = data;
	stream->avail_out = len;
	code = lzma_code(stream, inflate->at_end ? LZMA_FINISH : LZMA_RUN);
	inflate->pos = inflate->have - stream->avail_in;
	if (code == LZMA_STREAM_END)
		inflate->in_part = false;
	else if (code == LZMA_MEMLIMIT_ERROR)
		return err_set(err, ERR_UNSUPPORTED, "the xz data needs more memory than %llu MiB",
			XZ_MEMORY_MAX >> 20);
	else if (code != LZMA_OK && code != LZMA_BUF_ERROR)
		return err_set(err, ERR_INVALID, "damaged xz data");
	return (ssize_t)(len - stream->avail_out);
}

static void xz_close(struct inflate *inflate)
{
	lzma_end(&inflate->xz);
}

/* bzip2 is recognised only to be refused by name instead of as a damaged archive. */
static const struct coder coders[] = {
	{ "gzip", { 0x1f, 0x8b }, 2, gzip_open, gzip_step, gzip_close },
	{ "zstd", { 0x28, 0xb5, 0x2f, 0xfd }, 4, zstd_open, zstd_step, zstd_close },
	{ "xz", { 0xfd, '7', 'z', 'X', 'Z', 0 }, 6, xz_open, xz_step, xz_close },
	{ "bzip2", { 'B', 'Z', 'h' }, 3, NULL, NULL, NULL },
};
static const struct coder plain = { .name = "plain", .step = plain_step };

/* ---- all formats ---------------------------------------------------------------------------- */

struct inflate *inflate_new(read_fn read, void *arg)
{
	struct inflate *inflate = xnew(struct inflate);

	inflate->read = read;
	inflate->arg = arg;
	inflate->in = xcalloc(1, IN_SIZE);
	return inflate;
}

void inflate_free(struct inflate *inflate)
{
	if (!inflate)
		return;
	if (inflate->coder && inflate->coder->close)
		inflate->coder->close(inflate);
	free(inflate->in);
	free(inflate);
}

bool inflate_is_plain(const struct inflate *inflate)
{
	return inflate->coder == &plain;
}

/* Reads more input after what is in the buffer. */
static int refill(struct inflate *inflate, struct err *err)
{
	ssize_t got;

	if (inflate->pos == inflate->have)
		inflate->pos = inflate->have = 0;
	got = inflate->read(
		inflate->arg, inflate->in + inflate->have, IN_SIZE - inflate->have, err);
	if (got < 0)
		return -1;
	inflate->at_end = got == 0;
	inflate->have += (size_t)got;
	return 0;
}

static int recognise(struct inflate *inflate, struct err *err)
{
	const struct coder *coder = &plain;

	while (inflate->have < MAGIC_MAX && !inflate->at_end)
		if (refill(inflate, err) < 0)
			return -1;
	for (size_t i = 0; i < ARRAY_LEN(coders); i++)
		if (inflate->have >= coders[i].magic_len &&
			!memcmp(inflate->in, coders[i].magic, coders[i].magic_len))
			coder = &coders[i];
	if (!coder->step)
		return err_set(err, ERR_UNSUPPORTED,
			"%s is not supported; gzip, zstd, xz and plain are", coder->name);
	if (coder->open && coder->open(inflate, err) < 0)
		return -1;
	inflate->coder = coder;
	return 0;
}

ssize_t inflate_read(void *arg, void *data, size_t len, struct err *err)
{
	struct inflate *inflate = arg;

	if (!inflate->coder && recognise(inflate, err) < 0)
		return -1;
	for (;;) {
		size_t before = inflate->pos;
		ssize_t got = inflate->coder->step(inflate, data, len, err);

		if (got)
			return got;
		if (inflate->pos < inflate->have && inflate->pos == before)
			return err_set(err, ERR_INVALID, "damaged %s data", inflate->coder->name);
		if (inflate->at_end && inflate->in_part)
			return err_set(err, ERR_INVALID, "the %s data ends too early",
				inflate->coder->name);
		if (inflate->at_end && inflate->pos == inflate->have)
			return 0;
		if (inflate->pos == inflate->have && refill(inflate, err) < 0)
			return -1;
	}
}
