"""clienttools.py - real servers for real clients, and a Debian archive and an npm registry of the
test's own

Servers that Debian would start as a service when installed (sshd, postgres, nghttpd) are unpacked
in build/tools and never
installed; one that the machine has is used as it is. Packages are fetched by name, with the
machine's own settings, once.

    find_program("sshd")                          where it is; skips aloud when it cannot be had
    packages_for_image("postgresql-client")       .deb files: the package and all that the test image lacks for it
    debian_archive(debs)                          {path: bytes}, for files_handler
    npm_package("tiny", "1.0", URL, {...})        {path: bytes}
"""
import base64
import contextlib
import fcntl
import hashlib
import http.server
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
import threading
from pathlib import Path
from urllib.parse import unquote

import pytest

from boxtest import IMAGE, IMAGES, ROOT, eventually

TOOLS = ROOT / "build" / "tools"
PACKAGES = {"sshd": "openssh-server", "nghttpd": "nghttp2-server", "postgres": "postgresql", "git": "git"}


# ---- packages --------------------------------------------------------------------------------


def fetch(folder, packages, *options):
    """Fetches packages, and what they depend on and dpkg's state does not have, into folder."""
    (folder / "partial").mkdir(parents=True, exist_ok=True)
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "--download-only",
               "-o", f"Dir::Cache::archives={folder}", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root",
               *options, *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:  # lists that are missing or old
        subprocess.run(["apt-get", "update", "-q", "-o", "DPkg::Lock::Timeout=120"], capture_output=True, check=False)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"packages cannot be fetched: {' '.join(packages)}: {done.stderr.strip()[-300:]}")
    return sorted(folder.glob("*.deb"))


@contextlib.contextmanager
def locked():
    TOOLS.mkdir(parents=True, exist_ok=True)
    with open(TOOLS / "clients.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def look_for(name):
    folders = [*map(Path, os.environ["PATH"].split(":")), Path("/usr/sbin"), *Path("/usr/lib/postgresql").glob("*/bin"),
               TOOLS / "usr/bin", TOOLS / "usr/sbin", *TOOLS.glob("usr/lib/postgresql/*/bin")]
    # A link into a versioned folder is followed: its neighbours lie there.
    return next(((folder / name).resolve() for folder in folders if os.access(folder / name, os.X_OK)), None)


def find_program(name):
    """Where it is; unpacked first if it is nowhere."""
    with locked():
        if not look_for(name):
            folder = TOOLS / f"debs-{name}"
            for deb in fetch(folder, [PACKAGES[name]]):
                subprocess.run(["dpkg-deb", "-x", deb, TOOLS], check=True)
            shutil.rmtree(folder)
    return look_for(name) or pytest.skip(f"{PACKAGES[name]} has no {name}")


def server_environment():
    """Programs of build/tools find the libraries that came with them."""
    folders = [*TOOLS.glob("usr/lib/*-linux-gnu"), *TOOLS.glob("lib/*-linux-gnu")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, folders))}


def packages_for_image(*names):
    """As apt in a box of the test image would choose them: dpkg's state is the image's."""
    rootfs = next(path.parent / "rootfs" for path in IMAGES.glob("[a-z0-9]*/image.json")
                  if json.loads(path.read_text())["name"] == IMAGE)
    folder = TOOLS / f"packages-{rootfs.parent.name}"
    with locked():
        if not (folder / "complete").exists():
            fetch(folder, names, "-o", f"Dir::State::status={rootfs}/var/lib/dpkg/status")
            (folder / "complete").touch()
    return sorted(folder.glob("*.deb"))


def debian_archive(debs):
    """A flat archive, `deb URL/debian flat/`: Release, Packages and the packages."""
    files, entries = {}, []
    for deb in debs:
        data = deb.read_bytes()
        name = deb.name.replace("%3a", ":")
        control = subprocess.run(["dpkg-deb", "-f", deb], capture_output=True, text=True, check=True).stdout.strip()
        entries.append(f"{control}\nFilename: flat/{name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n")
        files[f"/debian/flat/{name}"] = data
    packages = "\n".join(entries).encode()
    files["/debian/flat/Packages"] = packages
    files["/debian/flat/Release"] = (f"Origin: test\nSuite: test\nSHA256:\n {hashlib.sha256(packages).hexdigest()} "
                                f"{len(packages)} Packages\n").encode()
    return files


def npm_package(name, version, registry, files):
    """A packument and its tarball, as a registry answers them."""
    files = {"package.json": json.dumps({"name": name, "version": version, "main": "index.js"}), **files}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for path, text in files.items():
            info = tarfile.TarInfo(f"package/{path}")
            info.size, info.mode = len(text), 0o644
            tar.addfile(info, io.BytesIO(text.encode()))
    data, path = packed.getvalue(), f"/{name}/-/{name}-{version}.tgz"
    dist = {"tarball": registry + path, "shasum": hashlib.sha1(data).hexdigest(),
            "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()}
    packument = {"name": name, "dist-tags": {"latest": version},
                 "versions": {version: {"name": name, "version": version, "main": "index.js", "dist": dist}}}
    return {f"/{name}": json.dumps(packument).encode(), path: data}


# ---- HTTP servers (for serve_http(handler=...)) ----------------------------------------------


class Quiet(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    world = None

    def parse_request(self):
        good = super().parse_request()
        if good:
            self.world.saw(f"http {self.headers.get('Host', '')} {self.command} {self.path}")
        return good

    def log_message(self, *words):
        pass

    def answer(self, status, data, **headers):
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def files_handler(the_world, files):
    """Answers what is in files, {path: bytes}, and 404; keeps the connection in both cases."""

    class Files(Quiet):
        world = the_world

        def do_GET(self):
            found = files.get(unquote(self.path.partition("?")[0]))
            self.answer(404 if found is None else 200, found or b"")

        do_HEAD = do_GET

        def do_PUT(self):
            """Tells how much came and its hash; nothing is kept."""
            digest, left = hashlib.sha256(), int(self.headers["Content-Length"])
            while left:
                left -= len(chunk := self.rfile.read(min(left, 1 << 18)))
                digest.update(chunk)
            self.answer(200, f"{self.headers['Content-Length']} {digest.hexdigest()}\n".encode())

    return Files


def git_handler(the_world, folder):
    """`git http-backend` over the repositories in folder."""
    git = str(find_program("git"))

    class Backend(Quiet):
        world = the_world

        def body(self):
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            whole = b""
            while size := int(self.rfile.readline(), 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole

        def do_GET(self):
            path, _, query = self.path.partition("?")
            body = self.body()
            env = {**os.environ, "GIT_PROJECT_ROOT": str(folder), "GIT_HTTP_EXPORT_ALL": "1", "REQUEST_METHOD": self.command,
                   "PATH_INFO": path, "QUERY_STRING": query, "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                   "CONTENT_LENGTH": str(len(body)), "REMOTE_USER": "ada", "REMOTE_ADDR": "192.0.2.2",
                   "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                   "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "GIT_CONFIG_COUNT": "1",
                   "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
            done = subprocess.run([git, "http-backend"], input=body, capture_output=True, env=env, check=False)
            head, _, data = done.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.answer(int(headers.pop("Status", "200")[:3]), data, **headers)

        do_POST = do_GET

    return Backend


# ---- other servers (for serve_tcp) -----------------------------------------------------------


def serve_websocket(conn, local):
    """Greets after the handshake, then sends back what comes until it is told to close."""
    reader = conn.makefile("rb")
    key = b""
    while (line := reader.readline().strip()):
        name, _, value = line.partition(b":")
        if name.lower() == b"sec-websocket-key":
            key = value.strip()
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n" + b"\x81\x05hello")
    opcode = 0
    while opcode != 8:
        first, second = reader.read(2)
        opcode, size = first & 15, second & 127
        if size > 125:
            size = int.from_bytes(reader.read(2 if size == 126 else 8), "big")
        mask, data = reader.read(4), reader.read(size)
        # The mask over the whole at once: Python counts bytes slowly.
        stretched = (mask * (size // 4 + 1))[:size]
        data = (int.from_bytes(data, "big") ^ int.from_bytes(stretched, "big")).to_bytes(size, "big")
        length = bytes([size]) if size < 126 else b"\x7f" + size.to_bytes(8, "big")
        conn.sendall(bytes([0x80 | opcode]) + length + data)


def serve_mail(conn, local):
    """SMTP as far as a client needs it to leave a message. The server speaks first."""
    reader = conn.makefile("rb")
    conn.sendall(b"220 mail.test ready\r\n")
    for line in reader:
        verb = line[:4].upper()
        if verb == b"DATA":
            conn.sendall(b"354 go on\r\n")
            while reader.readline() not in (b".\r\n", b""):
                pass
        conn.sendall(b"221 bye\r\n" if verb == b"QUIT" else b"250 fine\r\n")
        if verb == b"QUIT":
            return


def connect_proxy(the_world, addresses, credentials):
    """An HTTP proxy for CONNECT alone: it knows names (addresses, {name: address}) and wants
    credentials
    ("user:password"). What it is asked for is remembered as "connect NAME:PORT"."""
    wanted = b"basic " + base64.b64encode(credentials.encode())

    def pump(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def handler(conn, local):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = conn.recv(1)
            if not byte:
                return
            head += byte
        lines = head.split(b"\r\n")
        verb, target, _ = lines[0].decode().split(" ", 2)
        name, _, port = target.rpartition(":")
        the_world.saw(f"{verb.lower()} {target}")
        given = [line.split(b":", 1)[1].strip() for line in lines if line.lower().startswith(b"proxy-authorization:")]
        if [g[:6].lower() + g[6:] for g in given] != [wanted]:
            conn.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        if verb != "CONNECT" or name not in addresses:
            conn.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return
        with the_world.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
            server.connect((addresses[name], int(port)))
            conn.sendall(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 corp\r\n\r\n")
            back = threading.Thread(target=pump, args=(server, conn), daemon=True)
            back.start()
            pump(conn, server)
            back.join()

    return handler


# ---- programs in the world -------------------------------------------------------------------


def wait_for_port(world, address, port):
    def answers():
        with world.socket(socket.AF_INET, socket.SOCK_STREAM) as sock, contextlib.suppress(OSError):
            sock.connect((address, port))
            return True
        return False

    eventually(answers, 10, f"a server on {address}:{port}")


def make_repository(path):
    """A bare repository of a few hundred objects that may be pushed to over HTTP."""
    path.mkdir(parents=True)
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@a.test",
           "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@a.test"}

    def git(*words, **more):
        subprocess.run([find_program("git"), "-C", path, *words], check=True, capture_output=True, env=env, **more)

    git("init", "-q", "--bare", "-b", "main")
    git("config", "http.receivepack", "true")
    parts = [b"commit refs/heads/main\ncommitter a <a@a.test> 1700000000 +0000\ndata 5\nfirst\n"]
    for number in range(300):
        parts.append(b"M 644 inline file%d\ndata 3000\n" % number + os.urandom(3000) + b"\n")
    git("fast-import", "--quiet", input=b"".join(parts))


def start_git_daemon(world, address, folder):
    world.spawn([find_program("git"), "daemon", "--export-all", "--reuseaddr", f"--base-path={folder}", f"--listen={address}"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_port(world, address, 9418)


def start_sshd(world, address, public_key):
    """sshd on port 22, where root logs in with that key; gives its host key as known_hosts has it.
    It runs over a passwd of
    its own: the user that sshd wants may not be on this machine."""
    sshd, folder = find_program("sshd"), world.folder / "sshd"
    folder.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "host"], check=True)
    (folder / "authorized").write_text(public_key)
    (folder / "passwd").write_text(f"root:x:0:0::{folder}:/bin/sh\nsshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n")
    (folder / "shadow").write_text("root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\n")
    (folder / "config").write_text(
        f"ListenAddress {address}:22\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\nStrictModes no\n"
        f"PasswordAuthentication no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n")
    script = """set -e; cd "$1"; mount --make-rprivate /
        mount --bind passwd /etc/passwd; mount --bind shadow /etc/shadow
        mount -t tmpfs none /run; mkdir -m 755 /run/sshd; exec "$2" -D -e -f "$1/config" """
    with open(folder / "log", "w") as log:
        world.spawn(["unshare", "-m", "sh", "-c", script, "sh", folder, sshd], env=server_environment(),
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    wait_for_port(world, address, 22)
    return (folder / "host.pub").read_text().rsplit(" ", 1)[0]


def start_nghttpd(world, address, names, folder):
    """HTTP/2 over TLS on port 443: files of folder, and what is uploaded comes back."""
    certificate, key = world.certificate(names)
    with open(folder / "log", "w") as log:
        world.spawn([find_program("nghttpd"), "--echo-upload", "-d", folder, "-a", address, "443", key, certificate],
                    env=server_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    wait_for_port(world, address, 443)


def start_postgres(world, address, names):
    """PostgreSQL on port 5432, TLS or not; user ada with password 'secret', database ada."""
    postgres, folder = find_program("postgres"), world.folder / "postgres"
    world.folder.chmod(0o711)
    folder.mkdir()
    (folder / "password").write_text("secret\n")
    for name, path in zip(("server.crt", "server.key"), world.certificate(names)):
        shutil.copy(path, folder / name)
    for path in (folder, *folder.iterdir()):
        os.chown(path, 65534, 65534)
        path.chmod(0o700 if path.is_dir() else 0o600)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]  # it does not run as root
    env = {**server_environment(), "TZ": "UTC", "LC_ALL": "C"}
    if TOOLS in postgres.parents:  # which may lie where only root looks
        own = world.folder / "postgres-program"
        for name in ("usr/lib", "usr/share/postgresql"):
            shutil.copytree(TOOLS / name, own / name, symlinks=True)
        postgres = own / postgres.relative_to(TOOLS)
        env["LD_LIBRARY_PATH"] = ":".join(map(str, own.glob("usr/lib/*-linux-gnu")))
    subprocess.run([*nobody, postgres.parent / "initdb", "-D", folder / "data", "-U", "ada", "-A", "scram-sha-256",
                    "--pwfile", folder / "password", "--no-sync", "-E", "UTF8", "--no-locale"],
                   check=True, capture_output=True, env=env, cwd=folder)
    with open(folder / "data/pg_hba.conf", "a") as rules:
        rules.write("host all all 0.0.0.0/0 scram-sha-256\n")
    settings = {"listen_addresses": address, "unix_socket_directories": folder, "ssl": "on", "fsync": "off",
                "ssl_cert_file": folder / "server.crt", "ssl_key_file": folder / "server.key", "jit": "off"}
    with open(folder / "log", "w") as log:
        child = world.spawn([*nobody, postgres, "-D", folder / "data", *(f"--{k}={v}" for k, v in settings.items())],
                            env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    wait_for_port(world, address, 5432)
    return child
