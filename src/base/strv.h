/* strv.h - NULL-terminated arrays of strings, as argv and environments are */
#pragma once
#include "base/alloc.h"

size_t strv_len(const char *const *strv); /* NULL counts as empty */
char **strv_copy(const char *const *strv);
void strv_free(char **strv);
/* Appends a copy of text; *strv may be NULL at first. */
void strv_add(char ***strv, const char *text);
void strv_addf(char ***strv, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool strv_has(const char *const *strv, const char *text);

DEFINE_CLEANUP(strv_free, char *)
#define _cleanup_strv_ _cleanup_(strv_freep)
