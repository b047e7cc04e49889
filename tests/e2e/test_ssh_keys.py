"""Keys of SSH logins by REST and command line: what is taken, what is refused, who sees which."""
import base64
import json
import os
import re
import struct
import subprocess

import pytest

from boxtest import random_name
from test_owners import Client

pytestmark = pytest.mark.asan


def keygen(folder, *args, comment="ann@laptop"):
    """A new key pair: (path of the private one, line of the public one)."""
    path = folder / random_name("id")
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-C", comment, "-f", path, *(args or ("-t", "ed25519"))], check=True)
    return path, path.with_suffix(".pub").read_text().strip()


def fingerprint(path):
    told = subprocess.run(["ssh-keygen", "-lf", path], capture_output=True, text=True, check=True).stdout
    return told.split()[1]


def ssh_string(data):
    return struct.pack(">I", len(data)) + data


def fresh_line(comment="x"):
    """A line of a key nobody has the private half of."""
    blob = ssh_string(b"ssh-ed25519") + ssh_string(os.urandom(32))
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} {comment}"


@pytest.fixture(autouse=True)
def no_keys(yard):
    yield
    for key in yard.api("GET", "/v1/keys", expect=200).json["keys"]:
        yard.api("DELETE", f"/v1/keys/{key['id']}", expect=204)


@pytest.fixture
def ann(yard):
    return Client(yard, "ann")


@pytest.fixture
def bob(yard):
    return Client(yard, "bob")


def add(who, line, expect=201, **more):
    return who.api("POST", "/v1/keys", {"key": line, **more}, expect=expect).json


# ---- REST ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [("-t", "ed25519"), ("-t", "ecdsa", "-b", "384"), ("-t", "rsa", "-b", "2048")])
def test_a_key_is_added_shown_and_removed(yard, tmp_path, kind):
    path, line = keygen(tmp_path, *kind)
    since = yard.next_offset()
    made = add(yard, line)
    assert made["fingerprint"] == fingerprint(path) and made["type"] == line.split()[0]
    assert made["name"] == "ann-laptop" and made["owner"] == "local" and made["role"] == "create"
    assert made["box"] is None and made["from"] is None and made["expires_at"] is None and made["last_used_at"] is None
    assert made["key"] == line.split()[1] and made["comment"] == "ann@laptop" and made["restricted"] == []
    for which in (made["id"], made["name"], made["fingerprint"]):
        assert yard.api("GET", f"/v1/keys/{which}", expect=200).json == made
    assert made in yard.api("GET", "/v1/keys", expect=200).json["keys"]
    yard.api("DELETE", f"/v1/keys/{made['fingerprint']}", expect=204)
    yard.api("GET", f"/v1/keys/{made['id']}", expect=404)
    told = [event for event in yard.events() if event["offset"] >= since]
    assert [event["type"] for event in told] == ["key.added", "key.removed"]
    for event in told:
        assert event["who"] == "uid 0 by the socket" and event["data"]["fingerprint"] == made["fingerprint"]
        assert event["data"]["name"] == "ann-laptop" and event["data"]["role"] == "create"


def test_settings_come_in_the_body_or_in_the_line(yard):
    made = add(yard, fresh_line(), name="one", owner="ann", role="exec", box="ada", ttl="30d",
               **{"from": "192.0.2.0/24,!192.0.2.7"}, restricted=["pty", "agent-forwarding"])
    assert (made["name"], made["owner"], made["role"], made["box"]) == ("one", "ann", "exec", "ada")
    assert made["from"] == "192.0.2.0/24,!192.0.2.7" and made["restricted"] == ["pty", "agent-forwarding"]
    assert made["expires_at"] > made["created_at"]
    made = add(yard, 'box="ada",role=files,from="2001:db8::/32",expires="20990102Z",restrict,pty ' + fresh_line("a b"))
    assert (made["role"], made["box"], made["from"]) == ("files", "ada", "2001:db8::/32")
    assert made["expires_at"].startswith("2099-01-02T00:00:00") and made["comment"] == "a b" and made["name"] == "a-b"
    assert made["restricted"] == ["port-forwarding", "agent-forwarding", "X11-forwarding"]
    made = add(yard, "role=exec " + fresh_line(), role="exec", expires_at="2099-05-06T07:08:09Z")
    assert made["role"] == "exec" and made["expires_at"].startswith("2099-05-06T07:08:09")
    assert add(yard, "box=ada " + fresh_line())["role"] == "exec", "all that a key of one box can have"
    for line, more in (("role=exec ", {"role": "read"}), ("box=ada ", {"box": "bea"}), ('from="192.0.2.1" ', {"from": "192.0.2.2"})):
        assert "twice" in add(yard, line + fresh_line(), 400, **more)["error"]["message"]


def test_the_same_again_is_no_mistake_and_another_is(yard):
    line = fresh_line("same")
    first = add(yard, line, role="exec", name="same")
    since = yard.next_offset()
    assert add(yard, line, 200, role="exec", name="same") == first
    assert add(yard, line, 200, role="exec") == first
    assert yard.next_offset() == since, "nothing happened"
    for more in ({"role": "create"}, {"role": "exec", "name": "other"}, {"role": "exec", "owner": "ann"},
                 {"role": "exec", "box": "ada"}, {"role": "exec", "restricted": ["pty"]}, {"role": "exec", "ttl": "1h"}):
        error = add(yard, line, 409, **more)["error"]
        assert error["code"] == "exists" and "'same' of owner 'local'" in error["message"] and "box key rm" in error["hint"]
    error = add(yard, fresh_line(), 409, name="same")["error"]
    assert "named 'same'" in error["message"] and error["hint"]
    # Without a name one is made that is free.
    assert [add(yard, fresh_line("a@b"))["name"] for _ in range(3)] == ["a-b", "a-b-2", "a-b-3"]
    assert add(yard, fresh_line("\u00e4\u00f6 99"))["name"] == "key" and add(yard, fresh_line(""))["name"] == "key-2"
    assert len(add(yard, fresh_line("n" * 500))["name"]) <= 63


def bad_lines(tmp_path):
    private, public = keygen(tmp_path)
    pem, _ = keygen(tmp_path, "-t", "rsa", "-b", "2048", "-m", "PEM")
    weak = ssh_string(b"ssh-rsa") + ssh_string(b"\x01\x00\x01") + ssh_string(b"\x00" + b"\xff" * 128)
    dsa = ssh_string(b"ssh-dss") + ssh_string(b"\x00" + b"\xff" * 128) + ssh_string(b"\x7f" * 20) * 3
    ca, _ = keygen(tmp_path)
    subprocess.run(["ssh-keygen", "-q", "-s", ca, "-I", "ann", "-n", "ann", f"{private}.pub"], check=True)
    certificate = (tmp_path / f"{private.name}-cert.pub").read_text().strip()
    secret = private.read_text()
    return {
        "private": (secret, "private key"),
        "private without its first line": ("\n".join(secret.splitlines()[1:]), "private key"),
        "PEM": (pem.read_text(), "private key"),
        "PuTTY": ("PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPrivate-Lines: 1\nAAAA\n", "private key"),
        "DSA": (f"ssh-dss {base64.b64encode(dsa).decode()} x", "kind that is accepted"),
        "RSA-1024": (f"ssh-rsa {base64.b64encode(weak).decode()} x", "1024 bits"),
        "certificate": (certificate, "certificate"),
        "junk": ("hello", "not a line"),
        "junk with words": ("hello, how are you", "not a line"),
        "no base64": ("ssh-ed25519 !!!! x", "base64"),
        "cut": (" ".join(public.split()[:1]) + " " + public.split()[1][:40], "malformed"),
        "of another kind": (public.replace("ssh-ed25519 ", "ssh-rsa ", 1), "not of the kind"),
        "too long": ("ssh-ed25519 " + "A" * 33 * 1024, "longer than"),
        "unknown option": ('command="ls" ' + public, "'command' is not supported"),
        "open quote": ('from="192.0.2.1 ' + public, "malformed"),
        "pattern of addresses": ('from="*.example.com" ' + public, "example.com"),
        "past": ('expiry-time="20200101" ' + public, "expired"),
        "no time": ('expires="soon" ' + public, "soon"),
        "a CA": ("cert-authority " + public, "cert-authority"),
        "role": ("role=king " + public, "king"),
        "more of a box than it has": ("box=ada,role=create " + public, "at most the role exec"),
        "name of a box": ("box=../x " + public, "box"),
        "two lines": (f"{public}\n{fresh_line()}", "more than one line"),
        "empty": ("", "no key"),
        "a remark": ("# nothing", "no key"),
    }


def test_what_is_no_public_key_is_refused_and_not_repeated(yard, tmp_path):
    for what, (line, why) in bad_lines(tmp_path).items():
        reply = yard.api("POST", "/v1/keys", {"key": line})
        assert reply.status == 400, (what, reply.body)
        error = reply.json["error"]
        assert error["code"] == "invalid" and why in error["message"], (what, error)
        for word in re.findall(r"[A-Za-z0-9+/]{33,}", line):
            assert word not in reply.body.decode(), what
    assert yard.api("GET", "/v1/keys").json == {"keys": []}
    for path in (yard.log, yard.home / "state.db", yard.home / "state.db-wal"):
        if path.exists():
            assert b"PRIVATE KEY" not in path.read_bytes() and b"b3BlbnNzaC1rZXktdjE" not in path.read_bytes()


@pytest.mark.parametrize("more, why", [
    ({"name": "Not A Name"}, "name"), ({"owner": "Not One"}, "owner"), ({"role": "king"}, "role"), ({"box": "a/b"}, "box"),
    ({"from": "localhost"}, "localhost"), ({"ttl": "soon"}, "ttl"), ({"ttl": "1h", "expires_at": "2099-01-01T00:00:00Z"}, "not both"),
    ({"expires_at": "tomorrow"}, "not a time"), ({"expires_at": "10m"}, "not a time"), ({"expires_at": "2001-01-01T00:00:00Z"}, "expired"),
    ({"restricted": ["breathing"]}, "breathing"), ({"restricted": "pty"}, "restricted"), ({"colour": "red"}, "colour"),
])
def test_wrong_settings_are_refused_by_name(yard, more, why):
    error = add(yard, fresh_line(), 400, **more)["error"]
    assert why in error["message"], error
    assert yard.api("POST", "/v1/keys", {}, expect=400).json["error"]["message"]


# ---- owners ----------------------------------------------------------------------------------


def test_a_token_has_its_owners_keys_alone(yard, ann, bob):
    hers, line = add(ann, fresh_line("hers")), fresh_line("shared")
    assert hers["owner"] == "ann"
    add(ann, line, name="shared")
    assert [key["name"] for key in ann.api("GET", "/v1/keys").json["keys"]] == ["hers", "shared"]
    assert bob.api("GET", "/v1/keys").json == {"keys": []}
    for which in (hers["id"], hers["name"], hers["fingerprint"]):
        for method in ("GET", "DELETE"):
            nothing, other = "x" * len(which), bob.api(method, f"/v1/keys/{which}", expect=404)
            assert other.body.replace(which.encode(), nothing.encode()) == bob.api(method, f"/v1/keys/{nothing}").body
    assert add(bob, fresh_line(), 403, owner="ann")["error"]["hint"]
    for taken in (add(bob, line, 409), add(bob, fresh_line(), 409, name="shared")):
        assert "another owner" in taken["error"]["message"] and "ann" not in json.dumps(taken)
    assert len(yard.api("GET", "/v1/keys").json["keys"]) == 2, "admin sees all"
    since = yard.next_offset()
    ann.api("DELETE", f"/v1/keys/{hers['id']}", expect=204)
    told = [event for event in yard.events() if event["offset"] >= since]
    assert [(event["type"], event["who"], event["owner"]) for event in told] == [("key.removed", f"token {ann.name}", "ann")]
    assert not [event for event in bob.api("GET", "/v1/events").json["events"] if event["type"].startswith("key.")]


def test_a_key_gets_no_more_than_who_adds_it(yard):
    builder = Client(yard, "ann", ["read", "exec", "create"])
    assert add(builder, fresh_line())["role"] == "create"
    assert "more than you have" in add(builder, fresh_line(), 403, role="admin")["error"]["message"]
    assert add(builder, "role=admin " + fresh_line(), 403)["error"]["code"] == "forbidden"
    narrow = Client(yard, "ann", ["read", "create"])
    assert add(narrow, fresh_line())["role"] == "read"
    assert add(narrow, fresh_line(), 403, role="exec")
    for scopes in (["read"], ["read", "files", "exec"]):
        reader = Client(yard, "ann", scopes)
        assert add(reader, fresh_line(), 403)["error"]["hint"]
        assert len(reader.api("GET", "/v1/keys", expect=200).json["keys"]) == 2
        assert reader.api("DELETE", "/v1/keys/x").status == 403
    ops = Client(yard, "ops", ["admin"])
    assert add(ops, fresh_line(), role="admin", owner="ann")["owner"] == "ann"


def test_a_key_does_not_outlive_the_token_that_added_it(yard):
    made = yard.api("POST", "/v1/tokens", {"name": random_name(), "owner": "ann", "scopes": ["create", "read", "exec"],
                                           "expires_in": "1h"}, expect=201).json
    guest = Client(yard, "ann")
    guest.token = made["token"]
    assert add(guest, fresh_line())["expires_at"] == made["expires_at"]
    assert add(guest, fresh_line(), ttl="10m")["expires_at"] < made["expires_at"]
    assert "outlive" in add(guest, fresh_line(), 403, ttl="2h")["error"]["message"]


def test_keys_outlive_the_daemon(yard):
    made = add(yard, fresh_line("kept"), box="ada")
    told = yard.info()["ssh"]
    yard.stop_daemon()
    yard.start_daemon()
    assert yard.api("GET", "/v1/keys/kept", expect=200).json == made
    assert yard.info()["ssh"]["keys"] == told["keys"]


# ---- the host key ----------------------------------------------------------------------------


def test_info_tells_the_host_key(yard, tmp_path):
    told = yard.info()["ssh"]
    path = yard.home / "ssh" / "host_ed25519_key"
    assert path.stat().st_mode & 0o777 == 0o600 and (yard.home / "ssh").stat().st_mode & 0o777 == 0o700
    public = subprocess.run(["ssh-keygen", "-yf", path], capture_output=True, text=True, check=True).stdout.split()[:2]
    assert told["keys"] == [" ".join(public)] and told["fingerprint"] == fingerprint(path)
    assert told["known_hosts"].endswith(" ".join(public)) and " IN SSHFP 4 2 " in told["sshfp"]
    assert told["fingerprint"] in yard.box("info").stdout
    assert told["library"], "libssh was not built: scripts/libssh tells why"
    row = next(row for row in yard.json("doctor")["checks"] if row["name"] == "ssh")
    assert row["ok"] and told["library"] in row["detail"] and told["listen"] in row["detail"]


def test_a_damaged_host_key_stops_the_daemon_and_stays(yard):
    path = yard.home / "ssh" / "host_ed25519_key"
    good = path.read_bytes()
    yard.stop_daemon()
    try:
        path.write_bytes(good[: len(good) // 2])
        done = yard.box("serve", check=False, timeout=20)
        assert done.returncode and "host key" in done.stderr and "damaged" in done.stderr and str(path) in done.stderr
        assert path.read_bytes() == good[: len(good) // 2]
    finally:
        path.write_bytes(good)
        yard.start_daemon()


# ---- the command line ------------------------------------------------------------------------


def key_box(yard, *words, home=None, check=True, **more):
    return yard.box("key", *words, check=check, env={"HOME": str(home)} if home else {}, **more)


def test_key_add_takes_a_file_or_stdin(yard, tmp_path):
    path, line = keygen(tmp_path)
    assert key_box(yard, "add", "-f", f"{path}.pub").stdout == "ann-laptop\n"
    assert key_box(yard, "add", "ci", "--box", "ada", "--from", "192.0.2.0/24", "--expires", "30d", "--restrict", "--owner", "ann",
                   input=fresh_line()).stdout == "ci\n"
    made = yard.json("key", "add", "until", "--role", "files", "--expires", "2099-01-02T03:04:05Z", "-f", "-", input=fresh_line())
    assert made["role"] == "files" and made["expires_at"].startswith("2099-01-02T03:04:05")
    listed = yard.json("key", "ls")
    assert [key["name"] for key in listed] == ["ann-laptop", "ci", "until"]
    assert (listed[1]["box"], listed[1]["owner"], listed[1]["role"], len(listed[1]["restricted"])) == ("ada", "ann", "exec", 4)
    table = key_box(yard, "ls").stdout
    assert table.split()[:8] == ["NAME", "OWNER", "ROLE", "BOX", "TYPE", "FINGERPRINT", "EXPIRES", "USED"]
    assert fingerprint(path) in table and "never" in table and "2099-01-02" in table
    assert key_box(yard, "ls", "--names").stdout.split() == ["ann-laptop", "ci", "until"]
    done = key_box(yard, "rm", "ci", "nosuch", fingerprint(path), check=False)
    assert done.returncode == 66 and done.stdout.split() == ["ci", fingerprint(path)] and "nosuch" in done.stderr
    assert key_box(yard, "ls", "--names").stdout.split() == ["until"]


def test_key_add_takes_ones_own_and_authorized_keys(yard, tmp_path):
    (tmp_path / ".ssh").mkdir()
    none = key_box(yard, "add", "--mine", home=tmp_path, check=False)
    assert none.returncode == 66 and "ssh-keygen" in none.stderr
    for kind in ("ed25519", "ecdsa"):
        subprocess.run(["ssh-keygen", "-q", "-N", "", "-C", f"me {kind}", "-t", kind, "-f", tmp_path / ".ssh" / f"id_{kind}"], check=True)
    assert key_box(yard, "add", "--mine", home=tmp_path).stdout.split() == ["me-ecdsa", "me-ed25519"]
    again = key_box(yard, "add", "--mine", home=tmp_path)
    assert again.stdout.split() == ["me-ecdsa", "me-ed25519"], "the same as before"
    assert len(yard.json("key", "ls")) == 2
    (tmp_path / ".ssh" / "authorized_keys").write_text(
        f"# people\n\nbox=ada {fresh_line('one')}\ncommand=\"ls\" {fresh_line('two')}\nrole=exec {fresh_line('three')}\r\n"
        + (tmp_path / ".ssh" / "id_ecdsa.pub").read_text().replace("ecdsa-", "role=read ecdsa-", 1))
    done = key_box(yard, "add", "--authorized-keys", home=tmp_path, check=False)
    assert done.stdout.split() == ["one", "three"] and done.returncode == 64, done
    assert "key 2: the option 'command' is not supported" in done.stderr and "'me-ecdsa' of owner 'local'" in done.stderr
    assert yard.api("GET", "/v1/keys/one").json["box"] == "ada"
    assert key_box(yard, "add", "name", "--authorized-keys", home=tmp_path, check=False).returncode == 64
    assert key_box(yard, "add", "--mine", "--agent", home=tmp_path, check=False).returncode == 64


def test_key_add_takes_an_agents_keys(yard, tmp_path):
    path, _ = keygen(tmp_path, comment="from the agent")
    agent = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    env = dict(re.findall(r"(SSH_\w+)=([^;]+);", agent))
    try:
        none = yard.box("key", "add", "--agent", env=env, check=False)
        assert none.returncode and "agent" in none.stderr
        subprocess.run(["ssh-add", "-q", path], env={**os.environ, **env}, check=True)
        assert yard.box("key", "add", "--agent", env=env).stdout == "from-the-agent\n"
        assert yard.json("key", "ls")[0]["fingerprint"] == fingerprint(path)
    finally:
        os.kill(int(env["SSH_AGENT_PID"]), 15)
    assert "not installed" in yard.box("key", "add", "--agent", env={"PATH": str(tmp_path)}, check=False).stderr


def test_key_add_refuses_a_private_key_before_it_is_sent(yard, tmp_path):
    path, _ = keygen(tmp_path)
    since = yard.log.stat().st_size
    for how in (("-f", str(path)), ("-f", "-")):
        done = key_box(yard, "add", *how, check=False, input=path.read_text() if how[1] == "-" else None)
        assert done.returncode == 64 and "private key" in done.stderr and ".pub" in done.stderr
        for line in path.read_text().splitlines()[1:-1]:
            assert line not in done.stderr + done.stdout
    assert b"/v1/keys" not in yard.log.read_bytes()[since:]
    assert yard.json("key", "ls") == []
    for words, why in ((("-f", str(tmp_path / "nosuch")), "nosuch"), (("-f", "/dev/null"), "no key"), (("Not-A-Name", "-f", f"{path}.pub"), "name"),
                       (("--expires", "soon", "-f", f"{path}.pub"), "--expires")):
        done = key_box(yard, "add", *words, check=False)
        assert done.returncode and why in done.stderr, done.stderr
