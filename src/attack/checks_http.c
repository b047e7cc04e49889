/* checks_http.c - requests for other hosts, for what a rule does not name, and those that two
 * servers would read in two ways */
#include "attack/suite.h"
#include "base/alloc.h"

#define STRICT                                                                                 \
	"{\"version\":1,\"preset\":\"none\",\"allow\":[\"allowed.test:80,443,8080,8443\",\"*." \
	"wild.test:80\","                                                                      \
	"{\"name\":\"api.test\",\"ports\":80,\"methods\":[\"GET\"],\"paths\":[\"/v1/\"]}],"    \
	"\"deny\":[{\"name\":\"allowed.test\",\"ports\":80,\"paths\":[\"/secret/\"]}]}"
#define HTTP_80 "203.0.113.10:80 [2001:db8::10]:80"

/* Nothing of the request may arrive. */
#define HTTP(label, ...)                                                                    \
	{                                                                                   \
		.name = label, .words = { "send", "allowed.test", "80", "1", __VA_ARGS__ }, \
		.log = "allowed.test"                                                       \
	}
/* The first request is allowed and may arrive; the second must not. */
#define SECOND(label, ...)                                                                  \
	{                                                                                   \
		.name = label, .words = { "send", "allowed.test", "80", "2", __VA_ARGS__ }, \
		.log = "allowed.test", .may = HTTP_80                                       \
	}
#define API(label, line)                                        \
	{                                                       \
		.name = "api-" label, .words = {                \
			"send",                                 \
			"api.test",                             \
			"80",                                   \
			"1",                                    \
			line "\\r\\nHost: api.test\\r\\n\\r\\n" \
		}                                               \
	}
/* Other spellings of what a deny rule names. */
#define SECRET(label, target) \
	HTTP("denied-" label, "GET " target " HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n")
#define PORT_8080 "203.0.113.10:8080 [2001:db8::10]:8080"
#define GOOD	  "GET /good HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"
#define BAD	  "GET /evil HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"

static const struct check http[] = {
	{ .name = "allowed",
		.flags = CHECK_WORKS,
		.words = { "send", "allowed.test", "80", "1", GOOD },
		.may = HTTP_80 },
	{ .name = "allowed-pipelined",
		.flags = CHECK_WORKS,
		.words = { "send", "allowed.test", "80", "2", GOOD GOOD },
		.may = HTTP_80 },
	{ .name = "allowed-split",
		.flags = CHECK_WORKS,
		.may = HTTP_80,
		.words = { "send", "allowed.test", "80", "1", "GET /good HTT",
			"P/1.1\\r\\nHost: allowed", ".test\\r\\n\\r\\n" } },
	{ .name = "allowed-path",
		.flags = CHECK_WORKS,
		.may = "203.0.113.11:80",
		.words = { "send", "api.test", "80", "1",
			"GET /v1/x HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n" } },
	HTTP("other-host", BAD),
	HTTP("shared-address", "GET /evil HTTP/1.1\\r\\nHost: shared.test\\r\\n\\r\\n"),
	HTTP("no-host", "GET /evil HTTP/1.1\\r\\n\\r\\n"),
	HTTP("two-hosts",
		"GET /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\nHost: evil.test\\r\\n\\r\\n"),
	HTTP("absolute-target", "GET http://evil.test/ HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"),
	HTTP("absolute-target-good-host",
		"GET http://evil.test/ HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"),
	HTTP("absolute-target-other-scheme",
		"GET ftp://evil.test/ HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"),
	HTTP("connect", "CONNECT evil.test:443 HTTP/1.1\\r\\nHost: evil.test:443\\r\\n\\r\\n"),
	HTTP("connect-good-host",
		"CONNECT evil.test:443 HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"),
	HTTP("connect-allowed",
		"CONNECT allowed.test:25 HTTP/1.1\\r\\nHost: allowed.test:25\\r\\n\\r\\nevil"),
	HTTP("length-and-chunked",
		"POST /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\nContent-Length: "
		"4\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n" BAD),
	HTTP("two-lengths", "POST /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\nContent-Length: "
			    "0\\r\\nContent-Length: 50\\r\\n\\r\\n" BAD),
	HTTP("length-list", "POST /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\nContent-Length: 0, "
			    "50\\r\\n\\r\\n" BAD),
	HTTP("length-plus", "POST /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\nContent-Length: "
			    "+4\\r\\n\\r\\nevil"),
	HTTP("length-hex", "POST /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\nContent-Length: "
			   "0x4\\r\\n\\r\\nevil"),
	HTTP("length-huge", "POST /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\nContent-Length: "
			    "18446744073709551620\\r\\n\\r\\nevil"),
	HTTP("other-coding", "POST /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\nTransfer-Encoding: "
			     "xchunked\\r\\n\\r\\n0\\r\\n\\r\\n" BAD),
	HTTP("coding-twice",
		"POST /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\nTransfer-Encoding: "
		"chunked\\r\\nTransfer-Encoding: identity\\r\\n\\r\\n0\\r\\n\\r\\n" BAD),
	HTTP("coding-tab",
		"POST /evil HTTP/1.1\\r\\nHost: "
		"allowed.test\\r\\nTransfer-Encoding:\\t\\x0bchunked\\r\\n\\r\\n0\\r\\n\\r\\n" BAD),
	HTTP("space-before-colon", "GET /evil HTTP/1.1\\r\\nHost : allowed.test\\r\\n\\r\\n"),
	HTTP("folded-line", "GET /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\nX: a\\r\\n Host: "
			    "evil.test\\r\\n\\r\\n"),
	HTTP("bare-line-feeds", "GET /evil HTTP/1.1\\nHost: allowed.test\\n\\n"),
	HTTP("bare-carriage-return",
		"GET /evil HTTP/1.1\\r\\nHost: allowed.test\\rX: evil.test\\r\\n\\r\\n"),
	HTTP("nul-in-header",
		"GET /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\nX: a\\x00b\\r\\n\\r\\n"),
	HTTP("nul-in-target", "GET /evil\\x00/ HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"),
	HTTP("space-in-target", "GET /evil /x HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"),
	HTTP("http-2-preface", "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\nevil"),
	HTTP("http-2-among-upgrades", "GET /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: "
				      "Upgrade, HTTP2-Settings\\r\\nUpgrade: h2c, "
				      "websocket\\r\\nHTTP2-Settings: "
				      "AAMAAABkAAQAAP__\\r\\n\\r\\n"),
	/* It could still become a complete request, so the gate waits for the rest. */
	{ .name = "http-0.9",
		.flags = CHECK_SILENT,
		.words = { "send", "allowed.test", "80", "1", "GET /evil\\r\\n" },
		.log = "allowed.test" },
	HTTP("http-3.0", "GET /evil HTTP/3.0\\r\\nHost: allowed.test\\r\\n\\r\\n"),
	HTTP("leading-garbage", "\\x00GET /evil HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"),
	SECOND("pipelined-other-host", GOOD BAD),
	SECOND("pipelined-other-host-split", GOOD, BAD),
	SECOND("pipelined-connect",
		GOOD "CONNECT evil.test:443 HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"),
	SECOND("behind-a-body", "POST /good HTTP/1.1\\r\\nHost: allowed.test\\r\\nContent-Length: "
				"4\\r\\n\\r\\nbody" BAD),
	SECOND("behind-chunks",
		"POST /good HTTP/1.1\\r\\nHost: allowed.test\\r\\nTransfer-Encoding: "
		"chunked\\r\\n\\r\\n2\\r\\nab\\r\\n0\\r\\n\\r\\n" BAD),
	SECOND("chunk-size-overflow",
		"POST /good HTTP/1.1\\r\\nHost: allowed.test\\r\\nTransfer-Encoding: "
		"chunked\\r\\n\\r\\n10000000000000000\\r\\n\\r\\n" BAD),
	SECOND("chunk-size-sign",
		"POST /good HTTP/1.1\\r\\nHost: allowed.test\\r\\nTransfer-Encoding: "
		"chunked\\r\\n\\r\\n-1\\r\\n\\r\\n" BAD),
	SECOND("chunk-without-line-end",
		"POST /good HTTP/1.1\\r\\nHost: allowed.test\\r\\nTransfer-Encoding: "
		"chunked\\r\\n\\r\\n2\\r\\nabXX0\\r\\n\\r\\n" BAD),
	SECOND("upgrade-then-more",
		"GET /good HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: Upgrade\\r\\nUpgrade: "
		"websocket\\r\\nSec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: "
		"dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n" BAD),
	{ .name = "other-host-on-8080",
		.words = { "send", "allowed.test", "8080", "1", BAD },
		.may = PORT_8080 },
	{ .name = "other-host-on-8080-after-a-pause",
		.words = { "send", "allowed.test", "8080", "1", "GET ", "",
			"/evil HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n" },
		.may = PORT_8080 },
	{ .name = "other-host-on-8080-letter-by-letter",
		.words = { "send", "allowed.test", "8080", "1", "G", "", "E", "", "T", "",
			" /evil HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n" },
		.may = PORT_8080 },
	SECRET("path", "/secret/evil"),
	SECRET("path-parameter", "/secret;a/evil"),
	SECRET("path-escaped-parameter", "/secret%3ba/evil"),
	SECRET("path-escaped-slash", "/secret%2Fevil"),
	SECRET("path-upper-case", "/SECRET/evil"),
	SECRET("path-escaped-letter", "/%73ecret/evil"),
	SECRET("path-dot", "/secret./evil"),
	SECRET("path-this-folder", "/./secret/evil"),
	SECRET("path-two-slashes", "//secret/evil"),
	SECRET("path-backslash", "/secret%5cevil"),
	SECRET("path-long-utf-8", "/%c0%afsecret/evil"),
	SECRET("path-escaped-query", "/secret%3fevil"),
	SECRET("path-fragment", "/secret#evil"),
	SECRET("path-absolute", "http://allowed.test/secret/evil"),
	SECRET("path-without-slash", "/secret"),
	{ .name = "port-not-listed",
		.words = { "connect", "allowed.test", "25" },
		.log = "allowed.test" },
	API("method", "POST /v1/evil HTTP/1.1"),
	API("method-lower-case", "get /v1/evil HTTP/1.1"),
	API("path", "GET /evil HTTP/1.1"),
	API("path-parent", "GET /v1/../evil HTTP/1.1"),
	API("path-escaped-parent", "GET /v1/%2e%2e/evil HTTP/1.1"),
	API("path-escaped-slash", "GET /v1/..%2fevil HTTP/1.1"),
	API("path-double-escape", "GET /v1/%252e%252e/evil HTTP/1.1"),
	API("path-backslash", "GET /v1/..\\\\evil HTTP/1.1"),
	API("path-two-slashes", "GET //v1/evil HTTP/1.1"),
	API("path-prefix", "GET /v1evil HTTP/1.1"),
	API("not-http", "\\x16\\x03\\x01evil"),
	{ .name = "api-pipelined-path",
		.may = "203.0.113.11:80",
		.words = { "send", "api.test", "80", "2",
			"GET /v1/a HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\nGET /evil "
			"HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n" } },
};

const struct group http_groups[] = {
	{ "http", "other hosts, smuggling, CONNECT, pipelining, paths", STRICT,
		"allowed.test api.test", .checks = http, .count = ARRAY_LEN(http) },
	{ .name = NULL },
};
