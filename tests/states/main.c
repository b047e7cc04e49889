/* main.c - starts the kinds, asks them, and tells what they say
 *
 *   states-checks run DIR KIND...|all      a process for each; stays until they end
 *   states-checks ask DIR TOKEN [KIND...]  asks all that run there, waits, a line each: "KIND ok N
 *                                          detail" or "KIND BAD why"
 *   states-checks kinds                    the names
 *
 * Questions go through a named pipe DIR/KIND.ask, answers into a file DIR/KIND.answer, a line each
 * that begins with the question's token. Both are held open by the kind's process and so are part
 * of what is captured. N counts the answers a process remembers having given: after going back in
 * time it is what it was then. */
#include "tests/states/checks.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ASK_MS = 60000, LINE_MAX_BYTES = 64 };

static const struct kind *const kinds[] = { &kind_files, &kind_deleted, &kind_removed_folder,
	&kind_mapped, &kind_pipes, &kind_fifo, &kind_pty, &kind_unix, &kind_unix_backlog,
	&kind_rights, &kind_tcp, &kind_tcp_full, &kind_udp, &kind_talk, &kind_timers,
	&kind_sleepers, &kind_epoll, &kind_eventfd, &kind_signalfd, &kind_inotify, &kind_memfd,
	&kind_shared, &kind_sysv, &kind_locks, &kind_threads, &kind_blocked, &kind_signals,
	&kind_children, &kind_pidfd, &kind_context, &kind_memory, &kind_clock, &kind_random,
	&kind_program, &kind_shared_epoll, &kind_lent_epoll, &kind_in_flight, &kind_descriptors,
	&kind_pty_between, &kind_attributes };
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const struct kind *kind_find(const char *name)
{
	for (size_t i = 0; i < KINDS; i++)
		if (strcmp(kinds[i]->name, name) == 0)
			return kinds[i];
	return NULL;
}

static int give_up(const char *what)
{
	fprintf(stderr, "states-checks: %s: %s\n", what, strerror(errno));
	return 2;
}

/* ---- one kind ------------------------------------------------------------------------------- */

static void answer(int to, const char *token, const struct check *check)
{
	if (check->why[0])
		dprintf(to, "%s BAD %s\n", token, check->why);
	else
		dprintf(to, "%s ok %u %s\n", token, check->asked, check->detail);
}

/* A token without its newline; false at the end, which never comes: the pipe is open for writing
 * too. */
static bool next_question(int ask, char token[LINE_MAX_BYTES])
{
	size_t used = 0;

	for (;;) {
		ssize_t got = read(ask, token + used, 1);

		if (got < 0 && errno == EINTR)
			continue;
		if (got != 1 || used == LINE_MAX_BYTES - 1)
			return false;
		if (token[used] == '\n')
			break;
		used++;
	}
	token[used] = 0;
	return true;
}

static int kind_run(const struct kind *kind, const char *dir, int ask, int to)
{
	struct check check = { .dir = dir };
	char token[LINE_MAX_BYTES];

	umask(022);
	if ((mkdir(dir, 0755) < 0 && errno != EEXIST) || chdir(dir) < 0)
		return give_up(dir);
	kind->set_up(&check);
	if (check.why[0]) {
		answer(to, "set-up", &check);
		return 3;
	}
	while (next_question(ask, token)) {
		check.detail[0] = 0;
		kind->verify(&check);
		answer(to, token, &check);
		check.asked++;
	}
	return 4;
}

static void path_of(char path[512], const char *dir, const struct kind *kind, const char *suffix)
{
	snprintf(path, 512, "%s/%s%s", dir, kind->name, suffix);
}

/* Before any of them runs: who asks early finds them all. */
static int kind_prepare(const struct kind *kind, const char *dir)
{
	char path[512];

	path_of(path, dir, kind, ".answer");
	unlink(path);
	path_of(path, dir, kind, ".ask");
	unlink(path);
	return mkfifo(path, 0600);
}

static pid_t kind_start(const struct kind *kind, const char *dir)
{
	char path[512];
	int ask, to;
	pid_t pid;

	path_of(path, dir, kind, ".ask");
	ask = open(path, O_RDWR | O_CLOEXEC);
	path_of(path, dir, kind, ".answer");
	to = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	pid = ask < 0 || to < 0 ? -1 : fork();
	if (pid == 0) {
		path_of(path, dir, kind, "");
		prctl(PR_SET_NAME, kind->name);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(kind_run(kind, path, ask, to));
	}
	close(ask);
	close(to);
	return pid;
}

static int run(const char *dir, int count, char **names)
{
	const struct kind *chosen[KINDS];
	pid_t pids[KINDS];
	int status;
	pid_t over;

	if (count == 1 && strcmp(names[0], "all") == 0)
		memcpy(chosen, kinds, sizeof chosen), count = KINDS;
	else
		for (int i = 0; i < count; i++)
			if (i >= KINDS || !(chosen[i] = kind_find(names[i])))
				return errno = EINVAL, give_up(names[i]);
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return give_up(dir);
	for (int i = 0; i < count; i++)
		if (kind_prepare(chosen[i], dir) < 0)
			return give_up(chosen[i]->name);
	for (int i = 0; i < count; i++)
		if ((pids[i] = kind_start(chosen[i], dir)) < 0)
			return give_up(chosen[i]->name);
	printf("started %d\n", count);
	fflush(stdout);
	while ((over = waitpid(-1, &status, 0)) > 0 || errno == EINTR)
		for (int i = 0; i < count; i++)
			if (pids[i] == over)
				printf("over %s %#x\n", chosen[i]->name, (unsigned)status),
					fflush(stdout);
	return 0;
}

/* ---- asking --------------------------------------------------------------------------------- */

/* The answer to token, or to none when the set-up failed; NULL: not yet. Static. */
static const char *answer_find(const char *dir, const char *name, const char *token)
{
	static char line[512];
	char path[512];
	size_t length = strlen(token);
	bool found = false;
	FILE *file;

	snprintf(path, sizeof path, "%s/%s.answer", dir, name);
	file = fopen(path, "re");
	while (file && !found && fgets(line, sizeof line, file)) {
		bool whole = strchr(line, '\n');

		found = whole && ((strncmp(line, token, length) == 0 && line[length] == ' ') ||
					 strncmp(line, "set-up ", 7) == 0);
	}
	if (file)
		fclose(file);
	return found ? strchr(line, ' ') + 1 : NULL;
}

static bool question_put(const char *dir, const char *name, const char *token)
{
	char path[512];
	int fd;

	snprintf(path, sizeof path, "%s/%s.ask", dir, name);
	fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	dprintf(fd, "%s\n", token);
	close(fd);
	return true;
}

static bool ask_one(const char *dir, const char *name, const char *token, uint64_t deadline)
{
	const char *text = NULL;

	while (!(text = answer_find(dir, name, token)) && now_ms() < deadline)
		usleep(2000);
	printf("%s %s", name, text ? text : "BAD no answer\n");
	return text && strncmp(text, "ok ", 3) == 0;
}

static int ask(const char *dir, const char *token, int count, char **names)
{
	uint64_t deadline = now_ms() + ASK_MS;
	const char *running[KINDS];
	bool asked[KINDS];
	int found = 0, bad = 0;
	char path[512];

	for (size_t i = 0; i < KINDS; i++) {
		bool wanted = count == 0;

		for (int n = 0; n < count; n++)
			wanted |= strcmp(names[n], kinds[i]->name) == 0;
		snprintf(path, sizeof path, "%s/%s.ask", dir, kinds[i]->name);
		if (wanted && access(path, F_OK) == 0)
			running[found++] = kinds[i]->name;
	}
	for (int i = 0; i < found; i++)
		asked[i] = question_put(dir, running[i], token);
	for (int i = 0; i < found; i++) {
		if (asked[i] || answer_find(dir, running[i], token))
			bad += !ask_one(dir, running[i], token, deadline);
		else
			bad++, printf("%s BAD gone: %s\n", running[i], strerror(errno));
	}
	return found == 0 || bad > 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	if (argc >= 4 && strcmp(argv[1], "run") == 0)
		return run(argv[2], argc - 3, argv + 3);
	if (argc >= 4 && strcmp(argv[1], "ask") == 0)
		return ask(argv[2], argv[3], argc - 4, argv + 4);
	if (argc == 2 && strcmp(argv[1], "kinds") == 0) {
		for (size_t i = 0; i < KINDS; i++)
			puts(kinds[i]->name);
		return 0;
	}
	if (argc == 3 && strcmp(argv[1], "echo") == 0) /* what the kind "program" runs a copy of */
		for (char byte; read(0, &byte, 1) == 1;)
			if (byte++, write(1, &byte, 1) != 1)
				return 1;
	if (argc == 3 && strcmp(argv[1], "echo") == 0)
		return 0;
	fprintf(stderr,
		"usage: states-checks run DIR KIND...|all | ask DIR TOKEN [KIND...] | kinds\n");
	return 64;
}
