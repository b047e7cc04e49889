/* hostkey.c - see hostkey.h */
#include "ssh/hostkey.h"
#include "ssh/hostkey_file.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
/* OpenSSL has a type of this name. */
#define ERR_STATE OPENSSL_ERR_STATE
#include <openssl/evp.h>
#undef ERR_STATE

enum { HOST_NAME_SIZE = 256 };

struct hostkey {
	EVP_PKEY *pkey;
	uint8_t blob[HOSTKEY_BLOB_SIZE];
};

struct hostkeys {
	char *home;
	struct hostkey *keys[HOSTKEYS_MAX];
};

static const char *const names[HOSTKEYS_MAX] = { "host_ed25519_key", "host_ed25519_key.next" };

static void hostkey_free(struct hostkey *key)
{
	if (key)
		EVP_PKEY_free(key->pkey);
	free(key);
}

/* Fails when the seed does not make the point. */
static int key_new(const struct hostkey_parts *parts, struct hostkey **ret, struct err *err)
{
	struct hostkey *key = xnew(struct hostkey);
	uint8_t point[HOSTKEY_POINT_SIZE];
	size_t len = sizeof point;

	key->pkey = EVP_PKEY_new_raw_private_key(
		EVP_PKEY_ED25519, NULL, parts->seed, sizeof parts->seed);
	if (!key->pkey || EVP_PKEY_get_raw_public_key(key->pkey, point, &len) != 1 ||
		memcmp(point, parts->point, sizeof point)) {
		hostkey_free(key);
		return err_set(err, ERR_INVALID, "its two halves do not belong together");
	}
	hostkey_write_blob(point, key->blob);
	*ret = key;
	return 0;
}

/* Fills parts with a new key. */
static int make_parts(struct hostkey_parts *parts, struct err *err)
{
	size_t len = sizeof parts->point;
	EVP_PKEY *pkey;
	bool made;

	random_bytes(parts->seed, sizeof parts->seed);
	pkey = EVP_PKEY_new_raw_private_key(
		EVP_PKEY_ED25519, NULL, parts->seed, sizeof parts->seed);
	made = pkey && EVP_PKEY_get_raw_public_key(pkey, parts->point, &len) == 1;
	EVP_PKEY_free(pkey);
	return made ? 0 : err_set(err, ERR_SYSTEM, "cannot make an Ed25519 key");
}

/* Others who can read the file could answer in the daemon's name. */
static int check_mode(const char *path, struct err *err)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return err_sys(err, errno, "look at '%s'", path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_INVALID, "'%s' is no file", path);
	if (st.st_uid != geteuid() || st.st_mode & 077) {
		err_set(err, ERR_INVALID, "others may read or change '%s'", path);
		return err_hint(
			err, "'chown root' and 'chmod 600', or make a new key by moving it away");
	}
	return 0;
}

static int load(const char *path, struct hostkey **ret, struct err *err)
{
	struct hostkey_parts parts;
	char *text = NULL;
	size_t len = 0;
	int result;

	if (check_mode(path, err) < 0 ||
		file_read(AT_FDCWD, path, HOSTKEY_FILE_MAX, &text, &len, err) < 0)
		return err_wrap(err, "SSH host key");
	result = hostkey_file_read(text, len, &parts, err);
	if (result == 0)
		result = key_new(&parts, ret, err);
	explicit_bzero(&parts, sizeof parts);
	explicit_bzero(text, len);
	free(text);
	if (result == 0)
		return 0;
	err_wrap(err, "SSH host key '%s'", path);
	return err_hint(err,
		"restore the file, or move it away: a new key is made, and clients must accept it");
}

static int make(const char *path, struct hostkey **ret, struct err *err)
{
	struct hostkey_parts parts;
	char *text = NULL;
	int result = make_parts(&parts, err);

	if (result == 0) {
		text = hostkey_file_text(&parts, "boxyard");
		result = file_write_atomic(AT_FDCWD, path, text, strlen(text), 0600, err);
		explicit_bzero(text, strlen(text));
		free(text);
	}
	if (result == 0)
		result = key_new(&parts, ret, err);
	explicit_bzero(&parts, sizeof parts);
	return result < 0 ? err_wrap(err, "make the SSH host key") : 0;
}

static int load_all(const char *home, struct hostkey *ret[HOSTKEYS_MAX], struct err *err)
{
	_cleanup_free_ char *folder = xasprintf("%s/ssh", home);

	if (dir_make_all(folder, 0700, err) < 0)
		return -1;
	for (unsigned i = 0; i < HOSTKEYS_MAX; i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", folder, names[i]);
		bool missing = access(path, F_OK) < 0 && errno == ENOENT;

		if (missing && i > 0)
			break;
		if ((missing ? make(path, &ret[i], err) : load(path, &ret[i], err)) < 0)
			return -1;
		if (missing) {
			char fingerprint[SSHKEY_FINGERPRINT_SIZE];

			hostkey_fingerprint(ret[i], fingerprint);
			log_info("made the SSH host key", kv_str("fingerprint", fingerprint));
		}
	}
	return 0;
}

static void free_all(struct hostkey *keys[HOSTKEYS_MAX])
{
	for (unsigned i = 0; i < HOSTKEYS_MAX; i++)
		hostkey_free(keys[i]);
}

int hostkeys_reload(struct hostkeys *keys, struct err *err)
{
	struct hostkey *fresh[HOSTKEYS_MAX] = { NULL };

	if (load_all(keys->home, fresh, err) < 0) {
		free_all(fresh);
		return -1;
	}
	free_all(keys->keys);
	memcpy(keys->keys, fresh, sizeof fresh);
	return 0;
}

int hostkeys_open(const char *home, struct hostkeys **ret, struct err *err)
{
	struct hostkeys *keys = xnew(struct hostkeys);

	keys->home = xstrdup(home);
	if (hostkeys_reload(keys, err) < 0) {
		hostkeys_close(keys);
		return -1;
	}
	*ret = keys;
	return 0;
}

void hostkeys_close(struct hostkeys *keys)
{
	if (!keys)
		return;
	free_all(keys->keys);
	free(keys->home);
	free(keys);
}

const struct hostkey *hostkeys_get(const struct hostkeys *keys, unsigned index)
{
	return index < HOSTKEYS_MAX ? keys->keys[index] : NULL;
}

struct bytes hostkey_get_blob(const struct hostkey *key)
{
	return (struct bytes){ key->blob, sizeof key->blob };
}

int hostkey_sign(const struct hostkey *key, const void *data, size_t len,
	uint8_t ret[HOSTKEY_SIGNATURE_SIZE], struct err *err)
{
	size_t signature_len = HOSTKEY_SEED_SIZE + HOSTKEY_POINT_SIZE;
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	uint8_t *at = ret;
	bool made;

	at = hostkey_put_string(at, HOSTKEY_ALGORITHM, strlen(HOSTKEY_ALGORITHM));
	at = hostkey_put_string(at, NULL, signature_len);
	made = context && EVP_DigestSignInit(context, NULL, NULL, NULL, key->pkey) == 1 &&
	       EVP_DigestSign(context, at - signature_len, &signature_len, data, len) == 1;
	EVP_MD_CTX_free(context);
	return made ? 0 : err_set(err, ERR_SYSTEM, "cannot sign with the SSH host key");
}

void hostkey_fingerprint(const struct hostkey *key, char ret[SSHKEY_FINGERPRINT_SIZE])
{
	sshkey_fingerprint(key->blob, sizeof key->blob, ret);
}

/* ---- lines ----------------------------------------------------------------------------------- */

char *hostkey_text(const struct hostkey *key)
{
	_cleanup_free_ char *base64 = base64_encode(key->blob, sizeof key->blob);

	return xasprintf(HOSTKEY_ALGORITHM " %s", base64);
}

char *hostkey_known_hosts(const struct hostkey *key, const char *host, uint16_t port)
{
	_cleanup_free_ char *text = hostkey_text(key);

	if (!port || port == 22)
		return xasprintf("%s %s", host, text);
	return xasprintf("[%s]:%u %s", host, port, text);
}

char *hostkey_sshfp(const struct hostkey *key, const char *host)
{
	char hex[SHA256_SIZE * 2 + 1];
	uint8_t hash[SHA256_SIZE];

	sha256_of(key->blob, sizeof key->blob, hash);
	for (size_t i = 0; i < sizeof hash; i++)
		snprintf(hex + 2 * i, 3, "%02x", hash[i]);
	return xasprintf("%s IN SSHFP 4 2 %s", host, hex);
}

/* Adds line to a string of lines. */
static void add_line(json_t *object, const char *name, const char *line)
{
	const char *before = json_get_text(object, name);

	json_object_set_new(
		object, name, json_sprintf("%s%s%s", before, *before ? "\n" : "", line));
}

json_t *hostkeys_info_json(
	const struct hostkeys *keys, const char *address, uint16_t port, const char *library)
{
	char fingerprint[SSHKEY_FINGERPRINT_SIZE], machine[HOST_NAME_SIZE] = "localhost";
	bool all = !address || !strcmp(address, "0.0.0.0") || !strcmp(address, "::");
	json_t *listen = json_null(), *info;

	hostkey_fingerprint(keys->keys[0], fingerprint);
	if (gethostname(machine, sizeof machine - 1) < 0)
		log_debug("this machine has no name");
	if (address)
		listen = json_sprintf(
			strchr(address, ':') ? "[%s]:%u" : "%s:%u", address, (unsigned)port);
	info = json_pack("{s:o,s:s,s:[],s:s,s:s,s:s?}", "listen", listen, "fingerprint",
		fingerprint, "keys", "known_hosts", "", "sshfp", "", "library", library);
	for (unsigned i = 0; i < HOSTKEYS_MAX && keys->keys[i]; i++) {
		_cleanup_free_ char *text = hostkey_text(keys->keys[i]);
		_cleanup_free_ char *known = hostkey_known_hosts(
			keys->keys[i], all ? machine : address, address ? port : 0);
		_cleanup_free_ char *record = hostkey_sshfp(keys->keys[i], machine);

		json_array_append_new(json_object_get(info, "keys"), json_string(text));
		add_line(info, "known_hosts", known);
		add_line(info, "sshfp", record);
	}
	return info;
}
