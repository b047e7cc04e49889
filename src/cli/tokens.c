/* tokens.c - token create, ls, revoke */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/table.h"

#define LONGEST_MS ((uint64_t)3650 * 86400000)

static json_t *scopes_json(const struct cli *cli)
{
	static const char *const usual[] = { "read", "exec", "create" };
	json_t *scopes = json_array();

	for (size_t i = 0; cli_nth(cli, "scope", i); i++)
		json_array_append_new(scopes, json_string(cli_nth(cli, "scope", i)));
	if (!json_array_size(scopes))
		for (size_t i = 0; i < ARRAY_LEN(usual); i++)
			json_array_append_new(scopes, json_string(usual[i]));
	return scopes;
}

int cmd_token_create(struct cli *cli, int argc, char **argv)
{
	const char *expires = cli_get(cli, "expires");
	_cleanup_json_ json_t *token = NULL;
	struct err err = ERR_INIT;
	uint64_t expires_ms;
	json_t *body;

	(void)argc;
	/* Checked here, so that an error names the option. */
	if (expires &&
		parse_duration("--expires", expires, 1000, LONGEST_MS, &expires_ms, &err) < 0)
		return cli_fail(cli, &err);
	body = json_pack("{s:s, s:o}", "name", argv[0], "scopes", scopes_json(cli));
	if (expires)
		json_object_set_new(body, "expires_in", json_string(expires));
	if (cli_get(cli, "owner"))
		json_object_set_new(body, "owner", json_string(cli_get(cli, "owner")));
	if (client_call(cli->client, "POST", "/v1/tokens", body, &token, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(steal_ptr(&token));
	cli_note(cli, "keep it, it is not shown again; use it as 'Authorization: Bearer TOKEN'");
	puts(json_str(token, "token"));
	return 0;
}

static void add_scopes(struct table *table, json_t *scopes)
{
	struct buf text = BUF_INIT;
	json_t *scope;
	size_t i;

	json_array_foreach (scopes, i, scope)
		buf_addf(&text, "%s%s", i ? "," : "",
			json_string_value(scope) ? json_string_value(scope) : "?");
	table_add(table, buf_str(&text));
	buf_done(&text);
}

int cmd_token_ls(struct cli *cli, int argc, char **argv)
{
	static const char *const heads[] = { "NAME", "ID", "OWNER", "SCOPES", ">AGE", ">USED",
		"EXPIRES", NULL };
	_cleanup_json_ json_t *answer = NULL;
	json_t *token;
	struct table *table;
	struct err err = ERR_INIT;
	size_t i;

	(void)argc;
	(void)argv;
	if (client_get(cli->client, "/v1/tokens", &answer, &err) < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json_list(steal_ptr(&answer), "tokens");
	if (cli_has(cli, "names")) {
		json_array_foreach (json_object_get(answer, "tokens"), i, token)
			puts(json_str(token, "name"));
		return 0;
	}
	if (!json_array_size(json_object_get(answer, "tokens"))) {
		cli_note(cli, "no tokens yet; 'box token create' makes one");
		return 0;
	}
	table = table_new(heads);
	json_array_foreach (json_object_get(answer, "tokens"), i, token) {
		char age[16], used[16];

		table_add(table, json_str(token, "name"));
		table_add(table, json_str(token, "id"));
		table_add(table, json_str(token, "owner"));
		add_scopes(table, json_object_get(token, "scopes"));
		table_add(table, age_since(json_str(token, "created_at"), age));
		table_add(table, age_since(json_str(token, "last_used_at"), used));
		table_add(table,
			*json_str(token, "expires_at") ? json_str(token, "expires_at") : "never");
	}
	return table_print(table);
}

int cmd_token_revoke(struct cli *cli, int argc, char **argv)
{
	json_t *revoked = json_array();
	int code = 0;

	for (int i = 0; i < argc; i++) {
		_cleanup_free_ char *path = client_path("/v1/tokens/%s", argv[i]);
		struct err err = ERR_INIT;

		if (client_call(cli->client, "DELETE", path, NULL, NULL, &err) < 0) {
			code = cli_fail(cli, &err);
			continue;
		}
		json_array_append_new(revoked, json_string(argv[i]));
		if (!cli->json && !cli->quiet)
			puts(argv[i]);
	}
	if (cli->json)
		cli_print_json(json_pack("{s:O}", "revoked", revoked));
	json_decref(revoked);
	return code;
}
