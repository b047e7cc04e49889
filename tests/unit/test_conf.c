/* test_conf.c - defaults, then the file, then the environment */
#include "conf/conf.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static char path[] = "/tmp/test-conf-XXXXXX";

static int set_up(void **state)
{
	int fd = mkstemp(path);

	(void)state;
	if (fd < 0)
		return -1;
	close(fd);
	return setenv("BOX_CONF", path, 1);
}

static int tear_down(void **state)
{
	(void)state;
	return unlink(path);
}

static int clean_environment(void **state)
{
	(void)state;
	unsetenv("BOX_HOME");
	unsetenv("BOX_RUN");
	unsetenv("BOX_LISTEN");
	unsetenv("BOX_LOG_LEVEL");
	unsetenv("BOX_SSH_LISTEN");
	return 0;
}

static int load(const char *text, struct conf *conf, struct err *err)
{
	assert_int_equal(file_write_atomic(AT_FDCWD, path, text, strlen(text), 0600, NULL), 0);
	return conf_load(conf, err);
}

static void test_conf_has_defaults(void **state)
{
	struct conf conf;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(load("", &conf, &err), 0);
	assert_int_equal(err.kind, ERR_NONE);
	assert_string_equal(conf.home, "/var/lib/boxyard");
	assert_string_equal(conf.run, "/run/boxyard");
	assert_string_equal(conf.name, "boxyard");
	assert_string_equal(conf.socket, "/run/boxyard/box.sock");
	assert_string_equal(conf.group, "boxyard");
	assert_int_equal(conf.inside_fork_depth, 3);
	assert_int_equal(conf.inside_fork_count, 10);
	assert_int_equal(conf.inside_fork_rate, 30);
	assert_true(conf.yard_memory == CONF_AUTO && conf.yard_pids == CONF_AUTO);
	assert_true(conf.listen_tcp);
	assert_string_equal(conf.address, "127.0.0.1");
	assert_int_equal(conf.port, 30001);
	assert_false(conf.hibernate_on_shutdown);
	assert_int_equal(conf.snapshots_keep, 20);
	assert_int_equal(conf.snapshots_keep_age_ms, 7ULL * 86400000);
	conf_done(&conf);
	conf_done(&conf);
}

static void test_conf_file_is_read(void **state)
{
	struct conf conf;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(
		load("# comment\n\n  home = /srv/yard/  \r\nrun=/run/y\nlisten = [::1]:8080\n"
		     "log_level = debug\nmax_boxes = 10\ndefault_memory = 1.5G\n"
		     "default_pids = 100\ndefault_cpu = 0.5\ngroup = agents\n"
		     "hibernate_on_shutdown = yes\nsnapshots_keep = 0\nsnapshots_keep_age = 12h\n"
		     "inside_fork_depth = 0\ninside_fork_count = 4\ninside_fork_rate = 9\n"
		     "yard_memory = 3G\nyard_pids = off",
			&conf, &err),
		0);
	assert_string_equal(conf.home, "/srv/yard");
	assert_string_equal(conf.socket, "/run/y/box.sock");
	assert_string_equal(conf.address, "::1");
	assert_int_equal(conf.port, 8080);
	assert_int_equal(conf.log_level, LOG_LEVEL_DEBUG);
	assert_int_equal(conf.max_boxes, 10);
	assert_int_equal(conf.default_memory, 1536 << 20);
	assert_int_equal(conf.default_pids, 100);
	assert_int_equal(conf.default_cpu_milli, 500);
	assert_string_equal(conf.group, "agents");
	assert_true(conf.hibernate_on_shutdown);
	assert_int_equal(conf.snapshots_keep, 0);
	assert_int_equal(conf.snapshots_keep_age_ms, 12ULL * 3600000);
	assert_int_equal(conf.inside_fork_depth, 0);
	assert_int_equal(conf.inside_fork_count, 4);
	assert_int_equal(conf.inside_fork_rate, 9);
	assert_int_equal(conf.yard_memory, UINT64_C(3) << 30);
	assert_int_equal(conf.yard_pids, 0);
	conf_done(&conf);
}

static void test_conf_environment_wins(void **state)
{
	struct conf conf;
	struct err err = ERR_INIT;

	(void)state;
	setenv("BOX_HOME", "/tmp/h", 1);
	setenv("BOX_RUN", "/tmp/r", 1);
	setenv("BOX_LISTEN", "off", 1);
	assert_int_equal(load("home = /a\nrun = /b\n", &conf, &err), 0);
	assert_string_equal(conf.home, "/tmp/h");
	assert_string_equal(conf.run, "/tmp/r");
	assert_false(conf.listen_tcp);
	conf_done(&conf);
	setenv("BOX_HOME", "", 1); /* set but empty is not set */
	assert_int_equal(load("home = /a\n", &conf, &err), 0);
	assert_string_equal(conf.home, "/a");
	conf_done(&conf);
	setenv("BOX_HOME", "relative", 1);
	assert_int_equal(load("", &conf, &err), -1);
	assert_non_null(strstr(err.message, "BOX_HOME"));
}

static void test_conf_says_when_boxes_sleep(void **state)
{
	struct conf conf;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(load("", &conf, &err), 0);
	assert_int_equal(conf.idle_suspend_ms, 30 * 1000);
	assert_int_equal(conf.idle_hibernate_ms, 15 * 60 * 1000);
	conf_done(&conf);
	assert_int_equal(load("idle_suspend = 2m\nidle_hibernate = off\n", &conf, &err), 0);
	assert_int_equal(conf.idle_suspend_ms, 120 * 1000);
	assert_int_equal(conf.idle_hibernate_ms, 0);
	conf_done(&conf);
}

static void test_conf_homes_have_names_of_their_own(void **state)
{
	struct conf a, b, again;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(load("home = /srv/a", &a, &err), 0);
	assert_int_equal(load("home = /srv/b", &b, &err), 0);
	assert_int_equal(load("home = /srv/a/", &again, &err), 0);
	assert_string_not_equal(a.name, b.name);
	assert_string_equal(a.name, again.name);
	assert_int_equal(strncmp(a.name, "boxyard-", 8), 0);
	conf_done(&a);
	conf_done(&b);
	conf_done(&again);
}

static void test_conf_says_which_line_is_wrong(void **state)
{
	static const char *const bad[] = { "nonsense", "colour = red", "= x", "home",
		"home =", "home = relative", "listen = 8080", "listen = 127.0.0.1:65536",
		"listen_certificate = cert.pem", "listen_key = key.pem",
		"listen = 127.0.0.1:", "listen = :80", "listen = localhost:80",
		"listen =", "log_level = loud", "max_boxes = 0", "max_boxes = many",
		"idle_suspend = never", "idle_suspend = 10ms", "idle_hibernate = -1s",
		"default_memory = -1", "default_pids = 99999999", "default_cpu = fast",
		"group = Box Yard", "pool = zfs", "pool_size = big", "pool_max = -1",
		"spare_disks = 65", "vm_spares = 17", "mount_roots = /srv:data",
		"registry = http://x", "registry = -x", "hibernate_on_shutdown = 1",
		"snapshots_keep = -1", "snapshots_keep_age = long", "registry_auth = here",
		"default_disk = much",
		"home = "
		"/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		"aaaaaaaa" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		_cleanup_free_ char *text = xasprintf("# one\n%s\n", bad[i]);
		struct conf conf;
		struct err err = ERR_INIT;

		assert_int_equal(load(text, &conf, &err), -1);
		assert_int_equal(err.kind, ERR_INVALID);
		assert_non_null(strstr(err.message, "line 2"));
		assert_non_null(strstr(err.message, path));
	}
}

static void test_conf_listens_elsewhere_with_a_certificate_alone(void **state)
{
	static const char *const places[] = { "0.0.0.0:80", "10.0.0.1:80", "[::]:80",
		"192.168.1.1:0" };
	struct conf conf;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		_cleanup_free_ char *plain = xasprintf("listen = %s\n", places[i]);
		_cleanup_free_ char *half = xasprintf("%slisten_certificate = /a.pem\n", plain);
		_cleanup_free_ char *both = xasprintf("%slisten_key = /b.pem\n", half);
		struct err err = ERR_INIT;

		assert_int_equal(load(plain, &conf, &err), -1);
		assert_non_null(strstr(err.message, "needs TLS"));
		assert_non_null(strstr(err.hint, "listen_certificate"));
		err_clear(&err);
		assert_int_equal(load(half, &conf, &err), -1);
		err_clear(&err);
		assert_int_equal(load(both, &conf, &err), 0);
		assert_string_equal(conf.listen_key, "/b.pem");
		conf_done(&conf);
	}
}

static void test_conf_named_file_must_exist(void **state)
{
	struct conf conf;
	struct err err = ERR_INIT;

	(void)state;
	setenv("BOX_CONF", "/nonexistent/boxyard.conf", 1);
	assert_int_equal(conf_load(&conf, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	setenv("BOX_CONF", path, 1);
}

static void test_conf_reads_how_boxes_are_found(void **state)
{
	static const char *const bad[] = { "url_domain = Boxes.example\n", "url_domain = .x\n",
		"url_domain = a..b\n", "url_domain = a/b\n", "url_listen = 443\n",
		"url_listen = 0.0.0.0:443\n", /* without files */
		"url_certificate = cert.pem\n" };
	struct conf conf;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(load("", &conf, &err), 0);
	assert_null(conf.url_listen);
	assert_string_equal(conf.url_domain, "");
	conf_done(&conf);
	assert_int_equal(load("url_domain = boxes.example\nurl_listen = [::]:8443\n"
			      "url_certificate = /a.pem\nurl_key = /b.pem\n",
				 &conf, &err),
		0);
	assert_string_equal(conf.url_listen, "::");
	assert_int_equal(conf.url_port, 8443);
	assert_string_equal(conf.url_domain, "boxes.example");
	assert_string_equal(conf.url_key, "/b.pem");
	conf_done(&conf);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(load(bad[i], &conf, &err), -1);
		assert_int_equal(err.kind, ERR_INVALID);
	}
}

static void test_conf_reads_how_ssh_comes_in(void **state)
{
	static const char *const bad[] = { "ssh_listen = 22\n", "ssh_listen = localhost:22\n",
		"ssh_listen = 127.0.0.1:70000\n", "ssh_linger = long\n", "ssh_linger = -1s\n",
		"ssh_agent = yes\n" };
	struct conf conf;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(load("", &conf, &err), 0);
	assert_string_equal(conf.ssh_listen, "127.0.0.1");
	assert_int_equal(conf.ssh_port, 30022);
	assert_string_equal(conf.ssh_socket, "/run/boxyard/ssh.sock");
	assert_int_equal(conf.ssh_linger_ms, 3600 * 1000);
	assert_false(conf.ssh_agent);
	conf_done(&conf);
	assert_int_equal(
		load("ssh_listen = [::]:22\nssh_linger = never\nssh_agent = on\n", &conf, &err), 0);
	assert_string_equal(conf.ssh_listen, "::");
	assert_int_equal(conf.ssh_port, 22);
	assert_true(conf.ssh_linger_ms == CONF_FOREVER && conf.ssh_agent);
	conf_done(&conf);
	assert_int_equal(load("ssh_listen = off\nssh_linger = 0\n", &conf, &err), 0);
	assert_null(conf.ssh_listen);
	assert_int_equal(conf.ssh_linger_ms, 0);
	conf_done(&conf);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(load(bad[i], &conf, &err), -1);
		assert_int_equal(err.kind, ERR_INVALID);
	}
}

/* The well-known port is that of the daemon in the default home. */
static void test_conf_ssh_of_two_daemons_does_not_collide(void **state)
{
	struct conf conf;
	struct err err = ERR_INIT;

	(void)state;
	setenv("BOX_HOME", "/tmp/h", 1);
	assert_int_equal(load("", &conf, &err), 0);
	assert_string_equal(conf.ssh_listen, "127.0.0.1");
	assert_int_equal(conf.ssh_port, 0);
	assert_string_equal(conf.ssh_socket, "/tmp/h/run/ssh.sock");
	conf_done(&conf);
	setenv("BOX_SSH_LISTEN", "127.0.0.1:30022", 1);
	assert_int_equal(load("", &conf, &err), 0);
	assert_int_equal(conf.ssh_port, 30022);
	conf_done(&conf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_conf_has_defaults, clean_environment),
		cmocka_unit_test_setup(test_conf_file_is_read, clean_environment),
		cmocka_unit_test_setup(test_conf_environment_wins, clean_environment),
		cmocka_unit_test_setup(test_conf_says_when_boxes_sleep, clean_environment),
		cmocka_unit_test_setup(test_conf_homes_have_names_of_their_own, clean_environment),
		cmocka_unit_test_setup(test_conf_says_which_line_is_wrong, clean_environment),
		cmocka_unit_test_setup(
			test_conf_listens_elsewhere_with_a_certificate_alone, clean_environment),
		cmocka_unit_test_setup(test_conf_named_file_must_exist, clean_environment),
		cmocka_unit_test_setup(test_conf_reads_how_boxes_are_found, clean_environment),
		cmocka_unit_test_setup(test_conf_reads_how_ssh_comes_in, clean_environment),
		cmocka_unit_test_setup(
			test_conf_ssh_of_two_daemons_does_not_collide, clean_environment),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
