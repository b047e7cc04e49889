/* test_auth_ssh.c - SSH keys and certificates become principals, or do not */
#include "auth/keyring.h"
#include "auth/keys.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "sshkey/sshkey.h"
#include "sshkey_samples.h"
#include "yard_fixture.h"
#include <fcntl.h>
#include <stdio.h>

#define ADDRESS "192.0.2.7"

static struct auth *auth;

static int auth_set_up(void **state)
{
	if (yard_setup(state) < 0)
		return -1;
	auth = auth_new(test.yard);
	return 0;
}

static int auth_tear_down(void **state)
{
	auth_free(auth);
	free(test.conf.ssh_ca);
	test.conf.ssh_ca = NULL;
	return yard_teardown(state);
}

#define AUTH_TEST(fn) cmocka_unit_test_setup_teardown(fn, auth_set_up, auth_tear_down)

static void add_key(const char *key, struct key_row row)
{
	char fingerprint[SSHKEY_FINGERPRINT_SIZE];
	_cleanup_free_ uint8_t *blob = NULL;
	_cleanup_json_ json_t *added = NULL;
	struct err err = ERR_INIT;
	size_t len;

	assert_int_equal(base64_decode(key, strlen(key), &blob, &len, NULL), 0);
	sshkey_fingerprint(blob, len, fingerprint);
	row.fingerprint = fingerprint;
	row.key = (char *)key;
	row.type = (char *)"ssh-ed25519";
	if (!row.scopes)
		role_from_name("create", &row.scopes, NULL);
	if (store_key_add(yard_get_store(test.yard), &row, &added, &err) < 0)
		fail_msg("%s", err.message);
}

static int login_as(const char *key, const char *cert, const char *user, const char *peer,
	struct principal *ret, struct err *err)
{
	_cleanup_free_ uint8_t *key_blob = NULL, *cert_blob = NULL;
	struct auth_ssh_ask ask = { .user = user, .peer = peer, .proven = true };

	if (key) {
		assert_int_equal(base64_decode(key, strlen(key), &key_blob, &ask.key_len, NULL), 0);
		ask.key = key_blob;
	}
	if (cert) {
		assert_int_equal(
			base64_decode(cert, strlen(cert), &cert_blob, &ask.cert_len, NULL), 0);
		ask.cert = cert_blob;
	}
	return auth_ssh_key(auth, &ask, ret, err);
}

static void refuse_key(const char *user, const char *peer, const char *why)
{
	struct principal principal;
	struct err err = ERR_INIT;

	assert_int_equal(login_as(SAMPLE_USER, NULL, user, peer, &principal, &err), -1);
	if (!strstr(err.message, why))
		fail_msg("'%s' instead of '%s'", err.message, why);
}

static void test_a_key_of_the_store_is_a_principal(void **state)
{
	struct principal principal = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	refuse_key("ada", ADDRESS, "unknown key " SAMPLE_FINGERPRINT);
	add_key(SAMPLE_USER, (struct key_row){ .name = "laptop", .owner = "ann" });
	assert_int_equal(login_as(SAMPLE_USER, NULL, "ada", ADDRESS, &principal, &err), 0);
	assert_int_equal(principal.kind, PRINCIPAL_KEY);
	assert_string_equal(principal.asker.who, "key laptop");
	assert_string_equal(principal.asker.owner, "ann");
	assert_false(principal.asker.sees_all);
	assert_int_equal(principal.scopes, SCOPE_ALL & ~SCOPE_ADMIN);
	assert_int_equal(principal_check_scope(&principal, SCOPE_ADMIN, &err), -1);
	assert_non_null(strstr(err.message, "role"));
	/* Looked up again by its id, as a login of the browser does, and gone with the key. */
	assert_int_equal(auth_by_id(auth, principal.id, &principal, &err), 0);
	{
		_cleanup_json_ json_t *removed = NULL;

		assert_int_equal(store_key_remove(yard_get_store(test.yard), SAMPLE_FINGERPRINT,
					 &removed, &err),
			0);
	}
	assert_int_equal(auth_by_id(auth, principal.id, &principal, &err), -1);
	refuse_key("ada", ADDRESS, "unknown key");
}

static void test_keys_end_and_are_used_from_where_they_may(void **state)
{
	struct principal principal;
	struct err err = ERR_INIT;

	(void)state;
	add_key(SAMPLE_USER, (struct key_row){ .name = "here",
				     .owner = "ann",
				     .sources = (char *)"192.0.2.0/24,!192.0.2.9" });
	assert_int_equal(login_as(SAMPLE_USER, NULL, "ada", ADDRESS, &principal, &err), 0);
	refuse_key("ada", "192.0.2.9", "may not be used from 192.0.2.9");
	refuse_key("ada", "198.51.100.1", "may not be used from");
	add_key(SAMPLE_CA_ED25519,
		(struct key_row){
			.name = "old", .owner = "ann", .expires_us = clock_wall_us() - 1 });
	assert_int_equal(login_as(SAMPLE_CA_ED25519, NULL, "ada", ADDRESS, &principal, &err), -1);
	assert_non_null(strstr(err.message, "expired"));
	assert_int_equal(login_as(SAMPLE_WEAK, NULL, "ada", ADDRESS, &principal, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
}

/* Whatever its role says: one box, nothing made, nothing of its owner besides. */
static void test_a_bound_key_reaches_its_box_alone(void **state)
{
	struct principal principal = { 0 };
	struct err err = ERR_INIT;
	const struct asker *before;

	(void)state;
	make_box("ada");
	make_box("bob");
	add_key(SAMPLE_USER, (struct key_row){ .name = "ci",
				     .owner = (char *)OWNER_LOCAL,
				     .box = (char *)"ada",
				     .scopes = SCOPE_ALL });
	assert_int_equal(login_as(SAMPLE_USER, NULL, "bob", ADDRESS, &principal, &err), 0);
	assert_int_equal(principal.scopes, SCOPE_READ | SCOPE_FILES | SCOPE_EXEC);
	before = auth_enter(auth, &principal);
	assert_non_null(box_find(test.yard, "ada", &err));
	assert_null(box_find(test.yard, "bob", &err));
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_false(yard_may_see(test.yard, OWNER_LOCAL));
	auth_leave(auth, before);
	assert_non_null(box_find(test.yard, "bob", &err));
}

static void test_a_bound_key_does_not_follow_the_name_to_another_owner(void **state)
{
	struct principal principal = { 0 };
	struct err err = ERR_INIT;
	const struct asker *before;

	(void)state;
	make_box("ada"); /* of local */
	add_key(SAMPLE_USER,
		(struct key_row){ .name = "ci", .owner = "ann", .box = (char *)"ada" });
	assert_int_equal(login_as(SAMPLE_USER, NULL, "ada", ADDRESS, &principal, &err), 0);
	before = auth_enter(auth, &principal);
	assert_null(box_find(test.yard, "ada", &err));
	auth_leave(auth, before);
}

/* ---- certificates ---------------------------------------------------------------------------- */

static void write_ca(const char *options, const char *key)
{
	_cleanup_free_ char *line = xasprintf("# CAs\n%sssh-ed25519 %s ops\n", options, key);

	free(test.conf.ssh_ca);
	test.conf.ssh_ca = xasprintf("%s/ca", test.home);
	assert_int_equal(
		file_write_atomic(AT_FDCWD, test.conf.ssh_ca, line, strlen(line), 0600, NULL), 0);
}

static int by_cert(const char *cert, const char *user, struct principal *ret, struct err *err)
{
	return login_as(NULL, cert, user, ADDRESS, ret, err);
}

static void test_a_certificate_of_a_named_ca_is_a_principal(void **state)
{
	struct principal principal = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(by_cert(SAMPLE_CERT_ED25519, "ada", &principal, &err), -1);
	assert_non_null(strstr(err.message, "names no CA"));
	write_ca("", SAMPLE_CA_ED25519);
	assert_int_equal(by_cert(SAMPLE_CERT_P256, "ada", &principal, &err), -1);
	assert_non_null(strstr(err.message, "unknown CA"));
	if (by_cert(SAMPLE_CERT_ED25519, "ada", &principal, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(principal.kind, PRINCIPAL_CERTIFICATE);
	assert_string_equal(principal.asker.owner, "ann");
	assert_string_equal(principal.asker.who, "certificate key of ann");
	assert_int_equal(principal.restricted, 0);
	assert_int_equal(principal.scopes, SCOPE_ALL & ~SCOPE_ADMIN);
	assert_int_equal(auth_by_id(auth, principal.id, &principal, &err), -1);
	/* with permit-pty alone */
	assert_int_equal(by_cert(SAMPLE_CERT_SOURCE, "ada", &principal, &err), 0);
	assert_int_equal(principal.restricted, KEY_RESTRICT & ~KEY_NO_PTY);
	/* shown with another key than its own */
	assert_int_equal(
		login_as(SAMPLE_CA_ED25519, SAMPLE_CERT_ED25519, "ada", ADDRESS, &principal, &err),
		-1);
	assert_int_equal(
		login_as(SAMPLE_USER, SAMPLE_CERT_ED25519, "ada", ADDRESS, &principal, &err), 0);
}

static void test_a_ca_names_the_owners_it_may(void **state)
{
	struct principal principal = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	write_ca("cert-authority,principals=\"bob,eve\",role=exec,box=ada ", SAMPLE_CA_ED25519);
	if (by_cert(SAMPLE_CERT_ED25519, "ada", &principal, &err) < 0)
		fail_msg("%s", err.message);
	assert_string_equal(principal.asker.owner, "bob");
	assert_string_equal(principal.asker.only_box, "ada");
	assert_int_equal(principal.scopes, SCOPE_READ | SCOPE_FILES | SCOPE_EXEC);
	write_ca("cert-authority,principals=\"eve\" ", SAMPLE_CA_ED25519);
	assert_int_equal(by_cert(SAMPLE_CERT_ED25519, "ada", &principal, &err), -1);
	assert_non_null(strstr(err.message, "no principal"));
	write_ca("cert-authority,command=\"id\" ", SAMPLE_CA_ED25519);
	assert_int_equal(by_cert(SAMPLE_CERT_ED25519, "ada", &principal, &err), -1);
	assert_non_null(strstr(err.message, "line 2"));
}

/* ---- keys that add keys ---------------------------------------------------------------------- */

static int add_as(
	const struct principal *principal, struct key_spec spec, json_t **ret, struct err *err)
{
	const struct asker *before = auth_enter(auth, principal);
	_cleanup_free_ char *line = xasprintf("ssh-ed25519 %s second", SAMPLE_CA_ED25519);
	bool made = false;
	int result;

	err_clear(err);
	spec.line = line;
	result = auth_key_add(auth, principal, &spec, ret, &made, err);
	auth_leave(auth, before);
	return result;
}

static void test_a_key_passes_its_bounds_on(void **state)
{
	int64_t ends = clock_wall_us() + INT64_C(3600) * 1000000;
	struct principal principal = { 0 };
	_cleanup_json_ json_t *row = NULL;
	struct err err = ERR_INIT;
	struct key_row made = { 0 };

	(void)state;
	add_key(SAMPLE_USER, (struct key_row){ .name = "first",
				     .owner = "ann",
				     .sources = (char *)"192.0.2.0/24",
				     .restricted = KEY_NO_AGENT,
				     .expires_us = ends });
	assert_int_equal(login_as(SAMPLE_USER, NULL, "box", ADDRESS, &principal, &err), 0);
	assert_int_equal(add_as(&principal, (struct key_spec){ .role = "admin" }, &row, &err), -1);
	assert_int_equal(err.kind, ERR_FORBIDDEN);
	assert_int_equal(add_as(&principal, (struct key_spec){ .owner = "bob" }, &row, &err), -1);
	assert_int_equal(err.kind, ERR_FORBIDDEN);
	assert_int_equal(
		add_as(&principal, (struct key_spec){ .from = "0.0.0.0/0" }, &row, &err), -1);
	assert_int_equal(err.kind, ERR_FORBIDDEN);
	assert_int_equal(
		add_as(&principal, (struct key_spec){ .expires_us = ends + 1 }, &row, &err), -1);
	assert_int_equal(err.kind, ERR_FORBIDDEN);
	if (add_as(&principal, (struct key_spec){ .restricted = KEY_NO_PTY }, &row, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(
		store_key_get(yard_get_store(test.yard), json_get_text(row, "id"), &made, &err), 0);
	assert_string_equal(made.owner, "ann");
	assert_string_equal(made.sources, "192.0.2.0/24");
	assert_int_equal(made.restricted, KEY_NO_AGENT | KEY_NO_PTY);
	assert_int_equal(made.expires_us, ends);
	key_row_done(&made);
}

static void test_a_certificate_adds_no_keys(void **state)
{
	struct principal principal = { 0 };
	json_t *row = NULL;
	struct err err = ERR_INIT;

	(void)state;
	write_ca("", SAMPLE_CA_ED25519);
	assert_int_equal(by_cert(SAMPLE_CERT_ED25519, "box", &principal, &err), 0);
	assert_int_equal(add_as(&principal, (struct key_spec){ 0 }, &row, &err), -1);
	assert_int_equal(err.kind, ERR_FORBIDDEN);
}

/* Wrong keys are counted; the right one always comes in. */
static void test_many_wrong_keys_are_a_limit(void **state)
{
	struct principal principal;
	struct err err = ERR_INIT;

	(void)state;
	add_key(SAMPLE_USER, (struct key_row){ .name = "laptop", .owner = "ann" });
	for (unsigned i = 0; i < 40 && err.kind != ERR_LIMIT; i++)
		login_as(SAMPLE_CA_ED25519, NULL, "ada", ADDRESS, &principal, &err);
	assert_int_equal(err.kind, ERR_LIMIT);
	assert_int_equal(login_as(SAMPLE_USER, NULL, "ada", ADDRESS, &principal, &err), 0);
}

static void test_odd_bytes_in_names_reach_no_event(void **state)
{
	struct auth_ssh_ask ask = { .user = "\xff\n\x1b[2J", .peer = ADDRESS };
	_cleanup_json_ json_t *events = NULL;
	struct err err = ERR_INIT;
	json_t *last;

	(void)state;
	auth_ssh_refused(auth, &ask, "no \x01 key");
	events = store_event_list(yard_get_store(test.yard), 0, NULL, 100, &err);
	last = json_array_get(events, json_array_size(events) - 1);
	assert_string_equal(json_get_text(last, "type"), "ssh.refused");
	assert_string_equal(json_get_text(json_object_get(last, "data"), "user"), "???[2J");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		AUTH_TEST(test_a_key_of_the_store_is_a_principal),
		AUTH_TEST(test_keys_end_and_are_used_from_where_they_may),
		AUTH_TEST(test_a_bound_key_reaches_its_box_alone),
		AUTH_TEST(test_a_bound_key_does_not_follow_the_name_to_another_owner),
		AUTH_TEST(test_a_certificate_of_a_named_ca_is_a_principal),
		AUTH_TEST(test_a_ca_names_the_owners_it_may),
		AUTH_TEST(test_a_key_passes_its_bounds_on),
		AUTH_TEST(test_a_certificate_adds_no_keys),
		AUTH_TEST(test_many_wrong_keys_are_a_limit),
		AUTH_TEST(test_odd_bytes_in_names_reach_no_event),
	};
	int code;

	if (yard_is_gate(argc, argv, &code))
		return code;
	return cmocka_run_group_tests(tests, yard_group_setup, yard_group_teardown);
}
