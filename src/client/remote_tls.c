/* remote_tls.c - TLS to a daemon behind an https address
 *
 * A child process speaks TLS with the daemon and plain bytes with us over a socket pair, so that
 * no other code needs to know: a command reads, writes and polls a socket as it does on this
 * machine. The handshake is complete before the first byte, and a failure is sent as a struct
 * err through a pipe. The certificate must be valid for the host, by the machine's store or the
 * given file; this cannot be turned off. */
#include "client/remote.h"
#include "base/alloc.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
/* OpenSSL has a type of the name of one of our error kinds. */
#define ERR_STATE OPENSSL_ERR_STATE
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#undef ERR_STATE
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024, HANDSHAKE_S = 15 };

struct half {
	char data[CHUNK];
	size_t start, end;
	bool ended; /* no more bytes come from its source */
};

struct pump {
	SSL *ssl;
	int net, plain;
	struct half out, in; /* to the daemon, from it */
	bool told_end;
};

/* ---- the handshake -------------------------------------------------------------------------- */

static int openssl_fail(struct err *err, const char *what)
{
	char text[160];

	ERR_error_string_n(ERR_peek_last_error(), text, sizeof text);
	return err_set(err, ERR_UNAVAILABLE, "%s: %s", what, text);
}

static int trust(SSL_CTX *context, const char *cacert, struct err *err)
{
	if (SSL_CTX_set_default_verify_paths(context) != 1)
		return openssl_fail(err, "read the certificates this machine trusts");
	if (cacert && SSL_CTX_load_verify_locations(context, cacert, NULL) != 1)
		return err_set(err, ERR_INVALID, "'%s' contains no certificates", cacert);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	return 0;
}

static int expect_host(SSL *ssl, const char *host, struct err *err)
{
	unsigned char address[16];
	bool is_address =
		inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
	int done = is_address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host)
			      : SSL_set1_host(ssl, host);

	if (done != 1 || (!is_address && SSL_set_tlsext_host_name(ssl, host) != 1))
		return openssl_fail(err, "name the host");
	return 0;
}

static int shake_hands(int net, const char *host, const char *cacert, SSL **ret, struct err *err)
{
	const struct timeval wait = { .tv_sec = HANDSHAKE_S };
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	SSL *ssl;
	long verdict;

	if (!context || trust(context, cacert, err) < 0)
		return context ? -1 : openssl_fail(err, "TLS");
	ssl = SSL_new(context);
	if (!ssl || SSL_set_fd(ssl, net) != 1)
		return openssl_fail(err, "TLS");
	if (expect_host(ssl, host, err) < 0)
		return -1;
	setsockopt(net, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
	setsockopt(net, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
	if (SSL_connect(ssl) == 1) {
		*ret = ssl;
		return 0;
	}
	verdict = SSL_get_verify_result(ssl);
	if (verdict == X509_V_OK)
		return openssl_fail(err, "TLS with the daemon");
	err_set(err, ERR_FORBIDDEN, "the certificate of '%s' is not trusted: %s", host,
		X509_verify_cert_error_string(verdict));
	return err_hint(err, "BOX_CACERT=FILE names a certificate to trust");
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static bool is_empty(const struct half *half)
{
	return half->start == half->end;
}

static void read_plain(struct pump *pump)
{
	struct half *half = &pump->out;
	ssize_t got;

	if (!is_empty(half) || half->ended)
		return;
	got = recv(pump->plain, half->data, CHUNK, MSG_DONTWAIT);
	if (got > 0) {
		half->start = 0;
		half->end = (size_t)got;
	} else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
		half->ended = true;
	}
}

static void write_plain(struct pump *pump)
{
	struct half *half = &pump->in;

	while (!is_empty(half)) {
		ssize_t put = send(pump->plain, half->data + half->start, half->end - half->start,
			MSG_DONTWAIT | MSG_NOSIGNAL);

		if (put < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (put < 0)
			_exit(0); /* the command has ended */
		half->start += (size_t)put;
	}
	if (half->ended && !pump->told_end) {
		pump->told_end = true;
		shutdown(pump->plain, SHUT_WR);
	}
}

/* The poll events that OpenSSL waits for on the network. */
static short wants(SSL *ssl, int result)
{
	int why = SSL_get_error(ssl, result);

	return why == SSL_ERROR_WANT_READ ? POLLIN : why == SSL_ERROR_WANT_WRITE ? POLLOUT : 0;
}

static short write_net(struct pump *pump)
{
	struct half *half = &pump->out;

	while (!is_empty(half)) {
		int put = SSL_write(
			pump->ssl, half->data + half->start, (int)(half->end - half->start));
		short events = put > 0 ? 0 : wants(pump->ssl, put);

		if (put <= 0 && !events)
			_exit(0);
		if (put <= 0)
			return events;
		half->start += (size_t)put;
	}
	return 0;
}

static short read_net(struct pump *pump)
{
	struct half *half = &pump->in;
	short events;
	int got;

	if (!is_empty(half) || half->ended)
		return 0;
	got = SSL_read(pump->ssl, half->data, CHUNK);
	if (got > 0) {
		half->start = 0;
		half->end = (size_t)got;
		return 0;
	}
	events = wants(pump->ssl, got);
	half->ended = !events;
	return events;
}

static void pump_all(struct pump *pump)
{
	fcntl(pump->net, F_SETFL, O_NONBLOCK);
	SSL_set_mode(
		pump->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	while (!pump->told_end && !(pump->out.ended && is_empty(&pump->out))) {
		struct pollfd watch[2] = { { .fd = pump->net }, { .fd = pump->plain } };

		read_plain(pump);
		watch[0].events |= write_net(pump);
		watch[0].events |= read_net(pump);
		write_plain(pump);
		if (is_empty(&pump->out) && !pump->out.ended)
			watch[1].events |= POLLIN;
		if (!is_empty(&pump->in))
			watch[1].events |= POLLOUT;
		else if (!watch[0].events && !pump->in.ended)
			continue; /* more decrypted bytes are available */
		poll(watch, 2, -1);
	}
	SSL_shutdown(pump->ssl);
}

/* Closes everything in the child except the three given descriptors and stdin, stdout and
 * stderr. An inherited pipe or connection would stay open, and its reader would wait for our
 * end. */
static void close_others(int net, int plain, int news)
{
	unsigned from = STDERR_FILENO + 1;

	for (;;) {
		unsigned keep = ~0U;

		if ((unsigned)net >= from)
			keep = MIN(keep, (unsigned)net);
		if ((unsigned)plain >= from)
			keep = MIN(keep, (unsigned)plain);
		if ((unsigned)news >= from)
			keep = MIN(keep, (unsigned)news);
		if (keep > from)
			close_range(from, keep == ~0U ? keep : keep - 1, 0);
		if (keep == ~0U)
			return;
		from = keep + 1;
	}
}

static void run(int net, int plain, int news, const char *host, const char *cacert)
{
	struct pump *pump = xnew(struct pump);
	struct err err = ERR_INIT;

	close_others(net, plain, news);
	setsid(); /* Ctrl-C is for the program in the box */
	signal(SIGPIPE, SIG_IGN);
	pump->net = net;
	pump->plain = plain;
	(void)shake_hands(net, host, cacert, &pump->ssl, &err);
	if (write(news, &err, sizeof err) != (ssize_t)sizeof err || err.kind)
		_exit(1);
	close(news);
	pump_all(pump);
	_exit(0);
}

int remote_tls_start(
	int connected, const char *host, const char *cacert, int *ret_fd, struct err *err)
{
	int ends[2], news[2];
	struct err answer = ERR_INIT;
	ssize_t got;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
		close(connected);
		return err_sys(err, errno, "socketpair");
	}
	if (pipe2(news, O_CLOEXEC) < 0) {
		close(connected);
		close(ends[0]);
		close(ends[1]);
		return err_sys(err, errno, "pipe");
	}
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		close(ends[0]);
		close(news[0]);
		run(connected, ends[1], news[1], host, cacert);
	}
	close(connected);
	close(ends[1]);
	close(news[1]);
	do
		got = pid < 0 ? 0 : read(news[0], &answer, sizeof answer);
	while (got < 0 && errno == EINTR);
	close(news[0]);
	if (got == (ssize_t)sizeof answer && !answer.kind) {
		*ret_fd = ends[0];
		return 0;
	}
	close(ends[0]);
	if (got != (ssize_t)sizeof answer)
		return err_set(err, ERR_UNAVAILABLE, "the TLS connection to '%s' broke", host);
	if (err)
		*err = answer;
	return -1;
}
