/* test_vm_net.c - the network of a real VM: its packets at our doors, ours in it, and what a copy
 * of it finds
 *
 * Under TCG, so that it runs everywhere; says aloud when QEMU or the kernel is missing. */
#include "doors_fixture.h"
#include "vm_fixture.h"
#include "loop/loop.h"

static bool here;
static struct loop *loop;
static struct doors_plan *plan;

static int setup(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	loop = loop_new();
	here = vm_world_open();
	if (doors_prepare(&plan, &err) == 0)
		return 0;
	printf("%s\n", err.message);
	return -1;
}

static int teardown(void **state)
{
	(void)state;
	doors_plan_free(plan);
	if (here)
		vm_world_close();
	loop_free(loop);
	return 0;
}

/* A machine with a network: netns and doors are its own from now on. */
static struct vm *start(const char *name, const char *state)
{
	struct err err = ERR_INIT;
	struct vm *vm;

	if (doors_make_vm(plan, &netns, &vm_tap, &err) < 0 || doors_open(netns, doors, &err) < 0)
		fail_msg("%s", err.message);
	vm = vm_start(loop, name, state, true);
	close(vm_tap);
	vm_tap = -1;
	if (state)
		vm_go_on(vm);
	vm_tell(vm, state ? CONTROL_COPY : CONTROL_NEW, name);
	vm_connect(vm);
	return vm;
}

static void expect(struct vm *vm, const char *command, const char *wanted)
{
	_cleanup_free_ char *output = vm_run(vm, command);

	if (strcmp(output, wanted) != 0)
		fail_msg("'%s' says '%s', not '%s'", command, output, wanted);
}

static int accept_one(void)
{
	int fd;

	wait_readable(doors[DOOR_TCP]);
	fd = accept(doors[DOOR_TCP], NULL, NULL);
	assert_true(fd >= 0);
	return fd;
}

/* The errno of a connection to a port of the VM. */
static int connect_to(uint16_t port, int *ret)
{
	struct pollfd poller = { .events = POLLOUT };
	struct err err = ERR_INIT;
	int why = 0;

	assert_int_equal(doors_connect(netns, DOORS_OUTSIDE, port, &poller.fd, &err), 0);
	assert_int_equal(poll(&poller, 1, 5000), 1);
	getsockopt(poller.fd, SOL_SOCKET, SO_ERROR, &why, &(socklen_t){ sizeof why });
	*ret = poller.fd;
	return why;
}

/* ---- out of it ------------------------------------------------------------------------------ */

static void check_ways_out(struct vm *vm)
{
	free(vm_run(vm, "(sleep 1 | nc 198.18.7.5 443) >/dev/null 2>&1 &"));
	assert_accepted(SYNTHETIC, 443);
	free(vm_run(vm, "(sleep 1 | nc fd62:6f78:7961:7264::705 22) >/dev/null 2>&1 &"));
	assert_accepted(SYNTHETIC_V6, 22);
	expect(vm, "nc 8.8.8.8 443 </dev/null 2>&1 | grep -c refused", "1\n");
	assert_reported("8.8.8.8", 443, IPPROTO_TCP);
	expect(vm, "nc 2001:db8::1 443 </dev/null 2>&1 | grep -c refused", "1\n");
	assert_reported("2001:db8::1", 443, IPPROTO_TCP);
	/* Root changes its address, and is alone with that. */
	expect(vm,
		"ip addr add 10.9.9.9/32 dev eth0; "
		"ip route add 198.18.7.5 via 198.18.0.1 dev eth0 onlink src 10.9.9.9; "
		"nc -w 1 198.18.7.5 443 </dev/null 2>&1 | grep -c 'timed out'; "
		"ip route del 198.18.7.5",
		"1\n");
	assert_int_equal(accept(doors[DOOR_TCP], NULL, NULL), -1);
}

static void on_who(const struct control_who *who, const struct err *err, void *arg)
{
	if (err)
		fail_msg("%s", err->message);
	assert_string_equal(who->comm, "nc");
	assert_true(who->pid > 1);
	(*(unsigned *)arg)++;
}

static void check_who(struct vm *vm)
{
	struct control_flow flow = { .protocol = IPPROTO_TCP, .family = 4 };
	struct sockaddr_in6 from, to;
	socklen_t len = sizeof from;
	unsigned done = 0;
	int fd;

	free(vm_run(vm, "(sleep 5 | nc 198.18.7.5 444) >/dev/null 2>&1 &"));
	fd = accept_one();
	assert_int_equal(getpeername(fd, (struct sockaddr *)&from, &len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&to, &len), 0);
	memcpy(flow.from, from.sin6_addr.s6_addr + 12, 4);
	memcpy(flow.to, to.sin6_addr.s6_addr + 12, 4);
	flow.from_port = ntohs(from.sin6_port);
	flow.to_port = ntohs(to.sin6_port);
	control_who(vm->control, &flow, on_who, &done);
	vm_wait(vm, &done, 1, 10);
	close(fd);
}

/* ---- into it -------------------------------------------------------------------------------- */

static void on_dialled(struct chan *chan, enum wire_stream stream, uint64_t offset,
	const void *data, size_t len, void *arg)
{
	(void)stream;
	(void)offset;
	assert_true(len > 7);
	assert_memory_equal(data, "HTTP/1.", 7);
	chan_close(chan);
	(*(unsigned *)arg)++;
}

static void on_dial_failed(struct chan *chan, const struct err *err, void *arg)
{
	(void)chan;
	(void)arg;
	fail_msg("%s", err->message);
}

static void check_ways_in(struct vm *vm)
{
	static const struct chan_ops ops = { .on_data = on_dialled, .on_error = on_dial_failed };
	static const char ask[] = "GET /none HTTP/1.0\r\n\r\n";
	struct buf request = BUF_INIT;
	struct err err = ERR_INIT;
	struct chan *chan;
	unsigned dialled = 0;
	char bytes[8];
	int fd;

	free(vm_run(vm, "nc -l -p 8080 -e cat >/dev/null 2>&1 & sleep 0.3"));
	assert_int_equal(connect_to(8080, &fd), 0);
	assert_int_equal(send(fd, "across", 6, 0), 6);
	wait_readable(fd);
	assert_int_equal(recv(fd, bytes, sizeof bytes, 0), 6);
	assert_memory_equal(bytes, "across", 6);
	close(fd);
	assert_int_equal(connect_to(8082, &fd), ECONNREFUSED);
	close(fd);
	/* A server on its loopback. */
	free(vm_run(vm, "busybox httpd -p 127.0.0.1:8081 -h /tmp"));
	assert_int_equal(connect_to(8081, &fd), ECONNREFUSED);
	close(fd);
	wire_put_u16(&request, 8081);
	chan = chan_open(vm->link, WIRE_OP_DIAL, &request, &ops, &dialled, &err);
	buf_done(&request);
	assert_non_null(chan);
	assert_int_equal(chan_send(chan, ask, strlen(ask)), strlen(ask));
	vm_wait(vm, &dialled, 1, 10);
}

static void test_packets_of_a_vm_meet_the_doors(void **state)
{
	struct vm *vm;

	(void)state;
	if (!here)
		skip();
	vm = start("ada", NULL);
	home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	check_ways_out(vm);
	check_ways_in(vm);
	check_who(vm);
	vm_free(vm);
	doors_close(doors);
	close(netns);
	close(home);
}

/* ---- copies --------------------------------------------------------------------------------- */

/* A copy has the parent's sockets, and a network of its own in which nobody knows of them. */
static void test_a_copy_has_a_network_of_its_own(void **state)
{
	_cleanup_free_ char *file = here ? xasprintf("%s/captured", vm_world_dir()) : NULL;
	int parent_doors[DOOR_COUNT], parent_netns, fd;
	struct vm *parent, *copy;
	char bytes[8];

	(void)state;
	if (!here)
		skip();
	parent = start("parent", NULL);
	free(vm_run(parent,
		"((while ! test -d /tmp/go; do sleep 0.1; done; echo hello; sleep 1000) | "
		"(nc 198.18.7.5 443; mkdir /tmp/ended)) >/dev/null 2>&1 &"));
	fd = accept_one();
	vm_capture(parent, file);
	memcpy(parent_doors, doors, sizeof doors);
	parent_netns = netns;
	copy = start("copy", file);
	/* What it says on the connection is said to nobody, and it hears that. */
	expect(copy, "mkdir /tmp/go; sleep 1; ls -d /tmp/ended", "/tmp/ended\n");
	free(vm_run(copy, "(sleep 1 | nc 198.18.7.5 443) >/dev/null 2>&1 &"));
	assert_accepted(SYNTHETIC, 443);
	/* The parent goes on where it was. */
	vm_qmp(parent, "cont", NULL);
	expect(parent, "mkdir /tmp/go; sleep 0.5; ls -d /tmp/ended 2>/dev/null", "");
	wait_readable(fd);
	assert_int_equal(recv(fd, bytes, sizeof bytes, 0), 6);
	close(fd);
	vm_free(copy);
	vm_free(parent);
	doors_close(doors);
	doors_close(parent_doors);
	close(netns);
	close(parent_netns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_packets_of_a_vm_meet_the_doors),
		cmocka_unit_test(test_a_copy_has_a_network_of_its_own),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
