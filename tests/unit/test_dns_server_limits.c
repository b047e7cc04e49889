/* test_dns_server_limits.c - how much a box may ask, what ends with it, how fast it is answered */
#include "dns_server_fixture.h"
#include <sys/wait.h>
#include <time.h>

/* ---- limits and ends ------------------------------------------------------------------------ */

static void test_rate_is_kept_and_the_rest_waits(void **state)
{
	uint8_t message[DNS_QUERY_MAX];
	size_t len = make_query(message, 1, "syn.test", DNS_TYPE_A, 0);
	int64_t begin = clock_mono_us();
	double most;
	int fd;

	(void)state;
	start(&(struct dns_box_options){ .rate = 200, .burst = 20 });
	fd = connect_to(port, SOCK_DGRAM);
	for (int i = 0; i < 60; i++)
		assert_int_equal(send(fd, message, len, 0), len);
	run_for(5);
	assert_in_range(logged, 20, 25);
	assert_true(limited >= 1);
	while (logged < 60) {
		run_for(5);
		most = 21 + 200 * (double)(clock_mono_us() - begin) / 1e6;
		assert_true(logged <= most);
		assert_true(clock_mono_us() - begin < 3000000);
	}
	close(fd);
}

static void test_rate_of_boxes_together(void **state)
{
	struct dns_rate together = { 0 };
	struct dns_box_options options = { .rate = 200,
		.burst = 20,
		.together = &together,
		.udp_count = 1,
		.tcp_count = 1,
		.arg = &port };
	struct dns_box *second;
	uint8_t message[DNS_QUERY_MAX];
	size_t len = make_query(message, 1, "syn.test", DNS_TYPE_A, 0);
	uint16_t other_port = 0;
	struct err err = ERR_INIT;
	int64_t begin;
	int fds[2], udp, tcp;

	(void)state;
	start(&(struct dns_box_options){ .rate = 200, .burst = 20, .together = &together });
	loopback_pair(&udp, &tcp, &other_port);
	options.udp = &udp;
	options.tcp = &tcp;
	options.synthetic = map;
	assert_int_equal(dns_server_add(server, &options, &second, &err), 0);
	begin = clock_mono_us();
	fds[0] = connect_to(port, SOCK_DGRAM);
	fds[1] = connect_to(other_port, SOCK_DGRAM);
	for (int i = 0; i < 60; i++)
		assert_int_equal(send(fds[i % 2], message, len, 0), len);
	/* Both are heard in the end, neither adds anything to what they have. */
	while (logged < 60) {
		run_for(5);
		assert_true(logged <= 21 + 200 * (double)(clock_mono_us() - begin) / 1e6);
		assert_true(clock_mono_us() - begin < 3000000);
	}
	dns_box_free(box);
	box = second;
	close(fds[0]);
	close(fds[1]);
}

static void test_box_that_goes_takes_its_questions_along(void **state)
{
	uint8_t message[2 + DNS_QUERY_MAX];
	size_t len;
	int udp, tcp;

	(void)state;
	start(&(struct dns_box_options){ 0 });
	above->mode = ABOVE_SILENT;
	udp = connect_to(port, SOCK_DGRAM);
	tcp = connect_to(port, SOCK_STREAM);
	run_for(2);
	len = make_query(message, 1, "one.test", DNS_TYPE_A, 0);
	assert_int_equal(send(udp, message, len, 0), len);
	len = make_frame(message, 1, "two.test");
	assert_int_equal(send(tcp, message, len, 0), len);
	run_for(20);
	assert_int_equal(decided, 2);
	dns_box_free(box);
	run_for(400);
	assert_int_equal(logged, 0);
	close(udp);
	close(tcp);
}

/* ---- figures -------------------------------------------------------------------------------- */

enum { LOAD_MS = 700, LOAD_WINDOW = 64 };

/* The client of the load test, in a process of its own: a window of questions always on their
 * way. */
static void load_client(uint16_t to)
{
	struct mmsghdr messages[LOAD_WINDOW] = { 0 };
	struct iovec bytes[LOAD_WINDOW];
	uint8_t message[DNS_QUERY_MAX], in[LOAD_WINDOW][DNS_REPLY_MAX];
	size_t len = make_query(message, 1, "syn.test", DNS_TYPE_A, 1232);
	struct upstream_server server_here = server_at(to);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	unsigned free_slots = LOAD_WINDOW;
	int64_t end = clock_mono_us() + LOAD_MS * 1000;
	uint64_t count = 0;
	struct timeval patience = { 0, 100000 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	if (connect(fd, (struct sockaddr *)&server_here.address, server_here.len) < 0)
		_exit(1);
	while (clock_mono_us() < end) {
		int got;

		for (unsigned i = 0; i < free_slots; i++) {
			bytes[i] = (struct iovec){ message, len };
			messages[i].msg_hdr =
				(struct msghdr){ .msg_iov = &bytes[i], .msg_iovlen = 1 };
		}
		(void)!sendmmsg(fd, messages, free_slots, 0);
		for (unsigned i = 0; i < LOAD_WINDOW; i++) {
			bytes[i] = (struct iovec){ in[i], DNS_REPLY_MAX };
			messages[i].msg_hdr =
				(struct msghdr){ .msg_iov = &bytes[i], .msg_iovlen = 1 };
		}
		got = recvmmsg(fd, messages, LOAD_WINDOW, MSG_WAITFORONE, NULL);
		free_slots = got > 0 ? (unsigned)got : LOAD_WINDOW; /* lost: send them again */
		count += got > 0 ? (unsigned)got : 0;
	}
	_exit(count > 0 ? 0 : 1);
}

static int64_t cpu_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1000000ll + now.tv_nsec / 1000;
}

static void test_figure_answers_a_second(void **state)
{
	int64_t cpu, begin;
	int status;
	pid_t child;

	(void)state;
	start(&(struct dns_box_options){ .rate = 1000000 });
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		load_client(port);
	begin = clock_mono_us();
	cpu = cpu_us();
	run_for(LOAD_MS);
	cpu = cpu_us() - cpu;
	begin = clock_mono_us() - begin;
	print_message("answers by UDP: %.0f/s while the client has its share, %.0f/s of CPU time\n",
		logged * 1e6 / (double)begin, logged * 1e6 / (double)(cpu ? cpu : 1));
	run_for(200);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(logged > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_rate_is_kept_and_the_rest_waits),
		TEST(test_rate_of_boxes_together),
		TEST(test_box_that_goes_takes_its_questions_along),
		TEST(test_figure_answers_a_second),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
