/* audit.c - what boxes tried, allowed or refused, and whether the log is intact
 *
 * Existing lines are a table; new lines are printed one by one with the same columns. */
#include "base/alloc.h"
#include "base/text.h"
#include "audit/audit.h"
#include "cli/cli.h"
#include "cli/table.h"
#include <time.h>

enum {
	PAGE = 1000,
	RECENT = 50, /* shown when nothing else is asked for */
	RETRIES = 100,
	RETRY_MS = 100,
	EXIT_BROKEN = 1,
};

enum column { TIME, BOX, WHAT, WHERE, VERDICT, WHY, BYTES, PROCESS, COLUMNS };

static const char *const heads[] = {
	[TIME] = "TIME",
	[BOX] = "BOX",
	[WHAT] = "WHAT",
	[WHERE] = "WHERE",
	[VERDICT] = "VERDICT",
	[WHY] = "WHY",
	[BYTES] = "OUT/IN",
	[PROCESS] = "PROCESS",
	[COLUMNS] = NULL,
};

/* For lines that come one by one; the last column is not padded. */
static const int widths[COLUMNS] = {
	[TIME] = 24,
	[BOX] = 12,
	[WHAT] = 12,
	[WHERE] = 32,
	[VERDICT] = 8,
	[WHY] = 24,
	[BYTES] = 12,
};

/* ---- a line in columns ---------------------------------------------------------------------- */

static void put_what(struct buf *out, json_t *line)
{
	/* The most telling field, by type. */
	static const char *const details[] = { "qtype", "method", "protocol", "state", "limit" };

	buf_add_str(out, json_str(line, "type"));
	for (size_t i = 0; i < ARRAY_LEN(details); i++)
		if (*json_str(line, details[i])) {
			buf_addf(out, " %s", json_str(line, details[i]));
			break;
		}
	if (json_num(line, "count"))
		buf_addf(out, " x%lld", (long long)json_num(line, "count"));
}

static void put_where(struct buf *out, json_t *line)
{
	const char *host = json_str(line, "host"), *name = *host ? host : json_str(line, "name");
	const char *address = json_str(line, "address");

	if (!*name && strchr(address, ':'))
		buf_addf(out, "[%s]", address);
	else
		buf_add_str(out, *name ? name : address);
	if (json_num(line, "port"))
		buf_addf(out, ":%lld", (long long)json_num(line, "port"));
	buf_add_str(out, json_str(line, "path"));
	if (json_num(line, "version"))
		buf_addf(out, "version %lld", (long long)json_num(line, "version"));
}

static void put_why(struct buf *out, json_t *line)
{
	static const char *const keys[] = { "reason", "rule", "end", "change", "who" };

	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		/* Most lines are the box's own; only other askers are shown. */
		if (*json_str(line, keys[i]) && !text_has_prefix(json_str(line, keys[i]), "box "))
			buf_addf(out, "%s%s", out->len ? ", " : "", json_str(line, keys[i]));
	if (json_num(line, "lost"))
		buf_addf(out, "; %lld lost", (long long)json_num(line, "lost"));
	if (json_num(line, "dropped"))
		buf_addf(out, "; %lld not written", (long long)json_num(line, "dropped"));
}

static void put_bytes(struct buf *out, json_t *line)
{
	char sent[16], received[16];

	if (json_object_get(line, "bytes_out"))
		buf_addf(out, "%s/%s",
			format_size((uint64_t)MAX(json_num(line, "bytes_out"), 0), sent),
			format_size((uint64_t)MAX(json_num(line, "bytes_in"), 0), received));
}

static void put_process(struct buf *out, json_t *line)
{
	json_t *process = json_object_get(line, "process");

	if (process)
		buf_addf(out, "%lld %s%s", (long long)json_num(process, "pid"),
			json_str(process, "command"),
			*json_str(process, "told_by") ? " (says the box)" : "");
}

/* Appends one cell; text_printable makes it safe for a terminal. */
static void put_cell(struct buf *out, json_t *line, enum column column)
{
	const char *box = json_str(line, "box_name");

	switch (column) {
	case TIME:
		return buf_add_str(out, json_str(line, "at"));
	case BOX:
		return buf_add_str(out, *box ? box : json_str(line, "box"));
	case WHAT:
		return put_what(out, line);
	case WHERE:
		return put_where(out, line);
	case VERDICT:
		return buf_add_str(out, json_str(line, "verdict"));
	case WHY:
		return put_why(out, line);
	case BYTES:
		return put_bytes(out, line);
	case PROCESS:
		return put_process(out, line);
	case COLUMNS:
		return;
	}
}

static void add_row(struct table *table, json_t *line)
{
	bool refused = !strcmp(json_str(line, "verdict"), "refused");

	for (enum column column = 0; column < COLUMNS; column++) {
		struct buf text = BUF_INIT;

		put_cell(&text, line, column);
		table_add(table, buf_str(&text));
		if (column == VERDICT)
			table_paint(table, refused ? PAINT_BAD : PAINT_NONE);
		buf_done(&text);
	}
}

static void print_line(json_t *line)
{
	for (enum column column = 0; column < COLUMNS; column++) {
		struct buf text = BUF_INIT;
		_cleanup_free_ char *safe = NULL;
		int pad;

		put_cell(&text, line, column);
		safe = text_printable(buf_str(&text));
		pad = widths[column] - (int)text_columns(safe);
		printf("%s%*s%s", safe, column + 1 < COLUMNS && pad > 0 ? pad : 0, "",
			column + 1 < COLUMNS ? "  " : "\n");
		buf_done(&text);
	}
}

/* ---- reading -------------------------------------------------------------------------------- */

struct reading {
	struct cli *cli;
	const char *box, *verdict, *log;
	bool has_since;
	uint64_t since; /* the first line not seen yet, when has_since */
	uint64_t count; /* lines still wanted */
};

static char *audit_path(const struct reading *reading, bool follow)
{
	_cleanup_free_ char *path = client_path("/v1/audit?limit=%llu&follow=%s",
		(unsigned long long)MIN(reading->count, PAGE), follow ? "true" : "false");
	_cleanup_free_ char *since =
		reading->has_since ? client_path("&since=%llu", (unsigned long long)reading->since)
				   : NULL;
	_cleanup_free_ char *box = reading->box ? client_path("&box=%s", reading->box) : NULL;
	_cleanup_free_ char *verdict =
		reading->verdict ? client_path("&verdict=%s", reading->verdict) : NULL;

	_cleanup_free_ char *log = reading->log ? client_path("&log=%s", reading->log) : NULL;

	return xasprintf("%s%s%s%s%s", path, since ? since : "", box ? box : "",
		verdict ? verdict : "", log ? log : "");
}

static int on_line(json_t *line, const char *text, size_t len, void *arg, struct err *err)
{
	struct reading *reading = arg;

	if (!strcmp(json_str(line, "type"), "error") && json_object_get(line, "error"))
		return client_api_error(500, text, len, err);
	if (json_object_get(line, "seq")) {
		reading->since = (uint64_t)json_num(line, "seq") + 1;
		reading->has_since = true;
	}
	if (reading->cli->json)
		printf("%.*s\n", (int)len, text);
	else if (json_object_get(line, "seq"))
		print_line(line);
	else
		cli_note(reading->cli, "%lld lines are no longer kept",
			(long long)json_num(line, "lost"));
	fflush(stdout);
	return 0;
}

/* Continues where it was when the daemon is restarted; a daemon that does not run at all is
 * reported at once. */
static int follow(struct reading *reading)
{
	struct cli *cli = reading->cli;
	struct err err = ERR_INIT;

	if (client_get(cli->client, "/v1/health", NULL, &err) < 0)
		return cli_fail(cli, &err);
	for (int tries = 0; tries < RETRIES; tries++) {
		_cleanup_free_ char *path = audit_path(reading, true);
		uint64_t seen = reading->since;

		if (client_lines(cli->client, "GET", path, NULL, on_line, reading, &err) < 0 &&
			err.kind != ERR_UNAVAILABLE)
			break;
		if (reading->since > seen)
			tries = 0;
		nanosleep(&(struct timespec){ .tv_nsec = RETRY_MS * 1000000 }, NULL);
	}
	return cli_fail(cli, &err);
}

static void show_page(const struct cli *cli, json_t *lines)
{
	struct table *table = cli->json ? NULL : table_new(heads);
	json_t *line;
	size_t i;

	json_array_foreach (lines, i, line)
		if (cli->json)
			cli_print_json(json_incref(line));
		else
			add_row(table, line);
	if (table && json_array_size(lines))
		table_print(table);
	else
		table_free(table);
}

/* Nothing was found in the whole log: checks that the box exists. */
static int check_box(struct reading *reading)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s", reading->box);
	struct err err = ERR_INIT;

	return client_get(reading->cli->client, path, NULL, &err) < 0 ? cli_fail(reading->cli, &err)
								      : 0;
}

static int show(struct reading *reading)
{
	struct cli *cli = reading->cli;
	struct err err = ERR_INIT;
	bool more = true, any = false;

	while (more && reading->count) {
		_cleanup_free_ char *path = audit_path(reading, false);
		_cleanup_json_ json_t *page = NULL;
		json_t *lines;

		if (client_get(cli->client, path, &page, &err) < 0)
			return cli_fail(cli, &err);
		lines = json_object_get(page, "lines");
		show_page(cli, lines);
		any = any || json_array_size(lines);
		reading->count -= MIN(reading->count, json_array_size(lines));
		/* Without --since the newest were asked for: there are no more. */
		more = reading->has_since && json_is_true(json_object_get(page, "more"));
		reading->since = (uint64_t)json_num(page, "next");
	}
	if (!any)
		cli_note(cli, "nothing was found%s",
			reading->has_since || (!reading->box && !reading->verdict)
				? ""
				: " among the newest lines; --since 0 looks through all");
	return !any && reading->box && reading->has_since ? check_box(reading) : 0;
}

/* ---- checking ------------------------------------------------------------------------------- */

static int fetch_check(struct cli *cli, const char *log, json_t **ret, struct err *err)
{
	const char *folder = cli_get(cli, "folder");
	_cleanup_free_ char *path =
		log ? client_path("/v1/audit/verify?log=%s", log) : xstrdup("/v1/audit/verify");

	if (folder) {
		*ret = audit_verify(folder, err);
		return *ret ? 0 : -1;
	}
	if (client_get(cli->client, path, ret, err) == 0)
		return 0;
	if (err->kind == ERR_UNAVAILABLE && cli->conf.home)
		err_hint(err, "'box audit --verify --folder %.180s/audit' needs no daemon",
			cli->conf.home);
	return -1;
}

static void tell_notes(const struct cli *cli, json_t *notes)
{
	struct buf text = BUF_INIT;
	json_t *note;
	size_t i;

	json_array_foreach (notes, i, note)
		buf_addf(&text, "%s%lld", i ? ", " : "", (long long)json_integer_value(note));
	if (text.len)
		cli_note(cli,
			"the log itself tells of trouble in number %s ('box audit --since N -n 1' "
			"shows it)",
			buf_str(&text));
	buf_done(&text);
}

static int check_one(struct cli *cli, const char *log)
{
	_cleanup_json_ json_t *result = NULL;
	struct err err = ERR_INIT;
	bool ok;

	if (fetch_check(cli, log, &result, &err) < 0)
		return cli_fail(cli, &err);
	ok = json_is_true(json_object_get(result, "ok"));
	if (cli->json) {
		cli_print_json(steal_ptr(&result));
		return ok ? 0 : EXIT_BROKEN;
	}
	tell_notes(cli, json_object_get(result, "notes"));
	if (!ok) {
		char line[32] = "";

		if (json_num(result, "line"))
			snprintf(line, sizeof line, ", line %lld",
				(long long)json_num(result, "line"));
		err_set(&err, ERR_PROTOCOL, "the audit log is broken: %s%s: %s",
			json_str(result, "file"), line, json_str(result, "problem"));
		cli_fail(cli, &err);
		return EXIT_BROKEN;
	}
	printf("whole: %s%s%lld lines, number %lld to %lld, sha256 of the last %s\n",
		log ? log : "", log ? ": " : "", (long long)json_num(result, "lines"),
		(long long)json_num(result, "first"), (long long)json_num(result, "last"),
		json_str(result, "hash"));
	return 0;
}

/* Checks the common log, and those of trees. */
static int check(struct cli *cli)
{
	_cleanup_json_ json_t *answer = NULL;
	const char *log = cli_get(cli, "log");
	struct err err = ERR_INIT;
	int code = check_one(cli, log);
	json_t *one;
	size_t i;

	if (log || cli_get(cli, "folder") || code > EXIT_BROKEN)
		return code;
	if (client_get(cli->client, "/v1/audit?limit=0", &answer, &err) < 0)
		return cli_fail(cli, &err);
	json_array_foreach (json_object_get(answer, "logs"), i, one) {
		int status = check_one(cli, json_string_value(one));

		code = status ? status : code;
	}
	return code;
}

/* ---- the command ---------------------------------------------------------------------------- */

int cmd_audit(struct cli *cli, int argc, char **argv)
{
	struct reading reading = { .cli = cli,
		.box = argc ? argv[0] : NULL,
		.verdict = cli_get(cli, "verdict"),
		.log = cli_get(cli, "log"),
		.has_since = cli_get(cli, "since") };
	const char *count = cli_get(cli, "count");
	struct err err = ERR_INIT;

	if (cli_get(cli, "folder") && !cli_has(cli, "verify"))
		return cli_usage(cli, "--folder is for --verify");
	if (cli_has(cli, "verify"))
		return argc || cli_has(cli, "follow")
			       ? cli_usage(cli, "--verify checks the whole log")
			       : check(cli);
	reading.count = reading.has_since ? UINT64_MAX : RECENT;
	if ((count && parse_u64("--count", count, 0, reading.has_since ? INT64_MAX : PAGE,
			      &reading.count, &err) < 0) ||
		(reading.has_since && parse_u64("--since", cli_get(cli, "since"), 0, INT64_MAX,
					      &reading.since, &err) < 0))
		return cli_fail(cli, &err);
	return cli_has(cli, "follow") ? follow(&reading) : show(&reading);
}
