/* url.c - see url.h */
#include "http/url.h"
#include "base/alloc.h"
#include "base/text.h"

/* Decoded text is never longer, so it is written over itself. */
static int decode(char *text, bool plus_is_space, struct err *err)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		if (*from == '%') {
			int high = text_hex_digit(from[1]);
			int low = high < 0 ? -1 : text_hex_digit(from[2]);

			if (low < 0)
				return err_set(err, ERR_INVALID,
					"bad percent encoding in the request's target");
			if (!high && !low)
				return err_set(
					err, ERR_INVALID, "encoded NUL in the request's target");
			*to++ = (char)(high * 16 + low);
			from += 2;
		} else {
			*to++ = plus_is_space && *from == '+' ? ' ' : *from;
		}
	}
	*to = '\0';
	return 0;
}

static int add_pair(struct url *url, char *text, struct err *err)
{
	char *value = strchr(text, '=');

	if (url->count == URL_PAIRS_MAX)
		return err_set(err, ERR_INVALID, "more than %d query parameters", URL_PAIRS_MAX);
	if (value)
		*value++ = '\0';
	else
		value = text + strlen(text);
	if (decode(text, true, err) < 0 || decode(value, true, err) < 0)
		return -1;
	if ((url->count & (url->count - 1)) == 0)
		xgrow(url->pairs, MAX(4, url->count * 2));
	url->pairs[url->count++] = (struct url_pair){ text, value };
	return 0;
}

static int split_query(struct url *url, char *query, struct err *err)
{
	for (char *next; query; query = next) {
		next = strchr(query, '&');
		if (next)
			*next++ = '\0';
		if (*query && add_pair(url, query, err) < 0)
			return -1;
	}
	return 0;
}

int url_split(char *target, struct url *ret, struct err *err)
{
	struct url url = { .path = target };
	char *query;

	if (*target != '/')
		return err_set(err, ERR_INVALID, "the request's target must begin with '/'");
	for (const char *p = target; *p; p++)
		if (*p <= ' ' || *p >= 0x7f || *p == '#')
			return err_set(err, ERR_INVALID,
				"byte 0x%02x in the request's target must be percent-encoded",
				(unsigned char)*p);
	query = strchr(target, '?');
	if (query)
		*query++ = '\0';
	if (decode(target, false, err) < 0 || split_query(&url, query, err) < 0) {
		url_done(&url);
		return -1;
	}
	*ret = url;
	return 0;
}

void url_done(struct url *url)
{
	free(url->pairs);
	*url = (struct url)URL_INIT;
}

const char *url_query(const struct url *url, const char *key)
{
	for (size_t i = 0; i < url->count; i++)
		if (!strcmp(url->pairs[i].key, key))
			return url->pairs[i].value;
	return NULL;
}
