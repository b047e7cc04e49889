"""A client of box-init for tests: the frames of src/wire/wire.h, blocking, one connection."""

import os
import socket
import struct
import subprocess
import tempfile
import time

(HELLO, OPEN, REPLY, ERROR, DATA, END, WINDOW, GAP, EXIT, SIGNAL, RESIZE, CLOSE, EVENT,
 REQUEST, TIME) = range(1, 16)
(EXEC_START, EXEC_ATTACH, EXEC_LIST, EXEC_SIGNAL, PROCESSES, STAT, LIST, READ, WRITE, MKDIR, REMOVE,
 RENAME, CHMOD, TAR_OUT, TAR_IN, DIAL, STATS, SHUTDOWN, NAME, ANSWER, IDENTITY, RESTORED) = range(1, 23)
OUT, ERR, DONE = 1, 2, 3  # of answers
WOKEN, ROLLED_BACK = 1, 2
SFTP = 2  # as stdin of a start: box-init's own server
CONNECT = SFTP + 1  # a connection made inside the box
MAGIC = 0x59584F42
WINDOW_SIZE = 512 * 1024
DATA_MAX = 64 * 1024
OFFSET_END = 2**64 - 1
KINDS = ["none", "system", "invalid", "unauthorized", "forbidden", "not_found", "exists", "state", "too_large",
         "limit", "timeout", "unsupported", "unavailable", "protocol", "cancelled"]
REASONS = ["running", "exited", "signaled", "timeout"]


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<I", len(value)) + value + b"\0"


def texts(values):
    return struct.pack("<I", len(values)) + b"".join(map(text, values))


class Fields:
    def __init__(self, data):
        self.data, self.at = data, 0

    def get(self, fmt):
        values = struct.unpack_from("<" + fmt, self.data, self.at)
        self.at += struct.calcsize("<" + fmt)
        return values if len(values) > 1 else values[0]

    def text(self):
        size = self.get("I")
        value = self.data[self.at:self.at + size]
        assert self.data[self.at + size] == 0
        self.at += size + 1
        return value.decode(errors="surrogateescape")

    def texts(self):
        return [self.text() for _ in range(self.get("I"))]

    def more(self):
        return self.at < len(self.data)

    def info(self):
        out = {"id": self.text()}
        out["pid"], out["tty"], reason, out["code"], out["signal"] = self.get("IBBII")
        out["reason"] = REASONS[reason]
        out["started"], out["ended"], out["cpu"], out["oldest"], out["newest"] = self.get("QQQQQ")
        out["argv"] = self.texts()
        return out

    def stat(self):
        out = {"name": self.text()}
        out["mode"], out["uid"], out["gid"], out["size"], out["mtime_us"] = self.get("IIIQQ")
        out["target"] = self.text()
        return out

    def exit(self):
        reason, code, signal, duration, cpu, newest = self.get("BIIQQQ")
        return {"reason": REASONS[reason], "code": code, "signal": signal, "duration_us": duration,
                "newest": newest}

    def process(self):
        out = dict(zip(("pid", "ppid", "uid", "state", "rss", "cpu", "started"), self.get("IIIcQQQ")))
        out["exec"], out["command"] = self.text(), self.text()
        return out


class InitError(Exception):
    def __init__(self, payload):
        fields = Fields(payload)
        kind, self.errno = fields.get("BI")
        self.kind, self.message = KINDS[kind], fields.text()
        super().__init__(f"{self.kind}: {self.message}")


class Channel:
    """What came on one channel so far."""

    def __init__(self, conn, number):
        self.conn, self.number = conn, number
        self.reply = self.error = self.exit = None
        self.out, self.err, self.main = bytearray(), bytearray(), bytearray()
        self.frames, self.gaps = [], []
        self.times = []  # (offset of what follows, seconds)
        self.end = self.closed = False
        self.offset = None
        self.unreturned = 0
        self.room = WINDOW_SIZE
        self.give_back = True

    def send(self, kind, payload=b""):
        self.conn.send(kind, self.number, payload)

    def data(self, data):
        for at in range(0, len(data), DATA_MAX):
            part = data[at:at + DATA_MAX]
            while self.room < len(part) + 9 and not self.closed:
                self.conn.step()
            if self.closed:
                return
            self.room -= len(part) + 9
            self.send(DATA, struct.pack("<BQ", 0, 0) + part)

    def close(self):
        self.send(CLOSE)

    def wait(self, what, seconds=20):
        deadline = time.monotonic() + seconds
        while not what(self):
            assert time.monotonic() < deadline, "box-init did not answer in time"
            self.conn.step(deadline - time.monotonic())
        return self

    def wait_closed(self, seconds=20):
        self.wait(lambda c: c.closed, seconds)
        if self.error:
            raise self.error
        return self

    def wait_reply(self, seconds=20):
        self.wait(lambda c: c.reply is not None or c.closed, seconds)
        if self.error:
            raise self.error
        return Fields(self.reply)

    def take(self, kind, payload):
        if kind == REPLY:
            assert self.reply is None
            self.reply = payload
        elif kind == ERROR:
            self.error = InitError(payload)
        elif kind == DATA:
            stream, offset = struct.unpack_from("<BQ", payload)
            data = payload[9:]
            assert data and len(data) <= DATA_MAX
            if stream:
                assert self.offset is None or offset == self.offset, "offsets have a hole"
                self.offset = offset + len(data)
            (self.main, self.out, self.err)[stream].extend(data)
            self.unreturned += len(payload)
            assert self.unreturned <= WINDOW_SIZE
            if self.give_back and self.unreturned >= WINDOW_SIZE // 4:
                self.return_window()
        elif kind == END:
            self.end = True
        elif kind == WINDOW:
            self.room += struct.unpack("<I", payload)[0]
            assert self.room <= WINDOW_SIZE
        elif kind == GAP:
            self.gaps.append(struct.unpack("<QQ", payload))
            self.offset = sum(self.gaps[-1])
        elif kind == TIME:
            self.times.append((self.offset or 0, struct.unpack("<Q", payload)[0] / 1e6))
        elif kind == EXIT:
            self.exit = Fields(payload).exit()
        elif kind == CLOSE:
            assert not self.closed
            self.closed = True
        else:
            raise AssertionError(f"frame of type {kind}")

    def return_window(self):
        self.give_back = True
        if self.unreturned and not self.closed:
            self.send(WINDOW, struct.pack("<I", self.unreturned))
        self.unreturned = 0


class Conn:
    def __init__(self, path, hello=True, version=3):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.inbox = bytearray()
        self.channels, self.next, self.events, self.requests = {}, 1, [], []
        self.hello = None
        if hello:
            self.send(HELLO, 0, struct.pack("<IHHQ", MAGIC, version, 1, 0))
            while not self.hello:
                self.step()

    def close(self):
        self.sock.close()

    def send(self, kind, channel, payload=b""):
        self.sock.settimeout(20)
        self.sock.sendall(struct.pack("<IBBHI", len(payload), kind, 0, 0, channel) + payload)

    def step(self, seconds=20):
        self.sock.settimeout(max(seconds, 0.001))
        try:
            data = self.sock.recv(1 << 20)
        except (TimeoutError, socket.timeout):
            raise AssertionError("box-init did not answer in time")
        if not data:
            raise ConnectionResetError("box-init hung up")
        self.inbox += data
        at = 0
        while len(self.inbox) - at >= 12:
            size, kind, _, _, number = struct.unpack_from("<IBBHI", self.inbox, at)
            if len(self.inbox) - at < 12 + size:
                break
            payload = bytes(self.inbox[at + 12:at + 12 + size])
            at += 12 + size
            if kind == HELLO:
                self.hello = struct.unpack("<IHHQ", payload)
            elif kind == EVENT:
                self.events.append((payload[0], Fields(payload[1:]).info()))
            elif kind == REQUEST:
                fields = Fields(payload)
                self.requests.append((*fields.get("QB"), fields.texts()))
                assert not fields.more()
            else:
                self.channels[number].take(kind, payload)
        del self.inbox[:at]

    def open(self, op, request=b""):
        channel = Channel(self, self.next)
        self.channels[self.next] = channel
        self.next += 1
        channel.send(OPEN, bytes([op]) + request)
        return channel

    def start(self, id, *argv, env=(), cwd="", user="", tty=False, stdin=False, attach=True, rows=0, cols=0,
              timeout_ms=0, journal=0):
        return self.open(EXEC_START, text(id) + texts(argv) + texts(env) + text(cwd) + text(user) +
                         struct.pack("<BBBHHQI", tty, stdin, attach, rows, cols, timeout_ms, journal))

    def run(self, id, *argv, **options):
        return self.start(id, *argv, **options).wait_closed()

    def attach(self, id, offset=0, follow=True, lossless=False, input=False):
        return self.open(EXEC_ATTACH, text(id) + struct.pack("<QBBB", offset, follow, lossless, input))

    def call(self, op, request=b""):
        return Fields(self.open(op, request).wait_closed().reply)

    def request(self, seconds=10):
        """The next thing the box asks for: number, whether again, words."""
        deadline = time.monotonic() + seconds
        while not self.requests:
            self.step(deadline - time.monotonic())
        return self.requests.pop(0)

    def answer(self, id, number, kind, data=b"", code=0):
        return self.open(ANSWER, struct.pack("<QQBI", id, number, kind, code) + data)

    def answer_all(self, id, out=b"", err=b"", code=0):
        number = 0
        for kind, data in ((OUT, out), (ERR, err)):
            if data:
                self.answer(id, number, kind, data).wait_closed()
                number += 1
        self.answer(id, number, DONE, code=code).wait_closed()

    def identity(self, name="kid", id="k1", parent="ada", index=0):
        return self.open(IDENTITY, text(name) + text(id) + text(parent) + struct.pack("<I", index) + os.urandom(64))

    def restored(self, kind):
        return self.open(RESTORED, bytes([kind]) + os.urandom(64))

    def list(self):
        fields = self.call(EXEC_LIST)
        return [fields.info() for _ in range(fields.get("I"))]

    def stat(self, path, follow=False):
        return self.call(STAT, text(path) + bytes([follow])).stat()

    def read(self, path, offset=0, length=0):
        channel = self.open(READ, text(path) + struct.pack("<QQ", offset, length)).wait_closed()
        assert channel.end
        return bytes(channel.main)

    def write(self, path, data, mode=0, parents=False):
        channel = self.open(WRITE, text(path) + struct.pack("<IB", mode, parents))
        channel.data(data)
        if not channel.closed:
            channel.send(END)
        return Fields(channel.wait_closed().reply).stat()

    def listdir(self, path):
        channel = self.open(LIST, text(path)).wait_closed()
        assert channel.end
        fields, out = Fields(bytes(channel.main)), {}
        while fields.more():
            entry = fields.stat()
            out[entry["name"]] = entry
        return out

    def tar_out(self, path):
        channel = self.open(TAR_OUT, text(path)).wait_closed()
        assert channel.end
        return bytes(channel.main)

    def tar_in(self, path, data):
        channel = self.open(TAR_IN, text(path))
        channel.data(data)
        if not channel.closed:
            channel.send(END)
        return Fields(channel.wait_closed().reply).get("QQ")


class Init:
    """A box-init of its own, as an ordinary process."""

    def __init__(self, binary, env=None):
        self.binary = binary
        self.dir = tempfile.TemporaryDirectory(prefix="box-init-")
        self.path = os.path.join(self.dir.name, "sock")
        self.process = subprocess.Popen([binary, "--listen", self.path], env={**os.environ, **(env or {})})
        self.conns = []
        for _ in range(500):
            if os.path.exists(self.path):
                break
            time.sleep(0.01)

    def conn(self, **options):
        for _ in range(100):
            try:
                self.conns.append(Conn(self.path, **options))
                return self.conns[-1]
            except ConnectionRefusedError:
                time.sleep(0.01)
        raise AssertionError("box-init does not listen")

    def box(self, *words, user=None):
        """The command as programs in the box run it; the same program under another name."""
        link = os.path.join(self.dir.name, "box")
        if not os.path.exists(link):
            os.symlink(os.path.abspath(self.binary), link)
        return subprocess.Popen([link, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, user=user,
                                stderr=subprocess.PIPE, env={**os.environ, "BOX_INIT_SOCKET": self.self_path})

    @property
    def self_path(self):
        return self.path + ".self"

    def alive(self):
        return self.process.poll() is None

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self):
        for conn in self.conns:
            conn.close()
        if self.alive():
            conn = Conn(self.path)
            conn.call(SHUTDOWN, struct.pack("<I", 100))
            conn.close()
        code = self.process.wait(10)
        self.dir.cleanup()
        return code
