/* columns.c - see columns.h */
#include "store/columns.h"
#include "base/alloc.h"
#include "store/store_internal.h"

void columns_bind(sqlite3_stmt *stmt, const struct column *columns, size_t count, const void *row)
{
	for (size_t i = 0; i < count; i++) {
		const void *field = (const char *)row + columns[i].at;
		int at = (int)i + 1;

		switch (columns[i].kind) {
		case COLUMN_TEXT:
			store_bind_text(stmt, at, *(char *const *)field);
			break;
		case COLUMN_U64:
			sqlite3_bind_int64(stmt, at, (sqlite3_int64) * (const uint64_t *)field);
			break;
		case COLUMN_I64:
			sqlite3_bind_int64(stmt, at, *(const int64_t *)field);
			break;
		case COLUMN_U32:
			sqlite3_bind_int64(stmt, at, *(const uint32_t *)field);
			break;
		case COLUMN_BOOL:
			sqlite3_bind_int(stmt, at, *(const bool *)field);
			break;
		}
	}
}

void columns_read(sqlite3_stmt *stmt, const struct column *columns, size_t count, void *row)
{
	for (size_t i = 0; i < count; i++) {
		void *field = (char *)row + columns[i].at;
		int at = (int)i;

		switch (columns[i].kind) {
		case COLUMN_TEXT:
			*(char **)field = xstrdup((const char *)sqlite3_column_text(stmt, at));
			break;
		case COLUMN_U64:
			*(uint64_t *)field = (uint64_t)sqlite3_column_int64(stmt, at);
			break;
		case COLUMN_I64:
			*(int64_t *)field = sqlite3_column_int64(stmt, at);
			break;
		case COLUMN_U32:
			*(uint32_t *)field = (uint32_t)sqlite3_column_int64(stmt, at);
			break;
		case COLUMN_BOOL:
			*(bool *)field = sqlite3_column_int(stmt, at) != 0;
			break;
		}
	}
}

static char **text_of(const struct column *column, void *row)
{
	return column->kind == COLUMN_TEXT ? (char **)((char *)row + column->at) : NULL;
}

void columns_free(const struct column *columns, size_t count, void *row)
{
	for (size_t i = 0; i < count; i++)
		if (text_of(&columns[i], row))
			free(*text_of(&columns[i], row));
}

void columns_copy(const struct column *columns, size_t count, void *row)
{
	for (size_t i = 0; i < count; i++) {
		char **text = text_of(&columns[i], row);

		if (text)
			*text = xstrdup(*text);
	}
}
