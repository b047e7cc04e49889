/* login.c - who may use a private port
 *
 * Programs send a token of scope exec (Authorization: Bearer, or Box-Token when the application
 * uses Authorization itself). Browsers get a page that asks for a token, and then a cookie:
 *
 * 	EXPIRY.TOKEN-ID.HMAC(key, host, box, EXPIRY, TOKEN-ID)
 *
 * It is valid for this host and this box only (a later box of the same name has another id), for
 * twelve hours, and as long as the token is: revoking a token ends its logins. The cookie is
 * HttpOnly and belongs to the host. It is SameSite, so other sites cannot use it. Browsers treat
 * other boxes below the same domain as the same site: therefore a request that changes
 * something, and every upgrade, is refused if its Origin is not this host.
 *
 * A login code, in a link made by `box url --login`, gives the same cookie: it is valid once,
 * and the browser is redirected away from the link.
 *
 * Neither cookie nor token nor code ever reaches the box: headers.c removes them, and the paths
 * below /.boxyard/ are ours. */
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "ingress/ingress_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <strings.h>

#define OWN_PATHS  "/.boxyard/"
#define LOGIN_PATH OWN_PATHS "login"
#define CODE_PATH  LOGIN_PATH "?code="
#define KEY_FILE   "ingress.key"

enum {
	LOGIN_SECONDS = 12 * 3600,
	FORM_MAX = 8192,
	NEXT_MAX = 2048,
};

/* ---- the key -------------------------------------------------------------------------------- */

int login_open(struct ingress *ingress, const char *home, struct err *err)
{
	_cleanup_close_ int dir = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ char *text = NULL;
	size_t len = 0;

	if (dir < 0)
		return err_sys(err, errno, "open '%s'", home);
	if (file_read(dir, KEY_FILE, SHA256_SIZE, &text, &len, err) == 0 && len == SHA256_SIZE) {
		memcpy(ingress->key, text, SHA256_SIZE);
		return 0;
	}
	if (err->kind && err->errno_value != ENOENT)
		return err_wrap(err, "the key of logins");
	err_clear(err);
	random_bytes(ingress->key, SHA256_SIZE);
	return file_write_atomic(dir, KEY_FILE, ingress->key, SHA256_SIZE, 0600, err);
}

/* ---- cookies -------------------------------------------------------------------------------- */

static bool is_tls(const struct http_request *request)
{
	return http_request_transport(request) == HTTP_TRANSPORT_TLS;
}

static bool sign(const struct ingress *ingress, const struct aim *aim, const char *expiry,
	const char *token, char mac[SHA256_HEX + 1])
{
	char text[HOST_MAX + 160];
	int len = snprintf(text, sizeof text, "login\n%s\n%s\n%s\n%s", aim->host.name, aim->box.id,
		expiry, token);

	if (len <= 0 || (size_t)len >= sizeof text)
		return false;
	sha256_sign(ingress->key, text, (size_t)len, mac);
	return true;
}

struct cookie_check {
	const struct ingress *ingress;
	const struct aim *aim;
	char *token; /* receives the id of its token */
};

static bool cookie_is_good(const char *value, size_t len, void *arg)
{
	const struct cookie_check *check = arg;
	char text[160], mac[SHA256_HEX + 1];
	char *expiry = text, *token, *given;

	if (len >= sizeof text)
		return false;
	memcpy(text, value, len);
	text[len] = '\0';
	token = strchr(expiry, '.');
	given = token ? strchr(token + 1, '.') : NULL;
	if (!given || strlen(given + 1) != SHA256_HEX)
		return false;
	*token++ = *given++ = '\0';
	if (!sign(check->ingress, check->aim, expiry, token, mac) ||
		!sha256_equal(given, mac, SHA256_HEX))
		return false;
	/* The signature is ours, so the content is what we wrote. */
	snprintf(check->token, INGRESS_TOKEN_ID_MAX, "%s", token);
	return strtoll(expiry, NULL, 10) > clock_wall_us() / 1000000 &&
	       check->ingress->ops.has_token(check->aim->box.id, token, check->ingress->arg);
}

static void set_cookie(const struct ingress *ingress, struct http_request *request,
	const struct aim *aim, const char *token)
{
	char expiry[24], mac[SHA256_HEX + 1], text[320];

	snprintf(expiry, sizeof expiry, "%lld",
		(long long)clock_wall_us() / 1000000 + LOGIN_SECONDS);
	if (!sign(ingress, aim, expiry, token, mac))
		return;
	snprintf(text, sizeof text, "%s=%s.%s.%s; Path=/; Max-Age=%d; HttpOnly; SameSite=Lax%s",
		is_tls(request) ? LOGIN_COOKIE_SECURE : LOGIN_COOKIE, expiry, token, mac,
		LOGIN_SECONDS, is_tls(request) ? "; Secure" : "");
	http_reply_header(request, "Set-Cookie", text);
}

static void reply_logged_in(struct ingress *ingress, struct http_request *request,
	const struct aim *aim, const char *token, const char *next)
{
	set_cookie(ingress, request, aim, token);
	http_reply_header(request, "Cache-Control", "no-store");
	http_reply_header(request, "Referrer-Policy", "no-referrer");
	http_reply_header(request, "Location", next);
	http_reply(request, 303, "text/plain", "", 0);
}

/* ---- checks --------------------------------------------------------------------------------- */

/* Browsers send the origin of the page that makes a request. */
static bool origin_is_own(const struct http_request *request)
{
	const char *origin = http_request_header(request, "Origin");
	const char *host = http_request_header(request, "Host");
	const char *rest = NULL;

	if (!origin)
		return true;
	/* (A proxy in front of us that terminates TLS may use plain HTTP.) */
	if (!strncasecmp(origin, "http://", 7) && !is_tls(request))
		rest = origin + 7;
	else if (!strncasecmp(origin, "https://", 8))
		rest = origin + 8;
	return rest && host && !strcasecmp(rest, host);
}

static bool changes_nothing(const struct http_request *request)
{
	const char *method = http_request_method(request);

	return (!strcmp(method, "GET") || !strcmp(method, "HEAD") || !strcmp(method, "OPTIONS")) &&
	       !http_request_header(request, "Upgrade");
}

static void refuse_token(struct http_request *request, const struct err *err)
{
	if (err->kind == ERR_UNAUTHORIZED)
		http_reply_header(request, "WWW-Authenticate", "Bearer");
	page_reply(request, &(struct page){ .status = err_kind_http_status(err->kind),
				    .kind = err->kind,
				    .title = "No entry",
				    .text = err->message,
				    .hint = err->hint });
}

/* ---- the page ------------------------------------------------------------------------------- */

/* Allows a redirect back to a path of this host only. */
static bool is_good_next(const char *next)
{
	size_t len = strlen(next);

	if (next[0] != '/' || next[1] == '/' || next[1] == '\\' || len > NEXT_MAX ||
		text_has_prefix(next, OWN_PATHS))
		return false;
	for (; *next; next++)
		if ((unsigned char)*next <= ' ' || (unsigned char)*next >= 0x7f || *next == '\\')
			return false;
	return true;
}

static void reply_form(
	struct http_request *request, const struct aim *aim, const char *next, const char *problem)
{
	struct buf body = BUF_INIT;
	char title[128];

	snprintf(title, sizeof title, "Port %u of %s is private", aim->port, aim->box.name);
	http_reply_header(request, "X-Boxyard", "true");
	http_reply_header(request, "WWW-Authenticate", "Bearer");
	if (*problem) {
		buf_add_str(&body, "<p class=bad>");
		page_add_escaped(&body, problem);
		buf_add_str(&body, "</p>");
	}
	buf_add_str(&body,
		"<form method=post action=\"" LOGIN_PATH "\"><label>A token of scope "
		"<code>exec</code>:<input type=password name=token autocomplete=off autofocus "
		"required></label><input type=hidden name=next value=\"");
	page_add_escaped(&body, next);
	buf_add_str(&body, "\"><button>Log in</button></form><p><small>Or without one: <code>box "
			   "url ");
	page_add_escaped(&body, aim->box.name);
	buf_addf(&body,
		" %u --login</code> makes a link that logs you in. <code>box token create NAME "
		"--scope exec</code> makes a token.</small></p>",
		aim->port);
	page_reply_html(request, 401, title, &body);
	buf_done(&body);
}

static void refuse(struct http_request *request, const struct aim *aim)
{
	const struct http_head *head = http_request_head(request);
	char text[160], hint[160];

	if (page_wants_html(request))
		return reply_form(request, aim,
			!strcmp(head->method, "GET") && is_good_next(head->target) ? head->target
										   : "/",
			"");
	http_reply_header(request, "WWW-Authenticate", "Bearer");
	snprintf(text, sizeof text, "port %u of box '%s' is private", aim->port, aim->box.name);
	snprintf(hint, sizeof hint,
		"send Authorization: Bearer TOKEN; for a browser: box url %s %u --login",
		aim->box.name, aim->port);
	page_reply(request, &(struct page){ .status = 401,
				    .kind = ERR_UNAUTHORIZED,
				    .title = "No entry",
				    .text = text,
				    .hint = hint });
}

bool login_check(struct ingress *ingress, struct http_request *request, struct aim *aim)
{
	const struct http_head *head = http_request_head(request);
	const char *token = headers_token(head);
	struct err err = ERR_INIT;

	if (token) {
		if (ingress->ops.check_token(aim->box.id, http_request_peer(request), token,
			    aim->token, &err, ingress->arg) == 0)
			return true;
		refuse_token(request, &err);
		return false;
	}
	if (!headers_each_login(head, is_tls(request) ? LOGIN_COOKIE_SECURE : LOGIN_COOKIE,
		    cookie_is_good, &(struct cookie_check){ ingress, aim, aim->token })) {
		refuse(request, aim);
		return false;
	}
	if (origin_is_own(request) || changes_nothing(request))
		return true;
	page_reply(request, &(struct page){ .status = 403,
				    .kind = ERR_FORBIDDEN,
				    .title = "No entry",
				    .text = "this request comes from the page of another place",
				    .hint = "" });
	return false;
}

/* ---- our own paths -------------------------------------------------------------------------- */

bool login_is_own_path(const struct http_request *request)
{
	return text_has_prefix(http_request_head(request)->target, OWN_PATHS);
}

/* The value of a key in a form's body, decoded; NULL when it is missing or malformed. Yours to
 * free. */
static char *form_value(const char *body, const char *key)
{
	size_t key_len = strlen(key);

	while (*body) {
		size_t len = strcspn(body, "&");
		struct buf out = BUF_INIT;
		char *value;

		if (len <= key_len || strncmp(body, key, key_len) || body[key_len] != '=') {
			body += len + (body[len] == '&');
			continue;
		}
		for (const char *p = body + key_len + 1; p < body + len; p++) {
			char c = *p == '+' ? ' ' : *p;

			if (c == '%') {
				int high = text_hex_digit(p[1]),
				    low = high < 0 ? -1 : text_hex_digit(p[2]);

				if (low < 0 || !(high | low)) {
					buf_done(&out);
					return NULL;
				}
				c = (char)(high * 16 + low);
				p += 2;
			}
			buf_add(&out, &c, 1);
		}
		value = xstrdup(buf_str(&out));
		buf_done(&out);
		return value;
	}
	return NULL;
}

struct login {
	struct ingress *ingress;
	struct aim aim;
};

static void login_gone(struct http_request *request, void *arg)
{
	free(arg);
}

static void on_form(struct http_request *request, const char *body, size_t len, void *arg)
{
	_cleanup_free_ struct login *login = arg;
	struct ingress *ingress = login->ingress;
	_cleanup_free_ char *token = strlen(body) == len ? form_value(body, "token") : NULL;
	_cleanup_free_ char *next = token ? form_value(body, "next") : NULL;
	const char *back = next && is_good_next(next) ? next : "/";
	char id[INGRESS_TOKEN_ID_MAX];
	struct err err = ERR_INIT;

	http_request_on_gone(request, NULL, NULL);
	if (!token)
		return reply_form(request, &login->aim, back, "Enter a token.");
	if (ingress->ops.check_token(login->aim.box.id, http_request_peer(request), token, id, &err,
		    ingress->arg) < 0)
		return reply_form(request, &login->aim, back,
			err.kind == ERR_LIMIT ? "Too many wrong tokens; wait a few seconds."
					      : err.message);
	reply_logged_in(ingress, request, &login->aim, id, back);
}

/* A browser that only prefetches the link must not use the code up. */
static bool looks_ahead(const struct http_request *request)
{
	const char *purpose = http_request_header(request, "Sec-Purpose");

	if (!purpose)
		purpose = http_request_header(request, "Purpose");
	return purpose && strcasestr(purpose, "prefetch");
}

static void answer_code(
	struct ingress *ingress, struct http_request *request, const struct aim *aim)
{
	const char *code = http_request_head(request)->target + strlen(CODE_PATH);
	char token[INGRESS_TOKEN_ID_MAX];

	if (looks_ahead(request))
		return page_reply(
			request, &(struct page){ .status = 403,
					 .kind = ERR_FORBIDDEN,
					 .title = "No entry",
					 .text = "this link works once, when it is opened",
					 .hint = "" });
	if (ingress->ops.take_code(aim->box.id, aim->host.name, code, token, ingress->arg))
		return reply_logged_in(ingress, request, aim, token, "/");
	reply_form(request, aim, "/",
		ingress->ops.strike(http_request_peer(request), ingress->arg)
			? "Too many wrong links; wait a few seconds."
			: "This link was used already, or is too old.");
}

void login_answer(struct ingress *ingress, struct http_request *request, const struct aim *aim)
{
	const struct http_head *head = http_request_head(request);
	struct login *login;

	if (!strcmp(head->target, LOGIN_PATH) && !strcmp(head->method, "POST") &&
		origin_is_own(request)) {
		login = xnew(struct login);
		login->ingress = ingress;
		login->aim = *aim;
		http_request_on_gone(request, login_gone, login);
		return http_request_read_body(request, FORM_MAX, on_form, login);
	}
	if (text_has_prefix(head->target, CODE_PATH) && !strcmp(head->method, "GET"))
		return answer_code(ingress, request, aim);
	if (!strcmp(head->target, LOGIN_PATH) && !strcmp(head->method, "GET"))
		return reply_form(request, aim, "/", "");
	page_reply(request, &(struct page){ .status = 404,
				    .kind = ERR_NOT_FOUND,
				    .title = "Nothing here",
				    .text = "paths below " OWN_PATHS " do not lead into the box",
				    .hint = "" });
}
