/* modules.c - see modules.h
 *
 * Dependencies change from kernel to kernel (virtio.ko came to need virtio_ring.ko within 6.1),
 * so none are listed here: each module names them in its section .modinfo. */
#include "engine/vm/modules.h"
#include "base/file.h"
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <lzma.h>
#include <stdio.h>

enum {
	MODULE_MAX = 32 * 1024 * 1024,
	LIST_MAX = 4 * 1024 * 1024,
	MODULES_MAX = 64,     /* needed by a VM */
	FILES_MAX = 16 * 1024 /* in a tree of modules */
};

/* ---- the tree ------------------------------------------------------------------------------- */

struct tree {
	char **paths;
	char **names;
	size_t count;
	char *builtin; /* text of modules.builtin */
};

/* nftw passes no argument to its callback. */
static struct tree *walked;

static void make_name(char *text)
{
	for (; *text; text++)
		if (*text == '-')
			*text = '_';
}

/* "fs/erofs/erofs.ko.xz" is erofs; NULL: no module. Yours. */
static char *name_of(const char *path)
{
	const char *base = strrchr(path, '/');
	const char *end;
	char *name;

	base = base ? base + 1 : path;
	end = strstr(base, ".ko");
	if (!end || end == base || (strcmp(end, ".ko") != 0 && strcmp(end, ".ko.xz") != 0))
		return NULL;
	name = xstrndup(base, (size_t)(end - base));
	make_name(name);
	return name;
}

static int on_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	char *name = type == FTW_F ? name_of(path) : NULL;

	(void)st;
	(void)ftw;
	if (!name)
		return 0;
	if (walked->count == FILES_MAX) {
		free(name);
		return 1;
	}
	xgrow(walked->paths, walked->count + 1);
	xgrow(walked->names, walked->count + 1);
	walked->paths[walked->count] = xstrdup(path);
	walked->names[walked->count++] = name;
	return 0;
}

static void tree_done(struct tree *tree)
{
	for (size_t i = 0; i < tree->count; i++) {
		free(tree->paths[i]);
		free(tree->names[i]);
	}
	free(tree->paths);
	free(tree->names);
	free(tree->builtin);
}

static int tree_read(const char *folder, struct tree *ret, struct err *err)
{
	_cleanup_free_ char *kernel = xasprintf("%s/kernel", folder);
	_cleanup_free_ char *builtin = xasprintf("%s/modules.builtin", folder);
	int status;

	*ret = (struct tree){ 0 };
	walked = ret;
	status = nftw(kernel, on_file, 16, FTW_PHYS);
	walked = NULL;
	if (status == 0 && file_read(AT_FDCWD, builtin, LIST_MAX, &ret->builtin, NULL, err) == 0)
		return 0;
	if (status < 0)
		err_sys(err, errno, "look through '%s'", kernel);
	else if (status > 0)
		err_set(err, ERR_TOO_LARGE, "'%s' has too many files", kernel);
	tree_done(ret);
	return -1;
}

static const char *tree_find(const struct tree *tree, const char *name)
{
	for (size_t i = 0; i < tree->count; i++)
		if (!strcmp(tree->names[i], name))
			return tree->paths[i];
	return NULL;
}

static bool is_built_in(const struct tree *tree, const char *name)
{
	bool found = false;

	for (const char *line = tree->builtin; *line && !found; line += strcspn(line, "\n")) {
		_cleanup_free_ char *path = NULL, *known = NULL;

		line += *line == '\n';
		path = xstrndup(line, strcspn(line, "\n"));
		known = name_of(path);
		found = known && !strcmp(known, name);
	}
	return found;
}

/* ---- one module ----------------------------------------------------------------------------- */

static int unpack_xz(struct buf *bytes, const char *path, struct err *err)
{
	struct buf plain = BUF_INIT;
	size_t in = 0, out = 0;
	uint64_t memory = UINT64_C(256) * 1024 * 1024;

	if (lzma_stream_buffer_decode(&memory, 0, NULL, buf_head(bytes), &in, bytes->len,
		    buf_room(&plain, MODULE_MAX), &out, MODULE_MAX) != LZMA_OK) {
		buf_done(&plain);
		return err_set(err, ERR_INVALID, "'%s' cannot be unpacked", path);
	}
	buf_done(bytes);
	buf_add(bytes, plain.data, out);
	buf_done(&plain);
	return 0;
}

static int read_module(const char *path, struct buf *ret, struct err *err)
{
	_cleanup_free_ char *data = NULL;
	size_t len;

	if (file_read(AT_FDCWD, path, MODULE_MAX, &data, &len, err) < 0)
		return -1;
	buf_add(ret, data, len);
	if (strlen(path) > 3 && !strcmp(path + strlen(path) - 3, ".xz"))
		return unpack_xz(ret, path, err);
	return 0;
}

/* The bytes of the section called name; false: it is missing, or the file is damaged. */
static bool find_section(
	const uint8_t *data, size_t len, const char *name, const char **ret, size_t *ret_len)
{
	Elf64_Ehdr head;
	Elf64_Shdr names, section;

	if (len < sizeof head)
		return false;
	memcpy(&head, data, sizeof head);
	if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
		head.e_shentsize != sizeof section || head.e_shoff > len ||
		(len - head.e_shoff) / sizeof section < head.e_shnum ||
		head.e_shstrndx >= head.e_shnum)
		return false;
	memcpy(&names, data + head.e_shoff + head.e_shstrndx * sizeof names, sizeof names);
	if (names.sh_offset > len || names.sh_size > len - names.sh_offset)
		return false;
	for (unsigned i = 0; i < head.e_shnum; i++) {
		memcpy(&section, data + head.e_shoff + i * sizeof section, sizeof section);
		if (section.sh_offset > len || section.sh_size > len - section.sh_offset ||
			section.sh_name >= names.sh_size ||
			names.sh_size - section.sh_name <= strlen(name) ||
			memcmp(data + names.sh_offset + section.sh_name, name, strlen(name) + 1) !=
				0)
			continue;
		*ret = (const char *)data + section.sh_offset;
		*ret_len = section.sh_size;
		return true;
	}
	return false;
}

int vm_module_depends(const void *data, size_t len, char **ret, struct err *err)
{
	static const char key[] = "depends=";
	const char *info;
	size_t left;

	if (!find_section(data, len, ".modinfo", &info, &left))
		return err_set(err, ERR_INVALID, "it is not a kernel module");
	while (left) {
		size_t text = strnlen(info, left);

		if (text >= strlen(key) && !memcmp(info, key, strlen(key))) {
			*ret = xstrndup(info + strlen(key), text - strlen(key));
			return 0;
		}
		text = MIN(text + 1, left);
		info += text;
		left -= text;
	}
	*ret = xstrdup("");
	return 0;
}

/* ---- all modules ---------------------------------------------------------------------------- */

static bool has_module(const struct vm_modules *modules, const char *name)
{
	for (size_t i = 0; i < modules->count; i++)
		if (!strcmp(modules->list[i].name, name))
			return true;
	return false;
}

static int add_module(const struct tree *tree, const char *wanted, unsigned depth,
	struct vm_modules *ret, struct err *err);

static int add_needed(const struct tree *tree, const struct buf *bytes, unsigned depth,
	struct vm_modules *ret, struct err *err)
{
	_cleanup_free_ char *depends = NULL;
	char *rest, *name;

	if (vm_module_depends(buf_head(bytes), bytes->len, &depends, err) < 0)
		return -1;
	for (rest = depends; (name = strsep(&rest, ","));)
		if (*name && add_module(tree, name, depth + 1, ret, err) < 0)
			return -1;
	return 0;
}

static int add_module(const struct tree *tree, const char *wanted, unsigned depth,
	struct vm_modules *ret, struct err *err)
{
	bool may_lack = wanted[strlen(wanted) - 1] == '?';
	_cleanup_free_ char *name = xstrndup(wanted, strlen(wanted) - may_lack);
	struct buf bytes = BUF_INIT;
	const char *path;

	make_name(name);
	if (has_module(ret, name) || is_built_in(tree, name))
		return 0;
	path = tree_find(tree, name);
	if (!path)
		return may_lack ? 0
				: err_set(err, ERR_NOT_FOUND, "the kernel has no module %s", name);
	if (depth > MODULES_MAX || ret->count == MODULES_MAX)
		return err_set(err, ERR_INVALID, "module %s needs too many others", name);
	if (read_module(path, &bytes, err) < 0 || add_needed(tree, &bytes, depth, ret, err) < 0) {
		buf_done(&bytes);
		return depth ? -1 : err_wrap(err, "module %s", name);
	}
	xgrow(ret->list, ret->count + 1);
	ret->list[ret->count++] = (struct vm_module){ steal_ptr(&name), bytes };
	return 0;
}

int vm_modules_resolve(
	const char *folder, const char *const *wanted, struct vm_modules *ret, struct err *err)
{
	struct tree tree;
	int status = 0;

	*ret = (struct vm_modules){ 0 };
	if (tree_read(folder, &tree, err) < 0)
		return -1;
	for (size_t i = 0; wanted[i] && status == 0; i++)
		status = add_module(&tree, wanted[i], 0, ret, err);
	tree_done(&tree);
	if (status < 0)
		vm_modules_done(ret);
	return status;
}

void vm_modules_done(struct vm_modules *modules)
{
	for (size_t i = 0; i < modules->count; i++) {
		free(modules->list[i].name);
		buf_done(&modules->list[i].bytes);
	}
	free(modules->list);
	*modules = (struct vm_modules){ 0 };
}
