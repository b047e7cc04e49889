/* output_read.c - the output of a box that has stopped, played back as if box-init sent it
 *
 * What the file holds was a box's word: it is read as strictly as a connection. */
#include "core/output_internal.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>

enum { FILE_MAX = 4 * 1024 * 1024 };

static int refuse(const struct box *box, struct err *err)
{
	err_set(err, ERR_STATE, "the output of box '%s' was not kept: %s", box->row.name,
		*box->row.end_detail ? box->row.end_detail : "it was not running");
	return err_hint(err, "'box start %s' starts it again", box->row.name);
}

static int load(const struct box *box, struct buf *ret, struct err *err)
{
	_cleanup_free_ char *path = output_path(box);
	_cleanup_free_ char *data = NULL;
	size_t len;

	if (file_read(AT_FDCWD, path, FILE_MAX, &data, &len, err) < 0)
		return err->errno_value == ENOENT ? refuse(box, err) : -1;
	buf_add(ret, data, len);
	return 0;
}

/* Reads the next frame; 0 at the end. */
static int next(struct buf *in, size_t *eat, struct wire_frame *ret, struct err *err)
{
	int got;

	buf_eat(in, *eat);
	got = wire_frame_parse(in, ret, err);
	if (got <= 0)
		return err_set(err, ERR_SYSTEM, "the file with the output of the box is damaged");
	*eat = WIRE_HEADER + ret->len;
	return ret->type == WIRE_END ? 0 : 1;
}

int box_output_list(const struct box *box, struct buf *ret, struct err *err)
{
	struct buf in = BUF_INIT, list = BUF_INIT;
	struct wire_frame frame;
	size_t eat = 0;
	uint32_t count = 0;
	int got = load(box, &in, err);

	while (got >= 0 && (got = next(&in, &eat, &frame, err)) > 0)
		if (frame.type == WIRE_REPLY) {
			buf_add(&list, frame.payload, frame.len);
			count++;
		}
	wire_put_u32(ret, count);
	buf_add(ret, buf_head(&list), list.len);
	buf_done(&in);
	buf_done(&list);
	return got;
}

static int play_data(const struct wire_frame *frame, uint64_t from, const struct chan_ops *ops,
	void *arg, struct err *err)
{
	struct wire_reader in = WIRE_READER(frame);
	uint8_t stream = wire_get_u8(&in);
	uint64_t offset = wire_get_u64(&in);
	size_t len = (size_t)(in.end - in.at), skip;

	if (in.bad || stream > WIRE_STREAM_STDERR)
		return err_set(err, ERR_SYSTEM, "the file with the output of the box is damaged");
	skip = from > offset ? (size_t)MIN(from - offset, (uint64_t)len) : 0;
	if (skip < len)
		ops->on_data(NULL, stream, offset + skip, in.at + skip, len - skip, arg);
	return 0;
}

static int play(const struct wire_frame *frame, uint64_t from, const struct chan_ops *ops,
	void *arg, struct err *err)
{
	struct wire_reader in = WIRE_READER(frame);
	struct wire_exit exit;
	uint64_t offset, lost;

	/* Frames from the file are checked as strictly as those of a connection. */
	switch (frame->type) {
	case WIRE_DATA:
		return play_data(frame, from, ops, arg, err);
	case WIRE_TIME:
		offset = wire_get_u64(&in);
		if (wire_get_done(&in, err) < 0)
			return -1;
		ops->on_time(NULL, offset, arg);
		return 0;
	case WIRE_GAP:
		offset = wire_get_u64(&in);
		lost = wire_get_u64(&in);
		if (wire_get_done(&in, err) == 0 && offset >= from)
			ops->on_gap(NULL, offset, lost, arg);
		return 0;
	case WIRE_EXIT:
		wire_get_exit(&in, &exit);
		if (wire_get_done(&in, err) < 0)
			return -1;
		ops->on_exit(NULL, &exit, arg);
		return 0;
	default:
		return 0;
	}
}

/* Whether frame begins the wanted program; reports output lost before its first kept byte. */
static bool begins(const struct wire_frame *frame, const struct wire_attach_spec *spec,
	const struct chan_ops *ops, void *arg)
{
	struct wire_reader in = WIRE_READER(frame), whole = in;
	struct wire_exec_info info;
	bool same;

	wire_get_exec_info(&in, &info);
	same = !in.bad && !strcmp(info.id, spec->id);
	free((void *)info.argv);
	if (!same)
		return false;
	ops->on_reply(NULL, &whole, arg);
	if (spec->offset < info.oldest && ops->on_gap)
		ops->on_gap(NULL, spec->offset, info.oldest - spec->offset, arg);
	return true;
}

int box_output_play(const struct box *box, const struct wire_attach_spec *spec,
	const struct chan_ops *ops, void *arg, struct err *err)
{
	struct buf in = BUF_INIT;
	struct wire_frame frame;
	bool found = false;
	size_t eat = 0;
	int got = load(box, &in, err);

	while (got >= 0 && (got = next(&in, &eat, &frame, err)) > 0) {
		if (found && frame.type == WIRE_CLOSE)
			break;
		if (found)
			got = play(&frame, spec->offset, ops, arg, err);
		else if (frame.type == WIRE_REPLY)
			found = begins(&frame, spec, ops, arg);
	}
	buf_done(&in);
	if (got < 0)
		return -1;
	if (found) {
		ops->on_closed(NULL, arg);
		return 0;
	}
	err_set(err, ERR_NOT_FOUND, "no output of exec '%s' was kept when box '%s' stopped",
		spec->id, box->row.name);
	return err_hint(err, "'box ps --execs %s' lists what was", box->row.name);
}
