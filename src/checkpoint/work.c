/* work.c - packing, unpacking and verifying in helpers, and the callbacks when they have
 * finished
 *
 * A job waits until no other job works on its checkpoint and fewer than the maximum run. A
 * request for something that is already running joins that job. Callbacks never run inside a
 * call of their owner: they go through the loop, one at a time, so that they may do anything,
 * even close all checkpoints. */
#include "checkpoint/checkpoints_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "helper/helper.h"
#include "loop/loop.h"
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { FINISH_MS = 60 * 1000 }; /* how long the daemon waits for it when it stops */

struct job {
	struct job *next;
	struct checkpoints *checkpoints;
	struct checkpoint *checkpoint;
	enum job_kind kind;
	struct helper *helper; /* NULL: waits for its turn */
	int dir;	       /* BOX_HOME/states/ID */
	int plain;	       /* packing: what is read */
	bool disk_only;	       /* in the helper: the tmpfs was full */
	int quick_dir;	       /* in the helper, unpacking into memory: ID on the tmpfs */
	struct answer *answers;
	bool told; /* the helper has reported its result */
	bool quick;
	struct err err;
};

/* A helper's message. */
struct outcome {
	struct err err;
	bool quick; /* it was unpacked into memory */
};
static_assert(sizeof(struct outcome) <= HELPER_MESSAGE_MAX, "fits a message");
static const char *const verbs[] = {
	[JOB_PACK] = "pack", [JOB_UNPACK] = "unpack", [JOB_VERIFY] = "verify"
};

/* ---- answers -------------------------------------------------------------------------------- */

static void send_next(void *arg)
{
	struct checkpoints *checkpoints = arg;
	_cleanup_free_ struct answer *answer = checkpoints->answers;
	const struct err *err = answer->err.kind ? &answer->err : NULL;

	checkpoints->answers = answer->next;
	if (checkpoints->answers)
		loop_defer(checkpoints->loop, send_next, checkpoints);
	else
		checkpoints->answers_end = &checkpoints->answers;
	/* checkpoints may be freed after this */
	if (answer->opened)
		answer->opened(answer->dir, err, answer->arg);
	else if (answer->done)
		answer->done(err, answer->arg);
}

void answer_send(struct checkpoints *checkpoints, struct answer *answer, const struct err *err)
{
	if (err)
		answer->err = *err;
	answer->next = NULL;
	if (!checkpoints->answers)
		loop_defer(checkpoints->loop, send_next, checkpoints);
	*checkpoints->answers_end = answer;
	checkpoints->answers_end = &answer->next;
}

static void free_answers(struct answer *answer)
{
	while (answer) {
		struct answer *next = answer->next;

		cleanup_closep(&answer->dir);
		free(answer);
		answer = next;
	}
}

static void answer_forget(struct checkpoints *checkpoints, struct answer *answer)
{
	struct checkpoint *held = answer->held;

	answer->done = NULL;
	answer->opened = NULL;
	answer->held = NULL;
	if (!held)
		return;
	close(answer->dir);
	answer->dir = -1;
	held->holds--;
	checkpoint_settle(checkpoints, held);
}

void checkpoints_forget(struct checkpoints *checkpoints, const void *arg)
{
	for (struct job *job = checkpoints->jobs; job; job = job->next)
		for (struct answer *answer = job->answers; answer; answer = answer->next)
			if (answer->arg == arg)
				answer_forget(checkpoints, answer);
	for (struct answer *answer = checkpoints->answers; answer; answer = answer->next)
		if (answer->arg == arg)
			answer_forget(checkpoints, answer);
}

void answer_close_all(struct checkpoints *checkpoints)
{
	loop_undefer(checkpoints->loop, send_next, checkpoints);
	free_answers(checkpoints->answers);
	checkpoints->answers = NULL;
}

/* ---- in the helper -------------------------------------------------------------------------- */

static ssize_t read_fd(void *arg, void *data, size_t len, struct err *err)
{
	ssize_t got;

	do
		got = read(*(int *)arg, data, len);
	while (got < 0 && errno == EINTR);
	return got < 0 ? err_sys(err, errno, "read '%s'", PACKED_NAME) : got;
}

/* The folder to unpack into. */
static int dir_of(const struct job *job)
{
	return job->quick_dir >= 0 ? job->quick_dir : job->dir;
}

static void remove_halves(struct job *job)
{
	if (job->kind == JOB_PACK)
		unlinkat(job->dir, PACKED_TMP_NAME, 0);
	else
		tree_remove(dir_of(job), PLAIN_TMP_NAME, NULL);
	if (job->quick_dir >= 0)
		unlinkat(job->checkpoints->quick, job->checkpoint->id, AT_REMOVEDIR);
}

static int sync_shared(const struct job *job, struct err *err)
{
	int copy = openat(job->dir, SHARED_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *folder = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;
	int status = 0;

	if (copy < 0 && errno == ENOENT)
		return 0;
	if (!folder) {
		cleanup_closep(&copy);
		return err_sys(err, errno, "open '%s'", SHARED_NAME);
	}
	while (status == 0 && (entry = readdir(folder))) {
		_cleanup_close_ int fd = openat(copy, entry->d_name,
			O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

		if (fd < 0 || fsync(fd) < 0)
			status = err_sys(err, errno, "sync '%s'", entry->d_name);
	}
	if (status == 0 && fsync(copy) < 0)
		status = err_sys(err, errno, "sync '%s'", SHARED_NAME);
	closedir(folder);
	return status;
}

/* Syncs the file, renames it, then syncs its folder: they must reach the disk in this order. */
static int make_safe(struct job *job, int fd, struct err *err)
{
	if (fsync(fd) < 0)
		return err_sys(err, errno, "sync '%s'", PACKED_NAME);
	if (renameat(job->dir, PACKED_TMP_NAME, job->dir, PACKED_NAME) < 0)
		return err_sys(err, errno, "rename '%s'", PACKED_TMP_NAME);
	if (fsync(job->dir) == 0 && fsync(job->checkpoints->top) == 0)
		return 0;
	err_sys(err, errno, "sync the folder of the checkpoint");
	unlinkat(job->dir, PACKED_NAME, 0);
	return -1;
}

static int run_pack(struct job *job, struct err *err)
{
	_cleanup_close_ int fd = openat(job->dir, PACKED_TMP_NAME,
		O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	uint64_t bytes;

	/* Usually nobody waits for it, and boxes need the CPU. */
	setpriority(PRIO_PROCESS, 0, 10);
	if (fd < 0)
		return err_sys(err, errno, "make '%s'", PACKED_TMP_NAME);
	if (checkpoint_pack(job->plain, job->checkpoint->id, fd, &bytes, err) == 0 &&
		sync_shared(job, err) == 0 && make_safe(job, fd, err) == 0)
		return 0;
	remove_halves(job);
	return -1;
}

/* place NULL: verify only. */
static int run_read(struct job *job, const struct checkpoint_place *place, struct err *err)
{
	_cleanup_close_ int fd = openat(job->dir, PACKED_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	const struct checkpoint_source source = { read_fd, &fd };

	if (fd < 0)
		return err_sys(err, errno, "open '%s'", PACKED_NAME);
	return checkpoint_unpack(&source, job->checkpoint->id, place, err);
}

/* In memory if there is enough: mostly it is needed only for a moment, and disk writes cost
 * time. */
static int open_place(void *arg, uint64_t total, struct err *err)
{
	struct job *job = arg;
	struct checkpoints *checkpoints = job->checkpoints;
	const char *id =
		job->checkpoint
			->id; /* Others may be unpacking, and have not filled what they will. */
	if (!job->disk_only &&
		checkpoint_fits_in_memory(checkpoints, total * (checkpoints->unpacking + 1)) &&
		(mkdirat(checkpoints->quick, id, 0700) == 0 || errno == EEXIST))
		job->quick_dir = openat(checkpoints->quick, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (job->quick_dir < 0 && checkpoint_check_disk(checkpoints, total, err) < 0)
		return -1;
	if (mkdirat(dir_of(job), PLAIN_TMP_NAME, 0700) < 0)
		return err_sys(err, errno, "make '%s'", PLAIN_TMP_NAME);
	job->plain = openat(
		dir_of(job), PLAIN_TMP_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return job->plain < 0 ? err_sys(err, errno, "open '%s'", PLAIN_TMP_NAME) : job->plain;
}

static int unpack_once(struct job *job, struct err *err)
{
	const struct checkpoint_place place = { open_place, job };

	if (run_read(job, &place, err) < 0)
		;
	else if (renameat(dir_of(job), PLAIN_TMP_NAME, dir_of(job), PLAIN_NAME) < 0)
		err_sys(err, errno, "rename '%s'", PLAIN_TMP_NAME);
	else
		return 0;
	remove_halves(job);
	return -1;
}

static int run_unpack(struct job *job, struct err *err)
{
	if (unpack_once(job, err) == 0)
		return 0;
	if (err->kind != ERR_LIMIT || job->quick_dir < 0)
		return -1;
	/* There was not enough memory after all. */
	job->disk_only = true;
	cleanup_closep(&job->quick_dir);
	cleanup_closep(&job->plain);
	job->quick_dir = job->plain = -1;
	err_clear(err);
	return unpack_once(job, err);
}

static int run(int sock, void *arg)
{
	struct job *job = arg;
	struct outcome outcome = { 0 };

	switch (job->kind) {
	case JOB_PACK:
		run_pack(job, &outcome.err);
		break;
	case JOB_UNPACK:
		run_unpack(job, &outcome.err);
		outcome.quick = job->quick_dir >= 0;
		break;
	case JOB_VERIFY:
		run_read(job, NULL, &outcome.err);
		break;
	}
	return send(sock, &outcome, sizeof outcome, MSG_NOSIGNAL) == sizeof outcome ? 0 : 1;
}

/* ---- in the daemon -------------------------------------------------------------------------- */

static void explain(struct job *job, struct err *err)
{
	err_wrap(err, "%s checkpoint '%s'", verbs[job->kind], job->checkpoint->id);
	if (*err->hint)
		return;
	if (err->kind == ERR_LIMIT)
		err_hint(err,
			"free some space on the disk of BOX_HOME, for example by removing snapshots");
	else if (err->kind == ERR_PROTOCOL)
		err_hint(err,
			"the processes in it are lost, the disk is not: start from the disk alone");
}

static void unlink_job(struct job *job)
{
	struct job **at = &job->checkpoints->jobs;

	while (*at != job)
		at = &(*at)->next;
	*at = job->next;
}

/* Removes files of a helper that was killed. The folder of a gone checkpoint is removed as a
 * whole. */
static void take_halves(struct job *job)
{
	struct checkpoints *checkpoints = job->checkpoints;
	struct checkpoint *now = checkpoint_find(checkpoints, job->checkpoint->id);
	char path[CHECKPOINT_ID_MAX + sizeof "/" PACKED_TMP_NAME];

	if (now && now != job->checkpoint)
		return; /* the id is in use again */
	snprintf(path, sizeof path, "%s/%s", job->checkpoint->id,
		job->kind == JOB_PACK ? PACKED_TMP_NAME : PLAIN_TMP_NAME);
	sweep_take(checkpoints->top, path, NULL);
	if (job->kind == JOB_UNPACK && checkpoints->quick >= 0)
		sweep_take(checkpoints->quick, job->checkpoint->id, NULL);
}

static void free_job(struct job *job)
{
	cleanup_closep(&job->dir);
	cleanup_closep(&job->plain);
	free_answers(job->answers);
	free(job);
}

/* Gives each caller that waits for the plain form a directory and a hold. */
static void open_for(struct job *job, struct answer *answer)
{
	answer->dir = checkpoint_open_plain(job->checkpoints, job->checkpoint, &answer->err);
	if (answer->dir < 0)
		return;
	job->checkpoint->holds++;
	answer->held = job->checkpoint;
}

static void answer_all(struct job *job)
{
	while (job->answers) {
		struct answer *answer = job->answers;

		job->answers = answer->next;
		if (!job->err.kind && answer->opened)
			open_for(job, answer);
		answer_send(job->checkpoints, answer, job->err.kind ? &job->err : NULL);
	}
}

/* Removes the folder after a failure: a quick checkpoint has none on disk. */
static void remove_empty(struct job *job)
{
	if (job->checkpoint->plain == PLAIN_QUICK && !job->checkpoint->gone)
		unlinkat(job->checkpoints->top, job->checkpoint->id, AT_REMOVEDIR);
}

static void start_waiting(struct checkpoints *checkpoints);

static void on_message(const void *message, size_t len, void *arg)
{
	struct job *job = arg;
	struct outcome outcome;

	if (len != sizeof outcome)
		return;
	memcpy(&outcome, message, sizeof outcome);
	job->err = outcome.err;
	job->quick = outcome.quick;
	job->told = true;
}

static unsigned *running_of(struct checkpoints *checkpoints, enum job_kind kind)
{
	return kind == JOB_UNPACK ? &checkpoints->unpacking : &checkpoints->packing;
}

static void on_ended(int code, void *arg)
{
	struct job *job = arg;
	struct checkpoints *checkpoints = job->checkpoints;
	struct checkpoint *checkpoint = job->checkpoint;

	(void)code;
	job->helper = NULL;
	unlink_job(job);
	--*running_of(checkpoints, job->kind);
	checkpoint->running = NULL;
	if (!job->told) {
		err_set(&job->err, ERR_SYSTEM, "the helper process was killed");
		take_halves(job);
		sweep(checkpoints);
	}
	if (checkpoint->gone)
		err_set(&job->err, ERR_CANCELLED, "it was discarded");
	if (job->err.kind) {
		remove_empty(job);
		explain(job, &job->err);
	} else if (job->kind == JOB_PACK) {
		checkpoint->packed = true;
	} else if (job->kind == JOB_UNPACK) {
		checkpoint->plain = job->quick ? PLAIN_QUICK : PLAIN_DISK;
	}
	checkpoint_touch(checkpoints, checkpoint);
	answer_all(job);
	free_job(job);
	checkpoint_settle(checkpoints, checkpoint);
	start_waiting(checkpoints);
}

static const struct helper_ops ops = {
	.run = run, .on_message = on_message, .on_exit = on_ended, .light = true
};

/* A quick checkpoint has no folder on disk until it is packed. */
static int open_dirs(struct job *job, struct err *err)
{
	struct checkpoints *checkpoints = job->checkpoints;

	if (mkdirat(checkpoints->top, job->checkpoint->id, 0700) < 0 && errno != EEXIST)
		return err_sys(err, errno, "make its folder");
	job->dir = openat(checkpoints->top, job->checkpoint->id,
		O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (job->dir < 0)
		return err_sys(err, errno, "open its folder");
	if (job->kind != JOB_PACK)
		return 0;
	job->plain = checkpoint_open_plain(checkpoints, job->checkpoint, err);
	return job->plain < 0 ? -1 : 0;
}

static int start(struct job *job, struct err *err)
{
	int keep[4];
	size_t count = 0;
	if (open_dirs(job, err) < 0)
		return -1;
	keep[count++] = job->checkpoints->top;
	keep[count++] = job->dir;
	if (job->plain >= 0)
		keep[count++] = job->plain;
	if (job->checkpoints->quick >= 0)
		keep[count++] = job->checkpoints->quick;
	return helper_start(job->checkpoints->loop, &ops, job, keep, count, &job->helper, err);
}

static void start_waiting(struct checkpoints *checkpoints)
{
	for (struct job *job = checkpoints->jobs, *next; job; job = next) {
		unsigned *running = running_of(checkpoints, job->kind);

		next = job->next;
		if (job->helper || job->checkpoint->running ||
			*running >= (job->kind == JOB_UNPACK ? UNPACKERS_MAX : PACKERS_MAX))
			continue;
		if (start(job, &job->err) == 0) {
			job->checkpoint->running = job;
			++*running;
			continue;
		}
		remove_empty(job);
		explain(job, &job->err);
		unlink_job(job);
		answer_all(job);
		free_job(job);
	}
}

void job_ask(struct checkpoints *checkpoints, struct checkpoint *checkpoint, enum job_kind kind,
	struct answer *answer)
{
	struct job **at = &checkpoints->jobs, *job;
	struct answer **last;

	while (*at && ((*at)->checkpoint != checkpoint || (*at)->kind != kind))
		at = &(*at)->next;
	job = *at;
	if (!job) {
		*at = job = xnew(struct job);
		*job = (struct job){ .checkpoints = checkpoints,
			.checkpoint = checkpoint,
			.kind = kind,
			.dir = -1,
			.plain = -1,
			.quick_dir = -1 };
	}
	for (last = &job->answers; *last; last = &(*last)->next)
		;
	answer->next = NULL;
	*last = answer;
	start_waiting(checkpoints);
}

void job_cancel(struct checkpoints *checkpoints, struct checkpoint *checkpoint)
{
	for (struct job *job = checkpoints->jobs, *next; job; job = next) {
		next = job->next;
		if (job->checkpoint != checkpoint)
			continue;
		if (job->helper) {
			helper_kill(job->helper); /* on_ended does the rest */
			continue;
		}
		err_set(&job->err, ERR_CANCELLED, "it was discarded");
		explain(job, &job->err);
		unlink_job(job);
		answer_all(job);
		free_job(job);
	}
}

/* Waits for running packers: data that is only in memory would be lost with the daemon, although
 * its owner was promised a packed form. */
static void finish_packing(struct checkpoints *checkpoints)
{
	int64_t deadline = clock_mono_us() + FINISH_MS * 1000;

	for (struct job *job = checkpoints->jobs; job; job = job->next) {
		if (job->kind != JOB_PACK || job->checkpoint->plain != PLAIN_QUICK ||
			job->checkpoint->gone || (!job->helper && start(job, &job->err) < 0))
			continue;
		helper_wait(job->helper, (int)MAX((deadline - clock_mono_us()) / 1000, 0));
	}
}

void job_close_all(struct checkpoints *checkpoints)
{
	finish_packing(checkpoints);
	while (checkpoints->jobs) {
		struct job *job = checkpoints->jobs;

		checkpoints->jobs = job->next;
		if (job->helper) {
			helper_free(job->helper);
			take_halves(job);
		}
		free_job(job);
	}
}
