/* log.h - one event a line: a fixed sentence, then fields
 *
 *   log_info("exec finished", kv_str("box", box->id), kv_int("exit", code));
 *   time=2026-01-02T03:04:05.678Z level=info msg="exec finished" box=b7f2 exit=0
 *
 * Keys are the same everywhere: box, exec, request, peer. Secrets and bodies are never fields. */
#pragma once
#include "base/err.h"
#include <stdint.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

enum log_field_kind { LOG_FIELD_END, LOG_FIELD_STR, LOG_FIELD_INT, LOG_FIELD_MS };

struct log_field {
	enum log_field_kind kind;
	const char *key;
	const char *text;
	int64_t number;
};

#define kv_str(k, v) ((struct log_field){ LOG_FIELD_STR, (k), (v), 0 })
#define kv_int(k, v) ((struct log_field){ LOG_FIELD_INT, (k), NULL, (int64_t)(v) })
#define kv_ms(k, us) \
	((struct log_field){ LOG_FIELD_MS, (k), NULL, (int64_t)(us) }) /* microseconds */
#define kv_err(e) ((struct log_field){ LOG_FIELD_STR, "error", (e)->message, 0 })

void log_open(int fd, enum log_level lowest); /* the default: stderr, level info */
int log_level_from_name(const char *name);    /* -1 when unknown */
void log_write(enum log_level level, const char *msg, const struct log_field *fields);

#define log_at(level, msg, ...)             \
	log_write((level), (msg),           \
		(const struct log_field[]){ \
			__VA_ARGS__ __VA_OPT__(, ){ LOG_FIELD_END, 0, 0, 0 } })
#define log_debug(msg, ...) log_at(LOG_LEVEL_DEBUG, msg __VA_OPT__(, ) __VA_ARGS__)
#define log_info(msg, ...)  log_at(LOG_LEVEL_INFO, msg __VA_OPT__(, ) __VA_ARGS__)
#define log_warn(msg, ...)  log_at(LOG_LEVEL_WARN, msg __VA_OPT__(, ) __VA_ARGS__)
#define log_error(msg, ...) log_at(LOG_LEVEL_ERROR, msg __VA_OPT__(, ) __VA_ARGS__)
