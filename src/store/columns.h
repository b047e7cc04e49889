/* columns.h - a row of a table as a struct: one list of columns serves insert, update and read, so
 * that they agree */
#pragma once
#include <sqlite3.h>
#include <stddef.h>

enum column_kind { COLUMN_TEXT, COLUMN_U64, COLUMN_I64, COLUMN_U32, COLUMN_BOOL };

struct column {
	enum column_kind kind;
	size_t at; /* offset of the field: char *, uint64_t, int64_t, uint32_t, bool */
};

/* Binds the columns in the table's order, from ?1 on. */
void columns_bind(sqlite3_stmt *stmt, const struct column *columns, size_t count, const void *row);
/* Strings are copied and belong to the row. */
void columns_read(sqlite3_stmt *stmt, const struct column *columns, size_t count, void *row);
/* columns_free frees the strings of a row; columns_copy replaces the strings of a row that was
 * copied byte by byte with copies. */
void columns_free(const struct column *columns, size_t count, void *row);
void columns_copy(const struct column *columns, size_t count, void *row);
