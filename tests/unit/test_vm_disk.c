/* test_vm_disk.c - the file that is the disk of a VM box: made, cloned, grown; needs root
 *
 * On a btrfs of the test's own, as in a pool, and on a tmpfs, which can neither clone nor do direct
 * I/O. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "base/file.h"
#include "engine/vm/disk.h"
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GIB = 1 << 30 };

static char top[] = "/tmp/test-vm-disk-XXXXXX";
static char pool[64], plain[64];

static void run(const char *format, const char *arg)
{
	_cleanup_free_ char *command = xasprintf(format, arg);

	if (system(command) != 0)
		fail_msg("%s", command);
}

static int set_up(void **state)
{
	(void)state;
	if (!mkdtemp(top) || unshare(CLONE_NEWNS) < 0 ||
		mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	snprintf(pool, sizeof pool, "%s/pool", top);
	snprintf(plain, sizeof plain, "%s/plain", top);
	mkdir(pool, 0700);
	mkdir(plain, 0700);
	run("truncate -s 512M %s.img && mkfs.btrfs -q %1$s.img >/dev/null && mount -o loop %1$s.img %1$s",
		pool);
	return mount("test", plain, "tmpfs", 0, NULL);
}

static int tear_down(void **state)
{
	(void)state;
	umount(plain);
	umount(pool);
	return tree_remove(AT_FDCWD, top, NULL);
}

static struct stat look(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st;
}

static void test_disk_is_made_whole_and_sparse(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/made", pool);
	_cleanup_close_ int fd = -1;
	struct err err = ERR_INIT;
	struct stat st;
	int flags = 0;

	(void)state;
	if (vm_disk_format(path, UINT64_C(4) * GIB, &err) < 0)
		fail_msg("%s", err.message);
	st = look(path);
	assert_int_equal(st.st_size, INT64_C(4) * GIB);
	assert_true(st.st_blocks * 512 < 16 << 20);
	assert_int_equal(st.st_mode & 07777, 0600);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(ioctl(fd, FS_IOC_GETFLAGS, &flags), 0);
	assert_true(flags & FS_NOCOW_FL);
	run("e2fsck -fn %s >/dev/null 2>&1", path);
	/* One that is there is not made anew. */
	assert_int_equal(vm_disk_format(path, GIB, &err), -1);
}

static void check_clone(const char *folder)
{
	_cleanup_free_ char *path = xasprintf("%s/made", pool);
	_cleanup_free_ char *box = xasprintf("%s/box", folder), *copy = NULL;
	_cleanup_close_ int fd = -1;
	struct err err = ERR_INIT;

	assert_int_equal(mkdir(box, 0755), 0);
	assert_false(vm_disk_exists(box));
	if (vm_disk_clone(path, box, &err) < 0)
		fail_msg("%s", err.message);
	assert_true(vm_disk_exists(box));
	copy = xasprintf("%s/" VM_DISK_FILE, box);
	assert_int_equal(look(copy).st_size, look(path).st_size);
	assert_true(look(copy).st_blocks * 512 < 16 << 20);
	run("e2fsck -fn %s >/dev/null 2>&1", copy);
	assert_int_equal(vm_disk_clone(path, box, &err), -1); /* there is one */
	assert_int_equal(vm_disk_open(box, &fd, &err), 0);
	assert_int_equal(vm_disk_grow(fd, UINT64_C(6) * GIB, &err), 0);
	assert_int_equal(look(copy).st_size, INT64_C(6) * GIB);
	assert_int_equal(vm_disk_grow(fd, GIB, &err), 0);
	assert_int_equal(look(copy).st_size, INT64_C(6) * GIB); /* never smaller */
	assert_int_equal(look(path).st_size, INT64_C(4) * GIB);
}

static void test_clone_in_a_pool(void **state)
{
	(void)state;
	check_clone(pool);
}

static void test_clone_where_files_must_be_copied(void **state)
{
	(void)state;
	check_clone(plain);
}

static void test_sizes_without_and_with_a_limit(void **state)
{
	const struct limits none = { 0 }, odd = { .disk_bytes = 5000 };

	(void)state;
	assert_int_equal(vm_disk_bytes(&none), ENGINE_DISK_DEFAULT);
	assert_int_equal(vm_disk_bytes(&odd), 8192);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_disk_is_made_whole_and_sparse),
		cmocka_unit_test(test_clone_in_a_pool),
		cmocka_unit_test(test_clone_where_files_must_be_copied),
		cmocka_unit_test(test_sizes_without_and_with_a_limit),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
