/* http_guess.c - do these first bytes begin an HTTP request?
 *
 * It is used on ports where any protocol is allowed, so it must not say yes to the first line of
 * another protocol (EHLO, NICK, get of memcached, CONNECT {...} of NATS), and must say yes to
 * whatever a tolerant server would accept as a request: blank lines before it, unknown methods,
 * tabs. The guard then refuses what is unusual. */
#include "gate/relay/http_guard.h"
#include <ctype.h>
#include <strings.h>

/* After this many blanks a server may still find a request. A longer word is no method. */
enum { GUESS_MAX = 1024 };

static bool is_space(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\v' || c == '\f';
}

static bool is_word(uint8_t c)
{
	return isalnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* Whether text begins with word, or word with text; ignores case. */
static bool may_begin(const char *text, size_t len, const char *word)
{
	return !strncasecmp(text, word, MIN(len, strlen(word)));
}

/* The git protocol begins with four digits, a word, a path and a NUL; the path makes it look
 * like a request. */
static bool is_git(const char *word, size_t len)
{
	return len > 8 && !strncmp(word + 4, "git-", 4) && isxdigit((uint8_t)word[0]) &&
	       isxdigit((uint8_t)word[1]) && isxdigit((uint8_t)word[2]) &&
	       isxdigit((uint8_t)word[3]);
}

static enum http_guess guess_git(const char *rest, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!rest[i] || rest[i] == '\r' || rest[i] == '\n')
			return rest[i] ? HTTP_GUESS_YES : HTTP_GUESS_NO;
	return HTTP_GUESS_MORE;
}

/* The text after the first word decides. */
static enum http_guess guess_target(const char *word, size_t word_len, const char *rest, size_t len)
{
	static const char *const schemes[] = { "http:", "https:" };

	if (rest[0] == '/' || rest[0] == '*')
		return is_git(word, word_len) ? guess_git(rest, len) : HTTP_GUESS_YES;
	if (word_len == 7 && !strncasecmp(word, "connect", 7))
		return isalnum((uint8_t)rest[0]) || rest[0] == '[' ? HTTP_GUESS_YES : HTTP_GUESS_NO;
	for (size_t i = 0; i < ARRAY_LEN(schemes); i++)
		if (may_begin(rest, len, schemes[i]))
			return len < strlen(schemes[i]) ? HTTP_GUESS_MORE : HTTP_GUESS_YES;
	return HTTP_GUESS_NO;
}

static enum http_guess guess(const uint8_t *data, size_t len)
{
	const char *text = (const char *)data;
	size_t start = 0, end, rest;

	while (start < len && (is_space(data[start]) || data[start] == '\r' || data[start] == '\n'))
		start++;
	for (end = start; end < len && is_word(data[end]);)
		end++;
	for (rest = end; rest < len && is_space(data[rest]);)
		rest++;
	if (rest < len && (rest == end || start == end))
		return HTTP_GUESS_NO;
	if (rest == len)
		return HTTP_GUESS_MORE;
	return guess_target(text + start, end - start, text + rest, len - rest);
}

enum http_guess http_guess(const uint8_t *data, size_t len)
{
	enum http_guess answer = guess(data, MIN(len, (size_t)GUESS_MAX));

	if (answer != HTTP_GUESS_MORE || len < GUESS_MAX)
		return answer;
	return is_word(data[0]) ? HTTP_GUESS_NO : HTTP_GUESS_YES;
}
