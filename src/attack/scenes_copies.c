/* scenes_copies.c - what forks and saved images inherit: addresses of names, and hosts in files
 *
 * A fork keeps the addresses it knows. None of them may later stand for another name, even if
 * the gate dies before it has reported them. An image saved from a box must not open hosts that
 * the box wrote into files of package managers. */
#include "attack/suite.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define COPY	"copy"
#define WIDENED "widened"
#define POLICY	"{\"version\":1,\"preset\":\"packages\",\"allow\":[\"*.wild.test:80\"]}"
#define SOURCES "deb http://evil-packages.test/debian stable main\n"

enum { NAMES = 8, BACK_MS = 10000 };

/* The address of name in box; "" when there is none. */
static void ask(struct suite *suite, const char *box, const char *name, char out[64])
{
	const char *words[CHECK_WORDS] = { "ask", "-", "udp", "A", name };
	struct outcome found = suite_attack(suite, box, words);

	snprintf(out, 64, "%.63s", found.ran && !found.refused ? found.detail : "");
}

/* Names that were never resolved in box must get addresses that are not in known. */
static void check_fresh(struct suite *suite, const struct group *group, const char *check,
	const char *box, const char *prefix, char known[NAMES][64])
{
	struct result *result = suite_add(suite, group, check, true, "");

	for (int i = 0; i < NAMES; i++) {
		char name[64], address[64];

		snprintf(name, sizeof name, "%s%d.wild.test", prefix, i);
		ask(suite, box, name, address);
		if (!*address)
			suite_problem(result, "%s gets no address", name);
		for (int k = 0; k < NAMES; k++)
			if (*address && !strcmp(address, known[k]))
				suite_problem(result, "%s got the address of another name, %s",
					name, address);
	}
}

/* Forks with processes, or where that is not possible, the disk only. */
static bool fork_box(struct suite *suite, const struct group *group, const char *box)
{
	const char *live[] = { "fork", box, COPY, NULL };
	const char *disk[] = { "fork", "--disk-only", box, COPY, NULL };
	struct buf out = BUF_INIT;
	int code = -1;
	bool forked = rig_box(&suite->rig, live, &out, &code, NULL) == 0 && code == 0;

	buf_done(&out);
	return forked || suite_box(suite, group, disk);
}

static void ask_all(struct suite *suite, const char *box, const char *prefix, char out[NAMES][64])
{
	for (int i = 0; i < NAMES; i++) {
		char name[64];

		snprintf(name, sizeof name, "%s%d.wild.test", prefix, i);
		ask(suite, box, name, out[i]);
	}
}

static void kill_gate(struct suite *suite)
{
	pid_t gate = rig_gate_pid(&suite->rig);

	if (gate <= 0 || kill(gate, SIGKILL) < 0)
		return;
	for (int waited = 0; waited < BACK_MS; waited += 50) {
		pid_t now = rig_gate_pid(&suite->rig);

		usleep(50 * 1000);
		if (now > 0 && now != gate)
			return;
	}
}

static void try_addresses(struct suite *suite, const struct group *group, const char *box)
{
	char known[NAMES][64];

	ask_all(suite, box, "known", known);
	if (fork_box(suite, group, box)) {
		check_fresh(suite, group, "addresses-in-a-fork", COPY, "fork", known);
		suite_remove_box(suite, COPY);
	}
	ask_all(suite, box, "late", known);
	kill_gate(suite);
	check_fresh(suite, group, "addresses-after-the-gate-was-killed", box, "after", known);
}

static void try_hosts(struct suite *suite, const struct group *group, const char *box)
{
	static const char *const evil[CHECK_WORDS] = { "ask", "-", "udp", "A",
		"evil-packages.test" };
	_cleanup_free_ char *folder = xasprintf("%s/apt", suite->rig.folder);
	_cleanup_free_ char *file = xasprintf("%s/sources.list", folder);
	_cleanup_free_ char *to = xasprintf("%s:/etc/apt", box);
	_cleanup_free_ char *policy = suite_policy_file(suite, COPY, POLICY);
	const char *put[] = { "cp", folder, to, NULL };
	const char *save[] = { "save", box, WIDENED, NULL };
	const char *make[] = { "new", COPY, "--image", WIDENED, suite_flag(suite), suite->profile,
		"--policy", policy, NULL };
	const char *forget[] = { "image", "rm", WIDENED, NULL };
	struct outcome found;

	if (dir_make_all(folder, 0755, NULL) < 0 ||
		file_write_atomic(AT_FDCWD, file, SOURCES, strlen(SOURCES), 0644, NULL) < 0 ||
		!suite_box(suite, group, put) || !suite_box(suite, group, save))
		return;
	if (suite_box(suite, group, make)) {
		found = suite_attack(suite, COPY, evil);
		if (found.ran && found.refused)
			suite_add(suite, group, "host-in-a-saved-image", true, found.how);
		else
			suite_problem(
				suite_add(suite, group, "host-in-a-saved-image", false, found.how),
				"what a box wrote opened a host to boxes of its image");
		suite_remove_box(suite, COPY);
	}
	suite_box(suite, group, forget);
}

static void scene_copies(struct suite *suite, const struct group *group, const char *box)
{
	try_hosts(suite, group, box);
	try_addresses(suite, group, box);
}

const struct group copy_groups[] = {
	{ "copies", "addresses of names in forks, hosts in saved images", POLICY, "*.wild.test",
		.alone = true, .scene = scene_copies },
	{ .name = NULL },
};
