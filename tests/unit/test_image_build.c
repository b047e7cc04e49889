/* test_image_build.c - the parts of building an image that need no network: words and sources */
#include "image/image_internal.h"
#include "base/file.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static char base[] = "/tmp/test-image-build-XXXXXX";

static int set_up(void **state)
{
	(void)state;
	return mkdtemp(base) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	return tree_remove(AT_FDCWD, base, NULL);
}

static void put(const char *name, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", base, name), *parent = xstrdup(path);

	*strrchr(parent, '/') = '\0';
	assert_int_equal(dir_make_all(parent, 0755, NULL), 0);
	assert_int_equal(file_write_atomic(AT_FDCWD, path, text, strlen(text), 0644, NULL), 0);
}

/* ---- progress ------------------------------------------------------------------------------- */

static void feed(struct progress *progress, const char *const *lines, size_t count)
{
	for (size_t i = 0; i < count; i++)
		progress_feed(progress, lines[i]);
}

static void test_progress_follows_an_apt_run(void **state)
{
	struct progress p = { 0 };

	(void)state;
	assert_true(
		progress_feed(&p, "Get:1 http://mirror.test/debian bookworm InRelease [151 kB]"));
	assert_int_equal(p.total, 0);
	assert_string_equal(p.detail, "package lists");
	assert_false(progress_feed(
		&p, "0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded."));
	assert_true(progress_feed(&p, "Get:1 http://mirror.test/debian bookworm/main amd64 libc6 "
				      "amd64 2.36-9 [2758 kB]"));
	assert_int_equal(p.stage, STAGE_DOWNLOAD);
	assert_int_equal(p.done, 1);
	assert_int_equal(p.total, 2);
	assert_string_equal(p.detail, "libc6");
	assert_true(progress_feed(&p, "Unpacking libc6:amd64 (2.36-9) ..."));
	assert_int_equal(p.stage, STAGE_UNPACK);
	assert_string_equal(p.detail, "libc6:amd64");
	/* Configured before all is unpacked: counted, not shown. */
	assert_false(progress_feed(&p, "Setting up libc6:amd64 (2.36-9) ..."));
	progress_feed(&p, "Unpacking dash (0.5) ...");
	assert_true(progress_feed(&p, "Setting up dash (0.5) ..."));
	assert_int_equal(p.stage, STAGE_CONFIGURE);
	assert_int_equal(p.done, 2);
	assert_true(progress_feed(&p, "I: cleaning package lists and apt cache..."));
	assert_int_equal(p.stage, STAGE_CLEAN);
}

static void test_progress_never_passes_its_total(void **state)
{
	struct progress p = { 0 };

	(void)state;
	progress_feed(&p, "Unpacking early (1) ...");
	assert_int_equal(p.done, 0);
	progress_feed(&p, "0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.");
	for (int i = 0; i < 5; i++)
		progress_feed(&p, "Unpacking x (1) ...");
	assert_int_equal(p.done, p.total);
	progress_feed(&p, "Get:");
	progress_feed(&p, "Get:1 a b");
	progress_feed(&p, "Setting up ");
	progress_feed(&p, "0 upgraded, 99999999999 newly installed");
	assert_true(p.done <= p.total);
}

static void test_progress_text_is_printable(void **state)
{
	struct progress p = { 0 };
	char line[2000] = "Unpacking \033[31mred\007";

	(void)state;
	progress_feed(&p, line);
	assert_null(strchr(p.detail, '\033'));
	memset(line + 10, 'x', sizeof line - 11);
	progress_feed(&p, line);
	assert_int_equal(strlen(p.detail), sizeof p.detail - 1);
}

static void test_progress_names_the_cause_not_the_echo(void **state)
{
	static const char *const no_network[] = { "I: running apt-get update...",
		"Err:1 http://mirror.test/debian bookworm InRelease",
		"  Temporary failure resolving 'mirror.test'",
		"E: Failed to fetch http://mirror.test/x  Temporary failure resolving "
		"'mirror.test'",
		"E: Some index files failed to download. They have been ignored, or old ones used "
		"instead.",
		"E: apt-get update --error-on=any -oAPT::Status-Fd=<$fd> -oDpkg::Use-Pty=false "
		"failed",
		"I: main() received signal PIPE: waiting for setup...",
		"E: mmdebstrap failed to run" };
	static const char *const full[] = {
		"tar: ./usr/lib/x.so: Cannot write: No space left on device",
		"tar: Exiting with failure status due to previous errors", "dpkg: error: whatever",
		"E: run_chroot failed: E: something failed"
	};
	static const char *const unknown[] = { "E: Unable to locate package no-such-thing",
		"E: apt-get --yes install no-such-thing failed", "E: mmdebstrap failed to run" };
	struct progress p = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	feed(&p, no_network, ARRAY_LEN(no_network));
	progress_explain(&p, 25, &err);
	assert_int_equal(err.kind, ERR_UNAVAILABLE);
	assert_string_equal(err.message,
		"Failed to fetch http://mirror.test/x  Temporary failure resolving 'mirror.test'");
	assert_true(err.hint[0]);
	p = (struct progress){ 0 };
	feed(&p, full, ARRAY_LEN(full));
	progress_explain(&p, 1, &err);
	assert_int_equal(err.kind, ERR_LIMIT);
	assert_string_equal(err.message, full[0]);
	p = (struct progress){ 0 };
	feed(&p, unknown, ARRAY_LEN(unknown));
	progress_explain(&p, 1, &err);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_string_equal(err.message, "Unable to locate package no-such-thing");
}

static void test_progress_names_the_first_package_and_what_its_script_said(void **state)
{
	static const char *const lines[] = {
		"Setting up openjdk-17-jre-headless:amd64 (17.0.1) ...",
		"update-alternatives: error: error creating symbolic link '/man1/rmid.1.gz'",
		"dpkg: error processing package openjdk-17-jre-headless:amd64 (--configure):",
		" installed package post-installation script subprocess returned error exit status 2",
		"dpkg: dependency problems prevent configuration of default-jre-headless:",
		"dpkg: error processing package default-jre-headless (--configure):",
		" dependency problems - leaving unconfigured",
		"E: Sub-process env returned an error code (1)",
		"E: apt-get --yes install default-jre-headless failed"
	};
	struct progress p = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	feed(&p, lines, ARRAY_LEN(lines));
	progress_explain(&p, 1, &err);
	assert_string_equal(err.message,
		"package 'openjdk-17-jre-headless:amd64' cannot be configured: update-alternatives: "
		"error: error creating symbolic link '/man1/rmid.1.gz'");
}

static void test_progress_explains_silence(void **state)
{
	struct progress p = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	progress_explain(&p, 3, &err);
	assert_string_equal(err.message, "mmdebstrap ended with exit code 3");
	progress_explain(&p, -1, &err);
	assert_string_equal(err.message, "mmdebstrap was killed");
	progress_feed(&p, "something odd");
	progress_explain(&p, 3, &err);
	assert_string_equal(err.message, "something odd");
}

/* ---- sources -------------------------------------------------------------------------------- */

static void test_suite_is_the_codename(void **state)
{
	static const char *const bad[] = { "", "NAME=x\n", "VERSION_CODENAME=\n",
		"VERSION_CODENAME=-x\n", "VERSION_CODENAME=a b\n", "XVERSION_CODENAME=x\n",
		"VERSION_CODENAME=$(id)\n" };
	char *suite = NULL;

	(void)state;
	assert_int_equal(
		suite_from_os_release("ID=debian\nVERSION_CODENAME=bookworm\nX=y\n", &suite, NULL),
		0);
	assert_string_equal(suite, "bookworm");
	free(suite);
	assert_int_equal(suite_from_os_release("VERSION_CODENAME=\"trixie\"", &suite, NULL), 0);
	assert_string_equal(suite, "trixie");
	free(suite);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err err = ERR_INIT;

		assert_int_equal(suite_from_os_release(bad[i], &suite, &err), -1);
		assert_int_equal(err.kind, ERR_UNSUPPORTED);
	}
}

static void test_sources_lists_lose_what_cannot_serve(void **state)
{
	_cleanup_free_ char *clean = sources_clean_list(
		"# deb http://comment.test/ x main\n"
		"deb cdrom:[Debian]/ bookworm main\n\n  deb [signed-by=/k.gpg] http://a.test/ x "
		"main\n"
		"deb-src http://a.test/ x main\ndebx y\ndeb\thttp://b.test/ x main");

	(void)state;
	assert_string_equal(clean,
		"deb [signed-by=/k.gpg] http://a.test/ x main\ndeb\thttp://b.test/ x main\n");
}

static void test_sources_are_collected_in_both_styles(void **state)
{
	_cleanup_free_ char *etc = xasprintf("%s/apt", base),
			    *merged = xasprintf("%s/debian.list", base);
	_cleanup_strv_ char **found = NULL;
	struct err err = ERR_INIT;
	char *text;

	(void)state;
	assert_int_equal(sources_collect(etc, base, &found, &err), -1);
	assert_int_equal(err.kind, ERR_UNSUPPORTED);
	put("apt/sources.list", "deb http://a.test/ x main\n");
	put("apt/sources.list.d/b.list", "deb http://b.test/ x main\n");
	put("apt/sources.list.d/c.sources", "Types: deb\nURIs: http://c.test\nSuites: x\n");
	put("apt/sources.list.d/d.sources.disabled", "nonsense\n");
	put("apt/sources.list.d/.e.sources", "nonsense\n");
	assert_int_equal(sources_collect(etc, base, &found, &err), 0);
	assert_int_equal(strv_len((const char *const *)found), 2);
	assert_non_null(strstr(found[0], "/c.sources"));
	assert_string_equal(found[1], merged);
	assert_int_equal(file_read(AT_FDCWD, merged, 1000, &text, NULL, NULL), 0);
	assert_string_equal(text, "deb http://a.test/ x main\ndeb http://b.test/ x main\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_progress_follows_an_apt_run),
		cmocka_unit_test(test_progress_never_passes_its_total),
		cmocka_unit_test(test_progress_text_is_printable),
		cmocka_unit_test(test_progress_names_the_cause_not_the_echo),
		cmocka_unit_test(test_progress_names_the_first_package_and_what_its_script_said),
		cmocka_unit_test(test_progress_explains_silence),
		cmocka_unit_test(test_suite_is_the_codename),
		cmocka_unit_test(test_sources_lists_lose_what_cannot_serve),
		cmocka_unit_test(test_sources_are_collected_in_both_styles),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
