"""HTTP as strangers speak it: pipelining, half-closed sockets, wrong lengths, garbage; doors, hosts
and tokens."""
import concurrent.futures
import contextlib
import http.client
import json
import socket
import time

import pytest

from boxtest import SLOWNESS, Reply, eventually, random_name

pytestmark = pytest.mark.asan

HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def status_of(answer):
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer.split()[1])


# ---- connections -----------------------------------------------------------------------------


def test_keep_alive_serves_many_requests_on_one_connection(yard):
    with contextlib.closing(yard.connection()) as conn:
        conn.connect()
        sock = conn.sock
        for _ in range(50):
            assert yard.api("GET", "/v1/health", conn=conn).status == 200
        assert conn.sock is sock


def test_pipelined_requests_are_answered_in_order(yard, box):
    paths = [b"/v1/health", b"/v1/boxes/" + box.name.encode(), b"/v1/boxes/nosuch", b"/v1/health"]
    data = b"".join(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % p for p in paths[:-1])
    data += b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % paths[-1]
    got = yard.raw(data)
    assert [int(part[:3]) for part in got.split(b"HTTP/1.1 ")[1:]] == [200, 200, 404, 200]


def test_half_closed_client_still_gets_its_answer(yard, box):
    body = json.dumps({"argv": ["sh", "-c", "sleep 0.2; echo late"]}).encode()
    got = yard.raw(b"POST %s/exec HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
                   % (box.path.encode(), len(body), body), close=True)
    assert status_of(got) == 200 and b"late" in got and b'"exit"' in got


def test_connection_close_is_honoured(yard):
    began = time.monotonic()
    assert status_of(yard.raw(b"GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")) == 200
    assert time.monotonic() - began < 2


def test_http_1_0_is_answered_and_closed(yard):
    began = time.monotonic()
    assert b"200" in yard.raw(b"GET /v1/health HTTP/1.0\r\n\r\n")[:20]
    assert time.monotonic() - began < 2


def test_head_has_no_body(yard):
    got = yard.raw(b"HEAD /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert got.endswith(b"\r\n\r\n") or status_of(got) in (404, 405)


def test_bytes_that_come_one_by_one_are_a_request(yard):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(str(yard.sock))
        for byte in HEALTH:
            sock.sendall(bytes([byte]))
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")


def test_chunked_bodies_are_read(yard, box):
    def pieces():
        yield b'{"argv": ["ec'
        yield b'ho", "hi"]}'

    conn = yard.connection()
    conn.request("POST", f"{box.path}/exec", pieces(), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    got = conn.getresponse()
    assert got.status == 200 and b"hi" in got.read()
    conn.close()


def test_chunked_upload_of_a_file(yard, box):
    conn = yard.connection()
    conn.request("PUT", f"{box.path}/files?path=/root/f", (b"%05d" % n for n in range(1000)),
                 {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    assert conn.getresponse().status < 300
    conn.close()
    assert box.get("/root/f").body == b"".join(b"%05d" % n for n in range(1000))


def test_expect_100_continue(yard, box):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(5 * SLOWNESS)
        sock.connect(str(yard.sock))
        sock.sendall(b"PUT %s/files?path=/root/c HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                     b"Expect: 100-continue\r\n\r\n" % box.path.encode())
        assert sock.recv(1000).startswith(b"HTTP/1.1 100")
        sock.sendall(b"ok")
        assert sock.recv(1000).split()[1][:1] == b"2"
    assert box.get("/root/c").body == b"ok"


@pytest.mark.parametrize("data", [
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"POST /v1/boxes HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    b"POST /v1/boxes HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    b"POST /v1/boxes HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v1/boxes HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/boxes HTTP/1.1\r\nHost: a\r\nContent-Length: 0x2\r\n\r\n{}",
    b"POST /v1/boxes HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n{}",
    b"POST /v1/boxes HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/boxes HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n",
    b"POST /v1/boxes HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
    b"GET /v1/health HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\nHost: a\r\nBad Header: x\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 20000 + b"\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(200)) + b"\r\n",
    b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /v1/health HTTP/3.0\r\nHost: a\r\n\r\n",
    b"GET /v1/%zz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"GET /v1/boxes/%00 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"NONSENSE\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50, b"\r\n" * 5000 + b"x",
], ids=lambda data: repr(data[:40]))
def test_wrong_requests_are_refused_and_the_connection_ends(yard, data):
    before = len(yard.boxes())
    began = time.monotonic()
    got = yard.raw(data, timeout=3)
    assert time.monotonic() - began < 2.5 * SLOWNESS, "the connection is closed"
    if got:
        assert 400 <= status_of(got) < 600
    assert len(yard.boxes()) == before
    assert yard.answers()


def test_body_that_stops_short_creates_nothing(yard):
    before = len(yard.boxes())
    yard.raw(b'POST /v1/boxes HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"name":"x', close=True, timeout=1)
    assert len(yard.boxes()) == before


def test_clients_that_vanish_leave_no_connection_behind(yard, box):
    import os

    pid = yard.daemon_pid()
    before = len(os.listdir(f"/proc/{pid}/fd"))
    body = json.dumps({"argv": ["sleep", "0.2"]}).encode()
    for n in range(60):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(str(yard.sock))
        data = b"POST %s/exec HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (box.path.encode(), len(body), body)
        sock.sendall(data[:n * 4] if n % 2 else data)
        sock.close()
    eventually(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= before + 2, 8, "fds are given back")


def test_many_idle_connections_do_not_disturb(yard):
    socks = []
    try:
        for _ in range(200):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.connect(str(yard.sock))
            sock.sendall(b"GET /v1/hea")
            socks.append(sock)
        began = time.monotonic()
        assert yard.answers()
        assert time.monotonic() - began < 1
    finally:
        for sock in socks:
            sock.close()


def test_fifty_clients_at_once(yard):
    def many(_):
        with contextlib.closing(yard.connection()) as conn:
            return [yard.api("GET", "/v1/boxes", conn=conn).status for _ in range(10)]

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        assert set(sum(pool.map(many, range(50)), [])) == {200}


# ---- the TCP port ----------------------------------------------------------------------------


class Door:
    def __init__(self, yard):
        self.port = yard.port()

    def ask(self, method, path, token=None, body=None, **headers):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10 * SLOWNESS)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        conn.request(method, path, json.dumps(body) if body is not None else None, headers)
        got = conn.getresponse()
        reply = Reply(got.status, got.headers, got.read())
        conn.close()
        return reply


@pytest.fixture
def door(yard):
    return Door(yard)


@pytest.fixture
def make_token(yard):
    made = []

    def make(*scopes, **body):
        reply = yard.api("POST", "/v1/tokens", {"name": random_name("tok"), "scopes": list(scopes), **body}, expect=201)
        made.append(reply.json["id"])
        return reply.json["token"]

    yield make
    for one in made:
        yard.api("DELETE", f"/v1/tokens/{one}")


def test_tcp_door_listens_on_loopback_only(yard):
    assert yard.info()["listen"].startswith("127.0.0.1:")
    with open("/proc/net/tcp") as table:
        rows = [line.split()[1] for line in table if line.split()[3] == "0A"]
    assert f"0100007F:{yard.port():04X}" in rows and f"00000000:{yard.port():04X}" not in rows


def test_tcp_door_wants_a_token(yard, door):
    for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer nope"}, {"Authorization": "Basic eDp5"},
                    {"Authorization": "Bearer box_" + "a" * 32}, {"Authorization": "Bearer " + "x" * 5000}):
        reply = door.ask("GET", "/v1/boxes", **headers)
        assert reply.status == 401 and reply.code == "unauthorized"
    assert door.ask("GET", "/v1/health").status == 200
    assert door.ask("GET", "/v1/openapi.json").status == 200


def test_token_opens_what_its_scope_says(yard, door, box, make_token):
    read, run, create, admin = (make_token(s) for s in ("read", "exec", "create", "admin"))
    assert door.ask("GET", "/v1/boxes", read).status == 200
    assert door.ask("POST", f"{box.path}/exec", read, {"argv": ["true"]}).code == "forbidden"
    assert door.ask("POST", "/v1/boxes", read, {}).code == "forbidden"
    assert door.ask("GET", "/v1/tokens", read).code == "forbidden"
    assert door.ask("POST", f"{box.path}/exec", run, {"argv": ["true"]}).status == 200
    assert door.ask("DELETE", box.path, run).code == "forbidden"
    made = door.ask("POST", "/v1/boxes", create, {"name": random_name()})
    assert made.status == 201
    assert door.ask("DELETE", f"/v1/boxes/{made.json['id']}?force=true", create).status == 204
    assert door.ask("POST", "/v1/shutdown", create, {}).code == "forbidden"
    assert door.ask("GET", "/v1/tokens", admin).status == 200


def test_reading_shows_no_values_of_env(yard, door, make_box, make_token):
    box = make_box(env={"PASSWORD": "hunter2"})
    read, create, run, admin = (make_token(s) for s in ("read", "create", "exec", "admin"))
    for path in (box.path, "/v1/boxes"):
        assert b"hunter2" not in door.ask("GET", path, read).body
        assert b"PASSWORD" in door.ask("GET", path, read).body
        assert b"hunter2" in door.ask("GET", path, admin).body
    assert door.ask("GET", box.path, read).json["env"] == {"PASSWORD": None}
    for method, path, body in (("PATCH", box.path, {"pids": 100}), ("POST", f"{box.path}/suspend", {}),
                               ("POST", f"{box.path}/resume", {})):
        reply = door.ask(method, path, create, body)
        assert reply.status == 200 and b"hunter2" not in reply.body
    made = door.ask("POST", "/v1/boxes", create, {"name": random_name(), "env": {"A": "hunter2"}})
    assert made.status == 201 and b"hunter2" not in made.body
    yard.api("DELETE", f"/v1/boxes/{made.json['id']}?force=true", expect=204)
    assert box.show()["env"] == {"PASSWORD": "hunter2"}
    assert yard.json("show", box.name)["env"] == {"PASSWORD": "hunter2"}


def test_reading_looks_into_no_box(yard, door, box, make_token):
    read, files, run = (make_token(s) for s in ("read", "files", "exec"))
    done = box.start("echo", "secret")["id"]
    box.wait_exec(done)
    paths = [f"{box.path}/files?path=/etc/hostname", f"{box.path}/files/stat?path=/etc", f"{box.path}/files/list?path=/etc",
             f"{box.path}/archive?path=/etc/hostname", f"{box.path}/diff", f"{box.path}/execs/{done}/logs",
             f"/v1/compare?box={box.name}&box={box.name}"]
    for path in paths[:-1]:
        refused = door.ask("GET", path, read)
        assert refused.code == "forbidden" and "files or exec" in refused.json["error"]["hint"], path
        assert door.ask("GET", path, files).status == 200, path
        assert door.ask("GET", path, run).status == 200, path
    assert door.ask("GET", paths[-1], read).code == "forbidden"
    assert door.ask("PUT", f"{box.path}/files?path=/tmp/x", files).code == "forbidden"
    assert door.ask("POST", f"{box.path}/exec", files, {"argv": ["true"]}).code == "forbidden"


def test_reading_wakes_no_box(yard, door, box, make_token):
    read, files = make_token("read"), make_token("read", "files")
    done = box.start("true")["id"]
    paths = ["", "/processes", "/execs", f"/execs/{done}", "/stats", "/timeline", "/policy", "/ports", "/url?port=80", "/net"]
    for path in paths:
        assert door.ask("GET", box.path + path, read).status in (200, 404), path
    yard.box("suspend", box.name)
    for path in paths:
        assert door.ask("GET", box.path + path, read).status in (200, 404, 409), path
        assert box.show()["state"] == "suspended", path
    refused = door.ask("GET", f"{box.path}/processes", read)
    assert refused.code == "state" and "cannot wake a box" in refused.json["error"]["hint"]
    assert door.ask("GET", f"{box.path}/processes", files).status == 200
    assert box.show()["state"] == "running"


def test_revoked_token_is_dead_at_once(yard, door):
    name = random_name("tok")
    made = yard.json("token", "create", name)
    token = made["token"]
    assert door.ask("GET", "/v1/boxes", token).status == 200
    assert name in yard.box("token", "ls").stdout
    yard.box("token", "revoke", name)
    assert door.ask("GET", "/v1/boxes", token).status == 401
    assert name not in yard.box("token", "ls").stdout


def test_expired_token_is_dead(yard, door, make_token):
    token = make_token("read", expires_in="1s")
    assert door.ask("GET", "/v1/boxes", token).status == 200
    time.sleep(1.2)
    assert door.ask("GET", "/v1/boxes", token).status == 401


@pytest.mark.parametrize("body", [{}, {"name": "Bad Name", "scopes": ["read"]}, {"name": "x", "scopes": ["root"]},
                                  {"name": "x", "scopes": []}, {"name": "x", "scopes": ["read"], "expires_in": "soon"}])
def test_bad_tokens_are_refused(yard, body):
    assert yard.api("POST", "/v1/tokens", body).code == "invalid"


def test_secret_is_nowhere_on_disk_or_in_lists(yard, make_token):
    token = make_token("admin")
    secret = token.partition("_")[2] or token
    assert len(secret) >= 32
    assert secret not in json.dumps(yard.api("GET", "/v1/tokens").json)
    assert secret not in json.dumps(yard.events())
    assert secret not in yard.log.read_text(errors="replace")
    for path in yard.home.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 64 << 20:
            assert secret.encode() not in path.read_bytes(), path


def test_foreign_host_is_refused_against_rebinding(door, make_token):
    token = make_token("read")
    for host in ("evil.example", f"evil.example:{door.port}", "127.0.0.1:1", f"127.0.0.1.evil:{door.port}", "localhost"):
        assert door.ask("GET", "/v1/boxes", token, Host=host).status in (400, 403), host
    for host in (f"127.0.0.1:{door.port}", f"localhost:{door.port}"):
        assert door.ask("GET", "/v1/boxes", token, Host=host).status == 200, host


def test_foreign_origin_is_refused(door, make_token):
    token = make_token("read")
    for origin in ("http://evil.example", "null", "http://localhost:1", f"http://127.0.0.1:{door.port}.evil.example"):
        assert door.ask("GET", "/v1/boxes", token, Origin=origin).status == 403, origin
    assert door.ask("GET", "/v1/boxes", token, Origin=f"http://127.0.0.1:{door.port}").status == 200


def test_no_cross_origin_headers_are_given(door, make_token):
    reply = door.ask("GET", "/v1/boxes", make_token("read"))
    assert reply.headers["Access-Control-Allow-Origin"] is None


def test_websocket_on_the_tcp_door_wants_a_token_too(yard, box, door, make_token):
    import websocket

    url = f"ws://127.0.0.1:{door.port}{box.path}/exec"
    with pytest.raises(websocket.WebSocketBadStatusException):
        websocket.create_connection(url, suppress_origin=True, timeout=5)
    token = make_token("exec")
    with pytest.raises(websocket.WebSocketBadStatusException):
        websocket.create_connection(url, origin="http://evil.example", timeout=5,
                                    header=[f"Authorization: Bearer {token}"])
    talk = websocket.create_connection(url, suppress_origin=True, timeout=5, header=[f"Authorization: Bearer {token}"])
    talk.send('{"argv":["echo","hi"]}')
    assert json.loads(talk.recv())["type"] == "start"
    talk.close()


def test_guessing_tokens_does_not_lock_out_the_owner(door, make_token):
    token = make_token("read")
    for n in range(30):
        door.ask("GET", "/v1/boxes", f"box_guess{n:027d}")
    eventually(lambda: door.ask("GET", "/v1/boxes", token).status == 200, 5)


def test_socket_is_for_root_and_its_group_only(yard):
    mode = yard.sock.stat().st_mode & 0o777
    assert mode in (0o600, 0o660) and yard.sock.stat().st_uid == 0
