/* tls.h - a certificate and its key, for http_server_listen_tls
 *
 * TLS 1.2 and 1.3; HTTP/1.1 alone is offered (ALPN). The same certificate answers every server
 * name. */
#pragma once
#include "base/err.h"
#include <stdbool.h>

struct http_tls;
struct loop;

/* PEM files: the certificate with its chain, and the key. ERR_INVALID when they do not belong
 * together. */
int http_tls_new(const char *certificate, const char *key, struct http_tls **ret, struct err *err);
void http_tls_free(struct http_tls *tls); /* accepts NULL; after the servers that use it */
/* Reads the files again. When they cannot be used, the old certificate stays; open connections keep
 * what they have. */
int http_tls_reload(struct http_tls *tls, struct err *err);
/* Reads them again whenever they have changed on disk; logs whether they could be used. */
void http_tls_watch(struct http_tls *tls, struct loop *loop);
/* Checks for changed files now. Accepts NULL. */
void http_tls_refresh(struct http_tls *tls);
/* Whether the files differ on disk (by inode, size, time) from the last reading, successful or
 * not. */
bool http_tls_is_stale(const struct http_tls *tls);
