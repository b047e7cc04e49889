"""The command line itself: help, usage, exit codes, JSON, completion, refusals of bad input."""
import json
import os
import re
import socket
import subprocess

import pytest

from boxtest import (BOX_BIN, EXIT_EXISTS, EXIT_NOT_FOUND, EXIT_STATE, EXIT_UNAVAILABLE, EXIT_USAGE, ROOT, eventually,
                     random_name)

VERBS = """new ls show exec shell ps attach logs cp stop start compare rename rm stats events image token doctor bench
           up down serve version help completion""".split()


def refused(done, code):
    """A refusal is one line on stderr that starts with the program's name, and nothing on
    stdout."""
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.startswith("box: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


# ---- help ------------------------------------------------------------------------------------


def test_help_lists_every_verb(yard):
    text = yard.box("help").stdout
    for verb in VERBS:
        assert f" {verb}" in text, verb


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_explains_itself(yard, verb):
    text = yard.box("help", verb).stdout
    assert f"box {verb}" in text
    assert yard.box(verb, "--help").stdout == text


def test_help_tells_exit_codes(yard):
    text = yard.box("help", "exit-codes").stdout
    for code in (64, 65, 66, 69, 73, 124):
        assert str(code) in text


def test_help_of_an_unknown_verb_is_a_usage_error(yard):
    refused(yard.box("help", "dance", check=False), EXIT_USAGE)
    assert "exec" in refused(yard.box("help", "exce", check=False), EXIT_USAGE)


def test_no_arguments_shows_help_or_usage(yard):
    done = yard.box(check=False)
    assert done.returncode in (0, EXIT_USAGE)
    assert "box" in done.stdout + done.stderr


def test_version_names_the_program(yard):
    assert any(c.isdigit() for c in yard.box("version").stdout)
    assert "version" in yard.json("version")


def test_unknown_verb_suggests_the_nearest(yard):
    assert "exec" in refused(yard.box("exce", check=False), EXIT_USAGE)


def test_unknown_flag_suggests_the_nearest(yard):
    assert "--memory" in refused(yard.box("new", "--memroy", "1G", check=False), EXIT_USAGE)


@pytest.mark.parametrize("args", [["new", "--memory"], ["show"], ["exec"], ["exec", "x"], ["cp", "x"],
                                  ["rename", "x"], ["rm"], ["image", "dance"], ["token"], ["ls", "surplus"]])
def test_missing_or_surplus_arguments_are_usage_errors(yard, args):
    refused(yard.box(*args, check=False), EXIT_USAGE)


def test_flag_values_come_with_or_without_equals_sign(yard):
    for args in (["--label=a=b"], ["--label", "a=b"], ["-l", "a=b"]):
        name = random_name()
        yard.box("new", name, *args)
        assert yard.json("show", name)["labels"] == {"a": "b"}
        yard.box("rm", "-f", name)


# ---- completion ------------------------------------------------------------------------------


def complete(yard, *words):
    script = """
        source <("$BOX" completion bash)
        spec=$(complete -p box); fn=${spec##*-F }; fn=${fn%% *}
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
        $fn box "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    env = {**yard.env, "BOX": str(BOX_BIN), "PATH": f"{BOX_BIN.parent}:{yard.env['PATH']}"}
    done = subprocess.run(["bash", "-c", script, "complete", *words], env=env, capture_output=True, text=True,
                          check=True, timeout=20)
    return [word.strip() for word in done.stdout.split()]


def test_completion_offers_verbs_flags_and_boxes(yard, box):
    assert set(VERBS) <= set(complete(yard, "box", ""))
    assert complete(yard, "box", "renam") == ["rename"]
    assert "--memory" in complete(yard, "box", "new", "--mem")
    assert box.name in complete(yard, "box", "show", box.name[:4])


def test_completion_knows_what_a_word_is(yard, box):
    assert complete(yard, "box", "exec", "--user", "") == []
    assert complete(yard, "box", "exec", "--user", "root", box.name[:4]) == [box.name]
    assert complete(yard, "box", "logs", box.name, "") == []
    assert box.name in complete(yard, "box", "rm", box.name, "")
    assert complete(yard, "box", "ls", "--state", "ru") == ["running"]
    assert complete(yard, "box", "image", "bu") == ["build"]
    assert complete(yard, "box", "image", "show", "deb") == ["debian"]
    assert complete(yard, "box", "new", "--image", "deb") == ["debian"]
    assert complete(yard, "box", "help", "im") == ["image"]
    assert complete(yard, "box", "help", "image", "") == []


# ---- JSON ------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [["ls"], ["image", "ls"], ["token", "ls"], ["doctor"], ["events"], ["version"],
                                  ["stats"]])
def test_json_is_one_value_and_nothing_else(yard, args):
    text = yard.box(*args, "--json").stdout
    if args == ["events"]:
        assert all(json.loads(line) for line in text.splitlines())
    else:
        json.loads(text)


def test_json_about_a_box(yard, box):
    assert yard.json("show", box.name)["id"] == box.id
    assert box.name in [b["name"] for b in listed(yard.json("ls"), "boxes")]
    assert yard.json("image", "show", "debian")["name"] == "debian"
    listed(yard.json("ps", box.name), "processes")


def listed(value, key):
    """Lists may come bare or under their key."""
    return value[key] if isinstance(value, dict) else value


def test_tables_have_no_colours_when_piped(yard, box):
    for args in (["ls"], ["show", box.name], ["ps", box.name], ["stats"], ["image", "ls"]):
        assert "\x1b" not in yard.box(*args, env={"NO_COLOR": ""}).stdout


# ---- bad input -------------------------------------------------------------------------------

BAD = {
    "name": ["", "A", "a-", "1a", "a_b", "a.b", "a" * 64, "ü", "../x", "a b", "a\nb"],
    "--memory": ["", "x", "-1", "1e3", "12Q", "0x10", "99999999T", "1..5G", "5 G"],
    "--cpu": ["", "x", "-1", "1.5.2", "100000", "1,5", "nan", "inf"],
    "--pids": ["", "x", "-1", "1.5", "99999999999999999999"],
    "--disk": ["", "x", "-5G", "1X"],
    "--label": ["", "x", "=v", "a b=c", "k=" + "v" * 256],
    "--env": ["", "=v", "1A=b", "A-B=c"],
    "--profile": ["", "root", "STANDARD"],
    "--driver": ["", "docker"],
}


@pytest.mark.parametrize("what,value", [(what, value) for what, values in BAD.items() for value in values])
def test_bad_input_is_refused_before_anything_happens(yard, what, value):
    before = [b["id"] for b in yard.boxes()]
    args = [value] if what == "name" else [f"{what}={value}", random_name()]
    message = refused(yard.box("new", *args, check=False), EXIT_USAGE)
    assert len(message) < 900
    assert [b["id"] for b in yard.boxes()] == before


@pytest.mark.parametrize("value", ["", "x", "-1", "5y", "1e3s"])
def test_bad_timeout_is_refused(yard, box, value):
    refused(yard.box("exec", f"--timeout={value}", box.name, "--", "true", check=False), EXIT_USAGE)


def test_good_sizes_are_read_as_powers_of_1024(yard, make_box):
    for text, value in (("512M", 512 << 20), ("1.5G", 3 << 29), ("64MiB", 64 << 20), ("134217728", 1 << 27)):
        assert make_box(memory=text).show()["limits"]["memory"] == value


def test_unknown_image_says_how_to_get_one(yard):
    assert "box image" in refused(yard.box("new", "--image", "nosuch", "--pull", "never", check=False), EXIT_NOT_FOUND)
    done = yard.box("new", "--image", "nosuch", check=False)
    assert done.returncode and "cannot be pulled" in done.stderr.splitlines()[-1]


def test_duplicate_name_is_refused(yard, box):
    assert box.name in refused(yard.box("new", box.name, check=False), EXIT_EXISTS)


@pytest.mark.parametrize("args", [["show"], ["stop"], ["start"], ["rm"], ["ps"], ["logs"], ["attach"], ["shell"]])
def test_unknown_box_is_not_found(yard, args):
    assert "nosuchbox" in refused(yard.box(*args, "nosuchbox", check=False), EXIT_NOT_FOUND)


def test_unknown_box_is_not_found_by_exec_and_cp(yard, tmp_path):
    refused(yard.box("exec", "nosuchbox", "--", "true", check=False), EXIT_NOT_FOUND)
    refused(yard.box("cp", "nosuchbox:/etc/passwd", tmp_path / "x", check=False), EXIT_NOT_FOUND)


def test_program_not_found_is_told(yard, box):
    done = box.exec("nosuchprogram", check=False)
    assert done.returncode in (EXIT_NOT_FOUND, 127)
    assert "nosuchprogram" in done.stderr


def test_stopped_box_refuses_work(yard, box):
    yard.box("stop", box.name)
    for args in (["exec", box.name, "--", "true"], ["shell", box.name], ["ps", box.name],
                 ["cp", "-", f"{box.name}:/tmp/x"]):
        assert "start" in refused(yard.box(*args, check=False, input=""), EXIT_STATE)


def test_without_a_daemon_it_says_how_to_start_one(yard, tmp_path):
    done = yard.box("ls", check=False, env={"BOX_HOME": str(tmp_path / "h"), "BOX_RUN": str(tmp_path / "r")})
    assert "box up" in refused(done, EXIT_UNAVAILABLE)


def test_no_program_after_the_dashes_is_refused(yard):
    before = len(yard.boxes())
    refused(yard.box("new", "--", check=False), EXIT_USAGE)
    assert len(yard.boxes()) == before


def test_output_that_cannot_be_written_is_told_and_ends_the_program(yard, box):
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(BOX_BIN), "ls"], env=yard.env, stdout=full, stderr=subprocess.PIPE, timeout=20)
        assert done.returncode == 75 and b"No space left" in done.stderr
        done = subprocess.run([str(BOX_BIN), "exec", box.name, "--", "yes"], env=yard.env, stdout=full,
                              stderr=subprocess.PIPE, timeout=20)
        assert done.returncode == 75 and b"No space left" in done.stderr
    eventually(lambda: not [e for e in box.execs() if e["state"] == "running"])


def test_tables_have_no_spaces_at_their_ends(yard, box):
    assert not [line for line in yard.box("ls").stdout.splitlines() if line != line.rstrip()]


@pytest.mark.parametrize("words", [
    ["show", ""], ["exec", "", "true"], ["rm", "-f", ""], ["stop", ""], ["logs", ""], ["url", ""], ["rename", "a", ""],
    ["diff", ""], ["save", "", "x"], ["policy", "show", ""], ["volume", "rm", ""], ["image", "rm", ""], ["workspace", "rm", ""],
])
def test_an_empty_name_is_refused_before_anybody_is_asked(words, tmp_path):
    env = {**os.environ, "BOX_HOME": str(tmp_path), "BOX_RUN": str(tmp_path)}
    done = subprocess.run([str(BOX_BIN), *words], env=env, capture_output=True, text=True, timeout=20, check=False)
    assert "a name is empty" in refused(done, EXIT_USAGE)


# ---- habits of other tools -------------------------------------------------------------------


@pytest.mark.parametrize("word,here", [
    ("run", "box new --rm -- PROGRAM"), ("inspect", "box show BOX"), ("kill", "box stop -t 0 BOX"), ("top", "box ps BOX"),
    ("pull", "box image pull"), ("login", "registry_auth"), ("build", "box image build"), ("undo", "box rollback BOX"),
    ("create", "box new"), ("images", "box image ls"), ("rmi", "box image rm"), ("pause", "box suspend"), ("commit", "box save"),
])
def test_words_of_other_tools_get_the_right_hint(yard, word, here):
    refused = yard.box(word, "x", check=False)
    if refused.returncode != EXIT_USAGE or f"no 'box {word}'" not in refused.stderr:
        assert word in yard.box("help").stdout, "it has become a command"
        return
    assert here in refused.stderr and "did you mean" not in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_habits_name_commands_that_exist():
    """Each hint quotes commands; all of them are in the manual."""
    text = (ROOT / "src" / "cli" / "habits.c").read_text()
    manual = subprocess.run([BOX_BIN, "help", "--markdown"], capture_output=True, text=True, check=True).stdout
    for quoted in re.findall(r"'box ((?:image |policy |port |volume )?[a-z]+)", text):
        assert f"## box {quoted}" in manual or f"# box {quoted}" in manual, quoted


def test_options_of_other_tools_work(yard):
    name = random_name()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert yard.box("new", "--name", name, "-p", f"{port}:8000", "-p", "9000").stdout.strip() == name
    try:
        ports = {one["port"]: one["host_port"] for one in yard.json("port", "ls", name)}
        assert ports[8000] == port and ports[9000]
        assert name in yard.box("ls", "-a").stdout
        assert yard.box("new", name, "--name", "y", check=False).returncode == EXIT_USAGE
        taken = random_name()
        assert yard.box("new", taken, "-p", f"{port}:8000", check=False).returncode != 0
        assert taken not in yard.box("ls").stdout, "nothing is left"
        for bad in ("x", "0:80", "80:0", "1.2.3.4:80:80", "1:2:3"):
            assert yard.box("new", "-p", bad, check=False).returncode == EXIT_USAGE
    finally:
        yard.box("rm", "-f", name)


# ---- JSON ------------------------------------------------------------------------------------


@pytest.mark.parametrize("words,code,exit_code", [
    (["show", "nobody"], "not_found", EXIT_NOT_FOUND), (["exec", "nobody", "--", "true"], "not_found", EXIT_NOT_FOUND),
    (["rm", "nobody"], "not_found", EXIT_NOT_FOUND), (["new", "--memory", "x"], "invalid", EXIT_USAGE),
    (["ls", "--nonsense"], "invalid", EXIT_USAGE), (["nonsense"], "invalid", EXIT_USAGE), (["show"], "invalid", EXIT_USAGE),
    (["logs", "nobody"], "not_found", EXIT_NOT_FOUND), (["cp", "nobody:/x", "/tmp/x"], "not_found", EXIT_NOT_FOUND),
    (["events", "nobody"], "not_found", EXIT_NOT_FOUND), (["port", "rm", "nobody", "80"], "not_found", EXIT_NOT_FOUND),
])
def test_errors_are_json_when_asked_for(yard, words, code, exit_code):
    at = words.index("--") if "--" in words else len(words)
    done = yard.box(*words[:at], "--json", *words[at:], check=False)
    if words[0] == "exec":  # options end at the box
        done = yard.box("exec", "--json", *words[1:], check=False)
    assert done.returncode == exit_code, done
    [line] = done.stderr.splitlines()
    error = json.loads(line)["error"]
    assert error["code"] == code and error["message"] and "hint" in error


def test_what_is_said_with_json_is_json(yard, box):
    yard.box("port", "add", box.name, "8000")
    assert json.loads(yard.box("port", "rm", box.name, "8000", "--json").stdout) == {"removed": 8000}
    done = yard.box("events", "-n", "2", "--json")
    assert len(json.loads(done.stdout)) == 2 and done.stderr == ""


def test_events_of_unknown_boxes_are_an_error(yard):
    made = yard.new()
    made.remove()
    assert "box.created" in yard.box("events", made.id).stdout, "one that is gone is found by its id"
    for words in (["events", "nobody"], ["events", "--box", "nobody"], ["events", "-f", "nobody"]):
        done = yard.box(*words, check=False)
        assert done.returncode == EXIT_NOT_FOUND and "nobody" in done.stderr
    assert yard.api("GET", "/v1/events", query={"box": "nobody"}).status == 404


def test_events_can_be_the_last_ones(yard, box):
    box.sh("true")
    last = yard.events(box=box.id)[-2:]
    shown = json.loads(yard.box("events", "-n", "2", box.name, "--json").stdout)
    assert [e["offset"] for e in shown] == [e["offset"] for e in last]
    assert yard.box("events", "-n", "0").stdout == ""
    assert yard.box("events", "-n", "1", "--since", "1", check=False).returncode == EXIT_USAGE
    assert yard.box("events", "-n", "x", check=False).returncode == EXIT_USAGE
    follow = yard.spawn("events", "-f", "-n", "1", box.name, text=True)
    try:
        assert json.dumps(last[-1]["offset"]) in follow.stdout.readline()
        box.sh("true")
        assert "exec.started" in follow.stdout.readline()
    finally:
        follow.kill()
        follow.communicate()


@pytest.mark.parametrize("args", [["audit", "nosuch"], ["audit", "nosuch", "--since", "0"], ["audit", "-f", "nosuch"],
                                  ["events", "nosuch"]])
def test_a_box_that_never_was_is_not_found(yard, args):
    assert "nosuch" in refused(yard.box(*args, check=False), EXIT_NOT_FOUND)


def test_the_audit_of_a_box_that_is_gone(yard):
    box = yard.new()
    yard.box("policy", "set", box.name, "--preset", "none", check=False)
    box.remove()
    assert yard.box("audit", box.id, check=False).returncode == 0


@pytest.mark.parametrize("args", [["show", "a/b"], ["rm", "-f", "a/b"], ["exec", "a/b", "true"], ["stop", "x", "a/b"],
                                  ["rollback", "x", "a/b"], ["volume", "rm", "a/b"], ["logs", "x", "../y"], ["fork", "a/b"],
                                  ["snapshot", "a/b"], ["workspace", "rm", "a/b"], ["token", "revoke", "a/b"], ["url", "a/b"]])
def test_a_name_with_a_slash_is_refused_before_anything_is_asked(yard, args):
    assert "'/'" in refused(yard.box(*args, check=False), EXIT_USAGE)


def test_words_that_may_have_a_slash(yard, box):
    assert yard.box("policy", "explain", box.name, "https://example.com/a", check=False).returncode == 1
    yard.box("save", box.name, "some/image")
    yard.box("image", "rm", "some/image")
    assert yard.box("exec", box.name, "/bin/echo", "a/b").stdout == "a/b\n"


@pytest.mark.parametrize("word", ["tpo", "rn", "r", "sto", "topp", "stat", "rum", "rum-", "stp", "don"])
def test_what_takes_away_is_not_offered_for_short_words(yard, word):
    said = refused(yard.box(word, check=False), EXIT_USAGE)
    for command in ("stop", "rm", "rollback", "forget", "down", "promote"):
        assert f"mean '{command}'" not in said, said


def test_typos_of_other_tools_words_get_their_hint(yard):
    assert "'box ps BOX'" in refused(yard.box("tpo", check=False), EXIT_USAGE)
    assert "mean 'stop'" in refused(yard.box("sotp", check=False), EXIT_USAGE)
    assert "--mount" in refused(yard.box("mount", check=False), EXIT_USAGE)


def test_errors_name_the_option_and_say_what_to_do(yard, box, tmp_path):
    for since in ("zzz", "2026-13-01T00:00:00Z"):
        assert "--since" in refused(yard.box("logs", box.name, "--since", since, check=False), EXIT_USAGE)
    said = refused(yard.box("new", "--mount", "/nonexist:/m", check=False), EXIT_NOT_FOUND)
    assert "/nonexist" in said and "mount_roots" not in said
    for args in (["a", "b"], ["", f"{box.name}:/"], [f"{box.name}:x", "."]):
        done = yard.box("cp", *args, "--json", check=False)
        assert done.returncode == EXIT_USAGE and json.loads(done.stderr)["error"]["hint"], done.stderr
