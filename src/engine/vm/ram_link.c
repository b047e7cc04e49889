/* ram_link.c - the daemon's end of a connection to the library in QEMU
 *
 * One request at a time, in the order of the calls. The first is a hello; if the library does
 * not know where the RAM is, it is found in /proc/PID/maps and sent to the library. Each step is
 * started from the loop, so no callback comes from within a call. A guest may have taken QEMU
 * over: an answer that does not fit the request exactly, or that nobody asked for, ends the
 * connection. */
#include "base/alloc.h"
#include "base/file.h"
#include "engine/vm/ram_internal.h"
#include "loop/loop.h"
#include "sys/fdpass.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
	ANSWER_LIMIT_MS = 30000,
	MAPS_FILE_MAX = 16 << 20,
	MAPPINGS_MANY = 20000, /* of 65530: then the whole stack is mapped again */
};

struct op {
	struct op *next;
	uint32_t kind;
	ram_done done; /* may be NULL */
	void *arg;
	struct err err; /* known before anything was sent */
	/* RAM_MAP */
	struct ram_stack stack;
	struct ram_piece *pieces;
	size_t count, sent;
	bool later;
};

struct ram_link {
	struct loop *loop;
	int fd;
	pid_t pid;
	uint64_t ram_bytes, base;
	ram_lost on_lost;
	void *arg;
	struct loop_fd *watch;
	struct loop_timer *timer;
	struct op *first, **last;
	bool waiting;	 /* for the answer to the first op */
	size_t mappings; /* of QEMU, counted when the last pass started */
	struct err lost;
	bool *gone; /* set when it is freed within a callback */
};

/* ---- what is read ---------------------------------------------------------------------------- */

/* A line is "from-to rw-s ...". There must be exactly one of that size. */
int ram_find_mapping(const char *text, uint64_t size, uint64_t *ret_base, struct err *err)
{
	unsigned found = 0;

	for (const char *line = text; line && *line;) {
		unsigned long long from, to;
		char rights[5];

		if (sscanf(line, "%llx-%llx %4s ", &from, &to, rights) == 3 && to > from &&
			to - from == size && !strcmp(rights, "rw-s")) {
			*ret_base = from;
			found++;
		}
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	if (found != 1)
		return err_set(
			err, ERR_PROTOCOL, "QEMU has %u shared mappings of the RAM's size", found);
	return 0;
}

int ram_answer_check(
	const void *data, size_t len, uint32_t kind, struct ram_answer *ret, struct err *err)
{
	struct ram_answer answer;

	if (len != sizeof answer)
		return err_set(err, ERR_PROTOCOL, "an answer of QEMU's library has %zu bytes", len);
	memcpy(&answer, data, sizeof answer);
	if (answer.magic != RAM_MAGIC || answer.kind != kind || answer.unused)
		return err_set(err, ERR_PROTOCOL, "QEMU's library answered another request");
	if (answer.error > 4095)
		return err_set(err, ERR_PROTOCOL, "QEMU's library sent an impossible error");
	if ((answer.base | answer.size) % RAM_PAGE || answer.size > RAM_BYTES_MAX ||
		!answer.base != !answer.size || answer.base + answer.size < answer.base)
		return err_set(err, ERR_PROTOCOL, "QEMU's library sent an impossible address");
	*ret = answer;
	return 0;
}

/* ---- the queue ------------------------------------------------------------------------------- */

static void go_on(void *arg);

static void free_op(struct op *op)
{
	ram_stack_done(&op->stack);
	free(op->pieces);
	free(op);
}

static struct op *push(struct ram_link *link, uint32_t kind, ram_done done, void *arg)
{
	struct op *op = xnew(struct op);

	op->kind = kind;
	op->done = done;
	op->arg = arg;
	*link->last = op;
	link->last = &op->next;
	if (link->first == op)
		loop_defer(link->loop, go_on, link);
	return op;
}

/* The first op has ended; false: its callback has freed the link. */
static bool finish_first(struct ram_link *link, const struct err *err)
{
	struct op *op = link->first;
	bool gone = false, *outer = link->gone;

	link->first = op->next;
	if (!link->first)
		link->last = &link->first;
	link->waiting = false;
	link->gone = &gone;
	if (op->done)
		op->done(err, op->arg);
	free_op(op);
	if (gone) {
		if (outer)
			*outer = true;
		return false;
	}
	link->gone = outer;
	return true;
}

static void disconnect(struct ram_link *link)
{
	loop_fd_free(link->watch);
	link->watch = NULL;
	loop_timer_stop(link->timer);
	if (link->fd >= 0)
		close(link->fd);
	link->fd = -1;
}

static void lose(struct ram_link *link, const struct err *err)
{
	struct err why = link->lost.kind ? link->lost : *err; /* outlives the link */
	bool told = link->lost.kind != ERR_NONE;

	link->lost = why;
	disconnect(link);
	while (link->first)
		if (!finish_first(link, &why))
			return;
	if (!told && link->on_lost)
		link->on_lost(link, &why, link->arg);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Takes the next pieces of a map, and the fds they need, each once. */
static size_t fill_pieces(struct op *op, struct ram_request *request, int *fds, size_t *ret_fds)
{
	_cleanup_free_ uint32_t *places = xnewn(uint32_t, op->stack.count + 1);
	size_t count = 0, fd_count = 0;

	for (; op->sent + count < op->count && count < RAM_MESSAGE_PIECES; count++) {
		struct ram_piece piece = op->pieces[op->sent + count];

		if (piece.fd != RAM_ZERO) {
			uint32_t *place = &places[piece.fd];

			if (!*place && fd_count == RAM_MESSAGE_FDS)
				break;
			if (!*place) {
				fds[fd_count++] = op->stack.layers[piece.fd].fd;
				*place = (uint32_t)fd_count;
			}
			piece.fd = *place - 1;
		}
		request->pieces[count] = piece;
	}
	*ret_fds = fd_count;
	request->count = (uint32_t)count;
	return count;
}

static int send_request(struct ram_link *link, struct op *op, struct err *err)
{
	size_t room = sizeof(struct ram_request) + RAM_MESSAGE_PIECES * sizeof(struct ram_piece);
	_cleanup_free_ struct ram_request *request = xcalloc(1, room);
	size_t len = sizeof *request, fd_count = 0;
	int fds[RAM_MESSAGE_FDS];

	request->magic = RAM_MAGIC;
	request->kind = op->kind;
	if (op->kind == RAM_ATTACH) {
		request->base = link->base;
		request->size = link->ram_bytes;
	}
	if (op->kind == RAM_MAP) {
		size_t count = fill_pieces(op, request, fds, &fd_count);

		request->later = op->later;
		op->sent += count;
		len += count * sizeof(struct ram_piece);
	}
	if (fdpass_send(link->fd, request, len, fds, fd_count, MSG_DONTWAIT) != (ssize_t)len)
		return err_set(err, ERR_UNAVAILABLE, "QEMU's library does not listen: %s",
			strerror(errno));
	link->waiting = true;
	loop_timer_start(link->timer, ANSWER_LIMIT_MS);
	return 0;
}

/* Starts the first op, if there is one and it has not been started. */
static void go_on(void *arg)
{
	struct ram_link *link = arg;
	struct err err = ERR_INIT;

	if (link->lost.kind) {
		lose(link, &link->lost);
		return;
	}
	while (link->first && !link->waiting) {
		struct err known = link->first->err;

		if (known.kind) {
			if (!finish_first(link, &known))
				return;
			continue;
		}
		if (send_request(link, link->first, &err) < 0) {
			lose(link, &err);
			return;
		}
	}
}

/* ---- answers --------------------------------------------------------------------------------- */

static int find_ram(struct ram_link *link, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/maps", link->pid);
	if (file_read(AT_FDCWD, path, MAPS_FILE_MAX, &text, NULL, err) < 0)
		return err_wrap(err, "find the RAM of QEMU");
	return ram_find_mapping(text, link->ram_bytes, &link->base, err);
}

/* The answer to hello and attach is the location of the RAM. */
static int on_place(struct ram_link *link, const struct ram_answer *answer, struct err *err)
{
	struct op *attach;

	if (answer->error)
		return err_set(err, ERR_PROTOCOL, "QEMU's library refuses its RAM: %s",
			strerror((int)answer->error));
	if (answer->size && answer->size != link->ram_bytes)
		return err_set(err, ERR_PROTOCOL, "QEMU's RAM has %llu bytes instead of %llu",
			(unsigned long long)answer->size, (unsigned long long)link->ram_bytes);
	if (answer->size) {
		link->base = answer->base;
		return 0;
	}
	if (answer->kind == RAM_ATTACH)
		return err_set(err, ERR_PROTOCOL, "QEMU's library has forgotten its RAM");
	if (find_ram(link, err) < 0)
		return -1;
	attach = xnew(struct op); /* before all pending ones */
	attach->kind = RAM_ATTACH;
	attach->next = link->first->next;
	link->first->next = attach;
	if (!attach->next)
		link->last = &attach->next;
	return 0;
}

static void on_answer(struct ram_link *link, const struct ram_answer *answer)
{
	struct err err = ERR_INIT;
	struct op *op = link->first;

	loop_timer_stop(link->timer);
	link->waiting = false;
	if (op->kind == RAM_HELLO || op->kind == RAM_ATTACH) {
		if (on_place(link, answer, &err) < 0) {
			lose(link, &err);
			return;
		}
	} else if (answer->error) {
		err_set(&err, answer->error == EPROTO ? ERR_PROTOCOL : ERR_UNAVAILABLE,
			"QEMU's library failed: %s", strerror((int)answer->error));
		err.errno_value = (int)answer->error;
	} else if (op->kind == RAM_MAP && op->sent < op->count) {
		go_on(link); /* the next pieces */
		return;
	}
	if (finish_first(link, err.kind ? &err : NULL))
		go_on(link);
}

static void on_readable(void *arg, unsigned ready)
{
	struct ram_link *link = arg;
	struct ram_answer answer;
	struct err err = ERR_INIT;
	char data[sizeof answer + 1];
	ssize_t got = recv(link->fd, data, sizeof data, MSG_DONTWAIT | MSG_TRUNC);

	(void)ready;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0)
		err_set(&err, ERR_UNAVAILABLE, "QEMU has ended the connection of its library");
	else if (!link->waiting)
		err_set(&err, ERR_PROTOCOL, "QEMU's library answered without a request");
	else if (ram_answer_check(data, (size_t)got, link->first->kind, &answer, &err) == 0) {
		on_answer(link, &answer);
		return;
	}
	lose(link, &err);
}

static void on_timeout(void *arg)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_UNAVAILABLE, "QEMU's library does not answer");
	lose(arg, &err);
}

/* ---- the public side ------------------------------------------------------------------------- */

struct ram_link *ram_link_new(
	struct loop *loop, int fd, pid_t pid, uint64_t ram_bytes, ram_lost on_lost, void *arg)
{
	struct ram_link *link = xnew(struct ram_link);

	*link = (struct ram_link){ .loop = loop,
		.fd = fd,
		.pid = pid,
		.ram_bytes = ram_bytes,
		.on_lost = on_lost,
		.arg = arg };
	link->last = &link->first;
	link->watch = loop_fd_new(loop, fd, LOOP_READ, on_readable, link);
	link->timer = loop_timer_new(loop, on_timeout, link);
	push(link, RAM_HELLO, NULL, NULL);
	return link;
}

void ram_link_free(struct ram_link *link)
{
	if (!link)
		return;
	if (link->gone)
		*link->gone = true;
	loop_undefer(link->loop, go_on, link);
	disconnect(link);
	loop_timer_free(link->timer);
	while (link->first) {
		struct op *op = link->first;

		link->first = op->next;
		free_op(op);
	}
	free(link);
}

void ram_link_keep(struct ram_link *link, ram_done done, void *arg)
{
	push(link, RAM_KEEP, done, arg);
}

static void map(struct ram_link *link, struct ram_store *store, const char *const *stack,
	bool only_top, ram_done done, void *arg)
{
	struct op *op = push(link, RAM_MAP, done, arg);

	op->later = only_top; /* in the other case nothing was written */
	if (ram_stack_load(ram_store_dir(store), stack, link->ram_bytes, &op->stack, &op->err) == 0)
		ram_stack_pieces(&op->stack, only_top, &op->pieces, &op->count, &op->err);
}

void ram_link_map(struct ram_link *link, struct ram_store *store, const char *const *stack,
	ram_done done, void *arg)
{
	map(link, store, stack, false, done, arg);
}

static size_t count_mappings(pid_t pid)
{
	_cleanup_free_ char *text = NULL;
	char path[64];
	size_t lines = 0;

	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	if (file_read(AT_FDCWD, path, MAPS_FILE_MAX, &text, NULL, NULL) < 0)
		return SIZE_MAX;
	for (const char *p = text; (p = strchr(p, '\n')); p++)
		lines++;
	return lines;
}

void ram_link_add(struct ram_link *link, struct ram_store *store, const char *const *stack,
	ram_done done, void *arg)
{
	map(link, store, stack, link->mappings < MAPPINGS_MANY, done, arg);
	link->mappings += 2 * RAM_PIECES_WANTED; /* until they are counted again */
}

void ram_link_register(struct ram_link *link, ram_done done, void *arg)
{
	link->mappings = count_mappings(link->pid); /* now, while the guest runs */
	push(link, RAM_REGISTER, done, arg);
}

void ram_link_locate(struct ram_link *link, ram_done done, void *arg)
{
	link->mappings = SIZE_MAX / 2; /* the rest of the RAM is QEMU's own file, too */
	push(link, RAM_HELLO, done, arg);
}

void ram_link_unregister(struct ram_link *link)
{
	push(link, RAM_UNREGISTER, NULL, NULL);
}

void ram_link_forget(struct ram_link *link, const void *arg)
{
	for (struct op *op = link->first; op; op = op->next)
		if (op->arg == arg)
			op->done = NULL;
}

pid_t ram_link_pid(const struct ram_link *link)
{
	return link->pid;
}

uint64_t ram_link_bytes(const struct ram_link *link)
{
	return link->ram_bytes;
}

uint64_t ram_link_base(const struct ram_link *link)
{
	return link->base;
}
