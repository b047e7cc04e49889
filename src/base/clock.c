/* clock.c - see clock.h */
#include "base/clock.h"
#include <stdio.h>
#include <time.h>

static int64_t read_clock(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t clock_wall_us(void)
{
	return read_clock(CLOCK_REALTIME);
}

int64_t clock_mono_us(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

char *clock_rfc3339(int64_t wall_us, char *buf)
{
	time_t seconds = (time_t)(wall_us / 1000000);
	struct tm parts;

	gmtime_r(&seconds, &parts);
	snprintf(buf, CLOCK_RFC3339_MAX, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ",
		(parts.tm_year + 1900) % 10000, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
		parts.tm_min, parts.tm_sec, (int)(wall_us / 1000 % 1000));
	return buf;
}
