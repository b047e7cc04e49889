/* test_dns_server_tcp.c - questions over TCP: in pieces, many at once, too many, too long */
#include "dns_server_fixture.h"

static struct answer answer;

/* Exactly len bytes; false when the connection ended before. */
static bool read_exactly(int fd, uint8_t *out, size_t len)
{
	while (len) {
		ssize_t got = recv(fd, out, len, 0);

		if (got < 0 && errno == EAGAIN) {
			assert_true(wait_for(fd, 2000));
			continue;
		}
		if (got <= 0)
			return false;
		out += got;
		len -= (size_t)got;
	}
	return true;
}

static bool read_frame(int fd, struct answer *ret)
{
	uint8_t head[2];

	if (!read_exactly(fd, head, 2))
		return false;
	ret->len = (size_t)(head[0] << 8 | head[1]);
	if (!read_exactly(fd, ret->bytes, ret->len))
		return false;
	read_head(ret);
	return true;
}

static void test_tcp_takes_fragments(void **state)
{
	uint8_t frame[2 + DNS_QUERY_MAX];
	size_t len;
	int fd;

	(void)state;
	start(&(struct dns_box_options){ 0 });
	fd = connect_to(port, SOCK_STREAM);
	len = make_frame(frame, 9, "syn.test");
	for (size_t i = 0; i < len; i++) {
		run_for(1);
		assert_int_equal(send(fd, frame + i, 1, MSG_NOSIGNAL), 1);
	}
	assert_true(read_frame(fd, &answer));
	assert_int_equal(answer.id, 9);
	assert_int_equal(answer.answers, 1);
	assert_true(last.tcp);
	close(fd);
}

static void test_tcp_takes_many_questions_at_once(void **state)
{
	uint8_t frames[200 * 64];
	bool seen[200] = { false };
	size_t len = 0;
	int fd;

	(void)state;
	start(&(struct dns_box_options){ 0 });
	fd = connect_to(port, SOCK_STREAM);
	for (unsigned i = 0; i < 200; i++) /* some known at once, some asked above */
		len += make_frame(frames + len, i, i % 50 == 7 ? "one.test" : "syn.test");
	run_for(2);
	assert_int_equal(send(fd, frames, len, MSG_NOSIGNAL), len);
	shutdown(fd, SHUT_WR);
	for (unsigned i = 0; i < 200; i++) {
		assert_true(read_frame(fd, &answer));
		assert_true(answer.id < 200 && !seen[answer.id]);
		assert_int_equal(answer.answers, 1);
		seen[answer.id] = true;
	}
	assert_false(read_frame(fd, &answer)); /* closed, since we said that no more comes */
	close(fd);
}

static void test_tcp_client_that_leaves_early_does_no_harm(void **state)
{
	uint8_t frame[2 + DNS_QUERY_MAX];
	size_t len = make_frame(frame, 1, "one.test");

	(void)state;
	start(&(struct dns_box_options){ 0 });
	for (int i = 0; i < 6; i++) {
		int fd = connect_to(port, SOCK_STREAM);

		run_for(2);
		(void)!send(fd, frame, len - (i % 2), MSG_NOSIGNAL);
		if (i >= 4)
			run_for(1); /* its question is on its way */
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 },
			sizeof(struct linger));
		close(fd);
	}
	run_for(20);
	ask("one.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.answers, 1);
}

static void test_tcp_connections_are_bounded_and_end_when_idle(void **state)
{
	uint8_t byte;
	int fds[5];

	(void)state;
	start(&(struct dns_box_options){ 0 });
	for (int i = 0; i < 5; i++) {
		fds[i] = connect_to(port, SOCK_STREAM);
		run_for(5);
	}
	for (int i = 0; i < 5; i++)
		assert_int_equal(
			recv(fds[i], &byte, 1, 0) < 0 ? errno : 0, i < 3 ? EAGAIN : ECONNRESET);
	for (int i = 0; i < 50; i++) { /* bytes that trickle in do not keep one open */
		(void)!send(fds[0], "\0", 1, MSG_NOSIGNAL);
		run_for(10);
	}
	for (int i = 0; i < 3; i++)
		assert_false(read_exactly(fds[i], &byte, 1));
	for (int i = 0; i < 5; i++)
		close(fds[i]);
	ask("syn.test", DNS_TYPE_A, &answer);
}

static void test_tcp_refuses_long_questions(void **state)
{
	uint8_t byte;
	int fd;

	(void)state;
	start(&(struct dns_box_options){ 0 });
	fd = connect_to(port, SOCK_STREAM);
	run_for(2);
	assert_int_equal(send(fd, "\xff\xff\0\1", 4, MSG_NOSIGNAL), 4);
	assert_true(wait_for(fd, 300)); /* before the idle timer */
	assert_false(read_exactly(fd, &byte, 1));
	close(fd);
}

static void test_tcp_client_that_does_not_read_is_held_up(void **state)
{
	uint8_t frame[2 + DNS_QUERY_MAX];
	size_t len = make_frame(frame, 1, "syn.test");
	unsigned sent = 0;
	int fd;

	(void)state;
	start(&(struct dns_box_options){ .rate = 1000000 });
	fd = connect_to(port, SOCK_STREAM);
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){ 4096 }, sizeof(int));
	run_for(2);
	for (int i = 0; i < 200000; i++) {
		if (send(fd, frame, len, MSG_NOSIGNAL) == (ssize_t)len)
			sent++;
		if (i % 1000 == 0)
			run_for(1);
	}
	assert_true(sent > 100 && logged < sent); /* it stopped reading */
	run_for(500);				  /* and gives up */
	assert_true(send(fd, frame, len, MSG_NOSIGNAL) < 0 && errno != EAGAIN);
	close(fd);
}

static void test_rate_counts_tcp_too(void **state)
{
	uint8_t frames[40 * 64];
	size_t len = 0;
	int fd;

	(void)state;
	start(&(struct dns_box_options){ .rate = 200, .burst = 10 });
	fd = connect_to(port, SOCK_STREAM);
	for (unsigned i = 0; i < 40; i++)
		len += make_frame(frames + len, i, "syn.test");
	run_for(2);
	assert_int_equal(send(fd, frames, len, MSG_NOSIGNAL), len);
	run_for(10);
	assert_in_range(logged, 10, 14);
	for (unsigned i = 0; i < 40; i++)
		assert_true(read_frame(fd, &answer));
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_tcp_takes_fragments),
		TEST(test_tcp_takes_many_questions_at_once),
		TEST(test_tcp_client_that_leaves_early_does_no_harm),
		TEST(test_tcp_connections_are_bounded_and_end_when_idle),
		TEST(test_tcp_refuses_long_questions),
		TEST(test_tcp_client_that_does_not_read_is_held_up),
		TEST(test_rate_counts_tcp_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
