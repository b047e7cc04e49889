/* fuzz_checkpoint.c - arbitrary bytes as a packed checkpoint
 *
 * The first byte tells what the rest is: the stream itself; or the list of files and then their
 * contents, which are compressed here into frames with the right checksums and the right sum at the
 * end. So the list and what follows it are tried as well as zstd's own format. Checkpoints are
 * really unpacked, in a folder of /dev/shm: what comes out has the names and sizes that were
 * announced, and nothing lies beside it. */
#include "checkpoint/checkpoints_internal.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/sha256.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <zstd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

enum kind { KIND_STREAM, KIND_LIST, KIND_COUNT };
enum { TOTAL_MAX = 1 << 20 }; /* of what a test unpacks */

static char base[64];
static int base_fd = -1, out_fd = -1;

/* ---- streams -------------------------------------------------------------------------------- */

static void put_frame(struct buf *out, const void *data, size_t len)
{
	static ZSTD_CCtx *zstd;
	size_t got;

	if (!zstd) {
		zstd = ZSTD_createCCtx();
		ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
	}
	got = ZSTD_compress2(
		zstd, buf_room(out, ZSTD_compressBound(len)), ZSTD_compressBound(len), data, len);
	if (ZSTD_isError(got))
		abort();
	buf_grew(out, got);
}

static void put_trailer(struct buf *out)
{
	uint8_t trailer[CHECKPOINT_TRAILER_SIZE];
	char digest[DIGEST_SIZE];

	digest_of(buf_head(out), out->len, digest);
	checkpoint_trailer_put(trailer, out->len, digest);
	buf_add(out, trailer, sizeof trailer);
}

/* u16 length of the list, list, then a byte of length before the bytes of each frame. */
static void make_stream(struct buf *out, const uint8_t *data, size_t size)
{
	size_t list = size < 2 ? 0 : MIN((size_t)(data[0] | data[1] << 8), size - 2);

	put_frame(out, data + MIN(size, 2), list);
	data += MIN(size, list + 2);
	size -= MIN(size, list + 2);
	while (size) {
		size_t len = MIN(data[0], size - 1);

		put_frame(out, data + 1, len);
		data += len + 1;
		size -= len + 1;
	}
	put_trailer(out);
}

static void make_seed(struct buf *out, unsigned seed)
{
	static const struct checkpoint_file files[] = { { "a.img", 3 }, { "b", 0 },
		{ "pages-1.img", 5 } };
	struct checkpoint_list list = { (struct checkpoint_file *)files, seed % 4, 0 };
	struct buf bytes = BUF_INIT, stream = BUF_INIT;
	uint8_t len[2];

	for (size_t i = 0; i < list.count; i++)
		list.total += files[i].size;
	checkpoint_list_put(&bytes, "id", &list);
	len[0] = (uint8_t)bytes.len;
	len[1] = 0;
	buf_add(&stream, len, 2);
	buf_add(&stream, buf_head(&bytes), bytes.len);
	for (size_t i = 0; i < list.count; i++) {
		uint8_t size = (uint8_t)files[i].size;

		buf_add(&stream, &size, 1);
		buf_add(&stream, "abcde", size);
	}
	buf_addf(out, "%c", seed & 4 ? KIND_STREAM : KIND_LIST);
	if (seed & 4)
		make_stream(out, buf_head(&stream), stream.len);
	else
		buf_add(out, buf_head(&stream), stream.len);
	buf_done(&bytes);
	buf_done(&stream);
}

/* Now and then from the start again, and there often as it is: few lists survive a mutation. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	if ((size < 16 || seed % 16 == 0) && max >= 1024) {
		struct buf out = BUF_INIT;

		seed /= 16;
		make_seed(&out, seed);
		size = MIN(out.len, max);
		memcpy(data, buf_head(&out), size);
		buf_done(&out);
		if (seed & 8)
			return size;
	}
	return LLVMFuzzerMutate(data, size, max);
}

/* ---- unpacking ------------------------------------------------------------------------------ */

struct source {
	const uint8_t *data;
	size_t left, step;
};

static ssize_t read_source(void *arg, void *data, size_t len, struct err *err)
{
	struct source *source = arg;

	(void)err;
	len = MIN(MIN(len, source->left), source->step);
	if (!len)
		return 0;
	memcpy(data, source->data, len);
	source->data += len;
	source->left -= len;
	return (ssize_t)len;
}

static uint64_t announced;

static int open_place(void *arg, uint64_t total, struct err *err)
{
	(void)arg;
	if (total > TOTAL_MAX)
		return err_set(err, ERR_LIMIT, "too large for a test");
	announced = total;
	return out_fd;
}

/* Everything in the folder, removed again; gives the bytes. */
static uint64_t clear_out(void)
{
	DIR *dir = fdopendir(openat(out_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct dirent *entry;
	uint64_t bytes = 0;
	struct stat st;

	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.' && (!entry->d_name[1] || !strcmp(entry->d_name, "..")))
			continue;
		if (!checkpoint_name_is_good(entry->d_name, strlen(entry->d_name)) ||
			fstatat(out_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
			!S_ISREG(st.st_mode) || unlinkat(out_fd, entry->d_name, 0) < 0)
			__builtin_trap();
		bytes += (uint64_t)st.st_size;
	}
	closedir(dir);
	return bytes;
}

static void check_beside(void)
{
	DIR *dir = fdopendir(openat(base_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	unsigned count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	if (count != 3)
		__builtin_trap();
}

static void unpack(const uint8_t *data, size_t size, size_t step)
{
	const struct checkpoint_place place = { open_place, NULL };
	struct source first = { data, size, step }, second = { data, size, size + 1 };
	const struct checkpoint_source source = { read_source, &first },
				       again = { read_source, &second };
	struct err err = ERR_INIT;
	uint64_t bytes;
	int ret;

	ret = checkpoint_unpack(&source, "id", &place, &err);
	if (ret < 0 && err.kind != ERR_PROTOCOL && err.kind != ERR_LIMIT)
		__builtin_trap();
	bytes = clear_out();
	if (ret == 0 && bytes != announced)
		__builtin_trap();
	if (bytes > TOTAL_MAX)
		__builtin_trap();
	check_beside();
	/* However the bytes come, and whether files are made or not, the verdict is the same. */
	if (err.kind != ERR_LIMIT && checkpoint_unpack(&again, "id", NULL, NULL) != ret)
		__builtin_trap();
}

static void clean_up(void)
{
	tree_remove(AT_FDCWD, base, NULL);
}

static void set_up(void)
{
	strcpy(base, "/dev/shm/fuzz-states-XXXXXX");
	if (!mkdtemp(base))
		abort();
	atexit(clean_up);
	base_fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (mkdirat(base_fd, "out", 0700) < 0)
		abort();
	out_fd = openat(base_fd, "out", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf stream = BUF_INIT;

	if (!*base)
		set_up();
	if (!size)
		return 0;
	if (data[0] % KIND_COUNT == KIND_STREAM)
		buf_add(&stream, data + 1, size - 1);
	else
		make_stream(&stream, data + 1, size - 1);
	unpack(buf_head(&stream), stream.len, 1 + data[0] % 64);
	buf_done(&stream);
	return 0;
}
