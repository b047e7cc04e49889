/* login_name.c - see login_name.h */
#include "core/login_name.h"
#include "base/alloc.h"
#include <string.h>

static const struct {
	const char *word;
	enum login_kind kind;
	bool has_box; /* WORD+BOX */
} words[] = {
	{ "box", LOGIN_CONTROL, false },
	{ "new", LOGIN_NEW, false },
	{ "fork", LOGIN_FORK, true },
	{ "try", LOGIN_TRY, true },
};

bool login_name_is_reserved(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (!strcmp(words[i].word, name))
			return true;
	return false;
}

/* A user name as useradd makes them, or a numeric id. */
static bool is_user(const char *text)
{
	size_t len = strlen(text);

	return len && len <= LOGIN_USER_MAX &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
		       len &&
	       text[0] != '-' && text[0] != '.';
}

static bool is_box(const char *text)
{
	return name_check("box", text, NULL) == 0;
}

static int refuse(struct err *err)
{
	err_set(err, ERR_INVALID, "the user name names no box");
	return err_hint(err,
		"use BOX, BOX+USER, new, fork+BOX, try+BOX, or box for the commands of the command line");
}

static int parse_word(const char *word, const char *rest, struct login_name *ret, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		if (strcmp(words[i].word, word))
			continue;
		if (words[i].has_box ? !rest || !is_box(rest) : rest != NULL)
			return refuse(err);
		*ret = (struct login_name){ .kind = words[i].kind };
		if (rest)
			strcpy(ret->box, rest);
		return 0;
	}
	if (!is_box(word) || (rest && !is_user(rest)))
		return refuse(err);
	*ret = (struct login_name){ .kind = LOGIN_BOX };
	strcpy(ret->box, word);
	if (rest)
		strcpy(ret->user, rest);
	return 0;
}

int login_name_parse(const char *text, size_t len, struct login_name *ret, struct err *err)
{
	char copy[NAME_MAX_LEN + 1 + NAME_MAX_LEN + 1];
	char *plus;

	if (!len || len >= sizeof copy || memchr(text, '\0', len))
		return refuse(err);
	memcpy(copy, text, len);
	copy[len] = '\0';
	plus = strchr(copy, '+');
	if (plus)
		*plus++ = '\0';
	return parse_word(copy, plus, ret, err);
}
