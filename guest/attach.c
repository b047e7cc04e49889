/* attach.c - the readers of an exec: output from the journal to channels, input from channels to it
 *
 * A reader has a position in the journal and sends from there as far as its window and the
 * connection allow. If the journal has moved past the position, the reader is told the gap and goes
 * on at the oldest byte; a lossless reader never sees one, because its position holds the journal
 * back (attach_need).
 *
 * Input waits with the reader it came from until the program takes it, so that the window given
 * back to a channel means bytes that really went in. */
#include "guest/exec_internal.h"
#include <errno.h>
#include <sys/ioctl.h>
#include <termios.h>

/* Removes the reader from its exec; the caller handles the channel. */
static void reader_free(struct reader *reader)
{
	for (struct reader **at = &reader->exec->readers; *at; at = &(*at)->next)
		if (*at == reader) {
			*at = reader->next;
			break;
		}
	buf_done(&reader->typed);
	free(reader);
}

static void send_gap(struct reader *reader, uint64_t oldest)
{
	struct buf *out = channel_begin(reader->channel, WIRE_GAP);

	wire_put_u64(out, reader->at);
	wire_put_u64(out, oldest - reader->at);
	channel_end(reader->channel);
	reader->at = oldest;
}

static void send_time(struct reader *reader)
{
	uint64_t time_us = journal_time(&reader->exec->journal, reader->at);

	if (reader->lossless || time_us == reader->time_us ||
		channel_version(reader->channel) < WIRE_VERSION_TIMES)
		return;
	reader->time_us = time_us;
	wire_put_u64(channel_begin(reader->channel, WIRE_TIME), time_us);
	channel_end(reader->channel);
}

static void send_exit(struct reader *reader)
{
	const struct exec *exec = reader->exec;
	struct wire_exec_info info;

	exec_fill_info(exec, &info);
	wire_put_exit(channel_begin(reader->channel, WIRE_EXIT),
		&(struct wire_exit){
			.reason = info.reason,
			.code = info.code,
			.signal = info.signal,
			.duration_us = (uint64_t)(exec->ended_mono_us - exec->started_mono_us),
			.cpu_us = info.cpu_us,
			.newest = info.newest,
		});
	channel_end(reader->channel);
}

/* Sends as much as it can; after the end of everything it sends EXIT, closes the channel and frees
 * the reader. */
static void reader_send(struct reader *reader)
{
	const struct journal *journal = &reader->exec->journal;

	for (;;) {
		uint64_t end = MIN(reader->until, journal->newest);
		size_t room = channel_room(reader->channel);
		struct iovec data[2];
		uint8_t stream;
		size_t len;

		if (reader->at >= end)
			break;
		if (!room)
			return;
		if (reader->at < journal->oldest) {
			send_gap(reader, journal->oldest);
			continue;
		}
		send_time(reader);
		len = journal_peek(journal, reader->at, MIN(room, end - reader->at), &stream, data);
		if (!channel_send(reader->channel, stream, reader->at, data))
			return;
		reader->at += len;
	}
	if (reader->exec->state == EXEC_OVER)
		send_exit(reader);
	else if (reader->at < reader->until)
		return;
	channel_close(reader->channel);
	reader_free(reader);
}

void attach_pump(struct exec *exec)
{
	for (struct reader *reader = exec->readers, *next; reader; reader = next) {
		next = reader->next;
		reader_send(reader);
	}
}

void attach_forget_readers(struct exec *exec)
{
	while (exec->readers)
		reader_free(exec->readers);
}

uint64_t attach_need(const struct exec *exec)
{
	uint64_t need = JOURNAL_NEED_NOTHING;

	for (const struct reader *reader = exec->readers; reader; reader = reader->next)
		if (reader->lossless)
			need = MIN(need, reader->at);
	return need;
}

/* ---- input ---------------------------------------------------------------------------------- */

/* Ends the input. A pipe is closed. A terminal has no end of file; its user would type the
 * end-of-file character, twice if the line is not empty. */
static void input_end(struct exec *exec, struct reader *reader)
{
	struct termios settings;
	char keys[2];
	size_t count = exec->last_typed && exec->last_typed != '\n' ? 2 : 1;

	reader->input_end = false;
	if (!exec->tty) {
		watch_close(&exec->in);
		attach_input_gone(exec);
		return;
	}
	if (tcgetattr(exec->in.fd, &settings) < 0 || !(settings.c_lflag & ICANON))
		return;
	memset(keys, settings.c_cc[VEOF], sizeof keys);
	if (write(exec->in.fd, keys, count) < 0) {
		/* Its line buffer is full: it does not take an end of file either. */
	}
}

void attach_input_gone(struct exec *exec)
{
	for (struct reader *reader = exec->readers; reader; reader = reader->next) {
		size_t len = reader->typed.len;

		buf_done(&reader->typed);
		reader->input_end = false;
		channel_consumed(reader->channel, len);
	}
}

/* Returns how much the program took; everything if it no longer takes input. */
static size_t give(struct exec *exec, const uint8_t *data, size_t len)
{
	ssize_t put;

	if (exec->in.fd < 0)
		return len;
	do
		put = write(exec->in.fd, data, len);
	while (put < 0 && errno == EINTR);
	if (put > 0)
		exec->last_typed = (char)data[put - 1];
	if (put >= 0)
		return (size_t)put;
	if (errno == EAGAIN)
		return 0;
	if (!exec->tty)
		watch_close(&exec->in);
	return len;
}

void attach_feed(struct exec *exec)
{
	bool waiting = false;

	for (struct reader *reader = exec->readers; reader; reader = reader->next) {
		if (reader->typed.len) {
			size_t took = give(exec, buf_head(&reader->typed), reader->typed.len);

			buf_eat(&reader->typed, took);
			channel_consumed(reader->channel, took);
		}
		if (reader->typed.len)
			waiting = true;
		else if (reader->input_end)
			input_end(exec, reader);
		if (!reader->typed.len)
			buf_done(&reader->typed);
	}
	watch_set(&exec->in, waiting ? EPOLLOUT : 0);
}

/* ---- the channel's side --------------------------------------------------------------------- */

static void reader_data(
	struct channel *channel, const struct wire_frame *frame, const uint8_t *data, size_t len)
{
	struct reader *reader = channel->owner;
	struct exec *exec = reader->exec;
	size_t took = len;

	(void)frame;
	if (reader->input && !reader->typed.len)
		took = give(exec, data, len);
	else if (reader->input)
		took = 0;
	channel_consumed(channel, took);
	if (took == len)
		return;
	buf_add(&reader->typed, data + took, len - took);
	watch_set(&exec->in, EPOLLOUT);
}

static void reader_end(struct channel *channel)
{
	struct reader *reader = channel->owner;

	if (!reader->input || reader->exec->in.fd < 0)
		return;
	reader->input_end = true;
	attach_feed(reader->exec);
}

static void reader_signal(struct channel *channel, uint32_t number)
{
	struct reader *reader = channel->owner;

	exec_signal_group(reader->exec, (int)number);
}

static void reader_resize(struct channel *channel, uint16_t rows, uint16_t cols)
{
	struct reader *reader = channel->owner;
	struct winsize size = { .ws_row = rows, .ws_col = cols };

	if (reader->exec->tty && reader->exec->out.fd >= 0)
		ioctl(reader->exec->out.fd, TIOCSWINSZ, &size);
}

static void reader_room(struct channel *channel)
{
	struct reader *reader = channel->owner;
	struct exec *exec = reader->exec;

	reader_send(reader);
	exec_update_reading(exec);
	if (exec->state == EXEC_OVER)
		exec_evict();
}

static void reader_cancel(struct channel *channel)
{
	struct reader *reader = channel->owner;
	struct exec *exec = reader->exec;

	if (exec->starter == channel)
		exec->starter = NULL;
	reader_free(reader);
	/* Nobody can attach to it as its first client did: it hears the end and ends. */
	if (exec->builtin && !exec->readers)
		watch_close(&exec->in);
	exec_update_reading(exec);
	if (exec->state == EXEC_OVER)
		exec_evict();
}

static const struct channel_ops reader_ops = {
	.data = reader_data,
	.end = reader_end,
	.signal = reader_signal,
	.resize = reader_resize,
	.room = reader_room,
	.cancel = reader_cancel,
};

void attach_reader(struct exec *exec, struct channel *channel, const struct wire_attach_spec *spec)
{
	struct reader *reader = xnew(struct reader);

	reader->exec = exec;
	reader->channel = channel;
	/* An offset beyond the end starts at the end; this covers WIRE_OFFSET_END too. */
	reader->at = MIN(spec->offset, exec->journal.newest);
	reader->until = spec->follow ? UINT64_MAX : exec->journal.newest;
	reader->lossless = spec->lossless;
	reader->input = spec->input;
	reader->next = exec->readers;
	exec->readers = reader;
	channel->ops = &reader_ops;
	channel->owner = reader;
	reader_send(reader);
}
