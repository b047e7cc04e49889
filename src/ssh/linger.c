/* linger.c - programs whose client has gone
 *
 * A program belongs to its box: when a line drops it goes on, and `ssh BOX@HOST attach` joins it
 * again. So that nothing runs for ever unseen, it is hung up (SIGHUP, as when a terminal is closed)
 * when nobody has joined it for ssh_linger. The list is the daemon's: programs that outlive a
 * restart of the daemon are not hung up any more. */
#include "ssh/sshd_internal.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "conf/conf.h"
#include <signal.h>
#include <stdio.h>

struct linger {
	struct linger *next; /* older */
	char box[NAME_MAX_LEN + 1];
	char exec[EXEC_ID_MAX + 1];
	char owner[OWNER_SIZE];
	uint64_t offset;
	int64_t due_us; /* 0: never */
	bool tty;
};

static void free_from(struct linger *linger)
{
	while (linger) {
		struct linger *next = linger->next;

		free(linger);
		linger = next;
	}
}

static void ignore(const struct err *err, void *arg)
{
	(void)err;
	(void)arg;
}

static void hang_up(struct sshd *sshd, const struct linger *linger)
{
	struct err err = ERR_INIT;
	struct box *box = box_find(sshd->yard, linger->box, &err);
	struct task *task;

	if (box && exec_signal_by_id(box, linger->exec, SIGHUP, ignore, NULL, &task, &err) == 0)
		log_info("hung up a program without a client", kv_str("box", linger->box),
			kv_str("exec", linger->exec));
}

static void arm(struct sshd *sshd)
{
	int64_t first = INT64_MAX, now = clock_mono_us();

	for (const struct linger *linger = sshd->lingers; linger; linger = linger->next)
		if (linger->due_us && linger->due_us < first)
			first = linger->due_us;
	if (first != INT64_MAX)
		loop_timer_start(
			sshd->linger_timer, first > now ? (uint64_t)(first - now) / 1000 + 1 : 1);
}

static void on_due(void *arg)
{
	struct sshd *sshd = arg;
	int64_t now = clock_mono_us();

	for (struct linger **at = &sshd->lingers; *at;) {
		struct linger *linger = *at;

		if (!linger->due_us || linger->due_us > now) {
			at = &linger->next;
			continue;
		}
		*at = linger->next;
		hang_up(sshd, linger);
		free(linger);
	}
	arm(sshd);
}

/* The list is bounded: the oldest is hung up early. */
static void trim(struct sshd *sshd)
{
	struct linger **at = &sshd->lingers;

	for (unsigned i = 0; *at && i < LINGERS_MAX; i++)
		at = &(*at)->next;
	for (const struct linger *linger = *at; linger; linger = linger->next)
		hang_up(sshd, linger);
	free_from(*at);
	*at = NULL;
}

void linger_add(struct sshd *sshd, const char *box, const char *exec, const char *owner,
	uint64_t offset, bool tty)
{
	struct linger *linger = xnew(struct linger);
	uint64_t wait_ms = yard_get_conf(sshd->yard)->ssh_linger_ms;

	snprintf(linger->box, sizeof linger->box, "%s", box);
	snprintf(linger->exec, sizeof linger->exec, "%s", exec);
	snprintf(linger->owner, sizeof linger->owner, "%s", owner);
	linger->offset = offset;
	linger->tty = tty;
	if (wait_ms != UINT64_MAX)
		linger->due_us = clock_mono_us() + (int64_t)wait_ms * 1000 + 1;
	linger->next = sshd->lingers;
	sshd->lingers = linger;
	if (!sshd->linger_timer)
		sshd->linger_timer = loop_timer_new(sshd->loop, on_due, sshd);
	trim(sshd);
	arm(sshd);
}

bool linger_take(struct sshd *sshd, const char *box, const char *owner, const char *id,
	char ret_exec[EXEC_ID_MAX + 1], uint64_t *ret_offset, bool *ret_tty)
{
	for (struct linger **at = &sshd->lingers; *at; at = &(*at)->next) {
		struct linger *linger = *at;

		if (strcmp(linger->box, box) || strcmp(linger->owner, owner) ||
			(id && strcmp(linger->exec, id)))
			continue;
		snprintf(ret_exec, EXEC_ID_MAX + 1, "%s", linger->exec);
		*ret_offset = linger->offset;
		*ret_tty = linger->tty;
		*at = linger->next;
		free(linger);
		return true;
	}
	return false;
}

void lingers_free(struct sshd *sshd)
{
	free_from(sshd->lingers);
	sshd->lingers = NULL;
	loop_timer_free(sshd->linger_timer);
	sshd->linger_timer = NULL;
}
