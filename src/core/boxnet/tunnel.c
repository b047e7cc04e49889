/* tunnel.c - see tunnel.h: a pipe of port_pipe.c without a listener */
#include "core/boxnet/tunnel.h"
#include "core/core_internal.h"
#include "core/boxnet/network_internal.h"
#include "core/boxnet/port_internal.h"

struct tunnel {
	struct yard *yard;
	char box[BOX_ID_LEN + 1];
	uint16_t port;
	struct port_pipe *pipe;
	struct woken_watch *watch;
	const struct tunnel_ops *ops;
	void *arg;
	struct err problem; /* of the last try to open the box's end */
};

static int open_box(bool second, int *ret_fd, struct err *err, void *arg)
{
	struct tunnel *tunnel = arg;
	struct box *box = box_find(tunnel->yard, tunnel->box, err);

	if (box && box_port_connect(box, tunnel->port, second, ret_fd, err) == 0)
		return 0;
	tunnel->problem = *err;
	return -1;
}

static void on_gone(struct port_pipe *pipe, void *arg)
{
	struct tunnel *tunnel = arg;

	(void)pipe; /* frees itself */
	tunnel->pipe = NULL;
	tunnel->ops->gone(tunnel->arg);
	tunnel_free(tunnel);
}

static void on_connected(void *arg)
{
	struct tunnel *tunnel = arg;

	tunnel->ops->connected(tunnel->arg);
}

static void on_used(void *arg)
{
	struct tunnel *tunnel = arg;
	struct box *box = box_find(tunnel->yard, tunnel->box, NULL);

	if (box)
		box_is_used(box);
}

static void on_woken(struct box *box, const struct err *err, void *arg)
{
	struct tunnel *tunnel = arg;

	if (!strcmp(box->row.id, tunnel->box) && tunnel->pipe)
		port_pipe_retry(tunnel->pipe, !err);
}

int tunnel_new(struct box *box, uint16_t port, int fd, const struct tunnel_ops *ops, void *arg,
	struct tunnel **ret, struct err *err)
{
	struct tunnel *tunnel = xnew(struct tunnel);

	tunnel->yard = box->yard;
	tunnel->port = port;
	tunnel->ops = ops;
	tunnel->arg = arg;
	snprintf(tunnel->box, sizeof tunnel->box, "%s", box->row.id);
	tunnel->pipe = port_pipe_new(box->yard->loop, fd, open_box, on_gone, tunnel);
	if (!tunnel->pipe) {
		*err = tunnel->problem;
		tunnel_free(tunnel);
		return -1;
	}
	port_pipe_on_used(tunnel->pipe, on_used);
	port_pipe_on_connected(tunnel->pipe, on_connected);
	tunnel->watch = woken_watch_new(tunnel->yard, on_woken, tunnel);
	*ret = tunnel;
	return 0;
}

void tunnel_free(struct tunnel *tunnel)
{
	if (!tunnel)
		return;
	if (tunnel->pipe)
		port_pipe_free(tunnel->pipe);
	woken_watch_free(tunnel->watch);
	free(tunnel);
}
