/* test_oci.c - images of others: what manifests say, which archives are taken, what comes back out
 *
 * Archives are imported into a pool that is a plain folder, by the real job. Needs root: the pool
 * and the layers are. */
#include "image/spool.h"
#include "base/file.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include "tar/tar.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <cmocka.h>

#define HEX64  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define DIGEST "sha256:" HEX64
#define LAYER                                                                                 \
	"{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip\",\"digest\":\"" DIGEST \
	"\",\"size\":7}"

static json_t *parse(const char *text)
{
	struct err err = ERR_INIT;
	json_t *json = json_parse(text, strlen(text), &err);

	if (!json)
		fail_msg("%s", err.message);
	return json;
}

/* ---- words ---------------------------------------------------------------------------------- */

static void test_digest_is_checked_strictly(void **state)
{
	static const char *const bad[] = { "", "sha256:", HEX64, "sha512:" HEX64, "sha256:0" HEX64,
		"SHA256:" HEX64, "sha256:../" HEX64,
		"sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef" };
	char digest[DIGEST_SIZE];

	(void)state;
	assert_int_equal(digest_check(DIGEST, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(digest_check(bad[i], NULL), -1);
	digest_of("abc", 3, digest);
	assert_string_equal(
		digest, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void test_manifest_gives_its_blobs(void **state)
{
	_cleanup_json_ json_t *json =
		parse("{\"schemaVersion\":2,\"config\":{\"digest\":\"" DIGEST
		      "\",\"size\":5,\"new\":1},\"layers\":[" LAYER "," LAYER "]}");
	struct oci_manifest manifest;

	(void)state;
	assert_int_equal(oci_manifest_read(json, &manifest, NULL), 0);
	assert_int_equal(manifest.layer_count, 2);
	assert_int_equal(manifest.config.size, 5);
	assert_string_equal(manifest.layers[1].digest, DIGEST);
	assert_int_equal(manifest.layers[1].size, 7);
}

static void test_manifest_refuses_nonsense(void **state)
{
#define CONFIG "\"config\":{\"digest\":\"" DIGEST "\",\"size\":5}"
	static const struct {
		const char *text;
		enum err_kind kind;
	} cases[] = {
		{ "{}", ERR_INVALID },
		{ "[]", ERR_INVALID },
		{ "{" CONFIG "}", ERR_INVALID },
		{ "{\"schemaVersion\":1,\"fsLayers\":[]}", ERR_UNSUPPORTED },
		{ "{" CONFIG ",\"layers\":{}}", ERR_INVALID },
		{ "{" CONFIG ",\"layers\":[1]}", ERR_INVALID },
		{ "{" CONFIG ",\"layers\":[{\"digest\":\"" DIGEST "\",\"size\":-1}]}",
			ERR_INVALID },
		{ "{" CONFIG ",\"layers\":[{\"digest\":\"" DIGEST "\",\"size\":1}]}",
			ERR_UNSUPPORTED },
		{ "{" CONFIG ",\"layers\":[{\"digest\":\"../x\",\"size\":1}]}", ERR_UNSUPPORTED },
		{ "{\"config\":{\"digest\":\"" DIGEST "\",\"size\":999999999},\"layers\":[]}",
			ERR_INVALID },
		{ "{" CONFIG ",\"layers\":[{\"mediaType\":\"application/"
		  "vnd.oci.image.layer.v1.tar+gzip+encrypted\","
		  "\"digest\":\"" DIGEST "\",\"size\":1}]}",
			ERR_UNSUPPORTED },
	};
	static struct oci_manifest manifest;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		_cleanup_json_ json_t *json = parse(cases[i].text);
		struct err err = ERR_INIT;

		assert_int_equal(oci_manifest_read(json, &manifest, &err), -1);
		if (err.kind != cases[i].kind)
			fail_msg("%s: kind %d, %s", cases[i].text, err.kind, err.message);
	}
}

static void test_manifest_bounds_its_layers(void **state)
{
	static struct oci_manifest manifest;
	_cleanup_json_ json_t *json =
		parse("{\"config\":{\"digest\":\"" DIGEST "\",\"size\":5},\"layers\":[]}");
	struct err err = ERR_INIT;

	(void)state;
	for (int i = 0; i <= IMAGE_LAYERS_MAX; i++)
		json_array_append_new(json_object_get(json, "layers"), parse(LAYER));
	assert_int_equal(oci_manifest_read(json, &manifest, &err), -1);
	assert_int_equal(err.kind, ERR_UNSUPPORTED);
}

static json_t *make_entry(char last, const char *os, const char *architecture)
{
	_cleanup_free_ char *digest = xstrdup(DIGEST);
	json_t *entry;

	digest[DIGEST_SIZE - 2] = last;
	entry = json_pack("{s:s, s:i}", "digest", digest, "size", 10);
	if (os)
		json_object_set_new(entry, "platform",
			json_pack("{s:s, s:s}", "os", os, "architecture", architecture));
	return entry;
}

static void test_index_picks_this_machine(void **state)
{
	_cleanup_json_ json_t *index = json_pack("{s:[o,o,o,o]}", "manifests",
		make_entry('0', NULL, NULL), make_entry('1', "linux", "vax"),
		make_entry('2', "windows", oci_architecture()),
		make_entry('3', "linux", oci_architecture()));
	struct oci_blob blob;

	(void)state;
	assert_true(oci_is_index(index));
	assert_int_equal(oci_index_pick(index, &blob, NULL, NULL), 0);
	assert_int_equal(blob.digest[DIGEST_SIZE - 2], '3');
	json_array_remove(json_object_get(index, "manifests"), 3);
	assert_int_equal(oci_index_pick(index, &blob, NULL, NULL), 0);
	assert_int_equal(blob.digest[DIGEST_SIZE - 2], '0');
}

static void test_index_tells_what_there_is(void **state)
{
	_cleanup_json_ json_t *index =
		json_pack("{s:[o,o,o]}", "manifests", make_entry('1', "linux", "vax"),
			make_entry('2', "linux", "pdp11"), make_entry('2', "unknown", "unknown"));
	struct oci_blob blob;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(oci_index_pick(index, &blob, NULL, &err), -1);
	assert_int_equal(err.kind, ERR_UNSUPPORTED);
	assert_non_null(strstr(err.message, "linux/vax, linux/pdp11"));
	assert_null(strstr(err.message, "unknown"));
}

static void test_config_is_translated(void **state)
{
	_cleanup_json_ json_t *json =
		parse("{\"os\":\"linux\",\"rootfs\":{\"diff_ids\":[\"" DIGEST
		      "\"]},\"history\":[],\"config\":{"
		      "\"Entrypoint\":[\"/"
		      "e\"],\"Cmd\":null,\"Env\":[\"A=1\",\"broken\",\"=x\"],\"User\":\"7\","
		      "\"WorkingDir\":\"\",\"ExposedPorts\":{\"80\":{},\"53/"
		      "udp\":{},\"x\":{}},\"Labels\":{\"a\":\"b\"}}}");
	_cleanup_json_ json_t *expected =
		parse("{\"entrypoint\":[\"/e\"],\"env\":[\"A=1\"],\"user\":\"7\","
		      "\"ports\":[\"80/tcp\",\"53/udp\"],\"labels\":{\"a\":\"b\"}}");
	_cleanup_json_ json_t *back = NULL;
	struct oci_config config;

	(void)state;
	assert_int_equal(oci_config_read(json, &config, NULL), 0);
	assert_int_equal(config.count, 1);
	assert_true(json_equal(config.config, expected));
	back = oci_config_export(config.config, NULL);
	assert_non_null(json_object_get(json_object_get(back, "ExposedPorts"), "53/udp"));
	assert_string_equal(json_string_value(json_object_get(back, "User")), "7");
	oci_config_done(&config);
}

static void test_layers_that_a_box_wrote_are_told_by_a_label(void **state)
{
#define OTHER "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	static const struct {
		const char *label;
		bool says;
		size_t count;
	} cases[] = {
		{ "\"a\":\"b\"", false, 0 },
		{ "\"a\":\"b\",\"" OCI_HOSTS_LABEL "\":\"" OTHER "\"", true, 2 },
		{ "\"a\":\"b\",\"" OCI_HOSTS_LABEL "\":\"" DIGEST "\"", true, 1 },
		{ "\"a\":\"b\",\"" OCI_HOSTS_LABEL "\":\"sha256:gone\"", true, 0 },
		{ "\"a\":\"b\",\"" OCI_HOSTS_LABEL "\":\"none\"", true, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		_cleanup_free_ char *text =
			xasprintf("{\"rootfs\":{\"diff_ids\":[\"%s\",\"%s\",\"%s\"]},\"config\":{"
				  "\"Labels\":{%s}}}",
				DIGEST, OTHER, DIGEST, cases[i].label);
		_cleanup_json_ json_t *json = parse(text), *labels = parse("{\"a\":\"b\"}");
		_cleanup_json_ json_t *back = NULL;
		struct oci_config config;

		assert_int_equal(oci_config_read(json, &config, NULL), 0);
		assert_int_equal(config.says_hosts, cases[i].says);
		assert_int_equal(config.host_layers, cases[i].count);
		assert_true(json_equal(json_object_get(config.config, "labels"), labels));
		back = oci_config_export(config.config, "none");
		assert_int_equal(json_object_size(json_object_get(back, "Labels")), 2);
		assert_true(json_equal(json_object_get(config.config, "labels"), labels));
		oci_config_done(&config);
	}
}

static void test_config_refuses_nonsense(void **state)
{
#define ROOTFS "\"rootfs\":{\"diff_ids\":[\"" DIGEST "\"]}"
	static const struct {
		const char *text;
		enum err_kind kind;
	} cases[] = {
		{ "{}", ERR_INVALID },
		{ "{\"rootfs\":{\"diff_ids\":[]}}", ERR_INVALID },
		{ "{\"rootfs\":{\"diff_ids\":[1]}}", ERR_INVALID },
		{ "{\"architecture\":\"vax\"," ROOTFS "}", ERR_UNSUPPORTED },
		{ "{\"os\":\"plan9\"," ROOTFS "}", ERR_UNSUPPORTED },
		{ "{" ROOTFS ",\"config\":{\"Cmd\":\"x\"}}", ERR_INVALID },
		{ "{" ROOTFS ",\"config\":{\"Cmd\":[1]}}", ERR_INVALID },
		{ "{" ROOTFS ",\"config\":{\"Labels\":{\"a\":1}}}", ERR_INVALID },
		{ "{" ROOTFS ",\"config\":[]}", ERR_INVALID },
	};
	struct oci_config config;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		_cleanup_json_ json_t *json = parse(cases[i].text);
		struct err err = ERR_INIT;

		assert_int_equal(oci_config_read(json, &config, &err), -1);
		if (err.kind != cases[i].kind)
			fail_msg("%s: kind %d, %s", cases[i].text, err.kind, err.message);
	}
}

/* The identifiers of the specification's own example: chain(2) = sha256("diff(1) diff(2)"). */
static void test_layers_are_called_by_their_chain(void **state)
{
	struct oci_config config = { .count = 2, .diff_ids = { DIGEST, DIGEST } };
	char ids[IMAGE_LAYERS_MAX][LAYER_ID_SIZE], digest[DIGEST_SIZE];

	(void)state;
	stack_ids(&config, ids);
	assert_string_equal(ids[0], "0123456789abcdef0123456789abcdef01234567");
	digest_of(DIGEST " " DIGEST, 2 * (DIGEST_SIZE - 1) + 1, digest);
	assert_int_equal(strncmp(ids[1], digest_hex(digest), 40), 0);
	assert_int_equal(strlen(ids[1]), 40);
}

static void test_skopeo_complaints_become_clear(void **state)
{
	static const struct {
		const char *said;
		enum err_kind kind;
	} cases[] = {
		{ "time=\"x\" level=fatal msg=\"Error: reading manifest v9 in h/a: manifest "
		  "unknown: manifest unknown\"",
			ERR_NOT_FOUND },
		{ "time=\"x\" level=fatal msg=\"pinging: Get \\\"http://h/v2/\\\": dial tcp: "
		  "connect: connection refused\"\n",
			ERR_UNAVAILABLE },
		{ "level=warning msg=\"not found\"\ntime=\"x\" level=fatal msg=\"unauthorized: "
		  "authentication required\"",
			ERR_FORBIDDEN },
		{ "level=fatal msg=\"Digest did not match, expected a, got b\"", ERR_INVALID },
		{ "level=fatal msg=\"lookup h: no such host\"", ERR_UNAVAILABLE },
		{ "something else\n\n", ERR_UNAVAILABLE },
		{ "", ERR_UNAVAILABLE },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err err = ERR_INIT;

		skopeo_explain(cases[i].said, &err);
		if (err.kind != cases[i].kind)
			fail_msg("%s: kind %d, %s", cases[i].said, err.kind, err.message);
		assert_null(strchr(err.message, '\n'));
	}
}

static void test_spool_names_stay_inside(void **state)
{
	static const char *const names[][2] = { { "./a//b", "a/b" }, { "a/../b", "b" },
		{ "/x/./y", "x/y" }, { "a/b/../../c", "c" }, { "./", "" }, { "..", NULL },
		{ "a/../../b", NULL } };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		_cleanup_free_ char *clean = spool_clean_name(names[i][0]);

		if (names[i][1])
			assert_string_equal(clean, names[i][1]);
		else
			assert_null(clean);
	}
}

/* ---- whole images --------------------------------------------------------------------------- */

static char base[] = "/tmp/test-oci-XXXXXX";
static struct loop *loop;
static struct pool *pool;
static struct images *images;
static const struct image *made;
static struct err failure;

static void on_done(const struct image *image, const struct err *err, void *arg)
{
	(void)arg;
	made = image;
	failure = err ? *err : (struct err)ERR_INIT;
	loop_stop(loop);
}

static int import(const void *data, size_t len, const char *name)
{
	static const struct image_job_ops ops = { .on_done = on_done };
	_cleanup_free_ char *path = xasprintf("%s/archive", base);
	struct image_import_spec spec = { .name = name, .size = len };
	struct image_job *job;
	struct err err = ERR_INIT;

	assert_int_equal(file_write_atomic(AT_FDCWD, path, data, len, 0600, NULL), 0);
	spec.input = open(path, O_RDONLY | O_CLOEXEC);
	if (image_import_start(images, &spec, &ops, NULL, &job, &err) < 0)
		fail_msg("%s", err.message);
	loop_run(loop);
	return made ? 0 : -1;
}

static void put(
	struct buf *out, enum tar_type type, const char *name, const void *content, size_t len)
{
	struct tar_entry entry = { .type = type,
		.name = name,
		.link = type == TAR_SYMLINK ? content : "",
		.size = type == TAR_FILE ? len : 0,
		.mode = 0755,
		.mtime = 1000 };

	tar_put_header(out, &entry);
	buf_add(out, content, entry.size);
	memset(buf_room(out, TAR_BLOCK), 0, TAR_BLOCK);
	buf_grew(out, tar_fill(entry.size));
}

static void put_text(struct buf *out, const char *name, const char *text)
{
	put(out, TAR_FILE, name, text, strlen(text));
}

static void put_end(struct buf *out)
{
	memset(buf_room(out, TAR_END_SIZE), 0, TAR_END_SIZE);
	buf_grew(out, TAR_END_SIZE);
}

static void make_layers(struct buf *lower, struct buf *upper)
{
	put(lower, TAR_DIR, ".", "", 0);
	put(lower, TAR_DIR, "usr", "", 0);
	put(lower, TAR_SYMLINK, "bin", "usr", 0);
	put_text(lower, "usr/old", "old");
	put_text(lower, "gone", "gone");
	put_end(lower);
	put_text(upper, "bin/new", "new");
	put_text(upper, ".wh.gone", "");
	put_end(upper);
}

/* A docker-archive of two layers. twist: 'd' another diff id, 'm' a layer is missing, 'o' it leads
 * out, 'l' it is a link. */
static void make_archive(struct buf *out, char twist)
{
	struct buf lower = BUF_INIT, upper = BUF_INIT;
	char first[DIGEST_SIZE], second[DIGEST_SIZE];
	_cleanup_free_ char *config = NULL;

	make_layers(&lower, &upper);
	digest_of(buf_head(&lower), lower.len, first);
	digest_of(buf_head(&upper), upper.len, second);
	config = xasprintf("{\"architecture\":\"%s\",\"os\":\"linux\",\"config\":{\"Cmd\":[\"sh\"]}"
			   ",\"rootfs\":"
			   "{\"type\":\"layers\",\"diff_ids\":[\"%s\",\"%s\"]}}",
		oci_architecture(), first, twist == 'd' ? DIGEST : second);
	put_text(out, "manifest.json",
		twist == 'o' ? "[{\"Config\":\"c\",\"Layers\":[\"a.tar\",\"../../../etc/passwd\"]}]"
			     : "[{\"Config\":\"c\",\"RepoTags\":[\"my/"
			       "tool:v1\"],\"Layers\":[\"a.tar\",\"d/b.tar\"]}]");
	put_text(out, "c", config);
	put(out, TAR_FILE, "a.tar", buf_head(&lower), lower.len);
	if (twist == 'l') {
		put(out, TAR_FILE, "real", buf_head(&upper), upper.len);
		put(out, TAR_SYMLINK, "d/b.tar", "../real", 0);
	} else if (twist != 'm') {
		put(out, TAR_FILE, "d/b.tar", buf_head(&upper), upper.len);
	}
	put_end(out);
	buf_done(&lower);
	buf_done(&upper);
}

static bool layer_has(size_t index, const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", made->layers[index], name);
	struct stat st;

	return lstat(path, &st) == 0;
}

static size_t count_layers(void)
{
	_cleanup_strv_ char **names = folder_list(images->files_path);

	return strv_len((const char *const *)names);
}

static size_t count_blobs(void)
{
	_cleanup_strv_ char **names = folder_list(images->downloads_path);

	return strv_len((const char *const *)names);
}

static void test_import_docker_archive(void **state)
{
	(void)state;
	for (int links = 0; links < 2; links++) {
		struct buf archive = BUF_INIT;

		make_archive(&archive, links ? 'l' : ' ');
		if (import(buf_head(&archive), archive.len, NULL) < 0)
			fail_msg("%s", failure.message);
		assert_string_equal(made->name, "my/tool:v1");
		assert_int_equal(strv_len((const char *const *)made->layers), 2);
		assert_true(layer_has(0, "usr/new"));
		assert_false(layer_has(0, "bin"));
		assert_true(layer_has(1, "usr/old"));
		assert_string_equal(
			json_string_value(json_array_get(json_object_get(made->config, "cmd"), 0)),
			"sh");
		assert_int_equal(count_layers(), 2); /* the second time they were there */
		assert_int_equal(count_blobs(), 0);
		buf_done(&archive);
	}
}

static void test_import_refuses_what_is_not_as_announced(void **state)
{
	(void)state;
	for (const char *twist = "dmo"; *twist; twist++) {
		struct buf archive = BUF_INIT;

		make_archive(&archive, *twist);
		assert_int_equal(import(buf_head(&archive), archive.len, "x"), -1);
		if (failure.kind != ERR_INVALID)
			fail_msg("%c: %s", *twist, failure.message);
		assert_int_equal(count_blobs(), 0);
		buf_done(&archive);
	}
	assert_null(images_find(images, "x", NULL));
}

static void test_import_rootfs(void **state)
{
	struct buf lower = BUF_INIT, upper = BUF_INIT;

	(void)state;
	make_layers(&lower, &upper);
	assert_int_equal(import(buf_head(&lower), lower.len, "root"), 0);
	assert_true(layer_has(0, "usr/old"));
	assert_null(made->layers[1]);
	assert_int_equal(import(buf_head(&lower), lower.len, NULL), -1);
	assert_int_equal(failure.kind, ERR_INVALID);
	/* Whiteouts mean nothing in it. */
	assert_int_equal(import(buf_head(&upper), upper.len, "upper"), 0);
	assert_true(layer_has(0, ".wh.gone"));
	assert_int_equal(import("", 0, "empty"), -1);
	assert_int_equal(import(buf_head(&lower), lower.len / 2, "cut"), -1);
	assert_int_equal(failure.kind, ERR_INVALID);
	buf_done(&lower);
	buf_done(&upper);
}

/* In a child, as in a helper: it may mount. */
static void export_to(const struct image *image, enum image_format format, const char *path)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		struct err err = ERR_INIT;

		if (image_export(images, image, format, out, &err) < 0)
			fprintf(stderr, "%s\n", err.message);
		_exit(err.kind != ERR_NONE);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_export_and_import_give_the_same(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/exported", base);
	struct buf archive = BUF_INIT;
	const struct image *image;

	(void)state;
	make_archive(&archive, ' ');
	assert_int_equal(import(buf_head(&archive), archive.len, NULL), 0);
	image = made;
	for (enum image_format format = IMAGE_FORMAT_OCI; format <= IMAGE_FORMAT_ROOTFS; format++) {
		_cleanup_free_ char *data = NULL;
		size_t len;

		export_to(image, format, path);
		assert_int_equal(file_read(AT_FDCWD, path, 1 << 20, &data, &len, NULL), 0);
		if (import(data, len, format == IMAGE_FORMAT_ROOTFS ? "flat" : NULL) < 0)
			fail_msg("%d: %s", format, failure.message);
		if (format == IMAGE_FORMAT_ROOTFS) {
			assert_true(layer_has(0, "usr/new"));
			assert_true(layer_has(0, "usr/old"));
			assert_false(layer_has(0, "gone"));
			continue;
		}
		assert_string_equal(made->name, "my/tool:v1");
		assert_true(json_equal(made->config, image->config));
		assert_int_equal(strv_len((const char *const *)made->layers), 2);
		assert_true(layer_has(0, "usr/new"));
		assert_true(layer_has(0, "gone"));     /* hidden */
		assert_false(layer_has(0, "usr/old")); /* the layers are still apart */
		assert_true(layer_has(1, "gone"));
		image = made; /* it has the name now */
	}
	buf_done(&archive);
}

static int set_up(void **state)
{
	struct pool_config config = { .mode = "folder" };
	struct err err = ERR_INIT;

	(void)state;
	if (geteuid() != 0)
		return 0;
	strcpy(base + strlen(base) - 6, "XXXXXX");
	if (!mkdtemp(base))
		return -1;
	loop = loop_new();
	config.loop = loop;
	config.home = base;
	if (pool_open(&config, &pool, &err) < 0 ||
		images_open(loop, pool, base, &images, &err) < 0) {
		print_error("%s\n", err.message);
		return -1;
	}
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	if (geteuid() != 0)
		return 0;
	images_close(images);
	pool_close(pool);
	loop_free(loop);
	return tree_remove(AT_FDCWD, base, NULL);
}

static void test_oci_needs_root(void **state)
{
	(void)state;
	print_message("importing needs root\n");
	skip();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest pure[] = {
		cmocka_unit_test(test_digest_is_checked_strictly),
		cmocka_unit_test(test_manifest_gives_its_blobs),
		cmocka_unit_test(test_manifest_refuses_nonsense),
		cmocka_unit_test(test_manifest_bounds_its_layers),
		cmocka_unit_test(test_index_picks_this_machine),
		cmocka_unit_test(test_index_tells_what_there_is),
		cmocka_unit_test(test_config_is_translated),
		cmocka_unit_test(test_layers_that_a_box_wrote_are_told_by_a_label),
		cmocka_unit_test(test_config_refuses_nonsense),
		cmocka_unit_test(test_layers_are_called_by_their_chain),
		cmocka_unit_test(test_skopeo_complaints_become_clear),
		cmocka_unit_test(test_spool_names_stay_inside),
	};
	const struct CMUnitTest whole[] = {
		TEST(test_import_docker_archive),
		TEST(test_import_refuses_what_is_not_as_announced),
		TEST(test_import_rootfs),
		TEST(test_export_and_import_give_the_same),
	};
	const struct CMUnitTest skipped[] = { cmocka_unit_test(test_oci_needs_root) };
	int failed = cmocka_run_group_tests(pure, NULL, NULL);

	if (geteuid() != 0)
		return failed + cmocka_run_group_tests(skipped, NULL, NULL);
	/* The pool lives in a mount namespace of its user's own. */
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return failed + 1;
	return failed + cmocka_run_group_tests(whole, NULL, NULL);
}
