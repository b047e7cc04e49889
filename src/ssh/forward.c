/* forward.c - ports of the box for the client of an SSH connection (-L, -D, -W, -R)
 *
 * The name in the request is seen from the box: localhost, its own name and its address mean the
 * box itself. The bytes go through core's tunnel, which wakes the box and keeps it awake. Another
 * name is reached by a program inside the box, so its policy decides; so is a unix socket of it. */
#include "ssh/sshd_internal.h"
#include "base/alloc.h"
#include "base/log.h"
#include "core/boxnet/inlet.h"
#include "core/boxnet/tunnel.h"
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct forward {
	struct peer *peer;
	struct forward *prev, *next;
	uint32_t channel;
	uint16_t port;
	struct tunnel *tunnel;
	int theirs; /* for the process, once it is connected; then -1 */
};

static void forward_free(struct forward *forward)
{
	tunnel_free(forward->tunnel);
	if (forward->theirs >= 0)
		close(forward->theirs);
	if (forward->prev)
		forward->prev->next = forward->next;
	else
		forward->peer->forwards = forward->next;
	if (forward->next)
		forward->next->prev = forward->prev;
	free(forward);
}

void forward_refuse(struct peer *peer, uint32_t channel, unsigned reason, const char *text)
{
	struct buf *out = sshm_pipe_begin(peer->pipe, SSHM_REFUSED);

	wire_put_u32(out, channel);
	wire_put_u32(out, reason);
	wire_put_str(out, text);
	sshm_pipe_send(peer->pipe, NULL, 0);
}

static void on_connected(void *arg)
{
	struct forward *forward = arg;

	wire_put_u32(sshm_pipe_begin(forward->peer->pipe, SSHM_DIALLED), forward->channel);
	sshm_pipe_send(forward->peer->pipe, &forward->theirs, 1);
	close(forward->theirs);
	forward->theirs = -1;
}

static void on_gone(void *arg)
{
	struct forward *forward = arg;
	char text[96];

	forward->tunnel = NULL; /* frees itself */
	if (forward->theirs >= 0) {
		snprintf(text, sizeof text, "nothing listens on port %u of the box", forward->port);
		forward_refuse(forward->peer, forward->channel, REASON_CONNECT_FAILED, text);
	}
	forward_free(forward);
}

static const struct tunnel_ops tunnel_ops = { .connected = on_connected, .gone = on_gone };

/* ---- what the client asks ------------------------------------------------------------------- */

static bool is_box_itself(const struct peer *peer, const char *host)
{
	static const char *const own[] = { "localhost", "127.0.0.1", "::1", "0.0.0.0", "::", "",
		"198.18.0.2", "ip6-localhost" };
	size_t len = strlen(peer->login.box);

	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		if (!strcmp(own[i], host))
			return true;
	return !strncmp(host, peer->login.box, len) && (!host[len] || !strcmp(host + len, ".box"));
}

static int check(const struct peer *peer, struct err *err)
{
	if (peer->login_problem.kind) {
		*err = peer->login_problem;
		return -1;
	}
	if (peer->principal.restricted & KEY_NO_FORWARDING)
		return err_set(err, ERR_FORBIDDEN, "this key may not forward ports");
	if (principal_check_scope(&peer->principal, SCOPE_EXEC, err) < 0)
		return -1;
	if (peer->login.kind != LOGIN_BOX)
		return err_set(err, ERR_FORBIDDEN, "log in to a box to reach its ports");
	return 0;
}

static int dial(
	struct peer *peer, uint32_t channel, const char *host, uint16_t port, struct err *err)
{
	struct box *box = box_find(peer->sshd->yard, peer->login.box, err);
	struct forward *forward;
	int pair[2];

	if (!box)
		return -1;
	if (!port && *host != '/')
		return err_set(err, ERR_INVALID, "there is no port 0");
	if (!is_box_itself(peer, host)) {
		program_connect(peer, box, channel, host, port);
		return 0;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return err_set(err, ERR_LIMIT, "the daemon has no more descriptors");
	forward = xnew(struct forward);
	*forward = (struct forward){
		.peer = peer, .channel = channel, .port = port, .theirs = pair[1]
	};
	forward->next = peer->forwards;
	if (forward->next)
		forward->next->prev = forward;
	peer->forwards = forward;
	if (tunnel_new(box, port, pair[0], &tunnel_ops, forward, &forward->tunnel, err) == 0)
		return 0;
	forward_free(forward);
	return -1;
}

int forward_dial(struct peer *peer, struct wire_reader *in, struct err *err)
{
	uint32_t channel = wire_get_u32(in);
	const char *host = wire_get_str(in, 255);
	uint16_t port = wire_get_u16(in);
	const struct asker *before;
	struct err why = ERR_INIT;
	int done = -1;

	wire_get_str(in, 64); /* where the client's own program came from */
	wire_get_u16(in);
	if (wire_get_done(in, err) < 0)
		return -1;
	if (peer_enter(peer, &before, &why) == 0) {
		done = check(peer, &why) == 0 ? dial(peer, channel, host, port, &why) : -1;
		auth_leave(peer->sshd->auth, before);
	}
	if (done < 0)
		forward_refuse(peer, channel,
			why.kind == ERR_LIMIT	    ? REASON_SHORTAGE
			: why.kind == ERR_FORBIDDEN ? REASON_PROHIBITED
						    : REASON_CONNECT_FAILED,
			why.message);
	return 0;
}

/* ---- -R: ports of the box that lead to the client -------------------------------------------- */

/* Lost with the instance of its box, and opened again when the box wakes. */
struct listening {
	struct peer *peer;
	struct listening *next;
	struct inlet *inlet; /* NULL: the box sleeps */
	struct woken_watch *watch;
	char address[64]; /* as the client asked for it: a channel names it */
	uint16_t asked;	  /* likewise */
	uint16_t port;
};

static void on_accepted(int fd, uint16_t from_port, void *arg)
{
	struct listening *listening = arg;
	struct buf *out = sshm_pipe_begin(listening->peer->pipe, SSHM_INCOMING);

	wire_put_u8(out, SSHM_INCOMING_TCP);
	wire_put_str(out, listening->address);
	wire_put_u16(out, listening->port);
	wire_put_str(out, "127.0.0.1");
	wire_put_u16(out, from_port);
	sshm_pipe_send(listening->peer->pipe, &fd, 1);
	close(fd);
}

static void on_lost(void *arg)
{
	((struct listening *)arg)->inlet = NULL;
}

static const struct inlet_ops inlet_ops = { .accepted = on_accepted, .lost = on_lost };

static bool is_v6(const struct listening *listening)
{
	return !strcmp(listening->address, "::1");
}

static void on_woken(struct box *box, const struct err *err, void *arg)
{
	struct listening *listening = arg;
	struct err why = ERR_INIT;

	if (!err && !listening->inlet && !strcmp(box_get_name(box), listening->peer->login.box))
		inlet_new(box, is_v6(listening), listening->port, &inlet_ops, listening,
			&listening->inlet, &listening->port, &why);
}

static void listening_free(struct listening *listening)
{
	struct listening **at = &listening->peer->listenings;

	while (*at != listening)
		at = &(*at)->next;
	*at = listening->next;
	inlet_free(listening->inlet);
	woken_watch_free(listening->watch);
	free(listening);
}

static unsigned count_listenings(const struct peer *peer)
{
	unsigned count = 0;

	for (const struct listening *each = peer->listenings; each; each = each->next)
		count++;
	return count;
}

static bool is_loopback(const char *address)
{
	static const char *const names[] = { "", "localhost", "127.0.0.1", "::1" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcmp(names[i], address))
			return true;
	return false;
}

static int listen_on(
	struct peer *peer, const char *address, uint16_t port, uint16_t *ret_port, struct err *err)
{
	struct box *box = box_find(peer->sshd->yard, peer->login.box, err);
	struct listening *listening;

	if (!box)
		return -1;
	if (!is_loopback(address))
		return err_set(err, ERR_FORBIDDEN, "-R listens on the loopback of the box alone");
	if (count_listenings(peer) >= SSHM_LISTENERS_MAX)
		return err_set(err, ERR_LIMIT, "too many ports");
	listening = xnew(struct listening);
	listening->peer = peer;
	listening->asked = port;
	snprintf(listening->address, sizeof listening->address, "%s", address);
	if (inlet_new(box, is_v6(listening), port, &inlet_ops, listening, &listening->inlet,
		    &listening->port, err) < 0) {
		free(listening);
		return -1;
	}
	listening->watch = woken_watch_new(peer->sshd->yard, on_woken, listening);
	listening->next = peer->listenings;
	peer->listenings = listening;
	*ret_port = listening->port;
	return 0;
}

int forward_listen(struct peer *peer, struct wire_reader *in, struct err *err)
{
	uint32_t ticket = wire_get_u32(in);
	const char *address = wire_get_str(in, 255);
	uint16_t port = wire_get_u16(in), opened = 0;
	const struct asker *before;
	struct err why = ERR_INIT;
	struct buf *out;
	int done = -1;

	if (wire_get_done(in, err) < 0)
		return -1;
	if (peer_enter(peer, &before, &why) == 0) {
		done = check(peer, &why) == 0 ? listen_on(peer, address, port, &opened, &why) : -1;
		auth_leave(peer->sshd->auth, before);
	}
	if (done < 0)
		log_info("a port was not opened for an SSH client", kv_str("peer", peer_from(peer)),
			kv_err(&why));
	out = sshm_pipe_begin(peer->pipe, SSHM_LISTENING);
	wire_put_u32(out, ticket);
	wire_put_u8(out, done == 0);
	wire_put_u16(out, opened);
	sshm_pipe_send(peer->pipe, NULL, 0);
	return 0;
}

int forward_unlisten(struct peer *peer, struct wire_reader *in, struct err *err)
{
	const char *address = wire_get_str(in, 255);
	uint16_t port = wire_get_u16(in);

	if (wire_get_done(in, err) < 0)
		return -1;
	for (struct listening *each = peer->listenings; each; each = each->next)
		if (!strcmp(each->address, address) &&
			(each->port == port || each->asked == port)) {
			listening_free(each);
			break;
		}
	return 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

bool forward_closed(struct peer *peer, uint32_t channel)
{
	for (struct forward *forward = peer->forwards; forward; forward = forward->next)
		if (forward->channel == channel) {
			forward_free(forward);
			return true;
		}
	return false;
}

void forwards_end(struct peer *peer)
{
	for (struct forward *forward = peer->forwards, *next; forward; forward = next) {
		next = forward->next;
		forward_free(forward);
	}
	for (struct listening *each = peer->listenings, *next; each; each = next) {
		next = each->next;
		listening_free(each);
	}
}
