/* ram_library.c - the library that QEMU loads: its file, and its sockets */
#include "base/file.h"
#include "engine/vm/ram.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

extern const unsigned char ram_library_start[], ram_library_end[];

int ram_library_write(const char *run, char **ret_path, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/box-ram.so", run);

	if (dir_make_all(run, 0711, err) < 0 ||
		file_write_atomic(AT_FDCWD, path, ram_library_start,
			(size_t)(ram_library_end - ram_library_start), 0555, err) < 0)
		return err_wrap(err, "write the library of VM boxes");
	*ret_path = steal_ptr(&path);
	return 0;
}

static int make_address(const char *path, struct sockaddr_un *ret, struct err *err)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof ret->sun_path)
		return err_set(err, ERR_TOO_LARGE, "'%s' is too long for a socket", path);
	strcpy(ret->sun_path, path);
	return 0;
}

static int make_socket(int flags, int *ret, struct err *err)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);

	if (fd < 0)
		return err_sys(err, errno, "socket");
	*ret = fd;
	return 0;
}

int ram_listen(const char *path, int *ret, struct err *err)
{
	_cleanup_close_ int fd = -1;
	struct sockaddr_un address;

	if (make_address(path, &address, err) < 0 || make_socket(0, &fd, err) < 0)
		return -1;
	if (unlink(path) < 0 && errno != ENOENT)
		return err_sys(err, errno, "remove '%s'", path);
	if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || chmod(path, 0600) < 0 ||
		listen(fd, 4) < 0)
		return err_sys(err, errno, "listen on '%s'", path);
	*ret = steal_fd(&fd);
	return 0;
}

int ram_connect(const char *path, int *ret, struct err *err)
{
	_cleanup_close_ int fd = -1;
	struct sockaddr_un address;

	if (make_address(path, &address, err) < 0 || make_socket(SOCK_NONBLOCK, &fd, err) < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		return err_sys(err, errno, "connect to '%s'", path);
	*ret = steal_fd(&fd);
	return 0;
}
