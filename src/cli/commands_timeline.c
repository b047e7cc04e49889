/* commands_timeline.c - commands about a box in time: asleep, kept, taken back, copied; see
 * commands.c */
#include "cli/cli.h"
#include "cli/options.h"

const struct command timeline_commands[] = {
	{ .name = "hibernate",
		.usage = "BOX...",
		.summary = "write boxes with their processes to disk",
		.text = "They use no memory and no CPU, and survive a restart of the machine. Any access wakes them:\n"
			"exec, cp, a request to a URL, or 'box wake'. If a process cannot be captured, the error names\n"
			"it and the box keeps running.",
		.examples = "box hibernate ada\tit goes on where it was, whenever that is\n",
		.run = cmd_hibernate,
		.least = 1,
		.most = -1,
		.words = "box" },
	{ .name = "wake",
		.usage = "BOX...",
		.summary = "wake boxes from any state",
		.text = "Wakes suspended, hibernated and stopped boxes; running ones are left alone. A box paused at a limit needs 'box resume'.",
		.examples = "box wake ada\twhere it was\n",
		.run = cmd_wake,
		.least = 1,
		.most = -1,
		.words = "box" },
	{ .name = "snapshot",
		.usage = "BOX [NAME]",
		.summary = "take a snapshot of a box with its processes",
		.text = "Saves disk, memory, processes, open files and terminals; the box is paused for some milliseconds.\n"
			"Prints the name, or the id when none is given.",
		.examples =
			"box snapshot ada before-upgrade\tand 'box rollback ada before-upgrade'\n"
			"box snapshot ada --disk-only\tits disk alone\n",
		.flags = snapshot_flags,
		.run = cmd_snapshot,
		.least = 1,
		.most = 2,
		.words = "box" },
	{ .name = "timeline",
		.usage = "BOX",
		.summary = "show the snapshots of a box as a tree",
		.text = "Shows when and why each was made and its size; where the box is now, and which boxes were forked.\n"
			"STORED is the compressed size of its processes; DISK the data that only this snapshot's disk has.",
		.examples = "box timeline ada\tthe tree\nbox timeline ada --json\tfor programs\n",
		.run = cmd_timeline,
		.least = 1,
		.most = 1,
		.words = "box" },
	{ .name = "forget",
		.usage = "BOX SNAPSHOT...",
		.summary = "remove snapshots of a box",
		.text = "Snapshots made after a removed one are attached to the one before it.",
		.examples = "box forget ada k3v9 old\tby id or name\n",
		.run = cmd_forget,
		.least = 2,
		.most = -1,
		.stop_after = 1,
		.words = "box" },
	{ .name = "rollback",
		.usage = "BOX [SNAPSHOT]",
		.summary = "roll a box back to a snapshot",
		.text = "Without SNAPSHOT: to the last one. The present stays on the time line as a snapshot, so that this\n"
			"can be undone. Name, id, addresses and URL stay, and so do audit log, policy and used budgets.",
		.examples = "box rollback ada\tto the last snapshot\n"
			    "box rollback ada before-upgrade\tto that one\n"
			    "box rollback ada k3v9 --disk-only\tits disk, and a new start\n",
		.flags = rollback_flags,
		.run = cmd_rollback,
		.least = 1,
		.most = 2,
		.words = "box" },
	{ .name = "try",
		.usage = "BOX [--] PROGRAM [ARG...]",
		.summary = "run a program, and roll the box back if it fails",
		.text = "Takes a snapshot, runs the program with its output here, and keeps the result if it exits with 0\n"
			"(or if --check succeeds); otherwise, and after Ctrl-C, the box is rolled back. The exit code is\n"
			"the program's, or the check's when only that failed.",
		.examples =
			"box try ada -- apt-get -y upgrade\tor nothing has happened\n"
			"box try ada --check 'curl -fs localhost:8080' -- ./deploy\tif it still "
			"answers\n",
		.flags = try_flags,
		.run = cmd_try,
		.options = CMD_STOP_AT_PROGRAM,
		.least = 2,
		.most = -1,
		.stop_after = 1,
		.words = "box" },
	{ .name = "fork",
		.usage = "BOX [NAME...] [-- PROGRAM [ARG...]]",
		.summary = "copy a running box with its memory and processes",
		.text = "Each child is an independent box with its own id, name, address and clock; connections to the\n"
			"outside are closed in it and untouched in the parent. Prints the names. The exit code is 0 if all\n"
			"were made; each failure is reported.\n"
			"A program after -- runs in each child, with BOX_FORK_INDEX (from 0), BOX_NAME, BOX_ID and\n"
			"BOX_PARENT in its environment and its output here; with several children each line begins with\n"
			"the name of its box. The exit code is that of the first that fails. With --rm the children are\n"
			"removed when all programs have ended, and also when this command is killed.",
		.examples = "box fork ada bob\tone more\nbox fork ada -n 10 --rm\tten of them\n"
			    "box fork ada -n 4 --rm -- make test\tthe same thing four times\n"
			    "box fork ada --from before-upgrade old\tas it was then\n"
			    "box fork ada eve -e SEED=7 --net none\tthat knows, and may, something "
			    "else\n",
		.flags = fork_flags,
		.run = cmd_fork,
		.least = 1,
		.most = -1,
		.stop_after = 1,
		.words = "box" },
	{ .name = "promote",
		.usage = "CHILD",
		.summary = "put a fork in the place of the box it was forked from",
		.text = "It takes over name, URL, ports, labels, limits and time line; the replaced box stays on the time\n"
			"line as a snapshot.",
		.examples = "box promote ada-2\tit is 'ada' from now on\n",
		.flags = promote_flags,
		.run = cmd_promote,
		.least = 1,
		.most = 1,
		.words = "box" },
	{ .name = NULL },
};
