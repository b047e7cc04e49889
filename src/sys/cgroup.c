/* cgroup.c - trees and groups
 *
 * Where a v2 tree exists it is used to start processes in a group (CLONE_INTO_CGROUP), to kill them
 * (cgroup.kill) and to know whether any are left (cgroup.events), with or without controllers. On
 * v1 alone, the freezer holds a group still while its processes are killed one by one. Limits are
 * in cgroup_limit.c. */
#include "sys/cgroup_internal.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
	PROCS_MAX = 4 * 1024 * 1024,
	DEPTH_MAX = 16,	       /* how deep the owner of a delegated group may nest groups */
	DESCENDANTS_MAX = 512, /* how many groups that owner may make */
};

/* ---- the tree ------------------------------------------------------------------------------- */

const struct cgroup_hierarchy *cgroup_find(
	const struct cgroup_tree *tree, enum cgroup_controller controller)
{
	for (size_t i = 0; i < tree->count; i++)
		if (tree->list[i].controllers >> controller & 1)
			return &tree->list[i];
	return NULL;
}

const struct cgroup_hierarchy *cgroup_find_v2(const struct cgroup_tree *tree)
{
	for (size_t i = 0; i < tree->count; i++)
		if (tree->list[i].v2)
			return &tree->list[i];
	return NULL;
}

bool cgroup_tree_has(const struct cgroup_tree *tree, enum cgroup_controller controller)
{
	return cgroup_find(tree, controller) != NULL;
}

bool cgroup_tree_has_v2(const struct cgroup_tree *tree)
{
	return cgroup_find_v2(tree) != NULL;
}

const char *cgroup_tree_layout(const struct cgroup_tree *tree)
{
	return tree->layout;
}

/* Makes NAME below mount and opens it. */
static int open_top(struct cgroup_tree *tree, const char *mount, bool v2, struct err *err)
{
	struct cgroup_hierarchy *hierarchy = &tree->list[tree->count];
	_cleanup_free_ char *path = xasprintf("%s/%s", mount, tree->name);

	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return err_sys(err, errno, "make cgroup '%s'", path);
	hierarchy->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (hierarchy->dir < 0)
		return err_sys(err, errno, "open cgroup '%s'", path);
	hierarchy->mount = xstrdup(mount);
	hierarchy->v2 = v2;
	hierarchy->controllers = 0;
	tree->count++;
	return 0;
}

/* Controllers are enabled level by level. A controller that cannot be enabled (processes are in the
 * parent, or it is not delegated to us) is not used. */
static bool hand_down(struct cgroup_hierarchy *hierarchy, enum cgroup_controller controller)
{
	_cleanup_free_ char *top = xasprintf("%s/cgroup.subtree_control", hierarchy->mount);
	_cleanup_free_ char *word = xasprintf("+%s", cgroup_controller_name(controller));
	struct err err = ERR_INIT;

	if (file_poke(AT_FDCWD, top, word, &err) == 0 &&
		file_poke(hierarchy->dir, "cgroup.subtree_control", word, &err) == 0)
		return true;
	log_warn("cgroup controller cannot be used",
		kv_str("controller", cgroup_controller_name(controller)), kv_err(&err));
	return false;
}

static int open_v2(struct cgroup_tree *tree, const struct cgroup_layout *layout, struct err *err)
{
	struct cgroup_hierarchy *hierarchy;

	if (!layout->v2)
		return 0;
	if (open_top(tree, layout->v2, true, err) < 0)
		return -1;
	hierarchy = &tree->list[tree->count - 1];
	for (unsigned i = 0; i < CGROUP_CPUACCT; i++)
		if ((layout->v2_controllers >> i & 1) && hand_down(hierarchy, i))
			hierarchy->controllers |= 1u << i;
	return 0;
}

static int open_v1(struct cgroup_tree *tree, const struct cgroup_layout *layout, struct err *err)
{
	/* On v2 every group counts CPU time and can be frozen without a controller. */
	unsigned wanted = layout->v2 ? CGROUP_CPUACCT : CGROUP_CONTROLLER_COUNT;

	for (unsigned i = 0; i < wanted; i++) {
		struct cgroup_hierarchy *shared = NULL;

		if (!layout->v1[i] || cgroup_find(tree, i))
			continue;
		/* cpu and cpuacct are often one mount. */
		for (size_t k = 0; k < tree->count; k++)
			if (!strcmp(tree->list[k].mount, layout->v1[i]))
				shared = &tree->list[k];
		if (!shared) {
			if (open_top(tree, layout->v1[i], false, err) < 0)
				return -1;
			shared = &tree->list[tree->count - 1];
		}
		shared->controllers |= 1u << i;
	}
	return 0;
}

int cgroup_tree_open(const char *name, struct cgroup_tree **ret, struct err *err)
{
	struct cgroup_tree *tree = xnew(struct cgroup_tree);
	struct cgroup_layout layout;
	int status = -1;

	tree->name = xstrdup(name);
	if (cgroup_layout_read(&layout, err) < 0)
		goto out;
	tree->layout = cgroup_layout_name(&layout);
	if (open_v2(tree, &layout, err) < 0 || open_v1(tree, &layout, err) < 0)
		goto out_layout;
	if (!tree->count) {
		err_set(err, ERR_UNSUPPORTED, "no cgroup file system is mounted");
		err_hint(err, "mount -t cgroup2 none /sys/fs/cgroup");
		goto out_layout;
	}
	*ret = steal_ptr(&tree);
	status = 0;
out_layout:
	cgroup_layout_done(&layout);
out:
	cgroup_tree_close(tree);
	return status;
}

void cgroup_tree_close(struct cgroup_tree *tree)
{
	if (!tree)
		return;
	for (size_t i = 0; i < tree->count; i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", tree->list[i].mount, tree->name);

		rmdir(path); /* fails, and the folder stays, while it holds groups */
		close(tree->list[i].dir);
		free(tree->list[i].mount);
	}
	free(tree->name);
	free(tree);
}

/* Calls fn for each folder in a folder, with its whole path, until fn returns true. */
typedef bool (*folder_fn)(int top, const char *path, void *arg);
static bool each_folder(int top, const char *parent, folder_fn fn, void *arg)
{
	int fd = openat(top, *parent ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	bool over = false;

	while (dir && !over && (entry = readdir(dir))) {
		char path[CGROUP_ID_SIZE];
		int len = snprintf(
			path, sizeof path, "%s%s%s", parent, *parent ? "/" : "", entry->d_name);

		if (entry->d_type == DT_DIR && entry->d_name[0] != '.' && len < (int)sizeof path)
			over = fn(top, path, arg);
	}
	if (dir)
		closedir(dir);
	return over;
}

/* Calls fn for each group, also for those in shared groups, but not for the shared groups
 * themselves. */
struct each_group {
	folder_fn fn;
	void *arg;
	bool inner;
};

static bool group_found(int top, const char *path, void *arg)
{
	struct each_group *each = arg, below = { each->fn, each->arg, true };

	if (each->inner || strncmp(path, CGROUP_SHARED, strlen(CGROUP_SHARED)) != 0)
		return each->fn(top, path, each->arg);
	return each_folder(top, path, group_found, &below);
}

struct telling {
	struct cgroup_tree *tree;
	size_t at; /* hierarchy */
	void (*fn)(const char *id, void *arg);
	void *arg;
};

static bool tell_group(int top, const char *path, void *arg)
{
	struct telling *telling = arg;

	(void)top;
	for (size_t i = 0; i < telling->at; i++)
		if (faccessat(telling->tree->list[i].dir, path, F_OK, 0) == 0)
			return false; /* told already */
	telling->fn(path, telling->arg);
	return false;
}

static bool drop_empty(int top, const char *path, void *arg)
{
	(void)arg;
	if (!strncmp(path, CGROUP_SHARED, strlen(CGROUP_SHARED)))
		unlinkat(top, path, AT_REMOVEDIR); /* fails, and the folder stays, while it holds
						    * groups */
	return false;
}

void cgroup_tree_each(struct cgroup_tree *tree, void (*fn)(const char *id, void *arg), void *arg)
{
	for (size_t i = 0; i < tree->count; i++) {
		struct telling telling = { tree, i, fn, arg };
		struct each_group each = { tell_group, &telling, false };

		each_folder(tree->list[i].dir, "", drop_empty, NULL);
		each_folder(tree->list[i].dir, "", group_found, &each);
	}
}

struct finding {
	const char *last;
	char *ret;
};

static bool is_wanted(int top, const char *path, void *arg)
{
	struct finding *finding = arg;
	const char *slash = strrchr(path, '/');

	(void)top;
	if (strcmp(slash ? slash + 1 : path, finding->last) != 0)
		return false;
	snprintf(finding->ret, CGROUP_ID_SIZE, "%s", path);
	return true;
}

bool cgroup_find_id(struct cgroup_tree *tree, const char *last, char ret[CGROUP_ID_SIZE])
{
	struct finding finding = { last, ret };
	struct each_group each = { is_wanted, &finding, false };

	for (size_t i = 0; i < tree->count; i++)
		if (each_folder(tree->list[i].dir, "", group_found, &each))
			return true;
	return false;
}

/* ---- one group ------------------------------------------------------------------------------ */

int cgroup_poke(const struct cgroup_hierarchy *hierarchy, const char *id, const char *file,
	const char *text, struct err *err)
{
	char path[256];

	snprintf(path, sizeof path, "%s/%s", id, file);
	return file_poke(hierarchy->dir, path, text, err);
}

/* A shared group on v2 has no processes of its own, so that it can enable controllers for its
 * groups. */
static int make_shared(const struct cgroup_hierarchy *hierarchy, const char *id, struct err *err)
{
	const char *slash = strchr(id, '/');
	_cleanup_free_ char *shared = slash ? xstrndup(id, (size_t)(slash - id)) : NULL;

	if (!shared)
		return 0;
	if (mkdirat(hierarchy->dir, shared, 0755) < 0) {
		if (errno == EEXIST)
			return 0;
		return err_sys(err, errno, "make cgroup '%s'", shared);
	}
	for (unsigned i = 0; hierarchy->v2 && i < CGROUP_CPUACCT; i++) {
		char word[16];

		if (!(hierarchy->controllers >> i & 1))
			continue;
		snprintf(word, sizeof word, "+%s", cgroup_controller_name(i));
		if (cgroup_poke(hierarchy, shared, "cgroup.subtree_control", word, err) < 0) {
			unlinkat(hierarchy->dir, shared, AT_REMOVEDIR);
			return -1;
		}
	}
	return 0;
}

static int make_group(const struct cgroup_hierarchy *hierarchy, const char *id, struct err *err)
{
	if (make_shared(hierarchy, id, err) < 0)
		return -1;
	if (mkdirat(hierarchy->dir, id, 0755) < 0 && errno != EEXIST)
		return err_sys(err, errno, "make cgroup '%s' in '%s'", id, hierarchy->mount);
	return 0;
}

int cgroup_create(struct cgroup_tree *tree, const char *id, const struct cgroup_limits *limits,
	struct err *err)
{
	if (cgroup_limits_check(tree, limits, err) < 0)
		return -1;
	for (size_t i = 0; i < tree->count; i++)
		if (make_group(&tree->list[i], id, err) < 0) {
			cgroup_remove(tree, id, NULL);
			return -1;
		}
	if (cgroup_limits_write(tree, id, limits, false, err) < 0) {
		cgroup_remove(tree, id, NULL);
		return -1;
	}
	return 0;
}

int cgroup_delegate(struct cgroup_tree *tree, const char *id, uid_t uid, struct err *err)
{
	static const char *const files[] = { ".", "cgroup.procs", "cgroup.subtree_control",
		"cgroup.threads" };
	const struct cgroup_hierarchy *v2 = cgroup_find_v2(tree);
	char text[16], path[256];

	if (!v2)
		return err_set(err, ERR_UNSUPPORTED, "no cgroup v2 tree to delegate from");
	snprintf(text, sizeof text, "%d", DEPTH_MAX);
	if (cgroup_poke(v2, id, "cgroup.max.depth", text, err) < 0)
		return -1;
	snprintf(text, sizeof text, "%d", DESCENDANTS_MAX);
	if (cgroup_poke(v2, id, "cgroup.max.descendants", text, err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		snprintf(path, sizeof path, "%s/%s", id, files[i]);
		if (fchownat(v2->dir, path, uid, uid, AT_SYMLINK_NOFOLLOW) < 0)
			return err_sys(err, errno, "delegate cgroup '%s'", path);
	}
	return 0;
}

int cgroup_open_v2(struct cgroup_tree *tree, const char *id, int *ret, struct err *err)
{
	const struct cgroup_hierarchy *v2 = cgroup_find_v2(tree);

	*ret = -1;
	if (!v2)
		return 0;
	if (make_group(v2, id, err) < 0)
		return -1;
	*ret = openat(v2->dir, id, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (*ret < 0)
		return err_sys(err, errno, "open cgroup '%s'", id);
	return 0;
}

static int open_each(struct cgroup_tree *tree, const char *id, const char *file, bool also_v2,
	struct cgroup_join *ret, struct err *err)
{
	char path[256];

	ret->count = 0;
	snprintf(path, sizeof path, "%s/%s", id, file);
	for (size_t i = 0; i < tree->count; i++) {
		int fd;

		if (tree->list[i].v2 && !also_v2)
			continue;
		fd = openat(tree->list[i].dir, path, O_WRONLY | O_CLOEXEC);
		if (fd < 0) {
			err_sys(err, errno, "open '%s' in '%s'", path, tree->list[i].mount);
			cgroup_join_done(ret);
			return -1;
		}
		ret->fds[ret->count++] = fd;
	}
	return 0;
}

int cgroup_join_open(
	struct cgroup_tree *tree, const char *id, struct cgroup_join *ret, struct err *err)
{
	return open_each(tree, id, "tasks", false, ret, err);
}

int cgroup_join_enter(const struct cgroup_join *join, struct err *err)
{
	for (size_t i = 0; i < join->count; i++)
		if (write(join->fds[i], "0", 1) < 0)
			return err_sys(err, errno, "enter the cgroup");
	return 0;
}

void cgroup_join_done(struct cgroup_join *join)
{
	for (size_t i = 0; i < join->count; i++)
		close(join->fds[i]);
	join->count = 0;
}

int cgroup_move_open(
	struct cgroup_tree *tree, const char *id, struct cgroup_join *ret, struct err *err)
{
	return open_each(tree, id, "cgroup.procs", true, ret, err);
}

int cgroup_move(const struct cgroup_join *join, pid_t pid, struct err *err)
{
	char text[16];
	int len = snprintf(text, sizeof text, "%d", (int)pid);

	for (size_t i = 0; i < join->count; i++)
		if (write(join->fds[i], text, (size_t)len) < 0) {
			err_sys(err, errno, "move process %d into its cgroup", (int)pid);
			if (err && err->errno_value == ESRCH)
				err->kind = ERR_NOT_FOUND;
			return -1;
		}
	return 0;
}

/* ---- its end -------------------------------------------------------------------------------- */

static int kill_listed(
	const struct cgroup_hierarchy *hierarchy, const char *id, bool *ret_any, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	char path[256];
	struct err why = ERR_INIT;

	*ret_any = false;
	snprintf(path, sizeof path, "%s/cgroup.procs", id);
	if (file_read(hierarchy->dir, path, PROCS_MAX, &text, NULL, &why) < 0) {
		if (why.kind == ERR_NOT_FOUND)
			return 0;
		*err = why;
		return -1;
	}
	for (char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
		long pid = strtol(at, NULL, 10);

		if (pid > 1 && kill((pid_t)pid, SIGKILL) == 0)
			*ret_any = true;
	}
	return 0;
}

/* Frozen processes cannot end, so the pids that were read stay valid until the thaw. */
static int kill_v1(struct cgroup_tree *tree, const char *id, struct err *err)
{
	const struct cgroup_hierarchy *freezer = cgroup_find(tree, CGROUP_FREEZER);
	const struct cgroup_hierarchy *from = freezer ? freezer : &tree->list[0];
	struct err why = ERR_INIT;
	bool any = true;
	int status = 0;

	if (freezer)
		cgroup_poke(freezer, id, "freezer.state", "FROZEN", NULL);
	for (int round = 0; any && status == 0 && round < (freezer ? 1 : 8); round++)
		status = kill_listed(from, id, &any, &why);
	if (freezer)
		cgroup_poke(freezer, id, "freezer.state", "THAWED", NULL);
	if (status < 0 && err)
		*err = why;
	return status;
}

int cgroup_kill(struct cgroup_tree *tree, const char *id, struct err *err)
{
	const struct cgroup_hierarchy *v2 = cgroup_find_v2(tree);
	struct err why = ERR_INIT;
	bool any;

	if (!v2)
		return kill_v1(tree, id, err);
	if (cgroup_poke(v2, id, "cgroup.kill", "1", &why) == 0)
		return 0;
	if (faccessat(v2->dir, id, F_OK, 0) < 0)
		return 0;
	if (why.errno_value == ENOENT) /* before Linux 5.14; groups below it are not reached */
		return kill_listed(v2, id, &any, err);
	if (err)
		*err = why;
	return -1;
}

bool cgroup_exists(const struct cgroup_tree *tree, const char *id)
{
	return faccessat(tree->list[0].dir, id, F_OK, 0) == 0;
}

bool cgroup_is_populated(struct cgroup_tree *tree, const char *id)
{
	for (size_t i = 0; i < tree->count; i++) {
		_cleanup_free_ char *text = NULL;
		char path[256];
		bool v2 = tree->list[i].v2;

		snprintf(path, sizeof path, "%s/%s", id, v2 ? "cgroup.events" : "cgroup.procs");
		if (file_read(tree->list[i].dir, path, PROCS_MAX, &text, NULL, NULL) < 0)
			continue;
		if (v2 ? strstr(text, "populated 1") != NULL : *text != '\0')
			return true;
	}
	return false;
}

/* Removes depth first. The owner of a delegated group may have made groups below it;
 * cgroup_delegate bounds their number and depth. */
static int remove_groups(int parent, const char *name, int depth)
{
	int fd;
	DIR *dir;
	struct dirent *entry;

	if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno != EBUSY || depth > DEPTH_MAX + 1)
		return -errno;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	dir = fd < 0 ? NULL : fdopendir(fd);
	while (dir && (entry = readdir(dir)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			remove_groups(fd, entry->d_name, depth + 1);
	if (dir)
		closedir(dir);
	return unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -errno;
}

int cgroup_remove(struct cgroup_tree *tree, const char *id, struct err *err)
{
	const char *slash = strchr(id, '/');
	_cleanup_free_ char *shared = slash ? xstrndup(id, (size_t)(slash - id)) : NULL;
	int worst = 0;

	for (size_t i = 0; i < tree->count; i++) {
		int status = remove_groups(tree->list[i].dir, id, 0);

		if (status < 0)
			worst = -status;
		else if (shared)
			/* the shared group goes with its last group */
			unlinkat(tree->list[i].dir, shared, AT_REMOVEDIR);
	}
	if (worst == EBUSY)
		return err_set(err, ERR_STATE, "cgroup '%s' still holds processes", id);
	if (worst)
		return err_sys(err, worst, "remove cgroup '%s'", id);
	return 0;
}

bool cgroup_holds(struct cgroup_tree *tree, const char *id, pid_t pid)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_free_ char *tail = xasprintf("/%s/%s", tree->name, id);
	char path[32];
	size_t tail_len = strlen(tail);

	snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
	if (file_read(AT_FDCWD, path, 65536, &text, NULL, NULL) < 0)
		return false;
	for (char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		size_t len = strcspn(line, "\n");
		char *at = memmem(line, len, tail, tail_len);

		/* Matches the group itself or one below it. */
		if (at && (at + tail_len == line + len || at[tail_len] == '/'))
			return true;
	}
	return false;
}
