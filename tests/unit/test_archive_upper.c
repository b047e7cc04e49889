/* test_archive_upper.c - the upper folder of an overlay as a layer, as box-init sends it; needs
 * root */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "guest/archive.h"
#include "base/file.h"
#include "tar/tar.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

static int disk = -1;
static char place[] = "/tmp/test-upper-XXXXXX";

static int setup(void **state)
{
	(void)state;
	strcpy(strrchr(place, '-') + 1, "XXXXXX");
	if (!mkdtemp(place) || mount("test-upper", place, "tmpfs", 0, NULL) < 0 ||
		chdir(place) < 0 || mkdir("upper", 0755) < 0)
		return -1;
	disk = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	archive_set_disk(disk);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(disk);
	archive_set_disk(-1);
	return chdir("/") < 0 || umount2(place, MNT_DETACH) < 0 || rmdir(place) < 0 ? -1 : 0;
}

/* ---- what it sends -------------------------------------------------------------------------- */

struct sent {
	struct buf tar;
	bool replied, ended, failed;
	char error[300];
};

static void take_frame(struct sent *sent, const struct wire_frame *frame)
{
	switch (frame->type) {
	case WIRE_REPLY:
		sent->replied = true;
		break;
	case WIRE_DATA:
		assert_true(frame->len > WIRE_DATA_HEADER);
		buf_add(&sent->tar, frame->payload + WIRE_DATA_HEADER,
			frame->len - WIRE_DATA_HEADER);
		break;
	case WIRE_END:
		sent->ended = true;
		break;
	case WIRE_ERROR:
		sent->failed = true;
		snprintf(sent->error, sizeof sent->error, "%.*s", (int)frame->len,
			(const char *)frame->payload);
		break;
	default:
		fail_msg("a frame of type %d", frame->type);
	}
}

/* In a process of its own, as workers are. */
static void run(struct sent *ret)
{
	struct buf in = BUF_INIT;
	struct wire_frame frame;
	int line[2], status;
	ssize_t got;
	pid_t pid;

	memset(ret, 0, sizeof *ret);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line), 0);
	pid = fork();
	if (pid == 0) {
		static struct job job;
		struct err err = ERR_INIT;

		job = (struct job){ .op = WIRE_OP_TAR_UPPER, .fd = line[1], .channel = 1 };
		if (archive_upper(&job, &err) < 0) {
			dprintf(2, "%s\n", err.message);
			job_error(&job, &err);
		}
		_exit(0);
	}
	close(line[1]);
	while ((got = read(line[0], buf_room(&in, 65536), 65536)) > 0) {
		buf_grew(&in, (size_t)got);
		while (wire_frame_parse(&in, &frame, NULL) > 0) {
			take_frame(ret, &frame);
			buf_eat(&in, WIRE_HEADER + frame.len);
		}
	}
	close(line[0]);
	buf_done(&in);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static ssize_t read_buf(void *arg, void *data, size_t len, struct err *err)
{
	struct buf *buf = arg;
	size_t part = MIN(len, buf->len);

	(void)err;
	memcpy(data, buf_head(buf), part);
	buf_eat(buf, part);
	return (ssize_t)part;
}

/* The names of all entries, in brackets; *found has a copy of the one called name. */
static char *list(struct sent *sent, const char *name, struct tar_entry *found)
{
	static struct tar_reader reader;
	struct buf names = BUF_INIT;
	const struct tar_entry *entry;
	struct err err = ERR_INIT;
	char *text;
	int got;

	reader = (struct tar_reader){ .read = read_buf, .arg = &sent->tar };
	*found = (struct tar_entry){ .name = NULL };
	while ((got = tar_next(&reader, &entry, &err)) > 0) {
		buf_addf(&names, "[%s]", entry->name);
		if (!strcmp(entry->name, name))
			*found = *entry;
	}
	assert_int_equal(got, 0);
	text = xstrdup(buf_str(&names));
	buf_done(&names);
	return text;
}

static void put(const char *path, const char *text)
{
	assert_int_equal(file_write_atomic(AT_FDCWD, path, text, strlen(text), 0640, NULL), 0);
}

static void test_removed_files_and_opaque_folders_are_told_as_in_a_layer(void **state)
{
	struct sent sent;
	struct tar_entry entry;
	_cleanup_free_ char *names = NULL;

	(void)state;
	assert_int_equal(mkdir("upper/etc", 0750), 0);
	assert_int_equal(mkdir("upper/new", 0755), 0);
	assert_int_equal(setxattr("upper/new", "trusted.overlay.opaque", "y", 1, 0), 0);
	assert_int_equal(mknod("upper/etc/gone", S_IFCHR, 0), 0);
	assert_int_equal(mknod("upper/etc/null", S_IFCHR | 0666, makedev(1, 3)), 0);
	put("upper/new/file", "hello");
	run(&sent);
	assert_true(sent.replied && sent.ended && !sent.failed);
	names = list(&sent, "./new/file", &entry);
	assert_int_equal(entry.size, 5);
	assert_int_equal(entry.mode, 0640);
	assert_non_null(strstr(names, "[./etc/.wh.gone]"));
	assert_null(strstr(names, "[./etc/gone]"));
	assert_non_null(strstr(names, "[./etc/null]"));
	assert_non_null(strstr(names, "[./new][./new/.wh..wh..opq]"));
	assert_null(strstr(names, "[./etc/.wh..wh..opq]"));
	buf_done(&sent.tar);
}

static void test_owners_links_and_attributes_come_along(void **state)
{
	struct sent sent;
	struct tar_entry entry;
	_cleanup_free_ char *names = NULL;

	(void)state;
	put("upper/a", "x");
	assert_int_equal(chown("upper/a", 123456, 7), 0);
	assert_int_equal(chmod("upper/a", 04711), 0);
	assert_int_equal(setxattr("upper/a", "trusted.mine", "v", 1, 0), 0);
	assert_int_equal(link("upper/a", "upper/b"), 0);
	assert_int_equal(symlink("a", "upper/c"), 0);
	run(&sent);
	names = list(&sent, "./c", &entry);
	assert_int_equal(entry.type, TAR_SYMLINK);
	buf_done(&sent.tar);
	free(steal_ptr(&names));
	assert_int_equal(unlink("upper/b"), 0);
	run(&sent);
	names = list(&sent, "./a", &entry);
	assert_int_equal(entry.uid, 123456);
	assert_int_equal(entry.mode, 04711);
	assert_int_equal(entry.xattr_count, 0); /* trusted ones stay */
	buf_done(&sent.tar);
}

static void test_a_name_that_would_mean_a_removal_is_refused(void **state)
{
	struct sent sent;

	(void)state;
	put("upper/.wh.trick", "x");
	run(&sent);
	assert_true(sent.failed);
	assert_false(sent.ended);
	buf_done(&sent.tar);
}

static void test_a_box_without_a_disk_of_its_own_is_told_so(void **state)
{
	struct sent sent;

	(void)state;
	archive_set_disk(-1);
	run(&sent);
	assert_true(sent.failed);
	assert_false(sent.replied);
	buf_done(&sent.tar);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_removed_files_and_opaque_folders_are_told_as_in_a_layer),
		TEST(test_owners_links_and_attributes_come_along),
		TEST(test_a_name_that_would_mean_a_removal_is_refused),
		TEST(test_a_box_without_a_disk_of_its_own_is_told_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
