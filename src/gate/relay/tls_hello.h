/* tls_hello.h - the server name of a TLS client, read from its first bytes
 *
 * Pure. A ClientHello may be spread over several records, and each of those over several
 * packets: the caller collects bytes and asks again. Nothing is guessed: what violates the rules
 * of TLS 1.0 to 1.3 records is malformed. */
#pragma once
#include "net/dns_name.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes examined; a hello that needs more, or more than 128 records, is malformed. */
enum { TLS_HELLO_MAX = 16 * 1024 };

enum tls_hello_result {
	TLS_HELLO_MORE,	   /* valid so far; more bytes are needed */
	TLS_HELLO_NAMED,   /* name is set */
	TLS_HELLO_UNNAMED, /* complete, valid, without server_name */
	TLS_HELLO_OTHER,   /* the first bytes are not those of a TLS handshake record */
	/* begins like a hello but violates the rules; also an invalid host name, or two names */
	TLS_HELLO_BROKEN,
};

struct tls_hello {
	char name[DNS_HOST_MAX]; /* lower-case, without a dot at its end */
	bool has_ech; /* encrypted_client_hello, real or grease: the name is the outer one */
};

enum tls_hello_result tls_hello_parse(const uint8_t *data, size_t len, struct tls_hello *ret);
