/* store_fixture.h - a home of its own for each test, a row of a box, an event */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/file.h"
#include "store/store.h"
#include <fcntl.h>
#include <stdio.h>

#define promise(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

static char home[64];

static inline int set_up(void **state)
{
	(void)state;
	strcpy(home, "/tmp/test-store-XXXXXX");
	return mkdtemp(home) ? 0 : -1;
}

static inline int tear_down(void **state)
{
	(void)state;
	return tree_remove(AT_FDCWD, home, NULL);
}

static inline struct store *open_store(void)
{
	struct err err = ERR_INIT;
	struct store *store = NULL;

	if (store_open(home, &store, &err) < 0)
		fail_msg("store_open: %s", err.message);
	return store;
}

static inline struct box_row sample(const char *id, const char *name, uint32_t slot)
{
	return (struct box_row){
		.id = (char *)id,
		.name = (char *)name,
		.state = "creating",
		.intent = "create",
		.image = "img",
		.image_name = "debian",
		.driver = "ns",
		.profile = "standard",
		.cpu_milli = 1500,
		.memory_bytes = 1ull << 40,
		.pids = 10,
		.env = "{\"A\":\"b\"}",
		.labels = "{}",
		.remove_on_exit = true,
		.command = "[\"true\"]",
		.uid_slot = slot,
		.created_us = 1000 + slot,
		.boot = "boot",
		.start_time = 77,
		.pid = 4242,
	};
}

static inline int add_event(struct store *store, const char *type, const char *box,
	const char *tree, json_t *data, int64_t at_us, uint64_t *ret_offset, struct err *err)
{
	const struct event_row event = { .type = type,
		.box_id = box,
		.box_name = box,
		.tree = tree,
		.data = data,
		.at_us = at_us };

	return store_event_add(store, &event, ret_offset, err);
}
