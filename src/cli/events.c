/* events.c - what happened, from an offset on */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/table.h"
#include <time.h>

enum { PAGE = 1000, TAIL_MAX = 100000, RETRIES = 100, RETRY_MS = 100 };

struct feed {
	struct cli *cli;
	uint64_t next; /* offset of the first event we have not seen */
};

/* "2026-01-02T03:04:05.678Z  box.created  ada  reason=..." */
static void print_event(json_t *event)
{
	json_t *data = json_object_get(event, "data"), *value;
	const char *key, *box = json_str(event, "box_name");
	struct buf text = BUF_INIT;
	_cleanup_free_ char *safe = NULL;

	buf_addf(&text, "%6lld  %s  %-14s", (long long)json_num(event, "offset"),
		json_str(event, "at"), json_str(event, "type"));
	buf_addf(&text, "  %s",
		*box			  ? box
		: *json_str(event, "box") ? json_str(event, "box")
					  : "-");
	if (*json_str(event, "who"))
		buf_addf(&text, "  who='%s'", json_str(event, "who"));
	json_object_foreach (data, key, value) {
		_cleanup_free_ char *plain = json_is_string(value)
						     ? xstrdup(json_string_value(value))
						     : json_text(value);

		buf_addf(&text, "  %s=%s", key, plain);
	}
	safe = text_printable(buf_str(&text));
	puts(safe);
	buf_done(&text);
}

static int on_event_line(json_t *event, const char *text, size_t len, void *arg, struct err *err)
{
	struct feed *feed = arg;

	if (!strcmp(json_str(event, "type"), "error") && json_object_get(event, "error"))
		return client_api_error(500, text, len, err);
	if (json_object_get(event, "offset"))
		feed->next = (uint64_t)json_num(event, "offset") + 1;
	if (feed->cli->json)
		printf("%.*s\n", (int)len, text);
	else
		print_event(event);
	fflush(stdout);
	return 0;
}

static char *events_path(const struct cli *cli, uint64_t since, bool follow)
{
	const char *box = cli->flags.word_count ? cli->flags.words[0] : cli_get(cli, "box");
	const char *tail = since ? NULL : cli_get(cli, "tail"); /* only the first time */
	_cleanup_free_ char *start = client_path("/v1/events?since=%llu&limit=%llu&follow=%s",
				    (unsigned long long)since, (unsigned long long)PAGE,
				    follow ? "true" : "false"),
			    *of_box = box ? client_path("&box=%s", box) : xstrdup(""),
			    *of_tail = tail ? client_path("&tail=%s", tail) : xstrdup("");

	return xasprintf("%s%s%s", start, of_box, of_tail);
}

/* Continues where it was when the daemon is restarted; a daemon that does not run at all is
 * reported at once. */
static int follow_events(struct cli *cli, struct feed *feed)
{
	struct err err = ERR_INIT;

	if (client_get(cli->client, "/v1/health", NULL, &err) < 0)
		return cli_fail(cli, &err);
	for (int tries = 0; tries < RETRIES; tries++) {
		_cleanup_free_ char *path = events_path(cli, feed->next, true);
		uint64_t seen = feed->next;

		if (client_lines(cli->client, "GET", path, NULL, on_event_line, feed, &err) < 0 &&
			err.kind != ERR_UNAVAILABLE)
			break;
		if (feed->next > seen)
			tries = 0;
		nanosleep(&(struct timespec){ .tv_nsec = RETRY_MS * 1000000 }, NULL);
	}
	return cli_fail(cli, &err);
}

int cmd_events(struct cli *cli, int argc, char **argv)
{
	_cleanup_json_ json_t *all = json_array();
	struct feed feed = { .cli = cli };
	struct err err = ERR_INIT;
	uint64_t tail;
	json_t *event;
	size_t i;

	if (argc && cli_get(cli, "box"))
		return cli_usage(cli, "a box is given twice: '%.60s' and --box", argv[0]);
	if (cli_get(cli, "tail") &&
		(cli_get(cli, "since") ||
			parse_u64("--tail", cli_get(cli, "tail"), 0, TAIL_MAX, &tail, &err) < 0))
		return err.kind ? cli_fail(cli, &err)
				: cli_usage(cli, "--tail and --since exclude each other");
	if (cli_get(cli, "since") &&
		parse_u64("--since", cli_get(cli, "since"), 0, INT64_MAX, &feed.next, &err) < 0)
		return cli_fail(cli, &err);
	if (cli_has(cli, "follow"))
		return follow_events(cli, &feed);
	for (;;) {
		_cleanup_free_ char *path = events_path(cli, feed.next, false);
		_cleanup_json_ json_t *page = NULL;
		json_t *events;

		if (client_get(cli->client, path, &page, &err) < 0)
			return cli_fail(cli, &err);
		events = json_object_get(page, "events");
		feed.next = (uint64_t)json_num(page, "next");
		if (cli->json)
			json_array_extend(all, events);
		else
			json_array_foreach (events, i, event)
				print_event(event);
		if (json_array_size(events) < PAGE)
			break;
	}
	return cli->json ? cli_print_json(steal_ptr(&all)) : 0;
}
