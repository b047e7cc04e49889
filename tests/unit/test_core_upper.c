/* test_core_upper.c - saved, compared and kept: boxes whose files are not on the host; the driver
 * is the fake */
#include "yard_fixture.h"
#include "base/file.h"
#include "core/disk/compare.h"
#include "core/disk/disk.h"
#include "core/files.h"
#include "image/image.h"
#include "tar/tar.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- an archive as box-init makes it -------------------------------------------------------- */

static void add(const struct tar_entry *entry, const char *text)
{
	static const char zeros[TAR_BLOCK];

	tar_put_header(&fake_upper, entry);
	buf_add(&fake_upper, text, strlen(text));
	buf_add(&fake_upper, zeros, tar_fill(strlen(text)));
}

static void add_file(const char *name, const char *text)
{
	add(&(struct tar_entry){ .type = TAR_FILE,
		    .name = name,
		    .size = strlen(text),
		    .mode = 0640,
		    .uid = 7 },
		text);
}

static void add_folder(const char *name)
{
	add(&(struct tar_entry){ .type = TAR_DIR, .name = name, .mode = 0755 }, "");
}

static void add_end(void)
{
	static const char end[TAR_END_SIZE];

	buf_add(&fake_upper, end, sizeof end);
}

static void set_up(void)
{
	fake_own_kernel = true;
	yard_end();
	yard_start();
	buf_done(&fake_upper);
	add_folder(".");
	add_folder("./etc");
	add_file("./etc/.wh.hostname", "");
	add_folder("./workspace");
	add_file("./workspace/note", "hello");
	add_end();
	make_box("ada");
}

/* ---- answers -------------------------------------------------------------------------------- */

struct saved {
	bool done;
	const struct image *image;
	struct err err;
};

static void on_saved(const struct image *image, const struct err *err, void *arg)
{
	struct saved *saved = arg;

	saved->done = true;
	saved->image = image;
	if (err)
		saved->err = *err;
}

static void save(const char *box, const char *name, struct saved *ret)
{
	static const struct image_job_ops ops = { .on_done = on_saved };
	const struct box_save_spec spec = { .name = name };
	struct image_job *job;

	*ret = (struct saved){ .err = ERR_INIT };
	if (box_save_image(box_named(box), &spec, &ops, ret, &job, &ret->err) < 0)
		return;
	for (int i = 0; i < 200 && !ret->done; i++)
		yard_run(50);
	assert_true(ret->done);
}

struct text {
	struct buf bytes;
	bool done;
	struct err err;
};

static void on_readable(struct disk_stream *stream, void *arg)
{
	struct text *text = arg;
	char data[4096];
	size_t len;

	while ((len = disk_stream_read(stream, data, sizeof data)))
		buf_add(&text->bytes, data, len);
}

static void on_done(struct disk_stream *stream, const struct err *err, void *arg)
{
	struct text *text = arg;

	(void)stream;
	text->done = true;
	if (err)
		text->err = *err;
}
static const struct disk_stream_ops stream_ops = { on_readable, on_done };

static void wait_text(struct text *text, struct disk_stream *stream)
{
	for (int i = 0; i < 200 && !text->done; i++)
		yard_run(50);
	assert_true(text->done);
	disk_stream_free(stream);
	yard_settle();
}

static void diff(const char *box, struct text *ret)
{
	struct disk_stream *stream;

	*ret = (struct text){ .err = ERR_INIT };
	assert_int_equal(
		box_diff_start(box_named(box), NULL, false, &stream_ops, ret, &stream, &ret->err),
		0);
	wait_text(ret, stream);
}

static void stop(const char *box)
{
	struct answer answer = ANSWER_INIT;

	box_stop(box_named(box), 0, on_box, &answer);
	wait_ok(&answer);
	answer_done(&answer);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void check_layer(const struct image *image)
{
	_cleanup_free_ char *note = xasprintf("%s/workspace/note", image->layers[0]);
	_cleanup_free_ char *gone = xasprintf("%s/etc/hostname", image->layers[0]);
	struct stat st;

	assert_non_null(image->layers[1]);
	assert_int_equal(stat(note, &st), 0);
	assert_int_equal(st.st_uid, 7);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(stat(gone, &st), 0);
	assert_true(S_ISCHR(st.st_mode) && st.st_rdev == 0);
}

static void test_running_box_is_saved_through_its_init(void **state)
{
	struct saved saved;
	struct err err = ERR_INIT;

	(void)state;
	set_up();
	save("ada", "mine", &saved);
	if (saved.err.kind)
		fail_msg("%s", saved.err.message);
	check_layer(saved.image);
	assert_int_equal(fake_count(), 1); /* no reader */
	assert_state("ada", BOX_RUNNING);
	assert_int_equal(images_remove(test.yard->images, saved.image->id, &err), 0);
}

static void test_stopped_box_is_read_by_an_instance_that_goes_again(void **state)
{
	struct saved saved;
	struct text text;
	struct err err = ERR_INIT;

	(void)state;
	set_up();
	stop("ada");
	save("ada", "mine", &saved);
	if (saved.err.kind)
		fail_msg("%s", saved.err.message);
	check_layer(saved.image);
	assert_int_equal(images_remove(test.yard->images, saved.image->id, &err), 0);
	yard_settle();
	assert_int_equal(fake_count(), 0);
	diff("ada", &text);
	assert_non_null(strstr(buf_str(&text.bytes), "/workspace/note"));
	buf_done(&text.bytes);
	assert_int_equal(fake_count(), 0);
	assert_state("ada", BOX_STOPPED);
	check_yard("read");
}

static void test_reader_that_does_not_come_up_is_told(void **state)
{
	struct saved saved;

	(void)state;
	set_up();
	stop("ada");
	fake_tell(FAKE_READY, 1, FAKE_FAIL);
	save("ada", "mine", &saved);
	assert_null(saved.image);
	assert_non_null(strstr(saved.err.message, "does not run"));
	assert_non_null(strstr(saved.err.hint, "start the box first"));
	yard_settle();
	check_yard("failed");
}

static void test_differences_are_those_to_the_image(void **state)
{
	struct text text;

	(void)state;
	set_up();
	diff("ada", &text);
	assert_int_equal(text.err.kind, 0);
	assert_non_null(strstr(buf_str(&text.bytes), "\"removed\",\"path\":\"/etc/hostname\""));
	assert_non_null(strstr(buf_str(&text.bytes), "\"added\",\"path\":\"/workspace/note\""));
	buf_done(&text.bytes);
	check_yard("compared");
}

static void test_archive_that_breaks_off_fails_with_the_boxs_reason(void **state)
{
	struct saved saved;
	struct text text;

	(void)state;
	set_up();
	fake_upper_breaks = true;
	save("ada", "mine", &saved);
	assert_null(saved.image);
	assert_int_equal(saved.err.kind, ERR_UNSUPPORTED);
	assert_non_null(strstr(saved.err.message, "told to break off"));
	diff("ada", &text);
	assert_int_equal(text.err.kind, ERR_UNSUPPORTED);
	buf_done(&text.bytes);
}

static void test_hostile_archive_is_refused_and_leaves_nothing(void **state)
{
	struct saved saved;

	(void)state;
	set_up();
	buf_done(&fake_upper);
	add_folder(".");
	add(&(struct tar_entry){ .type = TAR_SYMLINK, .name = "./out", .link = "/tmp" }, "");
	add_file("./out/../../../../../../../../tmp/test-upper-escape", "x");
	add_end();
	save("ada", "mine", &saved);
	assert_int_equal(access("/tmp/test-upper-escape", F_OK), -1);
	if (saved.image)
		assert_int_equal(images_remove(test.yard->images, saved.image->id, NULL), 0);
	buf_done(&fake_upper);
	buf_add(&fake_upper, "no archive at all", 17);
	save("ada", "mine", &saved);
	assert_null(saved.image);
	yard_settle();
	check_yard("hostile");
}

static void test_workspace_of_a_removed_box_is_kept(void **state)
{
	struct answer answer = ANSWER_INIT;
	struct text text = { .err = ERR_INIT };
	struct disk_stream *stream;

	(void)state;
	set_up();
	stop("ada");
	box_remove_keeping(box_named("ada"), false, on_box, &answer);
	wait_ok(&answer);
	assert_int_equal(
		workspace_list_start(test.yard, "ada", &stream_ops, &text, &stream, &text.err), 0);
	wait_text(&text, stream);
	assert_non_null(strstr(buf_str(&text.bytes), "note"));
	buf_done(&text.bytes);
	assert_int_equal(workspace_remove(test.yard, "ada", NULL), 0);
}

static void test_boxes_are_compared(void **state)
{
	struct text text = { .err = ERR_INIT };
	struct disk_stream *stream;
	struct box *boxes[2];

	(void)state;
	set_up();
	boxes[0] = box_named("ada");
	boxes[1] = make_box("bob");
	assert_int_equal(
		boxes_compare_start(boxes, 2, 100, &stream_ops, &text, &stream, &text.err), 0);
	wait_text(&text, stream);
	assert_int_equal(text.err.kind, 0);
	assert_non_null(strstr(buf_str(&text.bytes), "\"files\":[]"));
	buf_done(&text.bytes);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		YARD_TEST(test_running_box_is_saved_through_its_init),
		YARD_TEST(test_stopped_box_is_read_by_an_instance_that_goes_again),
		YARD_TEST(test_reader_that_does_not_come_up_is_told),
		YARD_TEST(test_differences_are_those_to_the_image),
		YARD_TEST(test_archive_that_breaks_off_fails_with_the_boxs_reason),
		YARD_TEST(test_hostile_archive_is_refused_and_leaves_nothing),
		YARD_TEST(test_workspace_of_a_removed_box_is_kept),
		YARD_TEST(test_boxes_are_compared),
	};
	int ret;

	if (yard_is_gate(argc, argv, &ret))
		return ret;
	return cmocka_run_group_tests(tests, yard_group_setup, yard_group_teardown);
}
