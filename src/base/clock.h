/* clock.h - what time it is, and how times are written */
#pragma once
#include <stdint.h>

enum { CLOCK_RFC3339_MAX = 32 };

int64_t clock_wall_us(void); /* microseconds since 1970 */
int64_t clock_mono_us(void); /* microseconds since boot, never goes back */
/* "2026-01-02T03:04:05.678Z" into buf (CLOCK_RFC3339_MAX bytes); returns buf. */
char *clock_rfc3339(int64_t wall_us, char *buf);
