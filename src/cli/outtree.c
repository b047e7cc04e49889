/* outtree.c - see outtree.h */
#include "cli/outtree.h"
#include "base/alloc.h"
#include "base/file.h"
#include "client/client.h"
#include "base/signals.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
static volatile sig_atomic_t stopped_by;

static void on_stop(int number)
{
	stopped_by = number;
	client_interrupted = true;
}

void outtree_begin(struct outtree *tree, int dir, const char *name)
{
	*tree = (struct outtree){ .dir = dir, .name = name };
	outfile_temp_name(tree->temp);
	stopped_by = 0;
	signals_catch(numbers, ARRAY_LEN(numbers), on_stop, NULL);
}

/* Not all file systems can refuse to replace; plain rename replaces at most an empty folder. */
static int give_name(const struct outtree *tree, struct err *err)
{
	if (renameat2(tree->dir, tree->temp, tree->dir, tree->name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno == EINVAL && renameat(tree->dir, tree->temp, tree->dir, tree->name) == 0)
		return 0;
	return err_sys(err, errno, "give '%s' its name", tree->name);
}

int outtree_end(struct outtree *tree, int result, struct err *err)
{
	if (result == 0 && !stopped_by)
		result = give_name(tree, err);
	if (result < 0 || stopped_by)
		tree_remove(tree->dir, tree->temp, NULL);
	client_interrupted = false;
	signals_release(numbers, ARRAY_LEN(numbers));
	if (stopped_by)
		raise(stopped_by);
	return result;
}
