"""Forks, snapshots and rollbacks that a box asks for itself: each answers twice, like fork(2)."""
import json

from boxtest import Box, eventually

SCRIPT = 'n=$(box fork {options}); if [ "$n" ]; then echo "parent of $n"; else echo "child $(hostname)"; fi; sleep 1000'


def started(box, script):
    reply = box.yard.api("POST", f"{box.path}/exec", {"argv": ["sh", "-c", script], "detach": True}, expect=201)
    return reply.json["id"]


def output(box, exec_id):
    """"" while the box is between two states."""
    reply = box.yard.api("GET", f"{box.path}/execs/{exec_id}/logs", query={"raw": "true"})
    return reply.body.decode() if reply.status == 200 else ""


def family(box):
    return json.loads(box.run("box", "ls", "--json").stdout)


def child_of(box, name):
    return Box(box.yard, box.yard.api("GET", f"/v1/boxes/{name}", expect=200).json)


def test_fork_answers_in_both(fresh_yard):
    box = fresh_yard.new()
    exec_id = started(box, SCRIPT.format(options="kid"))
    name = f"{box.name}-kid"
    eventually(lambda: output(box, exec_id) == f"parent of {name}\n", 20)
    child = child_of(box, name)
    eventually(lambda: output(child, exec_id) == f"child {name}\n", 20)
    assert [c["name"] for c in family(box)] == [name]
    assert box.run("box", "exec", name, "--", "hostname").stdout.decode() == f"{name}\n"
    assert box.run("box", "rm", "kid").code == 0
    assert family(box) == []


def test_many_children_know_who_they_are(fresh_yard):
    box = fresh_yard.new()
    box.run("mkdir", "-p", "/etc/boxyard/fork.d")
    box.run("sh", "-c", "printf '#!/bin/sh\\necho $BOX_NAME $BOX_PARENT $BOX_FORK_INDEX > /tmp/hook\\n' "
                        "> /etc/boxyard/fork.d/10-note; chmod 755 /etc/boxyard/fork.d/10-note; echo "
                        "00000000000000000000000000000000 > /etc/machine-id")
    names = box.run("box", "fork", "-n", "3").stdout.decode().split()
    assert len(names) == 3
    ids = set()
    for index, name in enumerate(names):
        child = child_of(box, name)
        assert child.run("cat", "/tmp/hook").stdout.decode() == f"{name} {box.name} {index}\n"
        assert child.run("hostname").stdout.decode() == f"{name}\n"
        ids.add(child.run("cat", "/etc/machine-id").stdout)
        info = json.loads(child.run("box", "info").stdout)
        assert (info["name"], info["parent"], info["generation"]) == (name, box.name, 1)
    assert len(ids) == 3 and b"0" * 32 + b"\n" not in ids
    assert box.run("cat", "/etc/machine-id").stdout == b"0" * 32 + b"\n"


def test_a_command_for_the_child(fresh_yard):
    box = fresh_yard.new()
    done = box.run("box", "fork", "kid", "--", "sh", "-c", "echo $BOX_NAME $BOX_PARENT > /tmp/i; sleep 1000")
    assert done.stdout.decode() == f"{box.name}-kid\n"
    child = child_of(box, f"{box.name}-kid")
    eventually(lambda: child.get("/tmp/i").body.decode() == f"{child.name} {box.name}\n", 10)


def test_limits_of_number_and_depth_hold(fresh_yard):
    box = fresh_yard.new(inside={"depth": 2, "count": 3})
    assert box.run("box", "fork", "a", "b").code == 0
    done = box.run("box", "fork", "c", "d")
    assert done.code == 75 and b"may have 3" in done.stderr
    assert box.run("box", "exec", "a", "--", "box", "fork", "x").code == 0
    done = box.run("box", "exec", f"{box.name}-a-x", "--", "box", "fork")
    assert done.code == 75 and b"may have" in done.stderr
    assert len(family(box)) == 3


def refused(box, *words):
    done = box.run("box", *words)
    return done.code, done.stderr.decode()


def limits(box):
    inside = box.show()["inside"]
    return inside["depth"], inside["count"], inside["rate"]


def test_each_fork_counts_for_the_rate(fresh_yard):
    box = fresh_yard.new(inside={"rate": 4})
    code, why = refused(box, "fork", "-n", "5")
    assert code == 75 and "a minute: this box may have 4" in why and "--inside rate=N" in why, why
    assert box.run("box", "fork", "-n", "3").code == 0
    assert refused(box, "fork", "a", "b")[0] == 75
    assert box.run("box", "fork", "c").code == 0
    assert refused(box, "snapshot")[0] == 75
    assert len(family(box)) == 4


def test_limits_outlive_a_promotion(fresh_yard):
    """Those that were forked beside it, too."""
    box = fresh_yard.new(inside={"depth": 1, "count": 2})
    assert box.run("box", "fork", "k1", "k2").code == 0
    first, second = child_of(box, f"{box.name}-k1"), child_of(box, f"{box.name}-k2")
    fresh_yard.box("promote", second.name)
    now = child_of(box, box.name)
    assert now.id == second.id and first.show()["origin"]["box"] == now.id
    code, why = refused(first, "fork", "x")
    assert code == 75 and "forks of forks" in why and now.name in why, why
    assert [c["name"] for c in family(now)] == [first.name]
    assert json.loads(now.run("box", "info").stdout)["generation"] == 0
    assert now.run("box", "fork", "k3").code == 0
    code, why = refused(now, "fork", "k4")
    assert code == 75 and "may have 2" in why
    fresh_yard.box("set", now.name, "--inside", "off")
    assert refused(first, "info")[0] == 77
    # Older than the box it is below of now: found all the same by the one above both.
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    eventually(lambda: first.show()["reachable"], 10)
    assert refused(first, "info")[0] == 77


def test_what_is_below_a_promoted_box_counts_for_those_above_it(fresh_yard):
    top = fresh_yard.new(inside={"depth": 3, "count": 4})
    assert top.run("box", "fork", "p").code == 0
    parent = child_of(top, f"{top.name}-p")
    assert parent.run("box", "fork", "a", "b").code == 0
    fresh_yard.box("promote", f"{parent.name}-b")
    assert {c["name"] for c in family(top)} == {parent.name, f"{parent.name}-a"}
    code, why = refused(top, "fork", "-n", "3")
    assert code == 75 and "may have 4" in why


def test_limits_lowered_meanwhile_hold_for_the_promoted(fresh_yard):
    box = fresh_yard.new()
    [name] = box.run("box", "fork", "kid").stdout.decode().split()
    fresh_yard.box("set", box.name, "--inside", "depth=1,count=2,rate=5")
    fresh_yard.box("promote", name)
    assert limits(child_of(box, box.name)) == (1, 2, 5)


def test_limits_outlive_the_box_that_had_them(fresh_yard):
    box = fresh_yard.new(inside={"depth": 2, "count": 7, "rate": 10})
    assert box.run("box", "fork", "a", "b").code == 0
    one, other = child_of(box, f"{box.name}-a"), child_of(box, f"{box.name}-b")
    assert one.run("box", "fork", "x").code == 0
    [outside] = fresh_yard.json("fork", box.name, "eve")["children"]
    outside = child_of(box, "eve")
    fresh_yard.box("rm", "-f", box.name)
    # 7 less the 4 there were: one more for each of three.
    assert limits(one) == (1, 2, 3) and limits(other) == (1, 1, 3)
    assert limits(outside) == (2, 7, 10)  # made by hand, as another box of the same kind
    code, why = refused(child_of(box, f"{one.name}-x"), "fork")
    assert code == 75 and "forks of forks" in why
    assert one.run("box", "fork", "y").code == 0
    code, why = refused(one, "fork", "z")
    assert code == 75 and "may have 2" in why


def test_forks_of_a_removed_fork_stay_in_the_tree(fresh_yard):
    top = fresh_yard.new(inside={"depth": 2})
    assert top.run("box", "fork", "p").code == 0
    parent = child_of(top, f"{top.name}-p")
    assert parent.run("box", "fork", "k").code == 0
    kid = child_of(top, f"{parent.name}-k")
    fresh_yard.box("stop", parent.name)
    fresh_yard.box("rm", parent.name)
    assert kid.show()["origin"]["box"] == top.id and [c["name"] for c in family(top)] == [kid.name]
    assert refused(kid, "fork")[0] == 75
    fresh_yard.box("set", top.name, "--inside", "off")
    fresh_yard.box("rm", "-f", top.name)
    assert refused(kid, "info")[0] == 77
    assert kid.show()["inside"]["enabled"] is False


def test_a_snapshot_answers_again_when_the_box_comes_back(fresh_yard):
    box = fresh_yard.new()
    script = 's=$(box snapshot first); if [ "$s" ]; then echo "$s" > /tmp/id; else echo back; fi; sleep 1000'
    exec_id = started(box, script)
    eventually(lambda: box.get("/tmp/id").status == 200, 20)
    snapshot = box.get("/tmp/id").body.decode().strip()
    assert snapshot in box.run("box", "timeline").stdout.decode()
    box.run("touch", "/tmp/later")
    started(box, "box rollback first; echo $? > /tmp/failed")
    eventually(lambda: output(box, exec_id) == "back\n", 20)
    assert box.stat("/tmp/later").status == 404 and box.stat("/tmp/failed").status == 404


def test_every_call_is_on_record(fresh_yard):
    box = fresh_yard.new()
    box.run("box", "snapshot", "one")
    box.run("box", "fork", "kid")
    kinds = [e["type"] for e in fresh_yard.events(box=box.id)]
    assert "inside.snapshot" in kinds and "inside.fork" in kinds


def test_a_rollback_that_is_undone_returns(fresh_yard):
    box = fresh_yard.new()
    box.run("box", "snapshot", "first")
    exec_id = started(box, "box rollback first; echo returned $?; sleep 1000")
    eventually(lambda: box.show()["state"] == "running" and exec_id not in
               [e["id"] for e in fresh_yard.api("GET", f"{box.path}/execs").json.get("execs", [])], 20)
    line = json.loads(box.run("box", "timeline", "--json").stdout)
    [kept] = [one for one in line["snapshots"] if one["detail"].startswith("before going back")]
    assert kept["cause"] == "inside"  # what it asked for counts as its own
    fresh_yard.box("rollback", box.name, kept["id"])
    eventually(lambda: output(box, exec_id).endswith("this rollback\nreturned 3\n"), 20)


def test_a_fork_in_flight_does_not_disturb_other_questions(fresh_yard):
    box = fresh_yard.new()
    done = box.run("sh", "-c", "for i in 1 2 3 4 5 6 7 8; do box info > /tmp/$i & done; box fork -n 2; wait; "
                               "cat /tmp/? | grep -c generation")
    lines = done.stdout.decode().split()
    assert len(lines) == 3 and lines[2] == "8", done
    for name in lines[:2]:
        child = child_of(box, name)
        eventually(lambda: child.run("sh", "-c", "cat /tmp/? | grep -c generation").stdout == b"8\n", 10)


def test_forks_from_inside_survive_the_daemon_and_can_be_used(fresh_yard):
    box = fresh_yard.new()
    [name] = box.run("box", "fork", "kid").stdout.decode().split()
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    eventually(lambda: box.show()["reachable"] and child_of(box, name).show()["reachable"], 10)
    assert box.run("box", "exec", "kid", "hostname").stdout.decode() == f"{name}\n"
    [name_of_second] = box.run("box", "exec", "kid", "--", "box", "fork").stdout.decode().split()
    assert {c["name"] for c in family(box)} == {name, name_of_second}
