/* job.c - a helper process that makes an image
 *
 * The helper makes layers, writes the draft and reports that it has finished, or why it failed.
 * Only the daemon publishes, and only after the helper and its children have ended. So an image
 * is complete or does not exist, whichever side dies when: what a dead or cancelled helper left
 * carries the id of its job in its name and is removed by it. */
#include "image/image_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { PROGRESS_EVERY_US = 50 * 1000 };

/* A message from the helper to the daemon; a plain value. */
struct job_message {
	enum { JOB_PROGRESS, JOB_FINISHED, JOB_FAILED } type;
	char stage[16];
	char detail[128];
	uint64_t done, total;
	struct err err; /* JOB_FAILED */
};
static_assert(sizeof(struct job_message) <= HELPER_MESSAGE_MAX, "a message fits");

struct job_sink {
	int sock;
	struct job_message last;
	int64_t told_us;
};

struct image_job {
	struct images *images;
	struct helper *helper;
	const struct job_work *work;
	void *arg;
	const struct image_job_ops *ops;
	void *user;
	char id[11];
	char *name; /* normal; NULL: none, or the work finds it */
	char *owner;
	bool finished, cancelled;
	struct err err;
	int64_t started_us;
	struct image_job *next;
};

/* ---- in the helper -------------------------------------------------------------------------- */

void job_progress(
	struct job_sink *sink, const char *stage, uint64_t done, uint64_t total, const char *detail)
{
	struct job_message *last = &sink->last;
	bool first = strncmp(last->stage, stage, sizeof last->stage - 1) != 0;
	bool ends = total && done == total && last->done != done;
	int64_t now = clock_mono_us();

	if (!first && !ends && now - sink->told_us < PROGRESS_EVERY_US)
		return;
	*last = (struct job_message){ .type = JOB_PROGRESS, .done = done, .total = total };
	if (total && done > total)
		last->done = total;
	snprintf(last->stage, sizeof last->stage, "%s", stage);
	snprintf(last->detail, sizeof last->detail, "%s", detail ? detail : "");
	sink->told_us = now;
	send(sink->sock, last, sizeof *last, MSG_NOSIGNAL);
}

static int run_in_helper(int sock, void *arg)
{
	struct image_job *job = arg;
	struct images *images = job->images;
	struct job_sink sink = { .sock = sock };
	struct image_draft draft = { .name = xstrdup(job->name), .owner = job->owner };
	struct job_message end = { .type = JOB_FINISHED };

	umask(022);
	memcpy(draft.id, job->id, sizeof draft.id);
	memcpy(images->work_id, job->id, sizeof images->work_id); /* our copy */
	if (job->work->run(images, &sink, &draft, job->arg, &end.err) < 0 ||
		(!draft.written && draft_write(images, &draft, &end.err) < 0))
		end.type = JOB_FAILED;
	return send(sock, &end, sizeof end, MSG_NOSIGNAL) < 0 || end.type == JOB_FAILED;
}

/* ---- in the daemon -------------------------------------------------------------------------- */

static void job_free(struct image_job *job)
{
	struct image_job **at = &job->images->jobs;

	while (*at && *at != job)
		at = &(*at)->next;
	if (*at)
		*at = job->next;
	helper_free(job->helper);
	if (job->work->free)
		job->work->free(job->arg);
	free(job->name);
	free(job->owner);
	free(job);
}
DEFINE_CLEANUP(job_free, struct image_job)

static void on_message(const void *data, size_t len, void *arg)
{
	struct image_job *job = arg;
	struct job_message message;

	if (len != sizeof message || job->cancelled)
		return;
	memcpy(&message, data, sizeof message);
	message.stage[sizeof message.stage - 1] = '\0';
	message.detail[sizeof message.detail - 1] = '\0';
	switch (message.type) {
	case JOB_PROGRESS:
		if (job->ops->on_progress)
			job->ops->on_progress(message.stage, message.done, message.total,
				message.detail, job->user);
		break;
	case JOB_FINISHED:
		job->finished = true;
		break;
	case JOB_FAILED:
		job->err = message.err;
		break;
	}
}

/* Removes what a failed job left. Complete layers stay for the next try, except the one that has
 * the id of the image. */
static void sweep(struct image_job *job)
{
	_cleanup_free_ char *draft =
		xasprintf("%s/" IMAGE_DRAFT_PREFIX "%s", job->images->path, job->id);
	struct err err = ERR_INIT;

	if (tree_remove(AT_FDCWD, draft, &err) < 0)
		log_warn("cannot sweep an unfinished image", kv_str("path", draft), kv_err(&err));
	layers_sweep(job->images, job->id);
	for (size_t kind = 0; kind < LAYER_KIND_COUNT; kind++)
		layer_discard(job->images, (enum layer_kind)kind, job->id, NULL);
}

static const char *verb_of(const struct image_job *job)
{
	return job->work->verb ? job->work->verb : "make";
}

static void explain(struct image_job *job, int code, struct err *err)
{
	if (err->kind == ERR_NONE)
		err_set(err, ERR_SYSTEM,
			"the helper process failed without a message (exit code %d)", code);
	if (job->name)
		err_wrap(err, "%s image '%s'", verb_of(job), job->name);
	else
		err_wrap(err, "%s image", verb_of(job));
	log_warn("image job failed", kv_str("job", verb_of(job)),
		kv_str("name", job->name ? job->name : ""), kv_err(err));
}

static void on_exit_of_helper(int code, void *arg)
{
	struct image_job *job = arg;
	struct images *images = job->images;
	const struct image_job_ops *ops = job->ops;
	const struct image *image = NULL;
	bool cancelled = job->cancelled;
	struct err err = job->err;
	void *user = job->user;

	job->helper = NULL;
	if (job->finished && !cancelled && images_publish(images, job->id, &image, &err) == 0)
		log_info("image made", kv_str("job", verb_of(job)), kv_str("image", image->id),
			kv_str("name", image->name), kv_int("bytes", image->size_bytes),
			kv_ms("took", clock_mono_us() - job->started_us));
	if (!image)
		sweep(job);
	if (!image && !cancelled)
		explain(job, code, &err);
	job_free(job);
	if (!images->jobs)
		layers_settle(images);
	if (!cancelled)
		ops->on_done(image, image ? NULL : &err, user);
}

static int check_name(
	const struct images *images, const char *owner, const char *normal, struct err *err)
{
	for (const struct image_job *other = images->jobs; other; other = other->next)
		if (!other->cancelled && other->name && !strcmp(other->name, normal) &&
			!strcmp(other->owner, owner))
			return err_set(err, ERR_STATE, "image '%s' is being made already", normal);
	return 0;
}

int image_job_start(struct images *images, const char *name, const struct job_work *work, void *arg,
	int keep, const struct image_job_ops *ops, void *user, struct image_job **ret,
	struct err *err)
{
	const char *owner = work->owner && work->owner(arg) ? work->owner(arg) : images->owner;

	static const struct helper_ops heavy = {
		.run = run_in_helper, .on_message = on_message, .on_exit = on_exit_of_helper
	};
	static const struct helper_ops light = { .run = run_in_helper,
		.on_message = on_message,
		.on_exit = on_exit_of_helper,
		.light = true };
	_cleanup_(job_freep) struct image_job *job = xnew(struct image_job);

	job->images = images;
	job->work = work;
	job->arg = arg;
	job->ops = ops;
	job->user = user;
	job->started_us = clock_mono_us();
	job->owner = xstrdup(owner);
	random_id(job->id, sizeof job->id - 1);
	if (name && *name) {
		if (image_name_check(name, err) < 0)
			return -1;
		job->name = image_name_normal(name);
		if (check_name(images, owner, job->name, err) < 0)
			return -1;
	}
	if (helper_start(images->loop, work->light ? &light : &heavy, job, &keep, keep >= 0,
		    &job->helper, err) < 0)
		return -1;
	job->next = images->jobs;
	images->jobs = job;
	log_info("image job started", kv_str("job", verb_of(job)), kv_str("image", job->id),
		kv_str("name", job->name ? job->name : ""));
	*ret = steal_ptr(&job);
	return 0;
}

void image_job_cancel(struct image_job *job)
{
	job->cancelled = true;
	helper_kill(job->helper);
	log_info("image job cancelled", kv_str("job", verb_of(job)), kv_str("image", job->id),
		kv_str("name", job->name ? job->name : ""));
}

void image_jobs_end(struct images *images)
{
	for (struct image_job *job = images->jobs, *next; job; job = next) {
		next = job->next;
		helper_free(steal_ptr(&job->helper));
		sweep(job);
		job_free(job);
	}
	layers_settle(images);
}
