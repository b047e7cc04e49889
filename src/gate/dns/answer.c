/* answer.c - answers the DNS queries of a box; see server.h
 *
 * Parse, decide, answer. Only an allowed name whose answer is not known yet takes longer: the
 * query is kept as a dns_pending until upstream has answered; its box or its connection may end
 * before that. */
#include "base/clock.h"
#include "loop/loop.h"
#include "gate/dns/server_internal.h"
#include "net/synthetic.h"

/* Writes the reply and logs it. */
static size_t say(struct dns_box *box, const struct dns_query *query, enum dns_verdict verdict,
	const struct dns_reply *reply, unsigned private_refused, bool tcp, int64_t start,
	uint8_t *out)
{
	const struct dns_server_ops *ops = box->server->options.ops;
	size_t len =
		dns_reply_build(query, reply, tcp ? DNS_REPLY_MAX : dns_reply_udp_max(query), out);

	if (ops->log)
		ops->log(box->options.arg, &(struct dns_event){ .name = query->text,
						   .type = query->type,
						   .verdict = verdict,
						   .rcode = reply->rcode,
						   .tcp = tcp,
						   .addresses = (unsigned)reply->count,
						   .private_refused = private_refused,
						   .took_us = clock_mono_us() - start });
	return len;
}

/* ---- upstream ------------------------------------------------------------------------------- */

static void pending_free(struct dns_pending *pending)
{
	*pending->at = pending->next;
	if (pending->next)
		pending->next->at = pending->at;
	pending->box->pending_count--;
	free(pending);
}

void dns_pending_cancel(struct dns_pending *pending)
{
	upstream_cancel(pending->ask);
	pending_free(pending);
}

static struct dns_reply reply_of(const struct upstream_result *result)
{
	static const enum dns_rcode rcodes[] = {
		[UPSTREAM_FOUND] = DNS_NOERROR,
		[UPSTREAM_EMPTY] = DNS_NOERROR,
		[UPSTREAM_NO_NAME] = DNS_NXDOMAIN,
		[UPSTREAM_PRIVATE] = DNS_REFUSED,
		[UPSTREAM_FAILED] = DNS_SERVFAIL,
	};

	return (struct dns_reply){ rcodes[result->status], result->ttl, result->addresses,
		result->count };
}

static void on_upstream(void *arg, const struct upstream_result *result)
{
	struct dns_pending *pending = arg;
	struct dns_conn *conn = pending->conn;
	struct dns_reply reply = reply_of(result);
	uint8_t out[DNS_REPLY_MAX];
	size_t len = say(pending->box, &pending->query, pending->verdict, &reply,
		result->private_count, conn != NULL, pending->start, out);

	if (!conn)
		dns_udp_send(pending, out, len);
	pending_free(pending);
	if (conn)
		dns_conn_answered(conn, out, len);
}

static struct dns_pending *pending_new(struct dns_box *box, const struct dns_origin *origin,
	const struct dns_query *query, int64_t start)
{
	struct dns_pending *pending = xnew(struct dns_pending);

	pending->box = box;
	pending->query = *query;
	pending->start = start;
	pending->conn = origin->conn;
	if (!origin->conn) {
		pending->fd = origin->fd;
		pending->to_len = origin->from->msg_namelen;
		memcpy(&pending->to, origin->from->msg_name, pending->to_len);
		pending->control_len = origin->from->msg_controllen;
		memcpy(pending->control, origin->from->msg_control, pending->control_len);
	}
	pending->next = box->pendings;
	pending->at = &box->pendings;
	if (pending->next)
		pending->next->at = &pending->next;
	box->pendings = pending;
	box->pending_count++;
	return pending;
}

/* True when the reply will be sent later; else *ret is the reply now, its addresses in *result. */
static bool ask_upstream(struct dns_box *box, const struct dns_origin *origin,
	const struct dns_query *query, enum dns_verdict verdict, int64_t start,
	struct upstream_result *result, struct dns_reply *ret)
{
	struct upstream *upstream = box->server->options.upstream;
	unsigned flags = verdict == DNS_UPSTREAM_PRIVATE ? UPSTREAM_ALLOW_PRIVATE : 0;
	struct dns_pending *pending;

	*ret = (struct dns_reply){ .rcode = DNS_SERVFAIL };
	result->private_count = 0;
	if (!upstream)
		return false;
	if (upstream_recall(upstream, query->text, query->type, flags, result)) {
		*ret = reply_of(result);
		return false;
	}
	if (box->pending_count >= box->server->options.pending_max)
		return false;
	pending = pending_new(box, origin, query, start);
	pending->verdict = verdict;
	if (upstream_ask(upstream, query->text, query->type, flags, on_upstream, pending,
		    &pending->ask, NULL) < 0) {
		pending_free(pending);
		return false;
	}
	return true;
}

/* ---- verdicts ------------------------------------------------------------------------------- */

static bool wants_addresses(const struct dns_box *box, const struct dns_query *query)
{
	return query->type == DNS_TYPE_A || (query->type == DNS_TYPE_AAAA && box->options.ipv6);
}

static struct dns_reply synthetic_reply(
	struct dns_box *box, const struct dns_query *query, struct address both[2])
{
	/* Both families at once: the reply uses the requested one. */
	if (!box->options.synthetic ||
		synthetic_assign(box->options.synthetic, query->text, &both[0], &both[1], NULL) < 0)
		return (struct dns_reply){ .rcode = DNS_SERVFAIL };
	return (struct dns_reply){ DNS_NOERROR, box->server->options.ttl,
		&both[query->type == DNS_TYPE_AAAA], 1 };
}

size_t dns_box_answer(struct dns_box *box, const struct dns_origin *origin, const uint8_t *message,
	size_t len, uint8_t *out)
{
	int64_t start = clock_mono_us();
	struct dns_query query;
	struct dns_reply reply = { .rcode = dns_query_parse(message, len, &query) };
	enum dns_verdict verdict = DNS_MALFORMED;
	struct address both[2];
	struct upstream_result result;

	result.private_count = 0;
	if (reply.rcode == DNS_DROP)
		return 0;
	if (reply.rcode == DNS_NOERROR && !query.is_host)
		reply.rcode = DNS_REFUSED;
	if (reply.rcode == DNS_NOERROR) {
		verdict =
			box->server->options.ops->decide(box->options.arg, query.text, query.type);
		switch (verdict) {
		case DNS_SYNTHETIC:
			if (wants_addresses(box, &query))
				reply = synthetic_reply(box, &query, both);
			break;
		case DNS_UPSTREAM:
		case DNS_UPSTREAM_PRIVATE:
			if (wants_addresses(box, &query) &&
				ask_upstream(box, origin, &query, verdict, start, &result, &reply))
				return 0;
			break;
		case DNS_DENY_NXDOMAIN:
			reply.rcode = DNS_NXDOMAIN;
			break;
		default:
			reply.rcode = DNS_REFUSED;
		}
	}
	return say(box, &query, verdict, &reply, result.private_count, origin->conn != NULL, start,
		out);
}
