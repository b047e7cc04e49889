/* rig.c - see rig.h: the folder, the image, the daemon, and commands to it
 *
 * The daemon is this program again, with a home and a run folder of its own. Its image contains
 * only box-attacker, so no image of the installation is needed or changed. */
#include "attack/rig.h"
#include "attack/rig_links.h"
#include "attack/witness.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/signals.h"
#include "base/strv.h"
#include "sys/netns.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define IMAGE_ID "attackimag"

/* COMMAND_MS: a box on an emulated processor takes ten times as long. */
enum { START_MS = 20000, COMMAND_MS = 90000, OUTPUT_MAX = 4 * 1024 * 1024 };

/* Embedded by the build; a program without it (a unit test) cannot run attacks. */
extern const unsigned char attacker_start[] __attribute__((weak));
extern const unsigned char attacker_end[] __attribute__((weak));

static const uint16_t world_ports[] = { 22, 25, 53, 80, 443, 853, 5432, 7777, 8080, 8443, 9000, 0 };
static const uint16_t host_ports[] = { 53, 80, RIG_HOST_PORT, RIG_HOST_PORT2, 0 };

static volatile sig_atomic_t stopping;

static void on_signal(int number)
{
	stopping = number;
}

bool rig_is_stopping(void)
{
	return stopping;
}

static void catch_signals(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };

	signals_catch(numbers, ARRAY_LEN(numbers), on_signal, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* ---- the namespaces ------------------------------------------------------------------------- */

static int start_world(void *arg, struct err *err)
{
	const struct witness_spec spec = { .link = "up0", .ports = world_ports };

	return witness_start(&spec, arg, err);
}

int rig_open(struct rig *ret, struct err *err)
{
	const struct witness_spec host = { .ports = host_ports, .unix_socket = RIG_UNIX };
	_cleanup_close_ int world = -1;
	struct rig rig = { 0 };

	catch_signals();
	if (rig_links_make(&world, err) < 0 || netns_call(world, start_world, &rig.world, err) < 0)
		return -1;
	if (witness_start(&host, &rig.host, err) < 0) {
		witness_stop(rig.world);
		return -1;
	}
	*ret = rig;
	return 0;
}

/* ---- the folder ----------------------------------------------------------------------------- */

static int write_text(const char *folder, const char *name, mode_t mode, const void *data,
	size_t len, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", folder, name);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

	if (fd < 0)
		return err_sys(err, errno, "make '%s'", path);
	return fd_write_all(fd, data, len, err);
}

static int make_image(const char *folder, struct err *err)
{
	static const char *const folders[] = { "bin", "dev", "etc", "proc", "root", "run", "sys",
		"tmp", "var" };
	static const char record[] =
		"{\"id\":\"" IMAGE_ID "\",\"name\":\"" RIG_IMAGE "\",\"origin\":\"box "
		"attack\",\"created_us\":1,\"size\":1,\"files\":1,\"packages\":[]}";
	_cleanup_free_ char *image = xasprintf("%s/images/" IMAGE_ID, folder);
	_cleanup_free_ char *link = xasprintf("%s/home/images", folder);

	if (!attacker_start)
		return err_set(err, ERR_UNSUPPORTED, "this program carries no box-attacker");
	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		_cleanup_free_ char *path = xasprintf("%s/rootfs/%s", image, folders[i]);

		if (dir_make_all(path, 0755, err) < 0)
			return -1;
	}
	if (write_text(image, "rootfs/bin/box-attacker", 0755, attacker_start,
		    (size_t)(attacker_end - attacker_start), err) < 0 ||
		write_text(image, "image.json", 0644, record, sizeof record - 1, err) < 0)
		return -1;
	/* Behind a link: the daemon does not clean up a folder that is shared with other homes. */
	return symlink("../images", link) < 0 ? err_sys(err, errno, "link the images") : 0;
}

static int make_folder(struct rig *rig, struct err *err)
{
	const char *base = getenv("TMPDIR");
	static const char resolv[] = "nameserver " RIG_RESOLVER "\n";
	_cleanup_free_ char *home = NULL;

	rig->folder = xasprintf("%s/boxyard-attack-XXXXXX", base && *base ? base : "/var/tmp");
	if (!mkdtemp(rig->folder)) {
		err_sys(err, errno, "make '%s'", rig->folder);
		free(steal_ptr(&rig->folder));
		return -1;
	}
	rig->audit = xasprintf("%s/home/audit", rig->folder);
	home = xasprintf("%s/home", rig->folder);
	/* Boxes run as other users and must be able to enter. */
	if (chmod(rig->folder, 0755) < 0)
		return err_sys(err, errno, "chmod '%s'", rig->folder);
	if (dir_make_all(home, 0755, err) < 0 ||
		write_text(rig->folder, "resolv.conf", 0644, resolv, sizeof resolv - 1, err) < 0 ||
		write_text(rig->folder, "boxyard.conf", 0644, "", 0, err) < 0)
		return -1;
	return make_image(rig->folder, err);
}

/* ---- processes ------------------------------------------------------------------------------ */

/* Removes the user's own settings from the environment of the daemon. */
static void set_environment(const struct rig *rig)
{
	static const char *const foreign[] = { "HTTPS_PROXY", "https_proxy", "HTTP_PROXY",
		"http_proxy", "ALL_PROXY", "NO_PROXY", "no_proxy", "BOX_DEFAULT_POLICY",
		"BOX_MOUNT_ROOTS", "BOX_INSECURE_REGISTRIES", "BOX_LOG_LEVEL" };
	const struct {
		const char *name, *value;
	} own[] = {
		{ "BOX_LISTEN", "127.0.0.1:30001" },
		{ "BOX_REGISTRY", "127.0.0.1:1" },
		{ "BOX_SPARES", "0" },
		{ "BOX_POOL", "auto" },
		{ "BOX_POOL_SIZE", "1G" },
		{ "NO_COLOR", "1" },
	};
	const char *const paths[][2] = { { "BOX_HOME", "home" }, { "BOX_RUN", "run" },
		{ "BOX_CONF", "boxyard.conf" }, { "BOX_RESOLV_CONF", "resolv.conf" } };

	for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
		unsetenv(foreign[i]);
	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		setenv(own[i].name, own[i].value, 1);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", rig->folder, paths[i][1]);

		setenv(paths[i][0], path, 1);
	}
}

/* Starts a `box` command as a child; out and err may be -1: discarded. */
static pid_t start_box(const char *const *words, int out, int err_fd)
{
	pid_t pid = fork();

	if (pid == 0) {
		char **argv = NULL;
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		/* A session of its own: ^C is for us, and we end everything in order. */
		setsid();
		dup2(null, 0);
		dup2(out < 0 ? null : out, 1);
		dup2(err_fd < 0 ? null : err_fd, 2);
		strv_add(&argv, "box");
		for (; *words; words++)
			strv_add(&argv, *words);
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	return pid;
}

int rig_spawn(
	struct rig *rig, const char *const *words, pid_t *ret_pid, int *ret_fd, struct err *err)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(err, errno, "pipe");
	pid = start_box(words, ends[1], -1);
	close(ends[1]);
	if (pid < 0 || fd_set_nonblocking(ends[0], err) < 0) {
		close(ends[0]);
		return pid < 0 ? err_sys(err, errno, "fork") : -1;
	}
	*ret_pid = pid;
	*ret_fd = ends[0];
	return 0;
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Reads until the end, or kills the child at the timeout. */
static int gather(int fd, pid_t pid, struct buf *out)
{
	int64_t deadline = clock_mono_us() + COMMAND_MS * 1000LL;

	for (;;) {
		struct pollfd one = { .fd = fd, .events = POLLIN };
		int left = (int)((deadline - clock_mono_us()) / 1000);
		ssize_t got;

		if (left <= 0 || out->len > OUTPUT_MAX) {
			kill(pid, SIGKILL);
			return -1;
		}
		if (poll(&one, 1, left) <= 0)
			continue;
		got = read(fd, buf_room(out, 65536), 65536);
		if (got < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (got <= 0)
			return 0;
		buf_grew(out, (size_t)got);
	}
}

int rig_box(struct rig *rig, const char *const *words, struct buf *ret_out, int *ret_code,
	struct err *err)
{
	int ends[2], status;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(err, errno, "pipe");
	pid = start_box(words, ends[1], ends[1]);
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return err_sys(err, errno, "fork");
	}
	status = gather(ends[0], pid, ret_out);
	close(ends[0]);
	*ret_code = wait_for(pid);
	return status < 0 ? err_set(err, ERR_TIMEOUT, "'box %s %s' took longer than %d s", words[0],
				    words[1] ? words[1] : "", COMMAND_MS / 1000)
			  : 0;
}

/* ---- the daemon ----------------------------------------------------------------------------- */

static char *log_tail(const struct rig *rig)
{
	_cleanup_free_ char *path = xasprintf("%s/daemon.log", rig->folder);
	char *text = NULL;
	size_t len;

	if (file_read(AT_FDCWD, path, 16 * 1024 * 1024, &text, &len, NULL) < 0)
		return xstrdup("");
	if (len > 300)
		memmove(text, text + len - 300, 301);
	return text;
}

static bool daemon_answers(struct rig *rig)
{
	static const char *const words[] = { "ls", "--json", NULL };
	struct buf out = BUF_INIT;
	int code = -1;
	bool good = rig_box(rig, words, &out, &code, NULL) == 0 && code == 0;

	buf_done(&out);
	return good;
}

int rig_restart(struct rig *rig, struct err *err)
{
	static const char *const words[] = { "serve", NULL };
	_cleanup_free_ char *path = xasprintf("%s/daemon.log", rig->folder);
	_cleanup_close_ int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	int64_t deadline = clock_mono_us() + START_MS * 1000LL;

	if (log < 0)
		return err_sys(err, errno, "open '%s'", path);
	rig->daemon = start_box(words, log, log);
	while (!daemon_answers(rig)) {
		_cleanup_free_ char *last = NULL;

		if (waitpid(rig->daemon, NULL, WNOHANG) == 0 && clock_mono_us() < deadline &&
			!stopping) {
			usleep(20000);
			continue;
		}
		last = log_tail(rig);
		return err_set(
			err, ERR_UNAVAILABLE, "the daemon to be attacked does not start: %s", last);
	}
	return 0;
}

int rig_start(struct rig *rig, struct err *err)
{
	if (make_folder(rig, err) < 0)
		return -1;
	set_environment(rig);
	return rig_restart(rig, err);
}

void rig_kill_daemon(struct rig *rig)
{
	if (rig->daemon <= 0)
		return;
	kill(rig->daemon, SIGKILL);
	wait_for(rig->daemon);
	rig->daemon = 0;
}

/* The child of the daemon with the gate's command line. */
pid_t rig_gate_pid(const struct rig *rig)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/task/%d/children", (int)rig->daemon,
				    (int)rig->daemon),
			    *list = NULL;
	char *rest, *word;

	if (rig->daemon <= 0 || file_read(AT_FDCWD, path, 65536, &list, NULL, NULL) < 0)
		return 0;
	rest = list;
	while ((word = strsep(&rest, " "))) {
		_cleanup_free_ char *line_path = xasprintf("/proc/%s/cmdline", word), *line = NULL;
		size_t len;

		if (!*word || file_read(AT_FDCWD, line_path, 4096, &line, &len, NULL) < 0)
			continue;
		if (strlen(line) + 1 < len && !strcmp(line + strlen(line) + 1, "gate"))
			return (pid_t)atoi(word);
	}
	return 0;
}

static int purge(struct rig *rig, struct err *err)
{
	static const char *const words[] = { "down", "--purge", "--yes", NULL };
	struct buf out = BUF_INIT;
	int code = -1, status;

	status = rig_box(rig, words, &out, &code, err);
	if (status == 0 && code)
		status = err_set(err, ERR_STATE, "'box down --purge' ended with %d: %.300s", code,
			buf_str(&out));
	buf_done(&out);
	return status;
}

int rig_close(struct rig *rig, struct err *err)
{
	int status = 0;

	stopping = 0; /* the clean-up must finish, even after ^C */
	if (rig->folder && rig->daemon == 0)
		status = rig_restart(rig, err);
	if (rig->folder && !rig->keep && status == 0)
		status = purge(rig, err);
	if (rig->daemon > 0 && !rig->keep) {
		if (status < 0)
			kill(rig->daemon, SIGKILL);
		wait_for(rig->daemon);
	}
	witness_stop(rig->world);
	witness_stop(rig->host);
	if (rig->folder && !rig->keep && status == 0)
		status = tree_remove(AT_FDCWD, rig->folder, err);
	free(rig->folder);
	free(rig->audit);
	*rig = (struct rig){ 0 };
	return status;
}
