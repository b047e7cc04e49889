/* test_package_hosts.c - what an image's package managers use is found, and a hostile image leads
 * nowhere else
 *
 * Needs root. Layers lie on a tmpfs in a mount namespace of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/strv.h"
#include "image/package_hosts_internal.h"
#include <fcntl.h>
#include <libgen.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static char place[] = "/tmp/test-package-hosts-XXXXXX";

static int setup(void **state)
{
	(void)state;
	return mount("test-hosts", place, "tmpfs", 0, "mode=0700") < 0 || chdir(place) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	return chdir("/") < 0 || umount2(place, MNT_DETACH) < 0 ? -1 : 0;
}

static void put_bytes(const char *path, const void *data, size_t len)
{
	_cleanup_free_ char *copy = xstrdup(path);
	int fd;

	assert_int_equal(dir_make_all(dirname(copy), 0755, NULL), 0);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, data, len, NULL), 0);
	close(fd);
}

static void put(const char *path, const char *text)
{
	put_bytes(path, text, strlen(text));
}

static void make_folder(const char *path)
{
	assert_int_equal(dir_make_all(path, 0755, NULL), 0);
}

/* Hosts of the layers "top", "low" (if there), separated by spaces. Yours. */
static char *find(const json_t *env)
{
	_cleanup_free_ char *top = xasprintf("%s/top", place), *low = xasprintf("%s/low", place);
	const char *const layers[] = { top, access(low, F_OK) == 0 ? low : NULL, NULL };
	_cleanup_strv_ char **hosts = NULL;
	struct err err = ERR_INIT;
	struct buf out = BUF_INIT;
	char *text;

	make_folder("top");
	hosts = package_hosts_find(layers, env, &err);
	if (!hosts)
		fail_msg("package_hosts_find: %s", err.message);
	for (size_t i = 0; hosts[i]; i++)
		buf_addf(&out, "%s%s", i ? " " : "", hosts[i]);
	text = xstrdup(buf_str(&out));
	buf_done(&out);
	return text;
}

static void expect(const char *wanted)
{
	_cleanup_free_ char *found = find(NULL);

	assert_string_equal(found, wanted);
}

/* ---- formats -------------------------------------------------------------------------------- */

static void test_package_hosts_of_apt(void **state)
{
	(void)state;
	put("top/etc/apt/sources.list",
		"# deb http://comment.example.com/debian x main\n"
		"deb [arch=amd64 signed-by=/usr/share/k.gpg] http://deb.example.com/debian stable "
		"main\n"
		"deb-src\thttps://user:secret@SRC.example.com:8443/debian stable main # more\n"
		"deb cdrom:[Disk]/ stable main\ndeb file:///srv/debs ./\n"
		"debian https://no.example.com/ x\n");
	put("top/etc/apt/sources.list.d/a.list", "deb https://deb.example.com/x stable main\n");
	put("top/etc/apt/sources.list.d/a.disabled", "deb https://disabled.example.com/ x y\n");
	put("top/etc/apt/sources.list.d/b.sources",
		"Types: deb\nURIs: http://one.example.com/debian\n http://two.example.com/debian\n"
		"Suites: stable\nSigned-By: https://key.example.com/k\n\n"
		"# URIs: http://comment.example.com/\n"
		"Enabled: no \nURIs: http://off.example.com/\n\n"
		"uris: mirror+https://mirror.example.com/list\r\nTypes: deb\n\n"
		"URIs: mirror+file:/etc/apt/mirrors/m.list\n");
	put("top/etc/apt/mirrors/m.list", "http://third.example.com/debian priority:1\n");
	put("top/etc/apt/apt.conf.d/proxy",
		"Acquire::http::Proxy \"http://proxy.example.com:3142\";\n"
		"// Acquire::http::Proxy \"http://old.example.com:3142\";\n"
		"APT::Periodic \"1\";\n");
	expect("deb.example.com:80 src.example.com:8443 deb.example.com:443 one.example.com:80 "
	       "two.example.com:80 mirror.example.com:443 third.example.com:80 "
	       "proxy.example.com:3142");
}

static void test_package_hosts_of_other_systems(void **state)
{
	(void)state;
	put("top/etc/apk/repositories",
		"https://apk.example.com/v3/main\n#http://off.example.com/\n"
		"@edge http://edge.example.com/main\n/srv/packages\n");
	put("top/etc/yum.repos.d/a.repo",
		"[base]\nname=Base\nbaseurl=https://dnf.example.com/$releasever/\n"
		"  https://dnf2.example.com/$releasever/\n\nenabled=1\n"
		"[more]\nmetalink=https://meta.example.com/?repo=x&arch=$basearch\n"
		"[off]\nbaseurl=https://off.example.com/\n\nenabled = 0\n"
		"[var]\nmirrorlist=http://$host.example.com/\n");
	put("top/etc/pacman.d/mirrorlist", "## all\n#Server = https://off.example.com/$repo\n"
					   "Server = https://pac.example.com/$repo/os/$arch\n");
	expect("apk.example.com:443 edge.example.com:80 dnf.example.com:443 dnf2.example.com:443 "
	       "meta.example.com:443 pac.example.com:443");
}

static void test_package_hosts_of_languages(void **state)
{
	(void)state;
	put("top/root/.cargo/config.toml",
		"[source.crates-io]\nreplace-with = \"ours\"\n"
		"[source.ours]\nregistry = \"sparse+https://cargo.example.com/index/\"\n");
	put("top/root/.gemrc", "---\n:backtrace: false\n:sources:\n- https://gem.example.com\n"
			       "- http://gem2.example.com:9292\n:other: https://no.example.com\n");
	put("top/root/.config/go/env",
		"GOPROXY=https://go.example.com|https://go2.example.com,direct\n"
		"GOSUMDB=sum.example.com\nGOFLAGS=-mod=mod\n");
	put("top/root/.composer/config.json",
		"{\"repositories\":[{\"type\":\"composer\",\"url\":\"https://php.example.com\"}]}");
	expect("cargo.example.com:443 gem.example.com:443 gem2.example.com:9292 go.example.com:443 "
	       "go2.example.com:443 sum.example.com:443 php.example.com:443");
}

static const char pip_code[] = "import urllib.parse\n\nclass PackageIndex:\n    pass\n\n"
			       "PyPI = PackageIndex(\"https://index.example.com/\", "
			       "file_storage_domain=\"files.example.com\")\n"
			       "TestPyPI = PackageIndex(\n    \"https://test.example.com/\", "
			       "file_storage_domain=\"t.example.com\"\n)\n";

static const char npm_code[] = "define('redirect', { default: 'https://no.example.com' })\n"
			       "define('registry', {\n  default: 'https://npm.example.com/',\n"
			       "  description: 'see https://docs.example.com'\n})\n";

static void test_package_hosts_defaults_come_from_the_managers_files(void **state)
{
	(void)state;
	put("top/usr/lib/python3/dist-packages/pip/_internal/models/index.py", pip_code);
	put("top/usr/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/"
	    "definitions.js",
		npm_code);
	put("top/usr/local/lib/ruby/3.2.0/rubygems/defaults.rb",
		"# https://doc.example.com\ndef self.default_sources\n  "
		"%w[https://gem.example.com/]\nend\n");
	put("top/usr/local/go/go.env",
		"# about\nGOPROXY=https://go.example.com,direct\nGOSUMDB=sum.example.com\n");
	expect("index.example.com:443 files.example.com:443 npm.example.com:443 "
	       "gem.example.com:443 go.example.com:443 sum.example.com:443");
}

static void test_package_hosts_configuration_replaces_the_default(void **state)
{
	(void)state;
	put("top/usr/local/lib/python3.11/site-packages/pip/_internal/models/index.py", pip_code);
	put("top/usr/lib/node_modules/npm/lib/utils/config/definitions.js", npm_code);
	put("top/etc/pip.conf", "[global]\nindex-url =\n    https://pip.example.com/simple\n\n"
				"extra-index-url = https://a.example.com/simple\n    "
				"https://b.example.com:444/simple\n"
				"[install]\ntrusted-host = https://no.example.com\n");
	/* A scope's registry is used besides the default. */
	put("top/root/.npmrc", "@team:registry=https://team.example.com/\n"
			       "//team.example.com/:_authToken=secret\n");
	expect("pip.example.com:443 a.example.com:443 b.example.com:444 team.example.com:443 "
	       "npm.example.com:443");
}

static void test_package_hosts_users_do_not_replace_the_default_of_root(void **state)
{
	(void)state;
	put("top/usr/lib/node_modules/npm/lib/utils/config/definitions.js", npm_code);
	put("top/home/node/.npmrc", "registry = https://mine.example.com/\n");
	expect("mine.example.com:443 npm.example.com:443");
}

static void test_package_hosts_of_the_environment(void **state)
{
	_cleanup_json_ json_t *env =
		json_pack("[s,s,s,s]", "PATH=/bin", "PIP_INDEX_URL=https://pip.example.com/simple",
			"npm_config_registry=http://npm2.example.com:4873",
			"HOMEPAGE=https://no.example.com");
	_cleanup_free_ char *found = NULL;

	(void)state;
	put("top/usr/lib/python3/dist-packages/pip/_internal/models/index.py", pip_code);
	put("top/usr/lib/node_modules/npm/lib/utils/config/definitions.js", npm_code);
	found = find(env);
	assert_string_equal(found, "pip.example.com:443 npm2.example.com:4873");
}

/* yarn and composer are one large file. */
static void test_package_hosts_in_a_large_program(void **state)
{
	size_t len = 5 << 20, at = 64 * 1024 - 7; /* across a border of what is read at once */
	_cleanup_free_ char *text = xcalloc(len, 1);
	const char *line = "const YARN_REGISTRY = 'https://yarn.example.com';";

	(void)state;
	memset(text, 'x', len);
	memcpy(text + at, line, strlen(line));
	put_bytes("top/opt/yarn-v1.22.22/lib/cli.js", text, len);
	memset(text, '\0', len);
	memcpy(text + len - 80, "$defaultRepositories => 'https://php.example.com'", 49);
	put_bytes("top/usr/local/bin/composer", text, len);
	expect("yarn.example.com:443 php.example.com:443");
}

/* ---- layers --------------------------------------------------------------------------------- */

static void test_package_hosts_upper_layers_hide_lower_ones(void **state)
{
	(void)state;
	put("low/etc/apt/sources.list", "deb http://low.example.com/ x y\n");
	put("low/etc/apk/repositories", "http://gone.example.com/\n");
	put("low/etc/apt/sources.list.d/l.list", "deb http://list.example.com/ x y\n");
	put("top/etc/apt/sources.list", "deb http://top.example.com/ x y\n");
	make_folder("top/etc/apk");
	assert_int_equal(mknod("top/etc/apk/repositories", S_IFCHR, makedev(0, 0)), 0);
	expect("top.example.com:80 list.example.com:80");
}

/* ---- hostile images ------------------------------------------------------------------------- */

static void test_package_hosts_links_stay_in_the_image(void **state)
{
	_cleanup_free_ char *outside = xasprintf("%s/outside", place);
	_cleanup_free_ char *up = xasprintf("../../../../../../../..%s", outside);

	(void)state;
	put("outside", "deb http://outside.example.com/ x y\nhttp://outside.example.com/\n");
	make_folder("top/etc/apt/sources.list.d");
	make_folder("top/etc/apk");
	assert_int_equal(symlink(outside, "top/etc/apt/sources.list"), 0);
	assert_int_equal(symlink(up, "top/etc/apt/sources.list.d/up.list"), 0);
	assert_int_equal(symlink("loop.list", "top/etc/apt/sources.list.d/loop.list"), 0);
	assert_int_equal(symlink("/proc/self/root/etc/passwd", "top/etc/apk/repositories"), 0);
	/* One that stays inside is followed, as the manager would. */
	put("top/usr/share/real", "deb http://inside.example.com/ x y\n");
	assert_int_equal(symlink("/usr/share/real", "top/etc/apt/sources.list.d/in.list"), 0);
	expect("inside.example.com:80");
}

static void test_package_hosts_strange_files_do_not_block(void **state)
{
	_cleanup_free_ char *large = xcalloc(2 << 20, 1);
	int64_t start = clock_mono_us();

	(void)state;
	memset(large, 'a', 2 << 20);
	memcpy(large, "deb http://large.example.com/ x y\n", 34);
	make_folder("top/etc/apt/sources.list.d/folder.list");
	make_folder("top/etc/apk");
	assert_int_equal(mkfifo("top/etc/apt/sources.list", 0644), 0);
	assert_int_equal(mknod("top/etc/apk/repositories", S_IFCHR | 0644, makedev(1, 5)), 0);
	put_bytes("top/etc/apt/sources.list.d/large.list", large, 2 << 20);
	put_bytes("top/etc/apt/sources.list.d/nul.list",
		"deb http://nul.example.com/ x y\n\0deb http://behind.example.com/ x y\n", 66);
	put("top/etc/apt/sources.list.d/one.list", "deb http://"); /* cut off */
	expect("nul.example.com:80");
	assert_true(clock_mono_us() - start < 1000000);
}

static void test_package_hosts_are_plain_names_only(void **state)
{
	(void)state;
	put("top/etc/apk/repositories",
		"http://192.0.2.1/\nhttp://[2001:db8::1]/\nhttp://localhost/\nhttp://*.example.com/"
		"\n"
		"http://a..example.com/\nhttp://.example.com/\nhttp://a.example.com:0/\n"
		"http://b.example.com:70000/\nhttp://c.example.com:8o/\nhttp://d%41.example.com/\n"
		"gopher://e.example.com/\n://f.example.com/\nhttp://"
		"g.example.com\\@evil.example.com/\n"
		"http://h.example.com@i.example.com/\nhttp://0x7f.1/\nhttp://\xc3\xa9.example.com/"
		"\n");
	expect("g.example.com:80 i.example.com:80");
}

static void test_package_hosts_work_is_bounded(void **state)
{
	int64_t start = clock_mono_us();
	_cleanup_strv_ char **hosts = NULL;
	_cleanup_free_ char *top = xasprintf("%s/top", place);
	const char *const layers[] = { top, NULL };

	(void)state;
	for (int i = 0; i < 1200; i++) {
		_cleanup_free_ char *list = xasprintf("top/etc/apt/sources.list.d/%d.list", i);
		_cleanup_free_ char *line = xasprintf("deb http://h%d.example.com/ x y\n", i);
		_cleanup_free_ char *deep = xasprintf("top/home/u%d/.config/pip/pip.conf", i);

		put(list, line);
		put(deep, "[global]\nindex-url = https://pip.example.com/\n");
	}
	hosts = package_hosts_find(layers, NULL, NULL);
	assert_non_null(hosts);
	assert_int_equal(strv_len((const char *const *)hosts), PACKAGE_HOSTS_MAX);
	assert_true(clock_mono_us() - start < 2000000);
}

static void test_package_hosts_of_an_empty_image_are_none(void **state)
{
	const char *const missing[] = { "/nowhere/at/all", NULL };
	struct err err = ERR_INIT;

	(void)state;
	expect("");
	assert_null(package_hosts_find(missing, NULL, &err));
	assert_int_equal(err.kind, ERR_NOT_FOUND);
}

/* Whatever bytes a file has: nothing but NAME:PORT comes of it. */
static void test_package_hosts_random_text_gives_plain_hosts(void **state)
{
	static const char *const pieces[] = { "http", "://", "https://a.example.com", "\n", " ",
		"=", ":", "registry", "URIs", "@", "[", "]", "\"", "enabled", "0", "-", "deb ", ".",
		"/", "\t", "proxy", "#", "+", "a", "example.com" };
	unsigned seed = 7;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		struct found found = { 0 };
		struct buf text = BUF_INIT;

		for (int i = rand_r(&seed) % 30; i > 0; i--)
			buf_add_str(&text, pieces[(size_t)rand_r(&seed) % ARRAY_LEN(pieces)]);
		hosts_read((enum host_format)(round % FORMAT_COUNT), "!registry @URIs",
			buf_str(&text), &found);
		hosts_read_code(buf_str(&text), round % 2 ? ')' : 0, &found);
		for (size_t i = 0; i < found.count; i++) {
			size_t len =
				strspn(found.hosts[i], "abcdefghijklmnopqrstuvwxyz0123456789.-_");

			assert_int_equal(found.hosts[i][len], ':');
			assert_true(strtoul(found.hosts[i] + len + 1, NULL, 10) > 0);
		}
		found_done(&found);
		buf_done(&text);
	}
}

int main(void)
{
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		IN_PLACE(test_package_hosts_of_apt),
		IN_PLACE(test_package_hosts_of_other_systems),
		IN_PLACE(test_package_hosts_of_languages),
		IN_PLACE(test_package_hosts_defaults_come_from_the_managers_files),
		IN_PLACE(test_package_hosts_configuration_replaces_the_default),
		IN_PLACE(test_package_hosts_users_do_not_replace_the_default_of_root),
		IN_PLACE(test_package_hosts_of_the_environment),
		IN_PLACE(test_package_hosts_in_a_large_program),
		IN_PLACE(test_package_hosts_upper_layers_hide_lower_ones),
		IN_PLACE(test_package_hosts_links_stay_in_the_image),
		IN_PLACE(test_package_hosts_strange_files_do_not_block),
		IN_PLACE(test_package_hosts_are_plain_names_only),
		IN_PLACE(test_package_hosts_work_is_bounded),
		IN_PLACE(test_package_hosts_of_an_empty_image_are_none),
		cmocka_unit_test(test_package_hosts_random_text_gives_plain_hosts),
	};
	int failed;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		print_message("needs root: skipped\n");
		return 77;
	}
	if (!mkdtemp(place))
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(place);
	return failed;
}
