/* import.c - an image out of a stream of bytes
 *
 *   stream ──► feed (decompressed) ──► first member? ──► a root file system: unpacked from the
 *   stream, one layer
 *                                                   └──► an image archive: spooled, its index read,
 *                                                   then stack.c
 *
 * The first bytes are looked at and then read again. An image archive is known by the name it
 * begins with; both kinds are understood, and newer versions of Docker write files of both into one
 * archive:
 *
 *   OCI layout       index.json names manifests, those name blobs, all by digest
 *   docker-archive   manifest.json names a configuration and layers by file; layers are verified by
 *                    their diff ids */
#include "image/spool.h"
#include "base/text.h"
#include "tar/tar.h"
#include <stdio.h>

enum { PEEK = 64 * 1024, INDEX_DEPTH_MAX = 4 };

struct import_work {
	int input;
	uint64_t size;
	char *fallback; /* a name, or NULL */
};

/* ---- the type of the archive ---------------------------------------------------------------- */

struct peek {
	struct feed *feed;
	uint8_t *data;
	size_t len, pos;
};

static int peek_fill(struct peek *peek, struct err *err)
{
	while (peek->len < PEEK) {
		ssize_t got = feed_read(peek->feed, peek->data + peek->len, PEEK - peek->len, err);

		if (got < 0)
			return -1;
		if (!got)
			break;
		peek->len += (size_t)got;
	}
	if (!peek->len)
		return err_set(err, ERR_INVALID, "the archive is empty");
	return 0;
}

/* Gives the bytes that were looked at again, and nothing after them. */
static ssize_t peek_read_again(void *arg, void *data, size_t len, struct err *err)
{
	struct peek *peek = arg;
	size_t part = MIN(len, peek->len - peek->pos);

	(void)err;
	memcpy(data, peek->data + peek->pos, part);
	peek->pos += part;
	return (ssize_t)part;
}

static ssize_t peek_read(void *arg, void *data, size_t len, struct err *err)
{
	struct peek *peek = arg;

	if (peek->pos < peek->len)
		return peek_read_again(peek, data, len, err);
	return feed_read(peek->feed, data, len, err);
}

static bool is_of_image(const char *name)
{
	static const char *const names[] = { "manifest.json", "index.json", "oci-layout",
		"repositories", "blobs" };
	static const char *const ends[] = { "", ".json", ".tar" };
	size_t len = strcspn(name, "/");

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (len == strlen(names[i]) && !memcmp(name, names[i], len))
			return true;
	if (len < 64 || strspn(name, "0123456789abcdef") != 64)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		if (len - 64 == strlen(ends[i]) && !memcmp(name + 64, ends[i], len - 64))
			return true;
	return false;
}

/* A damaged archive is reported by the code that reads all of it. */
static bool begins_as_image(struct peek *peek)
{
	struct tar_reader *reader = xnew(struct tar_reader);
	const struct tar_entry *entry;
	bool is_image = false;

	reader->read = peek_read_again;
	reader->arg = peek;
	while (tar_next(reader, &entry, NULL) == 1) {
		_cleanup_free_ char *name = spool_clean_name(entry->name);

		if (name && !*name)
			continue; /* "./" */
		is_image = name && is_of_image(name);
		break;
	}
	tar_reader_done(reader);
	free(reader);
	peek->pos = 0;
	return is_image;
}

/* ---- OCI layout ----------------------------------------------------------------------------- */

static void blob_name(const char *digest, char *ret, size_t size)
{
	snprintf(ret, size, "blobs/sha256/%s", digest_hex(digest));
}

struct layout {
	const struct spool *spool;
	const struct oci_manifest *manifest; /* OCI */
	json_t *layers;			     /* docker-archive: names of files */
};

static int open_blob(void *arg, size_t index, int *ret, struct err *err)
{
	const struct layout *layout = arg;
	char name[128];

	blob_name(layout->manifest->layers[index].digest, name, sizeof name);
	return spool_open_file(layout->spool, name, ret, err);
}

/* "python:3.11" as an index may give it; a bare tag ("3.11") is no name. */
static const char *name_in_index(json_t *entry)
{
	json_t *notes = json_object_get(entry, "annotations");
	const char *name = json_string_value(json_object_get(notes, "io.containerd.image.name"));
	const char *ref =
		json_string_value(json_object_get(notes, "org.opencontainers.image.ref.name"));

	return name ? name : ref && strpbrk(ref, ":/") ? ref : NULL;
}

static void propose_name(struct image_draft *draft, const char *name)
{
	if (!draft->name && name && image_name_check_given(name, NULL) == 0)
		draft->name = image_name_normal(name);
}

/* Follows indexes to the manifest of this machine. */
static json_t *find_manifest(
	const struct spool *spool, struct oci_blob *ret, struct image_draft *draft, struct err *err)
{
	json_t *json = spool_read_json(spool, "index.json", NULL, err);
	char name[128];

	for (int depth = 0; json && oci_is_index(json); depth++) {
		json_t *entry, *next = NULL;

		if (depth == INDEX_DEPTH_MAX) {
			err_set(err, ERR_INVALID, "indexes are nested more than %d levels deep",
				INDEX_DEPTH_MAX);
		} else if (oci_index_pick(json, ret, &entry, err) == 0) {
			propose_name(draft, name_in_index(entry));
			blob_name(ret->digest, name, sizeof name);
			next = spool_read_json(spool, name, ret, err);
		}
		json_decref(json);
		json = next;
	}
	return json;
}

static int import_layout(const struct images *images, struct job_sink *sink,
	const struct spool *spool, struct image_draft *draft, struct err *err)
{
	_cleanup_json_ json_t *manifest_json = NULL, *config_json = NULL;
	struct oci_manifest *manifest = xnew(struct oci_manifest);
	struct oci_config *config = xnew(struct oci_config);
	struct layout layout = { .spool = spool, .manifest = manifest };
	const struct stack_spec spec = {
		.config = config, .manifest = manifest, .open_layer = open_blob, .arg = &layout
	};
	struct oci_blob blob = { .digest = "" };
	char name[128];
	int code = -1;

	manifest_json = find_manifest(spool, &blob, draft, err);
	if (manifest_json && oci_manifest_read(manifest_json, manifest, err) == 0) {
		blob_name(manifest->config.digest, name, sizeof name);
		config_json = spool_read_json(spool, name, &manifest->config, err);
		if (config_json && oci_config_read(config_json, config, err) == 0)
			code = stack_unpack(images, sink, &spec, draft, err);
	}
	if (code == 0 && *blob.digest)
		draft->digest = xstrdup(blob.digest);
	oci_config_done(config);
	free(config);
	free(manifest);
	return code;
}

/* ---- docker-archive ------------------------------------------------------------------------- */

static int open_file(void *arg, size_t index, int *ret, struct err *err)
{
	const struct layout *layout = arg;
	_cleanup_free_ char *name =
		spool_clean_name(json_string_value(json_array_get(layout->layers, index)));

	if (!name)
		return err_set(err, ERR_INVALID, "manifest.json leads out of the archive");
	return spool_open_file(layout->spool, name, ret, err);
}

/* [{"Config":"….json","RepoTags":["a:b"],"Layers":["…/layer.tar"]}]; the first image is taken. */
static int read_docker_manifest(json_t *json, const char **ret_config, json_t **ret_layers,
	json_t **ret_tags, struct err *err)
{
	const struct json_key keys[] = {
		{ "Config", JSON_WANT_STRING, ret_config, true },
		{ "Layers", JSON_WANT_STRINGS, ret_layers, true },
		{ "RepoTags", JSON_WANT_STRINGS, ret_tags, false },
		{ "Parent", JSON_WANT_STRING, &(const char *){ NULL }, false },
		{ "LayerSources", JSON_WANT_OBJECT, &(json_t *){ NULL }, false },
	};

	if (!json_is_array(json) || !json_array_size(json))
		return err_set(err, ERR_INVALID, "manifest.json names no image");
	if (json_read(json_array_get(json, 0), keys, ARRAY_LEN(keys), err) < 0)
		return err_wrap(err, "manifest.json");
	return 0;
}

static json_t *docker_manifest(const struct spool *spool, const char **ret_config,
	json_t **ret_layers, json_t **ret_tags, struct err *err)
{
	json_t *json = spool_read_json(spool, "manifest.json", NULL, err);

	if (json && read_docker_manifest(json, ret_config, ret_layers, ret_tags, err) < 0) {
		json_decref(json);
		json = NULL;
	}
	return json;
}

static int import_docker(const struct images *images, struct job_sink *sink,
	const struct spool *spool, json_t *layers, const char *config_name,
	struct image_draft *draft, struct err *err)
{
	_cleanup_free_ char *name = spool_clean_name(config_name);
	_cleanup_json_ json_t *config_json = NULL;
	struct oci_config *config = xnew(struct oci_config);
	struct layout layout = { .spool = spool, .layers = layers };
	const struct stack_spec spec = {
		.config = config, .open_layer = open_file, .arg = &layout
	};
	int code = -1;

	if (name)
		config_json = spool_read_json(spool, name, NULL, err);
	else
		err_set(err, ERR_INVALID, "manifest.json leads out of the archive");
	if (config_json && oci_config_read(config_json, config, err) == 0) {
		if (json_array_size(layers) != config->count)
			err_set(err, ERR_INVALID,
				"manifest.json has %zu layers, the configuration %zu",
				json_array_size(layers), config->count);
		else
			code = stack_unpack(images, sink, &spec, draft, err);
	}
	oci_config_done(config);
	free(config);
	return code;
}

/* ---- both formats --------------------------------------------------------------------------- */

static int import_spooled(const struct images *images, struct job_sink *sink,
	const struct spool *spool, struct image_draft *draft, struct err *err)
{
	_cleanup_json_ json_t *manifest = NULL;
	json_t *layers = NULL, *tags = NULL;
	const char *config = NULL;

	/* Docker's tags come first: they are the names as people typed them. */
	if (spool_has(spool, "manifest.json")) {
		manifest = docker_manifest(spool, &config, &layers, &tags, err);
		if (!manifest)
			return -1;
		if (json_array_size(tags))
			propose_name(draft, json_string_value(json_array_get(tags, 0)));
	}
	if (spool_has(spool, "index.json"))
		return import_layout(images, sink, spool, draft, err);
	if (manifest)
		return import_docker(images, sink, spool, layers, config, draft, err);
	return err_set(err, ERR_INVALID, "the archive has neither index.json nor manifest.json");
}

static int import_archive(const struct images *images, struct job_sink *sink, struct peek *peek,
	struct image_draft *draft, struct err *err)
{
	_cleanup_(spool_freep) struct spool *spool = NULL;
	struct scratch scratch = SCRATCH_INIT;
	int code;

	if (scratch_make(images, "import", &scratch, err) < 0)
		return -1;
	job_progress(sink, "copy", 0, 0, "");
	spool = spool_new(images, scratch.dir);
	code = spool_fill(spool, peek_read, peek, err);
	if (code == 0)
		code = import_spooled(images, sink, spool, draft, err);
	scratch_discard(&scratch);
	return code;
}

static int import_stream(const struct images *images, struct job_sink *sink, struct peek *peek,
	uint64_t size, const char *fallback, struct image_draft *draft, struct err *err)
{
	if (peek_fill(peek, err) < 0)
		return -1;
	if (begins_as_image(peek))
		return import_archive(images, sink, peek, draft, err);
	propose_name(draft, fallback);
	if (!draft->name) {
		err_set(err, ERR_INVALID, "an archive of a root file system has no name");
		return err_hint(err, "name the image");
	}
	return stack_unpack_rootfs(images, sink, peek->feed, peek_read, peek, size, draft, err);
}

static int import_run(const struct images *images, struct job_sink *sink, struct image_draft *draft,
	void *arg, struct err *err)
{
	const struct import_work *work = arg;
	_cleanup_(feed_freep) struct feed *feed = NULL;
	_cleanup_free_ uint8_t *data = xcalloc(1, PEEK);
	struct peek peek = { .data = data };

	draft->origin = xstrdup("imported");
	if (feed_start(work->input, &feed, err) < 0)
		return -1;
	peek.feed = feed;
	if (import_stream(images, sink, &peek, work->size, work->fallback, draft, err) < 0)
		return -1;
	propose_name(draft, work->fallback);
	if (draft->name)
		return 0;
	err_set(err, ERR_INVALID, "the archive has no name for the image");
	return err_hint(err, "name the image");
}

static void import_free(void *arg)
{
	struct import_work *work = arg;

	free(work->fallback);
	free(work);
}

int image_import_start(struct images *images, const struct image_import_spec *spec,
	const struct image_job_ops *ops, void *arg, struct image_job **ret, struct err *err)
{
	static const struct job_work work = {
		.run = import_run, .free = import_free, .verb = "import"
	};
	struct import_work *mine;

	if (spec->name && image_name_check_given(spec->name, err) < 0)
		return -1;
	if (spec->fallback && image_name_check_given(spec->fallback, err) < 0)
		return -1;
	if (room_check(images, spec->size, err) < 0)
		return -1;
	mine = xnew(struct import_work);
	*mine = (struct import_work){
		.input = spec->input, .size = spec->size, .fallback = xstrdup(spec->fallback)
	};
	if (image_job_start(images, spec->name, &work, mine, spec->input, ops, arg, ret, err) < 0)
		return -1;
	close(spec->input); /* the helper has its own */
	return 0;
}
