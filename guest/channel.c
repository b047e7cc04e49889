/* channel.c - channels: windows both ways, and the frames on them; see conn.h
 *
 * The window of what we send is counted down here and given back by the daemon; the window of what
 * the daemon sends is given back by channel_consumed(). A daemon that sends beyond its window,
 * gives back more than it got or uses an id twice breaks the protocol. */
#include "guest/conn_internal.h"
#include "guest/ops.h"
#include <endian.h>

enum { GIVE_BACK = WIRE_WINDOW / 4 };

/* ---- sending -------------------------------------------------------------------------------- */

struct buf *channel_begin(struct channel *channel, enum wire_type type)
{
	channel->conn->mark = wire_begin(&channel->conn->out, type, channel->id);
	return &channel->conn->out;
}

void channel_end(struct channel *channel)
{
	wire_end(&channel->conn->out, channel->conn->mark);
}

void channel_free(struct channel *channel)
{
	for (size_t i = 0; i < WIRE_CHANNELS_MAX; i++)
		if (channel->conn->channels[i] == channel)
			channel->conn->channels[i] = NULL;
	free(channel);
}

void channel_close(struct channel *channel)
{
	channel_begin(channel, WIRE_CLOSE);
	channel_end(channel);
	channel_free(channel);
}

void channel_error(struct channel *channel, const struct err *err)
{
	wire_put_error(channel_begin(channel, WIRE_ERROR), err);
	channel_end(channel);
	channel_close(channel);
}

unsigned channel_version(const struct channel *channel)
{
	return channel->conn->version;
}

size_t channel_room(struct channel *channel)
{
	struct conn *conn = channel->conn;

	if (conn->blocked || conn->dead || channel->send_room <= WIRE_DATA_HEADER)
		return 0;
	return MIN(channel->send_room - WIRE_DATA_HEADER, (size_t)WIRE_DATA_MAX);
}

bool channel_send(struct channel *channel, enum wire_stream stream, uint64_t offset,
	const struct iovec data[2])
{
	static struct buf head; /* kept, so that sending allocates nothing */
	size_t len = WIRE_DATA_HEADER + data[0].iov_len + data[1].iov_len;
	size_t mark;
	uint32_t announced;
	struct iovec iov[3];

	buf_eat(&head, head.len);
	mark = wire_begin(&head, WIRE_DATA, channel->id);
	wire_put_u8(&head, (uint8_t)stream);
	wire_put_u64(&head, offset);
	wire_end(&head, mark);
	/* wire_end counted what is in head; the data comes from elsewhere. */
	announced = htole32((uint32_t)len);
	memcpy(buf_head(&head), &announced, sizeof announced);
	iov[0] = (struct iovec){ buf_head(&head), head.len };
	iov[1] = data[0];
	iov[2] = data[1];
	if (!conn_send(channel->conn, iov, ARRAY_LEN(iov)))
		return false;
	channel->send_room -= len;
	return true;
}

bool channel_forward(struct channel *channel, const struct wire_frame *frame)
{
	struct iovec whole = { (uint8_t *)frame->payload - WIRE_HEADER, WIRE_HEADER + frame->len };

	if (!conn_send(channel->conn, &whole, 1))
		return false;
	if (frame->type == WIRE_DATA)
		channel->send_room -= frame->len;
	return true;
}

void channel_consumed(struct channel *channel, size_t len)
{
	channel->owed += len;
	/* Credit is given back in large portions; the sender never waits for the rest. */
	if (channel->owed < GIVE_BACK)
		return;
	wire_put_u32(channel_begin(channel, WIRE_WINDOW_ADD), (uint32_t)channel->owed);
	channel_end(channel);
	channel->recv_room += channel->owed;
	channel->owed = 0;
}

/* ---- receiving ------------------------------------------------------------------------------ */

static struct channel *channel_find(struct conn *conn, uint32_t id)
{
	for (size_t i = 0; i < WIRE_CHANNELS_MAX; i++)
		if (conn->channels[i] && conn->channels[i]->id == id)
			return conn->channels[i];
	return NULL;
}

static int take_open(struct conn *conn, const struct wire_frame *frame, struct err *err)
{
	struct channel *channel;
	size_t slot = 0;

	if (!frame->channel || frame->channel <= conn->last_id)
		return err_set(err, ERR_PROTOCOL, "channel ids must rise");
	conn->last_id = frame->channel;
	channel = xnew(struct channel);
	*channel = (struct channel){ .conn = conn,
		.id = frame->channel,
		.send_room = WIRE_WINDOW,
		.recv_room = WIRE_WINDOW };
	while (slot < WIRE_CHANNELS_MAX && conn->channels[slot])
		slot++;
	if (slot == WIRE_CHANNELS_MAX) {
		err_set(err, ERR_LIMIT, "more than %d channels at once", WIRE_CHANNELS_MAX);
		channel_error(channel, err);
		return 0;
	}
	conn->channels[slot] = channel;
	if (ops_open(channel, frame, err) == 0)
		return 0;
	if (err->kind == ERR_PROTOCOL)
		return -1;
	channel_error(channel, err);
	return 0;
}

static int take_data(struct channel *channel, const struct wire_frame *frame, struct err *err)
{
	if (frame->len < WIRE_DATA_HEADER || frame->len > WIRE_DATA_HEADER + WIRE_DATA_MAX ||
		channel->end_seen || frame->len > channel->recv_room)
		return err_set(err, ERR_PROTOCOL, "data beyond the window or the end");
	channel->recv_room -= frame->len;
	if (channel->ops && channel->ops->data) {
		/* The header is given back here; after the call the channel may be freed. */
		channel_consumed(channel, WIRE_DATA_HEADER);
		channel->ops->data(channel, frame, frame->payload + WIRE_DATA_HEADER,
			frame->len - WIRE_DATA_HEADER);
	} else {
		channel_consumed(channel, frame->len);
	}
	return 0;
}

static int take_end(struct channel *channel, const struct wire_frame *frame, struct err *err)
{
	if (frame->len || channel->end_seen)
		return err_set(err, ERR_PROTOCOL, "a second end");
	channel->end_seen = true;
	if (channel->ops && channel->ops->end)
		channel->ops->end(channel);
	return 0;
}

static int take_window(struct channel *channel, const struct wire_frame *frame, struct err *err)
{
	struct wire_reader in = WIRE_READER(frame);
	uint32_t credit = wire_get_u32(&in);

	if (wire_get_done(&in, err) < 0)
		return -1;
	if (credit > WIRE_WINDOW - channel->send_room)
		return err_set(err, ERR_PROTOCOL, "more window given back than was used");
	channel->send_room += credit;
	if (channel->ops && channel->ops->room)
		channel->ops->room(channel);
	return 0;
}

static int take_signal(struct channel *channel, const struct wire_frame *frame, struct err *err)
{
	struct wire_reader in = WIRE_READER(frame);
	uint32_t number = wire_get_u32(&in);

	if (wire_get_done(&in, err) < 0)
		return -1;
	if (number < 1 || number > 64)
		return err_set(err, ERR_PROTOCOL, "signal %u does not exist", number);
	if (channel->ops && channel->ops->signal)
		channel->ops->signal(channel, number);
	return 0;
}

static int take_resize(struct channel *channel, const struct wire_frame *frame, struct err *err)
{
	struct wire_reader in = WIRE_READER(frame);
	uint16_t rows = wire_get_u16(&in), cols = wire_get_u16(&in);

	if (wire_get_done(&in, err) < 0)
		return -1;
	if (channel->ops && channel->ops->resize)
		channel->ops->resize(channel, rows, cols);
	return 0;
}

static int take_close(struct channel *channel, const struct wire_frame *frame, struct err *err)
{
	if (frame->len)
		return err_set(err, ERR_PROTOCOL, "a close with a payload");
	if (channel->ops && channel->ops->cancel)
		channel->ops->cancel(channel);
	channel_close(channel);
	return 0;
}

typedef int (*take_fn)(struct channel *channel, const struct wire_frame *frame, struct err *err);

/* Frames on a channel; OPEN and HELLO come before there is one, the others may not come from the
 * daemon. */
static const take_fn takers[WIRE_TYPE_COUNT] = {
	[WIRE_DATA] = take_data,
	[WIRE_END] = take_end,
	[WIRE_WINDOW_ADD] = take_window,
	[WIRE_SIGNAL] = take_signal,
	[WIRE_RESIZE] = take_resize,
	[WIRE_CLOSE] = take_close,
};

int channel_take(struct conn *conn, const struct wire_frame *frame, struct err *err)
{
	struct channel *channel;

	if (frame->type == WIRE_OPEN)
		return take_open(conn, frame, err);
	if (!takers[frame->type] || !frame->channel || frame->channel > conn->last_id)
		return err_set(err, ERR_PROTOCOL, "frame of type %d on channel %u", frame->type,
			frame->channel);
	channel = channel_find(conn, frame->channel);
	/* Unknown channel: the daemon may not have seen our CLOSE yet. */
	return channel ? takers[frame->type](channel, frame, err) : 0;
}
