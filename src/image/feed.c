/* feed.c - a process that decompresses and hashes beside the one that unpacks
 *
 *   fd ──► [hash of the input] ──► inflate ──► [hash of the output] ──► slots ──► feed_read
 *          └──────────────────── child ───────────────────────────────┘
 *
 * Making files and decompressing cost about the same, so two processes on two cores halve the
 * time. The bytes go through slots in shared memory. The child reports a full slot and its
 * length through a pipe; the parent returns a free slot through a socket (a write to it raises
 * no signal when the child has ended). The end of the pipe is the end of the bytes, but it is
 * trusted only if the child has set `finished` in the shared memory, where it also leaves the
 * digests or its error. Sending the bytes through a pipe would cost two more copies, and a
 * system call for each tar header.
 *
 * A decompression bomb is a few bytes that become endlessly many. Real layers shrink to a fifth
 * or a tenth; a large output of more than a hundred times its input is refused here. */
#include "image/oci_internal.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { SLOT_SIZE = 256 * 1024, SLOT_COUNT = 8, RATIO_MAX = 100 };
#define RATIO_FREE (4ull << 30) /* below this any ratio is fine */

struct shared {
	_Atomic uint64_t raw_bytes;
	struct feed_totals totals;
	struct err err;
	_Atomic bool finished; /* totals or err are set */
	uint8_t slots[SLOT_COUNT][SLOT_SIZE];
};

struct feed {
	struct shared *shared;
	int full, freed; /* to read from, to write to */
	pid_t pid;
	unsigned slot; /* the one being read */
	uint32_t len, pos;
};

struct source {
	int fd;
	struct sha256 *sha;
	struct shared *shared;
};

static ssize_t read_raw(void *arg, void *data, size_t len, struct err *err)
{
	struct source *source = arg;
	struct pollfd ready = { .fd = source->fd, .events = POLLIN };
	ssize_t got;

	while ((got = read(source->fd, data, len)) < 0 && (errno == EINTR || errno == EAGAIN))
		poll(&ready, 1, -1); /* the caller's fd may be non-blocking */
	if (got < 0)
		return err_sys(err, errno, "read the archive");
	sha256_add(source->sha, data, (size_t)got);
	source->shared->raw_bytes += (uint64_t)got;
	return got;
}

/* Fills the slot until it is full or the input ends. */
static ssize_t fill(struct inflate *inflate, uint8_t *slot, struct err *err)
{
	size_t len = 0;
	ssize_t got;

	while (len < SLOT_SIZE) {
		got = inflate_read(inflate, slot + len, SLOT_SIZE - len, err);
		if (got < 0)
			return -1;
		if (!got)
			break;
		len += (size_t)got;
	}
	return (ssize_t)len;
}

/* Waits for a free slot. End of file on the socket means that the reader has ended. */
static int wait_free(int freed, struct err *err)
{
	ssize_t got;
	char token;

	do
		got = read(freed, &token, 1);
	while (got < 0 && errno == EINTR);
	return got == 1 ? 0 : err_set(err, ERR_CANCELLED, "the reader has ended");
}

static int pump(struct inflate *inflate, struct sha256 *sha, struct shared *shared, int full,
	int freed, struct err *err)
{
	uint64_t total = 0;
	unsigned slot = 0;
	ssize_t len;

	for (;; slot = (slot + 1) % SLOT_COUNT) {
		uint32_t announced;

		if (wait_free(freed, err) < 0)
			return -1;
		len = fill(inflate, shared->slots[slot], err);
		if (len <= 0)
			break;
		total += (uint64_t)len;
		if (total > RATIO_FREE && total / RATIO_MAX > shared->raw_bytes)
			return err_set(err, ERR_LIMIT,
				"the archive becomes more than %d times as large when it is unpacked",
				RATIO_MAX);
		if (!inflate_is_plain(inflate)) /* else it equals the digest of the input */
			sha256_add(sha, shared->slots[slot], (size_t)len);
		announced = (uint32_t)len;
		if (fd_write_all(full, &announced, sizeof announced, err) < 0)
			return -1;
	}
	shared->totals.bytes = total;
	return (int)len;
}

static _Noreturn void run_child(int fd, int full, int freed, struct shared *shared)
{
	struct source source = { .fd = fd, .sha = sha256_new(), .shared = shared };
	struct inflate *inflate = inflate_new(read_raw, &source);
	struct sha256 *sha = sha256_new();
	struct err err = ERR_INIT;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	if (pump(inflate, sha, shared, full, freed, &err) < 0) {
		shared->err = err;
	} else {
		shared->totals.raw_bytes = shared->raw_bytes;
		sha256_end(source.sha, shared->totals.raw_digest);
		sha256_end(sha, shared->totals.digest);
		if (inflate_is_plain(inflate))
			memcpy(shared->totals.digest, shared->totals.raw_digest, DIGEST_SIZE);
	}
	shared->finished = true;
	_exit(0);
}

static int open_channels(int full[2], int freed[2], struct err *err)
{
	static const char tokens[SLOT_COUNT];

	if (pipe2(full, O_CLOEXEC) < 0)
		return err_sys(err, errno, "pipe for a decompressor");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, freed) < 0) {
		err_sys(err, errno, "socket for a decompressor");
		close(full[0]);
		close(full[1]);
		return -1;
	}
	return fd_write_all(freed[1], tokens, sizeof tokens, err); /* all are free */
}

int feed_start(int fd, struct feed **ret, struct err *err)
{
	struct shared *shared = mmap(
		NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int full[2], freed[2];
	struct feed *feed;
	pid_t pid;

	if (shared == MAP_FAILED)
		return err_sys(err, errno, "memory for a decompressor");
	if (open_channels(full, freed, err) < 0) {
		munmap(shared, sizeof *shared);
		return -1;
	}
	pid = fork();
	if (pid == 0) {
		close(full[0]);
		close(freed[1]);
		run_child(fd, full[1], freed[0], shared);
	}
	close(full[1]);
	close(freed[0]);
	if (pid < 0) {
		err_sys(err, errno, "fork a decompressor");
		close(full[0]);
		close(freed[1]);
		munmap(shared, sizeof *shared);
		return -1;
	}
	feed = xnew(struct feed);
	*feed = (struct feed){ .shared = shared,
		.full = full[0],
		.freed = freed[1],
		.pid = pid,
		.slot = SLOT_COUNT - 1 };
	*ret = feed;
	return 0;
}

/* The result at the end of the pipe: 0 or -1. */
static int conclude(struct feed *feed, struct err *err)
{
	if (!feed->shared->finished)
		return err_set(err, ERR_SYSTEM, "the decompressor was killed");
	if (!feed->shared->err.kind)
		return 0;
	if (err)
		*err = feed->shared->err;
	return -1;
}

/* Takes the next slot: 1, or the result of conclude(). The child is our own code, so a length is
 * never more than a slot and a token never split. */
static int next_slot(struct feed *feed, struct err *err)
{
	ssize_t got;

	do
		got = read(feed->full, &feed->len, sizeof feed->len);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return err_sys(err, errno, "read from the decompressor");
	feed->pos = 0;
	if (!got) {
		feed->len = 0;
		return conclude(feed, err);
	}
	assert(got == sizeof feed->len && feed->len <= SLOT_SIZE);
	feed->slot = (feed->slot + 1) % SLOT_COUNT;
	return 1;
}

ssize_t feed_read(void *arg, void *data, size_t len, struct err *err)
{
	struct feed *feed = arg;
	size_t part;

	if (feed->pos == feed->len) {
		int code = next_slot(feed, err);

		if (code <= 0)
			return code;
	}
	part = MIN(len, (size_t)(feed->len - feed->pos));
	memcpy(data, feed->shared->slots[feed->slot] + feed->pos, part);
	feed->pos += (uint32_t)part;
	/* The child may have ended by now: the pipe will show it. */
	if (feed->pos == feed->len)
		send(feed->freed, "", 1, MSG_NOSIGNAL);
	return (ssize_t)part;
}

uint64_t feed_raw_bytes(const struct feed *feed)
{
	return feed->shared->raw_bytes;
}

const struct feed_totals *feed_get_totals(const struct feed *feed)
{
	return &feed->shared->totals;
}

void feed_free(struct feed *feed)
{
	if (!feed)
		return;
	close(feed->full);
	close(feed->freed);
	kill(feed->pid, SIGKILL); /* not reaped yet, so the pid is still its own */
	while (waitpid(feed->pid, NULL, 0) < 0 && errno == EINTR)
		;
	munmap(feed->shared, sizeof *feed->shared);
	free(feed);
}
