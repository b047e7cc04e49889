/* fuzz_qmp.c - arbitrary bytes as what QEMU says on its monitor
 *
 * Each line is read by itself; then the whole goes to a client that has greeted, made calls and
 * waits for their answers. Whatever it is, every call is told of its end exactly once, and so is
 * the end of the connection. */
#include "base/alloc.h"
#include "engine/vm/qmp.h"
#include "engine/vm/qmp_line.h"
#include "loop/loop.h"
#include <assert.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CALLS = 3, INPUT_MAX = 64 * 1024 };

static struct {
	struct loop *loop;
	unsigned answered[CALLS + 1];
	unsigned lost;
} seen;

static void read_line(const char *text, size_t len)
{
	struct qmp_line line;
	struct err err = ERR_INIT;

	if (qmp_line_parse(text, len, &line, &err) < 0) {
		assert(err.kind == ERR_PROTOCOL);
		return;
	}
	assert(json_is_object(line.root));
	if (line.kind == QMP_LINE_EVENT)
		assert(line.text && (!line.data || json_is_object(line.data)));
	if (line.kind == QMP_LINE_ERROR)
		assert(line.text);
	if (line.kind == QMP_LINE_RETURN)
		assert(line.data);
	qmp_line_done(&line);
}

static void on_done(json_t *result, const struct err *err, void *arg)
{
	assert(!result != !err);
	++*(unsigned *)arg;
}

static void on_event(struct qmp *qmp, const char *name, json_t *data, void *arg)
{
	static unsigned turn;

	(void)arg;
	assert(name && json_is_object(data));
	if (turn++ % 64 == 0)
		qmp_call(qmp, "more", NULL, -1, NULL, NULL);
}

static void on_lost(struct qmp *qmp, const struct err *err, void *arg)
{
	(void)qmp;
	(void)arg;
	assert(err->kind == ERR_PROTOCOL || err->kind == ERR_UNAVAILABLE);
	seen.lost++;
	loop_stop(seen.loop);
}

static void speak(const uint8_t *data, size_t size)
{
	static const struct qmp_ops ops = { .on_event = on_event, .on_lost = on_lost };
	const struct qmp_step steps[] = { { "d", NULL, -1 }, { "e", json_object(), -1 } };
	struct qmp *qmp;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return;
	memset(seen.answered, 0, sizeof seen.answered);
	seen.lost = 0;
	qmp = qmp_new(seen.loop, pair[0], &ops, NULL);
	for (int i = 0; i < CALLS; i++)
		qmp_call(qmp, "c", NULL, -1, on_done, &seen.answered[i]);
	qmp_run(qmp, steps, ARRAY_LEN(steps), on_done, &seen.answered[CALLS]);
	if (send(pair[1], data, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && size)
		abort();
	shutdown(pair[1], SHUT_WR);
	loop_run(seen.loop);
	assert(seen.lost == 1);
	for (int i = 0; i <= CALLS; i++)
		assert(seen.answered[i] == 1);
	qmp_free(qmp);
	close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = data + size;

	if (size > INPUT_MAX)
		return 0;
	if (!seen.loop)
		seen.loop = loop_new();
	for (const uint8_t *at = data; at < end;) {
		const uint8_t *stop = memchr(at, '\n', (size_t)(end - at));

		if (!stop)
			stop = end;
		read_line((const char *)at, (size_t)(stop - at));
		at = stop + 1;
	}
	speak(data, size);
	return 0;
}
