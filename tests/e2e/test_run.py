"""`make run` ends by showing what boxes are for: a fork of a box that counts, a disaster in one,
and the way back."""
import re
import subprocess

from boxtest import BOX_BIN, ROOT
from fixtures import running_yard_with


def run(yard, **more):
    done = subprocess.run([ROOT / "scripts/run", BOX_BIN], env={**yard.env, **more}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_shows_a_fork_a_disaster_and_the_way_back(image):
    with running_yard_with() as yard:
        for _ in range(2):  # a second time, too
            told = run(yard)
            assert "hello from box first" in told and "did not go" not in told, told
            first, copy = map(int, re.search(r"box fork first second +\d+ ms .*: first is at (\d+), its copy at (\d+)", told).groups())
            kept = int(re.search(r"box snapshot second good +\d+ ms +at (\d+)", told)[1])
            assert "not even an 'ls' left" in told
            back = int(re.search(r"box rollback second good +\d+ ms +.*: (\d+)$", told, re.M)[1])
            last = int(re.search(r"is at (\d+)\.$", told, re.M)[1])
            assert 5 <= copy <= kept and abs(first - copy) < 20 and kept - 2 <= back and last > first, told
            assert [box["name"] for box in yard.boxes()] == ["first"]
            assert "before-the-fork" not in yard.box("timeline", "first").stdout


def test_it_goes_on_where_processes_cannot_be_captured(image):
    with running_yard_with(BOX_CRIU="/nonexistent") as yard:
        told = run(yard)
        assert "only its disk" in told and "What to try next" in told, told
