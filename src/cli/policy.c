/* policy.c - policy show, set, check, explain, presets, propose: what boxes may reach
 *
 * The policy language is parsed here too, before anything is sent: all errors of a file are
 * reported with their lines, and `check` needs no daemon. A policy is replaced only if its version
 * is still the one that was read, so that nobody's change is lost. */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/policy_text.h"
#include "cli/table.h"
#include <strings.h>

enum { EXIT_DENIED = 1 };

/* ---- show ----------------------------------------------------------------------------------- */

static int print_rules(json_t *answer)
{
	static const char *const heads[] = { "VERDICT", "DESTINATION", "FROM", NULL };
	struct table *table = table_new(heads);
	json_t *rule;
	size_t i;

	json_array_foreach (json_object_get(answer, "effective"), i, rule) {
		const char *verdict = json_str(rule, "verdict");

		table_add(table, verdict);
		table_paint(table, strcmp(verdict, "deny") ? PAINT_GOOD : PAINT_BAD);
		table_add(table, json_str(rule, "rule"));
		table_add(table, json_str(rule, "place"));
	}
	return table_print(table);
}

int cmd_policy_show(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/policy", argv[0]), *text = NULL;
	_cleanup_json_ json_t *answer = NULL;
	bool rules = cli_has(cli, "rules");
	struct err err = ERR_INIT;
	char age[16];

	(void)argc;
	if (client_get(cli->client, path, &answer, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&answer));
	if (rules)
		return print_rules(answer);
	text = policy_yaml(json_object_get(answer, "policy"));
	printf("# version %lld of the policy (for --if-version), changed %s ago%s\n%s",
		(long long)json_num(answer, "version"),
		age_since(json_str(answer, "changed_at"), age),
		json_is_true(json_object_get(answer, "recording"))
			? "; watch mode is on: everything public is allowed"
			: "",
		text);
	return 0;
}

/* ---- set ------------------------------------------------------------------------------------ */

static int read_present(struct cli *cli, const char *path, struct policy **ret,
	json_int_t *ret_version, struct err *err)
{
	_cleanup_json_ json_t *answer = NULL;
	_cleanup_free_ char *text = NULL;

	if (client_get(cli->client, path, &answer, err) < 0)
		return -1;
	text = json_text(json_object_get(answer, "policy"));
	*ret_version = json_num(answer, "version");
	return policy_parse(text, strlen(text), ret, NULL, err);
}

/* The policy to set: the file, or with --add the present one merged with the file, or an empty one;
 * and the flags on top. */
static int compose(struct cli *cli, const char *path, const char *file, struct policy **ret,
	json_int_t *ret_version, struct err *err)
{
	_cleanup_(policy_freep) struct policy *present = NULL, *read = NULL, *both = NULL;
	_cleanup_free_ char *text = NULL;

	if (file && (policy_read_text(file, &text, err) < 0 ||
			    policy_read(cli, file, text, &read, err) < 0))
		return -1;
	if (!cli_has(cli, "add"))
		return policy_read_flags(cli, read, ret, err);
	if (read_present(cli, path, &present, ret_version, err) < 0)
		return -1;
	if (read && policy_merge(present, read, &both, err) < 0)
		return -1;
	return policy_read_flags(cli, both ? both : present, ret, err);
}

int cmd_policy_set(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/policy", argv[0]);
	_cleanup_(policy_freep) struct policy *policy = NULL;
	_cleanup_json_ json_t *answer = NULL;
	json_int_t version = 0;
	struct err err = ERR_INIT;
	uint64_t wanted = 0;

	if (argc == 1 && !policy_has_flags(cli))
		return cli_usage(cli, "give a file, or --net, --allow, --deny, --peer");
	if (cli_get(cli, "if-version") && parse_u64("--if-version", cli_get(cli, "if-version"), 1,
						  INT64_MAX, &wanted, &err) < 0)
		return cli_fail(cli, &err);
	if (compose(cli, path, argc > 1 ? argv[1] : NULL, &policy, &version, &err) < 0)
		return cli_fail(cli, &err);
	if (wanted)
		version = (json_int_t)wanted;
	if (client_call(cli->client, "PUT", path,
		    json_pack("{s:o,s:I}", "policy", policy_json(policy), "if_version", version),
		    &answer, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&answer));
	cli_note(cli, "%s has version %lld of its policy", argv[0],
		(long long)json_num(answer, "version"));
	return 0;
}

/* ---- check ---------------------------------------------------------------------------------- */

static json_t *report_json(const struct policy_report *report, const struct policy *policy)
{
	json_t *list = json_array();

	for (size_t i = 0; i < report->count; i++)
		json_array_append_new(
			list, json_pack("{s:b,s:i,s:i,s:o}", "error", report->problems[i].is_error,
				      "line", (int)report->problems[i].line, "column",
				      (int)report->problems[i].column, "text",
				      json_string(report->problems[i].text)));
	return json_pack("{s:b,s:o,s:o}", "ok", report->errors == 0, "problems", list, "policy",
		policy ? policy_json(policy) : json_null());
}

int cmd_policy_check(struct cli *cli, int argc, char **argv)
{
	struct policy_report report = POLICY_REPORT_INIT;
	_cleanup_(policy_freep) struct policy *policy = NULL;
	_cleanup_free_ char *text = NULL;
	struct err err = ERR_INIT;
	int code = 0;

	(void)argc;
	if (policy_read_text(argv[0], &text, &err) < 0)
		return cli_fail(cli, &err);
	if (policy_parse(text, strlen(text), &policy, &report, NULL) < 0)
		code = err_kind_exit_code(ERR_INVALID);
	if (cli->json)
		cli_print_json(report_json(&report, policy));
	else
		policy_print_problems(argv[0], &report, stdout);
	if (!report.count && !cli->json && !cli->quiet)
		printf("%s: %zu rule%s, preset %s\n", argv[0], policy->count,
			policy->count == 1 ? "" : "s", policy_preset_name(policy->preset));
	policy_report_done(&report);
	return code;
}

/* ---- explain -------------------------------------------------------------------------------- */

struct question {
	char *host;
	uint64_t port;
	const char *kind; /* NULL: derived from the rest */
	char *path;
};

static void question_done(struct question *question)
{
	free(question->host);
	free(question->path);
}

/* HOST, HOST:PORT, [ADDRESS]:PORT; text is changed. */
static int read_host(char *text, struct question *question, struct err *err)
{
	char *colon = strrchr(text, ':'), *close = strchr(text, ']');

	if (text[0] == '[' && close) {
		*close = '\0';
		colon = close[1] == ':' ? close + 1 : NULL;
		text++;
	} else if (colon && strchr(text, ':') != colon) {
		colon = NULL; /* an IPv6 address without brackets */
	}
	if (colon) {
		if (parse_u64("port", colon + 1, 1, 65535, &question->port, err) < 0)
			return -1;
		*colon = '\0';
	}
	question->host = xstrdup(text);
	return 0;
}

/* DESTINATION[:PORT][/tcp|/udp|/dns], or a URL. */
static int read_question(const char *given, struct question *question, struct err *err)
{
	static const char *const kinds[] = { "tcp", "udp", "dns" };
	_cleanup_free_ char *text = NULL;
	bool tls = text_has_prefix(given, "https://"),
	     url = tls || text_has_prefix(given, "http://");
	char *slash;

	text = xstrdup(url ? strstr(given, "://") + 3 : given);
	slash = strchr(text, '/');
	if (slash && url) {
		question->path = tls ? NULL : xstrdup(slash);
		*slash = '\0';
	}
	for (size_t i = 0; slash && !url && i < ARRAY_LEN(kinds); i++)
		if (!strcmp(slash + 1, kinds[i])) {
			question->kind = kinds[i];
			*slash = '\0';
		}
	if (read_host(text, question, err) < 0)
		return -1;
	if (url) {
		question->kind = tls ? "tcp" : "http";
		question->port = question->port ? question->port : tls ? 443 : 80;
	}
	return 0;
}

static json_t *question_json(struct cli *cli, const struct question *question)
{
	static const struct {
		const char *flag, *key;
	} flags[] = { { "method", "method" }, { "path", "path" }, { "seen", "seen" },
		{ "address", "address" } };
	json_t *body = json_object();
	struct address addr;
	bool is_addr = policy_addr_parse(question->host, &addr, NULL) == 0;

	json_object_set_new(body, is_addr ? "address" : "name", json_string(question->host));
	if (question->port)
		json_object_set_new(body, "port", json_integer((json_int_t)question->port));
	if (question->kind)
		json_object_set_new(body, "kind", json_string(question->kind));
	if (question->path)
		json_object_set_new(body, "path", json_string(question->path));
	for (size_t i = 0; i < ARRAY_LEN(flags); i++)
		if (cli_get(cli, flags[i].flag))
			json_object_set_new(
				body, flags[i].key, json_string(cli_get(cli, flags[i].flag)));
	return body;
}

int cmd_policy_explain(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/policy/explain", argv[0]),
			    *text = NULL;
	_cleanup_json_ json_t *answer = NULL;
	struct question question = { 0 };
	struct err err = ERR_INIT;
	int status, code;

	(void)argc;
	status = read_question(argv[1], &question, &err);
	if (status == 0)
		status = client_call(
			cli->client, "POST", path, question_json(cli, &question), &answer, &err);
	question_done(&question);
	if (status < 0)
		return cli_fail(cli, &err);
	code = json_is_true(json_object_get(answer, "allowed")) ? 0 : EXIT_DENIED;
	if (cli->json) {
		cli_print_json(steal_ptr(&answer));
		return code;
	}
	text = text_printable(json_str(answer, "text"));
	puts(text);
	return code;
}

/* ---- presets, propose ----------------------------------------------------------------------- */

int cmd_policy_presets(struct cli *cli, int argc, char **argv)
{
	static const char *const heads[] = { "PRESET", "ALLOWS", "", NULL };
	_cleanup_json_ json_t *answer = NULL;
	enum policy_preset wanted;
	struct table *table;
	struct err err = ERR_INIT;
	json_t *preset, *rule;
	size_t i, k;

	if ((argc && policy_preset_parse(argv[0], &wanted, &err) < 0) ||
		client_get(cli->client, "/v1/policy/presets", &answer, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json_list(steal_ptr(&answer), "presets");
	table = table_new(heads);
	json_array_foreach (json_object_get(answer, "presets"), i, preset) {
		if (argc && strcmp(argv[0], json_str(preset, "name")))
			continue;
		table_add(table, json_str(preset, "name"));
		table_add(table, json_str(preset, "text"));
		table_add(table, json_is_true(json_object_get(preset, "default"))
					 ? "new boxes have it"
					 : "");
		json_array_foreach (json_object_get(preset, "rules"), k, rule)
			if (argc) {
				table_add(table, "");
				table_add(table, json_string_value(rule));
				table_add(table, "");
			}
	}
	return table_print(table);
}

int cmd_policy_propose(struct cli *cli, int argc, char **argv)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/policy/proposal", argv[0]);
	_cleanup_json_ json_t *answer = NULL;
	struct err err = ERR_INIT;

	(void)argc;
	if (client_get(cli->client, path, &answer, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&answer));
	fputs(json_str(answer, "text"), stdout);
	return 0;
}
