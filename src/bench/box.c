/* box.c - our boxes: the rows that use the API
 *
 * They use one kept connection with bodies made in advance, so that the daemon is measured and
 * not our JSON. We choose the names too: the exec after a create needs nothing from the create's
 * response.
 *
 * Each box has the label `bench=RUN`. A row removes its boxes outside the measured time;
 * whatever is left when the run ends, for whatever reason, is found by that label. */
#include "bench/bench_internal.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "client/client.h"
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
	RUN_ID_LEN = 8,
	ANSWER_MAX = 64 * 1024, /* of a body that is searched */
	SETTLE_US = 500,
	SETTLE_TRIES = 4000,
};

/* The line that carries the first byte of a program, see docs/api.md. */
#define OUTPUT_MARK "\"type\":\"output\""
#define ECHO_BODY   "{\"argv\":[\"echo\",\"hi\"]}"

struct bench_boxes {
	struct client *client; /* borrowed */
	const char *socket;    /* borrowed */
	pid_t daemon;
	char run[RUN_ID_LEN + 1];
	unsigned made;	/* names given out */
	char *resident; /* name of the box that exec rows use; NULL until needed */
	char *image;	/* id of the one they start from; NULL until needed */
	char **filling; /* names made by bench_boxes_fill() */
	size_t filling_count;
};

static double since(int64_t start_us)
{
	return (double)(clock_mono_us() - start_us) / 1000.0;
}

/* --- requests --- */

/* Searches a mark in a body as it comes and records the time. */
struct watch {
	const char *mark;
	int64_t seen_us;
	struct buf body;
};

static int watch_data(const void *data, size_t len, void *arg, struct err *err)
{
	struct watch *watch = arg;

	if (watch->seen_us)
		return 0;
	buf_add(&watch->body, data, len);
	if (memmem(buf_head(&watch->body), watch->body.len, watch->mark, strlen(watch->mark)))
		watch->seen_us = clock_mono_us();
	else if (watch->body.len > ANSWER_MAX)
		return err_set(err, ERR_PROTOCOL, "the answer does not hold %s", watch->mark);
	return 0;
}

static int drop_data(const void *data, size_t len, void *arg, struct err *err)
{
	(void)data, (void)len, (void)arg, (void)err;
	return 0;
}

static int request(struct bench_boxes *boxes, const char *method, const char *path,
	const char *body, struct err *err)
{
	struct client_request spec = {
		.method = method,
		.path = path,
		.body = body,
		.body_len = body ? strlen(body) : 0,
		.data = drop_data,
	};

	return client_do(boxes->client, &spec, NULL, err);
}

/* Runs echo in the box; *ret_us is when its first byte arrived. */
static int request_echo(
	struct bench_boxes *boxes, const char *path, int64_t *ret_us, struct err *err)
{
	struct watch watch = { .mark = OUTPUT_MARK };
	struct client_request spec = {
		.method = "POST",
		.path = path,
		.body = ECHO_BODY,
		.body_len = strlen(ECHO_BODY),
		.data = watch_data,
		.arg = &watch,
	};
	int ret = client_do(boxes->client, &spec, NULL, err);

	if (ret == 0 && !watch.seen_us)
		ret = err_set(err, ERR_PROTOCOL, "echo in a box gave no output: %s",
			watch.body.len ? buf_str(&watch.body) : "empty answer");
	buf_done(&watch.body);
	*ret_us = watch.seen_us;
	return ret;
}

static char *next_name(struct bench_boxes *boxes)
{
	return xasprintf("bench-%s-%u", boxes->run, boxes->made++);
}

static char *create_body(const struct bench_boxes *boxes, const char *name)
{
	return xasprintf("{\"name\":\"%s\",\"labels\":{\"bench\":\"%s\"}}", name, boxes->run);
}

static int create_box(struct bench_boxes *boxes, const char *name, struct err *err)
{
	_cleanup_free_ char *body = create_body(boxes, name);

	return request(boxes, "POST", "/v1/boxes", body, err);
}

/* A removal is answered before all is cleaned up; waits for that, so that the next measurement
 * is not affected. */
static int settle(struct bench_boxes *boxes, struct err *err)
{
	for (int tries = 0; tries < SETTLE_TRIES; tries++) {
		_cleanup_json_ json_t *info = NULL;

		if (client_get(boxes->client, "/v1/info", &info, err) < 0)
			return -1;
		if (!json_integer_value(json_object_get(info, "leaving")))
			return 0;
		usleep(SETTLE_US);
	}
	return 0;
}

/* ret may be NULL: how long the caller had to wait. */
static int remove_box(struct bench_boxes *boxes, const char *name, double *ret, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s?force=true", name);
	int64_t start_us = clock_mono_us();

	if (request(boxes, "DELETE", path, NULL, err) < 0)
		return -1;
	if (ret)
		*ret = since(start_us);
	return settle(boxes, err);
}

int bench_boxes_resident(struct bench_boxes *boxes, const char **ret, struct err *err)
{
	_cleanup_free_ char *name = NULL;

	if (!boxes->resident) {
		name = next_name(boxes);
		if (create_box(boxes, name, err) < 0)
			return err_wrap(err, "make the box that programs run in");
		boxes->resident = steal_ptr(&name);
	}
	*ret = boxes->resident;
	return 0;
}

/* --- for the rows of other files --- */

struct client *bench_boxes_get_client(struct bench_boxes *boxes)
{
	return boxes->client;
}

const char *bench_boxes_get_socket(const struct bench_boxes *boxes)
{
	return boxes->socket;
}

int bench_boxes_make_with(
	struct bench_boxes *boxes, const char *members, char **ret, double *ret_ms, struct err *err)
{
	_cleanup_free_ char *name = next_name(boxes);
	_cleanup_free_ char *body = xasprintf(
		"{\"name\":\"%s\",\"labels\":{\"bench\":\"%s\"}%s}", name, boxes->run, members);
	int64_t start_us = clock_mono_us();

	if (request(boxes, "POST", "/v1/boxes", body, err) < 0)
		return -1;
	if (ret_ms)
		*ret_ms = since(start_us);
	*ret = steal_ptr(&name);
	return 0;
}

int bench_boxes_make_from(
	struct bench_boxes *boxes, const char *image, char **ret, double *ret_ms, struct err *err)
{
	_cleanup_free_ char *members = xasprintf(",\"image\":\"%s\"", image);

	return bench_boxes_make_with(boxes, members, ret, ret_ms, err);
}

int bench_boxes_make(struct bench_boxes *boxes, char **ret, struct err *err)
{
	_cleanup_free_ char *name = next_name(boxes);

	if (create_box(boxes, name, err) < 0)
		return -1;
	*ret = steal_ptr(&name);
	return 0;
}

int bench_boxes_remove(struct bench_boxes *boxes, const char *name, double *ret, struct err *err)
{
	return remove_box(boxes, name, ret, err);
}

struct script {
	bool ended;
	int code;
	char last[160]; /* of its output */
};

static int on_script_line(json_t *line, const char *text, size_t len, void *arg, struct err *err)
{
	const char *type = json_string_value(json_object_get(line, "type"));
	const char *data = json_string_value(json_object_get(line, "data"));
	struct script *script = arg;

	if (!type || !strcmp(type, "error"))
		return client_api_error(500, text, len, err);
	if (!strcmp(type, "output") && data)
		snprintf(script->last, sizeof script->last, "%.*s", (int)strcspn(data, "\n"), data);
	if (!strcmp(type, "exit")) {
		script->ended = true;
		script->code = (int)json_integer_value(json_object_get(line, "exit_code"));
	}
	return 0;
}

int bench_boxes_run(struct bench_boxes *boxes, const char *name, const char *script, double *ret,
	struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/exec", name);
	json_t *body = json_pack("{s:[s,s,s]}", "argv", "/bin/sh", "-ec", script);
	struct script state = { 0 };
	int64_t start_us = clock_mono_us();

	if (client_lines(boxes->client, "POST", path, body, on_script_line, &state, err) < 0)
		return -1;
	if (!state.ended || state.code)
		return err_set(err, ERR_PROTOCOL, "a program in a box ended with %d: %s",
			state.code, state.last);
	if (ret)
		*ret = since(start_us);
	return 0;
}

/* --- rows over the API --- */

int bench_create_first_byte(struct bench_boxes *boxes, double *ret, struct err *err)
{
	_cleanup_free_ char *name = next_name(boxes);
	_cleanup_free_ char *body = create_body(boxes, name);
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/exec", name);
	int64_t start_us = clock_mono_us(), seen_us;
	int done;

	if (request(boxes, "POST", "/v1/boxes", body, err) < 0)
		return -1;
	done = request_echo(boxes, path, &seen_us, err);
	if (remove_box(boxes, name, NULL, done < 0 ? NULL : err) < 0 || done < 0)
		return -1;
	*ret = (double)(seen_us - start_us) / 1000.0;
	return 0;
}

int bench_create(struct bench_boxes *boxes, double *ret, struct err *err)
{
	_cleanup_free_ char *name = next_name(boxes);
	_cleanup_free_ char *body = create_body(boxes, name);
	int64_t start_us = clock_mono_us();
	double took;

	if (request(boxes, "POST", "/v1/boxes", body, err) < 0)
		return -1;
	took = since(start_us);
	if (remove_box(boxes, name, NULL, err) < 0)
		return -1;
	*ret = took;
	return 0;
}

int bench_remove(struct bench_boxes *boxes, double *ret, struct err *err)
{
	_cleanup_free_ char *name = next_name(boxes);

	if (create_box(boxes, name, err) < 0)
		return -1;
	return remove_box(boxes, name, ret, err);
}

int bench_boxes_echo(struct bench_boxes *boxes, const char *name, double *ret, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/exec", name);
	int64_t start_us = clock_mono_us(), seen_us;

	if (request_echo(boxes, path, &seen_us, err) < 0)
		return -1;
	*ret = (double)(seen_us - start_us) / 1000.0;
	return 0;
}

int bench_exec_first_byte(struct bench_boxes *boxes, double *ret, struct err *err)
{
	const char *box;

	return bench_boxes_resident(boxes, &box, err) < 0 ? -1
							  : bench_boxes_echo(boxes, box, ret, err);
}

int bench_round_trip(struct bench_boxes *boxes, double *ret, struct err *err)
{
	int64_t start_us = clock_mono_us();

	if (request(boxes, "GET", "/v1/health", NULL, err) < 0)
		return -1;
	*ret = since(start_us);
	return 0;
}

int bench_list_boxes(struct bench_boxes *boxes, double *ret, struct err *err)
{
	int64_t start_us = clock_mono_us();

	if (request(boxes, "GET", "/v1/boxes?limit=1000", NULL, err) < 0)
		return -1;
	*ret = since(start_us);
	return 0;
}

/* --- many boxes --- */

int bench_boxes_daemon_rss(struct bench_boxes *boxes, double *ret, struct err *err)
{
	return bench_memory_of(boxes->daemon, ret, err);
}

int bench_boxes_fill(struct bench_boxes *boxes, size_t count,
	bool (*on_made)(size_t made, void *arg), void *arg, double *ret_per_box, struct err *err)
{
	size_t others = boxes->resident ? 1 : 0; /* idle as well */
	double before, after;

	if (bench_memory_available(&before, err) < 0)
		return -1;
	boxes->filling = xnewn(char *, count);
	while (boxes->filling_count + others < count) {
		char *name = boxes->filling[boxes->filling_count++] = next_name(boxes);

		if (create_box(boxes, name, err) < 0)
			return err_wrap(
				err, "box %zu of %zu", boxes->filling_count + others, count);
		if (!on_made(boxes->filling_count, arg))
			return err_set(err, ERR_CANCELLED, "stopped");
	}
	if (bench_memory_available(&after, err) < 0)
		return -1;
	*ret_per_box = (before - after) / (double)boxes->filling_count;
	return 0;
}

static json_t *list_boxes(struct bench_boxes *boxes, const char *path)
{
	json_t *answer = NULL;

	if (client_get(boxes->client, path, &answer, NULL) < 0)
		return NULL;
	return answer;
}

size_t bench_boxes_count(struct bench_boxes *boxes)
{
	_cleanup_json_ json_t *answer = list_boxes(boxes, "/v1/boxes?limit=1000");

	return json_array_size(json_object_get(answer, "boxes"));
}

void bench_boxes_drain(struct bench_boxes *boxes)
{
	for (size_t i = 0; i < boxes->filling_count; i++) {
		remove_box(boxes, boxes->filling[i], NULL, NULL);
		free(boxes->filling[i]);
	}
	free(boxes->filling);
	boxes->filling = NULL;
	boxes->filling_count = 0;
}

/* --- begin and end --- */

int bench_boxes_image(struct bench_boxes *boxes, const char **ret, struct err *err)
{
	_cleanup_json_ json_t *box = NULL;
	_cleanup_free_ char *path = NULL;
	const char *name, *id;

	if (!boxes->image) {
		if (bench_boxes_resident(boxes, &name, err) < 0)
			return -1;
		path = client_path("/v1/boxes/%s", name);
		if (client_get(boxes->client, path, &box, err) < 0)
			return -1;
		id = json_string_value(json_object_get(box, "image_id"));
		if (!id)
			return err_set(
				err, ERR_PROTOCOL, "the answer does not name the box's image");
		boxes->image = xstrdup(id);
	}
	*ret = boxes->image;
	return 0;
}

int bench_boxes_open(
	struct client *client, const char *socket, struct bench_boxes **ret, struct err *err)
{
	_cleanup_close_ int fd = -1;
	struct ucred peer = { 0 };
	socklen_t len = sizeof peer;
	struct bench_boxes *boxes;

	if (client_dial(socket, &fd, err) < 0)
		return -1;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return err_sys(err, errno, "ask who serves '%s'", socket);
	boxes = xnew(struct bench_boxes);
	boxes->client = client;
	boxes->socket = socket;
	boxes->daemon = peer.pid;
	random_id(boxes->run, RUN_ID_LEN);
	*ret = boxes;
	return 0;
}

void bench_boxes_close(struct bench_boxes *boxes)
{
	_cleanup_free_ char *path = NULL;
	_cleanup_json_ json_t *left = NULL;
	json_t *box;
	size_t i;

	if (!boxes)
		return;
	bench_boxes_drain(boxes);
	path = client_path("/v1/boxes?limit=1000&label=bench=%s", boxes->run);
	left = list_boxes(boxes, path);
	json_array_foreach (json_object_get(left, "boxes"), i, box) {
		const char *id = json_string_value(json_object_get(box, "id"));

		if (id)
			remove_box(boxes, id, NULL, NULL);
	}
	free(boxes->resident);
	free(boxes->image);
	free(boxes);
}
