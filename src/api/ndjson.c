/* ndjson.c - lines of a streamed answer
 *
 * Output of programs is most of the traffic here, so its lines are written by hand: one pass over
 * the bytes checks that they are UTF-8 and escapes them. Other bytes are sent as base64. A frame
 * may begin or end in the middle of a valid character; only those few bytes become lines of base64,
 * and the rest of the frame stays readable. */
#include "api/api_internal.h"
#include "base/clock.h"
#include "base/text.h"
#include <inttypes.h>

enum { ESCAPE_MAX = 6 }; /* a byte becomes at most \u00XX */

/* 0: as it is; 1: escaped; 2: begins or continues a longer character, or is NUL (which JSON readers
 * refuse). */
static const uint8_t byte_class[256] = {
	[0] = 2,
	[1 ... 0x1f] = 1,
	['"'] = 1,
	['\\'] = 1,
	[0x80 ... 0xff] = 2,
};

static char *escape_byte(char *to, uint8_t c)
{
	static const char short_names[] = {
		['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'
	};
	static const char digits[] = "0123456789abcdef";

	*to++ = '\\';
	if (c == '"' || c == '\\') {
		*to++ = (char)c;
	} else if (c < sizeof short_names && short_names[c]) {
		*to++ = short_names[c];
	} else {
		memcpy(to, "u00", 3);
		to[3] = digits[c >> 4];
		to[4] = digits[c & 15];
		to += 5;
	}
	return to;
}

/* Length of the well-formed character at p; 0: none. */
static size_t rune_len(const uint8_t *p, const uint8_t *end)
{
	size_t len = *p >= 0xc2 && *p <= 0xdf	? 2
		     : *p >= 0xe0 && *p <= 0xef ? 3
		     : *p >= 0xf0 && *p <= 0xf4 ? 4
						: 0;

	if (!len || (size_t)(end - p) < len || !text_is_utf8((const char *)p, len))
		return 0;
	return len;
}

/* Escapes all of it into to; NULL when it is not UTF-8. */
static char *escape(char *to, const uint8_t *p, const uint8_t *end)
{
	while (p < end) {
		const uint8_t *run = p;
		size_t len;

		while (p < end && byte_class[*p] == 0)
			p++;
		memcpy(to, run, (size_t)(p - run));
		to += p - run;
		if (p == end)
			break;
		if (byte_class[*p] == 1) {
			to = escape_byte(to, *p++);
			continue;
		}
		len = rune_len(p, end);
		if (!len)
			return NULL;
		memcpy(to, p, len);
		to += len;
		p += len;
	}
	return to;
}

static char *encode_base64(char *to, const uint8_t *p, size_t len)
{
	static const char alphabet[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t i = 0;

	for (; i + 3 <= len; i += 3, to += 4) {
		uint32_t word = (uint32_t)p[i] << 16 | (uint32_t)p[i + 1] << 8 | p[i + 2];

		to[0] = alphabet[word >> 18];
		to[1] = alphabet[word >> 12 & 63];
		to[2] = alphabet[word >> 6 & 63];
		to[3] = alphabet[word & 63];
	}
	if (i < len) {
		uint32_t word = (uint32_t)p[i] << 16 | (i + 1 < len ? (uint32_t)p[i + 1] << 8 : 0);

		*to++ = alphabet[word >> 18];
		*to++ = alphabet[word >> 12 & 63];
		*to++ = i + 1 < len ? alphabet[word >> 6 & 63] : '=';
		*to++ = '=';
	}
	return to;
}

/* Figures come from inside the box; JSON readers accept no integers above 63 bits. */
static uint64_t cut(uint64_t value)
{
	return MIN(value, (uint64_t)INT64_MAX);
}

/* The end of the year 9999: a longer year does not fit. */
#define TIME_MAX UINT64_C(253402300799999999)

static void output_head(struct buf *out, enum exec_stream stream, uint64_t offset, uint64_t time_us,
	const char *key)
{
	char time[CLOCK_RFC3339_MAX];

	buf_addf(out, "{\"type\":\"output\",\"stream\":\"%s\",\"offset\":%" PRIu64 ",",
		stream == EXEC_STDERR ? "stderr" : "stdout", cut(offset));
	if (time_us)
		buf_addf(out, "\"time\":\"%s\",",
			clock_rfc3339((int64_t)MIN(time_us, TIME_MAX), time));
	buf_addf(out, "\"%s\":\"", key);
}

static void output_base64(struct buf *out, enum exec_stream stream, uint64_t offset,
	uint64_t time_us, const uint8_t *p, size_t len)
{
	char *start, *end;

	if (!len)
		return;
	output_head(out, stream, offset, time_us, "data_b64");
	start = (char *)buf_room(out, len / 3 * 4 + 4);
	end = encode_base64(start, p, len);
	buf_grew(out, (size_t)(end - start));
	buf_add(out, "\"}\n", 3);
}

/* False, with nothing appended, when it is not UTF-8. */
static bool output_text(struct buf *out, enum exec_stream stream, uint64_t offset, uint64_t time_us,
	const uint8_t *p, size_t len)
{
	size_t before = out->len;
	char *start, *end;

	output_head(out, stream, offset, time_us, "data");
	start = (char *)buf_room(out, len * ESCAPE_MAX);
	end = escape(start, p, p + len);
	if (!end) {
		out->len = before;
		return false;
	}
	buf_grew(out, (size_t)(end - start));
	buf_add(out, "\"}\n", 3);
	return true;
}

static size_t count_continuation(const uint8_t *p, size_t len)
{
	size_t count = 0;

	while (count < 3 && count < len && (p[count] & 0xc0) == 0x80)
		count++;
	return count;
}

/* Counts the bytes at the end that begin a character but do not complete it. */
static size_t count_unfinished(const uint8_t *p, size_t len)
{
	for (size_t back = 1; back <= 3 && back <= len; back++) {
		uint8_t c = p[len - back];
		size_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 0;

		if (want)
			return want > back ? back : 0;
		if (c < 0x80)
			return 0;
	}
	return 0;
}

void ndjson_output_at(struct buf *out, enum exec_stream stream, uint64_t offset, uint64_t time_us,
	const void *data, size_t len)
{
	const uint8_t *p = data;
	size_t head, tail, before = out->len;

	if (!len || output_text(out, stream, offset, time_us, p, len))
		return;
	head = count_continuation(p, len);
	tail = count_unfinished(p + head, len - head);
	if ((head || tail) && len > head + tail) {
		output_base64(out, stream, offset, time_us, p, head);
		if (output_text(out, stream, offset + head, time_us, p + head, len - head - tail)) {
			output_base64(
				out, stream, offset + len - tail, time_us, p + len - tail, tail);
			return;
		}
		out->len = before;
	}
	output_base64(out, stream, offset, time_us, p, len);
}

void ndjson_output(
	struct buf *out, enum exec_stream stream, uint64_t offset, const void *data, size_t len)
{
	ndjson_output_at(out, stream, offset, 0, data, len);
}

void ndjson_gap(struct buf *out, uint64_t offset, uint64_t lost)
{
	buf_addf(out, "{\"type\":\"gap\",\"offset\":%" PRIu64 ",\"lost\":%" PRIu64 "}\n",
		cut(offset), cut(lost));
}

void ndjson_exit(struct buf *out, const struct exec_end *end)
{
	char signal[16] = "null";

	if (end->signal)
		snprintf(signal, sizeof signal, "%u", end->signal);
	buf_addf(out, "{\"type\":\"exit\",\"exit_code\":%u,\"signal\":%s,\"reason\":\"%s\",",
		end->exit_code, signal, exec_reason_name(end->reason));
	buf_addf(out,
		"\"duration_ms\":%" PRIu64 ".%03u,\"cpu_us\":%" PRIu64 ",\"newest_offset\":%" PRIu64
		"}\n",
		end->duration_us / 1000, (unsigned)(end->duration_us % 1000), cut(end->cpu_us),
		cut(end->newest));
}

/* ---- any value ------------------------------------------------------------------------------ */

/* jansson's own writer checks for loops and formats each number with printf: 500 boxes take it 5
 * ms. Values made here have no loops. */

static void add_text(struct buf *out, const char *text, size_t len)
{
	char *start = (char *)buf_room(out, len * ESCAPE_MAX + 2);
	char *end;

	*start = '"';
	end = escape(start + 1, (const uint8_t *)text, (const uint8_t *)text + len);
	/* jansson strings are always UTF-8; only a NUL inside could stop it. */
	if (!end)
		end = start + 1;
	*end++ = '"';
	buf_grew(out, (size_t)(end - start));
}

static void add_integer(struct buf *out, json_int_t value)
{
	char digits[24];
	char *at = digits + sizeof digits;
	uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;

	do
		*--at = (char)('0' + rest % 10);
	while (rest /= 10);
	if (value < 0)
		*--at = '-';
	buf_add(out, at, (size_t)(digits + sizeof digits - at));
}

/* With a decimal point, so that readers see a real number. */
static void add_real(struct buf *out, double value)
{
	char text[40];

	snprintf(text, sizeof text, "%.15g", value);
	if (strtod(text, NULL) != value)
		snprintf(text, sizeof text, "%.17g", value);
	buf_add_str(out, text);
	if (!strpbrk(text, ".e"))
		buf_add(out, ".0", 2);
}

static void add_value(struct buf *out, const json_t *value);

static void add_object(struct buf *out, json_t *object)
{
	const char *key, *comma = "{";
	json_t *item;

	json_object_foreach (object, key, item) {
		buf_add(out, comma, 1);
		add_text(out, key, strlen(key));
		buf_add(out, ":", 1);
		add_value(out, item);
		comma = ",";
	}
	buf_add_str(out, *comma == '{' ? "{}" : "}");
}

static void add_array(struct buf *out, const json_t *array)
{
	json_t *item;
	size_t i;

	buf_add(out, "[", 1);
	json_array_foreach (array, i, item) {
		if (i)
			buf_add(out, ",", 1);
		add_value(out, item);
	}
	buf_add(out, "]", 1);
}

static void add_value(struct buf *out, const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return add_object(out, (json_t *)value);
	case JSON_ARRAY:
		return add_array(out, value);
	case JSON_STRING:
		return add_text(out, json_string_value(value), json_string_length(value));
	case JSON_INTEGER:
		return add_integer(out, json_integer_value(value));
	case JSON_REAL:
		return add_real(out, json_real_value(value));
	case JSON_TRUE:
		return buf_add(out, "true", 4);
	case JSON_FALSE:
		return buf_add(out, "false", 5);
	case JSON_NULL:
		return buf_add(out, "null", 4);
	}
}

void ndjson_add(struct buf *out, const json_t *value)
{
	add_value(out, value);
	buf_add(out, "\n", 1);
}

/* ---- programs ------------------------------------------------------------------------------- */

json_t *exec_json(const struct exec_info *info)
{
	bool over = info->reason != EXEC_RUNNING;
	bool known = over && info->reason != EXEC_UNKNOWN;
	json_t *argv = json_array();
	json_t *exec = json_object();

	for (size_t i = 0; info->argv && info->argv[i]; i++)
		json_array_append_new(argv, json_from_box(info->argv[i]));
	json_object_set_new(exec, "id", json_from_box(info->id));
	json_object_set_new(exec, "pid", json_integer(info->pid));
	json_object_set_new(exec, "argv", argv);
	json_object_set_new(exec, "tty", json_boolean(info->tty));
	json_object_set_new(exec, "state", json_string(over ? "exited" : "running"));
	json_object_set_new(exec, "exit_code", known ? json_integer(info->exit_code) : json_null());
	json_object_set_new(
		exec, "signal", known && info->signal ? json_integer(info->signal) : json_null());
	json_object_set_new(exec, "reason", json_string(exec_reason_name(info->reason)));
	json_object_set_new(exec, "started_at", json_time_us(info->started_us));
	json_object_set_new(exec, "ended_at", json_time_us(info->ended_us));
	json_object_set_new(exec, "cpu_us", json_from_u64(info->cpu_us));
	json_object_set_new(exec, "oldest_offset", json_from_u64(info->oldest));
	json_object_set_new(exec, "newest_offset", json_from_u64(info->newest));
	return exec;
}

void ndjson_start(struct buf *out, json_t *exec)
{
	_cleanup_json_ json_t *line = json_object();

	json_object_set_new(line, "type", json_string("start"));
	json_object_set_new(line, "exec", exec);
	ndjson_add(out, line);
}

void ndjson_error(struct buf *out, const struct err *err)
{
	_cleanup_json_ json_t *line = json_object();
	json_t *error = json_object();

	json_object_set_new(error, "code", json_string(err_kind_code(err->kind)));
	json_object_set_new(error, "message", json_from_box(err->message));
	json_object_set_new(error, "hint", json_from_box(err->hint));
	json_object_set_new(line, "type", json_string("error"));
	json_object_set_new(line, "error", error);
	ndjson_add(out, line);
}
