/* event.c - which events of a box are reported, and how many
 *
 * A box can try something a hundred thousand times a second, and each try would be a line in a log
 * that must not be lost. So the same thing again within ten seconds is counted ("count"), and above
 * EVENTS_RATE events a second of a tree the rest is counted too ("dropped", in the next event). */
#include "base/alloc.h"
#include "base/clock.h"
#include "gate/gate_internal.h"

enum {
	EVENTS_RATE = 200,
	EVENTS_BURST = 1000,
	EVENT_COST_US = 1000000 / EVENTS_RATE,
	REPEATS_MAX = 512,
	REPEAT_US = 10 * 1000 * 1000,
	QUEUED_MAX = 8 * 1024 * 1024, /* bytes that the daemon has not taken yet */
};

struct repeat {
	struct named node;
	char *key;
	json_t *event;
	uint64_t count;
	int64_t since;
};

json_t *event_text(const char *text)
{
	char clean[EVENT_TEXT_MAX + 1];
	size_t len = 0;

	for (; text && text[len] && len < EVENT_TEXT_MAX; len++)
		clean[len] = text[len] >= ' ' && text[len] <= '~' ? text[len] : '?';
	return json_stringn(clean, len);
}

static bool may_send(struct tenant *tenant)
{
	int64_t now = clock_mono_us();
	struct tree *tree = tenant->tree;

	tree->events_saved_us = MIN((int64_t)EVENTS_BURST * EVENT_COST_US,
		tree->events_saved_us + now - tree->events_filled_at);
	tree->events_filled_at = now;
	if (tree->events_saved_us < EVENT_COST_US ||
		channel_queued(tenant->process->channel) > QUEUED_MAX)
		return false;
	tree->events_saved_us -= EVENT_COST_US;
	return true;
}

void event_send(struct tenant *tenant, json_t *event)
{
	json_t *message;

	if (!may_send(tenant)) {
		tenant->events_dropped++;
		json_decref(event);
		return;
	}
	if (tenant->events_dropped)
		json_object_set_new(
			event, "dropped", json_integer((json_int_t)tenant->events_dropped));
	tenant->events_dropped = 0;
	message = tenant_message(tenant, "event");
	json_object_set_new(message, "event", event);
	channel_send(tenant->process->channel, message, NULL, 0);
}

/* ---- repeated events ------------------------------------------------------------------------ */

static void repeat_end(struct tenant *tenant, struct repeat *repeat)
{
	name_table_remove(&tenant->repeats, &repeat->node);
	if (repeat->count) {
		json_object_set_new(
			repeat->event, "count", json_integer((json_int_t)repeat->count));
		event_send(tenant, repeat->event);
	} else {
		json_decref(repeat->event);
	}
	free(repeat->key);
	free(repeat);
}

bool event_is_repeated(struct tenant *tenant, const char *key)
{
	struct repeat *repeat = (struct repeat *)name_table_find(&tenant->repeats, key, 0);

	if (!repeat)
		return false;
	repeat->count++;
	return true;
}

void event_send_first(struct tenant *tenant, const char *key, json_t *event)
{
	struct repeat *repeat = xnew(struct repeat);

	if (tenant->repeats.count >= REPEATS_MAX)
		repeat_end(tenant, (struct repeat *)tenant->repeats.oldest);
	repeat->key = xstrdup(key);
	repeat->event = json_copy(event);
	repeat->since = clock_mono_us();
	name_table_add(&tenant->repeats, &repeat->node, repeat->key, 0);
	event_send(tenant, event);
}

void event_tick(struct tenant *tenant, int64_t now)
{
	struct repeat *oldest;

	while ((oldest = (struct repeat *)tenant->repeats.oldest) &&
		now - oldest->since >= REPEAT_US)
		repeat_end(tenant, oldest);
	/* Otherwise dropped events would be reported only with the next event, whenever that is. */
	if (tenant->events_dropped &&
		tenant->tree->events_saved_us >= EVENTS_RATE * EVENT_COST_US / 2)
		event_send(tenant, json_pack("{s:s}", "type", "dropped"));
}

void event_forget_all(struct tenant *tenant)
{
	while (tenant->repeats.oldest)
		repeat_end(tenant, (struct repeat *)tenant->repeats.oldest);
	name_table_done(&tenant->repeats);
}

/* ---- verdicts as text ----------------------------------------------------------------------- */

/* Some rules are long, with dozens of paths. Long texts are cut and distinguished by a hash,
 * because budgets are identified by this text. */
char *gate_rule_text(const struct policy_rule *rule)
{
	_cleanup_free_ char *text = policy_rule_text(rule);
	uint64_t hash = 0xcbf29ce484222325;

	if (strlen(text) <= EVENT_RULE_MAX)
		return steal_ptr(&text);
	for (const char *at = text; *at; at++)
		hash = (hash ^ (uint8_t)*at) * 0x100000001b3;
	return xasprintf("%.*s... (%016llx)", EVENT_RULE_CUT, text, (unsigned long long)hash);
}

void event_put_rule(json_t *event, const struct policy_rule *rule)
{
	_cleanup_free_ char *text = NULL, *place = NULL;

	if (!rule)
		return;
	text = gate_rule_text(rule);
	place = policy_rule_place(rule);
	json_object_set_new(event, "rule", json_string(text));
	json_object_set_new(event, "place", json_string(place));
}

const char *event_reason(const struct policy_verdict *verdict, const char *seen, char *out)
{
	switch (verdict->reason) {
	case POLICY_BY_RULE:
		snprintf(out, EVENT_TEXT_MAX, "%s", verdict->allowed ? "" : "a rule denies it");
		break;
	case POLICY_BY_NAME:
		snprintf(out, EVENT_TEXT_MAX, "the name %s", verdict->what);
		break;
	case POLICY_BY_MISMATCH:
		snprintf(out, EVENT_TEXT_MAX, "it asks for another name: %.200s", seen);
		break;
	case POLICY_BY_RANGE:
		snprintf(out, EVENT_TEXT_MAX, "the address is closed: %s", verdict->what);
		break;
	default:
		snprintf(out, EVENT_TEXT_MAX,
			verdict->near ? "no rule allows it; one is near, but for other ports or "
					"another protocol"
				      : "no rule allows it");
	}
	return out;
}
