/* fuzz_criu.c - arbitrary bytes as a message of CRIU's and as its log
 *
 * A message that is taken keeps to its bounds and says all that its type must; what is printed of
 * it is one printable line. */
#include "engine/ns/criu/criu_internal.h"
#include "engine/ns/criu/criu_rpc.h"
#include <assert.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* ---- seeds ---------------------------------------------------------------------------------- */

#define SEED(text)                     \
	{                              \
		text, sizeof(text) - 1 \
	}
static const struct {
	const char *bytes;
	size_t len;
} seeds[] = {
	SEED("\x08\x01\x10\x01\x1a\x02\x08\x00"),
	SEED("\x08\x02\x10\x01\x22\x03\x08\xac\x02"),
	SEED("\x08\x02\x10\x00\x22\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x38\x11"),
	SEED("\x08\x06\x10\x01\x2a\x13\x0a\x10setup-namespaces\x10\x07"),
	SEED("\x08\x0a\x10\x01\x52\x06\x08\x04\x10\x02\x20\x01"),
	SEED("\x08\x00\x10\x00\x4a\x08no\nluck\xff"),
	SEED("(00.01) Error (criu/a.c:1): RLIMIT_NOFILE\n(00.02)  7: Error (criu/a.c:2): why\n"),
};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	if (seed % 32 == 0 || !size) {
		size_t which = seed / 32 % ARRAY_LEN(seeds);

		size = MIN(seeds[which].len, max_size);
		memcpy(data, seeds[which].bytes, size);
	}
	return LLVMFuzzerMutate(data, size, max_size);
}

/* ---- messages ------------------------------------------------------------------------------- */

static void check_line(const char *text, size_t size)
{
	assert(strnlen(text, size) < size);
	for (; *text; text++)
		assert(*text >= ' ' && *text < 0x7f);
}

static void read_message(const uint8_t *data, size_t size)
{
	struct criu_reply reply;
	struct err err = ERR_INIT;

	if (criu_rpc_get_reply(data, size, &reply, &err) < 0) {
		assert(err.kind == ERR_PROTOCOL);
		return;
	}
	check_line(reply.text, sizeof reply.text);
	check_line(reply.script, sizeof reply.script);
	switch (reply.type) {
	case CRIU_TYPE_EMPTY:
		assert(!reply.success);
		break;
	case CRIU_TYPE_RESTORE:
		assert(!reply.success || reply.pid > 0);
		break;
	case CRIU_TYPE_NOTIFY:
		assert(reply.script[0] && reply.pid >= 0);
		break;
	case CRIU_TYPE_VERSION:
		assert(!reply.success || reply.version.major > 0);
		break;
	case CRIU_TYPE_DUMP:
	case CRIU_TYPE_CHECK:
		break;
	default:
		assert(!"a type we do not know");
	}
}

/* ---- logs ----------------------------------------------------------------------------------- */

static void read_log(const uint8_t *data, size_t size)
{
	static int file = -1;
	char log[CRIU_LOG_MAX], line[80];

	if (file < 0)
		file = memfd_create("log", MFD_CLOEXEC);
	if (ftruncate(file, 0) < 0 || pwrite(file, data, size, 0) != (ssize_t)size)
		return;
	criu_log_tail(file, NULL, log);
	assert(strnlen(log, sizeof log) < sizeof log);
	for (const char *at = log; *at; at++)
		assert(*at == '\n' || (*at >= ' ' && *at < 0x7f));
	criu_log_error(log, line, sizeof line);
	check_line(line, sizeof line);
	criu_explain(log, line, sizeof line);
	check_line(line, sizeof line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = ERR_INIT;

	read_message(data, size);
	read_log(data, size);
	if (size && criu_process_failed(data, size, &err))
		assert(err.kind > ERR_NONE && err.kind < ERR_KIND_COUNT);
	return 0;
}
