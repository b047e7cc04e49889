"""The daemon itself: up, down, second one refused; kill -9 at any moment loses nothing."""
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

from boxtest import (BOX_BIN, EXIT_USAGE, Yard, cgroup_mounts, eventually, instance_cgroups, instance_processes, leftovers,
                     random_name)

COUNTER = "i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); sleep 0.01; done"


def lines(count):
    return "".join(f"line {i}\n" for i in range(count))


# ---- up and down -----------------------------------------------------------------------------


def test_up_and_down(image):
    yard = Yard()
    try:
        assert "127.0.0.1:" in yard.box("up").stdout
        pid = yard.daemon_pid()
        yard.box("up")
        assert yard.daemon_pid() == pid, "a second up starts nothing"
        yard.box("down")
        eventually(lambda: not os.path.exists(f"/proc/{pid}"), 5, "the daemon is gone")
        assert yard.box("ls", check=False).returncode == 69
        yard.box("down", check=False)
        yard.box("up")
        assert yard.answers()
    finally:
        problems = yard.destroy()
    assert not problems


def test_daemon_of_up_holds_neither_terminal_nor_pipes(image):
    yard = Yard()
    try:
        # communicate() would wait for ever if the daemon kept our pipe.
        yard.box("up", timeout=20)
        pid = yard.daemon_pid()
        assert os.getsid(pid) != os.getsid(0)
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                assert "/dev/pts" not in os.readlink(f"/proc/{pid}/fd/{fd}")
    finally:
        problems = yard.destroy()
    assert not problems


def test_up_on_a_taken_port_leaves_nothing():
    yard = Yard()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yard.env["BOX_LISTEN"] = f"127.0.0.1:{taken.getsockname()[1]}"
        (yard.home / "images").unlink()
        yard.home.rmdir()
        refused = yard.box("up", check=False)
        assert refused.returncode != 0 and "in use" in refused.stderr
        assert not yard.home.exists() and not yard.run_dir.exists()
    yard.box("up")
    yard.stop_daemon()
    # A home that was in use can be removed while the port is taken by another.
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yard.env["BOX_LISTEN"] = f"127.0.0.1:{taken.getsockname()[1]}"
        assert yard.box("up", check=False).returncode != 0
        yard.box("down", "--purge", "--yes")
        assert not yard.home.exists()
    Yard.alive.remove(yard)


def test_second_daemon_on_the_same_home_is_refused(fresh_yard):
    done = fresh_yard.box("serve", check=False, timeout=10)
    assert done.returncode and str(fresh_yard.daemon_pid()) in done.stderr
    other = fresh_yard.box("serve", check=False, timeout=10, env={"BOX_RUN": str(fresh_yard.base / "run2")})
    assert other.returncode and str(fresh_yard.daemon_pid()) in other.stderr
    assert fresh_yard.answers()


def test_two_daemons_with_different_homes_do_not_meet(yard, fresh_yard):
    made = fresh_yard.new(name="same-name")
    mine = yard.new(name="same-name")
    assert [b["id"] for b in fresh_yard.boxes()] == [made.id]
    assert made.id not in [b["id"] for b in yard.boxes()]
    mine.remove()
    assert made.out("hostname") == "same-name"


def test_purge_removes_everything_but_not_what_a_link_points_to(image, tmp_path):
    yard = Yard()
    try:
        yard.start_daemon()
        made = yard.new()
        made.start("sleep", "1000")
        (tmp_path / "precious").mkdir()
        (tmp_path / "precious" / "f").write_text("x")
        (yard.home / "images").unlink()
        (yard.home / "images").symlink_to(tmp_path / "precious")
        pid = yard.daemon_pid()
        # Nobody is there to be asked: nothing happens without --yes.
        assert yard.box("down", "--purge", check=False).returncode == EXIT_USAGE
        assert made.out("echo hi") == "hi"
        yard.box("down", "--purge", "--yes")
        yard.reap(pid)
        assert (tmp_path / "precious" / "f").read_text() == "x"
        assert leftovers(yard.name, yard.base) == []
        assert not list(yard.run_dir.glob("*"))
        assert not [p for p in yard.home.rglob("*") if made.id in p.name]
        # The home can be used again.
        (yard.home / "images").unlink(missing_ok=True)
        yard.start_daemon()
        assert yard.boxes() == []
    finally:
        problems = yard.destroy()
    assert not problems


def test_wrong_settings_are_told_with_their_line(yard, tmp_path):
    conf = tmp_path / "boxyard.conf"
    conf.write_text("# fine\nhmoe = /x\n")
    done = yard.box("serve", check=False, timeout=10, env={"BOX_CONF": str(conf), "BOX_HOME": str(tmp_path / "h")})
    assert done.returncode and "hmoe" in done.stderr and "2" in done.stderr
    done = yard.box("serve", check=False, timeout=10, env={"BOX_LISTEN": "nonsense", "BOX_HOME": str(tmp_path / "h")})
    assert done.returncode and "BOX_LISTEN" in done.stderr


def test_term_signal_is_a_graceful_end(fresh_yard):
    made = fresh_yard.new()
    pid = fresh_yard.daemon_pid()
    os.kill(pid, signal.SIGTERM)
    fresh_yard.reap(pid)
    fresh_yard.start_daemon()
    assert made.show()["state"] == "running" and made.out("echo hi") == "hi"
    assert [e["type"] for e in fresh_yard.events()].count("daemon.stopped") == 1


# ---- boxes outlive the daemon ----------------------------------------------------------------


@pytest.mark.parametrize("how", ["down", "kill"])
def test_boxes_and_programs_outlive_the_daemon(fresh_yard, how):
    made = fresh_yard.new(labels={"a": "b"}, memory="256M")
    started = made.start("sh", "-c", COUNTER % 150 + "; exit 9")
    time.sleep(0.3)
    fresh_yard.stop_daemon() if how == "down" else fresh_yard.kill_daemon()
    assert instance_processes(fresh_yard.name, fresh_yard.base), "the box runs without its daemon"
    time.sleep(0.3)
    fresh_yard.start_daemon()
    shown = made.show()
    assert shown["state"] == "running" and shown["labels"] == {"a": "b"} and shown["limits"]["memory"] == 256 << 20
    assert started["id"] in [e["id"] for e in made.execs()]
    done = fresh_yard.box("attach", made.name, started["id"], check=False)
    assert done.returncode == 9 and done.stdout == lines(150)


def test_exec_that_ended_while_no_daemon_ran_is_known(fresh_yard):
    made = fresh_yard.new()
    started = made.start("sh", "-c", "sleep 0.3; echo done; exit 4")
    fresh_yard.kill_daemon()
    time.sleep(0.6)
    fresh_yard.start_daemon()
    over = made.get_exec(started["id"])
    assert over["state"] == "exited" and over["exit_code"] == 4
    assert made.logs(started["id"], raw="true") == b"done\n"


def test_client_goes_on_across_a_restart_without_loss(fresh_yard):
    made = fresh_yard.new()
    client = fresh_yard.spawn("exec", made.name, "--", "sh", "-c", COUNTER % 200 + "; exit 3")
    got = client.stdout.readline()
    time.sleep(0.3)
    fresh_yard.kill_daemon()
    time.sleep(0.2)
    fresh_yard.start_daemon()
    out, _ = client.communicate(timeout=20)
    assert (got + out).decode() == lines(200) and client.returncode == 3


def test_memory_kill_while_no_daemon_runs_is_noticed_or_harmless(fresh_yard):
    made = fresh_yard.new(memory="64M")
    made.start("sh", "-c", "sleep 0.3; python3 -c 'bytearray(300 << 20)'")
    fresh_yard.kill_daemon()
    time.sleep(0.8)
    fresh_yard.start_daemon()
    assert made.out("echo alive") == "alive"
    since = fresh_yard.next_offset()
    made.python("bytearray(300 << 20)", check=False)
    eventually(lambda: "limit.memory" in [e["type"] for e in fresh_yard.events(since=since)], what="watched again")


def test_box_that_died_while_no_daemon_ran_has_a_cause_on_record(fresh_yard):
    made = fresh_yard.new()
    made.sh("echo kept > /root/f")
    daemon = fresh_yard.daemon_pid()
    inside = [p for p in instance_processes(fresh_yard.name, fresh_yard.base) if p != daemon]
    fresh_yard.kill_daemon()
    for pid in inside:
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    fresh_yard.start_daemon()
    shown = made.show()
    assert shown["state"] == "stopped" and shown["end"]["reason"], shown
    fresh_yard.box("start", made.name)
    assert made.out("cat /root/f") == "kept"


def test_box_whose_init_is_killed_is_stopped_with_a_cause(fresh_yard):
    made = fresh_yard.new()
    daemon = fresh_yard.daemon_pid()
    for pid in instance_processes(fresh_yard.name, fresh_yard.base):
        if pid != daemon:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    eventually(lambda: made.show()["state"] == "stopped")
    assert made.show()["end"]["reason"] and made.show()["end"]["detail"]
    stopped = [e for e in fresh_yard.events(box=made.id) if e["type"] in ("box.stopped", "box.failed")]
    assert stopped
    eventually(lambda: not [c for c in instance_cgroups(fresh_yard.name) if made.id in c], what="no cgroup is left")


def test_event_offsets_go_on_across_a_restart(fresh_yard):
    fresh_yard.new()
    before = fresh_yard.events()
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    fresh_yard.new()
    after = fresh_yard.events()
    assert after[:len(before)] == before
    assert [e["offset"] for e in after] == list(range(after[0]["offset"], after[0]["offset"] + len(after)))
    assert [e["type"] for e in after].count("daemon.started") == 2


def test_idempotency_key_outlives_the_daemon(fresh_yard):
    key = {"Idempotency-Key": "k1"}
    first = fresh_yard.api("POST", "/v1/boxes", {}, headers=key, expect=201).json
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    assert fresh_yard.api("POST", "/v1/boxes", {}, headers=key, expect=200).json["id"] == first["id"]


def test_tokens_outlive_the_daemon(fresh_yard):
    name = random_name("tok")
    fresh_yard.box("token", "create", name)
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    assert name in fresh_yard.box("token", "ls").stdout


def test_stopped_box_stays_stopped_across_a_restart(fresh_yard):
    made = fresh_yard.new()
    fresh_yard.box("stop", made.name)
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    assert made.show()["state"] == "stopped" and made.show()["end"]["reason"] == "stopped"
    fresh_yard.box("start", made.name)
    assert made.out("echo hi") == "hi"


def test_half_made_boxes_are_gone_or_whole(fresh_yard):
    """The daemon dies in the middle of ten creations."""
    threads = []
    for n in range(10):
        def create(n=n):
            try:
                fresh_yard.api("POST", "/v1/boxes", {"name": f"half-{n}"})
            except OSError:
                pass
            except Exception:  # an answer cut in the middle
                pass
        threads.append(threading.Thread(target=create))
        threads[-1].start()
    time.sleep(0.02)
    fresh_yard.kill_daemon()
    for thread in threads:
        thread.join()
    fresh_yard.start_daemon()
    eventually(lambda: all(b["state"] in ("running", "stopped") for b in fresh_yard.boxes()), what="all settled")
    for box in fresh_yard.boxes():
        if box["state"] == "running":
            assert fresh_yard.run(box["name"], "echo", "hi").stdout == b"hi\n"
    known = {b["id"] for b in fresh_yard.boxes()}
    in_cgroups = {os.path.basename(c) for c in instance_cgroups(fresh_yard.name)} - {fresh_yard.name}
    assert {c for c in in_cgroups if len(c) >= 8 and c.isalnum() and c.islower()} <= known, (in_cgroups, known)


def test_daemon_killed_during_a_removal_finishes_it(fresh_yard):
    made = fresh_yard.new()
    made.sh("mkdir /root/many; cd /root/many; seq 1 5000 | xargs touch")
    thread = threading.Thread(target=lambda: subprocess.run([str(BOX_BIN), "rm", "-f", made.name], env=fresh_yard.env,
                                                            capture_output=True, check=False))
    thread.start()
    time.sleep(0.02)
    fresh_yard.kill_daemon()
    thread.join()
    fresh_yard.start_daemon()
    if made.id in [b["id"] for b in fresh_yard.boxes()]:
        eventually(lambda: made.remove().status in (204, 404))
    eventually(lambda: not [p for p in fresh_yard.home.rglob(f"*{made.id}*")], what="no file is left")
    eventually(lambda: not [c for c in instance_cgroups(fresh_yard.name) if made.id in c], what="no cgroup is left")


def test_follow_of_events_by_the_client_goes_on_or_says_so(fresh_yard):
    client = fresh_yard.spawn("events", "--follow", "--json")
    assert json.loads(client.stdout.readline())["type"] == "daemon.started"
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    time.sleep(0.3)
    client.terminate()
    client.communicate(timeout=10)
    assert client.returncode != 0


# ---- doctor, and the CRIU that was found -----------------------------------------------------


def test_doctor_works_without_a_daemon(image):
    yard = Yard()
    try:
        before = set(os.listdir(yard.home))
        done = yard.box("doctor", check=False)
        assert "namespaces" in done.stdout and "overlay" in done.stdout and "not running" in done.stderr, done
        assert done.returncode == 0, done.stdout
        answer = json.loads(yard.box("doctor", "--json").stdout)
        assert answer["ok"] and any(c["name"] == "criu build" for c in answer["checks"])
        assert set(os.listdir(yard.home)) == before, "nothing stays"
        left = [one for mount in cgroup_mounts() for one in os.listdir(mount) if one.startswith("boxyard-doctor-")]
        assert not [one for one in left if not os.path.exists(f"/proc/{one.rpartition('-')[2]}")]
    finally:
        problems = yard.destroy()
    assert not problems, problems


@pytest.mark.parametrize("found", ["none", "another's", "the operator's"])
def test_up_warns_of_a_criu_that_is_not_ours(image, tmp_path, found):
    yard = Yard()
    criu = tmp_path / "criu"
    if found != "none":
        criu.write_text("#!/bin/sh\nexit 1\n")
        criu.chmod(0o755)
    if found == "another's":
        (tmp_path / "key").write_text("0123456789abcdef\n")
    yard.env["BOX_CRIU"] = str(criu)
    try:
        done = yard.box("up")
        assert ("warning" in done.stderr) == (found != "the operator's"), done.stderr
        assert {"none": "there is no CRIU", "another's": "another version"}.get(found, "") in done.stderr
        problem = yard.info()["criu_problem"]
        assert bool(problem) == (found != "the operator's")
        check = [c for c in yard.json("doctor", check=False)["checks"] if c["name"] == "criu build"][0]
        assert check["ok"] == (found == "the operator's")
    finally:
        problems = yard.destroy()
    assert not problems, problems


# ---- drivers ---------------------------------------------------------------------------------


def test_drivers_are_listed_and_one_can_be_demanded(image):
    yard = Yard()
    try:
        yard.box("up")
        drivers = yard.info()["drivers"]
        assert drivers["ns"]["available"] and drivers["ns"]["default"]
        assert {"suspend", "sleep", "nest"} <= set(drivers["ns"]["can"])
        done = yard.box("new", "a", "--driver", "nosuch", check=False)
        assert done.returncode == 64 and "there is no driver 'nosuch'" in done.stderr
        assert "drivers: ns" in done.stderr
        yard.box("down")
        done = yard.box("up", check=False, env={"BOX_DRIVER": "nosuch"})
        assert done.returncode != 0 and "there is no driver 'nosuch'" in done.stderr
        yard.box("up", env={"BOX_DRIVER": "ns"})
        assert yard.json("new", "b")["driver"] == "ns"
    finally:
        assert not yard.destroy()
