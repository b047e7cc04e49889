/* network_names.c - the addresses that stand for names, across captures and crashes
 *
 * Programs in a box remember addresses, and so do captures of it. An address must never come to
 * stand for another name:
 *
 *   a capture     asks the gate, while the box is frozen, which names have addresses; the answer is
 *                 a file of the state (capture.c) and is used again by a fork, a box from a golden
 *                 image, a rollback, a wake (restore.c)
 *   gate killed   the last names it reported are seconds old. Addresses are given out in order, and
 *                 not beyond what the store has as reserved: all of these may be in use, so the
 *                 next gate starts after them. An address whose name is unknown stands for nothing
 *   daemon killed the same
 *
 * Asking the daemon about each new name would lose none of them, for a round trip and a write
 * each. */
#include "core/core_internal.h"
#include "core/boxnet/network_internal.h"
#include "base/alloc.h"
#include "base/log.h"
#include "gate/gate.h"
#include "net/synthetic.h"

enum {
	RESERVED_LEFT =
		/* reserved at least when a box starts: the gate asks for more below this */
	1025,
	OLD_GIVEN = 8192, /* for states without names: the maximum that a box had */
};

static uint64_t given_of(const json_t *names)
{
	json_t *next = json_object_get(names, "next"); /* version 1 */

	if (next)
		return (uint64_t)MAX(json_integer_value(next) - SYNTHETIC_FIRST, 0);
	return (uint64_t)json_integer_value(json_object_get(names, "given"));
}

static json_t *pack(json_t *names, uint64_t reserved)
{
	return json_pack("{s:I, s:O?}", "reserved", (json_int_t)reserved, "saved", names);
}

char *network_names_text(const struct network *net)
{
	_cleanup_json_ json_t *kept = pack(net->names, net->reserved);

	return json_text(kept);
}

void network_names_load(struct network *net, const char *text)
{
	json_t *kept = *text ? json_parse(text, strlen(text), NULL) : NULL;
	json_t *reserved = json_object_get(kept, "reserved");

	json_decref(net->names);
	net->names = NULL;
	if (reserved) {
		net->names = json_incref(json_object_get(kept, "saved"));
		net->reserved = (uint64_t)json_integer_value(reserved);
	} else { /* before there were reservations */
		net->names = json_incref(kept);
		net->reserved = given_of(kept) + NAMES_RESERVED;
	}
	json_decref(kept);
	net->given = net->reserved;
}

json_t *network_names_json(const struct network *net, json_t *exact)
{
	return exact ? pack(exact, given_of(exact)) : pack(net->names, net->reserved);
}

void network_names_lost(struct network *net)
{
	net->given = net->reserved;
}

void network_names_left(struct network *net)
{
	net->given = MAX(net->given, given_of(net->names));
}

/* The box knows exactly the names of its capture. A fork starts with those. A box that was rolled
 * back must in addition not give out again what it gave out since: shared folders may remember
 * it. */
static void take_from_state(struct box *box)
{
	struct network *net = box->net;
	_cleanup_json_ json_t *kept = steal_ptr(&box->restore.names);
	json_t *saved = json_object_get(kept, "saved");

	if (!kept) {
		if (box->restore.state && !net->names)
			net->given = MAX(net->given, (uint64_t)OLD_GIVEN);
		return;
	}
	if (box->restore.kind == RESTORE_FORK)
		net->given = 0;
	net->given =
		MAX(net->given, (uint64_t)json_integer_value(json_object_get(kept, "reserved")));
	if (json_equal(net->names, saved))
		return;
	json_decref(net->names);
	net->names = json_incref(saved);
	net->names_changed = true;
}

int network_names_attach(struct box *box, struct err *err)
{
	struct network *net = box->net;

	take_from_state(box);
	if (net->reserved < MAX(net->given, given_of(net->names)) + RESERVED_LEFT) {
		net->reserved = MAX(net->given, given_of(net->names)) + NAMES_RESERVED;
		net->names_changed = true;
	}
	return net->names_changed ? network_keep_names(box, err) : 0;
}

void network_names_reserve(struct box *box)
{
	struct network *net = box->net;
	struct err err = ERR_INIT;

	net->reserved += NAMES_RESERVED;
	if (network_keep_names(box, &err) == 0) {
		gate_reserve(yard_gate(box->yard), box->row.id, net->reserved);
		return;
	}
	net->reserved -= NAMES_RESERVED;
	log_error(
		"a box has no more addresses for names", kv_str("box", box->row.id), kv_err(&err));
}
