/* main.c - the table of attacks, and the line of JSON that each prints */
#include "attack/attacker.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
	const char *name;
	const char *usage;
	int least;
	attack_fn *run;
} attacks[] = {
	{ "connect", "HOST PORT", 2, attack_connect },
	{ "datagram", "HOST PORT", 2, attack_datagram },
	{ "send", "HOST PORT ANSWERS TEXT...", 4, attack_send },
	{ "unix", "NAME", 1, attack_unix },
	{ "ask", "SERVER|- udp|tcp TYPE NAME", 4, attack_ask },
	{ "ask-odd", "SERVER|- udp|tcp HOW NAME", 4, attack_ask_odd },
	{ "tls", "HOST PORT HOW NAME", 4, attack_tls },
	{ "raw", "KIND ADDRESS", 2, attack_raw },
	{ "frame", "INTERFACE KIND ADDRESS", 3, attack_frame },
	{ "cable", "WHAT COUNT", 2, attack_cable },
	{ "change", "WHAT ADDRESS PORT", 3, attack_change },
	{ "flood", "WHAT HOST PORT COUNT", 4, attack_flood },
	{ "listen", "PORT", 1, attack_listen },
	{ "hold", "HOST PORT HOW", 3, attack_hold },
	{ "neighbour", "HOST PORT MILLISECONDS", 3, attack_neighbour },
	{ "disk", "WHAT PATH [MIB]", 2, attack_disk },
	{ "plant", "FOLDER [VICTIM]", 1, attack_plant },
	{ "hoard", "WHAT COUNT|MIB [HOLD_MS]", 2, attack_hoard },
	{ "told", "WORD", 1, attack_told },
	{ "load", "WHAT HOST|PORT ...", 2, attack_load },
};

int64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static void fill(struct outcome *out, int64_t since_us, const char *fmt, va_list args)
{
	int len = vsnprintf(out->how, sizeof out->how, fmt, args);

	if (since_us && len >= 0 && (size_t)len < sizeof out->how)
		snprintf(out->how + len, sizeof out->how - (size_t)len, " after %.1f ms",
			(double)(now_us() - since_us) / 1000);
}

void outcome_refused(struct outcome *out, int64_t since_us, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fill(out, since_us, fmt, args);
	va_end(args);
	out->refused = true;
}

void outcome_through(struct outcome *out, int64_t since_us, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fill(out, since_us, fmt, args);
	va_end(args);
	out->refused = false;
	out->silent = false;
}

void outcome_errno(struct outcome *out, int64_t since_us, int error)
{
	const char *name = strerrorname_np(error);

	outcome_refused(out, since_us, "%s", name ? name : "?");
	out->silent = error == ETIMEDOUT || error == EAGAIN;
}

void outcome_detail(struct outcome *out, const char *fmt, ...)
{
	size_t used = strlen(out->detail);
	va_list args;

	if (used && used + 3 < sizeof out->detail) {
		strcpy(out->detail + used, "; ");
		used += 2;
	}
	va_start(args, fmt);
	vsnprintf(out->detail + used, sizeof out->detail - used, fmt, args);
	va_end(args);
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

size_t unescape(const char *text, uint8_t *out, size_t max)
{
	size_t len = 0;

	for (const char *p = text; *p && len < max; p++) {
		if (*p != '\\' || !p[1]) {
			out[len++] = (uint8_t)*p;
			continue;
		}
		p++;
		if (*p == 'x' && hex_digit(p[1]) >= 0 && hex_digit(p[2]) >= 0) {
			out[len++] = (uint8_t)(hex_digit(p[1]) * 16 + hex_digit(p[2]));
			p += 2;
		} else {
			out[len++] = *p == 'r'	 ? '\r'
				     : *p == 'n' ? '\n'
				     : *p == 't' ? '\t'
						 : (uint8_t)*p;
		}
	}
	return len;
}

static void print_text(const char *key, const char *text)
{
	printf(",\"%s\":\"", key);
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if (*p == '"' || *p == '\\')
			printf("\\%c", *p);
		else if (*p < 0x20 || *p > 0x7e)
			printf("\\u%04x", *p);
		else
			putchar(*p);
	}
	putchar('"');
}

static int usage(void)
{
	for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++)
		fprintf(stderr, "box-attacker %s %s\n", attacks[i].name, attacks[i].usage);
	return 64;
}

int main(int argc, char **argv)
{
	struct outcome out = { 0 };

	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; argc > 1 && i < sizeof attacks / sizeof *attacks; i++) {
		if (strcmp(argv[1], attacks[i].name))
			continue;
		if (argc - 2 < attacks[i].least)
			return usage();
		attacks[i].run(argc - 2, argv + 2, &out);
		printf("{\"attack\":\"%s\",\"refused\":%s,\"silent\":%s", attacks[i].name,
			out.refused ? "true" : "false", out.silent ? "true" : "false");
		print_text("how", out.how);
		print_text("detail", out.detail);
		puts("}");
		return 0;
	}
	return usage();
}
