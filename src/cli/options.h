/* options.h - the options of each command, for the tables in commands_*.c alone */
#pragma once
#include "cli/cli.h"

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
#define FLAG_WORKDIR                                                                             \
	{                                                                                        \
		"workdir", 'w', "DIR", "start in this folder; else the image's, else /workspace" \
	}
#define FLAG_INSIDE                                                                     \
	{                                                                               \
		"inside", 0, "LIMITS",                                                  \
			"what it may do to itself from inside: on, off or limits like " \
			"depth=2,count=4,rate=10 (on)"                                  \
	}
#define FLAG_TREE                                                                             \
	{                                                                                     \
		"tree", 0, "LIMITS",                                                          \
			"what it and all that is made from inside it may use together, like " \
			"memory=2G,cpu=2,pids=4096, or own: what it may itself (own)"         \
	}
#define FLAG_END                    \
	{                           \
		NULL, 0, NULL, NULL \
	}

#define FLAG_ALLOW                                              \
	{                                                       \
		"allow", 0, "DEST[:PORTS][/tcp|/udp]",          \
			"a name, *.name or range it may reach " \
			"(repeatable)"                          \
	}
#define FLAG_DENY                                                                          \
	{                                                                                  \
		"deny", 0, "DEST[:PORTS][/tcp|/udp]", "what it may not reach (repeatable)" \
	}
#define FLAG_PEER                                                             \
	{                                                                     \
		"peer", 0, "BOX[:PORTS]",                                     \
			"another box it may reach, if that one names it too " \
			"(repeatable)"                                        \
	}

static const struct flag new_flags[] = {
	{ "name", 0, "NAME", "the same as the word NAME" },
	{ "image", 0, "IMAGE", "what it starts from (debian)" },
	{ "owner", 0, "OWNER", "whose it is, by who is admin (yours)" },
	{ "cpu", 0, "N", "at most so many CPUs, like 1.5" },
	{ "memory", 'm', "SIZE", "at most so much memory, like 512M" },
	{ "disk", 0, "SIZE", "at most so much disk, like 10G" },
	{ "pids", 0, "N", "at most so many processes" },
	FLAG_ENV,
	{ "label", 'l', "KEY=VALUE", "a label to find it by" },
	{ "profile", 0, "PROFILE", "standard, or nested for boxes that run containers" },
	{ "driver", 0, "DRIVER", "how it is isolated (ns)" },
	{ "on-limit", 0, "POLICY", "on reaching a limit: notify, pause or stop (notify)" },
	FLAG_INSIDE,
	FLAG_TREE,
	{ "auto-snapshot", 0, "WHEN",
		"by itself: exec (before each program), interval=5m or off (off)" },
	{ "idle", 0, "DURATION", "suspended after so long without anything to do, or off (30s)" },
	{ "hibernate-after", 0, "DURATION", "and hibernated so long after that, or off (15m)" },
	{ "volume", 'v', "NAME:/PATH[:ro]", "a volume; made when there is none (repeatable)" },
	{ "copy", 0, "FOLDER[:/PATH]",
		"what it holds is copied into /workspace, or PATH, before anything runs "
		"(repeatable)" },
	{ "mount", 0, "HOST:/PATH[:OPT]",
		"a folder of the host; OPT: ro,uid=N,gid=N (repeatable)" },
	{ "publish", 'p', "[HOST:]PORT",
		"a port of this machine that leads to its port (repeatable); 'box port add'" },
	{ "net", 0, "PRESET", "what it may reach: none, packages, dev or open (dev)" },
	FLAG_ALLOW,
	FLAG_DENY,
	FLAG_PEER,
	{ "policy", 0, "FILE", "all that in a file (docs/policy.md); - is stdin" },
	{ "entrypoint", 0, "PROGRAM", "instead of the image's; '' for none" },
	{ "no-main", 0, NULL, "do not run the image's own command" },
	{ "pull", 0, "WHEN", "the image: missing, never or always (missing)" },
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

static const struct flag url_flags[] = {
	{ "public", 0, NULL, "let everybody in who can reach the daemon" },
	{ "private", 0, NULL, "only with a token or a login" },
	{ "login", 0, NULL, "a link that logs a browser in, once, within 5 minutes" },
	FLAG_END,
};

static const struct flag port_add_flags[] = {
	{ "host-port", 0, "PORT", "this port of 127.0.0.1, 1024 or above (any free one)" },
	FLAG_END,
};

static const struct flag shell_flags[] = { FLAG_ENV, FLAG_WORKDIR, FLAG_USER, FLAG_END };

static const struct flag ls_flags[] = {
	{ "label", 'l', "KEY[=VALUE]", "only boxes with this label (repeatable)" },
	{ "state", 0, "STATE", "only boxes in this state, like running" },
	{ "names", 'q', NULL, "names only, one a line" },
	{ "output", 'o', "FORMAT", "wide: owners too, also when there is one alone" },
	{ "all", 'a', NULL, "nothing: all boxes are listed anyway" },
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
	{ "tail", 'n', "N", "of what is kept only the last N lines" },
	{ "since", 0, "TIME", "only what came since: 2026-01-02T03:04:05Z, or so long ago: 10m" },
	{ "timestamps", 't', NULL, "the time before each line" },
	{ "since-offset", 0, "N", "output from this offset on" },
	FLAG_END,
};

static const struct flag cp_flags[] = {
	{ "preserve", 'p', NULL,
		"keep times and, as root, owners; set-user-id bits only into a box" },
	{ "archive", 'a', NULL, "the same as -p" },
	{ "recursive", 'r', NULL, "nothing: folders are copied with all they hold anyway" },
	FLAG_END,
};

static const struct flag stop_flags[] = {
	{ "timeout", 't', "TIME", "how long programs have to end before they are killed (10s)" },
	FLAG_END,
};

static const struct flag rm_flags[] = {
	{ "force", 'f', NULL, "also when it runs; no error when there is none" },
	{ "all", 'a', NULL, "all boxes" },
	{ "label", 'l', "KEY[=VALUE]", "all boxes with this label (repeatable)" },
	{ "keep-workspace", 0, NULL, "keep what /workspace holds; 'box workspace' finds it" },
	FLAG_END,
};

static const struct flag stats_flags[] = {
	{ "once", 0, NULL, "one table instead of a live one" },
	FLAG_END,
};

static const struct flag events_flags[] = {
	{ "follow", 'f', NULL, "go on with what happens" },
	{ "tail", 'n', "N", "only the last N of them" },
	{ "since", 0, "N", "from this offset on" },
	{ "box", 'b', "BOX", "only of this box; the same as the word" },
	FLAG_END,
};

static const struct flag audit_flags[] = {
	{ "follow", 'f', NULL, "go on with what happens" },
	{ "since", 0, "SEQ", "from this number on (0: all that is kept)" },
	{ "verdict", 0, "VERDICT", "only what was allowed, or refused" },
	{ "count", 'n', "COUNT", "at most so many lines (50; with --since all)" },
	{ "verify", 0, NULL, "check that nothing was changed, removed or put in" },
	{ "folder", 0, "DIR", "with --verify: this folder, such as a copy; needs no daemon" },
	{ "log", 0, "ID", "the log of a box that wrote more than its share of the common one" },
	FLAG_END,
};

static const struct flag names_flags[] = {
	{ "names", 'q', NULL, "names only, one a line" },
	FLAG_END,
};

static const struct flag set_flags[] = {
	{ "cpu", 0, "N", "at most so many CPUs, like 1.5; 0: no limit" },
	{ "memory", 'm', "SIZE", "at most so much memory; 0: no limit" },
	{ "disk", 0, "SIZE", "at most so much disk; 0: no limit" },
	{ "pids", 0, "N", "at most so many processes; 0: no limit" },
	{ "on-limit", 0, "POLICY", "on reaching a limit: notify, pause or stop" },
	FLAG_INSIDE,
	FLAG_TREE,
	{ "auto-snapshot", 0, "WHEN", "by itself: exec (before each program), interval=5m or off" },
	{ "idle", 0, "DURATION",
		"suspended after so long without anything to do; off, or default" },
	{ "hibernate-after", 0, "DURATION", "and hibernated so long after that; off, or default" },
	{ "name", 0, "NAME", "another name" },
	FLAG_END,
};

static const struct flag save_flags[] = {
	{ "full", 0, NULL, "with what runs in it: boxes from it go on from there" },
	{ "learn-hosts", 0, NULL, "its package hosts count: what was written in it decides, too" },
	FLAG_END,
};

static const struct flag snapshot_flags[] = {
	{ "disk-only", 0, NULL, "without what runs in it" },
	FLAG_END,
};

static const struct flag rollback_flags[] = {
	{ "disk-only", 0, NULL, "its disk alone; the box starts anew" },
	{ "forget", 0, NULL, "do not keep what it is now: it cannot be undone" },
	FLAG_END,
};

static const struct flag fork_flags[] = {
	{ "count", 'n', "N", "so many children, at most 100 (as many as names)" },
	{ "from", 0, "SNAPSHOT", "as it was then, instead of now" },
	FLAG_ENV,
	{ "label", 'l', "KEY=VALUE", "a label to find them by" },
	{ "net", 0, "PRESET", "what they may reach: none, packages, dev or open" },
	FLAG_ALLOW,
	FLAG_DENY,
	FLAG_PEER,
	{ "policy", 0, "FILE|PRESET", "all that in a file (docs/policy.md); - is stdin" },
	{ "disk-only", 0, NULL, "a copy of its disk; they start anew" },
	{ "rm", 0, NULL, "remove each when its command ends or it stops" },
	FLAG_WORKDIR,
	FLAG_USER,
	{ "timeout", 0, "TIME", "end it after this time, like 30s or 5m (exit code 124)" },
	FLAG_END,
};

static const struct flag promote_flags[] = {
	{ "keep-labels", 0, NULL, "its own labels, not those of the box it replaces" },
	{ "keep-limits", 0, NULL, "its own limits, not those of the box it replaces" },
	FLAG_END,
};

static const struct flag try_flags[] = {
	{ "check", 0, "COMMAND", "this decides, run by sh in the box, instead of the exit code" },
	{ "name", 0, "NAME", "of the snapshot before it" },
	{ "keep-failed", 0, NULL, "what failed stays on the time line" },
	{ "disk-only", 0, NULL, "keep and take back the disk alone; the box starts anew then" },
	FLAG_INTERACTIVE,
	FLAG_TTY,
	FLAG_ENV,
	FLAG_WORKDIR,
	FLAG_USER,
	{ "timeout", 0, "TIME", "end it after this time, like 30s or 5m (exit code 124)" },
	FLAG_END,
};

static const struct flag diff_flags[] = {
	{ "tar", 0, "FILE", "the changes as an archive; - is stdout" },
	FLAG_END,
};

static const struct flag compare_flags[] = {
	{ "files", 0, NULL, "only where files differ" },
	{ "limit", 'n', "N", "at most so many paths, to 10000 (1000)" },
	FLAG_END,
};

static const struct flag net_flags[] = {
	{ "watch", 'w', NULL, "again every second" },
	{ "connections", 'c', NULL, "the connections of the box now, too" },
	FLAG_END,
};

static const struct flag policy_show_flags[] = {
	{ "rules", 0, NULL, "all rules, with those of the preset, and where each is from" },
	FLAG_END,
};

static const struct flag policy_set_flags[] = {
	{ "net", 0, "PRESET", "none, packages, dev or open" },
	FLAG_ALLOW,
	FLAG_DENY,
	FLAG_PEER,
	{ "add", 0, NULL, "to the present policy, instead of replacing it" },
	{ "if-version", 0, "N", "only if that is its version now" },
	FLAG_END,
};

static const struct flag policy_explain_flags[] = {
	{ "method", 0, "METHOD", "of a request in plain HTTP" },
	{ "path", 0, "PATH", "of a request in plain HTTP" },
	{ "address", 0, "ADDRESS", "where the name leads" },
	{ "seen", 0, "NAME", "the name in SNI or Host, when it is another" },
	FLAG_END,
};

static const struct flag policy_record_flags[] = {
	FLAG_INTERACTIVE,
	FLAG_TTY,
	FLAG_ENV,
	FLAG_WORKDIR,
	FLAG_USER,
	{ "output", 'o', "FILE", "the proposal goes there (stdout)" },
	{ "apply", 0, NULL, "and becomes the policy of the box" },
	{ "add", 0, NULL, "or is added to it: what it lacks, and nothing else" },
	{ "off", 0, NULL, "only end a watch mode that was left on" },
	FLAG_END,
};

static const struct flag output_flags[] = {
	{ "output", 'o', "FILE", "the archive as it is; - is stdout" },
	FLAG_END,
};

static const struct flag volume_create_flags[] = {
	{ "size", 0, "SIZE", "at most so much, like 10G; 0: no limit" },
	{ "owner", 0, "OWNER", "whose it is, by who is admin (yours)" },
	FLAG_END,
};

static const struct flag volume_flags[] = {
	{ "size", 0, "SIZE", "at most so much, like 10G; 0: no limit" },
	FLAG_END,
};

static const struct flag image_ls_flags[] = {
	{ "all", 'a', NULL, "those without a name too, such as steps of builds" },
	{ "tree", 0, NULL, "all, each below the one it was made upon" },
	{ "names", 'q', NULL, "names only, one a line" },
	FLAG_END,
};

static const struct flag image_pull_flags[] = {
	{ "name", 0, "NAME", "call it so here (the reference)" },
	{ "insecure", 0, NULL, "plain HTTP or an unknown certificate is fine" },
	FLAG_END,
};

static const struct flag image_export_flags[] = {
	{ "output", 'o', "FILE", "where to (stdout)" },
	{ "format", 0, "FORMAT", "oci, docker or rootfs (oci)" },
	FLAG_END,
};

static const struct flag image_gc_flags[] = {
	{ "dry-run", 'n', NULL, "only tell what would go" },
	FLAG_END,
};

static const struct flag image_build_flags[] = {
	{ "file", 'f', "FILE", "run this Boxfile (docs/boxfile.md); - is stdin" },
	{ "tag", 't', "NAME", "name of the image a Boxfile makes" },
	{ "no-cache", 0, NULL, "run every step of a Boxfile again" },
	{ "learn-hosts", 0, NULL, "package hosts that its steps configure count" },
	{ "pull", 0, "WHEN",
		"the image a Boxfile begins from: missing, never or always (missing)" },
	{ "package", 'p', "NAME", "one more Debian package (repeatable)" },
	{ "minimal", 0, NULL, "leave the standard tools out" },
	FLAG_END,
};

static const struct flag token_create_flags[] = {
	{ "scope", 's', "SCOPE",
		"read, files, exec, create or admin (repeatable; read exec create)" },
	{ "expires", 0, "TIME", "valid for this time, like 30d (for ever)" },
	{ "owner", 0, "OWNER", "whose things it sees, unless it is admin (yours)" },
	FLAG_END,
};

static const struct flag context_add_flags[] = {
	{ "token", 0, "TOKEN", "for https and http (BOX_TOKEN); - reads it from stdin" },
	{ "cacert", 0, "FILE", "trust these certificates too, PEM" },
	FLAG_END,
};

static const struct flag bench_flags[] = {
	{ "runs", 'n', "N", "runs of each measurement (200)" },
	{ "list", 0, NULL, "name the measurements" },
	{ "no-peers", 0, NULL, "do not measure other sandboxes" },
	{ "tar", 0, "FILE", "root file system for image_import (the base image's)" },
	{ "host-dir", 0, "DIR", "the host's file system to compare with (/var/tmp)" },
	{ "boxes", 0, "N", "idle boxes beside which the network is measured again (500)" },
	{ "npm-project", 0, "DIR",
		"package.json, its lock and a folder npm-cache, for npm_install" },
	FLAG_END,
};

static const struct flag attack_flags[] = {
	{ "group", 0, "GROUP", "only this group; --list names them" },
	{ "profile", 0, "PROFILE", "only this one: standard or nested (both)" },
	{ "list", 0, NULL, "name the groups" },
	{ "keep", 0, NULL, "leave the attacked daemon and its folder" },
	{ "rig", 0, NULL, "only the test network: run a command in it and tell what arrived" },
	FLAG_END,
};

static const struct flag down_flags[] = {
	{ "purge", 0, NULL, "remove all boxes, images, tokens and logs too" },
	{ "hibernate", 0, NULL, "write all boxes to disk first, with what runs in them" },
	{ "no-hibernate", 0, NULL, "boxes run on, whatever hibernate_on_shutdown says" },
	{ "yes", 'y', NULL, "do not ask; needed where nobody can be asked" },
	FLAG_END,
};

static const struct flag serve_flags[] = {
	{ "foreground", 0, NULL, "stay in the foreground (it always does)" },
	FLAG_END,
};

static const struct flag help_flags[] = {
	{ "markdown", 0, NULL, "the whole manual as Markdown" },
	{ "man", 0, "DIR",
		"write the manual pages into this folder: box.1 and one for each command" },
	FLAG_END,
};
