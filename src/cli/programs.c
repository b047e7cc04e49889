/* programs.c - ps, attach, logs: programs that run or ran in a box */
#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/session.h"
#include "cli/table.h"
#include <errno.h>
#include <signal.h>
#include <time.h>

enum { LOGS_RETRIES = 100, LOGS_PAUSE_MS = 100, LOGS_TAIL_MAX = 1000000 };

/* ---- ps -------------------------------------------------------------------------------------- */

static void format_cpu(uint64_t us, char *out, size_t size)
{
	if (us < 60000000)
		snprintf(out, size, "%.2fs", (double)us / 1e6);
	else
		snprintf(out, size, "%llum%02llus", (unsigned long long)(us / 60000000),
			(unsigned long long)(us / 1000000 % 60));
}

static int print_processes(json_t *answer)
{
	static const char *const heads[] = { ">PID", ">PPID", ">UID", "S", ">RSS", ">CPU", "EXEC",
		"COMMAND", NULL };
	struct table *table = table_new(heads);
	json_t *process;
	size_t i;

	json_array_foreach (json_object_get(answer, "processes"), i, process) {
		char rss[16], cpu[32];

		format_cpu((uint64_t)json_num(process, "cpu_us"), cpu, sizeof cpu);
		table_addf(table, "%lld", (long long)json_num(process, "pid"));
		table_addf(table, "%lld", (long long)json_num(process, "ppid"));
		table_addf(table, "%lld", (long long)json_num(process, "uid"));
		table_add(table, json_str(process, "state"));
		table_add(table, format_size((uint64_t)json_num(process, "rss_bytes"), rss));
		table_add(table, cpu);
		table_add(table, *json_str(process, "exec") ? json_str(process, "exec") : "-");
		table_add(table, json_str(process, "command"));
	}
	return table_print(table);
}

/* argv joined with spaces, without quoting: for people only. */
static void add_command(struct table *table, json_t *argv)
{
	struct buf text = BUF_INIT;
	json_t *word;
	size_t i;

	json_array_foreach (argv, i, word)
		buf_addf(&text, "%s%s", i ? " " : "",
			json_string_value(word) ? json_string_value(word) : "");
	table_add(table, buf_str(&text));
	buf_done(&text);
}

static int print_execs(json_t *answer)
{
	static const char *const heads[] = { "EXEC", ">PID", "STATE", ">EXIT", "TTY", ">AGE",
		">OUTPUT", "PROGRAM", NULL };
	struct table *table = table_new(heads);
	json_t *exec;
	size_t i;

	json_array_foreach (json_object_get(answer, "execs"), i, exec) {
		json_t *code = json_object_get(exec, "exit_code");
		const char *reason = json_str(exec, "reason");
		bool running = !strcmp(json_str(exec, "state"), "running");
		char age[16], size[16];

		table_add(table, json_str(exec, "id"));
		table_addf(table, "%lld", (long long)json_num(exec, "pid"));
		table_add(table, running ? "running" : *reason ? reason : json_str(exec, "state"));
		table_paint(table, running ? PAINT_GOOD : PAINT_DIM);
		if (json_is_integer(code))
			table_addf(table, "%lld", (long long)json_integer_value(code));
		else
			table_add(table, "-");
		table_add(table, json_is_true(json_object_get(exec, "tty")) ? "yes" : "no");
		table_add(table, age_since(json_str(exec, "started_at"), age));
		table_add(table, format_size((uint64_t)json_num(exec, "newest_offset"), size));
		add_command(table, json_object_get(exec, "argv"));
	}
	return table_print(table);
}

int cmd_ps(struct cli *cli, int argc, char **argv)
{
	bool execs = cli_has(cli, "execs");
	_cleanup_free_ char *path =
		client_path("/v1/boxes/%s/%s", argv[0], execs ? "execs" : "processes");
	_cleanup_json_ json_t *answer = NULL;
	struct err err = ERR_INIT;

	(void)argc;
	if (client_get(cli->client, path, &answer, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json_list(steal_ptr(&answer), execs ? "execs" : "processes");
	return execs ? print_execs(answer) : print_processes(answer);
}

/* ---- finding an exec ------------------------------------------------------------------------- */

/* Ranks programs for the logs of a box: its main one, then those running without a terminal
 * (servers), then other running ones, then ended ones. */
static int log_rank(json_t *exec)
{
	bool running = !strcmp(json_str(exec, "state"), "running");

	if (!strcmp(json_str(exec, "id"), "main"))
		return 3;
	return running ? 1 + !json_is_true(json_object_get(exec, "tty")) : 0;
}

/* running: for attach, the last running program; else the one with the highest log rank. */
static int find_last(struct cli *cli, const char *box, bool running, json_t **ret, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/execs", box);
	_cleanup_json_ json_t *answer = NULL;
	json_t *exec, *last = NULL;
	size_t i;

	if (client_get(cli->client, path, &answer, err) < 0)
		return -1;
	json_array_foreach (json_object_get(answer, "execs"), i, exec) {
		int better = !last || running ? 0 : log_rank(exec) - log_rank(last);

		if (running && strcmp(json_str(exec, "state"), "running"))
			continue;
		if (better == 0)
			better = !last || strcmp(json_str(exec, "started_at"),
						  json_str(last, "started_at")) >= 0;
		if (better > 0)
			last = exec;
	}
	if (!last && running) {
		err_set(err, ERR_NOT_FOUND, "no program runs in box '%s'", box);
		return err_hint(
			err, "'box ps %s --execs' lists what ran, 'box logs' prints it", box);
	}
	if (!last) {
		err_set(err, ERR_NOT_FOUND, "no program was started in box '%s'", box);
		return err_hint(err, "'box exec' starts one");
	}
	*ret = json_incref(last);
	return 0;
}

static int find_exec(
	struct cli *cli, int argc, char **argv, bool running, json_t **ret, struct err *err)
{
	_cleanup_free_ char *path = NULL;

	if (argc < 2)
		return find_last(cli, argv[0], running, ret, err);
	path = client_path("/v1/boxes/%s/execs/%s", argv[0], argv[1]);
	return client_get(cli->client, path, ret, err);
}

int cmd_attach(struct cli *cli, int argc, char **argv)
{
	_cleanup_json_ json_t *exec = NULL;
	struct session_spec spec = { .box = argv[0], .from_end = cli_has(cli, "new") };
	struct err err = ERR_INIT;

	if (cli_get(cli, "since-offset") &&
		parse_u64("--since-offset", cli_get(cli, "since-offset"), 0, INT64_MAX,
			&spec.offset, &err) < 0)
		return cli_fail(cli, &err);
	if (find_exec(cli, argc, argv, true, &exec, &err) < 0)
		return cli_fail(cli, &err);
	spec.exec = json_str(exec, "id");
	spec.tty = json_is_true(json_object_get(exec, "tty"));
	spec.input =
		!cli_has(cli, "no-stdin") && (cli_has(cli, "interactive") || isatty(STDIN_FILENO));
	return session_run(cli, &spec);
}

/* ---- logs ------------------------------------------------------------------------------------ */

struct logs {
	struct cli *cli;
	uint64_t offset; /* of the next byte, for reconnecting */
	bool ended;
	bool times;
	bool within[STDERR_FILENO + 1]; /* in the middle of a line, on this fd */
};

static int write_stream(int fd, const void *data, size_t len, struct err *err)
{
	if (fd_write_all(fd, data, len, err) == 0)
		return 0;
	if (err->errno_value == EPIPE)
		exit(128 + SIGPIPE); /* reached only where SIGPIPE is ignored */
	return -1;
}

static size_t output_len(json_t *line)
{
	json_t *text = json_object_get(line, "data");
	const char *encoded = json_str(line, "data_b64");
	size_t len = strlen(encoded), padding = 0;

	while (padding < 2 && padding < len && encoded[len - 1 - padding] == '=')
		padding++;
	return text ? json_string_length(text) : len / 4 * 3 - padding;
}

/* Puts the time before each line that begins here. */
static int write_timed(
	struct logs *logs, int fd, const char *time, const char *data, size_t len, struct err *err)
{
	struct buf out = BUF_INIT;
	int result;

	while (len) {
		const char *end = memchr(data, '\n', len);
		size_t part = end ? (size_t)(end - data) + 1 : len;

		if (!logs->within[fd])
			buf_addf(&out, "%s ", *time ? time : "-");
		buf_add(&out, data, part);
		logs->within[fd] = !end;
		data += part;
		len -= part;
	}
	result = write_stream(fd, buf_head(&out), out.len, err);
	buf_done(&out);
	return result;
}

static int print_output(struct logs *logs, json_t *line, struct err *err)
{
	json_t *text = json_object_get(line, "data");
	const char *encoded = json_str(line, "data_b64");
	int fd = strcmp(json_str(line, "stream"), "stderr") ? STDOUT_FILENO : STDERR_FILENO;
	_cleanup_free_ uint8_t *bytes = NULL;
	size_t len = json_string_length(text);

	if (!text && base64_decode(encoded, strlen(encoded), &bytes, &len, err) < 0)
		return -1;
	logs->offset = (uint64_t)json_num(line, "offset") + len;
	if (logs->times)
		return write_timed(logs, fd, json_str(line, "time"),
			text ? json_string_value(text) : (char *)bytes, len, err);
	return write_stream(fd, text ? json_string_value(text) : (char *)bytes, len, err);
}

static int on_logs_line(json_t *line, const char *text, size_t len, void *arg, struct err *err)
{
	struct logs *logs = arg;
	const char *type = json_str(line, "type");

	if (!strcmp(type, "exit"))
		logs->ended = true;
	if (!strcmp(type, "error"))
		return client_api_error(500, text, len, err);
	if (!strcmp(type, "gap"))
		logs->offset =
			(uint64_t)json_num(line, "offset") + (uint64_t)json_num(line, "lost");
	if (logs->cli->json) {
		if (!strcmp(type, "output"))
			logs->offset = (uint64_t)json_num(line, "offset") + output_len(line);
		if (write_stream(STDOUT_FILENO, text, len, err) < 0)
			return -1;
		return write_stream(STDOUT_FILENO, "\n", 1, err);
	}
	if (!strcmp(type, "output"))
		return print_output(logs, line, err);
	if (!strcmp(type, "start") &&
		!strcmp(json_str(json_object_get(line, "exec"), "reason"), "unknown"))
		cli_note(logs->cli,
			"the box ended before this program could tell how it ended; the "
			"last of its output may be missing");
	if (!strcmp(type, "gap"))
		cli_note(logs->cli, "%lld bytes of output were lost",
			(long long)json_num(line, "lost"));
	return 0;
}

static char *add_bounds(struct cli *cli, const char *path, uint64_t tail)
{
	_cleanup_free_ char *last = cli_get(cli, "tail")
					    ? client_path("&tail=%llu", (unsigned long long)tail)
					    : xstrdup("");
	_cleanup_free_ char *since = cli_get(cli, "since")
					     ? client_path("&since=%s", cli_get(cli, "since"))
					     : xstrdup("");

	return xasprintf("%s%s%s", path, last, since);
}

int cmd_logs(struct cli *cli, int argc, char **argv)
{
	_cleanup_json_ json_t *exec = NULL;
	struct logs logs = { .cli = cli, .times = cli_has(cli, "timestamps") };
	bool follow = cli_has(cli, "follow");
	struct err err = ERR_INIT;
	int result, tries = 0;
	uint64_t tail = 0, since;

	if ((cli_get(cli, "since-offset") &&
		    parse_u64("--since-offset", cli_get(cli, "since-offset"), 0, INT64_MAX,
			    &logs.offset, &err) < 0) ||
		(cli_get(cli, "since") &&
			parse_moment("--since", cli_get(cli, "since"), &since, &err) < 0))
		return cli_fail(cli, &err);
	if (find_exec(cli, argc, argv, false, &exec, &err) < 0)
		return cli_fail(cli, &err);
	if (cli_get(cli, "tail") &&
		parse_u64("--tail", cli_get(cli, "tail"), 0, LOGS_TAIL_MAX, &tail, &err) < 0)
		return cli_fail(cli, &err);
	do {
		_cleanup_free_ char *whole =
			client_path("/v1/boxes/%s/execs/%s/logs?offset=%llu&follow=%s", argv[0],
				json_str(exec, "id"), (unsigned long long)logs.offset,
				follow ? "true" : "false");
		/* After a lost connection everything that follows is wanted. */
		_cleanup_free_ char *path = tries ? xstrdup(whole) : add_bounds(cli, whole, tail);

		if (tries)
			nanosleep(&(struct timespec){ .tv_nsec = LOGS_PAUSE_MS * 1000000 }, NULL);
		result = client_lines(cli->client, "GET", path, NULL, on_logs_line, &logs, &err);
		/* A restart of the daemon cuts the connection; the log continues where it was. */
	} while (follow && result < 0 && !logs.ended && err.kind == ERR_UNAVAILABLE &&
		 tries++ < LOGS_RETRIES);
	return result < 0 ? cli_fail(cli, &err) : 0;
}
