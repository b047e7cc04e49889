/* sftp.c - see sftp.h: the table of requests, and the loop between stdin and stdout
 *
 * Requests are served one after the other, as they come. While the client is slow to take answers,
 * more requests are still read as far as there is room, so that a client that sends many before it
 * reads is not waited for by one that it waits for. Answers go out when no whole request is left,
 * or when there are many. */
#include "guest/sftp_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum {
	VERSION = 3,
	READ_MAX = 256 * 1024,
	WAITING_MAX = 512 * 1024,   /* bytes of requests while answers are not taken */
	ANSWERS_ENOUGH = 64 * 1024, /* sent before the next request is served */
	PIPE_USUAL = 64 * 1024,
	PIPE_LARGE = 256 * 1024,
};

/* ---- requests ------------------------------------------------------------------------------- */

static void serve_limits(struct sftp *sftp, struct sftp_request *request)
{
	size_t mark = sftp_begin(request, SFTP_EXTENDED_REPLY);

	(void)sftp;
	sftp_put_u64(request->out, SFTP_PACKET_MAX);
	sftp_put_u64(request->out, SFTP_DATA_MAX);
	sftp_put_u64(request->out, SFTP_DATA_MAX);
	sftp_put_u64(request->out, SFTP_HANDLES_MAX);
	sftp_end(request, mark);
}

static const struct {
	const char *name, *version;
	sftp_serve_fn serve;
} extensions[] = {
	{ "posix-rename@openssh.com", "1", sftp_posix_rename },
	{ "statvfs@openssh.com", "2", sftp_statvfs },
	{ "fstatvfs@openssh.com", "2", sftp_fstatvfs },
	{ "hardlink@openssh.com", "1", sftp_hardlink },
	{ "fsync@openssh.com", "1", sftp_fsync },
	{ "lsetstat@openssh.com", "1", sftp_lsetstat },
	{ "limits@openssh.com", "1", serve_limits },
	{ "expand-path@openssh.com", "1", sftp_expand_path },
	{ "copy-data", "1", sftp_copy_data },
	{ "home-directory", "1", sftp_home_directory },
	{ "users-groups-by-id@openssh.com", "1", sftp_users_groups },
};

static void serve_extended(struct sftp *sftp, struct sftp_request *request)
{
	char name[64];

	sftp_get_text(request, name, sizeof name);
	for (size_t i = 0; i < ARRAY_LEN(extensions); i++)
		if (!strcmp(name, extensions[i].name)) {
			extensions[i].serve(sftp, request);
			return;
		}
	/* A name too long is one that we do not know. */
	request->bad = false;
	sftp_answer_code(request, SFTP_UNSUPPORTED);
}

static const sftp_serve_fn kinds[256] = {
	[SFTP_OPEN] = sftp_open,
	[SFTP_CLOSE] = sftp_close,
	[SFTP_READ] = sftp_read,
	[SFTP_WRITE] = sftp_write,
	[SFTP_LSTAT] = sftp_lstat,
	[SFTP_FSTAT] = sftp_fstat,
	[SFTP_SETSTAT] = sftp_setstat,
	[SFTP_FSETSTAT] = sftp_fsetstat,
	[SFTP_OPENDIR] = sftp_opendir,
	[SFTP_READDIR] = sftp_readdir,
	[SFTP_REMOVE] = sftp_remove,
	[SFTP_MKDIR] = sftp_mkdir,
	[SFTP_RMDIR] = sftp_rmdir,
	[SFTP_REALPATH] = sftp_realpath,
	[SFTP_STAT] = sftp_stat,
	[SFTP_RENAME] = sftp_rename,
	[SFTP_READLINK] = sftp_readlink,
	[SFTP_SYMLINK] = sftp_symlink,
	[SFTP_EXTENDED] = serve_extended,
};

/* The first request: has no number, and the client's version in its place. */
static void serve_init(struct sftp *sftp, struct sftp_request *request)
{
	size_t mark;

	sftp->greeted = true;
	request->id = VERSION;
	mark = sftp_begin(request, SFTP_VERSION);
	for (size_t i = 0; i < ARRAY_LEN(extensions); i++) {
		sftp_put_text(request->out, extensions[i].name);
		sftp_put_text(request->out, extensions[i].version);
	}
	sftp_end(request, mark);
}

static int serve_packet(
	struct sftp *sftp, const uint8_t *packet, uint32_t len, struct buf *out, struct err *err)
{
	struct sftp_request request = { .at = packet, .end = packet + len, .out = out };
	uint8_t type = sftp_get_u8(&request);

	request.id = sftp_get_u32(&request);
	if (request.bad || (type == SFTP_INIT) == sftp->greeted)
		return err_set(
			err, ERR_PROTOCOL, "request %u of %u bytes makes no sense here", type, len);
	if (type == SFTP_INIT)
		serve_init(sftp, &request);
	else if (kinds[type])
		kinds[type](sftp, &request);
	else
		sftp_answer_code(&request, SFTP_UNSUPPORTED);
	if (request.bad)
		sftp_answer_code(&request, SFTP_BAD_MESSAGE);
	return 0;
}

struct sftp *sftp_new(void)
{
	struct sftp *sftp = xnew(struct sftp);

	for (size_t i = 0; i < SFTP_HANDLES_MAX; i++)
		sftp->handles[i].fd = -1;
	return sftp;
}

void sftp_free(struct sftp *sftp)
{
	for (size_t i = 0; sftp && i < SFTP_HANDLES_MAX; i++) {
		if (sftp->handles[i].dir)
			closedir(sftp->handles[i].dir);
		else if (sftp->handles[i].fd >= 0)
			close(sftp->handles[i].fd);
	}
	free(sftp);
}

int sftp_serve(struct sftp *sftp, struct buf *in, struct buf *out, struct err *err)
{
	struct sftp_request field = { .at = buf_head(in), .end = buf_head(in) + in->len };
	uint32_t len;

	if (in->len < 4)
		return 0;
	len = sftp_get_u32(&field);
	if (len > SFTP_PACKET_MAX)
		return err_set(err, ERR_PROTOCOL, "a request of %u bytes; at most %d are taken",
			len, SFTP_PACKET_MAX);
	if (in->len - 4 < len)
		return 0;
	if (serve_packet(sftp, field.at, len, out, err) < 0)
		return -1;
	buf_eat(in, 4 + (size_t)len);
	return 1;
}

/* ---- the streams ---------------------------------------------------------------------------- */

struct streams {
	struct buf in, out;
	bool over;	/* nothing more comes */
	bool is_socket; /* answers go to one, else to a pipe that does not block */
	bool is_large;	/* the pipe of requests was made larger */
};

/* false: nobody takes answers any more. */
static bool send_answers(struct streams *streams)
{
	while (streams->out.len) {
		const uint8_t *head = buf_head(&streams->out);
		ssize_t put = streams->is_socket ? send(1, head, streams->out.len, MSG_DONTWAIT)
						 : write(1, head, streams->out.len);

		if (put < 0 && errno == EAGAIN)
			return true;
		if (put < 0 && errno != EINTR)
			return false;
		buf_eat(&streams->out, put > 0 ? (size_t)put : 0);
	}
	return true;
}

static bool has_room(const struct streams *streams)
{
	return !streams->over && streams->in.len < WAITING_MAX;
}

/* Waits when there is nothing. */
static void read_requests(struct streams *streams)
{
	ssize_t got = read(0, buf_room(&streams->in, READ_MAX), READ_MAX);

	if (got > 0)
		buf_grew(&streams->in, (size_t)got);
	else if (got < 0 && errno == EAGAIN) /* who started us made it so */
		poll(&(struct pollfd){ .fd = 0, .events = POLLIN }, 1, -1);
	else if (got == 0 || errno != EINTR)
		streams->over = true;
	/* A full pipe: much is being written. */
	if (got >= PIPE_USUAL && !streams->is_large) {
		streams->is_large = true;
		fcntl(0, F_SETPIPE_SZ, PIPE_LARGE);
	}
}

/* Waits until answers can be sent or requests be read; true: requests. */
static bool wait_for_either(const struct streams *streams)
{
	struct pollfd fds[2] = {
		{ .fd = has_room(streams) ? 0 : -1, .events = POLLIN },
		{ .fd = streams->out.len ? 1 : -1, .events = POLLOUT },
	};

	return poll(fds, 2, -1) > 0 && fds[0].revents;
}

static int serve(struct sftp *sftp, struct streams *streams, struct err *err)
{
	for (;;) {
		bool readable = true;
		int got = 1;

		while (streams->out.len < ANSWERS_ENOUGH && got > 0)
			got = sftp_serve(sftp, &streams->in, &streams->out, err);
		if (!send_answers(streams))
			return 0;
		if (got < 0)
			return -1;
		if (got && streams->out.len < ANSWERS_ENOUGH)
			continue;
		if (streams->over && !got && !streams->out.len)
			return 0;
		if (streams->out.len)
			readable = wait_for_either(streams);
		if (readable && has_room(streams))
			read_requests(streams);
	}
}

int sftp_main(void)
{
	struct sftp *sftp = sftp_new();
	struct streams streams = { .in = BUF_INIT, .out = BUF_INIT };
	struct err err = ERR_INIT;
	struct stat st;
	int ret;

	prctl(PR_SET_NAME, SFTP_PROGRAM);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a file at its limit is an answer, not the end */
	streams.is_socket = fstat(1, &st) == 0 && S_ISSOCK(st.st_mode);
	if (!streams.is_socket)
		fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_NONBLOCK);
	ret = serve(sftp, &streams, &err);
	if (ret < 0)
		fprintf(stderr, "%s: %s\n", SFTP_PROGRAM, err.message);
	buf_done(&streams.in);
	buf_done(&streams.out);
	sftp_free(sftp);
	return ret < 0;
}
