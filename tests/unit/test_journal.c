/* test_journal.c - the ring that keeps a program's last output */
#include "guest/journal.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { OUT = 1, ERR = 2 };

/* The byte that belongs at an offset; every test writes these, so that any read can be checked. */
static uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 31 + (offset >> 8));
}

static void add(struct journal *journal, uint8_t stream, size_t len)
{
	uint8_t *data = malloc(len + 1);

	for (size_t i = 0; i < len; i++)
		data[i] = byte_at(journal->newest + i);
	journal_add(journal, stream, 1000000, data, len);
	free(data);
}

static void check_bytes(const struct iovec piece[2], uint64_t offset)
{
	for (int i = 0; i < 2; i++)
		for (size_t k = 0; k < piece[i].iov_len; k++)
			assert_int_equal(((uint8_t *)piece[i].iov_base)[k], byte_at(offset++));
}

/* Reads everything from oldest on and checks each byte; returns how many there were. */
static uint64_t check_all(const struct journal *journal)
{
	uint64_t at = journal->oldest;

	while (at < journal->newest) {
		struct iovec piece[2];
		uint8_t stream;
		size_t len = journal_peek(journal, at, 1000, &stream, piece);

		assert_true(len > 0 && len <= 1000);
		assert_int_equal(piece[0].iov_len + piece[1].iov_len, len);
		check_bytes(piece, at);
		at += len;
	}
	assert_int_equal(at, journal->newest);
	return at - journal->oldest;
}

static void test_journal_is_empty_and_free_at_first(void **state)
{
	struct journal journal;
	struct iovec piece[2];
	uint8_t stream;

	(void)state;
	journal_init(&journal, 1 << 20);
	assert_int_equal(journal_memory(&journal), 0);
	assert_int_equal(journal_peek(&journal, 0, 10, &stream, piece), 0);
	assert_int_equal(journal_room(&journal, JOURNAL_NEED_NOTHING), 1 << 20);
	journal_add(&journal, OUT, 0, "", 0);
	assert_int_equal(journal.newest, 0);
	journal_done(&journal);
}

static void test_journal_keeps_streams_apart_and_joins_equal_ones(void **state)
{
	struct journal journal;
	struct iovec piece[2];
	uint8_t stream;

	(void)state;
	journal_init(&journal, 1 << 20);
	add(&journal, OUT, 10);
	add(&journal, OUT, 5);
	add(&journal, ERR, 7);
	add(&journal, OUT, 1);
	assert_int_equal(journal_peek(&journal, 0, 100, &stream, piece), 15);
	assert_int_equal(stream, OUT);
	assert_int_equal(journal_peek(&journal, 12, 100, &stream, piece), 3);
	assert_int_equal(journal_peek(&journal, 15, 4, &stream, piece), 4);
	assert_int_equal(stream, ERR);
	assert_int_equal(journal_peek(&journal, 22, 100, &stream, piece), 1);
	assert_int_equal(stream, OUT);
	assert_int_equal(journal_peek(&journal, 23, 100, &stream, piece), 0);
	assert_int_equal(check_all(&journal), 23);
	journal_done(&journal);
}

static void test_journal_grows_on_demand_up_to_its_bound(void **state)
{
	struct journal journal;

	(void)state;
	journal_init(&journal, 100000); /* no power of two */
	add(&journal, OUT, 10);
	assert_true(journal_memory(&journal) <= 17 * 1024);
	for (int i = 0; i < 40; i++) {
		add(&journal, i % 3 ? OUT : ERR, 3001);
		check_all(&journal);
	}
	assert_int_equal(journal.newest, 10 + 40 * 3001);
	assert_int_equal(journal.newest - journal.oldest, 100000);
	assert_int_equal(journal.cap, 100000);
	journal_done(&journal);
}

static void test_journal_drops_the_oldest_when_it_wraps(void **state)
{
	struct journal journal;
	struct iovec piece[2];
	uint8_t stream;

	(void)state;
	journal_init(&journal, 4096);
	for (int i = 0; i < 1000; i++) {
		add(&journal, (uint8_t)(i % 2 + 1), (size_t)(i * 37 % 900));
		check_all(&journal);
		assert_true(journal.newest - journal.oldest <= 4096);
	}
	assert_true(journal.oldest > 0);
	assert_int_equal(journal_peek(&journal, journal.oldest - 1, 10, &stream, piece), 0);
	journal_done(&journal);
}

static void test_journal_takes_more_at_once_than_it_holds(void **state)
{
	struct journal journal;

	(void)state;
	journal_init(&journal, 4096);
	add(&journal, ERR, 100);
	add(&journal, OUT, 50000);
	assert_int_equal(journal.newest, 50100);
	assert_int_equal(journal.oldest, 50100 - 4096);
	assert_int_equal(check_all(&journal), 4096);
	journal_done(&journal);
}

static void test_journal_room_protects_what_a_reader_needs(void **state)
{
	struct journal journal;

	(void)state;
	journal_init(&journal, 4096);
	add(&journal, OUT, 4000);
	assert_int_equal(journal_room(&journal, 0), 96);
	assert_int_equal(journal_room(&journal, 1000), 1096);
	assert_int_equal(journal_room(&journal, 4000), 4096);
	assert_int_equal(journal_room(&journal, JOURNAL_NEED_NOTHING), 4096);
	add(&journal, OUT, 96);
	assert_int_equal(journal_room(&journal, 0), 0);
	assert_int_equal(journal.oldest, 0);
	/* The reader has taken 10 bytes: exactly those may go. */
	assert_int_equal(journal_room(&journal, 10), 10);
	add(&journal, ERR, 10);
	assert_int_equal(journal.oldest, 10);
	assert_int_equal(check_all(&journal), 4096);
	journal_done(&journal);
}

/* Whatever a reader needs is never lost if only journal_room() bytes are added, however the streams
 * mix. */
static void test_journal_is_lossless_for_a_slow_reader(void **state)
{
	struct journal journal;
	uint64_t reader = 0;
	unsigned seed = 1;

	(void)state;
	journal_init(&journal, 8192);
	for (int i = 0; i < 200000; i++) {
		size_t room = journal_room(&journal, reader);
		size_t want = (size_t)rand_r(&seed) % 8;

		add(&journal, (uint8_t)(rand_r(&seed) % 2 + 1), want < room ? want : room);
		assert_true(journal.oldest <= reader);
		if (rand_r(&seed) % 40 == 0) {
			struct iovec piece[2];
			uint8_t stream;
			size_t len;

			while ((len = journal_peek(&journal, reader, 777, &stream, piece)) &&
				rand_r(&seed) % 50) {
				check_bytes(piece, reader);
				reader += len;
			}
		}
	}
	assert_true(reader > 100000);
	journal_done(&journal);
}

static void test_journal_bounds_the_memory_of_alternating_streams(void **state)
{
	struct journal journal;

	(void)state;
	journal_init(&journal, 1 << 20);
	for (int i = 0; i < 200000; i++)
		add(&journal, (uint8_t)(i % 2 + 1), 1);
	assert_true(journal_memory(&journal) <= (1 << 20) * 3 / 2);
	assert_true(journal.newest - journal.oldest >= 16000);
	/* A reader that needs the oldest run stops the writer. */
	assert_int_equal(journal_room(&journal, journal.oldest), 0);
	assert_true(journal_room(&journal, journal.oldest + 1) > 0);
	check_all(&journal);
	journal_done(&journal);
}

static void test_journal_shrinks_to_its_content(void **state)
{
	struct journal journal;

	(void)state;
	journal_init(&journal, 1 << 20);
	add(&journal, OUT, 300000);
	journal_shrink(&journal);
	assert_true(journal_memory(&journal) <= 300000 + 8192);
	assert_int_equal(check_all(&journal), 300000);
	journal_done(&journal);

	journal_init(&journal, 4096);
	add(&journal, OUT, 10000);
	journal_shrink(&journal);
	assert_int_equal(check_all(&journal), 4096);
	journal_done(&journal);

	journal_init(&journal, 4096);
	journal_shrink(&journal);
	assert_int_equal(journal_memory(&journal), 0);
	journal_done(&journal);
}

static void test_journal_knows_when_bytes_came(void **state)
{
	struct journal journal;

	(void)state;
	journal_init(&journal, 1 << 20);
	journal_add(&journal, OUT, 5000000, "ab", 2);
	journal_add(&journal, OUT, 5000500, "c", 1); /* the same millisecond */
	journal_add(&journal, OUT, 7000000, "d", 1);
	journal_add(&journal, ERR, 7000000, "e", 1);
	journal_add(&journal, ERR, 6000000, "f", 1); /* the clock was set back */
	assert_int_equal(journal_time(&journal, 0), 5000000);
	assert_int_equal(journal_time(&journal, 2), 5000000);
	assert_int_equal(journal_time(&journal, 3), 7000000);
	assert_int_equal(journal_time(&journal, 4), 7000000);
	assert_int_equal(journal_time(&journal, 5), 6000000);
	assert_int_equal(journal_time(&journal, 6), 0);
	journal_done(&journal);
}

static void test_journal_loses_no_bytes_for_times(void **state)
{
	struct journal journal;
	uint64_t last = 0;

	(void)state;
	journal_init(&journal, 1 << 20);
	for (uint64_t i = 0; i < (1 << 19); i++)
		journal_add(&journal, OUT, (i + 1) * 10000, "x\n", 2);
	assert_int_equal(journal.oldest, 0);
	for (uint64_t at = 0; at < journal.newest; at += 2) {
		uint64_t time = journal_time(&journal, at), came = (at / 2 + 1) * 10000;

		assert_true(time >= last && time <= came);
		if (at < 16000)
			assert_int_equal(time, came);
		last = time;
	}
	journal_done(&journal);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_journal_is_empty_and_free_at_first),
		cmocka_unit_test(test_journal_keeps_streams_apart_and_joins_equal_ones),
		cmocka_unit_test(test_journal_grows_on_demand_up_to_its_bound),
		cmocka_unit_test(test_journal_drops_the_oldest_when_it_wraps),
		cmocka_unit_test(test_journal_takes_more_at_once_than_it_holds),
		cmocka_unit_test(test_journal_room_protects_what_a_reader_needs),
		cmocka_unit_test(test_journal_is_lossless_for_a_slow_reader),
		cmocka_unit_test(test_journal_bounds_the_memory_of_alternating_streams),
		cmocka_unit_test(test_journal_knows_when_bytes_came),
		cmocka_unit_test(test_journal_loses_no_bytes_for_times),
		cmocka_unit_test(test_journal_shrinks_to_its_content),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
