/* upstream.c - see upstream.h
 *
 * A query goes to one server after the other until one gives a usable answer: NOERROR or
 * NXDOMAIN. Each try uses UDP, and continues over TCP with the same server when the answer was
 * truncated, when it changed the case of the name (then it proves too little), or when too many
 * packets with other answers came: somebody may be guessing. Over TCP nobody can insert an
 * answer, so case does not matter there.
 *
 *   try_next ──► udp ──usable──────────► finish: cache it, call all who asked
 *      ▲          │──truncated, strange─► tcp ──usable──► finish
 *      └──timeout, error, SERVFAIL ...──┴──┘   no server left: finish as failed */
#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"
#include "loop/loop.h"
#include "policy/policy.h"
#include "gate/dns/wire_internal.h"
#include "gate/dns/upstream_internal.h"
#include <errno.h>

enum {
	STRANGERS_MAX = 8, /* packets on our port that answer something else */
	READ_CHUNK = 4096,
};

struct upstream {
	struct loop *loop;
	struct upstream_options options;
	struct servers servers;
	struct cache cache;
	struct name_table questions;
	size_t given_up; /* queries that were given up: they fail soon */
	size_t ask_count;
	struct upstream_ask *recalled; /* answered from the cache, not called yet */
};

struct question {
	struct named node;
	struct upstream *upstream;
	struct upstream_share *share; /* of one of its asks; or NULL */
	bool given_up;
	struct dns_question dns;
	struct upstream_ask *asks;
	struct loop_timer *timer;
	struct loop_fd *watch;
	int fd;
	int server;
	unsigned tried; /* servers tried in this round, as bits */
	unsigned rounds;
	unsigned strangers;
	bool tcp;
	struct buf in, out;
	char name[DNS_HOST_MAX];
};

struct upstream_ask {
	struct upstream *upstream;
	struct upstream_share *share;
	struct question *question; /* NULL: from the cache */
	struct upstream_ask *next, **at;
	struct dns_result *known;
	unsigned flags;
	upstream_fn fn;
	void *arg;
};

static void try_next(struct question *question);
static void tell_recalled(void *arg);

/* ---- calling back --------------------------------------------------------------------------- */

/* What one asker may see of an answer: private addresses are removed here and not in the cache,
 * because another box may be allowed to see them. */
static void judge(const struct dns_result *from, unsigned flags, struct upstream_result *ret)
{
	*ret = (struct upstream_result){ .ttl = from->ttl };
	for (size_t i = 0; i < from->count; i++) {
		if (flags & UPSTREAM_ALLOW_PRIVATE || !policy_addr_special(&from->addresses[i]))
			ret->addresses[ret->count++] = from->addresses[i];
		else
			ret->private_count++;
	}
	if (from->rcode == DNS_NXDOMAIN)
		ret->status = UPSTREAM_NO_NAME;
	else if (from->rcode != DNS_NOERROR)
		ret->status = UPSTREAM_FAILED;
	else if (ret->count)
		ret->status = UPSTREAM_FOUND;
	else
		ret->status = ret->private_count ? UPSTREAM_PRIVATE : UPSTREAM_EMPTY;
}

static void ask_link(struct upstream_ask *ask, struct upstream_ask **list)
{
	ask->next = *list;
	ask->at = list;
	if (ask->next)
		ask->next->at = &ask->next;
	*list = ask;
	ask->upstream->ask_count++;
}

static void ask_unlink(struct upstream_ask *ask)
{
	*ask->at = ask->next;
	if (ask->next)
		ask->next->at = ask->at;
	ask->upstream->ask_count--;
}

/* Takes the first one out of its list, which is not empty. */
static struct upstream_ask *ask_pop(struct upstream_ask **list)
{
	struct upstream_ask *ask = *list;

	*list = ask->next;
	if (ask->next)
		ask->next->at = list;
	ask->upstream->ask_count--;
	return ask;
}

static void ask_free(struct upstream_ask *ask)
{
	if (ask->known)
		loop_undefer(ask->upstream->loop, tell_recalled, ask);
	free(ask->known);
	free(ask);
}

/* Calls the callback of a request that is in no list any more. */
static void ask_tell(struct upstream_ask *ask, const struct dns_result *known)
{
	struct upstream_result result;
	upstream_fn fn = ask->fn;
	void *arg = ask->arg;

	judge(known, ask->flags, &result);
	ask_free(ask);
	fn(arg, &result);
}

static void tell_recalled(void *arg)
{
	struct upstream_ask *ask = arg;
	_cleanup_free_ struct dns_result *known = steal_ptr(&ask->known);

	ask_unlink(ask);
	ask_tell(ask, known);
}

/* ---- queries -------------------------------------------------------------------------------- */

static void close_socket(struct question *question)
{
	loop_fd_free(question->watch);
	question->watch = NULL;
	if (question->fd >= 0)
		close(question->fd);
	question->fd = -1;
	buf_done(&question->in);
	buf_done(&question->out);
}

static void count_for(struct question *question, struct upstream_share *share)
{
	if (question->share)
		question->share->questions--;
	question->share = share;
	if (share)
		share->questions++;
}

static void question_free(struct question *question)
{
	name_table_remove(&question->upstream->questions, &question->node);
	count_for(question, NULL);
	question->upstream->given_up -= question->given_up;
	close_socket(question);
	loop_timer_free(question->timer);
	free(question);
}

/* Calls everybody and frees the query. Callbacks may ask and cancel meanwhile. */
static void finish(struct question *question, const struct dns_result *result)
{
	struct upstream_ask *asks = question->asks;

	if (asks)
		asks->at = &asks;
	question_free(question);
	for (struct upstream_ask *ask = asks; ask; ask = ask->next)
		ask->question = NULL;
	while (asks)
		ask_tell(ask_pop(&asks), result);
}

static void clamp_ttl(const struct upstream_options *options, struct dns_result *result)
{
	uint32_t max = result->count ? options->ttl_max : options->negative_ttl_max;

	result->ttl = MIN(MAX(result->ttl, options->ttl_min), max);
}

static void try_failed(struct question *question)
{
	upstream_servers_note(&question->upstream->servers, question->server, false);
	try_next(question);
}

static void on_timeout(void *arg)
{
	try_failed(arg);
}

/* ---- one try -------------------------------------------------------------------------------- */

static int socket_open(struct question *question, int type, loop_fd_fn fn, unsigned ready)
{
	struct upstream *upstream = question->upstream;
	const struct upstream_server *to = &upstream->servers.list[question->server].to;

	close_socket(question);
	question->fd = socket(to->address.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (question->fd < 0)
		return -1;
	/* On a connected socket the kernel drops what comes from elsewhere and reports closed
	 * ports. */
	if (connect(question->fd, (const struct sockaddr *)&to->address, to->len) < 0 &&
		errno != EINPROGRESS)
		return -1;
	question->watch = loop_fd_new(upstream->loop, question->fd, ready, fn, question);
	loop_timer_start(question->timer, upstream->options.timeout_ms);
	return 0;
}

static void on_tcp(void *arg, unsigned ready);

static void try_tcp(struct question *question)
{
	uint8_t message[DNS_QUERY_MAX], head[2];
	size_t len = dns_question_build(&question->dns, message);

	question->tcp = true;
	if (socket_open(question, SOCK_STREAM, on_tcp, LOOP_WRITE) < 0) {
		try_failed(question);
		return;
	}
	dns_put16(head, len);
	buf_add(&question->out, head, sizeof head);
	buf_add(&question->out, message, len);
}

/* Handles a message that answers this query, or claims to. */
static void take_message(struct question *question, const uint8_t *message, size_t len)
{
	struct upstream *upstream = question->upstream;
	struct dns_result result;
	enum dns_match match = dns_result_parse(message, len, &question->dns, &result);

	if (match == DNS_MATCH_STRANGER) {
		if (question->tcp)
			try_failed(question);
		else if (++question->strangers >= STRANGERS_MAX)
			try_tcp(question);
		return;
	}
	if (match == DNS_MATCH_BROKEN || (question->tcp && result.truncated)) {
		try_failed(question);
		return;
	}
	if (!question->tcp && (match == DNS_MATCH_CASE || result.truncated)) {
		try_tcp(question);
		return;
	}
	if (result.rcode != DNS_NOERROR && result.rcode != DNS_NXDOMAIN) {
		try_failed(question);
		return;
	}
	upstream_servers_note(&upstream->servers, question->server, true);
	clamp_ttl(&upstream->options, &result);
	upstream_cache_put(&upstream->cache, question->name, &question->dns, &result);
	finish(question, &result);
}

static void on_udp(void *arg, unsigned ready)
{
	struct question *question = arg;
	uint8_t message[4096];
	ssize_t len = recv(question->fd, message, sizeof message, 0);

	(void)ready;
	if (len >= 0)
		take_message(question, message, (size_t)len);
	else if (errno != EAGAIN && errno != EINTR)
		try_failed(question);
}

static void tcp_write(struct question *question)
{
	ssize_t sent =
		send(question->fd, buf_head(&question->out), question->out.len, MSG_NOSIGNAL);

	if (sent < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (sent < 0) {
		try_failed(question);
		return;
	}
	buf_eat(&question->out, (size_t)sent);
	if (!question->out.len)
		loop_fd_set(question->watch, LOOP_READ);
}

static void tcp_read(struct question *question)
{
	struct buf *in = &question->in;
	ssize_t got = recv(question->fd, buf_room(in, READ_CHUNK), READ_CHUNK, 0);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		try_failed(question);
		return;
	}
	buf_grew(in, (size_t)got);
	if (in->len >= 2 && in->len - 2 >= dns_get16(buf_head(in))) {
		struct buf whole = *in; /* the socket and its buffer may be freed meanwhile */

		*in = (struct buf)BUF_INIT;
		take_message(question, buf_head(&whole) + 2, dns_get16(buf_head(&whole)));
		buf_done(&whole);
	}
}

static void on_tcp(void *arg, unsigned ready)
{
	struct question *question = arg;

	if (ready == LOOP_WRITE)
		tcp_write(question);
	else
		tcp_read(question);
}

static bool try_udp(struct question *question)
{
	uint8_t message[DNS_QUERY_MAX];
	size_t len = dns_question_build(&question->dns, message);

	question->tcp = false;
	question->strangers = 0;
	return socket_open(question, SOCK_DGRAM, on_udp, LOOP_READ) == 0 &&
	       send(question->fd, message, len, MSG_NOSIGNAL) == (ssize_t)len;
}

static void fail_later(void *arg)
{
	finish(arg, &(const struct dns_result){ .rcode = DNS_SERVFAIL });
}

static void try_next(struct question *question)
{
	struct servers *servers = &question->upstream->servers;

	for (;;) {
		question->server = upstream_servers_pick(servers, question->tried);
		if (question->server < 0) {
			question->tried = 0;
			if (++question->rounds >= question->upstream->options.attempts ||
				!servers->count)
				break;
			continue;
		}
		question->tried |= 1u << question->server;
		if (try_udp(question))
			return;
		if (question->fd >= 0) /* else we have no sockets left */
			upstream_servers_note(servers, question->server, false);
	}
	/* Never from within upstream_ask, which may have called this. */
	close_socket(question);
	loop_timer_stop(question->timer);
	loop_defer(question->upstream->loop, fail_later, question);
}

static void give_up(struct question *question)
{
	question->given_up = true;
	question->upstream->given_up++;
	count_for(question, NULL);
	close_socket(question);
	loop_timer_stop(question->timer);
	loop_defer(question->upstream->loop, fail_later, question);
}

/* Whether one more query may be sent; an asker with more of them than share may lose its oldest
 * for it. */
static bool has_room(struct upstream *upstream, const struct upstream_share *share)
{
	if (upstream->questions.count - upstream->given_up < upstream->options.questions_max)
		return true;
	for (struct named *node = upstream->questions.oldest; node && share; node = node->newer) {
		struct question *question = (struct question *)node;

		if (question->fd >= 0 && question->share &&
			question->share->questions > share->questions + 1) {
			give_up(question);
			return true;
		}
	}
	return false;
}

static struct question *question_new(
	struct upstream *upstream, const struct dns_name *name, const char *text, uint16_t type)
{
	struct question *question = xnew(struct question);

	question->upstream = upstream;
	question->fd = -1;
	question->dns.name = *name;
	question->dns.type = type;
	question->timer = loop_timer_new(upstream->loop, on_timeout, question);
	strcpy(question->name, text);
	name_table_add(&upstream->questions, &question->node, question->name, type);
	return question;
}

static void question_abandon(struct question *question)
{
	loop_undefer(question->upstream->loop, fail_later, question);
	question_free(question);
}

/* ---- the contract --------------------------------------------------------------------------- */

struct upstream *upstream_new(struct loop *loop, const struct upstream_options *options)
{
	struct upstream *upstream = xnew(struct upstream);
	struct upstream_options *own = &upstream->options;
	const struct {
		unsigned *value;
		unsigned otherwise;
	} defaults[] = {
		{ &own->timeout_ms, 2000 },
		{ &own->attempts, 2 },
		{ &own->questions_max, 256 },
		{ &own->asks_max, 4096 },
		{ &own->cache_max, 4096 },
		{ &own->ttl_min, 5 },
		{ &own->ttl_max, 3600 },
		{ &own->negative_ttl_max, 60 },
	};

	*own = *options;
	for (size_t i = 0; i < ARRAY_LEN(defaults); i++)
		if (!*defaults[i].value)
			*defaults[i].value = defaults[i].otherwise;
	upstream->loop = loop;
	upstream_servers_set(&upstream->servers, options->servers, options->server_count);
	own->servers = NULL;
	name_table_init(&upstream->questions);
	upstream_cache_init(&upstream->cache, own->cache_max);
	return upstream;
}

void upstream_free(struct upstream *upstream)
{
	if (!upstream)
		return;
	while (upstream->recalled)
		ask_free(ask_pop(&upstream->recalled));
	for (struct named *node = upstream->questions.oldest, *next; node; node = next) {
		struct question *question = (struct question *)node;

		next = node->newer;
		while (question->asks)
			ask_free(ask_pop(&question->asks));
		question_abandon(question);
	}
	name_table_done(&upstream->questions);
	upstream_cache_done(&upstream->cache);
	free(upstream);
}

void upstream_set_servers(
	struct upstream *upstream, const struct upstream_server *servers, size_t count)
{
	struct named *node, *next;

	upstream_servers_set(&upstream->servers, servers, count);
	/* The numbers now mean other servers: queries in flight start again. */
	for (node = upstream->questions.oldest; node; node = next) {
		struct question *question = (struct question *)node;

		next = node->newer;
		if (question->fd < 0)
			continue; /* it is about to fail */
		question->tried = question->rounds = 0;
		try_next(question);
	}
}

bool upstream_recall(struct upstream *upstream, const char *name, uint16_t type, unsigned flags,
	struct upstream_result *ret)
{
	struct dns_result known;

	if (!upstream_cache_get(&upstream->cache, name, type, &known))
		return false;
	judge(&known, flags, ret);
	return true;
}

static struct upstream_ask *ask_new(
	struct upstream *upstream, unsigned flags, upstream_fn fn, void *arg)
{
	struct upstream_ask *ask = xnew(struct upstream_ask);

	ask->upstream = upstream;
	ask->flags = flags;
	ask->fn = fn;
	ask->arg = arg;
	return ask;
}

static struct upstream_ask *ask_recalled(struct upstream *upstream, const struct dns_result *known,
	unsigned flags, upstream_fn fn, void *arg)
{
	struct upstream_ask *ask = ask_new(upstream, flags, fn, arg);

	ask->known = xmemdup(known, sizeof *known);
	ask_link(ask, &upstream->recalled);
	loop_defer(upstream->loop, tell_recalled, ask);
	return ask;
}

int upstream_ask_as(struct upstream *upstream, struct upstream_share *share, const char *name,
	uint16_t type, unsigned flags, upstream_fn fn, void *arg, struct upstream_ask **ret,
	struct err *err)
{
	char text[DNS_TEXT_MAX];
	struct dns_name wire;
	struct dns_result known;
	struct question *question;

	if ((type != DNS_TYPE_A && type != DNS_TYPE_AAAA) || !dns_name_parse(name, &wire))
		return err_set(
			err, ERR_INVALID, "'%.64s' is not a name that DNS can look up", name);
	if (upstream->ask_count >= upstream->options.asks_max)
		return err_set(err, ERR_LIMIT, "%zu DNS queries are waiting, the most allowed",
			upstream->ask_count);
	dns_name_text(&wire, text);
	if (upstream_cache_get(&upstream->cache, text, type, &known)) {
		*ret = ask_recalled(upstream, &known, flags, fn, arg);
		return 0;
	}
	question = (struct question *)name_table_find(&upstream->questions, text, type);
	if (!question) {
		if (!has_room(upstream, share))
			return err_set(err, ERR_LIMIT,
				"%zu names are being looked up, the most allowed",
				upstream->questions.count);
		question = question_new(upstream, &wire, text, type);
		count_for(question, share);
		try_next(question);
	}
	*ret = ask_new(upstream, flags, fn, arg);
	(*ret)->share = share;
	(*ret)->question = question;
	ask_link(*ret, &question->asks);
	return 0;
}

int upstream_ask(struct upstream *upstream, const char *name, uint16_t type, unsigned flags,
	upstream_fn fn, void *arg, struct upstream_ask **ret, struct err *err)
{
	return upstream_ask_as(upstream, NULL, name, type, flags, fn, arg, ret, err);
}

void upstream_cancel(struct upstream_ask *ask)
{
	struct question *question;

	if (!ask)
		return;
	question = ask->question;
	ask_unlink(ask);
	ask_free(ask);
	if (question && !question->asks)
		question_abandon(question);
	else if (question && !question->given_up)
		count_for(question, question->asks->share);
}
