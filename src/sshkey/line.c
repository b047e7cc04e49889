/* line.c - see line.h */
#include "sshkey/line.h"
#include "base/alloc.h"
#include "base/text.h"
#include "sshkey/sshkey_internal.h"
#include <stdio.h>
#include <time.h>

/* What looks like an option may be anything: no more of it is shown. */
enum { OPTION_SHOWN = 32 };

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* ---- options --------------------------------------------------------------------------------- */

struct option {
	const char *name;
	size_t name_len;
	char value[SOURCES_TEXT_MAX + 1];
	bool has_value;
};

static bool option_is(const struct option *option, const char *name)
{
	return option->name_len == strlen(name) && !strncmp(option->name, name, option->name_len);
}

/* name, name=value or name="value", where \" is a quote. Moves *at behind it. */
static bool next_option(const char **at, struct option *ret)
{
	const char *p = *at;
	size_t len = 0;
	bool quoted;

	ret->name = p;
	ret->name_len = strcspn(p, "=, \t\"");
	p += ret->name_len;
	ret->has_value = *p == '=';
	ret->value[0] = '\0';
	*at = p;
	if (!ret->name_len || !ret->has_value)
		return ret->name_len > 0;
	quoted = *++p == '"';
	for (p += quoted; quoted ? *p && *p != '"' : *p && *p != ',' && !is_blank(*p); p++) {
		if (quoted && p[0] == '\\' && p[1] == '"')
			p++;
		if (len == sizeof ret->value - 1 || *p == '"')
			return false;
		ret->value[len++] = *p;
	}
	ret->value[len] = '\0';
	if (quoted && *p++ != '"')
		return false;
	*at = p;
	return true;
}

/* Whole days, or to the second; in the daemon's time zone, or UTC with a Z at the end. */
static int read_expiry(const char *text, int64_t *ret_us, struct err *err)
{
	size_t digits = strspn(text, "0123456789");
	bool utc = text[digits] == 'Z' || text[digits] == 'z';
	int year, month, day, hour = 0, minute = 0, second = 0;
	struct tm tm = { .tm_isdst = -1 }, asked;
	time_t at;

	if ((digits != 8 && digits != 12 && digits != 14) || text[digits + utc])
		goto wrong;
	if (sscanf(text, "%4d%2d%2d%2d%2d%2d", &year, &month, &day, &hour, &minute, &second) < 3)
		goto wrong;
	tm.tm_year = year - 1900;
	tm.tm_mon = month - 1;
	tm.tm_mday = day;
	tm.tm_hour = hour;
	tm.tm_min = minute;
	tm.tm_sec = second;
	asked = tm;
	at = utc ? timegm(&tm) : mktime(&tm);
	if (at <= 0 || tm.tm_mon != asked.tm_mon || tm.tm_mday != asked.tm_mday ||
		asked.tm_min > 59 || asked.tm_sec > 60)
		goto wrong;
	*ret_us = (int64_t)at * 1000000;
	return 0;
wrong:
	err_set(err, ERR_INVALID, "expiry-time does not understand '%.40s'", text);
	return err_hint(err, "use YYYYMMDD[HHMM[SS]][Z]");
}

static int copy_value(const struct option *option, char *out, size_t size, struct err *err)
{
	if (*option->value && strlen(option->value) < size) {
		strcpy(out, option->value);
		return 0;
	}
	return err_set(err, ERR_INVALID, "the option '%.*s' needs a value of 1 to %zu characters",
		(int)option->name_len, option->name, size - 1);
}

/* pty, no-pty, port-forwarding … */
static bool read_restriction(const struct option *option, struct keyline *line)
{
	static const struct {
		const char *name;
		unsigned bit;
	} known[] = {
		{ "pty", KEYLINE_NO_PTY }, { "port-forwarding", KEYLINE_NO_FORWARDING },
		{ "agent-forwarding", KEYLINE_NO_AGENT }, { "X11-forwarding", KEYLINE_NO_X11 },
		{ "user-rc", 0 }, /* there is none here */
	};
	bool no = option->name_len > 3 && !strncmp(option->name, "no-", 3);

	if (option_is(option, "restrict")) {
		line->restricted = KEYLINE_RESTRICT;
		return true;
	}
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		size_t len = strlen(known[i].name), skip = no ? 3 : 0;

		if (option->name_len - skip != len ||
			strncmp(option->name + skip, known[i].name, len))
			continue;
		if (no)
			line->restricted |= known[i].bit;
		else
			line->restricted &= ~known[i].bit;
		return true;
	}
	return false;
}

static int read_option(const struct option *option, struct keyline *line, struct err *err)
{
	if (option->has_value) {
		if (option_is(option, "from"))
			return copy_value(option, line->sources, sizeof line->sources, err) < 0
				       ? -1
				       : sources_check(line->sources, err);
		if (option_is(option, "box"))
			return copy_value(option, line->box, sizeof line->box, err);
		if (option_is(option, "role"))
			return copy_value(option, line->role, sizeof line->role, err);
		if (option_is(option, "principals"))
			return copy_value(option, line->principals, sizeof line->principals, err);
		if (option_is(option, "expiry-time") || option_is(option, "expires"))
			return read_expiry(option->value, &line->expires_us, err);
	} else if (option_is(option, "cert-authority")) {
		line->is_ca = true;
		return 0;
	} else if (read_restriction(option, line)) {
		return 0;
	}
	err_set(err, ERR_INVALID, "the option '%.*s' is not supported",
		(int)MIN(option->name_len, OPTION_SHOWN), option->name);
	return err_hint(err, "the key is not taken: without its option it could do more than the "
			     "line allows");
}

static int read_options(const char **at, struct keyline *line, struct err *err)
{
	for (;;) {
		struct option option;

		if (!next_option(at, &option))
			return err_set(err, ERR_INVALID, "the options of the key are malformed");
		if (read_option(&option, line, err) < 0)
			return -1;
		if (**at != ',')
			break;
		(*at)++;
	}
	if (!is_blank(**at))
		return err_set(err, ERR_INVALID, "the options of the key are malformed");
	return 0;
}

/* ---- the line -------------------------------------------------------------------------------- */

/* Names of types begin so; options do not. */
static bool is_type(const char *word)
{
	return !strncmp(word, "ssh-", 4) || !strncmp(word, "ecdsa-", 6) || !strncmp(word, "sk-", 3);
}

static bool has_type(const char *line)
{
	for (; *line; line++)
		if (is_blank(line[0]) && is_type(line + 1))
			return true;
	return false;
}

static void skip_blanks(const char **at)
{
	while (is_blank(**at))
		(*at)++;
}

static void copy_comment(const char *text, char *out)
{
	size_t len = 0;

	for (; *text && len < KEYLINE_COMMENT_MAX - 1; text++)
		out[len++] = *text < ' ' || *text > '~' ? '?' : *text;
	while (len && is_blank(out[len - 1]))
		len--;
	out[len] = '\0';
}

static int read_key(const char **at, struct keyline *line, struct err *err)
{
	size_t type_len = strcspn(*at, " \t"), len;
	const char *type = *at;

	*at += type_len;
	skip_blanks(at);
	len = strcspn(*at, " \t");
	if (!len || base64_decode(*at, len, &line->blob, &line->blob_len, NULL) < 0)
		return err_set(err, ERR_INVALID, "the key is not in base64");
	*at += len;
	if (sshkey_read(line->blob, line->blob_len, &line->key, err) < 0)
		return -1;
	if (strlen(line->key.name) != type_len || strncmp(line->key.name, type, type_len))
		return err_set(err, ERR_INVALID, "the key is not of the kind '%.*s'",
			type_len < 40 ? (int)type_len : 40, type);
	return 0;
}

int keyline_check_private(const char *text, struct err *err)
{
	/* PEM and OpenSSH; the second one without its first line; PuTTY. */
	static const char *const private[] = { "PRIVATE KEY-----", "b3BlbnNzaC1rZXktdjE",
		"PuTTY-User-Key-File-", "Private-Lines:" };

	for (size_t i = 0; i < ARRAY_LEN(private); i++)
		if (strstr(text, private[i])) {
			err_set(err, ERR_INVALID, "this is a private key, and was not kept");
			return err_hint(err, "give the public one, the file that ends in .pub");
		}
	return 0;
}

int keyline_check_public(const char *text, struct err *err)
{
	if (keyline_check_private(text, err) < 0)
		return -1;
	if (strstr(text, "-cert-v01@openssh.com")) {
		err_set(err, ERR_INVALID, "this is a certificate, not a key");
		return err_hint(err, "give the key itself; certificates are accepted by their CA, "
				     "see the setting ssh_ca");
	}
	return 0;
}

static int read_line(const char *at, struct keyline *line, struct err *err)
{
	if (strlen(at) > KEYLINE_MAX)
		return err_set(err, ERR_INVALID, "the line is longer than %d bytes", KEYLINE_MAX);
	if (keyline_check_public(at, err) < 0)
		return -1;
	skip_blanks(&at);
	if (!is_type(at)) {
		/* Whatever it is, it is not quoted as an option. */
		if (!has_type(at)) {
			err_set(err, ERR_INVALID, "this is not a line of a public key");
			return err_hint(err, "like 'ssh-ed25519 AAAA… comment'");
		}
		if (read_options(&at, line, err) < 0)
			return -1;
		skip_blanks(&at);
		if (!is_type(at))
			return err_set(err, ERR_INVALID, "this is not a line of a public key");
	}
	if (read_key(&at, line, err) < 0)
		return -1;
	skip_blanks(&at);
	copy_comment(at, line->comment);
	if (*line->principals && !line->is_ca)
		return err_set(err, ERR_INVALID, "principals= is for lines with cert-authority");
	return 0;
}

int keyline_read(const char *text, struct keyline *ret, struct err *err)
{
	*ret = (struct keyline){ 0 };
	if (read_line(text, ret, err) == 0)
		return 0;
	keyline_done(ret);
	return -1;
}

void keyline_done(struct keyline *line)
{
	free(line->blob);
	*line = (struct keyline){ 0 };
}

char *keyline_next(const char **at, unsigned *number)
{
	while (**at) {
		size_t len = strcspn(*at, "\n"), end = len;
		const char *line = *at;

		*at += len + (line[len] == '\n');
		(*number)++;
		while (end && (line[end - 1] == '\r' || is_blank(line[end - 1])))
			end--;
		while (end && is_blank(*line)) {
			line++;
			end--;
		}
		if (end && *line != '#')
			return xstrndup(line, end);
	}
	return NULL;
}
