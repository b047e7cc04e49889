/* net.c - net: what boxes sent, received and were refused, now and over time */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include <strings.h>
#include <time.h>

enum { WATCH_SECONDS = 1, CHART_WIDTH = 60 };

static void add_size(struct table *table, json_t *object, const char *key)
{
	char text[16];

	table_add(table, format_size((uint64_t)json_num(object, key), text));
}

static void add_count(struct table *table, json_t *object, const char *key)
{
	table_addf(table, "%lld", (long long)json_num(object, key));
}

/* ---- all boxes ------------------------------------------------------------------------------ */

static struct table *totals_table(json_t *answer)
{
	static const char *const heads[] = { "NAME", "STATE", ">SENT", ">RECEIVED", ">CONNECTIONS",
		">NOW", ">REFUSED", ">QUESTIONS", NULL };
	struct table *table = table_new(heads);
	json_t *box;
	size_t i;

	json_array_foreach (json_object_get(answer, "boxes"), i, box) {
		table_add(table, json_str(box, "name"));
		table_add(table, json_str(box, "state"));
		add_size(table, box, "bytes_out");
		add_size(table, box, "bytes_in");
		add_count(table, box, "connections");
		add_count(table, box, "connections_now");
		add_count(table, box, "refused");
		table_paint(table, json_num(box, "refused") ? PAINT_WARN : PAINT_NONE);
		add_count(table, box, "questions");
	}
	return table;
}

/* ---- one box -------------------------------------------------------------------------------- */

static bool has_unicode(void)
{
	static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const char *value = getenv(names[i]);

		if (value && *value)
			return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
	}
	return false;
}

static uint64_t bytes_of(json_t *period)
{
	return (uint64_t)json_num(period, "bytes_out") + (uint64_t)json_num(period, "bytes_in");
}

/* One character per period, scaled to the busiest one. */
static void print_chart(const char *title, json_t *periods)
{
	static const char *const bars[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	static const char *const signs[] = { ".", ":", "-", "=", "+", "*", "%", "#" };
	const char *const *marks = has_unicode() ? bars : signs;
	size_t count = json_array_size(periods), i = count > CHART_WIDTH ? count - CHART_WIDTH : 0;
	uint64_t most = 0, all = 0;
	char peak[16], sum[16];

	for (size_t k = i; k < count; k++) {
		uint64_t bytes = bytes_of(json_array_get(periods, k));

		most = MAX(most, bytes);
		all += bytes;
	}
	if (!most)
		return;
	printf("%-10s ", title);
	for (; i < count; i++) {
		uint64_t bytes = bytes_of(json_array_get(periods, i));

		/* In floating point: eight times a count of bytes may be too large. */
		fputs(bytes ? marks[MIN((unsigned)((double)bytes * 8 / (double)most), 7u)] : " ",
			stdout);
	}
	printf("  %s, at most %s\n", format_size(all, sum), format_size(most, peak));
}

static void print_summary(json_t *net)
{
	json_t *limits = json_object_get(net, "limits");
	char out[16], in[16], most[16];

	printf("%-10s %s\n%-10s %s\n", "sent",
		format_size((uint64_t)json_num(net, "bytes_out"), out), "received",
		format_size((uint64_t)json_num(net, "bytes_in"), in));
	printf("%-10s %lld, %lld now, %lld refused\n", "connected",
		(long long)json_num(net, "connections"),
		(long long)json_num(net, "connections_now"), (long long)json_num(net, "refused"));
	printf("%-10s %lld\n", "questions", (long long)json_num(net, "questions"));
	if (json_num(limits, "bytes"))
		printf("%-10s %s bytes\n", "limit",
			format_size((uint64_t)json_num(limits, "bytes"), most));
	if (json_num(limits, "rate"))
		printf("%-10s %s/s\n", "limit",
			format_size((uint64_t)json_num(limits, "rate"), most));
	if (json_num(limits, "connections"))
		printf("%-10s %lld connections\n", "limit",
			(long long)json_num(limits, "connections"));
	if (*json_str(net, "problem")) {
		_cleanup_free_ char *problem = text_printable(json_str(net, "problem"));

		printf("%-10s %s\n", "problem", problem);
	}
	print_chart("last hour", json_object_get(net, "minutes"));
	print_chart("hours", json_object_get(net, "hours"));
}

static void add_destination(struct table *table, json_t *one)
{
	const char *name = json_str(one, "name"), *address = json_str(one, "address");
	const char *host = *name ? name : address;
	bool six = strchr(host, ':') != NULL;

	table_addf(table, "%s%s%s:%lld/%s", six ? "[" : "", host, six ? "]" : "",
		(long long)json_num(one, "port"),
		*json_str(one, "protocol") ? json_str(one, "protocol") : "tcp");
}

static int compare_destinations(const void *a, const void *b)
{
	json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
	uint64_t p = bytes_of(x), q = bytes_of(y);

	if (p != q)
		return p < q ? 1 : -1;
	return json_num(x, "connections") < json_num(y, "connections") ? 1 : -1;
}

static void print_destinations(json_t *net)
{
	static const char *const heads[] = { "DESTINATION", ">SENT", ">RECEIVED", ">CONNECTIONS",
		">NOW", ">REFUSED", ">LAST", NULL };
	json_t *list = json_object_get(net, "destinations");
	size_t count = json_array_size(list);
	_cleanup_free_ json_t **sorted = xnewn(json_t *, count + 1);
	struct table *table;
	char age[16];

	if (!count)
		return;
	for (size_t i = 0; i < count; i++)
		sorted[i] = json_array_get(list, i);
	qsort(sorted, count, sizeof *sorted, compare_destinations);
	table = table_new(heads);
	for (size_t i = 0; i < count; i++) {
		add_destination(table, sorted[i]);
		add_size(table, sorted[i], "bytes_out");
		add_size(table, sorted[i], "bytes_in");
		add_count(table, sorted[i], "connections");
		add_count(table, sorted[i], "connections_now");
		add_count(table, sorted[i], "refused");
		table_paint(table, json_num(sorted[i], "refused") ? PAINT_WARN : PAINT_NONE);
		table_add(table, age_since(json_str(sorted[i], "last_at"), age));
	}
	puts("");
	table_print(table);
}

static void print_connections(json_t *net)
{
	static const char *const heads[] = { "CONNECTION", "ADDRESS", "FROM", "RULE", ">SENT",
		">RECEIVED", ">AGE", NULL };
	json_t *one;
	size_t i;
	struct table *table = table_new(heads);
	char age[16];

	json_array_foreach (json_object_get(net, "connections_list"), i, one) {
		add_destination(table, one);
		table_add(table, json_str(one, "address"));
		table_add(table, json_str(one, "from"));
		table_add(table, json_str(one, "rule"));
		add_size(table, one, "bytes_out");
		add_size(table, one, "bytes_in");
		table_add(table, age_since(json_str(one, "since"), age));
	}
	puts("");
	table_print(table);
}

/* ---- the command ---------------------------------------------------------------------------- */

static void print_net(struct cli *cli, json_t *answer, bool one)
{
	if (!one && !json_array_size(json_object_get(answer, "boxes"))) {
		cli_note(cli, "no boxes yet; 'box new' makes one");
		return;
	}
	if (!one) {
		table_print(totals_table(answer));
		return;
	}
	print_summary(answer);
	print_destinations(answer);
	if (cli_has(cli, "connections"))
		print_connections(answer);
}

int cmd_net(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path =
		!argc ? xstrdup("/v1/net")
		: cli_has(cli, "connections")
			? client_path("/v1/boxes/%s/net?connections=true", argv[0])
			: client_path("/v1/boxes/%s/net", argv[0]);
	bool watch = cli_has(cli, "watch");
	struct err err = ERR_INIT;

	if (!argc && cli_has(cli, "connections"))
		return cli_usage(cli, "--connections needs a box");
	for (;;) {
		json_t *answer = NULL;

		if (client_get(cli->client, path, &answer, &err) < 0)
			return cli_fail(cli, &err);
		if (cli->json && !argc && !watch)
			return cli_print_json_list(answer, "boxes");
		if (watch && !cli->json && isatty(STDOUT_FILENO))
			fputs("\033[H\033[2J", stdout);
		if (cli->json) {
			cli_print_json(answer);
		} else {
			print_net(cli, answer, argc > 0);
			json_decref(answer);
		}
		if (!watch)
			return 0;
		fflush(stdout);
		nanosleep(&(struct timespec){ .tv_sec = WATCH_SECONDS }, NULL);
	}
}
