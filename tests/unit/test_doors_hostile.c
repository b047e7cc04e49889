/* test_doors_hostile.c - frames that root of a box with a kernel of its own can send
 *
 * They are written straight into the tap, as QEMU would pass them on: other addresses, other
 * protocols, tunnels, fragments without an end, lies in the header of the tap itself. Nothing of it
 * may be heard by the host or by another box, may change the namespace, or use up what all
 * namespaces share; and the box is served as before. */
#include "doors_fixture.h"
#include "vm_net_fixture.h"
#include "base/clock.h"
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>

enum { FRAME_MAX = 2048, FLOOD = 4000 };

static struct doors_plan *plan;
static struct vm_guest guest, other;
static int others[DOOR_COUNT], host_ears = -1;
static char *before;

/* ---- the namespace, as text ----------------------------------------------------------------- */

static char *output_of(const char *command, int where)
{
	char *text = xcalloc(1, 65536);
	FILE *file;
	size_t len;

	assert_int_equal(setns(where, CLONE_NEWNET), 0);
	file = popen(command, "r");
	assert_non_null(file);
	len = fread(text, 1, 65535, file);
	pclose(file);
	assert_int_equal(setns(home, CLONE_NEWNET), 0);
	text[len] = '\0';
	return text;
}

static char *furniture(void)
{
	return output_of("ip -o addr; ip route show table all; ip -6 route show table all; "
			 "ip -o link; ip rule; ip neigh",
		guest.netns);
}

static unsigned lines(const char *text)
{
	unsigned count = 0;

	for (; *text; text++)
		count += *text == '\n';
	return count;
}

/* ---- frames --------------------------------------------------------------------------------- */

static uint32_t dice_state = 20261118;

static uint32_t dice(void)
{
	dice_state ^= dice_state << 13;
	dice_state ^= dice_state >> 17;
	dice_state ^= dice_state << 5;
	return dice_state;
}

struct frame {
	uint8_t bytes[DOORS_VM_HEADER + FRAME_MAX];
	size_t len;
};

static void put(struct frame *frame, const void *bytes, size_t len)
{
	assert_true(frame->len + len <= sizeof frame->bytes);
	memcpy(frame->bytes + frame->len, bytes, len);
	frame->len += len;
}

static void put_u16(struct frame *frame, unsigned value)
{
	uint16_t wire = htons((uint16_t)value);

	put(frame, &wire, 2);
}

static void begin(struct frame *frame, const char *to, unsigned type)
{
	uint8_t head[DOORS_VM_HEADER] = { 0 },
		mac[12] = { 0x52, 0x54, 0, 0, 0, 1, 0x52, 0x54, 0, 0, 0, 2 };

	if (to)
		memcpy(mac, to, 6);
	frame->len = 0;
	put(frame, head, sizeof head);
	put(frame, mac, sizeof mac);
	put_u16(frame, type);
}

static void send_frame(const struct frame *frame)
{
	while (write(guest.tap, frame->bytes, frame->len) < 0 && errno == EAGAIN)
		usleep(100);
}

static uint16_t sum_of(const uint8_t *bytes, size_t len, uint32_t sum)
{
	for (size_t i = 0; i + 1 < len; i += 2)
		sum += (uint32_t)(bytes[i] << 8 | bytes[i + 1]);
	if (len % 2)
		sum += (uint32_t)bytes[len - 1] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

struct packet {
	const char *from, *to;
	uint8_t protocol;
	unsigned fragment; /* the field of IPv4 */
	unsigned ident;
	const void *data;
	size_t len;
	bool bad_sum;
};

static void put_v4(struct frame *frame, const struct packet *packet)
{
	uint8_t head[20] = { 0x45, 0, 0, 0, 0, 0, 0, 0, 64, packet->protocol };
	uint16_t sum;

	head[2] = (uint8_t)((sizeof head + packet->len) >> 8);
	head[3] = (uint8_t)(sizeof head + packet->len);
	head[4] = (uint8_t)(packet->ident >> 8);
	head[5] = (uint8_t)packet->ident;
	head[6] = (uint8_t)(packet->fragment >> 8);
	head[7] = (uint8_t)packet->fragment;
	assert_int_equal(inet_pton(AF_INET, packet->from, head + 12), 1);
	assert_int_equal(inet_pton(AF_INET, packet->to, head + 16), 1);
	sum = packet->bad_sum ? 0xbad : sum_of(head, sizeof head, 0);
	head[10] = (uint8_t)(sum >> 8);
	head[11] = (uint8_t)sum;
	put(frame, head, sizeof head);
	put(frame, packet->data, packet->len);
}

static void put_v6(struct frame *frame, const uint8_t from[16], const char *to, uint8_t next,
	const void *data, size_t len)
{
	uint8_t head[40] = { 0x60 }, body[512], target[16];
	uint16_t sum;
	uint32_t pseudo = (uint32_t)len + next;

	assert_int_equal(inet_pton(AF_INET6, to, target), 1);
	head[4] = (uint8_t)(len >> 8);
	head[5] = (uint8_t)len;
	head[6] = next;
	head[7] = 255;
	memcpy(head + 8, from, 16);
	memcpy(head + 24, target, 16);
	memcpy(body, data, len);
	if (next == IPPROTO_ICMPV6) {
		for (size_t i = 8; i < sizeof head; i += 2)
			pseudo += (uint32_t)(head[i] << 8 | head[i + 1]);
		sum = sum_of(body, len, pseudo);
		body[2] = (uint8_t)(sum >> 8);
		body[3] = (uint8_t)sum;
	}
	put(frame, head, sizeof head);
	put(frame, body, len);
}

static void send_v4(const struct packet *packet)
{
	struct frame frame;

	begin(&frame, NULL, ETH_P_IP);
	put_v4(&frame, packet);
	send_frame(&frame);
}

/* ---- what must hold afterwards -------------------------------------------------------------- */

static unsigned heard(int fd)
{
	char bytes[FRAME_MAX];
	unsigned count = 0;

	while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) >= 0)
		count++;
	return count;
}

/* By its own kernel, beside the reports of multicast groups that every kernel sends. */
static unsigned frames_to(int tap)
{
	uint8_t bytes[DOORS_VM_HEADER + FRAME_MAX];
	const uint8_t *frame = bytes + DOORS_VM_HEADER;
	unsigned count = 0;

	while (read(tap, bytes, sizeof bytes) >= 0)
		count += !(frame[12] == 0x86 && frame[13] == 0xdd && frame[20] == IPPROTO_HOPOPTS);
	return count;
}

static void drain(const int all[DOOR_COUNT])
{
	struct doors_refused refused[16];
	int fd;

	while ((fd = accept(all[DOOR_TCP], NULL, NULL)) >= 0)
		close(fd);
	while ((fd = accept(all[DOOR_DNS_TCP4], NULL, NULL)) >= 0)
		close(fd);
	heard(all[DOOR_UDP]);
	heard(all[DOOR_DNS_UDP4]);
	heard(all[DOOR_DNS_UDP6]);
	while (doors_refused_read(all[DOOR_REFUSED], refused, ARRAY_LEN(refused), NULL))
		;
}

static void assert_nothing_came_of_it(void)
{
	_cleanup_free_ char *after = NULL;
	struct doors_refused refused;
	int fd = -1;

	usleep(20000);
	assert_int_equal(heard(host_ears), 0);
	assert_int_equal(accept(others[DOOR_TCP], NULL, NULL), -1);
	assert_int_equal(doors_refused_read(others[DOOR_REFUSED], &refused, 1, NULL), 0);
	assert_int_equal(frames_to(other.tap), 0);
	drain(doors);
	after = furniture();
	assert_string_equal(after, before);
	assert_int_equal(try_tcp(SYNTHETIC, 443, &fd), 0);
	assert_accepted(SYNTHETIC, 443);
	close(fd);
	assert_int_equal(try_tcp(SYNTHETIC_V6, 443, &fd), 0);
	assert_accepted(SYNTHETIC_V6, 443);
	close(fd);
	drain(doors);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static int set_up(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	if (unshare(CLONE_NEWNET) < 0)
		return -1;
	home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	vm_run("ip link set lo up");
	host_ears = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, htons(ETH_P_ALL));
	if (doors_prepare(&plan, &err) < 0 || vm_guest_start(plan, home, &guest, &err) < 0 ||
		doors_open(guest.netns, doors, &err) < 0 ||
		doors_make_vm(plan, &other.netns, &other.tap, &err) < 0 ||
		doors_open(other.netns, others, &err) < 0) {
		printf("%s\n", err.message);
		return -1;
	}
	netns = guest.netns;
	inner = guest.inner;
	before = furniture();
	heard(host_ears);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	free(before);
	doors_close(doors);
	doors_close(others);
	vm_guest_end(&guest);
	close(other.tap);
	close(other.netns);
	doors_plan_free(plan);
	close(host_ears);
	close(home);
	return 0;
}

/* All namespaces share one table of neighbours: whoever fills it ends the host's IPv6. */
static void neighbours_are_not_made_up(void **state)
{
	_cleanup_free_ char *known = NULL;

	(void)state;
	for (int i = 0; i < FLOOD; i++) {
		/* neighbour solicitation for PREFIX::1 with the sender's address on the cable */
		uint8_t ask[32] = { 135, [8] = 0xfd, 0x62, 0x6f, 0x78, 0x79, 0x61, 0x72,
			0x64, [23] = 1, 1, 1, 0x52, 0x54, 0, 0, 0, 9 };
		uint8_t from[16] = { 0xfd, 0x62, 0x6f, 0x78, 0x79, 0x61, 0x72, 0x64 };
		uint8_t arp[28] = { 0, 1, 8, 0, 6, 4, 0, 1, 0x52, 0x54, 0, 0, 0, 9, 198,
			18, [24] = 198, 18, 0, 1 };
		struct frame frame;
		uint32_t number = dice();

		if (i % 3 == 0)
			from[0] = 0x20;
		if (i % 3 == 1)
			memcpy(from, "\xfe\x80\0\0\0\0\0\0", 8);
		memcpy(from + 12, &number, 4);
		begin(&frame, NULL, ETH_P_IPV6);
		put_v6(&frame, from, DOORS_RESOLVER_V6, IPPROTO_ICMPV6, ask, sizeof ask);
		send_frame(&frame);
		if (i % 4 == 0)
			arp[7] = 2; /* an answer that nobody asked for */
		memcpy(arp + (i % 2 ? 14 : 16), &number, i % 2 ? 4 : 2);
		begin(&frame, NULL, ETH_P_ARP);
		put(&frame, arp, sizeof arp);
		send_frame(&frame);
	}
	known = output_of("ip -s neigh", netns);
	assert_true(lines(known) <= 8);
	assert_nothing_came_of_it();
}

static void routers_are_not_believed(void **state)
{
	static const uint8_t box[16] = { 0xfd, 0x62, 0x6f, 0x78, 0x79, 0x61, 0x72, 0x64, [15] = 2 };
	static const uint8_t link[16] = { 0xfe, 0x80, [15] = 9 };
	/* advertisement: a prefix to make addresses of, lifetimes without end */
	const uint8_t advert[48] = { 134, 0, 0, 0, 64, 0, 0xff, 0xff, [16] = 3, 4, 64, 0xc0, 0xff,
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, [32] = 0x20, 1, 0xd, 0xb8 };
	uint8_t redirect[40] = { 137, [8] = 0xfe, 0x80, [23] = 9, [24] = 0x20, 1, 0xd,
		0xb8, [39] = 7 };
	/* ICMP redirect, and "fragment to 68 bytes", both about a packet of ours */
	uint8_t errors[2][36] = { { 5, 1, 0, 0, 198, 18, 0, 2, 0x45, [16] = 64, 6, [20] = 198, 18,
					  0, 1, 198, 18, 0, 2 },
		{ 3, 4, 0, 0, 0, 0, 0, 68, 0x45, [16] = 64, 6, [20] = 198, 18, 0, 1, 198, 18, 0,
			2 } };
	struct frame frame;

	(void)state;
	for (int i = 0; i < 4; i++) {
		begin(&frame, i % 2 ? "\x33\x33\0\0\0\x01" : NULL, ETH_P_IPV6);
		put_v6(&frame, i < 2 ? box : link, i % 2 ? "ff02::1" : DOORS_RESOLVER_V6,
			IPPROTO_ICMPV6, advert, sizeof advert);
		send_frame(&frame);
		begin(&frame, NULL, ETH_P_IPV6);
		put_v6(&frame, i < 2 ? box : link, DOORS_RESOLVER_V6, IPPROTO_ICMPV6, redirect,
			sizeof redirect);
		send_frame(&frame);
	}
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		uint16_t sum = sum_of(errors[i], sizeof errors[i], 0);

		errors[i][2] = (uint8_t)(sum >> 8);
		errors[i][3] = (uint8_t)sum;
		send_v4(&(struct packet){ .from = DOORS_BOX_V4,
			.to = DOORS_RESOLVER_V4,
			.protocol = IPPROTO_ICMP,
			.data = errors[i],
			.len = sizeof errors[i] });
	}
	assert_nothing_came_of_it();
}

static void other_protocols_and_tunnels_lead_nowhere(void **state)
{
	static const unsigned types[] = { ETH_P_8021Q, ETH_P_8021AD, ETH_P_MPLS_UC, ETH_P_PPP_SES,
		ETH_P_PAE, ETH_P_LLDP, ETH_P_BATMAN, ETH_P_CFM, 0x0026 /* LLC */, 0xffff };
	static const uint8_t protocols[] = { IPPROTO_IPIP, IPPROTO_IPV6, IPPROTO_GRE, IPPROTO_ESP,
		IPPROTO_AH, IPPROTO_SCTP, IPPROTO_DCCP, IPPROTO_UDPLITE, IPPROTO_IGMP, IPPROTO_PIM,
		IPPROTO_ICMP, 115 /* L2TP */, 0, 255 };
	static const char *const aims[] = { "127.0.0.1", DOORS_RESOLVER_V4, DOORS_BOX_V4, "0.0.0.0",
		"8.8.8.8", "255.255.255.255", "224.0.0.1" };
	uint8_t inside_packet[64] = { 0x45, 0, 0, 64, [8] = 64, 17, [12] = 198, 18, 0, 2, 127, 0, 0,
		1 };
	uint16_t sum = sum_of(inside_packet, 20, 0);
	struct frame frame;

	(void)state;
	inside_packet[10] = (uint8_t)(sum >> 8);
	inside_packet[11] = (uint8_t)sum;
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		for (int tagged = 0; tagged < 3; tagged++) {
			begin(&frame, NULL, types[i]);
			for (int j = 0; j < tagged; j++) {
				put_u16(&frame, dice() & 0xfff);
				put_u16(&frame, j + 1 == tagged ? ETH_P_IP : ETH_P_8021Q);
			}
			put(&frame, inside_packet, sizeof inside_packet);
			send_frame(&frame);
		}
	for (size_t i = 0; i < ARRAY_LEN(protocols); i++)
		for (size_t j = 0; j < ARRAY_LEN(aims); j++)
			for (int bad = 0; bad < 2; bad++)
				send_v4(&(struct packet){ .from = DOORS_BOX_V4,
					.to = aims[j],
					.protocol = protocols[i],
					.data = inside_packet,
					.len = sizeof inside_packet,
					.bad_sum = bad });
	assert_nothing_came_of_it();
}

/* They wait in the host's memory, for half a minute. */
static void fragments_without_an_end_take_little_memory(void **state)
{
	static const uint8_t half[1400];
	_cleanup_free_ char *figures = NULL;
	const char *at;
	unsigned long bytes = 0;

	(void)state;
	for (unsigned i = 0; i < FLOOD; i++)
		send_v4(&(struct packet){ .from = DOORS_BOX_V4,
			.to = "198.18.7.5",
			.protocol = IPPROTO_UDP,
			.fragment = 0x2000 | (i % 7 * 100),
			.ident = i,
			.data = half,
			.len = sizeof half });
	figures = output_of("cat /proc/net/sockstat /proc/net/sockstat6", netns);
	at = strstr(figures, "FRAG: inuse");
	assert_non_null(at);
	assert_int_equal(sscanf(at, "FRAG: inuse %*u memory %lu", &bytes), 1);
	assert_true(bytes <= 512 * 1024);
	assert_nothing_came_of_it();
}

static void lies_in_the_header_of_the_tap_are_refused(void **state)
{
	static const uint8_t datagram[1200] = { 0x12, 0x34, 0, 80, 4, 0xb0 };
	const struct packet packet = { .from = DOORS_BOX_V4,
		.to = SYNTHETIC,
		.protocol = IPPROTO_UDP,
		.data = datagram,
		.len = sizeof datagram };

	(void)state;
	for (unsigned i = 0; i < FLOOD; i++) {
		struct virtio_net_hdr_v1 head = { .flags = (uint8_t)(dice() & (i % 2 ? 3 : 0xff)),
			.gso_type = (uint8_t)(dice() % 3 ? dice() % 8 | (dice() & 0x80) : dice()),
			.hdr_len = (uint16_t)(dice() % 2 ? dice() % 64 : dice()),
			.gso_size = (uint16_t)(dice() % 3 ? dice() % 4 : dice()),
			.csum_start = (uint16_t)(dice() % 2 ? dice() % 64 : dice()),
			.csum_offset = (uint16_t)(dice() % 2 ? dice() % 64 : dice()),
			.num_buffers = (uint16_t)dice() };
		struct frame frame;
		struct packet some = packet;

		some.protocol = i % 3 ? IPPROTO_TCP : IPPROTO_UDP;
		some.len = i % 5 ? sizeof datagram : dice() % sizeof datagram;
		begin(&frame, NULL, i % 11 ? ETH_P_IP : ETH_P_IPV6);
		put_v4(&frame, &some);
		memcpy(frame.bytes, &head, DOORS_VM_HEADER);
		if (i % 7 == 0) /* shorter than it says, down to nothing */
			frame.len = dice() % (frame.len + 1);
		send_frame(&frame);
	}
	assert_nothing_came_of_it();
}

/* Real packets with some bytes changed. */
static void broken_packets_do_no_harm(void **state)
{
	static const uint8_t segment[40] = { 0x30, 0x39, 1, 0xbb, [12] = 0x50, 0x02, 0xff, 0xff };

	(void)state;
	for (unsigned i = 0; i < FLOOD; i++) {
		struct packet packet = { .from = DOORS_BOX_V4,
			.to = SYNTHETIC,
			.protocol = i % 2 ? IPPROTO_TCP : IPPROTO_UDP,
			.data = segment,
			.len = sizeof segment };
		struct frame frame;

		begin(&frame, NULL, ETH_P_IP);
		put_v4(&frame, &packet);
		for (unsigned j = dice() % 4; j > 0; j--)
			frame.bytes[DOORS_VM_HEADER + dice() % (frame.len - DOORS_VM_HEADER)] =
				(uint8_t)dice();
		send_frame(&frame);
	}
	assert_nothing_came_of_it();
}

/* Nobody reads the other box's tap. */
static void frames_that_nobody_takes_are_few(void **state)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(7) };
	int fd;

	(void)state;
	to.sin_addr.s_addr = htonl(0xc6120002);
	assert_int_equal(setns(other.netns, CLONE_NEWNET), 0);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(setns(home, CLONE_NEWNET), 0);
	for (int i = 0; i < FLOOD; i++)
		(void)!sendto(fd, "x", 1, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to);
	close(fd);
	assert_in_range(frames_to(other.tap), 1, 128);
}

/* ICMP errors are a budget of the whole machine. */
static void refusals_are_limited(void **state)
{
	static const uint8_t datagram[8] = { 0x12, 0x34, 0, 80, 0, 8 };
	const struct packet packet = { .from = DOORS_BOX_V4,
		.to = "8.8.8.8",
		.protocol = IPPROTO_UDP,
		.data = datagram,
		.len = sizeof datagram };
	int64_t began = clock_mono_us(), took;
	unsigned answers = 0;
	struct frame frame;

	(void)state;
	begin(&frame, NULL, ETH_P_IP);
	put_v4(&frame, &packet);
	for (int i = 0; i < FLOOD; i++) {
		assert_true(write(other.tap, frame.bytes, frame.len) > 0);
		if (i % 64 == 0)
			answers += frames_to(other.tap);
	}
	answers += frames_to(other.tap);
	took = clock_mono_us() - began;
	assert_in_range(answers, 50, 200 + 200 * (took / 1000000 + 1));
	drain(others);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(neighbours_are_not_made_up),
		cmocka_unit_test(routers_are_not_believed),
		cmocka_unit_test(other_protocols_and_tunnels_lead_nowhere),
		cmocka_unit_test(fragments_without_an_end_take_little_memory),
		cmocka_unit_test(lies_in_the_header_of_the_tap_are_refused),
		cmocka_unit_test(broken_packets_do_no_harm),
		cmocka_unit_test(frames_that_nobody_takes_are_few),
		cmocka_unit_test(refusals_are_limited),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
