"""What programs hold survives every change of the box's state: tests/states has one program for
each kind of thing.

All kinds run in one box and each operation is tried once. When one fails, the same for each kind by
itself names the
culprit: BOX_TEST_ALONE=1 (all kinds) or BOX_TEST_ALONE=pty,tcp.
"""
import contextlib
import json
import os
import sqlite3

import pytest

import states
from boxtest import eventually
from states import Checks, plus

ALONE = os.environ.get("BOX_TEST_ALONE", "")
KINDS = states.all_kinds()
ALONE_KINDS = KINDS if ALONE == "1" else ALONE.split(",") if ALONE else []


# ---- the operations: what is done, and what the programs must remember afterwards ------------


def through_suspend(box, checks, counts):
    states.suspend(box)
    states.resume(box)
    return plus(counts, 1)


def through_suspend_and_wake(box, checks, counts):
    states.suspend(box)
    states.wake(box)
    return plus(counts, 1)


def through_snapshot(box, checks, counts):
    states.snapshot(box)
    return plus(counts, 1)


def through_hibernate(box, checks, counts):
    states.hibernate(box)
    assert not states.box_processes(box.yard, box), "a hibernated box has no processes"
    states.wake(box)
    return plus(counts, 1)


def through_hibernate_of_suspended(box, checks, counts):
    states.suspend(box)
    states.hibernate(box)
    states.wake(box)
    return plus(counts, 1)


def through_rollback(box, checks, counts):
    made = states.snapshot(box)
    assert checks.counts() == plus(counts, 1)
    assert checks.counts() == plus(counts, 2)
    states.rollback(box, made["id"])
    return plus(counts, 1)  # as if the two had not been asked


def through_snapshot_of_suspended(box, checks, counts):
    states.suspend(box)
    made = states.snapshot(box)
    assert states.state(box) == "suspended", "a snapshot wakes nobody"
    states.resume(box)
    assert checks.counts() == plus(counts, 1)
    states.rollback(box, made["id"])
    if states.state(box) == "suspended":
        states.resume(box)
    return plus(counts, 1)


def through_fork(box, checks, counts):
    [child] = states.fork(box)
    with states.removed_afterwards(child):
        theirs, ours = checks.ask(child), checks.ask()
        assert {kind: count for kind, (count, _) in theirs.items()} == plus(counts, 1)
        if "random" in theirs:
            assert theirs["random"][1] != ours["random"][1], "parent and child throw the same dice"
        assert child.out("cat /etc/hostname") != box.out("cat /etc/hostname")
    return plus(counts, 2)


OPERATIONS = [through_suspend, through_suspend_and_wake, through_snapshot, through_hibernate,
              through_hibernate_of_suspended, through_rollback, through_snapshot_of_suspended, through_fork]


class Keeper:
    """One box with everything in it; each operation finds it as the one before has left it, as in
    life, but for one that failed."""

    def __init__(self, yard):
        self.yard, self.box, self.checks, self.fine = yard, None, None, False

    def get(self):
        if not self.fine:
            self.end()
            self.box = self.yard.new(memory="2G", pids=512)
            states.install(self.box)
            self.checks = Checks(self.box)
        self.fine = False
        return self.box, self.checks

    def end(self):
        if self.box:
            self.box.remove()
            self.box = None


@pytest.fixture(scope="module")
def keeper(yard):
    one = Keeper(yard)
    yield one
    one.end()


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.__name__)
def test_nothing_is_lost(keeper, operation):
    box, checks = keeper.get()
    expected = operation(box, checks, checks.counts())
    assert checks.counts() == expected
    assert box.get_exec(checks.exec["id"])["state"] == "running", "the exec is what it was"
    keeper.fine = True


@pytest.mark.slow
@pytest.mark.skipif(not ALONE, reason="for finding culprits: BOX_TEST_ALONE=1")
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("kind", ALONE_KINDS)
def test_kind_alone(make_box, kind, operation):
    box = make_box()
    states.install(box)
    checks = Checks(box, kind)
    expected = operation(box, checks, checks.counts())
    assert checks.counts() == expected


# ---- how deep a box sleeps -------------------------------------------------------------------


def test_three_depths_are_shown_and_wake_takes_each_back(yard, make_box):
    box = make_box()
    for deep, shown in (("suspend", "suspended"), ("hibernate", "hibernated"), ("stop", "stopped")):
        yard.box(deep, box.name)
        assert states.state(box) == shown
        assert shown in yard.box("ls").stdout
        states.wake(box)
        assert box.out("echo up") == "up"


def test_doing_it_twice_is_fine(yard, make_box):
    box = make_box()
    for verb, shown in (("suspend", "suspended"), ("resume", "running"), ("hibernate", "hibernated"), ("wake", "running")):
        yard.box(verb, box.name)
        yard.box(verb, box.name)
        assert states.state(box) == shown


@pytest.mark.parametrize("depth", ["hibernate", "stop"])
def test_suspend_and_resume_of_one_that_sleeps_deeper_say_what_to_do(yard, make_box, depth):
    box = make_box()
    yard.box(depth, box.name)
    for verb in ("suspend", "resume"):
        refused = yard.box(verb, box.name, check=False)
        assert refused.returncode == 65 and f"'box wake {box.name}' makes it run" in refused.stderr, refused.stderr
    yard.box("wake", box.name)


@pytest.mark.parametrize("depth", ["suspend", "hibernate"])
def test_sleeping_box_wakes_by_exec_and_by_file_access(yard, make_box, depth):
    box = make_box()
    box.sh("echo content > /root/f")
    yard.box(depth, box.name)
    assert box.out("echo up") == "up"
    assert states.state(box) == "running"
    yard.box(depth, box.name)
    assert box.get("/root/f").body == b"content\n"


def test_output_of_an_exec_has_no_hole_over_all_of_it(yard, make_box):
    box = make_box()
    counter = box.start("sh", "-c", "i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done")

    def said():
        return [int(n) for n in box.logs(counter["id"], raw="true").split()]

    for operation in (lambda: (states.suspend(box), states.resume(box)), lambda: states.snapshot(box),
                      lambda: (states.hibernate(box), states.wake(box))):
        before = len(said())
        operation()
        eventually(lambda: len(said()) > before + 5, 20, "it goes on counting")
    counted = said()
    assert counted == list(range(len(counted)))


def test_exec_of_a_child_goes_on_by_its_own(yard, make_box):
    """Attaching to the child's copy of a running exec continues it."""
    box = make_box()
    counter = box.start("sh", "-c", "i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done")
    eventually(lambda: len(box.logs(counter["id"], raw="true").split()) > 5, 20)
    [child] = states.fork(box)
    with states.removed_afterwards(child):
        yard.api("POST", f"{box.path}/execs/{counter['id']}/signal", {"signal": "KILL"}, expect=204)
        before = len(child.logs(counter["id"], raw="true").split())
        eventually(lambda: len(child.logs(counter["id"], raw="true").split()) > before + 5, 20)
        counted = [int(n) for n in child.logs(counter["id"], raw="true").split()]
        assert counted == list(range(len(counted)))


# ---- the time line ---------------------------------------------------------------------------


def test_timeline_is_a_tree_and_a_rollback_can_be_undone(yard, make_box):
    box = make_box()
    box.sh("echo one > /root/f")
    first = states.snapshot(box, "first")
    box.sh("echo two > /root/f")
    states.rollback(box, "first")
    assert box.out("cat /root/f") == "one"
    line = states.timeline(box)
    kept = [s for s in line["snapshots"] if s["parent"] == first["id"]]
    assert len(kept) == 1, "the present of then is a branch of its own"
    assert line["position"] == first["id"]
    assert [s["id"] for s in line["snapshots"] if s["current"]] == [first["id"]]
    states.rollback(box, kept[0]["id"])
    assert box.out("cat /root/f") == "two"


def test_rollback_without_a_name_goes_to_the_newest(yard, make_box):
    box = make_box()
    states.snapshot(box)
    box.sh("echo here > /root/f")
    states.snapshot(box)
    box.sh("rm /root/f")
    states.rollback(box)
    assert box.out("cat /root/f") == "here"


def test_snapshot_names_are_unique_and_unknown_ones_are_refused(yard, make_box):
    box = make_box()
    states.snapshot(box, "golden")
    again = yard.box("snapshot", box.name, "golden", check=False)
    assert again.returncode and "golden" in again.stderr
    missing = yard.box("rollback", box.name, "no-such", check=False)
    assert missing.returncode and "no-such" in missing.stderr
    assert box.out("echo alive") == "alive"


def test_disk_only_snapshot_brings_back_the_disk(yard, make_box):
    box = make_box()
    box.sh("echo one > /root/f")
    made = states.snapshot(box, "--disk-only")
    box.sh("echo two > /root/f")
    states.rollback(box, made["id"])
    if states.state(box) != "running":
        states.wake(box)
    assert box.out("cat /root/f") == "one"


def test_audit_does_not_go_back(yard, make_box):
    box = make_box()
    made = states.snapshot(box)
    events = yard.next_offset()
    box.sh("true")
    states.rollback(box, made["id"])
    assert yard.next_offset() > events


# ---- forks -----------------------------------------------------------------------------------


def test_fork_has_an_identity_of_its_own(yard, make_box):
    box = make_box()
    box.sh("echo mine > /root/f; echo 0123456789abcdef0123456789abcdef > /etc/machine-id")
    [child] = states.fork(box, "the-child")
    with states.removed_afterwards(child):
        assert child.name == "the-child" and child.id != box.id
        for what in ("hostname", "cat /etc/hostname", "cat /etc/machine-id"):
            assert child.out(what) != box.out(what), what
        child.sh("echo theirs > /root/f")
        assert box.out("cat /root/f") == "mine"


def test_ten_forks_at_once(yard, make_box):
    box = make_box()
    box.sh("echo same > /root/f; echo 0123456789abcdef0123456789abcdef > /etc/machine-id")
    children = states.fork(box, "-n", "10")
    with states.removed_afterwards(*children):
        assert len({child.id for child in children}) == 10
        for child in children:
            assert child.out("cat /root/f") == "same"
        machine_ids = {child.out("cat /etc/machine-id") for child in children}
        assert len(machine_ids) == 10


def test_fork_from_a_snapshot_is_the_box_of_then(yard, make_box):
    box = make_box()
    box.sh("echo then > /root/f")
    made = states.snapshot(box)
    box.sh("echo now > /root/f")
    [child] = states.fork(box, "--from", made["id"])
    with states.removed_afterwards(child):
        assert child.out("cat /root/f") == "then"
        assert box.out("cat /root/f") == "now"


def test_parent_can_go_while_children_live(yard, make_box):
    box = make_box()
    [child] = states.fork(box)
    with states.removed_afterwards(child):
        assert box.remove().status == 204
        assert child.out("echo alive") == "alive"
        states.snapshot(child)
        states.hibernate(child)
        states.wake(child)
        assert child.out("echo alive") == "alive"


def test_promoted_child_takes_the_place_of_its_parent(yard, make_box):
    box = make_box()
    [child] = states.fork(box)
    child.sh("echo child > /root/f")
    yard.box("promote", child.name)
    now = states.of(yard, states.box_json(yard, box.name))
    with states.removed_afterwards(now):
        assert now.name == box.name
        assert now.out("cat /root/f") == "child"


@pytest.mark.parametrize("kept", ["one", None])
def test_fork_of_a_forgotten_snapshot_stands_upon_the_one_before(yard, make_box, kept):
    box = make_box()
    if kept:
        states.snapshot(box, kept)
    states.snapshot(box, "two")
    [child, other] = states.fork(box, "--from", "two", "-n", "2")
    states.snapshot(other, "own")
    with states.removed_afterwards(other):
        yard.box("forget", box.name, "two")
        base = {s["name"]: s["id"] for s in states.timeline(box)["snapshots"]}.get(kept)
        assert child.show()["origin"] == {"box": box.id, "snapshot": base, "position": base}
        assert ("⑂ " + child.name) in yard.box("timeline", box.name).stdout
        yard.box("promote", child.name)
        now = states.of(yard, states.box_json(yard, box.name))
        assert states.timeline(now)["position"] == base
        # The other one is a fork of that box now; what it kept itself goes where it was forked.
        yard.box("promote", other.name)
        now = states.of(yard, states.box_json(yard, box.name))
        assert now.id == other.id
        line = {s["name"]: s for s in states.timeline(now)["snapshots"]}
        assert line["own"]["parent"] == base and line["own"]["current"]


def own_names(box):
    """Its files follow a name that was given from outside a moment later."""
    eventually(lambda: box.out("cat /etc/hostname") == box.out("hostname"), 10)
    return box.out("grep ^127.0.1.1 /etc/hosts | cut -f2").split()


def test_copies_have_their_own_name_alone_in_hosts(yard, make_box):
    box = make_box()
    box.sh("echo 10.9.8.7 friend >> /etc/hosts")
    assert own_names(box) == [box.name]
    made = states.snapshot(box)
    [child, other] = states.fork(box, "-n", "2")
    [then] = states.fork(box, "--from", made["id"])
    yard.box("save", "--full", box.name, "named", timeout=120)
    golden = states.of(yard, yard.json("new", "--image", "named"))
    for copy in (other, then, golden, child):
        with states.removed_afterwards(copy):
            assert own_names(copy) == [copy.name] and "friend" in copy.out("cat /etc/hosts")
            if copy is child:
                yard.box("promote", child.name)
                child = states.of(yard, states.box_json(yard, box.name))
                assert own_names(child) == [box.name]
                yard.box("rename", child.name, "renamed-since")
                child.name = "renamed-since"
                states.rollback(child, made["id"])
                assert own_names(child) == [child.name]
    yard.box("image", "rm", "named")


def test_name_that_is_taken_fails_alone(yard, make_box):
    box, other = make_box(), make_box()
    done = yard.box("fork", box.name, other.name, "fresh-name", "--json", check=False)
    import json
    result = json.loads(done.stdout)
    children = [states.of(yard, one) for one in result["children"]]
    with states.removed_afterwards(*children):
        assert [c.name for c in children] == ["fresh-name"]
        assert [f["name"] for f in result["failed"]] == [other.name]


# ---- try, golden images ----------------------------------------------------------------------


def test_try_keeps_what_succeeds_and_takes_back_what_fails(yard, make_box):
    box = make_box()
    assert yard.box("try", box.name, "--", "sh", "-c", "echo good > /root/f").returncode == 0
    assert box.out("cat /root/f") == "good"
    failed = yard.box("try", box.name, "--", "sh", "-c", "echo bad > /root/f; exit 3", check=False)
    assert failed.returncode == 3
    assert box.out("cat /root/f") == "good"
    checked = yard.box("try", box.name, "--check", "grep -q good /root/f", "--", "sh", "-c", "echo bad > /root/f", check=False)
    assert checked.returncode != 0
    assert box.out("cat /root/f") == "good"


def test_golden_image_starts_with_everything_up(yard, make_box):
    box = make_box()
    states.install(box)
    checks = Checks(box, "memory", "pipes", "threads")
    counts = checks.counts()
    yard.box("save", "--full", box.name, "golden-checks", timeout=120)
    one = yard.new(image="golden-checks")
    with states.removed_afterwards(one):
        assert checks.counts(one) == plus(counts, 1)
    yard.box("image", "rm", "golden-checks")


# ---- what cannot be captured -----------------------------------------------------------------

TRACED = """import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
pid = os.fork()
if pid == 0:
    time.sleep(1000)
assert libc.ptrace(0x4206, pid, 0, 0) == 0, ctypes.get_errno()  # PTRACE_SEIZE
print("ready", flush=True)
time.sleep(1000)
"""


def trace_a_process(box):
    started = box.start("python3", "-c", TRACED)
    eventually(lambda: b"ready" in box.logs(started["id"], raw="true") or box.get_exec(started["id"])["state"] == "exited", 20)
    if box.get_exec(started["id"])["state"] == "exited":
        pytest.skip("tracing is forbidden in this box")
    return started


@pytest.mark.parametrize("verb", ["snapshot", "hibernate", "fork"])
def test_what_cannot_be_captured_is_named_and_harms_nobody(yard, make_box, verb):
    box = make_box()
    started = trace_a_process(box)
    refused = yard.box(verb, box.name, check=False)
    assert refused.returncode
    assert "python3" in refused.stderr and "trace" in refused.stderr, refused.stderr
    if verb == "fork":
        assert f"'box fork --disk-only {box.name}'" in refused.stderr
    if verb == "hibernate":
        assert f"('box stop {box.name}' ends its processes, 'box snapshot --disk-only {box.name}' keeps its disk)" in refused.stderr
    assert states.state(box) == "running"
    assert box.get_exec(started["id"])["state"] == "running"
    assert box.out("echo alive") == "alive"
    assert states.snapshot(box, "--disk-only")["kind"] == "disk"


@pytest.mark.slow
def test_down_names_the_boxes_it_could_not_hibernate(fresh_yard):
    calm, traced = fresh_yard.new(), fresh_yard.new()
    trace_a_process(traced)
    down = fresh_yard.box("down", "--hibernate", check=False)
    assert down.returncode == 65, (down.returncode, down.stderr)
    told = [line for line in down.stderr.splitlines() if line]
    assert len(told) == 1 and traced.name in told[0] and "trace" in told[0], told
    assert "1 box could not be hibernated and runs on" in down.stdout and "its boxes are" not in down.stdout
    fresh_yard.start_daemon()
    assert (states.state(calm), states.state(traced)) == ("hibernated", "running")
    failed = [e for e in fresh_yard.events(box=traced.id) if e["type"] == "box.hibernate_failed"]
    assert len(failed) == 1 and "trace" in failed[0]["data"]["message"]
    assert traced.show()["end"] == {"reason": "", "detail": ""}, "it simply runs"
    states.wake(calm)
    answer = json.loads(fresh_yard.box("down", "--hibernate", "--json", check=False).stdout)
    assert not answer["hibernated"] and [one["name"] for one in answer["not_hibernated"]] == [traced.name]
    fresh_yard.start_daemon()
    fresh_yard.box("rm", "-f", traced.name)
    assert "its boxes are hibernated" in fresh_yard.box("down", "--hibernate").stdout
    fresh_yard.start_daemon()


def test_why_a_box_was_not_hibernated_is_known_after_a_restart_of_the_machine(fresh_yard):
    box = fresh_yard.new()
    trace_a_process(box)
    assert fresh_yard.box("down", "--hibernate", check=False).returncode
    with contextlib.closing(sqlite3.connect(fresh_yard.home / "state.db")) as books, books:
        books.execute("UPDATE boxes SET boot = 'another'")
    fresh_yard.start_daemon()
    assert states.state(box) == "stopped"
    shown = fresh_yard.box("show", box.name).stdout
    assert "the machine restarted; it could not be hibernated before: process" in shown and "traced" in shown, shown
    stopped = [e for e in fresh_yard.events(box=box.id) if e["type"] == "box.stopped"]
    assert "traced" in stopped[-1]["data"]["detail"]
    fresh_yard.box("start", box.name)


@pytest.mark.slow
def test_a_file_and_a_folder_of_the_host_are_there_after_sleep_and_in_forks(fresh_yard, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/f").write_text("in a folder")
    (tmp_path / "file").write_text("a file")
    with open(fresh_yard.base / "boxyard.conf", "a") as conf:
        conf.write(f"mount_roots = {tmp_path}\n")
    fresh_yard.stop_daemon()
    fresh_yard.start_daemon()
    box = fresh_yard.new(mounts=[{"source": str(tmp_path / name), "path": f"/given/{name}", "read_only": True}
                                 for name in ("file", "folder")])
    box.start("sh", "-c", "exec 3</given/file 4</given/folder/f; exec sleep 1000")
    states.hibernate(box)
    states.wake(box)
    [child] = states.fork(box)
    for one in (box, child):
        assert one.out("cat /given/file") == "a file" and one.out("cat /given/folder/f") == "in a folder"
        assert "Read-only" in one.sh("echo x > /given/file", check=False).stderr
