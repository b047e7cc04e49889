/* bench.c - `box bench`: this machine measured, side by side with the other sandboxes on it
 *
 * The rows stand in one table. Those of a group are measured together, in rounds: each round runs every
 * row of the group once, in a new random order. A noisy moment of the machine hits all of them alike, and
 * nobody always comes after the heaviest one. A row leaves its group when it has its runs or its time is
 * used up, or when it failed three times; what remains of it is in the report with the reason.
 *
 * ^C ends the run after the measurement under way; boxes, files and namespaces go, what was measured is
 * printed. */
#include "cli/bench_internal.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>

enum group {
	GROUP_COLD,
	GROUP_VERBS,
	GROUP_STREAMS,
	GROUP_DISK,
	GROUP_REMOVAL,
	GROUP_FILES,
	GROUP_CACHE,
	GROUP_IMPORT,
	GROUP_MANY,
	GROUP_DERIVED,
	GROUP_COUNT
};

enum {
	RUNS_DEFAULT = 200,
	RUNS_MAX = 100000,
	MANY_BOXES = 500,
	FAILURES_MAX = 3,
	BUDGET_OURS_S = 60,
	BUDGET_PEER_S = 15,
	CACHE_RUNS = 5,
};

struct item {
	const char *name;
	const char *unit;
	enum bench_row_kind kind;
	enum group group;
	const char *summary;
	/* At most one of these; without any the row is filled by its group. */
	int (*run)(struct bench_boxes *boxes, double *ret, struct err *err);
	int (*stream)(
		struct bench_boxes *boxes, struct bench_row *rss, double *ret, struct err *err);
	enum bench_peer peer;
	bool is_peer;
	const char *needs; /* rows measured along with it, separated by blanks */
};

#define PEERS	"bwrap crun runc podman runsc"
#define STREAMS "stdout_64m cp_in_64m cp_out_64m"

static const struct item items[] = {
	{ "create_first_byte", "ms", ROW_TIME, GROUP_COLD,
		"new box and `echo` in it to its first byte, API", .run = bench_create_first_byte,
		.needs = PEERS },
	{ "bwrap", "ms", ROW_TIME, GROUP_COLD, "the same with bubblewrap", .is_peer = true,
		.peer = PEER_BWRAP },
	{ "crun", "ms", ROW_TIME, GROUP_COLD, "the same with crun", .is_peer = true,
		.peer = PEER_CRUN },
	{ "runc", "ms", ROW_TIME, GROUP_COLD, "the same with runc", .is_peer = true,
		.peer = PEER_RUNC },
	{ "podman", "ms", ROW_TIME, GROUP_COLD, "the same with podman", .is_peer = true,
		.peer = PEER_PODMAN },
	{ "runsc", "ms", ROW_TIME, GROUP_COLD, "the same with gVisor", .is_peer = true,
		.peer = PEER_RUNSC },
	{ "daemon_round_trip", "ms", ROW_TIME, GROUP_COLD, "GET /v1/health",
		.run = bench_round_trip },
	{ "floor_exec", "ms", ROW_TIME, GROUP_COLD, "`echo` on the host to its first byte",
		.run = bench_floor_exec },
	{ "create_vs_bwrap", "ratio", ROW_RATIO, GROUP_DERIVED,
		"create_first_byte over bwrap + daemon_round_trip",
		.needs = "create_first_byte bwrap daemon_round_trip" },
	{ "create", "ms", ROW_TIME, GROUP_VERBS, "POST /v1/boxes alone", .run = bench_create },
	{ "exec_first_byte", "ms", ROW_TIME, GROUP_VERBS,
		"`echo` in a running box to its first byte, API", .run = bench_exec_first_byte },
	{ "exec_cli", "ms", ROW_TIME, GROUP_VERBS, "`box exec BOX -- echo hi` to its exit",
		.run = bench_exec_cli },
	{ "remove", "ms", ROW_TIME, GROUP_VERBS, "DELETE of a running box", .run = bench_remove },
	{ "stdout_64m", "MB/s", ROW_RATE, GROUP_STREAMS, "64 MB out of `box exec` into a pipe",
		.stream = bench_stdout_stream },
	{ "cp_in_64m", "MB/s", ROW_RATE, GROUP_STREAMS, "`box cp` of a 64 MB file into a box",
		.stream = bench_cp_in },
	{ "cp_out_64m", "MB/s", ROW_RATE, GROUP_STREAMS, "`box cp` of a 64 MB file out of a box",
		.stream = bench_cp_out },
	{ "daemon_rss", "MB", ROW_SIZE, GROUP_STREAMS, "memory of the daemon meanwhile",
		.needs = STREAMS },
	{ "image_save", "ms", ROW_TIME, GROUP_DISK, "image of a box with 512 MB on its disk",
		.run = bench_image_save },
	{ "remove_64m", "ms", ROW_TIME, GROUP_REMOVAL,
		"DELETE of a running box with 64 MB on its disk", .run = bench_remove_full },
	{ "image_import", "MB/s", ROW_RATE, GROUP_IMPORT, "import of a root file system as tar",
		.run = bench_image_import },
	{ "untar_10k", "ms", ROW_TIME, GROUP_FILES, "tar x of 10,000 files in a box",
		.run = bench_untar_box },
	{ "untar_10k_host", "ms", ROW_TIME, GROUP_FILES, "the same on the host's file system",
		.run = bench_untar_host },
	{ "untar_10k_ratio", "ratio", ROW_RATIO, GROUP_DERIVED, "box over host",
		.needs = "untar_10k untar_10k_host" },
	{ "npm_install", "ms", ROW_TIME, GROUP_FILES, "npm ci in a box, from a local cache",
		.run = bench_npm_box },
	{ "npm_install_host", "ms", ROW_TIME, GROUP_FILES, "the same on the host's file system",
		.run = bench_npm_host },
	{ "npm_install_ratio", "ratio", ROW_RATIO, GROUP_DERIVED, "box over host",
		.needs = "npm_install npm_install_host" },
	{ "page_cache_first", "ms", ROW_TIME, GROUP_CACHE,
		"200 MB of the image read in a box, nothing cached", .run = NULL },
	{ "page_cache_second", "ms", ROW_TIME, GROUP_CACHE, "the same in a second box",
		.run = NULL },
	{ "page_cache_first_grown", "MB", ROW_SIZE, GROUP_CACHE,
		"what the host's page cache grew by for the first", .run = NULL },
	{ "page_cache_second_grown", "MB", ROW_SIZE, GROUP_CACHE, "and for the second",
		.run = NULL },
	{ "list_500", "ms", ROW_TIME, GROUP_MANY, "GET /v1/boxes with 500 idle boxes",
		.run = bench_list },
	{ "idle_500_daemon_rss", "MB", ROW_SIZE, GROUP_MANY,
		"memory of the daemon with 500 idle boxes", .run = NULL },
	{ "idle_500_per_box", "MB", ROW_SIZE, GROUP_MANY, "memory of the host for each of them",
		.run = NULL },
};

static const char *const group_titles[GROUP_COUNT] = {
	[GROUP_COLD] = "cold start",
	[GROUP_VERBS] = "verbs",
	[GROUP_STREAMS] = "streams",
	[GROUP_DISK] = "disks",
	[GROUP_REMOVAL] = "removal",
	[GROUP_FILES] = "files",
	[GROUP_CACHE] = "page cache",
	[GROUP_IMPORT] = "import", /* last of these: what it writes goes to the disk for a while */
	[GROUP_MANY] = "many boxes",
	[GROUP_DERIVED] = "",
};

enum { ITEMS = ARRAY_LEN(items) };

struct bench {
	struct cli *cli;
	size_t runs;
	struct bench_row rows[ITEMS];
	bool chosen[ITEMS];
	bool over[ITEMS]; /* has its runs, its time or its failures */
	int64_t spent_us[ITEMS];
	unsigned failures[ITEMS];
	int exit_code; /* of the first failure of a row of ours */
	struct bench_boxes *boxes;
	struct bench_peers *peers;
	struct progress progress;
};

static volatile sig_atomic_t stopping;

static void on_stop(int number)
{
	(void)number;
	stopping = 1;
}

bool bench_is_stopping(void)
{
	return stopping;
}

static void catch_signals(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_handler = on_stop };

	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		sigaction(numbers[i], &action, NULL);
}

/* --- which rows --- */

static size_t item_find(const char *name)
{
	for (size_t i = 0; i < ITEMS; i++)
		if (strcmp(items[i].name, name) == 0)
			return i;
	return ITEMS;
}

static void choose(struct bench *bench, size_t index, bool with_peers)
{
	const char *at = items[index].needs;

	if (bench->chosen[index] || (items[index].is_peer && !with_peers))
		return;
	bench->chosen[index] = true;
	while (at && *at) {
		size_t len = strcspn(at, " ");
		_cleanup_free_ char *name = xstrndup(at, len);

		choose(bench, item_find(name), with_peers);
		at += len + (at[len] == ' ');
	}
}

static bool is_family(const char *name, const char *row)
{
	return (!strcmp(name, "idle_500") || !strcmp(name, "page_cache")) &&
	       text_has_prefix(row, name);
}

/* 0, or the exit code of a wrong command line. `idle_500` and `page_cache` stand for all of their rows. */
static int choose_named(struct bench *bench, const char *name, bool with_peers)
{
	bool found = false;

	for (size_t i = 0; i < ITEMS; i++)
		if (strcmp(items[i].name, name) == 0 || is_family(name, items[i].name)) {
			choose(bench, i, with_peers || items[i].is_peer);
			found = true;
		}
	if (found)
		return 0;
	for (size_t i = 0; i < ITEMS; i++)
		if (text_is_near(name, items[i].name))
			return cli_usage(bench->cli, "no measurement '%s', did you mean '%s'?",
				name, items[i].name);
	return cli_usage(bench->cli, "no measurement '%s', box bench --list shows them", name);
}

static int list_items(bool json)
{
	json_t *list = json_array();

	for (size_t i = 0; i < ITEMS; i++)
		if (json)
			json_array_append_new(
				list, json_pack("{s:s, s:s, s:s}", "name", items[i].name, "unit",
					      items[i].unit, "summary", items[i].summary));
		else
			printf("%-24s %-6s %s\n", items[i].name, items[i].unit, items[i].summary);
	if (json)
		return cli_print_json(list);
	json_decref(list);
	return 0;
}

/* --- rounds --- */

static void show_progress(struct bench *bench, enum group group, size_t done, size_t total)
{
	bench->progress.what = group_titles[group];
	progress_steps(&bench->progress, done, total, NULL);
}

static void row_failed(struct bench *bench, size_t index, const struct err *err)
{
	bench->rows[index].failed = true;
	bench->over[index] = true;
	bench_row_note(&bench->rows[index], "%s", err->message);
	if (!items[index].is_peer && !bench->exit_code)
		bench->exit_code = err_kind_exit_code(err->kind);
}

static int run_item(struct bench *bench, size_t index, double *ret, struct err *err)
{
	const struct item *item = &items[index];
	size_t rss = item_find("daemon_rss");

	if (item->is_peer)
		return bench_peer_run(bench->peers, item->peer, ret, err);
	if (item->stream)
		return item->stream(
			bench->boxes, bench->chosen[rss] ? &bench->rows[rss] : NULL, ret, err);
	return item->run(bench->boxes, ret, err);
}

static void measure(struct bench *bench, size_t index)
{
	int64_t start_us = clock_mono_us();
	int64_t budget_us = (items[index].is_peer ? BUDGET_PEER_S : BUDGET_OURS_S) * 1000000LL;
	struct err err = ERR_INIT;
	double value;

	if (run_item(bench, index, &value, &err) == 0)
		bench_row_add(&bench->rows[index], value);
	else if (++bench->failures[index] >= FAILURES_MAX)
		return row_failed(bench, index, &err);
	bench->spent_us[index] += clock_mono_us() - start_us;
	if (bench->rows[index].samples.count >= bench->runs)
		bench->over[index] = true;
	else if (bench->spent_us[index] > budget_us) {
		bench->over[index] = true;
		bench_row_note(
			&bench->rows[index], "stopped after %d s", (int)(budget_us / 1000000));
	}
}

static size_t random_below(size_t end)
{
	uint32_t number;

	if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
		number = (uint32_t)clock_mono_us();
	return number % end;
}

/* The rows of the group that still want a run, in random order. */
static size_t next_round(const struct bench *bench, enum group group, size_t order[ITEMS])
{
	size_t count = 0;

	for (size_t i = 0; i < ITEMS; i++) {
		size_t at;

		if (items[i].group != group || !bench->chosen[i] || bench->over[i])
			continue;
		at = random_below(count + 1);
		order[count++] = order[at];
		order[at] = i;
	}
	return count;
}

static void run_rounds(struct bench *bench, enum group group)
{
	size_t order[ITEMS] = { 0 }, count, rounds = 0;

	while (!stopping && (count = next_round(bench, group, order)) > 0) {
		show_progress(bench, group, rounds++, bench->runs);
		for (size_t i = 0; i < count && !stopping; i++)
			measure(bench, order[i]);
	}
	progress_done(&bench->progress);
}

/* --- what a group needs before its rounds --- */

static void open_peers(struct bench *bench, struct err *err)
{
	const char *rootfs;

	if (bench_disk_rootfs(bench->boxes, &rootfs, err) == 0)
		bench_peers_open(rootfs, &bench->peers, err);
}

static void prepare_peer(struct bench *bench, size_t index)
{
	struct err err = ERR_INIT;
	const char *how = NULL;

	if (!bench->peers)
		open_peers(bench, &err);
	if (!bench->peers || bench_peer_probe(bench->peers, items[index].peer, &how, &err) < 0)
		return row_failed(bench, index, &err);
	bench_row_note(&bench->rows[index], "%s", how);
}

/* The first run of anything pays for cold caches; nobody's first run is counted. */
static void prepare_ours(struct bench *bench, size_t index)
{
	struct err err = ERR_INIT;
	double value;

	if (run_item(bench, index, &value, &err) == 0)
		return;
	if (err.kind != ERR_UNSUPPORTED)
		return row_failed(bench, index, &err);
	bench->over[index] = true;
	bench_row_note(&bench->rows[index], "skipped: %s", err.message);
}

static bool box_made(size_t made, void *arg)
{
	show_progress(arg, GROUP_MANY, made, MANY_BOXES);
	return !stopping;
}

static void fill_row(struct bench *bench, const char *name, double value)
{
	size_t index = item_find(name);

	bench->over[index] = true;
	bench_row_add(&bench->rows[index], value);
}

static void prepare_many(struct bench *bench)
{
	struct err err = ERR_INIT;
	double per_box, rss;
	size_t count;

	if (bench_boxes_fill(bench->boxes, MANY_BOXES, box_made, bench, &per_box, &err) < 0 ||
		bench_boxes_daemon_rss(bench->boxes, &rss, &err) < 0) {
		for (size_t i = 0; i < ITEMS; i++)
			if (items[i].group == GROUP_MANY && bench->chosen[i])
				row_failed(bench, i, &err);
		return;
	}
	fill_row(bench, "idle_500_daemon_rss", rss);
	fill_row(bench, "idle_500_per_box", per_box);
	count = bench_boxes_count(bench->boxes);
	if (count != MANY_BOXES)
		bench_row_note(
			&bench->rows[item_find("list_500")], "the daemon listed %zu boxes", count);
}

/* Each look gives all rows of the group. */
static void prepare_cache(struct bench *bench)
{
	struct bench_page_cache seen;
	struct err err = ERR_INIT;

	for (size_t run = 0; run < MIN(bench->runs, CACHE_RUNS) && !stopping; run++) {
		if (bench_page_cache(bench->boxes, &seen, &err) < 0) {
			for (size_t i = 0; i < ITEMS; i++)
				if (items[i].group == GROUP_CACHE && bench->chosen[i])
					row_failed(bench, i, &err);
			return;
		}
		fill_row(bench, "page_cache_first", seen.first_ms);
		fill_row(bench, "page_cache_second", seen.second_ms);
		fill_row(bench, "page_cache_first_grown", seen.first_grown);
		fill_row(bench, "page_cache_second_grown", seen.second_grown);
	}
}

static void prepare(struct bench *bench, enum group group)
{
	if (group == GROUP_MANY)
		prepare_many(bench);
	if (group == GROUP_CACHE)
		prepare_cache(bench);
	for (size_t i = 0; i < ITEMS && !stopping; i++) {
		if (items[i].group != group || !bench->chosen[i] || bench->over[i])
			continue;
		if (items[i].is_peer)
			prepare_peer(bench, i);
		else if (items[i].run || items[i].stream)
			prepare_ours(bench, i);
		else
			bench->over[i] = true;
	}
}

static void note_memory(struct bench *bench)
{
	struct bench_row *row = &bench->rows[item_find("daemon_rss")];

	/* Before the samples are sorted: was it flat? */
	if (row->samples.count)
		bench_row_note(row, "first %.1f, last %.1f", row->samples.values[0],
			row->samples.values[row->samples.count - 1]);
}

static void run_group(struct bench *bench, enum group group)
{
	bool any = false;

	for (size_t i = 0; i < ITEMS; i++)
		any = any || (items[i].group == group && bench->chosen[i]);
	if (!any || stopping)
		return;
	show_progress(bench, group, 0, bench->runs);
	prepare(bench, group);
	run_rounds(bench, group);
	if (group == GROUP_STREAMS)
		note_memory(bench);
	if (group == GROUP_MANY)
		bench_boxes_drain(bench->boxes);
}

/* --- the report --- */

static void derive_against_bwrap(struct bench *bench)
{
	struct bench_row *row = &bench->rows[item_find("create_vs_bwrap")];
	const struct bench_row *ours = &bench->rows[item_find("create_first_byte")];
	const struct bench_row *bwrap = &bench->rows[item_find("bwrap")];
	const struct bench_row *trip = &bench->rows[item_find("daemon_round_trip")];

	row->runs = MIN(ours->runs, MIN(bwrap->runs, trip->runs));
	if (!row->runs) {
		bench_row_note(
			row, "needs figures of create_first_byte, bwrap and daemon_round_trip");
		return;
	}
	row->p50 = ours->p50 / (bwrap->p50 + trip->p50);
	row->p95 = ours->p95 / (bwrap->p95 + trip->p95);
	row->p99 = ours->p99 / (bwrap->p99 + trip->p99);
}

static void derive_against_host(struct bench *bench, const char *name)
{
	_cleanup_free_ char *ratio = xasprintf("%s_ratio", name),
			    *there = xasprintf("%s_host", name);
	struct bench_row *row = &bench->rows[item_find(ratio)];
	const struct bench_row *box = &bench->rows[item_find(name)];
	const struct bench_row *host = &bench->rows[item_find(there)];

	row->runs = MIN(box->runs, host->runs);
	if (!row->runs) {
		bench_row_note(row, "needs figures of %s and %s", name, there);
		return;
	}
	row->p50 = box->p50 / host->p50;
	row->p95 = box->p95 / host->p95;
	row->p99 = box->p99 / host->p99;
}

static void report(struct bench *bench)
{
	const struct bench_row *rows[ITEMS], *ours = &bench->rows[item_find("create_first_byte")];
	size_t count = 0;

	for (size_t i = 0; i < ITEMS; i++)
		bench_row_finish(&bench->rows[i]);
	derive_against_bwrap(bench);
	derive_against_host(bench, "untar_10k");
	derive_against_host(bench, "npm_install");
	for (size_t i = 0; i < ITEMS; i++) {
		if (!bench->chosen[i])
			continue;
		if (!bench->rows[i].runs && !bench->rows[i].note[0])
			bench_row_note(&bench->rows[i], "not measured");
		if (items[i].is_peer && ours->runs)
			bench->rows[i].ratio = bench->rows[i].p50 / ours->p50;
		rows[count++] = &bench->rows[i];
	}
	if (bench->cli->json)
		bench_report_json(rows, count);
	else
		bench_report_table(rows, count);
}

static void init_rows(struct bench *bench)
{
	for (size_t i = 0; i < ITEMS; i++)
		bench->rows[i] = (struct bench_row){
			.name = items[i].name,
			.unit = items[i].unit,
			.kind = items[i].kind,
			.peer = items[i].is_peer,
		};
}

static int run_all(struct bench *bench)
{
	struct err err = ERR_INIT;

	if (bench_boxes_open(bench->cli->client, bench->cli->conf.socket, &bench->boxes, &err) < 0)
		return cli_fail(bench->cli, &err);
	catch_signals();
	for (enum group group = 0; group < GROUP_DERIVED; group++)
		run_group(bench, group);
	bench_peers_close(bench->peers);
	bench_boxes_close(bench->boxes);
	bench_cli_done();
	bench_disk_done();
	report(bench);
	for (size_t i = 0; i < ITEMS; i++)
		bench_row_done(&bench->rows[i]);
	return stopping ? 130 : bench->exit_code;
}

int cmd_bench(struct cli *cli, int argc, char **argv)
{
	struct bench bench = { .cli = cli, .runs = RUNS_DEFAULT };
	bool with_peers = !cli_has(cli, "no-peers");
	const char *runs = cli_get(cli, "runs");
	struct err err = ERR_INIT;
	uint64_t number;

	if (cli_has(cli, "list"))
		return list_items(cli->json);
	bench_disk_configure(&(struct bench_disk_options){
		.tar = cli_get(cli, "tar"),
		.host_dir = cli_get(cli, "host-dir"),
		.npm_project = cli_get(cli, "npm-project"),
	});
	if (runs) {
		if (parse_u64("--runs", runs, 1, RUNS_MAX, &number, &err) < 0)
			return cli_usage(cli, "%s", err.message);
		bench.runs = (size_t)number;
	}
	for (int i = 0; i < argc; i++) {
		int wrong = choose_named(&bench, argv[i], with_peers);

		if (wrong)
			return wrong;
	}
	for (size_t i = 0; i < ITEMS && argc == 0; i++)
		choose(&bench, i, with_peers);
	progress_init(&bench.progress, "", !cli->quiet, 0);
	init_rows(&bench);
	return run_all(&bench);
}
