/* states.c - suspend, hibernate, wake, snapshot, rollback and fork, through the API
 *
 * Two boxes are measured. The small one contains only box-init. The working one has bash on a
 * terminal, python with threads, asyncio, a child and a connection to itself, a node server, and
 * 512 MB of files of its own; what the image does not have is left out, and the rows say so.
 *
 * A figure is the time until the call is answered; where the box is paused meanwhile, the daemon
 * reports for how long, and that is the second figure. Forks, snapshots and images are removed
 * outside the measured time. */
#include "bench/bench_internal.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "client/client.h"
#include <stdio.h>

enum { TEN = 10, BIG_MIB = 1024, BIG_NEEDS_MIB = 4 * BIG_MIB };

#define KEPT "bench-kept" /* the snapshot for rollbacks */

/* A box of these rows and what belongs to it: made on first use, removed by bench_states_done(). */
struct subject {
	char *box;
	char *golden; /* its golden image */
	bool kept;    /* has the snapshot */
};

static struct {
	struct subject small, work;
	char *big; /* has a process of 1 GB */
	char parts[160];
} states;

static double since(int64_t start_us)
{
	return (double)(clock_mono_us() - start_us) / 1000.0;
}

const char *bench_states_parts(void)
{
	return states.parts;
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* `POST /v1/boxes/BOX/VERB`; body is consumed, the last three may be NULL. */
static int post(struct bench_boxes *boxes, const char *box, const char *verb, json_t *body,
	double *ret_ms, json_t **ret, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("/v1/boxes/%s/%s", box, verb);
	int64_t start_us = clock_mono_us();
	int status = client_call(
		bench_boxes_get_client(boxes), "POST", path, body ? body : json_object(), ret, err);

	if (ret_ms)
		*ret_ms = since(start_us);
	return status < 0 ? err_wrap(err, "%s", verb) : 0;
}

int bench_states_post(struct bench_boxes *boxes, const char *box, const char *verb, double *ret_ms,
	struct err *err)
{
	return post(boxes, box, verb, NULL, ret_ms, NULL, err);
}

static double paused_of(json_t *answer)
{
	return (double)json_integer_value(json_object_get(answer, "paused_us")) / 1000.0;
}

static int forget_snapshot(
	struct bench_boxes *boxes, const char *box, json_t *snapshot, struct err *err)
{
	const char *id = json_string_value(json_object_get(snapshot, "id"));
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/snapshots/%s", box, id ?: "");

	return client_call(bench_boxes_get_client(boxes), "DELETE", path, NULL, NULL, err);
}

/* ---- the boxes ------------------------------------------------------------------------------ */

/* Starts a detached program; returns when it has made the file, or at once when there is none. */
int bench_states_start(struct bench_boxes *boxes, const char *box, const char *const *argv,
	bool tty, const char *up, struct err *err)
{
	json_t *words = json_array();
	_cleanup_free_ char *script = NULL;

	for (; *argv; argv++)
		json_array_append_new(words, json_string(*argv));
	if (post(boxes, box, "exec",
		    json_pack("{s:o,s:b,s:b}", "argv", words, "tty", tty, "detach", true), NULL,
		    NULL, err) < 0)
		return -1;
	if (!up)
		return 0;
	script = xasprintf("for i in $(seq 600); do if test -e '%s'; then exit 0; fi; sleep "
			   "0.05; done; echo '%s' did not start; exit 1",
		up, up);
	return bench_boxes_run(boxes, box, script, NULL, err);
}

bool bench_states_has(struct bench_boxes *boxes, const char *box, const char *program)
{
	_cleanup_free_ char *script = xasprintf("command -v %s >/dev/null", program);

	return bench_boxes_run(boxes, box, script, NULL, NULL) == 0;
}

static const char python_code[] =
	"import asyncio, subprocess, threading, time\n"
	"child = subprocess.Popen(['sleep', 'infinity'])\n"
	"def work():\n"
	"    while True: time.sleep(0.05)\n"
	"for i in range(4): threading.Thread(target=work, daemon=True).start()\n"
	"async def echo(r, w):\n"
	"    while data := await r.read(100): w.write(data)\n"
	"async def main():\n"
	"    server = await asyncio.start_server(echo, '127.0.0.1', 8001)\n"
	"    r, w = await asyncio.open_connection('127.0.0.1', 8001)\n"
	"    open('/tmp/python-up', 'w').close()\n"
	"    while True:\n"
	"        w.write(b'x'); await r.read(1); await asyncio.sleep(0.05)\n"
	"asyncio.run(main())\n";
static const char node_code[] =
	"require('http').createServer((q, s) => s.end('hi')).listen(8002, () => "
	"require('fs').writeFileSync('/tmp/node-up', '')); setInterval(() => {}, 50)";

static const struct {
	const char *argv[4];
	const char *up;
	bool tty;
	const char *title;
} parts[] = {
	{ { "bash", "-i", NULL }, NULL, true, "bash on a terminal" },
	{ { "python3", "-c", python_code, NULL }, "/tmp/python-up", false,
		"python: 4 threads, asyncio, a child" },
	{ { "node", "-e", node_code, NULL }, "/tmp/node-up", false, "a node server" },
};

static void add_part(const char *title, bool missing)
{
	size_t used = strlen(states.parts);

	snprintf(states.parts + used, sizeof states.parts - used, "%s%s%s", used ? " + " : "",
		missing ? "NO " : "", title);
}

static int fill_work(struct bench_boxes *boxes, const char *box, struct err *err)
{
	states.parts[0] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		bool there = bench_states_has(boxes, box, parts[i].argv[0]);

		add_part(parts[i].title, !there);
		if (there && bench_states_start(
				     boxes, box, parts[i].argv, parts[i].tty, parts[i].up, err) < 0)
			return -1;
	}
	add_part("512 MB of files", false);
	return bench_boxes_run(boxes, box,
		"mkdir /root/own; for i in 1 2 3 4 5 6 7 8; do head -c 64M /dev/urandom "
		">/root/own/$i; done; sync /root/own/*",
		NULL, err);
}

/* Makes the box if it does not exist, else wakes it: between the runs of a row it may have been
 * suspended. */
static int need(struct bench_boxes *boxes, struct subject *subject, struct err *err)
{
	_cleanup_free_ char *box = NULL;

	if (subject->box)
		return post(boxes, subject->box, "wake", NULL, NULL, NULL, err);
	if (bench_boxes_make(boxes, &box, err) < 0)
		return -1;
	if (subject == &states.work && fill_work(boxes, box, err) < 0)
		return err_wrap(err, "set up the working box");
	subject->box = steal_ptr(&box);
	return 0;
}

int bench_states_small(struct bench_boxes *boxes, const char **ret, struct err *err)
{
	if (need(boxes, &states.small, err) < 0)
		return -1;
	*ret = states.small.box;
	return 0;
}

/* ---- suspend and hibernate ------------------------------------------------------------------ */

int bench_suspend(struct bench_boxes *boxes, double *ret, double *ret_resume, struct err *err)
{
	if (need(boxes, &states.small, err) < 0 ||
		post(boxes, states.small.box, "suspend", NULL, ret, NULL, err) < 0)
		return -1;
	return post(boxes, states.small.box, "resume", NULL, ret_resume, NULL, err);
}

static int hibernate(struct bench_boxes *boxes, struct subject *subject, double *ret,
	double *ret_wake, struct err *err)
{
	if (need(boxes, subject, err) < 0 ||
		post(boxes, subject->box, "hibernate", NULL, ret, NULL, err) < 0)
		return -1;
	return post(boxes, subject->box, "wake", NULL, ret_wake, NULL, err);
}

int bench_hibernate_small(struct bench_boxes *boxes, double *ret, double *ret_wake, struct err *err)
{
	return hibernate(boxes, &states.small, ret, ret_wake, err);
}

int bench_hibernate_work(struct bench_boxes *boxes, double *ret, double *ret_wake, struct err *err)
{
	return hibernate(boxes, &states.work, ret, ret_wake, err);
}

/* ---- forks ---------------------------------------------------------------------------------- */

static int remove_children(struct bench_boxes *boxes, json_t *answer, struct err *err)
{
	json_t *child;
	size_t i;

	json_array_foreach (json_object_get(answer, "children"), i, child)
		if (bench_boxes_remove(boxes, json_string_value(json_object_get(child, "id")) ?: "",
			    NULL, err) < 0)
			return -1;
	return 0;
}

int bench_states_fork(struct bench_boxes *boxes, const char *box, unsigned count, double *ret,
	double *ret_paused, struct err *err)
{
	_cleanup_json_ json_t *answer = NULL;
	json_t *failed;
	double took;

	if (post(boxes, box, "fork", json_pack("{s:i}", "count", (int)count), &took, &answer, err) <
		0)
		return -1;
	if (remove_children(boxes, answer, err) < 0)
		return -1;
	failed = json_array_get(json_object_get(answer, "failed"), 0);
	if (failed)
		return err_set(err, ERR_PROTOCOL, "a child failed: %s",
			json_string_value(
				json_object_get(json_object_get(failed, "error"), "message")));
	*ret = took;
	*ret_paused = paused_of(answer);
	return 0;
}

int bench_fork_small(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err)
{
	return need(boxes, &states.small, err) < 0
		       ? -1
		       : bench_states_fork(boxes, states.small.box, 1, ret, ret_paused, err);
}

int bench_fork_work(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err)
{
	return need(boxes, &states.work, err) < 0
		       ? -1
		       : bench_states_fork(boxes, states.work.box, 1, ret, ret_paused, err);
}

int bench_fork_ten(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err)
{
	return need(boxes, &states.small, err) < 0
		       ? -1
		       : bench_states_fork(boxes, states.small.box, TEN, ret, ret_paused, err);
}

int bench_fork_ten_work(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err)
{
	return need(boxes, &states.work, err) < 0
		       ? -1
		       : bench_states_fork(boxes, states.work.box, TEN, ret, ret_paused, err);
}

/* Bytes that nothing can compress or share. */
static int need_big(struct bench_boxes *boxes, struct err *err)
{
	static const char code[] =
		"import os, time; data = [os.urandom(1 << 20) for i in range(%d)]\n"
		"open('/tmp/big-up', 'w').close()\n"
		"while True: time.sleep(60)";
	_cleanup_free_ char *box = NULL, *text = NULL;
	double room;

	if (states.big)
		return post(boxes, states.big, "wake", NULL, NULL, NULL, err);
	if (bench_memory_available(&room, err) < 0)
		return -1;
	if (room < BIG_NEEDS_MIB)
		return err_set(err, ERR_UNSUPPORTED, "needs %d MB of free memory, there are %.0f",
			BIG_NEEDS_MIB, room);
	if (bench_boxes_make(boxes, &box, err) < 0)
		return -1;
	if (!bench_states_has(boxes, box, "python3"))
		return err_set(err, ERR_UNSUPPORTED, "the image has no python3");
	text = xasprintf(code, BIG_MIB);
	if (bench_states_start(boxes, box, (const char *[]){ "python3", "-c", text, NULL }, false,
		    "/tmp/big-up", err) < 0)
		return -1;
	states.big = steal_ptr(&box);
	return 0;
}

int bench_fork_big(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err)
{
	return need_big(boxes, err) < 0
		       ? -1
		       : bench_states_fork(boxes, states.big, 1, ret, ret_paused, err);
}

/* ---- snapshots and rollbacks ---------------------------------------------------------------- */

static int snapshot(struct bench_boxes *boxes, struct subject *subject, double *ret,
	double *ret_paused, struct err *err)
{
	_cleanup_json_ json_t *answer = NULL;

	if (need(boxes, subject, err) < 0 ||
		post(boxes, subject->box, "snapshots", NULL, ret, &answer, err) < 0)
		return -1;
	*ret_paused = paused_of(answer);
	return forget_snapshot(boxes, subject->box, answer, err);
}

int bench_snapshot_small(
	struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err)
{
	return snapshot(boxes, &states.small, ret, ret_paused, err);
}

int bench_snapshot_work(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err)
{
	return snapshot(boxes, &states.work, ret, ret_paused, err);
}

static int roll_back(struct bench_boxes *boxes, struct subject *subject, bool forget, double *ret,
	struct err *err)
{
	_cleanup_json_ json_t *answer = NULL;

	if (need(boxes, subject, err) < 0)
		return -1;
	if (!subject->kept && post(boxes, subject->box, "snapshots",
				      json_pack("{s:s}", "name", KEPT), NULL, NULL, err) < 0)
		return -1;
	subject->kept = true;
	if (post(boxes, subject->box, "rollback",
		    json_pack("{s:s,s:b}", "snapshot", KEPT, "forget", forget), ret, &answer,
		    err) < 0)
		return -1;
	return forget ? 0
		      : forget_snapshot(boxes, subject->box, json_object_get(answer, "from"), err);
}

/* The second rollback does not keep the present. */
static int roll_back_twice(struct bench_boxes *boxes, struct subject *subject, double *ret,
	double *ret_forget, struct err *err)
{
	return roll_back(boxes, subject, false, ret, err) < 0
		       ? -1
		       : roll_back(boxes, subject, true, ret_forget, err);
}

int bench_rollback_small(
	struct bench_boxes *boxes, double *ret, double *ret_forget, struct err *err)
{
	return roll_back_twice(boxes, &states.small, ret, ret_forget, err);
}

int bench_rollback_work(struct bench_boxes *boxes, double *ret, double *ret_forget, struct err *err)
{
	return roll_back_twice(boxes, &states.work, ret, ret_forget, err);
}

/* ---- golden images -------------------------------------------------------------------------- */

static int new_golden(
	struct bench_boxes *boxes, struct subject *subject, double *ret, struct err *err)
{
	_cleanup_free_ char *name = NULL, *box = NULL;

	if (need(boxes, subject, err) < 0)
		return -1;
	if (!subject->golden) {
		name = xasprintf("golden-%s", subject->box);
		if (post(boxes, subject->box, "save",
			    json_pack("{s:s,s:b}", "name", name, "full", true), NULL, NULL,
			    err) < 0)
			return -1;
		subject->golden = steal_ptr(&name);
	}
	if (bench_boxes_make_from(boxes, subject->golden, &box, ret, err) < 0)
		return -1;
	return bench_boxes_remove(boxes, box, NULL, err);
}

int bench_new_golden(struct bench_boxes *boxes, double *ret, struct err *err)
{
	return new_golden(boxes, &states.small, ret, err);
}

int bench_new_golden_work(struct bench_boxes *boxes, double *ret, struct err *err)
{
	return new_golden(boxes, &states.work, ret, err);
}

/* ---- cleaning up ---------------------------------------------------------------------------- */

static void subject_done(struct bench_boxes *boxes, struct subject *subject)
{
	if (subject->box)
		bench_boxes_remove(boxes, subject->box, NULL, NULL);
	if (subject->golden) {
		_cleanup_free_ char *path = client_path("/v1/images/%s", subject->golden);

		client_call(bench_boxes_get_client(boxes), "DELETE", path, NULL, NULL, NULL);
	}
	free(subject->box);
	free(subject->golden);
	*subject = (struct subject){ 0 };
}

void bench_states_done(struct bench_boxes *boxes)
{
	subject_done(boxes, &states.small);
	subject_done(boxes, &states.work);
	if (states.big)
		bench_boxes_remove(boxes, states.big, NULL, NULL);
	free(states.big);
	states.big = NULL;
}
