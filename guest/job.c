/* job.c - see job.h */
#include "guest/job.h"
#include <errno.h>
#include <sys/socket.h>

enum { READ_CHUNK = 128 * 1024 };

static int send_all(struct job *job, const uint8_t *data, size_t len, struct err *err)
{
	while (len) {
		ssize_t put = send(job->fd, data, len, MSG_NOSIGNAL);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return err_set(err, ERR_CANCELLED, "cancelled");
		data += put;
		len -= (size_t)put;
	}
	return 0;
}

static int send_buf(struct job *job, struct buf *frame, struct err *err)
{
	int ret = send_all(job, buf_head(frame), frame->len, err);

	buf_done(frame);
	return ret;
}

int job_reply(struct job *job, const struct buf *reply, struct err *err)
{
	struct buf frame = BUF_INIT;
	size_t mark = wire_begin(&frame, WIRE_REPLY, job->channel);

	if (reply)
		buf_add(&frame, buf_head(reply), reply->len);
	wire_end(&frame, mark);
	return send_buf(job, &frame, err);
}

int job_data(struct job *job, const void *data, size_t len, struct err *err)
{
	static struct buf frame; /* kept: a large file makes many */

	buf_eat(&frame, frame.len);
	wire_add_data(&frame, job->channel, WIRE_STREAM_MAIN, 0, data, len);
	return send_all(job, buf_head(&frame), frame.len, err);
}

int job_end(struct job *job, struct err *err)
{
	struct buf frame = BUF_INIT;

	wire_end(&frame, wire_begin(&frame, WIRE_END, job->channel));
	return send_buf(job, &frame, err);
}

int job_error(struct job *job, const struct err *why)
{
	struct buf frame = BUF_INIT;
	size_t mark = wire_begin(&frame, WIRE_ERROR, job->channel);

	wire_put_error(&frame, why);
	wire_end(&frame, mark);
	return send_buf(job, &frame, NULL);
}

static int fill(struct job *job, struct err *err)
{
	ssize_t got = recv(job->fd, buf_room(&job->in, READ_CHUNK), READ_CHUNK, 0);

	if (got < 0 && errno == EINTR)
		return 0;
	if (got <= 0)
		return err_set(err, ERR_CANCELLED, "cancelled");
	buf_grew(&job->in, (size_t)got);
	return 0;
}

ssize_t job_take(struct job *job, const uint8_t **ret, struct err *err)
{
	struct wire_frame frame;

	buf_eat(&job->in, job->held);
	job->held = 0;
	for (;;) {
		int got = wire_frame_parse(&job->in, &frame, err);

		if (got < 0)
			return -1;
		if (got == 0) {
			if (fill(job, err) < 0)
				return -1;
			continue;
		}
		if (frame.type == WIRE_END)
			return 0;
		if (frame.type != WIRE_DATA || frame.len < WIRE_DATA_HEADER)
			return err_set(err, ERR_PROTOCOL, "unexpected frame for a file operation");
		if (frame.len == WIRE_DATA_HEADER) {
			buf_eat(&job->in, WIRE_HEADER + frame.len);
			continue;
		}
		job->held = WIRE_HEADER + frame.len;
		*ret = frame.payload + WIRE_DATA_HEADER;
		return (ssize_t)(frame.len - WIRE_DATA_HEADER);
	}
}
