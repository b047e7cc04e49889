/* test_core_image_file.c - boxes of a driver that wants the image as one file, and what is
 * different with their disks; the driver is the fake */
#include "yard_fixture.h"
#include "base/file.h"
#include "image/image.h"
#include <fcntl.h>
#include <unistd.h>

/* The yard is opened again with a driver whose boxes have a kernel of their own. */
static void set_up(void)
{
	fake_own_kernel = true;
	yard_end();
	yard_start();
}

static unsigned count_events(const char *type)
{
	_cleanup_json_ json_t *answer = yard_events_json(test.yard, 0, NULL, NULL, 1000, NULL);
	json_t *events = json_object_get(answer, "events");
	unsigned count = 0;
	json_t *event;
	size_t i;

	json_array_foreach (events, i, event)
		count += !strcmp(json_get_text(event, "type"), type);
	return count;
}

static const char *waits_for(const char *name)
{
	static char text[200];
	_cleanup_json_ json_t *json = box_json(box_named(name));

	snprintf(text, sizeof text, "%s", json_get_text(json, "waits_for"));
	return text;
}

static void test_first_box_waits_for_the_file_and_tells_why(void **state)
{
	const struct box_spec one = { .name = "ada", .driver = "fake" };
	const struct box_spec two = { .name = "bob", .driver = "fake" };
	struct answer first = ANSWER_INIT, second = ANSWER_INIT;

	(void)state;
	set_up();
	box_create(test.yard, &one, on_box, &first);
	box_create(test.yard, &two, on_box, &second);
	assert_int_equal(first.calls, 0);
	assert_state("ada", BOX_CREATING);
	assert_string_equal(waits_for("ada"), "building the disk file of image 'debian'");
	wait_ok(&first);
	wait_ok(&second);
	assert_int_equal(count_events("box.waiting"), 2);
	assert_string_equal(waits_for("ada"), "");
	assert_int_equal(access(fake_image, R_OK), 0);
	assert_string_equal(fake_image_key, "aaaaaaaaaa-0");
	check_yard("with a file");
	make_box("eve");
	assert_int_equal(count_events("box.waiting"), 2);
}

static void test_box_that_is_removed_while_it_waits_leaves_nothing(void **state)
{
	const struct box_spec spec = { .name = "ada", .driver = "fake" };
	struct answer create = ANSWER_INIT, removed = ANSWER_INIT;

	(void)state;
	set_up();
	box_create(test.yard, &spec, on_box, &create);
	box_remove(box_named("ada"), true, on_box, &removed);
	wait_for(&create, false);
	wait_for(&removed, false);
	assert_false(box_is_here("ada"));
	check_yard("removed");
}

static void test_a_file_that_cannot_be_made_fails_the_start(void **state)
{
	const struct box_spec spec = { .name = "ada", .driver = "fake" };
	_cleanup_free_ char *path = xstrdup(getenv("PATH"));
	struct answer answer = ANSWER_INIT;

	(void)state;
	set_up();
	setenv("PATH", "/nowhere", 1);
	box_create(test.yard, &spec, on_box, &answer);
	setenv("PATH", path, 1);
	wait_err(&answer, ERR_UNSUPPORTED);
	assert_non_null(strstr(answer.err.hint, "erofs-utils"));
	assert_false(box_is_here("ada"));
}

static void test_a_file_that_was_damaged_is_made_again_at_a_start(void **state)
{
	struct answer answer = ANSWER_INIT;
	_cleanup_free_ char *image = NULL;

	(void)state;
	set_up();
	make_box("ada");
	image = xstrdup(fake_image);
	box_stop(box_named("ada"), 0, on_box, &answer);
	wait_ok(&answer);
	answer_done(&answer);
	assert_int_equal(truncate(image, 4096), 0);
	box_start(box_named("ada"), on_box, &answer);
	wait_ok(&answer);
	assert_string_equal(fake_image, image);
	assert_state("ada", BOX_RUNNING);
}

static int set_disk(const char *name, uint64_t bytes, struct err *err)
{
	const struct limits limits = { BOX_LIMIT_DEFAULT, BOX_LIMIT_DEFAULT, bytes,
		BOX_LIMIT_DEFAULT };

	return box_set(box_named(name), &limits, NULL, err);
}

static void test_disk_grows_and_does_not_shrink(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	set_up();
	make_box("ada"); /* its disk has no limit: ENGINE_DISK_DEFAULT */
	assert_int_equal(set_disk("ada", UINT64_C(1) << 30, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
	assert_non_null(strstr(err.message, "can only grow"));
	assert_int_equal(set_disk("ada", UINT64_C(20) << 30, &err), 0);
	assert_int_equal(set_disk("ada", 0, &err), -1);
	assert_int_equal(set_disk("ada", UINT64_C(20) << 30, &err), 0);
}

static void test_volumes_and_folders_of_the_host_are_refused(void **state)
{
	json_t *volumes = json_pack("[{s:s,s:s}]", "name", "data", "path", "/data");
	json_t *mounts = json_pack("[{s:s,s:s}]", "source", "/tmp", "path", "/data");
	struct box_spec spec = { .name = "ada", .driver = "fake", .volumes = volumes };
	struct answer answer = ANSWER_INIT;

	(void)state;
	set_up();
	box_create(test.yard, &spec, on_box, &answer);
	wait_err(&answer, ERR_UNSUPPORTED);
	assert_non_null(strstr(answer.err.message, "has no volumes"));
	answer_done(&answer);
	spec.volumes = NULL;
	spec.mounts = mounts;
	box_create(test.yard, &spec, on_box, &answer);
	wait_err(&answer, ERR_UNSUPPORTED);
	assert_non_null(strstr(answer.err.message, "no folders of the host"));
	json_decref(volumes);
	json_decref(mounts);
}

static void put_label(const char *driver)
{
	_cleanup_free_ char *path = xasprintf("%s/images/aaaaaaaaaa/image.json", test.home);
	_cleanup_free_ char *text = xasprintf(
		"{\"id\":\"aaaaaaaaaa\",\"name\":\"debian\",\"origin\":\"test\",\"created_us\":1,"
		"\"size\":1,\"files\":1,\"packages\":[],"
		"\"config\":{\"labels\":{\"boxyard.driver\":\"%s\"}}}",
		driver);

	yard_end();
	assert_int_equal(file_write_atomic(AT_FDCWD, path, text, strlen(text), 0644, NULL), 0);
	yard_start();
}

static void test_image_may_demand_a_driver(void **state)
{
	struct box_spec spec = { .name = "ada", .driver = "fake" };
	struct answer answer = ANSWER_INIT;

	(void)state;
	put_label("vm");
	box_create(test.yard, &spec, on_box, &answer);
	wait_err(&answer, ERR_INVALID);
	assert_non_null(strstr(answer.err.message, "demands the driver 'vm'"));
	answer_done(&answer);
	spec.driver = NULL;
	box_create(test.yard, &spec, on_box, &answer);
	wait_err(&answer, ERR_INVALID); /* there is none of that name here */
	assert_non_null(strstr(answer.err.message, "no driver 'vm'"));
	answer_done(&answer);
	put_label("fake");
	box_create(test.yard, &spec, on_box, &answer);
	wait_ok(&answer);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		YARD_TEST(test_first_box_waits_for_the_file_and_tells_why),
		YARD_TEST(test_box_that_is_removed_while_it_waits_leaves_nothing),
		YARD_TEST(test_a_file_that_cannot_be_made_fails_the_start),
		YARD_TEST(test_a_file_that_was_damaged_is_made_again_at_a_start),
		YARD_TEST(test_disk_grows_and_does_not_shrink),
		YARD_TEST(test_volumes_and_folders_of_the_host_are_refused),
		YARD_TEST(test_image_may_demand_a_driver),
	};
	int ret;

	if (yard_is_gate(argc, argv, &ret))
		return ret;
	return cmocka_run_group_tests(tests, yard_group_setup, yard_group_teardown);
}
