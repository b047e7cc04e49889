/* journal.c - see journal.h
 *
 * Two rings. One holds the bytes of both streams in order, so that a frame can be sent directly
 * from it; the other holds the runs: where the stream or the time changes. Only a program that
 * alternates its streams byte by byte fills the second before the first, and then whole runs are
 * dropped like old bytes. A change of time alone never costs bytes: when runs become few, it starts
 * one less often.
 *
 * The bytes are in a mapping of their own that forks do not copy: starting a program must not
 * become slower because others have written much. If the mapping cannot be made, the journal just
 * stays as small as it is. */
#include "guest/journal.h"
#include "base/alloc.h"
#include <sys/mman.h>

enum {
	CAP_FIRST = 16 * 1024,
	RUNS_FIRST = 8,
	RUNS_LEAST = 256,
	BYTES_PER_RUN = 64, /* runs take at most a quarter of the memory of bytes */
	BYTES_PER_TIME = 2 * BYTES_PER_RUN,
	TIME_STEP_US = 1000,
	PAGE = 4096,
};

static size_t runs_max(const struct journal *journal)
{
	return MAX((size_t)RUNS_LEAST, journal->max / BYTES_PER_RUN);
}

static struct journal_run *run_at(const struct journal *journal, size_t index)
{
	return &journal->runs[(journal->run_head + index) % journal->run_cap];
}

void journal_init(struct journal *journal, size_t max)
{
	*journal = (struct journal){ .max = max };
}

void journal_done(struct journal *journal)
{
	if (journal->data)
		munmap(journal->data, journal->cap);
	free(journal->runs);
	*journal = (struct journal){ 0 };
}

/* Moves the bytes into a ring of another size, where each has another place. */
static bool resize(struct journal *journal, size_t cap)
{
	uint8_t *data = mmap(NULL, cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (data == MAP_FAILED)
		return false;
	madvise(data, cap, MADV_DONTFORK);
	for (uint64_t at = journal->oldest; at < journal->newest;) {
		size_t from = at % journal->cap, to = at % cap;
		size_t len = MIN(journal->newest - at, MIN(journal->cap - from, cap - to));

		memcpy(data + to, journal->data + from, len);
		at += len;
	}
	if (journal->data)
		munmap(journal->data, journal->cap);
	journal->data = data;
	journal->cap = cap;
	return true;
}

static void grow(struct journal *journal, size_t want)
{
	size_t cap = MAX(journal->cap, (size_t)CAP_FIRST);

	if (want <= journal->cap || journal->cap >= journal->max)
		return;
	while (cap < want && cap < journal->max)
		cap *= 2;
	/* Without memory the current size becomes the maximum, so that journal_room() stays
	 * right. */
	if (!resize(journal, MIN(cap, journal->max)) && journal->cap)
		journal->max = journal->cap;
}

static void drop_to(struct journal *journal, uint64_t oldest)
{
	journal->oldest = oldest;
	while (journal->run_count > 1 && run_at(journal, 1)->start <= oldest) {
		journal->run_head = (journal->run_head + 1) % journal->run_cap;
		journal->run_count--;
	}
	if (oldest == journal->newest)
		journal->run_count = 0;
}

static void grow_runs(struct journal *journal)
{
	size_t cap = MAX((size_t)RUNS_FIRST, journal->run_cap * 2);
	struct journal_run *runs = xnewn(struct journal_run, cap);

	for (size_t i = 0; i < journal->run_count; i++)
		runs[i] = *run_at(journal, i);
	free(journal->runs);
	journal->runs = runs;
	journal->run_cap = cap;
	journal->run_head = 0;
}

static bool time_starts_run(
	const struct journal *journal, const struct journal_run *last, uint64_t time_us)
{
	size_t most = runs_max(journal);

	if (time_us >= last->time_us && time_us - last->time_us < TIME_STEP_US)
		return false;
	if (journal->run_count < most / 2)
		return true;
	return journal->newest - last->start >= BYTES_PER_TIME && journal->run_count < most / 4 * 3;
}

static void start_run(struct journal *journal, uint8_t stream, uint64_t time_us)
{
	const struct journal_run *last =
		journal->run_count ? run_at(journal, journal->run_count - 1) : NULL;

	if (last && last->stream == stream && !time_starts_run(journal, last, time_us))
		return;
	if (journal->run_count >= runs_max(journal))
		drop_to(journal, run_at(journal, 1)->start);
	if (journal->run_count == journal->run_cap)
		grow_runs(journal);
	journal->run_count++;
	*run_at(journal, journal->run_count - 1) = (struct journal_run){
		.start = journal->newest, .time_us = time_us, .stream = stream
	};
}

void journal_add(
	struct journal *journal, uint8_t stream, uint64_t time_us, const void *data, size_t len)
{
	const uint8_t *bytes = data;

	if (!len)
		return;
	grow(journal, (size_t)(journal->newest - journal->oldest) + len);
	if (len > journal->cap) {
		size_t lost = len - journal->cap;

		journal->newest += lost;
		drop_to(journal, journal->newest);
		bytes += lost;
		len -= lost;
	}
	if (!len)
		return;
	if (journal->newest - journal->oldest + len > journal->cap)
		drop_to(journal, journal->newest + len - journal->cap);
	start_run(journal, stream, time_us);
	while (len) {
		size_t at = journal->newest % journal->cap;
		size_t part = MIN(len, journal->cap - at);

		memcpy(journal->data + at, bytes, part);
		journal->newest += part;
		bytes += part;
		len -= part;
	}
}

void journal_forget(struct journal *journal, uint64_t offset)
{
	offset = MIN(offset, journal->newest);
	if (offset > journal->oldest)
		drop_to(journal, offset);
}

size_t journal_room(const struct journal *journal, uint64_t need)
{
	uint64_t from = MAX(need, journal->oldest);
	uint64_t kept = from < journal->newest ? journal->newest - from : 0;

	if (kept >= journal->max)
		return 0;
	/* The next byte may start a run, and the first run would be dropped for it. */
	if (kept && journal->run_count >= runs_max(journal) && run_at(journal, 1)->start > from)
		return 0;
	return journal->max - (size_t)kept;
}

static size_t run_of(const struct journal *journal, uint64_t offset)
{
	size_t low = 0, high = journal->run_count;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (run_at(journal, middle)->start <= offset)
			low = middle;
		else
			high = middle;
	}
	return low;
}

size_t journal_peek(const struct journal *journal, uint64_t offset, size_t max, uint8_t *ret_stream,
	struct iovec ret[2])
{
	size_t run, len, at, first;
	uint64_t end;

	if (offset < journal->oldest || offset >= journal->newest)
		return 0;
	run = run_of(journal, offset);
	end = run + 1 < journal->run_count ? run_at(journal, run + 1)->start : journal->newest;
	len = (size_t)MIN(end - offset, (uint64_t)max);
	at = offset % journal->cap;
	first = MIN(len, journal->cap - at);
	ret[0] = (struct iovec){ journal->data + at, first };
	ret[1] = (struct iovec){ journal->data, len - first };
	*ret_stream = run_at(journal, run)->stream;
	return len;
}

uint64_t journal_time(const struct journal *journal, uint64_t offset)
{
	if (offset < journal->oldest || offset >= journal->newest)
		return 0;
	return run_at(journal, run_of(journal, offset))->time_us;
}

void journal_shrink(struct journal *journal)
{
	size_t used = (size_t)(journal->newest - journal->oldest);
	size_t cap = (used + PAGE - 1) / PAGE * PAGE;

	if (!used) {
		uint64_t at = journal->newest;
		size_t max = journal->max;

		journal_done(journal);
		*journal = (struct journal){ .max = max, .oldest = at, .newest = at };
	} else if (cap < journal->cap) {
		resize(journal, cap);
	}
}

size_t journal_memory(const struct journal *journal)
{
	return journal->cap + journal->run_cap * sizeof *journal->runs;
}
