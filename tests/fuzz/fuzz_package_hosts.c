/* fuzz_package_hosts.c - any bytes as a file of a package manager: nothing but NAME:PORT comes of
 * them
 *
 * The first byte chooses the format; program text is tried with each input. Seeds are built in, as
 * in fuzz_http.c. */
#include "image/package_hosts_internal.h"
#include <ctype.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const seeds[] = {
	"0[a]\nindex-url = https://a.example.com/\n  http://b.example.com:81\nenabled=0\n\n[b]\n",
	"0URIs: http://a.example.com\n mirror+https://b.example.com/x\nEnabled: no\n\n",
	"0@team:registry=https://u:p@a.example.com:444/\n:sources:\n- https://b.example.com\n",
	"0GOSUMDB=sum.example.com,off\nregistry \"https://a.example.com\"\n",
	"1deb [arch=amd64] http://a.example.com/debian x main\n",
	"2Acquire::http::Proxy \"http://proxy.example.com:3142\";\n",
	"3PyPI = P(\"https://a.example.com/\", x='b.example.com')\n",
};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	const char *text = seeds[seed % ARRAY_LEN(seeds)];

	if (seed % 50 == 0 && strlen(text) <= max_size) {
		memcpy(data, text, strlen(text));
		size = strlen(text);
	}
	return LLVMFuzzerMutate(data, size, max_size);
}

static void check(const struct found *found)
{
	if (found->count > PACKAGE_HOSTS_MAX)
		abort();
	for (size_t i = 0; i < found->count; i++) {
		const char *p = found->hosts[i];
		unsigned long port;

		while (islower((unsigned char)*p) || isdigit((unsigned char)*p) ||
			strchr("._-", *p))
			if (!*p++)
				abort();
		port = *p == ':' ? strtoul(p + 1, NULL, 10) : 0;
		if (p == found->hosts[i] || !port || port > 65535)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = xstrndup((const char *)data, size);
	struct found found = { 0 };

	if (size < 1)
		return 0;
	hosts_read((enum host_format)(data[0] % FORMAT_COUNT), "!registry index-url URIs @GOSUMDB",
		*text ? text + 1 : text, &found);
	hosts_read_code(text, 0, &found);
	hosts_read_code(text, ')', &found);
	check(&found);
	found_done(&found);
	return 0;
}
