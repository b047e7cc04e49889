/* test_socket_owner.c - which process of a box made a connection
 *
 * A stand-in for a box: a child in new network, pid and user namespaces that connects to itself
 * over loopback and tells its ends. Needs root. */
#include "core/boxnet/socket_owner.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum kind { TCP4, TCP6, TCP_MAPPED, UDP4, UDP_UNCONNECTED, KINDS };
enum { UID_BASE = 100000, UID_INSIDE = 33, MANY = 300 };

/* What the child has, told in one message. */
struct ends {
	struct doors_endpoint from[KINDS], to[KINDS];
	unsigned long long inode[KINDS];
	bool ok;
};

struct fixture {
	pid_t child;
	int netns;
	struct ends ends;
};

/* ---- in the box ----------------------------------------------------------------------------- */

static void raise_loopback(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (ioctl(fd, SIOCSIFFLAGS, &lo) < 0)
		_exit(3);
	close(fd);
}

static struct doors_endpoint endpoint_of(const struct sockaddr_in6 *address)
{
	struct doors_endpoint endpoint = { .port = ntohs(address->sin6_port) };

	if (address->sin6_family == AF_INET)
		endpoint.address = address_v4(
			(const uint8_t *)&((const struct sockaddr_in *)address)->sin_addr);
	else if (IN6_IS_ADDR_V4MAPPED(&address->sin6_addr))
		endpoint.address = address_v4(address->sin6_addr.s6_addr + 12);
	else
		endpoint.address = address_v6(address->sin6_addr.s6_addr);
	return endpoint;
}

/* A socket of the kind, connected to a listener of the same process. */
static int connect_self(enum kind kind, struct ends *ends)
{
	static const char *const places[KINDS] = { "127.0.0.1", "::1", "::ffff:127.0.0.1",
		"127.0.0.1", "127.0.0.1" };
	int type = kind >= UDP4 ? SOCK_DGRAM : SOCK_STREAM;
	int family = kind == TCP6 || kind == TCP_MAPPED ? AF_INET6 : AF_INET;
	struct sockaddr_in6 far = { .sin6_family = (sa_family_t)family }, own = { 0 };
	socklen_t len = sizeof far;
	int server = socket(family, type, 0), client = socket(family, type, 0);

	inet_pton(family, places[kind],
		family == AF_INET ? (void *)&((struct sockaddr_in *)&far)->sin_addr
				  : &far.sin6_addr);
	if (bind(server, (struct sockaddr *)&far, sizeof far) < 0 ||
		(type == SOCK_STREAM && listen(server, 4) < 0) ||
		getsockname(server, (struct sockaddr *)&far, &len) < 0)
		return -1;
	if (kind == UDP_UNCONNECTED ? sendto(client, "x", 1, 0, (struct sockaddr *)&far, len) < 0
				    : connect(client, (struct sockaddr *)&far, len) < 0)
		return -1;
	len = sizeof own;
	getsockname(client, (struct sockaddr *)&own, &len);
	ends->from[kind] = endpoint_of(&own);
	ends->to[kind] = endpoint_of(&far);
	if (kind == UDP_UNCONNECTED) /* bound to any address; datagrams leave from this one */
		ends->from[kind].address = ends->to[kind].address;
	return client;
}

static unsigned long long inode_of(int fd)
{
	char path[32], link[64] = "";

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return readlink(path, link, sizeof link - 1) > 8 ? strtoull(link + 8, NULL, 10) : 0;
}

static _Noreturn void box_main(int sock)
{
	struct ends ends = { .ok = true };
	char go;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(sock, &go, 1) != 1) /* the map of ids is written */
		_exit(1);
	if (setresuid(UID_INSIDE, UID_INSIDE, 0) < 0)
		_exit(2);
	seteuid(0);
	raise_loopback();
	for (enum kind kind = 0; kind < KINDS; kind++) {
		int fd = connect_self(kind, &ends);

		ends.ok = ends.ok && fd >= 0;
		ends.inode[kind] = inode_of(fd);
	}
	if (seteuid(UID_INSIDE) < 0 || write(sock, &ends, sizeof ends) != sizeof ends)
		_exit(4);
	for (;;)
		pause();
}

/* ---- the box from outside ------------------------------------------------------------------- */

static int set_up(void **state)
{
	struct fixture *f = xnew(struct fixture);
	char path[48], map[48];
	int pair[2];

	*state = f;
	f->netns = -1;
	if (geteuid() != 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return 0;
	f->child = (pid_t)syscall(
		SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | SIGCHLD, 0, 0, 0, 0);
	if (f->child == 0)
		box_main(pair[1]);
	close(pair[1]);
	snprintf(map, sizeof map, "0 %d 65536", UID_BASE);
	snprintf(path, sizeof path, "/proc/%d/uid_map", (int)f->child);
	if (f->child < 0 || file_poke(AT_FDCWD, path, map, NULL) < 0 ||
		write(pair[0], "g", 1) != 1 ||
		read(pair[0], &f->ends, sizeof f->ends) != sizeof f->ends || !f->ends.ok) {
		close(pair[0]);
		return 0;
	}
	close(pair[0]);
	snprintf(path, sizeof path, "/proc/%d/ns/net", (int)f->child);
	f->netns = open(path, O_RDONLY | O_CLOEXEC);
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	socket_owner_close();
	if (f->netns >= 0)
		close(f->netns);
	if (f->child > 0) {
		kill(f->child, SIGKILL);
		waitpid(f->child, NULL, 0);
	}
	free(f);
	return 0;
}

static struct fixture *need_box(void **state)
{
	struct fixture *f = *state;

	if (f->netns < 0) {
		print_message("    needs root and user namespaces: skipped\n");
		skip();
	}
	return f;
}

/* A look lasts a few milliseconds at most and may fail on a busy machine: the next one will do. */
enum { TRIES = 50 };

static int find_socket(const struct fixture *f, uint8_t protocol, const struct doors_endpoint *from,
	const struct doors_endpoint *to, ino_t *ret_inode, uid_t *ret_uid)
{
	for (int i = 0; i < TRIES; i++)
		if (socket_owner_find(f->netns, protocol, from, to, ret_inode, ret_uid, NULL) == 0)
			return 0;
	return -1;
}

static json_t *find_process(
	const struct fixture *f, const json_t *event, const pid_t *pids, size_t count)
{
	json_t *process = NULL;

	for (int i = 0; i < TRIES && !process; i++) {
		if (i)
			/* its time is bounded, and the machine may be busy elsewhere */
			usleep(i * 1000);
		process = socket_owner_of_event(f->netns, event, pids, count);
		if (process && json_string_value(json_object_get(process, "command"))[0] == '[') {
			json_decref(process);
			process = NULL;
		}
	}
	return process;
}

static ino_t home_inode(void)
{
	char link[64] = "";

	assert_true(readlink("/proc/self/ns/net", link, sizeof link - 1) > 5);
	return (ino_t)strtoull(link + 5, NULL, 10);
}

static const uint8_t protocols[KINDS] = { IPPROTO_TCP, IPPROTO_TCP, IPPROTO_TCP, IPPROTO_UDP,
	IPPROTO_UDP };

static void test_socket_is_found_by_its_ends(void **state)
{
	struct fixture *f = need_box(state);
	ino_t home = home_inode();

	for (enum kind kind = 0; kind < KINDS; kind++) {
		ino_t inode = 0;
		uid_t uid = 0;

		if (find_socket(f, protocols[kind], &f->ends.from[kind], &f->ends.to[kind], &inode,
			    &uid) < 0)
			fail_msg("kind %d", kind);
		assert_int_equal(inode, f->ends.inode[kind]);
		assert_int_equal(uid, UID_BASE);
	}
	assert_int_equal(home_inode(), home);
}

static void test_socket_is_found_without_far_address(void **state)
{
	struct fixture *f = need_box(state);

	for (enum kind kind = 0; kind < KINDS; kind++) {
		struct doors_endpoint to = { .port = f->ends.to[kind].port };
		ino_t inode = 0;
		uid_t uid = 0;

		if (find_socket(f, protocols[kind], &f->ends.from[kind], &to, &inode, &uid) < 0)
			fail_msg("kind %d", kind);
		assert_int_equal(inode, f->ends.inode[kind]);
	}
}

static void test_socket_that_is_not_there(void **state)
{
	struct fixture *f = need_box(state);
	struct doors_endpoint from = f->ends.from[TCP4], to = f->ends.to[TCP4],
			      none = { .port = 1 };
	struct err err = ERR_INIT;
	ino_t inode;
	uid_t uid;

	from.port = 1;
	assert_int_equal(
		socket_owner_find(f->netns, IPPROTO_TCP, &from, &to, &inode, &uid, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_int_equal(
		socket_owner_find(f->netns, IPPROTO_TCP, &from, &none, &inode, &uid, NULL), -1);
	/* A listener is nobody's connection: the far end's own port, asked for as if it were a
	 * client's. */
	from = f->ends.to[TCP4];
	assert_int_equal(
		socket_owner_find(f->netns, IPPROTO_TCP, &from, &none, &inode, &uid, NULL), -1);
	assert_int_equal(
		socket_owner_find(f->netns, IPPROTO_ICMP, &from, &to, &inode, &uid, NULL), -1);
}

static void check_process(json_t *process, const char *command)
{
	assert_non_null(process);
	assert_int_equal(json_integer_value(json_object_get(process, "pid")), 1);
	assert_int_equal(json_integer_value(json_object_get(process, "uid")), UID_INSIDE);
	assert_non_null(strstr(json_string_value(json_object_get(process, "command")), command));
	json_decref(process);
}

static json_t *event_of(const struct fixture *f, enum kind kind, const char *name)
{
	char from[64], to[64];
	const char *form = f->ends.from[kind].address.family == 6 ? "[%s]:%u" : "%s:%u";

	snprintf(from, sizeof from, form, address_format(&f->ends.from[kind].address, to),
		f->ends.from[kind].port);
	address_format(&f->ends.to[kind].address, to);
	return json_pack("{s:s,s:s,s:s,s:i,s:s*}", "from", from, "protocol",
		protocols[kind] == IPPROTO_TCP ? "tcp" : "udp", "address", name ? "192.0.2.7" : to,
		"port", f->ends.to[kind].port, "name", name);
}

static void test_process_is_told_for_an_event(void **state)
{
	struct fixture *f = need_box(state);
	pid_t pids[] = { getpid(), f->child, 1 };

	for (enum kind kind = 0; kind < KINDS; kind++) {
		_cleanup_json_ json_t *event = event_of(f, kind, NULL);
		_cleanup_json_ json_t *named = event_of(f, kind, "example.com");

		check_process(find_process(f, event, pids, ARRAY_LEN(pids)), "test_socket_o");
		check_process(find_process(f, named, pids, ARRAY_LEN(pids)), "test_socket_o");
		assert_null(socket_owner_of_event(f->netns, event, pids, 1));
	}
}

static void test_nonsense_in_events_finds_nobody(void **state)
{
	struct fixture *f = need_box(state);
	static const char *const froms[] = { "", ":", "x:1", "127.0.0.1:", "127.0.0.1:0",
		"127.0.0.1:99999", "[::1:80", "[]:80", "::1]:2", "127.0.0.1:1 " };

	for (size_t i = 0; i < ARRAY_LEN(froms); i++) {
		_cleanup_json_ json_t *event =
			json_pack("{s:s,s:s,s:i}", "from", froms[i], "protocol", "tcp", "port", 80);

		assert_null(socket_owner_of_event(f->netns, event, &f->child, 1));
	}
	{
		_cleanup_json_ json_t *event = json_object();

		assert_null(socket_owner_of_event(f->netns, event, &f->child, 1));
	}
}

/* ---- command lines -------------------------------------------------------------------------- */

/* A child with this command line, as it gives it to itself: hostile bytes too. */
static pid_t start_with(char *const argv[])
{
	int pipes[2];
	pid_t pid;
	char byte;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execv("/bin/sleep", argv);
		_exit(1);
	}
	close(pipes[1]);
	assert_int_equal(read(pipes[0], &byte, 1), 0); /* closed by exec */
	close(pipes[0]);
	return pid;
}

static int64_t command_of(pid_t pid, char command[SOCKET_OWNER_COMMAND_MAX + 1])
{
	int64_t start = clock_mono_us();
	char path[32];
	int proc;

	snprintf(path, sizeof path, "/proc/%d", (int)pid);
	proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	socket_owner_command(proc, start + 200000, command);
	close(proc);
	return clock_mono_us() - start;
}

static void check_command(char *first, const char *wanted)
{
	char *argv[] = { first, "1000", NULL };
	char command[SOCKET_OWNER_COMMAND_MAX + 1];
	pid_t pid = start_with(argv);

	command_of(pid, command);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_string_equal(command, wanted);
}

static void test_command_line_is_one_clean_line(void **state)
{
	char longest[400], wanted[SOCKET_OWNER_COMMAND_MAX + 1];

	(void)state;
	check_command("sleep", "sleep 1000");
	check_command("a\nb\033[2J\x7f", "a?b?[2J? 1000");
	check_command("caf\xc3\xa9 \xff\xfe\xc2\x9b", "caf\xc3\xa9 ???? 1000");
	memset(longest, 'x', sizeof longest);
	memcpy(longest + 199, "\xc3\xa9", 2); /* cut in the middle */
	longest[399] = '\0';
	memset(wanted, 'x', 199);
	wanted[199] = '\0';
	check_command(longest, wanted);
	check_command("", " 1000");
	socket_owner_close();
}

/* The one child besides those of the test: the reader. */
static pid_t reader_pid(pid_t other)
{
	_cleanup_free_ char *text = NULL;
	char *at, path[64];

	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	assert_int_equal(file_read(AT_FDCWD, path, 4096, &text, NULL, NULL), 0);
	for (at = strtok(text, " "); at; at = strtok(NULL, " "))
		if (atoi(at) != other)
			return atoi(at);
	return -1;
}

/* As if the memory of the process were locked: the reader does not answer, and nobody waits for
 * it. */
static void test_command_line_that_cannot_be_read_holds_nobody_up(void **state)
{
	char *argv[] = { "sleep", "1000", NULL };
	char command[SOCKET_OWNER_COMMAND_MAX + 1];
	pid_t pid = start_with(argv), reader;
	int64_t start;

	(void)state;
	command_of(pid, command);
	assert_string_equal(command, "sleep 1000");
	reader = reader_pid(pid);
	assert_true(reader > 0);
	kill(reader, SIGSTOP);
	assert_in_range(command_of(pid, command), 199000, 400000);
	assert_string_equal(command, "[sleep]");
	for (int i = 0; i < 100; i++) { /* it is asked nothing more */
		assert_in_range(command_of(pid, command), 0, 100000);
		assert_string_equal(command, "[sleep]");
	}
	/* After a second another takes its place. */
	for (start = clock_mono_us();
		!strcmp(command, "[sleep]") && clock_mono_us() - start < 5000000; usleep(20000))
		command_of(pid, command);
	assert_string_equal(command, "sleep 1000");
	assert_int_not_equal(reader_pid(pid), reader);
	/* One that goes on in time gives its late answer to nobody. */
	kill(reader_pid(pid), SIGSTOP);
	command_of(pid, command);
	kill(reader_pid(pid), SIGCONT);
	usleep(20000);
	command_of(getpid(), command);
	assert_non_null(strstr(command, "test_socket_o"));
	/* One that was killed is replaced. */
	kill(reader_pid(pid), SIGKILL);
	usleep(20000);
	command_of(pid, command);
	command_of(pid, command);
	assert_string_equal(command, "sleep 1000");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	socket_owner_close();
}

static void test_search_is_bounded(void **state)
{
	struct fixture *f = need_box(state);
	pid_t pids[2000];
	int64_t start, took;
	int fds[MANY];

	for (size_t i = 0; i < ARRAY_LEN(pids); i++)
		pids[i] = getpid();
	for (int i = 0; i < MANY; i++)
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	start = clock_mono_us();
	assert_null(socket_owner_holds(f->ends.inode[TCP4], pids, ARRAY_LEN(pids)));
	took = clock_mono_us() - start;
	print_message("    not found: %.1f ms\n", (double)took / 1000);
	assert_in_range(took, 0, 100000);
	for (int i = 0; i < MANY; i++)
		close(fds[i]);
}

/* Another process may take the core for longer than a look may last: then it is not found. */
static void test_figures(void **state)
{
	struct fixture *f = need_box(state);
	enum { ROUNDS = 200 };

	for (int named = 0; named < 2; named++) {
		_cleanup_json_ json_t *event = event_of(f, TCP4, named ? "example.com" : NULL);
		int64_t start = clock_mono_us();
		int found = 0;

		for (int i = 0; i < ROUNDS; i++) {
			_cleanup_json_ json_t *process =
				socket_owner_of_event(f->netns, event, &f->child, 1);

			found += process != NULL;
		}
		print_message("    %s: %.0f us, %d of %d\n", named ? "by port" : "by both ends",
			(double)(clock_mono_us() - start) / ROUNDS, found, ROUNDS);
		assert_in_range(found, 1, ROUNDS);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_socket_is_found_by_its_ends),
		TEST(test_socket_is_found_without_far_address),
		TEST(test_socket_that_is_not_there),
		TEST(test_process_is_told_for_an_event),
		TEST(test_nonsense_in_events_finds_nobody),
		cmocka_unit_test(test_command_line_is_one_clean_line),
		cmocka_unit_test(test_command_line_that_cannot_be_read_holds_nobody_up),
		TEST(test_search_is_bounded),
		TEST(test_figures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
