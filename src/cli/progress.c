/* progress.c - see progress.h */
#include "cli/progress.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/table.h"
#include "cli/terminal.h"

enum { BAR_WIDTH = 30, DRAW_EVERY_US = 100000 };

void progress_init(struct progress *progress, const char *what, bool enabled, unsigned delay_ms)
{
	*progress = (struct progress){
		.what = what,
		.enabled = enabled && isatty(STDERR_FILENO),
		.started_us = clock_mono_us(),
		.delay_us = (int64_t)delay_ms * 1000,
	};
}

static bool is_due(struct progress *progress)
{
	int64_t now = clock_mono_us();

	if (!progress->enabled || now - progress->started_us < progress->delay_us ||
		now - progress->drawn_us < DRAW_EVERY_US)
		return false;
	progress->drawn_us = now;
	return true;
}

static void draw(struct progress *progress, uint64_t done, uint64_t total, const char *text)
{
	unsigned filled =
		total ? (unsigned)((double)MIN(done, total) * BAR_WIDTH / (double)total) : 0;
	uint16_t rows, cols = 80;
	char bar[BAR_WIDTH + 1];
	struct buf line = BUF_INIT;

	terminal_size(STDERR_FILENO, &rows, &cols);
	memset(bar, '.', BAR_WIDTH);
	memset(bar, '#', filled);
	bar[BAR_WIDTH] = '\0';
	buf_addf(&line, "%s ", progress->what);
	if (total)
		buf_addf(&line, "[%s] ", bar);
	buf_add_str(&line, text);
	fprintf(stderr, "\r\033[K%.*s", cols - 1, buf_str(&line));
	fflush(stderr);
	buf_done(&line);
	progress->drawn = true;
}

void progress_bytes(struct progress *progress, uint64_t done, uint64_t total)
{
	char have[16], all[16], speed[16], text[80];
	double seconds = (double)(clock_mono_us() - progress->started_us) / 1e6;

	if (!is_due(progress))
		return;
	format_size(done, have);
	format_size((uint64_t)((double)done / (seconds > 0 ? seconds : 1)), speed);
	if (total)
		snprintf(text, sizeof text, "%s of %s, %s/s", have, format_size(total, all), speed);
	else
		snprintf(text, sizeof text, "%s, %s/s", have, speed);
	draw(progress, done, total, text);
}

void progress_steps(struct progress *progress, uint64_t done, uint64_t total, const char *text)
{
	_cleanup_free_ char *safe = NULL;

	if (!is_due(progress))
		return;
	safe = text_printable(text ? text : "");
	draw(progress, done, total, safe);
}

void progress_done(struct progress *progress)
{
	if (progress->drawn)
		fprintf(stderr, "\r\033[K");
	progress->drawn = false;
}
