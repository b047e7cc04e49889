/* ports.c - url; port ls, add, rm, default */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/table.h"

static int read_port(const char *what, const char *text, uint64_t *ret, struct err *err)
{
	return parse_u64(what, text, 1, 65535, ret, err);
}

/* PUTs body for a port; *ret is the whole list of ports. */
static int set_port(struct cli *cli, const char *box, const char *port, json_t *body, json_t **ret,
	struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/ports/%s", box, port);

	return client_call(cli->client, "PUT", path, body, ret, err);
}

static json_t *find_port(json_t *answer, uint64_t port)
{
	json_t *entry;
	size_t i;

	json_array_foreach (json_object_get(answer, "ports"), i, entry)
		if ((uint64_t)json_num(entry, "port") == port)
			return entry;
	return NULL;
}

/* ---- url ------------------------------------------------------------------------------------ */

static int get_url(
	struct cli *cli, const char *box, const char *port, json_t **ret, struct err *err)
{
	_cleanup_free_ char *path = port ? client_path("/v1/boxes/%s/url?port=%s", box, port)
					 : client_path("/v1/boxes/%s/url", box);

	return client_get(cli->client, path, ret, err);
}

static int change_access(struct cli *cli, const char *box, json_t **url, struct err *err)
{
	const char *access = cli_has(cli, "public") ? "public" : "private";
	_cleanup_free_ char *port = xasprintf("%lld", (long long)json_num(*url, "port"));

	if (set_port(cli, box, port, json_pack("{s:s}", "access", access), NULL, err) < 0)
		return -1;
	json_object_set_new(*url, "access", json_string(access));
	return 0;
}

/* Prints a link that logs in. */
static int make_login(struct cli *cli, const char *box, json_t *url, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/login", box);
	_cleanup_json_ json_t *login = NULL;

	if (client_call(cli->client, "POST", path,
		    json_pack("{s:I}", "port", (json_int_t)json_num(url, "port")), &login, err) < 0)
		return -1;
	if (cli->json)
		return cli_print_json(steal_ptr(&login));
	puts(json_str(login, "url"));
	cli_note(cli, "works once, within 5 minutes; who opens it is logged in for 12 hours");
	return 0;
}

static void tell_private(struct cli *cli, const char *box, json_t *url)
{
	cli_note(cli,
		"private: 'box url %s %lld --login' makes a link for the browser; programs send a "
		"token of scope exec",
		box, (long long)json_num(url, "port"));
}

int cmd_url(struct cli *cli, int argc, char **argv)
{
	const char *port = argc > 1 ? argv[1] : NULL;
	_cleanup_json_ json_t *url = NULL;
	struct err err = ERR_INIT;
	uint64_t number;

	if (cli_has(cli, "public") && cli_has(cli, "private"))
		return cli_usage(cli, "--public and --private exclude each other");
	if ((port && read_port("port", port, &number, &err) < 0) ||
		get_url(cli, argv[0], port, &url, &err) < 0)
		return cli_fail(cli, &err);
	if ((cli_has(cli, "public") || cli_has(cli, "private")) &&
		change_access(cli, argv[0], &url, &err) < 0)
		return cli_fail(cli, &err);
	if (cli_has(cli, "login"))
		return make_login(cli, argv[0], url, &err) < 0 ? cli_fail(cli, &err) : 0;
	if (cli->json)
		return cli_print_json(steal_ptr(&url));
	if (!*json_str(url, "url")) {
		err_set(&err, ERR_UNSUPPORTED, "the daemon does not listen for box URLs");
		err_hint(&err, "set listen or url_listen in its configuration");
		return cli_fail(cli, &err);
	}
	puts(json_str(url, "url"));
	if (!strcmp(json_str(url, "access"), "private"))
		tell_private(cli, argv[0], url);
	return 0;
}

/* ---- port ----------------------------------------------------------------------------------- */

int cmd_port_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const heads[] = { ">PORT", "ACCESS", "HOST", "URL", NULL };
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/ports", argv[0]);
	_cleanup_json_ json_t *answer = NULL;
	struct err err = ERR_INIT;
	struct table *table;
	json_t *entry;
	size_t i;

	(void)argc;
	if (client_get(cli->client, path, &answer, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json_list(steal_ptr(&answer), "ports");
	if (!json_array_size(json_object_get(answer, "ports"))) {
		cli_note(cli,
			"nothing is set: all ports are private, URLs without a port mean %lld",
			(long long)json_num(answer, "default"));
		return 0;
	}
	table = table_new(heads);
	json_array_foreach (json_object_get(answer, "ports"), i, entry) {
		bool is_default = json_num(entry, "port") == json_num(answer, "default");

		table_addf(
			table, "%lld%s", (long long)json_num(entry, "port"), is_default ? "*" : "");
		table_add(table, json_str(entry, "access"));
		if (*json_str(entry, "problem"))
			table_addf(table, "(%s)", json_str(entry, "problem"));
		else if (json_num(entry, "host_port"))
			table_addf(
				table, "127.0.0.1:%lld", (long long)json_num(entry, "host_port"));
		else
			table_add(table, "-");
		table_add(table, *json_str(entry, "url") ? json_str(entry, "url") : "-");
	}
	return table_print(table);
}

int cmd_port_add(struct cli *cli, int argc, char **argv)
{
	const char *given = cli_get(cli, "host-port");
	_cleanup_json_ json_t *answer = NULL;
	struct err err = ERR_INIT;
	uint64_t port, host_port = 0;
	json_t *entry;

	(void)argc;
	if (read_port("port", argv[1], &port, &err) < 0 ||
		(given && read_port("--host-port", given, &host_port, &err) < 0) ||
		set_port(cli, argv[0], argv[1],
			json_pack("{s:I}", "host_port", (json_int_t)host_port), &answer, &err) < 0)
		return cli_fail(cli, &err);
	entry = find_port(answer, port);
	if (cli->json)
		return cli_print_json(json_incref(entry));
	if (!cli->quiet)
		printf("127.0.0.1:%lld\n", (long long)json_num(entry, "host_port"));
	return 0;
}

/* "8080:80", "127.0.0.1:8080:80" or "80": host_port 0, any free one. */
static int read_publish(const char *text, uint64_t *ret_port, uint64_t *ret_host, struct err *err)
{
	const char *port = strrchr(text, ':');
	_cleanup_free_ char *host = NULL;

	*ret_host = 0;
	if (!port)
		return read_port("--publish", text, ret_port, err);
	if (text_has_prefix(text, "127.0.0.1:") && strchr(text, ':') != port)
		text += strlen("127.0.0.1:");
	host = xstrndup(text, (size_t)(port - text));
	if (strchr(host, ':') || strchr(host, '.')) {
		err_set(err, ERR_INVALID, "--publish '%.60s': ports are opened on 127.0.0.1 only",
			text);
		return err_hint(
			err, "to reach a box from other machines, use 'box url' with url_listen");
	}
	return read_port("--publish", host, ret_host, err) < 0
		       ? -1
		       : read_port("--publish", port + 1, ret_port, err);
}

int ports_check_publish(struct cli *cli, struct err *err)
{
	uint64_t port, host;

	for (size_t i = 0; cli_nth(cli, "publish", i); i++)
		if (read_publish(cli_nth(cli, "publish", i), &port, &host, err) < 0)
			return -1;
	return 0;
}

int ports_publish(struct cli *cli, const char *box, struct err *err)
{
	uint64_t port, host;

	for (size_t i = 0; cli_nth(cli, "publish", i); i++) {
		_cleanup_json_ json_t *answer = NULL;
		_cleanup_free_ char *text = NULL;

		if (read_publish(cli_nth(cli, "publish", i), &port, &host, err) < 0)
			return -1;
		text = xasprintf("%llu", (unsigned long long)port);
		if (set_port(cli, box, text, json_pack("{s:I}", "host_port", (json_int_t)host),
			    &answer, err) < 0)
			return -1;
		if (!host)
			cli_note(cli, "port %llu is 127.0.0.1:%lld", (unsigned long long)port,
				(long long)json_num(find_port(answer, port), "host_port"));
	}
	return 0;
}

int cmd_port_rm(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/ports/%s", argv[0], argv[1]);
	struct err err = ERR_INIT;
	uint64_t port;

	(void)argc;
	if (read_port("port", argv[1], &port, &err) < 0 ||
		client_call(cli->client, "DELETE", path, NULL, NULL, &err) < 0)
		return cli_fail(cli, &err);
	return cli->json ? cli_print_json(json_pack("{s:I}", "removed", (json_int_t)port)) : 0;
}

int cmd_port_default(struct cli *cli, int argc, char **argv)
{
	_cleanup_json_ json_t *answer = NULL;
	struct err err = ERR_INIT;
	uint64_t port;

	(void)argc;
	if (read_port("port", argv[1], &port, &err) < 0 ||
		set_port(cli, argv[0], argv[1], json_pack("{s:b}", "default", 1), &answer, &err) <
			0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(json_incref(find_port(answer, port)));
	if (!cli->quiet)
		puts(json_str(find_port(answer, port), "url"));
	return 0;
}
