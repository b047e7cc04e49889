/* test_doors.c - the network of a box with real namespaces: what leads to a door, what is refused,
 * what is told of it */
#include "doors_fixture.h"

static int set_up(void **state)
{
	struct doors_plan *plan;
	struct err err = ERR_INIT;

	(void)state;
	home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (doors_prepare(&plan, &err) < 0) {
		printf("%s\n", err.message);
		return -1;
	}
	if (unshare(CLONE_NEWNET) < 0 || doors_furnish(plan, true, &err) < 0) {
		printf("%s\n", err.message);
		return -1;
	}
	netns = inner = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	inside(false);
	doors_plan_free(plan);
	if (doors_open(netns, doors, &err) < 0) {
		printf("%s\n", err.message);
		return -1;
	}
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	doors_close(doors);
	close(netns);
	close(home);
	return 0;
}

static void all_else_is_refused_and_told(void **state)
{
	static const char *const addresses[] = { "8.8.8.8", "10.1.2.3", "192.168.1.1", "172.16.0.1",
		"169.254.169.254", "100.64.0.1", "203.0.113.9", "2001:db8::1", "fd00::1" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
		int status;

		assert_int_equal(try_tcp(addresses[i], 443, NULL), ECONNREFUSED);
		assert_reported(addresses[i], 443, IPPROTO_TCP);
		status = try_udp(addresses[i], 443);
		assert_true(status == EHOSTUNREACH || status == EACCES);
		assert_reported(addresses[i], 443, IPPROTO_UDP);
	}
}

static void a_device_bound_by_force_leads_nowhere(void **state)
{
	struct sockaddr_storage to;
	socklen_t len = aim("8.8.8.8", 80, &to);
	int fd = inner_socket("8.8.8.8", SOCK_STREAM);

	(void)state;
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "eth0", 5), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, len), -1);
	assert_int_equal(errno, ECONNREFUSED);
	close(fd);
	assert_reported("8.8.8.8", 80, IPPROTO_TCP);
}

static void the_box_reaches_itself(void **state)
{
	int listener = inner_socket("127.0.0.1", SOCK_STREAM), fd = -1;
	struct sockaddr_storage any;
	socklen_t len = aim("0.0.0.0", 8080, &any);
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(bind(listener, (struct sockaddr *)&any, len), 0);
	assert_int_equal(listen(listener, 8), 0);
	assert_int_equal(try_tcp("127.0.0.1", 8080, NULL), 0);
	assert_int_equal(try_tcp(DOORS_BOX_V4, 8080, NULL), 0);
	/* Not by addresses that only look like its own. */
	assert_int_equal(try_tcp("8.8.8.8", 8080, NULL), ECONNREFUSED);
	assert_reported("8.8.8.8", 8080, IPPROTO_TCP);
	/* And from outside, by the daemon alone. */
	assert_int_equal(doors_connect(netns, DOORS_LOOPBACK, 8080, &fd, &err), 0);
	close(fd);
	assert_int_equal(doors_connect(netns, DOORS_OUTSIDE, 8080, &fd, &err), 0);
	close(fd);
	close(listener);
}

static void the_daemon_listens_on_a_port_of_the_box(void **state)
{
	struct err err = ERR_INIT;
	int listener = -1, taken = -1, fd;

	(void)state;
	assert_int_equal(doors_listen(netns, false, 9090, &listener, &err), 0);
	assert_int_equal(try_tcp("127.0.0.1", 9090, NULL), 0);
	fd = accept(listener, NULL, NULL);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(doors_listen(netns, false, 9090, &taken, &err), -1);
	assert_int_equal(err.kind, ERR_EXISTS);
	assert_int_equal(taken, -1);
	close(listener);
	assert_int_equal(try_tcp("127.0.0.1", 9090, NULL), ECONNREFUSED);
}

static void ranges_open_and_close(void **state)
{
	const struct address_range some[] = { { { 4, { 10, 1, 0, 0 } }, 16 },
		{ { 4, { 10, 1, 2, 0 } }, 24 }, { { 4, { 10, 1, 0, 0 } }, 16 },
		{ { 6, { 0x20, 1, 0xd, 0xb8 } }, 32 } };
	const struct address_range all[] = { { { 4, { 0 } }, 0 } };
	struct doors_refused left[8];
	struct err err = ERR_INIT;
	int fd = -1;

	(void)state;
	assert_int_equal(doors_set_aims(netns, some, ARRAY_LEN(some), false, &err), 0);
	assert_int_equal(try_tcp("10.1.255.255", 5432, &fd), 0);
	assert_accepted("10.1.255.255", 5432);
	close(fd);
	assert_int_equal(try_tcp("2001:db8::7", 80, &fd), 0);
	assert_accepted("2001:db8::7", 80);
	close(fd);
	assert_int_equal(try_tcp("10.2.0.0", 5432, NULL), ECONNREFUSED);
	assert_reported("10.2.0.0", 5432, IPPROTO_TCP);

	assert_int_equal(doors_set_aims(netns, all, 1, false, &err), 0);
	assert_int_equal(try_tcp("200.1.2.3", 80, &fd), 0);
	assert_int_equal(try_tcp("2001:db8::7", 80, NULL), ECONNREFUSED);

	assert_int_equal(doors_set_aims(netns, NULL, 0, false, &err), 0);
	assert_int_equal(try_tcp("200.1.2.3", 80, NULL), ECONNREFUSED);
	close(fd);
	/* What is left of all that. */
	while ((fd = accept(doors[DOOR_TCP], NULL, NULL)) >= 0)
		close(fd);
	while (doors_refused_read(doors[DOOR_REFUSED], left, ARRAY_LEN(left), NULL))
		;
}

static void questions_for_anybody_end_here(void **state)
{
	static const char *const servers[] = { DOORS_RESOLVER_V4, "8.8.8.8" };
	struct sockaddr_in from;
	char bytes[8];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(servers); i++) {
		struct sockaddr_storage to;
		socklen_t len = aim(servers[i], 53, &to), from_len = sizeof from;
		int fd = inner_socket(servers[i], SOCK_DGRAM);

		assert_int_equal(connect(fd, (struct sockaddr *)&to, len), 0);
		assert_int_equal(send(fd, "who", 3, 0), 3);
		wait_readable(doors[DOOR_DNS_UDP4]);
		assert_int_equal(recvfrom(doors[DOOR_DNS_UDP4], bytes, sizeof bytes, 0,
					 (struct sockaddr *)&from, &from_len),
			3);
		assert_int_equal(ntohl(from.sin_addr.s_addr), 0xc6120002);
		close(fd);
		assert_int_equal(try_tcp(servers[i], 53, NULL), 0);
		wait_readable(doors[DOOR_DNS_TCP4]);
		close(accept(doors[DOOR_DNS_TCP4], NULL, NULL));
	}
	/* In a network of the box's own it is nobody's business but the box's. */
	assert_int_equal(try_tcp("10.5.5.5", 53, NULL), ECONNREFUSED);
	assert_reported("10.5.5.5", 53, IPPROTO_TCP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_lead_to_the_door),
		cmocka_unit_test(all_else_is_refused_and_told),
		cmocka_unit_test(a_device_bound_by_force_leads_nowhere),
		cmocka_unit_test(the_box_reaches_itself),
		cmocka_unit_test(the_daemon_listens_on_a_port_of_the_box),
		cmocka_unit_test(ranges_open_and_close),
		cmocka_unit_test(questions_for_anybody_end_here),
		cmocka_unit_test(datagrams_get_an_answer_in_the_right_name),
		cmocka_unit_test(a_datagram_is_refused_after_it_came),
		cmocka_unit_test(without_the_sockets_everything_is_closed),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
