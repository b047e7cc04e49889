/* socket_tables.c - what the kernel's tables tell of the sockets of a network namespace */
#include "engine/ns/sockets.h"
#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	TABLE_MAX = 16 * 1024 * 1024, /* bytes read of one table */
	SMALL_MAX = 16 * 1024,
};

static const struct {
	const char *file;
	unsigned column; /* from 0; "SENT:RECEIVED" in hexadecimal, or one decimal number */
	bool hexadecimal;
	bool counted;	      /* the kernel should charge their content to the box */
	const char *protocol; /* as in /proc/net/protocols */
} tables[] = {
	{ "netlink", 4, false, false, "NETLINK" },
	{ "raw", 4, true, false, "RAW" },
	{ "raw6", 4, true, false, "RAWv6" },
	{ "icmp", 4, true, false, "PING" },
	{ "icmp6", 4, true, false, "PINGv6" },
	{ "udp", 4, true, true, "UDP" },
	{ "udp6", 4, true, true, "UDPv6" },
	{ "udplite", 4, true, true, "UDP-Lite" },
	{ "udplite6", 4, true, true, "UDPLITEv6" },
};

static uint64_t value_of(const char *line, unsigned column, bool hexadecimal)
{
	const char *at = line + strspn(line, " ");
	char *end;
	uint64_t sum;

	for (; column && *at && *at != '\n'; column--) {
		at += strcspn(at, " \n");
		at += strspn(at, " ");
	}
	if (*at == '\n') /* the value would be taken from the next line */
		return 0;
	if (!hexadecimal)
		return strtoull(at, NULL, 10);
	sum = strtoull(at, &end, 16);
	return *end == ':' ? sum + strtoull(end + 1, NULL, 16) : 0;
}

uint64_t socket_tables_sum(const char *table, unsigned column, bool hexadecimal)
{
	uint64_t sum = 0;

	/* The first line has the names of the columns. */
	for (const char *line = strchr(table, '\n'); line && *++line; line = strchr(line, '\n'))
		sum += value_of(line, column, hexadecimal);
	return sum;
}

/* How many sockets of a protocol are in its table. "NAME SIZE SOCKETS ..." */
static unsigned in_table(const char *protocols, const char *name)
{
	size_t len = strlen(name);
	unsigned count;

	for (const char *line = strchr(protocols, '\n'); line && *++line; line = strchr(line, '\n'))
		if (strncmp(line, name, len) == 0 && line[len] == ' ')
			return sscanf(line + len, "%*u %u", &count) == 1 ? count : 0;
	return 0;
}

unsigned socket_tables_untold(const char *protocols, unsigned used)
{
	unsigned told = in_table(protocols, "UNIX") + in_table(protocols, "UNIX-STREAM");

	for (size_t i = 0; i < ARRAY_LEN(tables); i++)
		told += in_table(protocols, tables[i].protocol);
	return used > told ? used - told : 0;
}

static char *read_of(pid_t pid, const char *file, size_t max, struct err *err)
{
	char path[48], *text = NULL;

	snprintf(path, sizeof path, "/proc/%d/net/%s", (int)pid, file);
	return file_read(AT_FDCWD, path, max, &text, NULL, err) < 0 ? NULL : text;
}

unsigned socket_tables_add(pid_t pid, unsigned few, struct held *held)
{
	_cleanup_free_ char *stat = read_of(pid, "sockstat", SMALL_MAX, NULL), *protocols = NULL;
	unsigned used;

	if (!stat || sscanf(stat, "sockets: used %u", &used) != 1 || used <= few)
		return 0;
	protocols = read_of(pid, "protocols", SMALL_MAX, NULL);
	if (!protocols)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		uint64_t *sum = tables[i].counted ? &held->counted : &held->uncounted;
		struct err err = ERR_INIT;
		_cleanup_free_ char *text = NULL;

		if (!in_table(protocols, tables[i].protocol))
			continue;
		text = read_of(pid, tables[i].file, TABLE_MAX, &err);
		if (text)
			*sum += socket_tables_sum(text, tables[i].column, tables[i].hexadecimal);
		else if (err.kind == ERR_TOO_LARGE)
			/* A hundred thousand sockets are too many, whatever they hold. */
			*sum = HELD_TOO_MUCH;
	}
	return socket_tables_untold(protocols, used);
}
