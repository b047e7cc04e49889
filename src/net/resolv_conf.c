/* resolv_conf.c - see resolv_conf.h */
#include "net/resolv_conf.h"
#include "base/alloc.h"

enum { LINE_MAX_LEN = 4096, WORD_MAX_LEN = 512 };

/* The next word of *at, which moves past it; NULL at the end of the line. Overlong words are cut,
 * and match nothing. */
static const char *next_word(const char **at, const char *end, char word[WORD_MAX_LEN])
{
	size_t len = 0;

	while (*at < end && (**at == ' ' || **at == '\t' || **at == '\r'))
		(*at)++;
	for (; *at < end && **at != ' ' && **at != '\t' && **at != '\r'; (*at)++)
		if (len + 1 < WORD_MAX_LEN)
			word[len++] = **at ? **at : '?';
	word[len] = '\0';
	return len ? word : NULL;
}

static void add_server(struct resolv_conf *conf, char *word)
{
	struct resolv_server server = { 0 };
	char *scope = strchr(word, '%');

	if (scope)
		*scope++ = '\0';
	if (conf->server_count == RESOLV_SERVERS_MAX || !address_parse(word, &server.address))
		return;
	if (scope && (!*scope || strlen(scope) >= sizeof server.scope))
		return;
	if (scope && server.address.family == 6)
		strcpy(server.scope, scope);
	conf->servers[conf->server_count++] = server;
}

static void add_search(struct resolv_conf *conf, const char *word)
{
	char text[DNS_TEXT_MAX];
	struct dns_name name;

	if (conf->search_count == RESOLV_SEARCH_MAX || !dns_name_parse(word, &name))
		return;
	dns_name_text(&name, text);
	strcpy(conf->search[conf->search_count++], text);
}

static void set_option(struct resolv_conf *conf, const char *word)
{
	const struct {
		const char *name;
		unsigned *value;
		unsigned lowest, highest;
	} options[] = {
		{ "ndots:", &conf->ndots, 0, 15 },
		{ "timeout:", &conf->timeout, 1, 30 },
		{ "attempts:", &conf->attempts, 1, 5 },
	};

	if (!strcmp(word, "rotate"))
		conf->rotate = true;
	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		size_t len = strlen(options[i].name);
		unsigned long value;
		char *end;

		if (strncmp(word, options[i].name, len) || word[len] < '0' || word[len] > '9')
			continue;
		value = strtoul(word + len, &end, 10);
		if (!*end)
			*options[i].value = MAX(options[i].lowest, MIN(value, options[i].highest));
	}
}

static void parse_line(struct resolv_conf *conf, const char *at, const char *end)
{
	char key[WORD_MAX_LEN] = "", word[WORD_MAX_LEN] = "";

	if (at == end || *at == '#' || *at == ';' || end - at > LINE_MAX_LEN)
		return;
	if (!next_word(&at, end, key))
		return;
	if (!strcmp(key, "search") || !strcmp(key, "domain"))
		conf->search_count = 0;
	while (next_word(&at, end, word) && *word != '#' && *word != ';') {
		if (!strcmp(key, "search") || !strcmp(key, "domain"))
			add_search(conf, word);
		else if (!strcmp(key, "options"))
			set_option(conf, word);
		else if (!strcmp(key, "nameserver"))
			add_server(conf, word);
		if (!strcmp(key, "nameserver") || !strcmp(key, "domain"))
			break; /* they take one word */
	}
}

void resolv_conf_parse(const char *text, size_t len, struct resolv_conf *ret)
{
	const char *end = text + MIN(len, (size_t)RESOLV_CONF_MAX);

	*ret = (struct resolv_conf){ .ndots = 1, .timeout = 5, .attempts = 2 };
	while (text < end) {
		const char *stop = memchr(text, '\n', end - text);

		if (!stop)
			stop = end;
		parse_line(ret, text, stop);
		text = stop + (stop < end);
	}
	if (!ret->server_count)
		ret->servers[ret->server_count++].address =
			address_v4((const uint8_t[]){ 127, 0, 0, 1 });
}
