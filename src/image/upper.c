/* upper.c - what a box has above its image, received as an archive from the box, becomes a disk
 * of the pool
 *
 * The disk looks like that of a box whose files are on the host, so all code that reads those
 * reads it too. Its files must not have inode numbers of files in the layers below: two files
 * would look like two links to one. So if a layer below was itself saved from a box, the disk
 * begins as a snapshot of that layer, with its `upper` put aside, as in core/disk/seed.c.
 *
 * The archive is framed, because a stream that breaks off does not say why: the sender says that
 * it is complete, or what went wrong. */
#include "image/image_internal.h"
#include "base/file.h"
#include "base/text.h"
#include "pool/pool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum { FILES_MAX = 4000000 };

/* ---- frames --------------------------------------------------------------------------------- */

enum { FRAME_END = 0, FRAME_FAILED = UINT32_MAX };

static void put_length(struct buf *out, uint32_t len)
{
	buf_add(out, &len, sizeof len);
}

void image_feed_put(struct buf *out, const void *data, size_t len)
{
	assert(len && len <= IMAGE_FEED_MAX);
	put_length(out, (uint32_t)len);
	buf_add(out, data, len);
}

void image_feed_end(struct buf *out, const struct err *err)
{
	put_length(out, err ? FRAME_FAILED : FRAME_END);
	if (err)
		buf_add(out, err, sizeof *err);
}

struct upper_feed {
	int fd;
	uint32_t left; /* rest of the current frame */
	bool ended;
};

static int read_all(int fd, void *data, size_t len, struct err *err)
{
	for (size_t done = 0; done < len;) {
		ssize_t got = read(fd, (uint8_t *)data + done, len - done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_sys(err, errno, "read the files of the box");
		if (!got)
			return err_set(
				err, ERR_CANCELLED, "the sender of the box's files has ended");
		done += (size_t)got;
	}
	return 0;
}

static int next_frame(struct upper_feed *feed, struct err *err)
{
	struct err failed;

	if (read_all(feed->fd, &feed->left, sizeof feed->left, err) < 0)
		return -1;
	feed->ended = feed->left == FRAME_END;
	if (feed->left != FRAME_FAILED)
		return 0;
	if (read_all(feed->fd, &failed, sizeof failed, err) < 0)
		return -1;
	*err = failed;
	return -1;
}

/* A read_fn. */
static ssize_t read_feed(void *arg, void *data, size_t len, struct err *err)
{
	struct upper_feed *feed = arg;
	ssize_t got;

	while (!feed->left && !feed->ended)
		if (next_frame(feed, err) < 0)
			return -1;
	if (feed->ended)
		return 0;
	got = read(feed->fd, data, MIN(len, (size_t)feed->left));
	if (got < 0)
		return err_sys(err, errno, "read the files of the box");
	if (!got)
		return err_set(err, ERR_CANCELLED, "the sender of the box's files has ended");
	feed->left -= (uint32_t)got;
	return got;
}

/* ---- the disk ------------------------------------------------------------------------------- */

/* The id of the topmost layer that was saved from a box; NULL: none. Yours. */
static char *saved_below(const struct pool *pool, const char *const *layers)
{
	_cleanup_free_ char *place = xasprintf("%s/layers/", pool_get_path(pool));
	size_t len = strlen(place);

	for (; *layers && pool_get_kind(pool) != POOL_FOLDER; layers++)
		if (text_has_prefix(*layers, place))
			return xstrndup(*layers + len, strcspn(*layers + len, "/"));
	return NULL;
}

static int put_aside(const char *disk, struct err *err)
{
	_cleanup_free_ char *upper = xasprintf("%s/upper", disk), *size = NULL, *below = NULL;
	char name[11];

	random_id(name, sizeof name - 1);
	below = xasprintf("%s/below-%s", disk, name);
	size = xasprintf("%s/layer.json", disk);
	if (rename(upper, below) < 0 || (unlink(size) < 0 && errno != ENOENT))
		return err_sys(err, errno, "put the layer below aside");
	return 0;
}

static int make_disk(const struct pool *pool, const char *const *layers, const char *place,
	const char *id, int *ret, struct err *err)
{
	_cleanup_free_ char *below = saved_below(pool, layers), *upper = NULL;
	_cleanup_free_ char *disk = pool_disk_path(pool, place, id);

	if (below && (pool_disk_copy(
			      pool, "layers", below, place, id, NULL, POOL_BUDGET_NONE, err) < 0 ||
			     put_aside(disk, err) < 0))
		return -1;
	if (!below && pool_disk_make_here(pool, place, id, err) < 0)
		return -1;
	upper = xasprintf("%s/upper", disk);
	if (mkdir(upper, 0755) < 0)
		return err_sys(err, errno, "make '%s'", upper);
	*ret = open(upper, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret < 0 ? err_sys(err, errno, "open '%s'", upper) : 0;
}

static int fill(const char *const *layers, int in, uint64_t max, int dir, struct err *err)
{
	struct upper_feed feed = { .fd = in };
	const struct unpack_spec spec = {
		.dir = dir,
		.lowers = layers,
		.read = read_feed,
		.arg = &feed,
		.whiteouts = true,
		.bytes_max = max,
		.files_max = FILES_MAX,
	};
	struct unpack_totals totals;
	uint8_t rest[512];
	ssize_t got;

	if (unpack_layer(&spec, &totals, err) < 0)
		return -1;
	/* The sender may still report a failure. */
	while ((got = read_feed(&feed, rest, sizeof rest, err)) > 0)
		continue;
	return (int)got;
}

int image_unpack_upper(const struct pool *pool, const char *const *layers, int in, uint64_t max,
	const char *place, const char *id, struct err *err)
{
	_cleanup_close_ int dir = -1;

	if (make_disk(pool, layers, place, id, &dir, err) == 0 &&
		fill(layers, in, max, dir, err) == 0)
		return 0;
	pool_disk_destroy_here(pool, place, id, NULL);
	return err_wrap(err, "receive the files of the box");
}
