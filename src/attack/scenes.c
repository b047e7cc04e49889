/* scenes.c - attacks of several steps: other boxes, a policy that changes during a connection,
 * floods, a gate and a daemon that are killed */
#include "attack/suite.h"
#include "attack/witness.h"
#include "base/alloc.h"
#include "base/clock.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { COME_MS = 4000, CUT_MS = 3000, DEAD_MS = 500, BACK_MS = 10000 };

#define WIDE                                                                                   \
	"{\"version\":1,\"preset\":\"none\",\"allow\":[\"allowed.test:80,443,8080\",\"*.wild." \
	"test:80\","                                                                           \
	"\"198.51.100.0/24:8080\",{\"cidr\":\"198.51.100.0/"                                   \
	"24\",\"ports\":9000,\"protocol\":\"udp\"}]}"
#define LIMITED                                                                           \
	"{\"version\":1,\"preset\":\"none\",\"limits\":{\"connections\":100},\"allow\":[" \
	"\"allowed.test:80,443,8080\","                                                   \
	"\"*.wild.test:80\",{\"cidr\":\"198.51.100.0/24\",\"ports\":9000,\"protocol\":\"udp\"}]}"
#define NOTHING "{\"version\":1,\"preset\":\"none\"}"
#define PLACES                                                                  \
	"203.0.113.10:80 203.0.113.10:8080 203.0.113.10:443 [2001:db8::10]:80 " \
	"[2001:db8::10]:8080 [2001:db8::10]:443"

#define GET "GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"

static const struct check anything = {
	.name = "", .may = PLACES " 198.51.100.7:8080 198.51.100.7:9000", .never = "nothing"
};
static const struct check nothing = { .name = "" };

static bool set_policy(
	struct suite *suite, const struct group *group, const char *box, const char *policy)
{
	_cleanup_free_ char *file = suite_policy_file(suite, box, policy);
	const char *words[] = { "policy", "set", box, file, NULL };

	return suite_box(suite, group, words);
}

/* ---- other boxes ---------------------------------------------------------------------------- */

#define VICTIM "victim"

static const struct check other_boxes[] = {
	{ .name = "own-address-of-the-other",
		.flags = CHECK_NO_LOG | CHECK_NO_PROOF,
		.words = { "connect", "198.18.0.2", "8080" } },
	{ .name = "own-address-of-the-other-v6",
		.flags = CHECK_NO_LOG | CHECK_NO_PROOF,
		.words = { "connect", "fd62:6f78:7961:7264::2", "8080" } },
	{ .name = "named-by-one-side",
		.flags = CHECK_NO_PROOF,
		.words = { "connect", VICTIM ".box", "8080" } },
	{ .name = "named-by-one-side-other-port",
		.flags = CHECK_NO_PROOF,
		.words = { "connect", VICTIM ".box", "22" } },
	{ .name = "not-named",
		.flags = CHECK_NO_PROOF,
		.words = { "connect", "neighbour.box", "8080" } },
	{ .name = "its-url",
		.flags = CHECK_NO_PROOF,
		.words = { "connect", "8080-" VICTIM ".localhost", "30001" } },
	{ .name = "abstract-socket",
		.flags = CHECK_NO_LOG | CHECK_NO_PROOF,
		.words = { "unix", "box-attack-victim" } },
};

/* The addresses of the victim's names mean nothing in this box, or something else. */
static void try_its_names(struct suite *suite, const struct group *group, const char *box)
{
	const char *ask[CHECK_WORDS] = { "ask", "-", "udp", "A", "secret.test" };
	struct outcome found = suite_attack(suite, VICTIM, ask);
	struct check check = { .name = "synthetic-address-of-the-other",
		.flags = CHECK_NO_PROOF,
		.words = { "send", found.detail, "80", "1",
			"GET /evil HTTP/1.1\\r\\nHost: secret.test\\r\\n\\r\\n" } };

	if (!found.ran || found.refused) {
		suite_problem(suite_add(suite, group, check.name, false, found.how),
			"the victim itself gets no address");
		return;
	}
	suite_check(suite, group, box, &check);
}

static void nobody_came(struct suite *suite, const struct group *group, struct stay *listener)
{
	json_t *line = stay_line(listener, 50);

	if (line)
		suite_problem(suite_add(suite, group, "nobody-came", false, ""),
			"somebody reached the other box");
	else
		suite_add(suite, group, "nobody-came", true, "its port was never reached");
	json_decref(line);
}

/* Both policies name the other box: it works; then one of them no longer does. */
static void try_both_sides(struct suite *suite, const struct group *group, const char *box)
{
	static const struct check works = { .name = "named-by-both-sides",
		.flags = CHECK_WORKS,
		.words = { "connect", VICTIM ".box", "8080" } };
	static const struct check over = { .name = "no-longer-named",
		.flags = CHECK_NO_PROOF,
		.words = { "connect", VICTIM ".box", "8080" } };
	_cleanup_free_ char *both =
		xasprintf("{\"version\":1,\"preset\":\"none\",\"boxes\":[\"%s\"]}", box);

	if (!set_policy(suite, group, VICTIM, both))
		return;
	suite_check(suite, group, box, &works);
	if (set_policy(suite, group, VICTIM, NOTHING))
		suite_check(suite, group, box, &over);
}

static void scene_boxes(struct suite *suite, const struct group *group, const char *box)
{
	static const char *const listen[CHECK_WORDS] = { "listen", "8080" };
	struct stay listener = { .fd = -1 };
	json_t *line;

	if (!suite_new_box(suite, group, VICTIM,
		    "{\"version\":1,\"preset\":\"none\",\"allow\":[\"secret.test:80\"]}"))
		return;
	if (stay_start(&suite->rig, VICTIM, listen, &listener) &&
		(line = stay_line(&listener, COME_MS))) {
		json_decref(line);
		for (size_t i = 0; i < ARRAY_LEN(other_boxes); i++)
			suite_check(suite, group, box, &other_boxes[i]);
		try_its_names(suite, group, box);
		nobody_came(suite, group, &listener);
		try_both_sides(suite, group, box);
	} else {
		suite_problem(suite_add(suite, group, "set-up", false, ""),
			"the other box does not listen");
	}
	stay_stop(&listener);
	suite_remove_box(suite, VICTIM);
}

/* ---- a policy that changes ------------------------------------------------------------------ */

static const struct held {
	const char *name;
	const char *words[CHECK_WORDS];
} holds[] = {
	{ "cut-tcp-by-name", { "hold", "allowed.test", "8080", "tcp" } },
	{ "cut-http-kept-alive", { "hold", "allowed.test", "80", "http" } },
	{ "cut-tcp-by-range", { "hold", "198.51.100.7", "8080", "tcp" } },
	{ "cut-udp-by-range", { "hold", "198.51.100.7", "9000", "udp" } },
};

static void check_cut(struct suite *suite, const struct group *group, const struct held *held,
	struct stay *stay, int64_t since)
{
	json_t *line = stay_line(stay, CUT_MS);
	double ms = (double)(clock_mono_us() - since) / 1000;
	char how[HOW_SIZE];
	struct result *result;

	snprintf(how, sizeof how, "cut within %.0f ms: %.100s", ms,
		line ? json_string_value(json_object_get(line, "how")) : "");
	result = suite_add(suite, group, held->name, true, how);
	if (!line)
		suite_problem(result, "still there %d ms after the policy forbade it", CUT_MS);
	else if (!json_is_true(json_object_get(line, "refused")))
		suite_problem(result, "still there");
	json_decref(line);
}

static void scene_change(struct suite *suite, const struct group *group, const char *box)
{
	static const char *const ask[CHECK_WORDS] = { "ask", "-", "udp", "A", "allowed.test" };
	struct stay stays[ARRAY_LEN(holds)];
	struct outcome known = suite_attack(suite, box, ask);
	const struct check stale = { .name = "address-of-a-name-no-longer-allowed",
		.words = { "connect", known.detail, "8080" } };
	const struct check again = { .name = "name-no-longer-allowed",
		.words = { "connect", "allowed.test", "8080" } };
	_cleanup_free_ char *seen = NULL, *lines = NULL;
	bool ready = true;
	int64_t since;

	for (size_t i = 0; i < ARRAY_LEN(holds); i++) {
		json_t *line = NULL;

		stays[i] = (struct stay){ .fd = -1 };
		if (stay_start(&suite->rig, box, holds[i].words, &stays[i]))
			line = stay_line(&stays[i], COME_MS);
		if (!line || !json_is_true(json_object_get(line, "held"))) {
			suite_problem(suite_add(suite, group, holds[i].name, false, ""),
				"it cannot be opened in the first place");
			ready = false;
		}
		json_decref(line);
	}
	free(suite_look(suite, group, &anything));
	since = clock_mono_us();
	if (ready && set_policy(suite, group, box, NOTHING)) {
		for (size_t i = 0; i < ARRAY_LEN(holds); i++)
			check_cut(suite, group, &holds[i], &stays[i], since);
		free(suite_look(suite, group, &anything));
		suite_check(suite, group, box, &again);
		suite_check(suite, group, box, &stale);
		usleep(100 * 1000);
		seen = suite_look(suite, group, &nothing);
		lines = audit_look(&suite->rig, box);
		if (seen)
			suite_problem(
				suite_add(suite, group, "nothing-arrives-any-more", false, ""),
				"%s", seen);
		suite_add(
			suite, group, "change-is-logged", audit_has(lines, "\"policy\"", true), "");
	}
	for (size_t i = 0; i < ARRAY_LEN(holds); i++)
		stay_stop(&stays[i]);
}

/* ---- floods --------------------------------------------------------------------------------- */

#define FLOOD(label, ...)                                                                        \
	{                                                                                        \
		.name = label, .flags = CHECK_NO_PROOF | CHECK_EITHER | CHECK_NO_LOG, .words = { \
			"flood",                                                                 \
			__VA_ARGS__                                                              \
		}                                                                                \
	}

static const struct check floods[] = {
	FLOOD("questions-denied", "questions", "198.18.0.1", "evil.test", "60000"),
	FLOOD("questions-allowed", "questions", "198.18.0.1", "wild.test", "60000"),
	FLOOD("resolver-connections", "idle", "198.18.0.1", "53", "2000"),
	FLOOD("refused-connections", "knock", "10.0.0.1", "22", "40000"),
	FLOOD("refused-datagrams", "knock-udp", "10.0.0.1", "9000", "40000"),
	{ .name = "held-connections",
		.flags = CHECK_EITHER | CHECK_NO_LOG,
		.words = { "flood", "hold", "allowed.test", "8080", "3000" },
		.may = PLACES,
		.most = 100 },
	{ .name = "half-said-hellos",
		.flags = CHECK_EITHER | CHECK_NO_LOG,
		.words = { "flood", "slow", "allowed.test", "443", "3000" },
		.may = PLACES,
		.most = 1 },
	{ .name = "datagram-flows",
		.flags = CHECK_EITHER | CHECK_NO_LOG,
		.words = { "flood", "flows", "198.51.100.7", "9000", "3000" },
		.may = "198.51.100.7:9000" },
};

static void scene_floods(struct suite *suite, const struct group *group, const char *box)
{
	pid_t daemon = suite->rig.daemon, gate = rig_gate_pid(&suite->rig);
	_cleanup_free_ char *lines = NULL;

	for (size_t i = 0; i < ARRAY_LEN(floods) && !rig_is_stopping(); i++)
		suite_check(suite, group, box, &floods[i]);
	lines = audit_look(&suite->rig, box);
	suite_add(suite, group, "floods-are-logged", audit_has(lines, "refused", false), "");
	if (!gate || rig_gate_pid(&suite->rig) != gate || kill(daemon, 0) < 0)
		suite_problem(suite_add(suite, group, "gate-and-daemon-live", false, ""),
			"the gate was %d and is %d", (int)gate, (int)rig_gate_pid(&suite->rig));
	else
		suite_add(suite, group, "gate-and-daemon-live", true, "");
}

/* ---- closed while gate or daemon are down --------------------------------------------------- */

/* Counts the successful visits that begin within the next ms milliseconds. */
static unsigned count_good(struct stay *stay, int ms)
{
	int64_t now = clock_wall_us() / 1000, deadline = clock_mono_us() + ms * 1000LL;
	unsigned good = 0;

	while (clock_mono_us() < deadline) {
		json_t *line = stay_line(stay, (int)((deadline - clock_mono_us()) / 1000) + 1);

		if (!line)
			break;
		good += json_integer_value(json_object_get(line, "at")) >= now &&
			json_is_true(json_object_get(line, "ok"));
		json_decref(line);
	}
	return good;
}

static bool comes_back(struct stay *stay)
{
	for (int64_t deadline = clock_mono_us() + BACK_MS * 1000LL; clock_mono_us() < deadline;)
		if (count_good(stay, 200))
			return true;
	return false;
}

static void with_dead_daemon(struct suite *suite, const struct group *group, struct stay *visits)
{
	struct err err = ERR_INIT;
	char *seen;

	rig_kill_daemon(&suite->rig);
	usleep(100 * 1000); /* lets earlier lines arrive */
	free(suite_look(suite, group, &anything));
	usleep(DEAD_MS * 1000);
	seen = suite_look(suite, group, &nothing);
	if (seen)
		suite_problem(suite_add(suite, group, "dead-daemon", false, ""), "%s", seen);
	else
		suite_add(suite, group, "dead-daemon", true, "nothing arrived");
	free(seen);
	if (rig_restart(&suite->rig, &err) < 0)
		suite_problem(
			suite_add(suite, group, "daemon-again", false, ""), "%.300s", err.message);
	else
		suite_add(suite, group, "works-again-after-daemon", comes_back(visits), "");
}

static void with_dead_gate(struct suite *suite, const struct group *group, struct stay *visits)
{
	pid_t gate = rig_gate_pid(&suite->rig);
	bool back;

	if (!gate || kill(gate, SIGKILL) < 0) {
		suite_problem(suite_add(suite, group, "works-again-after-gate", false, ""),
			"there is no gate");
		return;
	}
	usleep(50 * 1000);
	back = comes_back(visits);
	suite_add(suite, group, "works-again-after-gate", back && rig_gate_pid(&suite->rig) != gate,
		"");
}

static void scene_closed(struct suite *suite, const struct group *group, const char *box)
{
	static const char *const visit[CHECK_WORDS] = { "neighbour", "allowed.test", "80", "15" };
	static const char *const knock[CHECK_WORDS] = { "neighbour", "10.0.0.1", "80", "15" };
	static const struct check works = { .name = "works-first",
		.flags = CHECK_WORKS,
		.words = { "send", "allowed.test", "80", "1", GET },
		.may = PLACES };
	struct stay visits = { .fd = -1 }, knocks = { .fd = -1 };

	suite_check(suite, group, box, &works);
	if (stay_start(&suite->rig, box, visit, &visits) &&
		stay_start(&suite->rig, box, knock, &knocks) && comes_back(&visits)) {
		with_dead_gate(suite, group, &visits);
		with_dead_daemon(suite, group, &visits);
		if (count_good(&knocks, 100))
			suite_problem(suite_add(suite, group, "refused-throughout", false, ""),
				"a private address was reached");
		else
			suite_add(suite, group, "refused-throughout", true, "");
	} else {
		suite_problem(suite_add(suite, group, "set-up", false, ""),
			"visits do not work in the first place");
	}
	stay_stop(&visits);
	stay_stop(&knocks);
	free(suite_look(suite, group, &anything));
}

const struct group scene_groups[] = {
	{ "boxes", "other boxes: addresses, names, local sockets",
		"{\"version\":1,\"preset\":\"none\",\"boxes\":[\"" VICTIM ":8080\"]}", "",
		.scene = scene_boxes },
	{ "change", "connections across a change of policy", WIDE, "allowed.test",
		.scene = scene_change },
	{ "exhaustion", "floods of queries, connections, incomplete hellos", LIMITED,
		"allowed.test *.wild.test", .scene = scene_floods },
	{ "closed", "gate or daemon killed: everything is closed", WIDE, "allowed.test",
		.alone = true, .scene = scene_closed },
	{ .name = NULL },
};
