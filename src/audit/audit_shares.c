/* audit_shares.c - see audit_shares.h
 *
 *   BOX_HOME/audit/audit-….jsonl               lines of all trees, as long as a tree has room in
 *                                              the newest file
 *   BOX_HOME/audit/trees/TREE/audit-….jsonl    what a tree writes beyond its share of a file; a log
 *                                              like the other, with its own chain
 *
 * What a tree has written into the newest file of the common log is counted. A restarted daemon
 * starts to count anew: no box can cause that. Logs of trees stay when their boxes are gone; of
 * more than LOGS_MAX, the one that was written to longest ago is removed. */
#include "audit/audit_shares.h"
#include "audit/audit_internal.h"
#include "base/file.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
	PART = 16,     /* the share of a tree is this part of a file */
	OWN_FILES = 8, /* how many files of that size a tree's own log has */
	LOGS_MAX = 32,
	TREE_MAX = 32, /* letters of an id */
};

struct share {
	struct share *next;
	char *tree;
	uint64_t file, bytes; /* what it wrote into that file */
	struct audit *own;    /* NULL: not open; once open, it stays open */
};

struct audit_shares {
	struct loop *loop;
	struct audit *common;
	char *folder;
	struct share *list;
};

struct audit_shares *audit_shares_new(struct loop *loop, struct audit *common)
{
	struct audit_shares *shares = xnew(struct audit_shares);

	shares->loop = loop;
	shares->common = common;
	shares->folder = xasprintf("%s/trees", audit_get_folder(common));
	return shares;
}

static void share_free(struct share *share)
{
	audit_close(share->own);
	free(share->tree);
	free(share);
}

void audit_shares_free(struct audit_shares *shares)
{
	if (!shares)
		return;
	for (struct share *share = shares->list, *next; share; share = next) {
		next = share->next;
		share_free(share);
	}
	free(shares->folder);
	free(shares);
}

static bool is_tree(const char *name)
{
	size_t len = strlen(name);

	return len && len <= TREE_MAX &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") == len;
}

/* ---- the logs of trees ---------------------------------------------------------------------- */

static struct share *find(struct audit_shares *shares, const char *tree)
{
	for (struct share *share = shares->list; share; share = share->next)
		if (!strcmp(share->tree, tree))
			return share;
	return NULL;
}

json_t *audit_shares_list(const struct audit_shares *shares)
{
	json_t *list = json_array();
	DIR *dir = opendir(shares->folder);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (is_tree(entry->d_name))
			json_array_append_new(list, json_string(entry->d_name));
	if (dir)
		closedir(dir);
	return list;
}

/* The log that was written to longest ago and is not open (somebody may read it). "" when there is
 * none. */
static void find_oldest(struct audit_shares *shares, json_t *list, char out[TREE_MAX + 1])
{
	struct timespec oldest = { 0 };
	json_t *name;
	size_t i;

	out[0] = '\0';
	json_array_foreach (list, i, name) {
		const char *tree = json_string_value(name);
		_cleanup_free_ char *head = xasprintf("%s/%s/head", shares->folder, tree);
		const struct share *share = find(shares, tree);
		struct stat st = { 0 };

		(void)stat(head, &st);
		if ((share && share->own) ||
			(out[0] && (st.st_mtim.tv_sec > oldest.tv_sec ||
					   (st.st_mtim.tv_sec == oldest.tv_sec &&
						   st.st_mtim.tv_nsec >= oldest.tv_nsec))))
			continue;
		snprintf(out, TREE_MAX + 1, "%s", tree);
		oldest = st.st_mtim;
	}
}

static void make_room(struct audit_shares *shares, const char *tree)
{
	_cleanup_json_ json_t *list = audit_shares_list(shares);
	_cleanup_free_ char *own = xasprintf("%s/%s", shares->folder, tree), *path = NULL;
	char oldest[TREE_MAX + 1];

	if (json_array_size(list) < LOGS_MAX || access(own, F_OK) == 0)
		return;
	find_oldest(shares, list, oldest);
	path = *oldest ? xasprintf("%s/%s", shares->folder, oldest) : NULL;
	if (path)
		tree_remove(AT_FDCWD, path, NULL);
}

static int open_own(struct audit_shares *shares, struct share *share, struct err *err)
{
	const struct audit_options options = { .file_bytes = MAX(shares->common->file_bytes / PART,
						       (uint64_t)1),
		.files = OWN_FILES };
	_cleanup_free_ char *path = xasprintf("%s/%s", shares->folder, share->tree);

	if (share->own)
		return 0;
	make_room(shares, share->tree);
	return audit_open(shares->loop, path, &options, &share->own, err);
}

/* New shares are put in front; those that count for an older file are dropped. */
static struct share *get(struct audit_shares *shares, const char *tree)
{
	uint64_t file = audit_get_file(shares->common);
	struct share *share = find(shares, tree);

	for (struct share **at = &shares->list, *old; !share && (old = *at);) {
		if (old->own || old->file == file) {
			at = &old->next;
			continue;
		}
		*at = old->next;
		share_free(old);
	}
	if (!share) {
		share = xnew(struct share);
		share->tree = xstrdup(tree);
		share->next = shares->list;
		shares->list = share;
	}
	if (share->file != file) {
		share->file = file;
		share->bytes = 0;
	}
	return share;
}

struct audit *audit_shares_log(struct audit_shares *shares, const char *tree, struct err *err)
{
	_cleanup_free_ char *path = is_tree(tree) ? xasprintf("%s/%s", shares->folder, tree) : NULL;
	struct share *share;

	if (!path || access(path, F_OK) < 0) {
		err_set(err, ERR_NOT_FOUND, "'%.40s' has no audit log of its own", tree);
		return NULL;
	}
	share = get(shares, tree);
	return open_own(shares, share, err) < 0 ? NULL : share->own;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void tell_moved(struct audit_shares *shares, const char *tree, const json_t *line)
{
	json_t *note = json_pack("{s:s,s:s,s:s}", "type", "share", "reason",
		"it has written its share of this file; its lines go on in a log of its own", "log",
		tree);

	json_object_set(note, "box", json_object_get(line, "box"));
	json_object_set(note, "box_name", json_object_get(line, "box_name"));
	if (json_object_get(line, "owner"))
		json_object_set(note, "owner", json_object_get(line, "owner"));
	audit_add(shares->common, note);
}

void audit_shares_add(struct audit_shares *shares, const char *tree, json_t *line)
{
	uint64_t most = MAX(shares->common->file_bytes / PART, (uint64_t)1);
	struct share *share = get(shares, tree);
	struct err err = ERR_INIT;

	if (share->bytes < most) {
		share->bytes += audit_add(shares->common, json_incref(line));
		if (share->bytes >= most && is_tree(tree))
			tell_moved(shares, tree, line);
	} else if (open_own(shares, share, &err) == 0) {
		audit_add(share->own, json_incref(line));
	} else {
		/* The line goes to the common log rather than being lost. */
		log_error("the audit log of a tree cannot be opened", kv_str("tree", tree),
			kv_err(&err));
		audit_add(shares->common, json_incref(line));
	}
	json_decref(line);
}
