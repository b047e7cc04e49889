/* stack.c - the layers of an image, from blobs to folders
 *
 * How a layer unpacks depends on the layers below it (see layer_tree.c), so it is named by its
 * chain id, which identifies the whole stack up to it: chain(1) = diff(1), chain(n) =
 * sha256("chain(n-1) diff(n)"). A layer that exists under that name was verified before and is
 * not read again. Each layer is published as soon as it is complete, so interrupted work
 * continues with the next one.
 *
 * A blob is trusted only after its last byte: its size, its digest and the digest of its
 * decompressed content are compared before the layer gets its name. */
#include "image/oci_internal.h"
#include "base/log.h"
#include <fcntl.h>
#include <stdio.h>

#define LAYER_BYTES_MAX (128ull << 30)
#define LAYER_FILES_MAX 4000000

void stack_ids(const struct oci_config *config, char (*ret)[LAYER_ID_SIZE])
{
	char chain[DIGEST_SIZE], text[2 * DIGEST_SIZE];

	for (size_t i = 0; i < config->count; i++) {
		if (i == 0) {
			strcpy(chain, config->diff_ids[0]);
		} else {
			snprintf(text, sizeof text, "%s %s", chain, config->diff_ids[i]);
			digest_of(text, strlen(text), chain);
		}
		snprintf(ret[i], LAYER_ID_SIZE, "%s", digest_hex(chain));
	}
}

/* ---- one layer ------------------------------------------------------------------------------ */

/* Passes bytes on and reports the progress. */
struct meter {
	struct job_sink *sink;
	const struct feed *feed;
	read_fn read;
	void *arg;
	uint64_t before, total; /* bytes of all layers, compressed */
	const char *detail;
	struct room room;
};

static ssize_t meter_read(void *arg, void *data, size_t len, struct err *err)
{
	struct meter *meter = arg;
	uint64_t done = meter->before + feed_raw_bytes(meter->feed);
	ssize_t got;

	job_progress(meter->sink, "unpack", meter->total ? MIN(done, meter->total) : done,
		meter->total, meter->detail);
	got = meter->read(meter->arg, data, len, err);
	return got > 0 && room_take(&meter->room, (uint64_t)got, err) < 0 ? -1 : got;
}

static void tell_left_out(const char *id, const struct unpack_totals *totals)
{
	if (totals->devices || totals->xattrs)
		log_info("layer unpacked without some of it", kv_str("layer", id),
			kv_int("devices", totals->devices), kv_int("attributes", totals->xattrs));
}

struct layer_work {
	const char *id; /* NULL: derived from the content */
	const char *const *lowers;
	bool whiteouts;
	struct meter *meter;
	/* Verifies the digests. May be NULL. */
	int (*verify)(const struct feed_totals *totals, void *arg, struct err *err);
	void *arg;
	char made[LAYER_ID_SIZE]; /* its id */
	struct unpack_totals totals;
};

static int fill_layer(
	const struct images *images, struct layer_work *work, int dir, struct err *err)
{
	const struct unpack_spec spec = {
		.dir = dir,
		.lowers = work->lowers,
		.read = meter_read,
		.arg = work->meter,
		.whiteouts = work->whiteouts,
		.bytes_max = MIN(LAYER_BYTES_MAX, room_left(images)),
		.files_max = LAYER_FILES_MAX,
	};
	const struct feed_totals *fed = feed_get_totals(work->meter->feed);
	char digest[DIGEST_SIZE], text[DIGEST_SIZE + 16];

	work->meter->room.images = images;
	if (unpack_layer(&spec, &work->totals, err) < 0)
		return room_explain(err);
	if (work->verify && work->verify(fed, work->arg, err) < 0)
		return -1;
	if (work->id) {
		snprintf(work->made, sizeof work->made, "%s", work->id);
		return 0;
	}
	/* As the layer of an image the same archive would have its whiteouts converted: the two
	 * must not get the same id. */
	snprintf(text, sizeof text, "rootfs %s", fed->digest);
	digest_of(text, strlen(text), digest);
	snprintf(work->made, sizeof work->made, "%s", digest_hex(digest));
	return 0;
}

static int make_layer(const struct images *images, struct layer_work *work, struct err *err)
{
	_cleanup_free_ char *tmp = NULL;
	_cleanup_close_ int dir = -1;

	if (layer_begin(images, work->id ? work->id : "rootfs", &tmp, &dir, err) < 0)
		return -1;
	if (fill_layer(images, work, dir, err) < 0) {
		layer_abandon(images, tmp);
		return -1;
	}
	tell_left_out(work->made, &work->totals);
	cleanup_closep(&dir);
	dir = -1;
	job_progress(
		work->meter->sink, "unpack", work->meter->total, work->meter->total, "to disk");
	return layer_publish(images, work->made, tmp, work->totals.bytes, work->totals.files, err);
}

/* ---- all layers ----------------------------------------------------------------------------- */

struct expected {
	const struct oci_blob *blob; /* or NULL */
	const char *diff_id;
};

static int verify_layer(const struct feed_totals *totals, void *arg, struct err *err)
{
	const struct expected *expected = arg;
	const struct oci_blob *blob = expected->blob;

	if (blob && totals->raw_bytes != blob->size)
		return err_set(err, ERR_INVALID, "it has %llu bytes, expected %llu",
			(unsigned long long)totals->raw_bytes, (unsigned long long)blob->size);
	if (blob && strcmp(totals->raw_digest, blob->digest))
		return err_set(err, ERR_INVALID, "it has digest %s, expected %s",
			totals->raw_digest, blob->digest);
	if (strcmp(totals->digest, expected->diff_id))
		return err_set(err, ERR_INVALID, "its content has digest %s, expected %s",
			totals->digest, expected->diff_id);
	return 0;
}

struct stacking {
	const struct images *images;
	const struct stack_spec *spec;
	struct job_sink *sink;
	char ids[IMAGE_LAYERS_MAX][LAYER_ID_SIZE];
	char **lowers; /* absolute, topmost first: the finished layers */
	uint64_t done, total;
};

static int unpack_one(struct stacking *stacking, size_t index, struct err *err)
{
	const struct stack_spec *spec = stacking->spec;
	struct expected expected = {
		.blob = spec->manifest ? &spec->manifest->layers[index] : NULL,
		.diff_id = spec->config->diff_ids[index],
	};
	_cleanup_(feed_freep) struct feed *feed = NULL;
	_cleanup_close_ int fd = -1;
	char detail[64];
	struct meter meter = { .sink = stacking->sink,
		.read = feed_read,
		.before = stacking->done,
		.total = stacking->total,
		.detail = detail };
	struct layer_work work = { .id = stacking->ids[index],
		.lowers = (const char *const *)stacking->lowers,
		.whiteouts = true,
		.meter = &meter,
		.verify = verify_layer,
		.arg = &expected };

	snprintf(detail, sizeof detail, "layer %zu of %zu", index + 1, spec->config->count);
	if (spec->open_layer(spec->arg, index, &fd, err) < 0 || feed_start(fd, &feed, err) < 0)
		return -1;
	meter.feed = meter.arg = feed;
	return make_layer(stacking->images, &work, err);
}

/* Inserts text at the beginning. */
static void strv_add_first(char ***strv, const char *text)
{
	size_t count = strv_len((const char *const *)*strv);
	char *added;

	strv_add(strv, text);
	added = (*strv)[count];
	memmove(*strv + 1, *strv, count * sizeof **strv);
	(*strv)[0] = added;
}

static int add_layer(
	struct stacking *stacking, size_t index, struct image_draft *draft, struct err *err)
{
	const char *id = stacking->ids[index];
	_cleanup_free_ char *dir = xasprintf("%s/%s", stacking->images->files_path, id);
	_cleanup_free_ char *files = xasprintf("%s/files", dir), *name = xasprintf("%s/files", id);
	uint64_t bytes = 0, count = 0;

	if (!layer_exists(stacking->images, id) && unpack_one(stacking, index, err) < 0)
		return err_wrap(err, "layer %zu", index + 1);
	layer_read_size(dir, &bytes, &count);
	draft->size_bytes += bytes;
	draft->files += count;
	strv_add_first(&stacking->lowers, files);
	strv_add_first(&draft->layers, name);
	if (stacking->spec->manifest)
		stacking->done += stacking->spec->manifest->layers[index].size;
	return 0;
}

int stack_unpack(const struct images *images, struct job_sink *sink, const struct stack_spec *spec,
	struct image_draft *draft, struct err *err)
{
	struct stacking stacking = { .images = images, .spec = spec, .sink = sink };
	const struct oci_manifest *manifest = spec->manifest;
	int code = 0;

	if (manifest && manifest->layer_count != spec->config->count)
		return err_set(err, ERR_INVALID,
			"the manifest has %zu layers, the configuration %zu", manifest->layer_count,
			spec->config->count);
	stack_ids(spec->config, stacking.ids);
	for (size_t i = 0; manifest && i < manifest->layer_count; i++)
		stacking.total += manifest->layers[i].size;
	for (size_t i = 0; i < spec->config->count && code == 0; i++)
		code = add_layer(&stacking, i, draft, err);
	strv_free(stacking.lowers);
	if (code == 0)
		draft->config = json_incref(spec->config->config);
	draft->says_hosts = spec->config->says_hosts;
	draft->host_layers = spec->config->host_layers;
	return code;
}

int stack_unpack_rootfs(const struct images *images, struct job_sink *sink, struct feed *feed,
	read_fn read, void *arg, uint64_t size, struct image_draft *draft, struct err *err)
{
	struct meter meter = {
		.sink = sink, .feed = feed, .read = read, .arg = arg, .total = size, .detail = ""
	};
	struct layer_work work = { .meter = &meter };
	_cleanup_free_ char *name = NULL;

	if (make_layer(images, &work, err) < 0)
		return -1;
	name = xasprintf("%s/files", work.made);
	strv_add(&draft->layers, name);
	draft->size_bytes = work.totals.bytes;
	draft->files = work.totals.files;
	draft->config = json_object();
	return 0;
}
