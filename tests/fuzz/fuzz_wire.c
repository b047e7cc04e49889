/* fuzz_wire.c - arbitrary bytes as frames, and as each of the records they may carry
 *
 * The bytes are parsed as a stream of frames, as the daemon and box-init do; the payload of each
 * frame goes through every reader. A record that was well-formed is written again and must come out
 * the same: what one side believes is what the other side said. */
#include "wire/wire.h"
#include <assert.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* ---- seeds: one good frame of each kind ------------------------------------------------------ */

static void add_seed(struct buf *out, unsigned which)
{
	static const char *const argv[] = { "sh", "-c", "true", NULL };
	struct err err = ERR_INIT;
	size_t mark = wire_begin(out, 1 + which % (WIRE_TYPE_COUNT - 1), which % 3);

	switch (which % 13) {
	case 0:
		wire_put_hello(out, &(struct wire_hello){ WIRE_MAGIC, WIRE_VERSION, 1, 5 });
		break;
	case 1:
		err_set(&err, ERR_NOT_FOUND, "no such program");
		wire_put_error(out, &err);
		break;
	case 2:
		wire_put_exec_spec(out, &(struct wire_exec_spec){ .id = "e1",
						.argv = argv,
						.env = argv,
						.cwd = "/",
						.user = "root",
						.tty = true });
		break;
	case 3:
		wire_put_attach_spec(out, &(struct wire_attach_spec){ .id = "e1", .follow = true });
		break;
	case 4:
		wire_put_exec_info(out, &(struct wire_exec_info){ .id = "e1", .argv = argv });
		break;
	case 5:
		wire_put_exit(out, &(struct wire_exit){ .reason = WIRE_EXIT_SIGNALED });
		break;
	case 6:
		wire_put_process(
			out, &(struct wire_process){ .state = 'R', .exec = "e", .command = "c" });
		break;
	case 7:
		wire_put_stat(out, &(struct wire_stat){ .name = "n", .target = "t" });
		break;
	case 8:
		wire_put_stats(out, &(struct wire_stats){ .processes = 3 });
		break;
	case 9:
		wire_put_request(out, &(struct wire_request){ .id = 1, .words = argv });
		break;
	case 10:
		wire_put_answer(out, &(struct wire_answer){ .kind = WIRE_ANSWER_OUT });
		break;
	case 11:
		wire_put_identity(
			out, &(struct wire_identity){ .name = "n", .id = "i", .parent = "p" });
		break;
	case 12:
		wire_put_told(out, &(struct wire_told){ 1, 1, "hook" });
		break;
	}
	wire_end(out, mark);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	if (seed % 32 == 0 || !size) {
		struct buf buf = BUF_INIT;

		add_seed(&buf, seed / 32);
		add_seed(&buf, seed / 64);
		size = MIN(buf.len, max_size);
		memcpy(data, buf_head(&buf), size);
		buf_done(&buf);
	}
	return LLVMFuzzerMutate(data, size, max_size);
}

/* ---- the readers ----------------------------------------------------------------------------- */

static void check_text(const char *text, size_t max)
{
	assert(text && strlen(text) <= max);
}

static void check_strv(const char *const *strv)
{
	size_t count = 0;

	assert(strv);
	for (; strv[count]; count++)
		check_text(strv[count], WIRE_PAYLOAD_MAX);
	assert(count <= WIRE_ARGV_MAX);
}

/* A well-formed record, written again, gives the bytes it was read from. */
static void check_same(const struct wire_frame *frame, struct buf *again)
{
	assert(again->len == frame->len);
	assert(!frame->len || !memcmp(buf_head(again), frame->payload, frame->len));
}

static void read_specs(const struct wire_frame *frame)
{
	struct wire_reader in = WIRE_READER(frame);
	struct wire_exec_spec spec;
	struct wire_attach_spec attach;

	wire_get_exec_spec(&in, &spec);
	check_text(spec.id, WIRE_EXEC_ID_MAX);
	check_text(spec.cwd, WIRE_PATH_MAX);
	check_text(spec.user, 128);
	check_strv(spec.argv);
	check_strv(spec.env);
	free((void *)spec.argv);
	free((void *)spec.env);
	in = (struct wire_reader)WIRE_READER(frame);
	wire_get_attach_spec(&in, &attach);
	check_text(attach.id, WIRE_EXEC_ID_MAX);
}

static void read_infos(const struct wire_frame *frame)
{
	struct wire_reader in = WIRE_READER(frame);
	struct wire_exec_info info;
	struct wire_exit over;
	struct buf again = BUF_INIT;

	wire_get_exec_info(&in, &info);
	check_text(info.id, WIRE_EXEC_ID_MAX);
	check_strv(info.argv);
	assert(info.reason < WIRE_EXIT_REASON_COUNT);
	free((void *)info.argv);
	in = (struct wire_reader)WIRE_READER(frame);
	wire_get_exit(&in, &over);
	assert(over.reason < WIRE_EXIT_REASON_COUNT);
	if (wire_get_done(&in, NULL) == 0) {
		wire_put_exit(&again, &over);
		check_same(frame, &again);
	}
	buf_done(&again);
}

static void read_stats(const struct wire_frame *frame)
{
	struct wire_reader in = WIRE_READER(frame);
	struct wire_process process;
	struct wire_stat stat;
	struct wire_stats stats;
	struct buf again = BUF_INIT;

	wire_get_process(&in, &process);
	check_text(process.exec, WIRE_EXEC_ID_MAX);
	check_text(process.command, 512);
	assert(process.state == '?' || (process.state >= 'A' && process.state <= 'Z'));
	in = (struct wire_reader)WIRE_READER(frame);
	wire_get_stats(&in, &stats);
	in = (struct wire_reader)WIRE_READER(frame);
	wire_get_stat(&in, &stat);
	check_text(stat.name, WIRE_PATH_MAX);
	check_text(stat.target, WIRE_PATH_MAX);
	if (wire_get_done(&in, NULL) == 0) {
		wire_put_stat(&again, &stat);
		check_same(frame, &again);
	}
	buf_done(&again);
}

/* What boxes ask for, and what they are told. */
static void read_inside(const struct wire_frame *frame)
{
	struct wire_reader in = WIRE_READER(frame);
	struct wire_request request;
	struct wire_answer answer;
	struct wire_identity identity;
	struct wire_told told;
	struct buf again = BUF_INIT;

	wire_get_request(&in, &request);
	check_strv(request.words);
	free((void *)request.words);
	in = (struct wire_reader)WIRE_READER(frame);
	wire_get_answer(&in, &answer);
	assert(answer.kind >= WIRE_ANSWER_OUT && answer.kind <= WIRE_ANSWER_DONE);
	assert(answer.len <= WIRE_ANSWER_MAX);
	if (wire_get_done(&in, NULL) == 0) {
		wire_put_answer(&again, &answer);
		check_same(frame, &again);
		buf_done(&again);
	}
	in = (struct wire_reader)WIRE_READER(frame);
	wire_get_identity(&in, &identity);
	check_text(identity.name, 63);
	check_text(identity.id, 63);
	check_text(identity.parent, 63);
	if (wire_get_done(&in, NULL) == 0) {
		wire_put_identity(&again, &identity);
		check_same(frame, &again);
		buf_done(&again);
	}
	in = (struct wire_reader)WIRE_READER(frame);
	wire_get_told(&in, &told);
	check_text(told.failure, 200);
	buf_done(&again);
}

static void read_hello_and_error(const struct wire_frame *frame)
{
	struct wire_reader in = WIRE_READER(frame);
	struct wire_hello hello;
	struct err err = ERR_INIT;
	struct buf again = BUF_INIT;

	wire_get_hello(&in, &hello);
	if (wire_get_done(&in, NULL) == 0) {
		wire_put_hello(&again, &hello);
		check_same(frame, &again);
	}
	in = (struct wire_reader)WIRE_READER(frame);
	wire_get_error(&in, &err);
	assert(err.kind > ERR_NONE && err.kind < ERR_KIND_COUNT);
	assert(strnlen(err.message, sizeof err.message) < sizeof err.message);
	for (const char *p = err.message; *p; p++)
		assert((unsigned char)*p >= ' ' && *p != 0x7f);
	buf_done(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf in = BUF_INIT;
	struct wire_frame frame, again;
	int got;

	buf_add(&in, data, size);
	while ((got = wire_frame_parse(&in, &frame, NULL)) > 0) {
		assert(frame.type > 0 && frame.type < WIRE_TYPE_COUNT);
		assert(frame.len <= WIRE_PAYLOAD_MAX && WIRE_HEADER + frame.len <= in.len);
		assert(frame.payload >= buf_head(&in) &&
			frame.payload + frame.len <= buf_head(&in) + in.len);
		read_hello_and_error(&frame);
		read_specs(&frame);
		read_infos(&frame);
		read_inside(&frame);
		read_stats(&frame);
		buf_eat(&in, WIRE_HEADER + frame.len);
	}
	/* What was refused stays refused, what waits for more stays waiting. */
	assert(wire_frame_parse(&in, &again, NULL) == got);
	buf_done(&in);
	return 0;
}
