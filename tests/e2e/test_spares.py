"""Boxes started ahead of need: nobody should be able to tell, but by the clock."""
import time
from pathlib import Path

import pytest

from boxtest import DRIVER, eventually, instance_cgroups, instance_processes

pytestmark = pytest.mark.asan


@pytest.fixture
def spare_yard(fresh_yard):
    fresh_yard.kill_daemon()
    fresh_yard.env["BOX_SPARES"] = "2"
    fresh_yard.start_daemon()
    filled(fresh_yard)
    return fresh_yard


def filled(yard):
    eventually(lambda: yard.api("GET", "/v1/info").json["spares"] == 2, 30, "two spares are ready")


def test_a_spare_becomes_the_box_that_was_asked_for(spare_yard):
    box = spare_yard.new(name="ada", memory="128M", pids=40, env={"A": "b"}, labels={"x": "y"})
    assert box.out("hostname; cat /etc/hostname; echo $A") == "ada\nada\nb"
    assert eventually(lambda: "ada" in box.out("cat /etc/hosts"))
    shown = spare_yard.api("GET", "/v1/boxes/ada").json
    assert shown["state"] == "running" and shown["limits"]["memory"] == 128 << 20 and shown["labels"] == {"x": "y"}
    done = box.python("b = bytearray(300 << 20)", check=False)
    assert done.returncode != 0, "the memory limit holds"

    def kinds():
        return [e["type"] for e in spare_yard.events() if e.get("box_name") == "ada"]

    assert kinds()[:2] == ["box.created", "box.started"]
    eventually(lambda: "limit.memory" in kinds(), 5, "the kill is on record")
    filled(spare_yard)


def test_spares_are_nobodys_boxes(spare_yard):
    assert spare_yard.boxes() == []
    assert spare_yard.api("GET", "/v1/stats").json["boxes"] == []
    assert [e for e in spare_yard.events() if e["type"].startswith("box.")] == []


def used_ticks(yard):
    """CPU time of everything that runs for the yard's boxes, by process."""
    ticks = {}
    for cgroup in instance_cgroups(yard.name):
        procs = Path(cgroup) / "cgroup.procs"
        for pid in procs.read_text().split() if procs.exists() else []:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks[pid] = int(fields[11]) + int(fields[12])
    return ticks


def test_a_waiting_spare_costs_no_time_and_is_taken(spare_yard):
    time.sleep(0.5)
    before = used_ticks(spare_yard)
    time.sleep(1.5)
    after = used_ticks(spare_yard)
    assert before and before.keys() <= after.keys()
    most = 0 if DRIVER == "vm" else 1  # a tick is a hundredth of a second
    used = {pid: after[pid] - ticks for pid, ticks in before.items()}
    assert all(ticks <= most for pid, ticks in used.items()), used
    box = spare_yard.new(name="ada")
    assert spare_yard.api("GET", "/v1/info").json["spares"] < 2, "one of them became the box"
    assert box.out("hostname") == "ada"


def test_more_boxes_than_spares_at_once(spare_yard):
    boxes = [spare_yard.new() for _ in range(8)]
    assert len({b.out("cat /proc/self/uid_map") for b in boxes}) == 8, "each has a uid range of its own"
    assert len({b.id for b in boxes}) == 8


def test_another_profile_is_never_served_by_a_spare(spare_yard):
    for _ in range(3):
        box = spare_yard.new(profile="nested")
        assert box.out("unshare -Ur true && echo yes") == "yes"
        filled(spare_yard)
    assert "yes" not in spare_yard.new().out("unshare -Ur true 2>/dev/null && echo yes || echo no")


def test_a_box_from_a_spare_survives_the_daemon_and_starts_again(spare_yard):
    box = spare_yard.new(name="ada")
    box.sh("echo kept > /root/f")
    spare_yard.kill_daemon()
    spare_yard.start_daemon()
    assert box.out("cat /root/f; hostname") == "kept\nada"
    spare_yard.box("stop", "ada")
    spare_yard.box("start", "ada")
    assert box.out("cat /root/f; hostname") == "kept\nada"


def test_bad_input_costs_no_spare(spare_yard):
    assert spare_yard.api("POST", "/v1/boxes", {"name": "Bad Name"}).code == "invalid"
    assert spare_yard.api("GET", "/v1/info").json["spares"] == 2


def test_spares_end_with_their_daemon(spare_yard):
    spare_yard.env["BOX_SPARES"] = "0"
    spare_yard.kill_daemon()
    spare_yard.start_daemon()
    daemon = spare_yard.daemon_pid()
    eventually(lambda: len(instance_processes(spare_yard.name, spare_yard.base)) <= 3, 10,
               f"{daemon}, its spawner and its walker")


def test_a_daemon_that_goes_down_takes_its_spares_along(spare_yard):
    spare_yard.box("down")
    eventually(lambda: not instance_processes(spare_yard.name, spare_yard.base), 5, "nothing runs")
    assert not [c for c in instance_cgroups(spare_yard.name) if c.rstrip("/").rpartition("/")[2] != spare_yard.name]
    spare_yard.start_daemon()
