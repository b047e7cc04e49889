/* discard.c - deletion in the background
 *
 * Deletes what is no disk of the pool and may be large: layers, folders of images of older
 * homes, finished downloads. The caller has renamed it to .trash-… before, so nobody sees it any
 * more; what a dead daemon left is deleted after the next open. One after the other: an image
 * may have a hundred layers, and there is only one disk. */
#include "image/image_internal.h"
#include "base/file.h"
#include "base/log.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>

struct removal {
	struct images *images;
	struct helper *helper; /* of the first entry of the list; the others wait */
	char *path;
	struct removal *next;
};

char **folder_list(const char *path)
{
	DIR *dir = opendir(path);
	char **names = NULL;
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			strv_add(&names, entry->d_name);
	if (dir)
		closedir(dir);
	return names;
}

/* mountinfo writes blanks and backslashes as \ooo. */
static void unescape_octal(char *text)
{
	char *out = text;

	for (char *p = text; *p; out++) {
		if (p[0] == '\\' && p[1] >= '0' && p[1] <= '3' && p[2] >= '0' && p[2] <= '7' &&
			p[3] >= '0' && p[3] <= '7') {
			*out = (char)((p[1] - '0') << 6 | (p[2] - '0') << 3 | (p[3] - '0'));
			p += 4;
		} else {
			*out = *p++;
		}
	}
	*out = '\0';
}

/* Detaches everything mounted below path, so that the deletion does not walk into it. This
 * process has its own mount namespace: the mounts stay on the host until the kernel detaches
 * them when their directory is deleted. */
static void unmount_below(const char *path)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	_cleanup_strv_ char **found = NULL;
	char *line = NULL, *at = NULL;
	size_t room = 0, len = strlen(path);

	while (file && getline(&line, &room, file) > 0) {
		if (sscanf(line, "%*d %*d %*s %*s %ms", &at) == 1) {
			unescape_octal(at);
			if (!strncmp(at, path, len) && at[len] == '/')
				strv_add(&found, at);
		}
		free(at);
		at = NULL;
	}
	for (size_t i = found ? strv_len((const char *const *)found) : 0; i-- > 0;)
		umount2(found[i], MNT_DETACH | UMOUNT_NOFOLLOW);
	free(line);
	if (file)
		fclose(file);
}

static int removal_run(int sock, void *arg)
{
	struct removal *removal = arg;
	struct err err = ERR_INIT;

	(void)sock;
	unmount_below(removal->path);
	/* Another daemon on the same folder may be deleting it too; then entries disappear while
	 * we work. */
	for (int i = 0; i < 3; i++)
		if (tree_remove(AT_FDCWD, removal->path, &err) == 0)
			return 0;
	log_warn("cannot remove what is left of an image", kv_str("path", removal->path),
		kv_err(&err));
	return 1;
}

static void removal_free(struct removal *removal)
{
	struct removal **at = &removal->images->removals;

	while (*at != removal)
		at = &(*at)->next;
	*at = removal->next;
	helper_free(removal->helper);
	free(removal->path);
	free(removal);
}

static void removal_next(struct images *images);

static void removal_exited(int code, void *arg)
{
	struct removal *removal = arg;
	struct images *images = removal->images;

	(void)code;
	removal->helper = NULL;
	removal_free(removal);
	removal_next(images);
}

static void removal_next(struct images *images)
{
	static const struct helper_ops ops = { .run = removal_run, .on_exit = removal_exited };
	struct removal *first;
	struct err err = ERR_INIT;

	while ((first = images->removals) && !first->helper) {
		if (helper_start(images->loop, &ops, first, NULL, 0, &first->helper, &err) == 0)
			return;
		log_warn("cannot remove files now, the next start will",
			kv_str("path", first->path), kv_err(&err));
		removal_free(first);
	}
}

void images_discard(struct images *images, const char *dir, const char *name)
{
	struct removal *removal = xnew(struct removal), **end = &images->removals;

	removal->images = images;
	removal->path = xasprintf("%s/%s", dir, name);
	while (*end)
		end = &(*end)->next;
	*end = removal;
	removal_next(images);
}

void removals_end(struct images *images)
{
	for (struct removal *removal = images->removals, *next; removal; removal = next) {
		next = removal->next;
		removal_free(removal);
	}
}
