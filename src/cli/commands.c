/* commands.c - every command with its options, help and examples; all there is to know about them
 *
 * Help, completion and docs/cli.md are printed from this table. */
#include "cli/cli.h"
#include "base/alloc.h"

#define FLAG_ENV                                                                     \
	{                                                                            \
		"env", 'e', "KEY=VALUE", "set a variable; KEY alone passes yours on" \
	}
#define FLAG_INTERACTIVE                                                       \
	{                                                                      \
		"interactive", 'i', NULL, "forward stdin (not done otherwise)" \
	}
#define FLAG_TTY                                                \
	{                                                       \
		"tty", 't', NULL, "give the program a terminal" \
	}
#define FLAG_USER                                                                            \
	{                                                                                    \
		"user", 'u', "USER", "run as this user (name or uid, with :group if wanted)" \
	}
#define FLAG_WORKDIR                                          \
	{                                                     \
		"workdir", 'w', "DIR", "start in this folder" \
	}
#define FLAG_END                    \
	{                           \
		NULL, 0, NULL, NULL \
	}

const struct flag common_flags[] = {
	{ "json", 0, NULL, "print JSON: one value, or one object a line for what goes on" },
	{ "quiet", 'q', NULL, "no remarks on stderr" },
	{ "help", 'h', NULL, "show the help of this command" },
	FLAG_END,
};

static const struct flag new_flags[] = {
	{ "image", 0, "IMAGE", "what it starts from (debian)" },
	{ "cpu", 0, "N", "at most so many CPUs, like 1.5" },
	{ "memory", 'm', "SIZE", "at most so much memory, like 512M" },
	{ "disk", 0, "SIZE", "at most so much disk, like 10G" },
	{ "pids", 0, "N", "at most so many processes" },
	FLAG_ENV,
	{ "label", 'l', "KEY=VALUE", "a label to find it by" },
	{ "profile", 0, "PROFILE", "standard, or nested for boxes that run containers" },
	{ "driver", 0, "DRIVER", "how it is isolated (ns)" },
	{ "rm", 0, NULL, "remove it when its command ends or it stops" },
	{ "detach", 'd', NULL, "do not wait for the command" },
	FLAG_INTERACTIVE,
	FLAG_TTY,
	FLAG_END,
};

static const struct flag exec_flags[] = {
	FLAG_INTERACTIVE,
	FLAG_TTY,
	{ "detach", 'd', NULL, "start it and print its id; 'box attach' and 'box logs' find it" },
	FLAG_ENV,
	FLAG_WORKDIR,
	FLAG_USER,
	{ "timeout", 0, "TIME", "end it after this time, like 30s or 5m (exit code 124)" },
	FLAG_END,
};

static const struct flag shell_flags[] = { FLAG_ENV, FLAG_WORKDIR, FLAG_USER, FLAG_END };

static const struct flag ls_flags[] = {
	{ "label", 'l', "KEY[=VALUE]", "only boxes with this label (repeatable)" },
	{ "state", 0, "STATE", "only boxes in this state, like running" },
	{ "names", 'q', NULL, "names only, one a line" },
	FLAG_END,
};

static const struct flag ps_flags[] = {
	{ "execs", 0, NULL, "the programs started by exec instead of all processes" },
	FLAG_END,
};

static const struct flag attach_flags[] = {
	{ "since-offset", 0, "N", "output from this offset on (0: all that is kept)" },
	{ "new", 0, NULL, "only output that comes from now on" },
	{ "no-stdin", 0, NULL, "only watch: neither input nor signals" },
	{ "interactive", 'i', NULL, "forward stdin even if it is not a terminal" },
	FLAG_END,
};

static const struct flag logs_flags[] = {
	{ "follow", 'f', NULL, "go on until the program ends" },
	{ "since-offset", 0, "N", "output from this offset on" },
	FLAG_END,
};

static const struct flag cp_flags[] = {
	{ "preserve", 'p', NULL, "keep set-user-id bits and, as root, owners" },
	FLAG_END,
};

static const struct flag stop_flags[] = {
	{ "timeout", 't', "TIME", "how long programs have to end before they are killed (10s)" },
	FLAG_END,
};

static const struct flag rm_flags[] = {
	{ "force", 'f', NULL, "also when it runs; no error when there is none" },
	{ "all", 'a', NULL, "all boxes" },
	FLAG_END,
};

static const struct flag stats_flags[] = {
	{ "once", 0, NULL, "one table instead of a live one" },
	FLAG_END,
};

static const struct flag events_flags[] = {
	{ "follow", 'f', NULL, "go on with what happens" },
	{ "since", 0, "N", "from this offset on" },
	{ "box", 'b', "BOX", "only of this box" },
	FLAG_END,
};

static const struct flag names_flags[] = {
	{ "names", 'q', NULL, "names only, one a line" },
	FLAG_END,
};

static const struct flag image_build_flags[] = {
	{ "package", 'p', "NAME", "one more Debian package (repeatable)" },
	{ "minimal", 0, NULL, "leave the standard tools out" },
	FLAG_END,
};

static const struct flag token_create_flags[] = {
	{ "scope", 's', "SCOPE", "read, exec, create or admin (repeatable; read exec create)" },
	{ "expires", 0, "TIME", "valid for this time, like 30d (for ever)" },
	FLAG_END,
};

static const struct flag bench_flags[] = {
	{ "runs", 'n', "N", "runs of each measurement (200)" },
	{ "list", 0, NULL, "name the measurements" },
	{ "no-peers", 0, NULL, "do not measure other sandboxes" },
	FLAG_END,
};

static const struct flag down_flags[] = {
	{ "purge", 0, NULL, "remove all boxes, images, tokens and logs too" },
	{ "yes", 'y', NULL, "do not ask; needed where nobody can be asked" },
	FLAG_END,
};

static const struct flag serve_flags[] = {
	{ "foreground", 0, NULL, "stay in the foreground (it always does)" },
	FLAG_END,
};

static const struct flag help_flags[] = {
	{ "markdown", 0, NULL, "the whole manual as Markdown" },
	FLAG_END,
};

const struct command commands[] = {
	{ .name = "new",
		.usage = "[NAME] [-- PROGRAM [ARG...]]",
		.summary = "make a box",
		.text = "Makes a box, waits until it runs and prints its name; one is made up when "
			"none is given.\n"
			"With a program after -- that is run in the new box at once, with its "
			"output here and its\n"
			"exit code as ours; with -d it is started and left to itself.",
		.examples =
			"box new ada\ta box called ada\n"
			"box new --memory 512M --cpu 2 --label team=core\twith limits and a label\n"
			"box new --rm -- python3 -c 'print(6*7)'\trun something and leave "
			"nothing\n",
		.flags = new_flags,
		.run = cmd_new,
		.most = -1 },
	{ .name = "ls",
		.usage = "",
		.summary = "list boxes",
		.examples = "box ls\tall boxes\nbox ls -l team=core --state running\tsome of them\n"
			    "box rm $(box ls -q --state stopped)\tnames for other commands\n",
		.flags = ls_flags,
		.run = cmd_ls },
	{ .name = "show",
		.usage = "BOX...",
		.summary = "show all about a box",
		.examples = "box show ada\teverything\nbox show ada --json\tfor programs\n",
		.run = cmd_show,
		.least = 1,
		.most = -1,
		.words = "box" },
	{ .name = "exec",
		.usage = "BOX [--] PROGRAM [ARG...]",
		.summary = "run a program in a box",
		.text = "The exit code is the program's, or 128 + the signal that ended it. stdin "
			"is forwarded only\n"
			"with -i. Without -t, INT, TERM, HUP and QUIT are passed to the program; a "
			"second Ctrl-C\n"
			"within a second ends only this command. With -it every key goes to the "
			"program. With -i\n"
			"at a terminal Ctrl-P Ctrl-Q lets go of it and leaves it running. When the "
			"daemon is restarted\n"
			"meanwhile, the output goes on where it was.",
		.examples = "box exec ada -- make -j4\trun and wait\n"
			    "box exec -it ada -- vi notes\twith a terminal\n"
			    "tar c src | box exec -i ada -- tar x -C /srv\tinto its stdin\n"
			    "box exec -d ada -- ./server\tin the background\n"
			    "box exec --timeout 30s ada -- ./tests\twith a time limit\n",
		.flags = exec_flags,
		.run = cmd_exec,
		.options = CMD_STOP_AT_PROGRAM,
		.least = 2,
		.most = -1,
		.stop_after = 1,
		.words = "box" },
	{ .name = "shell",
		.usage = "BOX",
		.summary = "open a shell in a box",
		.text = "A login shell with a terminal: exec -it with the user's shell. Ctrl-P "
			"Ctrl-Q leaves it running.",
		.examples = "box shell ada\tas root\nbox shell -u nobody ada\tas somebody else\n",
		.flags = shell_flags,
		.run = cmd_shell,
		.least = 1,
		.most = 1,
		.words = "box" },
	{ .name = "ps",
		.usage = "BOX",
		.summary = "list what runs in a box",
		.examples = "box ps ada\tprocesses\nbox ps ada --execs\tprograms started by exec, "
			    "also ended ones\n",
		.flags = ps_flags,
		.run = cmd_ps,
		.least = 1,
		.most = 1,
		.words = "box" },
	{ .name = "attach",
		.usage = "BOX [EXEC]",
		.summary = "join a running program",
		.text = "Output from its beginning (as far as it is kept, 1 MiB) and from now on; "
			"keys and\n"
			"signals go to it when stdin is a terminal: Ctrl-P Ctrl-Q leaves it "
			"running, "
			"Ctrl-C does not.\n"
			"Without EXEC: the one that was started last and still runs. The exit code "
			"is the program's.",
		.examples = "box attach ada\tthe last one\nbox attach ada x7k2m --new\tskip what "
			    "it said before\n",
		.flags = attach_flags,
		.run = cmd_attach,
		.least = 1,
		.most = 2,
		.words = "box" },
	{ .name = "logs",
		.usage = "BOX [EXEC]",
		.summary = "print what a program has said",
		.text = "Of the program that was started last unless EXEC names one. At most 1 MiB "
			"is kept, as long as the\n"
			"box runs; what had to be dropped is told on stderr.",
		.examples = "box logs -f ada\tgo on with it\nbox logs ada main --since-offset "
			    "4096\tonly the rest\n",
		.flags = logs_flags,
		.run = cmd_logs,
		.least = 1,
		.most = 2,
		.words = "box" },
	{ .name = "cp",
		.usage = "SOURCE... TARGET",
		.summary = "copy files into and out of a box",
		.text = "Names in a box are BOX:/path; - is stdin or stdout (one file). Folders "
			"are copied with all\n"
			"they hold. A target that is a folder, or ends in /, is copied into; else "
			"it is the new name.",
		.examples = "box cp report.pdf ada:/root/\tinto a box\n"
			    "box cp ada:/var/log ./logs\ta folder out of it\n"
			    "box cp ada:/etc/hosts -\tto stdout\n"
			    "curl -s https://example.com/x | box cp - ada:/tmp/x\tfrom stdin\n",
		.flags = cp_flags,
		.run = cmd_cp,
		.least = 2,
		.most = -1,
		.words = "file" },
	{ .name = "stop",
		.usage = "BOX...",
		.summary = "stop boxes; their disks stay",
		.examples = "box stop ada\tTERM to all, KILL after 10 s\nbox stop -t 0 ada bob\tat "
			    "once\n",
		.flags = stop_flags,
		.run = cmd_stop,
		.least = 1,
		.most = -1,
		.words = "box" },
	{ .name = "start",
		.usage = "BOX...",
		.summary = "start stopped boxes again",
		.examples = "box start ada\tfrom its disk\n",
		.run = cmd_start,
		.least = 1,
		.most = -1,
		.words = "box" },
	{ .name = "rename",
		.usage = "BOX NAME",
		.summary = "give a box another name",
		.examples = "box rename ada bob\twhile it runs, too\n",
		.run = cmd_rename,
		.least = 2,
		.most = 2,
		.words = "box" },
	{ .name = "rm",
		.usage = "[BOX...]",
		.summary = "remove boxes and their disks",
		.examples = "box rm ada bob\tstopped ones\nbox rm -f ada\ta running one\nbox rm -f "
			    "--all\tevery one\n",
		.flags = rm_flags,
		.run = cmd_rm,
		.most = -1,
		.words = "box" },
	{ .name = "stats",
		.usage = "[BOX...]",
		.summary = "watch CPU, memory and processes of boxes",
		.text = "A live table on a terminal, until Ctrl-C; otherwise one table.",
		.examples = "box stats\tlive\nbox stats --once --json\tfigures now\n",
		.flags = stats_flags,
		.run = cmd_stats,
		.most = -1,
		.words = "box" },
	{ .name = "events",
		.usage = "",
		.summary = "show what happened",
		.text = "Each event has an offset; --since goes on from one, also after the daemon "
			"was restarted.",
		.examples = "box events -f\tas it happens\nbox events --since 120 --box ada\tpart "
			    "of it\n",
		.flags = events_flags,
		.run = cmd_events },
	{ .name = "image",
		.usage = "build|ls|show|rm",
		.summary = "what boxes start from",
		.options = CMD_GROUP },
	{ .name = "image build",
		.usage = "[NAME]",
		.summary = "build an image from Debian packages",
		.text = "Without NAME it is the default image, debian: a Debian with git, python3, "
			"nodejs, compilers\n"
			"and other tools. Boxes that exist keep the image they were made from.",
		.examples = "box image build\tthe default image\n"
			    "box image build golang --package golang\twith more\n"
			    "box image build tiny --minimal\tas small as it gets\n",
		.flags = image_build_flags,
		.run = cmd_image_build,
		.most = 1 },
	{ .name = "image ls",
		.usage = "",
		.summary = "list images",
		.flags = names_flags,
		.run = cmd_image_ls },
	{ .name = "image show",
		.usage = "IMAGE",
		.summary = "show one image",
		.run = cmd_image_show,
		.least = 1,
		.most = 1,
		.words = "image" },
	{ .name = "image rm",
		.usage = "IMAGE...",
		.summary = "remove images no box uses",
		.run = cmd_image_rm,
		.least = 1,
		.most = -1,
		.words = "image" },
	{ .name = "token",
		.usage = "create|ls|revoke",
		.summary = "who may use the API over TCP",
		.options = CMD_GROUP },
	{ .name = "token create",
		.usage = "NAME",
		.summary = "make a token and print it, once",
		.examples = "box token create ci --scope read --scope exec --expires 30d\ta narrow "
			    "one\n",
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
	{ .name = "info", .usage = "", .summary = "what this daemon is and has", .run = cmd_info },
	{ .name = "doctor",
		.usage = "",
		.summary = "what this machine can and cannot do",
		.text = "Exit code 0 when boxes can run here, 69 when a required piece is missing.",
		.run = cmd_doctor },
	{ .name = "bench",
		.usage = "[NAME...]",
		.summary = "measure this machine and the sandboxes on it",
		.examples = "box bench --list\twhat can be measured\nbox bench create_first_byte "
			    "exec_cli\tsome of it\n",
		.flags = bench_flags,
		.run = cmd_bench,
		.most = -1 },
	{ .name = "up",
		.usage = "",
		.summary = "start the daemon in the background",
		.text = "Nothing happens when it runs already. Its log is BOX_HOME/log/daemon.log.",
		.run = cmd_up },
	{ .name = "down",
		.usage = "",
		.summary = "stop the daemon; boxes run on",
		.examples = "box down\tboxes run on and are found again by 'box up'\n"
			    "box down --purge\tremove everything it ever made\n",
		.flags = down_flags,
		.run = cmd_down },
	{ .name = "serve",
		.usage = "",
		.summary = "run the daemon in the foreground",
		.text = "For service managers; 'box up' starts it in the background.",
		.flags = serve_flags,
		.run = cmd_serve },
	{ .name = "completion",
		.usage = "bash",
		.summary = "print shell completion",
		.examples = "source <(box completion bash)\tfor this shell\n"
			    "box completion bash > /etc/bash_completion.d/box\tfor all\n",
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

static const char *nearest_command(const char *word)
{
	const char *best = NULL;

	for (const struct command *command = commands; command->name; command++)
		if (!strchr(command->name, ' ') && text_is_near(word, command->name) &&
			(!best || text_distance(word, command->name) < text_distance(word, best)))
			best = command->name;
	return best;
}

int command_unknown(const char *word)
{
	const struct cli no_command = { 0 };
	const char *near = nearest_command(word);

	if (word[0] == '-')
		return cli_usage(&no_command,
			"unknown option '%.60s'; options come after the command", word);
	if (near)
		return cli_usage(
			&no_command, "unknown command '%.60s', did you mean '%s'?", word, near);
	return cli_usage(&no_command, "unknown command '%.60s'", word);
}

const struct command *command_find(int argc, char **argv, int *ret_words)
{
	const struct command *found = NULL;

	for (const struct command *command = commands; command->name && argc > 0; command++) {
		size_t first = strcspn(command->name, " ");
		const char *second = command->name[first] ? command->name + first + 1 : NULL;

		if (strlen(argv[0]) != first || strncmp(argv[0], command->name, first))
			continue;
		if (!second) {
			found = command;
			*ret_words = 1;
		} else if (argc > 1 && !strcmp(argv[1], second)) {
			*ret_words = 2;
			return command;
		}
	}
	return found;
}
