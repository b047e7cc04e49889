/* hostkey.h - the daemon's own keys: by them clients know which machine they talk to
 *
 * One Ed25519 key, made at the first start, in HOME/ssh/host_ed25519_key (0600, the format of
 * OpenSSH without a passphrase: ssh-keygen -y and -l read it). A second one beside it,
 * host_ed25519_key.next, is shown by `box info` too, so that clients know it when the operator
 * moves it into the place of the first.
 *
 * The keys stay in the daemon: the process of a connection gets the public part, and asks for
 * signatures of key exchanges. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "sshkey/sshkey.h"

enum { HOSTKEY_SIGNATURE_SIZE = 83, HOSTKEYS_MAX = 2 };
#define HOSTKEY_ALGORITHM "ssh-ed25519"

struct hostkey;	 /* one key */
struct hostkeys; /* those of a daemon */

/* Reads the keys below home; the first one is made when there is none. Fails, and makes nothing,
 * when a file is there that is damaged, has a passphrase, is no Ed25519 key or can be read by
 * others: clients would meet another machine. The caller ends it with hostkeys_close. */
int hostkeys_open(const char *home, struct hostkeys **ret, struct err *err);
void hostkeys_close(struct hostkeys *keys); /* wipes them; accepts NULL */
/* Reads the files again (SIGHUP): what hostkeys_get returned before is not valid any more. When it
 * fails, everything stays as it was. */
int hostkeys_reload(struct hostkeys *keys, struct err *err);

/* 0: the key in use; 1: the next one. NULL: there is none. Borrowed. */
const struct hostkey *hostkeys_get(const struct hostkeys *keys, unsigned index);

/* The public key in SSH format: string "ssh-ed25519", string point. Borrowed. */
struct bytes hostkey_get_blob(const struct hostkey *key);
/* Signs data: the hash of a key exchange (RFC 4253, section 8), or the proof a client asks for with
 * hostkeys-prove-00@openssh.com. ret: string "ssh-ed25519", string signature. */
int hostkey_sign(const struct hostkey *key, const void *data, size_t len,
	uint8_t ret[HOSTKEY_SIGNATURE_SIZE], struct err *err);

/* As ssh-keygen -l prints it: "SHA256:…". */
void hostkey_fingerprint(const struct hostkey *key, char ret[SSHKEY_FINGERPRINT_SIZE]);
/* "ssh-ed25519 AAAA…"; yours. */
char *hostkey_text(const struct hostkey *key);
/* A line of known_hosts without its end: "[host]:port ssh-ed25519 AAAA…", or "host ssh-…" for port
 * 22 or 0; yours. */
char *hostkey_known_hosts(const struct hostkey *key, const char *host, uint16_t port);
/* The DNS record by which clients can check the key, with SHA-256: "host IN SSHFP 4 2 …"; yours. */
char *hostkey_sshfp(const struct hostkey *key, const char *host);

/* What GET /v1/info says of SSH, for yard_set_ssh_info:
 *
 *   {"listen": "127.0.0.1:30022" | null, "fingerprint", "keys": ["ssh-ed25519 AAAA…"],
 *    "known_hosts", "sshfp": lines, "library": "libssh 0.12.2" | null}
 *
 * address NULL: nobody listens. In the lines an address that means all of them is replaced by the
 * name of this machine. New reference. */
json_t *hostkeys_info_json(
	const struct hostkeys *keys, const char *address, uint16_t port, const char *library);
