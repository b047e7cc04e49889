/* bench.c - `box bench`: its command line, and the bar while it measures */
#include "base/alloc.h"
#include "base/text.h"
#include "bench/bench.h"
#include "cli/cli.h"
#include "cli/progress.h"

static int list_rows(bool json)
{
	json_t *list = bench_list(), *row;
	size_t i;

	if (json)
		return cli_print_json(list);
	json_array_foreach (list, i, row)
		printf("%-24s %-6s %s\n", json_str(row, "name"), json_str(row, "unit"),
			json_str(row, "summary"));
	json_decref(list);
	return 0;
}

static void show_progress(const char *what, size_t done, size_t total, void *arg)
{
	struct progress *progress = arg;

	if (!what)
		return progress_done(progress);
	progress->what = what;
	progress_steps(progress, done, total, NULL);
}

/* Reads --flag as a number from 1 to most; unchanged when it is not given. */
static int read_number(
	struct cli *cli, const char *flag, uint64_t most, size_t *ret, struct err *err)
{
	_cleanup_free_ char *name = xasprintf("--%s", flag);
	const char *text = cli_get(cli, flag);
	uint64_t number;

	if (!text)
		return 0;
	if (parse_u64(name, text, 1, most, &number, err) < 0)
		return -1;
	*ret = (size_t)number;
	return 0;
}

int cmd_bench(struct cli *cli, int argc, char **argv)
{
	struct progress progress;
	struct bench_options options = {
		.client = cli->client,
		.target = cli->target,
		.names = (const char *const *)argv,
		.name_count = (size_t)argc,
		.runs = BENCH_RUNS,
		.boxes = BENCH_BOXES,
		.with_peers = !cli_has(cli, "no-peers"),
		.json = cli->json,
		.tar = cli_get(cli, "tar"),
		.host_dir = cli_get(cli, "host-dir"),
		.npm_project = cli_get(cli, "npm-project"),
		.progress = show_progress,
		.arg = &progress,
	};
	struct err err = ERR_INIT;
	int code;

	if (cli_has(cli, "list"))
		return list_rows(cli->json);
	if (read_number(cli, "runs", BENCH_RUNS_MAX, &options.runs, &err) < 0 ||
		read_number(cli, "boxes", BENCH_BOXES_MAX, &options.boxes, &err) < 0)
		return cli_usage(cli, "%s", err.message);
	for (int i = 0; i < argc; i++)
		if (bench_check_name(argv[i], &err) < 0)
			return cli_usage(cli, "%s", err.message);
	progress_init(&progress, "", !cli->quiet, 0);
	if (bench_run(&options, &code, &err) < 0)
		return cli_fail(cli, &err);
	return code;
}
