/* caps.h - capabilities of the calling process */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define CAPS_ALL      UINT64_MAX
#define CAPS_BIT(cap) (UINT64_C(1) << (cap))

/* Makes all permitted capabilities effective. */
int caps_raise_effective(struct err *err);
bool caps_have(int cap);
/* Drops all but keep from the bounding set, for good, and clears the ambient set. */
int caps_bound(uint64_t keep, struct err *err);
/* Lowers effective and permitted to keep and empties the inheritable set. */
int caps_keep(uint64_t keep, struct err *err);
