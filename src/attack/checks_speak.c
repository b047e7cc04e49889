/* checks_speak.c - attacks by name: DNS, names that only look allowed, rebinding, TLS */
#include "attack/suite.h"
#include "base/alloc.h"

#define STRICT                                                                                 \
	"{\"version\":1,\"preset\":\"none\",\"allow\":[\"allowed.test:80,443,8080,8443\",\"*." \
	"wild.test:80\","                                                                      \
	"{\"name\":\"api.test\",\"ports\":80,\"methods\":[\"GET\"],\"paths\":[\"/v1/\"]}]}"
#define REBINDING                                                                              \
	"{\"version\":1,\"preset\":\"none\",\"allow\":[\"private.test\",\"lan.test\",\"cgnat." \
	"test\",\"loopback.test\","                                                            \
	"\"zero.test\",\"metadata.test\",\"host.test\",\"hostlan.test\",\"synthetic.test\","   \
	"\"loopback6.test\","                                                                  \
	"\"private6.test\",\"linklocal6.test\",\"mapped.test\",\"nat64.test\",\"host6.test\"," \
	"\"alias.test\","                                                                      \
	"\"mixed.test\",\"flip.test\",\"flop.test\"]}"

#define TLS_443	 "203.0.113.10:443 [2001:db8::10]:443"
#define TLS_8443 "203.0.113.10:8443 [2001:db8::10]:8443"
#define LONG	 "ZXZpbCBkYXRhIGdvaW5nIG91dCBieSBuYW1lIGluIGxvbmcgbGFiZWxzIG9u"

/* ---- DNS ------------------------------------------------------------------------------------ */

#define ASK(label, server, way, type, question)                                                 \
	{                                                                                       \
		.name = label, .words = { "ask", server, way, type, question }, .log = question \
	}
/* Queries of another type for an allowed name: the answer is empty. */
#define ASK_TYPE(type, question)                                                      \
	{                                                                             \
		.name = "type-" type, .flags = CHECK_LOG_ANY,                         \
		.words = { "ask", "-", "udp", type, question }, .log = "\"" type "\"" \
	}
#define ODD(how, way, question)                                                            \
	{                                                                                  \
		.name = "odd-" how, .flags = CHECK_SILENT | CHECK_NO_LOG | CHECK_NO_PROOF, \
		.words = {                                                                 \
			"ask-odd",                                                         \
			"-",                                                               \
			way,                                                               \
			how,                                                               \
			question                                                           \
		}                                                                          \
	}

static const struct check dns[] = {
	{ .name = "allowed",
		.flags = CHECK_WORKS,
		.words = { "ask", "-", "udp", "A", "allowed.test" },
		.log = "allowed.test" },
	{ .name = "allowed-v6",
		.flags = CHECK_WORKS,
		.words = { "ask", "-", "udp", "AAAA", "allowed.test" },
		.log = "allowed.test" },
	{ .name = "allowed-tcp",
		.flags = CHECK_WORKS,
		.words = { "ask", "-", "tcp", "A", "allowed.test" },
		.log = "allowed.test" },
	{ .name = "allowed-by-another-server",
		.flags = CHECK_WORKS,
		.words = { "ask", "203.0.113.99", "udp", "A", "allowed.test" },
		.log = "allowed.test" },
	ASK("denied", "-", "udp", "A", "evil1.test"),
	ASK("denied-tcp", "-", "tcp", "A", "evil2.test"),
	ASK("denied-v6", "-", "udp", "AAAA", "evil3.test"),
	ASK("other-server", "203.0.113.99", "udp", "A", "evil4.test"),
	ASK("other-server-tcp", "203.0.113.99", "tcp", "A", "evil5.test"),
	ASK("other-server-v6", "2001:db8::99", "udp", "A", "evil6.test"),
	ASK("other-server-v6-tcp", "2001:db8::99", "tcp", "A", "evil7.test"),
	ASK("server-of-the-host", RIG_RESOLVER, "udp", "A", "evil8.test"),
	ASK("server-on-the-host", RIG_HOST_V4, "udp", "A", "evil9.test"),
	ASK("server-metadata", "169.254.169.253", "udp", "A", "evil10.test"),
	{ .name = "server-private",
		.words = { "ask", "10.0.0.53", "udp", "A", "evil11.test" },
		.log = "evil11.test",
		.flags = CHECK_STANDARD },
	{ .name = "server-private-nested",
		.words = { "ask", "10.0.0.53", "udp", "A", "evil11.test" },
		.log = "10.0.0.53",
		.flags = CHECK_NESTED },
	{ .name = "over-tls", .words = { "connect", "203.0.113.98", "853" } },
	{ .name = "over-tls-by-name", .words = { "connect", "allowed.test", "853" }, .log = "853" },
	{ .name = "over-https", .words = { "connect", "203.0.113.97", "443" } },
	{ .name = "multicast",
		.words = { "datagram", "224.0.0.252", "5355" },
		.flags = CHECK_SILENT | CHECK_NO_LOG | CHECK_NO_PROOF },
	ASK_TYPE("TXT", "allowed.test"),
	ASK_TYPE("MX", "allowed.test"),
	ASK_TYPE("NS", "allowed.test"),
	ASK_TYPE("SRV", "allowed.test"),
	ASK_TYPE("SVCB", "allowed.test"),
	ASK_TYPE("HTTPS", "allowed.test"),
	{ .name = "type-NULL",
		.flags = CHECK_LOG_ANY,
		.words = { "ask", "-", "udp", "NULL", "allowed.test" },
		.log = "allowed.test" },
	{ .name = "type-ANY",
		.flags = CHECK_EITHER,
		.words = { "ask", "-", "udp", "ANY", "allowed.test" },
		.log = "allowed.test" },
	{ .name = "type-AXFR",
		.flags = CHECK_LOG_ANY | CHECK_SILENT,
		.words = { "ask", "-", "tcp", "AXFR", "allowed.test" },
		.log = "allowed.test" },
	ASK("type-PTR", "-", "udp", "PTR", "1.0.0.10.in-addr.arpa"),
	ASK("tunnel-below-denied", "-", "udp", "A", LONG "." LONG "." LONG ".t.evil12.test"),
	ASK("tunnel-txt", "-", "udp", "TXT", LONG "." LONG ".t.evil13.test"),
	ASK("tunnel-null", "-", "udp", "NULL", LONG ".t.evil14.test"),
	ASK("tunnel-tcp", "-", "tcp", "TXT", LONG "." LONG "." LONG ".t.evil15.test"),
	ASK("tunnel-below-allowed", "-", "udp", "A", LONG ".evil.allowed.test"),
	ASK("tunnel-below-allowed-short", "-", "udp", "A", "evil16.allowed.test"),
	ODD("two-questions", "udp", "evil17.test"),
	ODD("pointer-loop", "udp", "evil18.test"),
	ODD("cut-short", "udp", "evil19.test"),
	ODD("update", "udp", "evil20.test"),
	ODD("response", "udp", "evil21.test"),
	ODD("chaos", "udp", "allowed.test"),
	ODD("two-labels-long", "udp", "allowed.test"),
	ODD("two-questions", "tcp", "evil22.test"),
	ODD("pointer-loop", "tcp", "evil23.test"),
	{ .name = "odd-client-subnet",
		.flags = CHECK_EITHER | CHECK_NO_LOG,
		.words = { "ask-odd", "-", "udp", "client-subnet", "allowed.test" } },
	{ .name = "still-works",
		.flags = CHECK_WORKS,
		.words = { "ask", "-", "udp", "A", "allowed.test" },
		.log = "allowed.test" },
};

/* ---- names ---------------------------------------------------------------------------------- */

#define NAME(label, question)                                                                 \
	{                                                                                     \
		.name = label, .words = { "ask", "-", "udp", "A", question }, .log = question \
	}
/* Not a host name: logged as a malformed query, or by its printable part. */
#define NO_NAME(label, question)                                                \
	{                                                                       \
		.name = label, .flags = CHECK_SILENT | CHECK_NO_PROOF,          \
		.words = { "ask", "-", "udp", "A", question }, .log = "refused" \
	}
#define SNI(label, server)                                                                        \
	{                                                                                         \
		.name = "sni-" label, .words = { "tls", "allowed.test", "443", "plain", server }, \
		.log = "allowed.test"                                                             \
	}
#define HOST(label, server)                                                       \
	{                                                                         \
		.name = "host-" label,                                            \
		.words = { "send", "allowed.test", "80", "1",                     \
			"GET /evil HTTP/1.1\\r\\nHost: " server "\\r\\n\\r\\n" }, \
		.log = "allowed.test"                                             \
	}

static const struct check names[] = {
	{ .name = "mixed-case",
		.flags = CHECK_WORKS,
		.words = { "ask", "-", "udp", "A", "AlloWed.TesT" },
		.log = "allowed.test" },
	{ .name = "below-a-wildcard",
		.flags = CHECK_WORKS,
		.words = { "ask", "-", "udp", "A", "a.b.wild.test" },
		.log = "a.b.wild.test" },
	{ .name = "sni-mixed-case",
		.flags = CHECK_WORKS,
		.words = { "tls", "allowed.test", "443", "plain", "ALLOWED.test" },
		.log = "allowed.test",
		.may = TLS_443 },
	NAME("suffix", "evilallowed.test"),
	NAME("prefix", "allowed.test.evil.test"),
	NAME("without-dot", "allowedtest"),
	NAME("parent", "test"),
	NAME("one-more-letter", "allowed.testa"),
	NAME("hyphen", "allowed-test"),
	NAME("below-exact", "www.allowed.test"),
	NAME("wildcard-itself", "wild.test"),
	NAME("wildcard-suffix", "evilwild.test"),
	NAME("wildcard-elsewhere", "a.wild.test.evil.test"),
	NAME("punycode-twin", "xn--llowed-8ve.test"),
	NO_NAME("literal-star", "*.wild.test"),
	NO_NAME("nul-in-label", "allowed.test\\x00"),
	NO_NAME("nul-and-more", "allowed.test\\x00.evil.test"),
	NO_NAME("nul-below-wildcard", "evil\\x00.wild.test"),
	NO_NAME("dot-in-label", "allowed\\x2etest"),
	NO_NAME("dot-in-label-below-wildcard", "evil.test\\x2ea.wild.test"),
	NO_NAME("utf8-twin", "\\xd0\\xb0llowed.test"),
	NO_NAME("fullwidth-dot", "allowed\\xef\\xbc\\x8etest"),
	NO_NAME("space", "allowed.test\\x20"),
	NO_NAME("newline", "allowed.test\\x0a"),
	NO_NAME("slash", "allowed.test/.evil.test"),
	NO_NAME("port", "allowed.test:80"),
	NO_NAME("at", "allowed.test@evil.test"),
	NO_NAME("label-of-64",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.wild.test"),
	NO_NAME("name-of-300", LONG "." LONG "." LONG "." LONG "." LONG ".wild.test"),
	NO_NAME("root", ""),
	SNI("suffix", "evilallowed.test"),
	SNI("prefix", "allowed.test.evil.test"),
	SNI("nul", "allowed.test\\x00.evil.test"),
	SNI("space", "allowed.test evil"),
	SNI("two-dots", "allowed.test.."),
	SNI("utf8-twin", "\\xd0\\xb0llowed.test"),
	SNI("below", "evil.allowed.test"),
	HOST("suffix", "evilallowed.test"),
	HOST("prefix", "allowed.test.evil.test"),
	HOST("userinfo", "allowed.test@evil.test"),
	HOST("userinfo-port", "allowed.test:80@evil.test"),
	HOST("list", "allowed.test, evil.test"),
	HOST("two-words", "allowed.test evil.test"),
	HOST("below", "evil.allowed.test"),
	HOST("nul", "allowed.test\\x00evil.test"),
	HOST("address", "10.0.0.1"),
};

/* ---- rebinding ------------------------------------------------------------------------------ */

#define REBIND(label, host, host_port)                                          \
	{                                                                       \
		.name = label,                                                  \
		.words = { "send", host, host_port, "1",                        \
			"GET /evil HTTP/1.1\\r\\nHost: " host "\\r\\n\\r\\n" }, \
		.flags = CHECK_NO_PROOF                                         \
	}
#define REBIND6(label, host)                                                    \
	{                                                                       \
		.name = label,                                                  \
		.words = { "send", "6:" host, "80", "1",                        \
			"GET /evil HTTP/1.1\\r\\nHost: " host "\\r\\n\\r\\n" }, \
		.log = host, .flags = CHECK_NO_PROOF                            \
	}

static const struct check rebinding[] = {
	REBIND("private", "private.test", "80"),
	REBIND("private-other-port", "private.test", "8080"),
	REBIND("lan", "lan.test", "80"),
	REBIND("cgnat", "cgnat.test", "80"),
	REBIND("loopback", "loopback.test", "80"),
	REBIND("loopback-service", "loopback.test", "7777"),
	REBIND("api", "loopback.test", "30001"),
	REBIND("unspecified", "zero.test", "7777"),
	REBIND("metadata", "metadata.test", "80"),
	REBIND("host", "host.test", "80"),
	REBIND("host-service", "host.test", "7777"),
	REBIND("host-lan", "hostlan.test", "7777"),
	REBIND("synthetic", "synthetic.test", "80"),
	REBIND6("loopback-v6", "loopback6.test"),
	REBIND6("private-v6", "private6.test"),
	REBIND6("link-local-v6", "linklocal6.test"),
	REBIND6("mapped", "mapped.test"),
	REBIND6("nat64", "nat64.test"),
	REBIND6("host-v6", "host6.test"),
	REBIND("alias", "alias.test", "80"),
	{ .name = "mixed",
		.flags = CHECK_EITHER,
		.never = "10.0.0.1",
		.may = "203.0.113.12:80",
		.words = { "send", "mixed.test", "80", "1",
			"GET / HTTP/1.1\\r\\nHost: mixed.test\\r\\n\\r\\n" } },
	{ .name = "flip-first",
		.flags = CHECK_EITHER,
		.never = "10.0.0.1",
		.may = "203.0.113.12:80",
		.words = { "send", "flip.test", "80", "1",
			"GET / HTTP/1.1\\r\\nHost: flip.test\\r\\n\\r\\n" } },
	{ .name = "flip-second",
		.flags = CHECK_EITHER,
		.never = "10.0.0.1",
		.may = "203.0.113.12:80",
		.words = { "send", "flip.test", "80", "1",
			"GET / HTTP/1.1\\r\\nHost: flip.test\\r\\n\\r\\n" } },
	{ .name = "flop-first",
		.flags = CHECK_EITHER,
		.never = "10.0.0.1",
		.may = "203.0.113.12:80",
		.words = { "send", "flop.test", "80", "1",
			"GET / HTTP/1.1\\r\\nHost: flop.test\\r\\n\\r\\n" } },
	{ .name = "flop-second",
		.flags = CHECK_EITHER,
		.never = "10.0.0.1",
		.may = "203.0.113.12:80",
		.words = { "send", "flop.test", "80", "1",
			"GET / HTTP/1.1\\r\\nHost: flop.test\\r\\n\\r\\n" } },
};

/* ---- TLS ------------------------------------------------------------------------------------ */

#define HELLO(label, how, server)                                                      \
	{                                                                              \
		.name = label, .words = { "tls", "allowed.test", "443", how, server }, \
		.log = "allowed.test", .never = "evil"                                 \
	}
#define GOOD_HELLO(how, port, places)                                                 \
	{                                                                             \
		.name = "allowed-" how "-" port, .flags = CHECK_WORKS, .may = places, \
		.log = "allowed.test", .words = {                                     \
			"tls",                                                        \
			"allowed.test",                                               \
			port,                                                         \
			how,                                                          \
			"allowed.test"                                                \
		}                                                                     \
	}

static const struct check tls[] = {
	GOOD_HELLO("plain", "443", TLS_443),
	GOOD_HELLO("segments", "443", TLS_443),
	GOOD_HELLO("bytes", "443", TLS_443),
	GOOD_HELLO("records", "443", TLS_443),
	GOOD_HELLO("late", "443", TLS_443),
	GOOD_HELLO("plain", "8443", TLS_8443),
	HELLO("other-name", "plain", "evil.test"),
	HELLO("shared-address", "plain", "shared.test"),
	HELLO("no-name", "none", "evil.test"),
	HELLO("split-segments", "segments", "evil.test"),
	HELLO("split-bytes", "bytes", "evil.test"),
	HELLO("split-records", "records", "evil.test"),
	HELLO("name-far-behind", "late", "evil.test"),
	HELLO("ech-other-outer-name", "ech", "evil.test"),
	HELLO("two-extensions", "twice", "evil.test"),
	HELLO("two-names", "two-names", "evil.test"),
	HELLO("other-kind-of-name", "other-kind", "allowed.test"),
	HELLO("address-as-name", "plain", "10.0.0.1"),
	HELLO("empty-name", "plain", ""),
	HELLO("sslv2", "sslv2", "evil.test"),
	{ .name = "too-long",
		.flags = CHECK_SILENT,
		.words = { "tls", "allowed.test", "443", "long", "evil.test" },
		.log = "allowed.test" },
	{ .name = "half-a-hello",
		.flags = CHECK_SILENT,
		.words = { "tls", "allowed.test", "443", "half", "allowed.test" },
		.log = "allowed.test" },
	{ .name = "plain-http-on-443",
		.words = { "send", "allowed.test", "443", "1",
			"GET /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n" } },
	{ .name = "plain-bytes-on-443", .words = { "connect", "allowed.test", "443" } },
	{ .name = "tls-on-80", .words = { "tls", "allowed.test", "80", "plain", "allowed.test" } },
	/* On this port the server may speak first, so the gate connects at once; but the hello
	 * must not arrive. */
	{ .name = "other-name-on-8443",
		.words = { "tls", "allowed.test", "8443", "plain", "evil.test" },
		.may = TLS_8443 },
	{ .name = "split-on-8443",
		.words = { "tls", "allowed.test", "8443", "segments", "evil.test" },
		.may = TLS_8443 },
	{ .name = "behind-a-byte-on-8443",
		.words = { "tls", "allowed.test", "8443", "behind", "evil.test" },
		.may = TLS_8443 },
	{ .name = "behind-a-byte-in-pieces-on-8443",
		.words = { "tls", "allowed.test", "8443", "behind-pieces", "evil.test" },
		.may = TLS_8443 },
	{ .name = "records-on-8443",
		.words = { "tls", "allowed.test", "8443", "records", "evil.test" },
		.may = TLS_8443 },
};

#define ROWS(list) .checks = (list), .count = ARRAY_LEN(list)
#define TEST_NAMES                                                                              \
	"private.test lan.test cgnat.test loopback.test zero.test metadata.test host.test "     \
	"hostlan.test synthetic.test loopback6.test private6.test linklocal6.test mapped.test " \
	"nat64.test host6.test alias.test mixed.test flip.test flop.test"

const struct group speak_groups[] = {
	{ "dns", "other servers, other types, tunnels, malformed queries", STRICT, "allowed.test",
		ROWS(dns) },
	{ "names", "names that only look like allowed ones", STRICT, "allowed.test *.wild.test",
		ROWS(names) },
	{ "rebinding", "allowed names that resolve to closed addresses", REBINDING, TEST_NAMES,
		ROWS(rebinding) },
	{ "tls", "hellos with other names, without one, in pieces", STRICT, "allowed.test",
		ROWS(tls) },
	{ .name = NULL },
};
