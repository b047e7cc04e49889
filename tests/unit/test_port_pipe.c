/* test_port_pipe.c - bytes between a client and a port of a box: both ways, held back, ended one
 * way at a time */
#include "base/alloc.h"
#include "core/boxnet/port_internal.h"
#include "loop/loop.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <cmocka.h>

enum { MANY = 20 * 1000 * 1000 };

static struct {
	struct loop *loop;
	int client, box; /* the far ends: the test's */
	int near;	 /* what the pipe gets as the box's side */
	bool asleep;	 /* the box */
	unsigned used;
	bool refuse_v4;
	unsigned gone;
} fixture;

/* Two connected TCP sockets. */
static void tcp_pair(int ret[2])
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(listener, (struct sockaddr *)&address, len), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &len), 0);
	ret[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(ret[0], (struct sockaddr *)&address, len), 0);
	ret[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(ret[1] >= 0);
	close(listener);
}

static int open_near(bool v6, int *ret_fd, struct err *err, void *arg)
{
	(void)arg;
	*ret_fd = -1;
	if (fixture.asleep)
		return 0;
	if (fixture.near < 0 || (!v6 && fixture.refuse_v4))
		return err_sys(err, ECONNREFUSED, "connect");
	*ret_fd = steal_fd(&fixture.near);
	return 0;
}

static void on_gone(struct port_pipe *pipe, void *arg)
{
	(void)pipe;
	(void)arg;
	fixture.gone++;
	loop_stop(fixture.loop);
}

static struct port_pipe *start(void)
{
	int client[2], box[2];

	fixture.loop = loop_new();
	fixture.gone = 0;
	tcp_pair(client);
	tcp_pair(box);
	fixture.client = client[0];
	fixture.box = box[0];
	fixture.near = box[1];
	return port_pipe_new(fixture.loop, client[1], open_near, on_gone, NULL);
}

static void finish(void)
{
	close(fixture.client);
	close(fixture.box);
	loop_free(fixture.loop);
}

static void put(int fd, char byte, size_t len)
{
	char data[4096];

	memset(data, byte, sizeof data);
	while (len) {
		ssize_t sent = send(fd, data, MIN(len, sizeof data), MSG_NOSIGNAL);

		if (sent <= 0)
			_exit(1);
		len -= (size_t)sent;
	}
}

/* To the end; exits when it is not so many of this byte. */
static void take(int fd, char byte, size_t len)
{
	char data[4096];
	ssize_t got;

	while ((got = recv(fd, data, sizeof data, 0)) > 0) {
		for (ssize_t i = 0; i < got; i++)
			if (data[i] != byte)
				_exit(2);
		len -= (size_t)got;
	}
	if (len)
		_exit(3);
}

static void expect_good(pid_t pid)
{
	int status = -1;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* The client sends all and ends; only then does the box read, and answer as much. */
static void test_pipe_carries_both_ways_and_ends_each(void **state)
{
	struct port_pipe *pipe = start();
	pid_t client, box;

	(void)state;
	assert_non_null(pipe);
	client = fork();
	if (!client) {
		close(fixture.box);
		put(fixture.client, 'a', MANY);
		shutdown(fixture.client, SHUT_WR);
		take(fixture.client, 'b', MANY);
		_exit(0);
	}
	box = fork();
	if (!box) {
		close(fixture.client);
		usleep(50000);
		take(fixture.box, 'a', MANY);
		put(fixture.box, 'b', MANY);
		shutdown(fixture.box, SHUT_WR);
		_exit(0);
	}
	loop_run(fixture.loop);
	assert_int_equal(fixture.gone, 1);
	expect_good(client);
	expect_good(box);
	finish();
}

static void test_pipe_tries_the_other_address(void **state)
{
	(void)state;
	fixture.refuse_v4 = true;
	assert_non_null(start());
	fixture.refuse_v4 = false;
	shutdown(fixture.client, SHUT_WR);
	shutdown(fixture.box, SHUT_WR);
	loop_run(fixture.loop);
	assert_int_equal(fixture.gone, 1);
	finish();
}

static void test_pipe_lets_the_client_go_when_nothing_listens(void **state)
{
	int client[2];
	char byte;

	(void)state;
	fixture.loop = loop_new();
	fixture.near = -1;
	tcp_pair(client);
	assert_null(port_pipe_new(fixture.loop, client[1], open_near, on_gone, NULL));
	assert_int_equal(recv(client[0], &byte, 1, 0), 0);
	close(client[0]);
	loop_free(fixture.loop);
}

static void on_used(void *arg)
{
	(void)arg;
	fixture.used++;
}

static void test_pipe_waits_for_a_box_that_wakes(void **state)
{
	struct port_pipe *pipe;
	char byte = 0;

	(void)state;
	fixture.asleep = true;
	fixture.used = 0;
	pipe = start();
	assert_non_null(pipe);
	port_pipe_on_used(pipe, on_used);
	assert_int_equal(send(fixture.client, "x", 1, 0), 1);
	shutdown(fixture.client, SHUT_WR);
	port_pipe_retry(pipe, true); /* not yet */
	fixture.asleep = false;
	port_pipe_retry(pipe, true);
	shutdown(fixture.box, SHUT_WR);
	loop_run(fixture.loop);
	assert_int_equal(recv(fixture.box, &byte, 1, 0), 1);
	assert_int_equal(byte, 'x');
	assert_int_equal(fixture.gone, 1);
	assert_int_equal(fixture.used, 1); /* not each time */
	finish();
}

static void test_pipe_ends_when_the_box_does_not_wake(void **state)
{
	struct port_pipe *pipe;
	char byte;

	(void)state;
	fixture.asleep = true;
	pipe = start();
	assert_non_null(pipe);
	port_pipe_retry(pipe, false);
	fixture.asleep = false;
	close(steal_fd(&fixture.near));
	assert_int_equal(fixture.gone, 1);
	assert_int_equal(recv(fixture.client, &byte, 1, 0), 0);
	finish();
}

static void test_pipe_ends_when_a_side_breaks(void **state)
{
	(void)state;
	assert_non_null(start());
	setsockopt(fixture.box, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 },
		sizeof(struct linger));
	close(fixture.box);
	loop_run(fixture.loop);
	assert_int_equal(fixture.gone, 1);
	fixture.box = -1;
	finish();
}

/* The client has ended its side, the box answers and closes, and the client takes its time. */
static void test_pipe_loses_nothing_to_a_slow_client(void **state)
{
	pid_t client, box;

	(void)state;
	assert_non_null(start());
	client = fork();
	if (!client) {
		close(fixture.box);
		shutdown(fixture.client, SHUT_WR);
		usleep(300000);
		take(fixture.client, 'b', MANY);
		_exit(0);
	}
	box = fork();
	if (!box) {
		close(fixture.client);
		take(fixture.box, 'a', 0);
		put(fixture.box, 'b', MANY);
		close(fixture.box);
		_exit(0);
	}
	close(fixture.box);
	loop_run(fixture.loop);
	expect_good(client);
	expect_good(box);
	fixture.box = -1;
	finish();
}

static void on_late(void *arg)
{
	loop_stop(arg);
}

/* The client ended its side, the box does not care, then the client is gone: nothing is left to
 * wait for. */
static void test_pipe_ends_when_a_client_is_gone_that_had_ended(void **state)
{
	struct loop_timer *late;
	struct port_pipe *pipe = start();
	char byte;

	(void)state;
	assert_non_null(pipe);
	late = loop_timer_new(fixture.loop, on_late, fixture.loop);
	shutdown(fixture.client, SHUT_WR);
	loop_timer_start(late, 50);
	loop_run(fixture.loop);
	assert_int_equal(fixture.gone, 0);
	assert_int_equal(recv(fixture.box, &byte, 1, 0), 0);
	setsockopt(fixture.client, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 },
		sizeof(struct linger));
	close(fixture.client);
	loop_timer_start(late, 3000);
	loop_run(fixture.loop);
	assert_int_equal(fixture.gone, 1);
	loop_timer_free(late);
	fixture.client = -1;
	finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pipe_carries_both_ways_and_ends_each),
		cmocka_unit_test(test_pipe_tries_the_other_address),
		cmocka_unit_test(test_pipe_lets_the_client_go_when_nothing_listens),
		cmocka_unit_test(test_pipe_loses_nothing_to_a_slow_client),
		cmocka_unit_test(test_pipe_waits_for_a_box_that_wakes),
		cmocka_unit_test(test_pipe_ends_when_the_box_does_not_wake),
		cmocka_unit_test(test_pipe_ends_when_a_side_breaks),
		cmocka_unit_test(test_pipe_ends_when_a_client_is_gone_that_had_ended),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
