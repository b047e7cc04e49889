/* net_rig.c - the test network: two namespaces, servers, a daemon, boxes
 *
 * The namespaces, the daemon and its image are those of `box attack`, without the witnesses:
 * nothing records packets while they are measured. The same program, box-attacker, runs in a box
 * and outside, and so do the servers it talks to. */
#include "attack/rig_links.h"
#include "attack/witness.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "bench/net_internal.h"
#include "client/client.h"
#include "net/doors.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { READY_MS = 5000, OUTPUT_MAX = 64 * 1024 };

#define ATTACKER "/bin/box-attacker"
#define POLICY                                                                               \
	"{\"name\":\"%s\",\"image\":\"" RIG_IMAGE "\",\"policy\":{\"version\":1,\"preset\":" \
	"\"none\",\"allow\":[\"*." NET_DOMAIN ":%d\"]}}"

/* ---- programs ------------------------------------------------------------------------------- */

/* Starts box-attacker outside of any box, in a network namespace (-1: ours), with the rig's
 * resolver. Its stdout is *ret_fd. */
static int start_outside(struct net_rig *rig, int netns, const char *const *words, pid_t *ret_pid,
	int *ret_fd, struct err *err)
{
	_cleanup_free_ char *resolver = xasprintf("%s/resolv.conf", rig->rig.folder);
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(err, errno, "pipe");
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if ((netns < 0 || setns(netns, CLONE_NEWNET) == 0) && unshare(CLONE_NEWNS) == 0 &&
			mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
			mount(resolver, "/etc/resolv.conf", NULL, MS_BIND, NULL) == 0 &&
			dup2(ends[1], 1) == 1)
			execv(rig->program, (char *const *)words);
		_exit(127);
	}
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return err_sys(err, errno, "fork");
	}
	*ret_pid = pid;
	*ret_fd = ends[0];
	return 0;
}

static void stop(pid_t *pid)
{
	if (*pid <= 0)
		return;
	kill(*pid, SIGKILL);
	while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
		;
	*pid = 0;
}

static int await_ready(int fd, const char *what, struct err *err)
{
	struct pollfd one = { .fd = fd, .events = POLLIN };
	char word[8];

	if (poll(&one, 1, READY_MS) == 1 && read(fd, word, sizeof word) >= 5 &&
		!memcmp(word, "ready", 5))
		return 0;
	return err_set(err, ERR_STATE, "the server %s does not start", what);
}

static int start_server(struct net_rig *rig, int netns, pid_t *ret, struct err *err)
{
	_cleanup_free_ char *port = xasprintf("%d", NET_LOAD_PORT);
	const char *words[] = { "box-attacker", "load", "serve", port, NULL };
	_cleanup_close_ int fd = -1;

	if (start_outside(rig, netns, words, ret, &fd, err) < 0)
		return -1;
	return await_ready(fd, "outside", err);
}

static int start_inside(struct net_rig *rig, struct err *err)
{
	_cleanup_free_ char *port = xasprintf("%d", NET_WEB_PORT);
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/ports/%s", NET_BOX, port);
	const char *words[] = { "exec", NET_BOX, "--", ATTACKER, "load", "serve", port, NULL };

	if (client_call(rig->client, "PUT", path, json_pack("{s:s}", "access", "public"), NULL,
		    err) < 0 ||
		rig_spawn(&rig->rig, words, &rig->inside, &rig->inside_out, err) < 0)
		return -1;
	return await_ready(rig->inside_out, "in a box", err);
}

/* ---- the places ----------------------------------------------------------------------------- */

/* A process in the world answers DNS for its names. */
static int open_world(struct net_rig *rig, struct err *err)
{
	static const uint16_t ports[] = { 53, 0 };
	const struct witness_spec spec = { .ports = ports };
	_cleanup_close_ int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	int status;

	if (home < 0 || setns(rig->world, CLONE_NEWNET) < 0)
		return err_sys(err, errno, "go into the world");
	status = witness_start(&spec, &rig->rig.world, err);
	if (setns(home, CLONE_NEWNET) < 0)
		abort(); /* everything that follows would happen in the wrong namespace */
	return status;
}

int net_rig_open(struct net_rig *rig, struct err *err)
{
	*rig = (struct net_rig){ .world = -1, .inside_out = -1 };
	signal(SIGPIPE, SIG_IGN);
	if (rig_links_make(&rig->world, err) < 0 || open_world(rig, err) < 0 ||
		rig_start(&rig->rig, err) < 0 || doors_prepare(&rig->plan, err) < 0 ||
		conf_load(&rig->conf, err) < 0)
		return -1;
	rig->client = client_new(rig->conf.socket);
	rig->program = xasprintf("%s/images/attackimag/rootfs" ATTACKER, rig->rig.folder);
	if (start_server(rig, rig->world, &rig->far, err) < 0 ||
		start_server(rig, -1, &rig->near, err) < 0 ||
		net_rig_add_box(rig, NET_BOX, err) < 0)
		return -1;
	return start_inside(rig, err);
}

int net_rig_close(struct net_rig *rig, struct err *err)
{
	int status;

	stop(&rig->inside);
	stop(&rig->far);
	stop(&rig->near);
	client_free(rig->client);
	status = rig_close(&rig->rig, err);
	doors_plan_free(rig->plan);
	conf_done(&rig->conf);
	free(rig->program);
	if (rig->inside_out >= 0)
		close(rig->inside_out);
	if (rig->world >= 0)
		close(rig->world);
	return status;
}

/* ---- boxes ---------------------------------------------------------------------------------- */

int net_rig_add_box(struct net_rig *rig, const char *name, struct err *err)
{
	_cleanup_free_ char *body = xasprintf(POLICY, name, NET_LOAD_PORT);
	const struct client_request request = {
		.method = "POST", .path = "/v1/boxes", .body = body, .body_len = strlen(body)
	};

	return client_do(rig->client, &request, NULL, err);
}

int net_rig_remove_box(struct net_rig *rig, const char *name, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s?force=true", name);

	return client_call(rig->client, "DELETE", path, NULL, NULL, err);
}

/* The daemon's children with another network namespace. */
size_t net_rig_namespaces(const struct net_rig *rig, int *ret, size_t max)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/task/%d/children", (int)rig->rig.daemon,
				    (int)rig->rig.daemon),
			    *list = NULL;
	struct stat own, other;
	char *rest, *word;
	size_t count = 0;

	if (stat("/proc/self/ns/net", &own) < 0 ||
		file_read(AT_FDCWD, path, 1024 * 1024, &list, NULL, NULL) < 0)
		return 0;
	rest = list;
	while (count < max && (word = strsep(&rest, " "))) {
		_cleanup_free_ char *link = xasprintf("/proc/%s/ns/net", word);
		_cleanup_close_ int fd = *word ? open(link, O_RDONLY | O_CLOEXEC) : -1;

		if (fd >= 0 && fstat(fd, &other) == 0 && other.st_ino != own.st_ino)
			ret[count++] = steal_fd(&fd);
	}
	return count;
}

/* ---- load ----------------------------------------------------------------------------------- */

/* Parses the last line of box-attacker: {"refused","how","detail":"NUMBER [NUMBER]"}. */
static int read_figures(const char *text, struct net_figures *ret, struct err *err)
{
	const char *line = strstr(text, "{\"attack\"");
	_cleanup_json_ json_t *json = line ? json_loads(line, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
	const char *how = json_string_value(json_object_get(json, "how"));
	const char *detail = json_string_value(json_object_get(json, "detail"));

	if (!json || !how || !detail)
		return err_set(err, ERR_PROTOCOL, "no number in '%.200s'", text);
	if (json_is_true(json_object_get(json, "refused")) ||
		sscanf(detail, "%lf %lf", &ret->first, &ret->second) < 1)
		return err_set(err, ERR_STATE, "nothing measured: %.100s, %.200s", how, detail);
	return 0;
}

static int run_inside(
	struct net_rig *rig, const char *const *words, struct buf *out, struct err *err)
{
	const char *all[12] = { "exec", NET_BOX, "--", ATTACKER };
	int code;

	for (size_t i = 1; words[i]; i++)
		all[3 + i] = words[i];
	return rig_box(&rig->rig, all, out, &code, err);
}

static int run_outside(
	struct net_rig *rig, const char *const *words, struct buf *out, struct err *err)
{
	_cleanup_close_ int fd = -1;
	ssize_t got;
	pid_t pid;

	if (start_outside(rig, -1, words, &pid, &fd, err) < 0)
		return -1;
	while (out->len < OUTPUT_MAX && (got = read(fd, buf_room(out, 4096), 4096)) > 0)
		buf_grew(out, (size_t)got);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}

int net_rig_load(struct net_rig *rig, enum net_place place, const char *what, bool fresh,
	const char *amount, const char *flows, struct net_figures *ret, struct err *err)
{
	_cleanup_free_ char *port = xasprintf("%d", NET_LOAD_PORT);
	const char *host = place == PLACE_LOOPBACK ? "127.0.0.1"
			   : fresh		   ? "*." NET_DOMAIN
						   : "server." NET_DOMAIN;
	const char *words[] = { "box-attacker", "load", what, host, port, amount, flows, NULL };
	struct buf out = BUF_INIT;
	int status = place == PLACE_BOX ? run_inside(rig, words, &out, err)
					: run_outside(rig, words, &out, err);

	if (status == 0)
		status = read_figures(buf_str(&out), ret, err);
	buf_done(&out);
	return status;
}
