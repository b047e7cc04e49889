"""A box that misbehaves suffers alone: the host, the daemon and other boxes do not."""
import json
import os
import resource
import socket
import subprocess
import time

import pytest

from boxtest import BOX_BIN, IMAGES, eventually


@pytest.fixture
def neighbour(make_box):
    """A box beside the bad one; it must not notice anything."""
    other = make_box()
    other.sh("echo mine > /root/f")
    yield other
    began = time.monotonic()
    assert other.out("cat /root/f") == "mine"
    assert time.monotonic() - began < 5
    assert other.show()["state"] == "running"


def test_fork_bomb_stays_in_its_box(yard, make_box, neighbour):
    bad = make_box(pids=200, cpu=0.5)
    bad.start("sh", "-c", "bomb() { bomb | bomb & }; bomb")
    time.sleep(0.7)
    assert neighbour.out("echo hi") == "hi"
    assert yard.answers()
    began = time.monotonic()
    assert bad.remove().status == 204
    assert time.monotonic() - began < 8


def test_memory_hog_stays_in_its_box(yard, make_box, neighbour):
    bad = make_box(memory="64M")
    for _ in range(3):
        assert bad.python("x = [bytearray(1 << 20) for _ in range(1000)]", check=False).returncode == 137
    assert bad.out("echo alive") == "alive"
    assert yard.api("GET", f"{bad.path}/stats").json["memory_bytes"] <= 64 << 20


def test_memory_in_tmpfs_counts_too(yard, make_box, neighbour):
    bad = make_box(memory="64M")
    bad.sh("head -c 500M /dev/zero > /dev/shm/x", check=False)
    assert bad.show()["state"] in ("running", "stopped")
    assert bad.remove().status == 204


def test_endless_output_to_nobody_is_harmless(yard, make_box, neighbour):
    bad = make_box()
    before = yard.rss_kb()
    for _ in range(5):
        bad.start("sh", "-c", "yes & yes >&2")
    time.sleep(1)
    assert yard.rss_kb() - before < 8 * 1024
    assert bad.remove().status == 204


def test_rm_rf_of_everything_hurts_only_the_box(yard, make_box, neighbour):
    bad = make_box()
    bad.sh("rm -rf --no-preserve-root / 2>/dev/null", check=False)
    gone = yard.api("POST", f"{bad.path}/exec", {"argv": ["echo"]})
    error = gone.json["error"] if gone.status != 200 else gone.lines[-1]["error"]
    assert error["code"] == "not_found"
    assert bad.show()["state"] == "running"
    assert bad.put("/still-here", b"x").status < 300
    assert bad.get("/still-here").body == b"x"
    assert neighbour.out("ls /bin/sh") == "/bin/sh", "the image is untouched"
    yard.box("stop", bad.name)
    yard.box("start", bad.name)
    assert bad.get("/still-here").body == b"x"


@pytest.mark.parametrize("name", ["KILL", "TERM", "STOP"])
def test_killing_every_process_as_root_leaves_the_box_usable(yard, make_box, neighbour, name):
    bad = make_box()
    bad.start("sleep", "1000")
    bad.run("sh", "-c", f"kill -{name} -1; kill -{name} 1; true", timeout_ms=3000)
    assert eventually(lambda: bad.run("echo", "hi").stdout) == b"hi\n"
    assert bad.show()["state"] == "running"


def test_program_that_leaves_orphans_and_zombies(yard, make_box):
    bad = make_box(pids=100)
    for _ in range(3):
        bad.sh("for i in $(seq 40); do (sleep 0.01 &) ; done")
        time.sleep(0.1)
    eventually(lambda: len(bad.commands()) <= 1, what="orphans are reaped")


def test_escaping_the_session_does_not_escape_the_box(yard, make_box):
    bad = make_box()
    bad.sh("setsid -f sleep 31337 >/dev/null 2>&1; setsid -f nohup sleep 31338 >/dev/null 2>&1")
    yard.box("stop", bad.name)
    yard.box("start", bad.name)
    assert not any("3133" in c for c in bad.commands())


def test_thousands_of_files_and_deep_folders_are_removed_with_the_box(yard, make_box):
    bad = make_box()
    bad.python("import os\nfor i in range(10000): open(f'/tmp/f{i}', 'w')\n"
               "os.chdir('/tmp')\nfor i in range(1500):\n    os.mkdir('d'); os.chdir('d')")
    assert bad.remove().status == 204
    eventually(lambda: not list(yard.pool.glob(f"*/{bad.id}*")), 10, "its folder is gone")


def test_undeletable_files_are_deleted(yard, make_box):
    bad = make_box()
    bad.sh("mkdir /root/d && touch /root/d/f && chmod 000 /root/d/f /root/d && chattr +i /root/d", check=False)
    assert bad.remove().status == 204
    eventually(lambda: not list(yard.pool.glob(f"*/{bad.id}*")), 10, "its folder is gone")


def test_names_made_to_confuse_terminals_are_not_passed_to_people(yard, make_box):
    bad = make_box()
    bad.start("python3", "-c", "import os; os.execv('/bin/sleep', ['\\x1b[2Jevil', '50'])")
    eventually(lambda: any("evil" in c for c in bad.commands()))
    assert "\x1b" not in yard.box("ps", bad.name).stdout


def test_cpu_hog_does_not_stop_the_others(yard, make_box, neighbour):
    bad = make_box(cpu=0.5)
    for _ in range(8):
        bad.start("sh", "-c", "while :; do :; done")
    began = time.monotonic()
    for _ in range(5):
        assert neighbour.out("echo hi") == "hi"
    assert time.monotonic() - began < 5


# ---- a box-init in the hands of the box ------------------------------------------------------

# Stops box-init, takes its connection to the daemon and answers each request with one frame of its
# own. The
# nested profile has the capability for that.
EVIL_INIT = """
import ctypes, os, socket, struct, sys
libc = ctypes.CDLL(None)
libc.ptrace(0x4206, 1, None, None)  # seize
libc.ptrace(0x4207, 1, None, None)  # interrupt
pid = os.pidfd_open(1)
for fd in os.listdir('/proc/1/fd'):
    mine = libc.syscall(438, pid, int(fd), 0)
    try:
        found = socket.socket(fileno=mine)
        peer = struct.unpack('iII', found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        if peer == 0 and not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            line = found
    except OSError:
        pass
line.setblocking(True)
kind, payload = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
open('/tmp/ready', 'w').close()
while True:
    size, what, _, _, channel = struct.unpack('<IBBHI', line.recv(12, socket.MSG_WAITALL))
    line.recv(size, socket.MSG_WAITALL)
    if what == 2:
        line.sendall(struct.pack('<IBBHI', len(payload), kind, 0, 0, channel) + payload)
"""
EARLY = {"data": (5, "01" + "00" * 8 + "6869"), "end": (6, ""), "gap": (8, "00" * 8 + "05" + "00" * 7),
         "exit": (9, "01" + "00" * 32)}


@pytest.mark.asan
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers are those of x86-64")
@pytest.mark.parametrize("frame", EARLY)
@pytest.mark.parametrize("call", ["exec", "logs", "raw logs"])
def test_box_init_that_answers_out_of_order_does_not_end_the_daemon(yard, make_box, neighbour, call, frame):
    bad = make_box(profile="nested")
    daemon = yard.daemon_pid()
    bad.put("/evil.py", EVIL_INIT.encode())
    kind, payload = EARLY[frame]
    exec_id = bad.start("python3", "/evil.py", str(kind), payload)["id"]
    # Nothing can be asked any more once it is at work; its file is looked at from outside.
    eventually(lambda: list(yard.pool.glob(f"boxes/{bad.id}/upper/tmp/ready")), what="it holds box-init")
    if call == "exec":
        reply = yard.api("POST", f"{bad.path}/exec", {"argv": ["true"]})
    else:
        reply = yard.api("GET", f"{bad.path}/execs/{exec_id}/logs", query={"raw": str(call == "raw logs").lower()})
    assert (reply.status, reply.code) == (502, "protocol")
    assert yard.daemon_pid() == daemon


def test_covering_proc_neither_hangs_box_init_nor_stops_time(yard, make_box):
    """Where mounting is allowed: over /proc lies a folder with a fifo that nobody writes."""
    bad = make_box(profile="nested")
    limited = bad.start("sleep", "1000", timeout_ms=700)["id"]
    bad.sh("mount -t tmpfs none /mnt && mkdir /mnt/2 && mkfifo /mnt/2/stat && mount --move /mnt /proc")
    assert bad.wait_exec(limited, 10)["reason"] == "timeout"
    assert bad.out("echo hi") == "hi"


# ---- the daemon at its limits ----------------------------------------------------------------


def limit_files(yard, count):
    resource.prlimit(yard.daemon_pid(), resource.RLIMIT_NOFILE, (count, count))


def test_strangers_on_the_tcp_door_do_not_close_the_unix_door(fresh_yard):
    """No token is needed to connect; all of the daemon's files must not be had that way."""
    port = fresh_yard.port()
    mine = fresh_yard.new()
    limit_files(fresh_yard, 128)
    held = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(300)]
    try:
        time.sleep(0.5)
        assert fresh_yard.api("GET", "/v1/health", timeout=5).status == 200
        assert mine.run("echo", "hi").stdout == b"hi\n"
    finally:
        for one in held:
            one.close()
    eventually(lambda: fresh_yard.api("POST", "/v1/boxes", {}).status == 201, 10, "boxes can be made again")


def test_box_that_would_take_the_last_files_is_refused_and_nothing_is_lost(fresh_yard):
    limit_files(fresh_yard, 96)
    made = []
    for _ in range(40):
        reply = fresh_yard.api("POST", "/v1/boxes", {})
        if reply.status != 201:
            break
        made.append(reply.json["name"])
    assert made and reply.status == 429, reply.body
    assert reply.code == "limit" and "LimitNOFILE" in reply.json["error"]["hint"]
    assert {one["name"] for one in fresh_yard.boxes()} == set(made)
    assert all(fresh_yard.run(name, "echo", "hi").stdout == b"hi\n" for name in made)
    for name in made[:2]:
        fresh_yard.api("DELETE", f"/v1/boxes/{name}", query={"force": "true"}, expect=204)
    eventually(lambda: not list((fresh_yard.pool / "trash").iterdir()), 10, "the trash is emptied")


def test_daemon_that_cannot_hold_its_boxes_refuses_to_start_and_ends_none(fresh_yard):
    made = [fresh_yard.new() for _ in range(6)]
    fresh_yard.kill_daemon()
    done = subprocess.run(["prlimit", "--nofile=70:70", BOX_BIN, "serve"], env=fresh_yard.env, timeout=30, check=False,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode and "6 boxes run" in done.stderr, done.stderr
    fresh_yard.start_daemon()
    assert all(one.out("echo hi") == "hi" for one in made)


def test_box_that_filled_the_disk_can_be_removed(fresh_yard):
    """Then the daemon cannot write either, before the box is gone."""
    fresh_yard.stop_daemon()
    fresh_yard.env["BOX_POOL"] = "folder"  # the box and the daemon share one disk
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", fresh_yard.home], check=True)
    try:
        (fresh_yard.home / "images").symlink_to(IMAGES)
        fresh_yard.start_daemon()
        bad = fresh_yard.new()
        bad.sh("cat /dev/zero > /root/fill", check=False)
        assert fresh_yard.api("POST", "/v1/boxes", {}).code == "limit"
        assert bad.remove().status == 204
        eventually(lambda: fresh_yard.api("POST", "/v1/boxes", {}).status == 201, 10, "there is room again")
        for one in fresh_yard.boxes():
            fresh_yard.api("DELETE", f"/v1/boxes/{one['id']}", query={"force": "true"}, expect=204)
        fresh_yard.stop_daemon()
    finally:
        subprocess.run(["umount", "-l", fresh_yard.home], check=True)
        fresh_yard.env.pop("BOX_POOL")


def test_list_of_large_boxes_comes_in_pages(yard, make_box):
    env = {f"K{i}": "\x01" * 240 for i in range(250)}  # six bytes each in JSON
    made = {make_box(env=env, labels={"large": "yes"}).id for _ in range(14)}
    found, after, pages = set(), None, 0
    while pages == 0 or after:
        reply = yard.api("GET", "/v1/boxes", query={"label": "large=yes", **({"after": after} if after else {})})
        assert len(reply.body) < 5 << 20
        found |= {one["id"] for one in reply.json["boxes"]}
        after, pages = reply.json["next"], pages + 1
    assert found == made and pages == 2
    assert len(json.loads(yard.box("ls", "-l", "large=yes", "--json").stdout)) == len(made)
