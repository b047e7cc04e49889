/* job.c - an image being made, and the client that asked for it
 *
 * The work ends in one of two ways: the job reports its end, which is the answer, or the client
 * disconnects, which cancels the job. Each of them ends the other, so whichever comes first frees
 * everything. */
#include "api/api_internal.h"
#include "image/image.h"

static void job_over(struct job *job)
{
	free(job->box);
	job->done(job);
}

static void send_line(struct job *job, const json_t *value)
{
	struct buf *line = &job->api->scratch;

	line->len = line->head = 0;
	ndjson_add(line, value);
	http_reply_write(job->request, buf_head(line), line->len);
}

static void on_progress(
	const char *stage, uint64_t done, uint64_t total, const char *detail, void *arg)
{
	struct job *job = arg;
	_cleanup_json_ json_t *line = NULL;

	/* A client that does not read misses some progress, but never the end. */
	if (!job->lines || http_reply_pending(job->request) > API_PENDING_MAX)
		return;
	line = json_pack("{s:s,s:s,s:o,s:o,s:o}", "type", "progress", "stage", stage, "done",
		json_from_u64(done), "total", json_from_u64(total), "detail",
		json_from_box(detail ? detail : ""));
	send_line(job, line);
}

static void answer_image(struct job *job, const struct image *image)
{
	json_t *value = image_json(yard_get_images(job->api->yard), image);
	_cleanup_json_ json_t *line = NULL;

	if (!job->lines)
		return http_reply_json(job->request, 201, value);
	line = json_pack("{s:s,s:o}", "type", "done", "image", value);
	send_line(job, line);
	http_reply_end(job->request);
}

static void answer_error(struct job *job, const struct err *err)
{
	struct buf *line = &job->api->scratch;

	if (!job->lines)
		return http_reply_error(job->request, err);
	line->len = line->head = 0;
	ndjson_error(line, err);
	http_reply_write(job->request, buf_head(line), line->len);
	http_reply_end(job->request);
}

/* Raises the event in the name of the principal that asked. */
static void tell_made(const struct job *job, const struct image *image)
{
	struct yard *yard = job->api->yard;
	const struct asker *before = auth_enter(job->api->auth, &job->principal);

	yard_event(yard, job->event, NULL,
		json_pack("{s:s,s:s}", "id", image->id, "name", image->name));
	if (job->box) /* it may have been removed meanwhile */
		yard_event(yard, "box.saved", box_find(yard, job->box, NULL),
			json_pack("{s:s,s:s}", "image", image->id, "name", image->name));
	auth_leave(job->api->auth, before);
}

static void on_done(const struct image *image, const struct err *err, void *arg)
{
	struct job *job = arg;

	job->run = NULL;
	if (image) {
		tell_made(job, image);
		answer_image(job, image);
	} else {
		answer_error(job, err);
	}
	job_over(job);
}

const struct image_job_ops job_ops = { .on_progress = on_progress, .on_done = on_done };

static void on_gone(struct http_request *request, void *arg)
{
	struct job *job = arg;

	(void)request;
	image_job_cancel(steal_ptr(&job->run));
	job_over(job);
}

void job_init(struct job *job, struct call *call, const char *event, bool lines,
	void (*done)(struct job *job))
{
	*job = (struct job){ .api = call->api,
		.request = call->request,
		.principal = *call->principal,
		.event = event,
		.lines = lines,
		.done = done };
}

bool job_started(struct job *job, int started, const struct err *err)
{
	if (started < 0) {
		http_reply_error(job->request, err);
		job_over(job);
		return false;
	}
	http_request_on_gone(job->request, on_gone, job);
	if (job->lines)
		http_reply_begin(job->request, 200, "application/x-ndjson");
	return true;
}
