/* modprobe.c - see modprobe.h */
#include "guest/modprobe.h"
#include "base/alloc.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

enum {
	LIST_MAX = 8 * 1024 * 1024,
	NEEDS_MAX = 128,
	COMPRESSED_FILE = 4, /* MODULE_INIT_COMPRESSED_FILE */
};

static char *folder;

static char *read_list(const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", folder, name);
	char *text = NULL;

	return file_read(AT_FDCWD, path, LIST_MAX, &text, NULL, NULL) < 0 ? xstrdup("") : text;
}

/* '-' and '_' are one in names of modules. */
static bool same_name(const char *a, const char *b, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((a[i] == '-' ? '_' : a[i]) != (b[i] == '-' ? '_' : b[i]) || !a[i])
			return false;
	return true;
}

/* Whether path, of len bytes, is that of the module. */
static bool is_module(const char *path, size_t len, const char *name)
{
	const char *base = memrchr(path, '/', len), *dot;

	base = base ? base + 1 : path;
	dot = memmem(base, (size_t)(path + len - base), ".ko", 3);
	return dot && (size_t)(dot - base) == strlen(name) &&
	       same_name(base, name, (size_t)(dot - base));
}

/* A line: "path: path path ...". */
static char **split_line(const char *line, size_t len)
{
	char **ret = xcalloc(1, NEEDS_MAX * sizeof *ret + len + 1);
	char *copy = (char *)(ret + NEEDS_MAX), *word;
	size_t count = 0;

	memcpy(copy, line, len);
	while ((word = strsep(&copy, ": ")) && count < NEEDS_MAX - 1)
		if (*word)
			ret[count++] = word;
	return ret;
}

char **modprobe_find(const char *text, const char *name)
{
	for (const char *line = text; *line;) {
		size_t len = strcspn(line, "\n"), path = strcspn(line, ":\n");

		if (is_module(line, path, name))
			return split_line(line, len);
		line += len + (line[len] == '\n');
	}
	return NULL;
}

static int load_file(const char *path)
{
	_cleanup_free_ char *whole = xasprintf("%s/%s", folder, path);
	_cleanup_close_ int fd = open(whole, O_RDONLY | O_CLOEXEC);
	size_t len = strlen(path);
	int flags = len > 3 && !strcmp(path + len - 3, ".ko") ? 0 : COMPRESSED_FILE;

	if (fd < 0 || (syscall(SYS_finit_module, fd, "", flags) < 0 && errno != EEXIST))
		return -1;
	return 0;
}

static int load_module(const char *dep, const char *name)
{
	char **files = modprobe_find(dep, name);
	int status = files ? 0 : -1;
	size_t count = 0;

	while (files && files[count])
		count++;
	while (count--)
		status = load_file(files[count]);
	free(files);
	return status;
}

/* Lines "alias PATTERN MODULE": all modules whose pattern fits. */
static int load_alias(const char *dep, const char *name)
{
	_cleanup_free_ char *aliases = read_list("modules.alias");
	char *rest = aliases, *line;
	int status = -1;

	while ((line = strsep(&rest, "\n"))) {
		char *keyword = strsep(&line, " "), *pattern = strsep(&line, " ");

		if (!line || strcmp(keyword, "alias") != 0)
			continue;
		if (fnmatch(pattern, name, 0) == 0 && load_module(dep, line) == 0)
			status = 0;
	}
	return status;
}

int modprobe_main(int argc, char **argv)
{
	_cleanup_free_ char *dep = NULL;
	struct utsname machine;
	int status = 1;

	if (uname(&machine) < 0)
		return 1;
	folder = xasprintf("/lib/modules/%s", machine.release);
	dep = read_list("modules.dep");
	for (int i = 1; i < argc; i++) {
		if (argv[i][0] == '-')
			continue;
		status = load_module(dep, argv[i]) == 0 || load_alias(dep, argv[i]) == 0 ? 0 : 1;
		break;
	}
	free(folder);
	return status;
}
