"""What is said about a box in time: wrong words are refused before anything happens, by the API and
the command line."""
import time

import pytest

from boxtest import EXIT_NOT_FOUND, EXIT_USAGE, eventually, random_name
from fixtures import running_yard_with

pytestmark = pytest.mark.asan

VERBS = ["hibernate", "wake", "snapshots", "rollback", "fork", "promote"]


def timeline(box):
    return box.yard.api("GET", f"{box.path}/timeline", expect=200).json


# ---- the API ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_know_only_boxes_that_are_there(yard, verb):
    reply = yard.api("POST", f"/v1/boxes/nosuch/{verb}", {})
    assert reply.code == "not_found" and "nosuch" in reply.json["error"]["message"]


@pytest.mark.parametrize("verb,body", [
    ("hibernate", {"deep": True}),
    ("wake", {"x": 1}),
    ("promote", {"name": "x"}),
    ("snapshots", {"name": "Not A Name"}),
    ("snapshots", {"name": ""}),
    ("snapshots", {"cause": "interval"}),
    ("snapshots", {"disk_only": "yes"}),
    ("snapshots", {"nmae": "x"}),
    ("rollback", {"snapshot": ""}),
    ("rollback", {"snapshot": "../../etc"}),
    ("rollback", {"snapshot": 7}),
    ("rollback", {"forget": 1}),
    ("rollback", {"to": "x"}),
    ("fork", {"count": 0}),
    ("fork", {"count": 101}),
    ("fork", {"count": -1}),
    ("fork", {"count": 1.5}),
    ("fork", {"count": 1, "names": ["a", "b"]}),
    ("fork", {"names": ["a", "a"]}),
    ("fork", {"names": ["A"]}),
    ("fork", {"names": [f"n{i}" for i in range(101)]}),
    ("fork", {"snapshot": "A B"}),
    ("fork", {"env": {"A=B": "x"}}),
    ("fork", {"env": {"A": 1}}),
    ("fork", {"labels": {"k": "\x01"}}),
    ("fork", {"policy": 3}),
    ("fork", {"from_inside": True}),
    ("save", {"full": True}),
    ("save", {"full": True, "name": "x", "config": {}}),
    ("save", {"full": "yes", "name": "x"}),
    ("save", {"full": True, "name": "Not A Name"}),
])
def test_bad_bodies_are_refused_and_nothing_happens(yard, box, verb, body):
    before = len(yard.json("ls"))
    reply = yard.api("POST", f"{box.path}/{verb}", body)
    assert reply.status == 400 and reply.code == "invalid", reply.body
    assert box.show()["state"] == "running"
    assert not timeline(box)["snapshots"]
    assert len(yard.json("ls")) == before
    assert box.out("echo here").strip() == "here"


def test_now_is_no_name_of_a_snapshot(yard, box):
    reply = yard.api("POST", f"{box.path}/snapshots", {"name": "now"})
    assert reply.status == 400 and "'now'" in reply.json["error"]["message"], reply.body
    for words in (["snapshot", box.name, "now"], ["try", box.name, "--name", "now", "--", "touch", "/tmp/tried"]):
        done = yard.box(*words, check=False)
        assert done.returncode == 64 and "cannot be called 'now'" in done.stderr, done
    done = box.run("box", "snapshot", "now")
    assert done.code == 64 and b"cannot be called 'now'" in done.stderr
    assert timeline(box)["snapshots"] == [] and box.stat("/tmp/tried").status == 404


def test_unknown_snapshots_are_not_found(yard, box):
    assert yard.api("DELETE", f"{box.path}/snapshots/nosuch").code == "not_found"
    assert yard.api("DELETE", f"{box.path}/snapshots/No.Such").code == "invalid"
    assert yard.api("POST", f"{box.path}/rollback", {"snapshot": "nosuch"}).code in ("not_found", "unsupported")
    assert yard.api("POST", f"{box.path}/fork", {"snapshot": "nosuch"}).code in ("not_found", "unsupported")
    assert box.show()["state"] == "running"


def test_a_new_box_has_an_empty_time_line(yard, box):
    shown = box.show()
    assert shown["origin"] is None and shown["position"] is None and shown["asleep_for"] is None
    assert shown["auto_snapshot"] == "off"
    line = timeline(box)
    assert line["box"] == shown["id"] and line["name"] == shown["name"]
    assert line["position"] is None and line["snapshots"] == []


def test_purge_and_hibernate_exclude_each_other(yard):
    reply = yard.api("POST", "/v1/shutdown", {"purge": True, "hibernate": True})
    assert reply.code == "invalid"
    assert yard.api("POST", "/v1/shutdown", {"hibernate": "yes"}).code == "invalid"
    assert yard.api("GET", "/v1/health", expect=200)


# ---- automatic snapshots ---------------------------------------------------------------------


@pytest.mark.parametrize("text", ["on", "interval", "interval=1s", "interval=31d", "interval=x", "EXEC", "exec,off"])
def test_auto_snapshot_is_checked(yard, box, text):
    for reply in (yard.api("POST", "/v1/boxes", {"auto_snapshot": text}),
                  yard.api("PATCH", box.path, {"auto_snapshot": text, "name": random_name()})):
        assert reply.code == "invalid" and "auto_snapshot" in reply.json["error"]["message"]
    assert box.show()["auto_snapshot"] == "off" and box.show()["name"] == box.name


def test_auto_snapshot_is_kept_and_changed(yard, make_box):
    box = make_box(auto_snapshot="interval=5m")
    assert box.show()["auto_snapshot"] == "interval=300"
    yard.box("set", box.name, "--auto-snapshot", "exec")
    assert box.show()["auto_snapshot"] == "exec"
    yard.box("set", box.name, "--auto-snapshot", "off")
    assert box.show()["auto_snapshot"] == "off"
    name = random_name()
    try:
        yard.box("new", name, "--auto-snapshot", "interval=1h")
        assert yard.json("show", name)["auto_snapshot"] == "interval=3600"
        assert "interval=3600" in yard.box("show", name).stdout
        wrong = yard.box("set", name, "--auto-snapshot", "never", check=False)
        assert wrong.returncode == EXIT_USAGE and "interval=" in wrong.stderr
    finally:
        yard.box("rm", "-f", name)


def captured_before(box):
    """What was captured, or tried to be, before programs: details of snapshots, or failures."""
    kept = [s for s in timeline(box)["snapshots"] if s["cause"] == "exec"]
    events = box.yard.api("GET", "/v1/events", query={"box": box.id, "limit": 1000}, expect=200).json["events"]
    return len(kept) + len([e for e in events if e["type"] == "snapshot.failed" and e["data"]["cause"] == "exec"])


def test_programs_start_after_their_snapshot_whatever_came_of_it(yard, make_box):
    box = make_box(auto_snapshot="exec")
    assert box.run("echo", "by post").stdout == b"by post\n"
    assert captured_before(box) == 1
    assert box.run("cat", stdin="with input").stdout == b"with input"
    assert captured_before(box) == 2
    done = yard.box("exec", "-i", box.name, "--", "cat", input="by socket")
    assert done.stdout == "by socket"
    assert captured_before(box) == 3
    exec_id = box.start("sh", "-c", "echo detached")["id"]
    assert box.wait_exec(exec_id)["exit_code"] == 0
    assert yard.box("exec", box.name, "--", "sh", "-c", "exit 7", check=False).returncode == 7
    assert yard.box("exec", box.name, "--", "nosuchprogram", check=False).returncode == EXIT_NOT_FOUND
    several = [yard.spawn("exec", box.name, "--", "echo", str(i)) for i in range(5)]
    assert [p.communicate()[0] for p in several] == [f"{i}\n".encode() for i in range(5)]


def test_interval_snapshots_are_tried_while_the_box_works(yard, make_box):
    idle, busy = make_box(auto_snapshot="interval=10s"), make_box(auto_snapshot="interval=10s")
    busy.start("sh", "-c", "while :; do :; done")

    def tried(box):
        events = yard.api("GET", "/v1/events", query={"box": box.id, "limit": 1000}, expect=200).json["events"]
        failed = [e for e in events if e["type"] == "snapshot.failed" and e["data"]["cause"] == "interval"]
        return len(failed) + len([s for s in timeline(box)["snapshots"] if s["cause"] == "interval"])

    eventually(lambda: tried(busy), timeout=20, what="a snapshot of the busy box", every=0.5)
    time.sleep(1)
    yard.api("PATCH", busy.path, {"auto_snapshot": "off"}, expect=200)
    # What an idle one did until its first look may be kept once, and never again.
    assert tried(idle) <= 1


# ---- the command line ------------------------------------------------------------------------


@pytest.mark.parametrize("words", [
    ["hibernate"], ["wake"], ["snapshot"], ["snapshot", "BOX", "a", "b"], ["snapshot", "BOX", "Not-A-Name"],
    ["timeline"], ["timeline", "BOX", "x"], ["forget", "BOX"], ["rollback"], ["rollback", "BOX", "a", "b"],
    ["fork"], ["fork", "BOX", "-n", "0"], ["fork", "BOX", "-n", "101"], ["fork", "BOX", "-n", "x"],
    ["fork", "BOX", "-n", "1", "a", "b"], ["fork", "BOX", "UPPER"], ["fork", "BOX", "-e", "A B=1"],
    ["fork", "BOX", "--label", "=x"], ["fork", "BOX", "--net", "wide"], ["fork", "BOX", "--allow", "a b"],
    ["promote"], ["promote", "BOX", "x"], ["try", "BOX"], ["try", "BOX", "--name", "No Name", "--", "true"],
    ["try", "BOX", "--timeout", "x", "--", "true"], ["save", "--full", "BOX"], ["down", "--hibernate", "--purge"],
    ["down", "--hibernate", "--no-hibernate"], ["snapshot", "BOX", "--disk"],
    ["hibernate", ""], ["wake", "BOX", ""], ["snapshot", "", "a"], ["snapshot", "BOX", ""], ["timeline", ""], ["forget", "BOX", ""],
    ["forget", "", "a"], ["rollback", ""], ["rollback", "BOX", ""], ["fork", ""], ["fork", "BOX", ""], ["promote", ""],
    ["try", "", "--", "true"],
])
def test_wrong_command_lines_do_nothing(yard, box, words):
    done = yard.box(*[box.name if w == "BOX" else w for w in words], check=False)
    assert done.returncode == EXIT_USAGE, (done.returncode, done.stderr)
    assert done.stderr.startswith("box: ") and not done.stdout
    assert not timeline(box)["snapshots"] and box.show()["state"] == "running"


@pytest.mark.parametrize("words", [
    ["hibernate", "nosuch"], ["wake", "nosuch"], ["snapshot", "nosuch"], ["timeline", "nosuch"],
    ["forget", "nosuch", "x"], ["rollback", "nosuch"], ["fork", "nosuch"], ["promote", "nosuch"],
    ["try", "nosuch", "--", "true"], ["fork", "nosuch", "--allow", "example.com"],
])
def test_commands_name_the_box_that_is_not_there(yard, words):
    done = yard.box(*words, check=False)
    assert done.returncode == EXIT_NOT_FOUND and "nosuch" in done.stderr


def test_a_policy_that_is_not_there_forks_nothing(yard, box, tmp_path):
    bad = tmp_path / "policy.yaml"
    bad.write_text("presett: none\n")
    before = len(yard.json("ls"))
    for policy in (tmp_path / "nosuch.yaml", bad, "nosuchpreset"):
        assert yard.box("fork", box.name, "--policy", policy, check=False).returncode != 0
    assert len(yard.json("ls")) == before


def test_timeline_is_a_tree_for_people_and_json_for_programs(yard, box):
    assert "● now" in yard.box("timeline", box.name).stdout
    assert yard.json("timeline", box.name)["snapshots"] == []


def test_help_and_completion_know_the_commands(yard):
    script = yard.box("completion", "bash").stdout
    for command in ("hibernate", "wake", "snapshot", "timeline", "forget", "rollback", "try", "fork", "promote"):
        assert yard.box("help", command).stdout.startswith(f"usage: box {command} ")
        assert f'"{command}") names=box' in script
    assert "hibernated" in script


# ---- the end of the daemon -------------------------------------------------------------------


def test_the_daemon_ends_by_itself_when_boxes_are_to_be_hibernated(image):
    with running_yard_with(BOX_HIBERNATE_ON_SHUTDOWN="yes") as yard:
        assert yard.api("GET", "/v1/info", expect=200).json["hibernate_on_shutdown"] is True
        yard.stop_daemon()
        yard.start_daemon()
        yard.box("down", "--no-hibernate")
        yard.start_daemon()
        done = yard.box("down", "--json")
        assert '"hibernated":true' in done.stdout.replace(" ", "")
        yard.start_daemon()
