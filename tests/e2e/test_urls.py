"""Ways into a box: URLs by HTTP, WebSocket, events, uploads; private and public; ports of the
host."""
import contextlib
import hashlib
import http.client
import json
import socket
import ssl
import subprocess
import time
from urllib.parse import urlencode

import pytest
import websocket

from boxtest import SLOWNESS, eventually
from fixtures import running_yard_with

# One server for everything: what it was asked, a hash of what it was sent, events, a WebSocket that
# echoes; on port
# 9000 plain bytes, each line back in capitals; on port 8002 it listens on ::1 alone.
APP = r'''
import base64, hashlib, http.server, json, socket, socketserver, struct, threading, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def say(self, data, status=200, **headers):
        self.send_response(status)
        for name, value in headers.items(): self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", len(data)); self.end_headers(); self.wfile.write(data)
    def do_GET(self):
        if self.path == "/events": return self.events()
        if self.path == "/ws": return self.websocket()
        if self.path.startswith("/bytes/"): return self.bytes(int(self.path[7:]))
        if self.path == "/cookie": return self.say(b"", Set_Cookie="a=b; Domain=localhost; Path=/")
        self.say(json.dumps({"path": self.path, "client": self.client_address[1], "headers": dict(self.headers)}).encode())
    def do_POST(self):
        digest, left = hashlib.sha256(), int(self.headers["Content-Length"])
        while left:
            data = self.rfile.read(min(left, 1 << 16)); digest.update(data); left -= len(data)
        self.say(digest.hexdigest().encode())
    def bytes(self, count):
        self.send_response(200); self.send_header("Content-Length", count); self.end_headers()
        while count:
            self.wfile.write(b"x" * min(count, 1 << 16)); count -= min(count, 1 << 16)
    def events(self):
        self.send_response(200); self.send_header("Content-Type", "text/event-stream"); self.send_header("Connection", "close"); self.end_headers()
        for i in range(5):
            self.wfile.write(b"data: %d\n\n" % i); self.wfile.flush(); time.sleep(0.2)
        self.close_connection = True
    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101); self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()); self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8: return
            size = head[1] & 127
            if size == 126: size, = struct.unpack(">H", self.rfile.read(2))
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            back = bytes([head[0]]) + (bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size)) + data
            self.wfile.write(back); self.wfile.flush()

class V6(http.server.ThreadingHTTPServer): address_family = socket.AF_INET6
class Lines(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile: self.wfile.write(line.upper())
class LineServer(socketserver.ThreadingTCPServer): allow_reuse_address = True

servers = [http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler), http.server.ThreadingHTTPServer(("127.0.0.1", 8001), Handler),
           V6(("::1", 8002), Handler), LineServer(("127.0.0.1", 9000), Lines)]
for server in servers:
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever).start()
print("ready", flush=True)
'''


def new_site(yard):
    """A box with the server in it; port 8000 is public."""
    box = yard.new()
    box.put("/srv/app.py", APP.encode(), parents="true")
    run = box.start("python3", "/srv/app.py")["id"]
    logs = f"{box.path}/execs/{run}/logs"
    eventually(lambda: b"ready" in yard.api("GET", logs, query={"raw": "true"}).body, timeout=20 * SLOWNESS,
               what="the server in the box")
    yard.box("url", box.name, "8000", "--public")
    box.door = yard.port()
    return box


@pytest.fixture(scope="module")
def site(yard):
    """The same, with 8002 public too."""
    box = new_site(yard)
    yard.box("url", box.name, "8002", "--public")
    yield box
    box.remove()


@pytest.fixture(scope="module")
def token(yard):
    return yard.api("POST", "/v1/tokens", {"name": "urls", "scopes": ["exec"]}, expect=201).json["token"]


def host(box, port=8000):
    return f"{port}-{box.name}.localhost:{box.door}"


@contextlib.contextmanager
def connection(box):
    conn = http.client.HTTPConnection("127.0.0.1", box.door, timeout=30 * SLOWNESS)
    try:
        yield conn
    finally:
        conn.close()


def ask(box, path="/", port=8000, method="GET", body=None, **headers):
    with connection(box) as conn:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        conn.request(method, path, body, {"Host": host(box, port), **names})
        got = conn.getresponse()
        return got.status, got.headers, got.read()


# ---- what passes -----------------------------------------------------------------------------


def test_the_url_of_a_port_stays_the_same(yard, make_box):
    box = make_box()
    door = yard.port()
    wanted = f"http://8000-{box.name}.localhost:{door}/"
    urls = []
    for words in ([], ["--public"], []):
        urls.append(yard.box("url", box.name, "8000", *words).stdout.strip())
    yard.box("port", "default", box.name, "8000")
    urls.append(yard.box("url", box.name, "8000").stdout.strip())
    yard.box("url", box.name, "9000", "--public")
    urls.append(yard.box("url", box.name, "8000").stdout.strip())
    urls += [p["url"] for p in yard.api("GET", f"{box.path}/ports", expect=200).json["ports"] if p["port"] == 8000]
    assert urls == [wanted] * 6
    assert yard.box("url", box.name).stdout.strip() == f"http://{box.name}.localhost:{door}/"


def test_url_is_told_and_leads_to_the_port(yard, site):
    url = yard.box("url", site.name, "8000").stdout.strip()
    assert url == f"http://{host(site)}/"
    got = json.loads(subprocess.run(["curl", "-sS", "--max-time", "20", "--noproxy", "*", f"{url}a?b=c"], capture_output=True, check=True).stdout)
    assert got["path"] == "/a?b=c"
    assert got["headers"]["Host"] == host(site)
    assert got["headers"]["X-Forwarded-For"] in ("127.0.0.1", "::1")
    assert got["headers"]["X-Forwarded-Proto"] == "http"


def test_port_that_listens_on_ipv6_alone_is_found(site):
    assert ask(site, port=8002)[0] == 200


def test_connections_into_the_box_are_kept(site):
    with connection(site) as conn:
        clients = set()
        for _ in range(20):
            conn.request("GET", "/", headers={"Host": host(site)})
            clients.add(json.loads(conn.getresponse().read())["client"])
    assert len(clients) == 1


def test_default_port(yard, site):
    with connection(site) as conn:
        yard.box("port", "default", site.name, "8000")
        conn.request("GET", "/x", headers={"Host": f"{site.name}.localhost:{site.door}"})
        assert json.loads(conn.getresponse().read())["path"] == "/x"
    assert yard.box("url", site.name).stdout.strip() == f"http://{site.name}.localhost:{site.door}/"


def test_upload_of_400_mb_in_constant_memory(yard, site, quick):
    size, chunk = 400 * 1024 * 1024, b"u" * (1 << 20)
    before, digest = yard.rss_kb(), hashlib.sha256()
    with connection(site) as conn:
        conn.putrequest("POST", "/up", skip_host=True)
        conn.putheader("Host", host(site))
        conn.putheader("Content-Length", str(size))
        conn.endheaders()
        for i in range(size // len(chunk)):
            conn.send(chunk)
            digest.update(chunk)
            if i % 50 == 0:
                assert yard.rss_kb() - before < 16 * 1024
        assert conn.getresponse().read().decode() == digest.hexdigest()


def test_slow_client_holds_up_nobody(yard, site):
    before = yard.rss_kb()
    with socket.create_connection(("127.0.0.1", site.door)) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        slow.sendall(f"GET /bytes/300000000 HTTP/1.1\r\nHost: {host(site)}\r\n\r\n".encode())
        for _ in range(10):
            assert slow.recv(1000)
            assert ask(site)[0] == 200
    if SLOWNESS == 1:
        assert yard.rss_kb() - before < 16 * 1024


def test_events_come_as_they_are_sent(site):
    with connection(site) as conn:
        conn.request("GET", "/events", headers={"Host": host(site)})
        answer, times = conn.getresponse(), []
        while line := answer.readline():
            if line.startswith(b"data:"):
                times.append(time.monotonic())
    assert len(times) == 5
    assert all(later - earlier > 0.1 for earlier, later in zip(times, times[1:]))


def test_websocket(site):
    sock = socket.create_connection(("127.0.0.1", site.door))
    conn = websocket.create_connection(f"ws://{host(site)}/ws", socket=sock, timeout=15 * SLOWNESS)
    for text in ("hello", "x" * 5000):
        conn.send(text)
        assert conn.recv() == text
    conn.close()


def test_cookies_of_a_box_stay_with_its_host(site):
    status, headers, _ = ask(site, "/cookie")
    assert status == 200
    assert headers["Set-Cookie"] == "a=b; Path=/"


# ---- who may come in -------------------------------------------------------------------------


def test_private_port_wants_a_token_that_the_box_never_sees(site, token):
    assert ask(site, port=8001)[0] == 401
    assert ask(site, port=8001, Authorization="Bearer box_nonsense")[0] == 401
    status, _, body = ask(site, port=8001, Authorization=f"Bearer {token}")
    assert status == 200
    assert token not in body.decode()
    assert token not in ask(site, Authorization=f"Bearer {token}")[2].decode()


def test_browser_logs_in(yard, site):
    made = yard.api("POST", "/v1/tokens", {"name": "browser", "scopes": ["exec"]}, expect=201).json
    status, _, page = ask(site, "/a", port=8001, Accept="text/html")
    assert status == 401
    assert b"<form method=post" in page
    form = urlencode({"token": made["token"], "next": "/a"})
    status, headers, _ = ask(site, "/.boxyard/login", port=8001, method="POST", body=form,
                             Origin=f"http://{host(site, 8001)}", Content_Type="application/x-www-form-urlencoded")
    assert (status, headers["Location"]) == (303, "/a")
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Domain" not in cookie
    cookie = cookie.split(";")[0]
    status, _, body = ask(site, "/a", port=8001, Cookie=f"{cookie}; own=1")
    assert status == 200
    assert json.loads(body)["headers"]["Cookie"] == "own=1"
    assert ask(site, "/a", port=8001, method="POST", body="x", Cookie=cookie, Origin="http://evil.localhost")[0] == 403
    with pytest.raises(websocket.WebSocketBadStatusException):
        websocket.create_connection(f"ws://{host(site, 8001)}/ws", socket=socket.create_connection(("127.0.0.1", site.door)),
                                    cookie=cookie, origin="http://evil.localhost", timeout=15)
    conn = websocket.create_connection(f"ws://{host(site, 8001)}/ws", socket=socket.create_connection(("127.0.0.1", site.door)),
                                       cookie=cookie, origin=f"http://{host(site, 8001)}", timeout=15)
    conn.send("in")
    assert conn.recv() == "in"
    conn.close()
    yard.api("DELETE", "/v1/tokens/browser", expect=204)
    eventually(lambda: ask(site, "/a", port=8001, Cookie=cookie)[0] == 401, what="the login to end with its token")


def test_link_logs_in_once(yard, site, token):
    ran = yard.box("url", site.name, "8001")
    assert "--login" in ran.stderr
    link = yard.box("url", site.name, "8001", "--login").stdout.strip()
    start = f"http://{host(site, 8001)}"
    assert link.startswith(f"{start}/.boxyard/login?code=")
    path = link[len(start):]
    assert ask(site, path, port=8001, Sec_Purpose="prefetch")[0] == 403
    status, headers, _ = ask(site, path, port=8001)
    assert (status, headers["Location"]) == (303, "/")
    cookie = headers["Set-Cookie"].split(";")[0]
    status, _, body = ask(site, port=8001, Cookie=cookie)
    assert status == 200 and path.partition("=")[2] not in body.decode()
    assert ask(site, path, port=8001)[0] == 401
    # a host it was not made for uses it up
    path = yard.json("url", site.name, "8001", "--login")["url"][len(start):]
    assert ask(site, path, port=8000)[0] == 401
    assert ask(site, path, port=8001)[0] == 401
    # made by a token, it ends with the token; without the scope there is none
    made = yard.api("POST", "/v1/tokens", {"name": "linker", "scopes": ["exec"]}, expect=201).json["token"]
    weak = yard.api("POST", "/v1/tokens", {"name": "reader", "scopes": ["read", "create"]}, expect=201).json["token"]
    with connection(site) as conn:
        call = ("POST", f"/v1/boxes/{site.name}/login", json.dumps({"port": 8001}))
        conn.request(*call, {"Authorization": f"Bearer {weak}", "Content-Type": "application/json"})
        answer = conn.getresponse()
        assert answer.status == 403 and answer.read()
        conn.request(*call, {"Authorization": f"Bearer {made}", "Content-Type": "application/json"})
        path = json.loads(conn.getresponse().read())["url"][len(start):]
    cookie = ask(site, path, port=8001)[1]["Set-Cookie"].split(";")[0]
    assert ask(site, port=8001, Cookie=cookie)[0] == 200
    yard.api("DELETE", "/v1/tokens/linker", expect=204)

    def is_out():
        try:
            return ask(site, port=8001, Cookie=cookie)[0] == 401
        except (http.client.HTTPException, OSError):  # cut in the middle, as what was let in is
            return False

    eventually(is_out, what="the login to end with the token of its link")
    yard.api("DELETE", "/v1/tokens/reader", expect=204)


def test_open_websockets_end_when_the_port_is_closed(yard, site):
    yard.box("url", site.name, "8001", "--public")
    conn = websocket.create_connection(f"ws://{host(site, 8001)}/ws", timeout=15 * SLOWNESS,
                                       socket=socket.create_connection(("127.0.0.1", site.door)))
    conn.send("in")
    assert conn.recv() == "in"
    yard.box("url", site.name, "8001", "--private")
    with pytest.raises((websocket.WebSocketException, OSError)):
        conn.recv()


def test_access_is_changed_at_once(yard, site):
    yard.box("url", site.name, "8001", "--public")
    assert ask(site, port=8001)[0] == 200
    yard.box("url", site.name, "8001", "--private")
    assert ask(site, port=8001)[0] == 401
    assert yard.json("url", site.name, "8001")["access"] == "private"


def test_api_is_not_reached_by_the_name_of_a_box(yard, site, token):
    status, headers, body = ask(site, "/v1/boxes", Authorization=f"Bearer {token}")
    assert json.loads(body)["path"] == "/v1/boxes"  # the box answered
    with connection(site) as conn:
        conn.request("GET", "/v1/info", headers={"Host": "evil.example", "Authorization": f"Bearer {token}"})
        assert conn.getresponse().status == 403


# ---- no answer -------------------------------------------------------------------------------


def test_pages_say_what_is_wrong(yard, site):
    status, _, page = ask(site, port=7777, Accept="text/html")
    assert status == 401  # private: nothing is told
    yard.box("url", site.name, "7777", "--public")
    status, headers, page = ask(site, port=7777, Accept="text/html")
    assert status == 502 and "7777" in page.decode() and site.name in page.decode() and headers["X-Boxyard"] == "true"
    status, _, page = ask(site, port=7777)
    assert status == 502 and json.loads(page)["error"]["code"] == "unavailable"
    yard.box("port", "rm", site.name, "7777")
    with connection(site) as conn:
        conn.request("GET", "/", headers={"Host": "8000-nosuch.localhost", "Accept": "text/html"})
        answer = conn.getresponse()
        assert answer.status == 404 and b"nosuch" in answer.read()


def test_stopped_boxes_say_so_and_suspended_ones_wake(yard, make_box):
    box = make_box()
    box.door = yard.port()
    yard.box("url", box.name, "8000", "--public")
    yard.box("suspend", box.name)
    status, _, page = ask(box, Accept="text/html")
    assert status == 502 and box.show()["state"] == "running"  # nothing listens, and now it knows
    yard.box("stop", box.name)
    status, _, page = ask(box, Accept="text/html")
    assert status == 503 and f"box start {box.name}" in page.decode()
    status, _, page = ask(box)
    assert status == 503 and "stopped" in json.loads(page)["error"]["message"]


# ---- plain TCP -------------------------------------------------------------------------------


def talk(port, line):
    with socket.create_connection(("127.0.0.1", port), timeout=15 * SLOWNESS) as sock:
        sock.sendall(line)
        sock.shutdown(socket.SHUT_WR)
        got = b""
        while data := sock.recv(65536):
            got += data
        return got


def test_port_of_the_host_leads_into_the_box(yard, site):
    shown = yard.box("port", "add", site.name, "9000").stdout.strip()
    port = int(shown.rpartition(":")[2])
    assert shown == f"127.0.0.1:{port}"
    assert talk(port, b"hello\nbox\n") == b"HELLO\nBOX\n"
    many = b"line of text\n" * 500000
    assert talk(port, many) == many.upper()
    listed = {entry["port"]: entry for entry in yard.json("port", "ls", site.name)}
    assert listed[9000]["host_port"] == port
    assert yard.box("port", "add", site.name, "9001", "--host-port", str(port), check=False).returncode != 0
    with socket.create_connection(("127.0.0.1", port), timeout=15 * SLOWNESS) as sock:  # asked for again: it stays
        assert yard.box("port", "add", site.name, "9000").stdout.strip() == shown
        sock.sendall(b"still\n")
        assert sock.recv(100) == b"STILL\n"
    yard.box("port", "rm", site.name, "9000")
    with pytest.raises(OSError):
        talk(port, b"x\n")


def test_ports_survive_the_daemon(image):
    with running_yard_with() as yard:
        box = new_site(yard)
        port = int(yard.box("port", "add", box.name, "9000").stdout.rpartition(":")[2])
        yard.kill_daemon()
        yard.start_daemon()
        box.door = yard.port()
        assert talk(port, b"again\n") == b"AGAIN\n"
        assert ask(box)[0] == 200
        box.remove()
        with pytest.raises(OSError):
            talk(port, b"x\n")


def test_port_that_was_taken_comes_back(image):
    with running_yard_with() as yard:
        box = new_site(yard)
        port = int(yard.box("port", "add", box.name, "9000").stdout.rpartition(":")[2])
        yard.kill_daemon()
        with socket.socket() as thief:
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            thief.bind(("127.0.0.1", port))
            thief.listen()
            yard.start_daemon()
            assert "taken" in yard.json("port", "ls", box.name)[-1]["problem"]
        eventually(lambda: "problem" not in yard.json("port", "ls", box.name)[-1], timeout=10 * SLOWNESS, what="the port to come back")
        assert talk(port, b"again\n") == b"AGAIN\n"


# ---- TLS -------------------------------------------------------------------------------------


def test_domain_and_certificate(image, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
                    "-subj", "/CN=boxes.test", "-addext", "subjectAltName=DNS:*.boxes.test", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        door = probe.getsockname()[1]
    with running_yard_with(BOX_URL_DOMAIN="boxes.test", BOX_URL_LISTEN=f"127.0.0.1:{door}", BOX_URL_CERTIFICATE=str(cert),
                           BOX_URL_KEY=str(key)) as yard:
        box = new_site(yard)
        url = yard.box("url", box.name, "8000").stdout.strip()
        assert url in (f"https://{box.name}.boxes.test:{door}/", f"https://8000-{box.name}.boxes.test:{door}/")
        name = url.split("/")[2].partition(":")[0]
        context = ssl.create_default_context(cafile=str(cert))
        with context.wrap_socket(socket.create_connection(("127.0.0.1", door)), server_hostname=name) as sock:
            sock.sendall(f"GET /s HTTP/1.1\r\nHost: {name}:{door}\r\nConnection: close\r\n\r\n".encode())
            got = b""
            while data := sock.recv(65536):
                got += data
        assert got.startswith(b"HTTP/1.1 200 ")
        assert json.loads(got.partition(b"\r\n\r\n")[2])["headers"]["X-Forwarded-Proto"] == "https"
        with context.wrap_socket(socket.create_connection(("127.0.0.1", door)), server_hostname=name) as sock:
            sock.sendall(b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert sock.recv(65536).startswith(b"HTTP/1.1 404 ")  # the API is not behind this door
