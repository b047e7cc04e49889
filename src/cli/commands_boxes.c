/* commands_boxes.c - commands about a box: made, used, looked at, removed; what happened to it; see
 * commands.c */
#include "cli/cli.h"
#include "cli/options.h"

const struct command boxes_commands[] = {
	{ .name = "new",
		.usage = "[NAME] [-- PROGRAM [ARG...]]",
		.summary = "create a box",
		.text = "Creates a box, waits until it runs and prints its name; without NAME a name is generated.\n"
			"A program after -- runs in the new box, with its output and exit code here; with -d it\n"
			"runs in the background. Without a program the image's own command runs, if it has one.\n"
			"A missing image is pulled first.",
		.examples =
			"box new ada\ta box called ada\n"
			"box new web --image nginx:1.27\tfrom a registry, with what it runs\n"
			"box new -v cache:/root/.cache --mount ./src:/src:ro\twith a volume and a "
			"folder\n"
			"box new --net none --allow github.com:443\tthat may reach no more than "
			"this\n"
			"box new --memory 512M --cpu 2 --label team=core\twith limits and a label\n"
			"box new --rm --copy . -- make test\tthis folder goes along, into "
			"/workspace\n"
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
		.summary = "show everything about a box",
		.examples = "box show ada\teverything\nbox show ada --json\tfor programs\n",
		.run = cmd_show,
		.least = 1,
		.most = -1,
		.words = "box" },
	{ .name = "exec",
		.usage = "BOX [--] PROGRAM [ARG...]",
		.summary = "run a program in a box",
		.text = "The exit code is the program's, or 128 + the signal that ended it. stdin is forwarded only\n"
			"with -i. Without -t, INT, TERM, HUP and QUIT are passed to the program; a second Ctrl-C\n"
			"within a second ends only this command. With -it every key goes to the program. With -i\n"
			"at a terminal, Ctrl-P Ctrl-Q detaches and leaves it running. When the daemon is restarted,\n"
			"the output continues where it was.",
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
		.text = "A login shell with a terminal: exec -it with the user's shell. Ctrl-P Ctrl-Q detaches and leaves it running.",
		.examples = "box shell ada\tas root\nbox shell -u nobody ada\tas somebody else\n",
		.flags = shell_flags,
		.run = cmd_shell,
		.least = 1,
		.most = 1,
		.words = "box" },
	{ .name = "ps",
		.usage = "BOX",
		.summary = "list the processes of a box",
		.examples = "box ps ada\tprocesses\nbox ps ada --execs\tprograms started by exec, "
			    "also ended ones\n",
		.flags = ps_flags,
		.run = cmd_ps,
		.least = 1,
		.most = 1,
		.words = "box" },
	{ .name = "attach",
		.usage = "BOX [EXEC]",
		.summary = "attach to a running program",
		.text = "Shows the kept output (up to 1 MiB), then new output. When stdin is a terminal, keys and\n"
			"signals go to the program: Ctrl-P Ctrl-Q detaches and leaves it running, Ctrl-C does not.\n"
			"Without EXEC: the last started program that still runs. The exit code is the program's.",
		.examples = "box attach ada\tthe last one\nbox attach ada x7k2m --new\tskip what "
			    "it said before\n",
		.flags = attach_flags,
		.run = cmd_attach,
		.least = 1,
		.most = 2,
		.words = "box" },
	{ .name = "logs",
		.usage = "BOX [EXEC]",
		.summary = "print the output of a program",
		.text = "Without EXEC: the box's main program; else the last started one that runs without a terminal,\n"
			"such as a server; else the last started one. At most 1 MiB is kept; a note on stderr says when\n"
			"older output was dropped. Of a stopped box the last 256 KiB of each program are kept until it\n"
			"starts again.",
		.examples = "box logs -f --tail 20 ada\tthe last lines, and go on with it\n"
			    "box logs -t --since 10m ada\tthe last ten minutes, with times\n"
			    "box logs ada main --since-offset 4096\tonly the rest\n",
		.flags = logs_flags,
		.run = cmd_logs,
		.least = 1,
		.most = 2,
		.words = "box" },
	{ .name = "cp",
		.usage = "SOURCE... TARGET",
		.summary = "copy files into and out of boxes",
		.text = "Paths in a box are BOX:/path; - is stdin or stdout (one file). Folders are copied with their\n"
			"contents. If the target is a folder, or ends in /, sources are copied into it; else it is the\n"
			"new name. FOLDER/. copies only the contents. Both sides may be in boxes. Files of a stopped\n"
			"box are read from its disk, without starting it; a hibernated box is woken.\n"
			"\n"
			"Files from a box are written only to the target you gave: never through a symlink, never\n"
			"half (after a failure or Ctrl-C the old file is still there), never with set-user-id bits.",
		.examples = "box cp report.pdf ada:/root/\tinto a box\n"
			    "box cp ada:/var/log ./logs\ta folder out of it\n"
			    "box cp ada:/etc/hosts -\tto stdout\n"
			    "box cp ada:/srv/data bob:/srv/\tfrom one box to another\n"
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
	{ .name = "suspend",
		.usage = "BOX...",
		.summary = "freeze boxes in memory",
		.text = "They keep their memory and use no CPU. Any access wakes them: exec, cp, a request to a URL, or 'box resume'.",
		.examples = "box suspend ada\tat once\n",
		.run = cmd_suspend,
		.least = 1,
		.most = -1,
		.words = "box" },
	{ .name = "resume",
		.usage = "BOX...",
		.summary = "resume suspended boxes",
		.text = "Also resumes boxes that were paused at a limit, even if they were hibernated since; nothing else wakes those.",
		.examples = "box resume ada\twhere it was\n",
		.run = cmd_resume,
		.least = 1,
		.most = -1,
		.words = "box" },
	{ .name = "set",
		.usage = "BOX",
		.summary = "change the limits of a box",
		.text = "Works on a running box. A disk limit below the current usage is allowed: the box cannot write until it is below the limit.",
		.examples = "box set ada --disk 20G\tmore room\n"
			    "box set ada --memory 1G --on-limit pause\tpaused when it reaches it\n",
		.flags = set_flags,
		.run = cmd_set,
		.least = 1,
		.most = 1,
		.words = "box" },
	{ .name = "save",
		.usage = "BOX IMAGE",
		.summary = "make an image of a box's disk",
		.text = "Saves the disk as it is now; the box keeps running. The image can be used at once and shares its data with the box.",
		.examples =
			"box save ada golden\ta snapshot\nbox new bob --image golden\tand a box "
			"from it\n"
			"box save --full ada ready\tone whose boxes start with everything up\n",
		.flags = save_flags,
		.run = cmd_save,
		.least = 2,
		.most = 2,
		.words = "box" },
	{ .name = "diff",
		.usage = "BOX [OTHER]",
		.summary = "show what changed on a box's disk",
		.text = "Compares with its image, or with OTHER, a box or an image: A is added, C changed, D removed.",
		.examples = "box diff ada\tsince it was made\nbox diff ada golden\tagainst an "
			    "image\n"
			    "box diff ada --tar changes.tar\twith contents, .wh. files for what is "
			    "gone\n",
		.flags = diff_flags,
		.run = cmd_diff,
		.least = 1,
		.most = 2,
		.words = "box" },
	{ .name = "compare",
		.usage = "BOX BOX...",
		.summary = "show what differs between boxes",
		.text = "Shows figures of each box, ended programs with their exit codes, and the files that differ from the first box: A is added, M modified, D removed, with sizes. Boxes may run, sleep or be stopped; none is woken.",
		.examples = "box compare ada bob\ta box and a copy of it that went another way\n"
			    "box compare ada try-1 try-2 --files\tthe files alone, of several\n",
		.flags = compare_flags,
		.run = cmd_compare,
		.least = 2,
		.most = 16,
		.words = "box" },
	{ .name = "df",
		.usage = "[BOX...]",
		.summary = "show disk usage",
		.text = "USED is the space on the box's own disk; TREE that of the box and all forks made from inside it, including snapshots and earlier disks; MEMORY the space of its captured memory; FREE what it may still write. The last row is the pool that holds all of them.",
		.examples = "box df\tall\nbox df ada --json\tone, for programs\n",
		.run = cmd_df,
		.most = -1,
		.words = "box" },
	{ .name = "rename",
		.usage = "BOX NAME",
		.summary = "rename a box",
		.examples = "box rename ada bob\twhile it runs, too\n",
		.run = cmd_rename,
		.least = 2,
		.most = 2,
		.words = "box" },
	{ .name = "rm",
		.usage = "[BOX...]",
		.summary = "remove boxes and their disks",
		.examples =
			"box rm ada bob\tstopped ones\nbox rm -f ada\ta running one\nbox rm -f "
			"--all\tevery one\nbox rm -f ada --keep-workspace\tits /workspace stays\n",
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
		.usage = "[BOX]",
		.summary = "show events",
		.text = "Each event has an offset; --since starts at one, also after a restart of the daemon.",
		.examples = "box events -f -n 10\tthe last ten, and as it happens\n"
			    "box events --since 120 ada\tpart of it\n",
		.flags = events_flags,
		.run = cmd_events,
		.most = 1,
		.words = "box" },
	{ .name = "audit",
		.usage = "[BOX]",
		.summary = "show what boxes tried to reach",
		.text = "Lists each connection and DNS lookup, allowed or refused, with the rule that decided and the process\n"
			"that asked; also changes of policies (docs/audit.md). Every line holds the hash of the one before:\n"
			"--verify finds later changes, and then exits with code 1.",
		.examples = "box audit\tthe newest lines\n"
			    "box audit ada -f --verdict refused\twhat a box is refused, as it "
			    "happens\n"
			    "box audit --since 0 --json > audit.jsonl\tall of it\n"
			    "box audit --verify\tis it whole?\n",
		.flags = audit_flags,
		.run = cmd_audit,
		.most = 1,
		.words = "box" },
	{ .name = NULL },
};
