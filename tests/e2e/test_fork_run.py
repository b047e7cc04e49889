"""`box fork BOX -- CMD` runs CMD in the forks; `box promote` makes one of them the box, with the
box's labels and limits."""
import contextlib
import json
import signal
import time

import pytest

import states
from boxtest import SLOWNESS, eventually

pytestmark = pytest.mark.asan
SAY = 'echo "index $BOX_FORK_INDEX of $BOX_PARENT in $BOX_NAME $(hostname)"'


@pytest.fixture
def parent(yard):
    box = yard.new(labels={"team": "a"})
    yield box
    for one in yard.boxes():
        if one["id"] == box.id or one["name"].startswith(box.name) or (one.get("origin") or {}).get("box") == box.id:
            with contextlib.suppress(AssertionError):
                states.of(yard, one).remove()


def names(yard):
    return {one["name"] for one in yard.boxes()}


def test_a_command_runs_in_the_fork_and_its_exit_code_is_the_answer(yard, parent):
    before = names(yard)
    done = yard.box("fork", parent.name, "--", "sh", "-c", f"{SAY}; echo wrong >&2; exit 7", check=False)
    [made] = names(yard) - before
    assert made not in ("sh", "make", "test")
    assert done.returncode == 7 and done.stdout == f"index 0 of {parent.name} in {made} {made}\n"
    assert "wrong\n" in done.stderr and made in done.stderr, "it says where"


def test_several_run_beside_each_other_and_each_line_has_its_box(yard, parent):
    a, b, c = (f"{parent.name}-{end}" for end in "abc")
    started = time.monotonic()
    done = yard.box("fork", parent.name, a, b, c, "-e", "X=1", "--", "sh", "-c",
                    f"sleep 1; {SAY}; printf $X; exit $((BOX_FORK_INDEX * 2))", check=False)
    assert time.monotonic() - started < 20 * SLOWNESS
    assert done.returncode == 2, "the first that fails"
    lines = [line.split(" | ") for line in done.stdout.splitlines()]
    assert sorted(line[0].strip() for line in lines) == sorted([a, b, c] * 2)
    assert {line[1] for line in lines} == {f"index {i} of {parent.name} in {n} {n}" for i, n in enumerate((a, b, c))} | {"1"}
    assert f"'{b}' ended with exit code 2" in done.stderr and f"'{c}' ended with exit code 4" in done.stderr
    assert a not in done.stderr.replace("forked", "") or f"'{a}' ended" not in done.stderr


def test_with_rm_they_go_when_the_command_has_ended(yard, parent):
    before = names(yard)
    assert yard.box("fork", parent.name, "-n", "2", "--rm", "--", "true").returncode == 0
    eventually(lambda: names(yard) == before, 20, lambda: names(yard))


def runs(yard):
    return [one["name"] for one in yard.boxes() if "boxyard.run" in one["labels"]]


@pytest.mark.parametrize("count", ["1", "2"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM, "reader"])
def test_with_rm_they_go_when_the_command_is_killed(yard, parent, how, count):
    run = yard.spawn("fork", parent.name, "-n", count, "--rm", "--", "sh", "-c",
                     "echo ready; while :; do sleep 0.05; echo x; done", text=True)
    assert "ready" in run.stdout.readline()
    assert len(runs(yard)) == int(count)
    if how == "reader":
        run.stdout.close()
    else:
        run.send_signal(how)
    assert run.wait(20) != 0
    eventually(lambda: not runs(yard), 15, lambda: runs(yard))


def test_killed_while_it_forks_nothing_stays(yard, parent):
    for _ in range(3):
        run = yard.spawn("fork", parent.name, "-n", "3", "--rm", "--", "sleep", "600")
        time.sleep(0.05)
        run.kill()
        run.wait()
    time.sleep(1)
    eventually(lambda: not runs(yard), 20, lambda: runs(yard))


def test_a_fork_of_such_a_fork_stays(yard, parent):
    run = yard.spawn("fork", parent.name, "--rm", "--", "sh", "-c", "echo ready; sleep 600", text=True)
    run.stdout.readline()
    [child] = runs(yard)
    other = f"{parent.name}-stays"
    yard.box("fork", child, other)
    run.kill()
    run.wait()
    eventually(lambda: runs(yard) == [other], 15, lambda: runs(yard))


def test_json_has_a_line_for_each_thing(yard, parent):
    done = yard.box("fork", parent.name, "-n", "2", "--json", "--", "sh", "-c", "echo hi; exit $BOX_FORK_INDEX", check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines[0]["children"]) == 2 and done.returncode == 1
    boxes = [one["name"] for one in lines[0]["children"]]
    assert {line["box"]: line["exit_code"] for line in lines[1:] if line["type"] == "exit"} == dict(zip(boxes, (0, 1)))
    assert {line["data"] for line in lines[1:] if line["type"] == "output"} == {"hi\n"}


def test_ctrl_c_reaches_all_of_them(yard, parent):
    run = yard.spawn("fork", parent.name, "-n", "2", "--", "sh", "-c",
                     "trap 'echo heard; exit 9' INT; echo ready; while :; do sleep 0.05; done", text=True)
    seen = [run.stdout.readline() for _ in range(2)]
    assert all("ready" in line for line in seen), run.communicate()
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=30)
    assert out.count("heard") == 2 and run.returncode == 9


def test_nothing_after_the_dashes_is_refused(yard, parent):
    before = names(yard)
    assert yard.box("fork", parent.name, "--", check=False).returncode == 64
    assert names(yard) == before


def test_promoted_takes_labels_and_limits_of_the_box_it_replaces(yard, parent):
    yard.box("set", parent.name, "--memory", "700M", "--pids", "300")
    [child] = states.fork(parent, "-l", "try=1")
    yard.box("set", child.name, "--memory", "300M", "--pids", "100")
    done = yard.box("promote", child.name)
    shown = yard.json("show", parent.name)
    assert shown["id"] == child.id
    assert shown["labels"] == {"team": "a"}
    assert (shown["limits"]["memory"], shown["limits"]["pids"]) == (700 << 20, 300)
    assert "try=1" in done.stderr and "labels" in done.stderr and "limits" in done.stderr, done.stderr
    yard.box("rm", "-f", "-l", "try=1", check=False)
    assert parent.name in names(yard), "the winner stays"
    assert yard.api("GET", f"/v1/boxes/{child.id}/stats").json["memory_limit_bytes"] == 700 << 20


def test_promoted_may_keep_its_own(yard, parent):
    [child] = states.fork(parent, "-l", "try=1")
    yard.box("set", child.name, "--pids", "100")
    yard.box("promote", "--keep-labels", "--keep-limits", child.name)
    shown = yard.json("show", parent.name)
    assert shown["labels"] == {"team": "a", "try": "1"} and shown["limits"]["pids"] == 100
