/* links.c - remembers inodes and the first name of each; see view_internal.h */
#include "view/view_internal.h"

struct link {
	dev_t dev;
	ino_t ino;
	struct link *next;
	char path[];
};

static size_t bucket_of(const struct links *links, dev_t dev, ino_t ino)
{
	return (size_t)((ino ^ (uint64_t)dev << 32) * UINT64_C(0x9e3779b97f4a7c15) >> 20) &
	       (links->room - 1);
}

static void grow(struct links *links)
{
	struct links larger = { .room = links->room ? 2 * links->room : 1024 };

	larger.buckets = xnewn(struct link *, larger.room);
	for (size_t i = 0; i < links->room; i++)
		for (struct link *link = links->buckets[i], *next; link; link = next) {
			struct link **at =
				&larger.buckets[bucket_of(&larger, link->dev, link->ino)];

			next = link->next;
			link->next = *at;
			*at = link;
		}
	free(links->buckets);
	links->buckets = larger.buckets;
	links->room = larger.room;
}

const char *links_seen(struct links *links, const struct stat *st, const char *path)
{
	struct link *link, **at;
	size_t len = strlen(path) + 1;

	if (links->count >= links->room)
		grow(links);
	at = &links->buckets[bucket_of(links, st->st_dev, st->st_ino)];
	for (link = *at; link; link = link->next)
		if (link->ino == st->st_ino && link->dev == st->st_dev)
			return link->path;
	link = xcalloc(1, sizeof *link + len);
	link->dev = st->st_dev;
	link->ino = st->st_ino;
	memcpy(link->path, path, len);
	link->next = *at;
	*at = link;
	links->count++;
	return NULL;
}

void links_done(struct links *links)
{
	for (size_t i = 0; i < links->room; i++)
		for (struct link *link = links->buckets[i], *next; link; link = next) {
			next = link->next;
			free(link);
		}
	free(links->buckets);
	*links = (struct links){ 0 };
}
