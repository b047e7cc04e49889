"""REST: every route, the description of itself, strictness about bodies, events."""
import json
import re
import time

import pytest

from boxtest import ROOT, eventually, random_name

pytestmark = pytest.mark.asan
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f rest"


def documented_routes():
    """(method, path) of every row in docs/api.md."""
    text = (ROOT / "docs" / "api.md").read_text()
    found = set()
    for method, path in re.findall(r"^\| `(GET|POST|PUT|PATCH|DELETE) (/v1[^`? ]*)", text, re.M):
        found.add((method, path))
    return found


def test_openapi_lists_every_documented_route_and_no_other(yard):
    doc = yard.api("GET", "/v1/openapi.json", expect=200).json
    assert doc["openapi"].startswith("3.")
    listed = {(method.upper(), path) for path, methods in doc["paths"].items() for method in methods
              if method in ("get", "post", "put", "patch", "delete")}
    assert listed == documented_routes()


def test_the_tables_of_the_manual_are_those_of_the_program(yard):
    """Each row of docs/api.md has the scope of its route and names every key of its query."""
    text = (ROOT / "docs" / "api.md").read_text()
    rows = {(method, path): (scope, line) for line, method, path, scope in
            re.findall(r"^(\| `(GET|POST|PUT|PATCH|DELETE) (/v1[^`? ]*)[^|]*\| ([a-z]+) \|.*)$", text, re.M)}
    doc = yard.api("GET", "/v1/openapi.json", expect=200).json
    for path, methods in doc["paths"].items():
        for method, operation in methods.items():
            if method not in ("get", "post", "put", "patch", "delete"):
                continue
            scope, row = rows[method.upper(), path]
            assert scope == operation["x-scope"].removesuffix(" or exec"), (method, path)
            keys = [key["name"] for key in operation.get("parameters", ()) if key["in"] == "query"]
            assert not [key for key in keys if not re.search(rf"\b{key}\b", row)], (method, path, keys)


def test_openapi_has_what_its_linters_ask_for(yard):
    """Servers, a licence, and for each operation an id of its own and at least one refusal: redocly
    finds nothing."""
    doc = yard.api("GET", "/v1/openapi.json", expect=200).json
    assert doc["info"]["license"]["name"] and doc["info"]["license"]["url"].startswith("https://")
    assert all(server["url"].startswith("http://") and server["description"] for server in doc["servers"]) and doc["servers"]
    operations = [operation for path in doc["paths"].values() for operation in path.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    for operation in operations:
        assert operation["summary"] and "default" in operation["responses"]
        assert any(status.startswith("2") or status == "101" for status in operation["responses"]), operation
        assert any(status.startswith("4") for status in operation["responses"]), operation
    one = doc["paths"]["/v1/boxes/{box}"]["get"]["responses"]
    assert {"200", "400", "401", "403", "404"} <= set(one)
    assert not {"401", "403"} & set(doc["paths"]["/v1/health"]["get"]["responses"])


def test_openapi_refers_only_to_what_it_holds(yard):
    doc = yard.api("GET", "/v1/openapi.json", expect=200).json
    for ref in re.findall(r'"\$ref":\s*"#/([^"]+)"', json.dumps(doc)):
        at = doc
        for part in ref.split("/"):
            at = at[part]


def test_every_route_answers(yard, make_box):
    """Each route once, with success; a new route without a line here fails."""
    seen = set()

    def call(method, path, body=None, status=200, **at):
        seen.add((method, path))
        query = at.pop("query", None)
        reply = yard.api(method, path.format(**at), body, query=query)
        want = status if isinstance(status, tuple) else (status,)
        assert reply.status in want, (method, path, reply.status, reply.body[:300])
        return reply

    name = random_name()
    one = call("POST", "/v1/boxes", {"name": name}, 201).json
    at = {"box": name}
    ok = (200, 201, 204)
    call("GET", "/v1/boxes")
    call("GET", "/v1/boxes/{box}", **at)
    call("GET", "/v1/boxes/{box}/stats", **at)
    call("GET", "/v1/boxes/{box}/processes", **at)
    call("GET", "/v1/boxes/{box}/policy", **at)
    call("PUT", "/v1/boxes/{box}/policy", {"policy": {"preset": "none"}}, **at)
    call("POST", "/v1/boxes/{box}/policy/explain", {"name": "a.example.com", "port": 443}, **at)
    call("POST", "/v1/boxes/{box}/policy/record", {"on": True}, **at)
    call("GET", "/v1/boxes/{box}/policy/proposal", **at)
    call("GET", "/v1/boxes/{box}/net", **at, query={"connections": "true"})
    call("GET", "/v1/boxes/{box}/url", **at, query={"port": "8000"})
    call("PUT", "/v1/boxes/{box}/ports/{port}", {"access": "public", "host_port": 0, "default": True}, **at, port=8000)
    call("GET", "/v1/boxes/{box}/ports", **at)
    call("POST", "/v1/boxes/{box}/login", {"port": 8000}, (200, 201), **at)
    call("DELETE", "/v1/boxes/{box}/ports/{port}", status=204, **at, port=8000)
    call("GET", "/v1/net")
    call("POST", "/v1/policy/check", {"text": "preset: none"})
    call("GET", "/v1/policy/presets")
    call("POST", "/v1/boxes/{box}/exec", {"argv": ["true"]}, **at)
    exec_id = call("POST", "/v1/boxes/{box}/exec", {"argv": ["sleep", "9"], "detach": True}, 201, **at).json["id"]
    call("GET", "/v1/boxes/{box}/execs", **at)
    call("GET", "/v1/boxes/{box}/execs/{exec}", **at, exec=exec_id)
    call("POST", "/v1/boxes/{box}/execs/{exec}/signal", {"signal": "KILL"}, ok, **at, exec=exec_id)
    call("GET", "/v1/boxes/{box}/execs/{exec}/logs", **at, exec=exec_id)
    call("GET", "/v1/boxes/{box}/exec", None, (400, 426), **at)
    call("GET", "/v1/boxes/{box}/execs/{exec}/attach", None, (400, 426), **at, exec=exec_id)
    call("PUT", "/v1/boxes/{box}/files", b"x", ok, **at, query={"path": "/root/f"})
    call("GET", "/v1/boxes/{box}/files", **at, query={"path": "/root/f"})
    call("GET", "/v1/boxes/{box}/files/stat", **at, query={"path": "/root/f"})
    call("GET", "/v1/boxes/{box}/files/list", **at, query={"path": "/root"})
    call("POST", "/v1/boxes/{box}/files/mkdir", {"path": "/root/d"}, ok, **at)
    call("POST", "/v1/boxes/{box}/files/rename", {"from": "/root/f", "to": "/root/g"}, ok, **at)
    call("POST", "/v1/boxes/{box}/files/chmod", {"path": "/root/g", "mode": "0600"}, ok, **at)
    tar = call("GET", "/v1/boxes/{box}/archive", **at, query={"path": "/root/g"}).body
    call("PUT", "/v1/boxes/{box}/archive", tar, ok, **at, query={"path": "/root/d"})
    call("DELETE", "/v1/boxes/{box}/files", None, 204, **at, query={"path": "/root/g"})
    call("POST", "/v1/boxes/{box}/stop", {"timeout_ms": 500}, **at)
    call("POST", "/v1/boxes/{box}/start", None, **at)
    call("PATCH", "/v1/boxes/{box}", {"name": random_name("z")}, **at)
    at = {"box": one["id"]}
    call("POST", "/v1/boxes/{box}/suspend", {}, **at)
    call("POST", "/v1/boxes/{box}/resume", {}, **at)
    # Where processes cannot be captured (no CRIU) these say so.
    call("GET", "/v1/boxes/{box}/timeline", **at)
    call("POST", "/v1/boxes/{box}/hibernate", {}, (200, 501), **at)
    call("POST", "/v1/boxes/{box}/wake", {}, (200, 501), **at)
    call("POST", "/v1/boxes/{box}/snapshots", {"name": "one"}, (201, 501), **at)
    call("POST", "/v1/boxes/{box}/rollback", {}, (200, 404, 501), **at)
    call("DELETE", "/v1/boxes/{box}/snapshots/{snapshot}", None, (204, 404), **at, snapshot="one")
    forks = call("POST", "/v1/boxes/{box}/fork", {}, (201, 501), **at).json
    for child in forks.get("children", []):
        yard.api("DELETE", f"/v1/boxes/{child['id']}", query={"force": "true"}, expect=204)
    call("POST", "/v1/boxes/{box}/promote", {}, (409, 501), **at)
    call("GET", "/v1/boxes/{box}/diff", **at)
    image, again = random_name("i"), random_name("j")
    call("POST", "/v1/boxes/{box}/save", {"name": image}, 201, **at)
    call("POST", "/v1/images/{image}/tag", {"name": again}, image=image)
    call("GET", "/v1/images/{image}/export", image="nosuch", status=404)
    call("POST", "/v1/images/import", b"no archive", 400, query={"name": image})
    call("POST", "/v1/images/pull", {"reference": "nosuch"})
    call("POST", "/v1/images/gc", {"dry": True})
    call("GET", "/v1/pool")
    call("POST", "/v1/pool/grow", {"bytes": 1 << 50}, (429, 501))
    call("POST", "/v1/pool/scrub", {})
    volume = random_name("v")
    call("POST", "/v1/volumes", {"name": volume}, 201)
    call("GET", "/v1/volumes")
    call("GET", "/v1/volumes/{volume}", volume=volume)
    call("PATCH", "/v1/volumes/{volume}", {"size": 0}, volume=volume)
    call("DELETE", "/v1/volumes/{volume}", None, 204, volume=volume)
    call("DELETE", "/v1/boxes/{box}", None, 204, **at, query={"force": "true", "keep_workspace": "true"})
    call("GET", "/v1/workspaces")
    call("GET", "/v1/workspaces/{workspace}", workspace=one["id"])
    call("GET", "/v1/workspaces/{workspace}/archive", workspace=one["id"])
    call("DELETE", "/v1/workspaces/{workspace}", None, 204, workspace=one["id"])
    call("DELETE", "/v1/images/{image}", None, 204, image=image)
    call("GET", "/v1/stats")
    call("GET", "/v1/compare", query={"box": [make_box().name, make_box().name]})
    call("GET", "/v1/events")
    call("GET", "/v1/audit")
    call("GET", "/v1/audit/verify")
    call("GET", "/v1/images")
    call("GET", "/v1/images/{image}", image="debian")
    call("POST", "/v1/images", {"name": "Not A Name"}, 400)
    call("DELETE", "/v1/images/{image}", None, 404, image="nosuch")
    token = call("POST", "/v1/tokens", {"name": random_name(), "scopes": ["read"]}, 201).json
    call("GET", "/v1/tokens")
    call("DELETE", "/v1/tokens/{token}", None, 204, token=token["id"])
    key = call("POST", "/v1/keys", {"key": KEY, "role": "read"}, 201).json
    call("GET", "/v1/keys")
    call("GET", "/v1/keys/{key}", key=key["fingerprint"])
    call("DELETE", "/v1/keys/{key}", None, 204, key=key["id"])
    call("GET", "/v1/info")
    call("GET", "/v1/doctor")
    call("GET", "/v1/openapi.json")
    call("GET", "/v1/health")
    assert documented_routes() - seen == {("POST", "/v1/shutdown")}, "shutdown is tried in test_daemon.py"


def test_info_and_doctor_tell_about_the_machine(yard):
    info = yard.info()
    assert info["home"] == str(yard.home) and info["version"]
    assert "ns" in json.dumps(info["drivers"])
    doctor = yard.api("GET", "/v1/doctor", expect=200).json
    assert doctor["ok"] is True
    for check in doctor["checks"]:
        assert set(check) >= {"name", "ok", "detail"}
    assert "overlay" in yard.box("doctor").stdout


def test_image_in_use_is_not_removed(yard, box):
    reply = yard.api("DELETE", "/v1/images/debian")
    assert reply.status == 409 and box.name in reply.body.decode()


# ---- strictness ------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["", "{", "[]", "null", "1", '"x"', '{"name":}', '{"a":1}x', '{"name":"a","name":"b"}',
                                  "{" * 3000, '{"name":"\\ud800"}', b'{"name":"\xff"}', '{"nope":1}', '{"name":1}',
                                  '{"labels":{"a":1}}', '{"env":{"1":"x"}}', '{"memory":-1}', '{"memory":1.5}',
                                  '{"cpu":"fast"}', '{"pids":"many"}', '{"command":"ls"}', '{"command":[]}',
                                  '{"remove_on_exit":"yes"}', '{"name":null,"image":5}', '{"memory":1e400}'])
def test_bad_bodies_are_refused_whole(yard, body):
    before = len(yard.boxes())
    reply = yard.api("POST", "/v1/boxes", body)
    if body == "":  # nothing at all may mean all defaults
        if reply.status == 201:
            yard.api("DELETE", f"/v1/boxes/{reply.json['id']}", query={"force": "true"}, expect=204)
            return
    assert reply.status == 400 and reply.code == "invalid", reply.body
    assert len(yard.boxes()) == before


def test_unknown_key_is_named(yard):
    assert "memroy" in yard.api("POST", "/v1/boxes", {"memroy": 1}).json["error"]["message"]


def test_oversize_body_is_refused(yard):
    reply = yard.api("POST", "/v1/boxes", {"env": {"A": "x" * (2 << 20)}})
    assert reply.status == 413 and reply.code == "too_large"


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=-1", "limit=99999999999999999999", "state=flying",
                                   "label=%00"])
def test_bad_queries_are_refused(yard, query):
    assert yard.api("GET", f"/v1/boxes?{query}").code == "invalid"


def test_unknown_paths_and_methods(yard):
    for path in ("/", "/v1", "/v2/boxes", "/v1/nope", "/v1/boxes/a/b/c/d", "/v1//boxes", "/v1/boxes/"):
        assert yard.api("GET", path).status in (404, 400), path
    assert yard.api("PUT", "/v1/boxes").status in (404, 405)
    assert yard.api("DELETE", "/v1/health").status in (404, 405)


def test_errors_say_what_and_what_next(yard):
    error = yard.api("GET", "/v1/boxes/nosuch").json["error"]
    assert error["code"] == "not_found" and "nosuch" in error["message"] and error["hint"]


def test_times_are_rfc_3339(yard, box):
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", box.show()["created_at"])


# ---- events ----------------------------------------------------------------------------------


def test_events_tell_the_life_of_a_box_in_order(yard):
    since = yard.next_offset()
    made = yard.new()
    made.run("sh", "-c", "exit 3")
    new_name = random_name("n")
    yard.box("rename", made.name, new_name)
    yard.box("stop", made.id)
    made.remove()
    events = eventually(lambda: [e for e in yard.events(since=since, box=made.id)]
                        if "box.removed" in [e["type"] for e in yard.events(since=since, box=made.id)] else None)
    types = [e["type"] for e in events]
    order = ["box.created", "box.started", "exec.started", "exec.exited", "box.renamed", "box.stopped", "box.removed"]
    assert [t for t in types if t in order] == order
    assert [e["offset"] for e in events] == sorted({e["offset"] for e in events})
    exited = [e for e in events if e["type"] == "exec.exited"][0]
    assert exited["data"]["exit_code"] == 3
    assert all(e["box"] == made.id for e in events)


def test_events_come_in_pages_without_holes(yard, box):
    for _ in range(5):
        box.run("true")
    whole = yard.events()
    page = yard.api("GET", "/v1/events", query={"since": whole[2]["offset"], "limit": 3}, expect=200).json
    assert page["events"] == whole[2:5] and page["next"] == whole[4]["offset"] + 1
    offsets = [e["offset"] for e in whole]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


def test_events_follow_live(yard):
    since = yard.next_offset()
    client = yard.spawn("events", "--follow", "--since", since, "--json")
    made = yard.new()
    try:
        event = json.loads(client.stdout.readline())
        assert event["type"] == "box.created" and event["offset"] == since and event["box"] == made.id
    finally:
        client.terminate()
        client.communicate(timeout=10)
        made.remove()


def test_events_follow_over_rest_misses_nothing(yard, box):
    since = yard.next_offset()
    with yard.stream("GET", "/v1/events", query={"follow": "true", "since": since}) as answer:
        for _ in range(30):
            box.run("true")
        got = [json.loads(answer.readline()) for _ in range(60)]
    assert [e["offset"] for e in got] == list(range(since, since + 60))


def test_slow_follower_gets_everything_later(yard, box):
    since = yard.next_offset()
    with yard.stream("GET", "/v1/events", query={"follow": "true", "since": since}) as answer:
        for _ in range(100):
            box.run("true")
        time.sleep(0.1)
        got = [json.loads(answer.readline()) for _ in range(200)]
    assert [e["offset"] for e in got] == list(range(since, since + 200))


def test_events_for_people(yard, box):
    out = yard.box("events", "--box", box.name).stdout
    assert "box.created" in out and box.name in out
