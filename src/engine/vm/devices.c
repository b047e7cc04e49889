/* devices.c - see devices.h
 *
 *   "QEVM" u32 version, then sections; the first one is
 *   u8 4 (whole section), u32 number, u8 5 "timer", u32 0, u32 2 (its version),
 *   u64 ticks of the processor, u64 0, u64 nanoseconds of the machine's clock, u8 0x7e, ...
 *
 * Numbers are big-endian. QEMU continues both counters from these values. */
#include "engine/vm/devices.h"
#include "base/alloc.h"
#include "base/file.h"
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATE_MAX = 64 << 20, TICKS_AT = 27, CLOCK_AT = 43, HEAD_SIZE = 52 };

static const uint8_t head[] = { 'Q', 'E', 'V', 'M' };
static const uint8_t section[] = { 5, 't', 'i', 'm', 'e', 'r', 0, 0, 0, 0, 0, 0, 0, 2 };
enum { SECTION_AT = 13 };

static void add_at(uint8_t *at, uint64_t more)
{
	uint64_t value;

	memcpy(&value, at, sizeof value);
	value = htobe64(be64toh(value) + more);
	memcpy(at, &value, sizeof value);
}

static int read_all(int fd, uint8_t **ret, size_t *ret_len, struct err *err)
{
	_cleanup_free_ uint8_t *data = NULL;
	struct stat st;
	ssize_t got;

	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "look at the state of the devices");
	if (st.st_size < HEAD_SIZE || st.st_size > STATE_MAX)
		return err_set(err, ERR_PROTOCOL, "the state of the devices has %lld bytes",
			(long long)st.st_size);
	data = xcalloc(1, (size_t)st.st_size);
	got = pread(fd, data, (size_t)st.st_size, 0);
	if (got != st.st_size)
		return err_sys(err, got < 0 ? errno : EIO, "read the state of the devices");
	*ret = steal_ptr(&data);
	*ret_len = (size_t)got;
	return 0;
}

int vm_devices_let_time_pass(
	int fd, uint64_t passed_us, uint64_t tsc_khz, int *ret, struct err *err)
{
	_cleanup_free_ uint8_t *data = NULL;
	_cleanup_close_ int copy = -1;
	size_t len;

	if (read_all(fd, &data, &len, err) < 0)
		return -1;
	if (memcmp(data, head, sizeof head) || data[8] != 4 ||
		memcmp(data + SECTION_AT, section, sizeof section) || data[HEAD_SIZE - 1] != 0x7e)
		return err_set(err, ERR_PROTOCOL, "the state of the devices has no clock");
	if (tsc_khz) {
		add_at(data + TICKS_AT, passed_us / 1000 * tsc_khz);
		add_at(data + CLOCK_AT, passed_us * 1000);
	}
	copy = memfd_create("devices", MFD_CLOEXEC);
	if (copy < 0)
		return err_sys(err, errno, "memfd");
	if (fd_write_all(copy, data, len, err) < 0)
		return -1;
	if (lseek(copy, 0, SEEK_SET) < 0)
		return err_sys(err, errno, "memfd");
	*ret = steal_fd(&copy);
	return 0;
}
