"""The policy of a box: its language through the command line and the API, versions, editing,
asking."""
import http.client
import json
import stat

import pytest

from boxtest import BOX_BIN, EXIT_STATE, EXIT_USAGE, eventually, random_name
from fixtures import running_yard_with
from internet import world, world_box, world_yard  # noqa: F401
from terminal import Terminal

pytestmark = pytest.mark.asan


def policy_of(box):
    return box.yard.api("GET", f"{box.path}/policy", expect=200).json


def put(box, policy, **more):
    return box.yard.api("PUT", f"{box.path}/policy", {"policy": policy, **more})


def explain(box, **flow):
    return box.yard.api("POST", f"{box.path}/policy/explain", flow, expect=200).json


@pytest.fixture
def closed(make_box):
    return make_box(policy={"preset": "none"})


# ---- making boxes ----------------------------------------------------------------------------


def test_the_shipped_default_is_dev(yard, box):
    shown = policy_of(box)
    assert shown["preset"] == "dev" and shown["version"] == 1 and not shown["recording"]
    rules = [r["rule"] for r in shown["effective"]]
    assert any(r.startswith("github.com") for r in rules)
    # The image is a Debian: apt's own hosts are among the rules, and nobody wrote them into this
    # program.
    sources = box.out("grep -hv '^#' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true")
    for host in shown["package_hosts"]:
        name = host.rpartition(":")[0]
        assert any(r.startswith(name) for r in rules), (host, rules)
    if "://" in sources:
        first = sources.split("://", 1)[1].split("/", 1)[0].split(":")[0]
        assert any(h.startswith(first + ":") for h in shown["package_hosts"]), (first, shown["package_hosts"])


WRITES = """set -e
echo 'deb http://evil.example/debian stable main' >/etc/apt/sources.list.d/evil.list
printf 'registry=https://npm.evil.example/\\n' >/etc/npmrc
mkdir -p /root/.config/pip && printf '[global]\\nindex-url = https://pip.evil.example/simple\\n' >/etc/pip.conf
"""


def test_what_a_box_writes_opens_no_host_for_boxes_of_its_image(yard, box, make_box, tmp_path):
    before = policy_of(box)["package_hosts"]
    box.sh(WRITES)
    file = tmp_path / "Boxfile"
    images = ["widened", "again", "recipe", "vouched"]
    try:
        yard.box("save", box.name, "widened")
        upon = make_box(image="widened")
        assert policy_of(upon)["package_hosts"] == before
        upon.sh("echo 'deb http://more.example/debian stable main' >/etc/apt/sources.list.d/more.list")
        yard.box("save", upon.name, "again")
        assert policy_of(make_box(image="again"))["package_hosts"] == before
        file.write_text("from debian\nrun echo 'deb http://evil.example/debian stable main' >/etc/apt/sources.list.d/evil.list\n")
        yard.box("image", "build", "-f", file, "-t", "recipe", timeout=120)
        assert policy_of(make_box(image="recipe"))["package_hosts"] == before
        # Somebody who knows what is in it says so.
        yard.box("image", "build", "-f", file, "-t", "vouched", "--learn-hosts", timeout=120)
        hosts = policy_of(make_box(image="vouched"))["package_hosts"]
        assert sorted(hosts) == sorted([*before, "evil.example:80"]), hosts
        yard.box("save", "--learn-hosts", box.name, "widened")
        assert {"evil.example:80", "npm.evil.example:443"} <= set(policy_of(make_box(image="widened"))["package_hosts"])
    finally:
        for one in yard.boxes():
            if one["image"] in images:
                yard.box("rm", "-f", one["name"])
        for image in images:
            yard.box("image", "rm", image, check=False)


def test_a_box_is_made_with_a_policy_as_object_text_and_flags(yard, make_box):
    a = make_box(policy={"preset": "none", "allow": ["a.example.com:443"]})
    b = make_box(policy="# yaml\npreset: none\nallow:\n  - a.example.com:443\n")
    name = random_name()
    yard.box("new", name, "--net", "none", "--allow", "a.example.com:443")
    c = yard.api("GET", f"/v1/boxes/{name}/policy", expect=200).json
    try:
        assert policy_of(a)["policy"] == policy_of(b)["policy"] == c["policy"]
    finally:
        yard.box("rm", "-f", name)


def test_flags_alone_come_on_top_of_the_default(yard):
    name = random_name()
    yard.box("new", name, "--allow", "x.example.com", "--deny", "gitlab.com", "--peer", "other:80")
    try:
        shown = yard.api("GET", f"/v1/boxes/{name}/policy", expect=200).json
        assert shown["preset"] == "dev"
        assert [r["name"] for r in shown["policy"]["allow"]] == ["x.example.com"]
        assert shown["policy"]["boxes"] == ["other:80"]
        denied = yard.box("policy", "explain", name, "gitlab.com:443", check=False)
        assert denied.returncode == 1 and "deny #1" in denied.stdout
    finally:
        yard.box("rm", "-f", name)


def test_a_file_and_flags(yard, tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text("preset: packages\nallow: [a.example.com]\nlimits: {connections: 5}\n")
    name = random_name()
    yard.box("new", name, "--policy", file, "--net", "none", "--deny", "a.example.com")
    try:
        shown = yard.api("GET", f"/v1/boxes/{name}/policy", expect=200).json["policy"]
        assert shown["preset"] == "none" and "allow" not in shown
        assert shown["deny"][0]["name"] == "a.example.com" and shown["limits"] == {"connections": 5}
    finally:
        yard.box("rm", "-f", name)


@pytest.mark.parametrize("policy", ["preset: wide\n", {"allow": ["*"]}, {"allow": "x", "what": 1}, 7, ["a"]])
def test_a_wrong_policy_makes_no_box(yard, policy):
    before = len(yard.api("GET", "/v1/boxes").json["boxes"])
    refused = yard.api("POST", "/v1/boxes", {"policy": policy})
    assert refused.status == 400 and refused.code == "invalid"
    assert len(yard.api("GET", "/v1/boxes").json["boxes"]) == before


def test_wrong_flags_are_told_with_their_names(yard):
    refused = yard.box("new", "--net", "wide", check=False)
    assert refused.returncode == EXIT_USAGE and "--net" in refused.stderr
    refused = yard.box("new", "--allow", "a_b..com", check=False)
    assert refused.returncode == EXIT_USAGE and "--allow a_b..com" in refused.stderr
    refused = yard.box("new", "--allow", "a.example.com", "--deny", "a.example.com", check=False)
    assert refused.returncode == EXIT_USAGE


def test_the_default_comes_from_the_configuration(image, tmp_path):
    file = tmp_path / "default.yaml"
    file.write_text("preset: none\nallow: [only.example.com]\n")
    with running_yard_with(BOX_DEFAULT_POLICY=str(file)) as yard:
        box = yard.new()
        assert [r["name"] for r in policy_of(box)["policy"]["allow"]] == ["only.example.com"]
        presets = yard.api("GET", "/v1/policy/presets", expect=200).json
        assert presets["default"]["allow"][0]["name"] == "only.example.com"
        assert not any(p["default"] for p in presets["presets"])
        yard.box("new", "more", "--allow", "more.example.com")
        shown = yard.api("GET", "/v1/boxes/more/policy", expect=200).json["policy"]
        assert [r["name"] for r in shown["allow"]] == ["only.example.com", "more.example.com"]
        # A default that has become wrong is told, and makes no box.
        file.write_text("preset: nonsense\n")
        refused = yard.api("POST", "/v1/boxes", {})
        assert refused.status == 400 and "default_policy" in refused.json["error"]["message"]


# ---- changing --------------------------------------------------------------------------------


def test_every_change_is_a_version(yard, closed):
    assert policy_of(closed)["version"] == 1
    changed = put(closed, {"allow": ["a.example.com"]})
    assert changed.status == 200 and changed.json["version"] == 2
    assert put(closed, {"allow": ["a.example.com"]}).json["version"] == 2  # the same
    assert put(closed, "allow: [a.example.com, b.example.com]\n").json["version"] == 3
    events = yard.api("GET", "/v1/events", query={"box": closed.id}).json["events"]
    changes = [e["data"]["change"] for e in events if e["type"] == "box.policy"]
    assert changes == ["wider", "wider"]
    assert put(closed, {"preset": "none"}).json["version"] == 4
    assert put(closed, {"preset": "none", "limits": {"bytes": "1G"}}).json["version"] == 5


def test_changes_are_in_the_audit_log(yard, closed):
    put(closed, {"allow": ["a.example.com"]})
    put(closed, {"preset": "none"})

    def lines():
        found = yard.api("GET", "/v1/audit", query={"box": closed.id}, expect=200).json["lines"]
        found = [line for line in found if line.get("type") == "policy" and "change" in line]
        return found if len(found) >= 2 else None

    first, second = eventually(lines, what="two lines")[-2:]
    assert (first["change"], first["version"]) == ("wider", 2)
    assert (second["change"], second["version"]) == ("tighter", 3)
    assert first["who"] == "uid 0 by the socket" and first["box_name"] == closed.name
    assert first["policy"]["allow"][0]["name"] == "a.example.com"


def test_a_token_is_named_in_the_audit_log(yard, closed):
    made = yard.api("POST", "/v1/tokens", {"name": random_name(), "scopes": ["create"]}, expect=201).json
    listen = yard.api("GET", "/v1/info").json["listen"]
    conn = http.client.HTTPConnection(listen, timeout=10)
    headers = {"Authorization": f"Bearer {made['token']}", "Content-Type": "application/json"}
    conn.request("PUT", f"{closed.path}/policy", json.dumps({"policy": {"allow": ["t.example.com"]}}), headers)
    assert conn.getresponse().status == 200
    conn.close()

    def found():
        lines = yard.api("GET", "/v1/audit", query={"box": closed.id}).json["lines"]
        return [line for line in lines if line.get("who") == f"token {made['name']}"]

    eventually(found, what="the token's name")
    yard.api("DELETE", f"/v1/tokens/{made['id']}")


def test_a_stale_version_is_refused(yard, closed):
    assert put(closed, {"allow": ["a.example.com"]}, if_version=1).status == 200
    refused = put(closed, {"allow": ["b.example.com"]}, if_version=1)
    assert refused.status == 409 and refused.code == "state"
    assert [r["name"] for r in policy_of(closed)["policy"]["allow"]] == ["a.example.com"]
    refused = yard.box("policy", "set", closed.name, "--allow", "c.example.com", "--if-version", "1", check=False)
    assert refused.returncode == EXIT_STATE and "version 2" in refused.stderr


@pytest.mark.parametrize("body", [{}, {"policy": 7}, {"policy": {"preset": "x"}}, {"policy": "a: ["}, {"policy": {}, "x": 1},
                                  {"policy": {}, "if_version": -1}])
def test_a_wrong_change_changes_nothing(closed, body):
    before = policy_of(closed)
    refused = closed.yard.api("PUT", f"{closed.path}/policy", body)
    assert refused.status == 400
    assert policy_of(closed) == before


def test_policies_survive_stop_start_and_the_daemon(image):
    with running_yard_with() as yard:
        box = yard.new(policy={"allow": ["a.example.com:443"], "limits": {"bytes": "1G"}})
        put(box, {"allow": ["a.example.com:443", "b.example.com"], "boxes": ["other"]})
        before = policy_of(box)
        yard.box("stop", box.name, "-t", "0")
        assert policy_of(box) == before
        put(box, {"allow": ["c.example.com"]})
        yard.box("start", box.name)
        after = policy_of(box)
        assert after["version"] == 3 and after["policy"]["allow"][0]["name"] == "c.example.com"
        yard.kill_daemon()
        yard.start_daemon()
        assert policy_of(box) == after
        assert put(box, {"preset": "none"}).json["version"] == 4


def test_set_and_add(yard, closed, tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text("allow:\n  - a.example.com:443\n")
    yard.box("policy", "set", closed.name, file)
    yard.box("policy", "set", closed.name, "--add", "--allow", "b.example.com", "--net", "packages")
    shown = policy_of(closed)
    assert shown["preset"] == "packages" and shown["version"] == 3
    assert [r["name"] for r in shown["policy"]["allow"]] == ["a.example.com", "b.example.com"]
    yard.box("policy", "set", closed.name, "--add", "--deny", "a.example.com:443")
    assert [r["name"] for r in policy_of(closed)["policy"]["allow"]] == ["b.example.com"]
    yard.box("policy", "set", closed.name, "-", input="preset: none\n")
    assert policy_of(closed)["policy"] == {"version": 1, "preset": "none"}
    refused = yard.box("policy", "set", closed.name, check=False)
    assert refused.returncode == EXIT_USAGE


def test_show_gives_what_set_takes(yard, closed):
    policy = {"preset": "packages", "allow": [{"name": "a.example.com", "ports": [80], "methods": ["GET"], "paths": ["/v1/"],
              "note": "read: only"}, "*.example.org:443", "[2001:db8::/32]:22"], "deny": ["b.example.com:80/tcp"],
              "boxes": ["web:8080"], "limits": {"rate": "2M", "on_limit": "stop"}, "dns": {"allow_private": ["a.example.com"]}}
    put(closed, policy)
    before = policy_of(closed)
    text = yard.box("policy", "show", closed.name).stdout
    assert text.startswith("# version 2 of the policy (for --if-version), changed ")
    yard.box("policy", "set", closed.name, "-", input=text)
    assert policy_of(closed) == before  # the same: no new version
    shown = json.loads(yard.box("policy", "show", closed.name, "--json").stdout)
    assert shown == before and shown["policy"]["version"] == 1  # that of the language
    # What it says is the version is what --if-version takes.
    yard.box("policy", "set", closed.name, "--add", "--allow", "c.example.com", "--if-version", str(shown["version"]))
    again = yard.box("policy", "set", closed.name, "--add", "--allow", "d.example.com", "--if-version", str(shown["version"]), check=False)
    assert again.returncode and "has version 3 by now, not 2" in again.stderr
    rules = yard.box("policy", "show", closed.name, "--rules").stdout
    assert "*.example.org:443" in rules and "deny" in rules


# ---- editing ---------------------------------------------------------------------------------


def editor(tmp_path, script):
    path = tmp_path / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"EDITOR": str(path), "VISUAL": "", "TMPDIR": str(tmp_path)}


def test_edit_applies_what_the_editor_left(yard, closed, tmp_path):
    env = editor(tmp_path, "printf 'allow: [edited.example.com]\\n' >> \"$1\"")
    done = yard.box("policy", "edit", closed.name, env=env)
    assert "version 2" in done.stderr
    assert policy_of(closed)["policy"]["allow"][0]["name"] == "edited.example.com"
    assert not list(tmp_path.glob("box-policy-*"))


def test_edit_without_a_change_is_none(yard, closed, tmp_path):
    done = yard.box("policy", "edit", closed.name, env=editor(tmp_path, "true"))
    assert "nothing was changed" in done.stderr and policy_of(closed)["version"] == 1


def test_edit_tells_errors_with_lines_and_keeps_the_text(yard, closed, tmp_path):
    env = editor(tmp_path, "printf 'allow: [a_b..example]\\nwhat: 1\\n' >> \"$1\"")
    refused = yard.box("policy", "edit", closed.name, env=env, check=False)
    assert refused.returncode == EXIT_USAGE and policy_of(closed)["version"] == 1
    kept = list(tmp_path.glob("box-policy-*.yaml"))
    assert len(kept) == 1 and str(kept[0]) in refused.stderr
    lines = kept[0].read_text().splitlines()
    assert f":{lines.index('what: 1') + 1}:1: error: " in refused.stderr
    assert "2 errors" in refused.stderr


def test_edit_offers_to_put_it_right(yard, closed, tmp_path, monkeypatch):
    # The first time a wrong line, the second time a right one.
    script = ('if grep -q wrong "$1"; then sed -i s/wrong:.*/"allow: [right.example.com]"/ "$1"; else echo "wrong: 1" >> "$1"; fi')
    for key, value in editor(tmp_path, script).items():
        monkeypatch.setitem(yard.env, key, value)
    with Terminal(yard, "policy", "edit", closed.name) as term:
        term.expect(r":\d+:1: error: ")
        term.expect(r"Edit again\?")
        term.type("\n")
        term.expect("version 2")
        assert term.wait() == 0
    assert policy_of(closed)["policy"]["allow"][0]["name"] == "right.example.com"
    with Terminal(yard, "policy", "edit", closed.name) as term:
        term.expect(r"Edit again\?")
        term.type("n\n")
        assert term.wait() == EXIT_USAGE


def test_record_waits_for_enter_and_takes_ctrl_c(yard, closed):
    for keys in ("\n", "\x03"):
        with Terminal(yard, "policy", "record", closed.name) as term:
            term.expect("press Enter")
            assert policy_of(closed)["recording"]
            term.type(keys)
            term.expect("preset: none")
            assert term.wait() == 0
        assert not policy_of(closed)["recording"]


def test_edit_loses_no_change_of_somebody_else(yard, closed, tmp_path):
    env = editor(tmp_path, f'echo "allow: [mine.example.com]" >> "$1"; {BOX_BIN} policy set {closed.name} '
                           "--allow theirs.example.com")
    refused = yard.box("policy", "edit", closed.name, env=env, check=False)
    assert refused.returncode == EXIT_STATE and "your text is in" in refused.stderr
    assert policy_of(closed)["policy"]["allow"][0]["name"] == "theirs.example.com"


def test_edit_with_a_failing_editor_changes_nothing(yard, closed, tmp_path):
    refused = yard.box("policy", "edit", closed.name, env=editor(tmp_path, "exit 3"), check=False)
    assert refused.returncode != 0 and policy_of(closed)["version"] == 1


# ---- check, explain, presets -----------------------------------------------------------------


def test_check_tells_lines_without_a_daemon(yard, tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text("preset: none\nallow:\n  - a.example.com\n  - b..example.com\nalow: []\n")
    nowhere = {"BOX_RUN": str(tmp_path / "none"), "BOX_HOME": str(tmp_path / "none")}
    done = yard.box("policy", "check", file, env=nowhere, check=False)
    assert done.returncode == EXIT_USAGE
    assert f"{file}:4:5: error: " in done.stdout and f"{file}:5:1: error: " in done.stdout
    file.write_text("allow: [a.example.com, a.example.com:80]\n")
    done = yard.box("policy", "check", file, env=nowhere)
    assert ":1:24: warning: " in done.stdout
    report = json.loads(yard.box("policy", "check", "-", "--json", input="allow: [a.example.com]\n", env=nowhere).stdout)
    assert report["ok"] and report["problems"] == [] and report["policy"]["allow"][0]["name"] == "a.example.com"


def test_check_over_the_api(yard):
    report = yard.api("POST", "/v1/policy/check", {"text": "allow:\n  - b..example.com\n  - c.com\n"}, expect=200).json
    assert not report["ok"] and report["errors"] == 1 and report["policy"] is None
    assert report["problems"][0]["line"] == 2 and report["problems"][0]["column"] == 5
    assert yard.api("POST", "/v1/policy/check", {}).status == 400


def test_explain(yard, make_box):
    box = make_box(policy={"allow": ["a.example.com:443", {"name": "b.example.com", "methods": ["GET"], "paths": ["/v1/"]},
                                     "10.1.0.0/16:5432"], "deny": ["bad.example.com"]})
    assert explain(box, name="a.example.com", port=443)["allowed"]
    near = explain(box, name="a.example.com", port=80)
    assert not near["allowed"] and near["reason"] == "default" and near["near"]["rule"] == "a.example.com:443"
    assert explain(box, name="a.example.com")["kind"] == "dns"
    assert explain(box, name="b.example.com", path="/v1/x")["allowed"]
    assert not explain(box, name="b.example.com", path="/v1/x", method="POST")["allowed"]
    assert explain(box, address="10.1.2.3", port=5432)["allowed"]
    assert explain(box, address="169.254.169.254", port=80)["reason"] == "range"
    assert explain(box, name="a.example.com", address="10.1.2.3", port=443)["reason"] == "range"
    assert explain(box, name="a.example.com", port=443, seen="evil.example.com")["reason"] == "mismatch"
    for wrong in ({}, {"port": 1}, {"name": "x", "port": 70000}, {"name": "x", "kind": "gre"}, {"address": "10.0.0.1"}):
        assert yard.api("POST", f"{box.path}/policy/explain", wrong).status == 400
    for words, code in ((["a.example.com:443"], 0), (["a.example.com:80"], 1), (["https://a.example.com/x"], 0),
                        (["http://b.example.com/v1/"], 0), (["http://b.example.com/v2"], 1), (["bad.example.com/dns"], 1),
                        (["http://b.example.com/v1/", "--method", "PUT"], 1), (["[::1]:80"], 1), (["10.1.0.9:5432/tcp"], 0),
                        (["10.1.0.9:5432/udp"], 1)):
        done = yard.box("policy", "explain", box.name, *words, check=False)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        assert "is allowed" in done.stdout if code == 0 else "is denied" in done.stdout


def test_presets(yard):
    shown = yard.box("policy", "presets").stdout
    for name in ("none", "packages", "dev", "open"):
        assert name in shown
    assert "github.com" in yard.box("policy", "presets", "dev").stdout
    answer = yard.api("GET", "/v1/policy/presets", expect=200).json
    assert [p["name"] for p in answer["presets"] if p["default"]] == ["dev"]
    assert answer["default"] == {"version": 1, "preset": "dev"}


# ---- watch mode and figures ------------------------------------------------------------------


def test_record_runs_a_program_and_proposes(yard, closed, tmp_path):
    out = tmp_path / "proposal.yaml"
    done = yard.box("policy", "record", closed.name, "-o", out, "--", "sh", "-c", "echo ran; exit 3", check=False)
    assert done.returncode == 3 and done.stdout == "ran\n"
    assert not policy_of(closed)["recording"] and policy_of(closed)["version"] == 1
    assert "preset: none" in out.read_text()
    assert yard.box("policy", "check", out).returncode == 0
    lines = eventually(lambda: [line for line in yard.api("GET", "/v1/audit", query={"box": closed.id}).json["lines"]
                                if line.get("type") == "policy" and "recording" in line][-2:])
    assert [line["recording"] for line in lines] == [True, False]


def test_record_can_be_switched_and_stays_with_the_box(yard, closed):
    yard.api("POST", f"{closed.path}/policy/record", {"on": True}, expect=200)
    assert policy_of(closed)["recording"]
    assert "watch mode is on" in yard.box("policy", "show", closed.name).stdout
    assert "preset: none" in yard.box("policy", "propose", closed.name).stdout
    yard.box("policy", "record", closed.name, "--off")
    assert not policy_of(closed)["recording"]
    assert yard.api("POST", f"{closed.path}/policy/record", {}).status == 400


def test_a_stopped_box_has_nothing_to_propose(yard, closed):
    yard.box("stop", closed.name, "-t", "0")
    refused = yard.api("GET", f"{closed.path}/policy/proposal")
    assert refused.status == 409 and refused.code == "state"


def test_net_tells_figures(yard, closed):
    closed.sh("getent hosts refused.example.com || true")

    def asked():
        net = yard.api("GET", f"{closed.path}/net", expect=200).json
        return net if net["questions"] else None

    net = eventually(asked, what="the question is counted")
    assert net["bytes_out"] == 0 and net["connections"] == 0
    with_list = yard.api("GET", f"{closed.path}/net", query={"connections": "true"}, expect=200).json
    assert with_list["connections_list"] == []
    totals = yard.api("GET", "/v1/net", expect=200).json["boxes"]
    mine = [one for one in totals if one["box"] == closed.id][0]
    assert mine["questions"] >= 1 and mine["name"] == closed.name
    assert closed.name in yard.box("net").stdout
    assert "questions" in yard.box("net", closed.name, "--connections").stdout
    assert yard.box("net", "--connections", check=False).returncode == EXIT_USAGE
    assert yard.api("GET", "/v1/boxes/nobody/net").status == 404


# ---- with something to reach -----------------------------------------------------------------

FETCH = "import sys, urllib.request as u; [print(u.urlopen(url, timeout=5).read().decode().strip()) for url in sys.argv[1:]]"


@pytest.fixture(scope="module")
def served(world):
    names = {"web.test": "203.0.113.10", "inner.test": "10.9.9.9", "large.test": "203.0.113.14", "echo.test": "203.0.113.12",
             **{f"{x}.cdn.test.example": "203.0.113.11" for x in "abc"}}
    for name, address in names.items():
        world.dns(name, address)
    servers = [world.serve_http(address, port) for address, port in
               (("203.0.113.10", 80), ("203.0.113.10", 8080), ("203.0.113.11", 80), ("10.9.9.9", 80))]
    servers += [world.serve_http("203.0.113.14", 80, answer=b"x" * 100000), world.echo_tcp("203.0.113.12", 7)]
    yield world
    for server in servers:
        server.close()
    for name in names:
        world.no_dns(name)


@pytest.fixture
def web(served):
    served.forget()
    return served


def test_record_proposes_what_was_used_and_no_more(web, world_yard, world_box):
    box = world_box(policy={"preset": "none"})
    assert box.python(FETCH, "http://web.test/", check=False).returncode != 0
    done = world_yard.box("policy", "record", box.name, "--apply", "--", "python3", "-c", FETCH, "http://web.test/",
                          "http://web.test:8080/", "http://a.cdn.test.example/", "http://b.cdn.test.example/",
                          "http://c.cdn.test.example/", "http://web.test/again")
    assert done.stdout.startswith("ok\n" * 6)
    text = done.stdout[len("ok\n" * 6):]
    assert "  - web.test:80,8080  # 3 connections, " in text, text
    assert text.index("web.test:80") < text.index("a.cdn.test.example:80")
    assert '# 3 names lie below cdn.test.example; "*.cdn.test.example"' in text
    shown = policy_of(box)
    assert not shown["recording"] and shown["version"] == 2
    assert sorted(r["name"] for r in shown["policy"]["allow"]) == [
        "a.cdn.test.example", "b.cdn.test.example", "c.cdn.test.example", "web.test"]
    # What was seen goes on to work, and nothing else does.
    assert box.python(FETCH, "http://web.test/", "http://a.cdn.test.example/").returncode == 0
    web.dns("other.test", "203.0.113.10")
    web.forget()
    assert box.python(FETCH, "http://other.test/", check=False).returncode != 0
    assert not web.seen("tcp")


def test_what_was_seen_is_added_to_what_there_is(web, world_yard, world_box):
    box = world_box(policy={"preset": "packages", "allow": ["web.test:80", "kept.example.com:22"], "deny": ["evil.example.com"],
                            "limits": {"connections": 50}})
    before = policy_of(box)
    done = world_yard.box("policy", "record", box.name, "--add", "--", "python3", "-c", FETCH, "http://web.test/",
                          "http://a.cdn.test.example/")
    assert "version 2" in done.stderr
    after = policy_of(box)
    assert after["preset"] == "packages" and after["policy"]["limits"] == before["policy"]["limits"]
    assert after["policy"]["deny"] == before["policy"]["deny"]
    assert [r["name"] for r in after["policy"]["allow"]] == ["web.test", "kept.example.com", "a.cdn.test.example"]
    assert box.python(FETCH, "http://a.cdn.test.example/").returncode == 0
    # Once more: there is nothing to add.
    world_yard.box("policy", "record", box.name, "--add", "--", "python3", "-c", FETCH, "http://web.test/")
    assert policy_of(box)["version"] == 2
    both = world_yard.box("policy", "record", box.name, "--add", "--apply", "--", "true", check=False)
    assert both.returncode == 64 and not policy_of(box)["recording"]


def test_watch_mode_keeps_private_addresses_closed(web, world_yard, world_box):
    box = world_box(policy={"preset": "none"})
    done = world_yard.box("policy", "record", box.name, "--", "python3", "-c", FETCH, "http://inner.test/", check=False)
    assert done.returncode != 0 and not web.seen("tcp 10.9.9.9")
    assert "inner.test:80" not in done.stdout
    assert "preset: none" in done.stdout


def test_a_new_policy_cuts_what_it_forbids(web, world_yard, world_box):
    box = world_box(policy={"allow": ["echo.test:7", "web.test"]})
    script = ("import socket, sys\ns = socket.create_connection(('echo.test', 7), 5)\ns.sendall(bytes(1))\nassert s.recv(1)\n"
              "print('open', flush=True)\ns.settimeout(20)\ntry:\n    print('end', len(s.recv(1)))\nexcept ConnectionError:\n"
              "    print('end 0')\n")
    started = box.start("python3", "-c", script)
    eventually(lambda: b"open" in box.logs(started["id"], raw="true"), what=lambda: box.logs(started["id"], raw="true"))
    listed = world_yard.api("GET", f"{box.path}/net", query={"connections": "true"}, expect=200).json["connections_list"]
    assert [(c["name"], c["port"]) for c in listed] == [("echo.test", 7)]
    # A change that still allows it leaves it alone.
    put(box, {"allow": ["echo.test"]})
    assert box.get_exec(started["id"])["state"] == "running"
    put(box, {"allow": ["web.test"]})
    box.wait_exec(started["id"], 5)
    assert b"end 0" in box.logs(started["id"], raw="true")
    assert box.python(FETCH, "http://web.test/").returncode == 0


def test_net_counts_bytes_by_destination(web, world_yard, world_box):
    box = world_box(policy={"allow": ["large.test:80"]})
    box.python("import urllib.request as u; u.urlopen('http://large.test/').read()")
    box.python("import urllib.request as u; u.urlopen('http://large.test:81/')", check=False)

    def counted():
        net = world_yard.api("GET", f"{box.path}/net", expect=200).json
        return net if net["bytes_in"] > 100000 and net["refused"] else None

    net = eventually(counted, what="bytes and a refusal")
    one = [d for d in net["destinations"] if d["name"] == "large.test" and d["port"] == 80][0]
    assert one["connections"] == 1 and one["bytes_in"] > 100000 and one["bytes_out"] > 50
    assert sum(m["bytes_in"] for m in net["minutes"]) == net["bytes_in"]
    shown = world_yard.box("net", box.name).stdout
    assert "large.test:80/tcp" in shown and "last hour" in shown
