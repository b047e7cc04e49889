"""Hundreds of create/exec/remove cycles leave the daemon and the machine as they were.

BOX_TEST_CYCLES sets how many (300).
"""
import contextlib
import os
import time
from pathlib import Path

import pytest

from boxtest import SLOWNESS, eventually, instance_cgroups, instance_processes, read_proc, status_kb

CYCLES = int(os.environ.get("BOX_TEST_CYCLES", "300"))
WARM_UP = 60


def figures(yard):
    """What must not grow."""
    pid = yard.daemon_pid()
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    children = [p for p in instance_processes(yard.name, yard.base) if p != pid]
    return {
        "fds": len(links),
        "namespace fds": sum(1 for link in links if link.endswith("]") and ":[" in link and not link.startswith(("socket", "pipe", "anon"))),
        "mounts of the daemon": len(read_proc(pid, "mountinfo").splitlines()),
        "mounts here": sum(str(yard.base) in line for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "cgroups": len(instance_cgroups(yard.name)),
        "processes": len(children),
        "threads": status_kb(pid, "Threads"),
        "children": len(read_proc(pid, f"task/{pid}/children").split()),
        "maps": len(read_proc(pid, "maps").splitlines()),
    }


def cycle(yard, conn, n):
    made = yard.api("POST", "/v1/boxes", {"name": f"c{n}"}, conn=conn, expect=201).json
    done = yard.api("POST", f"/v1/boxes/{made['id']}/exec", {"argv": ["echo", "hi"]}, conn=conn, expect=200)
    assert b'"hi\\n"' in done.body
    yard.api("PUT", f"/v1/boxes/{made['id']}/files?path=/root/f", b"x", conn=conn)
    yard.api("DELETE", f"/v1/boxes/{made['id']}?force=true", conn=conn, expect=204)


@pytest.mark.slow
def test_cycles_leave_everything_where_it_was(fresh_yard):
    yard = fresh_yard
    with contextlib.closing(yard.connection()) as conn:
        for n in range(WARM_UP):
            cycle(yard, conn, n)
        time.sleep(1)
        before, rss_before = figures(yard), yard.rss_kb()
        for n in range(WARM_UP, WARM_UP + CYCLES):
            cycle(yard, conn, n)

        def same():
            now = figures(yard)
            return all(now[key] <= before[key] + (8 if key == "maps" else 0) for key in before)

        with contextlib.suppress(AssertionError):
            eventually(same, 8)
        after = figures(yard)
    assert same(), {key: (before[key], after[key]) for key in before if before[key] != after[key]}
    if SLOWNESS == 1:
        assert yard.rss_kb() - rss_before < 2048, (rss_before, yard.rss_kb())
    assert yard.boxes() == []


@pytest.mark.slow
def test_thousand_execs_in_one_box_leave_everything_where_it_was(fresh_yard):
    yard = fresh_yard
    box = yard.new()
    with contextlib.closing(yard.connection()) as conn:
        def run():
            yard.api("POST", f"{box.path}/exec", {"argv": ["true"]}, conn=conn, expect=200)

        for _ in range(200):
            run()
        time.sleep(0.3)
        before, rss_before = figures(yard), yard.rss_kb()
        for _ in range(1000):
            run()
        eventually(lambda: figures(yard)["fds"] <= before["fds"] and figures(yard)["processes"] <= before["processes"])
    if SLOWNESS == 1:
        assert yard.rss_kb() - rss_before < 2048
    assert len(box.execs()) <= 64
    assert len(box.processes()) <= 1
