/* bench.c - see bench.h: measures this machine, and other sandboxes on it for comparison
 *
 * All rows are in one table. Those of a group are measured together, in rounds: each round runs
 * every row of the group once, in a new random order. So a noisy moment of the machine affects
 * all of them, and no row always follows the heaviest one. A row leaves its group when it has
 * its runs, its time is used up, or it failed three times; the report gives the reason.
 *
 * ^C ends the run after the current measurement; boxes, files and namespaces are removed and the
 * results so far are printed. */
#include "bench/bench.h"
#include "base/clock.h"
#include "base/near.h"
#include "base/signals.h"
#include "base/text.h"
#include "bench/bench_internal.h"
#include <stdio.h>
#include <sys/random.h>

enum {
	FAILURES_MAX = 3,
	BUDGET_OURS_S = 60,
	BUDGET_PEER_S = 15,
	CACHE_RUNS = 5,
};

struct bench {
	const struct bench_options *options;
	struct bench_row rows[BENCH_ITEMS_MAX];
	bool chosen[BENCH_ITEMS_MAX];
	bool counting;		    /* the warm-up is over */
	bool over[BENCH_ITEMS_MAX]; /* has its runs, its time or its failures */
	int64_t spent_us[BENCH_ITEMS_MAX];
	unsigned failures[BENCH_ITEMS_MAX];
	int exit_code; /* of our first row that failed */
	struct bench_boxes *boxes;
	struct bench_peers *peers;
	struct bench_net *net;
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

	signals_catch(numbers, ARRAY_LEN(numbers), on_stop, NULL);
}

/* --- which rows --- */

static void choose(struct bench *bench, size_t index, bool with_peers)
{
	const char *at = bench_items[index].needs;

	if (bench->chosen[index] || (bench_items[index].is_peer && !with_peers))
		return;
	bench->chosen[index] = true;
	while (at && *at) {
		size_t len = strcspn(at, " ");
		_cleanup_free_ char *name = xstrndup(at, len);

		choose(bench, bench_item_find(name), with_peers);
		at += len + (at[len] == ' ');
	}
}

static bool is_family(const char *name, const struct bench_item *item)
{
	static const char *const families[] = { "idle_500", "page_cache", "net" };

	for (size_t i = 0; i < ARRAY_LEN(families); i++)
		if (!strcmp(name, families[i]))
			return text_has_prefix(item->name, name);
	if (!strcmp(name, "vm"))
		return item->group == GROUP_VM;
	return !strcmp(name, "states") && item->group >= GROUP_STATES_MEMORY &&
	       item->group <= GROUP_STATES_MANY;
}

/* `idle_500`, `page_cache`, `net`, `states` and `vm` stand for all of their rows. */
static bool is_named(const char *name, const struct bench_item *item)
{
	return !strcmp(item->name, name) || is_family(name, item);
}

static void choose_named(struct bench *bench, const char *name)
{
	for (size_t i = 0; i < bench_items_count; i++) {
		const struct bench_item *item = &bench_items[i];
		/* A peer that is named is measured, even with --no-peers. */
		bool with_peers =
			bench->options->with_peers || (item->is_peer && !strcmp(item->name, name));

		if (is_named(name, item))
			choose(bench, i, with_peers);
	}
}

static void choose_all(struct bench *bench)
{
	for (size_t i = 0; i < bench->options->name_count; i++)
		choose_named(bench, bench->options->names[i]);
	for (size_t i = 0; i < bench_items_count && !bench->options->name_count; i++)
		choose(bench, i, bench->options->with_peers);
}

int bench_check_name(const char *name, struct err *err)
{
	for (size_t i = 0; i < bench_items_count; i++)
		if (is_named(name, &bench_items[i]))
			return 0;
	for (size_t i = 0; i < bench_items_count; i++)
		if (text_is_near(name, bench_items[i].name))
			return err_set(err, ERR_INVALID, "no benchmark '%s', did you mean '%s'?",
				name, bench_items[i].name);
	return err_set(err, ERR_INVALID, "no benchmark '%s'; 'box bench --list' lists them", name);
}

json_t *bench_list(void)
{
	json_t *list = json_array();

	for (size_t i = 0; i < bench_items_count; i++)
		json_array_append_new(
			list, json_pack("{s:s, s:s, s:s}", "name", bench_items[i].name, "unit",
				      bench_items[i].unit, "summary", bench_items[i].summary));
	return list;
}

/* --- rounds --- */

static void show_progress(struct bench *bench, enum bench_group group, size_t done, size_t total)
{
	bench->options->progress(bench_group_titles[group], done, total, bench->options->arg);
}

static void row_failed(struct bench *bench, size_t index, const struct err *err)
{
	bench->rows[index].failed = true;
	bench->over[index] = true;
	bench_row_note(&bench->rows[index], "%s", err->message);
	if (!bench_items[index].is_peer && !bench->exit_code)
		bench->exit_code = err_kind_exit_code(err->kind);
	if (bench_items[index].second)
		row_failed(bench, bench_item_find(bench_items[index].second), err);
}

/* The second figure counts only if the first does: not in the warm-up. */
static int run_two(struct bench *bench, const struct bench_item *item, double *ret, struct err *err)
{
	double second = 0;
	int status = item->net	     ? bench_net_run(bench->net, item->net, ret, &second, err)
		     : item->is_peer ? bench_peer_run(bench->peers, item->peer, ret, &second, err)
				     : item->pair(bench->boxes, ret, &second, err);

	if (status < 0)
		return -1;
	if (item->second && bench->counting)
		bench_row_add(&bench->rows[bench_item_find(item->second)], second);
	return 0;
}

static int run_item(struct bench *bench, size_t index, double *ret, struct err *err)
{
	const struct bench_item *item = &bench_items[index];
	size_t rss = bench_item_find("daemon_rss");

	if (item->net || item->is_peer || item->pair)
		return run_two(bench, item, ret, err);
	if (item->stream)
		return item->stream(
			bench->boxes, bench->chosen[rss] ? &bench->rows[rss] : NULL, ret, err);
	return item->run(bench->boxes, ret, err);
}

static void measure(struct bench *bench, size_t index)
{
	int64_t start_us = clock_mono_us();
	int64_t budget_us =
		(bench_items[index].is_peer ? BUDGET_PEER_S : BUDGET_OURS_S) * 1000000LL;
	size_t most = bench_items[index].most ?: bench->options->runs;
	struct err err = ERR_INIT;
	double value;

	bench->counting = true;
	if (run_item(bench, index, &value, &err) == 0)
		bench_row_add(&bench->rows[index], value);
	else if (++bench->failures[index] >= FAILURES_MAX)
		return row_failed(bench, index, &err);
	bench->spent_us[index] += clock_mono_us() - start_us;
	if (bench->rows[index].samples.count >= MIN(most, bench->options->runs))
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

/* The rows of the group that still need a run, in random order. */
static size_t next_round(
	const struct bench *bench, enum bench_group group, size_t order[BENCH_ITEMS_MAX])
{
	size_t count = 0;

	for (size_t i = 0; i < bench_items_count; i++) {
		size_t at;

		if (bench_items[i].group != group || !bench->chosen[i] || bench->over[i])
			continue;
		at = random_below(count + 1);
		order[count++] = order[at];
		order[at] = i;
	}
	return count;
}

static void run_rounds(struct bench *bench, enum bench_group group)
{
	size_t order[BENCH_ITEMS_MAX] = { 0 }, count, rounds = 0;

	while (!stopping && (count = next_round(bench, group, order)) > 0) {
		show_progress(bench, group, rounds++, bench->options->runs);
		for (size_t i = 0; i < count && !stopping; i++)
			measure(bench, order[i]);
	}
	bench->options->progress(NULL, 0, 0, bench->options->arg);
}

/* --- preparing a group --- */

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
	if (!bench->peers ||
		bench_peer_probe(bench->peers, bench_items[index].peer, &how, &err) < 0)
		return row_failed(bench, index, &err);
	bench_row_note(&bench->rows[index], "%s", how);
}

/* The first run of anything has cold caches, so no first run is counted. */
static void prepare_ours(struct bench *bench, size_t index)
{
	struct err err = ERR_INIT;
	double value;

	bench->counting = false;
	if (bench_items[index].most == 1 || run_item(bench, index, &value, &err) == 0)
		return;
	if (err.kind != ERR_UNSUPPORTED)
		return row_failed(bench, index, &err);
	bench->over[index] = true;
	bench_row_note(&bench->rows[index], "skipped: %s", err.message);
	if (bench_items[index].second)
		bench_row_note(&bench->rows[bench_item_find(bench_items[index].second)],
			"skipped: %s", err.message);
}

static void fail_group(struct bench *bench, enum bench_group group, const struct err *err)
{
	for (size_t i = 0; i < bench_items_count; i++)
		if (bench_items[i].group == group && bench->chosen[i])
			row_failed(bench, i, err);
}

static bool box_made(size_t made, void *arg)
{
	show_progress(arg, GROUP_MANY, made, BENCH_BOXES);
	return !stopping;
}

static void fill_row(struct bench *bench, const char *name, double value)
{
	size_t index = bench_item_find(name);

	bench->over[index] = true;
	bench_row_add(&bench->rows[index], value);
}

static void prepare_many(struct bench *bench)
{
	struct err err = ERR_INIT;
	double per_box, rss;
	size_t count;

	if (bench_boxes_fill(bench->boxes, BENCH_BOXES, box_made, bench, &per_box, &err) < 0 ||
		bench_boxes_daemon_rss(bench->boxes, &rss, &err) < 0) {
		fail_group(bench, GROUP_MANY, &err);
		return;
	}
	fill_row(bench, "idle_500_daemon_rss", rss);
	fill_row(bench, "idle_500_per_box", per_box);
	count = bench_boxes_count(bench->boxes);
	if (count != BENCH_BOXES)
		bench_row_note(&bench->rows[bench_item_find("list_500")],
			"the daemon listed %zu boxes", count);
}

/* Each measurement gives all rows of the group. */
static void prepare_cache(struct bench *bench)
{
	struct bench_page_cache seen;
	struct err err = ERR_INIT;

	for (size_t run = 0; run < MIN(bench->options->runs, CACHE_RUNS) && !stopping; run++) {
		if (bench_page_cache(bench->boxes, &seen, &err) < 0) {
			fail_group(bench, GROUP_CACHE, &err);
			return;
		}
		fill_row(bench, "page_cache_first", seen.first_ms);
		fill_row(bench, "page_cache_second", seen.second_ms);
		fill_row(bench, "page_cache_first_grown", seen.first_grown);
		fill_row(bench, "page_cache_second_grown", seen.second_grown);
	}
}

static void prepare_net(struct bench *bench, enum bench_group group)
{
	size_t count = group == GROUP_NET_MANY ? bench->options->boxes : 0;
	struct err err = ERR_INIT;

	if (!bench->net && bench_net_open(&bench->net, &err) < 0) {
		fail_group(bench, group, &err);
		return;
	}
	for (size_t made = 0; made < count && !stopping; made++) {
		double nothing;

		show_progress(bench, group, made, count);
		if (bench_net_run(bench->net, NET_ADD_BOX, &nothing, &nothing, &err) < 0) {
			err_wrap(&err, "box %zu of %zu", made + 1, count);
			fail_group(bench, group, &err);
			return;
		}
	}
}

static void prepare(struct bench *bench, enum bench_group group)
{
	if (group == GROUP_MANY)
		prepare_many(bench);
	if (group == GROUP_CACHE)
		prepare_cache(bench);
	if (group == GROUP_NET || group == GROUP_NET_MANY)
		prepare_net(bench, group);
	for (size_t i = 0; i < bench_items_count && !stopping; i++) {
		if (bench_items[i].group != group || !bench->chosen[i] || bench->over[i])
			continue;
		if (bench_items[i].is_second)
			bench->over[i] = true;
		else if (bench_items[i].is_peer)
			prepare_peer(bench, i);
		else if (bench_items[i].run || bench_items[i].stream || bench_items[i].net ||
			 bench_items[i].pair)
			prepare_ours(bench, i);
		else
			bench->over[i] = true;
	}
}

static void note_memory(struct bench *bench)
{
	struct bench_row *row = &bench->rows[bench_item_find("daemon_rss")];

	/* Before the samples are sorted: was it constant over time? */
	if (row->samples.count)
		bench_row_note(row, "first %.1f, last %.1f", row->samples.values[0],
			row->samples.values[row->samples.count - 1]);
}

static void run_group(struct bench *bench, enum bench_group group)
{
	bool any = false;

	for (size_t i = 0; i < bench_items_count; i++)
		any = any || (bench_items[i].group == group && bench->chosen[i]);
	if (!any || stopping)
		return;
	show_progress(bench, group, 0, bench->options->runs);
	prepare(bench, group);
	run_rounds(bench, group);
	if (group == GROUP_STREAMS)
		note_memory(bench);
	if (group == GROUP_MANY)
		bench_boxes_drain(bench->boxes);
	if (group == GROUP_VM)
		bench_vm_done(bench->boxes);
	if (group == GROUP_STATES || group == GROUP_STATES_MANY) {
		bench_wake_done(bench->boxes);
		bench_states_done(bench->boxes);
	}
}

/* --- the report --- */

static void compare_peer(struct bench *bench, size_t index)
{
	const char *versus = bench_items[index].versus ?: "create_first_byte";
	const struct bench_row *ours = &bench->rows[bench_item_find(versus)];

	if (ours->runs)
		bench->rows[index].ratio = bench->rows[index].p50 / ours->p50;
}

static void report(struct bench *bench)
{
	const struct bench_row *rows[BENCH_ITEMS_MAX];
	size_t count = 0;

	for (size_t i = 0; i < bench_items_count; i++)
		bench_row_finish(&bench->rows[i]);
	bench_items_derive(bench->rows);
	for (size_t i = 0; i < bench_items_count; i++) {
		if (!bench->chosen[i])
			continue;
		if (!bench->rows[i].runs && !bench->rows[i].note[0])
			bench_row_note(&bench->rows[i], "not measured");
		if (bench_items[i].about && bench->rows[i].runs)
			bench_row_note(&bench->rows[i], "%s", bench_items[i].about());
		if (bench_items[i].is_peer)
			compare_peer(bench, i);
		rows[count++] = &bench->rows[i];
	}
	if (bench->options->json)
		bench_report_json(rows, count);
	else
		bench_report_table(rows, count);
}

static void init_rows(struct bench *bench)
{
	for (size_t i = 0; i < bench_items_count; i++)
		bench->rows[i] = (struct bench_row){
			.name = bench_items[i].name,
			.unit = bench_items[i].unit,
			.kind = bench_items[i].kind,
			.peer = bench_items[i].is_peer,
		};
}

/* The rows of the network start their own daemon. */
static bool needs_daemon(const struct bench *bench)
{
	for (size_t i = 0; i < bench_items_count; i++)
		if (bench->chosen[i] && bench_items[i].group < GROUP_NET)
			return true;
	return false;
}

static int run_all(struct bench *bench, struct err *err)
{
	if (needs_daemon(bench) && bench_boxes_open(bench->options->client, bench->options->target,
					   &bench->boxes, err) < 0)
		return -1;
	catch_signals();
	for (enum bench_group group = 0; group < GROUP_DERIVED; group++)
		run_group(bench, group);
	bench_net_close(bench->net);
	bench_peers_close(bench->peers);
	bench_boxes_close(bench->boxes);
	bench_cli_done();
	bench_disk_done();
	report(bench);
	for (size_t i = 0; i < bench_items_count; i++)
		bench_row_done(&bench->rows[i]);
	return 0;
}

int bench_run(const struct bench_options *options, int *ret, struct err *err)
{
	struct bench bench = { .options = options };

	bench_disk_configure(&(struct bench_disk_options){
		.tar = options->tar,
		.host_dir = options->host_dir,
		.npm_project = options->npm_project,
	});
	choose_all(&bench);
	init_rows(&bench);
	if (run_all(&bench, err) < 0)
		return -1;
	*ret = stopping ? 130 : bench.exit_code;
	return 0;
}
