/* wake.c - sleeping boxes: the first byte of one that wakes, and the cost of many
 *
 * First bytes are read on a connection opened in advance: a program that writes every few
 * milliseconds is suspended, its output so far is read, and the time starts with the call that
 * resumes it. */
#include "bench/bench_internal.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "client/client.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
	QUIET_MS = 20,
	ANSWER_MS = 10000,
	SUSPENDED = 200,
	HIBERNATED = 50,
	LOOK_US = 2000000,
	WEB_PORT = 8080,
};

static struct {
	char *ticker; /* box of the program that writes */
	int output;   /* the connection with its output */
	int control;  /* and one for calls */
	char *web;    /* box of a server */
	struct sockaddr_in door;
} wake = { .output = -1, .control = -1 };

static double since(int64_t start_us)
{
	return (double)(clock_mono_us() - start_us) / 1000.0;
}

/* ---- connections ---------------------------------------------------------------------------- */

static int send_text(int fd, const char *text, struct err *err)
{
	return fd_write_all(fd, text, strlen(text), err);
}

/* Receives some bytes within the time, NUL-terminated in buf; 0 when none came. */
static ssize_t receive(int fd, int limit_ms, char *buf, size_t size, struct err *err)
{
	struct pollfd one = { .fd = fd, .events = POLLIN };
	int ready = poll(&one, 1, limit_ms);
	ssize_t got;

	if (ready < 0 && errno != EINTR)
		return err_sys(err, errno, "poll");
	if (ready <= 0)
		return 0;
	got = recv(fd, buf, size - 1, 0);
	if (got < 0)
		return err_sys(err, errno, "read an answer");
	if (got == 0)
		return err_set(err, ERR_PROTOCOL, "the connection was closed");
	buf[got] = '\0';
	return got;
}

static int drain(int fd, struct err *err)
{
	char buf[16 * 1024];
	ssize_t got;

	while ((got = receive(fd, QUIET_MS, buf, sizeof buf, err)) > 0)
		continue;
	return got < 0 ? -1 : 0;
}

/* ---- resume --------------------------------------------------------------------------------- */

#define TICKER                                                                       \
	"{\"argv\":[\"python3\",\"-c\",\"import os, time\\nwhile True: os.write(1, " \
	"b'.'); time.sleep(0.005)\"]}"

static int need_ticker(struct bench_boxes *boxes, struct err *err)
{
	_cleanup_free_ char *box = NULL, *head = NULL;
	_cleanup_close_ int fd = -1, control = -1;
	char buf[4096];
	ssize_t got;

	if (wake.ticker)
		return bench_states_post(boxes, wake.ticker, "wake", NULL, err);
	if (bench_boxes_make(boxes, &box, err) < 0)
		return -1;
	if (!bench_states_has(boxes, box, "python3"))
		return err_set(err, ERR_UNSUPPORTED, "the image has no python3");
	head = xasprintf("POST /v1/boxes/%s/exec HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
			 "application/json\r\nContent-Length: %zu\r\n\r\n" TICKER,
		box, strlen(TICKER));
	if (client_dial(bench_boxes_get_socket(boxes), &fd, err) < 0 ||
		client_dial(bench_boxes_get_socket(boxes), &control, err) < 0 ||
		send_text(fd, head, err) < 0)
		return -1;
	got = receive(fd, ANSWER_MS, buf, sizeof buf, err);
	if (got < 0)
		return -1;
	if (!got || !strstr(buf, " 200 "))
		return err_set(err, ERR_PROTOCOL, "the program that writes did not start: %.120s",
			got ? buf : "no answer");
	wake.output = steal_fd(&fd);
	wake.control = steal_fd(&control);
	wake.ticker = steal_ptr(&box);
	return 0;
}

/* Records when each of the two becomes readable. */
static int await_both(const int fds[2], int64_t start_us, double ret[2], struct err *err)
{
	struct pollfd both[2] = { { .fd = fds[0], .events = POLLIN },
		{ .fd = fds[1], .events = POLLIN } };

	while (both[0].fd >= 0 || both[1].fd >= 0) {
		int ready = poll(both, 2, ANSWER_MS);

		if (ready < 0 && errno != EINTR)
			return err_sys(err, errno, "poll");
		if (ready == 0)
			return err_set(err, ERR_TIMEOUT, "no %s after a resume",
				both[0].fd >= 0 ? "byte" : "answer");
		for (int i = 0; i < 2 && ready > 0; i++)
			if (both[i].fd >= 0 && both[i].revents) {
				ret[i] = since(start_us);
				both[i].fd = -1;
			}
	}
	return 0;
}

int bench_resume(struct bench_boxes *boxes, double *ret, double *ret_answer, struct err *err)
{
	_cleanup_free_ char *request = NULL;
	char buf[4096];
	double took[2] = { 0 };
	int64_t start_us;
	ssize_t got;

	if (need_ticker(boxes, err) < 0 ||
		bench_states_post(boxes, wake.ticker, "suspend", NULL, err) < 0 ||
		drain(wake.output, err) < 0)
		return -1;
	request = xasprintf("POST /v1/boxes/%s/resume HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
			    "application/json\r\nContent-Length: 2\r\n\r\n{}",
		wake.ticker);
	start_us = clock_mono_us();
	if (send_text(wake.control, request, err) < 0 ||
		await_both((const int[]){ wake.output, wake.control }, start_us, took, err) < 0)
		return -1;
	got = receive(wake.control, ANSWER_MS, buf, sizeof buf, err);
	if (got < 0)
		return -1;
	if (!got || !strstr(buf, " 200 "))
		return err_set(err, ERR_PROTOCOL, "resume: %.120s", got ? buf : "no answer");
	*ret = took[0];
	*ret_answer = took[1];
	return drain(wake.control, err);
}

/* ---- wake by a request ---------------------------------------------------------------------- */

/* A box that does not wake automatically is no error of the row. */
static int not_by_itself(struct err *err)
{
	struct err why = *err;

	if (err->kind != ERR_STATE && err->kind != ERR_UNAVAILABLE)
		return -1;
	return err_set(
		err, ERR_UNSUPPORTED, "boxes do not wake by themselves: %.160s", why.message);
}

static int wake_exec(struct bench_boxes *boxes, const char *verb, double *ret, struct err *err)
{
	const char *box;

	if (bench_states_small(boxes, &box, err) < 0 ||
		bench_states_post(boxes, box, verb, NULL, err) < 0)
		return -1;
	if (bench_boxes_echo(boxes, box, ret, err) == 0)
		return 0;
	bench_states_post(boxes, box, "wake", NULL, NULL);
	return not_by_itself(err);
}

int bench_wake_exec(struct bench_boxes *boxes, double *ret, struct err *err)
{
	return wake_exec(boxes, "suspend", ret, err);
}

int bench_wake_exec_hibernated(struct bench_boxes *boxes, double *ret, struct err *err)
{
	return wake_exec(boxes, "hibernate", ret, err);
}

/* ---- a request to its URL ------------------------------------------------------------------- */

static const char server_code[] = "import socket\n"
				  "s = socket.create_server(('127.0.0.1', 8080))\n"
				  "open('/tmp/web-up', 'w').close()\n"
				  "while True:\n"
				  "    c, a = s.accept(); c.recv(4096)\n"
				  "    c.send(b'HTTP/1.1 200 OK\\r\\nContent-Length: "
				  "2\\r\\nConnection: close\\r\\n\\r\\nhi')\n"
				  "    c.close()\n";

static int find_door(struct bench_boxes *boxes, struct err *err)
{
	_cleanup_json_ json_t *info = NULL;
	const char *listen, *colon;
	char address[INET_ADDRSTRLEN];

	if (client_get(bench_boxes_get_client(boxes), "/v1/info", &info, err) < 0)
		return -1;
	listen = json_string_value(json_object_get(info, "listen"));
	colon = listen ? strrchr(listen, ':') : NULL;
	if (!colon)
		return err_set(
			err, ERR_UNSUPPORTED, "the daemon does not listen on TCP (listen = off)");
	snprintf(address, sizeof address, "%.*s", (int)(colon - listen), listen);
	wake.door.sin_family = AF_INET;
	wake.door.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
	if (inet_pton(AF_INET, address, &wake.door.sin_addr) != 1)
		return err_set(err, ERR_UNSUPPORTED, "the daemon's TCP address '%.80s' is not IPv4",
			listen);
	return 0;
}

static int need_web(struct bench_boxes *boxes, struct err *err)
{
	_cleanup_free_ char *box = NULL, *path = NULL;

	if (wake.web)
		return bench_states_post(boxes, wake.web, "wake", NULL, err);
	if (find_door(boxes, err) < 0 || bench_boxes_make(boxes, &box, err) < 0)
		return -1;
	if (!bench_states_has(boxes, box, "python3"))
		return err_set(err, ERR_UNSUPPORTED, "the image has no python3");
	path = xasprintf("/v1/boxes/%s/ports/%d", box, WEB_PORT);
	if (client_call(bench_boxes_get_client(boxes), "PUT", path,
		    json_pack("{s:s}", "access", "public"), NULL, err) < 0 ||
		bench_states_start(boxes, box,
			(const char *[]){ "python3", "-c", server_code, NULL }, false,
			"/tmp/web-up", err) < 0)
		return -1;
	wake.web = steal_ptr(&box);
	return 0;
}

/* From a new connection to the first byte of the response. */
static int ask_web(double *ret, struct err *err)
{
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	_cleanup_free_ char *request =
		xasprintf("GET / HTTP/1.1\r\nHost: %d-%s.localhost\r\nConnection: close\r\n\r\n",
			WEB_PORT, wake.web);
	int64_t start_us = clock_mono_us();
	char buf[1024];
	ssize_t got;

	if (fd < 0 || connect(fd, (const struct sockaddr *)&wake.door, sizeof wake.door) < 0)
		return err_sys(err, errno, "connect to the daemon's TCP port");
	if (send_text(fd, request, err) < 0)
		return -1;
	got = receive(fd, ANSWER_MS, buf, sizeof buf, err);
	*ret = since(start_us);
	if (got < 0)
		return -1;
	if (got && text_has_prefix(buf, "HTTP/1.1 503"))
		return err_set(err, ERR_STATE, "a request to a sleeping box is answered with 503");
	if (!got || !text_has_prefix(buf, "HTTP/1.1 200"))
		return err_set(
			err, ERR_PROTOCOL, "the URL answered '%.60s'", got ? buf : "nothing");
	return 0;
}

static int wake_url(struct bench_boxes *boxes, const char *verb, double *ret, struct err *err)
{
	if (need_web(boxes, err) < 0)
		return -1;
	if (verb && bench_states_post(boxes, wake.web, verb, NULL, err) < 0)
		return -1;
	return ask_web(ret, err) == 0 ? 0 : not_by_itself(err);
}

int bench_url_awake(struct bench_boxes *boxes, double *ret, struct err *err)
{
	return wake_url(boxes, NULL, ret, err);
}

int bench_wake_url(struct bench_boxes *boxes, double *ret, struct err *err)
{
	return wake_url(boxes, "suspend", ret, err);
}

int bench_wake_url_hibernated(struct bench_boxes *boxes, double *ret, struct err *err)
{
	return wake_url(boxes, "hibernate", ret, err);
}

/* ---- many boxes ----------------------------------------------------------------------------- */

/* The caller removes them, also those made before a failure. */
static int make_asleep(
	struct bench_boxes *boxes, char **names, size_t count, const char *verb, struct err *err)
{
	for (size_t i = 0; i < count; i++) {
		if (bench_is_stopping())
			return err_set(err, ERR_CANCELLED, "stopped");
		if (bench_boxes_make(boxes, &names[i], err) < 0 ||
			bench_states_post(boxes, names[i], verb, NULL, err) < 0)
			return err_wrap(err, "box %zu of %zu", i + 1, count);
	}
	return 0;
}

static void remove_all(struct bench_boxes *boxes, char **names, size_t count)
{
	for (size_t i = 0; i < count && names[i]; i++) {
		bench_boxes_remove(boxes, names[i], NULL, NULL);
		free(names[i]);
	}
}

/* CPU milliseconds that they have used since they were made. */
static int processor_of(
	struct bench_boxes *boxes, char *const *names, size_t count, double *ret, struct err *err)
{
	*ret = 0;
	for (size_t i = 0; i < count; i++) {
		_cleanup_free_ char *path = client_path("/v1/boxes/%s/stats", names[i]);
		_cleanup_json_ json_t *stats = NULL;

		if (client_get(bench_boxes_get_client(boxes), path, &stats, err) < 0)
			return -1;
		*ret += (double)json_integer_value(json_object_get(stats, "cpu_us")) / 1000.0;
	}
	return 0;
}

/* Memory of the daemon and its gate, in MiB. */
static int memory_of_daemon(struct bench_boxes *boxes, double *ret, struct err *err)
{
	_cleanup_json_ json_t *info = NULL;
	double gate = 0;
	json_int_t pid;

	if (client_get(bench_boxes_get_client(boxes), "/v1/info", &info, err) < 0 ||
		bench_memory_own(
			(pid_t)json_integer_value(json_object_get(info, "pid")), ret, err) < 0)
		return -1;
	pid = json_integer_value(json_object_get(json_object_get(info, "network"), "gate_pid"));
	if (pid > 0 && bench_memory_own((pid_t)pid, &gate, err) < 0)
		return -1;
	*ret += gate;
	return 0;
}

static int look_at_suspended(
	struct bench_boxes *boxes, char **names, double *ret, double *ret_memory, struct err *err)
{
	double memory, memory_after, before, after;

	if (memory_of_daemon(boxes, &memory, err) < 0 ||
		make_asleep(boxes, names, SUSPENDED, "suspend", err) < 0 ||
		memory_of_daemon(boxes, &memory_after, err) < 0 ||
		processor_of(boxes, names, SUSPENDED, &before, err) < 0)
		return -1;
	usleep(LOOK_US);
	if (processor_of(boxes, names, SUSPENDED, &after, err) < 0)
		return -1;
	*ret = after - before;
	*ret_memory = (memory_after - memory) * 1024 / SUSPENDED;
	return 0;
}

int bench_suspended(struct bench_boxes *boxes, double *ret, double *ret_memory, struct err *err)
{
	char *names[SUSPENDED] = { 0 };
	int status = look_at_suspended(boxes, names, ret, ret_memory, err);

	remove_all(boxes, names, SUSPENDED);
	return status;
}

static bool hibernated_hidden;

/* What the second half of them adds: the first half leaves freed memory in the daemon. */
static int look_at_hibernated(struct bench_boxes *boxes, char **names, double *ret, struct err *err)
{
	double before, after;

	if (make_asleep(boxes, names, HIBERNATED, "hibernate", err) < 0 ||
		memory_of_daemon(boxes, &before, err) < 0 ||
		make_asleep(boxes, names + HIBERNATED, HIBERNATED, "hibernate", err) < 0 ||
		memory_of_daemon(boxes, &after, err) < 0)
		return -1;
	*ret = (after - before) * 1024 / HIBERNATED;
	hibernated_hidden = after <= before;
	return 0;
}

const char *bench_hibernated_about(void)
{
	return hibernated_hidden ? "hidden by memory that earlier boxes left; measure it alone"
				 : "what 50 add to 50";
}

int bench_hibernated(struct bench_boxes *boxes, double *ret, struct err *err)
{
	char *names[2 * HIBERNATED] = { 0 };
	int status = look_at_hibernated(boxes, names, ret, err);

	remove_all(boxes, names, ARRAY_LEN(names));
	return status;
}

/* ---- cleaning up ---------------------------------------------------------------------------- */

void bench_wake_done(struct bench_boxes *boxes)
{
	char **const names[] = { &wake.ticker, &wake.web };

	if (wake.output >= 0)
		close(steal_fd(&wake.output));
	if (wake.control >= 0)
		close(steal_fd(&wake.control));
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (*names[i])
			bench_boxes_remove(boxes, *names[i], NULL, NULL);
		free(*names[i]);
		*names[i] = NULL;
	}
}
