/* compare.c - differences between boxes: their figures, their programs, their files
 *
 *   each running box  -- list of its programs --.
 *                                                 > one answer
 *   a helper  ------------- files --------------'
 *
 * A sleeping box is not woken for this, and a box that does not answer in time is listed without
 * its programs. The helper's bytes are the second half of the answer as they are. */
#include "api/api_internal.h"
#include "core/disk/compare.h"
#include "loop/loop.h"

enum { PATIENCE_MS = 3000, READ_SIZE = 128 * 1024, BYTES_MAX = 64 * 1024 * 1024 };

struct comparing;

struct asked {
	struct comparing *comparing;
	json_t *figures; /* borrowed from boxes */
	json_t *execs;	 /* so far */
	struct task *task;
};

struct comparing {
	struct http_request *request;
	json_t *boxes; /* the first half of the answer */
	struct asked asked[COMPARE_BOXES_MAX];
	size_t count;
	struct loop_timer *timer;
	struct disk_stream *stream;
	bool files_done;
	struct buf files;
};

static void comparing_free(struct comparing *comparing)
{
	for (size_t i = 0; i < comparing->count; i++) {
		task_cancel(comparing->asked[i].task);
		json_decref(comparing->asked[i].execs);
	}
	disk_stream_free(comparing->stream);
	loop_timer_free(comparing->timer);
	json_decref(comparing->boxes);
	buf_done(&comparing->files);
	free(comparing);
}

static void fail(struct comparing *comparing, const struct err *err)
{
	http_reply_error(comparing->request, err);
	comparing_free(comparing);
}

/* Answers when the last part is there. */
static void settle(struct comparing *comparing)
{
	_cleanup_free_ char *boxes = NULL;
	struct buf answer = BUF_INIT;

	for (size_t i = 0; i < comparing->count; i++)
		if (comparing->asked[i].task)
			return;
	if (!comparing->files_done)
		return;
	boxes = json_text(comparing->boxes);
	buf_addf(&answer, "{\"boxes\":%s,", boxes);
	buf_add(&answer, buf_head(&comparing->files), comparing->files.len);
	http_reply(comparing->request, 200, "application/json", buf_head(&answer), answer.len);
	buf_done(&answer);
	comparing_free(comparing);
}

/* ---- programs ------------------------------------------------------------------------------- */

static void on_exec(const struct exec_info *info, void *arg)
{
	struct asked *asked = arg;
	_cleanup_json_ json_t *exec = exec_json(info);

	json_array_append_new(asked->execs,
		json_pack("{s:O,s:O,s:b,s:O,s:O}", "id", json_object_get(exec, "id"), "argv",
			json_object_get(exec, "argv"), "running", info->reason == EXEC_RUNNING,
			"exit_code", json_object_get(exec, "exit_code"), "reason",
			json_object_get(exec, "reason")));
}

/* Without an answer the programs stay unknown. */
static void on_execs(const struct err *err, void *arg)
{
	struct asked *asked = arg;

	asked->task = NULL;
	if (!err)
		json_object_set(asked->figures, "execs", asked->execs);
	settle(asked->comparing);
}

static void on_late(void *arg)
{
	struct comparing *comparing = arg;

	for (size_t i = 0; i < comparing->count; i++)
		task_cancel(steal_ptr(&comparing->asked[i].task));
	settle(comparing);
}

static void ask_execs(struct comparing *comparing, struct box *box, json_t *figures)
{
	static const struct exec_list_ops ops = { .on_exec = on_exec, .on_done = on_execs };
	struct asked *asked = &comparing->asked[comparing->count++];

	*asked = (struct asked){ comparing, figures, json_array(), NULL };
	if (box_get_state(box) == BOX_RUNNING)
		exec_list(box, &ops, asked, &asked->task, NULL);
}

/* ---- files ---------------------------------------------------------------------------------- */

static void on_files(struct disk_stream *stream, void *arg)
{
	struct comparing *comparing = arg;
	struct buf *files = &comparing->files;
	struct err err = ERR_INIT;

	files->len += disk_stream_read(stream, buf_room(files, READ_SIZE), READ_SIZE);
	if (files->len <= BYTES_MAX)
		return;
	err_set(&err, ERR_TOO_LARGE, "the answer would be larger than %d bytes", BYTES_MAX);
	err_hint(&err, "ask for fewer paths with limit");
	fail(comparing, &err);
}

static void on_files_done(struct disk_stream *stream, const struct err *err, void *arg)
{
	struct comparing *comparing = arg;

	(void)stream;
	if (err)
		return fail(comparing, err);
	comparing->files_done = true;
	settle(comparing);
}

static const struct disk_stream_ops files_ops = { .on_readable = on_files,
	.on_done = on_files_done };

/* ---- the call ------------------------------------------------------------------------------- */

struct wanted {
	struct yard *yard;
	struct box *boxes[COMPARE_BOXES_MAX];
	size_t count;
	struct err err;
};

static bool want_box(const char *key, const char *value, void *arg)
{
	struct wanted *wanted = arg;
	struct box *box;

	if (strcmp(key, "box") != 0)
		return true;
	if (wanted->count == COMPARE_BOXES_MAX) {
		err_set(&wanted->err, ERR_INVALID, "at most %d boxes can be compared",
			COMPARE_BOXES_MAX);
		return false;
	}
	box = box_find(wanted->yard, value, &wanted->err);
	if (!box)
		return false;
	for (size_t i = 0; i < wanted->count; i++)
		if (wanted->boxes[i] == box) {
			err_set(&wanted->err, ERR_INVALID, "box '%s' is named twice",
				box_get_name(box));
			return false;
		}
	wanted->boxes[wanted->count++] = box;
	return true;
}

static void on_gone(struct http_request *request, void *arg)
{
	(void)request;
	comparing_free(arg);
}

void api_compare(struct call *call)
{
	struct wanted wanted = { .yard = call->yard };
	uint64_t limit = COMPARE_FILES;
	struct comparing *comparing;

	if (input_query_u64(call, "limit", 1, COMPARE_FILES_MAX, &limit, &wanted.err) == 0)
		http_request_each_query(call->request, want_box, &wanted);
	if (!wanted.err.kind && wanted.count < 2)
		err_set(&wanted.err, ERR_INVALID, "at least two boxes are needed to compare");
	if (wanted.err.kind)
		return call_error(call, &wanted.err);
	comparing = xnew(struct comparing);
	comparing->request = call->request;
	comparing->boxes = json_array();
	if (boxes_compare_start(wanted.boxes, wanted.count, limit, &files_ops, comparing,
		    &comparing->stream, &wanted.err) < 0)
		return fail(comparing, &wanted.err);
	http_request_on_gone(call->request, on_gone, comparing);
	comparing->timer = loop_timer_new(yard_get_loop(call->yard), on_late, comparing);
	loop_timer_start(comparing->timer, PATIENCE_MS);
	for (size_t i = 0; i < wanted.count; i++) {
		json_t *figures = box_figures_json(wanted.boxes[i]);

		json_array_append_new(comparing->boxes, figures);
		ask_execs(comparing, wanted.boxes[i], figures);
	}
}
