/* parse.c - see parse.h
 *
 * The head is collected line by line up to its empty line, at most HTTP_HEAD_MAX bytes, and then
 * given to http_parser in one piece, which finds the request line's parts and the headers.
 * Collecting first means that every name and value lies whole in one buffer, and that a slow sender
 * costs no more than a fast one.
 *
 * http_parser as packaged is compiled lenient (HTTP_PARSER_STRICT=0: spaces in header names, bare
 * LF, any byte in targets, folded lines), so what matters is checked here again: line ends and
 * folds before it runs, names, values and the framing headers after. It is not asked where the body
 * ends at all. */
#include "http/parse.h"
#include <ctype.h>
#include <http_parser.h>
#include <strings.h>

/* What http_parser's callbacks collect: offsets into the text, because names must not be cut while
 * it still reads them. */
struct outline {
	const char *base;
	unsigned count;
	bool overflow;
	uint16_t target, target_len;
	struct {
		uint16_t name, name_len, value, value_len;
	} headers[HTTP_HEADERS_MAX];
};

static void refuse(struct http_piece *piece, int status, enum err_kind kind, const char *text)
{
	piece->kind = HTTP_PIECE_BAD;
	piece->status = status;
	err_set(&piece->why, kind, "%s", text);
}

/* ---- http_parser ---------------------------------------------------------------------------- */

static int on_url(http_parser *parser, const char *at, size_t len)
{
	struct outline *outline = parser->data;

	outline->target = (uint16_t)(at - outline->base);
	outline->target_len = (uint16_t)len;
	return 0;
}

static int on_header_field(http_parser *parser, const char *at, size_t len)
{
	struct outline *outline = parser->data;

	if (outline->count == HTTP_HEADERS_MAX) {
		outline->overflow = true;
		return 1;
	}
	outline->headers[outline->count].name = (uint16_t)(at - outline->base);
	outline->headers[outline->count].name_len = (uint16_t)len;
	outline->headers[outline->count].value_len = 0;
	outline->count++;
	return 0;
}

static int on_header_value(http_parser *parser, const char *at, size_t len)
{
	struct outline *outline = parser->data;

	if (!outline->count)
		return 1;
	outline->headers[outline->count - 1].value = (uint16_t)(at - outline->base);
	outline->headers[outline->count - 1].value_len = (uint16_t)len;
	return 0;
}

static int on_headers_complete(http_parser *parser)
{
	http_parser_pause(parser, 1); /* this file parses bodies */
	return 0;
}

static const http_parser_settings settings = {
	.on_url = on_url,
	.on_header_field = on_header_field,
	.on_header_value = on_header_value,
	.on_headers_complete = on_headers_complete,
};

const char *http_status_text(int status)
{
	const char *text = http_status_str((enum http_status)status);

	return *text == '<' ? "Other" : text; /* "<unknown>" */
}

/* ---- checks of a whole head ----------------------------------------------------------------- */

static bool is_token(const char *text)
{
	if (!*text)
		return false;
	for (; *text; text++)
		if (!isalnum((unsigned char)*text) && !strchr("!#$%&'*+-.^_`|~", *text))
			return false;
	return true;
}

static bool is_value(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' ? *text != '\t' : *text == 0x7f)
			return false;
	return true;
}

/* Cuts the text into strings. A NUL inside would end a string early, so the caller checks
 * lengths. */
static bool cut_headers(struct http_head *head, const struct outline *outline, char *text)
{
	head->count = outline->count;
	for (unsigned i = 0; i < outline->count; i++) {
		char *name = text + outline->headers[i].name;
		size_t value_len = outline->headers[i].value_len;
		char *value = text + outline->headers[i].name + outline->headers[i].name_len;

		if (*value != ':')
			return false;
		*value = '\0'; /* where the colon was: also the value of an empty one */
		if (value_len) {
			value = text + outline->headers[i].value;
			while (value_len &&
				(value[value_len - 1] == ' ' || value[value_len - 1] == '\t'))
				value_len--;
			value[value_len] = '\0';
		}
		if (strlen(name) != outline->headers[i].name_len || strlen(value) != value_len ||
			!is_token(name) || !is_value(value))
			return false;
		head->headers[i] = (struct http_header){ name, value };
	}
	return true;
}

static unsigned count_header(const struct http_head *head, const char *name)
{
	unsigned count = 0;

	for (unsigned i = 0; i < head->count; i++)
		count += !strcasecmp(head->headers[i].name, name);
	return count;
}

bool http_parse_length(const char *text, uint64_t *ret)
{
	size_t digits = strspn(text, "0123456789");
	uint64_t value = 0;

	if (!digits || digits > 18 || text[digits])
		return false;
	for (; *text; text++)
		value = value * 10 + (unsigned)(*text - '0');
	*ret = value;
	return true;
}

static void check_framing(struct http_head *head, struct http_piece *piece)
{
	const char *length = http_head_get(head, "Content-Length");
	const char *coding = http_head_get(head, "Transfer-Encoding");
	const char *expect = http_head_get(head, "Expect");

	if (length && coding)
		return refuse(piece, 400, ERR_INVALID, "both Content-Length and Transfer-Encoding");
	if (count_header(head, "Content-Length") > 1 || count_header(head, "Transfer-Encoding") > 1)
		return refuse(
			piece, 400, ERR_INVALID, "repeated Content-Length or Transfer-Encoding");
	if (length && !http_parse_length(length, &head->length))
		return refuse(piece, 400, ERR_INVALID, "Content-Length is not a number");
	if (coding && (strcasecmp(coding, "chunked") || !head->minor))
		return refuse(piece, 501, ERR_UNSUPPORTED,
			"the only transfer coding is chunked, with HTTP/1.1");
	if (count_header(head, "Host") > 1)
		return refuse(piece, 400, ERR_INVALID, "repeated Host");
	if (head->minor && !http_head_get(head, "Host"))
		return refuse(piece, 400, ERR_INVALID, "no Host header");
	if (expect && head->minor && strcasecmp(expect, "100-continue"))
		return refuse(piece, 417, ERR_UNSUPPORTED, "the only expectation is 100-continue");
	head->chunked = coding != NULL;
	head->expects_continue = expect && head->minor && http_head_has_body(head);
	head->keep_alive = head->minor && !http_head_has_token(head, "Connection", "close");
}

static void check_head(struct http_parse *parse, const http_parser *parser,
	const struct outline *outline, struct http_piece *piece)
{
	struct http_head *head = &parse->head;
	char *text = (char *)buf_head(&parse->text);

	if (parser->http_major != 1 || parser->http_minor > 1)
		return refuse(piece, 505, ERR_UNSUPPORTED, "the HTTP version must be 1.1 or 1.0");
	if (parser->method == HTTP_CONNECT)
		return refuse(piece, 501, ERR_UNSUPPORTED, "CONNECT is not served");
	if (!cut_headers(head, outline, text))
		return refuse(piece, 400, ERR_INVALID, "malformed header");
	head->method = http_method_str((enum http_method)parser->method);
	head->minor = parser->http_minor;
	head->target = text + outline->target;
	head->target[outline->target_len] = '\0';
	if (!outline->target_len || strlen(head->target) != outline->target_len)
		return refuse(piece, 400, ERR_INVALID, "malformed request line");
	check_framing(head, piece);
}

static void parse_head(struct http_parse *parse, struct http_piece *piece)
{
	struct outline outline = { .base = (const char *)buf_head(&parse->text) };
	http_parser parser;
	size_t used;

	parse->head = (struct http_head){ 0 };
	http_parser_init(&parser, HTTP_REQUEST);
	parser.data = &outline;
	used = http_parser_execute(&parser, &settings, outline.base, parse->text.len);
	if (outline.overflow)
		return refuse(piece, 431, ERR_TOO_LARGE, "more than 64 headers");
	/* http_parser must have paused at the last byte of the head; otherwise it ended elsewhere
	 * than we think. */
	if (HTTP_PARSER_ERRNO(&parser) != HPE_PAUSED || used != parse->text.len - 1) {
		refuse(piece, 400, ERR_INVALID, http_errno_description(HTTP_PARSER_ERRNO(&parser)));
		err_wrap(&piece->why, "malformed request");
		return;
	}
	check_head(parse, &parser, &outline, piece);
	if (piece->kind == HTTP_PIECE_BAD)
		return;
	piece->kind = HTTP_PIECE_HEAD;
	parse->state = HTTP_PARSE_BODY;
	parse->left = parse->head.length;
	parse->chunked = (struct chunked)CHUNKED_INIT;
}

/* ---- collecting the head -------------------------------------------------------------------- */

/* Scans the lines that were not scanned yet. True when the empty line that ends the head is among
 * them; the text then ends there. */
static bool scan_lines(struct http_parse *parse, struct http_piece *piece)
{
	const char *text = (const char *)buf_head(&parse->text);
	const char *end = text + parse->text.len;

	for (;;) {
		const char *line = text + parse->scanned;
		const char *lf = memchr(line, '\n', (size_t)(end - line));

		if (line < end && parse->scanned && (*line == ' ' || *line == '\t')) {
			refuse(piece, 400, ERR_INVALID, "folded header lines are not accepted");
			return false;
		}
		if (!lf)
			return false;
		if (lf == line || lf[-1] != '\r') {
			refuse(piece, 400, ERR_INVALID, "a line must end with CR LF");
			return false;
		}
		parse->scanned = (size_t)(lf + 1 - text);
		if (lf - line == 1)
			return true;
	}
}

enum { EMPTY_LINES_MAX = 4 }; /* bytes of CR and LF */

/* Some clients send an empty line after a body; one or two are skipped. */
static size_t skip_empty_lines(struct http_parse *parse, const char *data, size_t len)
{
	size_t used = 0;

	while (used < len && (data[used] == '\r' || data[used] == '\n'))
		used++;
	parse->skipped += used;
	return used;
}

static size_t take_head(
	struct http_parse *parse, const char *data, size_t len, struct http_piece *piece)
{
	size_t used = 0;
	size_t before, take;

	if (!parse->text.len) {
		used = skip_empty_lines(parse, data, len);
		/* Refused without waiting: a TLS hello or a stream of garbage has no line that
		 * ends. */
		if (parse->skipped > EMPTY_LINES_MAX ||
			(used < len && (data[used] < 'A' || data[used] > 'Z'))) {
			refuse(piece, 400, ERR_INVALID, "this is not an HTTP request");
			return used;
		}
	}
	before = parse->text.len;
	take = MIN(len - used, HTTP_HEAD_MAX + 1 - MIN(before + parse->skipped, HTTP_HEAD_MAX));
	buf_add(&parse->text, data + used, take);
	if (parse->text.len && scan_lines(parse, piece)) {
		used += parse->scanned - before;
		parse->text.len = parse->scanned; /* the rest is body and stays in the input */
		if (parse->scanned + parse->skipped <= HTTP_HEAD_MAX) {
			parse_head(parse, piece);
			return used;
		}
	} else {
		used += take;
	}
	if (piece->kind != HTTP_PIECE_BAD && parse->text.len + parse->skipped > HTTP_HEAD_MAX)
		refuse(piece, 431, ERR_TOO_LARGE, "the request's head is larger than 16 KiB");
	return used;
}

/* ---- the body ------------------------------------------------------------------------------- */

static size_t end_request(struct http_parse *parse, struct http_piece *piece, size_t used)
{
	piece->kind = HTTP_PIECE_END;
	parse->state = HTTP_PARSE_HEAD;
	buf_eat(&parse->text,
		parse->text.len); /* keeps the memory: the head stays readable until the next
				   * request */
	parse->scanned = parse->skipped = 0;
	return used;
}

static size_t take_counted(
	struct http_parse *parse, const char *data, size_t len, struct http_piece *piece)
{
	if (!parse->left)
		return end_request(parse, piece, 0);
	if (!len)
		return 0;
	piece->kind = HTTP_PIECE_BODY;
	piece->data = data;
	piece->len = MIN(len, parse->left);
	parse->left -= piece->len;
	return piece->len;
}

static size_t take_chunked(
	struct http_parse *parse, const char *data, size_t len, struct http_piece *piece)
{
	size_t used = chunked_take(&parse->chunked, data, len, &piece->data, &piece->len);

	if (parse->chunked.state == CHUNKED_BAD)
		refuse(piece, 400, ERR_INVALID, "malformed chunked body");
	else if (parse->chunked.state == CHUNKED_END)
		return end_request(parse, piece, used);
	else if (piece->len)
		piece->kind = HTTP_PIECE_BODY;
	return used;
}

/* ---- public --------------------------------------------------------------------------------- */

size_t http_parse_next(
	struct http_parse *parse, const char *data, size_t len, struct http_piece *ret)
{
	size_t used = 0;

	ret->kind = HTTP_PIECE_MORE;
	ret->data = NULL;
	ret->len = 0;
	switch (parse->state) {
	case HTTP_PARSE_HEAD:
		used = take_head(parse, data, len, ret);
		break;
	case HTTP_PARSE_BODY:
		used = parse->head.chunked ? take_chunked(parse, data, len, ret)
					   : take_counted(parse, data, len, ret);
		break;
	case HTTP_PARSE_BAD:
		refuse(ret, 400, ERR_INVALID, "malformed request");
		break;
	}
	if (ret->kind == HTTP_PIECE_BAD)
		parse->state = HTTP_PARSE_BAD;
	return used;
}

void http_parse_done(struct http_parse *parse)
{
	buf_done(&parse->text);
	*parse = (struct http_parse)HTTP_PARSE_INIT;
}

bool http_parse_in_head(const struct http_parse *parse)
{
	return parse->state == HTTP_PARSE_HEAD && parse->text.len > 0;
}

const char *http_head_get(const struct http_head *head, const char *name)
{
	for (unsigned i = 0; i < head->count; i++)
		if (!strcasecmp(head->headers[i].name, name))
			return head->headers[i].value;
	return NULL;
}

static bool list_has(const char *list, const char *token)
{
	size_t len = strlen(token);

	while (*list) {
		size_t item;

		list += strspn(list, " \t,");
		item = strcspn(list, " \t,");
		if (item == len && !strncasecmp(list, token, len))
			return true;
		list += item;
	}
	return false;
}

bool http_head_has_token(const struct http_head *head, const char *name, const char *token)
{
	for (unsigned i = 0; i < head->count; i++)
		if (!strcasecmp(head->headers[i].name, name) &&
			list_has(head->headers[i].value, token))
			return true;
	return false;
}

bool http_head_has_body(const struct http_head *head)
{
	return head->chunked || head->length;
}
