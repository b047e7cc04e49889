/* pools.c - pool show, grow, scrub */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/table.h"

static void show_pool(json_t *pool)
{
	static const char *const texts[] = { "kind", "path", "quota" };
	static const struct {
		const char *title, *key;
	} sizes[] = {
		{ "size", "total_bytes" },
		{ "used", "used_bytes" },
		{ "free", "free_bytes" },
		{ "file takes", "file_bytes" },
		{ "host has", "host_free_bytes" },
		{ "grows to", "size_max_bytes" },
	};
	char size[16];

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		_cleanup_free_ char *safe = text_printable(json_str(pool, texts[i]));

		printf("%-12s %s\n", texts[i], safe);
	}
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		if (json_num(pool, sizes[i].key))
			printf("%-12s %s\n", sizes[i].title,
				format_size((uint64_t)json_num(pool, sizes[i].key), size));
	printf("%-12s %lld\n", "spare disks", (long long)json_num(pool, "spares"));
	printf("%-12s %lld\n", "in trash", (long long)json_num(pool, "trash"));
	if (json_is_true(json_object_get(pool, "full")))
		printf("%-12s %s\n", "full", "yes: no new boxes until there is room");
	if (*json_str(pool, "why"))
		printf("%-12s %s\n", "because", json_str(pool, "why"));
}

static int answer_pool(struct cli *cli, json_t *pool)
{
	if (cli->json)
		return cli_print_json(pool);
	if (!cli->quiet)
		show_pool(pool);
	json_decref(pool);
	return 0;
}

int cmd_pool_show(struct cli *cli, int argc, char **argv)
{
	struct err err = ERR_INIT;
	json_t *pool = NULL;

	(void)argc;
	(void)argv;
	if (client_get(cli->client, "/v1/pool", &pool, &err) < 0)
		return cli_fail(cli, &err);
	return answer_pool(cli, pool);
}

int cmd_pool_grow(struct cli *cli, int argc, char **argv)
{
	struct err err = ERR_INIT;
	json_t *pool = NULL;
	uint64_t bytes = 0;

	if (argc && parse_size("SIZE", argv[0], 1, INT64_MAX, &bytes, &err) < 0)
		return cli_fail(cli, &err);
	if (client_call(cli->client, "POST", "/v1/pool/grow",
		    json_pack("{s:I}", "bytes", (json_int_t)bytes), &pool, &err) < 0)
		return cli_fail(cli, &err);
	return answer_pool(cli, pool);
}

/* ---- scrub ---------------------------------------------------------------------------------- */

struct scrub {
	struct cli *cli;
	struct progress bar;
	bool ended;
	int64_t errors;
};

static int on_scrub_line(json_t *line, const char *text, size_t len, void *arg, struct err *err)
{
	struct scrub *scrub = arg;
	const char *type = json_str(line, "type");

	if (scrub->cli->json) {
		printf("%.*s\n", (int)len, text);
		fflush(stdout);
	}
	if (!strcmp(type, "error"))
		return client_api_error(500, text, len, err);
	if (!strcmp(type, "progress"))
		progress_bytes(&scrub->bar, (uint64_t)json_num(line, "done"),
			(uint64_t)json_num(line, "total"));
	if (!strcmp(type, "done")) {
		scrub->ended = true;
		scrub->errors = json_num(line, "errors");
	}
	return 0;
}

int cmd_pool_scrub(struct cli *cli, int argc, char **argv)
{
	struct scrub scrub = { .cli = cli };
	struct err err = ERR_INIT;
	int result;

	(void)argc;
	(void)argv;
	progress_init(&scrub.bar, "scrub", !cli->quiet && !cli->json, 0);
	result = client_lines(
		cli->client, "POST", "/v1/pool/scrub", NULL, on_scrub_line, &scrub, &err);
	progress_done(&scrub.bar);
	if (result == 0 && !scrub.ended)
		result = err_set(&err, ERR_PROTOCOL, "the scrub ended without a result");
	if (result == 0 && scrub.errors) {
		err_set(&err, ERR_SYSTEM, "%lld checksums are wrong", (long long)scrub.errors);
		result = err_hint(&err, "the kernel log names the files");
	}
	if (result < 0)
		return cli_fail(cli, &err);
	cli_note(cli, "all checksums are right");
	return 0;
}
