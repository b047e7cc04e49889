/* flags.c - see flags.h */
#include "cli/flags.h"
#include "base/alloc.h"
#include "base/near.h"
#include <stdio.h>

struct parser {
	const struct flag *table;
	const struct flag *common;
	struct flags *flags;
};

static const struct flag *find_name(const struct flag *table, const char *name, size_t len)
{
	for (; table && table->name; table++)
		if (strlen(table->name) == len && !memcmp(table->name, name, len))
			return table;
	return NULL;
}

static const struct flag *find_letter(const struct flag *table, char letter)
{
	for (; table && table->name; table++)
		if (table->letter && table->letter == letter)
			return table;
	return NULL;
}

static const char *nearest(const struct parser *parser, const char *name)
{
	const struct flag *tables[] = { parser->table, parser->common };
	const char *best = NULL;

	for (size_t t = 0; t < ARRAY_LEN(tables); t++)
		for (const struct flag *flag = tables[t]; flag && flag->name; flag++)
			if (text_is_near(name, flag->name) &&
				(!best || text_distance(name, flag->name) <
						  text_distance(name, best)))
				best = flag->name;
	return best;
}

static void add_use(struct flags *flags, const struct flag *flag, const char *value)
{
	xgrow(flags->uses, flags->count + 1);
	flags->uses[flags->count++] = (struct flag_use){ flag->name, value };
}

static void add_word(struct flags *flags, char *word)
{
	flags->words[flags->word_count++] = word;
	flags->words[flags->word_count] = NULL;
}

/* Parses one `--name` argument. next is the argument after it; returns 1 when that was the
 * value. */
static int parse_long(struct parser *parser, const char *arg, const char *next, struct err *err)
{
	const char *name = arg + 2, *equals = strchr(name, '=');
	size_t len = equals ? (size_t)(equals - name) : strlen(name);
	const struct flag *flag = find_name(parser->table, name, len);

	if (!flag)
		flag = find_name(parser->common, name, len);
	if (!flag) {
		_cleanup_free_ char *given = xstrndup(name, MIN(len, 64));
		const char *near = nearest(parser, given);

		err_set(err, ERR_INVALID, "unknown option '--%s'", given);
		return near ? err_hint(err, "did you mean '--%s'?", near) : -1;
	}
	if (!flag->value) {
		if (equals)
			return err_set(
				err, ERR_INVALID, "option '--%s' takes no value", flag->name);
		add_use(parser->flags, flag, "");
		return 0;
	}
	if (!equals && !next)
		return err_set(err, ERR_INVALID, "option '--%s' needs a value: --%s %s", flag->name,
			flag->name, flag->value);
	add_use(parser->flags, flag, equals ? equals + 1 : next);
	return equals ? 0 : 1;
}

/* Parses one `-abc` argument: switches until one that takes a value, which is the rest or the next
 * argument. */
static int parse_short(struct parser *parser, const char *arg, const char *next, struct err *err)
{
	for (const char *p = arg + 1; *p; p++) {
		const struct flag *flag = find_letter(parser->table, *p);

		if (!flag)
			flag = find_letter(parser->common, *p);
		if (!flag)
			return err_set(err, ERR_INVALID, "unknown option '-%c'", *p);
		if (!flag->value) {
			add_use(parser->flags, flag, "");
			continue;
		}
		if (p[1]) {
			add_use(parser->flags, flag, p[1] == '=' ? p + 2 : p + 1);
			return 0;
		}
		if (!next)
			return err_set(err, ERR_INVALID, "option '-%c' needs a value: -%c %s", *p,
				*p, flag->value);
		add_use(parser->flags, flag, next);
		return 1;
	}
	return 0;
}

int flags_parse(const struct flag *table, const struct flag *common, enum flags_mode mode,
	int stop_after, int argc, char **argv, struct flags *ret, struct err *err)
{
	struct flags flags = { .words = xnewn(char *, (size_t)argc + 1), .dash_at = -1 };
	struct parser parser = { table, common, &flags };

	for (int i = 0; i < argc; i++) {
		char *arg = argv[i];
		bool over =
			flags.dash_at >= 0 || (mode == FLAGS_STOP && flags.word_count > stop_after);
		int used;

		if (!over && !strcmp(arg, "--")) {
			flags.dash_at = flags.word_count;
			continue;
		}
		if (over || arg[0] != '-' || arg[1] == '\0') {
			add_word(&flags, arg);
			continue;
		}
		used = arg[1] == '-' ? parse_long(&parser, arg, argv[i + 1], err)
				     : parse_short(&parser, arg, argv[i + 1], err);
		if (used < 0) {
			flags_done(&flags);
			return -1;
		}
		i += used;
	}
	*ret = flags;
	return 0;
}

void flags_done(struct flags *flags)
{
	free(flags->uses);
	free(flags->words);
	*flags = (struct flags){ .dash_at = -1 };
}

bool flags_has(const struct flags *flags, const char *name)
{
	return flags_nth(flags, name, 0) != NULL;
}

const char *flags_get(const struct flags *flags, const char *name)
{
	const char *value = NULL;

	for (size_t i = 0; i < flags->count; i++)
		if (!strcmp(flags->uses[i].name, name))
			value = flags->uses[i].value;
	return value;
}

const char *flags_nth(const struct flags *flags, const char *name, size_t index)
{
	for (size_t i = 0; i < flags->count; i++)
		if (!strcmp(flags->uses[i].name, name) && index-- == 0)
			return flags->uses[i].value;
	return NULL;
}
