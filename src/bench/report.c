/* report.c - percentiles, the table for people and the JSON for programs
 *
 * Percentiles are by nearest rank: each is a value that was really measured. p95 and p99 are
 * always the bad end, so for a rate (MB/s) they are what all but 5 or 1 in 100 runs reached. */
#include "bench/bench_internal.h"
#include "base/json.h"
#include <stdarg.h>
#include <stdio.h>

void bench_row_add(struct bench_row *row, double value)
{
	struct bench_samples *samples = &row->samples;

	/* Grows by doubling: room ends at each power of two. */
	if ((samples->count & (samples->count - 1)) == 0)
		xgrow(samples->values, samples->count ? samples->count * 2 : 1);
	samples->values[samples->count++] = value;
}

void bench_row_note(struct bench_row *row, const char *fmt, ...)
{
	size_t used = strlen(row->note);
	va_list args;

	if (used && used + 2 < sizeof row->note) {
		strcpy(row->note + used, "; ");
		used += 2;
	}
	va_start(args, fmt);
	vsnprintf(row->note + used, sizeof row->note - used, fmt, args);
	va_end(args);
}

static int by_size(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

static double percentile(const struct bench_row *row, size_t percent)
{
	const struct bench_samples *samples = &row->samples;
	size_t rank = (samples->count * percent + 99) / 100 - 1;

	bool from_top = row->kind == ROW_RATE || row->kind == ROW_FLOW;

	return samples->values[from_top ? samples->count - 1 - rank : rank];
}

void bench_row_finish(struct bench_row *row)
{
	if (!row->samples.count)
		return;
	qsort(row->samples.values, row->samples.count, sizeof *row->samples.values, by_size);
	row->runs = row->samples.count;
	row->p50 = percentile(row, 50);
	row->p95 = percentile(row, 95);
	row->p99 = percentile(row, 99);
}

void bench_row_done(struct bench_row *row)
{
	free(row->samples.values);
	row->samples = (struct bench_samples){ 0 };
}

static json_t *row_json(const struct bench_row *row)
{
	bool have = row->runs > 0;
	json_t *object = json_pack("{s:s, s:s, s:o, s:o, s:o, s:I}", "name", row->name, "unit",
		row->unit, "p50", have ? json_real(row->p50) : json_null(), "p95",
		have ? json_real(row->p95) : json_null(), "p99",
		have ? json_real(row->p99) : json_null(), "runs", (json_int_t)row->runs);

	if (row->peer)
		json_object_set_new(object, "peer", json_true());
	if (row->ratio > 0)
		json_object_set_new(object, "ratio", json_real(row->ratio));
	if (row->failed)
		json_object_set_new(object, "failed", json_true());
	if (row->note[0])
		/* The output of a peer may contain anything; JSON needs UTF-8. */
		json_object_set_new(
			object, "note", json_string(row->note) ?: json_string("(not printable)"));
	return object;
}

void bench_report_json(const struct bench_row *const *rows, size_t count)
{
	/* One line per row: JSON that people can read too. Six digits are more than we know. */
	for (size_t i = 0; i < count; i++) {
		_cleanup_json_ json_t *object = row_json(rows[i]);
		_cleanup_free_ char *text = json_dumps(
			object, JSON_COMPACT | JSON_REAL_PRECISION(6) | JSON_ENSURE_ASCII);

		printf("%s%s", i ? ",\n " : "[", text);
	}
	puts(count ? "]" : "[]");
}

static const char *format_value(const struct bench_row *row, double value, char out[24])
{
	if (!row->runs)
		return "-";
	snprintf(out, 24, "%.*f", row->kind == ROW_RATE ? 0 : value < 100 ? 2 : 1, value);
	return out;
}

void bench_report_table(const struct bench_row *const *rows, size_t count)
{
	size_t width = strlen("NAME");

	for (size_t i = 0; i < count; i++)
		width = MAX(width, strlen(rows[i]->name) + (rows[i]->peer ? 2 : 0));
	printf("%-*s %10s %10s %10s  %-6s %5s %7s  %s\n", (int)width, "NAME", "P50", "P95", "P99",
		"UNIT", "RUNS", "TO OURS", "NOTE");
	for (size_t i = 0; i < count; i++) {
		const struct bench_row *row = rows[i];
		char p50[24], p95[24], p99[24], ratio[24] = "";

		if (row->ratio > 0)
			snprintf(ratio, sizeof ratio, "%.2fx", row->ratio);
		printf("%s%-*s %10s %10s %10s  %-6s %5zu %7s  %s\n", row->peer ? "  " : "",
			(int)width - (row->peer ? 2 : 0), row->name,
			format_value(row, row->p50, p50), format_value(row, row->p95, p95),
			format_value(row, row->p99, p99), row->unit, row->runs, ratio, row->note);
	}
}
