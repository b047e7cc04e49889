/* test_image_room.c - where layers lie, and what happens when the disk they lie on is small; needs
 * root
 *
 * The home is a file system of its own, of SIZE bytes, seen by this process alone. */
#include "image_fixture.h"
#include "tar/tar.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/vfs.h>

enum { MIB = 1024 * 1024, SIZE = 96 * MIB };

static int set_up_small(void **state)
{
	struct fixture *f;

	if (fixture_set_up(state) < 0)
		return -1;
	f = *state;
	fixture_close(f);
	if (mount("small", f->home, "tmpfs", 0, "size=96m,mode=755") < 0)
		return -1;
	fixture_open(f);
	return 0;
}

static int tear_down_small(void **state)
{
	struct fixture *f = *state;
	fixture_close(f);
	loop_free(f->loop);
	umount2(f->home, MNT_DETACH);
	tree_remove(AT_FDCWD, f->home, NULL);
	free(f);
	return 0;
}

/* ---- archives ------------------------------------------------------------------------------- */

static void add_file(int out, const char *name, size_t len)
{
	struct tar_entry entry = { .type = TAR_FILE, .name = name, .size = len, .mode = 0644 };
	struct buf header = BUF_INIT;
	_cleanup_free_ char *content = xcalloc(1, len + TAR_BLOCK);

	memset(content, 'x', len);
	tar_put_header(&header, &entry);
	assert_int_equal(fd_write_all(out, buf_head(&header), header.len, NULL), 0);
	assert_int_equal(fd_write_all(out, content, len + tar_fill(len), NULL), 0);
	buf_done(&header);
}

/* count files of len bytes each; image: as one whose first name is that of an image archive. In
 * memory, so that it takes no room. */
static int make_archive(unsigned count, size_t len, bool image)
{
	static const char end[TAR_END_SIZE];
	int fd = memfd_create("archive", MFD_CLOEXEC);

	if (image)
		add_file(fd, "manifest.json", 2);
	for (unsigned i = 0; i < count; i++) {
		char name[32];

		snprintf(name, sizeof name, "file%u", i);
		add_file(fd, name, len);
	}
	assert_int_equal(fd_write_all(fd, end, sizeof end, NULL), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

static uint64_t free_bytes(const struct fixture *f)
{
	struct statfs fs;

	assert_int_equal(statfs(f->home, &fs), 0);
	return fs.f_bavail * (uint64_t)fs.f_bsize;
}

static size_t count_layers(const struct fixture *f)
{
	_cleanup_strv_ char **names = folder_list(f->images->files_path);

	return strv_len((const char *const *)names);
}

/* ---- a disk that is too small --------------------------------------------------------------- */

static void test_what_cannot_fit_is_refused_with_figures(void **state)
{
	struct fixture *f = *state;
	struct image_import_spec spec = { .name = "big", .size = 2 * SIZE };
	struct image_job *job;
	struct err err = ERR_INIT;

	spec.input = make_archive(1, 10, false);
	assert_int_equal(image_import_start(f->images, &spec, &job_ops, f, &job, &err), -1);
	assert_int_equal(err.kind, ERR_LIMIT);
	assert_non_null(strstr(err.message, "192M are needed"));
	assert_non_null(strstr(err.hint, "BOX_HOME"));
	close(spec.input);
}

/* One large file, many small ones, an archive that is spooled: nobody said how large it would
 * be. */
static void test_what_turns_out_too_large_leaves_nothing(void **state)
{
	static const struct {
		unsigned count;
		size_t len;
		bool image;
	} cases[] = { { 1, SIZE, false }, { 60000, 2000, false }, { 20, 8 * MIB, true } };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct image_import_spec spec = { .name = "big" };
		uint64_t before = free_bytes(f);
		struct image_job *job;
		struct err err = ERR_INIT;

		spec.input = make_archive(cases[i].count, cases[i].len, cases[i].image);
		assert_int_equal(image_import_start(f->images, &spec, &job_ops, f, &job, &err), 0);
		assert_null(wait_for_job(f));
		assert_int_equal(f->err.kind, ERR_LIMIT);
		assert_non_null(strstr(f->err.hint, "BOX_HOME"));
		run_for(f, 200);
		assert_true(free_bytes(f) + MIB / 2 >= before);
	}
	assert_null(images_find(f->images, "big", NULL));
}

/* Another one takes the room while a layer is being filled, and what is kept back as well. */
static void test_a_disk_full_in_the_middle(void **state)
{
	struct fixture *f = *state;
	struct image_import_spec spec = { .name = "big" };
	_cleanup_free_ char *hog = xasprintf("%s/hog", f->home);
	_cleanup_close_ int fd = open(hog, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	_cleanup_close_ int archive = make_archive(1, 80 * MIB, false);
	_cleanup_free_ char *chunk = xcalloc(1, 10 * MIB);
	struct image_job *job;
	struct err err = ERR_INIT;
	int ends[2];

	/* Through a pipe: a part of it comes before the disk is full. */
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	spec.input = ends[0];
	assert_int_equal(image_import_start(f->images, &spec, &job_ops, f, &job, &err), 0);
	for (int i = 0; i < 3; i++) {
		ssize_t got = read(archive, chunk, 10 * MIB);

		assert_int_equal(got, 10 * MIB);
		assert_int_equal(fd_write_all(ends[1], chunk, 10 * MIB, &err), 0);
	}
	for (off_t size = 0; fallocate(fd, 0, size, 4096) == 0; size += 4096)
		;
	for (ssize_t got = 1; got > 0;) {
		got = read(archive, chunk, 10 * MIB);
		if (got < 0 || fd_write_all(ends[1], chunk, (size_t)got, &err) < 0)
			break;
	}
	close(ends[1]);
	assert_null(wait_for_job(f));
	assert_int_equal(f->err.kind, ERR_LIMIT);
	unlink(hog);
	run_for(f, 200);
	assert_int_equal(count_layers(f), 0);
}

static void test_room_comes_back_when_an_image_goes(void **state)
{
	struct fixture *f = *state;
	uint64_t before = free_bytes(f);

	for (int i = 0; i < 4; i++) {
		struct image_import_spec spec = { .name = "one" };
		struct image_job *job;
		struct err err = ERR_INIT;

		spec.input = make_archive(5, 10 * MIB - (size_t)i, false);
		spec.size = 50 * MIB;
		if (image_import_start(f->images, &spec, &job_ops, f, &job, &err) < 0)
			fail_msg("%s", err.message);
		if (!wait_for_job(f))
			fail_msg("%s", f->err.message);
		assert_true(free_bytes(f) + 50 * MIB <= before);
		assert_int_equal(images_remove(f->images, f->image->id, &err), 0);
		run_for(f, 300);
		assert_true(free_bytes(f) + MIB >= before);
	}
}

/* ---- places --------------------------------------------------------------------------------- */

static void test_nobody_else_gets_in(void **state)
{
	static const char *const places[] = { "layers", "downloads" };
	struct fixture *f = *state;
	struct stat st;

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", f->home, places[i]);

		assert_int_equal(chmod(path, 0755), 0);
		fixture_reopen(f);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0700);
	}
}

/* The two kinds of layers have names of their own. */
static void test_layers_of_both_kinds_may_be_called_alike(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	const struct image *image;
	json_t *told;

	put_own(f, "aaaaaaaaaa", "base", 1000000, "", LAYERS("same"));
	put_dir(f, "pool/layers/same/upper");
	put(f, "pool/layers/same/layer.json", "{\"size_bytes\":300,\"files\":3}");
	put_record(f, "pool/images/bbbbbbbbbb", "bbbbbbbbbb", "upon", 2000000,
		",\"layers\":[\"same/upper\",\"same/files\"],\"parent\":\"aaaaaaaaaa\"");
	put_dir(f, "pool/layers/odd/files"); /* no place for it: nobody's */
	fixture_reopen(f);
	image = images_find(f->images, "upon", &err);
	assert_non_null(image);
	assert_string_equal(layer_short(f->images, image->layers[0]), "same/upper");
	assert_string_equal(layer_short(f->images, image->layers[1]), "same/files");
	told = image_json(f->images, image);
	assert_int_equal(json_integer_value(json_object_get(told, "own_bytes")), 300);
	assert_int_equal(json_integer_value(json_object_get(told, "shared_bytes")), 1000);
	json_decref(told);
	assert_int_equal(images_remove(f->images, "bbbbbbbbbb", &err), 0);
	assert_false(is_there(f, "pool/layers/same"));
	assert_true(is_there(f, "layers/same/files"));
	told = images_gc(f->images, false, &err);
	assert_int_equal(json_integer_value(json_object_get(told, "layers")), 1);
	json_decref(told);
	assert_false(is_there(f, "pool/layers/odd"));
	assert_true(is_there(f, "layers/same/files"));
	assert_int_equal(images_remove(f->images, "aaaaaaaaaa", &err), 0);
	assert_false(is_there(f, "layers/same"));
}

/* What a dead daemon was removing goes at the next start, and many at once go one after the
 * other. */
static void test_trash_is_taken_up(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 20; i++) {
		char name[64];

		snprintf(name, sizeof name, "layers/.trash-%010d/files/x", i);
		put(f, name, "x");
	}
	fixture_reopen(f);
	for (int i = 0; i < 300 && f->images->removals; i++)
		run_for(f, 10);
	assert_int_equal(count_layers(f), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define SMALL(test) cmocka_unit_test_setup_teardown(test, set_up_small, tear_down_small)
		SMALL(test_what_cannot_fit_is_refused_with_figures),
		SMALL(test_what_turns_out_too_large_leaves_nothing),
		SMALL(test_a_disk_full_in_the_middle),
		SMALL(test_room_comes_back_when_an_image_goes),
		SMALL(test_nobody_else_gets_in),
		SMALL(test_layers_of_both_kinds_may_be_called_alike),
		SMALL(test_trash_is_taken_up),
	};

	if (geteuid() != 0) {
		print_message("needs root: skipped\n");
		return 77;
	}
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
