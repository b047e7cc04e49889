/* workspaces.c - workspace ls, get, rm: what `box rm --keep-workspace` has kept */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/cp_internal.h"
#include "cli/download.h"
#include "cli/outtree.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/untar.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { BAR_DELAY_MS = 500 };

/* ---- ls ------------------------------------------------------------------------------------- */

struct listing {
	struct cli *cli;
	bool ended;
};

static int on_entry(json_t *line, const char *text, size_t len, void *arg, struct err *err)
{
	struct listing *listing = arg;
	const char *type = json_str(line, "type");
	_cleanup_free_ char *path = text_printable(json_str(line, "path"));
	char size[16] = "-";

	if (!strcmp(type, "error"))
		return client_api_error(500, text, len, err);
	if (listing->cli->json)
		printf("%.*s\n", (int)len, text);
	if (!strcmp(type, "end")) {
		listing->ended = true;
		return 0;
	}
	if (listing->cli->json)
		return 0;
	if (!strcmp(type, "file"))
		format_size((uint64_t)json_num(line, "size"), size);
	printf("%s %7s %.19s %s%s\n", json_str(line, "mode"), size, json_str(line, "mtime"), path,
		!strcmp(type, "dir") ? "/" : "");
	return 0;
}

static int list_contents(struct cli *cli, const char *id)
{
	_cleanup_free_ char *path = client_path("/v1/workspaces/%s", id);
	struct listing listing = { .cli = cli };
	struct err err = ERR_INIT;

	if (client_lines(cli->client, "GET", path, NULL, on_entry, &listing, &err) == 0 &&
		!listing.ended)
		err_set(&err, ERR_PROTOCOL, "the list is not complete");
	return err.kind ? cli_fail(cli, &err) : 0;
}

int cmd_workspace_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const heads[] = { "ID", "BOX", ">SIZE", ">FILES", ">AGE", NULL };
	_cleanup_json_ json_t *answer = NULL;
	struct err err = ERR_INIT;
	struct table *table;
	json_t *one;
	size_t i;

	if (argc)
		return list_contents(cli, argv[0]);
	if (client_get(cli->client, "/v1/workspaces", &answer, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json_list(steal_ptr(&answer), "workspaces");
	if (cli_has(cli, "names")) {
		json_array_foreach (json_object_get(answer, "workspaces"), i, one)
			puts(json_str(one, "id"));
		return 0;
	}
	if (!json_array_size(json_object_get(answer, "workspaces"))) {
		cli_note(cli, "none kept; 'box rm --keep-workspace' keeps one");
		return 0;
	}
	table = table_new(heads);
	json_array_foreach (json_object_get(answer, "workspaces"), i, one) {
		char size[16], age[16];

		table_add(table, json_str(one, "id"));
		table_add(table, json_str(one, "box"));
		table_add(table, format_size((uint64_t)json_num(one, "size_bytes"), size));
		table_addf(table, "%lld", (long long)json_num(one, "files"));
		table_add(table, age_since(json_str(one, "kept_at"), age));
	}
	return table_print(table);
}

/* ---- get ------------------------------------------------------------------------------------ */

struct fetch {
	struct progress bar;
	struct untar *untar;
	uint64_t done;
};

static int on_data(const void *data, size_t len, void *arg, struct err *err)
{
	struct fetch *fetch = arg;

	if (client_interrupted)
		return err_set(err, ERR_CANCELLED, "unpacking was interrupted");
	fetch->done += len;
	progress_bytes(&fetch->bar, fetch->done, 0);
	return untar_feed(fetch->untar, data, len, err);
}

static int fetch_into(
	struct cli *cli, const char *path, int dir, uint64_t *ret_files, struct err *err)
{
	struct untar_spec spec = { .dir_fd = dir };
	struct fetch fetch = { .untar = untar_new(&spec) };
	struct client_request request = {
		.method = "GET",
		.path = path,
		.data = on_data,
		.arg = &fetch,
	};
	int result;

	progress_init(&fetch.bar, "workspace", !cli->quiet && !cli->json, BAR_DELAY_MS);
	result = client_do(cli->client, &request, NULL, err);
	if (result == 0)
		result = untar_finish(fetch.untar, err);
	progress_done(&fetch.bar);
	if (result == 0 && untar_skipped(fetch.untar))
		cli_note(cli, "left out %llu sockets, pipes or devices",
			(unsigned long long)untar_skipped(fetch.untar));
	*ret_files = untar_files(fetch.untar);
	untar_free(fetch.untar);
	return result;
}

static int fetch_new(
	struct cli *cli, const char *path, const char *target, uint64_t *ret_files, struct err *err)
{
	_cleanup_free_ char *given = xstrdup(target), *folder = NULL;
	_cleanup_close_ int dir = -1, below = -1;
	struct outtree tree;
	int result;

	for (size_t len = strlen(given); len > 1 && given[len - 1] == '/';)
		given[--len] = '\0';
	folder = place_folder(given);
	if (outdir_open(folder, O_RDONLY, &dir, err) < 0)
		return -1;
	outtree_begin(&tree, dir, strrchr(given, '/') ? strrchr(given, '/') + 1 : given);
	if (mkdirat(dir, tree.temp, 0755) < 0 ||
		(below = outdir_open_beneath(dir, tree.temp, O_RDONLY | O_DIRECTORY)) < 0)
		result = err_sys(err, errno, "mkdir '%s'", target);
	else
		result = fetch_into(cli, path, below, ret_files, err);
	return outtree_end(&tree, result, err);
}

/* Files of the same name are replaced. */
static int fetch_over(
	struct cli *cli, const char *path, const char *target, uint64_t *ret_files, struct err *err)
{
	_cleanup_close_ int dir = -1;

	if (outdir_open(target, O_RDONLY, &dir, err) < 0)
		return -1;
	if (fetch_into(cli, path, dir, ret_files, err) == 0)
		return 0;
	if (*ret_files && !err->hint[0])
		err_hint(err,
			"the folder existed before; what was copied before the error is in it");
	return -1;
}

/* Unpacks into a new folder, which is complete or not there, or into an existing one. */
static int unpack(struct cli *cli, const char *path, const char *target, struct err *err)
{
	uint64_t files = 0;
	struct stat st;
	bool is_new = lstat(target, &st) < 0 && errno == ENOENT;

	if ((is_new ? fetch_new : fetch_over)(cli, path, target, &files, err) < 0)
		return -1;
	if (cli->json)
		cli_print_json(
			json_pack("{s:s, s:I}", "folder", target, "files", (json_int_t)files));
	else if (!cli->quiet)
		puts(target);
	return 0;
}

int cmd_workspace_get(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/workspaces/%s/archive", argv[0]);
	_cleanup_free_ char *folder =
		argc > 1 ? xstrdup(argv[1]) : xasprintf("workspace-%s", argv[0]);
	const char *archive = cli_get(cli, "output");
	struct err err = ERR_INIT;
	uint64_t bytes;

	if (archive && argc > 1)
		return cli_usage(cli, "either a folder or -o, not both");
	if (!archive)
		return unpack(cli, path, folder, &err) < 0 ? cli_fail(cli, &err) : 0;
	if (download(cli, argv[0], path, archive, &bytes, &err) < 0)
		return cli_fail(cli, &err);
	if (!strcmp(archive, "-"))
		return 0;
	if (cli->json)
		return cli_print_json(
			json_pack("{s:s, s:I}", "file", archive, "bytes", (json_int_t)bytes));
	if (!cli->quiet)
		puts(archive);
	return 0;
}

int cmd_workspace_rm(struct cli *cli, int argc, char **argv)
{
	return cli_delete_each(cli, "workspaces", argc, argv);
}
