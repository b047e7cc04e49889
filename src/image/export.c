/* export.c - writes an image as an archive
 *
 * Layers stay separate. export_layer.c makes their blobs first, because the index, which holds
 * the digests, comes before them. They use gzip at its fastest level: every program reads it,
 * and it costs the least. In a docker-archive the layers are not compressed, as `docker save`
 * writes them. A root file system is the merged tree, streamed to the reader. */
#include "image/oci_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "tar/tar.h"
#include <errno.h>
#include <stdio.h>

enum { CHUNK = 256 * 1024 };

struct exporter {
	const struct image *image;
	enum image_format format;
	int out;
	const struct images *images;
	struct exported layers[IMAGE_LAYERS_MAX]; /* lowest first */
	size_t count;
};

int image_format_from_name(const char *name, enum image_format *ret, struct err *err)
{
	static const char *const names[] = { [IMAGE_FORMAT_OCI] = "oci",
		[IMAGE_FORMAT_DOCKER] = "docker",
		[IMAGE_FORMAT_ROOTFS] = "rootfs" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcmp(name, names[i])) {
			*ret = (enum image_format)i;
			return 0;
		}
	return err_set(err, ERR_INVALID, "unknown format '%.40s': oci, docker or rootfs", name);
}

/* ---- the archive ---------------------------------------------------------------------------- */

static int put_zeros(int out, size_t len, struct err *err)
{
	static const uint8_t zeros[TAR_END_SIZE];

	return fd_write_all(out, zeros, len, err);
}

static int put_header(struct exporter *exporter, enum tar_type type, const char *name,
	uint64_t size, struct err *err)
{
	const struct tar_entry entry = { .type = type,
		.name = name,
		.size = size,
		.mode = type == TAR_DIR ? 0755 : 0644,
		.mtime = exporter->image->created_us / 1000000 };
	struct buf header = BUF_INIT;
	int code;

	tar_put_header(&header, &entry);
	code = fd_write_all(exporter->out, buf_head(&header), header.len, err);
	buf_done(&header);
	return code;
}

static int put_text(struct exporter *exporter, const char *name, const char *text, struct err *err)
{
	size_t len = strlen(text);

	if (put_header(exporter, TAR_FILE, name, len, err) < 0 ||
		fd_write_all(exporter->out, text, len, err) < 0)
		return -1;
	return put_zeros(exporter->out, tar_fill(len), err);
}

static int put_json(
	struct exporter *exporter, const char *name, const json_t *json, struct err *err)
{
	_cleanup_free_ char *text = json_text(json);

	return put_text(exporter, name, text, err);
}

static int put_layer(struct exporter *exporter, const char *name, size_t index, struct err *err)
{
	_cleanup_free_ uint8_t *data = xcalloc(1, CHUNK);
	uint64_t size = exporter->layers[index].blob.size;
	int fd = exporter->layers[index].fd;
	off_t at = 0;
	ssize_t got;

	if (put_header(exporter, TAR_FILE, name, size, err) < 0)
		return -1;
	for (; (got = pread(fd, data, CHUNK, at)) > 0; at += got)
		if (fd_write_all(exporter->out, data, (size_t)got, err) < 0)
			return -1;
	if (got < 0)
		return err_sys(err, errno, "read a layer for the archive");
	return put_zeros(exporter->out, tar_fill(size), err);
}

/* True if the same blob is in the archive already; two layers may be equal. */
static bool is_repeated(const struct exporter *exporter, size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (!strcmp(exporter->layers[i].blob.digest, exporter->layers[index].blob.digest))
			return true;
	return false;
}

/* The value of OCI_HOSTS_LABEL; NULL: all layers count. */
static const char *hosts_until(const struct exporter *exporter)
{
	size_t counted = exporter->image->host_layers;

	if (counted >= exporter->count)
		return NULL;
	return counted ? exporter->layers[counted - 1].diff_id : OCI_NO_HOSTS;
}

static json_t *make_config(const struct exporter *exporter)
{
	char created[CLOCK_RFC3339_MAX];
	json_t *diff_ids = json_array(), *history = json_array();

	clock_rfc3339(exporter->image->created_us, created);
	for (size_t i = 0; i < exporter->count; i++) {
		json_array_append_new(diff_ids, json_string(exporter->layers[i].diff_id));
		json_array_append_new(
			history, json_pack("{s:s, s:s}", "created", created, "created_by", "box"));
	}
	return json_pack("{s:s, s:s, s:s, s:o, s:{s:s, s:o}, s:o}", "created", created,
		"architecture", oci_architecture(), "os", "linux", "config",
		oci_config_export(exporter->image->config, hosts_until(exporter)), "rootfs", "type",
		"layers", "diff_ids", diff_ids, "history", history);
}

/* The name with a tag, as others expect it; NULL when the image has no name. Yours. */
static char *full_name(const struct image *image)
{
	const char *slash = strrchr(image->name, '/'), *last = slash ? slash : image->name;

	if (!*image->name || strchr(last, '@'))
		return NULL;
	return strchr(last, ':') ? xstrdup(image->name) : xasprintf("%s:latest", image->name);
}

/* ---- OCI layout ----------------------------------------------------------------------------- */

static json_t *describe(const char *type, const char *digest, uint64_t size)
{
	return json_pack(
		"{s:s, s:s, s:I}", "mediaType", type, "digest", digest, "size", (json_int_t)size);
}

static json_t *make_manifest(const struct exporter *exporter, const char *config)
{
	char digest[DIGEST_SIZE];
	json_t *layers = json_array();

	digest_of(config, strlen(config), digest);
	for (size_t i = 0; i < exporter->count; i++)
		json_array_append_new(layers,
			describe("application/vnd.oci.image.layer.v1.tar+gzip",
				exporter->layers[i].blob.digest, exporter->layers[i].blob.size));
	return json_pack("{s:i, s:s, s:o, s:o}", "schemaVersion", 2, "mediaType",
		"application/vnd.oci.image.manifest.v1+json", "config",
		describe("application/vnd.oci.image.config.v1+json", digest, strlen(config)),
		"layers", layers);
}

static json_t *make_index(const struct exporter *exporter, const char *manifest)
{
	_cleanup_free_ char *name = full_name(exporter->image);
	char digest[DIGEST_SIZE];
	json_t *entry;

	digest_of(manifest, strlen(manifest), digest);
	entry = describe("application/vnd.oci.image.manifest.v1+json", digest, strlen(manifest));
	json_object_set_new(entry, "platform",
		json_pack("{s:s, s:s}", "os", "linux", "architecture", oci_architecture()));
	if (name)
		json_object_set_new(entry, "annotations",
			json_pack("{s:s}", "org.opencontainers.image.ref.name", name));
	return json_pack("{s:i, s:s, s:[o]}", "schemaVersion", 2, "mediaType",
		"application/vnd.oci.image.index.v1+json", "manifests", entry);
}

static void blob_name(const char *digest, char *ret, size_t size)
{
	snprintf(ret, size, "blobs/sha256/%s", digest_hex(digest));
}

static int put_blob_text(struct exporter *exporter, const char *text, struct err *err)
{
	char digest[DIGEST_SIZE], name[128];

	digest_of(text, strlen(text), digest);
	blob_name(digest, name, sizeof name);
	return put_text(exporter, name, text, err);
}

static int put_layout(struct exporter *exporter, struct err *err)
{
	_cleanup_json_ json_t *config_json = make_config(exporter);
	_cleanup_free_ char *config = json_text(config_json);
	_cleanup_json_ json_t *manifest_json = make_manifest(exporter, config);
	_cleanup_free_ char *manifest = json_text(manifest_json);
	_cleanup_json_ json_t *index = make_index(exporter, manifest);
	char name[128];

	if (put_text(exporter, "oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}", err) < 0 ||
		put_json(exporter, "index.json", index, err) < 0 ||
		put_header(exporter, TAR_DIR, "blobs", 0, err) < 0 ||
		put_header(exporter, TAR_DIR, "blobs/sha256", 0, err) < 0 ||
		put_blob_text(exporter, manifest, err) < 0 ||
		put_blob_text(exporter, config, err) < 0)
		return -1;
	for (size_t i = 0; i < exporter->count; i++) {
		blob_name(exporter->layers[i].blob.digest, name, sizeof name);
		if (!is_repeated(exporter, i) && put_layer(exporter, name, i, err) < 0)
			return -1;
	}
	return put_zeros(exporter->out, TAR_END_SIZE, err);
}

/* ---- docker-archive ------------------------------------------------------------------------- */

static int put_docker(struct exporter *exporter, struct err *err)
{
	_cleanup_json_ json_t *config = make_config(exporter), *manifest = NULL;
	_cleanup_free_ char *text = json_text(config), *tag = full_name(exporter->image);
	json_t *layers = json_array(), *tags = json_array();
	char digest[DIGEST_SIZE], name[128], config_name[128];

	digest_of(text, strlen(text), digest);
	snprintf(config_name, sizeof config_name, "%s.json", digest_hex(digest));
	if (tag)
		json_array_append_new(tags, json_string(tag));
	for (size_t i = 0; i < exporter->count; i++)
		json_array_append_new(
			layers, json_sprintf("%s.tar", digest_hex(exporter->layers[i].diff_id)));
	manifest = json_pack(
		"[{s:s, s:o, s:o}]", "Config", config_name, "RepoTags", tags, "Layers", layers);
	if (put_json(exporter, "manifest.json", manifest, err) < 0 ||
		put_text(exporter, config_name, text, err) < 0)
		return -1;
	for (size_t i = 0; i < exporter->count; i++) {
		snprintf(name, sizeof name, "%s.tar", digest_hex(exporter->layers[i].diff_id));
		if (!is_repeated(exporter, i) && put_layer(exporter, name, i, err) < 0)
			return -1;
	}
	return put_zeros(exporter->out, TAR_END_SIZE, err);
}

/* ---- all formats ---------------------------------------------------------------------------- */

static int put_image(struct exporter *exporter, struct err *err)
{
	for (size_t i = 0; i < exporter->count; i++)
		if (export_layer(exporter->images, exporter->image, exporter->count - 1 - i,
			    exporter->format == IMAGE_FORMAT_OCI, &exporter->layers[i], err) < 0)
			return err_wrap(err, "layer %zu", i + 1);
	return exporter->format == IMAGE_FORMAT_OCI ? put_layout(exporter, err)
						    : put_docker(exporter, err);
}

static void export_free(struct exporter *exporter)
{
	for (size_t i = 0; i < ARRAY_LEN(exporter->layers); i++)
		if (exporter->layers[i].fd >= 0)
			close(exporter->layers[i].fd);
	free(exporter);
}

static int export_as(struct images *images, const struct image *image, enum image_format format,
	int out, struct err *err)
{
	struct exporter *exporter;
	int code = 0;

	if (format == IMAGE_FORMAT_ROOTFS)
		return export_rootfs(image, out, err);
	exporter = xnew(struct exporter);
	*exporter = (struct exporter){ .image = image,
		.format = format,
		.out = out,
		.images = images,
		.count = strv_len((const char *const *)image->layers) };
	for (size_t i = 0; i < ARRAY_LEN(exporter->layers); i++)
		exporter->layers[i].fd = -1;
	if (exporter->count > IMAGE_LAYERS_MAX)
		code = err_set(
			err, ERR_LIMIT, "the image has more than %d layers", IMAGE_LAYERS_MAX);
	if (code == 0)
		code = put_image(exporter, err);
	export_free(exporter);
	return code;
}

/* 0 when path does not exist. */
static ino_t inode_of(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? 0 : st.st_ino;
}

/* The image may be removed during the export. Its files would then disappear one by one, and the
 * archive would look complete; but the folder of the layer is renamed before that, so its path
 * is compared at the end. */
int image_export(struct images *images, const struct image *image, enum image_format format,
	int out, struct err *err)
{
	size_t count = strv_len((const char *const *)image->layers);
	_cleanup_free_ ino_t *before = xnewn(ino_t, count + 1);

	for (size_t i = 0; i < count; i++)
		before[i] = inode_of(image->layers[i]);
	if (export_as(images, image, format, out, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++)
		if (!before[i] || inode_of(image->layers[i]) != before[i])
			return err_set(err, ERR_STATE, "the image was removed while it was read");
	return 0;
}
