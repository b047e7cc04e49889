/* waiting.c - says why the start of a box takes long, while its answer is waited for
 *
 * The answer to a request comes when the box runs. Meanwhile a process of its own asks now and then
 * what the box waits for; in the usual case the box is there before it asks for the first time. A
 * process costs a fraction of a millisecond: it is only made where somebody looks, or where a
 * driver was asked for. */
#include "cli/waiting.h"
#include "base/alloc.h"
#include "base/json.h"
#include "cli/cli.h"
#include "client/client.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST_US = 700 * 1000, EVERY_US = 500 * 1000 };

/* The box of that name, or any that is being made. */
static const char *find_reason(json_t *answer, const char *name)
{
	json_t *box;
	size_t i;

	json_array_foreach (json_object_get(answer, "boxes"), i, box)
		if ((!name || !strcmp(json_str(box, "name"), name)) && *json_str(box, "waits_for"))
			return json_str(box, "waits_for");
	return "";
}

static _Noreturn void watch(const struct cli *cli, const char *name)
{
	_cleanup_free_ char *told = xstrdup("");
	struct client *client = client_new(cli->target);

	signal(SIGINT, SIG_IGN); /* our parent decides */
	usleep(FIRST_US);
	for (;;) {
		_cleanup_json_ json_t *answer = NULL;
		struct err err = ERR_INIT;
		const char *reason;

		if (client_get(client, "/v1/boxes", &answer, &err) < 0)
			_exit(0);
		reason = find_reason(answer, name);
		if (*reason && strcmp(reason, told) != 0) {
			cli_note(cli, "%s", reason);
			free(told);
			told = xstrdup(reason);
		}
		usleep(EVERY_US);
	}
}

pid_t waiting_begin(const struct cli *cli, const char *name, bool likely)
{
	pid_t parent = getpid(), pid;

	if (cli->quiet || (!likely && !isatty(STDERR_FILENO)))
		return -1;
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	watch(cli, name);
}

void waiting_end(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
}
