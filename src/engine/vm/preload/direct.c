/* direct.c - QEMU's direct reads, which bypass its page tables
 *
 * A pass finds written pages by their page table entries: it write-protects them, copies them,
 * and the next pass takes those that were written again. A direct read (O_DIRECT) of the box's
 * disk into the guest's RAM does not fit into that: the kernel looks the pages up when the read
 * begins, and the device writes to them later, whatever the entry says then. A pass in between
 * would copy a half-read page, and no later pass would look at it again.
 *
 * So QEMU's positioned reads (its thread pool uses no others) are intercepted here, and each
 * page of the RAM that a read filled is touched after it: a byte of it is written back, through
 * its page table entry. A page that was write-protected meanwhile then counts as written again.
 * The cost cannot be measured: the pages are present, and writable unless a pass has protected
 * them.
 *
 * aio=native and aio=io_uring are not intercepted and must not be used. */
#include "engine/vm/preload/preload_internal.h"
#include "engine/vm/preload/protocol.h"
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

uint64_t preload_base;
_Atomic uint64_t preload_size;

static void touch(const void *data, size_t len)
{
	uint64_t size = atomic_load_explicit(&preload_size, memory_order_acquire);
	uint64_t from = (uint64_t)(uintptr_t)data, to = from + len;

	if (!size || !len || to <= preload_base || from >= preload_base + size)
		return;
	from = from < preload_base ? preload_base : from;
	to = to > preload_base + size ? preload_base + size : to;
	for (uint64_t page = from & ~(uint64_t)(RAM_PAGE - 1); page < to; page += RAM_PAGE)
		__atomic_fetch_or((unsigned char *)(uintptr_t)page, 0, __ATOMIC_RELAXED);
}

/* A failed read may have written to any of its pages. */
static ssize_t read_at(int fd, void *data, size_t len, off_t offset)
{
	ssize_t got = syscall(SYS_pread64, fd, data, len, offset);
	int error = errno;

	touch(data, got < 0 ? len : (size_t)got);
	errno = error;
	return got;
}

static ssize_t read_vector_at(int fd, const struct iovec *vector, int count, off_t offset)
{
	ssize_t got = syscall(SYS_preadv, fd, vector, count, offset, 0);
	size_t left = got < 0 ? SIZE_MAX : (size_t)got;
	int error = errno;

	if (got < 0 && error == EFAULT)
		return got; /* the vector itself may be invalid */
	for (int i = 0; i < count && left; i++) {
		size_t len = vector[i].iov_len < left ? vector[i].iov_len : left;

		touch(vector[i].iov_base, len);
		left -= got < 0 ? 0 : len;
	}
	errno = error;
	return got;
}

/* Exported in place of the C library's functions, under each name that a program may have been
 * linked with. */
#define EXPORTED __attribute__((visibility("default")))

EXPORTED ssize_t preload_pread(int fd, void *data, size_t len, off_t offset) __asm__("pread");
EXPORTED ssize_t preload_pread64(int fd, void *data, size_t len, off_t offset) __asm__("pread64");
EXPORTED ssize_t preload_pread_chk(
	int fd, void *data, size_t len, off_t offset, size_t room) __asm__("__pread64_chk");
EXPORTED ssize_t preload_preadv(
	int fd, const struct iovec *vector, int count, off_t offset) __asm__("preadv");
EXPORTED ssize_t preload_preadv64(
	int fd, const struct iovec *vector, int count, off_t offset) __asm__("preadv64");

ssize_t preload_pread(int fd, void *data, size_t len, off_t offset)
{
	return read_at(fd, data, len, offset);
}

ssize_t preload_pread64(int fd, void *data, size_t len, off_t offset)
{
	return read_at(fd, data, len, offset);
}

ssize_t preload_pread_chk(int fd, void *data, size_t len, off_t offset, size_t room)
{
	if (len > room)
		__builtin_trap(); /* as the C library's function would */
	return read_at(fd, data, len, offset);
}

ssize_t preload_preadv(int fd, const struct iovec *vector, int count, off_t offset)
{
	return read_vector_at(fd, vector, count, offset);
}

ssize_t preload_preadv64(int fd, const struct iovec *vector, int count, off_t offset)
{
	return read_vector_at(fd, vector, count, offset);
}
