"""A stand-in for the daemon's side of src/ssh/message.h, for tests of `box ssh-connection` alone.

Accepts on loopback, starts the process of a connection for each client, signs with a host key, lets
one public key in, and runs commands on this machine, as this user.
"""
import base64
import contextlib
import fcntl
import os
import pty
import signal
import socket
import struct
import subprocess
import threading
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

(SIGN, LOGIN, RUN, SIGNAL, RESIZE, CLOSED, DIAL, LISTEN, UNLISTEN, AGENT, ENDED) = range(1, 12)
(START, SIGNED, VERDICT, RUNNING, EXIT, DIALLED, REFUSED, LISTENING, INCOMING, END) = range(64, 74)
NO, WOULD_DO, IN, CLOSE = range(4)
ALL_PERMITS = 7
FDS = (3, 4)  # of the client, of the daemon


def string(data):
    """As SSH writes it."""
    return struct.pack(">I", len(data)) + data


def put_str(text):
    data = text.encode(errors="surrogateescape")
    return struct.pack("<I", len(data)) + data + b"\0"


def put_blob(data):
    return struct.pack("<I", len(data)) + data


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        part = self.data[self.at:self.at + count]
        assert len(part) == count, "a message ends early"
        self.at += count
        return part

    def number(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def blob(self):
        return self.take(self.number("I"))

    def str(self):
        text = self.blob().decode(errors="surrogateescape")
        assert self.take(1) == b"\0"
        return text

    def strv(self):
        return [self.str() for _ in range(self.number("I"))]

    def done(self):
        assert self.at == len(self.data), "a message is longer than it should be"


class StandIn:
    """Serves until closed. `seen` has all messages, as (kind, fields...)."""

    def __init__(self, box, key_file, *, login_ms=20000, permits=ALL_PERMITS, local=False, greeting=()):
        self.box, self.login_ms, self.permits, self.local, self.greeting = str(box), login_ms, permits, local, greeting
        self.host_key = Ed25519PrivateKey.generate()
        raw = self.host_key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.host_blob = string(b"ssh-ed25519") + string(raw)
        self.allowed = base64.b64decode(Path(f"{key_file}.pub").read_text().split()[1])
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        self.seen, self.processes, self.connections = [], [], []
        self.refuse_dial = None
        threading.Thread(target=self.accept, daemon=True).start()

    def known_hosts(self):
        return f"[127.0.0.1]:{self.port} ssh-ed25519 {base64.b64encode(self.host_blob).decode()}\n"

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, peer = self.listener.accept()
                self.connections.append(Connection(self, client, f"{peer[0]}:{peer[1]}"))

    def close(self):
        self.listener.close()
        for connection in self.connections:
            connection.close()


class Connection:
    def __init__(self, owner, client, peer):
        self.owner, self.session_id, self.agent_path, self.children, self.terminals = owner, None, None, {}, {}
        self.listeners, self.lock, self.user = {}, threading.Lock(), None
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for number in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self.socket.setsockopt(socket.SOL_SOCKET, number, 1 << 20)
            theirs.setsockopt(socket.SOL_SOCKET, number, 1 << 20)
        high = [fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 10) for end in (client, theirs)]
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for fd, number in zip(high, FDS)]
        self.pid = os.posix_spawn(owner.box, ["box", "ssh-connection"], {**os.environ}, file_actions=actions)
        for fd in high:
            os.close(fd)
        client.close()
        theirs.close()
        owner.processes.append(self.pid)
        self.status = None
        self.send(START, put_str(peer) + struct.pack("<B", owner.local) + put_blob(owner.host_blob)
                  + struct.pack("<I", owner.login_ms) + struct.pack("<I", len(owner.greeting)) + b"".join(map(put_str, owner.greeting)))
        threading.Thread(target=self.serve, daemon=True).start()

    def send(self, kind, fields=b"", fds=()):
        with self.lock, contextlib.suppress(OSError):
            socket.send_fds(self.socket, [bytes([kind]) + fields], list(fds))

    def serve(self):
        while True:
            try:
                data = self.socket.recv(192 * 1024)
            except OSError:
                break
            if not data:
                break
            self.handle(data[0], Reader(data[1:]))
        _, self.status = os.waitpid(self.pid, 0)
        for child in self.children.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGHUP)
        for listener in self.listeners.values():
            listener.close()
        if self.agent_path:
            os.unlink(self.agent_path)

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def handle(self, kind, fields):
        name = {SIGN: self.on_sign, LOGIN: self.on_login, RUN: self.on_run, SIGNAL: self.on_signal, RESIZE: self.on_resize,
                CLOSED: self.on_closed, DIAL: self.on_dial, LISTEN: self.on_listen, UNLISTEN: self.on_unlisten,
                AGENT: self.on_agent, ENDED: self.on_ended}[kind]
        self.owner.seen.append((kind, *(name(fields) or ())))
        fields.done()

    # ---- login ----

    def on_sign(self, fields):
        digest = fields.blob()
        self.session_id = self.session_id or digest
        self.send(SIGNED, put_blob(string(b"ssh-ed25519") + string(self.owner.host_key.sign(digest))))
        return (digest,)

    def is_signed(self, user, algorithm, key, hostbound, signature):
        method = b"publickey-hostbound-v00@openssh.com" if hostbound else b"publickey"
        data = (string(self.session_id) + b"\x32" + string(user.encode()) + string(b"ssh-connection") + string(method)
                + b"\x01" + string(algorithm.encode()) + string(key) + (string(self.owner.host_blob) if hostbound else b""))
        prefix = string(b"ssh-ed25519")
        if not signature.startswith(prefix) or not key.startswith(prefix):
            return False
        try:
            Ed25519PublicKey.from_public_bytes(key[-32:]).verify(signature[len(prefix) + 4:], data)
        except InvalidSignature:
            return False
        return True

    def on_login(self, fields):
        user, method, algorithm, key = fields.str(), fields.number("B"), fields.str(), fields.blob()
        hostbound, signature = fields.number("B"), fields.blob()
        if method == 1:
            verdict = IN if self.owner.local else NO
        elif key != self.owner.allowed:
            verdict = NO
        elif not signature:
            verdict = WOULD_DO
        else:
            verdict = IN if self.is_signed(user, algorithm, key, hostbound, signature) else NO
        self.user = user
        self.send(VERDICT, struct.pack("<BI", verdict, self.owner.permits))
        return user, method, algorithm, hostbound, bool(signature), verdict

    # ---- programs ----

    def on_run(self, fields):
        channel, what, command, tty, term = (fields.number("I"), fields.number("B"), fields.str(), fields.number("B"), fields.str())
        rows, cols, modes, env = fields.number("H"), fields.number("H"), fields.blob(), fields.strv()
        variables = {**os.environ, **dict(pair.split("=", 1) for pair in env), "TERM": term or "dumb"}
        if self.agent_path:
            variables["SSH_AUTH_SOCK"] = self.agent_path
        argv = {1: ["/bin/sh"], 2: ["/bin/sh", "-c", command], 3: ["/usr/lib/openssh/sftp-server"]}[what]
        if tty:
            ours, theirs = pty.openpty()
            fcntl.ioctl(ours, 0x5414, struct.pack("HHHH", rows, cols, 0, 0))  # TIOCSWINSZ
            self.terminals[channel] = os.dup(ours)
            ends, handed = (theirs, theirs, theirs), [ours]
            argv = ["setsid", "-c", *argv]
        else:
            data, program = socket.socketpair()
            err, program_err = socket.socketpair()
            ends, handed = (program.detach(), None, program_err.detach()), [data.detach(), err.detach()]
            ends = (ends[0], ends[0], ends[2])
        child = subprocess.Popen(argv, stdin=ends[0], stdout=ends[1], stderr=ends[2], env=variables, start_new_session=not tty)
        self.children[channel] = child
        for fd in set(ends):
            os.close(fd)
        self.send(RUNNING, struct.pack("<I", channel), handed)
        for fd in handed:
            os.close(fd)
        threading.Thread(target=self.reap, args=(channel, child), daemon=True).start()
        return channel, what, command, tty, term, rows, cols, modes, env

    def reap(self, channel, child):
        code = child.wait()
        name = signal.Signals(-code).name.removeprefix("SIG") if code < 0 else ""
        if channel in self.terminals:
            os.close(self.terminals.pop(channel))
        self.send(EXIT, struct.pack("<II", channel, max(code, 0)) + put_str(name))

    def on_signal(self, fields):
        channel, name = fields.number("I"), fields.str()
        os.killpg(self.children[channel].pid, getattr(signal, "SIG" + name))
        return channel, name

    def on_resize(self, fields):
        channel, rows, cols = fields.number("I"), fields.number("H"), fields.number("H")
        if channel in self.terminals:
            fcntl.ioctl(self.terminals[channel], 0x5414, struct.pack("HHHH", rows, cols, 0, 0))
        return channel, rows, cols

    def on_closed(self, fields):
        return (fields.number("I"),)

    # ---- forwarding ----

    def on_dial(self, fields):
        channel, host, port, source, source_port = (fields.number("I"), fields.str(), fields.number("H"), fields.str(), fields.number("H"))
        threading.Thread(target=self.dial, args=(channel, host, port), daemon=True).start()
        return channel, host, port, source, source_port

    def dial(self, channel, host, port):
        try:
            if host.startswith("/"):
                there = socket.socket(socket.AF_UNIX)
                there.connect(host)
            else:
                there = socket.create_connection((host, port), 5)
                there.settimeout(None)
        except OSError as why:
            self.send(REFUSED, struct.pack("<II", channel, 2) + put_str(str(why)))
            return
        self.send(DIALLED, struct.pack("<I", channel), [there.fileno()])
        there.close()

    def on_listen(self, fields):
        ticket, address, port = fields.number("I"), fields.str(), fields.number("H")
        try:
            if address.startswith("/"):
                listener = socket.socket(socket.AF_UNIX)
                listener.bind(address)
                listener.listen()
            else:
                listener = socket.create_server(("127.0.0.1", port))
        except OSError:
            self.send(LISTENING, struct.pack("<IBH", ticket, 0, 0))
            return ticket, address, port
        bound = 0 if address.startswith("/") else listener.getsockname()[1]
        self.listeners[address, bound] = listener
        self.send(LISTENING, struct.pack("<IBH", ticket, 1, bound))
        threading.Thread(target=self.accept, args=(listener, 2 if address.startswith("/") else 1, address, bound), daemon=True).start()
        return ticket, address, port

    def accept(self, listener, kind, address, port):
        with contextlib.suppress(OSError):
            while True:
                there, peer = listener.accept()
                source = peer if kind == 1 else ("", 0)
                self.send(INCOMING, struct.pack("<B", kind) + put_str(address) + struct.pack("<H", port)
                          + put_str(source[0]) + struct.pack("<H", source[1]), [there.fileno()])
                there.close()

    def on_unlisten(self, fields):
        address, port = fields.str(), fields.number("H")
        listener = self.listeners.pop((address, port))
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        return address, port

    def on_agent(self, fields):
        self.agent_path = f"/tmp/ssh-agent-of-{self.pid}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.agent_path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.agent_path)
        listener.listen()
        self.listeners[self.agent_path, -1] = listener
        threading.Thread(target=self.accept, args=(listener, 3, "", 0), daemon=True).start()

    def on_ended(self, fields):
        return (fields.str(),)
