/* test_image.c - the store of images: names, the list, removal, what nobody needs; needs root */
#include "image_fixture.h"
#include <sys/resource.h>
#include <sys/file.h>

/* ---- names ---------------------------------------------------------------------------------- */

#define DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_names_are_as_people_know_them(void **state)
{
	static const char *const good[] = { "debian", "python:3.11", "a", "team/tool",
		"host.test/team/tool:v2", "host:5000/a/b:tag", "localhost:5000/x", "my_tool-2",
		"a__b", "x:RELEASE.2026", "name@" DIGEST, "host:5000/name:1@" DIGEST };
	static const char *const bad[] = { "", "Debian", "../x", "a/../b", "/a", "a/", "a//b",
		"a b", "a:", ":a", "a:b:c", "a:b/c:d:e", "a:-x", "-a", "a-", ".a", "a@sha256:1",
		"a@", "a@" DIGEST "0", "host:port/a", "host:123456/a", "a;b", "a\nb", "a:b\n" };
	char longest[IMAGE_NAME_MAX + 2];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		if (image_name_check(good[i], NULL) < 0)
			fail_msg("'%s' should be a name", good[i]);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err err = ERR_INIT;

		if (image_name_check(bad[i], &err) == 0)
			fail_msg("'%s' should not be a name", bad[i]);
		assert_int_equal(err.kind, ERR_INVALID);
	}
	memset(longest, 'a', sizeof longest);
	longest[IMAGE_NAME_MAX + 1] = '\0';
	assert_int_equal(image_name_check(longest, NULL), -1);
	longest[IMAGE_NAME_MAX] = '\0';
	assert_int_equal(image_name_check(longest, NULL), 0);
}

static void test_a_name_belongs_to_the_newest(void **state)
{
	struct fixture *f = *state;
	const struct image *old, *new;
	struct err err = ERR_INIT;
	json_t *list;

	assert_null(images_find(f->images, "python", &err));
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_non_null(strstr(err.hint, "box image build"));
	assert_non_null(strstr(err.hint, "box image pull"));
	put_own(f, "aaaaaaaaaa", "python:latest", 1000000, "", LAYERS("l1"));
	put_own(f, "bbbbbbbbbb", "python", 2000000, "", LAYERS("l2"));
	put_own(f, "cccccccccc", "python:3.11", 3000000, "", LAYERS("l3"));
	fixture_reopen(f);
	new = images_find(f->images, "python:latest", &err);
	assert_string_equal(new->id, "bbbbbbbbbb");
	assert_string_equal(new->name, "python");
	assert_ptr_equal(images_find(f->images, "python", &err), new);
	old = images_find(f->images, "aaaaaaaaaa", &err);
	assert_string_equal(old->name, "");
	assert_string_equal(images_find(f->images, "python:3.11", &err)->id, "cccccccccc");
	assert_null(images_find(f->images, "python:3", &err));
	assert_null(images_find(f->images, "../images", &err));
	list = images_json(f->images, false);
	assert_int_equal(json_array_size(list), 2);
	json_decref(list);
	list = images_json(f->images, true);
	assert_int_equal(json_array_size(list), 3);
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(list, 0), "id")), "cccccccccc");
	json_decref(list);
	/* When the newer one goes the older has its name again. */
	assert_int_equal(images_remove(f->images, "bbbbbbbbbb", &err), 0);
	assert_ptr_equal(images_find(f->images, "python", &err), old);
	assert_string_equal(old->name, "python");
}

static void test_a_tag_is_another_name_and_stays(void **state)
{
	struct fixture *f = *state;
	const struct image *image;
	struct err err = ERR_INIT;
	json_t *json;

	put_own(f, "aaaaaaaaaa", "tool", 1000000, "", LAYERS("l1"));
	put_own(f, "bbbbbbbbbb", "", 2000000, "", LAYERS("l2"));
	put_own(f, "cccccccccc", "other", 3000000, "", LAYERS("l3"));
	fixture_reopen(f);
	assert_int_equal(images_tag(f->images, "aaaaaaaaaa", "x y", &err), -1);
	assert_int_equal(images_tag(f->images, "zzzzzzzzzz", "x", &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_int_equal(images_tag(f->images, "bbbbbbbbbb", "step:latest", &err), 0);
	/* A tag given later takes the name from an image made later. */
	assert_int_equal(images_tag(f->images, "aaaaaaaaaa", "other", &err), 0);
	for (int i = 0; i < 2; i++) {
		assert_string_equal(images_find(f->images, "step", &err)->id, "bbbbbbbbbb");
		assert_string_equal(images_find(f->images, "step", &err)->name, "step");
		assert_string_equal(images_find(f->images, "other", &err)->id, "aaaaaaaaaa");
		assert_string_equal(images_find(f->images, "tool", &err)->id, "aaaaaaaaaa");
		assert_string_equal(images_find(f->images, "cccccccccc", &err)->name, "");
		fixture_reopen(f);
	}
	image = images_find(f->images, "tool", &err);
	json = image_json(f->images, image);
	assert_string_equal(image->name, "tool");
	assert_int_equal(json_array_size(json_object_get(json, "names")), 2);
	json_decref(json);
	assert_int_equal(images_remove(f->images, "aaaaaaaaaa", &err), 0);
	assert_string_equal(images_find(f->images, "other", &err)->id, "cccccccccc");
}

static void test_one_of_several_names_goes_alone(void **state)
{
	struct fixture *f = *state;
	const struct image *image;
	struct err err = ERR_INIT;

	put_own(f, "aaaaaaaaaa", "tool", 1000000, "", LAYERS("l1"));
	fixture_reopen(f);
	image = images_find(f->images, "tool", &err);
	assert_false(images_can_untag(f->images, image, "tool")); /* its only name */
	assert_int_equal(images_tag(f->images, "aaaaaaaaaa", "second", &err), 0);
	assert_int_equal(images_tag(f->images, "aaaaaaaaaa", "third:v1", &err), 0);
	image = images_find(f->images, "tool", &err);
	assert_false(images_can_untag(f->images, image, "aaaaaaaaaa"));
	assert_true(images_can_untag(f->images, image, "tool:latest"));
	/* The one it was made with, and a tag; both are gone for good. */
	assert_int_equal(images_untag(f->images, image, "tool:latest", &err), 0);
	assert_int_equal(images_untag(f->images, image, "third:v1", &err), 0);
	for (int i = 0; i < 2; i++) {
		assert_null(images_find(f->images, "tool", &err));
		assert_null(images_find(f->images, "third:v1", &err));
		image = images_find(f->images, "second", &err);
		assert_string_equal(image->name, "second");
		fixture_reopen(f);
	}
	/* Whoever is given the name, or made with it later, has it. */
	assert_int_equal(images_tag(f->images, "aaaaaaaaaa", "third:v1", &err), 0);
	assert_non_null(images_find(f->images, "third:v1", &err));
	put_own(f, "bbbbbbbbbb", "tool", 4000000000000000, "", LAYERS("l2"));
	fixture_reopen(f);
	assert_string_equal(images_find(f->images, "tool", &err)->id, "bbbbbbbbbb");
}

static void test_a_digest_finds_its_image(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;

	put_dir(f, "layers/l1/files");
	put_record(f, "pool/images/aaaaaaaaaa", "aaaaaaaaaa", "python:3.11", 1000000,
		",\"digest\":\"" DIGEST "\",\"layers\":[\"l1/files\"]");
	fixture_reopen(f);
	assert_non_null(images_find(f->images, "python:3.11@" DIGEST, &err));
	assert_non_null(images_find(f->images, "python@" DIGEST, &err));
	assert_null(images_find(f->images, "pytho@" DIGEST, &err));
	assert_null(images_find(f->images, "python@sha256:00", &err));
}

/* ---- the configuration ---------------------------------------------------------------------- */

static int check_config(const char *text)
{
	_cleanup_json_ json_t *config = json_parse(text, strlen(text), NULL);

	assert_non_null(config);
	return image_config_check(config, NULL);
}

static void test_config_has_known_keys_of_right_types(void **state)
{
	static const char *const bad[] = { "[]", "{\"volumes\":{}}", "{\"cmd\":\"sh\"}",
		"{\"cmd\":[1]}", "{\"env\":[\"A\"]}", "{\"env\":[\"=x\"]}", "{\"user\":1}",
		"{\"ports\":[\"http\"]}", "{\"ports\":[\"80/icmp\"]}", "{\"labels\":{\"a\":1}}" };
	struct buf many = BUF_INIT;

	(void)state;
	assert_int_equal(check_config("{}"), 0);
	assert_int_equal(
		check_config("{\"entrypoint\":[\"/bin/x\"],\"cmd\":[\"a\",\"\"],\"env\":[\"A=\","
			     "\"B=c=d\"],\"user\":\"1000:1000\",\"workdir\":\"/srv\",\"ports\":["
			     "\"80/tcp\",\"53\"],\"labels\":{\"a\":\"b\"}}"),
		0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (check_config(bad[i]) == 0)
			fail_msg("'%s' should be refused", bad[i]);
	buf_add_str(&many, "{\"cmd\":[\"a\"");
	for (int i = 0; i < 1024; i++)
		buf_add_str(&many, ",\"a\"");
	buf_add_str(&many, "]}");
	assert_int_equal(check_config(buf_str(&many)), -1);
	buf_done(&many);
	buf_add_str(&many, "{\"user\":\"");
	memset(buf_room(&many, 40000), 'x', 40000);
	buf_grew(&many, 40000);
	buf_add_str(&many, "\"}");
	assert_int_equal(check_config(buf_str(&many)), -1);
	buf_done(&many);
}

/* ---- the shared folder ---------------------------------------------------------------------- */

static void test_images_of_older_homes_are_listed(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *rootfs = xasprintf("%s/images/aaaaaaaaaa/rootfs", f->home);
	_cleanup_free_ char *target = xasprintf("%s/elsewhere/images/bbbbbbbbbb", f->home);
	_cleanup_free_ char *link = xasprintf("%s/images/bbbbbbbbbb", f->home);
	const struct image *image;
	struct err err = ERR_INIT;

	put_shared(f, "aaaaaaaaaa", "debian", 1000000);
	image = images_find(f->images, "debian", &err); /* it came while we ran */
	assert_non_null(image);
	assert_string_equal(image->layers[0], rootfs);
	assert_null(image->layers[1]);
	assert_int_equal(image->size_bytes, 5000);
	assert_true(json_is_object(image->config));
	put(f, "elsewhere/images/bbbbbbbbbb/rootfs/x", "x");
	put_record(f, "elsewhere/images/bbbbbbbbbb", "bbbbbbbbbb", "debian", 2000000, "");
	assert_int_equal(symlink(target, link), 0);
	assert_string_equal(images_find(f->images, "debian", &err)->id, "bbbbbbbbbb");
	put(f, "images/cccccccccc/image.json", "{}"); /* damaged: left out */
	put_record(f, "images/dddddddddd", "dddddddddd", "nofiles", 3000000, "");
	put(f, "images/README", "not an image");
	assert_null(images_find(f->images, "cccccccccc", &err));
	assert_null(images_find(f->images, "nofiles", &err));
	/* A link goes, what it points at stays. */
	assert_int_equal(images_remove(f->images, "bbbbbbbbbb", &err), 0);
	assert_false(is_there(f, "images/bbbbbbbbbb"));
	assert_true(is_there(f, "elsewhere/images/bbbbbbbbbb/rootfs/x"));
	assert_ptr_equal(images_find(f->images, "debian", &err), image);
	/* A folder goes at once, its files follow; whoever held the image still may look. */
	assert_int_equal(images_remove(f->images, "aaaaaaaaaa", &err), 0);
	assert_false(is_there(f, "images/aaaaaaaaaa"));
	assert_string_equal(image->name, "debian");
	run_for(f, 300);
	assert_false(is_there(f, "images/.trash-aaaaaaaaaa"));
	assert_int_equal(images_remove(f->images, "aaaaaaaaaa", &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
}

static void test_a_folder_of_another_home_is_left_alone(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *target = xasprintf("%s/elsewhere", f->home);
	_cleanup_free_ char *link = xasprintf("%s/images", f->home);
	struct err err = ERR_INIT;

	put(f, "elsewhere/aaaaaaaaaa/rootfs/x", "x");
	put_record(f, "elsewhere/aaaaaaaaaa", "aaaaaaaaaa", "debian", 1000000, "");
	put(f, "elsewhere/.build-bbbbbbbbbb/rootfs/x", "x");
	put(f, "elsewhere/.trash-cccccccccc/rootfs/x", "x");
	assert_int_equal(symlink(target, link), 0);
	fixture_reopen(f);
	assert_non_null(images_find(f->images, "debian", &err));
	assert_int_equal(images_remove(f->images, "aaaaaaaaaa", &err), -1);
	assert_int_equal(err.kind, ERR_STATE);
	assert_non_null(strstr(err.message, "another home"));
	run_for(f, 300);
	assert_true(is_there(f, "elsewhere/aaaaaaaaaa/rootfs/x"));
	assert_true(is_there(f, "elsewhere/.build-bbbbbbbbbb"));
	assert_true(is_there(f, "elsewhere/.trash-cccccccccc"));
}

static void test_open_sweeps_dead_builds_and_spares_living_ones(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *living = xasprintf("%s/images/.build-yyyyyyyyyy", f->home);
	int lock;

	put(f, "images/.build-xxxxxxxxxx/rootfs/etc/passwd", "x");
	put(f, "images/.build-yyyyyyyyyy/rootfs/etc/passwd", "y");
	put(f, "images/.trash-zzzzzzzzzz/rootfs/etc/passwd", "z");
	put(f, "downloads/.trash-wwwwwwwwww/blob", "w");
	lock = open(living, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(flock(lock, LOCK_EX), 0);
	fixture_reopen(f);
	run_for(f, 400);
	assert_false(is_there(f, "images/.build-xxxxxxxxxx"));
	assert_false(is_there(f, "images/.trash-xxxxxxxxxx"));
	assert_false(is_there(f, "images/.trash-zzzzzzzzzz"));
	assert_false(is_there(f, "downloads/.trash-wwwwwwwwww"));
	assert_true(is_there(f, "images/.build-yyyyyyyyyy"));
	close(lock);
}

/* ---- our own -------------------------------------------------------------------------------- */

static void test_an_image_without_its_layer_is_not_listed(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;

	put_own(f, "aaaaaaaaaa", "whole", 1000000, "", LAYERS("l1", "l2"));
	put_record(f, "pool/images/bbbbbbbbbb", "bbbbbbbbbb", "broken", 1000000,
		",\"layers\":[\"l1/files\",\"l9/files\"]");
	put_record(f, "pool/images/cccccccccc", "cccccccccc", "escape", 1000000,
		",\"layers\":[\"../layers/l1/files\"]");
	put_record(f, "pool/images/dddddddddd", "dddddddddd", "escape", 1000000,
		",\"layers\":[\"l1/../l1/files\"]");
	fixture_reopen(f);
	assert_non_null(images_find(f->images, "whole", &err));
	assert_null(images_find(f->images, "broken", &err));
	assert_null(images_find(f->images, "escape", &err));
}

static unsigned two_boxes(const char *id, struct buf *names, void *arg)
{
	(void)arg;
	if (strcmp(id, "aaaaaaaaaa"))
		return 0;
	buf_add_str(names, "box 'ada', box 'bob'");
	return 2;
}

static void test_removal_is_refused_while_somebody_uses_it(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	json_t *json;

	put_own(f, "aaaaaaaaaa", "base", 1000000, "", LAYERS("l1"));
	put_own(f, "bbbbbbbbbb", "upon", 2000000, "aaaaaaaaaa", LAYERS("l2", "l1"));
	fixture_reopen(f);
	images_set_users(f->images, two_boxes, NULL);
	assert_int_equal(images_remove(f->images, "aaaaaaaaaa", &err), -1);
	assert_int_equal(err.kind, ERR_STATE);
	assert_string_equal(
		err.message, "image 'base' is used by box 'ada', box 'bob' and image 'upon'");
	json = image_json(f->images, images_find(f->images, "base", &err));
	assert_int_equal(json_integer_value(json_object_get(json, "users")), 3);
	assert_int_equal(json_integer_value(json_object_get(json, "own_bytes")), 0);
	assert_int_equal(json_integer_value(json_object_get(json, "shared_bytes")), 1000);
	json_decref(json);
	json = image_json(f->images, images_find(f->images, "upon", &err));
	assert_int_equal(json_integer_value(json_object_get(json, "size_bytes")), 2000);
	assert_int_equal(json_integer_value(json_object_get(json, "own_bytes")), 1000);
	assert_int_equal(json_integer_value(json_object_get(
				 json_array_get(json_object_get(json, "layers"), 1), "shared_by")),
		1);
	json_decref(json);
	images_set_users(f->images, NULL, NULL);
	assert_int_equal(images_remove(f->images, "aaaaaaaaaa", &err), -1);
	assert_string_equal(err.message, "image 'base' is used by image 'upon'");
	assert_int_equal(images_remove(f->images, "bbbbbbbbbb", &err), 0);
	assert_false(is_there(f, "layers/l2"));
	assert_true(is_there(f, "layers/l1"));
	assert_int_equal(images_remove(f->images, "aaaaaaaaaa", &err), 0);
	assert_false(is_there(f, "layers/l1"));
	assert_false(is_there(f, "pool/images/aaaaaaaaaa"));
}

static json_int_t number(const json_t *json, const char *key)
{
	return json_integer_value(json_object_get(json, key));
}

static void test_gc_takes_what_nobody_needs(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	json_t *told;

	put_own(f, "aaaaaaaaaa", "", 1000000, "", LAYERS("l1")); /* used by boxes */
	put_own(f, "bbbbbbbbbb", "", 2000000, "", LAYERS("l2")); /* has a child */
	put_own(f, "cccccccccc", "named", 3000000, "bbbbbbbbbb", LAYERS("l3", "l2"));
	put_own(f, "dddddddddd", "", 4000000, "bbbbbbbbbb", LAYERS("l4", "l2")); /* a step */
	put_own(f, "eeeeeeeeee", "", 5000000, "dddddddddd", LAYERS("l5", "l4", "l2"));
	put_dir(f, "layers/l6/files"); /* of a pull that died */
	put(f, "downloads/one", "download");
	put(f, "downloads/two/part", "download");
	fixture_reopen(f);
	images_set_users(f->images, two_boxes, NULL);
	for (int dry = 1; dry >= 0; dry--) {
		told = images_gc(f->images, dry, &err);
		assert_non_null(told);
		assert_int_equal(json_array_size(json_object_get(told, "images")), 2);
		assert_int_equal(number(told, "layers"), 3);
		assert_int_equal(number(told, "downloads"), 2);
		assert_true(number(told, "bytes") >= 2000 + 8192);
		json_decref(told);
		assert_int_equal(is_there(f, "pool/images/eeeeeeeeee"), dry);
		assert_int_equal(is_there(f, "layers/l4"), dry);
		assert_int_equal(is_there(f, "layers/l6"), dry);
		assert_int_equal(is_there(f, "downloads/one"), dry);
	}
	run_for(f, 300);
	told = images_gc(f->images, false, &err);
	assert_int_equal(
		number(told, "layers") + number(told, "downloads") + number(told, "bytes"), 0);
	json_decref(told);
	assert_true(is_there(f, "layers/l1/files"));
	assert_true(is_there(f, "layers/l2/files"));
	assert_non_null(images_find(f->images, "bbbbbbbbbb", &err));
}

static void test_a_thousand_images_are_found_quickly(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	int64_t start;

	for (int i = 0; i < 1000; i++) {
		char id[11], name[32], layer[16];

		snprintf(id, sizeof id, "image%05d", i);
		snprintf(name, sizeof name, "name%d:%d", i / 10, i % 10);
		snprintf(layer, sizeof layer, "l%d", i);
		put_own(f, id, name, i + 1, "", LAYERS(layer, "base"));
	}
	start = clock_mono_us();
	fixture_reopen(f);
	print_message("open with 1000 images: %lld us\n", (long long)(clock_mono_us() - start));
	start = clock_mono_us();
	for (int i = 0; i < 1000; i++) {
		char name[32];

		snprintf(name, sizeof name, "name%d:%d", i / 10, i % 10);
		assert_non_null(images_find(f->images, name, &err));
	}
	print_message("1000 finds: %lld us\n", (long long)(clock_mono_us() - start));
	assert_true(clock_mono_us() - start < 100 * 1000);
	start = clock_mono_us();
	json_decref(images_json(f->images, true));
	print_message("all as JSON: %lld us\n", (long long)(clock_mono_us() - start));
}

static void test_measuring_minds_depth_and_links(void **state)
{
	struct fixture *f = *state;
	struct rlimit before, few = { 64, 64 };
	uint64_t bytes, files, alone;
	char block[8192];
	int at, next;

	put_dir(f, "deep");
	at = open(f->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	memset(block, 'x', sizeof block);
	next = openat(at, "deep/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(fd_write_all(next, block, sizeof block, NULL), 0);
	fsync(next); /* blocks are counted when they are on disk */
	close(next);
	assert_int_equal(tree_measure(at, "deep", &alone, &files, NULL), 0);
	assert_true(alone >= 8192);
	assert_int_equal(linkat(at, "deep/file", at, "deep/again", 0), 0);
	assert_int_equal(tree_measure(at, "deep", &bytes, &files, NULL), 0);
	assert_int_equal(files, 2);
	assert_int_equal(bytes, alone);
	for (int i = 0; i < 3000; i++) {
		const char *name = i ? "d" : "deep/d";

		assert_int_equal(mkdirat(at, name, 0755), 0);
		next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = next;
	}
	close(at);
	at = open(f->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	getrlimit(RLIMIT_NOFILE, &before);
	few.rlim_max = before.rlim_max;
	setrlimit(RLIMIT_NOFILE, &few);
	assert_int_equal(tree_measure(at, "deep", &bytes, &files, NULL), 0);
	setrlimit(RLIMIT_NOFILE, &before);
	assert_int_equal(files, 3002);
	close(at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WITH_STORE(test) cmocka_unit_test_setup_teardown(test, fixture_set_up, fixture_tear_down)
		cmocka_unit_test(test_names_are_as_people_know_them),
		cmocka_unit_test(test_config_has_known_keys_of_right_types),
		WITH_STORE(test_a_name_belongs_to_the_newest),
		WITH_STORE(test_a_tag_is_another_name_and_stays),
		WITH_STORE(test_one_of_several_names_goes_alone),
		WITH_STORE(test_a_digest_finds_its_image),
		WITH_STORE(test_images_of_older_homes_are_listed),
		WITH_STORE(test_a_folder_of_another_home_is_left_alone),
		WITH_STORE(test_open_sweeps_dead_builds_and_spares_living_ones),
		WITH_STORE(test_an_image_without_its_layer_is_not_listed),
		WITH_STORE(test_removal_is_refused_while_somebody_uses_it),
		WITH_STORE(test_gc_takes_what_nobody_needs),
		WITH_STORE(test_a_thousand_images_are_found_quickly),
		WITH_STORE(test_measuring_minds_depth_and_links),
	};

	if (geteuid() != 0) {
		print_message("needs root: skipped\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
