"""The disk of a box: its limit, what happens there, images saved from it, differences, its
workspace kept."""
import io
import os
import subprocess
import tarfile
import time

import pytest

from boxtest import eventually, random_name

MIB = 1 << 20


def types(yard, box):
    return [e["type"] for e in yard.events(box=box.id)]


def quota_or_skip(yard):
    if yard.api("GET", "/v1/pool", expect=200).json["quota"] == "none":
        pytest.skip("LOUD: the pool of this machine has no quota; the limit of a disk cannot be tested here")


def diff(yard, box, **query):
    lines = yard.api("GET", f"/v1/boxes/{box.id}/diff", query=query, expect=200).lines
    assert lines[-1]["type"] == "end" and lines[-1]["changes"] == len(lines) - 1
    return {line["path"]: line["change"] for line in lines[:-1]}


# ---- the limit -------------------------------------------------------------------------------


@pytest.mark.asan
def test_a_box_over_its_disk_limit_gets_an_error_and_lives_on(yard, make_box):
    quota_or_skip(yard)
    box = make_box(disk="48M")
    done = box.sh("dd if=/dev/zero of=/big bs=1M count=100", check=False)
    assert done.returncode != 0 and "quota exceeded" in done.stderr.lower()
    assert box.sh("echo x > /more", check=False).returncode != 0 or box.out("stat -c %s /more") == "0"
    assert 30 * MIB < int(box.out("stat -c %s /big")) <= 48 * MIB
    eventually(lambda: "limit.disk" in types(yard, box), 5, "the event is raised")
    event = [e for e in yard.events(box=box.id) if e["type"] == "limit.disk"][0]
    assert event["data"]["limit_bytes"] == 48 * MIB and event["data"]["policy"] == "notify"
    assert box.show()["state"] == "running"
    box.sh("rm /big; sync")
    eventually(lambda: box.sh("dd if=/dev/zero of=/again bs=1M count=20 conv=fsync", check=False).returncode == 0, 20,
               "what was deleted can be used again", every=0.5)
    assert types(yard, box).count("limit.disk") == 1


def test_the_limit_can_be_changed_while_the_box_runs(yard, make_box):
    quota_or_skip(yard)
    box = make_box(disk="16M")
    assert box.sh("dd if=/dev/zero of=/a bs=1M count=40", check=False).returncode != 0
    yard.box("set", box.name, "--disk", "80M", "--memory", "256M", "--pids", "100")
    shown = box.show()
    assert shown["limits"]["disk"] == 80 * MIB and shown["limits"]["memory"] == 256 * MIB
    assert shown["limits"]["pids"] == 100
    box.sh("dd if=/dev/zero of=/a bs=1M count=40 conv=fsync")
    assert box.sh("dd if=/dev/zero of=/b bs=1M count=80", check=False).returncode != 0
    yard.box("set", box.name, "--disk", "0")
    box.sh("dd if=/dev/zero of=/b bs=1M count=80 conv=fsync")
    assert yard.api("PATCH", f"/v1/boxes/{box.id}", {"disk": 1000}).status == 400
    assert yard.api("PATCH", f"/v1/boxes/{box.id}", {"on_limit": "explode"}).status == 400


def test_limits_survive_a_restart_of_daemon_and_box(fresh_yard):
    quota_or_skip(fresh_yard)
    box = fresh_yard.new(name="ada", disk="24M")
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    assert box.sh("dd if=/dev/zero of=/a bs=1M count=60", check=False).returncode != 0
    fresh_yard.box("stop", "ada", "-t", "1")
    fresh_yard.box("start", "ada")
    assert box.sh("dd if=/dev/zero of=/b bs=1M count=60", check=False).returncode != 0


@pytest.mark.parametrize("policy,state", [("pause", "suspended"), ("stop", "stopped")])
def test_policy_on_reaching_a_limit(yard, make_box, policy, state):
    quota_or_skip(yard)
    box = make_box(disk="16M", on_limit=policy)
    exec_id = box.start("sh", "-c", "dd if=/dev/zero of=/a bs=1M count=60; sleep 100")
    assert exec_id
    eventually(lambda: box.show()["state"] == state, 10, f"the box is {state}")
    if policy == "stop":
        assert box.show()["end"] == {"reason": "limit", "detail": "limit.disk"}
        return
    assert yard.api("POST", f"/v1/boxes/{box.id}/exec", {"argv": ["true"]}).status == 429
    yard.box("resume", box.name)
    assert box.out("echo alive") == "alive"


def test_process_limit_is_told(yard, make_box):
    box = make_box(pids=20)
    box.sh("for i in $(seq 40); do sleep 2 & done 2>/dev/null; true", check=False)
    eventually(lambda: "limit.pids" in types(yard, box), 5, "the event is raised")


def test_suspend_and_resume(yard, make_box):
    box = make_box()
    box.start("sh", "-c", "while :; do echo x >> /ticks; sleep 0.02; done")
    eventually(lambda: box.sh("test -s /ticks", check=False).returncode == 0)
    yard.box("suspend", box.name)
    assert box.show()["state"] == "suspended"
    cpu = yard.api("GET", f"/v1/boxes/{box.id}/stats", expect=200).json["cpu_us"]
    time.sleep(0.3)
    assert yard.api("GET", f"/v1/boxes/{box.id}/stats", expect=200).json["cpu_us"] - cpu < 20000
    yard.box("suspend", box.name)
    yard.box("resume", box.name)
    before = int(box.out("wc -l < /ticks"))
    eventually(lambda: int(box.out("wc -l < /ticks")) > before)


def test_a_suspended_box_is_adopted_stopped_and_removed(fresh_yard):
    one, two = fresh_yard.new(name="one"), fresh_yard.new(name="two")
    fresh_yard.box("suspend", "one", "two")
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    assert one.show()["state"] == "suspended"
    fresh_yard.box("resume", "one")
    assert one.out("echo hi") == "hi"
    fresh_yard.box("suspend", "one")
    fresh_yard.box("stop", "one", "-t", "2")
    assert one.show()["state"] == "stopped"
    assert two.remove().status == 204


# ---- save ------------------------------------------------------------------------------------


@pytest.mark.asan
def test_save_makes_an_image_and_the_box_goes_on(yard, make_box):
    box, name = make_box(), random_name("gold")
    box.sh("echo v1 > /etc/marker; rm /etc/motd; mkdir -p /srv/deep; ln /etc/marker /srv/deep/link; "
           "install -m 4755 /bin/true /srv/suid")
    saved = yard.api("POST", f"/v1/boxes/{box.id}/save", {"name": name}, expect=201).json
    assert saved["name"] == name and saved["parent"] == box.show()["image_id"]
    box.sh("echo v2 > /etc/marker")
    child = make_box(image=name)
    assert child.out("cat /etc/marker /srv/deep/link; test -e /etc/motd && echo motd || echo none") == "v1\nv1\nnone"
    assert child.out("stat -c %a:%U /srv/suid") == "4755:root"
    assert box.out("cat /etc/marker") == "v2"
    assert child.sh("useradd -m x && su x -c /srv/suid").returncode == 0


def twins(box):
    """Files that look like one to whoever compares device and inode, though nobody linked them."""
    lines = box.out("find /etc /srv /root /opt -xdev -type f -links 1 -printf '%D:%i %p\\n'").splitlines()
    seen, found = {}, []
    for number, path in (line.split(" ", 1) for line in lines):
        if number in seen:
            found.append((seen[number], path))
        seen[number] = path
    return found


def test_files_of_all_layers_are_told_apart(yard, make_box):
    """Subvolumes of a btrfs count their inodes from the same start, and overlayfs passes the
    numbers on."""
    names, image = [random_name("l") for _ in range(3)], None
    for depth, name in enumerate(names):
        box = make_box(**({"image": image} if image else {}))
        box.sh(f"for i in $(seq 300); do echo {depth} > /srv/{depth}-$i; done; echo x >> /etc/passwd; rm -f /srv/*-1??")
        assert twins(box) == []
        yard.box("save", box.name, name)
        image = name
    box = make_box(image=image)
    box.sh("for i in $(seq 300); do echo last > /srv/last-$i; done; cat /etc/passwd > /srv/copy; cat /srv/0-1 > /srv/2-1")
    assert twins(box) == []
    yard.box("stop", box.name, "-t", "0")
    yard.box("start", box.name)
    box.sh("for i in $(seq 300); do echo again > /srv/again-$i; done")
    assert twins(box) == []


def test_images_form_a_tree_and_are_not_removed_while_used(yard, make_box):
    first, second = random_name("a"), random_name("b")
    box = make_box()
    box.sh("echo 1 > /one")
    yard.box("save", box.name, first)
    child = make_box(image=first)
    child.sh("echo 2 > /two; rm /one")
    yard.box("save", child.name, second)
    grandchild = make_box(image=second)
    assert grandchild.out("ls /one /two 2>/dev/null || true") == "/two"
    used = yard.box("image", "rm", first, check=False)
    assert used.returncode != 0 and child.name in used.stderr
    assert child.remove().status == 204
    used = yard.box("image", "rm", first, check=False)
    assert used.returncode != 0 and second in used.stderr
    used = yard.box("image", "rm", second, check=False)
    assert used.returncode != 0 and grandchild.name in used.stderr
    assert grandchild.remove().status == 204
    yard.box("image", "rm", second)
    yard.box("image", "rm", first)
    assert yard.box("image", "show", second, check=False).returncode != 0


def test_sizes_of_images_are_real(yard, make_box):
    box, name = make_box(), random_name("big")
    box.sh("head -c 20000000 /dev/urandom > /blob; sync")
    yard.box("save", box.name, name)

    def measured():
        shown = yard.json("image", "show", name)
        return shown if shown["own_bytes"] else None

    shown = eventually(measured, 10, "the layer is measured")
    assert 20_000_000 <= shown["own_bytes"] < 25_000_000
    assert shown["shared_bytes"] > 100_000_000 and shown["layers"][0]["shared_by"] == 0
    yard.box("image", "rm", name)


def test_a_saved_image_is_whole_after_the_daemon_is_killed(fresh_yard):
    box = fresh_yard.new(name="ada")
    box.sh("echo kept > /kept")
    fresh_yard.box("save", "ada", "gold")
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    assert fresh_yard.new(image="gold").out("cat /kept") == "kept"


def test_save_of_a_box_that_writes_is_never_torn(yard, make_box):
    box = make_box()
    box.start("sh", "-c", "i=0; while :; do i=$((i+1)); echo $i > /n.tmp; mv /n.tmp /n; done")
    eventually(lambda: box.sh("test -s /n", check=False).returncode == 0)
    names = [random_name("s") for _ in range(5)]
    for name in names:
        yard.box("save", box.name, name)
    values = []
    for name in names:
        copy = make_box(image=name)
        values.append(int(copy.out("cat /n")))
        copy.remove()
        yard.box("image", "rm", name)
    assert values == sorted(values) and values[0] > 0


# ---- diff ------------------------------------------------------------------------------------


@pytest.mark.asan
def test_diff_tells_what_changed(yard, make_box):
    box = make_box()
    assert not [path for path in diff(yard, box) if not path.startswith(("/etc/host", "/dev", "/run"))]
    box.sh("echo x > /new; echo y >> /etc/passwd; rm /etc/motd; mkdir /d; touch /d/e; chmod 700 /srv; touch /etc/shells")
    changes = diff(yard, box)
    assert {k: v for k, v in changes.items() if k in ("/new", "/etc/passwd", "/etc/motd", "/d", "/d/e", "/srv", "/etc/shells")} == {
        "/new": "added", "/etc/passwd": "changed", "/etc/motd": "removed", "/d": "added", "/d/e": "added",
        "/srv": "changed"}
    text = yard.box("diff", box.name).stdout
    assert "/new" in text and "/etc/motd" in text


def test_diff_against_another_box_and_an_image(yard, make_box):
    one, two, name = make_box(), make_box(), random_name("i")
    one.sh("echo same > /both; echo 1 > /only-one")
    two.sh("echo same > /both; echo 2 > /only-two")
    changes = diff(yard, one, other=two.name)
    assert changes.get("/only-one") == "added" and changes.get("/only-two") == "removed" and "/both" not in changes
    yard.box("save", two.name, name)
    changes = diff(yard, two, other=name)
    assert "/only-two" not in changes
    two.sh("echo 3 > /only-two")
    assert diff(yard, two, other=name)["/only-two"] == "changed"
    assert yard.api("GET", f"/v1/boxes/{one.id}/diff", query={"other": "nobody"}).status == 404
    yard.box("image", "rm", name)


def test_diff_as_tar(yard, make_box):
    box = make_box()
    box.sh("mkdir -p /d; echo x > /d/f; rm /etc/motd")
    data = yard.api("GET", f"/v1/boxes/{box.id}/diff", query={"format": "tar"}, expect=200).body
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        names = [m.name for m in tar.getmembers()]
        assert "d/f" in names and "etc/.wh.motd" in names
        assert tar.extractfile("d/f").read() == b"x\n"


# ---- workspace -------------------------------------------------------------------------------


@pytest.mark.asan
def test_the_workspace_can_be_kept(yard, make_box, tmp_path):
    box = make_box()
    assert box.out("stat -c %F:%a /workspace") == "directory:755"
    box.sh("mkdir -p /workspace/src; echo result > /workspace/src/out; echo no > /elsewhere")
    yard.box("rm", "-f", "--keep-workspace", box.name)
    assert yard.api("GET", f"/v1/boxes/{box.id}").status == 404
    [kept] = [w for w in yard.json("workspace", "ls") if w["box"] == box.name]
    assert kept["files"] >= 2
    assert "/src/out" in yard.box("workspace", "ls", box.name).stdout
    yard.box("workspace", "get", kept["id"], str(tmp_path / "w"))
    assert (tmp_path / "w" / "src" / "out").read_text() == "result\n"
    assert not (tmp_path / "w" / "elsewhere").exists()
    yard.box("workspace", "rm", kept["id"])
    assert not [w for w in yard.json("workspace", "ls") if w["box"] == box.name]


def test_an_empty_workspace_and_one_from_an_image_are_kept_too(yard, make_box, tmp_path):
    box, name = make_box(), random_name("w")
    yard.box("rm", "-f", "--keep-workspace", box.name)
    yard.box("workspace", "get", box.name, str(tmp_path / "empty"))
    assert os.listdir(tmp_path / "empty") == []
    box = make_box()
    box.sh("echo a > /workspace/a; echo b > /workspace/b")
    yard.box("save", box.name, name)
    child = make_box(image=name)
    child.sh("rm /workspace/a; echo c > /workspace/c")
    yard.box("rm", "-f", "--keep-workspace", child.name)
    yard.box("workspace", "get", child.name, str(tmp_path / "w"))
    assert sorted(os.listdir(tmp_path / "w")) == ["b", "c"]
    box.remove()
    yard.box("image", "rm", name)
    for one in yard.json("workspace", "ls"):
        yard.box("workspace", "rm", one["id"])


# ---- the pool --------------------------------------------------------------------------------


def test_pool_is_nobodys_business_on_the_host(yard, make_box):
    make_box()
    pool = yard.api("GET", "/v1/pool", expect=200).json
    mine = [line for line in open("/proc/self/mountinfo") if str(yard.home) in line]
    assert mine == [], "the pool is mounted in the daemon's own namespace"
    seen = [line for line in open(f"/proc/{yard.daemon_pid()}/mountinfo") if str(yard.home / "pool") in line]
    if pool["kind"] == "folder":
        pytest.skip("LOUD: no btrfs here; the pool is a plain folder")
    assert len(seen) == 1 and all(flag in seen[0] for flag in ("nosuid", "nodev", "noexec"))


def test_the_pool_grows_and_is_scrubbed(fresh_yard):
    pool = fresh_yard.json("pool", "show")
    if pool["kind"] != "loop":
        pytest.skip("LOUD: the pool of this machine is not a loop file")
    box = fresh_yard.new()
    box.sh("head -c 30000000 /dev/urandom > /x; sync; sha256sum /x > /sum")
    fresh_yard.box("pool", "grow", "1G")
    after = fresh_yard.json("pool", "show")
    assert after["total_bytes"] >= pool["total_bytes"] + (1 << 30) - (64 << 20)
    assert fresh_yard.box("pool", "scrub", timeout=120).returncode == 0
    box.sh("sha256sum -c /sum")


def test_killed_while_growing(fresh_yard):
    if fresh_yard.json("pool", "show")["kind"] != "loop":
        pytest.skip("LOUD: the pool of this machine is not a loop file")
    box = fresh_yard.new(name="ada")
    box.sh("head -c 5000000 /dev/urandom > /x; sha256sum /x > /sum; sync")
    for delay in (0, 0.002, 0.01, 0.03, 0.1):
        before = fresh_yard.json("pool", "show")["total_bytes"]
        process = fresh_yard.spawn("pool", "grow", "512M", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        fresh_yard.kill_daemon()
        process.wait(20)
        fresh_yard.start_daemon()
        after = eventually(lambda: fresh_yard.json("pool", "show")["total_bytes"])
        assert after >= before
        box.sh("sha256sum -c /sum")
    size = fresh_yard.json("pool", "show")["total_bytes"]
    fresh_yard.box("pool", "grow", "512M")
    assert fresh_yard.json("pool", "show")["total_bytes"] > size
    assert fresh_yard.box("pool", "scrub", timeout=120).returncode == 0


def test_deleted_data_returns_to_the_host(fresh_yard):
    if fresh_yard.json("pool", "show")["kind"] != "loop":
        pytest.skip("LOUD: the pool of this machine is not a loop file")

    def taken():
        return (fresh_yard.home / "pool.img").stat().st_blocks * 512

    box = fresh_yard.new()
    before = taken()
    box.sh("head -c 200000000 /dev/urandom > /x; sync")
    eventually(lambda: taken() > before + 150_000_000, 20)
    box.remove()
    eventually(lambda: taken() < before + 80_000_000, 90, "the loop file shrinks", every=0.5)


def test_a_full_pool_refuses_new_boxes_and_harms_nobody(image):
    from fixtures import running_yard_with
    with running_yard_with(BOX_POOL_SIZE="512M", BOX_POOL_MAX="512M") as yard:
        if yard.json("pool", "show")["kind"] != "loop":
            pytest.skip("LOUD: the pool of this machine is not a loop file")
        keeper, filler = yard.new(name="keeper"), yard.new(name="filler")
        keeper.sh("head -c 1000000 /dev/urandom > /x; sha256sum /x > /sum; sync")
        done = filler.sh("dd if=/dev/zero of=/big bs=1M", check=False, timeout=120)
        assert "No space left" in done.stderr
        refused = eventually(lambda: (r := yard.api("POST", "/v1/boxes", {})).status != 201 and r, 10)
        assert refused.json["error"]["code"] == "limit" and refused.json["error"]["hint"]
        assert keeper.out("sha256sum -c /sum") == "/x: OK"
        assert yard.json("ls"), "the daemon answers"
        yard.box("rm", "-f", "filler")
        assert eventually(lambda: yard.api("POST", "/v1/boxes", {}).status == 201, 60, "there is room again", every=0.5)
        keeper.sh("sha256sum -c /sum")


def test_everything_is_there_after_the_machine_restarted(fresh_yard):
    """The daemon is stopped, boxes die, nothing is mounted any more: as after a reboot."""
    box = fresh_yard.new(name="ada", disk="100M")
    box.sh("echo kept > /kept; sync")
    fresh_yard.new(name="bob")
    fresh_yard.box("save", "ada", "gold")
    pid = fresh_yard.daemon_pid()
    inits = [fresh_yard.box("exec", name, "--", "sh", "-c", "true") for name in ("ada", "bob")]
    assert inits
    fresh_yard.kill_daemon()
    from boxtest import instance_processes
    for process in instance_processes(fresh_yard.name, fresh_yard.base):
        if process != pid:
            try:
                os.kill(process, 9)
            except ProcessLookupError:
                pass

    def loops():
        return [line for line in os.popen("losetup -a") if str(fresh_yard.home) in line]

    eventually(lambda: not loops(), 15, "the loop device is gone with its last user")
    fresh_yard.start_daemon()
    assert {b["name"]: b["state"] for b in fresh_yard.boxes()} == {"ada": "stopped", "bob": "stopped"}
    fresh_yard.box("start", "ada")
    assert box.out("cat /kept") == "kept"
    assert fresh_yard.new(image="gold").out("cat /kept") == "kept"
