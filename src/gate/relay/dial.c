/* dial.c - see dial.h
 *
 *   begin ──► ask A and AAAA ──► try addresses, one more each next_ms or when one failed ──► first
 *   that connects
 *      └── an address is given ──────────┘                                   (by a proxy: CONNECT,
 *                                                                            its answer) ──► done
 *
 * As RFC 8305 has it: IPv6 goes first and the families take turns; when only IPv4 is known, IPv6
 * gets a little time to be answered. By a proxy it is the proxy's name that is resolved and the
 * proxy's addresses that are tried.
 *
 * Everything happens from the loop, also what is known at once: nobody is called back from within
 * dial_start. */
#include "base/file.h"
#include "loop/loop.h"
#include "gate/relay/dial_internal.h"
#include "gate/dns/upstream.h"
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
	PATIENCE_MS = 50, /* wait for IPv6 addresses, once those of IPv4 are known */
	FAMILIES = 2,
};

struct attempt {
	struct dial *dial;
	struct address address;
	int fd;
	struct loop_fd *watch; /* NULL: failed or not begun */
};

/* The result of one query. */
struct family {
	struct dial *dial;
	struct upstream_ask *ask; /* NULL: answered */
	enum upstream_status status;
	struct address addresses[DIAL_ADDRESSES_MAX];
	size_t count, used;
};

struct dial {
	struct dial_settings settings;
	const struct dial_ops *ops;
	void *arg;
	char name[DNS_HOST_MAX + 2]; /* a name that is too long stays too long when it is cut */
	struct address address;	     /* family 0: by name */
	uint16_t port;
	unsigned flags; /* of the queries */
	bool by_proxy;

	struct family families[FAMILIES]; /* IPv6, IPv4 */
	unsigned turn;			  /* which of them is next */
	struct attempt attempts[DIAL_ADDRESSES_MAX];
	size_t attempt_count, under_way, refused_count;
	struct err last; /* why the last one failed */

	struct loop_timer *deadline, *next;
	bool paced; /* the timer next runs: no other address before it fires, unless one fails */
	struct attempt *winner;
	struct dial_talk *talk;
};

static const uint16_t family_types[FAMILIES] = { DNS_TYPE_AAAA, DNS_TYPE_A };

static void begin(void *arg);
static void go_on(struct dial *dial);

/* ---- endings -------------------------------------------------------------------------------- */

static void attempt_close(struct attempt *attempt)
{
	if (!attempt->watch)
		return;
	loop_fd_free(attempt->watch);
	attempt->watch = NULL;
	if (attempt->fd >= 0)
		close(steal_fd(&attempt->fd));
	attempt->dial->under_way--;
}

void dial_cancel(struct dial *dial)
{
	if (!dial)
		return;
	loop_undefer(dial->settings.loop, begin, dial);
	for (size_t i = 0; i < FAMILIES; i++)
		upstream_cancel(dial->families[i].ask);
	dial_talk_cancel(dial->talk);
	for (size_t i = 0; i < dial->attempt_count; i++)
		attempt_close(&dial->attempts[i]);
	loop_timer_free(dial->deadline);
	loop_timer_free(dial->next);
	free(dial);
}

static void finish(struct dial *dial, int fd, const struct err *err)
{
	const struct dial_ops *ops = dial->ops;
	struct address address = { 0 };
	void *arg = dial->arg;
	struct err copy = ERR_INIT;

	if (err)
		copy = *err;
	if (fd >= 0 && !dial->by_proxy)
		address = dial->winner->address;
	dial_cancel(dial);
	ops->done(arg, fd, &address, err ? &copy : NULL);
}

static void finish_failed(struct dial *dial)
{
	struct err *err = &dial->last;
	char text[ADDRESS_TEXT_MAX];
	const char *name = dial->address.family ? address_format(&dial->address, text) : dial->name;
	bool failed = false, is_private = false;

	for (size_t i = 0; i < FAMILIES; i++) {
		failed |= dial->families[i].status == UPSTREAM_FAILED;
		is_private |= dial->families[i].status == UPSTREAM_PRIVATE;
	}
	if (err->kind)
		err_wrap(err, "dial '%s'", name);
	else if (dial->refused_count)
		err_set(err, ERR_FORBIDDEN, "no address of '%s' is allowed", name);
	else if (is_private)
		err_set(err, ERR_FORBIDDEN, "'%s' has private addresses only", name);
	else if (failed)
		err_set(err, ERR_UNAVAILABLE, "'%s' cannot be resolved now", name);
	else if (dial->by_proxy)
		err_set(err, ERR_UNAVAILABLE, "the proxy '%s' has no address",
			dial->settings.proxy->host);
	else
		err_set(err, ERR_NOT_FOUND, "'%s' has no address", name);
	finish(dial, -1, err);
}

static void on_deadline(void *arg)
{
	struct dial *dial = arg;
	struct err err = ERR_INIT;

	err_set(&err, ERR_TIMEOUT, "no connection within %u ms", dial->settings.timeout_ms);
	finish(dial, -1, &err);
}

/* ---- connecting ----------------------------------------------------------------------------- */

static void on_talked(void *arg, const struct err *err)
{
	struct dial *dial = arg;

	dial->talk = NULL;
	finish(dial, err ? -1 : steal_fd(&dial->winner->fd), err);
}

/* The first connected attempt wins: the others are closed. */
static void win(struct attempt *attempt)
{
	struct dial *dial = attempt->dial;
	char text[ADDRESS_TEXT_MAX];
	const char *host = dial->name;

	if (dial->address.family)
		host = address_format(&dial->address, text);
	dial->winner = attempt;
	loop_timer_stop(dial->next);
	for (size_t i = 0; i < FAMILIES; i++)
		upstream_cancel(steal_ptr(&dial->families[i].ask));
	for (size_t i = 0; i < dial->attempt_count; i++)
		if (&dial->attempts[i] != attempt)
			attempt_close(&dial->attempts[i]);
	loop_fd_set(attempt->watch, 0);
	if (!dial->by_proxy) {
		finish(dial, steal_fd(&attempt->fd), NULL);
		return;
	}
	dial->talk = dial_talk_start(dial->settings.loop, attempt->fd, dial->settings.proxy, host,
		dial->port, on_talked, dial);
}

/* Records why connecting to an address failed. */
static void note_failure(struct dial *dial, const struct address *address, int errno_value)
{
	char text[ADDRESS_TEXT_MAX];

	err_sys(&dial->last, errno_value, "connect to %s port %u", address_format(address, text),
		dial->by_proxy ? dial->settings.proxy->port : dial->port);
	/* ENETUNREACH, EHOSTUNREACH and similar, or the error of a local firewall. */
	if (dial->last.kind == ERR_SYSTEM || dial->last.kind == ERR_FORBIDDEN)
		dial->last.kind = ERR_UNAVAILABLE;
}

static void on_attempt(void *arg, unsigned ready)
{
	struct attempt *attempt = arg;
	struct dial *dial = attempt->dial;
	int error = 0;
	socklen_t len = sizeof error;

	(void)ready;
	if (getsockopt(attempt->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (!error) {
		win(attempt);
		return;
	}
	note_failure(dial, &attempt->address, error);
	attempt_close(attempt);
	go_on(dial);
}

static socklen_t fill_address(
	const struct address *address, uint16_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

	memset(ret, 0, sizeof *ret);
	if (address->family == 4) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		memcpy(&v4->sin_addr, address->bytes, 4);
		return sizeof *v4;
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(port);
	memcpy(&v6->sin6_addr, address->bytes, 16);
	return sizeof *v6;
}

/* False: it failed at once. */
static bool try_address(struct dial *dial, const struct address *address)
{
	struct attempt *attempt = &dial->attempts[dial->attempt_count];
	uint16_t port = dial->by_proxy ? dial->settings.proxy->port : dial->port;
	struct sockaddr_storage to;
	socklen_t len = fill_address(address, port, &to);
	_cleanup_close_ int fd =
		socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	dial->attempt_count++;
	*attempt = (struct attempt){ .dial = dial, .address = *address, .fd = -1 };
	if (fd < 0 || fd_is_scarce(fd)) {
		note_failure(dial, address, fd < 0 ? errno : EMFILE);
		return false;
	}
	if (connect(fd, (struct sockaddr *)&to, len) < 0 && errno != EINPROGRESS) {
		note_failure(dial, address, errno);
		return false;
	}
	attempt->fd = steal_fd(&fd);
	attempt->watch =
		loop_fd_new(dial->settings.loop, attempt->fd, LOOP_WRITE, on_attempt, attempt);
	dial->under_way++;
	return true;
}

/* ---- which one next ------------------------------------------------------------------------- */

/* The next address, alternating between the families; NULL: none is known now. */
static const struct address *pick(struct dial *dial)
{
	for (unsigned i = 0; i < FAMILIES; i++) {
		struct family *family = &dial->families[(dial->turn + i) % FAMILIES];

		if (family->used < family->count) {
			dial->turn = (unsigned)(family - dial->families + 1) % FAMILIES;
			return &family->addresses[family->used++];
		}
	}
	return NULL;
}

static bool may_try(struct dial *dial, const struct address *address)
{
	if (dial->by_proxy || dial->ops->may(dial->arg, address))
		return true;
	dial->refused_count++;
	return false;
}

static bool is_asking(const struct dial *dial)
{
	return dial->families[0].ask || dial->families[1].ask;
}

static void pace(struct dial *dial, unsigned ms)
{
	dial->paced = true;
	loop_timer_start(dial->next, ms);
}

/* Tries one more address now. Ends the dial when there is nothing left to wait for. */
static void go_on(struct dial *dial)
{
	const struct address *address;

	while (dial->attempt_count < DIAL_ADDRESSES_MAX && (address = pick(dial)))
		if (may_try(dial, address) && try_address(dial, address)) {
			pace(dial, dial->settings.next_ms);
			return;
		}
	if (!dial->under_way && (!is_asking(dial) || dial->attempt_count >= DIAL_ADDRESSES_MAX))
		finish_failed(dial);
}

static void on_next(void *arg)
{
	struct dial *dial = arg;

	dial->paced = false;
	go_on(dial);
}

static void on_answer(void *arg, const struct upstream_result *result)
{
	struct family *family = arg;
	struct dial *dial = family->dial;
	bool is_first = !dial->attempt_count;

	family->ask = NULL;
	family->status = result->status;
	family->count = MIN(result->count, (size_t)DIAL_ADDRESSES_MAX);
	memcpy(family->addresses, result->addresses, family->count * sizeof family->addresses[0]);
	if (dial->under_way && dial->paced)
		return;
	if (is_first && family == &dial->families[1] && dial->families[0].ask && family->count)
		pace(dial, PATIENCE_MS);
	else
		go_on(dial);
}

/* ---- beginning ------------------------------------------------------------------------------ */

static void ask(struct dial *dial, const char *name)
{
	struct err err = ERR_INIT;

	for (size_t i = 0; i < FAMILIES; i++) {
		struct family *family = &dial->families[i];

		family->status = UPSTREAM_EMPTY;
		if (upstream_ask_as(dial->settings.upstream, dial->settings.share, name,
			    family_types[i], dial->flags, on_answer, family, &family->ask,
			    &err) < 0)
			dial->last = err;
	}
	if (!is_asking(dial))
		finish_failed(dial);
}

static void try_one(struct dial *dial, const struct address *address)
{
	struct family *family = &dial->families[address->family == 4];

	family->addresses[0] = *address;
	family->count = 1;
	go_on(dial);
}

/* An address, or a name that no other program can misread. */
static bool is_target(const struct dial *dial)
{
	struct dns_name wire;

	return dial->address.family || dns_name_parse(dial->name, &wire);
}

static void begin(void *arg)
{
	struct dial *dial = arg;
	const struct dial_proxy *proxy = dial->settings.proxy;
	struct address address;

	if (!is_target(dial)) {
		err_set(&dial->last, ERR_INVALID, "'%.64s' cannot be dialled", dial->name);
		finish_failed(dial);
	} else if (dial->by_proxy && dial->address.family &&
		   !dial->ops->may(dial->arg, &dial->address)) {
		dial->refused_count++;
		finish_failed(dial);
	} else if (dial->by_proxy && address_parse(proxy->host, &address)) {
		try_one(dial, &address);
	} else if (dial->by_proxy) {
		dial->flags = UPSTREAM_ALLOW_PRIVATE;
		ask(dial, proxy->host);
	} else if (dial->address.family) {
		try_one(dial, &dial->address);
	} else {
		ask(dial, dial->name);
	}
}

struct dial *dial_start(const struct dial_settings *settings, const struct dial_target *target,
	const struct dial_ops *ops, void *arg)
{
	struct dial *dial = xnew(struct dial);
	const char *name = target->name ? target->name : "";

	dial->settings = *settings;
	if (!dial->settings.timeout_ms)
		dial->settings.timeout_ms = DIAL_TIMEOUT_MS;
	if (!dial->settings.next_ms)
		dial->settings.next_ms = DIAL_NEXT_MS;
	dial->ops = ops;
	dial->arg = arg;
	snprintf(dial->name, sizeof dial->name, "%s", name);
	dial->address = target->address;
	dial->port = target->port;
	dial->flags = target->allow_private ? UPSTREAM_ALLOW_PRIVATE : 0;
	dial->by_proxy = !dial_proxy_is_exempt(settings->proxy, dial->name, &dial->address);
	for (size_t i = 0; i < FAMILIES; i++)
		dial->families[i].dial = dial;
	dial->deadline = loop_timer_new(settings->loop, on_deadline, dial);
	dial->next = loop_timer_new(settings->loop, on_next, dial);
	loop_timer_start(dial->deadline, dial->settings.timeout_ms);
	loop_defer(settings->loop, begin, dial);
	return dial;
}
