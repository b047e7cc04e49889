/* stats.c - figures of running boxes, live on a terminal */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/strv.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include <time.h>

enum { LIVE_MS = 1000, ONCE_MS = 250 };

struct sample {
	json_t *boxes; /* array */
	int64_t at_us;
};

static int take_sample(struct cli *cli, int argc, char **argv, struct sample *ret, struct err *err)
{
	_cleanup_json_ json_t *answer = NULL;
	json_t *all, *box, *wanted = json_array();
	size_t i;

	if (client_get(cli->client, "/v1/stats", &answer, err) < 0) {
		json_decref(wanted);
		return -1;
	}
	all = json_object_get(answer, "boxes");
	json_array_foreach (all, i, box)
		if (!argc || strv_has((const char *const *)argv, json_str(box, "name")) ||
			strv_has((const char *const *)argv, json_str(box, "box")))
			json_array_append(wanted, box);
	json_decref(ret->boxes);
	*ret = (struct sample){ wanted, clock_mono_us() };
	return 0;
}

/* A name that is not among the running boxes gets the daemon's own error: no such box, or not
 * running. */
static int check_names(struct cli *cli, int argc, char **argv, struct err *err)
{
	for (int i = 0; i < argc; i++) {
		_cleanup_free_ char *path = client_path("/v1/boxes/%s/stats", argv[i]);

		if (client_get(cli->client, path, NULL, err) < 0)
			return -1;
	}
	return 0;
}

static json_t *find_box(json_t *boxes, const char *id)
{
	json_t *box;
	size_t i;

	json_array_foreach (boxes, i, box)
		if (!strcmp(json_str(box, "box"), id))
			return box;
	return NULL;
}

static void add_row(struct table *table, json_t *box, json_t *before, int64_t elapsed_us)
{
	int64_t used = json_num(box, "cpu_us") - json_num(before, "cpu_us");
	int64_t memory = json_num(box, "memory_bytes"), limit = json_num(box, "memory_limit_bytes");
	int64_t full = json_num(box, "disk_limit_bytes");
	char have[16], peak[16], most[16], age[16], disk[16];

	table_add(table, json_str(box, "name"));
	if (before && elapsed_us > 0)
		table_addf(table, "%.1f%%", (double)used * 100 / (double)elapsed_us);
	else
		table_add(table, "-");
	table_add(table, format_size((uint64_t)memory, have));
	if (limit > 0 && memory * 10 > limit * 9)
		table_paint(table, PAINT_WARN);
	table_add(table, limit ? format_size((uint64_t)limit, most) : "-");
	table_add(table, format_size((uint64_t)json_num(box, "memory_peak_bytes"), peak));
	table_add(table, format_size((uint64_t)json_num(box, "disk_bytes"), disk));
	if (full > 0 && json_num(box, "disk_bytes") * 10 > full * 9)
		table_paint(table, PAINT_WARN);
	table_addf(table, "%lld", (long long)json_num(box, "processes"));
	table_addf(table, "%lld", (long long)json_num(box, "threads"));
	table_addf(table, "%lld", (long long)json_num(box, "oom_kills"));
	table_paint(table, json_num(box, "oom_kills") ? PAINT_BAD : PAINT_NONE);
	table_addf(table, "%.2fs", (double)json_num(box, "cpu_us") / 1e6);
	table_add(table, format_age((uint64_t)json_num(box, "uptime_us") / 1000, age));
}

/* One row for each tree with several boxes, named by its first. */
static void add_tree(struct table *table, json_t *tree, json_t *before, int64_t elapsed_us)
{
	const char *head = json_str(tree, "head");
	int64_t used = json_num(tree, "cpu_us") - json_num(before, "cpu_us");
	int64_t limit = json_num(tree, "memory_limit_bytes");
	char have[16], most[16];

	table_addf(table, "tree of %s (%lld)", *head ? head : json_str(tree, "id"),
		(long long)json_num(tree, "boxes"));
	if (before && elapsed_us > 0 && used >= 0)
		table_addf(table, "%.1f%%", (double)used * 100 / (double)elapsed_us);
	else
		table_add(table, "-");
	table_add(table, format_size((uint64_t)json_num(tree, "memory_bytes"), have));
	if (limit > 0 && json_num(tree, "memory_bytes") * 10 > limit * 9)
		table_paint(table, PAINT_WARN);
	table_add(table, limit ? format_size((uint64_t)limit, most) : "-");
	table_add(table, "-");
	table_add(table, "-");
	table_addf(table, "%lld", (long long)json_num(tree, "processes"));
	table_addf(table, "%lld", (long long)json_num(tree, "threads"));
	table_add(table, "-");
	table_addf(table, "%.2fs", (double)json_num(tree, "cpu_us") / 1e6);
	table_add(table, "-");
}

static struct table *make_table(const struct sample *now, const struct sample *before)
{
	static const char *const heads[] = { "NAME", ">CPU", ">MEMORY", ">LIMIT", ">PEAK", ">DISK",
		">PROCS", ">THREADS", ">OOM", ">CPU TIME", ">UP", NULL };
	struct table *table = table_new(heads);
	_cleanup_json_ json_t *seen = json_object();
	json_t *box;
	size_t i;

	json_array_foreach (now->boxes, i, box)
		add_row(table, box, find_box(before->boxes, json_str(box, "box")),
			now->at_us - before->at_us);
	json_array_foreach (now->boxes, i, box) {
		json_t *tree = json_object_get(box, "tree");
		json_t *was = find_box(before->boxes, json_str(box, "box"));

		if (!tree || json_object_get(seen, json_str(tree, "id")))
			continue;
		json_object_set_new(seen, json_str(tree, "id"), json_true());
		add_tree(table, tree, json_object_get(was, "tree"), now->at_us - before->at_us);
	}
	return table;
}

static void pause_ms(unsigned ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* Draws over the last table: each line is cleared to its end, then the rest of the screen. */
static void redraw(struct table *table)
{
	struct buf text = BUF_INIT;
	uint16_t rows = 24, cols = 80;

	terminal_size(STDOUT_FILENO, &rows, &cols);
	table_render(table, cols, terminal_has_colour(STDOUT_FILENO), &text);
	fputs("\033[H\033[?7l", stdout); /* lines wider than the terminal are cut, not wrapped */
	for (const char *p = buf_str(&text); *p && rows > 1; rows--) {
		int len = (int)strcspn(p, "\n");

		printf("%.*s\033[K\n", len, p);
		p += len + 1;
	}
	fputs("\033[J\033[?7h", stdout);
	fflush(stdout);
	buf_done(&text);
	table_free(table);
}

int cmd_stats(struct cli *cli, int argc, char **argv)
{
	bool live = isatty(STDOUT_FILENO) && !cli_has(cli, "once") && !cli->json;
	struct sample now = { 0 }, before = { 0 };
	struct err err = ERR_INIT;

	if (check_names(cli, argc, argv, &err) < 0 || take_sample(cli, argc, argv, &now, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(now.boxes);
	if (live)
		fputs("\033[2J", stdout);
	do {
		if (live)
			redraw(make_table(&now, &before));
		pause_ms(live ? LIVE_MS : ONCE_MS);
		json_decref(before.boxes);
		before = now;
		now = (struct sample){ 0 };
		if (take_sample(cli, argc, argv, &now, &err) < 0) {
			json_decref(before.boxes);
			return cli_fail(cli, &err);
		}
	} while (live);
	if (!json_array_size(now.boxes))
		cli_note(cli, "no box runs");
	else
		table_print(make_table(&now, &before));
	json_decref(now.boxes);
	json_decref(before.boxes);
	return 0;
}
