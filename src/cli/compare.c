/* compare.c - compare: boxes side by side, their ended programs, and where their files differ */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/table.h"

enum { BOXES_MAX = 16, COMMAND_COLUMNS = 60 };

static const char *const change_letters[][2] = { { "added", "A " }, { "modified", "M " },
	{ "removed", "D" }, { "same", "" } };

static char *compare_path(struct cli *cli, int argc, char **argv)
{
	const char *limit = cli_get(cli, "limit");
	struct buf path = BUF_INIT;
	char *whole;

	buf_add_str(&path, "/v1/compare");
	for (int i = 0; i < argc; i++) {
		_cleanup_free_ char *part = client_path(i ? "&box=%s" : "?box=%s", argv[i]);

		buf_add_str(&path, part);
	}
	if (limit) {
		_cleanup_free_ char *part = client_path("&limit=%s", limit);

		buf_add_str(&path, part);
	}
	whole = xstrdup(buf_str(&path));
	buf_done(&path);
	return whole;
}

/* ---- figures -------------------------------------------------------------------------------- */

static void add_bytes(struct table *table, json_t *value)
{
	char text[16];

	table_add(table, json_is_integer(value)
				 ? format_size((uint64_t)json_integer_value(value), text)
				 : "-");
}

static void add_count(struct table *table, json_t *value)
{
	if (json_is_integer(value))
		table_addf(table, "%lld", (long long)json_integer_value(value));
	else
		table_add(table, "-");
}

static void add_text(struct table *table, json_t *value)
{
	table_add(table, json_is_string(value) ? json_string_value(value) : "-");
}

/* "2 ended, 1 running" */
static void add_execs(struct table *table, json_t *execs)
{
	size_t running = 0, i;
	json_t *exec;

	if (!json_is_array(execs)) {
		table_add(table, "-");
		return;
	}
	json_array_foreach (execs, i, exec)
		running += json_is_true(json_object_get(exec, "running"));
	table_addf(table, "%zu ended, %zu running", json_array_size(execs) - running, running);
}

static void print_figures(json_t *boxes)
{
	static const struct {
		const char *title, *key;
		void (*add)(struct table *table, json_t *value);
	} rows[] = {
		{ "state", "state", add_text },
		{ "disk", "disk_bytes", add_bytes },
		{ "memory", "memory_bytes", add_bytes },
		{ "processes", "processes", add_count },
		{ "programs", "execs", add_execs },
	};
	const char *heads[BOXES_MAX + 2] = { "" };
	struct table *table;
	json_t *box;
	size_t i;

	json_array_foreach (boxes, i, box)
		if (i < BOXES_MAX)
			heads[i + 1] = json_str(box, "name");
	table = table_new(heads);
	for (size_t row = 0; row < ARRAY_LEN(rows); row++) {
		table_add(table, rows[row].title);
		json_array_foreach (boxes, i, box)
			if (i < BOXES_MAX)
				rows[row].add(table, json_object_get(box, rows[row].key));
	}
	table_print(table);
}

/* ---- programs ------------------------------------------------------------------------------- */

static char *command_text(json_t *argv)
{
	struct buf text = BUF_INIT;
	char *safe;
	json_t *word;
	size_t i;

	json_array_foreach (argv, i, word)
		buf_addf(&text, "%s%s", i ? " " : "", json_string_value(word));
	safe = text_printable(buf_str(&text));
	buf_done(&text);
	return safe;
}

static size_t add_ended(struct table *table, json_t *box)
{
	json_t *exec;
	size_t i, count = 0;

	json_array_foreach (json_object_get(box, "execs"), i, exec) {
		_cleanup_free_ char *command = NULL;
		json_int_t code = json_integer_value(json_object_get(exec, "exit_code"));

		if (json_is_true(json_object_get(exec, "running")))
			continue;
		command = command_text(json_object_get(exec, "argv"));
		table_add(table, json_str(box, "name"));
		table_add(table, json_str(exec, "id"));
		table_add(table, json_str(exec, "reason"));
		table_addf(table, "%lld", (long long)code);
		table_paint(table, code ? PAINT_BAD : PAINT_GOOD);
		table_addf(table, "%.*s", COMMAND_COLUMNS * 4, command);
		count++;
	}
	return count;
}

static void print_ended(json_t *boxes)
{
	static const char *const heads[] = { "BOX", "PROGRAM", "END", ">CODE", "COMMAND", NULL };
	struct table *table = table_new(heads);
	size_t i, count = 0;
	json_t *box;

	json_array_foreach (boxes, i, box)
		count += add_ended(table, box);
	if (!count)
		return table_free(table);
	puts("");
	table_print(table);
}

/* ---- files ---------------------------------------------------------------------------------- */

/* "M 14K" for what differs from the first box, "3K" for what does not, "-" for what is missing. */
static void add_change(struct table *table, json_t *file, const char *box)
{
	const char *change = json_str(json_object_get(file, "change"), box), *letter = "? ";
	json_t *size = json_object_get(json_object_get(file, "size"), box);
	bool is_file = !strcmp(json_str(file, "type"), "file");
	char text[16] = "-";

	for (size_t i = 0; i < ARRAY_LEN(change_letters); i++)
		if (!strcmp(change, change_letters[i][0]))
			letter = change_letters[i][1];
	if (json_is_integer(size) && is_file)
		format_size((uint64_t)json_integer_value(size), text);
	else if (json_is_integer(size))
		snprintf(text, sizeof text, "%s", json_str(file, "type"));
	table_addf(table, "%s%s", letter, !strcmp(letter, "D") ? "" : text);
	table_paint(table, *letter == 'A'   ? PAINT_GOOD
			   : *letter == 'D' ? PAINT_BAD
			   : *letter == 'M' ? PAINT_WARN
					    : PAINT_NONE);
}

static void print_files(struct cli *cli, json_t *boxes, json_t *answer)
{
	json_t *files = json_object_get(answer, "files"), *file, *box;
	size_t count = json_array_size(files), i, k, columns = 0;
	const char *heads[BOXES_MAX + 2] = { 0 };
	struct table *table;

	json_array_foreach (boxes, i, box)
		if (i < BOXES_MAX)
			heads[columns++] = json_str(box, "name");
	heads[columns] = "PATH";
	table = table_new(heads);
	json_array_foreach (files, i, file) {
		_cleanup_free_ char *path = text_printable(json_str(file, "path"));

		for (k = 0; k < columns; k++)
			add_change(table, file, heads[k]);
		table_addf(table, "%s%s", path, !strcmp(json_str(file, "type"), "dir") ? "/" : "");
	}
	if (count)
		table_print(table);
	else
		table_free(table);
	if (!count && !cli->quiet)
		puts("no files differ");
	if (json_is_true(json_object_get(answer, "files_truncated")) && !cli->quiet)
		fprintf(stderr, "box: more than these %zu paths differ; --limit shows more\n",
			count);
}

int cmd_compare(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = compare_path(cli, argc, argv);
	_cleanup_json_ json_t *answer = NULL;
	struct err err = ERR_INIT;
	json_t *boxes;

	if (client_get(cli->client, path, &answer, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&answer));
	boxes = json_object_get(answer, "boxes");
	if (!cli_has(cli, "files")) {
		print_figures(boxes);
		print_ended(boxes);
		puts("");
	}
	print_files(cli, boxes, answer);
	return 0;
}
