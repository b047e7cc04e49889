"""boxtest.py - a private daemon for tests, driven through the command line and the REST API only

A Yard is one daemon with its own BOX_HOME and BOX_RUN in a temporary folder. Images are shared: the
folder
BOX_TEST_IMAGES (default build/test-images) stands in as BOX_HOME/images by a symlink, so that the
base image
is built once. A Yard always goes away whole: destroy() purges, looks for anything left on the
machine that
carries the instance's name or paths, removes that by force and tells it, so that the run fails.

Yards that are still there when Python ends (Ctrl-C, a crash of the test runner) are destroyed by
atexit.
"""
import atexit
import base64
import contextlib
import fcntl
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import string
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import websocket

ROOT = Path(__file__).resolve().parents[2]
BOX_BIN = Path(os.environ.get("BOX_BIN", ROOT / "build" / "box")).absolute()
IMAGES = Path(os.environ.get("BOX_TEST_IMAGES", ROOT / "build" / "test-images")).absolute()
IMAGE = os.environ.get("BOX_TEST_IMAGE", "debian")
CRIU = ROOT / "build" / "criu" / "criu"  # scripts/criu makes it
DRIVER = os.environ.get("BOX_TEST_DRIVER", "ns")  # of the boxes that tests make
# The sanitizer build is several times slower; waits are stretched, promises about speed are not
# made. An emulated processor is slow too.
SANITIZED = "asan" in str(BOX_BIN)
SLOWNESS = 4 if SANITIZED else 3 if DRIVER == "vm" else 1

EXIT_USAGE, EXIT_STATE, EXIT_NOT_FOUND, EXIT_UNAVAILABLE, EXIT_EXISTS, EXIT_LIMIT = 64, 65, 66, 69, 73, 75


# ---- answers ---------------------------------------------------------------------------------


@dataclass
class Reply:
    """One HTTP answer, read whole."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def lines(self):
        return [json.loads(line) for line in self.body.splitlines() if line.strip()]

    @property
    def code(self):
        """The error code of a refusal; checks its form on the way."""
        error = self.json["error"]
        assert isinstance(error["message"], str) and error["message"], self.body
        assert "hint" in error, self.body
        return error["code"]


@dataclass
class Ran:
    """What a program run over NDJSON did."""

    id: str
    stdout: bytes
    stderr: bytes
    exit: dict
    lines: list

    @property
    def code(self):
        return self.exit["exit_code"]


def line_bytes(line):
    return base64.b64decode(line["data_b64"]) if "data_b64" in line else line["data"].encode()


def ran(lines):
    """Adds up NDJSON lines of an exec; the offsets must be without holes except where a gap is
    told."""
    out = {"stdout": [], "stderr": []}
    at, end, started = None, None, {}
    for line in lines:
        assert end is None, f"line after exit: {line}"
        if line["type"] == "start":
            started = line["exec"]
        elif line["type"] == "output":
            data = line_bytes(line)
            assert at is None or line["offset"] == at, (line["offset"], at)
            at = line["offset"] + len(data)
            out[line["stream"]].append(data)
        elif line["type"] == "gap":
            at = line["offset"] + line["lost"]
        elif line["type"] == "exit":
            end = line
        else:
            raise AssertionError(line)
    return Ran(started.get("id", ""), b"".join(out["stdout"]), b"".join(out["stderr"]), end, lines)


# ---- connections -----------------------------------------------------------------------------


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=30):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def eventually(check, timeout=5.0, what="", every=0.02):
    """Waits until check() is true and returns its value."""
    deadline = time.monotonic() + timeout * SLOWNESS
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what() if callable(what) else what or check}")
        time.sleep(every)


def random_name(prefix="t"):
    return prefix + "-" + "".join(random.choices(string.ascii_lowercase + string.digits, k=8))


# ---- what is on the machine ------------------------------------------------------------------


def processes():
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            yield int(entry)


def read_proc(pid, name):
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def status_kb(pid, key):
    for line in read_proc(pid, "status").decode().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    return 0


def cgroup_mounts():
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, where, kind = line.split()[:3]
        if kind in ("cgroup", "cgroup2"):
            found.append(where)
    return found


def instance_name(home):
    """What the daemon of a home calls itself in cgroups: the home's FNV-1a hash. Known beforehand,
    so that
    leftovers of a daemon that never answered are found too."""
    hashed = 2166136261
    for byte in str(home).encode():
        hashed = ((hashed ^ byte) * 16777619) & 0xFFFFFFFF
    return f"boxyard-{hashed:08x}"


def instance_cgroups(name):
    """Folders of the instance in every hierarchy, the deepest first."""
    found = []
    for mount in cgroup_mounts():
        for folder, _, _ in os.walk(os.path.join(mount, name), topdown=False):
            found.append(folder)
    return found


def box_cgroups(name, box_id):
    """The group of a box in every hierarchy; it lies in that of its tree, under one of two names
    (core/time/rollback_ahead.c)."""
    return [folder for mount in cgroup_mounts() for end in ("", "b") for folder in Path(mount, name).glob(f"tree-*/{box_id}{end}")]


def instance_processes(name, base):
    """Processes in the instance's cgroups, or with its BOX_HOME in their environment."""
    home = f"BOX_HOME={base}/".encode()
    group = f"/{name}".encode()
    found = []
    for pid in processes():
        if pid == os.getpid() or read_proc(pid, "stat").rpartition(b")")[2].split()[:1] == [b"Z"]:
            continue  # a zombie waits for its parent, which may be slow; it holds nothing
        cgroups = [line.split(b":", 2)[2] for line in read_proc(pid, "cgroup").splitlines()]
        inside = any(c == group or c.startswith(group + b"/") for c in cgroups)
        if inside or any(v.startswith(home) for v in read_proc(pid, "environ").split(b"\0")):
            found.append(pid)
    return found


def leftovers(name, base):
    """Everything on the machine that still belongs to the instance, as sentences."""
    base = str(base)
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if base in line:
            found.append(f"mount: {line}")
    for pid in instance_processes(name, base):
        command = read_proc(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace")
        found.append(f"process {pid}: {command or read_proc(pid, 'comm').decode(errors='replace')}")
    found += [f"cgroup: {folder}" for folder in instance_cgroups(name)]
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if backing.read_text().startswith(base):
                found.append(f"loop device: {backing}")
    for folder in ("/run/netns", "/var/run/netns"):
        with contextlib.suppress(OSError):
            found += [f"network namespace: {n}" for n in os.listdir(folder) if name in n]
    return found


def remove_by_force(name, base):
    """Makes the machine clean again after a failed purge."""
    for pid in instance_processes(name, base):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    time.sleep(0.3)
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        if str(base) in line:
            subprocess.run(["umount", "-l", line.split()[4]], check=False, stderr=subprocess.DEVNULL)
    for folder in instance_cgroups(name):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


# ---- one daemon ------------------------------------------------------------------------------


class Box:
    """A box of a yard; its name is all it knows."""

    def __init__(self, yard, shown):
        self.yard = yard
        self.id = shown["id"]
        self.name = shown["name"]
        self.path = f"/v1/boxes/{self.id}"

    def exec(self, *argv, flags=(), **kw):
        return self.yard.box("exec", *flags, self.name, "--", *argv, **kw)

    def sh(self, script, **kw):
        return self.exec("sh", "-c", script, **kw)

    def out(self, script, **kw):
        return self.sh(script, **kw).stdout.strip()

    def python(self, script, *args, **kw):
        return self.exec("python3", "-c", script, *args, **kw)

    def run(self, *argv, **body):
        """Over REST."""
        return self.yard.run(self.name, *argv, **body)

    def start(self, *argv, **body):
        """Detached, over REST; gives the exec."""
        body.update(argv=list(argv), detach=True)
        return self.yard.api("POST", f"{self.path}/exec", body, expect=201).json

    def execs(self):
        return self.yard.api("GET", f"{self.path}/execs", expect=200).json["execs"]

    def get_exec(self, exec_id):
        return self.yard.api("GET", f"{self.path}/execs/{exec_id}", expect=200).json

    def wait_exec(self, exec_id, timeout=10):
        def over():
            found = self.get_exec(exec_id)
            return found if found["state"] == "exited" else None

        return eventually(over, timeout, f"exec {exec_id} is over")

    def logs(self, exec_id, **query):
        reply = self.yard.api("GET", f"{self.path}/execs/{exec_id}/logs", query=query, expect=200)
        return reply.body if query.get("raw") else reply.lines

    def processes(self):
        return self.yard.api("GET", f"{self.path}/processes", expect=200).json["processes"]

    def commands(self):
        return [p["command"] for p in self.processes()]

    def show(self):
        return self.yard.api("GET", self.path, expect=200).json

    def put(self, path, data, **query):
        return self.yard.api("PUT", f"{self.path}/files", data, query={"path": path, **query})

    def get(self, path, **query):
        return self.yard.api("GET", f"{self.path}/files", query={"path": path, **query})

    def stat(self, path):
        return self.yard.api("GET", f"{self.path}/files/stat", query={"path": path})

    def remove(self):
        return self.yard.api("DELETE", self.path, query={"force": "true"})


class Yard:
    alive = []

    def __init__(self, base=None, images=IMAGES):
        self.base = Path(tempfile.mkdtemp(prefix="boxt-", dir=base))
        self.home, self.run_dir = self.base / "home", self.base / "run"
        self.sock = self.run_dir / "box.sock"
        self.log = self.base / "daemon.log"
        self.name = instance_name(self.home)
        if os.environ.get("BOX_TEST_INSTANCES"):  # for the look at the end of everything
            with open(os.environ["BOX_TEST_INSTANCES"], "a") as names:
                names.write(f"{self.name}\n")
        self.daemon = None
        self.wrapper = []  # words before the daemon's own
        self.home.mkdir(mode=0o755)
        images.mkdir(parents=True, exist_ok=True)
        (self.home / "images").symlink_to(images)
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("BOX_")},
            "BOX_HOME": str(self.home),
            "BOX_RUN": str(self.run_dir),
            "BOX_LISTEN": "127.0.0.1:0",
            "BOX_POOL_SIZE": "4G",
            "BOX_REGISTRY": "127.0.0.1:1",  # closed: no test asks a registry on the network
            "BOX_CA_CERTIFICATES": "none",  # whatever this machine trusts
            "BOX_SPARES": "0",  # what is counted should be what was asked for; test_spares.py has them
            "BOX_CONF": str(self.base / "boxyard.conf"),
            "NO_COLOR": "1",
        }
        if CRIU.exists():
            self.env["BOX_CRIU"] = str(CRIU)
        if DRIVER != "ns":  # the same tests with another driver
            self.env["BOX_DRIVER"] = DRIVER
        self.images = images
        self.image_files = images.parent / f"{images.name}-files"
        self.lend_image_files(self.image_files, self.home / "image-files")
        (self.base / "boxyard.conf").touch()
        if SANITIZED:
            log = f"log_path={self.base}/sanitizer"
            self.env.setdefault("ASAN_OPTIONS", f"{log}:detect_leaks=1:abort_on_error=0")
            self.env.setdefault("UBSAN_OPTIONS", f"{log}:print_stacktrace=1")
        Yard.alive.append(self)

    def lend_image_files(self, source, target):
        """Images as disks of VMs are made once for all homes: it takes longer than most tests."""
        if DRIVER != "vm":
            return
        target.mkdir(mode=0o700, exist_ok=True)
        for file in source.glob("*.erofs"):
            if not (self.images / file.name.split("-")[0]).is_dir():
                continue  # of an image that one test made
            with contextlib.suppress(FileExistsError):
                os.link(file, target / file.name)

    # -- daemon

    def start_daemon(self, wait=True):
        with open(self.log, "ab") as log:
            self.daemon = subprocess.Popen(
                [*self.wrapper, BOX_BIN, "serve"], env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )
        if wait:
            self.wait_daemon()
        return self.daemon.pid

    def wait_daemon(self):
        def up():
            if self.daemon and self.daemon.poll() is not None:
                raise AssertionError(f"daemon ended with {self.daemon.returncode}: {self.log_tail()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self.api("GET", "/v1/health", timeout=5).status == 200
            return False

        eventually(up, 20, "the daemon answers")

    def kill_daemon(self):
        """kill -9; boxes go on."""
        pid = self.daemon_pid()
        os.kill(pid, signal.SIGKILL)
        self.reap(pid)

    def reap(self, pid):
        if self.daemon and self.daemon.pid == pid:
            self.daemon.wait(20)
            self.daemon = None
        else:
            eventually(lambda: not os.path.exists(f"/proc/{pid}"), 20, f"daemon {pid} is gone")

    def stop_daemon(self):
        """Graceful; boxes go on."""
        pid = self.daemon_pid()
        self.box("down")
        self.reap(pid)

    def daemon_pid(self):
        """Who listens on our socket, as the kernel says."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.connect(str(self.sock))
            return struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]

    @property
    def pool(self):
        """As the daemon sees it: mounted in a namespace of its own."""
        return Path(f"/proc/{self.daemon_pid()}/root{self.home}/pool")

    def answers(self):
        try:
            return self.api("GET", "/v1/health", timeout=5).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def log_tail(self):
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""

    # -- the two public ways in

    def box(self, *args, input=None, check=True, timeout=60, binary=False, env=None, **kw):
        if isinstance(input, str) and binary:
            input = input.encode()
        if input is None and "stdin" not in kw:
            kw["stdin"] = subprocess.DEVNULL
        done = subprocess.run(
            [str(BOX_BIN), *map(str, args)], input=input, env={**self.env, **(env or {})},
            stdout=kw.pop("stdout", subprocess.PIPE), stderr=kw.pop("stderr", subprocess.PIPE),
            timeout=timeout * SLOWNESS, text=not binary, check=False, **kw,
        )
        if check and done.returncode:
            raise AssertionError(f"box {' '.join(map(str, args))}: exit {done.returncode}\n"
                                 f"{done.stdout!r}\n{done.stderr!r}")
        return done

    def spawn(self, *args, **kw):
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen([str(BOX_BIN), *map(str, args)], env=self.env, **kw)

    def json(self, *args, **kw):
        return json.loads(self.box(*args, "--json", **kw).stdout)

    def connection(self, timeout=30):
        return UnixConnection(self.sock, timeout * SLOWNESS)

    def api(self, method, path, body=None, query=None, headers=None, expect=None, timeout=30, conn=None):
        own = conn or self.connection(timeout)
        headers = dict(headers or {})
        if query:
            path += "?" + urlencode(query, quote_via=quote, doseq=True)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        try:
            own.request(method, path, body, headers)
            got = own.getresponse()
            reply = Reply(got.status, got.headers, got.read())
        finally:
            if conn is None:
                own.close()
        if expect is not None:
            assert reply.status == expect, f"{method} {path}: {reply.status} {reply.body[:500]!r}"
        return reply

    @contextlib.contextmanager
    def stream(self, method, path, body=None, query=None, headers=None, timeout=30):
        """An answer read piece by piece."""
        conn = self.connection(timeout)
        if query:
            path += "?" + urlencode(query, quote_via=quote)
        try:
            conn.request(method, path, json.dumps(body) if isinstance(body, dict) else body, headers or {})
            yield conn.getresponse()
        finally:
            conn.close()

    def run(self, box, *argv, **body):
        reply = self.api("POST", f"/v1/boxes/{box}/exec", {"argv": list(argv), **body}, expect=200)
        return ran(reply.lines)

    def ws(self, path, query=None, timeout=15, headers=()):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout * SLOWNESS)
        sock.connect(str(self.sock))
        if query:
            path += "?" + urlencode(query)
        return websocket.create_connection(f"ws://localhost{path}", socket=sock, suppress_origin=True,
                                           header=list(headers), timeout=timeout * SLOWNESS)

    def raw(self, data, close=False, timeout=5):
        """Bytes to the socket as they are; what comes back until it closes or falls silent."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(timeout * SLOWNESS)
            sock.connect(str(self.sock))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(data)
            if close:
                sock.shutdown(socket.SHUT_WR)
            got = b""
            with contextlib.suppress(socket.timeout, ConnectionResetError):
                while chunk := sock.recv(65536):
                    got += chunk
            return got

    # -- shortcuts

    def info(self):
        return self.api("GET", "/v1/info", expect=200).json

    def port(self):
        return int(self.info()["listen"].rpartition(":")[2])

    def new(self, expect=201, **body):
        body.setdefault("name", random_name())
        body.setdefault("image", IMAGE)
        return Box(self, self.api("POST", "/v1/boxes", body, expect=expect).json)

    def boxes(self, **query):
        return self.api("GET", "/v1/boxes", query=query, expect=200).json["boxes"]

    def events(self, **query):
        query.setdefault("limit", 1000)
        found = []
        while True:
            page = self.api("GET", "/v1/events", query=query, expect=200).json
            found += page["events"]
            if not page["events"]:
                return found
            query["since"] = page["events"][-1]["offset"] + 1

    def next_offset(self):
        events = self.events()
        return events[-1]["offset"] + 1 if events else 0

    def rss_kb(self):
        return status_kb(self.daemon_pid(), "VmRSS")

    # -- the end

    def destroy(self):
        """Gives what is wrong at the end, as sentences."""
        if self not in Yard.alive:
            return []
        Yard.alive.remove(self)
        problems = []
        self.lend_image_files(self.home / "image-files", self.image_files)
        with contextlib.suppress(OSError):
            (self.home / "images").unlink()
        try:
            if not self.answers():
                self.start_daemon()
            pid = self.daemon_pid()
            self.box("down", "--purge", "--yes", timeout=60)
            self.reap(pid)
        except Exception as error:  # whatever it is, the machine must be cleaned
            problems.append(f"purge: {error}; log: {self.log_tail()[-800:]}")
        if not problems:
            with contextlib.suppress(AssertionError):
                eventually(lambda: not leftovers(self.name, self.base), 3)
        left = leftovers(self.name, self.base)
        problems += [f"left behind: {one}" for one in left]
        if left or problems:
            remove_by_force(self.name, self.base)
        for report in self.base.glob("sanitizer*"):
            problems.append(f"sanitizer: {report.read_text(errors='replace')[:4000]}")
        if not os.environ.get("BOX_TEST_KEEP"):
            shutil.rmtree(self.base, ignore_errors=True)
        return problems


@atexit.register
def destroy_all():
    for yard in list(Yard.alive):
        for problem in yard.destroy():
            print(problem)


def recipe_packages(flags=()):
    """What `box image build` installs with these flags, as the program's own source lists it."""
    source = (ROOT / "src" / "image" / "build.c").read_text()
    kind = "minimal" if "--minimal" in flags else "standard"
    names = re.findall(r'"([^"]+)"', re.search(rf"{kind}_packages\[\] = {{(.*?)}}", source, re.S).group(1))
    return set(names) | {name for flag, name in zip(flags, flags[1:]) if flag == "--package"}


def shared_images(name, images):
    """(folder, record) of each image of that name in the shared folder."""
    found = [(path.parent, json.loads(path.read_text())) for path in images.glob("[a-z0-9]*/image.json")]
    return [one for one in found if one[1]["name"] == name]


def shared_image_is_there(name=IMAGE, images=IMAGES, flags=()):
    """One that was built from another list of packages does not count."""
    return any(set(record["packages"]) == recipe_packages(flags) for _, record in shared_images(name, images))


def share_image(yard, images):
    """Moves the image a plain-folder pool has just got to where all homes of the tests find it."""
    pool = yard.home / "pool"
    [record] = [json.loads(path.read_text()) for path in pool.glob("images/[a-z0-9]*/image.json")]
    [layer] = record.pop("layers")
    draft = images / f".new-{record['id']}"
    draft.mkdir()
    shutil.move(yard.home / "layers" / layer, draft / "rootfs")
    (draft / "image.json").write_text(json.dumps(record))
    draft.rename(images / record["id"])


def ensure_image(name=IMAGE, *flags, images=IMAGES):
    """Builds an image, the base one unless told otherwise, into the shared folder unless it is
    there; one builder at a
    time."""
    images.mkdir(parents=True, exist_ok=True)
    with open(images.parent / f"{images.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if shared_image_is_there(name, images, flags):
            return
        yard = Yard(base=images.parent, images=images)
        yard.env["BOX_POOL"] = "folder"
        try:
            yard.start_daemon()
            yard.box("image", "build", name, *flags, timeout=1200)
            for folder, _ in shared_images(name, images):
                shutil.rmtree(folder)
            share_image(yard, images)
        finally:
            problems = yard.destroy()
        assert not problems, problems
