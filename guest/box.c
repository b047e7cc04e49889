/* box.c - see box.h
 *
 * The command only sends its words and prints the answer (self.h). It also knows what to do when it
 * finds itself in a copy of the box in which it asked: `box fork` and `box snapshot` then print
 * nothing, or run the command after --, like the child of fork(2). */
#include "guest/box.h"
#include "guest/self.h"
#include "base/file.h"
#include <errno.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum {
	EXIT_USAGE = 64,
	EXIT_UNAVAILABLE = 69,
	EXIT_RETURNED = 3, /* a rollback was asked for, and this is the state before it */
};

/* The verbs of the daemon's inside front door. */
static const struct verb {
	const char *name, *words;
	const char *does;
	const char *more; /* explanation of each word; "": none */
} verbs[] = {
	{ "info", "[--json]",
		"this box, its limits, its position on the time line, its forks; JSON", "" },
	{ "fork", "[-n N] [NAME...] [--from SNAPSHOT] [--json] [-- CMD...]",
		"copy this box as it is now, with disk, memory and processes; prints the names of "
		"the\n"
		"copies, one a line; in a copy it prints nothing, or runs CMD",
		"  -n N             number of copies, at most 100\n"
		"  NAME...          their names; each gets the name of this box and a dash before it\n"
		"  --from SNAPSHOT  copy the box as it was at that snapshot\n"
		"  --json           "
		"{\"child\":false,\"children\":[{\"name\",\"id\"}],\"failed\":[]}, and in a copy\n"
		"                   {\"child\":true,\"name\",\"id\",\"parent\",\"index\"}\n"
		"  -- CMD...        run this in the copies, with BOX_NAME, BOX_ID, BOX_PARENT and\n"
		"                   BOX_FORK_INDEX set\n" },
	{ "snapshot", "[NAME] [--disk-only] [--json]",
		"take a snapshot; prints its id, or nothing after a rollback to it",
		"  NAME         name of the snapshot, for 'box rollback NAME'\n"
		"  --disk-only  without memory and processes\n"
		"  --json       the snapshot; {\"restored\":true} after a rollback to it\n" },
	{ "timeline", "[--json]",
		"list snapshots: id, name, kind, time, and the one this box continues from", "" },
	{ "rollback", "[SNAPSHOT] [--disk-only]",
		"go back to a snapshot, by default the last one; does not return on success",
		"  SNAPSHOT     its id or name\n"
		"  --disk-only  only the disk; the box starts again\n" },
	{ "ls", "[-q] [--json]", "list the forks of this box, and their forks",
		"  -q      only names\n"
		"  --json  with id, state, and whether it was forked from this box itself\n" },
	{ "exec", "FORK [--] CMD...",
		"run a program in a fork and exit with its exit code; wakes a fork that sleeps",
		"Its output comes here; its standard input is empty: what is piped into this "
		"command is\n"
		"not passed on.\n" },
	{ "rm", "FORK...", "remove forks, with all boxes forked from them", "" },
	{ "help", "[COMMAND]", "list the commands, or explain one", "" },
};

struct request {
	const char **words;
	const char *verb;
	char **child; /* what the copy runs; NULL: nothing */
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
	/* The connection was refused: its reason can still be read. */
	return put < 0 && errno != EPIPE && errno != ECONNRESET ? -1 : 0;
}

/* ---- help ----------------------------------------------------------------------------------- */

static const struct verb *verb_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (!strcmp(verbs[i].name, name))
			return &verbs[i];
	return NULL;
}

static void print_all(FILE *out)
{
	fputs("box: ask for things about this box, from inside it\n\n", out);
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
		const char *line = verbs[i].does;

		fprintf(out, "  box %s %s\n", verbs[i].name, verbs[i].words);
		for (size_t len; *line; line += len + (line[len] ? 1 : 0)) {
			len = strcspn(line, "\n");
			fprintf(out, "      %.*s\n", (int)len, line);
		}
	}
	fputs("\nOnly root of the box may ask.\n", out);
}

static void print_one(const struct verb *verb)
{
	printf("box %s %s\n\n%s\n%s%s", verb->name, verb->words, verb->does,
		*verb->more ? "\n" : "", verb->more);
}

static bool is_help(const char *word)
{
	return !strcmp(word, "--help") || !strcmp(word, "-h");
}

/* Searches only our own words, not those of a program. */
static bool asks_for_help(int argc, char **argv)
{
	int plain = 0;

	for (int i = 2; i < argc && strcmp(argv[i], "--"); i++) {
		if (is_help(argv[i]))
			return true;
		plain += argv[i][0] != '-';
		if (plain == 2 && !strcmp(argv[1], "exec"))
			break;
	}
	return false;
}

/* Returns the exit code; -1: no help was asked for. */
static int help(int argc, char **argv)
{
	bool asked = argc > 1 && (!strcmp(argv[1], "help") || is_help(argv[1]));
	const char *name = asked ? argv[2] : argv[1];
	const struct verb *verb = name && !is_help(name) ? verb_find(name) : NULL;

	if (argc < 2) {
		print_all(stderr);
		return EXIT_USAGE;
	}
	if (!asked && (!verb || !asks_for_help(argc, argv)))
		return -1;
	if (verb) {
		print_one(verb);
	} else if (!name || is_help(name)) {
		print_all(stdout);
	} else {
		fprintf(stderr, "box: there is no '%.40s' inside a box; see 'box help'\n", name);
		return EXIT_USAGE;
	}
	return 0;
}

/* ---- input that goes nowhere ---------------------------------------------------------------- */

static bool has_input(void)
{
	struct stat st;
	int waiting = 0;

	if (fstat(STDIN_FILENO, &st) < 0)
		return false;
	if (S_ISREG(st.st_mode)) {
		off_t at = lseek(STDIN_FILENO, 0, SEEK_CUR);

		return at >= 0 && at < st.st_size;
	}
	return (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) &&
	       ioctl(STDIN_FILENO, FIONREAD, &waiting) == 0 && waiting > 0;
}

/* Warns once: before the start, or after it for input that comes later. */
static void warn_of_input(const struct request *request)
{
	static bool warned;

	if (warned || strcmp(request->verb, "exec") || !has_input())
		return;
	warned = true;
	fputs("box: 'box exec' does not pass its input on; '< /dev/null' if that is meant\n",
		stderr);
}

/* ---- in a copy ------------------------------------------------------------------------------ */

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

/* Names and ids consist of letters, digits and dashes, so nothing needs escaping. */
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

/* ---- answers -------------------------------------------------------------------------------- */

static int listen_to(int fd, const struct request *request)
{
	static uint8_t packet[WIRE_ANSWER_MAX + 64];
	bool reset = false;

	for (;;) {
		ssize_t got = recv(fd, packet, sizeof packet, 0);
		struct wire_reader in = { packet + 1, packet + got, false };

		if (got < 0 && errno == EINTR)
			continue;
		/* Closed with our request unread; the reason follows this error. */
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
	int fd, code = help(argc, argv);

	if (code >= 0)
		return fflush(stdout) != 0 && !code ? 1 : code;
	read_request(argc, argv, &request);
	warn_of_input(&request);
	fd = reach_init();
	if (fd < 0)
		code = fail(
			"box-init does not listen; this is the command for the inside of a box");
	else if (ask(fd, &request) < 0)
		code = fail(strerror(errno));
	else
		code = listen_to(fd, &request);
	warn_of_input(&request);
	if (fflush(stdout) != 0 && !code)
		code = 1;
	free(request.words);
	return code;
}
