/* xattrs.c - see xattrs.h */
#include "tar/xattrs.h"
#include "base/text.h"
#include <errno.h>
#include <sys/xattr.h>

enum { LIST_MAX = 64 * 1024 }; /* the kernel's limit for the list of names and for a value */

void xattrs_done(struct xattrs *xattrs)
{
	buf_done(&xattrs->text);
}

static bool is_ours(const char *name)
{
	/* In the format a name ends at '='. */
	return (!strcmp(name, "security.capability") || text_has_prefix(name, "user.")) &&
	       !strchr(name, '=');
}

static int compare(const void *a, const void *b)
{
	const struct tar_xattr *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int too_large(const char *path, struct err *err)
{
	return err_set(err, ERR_TOO_LARGE,
		"'/%.300s' has more than %d extended attributes, or %d KiB of them", path,
		TAR_XATTRS_MAX, TAR_XATTR_BYTES_MAX / 1024);
}

/* Adds one attribute; its value is in the text, found by its offset until the text is complete. */
static int read_one(
	int fd, const char *name, const char *path, struct xattrs *xattrs, struct err *err)
{
	size_t name_len = strlen(name) + 1;
	ssize_t len;

	if (xattrs->count == TAR_XATTRS_MAX)
		return too_large(path, err);
	buf_add(&xattrs->text, name, name_len);
	len = fgetxattr(fd, name, buf_room(&xattrs->text, LIST_MAX), LIST_MAX);
	if (len < 0 && errno == ENODATA)
		return 0;
	if (len < 0)
		return err_sys(err, errno, "attribute '%s' of '/%.300s'", name, path);
	xattrs->list[xattrs->count++] =
		(struct tar_xattr){ .value = (void *)(xattrs->text.len - name_len),
			.len = (size_t)len };
	buf_grew(&xattrs->text, (size_t)len);
	return xattrs->text.len > TAR_XATTR_BYTES_MAX ? too_large(path, err) : 0;
}

/* Most files have one attribute or none: the large buffer, which costs the kernel more, is only for
 * those that need it. */
static ssize_t list_names(int fd, char *few, size_t size, char **ret_many)
{
	ssize_t len = flistxattr(fd, few, size);

	if (len >= 0 || errno != ERANGE)
		return len;
	*ret_many = xcalloc(1, LIST_MAX);
	return flistxattr(fd, *ret_many, LIST_MAX);
}

int xattrs_read(int fd, const char *path, struct xattrs *ret, struct err *err)
{
	_cleanup_free_ char *many = NULL;
	char few[512];
	ssize_t len = list_names(fd, few, sizeof few, &many);
	const char *names = many ? many : few, *text;

	if (len < 0 && errno != ENOTSUP)
		return err_sys(err, errno, "attributes of '/%.300s'", path);
	for (const char *name = names; name < names + len; name += strlen(name) + 1)
		if (is_ours(name) && read_one(fd, name, path, ret, err) < 0)
			return -1;
	text = (const char *)buf_head(&ret->text);
	for (size_t i = 0; i < ret->count; i++) {
		struct tar_xattr *xattr = &ret->list[i];

		xattr->name = text + (uintptr_t)xattr->value;
		xattr->value = xattr->name + strlen(xattr->name) + 1;
	}
	qsort(ret->list, ret->count, sizeof *ret->list, compare);
	return 0;
}
