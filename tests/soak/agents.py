"""agents.py - coding agents for the soak: their real programs, with a model that recites

The model is a server in the box that keeps nothing: what it answers follows from the request alone,
[[count]] or
[[job]] in the last prompt and how often the agent has spoken since. So it is the same after every
fork, rollback and
sleep. check() asks the agent that is there from the beginning, on a terminal of tmux, to count up a
file by its own
shell tool. stir() starts a second one on a job of several steps, which must end well in every copy,
each step done once.
"""
import itertools
import json
import shlex

from boxtest import eventually
from real import Real, npm

import software

STEPS = 4
MODEL = r'''import http.server, json, re, sys
STEPS = 4
COUNT = "echo $(($(cat /root/n) + 1)) > /root/n"
def texts(c):
    return c if isinstance(c, str) else " ".join(texts(x.get("text") or "") if isinstance(x, dict) else str(x) for x in c or [])
def spoken(items):
    n, before = 0, False
    for i in items:
        ours = i.get("role") == "assistant" or i.get("type") in ("function_call", "reasoning")
        n += ours and not before
        before = ours
    return n
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def reply(self, value, code=200):
        b = json.dumps(value).encode()
        self.send_response(code); self.send_header("content-type", "application/json"); self.send_header("content-length", str(len(b)))
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(b)
    def do_HEAD(self): self.reply({})
    def do_GET(self): self.reply({"object": "list", "data": [{"id": "m", "object": "model"}], "models": [], "has_more": False})
    def say(self, data, name=None):
        text = data if isinstance(data, str) else json.dumps(data)
        self.wfile.write(((f"event: {name}\n" if name else "") + f"data: {text}\n\n").encode()); self.wfile.flush()
    def body(self):
        n = self.headers.get("content-length")
        if n: return self.rfile.read(int(n))
        b = b""
        while (l := int(self.rfile.readline().strip() or b"0", 16)): b += self.rfile.read(l); self.rfile.readline()
        return b
    def do_POST(self):
        j, path = json.loads(self.body()), self.path.split("?")[0]
        if path.endswith("count_tokens"): return self.reply({"input_tokens": 10})
        items = j.get("messages") or j.get("input") or []
        if isinstance(items, str): items = [{"role": "user", "content": items}]
        asked = [n for n, i in enumerate(items) if i.get("role") == "user" and "[[" in texts(i.get("content"))]
        items = items[asked[-1]:] if asked else items
        prompt = " ".join(texts(i.get("content")) for i in items if i.get("role") == "user")
        names = [t.get("name") or (t.get("function") or {}).get("name") or "" for t in j.get("tools") or []]
        tool = next((n for n in names if re.fullmatch(r"(?i)bash|exec_command|shell|shell_command", n)), None)
        turn, job = spoken(items), "[[job]]" in prompt
        command = None
        if tool and job and turn < STEPS: command = f"echo step-{turn} >> /root/job; sleep 0.3"
        elif tool and "[[count]]" in prompt and turn < 1: command = COUNT
        args = {"cmd": command} if tool == "exec_command" else {"command": ["bash", "-c", command]} if tool == "shell" else {
            "command": command, "description": "a step"}
        token = re.search(r"\[\[count\]\] (t[0-9]+)", prompt)
        text, ident = "all done" + (" " + token[1] if token else ""), f"x{len(prompt)}-{turn}"
        if not j.get("stream"):
            if path.endswith("messages"):
                return self.reply({"id": "m", "type": "message", "role": "assistant", "model": j.get("model"), "content": [
                    {"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}})
            return self.reply({"id": "c", "object": "chat.completion", "created": 1, "model": j.get("model"), "choices": [
                {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}], "usage": {
                    "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})
        self.send_response(200); self.send_header("content-type", "text/event-stream"); self.send_header("connection", "close")
        self.end_headers(); self.close_connection = True
        if path.endswith("messages"):
            block = {"type": "tool_use", "id": "toolu_" + ident, "name": tool, "input": {}} if command else {"type": "text", "text": ""}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(args)} if command else {"type": "text_delta", "text": text}
            self.say({"type": "message_start", "message": {"id": "msg_" + ident, "type": "message", "role": "assistant", "model": j.get("model"),
                "content": [], "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}}, "message_start")
            self.say({"type": "content_block_start", "index": 0, "content_block": block}, "content_block_start")
            self.say({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")
            self.say({"type": "content_block_stop", "index": 0}, "content_block_stop")
            self.say({"type": "message_delta", "delta": {"stop_reason": "tool_use" if command else "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 5}}, "message_delta")
            self.say({"type": "message_stop"}, "message_stop")
        elif path.endswith("responses"):
            r = {"id": "resp_" + ident, "object": "response", "created_at": 1, "status": "in_progress", "model": j.get("model"), "output": []}
            item = {"type": "function_call", "id": "fc_" + ident, "call_id": "call_" + ident, "name": tool, "arguments": json.dumps(args)} if command else {
                "type": "message", "id": "m_" + ident, "role": "assistant", "status": "completed", "content": [
                    {"type": "output_text", "text": text, "annotations": []}]}
            self.say({"type": "response.created", "response": r}, "response.created")
            self.say({"type": "response.output_item.added", "output_index": 0, "item": item}, "response.output_item.added")
            self.say({"type": "response.output_item.done", "output_index": 0, "item": item}, "response.output_item.done")
            self.say({"type": "response.completed", "response": {**r, "status": "completed", "output": [item], "usage": {"input_tokens": 1,
                "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 2}}}, "response.completed")
        else:
            base = {"id": "c" + ident, "object": "chat.completion.chunk", "created": 1, "model": j.get("model")}
            delta = {"tool_calls": [{"index": 0, "id": "call_" + ident, "type": "function", "function": {"name": tool,
                "arguments": json.dumps(args)}}]} if command else {"content": text}
            for d, end in (({"role": "assistant", **delta}, None), ({}, "tool_calls" if command else "stop")):
                self.say({**base, "choices": [{"index": 0, "delta": d, "finish_reason": end}]})
            self.say({**base, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})
            self.say("[DONE]")
class S(http.server.ThreadingHTTPServer): daemon_threads = True
S(("127.0.0.1", 7016), H).serve_forever()
'''


TMUX = "tmux -f /dev/null"
tokens = itertools.count(1)


class Agent(Real):
    package, memory, job = "", "3G", None
    patience = 1  # times as long as on a processor
    ready = ""  # on the screen when it waits for words
    env = {"HOME": "/root", "TERM": "xterm-256color", "PATH": "/opt/agent/node_modules/.bin:/usr/local/bin:/usr/bin:/bin"}

    def prepare(self):
        software.ensure_states_image()
        self.folder = npm(self.package)

    def words(self, prompt):
        """The program and its words for one prompt."""

    def resident(self):
        """The program and its words on a terminal."""

    def settings(self, box):
        pass

    def start(self, box):
        box.sh("mkdir -p /opt/agent; echo 0 > /root/n; mkdir -p /root/w")
        box.yard.box("cp", f"{self.folder}/node_modules", f"{box.name}:/opt/agent/", timeout=600)
        self.settings(box)
        box.start("python3", self.script(box, "/root/model.py", MODEL))
        self.up(box, "python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:7016/v1/models\")'")
        words = shlex.join(["env", *(f"{name}={value}" for name, value in self.env.items()), *self.resident()])
        box.sh(f"cd /root/w && {TMUX} new-session -d -s s -x 100 -y 40 {shlex.quote(words)}")
        eventually(lambda: self.ready in self.screen(box), 120 * self.patience, lambda: self.screen(box), every=0.5)

    def screen(self, box):
        return box.sh(f"{TMUX} capture-pane -p -t s", check=False).stdout

    def ask(self, box):
        """To count up; gives what will be in the answer."""
        token = f"t{next(tokens)}"
        box.sh(f"{TMUX} send-keys -t s -l '[[count]] {token}'; sleep 0.5; {TMUX} send-keys -t s Enter")
        return f"all done {token}"

    def answered(self, box, words):
        eventually(lambda: words in self.screen(box), 180 * self.patience, lambda: self.screen(box), every=0.2)

    def count_up(self, box):
        self.answered(box, self.ask(box))

    def run(self, box, prompt):
        return box.start(*self.words(prompt), env=self.env, cwd="/root/w")

    def over(self, box, started, what):
        done = box.wait_exec(started["id"], 180)
        said = box.logs(started["id"], raw="true")
        assert done["exit_code"] == 0 and b"all done" in said, (self.name, what, done, said[-600:])

    def stir(self, box):
        box.sh("rm -f /root/job")
        self.job = self.run(box, "[[job]] do all steps of the job, one after the other")
        eventually(lambda: box.sh("grep -c step /root/job", check=False).stdout.strip() not in ("", "0"), 90)

    def check(self, box):
        if self.job and self.job["id"] in [one["id"] for one in box.execs()]:
            self.over(box, self.job, "job")
            assert box.out("cat /root/job").split() == [f"step-{i}" for i in range(STEPS)]
        self.count_up(box)
        return int(box.out("cat /root/n"))


class Claude(Agent):
    name, package = "claude", "@anthropic-ai/claude-code@2.1.326"
    env = {**Agent.env, "ANTHROPIC_BASE_URL": "http://127.0.0.1:7016", "ANTHROPIC_API_KEY": "none", "IS_SANDBOX": "1",
           "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}

    ready = "bypass permissions on"

    def settings(self, box):
        self.script(box, "/root/.claude.json", json.dumps({
            "hasCompletedOnboarding": True, "theme": "dark", "bypassPermissionsModeAccepted": True,
            "customApiKeyResponses": {"approved": ["none"], "rejected": []},
            "projects": {"/root/w": {"hasTrustDialogAccepted": True}}}))

    def resident(self):
        return "claude", "--dangerously-skip-permissions"

    def words(self, prompt):
        return *self.resident(), "-p", prompt


class Codex(Agent):
    name, package = "codex", "@openai/codex@0.169.0"
    env = {**Agent.env, "KEY": "none"}

    ready = "Ask Codex"
    flags = ("--dangerously-bypass-approvals-and-sandbox", "-m", "m", "-c", "model_provider=f", "-c",
             'model_providers.f={name="f",base_url="http://127.0.0.1:7016/v1",env_key="KEY",wire_api="responses"}')

    def settings(self, box):
        box.sh("mkdir -p /root/.codex")
        self.script(box, "/root/.codex/config.toml", '[projects."/root/w"]\ntrust_level = "trusted"\n')

    def resident(self):
        return "codex", *self.flags

    def words(self, prompt):
        return "codex", "exec", "--skip-git-repo-check", *self.flags, prompt


class Opencode(Agent):
    name, package = "opencode", "opencode-ai@1.18.33"

    def settings(self, box):
        self.script(box, "/root/w/opencode.json", json.dumps({
            "permission": {"bash": "allow", "edit": "allow", "external_directory": "allow"}, "autoupdate": False, "model": "f/m",
            "provider": {"f": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "http://127.0.0.1:7016/v1", "apiKey": "none"},
                               "models": {"m": {"name": "m"}}}}}))

    ready = "Ask anything"

    def resident(self):
        return ("opencode",)

    def words(self, prompt):
        return "opencode", "run", prompt


AGENTS = [Claude, Codex, Opencode]
