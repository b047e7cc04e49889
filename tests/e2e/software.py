"""software.py - real programs in a box, each with what it must still be able to do afterwards

A Software starts itself once in a box and is asked there, or in a copy of that box, by check().
Jobs (Job) are started right before an
operation and must end well after it, in every copy. The image has all packages; see
ensure_states_image.
"""
import json

from boxtest import IMAGES as BASE_IMAGES
from boxtest import ensure_image, eventually
from terminal import Terminal

IMAGE = "debian-states"
IMAGES = BASE_IMAGES.parent / f"{BASE_IMAGES.name}-states"  # apart: other tests count what is there
PACKAGES = ("git python3 nodejs make gcc libc6-dev tmux vim-tiny sqlite3 nginx-light redis-server postgresql "
            "procps iproute2 netbase").split()
WAIT = 40


def ensure_states_image():
    ensure_image(IMAGE, "--minimal", *[word for name in PACKAGES for word in ("--package", name)],
                 images=IMAGES)


GET = """import sys, urllib.request
print(urllib.request.urlopen("http://127.0.0.1:" + sys.argv[1], timeout=20).read().decode(), end="")
"""


class Software:
    name = ""

    def start(self, box):
        pass

    def check(self, box):
        """Gives a number that grows from check to check and goes back with the box, or None."""

    def script(self, box, path, text):
        assert box.put(path, text.encode()).status < 300
        return path

    def up(self, box, command, want="", what=""):
        """Until the command succeeds and says what is wanted."""
        def there():
            done = box.sh(command, check=False, timeout=60)
            return done if done.returncode == 0 and want in done.stdout else None

        return eventually(there, WAIT, what or f"{self.name}: {command}", every=0.1).stdout.strip()


class Bash(Software):
    """Interactive, on a terminal; variables, history and job control."""

    name = "bash"

    def start(self, box):
        self.exec = box.start("bash", "--norc", "-i", tty=True, rows=24, cols=100, env={"PS1": "ready> ", "HISTFILE": "/root/.hist"})
        with self.terminal(box) as term:
            term.type("MARK=m4711; sleep 10000 &\r")
            term.expect("ready> ")
            self.leave(term)

    def terminal(self, box):
        # Only what is new: the output of the check before has all that this one waits for.
        return Terminal(box.yard, "attach", "--new", box.name, self.exec["id"], cols=100)

    def leave(self, term):
        term.type(b"\x10\x11")
        term.wait(20)

    def check(self, box):
        with self.terminal(box) as term:
            term.type("echo got-$MARK-$((6*7))-end; history | grep -c 'MARK=m47'11; jobs\r")
            term.expect("got-m4711-42-end", 20)
            term.expect(r"\n1\r\n", 20)
            term.expect(r"Running +sleep 10000", 20)
            # It says when it runs: before that, ^C would be bash's, which may or may not show
            # another prompt.
            term.type("sh -c 'echo began-$((40+2)); exec sleep 5000'\r")
            term.expect("began-42", 20)
            term.type(b"\x03")
            term.expect(r"\^C", 20)
            term.expect("ready> ", 20)  # what is typed before the prompt may be thrown away
            term.type("echo ctrl-c-$?-end\r")
            term.expect("ctrl-c-[0-9]+-end", 20)
            self.leave(term)


class Python(Software):
    """Threads, asyncio with a server, a subprocess over a pipe."""

    name = "python"
    PORT = 7001
    SCRIPT = """import asyncio, json, subprocess, threading, time
counts, lock, total = [0] * 4, threading.Lock(), 0
def work(i):
    global total
    while True:
        with lock:
            counts[i] += 1; total += 1
        time.sleep(0.005)
for i in range(4): threading.Thread(target=work, args=(i,), daemon=True).start()
cat = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
ticks = asked = 0
async def tick():
    global ticks
    while True:
        await asyncio.sleep(0.01); ticks += 1
async def serve(reader, writer):
    global asked
    await reader.readuntil(b"\\r\\n\\r\\n")
    asked += 1
    cat.stdin.write(b"%d\\n" % asked); cat.stdin.flush()
    echoed = int(cat.stdout.readline())
    before, then = list(counts), ticks
    for _ in range(400):
        await asyncio.sleep(0.02)
        if all(a < b for a, b in zip(before, counts)) and ticks > then: break
    with lock: right = sum(counts) == total and echoed == asked
    body = json.dumps({"right": right, "moves": all(a < b for a, b in zip(before, counts)), "asked": asked}).encode()
    writer.write(b"HTTP/1.0 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
    await writer.drain(); writer.close()
async def main():
    asyncio.ensure_future(tick())
    await (await asyncio.start_server(serve, "127.0.0.1", 7001)).serve_forever()
asyncio.run(main())
"""

    def start(self, box):
        box.start("python3", self.script(box, "/root/work.py", self.SCRIPT))
        self.up(box, f"python3 /root/get.py {self.PORT}")

    def check(self, box):
        said = json.loads(box.out(f"python3 /root/get.py {self.PORT}"))
        assert said["right"] and said["moves"], said
        return said["asked"]


class Node(Software):
    name = "node"
    SCRIPT = """const http = require('http'); let asked = 0, ticks = 0; setInterval(() => ticks++, 5);
http.createServer((req, res) => { const then = ticks; setTimeout(() =>
  res.end(JSON.stringify({asked: ++asked, moves: ticks > then})), 100); }).listen(7002, '127.0.0.1');"""

    def start(self, box):
        box.start("node", self.script(box, "/root/server.js", self.SCRIPT))
        self.up(box, "python3 /root/get.py 7002")

    def check(self, box):
        said = json.loads(box.out("python3 /root/get.py 7002"))
        assert said["moves"], said
        return said["asked"]


class Sqlite(Software):
    """A writer at full speed in WAL mode; every transaction is whole, always."""

    name = "sqlite"
    SCRIPT = """import sqlite3, hashlib
db = sqlite3.connect("/root/data.db", isolation_level=None)
db.execute("pragma journal_mode=wal"); db.execute("pragma synchronous=normal")
db.execute("create table if not exists t (batch int, n int, data text, sum text)")
db.execute("create index if not exists i on t (batch)")
batch = 0
while True:
    batch += 1
    db.execute("begin immediate")
    for n in range(10):
        data = "%d-%d" % (batch, n) * 20
        db.execute("insert into t values (?,?,?,?)", (batch, n, data, hashlib.sha1(data.encode()).hexdigest()))
    db.execute("delete from t where batch < ?", (batch - 300,))
    db.execute("commit")
"""
    CHECK = """import sqlite3, hashlib
db = sqlite3.connect("/root/data.db", timeout=30)
assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
rows = db.execute("select batch, n, data, sum from t order by batch, n").fetchall()
assert len(rows) % 10 == 0 and rows, len(rows)
for i, (batch, n, data, sum_) in enumerate(rows):
    assert n == i % 10 and hashlib.sha1(data.encode()).hexdigest() == sum_
batches = [row[0] for row in rows[::10]]
assert batches == list(range(batches[0], batches[0] + len(batches)))
print(batches[-1])
"""

    def start(self, box):
        box.start("python3", self.script(box, "/root/writer.py", self.SCRIPT))
        self.script(box, "/root/reader.py", self.CHECK)
        self.up(box, "python3 /root/reader.py")

    def check(self, box):
        before = int(box.out("python3 /root/reader.py"))
        eventually(lambda: int(box.out("python3 /root/reader.py")) > before, WAIT, "the writer writes")


class Tmux(Software):
    """A server with vim in one window and a shell in another."""

    name = "tmux"

    def start(self, box):
        self.lines = 0
        box.sh("tmux -f /dev/null new-session -d -s s -x 80 -y 24 'vim.tiny -n /root/text' && "
               "tmux new-window -t s 'bash --norc' && tmux send-keys -t s:0 i 'first line' Escape")
        self.up(box, "tmux capture-pane -p -t s:0", "first line")

    def check(self, box):
        self.lines += 1
        line = f"line-{self.lines}"
        box.sh(f"tmux send-keys -t s:0 o '{line}' Escape ':w!' Enter; tmux send-keys -t s:1 'echo shell-$((6*7))-{line}' Enter")
        self.up(box, "tmux capture-pane -p -t s:0", "first line")
        self.up(box, "tmux capture-pane -p -t s:1", f"shell-42-{line}")
        self.up(box, "cat /root/text", line)


class Nginx(Software):
    name = "nginx"
    CONF = """worker_processes 2; pid /run/nginx-test.pid; error_log /root/nginx.log;
events {} http { access_log off; server { listen 127.0.0.1:7003; root /root/www; } }"""

    def start(self, box):
        box.sh("mkdir -p /root/www; echo served > /root/www/index.html; chmod a+rx /root /root/www")
        box.sh(f"nginx -c {self.script(box, '/root/nginx.conf', self.CONF)}")
        self.up(box, "python3 /root/get.py 7003", "served")

    def check(self, box):
        assert box.out("python3 /root/get.py 7003") == "served"
        assert int(box.out("pgrep -c nginx")) == 3


class Redis(Software):
    name = "redis"

    def start(self, box):
        box.start("redis-server", "--port", "7004", "--save", "", "--appendonly", "yes", "--dir", "/root")
        self.up(box, "redis-cli -p 7004 ping", "PONG")
        box.sh("seq 1 20000 | sed 's/.*/set key& value&/' | redis-cli -p 7004 --pipe >/dev/null")

    def check(self, box):
        assert box.out("redis-cli -p 7004 get key777; redis-cli -p 7004 dbsize").split() in (["value777", "20000"], ["value777", "20001"])
        return int(box.out("redis-cli -p 7004 incr counter"))


class RedisSaving(Software):
    """One that is always saving itself, in a child that has its epoll and lacks the connections
    that came later."""

    name = "redis-saving"
    CLIENT = """import socket, time
class Link:
    def __init__(self):
        self.sock = socket.create_connection(("127.0.0.1", 7005), 20); self.file = self.sock.makefile("rb")
    def say(self, words):
        self.sock.sendall(words.encode() + b"\\r\\n")
        line = self.file.readline()
        return self.file.read(int(line[1:]) + 2).decode() if line[:1] == b"$" else line.decode().strip()
first, links, rounds = Link(), [], 0
while True:
    if "rdb_bgsave_in_progress:1" not in first.say("INFO persistence"):
        for link in links: link.sock.close()
        assert first.say("BGSAVE").startswith("+"), "BGSAVE"
        links = [Link() for _ in range(10)]
    assert all(link.say("PING") == "+PONG" for link in links)
    rounds += 1
    first.say("SET rounds %d" % rounds)
    time.sleep(0.02)
"""

    def start(self, box):
        box.sh("mkdir -p /root/saving")
        box.start("redis-server", "--port", "7005", "--save", "", "--dir", "/root/saving")
        self.up(box, "redis-cli -p 7005 ping", "PONG")
        box.sh("seq 1 20000 | sed 's/.*/set key& value&/' | redis-cli -p 7005 --pipe >/dev/null; redis-cli -p 7005 config set rdb-key-save-delay 1000")
        self.exec = box.start("python3", self.script(box, "/root/saver.py", self.CLIENT))
        self.up(box, "redis-cli -p 7005 info persistence", "rdb_bgsave_in_progress:1")
        self.up(box, "redis-cli -p 7005 get rounds | grep .")

    def check(self, box):
        def rounds():
            return int(box.out("redis-cli -p 7005 get rounds"))

        before = rounds()
        eventually(lambda: rounds() > before + 3, WAIT, lambda: box.logs(self.exec["id"], raw="true")[-500:])
        assert box.out("redis-cli -p 7005 get key777") == "value777"


class Postgres(Software):
    """A cluster, and one connection that inserts without end."""

    name = "postgres"
    WRITER = "while sleep 0.02; do echo 'insert into t select max(n)+1, md5((max(n)+1)::text) from t;'; done | psql -qv ON_ERROR_STOP=1 -d postgres"

    def start(self, box):
        box.sh("pg_ctlcluster $(ls /etc/postgresql) main start -o '-c shared_buffers=16MB -c fsync=on'", timeout=90)
        self.up(box, self.sql("create table t (n int, sum text); insert into t values (0, md5('0'))"))
        box.start("sh", "-c", self.WRITER, user="postgres")
        self.up(box, self.sql("select 'many' from t having count(*) > 3"), "many")

    def sql(self, text):
        return f"cd /tmp; runuser -u postgres -- psql -qtA -d postgres -c \"{text}\""

    def check(self, box):
        def count():
            said = box.out(self.sql("select count(*), max(n), bool_and(sum = md5(n::text)) from t"), timeout=90)
            total, last, right = said.split("|")
            assert right == "t" and int(total) == int(last) + 1, said
            return int(total)

        before = count()
        eventually(lambda: count() > before, WAIT, "the connection inserts", every=0.1)


# ---- jobs ------------------------------------------------------------------------------------


class Job(Software):
    """Started before an operation, in flight during it."""

    exec = None

    def fresh(self, box):
        """The one before, of a test that failed, is in nobody's way."""
        if self.exec and self.exec["id"] in [one["id"] for one in box.execs() if one["state"] == "running"]:
            box.yard.api("POST", f"{box.path}/execs/{self.exec['id']}/signal", {"signal": "KILL"})
            box.wait_exec(self.exec["id"])

    def finish(self, box):
        over = box.wait_exec(self.exec["id"], 90)
        assert over["exit_code"] == 0, (self.name, over, box.logs(self.exec["id"], raw="true")[-500:])


class Make(Job):
    name = "make"
    FILE = """N = $(shell seq 1 24)
all: $(N:%=out/%.o)
\tcat $^ > out/all && touch out/done
out/%.o: ; @printf 'int f%s(int x) { return x * %s; }\\n' $* $* > out/$*.c && gcc -O1 -c out/$*.c -o $@ && sleep 0.05
"""

    def start(self, box):
        self.fresh(box)
        box.sh("rm -rf /root/make && mkdir -p /root/make/out")
        self.script(box, "/root/make/Makefile", self.FILE)
        self.exec = box.start("make", "-j2", cwd="/root/make")
        self.up(box, "ls /root/make/out/*.o")

    def check(self, box):
        self.finish(box)
        assert box.out("ls /root/make/out/*.o | wc -l; ls /root/make/out/done").split() == ["24", "/root/make/out/done"]


class Clone(Job):
    """From a git daemon in the same box, whose packs come slowly."""

    name = "git clone"
    SLOW = """#!/usr/bin/python3
import subprocess, sys, time
pack = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
while chunk := pack.stdout.read(65536):
    sys.stdout.buffer.write(chunk); sys.stdout.buffer.flush(); time.sleep(0.06)
sys.exit(pack.wait())
"""

    def serve(self, box):
        self.script(box, "/root/slow", self.SLOW)
        box.sh("""set -e; chmod +x /root/slow; git config --system uploadpack.packObjectsHook /root/slow
git config --system user.email a@b; git config --system user.name a; git config --system safe.directory '*'
git init -q -b main /srv/repo; cd /srv/repo; head -c 3000000 /dev/urandom > blob; seq 1 10000 > numbers
git add .; git commit -qm one""")
        box.start("git", "daemon", "--base-path=/srv", "--export-all", "--listen=127.0.0.1", "--reuseaddr", "/srv")

    def start(self, box):
        self.fresh(box)
        box.sh("rm -rf /root/clone")
        self.exec = box.start("git", "clone", "-q", "git://127.0.0.1/repo", "/root/clone")
        self.up(box, "pgrep -f [/]root/slow")

    def check(self, box):
        self.finish(box)
        assert box.out("cd /root/clone && git fsck && git rev-parse HEAD").splitlines()[-1] == box.out("git -C /srv/repo rev-parse HEAD")
        box.sh("cmp /root/clone/blob /srv/repo/blob")


SOFTWARE = [Bash, Python, Node, Sqlite, Tmux, Nginx, Redis, RedisSaving, Postgres]
JOBS = [Make, Clone]
