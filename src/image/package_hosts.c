/* package_hosts.c - where package managers keep their settings; see package_hosts.h
 *
 * The layers are read as one read-only tree (view.h), so that a file removed by a layer is not
 * seen. Symbolic links are followed inside of that tree only. For each manager its configuration
 * files are read; if neither these nor the environment replace its default, the default is
 * searched in the manager's own files: the line of its program text that sets it. A manager that
 * is not in the image therefore adds nothing. */
#include "image/package_hosts_internal.h"
#include "base/text.h"
#include "view/view.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
	FILES_MAX = 500,
	FILE_BYTES = 1024 * 1024,
	CODE_BYTES = 8 * 1024 * 1024, /* programs in one file: yarn, composer */
	CODE_CHUNK = 64 * 1024,
	CODE_TAIL = 2048,  /* bytes read behind a mark */
	ENTRIES_MAX = 500, /* entries read of a folder */
	ENTRIES_ALL = 5000,
	PATH_LEN = 512,
};

/* Homes of other users are read as well, but settings there do not replace root's default. */
#define HOME "home/*/"

static const struct source {
	const char *manager;
	enum host_format format;
	const char *keys;
	const char *paths[12]; /* '*' matches in one component; NULL ends */
} sources[] = {
	{ "apt", FORMAT_DEB, NULL, { "etc/apt/sources.list", "etc/apt/sources.list.d/*.list" } },
	{ "apt", FORMAT_KEYS, "URIs", { "etc/apt/sources.list.d/*.sources" } },
	{ "apt", FORMAT_URLS, NULL, { "etc/apt/mirrors/*.list" } },
	{ "apt", FORMAT_PROXY, NULL, { "etc/apt/apt.conf", "etc/apt/apt.conf.d/*" } },
	{ "pip", FORMAT_KEYS, "!index-url extra-index-url find-links",
		{ "etc/pip.conf", "etc/xdg/pip/pip.conf", "root/.pip/pip.conf",
			"root/.config/pip/pip.conf", "usr/pip.conf", "usr/local/pip.conf",
			"opt/*/pip.conf", HOME ".pip/pip.conf", HOME ".config/pip/pip.conf" } },
	{ "npm", FORMAT_KEYS, "!registry",
		{ "etc/npmrc", "usr/etc/npmrc", "usr/local/etc/npmrc",
			"usr/lib/node_modules/npm/npmrc", "usr/local/lib/node_modules/npm/npmrc",
			"usr/share/nodejs/npm/npmrc", "root/.npmrc", HOME ".npmrc" } },
	{ "yarn", FORMAT_KEYS, "!registry !npmRegistryServer",
		{ "etc/yarnrc", "usr/local/etc/yarnrc", "root/.yarnrc", "root/.yarnrc.yml",
			HOME ".yarnrc", HOME ".yarnrc.yml" } },
	{ "apk", FORMAT_URLS, NULL,
		{ "etc/apk/repositories", "etc/apk/repositories.d/*",
			"lib/apk/repositories.d/*" } },
	{ "dnf", FORMAT_KEYS, "baseurl mirrorlist metalink",
		{ "etc/yum.repos.d/*.repo", "etc/zypp/repos.d/*.repo",
			"etc/distro.repos.d/*.repo" } },
	{ "dnf", FORMAT_KEYS, "proxy", { "etc/dnf/dnf.conf", "etc/yum.conf" } },
	{ "pacman", FORMAT_KEYS, "Server", { "etc/pacman.conf", "etc/pacman.d/*" } },
	{ "cargo", FORMAT_URLS, NULL,
		{ "root/.cargo/config.toml", "root/.cargo/config", "usr/local/cargo/config.toml",
			"usr/local/cargo/config", HOME ".cargo/config.toml",
			HOME ".cargo/config" } },
	{ "gem", FORMAT_KEYS, "!:sources sources",
		{ "etc/gemrc", "usr/local/etc/gemrc", "root/.gemrc", "root/.config/gem/gemrc",
			HOME ".gemrc" } },
	{ "gem", FORMAT_URLS, NULL, { "usr/local/bundle/config", "root/.bundle/config" } },
	{ "go", FORMAT_KEYS, "!GOPROXY @GOSUMDB",
		{ "usr/local/go/go.env", "usr/lib/go/go.env", "usr/lib/go-*/go.env",
			"root/.config/go/env", HOME ".config/go/env" } },
	{ "composer", FORMAT_URLS, NULL,
		{ "root/.composer/config.json", "root/.config/composer/config.json",
			HOME ".config/composer/config.json" } },
};

/* Environment variables that package managers read. */
static const struct {
	const char *manager, *keys;
} variables[] = {
	{ "pip",
		"!PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS !UV_INDEX_URL !UV_DEFAULT_INDEX "
		"UV_EXTRA_INDEX_URL UV_INDEX" },
	{ "npm", "!npm_config_registry" },
	{ "yarn", "!YARN_REGISTRY !YARN_NPM_REGISTRY_SERVER" },
	{ "go", "!GOPROXY @GOSUMDB" },
};

/* Where the files of a manager contain its default. */
static const struct default_source {
	const char *manager;
	const char *mark; /* the text behind it is read */
	char until;	  /* see hosts_read_code */
	const char *paths[10];
} defaults[] = {
	{ "pip", "\nPyPI = PackageIndex(", ')',
		{ "usr/lib/python3*/*-packages/pip/_internal/models/index.py",
			"usr/local/lib/python3*/*-packages/pip/_internal/models/index.py",
			"opt/*/lib/python3*/site-packages/pip/_internal/models/index.py",
			"root/.pyenv/versions/*/lib/python3*/site-packages/pip/_internal/models/"
			"index.py" } },
	{ "npm", "'registry', {", 0,
		{ "usr/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/"
		  "definitions.js",
			"usr/local/lib/node_modules/npm/node_modules/@npmcli/config/lib/"
			"definitions/definitions.js",
			"usr/share/nodejs/@npmcli/config/lib/definitions/definitions.js",
			"root/.nvm/versions/node/*/lib/node_modules/npm/node_modules/@npmcli/"
			"config/lib/definitions/definitions.js",
			"usr/lib/node_modules/npm/lib/utils/config/definitions.js",
			"usr/local/lib/node_modules/npm/lib/utils/config/definitions.js",
			"usr/share/nodejs/npm/lib/utils/config/definitions.js",
			"root/.nvm/versions/node/*/lib/node_modules/npm/lib/utils/config/"
			"definitions.js" } },
	{ "npm", "registry: '", 0,
		{ "usr/lib/node_modules/npm/lib/config/defaults.js",
			"usr/local/lib/node_modules/npm/lib/config/defaults.js",
			"usr/share/npm/lib/config/defaults.js" } },
	{ "npm", "registry:", 0,
		{ "usr/lib/node_modules/npm/node_modules/npm-registry-fetch/lib/default-opts.js",
			"usr/share/nodejs/npm-registry-fetch/lib/default-opts.js" } },
	{ "yarn", "YARN_REGISTRY = ", 0,
		{ "opt/yarn*/lib/cli.js", "usr/share/yarn/lib/cli.js",
			"usr/local/lib/node_modules/yarn/lib/cli.js",
			"usr/lib/node_modules/yarn/lib/cli.js" } },
	{ "gem", "default_sources", 0,
		{ "usr/lib/ruby/*/rubygems/defaults.rb",
			"usr/local/lib/ruby/*/rubygems/defaults.rb",
			"usr/share/rubygems/rubygems/defaults.rb",
			"usr/share/ruby/rubygems/defaults.rb" } },
	{ "gem", "def fetch_uri", '}',
		{ "usr/lib/ruby/*/bundler/fetcher/base.rb",
			"usr/local/lib/ruby/*/bundler/fetcher/base.rb" } },
	{ "go", "\"GOPROXY\", ", 0,
		{ "usr/local/go/src/cmd/go/internal/cfg/cfg.go",
			"usr/lib/go*/src/cmd/go/internal/cfg/cfg.go" } },
	{ "composer", "$defaultRepositories", 0,
		{ "usr/share/php/Composer/Config.php", "usr/local/bin/composer",
			"usr/bin/composer" } },
};

struct search {
	int root;
	unsigned files, entries;
	struct found *found;
};

/* ---- the tree ------------------------------------------------------------------------------- */

static int open_in(const struct search *search, const char *path, int flags)
{
	struct open_how how = {
		.flags = (unsigned)(flags | O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC),
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, search->root, path, &how, sizeof how);
}

/* -1 when it is no regular file, too large, or over the limit of files. */
static int open_file(struct search *search, const char *path, off_t most)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (search->files >= FILES_MAX)
		return -1;
	fd = open_in(search, path, 0);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > most)
		return -1;
	search->files++;
	return steal_fd(&fd);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names in folder that match the pattern, sorted, so that the choice is the same each time if
 * there are too many. */
static char **list_folder(struct search *search, const char *folder, const char *pattern)
{
	char **names = xnew(char *);
	int fd = open_in(search, *folder ? folder : ".", O_DIRECTORY);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	unsigned looked = 0;

	if (!dir && fd >= 0)
		close(fd);
	while (dir && looked++ < ENTRIES_MAX && search->entries++ < ENTRIES_ALL &&
		(entry = readdir(dir)))
		if (!fnmatch(pattern, entry->d_name, FNM_PERIOD))
			strv_add(&names, entry->d_name);
	if (dir)
		closedir(dir);
	qsort(names, strv_len((const char *const *)names), sizeof *names, compare_names);
	return names;
}

/* Calls fn with each path that matches the pattern, one star after the other. */
static void each_path(struct search *search, const char *pattern,
	void (*fn)(struct search *, const char *path, const void *arg), const void *arg)
{
	size_t star = strcspn(pattern, "*"), start = star, end;
	_cleanup_free_ char *folder = NULL, *component = NULL;
	_cleanup_strv_ char **names = NULL;

	if (!pattern[star])
		return fn(search, pattern, arg);
	while (start && pattern[start - 1] != '/')
		start--;
	end = star + strcspn(pattern + star, "/");
	folder = xstrndup(pattern, start);
	component = xstrndup(pattern + start, end - start);
	names = list_folder(search, folder, component);
	for (size_t i = 0; names[i]; i++) {
		char path[PATH_LEN];

		/* A name with a star in it would be used as a pattern. */
		if (!strchr(names[i], '*') && snprintf(path, sizeof path, "%s%s%s", folder,
						      names[i], pattern + end) < (int)sizeof path)
			each_path(search, path, fn, arg);
	}
}

/* ---- reading -------------------------------------------------------------------------------- */

static void read_config(struct search *search, const char *path, const void *arg)
{
	const struct source *source = arg;
	_cleanup_close_ int fd = open_file(search, path, FILE_BYTES);
	_cleanup_free_ char *text = NULL;
	bool replaced = search->found->replaced;
	size_t len = 0;
	ssize_t got;

	if (fd < 0)
		return;
	text = xcalloc(FILE_BYTES + 1, 1);
	while (len < FILE_BYTES && (got = read(fd, text + len, FILE_BYTES - len)) > 0)
		len += (size_t)got;
	hosts_read(source->format, source->keys, text, search->found);
	if (text_has_prefix(path, "home/"))
		search->found->replaced = replaced;
}

/* Searches the mark piece by piece: such files may be large, and the mark may be anywhere. */
static void read_default(struct search *search, const char *path, const void *arg)
{
	const struct default_source *source = arg;
	size_t mark = strlen(source->mark), len = 0;
	_cleanup_close_ int fd = open_file(search, path, CODE_BYTES);
	_cleanup_free_ char *text = NULL;
	ssize_t got;

	if (fd < 0)
		return;
	text = xcalloc(CODE_CHUNK + 1, 1);
	for (;;) {
		const char *at;

		got = read(fd, text + len, CODE_CHUNK - len);
		if (got <= 0 && !len)
			return;
		len += got > 0 ? (size_t)got : 0;
		text[len] = '\0';
		at = memmem(text, len, source->mark, mark);
		if (at && (got <= 0 || (size_t)(text + len - at) >= CODE_TAIL))
			return hosts_read_code(at + mark, source->until, search->found);
		if (got <= 0)
			return;
		if (!at)
			at = text + len - MIN(len, mark - 1);
		/* Keeps what may be the beginning of the mark, or follows it. */
		len = (size_t)(text + len - at);
		memmove(text, at, len);
	}
}

static void read_env(const json_t *env, const char *manager, struct found *found)
{
	const json_t *pair;
	size_t i;

	json_array_foreach ((json_t *)env, i, pair) {
		const char *text = json_string_value(pair);

		for (size_t v = 0; text && v < ARRAY_LEN(variables); v++)
			if (!strcmp(variables[v].manager, manager))
				hosts_read(FORMAT_KEYS, variables[v].keys, text, found);
	}
}

static void search_manager(struct search *search, const char *manager, const json_t *env)
{
	search->found->replaced = false;
	for (size_t i = 0; i < ARRAY_LEN(sources); i++)
		for (size_t p = 0; !strcmp(sources[i].manager, manager) && sources[i].paths[p]; p++)
			each_path(search, sources[i].paths[p], read_config, &sources[i]);
	read_env(env, manager, search->found);
	if (search->found->replaced)
		return;
	for (size_t i = 0; i < ARRAY_LEN(defaults); i++)
		for (size_t p = 0; !strcmp(defaults[i].manager, manager) && defaults[i].paths[p];
			p++)
			each_path(search, defaults[i].paths[p], read_default, &defaults[i]);
}

char **package_hosts_find(const char *const *layers, const json_t *env, struct err *err)
{
	struct found found = { 0 };
	struct search search = { .root = -1, .found = &found };

	if (!layers[0])
		return xnew(char *);
	if (view_open(layers, &search.root, err) < 0) {
		err_wrap(err, "look for package hosts");
		return NULL;
	}
	for (size_t i = 0; i < ARRAY_LEN(sources); i++)
		if (!i || strcmp(sources[i].manager, sources[i - 1].manager))
			search_manager(&search, sources[i].manager, env);
	close(search.root);
	return found.hosts ? found.hosts : xnew(char *);
}
