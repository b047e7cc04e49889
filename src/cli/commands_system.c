/* commands_system.c - commands about the installation: pool, tokens, checks, measurements, the
 * daemon; see commands.c */
#include "cli/cli.h"
#include "cli/options.h"

const struct command system_commands[] = {
	{ .name = "pool",
		.usage = "show|grow|scrub",
		.summary = "where disks and images live",
		.options = CMD_GROUP },
	{ .name = "pool show",
		.usage = "",
		.summary = "show the pool and how full it is",
		.run = cmd_pool_show },
	{ .name = "pool grow",
		.usage = "[SIZE]",
		.summary = "make the pool larger",
		.text = "By SIZE, or by a step; it grows by itself, too, before it is full.",
		.examples = "box pool grow 50G\twhile boxes run\n",
		.run = cmd_pool_grow,
		.most = 1 },
	{ .name = "pool scrub",
		.usage = "",
		.summary = "verify all checksums of the pool",
		.text = "Reads everything; boxes go on meanwhile. Exit code 71 when a checksum is "
			"wrong.",
		.run = cmd_pool_scrub },
	{ .name = "token",
		.usage = "create|ls|revoke",
		.summary = "who may use the API over TCP",
		.options = CMD_GROUP },
	{ .name = "token create",
		.usage = "NAME",
		.summary = "make a token and print it, once",
		.examples = "box token create ci --scope read --scope exec --expires 30d\ta narrow "
			    "one\n"
			    "box token create ann --owner ann\tsees and makes only what is ann's\n",
		.flags = token_create_flags,
		.run = cmd_token_create,
		.least = 1,
		.most = 1 },
	{ .name = "token ls",
		.usage = "",
		.summary = "list tokens",
		.flags = names_flags,
		.run = cmd_token_ls },
	{ .name = "token revoke",
		.usage = "TOKEN...",
		.summary = "make tokens useless at once",
		.run = cmd_token_revoke,
		.least = 1,
		.most = -1,
		.words = "token" },
	{ .name = "context",
		.usage = "add|ls|use|rm",
		.summary = "daemons of other machines, by name",
		.options = CMD_GROUP },
	{ .name = "context add",
		.usage = "NAME HOST",
		.summary = "remember a daemon",
		.text = "HOST is ssh://USER@HOST (the ssh client runs 'box dial-stdio' there), "
			"https://HOST:PORT with a token,\n"
			"or unix:///SOCKET. Kept in ~/.config/boxyard/contexts.json, readable by "
			"you "
			"alone.",
		.examples = "box context add build ssh://ada@build\tby ssh, no token needed\n"
			    "box context add lab https://lab:8443 --token -\tthe token comes from "
			    "stdin\n",
		.flags = context_add_flags,
		.run = cmd_context_add,
		.options = CMD_NO_CONF,
		.least = 2,
		.most = 2 },
	{ .name = "context ls",
		.usage = "",
		.summary = "list them",
		.run = cmd_context_ls,
		.options = CMD_NO_CONF },
	{ .name = "context use",
		.usage = "NAME",
		.summary = "commands talk to it from now on",
		.text = "'default' is the daemon of this machine. BOX_HOST and BOX_CONTEXT come "
			"before it; so do BOX_HOME and\n"
			"BOX_RUN, which mean a daemon of this machine.",
		.examples = "box context use build\tand back: box context use default\n"
			    "BOX_CONTEXT=build box ls\tonce\n",
		.run = cmd_context_use,
		.options = CMD_NO_CONF,
		.least = 1,
		.most = 1 },
	{ .name = "context rm",
		.usage = "NAME...",
		.summary = "forget contexts",
		.run = cmd_context_rm,
		.options = CMD_NO_CONF,
		.least = 1,
		.most = -1 },
	{ .name = "info", .usage = "", .summary = "what this daemon is and has", .run = cmd_info },
	{ .name = "doctor",
		.usage = "",
		.summary = "what this machine can and cannot do",
		.text = "Exit code 0 when boxes can run here, 69 when a required piece is missing. "
			"Without a daemon root is told\n"
			"what can be seen without it.",
		.run = cmd_doctor },
	{ .name = "bench",
		.usage = "[NAME...]",
		.summary = "measure this machine and the sandboxes on it",
		.examples = "box bench --list\twhat can be measured\nbox bench create_first_byte "
			    "exec_cli\tsome of it\n",
		.flags = bench_flags,
		.run = cmd_bench,
		.options = CMD_HERE,
		.most = -1 },
	{ .name = "attack",
		.usage = "[--group GROUP] | --rig -- COMMAND...",
		.summary = "try to get out of a box, by every way there is",
		.text = "Starts a daemon of its own in a network of its own, with an internet made "
			"for the test, and lets\n"
			"root of a box try to reach what it may not. Nothing leaves the machine, "
			"and nothing of this\n"
			"installation is touched. Each attempt must be refused, be seen by nobody, "
			"stand in the audit log\n"
			"and not disturb other boxes. Exit code 1 if one is not. Needs root.",
		.examples = "box attack\teverything, in both profiles\n"
			    "box attack --group tls --profile standard\tsome of it\n"
			    "box attack --json\tfor programs\n",
		.flags = attack_flags,
		.run = cmd_attack,
		.options = CMD_NO_CONF,
		.most = -1 },
	{ .name = "up",
		.usage = "",
		.summary = "start the daemon in the background",
		.text = "Nothing happens when it runs already. Its log is BOX_HOME/log/daemon.log.",
		.run = cmd_up,
		.options = CMD_HERE },
	{ .name = "down",
		.usage = "",
		.summary = "stop the daemon; boxes run on",
		.text = "With --hibernate, or hibernate_on_shutdown = yes in boxyard.conf, all "
			"boxes are "
			"hibernated first.\n"
			"One that cannot be runs on: a line says which and why, and the exit code "
			"is that of the last reason (65 when\n"
			"a process stands against it) instead of 0. The daemon is down all the "
			"same.",
		.examples = "box down\tboxes run on and are found again by 'box up'\n"
			    "box down --hibernate\tbefore the machine is switched off\n"
			    "box down --purge\tremove everything it ever made\n",
		.flags = down_flags,
		.run = cmd_down,
		.options = CMD_HERE },
	{ .name = "serve",
		.usage = "",
		.summary = "run the daemon in the foreground",
		.text = "For service managers; 'box up' starts it in the background.",
		.flags = serve_flags,
		.run = cmd_serve,
		.options = CMD_HERE },
	{ .name = "gate",
		.usage = "",
		.summary = "the process between boxes and the world; started by the daemon",
		.run = cmd_gate,
		.options = CMD_HIDDEN | CMD_NO_CONF },
	{ .name = "dial-stdio",
		.usage = "[SOCKET]",
		.summary = "connect stdin and stdout with the daemon; for ssh://",
		.run = cmd_dial_stdio,
		.options = CMD_HIDDEN,
		.most = 1 },
	{ .name = "completion",
		.usage = "bash | zsh | fish",
		.summary = "print shell completion",
		.examples = "source <(box completion bash)\tfor this shell\n"
			    "box completion bash > /etc/bash_completion.d/box\tfor all\n"
			    "box completion zsh > ~/.zfunc/_box\twith ~/.zfunc in fpath\n"
			    "box completion fish > ~/.config/fish/completions/box.fish\tfor you\n",
		.run = cmd_completion,
		.options = CMD_NO_CONF,
		.least = 1,
		.most = 1 },
	{ .name = "version",
		.usage = "",
		.summary = "print the version",
		.run = cmd_version,
		.options = CMD_NO_CONF },
	{ .name = "help",
		.usage = "[COMMAND | exit-codes | environment]",
		.summary = "explain a command",
		.flags = help_flags,
		.run = cmd_help,
		.options = CMD_NO_CONF,
		.most = 2,
		.words = "command" },
	{ .name = NULL },
};
