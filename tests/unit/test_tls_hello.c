/* test_tls_hello.c - the name in a ClientHello: of a real client, in any pieces, and of those who
 * cheat */
#include "base/buf.h"
#include "gate/relay/tls_hello.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include <openssl/ssl.h>

/* ---- real ones ------------------------------------------------------------------------------ */

static int add_nothing(SSL *ssl, unsigned type, unsigned context, const unsigned char **out,
	size_t *len, X509 *x, size_t index, int *alert, void *arg)
{
	static const unsigned char body[64] = { 0 };

	*out = body;
	*len = type == 0xfe0d ? sizeof body : 0;
	return 1;
}

struct client {
	const char *name;
	int version;	    /* highest; 0: any */
	unsigned extension; /* one more; 0: none */
	size_t alpn;	    /* bytes of protocol names, to make it long */
};

/* What OpenSSL sends first. */
static struct buf client_hello(struct client client)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	BIO *in = BIO_new(BIO_s_mem()), *sent = BIO_new(BIO_s_mem());
	struct buf hello = BUF_INIT;
	uint8_t alpn[60000];
	SSL *ssl;
	char *data;
	long len;

	assert_non_null(context);
	if (client.extension)
		assert_int_equal(SSL_CTX_add_custom_ext(context, client.extension,
					 SSL_EXT_CLIENT_HELLO, add_nothing, NULL, NULL, NULL, NULL),
			1);
	ssl = SSL_new(context);
	if (client.version) {
		SSL_set_min_proto_version(ssl, client.version);
		SSL_set_max_proto_version(ssl, client.version);
		SSL_set_security_level(ssl, 0);
		SSL_set_cipher_list(ssl, "ALL:@SECLEVEL=0");
	}
	if (client.name)
		assert_int_equal(SSL_set_tlsext_host_name(ssl, client.name), 1);
	for (size_t i = 0; i < client.alpn; i++)
		alpn[i] = i % 101 ? 'a' + i % 26 : 100;
	if (client.alpn)
		assert_int_equal(SSL_set_alpn_protos(ssl, alpn, (unsigned)client.alpn), 0);
	SSL_set_bio(ssl, in, sent);
	SSL_set_connect_state(ssl);
	assert_int_equal(SSL_do_handshake(ssl), -1);
	len = BIO_get_mem_data(sent, &data);
	assert_true(len > 0);
	buf_add(&hello, data, (size_t)len);
	SSL_free(ssl);
	SSL_CTX_free(context);
	return hello;
}

/* ---- made ones ------------------------------------------------------------------------------ */

static void add16(struct buf *out, size_t value)
{
	buf_add(out, (uint8_t[]){ (uint8_t)(value >> 8), (uint8_t)value }, 2);
}

#define ADD(out, text) buf_add(out, text, sizeof(text) - 1)

struct made {
	const char *version; /* two bytes; NULL: 3.3 */
	size_t session;
	size_t ciphers;
	const char *compressions; /* with its length; NULL: none is used */
	size_t compressions_len;
	const char *extensions; /* NULL: not even their length */
	size_t extensions_len;
	int lie; /* added to the length of the extensions */
};

#define MADE(...)                         \
	(struct made)                     \
	{                                 \
		.ciphers = 4, __VA_ARGS__ \
	}
#define EXT(text) .extensions = (text), .extensions_len = sizeof(text) - 1

static struct buf message(struct made made)
{
	struct buf out = BUF_INIT;
	size_t len;

	ADD(&out, "\1\0\0\0");
	buf_add(&out, made.version ? made.version : "\3\3", 2);
	for (int i = 0; i < 32; i++)
		ADD(&out, "r");
	buf_add(&out, (uint8_t[]){ (uint8_t)made.session }, 1);
	for (size_t i = 0; i < made.session; i++)
		ADD(&out, "s");
	add16(&out, made.ciphers);
	for (size_t i = 0; i < made.ciphers; i++)
		ADD(&out, "\x1a");
	if (made.compressions)
		buf_add(&out, made.compressions, made.compressions_len);
	else
		ADD(&out, "\1\0");
	if (made.extensions) {
		add16(&out, made.extensions_len + (size_t)made.lie);
		buf_add(&out, made.extensions, made.extensions_len);
	}
	len = out.len - 4;
	out.data[1] = (uint8_t)(len >> 16);
	out.data[2] = (uint8_t)(len >> 8);
	out.data[3] = (uint8_t)len;
	return out;
}

/* The message in records of at most size bytes. Frees the message. */
static struct buf records(struct buf from, size_t size)
{
	struct buf out = BUF_INIT;

	while (from.len) {
		size_t len = MIN(size, from.len);

		ADD(&out, "\x16\3\1");
		add16(&out, len);
		buf_add(&out, buf_head(&from), len);
		buf_eat(&from, len);
	}
	buf_done(&from);
	return out;
}

static struct buf payload(const struct buf *hello)
{
	struct buf out = BUF_INIT;

	buf_add(&out, buf_head(hello) + 5, hello->len - 5);
	return out;
}

/* ---- outcomes ------------------------------------------------------------------------------- */

static const char *const result_names[] = {
	[TLS_HELLO_MORE] = "more",
	[TLS_HELLO_NAMED] = "named",
	[TLS_HELLO_UNNAMED] = "unnamed",
	[TLS_HELLO_OTHER] = "other",
	[TLS_HELLO_BROKEN] = "broken",
};

/* Whole, and byte by byte: every beginning is "more" until the outcome, and that stays. Each
 * beginning lies in memory of its own, so that a sanitizer sees who reads on. */
static enum tls_hello_result outcome(const uint8_t *data, size_t len, struct tls_hello *ret)
{
	struct tls_hello hello, again;
	enum tls_hello_result whole = tls_hello_parse(data, len, &hello), now = TLS_HELLO_MORE;

	for (size_t i = 0; i <= len; i += len > 4096 && i > 64 && i + 64 < len ? 61 : 1) {
		_cleanup_free_ uint8_t *copy = xmemdup(data, i);
		enum tls_hello_result next = tls_hello_parse(copy, i, &again);

		if (now != TLS_HELLO_MORE)
			assert_int_equal(next, now);
		now = next;
	}
	assert_int_equal(now, whole);
	if (whole == TLS_HELLO_NAMED) {
		assert_string_equal(hello.name, again.name);
		*ret = hello;
	} else if (whole == TLS_HELLO_UNNAMED) {
		*ret = hello;
	}
	return whole;
}

static void expect(
	const char *what, struct buf bytes, enum tls_hello_result wanted, const char *name)
{
	struct tls_hello hello = { 0 };
	enum tls_hello_result result = outcome(buf_head(&bytes), bytes.len, &hello);

	if (result != wanted)
		fail_msg("%s: %s, not %s", what, result_names[result], result_names[wanted]);
	if (name)
		assert_string_equal(hello.name, name);
	buf_done(&bytes);
}

static struct buf bytes_of(const char *bytes, size_t len)
{
	struct buf out = BUF_INIT;

	buf_add(&out, bytes, len);
	return out;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_real_hello_is_named(void **state)
{
	static const int versions[] = { 0, TLS1_VERSION, TLS1_1_VERSION, TLS1_2_VERSION,
		TLS1_3_VERSION };

	for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
		expect("name",
			client_hello((struct client){
				.name = "www.example.test", .version = versions[i] }),
			TLS_HELLO_NAMED, "www.example.test");
		expect("no name",
			client_hello((struct client){ .name = NULL, .version = versions[i] }),
			TLS_HELLO_UNNAMED, "");
	}
}

static void test_name_is_normalised(void **state)
{
	expect("case", client_hello((struct client){ .name = "WwW.Example.TEST" }), TLS_HELLO_NAMED,
		"www.example.test");
	expect("dot", client_hello((struct client){ .name = "www.example.test." }), TLS_HELLO_NAMED,
		"www.example.test");
}

static void test_name_that_is_none_is_broken(void **state)
{
	static const char *const names[] = { "192.0.2.1", "::1", "[::1]", "10.1", "0x7f.1",
		"a..test", ".a.test", "a.test..", ".", "a b.test", "a.test:443", "a/b", "*.test",
		"x@a.test", "b\xc3\xbc.test", "-a.test", "a,b.test", "localhost", "a.test\n" };
	char label[66];

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		expect(names[i], client_hello((struct client){ .name = names[i] }),
			TLS_HELLO_BROKEN, NULL);
	memset(label, 'a', 64);
	strcpy(label + 64, ".");
	expect("long label", client_hello((struct client){ .name = label }), TLS_HELLO_BROKEN,
		NULL);
}

static void test_hello_comes_in_many_records(void **state)
{
	static const size_t sizes[] = { 3, 4, 5, 50, 500 };

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct buf hello = client_hello((struct client){ .name = "www.example.test" });

		expect("split", records(payload(&hello), sizes[i]), TLS_HELLO_NAMED,
			"www.example.test");
		buf_done(&hello);
	}
}

/* The first ones hold a byte each; the last all that is left. */
static void test_records_are_counted(void **state)
{
	for (size_t count = 127; count <= 129; count++) {
		struct buf hello = client_hello((struct client){ .name = "www.example.test" });
		struct buf rest = payload(&hello), first = BUF_INIT, split;

		buf_add(&first, buf_head(&rest), count - 1);
		buf_eat(&rest, count - 1);
		split = records(first, 1);
		rest = records(rest, 16384);
		buf_add(&split, buf_head(&rest), rest.len);
		expect("counted", split, count > 128 ? TLS_HELLO_BROKEN : TLS_HELLO_NAMED, NULL);
		buf_done(&rest);
		buf_done(&hello);
	}
}

static void test_bytes_behind_the_hello_are_left_alone(void **state)
{
	struct buf hello = client_hello((struct client){ .name = "a.test" });

	ADD(&hello, "\x14\3\3\0\1\1\x17\3\3\0\2xx garbage");
	expect("more behind", hello, TLS_HELLO_NAMED, "a.test");
	hello = client_hello((struct client){ .name = "a.test" });
	/* in the same record it is a message before its time */
	hello.data[4] += 4;
	ADD(&hello, "\x10\0\0\0");
	expect("a second message", hello, TLS_HELLO_BROKEN, NULL);
}

static void test_size_is_bounded(void **state)
{
	struct buf hello = client_hello((struct client){ .name = "a.test", .alpn = 101 * 120 });

	assert_true(hello.len > 12000 && hello.len < TLS_HELLO_MAX);
	expect("long", hello, TLS_HELLO_NAMED, "a.test");
	expect("too long", client_hello((struct client){ .name = "a.test", .alpn = 101 * 170 }),
		TLS_HELLO_BROKEN, NULL);
	/* short enough, were it not for the records */
	hello = client_hello((struct client){ .name = "a.test", .alpn = 101 * 158 });
	assert_true(hello.len > 16000 && hello.len < TLS_HELLO_MAX);
	expect("records", records(payload(&hello), 200), TLS_HELLO_BROKEN, NULL);
	buf_done(&hello);
	/* refused by the length alone, before it was sent */
	expect("length", bytes_of("\x16\3\1\x40\0\1\1\0\0", 9), TLS_HELLO_BROKEN, NULL);
}

static void test_ech_and_grease_are_seen(void **state)
{
	struct buf ech = client_hello((struct client){ .name = "outer.test", .extension = 0xfe0d });
	struct tls_hello hello;

	assert_int_equal(outcome(buf_head(&ech), ech.len, &hello), TLS_HELLO_NAMED);
	assert_string_equal(hello.name, "outer.test");
	assert_true(hello.has_ech);
	buf_done(&ech);
	ech = client_hello((struct client){ .name = NULL, .extension = 0xfe0d });
	assert_int_equal(outcome(buf_head(&ech), ech.len, &hello), TLS_HELLO_UNNAMED);
	assert_true(hello.has_ech);
	buf_done(&ech);
	ech = client_hello((struct client){ .name = "a.test", .extension = 0x2a2a });
	assert_int_equal(outcome(buf_head(&ech), ech.len, &hello), TLS_HELLO_NAMED);
	assert_false(hello.has_ech);
	buf_done(&ech);
}

#define SNI(len, list, kind, size, name) "\0\0\0" len "\0" list kind "\0" size name

static const struct {
	const char *what;
	struct made made;
	enum tls_hello_result result;
} cases[] = {
	{ "no extensions", { .ciphers = 2 }, TLS_HELLO_UNNAMED },
	{ "empty extensions", MADE(EXT("")), TLS_HELLO_UNNAMED },
	{ "a name", MADE(EXT(SNI("\x0b", "\x09", "\0", "\6", "a.test"))), TLS_HELLO_NAMED },
	{ "grease first and last",
		MADE(EXT(
			"\x0a\x0a\0\0" SNI("\x0b", "\x09", "\0", "\6", "a.test") "\xfa\xfa\0\1\0")),
		TLS_HELLO_NAMED },
	{ "two names", MADE(EXT(SNI("\x14", "\x12", "\0", "\6", "a.test") "\0\0\6b.test")),
		TLS_HELLO_BROKEN },
	{ "name of another kind", MADE(EXT(SNI("\x0b", "\x09", "\1", "\6", "a.test"))),
		TLS_HELLO_BROKEN },
	{ "another kind behind it", MADE(EXT(SNI("\x0f", "\x0d", "\0", "\6", "a.test") "\1\0\1x")),
		TLS_HELLO_BROKEN },
	{ "server_name twice",
		MADE(EXT(SNI("\x0b", "\x09", "\0", "\6", "a.test")
				SNI("\x0b", "\x09", "\0", "\6", "b.test"))),
		TLS_HELLO_BROKEN },
	{ "another extension twice", MADE(EXT("\0\x17\0\0\0\x17\0\0")), TLS_HELLO_BROKEN },
	{ "empty server_name", MADE(EXT("\0\0\0\0")), TLS_HELLO_BROKEN },
	{ "empty list", MADE(EXT("\0\0\0\2\0\0")), TLS_HELLO_BROKEN },
	{ "empty name", MADE(EXT("\0\0\0\5\0\3\0\0\0")), TLS_HELLO_BROKEN },
	{ "name with NUL", MADE(EXT(SNI("\x0b", "\x09", "\0", "\6", "a.t\0st"))),
		TLS_HELLO_BROKEN },
	{ "NUL at its end", MADE(EXT(SNI("\x0c", "\x0a", "\0", "\7", "a.test\0"))),
		TLS_HELLO_BROKEN },
	{ "list longer than the extension", MADE(EXT(SNI("\x0b", "\x0a", "\0", "\6", "a.test"))),
		TLS_HELLO_BROKEN },
	{ "list shorter", MADE(EXT(SNI("\x0c", "\x09", "\0", "\6", "a.test") "x")),
		TLS_HELLO_BROKEN },
	{ "name longer than the list", MADE(EXT(SNI("\x0b", "\x09", "\0", "\7", "a.test"))),
		TLS_HELLO_BROKEN },
	{ "name shorter", MADE(EXT(SNI("\x0b", "\x09", "\0", "\5", "a.test"))), TLS_HELLO_BROKEN },
	{ "extension longer than all", MADE(EXT("\0\x17\0\1")), TLS_HELLO_BROKEN },
	{ "half an extension", MADE(EXT("\0\x17\0")), TLS_HELLO_BROKEN },
	{ "extensions too long", MADE(EXT("\0\x17\0\0"), .lie = 1), TLS_HELLO_BROKEN },
	{ "extensions too short", MADE(EXT("\0\x17\0\0"), .lie = -1), TLS_HELLO_BROKEN },
	{ "bytes behind the extensions", MADE(EXT("\0\x17\0\0\0\x16\0\0"), .lie = -4),
		TLS_HELLO_BROKEN },
	{ "SSL 3", MADE(.version = "\3\0"), TLS_HELLO_BROKEN },
	{ "version 3.4", MADE(.version = "\3\4"), TLS_HELLO_BROKEN },
	{ "version 2.0", MADE(.version = "\2\0"), TLS_HELLO_BROKEN },
	{ "session", MADE(.session = 32), TLS_HELLO_UNNAMED },
	{ "long session", MADE(.session = 33), TLS_HELLO_BROKEN },
	{ "no ciphers", { .ciphers = 0 }, TLS_HELLO_BROKEN },
	{ "half a cipher", { .ciphers = 3 }, TLS_HELLO_BROKEN },
	{ "no compression", MADE(.compressions = "", .compressions_len = 1), TLS_HELLO_BROKEN },
	{ "compression alone", MADE(.compressions = "\1\1", .compressions_len = 2),
		TLS_HELLO_BROKEN },
	{ "compression too", MADE(.compressions = "\2\1\0", .compressions_len = 3),
		TLS_HELLO_UNNAMED },
};

static void test_rules_of_the_message(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *name = cases[i].result == TLS_HELLO_NAMED ? "a.test" : NULL;

		expect(cases[i].what, records(message(cases[i].made), 16384), cases[i].result,
			name);
		expect(cases[i].what, records(message(cases[i].made), 7), cases[i].result, name);
	}
}

static void test_extensions_are_counted(void **state)
{
	struct made made = MADE(.extensions = NULL);
	char extensions[4 * 65] = { 0 };

	for (int i = 0; i < 65; i++)
		extensions[4 * i + 1] = (char)(100 + i);
	made.extensions = extensions;
	made.extensions_len = 4 * 64;
	expect("64", records(message(made), 16384), TLS_HELLO_UNNAMED, NULL);
	made.extensions_len = 4 * 65;
	expect("65", records(message(made), 16384), TLS_HELLO_BROKEN, NULL);
}

static const struct {
	const char *what, *bytes;
	size_t len;
	enum tls_hello_result result;
} beginnings[] = {
#define BEGIN(what, bytes, result)                     \
	{                                              \
		what, bytes, sizeof(bytes) - 1, result \
	}
	BEGIN("nothing", "", TLS_HELLO_MORE),
	BEGIN("one byte", "\x16", TLS_HELLO_MORE),
	BEGIN("half a header", "\x16\3\1\0", TLS_HELLO_MORE),
	BEGIN("HTTP", "GET / HTTP/1.1\r\n", TLS_HELLO_OTHER),
	BEGIN("SSH", "SSH-2.0-x\r\n", TLS_HELLO_OTHER),
	BEGIN("alert", "\x15\3\1\0\2\1\0", TLS_HELLO_OTHER),
	BEGIN("data", "\x17\3\3\0\1x", TLS_HELLO_OTHER),
	BEGIN("MySQL", "\x16\1\0\1\x85\xa6\xff\1", TLS_HELLO_OTHER),
	BEGIN("telnet", "\xff\xfb\1", TLS_HELLO_OTHER),
	BEGIN("high byte", "\x80\0\0", TLS_HELLO_OTHER),
	BEGIN("no version", "\x16\x20\1", TLS_HELLO_OTHER),
	BEGIN("record of SSL 3", "\x16\3\0", TLS_HELLO_BROKEN),
	BEGIN("record of 3.4", "\x16\3\4", TLS_HELLO_BROKEN),
	BEGIN("version that never was", "\x16\2\0\0\x40\1\0\0\x3c", TLS_HELLO_BROKEN),
	BEGIN("and empty", "\x16\2\0\0\0\x16\3\1\0\x40\1", TLS_HELLO_BROKEN),
	BEGIN("hello of SSL 2", "\x80\x2e\1\3\3\0\x15\0\0\0\x10", TLS_HELLO_BROKEN),
	BEGIN("empty record", "\x16\3\1\0\0", TLS_HELLO_BROKEN),
	BEGIN("empty record inside", "\x16\3\1\0\1\1\x16\3\1\0\0", TLS_HELLO_BROKEN),
	BEGIN("long record", "\x16\3\1\x40\1", TLS_HELLO_BROKEN),
	BEGIN("server hello", "\x16\3\1\0\x40\2", TLS_HELLO_BROKEN),
	BEGIN("alert inside", "\x16\3\1\0\1\1\x15\3\1\0\2\1\0", TLS_HELLO_BROKEN),
	BEGIN("other version inside", "\x16\3\1\0\1\1\x16\4", TLS_HELLO_BROKEN),
	BEGIN("record longer than the hello", "\x16\3\1\0\x40\1\0\0\x20", TLS_HELLO_BROKEN),
};

static void test_first_bytes_tell(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(beginnings); i++)
		expect(beginnings[i].what, bytes_of(beginnings[i].bytes, beginnings[i].len),
			beginnings[i].result, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_real_hello_is_named),
		cmocka_unit_test(test_name_is_normalised),
		cmocka_unit_test(test_name_that_is_none_is_broken),
		cmocka_unit_test(test_hello_comes_in_many_records),
		cmocka_unit_test(test_records_are_counted),
		cmocka_unit_test(test_bytes_behind_the_hello_are_left_alone),
		cmocka_unit_test(test_size_is_bounded),
		cmocka_unit_test(test_ech_and_grease_are_seen),
		cmocka_unit_test(test_rules_of_the_message),
		cmocka_unit_test(test_extensions_are_counted),
		cmocka_unit_test(test_first_bytes_tell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
