/* control.c - see control.h */
#include "wire/control.h"

static uint32_t read_u32(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
	       (uint32_t)at[3] << 24;
}

/* ---- frames --------------------------------------------------------------------------------- */

int control_frame_parse(const struct buf *in, struct control_frame *ret, struct err *err)
{
	const uint8_t *head = buf_head(in);
	uint32_t type, len;

	if (in->len < CONTROL_HEADER)
		return 0;
	type = read_u32(head + 4);
	len = read_u32(head + 12);
	if (read_u32(head) != CONTROL_MAGIC || type >= CONTROL_TYPE_COUNT)
		return err_set(err, ERR_PROTOCOL, "no frame of the control port");
	if (len > CONTROL_PAYLOAD_MAX)
		return err_set(err, ERR_PROTOCOL, "frame of %u bytes", len);
	if (in->len < CONTROL_HEADER + len)
		return 0;
	*ret = (struct control_frame){ .type = (enum control_type)type,
		.number = read_u32(head + 8),
		.payload = head + CONTROL_HEADER,
		.len = len };
	return 1;
}

size_t control_begin(struct buf *out, enum control_type type, uint32_t number)
{
	size_t mark = out->len;

	wire_put_u32(out, CONTROL_MAGIC);
	wire_put_u32(out, (uint32_t)type);
	wire_put_u32(out, number);
	wire_put_u32(out, 0);
	return mark;
}

void control_end(struct buf *out, size_t mark)
{
	uint32_t len = (uint32_t)(out->len - mark - CONTROL_HEADER);
	uint8_t *at = buf_head(out) + mark + 12;

	assert(len <= CONTROL_PAYLOAD_MAX);
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(len >> 8 * i);
}

static bool is_hello(const uint8_t *at, const uint8_t *nonce)
{
	return read_u32(at) == CONTROL_MAGIC && read_u32(at + 4) == CONTROL_HELLO &&
	       read_u32(at + 12) == CONTROL_HELLO_SIZE - CONTROL_HEADER &&
	       (!nonce || !memcmp(at + CONTROL_HEADER, nonce, CONTROL_NONCE));
}

/* Where the last one begins; -1: there is none. */
static ssize_t last_hello(const struct buf *in, const uint8_t *nonce)
{
	for (ssize_t at = (ssize_t)in->len - CONTROL_HELLO_SIZE; at >= 0; at--)
		if (is_hello(buf_head(in) + at, nonce))
			return at;
	return -1;
}

bool control_find_hello(struct buf *in, const uint8_t nonce[CONTROL_NONCE])
{
	ssize_t at = last_hello(in, nonce);

	if (at >= 0)
		buf_eat(in, (size_t)at);
	else if (in->len >= CONTROL_HELLO_SIZE)
		buf_eat(in, in->len - CONTROL_HELLO_SIZE + 1);
	return at >= 0;
}

bool control_has_hello(const struct buf *in)
{
	return last_hello(in, NULL) >= 0;
}

/* ---- records -------------------------------------------------------------------------------- */

void control_put_hello(struct buf *out, const struct control_hello *hello)
{
	wire_put_bytes(out, hello->nonce, sizeof hello->nonce);
	wire_put_bytes(out, hello->generation, sizeof hello->generation);
	wire_put_u16(out, hello->version);
}

void control_get_hello(struct wire_reader *in, struct control_hello *ret)
{
	wire_get_bytes(in, ret->nonce, sizeof ret->nonce);
	wire_get_bytes(in, ret->generation, sizeof ret->generation);
	ret->version = wire_get_u16(in);
}

void control_put_greeting(struct buf *out, const struct control_greeting *greeting)
{
	wire_put_bytes(out, greeting->nonce, sizeof greeting->nonce);
	wire_put_bytes(out, greeting->generation, sizeof greeting->generation);
	wire_put_u16(out, greeting->version);
}

void control_get_greeting(struct wire_reader *in, struct control_greeting *ret)
{
	wire_get_bytes(in, ret->nonce, sizeof ret->nonce);
	wire_get_bytes(in, ret->generation, sizeof ret->generation);
	ret->version = wire_get_u16(in);
}

void control_put_tell(struct buf *out, const struct control_tell *tell)
{
	wire_put_u8(out, (uint8_t)tell->kind);
	wire_put_bytes(out, tell->generation, sizeof tell->generation);
	wire_put_bytes(out, tell->seed, sizeof tell->seed);
	wire_put_u64(out, tell->wall_us);
	wire_put_str(out, tell->hostname);
	wire_put_u64(out, tell->disk_bytes);
	wire_put_u64(out, tell->pids);
}

void control_get_tell(struct wire_reader *in, struct control_tell *ret)
{
	uint8_t kind = wire_get_u8(in);

	if (kind < CONTROL_NEW || kind > CONTROL_SAME)
		in->bad = true;
	ret->kind = (enum control_kind)kind;
	wire_get_bytes(in, ret->generation, sizeof ret->generation);
	wire_get_bytes(in, ret->seed, sizeof ret->seed);
	ret->wall_us = wire_get_u64(in);
	ret->hostname = wire_get_str(in, CONTROL_NAME_MAX);
	ret->disk_bytes = wire_get_u64(in);
	ret->pids = wire_get_u64(in);
}

void control_put_stats(struct buf *out, const struct control_stats *stats)
{
	wire_put_u64(out, stats->memory_total);
	wire_put_u64(out, stats->memory_free);
	wire_put_u64(out, stats->memory_available);
	wire_put_u64(out, stats->processes);
	wire_put_u64(out, stats->threads);
	wire_put_u64(out, stats->oom_kills);
	wire_put_u64(out, stats->pids_refused);
	wire_put_u64(out, stats->cpu_us);
	wire_put_u64(out, stats->io_bytes);
	wire_put_u64(out, stats->net_bytes);
}

/* Bounds figures to what any machine can have, so that sums of them cannot overflow. */
static uint64_t get_figure(struct wire_reader *in)
{
	uint64_t value = wire_get_u64(in);

	return MIN(value, UINT64_C(1) << 56);
}

void control_get_stats(struct wire_reader *in, struct control_stats *ret)
{
	ret->memory_total = get_figure(in);
	ret->memory_free = get_figure(in);
	ret->memory_available = get_figure(in);
	ret->processes = get_figure(in);
	ret->threads = get_figure(in);
	ret->oom_kills = get_figure(in);
	ret->pids_refused = get_figure(in);
	ret->cpu_us = get_figure(in);
	ret->io_bytes = get_figure(in);
	ret->net_bytes = get_figure(in);
}

void control_put_timer(struct buf *out, const struct control_timer *timer)
{
	wire_put_u8(out, (uint8_t)timer->kind);
	wire_put_u64(out, timer->in_ns);
	wire_put_str(out, timer->call);
	wire_put_str(out, timer->comm);
	wire_put_u32(out, timer->pid);
}

void control_get_timer(struct wire_reader *in, struct control_timer *ret)
{
	uint8_t kind = wire_get_u8(in);

	if (kind > CONTROL_TIMER_UNKNOWN)
		in->bad = true;
	ret->kind = in->bad ? CONTROL_TIMER_UNKNOWN : (enum control_timer_kind)kind;
	ret->in_ns = wire_get_u64(in);
	ret->call = wire_get_str(in, CONTROL_COMM_MAX);
	ret->comm = wire_get_str(in, CONTROL_COMM_MAX);
	ret->pid = wire_get_u32(in);
}

void control_put_flow(struct buf *out, const struct control_flow *flow)
{
	wire_put_u8(out, flow->protocol);
	wire_put_u8(out, flow->family);
	wire_put_bytes(out, flow->from, sizeof flow->from);
	wire_put_bytes(out, flow->to, sizeof flow->to);
	wire_put_u16(out, flow->from_port);
	wire_put_u16(out, flow->to_port);
}

void control_get_flow(struct wire_reader *in, struct control_flow *ret)
{
	ret->protocol = wire_get_u8(in);
	ret->family = wire_get_u8(in);
	wire_get_bytes(in, ret->from, sizeof ret->from);
	wire_get_bytes(in, ret->to, sizeof ret->to);
	ret->from_port = wire_get_u16(in);
	ret->to_port = wire_get_u16(in);
	if (ret->family != 4 && ret->family != 6)
		in->bad = true;
}

void control_put_who(struct buf *out, const struct control_who *who)
{
	wire_put_u32(out, who->pid);
	wire_put_u32(out, who->uid);
	wire_put_str(out, who->comm);
	wire_put_str(out, who->command);
}

void control_get_who(struct wire_reader *in, struct control_who *ret)
{
	ret->pid = wire_get_u32(in);
	ret->uid = wire_get_u32(in);
	ret->comm = wire_get_str(in, CONTROL_COMM_MAX);
	ret->command = wire_get_str(in, CONTROL_PATH_MAX);
}
