/* options.h - the options of each command, for the tables in commands_*.c alone */
#pragma once
#include "cli/cli.h"

#define FLAG_ENV                                                                       \
	{                                                                              \
		"env", 'e', "KEY=VALUE",                                               \
			"set an environment variable; KEY alone passes your own value" \
	}
#define FLAG_INTERACTIVE                                  \
	{                                                 \
		"interactive", 'i', NULL, "forward stdin" \
	}
#define FLAG_TTY                                                \
	{                                                       \
		"tty", 't', NULL, "give the program a terminal" \
	}
#define FLAG_USER                                                                       \
	{                                                                               \
		"user", 'u', "USER", "run as this user: name or uid, optionally :group" \
	}
#define FLAG_WORKDIR                                                                      \
	{                                                                                 \
		"workdir", 'w', "DIR", "working directory (the image's, else /workspace)" \
	}
#define FLAG_INSIDE                                                                           \
	{                                                                                     \
		"inside", 0, "LIMITS",                                                        \
			"what it may do with the box command inside: on, off or limits like " \
			"depth=2,count=4,rate=10 (on)"                                        \
	}
#define FLAG_TREE                                                                              \
	{                                                                                      \
		"tree", 0, "LIMITS",                                                           \
			"limits of the box together with all forks made from inside it, like " \
			"memory=2G,cpu=2,pids=4096; own: the limits of the box itself (own)"   \
	}
#define FLAG_END                    \
	{                           \
		NULL, 0, NULL, NULL \
	}

#define FLAG_ALLOW                                                                  \
	{                                                                           \
		"allow", 0, "DEST[:PORTS][/tcp|/udp]",                              \
			"a name, *.name or address range it may reach (repeatable)" \
	}
#define FLAG_DENY                                                                       \
	{                                                                               \
		"deny", 0, "DEST[:PORTS][/tcp|/udp]",                                   \
			"a name, *.name or address range it may not reach (repeatable)" \
	}
#define FLAG_PEER                                                                          \
	{                                                                                  \
		"peer", 0, "BOX[:PORTS]",                                                  \
			"another box it may reach, if that box allows it too (repeatable)" \
	}

static const struct flag control_flags[] = {
	{ "uid", 0, "UID", "the user it becomes" },
	FLAG_END,
};

static const struct flag new_flags[] = {
	{ "name", 0, "NAME", "the same as the argument NAME" },
	{ "image", 0, "IMAGE", "image to start from (debian)" },
	{ "owner", 0, "OWNER", "owner, which only an admin may choose (yours)" },
	{ "cpu", 0, "N", "CPU limit, like 1.5" },
	{ "memory", 'm', "SIZE", "memory limit, like 512M" },
	{ "disk", 0, "SIZE", "disk limit, like 10G" },
	{ "pids", 0, "N", "process limit" },
	FLAG_ENV,
	{ "label", 'l', "KEY=VALUE", "a label to find it by" },
	{ "profile", 0, "PROFILE", "standard, or nested for boxes that run containers" },
	{ "driver", 0, "DRIVER", "driver that isolates it (ns)" },
	{ "on-limit", 0, "POLICY", "what happens at a limit: notify, pause or stop (notify)" },
	FLAG_INSIDE,
	FLAG_TREE,
	{ "auto-snapshot", 0, "WHEN",
		"automatic snapshots: exec (before each program), interval=5m or off (off)" },
	{ "idle", 0, "DURATION", "suspend after this idle time, or off (30s)" },
	{ "hibernate-after", 0, "DURATION",
		"hibernate this long after it was suspended, or off (15m)" },
	{ "volume", 'v', "NAME:/PATH[:ro]",
		"mount a volume; created if it does not exist (repeatable)" },
	{ "copy", 0, "FOLDER[:/PATH]",
		"copy the contents into /workspace, or PATH, before anything runs (repeatable)" },
	{ "mount", 0, "HOST:/PATH[:OPT]",
		"mount a folder of the host; OPT: ro,uid=N,gid=N (repeatable)" },
	{ "publish", 'p', "[HOST:]PORT",
		"forward a port of this machine to a port of the box (repeatable); see 'box port add'" },
	{ "net", 0, "PRESET", "network preset: none, packages, dev or open (dev)" },
	FLAG_ALLOW,
	FLAG_DENY,
	FLAG_PEER,
	{ "policy", 0, "FILE", "network policy from a file (docs/policy.md); - is stdin" },
	{ "entrypoint", 0, "PROGRAM", "replace the image's entrypoint; '' for none" },
	{ "no-main", 0, NULL, "do not run the image's own command" },
	{ "pull", 0, "WHEN", "when to pull the image: missing, never or always (missing)" },
	{ "rm", 0, NULL, "remove it when its command ends or it stops" },
	{ "detach", 'd', NULL, "do not wait for the command" },
	FLAG_INTERACTIVE,
	FLAG_TTY,
	FLAG_END,
};

static const struct flag exec_flags[] = {
	FLAG_INTERACTIVE,
	FLAG_TTY,
	{ "detach", 'd', NULL,
		"start it in the background and print its id, for 'box attach' and 'box logs'" },
	FLAG_ENV,
	FLAG_WORKDIR,
	FLAG_USER,
	{ "timeout", 0, "TIME", "end it after this time, like 30s or 5m (exit code 124)" },
	FLAG_END,
};

static const struct flag url_flags[] = {
	{ "public", 0, NULL, "open the port to everybody who can reach the daemon" },
	{ "private", 0, NULL, "require a token or a login" },
	{ "login", 0, NULL, "print a link that logs a browser in, once, within 5 minutes" },
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
	{ "names", 'q', NULL, "print only names, one per line" },
	{ "output", 'o', "FORMAT", "wide: always show owners" },
	{ "all", 'a', NULL, "no effect: all boxes are always listed" },
	FLAG_END,
};

static const struct flag ps_flags[] = {
	{ "execs", 0, NULL, "list programs started by exec instead of processes" },
	FLAG_END,
};

static const struct flag attach_flags[] = {
	{ "since-offset", 0, "N", "start at this offset of the output (0: all that is kept)" },
	{ "new", 0, NULL, "only new output" },
	{ "no-stdin", 0, NULL, "only watch: send neither input nor signals" },
	{ "interactive", 'i', NULL, "forward stdin even if it is not a terminal" },
	FLAG_END,
};

static const struct flag logs_flags[] = {
	{ "follow", 'f', NULL, "follow the output until the program ends" },
	{ "tail", 'n', "N", "only the last N lines of what is kept" },
	{ "since", 0, "TIME",
		"only output since a time (2026-01-02T03:04:05Z) or a duration (10m)" },
	{ "timestamps", 't', NULL, "show the time before each line" },
	{ "since-offset", 0, "N", "start at this offset of the output" },
	FLAG_END,
};

static const struct flag cp_flags[] = {
	{ "preserve", 'p', NULL,
		"keep times and, as root, owners; set-user-id bits only into a box" },
	{ "archive", 'a', NULL, "the same as -p" },
	{ "recursive", 'r', NULL, "no effect: folders are always copied with their contents" },
	FLAG_END,
};

static const struct flag stop_flags[] = {
	{ "timeout", 't', "TIME", "time for programs to end before they are killed (10s)" },
	FLAG_END,
};

static const struct flag rm_flags[] = {
	{ "force", 'f', NULL, "remove running boxes too; ignore missing ones" },
	{ "all", 'a', NULL, "all boxes" },
	{ "label", 'l', "KEY[=VALUE]", "all boxes with this label (repeatable)" },
	{ "keep-workspace", 0, NULL, "keep the contents of /workspace; see 'box workspace'" },
	FLAG_END,
};

static const struct flag stats_flags[] = {
	{ "once", 0, NULL, "print one table instead of a live one" },
	FLAG_END,
};

static const struct flag events_flags[] = {
	{ "follow", 'f', NULL, "follow: print new ones as they come" },
	{ "tail", 'n', "N", "only the last N" },
	{ "since", 0, "N", "start at this offset" },
	{ "box", 'b', "BOX", "only this box; the same as the argument" },
	FLAG_END,
};

static const struct flag audit_flags[] = {
	{ "follow", 'f', NULL, "follow: print new ones as they come" },
	{ "since", 0, "SEQ", "start at this number (0: all that is kept)" },
	{ "verdict", 0, "VERDICT", "only what was allowed, or refused" },
	{ "count", 'n', "COUNT", "maximum number of lines (50; with --since all)" },
	{ "verify", 0, NULL, "check that no line was changed, removed or added" },
	{ "folder", 0, "DIR", "with --verify: this folder, such as a copy; needs no daemon" },
	{ "log", 0, "ID", "the log of a box that wrote more than its share of the common one" },
	FLAG_END,
};

static const struct flag names_flags[] = {
	{ "names", 'q', NULL, "print only names, one per line" },
	FLAG_END,
};

static const struct flag set_flags[] = {
	{ "cpu", 0, "N", "CPU limit, like 1.5; 0: no limit" },
	{ "memory", 'm', "SIZE", "memory limit; 0: no limit" },
	{ "disk", 0, "SIZE", "disk limit; 0: no limit" },
	{ "pids", 0, "N", "process limit; 0: no limit" },
	{ "on-limit", 0, "POLICY", "what happens at a limit: notify, pause or stop" },
	FLAG_INSIDE,
	FLAG_TREE,
	{ "auto-snapshot", 0, "WHEN",
		"automatic snapshots: exec (before each program), interval=5m or off" },
	{ "idle", 0, "DURATION", "suspend after this idle time; off, or default" },
	{ "hibernate-after", 0, "DURATION",
		"hibernate this long after it was suspended; off, or default" },
	{ "name", 0, "NAME", "new name of the box" },
	FLAG_END,
};

static const struct flag save_flags[] = {
	{ "full", 0, NULL, "with its processes: boxes from it continue from there" },
	{ "learn-hosts", 0, NULL, "also allow package hosts that are configured in the box" },
	FLAG_END,
};

static const struct flag snapshot_flags[] = {
	{ "disk-only", 0, NULL, "without its processes" },
	FLAG_END,
};

static const struct flag rollback_flags[] = {
	{ "disk-only", 0, NULL, "only the disk; the box starts afresh" },
	{ "forget", 0, NULL, "do not keep the present as a snapshot: cannot be undone" },
	FLAG_END,
};

static const struct flag fork_flags[] = {
	{ "count", 'n', "N", "number of children, at most 100 (as many as names)" },
	{ "from", 0, "SNAPSHOT", "fork from this snapshot instead of the present" },
	FLAG_ENV,
	{ "label", 'l', "KEY=VALUE", "a label to find them by" },
	{ "net", 0, "PRESET", "network preset: none, packages, dev or open" },
	FLAG_ALLOW,
	FLAG_DENY,
	FLAG_PEER,
	{ "policy", 0, "FILE|PRESET", "network policy from a file (docs/policy.md); - is stdin" },
	{ "disk-only", 0, NULL, "copy only the disk; the children start afresh" },
	{ "rm", 0, NULL, "remove each when its command ends or it stops" },
	FLAG_WORKDIR,
	FLAG_USER,
	{ "timeout", 0, "TIME", "end it after this time, like 30s or 5m (exit code 124)" },
	FLAG_END,
};

static const struct flag promote_flags[] = {
	{ "keep-labels", 0, NULL, "keep its own labels, not those of the box it replaces" },
	{ "keep-limits", 0, NULL, "keep its own limits, not those of the box it replaces" },
	FLAG_END,
};

static const struct flag try_flags[] = {
	{ "check", 0, "COMMAND",
		"shell command run in the box that decides instead of the exit code" },
	{ "name", 0, "NAME", "name of the snapshot" },
	{ "keep-failed", 0, NULL, "keep the failed state on the time line" },
	{ "disk-only", 0, NULL, "save and restore only the disk; the box then starts afresh" },
	FLAG_INTERACTIVE,
	FLAG_TTY,
	FLAG_ENV,
	FLAG_WORKDIR,
	FLAG_USER,
	{ "timeout", 0, "TIME", "end it after this time, like 30s or 5m (exit code 124)" },
	FLAG_END,
};

static const struct flag diff_flags[] = {
	{ "tar", 0, "FILE", "write the changes as an archive; - is stdout" },
	FLAG_END,
};

static const struct flag compare_flags[] = {
	{ "files", 0, NULL, "show only files" },
	{ "limit", 'n', "N", "maximum number of paths, up to 10000 (1000)" },
	FLAG_END,
};

static const struct flag net_flags[] = {
	{ "watch", 'w', NULL, "refresh every second" },
	{ "connections", 'c', NULL, "also show current connections" },
	FLAG_END,
};

static const struct flag policy_show_flags[] = {
	{ "rules", 0, NULL, "all rules, including the preset's, and where each comes from" },
	FLAG_END,
};

static const struct flag policy_set_flags[] = {
	{ "net", 0, "PRESET", "none, packages, dev or open" },
	FLAG_ALLOW,
	FLAG_DENY,
	FLAG_PEER,
	{ "add", 0, NULL, "add to the present policy instead of replacing it" },
	{ "if-version", 0, "N", "only if this is the current version" },
	FLAG_END,
};

static const struct flag policy_explain_flags[] = {
	{ "method", 0, "METHOD", "of a request in plain HTTP" },
	{ "path", 0, "PATH", "of a request in plain HTTP" },
	{ "address", 0, "ADDRESS", "address of the name" },
	{ "seen", 0, "NAME", "name in SNI or Host, when it differs" },
	FLAG_END,
};

static const struct flag policy_record_flags[] = {
	FLAG_INTERACTIVE,
	FLAG_TTY,
	FLAG_ENV,
	FLAG_WORKDIR,
	FLAG_USER,
	{ "output", 'o', "FILE", "write the proposal to a file (stdout)" },
	{ "apply", 0, NULL, "make it the policy of the box" },
	{ "add", 0, NULL, "add only what is missing to the policy of the box" },
	{ "off", 0, NULL, "only end a watch mode that was left on" },
	FLAG_END,
};

static const struct flag output_flags[] = {
	{ "output", 'o', "FILE", "write the archive itself; - is stdout" },
	FLAG_END,
};

static const struct flag volume_create_flags[] = {
	{ "size", 0, "SIZE", "size limit, like 10G; 0: no limit" },
	{ "owner", 0, "OWNER", "owner, which only an admin may choose (yours)" },
	FLAG_END,
};

static const struct flag volume_flags[] = {
	{ "size", 0, "SIZE", "size limit, like 10G; 0: no limit" },
	FLAG_END,
};

static const struct flag image_ls_flags[] = {
	{ "all", 'a', NULL, "include images without a name, such as build steps" },
	{ "tree", 0, NULL, "all images, each below its parent" },
	{ "names", 'q', NULL, "print only names, one per line" },
	FLAG_END,
};

static const struct flag image_pull_flags[] = {
	{ "name", 0, "NAME", "local name (the reference)" },
	{ "insecure", 0, NULL, "accept plain HTTP or an unknown certificate" },
	FLAG_END,
};

static const struct flag image_export_flags[] = {
	{ "output", 'o', "FILE", "output file (stdout)" },
	{ "format", 0, "FORMAT", "oci, docker or rootfs (oci)" },
	FLAG_END,
};

static const struct flag image_gc_flags[] = {
	{ "dry-run", 'n', NULL, "only show what would be removed" },
	FLAG_END,
};

static const struct flag image_build_flags[] = {
	{ "file", 'f', "FILE", "build this Boxfile (docs/boxfile.md); - is stdin" },
	{ "tag", 't', "NAME", "name of the image built from a Boxfile" },
	{ "no-cache", 0, NULL, "run every step again" },
	{ "learn-hosts", 0, NULL, "also allow package hosts that its steps configure" },
	{ "pull", 0, "WHEN", "when to pull the base image: missing, never or always (missing)" },
	{ "package", 'p', "NAME", "add a Debian package (repeatable)" },
	{ "minimal", 0, NULL, "leave the standard tools out" },
	FLAG_END,
};

static const struct flag token_create_flags[] = {
	{ "scope", 's', "SCOPE",
		"read, files, exec, create or admin (repeatable; read exec create)" },
	{ "expires", 0, "TIME", "valid for this time, like 30d (for ever)" },
	{ "owner", 0, "OWNER", "the owner it belongs to; an admin token sees all owners (yours)" },
	FLAG_END,
};

static const struct flag key_add_flags[] = {
	{ "file", 'f', "FILE", "public keys, one a line; - is stdin" },
	{ "agent", 0, NULL, "the keys of your ssh-agent" },
	{ "authorized-keys", 0, NULL, "every line of your ~/.ssh/authorized_keys" },
	{ "mine", 0, NULL, "your ~/.ssh/id_*.pub, without asking" },
	{ "box", 0, "BOX", "only for this box" },
	{ "role", 0, "ROLE",
		"read, files, exec, create or admin; at most yours (create, with --box exec)" },
	{ "from", 0, "LIST", "only from these addresses, like 192.0.2.0/24,!192.0.2.7 (any)" },
	{ "expires", 0, "TIME", "valid for this time, like 30d, or until 2027-01-02T03:04:05Z" },
	{ "restrict", 0, NULL, "no terminal and no forwarding" },
	{ "owner", 0, "OWNER", "the owner it belongs to (yours)" },
	FLAG_END,
};

static const struct flag ssh_config_flags[] = {
	{ "print", 0, NULL, "print the block (the default)" },
	{ "install", 0, NULL,
		"put it into ~/.ssh/boxyard.conf, which ~/.ssh/config then includes" },
	{ "remove", 0, NULL, "take all of that away again" },
	FLAG_END,
};

static const struct flag context_add_flags[] = {
	{ "token", 0, "TOKEN", "for https and http (BOX_TOKEN); - reads it from stdin" },
	{ "cacert", 0, "FILE", "trust these certificates too, PEM" },
	FLAG_END,
};

static const struct flag bench_flags[] = {
	{ "runs", 'n', "N", "runs of each measurement (200)" },
	{ "list", 0, NULL, "list the measurements" },
	{ "no-peers", 0, NULL, "do not measure other sandboxes" },
	{ "tar", 0, "FILE", "root file system for image_import (the base image's)" },
	{ "host-dir", 0, "DIR", "the host's file system to compare with (/var/tmp)" },
	{ "boxes", 0, "N", "number of idle boxes for the second network measurement (500)" },
	{ "npm-project", 0, "DIR",
		"package.json, its lock and a folder npm-cache, for npm_install" },
	FLAG_END,
};

static const struct flag attack_flags[] = {
	{ "group", 0, "GROUP", "only this group; see --list" },
	{ "profile", 0, "PROFILE", "only this profile: standard or nested (both)" },
	{ "driver", 0, "DRIVER", "boxes of this driver: ns or vm (ns)" },
	{ "list", 0, NULL, "list the groups" },
	{ "keep", 0, NULL, "keep the attacked daemon and its folder" },
	{ "rig", 0, NULL, "only the test network: run a command in it and show what arrived" },
	FLAG_END,
};

static const struct flag down_flags[] = {
	{ "purge", 0, NULL, "remove all boxes, images, tokens and logs too" },
	{ "hibernate", 0, NULL, "hibernate all boxes first" },
	{ "no-hibernate", 0, NULL, "leave boxes running, whatever hibernate_on_shutdown says" },
	{ "yes", 'y', NULL, "do not ask for confirmation; needed without a terminal" },
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
