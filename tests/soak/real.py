"""real.py - real programs for the soak, each with data that it must never lose

A program is started once in a box of its own and asked there, or in a copy of that box, by check(),
which counts up something the program
keeps and looks whether all it was given before is still there. stir() begins something that is in
flight during the next operation.
Those of LONG need packages that the image of the short form has not; who cannot be had here is
skipped, aloud.
"""
import shutil
import subprocess

import pytest

import software
from boxtest import ROOT, ensure_image, eventually
from software import IMAGES as SHORT_IMAGES
from software import Software

IMAGES = SHORT_IMAGES.parent / "test-images-real"
NPM = ROOT / "build" / "soak-npm"  # what npm fetches for it, once


def ensure_real_image(name, packages):
    try:
        ensure_image(name, "--minimal", *[word for package in packages for word in ("--package", package)], images=IMAGES)
    except AssertionError as why:
        pytest.skip(f"LOUD: no image with {' '.join(packages)}: {str(why)[-300:]}")


def npm(package):
    """The folder with a package of the registry's and all it needs."""
    folder = NPM / package.replace("/", "_")
    if not (folder / "whole").exists():
        if not shutil.which("npm"):
            pytest.skip("LOUD: no npm here")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, package], capture_output=True,
                              text=True, timeout=600, check=False)
        if done.returncode:
            pytest.skip(f"LOUD: npm has no {package} here: {done.stderr[-300:]}")
        (folder / "whole").touch()
    return folder


class Real(Software):
    count = 0  # as check() left it
    image, memory = software.IMAGE, "1G"

    def stir(self, box):
        pass

    def prepare(self):
        software.ensure_states_image()


class RedisSaving(Real):
    """A child that writes the data down shares the parent's epoll, and connections come while it
    does."""

    name = "redis"
    CLIENT = """import socket, time
cs = [socket.create_connection(("127.0.0.1", 7004)) for _ in range(10)]
while True:
    for c in cs:
        c.sendall(b"PING\\r\\n"); assert c.recv(100) == b"+PONG\\r\\n"
    time.sleep(0.05)
"""

    def start(self, box):
        box.start("redis-server", "--port", "7004", "--save", "", "--dir", "/root")
        self.up(box, "redis-cli -p 7004 ping", "PONG")
        box.sh("seq 1 5000 | sed 's/.*/set key& value&/' | redis-cli -p 7004 --pipe >/dev/null; redis-cli -p 7004 set counter 0")
        self.clients = box.start("python3", self.script(box, "/root/clients.py", self.CLIENT))

    def stir(self, box):
        box.sh("redis-cli -p 7004 config set rdb-key-save-delay 100; redis-cli -p 7004 bgsave", check=False)

    def check(self, box):
        said = box.out("redis-cli -p 7004 get key777; redis-cli -p 7004 dbsize; redis-cli -p 7004 debug digest >/dev/null; "
                       "redis-cli -p 7004 incr counter").split()
        assert said[:2] == ["value777", "5001"], said
        assert box.get_exec(self.clients["id"])["state"] == "running", box.logs(self.clients["id"], raw="true")[-300:]
        self.up(box, "redis-cli -p 7004 info persistence", "rdb_bgsave_in_progress:0")
        assert "rdb_last_bgsave_status:ok" in box.out("redis-cli -p 7004 info persistence")
        return int(said[-1])


class PostgresCounting(Real):
    name = "postgres"

    def __init__(self):
        self.writer = software.Postgres()
        self.sql = self.writer.sql

    def start(self, box):
        self.writer.start(box)
        self.up(box, self.sql("create table c as select 0 as n"))

    def check(self, box):
        self.writer.check(box)
        return int(box.out(self.sql("update c set n = n + 1 returning n"), timeout=90).split()[0])


class AsyncForking(Real):
    """An asyncio server that forks without exec: parent and child share its epoll, and descriptors
    come and go in both."""

    name = "asyncio"
    SCRIPT = """import asyncio, os, signal, socket, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
asked, kept = 0, {}
async def serve(reader, writer):
    global asked
    line = await reader.readline()
    if line.startswith(b"fork"):
        pair = socket.socketpair()
        asyncio.get_running_loop().add_reader(pair[0].fileno(), lambda: pair[0].recv(100))
        if os.fork() == 0:
            time.sleep(0.8); os._exit(0)
        kept[asked] = pair
        if len(kept) > 20:
            old = kept.pop(next(iter(kept)))
            asyncio.get_running_loop().remove_reader(old[0].fileno()); old[0].close(); old[1].close()
        pair[1].send(b"x")
    asked += 1
    writer.write(b"%d\\n" % asked); await writer.drain(); writer.close()
async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", 7011) as server:
        await server.serve_forever()
asyncio.run(main())
"""
    ASK = "exec 3<>/dev/tcp/127.0.0.1/7011; echo {} >&3; cat <&3"

    def ask(self, box, word):
        return int(box.exec("bash", "-c", self.ASK.format(word)).stdout)

    def start(self, box):
        box.start("python3", self.script(box, "/root/forking.py", self.SCRIPT))
        eventually(lambda: box.exec("bash", "-c", self.ASK.format("x"), check=False).returncode == 0, 20)

    def stir(self, box):
        self.count = self.ask(box, "fork")

    def check(self, box):
        return self.ask(box, "count")


class NodeCounting(Real):
    name = "node"

    def start(self, box):
        self.server = software.Node()
        assert box.put("/root/get.py", software.GET.encode()).status < 300
        self.server.start(box)

    def check(self, box):
        return self.server.check(box)


# ---- the long form ---------------------------------------------------------------------------


class Long(Real):
    memory, packages = "2G", ()

    @property
    def image(self):
        return f"debian-{self.name}" if self.packages else software.IMAGE

    def prepare(self):
        if self.packages:
            ensure_real_image(self.image, ["python3", "procps", *self.packages])
        else:
            super().prepare()

    def get(self, box, port, path="/"):
        return box.out(f"python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:{port}{path}\", timeout=30).read().decode())'")


class Mariadb(Long):
    name, packages = "mariadb", ["mariadb-server"]

    def sql(self, text):
        return f"mariadb -N -e \"{text}\""

    def start(self, box):
        box.sh("mkdir -p /run/mysqld; chown mysql /run/mysqld; test -d /var/lib/mysql/mysql || mariadb-install-db --user=mysql >/dev/null",
               timeout=120)
        box.start("mariadbd", "--user=mysql", "--innodb-use-native-aio=0", "--innodb-buffer-pool-size=32M")
        self.up(box, self.sql("create database if not exists d; create table if not exists d.c (id int primary key, n int); "
                              "replace into d.c values (1, 0); create table if not exists d.t (n int, sum char(32))"))

    def check(self, box):
        said = box.out(self.sql("update d.c set n = n + 1; insert into d.t select n, md5(n) from d.c; select n from d.c; "
                                "select count(*), sum(sum = md5(n)) from d.t"), timeout=60).split()
        assert said[0] == said[1] == said[2], said
        return int(said[0])


class Jvm(Long):
    name, packages = "jvm", ["default-jdk-headless"]
    SOURCE = """import com.sun.net.httpserver.*; import java.net.*; import java.util.*; import java.util.concurrent.*;
public class Main { static final Map<Integer, byte[]> kept = new ConcurrentHashMap<>(); static int asked = 0; static volatile long ticks;
  public static void main(String[] a) throws Exception {
    new Thread(() -> { while (true) { ticks++; byte[] b = new byte[100000]; b[1] = 1; try { Thread.sleep(1); } catch (Exception e) { } } }).start();
    HttpServer s = HttpServer.create(new InetSocketAddress("127.0.0.1", 7012), 0); s.setExecutor(Executors.newFixedThreadPool(8));
    s.createContext("/", x -> { synchronized (kept) { asked++; byte[] b = new byte[1000]; Arrays.fill(b, (byte) asked); kept.put(asked, b);
      boolean right = true; for (int i = 1; i <= asked; i++) { byte[] k = kept.get(i); right &= k != null && k[0] == (byte) i && k[999] == (byte) i; }
      byte[] t = (asked + " " + right).getBytes(); x.sendResponseHeaders(200, t.length); x.getResponseBody().write(t); x.close(); } });
    s.start(); } }
"""

    def start(self, box):
        box.start("java", "-Xmx256m", self.script(box, "/root/Main.java", self.SOURCE))
        eventually(lambda: "true" in self.up(box, "curl -s 127.0.0.1:7012 || python3 -c 'import urllib.request as u; "
                                             "print(u.urlopen(\"http://127.0.0.1:7012/\").read().decode())'"), 60)

    def check(self, box):
        asked, right = self.get(box, 7012).split()
        assert right == "true"
        return int(asked)


class Go(Long):
    name, packages = "go", ["golang-go"]
    SOURCE = """package main
import ("fmt"; "net/http"; "sync"; "time")
var mu sync.Mutex; var kept = map[int]string{}; var asked int; var ticks int
func main() {
	for i := 0; i < 50; i++ { go func() { for { time.Sleep(time.Millisecond); mu.Lock(); ticks++; mu.Unlock() } }() }
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock(); asked++; kept[asked] = fmt.Sprint("v", asked); right := len(kept) == asked
		for i, v := range kept { right = right && v == fmt.Sprint("v", i) }
		then := ticks; mu.Unlock(); time.Sleep(20 * time.Millisecond); mu.Lock(); moves := ticks > then; mu.Unlock()
		fmt.Fprint(w, asked, " ", right && moves) })
	http.ListenAndServe("127.0.0.1:7013", nil) }
"""

    def start(self, box):
        box.sh(f"cd /root && go build -o /root/served {self.script(box, '/root/main.go', self.SOURCE)}", timeout=300)
        box.start("/root/served", env={"GODEBUG": "multipathtcp=0"})
        self.up(box, "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:7013/\").read().decode())'", "true")

    def check(self, box):
        asked, right = self.get(box, 7013).split()
        assert right == "true"
        return int(asked)


class Chromium(Long):
    """A page whose script counts, and tells a server beside it; asked through that server."""

    name, packages = "chromium", ["chromium"]
    SERVER = """import http.server, threading, time
last, words, lock = 0, [], threading.Condition()
PAGE = b'''<script>let n = 0, sum = [];
async function go() { while (true) { try { const r = await fetch('/word'); const w = await r.text();
  if (w) { n++; sum.push(w); await fetch('/said?' + n + ':' + sum.join('')); } } catch (e) { await new Promise(r => setTimeout(r, 50)); } } }
go()</script>'''
class H(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        global last
        body = b""
        if self.path == "/": body = PAGE
        elif self.path == "/word":
            with lock:
                if not words: lock.wait(0.2)
                body = words.pop(0).encode() if words else b""
        elif self.path.startswith("/said?"):
            with lock: last = self.path[6:]; lock.notify_all()
        elif self.path == "/ask":
            with lock:
                words.append("w"); lock.notify_all(); then = last
                end = time.time() + 30
                while last == then and time.time() < end: lock.wait(0.5)
                body = str(last).encode()
        self.send_response(200); self.send_header("Content-Type", "text/html"); self.send_header("Content-Length", str(len(body)))
        self.end_headers(); self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", 7014), H).serve_forever()
"""

    def start(self, box):
        box.start("python3", self.script(box, "/root/page.py", self.SERVER))
        self.up(box, "python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:7014/\")'")
        box.start("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                  "--user-data-dir=/root/profile", "http://127.0.0.1:7014/")
        eventually(lambda: ":" in self.get(box, 7014, "/ask"), 90)

    def check(self, box):
        n, _, kept = self.get(box, 7014, "/ask").partition(":")
        assert len(kept) == int(n), (n, kept)
        return int(n)


class Vite(Long):
    """Its server transforms a file that changes from check to check."""

    name = "vite"

    def prepare(self):
        super().prepare()
        self.folder = npm("vite@5.4.21")  # of those that the node of Debian runs

    def start(self, box):
        box.yard.box("cp", f"{self.folder}/node_modules", f"{box.name}:/root/app", timeout=300)
        box.sh("cd /root; [ -d app/node_modules ] || { mkdir a; mv app a/node_modules; mv a app; }; cd app; echo '{}' > package.json; "
               "echo '<script type=module src=/m.ts></script>' > index.html; echo 'export const n: number = 0' > m.ts")
        box.start("node", "node_modules/vite/bin/vite.js", "--host", "127.0.0.1", "--port", "7015", cwd="/root/app")
        self.up(box, "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:7015/m.ts\").read().decode())'", "const n")

    def check(self, box):
        n = int(box.out("sed -n 's/.*= //p' /root/app/m.ts")) + 1
        box.sh(f"echo 'export const n: number = {n}' > /root/app/m.ts")
        eventually(lambda: f"const n = {n}" in self.get(box, 7015, "/m.ts"), 30, "it serves what changed", every=0.1)
        return n


SHORT = [RedisSaving, PostgresCounting, AsyncForking, NodeCounting]
LONG = [Mariadb, Jvm, Go, Chromium, Vite]
