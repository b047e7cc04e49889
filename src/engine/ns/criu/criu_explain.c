/* criu_explain.c - translates CRIU's errors into words for users of a box
 *
 * CRIU's messages mention its own options and internals. The first of its errors that is known here
 * is translated; the order of lines counts, since one failure causes others after it. A message is
 * matched from its start, because names of files and programs of hostile processes come after that.
 * A forged line does no more harm than a wrong sentence. */
#include "engine/ns/criu/criu_internal.h"
#include "base/alloc.h"
#include <stdio.h>

/* words may contain one %s: the text between from and until in the line (until "": to its end). */
static const struct {
	const char *start;
	const char *has; /* somewhere in the message; NULL: anything */
	const char *words;
	const char *from, *until;
} known[] = {
	/* ---- dump: processes ---- */
	{ "Unseizable non-zombie", NULL, "a process is traced by another one, such as a debugger",
		NULL, NULL },
	{ "Can't dump nested ", " namespace", "a process has a %s namespace of its own", "nested ",
		" namespace" },
	{ "Can't dump a pid namespace without the process init", NULL,
		"a pid namespace in the box has lost its PID 1", NULL, NULL },
	{ "Zombie thread not supported", NULL, "a process's first thread has ended, others run on",
		NULL, NULL },
	{ "Zombies with threads are not supported", NULL,
		"a process's first thread has ended, others run on", NULL, NULL },
	{ "Individually stopped threads not supported", NULL,
		"a single thread of a process is stopped", NULL, NULL },
	{ "Can't dump the ", "pending SIGTRAP", "a process is being debugged (SIGTRAP is pending)",
		NULL, NULL },
	{ "A session leader of ", "outside of its pid namespace",
		"a process was put into the box from outside", NULL, NULL },
	{ "Landlock restricts a thread", NULL,
		"a process has restricted itself with Landlock, which nobody can read back", NULL,
		NULL },
	{ "Cannot find out whether Landlock", NULL,
		"it could not be found out whether Landlock restricts a process", NULL, NULL },
	{ "Timeout reached", NULL, "the processes did not stop in time", NULL, NULL },
	{ "Unable to freeze cgroup", NULL, "the processes did not stop in time", NULL, NULL },
	/* ---- dump: files ---- */
	{ "Can't dump file ", "[io_uring]", "a process uses io_uring", NULL, NULL },
	{ "Can't dump file ", "[userfaultfd]",
		"a process handles page faults of its own "
		"(userfaultfd)",
		NULL, NULL },
	{ "Can't dump file ", "[perf_event]", "a process uses performance counters", NULL, NULL },
	{ "Can't dump file ", "(chr ", "a process has a device open (character device %s)", "(chr ",
		")" },
	{ "Can't dump file ", "(anon ", "a process has a file of the kind %s open",
		"anon_inode:", ")" },
	{ "Can't dump file ", NULL, "a process has a file open of a kind that cannot be kept", NULL,
		NULL },
	{ "Can't dump ghost file ", NULL, "a removed file that is still open is too large: %s",
		"ghost file ", " of " },
	{ "Can't create link remap for ", NULL,
		"a file was removed under the name it is open by: %s", "remap for ", ". Use" },
	{ "Unaccessible path opened", NULL,
		"an open file is hidden: something else has its name now", NULL, NULL },
	{ "Open files on overmounted mounts", NULL,
		"a file is open below a mount that hides it: %s", "path=", "" },
	{ "Can't lookup mount=", NULL, "a file is open on a mount that the box has no more: %s",
		"path=", "" },
	{ "The path [", "] is not supported", "the open file %s cannot be kept", "[", "]" },
	{ "Can't dump that handle", NULL,
		"a file watched with inotify or fanotify could not be found by its name", NULL,
		NULL },
	{ "Can't find suitable path for handle", NULL,
		"a file watched with inotify or fanotify could not be found by its name", NULL,
		NULL },
	{ "Unresolved lock found", NULL, "a file lock is held by a process outside the box", NULL,
		NULL },
	{ "PIDFD_THREAD flag", NULL, "a process watches a single thread (pidfd)", NULL, NULL },
	{ "pidfd pid ", "not a part of process tree",
		"a process watches a process outside the box (pidfd)", NULL, NULL },
	{ "An epoll is on its way", NULL,
		"an epoll is on its way through a unix socket; try again in a moment", NULL, NULL },
	{ "A file of an epoll", "on its way",
		"a process watches a file by epoll that is on its way through a unix socket; try "
		"again in "
		"a moment",
		NULL, NULL },
	{ "Signals of a file go to the thread", NULL,
		"a process has the signals of a file sent to a single thread (F_SETOWN_EX)", NULL,
		NULL },
	{ "The packetized mode for pipes", NULL,
		"a process has packets in a pipe that nobody has read yet (O_DIRECT)", NULL, NULL },
	{ "Control messages in queue", NULL,
		"a process has messages with credentials in a unix socket that nobody has read yet",
		NULL, NULL },
	{ "No NS ID with kid", NULL, "a process holds a namespace open in which nobody is", NULL,
		NULL },
	{ "Found slave peer index", NULL, "a terminal's other end is outside the box", NULL, NULL },
	{ "Found dangling tty", NULL, "a terminal belongs to a session that has ended", NULL,
		NULL },
	/* ---- dump: sockets ---- */
	{ "Can't dump half of stream unix connection", NULL,
		"a unix socket is connected to something outside the box", NULL, NULL },
	{ "External socket is used", NULL,
		"a unix socket is connected to something outside the box", NULL, NULL },
	{ "Can't dump name-less external socket", NULL,
		"a unix socket is connected to something outside the box", NULL, NULL },
	{ "Unix socket ", "without peer", "a unix socket's other end is outside the box", NULL,
		NULL },
	{ "Unix socket ", "unreachable peer", "a unix socket's other end cannot be reached by name",
		NULL, NULL },
	{ "Dangling connection", NULL, "a unix socket's other end has just been closed", NULL,
		NULL },
	{ "Non-empty write queue on an in-flight socket", NULL,
		"data waits on a unix connection that nobody has accepted yet", NULL, NULL },
	{ "In-flight connection", NULL, "a connection waits that nobody has accepted yet", NULL,
		NULL },
	{ "The socket has data to read", NULL, "a netlink socket holds messages not read yet", NULL,
		NULL },
	{ "Unsupported proto 262", NULL, "a process uses Multipath TCP", NULL, NULL },
	{ "Unsupported proto ", NULL, "a process has a socket of IP protocol %s", "proto ",
		" for" },
	{ "BUG! Unknown socket collected", NULL, "a process has a socket of the family %s",
		"(family ", ")" },
	{ "Can't dump corked dgram socket", NULL, "a UDP socket has a datagram half written", NULL,
		NULL },
	{ "Connected TCP socket", NULL, "a TCP connection is open", NULL, NULL },
	/* ---- dump: memory and mounts ---- */
	{ "Can't handle non-regular mapping", NULL, "a process has a device mapped into memory",
		NULL, NULL },
	{ "Unsupported mapping found", NULL, "a process has memory of a kind that cannot be kept",
		NULL, NULL },
	{ "FS mnt ", " unsupported id ",
		"a file system of a kind that cannot be kept is mounted "
		"on %s",
		"FS mnt ", " dev " },
	{ "Mount ", "has unreachable sharing", "a mount of the box shares with one outside", NULL,
		NULL },
	{ "Mount ", "is autodetected external mount",
		"the box has a mount from outside that is "
		"not declared",
		NULL, NULL },
	/* ---- restore ---- */
	{ "File ", "has bad size", "the file %s has changed since", "File ", " has bad size" },
	{ "File ", "has bad mode", "the file %s has changed since", "File ", " has bad mode" },
	{ "File ", "has bad build-ID", "the program %s is another one now", "File ",
		" has bad build-ID" },
	{ "Pid ", "do not match expected", "a process number was taken", NULL, NULL },
	{ "Can't fork for ", "File exists", "a process number was taken", NULL, NULL },
	{ "Can't fork for ", "Resource temporarily unavailable",
		"the limit of processes is too low for what was captured", NULL, NULL },
	{ "Can't add file ", "to an epoll",
		"a process watches a file by epoll that could not be found again", NULL, NULL },
	{ "Can't setup ", "file owner pid",
		"a process has the signals of a file sent to a single thread (F_SETOWN_EX)", NULL,
		NULL },
	{ "Can't open file ", "No such file", "the file %s is gone", "Can't open file ", " on" },
};

/* The text between the first from and the next until. */
static size_t part(
	const char *line, size_t len, const char *from, const char *until, const char **ret)
{
	const char *end = line + len;
	const char *start = memmem(line, len, from, strlen(from));
	const char *stop;

	if (!start)
		return 0;
	start += strlen(from);
	stop = *until ? memmem(start, (size_t)(end - start), until, strlen(until)) : end;
	*ret = start;
	return (size_t)((stop ? stop : end) - start);
}

static void say(char *out, size_t size, size_t which, const char *line, size_t len)
{
	const char *mark = strstr(known[which].words, "%s"), *detail = NULL;
	char text[120];
	size_t detail_len;

	if (!mark) {
		snprintf(out, size, "%s", known[which].words);
		return;
	}
	detail_len = part(line, len, known[which].from, known[which].until, &detail);
	criu_text_clean(text, sizeof text, detail_len ? detail : "?", MAX(detail_len, 1));
	snprintf(out, size, "%.*s%s%s", (int)(mark - known[which].words), known[which].words, text,
		mark + 2);
}

/* Some of CRIU's files begin their messages with a prefix ("unix: "), and some indent them. */
static void skip_prefix(const char **text, size_t *len)
{
	const char *at = *text, *end = *text + *len;

	while (at < end && ((*at >= 'a' && *at <= 'z') || *at == '-'))
		at++;
	if (at > *text && end - at >= 2 && at[0] == ':' && at[1] == ' ')
		*text = at + 2;
	while (*text < end && **text == ' ')
		(*text)++;
	*len = (size_t)(end - *text);
}

static bool explain_message(const char *text, size_t len, char *out, size_t size)
{
	skip_prefix(&text, &len);
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		size_t start = strlen(known[i].start);

		if (len < start || memcmp(text, known[i].start, start) != 0 ||
			(known[i].has && !memmem(text, len, known[i].has, strlen(known[i].has))))
			continue;
		say(out, size, i, text, len);
		return true;
	}
	return false;
}

/* "a process uses io_uring" becomes "process 17 (node) uses io_uring"; another sentence gets the
 * process in front of it. */
static void name_process(const char *log, char *out, size_t size)
{
	static const char some[] = "a process ";
	char who[CRIU_WHO_MAX];
	_cleanup_free_ char *words = NULL;

	if (!criu_log_process(log, who, sizeof who))
		return;
	words = xstrdup(out);
	if (!strncmp(words, some, sizeof some - 1))
		snprintf(out, size, "%s %s", who, words + sizeof some - 1);
	else
		snprintf(out, size, "%s: %s", who, words);
}

bool criu_explain(const char *log, char *out, size_t size)
{
	const char *at = log, *text;
	size_t len;

	out[0] = '\0';
	while ((at = criu_log_next_error(at, &text, &len)))
		if (explain_message(text, len, out, size)) {
			name_process(log, out, size);
			return true;
		}
	return false;
}
