/* policy_text.c - see policy_text.h
 *
 * Text is written from the normal form: rules that have no more than a destination, ports and a
 * protocol become one line, as on the command line; others a map. Everything that YAML might read
 * in another way is quoted. */
#include "cli/policy_text.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/table.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* ---- writing -------------------------------------------------------------------------------- */

static bool is_plain(const char *text, const char *also)
{
	if (!isalnum((unsigned char)text[0]) || text[strlen(text) - 1] == ':' ||
		!strcmp(text, "null"))
		return false;
	for (const char *p = text; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("._/-", *p) && !strchr(also, *p))
			return false;
	return true;
}

static void write_text(struct buf *out, const char *text, const char *also)
{
	_cleanup_json_ json_t *value = NULL;
	_cleanup_free_ char *quoted = NULL;

	if (is_plain(text, also)) {
		buf_add_str(out, text);
		return;
	}
	value = json_string(text);
	quoted = json_dumps(value, JSON_ENCODE_ANY);
	buf_add_str(out, quoted ? quoted : "\"\"");
}

/* Numbers in the largest unit that divides them. */
static void write_number(struct buf *out, json_int_t number)
{
	static const char units[] = "TGMK";

	for (unsigned i = 0; i < sizeof units - 1; i++) {
		json_int_t unit = (json_int_t)1 << 10 * (4 - i);

		if (number && number % unit == 0) {
			buf_addf(out, "%lld%c", (long long)(number / unit), units[i]);
			return;
		}
	}
	buf_addf(out, "%lld", (long long)number);
}

/* A list or a single value, on one line. */
static void write_inline(struct buf *out, json_t *value)
{
	json_t *item;
	size_t i;

	if (json_is_string(value))
		return write_text(out, json_string_value(value), "");
	if (json_is_integer(value)) {
		buf_addf(out, "%lld", (long long)json_integer_value(value));
		return;
	}
	buf_add_str(out, "[");
	json_array_foreach (value, i, item) {
		buf_add_str(out, i ? ", " : "");
		write_inline(out, item);
	}
	buf_add_str(out, "]");
}

/* The rule as one line; false when it has more fields. */
static bool rule_line(json_t *rule, bool deny, struct buf *out)
{
	json_t *ports = json_object_get(rule, "ports"),
	       *protocol = json_object_get(rule, "protocol");
	const char *cidr = json_str(rule, "cidr"), *name = json_str(rule, "name");
	bool six = strchr(cidr, ':') && json_array_size(ports), both = json_is_array(protocol);
	json_t *value;
	const char *key;
	size_t i;

	json_object_foreach (rule, key, value)
		if (strcmp(key, "name") && strcmp(key, "cidr") && strcmp(key, "ports") &&
			strcmp(key, "protocol"))
			return false;
	if (both && !deny)
		return false;
	buf_addf(out, "%s%s%s", six ? "[" : "", *name ? name : cidr, six ? "]" : "");
	json_array_foreach (ports, i, value) {
		buf_add_str(out, i ? "," : ":");
		if (json_is_string(value))
			buf_add_str(out, json_string_value(value));
		else
			buf_addf(out, "%lld", (long long)json_integer_value(value));
	}
	if (!both && (deny || strcmp(json_string_value(protocol), "tcp")))
		buf_addf(out, "/%s", json_string_value(protocol));
	return true;
}

static void write_rule(struct buf *out, json_t *rule, bool deny)
{
	const char *between = "  - ", *key;
	struct buf line = BUF_INIT;
	json_t *value;

	if (rule_line(rule, deny, &line)) {
		buf_add_str(out, between);
		write_text(out, buf_str(&line), ":,");
		buf_add_str(out, "\n");
		buf_done(&line);
		return;
	}
	buf_done(&line);
	json_object_foreach (rule, key, value) {
		buf_addf(out, "%s%s: ", between, key);
		if (!strcmp(key, "rate") || !strcmp(key, "bytes"))
			write_number(out, json_integer_value(value));
		else
			write_inline(out, value);
		buf_add_str(out, "\n");
		between = "    ";
	}
}

static void write_rules(struct buf *out, json_t *normal, const char *key)
{
	json_t *list = json_object_get(normal, key), *rule;
	size_t i;

	if (list)
		buf_addf(out, "%s:\n", key);
	json_array_foreach (list, i, rule)
		write_rule(out, rule, !strcmp(key, "deny"));
}

static void write_map(struct buf *out, json_t *normal, const char *name)
{
	json_t *map = json_object_get(normal, name), *value;
	const char *key;

	if (map)
		buf_addf(out, "%s:\n", name);
	json_object_foreach (map, key, value) {
		buf_addf(out, "  %s: ", key);
		if (json_is_integer(value) && strcmp(key, "connections"))
			write_number(out, json_integer_value(value));
		else
			write_inline(out, value);
		buf_add_str(out, "\n");
	}
}

char *policy_yaml(json_t *normal)
{
	struct buf out = BUF_INIT;
	char *text;

	buf_addf(&out, "version: %d\npreset: %s\n", POLICY_VERSION, json_str(normal, "preset"));
	write_rules(&out, normal, "allow");
	write_rules(&out, normal, "deny");
	if (json_object_get(normal, "boxes")) {
		buf_add_str(&out, "boxes: ");
		write_inline(&out, json_object_get(normal, "boxes"));
		buf_add_str(&out, "\n");
	}
	write_map(&out, normal, "limits");
	write_map(&out, normal, "dns");
	text = xstrdup(buf_str(&out));
	buf_done(&out);
	return text;
}

/* ---- reading -------------------------------------------------------------------------------- */

static int read_stdin(char **ret, struct err *err)
{
	struct buf text = BUF_INIT;
	ssize_t got;

	do {
		got = read(STDIN_FILENO, buf_room(&text, 4096), 4096);
		if (got > 0)
			buf_grew(&text, (size_t)got);
	} while (text.len <= POLICY_SIZE_MAX && (got > 0 || (got < 0 && errno == EINTR)));
	*ret = xstrdup(buf_str(&text));
	buf_done(&text);
	return got < 0 ? err_sys(err, errno, "read stdin") : 0;
}

int policy_read_text(const char *file, char **ret, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;

	if (!strcmp(file, "-"))
		return read_stdin(ret, err);
	if (file_read(AT_FDCWD, file, POLICY_SIZE_MAX, &text, &len, err) < 0)
		return -1;
	if (strlen(text) != len)
		return err_set(err, ERR_INVALID, "'%s' is not a text", file);
	*ret = steal_ptr(&text);
	return 0;
}

void policy_print_problems(const char *file, const struct policy_report *report, FILE *out)
{
	for (size_t i = 0; i < report->count; i++) {
		const struct policy_problem *problem = &report->problems[i];
		_cleanup_free_ char *text = text_printable(problem->text);

		fprintf(out, "%s:%u:%u: %s: %s\n", strcmp(file, "-") ? file : "stdin",
			problem->line, problem->column, problem->is_error ? "error" : "warning",
			text);
	}
}

int policy_read(
	struct cli *cli, const char *file, const char *text, struct policy **ret, struct err *err)
{
	struct policy_report report = POLICY_REPORT_INIT;
	int status = policy_parse(text, strlen(text), ret, &report, err);

	if (status < 0 || !cli->quiet)
		policy_print_problems(file, &report, stderr);
	if (status < 0)
		err_set(err, ERR_INVALID, "%zu error%s in the policy", report.errors,
			report.errors == 1 ? "" : "s");
	policy_report_done(&report);
	return status;
}

/* ---- flags ---------------------------------------------------------------------------------- */

static int add_allow(struct policy *policy, const char *text, struct err *err)
{
	return policy_add_flag(policy, false, text, err);
}

static int add_deny(struct policy *policy, const char *text, struct err *err)
{
	return policy_add_flag(policy, true, text, err);
}

static const struct {
	const char *name;
	int (*add)(struct policy *policy, const char *text, struct err *err);
} rule_flags[] = {
	{ "allow", add_allow },
	{ "deny", add_deny },
	{ "peer", policy_add_box },
};

bool policy_has_flags(const struct cli *cli)
{
	return cli_has(cli, "net") || cli_has(cli, "allow") || cli_has(cli, "deny") ||
	       cli_has(cli, "peer");
}

int policy_read_flags(
	struct cli *cli, const struct policy *base, struct policy **ret, struct err *err)
{
	_cleanup_(policy_freep) struct policy *more = policy_new(), *nothing = policy_new();
	const char *preset = cli_get(cli, "net"), *given;

	if (preset) {
		if (policy_preset_parse(preset, &more->preset, err) < 0)
			return err_wrap(err, "--net");
		more->set |= POLICY_KEY_PRESET;
	}
	for (size_t i = 0; i < ARRAY_LEN(rule_flags); i++)
		for (size_t k = 0; (given = cli_nth(cli, rule_flags[i].name, k)); k++)
			if (rule_flags[i].add(more, given, err) < 0)
				return err_wrap(err, "--%s %.80s", rule_flags[i].name, given);
	return policy_merge(base ? base : nothing, more, ret, err);
}

/* --allow alone adds to the default policy. */
static int read_default(struct cli *cli, struct policy **ret, struct err *err)
{
	_cleanup_json_ json_t *answer = NULL;
	_cleanup_free_ char *text = NULL;

	if (client_get(cli->client, "/v1/policy/presets", &answer, err) < 0)
		return -1;
	text = json_text(json_object_get(answer, "default"));
	return policy_parse(text, strlen(text), ret, NULL, err);
}

int policy_read_new(struct cli *cli, json_t *body, struct err *err)
{
	_cleanup_(policy_freep) struct policy *base = NULL, *whole = NULL;
	const char *file = cli_get(cli, "policy");
	_cleanup_free_ char *text = NULL;

	if (!file && !policy_has_flags(cli))
		return 0;
	if (file && (policy_read_text(file, &text, err) < 0 ||
			    policy_read(cli, file, text, &base, err) < 0))
		return -1;
	if (!file && !cli_has(cli, "net") && read_default(cli, &base, err) < 0)
		return -1;
	if (policy_read_flags(cli, base, &whole, err) < 0)
		return -1;
	json_object_set_new(body, "policy", policy_json(whole));
	return 0;
}

static int read_parent(struct cli *cli, const char *box, struct policy **ret, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/policy", box), *text = NULL;
	_cleanup_json_ json_t *answer = NULL;

	if (client_get(cli->client, path, &answer, err) < 0)
		return -1;
	text = json_text(json_object_get(answer, "policy"));
	return policy_parse(text, strlen(text), ret, NULL, err);
}

/* A file of that name wins over a preset. */
static int read_file_or_preset(
	struct cli *cli, const char *given, struct policy **ret, struct err *err)
{
	_cleanup_(policy_freep) struct policy *policy = policy_new();
	_cleanup_free_ char *text = NULL;

	if (access(given, F_OK) < 0 && policy_preset_parse(given, &policy->preset, NULL) == 0) {
		policy->set |= POLICY_KEY_PRESET;
		*ret = steal_ptr(&policy);
		return 0;
	}
	if (policy_read_text(given, &text, err) < 0)
		return -1;
	return policy_read(cli, given, text, ret, err);
}

int policy_read_fork(struct cli *cli, const char *box, json_t *body, struct err *err)
{
	_cleanup_(policy_freep) struct policy *base = NULL, *whole = NULL;
	const char *given = cli_get(cli, "policy");

	if (!given && !policy_has_flags(cli))
		return 0;
	if (given && read_file_or_preset(cli, given, &base, err) < 0)
		return -1;
	if (!given && !cli_has(cli, "net") && read_parent(cli, box, &base, err) < 0)
		return -1;
	if (policy_read_flags(cli, base, &whole, err) < 0)
		return -1;
	json_object_set_new(body, "policy", policy_json(whole));
	return 0;
}
