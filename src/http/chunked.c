/* chunked.c - see chunked.h
 *
 * http_parser could do this, but the packaged library is compiled lenient: it accepts any two bytes
 * as the CRLF after a chunk. Request smuggling begins where two parties disagree about the end of a
 * body. */
#include "http/chunked.h"
#include "base/alloc.h"
#include "base/text.h"

enum { SIZE_DIGITS_MAX = 15, EXTENSION_MAX = 256, TRAILERS_MAX = 4096 };

static bool is_line_text(char c)
{
	return (unsigned char)c >= ' ' ? c != 0x7f : c == '\t';
}

static enum chunked_state take_size(struct chunked *chunked, char c)
{
	int value = text_hex_digit(c);

	if (value >= 0) {
		if (chunked->digits++ == SIZE_DIGITS_MAX)
			return CHUNKED_BAD;
		chunked->left = chunked->left * 16 + (unsigned)value;
		return CHUNKED_SIZE_MORE;
	}
	if (!chunked->digits)
		return CHUNKED_BAD;
	chunked->overhead = 0;
	return c == '\r' ? CHUNKED_SIZE_LF : c == ';' ? CHUNKED_EXTENSION : CHUNKED_BAD;
}

/* A line that is skipped: after is the state that expects its LF. */
static enum chunked_state take_line(
	struct chunked *chunked, char c, unsigned max, enum chunked_state after)
{
	if (c == '\r')
		return after;
	if (!is_line_text(c) || chunked->overhead++ == max)
		return CHUNKED_BAD;
	if (chunked->trailers && after == CHUNKED_TRAILER_LF)
		buf_add(chunked->trailers, &c, 1);
	return chunked->state;
}

static enum chunked_state take_trailer_end(struct chunked *chunked, char c)
{
	if (c != '\n')
		return CHUNKED_BAD;
	if (chunked->trailers)
		buf_add(chunked->trailers, "\r\n", 2);
	return CHUNKED_TRAILER;
}

static enum chunked_state take_size_end(struct chunked *chunked, char c)
{
	if (c != '\n')
		return CHUNKED_BAD;
	chunked->digits = 0;
	chunked->overhead = 0;
	return chunked->left ? CHUNKED_DATA : CHUNKED_TRAILER;
}

static enum chunked_state take_trailer_start(struct chunked *chunked, char c)
{
	if (c == '\r')
		return CHUNKED_END_LF;
	if (c == ' ' || c == '\t')
		return CHUNKED_BAD;
	chunked->state = CHUNKED_TRAILER_LINE;
	return take_line(chunked, c, TRAILERS_MAX, CHUNKED_TRAILER_LF);
}

static enum chunked_state take_byte(struct chunked *chunked, char c)
{
	switch (chunked->state) {
	case CHUNKED_SIZE:
	case CHUNKED_SIZE_MORE:
		return take_size(chunked, c);
	case CHUNKED_EXTENSION:
		return take_line(chunked, c, EXTENSION_MAX, CHUNKED_SIZE_LF);
	case CHUNKED_SIZE_LF:
		return take_size_end(chunked, c);
	case CHUNKED_DATA_CR:
		return c == '\r' ? CHUNKED_DATA_LF : CHUNKED_BAD;
	case CHUNKED_DATA_LF:
		return c == '\n' ? CHUNKED_SIZE : CHUNKED_BAD;
	case CHUNKED_TRAILER:
		return take_trailer_start(chunked, c);
	case CHUNKED_TRAILER_LINE:
		return take_line(chunked, c, TRAILERS_MAX, CHUNKED_TRAILER_LF);
	case CHUNKED_TRAILER_LF:
		return take_trailer_end(chunked, c);
	case CHUNKED_END_LF:
		return c == '\n' ? CHUNKED_END : CHUNKED_BAD;
	case CHUNKED_DATA:
	case CHUNKED_END:
	case CHUNKED_BAD:
		break;
	}
	return CHUNKED_BAD;
}

size_t chunked_take(struct chunked *chunked, const char *data, size_t len, const char **ret_data,
	size_t *ret_len)
{
	size_t used = 0;

	*ret_data = NULL;
	*ret_len = 0;
	while (used < len && chunked->state < CHUNKED_END) {
		if (chunked->state != CHUNKED_DATA) {
			chunked->state = take_byte(chunked, data[used++]);
			continue;
		}
		*ret_data = data + used;
		*ret_len = MIN(len - used, chunked->left);
		chunked->left -= *ret_len;
		if (!chunked->left)
			chunked->state = CHUNKED_DATA_CR;
		return used + *ret_len;
	}
	return used;
}
