/* policy.c - the policy of a box: where it comes from; changing, explaining and learning it
 *
 * A policy is stored in its normal form with a version that counts its changes. A change is stored
 * first and then passed to the gate: after a crash in between, the next daemon starts with the new
 * policy. If the gate refuses it, the old one is put back, so that what is stored is what applies.
 * Each change is a line of the audit log.
 *
 * The hosts of package managers are looked up once for each image, because images never change. */
#include "core/core_internal.h"
#include "audit/audit.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strv.h"
#include "core/boxnet/network_internal.h"
#include "core/boxnet/proposal.h"
#include "gate/gate.h"
#include "image/image.h"
#include "image/package_hosts.h"
#include <fcntl.h>

enum { CACHE_SIZE = 16 };
#define RECORD_MOST_US INT64_C(3600000000)

/* ---- package hosts -------------------------------------------------------------------------- */

static struct {
	char *image;
	char **hosts;
} cache[CACHE_SIZE];
static unsigned cache_next; /* the slot that is reused next */

static char **find_package_hosts(const struct image *image)
{
	int64_t start = clock_mono_us();
	struct err err = ERR_INIT;
	/* Otherwise what a box wrote would widen what boxes of its image may reach. */
	size_t skipped = strv_len((const char *const *)image->layers) - image->host_layers;
	char **hosts = package_hosts_find((const char *const *)image->layers + skipped,
		json_object_get(image->config, "env"), &err);

	if (!hosts) {
		log_warn("cannot find the package hosts of an image, it has none then",
			kv_str("image", image->id), kv_err(&err));
		return NULL;
	}
	log_debug("package hosts found", kv_str("image", image->id),
		kv_int("hosts", strv_len((const char *const *)hosts)),
		kv_ms("took", clock_mono_us() - start));
	return hosts;
}

char **package_hosts_of(struct yard *yard, const char *image_name)
{
	const struct image *image = images_find(yard->images, image_name, NULL);
	char **hosts;

	if (!image)
		return xnew(char *);
	for (size_t i = 0; i < CACHE_SIZE; i++)
		if (cache[i].image && !strcmp(cache[i].image, image->id))
			return strv_copy((const char *const *)cache[i].hosts);
	hosts = find_package_hosts(image);
	if (!hosts)
		return xnew(char *);
	free(cache[cache_next].image);
	strv_free(cache[cache_next].hosts);
	cache[cache_next].image = xstrdup(image->id);
	cache[cache_next].hosts = hosts;
	cache_next = (cache_next + 1) % CACHE_SIZE;
	return strv_copy((const char *const *)hosts);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* given is an object in the policy language, or its text. */
static int parse_given(json_t *given, struct policy **ret, struct err *err)
{
	_cleanup_free_ char *text = json_is_string(given) ? NULL : json_text(given);

	if (json_is_string(given))
		return policy_parse(
			json_string_value(given), json_string_length(given), ret, NULL, err);
	return policy_parse(text, strlen(text), ret, NULL, err);
}

static int parse_default(const char *value, struct policy **ret, struct err *err)
{
	_cleanup_(policy_freep) struct policy *policy = policy_new();
	_cleanup_free_ char *text = NULL;
	size_t len;

	if (value[0] == '/') {
		if (file_read(AT_FDCWD, value, POLICY_SIZE_MAX, &text, &len, err) < 0 ||
			policy_parse(text, len, ret, NULL, err) < 0)
			return err_wrap(err, "default_policy '%s'", value);
		return 0;
	}
	if (policy_preset_parse(value, &policy->preset, err) < 0)
		return err_wrap(err, "default_policy");
	*ret = steal_ptr(&policy);
	return 0;
}

int policy_for_new(struct yard *yard, json_t *given, struct policy **ret, struct err *err)
{
	if (given && !json_is_null(given))
		return parse_given(given, ret, err);
	return parse_default(yard->conf->default_policy, ret, err);
}

json_t *yard_default_policy(struct yard *yard, struct err *err)
{
	_cleanup_(policy_freep) struct policy *policy = NULL;

	return parse_default(yard->conf->default_policy, &policy, err) == 0 ? policy_json(policy)
									    : NULL;
}

/* ---- showing -------------------------------------------------------------------------------- */

static int compile(const struct box *box, const struct policy *policy, struct policy_matcher **ret,
	struct err *err)
{
	const struct policy_world world = {
		.package_hosts = (const char *const *)box->net->package_hosts,
		.host_ranges = networks_host_ranges(box->yard),
	};

	return policy_compile(policy, &world, ret, err);
}

static json_t *effective_json(const struct box *box)
{
	_cleanup_(policy_matcher_freep) struct policy_matcher *matcher = NULL;
	json_t *list = json_array();
	const struct policy *whole;

	if (compile(box, box->net->policy, &matcher, NULL) < 0)
		return list;
	whole = policy_matcher_policy(matcher);
	for (size_t i = 0; i < whole->count; i++) {
		_cleanup_free_ char *text = policy_rule_text(&whole->rules[i]);
		_cleanup_free_ char *place = policy_rule_place(&whole->rules[i]);

		json_array_append_new(list, json_pack("{s:s,s:s,s:s}", "verdict",
						    whole->rules[i].deny ? "deny" : "allow", "rule",
						    text, "place", place));
	}
	return list;
}

static json_t *strings_json(char *const *strv)
{
	json_t *list = json_array();

	for (size_t i = 0; strv && strv[i]; i++)
		json_array_append_new(list, json_string(strv[i]));
	return list;
}

json_t *box_policy_json(struct box *box)
{
	const struct network *net = box->net;
	char changed[CLOCK_RFC3339_MAX];

	return json_pack("{s:I,s:s,s:s,s:o,s:o,s:o,s:b}", "version", (json_int_t)net->version,
		"changed_at", clock_rfc3339(net->changed_us, changed), "preset",
		policy_preset_name(net->policy->preset), "policy", policy_json(net->policy),
		"effective", effective_json(box), "package_hosts", strings_json(net->package_hosts),
		"recording", net->recording);
}

json_t *box_policy_explain(struct box *box, const struct policy_flow *flow, struct err *err)
{
	_cleanup_(policy_matcher_freep) struct policy_matcher *matcher = NULL;
	struct policy_verdict verdict;
	json_t *answer;

	if (compile(box, box->net->policy, &matcher, err) < 0)
		return NULL;
	verdict = policy_match(matcher, flow);
	answer = policy_explain_json(flow, &verdict);
	json_object_set_new(answer, "allowed", json_boolean(verdict.allowed));
	json_object_set(answer, "text", json_object_get(answer, "why"));
	json_object_del(answer, "why");
	return answer;
}

/* ---- changing ------------------------------------------------------------------------------- */

static const char *const change_names[] = {
	[POLICY_SAME] = "same",
	[POLICY_TIGHTER] = "tighter",
	[POLICY_WIDER] = "wider",
	[POLICY_DIFFERENT] = "different",
};

static const char *compare(
	const struct box *box, const struct policy *old, const struct policy *new)
{
	_cleanup_(policy_matcher_freep) struct policy_matcher *before = NULL, *after = NULL;

	if (compile(box, old, &before, NULL) < 0 || compile(box, new, &after, NULL) < 0)
		return change_names[POLICY_DIFFERENT];
	return change_names[policy_compare(before, after, NULL)];
}

static void audit_change(struct box *box, const char *who, const char *change, json_t *policy)
{
	json_t *line = json_pack("{s:s,s:s,s:s,s:s,s:s,s:I,s:b}", "type", "policy", "box",
		box->row.id, "box_name", box->row.name, "owner", box->row.owner, "who", who,
		"version", (json_int_t)box->net->version, "recording", box->net->recording);

	if (change)
		json_object_set_new(line, "change", json_string(change));
	if (policy)
		json_object_set_new(line, "policy", policy);
	audit_add(box->yard->audit, line);
}

/* Stores policy and passes it to the gate; or neither, with err. Takes policy. */
static int install(struct box *box, struct policy *policy, struct err *err)
{
	struct network *net = box->net;
	struct policy *old = net->policy;
	int64_t old_changed_us = net->changed_us;
	struct err why = ERR_INIT;

	net->policy = policy;
	net->version++;
	net->changed_us = clock_wall_us();
	if (network_store(box, STORE_SAFE, err) == 0 && network_apply_policy(box, err) == 0) {
		policy_free(old);
		return 0;
	}
	policy_free(net->policy);
	net->policy = old;
	net->version--;
	net->changed_us = old_changed_us;
	/* The gate may have the new policy already. If it refuses the old one too, the network is
	 * closed. */
	if (network_apply_policy(box, &why) < 0)
		log_error(
			"cannot restore the old policy", kv_str("box", box->row.id), kv_err(&why));
	if (network_store(box, STORE_SAFE, &why) < 0)
		log_error("cannot remove a refused policy from the store",
			kv_str("box", box->row.id), kv_err(&why));
	return err_wrap(err, "change the policy of '%s'", box->row.name);
}

int box_policy_set(
	struct box *box, json_t *given, uint64_t if_version, const char *who, struct err *err)
{
	_cleanup_(policy_freep) struct policy *policy = NULL;
	const char *change;

	if (if_version && if_version != box->net->version) {
		err_set(err, ERR_STATE, "the policy of '%s' has version %llu by now, not %llu",
			box->row.name, (unsigned long long)box->net->version,
			(unsigned long long)if_version);
		return err_hint(err, "somebody else changed it; look at it again");
	}
	if (policy_for_new(box->yard, given, &policy, err) < 0)
		return -1;
	if (policy_is_same(box->net->policy, policy))
		return 0;
	change = compare(box, box->net->policy, policy);
	if (install(box, steal_ptr(&policy), err) < 0)
		return -1;
	audit_change(box, who, change, policy_json(box->net->policy));
	log_info("policy changed", kv_str("box", box->row.id), kv_int("version", box->net->version),
		kv_str("change", change));
	yard_event(box->yard, "box.policy", box,
		json_pack("{s:I,s:s,s:s}", "version", (json_int_t)box->net->version, "change",
			change, "who", who));
	return 0;
}

int box_policy_add(
	struct box *box, json_t *given, uint64_t if_version, const char *who, struct err *err)
{
	_cleanup_(policy_freep) struct policy *more = NULL, *both = NULL;
	_cleanup_(policy_matcher_freep) struct policy_matcher *matcher = NULL;
	_cleanup_json_ json_t *merged = NULL;

	if (parse_given(given, &more, err) < 0 || compile(box, box->net->policy, &matcher, err) < 0)
		return -1;
	policy_drop_allowed(more, matcher);
	if (policy_merge(box->net->policy, more, &both, err) < 0)
		return -1;
	merged = policy_json(both);
	return box_policy_set(box, merged, if_version, who, err);
}

/* ---- watch mode ----------------------------------------------------------------------------- */

/* The namespace follows: in watch mode, addresses that no rule names are led to the gate. */
static int apply_recording(struct box *box, bool on, struct err *err)
{
	box->net->recording = on;
	box->net->recording_since_us = clock_mono_us();
	if (box->net->served)
		gate_record(yard_gate(box->yard), box->row.id, on);
	if (network_apply_policy(box, err) < 0)
		return -1;
	return network_store(box, STORE_KEPT, err);
}

int box_policy_record(struct box *box, bool on, const char *who, struct err *err)
{
	struct err why = ERR_INIT;

	if (box->net->recording == on)
		return 0;
	if (apply_recording(box, on, err) < 0) {
		if (apply_recording(box, !on, &why) < 0)
			log_error("watch mode cannot be set", kv_str("box", box->row.id),
				kv_err(&why));
		return err_wrap(err, "watch '%s'", box->row.name);
	}
	audit_change(box, who, NULL, NULL);
	yard_event(box->yard, "box.recording", box, json_pack("{s:b,s:s}", "on", on, "who", who));
	return 0;
}

/* Whoever turned it on may be gone: watch mode ends by itself. */
void policy_record_check(struct box *box)
{
	struct err err = ERR_INIT;

	if (!box->net || !box->net->recording ||
		clock_mono_us() - box->net->recording_since_us < RECORD_MOST_US)
		return;
	if (box_policy_record(box, false, "the daemon, after an hour", &err) < 0)
		log_error("watch mode cannot be ended", kv_str("box", box->row.id), kv_err(&err));
}

struct asking {
	void (*done)(void *arg, json_t *proposal, const struct err *err);
	void *arg;
};

static void on_recorded(void *arg, json_t *seen, const struct err *err)
{
	_cleanup_free_ struct asking *asking = arg;
	_cleanup_json_ json_t *proposal = NULL;
	struct err why = ERR_INIT;

	if (err)
		return asking->done(asking->arg, NULL, err);
	proposal = proposal_make(seen, &why);
	asking->done(asking->arg, proposal, proposal ? NULL : &why);
}

void box_policy_proposal(struct box *box,
	void (*done)(void *arg, json_t *proposal, const struct err *err), void *arg)
{
	struct gate *gate = yard_gate(box->yard);
	struct err err = ERR_INIT;
	struct asking *asking;

	if (!gate || !box->net->served) {
		err_set(&err, ERR_STATE, "box '%s' is not running", box->row.name);
		err_hint(&err, "what was seen is kept while it runs; 'box policy record %s'",
			box->row.name);
		return done(arg, NULL, &err);
	}
	asking = xnew(struct asking);
	*asking = (struct asking){ done, arg };
	gate_recorded(gate, box->row.id, on_recorded, asking);
}
