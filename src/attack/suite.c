/* suite.c - runs groups of checks: a new box with the group's policy for each profile and group
 *
 * After each group the audit log must contain its attacks, and the neighbour must work as
 * before. */
#include "attack/suite.h"
#include "attack/attack.h"
#include "attack/witness.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/wait.h>

enum { NEIGHBOUR_WORST_MS = 1500, NEIGHBOUR_MIDDLE_MS = 100, UNGUARDED_MAX = 65536 };

static const struct group *const group_lists[] = { reach_groups, speak_groups, http_groups,
	scene_groups, disk_groups, file_groups, kernel_groups, tree_groups, share_groups,
	copy_groups };
static const char *const profiles[] = { "standard", "nested", "vm" };

static bool is_vm(const char *profile)
{
	return !strcmp(profile, "vm");
}

char *attack_groups(void)
{
	struct buf text = BUF_INIT;
	char *ret;

	for (size_t list = 0; list < ARRAY_LEN(group_lists); list++)
		for (const struct group *group = group_lists[list]; group->name; group++)
			buf_addf(&text, "%s\t%s\n", group->name, group->text);
	ret = xstrdup(buf_str(&text));
	buf_done(&text);
	return ret;
}

/* ---- results -------------------------------------------------------------------------------- */

struct result *suite_add(struct suite *suite, const struct group *group, const char *check,
	bool passed, const char *how)
{
	struct result *result;

	xgrow(suite->results, suite->count + 1);
	result = &suite->results[suite->count++];
	*result = (struct result){
		.group = group->name, .check = check, .profile = suite->profile, .passed = passed
	};
	snprintf(result->how, sizeof result->how, "%s", how);
	return result;
}

void suite_problem(struct result *result, const char *fmt, ...)
{
	size_t used = strlen(result->problem);
	va_list args;

	if (used && used + 3 < sizeof result->problem) {
		strcpy(result->problem + used, "; ");
		used += 2;
	}
	va_start(args, fmt);
	vsnprintf(result->problem + used, sizeof result->problem - used, fmt, args);
	va_end(args);
	result->passed = false;
}

/* ---- running -------------------------------------------------------------------------------- */

/* Parses the last line of box-attacker. */
static struct outcome read_outcome(struct buf *out, int code)
{
	struct outcome outcome = { .refused = true };
	const char *text = buf_str(out), *line = text;
	_cleanup_json_ json_t *json = NULL;

	for (const char *p = text; (p = strstr(p, "{\"attack\"")); p++)
		line = p;
	json = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
	if (!json) {
		snprintf(outcome.how, sizeof outcome.how, "box-attacker ended with %d: %.100s",
			code, text);
		return outcome;
	}
	outcome.ran = true;
	outcome.refused = json_is_true(json_object_get(json, "refused"));
	outcome.silent = json_is_true(json_object_get(json, "silent"));
	snprintf(outcome.how, sizeof outcome.how, "%s",
		json_string_value(json_object_get(json, "how")));
	snprintf(outcome.detail, sizeof outcome.detail, "%s",
		json_string_value(json_object_get(json, "detail")));
	return outcome;
}

struct outcome suite_attack(struct suite *suite, const char *box, const char *const *words)
{
	const char *all[CHECK_WORDS + 5] = { "exec", box, "--", "/bin/box-attacker" };
	struct buf out = BUF_INIT;
	struct outcome outcome = { .refused = true };
	struct err err = ERR_INIT;
	int code = -1;

	for (size_t i = 0; i < CHECK_WORDS && words[i]; i++)
		all[4 + i] = words[i];
	if (rig_box(&suite->rig, all, &out, &code, &err) < 0)
		snprintf(outcome.how, sizeof outcome.how, "%s", err.message);
	else
		outcome = read_outcome(&out, code);
	buf_done(&out);
	return outcome;
}

static void __attribute__((noreturn))
run_unguarded(const struct suite *suite, const char *const *words, int out)
{
	_cleanup_free_ char *program =
		xasprintf("%s/images/attackimag/rootfs/bin/box-attacker", suite->rig.folder);
	_cleanup_free_ char *resolver = xasprintf("%s/resolv.conf", suite->rig.folder);
	const char *all[CHECK_WORDS + 2] = { "box-attacker" };

	for (size_t i = 0; i < CHECK_WORDS && words[i]; i++)
		all[1 + i] = words[i];
	if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		mount(resolver, "/etc/resolv.conf", NULL, MS_BIND, NULL) == 0 && dup2(out, 1) == 1)
		execv(program, (char *const *)all);
	_exit(127);
}

struct outcome suite_unguarded(struct suite *suite, const char *const *words)
{
	struct buf text = BUF_INIT;
	struct outcome outcome = { .refused = true };
	int ends[2], status = 0;
	ssize_t got;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return outcome;
	pid = fork();
	if (pid == 0)
		run_unguarded(suite, words, ends[1]);
	close(ends[1]);
	while (pid > 0 && text.len < UNGUARDED_MAX &&
		(got = read(ends[0], buf_room(&text, 4096), 4096)) > 0)
		buf_grew(&text, (size_t)got);
	close(ends[0]);
	if (pid > 0)
		waitpid(pid, &status, 0);
	outcome = read_outcome(&text, status);
	buf_done(&text);
	return outcome;
}

bool suite_box(struct suite *suite, const struct group *group, const char *const *words)
{
	struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	int code = -1;
	bool good = rig_box(&suite->rig, words, &out, &code, &err) == 0 && code == 0;

	if (!good)
		suite_problem(suite_add(suite, group, "set-up", false, ""),
			"'box %s %s': %s %.200s", words[0], words[1] ? words[1] : "", err.message,
			buf_str(&out));
	buf_done(&out);
	return good;
}

char *suite_policy_file(struct suite *suite, const char *name, const char *policy)
{
	char *path = xasprintf("%s/policy-%s.json", suite->rig.folder, name);

	if (file_write_atomic(AT_FDCWD, path, policy, strlen(policy), 0644, NULL) < 0)
		fprintf(stderr, "box: cannot write %s\n", path);
	return path;
}

bool suite_is_vm(const struct suite *suite)
{
	return is_vm(suite->profile);
}

const char *suite_flag(const struct suite *suite)
{
	return is_vm(suite->profile) ? "--driver" : "--profile";
}

bool suite_new_box(
	struct suite *suite, const struct group *group, const char *name, const char *policy)
{
	_cleanup_free_ char *file = suite_policy_file(suite, name, policy);
	const char *words[] = { "new", name, "--image", RIG_IMAGE, suite_flag(suite),
		suite->profile, "--policy", file, NULL };

	return suite_box(suite, group, words);
}

void suite_remove_box(struct suite *suite, const char *name)
{
	const char *words[] = { "rm", "-f", name, NULL };
	struct buf out = BUF_INIT;
	int code;

	rig_box(&suite->rig, words, &out, &code, NULL);
	buf_done(&out);
}

/* ---- groups --------------------------------------------------------------------------------- */

static bool is_wanted(const struct suite *suite, const struct check *check)
{
	if (check->flags & CHECK_STANDARD)
		return strcmp(suite->profile, "nested") != 0;
	return !(check->flags & CHECK_NESTED) || !strcmp(suite->profile, "nested");
}

static void check_log(struct suite *suite, const struct group *group, const char *box, size_t from)
{
	_cleanup_free_ char *lines = audit_look(&suite->rig, box);
	size_t at = from;

	for (size_t i = 0; i < group->count; i++) {
		const struct check *check = &group->checks[i];
		const char *word = check->log ? check->log : check->words[1];
		bool any = check->flags & (CHECK_LOG_ANY | CHECK_WORKS | CHECK_EITHER);

		if (!is_wanted(suite, check))
			continue;
		if (at < suite->count && !(check->flags & CHECK_NO_LOG) &&
			!audit_has(lines, word, any))
			suite_problem(
				&suite->results[at], "the audit log does not tell of '%s'", word);
		at++;
	}
}

static void check_neighbour(struct suite *suite, const struct group *group)
{
	struct neighbour_look look = neighbour_look(suite->neighbour);
	struct result *result;
	char how[HOW_SIZE];

	snprintf(how, sizeof how, "%u visits, middle %.1f ms, worst %.1f ms", look.visits,
		look.middle_ms, look.worst_ms);
	result = suite_add(suite, group, "neighbour", true, how);
	if (!look.visits)
		suite_problem(result, "the neighbour cannot do anything any more");
	else if (look.failed)
		suite_problem(result, "%u of %u visits failed: %.100s", look.failed, look.visits,
			look.first_failure);
	else if (look.worst_ms > NEIGHBOUR_WORST_MS || look.middle_ms > NEIGHBOUR_MIDDLE_MS)
		suite_problem(result, "its visits took too long");
}

static void run_group(struct suite *suite, const struct group *group)
{
	_cleanup_free_ char *box = xasprintf("%s-%s", group->name, suite->profile);
	int64_t start = clock_mono_us();
	size_t from = suite->count, checks_from;

	if (is_vm(suite->profile) && group->not_vm) {
		suite_add(suite, group, "not-run", true, group->not_vm);
		report_group(suite, group, from, 0);
		return;
	}
	free(witness_take(suite->rig.world));
	free(witness_take(suite->rig.host));
	if (suite_new_box(suite, group, box, group->policy)) {
		checks_from = suite->count;
		for (size_t i = 0; i < group->count && !rig_is_stopping(); i++) {
			if (!is_wanted(suite, &group->checks[i]))
				continue;
			suite_check(suite, group, box, &group->checks[i]);
			suite_prove(
				suite, group, &group->checks[i], &suite->results[suite->count - 1]);
		}
		if (!rig_is_stopping())
			check_log(suite, group, box, checks_from);
		if (group->scene && !rig_is_stopping())
			group->scene(suite, group, box);
		suite_remove_box(suite, box);
	}
	if (suite->neighbour && !group->alone && !rig_is_stopping())
		check_neighbour(suite, group);
	report_group(suite, group, from, (double)(clock_mono_us() - start) / 1e6);
}

/* ---- the run -------------------------------------------------------------------------------- */

static int run_profile(struct suite *suite, const struct attack_options *options,
	const char *profile, struct err *err)
{
	suite->profile = profile;
	for (size_t list = 0; list < ARRAY_LEN(group_lists); list++)
		for (const struct group *group = group_lists[list];
			group->name && !rig_is_stopping(); group++) {
			if (options->group && strcmp(options->group, group->name))
				continue;
			if (group->alone) {
				neighbour_stop(&suite->rig, steal_ptr(&suite->neighbour));
			} else if (!suite->neighbour &&
				   neighbour_start(&suite->rig, &suite->neighbour, err) < 0) {
				return rig_is_stopping()
					       ? err_set(err, ERR_CANCELLED, "interrupted")
					       : -1;
			}
			run_group(suite, group);
		}
	suite->unproven = false;
	return rig_is_stopping() ? err_set(err, ERR_CANCELLED, "interrupted") : 0;
}

static bool is_group(const char *name)
{
	for (size_t list = 0; list < ARRAY_LEN(group_lists); list++)
		for (const struct group *group = group_lists[list]; group->name; group++)
			if (!strcmp(group->name, name))
				return true;
	return false;
}

static int check_options(const struct attack_options *options, struct err *err)
{
	if (geteuid() != 0)
		return err_set(err, ERR_FORBIDDEN,
			"an attack needs root: it makes network namespaces and a daemon");
	if (options->group && !is_group(options->group))
		return err_set(err, ERR_INVALID, "there is no group '%.40s'", options->group);
	if (options->profile && strcmp(options->profile, profiles[0]) &&
		strcmp(options->profile, profiles[1]))
		return err_set(err, ERR_INVALID, "profile '%.40s' must be standard or nested",
			options->profile);
	if (options->driver && !is_vm(options->driver) && strcmp(options->driver, "ns"))
		return err_set(
			err, ERR_INVALID, "driver '%.40s' must be ns or vm", options->driver);
	if (options->profile && options->driver && is_vm(options->driver))
		return err_set(err, ERR_INVALID, "boxes of driver vm have no profiles");
	return 0;
}

/* At the end of the run: no line of the log was lost or changed. */
static void check_chain(struct suite *suite)
{
	static const struct group group = { .name = "audit" };
	static const char *const words[] = { "audit", "--verify", NULL };
	struct buf out = BUF_INIT;
	int code = -1;

	rig_box(&suite->rig, words, &out, &code, NULL);
	if (code)
		suite_problem(suite_add(suite, &group, "chain", false, ""),
			"'box audit --verify' ended with %d: %.200s", code, buf_str(&out));
	else
		suite_add(suite, &group, "chain", true, "every line follows the one before");
	report_group(suite, &group, suite->count - 1, 0);
	buf_done(&out);
}

static int run_all(struct suite *suite, const struct attack_options *options, struct err *err)
{
	if (rig_start(&suite->rig, err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(profiles); i++)
		if (is_vm(profiles[i]) == (options->driver && is_vm(options->driver)) &&
			(!options->profile || !strcmp(options->profile, profiles[i])))
			if (run_profile(suite, options, profiles[i], err) < 0)
				return -1;
	suite->profile = "";
	check_chain(suite);
	return 0;
}

int attack_run(const struct attack_options *options, struct err *err)
{
	struct suite suite = { .unproven = true, .quiet = options->quiet, .json = options->json };
	int64_t start = clock_mono_us();
	struct err closing = ERR_INIT;
	int status;

	if (check_options(options, err) < 0 || rig_open(&suite.rig, err) < 0)
		return -1;
	suite.rig.keep = options->keep;
	status = run_all(&suite, options, err);
	neighbour_stop(&suite.rig, suite.neighbour);
	if (options->keep && suite.rig.folder)
		fprintf(stderr, "box: left: BOX_HOME=%s/home BOX_RUN=%s/run\n", suite.rig.folder,
			suite.rig.folder);
	if (rig_close(&suite.rig, &closing) < 0 && status == 0) {
		*err = closing;
		status = -1;
	}
	if (status == 0) {
		report_end(&suite, (double)(clock_mono_us() - start) / 1e6);
		for (size_t i = 0; i < suite.count; i++)
			status |= !suite.results[i].passed;
	}
	for (size_t i = 0; i < suite.count; i++)
		free(suite.results[i].own_check);
	free(suite.results);
	return status;
}
