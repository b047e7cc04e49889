/* open.c - finds the checkpoints at the start, and mounts the tmpfs for quick ones
 *
 * What a helper had not finished when the daemon died has a name ending in .tmp and is removed.
 * Plain forms are not synced: they are complete as long as this kernel runs, but not surely
 * after a restart of the machine. The file .boot names the boot in which the plain forms were
 * written. */
#include "checkpoint/checkpoints_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "sys/mountfd.h"
#include "sys/procstat.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define BOOT_NAME ".boot"

static bool has(int dir, const char *name, mode_t type)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & S_IFMT) == type;
}

/* Adds complete checkpoints to the table; renames the rest for removal. */
static void take_in(struct checkpoints *checkpoints, const char *id, bool same_boot)
{
	_cleanup_close_ int dir =
		openat(checkpoints->top, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	char path[CHECKPOINT_ID_MAX + sizeof "/" PACKED_TMP_NAME];
	struct checkpoint *checkpoint;
	bool plain, packed;

	if (dir < 0)
		return;
	unlinkat(dir, PACKED_TMP_NAME, 0);
	snprintf(path, sizeof path, "%s/%s", id, PLAIN_TMP_NAME);
	sweep_take(checkpoints->top, path, NULL);
	plain = has(dir, PLAIN_NAME, S_IFDIR);
	packed = has(dir, PACKED_NAME, S_IFREG);
	if (plain && !same_boot) {
		snprintf(path, sizeof path, "%s/%s", id, PLAIN_NAME);
		sweep_take(checkpoints->top, path, NULL);
		plain = false;
	}
	if (!plain && !packed) {
		sweep_take(checkpoints->top, id, NULL);
		return;
	}
	checkpoint = checkpoint_add(checkpoints, id);
	checkpoint->plain = plain ? PLAIN_DISK : PLAIN_NONE;
	checkpoint->packed = packed;
}

static int read_folder(struct checkpoints *checkpoints, bool same_boot, struct err *err)
{
	int copy = openat(checkpoints->top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;

	if (!folder) {
		err_sys(err, errno, "read the folder of checkpoints");
		cleanup_closep(&copy);
		return -1;
	}
	/* readdir may return a name twice while others are renamed: the second time it is known,
	 * or gone. */
	while ((entry = readdir(folder)))
		if (text_has_prefix(entry->d_name, GONE_PREFIX))
			sweep_take(checkpoints->top, entry->d_name, NULL);
		else if (checkpoint_id_is_good(entry->d_name) &&
			 !checkpoint_find(checkpoints, entry->d_name))
			take_in(checkpoints, entry->d_name, same_boot);
	closedir(folder);
	return 0;
}

static int find_checkpoints(struct checkpoints *checkpoints, struct err *err)
{
	_cleanup_free_ char *written = NULL;
	char boot[BOOT_ID_SIZE];
	bool same_boot;

	if (procstat_boot_id(boot, err) < 0)
		return -1;
	same_boot =
		file_read(checkpoints->top, BOOT_NAME, BOOT_ID_SIZE, &written, NULL, NULL) == 0 &&
		!strcmp(written, boot);
	if (read_folder(checkpoints, same_boot, err) < 0)
		return -1;
	/* Written last: until then the plain forms count as those of another boot. */
	if (!same_boot &&
		file_write_atomic(checkpoints->top, BOOT_NAME, boot, strlen(boot), 0600, err) < 0)
		return err_wrap(err, "folder of checkpoints");
	return 0;
}

static int mount_quick(struct checkpoints *checkpoints, const char *run, struct err *err)
{
	static const struct mount_option options[] = { { "mode", "0700" }, { "size", "50%" },
		{ NULL, NULL } };
	_cleanup_close_ int target = -1, mount = -1;

	if (dir_make_all(run, 0700, err) < 0)
		return -1;
	target = open(run, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (target < 0)
		return err_sys(err, errno, "open '%s'", run);
	if (mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
		    &mount, err) < 0 ||
		mount_attach(mount, target, err) < 0)
		return -1;
	checkpoints->quick = openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (checkpoints->quick < 0) {
		err_sys(err, errno, "open '%s'", run);
		mount_take_off(mount);
		return -1;
	}
	checkpoints->quick_mount = steal_fd(&mount);
	checkpoints->run = xstrdup(run);
	return 0;
}

int checkpoints_open(struct loop *loop, const char *home, const char *run, struct checkpoints **ret,
	struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/states", home);
	struct checkpoints *checkpoints = xnew(struct checkpoints);
	struct err why = ERR_INIT;
	char digest[DIGEST_SIZE];

	*checkpoints =
		(struct checkpoints){ .loop = loop, .top = -1, .quick = -1, .quick_mount = -1 };
	checkpoints->answers_end = &checkpoints->answers;
	/* OpenSSL initialises itself at first use: once here instead of in each helper. */
	digest_of("", 0, digest);
	if (dir_make_all(path, 0700, err) < 0)
		goto failed;
	checkpoints->top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (checkpoints->top < 0) {
		err_sys(err, errno, "open '%s'", path);
		goto failed;
	}
	if (find_checkpoints(checkpoints, err) < 0)
		goto failed;
	if (run && mount_quick(checkpoints, run, &why) < 0)
		log_warn("no tmpfs for checkpoints, they go to the disk", kv_err(&why));
	sweep(checkpoints);
	*ret = checkpoints;
	return 0;

failed:
	checkpoints_close(checkpoints);
	return -1;
}

void checkpoints_close(struct checkpoints *checkpoints)
{
	if (!checkpoints)
		return;
	job_close_all(checkpoints);
	answer_close_all(checkpoints);
	sweep_close(checkpoints);
	for (unsigned i = 0; i < BUCKETS; i++)
		while (checkpoints->buckets[i]) {
			struct checkpoint *checkpoint = checkpoints->buckets[i];

			checkpoints->buckets[i] = checkpoint->next;
			free(checkpoint);
		}
	if (checkpoints->quick_mount >= 0) {
		mount_take_off(checkpoints->quick_mount);
		rmdir(checkpoints->run);
	}
	free(checkpoints->run);
	cleanup_closep(&checkpoints->quick_mount);
	cleanup_closep(&checkpoints->quick);
	cleanup_closep(&checkpoints->top);
	free(checkpoints);
}
