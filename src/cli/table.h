/* table.h - aligned columns for people, and text from outside made safe for a terminal
 *
 * Cells are added row by row. Columns are as wide as their widest cell; where the terminal is
 * narrower the widest columns are cut. Pure but for table_print. */
#pragma once
#include "base/buf.h"
#include <stdbool.h>
#include <stdio.h>

struct table;

enum paint { PAINT_NONE, PAINT_GOOD, PAINT_WARN, PAINT_BAD, PAINT_DIM };

/* heads: NULL-terminated; one that begins with '>' heads a column of numbers, aligned to the
 * right. */
struct table *table_new(const char *const *heads);
void table_free(struct table *table); /* accepts NULL */
/* Hides a column, neither the first nor the last one. -1: none. */
void table_hide(struct table *table, int column);
void table_add(struct table *table, const char *text);
void table_addf(struct table *table, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void table_paint(struct table *table, enum paint paint); /* the cell added last */
/* width 0: nothing is cut. */
void table_render(const struct table *table, unsigned width, bool colour, struct buf *out);
/* Prints to stdout as its terminal allows. Frees the table; returns 0. */
int table_print(struct table *table);

/* Replaces control characters, escape sequences, invalid UTF-8 and direction marks by '?'. Yours to
 * free. */
char *text_printable(const char *text);
/* Columns text takes: one per character. */
size_t text_columns(const char *text);
/* "12s", "5m": since an RFC 3339 time of the API; "-" when it is none. out needs 16 bytes. */
char *age_since(const char *rfc3339, char *out);
