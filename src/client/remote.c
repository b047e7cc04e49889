/* remote.c - see remote.h */
#include "client/remote.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/special.h"
#include "base/text.h"
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

enum { CONNECT_S = 15, HOST_MAX_LEN = 255 };

enum scheme { SCHEME_SSH, SCHEME_HTTPS, SCHEME_HTTP, SCHEME_UNIX };
static const struct {
	const char *prefix;
	uint16_t port;
} schemes[] = {
	[SCHEME_SSH] = { "ssh://", 0 },
	[SCHEME_HTTPS] = { "https://", 443 },
	[SCHEME_HTTP] = { "http://", 80 },
	[SCHEME_UNIX] = { "unix://", 0 },
};

struct target {
	enum scheme scheme;
	char user[64]; /* "" : none */
	char host[HOST_MAX_LEN + 1];
	uint16_t port; /* 0: the scheme's own */
	char path[108];
};

static const char *use_token, *use_cacert, *use_home, *use_target;

void remote_use(const char *target, const char *token, const char *cacert, const char *home)
{
	use_target = target;
	use_token = token;
	use_cacert = cacert;
	use_home = home;
}

bool remote_is(const char *target)
{
	return target[0] != '/';
}

/* ---- parsing targets ------------------------------------------------------------------------ */

static int refuse(const char *text, const char *why, struct err *err)
{
	err_set(err, ERR_INVALID, "'%.120s' is not the address of a daemon: %s", text, why);
	return err_hint(
		err, "ssh://USER@HOST, https://HOST:PORT, http://127.0.0.1:PORT or unix:///SOCKET");
}

/* For words of a remote command line and host names in a header: refuses what a shell or HTTP
 * would interpret. */
static bool is_plain(const char *text, size_t len, const char *more)
{
	for (size_t i = 0; i < len; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-",
			    text[i]) &&
			!strchr(more, text[i]))
			return false;
	return len && text[0] != '-';
}

/* HOST, HOST:PORT, [V6]:PORT */
static int read_host(
	const char *text, const char *at, size_t len, struct target *ret, struct err *err)
{
	const char *end = at + len, *colon;
	size_t host_len;
	uint64_t port = 0;

	if (*at == '[') {
		const char *close = memchr(at, ']', len);

		if (!close)
			return refuse(text, "a ] is missing", err);
		at++;
		host_len = (size_t)(close - at);
		colon = close + 1 < end ? close + 1 : NULL;
	} else {
		colon = memchr(at, ':', len);
		host_len = (size_t)((colon ? colon : end) - at);
	}
	if (host_len > HOST_MAX_LEN || !is_plain(at, host_len, ":"))
		return refuse(text, "its host is empty or has invalid characters", err);
	snprintf(ret->host, sizeof ret->host, "%.*s", (int)host_len, at);
	if (!colon)
		return 0;
	if (*colon == ':') {
		_cleanup_free_ char *digits = xstrndup(colon + 1, (size_t)(end - colon - 1));

		if (parse_u64("port", digits, 1, 65535, &port, NULL) == 0) {
			ret->port = (uint16_t)port;
			return 0;
		}
	}
	return refuse(text, "its port must be from 1 to 65535", err);
}

static int parse(const char *text, struct target *ret, struct err *err)
{
	const char *at = NULL, *slash, *user_end;
	size_t i;

	*ret = (struct target){ 0 };
	for (i = 0; i < ARRAY_LEN(schemes) && !at; i++)
		if (text_has_prefix(text, schemes[i].prefix)) {
			at = text + strlen(schemes[i].prefix);
			ret->scheme = i;
		}
	if (!at)
		return refuse(text, "its scheme is unknown", err);
	slash = ret->scheme == SCHEME_UNIX ? at : at + strcspn(at, "/");
	if (strlen(slash) >= sizeof ret->path)
		return refuse(text, "its path is too long", err);
	snprintf(ret->path, sizeof ret->path, "%s", strcmp(slash, "/") ? slash : "");
	if (ret->scheme == SCHEME_UNIX)
		return ret->path[0] == '/' ? 0 : refuse(text, "a path begins with /", err);
	if (*ret->path && ret->scheme != SCHEME_SSH)
		return refuse(text, "it has a path", err);
	if (*ret->path && !is_plain(ret->path, strlen(ret->path), "/"))
		return refuse(text, "its path has invalid characters", err);
	user_end = memchr(at, '@', (size_t)(slash - at));
	if (user_end && (ret->scheme != SCHEME_SSH || !is_plain(at, (size_t)(user_end - at), "")))
		return refuse(text, "a user before the @ works with ssh only", err);
	if (user_end) {
		snprintf(ret->user, sizeof ret->user, "%.*s", (int)(user_end - at), at);
		at = user_end + 1;
	}
	if (read_host(text, at, (size_t)(slash - at), ret, err) < 0)
		return -1;
	if (ret->scheme == SCHEME_HTTP && !host_is_loopback(ret->host)) {
		err_set(err, ERR_INVALID,
			"http:// works on this machine only: on a network everybody could read the "
			"token");
		return err_hint(err, "use https:// or ssh:// for '%s'", ret->host);
	}
	return 0;
}

int remote_read(const char *text, char **ret, struct err *err)
{
	struct target target;

	if (parse(text, &target, err) < 0)
		return -1;
	*ret = xstrdup(target.scheme == SCHEME_UNIX ? target.path : text);
	return 0;
}

int remote_split(const char *text, struct remote_place *ret, struct err *err)
{
	struct target target;

	if (parse(text, &target, err) < 0)
		return -1;
	*ret = (struct remote_place){ .is_ssh = target.scheme == SCHEME_SSH, .port = target.port };
	snprintf(ret->user, sizeof ret->user, "%s", target.user);
	snprintf(ret->host, sizeof ret->host, "%s", target.host);
	snprintf(ret->path, sizeof ret->path, "%s", target.path);
	return 0;
}

/* ---- heads ---------------------------------------------------------------------------------- */

void remote_add_head(struct buf *out, const char *text)
{
	struct target target;
	bool v6;

	if (!remote_is(text) || parse(text, &target, NULL) < 0 || target.scheme == SCHEME_SSH) {
		buf_add_str(out, "Host: localhost\r\n");
		if (!remote_is(text) && use_home && !strcmp(text, use_target))
			buf_addf(out, "Box-Home: %s\r\n", use_home);
		return;
	}
	v6 = strchr(target.host, ':');
	buf_addf(out, "Host: %s%s%s", v6 ? "[" : "", target.host, v6 ? "]" : "");
	if (target.port && target.port != schemes[target.scheme].port)
		buf_addf(out, ":%u", target.port);
	buf_add_str(out, "\r\n");
	if (use_token)
		buf_addf(out, "Authorization: Bearer %s\r\n", use_token);
}

/* ---- dialling ------------------------------------------------------------------------------- */

static int dial_tcp(const struct target *target, int *ret, struct err *err)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
	const struct timeval wait = { .tv_sec = CONNECT_S }, forever = { 0 };
	struct addrinfo *found = NULL;
	char port[8];
	int code, fd = -1, why = 0;

	snprintf(port, sizeof port, "%u",
		target->port ? target->port : schemes[target->scheme].port);
	code = getaddrinfo(target->host, port, &hints, &found);
	if (code)
		return err_set(err, ERR_UNAVAILABLE, "'%s' cannot be found: %s", target->host,
			gai_strerror(code));
	for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
		fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		/* This limits connect() too. */
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
		if (connect(fd, at->ai_addr, at->ai_addrlen) < 0) {
			why = errno;
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(found);
	if (fd < 0) {
		err_set(err, ERR_UNAVAILABLE, "connect to %s:%s: %s", target->host, port,
			strerror(why == EINPROGRESS ? ETIMEDOUT : why));
		return err_hint(err, "is that the address of a daemon?");
	}
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &forever, sizeof forever);
	*ret = fd;
	return 0;
}

/* Runs in the child, in a session of its own: Ctrl-C is for the program in the box, not for the
 * connection to it. ssh ends when we close the socket, after it has sent everything. */
static void run_ssh(const struct target *target, int end)
{
	char port[8], where[sizeof target->user + sizeof target->host + 2],
		command[sizeof target->path + 32];
	const char *words[16];
	size_t count = 0;

	setsid();
	signal(SIGPIPE, SIG_DFL);
	if (dup2(end, STDIN_FILENO) < 0 || dup2(end, STDOUT_FILENO) < 0)
		_exit(126);
	snprintf(where, sizeof where, "%s%s%s", target->user, *target->user ? "@" : "",
		target->host);
	snprintf(command, sizeof command, "box dial-stdio%s%s", *target->path ? " " : "",
		target->path);
	words[count++] = "ssh";
	words[count++] = "-T";
	words[count++] = "-oConnectTimeout=15";
	if (target->port) {
		snprintf(port, sizeof port, "%u", target->port);
		words[count++] = "-p";
		words[count++] = port;
	}
	words[count++] = "--";
	words[count++] = where;
	words[count++] = command;
	words[count] = NULL;
	execvp("ssh", (char *const *)words);
	dprintf(STDERR_FILENO, "box: run ssh: %s\n", strerror(errno));
	_exit(127);
}

static int dial_ssh(const struct target *target, int *ret, struct err *err)
{
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return err_sys(err, errno, "socketpair");
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		run_ssh(target, ends[1]);
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return err_sys(err, errno, "fork");
	}
	*ret = ends[0];
	return 0;
}

int remote_dial(const char *text, int *ret_fd, struct err *err)
{
	struct target target;
	int fd = -1;

	if (parse(text, &target, err) < 0)
		return -1;
	if (target.scheme == SCHEME_SSH)
		return dial_ssh(&target, ret_fd, err);
	if (dial_tcp(&target, &fd, err) < 0)
		return -1;
	if (target.scheme == SCHEME_HTTPS)
		return remote_tls_start(fd, target.host, use_cacert, ret_fd, err);
	*ret_fd = fd;
	return 0;
}

void remote_hint(const char *text, struct err *err)
{
	struct target target;

	if (!remote_is(text) || parse(text, &target, NULL) < 0 || target.scheme != SCHEME_SSH)
		return;
	err_hint(err, "does 'ssh %s%s%s box info' work?", target.user, *target.user ? "@" : "",
		target.host);
}
