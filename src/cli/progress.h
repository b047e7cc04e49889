/* progress.h - a bar on stderr while something takes time; silent when stderr is no terminal */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *what;
	bool enabled;
	bool drawn;
	int64_t started_us;
	int64_t drawn_us;
	int64_t delay_us; /* nothing is drawn before this time has passed */
};

void progress_init(struct progress *progress, const char *what, bool enabled, unsigned delay_ms);
/* total 0: unknown. Draws at most ten times a second. text follows the bar and may be NULL. */
void progress_bytes(struct progress *progress, uint64_t done, uint64_t total);
void progress_steps(struct progress *progress, uint64_t done, uint64_t total, const char *text);
/* Wipes the bar. */
void progress_done(struct progress *progress);
