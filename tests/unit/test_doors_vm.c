/* test_doors_vm.c - the network of a box with a kernel of its own: the same doors at the end of a
 * tap
 *
 * The box's kernel is played by a second namespace with a tap of its own, and a process that
 * carries frames between the two taps, as QEMU would. */
#include "doors_fixture.h"
#include "base/clock.h"
#include "vm_net_fixture.h"

static struct doors_plan *plan;
static struct vm_guest guest;

static int set_up(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	if (unshare(CLONE_NEWNET) < 0)
		return -1;
	home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	vm_run("ip link set lo up");
	if (doors_prepare(&plan, &err) < 0 || vm_guest_start(plan, home, &guest, &err) < 0 ||
		doors_open(guest.netns, doors, &err) < 0) {
		printf("%s\n", err.message);
		return -1;
	}
	netns = guest.netns;
	inner = guest.inner;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	doors_close(doors);
	vm_guest_end(&guest);
	doors_plan_free(plan);
	close(home);
	return 0;
}

/* ---- as with every box ---------------------------------------------------------------------- */

static void all_else_is_refused_at_once_and_told(void **state)
{
	static const char *const addresses[] = { "8.8.8.8", "10.1.2.3", "169.254.169.254",
		"203.0.113.9", "2001:db8::1", "fd00::1" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
		int64_t began = clock_mono_us();
		int status;

		assert_int_equal(try_tcp(addresses[i], 443, NULL), ECONNREFUSED);
		assert_reported(addresses[i], 443, IPPROTO_TCP);
		status = try_udp(addresses[i], 443);
		assert_true(status == EHOSTUNREACH || status == EACCES);
		assert_reported(addresses[i], 443, IPPROTO_UDP);
		assert_true(clock_mono_us() - began < 1000000);
	}
}

/* The kernel sends one ICMP error a second to a neighbour, unless told otherwise. */
static void refusals_do_not_run_out(void **state)
{
	int64_t began = clock_mono_us();

	(void)state;
	for (int i = 0; i < 40; i++) {
		assert_int_not_equal(try_udp(i % 2 ? "8.8.8.8" : "2001:db8::1", 443), EAGAIN);
		assert_reported(i % 2 ? "8.8.8.8" : "2001:db8::1", 443, IPPROTO_UDP);
	}
	assert_true(clock_mono_us() - began < 4000000);
}

static void questions_for_anybody_end_here(void **state)
{
	static const struct {
		const char *server;
		enum door udp, tcp;
	} rows[] = { { DOORS_RESOLVER_V4, DOOR_DNS_UDP4, DOOR_DNS_TCP4 },
		{ "8.8.8.8", DOOR_DNS_UDP4, DOOR_DNS_TCP4 },
		{ "10.5.5.5", DOOR_DNS_UDP4, DOOR_DNS_TCP4 },
		{ DOORS_RESOLVER_V6, DOOR_DNS_UDP6, DOOR_DNS_TCP6 },
		{ "2001:4860:4860::8888", DOOR_DNS_UDP6, DOOR_DNS_TCP6 } };
	char bytes[8];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct sockaddr_storage to;
		socklen_t len = aim(rows[i].server, 53, &to);
		int fd = inner_socket(rows[i].server, SOCK_DGRAM);

		assert_int_equal(connect(fd, (struct sockaddr *)&to, len), 0);
		assert_int_equal(send(fd, "who", 3, 0), 3);
		wait_readable(doors[rows[i].udp]);
		assert_int_equal(recv(doors[rows[i].udp], bytes, sizeof bytes, 0), 3);
		close(fd);
		assert_int_equal(try_tcp(rows[i].server, 53, NULL), 0);
		wait_readable(doors[rows[i].tcp]);
		close(accept(doors[rows[i].tcp], NULL, NULL));
	}
	assert_nothing_reported();
}

static void ranges_open_and_close(void **state)
{
	const struct address_range some[] = { { { 4, { 10, 1, 0, 0 } }, 16 },
		{ { 6, { 0x20, 1, 0xd, 0xb8 } }, 32 } };
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
	assert_int_equal(doors_set_aims(netns, NULL, 0, false, &err), 0);
	assert_int_equal(try_tcp("10.1.255.255", 5432, NULL), ECONNREFUSED);
}

/* ---- into the box --------------------------------------------------------------------------- */

static int connect_outcome(int into, uint16_t port, int *ret_fd)
{
	struct pollfd poller = { .events = POLLOUT };
	struct err err = ERR_INIT;
	int why = 0;

	assert_int_equal(doors_connect(into, DOORS_OUTSIDE, port, &poller.fd, &err), 0);
	assert_int_equal(poll(&poller, 1, 2000), 1);
	getsockopt(poller.fd, SOL_SOCKET, SO_ERROR, &why, &(socklen_t){ sizeof why });
	if (ret_fd && !why)
		*ret_fd = poller.fd;
	else
		close(poller.fd);
	return why;
}

static int listen_inside(const char *address, uint16_t port)
{
	struct sockaddr_storage own;
	socklen_t len = aim(address, port, &own);
	int fd = inner_socket(address, SOCK_STREAM);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	assert_int_equal(bind(fd, (struct sockaddr *)&own, len), 0);
	assert_int_equal(listen(fd, 8), 0);
	return fd;
}

static void ports_of_the_box_are_reached(void **state)
{
	int listener = listen_inside("0.0.0.0", 8080), loopback = listen_inside("127.0.0.1", 8081);
	int fd = -1, peer;
	char bytes[8];

	(void)state;
	assert_int_equal(connect_outcome(netns, 8080, &fd), 0);
	peer = accept(listener, NULL, NULL);
	assert_true(peer >= 0);
	assert_int_equal(send(fd, "ping", 4, 0), 4);
	assert_int_equal(recv(peer, bytes, sizeof bytes, 0), 4);
	assert_int_equal(send(peer, "pong", 4, 0), 4);
	wait_readable(fd);
	assert_int_equal(recv(fd, bytes, sizeof bytes, 0), 4);
	assert_memory_equal(bytes, "pong", 4);
	close(peer);
	wait_readable(fd);
	assert_int_equal(recv(fd, bytes, sizeof bytes, 0), 0);
	close(fd);
	/* A server on the box's own loopback is asked for by box-init. */
	assert_int_equal(connect_outcome(netns, 8081, NULL), ECONNREFUSED);
	assert_int_equal(connect_outcome(netns, 8082, NULL), ECONNREFUSED);
	close(listener);
	close(loopback);
	assert_nothing_reported();
}

static int64_t carry_much(int from, int to, size_t all)
{
	static char piece[65536], got[65536];
	struct pollfd ends[2] = { { .fd = from, .events = POLLOUT },
		{ .fd = to, .events = POLLIN } };
	int64_t began = clock_mono_us();
	size_t sent = 0, received = 0;

	for (size_t i = 0; i < sizeof piece; i++)
		piece[i] = (char)(i * 31 + i / 256);
	while (received < all) {
		ssize_t len;

		ends[0].events = sent < all ? POLLOUT : 0;
		assert_true(poll(ends, 2, 5000) > 0);
		if (ends[0].revents & POLLOUT) {
			size_t at = sent % sizeof piece;

			len = send(
				from, piece + at, MIN(sizeof piece - at, all - sent), MSG_DONTWAIT);
			sent += len > 0 ? (size_t)len : 0;
		}
		if (!(ends[1].revents & POLLIN))
			continue;
		len = recv(to, got, sizeof got - received % sizeof got, MSG_DONTWAIT);
		assert_true(len > 0);
		assert_memory_equal(got, piece + received % sizeof piece, (size_t)len);
		received += (size_t)len;
	}
	return clock_mono_us() - began;
}

static void much_is_carried_both_ways(void **state)
{
	enum { ALL = 32 << 20 };
	int listener = listen_inside("0.0.0.0", 8080), fd = -1, peer;
	int64_t down, up;

	(void)state;
	assert_int_equal(connect_outcome(netns, 8080, &fd), 0);
	peer = accept(listener, NULL, NULL);
	down = carry_much(fd, peer, ALL);
	up = carry_much(peer, fd, ALL);
	printf("into the box %lld MB/s, out of it %lld MB/s\n", (long long)ALL / down,
		(long long)ALL / up);
	close(fd);
	close(peer);
	close(listener);
}

static void two_boxes_with_the_same_addresses_live_beside_each_other(void **state)
{
	struct vm_guest other;
	int others[DOOR_COUNT], mine = listen_inside("0.0.0.0", 8080), fd = -1;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(vm_guest_start(plan, home, &other, &err), 0);
	assert_int_equal(doors_open(other.netns, others, &err), 0);
	assert_int_equal(try_tcp(SYNTHETIC, 443, &fd), 0);
	assert_accepted(SYNTHETIC, 443);
	close(fd);
	inner = other.inner;
	assert_int_equal(try_tcp(SYNTHETIC, 443, &fd), 0);
	inner = guest.inner;
	wait_readable(others[DOOR_TCP]);
	close(accept(others[DOOR_TCP], NULL, NULL));
	close(fd);
	assert_int_equal(accept(doors[DOOR_TCP], NULL, NULL), -1);
	assert_int_equal(connect_outcome(netns, 8080, NULL), 0);
	assert_int_equal(connect_outcome(other.netns, 8080, NULL), ECONNREFUSED);
	close(mine);
	doors_close(others);
	vm_guest_end(&other);
	/* What went away with the other did not touch this one. */
	assert_int_equal(try_tcp(SYNTHETIC, 443, &fd), 0);
	assert_accepted(SYNTHETIC, 443);
	close(fd);
}

/* ---- a box that lies ------------------------------------------------------------------------ */

/* Bound to an address that is not the box's own. */
static void assert_only_reported_from(const char *source, const char *to)
{
	struct doors_refused refused;
	char text[ADDRESS_TEXT_MAX];
	struct timeval patience = { .tv_usec = 300000 };
	struct sockaddr_storage own, far;
	socklen_t own_len = aim(source, 0, &own), far_len = aim(to, 443, &far);
	int fd = inner_socket(source, SOCK_STREAM);

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	assert_int_equal(setsockopt(fd, SOL_IP, IP_TRANSPARENT, &(int){ 1 }, sizeof(int)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&own, own_len), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&far, far_len), -1);
	assert_int_equal(errno, EINPROGRESS); /* that is a time-out here */
	close(fd);
	wait_readable(doors[DOOR_REFUSED]);
	assert_int_equal(doors_refused_read(doors[DOOR_REFUSED], &refused, 1, NULL), 1);
	assert_string_equal(address_format(&refused.from.address, text), source);
	assert_string_equal(address_format(&refused.to.address, text), to);
	assert_int_equal(refused.to.port, 443);
}

static void forged_sources_get_no_answer_but_a_line(void **state)
{
	(void)state;
	assert_only_reported_from("198.18.0.77", SYNTHETIC);
	assert_only_reported_from("198.18.0.1", SYNTHETIC);
	assert_only_reported_from("10.0.0.9", SYNTHETIC);
	assert_only_reported_from("fd62:6f78:7961:7264::77", SYNTHETIC_V6);
	assert_only_reported_from("2001:db8::77", SYNTHETIC_V6);
	assert_int_equal(accept(doors[DOOR_TCP], NULL, NULL), -1);
	assert_nothing_reported();
}

static void what_is_for_everybody_is_not_reported(void **state)
{
	static const char *const addresses[] = { "255.255.255.255", "224.0.0.251", "239.1.2.3",
		"ff02::fb", "ff02::1" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
		struct sockaddr_storage to;
		socklen_t len = aim(addresses[i], 5353, &to);
		int fd = inner_socket(addresses[i], SOCK_DGRAM);

		setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &(int){ 1 }, sizeof(int));
		if (to.ss_family == AF_INET6)
			((struct sockaddr_in6 *)&to)->sin6_scope_id = 2;
		assert_int_equal(sendto(fd, "x", 1, 0, (struct sockaddr *)&to, len), 1);
		close(fd);
	}
	usleep(50000);
	assert_nothing_reported();
}

/* ---- what it costs -------------------------------------------------------------------------- */

static void a_namespace_is_made_quickly(void **state)
{
	enum { TIMES = 40 };
	int64_t all = 0, most = 0;

	(void)state;
	for (int i = 0; i < TIMES; i++) {
		struct err err = ERR_INIT;
		int64_t began = clock_mono_us(), took;
		int made, tap;

		assert_int_equal(doors_make_vm(plan, &made, &tap, &err), 0);
		took = clock_mono_us() - began;
		all += took;
		most = MAX(most, took);
		close(tap);
		close(made);
	}
	printf("a namespace with a tap: %lld us, at most %lld us\n", (long long)all / TIMES,
		(long long)most);
	assert_true(all / TIMES < 20000); /* about 1000 alone on the machine */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_lead_to_the_door),
		cmocka_unit_test(all_else_is_refused_at_once_and_told),
		cmocka_unit_test(refusals_do_not_run_out),
		cmocka_unit_test(questions_for_anybody_end_here),
		cmocka_unit_test(datagrams_get_an_answer_in_the_right_name),
		cmocka_unit_test(a_datagram_is_refused_after_it_came),
		cmocka_unit_test(ports_of_the_box_are_reached),
		cmocka_unit_test(much_is_carried_both_ways),
		cmocka_unit_test(two_boxes_with_the_same_addresses_live_beside_each_other),
		cmocka_unit_test(forged_sources_get_no_answer_but_a_line),
		cmocka_unit_test(what_is_for_everybody_is_not_reported),
		/* after all that count reports: what its connections still say is refused */
		cmocka_unit_test(ranges_open_and_close),
		cmocka_unit_test(without_the_sockets_everything_is_closed),
		cmocka_unit_test(a_namespace_is_made_quickly),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
