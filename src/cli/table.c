/* table.c - see table.h */
#include "cli/table.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/terminal.h"
#include <assert.h>
#include <stdarg.h>
#include <time.h>

enum { GUTTER = 2, NARROWEST = 6 };

struct cell {
	char *text;
	enum paint paint;
};

struct table {
	const char *const *heads;
	size_t columns;
	int hidden; /* column, or -1 */
	struct cell *cells;
	size_t count;
};

static const char *const paints[] = {
	[PAINT_NONE] = "",
	[PAINT_GOOD] = "\033[32m",
	[PAINT_WARN] = "\033[33m",
	[PAINT_BAD] = "\033[31m",
	[PAINT_DIM] = "\033[2m",
};

struct table *table_new(const char *const *heads)
{
	struct table *table = xnew(struct table);

	table->heads = heads;
	table->hidden = -1;
	while (heads[table->columns])
		table->columns++;
	return table;
}

void table_free(struct table *table)
{
	if (!table)
		return;
	for (size_t i = 0; i < table->count; i++)
		free(table->cells[i].text);
	free(table->cells);
	free(table);
}

void table_hide(struct table *table, int column)
{
	assert(column < 0 || ((size_t)column + 1 < table->columns && column > 0));
	table->hidden = column;
}

void table_add(struct table *table, const char *text)
{
	if ((table->count & (table->count + 1)) == 0) /* full at 0, 1, 3, 7 ... */
		xgrow(table->cells, 2 * (table->count + 1));
	table->cells[table->count++] = (struct cell){ text_printable(text), PAINT_NONE };
}

void table_addf(struct table *table, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	table_add(table, text);
}

void table_paint(struct table *table, enum paint paint)
{
	table->cells[table->count - 1].paint = paint;
}

/* ---- text ------------------------------------------------------------------------------------ */

static size_t rune_len(const char *p)
{
	unsigned char c = (unsigned char)*p;

	return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* Invisible characters that reorder or hide others: a name could look like another one. */
static bool is_hidden(const char *text, size_t len)
{
	static const char *const ranges[][2] = {
		{ "\u061c", "\u061c" },
		{ "\u200b", "\u200b" }, /* not the joiners after it, which scripts need */
		{ "\u200e", "\u200f" },
		{ "\u2028", "\u202e" },
		{ "\u2060", "\u206f" },
		{ "\ufeff", "\ufeff" },
	};

	/* UTF-8 keeps the order of characters. */
	for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
		if (len == strlen(ranges[i][0]) && memcmp(text, ranges[i][0], len) >= 0 &&
			memcmp(text, ranges[i][1], len) <= 0)
			return true;
	return false;
}

char *text_printable(const char *text)
{
	char *out = xstrdup(text), *to = out;

	while (*text) {
		size_t len = strnlen(text, rune_len(text));
		unsigned char first = (unsigned char)text[0], second = (unsigned char)text[len > 1];

		/* C1 controls (U+0080 to U+009F) are escape sequences for some terminals. */
		if (first < ' ' || first == 0x7f || (first == 0xc2 && second < 0xa0) ||
			!text_is_utf8(text, len) || is_hidden(text, len)) {
			*to++ = '?';
			text++;
			continue;
		}
		memmove(to, text, len);
		to += len;
		text += len;
	}
	*to = '\0';
	return out;
}

size_t text_columns(const char *text)
{
	size_t columns = 0;

	for (; *text; text++)
		columns += ((unsigned char)*text & 0xc0) != 0x80;
	return columns;
}

char *age_since(const char *rfc3339, char *out)
{
	struct tm parts = { 0 };
	int64_t ms;

	if (!rfc3339 || !strptime(rfc3339, "%Y-%m-%dT%H:%M:%S", &parts))
		return strcpy(out, "-");
	ms = clock_wall_us() / 1000 - (int64_t)timegm(&parts) * 1000;
	return format_age((uint64_t)MAX(ms, 0), out);
}

/* ---- rendering ------------------------------------------------------------------------------- */

static bool is_right(const struct table *table, size_t column)
{
	return table->heads[column][0] == '>';
}

static void measure(const struct table *table, unsigned width, size_t *widths)
{
	size_t total = GUTTER * (table->columns - 1);

	for (size_t c = 0; c < table->columns; c++)
		widths[c] = text_columns(table->heads[c]) - is_right(table, c);
	for (size_t i = 0; i < table->count; i++)
		widths[i % table->columns] =
			MAX(widths[i % table->columns], text_columns(table->cells[i].text));
	if (table->hidden >= 0) {
		widths[table->hidden] = 0;
		total -= GUTTER;
	}
	for (size_t c = 0; c < table->columns; c++)
		total += widths[c];
	while (width && total > width) {
		size_t widest = 0;

		for (size_t c = 1; c < table->columns; c++)
			if (widths[c] >= widths[widest])
				widest = c;
		if (widths[widest] <= NARROWEST)
			break;
		widths[widest]--;
		total--;
	}
}

static void add_spaces(struct buf *out, size_t count)
{
	while (count--)
		buf_add(out, " ", 1);
}

/* At most width columns of text; a cut text ends with an ellipsis. */
static void add_cut(struct buf *out, const char *text, size_t columns, size_t width)
{
	size_t keep = columns > width ? width - 1 : columns;

	for (; keep; keep--) {
		buf_add(out, text, rune_len(text));
		text += rune_len(text);
	}
	if (columns > width)
		buf_add_str(out, "…");
}

static void add_cell(
	struct buf *out, const char *text, size_t width, bool right, bool last, const char *paint)
{
	size_t columns = text_columns(text), pad = columns < width ? width - columns : 0;

	if (right)
		add_spaces(out, pad);
	buf_add_str(out, paint);
	add_cut(out, text, columns, width);
	if (*paint)
		buf_add_str(out, "\033[0m");
	if (last) {
		while (out->len && buf_head(out)[out->len - 1] == ' ')
			out->len--; /* of cells before an empty one */
		buf_add(out, "\n", 1);
		return;
	}
	add_spaces(out, GUTTER + (right ? 0 : pad));
}

void table_render(const struct table *table, unsigned width, bool colour, struct buf *out)
{
	_cleanup_free_ size_t *widths = xnewn(size_t, table->columns);

	assert(table->columns > 0);
	measure(table, width, widths);
	for (size_t c = 0; c < table->columns; c++)
		if ((int)c != table->hidden)
			add_cell(out, table->heads[c] + is_right(table, c), widths[c],
				is_right(table, c), c + 1 == table->columns,
				colour ? paints[PAINT_DIM] : "");
	for (size_t i = 0; i < table->count; i++) {
		size_t c = i % table->columns;

		if ((int)c == table->hidden)
			continue;
		add_cell(out, table->cells[i].text, widths[c], is_right(table, c),
			c + 1 == table->columns, colour ? paints[table->cells[i].paint] : "");
	}
}

int table_print(struct table *table)
{
	struct buf out = BUF_INIT;

	table_render(table, terminal_width(), terminal_has_colour(STDOUT_FILENO), &out);
	fwrite(buf_head(&out), 1, out.len, stdout);
	buf_done(&out);
	table_free(table);
	return 0;
}
