/* ram_layer.c - one layer of memory: a sparse file and its map
 *
 *   ID.map    head (magic, version, number of extents, size of the RAM, bytes of data), the
 *             extents, CRC-32C of all of that
 *
 * Both files are written under names that end in .tmp. The data is renamed first: a layer whose
 * map exists is complete, unless the machine went down since. The checksums find what did not
 * reach the disk then. */
#include "base/file.h"
#include "engine/vm/ram_internal.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
	VERSION = 1,
	ZERO_RUN = 16, /* pages: fewer zeros between data are not worth a mapping of their own */
};

struct map_head {
	char magic[8];
	uint32_t version, count;
	uint64_t ram_bytes, bytes;
};

struct map_extent {
	uint64_t offset, length;
	uint32_t checksum, zero;
};

static const char magic[8] = "BOXRAM\r\n";

static_assert(sizeof(struct map_head) + sizeof(uint32_t) <= 40, "RAM_MAP_FILE_MAX counts it");
static_assert(sizeof(struct map_extent) == 24, "RAM_MAP_FILE_MAX counts it");

void ram_layer_done(struct ram_layer *layer)
{
	free(layer->extents);
	if (layer->fd >= 0)
		close(layer->fd);
	*layer = (struct ram_layer){ .fd = -1 };
}

uint64_t ram_layer_bytes(const struct ram_layer *layer)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < layer->count; i++)
		bytes += layer->extents[i].zero ? 0 : layer->extents[i].length;
	return bytes;
}

/* ---- the map --------------------------------------------------------------------------------- */

static int check_extent(const struct map_extent *extent, uint64_t from, uint64_t ram_bytes)
{
	return extent->length && !((extent->offset | extent->length) % RAM_PAGE) &&
	       extent->offset >= from && extent->offset < ram_bytes &&
	       extent->length <= ram_bytes - extent->offset && extent->zero <= 1 &&
	       !(extent->zero && extent->checksum);
}

static int check_head(const struct map_head *head, size_t len, struct err *err)
{
	if (memcmp(head->magic, magic, sizeof magic))
		return err_set(err, ERR_PROTOCOL, "its map is not a map of memory");
	if (head->version != VERSION)
		return err_set(err, ERR_PROTOCOL, "its map is of version %u, not %d", head->version,
			VERSION);
	if (!head->ram_bytes || head->ram_bytes % RAM_PAGE || head->ram_bytes > RAM_BYTES_MAX)
		return err_set(err, ERR_PROTOCOL, "its map has an impossible size");
	if (head->count > RAM_EXTENTS_MAX ||
		len != sizeof *head + head->count * sizeof(struct map_extent) + sizeof(uint32_t))
		return err_set(err, ERR_PROTOCOL, "its map has the wrong length");
	return 0;
}

int ram_layer_parse(const void *data, size_t len, struct ram_layer *ret, struct err *err)
{
	struct ram_layer layer = { .fd = -1 };
	struct map_head head;
	uint64_t from = 0;
	uint32_t sum;

	if (len < sizeof head + sizeof sum)
		return err_set(err, ERR_PROTOCOL, "its map is truncated");
	memcpy(&head, data, sizeof head);
	memcpy(&sum, (const char *)data + len - sizeof sum, sizeof sum);
	if (check_head(&head, len, err) < 0)
		return -1;
	if (ram_crc(0, data, len - sizeof sum) != sum)
		return err_set(err, ERR_PROTOCOL, "the checksum of its map is wrong");
	layer.ram_bytes = head.ram_bytes;
	layer.count = head.count;
	layer.extents = xnewn(struct ram_extent, head.count + 1);
	for (size_t i = 0; i < head.count; i++) {
		struct map_extent extent;

		memcpy(&extent, (const char *)data + sizeof head + i * sizeof extent,
			sizeof extent);
		if (!check_extent(&extent, from, head.ram_bytes)) {
			ram_layer_done(&layer);
			return err_set(err, ERR_PROTOCOL, "extent %zu of its map is impossible", i);
		}
		from = extent.offset + extent.length;
		layer.extents[i] = (struct ram_extent){ extent.offset, extent.length,
			extent.checksum, extent.zero };
	}
	if (ram_layer_bytes(&layer) != head.bytes) {
		ram_layer_done(&layer);
		return err_set(err, ERR_PROTOCOL, "its map does not add up");
	}
	*ret = layer;
	return 0;
}

static void *format(const struct ram_layer *layer, size_t *ret_len)
{
	size_t len = sizeof(struct map_head) + layer->count * sizeof(struct map_extent);
	struct map_head head = { .version = VERSION,
		.count = (uint32_t)layer->count,
		.ram_bytes = layer->ram_bytes,
		.bytes = ram_layer_bytes(layer) };
	char *data = xcalloc(1, len + sizeof(uint32_t));
	uint32_t sum;

	memcpy(head.magic, magic, sizeof magic);
	memcpy(data, &head, sizeof head);
	for (size_t i = 0; i < layer->count; i++) {
		struct map_extent extent = { layer->extents[i].offset, layer->extents[i].length,
			layer->extents[i].checksum, layer->extents[i].zero };

		memcpy(data + sizeof head + i * sizeof extent, &extent, sizeof extent);
	}
	sum = ram_crc(0, data, len);
	memcpy(data + len, &sum, sizeof sum);
	*ret_len = len + sizeof sum;
	return data;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Reports a damaged layer by its id. */
static int damaged(const char *id, struct err *err)
{
	return err_wrap(err, "layer '%s' of memory is damaged", id);
}

static int open_data(int dir, const char *id, uint64_t ram_bytes, int *ret, struct err *err)
{
	_cleanup_close_ int fd = openat(dir, id, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(err, errno, "open layer '%s' of memory", id);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != ram_bytes) {
		err_set(err, ERR_PROTOCOL, "its file has %lld bytes instead of %llu",
			(long long)st.st_size, (unsigned long long)ram_bytes);
		return damaged(id, err);
	}
	*ret = steal_fd(&fd);
	return 0;
}

int ram_layer_load(
	int dir, const char *id, uint64_t ram_bytes, struct ram_layer *ret, struct err *err)
{
	_cleanup_free_ char *data = NULL;
	struct ram_layer layer;
	char name[RAM_ID_LEN + 8];
	size_t len;

	if (!ram_id_is_valid(id))
		return err_set(err, ERR_INVALID, "'%s' is not a layer of memory", id);
	snprintf(name, sizeof name, "%s.map", id);
	if (file_read(dir, name, RAM_MAP_FILE_MAX, &data, &len, err) < 0)
		return err->kind == ERR_TOO_LARGE
			       ? err_set(err, ERR_PROTOCOL,
					 "layer '%s' of memory is damaged: its map has grown", id)
			       : err_wrap(err, "layer '%s' of memory", id);
	if (ram_layer_parse(data, len, &layer, err) < 0)
		return damaged(id, err);
	strcpy(layer.id, id);
	if (ram_bytes && layer.ram_bytes != ram_bytes) {
		err_set(err, ERR_PROTOCOL,
			"it belongs to a machine with %llu bytes instead of %llu",
			(unsigned long long)layer.ram_bytes, (unsigned long long)ram_bytes);
		ram_layer_done(&layer);
		return damaged(id, err);
	}
	if (open_data(dir, id, layer.ram_bytes, &layer.fd, err) < 0) {
		ram_layer_done(&layer);
		return -1;
	}
	*ret = layer;
	return 0;
}

int ram_layer_create(int dir, const char *id, uint64_t ram_bytes, int *ret, struct err *err)
{
	_cleanup_close_ int fd = -1;
	char name[RAM_ID_LEN + 8];

	snprintf(name, sizeof name, "%s.tmp", id);
	fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0400);
	if (fd < 0 || ftruncate(fd, (off_t)ram_bytes) < 0)
		return err_sys(err, errno, "make layer '%s' of memory", id);
	*ret = steal_fd(&fd);
	return 0;
}

static int write_map(int dir, const char *name, const void *data, size_t len, struct err *err)
{
	_cleanup_close_ int fd =
		openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0400);

	if (fd < 0 || fchmod(fd, 0444) < 0)
		return err_sys(err, errno, "make '%s'", name);
	return fd_write_all(fd, data, len, err);
}

int ram_layer_save(int dir, const struct ram_layer *layer, struct err *err)
{
	char from[RAM_ID_LEN + 16], to[RAM_ID_LEN + 16], data_tmp[RAM_ID_LEN + 16];
	_cleanup_free_ void *data = NULL;
	size_t len;

	if (layer->count > RAM_EXTENTS_MAX)
		return err_set(err, ERR_LIMIT, "a layer of memory has more than %d extents",
			RAM_EXTENTS_MAX);
	data = format(layer, &len);
	snprintf(from, sizeof from, "%s.map.tmp", layer->id);
	snprintf(to, sizeof to, "%s.map", layer->id);
	snprintf(data_tmp, sizeof data_tmp, "%s.tmp", layer->id);
	if (write_map(dir, from, data, len, err) < 0)
		return err_wrap(err, "write the map of layer '%s' of memory", layer->id);
	if (fchmodat(dir, data_tmp, 0444, 0) < 0 || renameat(dir, data_tmp, dir, layer->id) < 0 ||
		renameat(dir, from, dir, to) < 0)
		return err_sys(err, errno, "rename layer '%s' of memory", layer->id);
	return 0;
}

void ram_layer_remove(int dir, const char *id)
{
	static const char *const endings[] = { ".map.tmp", ".tmp", ".map", "" };

	for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
		char name[RAM_ID_LEN + 16];

		snprintf(name, sizeof name, "%s%s", id, endings[i]);
		unlinkat(dir, name, 0);
	}
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int read_all(int fd, char *data, size_t len, uint64_t offset)
{
	while (len) {
		ssize_t got = pread(fd, data, len, (off_t)offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? errno : EIO;
		data += got;
		offset += (uint64_t)got;
		len -= (size_t)got;
	}
	return 0;
}

static int verify_extent(const struct ram_layer *layer, const struct ram_extent *extent, char *room,
	size_t room_len, struct err *err)
{
	uint32_t sum = 0;

	for (uint64_t at = 0; at < extent->length; at += room_len) {
		size_t len = MIN(room_len, extent->length - at);
		int error = read_all(layer->fd, room, len, extent->offset + at);

		if (error)
			return err_set(err, ERR_PROTOCOL, "its page at %llu cannot be read: %s",
				(unsigned long long)(extent->offset + at), strerror(error));
		for (size_t page = 0; page < len; page += RAM_PAGE) {
			uint32_t one = ram_crc(0, room + page, RAM_PAGE);

			sum = ram_crc(sum, &one, sizeof one);
		}
	}
	if (sum != extent->checksum)
		return err_set(err, ERR_PROTOCOL, "checksum of %llu bytes at %llu is wrong",
			(unsigned long long)extent->length, (unsigned long long)extent->offset);
	return 0;
}

int ram_layer_verify(const struct ram_layer *layer, struct err *err)
{
	size_t room_len = 1 << 20;
	_cleanup_free_ char *room = xcalloc(1, room_len);

	for (size_t i = 0; i < layer->count; i++)
		if (!layer->extents[i].zero &&
			verify_extent(layer, &layer->extents[i], room, room_len, err) < 0)
			return damaged(layer->id, err);
	return 0;
}

/* ---- extents out of pages -------------------------------------------------------------------- */

static size_t run_end(const uint8_t *state, size_t from, size_t pages)
{
	size_t end = from + 1;

	while (end < pages && state[end] == state[from])
		end++;
	return end;
}

static bool is_data(const uint8_t *state, size_t from, size_t end)
{
	return state[from] == RAM_PAGE_DATA ||
	       (state[from] == RAM_PAGE_ZERO && end - from < ZERO_RUN);
}

static void add_extent(struct ram_layer *layer, size_t from, size_t end, bool zero)
{
	struct ram_extent *last = layer->count ? &layer->extents[layer->count - 1] : NULL;

	if (last && last->zero == zero && last->offset + last->length == from * RAM_PAGE) {
		last->length += (end - from) * RAM_PAGE;
		return;
	}
	if ((layer->count & (layer->count - 1)) == 0) /* grows at each power of two */
		xgrow(layer->extents, layer->count ? layer->count * 2 : 1);
	layer->extents[layer->count++] = (struct ram_extent){
		.offset = from * RAM_PAGE, .length = (end - from) * RAM_PAGE, .zero = zero
	};
}

static uint32_t checksum_of_zeros(void)
{
	static const char zeros[RAM_PAGE];

	return ram_crc(0, zeros, sizeof zeros);
}

void ram_layer_build(
	struct ram_layer *layer, const uint8_t *state, const uint32_t *checksums, size_t pages)
{
	uint32_t zero = checksum_of_zeros();

	layer->count = 0;
	for (size_t from = 0, end; from < pages; from = end) {
		end = run_end(state, from, pages);
		if (state[from] != RAM_PAGE_NONE)
			add_extent(layer, from, end, !is_data(state, from, end));
	}
	for (size_t i = 0; i < layer->count; i++) {
		struct ram_extent *extent = &layer->extents[i];
		size_t first = extent->offset / RAM_PAGE, end = first + extent->length / RAM_PAGE;

		for (size_t page = first; page < end && !extent->zero; page++)
			extent->checksum = ram_crc(extent->checksum,
				state[page] == RAM_PAGE_ZERO ? &zero : &checksums[page],
				sizeof zero);
	}
}
