/* near.h - finds words that are nearly the same, for "did you mean" */
#pragma once
#include <stdbool.h>

/* How many letters must be inserted, deleted, replaced or swapped to turn a into b. */
unsigned text_distance(const char *a, const char *b);
/* True when b is similar enough to a to be suggested as "did you mean". */
bool text_is_near(const char *a, const char *b);
