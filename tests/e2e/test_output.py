"""Output belongs to the exec: detach, attach, logs, offsets, gaps, several readers; WebSocket."""
import json
import subprocess
import time

import pytest
import websocket

from boxtest import EXIT_NOT_FOUND, eventually, ran

pytestmark = pytest.mark.asan

COUNTER = "i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); sleep 0.01; done"


def lines(count):
    return "".join(f"line {i}\n" for i in range(count))


class Socket:
    """A WebSocket to an exec; collects what comes."""

    def __init__(self, yard, path, first=None, **query):
        self.ws = yard.ws(path, query)
        self.out, self.err, self.texts = b"", b"", []
        if first is not None:
            self.ws.send(json.dumps(first))

    def step(self):
        kind, data = self.ws.recv_data()
        if kind == websocket.ABNF.OPCODE_CLOSE:
            return False
        if kind == websocket.ABNF.OPCODE_TEXT:
            self.texts.append(json.loads(data))
        elif data[0] == 1:
            self.out += data[1:]
        else:
            assert data[0] == 2
            self.err += data[1:]
        return True

    def until(self, check):
        while not check():
            assert self.step(), (self.out, self.err, self.texts)
        return self

    def finish(self):
        while self.step():
            pass
        return self.texts[-1]

    def say(self, **message):
        self.ws.send(json.dumps(message))

    def input(self, data):
        self.ws.send_binary(data)


# ---- detach, logs, attach --------------------------------------------------------------------


def test_detached_program_goes_on_and_keeps_its_output(yard, box):
    exec_id = yard.box("exec", "-d", box.name, "--", "sh", "-c", COUNTER % 20 + "; exit 6").stdout.strip()
    over = box.wait_exec(exec_id)
    assert over["exit_code"] == 6 and over["reason"] == "exited" and over["ended_at"]
    assert yard.box("logs", box.name, exec_id).stdout == lines(20)
    assert yard.box("logs", box.name).stdout == lines(20), "the last exec is the default"


def test_logs_follow_until_the_program_ends(yard, box):
    started = box.start("sh", "-c", COUNTER % 40)
    assert yard.box("logs", "-f", box.name, started["id"]).stdout == lines(40)


def test_logs_since_an_offset(yard, box):
    started = box.start("printf", "0123456789")
    box.wait_exec(started["id"])
    assert yard.box("logs", "--since-offset", "4", box.name, started["id"]).stdout == "456789"
    assert box.logs(started["id"], offset="7", raw="true") == b"789"
    assert box.logs(started["id"], offset="end", raw="true") == b""
    assert yard.api("GET", f"{box.path}/execs/{started['id']}/logs", query={"offset": "x"}).code == "invalid"


def test_logs_keep_streams_apart(yard, box):
    started = box.start("sh", "-c", "echo out; echo err >&2")
    box.wait_exec(started["id"])
    done = yard.box("logs", box.name, started["id"])
    assert done.stdout == "out\n" and done.stderr == "err\n"


def test_attach_gives_output_and_exit_code(yard, box):
    started = box.start("sh", "-c", COUNTER % 30 + "; exit 8")
    done = yard.box("attach", box.name, started["id"], check=False)
    assert done.returncode == 8 and done.stdout == lines(30)


def test_attach_without_an_exec_takes_the_running_one(yard, box):
    box.start("sh", "-c", COUNTER % 30 + "; exit 2")
    done = yard.box("attach", box.name, check=False)
    assert done.returncode == 2 and done.stdout == lines(30)


def test_unknown_exec_is_not_found(yard, box):
    assert yard.box("logs", box.name, "nosuchexec", check=False).returncode == EXIT_NOT_FOUND
    for path in ("", "/logs"):
        assert yard.api("GET", f"{box.path}/execs/nosuchexec{path}").code == "not_found"


def test_journal_tells_what_was_lost(yard, box):
    size = 3_000_000
    started = box.start("sh", "-c", f"head -c {size} /dev/zero | tr '\\0' a")
    over = box.wait_exec(started["id"])
    assert over["newest_offset"] == size and over["oldest_offset"] > 0
    start, first, *rest = box.logs(started["id"])
    assert start["type"] == "start" and first["type"] == "gap" and first["offset"] == 0 and first["lost"] == over["oldest_offset"]
    kept = sum(len(line["data"]) for line in rest if line["type"] == "output")
    assert first["lost"] + kept == size
    assert kept >= 900_000, "about a mebibyte is kept"
    done = yard.box("logs", box.name, started["id"])
    assert len(done.stdout) == kept and str(first["lost"]) in done.stderr


def test_endless_output_stays_in_its_bound(yard, box):
    started = box.start("yes")
    eventually(lambda: box.get_exec(started["id"])["newest_offset"] > 50_000_000, 10)
    now = box.get_exec(started["id"])
    assert now["newest_offset"] - now["oldest_offset"] <= 1 << 20
    stats = yard.api("GET", f"{box.path}/stats", expect=200).json
    assert stats["memory_bytes"] < 64 << 20


def test_reading_at_two_offsets_gives_the_same_bytes(yard, box):
    started = box.start("sh", "-c", "seq 1 20000; seq 1 20000 >&2")
    box.wait_exec(started["id"])
    whole = box.logs(started["id"], raw="true")
    for offset in (1, 999, 65536, len(whole) - 1):
        assert box.logs(started["id"], raw="true", offset=offset) == whole[offset:]


def test_finished_execs_are_listed_with_their_figures(yard, box):
    box.run("sh", "-c", "exit 3")
    one = box.execs()[-1]
    assert one["state"] == "exited" and one["exit_code"] == 3 and one["signal"] is None
    assert one["started_at"] <= one["ended_at"] and one["pid"] > 1


# ---- WebSocket -------------------------------------------------------------------------------


def test_websocket_exec_is_interactive(yard, box):
    talk = Socket(yard, f"{box.path}/exec", {"argv": ["sh", "-c", "read x; echo got $x; echo e >&2; exit 5"]})
    talk.until(lambda: talk.texts)
    assert talk.texts[0]["type"] == "start"
    talk.input(b"ping\n")
    end = talk.finish()
    assert talk.out == b"got ping\n" and talk.err == b"e\n"
    assert end["type"] == "exit" and end["exit_code"] == 5


def test_websocket_end_of_file(yard, box):
    talk = Socket(yard, f"{box.path}/exec", {"argv": ["cat"]})
    talk.input(b"\x00\xff")
    talk.input(b"end")
    talk.say(type="eof")
    talk.finish()
    assert talk.out == b"\x00\xffend"


def test_websocket_signal_and_resize(yard, box):
    talk = Socket(yard, f"{box.path}/exec",
                  {"argv": ["sh", "-c", "trap 'stty size' WINCH; trap 'exit 3' INT; echo ready; while :; do sleep 0.02; done"],
                   "tty": True, "rows": 10, "cols": 20})
    talk.until(lambda: b"ready" in talk.out)
    talk.say(type="resize", rows=40, cols=120)
    talk.until(lambda: b"40 120" in talk.out)
    talk.say(type="signal", signal="INT")
    assert talk.finish()["exit_code"] == 3


def test_websocket_error_for_a_missing_program(yard, box):
    end = Socket(yard, f"{box.path}/exec", {"argv": ["nosuchprogram"]}).finish()
    assert end["type"] == "error" and end["error"]["code"] == "not_found"


@pytest.mark.parametrize("first", [b"binary", "not json", "[]", '{"argv":[]}', '{"argv":["x"],"nope":1}'])
def test_websocket_bad_first_message(yard, box, first):
    talk = Socket(yard, f"{box.path}/exec")
    talk.ws.send(first, websocket.ABNF.OPCODE_BINARY if isinstance(first, bytes) else websocket.ABNF.OPCODE_TEXT)
    end = talk.finish()
    assert end["type"] == "error" and end["error"]["code"] in ("invalid", "protocol")
    assert not box.execs()


def test_websocket_oversize_message_is_refused(yard, box):
    talk = Socket(yard, f"{box.path}/exec")
    with pytest.raises((websocket.WebSocketException, OSError, IndexError, AssertionError)):
        talk.ws.send("x" * (20 << 20))
        talk.finish()
        assert talk.texts[-1]["type"] != "error"
    assert yard.answers()


def test_upgrade_without_websocket_is_answered(yard, box):
    assert yard.api("GET", f"{box.path}/exec").status in (400, 426)


def test_websocket_client_that_goes_away_only_detaches(yard, box):
    talk = Socket(yard, f"{box.path}/exec", {"argv": ["sh", "-c", COUNTER % 50]})
    talk.until(lambda: b"line 3" in talk.out)
    exec_id = talk.texts[0]["exec"]["id"]
    talk.ws.sock.close()
    assert box.wait_exec(exec_id)["exit_code"] == 0
    assert box.logs(exec_id, raw="true").decode() == lines(50)


def test_two_attached_readers_see_the_same(yard, box):
    first = Socket(yard, f"{box.path}/exec", {"argv": ["sh", "-c", "echo before; read x; seq 1 5000; exit 2"]})
    first.until(lambda: b"before" in first.out)
    exec_id = first.texts[0]["exec"]["id"]
    second = Socket(yard, f"{box.path}/execs/{exec_id}/attach", stdin="false")
    third = Socket(yard, f"{box.path}/execs/{exec_id}/attach", offset="end", stdin="false")
    second.until(lambda: b"before" in second.out)
    third.until(lambda: third.texts)
    first.input(b"go\n")
    assert [s.finish()["exit_code"] for s in (first, second, third)] == [2, 2, 2]
    assert first.out == second.out and first.out.endswith(b"5000\n")
    assert third.out == first.out[len(b"before\n"):]


def test_watcher_cannot_type(yard, box):
    first = Socket(yard, f"{box.path}/exec", {"argv": ["sh", "-c", "read x; echo $x"]})
    first.until(lambda: first.texts)
    watch = Socket(yard, f"{box.path}/execs/{first.texts[0]['exec']['id']}/attach", stdin="false")
    watch.until(lambda: watch.texts)
    try:
        watch.input(b"intruder\n")
        time.sleep(0.1)
    except (OSError, websocket.WebSocketException):
        pass
    first.input(b"owner\n")
    first.finish()
    assert first.out == b"owner\n"


def test_attached_reader_holds_the_program_back_and_loses_nothing(yard, box):
    size = 4_000_000
    talk = Socket(yard, f"{box.path}/exec", {"argv": ["sh", "-c", f"head -c {size} /dev/zero"]})
    talk.until(lambda: talk.texts)
    time.sleep(0.5)
    end = talk.finish()
    assert end["type"] == "exit" and len(talk.out) == size
    assert not [t for t in talk.texts if t["type"] == "gap"]


def test_ndjson_follow_continues_from_an_offset(yard, box):
    started = box.start("sh", "-c", COUNTER % 40)
    whole = lines(40).encode()
    with yard.stream("GET", f"{box.path}/execs/{started['id']}/logs", query={"follow": "true"}) as answer:
        part = ran([json.loads(answer.readline()) for _ in range(4)]).stdout
    reply = yard.api("GET", f"{box.path}/execs/{started['id']}/logs", query={"follow": "true", "offset": len(part)})
    assert part + ran(reply.lines).stdout == whole


def test_many_followers_come_and_go(yard, box):
    started = box.start("sh", "-c", "while :; do echo tick; sleep 0.01; done")
    clients = [yard.spawn("logs", "-f", box.name, started["id"]) for _ in range(8)]
    for client in clients:
        assert client.stdout.readline() == b"tick\n"
        client.terminate()
    for client in clients:
        client.communicate(timeout=10)
    assert box.get_exec(started["id"])["state"] == "running"


def test_follower_that_closes_its_pipe_ends_quietly(yard, box):
    from boxtest import BOX_BIN

    started = box.start("sh", "-c", "while :; do echo tick; sleep 0.01; done")
    done = subprocess.run(["bash", "-c", '"$0" logs -f "$1" "$2" | head -2', str(BOX_BIN), box.name, started["id"]],
                          env=yard.env, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "tick\ntick\n" and done.stderr == ""
    assert box.get_exec(started["id"])["state"] == "running"
