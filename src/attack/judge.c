/* judge.c - runs one check and judges its result
 *
 * A check passes when the attacker was refused and neither the world nor the host received
 * anything that the check does not allow. In the first profile each attack is also run outside
 * any box, where nothing blocks it, and must arrive: an attack that would fail anyway proves
 * nothing. */
#include "attack/suite.h"
#include "attack/witness.h"
#include "base/alloc.h"
#include <stdio.h>
#include <string.h>

/* ---- what the witnesses received ------------------------------------------------------------ */

static bool word_in(const char *list, const char *word, size_t len)
{
	for (const char *p = list; p && *p; p += strcspn(p, " "), p += strspn(p, " "))
		if (strcspn(p, " ") == len && !strncmp(p, word, len))
			return true;
	return false;
}

static bool name_in(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = list; p && *p; p += strcspn(p, " "), p += strspn(p, " ")) {
		size_t size = strcspn(p, " ");

		if (*p == '*' ? len >= size && !strncasecmp(name + len - size + 1, p + 1, size - 1)
			      : size == len && !strncasecmp(p, name, len))
			return true;
	}
	return false;
}

static bool is_fine(const struct group *group, const struct check *check, const char *line)
{
	const char *what = strchr(line, ' '), *never = check->never ? check->never : "evil";
	size_t len;

	if (!what)
		return false;
	what++;
	len = strcspn(what, " ");
	/* Traffic of the neighbour. Names come in mixed case: the daemon's protection against
	 * forged answers. */
	if (!strncmp(what, "203.0.113.20:", 13) || strcasestr(line, "neighbour.test"))
		return true;
	if (!strncmp(line, "dns ", 4))
		return what[len] && name_in(group->names, what + len + 1);
	/* Queries of the daemon, which are also recorded by name; and ICMP errors of its kernel
	 * for late answers. */
	if (word_in(RIG_RESOLVER ":53", what, len) || !strcmp(line, "ip 1 " RIG_RESOLVER))
		return true;
	return word_in(check->may, what, len) && !strcasestr(line, never);
}

static char *first_bad(
	const struct group *group, const struct check *check, const char *seen, unsigned *ret_taken)
{
	_cleanup_free_ char *copy = xstrdup(seen);
	char *rest = copy, *line;

	while ((line = strsep(&rest, "\n"))) {
		if (*line && !is_fine(group, check, line))
			return xasprintf("%.150s", line);
		*ret_taken += !strncmp(line, "tcp ", 4) && check->may &&
			      word_in(check->may, line + 4, strlen(line + 4));
	}
	return NULL;
}

char *suite_look(struct suite *suite, const struct group *group, const struct check *check)
{
	_cleanup_free_ char *world = witness_take(suite->rig.world),
			    *host = witness_take(suite->rig.host);
	_cleanup_free_ char *bad = NULL;
	unsigned taken = 0;

	if (*host)
		return xasprintf("the host saw: %.*s", (int)strcspn(host, "\n"), host);
	bad = first_bad(group, check, world, &taken);
	if (bad)
		return xasprintf("the world saw: %s", bad);
	if (check->most && taken > check->most)
		return xasprintf(
			"the world got %u connections, allowed are %u", taken, check->most);
	return NULL;
}

/* ---- one check ------------------------------------------------------------------------------ */

static void judge(struct result *result, const struct check *check, const struct outcome *outcome)
{
	if (!outcome->ran)
		suite_problem(result, "it did not run: %.200s", outcome->how);
	else if (check->flags & CHECK_WORKS && outcome->refused)
		suite_problem(result, "what is allowed does not work: %s (%.120s)", outcome->how,
			outcome->detail);
	else if (!(check->flags & (CHECK_WORKS | CHECK_EITHER)) && !outcome->refused)
		suite_problem(result, "got through: %s (%.120s)", outcome->how, outcome->detail);
	else if (outcome->refused && outcome->silent &&
		 !(check->flags & (CHECK_SILENT | CHECK_EITHER)))
		suite_problem(
			result, "was not refused but dropped without a word: %s", outcome->how);
}

void suite_check(
	struct suite *suite, const struct group *group, const char *box, const struct check *check)
{
	struct outcome outcome = suite_attack(suite, box, check->words);
	struct result *result = suite_add(suite, group, check->name, true, outcome.how);
	_cleanup_free_ char *seen = NULL;

	judge(result, check, &outcome);
	seen = suite_look(suite, group, check);
	if (seen)
		suite_problem(result, "%s", seen);
}

/* Something other than a query to its own resolver arrived; for checks of queries, any of them. */
static bool arrived(const char *seen, const struct check *check)
{
	bool question = !strncmp(check->words[0], "ask", 3);
	_cleanup_free_ char *copy = xstrdup(seen);
	char *rest = copy, *line;

	while ((line = strsep(&rest, "\n")))
		if (*line && !strcasestr(line, "neighbour.test") &&
			!strstr(line, "203.0.113.20:") &&
			(question ? !strncmp(line, "dns ", 4)
				  : strncmp(line, "dns ", 4) && !strstr(line, RIG_RESOLVER)))
			return true;
	return false;
}

void suite_prove(struct suite *suite, const struct group *group, const struct check *check,
	struct result *result)
{
	struct outcome outcome;
	_cleanup_free_ char *world = NULL, *host = NULL;

	if (!suite->unproven || group->no_proof ||
		check->flags & (CHECK_WORKS | CHECK_EITHER | CHECK_NO_PROOF))
		return;
	outcome = suite_unguarded(suite, check->words);
	world = witness_take(suite->rig.world);
	host = witness_take(suite->rig.host);
	if (!outcome.ran || (!arrived(world, check) && !arrived(host, check)))
		suite_problem(result,
			"proves nothing: it does not arrive from an unguarded place either (%s)",
			outcome.how);
}
