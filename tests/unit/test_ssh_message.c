/* test_ssh_message.c - messages between the daemon and the process of an SSH connection */
#include "ssh/message.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

struct peer {
	struct loop *loop;
	struct sshm_pipe *pipe;
	unsigned messages, want;
	char text[64];
	size_t blob_len;
	int fd;
	bool ended;
	struct err why;
};

static int on_message(void *arg, enum sshm_kind kind, struct wire_reader *in, int *fds,
	size_t count, struct err *err)
{
	struct peer *peer = arg;

	(void)kind;
	snprintf(peer->text, sizeof peer->text, "%s", wire_get_str(in, 60));
	sshm_get_blob(in, SSHM_BLOB_MAX, &peer->blob_len);
	if (count)
		peer->fd = fds[0];
	if (++peer->messages == peer->want)
		loop_stop(peer->loop);
	return wire_get_done(in, err);
}

static void on_ended(void *arg, const struct err *err)
{
	struct peer *peer = arg;

	peer->ended = true;
	peer->why = *err;
	loop_stop(peer->loop);
}

static const struct sshm_pipe_ops ops = { .message = on_message, .ended = on_ended };

static void setup(struct peer *a, struct peer *b)
{
	struct loop *loop = loop_new();
	int pair[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	*a = (struct peer){ .loop = loop, .fd = -1, .want = 1 };
	*b = (struct peer){ .loop = loop, .fd = -1, .want = 1 };
	a->pipe = sshm_pipe_new(loop, pair[0], &ops, a);
	b->pipe = sshm_pipe_new(loop, pair[1], &ops, b);
}

static void teardown(struct peer *a, struct peer *b)
{
	sshm_pipe_free(a->pipe);
	sshm_pipe_free(b->pipe);
	loop_free(a->loop);
}

static void say(struct peer *peer, const char *text, size_t blob, const int *fds, size_t count)
{
	static const char zeros[SSHM_BLOB_MAX];
	struct buf *out = sshm_pipe_begin(peer->pipe, SSHM_SIGN);

	wire_put_str(out, text);
	sshm_put_blob(out, zeros, blob);
	sshm_pipe_send(peer->pipe, fds, count);
}

static void test_message_arrives_with_its_descriptor(void **state)
{
	struct peer a, b;
	int pair[2];
	char byte;

	(void)state;
	setup(&a, &b);
	assert_int_equal(pipe(pair), 0);
	say(&a, "ada", 100, pair + 1, 1);
	close(pair[1]);
	loop_run(a.loop);
	assert_string_equal(b.text, "ada");
	assert_int_equal(b.blob_len, 100);
	assert_true(b.fd >= 0);
	assert_int_equal(write(b.fd, "x", 1), 1);
	assert_int_equal(read(pair[0], &byte, 1), 1);
	close(b.fd);
	close(pair[0]);
	teardown(&a, &b);
}

static void test_many_messages_wait_and_come_in_order(void **state)
{
	struct peer a, b;

	(void)state;
	setup(&a, &b);
	b.want = 40;
	for (unsigned i = 0; i < 40; i++) {
		char text[16];

		snprintf(text, sizeof text, "%u", i);
		say(&a, text, SSHM_BLOB_MAX, NULL, 0);
	}
	assert_true(sshm_pipe_queued(a.pipe) > 0);
	loop_run(a.loop);
	assert_string_equal(b.text, "39");
	assert_int_equal(sshm_pipe_queued(a.pipe), 0);
	teardown(&a, &b);
}

static void test_peer_that_does_not_read_ends_the_pipe(void **state)
{
	struct peer a, b;

	(void)state;
	setup(&a, &b);
	b.want = 0;
	for (unsigned i = 0; i < 200; i++)
		say(&a, "x", SSHM_BLOB_MAX, NULL, 0);
	loop_run(a.loop);
	assert_true(a.ended);
	assert_int_equal(a.why.kind, ERR_LIMIT);
	teardown(&a, &b);
}

static void test_malformed_message_ends_the_pipe(void **state)
{
	struct peer a, b;
	struct buf *out;

	(void)state;
	setup(&a, &b);
	b.want = 0;
	out = sshm_pipe_begin(a.pipe, SSHM_SIGN);
	wire_put_str(out, "x");
	wire_put_u32(out, 1000); /* a blob longer than what follows */
	sshm_pipe_send(a.pipe, NULL, 0);
	loop_run(a.loop);
	assert_true(b.ended);
	assert_int_equal(b.why.kind, ERR_PROTOCOL);
	teardown(&a, &b);
}

static void test_end_of_the_other_side_is_told(void **state)
{
	struct peer a, b;

	(void)state;
	setup(&a, &b);
	sshm_pipe_free(b.pipe);
	b.pipe = NULL;
	loop_run(a.loop);
	assert_true(a.ended);
	assert_int_equal(a.why.kind, ERR_UNAVAILABLE);
	teardown(&a, &b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_message_arrives_with_its_descriptor),
		cmocka_unit_test(test_many_messages_wait_and_come_in_order),
		cmocka_unit_test(test_peer_that_does_not_read_ends_the_pipe),
		cmocka_unit_test(test_malformed_message_ends_the_pipe),
		cmocka_unit_test(test_end_of_the_other_side_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
