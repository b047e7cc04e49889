/* trust.c - see trust.h */
#include "core/trust.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strv.h"
#include "base/text.h"
#include "conf/conf.h"
#include <dirent.h>
#include <fcntl.h>

#define BEGIN "-----BEGIN CERTIFICATE-----"
#define END   "-----END CERTIFICATE-----"

enum { FILE_MAX = 256 * 1024, ALL_MAX = 1024 * 1024, FILES_MAX = 200 };

/* The folders that update-ca-certificates (Debian, Alpine) and update-ca-trust (Fedora) read. */
static const char *const places[] = { "/usr/local/share/ca-certificates",
	"/etc/pki/ca-trust/source/anchors" };

/* Takes only certificates: a private key in the same file is not copied. */
static void take_certificates(const char *text, struct buf *out)
{
	static const char allowed[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
		"+/=\r\n";
	const char *begin = text, *end;

	while ((begin = strstr(begin, BEGIN)) && (end = strstr(begin, END))) {
		const char *body = begin + strlen(BEGIN);
		size_t len = (size_t)(end + strlen(END) - begin);

		if (body + strspn(body, allowed) == end && out->len + len + 1 <= ALL_MAX) {
			buf_add(out, begin, len);
			buf_add(out, "\n", 1);
		}
		begin = end + strlen(END);
	}
}

static void take_file(const char *path, struct buf *out)
{
	_cleanup_free_ char *text = NULL;
	struct err err = ERR_INIT;

	if (file_read(AT_FDCWD, path, FILE_MAX, &text, NULL, &err) < 0)
		log_warn("certificates are left out", kv_str("path", path), kv_err(&err));
	else
		take_certificates(text, out);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* In the order of the names, so that the same files give the same text. */
static void take_folder(const char *folder, struct buf *out)
{
	struct dirent **list = NULL;
	int count = scandir(folder, &list, NULL, by_name);

	for (int i = 0; i < count; i++) {
		const char *name = list[i]->d_name, *dot = strrchr(name, '.');
		_cleanup_free_ char *path = xasprintf("%s/%s", folder, name);

		if (i < FILES_MAX && name[0] != '.' && dot &&
			(!strcmp(dot, ".crt") || !strcmp(dot, ".pem")))
			take_file(path, out);
		free(list[i]);
	}
	free(list);
}

char *trust_collect(const struct conf *conf)
{
	struct buf out = BUF_INIT;
	char *text;

	if (*conf->ca_certificates == '/')
		take_file(conf->ca_certificates, &out);
	else if (!strcmp(conf->ca_certificates, "machine"))
		for (size_t i = 0; i < ARRAY_LEN(places); i++)
			take_folder(places[i], &out);
	text = xstrdup(buf_str(&out));
	buf_done(&out);
	return text;
}
