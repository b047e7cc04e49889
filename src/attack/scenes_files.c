/* scenes_files.c - files that are copied out of a box are written only to the requested folder
 *
 * A box creates links to a folder of the host, and other files that harm a careless copy. The
 * folder is copied out, then more is copied onto the result: the links must not be followed. The
 * host's folder is checked after each step. */
#include "attack/suite.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PLANTER "planter"

/* Copies onto what the box planted, below the folder it was copied to; each must fail. */
static const struct {
	const char *name, *source, *target;
} tries[] = {
	{ "file-onto-a-link", PLANTER ":/evil/payload", "evil/file" },
	{ "file-onto-a-link-to-nothing", PLANTER ":/evil/payload", "evil/new" },
	{ "file-into-a-linked-folder", PLANTER ":/evil/payload", "evil/folder" },
	{ "file-below-a-linked-folder", PLANTER ":/evil/payload", "evil/folder/planted" },
	{ "folder-into-a-linked-folder", PLANTER ":/evil", "evil/folder" },
	{ "contents-into-a-linked-folder", PLANTER ":/evil/.", "evil/folder" },
	{ "file-through-dots", PLANTER ":/evil/payload", "evil/up/victim" },
	{ "folder-without-end", PLANTER ":/deep", "deep" },
};

/* NULL, or what was changed; borrowed. */
static const char *look(const char *victim)
{
	_cleanup_free_ char *path = xasprintf("%s/mine", victim);
	_cleanup_free_ char *text = NULL;
	unsigned count = 0;
	DIR *dir = opendir(victim);

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	if (count != 3)
		return "something was planted in a folder of the host";
	if (file_read(AT_FDCWD, path, 4096, &text, NULL, NULL) < 0 || strcmp(text, "safe") != 0)
		return "a file of the host was written to";
	return NULL;
}

/* Checks the copy of the folder: links are links, and there are only regular files and folders. */
static const char *look_at_copy(const char *place)
{
	_cleanup_free_ char *tool = xasprintf("%s/evil/tool", place);
	_cleanup_free_ char *pipe = xasprintf("%s/evil/pipe", place);
	struct stat st;

	if (stat(tool, &st) < 0 || (st.st_mode & 07000))
		return "a set-user-id program came out";
	return lstat(pipe, &st) == 0 ? "a pipe came out" : NULL;
}

static void judge(struct suite *suite, const struct group *group, const char *name, bool refused,
	const char *problem)
{
	struct result *result = suite_add(
		suite, group, name, refused && !problem, refused ? "refused" : "it was copied");

	if (problem)
		suite_problem(result, "%s", problem);
	else if (!refused)
		suite_problem(result, "the command did not fail");
}

static int copy(struct suite *suite, const char *source, const char *target)
{
	const char *words[] = { "cp", "-q", source, target, NULL };
	struct buf out = BUF_INIT;
	int code = -1;

	rig_box(&suite->rig, words, &out, &code, NULL);
	buf_done(&out);
	return code;
}

static void try_all(
	struct suite *suite, const struct group *group, const char *place, const char *victim)
{
	const char *problem;

	if (copy(suite, PLANTER ":/evil", place) != 0)
		suite_problem(suite_add(suite, group, "copy", false, ""), "it did not work");
	problem = look(victim);
	if (!problem)
		problem = look_at_copy(place);
	judge(suite, group, "folder-full-of-traps", true, problem);
	for (size_t i = 0; i < ARRAY_LEN(tries) && !rig_is_stopping(); i++) {
		_cleanup_free_ char *target = xasprintf("%s/%s", place, tries[i].target);
		bool refused = copy(suite, tries[i].source, target) != 0;

		judge(suite, group, tries[i].name, refused, look(victim));
	}
}

static void scene_files(struct suite *suite, const struct group *group, const char *box)
{
	_cleanup_free_ char *top = xasprintf("%s/copied-%s", suite->rig.folder, suite->profile);
	_cleanup_free_ char *place = xasprintf("%s/place", top);
	_cleanup_free_ char *victim = xasprintf("%s/victim", top);
	_cleanup_free_ char *mine = xasprintf("%s/mine", victim);
	const char *plant[] = { "plant", "/evil", victim, NULL };
	static const char *const dig[] = { "plant", "/deep", NULL };

	(void)box;
	if (mkdir(top, 0755) < 0 || mkdir(place, 0755) < 0 || mkdir(victim, 0755) < 0 ||
		file_write_atomic(AT_FDCWD, mine, "safe", 4, 0644, NULL) < 0) {
		suite_problem(suite_add(suite, group, "place", false, ""), "no place to copy to");
		return;
	}
	if (suite_new_box(suite, group, PLANTER, group->policy)) {
		if (suite_attack(suite, PLANTER, plant).ran &&
			suite_attack(suite, PLANTER, dig).ran)
			try_all(suite, group, place, victim);
		else
			suite_problem(
				suite_add(suite, group, "plant", false, ""), "it did not run");
		suite_remove_box(suite, PLANTER);
	}
	tree_remove(AT_FDCWD, top, NULL);
}

const struct group file_groups[] = {
	{ "files", "files copied out of a box: links, set-user-id programs, endless folders",
		"{\"version\":1,\"preset\":\"none\"}", "", .scene = scene_files },
	{ .name = NULL },
};
