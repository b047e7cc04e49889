/* sweep.c - removes files of checkpoints that nobody needs any more
 *
 * Removing gigabytes takes a while. So files are renamed first, which takes no time, and removed
 * by a helper. What a dead daemon had renamed is removed by the next. */
#include "checkpoint/checkpoints_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "helper/helper.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

int sweep_take(int dir, const char *name, struct err *err)
{
	char suffix[SUFFIX_LEN + 1], to[sizeof TRASH_PREFIX + SUFFIX_LEN];

	random_id(suffix, SUFFIX_LEN);
	snprintf(to, sizeof to, "%s%s", TRASH_PREFIX, suffix);
	if (renameat(dir, name, dir, to) < 0 && errno != ENOENT)
		return err_sys(err, errno, "remove '%s'", name);
	return 0;
}

static int sweep_folder(int top, struct err *err)
{
	int copy = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret = 0;
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;

	if (!dir) {
		cleanup_closep(&copy);
		return err_sys(err, errno, "read the folder of checkpoints");
	}
	while ((entry = readdir(dir)))
		if (text_has_prefix(entry->d_name, TRASH_PREFIX) &&
			tree_remove(top, entry->d_name, err) < 0)
			ret = -1; /* continues with the others */
	closedir(dir);
	return ret;
}

static int run(int sock, void *arg)
{
	struct checkpoints *checkpoints = arg;
	struct err err = ERR_INIT;

	if (checkpoints->quick >= 0)
		sweep_folder(checkpoints->quick, &err);
	sweep_folder(checkpoints->top, &err);
	if (err.kind)
		send(sock, &err, sizeof err, MSG_NOSIGNAL);
	return 0;
}

static void on_message(const void *message, size_t len, void *arg)
{
	struct err err;

	(void)arg;
	if (len != sizeof err)
		return;
	memcpy(&err, message, sizeof err);
	log_warn("cannot remove files of a checkpoint, will try again", kv_err(&err));
}

static void on_swept(int code, void *arg)
{
	struct checkpoints *checkpoints = arg;

	(void)code;
	checkpoints->sweeper = NULL;
	if (checkpoints->sweep_again)
		sweep(checkpoints);
}

static const struct helper_ops ops = {
	.run = run, .on_message = on_message, .on_exit = on_swept, .light = true
};

void sweep(struct checkpoints *checkpoints)
{
	const int keep[] = { checkpoints->top, checkpoints->quick };
	struct err err = ERR_INIT;

	/* The helper may have passed this folder already. */
	checkpoints->sweep_again = checkpoints->sweeper != NULL;
	if (checkpoints->sweeper)
		return;
	if (helper_start(checkpoints->loop, &ops, checkpoints, keep,
		    checkpoints->quick >= 0 ? 2 : 1, &checkpoints->sweeper, &err) < 0)
		log_warn("cannot remove files of a checkpoint, will try again", kv_err(&err));
}

void sweep_close(struct checkpoints *checkpoints)
{
	helper_free(checkpoints->sweeper);
	checkpoints->sweeper = NULL;
}
