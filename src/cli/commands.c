/* commands.c - every command with its help and examples; all there is to know about them
 *
 * Help, completion and docs/cli.md are printed from this table. The options of each command are in options.h. */
#include "cli/cli.h"
#include "base/alloc.h"
#include "cli/options.h"

const struct flag common_flags[] = {
	{ "json", 0, NULL, "print JSON: one value, or one object a line for what goes on" },
	{ "quiet", 'q', NULL, "no remarks on stderr" },
	{ "help", 'h', NULL, "show the help of this command" },
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
			"exit code as ours; with -d it is started and left to itself. Without one "
			"the "
			"image's own\n"
			"command runs, if it has one. An image that is not here is pulled first.",
		.examples =
			"box new ada\ta box called ada\n"
			"box new web --image nginx:1.27\tfrom a registry, with what it runs\n"
			"box new -v cache:/root/.cache --mount ./src:/src:ro\twith a volume and a "
			"folder\n"
			"box new --net none --allow github.com:443\tthat may reach no more than "
			"this\n"
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
	{ .name = "suspend",
		.usage = "BOX...",
		.summary = "freeze boxes where they are",
		.text = "They keep their memory and use no CPU until 'box resume'.",
		.examples = "box suspend ada\tat once\n",
		.run = cmd_suspend,
		.least = 1,
		.most = -1,
		.words = "box" },
	{ .name = "resume",
		.usage = "BOX...",
		.summary = "let suspended boxes go on",
		.examples = "box resume ada\twhere it was\n",
		.run = cmd_resume,
		.least = 1,
		.most = -1,
		.words = "box" },
	{ .name = "set",
		.usage = "BOX",
		.summary = "change the limits of a box",
		.text = "While it runs, too. Less disk than it uses is fine: it can write again "
			"when it "
			"is below.",
		.examples = "box set ada --disk 20G\tmore room\n"
			    "box set ada --memory 1G --on-limit pause\tand wait when it is full\n",
		.flags = set_flags,
		.run = cmd_set,
		.least = 1,
		.most = 1,
		.words = "box" },
	{ .name = "save",
		.usage = "BOX IMAGE",
		.summary = "make an image of a box's disk",
		.text = "As it is now; the box goes on. The image can be used at once and shares "
			"its data "
			"with the box.",
		.examples =
			"box save ada golden\ta snapshot\nbox new bob --image golden\tand a box "
			"from it\n",
		.run = cmd_save,
		.least = 2,
		.most = 2,
		.words = "box" },
	{ .name = "diff",
		.usage = "BOX [OTHER]",
		.summary = "show what changed on a box's disk",
		.text = "Against its image, or against OTHER, a box or an image: A is added, C "
			"changed, D "
			"removed.",
		.examples = "box diff ada\tsince it was made\nbox diff ada golden\tagainst an "
			    "image\n"
			    "box diff ada --tar changes.tar\twith contents, .wh. files for what is "
			    "gone\n",
		.flags = diff_flags,
		.run = cmd_diff,
		.least = 1,
		.most = 2,
		.words = "box" },
	{ .name = "df",
		.usage = "[BOX...]",
		.summary = "show how full disks are",
		.text = "What each box has written and may write, and the pool all of them live "
			"in.",
		.examples = "box df\tall\nbox df ada --json\tone, for programs\n",
		.run = cmd_df,
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
		.usage = "",
		.summary = "show what happened",
		.text = "Each event has an offset; --since goes on from one, also after the daemon "
			"was restarted.",
		.examples = "box events -f\tas it happens\nbox events --since 120 --box ada\tpart "
			    "of it\n",
		.flags = events_flags,
		.run = cmd_events },
	{ .name = "audit",
		.usage = "[BOX]",
		.summary = "show what boxes tried to reach",
		.text = "Each connection and name, allowed or refused, with the rule that decided "
			"and the process that asked;\n"
			"changes of policies too (docs/audit.md). Every line holds the hash of the "
			"one before: --verify finds\n"
			"what was changed afterwards, and ends with exit code 1 then.",
		.examples = "box audit\tthe newest lines\n"
			    "box audit ada -f --verdict refused\twhat a box is refused, as it "
			    "happens\n"
			    "box audit --since 0 --json > audit.jsonl\tall of it\n"
			    "box audit --verify\tis it whole?\n",
		.flags = audit_flags,
		.run = cmd_audit,
		.most = 1,
		.words = "box" },
	{ .name = "workspace",
		.usage = "ls|get|rm",
		.summary = "what was kept of removed boxes",
		.options = CMD_GROUP },
	{ .name = "workspace ls",
		.usage = "[WORKSPACE]",
		.summary = "list kept workspaces, or what one holds",
		.text = "A workspace is named by its id or by the name of its box.",
		.examples =
			"box workspace ls\tall of them\nbox workspace ls ada\tfiles of the newest "
			"one of ada\n",
		.flags = names_flags,
		.run = cmd_workspace_ls,
		.most = 1,
		.words = "workspace" },
	{ .name = "workspace get",
		.usage = "WORKSPACE [DIR]",
		.summary = "fetch a kept workspace",
		.text = "Into DIR, or ./workspace-WORKSPACE. Nothing is written outside of it.",
		.examples = "box workspace get ada\tinto ./workspace-ada\n"
			    "box workspace get ada -o - | tar t\tas an archive\n",
		.flags = output_flags,
		.run = cmd_workspace_get,
		.least = 1,
		.most = 2,
		.words = "workspace" },
	{ .name = "workspace rm",
		.usage = "WORKSPACE...",
		.summary = "remove kept workspaces",
		.run = cmd_workspace_rm,
		.least = 1,
		.most = -1,
		.words = "workspace" },
	{ .name = "volume",
		.usage = "create|ls|show|set|rm",
		.summary = "folders that outlive boxes",
		.options = CMD_GROUP },
	{ .name = "volume create",
		.usage = "NAME",
		.summary = "make a volume",
		.examples = "box volume create cache --size 10G\twith a limit\n"
			    "box new ada -v cache:/root/.cache\tand a box that uses it\n",
		.flags = volume_flags,
		.run = cmd_volume_create,
		.least = 1,
		.most = 1 },
	{ .name = "volume ls",
		.usage = "",
		.summary = "list volumes",
		.flags = names_flags,
		.run = cmd_volume_ls },
	{ .name = "volume show",
		.usage = "VOLUME",
		.summary = "show one volume",
		.run = cmd_volume_show,
		.least = 1,
		.most = 1,
		.words = "volume" },
	{ .name = "volume set",
		.usage = "VOLUME",
		.summary = "change the limit of a volume",
		.examples = "box volume set cache --size 20G\tmore room\n",
		.flags = volume_flags,
		.run = cmd_volume_set,
		.least = 1,
		.most = 1,
		.words = "volume" },
	{ .name = "volume rm",
		.usage = "VOLUME...",
		.summary = "remove volumes no box has",
		.run = cmd_volume_rm,
		.least = 1,
		.most = -1,
		.words = "volume" },
	{ .name = "image",
		.usage = "build|pull|import|export|ls|show|tag|gc|rm",
		.summary = "what boxes start from",
		.options = CMD_GROUP },
	{ .name = "image build",
		.usage = "[NAME] | -f BOXFILE [-t NAME] [DIR]",
		.summary = "build an image from Debian packages or a Boxfile",
		.text = "Without -f: a Debian with git, python3, nodejs, compilers and other "
			"tools; without "
			"NAME it is the\n"
			"default image, debian. Boxes that exist keep the image they were made "
			"from.\n"
			"With -f: the steps of the Boxfile run in a box, with files from DIR (the "
			"Boxfile's "
			"folder).\n"
			"Each step is kept, so that the next build begins where something changed. "
			"A step "
			"that fails\n"
			"leaves the box to look into.",
		.examples = "box image build\tthe default image\n"
			    "box image build golang --package golang\twith more\n"
			    "box image build tiny --minimal\tas small as it gets\n"
			    "box image build -f Boxfile -t tool .\tby a recipe\n",
		.flags = image_build_flags,
		.run = cmd_image_build,
		.most = 1 },
	{ .name = "image pull",
		.usage = "REFERENCE",
		.summary = "fetch an image from a registry",
		.text = "Layers that are here already are not fetched again; 'skopeo login' or "
			"'podman "
			"login' gives access\n"
			"to private ones.",
		.examples = "box image pull python:3.11\tas it is known everywhere\n"
			    "box image pull registry.example.com/team/tool:v2 --name tool\tunder a "
			    "short name\n",
		.flags = image_pull_flags,
		.run = cmd_image_pull,
		.least = 1,
		.most = 1 },
	{ .name = "image import",
		.usage = "FILE|DIR|- [NAME]",
		.summary = "make an image of an archive or a folder",
		.text = "A docker-archive, an OCI layout or a root file system; plain, gzip, zstd "
			"or xz. The "
			"name is made from\n"
			"that of the file; what comes from a pipe must tell its own, or be given "
			"one.",
		.examples = "box image import rootfs.tar.zst alpine:3.20\ta root file system\n"
			    "docker save tool | box image import -\twhat docker has\n"
			    "box image import ./rootfs\ta folder, with its owners\n",
		.run = cmd_image_import,
		.least = 1,
		.most = 2,
		.words = "file" },
	{ .name = "image export",
		.usage = "IMAGE",
		.summary = "write an image as an archive",
		.text = "For skopeo, podman and docker (oci, docker), or its files alone (rootfs).",
		.examples = "box image export golden -o golden.tar\tinto a file\n"
			    "box image export golden --format docker | docker load\tto docker\n",
		.flags = image_export_flags,
		.run = cmd_image_export,
		.least = 1,
		.most = 1,
		.words = "image" },
	{ .name = "image ls",
		.usage = "",
		.summary = "list images",
		.text = "SIZE is all an image holds, OWN what would come back if it went, SHARED "
			"what others "
			"hold as well.",
		.examples =
			"box image ls\tthose with a name\nbox image ls --tree\twho was made upon "
			"whom\n",
		.flags = image_ls_flags,
		.run = cmd_image_ls },
	{ .name = "image show",
		.usage = "IMAGE",
		.summary = "show one image",
		.run = cmd_image_show,
		.least = 1,
		.most = 1,
		.words = "image" },
	{ .name = "image tag",
		.usage = "IMAGE NAME",
		.summary = "give an image another name",
		.examples = "box image tag golden golden:old\tone more\n",
		.run = cmd_image_tag,
		.least = 2,
		.most = 2,
		.words = "image" },
	{ .name = "image gc",
		.usage = "",
		.summary = "remove what no box and no named image needs",
		.text = "Steps of builds, images that lost their name, layers and downloads nobody "
			"uses.",
		.examples = "box image gc --dry-run\tonly look\nbox image gc\tdo it\n",
		.flags = image_gc_flags,
		.run = cmd_image_gc },
	{ .name = "image rm",
		.usage = "IMAGE...",
		.summary = "remove images nobody uses",
		.run = cmd_image_rm,
		.least = 1,
		.most = -1,
		.words = "image" },
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
			"curl $(box url ada 3000)\tas a program sees it\n",
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
			    "box policy record ada --apply -o policy.yaml -- npm ci\tand use it\n",
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
	{ .name = "gate",
		.usage = "",
		.summary = "the process between boxes and the world; started by the daemon",
		.run = cmd_gate,
		.options = CMD_HIDDEN | CMD_NO_CONF },
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
