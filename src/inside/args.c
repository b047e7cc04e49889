/* args.c - the words of a request as options and names */
#include "inside/inside_internal.h"
#include "core/time/timeline.h"
#include "base/alloc.h"
#include "base/strv.h"
#include "base/text.h"

void args_done(struct args *args)
{
	free(args->rest);
}

static int read_option(
	char **words, size_t *at, unsigned allowed, struct args *ret, struct err *err)
{
	const char *word = words[*at], *value = words[*at + 1];

	if ((allowed & ARG_JSON) && !strcmp(word, "--json")) {
		ret->json = true;
	} else if ((allowed & ARG_DISK_ONLY) && !strcmp(word, "--disk-only")) {
		ret->disk_only = true;
	} else if ((allowed & ARG_QUIET) && !strcmp(word, "-q")) {
		ret->quiet = true;
	} else if ((allowed & ARG_COUNT) && !strcmp(word, "-n") && value) {
		(*at)++;
		return parse_u64("-n", value, 1, FORKS_MAX, &ret->count, err);
	} else if ((allowed & ARG_FROM) && !strcmp(word, "--from") && value) {
		(*at)++;
		ret->from = value;
	} else {
		bool needs = ((allowed & ARG_COUNT) && !strcmp(word, "-n")) ||
			     ((allowed & ARG_FROM) && !strcmp(word, "--from"));

		err_set(err, ERR_INVALID,
			needs ? "'box %s' needs a value after '%.60s'"
			      : "'box %s' does not take '%.60s'",
			words[0], word);
		return err_hint(err, "see 'box help %s'", words[0]);
	}
	return 0;
}

int args_read(char **words, unsigned allowed, size_t least, size_t most, struct args *ret,
	struct err *err)
{
	bool ours = true;

	*ret = (struct args){ .rest = xnewn(char *, strv_len((const char *const *)words) + 1) };
	for (size_t i = 1; words[i]; i++) {
		if (ours && !strcmp(words[i], "--")) {
			ours = false;
			continue;
		}
		if (ours && words[i][0] == '-' && words[i][1]) {
			if (read_option(words, &i, allowed, ret, err) < 0)
				return -1;
			continue;
		}
		ret->rest[ret->rest_count++] = words[i];
		if ((allowed & ARG_PROGRAM) && ret->rest_count == 2)
			ours = false;
	}
	if (ret->rest_count >= least && ret->rest_count <= most)
		return 0;
	err_set(err, ERR_INVALID, "'box %s' with too %s words", words[0],
		ret->rest_count < least ? "few" : "many");
	return err_hint(err, "see 'box help %s'", words[0]);
}
