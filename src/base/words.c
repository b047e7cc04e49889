/* words.c - see words.h */
#include "base/words.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/strv.h"

struct splitter {
	const char *at;
	struct buf word;
	bool in_word; /* '' is a word, too */
};

static int take_single_quoted(struct splitter *splitter, struct err *err)
{
	const char *end = strchr(splitter->at, '\'');

	if (!end)
		return err_set(err, ERR_INVALID, "a ' is not closed");
	buf_add(&splitter->word, splitter->at, (size_t)(end - splitter->at));
	splitter->at = end + 1;
	return 0;
}

/* Within double quotes a backslash is a byte like others, unless it stands before one of these. */
static int take_double_quoted(struct splitter *splitter, struct err *err)
{
	for (const char *p = splitter->at; *p; p++) {
		if (*p == '"') {
			splitter->at = p + 1;
			return 0;
		}
		if (*p == '\\' && p[1] == '\n') {
			p++;
			continue;
		}
		if (*p == '\\' && p[1] && strchr("\"\\$`", p[1]))
			p++;
		buf_add(&splitter->word, p, 1);
	}
	return err_set(err, ERR_INVALID, "a \" is not closed");
}

static int take_backslash(struct splitter *splitter, struct err *err)
{
	if (!*splitter->at)
		return err_set(err, ERR_INVALID, "a \\ is the last byte");
	if (*splitter->at != '\n') {
		buf_add(&splitter->word, splitter->at, 1);
		splitter->in_word = true;
	}
	splitter->at++;
	return 0;
}

static int take_byte(struct splitter *splitter, struct err *err)
{
	char byte = *splitter->at++;

	if (byte == '\\')
		return take_backslash(splitter, err);
	splitter->in_word = true;
	if (byte == '\'')
		return take_single_quoted(splitter, err);
	if (byte == '"')
		return take_double_quoted(splitter, err);
	buf_add(&splitter->word, &byte, 1);
	return 0;
}

/* Reads one word, if there is another one; splitter->in_word tells. */
static int take_word(struct splitter *splitter, struct err *err)
{
	splitter->in_word = false;
	splitter->word.len = splitter->word.head = 0;
	splitter->at += strspn(splitter->at, " \t\n");
	while (*splitter->at && !strchr(" \t\n", *splitter->at))
		if (take_byte(splitter, err) < 0)
			return -1;
	return 0;
}

int words_split(const char *line, char ***ret, struct err *err)
{
	struct splitter splitter = { .at = line, .word = BUF_INIT };
	_cleanup_strv_ char **words = xcalloc(1, sizeof *words);
	size_t count = 0;
	int result = 0;

	while (result == 0 && *splitter.at) {
		result = take_word(&splitter, err);
		if (result < 0 || !splitter.in_word)
			continue;
		if (++count > WORDS_MAX)
			result = err_set(err, ERR_INVALID, "more than %d words", WORDS_MAX);
		else
			strv_add(&words, buf_str(&splitter.word));
	}
	buf_done(&splitter.word);
	if (result == 0)
		*ret = steal_ptr(&words);
	return result;
}
