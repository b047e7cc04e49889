/* test_ingress_hostile.c - boxes and clients that try to get more than theirs: each other's
 * answers, time, memory */
#include "ingress_fixture.h"
#include <sys/resource.h>

enum { SLOW_CLIENTS = 300, DOWN_MEMORY_MAX = 110 * 1000000, UP_MEMORY_MAX = 70 * 1000000 };

/* A request has come to the box, whose connection is the result. */
static int box_capture(void)
{
	int box = box_accept();

	hear(box, "\r\n\r\n");
	return box;
}

static void make_file(const char *name)
{
	char path[96];

	snprintf(path, sizeof path, "%s/%s", fixture.home, name);
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

/* ---- answers -------------------------------------------------------------------------------- */

/* Bytes nobody asked for and the next request are there in one round of the loop, the request
 * first. */
static void test_unasked_bytes_answer_nobody(void **state)
{
	int client = client_connect(), box, second;
	_cleanup_free_ char *answer = NULL;

	(void)state;
	say(client, "HEAD / HTTP/1.1\r\n" WEB "\r\n");
	box = box_capture();
	say(box, OK(4));
	hear(client, "\r\n\r\n");
	usleep(50000); /* until it waits again */
	kill(fixture.pid, SIGSTOP);
	waitpid(fixture.pid, NULL, WUNTRACED);
	say(client, GET("/"));
	say(box, OK(4) "evil");
	kill(fixture.pid, SIGCONT);
	second = box_capture();
	say(second, OK(4) "good");
	answer = heard(client, "\r\n\r\ngood");
	assert_null(strstr(answer, "evil"));
	close(client);
	close(box);
	close(second);
}

/* ---- time ----------------------------------------------------------------------------------- */

/* What hangs is given up when its time is over, each as soon as the first. */
static void test_connections_that_hang_are_all_given_up_in_time(void **state)
{
	int clients[100];
	int64_t began = http_now_ms();

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(clients); i++) {
		clients[i] = client_connect();
		say(clients[i], "GET / HTTP/1.1\r\nHost: 2-web.localhost\r\n\r\n");
	}
	for (size_t i = 0; i < ARRAY_LEN(clients); i++) {
		hear(clients[i], "does not answer");
		close(clients[i]);
	}
	assert_in_range(http_now_ms() - began, 1900, 4000);
}

/* ---- memory --------------------------------------------------------------------------------- */

static size_t memory_of(pid_t pid)
{
	char path[64];
	unsigned long whole, resident = 0;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/statm", pid);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%lu %lu", &whole, &resident), 2);
	fclose(file);
	return resident * 4096;
}

/* What the kernel's buffers take, then what is kept in ours. */
static void fill_all(const int *fds)
{
	static char data[256 * 1024];
	size_t sum = 1;

	for (int round = 0; sum && round < 200; round++, usleep(20000)) {
		sum = 0;
		for (size_t i = 0; i < SLOW_CLIENTS; i++) {
			ssize_t put = send(fds[i], data, sizeof data, MSG_DONTWAIT | MSG_NOSIGNAL);

			sum += put > 0 ? (size_t)put : 0;
		}
	}
	assert_int_equal(sum, 0);
}

static void with_small_buffers(int fd)
{
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){ 262144 }, sizeof(int));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){ 4096 }, sizeof(int));
}

/* Many clients that take nothing, of boxes that send much. */
static void test_many_slow_clients_cost_little(void **state)
{
	static int clients[SLOW_CLIENTS], boxes[SLOW_CLIENTS];
	struct rlimit files = { 4096, 4096 };

	(void)state;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	for (size_t i = 0; i < SLOW_CLIENTS; i++) {
		clients[i] = client_connect();
		with_small_buffers(clients[i]);
		say(clients[i], GET("/down"));
		boxes[i] = box_capture();
		with_small_buffers(boxes[i]);
		say(boxes[i], "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n");
	}
	fill_all(boxes);
	print_message("%zu slow clients: %zu MB\n", (size_t)SLOW_CLIENTS,
		memory_of(fixture.pid) / 1000000);
	assert_true(memory_of(fixture.pid) < DOWN_MEMORY_MAX);
	for (size_t i = 0; i < SLOW_CLIENTS; i++) {
		close(clients[i]);
		close(boxes[i]);
	}
}

/* The same the other way round: uploads that the boxes do not read. */
static void test_many_stuck_uploads_cost_little(void **state)
{
	static int clients[SLOW_CLIENTS], boxes[SLOW_CLIENTS];

	(void)state;
	setsockopt(fixture.listener, SOL_SOCKET, SO_RCVBUF, &(int){ 4096 }, sizeof(int));
	for (size_t i = 0; i < SLOW_CLIENTS; i++) {
		clients[i] = client_connect();
		with_small_buffers(clients[i]);
		say(clients[i], "POST /up HTTP/1.1\r\n" WEB "Content-Length: 99999999\r\n\r\n");
		boxes[i] = box_capture();
	}
	fill_all(clients);
	print_message("%zu stuck uploads: %zu MB\n", (size_t)SLOW_CLIENTS,
		memory_of(fixture.pid) / 1000000);
	assert_true(memory_of(fixture.pid) < UP_MEMORY_MAX);
	for (size_t i = 0; i < SLOW_CLIENTS; i++) {
		close(clients[i]);
		close(boxes[i]);
	}
}

/* ---- tunnels -------------------------------------------------------------------------------- */

#define UPGRADE "Connection: Upgrade\r\nUpgrade: x\r\n"

static int open_tunnel(const char *request, int *ret_box)
{
	int client = client_connect();

	say(client, request);
	*ret_box = box_capture();
	say(*ret_box, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n");
	hear(client, "\r\n\r\n");
	say(*ret_box, "hello");
	hear(client, "hello");
	return client;
}

/* Who may not come in any more is not left inside. */
static void test_tunnels_end_with_what_let_them_in(void **state)
{
	int public_box, private_box;
	int public = open_tunnel("GET / HTTP/1.1\r\n" WEB UPGRADE "\r\n", &public_box);
	int private = open_tunnel("GET / HTTP/1.1\r\n" PRIVATE UPGRADE
				  "Authorization: Bearer box_good\r\n\r\n",
		&private_box);

	(void)state;
	make_file("closed");
	expect_end(public);
	expect_end(public_box);
	say(private_box, "still");
	hear(private, "still");
	make_file("revoked");
	expect_end(private);
	expect_end(private_box);
	close(public);
	close(public_box);
	close(private);
	close(private_box);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(test_unasked_bytes_answer_nobody),
		T(test_connections_that_hang_are_all_given_up_in_time),
		T(test_many_slow_clients_cost_little),
		T(test_many_stuck_uploads_cost_little),
		T(test_tunnels_end_with_what_let_them_in),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
