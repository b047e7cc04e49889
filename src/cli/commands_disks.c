/* commands_disks.c - commands about what outlives a box: workspaces, volumes, images; see
 * commands.c */
#include "cli/cli.h"
#include "cli/options.h"

const struct command disks_commands[] = {
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
		.flags = volume_create_flags,
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
			"or xz. "
			"Without NAME it\n"
			"is called as the archive says, else as the file; what comes from a pipe "
			"must "
			"tell its own, or be given one.",
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
	{ .name = NULL },
};
