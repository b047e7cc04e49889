/* inlet.c - see inlet.h */
#include "core/boxnet/inlet.h"
#include "core/core_internal.h"
#include "core/boxnet/network_internal.h"
#include "base/file.h"
#include "loop/loop.h"
#include "net/doors.h"
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

enum { ACCEPT_AT_ONCE = 16 };

struct inlet {
	struct network *net;
	struct inlet *prev, *next;
	int fd;
	struct loop_fd *watch;
	const struct inlet_ops *ops;
	void *arg;
};

static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
	"the port is in one place for both families");

/* Nobody waits for a socket that the daemon cannot open: the box's program is refused. */
static void on_accept(void *arg, unsigned ready)
{
	struct inlet *inlet = arg;

	(void)ready;
	for (unsigned i = 0; i < ACCEPT_AT_ONCE; i++) {
		struct sockaddr_in6 from = { 0 };
		int fd = accept4(inlet->fd, (struct sockaddr *)&from, &(socklen_t){ sizeof from },
			SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return;
		if (fd_is_scarce(fd))
			close(fd);
		else
			inlet->ops->accepted(fd, ntohs(from.sin6_port), inlet->arg);
	}
}

static unsigned count(const struct network *net)
{
	unsigned found = 0;

	for (const struct inlet *inlet = net->inlets; inlet; inlet = inlet->next)
		found++;
	return found;
}

static int check(const struct box *box, struct err *err)
{
	if (!box->net || box->net->netns < 0 || !box->instance) {
		err_set(err, ERR_STATE, "box '%s' is not running", box->row.name);
		return err_hint(err, "box start %s", box->row.name);
	}
	if (instance_can(box->instance, ENGINE_OWN_KERNEL))
		return err_set(err, ERR_UNSUPPORTED,
			"ports of a box with its own kernel cannot be listened on from outside");
	if (count(box->net) >= INLETS_MAX)
		return err_set(err, ERR_LIMIT, "box '%s' has %d such ports already", box->row.name,
			INLETS_MAX);
	return 0;
}

int inlet_new(struct box *box, bool v6, uint16_t port, const struct inlet_ops *ops, void *arg,
	struct inlet **ret, uint16_t *ret_port, struct err *err)
{
	struct sockaddr_in6 at = { 0 };
	struct inlet *inlet;
	int fd;

	if (check(box, err) < 0 || doors_listen(box->net->netns, v6, port, &fd, err) < 0)
		return -1;
	getsockname(fd, (struct sockaddr *)&at, &(socklen_t){ sizeof at });
	inlet = xnew(struct inlet);
	inlet->net = box->net;
	inlet->fd = fd;
	inlet->ops = ops;
	inlet->arg = arg;
	inlet->watch = loop_fd_new(box->yard->loop, fd, LOOP_READ, on_accept, inlet);
	inlet->next = box->net->inlets;
	if (inlet->next)
		inlet->next->prev = inlet;
	box->net->inlets = inlet;
	*ret_port = ntohs(at.sin6_port);
	*ret = inlet;
	return 0;
}

void inlet_free(struct inlet *inlet)
{
	if (!inlet)
		return;
	if (inlet->prev)
		inlet->prev->next = inlet->next;
	else
		inlet->net->inlets = inlet->next;
	if (inlet->next)
		inlet->next->prev = inlet->prev;
	loop_fd_free(inlet->watch);
	close(inlet->fd);
	free(inlet);
}

void inlets_lose(struct network *net)
{
	for (struct inlet *inlet = net->inlets, *next; inlet; inlet = next) {
		const struct inlet_ops *ops = inlet->ops;
		void *arg = inlet->arg;

		next = inlet->next;
		inlet_free(inlet);
		ops->lost(arg);
	}
}
