/* test_core_kernel.c - the network of boxes with a kernel of their own: connections into them, and
 * the processes that they name
 *
 * The fake driver's boxes get that property when they run. */
#include "yard_fixture.h"
#include "audit/audit.h"
#include "core/boxnet/network.h"
#include "core/boxnet/network_internal.h"
#include "engine/engine_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

static struct engine_ops ops;
static struct engine *engine;
static const struct engine_ops *fake_ops;

/* ---- the driver's word ---------------------------------------------------------------------- */

static struct {
	enum { ANSWERS, REFUSES, IS_SILENT } how;
	struct instance_flow flow;
	instance_owner_fn done;
	void *arg;
	const char *command;
} word;

static void answer_now(void *arg)
{
	const struct instance_owner owner = { .pid = 7, .uid = 1000, .command = word.command };

	(void)arg;
	word.done(&owner, NULL, word.arg);
	word.done = NULL;
}

static int ask_owner(struct instance *instance, const struct instance_flow *flow,
	instance_owner_fn done, void *arg, struct err *err)
{
	(void)instance;
	if (word.how == REFUSES)
		return err_set(err, ERR_UNAVAILABLE, "not now");
	word.flow = *flow;
	word.done = done;
	word.arg = arg;
	if (word.how == ANSWERS)
		loop_defer(test.loop, answer_now, NULL);
	return 0;
}

static struct box *make_own_kernel(const char *name)
{
	struct box *box = make_box(name);

	engine = process_of(box)->instance->engine;
	fake_ops = engine->ops;
	ops = *fake_ops;
	ops.ask_owner = ask_owner;
	engine->ops = &ops;
	engine->can |= 1U << ENGINE_OWN_KERNEL;
	return box;
}

static void make_as_before(void)
{
	engine->ops = fake_ops;
	engine->can &= ~(1U << ENGINE_OWN_KERNEL);
}

/* ---- connections into it -------------------------------------------------------------------- */

/* The errno of a connecting socket, when it is there. */
static int outcome(int fd)
{
	struct pollfd poller = { .fd = fd, .events = POLLOUT };
	int why = 0;

	for (int i = 0; i < 500 && poll(&poller, 1, 0) == 0; i++)
		yard_run(2);
	assert_true(poller.revents);
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &(socklen_t){ sizeof why });
	return why;
}

static void read_all(int fd, size_t len, char *ret)
{
	size_t got = 0;

	for (int i = 0; i < 500 && got < len; i++) {
		ssize_t piece = recv(fd, ret + got, len - got, MSG_DONTWAIT);

		if (piece > 0)
			got += (size_t)piece;
		else
			yard_run(2);
	}
	assert_int_equal(got, len);
}

static int connect_to(struct box *box, uint16_t port, bool second)
{
	struct err err = ERR_INIT;
	int fd = -1;

	if (box_port_connect(box, port, second, &fd, &err) < 0)
		fail_msg("%s", err.message);
	assert_true(fd >= 0);
	return fd;
}

static void its_address_is_tried_first(void **state)
{
	struct box *box = make_own_kernel("ada");
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(8080) };
	_cleanup_close_ int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	int listener, fd;

	(void)state;
	own.sin_addr.s_addr = htonl(0xc6120002);
	assert_int_equal(setns(box->net->netns, CLONE_NEWNET), 0);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(setns(home, CLONE_NEWNET), 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&own, sizeof own), 0);
	assert_int_equal(listen(listener, 1), 0);
	fd = connect_to(box, 8080, false);
	assert_int_equal(outcome(fd), 0);
	close(fd);
	fd = connect_to(box, 8081, false);
	assert_int_equal(outcome(fd), ECONNREFUSED);
	close(fd);
	close(listener);
	make_as_before();
}

static void its_loopback_is_reached_by_box_init(void **state)
{
	enum { MUCH = 100 * 1000 };
	struct box *box = make_own_kernel("ada");
	_cleanup_free_ char *sent = xcalloc(1, MUCH), *got = xcalloc(1, MUCH);
	char byte;
	int fd = connect_to(box, 8080, true);

	(void)state;
	assert_int_equal(outcome(fd), 0);
	for (int i = 0; i < MUCH; i++)
		sent[i] = (char)(i * 7 + i / 251);
	for (size_t at = 0; at < MUCH;) {
		ssize_t put = send(fd, sent + at, MUCH - at, MSG_DONTWAIT);

		if (put > 0)
			at += (size_t)put;
		else
			yard_run(2);
	}
	read_all(fd, MUCH, got);
	assert_memory_equal(sent, got, MUCH);
	/* Ended one way, it ends the other way too: the server answers so. */
	shutdown(fd, SHUT_WR);
	yard_run(50);
	assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
	close(fd);
	yard_run(20);
	assert_null(box->net->dials);
	make_as_before();
}

static void a_closed_port_is_refused(void **state)
{
	struct box *box = make_own_kernel("ada");
	int fd = connect_to(box, FAKE_CLOSED_PORT, true);

	(void)state;
	assert_int_equal(outcome(fd), ECONNRESET);
	close(fd);
	yard_run(20);
	assert_null(box->net->dials);
	make_as_before();
}

static void dials_end_with_the_link_and_with_the_caller(void **state)
{
	struct box *box = make_own_kernel("ada");
	int one = connect_to(box, 8080, true), other = connect_to(box, 8081, true);
	char byte;

	(void)state;
	assert_int_equal(outcome(one), 0);
	assert_int_equal(outcome(other), 0);
	assert_int_equal(box->net->dial_count, 2);
	close(one); /* without a word: its channel goes too */
	yard_run(50);
	assert_int_equal(box->net->dial_count, 1);
	fake_init_hang_up(process_of(box));
	yard_run(50);
	assert_int_equal(recv(other, &byte, 1, MSG_DONTWAIT), 0);
	assert_int_equal(box->net->dial_count, 0);
	close(other);
	make_as_before();
}

static void a_box_has_only_so_many_dials(void **state)
{
	struct box *box = make_own_kernel("ada");
	struct err err = ERR_INIT;
	int fds[WIRE_CHANNELS_MAX], count = 0, fd;

	(void)state;
	while (count < WIRE_CHANNELS_MAX &&
		box_port_connect(box, 8080, true, &fds[count], &err) == 0)
		count++;
	assert_int_equal(count, WIRE_CHANNELS_MAX / 2);
	assert_int_equal(err.kind, ERR_LIMIT);
	yard_run(50);
	while (count)
		close(fds[--count]);
	yard_run(50);
	assert_int_equal(box->net->dial_count, 0);
	fd = connect_to(box, 8080, true);
	assert_int_equal(outcome(fd), 0);
	close(fd);
	yard_run(20);
	make_as_before();
}

/* ---- who made a connection ------------------------------------------------------------------ */

static json_t *told; /* the last line */
static unsigned lines;

static void on_line(void *arg, json_t *event)
{
	(void)arg;
	if (strcmp(json_get_text(event, "type"), "connect"))
		return;
	json_decref(told);
	told = json_incref(event);
	lines++;
}

/* Lines so far; they are told when they are in the file. */
static unsigned line_count(void)
{
	assert_int_equal(audit_flush(yard_get_audit(test.yard), NULL), 0);
	yard_run(5);
	return lines;
}

static void tell(struct owners *owners, struct box *box)
{
	owners_tell(owners, box,
		json_pack("{s:s,s:s,s:s,s:s,s:s,s:i}", "type", "connect", "box", box->row.id,
			"protocol", "tcp", "from", "198.18.0.2:40000", "to", "198.18.7.5:443",
			"port", 443));
}

static void the_box_is_asked_for_its_process(void **state)
{
	struct box *box = make_own_kernel("ada");
	struct owners *owners = owners_new(test.yard);
	struct audit_feed *feed = audit_feed_new(yard_get_audit(test.yard), on_line, NULL);
	json_t *process;

	(void)state;
	lines = 0;
	word.how = ANSWERS;
	word.command = "curl\x1b[31m \xff and more";
	tell(owners, box);
	assert_int_equal(line_count(), 0);
	yard_run(50);
	assert_int_equal(line_count(), 1);
	assert_int_equal(word.flow.protocol, IPPROTO_TCP);
	assert_int_equal(word.flow.from_port, 40000);
	assert_int_equal(word.flow.to_port, 443);
	assert_int_equal(word.flow.to.bytes[2], 7);
	process = json_object_get(told, "process");
	assert_int_equal(json_integer_value(json_object_get(process, "pid")), 7);
	assert_string_equal(json_get_text(process, "told_by"), "box");
	assert_string_equal(json_get_text(process, "command"), "curl?[31m ? and more");

	word.how = REFUSES; /* then it is written at once */
	tell(owners, box);
	assert_int_equal(line_count(), 2);
	assert_null(json_object_get(told, "process"));

	/* A box that does not answer delays its line, and no more. */
	word.how = IS_SILENT;
	tell(owners, box);
	yard_run(50);
	assert_int_equal(line_count(), 2);
	yard_skip(1000);
	yard_run(20);
	assert_int_equal(line_count(), 3);
	assert_null(json_object_get(told, "process"));
	word.command = "late";
	answer_now(NULL); /* too late, and harmless */
	assert_int_equal(line_count(), 3);

	/* The daemon ends: nothing is lost. */
	tell(owners, box);
	owners_settle(owners);
	assert_int_equal(line_count(), 4);
	answer_now(NULL);
	assert_int_equal(line_count(), 4);
	audit_feed_free(feed);
	json_decref(steal_ptr(&told));
	owners_free(owners);
	make_as_before();
}

static void a_box_that_ends_has_answered(void **state)
{
	struct box *box = make_own_kernel("ada");
	struct owners *owners = owners_new(test.yard);
	struct audit_feed *feed = audit_feed_new(yard_get_audit(test.yard), on_line, NULL);

	(void)state;
	lines = 0;
	word.how = IS_SILENT;
	tell(owners, box);
	fake_end(process_of(box), INSTANCE_END_KILLED);
	yard_run(50);
	yard_settle();
	assert_int_equal(line_count(), 1);
	audit_feed_free(feed);
	json_decref(steal_ptr(&told));
	owners_free(owners);
	make_as_before();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		YARD_TEST(its_address_is_tried_first),
		YARD_TEST(its_loopback_is_reached_by_box_init),
		YARD_TEST(a_closed_port_is_refused),
		YARD_TEST(dials_end_with_the_link_and_with_the_caller),
		YARD_TEST(a_box_has_only_so_many_dials),
		YARD_TEST(the_box_is_asked_for_its_process),
		YARD_TEST(a_box_that_ends_has_answered),
	};
	int status;

	if (yard_is_gate(argc, argv, &status))
		return status;
	return cmocka_run_group_tests(tests, yard_group_setup, yard_group_teardown);
}
