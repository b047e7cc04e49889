/* tls.c - TLS below a connection, by OpenSSL
 *
 * The connection keeps its own buffers and its own loop; this file replaces read() and sendmsg().
 * Two things differ from a socket. OpenSSL may hold bytes that it has read already, which epoll
 * does not know: then conn->more is set. And reading may need to write first (a handshake into a
 * full socket): then conn->stalled is set. Writing never waits for reading: nothing is written
 * before the handshake is done, and renegotiation is off. */
#include "http/tls.h"
#include "base/log.h"
#include "base/text.h"
#include "http/http_internal.h"
#include "loop/loop.h"
#include <errno.h>
/* OpenSSL has a type with the same name as one of our error kinds. */
#define ERR_STATE OPENSSL_ERR_STATE
#include <openssl/err.h>
#include <openssl/ssl.h>
#undef ERR_STATE
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { WATCH_MS = 10000 };

struct seen {
	ino_t ino;
	off_t size;
	struct timespec changed;
};

struct http_tls {
	char *certificate, *key;
	SSL_CTX *context;
	struct seen seen[2];
	struct loop_timer *watch; /* or NULL */
};

/* ---- the files ------------------------------------------------------------------------------ */

static struct seen look(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return (struct seen){ 0 };
	return (struct seen){ .ino = st.st_ino, .size = st.st_size, .changed = st.st_mtim };
}

static bool is_same(const struct seen *a, const struct seen *b)
{
	return a->ino == b->ino && a->size == b->size && a->changed.tv_sec == b->changed.tv_sec &&
	       a->changed.tv_nsec == b->changed.tv_nsec;
}

bool http_tls_is_stale(const struct http_tls *tls)
{
	struct seen certificate = look(tls->certificate), key = look(tls->key);

	return !is_same(&certificate, &tls->seen[0]) || !is_same(&key, &tls->seen[1]);
}

static int fail(struct err *err, const char *what, const char *path)
{
	char text[160];

	ERR_error_string_n(ERR_peek_last_error(), text, sizeof text);
	ERR_clear_error();
	return err_set(err, ERR_INVALID, "%s '%s': %s", what, path, text);
}

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
	const unsigned char *in, unsigned in_len, void *arg)
{
	static const unsigned char ours[] = "\x08http/1.1";

	if (SSL_select_next_proto((unsigned char **)out, out_len, ours, sizeof ours - 1, in,
		    in_len) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_NOACK;
	return SSL_TLSEXT_ERR_OK;
}

/* Without this callback OpenSSL would ask on the terminal, and everything would wait for it. */
static int refuse_passphrase(char *text, int size, int writing, void *arg)
{
	return -1;
}

static int load(SSL_CTX *context, const struct http_tls *tls, struct err *err)
{
	if (SSL_CTX_use_certificate_chain_file(context, tls->certificate) != 1)
		return fail(err, "certificate", tls->certificate);
	if (SSL_CTX_use_PrivateKey_file(context, tls->key, SSL_FILETYPE_PEM) != 1)
		return fail(err, "key", tls->key);
	if (SSL_CTX_check_private_key(context) != 1)
		return fail(err, "key", tls->key);
	return 0;
}

int http_tls_reload(struct http_tls *tls, struct err *err)
{
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());

	tls->seen[0] = look(tls->certificate);
	tls->seen[1] = look(tls->key);
	if (!context)
		return fail(err, "TLS", "context");
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
					     SSL_OP_CIPHER_SERVER_PREFERENCE |
					     SSL_OP_IGNORE_UNEXPECTED_EOF);
	SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
					  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
					  SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_default_passwd_cb(context, refuse_passphrase);
	SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
	if (load(context, tls, err) < 0) {
		SSL_CTX_free(context);
		return -1;
	}
	SSL_CTX_free(tls->context);
	tls->context = context;
	return 0;
}

int http_tls_new(const char *certificate, const char *key, struct http_tls **ret, struct err *err)
{
	struct http_tls *tls = xnew(struct http_tls);

	tls->certificate = xstrdup(certificate);
	tls->key = xstrdup(key);
	if (http_tls_reload(tls, err) < 0) {
		http_tls_free(tls);
		return -1;
	}
	*ret = tls;
	return 0;
}

void http_tls_refresh(struct http_tls *tls)
{
	struct err err = ERR_INIT;

	if (!tls)
		return;
	if (http_tls_reload(tls, &err) < 0)
		log_error("cannot use the new certificate, the old one stays", kv_err(&err));
	else
		log_info("certificate was read again", kv_str("file", tls->certificate));
}

static void on_watch(void *arg)
{
	struct http_tls *tls = arg;

	if (http_tls_is_stale(tls))
		http_tls_refresh(tls);
	loop_timer_start(tls->watch, WATCH_MS);
}

void http_tls_watch(struct http_tls *tls, struct loop *loop)
{
	tls->watch = loop_timer_new(loop, on_watch, tls);
	loop_timer_start(tls->watch, WATCH_MS);
}

void http_tls_free(struct http_tls *tls)
{
	if (!tls)
		return;
	loop_timer_free(tls->watch);
	SSL_CTX_free(tls->context);
	free(tls->certificate);
	free(tls->key);
	free(tls);
}

/* ---- connections ---------------------------------------------------------------------------- */

struct ssl_st *tls_accept(struct http_tls *tls, int fd)
{
	SSL *ssl = SSL_new(tls->context);

	if (ssl && SSL_set_fd(ssl, fd) == 1) {
		SSL_set_accept_state(ssl);
		return ssl;
	}
	abort(); /* out of memory */
}

void tls_free(struct ssl_st *ssl)
{
	SSL_free(ssl);
	ERR_clear_error();
}

/* Tells a client that speaks plain HTTP to this port that it needs TLS, by an HTTP answer. Its
 * request is read first: closing with unread bytes would throw the answer away. */
static void answer_plainly(int fd)
{
	static const char body[] =
		"{\"error\":{\"code\":\"invalid\",\"message\":\"this port speaks "
		"TLS\",\"hint\":\"use https:// in the place of http://\"}}\n";
	char text[512], sent[16384];
	int len = snprintf(text, sizeof text,
		"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %zu"
		"\r\nConnection: close\r\n\r\n%s",
		sizeof body - 1, body);

	while (recv(fd, sent, sizeof sent, MSG_DONTWAIT) == (ssize_t)sizeof sent)
		;
	if (send(fd, text, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL) == len)
		shutdown(fd, SHUT_WR);
}

/* The result of a failed call: 0 for the peer's end, or -1 with errno. */
static ssize_t explain(struct http_conn *conn, int result)
{
	int why = SSL_get_error(conn->ssl, result);

	if (why == SSL_ERROR_SSL && ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST)
		answer_plainly(SSL_get_fd(conn->ssl));
	ERR_clear_error();
	if (why == SSL_ERROR_ZERO_RETURN)
		return 0;
	conn->stalled = why == SSL_ERROR_WANT_WRITE;
	errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
	return -1;
}

/* Records are at most 16 KiB: reads until there is nothing more or no room. */
ssize_t tls_read(struct http_conn *conn, void *data, size_t len)
{
	size_t got = 0;
	ssize_t end;

	conn->stalled = conn->more = false;
	while (got < len) {
		int step = SSL_read(conn->ssl, (char *)data + got, (int)(len - got));

		if (step > 0) {
			got += (size_t)step;
			continue;
		}
		end = explain(conn, step);
		if (!got)
			return end;
		conn->more = end == 0 || errno != EAGAIN; /* the next read reports it again */
		return (ssize_t)got;
	}
	conn->more = SSL_has_pending(conn->ssl);
	return (ssize_t)got;
}

ssize_t tls_write(struct http_conn *conn, const void *data, size_t len)
{
	bool stalled = conn->stalled;
	int put;

	if (!SSL_is_init_finished(conn->ssl)) {
		errno = EPROTO;
		return -1;
	}
	put = SSL_write(conn->ssl, data, (int)MIN(len, 1 << 20));
	if (put > 0)
		return put;
	if (explain(conn, put) == 0)
		errno = EPIPE;
	conn->stalled = stalled; /* stalled is about reading alone */
	return -1;
}

void tls_shut(struct http_conn *conn)
{
	if (SSL_is_init_finished(conn->ssl))
		SSL_shutdown(conn->ssl);
	ERR_clear_error();
}
