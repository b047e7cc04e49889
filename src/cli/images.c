/* images.c - image ls, show, tag, gc, rm: what there is; image_make.c has what brings more */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/table.h"

enum { TREE_DEPTH_MAX = 128 };

static void add_size(struct table *table, json_t *image, const char *key)
{
	char size[16];

	/* A shared image of another home has no own bytes; one not measured yet has no size. */
	if (json_is_integer(json_object_get(image, key)))
		table_add(table, format_size((uint64_t)json_num(image, key), size));
	else
		table_add(table, "-");
}

static void add_row(struct table *table, json_t *image, const char *branch)
{
	const char *name = json_str(image, "name");
	char age[16];

	table_addf(table, "%s%s", branch, *name ? name : "-");
	if (!*name)
		table_paint(table, PAINT_DIM);
	table_add(table, json_str(image, "owner"));
	table_add(table, json_str(image, "id"));
	add_size(table, image, "size_bytes");
	add_size(table, image, "own_bytes");
	add_size(table, image, "shared_bytes");
	table_addf(table, "%lld", (long long)json_num(image, "files"));
	table_add(table, age_since(json_str(image, "created_at"), age));
	table_add(table, json_str(image, "origin"));
}

/* Adds its further names, each with the id; the other columns are only in the first row. */
static void add_other_names(struct table *table, json_t *image)
{
	enum { OTHERS = 6 };
	json_t *name;
	size_t i;

	json_array_foreach (json_object_get(image, "names"), i, name) {
		if (!strcmp(json_string_value(name), json_str(image, "name")))
			continue;
		table_add(table, json_string_value(name));
		table_add(table, json_str(image, "owner"));
		table_add(table, json_str(image, "id"));
		for (int other = 0; other < OTHERS; other++)
			table_add(table, "");
	}
}

static bool has_id(json_t *images, const char *id)
{
	json_t *image;
	size_t i;

	json_array_foreach (images, i, image)
		if (!strcmp(json_str(image, "id"), id))
			return true;
	return false;
}

static bool is_upon(json_t *images, json_t *image, const char *parent)
{
	const char *of = json_str(image, "parent");

	return *parent ? !strcmp(of, parent) : !*of || !has_id(images, of);
}

static size_t last_upon(json_t *images, const char *parent)
{
	json_t *image;
	size_t last = 0, i;

	json_array_foreach (images, i, image)
		if (is_upon(images, image, parent))
			last = i;
	return last;
}

/* Adds the images made from parent, each followed by its own. An image without a parent has no
 * branch. */
static void add_below(
	struct table *table, json_t *images, const char *parent, const char *prefix, unsigned depth)
{
	size_t last = last_upon(images, parent), i;
	json_t *image;

	json_array_foreach (images, i, image) {
		_cleanup_free_ char *branch = NULL, *deeper = NULL;

		if (!is_upon(images, image, parent))
			continue;
		branch = xasprintf("%s%s", prefix, !depth ? "" : i == last ? "└─ " : "├─ ");
		deeper = xasprintf("%s%s", prefix, !depth ? "" : i == last ? "   " : "│  ");
		add_row(table, image, branch);
		if (depth < TREE_DEPTH_MAX && *json_str(image, "id"))
			add_below(table, images, json_str(image, "id"), deeper, depth + 1);
	}
}

static void print_names(json_t *images)
{
	json_t *image;
	size_t i;

	json_array_foreach (images, i, image)
		if (*json_str(image, "name"))
			puts(json_str(image, "name"));
}

int cmd_image_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const heads[] = { "NAME", "OWNER", "ID", ">SIZE", ">OWN", ">SHARED",
		">FILES", ">AGE", "ORIGIN", NULL };
	bool tree = cli_has(cli, "tree"), all = tree || cli_has(cli, "all");
	_cleanup_json_ json_t *answer = NULL;
	json_t *images, *image;
	struct table *table;
	struct err err = ERR_INIT;
	size_t i;

	(void)argc;
	(void)argv;
	if (client_get(cli->client, all ? "/v1/images?all=true" : "/v1/images", &answer, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json_list(steal_ptr(&answer), "images");
	images = json_object_get(answer, "images");
	if (cli_has(cli, "names")) {
		print_names(images);
		return 0;
	}
	if (!json_array_size(images)) {
		cli_note(cli, "no images yet; 'box image build' makes one, 'box image pull' "
			      "fetches one");
		return 0;
	}
	table = table_new(heads);
	table_hide(table, cli_has_owners(images) ? -1 : 1);
	if (tree)
		add_below(table, images, "", "", 0);
	else
		json_array_foreach (images, i, image) {
			add_row(table, image, "");
			add_other_names(table, image);
		}
	return table_print(table);
}

/* ---- show ----------------------------------------------------------------------------------- */

static void show_line(const char *key, const char *value)
{
	_cleanup_free_ char *safe = text_printable(value);

	if (*safe)
		printf("%-12s %s\n", key, safe);
}

static void show_size(json_t *image, const char *name, const char *key)
{
	char size[16];

	if (json_is_integer(json_object_get(image, key)))
		show_line(name, format_size((uint64_t)json_num(image, key), size));
}

static void show_config(json_t *config)
{
	static const char *const keys[] = { "entrypoint", "cmd", "env", "user", "workdir", "ports",
		"labels" };

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		json_t *value = json_object_get(config, keys[i]);
		_cleanup_free_ char *text = NULL;

		if (json_is_string(value)) {
			show_line(keys[i], json_string_value(value));
		} else if (json_array_size(value) || json_object_size(value)) {
			text = json_text(value);
			show_line(keys[i], text);
		}
	}
}

int cmd_image_show(struct cli *cli, int argc, char **argv)
{
	static const char *const keys[] = { "name", "id", "origin", "created_at", "parent",
		"digest", "cache_key" };
	_cleanup_free_ char *path = client_path("/v1/images/%s", argv[0]);
	_cleanup_json_ json_t *image = NULL;
	struct err err = ERR_INIT;
	json_t *layer;
	size_t i;

	(void)argc;
	if (client_get(cli->client, path, &image, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&image));
	for (i = 0; i < ARRAY_LEN(keys); i++)
		show_line(keys[i], json_str(image, keys[i]));
	show_size(image, "size", "size_bytes");
	show_size(image, "own", "own_bytes");
	show_size(image, "shared", "shared_bytes");
	if (json_num(image, "file_bytes"))
		show_size(image, "disk file", "file_bytes");
	printf("%-12s %lld\n", "files", (long long)json_num(image, "files"));
	printf("%-12s %lld\n", "users", (long long)json_num(image, "users"));
	show_config(json_object_get(image, "config"));
	json_array_foreach (json_object_get(image, "layers"), i, layer) {
		_cleanup_free_ char *id = text_printable(json_str(layer, "id"));
		char size[16];

		printf("%-12s %s  %s  shared by %lld\n", "layer", id,
			format_size((uint64_t)json_num(layer, "size_bytes"), size),
			(long long)json_num(layer, "shared_by"));
	}
	return 0;
}

/* ---- tag, gc, rm ---------------------------------------------------------------------------- */

int cmd_image_tag(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/images/%s/tag", argv[0]);
	_cleanup_json_ json_t *image = NULL;
	struct err err = ERR_INIT;

	(void)argc;
	if (client_call(cli->client, "POST", path, json_pack("{s:s}", "name", argv[1]), &image,
		    &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&image));
	if (!cli->quiet)
		puts(argv[1]);
	return 0;
}

int cmd_image_gc(struct cli *cli, int argc, char **argv)
{
	bool dry = cli_has(cli, "dry-run");
	_cleanup_json_ json_t *answer = NULL;
	struct err err = ERR_INIT;
	json_t *id;
	char size[16];
	size_t i;

	(void)argc;
	(void)argv;
	if (client_call(cli->client, "POST", "/v1/images/gc", json_pack("{s:b}", "dry", dry),
		    &answer, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&answer));
	json_array_foreach (json_object_get(answer, "images"), i, id)
		puts(json_string_value(id) ? json_string_value(id) : "");
	cli_note(cli, "%s %zu images, %lld layers, %lld downloads and %lld disk files: %s",
		dry ? "would remove" : "removed",
		json_array_size(json_object_get(answer, "images")),
		(long long)json_num(answer, "layers"), (long long)json_num(answer, "downloads"),
		(long long)json_num(answer, "files"),
		format_size((uint64_t)json_num(answer, "bytes"), size));
	return 0;
}

int cmd_image_rm(struct cli *cli, int argc, char **argv)
{
	return cli_delete_each(cli, "images", argc, argv);
}
