/* conf.c - see conf.h: defaults, then the file, then the environment */
#include "conf/conf.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/special.h"
#include "base/strv.h"
#include "base/text.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#define DEFAULT_HOME   "/var/lib/boxyard"
#define DEFAULT_RUN    "/run/boxyard"
#define DEFAULT_LISTEN "127.0.0.1:30001"
#define DEFAULT_FILE   "/etc/boxyard.conf"
#define DEFAULT_SSH    "127.0.0.1:30022"
#define DAY_MS	       86400000ULL

static void replace(char **slot, const char *text)
{
	free(*slot);
	*slot = xstrdup(text);
}

static int set_path(char **slot, const char *what, const char *value, struct err *err)
{
	size_t len = strlen(value);

	if (value[0] != '/' || len > 80)
		return err_set(err, ERR_INVALID,
			"%s '%.100s' must be an absolute path of at most 80 bytes", what, value);
	while (len > 1 && value[len - 1] == '/')
		len--;
	free(*slot);
	*slot = xstrndup(value, len);
	return 0;
}

static int set_home(struct conf *conf, const char *value, struct err *err)
{
	return set_path(&conf->home, "home", value, err);
}

static int set_run(struct conf *conf, const char *value, struct err *err)
{
	return set_path(&conf->run, "run", value, err);
}

static int set_group(struct conf *conf, const char *value, struct err *err)
{
	if (name_check("group", value, err) < 0)
		return -1;
	replace(&conf->group, value);
	return 0;
}

/* Splits [ADDRESS]:PORT or ADDRESS:PORT; *ret_address is yours. */
static int split_listen(const char *what, const char *value, char **ret_address, uint16_t *ret_port,
	struct err *err)
{
	const char *colon = strrchr(value, ':');
	uint64_t port;

	if (!colon || colon == value)
		return err_set(
			err, ERR_INVALID, "%s '%.80s' must be ADDRESS:PORT or off", what, value);
	if (parse_u64("port", colon + 1, 0, 65535, &port, err) < 0)
		return err_wrap(err, "%s", what);
	*ret_address = value[0] == '[' && colon[-1] == ']'
			       ? xstrndup(value + 1, (size_t)(colon - value - 2))
			       : xstrndup(value, (size_t)(colon - value));
	*ret_port = (uint16_t)port;
	return 0;
}

static bool is_address(const char *text)
{
	struct in6_addr ignored;

	return inet_pton(AF_INET, text, &ignored) == 1 || inet_pton(AF_INET6, text, &ignored) == 1;
}

static int set_listen(struct conf *conf, const char *value, struct err *err)
{
	_cleanup_free_ char *address = NULL;
	uint16_t port;

	if (!strcmp(value, "off")) {
		conf->listen_tcp = false;
		return 0;
	}
	if (split_listen("listen", value, &address, &port, err) < 0)
		return -1;
	if (!is_address(address))
		return err_set(err, ERR_INVALID,
			"listen '%.80s' must begin with an IPv4 address or [IPv6 address]", value);
	conf->listen_tcp = true;
	conf->port = port;
	replace(&conf->address, address);
	return 0;
}

static int set_url_listen(struct conf *conf, const char *value, struct err *err)
{
	char *address = NULL;

	if (strcmp(value, "off") &&
		split_listen("url_listen", value, &address, &conf->url_port, err) < 0)
		return -1;
	free(conf->url_listen);
	conf->url_listen = address;
	return 0;
}

/* Stored in lower case, because it is compared with what browsers send. */
static int set_url_domain(struct conf *conf, const char *value, struct err *err)
{
	size_t len = strlen(value);

	if (len > 180 || strspn(value, "abcdefghijklmnopqrstuvwxyz0123456789-.") != len ||
		*value == '.' || *value == '-' || (len && value[len - 1] == '.') ||
		strstr(value, ".."))
		return err_set(err, ERR_INVALID,
			"url_domain '%.100s' must be a domain in lower case, like boxes.example",
			value);
	replace(&conf->url_domain, value);
	return 0;
}

static int set_pem(char **slot, const char *what, const char *value, struct err *err)
{
	if (*value && *value != '/')
		return err_set(
			err, ERR_INVALID, "%s '%.100s' must be an absolute path", what, value);
	replace(slot, value);
	return 0;
}

static int set_url_certificate(struct conf *conf, const char *value, struct err *err)
{
	return set_pem(&conf->url_certificate, "url_certificate", value, err);
}

static int set_url_key(struct conf *conf, const char *value, struct err *err)
{
	return set_pem(&conf->url_key, "url_key", value, err);
}

static int set_ssh_ca(struct conf *conf, const char *value, struct err *err)
{
	return set_pem(&conf->ssh_ca, "ssh_ca", value, err);
}

static int set_ssh_listen(struct conf *conf, const char *value, struct err *err)
{
	_cleanup_free_ char *address = NULL;
	uint16_t port = 0;

	if (strcmp(value, "off")) {
		if (split_listen("ssh_listen", value, &address, &port, err) < 0)
			return -1;
		if (!is_address(address))
			return err_set(err, ERR_INVALID,
				"ssh_listen '%.80s' must begin with an IPv4 address or [IPv6 "
				"address]",
				value);
	}
	free(conf->ssh_listen);
	conf->ssh_listen = steal_ptr(&address);
	conf->ssh_port = port;
	conf->ssh_given = true;
	return 0;
}

static int set_ssh_linger(struct conf *conf, const char *value, struct err *err)
{
	if (!strcmp(value, "never")) {
		conf->ssh_linger_ms = CONF_FOREVER;
		return 0;
	}
	if (parse_duration("ssh_linger", value, 0, 366 * DAY_MS, &conf->ssh_linger_ms, err) < 0)
		return err_hint(err, "a time like 1h, 0, or never");
	return 0;
}

static int set_ssh_agent(struct conf *conf, const char *value, struct err *err)
{
	bool on = !strcmp(value, "on");

	if (!on && strcmp(value, "off"))
		return err_set(err, ERR_INVALID, "ssh_agent '%.40s' must be on or off", value);
	conf->ssh_agent = on;
	return 0;
}

static int set_listen_certificate(struct conf *conf, const char *value, struct err *err)
{
	return set_pem(&conf->listen_certificate, "listen_certificate", value, err);
}

static int set_listen_key(struct conf *conf, const char *value, struct err *err)
{
	return set_pem(&conf->listen_key, "listen_key", value, err);
}

/* Without TLS, tokens travel in the clear, so the daemon may listen on loopback only. */
static int check_listen(const struct conf *conf, struct err *err)
{
	bool loopback = !conf->listen_tcp || host_is_loopback(conf->address);

	if (!*conf->listen_certificate != !*conf->listen_key)
		return err_set(err, ERR_INVALID,
			"listen_certificate and listen_key belong together: set both");
	if (loopback || *conf->listen_certificate)
		return 0;
	err_set(err, ERR_INVALID,
		"listen on %s, which is not a loopback address (127.x.x.x or ::1), needs TLS",
		conf->address);
	return err_hint(err, "set listen_certificate and listen_key (BOX_LISTEN_CERTIFICATE, "
			     "BOX_LISTEN_KEY) to PEM files");
}

static int check_url(const struct conf *conf, struct err *err)
{
	if (conf->url_listen && (!*conf->url_certificate || !*conf->url_key))
		return err_set(err, ERR_INVALID, "url_listen needs url_certificate and url_key");
	return 0;
}

static int set_log_level(struct conf *conf, const char *value, struct err *err)
{
	int level = log_level_from_name(value);

	if (level < 0)
		return err_set(err, ERR_INVALID,
			"log_level '%.40s' must be debug, info, warn or error", value);
	conf->log_level = level;
	return 0;
}

static int set_max_boxes(struct conf *conf, const char *value, struct err *err)
{
	return parse_u64("max_boxes", value, 1, 16384, &conf->max_boxes, err);
}

static int set_spares(struct conf *conf, const char *value, struct err *err)
{
	return parse_u64("spares", value, 0, CONF_SPARES_MAX, &conf->spares, err);
}

static int set_sleep(const char *what, const char *value, uint64_t *ret, struct err *err)
{
	if (!strcmp(value, "off")) {
		*ret = 0;
		return 0;
	}
	return parse_duration(what, value, 1000, UINT64_C(366) * 86400 * 1000, ret, err);
}

static int set_idle_suspend(struct conf *conf, const char *value, struct err *err)
{
	return set_sleep("idle_suspend", value, &conf->idle_suspend_ms, err);
}

static int set_idle_hibernate(struct conf *conf, const char *value, struct err *err)
{
	return set_sleep("idle_hibernate", value, &conf->idle_hibernate_ms, err);
}

static int set_default_memory(struct conf *conf, const char *value, struct err *err)
{
	return parse_size("default_memory", value, 0, UINT64_MAX >> 2, &conf->default_memory, err);
}

static int set_default_pids(struct conf *conf, const char *value, struct err *err)
{
	return parse_u64("default_pids", value, 0, 4194304, &conf->default_pids, err);
}

static int set_default_cpu(struct conf *conf, const char *value, struct err *err)
{
	if (!strcmp(value, "0")) {
		conf->default_cpu_milli = 0;
		return 0;
	}
	return parse_cpus("default_cpu", value, &conf->default_cpu_milli, err);
}

static int set_default_disk(struct conf *conf, const char *value, struct err *err)
{
	return parse_size("default_disk", value, 0, UINT64_MAX >> 2, &conf->default_disk, err);
}

static int set_pool(struct conf *conf, const char *value, struct err *err)
{
	static const char *const modes[] = { "auto", "native", "loop", "folder" };

	for (size_t i = 0; i < ARRAY_LEN(modes); i++)
		if (!strcmp(modes[i], value)) {
			replace(&conf->pool, value);
			return 0;
		}
	return err_set(
		err, ERR_INVALID, "pool '%.40s' must be auto, native, loop or folder", value);
}

static int set_pool_size(struct conf *conf, const char *value, struct err *err)
{
	return parse_size("pool_size", value, 0, UINT64_MAX >> 2, &conf->pool_size, err);
}

static int set_pool_max(struct conf *conf, const char *value, struct err *err)
{
	return parse_size("pool_max", value, 0, UINT64_MAX >> 2, &conf->pool_max, err);
}

static int set_spare_disks(struct conf *conf, const char *value, struct err *err)
{
	return parse_u64("spare_disks", value, 0, 64, &conf->spare_disks, err);
}

/* Splits a list; empty parts are skipped. */
static void split(const char *value, const char *separator, char ***list)
{
	_cleanup_free_ char *text = xstrdup(value);
	char *rest = text, *part;

	strv_free(*list);
	*list = NULL;
	while ((part = strsep(&rest, separator)))
		if (*part)
			strv_add(list, part);
}

static int set_mount_roots(struct conf *conf, const char *value, struct err *err)
{
	_cleanup_strv_ char **words = NULL;

	split(value, ":", &words);
	strv_free(conf->mount_roots);
	conf->mount_roots = NULL;
	conf->mount_own = false;
	for (size_t i = 0; words && words[i]; i++) {
		if (!strcmp(words[i], "own"))
			conf->mount_own = true;
		else if (words[i][0] == '/')
			strv_add(&conf->mount_roots, words[i]);
		else if (strcmp(words[i], "none") || words[1])
			return err_set(err, ERR_INVALID,
				"mount_roots: '%.100s' is not an absolute path, 'own' or 'none'",
				words[i]);
	}
	return 0;
}

static int set_registry(struct conf *conf, const char *value, struct err *err)
{
	size_t len = strlen(value);

	if (len > 255 ||
		strspn(value,
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]/_") !=
			len ||
		*value == '-' || *value == '/' || strstr(value, "//"))
		return err_set(
			err, ERR_INVALID, "registry '%.100s' must be HOST or HOST:PORT", value);
	replace(&conf->registry, value);
	return 0;
}

static int set_registry_auth(struct conf *conf, const char *value, struct err *err)
{
	if (*value && *value != '/')
		return err_set(
			err, ERR_INVALID, "registry_auth '%.100s' must be an absolute path", value);
	replace(&conf->registry_auth, value);
	return 0;
}

static int set_insecure(struct conf *conf, const char *value, struct err *err)
{
	(void)err;
	split(value, ", ", &conf->registries_insecure);
	return 0;
}

static int set_ca_certificates(struct conf *conf, const char *value, struct err *err)
{
	if (strcmp(value, "machine") && strcmp(value, "none") && *value != '/')
		return err_set(err, ERR_INVALID,
			"ca_certificates '%.100s' must be machine, none or the absolute path of a "
			"PEM file",
			value);
	replace(&conf->ca_certificates, value);
	return 0;
}

/* The policy parser checks a text here; a policy file is read when it is needed. */
static int set_default_policy(struct conf *conf, const char *value, struct err *err)
{
	if (!*value)
		return err_set(err, ERR_INVALID, "default_policy must be a preset or a file");
	replace(&conf->default_policy, value);
	return 0;
}

static int set_inside_depth(struct conf *conf, const char *value, struct err *err)
{
	return parse_u64("inside_fork_depth", value, 0, 64, &conf->inside_fork_depth, err);
}

static int set_inside_count(struct conf *conf, const char *value, struct err *err)
{
	return parse_u64("inside_fork_count", value, 0, 16384, &conf->inside_fork_count, err);
}

static int set_inside_rate(struct conf *conf, const char *value, struct err *err)
{
	return parse_u64("inside_fork_rate", value, 0, 1000000, &conf->inside_fork_rate, err);
}

/* Reads the words auto and off; false: it is neither, so a number is expected. */
static bool read_word(const char *value, uint64_t *ret)
{
	if (strcmp(value, "auto") != 0 && strcmp(value, "off") != 0)
		return false;
	*ret = *value == 'a' ? CONF_AUTO : 0;
	return true;
}

static int set_yard_memory(struct conf *conf, const char *value, struct err *err)
{
	if (read_word(value, &conf->yard_memory))
		return 0;
	if (parse_size("yard_memory", value, 64 << 20, INT64_MAX, &conf->yard_memory, err) < 0)
		return err_hint(err, "a size like 20G, auto or off");
	return 0;
}

static int set_yard_pids(struct conf *conf, const char *value, struct err *err)
{
	if (read_word(value, &conf->yard_pids))
		return 0;
	if (parse_u64("yard_pids", value, 64, 4 << 20, &conf->yard_pids, err) < 0)
		return err_hint(err, "a number of processes, auto or off");
	return 0;
}

static int set_driver(struct conf *conf, const char *value, struct err *err)
{
	(void)err;
	replace(&conf->driver, value);
	return 0;
}

static int set_vm_spares(struct conf *conf, const char *value, struct err *err)
{
	return parse_u64("vm_spares", value, 0, CONF_VM_SPARES_MAX, &conf->vm_spares, err);
}

static int set_vm_kernel(struct conf *conf, const char *value, struct err *err)
{
	if (*value && *value != '/')
		return err_set(
			err, ERR_INVALID, "vm_kernel '%.100s' must be an absolute path", value);
	replace(&conf->vm_kernel, value);
	return 0;
}

static int set_criu(struct conf *conf, const char *value, struct err *err)
{
	if (*value && *value != '/')
		return err_set(err, ERR_INVALID, "criu '%.100s' must be an absolute path", value);
	replace(&conf->criu, value);
	return 0;
}

static int set_resolv_conf(struct conf *conf, const char *value, struct err *err)
{
	if (*value != '/')
		return err_set(
			err, ERR_INVALID, "resolv_conf '%.100s' must be an absolute path", value);
	replace(&conf->resolv_conf, value);
	return 0;
}

static int set_hibernate(struct conf *conf, const char *value, struct err *err)
{
	bool yes = !strcmp(value, "yes");

	if (!yes && strcmp(value, "no"))
		return err_set(
			err, ERR_INVALID, "hibernate_on_shutdown '%.40s' must be yes or no", value);
	conf->hibernate_on_shutdown = yes;
	return 0;
}

static int set_snapshots_keep(struct conf *conf, const char *value, struct err *err)
{
	return parse_u64("snapshots_keep", value, 0, 10000, &conf->snapshots_keep, err);
}

static int set_snapshots_keep_age(struct conf *conf, const char *value, struct err *err)
{
	return parse_duration("snapshots_keep_age", value, 0, 3650ULL * DAY_MS,
		&conf->snapshots_keep_age_ms, err);
}

static const struct {
	const char *name;
	const char *variable;
	int (*set)(struct conf *conf, const char *value, struct err *err);
} keys[] = {
	{ "home", "BOX_HOME", set_home },
	{ "run", "BOX_RUN", set_run },
	{ "listen", "BOX_LISTEN", set_listen },
	{ "listen_certificate", "BOX_LISTEN_CERTIFICATE", set_listen_certificate },
	{ "listen_key", "BOX_LISTEN_KEY", set_listen_key },
	{ "log_level", "BOX_LOG_LEVEL", set_log_level },
	{ "spares", "BOX_SPARES", set_spares },
	{ "group", NULL, set_group },
	{ "max_boxes", NULL, set_max_boxes },
	{ "idle_suspend", "BOX_IDLE_SUSPEND", set_idle_suspend },
	{ "idle_hibernate", "BOX_IDLE_HIBERNATE", set_idle_hibernate },
	{ "default_memory", NULL, set_default_memory },
	{ "default_pids", NULL, set_default_pids },
	{ "default_cpu", NULL, set_default_cpu },
	{ "default_disk", NULL, set_default_disk },
	{ "yard_memory", "BOX_YARD_MEMORY", set_yard_memory },
	{ "yard_pids", "BOX_YARD_PIDS", set_yard_pids },
	{ "pool", "BOX_POOL", set_pool },
	{ "pool_size", "BOX_POOL_SIZE", set_pool_size },
	{ "pool_max", "BOX_POOL_MAX", set_pool_max },
	{ "spare_disks", "BOX_SPARE_DISKS", set_spare_disks },
	{ "mount_roots", "BOX_MOUNT_ROOTS", set_mount_roots },
	{ "registry", "BOX_REGISTRY", set_registry },
	{ "registry_auth", NULL, set_registry_auth },
	{ "insecure_registries", "BOX_INSECURE_REGISTRIES", set_insecure },
	{ "default_policy", "BOX_DEFAULT_POLICY", set_default_policy },
	{ "ca_certificates", "BOX_CA_CERTIFICATES", set_ca_certificates },
	{ "resolv_conf", "BOX_RESOLV_CONF", set_resolv_conf },
	{ "driver", "BOX_DRIVER", set_driver },
	{ "criu", "BOX_CRIU", set_criu },
	{ "vm_kernel", "BOX_VM_KERNEL", set_vm_kernel },
	{ "vm_spares", "BOX_VM_SPARES", set_vm_spares },
	{ "inside_fork_depth", NULL, set_inside_depth },
	{ "inside_fork_count", NULL, set_inside_count },
	{ "inside_fork_rate", NULL, set_inside_rate },
	{ "url_domain", "BOX_URL_DOMAIN", set_url_domain },
	{ "url_listen", "BOX_URL_LISTEN", set_url_listen },
	{ "url_certificate", "BOX_URL_CERTIFICATE", set_url_certificate },
	{ "url_key", "BOX_URL_KEY", set_url_key },
	{ "ssh_ca", "BOX_SSH_CA", set_ssh_ca },
	{ "ssh_listen", "BOX_SSH_LISTEN", set_ssh_listen },
	{ "ssh_linger", "BOX_SSH_LINGER", set_ssh_linger },
	{ "ssh_agent", "BOX_SSH_AGENT", set_ssh_agent },
	{ "hibernate_on_shutdown", "BOX_HIBERNATE_ON_SHUTDOWN", set_hibernate },
	{ "snapshots_keep", "BOX_SNAPSHOTS_KEEP", set_snapshots_keep },
	{ "snapshots_keep_age", "BOX_SNAPSHOTS_KEEP_AGE", set_snapshots_keep_age },
};

static char *trim(char *text)
{
	char *end;

	text += strspn(text, " \t\r");
	end = text + strlen(text);
	while (end > text && strchr(" \t\r", end[-1]))
		*--end = '\0';
	return text;
}

static int set_key(struct conf *conf, const char *name, const char *value, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (!strcmp(keys[i].name, name))
			return keys[i].set(conf, value, err);
	return err_set(err, ERR_INVALID, "unknown key '%.60s'", name);
}

static int read_text(struct conf *conf, char *text, struct err *err)
{
	char *rest = text, *line;
	unsigned number = 0;

	while ((line = strsep(&rest, "\n"))) {
		char *equals;

		number++;
		line = trim(line);
		if (!*line || *line == '#')
			continue;
		equals = strchr(line, '=');
		if (!equals)
			return err_set(err, ERR_INVALID, "line %u: expected key = value", number);
		*equals = '\0';
		if (set_key(conf, trim(line), trim(equals + 1), err) < 0)
			return err_wrap(err, "line %u", number);
	}
	return 0;
}

static int read_file(struct conf *conf, struct err *err)
{
	const char *path = getenv("BOX_CONF");
	_cleanup_free_ char *text = NULL;

	if (file_read(AT_FDCWD, path ? path : DEFAULT_FILE, 65536, &text, NULL, err) < 0)
		return !path && err->errno_value == ENOENT ? 0 : -1;
	if (read_text(conf, text, err) < 0)
		return err_wrap(err, "%s", path ? path : DEFAULT_FILE);
	return 0;
}

static int read_environment(struct conf *conf, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const char *value = keys[i].variable ? getenv(keys[i].variable) : NULL;

		if (value && *value && keys[i].set(conf, value, err) < 0)
			return err_wrap(err, "%s", keys[i].variable);
	}
	return 0;
}

/* Two daemons with different homes must not share cgroups: every home but the default one gets its
 * own name. */
static char *instance_name(const char *home)
{
	uint32_t hash = 2166136261u;

	if (!strcmp(home, DEFAULT_HOME))
		return xstrdup("boxyard");
	for (const char *p = home; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 16777619u;
	return xasprintf("boxyard-%08x", hash);
}

/* BOX_HOME in the environment means the daemon of that home, not the one whose sockets are in the
 * default place. A home set in the file is this machine's default home. */
static void derive_run(struct conf *conf)
{
	const char *home = getenv("BOX_HOME");

	conf->home_given = home && *home;
	if (!conf->home_given || strcmp(conf->run, DEFAULT_RUN) || getenv("BOX_RUN") ||
		!strcmp(conf->home, DEFAULT_HOME))
		return;
	free(conf->run);
	conf->run = xasprintf("%s/run", conf->home);
}

static int set_listeners(struct conf *conf, struct err *err)
{
	if (set_listen(conf, DEFAULT_LISTEN, err) < 0 || set_ssh_listen(conf, DEFAULT_SSH, err) < 0)
		return -1;
	conf->ssh_given = false;
	return 0;
}

/* Several daemons on one machine: those that BOX_HOME chooses leave the well-known port to the one
 * in the default home. */
static void derive_ssh(struct conf *conf)
{
	if (!conf->ssh_given && conf->home_given && strcmp(conf->home, DEFAULT_HOME))
		conf->ssh_port = 0;
	conf->ssh_socket = xasprintf("%s/ssh.sock", conf->run);
}

int conf_load(struct conf *ret, struct err *err)
{
	struct conf conf = { .log_level = LOG_LEVEL_INFO,
		.max_boxes = 4096,
		.default_pids = 4096,
		.yard_memory = CONF_AUTO,
		.yard_pids = CONF_AUTO,
		.idle_suspend_ms = 30 * 1000,
		.idle_hibernate_ms = 15 * 60 * 1000,
		.spares = 2,
		.vm_spares = 2,
		.snapshots_keep = 20,
		.snapshots_keep_age_ms = 7ULL * DAY_MS,
		.spare_disks = 4,
		.mount_own = true,
		.inside_fork_depth = 3,
		.inside_fork_count = 10,
		.inside_fork_rate = 30,
		.ssh_linger_ms = 3600 * 1000 };

	conf.home = xstrdup(DEFAULT_HOME);
	conf.run = xstrdup(DEFAULT_RUN);
	conf.group = xstrdup("boxyard");
	conf.pool = xstrdup("auto");
	conf.registry = xstrdup("");
	conf.registry_auth = xstrdup("");
	conf.url_domain = xstrdup("");
	conf.listen_certificate = xstrdup("");
	conf.listen_key = xstrdup("");
	conf.ssh_ca = xstrdup("");
	conf.url_certificate = xstrdup("");
	conf.url_key = xstrdup("");
	conf.default_policy = xstrdup("dev");
	conf.ca_certificates = xstrdup("machine");
	conf.resolv_conf = xstrdup("/etc/resolv.conf");
	conf.driver = xstrdup("");
	conf.criu = xstrdup("");
	conf.vm_kernel = xstrdup("");
	if (set_listeners(&conf, err) < 0 || read_file(&conf, err) < 0 ||
		read_environment(&conf, err) < 0 || check_listen(&conf, err) < 0 ||
		check_url(&conf, err) < 0) {
		conf_done(&conf);
		return -1;
	}
	err_clear(err);
	derive_run(&conf);
	conf.name = instance_name(conf.home);
	conf.socket = xasprintf("%s/box.sock", conf.run);
	derive_ssh(&conf);
	*ret = conf;
	return 0;
}

void conf_done(struct conf *conf)
{
	free(conf->home);
	free(conf->run);
	free(conf->name);
	free(conf->socket);
	free(conf->ssh_socket);
	free(conf->ssh_listen);
	free(conf->group);
	free(conf->address);
	free(conf->pool);
	free(conf->registry);
	free(conf->registry_auth);
	free(conf->url_domain);
	free(conf->url_listen);
	free(conf->listen_certificate);
	free(conf->listen_key);
	free(conf->ssh_ca);
	free(conf->url_certificate);
	free(conf->url_key);
	free(conf->default_policy);
	free(conf->ca_certificates);
	free(conf->resolv_conf);
	free(conf->driver);
	free(conf->criu);
	free(conf->vm_kernel);
	strv_free(conf->mount_roots);
	strv_free(conf->registries_insecure);
	*conf = (struct conf){ 0 };
}
