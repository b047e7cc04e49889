/* test_ssh_proxy.c - the line before SSH on this machine's socket, and what the client is told */
#include "ssh/proxy.h"
#include "base/alloc.h"
#include "base/strv.h"
#include "cli/ssh_config.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void test_proxy_line_is_made_and_read(void **state)
{
	static const char *const hosts[][2] = { { "ada.box", "ada" }, { "ada", "ada" },
		{ "ada+root.box", "ada+root" }, { "box.box", "box" } };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
		_cleanup_free_ char *line = NULL, *sent = NULL;
		char name[PROXY_NAME_MAX + 1];
		struct err err = ERR_INIT;
		bool none;

		assert_int_equal(proxy_make_line(hosts[i][0], &line, &err), 0);
		sent = xasprintf("%sSSH-2.0-x\r\n", line);
		assert_int_equal(
			proxy_read_line(sent, strlen(sent), name, &none, &err), strlen(line));
		assert_false(none);
		assert_string_equal(name, hosts[i][1]);
		/* Byte by byte. */
		for (size_t len = 0; len < strlen(line); len++) {
			assert_int_equal(proxy_read_line(sent, len, name, &none, &err), 0);
			assert_false(none);
		}
	}
}

static void test_proxy_line_may_be_missing_but_not_malformed(void **state)
{
	static const char *const bad[] = { "BOX \n", "BOX a b\n", "BOX a\tb\n", "BOX \x80\n",
		"BOX a\r\n" };
	char name[PROXY_NAME_MAX + 1], longest[PROXY_LINE_MAX + 20];
	struct err err = ERR_INIT;
	bool none;

	(void)state;
	assert_int_equal(proxy_read_line("SSH-2.0-x\r\n", 11, name, &none, &err), 0);
	assert_true(none);
	assert_int_equal(proxy_read_line("S", 1, name, &none, &err), 0);
	assert_true(none);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(proxy_read_line(bad[i], strlen(bad[i]), name, &none, &err), -1);
		assert_int_equal(err.kind, ERR_PROTOCOL);
	}
	memset(longest, 'a', sizeof longest);
	memcpy(longest, "BOX ", 4);
	assert_int_equal(proxy_read_line(longest, sizeof longest, name, &none, &err), -1);
	longest[4 + PROXY_NAME_MAX] = '\n';
	assert_int_equal(
		proxy_read_line(longest, sizeof longest, name, &none, &err), PROXY_LINE_MAX);
	assert_int_equal(strlen(name), PROXY_NAME_MAX);
}

static void test_proxy_refuses_names_that_would_be_more_than_a_line(void **state)
{
	static const char *const bad[] = { "", ".box\n", "a\nBOX b", "a b.box", "\x1b[2J" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err err = ERR_INIT;
		char *line = NULL;

		assert_int_equal(proxy_make_line(bad[i], &line, &err), -1);
		assert_int_equal(err.kind, ERR_INVALID);
	}
}

static void test_proxy_user_is_one_of_the_box_unless_nobody_chose_it(void **state)
{
	char login[PROXY_NAME_MAX + 1], longest[PROXY_NAME_MAX + 1];
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(proxy_login("ada", PROXY_USER, "ann", login, &err), 0);
	assert_string_equal(login, "ada");
	assert_int_equal(proxy_login("ada", "ann", "ann", login, &err), 0);
	assert_string_equal(login, "ada");
	assert_int_equal(proxy_login("ada", "web", "ann", login, &err), 0);
	assert_string_equal(login, "ada+web");
	assert_int_equal(proxy_login("ada+root", "ann", "ann", login, &err), 0);
	assert_string_equal(login, "ada+root");
	assert_int_equal(proxy_login("ada+root", "web", "ann", login, &err), -1);
	assert_int_equal(proxy_login("ada", "", "", login, &err), 0);
	assert_string_equal(login, "ada+"); /* which login_name_parse refuses */
	memset(longest, 'a', PROXY_NAME_MAX);
	longest[PROXY_NAME_MAX] = '\0';
	assert_int_equal(proxy_login(longest, "web", "", login, &err), -1);
}

static void test_ssh_config_of_another_machine(void **state)
{
	struct ssh_way tcp = { .kind = SSH_WAY_TCP,
		.program = (char *)"/usr/bin/box",
		.host = (char *)"lab.example",
		.port = 30022,
		.alias = (char *)"boxyard.lab.example",
		.known_path = (char *)"/h/known hosts" };
	struct ssh_way hop = { .kind = SSH_WAY_HOP,
		.program = (char *)"/usr/bin/box",
		.socket = (char *)"/srv/run/ssh.sock",
		.host = (char *)"build",
		.user = (char *)"ann",
		.port = 2222,
		.alias = (char *)"boxyard.build",
		.known_path = (char *)"/h/known" };
	_cleanup_free_ char *block = NULL;
	_cleanup_strv_ char **options = ssh_way_options(&hop);
	_cleanup_json_ json_t *boxes = json_pack("[{s:s},{s:s}]", "name", "ada", "name", "bea");

	(void)state;
	tcp.boxes = boxes;
	block = ssh_way_block(&tcp);
	assert_non_null(strstr(block, "Host ada.box\n\tUser ada\nHost bea.box\n\tUser bea\n"
				      "Host *.box\n\tHostName lab.example\n\tPort 30022\n"
				      "\tHostKeyAlias boxyard.lab.example\n"));
	assert_non_null(strstr(block, "\tUserKnownHostsFile \"/h/known hosts\"\n"));
	assert_null(strstr(block, "ProxyCommand"));
	assert_string_equal(options[0], "ProxyCommand ssh -T -p 2222 ann@build box ssh-proxy "
					"\\''%n'\\' /srv/run/ssh.sock");
	assert_string_equal(options[1], "User box");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_proxy_line_is_made_and_read),
		cmocka_unit_test(test_proxy_line_may_be_missing_but_not_malformed),
		cmocka_unit_test(test_proxy_refuses_names_that_would_be_more_than_a_line),
		cmocka_unit_test(test_proxy_user_is_one_of_the_box_unless_nobody_chose_it),
		cmocka_unit_test(test_ssh_config_of_another_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
