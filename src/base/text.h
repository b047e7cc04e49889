/* text.h - parsers for what people type: names, sizes, durations, numbers; strict and bounded
 *
 * Each parser fails with ERR_INVALID and a message that says what is allowed; `what` names the
 * thing in that message ("--memory"). */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NAME_MAX_LEN = 63 };

/* A DNS label: 1 to 63 of a-z 0-9 and '-', starting with a letter, not ending with '-'. */
int name_check(const char *what, const char *text, struct err *err);
/* A whole decimal number from lowest to highest. */
int parse_u64(const char *what, const char *text, uint64_t lowest, uint64_t highest, uint64_t *ret,
	struct err *err);
/* The value of a hexadecimal digit; -1 for any other character. */
int text_hex_digit(char c);
/* "512M", "1.5G", "4096", "64KiB": powers of 1024; suffixes K M G T with optional B or iB. */
int parse_size(const char *what, const char *text, uint64_t lowest, uint64_t highest, uint64_t *ret,
	struct err *err);
/* "1500ms", "30s", "5m", "2h", "1d"; a bare number is in seconds. The result is in milliseconds. */
int parse_duration(const char *what, const char *text, uint64_t lowest_ms, uint64_t highest_ms,
	uint64_t *ret_ms, struct err *err);
/* "2026-01-02T03:04:05Z", or how long ago: "10m". The result is in microseconds since 1970. */
int parse_moment(const char *what, const char *text, uint64_t *ret_us, struct err *err);
/* A number of CPUs in thousandths: "2", "0.5", "1.25". */
int parse_cpus(const char *what, const char *text, uint64_t *ret_milli, struct err *err);
/* KEY=VALUE where KEY is [A-Za-z_][A-Za-z0-9_]*. */
int env_check(const char *what, const char *text, struct err *err);
/* A label key=value: key is 1 to 63 of [a-zA-Z0-9._/-], value up to 255 printable bytes. */
int label_check(const char *what, const char *text, struct err *err);

/* A size for people: "1.5G", "340M", "12K", "900". out needs 16 bytes. Returns out. */
char *format_size(uint64_t bytes, char *out);
/* An age for people: "12s", "5m", "3h", "2d". out needs 16 bytes. Returns out. */
char *format_age(uint64_t ms, char *out);

bool text_is_utf8(const char *data, size_t len); /* valid UTF-8, no NUL */
bool text_has_prefix(const char *text, const char *prefix);

/* Base64 (RFC 4648, with padding). The result is yours to free; *ret_len may be NULL for encode. */
char *base64_encode(const void *data, size_t len);
int base64_decode(const char *text, size_t len, uint8_t **ret, size_t *ret_len, struct err *err);

/* len random lower-case letters and digits, the first one a letter; out needs len + 1 bytes. */
void random_id(char *out, size_t len);
void random_bytes(void *out, size_t len);
