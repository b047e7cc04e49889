/* record.c - the records of wire.h, field by field; put and get stand side by side so that they
 * agree */
#include "wire/wire.h"
#include <sys/stat.h>

void wire_put_hello(struct buf *out, const struct wire_hello *hello)
{
	wire_put_u32(out, hello->magic);
	wire_put_u16(out, hello->version);
	wire_put_u16(out, hello->version_min);
	wire_put_u64(out, hello->boot_id);
}

void wire_get_hello(struct wire_reader *in, struct wire_hello *ret)
{
	ret->magic = wire_get_u32(in);
	ret->version = wire_get_u16(in);
	ret->version_min = wire_get_u16(in);
	ret->boot_id = wire_get_u64(in);
}

void wire_put_error(struct buf *out, const struct err *err)
{
	char message[401];
	size_t len = strnlen(err->message, sizeof message - 1);

	memcpy(message, err->message, len);
	message[len] = '\0';
	wire_put_u8(out, (uint8_t)err->kind);
	wire_put_u32(out, (uint32_t)err->errno_value);
	wire_put_str(out, message);
}

void wire_get_error(struct wire_reader *in, struct err *ret)
{
	uint8_t kind = wire_get_u8(in);
	uint32_t errno_value = wire_get_u32(in);
	const char *message = wire_get_str(in, 400);

	err_set(ret, kind > ERR_NONE && kind < ERR_KIND_COUNT ? kind : ERR_SYSTEM, "%s", message);
	ret->errno_value = errno_value < 4096 ? (int)errno_value : 0;
	for (char *p = ret->message; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
}

void wire_put_exec_spec(struct buf *out, const struct wire_exec_spec *spec)
{
	wire_put_str(out, spec->id);
	wire_put_strv(out, spec->argv);
	wire_put_strv(out, spec->env);
	wire_put_str(out, spec->cwd);
	wire_put_str(out, spec->user);
	wire_put_u8(out, spec->tty);
	wire_put_u8(out, spec->stdin_open ? (uint8_t)(1 + spec->builtin) : 0);
	wire_put_u8(out, spec->attach);
	wire_put_u16(out, spec->rows);
	wire_put_u16(out, spec->cols);
	wire_put_u64(out, spec->timeout_ms);
	wire_put_u32(out, spec->journal_max);
}

void wire_get_exec_spec(struct wire_reader *in, struct wire_exec_spec *ret)
{
	uint8_t input;

	ret->id = wire_get_str(in, WIRE_EXEC_ID_MAX);
	ret->argv = wire_get_strv(in, WIRE_ARGV_MAX);
	ret->env = wire_get_strv(in, WIRE_ARGV_MAX);
	ret->cwd = wire_get_str(in, WIRE_PATH_MAX);
	ret->user = wire_get_str(in, 128);
	ret->tty = wire_get_u8(in);
	input = wire_get_u8(in);
	ret->stdin_open = input;
	ret->builtin = input ? input - 1 : WIRE_NO_BUILTIN;
	ret->attach = wire_get_u8(in);
	ret->rows = wire_get_u16(in);
	ret->cols = wire_get_u16(in);
	ret->timeout_ms = wire_get_u64(in);
	ret->journal_max = wire_get_u32(in);
}

void wire_put_attach_spec(struct buf *out, const struct wire_attach_spec *spec)
{
	wire_put_str(out, spec->id);
	wire_put_u64(out, spec->offset);
	wire_put_u8(out, spec->follow);
	wire_put_u8(out, spec->lossless);
	wire_put_u8(out, spec->input);
}

void wire_get_attach_spec(struct wire_reader *in, struct wire_attach_spec *ret)
{
	ret->id = wire_get_str(in, WIRE_EXEC_ID_MAX);
	ret->offset = wire_get_u64(in);
	ret->follow = wire_get_u8(in);
	ret->lossless = wire_get_u8(in);
	ret->input = wire_get_u8(in);
}

static enum wire_exit_reason get_reason(struct wire_reader *in)
{
	uint8_t reason = wire_get_u8(in);

	if (reason >= WIRE_EXIT_REASON_COUNT) {
		in->bad = true;
		return WIRE_EXIT_RUNNING;
	}
	return reason;
}

void wire_put_exec_info(struct buf *out, const struct wire_exec_info *info)
{
	wire_put_str(out, info->id);
	wire_put_u32(out, info->pid);
	wire_put_u8(out, info->tty);
	wire_put_u8(out, (uint8_t)info->reason);
	wire_put_u32(out, info->code);
	wire_put_u32(out, info->signal);
	wire_put_u64(out, info->started_us);
	wire_put_u64(out, info->ended_us);
	wire_put_u64(out, info->cpu_us);
	wire_put_u64(out, info->oldest);
	wire_put_u64(out, info->newest);
	wire_put_strv(out, info->argv);
}

void wire_get_exec_info(struct wire_reader *in, struct wire_exec_info *ret)
{
	ret->id = wire_get_str(in, WIRE_EXEC_ID_MAX);
	ret->pid = wire_get_u32(in);
	ret->tty = wire_get_u8(in);
	ret->reason = get_reason(in);
	ret->code = wire_get_u32(in);
	ret->signal = wire_get_u32(in);
	ret->started_us = wire_get_u64(in);
	ret->ended_us = wire_get_u64(in);
	ret->cpu_us = wire_get_u64(in);
	ret->oldest = wire_get_u64(in);
	ret->newest = wire_get_u64(in);
	ret->argv = wire_get_strv(in, WIRE_ARGV_MAX);
}

void wire_put_exit(struct buf *out, const struct wire_exit *exit)
{
	wire_put_u8(out, (uint8_t)exit->reason);
	wire_put_u32(out, exit->code);
	wire_put_u32(out, exit->signal);
	wire_put_u64(out, exit->duration_us);
	wire_put_u64(out, exit->cpu_us);
	wire_put_u64(out, exit->newest);
}

void wire_get_exit(struct wire_reader *in, struct wire_exit *ret)
{
	ret->reason = get_reason(in);
	ret->code = wire_get_u32(in);
	ret->signal = wire_get_u32(in);
	ret->duration_us = wire_get_u64(in);
	ret->cpu_us = wire_get_u64(in);
	ret->newest = wire_get_u64(in);
}

void wire_put_process(struct buf *out, const struct wire_process *process)
{
	wire_put_u32(out, process->pid);
	wire_put_u32(out, process->ppid);
	wire_put_u32(out, process->uid);
	wire_put_u8(out, (uint8_t)process->state);
	wire_put_u64(out, process->rss_bytes);
	wire_put_u64(out, process->cpu_us);
	wire_put_u64(out, process->started_us);
	wire_put_str(out, process->exec);
	wire_put_str(out, process->command);
}

void wire_get_process(struct wire_reader *in, struct wire_process *ret)
{
	ret->pid = wire_get_u32(in);
	ret->ppid = wire_get_u32(in);
	ret->uid = wire_get_u32(in);
	ret->state = (char)wire_get_u8(in);
	ret->rss_bytes = wire_get_u64(in);
	ret->cpu_us = wire_get_u64(in);
	ret->started_us = wire_get_u64(in);
	ret->exec = wire_get_str(in, WIRE_EXEC_ID_MAX);
	ret->command = wire_get_str(in, 512);
	if (ret->state < 'A' || ret->state > 'Z')
		ret->state = '?';
}

struct wire_stat wire_stat_from(const char *name, const struct stat *st, const char *target)
{
	return (struct wire_stat){
		.name = name,
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.size = (uint64_t)st->st_size,
		.mtime_us = (uint64_t)(st->st_mtim.tv_sec * 1000000 + st->st_mtim.tv_nsec / 1000),
		.target = target,
	};
}

void wire_put_stat(struct buf *out, const struct wire_stat *stat)
{
	wire_put_str(out, stat->name);
	wire_put_u32(out, stat->mode);
	wire_put_u32(out, stat->uid);
	wire_put_u32(out, stat->gid);
	wire_put_u64(out, stat->size);
	wire_put_u64(out, stat->mtime_us);
	wire_put_str(out, stat->target);
}

void wire_get_stat(struct wire_reader *in, struct wire_stat *ret)
{
	ret->name = wire_get_str(in, WIRE_PATH_MAX);
	ret->mode = wire_get_u32(in);
	ret->uid = wire_get_u32(in);
	ret->gid = wire_get_u32(in);
	ret->size = wire_get_u64(in);
	ret->mtime_us = wire_get_u64(in);
	ret->target = wire_get_str(in, WIRE_PATH_MAX);
}

void wire_put_stats(struct buf *out, const struct wire_stats *stats)
{
	wire_put_u64(out, stats->uptime_us);
	wire_put_u32(out, stats->processes);
	wire_put_u32(out, stats->execs_running);
	wire_put_u64(out, stats->journal_bytes);
}

void wire_get_stats(struct wire_reader *in, struct wire_stats *ret)
{
	ret->uptime_us = wire_get_u64(in);
	ret->processes = wire_get_u32(in);
	ret->execs_running = wire_get_u32(in);
	ret->journal_bytes = wire_get_u64(in);
}

void wire_put_request(struct buf *out, const struct wire_request *request)
{
	wire_put_u64(out, request->id);
	wire_put_u8(out, request->again);
	wire_put_strv(out, request->words);
}

void wire_get_request(struct wire_reader *in, struct wire_request *ret)
{
	ret->id = wire_get_u64(in);
	ret->again = wire_get_u8(in);
	if (in->end - in->at > WIRE_WORDS_BYTES)
		in->bad = true;
	ret->words = wire_get_strv(in, WIRE_WORDS_MAX);
}

void wire_put_answer(struct buf *out, const struct wire_answer *answer)
{
	wire_put_u64(out, answer->id);
	wire_put_u64(out, answer->number);
	wire_put_u8(out, (uint8_t)answer->kind);
	wire_put_u32(out, answer->code);
	buf_add(out, answer->data, answer->len);
}

void wire_get_answer(struct wire_reader *in, struct wire_answer *ret)
{
	uint8_t kind;

	ret->id = wire_get_u64(in);
	ret->number = wire_get_u64(in);
	kind = wire_get_u8(in);
	ret->code = wire_get_u32(in);
	ret->data = in->at;
	ret->len = (uint32_t)(in->end - in->at);
	if (kind < WIRE_ANSWER_OUT || kind > WIRE_ANSWER_DONE || ret->code > 255 ||
		ret->len > WIRE_ANSWER_MAX) {
		in->bad = true;
		ret->len = 0;
		kind = WIRE_ANSWER_DONE;
	}
	ret->kind = kind;
	in->at += ret->len;
}

void wire_put_identity(struct buf *out, const struct wire_identity *identity)
{
	wire_put_str(out, identity->name);
	wire_put_str(out, identity->id);
	wire_put_str(out, identity->parent);
	wire_put_u32(out, identity->index);
	wire_put_bytes(out, identity->seed, sizeof identity->seed);
}

void wire_get_identity(struct wire_reader *in, struct wire_identity *ret)
{
	ret->name = wire_get_str(in, 63);
	ret->id = wire_get_str(in, 63);
	ret->parent = wire_get_str(in, 63);
	ret->index = wire_get_u32(in);
	wire_get_bytes(in, ret->seed, sizeof ret->seed);
}

void wire_put_told(struct buf *out, const struct wire_told *told)
{
	wire_put_u32(out, told->ran);
	wire_put_u32(out, told->failed);
	wire_put_str(out, told->failure);
}

void wire_get_told(struct wire_reader *in, struct wire_told *ret)
{
	ret->ran = wire_get_u32(in);
	ret->failed = wire_get_u32(in);
	ret->failure = wire_get_str(in, 200);
}
