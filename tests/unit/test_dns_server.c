/* test_dns_server.c - the server seen from a box's sockets: verdicts, hostile packets */
#include "dns_server_fixture.h"

static struct answer answer;

/* ---- verdicts ------------------------------------------------------------------------------- */

static void test_synthetic_names_get_an_address_of_their_own(void **state)
{
	struct address address;

	(void)state;
	start(&(struct dns_box_options){ .ipv6 = true });
	ask("syn.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.rcode, DNS_NOERROR);
	address = address_of(&answer);
	assert_string_equal(synthetic_name(map, &address), "syn.test");
	assert_int_equal(last.verdict, DNS_SYNTHETIC);
	assert_string_equal(last.name, "syn.test");
	assert_int_equal(last.addresses, 1);
	ask("Syn.TEST.", DNS_TYPE_AAAA, &answer);
	address = address_of(&answer);
	assert_int_equal(address.family, 6);
	assert_string_equal(synthetic_name(map, &address), "syn.test");
	assert_int_equal(above->udp_count, 0); /* nobody above hears of it */
	assert_int_equal(synthetic_count(map), 1);
}

static void test_other_types_are_empty(void **state)
{
	static const uint16_t types[] = { DNS_TYPE_AAAA, DNS_TYPE_HTTPS, DNS_TYPE_SVCB,
		DNS_TYPE_ANY, DNS_TYPE_CNAME, 12, 15, 16, 33, 4711 };

	(void)state;
	start(&(struct dns_box_options){ .ipv6 = false });
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		for (int j = 0; j < 2; j++) {
			ask(j ? "syn.test" : "one.test", types[i], &answer);
			assert_int_equal(answer.rcode, DNS_NOERROR);
			assert_int_equal(answer.answers, 0);
		}
	assert_int_equal(above->udp_count, 0);
}

static void test_denied_names_are_never_asked_above(void **state)
{
	(void)state;
	start(&(struct dns_box_options){ .ipv6 = true });
	ask("evilone.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.rcode, DNS_NXDOMAIN);
	assert_int_equal(last.verdict, DNS_DENY_NXDOMAIN);
	ask("secret.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.rcode, DNS_REFUSED);
	ask("data-to-smuggle-out.one.test", DNS_TYPE_AAAA, &answer);
	assert_int_equal(answer.rcode, DNS_NXDOMAIN);
	assert_int_equal(above->udp_count + above->tcp_count, 0);
	assert_int_equal(synthetic_count(map), 0);
	assert_int_equal(logged, 3);
}

static void test_upstream_names_get_real_addresses(void **state)
{
	struct address address;
	char text[ADDRESS_TEXT_MAX];

	(void)state;
	start(&(struct dns_box_options){ .ipv6 = true });
	for (int i = 0; i < 2; i++) { /* asked, then kept */
		ask("two.test", DNS_TYPE_A, &answer);
		assert_int_equal(answer.answers, 2);
		address = address_of(&answer);
		assert_string_equal(address_format(&address, text), "203.0.113.1");
	}
	assert_int_equal(above->udp_count, 1);
	ask("one.test", DNS_TYPE_AAAA, &answer);
	address = address_of(&answer);
	assert_string_equal(address_format(&address, text), "2001:db8::1");
	ask("none.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.rcode, DNS_NXDOMAIN);
	ask("empty.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.rcode, DNS_NOERROR);
	assert_int_equal(answer.answers, 0);
	above->mode = ABOVE_SILENT;
	ask("one.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.rcode, DNS_SERVFAIL);
	assert_int_equal(logged, 6);
}

static void test_rebinding_is_refused(void **state)
{
	(void)state;
	start(&(struct dns_box_options){ .ipv6 = true });
	ask("rebind.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.rcode, DNS_REFUSED);
	assert_int_equal(answer.answers, 0);
	assert_int_equal(last.private_refused, 1);
	ask("rebind.test", DNS_TYPE_AAAA, &answer);
	assert_int_equal(answer.rcode, DNS_REFUSED);
}

static void test_waiting_questions_are_bounded(void **state)
{
	uint8_t message[DNS_QUERY_MAX];
	int fd;

	(void)state;
	start(&(struct dns_box_options){ 0 });
	above->mode = ABOVE_SILENT;
	fd = connect_to(port, SOCK_DGRAM);
	for (unsigned i = 0; i < 12; i++) {
		size_t len = make_query(message, i, "one.test", DNS_TYPE_A, 0);

		assert_int_equal(send(fd, message, len, 0), len);
	}
	run_for(50);
	assert_int_equal(logged, 4); /* eight wait, four were told at once */
	run_until(&logged, 12);
	close(fd);
}

/* ---- hostile packets ------------------------------------------------------------------------ */

static void test_hostile_packets_are_refused_and_the_server_lives(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		int rcode; /* -1: no answer */
	} packets[] = {
#define PACKET(bytes, rcode) { bytes, sizeof(bytes) - 1, rcode }
		PACKET("x", -1),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0", -1),
		PACKET("\0\1\x81\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1", -1),
		PACKET("\0\1\1\0\0\0\0\0\0\0\0\0", DNS_FORMERR),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1", DNS_FORMERR),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0\0\1a\xc0\x0c\0\1\0\1", DNS_FORMERR),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0\0\1a\0\0\1\0", DNS_FORMERR),
		PACKET("\0\1\x28\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1", DNS_NOTIMP),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\3", DNS_REFUSED),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0\0\3a.b\0\0\1\0\1", DNS_REFUSED),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0\0\3a\0b\0\0\1\0\1", DNS_REFUSED),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0\0\0\0\2\0\1", DNS_REFUSED),
	};
	int fd;

	(void)state;
	start(&(struct dns_box_options){ 0 });
	fd = connect_to(port, SOCK_DGRAM);
	for (size_t i = 0; i < ARRAY_LEN(packets); i++) {
		bool answered = exchange(fd, packets[i].bytes, packets[i].len,
			packets[i].rcode < 0 ? 20 : 2000, &answer);

		assert_int_equal(answered, packets[i].rcode >= 0);
		if (answered)
			assert_int_equal(answer.rcode, packets[i].rcode);
	}
	assert_int_equal(decided, 0); /* the policy sees host names only */
	close(fd);
	ask("syn.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.answers, 1);
}

static void test_random_and_oversized_packets_do_no_harm(void **state)
{
	uint8_t noise[4096];
	int fd;

	(void)state;
	start(&(struct dns_box_options){ .rate = 100000 });
	fd = connect_to(port, SOCK_DGRAM);
	for (int i = 0; i < 2000; i++) {
		size_t len;

		random_bytes(noise, sizeof noise);
		len = i % 10 == 0 ? sizeof noise : noise[0];
		noise[2] &= 0x01; /* a plain question, else it is dropped early */
		memcpy(noise + 4, "\0\1\0\0\0\0\0\0", 8);
		(void)!send(fd, noise, len, 0);
		if (i % 50 == 0)
			run_for(1);
	}
	close(fd); /* answers meet a closed port */
	run_for(20);
	ask("syn.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.answers, 1);
}

static void test_edns_of_odd_sizes_is_answered(void **state)
{
	static const unsigned sizes[] = { 1, 511, 512, 513, 1232, 4096, 65535 };
	uint8_t message[DNS_QUERY_MAX];
	int fd;

	(void)state;
	start(&(struct dns_box_options){ 0 });
	fd = connect_to(port, SOCK_DGRAM);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		size_t len = make_query(message, 5, "syn.test", DNS_TYPE_A, sizes[i]);

		assert_true(exchange(fd, message, len, 2000, &answer));
		assert_int_equal(answer.answers, 1);
		assert_int_equal(answer.additional, 1);
	}
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_synthetic_names_get_an_address_of_their_own),
		TEST(test_other_types_are_empty),
		TEST(test_denied_names_are_never_asked_above),
		TEST(test_upstream_names_get_real_addresses),
		TEST(test_rebinding_is_refused),
		TEST(test_waiting_questions_are_bounded),
		TEST(test_hostile_packets_are_refused_and_the_server_lives),
		TEST(test_random_and_oversized_packets_do_no_harm),
		TEST(test_edns_of_odd_sizes_is_answered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
