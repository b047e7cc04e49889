/* tls_hello.h - the name a TLS client asks for, read from its first bytes
 *
 * Pure. A ClientHello may be spread over several records, and each of those over several packets:
 * the caller gathers bytes and asks again. Nothing is guessed: what breaks the rules of TLS 1.0 to
 * 1.3 records is broken. */
#pragma once
#include "net/dns_name.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes looked at; a hello that needs more is broken, and one in more than 128 records. */
enum { TLS_HELLO_MAX = 16 * 1024 };

enum tls_hello_result {
	TLS_HELLO_MORE,	   /* so far it is one; more bytes are needed */
	TLS_HELLO_NAMED,   /* name is filled in */
	TLS_HELLO_UNNAMED, /* whole, well-formed, without server_name */
	TLS_HELLO_OTHER,   /* the first bytes are not those of a TLS handshake record */
	/* it begins like one and breaks the rules; also a name that is no host name, or two of
	 * them */
	TLS_HELLO_BROKEN,
};

struct tls_hello {
	char name[DNS_HOST_MAX]; /* lower-case, without a dot at its end */
	bool has_ech; /* encrypted_client_hello, real or grease: the name is the outer one */
};

enum tls_hello_result tls_hello_parse(const uint8_t *data, size_t len, struct tls_hello *ret);
