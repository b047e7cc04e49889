/* neighbour.c - the other box, which must not be disturbed, and programs that run in a box for a
 * while
 *
 * During the whole run it requests one page of one host again and again: resolving, connecting,
 * reading. Whatever another box does to the daemon, its visits must continue, and none may take
 * long. */
#include "attack/suite.h"
#include "base/alloc.h"
#include "base/clock.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

enum { VISITS_MAX = 4096, LINE_MS = 5000 };

#define NEIGHBOUR_BOX	 "neighbour"
#define NEIGHBOUR_POLICY "{\"version\":1,\"preset\":\"none\",\"allow\":[\"neighbour.test:80\"]}"

struct neighbour {
	struct stay stay;
};

/* ---- programs that keep running ------------------------------------------------------------- */

bool stay_start(struct rig *rig, const char *box, const char *const *words, struct stay *ret)
{
	const char *all[CHECK_WORDS + 5] = { "exec", box, "--", "/bin/box-attacker" };
	struct stay stay = { .fd = -1, .text = BUF_INIT };

	for (size_t i = 0; i < CHECK_WORDS && words[i]; i++)
		all[4 + i] = words[i];
	if (rig_spawn(rig, all, &stay.pid, &stay.fd, NULL) < 0)
		return false;
	*ret = stay;
	return true;
}

static json_t *take_line(struct stay *stay)
{
	const char *begin = (const char *)buf_head(&stay->text);
	const char *end = stay->text.len ? memchr(begin, '\n', stay->text.len) : NULL;
	json_t *line;

	if (!end)
		return NULL;
	line = json_loadb(begin, (size_t)(end - begin), 0, NULL);
	buf_eat(&stay->text, (size_t)(end - begin) + 1);
	return line ? line : json_object();
}

json_t *stay_line(struct stay *stay, int ms)
{
	int64_t deadline = clock_mono_us() + ms * 1000LL;

	for (;;) {
		struct pollfd one = { .fd = stay->fd, .events = POLLIN };
		json_t *line = take_line(stay);
		int left = (int)((deadline - clock_mono_us()) / 1000);
		ssize_t got;

		if (line)
			return line;
		if (poll(&one, 1, MAX(left, 0)) != 1)
			return NULL;
		got = read(stay->fd, buf_room(&stay->text, 4096), 4096);
		if (got <= 0 && errno != EINTR)
			return NULL;
		if (got > 0)
			buf_grew(&stay->text, (size_t)got);
	}
}

void stay_stop(struct stay *stay)
{
	if (stay->pid > 0) {
		kill(stay->pid, SIGKILL);
		while (waitpid(stay->pid, NULL, 0) < 0 && errno == EINTR)
			;
		close(stay->fd);
	}
	buf_done(&stay->text);
	*stay = (struct stay){ .fd = -1 };
}

/* ---- the neighbour -------------------------------------------------------------------------- */

int neighbour_start(struct rig *rig, struct neighbour **ret, struct err *err)
{
	static const char *const visit[CHECK_WORDS] = { "neighbour", "neighbour.test", "80", "20" };
	struct suite suite = { .rig = *rig, .profile = "standard" };
	struct group group = { .name = "neighbour" };
	struct neighbour *neighbour = xnew(struct neighbour);
	bool made = suite_new_box(&suite, &group, NEIGHBOUR_BOX, NEIGHBOUR_POLICY);
	json_t *line = NULL;

	neighbour->stay.fd = -1;
	if (made && stay_start(rig, NEIGHBOUR_BOX, visit, &neighbour->stay))
		line = stay_line(&neighbour->stay, LINE_MS);
	if (!line || !json_is_true(json_object_get(line, "ok"))) {
		err_set(err, ERR_STATE, "the neighbour cannot visit anybody: %s",
			!made  ? suite.results[0].problem
			: line ? json_string_value(json_object_get(line, "how"))
			       : "it says nothing");
		json_decref(line);
		free(suite.results);
		neighbour_stop(rig, neighbour);
		return -1;
	}
	json_decref(line);
	*ret = neighbour;
	return 0;
}

void neighbour_stop(struct rig *rig, struct neighbour *neighbour)
{
	struct suite suite = { .rig = *rig };

	if (!neighbour)
		return;
	stay_stop(&neighbour->stay);
	suite_remove_box(&suite, NEIGHBOUR_BOX);
	free(neighbour);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

struct neighbour_look neighbour_look(struct neighbour *neighbour)
{
	struct neighbour_look look = { 0 };
	double times[VISITS_MAX];
	int64_t now = clock_wall_us() / 1000;
	json_t *line;

	/* Until a visit that began after this moment, so that the effects of this group are not
	 * counted for the next. */
	while (look.visits < VISITS_MAX && (line = stay_line(&neighbour->stay, LINE_MS))) {
		bool later = json_integer_value(json_object_get(line, "at")) >= now;

		times[look.visits] = json_number_value(json_object_get(line, "ms"));
		look.worst_ms = MAX(look.worst_ms, times[look.visits]);
		look.visits++;
		if (!json_is_true(json_object_get(line, "ok")) && !look.failed++)
			snprintf(look.first_failure, sizeof look.first_failure, "%s",
				json_string_value(json_object_get(line, "how")));
		json_decref(line);
		if (later)
			break;
	}
	qsort(times, look.visits, sizeof *times, compare);
	look.middle_ms = look.visits ? times[look.visits / 2] : 0;
	return look;
}
