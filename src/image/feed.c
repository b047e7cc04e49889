/* feed.c - a process that decompresses and hashes beside the one that unpacks
 *
 *   fd ──► [hash of what came] ──► inflate ──► [hash of what came out] ──► pipe ──► feed_read
 *          └──────────────────── child ───────────────────────────────┘
 *
 * Making files and decompressing cost about the same, so two processes on two cores halve the time. What the child
 * has to tell (how far it is, the sums, why it failed) lies in memory both see. The end of the pipe is trusted only
 * if the child says there that it has come to its end.
 *
 * A bomb: few bytes that become endlessly many. Honest layers shrink to a fifth or a tenth; what is large and
 * claims more than a hundredth is refused here. */
#include "image/oci_internal.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { CHUNK = 256 * 1024, PIPE_SIZE = 1024 * 1024, RATIO_MAX = 100 };
#define RATIO_FREE (4ull << 30) /* below this any ratio is fine */

struct shared {
	_Atomic uint64_t raw_bytes;
	struct feed_totals totals;
	struct err err;
	_Atomic bool finished; /* totals or err are there */
};

struct feed {
	struct shared *shared;
	int pipe;
	pid_t pid;
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
		poll(&ready, 1, -1); /* whoever gave it may have made it non-blocking */
	if (got < 0)
		return err_sys(err, errno, "read the archive");
	sha256_add(source->sha, data, (size_t)got);
	source->shared->raw_bytes += (uint64_t)got;
	return got;
}

static int pump(struct inflate *inflate, struct sha256 *sha, struct shared *shared, int out,
	struct err *err)
{
	_cleanup_free_ uint8_t *data = xcalloc(1, CHUNK);
	uint64_t total = 0;
	ssize_t got;

	while ((got = inflate_read(inflate, data, CHUNK, err)) > 0) {
		total += (uint64_t)got;
		if (total > RATIO_FREE && total / RATIO_MAX > shared->raw_bytes)
			return err_set(err, ERR_LIMIT,
				"the archive becomes more than %d times as large as it came",
				RATIO_MAX);
		if (!inflate_is_plain(inflate)) /* else it is the sum of what came */
			sha256_add(sha, data, (size_t)got);
		if (fd_write_all(out, data, (size_t)got, err) < 0)
			return -1;
	}
	shared->totals.bytes = total;
	return (int)got;
}

static _Noreturn void run_child(int fd, int out, struct shared *shared)
{
	struct source source = { .fd = fd, .sha = sha256_new(), .shared = shared };
	struct inflate *inflate = inflate_new(read_raw, &source);
	struct sha256 *sha = sha256_new();
	struct err err = ERR_INIT;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	if (pump(inflate, sha, shared, out, &err) < 0) {
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

int feed_start(int fd, struct feed **ret, struct err *err)
{
	struct shared *shared = mmap(
		NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct feed *feed;
	int ends[2];
	pid_t pid;

	if (shared == MAP_FAILED)
		return err_sys(err, errno, "memory for a decompressor");
	if (pipe2(ends, O_CLOEXEC) < 0) {
		munmap(shared, sizeof *shared);
		return err_sys(err, errno, "pipe for a decompressor");
	}
	fcntl(ends[1], F_SETPIPE_SZ, PIPE_SIZE); /* only faster */
	pid = fork();
	if (pid == 0) {
		close(ends[0]);
		run_child(fd, ends[1], shared);
	}
	close(ends[1]);
	if (pid < 0) {
		err_sys(err, errno, "fork a decompressor");
		close(ends[0]);
		munmap(shared, sizeof *shared);
		return -1;
	}
	feed = xnew(struct feed);
	*feed = (struct feed){ .shared = shared, .pipe = ends[0], .pid = pid };
	*ret = feed;
	return 0;
}

ssize_t feed_read(void *arg, void *data, size_t len, struct err *err)
{
	struct feed *feed = arg;
	ssize_t got;

	do
		got = read(feed->pipe, data, len);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return err_sys(err, errno, "read from the decompressor");
	if (got)
		return got;
	if (!feed->shared->finished)
		return err_set(err, ERR_SYSTEM, "the decompressor was killed");
	if (feed->shared->err.kind) {
		if (err)
			*err = feed->shared->err;
		return -1;
	}
	return 0;
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
	close(feed->pipe);
	kill(feed->pid, SIGKILL); /* not reaped yet, so the pid is still its own */
	while (waitpid(feed->pid, NULL, 0) < 0 && errno == EINTR)
		;
	munmap(feed->shared, sizeof *feed->shared);
	free(feed);
}
