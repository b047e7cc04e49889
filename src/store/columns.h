/* columns.h - a table's row as a struct: one list of its columns serves insert, update and read, so
 * that they agree */
#pragma once
#include <sqlite3.h>
#include <stddef.h>

enum column_kind { COLUMN_TEXT, COLUMN_U64, COLUMN_I64, COLUMN_U32, COLUMN_BOOL };

struct column {
	enum column_kind kind;
	size_t at; /* offset of the field: char *, uint64_t, int64_t, uint32_t, bool */
};

/* In the table's order, from ?1 on. */
void columns_bind(sqlite3_stmt *stmt, const struct column *columns, size_t count, const void *row);
/* Strings are copied and belong to the row. */
void columns_read(sqlite3_stmt *stmt, const struct column *columns, size_t count, void *row);
/* Frees the strings of a row; replaces those of a row that was copied as it stands by copies. */
void columns_free(const struct column *columns, size_t count, void *row);
void columns_copy(const struct column *columns, size_t count, void *row);
