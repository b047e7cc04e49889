/* shutdown.c - see shutdown.h
 *
 * As PID 1 we end every process of the box, and orphans become our children, so "no child left"
 * means the box is empty. As an ordinary process (under test) only the execs are ended. */
#include "guest/shutdown.h"
#include "guest/conn.h"
#include "guest/exec.h"
#include "guest/watch.h"
#include <signal.h>
#include <sys/wait.h>

enum { GRACE_MAX_MS = 600 * 1000, AFTER_KILL_MS = 1000, LAST_WORDS_MS = 300 };

static bool under_way, empty, done;
static struct timer timer;

static void signal_all(int number)
{
	if (getpid() == 1)
		kill(-1, number);
	else
		exec_signal_all(number);
}

static void on_enough(struct timer *unused)
{
	(void)unused;
	done = true;
}

static void on_grace_over(struct timer *unused)
{
	(void)unused;
	signal_all(SIGKILL);
	timer_arm(&timer, AFTER_KILL_MS, on_enough);
}

void shutdown_children(bool left)
{
	if (!under_way || left || empty)
		return;
	/* Wait a moment for the last output and exits to be read and sent. */
	empty = true;
	timer_arm(&timer, LAST_WORDS_MS, on_enough);
}

bool shutdown_is_done(void)
{
	return done || (empty && !exec_has_news() && !conn_has_unsent());
}

int shutdown_open(struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err)
{
	uint32_t grace_ms = wire_get_u32(in);
	siginfo_t child;

	(void)op;
	if (wire_get_done(in, err) < 0)
		return -1;
	channel_begin(channel, WIRE_REPLY);
	channel_end(channel);
	channel_close(channel);
	/* Asking again may only shorten the grace period. */
	if (under_way && timer.armed && !grace_ms)
		on_grace_over(&timer);
	if (under_way)
		return 0;
	under_way = true;
	exec_refuse_more();
	signal_all(SIGTERM);
	/* A stopped process sees the TERM only after a CONT. */
	signal_all(SIGCONT);
	timer_arm(&timer, MIN(grace_ms, (uint32_t)GRACE_MAX_MS), on_grace_over);
	if (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) < 0)
		shutdown_children(false);
	return 0;
}
