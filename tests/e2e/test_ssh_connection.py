"""The process of one SSH connection, `box ssh-connection`, with real OpenSSH clients. A stand-in
plays the daemon (sshdaemon.py) and runs commands on this machine: no box is needed."""
import contextlib
import hashlib
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
import sshdaemon  # noqa: E402
from boxtest import BOX_BIN, SANITIZED, eventually  # noqa: E402

pytestmark = [
    pytest.mark.asan,
    pytest.mark.skipif(os.geteuid() != 0, reason="gives up root's privileges"),
    pytest.mark.skipif(not shutil.which("ssh"), reason="no OpenSSH client"),
    pytest.mark.skipif(b"built without libssh" in subprocess.run([BOX_BIN, "ssh-connection"], capture_output=True).stderr,
                       reason="box was built without libssh"),
]

MB = 1 << 20


class Client:
    """An OpenSSH client that knows the stand-in."""

    def __init__(self, folder, server, key):
        self.folder, self.server, self.key = folder, server, key
        (folder / "known_hosts").write_text(server.known_hosts())

    def options(self, key=None):
        return ["-F", "none", "-i", str(key or self.key), "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none",
                "-o", f"UserKnownHostsFile={self.folder}/known_hosts", "-o", "BatchMode=yes"]

    def argv(self, *args, key=None):
        quiet = [] if any("LogLevel" in word for word in args) else ["-o", "LogLevel=ERROR"]
        return ["ssh", *self.options(key), *quiet, "-p", str(self.server.port), *args]

    def run(self, *args, input=b"", key=None, timeout=60):
        return subprocess.run(self.argv(*args, key=key), input=input, capture_output=True, timeout=timeout)

    @contextlib.contextmanager
    def started(self, *args, **kw):
        child = subprocess.Popen(self.argv(*args), **kw)
        try:
            yield child
        finally:
            child.kill()
            child.wait()


def keygen(path, kind="ed25519"):
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ssh")
    return keygen(folder / "id"), keygen(folder / "other")


@pytest.fixture
def start(keys, tmp_path):
    servers = []

    def begin(**options):
        servers.append(sshdaemon.StandIn(BOX_BIN, keys[0], **options))
        return servers[-1]

    yield begin
    for server in servers:
        server.close()
    # No filter of the kernel's ended any of them.
    for server in servers:
        eventually(lambda: all(connection.status is not None for connection in server.connections), timeout=10)
        assert [c.status for c in server.connections if c.status] == []


@pytest.fixture
def client(start, keys, tmp_path):
    return Client(tmp_path, start(), keys[0])


def seen(client, kind):
    return [fields for number, *fields in client.server.seen if number == kind]


# ---- programs --------------------------------------------------------------------------------


def test_exec_has_exit_code_and_separate_stderr(client):
    got = client.run("ada@127.0.0.1", "echo out; echo err >&2; exit 3")
    assert (got.returncode, got.stdout, got.stderr) == (3, b"out\n", b"err\n")
    eventually(lambda: seen(client, sshdaemon.ENDED) == [[""]], timeout=5)


def test_input_reaches_the_program_with_its_end(client):
    data = random.Random(1).randbytes(3 * MB)
    got = client.run("ada@127.0.0.1", "sha256sum", input=data)
    assert got.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_a_program_that_does_not_read_is_no_obstacle(client):
    assert client.run("ada@127.0.0.1", "echo done", input=bytes(20 * MB)).stdout == b"done\n"


def test_exit_by_signal_is_told(client):
    got = client.run("-v", "-o", "LogLevel=DEBUG1", "ada@127.0.0.1", "kill -TERM $$")
    assert got.returncode == 255 and b"rtype exit-signal" in got.stderr


def test_terminal_has_size_modes_and_name(client):
    child = subprocess.run(["script", "-qec", " ".join(
        ["stty rows 33 cols 101;", "TERM=vt220", *client.argv("-tt", "ada@127.0.0.1", "'tty; stty size; echo $TERM'")]), "/dev/null"],
        capture_output=True, timeout=30, stdin=subprocess.DEVNULL)
    assert b"/dev/pts/" in child.stdout and b"33 101" in child.stdout and b"vt220" in child.stdout, child.stdout
    run = seen(client, sshdaemon.RUN)[0]
    assert run[3] == 1 and len(run[7]) > 20


def test_environment_is_passed(client):
    got = client.run("-o", "SetEnv=LC_ALL=de_DE.UTF-8 EMPTY= WITH=a=b", "ada@127.0.0.1", "echo $LC_ALL,$EMPTY,$WITH")
    assert got.stdout == b"de_DE.UTF-8,,a=b\n"


def test_long_commands_are_passed_and_longer_ones_refused(client):
    got = client.run("ada@127.0.0.1", "echo " + "x" * 60000 + " | wc -c")
    assert got.stdout.split() == [b"60001"]


def test_terminal_and_forwarding_are_refused_without_a_permit(start, keys, tmp_path):
    client = Client(tmp_path, start(permits=0), keys[0])
    assert client.run("-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:1", "ada@127.0.0.1", "true").returncode == 255
    assert b"PTY allocation request failed" in client.run("-tt", "-o", "LogLevel=INFO", "ada@127.0.0.1", "true").stderr
    assert client.run("-W", "127.0.0.1:1", "ada@127.0.0.1").returncode == 255
    assert not seen(client, sshdaemon.DIAL) and not seen(client, sshdaemon.LISTEN)


# ---- many channels ---------------------------------------------------------------------------


def test_eight_sessions_on_one_connection(client, tmp_path):
    path = tmp_path / "master"
    with client.started("-MN", "-S", str(path), "ada@127.0.0.1"):
        eventually(path.exists, timeout=10)
        runs = [subprocess.Popen(["ssh", "-F", "none", "-S", str(path), "ada@127.0.0.1", f"head -c 3000000 /dev/zero | tr '\\0' {n}; sleep 0.2; exit {n}"],
                                 stdout=subprocess.PIPE) for n in range(8)]
        for n, run in enumerate(runs):
            output = run.communicate(timeout=60)[0]
            assert run.returncode == n and output == str(n).encode() * 3000000
        for _ in range(30):
            assert subprocess.run(["ssh", "-F", "none", "-S", str(path), "ada@127.0.0.1", "true"], timeout=10).returncode == 0
    assert len(client.server.connections) == 1


@pytest.mark.parametrize("cipher", ["chacha20-poly1305@openssh.com", "aes128-gcm@openssh.com", "aes256-ctr"])
def test_streams_survive_rekeys_in_both_directions(client, cipher):
    data = random.Random(2).randbytes(12 * MB)
    copy = "file=$(mktemp); cat >$file; cat $file >&2 & cat $file; wait; rm $file"
    got = client.run("-c", cipher, "-o", "RekeyLimit=1M", "ada@127.0.0.1", copy, input=data, timeout=120)
    assert hashlib.sha256(got.stdout).digest() == hashlib.sha256(data).digest()
    assert hashlib.sha256(got.stderr).digest() == hashlib.sha256(data).digest()
    assert len(seen(client, sshdaemon.SIGN)) > 20


def test_a_slow_reader_slows_the_program_only(client):
    with client.started("ada@127.0.0.1", "cat /dev/zero", stdout=subprocess.PIPE) as child:
        child.stdout.read(MB)
        time.sleep(1)
        status = Path(f"/proc/{client.server.processes[0]}/status").read_text()
        peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
        assert peak < 300000 if SANITIZED else peak < 20000


# ---- forwarding ------------------------------------------------------------------------------


@pytest.fixture
def echo():
    """A server on loopback that answers each line with itself."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(there):
        with there:
            while data := there.recv(65536):
                there.sendall(data)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def connect(port):
    def attempt():
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), 10)

    return eventually(attempt, timeout=10)


def exchange(there, data):
    def send():
        there.sendall(data)
        there.shutdown(socket.SHUT_WR)

    threading.Thread(target=send, daemon=True).start()
    got = bytearray()
    with there:
        while part := there.recv(1 << 16):
            got += part
    return bytes(got)


def test_local_forwarding(client, echo):
    port, data = free_port(), random.Random(3).randbytes(5 * MB)
    with client.started("-N", "-L", f"{port}:127.0.0.1:{echo}", "ada@127.0.0.1"):
        for _ in range(3):
            assert exchange(connect(port), data) == data


def test_local_forwarding_to_nobody_is_refused(client):
    got = client.run("-W", f"127.0.0.1:{free_port()}", "ada@127.0.0.1")
    assert got.returncode == 255 and b"forwarding failed" in got.stderr


def test_local_forwarding_to_a_path(client, tmp_path):
    port, path = free_port(), tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with client.started("-N", "-L", f"{port}:{path}", "ada@127.0.0.1"):
            there = connect(port)
            here = listener.accept()[0]
            here.sendall(b"hello")
            assert there.recv(5) == b"hello"
    assert seen(client, sshdaemon.DIAL)[0][1] == str(path)


def test_dynamic_forwarding(client, echo):
    port = free_port()
    with client.started("-N", "-D", str(port), "ada@127.0.0.1"):
        there = connect(port)
        there.sendall(b"\x05\x01\x00")
        assert there.recv(2) == b"\x05\x00"
        there.sendall(b"\x05\x01\x00\x01" + socket.inet_aton("127.0.0.1") + struct.pack(">H", echo))
        assert there.recv(10)[1] == 0
        assert exchange(there, b"x" * 100000) == b"x" * 100000


def test_remote_forwarding(client, echo, tmp_path):
    path, port, data = tmp_path / "master", free_port(), random.Random(4).randbytes(2 * MB)
    control = ["ssh", "-F", "none", "-S", str(path), "ada@127.0.0.1"]
    with client.started("-MN", "-S", str(path), "-R", f"{port}:127.0.0.1:{echo}", "ada@127.0.0.1"):
        for _ in range(3):
            assert exchange(connect(port), data) == data
        # Added to a running connection, with a port of its choice, and cancelled.
        got = subprocess.run([*control[:-1], "-O", "forward", "-R", f"0:127.0.0.1:{echo}", control[-1]], capture_output=True, timeout=10)
        other = int(got.stdout.split()[-1])
        assert exchange(connect(other), b"hello") == b"hello"
        subprocess.run([*control[:-1], "-O", "cancel", "-R", f"{port}:127.0.0.1:{echo}", control[-1]], check=True, timeout=10)
        eventually(lambda: seen(client, sshdaemon.UNLISTEN), timeout=10)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", port), 2)
        assert exchange(connect(other), b"still") == b"still"


def test_remote_forwarding_of_a_path(client, echo, tmp_path):
    path = tmp_path / "there"
    with client.started("-N", "-R", f"{path}:127.0.0.1:{echo}", "ada@127.0.0.1"):
        eventually(path.exists, timeout=10)
        there = socket.socket(socket.AF_UNIX)
        there.connect(str(path))
        assert exchange(there, b"hello") == b"hello"


def test_agent_is_offered_and_used(client, keys, tmp_path):
    path = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        eventually(path.exists, timeout=10)
        environment = {**os.environ, "SSH_AUTH_SOCK": str(path)}
        subprocess.run(["ssh-add", "-q", str(keys[1])], env=environment, check=True)
        argv = [word for word in client.argv("-A", "ada@127.0.0.1", "ssh-add -L") if word != "IdentityAgent=none"]
        argv = [word for n, word in enumerate(argv) if not (word == "-o" and argv[n + 1] == "-o")]
        got = subprocess.run(argv, env=environment, capture_output=True, timeout=30)
        assert Path(f"{keys[1]}.pub").read_text().split()[1].encode() in got.stdout, got.stderr
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait()


# ---- who may come in -------------------------------------------------------------------------


def test_another_key_is_refused_and_the_reason_told(client, keys):
    got = client.run("ada@127.0.0.1", "true", key=keys[1])
    assert got.returncode == 255 and b"Permission denied (publickey)" in got.stderr
    assert not seen(client, sshdaemon.RUN)
    eventually(lambda: seen(client, sshdaemon.ENDED), timeout=5)
    assert seen(client, sshdaemon.ENDED)[0][0]


def test_at_most_six_keys_are_tried(start, tmp_path, keys):
    client = Client(tmp_path, start(), keys[0])
    others = [keygen(tmp_path / f"id{n}") for n in range(8)]
    got = client.run(*[word for path in others for word in ("-i", str(path))], "ada@127.0.0.1", "true", key=others[0])
    assert got.returncode == 255 and len(seen(client, sshdaemon.LOGIN)) == 6


def test_nothing_will_do_for_local_clients_alone(start, keys, tmp_path):
    client = Client(tmp_path, start(local=True), keys[0])
    assert client.run("ada@127.0.0.1", "echo in", key=keys[1]).stdout == b"in\n"
    assert seen(client, sshdaemon.LOGIN)[0][1] == 1


def test_odd_user_names_are_not_asked_for(client):
    for name in ("a b", "a\nb", "ü", "x" * 300):
        assert client.run("-l", name, "127.0.0.1", "true").returncode == 255
    assert not seen(client, sshdaemon.LOGIN)


def test_greeting_is_shown(start, keys, tmp_path):
    client = Client(tmp_path, start(greeting=("hello", "you")), keys[0])
    assert b"hello\r\nyou" in client.run("-o", "LogLevel=INFO", "ada@127.0.0.1", "true").stderr


def test_only_modern_algorithms_are_offered_and_strict_key_exchange(client):
    offered = subprocess.run(["ssh", "-vv", *client.options(), "-o", "LogLevel=DEBUG2", "-p", str(client.server.port), "ada@127.0.0.1", "true"],
                             capture_output=True, timeout=30).stderr.decode()
    peer = offered.split("peer server KEXINIT proposal")[1]
    kex = next(line for line in peer.splitlines() if "KEX algorithms" in line)
    assert "kex-strict-s-v00@openssh.com" in kex and "mlkem768x25519-sha256" in kex and "sntrup761" in kex
    for bad in ("sha1", "group14", "exchange", "cbc", "md5", "umac", "ssh-rsa,", "zlib", "arcfour"):
        assert bad not in "\n".join(line for line in peer.splitlines()[:12]).replace("diffie-hellman-group1", ""), bad
    assert "strict KEX" in offered or "kex-strict" in offered


# ---- hostile clients -------------------------------------------------------------------------


def raw(server):
    return socket.create_connection(("127.0.0.1", server.port), 10)


def ended(server, timeout=10):
    eventually(lambda: server.connections and server.connections[-1].status is not None, timeout=timeout)
    return server.connections[-1].status


def packet(payload):
    padding = 8 - (len(payload) + 5) % 8 + 8
    return struct.pack(">IB", len(payload) + padding + 1, padding) + payload + bytes(padding)


def kexinit():
    names = [b"curve25519-sha256,kex-strict-c-v00@openssh.com", b"ssh-ed25519", *[b"aes128-gcm@openssh.com"] * 2, *[b"hmac-sha2-256-etm@openssh.com"] * 2,
             *[b"none"] * 2, b"", b""]
    return b"\x14" + bytes(16) + b"".join(map(sshdaemon.string, names)) + b"\0" + bytes(4)


def test_silent_clients_end_in_time(start):
    server = start(login_ms=500)
    began = time.monotonic()
    with raw(server) as there:
        assert there.recv(256).startswith(b"SSH-2.0-")
        assert ended(server) == 0
    assert time.monotonic() - began < 5
    assert "login" in [fields for kind, *fields in server.seen if kind == sshdaemon.ENDED][0][0]


@pytest.mark.parametrize("data", [
    b"GET / HTTP/1.1\r\n\r\n", b"\0" * 4096, b"SSH-2.0-x\r\n" + b"\xff" * 4096, b"SSH-1.5-x\r\n", b"x" * 100000,
    b"SSH-2.0-x\r\n" + struct.pack(">IB", 0x7fffffff, 4), b"SSH-2.0-x\r\n" + struct.pack(">IB", 300000, 4) + bytes(300000),
    b"SSH-2.0-x\r\n" + packet(b"\x14" + b"\xff" * 40),
    # The bypass of 2018: the client says that it is in.
    b"SSH-2.0-x\r\n" + packet(b"\x34"), b"SSH-2.0-x\r\n" + packet(kexinit()) + packet(b"\x34"),
    # A request or a channel before any login.
    b"SSH-2.0-x\r\n" + packet(kexinit()) + packet(b"\x5a" + sshdaemon.string(b"session") + bytes(12)),
    # Strict key exchange: nothing may stand between.
    b"SSH-2.0-x\r\n" + packet(b"\x02" + sshdaemon.string(b"ignore")) + packet(kexinit()) + packet(b"\x1e" + sshdaemon.string(b"k" * 32)),
], ids=["http", "zeros", "bad-packet", "old", "no-end", "huge", "large", "bad-kexinit", "success", "success-in-kex", "channel", "ignore"])
def test_garbage_before_the_login_ends_the_connection(start, data):
    server = start(login_ms=2000)
    with raw(server) as there:
        with contextlib.suppress(OSError):
            there.sendall(data)
        assert ended(server) == 0
    assert not [kind for kind, *_ in server.seen if kind in (sshdaemon.RUN, sshdaemon.LOGIN, sshdaemon.DIAL)]


def test_many_half_open_connections(start):
    server = start(login_ms=1500)
    there = [raw(server) for _ in range(50)]
    eventually(lambda: len(server.connections) == 50 and all(c.status is not None for c in server.connections), timeout=30)
    for one in there:
        one.close()


@pytest.mark.skipif(SANITIZED, reason="the sanitizer has memory of its own")
def test_memory_of_a_connection(client, start):
    server = start()
    with raw(server) as there:
        there.recv(256)
        there.sendall(b"SSH-2.0-x\r\n" + packet(kexinit()))
        time.sleep(0.5)
        before = private_kb(server.processes[0])
    with client.started("-MN", "-S", "none", "ada@127.0.0.1"):
        eventually(lambda: seen(client, sshdaemon.LOGIN), timeout=10)
        time.sleep(0.5)
        after = private_kb(client.server.processes[0])
    print(f"private memory: {before} kB before the login, {after} kB after")
    assert before <= 2048 and after <= 3072


def private_kb(pid):
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    # Clean pages of the program are the daemon's too.
    return sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_Dirty"))


def test_the_process_has_nothing_left(client):
    with client.started("-N", "ada@127.0.0.1"):
        eventually(lambda: seen(client, sshdaemon.LOGIN), timeout=10)
        process = Path(f"/proc/{client.server.processes[0]}")
        status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
        assert status["Uid"].split() == ["65533"] * 4 and status["Gid"].split() == ["65533"] * 4 and not status["Groups"].strip()
        assert all(int(status[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
        assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
        for name in ("net", "mnt", "ipc", "uts", "cgroup"):
            assert os.readlink(process / "ns" / name) != os.readlink(f"/proc/self/ns/{name}")
        assert os.listdir(process / "root") == []
        kinds = {os.readlink(process / "fd" / fd).split(":")[0] for fd in os.listdir(process / "fd") if int(fd) > 2}
        assert kinds <= {"socket", "anon_inode", "pipe"}


def test_the_daemon_ends_a_connection_and_says_why(client):
    with client.started("-N", "-o", "LogLevel=INFO", "ada@127.0.0.1", stderr=subprocess.PIPE) as child:
        eventually(lambda: seen(client, sshdaemon.LOGIN), timeout=10)
        time.sleep(0.2)
        client.server.connections[0].send(sshdaemon.END, sshdaemon.put_str("the box was removed"))
        assert b"the box was removed" in child.communicate(timeout=10)[1]


def test_the_process_ends_with_the_daemon(client):
    with client.started("-N", "ada@127.0.0.1") as child:
        eventually(lambda: seen(client, sshdaemon.LOGIN), timeout=10)
        client.server.connections[0].close()
        child.wait(10)
    assert ended(client.server) == 0
