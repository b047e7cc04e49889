/* fuzz_unpack.c - what images bring: manifests, indexes and configurations as JSON, layers as tar,
 * compressed data
 *
 * The first byte tells which. Layers are really unpacked, two on top of each other, in a folder of
 * /dev/shm; beside it lies a file that nothing may touch, and nothing may appear beside it. Random
 * bytes never have a right checksum, so the mutator repairs the checksum of each block that looks
 * like a header, and starts from archives made here. */
#include "fuzz_tar_block.h"
#include "image/oci_internal.h"
#include "base/file.h"
#include "tar/tar.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

enum kind { KIND_JSON, KIND_LAYERS, KIND_INFLATE, KIND_COUNT };

static char base[64];

struct source {
	const uint8_t *data;
	size_t len;
};

static ssize_t read_source(void *arg, void *data, size_t len, struct err *err)
{
	struct source *source = arg;

	(void)err;
	len = MIN(len, source->len);
	if (len)
		memcpy(data, source->data, len);
	source->data += len;
	source->len -= len;
	return (ssize_t)len;
}

/* ---- seeds ---------------------------------------------------------------------------------- */

static void put_zeros(struct buf *out, size_t len)
{
	memset(buf_room(out, len), 0, len);
	buf_grew(out, len);
}

static void put(
	struct buf *out, enum tar_type type, const char *name, const char *link, size_t size)
{
	const struct tar_entry entry = {
		.type = type, .name = name, .link = link, .size = size, .mode = 0755, .mtime = 1000
	};

	tar_put_header(out, &entry);
	put_zeros(out, entry.size + tar_fill(entry.size));
}

/* The first four blocks go to the lower layer, the others to the one above. */
static void make_layers(struct buf *out, unsigned which)
{
	put(out, TAR_DIR, "usr", "", 0);
	put(out, TAR_SYMLINK, "bin", which & 1 ? "usr" : "../..", 0);
	put(out, TAR_FILE, "bin/x", "", 3);
	put(out, TAR_FILE, which & 2 ? ".wh.usr" : "usr/.wh..wh..opq", "", 0);
	put(out, which & 4 ? TAR_DIR : TAR_FILE, which & 8 ? "bin" : "usr", "", 0);
	put(out, TAR_LINK, "bin/z", which & 16 ? "bin/x" : "../y", 0);
	put_zeros(out, TAR_BLOCK);
}

static void make_seed(struct buf *out, unsigned seed)
{
	static const char digest[] =
		"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

	buf_addf(out, "%c", (int)(seed % KIND_COUNT));
	if (seed % KIND_COUNT == KIND_LAYERS)
		make_layers(out, seed / KIND_COUNT);
	else if (seed & 4)
		buf_addf(out,
			"{\"schemaVersion\":2,\"config\":{\"digest\":\"%s\",\"size\":1},\"layers\":"
			"[{\"mediaType\":"
			"\"application/"
			"vnd.oci.image.layer.v1.tar\",\"digest\":\"%s\",\"size\":2}],\"manifests\":"
			"[{\"digest\":\"%s\",\"size\":3,\"platform\":{\"os\":\"linux\","
			"\"architecture\":\"amd64\"}}]}",
			digest, digest, digest);
	else
		buf_addf(out,
			"{\"os\":\"linux\",\"rootfs\":{\"diff_ids\":[\"%s\"]},\"config\":{\"Env\":["
			"\"A=1\"],\"Cmd\":"
			"[\"x\"],\"User\":\"1\",\"ExposedPorts\":{\"80/"
			"tcp\":{}},\"Labels\":{\"a\":\"b\"}}}",
			digest);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	if (size < 16 && max >= 4096) {
		struct buf out = BUF_INIT;

		make_seed(&out, seed);
		size = MIN(out.len, max);
		memcpy(data, buf_head(&out), size);
		buf_done(&out);
		return size;
	}
	size = LLVMFuzzerMutate(data, size, max);
	for (size_t at = 1; at + TAR_BLOCK <= size; at += TAR_BLOCK)
		if (!memcmp(data + at + 257, "ustar", 5))
			repair(data + at);
	return size;
}

/* ---- the three kinds ------------------------------------------------------------------------ */

static void take_json(const uint8_t *data, size_t size)
{
	_cleanup_json_ json_t *json = json_parse((const char *)data, size, NULL);
	static struct oci_manifest manifest;
	static struct oci_config config;
	struct oci_blob blob;
	json_t *entry;

	if (!json)
		return;
	if (oci_index_pick(json, &blob, &entry, NULL) == 0 && digest_check(blob.digest, NULL) < 0)
		__builtin_trap();
	if (oci_manifest_read(json, &manifest, NULL) == 0 &&
		manifest.layer_count > IMAGE_LAYERS_MAX)
		__builtin_trap();
	if (oci_config_read(json, &config, NULL) == 0) {
		json_t *back;

		if (!config.count || image_config_check(config.config, NULL) < 0)
			__builtin_trap();
		back = oci_config_export(config.config, NULL);
		json_decref(back);
		oci_config_done(&config);
	}
}

static void take_inflate(const uint8_t *data, size_t size)
{
	struct source source = { data, size };
	struct inflate *inflate = inflate_new(read_source, &source);
	static uint8_t out[65536];
	size_t total = 0;
	ssize_t got;

	while ((got = inflate_read(inflate, out, sizeof out, NULL)) > 0 && total < 64u << 20)
		total += (size_t)got;
	inflate_free(inflate);
}

static void check_beside(void)
{
	_cleanup_free_ char *path = xasprintf("%s/untouched", base), *text = NULL;
	unsigned count = 0;
	DIR *dir = opendir(base);

	while (readdir(dir))
		count++;
	closedir(dir);
	if (count != 5 || file_read(AT_FDCWD, path, 100, &text, NULL, NULL) < 0 ||
		strcmp(text, "whole"))
		__builtin_trap();
}

static void take_layers(const uint8_t *data, size_t size)
{
	struct source source = { data, size };
	char lower[80], upper[80];
	const char *const lowers[] = { lower, NULL };

	snprintf(lower, sizeof lower, "%s/lower", base);
	snprintf(upper, sizeof upper, "%s/upper", base);
	for (int i = 0; i < 2; i++) {
		const char *path = i ? upper : lower;
		struct unpack_totals totals;
		struct unpack_spec spec = { .lowers = i ? lowers : NULL,
			.read = read_source,
			.arg = &source,
			.whiteouts = true,
			.bytes_max = 1 << 20,
			.files_max = 300 };

		if (tree_remove(AT_FDCWD, path, NULL) < 0 || mkdir(path, 0755) < 0)
			__builtin_trap();
		/* The lower one gets the first half; that it ends too early does not undo what it
		 * holds. */
		source.len =
			i ? (size_t)(data + size - source.data) : size / 2 / TAR_BLOCK * TAR_BLOCK;
		spec.dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		unpack_layer(&spec, &totals, NULL);
		close(spec.dir);
	}
	check_beside();
}

static void clean_up(void)
{
	tree_remove(AT_FDCWD, base, NULL);
}

static void set_up(void)
{
	_cleanup_free_ char *path = NULL;

	strcpy(base, "/dev/shm/fuzz-unpack-XXXXXX");
	if (!mkdtemp(base))
		abort();
	atexit(clean_up);
	path = xasprintf("%s/untouched", base);
	if (file_write_atomic(AT_FDCWD, path, "whole", 5, 0600, NULL) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!*base)
		set_up();
	if (!size)
		return 0;
	switch (data[0] % KIND_COUNT) {
	case KIND_JSON:
		take_json(data + 1, size - 1);
		break;
	case KIND_LAYERS:
		take_layers(data + 1, size - 1);
		break;
	case KIND_INFLATE:
		take_inflate(data + 1, size - 1);
		break;
	}
	return 0;
}
