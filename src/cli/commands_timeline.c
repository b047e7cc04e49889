/* commands_timeline.c - commands about a box in time: asleep, kept, taken back, copied; see
 * commands.c */
#include "cli/cli.h"
#include "cli/options.h"

const struct command timeline_commands[] = {
	{ .name = "hibernate",
		.usage = "BOX...",
		.summary = "write boxes to disk, with what runs in them",
		.text = "They use no memory and no CPU, and outlive a restart of the machine. Any "
			"use "
			"wakes them: a\n"
			"program, a file, a request to a URL; or 'box wake'. What cannot be "
			"written is "
			"named, and the box\n"
			"goes on as it was.",
		.examples = "box hibernate ada\tit goes on where it was, whenever that is\n",
		.run = cmd_hibernate,
		.least = 1,
		.most = -1,
		.words = "box" },
	{ .name = "wake",
		.usage = "BOX...",
		.summary = "let boxes run, however deep they sleep",
		.text = "Suspended, hibernated or stopped; one that runs is left alone. One that "
			"was paused because it reached a limit is for 'box resume'.",
		.examples = "box wake ada\twhere it was\n",
		.run = cmd_wake,
		.least = 1,
		.most = -1,
		.words = "box" },
	{ .name = "snapshot",
		.usage = "BOX [NAME]",
		.summary = "keep a box as it is now, with what runs in it",
		.text = "Disk, memory, processes, open files and terminals; the box goes on after "
			"some milliseconds.\n"
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
		.text = "When each was made, why, what it holds; where the box is now, and which "
			"boxes "
			"were forked.\n"
			"STORED is what its processes take on disk, compressed; DISK what only "
			"this "
			"snapshot's disk holds.",
		.examples = "box timeline ada\tthe tree\nbox timeline ada --json\tfor programs\n",
		.run = cmd_timeline,
		.least = 1,
		.most = 1,
		.words = "box" },
	{ .name = "forget",
		.usage = "BOX SNAPSHOT...",
		.summary = "remove snapshots of a box",
		.text = "What went back to one goes back to the one before it.",
		.examples = "box forget ada k3v9 old\tby id or name\n",
		.run = cmd_forget,
		.least = 2,
		.most = -1,
		.stop_after = 1,
		.words = "box" },
	{ .name = "rollback",
		.usage = "BOX [SNAPSHOT]",
		.summary = "take a box back to a snapshot",
		.text = "To the last one when none is named. What it was until now stays on its "
			"time "
			"line, so that this can\n"
			"be undone. Name, id, addresses and URL stay; so do its audit log, policy "
			"and "
			"what it has used up.",
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
		.summary = "run a program, and take the box back if it fails",
		.text = "Makes a snapshot, runs the program with its output here, and keeps what "
			"it did "
			"if it ends with 0\n"
			"(or if --check says so); else, and after Ctrl-C, the box is rolled back. "
			"The "
			"exit code is the\n"
			"program's, or that of the check when only it failed.",
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
		.summary = "copy a box while it works, memory and processes too",
		.text = "Each child is a box of its own from the first moment, with an own id, "
			"name, "
			"address and clock;\n"
			"connections to the outside are cut in it and untouched in the parent. "
			"Prints "
			"the names. Exit code 0\n"
			"if all are there; what failed is told for each.\n"
			"A program after -- runs in each of them, with BOX_FORK_INDEX (from 0), "
			"BOX_NAME, BOX_ID and\n"
			"BOX_PARENT in its environment and its output here: of one fork as it is, "
			"of several with the\n"
			"name of the box before each line. The exit code is that of the first that "
			"fails. With --rm they\n"
			"are removed when all have ended, and also when this command is killed.",
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
		.text = "It takes over name, URL, ports, labels, limits and time line; what the "
			"other was stays on it as\n"
			"a snapshot.",
		.examples = "box promote ada-2\tit is 'ada' from now on\n",
		.flags = promote_flags,
		.run = cmd_promote,
		.least = 1,
		.most = 1,
		.words = "box" },
	{ .name = NULL },
};
