/* images.c - image build, ls, show, rm */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/table.h"

struct build {
	struct cli *cli;
	struct progress bar;
	bool on_terminal;
	char stage[32];
	json_t *image; /* set at the end */
};

/* On a terminal a bar; else a line for each stage, so that logs stay short. */
static void show_progress(struct build *build, json_t *line)
{
	const char *stage = json_str(line, "stage"), *detail = json_str(line, "detail");
	char text[256];

	if (build->on_terminal) {
		snprintf(text, sizeof text, "%s%s%s", stage, *detail ? ": " : "", detail);
		progress_steps(&build->bar, (uint64_t)json_num(line, "done"),
			(uint64_t)json_num(line, "total"), text);
	} else if (strcmp(stage, build->stage)) {
		snprintf(build->stage, sizeof build->stage, "%s", stage);
		cli_note(build->cli, "image: %s", stage);
	}
}

static int on_build_line(json_t *line, const char *text, size_t len, void *arg, struct err *err)
{
	struct build *build = arg;
	const char *type = json_str(line, "type");

	if (build->cli->json)
		printf("%.*s\n", (int)len, text);
	if (build->cli->json)
		fflush(stdout);
	if (!strcmp(type, "progress") && !build->cli->json && !build->cli->quiet)
		show_progress(build, line);
	if (!strcmp(type, "error"))
		return client_api_error(500, text, len, err);
	if (!strcmp(type, "done"))
		build->image = json_incref(json_object_get(line, "image"));
	return 0;
}

int cmd_image_build(struct cli *cli, int argc, char **argv)
{
	struct build build = { .cli = cli, .on_terminal = isatty(STDERR_FILENO) };
	json_t *body = json_object(), *packages = json_array();
	struct err err = ERR_INIT;
	char size[16];
	int result;

	if (argc)
		json_object_set_new(body, "name", json_string(argv[0]));
	for (size_t i = 0; cli_nth(cli, "package", i); i++)
		json_array_append_new(packages, json_string(cli_nth(cli, "package", i)));
	json_object_set_new(body, "packages", packages);
	if (cli_has(cli, "minimal"))
		json_object_set_new(body, "minimal", json_true());
	progress_init(&build.bar, "image", !cli->json && !cli->quiet, 0);
	result = client_lines(cli->client, "POST", "/v1/images", body, on_build_line, &build, &err);
	progress_done(&build.bar);
	if (result == 0 && !build.image)
		result = err_set(&err, ERR_PROTOCOL, "the build ended without an image");
	if (result < 0)
		return cli_fail(cli, &err);
	if (!cli->json)
		printf("%s  %s  %s\n", json_str(build.image, "name"), json_str(build.image, "id"),
			format_size((uint64_t)json_num(build.image, "size_bytes"), size));
	json_decref(build.image);
	return 0;
}

int cmd_image_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const heads[] = { "NAME", "ID", ">SIZE", ">FILES", ">AGE", "ORIGIN",
		NULL };
	_cleanup_json_ json_t *answer = NULL;
	json_t *image;
	struct table *table;
	struct err err = ERR_INIT;
	size_t i;

	(void)argc;
	(void)argv;
	if (client_get(cli->client, "/v1/images", &answer, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json_list(steal_ptr(&answer), "images");
	if (cli_has(cli, "names")) {
		json_array_foreach (json_object_get(answer, "images"), i, image)
			puts(json_str(image, "name"));
		return 0;
	}
	if (!json_array_size(json_object_get(answer, "images"))) {
		cli_note(cli, "no images yet; 'box image build' makes one");
		return 0;
	}
	table = table_new(heads);
	json_array_foreach (json_object_get(answer, "images"), i, image) {
		char size[16], age[16];

		table_add(table, json_str(image, "name"));
		table_add(table, json_str(image, "id"));
		table_add(table, format_size((uint64_t)json_num(image, "size_bytes"), size));
		table_addf(table, "%lld", (long long)json_num(image, "files"));
		table_add(table, age_since(json_str(image, "created_at"), age));
		table_add(table, json_str(image, "origin"));
	}
	return table_print(table);
}

int cmd_image_show(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/images/%s", argv[0]);
	_cleanup_json_ json_t *image = NULL;
	struct err err = ERR_INIT;
	char size[16];

	(void)argc;
	if (client_get(cli->client, path, &image, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&image));
	printf("name     %s\nid       %s\norigin   %s\ncreated  %s\nsize     %s\nfiles    "
	       "%lld\nrootfs   %s\n",
		json_str(image, "name"), json_str(image, "id"), json_str(image, "origin"),
		json_str(image, "created_at"),
		format_size((uint64_t)json_num(image, "size_bytes"), size),
		(long long)json_num(image, "files"), json_str(image, "rootfs"));
	return 0;
}

int cmd_image_rm(struct cli *cli, int argc, char **argv)
{
	json_t *removed = json_array();
	int code = 0;

	for (int i = 0; i < argc; i++) {
		_cleanup_free_ char *path = client_path("/v1/images/%s", argv[i]);
		struct err err = ERR_INIT;

		if (client_call(cli->client, "DELETE", path, NULL, NULL, &err) < 0) {
			code = cli_fail(cli, &err);
			continue;
		}
		json_array_append_new(removed, json_string(argv[i]));
		if (!cli->json && !cli->quiet)
			puts(argv[i]);
	}
	if (cli->json)
		cli_print_json(json_pack("{s:O}", "removed", removed));
	json_decref(removed);
	return code;
}
