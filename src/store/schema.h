/* schema.h - brings a database to the schema this program knows */
#pragma once
#include <sqlite3.h>

/* The version this program makes. */
int schema_version(void);
/* Applies the steps the database lacks, each in one transaction. Returns an SQLite code; *ret_found
 * is the version it had, which may be higher than schema_version(): then nothing was done. */
int schema_migrate(sqlite3 *db, int *ret_found);
