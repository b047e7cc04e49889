/* answer.c - see answer.h
 *
 * The head is collected up to its empty line, then cut into lines in place. Nothing is repaired:
 * a line without CR, a folded line, a space before the colon, a control byte, two lengths, or a
 * length together with a coding end the parsing. */
#include "ingress/answer.h"
#include "http/parse.h"
#include <ctype.h>
#include <stdio.h>
#include <strings.h>

void answer_reset(struct answer *answer, bool to_head, bool upgrade)
{
	struct buf text = answer->text, trailers = answer->trailers;

	buf_eat(&text, text.len);
	buf_eat(&trailers, trailers.len);
	answer->text = text;
	answer->trailers = trailers;
	answer->to_head = to_head;
	answer->upgrade = upgrade;
	answer->state = ANSWER_IN_HEAD;
	answer->scanned = 0;
	answer->interims = 0;
	answer->count = 0;
	answer->chunked = (struct chunked)CHUNKED_INIT;
}

void answer_done(struct answer *answer)
{
	buf_done(&answer->text);
	buf_done(&answer->trailers);
}

static void refuse(struct answer *answer, struct answer_piece *piece, const char *why)
{
	answer->state = ANSWER_IS_BAD;
	piece->kind = ANSWER_BAD;
	piece->why = why;
}

bool answer_name_is_good(const char *name, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)name[i]) &&
			(!name[i] || !strchr("!#$%&'*+-.^_`|~", name[i])))
			return false;
	return len > 0;
}

bool answer_value_is_good(const char *value, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)value[i] < ' ' ? value[i] != '\t' : value[i] == 0x7f)
			return false;
	return true;
}

const char *answer_get(const struct answer *answer, const char *name)
{
	for (unsigned i = 0; i < answer->count; i++)
		if (!strcasecmp(answer->headers[i].name, name))
			return answer->headers[i].value;
	return NULL;
}

/* ---- the head ------------------------------------------------------------------------------- */

/* Parses "HTTP/1.1 200 OK", without its line end. */
static const char *read_status(struct answer *answer, char *line, size_t len)
{
	if (len < 12 || memcmp(line, "HTTP/1.", 7) || (line[7] != '0' && line[7] != '1') ||
		line[8] != ' ' || !isdigit((unsigned char)line[9]) ||
		!isdigit((unsigned char)line[10]) || !isdigit((unsigned char)line[11]) ||
		(len > 12 && line[12] != ' '))
		return "malformed status line";
	if (!answer_value_is_good(line, len))
		return "control byte in the status line";
	answer->minor = (unsigned)(line[7] - '0');
	answer->status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
	answer->reason = line + MIN(len, 13);
	line[len] = '\0';
	if (answer->status < 100 || answer->status > 599)
		return "status out of range";
	return NULL;
}

static const char *read_header(struct answer *answer, char *line, size_t len)
{
	char *colon = memchr(line, ':', len);
	char *value, *end = line + len;

	if (answer->count == ANSWER_HEADERS_MAX)
		return "more than 128 headers";
	if (!colon || !answer_name_is_good(line, (size_t)(colon - line)))
		return "malformed header name";
	value = colon + 1;
	while (value < end && (*value == ' ' || *value == '\t'))
		value++;
	while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	if (!answer_value_is_good(value, (size_t)(end - value)))
		return "control byte in a header";
	*colon = *end = '\0';
	answer->headers[answer->count++] = (struct answer_header){ line, value };
	return NULL;
}

static const char *read_lines(struct answer *answer)
{
	char *line = (char *)buf_head(&answer->text);
	char *end = line + answer->text.len - 2; /* the empty line */
	bool first = true;
	const char *why = NULL;

	answer->count = 0;
	for (char *next; !why && line < end; line = next, first = false) {
		char *lf = memchr(line, '\n', (size_t)(end - line));

		next = lf + 1;
		why = first ? read_status(answer, line, (size_t)(lf - 1 - line))
			    : read_header(answer, line, (size_t)(lf - 1 - line));
	}
	return first ? "no status line" : why;
}

static bool has_token(const struct answer *answer, const char *name, const char *token)
{
	size_t len = strlen(token);

	for (unsigned i = 0; i < answer->count; i++) {
		const char *list = answer->headers[i].value;

		if (strcasecmp(answer->headers[i].name, name))
			continue;
		while (*list) {
			size_t item;

			list += strspn(list, " \t,");
			item = strcspn(list, " \t,");
			if (item == len && !strncasecmp(list, token, len))
				return true;
			list += item;
		}
	}
	return false;
}

static unsigned count_of(const struct answer *answer, const char *name)
{
	unsigned count = 0;

	for (unsigned i = 0; i < answer->count; i++)
		count += !strcasecmp(answer->headers[i].name, name);
	return count;
}

/* Determines where the body ends (RFC 9112, 6.3), and refuses what that lets recipients guess. */
static const char *read_framing(struct answer *answer)
{
	const char *length = answer_get(answer, "Content-Length");
	const char *coding = answer_get(answer, "Transfer-Encoding");

	if (length && coding)
		return "both Content-Length and Transfer-Encoding";
	if (count_of(answer, "Content-Length") > 1 || count_of(answer, "Transfer-Encoding") > 1)
		return "repeated Content-Length or Transfer-Encoding";
	if (coding && (strcasecmp(coding, "chunked") || !answer->minor))
		return "a transfer coding other than chunked";
	answer->has_length = length != NULL;
	answer->length = 0;
	if (length && !http_parse_length(length, &answer->length))
		return "Content-Length is not a number";
	answer->keep = answer->minor && !has_token(answer, "Connection", "close");
	answer->left = 0;
	if (answer->to_head || answer->status == 204 || answer->status == 304) {
		answer->body = BODY_NONE_AT_ALL;
	} else if (coding) {
		answer->body = BODY_CHUNKED;
		answer->chunked.trailers = &answer->trailers;
	} else if (length) {
		answer->body = BODY_COUNTED;
		answer->left = answer->length;
	} else {
		answer->body = BODY_UNTIL_CLOSE;
		answer->keep = false;
	}
	return NULL;
}

static void end_head(struct answer *answer, struct answer_piece *piece)
{
	const char *why = read_lines(answer);

	if (!why)
		why = read_framing(answer);
	if (!why && answer->status == 101 && (!answer->upgrade || !answer->minor))
		why = "a change of protocol that nobody asked for";
	if (!why && answer->status < 200 && answer->status != 101 &&
		answer->interims++ == ANSWER_INTERIM_MAX)
		why = "too many interim answers";
	if (why)
		return refuse(answer, piece, why);
	if (answer->status < 200 && answer->status != 101) {
		buf_eat(&answer->text, answer->text.len);
		answer->scanned = 0;
		return;
	}
	piece->kind = ANSWER_HEAD;
	answer->state = answer->status == 101 ? ANSWER_IS_OVER : ANSWER_IN_BODY;
}

/* Scans the new lines; true when the empty line is among them, which then ends the text. */
static bool scan_lines(struct answer *answer, struct answer_piece *piece)
{
	const char *text = (const char *)buf_head(&answer->text);
	const char *end = text + answer->text.len;

	for (;;) {
		const char *line = text + answer->scanned;
		const char *lf = memchr(line, '\n', (size_t)(end - line));

		if (line < end && answer->scanned && (*line == ' ' || *line == '\t')) {
			refuse(answer, piece, "a folded header line");
			return false;
		}
		if (!lf)
			return false;
		if (lf == line || lf[-1] != '\r') {
			refuse(answer, piece, "a line that does not end with CR LF");
			return false;
		}
		answer->scanned = (size_t)(lf + 1 - text);
		if (lf - line == 1)
			return true;
	}
}

static size_t take_head(
	struct answer *answer, const char *data, size_t len, struct answer_piece *piece)
{
	size_t before = answer->text.len;
	size_t take = MIN(len, ANSWER_HEAD_MAX + 1 - before);

	/* Checked early: what is not HTTP may never send a line end. */
	if (len && !before && *data != 'H') {
		refuse(answer, piece, "this is not HTTP");
		return 0;
	}
	buf_add(&answer->text, data, take);
	if (answer->text.len && scan_lines(answer, piece)) {
		take = answer->scanned - before;
		answer->text.len = answer->scanned;
		if (answer->scanned <= ANSWER_HEAD_MAX)
			end_head(answer, piece);
	}
	if (piece->kind == ANSWER_MORE && answer->text.len > ANSWER_HEAD_MAX)
		refuse(answer, piece, "the head is larger than 32 KiB");
	return take;
}

/* ---- the body ------------------------------------------------------------------------------- */

static size_t end_body(struct answer *answer, struct answer_piece *piece, size_t used)
{
	answer->state = ANSWER_IS_OVER;
	piece->kind = ANSWER_END;
	return used;
}

static size_t take_plain(struct answer *answer, const char *data, size_t len, uint64_t most,
	struct answer_piece *piece)
{
	if (!len)
		return 0;
	piece->kind = ANSWER_BODY;
	piece->data = data;
	piece->len = MIN(len, most);
	if (answer->body == BODY_COUNTED)
		answer->left -= piece->len;
	return piece->len;
}

static size_t take_chunked(
	struct answer *answer, const char *data, size_t len, struct answer_piece *piece)
{
	size_t used = chunked_take(&answer->chunked, data, len, &piece->data, &piece->len);

	if (answer->chunked.state == CHUNKED_BAD)
		refuse(answer, piece, "malformed chunked body");
	else if (answer->chunked.state == CHUNKED_END)
		return end_body(answer, piece, used);
	else if (piece->len)
		piece->kind = ANSWER_BODY;
	return used;
}

static size_t take_body(
	struct answer *answer, const char *data, size_t len, struct answer_piece *piece)
{
	switch (answer->body) {
	case BODY_CHUNKED:
		return take_chunked(answer, data, len, piece);
	case BODY_UNTIL_CLOSE:
		return take_plain(answer, data, len, UINT64_MAX, piece);
	case BODY_COUNTED:
		if (answer->left)
			return take_plain(answer, data, len, answer->left, piece);
		break;
	case BODY_NONE_AT_ALL:
		break;
	}
	return end_body(answer, piece, 0);
}

/* ---- public --------------------------------------------------------------------------------- */

size_t answer_next(struct answer *answer, const char *data, size_t len, struct answer_piece *ret)
{
	size_t used = 0;

	*ret = (struct answer_piece){ .kind = ANSWER_MORE };
	switch (answer->state) {
	case ANSWER_IN_HEAD:
		/* Interim responses are skipped here. */
		do
			used += take_head(answer, data + used, len - used, ret);
		while (used < len && ret->kind == ANSWER_MORE && !answer->text.len);
		return used;
	case ANSWER_IN_BODY:
		return take_body(answer, data, len, ret);
	case ANSWER_IS_OVER:
	case ANSWER_IS_BAD:
		refuse(answer, ret, "bytes after the end of the answer");
		break;
	}
	return 0;
}

bool answer_ends_by_close(const struct answer *answer)
{
	return answer->state == ANSWER_IN_BODY && answer->body == BODY_UNTIL_CLOSE;
}

bool answer_is_untouched(const struct answer *answer)
{
	return answer->state == ANSWER_IN_HEAD && !answer->text.len && !answer->interims;
}
