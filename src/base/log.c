/* log.c - logfmt lines, each written by one write(), so that lines of several processes do not
 * mix */
#include "base/log.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include <stdio.h>

static int log_fd = 2;
static enum log_level log_lowest = LOG_LEVEL_INFO;

static const char *const level_names[] = {
	[LOG_LEVEL_DEBUG] = "debug",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_WARN] = "warn",
	[LOG_LEVEL_ERROR] = "error",
};

void log_open(int fd, enum log_level lowest)
{
	log_fd = fd;
	log_lowest = lowest;
}

int log_level_from_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(level_names); i++)
		if (!strcmp(level_names[i], name))
			return (int)i;
	return -1;
}

static void add_value(struct buf *line, const char *text)
{
	bool plain = *text != '\0';

	for (const char *p = text; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == '"' || *p == '=' || *p == '\\' || *p == 0x7f)
			plain = false;
	if (plain) {
		buf_add_str(line, text);
		return;
	}
	buf_add_str(line, "\"");
	for (const char *p = text; *p; p++) {
		unsigned char c = (unsigned char)*p;

		if (c == '"' || c == '\\')
			buf_addf(line, "\\%c", c);
		else if (c < ' ' || c == 0x7f)
			buf_addf(line, "\\x%02x", c);
		else
			buf_add(line, p, 1);
	}
	buf_add_str(line, "\"");
}

void log_write(enum log_level level, const char *msg, const struct log_field *fields)
{
	struct buf line = BUF_INIT;
	char when[CLOCK_RFC3339_MAX];

	if (level < log_lowest)
		return;
	buf_addf(&line, "time=%s level=%s msg=", clock_rfc3339(clock_wall_us(), when),
		level_names[level]);
	add_value(&line, msg);
	for (const struct log_field *f = fields; f->kind != LOG_FIELD_END; f++) {
		buf_addf(&line, " %s=", f->key);
		if (f->kind == LOG_FIELD_STR)
			add_value(&line, f->text ? f->text : "");
		else if (f->kind == LOG_FIELD_MS)
			buf_addf(&line, "%.1fms", (double)f->number / 1000.0);
		else
			buf_addf(&line, "%lld", (long long)f->number);
	}
	buf_add_str(&line, "\n");
	if (write(log_fd, buf_head(&line), line.len) < 0) {
		/* A failed write to the log cannot be reported anywhere. */
	}
	buf_done(&line);
}
