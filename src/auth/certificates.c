/* certificates.c - SSH certificates of the CAs that the operator names
 *
 * The setting ssh_ca names a file of lines as authorized_keys has them, one CA each:
 *
 *   cert-authority,principals="ann,bob",role=exec ssh-ed25519 AAAA… ops
 *
 * A principal of a certificate is the name of an owner. With several, the login works for the owner
 * of the box it names, if that is one of them, and else for the first. The file is read at each
 * login: what is taken out of it is out at once. */
#include "auth/auth_internal.h"
#include "auth/keys.h"
#include "base/clock.h"
#include "base/file.h"
#include "conf/conf.h"
#include "core/box.h"
#include "core/login_name.h"
#include "core/yard.h"
#include "sshkey/cert.h"
#include "sshkey/line.h"
#include "sshkey/reader.h"
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>

enum { CA_FILE_MAX = 256 * 1024 };

static_assert((int)KEYLINE_NO_PTY == KEY_NO_PTY &&
		      (int)KEYLINE_NO_FORWARDING == KEY_NO_FORWARDING &&
		      (int)KEYLINE_NO_AGENT == KEY_NO_AGENT && (int)KEYLINE_NO_X11 == KEY_NO_X11,
	"the same bits");
static_assert((int)CERT_PTY == KEY_NO_PTY && (int)CERT_FORWARDING == KEY_NO_FORWARDING &&
		      (int)CERT_AGENT == KEY_NO_AGENT && (int)CERT_X11 == KEY_NO_X11,
	"what is not permitted is restricted");

/* The line of the CA that signed the certificate. A line that cannot be read is an error for all:
 * the operator must hear of it. */
static int find_ca(
	const char *path, const struct sshcert *cert, struct keyline *ret, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	const char *at;
	unsigned number = 0;
	char *line;

	if (!*path)
		return err_set(err, ERR_UNAUTHORIZED, "the setting ssh_ca names no CA");
	if (file_read(AT_FDCWD, path, CA_FILE_MAX, &text, NULL, err) < 0)
		return err_wrap(err, "ssh_ca");
	for (at = text; (line = keyline_next(&at, &number)); free(line)) {
		if (keyline_read(line, ret, err) < 0) {
			free(line);
			return err_wrap(err, "ssh_ca: line %u of '%s'", number, path);
		}
		if (bytes_equal(ret->key.blob, cert->ca.blob)) {
			free(line);
			return 0;
		}
		keyline_done(ret);
	}
	return err_set(err, ERR_UNAUTHORIZED, "the certificate is of an unknown CA");
}

/* Whether list, "ann,bob", has name; an empty list has every one. */
static bool list_has(const char *list, const char *name)
{
	size_t len = strlen(name);

	if (!*list)
		return true;
	for (const char *at = list; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
		if (strcspn(at, ",") == len && !strncmp(at, name, len))
			return true;
	return false;
}

/* The owner of the box that the user name asks for, or NULL. */
static const char *owner_of_target(struct auth *auth, const char *user)
{
	struct login_name name;
	struct box *box;

	if (login_name_parse(user, strlen(user), &name, NULL) < 0 || !*name.box)
		return NULL;
	box = box_find(auth->yard, name.box, NULL);
	return box ? box_get_owner(box) : NULL;
}

static int pick_owner(const struct sshcert *cert, const struct keyline *ca, const char *wanted,
	char ret[OWNER_SIZE], struct err *err)
{
	bool found = false;

	for (unsigned i = 0; i < cert->principal_count; i++) {
		char name[OWNER_SIZE];

		if (!bytes_text(cert->principals[i], name, sizeof name) ||
			name_check("owner", name, NULL) < 0 || !list_has(ca->principals, name))
			continue;
		if (found && (!wanted || strcmp(wanted, name)))
			continue;
		memcpy(ret, name, sizeof name);
		found = true;
	}
	return found ? 0
		     : err_set(err, ERR_UNAUTHORIZED,
			       "no principal of the certificate is an owner its CA may name");
}

static int check_ca(const struct keyline *ca, const char *peer, struct err *err)
{
	if (ca->expires_us && ca->expires_us <= clock_wall_us())
		return err_set(err, ERR_UNAUTHORIZED, "the CA has expired");
	if (*ca->sources && *peer && !sources_has(ca->sources, peer))
		return err_set(err, ERR_UNAUTHORIZED,
			"certificates of the CA may not be used from %s", peer);
	return 0;
}

static int fill(struct auth *auth, const struct auth_ssh_ask *ask, const struct sshcert *cert,
	const struct keyline *ca, struct principal *ret, struct err *err)
{
	struct principal principal = { .kind = PRINCIPAL_CERTIFICATE,
		.id = PRINCIPAL_ID_CERTIFICATE,
		.restricted = ca->restricted | (KEY_RESTRICT & ~cert->permits) };
	unsigned scopes = 0;

	if (check_ca(ca, ask->peer, err) < 0 ||
		role_from_name(*ca->role ? ca->role : "create", &scopes, err) < 0 ||
		(*ca->box && name_check("box", ca->box, err) < 0) ||
		pick_owner(cert, ca, owner_of_target(auth, ask->user), principal.asker.owner, err) <
			0)
		return -1;
	principal_set_role(&principal, scopes, ca->box);
	snprintf(principal.asker.who, sizeof principal.asker.who, "certificate %.80s",
		*cert->key_id ? cert->key_id : "without a name");
	*ret = principal;
	return 0;
}

static int check_key(const struct sshcert *cert, const struct auth_ssh_ask *ask, struct err *err)
{
	struct sshkey key;

	if (!ask->key)
		return 0;
	if (sshkey_read(ask->key, ask->key_len, &key, err) < 0)
		return -1;
	if (!sshcert_has_key(cert, &key))
		return err_set(err, ERR_INVALID, "the certificate is for another key");
	return 0;
}

int auth_by_certificate(
	struct auth *auth, const struct auth_ssh_ask *ask, struct principal *ret, struct err *err)
{
	struct keyline ca = { 0 };
	struct sshcert cert;
	int result;

	if (sshcert_read(ask->cert, ask->cert_len, &cert, err) < 0 ||
		check_key(&cert, ask, err) < 0 ||
		find_ca(yard_get_conf(auth->yard)->ssh_ca, &cert, &ca, err) < 0)
		return -1;
	result = sshcert_verify(&cert, err);
	if (result == 0)
		result =
			sshcert_check(&cert, (uint64_t)(clock_wall_us() / 1000000), ask->peer, err);
	if (result == 0)
		result = fill(auth, ask, &cert, &ca, ret, err);
	keyline_done(&ca);
	return result;
}
