"""The life of a box: new, ls, show, stop, start, rename, rm, stats, ps, limits, labels."""
import concurrent.futures
import json
import signal
import threading
import time

import pytest

from boxtest import DRIVER, EXIT_STATE, SLOWNESS, eventually, random_name

pytestmark = pytest.mark.asan


def test_new_prints_the_name_and_the_box_runs(yard):
    name = random_name()
    assert yard.box("new", name).stdout.strip() == name
    shown = yard.json("show", name)
    assert shown["state"] == "running"
    assert shown["driver"] == DRIVER and shown["profile"] == "standard" and shown["image"] == "debian"
    assert shown["id"].isalnum() and shown["id"] == shown["id"].lower()
    assert yard.box("exec", name, "--", "hostname").stdout.strip() == name
    yard.box("rm", "-f", name)
    assert name not in [b["name"] for b in yard.boxes()]


def test_new_makes_up_a_name(yard):
    name = yard.box("new").stdout.strip()
    assert yard.json("show", name)["name"] == name
    yard.box("rm", "-f", name)


def test_box_is_found_by_id_and_by_name(yard, box):
    assert yard.json("show", box.id)["name"] == box.name
    assert yard.json("show", box.name)["id"] == box.id


def test_flags_of_new_are_shown(yard):
    name, profile = random_name(), "standard" if DRIVER == "vm" else "nested"
    yard.box("new", name, "--cpu", "1.5", "--memory", "512M", "--disk", "1G", "--pids", "100", "--env", "A=1",
             "-e", "B=two words", "--label", "team=x", "-l", "n=2", "--profile", profile, "--driver", DRIVER)
    shown = yard.json("show", name)
    assert shown["limits"] == {"cpu": 1.5, "memory": 512 << 20, "disk": 1 << 30, "pids": 100}
    assert shown["env"] == {"A": "1", "B": "two words"}
    assert shown["labels"] == {"team": "x", "n": "2"}
    assert shown["profile"] == profile
    assert yard.box("exec", name, "--", "sh", "-c", "echo $A-$B").stdout == "1-two words\n"
    people = yard.box("show", name).stdout
    assert "512M" in people and "team" in people
    yard.box("rm", "-f", name)


def test_new_with_a_command_runs_it_and_gives_its_exit_code(yard):
    name = random_name()
    done = yard.box("new", name, "--", "sh", "-c", "echo out; echo err >&2; exit 7", check=False)
    assert done.returncode == 7
    assert "out\n" in done.stdout and "err\n" in done.stderr
    assert yard.json("show", name)["state"] == "running"
    yard.box("rm", "-f", name)


def test_new_rm_removes_the_box_when_its_command_ends(yard):
    name = random_name()
    assert yard.box("new", name, "--rm", "--", "sh", "-c", "exit 3", check=False).returncode == 3
    eventually(lambda: name not in [b["name"] for b in yard.boxes()], what="the box is gone")


def test_detached_command_of_a_box_that_removes_itself(yard):
    name = random_name()
    yard.api("POST", "/v1/boxes", {"name": name, "command": ["sleep", "0.2"], "remove_on_exit": True}, expect=201)
    eventually(lambda: name not in [b["name"] for b in yard.boxes()], what="the box is gone")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP, "reader"])
def test_new_rm_removes_the_box_when_the_command_is_killed(yard, how):
    run = yard.spawn("new", "--rm", "--", "sh", "-c", "echo ready; while :; do sleep 0.05; echo x; done", text=True)
    assert run.stdout.readline() == "ready\n"
    [name] = [one["name"] for one in yard.boxes() if "boxyard.run" in one["labels"]]
    if how == "reader":
        run.stdout.close()
    else:
        run.send_signal(how)
    assert run.wait(20) != 0
    eventually(lambda: name not in [one["name"] for one in yard.boxes()], 15)


def test_rm_box_goes_when_stopped(yard):
    made = yard.new(remove_on_exit=True)
    yard.box("stop", made.name)
    eventually(lambda: made.name not in [b["name"] for b in yard.boxes()], what="the box is gone")


def test_stop_and_start_keep_files_but_not_processes(yard, box):
    box.sh("echo kept > /root/f; mkdir -p /srv/d; echo x > /run/volatile")
    box.start("sleep", "1000")
    yard.box("stop", box.name)
    shown = box.show()
    assert shown["state"] == "stopped" and shown["ended_at"] and shown["end"]["reason"] == "stopped"
    yard.box("start", box.name)
    assert box.show()["state"] == "running"
    assert box.out("cat /root/f; test -d /srv/d && echo dir; test -e /run/volatile || echo gone") == "kept\ndir\ngone"
    assert not any("sleep 1000" in c for c in box.commands())


def test_stop_is_gentle_first(yard, box):
    script = "trap 'echo bye > /root/said; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    started = box.start("sh", "-c", script)
    eventually(lambda: b"ready" in box.logs(started["id"], raw="true"))
    yard.box("stop", box.name)
    yard.box("start", box.name)
    assert box.out("cat /root/said") == "bye"


def test_stop_kills_what_does_not_listen(yard, box):
    started = box.start("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    eventually(lambda: b"ready" in box.logs(started["id"], raw="true"))
    began = time.monotonic()
    yard.api("POST", f"{box.path}/stop", {"timeout_ms": 300}, expect=200)
    assert time.monotonic() - began < 5 * SLOWNESS
    assert box.show()["state"] == "stopped"


def test_stopping_a_stopped_box_and_starting_a_running_one_is_told_or_fine(yard, box):
    assert yard.box("start", box.name, check=False).returncode in (0, EXIT_STATE)
    yard.box("stop", box.name)
    yard.box("stop", box.name)


def test_several_boxes_in_one_command(yard, make_box):
    one, two = make_box(), make_box()
    yard.box("stop", one.name, two.name)
    assert {one.show()["state"], two.show()["state"]} == {"stopped"}
    yard.box("start", one.name, two.name)
    yard.box("rm", "-f", one.name, two.name)
    assert not {one.name, two.name} & {b["name"] for b in yard.boxes()}


def test_rm_by_label_takes_those_alone(yard):
    try:
        for name, labels in (("won", []), ("try-a", ["-l", "try=1"]), ("try-b", ["-l", "try=2"])):
            yard.box("new", name, *labels)
        for wrong in (["-l", ""], ["-l", "=1"], ["won", "-l", "try"], ["--all", "-l", "try"]):
            assert yard.box("rm", "-f", *wrong, check=False).returncode == 64
        assert yard.box("rm", "-f", "-l", "try=1").stdout == "try-a\n"
        assert yard.box("rm", "-f", "--label", "try").stdout == "try-b\n"
        assert yard.box("rm", "-f", "-l", "try").stdout == ""
        assert yard.box("show", "won", "--json")
    finally:
        yard.box("rm", "-f", "won", "try-a", "try-b", check=False)


def test_rm_refuses_a_running_box_without_force(yard, box):
    done = yard.box("rm", box.name, check=False)
    assert done.returncode == EXIT_STATE and "-f" in done.stderr
    assert box.show()["state"] == "running"
    yard.box("stop", box.name)
    yard.box("rm", box.name)


def test_rename_changes_name_and_hostname(yard, box):
    name = random_name("r")
    yard.box("rename", box.name, name)
    assert box.show()["name"] == name
    assert yard.box("exec", name, "--", "hostname").stdout.strip() == name
    assert yard.api("GET", f"/v1/boxes/{box.name}").status == 404
    yard.box("stop", name)
    yard.box("start", name)
    assert yard.box("exec", name, "--", "hostname").stdout.strip() == name


def names_in_hosts(box):
    """Of the box itself; once its files have followed."""
    eventually(lambda: box.run("cat", "/etc/hostname").stdout == box.run("hostname").stdout, 10)
    lines = box.run("cat", "/etc/hosts").stdout.decode().splitlines()
    return [line.split()[1:] for line in lines if line.startswith("127.0.1.1")]


@pytest.mark.parametrize("depth", ["running", "suspend", "hibernate", "stop"])
def test_hosts_follow_the_name(yard, make_box, depth):
    box, name = make_box(), random_name("r")
    assert names_in_hosts(box) == [[box.name]]
    box.sh("echo 10.9.8.7 friend >> /etc/hosts; echo '127.0.1.1 mine' >> /etc/hosts")
    if depth != "running":
        yard.box(depth, box.name)
    yard.box("rename", box.name, name)
    yard.box("wake", name)
    box.name = name
    assert names_in_hosts(box) == [[name], ["mine"]]
    assert b"10.9.8.7 friend\n" in box.run("cat", "/etc/hosts").stdout


def test_rename_refuses_taken_and_bad_names(yard, make_box):
    one, two = make_box(), make_box()
    assert yard.api("PATCH", one.path, {"name": two.name}).code == "exists"
    assert yard.api("PATCH", one.path, {"name": "No Good"}).code == "invalid"
    assert one.show()["name"] == one.name


def test_labels_filter_the_list(yard, make_box):
    tag = random_name("tag")
    one, two = make_box(labels={"tag": tag, "k": "1"}), make_box(labels={"tag": tag, "k": "2"})

    def names(*args):
        return set(yard.box("ls", "-q", *args).stdout.split())

    assert names("-l", f"tag={tag}") == {one.name, two.name}
    assert names("-l", f"tag={tag}", "-l", "k=2") == {two.name}
    yard.box("stop", one.name)
    assert names("-l", f"tag={tag}", "--state", "stopped") == {one.name}
    assert names("-l", f"tag={tag}", "--state", "running") == {two.name}


def test_list_comes_in_pages(yard, make_box):
    tag = random_name("tag")
    made = [make_box(labels={"tag": tag}).id for _ in range(5)]
    found, after = [], None
    while True:
        query = {"label": f"tag={tag}", "limit": 2, **({"after": after} if after else {})}
        page = yard.api("GET", "/v1/boxes", query=query, expect=200).json
        assert len(page["boxes"]) <= 2
        found += [b["id"] for b in page["boxes"]]
        after = page["next"]
        if not after:
            break
    assert found == made


def test_idempotency_key_gives_the_same_box(yard):
    key = {"Idempotency-Key": random_name("key")}
    first = yard.api("POST", "/v1/boxes", {"name": random_name()}, headers=key, expect=201).json
    again = yard.api("POST", "/v1/boxes", {"name": random_name()}, headers=key, expect=200).json
    assert again["id"] == first["id"] and again["name"] == first["name"]
    yard.box("rm", "-f", first["name"])


def test_same_key_at_the_same_moment_makes_one_box(yard):
    key, label = {"Idempotency-Key": random_name("key")}, random_name("l")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(
            lambda _: yard.api("POST", "/v1/boxes", {"labels": {"l": label}}, headers=key), range(8)))
    assert {r.status for r in replies} <= {200, 201}
    assert len({r.json["id"] for r in replies}) == 1
    assert len(yard.boxes(label=f"l={label}")) == 1
    yard.box("rm", "-f", replies[0].json["id"])


def test_same_name_at_the_same_moment_makes_one_box(yard):
    name = random_name()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        status = list(pool.map(lambda _: yard.api("POST", "/v1/boxes", {"name": name}).status, range(8)))
    assert sorted(status) == [201] + [409] * 7
    yard.box("rm", "-f", name)


def test_twenty_boxes_are_made_and_removed_in_parallel(yard):
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        made = list(pool.map(lambda _: yard.new(), range(20)))
        outs = list(pool.map(lambda b: b.run("hostname").stdout.decode().strip(), made))
        gone = list(pool.map(lambda b: b.remove().status, made))
    assert outs == [b.name for b in made]
    assert gone == [204] * 20


def test_removing_twice_at_once_is_harmless(yard):
    made = yard.new()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        status = sorted(pool.map(lambda _: made.remove().status, range(4)))
    assert status[0] == 204 and set(status) <= {204, 404, 409}
    assert made.id not in [b["id"] for b in yard.boxes()]


# ---- limits ----------------------------------------------------------------------------------


def test_cpu_limit_holds(yard, make_box):
    made = make_box(cpu="0.2")
    made.start("sh", "-c", "while :; do :; done")
    used = []
    for _ in range(2):
        time.sleep(2)
        used.append((time.monotonic(), yard.api("GET", f"{made.path}/stats", expect=200).json["cpu_us"]))
    (began, before), (ended, after) = used
    assert 0.05 < (after - before) / 1e6 / (ended - began) < 0.4


def test_memory_limit_kills_and_is_recorded_with_its_reason(yard, make_box):
    made = make_box(memory="64M")
    since = yard.next_offset()
    done = made.python("x = bytearray(400 << 20); print(len(x))", check=False)
    assert done.returncode == 137, done
    events = eventually(lambda: [e for e in yard.events(since=since, box=made.id) if e["type"] == "limit.memory"],
                        what="the kill is recorded")
    assert events[0]["box"] == made.id
    assert "64M" in json.dumps(events[0]) or str(64 << 20) in json.dumps(events[0])
    assert made.show()["state"] == "running"
    assert made.out("echo alive") == "alive"


def test_pids_limit_holds(yard, make_box):
    made = make_box(pids=24)
    done = made.python("""
import os, sys
made = 0
try:
    for _ in range(100):
        if os.fork() == 0:
            import time; time.sleep(20); os._exit(0)
        made += 1
except OSError as error:
    print(made, error.errno, flush=True)
import signal; os.kill(0, signal.SIGTERM)
""", check=False)
    made_children, error = map(int, done.stdout.split())
    assert 5 < made_children < 24 and error == 11
    assert eventually(lambda: made.run("echo", "hi").stdout) == b"hi\n"


def test_rest_takes_limits_as_numbers_and_texts(yard, make_box):
    made = make_box(cpu=0.5, memory=128 << 20, pids=50, disk="1G")
    assert made.show()["limits"] == {"cpu": 0.5, "memory": 128 << 20, "disk": 1 << 30, "pids": 50}


# ---- figures ---------------------------------------------------------------------------------


def test_ps_lists_the_processes_of_the_box_only(yard, box):
    started = box.start("sleep", "777")
    found = eventually(lambda: [p for p in box.processes() if "sleep 777" in p["command"]])
    assert found[0]["exec"] == started["id"]
    assert len(box.processes()) < 10
    assert "sleep 777" in yard.box("ps", box.name).stdout
    assert started["id"] in yard.box("ps", box.name, "--execs").stdout


def test_stats_tell_what_a_box_uses(yard, box):
    box.python("x = bytearray(20 << 20); sum(range(300000))")
    one = yard.api("GET", f"{box.path}/stats", expect=200).json
    assert one["cpu_us"] > 1000 and one["memory_bytes"] > 0
    all_boxes = yard.api("GET", "/v1/stats", expect=200).json["boxes"]
    assert box.id in [b["box"] for b in all_boxes]
    assert box.name in yard.box("stats").stdout
    assert box.name in yard.box("stats", "--once").stdout


def test_removal_during_other_verbs_leaves_no_one_waiting(yard):
    """Whoever removes hears that it is gone; whoever stopped or created it hears that it was
    removed."""
    for _ in range(12):
        made = yard.new()
        answers = {}

        def call(name, method, path):
            answers[name] = yard.api(method, path).status

        threads = [threading.Thread(target=call, args=args) for args in (
            ("stop", "POST", f"{made.path}/stop"), ("remove", "DELETE", made.path + "?force=true"),
            ("again", "DELETE", made.path + "?force=true"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert answers["remove"] in (204, 404) and answers["again"] in (204, 404)
        assert 204 in (answers["remove"], answers["again"])
        assert answers["stop"] in (200, 404, 409)
        assert made.id not in [b["id"] for b in yard.boxes()]


def test_removal_while_it_is_being_created(yard):
    for n in range(12):
        name = random_name()
        creator = threading.Thread(target=lambda: yard.api("POST", "/v1/boxes", {"name": name}))
        creator.start()
        deadline = time.monotonic() + 10
        while yard.api("DELETE", f"/v1/boxes/{name}", query={"force": "true"}).status != 204:
            assert time.monotonic() < deadline
        creator.join(20)
        assert name not in [b["name"] for b in yard.boxes()]
    assert yard.answers()


def test_a_kill_for_memory_is_explained(yard, make_box):
    made = make_box(memory="64M")
    done = yard.box("exec", made.name, "--", "python3", "-c", "b = bytearray(range(256)) * (1 << 20)", check=False)
    assert done.returncode == 137 and "memory limit of 64M" in done.stderr
