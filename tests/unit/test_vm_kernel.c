/* test_vm_kernel.c - modules by what they need, the initramfs, and the kernel scripts/vm-kernel got
 *
 * Made-up modules show the order; the real kernel is looked at where it is, and its absence is
 * said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "base/file.h"
#include "engine/vm/cpio.h"
#include "engine/vm/kernel.h"
#include "engine/vm/modules.h"
#include <elf.h>
#include <fcntl.h>
#include <lzma.h>
#include <stdio.h>
#include <sys/stat.h>

static char folder[] = "/tmp/test-vm-kernel-XXXXXX";

static int setup(void **state)
{
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return tree_remove(AT_FDCWD, folder, NULL);
}

/* ---- made-up modules ------------------------------------------------------------------------ */

/* An ELF file of three sections: none, names, .modinfo. */
static struct buf make_module(const char *depends)
{
	static const char names[] = "\0.shstrtab\0.modinfo";
	struct buf out = BUF_INIT, info = BUF_INIT;
	Elf64_Ehdr head = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64 },
		.e_shoff = sizeof head,
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = 3,
		.e_shstrndx = 1 };
	Elf64_Shdr sections[3] = { 0 };

	buf_add(&info, "license=GPL", sizeof "license=GPL");
	buf_addf(&info, "depends=%s", depends);
	buf_add(&info, "", 1);
	sections[1] = (Elf64_Shdr){
		.sh_name = 1, .sh_offset = sizeof head + sizeof sections, .sh_size = sizeof names
	};
	sections[2] = (Elf64_Shdr){ .sh_name = 11,
		.sh_offset = sections[1].sh_offset + sizeof names,
		.sh_size = info.len };
	buf_add(&out, &head, sizeof head);
	buf_add(&out, sections, sizeof sections);
	buf_add(&out, names, sizeof names);
	buf_add(&out, buf_head(&info), info.len);
	buf_done(&info);
	return out;
}

static void write_module(const char *path, const char *depends, bool packed)
{
	struct buf bytes = make_module(depends);
	_cleanup_free_ char *whole = xasprintf("%s/kernel/%s", folder, path);
	uint8_t out[4096];
	size_t len = 0;

	if (packed)
		assert_int_equal(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC32, NULL,
					 buf_head(&bytes), bytes.len, out, &len, sizeof out),
			LZMA_OK);
	assert_int_equal(file_write_atomic(AT_FDCWD, whole, packed ? out : buf_head(&bytes),
				 packed ? len : bytes.len, 0644, NULL),
		0);
	buf_done(&bytes);
}

static void write_builtin(const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/modules.builtin", folder);

	assert_int_equal(file_write_atomic(AT_FDCWD, path, text, strlen(text), 0644, NULL), 0);
}

static void make_tree(void)
{
	_cleanup_free_ char *path = xasprintf("%s/kernel/drivers", folder);

	dir_make_all(path, 0755, NULL);
	write_module("drivers/top.ko", "left_one,right", false);
	write_module("drivers/left-one.ko.xz", "bottom", true);
	write_module("drivers/right.ko", "bottom,inside", false);
	write_module("drivers/bottom.ko", "", false);
	write_module("drivers/lost.ko", "nowhere", false);
	write_builtin("kernel/fs/inside.ko\nkernel/fs/ext4/ext4.ko\n");
}

static void test_modules_come_after_what_they_need(void **state)
{
	static const char *const wanted[] = { "top", "ext4", "absent?", "bottom", NULL };
	static const char *const order[] = { "bottom", "left_one", "right", "top" };
	struct err err = ERR_INIT;
	struct vm_modules modules;
	_cleanup_free_ char *depends = NULL;

	(void)state;
	make_tree();
	if (vm_modules_resolve(folder, wanted, &modules, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(modules.count, 4);
	for (size_t i = 0; i < 4; i++)
		assert_string_equal(modules.list[i].name, order[i]);
	/* Unpacked, whatever it was on disk. */
	assert_int_equal(vm_module_depends(buf_head(&modules.list[1].bytes),
				 modules.list[1].bytes.len, &depends, &err),
		0);
	assert_string_equal(depends, "bottom");
	vm_modules_done(&modules);
}

static void test_a_missing_module_is_told(void **state)
{
	static const char *const lost[] = { "lost", NULL }, *const absent[] = { "absent", NULL };
	struct err err = ERR_INIT;
	struct vm_modules modules;

	(void)state;
	make_tree();
	assert_int_equal(vm_modules_resolve(folder, lost, &modules, &err), -1);
	assert_non_null(strstr(err.message, "nowhere"));
	err_clear(&err);
	assert_int_equal(vm_modules_resolve(folder, absent, &modules, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
}

static void test_modules_in_a_circle_end(void **state)
{
	static const char *const wanted[] = { "round", NULL };
	struct err err = ERR_INIT;
	struct vm_modules modules;

	(void)state;
	make_tree();
	write_module("drivers/round.ko", "about", false);
	write_module("drivers/about.ko", "round", false);
	assert_int_equal(vm_modules_resolve(folder, wanted, &modules, &err), -1);
	assert_non_null(strstr(err.message, "too many"));
}

static void test_damaged_modules_are_refused(void **state)
{
	struct buf bytes = make_module("a,b");
	struct err err = ERR_INIT;
	char *depends;

	(void)state;
	/* Any length of it, and any byte of its head changed: no more than the bytes is read. */
	for (size_t len = 0; len < bytes.len; len++) {
		_cleanup_free_ char *part = len ? xmemdup(buf_head(&bytes), len) : xstrdup("");

		if (vm_module_depends(part, len, &depends, &err) == 0)
			free(depends);
	}
	for (size_t at = 0; at < sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Shdr); at++) {
		_cleanup_free_ uint8_t *other = xmemdup(buf_head(&bytes), bytes.len);

		other[at] ^= 0xff;
		if (vm_module_depends(other, bytes.len, &depends, &err) == 0)
			free(depends);
	}
	assert_int_equal(vm_module_depends("text", 4, &depends, &err), -1);
	buf_done(&bytes);
}

/* ---- cpio ----------------------------------------------------------------------------------- */

static void test_cpio_is_what_the_kernel_reads(void **state)
{
	struct buf out = BUF_INIT;
	const char *head;

	(void)state;
	cpio_add(&out, "init", S_IFREG | 0755, 0, "12345", 5);
	cpio_end(&out);
	head = (const char *)buf_head(&out);
	assert_memory_equal(head,
		"070701"
		"00000000"
		"000081ED",
		22);
	assert_memory_equal(head + 6 + 6 * 8, "00000005", 8);
	assert_string_equal(head + 110, "init");
	/* Names and data end at multiples of four. */
	assert_memory_equal(head + 116,
		"12345\0\0\0"
		"070701",
		14);
	assert_int_equal(out.len % 4, 0);
	assert_string_equal(head + 124 + 110, "TRAILER!!!");
	buf_done(&out);
}

/* ---- the real one --------------------------------------------------------------------------- */

static bool real_kernel(char **ret)
{
	const char *path = getenv("BOX_TEST_VM_KERNEL");
	_cleanup_free_ char *image = xasprintf("%s/vmlinuz", path ? path : "");

	if (!path || access(image, R_OK) < 0) {
		print_message("NOT RUN: there is no kernel at %s; scripts/vm-kernel gets it\n",
			path ? path : "BOX_TEST_VM_KERNEL");
		return false;
	}
	*ret = xstrdup(path);
	return true;
}

static void test_the_real_kernel_gets_an_initramfs(void **state)
{
	_cleanup_free_ char *path = NULL, *dir = xasprintf("%s/vm", folder), *key = NULL,
			    *line = NULL;
	struct vm_kernel_config config = {
		.dir = dir, .resolv_conf = "nameserver 198.18.0.1\n", .certificates = ""
	};
	struct err err = ERR_INIT;
	struct vm_kernel *kernel;

	(void)state;
	if (!real_kernel(&path))
		skip();
	config.path = path;
	assert_int_equal(vm_kernel_open(&config, &kernel, &err), 0);
	key = xstrdup(vm_kernel_get_key(kernel));
	assert_int_equal(access(vm_kernel_get_initrd(kernel), R_OK), 0);
	assert_int_equal(access(vm_kernel_get_modules(kernel), R_OK), 0);
	line = vm_kernel_cmdline(kernel, false, 2500000);
	assert_non_null(strstr(line, "tsc_early_khz=2500000"));
	vm_kernel_free(kernel);
	/* The same again; another text gives another one. */
	assert_int_equal(vm_kernel_open(&config, &kernel, &err), 0);
	assert_string_equal(vm_kernel_get_key(kernel), key);
	vm_kernel_free(kernel);
	config.certificates = "-----BEGIN CERTIFICATE-----\n";
	assert_int_equal(vm_kernel_open(&config, &kernel, &err), 0);
	assert_string_not_equal(vm_kernel_get_key(kernel), key);
	vm_kernel_free(kernel);
}

static void test_no_kernel_is_told_with_what_to_do(void **state)
{
	struct vm_kernel_config config = { .path = "/nowhere", .dir = folder };
	struct err err = ERR_INIT;
	struct vm_kernel *kernel;

	(void)state;
	assert_int_equal(vm_kernel_open(&config, &kernel, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_non_null(strstr(err.hint, "vm-kernel"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_modules_come_after_what_they_need),
		cmocka_unit_test(test_a_missing_module_is_told),
		cmocka_unit_test(test_modules_in_a_circle_end),
		cmocka_unit_test(test_damaged_modules_are_refused),
		cmocka_unit_test(test_cpio_is_what_the_kernel_reads),
		cmocka_unit_test(test_the_real_kernel_gets_an_initramfs),
		cmocka_unit_test(test_no_kernel_is_told_with_what_to_do),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
