/* boxfile.c - see boxfile.h
 *
 * Two passes a line: joining (a backslash at the end goes on with the next line, comment lines in
 * between are left out), then the keyword's row in a table, which says how the rest is read and
 * what it must be. */
#include "cli/boxfile.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/near.h"
#include "base/strv.h"
#include "base/text.h"
#include "cli/flags.h"
#include <ctype.h>
#include <stdio.h>
#include <strings.h>

enum { WORD_MAX = 32 * 1024, WORDS_MAX = 1000, PORT_MAX = 65535 };

/* ---- words ---------------------------------------------------------------------------------- */

struct splitter {
	const char *at;
	boxfile_lookup lookup;
	void *arg;
	struct buf word;
	bool in_word; /* '' is a word, too */
};

static bool is_name_char(char c, bool first)
{
	return c == '_' || isalpha((unsigned char)c) || (!first && isdigit((unsigned char)c));
}

/* At a dollar: puts the variable's value into the word. A dollar without a name stays. */
static int take_variable(struct splitter *splitter, struct err *err)
{
	const char *name = splitter->at + 1, *end;
	bool braces = *name == '{';
	_cleanup_free_ char *key = NULL;
	const char *value;

	name += braces;
	end = name;
	while (is_name_char(*end, end == name))
		end++;
	if (braces && (end == name || *end != '}'))
		return err_set(err, ERR_INVALID, "'%.20s' is not ${NAME}", splitter->at);
	if (end == name) {
		buf_add(&splitter->word, splitter->at++, 1);
		return 0;
	}
	key = xstrndup(name, (size_t)(end - name));
	value = splitter->lookup(key, splitter->arg);
	buf_add_str(&splitter->word, value ? value : "");
	splitter->at = end + braces;
	return 0;
}

static int take_single_quoted(struct splitter *splitter, struct err *err)
{
	const char *begin = splitter->at + 1, *end = strchr(begin, '\'');

	if (!end)
		return err_set(err, ERR_INVALID, "a ' is not closed");
	buf_add(&splitter->word, begin, (size_t)(end - begin));
	splitter->at = end + 1;
	return 0;
}

static int take_double_quoted(struct splitter *splitter, struct err *err)
{
	splitter->at++;
	while (*splitter->at != '"') {
		if (!*splitter->at)
			return err_set(err, ERR_INVALID, "a \" is not closed");
		if (*splitter->at == '$' && splitter->lookup) {
			if (take_variable(splitter, err) < 0)
				return -1;
			continue;
		}
		if (*splitter->at == '\\' && splitter->at[1] && strchr("\"\\$", splitter->at[1]))
			splitter->at++;
		buf_add(&splitter->word, splitter->at++, 1);
	}
	splitter->at++;
	return 0;
}

/* Takes one character, or one quoted part. */
static int take_part(struct splitter *splitter, struct err *err)
{
	splitter->in_word = true;
	if (*splitter->at == '\'')
		return take_single_quoted(splitter, err);
	if (*splitter->at == '"')
		return take_double_quoted(splitter, err);
	if (*splitter->at == '$' && splitter->lookup)
		return take_variable(splitter, err);
	if (*splitter->at == '\\') {
		if (!splitter->at[1])
			return err_set(err, ERR_INVALID, "there is nothing after a backslash");
		splitter->at++;
	}
	buf_add(&splitter->word, splitter->at++, 1);
	return 0;
}

static int end_word(struct splitter *splitter, char ***words, struct err *err)
{
	if (!splitter->in_word)
		return 0;
	if (strv_len((const char *const *)*words) >= WORDS_MAX)
		return err_set(err, ERR_INVALID, "more than %d words", WORDS_MAX);
	strv_add(words, buf_str(&splitter->word));
	splitter->word.len = splitter->word.head = 0;
	splitter->in_word = false;
	return 0;
}

int boxfile_words(const char *text, boxfile_lookup lookup, void *arg, char ***ret, struct err *err)
{
	struct splitter splitter = { .at = text, .lookup = lookup, .arg = arg };
	_cleanup_strv_ char **words = xnewn(char *, 1);
	int result = 0;

	while (result == 0 && *splitter.at) {
		if (*splitter.at == ' ' || *splitter.at == '\t') {
			splitter.at++;
			result = end_word(&splitter, &words, err);
		} else {
			result = take_part(&splitter, err);
		}
		if (result == 0 && splitter.word.len > WORD_MAX)
			result = err_set(err, ERR_INVALID, "a word is longer than %d", WORD_MAX);
	}
	if (result == 0)
		result = end_word(&splitter, &words, err);
	buf_done(&splitter.word);
	if (result == 0)
		*ret = steal_ptr(&words);
	return result;
}

/* ["a","b"] */
static int read_json_words(const char *text, char ***ret, struct err *err)
{
	_cleanup_json_ json_t *list = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	_cleanup_strv_ char **words = xnewn(char *, 1);
	json_t *item;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) > WORDS_MAX)
		return err_set(err, ERR_INVALID,
			"a value that begins with [ must be a list of strings, like [\"a\",\"b\"]");
	json_array_foreach (list, i, item) {
		if (!json_is_string(item))
			return err_set(
				err, ERR_INVALID, "item %zu of the list is not a string", i + 1);
		strv_add(&words, json_string_value(item));
	}
	*ret = steal_ptr(&words);
	return 0;
}

/* ---- checks of the words of each keyword ---------------------------------------------------- */

static int check_env(const char *word, struct err *err)
{
	return env_check("env", word, err);
}

static int check_label(const char *word, struct err *err)
{
	const char *equals = strchr(word, '=');

	if (!equals || equals == word)
		return err_set(err, ERR_INVALID, "'%.60s' is not KEY=VALUE", word);
	return 0;
}

/* A package as apt-get takes it: "git", "gcc-12", "git=1:2.39", "libc6:arm64", "jq/bookworm". */
static int check_package(const char *word, struct err *err)
{
	bool good = isalnum((unsigned char)word[0]);

	for (const char *p = word; *p; p++)
		good = good && (isalnum((unsigned char)*p) || strchr("+.:~=/-", *p));
	return good ? 0 : err_set(err, ERR_INVALID, "'%.60s' is not the name of a package", word);
}

static int check_port(const char *word, struct err *err)
{
	_cleanup_free_ char *number = xstrndup(word, strcspn(word, "/"));
	const char *protocol = word + strlen(number);
	uint64_t port;

	if (*protocol && strcmp(protocol, "/tcp") && strcmp(protocol, "/udp"))
		return err_set(err, ERR_INVALID, "'%.60s' is not PORT, PORT/tcp or PORT/udp", word);
	return parse_u64("port", number, 1, PORT_MAX, &port, err);
}

static int check_path(const char *word, struct err *err)
{
	for (const char *p = word; *p; p += strcspn(p, "/"), p += *p == '/')
		if (!strncmp(p, "..", 2) && (!p[2] || p[2] == '/'))
			return err_set(err, ERR_INVALID, "'%.60s' must not hold '..'", word);
	return *word ? 0 : err_set(err, ERR_INVALID, "an empty path");
}

enum form {
	FORM_WORDS,
	FORM_TEXT, /* the rest is one word, unchanged */
	FORM_ARGV, /* words or a JSON list */
};

static const struct rule {
	const char *keyword;
	enum form form;
	int least, most; /* words; most -1: any number */
	const char *usage;
	int (*check)(const char *word, struct err *err); /* each word; may be NULL */
	bool changes_disk;
} rules[] = {
	[BOXFILE_FROM] = { "from", FORM_WORDS, 1, 1, "IMAGE" },
	[BOXFILE_RUN] = { "run", FORM_TEXT, 1, 1, "COMMAND", .changes_disk = true },
	[BOXFILE_COPY] = { "copy", FORM_ARGV, 2, -1, "SOURCE... TARGET", check_path, true },
	[BOXFILE_ENV] = { "env", FORM_WORDS, 1, -1, "KEY=VALUE...", check_env },
	[BOXFILE_WORKDIR] = { "workdir", FORM_WORDS, 1, 1, "PATH", check_path, true },
	[BOXFILE_USER] = { "user", FORM_WORDS, 1, 1, "NAME" },
	[BOXFILE_PACKAGES] = { "packages", FORM_WORDS, 1, -1, "NAME...", check_package, true },
	[BOXFILE_ENTRYPOINT] = { "entrypoint", FORM_ARGV, 0, -1, "[\"PROGRAM\", ...]" },
	[BOXFILE_CMD] = { "cmd", FORM_ARGV, 0, -1, "[\"PROGRAM\", ...]" },
	[BOXFILE_EXPOSE] = { "expose", FORM_WORDS, 1, -1, "PORT...", check_port },
	[BOXFILE_LABEL] = { "label", FORM_WORDS, 1, -1, "KEY=VALUE...", check_label },
};
static_assert(ARRAY_LEN(rules) == BOXFILE_KIND_COUNT, "every keyword has a rule");

const char *boxfile_keyword(enum boxfile_kind kind)
{
	return rules[kind].keyword;
}

bool boxfile_changes_disk(enum boxfile_kind kind)
{
	return rules[kind].changes_disk;
}

/* ---- lines ---------------------------------------------------------------------------------- */

struct reader {
	const char *at; /* NUL-terminated */
	unsigned line;	/* of at */
};

static bool is_comment(const char *line, size_t len)
{
	size_t blanks = strspn(line, " \t");

	return blanks < len && line[blanks] == '#';
}

/* The next instruction with its continued lines; false at the end. */
static bool next_instruction(struct reader *reader, struct buf *ret, unsigned *ret_line)
{
	bool continued = false;

	ret->len = ret->head = 0;
	while (*reader->at) {
		const char *line = reader->at;
		size_t len = strcspn(line, "\n");
		bool comment = is_comment(line, len);

		reader->at += len + (line[len] == '\n');
		reader->line++;
		if (len && line[len - 1] == '\r')
			len--;
		if (comment || (!continued && strspn(line, " \t") >= len))
			continue;
		if (!continued)
			*ret_line = reader->line - 1;
		continued = len && line[len - 1] == '\\';
		buf_add(ret, line, len - continued);
		if (!continued)
			return true;
	}
	return continued;
}

static int unknown_keyword(const char *word, struct err *err)
{
	const char *best = NULL;

	for (size_t i = 0; i < ARRAY_LEN(rules); i++)
		if (text_is_near(word, rules[i].keyword) &&
			(!best ||
				text_distance(word, rules[i].keyword) < text_distance(word, best)))
			best = rules[i].keyword;
	if (best)
		return err_set(
			err, ERR_INVALID, "unknown step '%.40s', did you mean '%s'?", word, best);
	return err_set(err, ERR_INVALID, "unknown step '%.40s'", word);
}

static int read_words(struct boxfile_step *step, const struct rule *rule, struct err *err)
{
	int count;

	if (rule->form == FORM_TEXT) {
		step->words = xnewn(char *, 1);
		if (*step->rest)
			strv_add(&step->words, step->rest);
	} else if (rule->form == FORM_ARGV && step->rest[0] == '[') {
		if (read_json_words(step->rest, &step->words, err) < 0)
			return -1;
	} else if (boxfile_words(step->rest, NULL, NULL, &step->words, err) < 0) {
		return -1;
	}
	count = (int)strv_len((const char *const *)step->words);
	if (count < rule->least || (rule->most >= 0 && count > rule->most))
		return err_set(err, ERR_INVALID, "it is '%s %s'", rule->keyword, rule->usage);
	for (char **word = step->words; rule->check && word && *word; word++)
		if (rule->check(*word, err) < 0)
			return -1;
	return 0;
}

static int parse_step(const char *text, struct boxfile_step *step, struct err *err)
{
	const char *begin = text + strspn(text, " \t"), *rest = begin + strcspn(begin, " \t");
	_cleanup_free_ char *keyword = xstrndup(begin, (size_t)(rest - begin));
	size_t len;

	for (step->kind = 0; step->kind < BOXFILE_KIND_COUNT; step->kind++)
		if (!strcasecmp(keyword, rules[step->kind].keyword))
			break;
	if (step->kind == BOXFILE_KIND_COUNT)
		return unknown_keyword(keyword, err);
	rest += strspn(rest, " \t");
	len = strlen(rest);
	while (len && strchr(" \t", rest[len - 1]))
		len--;
	step->rest = xstrndup(rest, len);
	return read_words(step, &rules[step->kind], err);
}

static int check_order(const struct boxfile *boxfile, struct err *err)
{
	const struct boxfile_step *last = &boxfile->steps[boxfile->count - 1];

	if (boxfile->count == 1 && last->kind != BOXFILE_FROM)
		return err_set(err, ERR_INVALID, "the first step must be 'from IMAGE'");
	if (boxfile->count > 1 && last->kind == BOXFILE_FROM)
		return err_set(err, ERR_INVALID, "only the first step can be 'from'");
	return 0;
}

int boxfile_parse(const char *text, size_t len, struct boxfile *ret, struct err *err)
{
	_cleanup_free_ char *copy = NULL;
	struct boxfile boxfile = { 0 };
	struct buf line = BUF_INIT;
	struct reader reader;
	unsigned number = 0;
	int result = 0;

	if (len > BOXFILE_SIZE_MAX)
		return err_set(err, ERR_TOO_LARGE, "a Boxfile is at most 1 MiB");
	if (!text_is_utf8(text, len))
		return err_set(err, ERR_INVALID, "a Boxfile must be UTF-8 text");
	copy = xstrndup(text, len);
	reader = (struct reader){ copy, 1 };
	while (result == 0 && next_instruction(&reader, &line, &number)) {
		struct boxfile_step *step;

		if (boxfile.count == BOXFILE_STEPS_MAX) {
			result = err_set(err, ERR_INVALID, "more than %d steps", BOXFILE_STEPS_MAX);
			break;
		}
		xgrow(boxfile.steps, boxfile.count + 1);
		step = &boxfile.steps[boxfile.count++];
		*step = (struct boxfile_step){ .line = number };
		result = parse_step(buf_str(&line), step, err);
		if (result == 0)
			result = check_order(&boxfile, err);
		if (result < 0)
			err_wrap(err, "line %u", number);
	}
	buf_done(&line);
	if (result == 0 && !boxfile.count)
		result = err_set(err, ERR_INVALID, "it is empty; the first step is 'from IMAGE'");
	if (result < 0)
		boxfile_done(&boxfile);
	else
		*ret = boxfile;
	return result;
}

void boxfile_done(struct boxfile *boxfile)
{
	for (size_t i = 0; i < boxfile->count; i++) {
		free(boxfile->steps[i].rest);
		strv_free(boxfile->steps[i].words);
	}
	free(boxfile->steps);
	*boxfile = (struct boxfile){ 0 };
}
