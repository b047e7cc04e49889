/* test_ingress_login.c - who may come in to private ports, by token, by cookie, by TLS */
#include "ingress_fixture.h"
#include <fcntl.h>
/* OpenSSL has a type of the name of one of our error kinds. */
#define ERR_STATE OPENSSL_ERR_STATE
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#undef ERR_STATE

#define HTML "Accept: text/html\r\n"
#define FORM "Content-Type: application/x-www-form-urlencoded\r\n"

static void revoke_token(void)
{
	char path[96];

	snprintf(path, sizeof path, "%s/revoked", fixture.home);
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

/* The box gets the request, says so, and is told how it looked. Yours to free. */
static char *pass(int client, const char *request)
{
	char *head;
	int box;

	say(client, request);
	box = box_accept();
	head = heard(box, "\r\n\r\n");
	say(box, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nin");
	hear(client, "\r\n\r\nin");
	close(box);
	return head;
}

static char *post_login(const char *host, const char *form)
{
	char text[1024];

	snprintf(text, sizeof text,
		"POST /.boxyard/login HTTP/1.1\r\nHost: %s\r\n" FORM
		"Content-Length: %zu\r\n\r\n%s",
		host, strlen(form), form);
	return ask(text);
}

/* "boxyard_login=VALUE" of an answer. */
static void take_cookie(const char *answer, char *ret, size_t size)
{
	const char *at = strstr(answer, "Set-Cookie: ");

	assert_non_null(at);
	at += strlen("Set-Cookie: ");
	snprintf(ret, size, "%.*s", (int)strcspn(at, ";"), at);
}

static void log_in(const char *host, char *cookie, size_t size)
{
	_cleanup_free_ char *answer = post_login(host, "token=box_good&next=%2Fapp%3Fa%3Db");

	assert_non_null(strstr(answer, "HTTP/1.1 303 "));
	assert_non_null(strstr(answer, "Location: /app?a=b\r\n"));
	assert_non_null(strstr(answer, "; Path=/; Max-Age=43200; HttpOnly; SameSite=Lax\r\n"));
	take_cookie(answer, cookie, size);
}

static void test_private_ports_need_a_token(void **state)
{
	int client = client_connect();
	_cleanup_free_ char *head = NULL, *own = NULL;

	(void)state;
	expect_answer("GET / HTTP/1.1\r\n" PRIVATE "\r\n", "HTTP/1.1 401 ", "\"unauthorized\"");
	expect_answer("GET / HTTP/1.1\r\n" PRIVATE "Authorization: Bearer box_bad\r\n\r\n",
		"HTTP/1.1 401 ", "WWW-Authenticate: Bearer");
	expect_answer("GET / HTTP/1.1\r\n" PRIVATE "Authorization: Bearer box_weak\r\n\r\n",
		"HTTP/1.1 403 ", "scopes");
	expect_answer("GET / HTTP/1.1\r\n" PRIVATE "Authorization: Basic box_good\r\n\r\n",
		"HTTP/1.1 401 ", NULL);
	box_expect_nobody();
	head = pass(client, "GET / HTTP/1.1\r\n" PRIVATE "Authorization: Bearer box_good\r\n\r\n");
	assert_null(strstr(head, "box_good"));
	own = pass(client, "GET / HTTP/1.1\r\n" PRIVATE
			   "Box-Token: box_good\r\nAuthorization: Bearer its-own\r\n\r\n");
	assert_null(strstr(own, "box_good"));
	assert_non_null(strstr(own, "Authorization: Bearer its-own\r\n"));
	close(client);
}

/* Also where it is not needed. */
static void test_public_ports_do_not_see_tokens(void **state)
{
	int client = client_connect();
	_cleanup_free_ char *head = pass(client,
		"GET / HTTP/1.1\r\n" WEB
		"Authorization: Bearer box_good\r\nCookie: boxyard_login=1.t1.x; a=b\r\n\r\n");

	(void)state;
	assert_null(strstr(head, "box_good"));
	assert_null(strstr(head, "boxyard_login"));
	assert_non_null(strstr(head, "Cookie: a=b\r\n"));
	close(client);
}

static void test_wrong_tokens_are_counted(void **state)
{
	bool refused = false;

	(void)state;
	for (int i = 0; i < 60 && !refused; i++) {
		_cleanup_free_ char *answer =
			ask("GET / HTTP/1.1\r\n" PRIVATE "Authorization: Bearer box_bad\r\n\r\n");

		refused = strstr(answer, "HTTP/1.1 429 ") != NULL;
	}
	assert_true(refused);
	free(pass(client_connect(),
		"GET / HTTP/1.1\r\n" PRIVATE "Authorization: Bearer box_good\r\n\r\n"));
}

static void test_browsers_log_in(void **state)
{
	char cookie[256], request[512];
	int client = client_connect();
	_cleanup_free_ char *head = NULL;

	(void)state;
	expect_answer("GET /a?b=\"c HTTP/1.1\r\n" PRIVATE HTML "\r\n", "HTTP/1.1 401 ",
		"value=\"/a?b=&quot;c\"");
	expect_answer("GET //evil HTTP/1.1\r\n" PRIVATE HTML "\r\n", "HTTP/1.1 401 ",
		"name=next value=\"/\"");
	log_in("9090-web.localhost:1", cookie, sizeof cookie);
	snprintf(request, sizeof request,
		"GET /app HTTP/1.1\r\nHost: 9090-web.localhost:1\r\nCookie: a=b; %s\r\n\r\n",
		cookie);
	head = pass(client, request);
	assert_null(strstr(head, "boxyard_login"));
	assert_non_null(strstr(head, "Cookie: a=b\r\n"));
	close(client);
}

static void test_logins_are_for_one_host_and_one_box(void **state)
{
	static const char *const hosts[] = { "web2.localhost", "9090-web2.localhost",
		"9090-web.boxes.test" };
	char cookie[256], request[512];

	(void)state;
	log_in("9090-web.localhost", cookie, sizeof cookie);
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
		snprintf(request, sizeof request,
			"GET / HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\n\r\n", hosts[i], cookie);
		expect_answer(request, "HTTP/1.1 401 ", NULL);
	}
	cookie[strlen(cookie) - 1] ^= 1;
	snprintf(
		request, sizeof request, "GET / HTTP/1.1\r\n" PRIVATE "Cookie: %s\r\n\r\n", cookie);
	expect_answer(request, "HTTP/1.1 401 ", NULL);
	cookie[strlen(cookie) - 1] ^= 1;
	cookie[strlen("boxyard_login=")]++; /* lives longer */
	snprintf(
		request, sizeof request, "GET / HTTP/1.1\r\n" PRIVATE "Cookie: %s\r\n\r\n", cookie);
	expect_answer(request, "HTTP/1.1 401 ", NULL);
	box_expect_nobody();
}

static void test_logins_outlive_the_daemon_but_not_their_token(void **state)
{
	char cookie[256], request[512];

	(void)state;
	log_in("9090-web.localhost", cookie, sizeof cookie);
	snprintf(
		request, sizeof request, "GET / HTTP/1.1\r\n" PRIVATE "Cookie: %s\r\n\r\n", cookie);
	kill(fixture.pid, SIGTERM);
	waitpid(fixture.pid, NULL, 0);
	close(fixture.listener);
	fixture_start(false);
	free(pass(client_connect(), request));
	revoke_token();
	expect_answer(request, "HTTP/1.1 401 ", NULL);
}

static void test_login_leads_nowhere_else(void **state)
{
	static const char *const nexts[] = { "https://evil.example/", "//evil.example", "/\\evil",
		"%2f%2fevil", "javascript:x", "/a%0d%0aSet-Cookie:x", "", "/.boxyard/login",
		"/a%00b" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(nexts); i++) {
		char form[256];
		_cleanup_free_ char *answer = NULL;

		snprintf(form, sizeof form, "token=box_good&next=%s", nexts[i]);
		answer = post_login("9090-web.localhost", form);
		assert_non_null(strstr(answer, "HTTP/1.1 303 "));
		assert_non_null(strstr(answer, "Location: /\r\n"));
	}
}

static void test_login_refuses(void **state)
{
	_cleanup_free_ char *wrong = post_login("9090-web.localhost", "token=box_bad&next=/x");
	_cleanup_free_ char *empty = post_login("9090-web.localhost", "next=/x");

	(void)state;
	assert_non_null(strstr(wrong, "HTTP/1.1 401 "));
	assert_non_null(strstr(wrong, "unknown token"));
	assert_null(strstr(wrong, "Set-Cookie"));
	assert_non_null(strstr(empty, "HTTP/1.1 401 "));
	/* from the page of another place */
	expect_answer("POST /.boxyard/login HTTP/1.1\r\n" PRIVATE
		      "Origin: http://evil.localhost\r\n" FORM
		      "Content-Length: 14\r\n\r\ntoken=box_good",
		"HTTP/1.1 404 ", NULL);
	/* these paths are never the box's, not even of a public port */
	expect_answer("POST /.boxyard/other HTTP/1.1\r\n" WEB "Content-Length: 2\r\n\r\nhi",
		"HTTP/1.1 404 ", NULL);
	box_expect_nobody();
}

#define CODE "GET /.boxyard/login?code=c0de HTTP/1.1\r\n"

static void test_links_log_in_once(void **state)
{
	char cookie[256], request[512];
	_cleanup_free_ char *answer = NULL, *head = NULL;

	(void)state;
	/* looking ahead, or for the head alone, does not use it up */
	expect_answer(
		CODE PRIVATE "Sec-Purpose: prefetch;prerender\r\n\r\n", "HTTP/1.1 403 ", NULL);
	expect_answer("HEAD /.boxyard/login?code=c0de HTTP/1.1\r\n" PRIVATE "\r\n", "HTTP/1.1 404 ",
		NULL);
	expect_answer("GET /.boxyard/login?code=c0d HTTP/1.1\r\n" PRIVATE "\r\n", "HTTP/1.1 401 ",
		"used already");
	answer = ask(CODE PRIVATE "\r\n");
	assert_non_null(strstr(answer, "HTTP/1.1 303 "));
	assert_non_null(strstr(answer, "Location: /\r\n"));
	assert_non_null(strstr(answer, "Referrer-Policy: no-referrer\r\n"));
	take_cookie(answer, cookie, sizeof cookie);
	snprintf(
		request, sizeof request, "GET / HTTP/1.1\r\n" PRIVATE "Cookie: %s\r\n\r\n", cookie);
	head = pass(client_connect(), request);
	assert_null(strstr(head, "c0de"));
	expect_answer(CODE PRIVATE "\r\n", "HTTP/1.1 401 ", "used already");
}

static void test_links_are_for_one_host(void **state)
{
	(void)state;
	expect_answer(CODE "Host: web2.localhost\r\n\r\n", "HTTP/1.1 401 ", NULL);
	expect_answer(CODE "Host: 9090-web.boxes.test\r\n\r\n", "HTTP/1.1 401 ", NULL);
	expect_answer(CODE PRIVATE "\r\n", "HTTP/1.1 401 ", NULL); /* it was seen elsewhere */
}

/* Pages of other boxes below one domain are the same site to a browser. */
static void test_cookies_work_from_the_own_page_alone(void **state)
{
	static const struct {
		const char *request;
		bool passes;
	} cases[] = {
		{ "POST / HTTP/1.1\r\nOrigin: http://9090-web.localhost\r\n", true },
		{ "POST / HTTP/1.1\r\n", true },
		{ "GET / HTTP/1.1\r\nOrigin: http://evil.localhost\r\n", true },
		{ "POST / HTTP/1.1\r\nOrigin: http://evil.localhost\r\n", false },
		{ "POST / HTTP/1.1\r\nOrigin: null\r\n", false },
		{ "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nOrigin: "
		  "http://9090-web.localhost\r\n",
			true },
		{ "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nOrigin: "
		  "http://evil.localhost\r\n",
			false },
	};
	char cookie[256], request[512];

	(void)state;
	log_in("9090-web.localhost", cookie, sizeof cookie);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		snprintf(request, sizeof request, "%s" PRIVATE "Cookie: %s\r\n\r\n",
			cases[i].request, cookie);
		if (cases[i].passes)
			free(pass(client_connect(), request));
		else
			expect_answer(request, "HTTP/1.1 403 ", NULL);
	}
}

/* ---- TLS ------------------------------------------------------------------------------------ */

static void write_certificate(const char *name)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = X509_new();
	X509_NAME *subject = X509_get_subject_name(certificate);
	char path[96];
	FILE *file;

	X509_set_version(certificate, X509_VERSION_3);
	X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
	X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
	X509_NAME_add_entry_by_txt(
		subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
	X509_set_issuer_name(certificate, subject);
	X509_set_pubkey(certificate, key);
	assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
	snprintf(path, sizeof path, "%s/cert.pem", fixture.home);
	file = fopen(path, "w");
	PEM_write_X509(file, certificate);
	fclose(file);
	snprintf(path, sizeof path, "%s/key.pem", fixture.home);
	file = fopen(path, "w");
	PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL);
	fclose(file);
	X509_free(certificate);
	EVP_PKEY_free(key);
}

static int set_up_tls(void **state)
{
	(void)state;
	strcpy(fixture.home, "/tmp/test-ingress-XXXXXX");
	assert_non_null(mkdtemp(fixture.home));
	write_certificate("one");
	fixture_start(true);
	return 0;
}

/* The server's stdin is open and silent, and there is no terminal: who reads it waits for ever. */
static int set_up_tls_with_stdin(void **state)
{
	int silent[2], old = dup(STDIN_FILENO);

	assert_int_equal(pipe2(silent, O_CLOEXEC), 0);
	assert_int_equal(dup2(silent[0], STDIN_FILENO), STDIN_FILENO);
	close(silent[0]);
	set_up_tls(state);
	dup2(old, STDIN_FILENO);
	close(old);
	return 0;
}

static SSL *tls_connect(SSL_CTX *context, char *ret_name, size_t size)
{
	SSL *ssl = SSL_new(context);
	X509 *certificate;

	SSL_set_fd(ssl, client_connect_to(fixture.tls_port));
	SSL_set_tlsext_host_name(ssl, "anything.example");
	assert_int_equal(SSL_connect(ssl), 1);
	certificate = SSL_get1_peer_certificate(ssl);
	X509_NAME_get_text_by_NID(
		X509_get_subject_name(certificate), NID_commonName, ret_name, (int)size);
	X509_free(certificate);
	return ssl;
}

static void tls_disconnect(SSL *ssl)
{
	int fd = SSL_get_fd(ssl);

	SSL_free(ssl);
	close(fd);
}

static void tls_say(SSL *ssl, const char *text)
{
	assert_int_equal(SSL_write(ssl, text, (int)strlen(text)), (int)strlen(text));
}

static int tls_read_some(SSL *ssl, void *data, int len)
{
	int got;

	do
		got = SSL_read(ssl, data, len);
	while (got <= 0 && errno == EINTR);
	return got;
}

static void tls_hear(SSL *ssl, struct buf *in, const char *text)
{
	while (!in->len || !strstr(buf_str(in), text)) {
		int got = tls_read_some(ssl, buf_room(in, 65537), 65536);

		assert_true(got > 0);
		buf_grew(in, (size_t)got);
	}
}

static void test_tls_serves_boxes_alone(void **state)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	char name[64];
	SSL *ssl = tls_connect(context, name, sizeof name);
	struct buf in = BUF_INIT, got = BUF_INIT;
	int box;

	(void)state;
	assert_string_equal(name, "one");
	tls_say(ssl, "GET /v1/info HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
	tls_hear(ssl, &in, "HTTP/1.1 404 ");
	tls_hear(ssl, &in, "}");
	in.len = 0;
	tls_say(ssl, "GET / HTTP/1.1\r\nHost: web.boxes.test\r\n\r\n");
	box = box_accept();
	expect(box, &got, "\r\n\r\n");
	assert_non_null(strstr(buf_str(&got), "X-Forwarded-Proto: https\r\n"));
	say(box, OK(2) "hi");
	tls_hear(ssl, &in, "\r\n\r\nhi");
	tls_say(ssl, "GET / HTTP/1.1\r\nHost: 9090-web.boxes.test\r\n" HTML "\r\n");
	tls_hear(ssl, &in, "Log in");
	in.len = 0;
	tls_say(ssl, "POST /.boxyard/login HTTP/1.1\r\nHost: "
		     "9090-web.boxes.test\r\nContent-Length: 14\r\n\r\ntoken=box_good");
	tls_hear(ssl, &in, "\r\n\r\n");
	assert_non_null(strstr(buf_str(&in), "Set-Cookie: __Host-boxyard_login="));
	assert_non_null(strstr(buf_str(&in), "; Secure\r\n"));
	buf_done(&in);
	buf_done(&got);
	close(box);
	tls_disconnect(ssl);
	SSL_CTX_free(context);
}

/* Large both ways: records, pauses and OpenSSL's own buffers. */
static void test_tls_carries_bodies(void **state)
{
	enum { SIZE = 3 * 1000 * 1000 };
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	char name[64], head[128];
	SSL *ssl = tls_connect(context, name, sizeof name);
	_cleanup_free_ char *data = xcalloc(1, SIZE);
	struct buf in = BUF_INIT;
	pid_t echo;
	int status;

	(void)state;
	memset(data, 'x', SIZE);
	echo = fork();
	if (!echo) {
		int box = box_accept();

		expect(box, &in, "\r\n\r\n");
		for (size_t sum = in.len -
				  (size_t)(strstr(buf_str(&in), "\r\n\r\n") + 4 - buf_str(&in));
			sum < SIZE;) {
			ssize_t got = recv(box, data, SIZE, 0);

			if (got <= 0)
				_exit(1);
			sum += (size_t)got;
		}
		memset(data, 'x', SIZE);
		snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", SIZE);
		say(box, head);
		say_bytes(box, data, SIZE);
		_exit(0);
	}
	snprintf(head, sizeof head, "POST / HTTP/1.1\r\n" WEB "Content-Length: %d\r\n\r\n", SIZE);
	tls_say(ssl, head);
	assert_int_equal(SSL_write(ssl, data, SIZE), SIZE);
	tls_hear(ssl, &in, "\r\n\r\n");
	for (size_t sum = in.len - (size_t)(strstr(buf_str(&in), "\r\n\r\n") + 4 - buf_str(&in));
		sum < SIZE;) {
		int got = tls_read_some(ssl, data, SIZE);

		assert_true(got > 0);
		sum += (size_t)got;
	}
	waitpid(echo, &status, 0);
	assert_int_equal(status, 0);
	buf_done(&in);
	tls_disconnect(ssl);
	SSL_CTX_free(context);
}

static void test_tls_reads_a_new_certificate(void **state)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	char name[64] = "";

	(void)state;
	write_certificate("two");
	kill(fixture.pid, SIGHUP);
	for (int i = 0; i < 200 && strcmp(name, "two"); i++)
		tls_disconnect(tls_connect(context, name, sizeof name));
	assert_string_equal(name, "two");
	SSL_CTX_free(context);
}

/* A key with a passphrase: nobody is asked for it, and the old certificate stays. */
static void test_tls_does_not_ask_for_a_passphrase(void **state)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	EVP_PKEY *key = EVP_EC_gen("P-256");
	char name[64] = "", path[96];
	FILE *file;

	(void)state;
	snprintf(path, sizeof path, "%s/key.pem", fixture.home);
	file = fopen(path, "w");
	PEM_write_PKCS8PrivateKey(file, key, EVP_aes_256_cbc(), "secret", 6, NULL, NULL);
	fclose(file);
	kill(fixture.pid, SIGHUP);
	usleep(100000);
	tls_disconnect(tls_connect(context, name, sizeof name));
	assert_string_equal(name, "one");
	EVP_PKEY_free(key);
	SSL_CTX_free(context);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define S(name) cmocka_unit_test_setup_teardown(name, set_up_tls, tear_down)
	const struct CMUnitTest tests[] = {
		T(test_private_ports_need_a_token),
		T(test_public_ports_do_not_see_tokens),
		T(test_wrong_tokens_are_counted),
		T(test_browsers_log_in),
		T(test_logins_are_for_one_host_and_one_box),
		T(test_logins_outlive_the_daemon_but_not_their_token),
		T(test_login_leads_nowhere_else),
		T(test_login_refuses),
		T(test_links_log_in_once),
		T(test_links_are_for_one_host),
		T(test_cookies_work_from_the_own_page_alone),
		S(test_tls_serves_boxes_alone),
		S(test_tls_carries_bodies),
		S(test_tls_reads_a_new_certificate),
		cmocka_unit_test_setup_teardown(
			test_tls_does_not_ask_for_a_passphrase, set_up_tls_with_stdin, tear_down),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
