/* command.c - commands of the control plane on SSH channels; see control.h
 *
 * The process of the connection gets the command's own descriptors: no byte passes through the
 * daemon. A command ends with its client, as it would on a terminal. */
#include "ssh/sshd_internal.h"
#include "ssh/control.h"
#include "base/alloc.h"
#include "base/strv.h"
#include <string.h>
#include <unistd.h>

struct command {
	struct peer *peer;
	struct command *prev, *next;
	uint32_t channel;
	struct control *control;
};

static void command_free(struct command *command)
{
	if (command->prev)
		command->prev->next = command->next;
	else
		command->peer->commands = command->next;
	if (command->next)
		command->next->prev = command->prev;
	free(command);
}

static void on_end(int code, int signal, void *arg)
{
	struct command *command = arg;
	struct buf *out = sshm_pipe_begin(command->peer->pipe, SSHM_EXIT);

	wire_put_u32(out, command->channel);
	wire_put_u32(out, (uint32_t)code);
	wire_put_str(out, signal ? sigabbrev_np(signal) : NULL);
	sshm_pipe_send(command->peer->pipe, NULL, 0);
	command_free(command);
}

static void begin(struct command *command, const struct control_ends *ends)
{
	const int fds[] = { ends->data, ends->errors };

	wire_put_u32(sshm_pipe_begin(command->peer->pipe, SSHM_RUNNING), command->channel);
	sshm_pipe_send(command->peer->pipe, fds, ends->errors < 0 ? 1 : 2);
	close(ends->data);
	if (ends->errors >= 0)
		close(ends->errors);
}

int command_start(struct peer *peer, const struct run *run, struct err *err)
{
	_cleanup_strv_ char **words = NULL;
	struct command *command = xnew(struct command);
	struct control_spec spec = { .principal = &peer->principal,
		.login = peer,
		.tty = run->tty,
		.term = run->term,
		.rows = run->rows,
		.cols = run->cols,
		.env = run->env,
		.on_end = on_end,
		.arg = command };
	struct control_ends ends;

	command->peer = peer;
	command->channel = run->channel;
	if (control_words(&peer->login, run->what == SSHM_RUN_SHELL ? NULL : run->command, run->tty,
		    &words, err) < 0) {
		free(command);
		return -1;
	}
	spec.words = (const char *const *)words;
	if (control_start(peer->sshd->controls, &spec, &command->control, &ends, err) < 0) {
		free(command);
		return -1;
	}
	command->next = peer->commands;
	if (command->next)
		command->next->prev = command;
	peer->commands = command;
	begin(command, &ends);
	return 0;
}

/* ---- what else the client asks -------------------------------------------------------------- */

static struct command *find(struct peer *peer, uint32_t channel)
{
	struct command *command = peer->commands;

	while (command && command->channel != channel)
		command = command->next;
	return command;
}

void command_signal(struct peer *peer, uint32_t channel, const char *name)
{
	struct command *command = find(peer, channel);

	if (command)
		control_signal(command->control, name);
}

void command_resize(struct peer *peer, uint32_t channel, uint16_t rows, uint16_t cols)
{
	struct command *command = find(peer, channel);

	if (command && rows && cols)
		control_resize(command->control, rows, cols);
}

bool command_closed(struct peer *peer, uint32_t channel)
{
	struct command *command = find(peer, channel);

	if (!command)
		return false;
	control_hang_up(command->control);
	command_free(command);
	return true;
}

void commands_end(struct peer *peer)
{
	for (struct command *command = peer->commands, *next; command; command = next) {
		next = command->next;
		control_hang_up(command->control);
		command_free(command);
	}
}
