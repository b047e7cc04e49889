/* habits.c - commands of other tools, and what they are called here
 *
 * People type what docker, git and systemd taught them. Guessing by similar letters would be wrong
 * for most of these, and dangerous for one: 'top' is one letter from 'stop'. */
#include "base/alloc.h"
#include "base/near.h"
#include "cli/cli.h"

static const struct {
	const char *word;
	const char *hint;
} habits[] = {
	{ "build", "'box image build -f Boxfile -t NAME' makes an image" },
	{ "checkout", "'box rollback BOX SNAPSHOT' takes a box back" },
	{ "checkpoint", "'box snapshot BOX' keeps a box as it is now" },
	{ "clone", "'box fork BOX' copies a running box" },
	{ "commit", "'box save BOX IMAGE' makes an image, 'box snapshot BOX' keeps a state" },
	{ "container", "boxes need no such word: 'box ls', 'box rm BOX'" },
	{ "create", "'box new NAME' makes a box" },
	{ "delete", "'box rm BOX' removes a box" },
	{ "destroy", "'box rm BOX' removes a box" },
	{ "export", "'box image export IMAGE' after 'box save BOX IMAGE'" },
	{ "history", "'box timeline BOX' for a box, 'box image ls --tree' for images" },
	{ "images", "'box image ls' lists images" },
	{ "import", "'box image import FILE' makes an image" },
	{ "inspect", "'box show BOX --json' tells all about a box, 'box image show' of an image" },
	{ "kill", "'box stop -t 0 BOX' ends a box at once, 'box rm -f BOX' removes it too" },
	{ "list", "'box ls' lists boxes" },
	{ "load", "'box image import FILE' makes an image" },
	{ "login", "log in with 'skopeo login HOST', or set registry_auth in boxyard.conf; then "
		   "'box image pull'" },
	{ "logout", "log out with 'skopeo logout HOST'" },
	{ "mount", "'box new --mount FOLDER:/path' gives a box a folder of this machine, --volume "
		   "NAME:/path a volume" },
	{ "mv", "'box rename BOX NAME' gives a box another name" },
	{ "network", "'box net' shows traffic, 'box policy' what a box may reach" },
	{ "pause", "'box suspend BOX' freezes a box" },
	{ "ports", "'box port ls BOX' lists them" },
	{ "prune", "'box image gc' removes images nobody needs, 'box rm $(box ls -q --state "
		   "stopped)' boxes" },
	{ "pull", "'box image pull NAME' fetches an image; 'box new --image NAME' does so by "
		  "itself" },
	{ "push", "'box image export IMAGE | skopeo copy oci-archive:/dev/stdin docker://…' sends "
		  "an image" },
	{ "remove", "'box rm BOX' removes a box" },
	{ "restart", "'box stop BOX' and 'box start BOX'" },
	{ "restore", "'box rollback BOX SNAPSHOT' takes a box back" },
	{ "revert", "'box rollback BOX' takes a box back" },
	{ "rmi", "'box image rm IMAGE' removes an image" },
	{ "run", "'box new --rm -- PROGRAM' runs one in a new box, 'box exec BOX -- PROGRAM' in "
		 "one that is there" },
	{ "search", "registries are not searched; 'box image pull NAME' fetches an image" },
	{ "sh", "'box shell BOX' gives a shell" },
	{ "status", "'box ls' for boxes, 'box info' for the daemon" },
	{ "system", "'box info', 'box df' and 'box image gc'" },
	{ "tag", "'box image tag IMAGE NAME' gives another name" },
	{ "top", "'box ps BOX' lists processes, 'box stats' shows figures" },
	{ "undo", "'box rollback BOX' takes a box back to its last snapshot" },
	{ "unpause", "'box resume BOX' lets a box go on" },
	{ "update", "'box set BOX --memory 1G' changes limits" },
	{ "volumes", "'box volume ls' lists them" },
	{ "wait", "'box attach BOX' waits for its program" },
};

const char *habit_hint(const char *word)
{
	for (size_t i = 0; i < ARRAY_LEN(habits); i++)
		if (!strcmp(habits[i].word, word))
			return habits[i].hint;
	return NULL;
}

const char *habit_near(const char *word)
{
	for (size_t i = 0; i < ARRAY_LEN(habits); i++)
		if (strlen(word) > 2 && text_distance(word, habits[i].word) == 1)
			return habits[i].word;
	return NULL;
}
