"""Owners: a token sees and does what is its owner's, and nothing else, by any call there is.

The table BODIES has a row for every call with a body, so that a new call cannot be forgotten: the
walk over the
OpenAPI document fails until somebody has said what a stranger would send.
"""
import http.client
import json
import time
from urllib.parse import quote, urlencode

import pytest

from boxtest import CRIU, IMAGE, Reply, eventually, random_name

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ann"
STRANGER_SCOPES = ["read", "files", "exec", "create"]  # all but admin

# What a stranger sends; None: the call reads a body as it comes.
BODIES = {
    ("POST", "/v1/boxes"): {"name": "{box_name}", "image": IMAGE},
    ("PATCH", "/v1/boxes/{box}"): {"name": "{fresh}"},
    ("POST", "/v1/boxes/{box}/start"): {},
    ("POST", "/v1/boxes/{box}/stop"): {},
    ("POST", "/v1/boxes/{box}/suspend"): {},
    ("POST", "/v1/boxes/{box}/resume"): {},
    ("POST", "/v1/boxes/{box}/hibernate"): {},
    ("POST", "/v1/boxes/{box}/wake"): {},
    ("POST", "/v1/boxes/{box}/snapshots"): {"name": "theirs"},
    ("POST", "/v1/boxes/{box}/rollback"): {"snapshot": "{snapshot}"},
    ("POST", "/v1/boxes/{box}/fork"): {"names": ["{fresh}"]},
    ("POST", "/v1/boxes/{box}/promote"): {},
    ("POST", "/v1/boxes/{box}/save"): {"name": "{fresh}"},
    ("PUT", "/v1/boxes/{box}/policy"): {"policy": {"preset": "open"}},
    ("POST", "/v1/boxes/{box}/policy/explain"): {"name": "a.example.com", "port": 443},
    ("POST", "/v1/boxes/{box}/policy/record"): {"on": True},
    ("PUT", "/v1/boxes/{box}/ports/{port}"): {"access": "public"},
    ("POST", "/v1/boxes/{box}/login"): {},
    ("POST", "/v1/boxes/{box}/exec"): {"argv": ["true"]},
    ("POST", "/v1/boxes/{box}/execs/{exec}/signal"): {"signal": "KILL"},
    ("PUT", "/v1/boxes/{box}/files"): None,
    ("POST", "/v1/boxes/{box}/files/mkdir"): {"path": "/root/stranger"},
    ("POST", "/v1/boxes/{box}/files/rename"): {"from": "/etc/hostname", "to": "/etc/stranger"},
    ("POST", "/v1/boxes/{box}/files/chmod"): {"path": "/etc/hostname", "mode": "0777"},
    ("PUT", "/v1/boxes/{box}/archive"): None,
    ("POST", "/v1/policy/check"): {"text": "preset: none"},
    ("POST", "/v1/images"): {"name": "Not A Name"},
    ("POST", "/v1/images/pull"): {"reference": "Not A Name"},
    ("POST", "/v1/images/import"): None,
    ("POST", "/v1/images/gc"): {"dry": False},
    ("POST", "/v1/images/{image}/tag"): {"name": "{fresh}"},
    ("POST", "/v1/pool/grow"): {"bytes": 1 << 30},
    ("POST", "/v1/pool/scrub"): {},
    ("POST", "/v1/volumes"): {"name": "{volume}"},
    ("PATCH", "/v1/volumes/{volume}"): {"size": 0},
    ("POST", "/v1/tokens"): {"name": "{fresh}", "scopes": ["admin"]},
    ("POST", "/v1/keys"): {"key": "no key"},
    ("POST", "/v1/shutdown"): {},
}
# What is sent for a key of the query, where the call has it.
QUERY = {
    "path": "/etc/hostname", "box": ["{box}", "{box_id}"], "other": "{box}", "log": "{box_id}", "port": "8000",
    "force": "true", "all": "true", "name": "Not A Name",
}
# Calls that name nothing of anybody: what a stranger gets.
ELSEWHERE = {
    ("POST", "/v1/boxes"): 409, ("GET", "/v1/compare"): 404, ("GET", "/v1/events"): 404, ("POST", "/v1/images"): 400,
    ("POST", "/v1/images/pull"): 400, ("POST", "/v1/images/import"): 400, ("POST", "/v1/volumes"): 409,
    ("POST", "/v1/pool/grow"): 403, ("POST", "/v1/pool/scrub"): 403, ("GET", "/v1/tokens"): 403,
    ("POST", "/v1/tokens"): 403, ("DELETE", "/v1/tokens/{token}"): 403, ("POST", "/v1/shutdown"): 403,
    ("POST", "/v1/keys"): 400, ("GET", "/v1/audit"): 404, ("GET", "/v1/audit/verify"): 404,
}


class Client:
    """Somebody with a token, by TCP."""

    def __init__(self, yard, owner, scopes=STRANGER_SCOPES):
        made = yard.api("POST", "/v1/tokens", {"name": random_name(owner), "owner": owner, "scopes": scopes}, expect=201)
        self.yard, self.owner = yard, owner
        self.id, self.name, self.token = (made.json[key] for key in ("id", "name", "token"))
        assert made.json["owner"] == owner

    def api(self, method, path, body=None, query=None, headers=None, expect=None, timeout=30):
        headers = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        if query:
            path += "?" + urlencode(query, quote_via=quote, doseq=True)
        if isinstance(body, dict):
            body, headers["Content-Type"] = json.dumps(body), "application/json"
        conn = http.client.HTTPConnection("127.0.0.1", self.yard.port(), timeout=timeout)
        try:
            conn.request(method, path, body, headers)
            got = conn.getresponse()
            reply = Reply(got.status, got.headers, got.read())
        finally:
            conn.close()
        if expect is not None:
            assert reply.status == expect, f"{method} {path}: {reply.status} {reply.body[:500]!r}"
        return reply

    def new(self, **body):
        body.setdefault("name", random_name(self.owner))
        body.setdefault("image", IMAGE)
        return self.api("POST", "/v1/boxes", body, expect=201).json


def remove_all(yard):
    for box in yard.boxes():
        yard.api("DELETE", f"/v1/boxes/{box['id']}", query={"force": "true"})
    for volume in yard.api("GET", "/v1/volumes").json["volumes"]:
        yard.api("DELETE", f"/v1/volumes/{volume['name']}")
    for workspace in yard.api("GET", "/v1/workspaces").json["workspaces"]:
        yard.api("DELETE", f"/v1/workspaces/{workspace['id']}")
    for key in yard.api("GET", "/v1/keys").json["keys"]:
        yard.api("DELETE", f"/v1/keys/{key['id']}")
    for image in yard.api("GET", "/v1/images").json["images"]:
        if image["owner"] != "local":
            yard.api("DELETE", f"/v1/images/{image['id']}")


@pytest.fixture
def ann(yard):
    yield Client(yard, "ann")
    remove_all(yard)


@pytest.fixture
def bob(yard):
    return Client(yard, "bob")


@pytest.fixture
def things(yard, ann):
    """One of everything, Ann's."""
    volume, image, kept = random_name("annvol"), random_name("annimg"), random_name("annkept")
    box = ann.new(name=random_name("annbox"), labels={"secret": "annlabel"},
                  volumes=[{"volume": volume, "path": "/data", "read_only": True}])
    at = f"/v1/boxes/{box['name']}"
    job = ann.api("POST", at + "/exec", {"argv": ["sleep", "1000"], "detach": True}, expect=201).json["id"]
    saved = ann.api("POST", at + "/save", {"name": image}, expect=201).json
    old = ann.new(name=kept)
    ann.api("DELETE", f"/v1/boxes/{kept}", query={"force": "true", "keep_workspace": "true"}, expect=204)
    key = ann.api("POST", "/v1/keys", {"key": KEY, "name": random_name("annkey")}, expect=201).json["name"]
    snapshot = "none"
    if CRIU.exists():
        snapshot = ann.api("POST", at + "/snapshots", {"name": "annsnap"}, expect=201).json["id"]
    return {"box": box["name"], "box_id": box["id"], "volume": volume, "image": image, "image_id": saved["id"],
            "workspace": old["id"], "kept": kept, "exec": job, "snapshot": snapshot, "port": "8000", "token": ann.id, "key": key,
            "label": "annlabel"}


def fill(value, at):
    if isinstance(value, str):
        return value.format(**at)
    if isinstance(value, dict):
        return {key: fill(one, at) for key, one in value.items()}
    return [fill(one, at) for one in value] if isinstance(value, list) else value


def routes(yard):
    for path, methods in yard.api("GET", "/v1/openapi.json", expect=200).json["paths"].items():
        for method, about in methods.items():
            yield method.upper(), path, about


def request_of(method, path, about, at):
    """(path, body, query, headers) as a stranger would send them."""
    body = None
    if "requestBody" in about:
        assert (method, path) in BODIES, f"{method} {path} is new: add what a stranger would send to BODIES"
        body = BODIES[method, path]
        body = b"stranger" if body is None else fill(body, at)
    names = [one["name"] for one in about.get("parameters", []) if one["in"] == "query"]
    query = {name: fill(QUERY[name], at) for name in names if name in QUERY}
    if path == "/v1/events":
        query["box"] = at["box_id"]
    if path == "/v1/boxes":
        query = {}
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
               "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="} if "101" in about["responses"] else {}
    return path.format(**at), body, query, headers


def state_of(yard, things):
    """What must be as before."""
    at = f"/v1/boxes/{things['box']}"
    box = yard.api("GET", at, expect=200).json
    return {
        **{key: box[key] for key in ("name", "id", "state", "owner", "limits", "origin", "position")},
        "policy": yard.api("GET", at + "/policy", expect=200).json["policy"],
        "ports": yard.api("GET", at + "/ports", expect=200).json,
        "snapshots": [one["id"] for one in yard.api("GET", at + "/timeline", expect=200).json["snapshots"]],
        "execs": [(one["id"], one["state"]) for one in yard.api("GET", at + "/execs", expect=200).json["execs"]],
        "hostname": yard.api("GET", at + "/files", query={"path": "/etc/hostname"}, expect=200).body,
        "volume": yard.api("GET", f"/v1/volumes/{things['volume']}", expect=200).json["limit_bytes"],
        "image": yard.api("GET", f"/v1/images/{things['image_id']}", expect=200).json["names"],
        "workspace": yard.api("GET", f"/v1/workspaces/{things['workspace']}", expect=200).body,
    }


def assert_says_nothing(reply, things, what):
    for key in ("box", "box_id", "volume", "image", "image_id", "workspace", "kept", "label", "token", "key"):
        assert things[key].encode() not in reply.body, (what, key, reply.body[:400])


def test_no_call_shows_a_stranger_anything(yard, things, bob):
    """Every route of the OpenAPI document, by name and by id: as if nothing were there."""
    before, walked = state_of(yard, things), 0
    for ids in (False, True):
        at = {**things, "fresh": random_name("bobs"), "box_name": things["box"]}
        if ids:
            at |= {"box": at["box_id"], "image": at["image_id"]}
        nothing = {key: "x" * len(value) if key in ("box", "box_id", "image", "volume", "workspace", "key") else value
                   for key, value in at.items()}
        for method, path, about in routes(yard):
            what = (method, path, ids)
            reply = bob.api(method, *request_of(method, path, about, at))
            walked += 1
            if any(f"{{{key}}}" in path for key in ("box", "image", "volume", "workspace", "key")):
                assert reply.status == 404, (what, reply.status, reply.body[:300])
                other = bob.api(method, *request_of(method, path, about, nothing))
                named = reply.body
                for key in ("box", "image", "volume", "workspace", "key"):
                    named = named.replace(at[key].encode(), nothing[key].encode())
                assert (other.status, other.body) == (404, named), what
                continue
            assert reply.status == ELSEWHERE.get((method, path), 200), (what, reply.status, reply.body[:300])
            if reply.status == 200:
                assert_says_nothing(reply, things, what)
    assert walked > 140
    assert state_of(yard, things) == before


def test_lists_hold_ones_own_alone(yard, things, ann, bob):
    own = bob.new()
    lists = [("/v1/boxes", "boxes", things["box"]), ("/v1/volumes", "volumes", things["volume"]),
             ("/v1/images", "images", things["image"])]
    for path, key, name in lists:
        assert name in [one["name"] for one in ann.api("GET", path, expect=200).json[key]]
        assert name in [one["name"] for one in yard.api("GET", path, expect=200).json[key]]
        assert name not in [one["name"] for one in bob.api("GET", path, expect=200).json[key]]
    assert [one["name"] for one in bob.api("GET", "/v1/boxes").json["boxes"]] == [own["name"]]
    assert [one["name"] for one in bob.api("GET", "/v1/stats").json["boxes"]] == [own["name"]]
    assert [one["name"] for one in bob.api("GET", "/v1/net").json["boxes"]] == [own["name"]]
    assert bob.api("GET", "/v1/info").json["boxes"] == 1
    assert [one["id"] for one in ann.api("GET", "/v1/workspaces").json["workspaces"]] == [things["workspace"]]
    assert bob.api("GET", "/v1/workspaces").json["workspaces"] == []
    everybody = yard.api("GET", "/v1/info").json["boxes"]
    assert everybody >= 2
    # A page goes on behind a box of one's own alone.
    assert bob.api("GET", "/v1/boxes", query={"after": things["box_id"]}).status == 404


def test_events_and_audit_are_the_owners_and_name_who_asked(yard, things, ann, bob):
    own = bob.new()
    bob.api("PUT", f"/v1/boxes/{own['name']}/policy", {"policy": {"preset": "none"}}, expect=200)
    ours = bob.api("GET", "/v1/events", query={"limit": 1000}).json["events"]
    assert {event["owner"] for event in ours} == {"bob"}
    created = [event for event in ours if event["type"] == "box.created" and event["box"] == own["id"]]
    assert [event["who"] for event in created] == [f"token {bob.name}"]
    theirs = ann.api("GET", "/v1/events", query={"limit": 1000}).json["events"]
    assert {event["owner"] for event in theirs} == {"ann"}
    assert f"token {ann.name}" in {event["who"] for event in theirs if event["type"] == "image.saved"}
    removed = [event for event in theirs if event["type"] == "box.removed" and event["box_name"] == things["kept"]]
    assert [event["who"] for event in removed] == [f"token {ann.name}"]
    ended = bob.api("POST", f"/v1/boxes/{own['id']}/exec", {"argv": ["true"]}, expect=200)
    assert b'"exit"' in ended.body
    yard.box("exec", own["name"], "--", "true")  # by WebSocket

    def programs():
        return [event["who"] for event in yard.events(box=own["id"]) if event["type"].startswith("exec.")]

    eventually(lambda: len(programs()) == 4, 5, "starts and ends of both")
    assert programs() == [f"token {bob.name}"] * 2 + ["uid 0 by the socket"] * 2
    every = yard.events()
    assert {"ann", "bob", "local"} <= {event["owner"] for event in every}
    assert not [event for event in every if not event["who"]]
    lines = bob.api("GET", "/v1/audit", query={"limit": 1000}).json["lines"]
    assert {line["owner"] for line in lines} == {"bob"}
    assert f"token {bob.name}" in {line["who"] for line in lines if line["type"] == "policy"}
    # A page of the past and what comes: both leave out the others'.
    since = str(yard.next_offset())
    conn = http.client.HTTPConnection("127.0.0.1", yard.port(), timeout=10)
    conn.request("GET", f"/v1/events?follow=true&since={since}", headers={"Authorization": f"Bearer {bob.token}"})
    stream = conn.getresponse()
    ann.api("PATCH", f"/v1/boxes/{things['box']}", {"on_limit": "pause"}, expect=200)
    bob.api("PATCH", f"/v1/boxes/{own['name']}", {"on_limit": "pause"}, expect=200)
    line = json.loads(stream.readline())
    assert (line["box"], line["owner"], line["who"]) == (own["id"], "bob", f"token {bob.name}")
    conn.close()


def test_names_are_unique_and_say_so(yard, things, bob):
    own = bob.new()
    taken = bob.api("POST", "/v1/boxes", {"name": things["box"], "image": IMAGE}, expect=409).json["error"]
    assert taken["message"] == f"the name '{things['box']}' is taken by another owner's box"
    for call in (("PATCH", f"/v1/boxes/{own['name']}", {"name": things["box"]}),
                 ("POST", f"/v1/boxes/{own['name']}/fork", {"names": [things["box"]]})):
        assert bob.api(*call).status == 409
    assert bob.api("POST", "/v1/volumes", {"name": things["volume"]}, expect=409).json["error"]["message"] == (
        f"the name '{things['volume']}' is taken by another owner's volume")


def test_nothing_of_anothers_comes_in_by_a_body_or_query(yard, things, ann, bob):
    own = bob.new()
    at = f"/v1/boxes/{own['name']}"
    for read_only in (True, False):
        reply = bob.api("POST", "/v1/boxes", {"image": IMAGE, "volumes": [
            {"volume": things["volume"], "path": "/data", "read_only": read_only}]})
        assert reply.status == 409 and things["box"].encode() not in reply.body, reply.body
    for image in (things["image"], things["image_id"]):
        assert bob.api("POST", "/v1/boxes", {"image": image}).status == 404
        assert bob.api("GET", at + "/diff", query={"other": image}).status == 404
    assert bob.api("GET", at + "/diff", query={"other": things["box"]}).status == 404
    assert bob.api("GET", "/v1/compare", query={"box": [own["name"], things["box"]]}).status == 404
    assert bob.api("POST", "/v1/boxes", {"image": IMAGE, "owner": "ann"}).status == 403
    assert bob.api("POST", "/v1/volumes", {"name": random_name(), "owner": "ann"}).status == 403
    if CRIU.exists():
        for verb, body in (("rollback", {"snapshot": things["snapshot"]}), ("fork", {"snapshot": things["snapshot"]})):
            assert bob.api("POST", f"{at}/{verb}", body).status == 404
    # An idempotency key is each owner's own.
    key = {"Idempotency-Key": random_name("key")}
    first = ann.api("POST", "/v1/boxes", {"image": IMAGE}, headers=key, expect=201).json
    second = bob.api("POST", "/v1/boxes", {"image": IMAGE}, headers=key, expect=201).json
    assert first["id"] != second["id"] and second["owner"] == "bob"
    assert ann.api("POST", "/v1/boxes", {"image": IMAGE}, headers=key, expect=200).json["id"] == first["id"]


def test_images_of_local_are_everybodys_to_use_and_nobodys_to_change(yard, ann, bob):
    shared = next(one for one in bob.api("GET", "/v1/images").json["images"] if one["name"] == IMAGE)
    assert shared["owner"] == "local"
    before = bob.api("GET", f"/v1/images/{IMAGE}", expect=200).json["users"]
    ann.new()
    own = bob.new()
    users = bob.api("GET", f"/v1/images/{IMAGE}", expect=200).json["users"]
    assert users == before + 1, "his own box alone"
    assert yard.api("GET", f"/v1/images/{IMAGE}", expect=200).json["users"] >= 2
    assert bob.api("POST", f"/v1/images/{IMAGE}/tag", {"name": "mine"}).status == 403
    assert bob.api("DELETE", f"/v1/images/{IMAGE}").status == 403
    # Names of images are each owner's own: nobody takes one away, or puts his own in its place.
    saved = bob.api("POST", f"/v1/boxes/{own['name']}/save", {"name": IMAGE}, expect=201).json
    try:
        assert saved["owner"] == "bob" and saved["name"] == IMAGE
        assert bob.api("GET", f"/v1/images/{IMAGE}", expect=200).json["id"] == saved["id"]
        for other in (ann, yard):
            assert other.api("GET", f"/v1/images/{IMAGE}", expect=200).json["id"] == shared["id"]
        assert yard.api("GET", f"/v1/images/{saved['id']}", expect=200).json["owner"] == "bob"
        only = random_name("only")
        bob.api("POST", f"/v1/images/{IMAGE}/tag", {"name": only}, expect=200)
        assert yard.api("POST", "/v1/boxes", {"image": only}).status == 404, "not even by who sees everything"
        yard.stop_daemon()
        yard.start_daemon()
        assert bob.api("GET", f"/v1/images/{only}", expect=200).json["id"] == saved["id"]
        assert yard.api("GET", f"/v1/images/{IMAGE}", expect=200).json["id"] == shared["id"]
    finally:
        yard.api("DELETE", f"/v1/boxes/{own['id']}", query={"force": "true"})
        yard.api("DELETE", f"/v1/images/{saved['id']}", expect=204)


def test_what_is_made_of_a_box_has_its_owner(yard, ann):
    """Whoever asks: a save and a fork by root belong to the box's owner."""
    box = ann.new()
    at = f"/v1/boxes/{box['name']}"
    image = yard.api("POST", at + "/save", {"name": random_name("saved")}, expect=201).json
    assert image["owner"] == "ann"
    if CRIU.exists():
        child = yard.api("POST", at + "/fork", {}, expect=201).json["children"][0]
        assert ann.api("GET", f"/v1/boxes/{child['id']}", expect=200).json["owner"] == "ann"
        ann.api("POST", f"/v1/boxes/{child['id']}/promote", {}, expect=200)
        told = [event for event in ann.api("GET", "/v1/events", query={"limit": 1000}).json["events"]
                if event["type"] == "box.promoted" and event["box"] == child["id"]]
        assert [event["who"] for event in told] == [f"token {ann.name}"]
    made = yard.json("new", random_name("given"), "--owner", "ann", "--image", IMAGE)
    assert made["owner"] == "ann"
    ann.api("DELETE", f"/v1/boxes/{made['name']}", query={"force": "true"}, expect=204)
    volume = random_name("vol")
    yard.box("volume", "create", volume, "--owner", "ann")
    assert ann.api("GET", f"/v1/volumes/{volume}", expect=200).json["owner"] == "ann"
    # A volume is shared by boxes of its owner alone, whoever makes them.
    assert yard.api("POST", "/v1/boxes", {"image": IMAGE, "volumes": [{"volume": volume, "path": "/d"}]}).status == 409


def test_boxes_of_two_owners_do_not_reach_each_other_by_name(yard, ann, bob):
    """Though both policies name the other one. Boxes of one owner do."""
    names = [random_name("peer") for _ in range(3)]

    def peer(client, index, others):
        policy = {"boxes": [f"{names[other]}.box:8000/tcp" for other in others]}
        return client.new(name=names[index], policy=policy)

    one, two, foreign = peer(ann, 0, [1, 2]), peer(ann, 1, [0, 2]), peer(bob, 2, [0, 1])
    server = {"argv": ["python3", "-m", "http.server", "8000"], "detach": True}
    for client, box in ((ann, one), (ann, two), (bob, foreign)):
        client.api("POST", f"/v1/boxes/{box['id']}/exec", server, expect=201)

    def reach(box, name):
        script = (f"import urllib.request; "
                  f"print(urllib.request.urlopen('http://{name}.box:8000/', timeout=5).status)")
        return yard.run(box["id"], "python3", "-c", script).stdout

    eventually(lambda: b"200" in reach(one, names[1]), 10, "boxes of one owner reach each other")
    for box, name in ((one, names[2]), (two, names[2]), (foreign, names[0])):
        assert b"200" not in reach(box, name)


def test_a_token_opens_private_ports_of_its_owners_boxes_alone(yard, ann, bob):
    box = ann.new()
    ann.api("POST", f"/v1/boxes/{box['id']}/exec",
            {"argv": ["python3", "-m", "http.server", "8000"], "detach": True}, expect=201)

    def visit(client):
        return client.api("GET", "/", headers={"Host": f"8000-{box['name']}.localhost:{yard.port()}"}).status

    eventually(lambda: visit(ann) == 200, 10, "the owner's token opens it")
    assert visit(bob) == 403
    ports = ann.api("POST", f"/v1/boxes/{box['id']}/login", {"port": 8000}, expect=201).json
    assert ports["box"] == box["name"]


def test_admin_sees_all_and_new_tokens_are_the_makers(yard, things):
    admin = Client(yard, "ops", ["admin"])
    assert admin.api("GET", f"/v1/boxes/{things['box']}", expect=200).json["owner"] == "ann"
    assert admin.new()["owner"] == "ops"
    made = admin.api("POST", "/v1/tokens", {"name": random_name()}, expect=201).json
    assert made["owner"] == "ops"
    assert admin.api("POST", "/v1/tokens", {"name": random_name(), "owner": "Not One"}).status == 400


def test_ls_names_owners_when_there_are_several(yard, ann):
    one = yard.new()
    assert "OWNER" not in yard.box("ls").stdout
    assert "OWNER" in yard.box("ls", "-o", "wide").stdout
    assert yard.box("ls", "-o", "narrow", check=False).returncode == 64
    ann.new(name="annsown")
    table = yard.box("ls").stdout.splitlines()
    assert "OWNER" in table[0] and any(line.split()[:2] == ["annsown", "ann"] for line in table)
    assert {box["owner"] for box in yard.json("ls")} == {"local", "ann"}
    assert "ann" in yard.box("token", "ls").stdout
    one.remove()


def test_wrong_tokens_of_one_peer_are_slowed(yard, ann):
    """A right one is let in at any time."""
    wrong = Client(yard, "ann")
    wrong.token = "box_" + "x" * 32
    statuses = {wrong.api("GET", "/v1/info").status for _ in range(40)}
    assert statuses == {401, 429}
    assert ann.api("GET", "/v1/info").status == 200
    time.sleep(1)
    assert wrong.api("GET", "/v1/info").status in (401, 429)
