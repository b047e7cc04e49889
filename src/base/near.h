/* near.h - words that are nearly the same, for "did you mean" */
#pragma once
#include <stdbool.h>

/* How many letters must change to make one out of the other (insert, delete, replace, swap). */
unsigned text_distance(const char *a, const char *b);
/* Whether b is near enough to a to be offered as "did you mean". */
bool text_is_near(const char *a, const char *b);
