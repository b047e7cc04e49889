/* name.c - host names as DNS has them
 *
 * Names are compared in one normal form: lower case, no trailing dot. A label holds only ASCII
 * letters, digits, '-' and '_' ('_' is common in queries: _dmarc, _http._tcp); so there is no NUL,
 * no escape, and no letter of another alphabet that looks like an ASCII one. Names in other
 * alphabets are written in their xn-- form. */
#include "policy/policy_internal.h"

enum { LABEL_MAX = 63, NAME_LEN_MAX = 253 };

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Programs take "10.1" and "0x7f.1" for addresses, so they are not valid names. */
static bool is_number(const char *label, size_t len)
{
	bool hex = len >= 2 && label[0] == '0' && label[1] == 'x';

	for (size_t i = hex ? 2 : 0; i < len; i++)
		if (!is_digit(label[i]) && !(hex && label[i] >= 'a' && label[i] <= 'f'))
			return false;
	return true;
}

static const char *label_problem(const char *label, size_t len)
{
	if (!len)
		return "has an empty label";
	if (len > LABEL_MAX)
		return "has a label longer than 63 bytes";
	if (label[0] == '-' || label[len - 1] == '-')
		return "has a label that begins or ends with '-'";
	return NULL;
}

#define SELF(c)	  [c] = (c)
#define LETTER(c) [c] = (c), [(c)-32] = (c)

/* What each byte becomes; 0: not valid in a host name. */
static const char fold[256] = { SELF('.'), SELF('-'), SELF('_'), SELF('0'), SELF('1'), SELF('2'),
	SELF('3'), SELF('4'), SELF('5'), SELF('6'), SELF('7'), SELF('8'), SELF('9'), LETTER('a'),
	LETTER('b'), LETTER('c'), LETTER('d'), LETTER('e'), LETTER('f'), LETTER('g'), LETTER('h'),
	LETTER('i'), LETTER('j'), LETTER('k'), LETTER('l'), LETTER('m'), LETTER('n'), LETTER('o'),
	LETTER('p'), LETTER('q'), LETTER('r'), LETTER('s'), LETTER('t'), LETTER('u'), LETTER('v'),
	LETTER('w'), LETTER('x'), LETTER('y'), LETTER('z') };

static const char *last_problem(const char *label, size_t len)
{
	const char *problem = label_problem(label, len);

	if (problem)
		return problem;
	if (is_number(label, len))
		return "ends in a number, as addresses do";
	return strcmp(label, "localhost") ? NULL : "means the machine itself";
}

const char *policy_name_normalise(const char *text, char *out)
{
	size_t len = strnlen(text, NAME_LEN_MAX + 2), start = 0;

	if (len && text[len - 1] == '.')
		len--;
	if (len > NAME_LEN_MAX)
		return "is longer than 253 bytes";
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		out[i] = fold[c];
		if (c == '.') {
			const char *problem = label_problem(out + start, i - start);

			if (problem)
				return problem;
			start = i + 1;
		} else if (!out[i]) {
			return c >= 0x80 ? "has letters outside of ASCII: write its xn-- form"
					 : "has a character that no host name has";
		}
	}
	out[len] = '\0';
	return last_problem(out + start, len - start);
}

bool name_is_below(const char *name, const char *parent)
{
	size_t len = strlen(name), tail = strlen(parent);

	return len > tail + 1 && name[len - tail - 1] == '.' && !strcmp(name + len - tail, parent);
}
