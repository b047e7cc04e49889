"""The daemon is killed at random moments of create/exec/rm loops; afterwards everything is in
order.

BOX_TEST_SEED repeats a run (as far as timing lets it), BOX_TEST_KILLS sets how often it is killed.
"""
import http.client
import os
import random
import threading
import time

import pytest

from boxtest import read_proc, eventually, instance_cgroups, instance_processes

KILLS = int(os.environ.get("BOX_TEST_KILLS", "60"))
SEED = int(os.environ.get("BOX_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
WORKERS = 3


class Worker(threading.Thread):
    """Creates, runs, stops, renames and removes boxes until told to stop; a dead daemon is no
    failure."""

    def __init__(self, yard, number):
        super().__init__(daemon=True)
        self.yard, self.number = yard, number
        self.random = random.Random(SEED + number)
        self.over = threading.Event()
        self.count = 0
        self.wrong = []

    def run(self):
        while not self.over.is_set():
            try:
                self.cycle()
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.01)  # no daemon, or an answer cut in the middle
            except Exception as error:
                self.wrong.append(repr(error))
                return

    def cycle(self):
        self.count += 1
        name = f"w{self.number}-{self.count}"
        path = f"/v1/boxes/{name}"
        body = {"name": name, "memory": "256M", "pids": 64}
        if self.random.random() < 0.2:
            body["command"] = ["sleep", "1000"]
        made = self.yard.api("POST", "/v1/boxes", body)
        if made.status != 201:
            self.wrong.append(f"create {name}: {made.status} {made.body[:300]}")
            return
        done = self.yard.api("POST", f"{path}/exec", {"argv": ["sh", "-c", "echo $((6*7)); echo x > /root/f"]})
        if done.status == 200 and '"exit"' in done.body.decode() and '"42\\n"' not in done.body.decode():
            self.wrong.append(f"exec in {name}: {done.body[:300]}")
        if self.random.random() < 0.3:
            self.yard.api("POST", f"{path}/exec", {"argv": ["sleep", "1000"], "detach": True})
        if self.random.random() < 0.3:
            self.yard.api("POST", f"{path}/stop", {"timeout_ms": 100})
            if self.random.random() < 0.5:
                self.yard.api("POST", f"{path}/start")
        if self.random.random() < 0.8:
            self.yard.api("DELETE", path, query={"force": "true"})


def folders(yard):
    """The disks of boxes, as the daemon sees them: the pool is mounted in its own namespace."""
    return set(os.listdir(yard.pool / "boxes"))


@pytest.mark.slow
def test_killed_at_any_moment_the_daemon_finds_its_way_back(fresh_yard):
    print(f"BOX_TEST_SEED={SEED} BOX_TEST_KILLS={KILLS}")
    yard, chance = fresh_yard, random.Random(SEED)
    first = yard.new()
    first.sh("true")
    first.remove()
    eventually(lambda: len(instance_cgroups(yard.name)) == 0 or not instance_left(yard), what="a clean start")
    clean = eventually_stable(lambda: folders(yard))
    witness = yard.new(name="witness")
    counter = witness.start("sh", "-c", "i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done")

    yard.env["BOX_SPARES"] = "2"  # they must not survive the daemon they were made by
    workers = [Worker(yard, n) for n in range(WORKERS)]
    for worker in workers:
        worker.start()
    for _ in range(KILLS):
        time.sleep(chance.choice((0.002, 0.01, 0.03, 0.1, 0.2)) * chance.random() * 2)
        yard.kill_daemon()
        yard.start_daemon()
    for worker in workers:
        worker.over.set()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive(), "a request never came back"
    assert [w.wrong for w in workers] == [[]] * WORKERS, f"seed {SEED}"
    assert sum(w.count for w in workers) > KILLS / 2, "work was done between the kills"
    yard.env["BOX_SPARES"] = "0"
    yard.kill_daemon()
    yard.start_daemon()

    # Nothing is in between, what runs works, what is listed is all there is.
    settled = eventually(lambda: all(b["state"] in ("running", "stopped") for b in yard.boxes()), 10, "all settled")
    assert settled
    known = yard.boxes()
    for box in known:
        if box["state"] == "running":
            assert yard.run(box["id"], "echo", "hi").stdout == b"hi\n", box
        else:
            yard.api("POST", f"/v1/boxes/{box['id']}/start", expect=200)
    ids = {b["id"] for b in known}
    assert instance_left(yard) <= ids, "no cgroup without its box"

    # The witness went on all the time and lost nothing within its journal.
    yard.api("POST", f"{witness.path}/execs/{counter['id']}/signal", {"signal": "KILL"})
    witness.wait_exec(counter["id"])
    counted = [int(n) for n in witness.logs(counter["id"], raw="true").split()]
    assert len(counted) > 50 and counted == list(range(counted[0], counted[0] + len(counted)))

    events = [e["offset"] for e in yard.events()]
    assert events == list(range(events[0], events[0] + len(events))), "events have no holes"

    yard.box("rm", "-f", "--all")
    assert yard.boxes() == []
    eventually(lambda: not instance_left(yard), 10, "no cgroup is left")
    daemon = yard.daemon_pid()

    def strangers():
        """All but the daemon and its spawner."""
        return [(pid, read_proc(pid, "cmdline"), read_proc(pid, "stat")) for pid in instance_processes(yard.name, yard.base)
                if pid != daemon and f" {daemon} ".encode() not in read_proc(pid, "stat")]

    eventually(lambda: not strangers(), 10, strangers)
    eventually(lambda: folders(yard) == clean, 15, f"no folder is left: {folders(yard) ^ clean}")


def instance_left(yard):
    """Ids of boxes that have a cgroup in any hierarchy."""
    depth = {}
    for folder in instance_cgroups(yard.name):
        inner = folder.split(f"/{yard.name}/", 1)
        if len(inner) == 2 and "/" in inner[1]:  # tree-ID/ID
            depth.setdefault(inner[1].split("/")[1], folder)
    return set(depth)


def eventually_stable(read, calm=0.5):
    """Waits until read() gives the same twice in a row: background removal has ended."""
    last = read()
    while True:
        time.sleep(calm)
        now = read()
        if now == last:
            return now
        last = now
