/* export_layer.c - a layer as a blob
 *
 * A layer on disk has the format of overlayfs. src/view writes its changes to the layers below
 * as a tar with whiteouts, in a process of its own, while this process hashes, compresses and
 * hashes again:
 *
 *   view (child) ──► pipe ──► [diff id] ──► gzip ──► [digest] ──► a file without a name in
 *   BOX_HOME/downloads */
#include "image/oci_internal.h"
#include "base/file.h"
#include "tar/tar.h"
#include "view/view.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <zlib.h>

enum { CHUNK = 256 * 1024 };

/* ---- a layer as tar ------------------------------------------------------------------------- */

/* src/view packs no entry for the root itself; its mode and owner belong to the image, too. */
static int pack_root(const char *const *layers, int out, struct err *err)
{
	struct buf header = BUF_INIT;
	struct stat st;
	int code;

	if (stat(layers[0], &st) < 0)
		return err_sys(err, errno, "open the layer '%s'", layers[0]);
	tar_put_header(&header, &(struct tar_entry){ .type = TAR_DIR,
					.name = ".",
					.mode = st.st_mode & 07777,
					.uid = st.st_uid,
					.gid = st.st_gid,
					.mtime = st.st_mtim.tv_sec,
					.mtime_ns = (uint32_t)st.st_mtim.tv_nsec });
	code = fd_write_all(out, buf_head(&header), header.len, err);
	buf_done(&header);
	return code;
}

static int pack_tree(const char *const *layers, bool as_layer, int out, struct err *err)
{
	_cleanup_close_ int root = -1;
	struct view_totals totals;

	if (view_open(layers, &root, err) < 0)
		return -1;
	return view_pack(
		&(struct view_pack_spec){
			.root = root, .path = "", .out = out, .as_layer = as_layer },
		&totals, err);
}

/* Packs what the layer at index (topmost first) changes in those below it. */
static int pack_layer(const struct image *image, size_t index, int out, struct err *err)
{
	const char *const *layers = (const char *const *)image->layers + index;
	struct view_totals totals;

	if (pack_root(layers, out, err) < 0)
		return -1;
	return layers[1] ? view_diff_pack(layers + 1, layers, out, &totals, err)
			 : pack_tree(layers, true, out, err);
}

/* An error of the packer comes through a pipe of its own: struct err is a plain value. */
struct packer {
	pid_t pid;
	int tar, why;
};

static int packer_start(
	const struct image *image, size_t index, struct packer *ret, struct err *err)
{
	int tar[2], why[2];

	if (pipe2(tar, O_CLOEXEC) < 0 || pipe2(why, O_CLOEXEC) < 0)
		return err_sys(err, errno, "pipe");
	fcntl(tar[1], F_SETPIPE_SZ, 1024 * 1024); /* only for speed */
	ret->pid = fork();
	if (ret->pid == 0) {
		struct err mine = ERR_INIT;
		int code;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(tar[0]);
		code = pack_layer(image, index, tar[1], &mine);
		if (code < 0)
			fd_write_all(why[1], &mine, sizeof mine, NULL);
		_exit(code < 0);
	}
	close(tar[1]);
	close(why[1]);
	ret->tar = tar[0];
	ret->why = why[0];
	return ret->pid < 0 ? err_sys(err, errno, "fork") : 0;
}

/* The archive is valid only if the packer ended without an error. */
static int packer_end(struct packer *packer, struct err *err)
{
	struct err why;
	int status = 0, code = 0;

	close(packer->tar);
	while (waitpid(packer->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		if (read(packer->why, &why, sizeof why) == sizeof why && err)
			*err = why;
		else
			err_set(err, ERR_SYSTEM, "packing a layer was interrupted");
		code = -1;
	}
	close(packer->why);
	return code;
}

/* ---- the blob ------------------------------------------------------------------------------- */

struct blob_writer {
	int fd;
	bool compress;
	z_stream gzip;
	struct sha256 *plain, *packed;
	uint64_t size;
	uint8_t *out;
	struct room room;
};

static int blob_put(struct blob_writer *writer, const void *data, size_t len, struct err *err)
{
	sha256_add(writer->packed, data, len);
	writer->size += len;
	if (room_take(&writer->room, len, err) < 0 || fd_write_all(writer->fd, data, len, err) < 0)
		return room_explain(err);
	return 0;
}

static int blob_deflate(
	struct blob_writer *writer, const uint8_t *data, size_t len, int flush, struct err *err)
{
	writer->gzip.next_in = (uint8_t *)data;
	writer->gzip.avail_in = (unsigned)len;
	do {
		writer->gzip.next_out = writer->out;
		writer->gzip.avail_out = CHUNK;
		if (deflate(&writer->gzip, flush) == Z_STREAM_ERROR)
			return err_set(err, ERR_SYSTEM, "cannot compress");
		if (blob_put(writer, writer->out, CHUNK - writer->gzip.avail_out, err) < 0)
			return -1;
	} while (!writer->gzip.avail_out);
	return 0;
}

static int blob_fill(struct blob_writer *writer, int in, struct err *err)
{
	_cleanup_free_ uint8_t *data = xcalloc(1, CHUNK);
	ssize_t got;

	while ((got = read(in, data, CHUNK)) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_sys(err, errno, "read a layer");
		sha256_add(writer->plain, data, (size_t)got);
		if ((writer->compress ? blob_deflate(writer, data, (size_t)got, Z_NO_FLUSH, err)
				      : blob_put(writer, data, (size_t)got, err)) < 0)
			return -1;
	}
	return writer->compress ? blob_deflate(writer, NULL, 0, Z_FINISH, err) : 0;
}

static int write_blob(
	const struct images *images, int in, bool compress, struct exported *ret, struct err *err)
{
	struct blob_writer writer = {
		.fd = ret->fd, .compress = compress, .room = { .images = images }
	};
	int code;

	if (writer.compress &&
		deflateInit2(&writer.gzip, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return err_set(err, ERR_SYSTEM, "cannot compress");
	writer.plain = sha256_new();
	writer.packed = sha256_new();
	writer.out = xcalloc(1, CHUNK);
	code = blob_fill(&writer, in, err);
	sha256_end(writer.plain, ret->diff_id);
	sha256_end(writer.packed, ret->blob.digest);
	ret->blob.size = writer.size;
	if (writer.compress)
		deflateEnd(&writer.gzip);
	free(writer.out);
	return code;
}

int export_layer(const struct images *images, const struct image *image, size_t index,
	bool compress, struct exported *ret, struct err *err)
{
	struct packer packer;
	struct err failed = ERR_INIT;
	int code;

	ret->fd = open(images->downloads_path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (ret->fd < 0)
		return err_sys(err, errno, "create a file in '%s'", images->downloads_path);
	if (packer_start(image, index, &packer, err) < 0)
		return -1;
	code = write_blob(images, packer.tar, compress, ret, &failed);
	if (code < 0) {
		kill(packer.pid, SIGKILL);
		packer_end(&packer, NULL); /* the packer's own error does not matter here */
		if (err)
			*err = failed;
		return -1;
	}
	return packer_end(&packer, err);
}

int export_rootfs(const struct image *image, int out, struct err *err)
{
	const char *const *layers = (const char *const *)image->layers;

	return pack_root(layers, out, err) < 0 ? -1 : pack_tree(layers, false, out, err);
}
