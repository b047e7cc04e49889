/* fuzz_control.c - arbitrary bytes as what a VM says on its control port
 *
 * As the driver does: what comes before the greeting is skipped, then frames; the payload of each
 * goes through every reader. A record that was well-formed is written again and must come out the
 * same, but for figures that were bounded. */
#include "wire/control.h"
#include <assert.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, size_t max)
{
	assert(text && strlen(text) <= max);
}

static void check_same(const struct control_frame *frame, struct wire_reader *in, struct buf *again)
{
	if (wire_get_done(in, NULL) == 0) {
		assert(again->len == frame->len);
		assert(!frame->len || !memcmp(buf_head(again), frame->payload, frame->len));
	}
	buf_done(again);
	*in = (struct wire_reader)WIRE_READER(frame);
}

static void read_answers(const struct control_frame *frame)
{
	struct wire_reader in = WIRE_READER(frame);
	struct control_greeting greeting;
	struct control_stats stats;
	struct control_timer timer;
	struct control_who who;
	struct buf again = BUF_INIT;

	control_get_greeting(&in, &greeting);
	control_put_greeting(&again, &greeting);
	check_same(frame, &in, &again);
	control_get_timer(&in, &timer);
	check_text(timer.call, CONTROL_COMM_MAX);
	check_text(timer.comm, CONTROL_COMM_MAX);
	assert(timer.kind <= CONTROL_TIMER_UNKNOWN);
	control_put_timer(&again, &timer);
	check_same(frame, &in, &again);
	control_get_who(&in, &who);
	check_text(who.comm, CONTROL_COMM_MAX);
	check_text(who.command, CONTROL_PATH_MAX);
	control_put_who(&again, &who);
	check_same(frame, &in, &again);
	control_get_stats(&in, &stats);
	assert(stats.cpu_us <= UINT64_C(1) << 56 && stats.memory_total <= UINT64_C(1) << 56);
}

static void read_questions(const struct control_frame *frame)
{
	struct wire_reader in = WIRE_READER(frame);
	struct control_hello hello;
	struct control_tell tell;
	struct control_flow flow;
	struct buf again = BUF_INIT;

	control_get_hello(&in, &hello);
	control_put_hello(&again, &hello);
	check_same(frame, &in, &again);
	control_get_tell(&in, &tell);
	check_text(tell.hostname, CONTROL_NAME_MAX);
	control_put_tell(&again, &tell);
	check_same(frame, &in, &again);
	control_get_flow(&in, &flow);
	control_put_flow(&again, &flow);
	check_same(frame, &in, &again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf in = BUF_INIT;
	struct control_frame frame;
	bool had;
	int got;

	buf_add(&in, data, size);
	had = control_has_hello(&in);
	assert(control_find_hello(&in, NULL) == had);
	assert(had || in.len < CONTROL_HELLO_SIZE);
	assert(!had || control_frame_parse(&in, &frame, NULL) == 1);
	buf_done(&in);
	buf_add(&in, data, size);
	wire_find_hello(&in, NULL);
	buf_done(&in);
	buf_add(&in, data, size);
	while ((got = control_frame_parse(&in, &frame, NULL)) > 0) {
		assert(frame.type < CONTROL_TYPE_COUNT && frame.len <= CONTROL_PAYLOAD_MAX);
		assert(CONTROL_HEADER + frame.len <= in.len);
		read_answers(&frame);
		read_questions(&frame);
		buf_eat(&in, CONTROL_HEADER + frame.len);
	}
	assert(control_frame_parse(&in, &frame, NULL) == got);
	buf_done(&in);
	return 0;
}
