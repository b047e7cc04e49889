/* proposal.c - a proposed policy; see proposal.h
 *
 * Every destination and protocol that was connected to becomes a rule with the ports that were
 * used, most used first. No rule is wider than what was seen: that some names share a domain is
 * only a comment, and so are names that were only looked up, or refused while watching. The text is
 * parsed again before it is returned. */
#include "core/boxnet/proposal.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/text.h"
#include "policy/policy.h"
#include <stdio.h>

enum {
	RULES_MAX = 1000,
	PORTS_MAX = 16,	   /* in a rule; more become all ports */
	SHARED_LEAST = 3,  /* names below a domain before a comment says so */
	COMMENTS_MAX = 50, /* lines of each kind */
};

struct target {
	char name[POLICY_NAME_SIZE]; /* a name or an address */
	bool is_name, udp;
	uint16_t ports[PORTS_MAX];
	size_t port_count;
	bool any_port;
	uint64_t connections, bytes, questions;
};

struct targets {
	struct target *list;
	size_t count, cap;
	size_t left_out;
};

/* ---- gathering ------------------------------------------------------------------------------ */

static uint64_t number_of(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value > 0 ? (uint64_t)value : 0;
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

/* The name it was reached by, else the address; false: neither is valid. */
static bool read_target(const json_t *seen, char *out, bool *ret_is_name)
{
	const char *name = text_of(seen, "name");
	struct address addr;

	*ret_is_name = *name != '\0';
	if (*name)
		return policy_name_normalise(name, out) == NULL;
	if (policy_addr_parse(text_of(seen, "address"), &addr, NULL) < 0)
		return false;
	address_format(&addr, out);
	return true;
}

static struct target *find_target(struct targets *targets, const char *name, bool udp)
{
	for (size_t i = 0; i < targets->count; i++)
		if (targets->list[i].udp == udp && !strcmp(targets->list[i].name, name))
			return &targets->list[i];
	if (targets->count == RULES_MAX)
		return NULL;
	if (targets->count == targets->cap) {
		targets->cap = targets->cap ? targets->cap * 2 : 16;
		xgrow(targets->list, targets->cap);
	}
	targets->list[targets->count] = (struct target){ .udp = udp };
	strcpy(targets->list[targets->count].name, name);
	return &targets->list[targets->count++];
}

static int compare_ports(const void *a, const void *b)
{
	return *(const uint16_t *)a - *(const uint16_t *)b;
}

static void add_port(struct target *target, uint64_t port)
{
	if (!port || port > 65535)
		return;
	for (size_t i = 0; i < target->port_count; i++)
		if (target->ports[i] == port)
			return;
	if (target->port_count == PORTS_MAX) {
		target->any_port = true;
		return;
	}
	target->ports[target->port_count++] = (uint16_t)port;
	qsort(target->ports, target->port_count, sizeof *target->ports, compare_ports);
}

/* Whether this attempt was refused in the end: it is listed with the refused ones, and nothing went
 * through. */
static bool is_refused(const json_t *refused, const json_t *seen)
{
	json_t *one;
	size_t i;

	if (number_of(seen, "bytes_in"))
		return false;
	json_array_foreach ((json_t *)refused, i, one)
		if (number_of(one, "port") == number_of(seen, "port") &&
			!strcmp(text_of(one, "protocol"), text_of(seen, "protocol")) &&
			!strcmp(text_of(one, "name"), text_of(seen, "name")) &&
			(*text_of(one, "name") ||
				(*text_of(one, "address") && !strcmp(text_of(one, "address"),
								     text_of(seen, "address")))))
			return true;
	return false;
}

static void add_seen(struct targets *targets, const json_t *seen)
{
	uint64_t connections = number_of(seen, "connections");
	char name[POLICY_NAME_SIZE];
	struct target *target;
	bool is_name;

	if (!read_target(seen, name, &is_name)) {
		targets->left_out++;
		return;
	}
	target = find_target(targets, name, !strcmp(text_of(seen, "protocol"), "udp"));
	if (!target) {
		targets->left_out++;
		return;
	}
	target->is_name = is_name;
	target->connections += connections;
	target->questions += number_of(seen, "questions");
	target->bytes += number_of(seen, "bytes_out") + number_of(seen, "bytes_in");
	if (connections)
		add_port(target, number_of(seen, "port"));
}

static int compare_use(const void *a, const void *b)
{
	const struct target *x = a, *y = b;

	if (x->connections != y->connections)
		return x->connections < y->connections ? 1 : -1;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return strcmp(x->name, y->name);
}

/* ---- writing -------------------------------------------------------------------------------- */

/* A YAML value that begins with '[' would be a list, so IPv6 needs quotes. */
static void write_rule(const struct target *target, struct buf *out)
{
	bool six = strchr(target->name, ':') != NULL;
	char size[16];

	buf_addf(out, "  - %s%s%s", six ? "\"[" : "", target->name, six ? "]" : "");
	for (size_t i = 0; !target->any_port && i < target->port_count; i++)
		buf_addf(out, "%s%u", i ? "," : ":", target->ports[i]);
	buf_addf(out, "%s%s  # %llu connection%s, %s\n", target->udp ? "/udp" : "", six ? "\"" : "",
		(unsigned long long)target->connections, target->connections == 1 ? "" : "s",
		format_size(target->bytes, size));
}

/* The domain above a name, if it has at least two labels. */
static const char *domain_of(const struct target *target)
{
	const char *dot = target->is_name ? strchr(target->name, '.') : NULL;

	return dot && strchr(dot + 1, '.') ? dot + 1 : NULL;
}

static bool is_told(const struct targets *targets, size_t end, const char *domain)
{
	for (size_t i = 0; i < end; i++)
		if (targets->list[i].connections && domain_of(&targets->list[i]) &&
			!strcmp(domain_of(&targets->list[i]), domain))
			return true;
	return false;
}

static void write_shared(const struct targets *targets, struct buf *out)
{
	unsigned lines = 0;

	for (size_t i = 0; i < targets->count && lines < COMMENTS_MAX; i++) {
		const char *domain = domain_of(&targets->list[i]);
		size_t names = 0;

		if (!targets->list[i].connections || !domain || is_told(targets, i, domain))
			continue;
		for (size_t k = i; k < targets->count; k++)
			names += targets->list[k].connections && domain_of(&targets->list[k]) &&
				 !strcmp(domain_of(&targets->list[k]), domain);
		if (names < SHARED_LEAST)
			continue;
		buf_addf(out, "# %zu names lie below %s; \"*.%s\" would allow every such name.\n",
			names, domain, domain);
		lines++;
	}
}

static void write_asked(const struct targets *targets, struct buf *out)
{
	unsigned lines = 0;

	for (size_t i = 0; i < targets->count && lines < COMMENTS_MAX; i++)
		if (!targets->list[i].connections && targets->list[i].is_name) {
			if (!lines++)
				buf_add_str(out, "# Asked for, but never connected to:\n");
			buf_addf(out, "#   %s\n", targets->list[i].name);
		}
}

static void write_refused(const json_t *seen, struct buf *out)
{
	json_t *list = json_object_get(seen, "private"), *one;
	unsigned lines = 0;
	size_t i;

	json_array_foreach (list, i, one) {
		char name[POLICY_NAME_SIZE];
		bool is_name;

		if (lines == COMMENTS_MAX || !read_target(one, name, &is_name))
			continue;
		if (!lines++)
			buf_add_str(out, "# Refused while watching, and not in this list:\n");
		buf_addf(out, "#   %s", name);
		if (is_name && *text_of(one, "address")) {
			struct address addr;
			char text[POLICY_ADDR_SIZE];

			if (policy_addr_parse(text_of(one, "address"), &addr, NULL) == 0)
				buf_addf(out, " (%s)", address_format(&addr, text));
		}
		buf_addf(out, " port %u/%s\n", (unsigned)(number_of(one, "port") & 0xffff),
			!strcmp(text_of(one, "protocol"), "udp") ? "udp" : "tcp");
	}
}

static void write_text(const struct targets *targets, const json_t *seen, struct buf *out)
{
	uint64_t connections = 0;
	size_t rules = 0;

	for (size_t i = 0; i < targets->count; i++) {
		connections += targets->list[i].connections;
		rules += targets->list[i].connections != 0;
	}
	buf_addf(out, "# Seen in watch mode: %zu destination%s, %llu connection%s.\n", rules,
		rules == 1 ? "" : "s", (unsigned long long)connections,
		connections == 1 ? "" : "s");
	buf_addf(out, "version: %d\npreset: none\nallow:%s\n", POLICY_VERSION, rules ? "" : " []");
	for (size_t i = 0; i < targets->count; i++)
		if (targets->list[i].connections)
			write_rule(&targets->list[i], out);
	write_shared(targets, out);
	write_asked(targets, out);
	write_refused(seen, out);
	if (targets->left_out)
		buf_addf(out, "# %zu more were left out: no proper names, or too many.\n",
			targets->left_out);
}

json_t *proposal_make(const json_t *seen, struct err *err)
{
	_cleanup_(policy_freep) struct policy *policy = NULL;
	json_t *destinations = json_object_get(seen, "destinations"), *one, *proposal = NULL;
	json_t *since = json_object_get(seen, "since");
	struct targets targets = { 0 };
	struct buf text = BUF_INIT;
	size_t i;

	json_array_foreach (destinations, i, one)
		if (!is_refused(json_object_get(seen, "private"), one))
			add_seen(&targets, one);
	if (targets.count)
		qsort(targets.list, targets.count, sizeof *targets.list, compare_use);
	write_text(&targets, seen, &text);
	if (policy_parse(buf_str(&text), text.len, &policy, NULL, err) == 0)
		proposal = json_pack("{s:O?,s:o,s:s,s:O?}", "since", since, "policy",
			policy_json(policy), "text", buf_str(&text), "destinations", destinations);
	else
		err_wrap(err, "propose a policy");
	free(targets.list);
	buf_done(&text);
	return proposal;
}
