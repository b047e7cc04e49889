"""What differs between boxes: figures, programs and their ends, files."""
import json

import pytest

from boxtest import EXIT_NOT_FOUND, EXIT_USAGE, eventually


def compare(yard, *boxes, **query):
    """The answer; its files by path."""
    pairs = [("box", box.name) for box in boxes] + list(query.items())
    answer = yard.api("GET", "/v1/compare?" + "&".join(f"{key}={value}" for key, value in pairs), expect=200).json
    return answer, {file["path"]: file for file in answer["files"]}


@pytest.fixture
def pair(make_box):
    one, two = make_box(), make_box()
    for box in (one, two):
        box.sh("mkdir /w; echo same > /w/same; echo base > /w/changed; mkdir /w/folder; echo x > /w/folder/file")
    one.sh("echo gone > /w/only-one")
    two.sh("echo longer >> /w/changed; head -c 5000 /dev/zero > /w/only-two; rm -r /w/folder; ln -s x /w/link")
    return one, two


@pytest.mark.asan
def test_compare_tells_figures_programs_and_files(yard, pair):
    one, two = pair
    one.sh("exit 0")
    two.sh("exit 7", check=False)
    answer, files = compare(yard, one, two)
    assert [box["name"] for box in answer["boxes"]] == [one.name, two.name]
    for box, shown in zip((one, two), answer["boxes"]):
        assert shown["id"] == box.id and shown["state"] == "running"
        assert shown["memory_bytes"] > 0 and shown["processes"] >= 1
    assert 7 in [e["exit_code"] for e in answer["boxes"][1]["execs"]]
    assert all(e["exit_code"] == 0 and not e["running"] and e["argv"] for e in answer["boxes"][0]["execs"])
    assert answer["files_truncated"] is False
    assert answer["files"] == sorted(answer["files"], key=lambda file: file["path"].encode())
    assert "/w/same" not in files and "/w" not in files
    assert files["/w/changed"]["change"] == {one.name: "same", two.name: "modified"}
    assert files["/w/changed"]["size"] == {one.name: 5, two.name: 12}
    assert files["/w/only-one"]["change"][two.name] == "removed" and files["/w/only-one"]["size"][two.name] is None
    assert files["/w/only-two"]["change"][two.name] == "added"
    assert files["/w/only-two"]["size"] == {one.name: None, two.name: 5000}
    assert files["/w/folder"]["change"][two.name] == "removed" and files["/w/folder"]["type"] == "dir"
    assert "/w/folder/file" not in files
    assert files["/w/link"]["type"] == "symlink"


def test_compare_of_three_sees_each_path_in_each_box(yard, pair, make_box):
    one, two = pair
    three = make_box()
    three.sh("mkdir -p /w/folder; echo same > /w/same; echo base > /w/changed; echo y > /w/folder/file;"
             "echo gone > /w/only-one")
    _, files = compare(yard, one, two, three)
    assert files["/w/folder/file"]["change"] == {one.name: "same", two.name: "removed", three.name: "modified"}
    assert files["/w/folder"]["change"] == {one.name: "same", two.name: "removed", three.name: "same"}
    assert files["/w/only-two"]["change"] == {one.name: "same", two.name: "added", three.name: "same"}


def test_compare_wakes_and_starts_nobody(yard, pair):
    one, two = pair
    yard.box("suspend", one.name)
    yard.box("stop", two.name)
    answer, files = compare(yard, one, two)
    assert [box["state"] for box in answer["boxes"]] == ["suspended", "stopped"]
    assert [box["execs"] for box in answer["boxes"]] == [None, None]
    assert answer["boxes"][1]["memory_bytes"] is None and answer["boxes"][1]["processes"] is None
    assert files["/w/changed"]["change"][two.name] == "modified"
    assert one.show()["state"] == "suspended" and two.show()["state"] == "stopped"


def test_compare_tells_a_share_of_many_paths(yard, make_box):
    one, two, three = make_box(), make_box(), make_box()
    for box, letter in ((two, "b"), (three, "c")):
        box.sh(f"mkdir /m; for i in $(seq 50); do echo {letter} > /m/{letter}$i; done")
    answer, files = compare(yard, one, two, three, limit=20)
    assert answer["files_truncated"] is True and len(answer["files"]) == 20
    assert [p for p in files if p.startswith("/m/b")] and [p for p in files if p.startswith("/m/c")]
    assert compare(yard, one, two, three)[0]["files_truncated"] is False


def test_compare_survives_hostile_names_and_links(yard, make_box):
    one, two = make_box(), make_box()
    two.python("import os\nos.mkdir(b'/h')\nopen(b'/h/\\xff\\x1b[31m', 'w').close()\nopen('/h/a\\nb', 'w').close()\n"
               "os.symlink('/etc/shadow', '/h/passwd')")
    one.sh("ln -s /proc/1/root/etc /h")
    answer, files = compare(yard, one, two)
    assert any(file.get("path_b64") for file in answer["files"])
    assert files["/h/a\nb"]["change"][two.name] == "added"
    assert files["/h/passwd"]["size"][one.name] is None
    text = yard.box("compare", one.name, two.name).stdout
    assert "\x1b" not in text and "\na\n" not in text


def test_compare_refuses_what_makes_no_sense(yard, make_box):
    box, other = make_box(), make_box()

    def status(query):
        return yard.api("GET", f"/v1/compare{query}").status

    assert status("") == 400 and status(f"?box={box.name}") == 400
    assert status(f"?box={box.name}&box={box.id}") == 400
    assert status(f"?box={box.name}&box=nobody") == 404
    assert status(f"?box={box.name}&box={other.name}&limit=0") == 400
    assert status(f"?box={box.name}&box={other.name}&limit=10001") == 400
    assert status("?" + "&".join(["box=" + box.name] * 17)) == 400
    assert yard.box("compare", box.name, check=False).returncode == EXIT_USAGE
    assert yard.box("compare", box.name, "nobody", check=False).returncode == EXIT_NOT_FOUND


def test_compare_on_the_command_line(yard, pair):
    one, two = pair
    two.sh("exit 7", check=False)
    text = yard.box("compare", one.name, two.name).stdout
    lines = text.splitlines()
    assert lines[0].split() == [one.name, two.name]
    assert [line.split()[1:] for line in lines if line.startswith("state")] == [["running", "running"]]
    assert [line for line in lines if "exit 7" in line and " 7 " in line]
    changed = [line for line in lines if line.endswith("/w/changed")]
    assert changed and changed[0].split() == ["5", "M", "12", "/w/changed"]
    assert [line for line in lines if line.endswith("/w/folder/") and " D " in line]
    only = yard.box("compare", one.name, two.name, "--files").stdout
    assert "processes" not in only and "/w/only-two" in only
    shown = json.loads(yard.box("compare", one.name, two.name, "--json", "--limit", "1").stdout)
    assert shown["files_truncated"] and len(shown["files"]) == 1


def test_compare_of_alike_boxes_and_views_that_go_away(yard, make_box):
    one, two = make_box(), make_box()
    answer, files = compare(yard, one, two)
    assert not [path for path in files if not path.startswith(("/etc/host", "/dev", "/run"))]
    views = yard.pool / "views"
    if views.exists():
        eventually(lambda: not list(views.iterdir()), 10, "nothing of it stays")
