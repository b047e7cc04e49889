/* library.c - box-ram.so: a thread inside QEMU that does what QEMU cannot do itself
 *
 * QEMU gets RAM that is an empty shared file of its own. This library, loaded by LD_PRELOAD,
 * maps layers over it (MAP_FIXED|MAP_PRIVATE of read-only files, so the host addresses stay and
 * QEMU notices nothing) and registers the range with userfaultfd, so that the daemon can find
 * written pages from outside. It keeps no layer open: the fds are closed as soon as they are
 * mapped, and none of them is writable. When the guest returns memory (balloon, free page
 * reporting) QEMU punches a hole into its own empty file and drops private pages; no layer
 * changes.
 *
 * The thread serves one connection after the other on an inherited listening socket; see
 * protocol.h. It allocates nothing, and checks every message completely before it does anything.
 * A process that nobody keeps (RAM_KEEP) ends with its connection, or when nobody connects at
 * all: it was waiting for a box that will not come. */
#include "engine/vm/preload/preload_internal.h"
#include "engine/vm/preload/protocol.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

enum {
	CONNECT_LIMIT_MS = 60000,
	STACK_BYTES = 128 * 1024,
	ASIDE_MIN = 1 << 20,
	ASIDE_STEP = 8 << 20,
	/* Constants of userfaultfd, as in linux/userfaultfd.h of Linux 6.7. */
	FEATURE_PAGEFAULT_FLAG_WP = 1 << 0,
	FEATURE_WP_HUGETLBFS_SHMEM = 1 << 12,
	FEATURE_WP_UNPOPULATED = 1 << 13,
	FEATURE_WP_ASYNC = 1 << 15,
};

static struct {
	struct ram_request request;
	struct ram_piece pieces[RAM_MESSAGE_PIECES];
} message;
static int fds[RAM_MESSAGE_FDS];
static unsigned fd_count;
static int faults = -1; /* the userfaultfd */
static bool kept;
static char *aside; /* as large as the RAM, while there is something in it */

/* ---- the requests ---------------------------------------------------------------------------- */

static int attach(const struct ram_request *request)
{
	uint64_t size = atomic_load(&preload_size);

	if (size)
		return size == request->size && preload_base == request->base ? 0 : EBUSY;
	if (!request->base || !request->size || (request->base | request->size) % RAM_PAGE ||
		request->base + request->size < request->base)
		return EPROTO;
	/* Fails unless every page is mapped: msync checks nothing else. */
	if (msync((void *)(uintptr_t)request->base, request->size, MS_ASYNC) < 0)
		return errno;
	preload_base = request->base;
	atomic_store_explicit(&preload_size, request->size, memory_order_release);
	return 0;
}

/* A truncated file would kill QEMU by a signal when the guest reaches that page. */
static int check_piece(const struct ram_piece *piece, uint64_t from)
{
	struct stat st;
	int flags;

	if (piece->offset < from || !piece->length || (piece->offset | piece->length) % RAM_PAGE ||
		piece->offset >= preload_size || piece->length > preload_size - piece->offset)
		return EPROTO;
	if (piece->fd == RAM_ZERO)
		return 0;
	if (piece->fd >= fd_count)
		return EPROTO;
	flags = fcntl(fds[piece->fd], F_GETFL);
	if (flags < 0 || (flags & O_ACCMODE) != O_RDONLY)
		return EACCES;
	if (fstat(fds[piece->fd], &st) < 0 || !S_ISREG(st.st_mode) ||
		(uint64_t)st.st_size < piece->offset + piece->length)
		return EINVAL;
	return 0;
}

static int map_piece(const struct ram_piece *piece)
{
	int flags = MAP_FIXED | MAP_PRIVATE | MAP_NORESERVE;
	void *place = (void *)(uintptr_t)(preload_base + piece->offset);
	bool zero = piece->fd == RAM_ZERO;

	if (mmap(place, piece->length, PROT_READ | PROT_WRITE, zero ? flags | MAP_ANONYMOUS : flags,
		    zero ? -1 : fds[piece->fd], zero ? 0 : (off_t)piece->offset) == MAP_FAILED)
		return errno;
	/* A written byte must cost one page of a layer, not two megabytes. */
	if (zero)
		madvise(place, piece->length, MADV_NOHUGEPAGE);
	return 0;
}

/* Freeing written memory takes long (page by page, 40 ms for 500 MB), and the guest is stopped
 * while a map is in progress. So the pages are first moved elsewhere, in pieces because one
 * mremap cannot span two mappings, and freed after the answer was sent. Where that fails, mmap
 * frees them. The old mapping stays (MREMAP_DONTUNMAP): the RAM never has a hole. */
static void put_aside(const struct ram_piece *piece)
{
	uint64_t end = piece->offset + piece->length;

	if (piece->length < ASIDE_MIN)
		return;
	if (!aside) {
		void *place = mmap(NULL, preload_size, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (place == MAP_FAILED)
			return;
		aside = place;
	}
	for (uint64_t at = piece->offset, len; at < end; at += len) {
		len = end - at < ASIDE_STEP ? end - at : ASIDE_STEP;
		(void)!mremap((void *)(uintptr_t)(preload_base + at), len, len,
			MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, aside + at);
	}
}

static void free_aside(void)
{
	if (aside)
		munmap(aside, preload_size);
	aside = NULL;
}

static int map(const struct ram_request *request)
{
	uint64_t from = 0;

	if (!atomic_load(&preload_size))
		return EPROTO;
	for (uint32_t i = 0; i < request->count; i++) {
		int error = check_piece(&request->pieces[i], from);

		if (error)
			return error;
		from = request->pieces[i].offset + request->pieces[i].length;
	}
	for (uint32_t i = 0; i < request->count; i++) {
		int error;

		if (request->later)
			put_aside(&request->pieces[i]);
		error = map_piece(&request->pieces[i]);
		if (error)
			return error;
	}
	return 0;
}

static int unregister(void)
{
	struct uffdio_range range = { preload_base, atomic_load(&preload_size) };

	if (faults < 0)
		return 0;
	ioctl(faults, UFFDIO_UNREGISTER, &range);
	close(faults);
	faults = -1;
	return 0;
}

/* Uses a new userfaultfd each time: a pass that was cut off has left pages protected whose
 * copies were in a layer that does not exist. Now all pages count as written. */
static int reregister(void)
{
	struct uffdio_api api = { .api = UFFD_API,
		.features = FEATURE_PAGEFAULT_FLAG_WP | FEATURE_WP_HUGETLBFS_SHMEM |
			    FEATURE_WP_UNPOPULATED | FEATURE_WP_ASYNC };
	struct uffdio_register range = { .range = { preload_base, atomic_load(&preload_size) },
		.mode = UFFDIO_REGISTER_MODE_WP };
	int error = 0;

	if (!range.range.len)
		return EPROTO;
	unregister();
	faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (faults < 0)
		return errno;
	if (ioctl(faults, UFFDIO_API, &api) < 0 || ioctl(faults, UFFDIO_REGISTER, &range) < 0)
		error = errno;
	if (error)
		unregister();
	return error;
}

static int serve(const struct ram_request *request)
{
	switch (request->kind) {
	case RAM_HELLO:
		return 0;
	case RAM_ATTACH:
		return attach(request);
	case RAM_MAP:
		return map(request);
	case RAM_REGISTER:
		return reregister();
	case RAM_UNREGISTER:
		return unregister();
	case RAM_KEEP:
		kept = true;
		return 0;
	default:
		return EPROTO;
	}
}

/* ---- the connection -------------------------------------------------------------------------- */

static bool is_well_formed(size_t len)
{
	const struct ram_request *request = &message.request;
	size_t pieces;

	if (len < sizeof *request || request->magic != RAM_MAGIC)
		return false;
	pieces = request->kind == RAM_MAP ? request->count : 0;
	return pieces <= RAM_MESSAGE_PIECES && request->count == pieces &&
	       len == sizeof *request + pieces * sizeof(struct ram_piece);
}

static void take_fds(struct msghdr *packet)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(packet); c; c = CMSG_NXTHDR(packet, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (fd_count < RAM_MESSAGE_FDS)
				fds[fd_count++] = fd;
			else
				close(fd);
		}
	}
}

/* Serves one request; false: the connection has ended. */
static bool serve_one(int sock)
{
	static char control[CMSG_SPACE(sizeof(int) * RAM_MESSAGE_FDS)];
	struct iovec place = { &message, sizeof message };
	struct msghdr packet = { .msg_iov = &place,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof control };
	struct ram_answer answer = { .magic = RAM_MAGIC };
	ssize_t got;

	do
		got = recvmsg(sock, &packet, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got <= 0)
		return false;
	fd_count = 0;
	take_fds(&packet);
	answer.kind = (size_t)got >= sizeof message.request ? message.request.kind : 0;
	answer.error = EPROTO;
	if (!(packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && is_well_formed((size_t)got))
		answer.error = (uint32_t)serve(&message.request);
	while (fd_count)
		close(fds[--fd_count]);
	answer.size = atomic_load(&preload_size);
	answer.base = answer.size ? preload_base : 0;
	got = send(sock, &answer, sizeof answer, MSG_NOSIGNAL);
	free_aside();
	return got == sizeof answer;
}

static void *run(void *arg)
{
	int listener = (int)(intptr_t)arg;

	for (;;) {
		struct pollfd p = { .fd = listener, .events = POLLIN };
		int ready = poll(&p, 1, kept ? -1 : CONNECT_LIMIT_MS), sock;

		if (ready == 0)
			_exit(0);
		sock = ready < 0 ? -1 : accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (sock < 0) {
			poll(NULL, 0, 10); /* out of fds, or a signal: avoids a busy loop */
			continue;
		}
		while (serve_one(sock))
			;
		if (!kept)
			_exit(0);
		close(sock);
		if (atomic_load(&preload_size))
			unregister(); /* the process that started a pass has gone */
	}
	return NULL;
}

static bool is_listener(int fd)
{
	int listens = 0;
	socklen_t len = sizeof listens;

	return !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) && listens;
}

/* A program that should have this library but cannot must not run: nobody could map its RAM, and
 * the daemon would wait. */
__attribute__((constructor)) static void begin(void)
{
	const char *text = getenv("BOX_RAM_FD");
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int fd;

	if (!text)
		return;
	fd = atoi(text);
	unsetenv("BOX_RAM_FD");
	unsetenv("LD_PRELOAD");
	if (fd < 3 || !is_listener(fd) || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		_exit(127);
	sigfillset(&all);
	/* signals are for QEMU; the thread inherits this mask */
	pthread_sigmask(SIG_BLOCK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	if (pthread_create(&thread, &attr, run, (void *)(intptr_t)fd) != 0)
		_exit(127);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}
