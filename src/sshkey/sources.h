/* sources.h - the addresses a key may be used from: "192.0.2.0/24,2001:db8::7,!192.0.2.9"
 *
 * As from= of authorized_keys and source-address of certificates, with addresses and ranges alone:
 * names would have to be looked up, and patterns of digits mean less than they seem to. Pure. */
#pragma once
#include "base/err.h"
#include <stdbool.h>

enum { SOURCES_MAX = 64, SOURCES_TEXT_MAX = 4096 };

/* ERR_INVALID says which entry is wrong. */
int sources_check(const char *list, struct err *err);
/* Whether peer (an address) is in the list: some entry has it, and none with '!'. A peer that is no
 * address is in no list. */
bool sources_has(const char *list, const char *peer);
