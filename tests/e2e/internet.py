"""internet.py - an internet of the test's own, and a place for a daemon that can reach nothing else

Two network namespaces. In the *world* every address there is, public, private, link-local or
metadata, v4 and v6,
is a local one: whatever is sent there arrives. The *site* is where a daemon runs; its only way out
leads to the
world, so nothing a test does can leave the machine.

    site  192.0.2.2, 2001:db8:77::2, 10.77.0.2 (a "LAN")  ----  world  everything else

    with World() as world:
        world.dns("web.test", "203.0.113.10")
        world.serve_http("203.0.113.10", 80)               # answers 200, remembers requests
        yard = world.yard()                                # a Yard (boxtest.py) inside the site, resolving by the world
        yard.start_daemon()
        ...
        world.seen("tcp 203.0.113.10:80")                  # what arrived, oldest first

Servers are threads of the test with sockets that were made in the world: handlers can be any Python
code. Programs
(git daemon, sshd, postgres) are started there with world.run() or world.spawn(). The namespaces
have no names and no
processes of their own: they go when their descriptors are closed.

Fixtures, to be imported by the tests that use them: `world` (one for the whole run; names and
servers stay until
replaced), `world_yard` (a daemon in it), `world_box` (makes boxes of that daemon).

    from internet import world, world_box, world_yard  # noqa: F401
"""
import contextlib
import ctypes
import http.server
import os
import select
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from boxtest import Yard, eventually

CLONE_NEWNET = 0x40000000
IPV6_FREEBIND = 78
RESOLVER = "203.0.113.53"  # every address answers DNS; this one is in the site's resolv.conf
SITE4, WORLD4, SITE6, WORLD6 = "192.0.2.2", "192.0.2.1", "2001:db8:77::2", "2001:db8:77::1"
LAN_SITE4, LAN_WORLD4 = "10.77.0.2", "10.77.0.1"

libc = ctypes.CDLL(None, use_errno=True)


def in_thread(work):
    """Runs work() in a thread of its own, so that its network namespace is nobody else's."""
    result = []

    def run():
        try:
            result.append((work(), None))
        except BaseException as why:  # handed to the caller
            result.append((None, why))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    value, why = result[0]
    if why:
        raise why
    return value


def checked(status, what):
    if status < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def new_namespace():
    """A new network namespace as a descriptor."""

    def make():
        checked(libc.unshare(CLONE_NEWNET), "unshare")
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    return in_thread(make)


def ip_text(address, port=None):
    """As it is written in what was seen: 203.0.113.10:80, [2001:db8::1]:80."""
    if address.startswith("::ffff:") and "." in address:
        address = address[7:]
    if port is None:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class Server:
    """A listening socket and its thread."""

    def __init__(self, sock, serve):
        self.sock, self.over = sock, False
        self.thread = threading.Thread(target=serve, args=(self,), daemon=True)
        self.thread.start()

    def close(self):
        self.over = True
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        self.thread.join(2)


class World:
    def __init__(self):
        self.net, self.site = new_namespace(), new_namespace()
        self.folder = Path(tempfile.mkdtemp(prefix="boxt-world-"))
        self.resolv_conf = self.folder / "resolv.conf"
        self.resolv_conf.write_text(f"nameserver {RESOLVER}\n")
        self.names = {}
        self.servers, self.children, self.yards = {}, [], []
        self.record, self.lock = [], threading.Lock()
        self._links()
        self.serve_udp("0.0.0.0", 53, self._dns_datagram)
        self.serve_udp("::", 53, self._dns_datagram)
        self.serve_tcp("0.0.0.0", 53, self._dns_stream)
        self.serve_tcp("::", 53, self._dns_stream)

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.close()

    # -- the namespaces

    def path(self, net):
        return f"/proc/{os.getpid()}/fd/{net}"

    def wrapper(self, net):
        """Words before a command that make it run in a namespace (world.net or world.site)."""
        return ["nsenter", f"--net={self.path(net)}"]

    def _ip(self, net, script):
        done = subprocess.run([*self.wrapper(net), "ip", "-batch", "-"], input=script, text=True, capture_output=True,
                              check=False)
        assert done.returncode == 0, done.stderr

    def _links(self):
        self._ip(self.net, f"""
            link set lo up
            link add up0 type veth peer name out0 netns {self.path(self.site)}
            link add lan0 type veth peer name lan0 netns {self.path(self.site)}
            link set up0 up
            link set lan0 up
            address add {WORLD4}/30 dev up0
            address add {WORLD6}/64 dev up0 nodad
            address add fe80::1/64 dev up0 nodad
            address add {LAN_WORLD4}/30 dev lan0
            route add 192.0.2.0/30 dev up0 table local
            route add 10.77.0.0/30 dev lan0 table local
            route add local 0.0.0.0/0 dev lo table local
            route add 2001:db8:77::/64 dev up0 table local
            route add local ::/0 dev lo table local
        """)
        self._ip(self.site, f"""
            link set lo up
            link set out0 up
            link set lan0 up
            address add {SITE4}/30 dev out0
            address add {SITE6}/64 dev out0 nodad
            address add {LAN_SITE4}/30 dev lan0
            route add default via {WORLD4} dev out0
            route add default via {WORLD6} dev out0
        """)

    def socket(self, family, kind, net=None):
        """A socket in the world (or, with net=world.site, in the site); usable from any thread."""

        def make():
            checked(libc.setns(net or self.net, CLONE_NEWNET), "setns")
            return socket.socket(family, kind)

        return in_thread(make)

    def spawn(self, argv, net=None, **more):
        """A program in the world; ended with it."""
        child = subprocess.Popen([*self.wrapper(net or self.net), *map(str, argv)], start_new_session=True, **more)
        self.children.append(child)
        return child

    def run(self, argv, net=None, **more):
        more.setdefault("check", True)
        more.setdefault("capture_output", True)
        return subprocess.run([*self.wrapper(net or self.net), *map(str, argv)], **more)

    # -- what arrived

    def saw(self, text):
        with self.lock:
            self.record.append(text)

    def seen(self, start=""):
        """Lines that begin with start: "tcp 10.0.0.1:80", "udp [fd00::1]:53", "dns A web.test",
        "http web.test GET /x", "sni web.test"."""
        with self.lock:
            return [line for line in self.record if line.startswith(start)]

    def forget(self):
        with self.lock:
            self.record.clear()

    # -- servers

    def _bound(self, address, port, kind):
        old = self.servers.pop(("tcp" if kind == socket.SOCK_STREAM else "udp", address, port), None)
        if old:
            old.close()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = self.socket(family, kind)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)  # v6 does not take a local route for an address
        sock.bind((address, port))
        return sock

    def _keep(self, key, server):
        if key in self.servers:
            self.servers.pop(key).close()
        self.servers[key] = server
        return server

    def serve_tcp(self, address, port, handler):
        """handler(conn, local) for each connection, in a thread; conn is closed afterwards. local
        is where the client
        wanted to go: with "0.0.0.0" or "::" every address that has no server of its own. A server
        on the same
        address and port is replaced."""
        sock = self._bound(address, port, socket.SOCK_STREAM)
        sock.listen(1024)

        def one(conn):
            local = conn.getsockname()
            self.saw(f"tcp {ip_text(*local[:2])}")
            with contextlib.suppress(OSError), conn:
                handler(conn, ip_text(local[0]))

        def serve(server):
            while not server.over:
                try:
                    conn, _ = sock.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(conn,), daemon=True).start()

        return self._keep(("tcp", address, port), Server(sock, serve))

    def serve_udp(self, address, port, handler):
        """handler(data, local) for each datagram gives the answer, or None; the answer comes from
        where it was sent."""
        sock = self._bound(address, port, socket.SOCK_DGRAM)
        v6 = sock.family == socket.AF_INET6
        level, option, kind = ((socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, socket.IPV6_PKTINFO) if v6
                               else (socket.IPPROTO_IP, 8, 8))  # IP_PKTINFO
        sock.setsockopt(level, option, 1)

        def serve(server):
            while not server.over:
                try:
                    if not select.select([sock], [], [], 0.5)[0]:
                        continue
                    data, control, _, peer = sock.recvmsg(65536, 256)
                except (OSError, ValueError):
                    return
                info = next((c[2] for c in control if c[1] == kind), None)
                if info is None:  # what closing the socket wakes us with
                    continue
                local = socket.inet_ntop(sock.family, info[:16] if v6 else info[8:12])
                self.saw(f"udp {ip_text(local, port)}")
                answer = handler(data, local)
                if answer is not None:
                    # No interface is named, for the address lies on none; but link-local ones do.
                    back = (info if local.startswith("fe80") else info[:16] + bytes(4)) if v6 \
                        else struct.pack("=I4s4s", 0, info[8:12], bytes(4))
                    with contextlib.suppress(OSError):
                        sock.sendmsg([answer], [(level, kind, back)], 0, peer)

        return self._keep(("udp", address, port), Server(sock, serve))

    def echo_tcp(self, address, port):
        """Sends back what comes."""

        def handler(conn, local):
            while data := conn.recv(65536):
                conn.sendall(data)

        return self.serve_tcp(address, port, handler)

    def echo_udp(self, address, port):
        return self.serve_udp(address, port, lambda data, local: data)

    def serve_http(self, address, port, answer=b"ok\n", handler=None, context=None):
        """HTTP/1.1 with keep-alive: GET, HEAD, POST, PUT and DELETE get 200 with answer (bytes, or
        a function
        of the request handler that gives bytes). handler: a class of http.server's instead.
        context: TLS."""
        world = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def reply(self):
                length = int(self.headers.get("Content-Length") or 0)
                self.body = self.rfile.read(length) if length else b""
                world.saw(f"http {self.headers.get('Host', '')} {self.command} {self.path}")
                data = answer(self) if callable(answer) else answer
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = reply

            def log_message(self, *words):
                pass

        def serve(conn, local):
            if context:
                conn = context.wrap_socket(conn, server_side=True)
            (handler or Handler)(conn, conn.getpeername(), self)

        return self.serve_tcp(address, port, serve)

    def serve_https(self, address, port=443, names=("web.test",), alpn=("http/1.1",), **more):
        """HTTPS with a certificate of the world's own authority (world.ca_file) for names; what
        clients ask for is
        remembered as "sni NAME"."""
        return self.serve_http(address, port, context=self.tls_context(names, alpn), **more)

    def tls_context(self, names, alpn=("http/1.1",)):
        certificate, key = self.certificate(names)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.set_alpn_protocols(list(alpn))
        context.sni_callback = lambda sock, name, ctx: self.saw(f"sni {name or ''}")
        return context

    # -- certificates

    def _openssl(self, *words, **more):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, **more)

    @property
    def ca_file(self):
        """The authority's certificate (PEM), to be put where clients look for it. It does not look
        like a root of the
        real world and is made anew each run."""
        path = self.folder / "ca.pem"
        if not path.exists():
            self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                          "-subj", "/CN=test internet", "-keyout", self.folder / "ca.key", "-out", path,
                          "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
        return path

    def certificate(self, names):
        """(certificate file, key file) for names and addresses."""
        ca, stem = self.ca_file, self.folder / f"cert-{abs(hash(tuple(names))):x}"
        certificate, key = stem.with_suffix(".pem"), stem.with_suffix(".key")
        if not certificate.exists():
            request, extensions = stem.with_suffix(".csr"), stem.with_suffix(".ext")
            kinds = ["IP" if name.replace(".", "").isdigit() or ":" in name else "DNS" for name in names]
            extensions.write_text("subjectAltName=" + ",".join(f"{k}:{n}" for k, n in zip(kinds, names)) + "\n")
            self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={names[0]}",
                          "-keyout", key, "-out", request)
            self._openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", self.folder / "ca.key", "-CAcreateserial",
                          "-days", "2", "-extfile", extensions, "-out", certificate)
        return certificate, key

    # -- names

    def dns(self, name, *addresses, cname=None, ttl=5, rcode=0):
        """What the world's resolvers answer for name: addresses of both families; a list as the
        only address stands for
        answers given in turn ([["203.0.113.1"], ["10.0.0.1"]]). cname: an alias. Unknown names are
        NXDOMAIN.
        A name "*.x.test" stands for everything below x.test."""
        turns = addresses[0] if len(addresses) == 1 and isinstance(addresses[0], list) else [list(addresses)]
        self.names[name.lower()] = {"turns": turns, "at": 0, "cname": cname, "ttl": ttl, "rcode": rcode}

    def no_dns(self, name):
        self.names.pop(name.lower(), None)

    def _look_up(self, name):
        parts = name.split(".")
        for candidate in [name] + ["*." + ".".join(parts[i:]) for i in range(1, len(parts))]:
            if candidate in self.names:
                return self.names[candidate]
        return None

    def _dns_answer(self, question):
        """The answer to a DNS message of one question; None for what is none."""
        try:
            ident, flags, count = struct.unpack(">HHH", question[:6])
            at, labels = 12, []
            while question[at]:
                labels.append(question[at + 1:at + 1 + question[at]].decode("latin-1").lower())
                at += 1 + question[at]
            kind, _ = struct.unpack(">HH", question[at + 1:at + 5])
        except (struct.error, IndexError):
            return None
        if flags & 0x8000 or count != 1:
            return None
        name = ".".join(labels)
        self.saw(f"dns {({1: 'A', 28: 'AAAA', 16: 'TXT', 65: 'HTTPS'}).get(kind, kind)} {name}")
        records, rcode = [], 0
        found = self._look_up(name)
        if not found:
            rcode = 3
        elif found["rcode"]:
            rcode = found["rcode"]
        elif found["cname"]:
            target = found["cname"]
            data = b"".join(bytes([len(part)]) + part.encode() for part in target.split(".")) + b"\0"
            records.append((b"\xc0\x0c", 5, found["ttl"], data))
            owner, other = data, self._look_up(target)
            records += self._addresses(other, kind, owner) if other else []
        else:
            records = self._addresses(found, kind, b"\xc0\x0c")
        body = b"".join(owner + struct.pack(">HHIH", type_, 1, ttl, len(data)) + data
                        for owner, type_, ttl, data in records)
        head = struct.pack(">HHHHHH", ident, 0x8180 | rcode, 1, len(records), 0, 0)
        return head + question[12:at + 5] + body

    def _addresses(self, found, kind, owner):
        turn = found["turns"][found["at"] % len(found["turns"])]
        if kind == 1:
            found["at"] += 1
        family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
        return [(owner, kind, found["ttl"], socket.inet_pton(family, one)) for one in turn
                if family and (":" in one) == (kind == 28)]

    def _dns_datagram(self, data, local):
        return self._dns_answer(data)

    def _dns_stream(self, conn, local):
        conn.settimeout(10)
        reader = conn.makefile("rb")
        while len(head := reader.read(2)) == 2:
            answer = self._dns_answer(reader.read(struct.unpack(">H", head)[0]))
            if answer is None:
                return
            conn.sendall(struct.pack(">H", len(answer)) + answer)

    # -- daemons

    def adopt(self, yard):
        """Lets a yard's daemon run in the site, resolving by the world."""
        yard.wrapper = self.wrapper(self.site)
        yard.env["BOX_RESOLV_CONF"] = str(self.resolv_conf)
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "NO_PROXY", "no_proxy"):
            yard.env.pop(name, None)
        return yard

    def yard(self):
        yard = self.adopt(Yard())
        self.yards.append(yard)
        return yard

    # -- the end

    def close(self):
        """Gives what yards of ours left behind, as sentences."""
        problems = [problem for yard in self.yards for problem in yard.destroy()]
        for child in self.children:
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, 15)
                try:
                    child.wait(3)
                except subprocess.TimeoutExpired:
                    os.killpg(child.pid, 9)
                    child.wait()
        for server in self.servers.values():
            server.close()
        self.servers.clear()
        for net in (self.net, self.site):
            with contextlib.suppress(OSError):
                os.close(net)
        self.net = self.site = -1
        shutil.rmtree(self.folder, ignore_errors=True)
        return problems


# ---- fixtures --------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def world(image):
    one = World()
    yield one
    problems = one.close()
    assert not problems, "\n".join(problems)


@pytest.fixture(scope="session")
def world_yard(world):
    """A daemon in the site of the world; tests share it."""
    one = world.yard()
    one.start_daemon()
    return one


@pytest.fixture
def world_box(world_yard):
    """Makes boxes in the world: world_box(policy={...}); removed afterwards."""
    made = []

    def make(**body):
        made.append(world_yard.new(**body))
        return made[-1]

    yield make
    for one in made:
        assert one.remove().status in (204, 404)


def settle(world, start, count=1, timeout=3):
    """Waits until at least count lines that begin with start were seen; gives them."""
    return eventually(lambda: len(world.seen(start)) >= count and world.seen(start), timeout,
                      lambda: f"{start} in {world.seen()[-20:]}")
