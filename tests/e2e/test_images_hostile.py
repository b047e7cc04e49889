"""Images and archives made to do harm, and images that go while they are read."""
import http.client
import os

import pytest

import ocitools
from boxtest import UnixConnection, eventually, random_name
from fixtures import running_yard_with
from ocitools import folder, member
from test_images import small_root

asan = pytest.mark.asan


@pytest.fixture(scope="session")
def small(image):
    return small_root()


@pytest.fixture
def layout(tmp_path):
    return ocitools.Layout(tmp_path / "layout")


@asan
def test_an_opaque_root_hides_all_that_is_below(yard, make_box, small, layout, tmp_path):
    layout.add_image("x:1", [[member("secret", b"s"), folder("etc"), member("etc/secret", b"s")],
                             [member(".wh..wh..opq")] + small])
    name = random_name("opq")
    yard.box("image", "import", str(layout.archive(tmp_path / "in.tar")), name)
    box = make_box(image=name, no_main=True)
    assert box.out("ls /secret /etc/secret 2>/dev/null; ls /etc/passwd") == "/etc/passwd"
    box.remove()
    yard.box("image", "export", name, "-o", str(tmp_path / "out.tar"), "--format", "rootfs")
    assert "secret" not in ocitools.tarfile.open(tmp_path / "out.tar").getnames()
    yard.box("image", "rm", name)


@asan
def test_nothing_takes_a_name_with_a_digest_but_by_pulling_it(yard, box, layout, small, tmp_path):
    claimed = "python@sha256:" + "a" * 64
    (tmp_path / "root.tar").write_bytes(ocitools.tar(small))
    ocitools.docker_archive(tmp_path / "docker.tar", [small], tags=[claimed])
    descriptor = layout.make_image([small])
    layout.entries.append({**descriptor, "annotations": {"io.containerd.image.name": claimed}})
    layout._write_index()
    layout.archive(tmp_path / "oci.tar")
    for words in (["import", str(tmp_path / "root.tar"), claimed], ["tag", "debian", claimed]):
        assert yard.box("image", *words, check=False).returncode == 64, words
    for archive in ("docker.tar", "oci.tar"):
        reply = yard.api("POST", "/v1/images/import", (tmp_path / archive).read_bytes())
        assert "has no name for the image" in reply.body.decode(), reply.body
    assert yard.box("save", box.name, claimed, check=False).returncode == 64
    assert yard.api("GET", f"/v1/images/{claimed}").status == 404


@pytest.mark.parametrize("format", ["rootfs", "oci"])
def test_an_image_removed_while_it_is_exported_is_no_whole_archive(yard, tmp_path, format):
    name = random_name("gone")
    content = [member(f"d/{i:03}", os.urandom(1 << 20)) for i in range(48)]
    (tmp_path / "in.tar").write_bytes(ocitools.tar([folder("d")] + content))
    yard.box("image", "import", str(tmp_path / "in.tar"), name)
    shown = yard.json("image", "show", name)
    connection = UnixConnection(yard.sock)
    connection.request("GET", f"/v1/images/{name}/export?format={format}")
    if format == "rootfs":
        reply = connection.getresponse()
        reply.read(1000)
    yard.box("image", "rm", name)
    eventually(lambda: not any((yard.home / "layers").glob(".trash-*")), what="the layer is gone")
    assert not (yard.home / "layers" / shown["layers"][0]["id"]).exists()
    if format == "oci":
        reply = connection.getresponse()
    if reply.status == 200:
        with pytest.raises(http.client.IncompleteRead):
            reply.read()
    connection.close()


def test_an_import_that_is_broken_off_leaves_nothing(fresh_yard, layout, tmp_path):
    yard = fresh_yard
    layout.add_image("x:1", [[member("big", os.urandom(8 << 20))]], compression="plain")
    data = layout.archive(tmp_path / "in.tar").read_bytes()
    downloads = yard.home / "downloads"

    def begin():
        connection = UnixConnection(yard.sock)
        connection.putrequest("POST", "/v1/images/import?name=cut")
        connection.putheader("Content-Length", str(len(data)))
        connection.endheaders()
        connection.send(data[:-4096])
        eventually(lambda: any(downloads.glob(".import-*")), what="the archive is spooled")
        return connection

    begin().close()
    eventually(lambda: not list(downloads.iterdir()), what="the spooled archive is gone")
    connection = begin()
    yard.kill_daemon()
    connection.close()
    yard.start_daemon()
    eventually(lambda: not list(downloads.iterdir()), what="the next daemon has swept")
    assert not list((yard.home / "layers").iterdir())


@asan
@pytest.mark.parametrize("layers", [1, 2])
def test_names_that_mean_a_removed_file_are_not_lost_in_silence(yard, make_box, small, tmp_path, layers):
    name = random_name("wh")
    marked = small + [member("etc/.wh.passwd", b"mine")]
    (tmp_path / "in.tar").write_bytes(ocitools.tar(marked if layers == 1 else small))
    yard.box("image", "import", str(tmp_path / "in.tar"), name)
    box = make_box(image=name, no_main=True)
    if layers == 2:
        box.sh("echo mine > /etc/.wh.passwd", check=True)
        yard.box("save", box.name, name)
    for format in ("oci", "docker"):
        done = yard.box("image", "export", name, "-o", str(tmp_path / "out.tar"), "--format", format, check=False)
        assert done.returncode == 69 and ".wh.passwd" in done.stderr
    yard.box("image", "export", name, "-o", str(tmp_path / "out.tar"), "--format", "rootfs")
    assert "etc/.wh.passwd" in ocitools.tarfile.open(tmp_path / "out.tar").getnames()
    box.remove()
    yard.box("image", "rm", name)


def test_a_box_removed_while_it_is_compared_is_no_whole_answer(image):
    with running_yard_with(BOX_POOL="folder") as yard:
        box = yard.new()
        box.sh("mkdir /w; for i in $(seq 40); do head -c 1000000 /dev/urandom > /w/$i; done", check=True)
        connection = UnixConnection(yard.sock)
        connection.request("GET", f"{box.path}/diff?format=tar")
        reply = connection.getresponse()
        reply.read(1000)
        box.remove()
        eventually(lambda: yard.api("GET", box.path).status == 404)
        with pytest.raises(http.client.IncompleteRead):
            reply.read()
        connection.close()
