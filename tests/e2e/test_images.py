"""Images of others: pulled from a real registry on loopback, imported from archives, exported,
built by a Boxfile."""
import io
import os
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

import ocitools
from boxtest import IMAGE, IMAGES, Yard, eventually, random_name
from fixtures import running_yard_with
from ocitools import folder, hardlink, member, symlink

missing = ocitools.missing_programs()
needs_registry = pytest.mark.skipif(bool(missing), reason=f"LOUD: not installed here: {', '.join(missing)}")
asan = pytest.mark.asan


PROGRAMS = "dash cat ls id env stat pwd sleep true touch mkdir rm seq".split()


def small_root():
    """A few programs of the base image with their libraries: enough for `sh`. No image can be
    fetched from anywhere."""
    [base] = IMAGES.glob("[a-z0-9]*/rootfs")
    wanted = {f"usr/bin/{name}" for name in PROGRAMS}
    for name in sorted(wanted):
        words = subprocess.run(["ldd", base / name], capture_output=True, text=True).stdout.split()
        wanted |= {"usr" + word for word in words if word.startswith("/lib") and (base / word[1:]).is_file()}
    members = [folder(name) for name in ("usr", "usr/bin", "usr/lib", "usr/lib64", "etc", "root", "tmp")]
    members += [symlink("bin", "usr/bin"), symlink("lib", "usr/lib"), symlink("lib64", "usr/lib64"), symlink("usr/bin/sh", "dash")]
    members += [member(name, (base / name).read_bytes(), mode=0o755) for name in sorted(wanted)]
    members.append(member("etc/passwd", b"root:x:0:0::/root:/bin/sh\napp:x:1234:1234::/srv:/bin/sh\n"))
    members.append(member("etc/group", b"root:x:0:\napp:x:1234:\n"))
    return members


@pytest.fixture(scope="session")
def small(image):
    return small_root()


@pytest.fixture
def layout(tmp_path):
    return ocitools.Layout(tmp_path / "layout")


@pytest.fixture
def registry(tmp_path):
    with ocitools.Registry(tmp_path / "registry") as one:
        yield one


@pytest.fixture
def puller(image, registry):
    with running_yard_with(BOX_REGISTRY=registry.host, BOX_INSECURE_REGISTRIES=registry.host) as yard:
        yield yard


CONFIG = {"Env": ["PATH=/usr/bin:/bin", "COLOUR=blue", "SHAPE=round"], "User": "app", "WorkingDir": "/srv/app",
          "Entrypoint": ["/bin/sh", "-c", 'echo "main $0 $COLOUR $(pwd) $(id -u)" > /srv/app/said; sleep 1000'],
          "Cmd": ["first"], "ExposedPorts": {"8080/tcp": {}}, "Labels": {"who": "me"}}


def app_layer():
    return [folder("srv"), folder("srv/app", uid=1234, gid=1234), member("etc/late", b"late\n")]


# ---- pull ------------------------------------------------------------------------------------


@needs_registry
def test_pull_and_run_with_its_configuration(puller, registry, layout, small):
    layout.add_image("team/tool:v1", [small, app_layer()], config=CONFIG)
    registry.push(layout, "team/tool:v1")
    puller.box("image", "pull", "team/tool:v1")
    box = puller.new(image="team/tool:v1")
    assert eventually(lambda: box.sh("cat /srv/app/said", check=False).stdout) == "main first blue /srv/app 1234\n"
    assert box.out("pwd; id -u; echo $SHAPE; cat /etc/late") == "/srv/app\n1234\nround\nlate"
    assert box.show()["ports"] == ["8080/tcp"]
    assert box.exec("sh", "-c", "id -u; echo $COLOUR", flags=("--user", "root", "--env", "COLOUR=red")).stdout == "0\nred\n"
    quiet = puller.new(image="team/tool:v1", no_main=True)
    assert quiet.show()["main"] is None
    other = puller.new(image="team/tool:v1", command=["second"])
    assert eventually(lambda: other.sh("cat /srv/app/said", check=False).stdout).startswith("main second")


@needs_registry
def test_new_pulls_what_is_not_here(puller, registry, layout, small):
    layout.add_image("python:3.11", [small])
    registry.push(layout, "python:3.11")
    registry.push(layout, "python:latest", source="python:3.11")
    assert puller.box("new", "--image", "python:3.11", "one").returncode == 0
    assert puller.box("new", "--image", "python", "--pull", "never", "two", check=False).returncode != 0
    assert puller.box("new", "--image", "python", "two").returncode == 0
    assert puller.box("exec", "two", "--", "sh", "-c", "echo hi").stdout == "hi\n"
    refused = puller.box("new", "--image", "nothing:here", "three", check=False)
    assert refused.returncode != 0 and "nothing:here" in refused.stderr and len(refused.stderr.splitlines()) <= 3


@needs_registry
def test_layers_are_shared_and_not_fetched_twice(puller, registry, layout, small):
    layout.add_image("a:1", [small, [member("a", b"a")]])
    layout.add_image("b:1", [small, [member("b", b"b")]])
    for name in ("a:1", "b:1"):
        registry.push(layout, name)
    puller.box("image", "pull", "a:1")
    puller.box("image", "pull", "b:1")
    one, two = (puller.json("image", "show", name) for name in ("a:1", "b:1"))
    assert one["layers"][-1]["id"] == two["layers"][-1]["id"] and one["layers"][-1]["shared_by"] == 1
    registry.forget_log()
    puller.box("image", "pull", "a:1")
    big = {m["digest"] for name in ("a:1",) for m in layout.read(
        next(e for e in layout.entries if e["annotations"]["org.opencontainers.image.ref.name"] == name))["layers"]}
    assert not big & set(registry.fetched()), "what is here is not fetched again"
    puller.box("image", "rm", "a:1")
    assert puller.new(image="b:1").out("cat /b") == "b"


@needs_registry
@pytest.mark.parametrize("harm", ["corrupt", "digest", "architecture", "missing", "refused"])
def test_a_pull_that_cannot_be_right_leaves_nothing(puller, registry, layout, small, harm):
    if harm == "digest":
        layout.add_image("bad:1", [small, [member("x", b"x")]], diff_ids=["sha256:" + "0" * 64, "sha256:" + "1" * 64])
    else:
        layout.add_image("bad:1", [small, [member("x", os.urandom(200000))]],
                         architecture=ocitools.OTHER if harm == "architecture" else ocitools.HERE)
    registry.push(layout, "bad:1")
    if harm == "corrupt":
        registry.damage(layout.read(layout.entries[0])["layers"][1])
    if harm == "refused":
        registry.stop()
    done = puller.box("image", "pull", "other:1" if harm == "missing" else "bad:1", check=False)
    assert done.returncode != 0 and done.stderr.strip()
    if harm == "architecture":
        assert ocitools.OTHER in done.stderr and ocitools.HERE in done.stderr
    assert "bad:1" not in [i["name"] for i in puller.json("image", "ls", "--all")]
    if harm == "corrupt":
        registry.damage(layout.read(layout.entries[0])["layers"][1])  # the same bit again: it is right now
        puller.box("image", "pull", "bad:1")


@needs_registry
def test_credentials_come_from_the_usual_file(image, tmp_path, layout, small):
    layout.add_image("secret:1", [small])
    with ocitools.Registry(tmp_path / "r", users={"ada": "love"}) as registry:
        registry.push(layout, "secret:1")
        auth = ocitools.authfile(tmp_path / "auth.json", registry.host, "ada", "love")
        with running_yard_with(BOX_REGISTRY=registry.host, BOX_INSECURE_REGISTRIES=registry.host) as yard:
            done = yard.box("image", "pull", "secret:1", check=False)
            assert done.returncode != 0 and "secret:1" in done.stderr
            yard.kill_daemon()
            (yard.base / "boxyard.conf").write_text(f"registry_auth = {auth}\n")
            yard.start_daemon()
            yard.box("image", "pull", "secret:1")


@needs_registry
def test_an_image_for_many_machines(puller, registry, layout, small):
    index = layout.make_index({ocitools.OTHER: layout.make_image([[member("wrong", b"")]], architecture=ocitools.OTHER),
                               ocitools.HERE: layout.make_image([small])})
    layout.name(index, "multi:1")
    registry.push(layout, "multi:1")
    puller.box("image", "pull", "multi:1")
    assert puller.new(image="multi:1").out("ls /wrong 2>/dev/null; echo ok") == "ok"


# ---- import, export --------------------------------------------------------------------------


def test_every_name_of_an_image_is_listed(yard, small, tmp_path):
    first, second = random_name("root"), f"{random_name('root')}:v2"
    (tmp_path / "root.tar").write_bytes(ocitools.tar(small))
    yard.box("image", "import", str(tmp_path / "root.tar"), first)
    assert yard.box("image", "tag", first, second).stdout == f"{second}\n"
    names = {line.split()[0]: line.split()[1] for line in yard.box("image", "ls").stdout.splitlines()}
    assert names[first] == names[second] == yard.json("image", "show", first)["id"]
    yard.box("image", "rm", second)
    yard.box("image", "rm", first)


def test_a_name_goes_alone_and_the_last_one_takes_the_image_along(yard, make_box, small, tmp_path):
    first, second = random_name("root"), random_name("root")
    (tmp_path / "root.tar").write_bytes(ocitools.tar(small))
    yard.box("image", "import", str(tmp_path / "root.tar"), first)
    yard.box("image", "tag", first, second)
    box = make_box(image=first)
    yard.box("image", "rm", first)  # also of one that is used
    assert first not in yard.box("image", "ls").stdout
    assert yard.json("image", "show", second)["names"] == [second]
    assert yard.json("events", "-n", "1")[-1]["type"] == "image.untagged"
    assert "is used by" in yard.box("image", "rm", second, check=False).stderr
    box.remove()
    yard.box("image", "rm", second)
    assert second not in yard.box("image", "ls").stdout


@asan
@pytest.mark.parametrize("compression", sorted(ocitools.STREAMS))
def test_import_a_root_file_system(yard, make_box, small, tmp_path, compression):
    name = random_name("root")
    path = tmp_path / "root.tar"
    path.write_bytes(ocitools.STREAMS[compression](ocitools.tar(small + [
        member("etc/suid", b"x", mode=0o4755), hardlink("etc/again", "etc/suid"), member("a" * 90 + "/" + "b" * 200, b"long"),
        member("etc/x", b"x", xattrs={"user.note": "hello"})])))
    yard.box("image", "import", str(path), name)
    box = make_box(image=name)
    assert box.out("stat -c '%a %h' /etc/suid; cat /a*/b*") == "4755 2\nlong"
    box.remove()
    yard.box("image", "rm", name)


def test_import_archives_and_folders(yard, make_box, small, layout, tmp_path):
    names = [random_name(kind) for kind in ("oci", "docker", "dir")]
    layout.add_image("x:1", [small, [member("etc/.wh.late", b""), member("new", b"n")]], config={"Env": ["A=1"]})
    layout.archive(tmp_path / "oci.tar")
    ocitools.docker_archive(tmp_path / "docker.tar", [small + [member("gone", b"")], [member(".wh.gone", b""), member("new", b"n")]],
                            config={"Env": ["A=1"]})
    tree = tmp_path / "tree"
    tree.mkdir()
    with tarfile.open(fileobj=io.BytesIO(ocitools.tar(small + [member("new", b"n")]))) as tar:
        tar.extractall(tree)
    for source, name in zip((tmp_path / "oci.tar", tmp_path / "docker.tar", tree), names):
        yard.box("image", "import", str(source), name)
        box = make_box(image=name)
        assert box.out("cat /new; ls /gone 2>/dev/null; echo; echo $A") == ("n\n1" if source != tree else "n")
        box.remove()
        yard.box("image", "rm", name)


def test_layers_without_their_two_last_blocks_are_taken(yard, make_box, small, layout, tmp_path):
    """umoci writes them so, and podman reads them. What is really cut off has another digest."""
    whole = ocitools.tar(small + [member("last", b"here")])
    bare = whole.rstrip(b"\0")
    bare += bytes(-len(bare) % 512)
    assert len(bare) < len(whole)
    for compression in ("gzip", "zstd", "plain"):
        name = random_name("bare")
        layout.add_image(name, [bare], compression=compression)
        layout.archive(tmp_path / "bare.tar")
        yard.box("image", "import", str(tmp_path / "bare.tar"), name)
        box = make_box(image=name)
        assert box.out("cat /last") == "here"
        box.remove()
        yard.box("image", "rm", name)
    # A root file system has no digest that would tell.
    (tmp_path / "root.tar").write_bytes(bare)
    assert "too early" in yard.box("image", "import", str(tmp_path / "root.tar"), "x", check=False).stderr


def test_an_archive_is_called_as_it_says(yard, small, tmp_path):
    tag = random_name("made") + ":by-hand"
    ocitools.docker_archive(tmp_path / "file.tar", [small], tags=[tag])
    yard.box("image", "import", str(tmp_path / "file.tar"))
    assert yard.json("image", "show", tag)["name"] == tag
    assert yard.box("image", "show", "file", check=False).returncode != 0
    yard.box("image", "rm", tag)
    # Only where it says nothing, as its file; and always as the caller says.
    name = random_name("root")
    ocitools.docker_archive(tmp_path / f"{name}.tar", [small], tags=[])
    yard.box("image", "import", str(tmp_path / f"{name}.tar"))
    yard.box("image", "import", str(tmp_path / "file.tar"), f"{name}-2")
    for one in (name, f"{name}-2"):
        yard.box("image", "rm", one)


@asan
@pytest.mark.parametrize("bad", ["../out", "a/../../out", "link/out", "hard", "device", "empty", "noise", "cut", "deep"])
def test_hostile_archives_are_harmless(yard, tmp_path, bad):
    members = {
        "../out": [member("../out", b"x")],
        "a/../../out": [folder("a"), member("a/../../out", b"x")],
        "link/out": [symlink("link", str(tmp_path)), member("link/out", b"x")],
        "hard": [hardlink("out", "../../../../etc/passwd")],
        "device": [member("dev0", type=tarfile.CHRTYPE, device=(1, 3)), member("out", b"")],
        "deep": [member("/".join(["d"] * 3000), b"x")],
    }.get(bad)
    path = tmp_path / "bad.tar"
    data = ocitools.tar(members) if members else b""
    if bad == "noise":
        data = os.urandom(100000)
    if bad == "cut":
        data = ocitools.tar([member("out", b"x" * 100000)])[:50000]
    path.write_bytes(data)
    name = random_name("bad")
    done = yard.box("image", "import", str(path), name, check=False)
    assert not (tmp_path / "out").exists()
    if bad in ("link/out", "device"):
        assert done.returncode == 0, "links lead nowhere, devices are left out"
        assert yard.api("GET", "/v1/doctor").status == 200
        yard.box("image", "rm", name)
    else:
        assert done.returncode != 0 and done.stderr.strip()
        assert name not in [i["name"] for i in yard.json("image", "ls", "--all")]


@pytest.mark.parametrize("format", ["oci", "docker", "rootfs"])
def test_export_and_import_again(yard, make_box, tmp_path, small, layout, format):
    first, second, out = random_name("x"), random_name("y"), tmp_path / "out.tar"
    layout.add_image("x:1", [small, app_layer()], config=CONFIG)
    yard.box("image", "import", str(layout.archive(tmp_path / "in.tar")), first)
    box = make_box(image=first, no_main=True)
    box.sh("echo changed > /srv/app/new", check=True)
    saved = random_name("z")
    yard.box("save", box.name, saved)
    yard.box("image", "export", saved, "-o", str(out), "--format", format)
    if format == "oci" and shutil.which("skopeo"):
        subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", f"oci-archive:{out}", f"dir:{tmp_path}/dir"], check=True)
    yard.box("image", "import", str(out), second)
    copy = make_box(image=second, no_main=True)
    assert copy.out("cat /srv/app/new /etc/late") == "changed\nlate"
    if format != "rootfs":
        assert copy.out("pwd; id -u; echo $COLOUR") == "/srv/app\n1234\nblue"
    for one in (box, copy):
        one.remove()
    for name in (second, saved, first):
        yard.box("image", "rm", name)


def package_hosts(box):
    return box.yard.json("policy", "show", box.name)["package_hosts"]


@pytest.mark.parametrize("format", ["oci", "docker"])
def test_export_and_import_open_no_hosts_that_a_box_wrote(fresh_yard, tmp_path, small, layout, format):
    yard, out = fresh_yard, tmp_path / "out.tar"
    sources = "etc/apt/sources.list"
    layout.add_image("x:1", [small, [folder("etc/apt"), member(sources, b"deb http://own.example/debian stable main\n")], app_layer()],
                     config=CONFIG)
    yard.box("image", "import", str(layout.archive(tmp_path / "in.tar")), "first")
    box = yard.new(image="first", no_main=True)
    assert "own.example:80" in package_hosts(box)
    before = package_hosts(box)
    box.exec("sh", "-c", f"echo 'deb http://evil.example/debian stable main' >>/{sources}", flags=("--user", "root"))
    yard.box("save", box.name, "saved")
    yard.box("image", "export", "saved", "-o", out, "--format", format)
    yard.box("image", "import", out, "back")
    back = yard.new(image="back", no_main=True)
    assert "evil.example" in back.out(f"cat /{sources}") and package_hosts(back) == before
    assert yard.json("image", "show", "back")["config"]["labels"] == {"who": "me"}
    yard.box("save", back.name, "upon")
    assert package_hosts(yard.new(image="upon", no_main=True)) == before
    # What was vouched for stays so.
    yard.box("save", "--learn-hosts", box.name, "vouched")
    yard.box("image", "export", "vouched", "-o", out, "--format", format)
    yard.box("image", "import", out, "again")
    assert "evil.example:80" in package_hosts(yard.new(image="again", no_main=True))


def test_ctrl_c_in_an_export_leaves_no_file(yard, tmp_path):
    process = yard.spawn("image", "export", IMAGE, "--format", "rootfs", "-o", str(tmp_path / "x.tar"),
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: list(tmp_path.glob(".box-*")), 10)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == -signal.SIGINT
    assert os.listdir(tmp_path) == []


def test_gc_removes_what_nobody_needs(fresh_yard, small, tmp_path):
    (tmp_path / "r.tar").write_bytes(ocitools.tar(small))
    fresh_yard.box("image", "import", str(tmp_path / "r.tar"), "a")
    fresh_yard.box("image", "import", str(tmp_path / "r.tar"), "a")
    dry = fresh_yard.json("image", "gc", "--dry-run")
    assert len(dry["images"]) == 1 and len(fresh_yard.json("image", "ls", "--all")) == 3
    assert fresh_yard.json("image", "gc")["images"] == dry["images"]
    assert len(fresh_yard.json("image", "ls", "--all")) == 2
    assert fresh_yard.json("image", "gc")["images"] == []


# ---- faults ----------------------------------------------------------------------------------


@needs_registry
def test_killed_while_pulling(puller, registry, layout, small):
    layout.add_image("big:1", [small, [member("big", os.urandom(40_000_000))], [member("big2", os.urandom(40_000_000))]])
    registry.push(layout, "big:1")
    for delay in (0.05, 0.15, 0.3, 0.5):
        process = puller.spawn("image", "pull", "big:1", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        puller.kill_daemon()
        process.wait(20)
        puller.start_daemon()
        names = [i["name"] for i in puller.json("image", "ls", "--all")]
        if "big:1" in names:
            puller.box("image", "rm", "big:1")
            puller.box("image", "gc")
    registry.forget_log()
    puller.box("image", "pull", "big:1")
    assert puller.new(image="big:1").out("stat -c %s /big /big2") == "40000000\n40000000"


def test_killed_while_importing_and_saving(fresh_yard, tmp_path, small):
    yard, tar = fresh_yard, tmp_path / "r.tar"
    tar.write_bytes(ocitools.tar(small + [member("big", os.urandom(60_000_000))]))
    box = yard.new(name="ada")
    box.sh("head -c 30000000 /dev/urandom > /x")
    for delay in (0.02, 0.1, 0.2):
        jobs = [yard.spawn("image", "import", str(tar), "imp", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
                yard.spawn("save", "ada", "sav", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]
        time.sleep(delay)
        yard.kill_daemon()
        for job in jobs:
            job.wait(20)
        yard.start_daemon()
        for image in yard.json("image", "ls", "--all"):
            if image["name"] in ("imp", "sav"):
                started = yard.new(image=image["name"])
                size = started.out("stat -c %s /big" if image["name"] == "imp" else "stat -c %s /x")
                assert size in ("60000000", "30000000"), "what is listed is whole"
                started.remove()
    yard.box("image", "import", str(tar), "imp")
    yard.box("save", "ada", "sav")
    assert yard.new(image="sav").out("stat -c %s /x") == "30000000"
    for place in (yard.pool / "layers", yard.pool / "images", yard.home / "layers"):
        eventually(lambda: not [p for p in place.iterdir() if p.name.startswith(".")], 5, f"{place} is tidy")


@pytest.fixture
def small_disk():
    """A yard whose BOX_HOME is an ext4 of 400 MB, seen by nobody but its daemon; it goes with
    it."""
    yard = Yard()
    disk = yard.base / "disk.img"
    with open(disk, "wb") as file:
        file.truncate(400 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", disk], check=True)
    yard.env["BOX_POOL_SIZE"] = "256M"
    yard.wrapper = ["unshare", "-m", "sh", "-c", 'mount -o loop "$0" "$BOX_HOME" && exec "$@"', disk]
    try:
        yard.start_daemon()
        yield yard
    finally:
        problems = yard.destroy()
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("how", ["known", "packed", "archive"])
def test_an_import_that_does_not_fit(small_disk, layout, tmp_path, small, how):
    yard, big = small_disk, tmp_path / "big.tar"
    members = small + [member("big", bytes(500_000_000))]
    if how == "archive":
        layout.add_image("big:1", [small, members])
        layout.archive(big)
    else:
        big.write_bytes(ocitools.STREAMS["gzip"](ocitools.tar(members)) if how == "packed" else ocitools.tar(members))
    (tmp_path / "fits.tar").write_bytes(ocitools.tar(small))
    done = yard.box("image", "import", str(big), "big", check=False, timeout=120)
    assert done.returncode != 0 and "BOX_HOME" in done.stderr and len(done.stderr.splitlines()) <= 3, done.stderr
    assert how != "known" or "needed" in done.stderr
    assert "big" not in [i["name"] for i in yard.json("image", "ls", "--all")]
    yard.box("image", "import", str(tmp_path / "fits.tar"), "fits")
    assert yard.new(image="fits").out("echo there is room again > /x; cat /x") == "there is room again"
    yard.box("image", "gc")
    home = Path(f"/proc/{yard.daemon_pid()}/root{yard.home}")
    eventually(lambda: len(list((home / "layers").iterdir())) == 1 and not list((home / "downloads").iterdir()), 5,
               "nothing else is left")


# ---- Boxfile ---------------------------------------------------------------------------------


@pytest.fixture
def recipe(tmp_path):
    context = tmp_path / "context"
    (context / "src").mkdir(parents=True)
    (context / "src" / "hello.txt").write_text("hello\n")

    def write(text):
        (context / "Boxfile").write_text(text)
        return str(context)

    write.context = context
    return write


GOOD = """# a recipe
from debian
env GREETING=hi
run echo one >> /log
copy src /opt/app
workdir /opt/app
run cat hello.txt >> /log; \\
    echo "$GREETING" >> /log
cmd ["sh", "-c", "cat /log > /said; sleep 1000"]
expose 8080
"""


def test_boxfile_builds_and_is_cached(yard, make_box, recipe):
    name = random_name("built")
    context = recipe(GOOD)
    yard.box("image", "build", "-t", name, "-f", f"{context}/Boxfile", context, timeout=120)
    box = make_box(image=name)
    assert box.out("cat /log; pwd; echo $GREETING") == "one\nhello\nhi\n/opt/app\nhi"
    assert eventually(lambda: box.sh("cat /said", check=False).stdout) == "one\nhello\nhi\n"
    assert box.show()["ports"] == ["8080/tcp"]
    again = yard.box("image", "build", "-t", name, "-f", f"{context}/Boxfile", context, timeout=120)
    assert again.stderr.count("cached") >= 3
    (recipe.context / "src" / "hello.txt").write_text("changed\n")
    third = yard.box("image", "build", "-t", name, "-f", f"{context}/Boxfile", context, timeout=120)
    assert 1 <= third.stderr.count("cached") < again.stderr.count("cached")
    assert make_box(image=name).out("cat /log") == "one\nchanged\nhi"
    assert not [b for b in yard.boxes() if b["name"].startswith("build")], "no box is left by a build that worked"


def test_a_failing_step_leaves_a_box_to_look_into(yard, recipe):
    context = recipe("from debian\nrun echo fine > /fine\nrun echo trace > /trace; exit 7\n")
    done = yard.box("image", "build", "-t", "never", "-f", f"{context}/Boxfile", context, check=False, timeout=120)
    assert done.returncode != 0 and "7" in done.stderr
    [left] = [b for b in yard.boxes() if b["name"].startswith("build")]
    assert left["name"] in done.stderr
    assert yard.run(left["id"], "cat", "/fine", "/trace").stdout == b"fine\ntrace\n"
    assert yard.box("image", "show", "never", check=False).returncode != 0
    yard.box("rm", "-f", left["name"])


@pytest.mark.parametrize("text,line", [("run x\n", 1), ("from debian\nfly away\n", 2), ("from debian\ncopy ../x /y\n", 2),
                                       ("from debian\nfrom debian\n", 2), ("from debian\nenv =x\n", 2), ("", 0)])
def test_bad_recipes_say_where(yard, recipe, text, line):
    context = recipe(text)
    done = yard.box("image", "build", "-t", "never", "-f", f"{context}/Boxfile", context, check=False)
    assert done.returncode != 0
    if line:
        assert f"{line}" in done.stderr


def test_killed_while_building(fresh_yard, recipe):
    yard = fresh_yard
    context = recipe("from debian\nrun sleep 0.3; echo 1 > /one\nrun sleep 0.3; echo 2 > /two\nrun sleep 0.3; echo 3 > /three\n")
    for delay in (0.2, 0.7):
        process = yard.spawn("image", "build", "-t", "b", "-f", f"{context}/Boxfile", context,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        yard.kill_daemon()
        process.wait(20)
        yard.start_daemon()
        eventually(lambda: not yard.boxes(), 15, "the box of the build is removed")
        assert yard.box("image", "show", "b", check=False).returncode != 0
    yard.box("image", "build", "-t", "b", "-f", f"{context}/Boxfile", context, timeout=60)
    assert yard.new(image="b").out("cat /one /two /three") == "1\n2\n3"


def test_ctrl_c_in_a_build_leaves_no_box(yard, recipe):
    context = recipe("from debian\nrun sleep 60\n")
    process = yard.spawn("image", "build", "-t", "never", "-f", f"{context}/Boxfile", context,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: [b for b in yard.boxes() if b["name"].startswith("build")], 10)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.wait(20)
    eventually(lambda: not [b for b in yard.boxes() if b["name"].startswith("build")], 10)


def builds(yard):
    return [b for b in yard.boxes() if b["name"].startswith("build")]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGPIPE, "reader"])
def test_a_killed_build_leaves_no_box(yard, recipe, how):
    context = recipe("from debian\nrun while :; do echo line; sleep 0.05; done\n")
    process = yard.spawn("image", "build", "-t", "never", "--no-cache", "-f", f"{context}/Boxfile", context,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    eventually(lambda: builds(yard), 10)
    process.stderr.readline()
    if how == "reader":
        process.stderr.close()  # as head does
    else:
        process.send_signal(how)
    assert process.wait(20) != 0
    eventually(lambda: not builds(yard), 15, "the box of the build is removed")


def test_a_failed_step_leaves_its_box(yard, recipe):
    context = recipe("from debian\nrun exit 3\n")
    done = yard.box("image", "build", "-t", "never", "-f", f"{context}/Boxfile", context, check=False)
    [left] = builds(yard)
    assert done.returncode != 0 and left["name"] in done.stderr
    time.sleep(1)
    assert builds(yard)
    yard.box("rm", "-f", left["name"])


def test_a_pool_that_runs_full_in_a_build(image, recipe):
    with running_yard_with(BOX_POOL_SIZE="400M", BOX_POOL_MAX="400M") as yard:
        if yard.json("pool", "show")["kind"] != "loop":
            pytest.skip("LOUD: the pool of this machine is not a loop file")
        context = recipe("from debian\nrun echo a > /a\nrun head -c 600000000 /dev/zero | tr '\\\\0' x > /big\n")
        done = yard.box("image", "build", "-t", "never", "-f", f"{context}/Boxfile", context, check=False, timeout=120)
        assert done.returncode != 0
        for box in yard.boxes():
            yard.box("rm", "-f", box["name"])
        recipe("from debian\nrun echo a > /a\nrun echo small > /big\n")
        eventually(lambda: yard.box("image", "build", "-t", "fits", "-f", f"{context}/Boxfile", context, check=False,
                                    timeout=120).returncode == 0, 60, "it works when there is room", every=1)
        assert yard.new(image="fits").out("cat /a /big") == "a\nsmall"
