/* ram_copy.c - the passes of a capture, in a helper process
 *
 * Written pages are the anonymous ones of QEMU's RAM: everything else belongs to a layer. With
 * Linux 6.7 (userfaultfd asynchronous write protection, PAGEMAP_SCAN) one call lists the written
 * pages and protects them; they are copied while the guest runs, and the next pass finds those
 * that were written again. After two passes, or four if there is still a lot, the guest may be
 * stopped, and the last pass copies the rest. On older kernels the last pass copies everything.
 *
 * The helper reads QEMU's memory from outside (process_vm_readv) and writes the layer itself:
 * QEMU, which a guest may have taken over, never has a writable layer. It can only damage its
 * own.
 *
 * Pages of zeros are not written (the file stays sparse); long runs become extents without data,
 * which are mapped as plain memory. When written pages are scattered, the pages between them are
 * copied too, so that a layer has some thousand extents at most. */
#include "base/clock.h"
#include "engine/vm/ram_internal.h"
#include "sys/procfd.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
	PASSES_MAX = 4,	       /* while the guest runs */
	ENOUGH = 4 << 20,      /* after a pass that copied less, the guest may be stopped */
	BATCH_BYTES = 1 << 20, /* read at once */
	BATCH_RANGES = 256,
	SCAN_REGIONS = 2048,
	NEAR = 1 << 20,	     /* regions closer than this are scanned in one call */
	LIVE_EXTENTS = 2000, /* with more, gaps are copied too */
	LAST_EXTENTS = 6000,
};

/* linux/fs.h of Linux 6.7 */
struct scan_region {
	uint64_t start, end, categories;
};
struct scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN_IOCTL _IOWR('f', 16, struct scan)
enum {
	SCAN_WP_MATCHING = 1 << 0,
	SCAN_CHECK_WPASYNC = 1 << 1,
	IS_WRITTEN = 1 << 1,
	IS_FILE = 1 << 2,
	IS_PRESENT = 1 << 3,
	IS_SWAPPED = 1 << 4,
	IS_PFNZERO = 1 << 5,
};

struct range {
	uint64_t offset, length; /* in the RAM */
};

struct copy {
	const struct ram_copy_job *job;
	int pagemap, file;
	size_t pages;
	uint8_t *state;	     /* one byte per page: its content in the new layer */
	uint32_t *checksums; /* of the pages it has */
	uint64_t copied;     /* bytes that this pass has read */
	char *room;
	struct range batch[BATCH_RANGES];
	size_t batch_count;
	uint64_t batch_bytes;
	struct ram_copy_report report;
};

/* ---- copying --------------------------------------------------------------------------------- */

static int write_run(
	struct copy *copy, const char *data, uint64_t offset, size_t len, struct err *err)
{
	while (len) {
		ssize_t put = pwrite(copy->file, data, len, (off_t)offset);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return err_sys(err, put < 0 ? errno : ENOSPC, "write a layer of memory");
		data += put;
		offset += (uint64_t)put;
		len -= (size_t)put;
	}
	return 0;
}

/* Records one page; true: it must be written. Zeros over a page of an earlier pass must be. */
static bool note_page(struct copy *copy, const char *data, size_t page)
{
	if (copy->state[page] != RAM_PAGE_DATA && ram_page_is_zero(data)) {
		copy->state[page] = RAM_PAGE_ZERO;
		return false;
	}
	copy->state[page] = RAM_PAGE_DATA;
	copy->checksums[page] = ram_crc(0, data, RAM_PAGE);
	return true;
}

static int store(struct copy *copy, const char *data, const struct range *range, struct err *err)
{
	size_t begun = 0, at = 0;

	for (; at < range->length; at += RAM_PAGE) {
		if (note_page(copy, data + at, (range->offset + at) / RAM_PAGE))
			continue;
		if (at > begun &&
			write_run(copy, data + begun, range->offset + begun, at - begun, err) < 0)
			return -1;
		begun = at + RAM_PAGE;
	}
	return at > begun ? write_run(copy, data + begun, range->offset + begun, at - begun, err)
			  : 0;
}

static int flush(struct copy *copy, struct err *err)
{
	struct iovec local = { copy->room, copy->batch_bytes }, remote[BATCH_RANGES];
	uint64_t at = 0;
	ssize_t got;

	if (!copy->batch_count)
		return 0;
	for (size_t i = 0; i < copy->batch_count; i++)
		remote[i] = (struct iovec){ (void *)(uintptr_t)(copy->job->base +
								copy->batch[i].offset),
			copy->batch[i].length };
	got = process_vm_readv(copy->job->pid, &local, 1, remote, copy->batch_count, 0);
	if (got != (ssize_t)copy->batch_bytes)
		return err_set(err, ERR_UNAVAILABLE, "memory of QEMU cannot be read: %s",
			got < 0 ? strerror(errno) : "it ends early");
	for (size_t i = 0; i < copy->batch_count; i++) {
		if (store(copy, copy->room + at, &copy->batch[i], err) < 0)
			return -1;
		at += copy->batch[i].length;
	}
	copy->copied += copy->batch_bytes;
	copy->batch_count = 0;
	copy->batch_bytes = 0;
	return 0;
}

static int copy_range(struct copy *copy, uint64_t offset, uint64_t length, struct err *err)
{
	while (length) {
		uint64_t len = MIN(length, BATCH_BYTES - copy->batch_bytes);

		copy->batch[copy->batch_count++] = (struct range){ offset, len };
		copy->batch_bytes += len;
		offset += len;
		length -= len;
		if ((copy->batch_bytes == BATCH_BYTES || copy->batch_count == BATCH_RANGES) &&
			flush(copy, err) < 0)
			return -1;
	}
	return 0;
}

/* ---- finding --------------------------------------------------------------------------------- */

/* One call: regions from *at on, at most SCAN_REGIONS; *at is where the next call starts. -2:
 * not supported by this kernel or this mapping. */
static int scan_once(struct copy *copy, struct scan scan, struct scan_region *regions, uint64_t *at,
	uint64_t end, struct err *err)
{
	int count;

	scan.size = sizeof scan;
	scan.flags |= SCAN_CHECK_WPASYNC;
	scan.start = *at;
	scan.end = end;
	scan.vec = (uint64_t)(uintptr_t)regions;
	scan.vec_len = SCAN_REGIONS;
	scan.return_mask = IS_WRITTEN;
	do
		count = ioctl(copy->pagemap, SCAN_IOCTL, &scan);
	while (count < 0 && errno == EINTR);
	if (count < 0)
		return errno == ESRCH ? err_set(err, ERR_UNAVAILABLE, "QEMU has ended") : -2;
	for (int i = 0; i < count; i++)
		if (regions[i].start < *at || regions[i].end > end ||
			regions[i].start >= regions[i].end)
			return err_set(
				err, ERR_PROTOCOL, "the kernel returned an invalid page range");
	*at = scan.walk_end > *at ? scan.walk_end : end;
	return count;
}

/* Anonymous pages that were written. -2 as above. */
static int scan_written(
	struct copy *copy, uint64_t from, uint64_t end, bool protect, struct err *err)
{
	static struct scan_region regions[SCAN_REGIONS];
	const struct scan scan = { .flags = protect ? SCAN_WP_MATCHING : 0,
		.category_inverted = IS_FILE | IS_PFNZERO,
		.category_mask = IS_WRITTEN | IS_FILE | IS_PFNZERO,
		.category_anyof_mask = IS_PRESENT | IS_SWAPPED };

	while (from < end) {
		int count = scan_once(copy, scan, regions, &from, end, err);

		if (count < 0)
			return count;
		for (int i = 0; i < count; i++)
			if (copy_range(copy, regions[i].start - copy->job->base,
				    regions[i].end - regions[i].start, err) < 0)
				return -1;
	}
	return 0;
}

/* The same during the pause. To distinguish files from written pages the kernel examines each
 * page, 10 ms and more for 500 MB. Most are protected by now; to skip these it only needs the
 * page table. */
static int scan_unprotected(struct copy *copy, struct err *err)
{
	static struct scan_region regions[SCAN_REGIONS];
	const struct scan scan = { .category_mask = IS_WRITTEN };
	uint64_t from = copy->job->base, end = from + copy->job->ram_bytes;

	while (from < end) {
		int count = scan_once(copy, scan, regions, &from, end, err), got = 0;

		if (count < 0)
			return count;
		for (int i = 0, next; i < count && got == 0; i = next) {
			for (next = i + 1;
				next < count && regions[next].start - regions[next - 1].end < NEAR;)
				next++;
			got = scan_written(
				copy, regions[i].start, regions[next - 1].end, false, err);
		}
		if (got < 0)
			return got;
	}
	return 0;
}

static int scan_all(struct copy *copy, bool last, struct err *err)
{
	uint64_t base = copy->job->base;
	int got = last ? scan_unprotected(copy, err)
		       : scan_written(copy, base, base + copy->job->ram_bytes, true, err);

	return got < 0 ? got : flush(copy, err);
}

/* Without PAGEMAP_SCAN: all anonymous pages, and pages of zeros that were only read. */
static int scan_anonymous(struct copy *copy, struct err *err)
{
	enum { ENTRIES = 16384 };
	static uint64_t entries[ENTRIES];

	for (size_t page = 0; page < copy->pages;) {
		size_t want = MIN((size_t)ENTRIES, copy->pages - page), count;
		ssize_t got = pread(copy->pagemap, entries, want * 8,
			(off_t)((copy->job->base / RAM_PAGE + page) * 8));

		if (got <= 0 || got % 8)
			return err_set(err, ERR_UNAVAILABLE, "pages of QEMU cannot be listed: %s",
				got < 0 ? strerror(errno) : "it has ended");
		count = (size_t)got / 8;
		for (size_t i = 0; i < count; i++) {
			bool there = entries[i] >> 62 != 0, file = entries[i] >> 61 & 1;

			if (there && !file &&
				copy_range(copy, (page + i) * RAM_PAGE, RAM_PAGE, err) < 0)
				return -1;
		}
		page += count;
	}
	return flush(copy, err);
}

/* All of QEMU's own file that was ever written; holes are not read, which would fill them. */
static int scan_file(struct copy *copy, struct err *err)
{
	const struct ram_copy_job *job = copy->job;
	_cleanup_close_ int file = -1;
	unsigned long long base = job->base, end = base + job->ram_bytes;
	char path[96];
	off_t from = 0, to;

	snprintf(path, sizeof path, "/proc/%d/map_files/%llx-%llx", job->pid, base, end);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return err_sys(err, errno, "open the RAM of QEMU");
	while ((from = lseek(file, from, SEEK_DATA)) >= 0 && (uint64_t)from < job->ram_bytes) {
		to = lseek(file, from, SEEK_HOLE);
		from -= from % RAM_PAGE;
		to = (off_t)MIN((uint64_t)to + (RAM_PAGE - 1), job->ram_bytes);
		to -= to % RAM_PAGE;
		if (to <= from)
			break;
		if (copy_range(copy, (uint64_t)from, (uint64_t)(to - from), err) < 0)
			return -1;
		from = to;
	}
	return flush(copy, err);
}

/* ---- gaps ------------------------------------------------------------------------------------ */

static size_t count_runs(const struct copy *copy, size_t gap_max)
{
	size_t runs = 0, gap = SIZE_MAX;

	for (size_t page = 0; page < copy->pages; page++) {
		if (copy->state[page] == RAM_PAGE_NONE) {
			gap += gap < SIZE_MAX;
			continue;
		}
		runs += gap > gap_max;
		gap = 0;
	}
	return runs;
}

static int fill_gaps(struct copy *copy, size_t gap_max, struct err *err)
{
	size_t last = SIZE_MAX;

	for (size_t page = 0; page < copy->pages; page++) {
		if (copy->state[page] == RAM_PAGE_NONE)
			continue;
		if (last != SIZE_MAX && page - last > 1 && page - last - 1 <= gap_max &&
			copy_range(copy, (last + 1) * RAM_PAGE, (page - last - 1) * RAM_PAGE, err) <
				0)
			return -1;
		last = page;
	}
	return flush(copy, err);
}

/* Pages of a gap are read after their neighbours, perhaps while the guest runs: a page it writes
 * then counts as written, and the next pass copies it. */
static int join_runs(struct copy *copy, size_t wanted, struct err *err)
{
	size_t gap = 0;

	while (count_runs(copy, gap) > wanted)
		gap = gap ? gap * 2 : 1;
	return gap ? fill_gaps(copy, gap, err) : 0;
}

/* ---- the sequence --------------------------------------------------------------------------- */

/* Shortens the commit in the pause from twenty milliseconds to two: the disk's data and its file
 * system's are written before the guest stops. */
static int sync_disk(int disk, struct err *err)
{
	if (disk < 0)
		return 0;
	if (fdatasync(disk) < 0)
		return err_sys(err, errno, "sync the disk of the box");
	ioctl(disk, BTRFS_IOC_SYNC); /* other file systems need none */
	return 0;
}

static int run_live(struct copy *copy, struct err *err)
{
	for (int pass = 0; pass < PASSES_MAX && copy->report.precopy; pass++) {
		int got;

		copy->copied = 0;
		got = scan_all(copy, false, err);
		if (got == -1)
			return -1;
		if (got < 0)
			copy->report.precopy = false;
		if (got == 0 && join_runs(copy, LIVE_EXTENTS, err) < 0)
			return -1;
		if (pass == 0 && sync_disk(copy->job->disk, err) < 0)
			return -1;
		if (pass && copy->copied < ENOUGH)
			break;
	}
	return copy->job->precopy ? 0 : sync_disk(copy->job->disk, err);
}

static int run_last(struct copy *copy, struct err *err)
{
	copy->copied = 0;
	if (copy->report.precopy) {
		int got = scan_all(copy, true, err);

		if (got == -1)
			return -1;
		if (got < 0) /* the result of earlier passes may be incomplete */
			copy->report.precopy = false;
	}
	if (!copy->report.precopy && (copy->job->whole ? scan_file : scan_anonymous)(copy, err) < 0)
		return -1;
	return join_runs(copy, LAST_EXTENTS, err);
}

/* QEMU may have ended, and its pid been reused, at any time before this. */
static int check_alive(const struct copy *copy, struct err *err)
{
	if (!procfd_is_alive(copy->job->pidfd))
		return err_set(err, ERR_UNAVAILABLE, "QEMU has ended");
	return 0;
}

static int finish(struct copy *copy, struct err *err)
{
	struct ram_layer layer = { .ram_bytes = copy->job->ram_bytes, .fd = -1 };
	int result = 0;

	strcpy(layer.id, copy->job->id);
	ram_layer_build(&layer, copy->state, copy->checksums, copy->pages);
	copy->report.bytes = ram_layer_bytes(&layer);
	copy->report.extents = (uint32_t)layer.count;
	copy->report.empty = !layer.count;
	if (!copy->report.empty)
		result = ram_layer_save(copy->job->dir, &layer, err);
	ram_layer_done(&layer);
	return result;
}

static int send_report(struct copy *copy, int sock)
{
	return send(sock, &copy->report, sizeof copy->report, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static int prepare(struct copy *copy, struct err *err)
{
	char path[64];

	copy->pages = copy->job->ram_bytes / RAM_PAGE;
	copy->state = xnewn(uint8_t, copy->pages);
	copy->checksums = xnewn(uint32_t, copy->pages);
	copy->room = xcalloc(1, BATCH_BYTES);
	copy->report.precopy = copy->job->precopy;
	snprintf(path, sizeof path, "/proc/%d/pagemap", copy->job->pid);
	copy->pagemap = open(path, O_RDONLY | O_CLOEXEC);
	if (copy->pagemap < 0)
		return errno == ENOENT || errno == ESRCH
			       ? err_set(err, ERR_UNAVAILABLE, "QEMU has ended")
			       : err_sys(err, errno, "open '%s'", path);
	if (check_alive(copy, err) < 0)
		return -1;
	return ram_layer_create(
		copy->job->dir, copy->job->id, copy->job->ram_bytes, &copy->file, err);
}

static int run(struct copy *copy, int sock, struct err *err)
{
	int64_t begun = clock_mono_us();
	char word;

	if (prepare(copy, err) < 0 || run_live(copy, err) < 0 || check_alive(copy, err) < 0)
		return -1;
	copy->report.live_us = (uint64_t)(clock_mono_us() - begun);
	copy->report.ready = true;
	if (send_report(copy, sock) < 0 || recv(sock, &word, 1, 0) != 1)
		return err_set(err, ERR_CANCELLED, "nobody waits for it");
	copy->report.ready = false;
	begun = clock_mono_us();
	if (run_last(copy, err) < 0 || check_alive(copy, err) < 0 || finish(copy, err) < 0)
		return -1;
	copy->report.last_bytes = copy->copied;
	copy->report.last_us = (uint64_t)(clock_mono_us() - begun);
	return 0;
}

int ram_copy_run(int sock, const struct ram_copy_job *job)
{
	struct copy *copy = xnew(struct copy);

	copy->job = job;
	copy->pagemap = copy->file = -1;
	if (run(copy, sock, &copy->report.err) < 0)
		copy->report.ready = false;
	if (copy->report.err.kind || copy->report.empty)
		ram_layer_remove(job->dir, job->id);
	return send_report(copy, sock) < 0;
}

static_assert(sizeof(struct ram_copy_report) <= 2048, "a message of a helper");
