/* page.c - our own responses in place of the box's: a small page for browsers, the API's error
 * format for programs */
#include "ingress/ingress_internal.h"
#include "base/json.h"
#include <strings.h>

static const char style[] =
	"<style>:root{color-scheme:light dark}body{font:16px/1.5 "
	"system-ui,sans-serif;max-width:34rem;"
	"margin:15vh auto 0;padding:0 1.5rem}h1{font-size:1.4rem;margin:0 0 "
	".5rem}code{background:#8882;"
	"padding:.15em .4em;border-radius:.3em}input{font:inherit;width:100%;box-sizing:border-box;"
	"padding:.5rem;margin:.5rem 0}button{font:inherit;padding:.4rem 1.2rem}.bad{color:#c33}"
	"small{opacity:.7}</style>";

void page_add_escaped(struct buf *out, const char *text)
{
	static const struct {
		char byte;
		const char *text;
	} escapes[] = { { '&', "&amp;" }, { '<', "&lt;" }, { '>', "&gt;" }, { '"', "&quot;" },
		{ '\'', "&#39;" } };

	for (; *text; text++) {
		const char *instead = NULL;

		for (size_t i = 0; i < ARRAY_LEN(escapes); i++)
			if (*text == escapes[i].byte)
				instead = escapes[i].text;
		if (instead)
			buf_add_str(out, instead);
		else
			buf_add(out, text, 1);
	}
}

/* Browsers ask for text/html when they load a page; programs do not. */
bool page_wants_html(const struct http_request *request)
{
	const char *accept = http_request_header(request, "Accept");

	return accept && strcasestr(accept, "text/html");
}

void page_reply_html(struct http_request *request, int status, const char *title, struct buf *body)
{
	struct buf out = BUF_INIT;

	http_reply_header(request, "Cache-Control", "no-store");
	http_reply_header(request, "Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
		"frame-ancestors 'none'; base-uri 'none'");
	http_reply_header(request, "X-Content-Type-Options", "nosniff");
	/* Not no-referrer: with it the Origin of a form would be "null". */
	http_reply_header(request, "Referrer-Policy", "same-origin");
	buf_add_str(&out, "<!doctype html><html lang=en><meta charset=utf-8>"
			  "<meta name=viewport content=\"width=device-width\"><title>");
	page_add_escaped(&out, title);
	buf_add_str(&out, "</title>");
	buf_add_str(&out, style);
	buf_add_str(&out, "<h1>");
	page_add_escaped(&out, title);
	buf_add_str(&out, "</h1>");
	buf_add(&out, buf_head(body), body->len);
	http_reply(request, status, "text/html; charset=utf-8", buf_head(&out), out.len);
	buf_done(&out);
}

static void reply_json(struct http_request *request, const struct page *page)
{
	http_reply_header(request, "Cache-Control", "no-store");
	http_reply_json(request, page->status,
		json_pack("{s:{s:s,s:s,s:s}}", "error", "code", err_kind_code(page->kind),
			"message", page->text, "hint", page->hint));
}

void page_reply(struct http_request *request, const struct page *page)
{
	struct buf body = BUF_INIT;

	/* distinguishes it from a 502 of the box */
	http_reply_header(request, "X-Boxyard", "true");
	if (!page_wants_html(request))
		return reply_json(request, page);
	buf_add_str(&body, "<p>");
	page_add_escaped(&body, page->text);
	buf_add_str(&body, "</p>");
	if (*page->hint) {
		buf_add_str(&body, "<p><code>");
		page_add_escaped(&body, page->hint);
		buf_add_str(&body, "</code></p>");
	}
	page_reply_html(request, page->status, page->title, &body);
	buf_done(&body);
}
