/* attack.c - `box attack`: see attack/attack.h */
#include "attack/attack.h"
#include "base/alloc.h"
#include "cli/cli.h"
#include <stdio.h>

static int print_groups(void)
{
	_cleanup_free_ char *text = attack_groups();
	char *rest = text, *line;

	while ((line = strsep(&rest, "\n")))
		if (*line) {
			char *tab = strchr(line, '\t');

			printf("%-12.*s %s\n", (int)(tab - line), line, tab + 1);
		}
	return 0;
}

int cmd_attack(struct cli *cli, int argc, char **argv)
{
	const struct attack_options options = {
		.group = cli_get(cli, "group"),
		.profile = cli_get(cli, "profile"),
		.driver = cli_get(cli, "driver"),
		.json = cli->json,
		.quiet = cli->quiet,
		.keep = cli_has(cli, "keep"),
	};
	struct err err = ERR_INIT;
	int code;

	if (cli_has(cli, "list"))
		return print_groups();
	if (!cli_has(cli, "rig") && argc)
		return cli_usage(cli, "'%.60s' is too much; a command needs --rig", argv[0]);
	if (cli_has(cli, "rig") && !argc)
		return cli_usage(cli, "--rig needs a command after --");
	code = cli_has(cli, "rig") ? attack_rig(argv, &err) : attack_run(&options, &err);
	return code < 0 ? cli_fail(cli, &err) : code;
}
