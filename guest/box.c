/* box.c - see box.h
 *
 * It knows little: words go out, output and an exit code come back (self.h). What it does know is what to do when it is
 * found in a copy of the box it had asked in: `box fork` and `box snapshot` then print nothing, or run the command
 * after --, as a child of fork(2) goes its own way. */
#include "guest/box.h"
#include "guest/self.h"
#include "base/file.h"
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
	EXIT_USAGE = 64,
	EXIT_UNAVAILABLE = 69,
	EXIT_RETURNED = 3, /* a rollback was asked for, and this is the state before it */
};

static const char usage[] =
	"box: ask for things about this box, from inside it\n"
	"\n"
	"  box info                                  this box, its limits and its children, as "
	"JSON\n"
	"  box fork [-n N] [NAME...] [-- CMD...]     copy this box as it is now, processes and "
	"all\n"
	"                                            prints the names of the copies; in a copy it "
	"prints\n"
	"                                            nothing, or runs CMD\n"
	"  box snapshot [NAME] [--disk-only]         keep this moment; prints its id, and nothing "
	"when\n"
	"                                            the box has come back to it\n"
	"  box timeline                              the moments kept\n"
	"  box rollback [SNAPSHOT] [--disk-only]     go back to one; does not return when it "
	"works\n"
	"  box ls                                    the copies made from this box\n"
	"  box exec CHILD [--] CMD...                run a program in one of them\n"
	"  box rm CHILD...                           remove them, with their own copies\n"
	"\n"
	"--json gives JSON where there is something to print. Only root of the box may ask.\n";

struct request {
	const char **words;
	const char *verb;
	char **child; /* what the copy is to run; NULL: nothing */
	bool json;
};

static int fail(const char *what)
{
	fprintf(stderr, "box: %s\n", what);
	return EXIT_UNAVAILABLE;
}

static void read_request(int argc, char **argv, struct request *ret)
{
	size_t count = 0;

	*ret = (struct request){ .verb = argv[1], .words = xnewn(const char *, (size_t)argc) };
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--") && !strcmp(ret->verb, "fork")) {
			ret->child = argv[i + 1] ? argv + i + 1 : NULL;
			break;
		}
		ret->json |= !strcmp(argv[i], "--json");
		ret->words[count++] = argv[i];
	}
}

static int reach_init(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	socklen_t len = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(SELF_SOCKET);
	const char *path = getenv("BOX_INIT_SOCKET"); /* for tests */
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (path) {
		snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
		len = sizeof address;
	} else {
		memcpy(address.sun_path + 1, SELF_SOCKET, strlen(SELF_SOCKET));
	}
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, len) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static int ask(int fd, const struct request *request)
{
	struct buf packet = BUF_INIT;
	ssize_t put;

	wire_put_strv(&packet, request->words);
	if (packet.len > WIRE_WORDS_BYTES) {
		buf_done(&packet);
		errno = E2BIG;
		return -1;
	}
	put = send(fd, buf_head(&packet), packet.len, MSG_NOSIGNAL);
	buf_done(&packet);
	/* Refused at the door: its reason lies there to be read. */
	return put < 0 && errno != EPIPE && errno != ECONNRESET ? -1 : 0;
}

/* ---- in a copy ------------------------------------------------------------------------------------- */

static bool is_moment(const struct request *request)
{
	return !strcmp(request->verb, "fork") || !strcmp(request->verb, "snapshot");
}

static int run_child(char **command)
{
	execvp(command[0], command);
	fprintf(stderr, "box: %s: %s\n", command[0], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}

/* Names and ids are made of letters, digits and dashes: nothing in them needs escaping. */
static int in_child(const struct request *request, struct wire_reader *in)
{
	const char *name = wire_get_str(in, 63), *id = wire_get_str(in, 63);
	const char *parent = wire_get_str(in, 63);
	uint32_t index = wire_get_u32(in);
	char number[16];

	if (!is_moment(request)) {
		fprintf(stderr, "box: this is '%s', a copy of '%s'\n", name, parent);
		return EXIT_RETURNED;
	}
	snprintf(number, sizeof number, "%u", index);
	if (request->child) {
		setenv("BOX_NAME", name, 1);
		setenv("BOX_ID", id, 1);
		setenv("BOX_PARENT", parent, 1);
		setenv("BOX_FORK_INDEX", number, 1);
		return run_child(request->child);
	}
	if (request->json)
		printf("{\"child\":true,\"name\":\"%s\",\"id\":\"%s\",\"parent\":\"%s\",\"index\":%"
		       "s}\n",
			name, id, parent, number);
	return 0;
}

static int in_restored(const struct request *request)
{
	if (!strcmp(request->verb, "snapshot")) {
		if (request->json)
			printf("{\"restored\":true}\n");
		return 0;
	}
	fprintf(stderr, "box: the box came back to the moment before this %s\n", request->verb);
	return EXIT_RETURNED;
}

/* ---- answers --------------------------------------------------------------------------------------- */

static int listen_to(int fd, const struct request *request)
{
	static uint8_t packet[WIRE_ANSWER_MAX + 64];
	bool reset = false;

	for (;;) {
		ssize_t got = recv(fd, packet, sizeof packet, 0);
		struct wire_reader in = { packet + 1, packet + got, false };

		if (got < 0 && errno == EINTR)
			continue;
		/* Closed with our request unread; the reason lies behind this error. */
		if (got < 0 && errno == ECONNRESET && !reset) {
			reset = true;
			continue;
		}
		if (got <= 0)
			return fail("box-init hung up");
		switch (packet[0]) {
		case SELF_OUT:
		case SELF_ERR:
			if (fd_write_all(packet[0] == SELF_OUT ? 1 : 2, packet + 1, (size_t)got - 1,
				    NULL) < 0)
				return 1;
			break;
		case SELF_DONE:
			return (int)wire_get_u32(&in);
		case SELF_CHILD:
			return in_child(request, &in);
		case SELF_RESTORED:
			return in_restored(request);
		default:
			return fail("box-init speaks another language");
		}
	}
}

int box_main(int argc, char **argv)
{
	struct request request;
	int fd, code;

	if (argc < 2 || !strcmp(argv[1], "help") || !strcmp(argv[1], "--help") ||
		!strcmp(argv[1], "-h")) {
		fputs(usage, argc < 2 ? stderr : stdout);
		return argc < 2 ? EXIT_USAGE : 0;
	}
	read_request(argc, argv, &request);
	fd = reach_init();
	if (fd < 0)
		code = fail(
			"box-init does not listen; this is the command for the inside of a box");
	else if (ask(fd, &request) < 0)
		code = fail(strerror(errno));
	else
		code = listen_to(fd, &request);
	if (fflush(stdout) != 0 && !code)
		code = 1;
	free(request.words);
	return code;
}
