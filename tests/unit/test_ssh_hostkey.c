/* test_ssh_hostkey.c - the daemon's SSH keys: made once, read strictly, as ssh-keygen sees them */
#include "ssh/hostkey.h"
#include "base/alloc.h"
#include "base/file.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <cmocka.h>

static char home[] = "/tmp/test-hostkey-XXXXXX";
static char first[64], next[64];

static int set_up(void **state)
{
	(void)state;
	strcpy(home + strlen(home) - 6, "XXXXXX");
	if (!mkdtemp(home))
		return -1;
	snprintf(first, sizeof first, "%s/ssh/host_ed25519_key", home);
	snprintf(next, sizeof next, "%s/ssh/host_ed25519_key.next", home);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	return tree_remove(AT_FDCWD, home, NULL);
}

static struct hostkeys *open_keys(void)
{
	struct hostkeys *keys = NULL;
	struct err err = ERR_INIT;

	if (hostkeys_open(home, &keys, &err) < 0)
		fail_msg("%s", err.message);
	return keys;
}

static void refuse(const char *why)
{
	struct hostkeys *keys = NULL;
	struct err err = ERR_INIT;

	assert_int_equal(hostkeys_open(home, &keys, &err), -1);
	if (!strstr(err.message, why))
		fail_msg("'%s' instead of '%s'", err.message, why);
	assert_non_null(strstr(err.message, home));
}

static char *read_first(void)
{
	char *text = NULL;

	assert_int_equal(file_read(AT_FDCWD, first, 16384, &text, NULL, NULL), 0);
	return text;
}

static void write_first(const char *text)
{
	assert_int_equal(file_write_atomic(AT_FDCWD, first, text, strlen(text), 0600, NULL), 0);
}

/* What a command prints, without its last end of line; NULL when it fails. Yours. */
static char *output_of(const char *fmt, ...)
{
	char command[512], text[8192];
	va_list args;
	size_t len;
	FILE *pipe;

	va_start(args, fmt);
	vsnprintf(command, sizeof command, fmt, args);
	va_end(args);
	pipe = popen(command, "r"); /* NOLINT(cert-env33-c): a test's own words */
	assert_non_null(pipe);
	len = fread(text, 1, sizeof text - 1, pipe);
	text[len] = '\0';
	while (len && text[len - 1] == '\n')
		text[--len] = '\0';
	return pclose(pipe) == 0 ? xstrdup(text) : NULL;
}

static bool has_keygen(void)
{
	return access("/usr/bin/ssh-keygen", X_OK) == 0;
}

static void test_hostkey_is_made_once(void **state)
{
	struct hostkeys *keys = open_keys();
	char one[SSHKEY_FINGERPRINT_SIZE], two[SSHKEY_FINGERPRINT_SIZE];
	struct stat st;

	(void)state;
	hostkey_fingerprint(hostkeys_get(keys, 0), one);
	assert_null(hostkeys_get(keys, 1));
	assert_null(hostkeys_get(keys, 2));
	hostkeys_close(keys);
	assert_int_equal(stat(first, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	keys = open_keys();
	hostkey_fingerprint(hostkeys_get(keys, 0), two);
	assert_string_equal(one, two);
	hostkeys_close(keys);
}

static void test_hostkey_signs_what_its_public_key_verifies(void **state)
{
	static const char data[] = "the hash of a key exchange";
	struct hostkeys *keys = open_keys();
	struct bytes blob = hostkey_get_blob(hostkeys_get(keys, 0));
	uint8_t signature[HOSTKEY_SIGNATURE_SIZE];
	struct err err = ERR_INIT;
	struct sshkey key;

	(void)state;
	assert_int_equal(sshkey_read(blob.data, blob.len, &key, &err), 0);
	assert_int_equal(
		hostkey_sign(hostkeys_get(keys, 0), data, sizeof data, signature, &err), 0);
	assert_int_equal(
		sshkey_verify(&key, signature, sizeof signature, data, sizeof data, &err), 0);
	signature[sizeof signature - 40] ^= 1;
	assert_int_equal(
		sshkey_verify(&key, signature, sizeof signature, data, sizeof data, &err), -1);
	hostkeys_close(keys);
}

static void test_hostkey_damaged_file_is_refused(void **state)
{
	_cleanup_free_ char *good = NULL;
	size_t len;

	(void)state;
	hostkeys_close(open_keys());
	good = read_first();
	len = strlen(good);
	/* Every byte changed: refused, or the same key still (a byte of the check or comment). */
	for (size_t i = 0; i < len; i++) {
		_cleanup_free_ char *bad = xstrdup(good);
		struct hostkeys *keys = NULL;
		struct err err = ERR_INIT;

		bad[i] = bad[i] == 'A' ? 'B' : 'A';
		write_first(bad);
		if (hostkeys_open(home, &keys, &err) == 0)
			hostkeys_close(keys);
		else
			assert_int_equal(err.kind, ERR_INVALID);
	}
	for (size_t cut = 0; cut < len; cut += 7) {
		_cleanup_free_ char *bad = xstrndup(good, cut);

		write_first(bad);
		refuse("damaged");
	}
	write_first(good);
	hostkeys_close(open_keys());
}

static void test_hostkey_that_others_read_is_refused(void **state)
{
	(void)state;
	hostkeys_close(open_keys());
	assert_int_equal(chmod(first, 0644), 0);
	refuse("others may read");
	assert_int_equal(unlink(first), 0);
	assert_int_equal(mkdir(first, 0700), 0);
	refuse("is no file");
}

static void test_hostkey_lines(void **state)
{
	struct hostkeys *keys = open_keys();
	const struct hostkey *key = hostkeys_get(keys, 0);
	_cleanup_free_ char *text = hostkey_text(key);
	_cleanup_free_ char *plain = hostkey_known_hosts(key, "yard.example", 22),
			    *port = hostkey_known_hosts(key, "::1", 30022),
			    *want_plain = xasprintf("yard.example %s", text),
			    *want_port = xasprintf("[::1]:30022 %s", text);
	_cleanup_json_ json_t *info = hostkeys_info_json(keys, "127.0.0.1", 30022, "libssh 0.12"),
			      *none = hostkeys_info_json(keys, NULL, 0, NULL);
	_cleanup_free_ char *known = xasprintf("[127.0.0.1]:30022 %s", text);

	(void)state;
	assert_string_equal(plain, want_plain);
	assert_string_equal(port, want_port);
	assert_string_equal(json_get_text(info, "listen"), "127.0.0.1:30022");
	assert_string_equal(json_get_text(info, "known_hosts"), known);
	assert_string_equal(json_get_text(info, "library"), "libssh 0.12");
	assert_true(json_is_null(json_object_get(none, "listen")));
	assert_true(json_is_null(json_object_get(none, "library")));
	hostkeys_close(keys);
}

static void test_hostkey_is_what_ssh_keygen_sees(void **state)
{
	_cleanup_free_ char *public = NULL, *listed = NULL, *records = NULL;
	_cleanup_free_ char *text = NULL, *record = NULL;
	char fingerprint[SSHKEY_FINGERPRINT_SIZE];
	struct hostkeys *keys;

	(void)state;
	if (!has_keygen()) {
		print_message("skipped: ssh-keygen is not installed\n");
		skip();
	}
	keys = open_keys();
	text = hostkey_text(hostkeys_get(keys, 0));
	record = hostkey_sshfp(hostkeys_get(keys, 0), "yard.example");
	hostkey_fingerprint(hostkeys_get(keys, 0), fingerprint);
	hostkeys_close(keys);
	public = output_of("ssh-keygen -y -f %s", first);
	listed = output_of("ssh-keygen -l -f %s", first);
	records = output_of("ssh-keygen -y -f %s > %s.pub && ssh-keygen -r yard.example -f %s.pub",
		first, first, first);
	assert_non_null(public);
	assert_memory_equal(public, text, strlen(text));
	assert_non_null(strstr(listed, fingerprint));
	assert_non_null(strstr(records, record));
}

static void test_hostkey_of_ssh_keygen_is_taken(void **state)
{
	_cleanup_free_ char *made = NULL, *locked = NULL, *other = NULL;
	struct hostkeys *keys;
	struct err err = ERR_INIT;
	char one[SSHKEY_FINGERPRINT_SIZE], two[SSHKEY_FINGERPRINT_SIZE];

	(void)state;
	if (!has_keygen()) {
		print_message("skipped: ssh-keygen is not installed\n");
		skip();
	}
	keys = open_keys();
	made = output_of("ssh-keygen -q -t ed25519 -N '' -C 'a longer comment' -f %s", next);
	assert_non_null(made);
	assert_int_equal(hostkeys_reload(keys, &err), 0);
	hostkey_fingerprint(hostkeys_get(keys, 0), one);
	hostkey_fingerprint(hostkeys_get(keys, 1), two);
	assert_string_not_equal(one, two);
	/* The rotation itself. */
	assert_int_equal(rename(next, first), 0);
	assert_int_equal(hostkeys_reload(keys, &err), 0);
	hostkey_fingerprint(hostkeys_get(keys, 0), one);
	assert_string_equal(one, two);
	assert_null(hostkeys_get(keys, 1));
	/* What cannot be read changes nothing. */
	locked = output_of("ssh-keygen -q -t ed25519 -N secret -f %s", next);
	assert_int_equal(hostkeys_reload(keys, &err), -1);
	assert_non_null(strstr(err.message, "passphrase"));
	hostkey_fingerprint(hostkeys_get(keys, 0), one);
	assert_string_equal(one, two);
	unlink(next);
	other = output_of("rm -f %s.pub; ssh-keygen -q -t ecdsa -N '' -f %s", next, next);
	err_clear(&err);
	assert_int_equal(hostkeys_reload(keys, &err), -1);
	assert_non_null(strstr(err.message, "no Ed25519 key"));
	hostkeys_close(keys);
}

int main(void)
{
#define KEY_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		KEY_TEST(test_hostkey_is_made_once),
		KEY_TEST(test_hostkey_signs_what_its_public_key_verifies),
		KEY_TEST(test_hostkey_damaged_file_is_refused),
		KEY_TEST(test_hostkey_that_others_read_is_refused),
		KEY_TEST(test_hostkey_lines),
		KEY_TEST(test_hostkey_is_what_ssh_keygen_sees),
		KEY_TEST(test_hostkey_of_ssh_keygen_is_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
