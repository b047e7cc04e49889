/* commands_network.c - commands about the ways in and out of a box: URLs, ports, figures, policies;
 * see commands.c */
#include "cli/cli.h"
#include "cli/options.h"

const struct command network_commands[] = {
	{ .name = "url",
		.usage = "BOX [PORT]",
		.summary = "where a port of a box is found by HTTP",
		.text = "Without PORT: the box's default port ('box port default'). A private port "
			"wants "
			"a token of scope exec, or a\n"
			"login: --login makes a link for the browser. --public opens it to "
			"everybody who can reach "
			"the daemon (docs/urls.md).",
		.examples =
			"box url ada\tits default port\nbox url ada 3000 --public\tfor everybody\n"
			"xdg-open $(box url ada 3000 --login)\ta private port in the browser\n"
			"curl -H \"Authorization: Bearer $TOKEN\" $(box url ada 3000)\tas a "
			"program does\n",
		.flags = url_flags,
		.run = cmd_url,
		.least = 1,
		.most = 2,
		.words = "box" },
	{ .name = "port",
		.usage = "ls|add|rm|default",
		.summary = "ways into a box: plain TCP, default port",
		.options = CMD_GROUP },
	{ .name = "port ls",
		.usage = "BOX",
		.summary = "what was set for the ports of a box",
		.text = "The port with a * is the one that URLs without a port mean.",
		.examples = "box port ls ada\tall that was set\n",
		.run = cmd_port_ls,
		.least = 1,
		.most = 1,
		.words = "box" },
	{ .name = "port add",
		.usage = "BOX PORT",
		.summary = "lead a port of this machine's loopback to a port of a box",
		.text = "Plain TCP, for what is not HTTP; every program of this machine can "
			"connect. It "
			"is there again when the\n"
			"daemon is.",
		.examples = "box port add db 5432\tany free port; prints it\n"
			    "box port add db 5432 --host-port 15432\tthis one\n",
		.flags = port_add_flags,
		.run = cmd_port_add,
		.least = 2,
		.most = 2,
		.words = "box" },
	{ .name = "port rm",
		.usage = "BOX PORT",
		.summary = "forget what was set for a port of a box",
		.text = "It is private again, and no port of this machine leads to it.",
		.examples = "box port rm db 5432\tclosed\n",
		.run = cmd_port_rm,
		.least = 2,
		.most = 2,
		.words = "box" },
	{ .name = "port default",
		.usage = "BOX PORT",
		.summary = "set the port that URLs without a port mean",
		.examples = "box port default ada 3000\tfor http://ada.localhost:30001/\n",
		.run = cmd_port_default,
		.least = 2,
		.most = 2,
		.words = "box" },
	{ .name = "net",
		.usage = "[BOX]",
		.summary = "what boxes sent, received and were refused",
		.text = "Totals of all boxes, or of one box its destinations and its last hour and "
			"days.",
		.examples = "box net\tall boxes\nbox net ada --connections\twhom it talks to now\n"
			    "box net ada --watch\tlive\n",
		.flags = net_flags,
		.run = cmd_net,
		.most = 1,
		.words = "box" },
	{ .name = "policy",
		.usage = "show|set|edit|check|explain|presets|record|propose",
		.summary = "what boxes may reach",
		.options = CMD_GROUP },
	{ .name = "policy show",
		.usage = "BOX",
		.summary = "show the policy of a box",
		.text = "As YAML that 'box policy set' takes; with --json in its normal form.",
		.examples = "box policy show ada\tas it was written\n"
			    "box policy show ada --rules\twith the hosts its preset stands for\n",
		.flags = policy_show_flags,
		.run = cmd_policy_show,
		.least = 1,
		.most = 1,
		.words = "box" },
	{ .name = "policy set",
		.usage = "BOX [FILE]",
		.summary = "replace the policy of a box, running or not",
		.text = "It holds at once: connections that it forbids are cut. FILE is YAML or "
			"JSON, - is stdin; flags\n"
			"come on top of it. Without FILE the flags alone are the policy, with "
			"--add "
			"on top of the present one.",
		.examples = "box policy set ada policy.yaml\tfrom a file\n"
			    "box policy set ada --net none --allow github.com:443\tfrom flags\n"
			    "box policy set ada --add --deny gitlab.com\tone thing less\n",
		.flags = policy_set_flags,
		.run = cmd_policy_set,
		.least = 1,
		.most = 2,
		.words = "box" },
	{ .name = "policy edit",
		.usage = "BOX",
		.summary = "change the policy of a box in an editor",
		.text = "VISUAL, EDITOR or vi. What is wrong is told with its line and can be put "
			"right at once.",
		.examples = "EDITOR=nano box policy edit ada\twith your editor\n",
		.run = cmd_policy_edit,
		.least = 1,
		.most = 1,
		.words = "box" },
	{ .name = "policy check",
		.usage = "FILE",
		.summary = "tell what is wrong with a policy",
		.text = "Errors and warnings with line and column; needs no daemon. Exit code 64 "
			"when there is an error.",
		.examples = "box policy check policy.yaml\tbefore it is used\n",
		.run = cmd_policy_check,
		.options = CMD_NO_CONF,
		.least = 1,
		.most = 1,
		.words = "file" },
	{ .name = "policy explain",
		.usage = "BOX DESTINATION[:PORT][/tcp|/udp|/dns] | URL",
		.summary = "tell whether a box may reach something, and why",
		.text = "The rule that decides, or the one that came near. Exit code 1 when it is "
			"denied.",
		.examples = "box policy explain ada github.com:443\ta connection\n"
			    "box policy explain ada http://api.example.com/v1/x --method POST\ta "
			    "request\n",
		.flags = policy_explain_flags,
		.run = cmd_policy_explain,
		.least = 2,
		.most = 2,
		.words = "box" },
	{ .name = "policy presets",
		.usage = "[PRESET]",
		.summary = "list the ready-made policies",
		.examples = "box policy presets dev\twith its rules\n",
		.run = cmd_policy_presets,
		.most = 1 },
	{ .name = "policy record",
		.usage = "BOX [-- PROGRAM [ARG...]]",
		.summary = "watch what a box needs and propose a policy",
		.text = "In watch mode everything public is allowed and counted. Runs the program "
			"in the box, or waits\n"
			"for Enter, then switches it off and prints the smallest policy that "
			"allows "
			"what was seen.",
		.examples = "box policy record ada -- make\twhat a build needs\n"
			    "box policy record ada --apply -o policy.yaml -- npm ci\tand use it\n"
			    "box policy record ada --add -- make deploy\tbesides what it may do\n",
		.flags = policy_record_flags,
		.run = cmd_policy_record,
		.options = CMD_STOP_AT_PROGRAM,
		.least = 1,
		.most = -1,
		.stop_after = 1,
		.words = "box" },
	{ .name = "policy propose",
		.usage = "BOX",
		.summary = "propose a policy from what was seen in watch mode so far",
		.run = cmd_policy_propose,
		.least = 1,
		.most = 1,
		.words = "box" },
	{ .name = NULL },
};
