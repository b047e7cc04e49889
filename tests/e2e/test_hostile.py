"""A box that misbehaves suffers alone: the host, the daemon and other boxes do not."""
import time

import pytest

from boxtest import eventually


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
    eventually(lambda: not list(yard.home.glob(f"*/{bad.id}*")), 10, "its folder is gone")


def test_undeletable_files_are_deleted(yard, make_box):
    bad = make_box()
    bad.sh("mkdir /root/d && touch /root/d/f && chmod 000 /root/d/f /root/d && chattr +i /root/d", check=False)
    assert bad.remove().status == 204
    eventually(lambda: not list(yard.home.glob(f"*/{bad.id}*")), 10, "its folder is gone")


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
