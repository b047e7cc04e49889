/* fuzz_words.c - arbitrary text as the words of a command
 *
 * No word is longer than the text, and words that are quoted and split again are the same words. */
#include "base/alloc.h"
#include "base/buf.h"
#include "base/strv.h"
#include "base/words.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add_quoted(struct buf *out, const char *word)
{
	buf_add_str(out, " '");
	for (; *word; word++)
		buf_add(out, *word == '\'' ? "'\\''" : word, *word == '\'' ? 4 : 1);
	buf_add_str(out, "'");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *line = xstrndup((const char *)data, size);
	_cleanup_strv_ char **words = NULL, **again = NULL;
	struct buf quoted = BUF_INIT;
	size_t count;

	if (words_split(line, &words, NULL) < 0)
		return 0;
	count = strv_len((const char *const *)words);
	for (size_t i = 0; i < count; i++) {
		assert(strlen(words[i]) <= strlen(line));
		add_quoted(&quoted, words[i]);
	}
	assert(words_split(buf_str(&quoted), &again, NULL) == 0);
	assert(strv_len((const char *const *)again) == count);
	for (size_t i = 0; i < count; i++)
		assert(!strcmp(words[i], again[i]));
	buf_done(&quoted);
	return 0;
}
