"""states.py - boxes through suspend, hibernate, snapshot, rollback and fork; for tests

Checks puts tests/states' program into a box, starts its kinds there and asks them. A kind's answer
says how many it has
given before: after going back in time it must be the number of then.
"""
import contextlib
import itertools
import json
import os
from pathlib import Path

from boxtest import DRIVER, ROOT, SLOWNESS, Box, box_cgroups, eventually, instance_cgroups, instance_processes, processes, read_proc, status_kb

PROGRAM = ROOT / "build" / "tests" / "states" / "states-checks"
INSIDE = "/usr/local/bin/states-checks"
FOLDER = "/tmp/checks"
tokens = itertools.count(1)

# ---- verbs, through the command line ---------------------------------------------------------


def of(yard, shown):
    return Box(yard, shown)


def state(box):
    return box.show()["state"]


def suspend(box):
    box.yard.box("suspend", box.name)
    assert state(box) == "suspended"


def resume(box):
    box.yard.box("resume", box.name)
    assert state(box) == "running"


def hibernate(box, timeout=120):
    box.yard.box("hibernate", box.name, timeout=timeout)
    assert state(box) == "hibernated"


def wake(box, timeout=120):
    box.yard.box("wake", box.name, timeout=timeout)
    assert state(box) == "running"


def snapshot(box, *args, timeout=120):
    made = box.yard.json("snapshot", box.name, *args, timeout=timeout)
    assert made["id"] and made["kind"] == ("disk" if "--disk-only" in args else "full"), made
    return made


def rollback(box, to=None, timeout=120):
    """Same id, same name, another moment."""
    before = box.show()
    done = box.yard.json("rollback", box.name, *([to] if to else []), timeout=timeout)
    after = box.show()
    assert (after["id"], after["name"]) == (before["id"], before["name"])
    return done


def fork(box, *args, timeout=180):
    done = box.yard.json("fork", box.name, *args, timeout=timeout)
    assert done["failed"] == [], done
    return [of(box.yard, child) for child in done["children"]]


def timeline(box):
    return box.yard.json("timeline", box.name)


@contextlib.contextmanager
def removed_afterwards(*boxes):
    """What a test makes beside its box goes away, also when it fails."""
    try:
        yield boxes
    finally:
        for one in boxes:
            one.remove()


# ---- the programs ----------------------------------------------------------------------------


def all_kinds():
    import subprocess
    if not PROGRAM.exists():
        return []
    return subprocess.run([PROGRAM, "kinds"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def install(box):
    assert PROGRAM.exists(), f"{PROGRAM} is not built; run ninja -C build"
    assert box.put(INSIDE, PROGRAM.read_bytes(), mode="755").status < 300
    box.exec("chmod", "755", INSIDE)


class Checks:
    def __init__(self, box, *kinds, folder=FOLDER):
        self.box, self.folder = box, folder
        self.kinds = list(kinds) or all_kinds()
        self.exec = box.start(INSIDE, "run", folder, *self.kinds)
        eventually(lambda: "started" in self.said(), 30, self.said)
        assert set(self.ask()) == set(self.kinds)

    def said(self):
        return self.box.logs(self.exec["id"], raw="true").decode()

    def ask(self, box=None):
        """{kind: (answers before, detail)}; every kind must be content."""
        done = (box or self.box).exec(INSIDE, "ask", self.folder, f"t{next(tokens)}", check=False, timeout=90)
        answers = [line.split(" ", 2) for line in done.stdout.splitlines()]
        bad = [" ".join(words) for words in answers if words[1] != "ok"]
        assert not bad and done.returncode == 0, f"{bad}; {done.stderr!r}; {self.said_safely(box)!r}"
        return {kind: (int(rest.split()[0]), rest.partition(" ")[2].strip()) for kind, _, rest in answers}

    def said_safely(self, box):
        try:
            return (box or self.box).logs(self.exec["id"], raw="true").decode()[-400:]
        except (AssertionError, OSError) as why:
            return why

    def counts(self, box=None):
        return {kind: count for kind, (count, _) in self.ask(box).items()}


def plus(counts, more):
    return {kind: count + more for kind, count in counts.items()}


def criu_processes(yard, daemon=None):
    """CRIU that restores boxes of the yard; with the number of its daemon also the one that
    captures, or waits to. Not its
    helpers, nor the processes it makes, which are called so at first."""
    def is_criu(pid):
        return read_proc(pid, "comm").strip() == b"criu"

    def is_inside(pid):
        return len(read_proc(pid, "status").partition(b"NSpid:")[2].partition(b"\n")[0].split()) != 1

    def above(pid):
        return int((read_proc(pid, "stat").rpartition(b")")[2].split() or [b"", b"0"])[1])

    return [pid for pid in processes() if is_criu(pid) and not is_inside(pid) and not is_criu(above(pid)) and
            (above(pid) == daemon or f"/{yard.name}".encode() in read_proc(pid, "cgroup"))]


# ---- what must not be left -------------------------------------------------------------------


def folder_names(path):
    try:
        return sorted(name for name in os.listdir(path) if not name.startswith("."))
    except OSError:
        return []


def our_processes(yard):
    lines = [read_proc(one, "cmdline").replace(b"\0", b" ").decode(errors="replace")[:60] or read_proc(one, "comm").decode()
             for one in instance_processes(yard.name, yard.base) if read_proc(one, "comm").startswith((b"box", b"criu"))]
    return sorted(lines)


def residue(yard):
    """Everything that belongs to boxes and snapshots, by kind; the same before and after when
    nothing leaked. State folders
    and disks are removed in the background: ask with eventually()."""
    pid = yard.daemon_pid()
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    root = Path(f"/proc/{pid}/root")
    return {
        "fds": sum(not link.startswith("user:[") for link in links),
        "ranges of users": max(sum(link.startswith("user:[") for link in links), 32),  # kept; at most so many
        "mounts of the daemon": len(read_proc(pid, "mountinfo").splitlines()),
        "mounts here": sum(str(yard.base) in line for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "cgroups": len(instance_cgroups(yard.name)),
        "processes": len(our_processes(yard)),
        "threads": status_kb(pid, "Threads"),
        "disks": len(folder_names(yard.pool / "boxes")),
        "snapshots": len(folder_names(yard.pool / "snapshots")),
        "states": len(folder_names(yard.home / "states")),
        "quick states": len(folder_names(f"{root}{yard.run_dir}/states")),
    }


SLACK = {"fds": 2}  # a client that has not hung up yet; less than one for each time something is done


def grown(before, after):
    return {key: (before[key], after[key]) for key in before if after[key] > before[key] + SLACK.get(key, 0)}


def nothing_grew(yard, before, timeout=30):
    with contextlib.suppress(AssertionError):
        eventually(lambda: not grown(before, residue(yard)), timeout, every=0.1)
    left = grown(before, residue(yard))
    assert not left, f"was, is: {left}; {our_processes(yard)}"


def settled(yard, timeout=30):
    """The residue when it has stopped changing."""
    last = [residue(yard)]

    def calm():
        now = residue(yard)
        same, last[0] = now == last[0], now
        return same

    eventually(calm, timeout, lambda: last[0], every=0.3)
    return last[0]


def groups(yard, box):
    """The names of its groups: one of two, both while it goes back."""
    return {folder.name for folder in box_cgroups(yard.name, box.id)}


def box_processes(yard, box):
    """Of a box, as the machine sees them."""
    found = set()
    for group in box_cgroups(yard.name, box.id):
        for folder, _, _ in os.walk(group):
            with contextlib.suppress(OSError):
                found |= set(Path(folder, "cgroup.procs").read_text().split())
    return found


def main_process(box):
    """The one whose end is the end of the box: its QEMU, or the process that is 1 inside."""
    for pid in box_processes(box.yard, box):
        numbers = read_proc(pid, "status").partition(b"NSpid:")[2].partition(b"\n")[0].split()
        if DRIVER == "vm" or numbers and numbers[-1] == b"1":
            return int(pid)
    raise AssertionError("no main process")


def count_inside(box):
    """How many processes the limit of the box counts."""
    return len(box.processes() if DRIVER == "vm" else box_processes(box.yard, box))


def box_json(yard, name):
    return json.loads(yard.box("show", name, "--json").stdout)
